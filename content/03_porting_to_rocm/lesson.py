# %% [markdown] top
# # 03 From CUDA to ROCm
#
# **Afterwards you can** take a CUDA kernel to wavefronts of 64 lanes and find the lane that gets lost; read what hipify
# did and what it left; choose tiles, stages, precisions and FP8 types for both vendors in Triton; set up a node of
# eight AMD GPUs on paper; port a training script and show that it still trains the same model; and read a failure log
# from the right end.
#
# **You need** lessons 00 to 02. No GPU, no CUDA, no ROCm. Nothing in this course has run on AMD silicon: code is
# *compiled for* a chip, and *executed on a virtual GPU*. The C++ needs clang, from the optional extra `hip`
# (`W2W_EXTRAS=hip ./w2w study`, about 411 MB). Without it every cell still runs, with stored listings of the same
# files; you only cannot change the C++.
#
# **Seven sittings**, each with a stop at its end:
#
# | | sections | what | minutes |
# |---|---|---|---|
# | 1 | 1 | one source and two widths | 30 |
# | 2 | 2 | lanes that are not there | 20 |
# | 3 | 3 | hipify: what a machine translates, and what it leaves | 20 |
# | 4 | 4 | Triton's limits and defaults | 15 |
# | 5 | 5, 6 | FP8; instructions of one vendor | 20 |
# | 6 | 7 | the platform, and a node on paper | 15 |
# | 7 | 8, 9 | the training script, is it the same training; a log | 25 |
#
# That is 2 h 25 together, folds apart. On another day first run all cells above your sitting (JupyterLab: Run, Run All
# Above Selected Cell; a minute or two).

# %% imports
import torch
import triton
import triton.language as tl
from IPython.display import Code

from gpu_utils import compile_for, lesson, predict, virtual_gpu

# %% [markdown] one source
# ## 1. One source, two widths
#
# HIP, AMD's language for kernels, looks like CUDA C++: `__global__`, `threadIdx`, `__shared__`, `__syncthreads()`,
# `atomicAdd` are all there. Often a kernel compiles as it is. Is it still right?
#
# Here is a common CUDA kernel. A block of 256 threads sums a row of 256 numbers: five shuffles bring the sum of a warp
# to its first lane, and that lane adds it to the result. (The names without `_sync` are from before Volta. nvcc refuses
# them for `sm_70` and newer; HIP and this course's header still take them. The mask is a trap of its own, in section
# 2.)

# %% read the kernel
KERNELS = lesson.unit_folder("03") / "kernels"


def source(name):
    return (KERNELS / name).read_text()


Code(source("row_sum_32.cu"), language="cpp")

# %% [markdown] predict the sum
# `__shfl_down(sum, 16)` gives each lane the `sum` of the lane 16 further up, so after offsets 16, 8, 4, 2, 1 lane 0
# holds the sum of 32 lanes. In HIP and CUDA `warpSize` is 32 on NVIDIA's GPUs and on RDNA (`gfx1100`), and 64 on CDNA
# (`gfx942`, MI300X). The kernel's last line uses `warpSize`: only lanes with `threadIdx.x % warpSize == 0` add.

# %% guess the sum
guess = predict(
    "03.half",
    "Every one of the 256 numbers is 1. What is the sum on each target?",
    sm_80=lesson.number("sm_80"),
    gfx942=lesson.number(),
    gfx1100=lesson.number(),
)

# %% the sum on three targets
THREE = ("sm_80", "gfx942", "gfx1100")


def run(name, kernel, block, *args, grid=1):
    """Launch the kernel of a file on three virtual GPUs: target -> how it ended."""
    return lesson.launched(THREE, source(name), kernel, grid, block, args)


ends = run("row_sum_32.cu", "row_sum", 256, torch.ones(256), torch.tensor(0.0))
guess.reveal(
    sm_80=ends["sm_80"].out,
    gfx942=ends["gfx942"].out,
    gfx1100=ends["gfx1100"].out,
    because="five steps reach 32 lanes, and one lane in 64 adds on gfx942.",
)
lesson.table(
    {t: {"lanes": lesson.TARGETS[t].lanes, "sum": ends[t].out} for t in THREE},
    first="target",
)

# %% [markdown] half is gone
# Half of the row is gone on `gfx942`, and no error says so. `gfx1100` is AMD as well, and right. **The width follows
# the chip, not the vendor**: "it works on my Radeon" says nothing about an MI300X.
#
# ### Find the lane
#
# Which half? Give the kernel 256 rows, where row $i$ is zero except for a 1 in place $i$. Then `out[i]` says whether
# element $i$ **reaches the sum**. These rows are the identity matrix; the test works for maxima, too.


# %% which elements reach the sum
def reach(name):
    """Target -> for each of 256 elements how often it is counted in the sum."""
    ends = run(name, "row_sum", 256, torch.eye(256), torch.zeros(256), grid=256)
    return {target: end.out for target, end in ends.items()}


lesson.lane_figure(reach("row_sum_32.cu"), what="elements")

# %% [markdown] the pattern
# A filled bar is an element that counts. A row is 64 elements: one wavefront of `gfx942`, two warps of `sm_80`. Missing
# are lanes 32 to 63 of every wavefront: 16 + 8 + 4 + 2 + 1 = 31, so lane 0 reaches lane 31.
#
# Step through it with the arrow keys: the first wavefront, for a row of ones. `v1` holds `sum`, and `ds_bpermute_b32`
# is the shuffle; the lines between compute which lane the next one asks. After each `v_add_f32` all lanes hold 2, 4, 8,
# 16, also lane 63: past the end of the wave a shuffle gives a lane its own value. Then
# `s_and_saveexec_b64` switches off all lanes but lane 0, the only one that needs the last addition: 32 in lane 0, where
# 64 should be. What lanes 32 to 63 held never reaches lane 0.

# %% step through the loss
row_sum = source("row_sum_32.cu")
with virtual_gpu("gfx942") as gpu, gpu.trace() as trace:
    module = gpu.load(lesson.compile_cpp(row_sum, "gfx942"))
    module.launch("row_sum", 1, 256, [torch.ones(256), torch.zeros(1)])
figure = lesson.WaveFigure(trace, "gfx942", row_sum, start="v_add_f32")
figure

# %% v1 after each addition
rows = figure.floats("v1", after="v_add_f32", lanes=(0, 31, 32, 63))
offsets = ("+ 16", "+ 8", "+ 4", "+ 2", "+ 1")
lesson.table(
    dict(zip(offsets, rows, strict=False)),
    first="after",
    note="At + 1 only lane 0 is on: the others keep what they had.",
)

# %% [markdown] three repairs
# One kernel holds a loop for 32 lanes and a test for `warpSize` lanes. Two candidates for a repair:
#
# - `row_sum.cu` starts the loop at `warpSize / 2`;
# - `row_sum_segments.cu` stays with 32 everywhere: shuffles in segments of 32 lanes (the third argument of
#   `__shfl_down` is the width of a segment), and every 32nd thread adds.

# %% guess the repairs
guess = predict(
    "03.repairs",
    "Which of the two are right on all three targets?",
    right=lesson.choice("only row_sum", "only row_sum_segments", "both", "neither"),
)

# %% both repairs
names = ("row_sum", "row_sum_segments")
counted = {n: {t: int(x.sum()) for t, x in reach(f"{n}.cu").items()} for n in names}
whole = {name: set(row.values()) == {256} for name, row in counted.items()}
guess.reveal(
    right=lesson.which_of(whole),
    because="a 32 is no fault by itself: each kernel now means one width throughout.",
)
lesson.table(counted, first="elements that count")

# %% [markdown] mixing
# So a 32 in the code is not the fault. **Mixing** is: one line means 32, another `warpSize`. The first repair does six
# steps and one atomic for 64 lanes, the second five steps and two atomics. In your own code prefer `warpSize`; in code
# of others look for both kinds and make them agree.


# %% the two repairs
def difference(before, after):
    title = f"{before} -> {after}"
    return lesson.DiffFigure(source(before), source(after), title, around=0)


difference("row_sum.cu", "row_sum_segments.cu")

# %% [markdown] votes
# ### A vote in 32 bits
#
# `__ballot(condition)` gives every lane the votes of all lanes, one bit each. On AMD that is a 64-bit number, on
# every chip. This kernel keeps it where CUDA code keeps it, in an `unsigned`:

# %% the ballot kernel
Code(source("outliers_32.cu"), language="cpp")

# %% guess the votes
guess = predict(
    "03.votes",
    "A block of 64 threads; elements 36, 40 and 50 exceed 2. What does this kernel "
    "say for the only wavefront of gfx942?",
    many=lesson.number("many"),
    first=lesson.number("first"),
)

# %% the votes
x, unwritten = torch.zeros(64), torch.tensor([-9, -9], dtype=torch.int32)
x[[36, 40, 50]] = 9.0
found = {}
for name in ("outliers_32.cu", "outliers.cu"):
    for target, end in run(name, "outliers", 64, x, unwritten, unwritten).items():
        _, many, first = end.args
        found[f"{name}, {target}"] = {"many": many.tolist(), "first": first.tolist()}
said = found["outliers_32.cu, gfx942"]
guess.reveal(
    many=said["many"][0],
    first=said["first"][0],
    because="the votes of lanes 32 to 63 are bits 32 to 63, and the unsigned has none.",
)
lesson.table(found, note="-9: there is no second wave.")

# %% [markdown] votes explained
# The compiler cuts 64 bits down to 32 without a word. For 64 bits:
#
# | for 32 lanes | for both widths |
# |---|---|
# | `unsigned votes = __ballot(p)` | `unsigned long long votes = __ballot(p)` |
# | `__popc(votes)`, `__ffs(votes)` | `__popcll(votes)`, `__ffsll(votes)` |
# | a `1u` that is shifted by a lane | `1ull` |
# | `0xffffffff`: 32 lanes | a mask of 64 bits |
#
# In the third row, shifting a 32-bit 1 by 40 has no defined value in C++. With `__ballot_sync(mask,
# p)` for `__ballot(p)` the right-hand column is right on NVIDIA, too: there the upper 32 bits are zero.
#
# Votes also tell a lane how many lanes before it said yes: the lab asks for the bits below its own.
#
# **Try:** let elements 3 and 36 exceed 2, and say first what `outliers_32.cu` finds on `gfx942`.

# %% the repaired ballot
difference("outliers_32.cu", "outliers.cu")

# %% [markdown] lane
# ### `threadIdx.x & 31`
#
# A prefix sum by shuffles: each lane adds what the lane `offset` below holds, if there is one. So the kernel asks for
# its lane, in the wrong way.

# %% the prefix kernel
Code(source("prefix_31.cu"), language="cpp")

# %% guess the prefix
guess = predict(
    "03.prefix",
    "The 64 inputs are ones, so the right out[32] is 33. What is it on gfx942?",
    it_is=lesson.number("out[32]"),
)

# %% the prefix sums
sums = {}
for name in ("prefix_31.cu", "prefix.cu"):
    for target, end in run(name, "prefix", 64, torch.ones(64), torch.zeros(64)).items():
        sums[f"{name}, {target}"] = {f"out[{i}]": end.out[i] for i in (30, 31, 32, 63)}
guess.reveal(
    it_is=sums["prefix_31.cu, gfx942"]["out[32]"],
    because="lane 32 believes that it is lane 0, and that nobody comes before it.",
)
lesson.table(sums, note="Where a wave has 32 lanes, the sum begins anew at 32.")

# %% [markdown] prefix explained
# Waves are cut from the block by the thread's number. There `x` counts fastest, then `y`, then `z`:
#
# $$ number = x + \text{blockDim.x} \cdot (y + \text{blockDim.y} \cdot z) $$
#
# In a block of 16 x 4 threads `threadIdx.x % warpSize` is 0 to 15 in every row. With waves of 64 only row 0 gets its
# true lanes; with 32, rows 0 and 2. And the last wave need not be full: 96 threads are
# three warps, or one wavefront and a half.
#
# ### A hard-coded number of warps
#
# The fourth mistake sits in shared memory. Each wave leaves its maximum in `partial`, and thread 0 goes through eight
# of them, because 256 threads are eight warps.

# %% the kernel with eight warps
Code(source("warp_count_32.cu"), language="cpp")

# %% [markdown] predict the count
# There is also `warp_count_64.cu`, written on an MI300X: the same with `partial[4]` and a loop to 4.

# %% guess the count
WORDS = ("right", "reads what nobody wrote", "writes past the array")
guess = predict(
    "03.count",
    "What happens on the virtual GPU?",
    eight=lesson.choice(*WORDS, label="partial[8] on gfx942"),
    four=lesson.choice(*WORDS, label="partial[4] on sm_80"),
)

# %% eight and four
KINDS = {"UninitialisedShared": WORDS[1], "OutOfBounds": WORDS[2]}
FILES = ("warp_count_32.cu", "warp_count_64.cu", "warp_count.cu")
rows = torch.rand(3, 256)
ran = {name: run(name, "row_max", 256, rows, torch.zeros(3), grid=3) for name in FILES}
ended = {n: lesson.endings(ends, rows.amax(1), words=KINDS) for n, ends in ran.items()}
guess.reveal(
    eight=ended["warp_count_32.cu"]["gfx942"],
    four=ended["warp_count_64.cu"]["sm_80"],
    because="an array sized for one width is too large or too small for the other.",
)
print(ran["warp_count_32.cu"]["gfx942"].problem)
print(ran["warp_count_64.cu"]["sm_80"].problem)
lesson.table(ended)

# %% [markdown] count explained
# Four wavefronts write four of the eight places. On a real chip the four that nobody wrote hold whatever was there
# before. If you are unlucky that is smaller than your maximum, and the test passes. A store past the array can hit
# another variable.
#
# The repair has two halves. The array has room for the *narrowest* wave, 32 lanes, because its size must be known when
# the kernel is compiled (`warpSize` is no constant: `partial[256 / warpSize]` does not compile). The loop runs to the
# *real* number of waves, known when it runs.

# %% room for the narrowest wave
difference("warp_count_32.cu", "warp_count.cu")

# %% [markdown] stop after the widths
# ### Stop
#
# **What you have seen.** Half of a row lost, votes cut in two, lane 32 taken for lane 0, and eight places for four
# waves. You can do 03.warp_reduce, 03.ballot and 03.lane_id of the lab now.

# %% first stop
lesson.sitting("03", 1)

# %% [markdown] masks
# ## 2. Lanes that are not there
#
# Since Volta, CUDA's shuffles and votes end in `_sync` and take a mask: *these lanes take part*. CUDA code often passes
# `0xffffffff`. Three files, each a broadcast from the first lane:
#
# - `mask_32.cu` with the mask `0xffffffff`, in a full wave;
# - `broadcast_all.cu` with `~0ull`, 64 bits of ones, where only the first 40 of 64 threads come;
# - `broadcast_active.cu` with `__activemask()`: the lanes that are here now.
#
# ROCm's functions are templates. They see the *type* of the mask when they are compiled, and compare its *value* with
# EXEC, the lanes that are on, when they run. Here is the second file; `mask_32.cu` has no `if`, otherwise only the mask
# differs.

# %% a broadcast
Code(source("broadcast_all.cu"), language="cpp")

# %% guess the masks
ENDS = ("right", "does not compile", "stops the kernel")
guess = predict(
    "03.masks",
    "How do they end on gfx942?",
    narrow=lesson.choice(*ENDS, label="0xffffffff"),
    ones=lesson.choice(*ENDS, label="~0ull, 40 of 64 threads"),
    active=lesson.choice(*ENDS, label="__activemask()"),
)

# %% three masks
KINDS = {"CompileFailed": ENDS[1], "DeviceAssert": ENDS[2]}
x, out, ended = torch.arange(64.0) + 1, torch.zeros(64), {}
for name, n in (("mask_32", 64), ("broadcast_all", 40), ("broadcast_active", 40)):
    args = (x, out) if n == 64 else (x, out, n)
    ends = run(f"{name}.cu", "broadcast", 64, *args)
    ended[name] = lesson.endings(ends, lesson.first_of_wave(x, n, THREE), words=KINDS)
    if ends["gfx942"].problem:
        print(f"{name} on gfx942: {ends['gfx942'].problem}\n")
guess.reveal(
    narrow=ended["mask_32"]["gfx942"],
    ones=ended["broadcast_all"]["gfx942"],
    active=ended["broadcast_active"]["gfx942"],
    because="the mask has 64 bits, and must name exactly the lanes that call.",
)
lesson.table(ended)

# %% [markdown] masks explained
# CUDA forgives a mask that names lanes which have *exited*, as 40 to 63 do here, but not lanes alive elsewhere:
# put a `__syncthreads()` behind the `if`, and the virtual `sm_80` reports a deadlock. ROCm forgives neither: its header
# asserts that the mask equals the active lanes, and traps. (In waves of 32 the upper half of the mask does not count.)
#
# Where all threads come, outside every branch, `__activemask()` usually names the whole wave. In a branch it is no
# promise: on NVIDIA perhaps fewer lanes are there than you meant. So vote before the branch, where all lanes are.


# %% ask before the branch
difference("broadcast_all.cu", "broadcast_mask.cu")

# %% [markdown] absent lanes
# And what does a lane get from a lane that is not there? The next block has 48 threads, and each asks the lane 32
# further on for its number. There are two cases. Past the *end of the wave* a shuffle gives a lane its own value. Lanes
# 48 to 63 are within the wave of `gfx942`, but no thread is in them: they are *off*. AMD shuffles by the instruction
# `ds_bpermute_b32`, and that reads 0 from a lane that is off.

# %% a neighbour far away
Code(source("neighbour.cu"), language="cpp")

# %% guess the absent
guess = predict(
    "03.absent",
    "The block is one wavefront of gfx942. How many of its 48 threads get what?",
    zero=lesson.number("get 0"),
    own=lesson.number("get their own number"),
)

# %% an absent lane
n, name = 48, "shuffles_from_absent_lanes"
x, out, got = torch.arange(n) + 1.0, torch.full((n,), -1.0), {}
for target, end in run("neighbour.cu", "neighbour", n, x, out).items():
    got[target] = {f"thread {i}": end.out[i] for i in (3, 20, 39)}
    got[target] |= {"get 0": (end.out == 0).sum(), "get own": (end.out == x).sum()}
    got[target] |= {name: end.counted(name)}
guess.reveal(
    zero=got["gfx942"]["get 0"],
    own=got["gfx942"]["get own"],
    because="16 to 31 ask 48 to 63, which are off; 32 to 47 ask beyond the wave.",
)
lesson.table(got, first="target")

# %% [markdown] absent explained
# Where a wave has 32 lanes, 32 further on is past its end for all 48. Reads of lanes that are off are counted
# (`shuffles_from_absent_lanes`). Do not build on that 0: it is an instruction's rule, HIP promises nothing, and in CUDA
# such a value is undefined. A sum can bear it; a maximum of negative numbers cannot. Ask first whether the lane exists.
#
# **Try:** set `n = 40`, and say first how many threads of `gfx942` get 0, and how many their own number.
#
# ### Independent threads, and a lock
#
# Since Volta every NVIDIA thread has a program counter of its own (*independent thread scheduling*): lanes of a warp
# that diverged may run in turns. AMD's wavefront has one program counter and a mask, EXEC. Here each lane takes a lock:

# %% the lock
Code(source("lock_each.cu"), language="cpp")

# %% guess the lock
guess = predict(
    "03.lock",
    "64 threads. Does the kernel end on the virtual GPU?",
    sm_80=lesson.yes_no("on sm_80"),
    gfx942=lesson.yes_no("on gfx942"),
)

# %% who gets the lock
lock, count = torch.zeros(2, dtype=torch.int32)
counted = {}
for name in ("lock_each.cu", "lock_turns.cu"):
    ends = lesson.launched(
        THREE, source(name), "count_all", 1, 64, (lock, count), step_limit=1000
    )
    counted[name] = {target: end.said for target, end in ends.items()}
guess.reveal(
    sm_80=counted["lock_each.cu"]["sm_80"] == 64,
    gfx942=counted["lock_each.cu"]["gfx942"] == 64,
    because="the lane that has the lock waits for the lanes that wait for the lock.",
)
lesson.table(counted, note="The virtual GPU gives up after 1,000 rounds: StepLimit.")

# %% [markdown] the lock explained
# On the virtual `gfx942` this happened:
#
# ```text
# one wavefront, one program counter         EXEC: lanes on
# while (atomicCAS(lock, 0, 1)) {}  round 1  0 1 2 3 ... 63  lane 0 gets the lock, is switched off
#                                   round 2  - 1 2 3 ... 63  the lock is taken: all ask again
#                                   round 3  - 1 2 3 ... 63  and again, for ever
# *count += 1; atomicExch(lock, 0)           not reached     lane 0 is to go on here, when
#                                                            lanes 1 to 63 have left the loop
# ```
#
# On `sm_80` the virtual GPU runs lanes in turns, and all 64 come through. The repair lets one lane of a wave ask at a
# time; better, one lane asks for the whole wave, or an atomic does the work and there is no lock.
#
# The other direction: code from before Volta that relies on lanes *in step*. A lane writes shared memory, its neighbour
# reads it, nothing between: on AMD, where a wavefront is in step, this may work; on NVIDIA since Volta it may fail.
# `__syncwarp()` is the barrier for one warp. HIP has it since ROCm 7.0.

# %% the repaired lock
difference("lock_each.cu", "lock_turns.cu")

# %% [markdown] bounds
# ### One attribute, two meanings
#
# `__launch_bounds__(256, 8)` promises blocks of at most 256 threads, and asks for 8 of something at a time. In CUDA
# that is *blocks on an SM*, in HIP *waves on a SIMD*. Both turn into registers a thread, by lesson 02's division: an
# SM of `sm_80` has 65,536 registers; a SIMD of `gfx942` has 512 for each lane. The kernel here wants more than either
# may give: it keeps `float v[96]` in registers, and in each step `v[i] = v[i] * v[(i + 7) % 96] + 1.0f`.

# %% guess the bounds
guess = predict(
    "03.bounds",
    "Under __launch_bounds__(256, 8), how many registers may a thread have?",
    sm_80=lesson.number("sm_80"),
    gfx942=lesson.number(),
)

# %% registers under bounds
taken = {}
for name, bounds in (("bounds", "256"), ("bounds_2", "256, 2"), ("bounds_8", "256, 8")):
    for target in ("sm_80", "gfx942"):
        kernel = lesson.compile_cpp(source(f"{name}.cu"), target).kernel("many_values")
        row = {"registers": kernel.registers, "bytes in memory": kernel.scratch}
        taken[f"({bounds}), {target}"] = row
guess.reveal(
    sm_80=taken["(256, 8), sm_80"]["registers"],
    gfx942=taken["(256, 8), gfx942"]["registers"],
    because="65,536 / (8 x 256) is 32, and 512 / 8 is 64.",
)
lesson.table(taken, note="Bytes in memory: of one thread, for want of registers.")

# %% [markdown] facts of widths
# What does not fit is *spilled* to memory. A second argument tuned for one vendor is a guess on the other: drop it when
# you port.
#
# <details><summary>Look it up: widths and masks in ROCm, versions, benchmarks, cooperative groups</summary>
#
# > **Facts: widths and masks in ROCm**
# >
# > - `warpSize` is no constant expression any more since ROCm 7, and the host cannot use it at all, because one host
# >   program serves chips of both widths. (source: [pytorch #156979](https://github.com/pytorch/pytorch/pull/156979),
# >   [vllm #20330](https://github.com/vllm-project/vllm/pull/20330))
# > - `__shfl_*_sync`, `__ballot_sync` and their like take a mask of 64 bits on AMD, also where a wave has 32 lanes; a
# >   32-bit mask fails a `static_assert`. (source: [ROCm/hip #3667](https://github.com/ROCm/hip/issues/3667),
# >   [cupy #9977](https://github.com/cupy/cupy/pull/9977))
# > - In CUDA all threads that a mask names, and that have not exited, must carry out the same call with the same mask.
# >   (source: CUDA programming guide, warp match and warp shuffle functions)
# > - On AMD the lanes that a mask names must be exactly those that call with it: the header asserts that, and traps
# >   unless `NDEBUG` is defined; `__ballot_sync` returns the ballot and the mask. (source:
# >   [ROCm/rocm-systems](https://github.com/ROCm/rocm-systems), projects/clr/hipamd/include/hip/amd_detail/
# >   amd_warp_sync_functions.h)
# > - The lesson's kernels compile with a header of the course that reproduces these rules; they were executed on
# >   virtual GPUs. (measured: clang 22 of ziglang 0.17.0, the cells above)
#
# > **Facts: versions and reports**
# >
# > - The `_sync` functions came with ROCm 6.2, switched on by `HIP_ENABLE_WARP_SYNC_BUILTINS`; since ROCm 7.0 they are
# >   on, unless `HIP_DISABLE_WARP_SYNC_BUILTINS` is defined. (source: ROCm/clr at rocm-6.2.2, that header;
# >   [HIP C++ language extensions](https://rocm.docs.amd.com/projects/HIP/en/latest/how-to/hip_cpp_language_extensions.html))
# > - HIP's `__syncwarp()` is a wavefront barrier, which only keeps the compiler from moving code across it, between two
# >   fences. Projects that also build for older ROCm define it themselves. (source:
# >   [ROCm/rocm-systems](https://github.com/ROCm/rocm-systems), the same header; LLVM, user guide for the AMDGPU
# >   backend, llvm.amdgcn.wave.barrier)
# > - Shuffles and votes without `_sync` are gone from CUDA for compute capability 7.x and higher; HIP still has them.
# >   (source: CUDA C++ programming guide, warp shuffle functions and warp vote functions;
# >   [HIP C++ language extensions](https://rocm.docs.amd.com/projects/HIP/en/latest/how-to/hip_cpp_language_extensions.html))
# > - HIP's `__launch_bounds__(threads, n)` becomes the attribute `amdgpu_waves_per_eu(n)`. (source: ROCm clr,
# >   amd_hip_runtime.h)
# > - AMD's porting guide turns CUDA's blocks into n by blocks x threads / (warpSize x 2) on CDNA. A CU there has four
# >   SIMDs, and clang's registers above follow n waves on each: believe the registers, not the formula. (source: [HIP
# >   porting guide](https://rocm.docs.amd.com/projects/HIP/en/latest/how-to/hip_porting_guide.html); measured: clang 22
# >   of ziglang 0.17.0, the cell on launch bounds above)
# > - Published benchmarks that were ported to HIP had the same mistakes: ballots in `int`, lanes modulo 32, `__popc`.
# >   One of them hung, others refuse to start unless a wave has 32 lanes. (source:
# >   [HeCBench #177](https://github.com/ORNL/HeCBench/issues/177),
# >   [HeCBench #167](https://github.com/ORNL/HeCBench/issues/167))
#
# Cooperative groups (`tiled_partition<32>`, `coalesced_threads()`) say by type what a mask says by bits, and HIP has
# them: read [HIP, cooperative
# groups](https://rocm.docs.amd.com/projects/HIP/en/latest/how-to/hip_runtime_api/cooperative_groups.html) before you
# port code that uses them.
# </details>
#
# ### Stop
#
# **What you have seen.** A mask that stopped the kernel, two ways to get a number from nobody, a lock that hung, one 8
# with two meanings. In code of others look for `32`, `31`, `>> 5`, `0xffffffff`, `1u <<`, `__popc(`, `WARP_SIZE`,
# `volatile` shared memory without `__syncwarp()`, a lock taken by a lane, a second launch bound. At each ask: *does
# this line mean the number 32, or all lanes of a wave?*

# %% second stop
lesson.sitting("03", 2)

# %% [markdown] hipify
# ## 3. hipify: what a machine translates, and what it leaves
#
# The other half of a CUDA project talks to libraries: `cudaMalloc`, streams, cuBLAS, NCCL, NVTX. HIP has much of it
# under other names: `hipMalloc`, hipBLAS, RCCL, roctx. Renaming is work for a machine, and there are three:
#
# | | how it works | needs |
# |---|---|---|
# | `hipify-clang` | parses the source; reports what it cannot parse | CUDA's headers, every include and define |
# | `hipify-perl` | regular expressions | nothing; it misses macros, namespaces, some templates |
# | torch's `hipify` | a list of names and a few patterns | PyTorch; runs by itself when an extension is built on ROCm |
#
# (source: [HIPIFY documentation](https://rocm.docs.amd.com/projects/HIPIFY/en/latest/).) None of them understands what
# a number means. This lesson runs torch's. It goes through C++ and CUDA files, never through Python, and puts the new
# name wherever a name of its list stands:

# %% the list of names
from torch.utils.hipify.cuda_to_hip_mappings import CUDA_TO_HIP_MAPPINGS

becomes = {old: new for names in CUDA_TO_HIP_MAPPINGS for old, new in names.items()}
entries = sum(len(names) for names in CUDA_TO_HIP_MAPPINGS)
SHOWN = ("cudaStream_t", "nvToolsExt.h", "CUresult", "cuda_bf16.h")
SHOWN = (*SHOWN, "cuda_fp8.h", "ncclAllReduce", "cudaLaunchKernelEx")
shown = {name: becomes.get(name, "not in it") for name in SHOWN}
lesson.table({"entries": entries, "different names": len(becomes)} | shown)

# %% [markdown] the project
# What is not in the list can be right: RCCL kept the names of NCCL. Or it is a hole: `cuda_fp8.h`. The list does not
# say which.
#
# The project here is a PyTorch extension of twelve files: a fused RMSNorm that quantises to FP8, a counter of clipped
# values, GELU; with streams and events, cuBLAS, NCCL and NVTX. `config.h` holds constants only: tile sizes and
# `kStageBytes`, 96 KB. The files, and which of eleven words that look like CUDA they have:

# %% the files
files = lesson.cuda_project()  # path -> text
lesson.table(lesson.cuda_words(files))

# %% guess hipify
guess = predict(
    "03.hipify",
    "Which of these files change?",
    comm=lesson.yes_no("comm.h changes"),
    config=lesson.yes_no("config.h changes"),
    hopper=lesson.yes_no("hopper.cuh changes"),
)

# %% run hipify
result = lesson.hipify(files)  # on a copy, with the settings of BuildExtension
pairs = result.origin.items()  # path after, path before
changed = {new: old for new, old in pairs if files[old] != result.files[new]}
guess.reveal(
    comm="csrc/comm.h" in changed.values(),
    config="csrc/config.h" in changed.values(),
    hopper="csrc/hopper.cuh" in changed.values(),
    because="config.h has no name of the list, hopper.cuh has CUresult. Nobody asks "
    "whether 96 KB fit, or whether there is a Hopper.",
)
calls = f"Reported as unsupported: {result.unsupported} calls."
lesson.table(changed, first="after hipify, and before", note=calls)

# %% [markdown] translated
# **Try:** before `lesson.hipify(files)` write `files["csrc/config.h"] += "// cudaMalloc\n"`, and say first whether a
# comment changes the file.
#
# It reports 0 unsupported calls, always: its own source calls that count broken. A `.cu` becomes a `.hip`, other files
# that change get `_hip` in their name, and every `#include` of them is adapted. The picture shows what changed in one
# function. Two changes are no renamings: `<<<...>>>` became the older macro `hipLaunchKernelGGL` (HIP takes both). For
# the other, find `std::min`.


# %% what was translated
launch = "csrc/launch.hip"
part = lesson.hipified_part(files, result, launch, "void clip_count", "void gelu")
lesson.DiffFigure(*part, around=0)

# %% guess the launch
guess = predict(
    "03.leftover",
    "Into what did nvtx3/nvToolsExt.h turn in the binding?",
    header=lesson.choice("roctracer/roctx.h", "nvtx3/roctracer/roctx.h", "unchanged"),
)

# %% what was broken
binding = "csrc/binding_hip.cpp"
guess.reveal(
    header=lesson.included(result.files[binding], "roctx"),
    because="the list has the last part only; the folder before it stays.",
)
part = lesson.hipified_part(files, result, binding, "#include", "namespace")
lesson.DiffFigure(*part, around=0)

# %% [markdown] in the launcher
# And this is all that is left of CUDA in `launch.hip`:

# %% left in the launcher
Code(lesson.span(result.files[launch], "cuda"), language="cpp")

# %% [markdown] broken
# - `std::min` became `::min`. hipify does so with a list of math functions; its
#   source warns that the wrong one (`exp` for `expf`) may be called. For an `int` on the host both are right.
# - `CUresult` became `hipError_t`, as `cudaError_t` did: HIP has one type for errors of both APIs of CUDA.
# - No toolkit has a file `nvtx3/roctracer/roctx.h`.
# - `cudaLaunchKernelEx` with its attributes (a hole in the list: [HIP
#   has](https://rocm.docs.amd.com/projects/HIP/en/latest/reference/hip_runtime_api/modules/execution_control.html)
#   `hipLaunchKernelEx`, but not the attribute for overlapping launches) is untouched.
# - In the binding, below what was shown, `at::cuda::getCurrentCUDAStream()` rightly stays, though its header was
#   renamed: on ROCm PyTorch's files have HIP's names, and the namespaces in them keep CUDA's.
#
# What deserves a look? The course's own reader is `leftovers(files)`. *Certain* means that the build or the launch
# fails on `gfx942`; the others compile, and may be wrong.

# %% what is left
found = lesson.leftovers(result.files)
lesson.table(lesson.by_kind(found), first="kind")

# %% [markdown] unseen
# Is that all? This reader knows the kinds of the table, and no other. Here is the kernel that counts clipped values.
# Its `FULL_MASK` is in the table (`mask-32`): leave it out of your count, as if it had 64 bits.

# %% the kernel that counts
kernels = "csrc/kernels_hip.cuh"
CLIP = ("// Appends", "__device__")  # from these words up to those
Code(lesson.between(result.files[kernels], *CLIP), language="cpp")

# %% guess the unseen
guess = predict(
    "03.unseen",
    "How many lines of it must change for votes of 64 bits? How many of these does "
    "`leftovers` name?",
    wrong=lesson.number("wrong lines"),
    named=lesson.number("named"),
)

# %% what the reader missed
wrong = lesson.narrow_votes(result.files[kernels], *CLIP)  # number -> line
named = {one.line for one in found if one.file == kernels}
guess.reveal(
    wrong=len(wrong),
    named=len(named & set(wrong)),
    because="every name in them is HIP's, too; only the type is too small.",
)
lesson.table({n: {"line": line, "named": n in named} for n, line in wrong.items()})

# %% [markdown] silent ones
# The dangerous ones are those that compile: these three do, as soon as the mask has 64 bits. So does a guard. This one
# was written to mean "Ampere or newer": CUDA's compiler sets `__CUDA_ARCH__`, for `sm_80` to 800.

# %% a guard
Code(source("guarded.cu"), language="cpp")

# %% guess the guard
guess = predict(
    "03.guard",
    "out holds -1 before the launch, x[1] is 2. What does out[1] hold after it?",
    sm_80=lesson.number("sm_80"),
    gfx942=lesson.number(),
)

# %% run the guard
x, out = torch.arange(1.0, 65.0), torch.full((64,), -1.0)
outs = {}
for name in ("guarded.cu", "guarded_both.cu"):
    ends = run(name, "square", 64, x, out)
    outs[name] = {target: end.out[1] for target, end in ends.items()}
guess.reveal(
    sm_80=outs["guarded.cu"]["sm_80"],
    gfx942=outs["guarded.cu"]["gfx942"],
    because="an undefined name counts as 0 in #if, and the body is compiled away.",
)
lesson.table(outs, note="out[1]; guarded_both.cu asks for AMD's macro as well.")

# %% [markdown] macros
# A kernel that does nothing, and succeeds. Do not "repair" it by defining `__CUDA_ARCH__`: every header that asks for
# it would believe that this is CUDA. These are the names to ask instead:
#
# | name | defined when |
# |---|---|
# | `__CUDA_ARCH__` | compiling device code for NVIDIA; its value is the architecture |
# | `__HIP_DEVICE_COMPILE__` | compiling device code for AMD |
# | `__gfx942__`, `__GFX9__` | ... for that chip, for that family (all CDNA chips of this course are GFX9) |
# | `USE_ROCM` | PyTorch's build of an extension on ROCm, host or device |
#
# <details><summary>Look it up, beside 03.hipify_fixups: what to put in place of what was left; more macros; CMake;
# "hipify ports your code automatically"</summary>
#
# | left behind | on ROCm |
# |---|---|
# | `<cuda_fp8.h>`, `__nv_fp8_e4m3` | `<hip/hip_fp8.h>`, `__hip_fp8_e4m3_fnuz` on gfx942, else `__hip_fp8_e4m3` |
# | inline PTX `ex2.approx` | a function, here `exp2f(x)`; the compiler knows the instruction |
# | `448.0f` | the largest number of *that* type: 240 for FNUZ (section 5) |
# | `<nvtx3/nvToolsExt.h>` | `<rocprofiler-sdk-roctx/roctx.h>`, or the old `<roctracer/roctx.h>` with `roctx64` |
# | `cudaLaunchKernelEx` | `kernel<<<...>>>`, then `hipGetLastError()`; or `hipLaunchKernelEx` without the attribute |
# | tensor maps, `cuda/pipeline`, `mma.h` | nothing: fence them, load by hand (for `mma.h` there is rocWMMA) |
# | 96 KB of dynamic shared memory | a smaller tile: at most 64 KiB of LDS on most AMD targets |
# | `-gencode`, `--use_fast_math`, `-lineinfo` | `-ffast-math`; branch in `setup.py` on `torch.version.hip` |
# | `libraries=["cublas", "nccl", ...]` | `hipblas`, `rccl` and roctx's; hipify does not translate `setup.py` |
#
# | name | defined when |
# |---|---|
# | `__HIP_PLATFORM_AMD__` | compiling HIP for AMD, host or device |
# | `HIP_FP8_TYPE_FNUZ`, `HIP_FP8_TYPE_OCP` | `<hip/hip_fp8.h>` is included: 1 for the types that may be used here |
#
# The last row is FNUZ on gfx942, OCP on gfx950 and RDNA4, and *both* elsewhere, in software: on gfx1100, which has no
# FP8 units, and on the host (source: ROCm clr, amd_hip_fp8.h). So it does not ask whether there is FP8 hardware.
#
# Projects without `setup.py` use CMake, which knows HIP as a language: `enable_language(HIP)`, sources marked
# `LANGUAGE HIP`, the targets in `CMAKE_HIP_ARCHITECTURES`, and since 3.28 `CMAKE_HIP_PLATFORM` for AMD or NVIDIA
# ([CMake documentation](https://cmake.org/cmake/help/latest/variable/CMAKE_HIP_PLATFORM.html)).
#
# > **Facts: two libraries for ranges**
# >
# > - ROCTracer, with its roctx, is deprecated; its end of support was announced for the second quarter of 2026.
# >   (source: [ROCTracer documentation](https://rocm.docs.amd.com/projects/roctracer/en/docs-7.2.1/index.html))
# > - The new roctx belongs to ROCprofiler-SDK. The old one still works with `rocprofv3`; AMD recommends the new one.
# >   (source: [rocprofv3
# >   documentation](https://rocm.docs.amd.com/projects/rocprofiler-sdk/en/latest/how-to/using-rocprofv3.html))
#
# > **Claim and fact: "hipify ports your code automatically"**
# >
# > - The claim has a true half: in this project hipify rewrote every stream, event, launch with `<<<>>>` and cuBLAS
# >   call. (measured: torch 2.13.0, the cells above)
# > - It reported 0 unsupported calls and left more than 30 words that fail to build or may be wrong in silence.
# >   (measured: torch 2.13.0, the cells above)
# > - It knows 3,415 names and no `cuda_fp8.h`, `mma.h`, `cuda/pipeline`, `cudaLaunchKernelEx`. (measured: torch
# >   2.13.0, the lists in [torch/utils/hipify](https://github.com/pytorch/pytorch/tree/main/torch/utils/hipify))
# > - What it cannot know is what you *meant*: 32 as a width, `__CUDA_ARCH__` as an age, 448 as the largest number.
# >   (measured: torch 2.13.0, the kinds `lanes-32`, `cuda-guard` and `fp8-max` above)
#
# </details>

# %% [markdown] stop after hipify
# ### Stop
#
# **What you have seen.** A tool that reports 0 unsupported calls, a guard that compiled a kernel away, and three wrong
# lines that no list of names finds. You can do most of 03.hipify_fixups now; its FP8 types are in section 5.

# %% third stop
lesson.sitting("03", 3)

# %% [markdown] triton
# ## 4. Triton on AMD: other limits
#
# A Triton kernel names no lane and no `__CUDA_ARCH__`; warps are only a number, `num_warps`. So the mistakes of section
# 1 do not arise. *Limits and defaults* differ: another amount of memory, another instruction, another rounding. This
# section compiles one matrix product, whose tiles divide the matrices:


# %% a matrix product
@triton.jit
def matmul_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    K,
    stride_am,
    stride_bk,
    stride_cm,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows[:, None] * stride_am + inner[None, :]
    b_ptrs = b_ptr + inner[:, None] * stride_bk + cols[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for _ in range(0, K, BLOCK_K):
        total = tl.dot(tl.load(a_ptrs), tl.load(b_ptrs), total)
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K * stride_bk
    tl.store(c_ptr + rows[:, None] * stride_cm + cols[None, :], total)


def build(target, M=128, N=128, K=64, dtype=torch.float16, **options):
    """matmul_kernel for one target; the matrices are 1024 x 1024."""
    args = (dtype, dtype, torch.float32, 1024, 1024, 1024, 1024)
    blocks = {"BLOCK_M": M, "BLOCK_N": N, "BLOCK_K": K}
    return compile_for(matmul_kernel, target, args, **blocks, **options)


# %% [markdown] stages
# ### Shared memory and `num_stages`
#
# A loop over tiles is *pipelined*: while the matrix unit works on one tile, the next ones are on their way from memory.
# With `num_stages=4` four pairs of tiles are in flight, the one in use among them. Every tile on its way needs a place
# in shared memory (LDS), and a place for a tile of A (128 x 64) and one of B (64 x 128) in float16 is 32 KiB together.
# The pair in use moves to registers, unless the matrix instruction reads shared memory itself, as `wgmma` does on
# `sm_90`. A block may have 163 KiB on `sm_80`, 227 on `sm_90` and 64 on `gfx942`.

# %% guess the stages
guess = predict(
    "03.stages",
    "How many KiB does a block ask for with 4 stages, and does gfx942 load it?",
    sm_90=lesson.number("sm_90", unit="KiB"),
    gfx942=lesson.number("gfx942", unit="KiB"),
    loads=lesson.yes_no("gfx942 loads it"),
)

# %% shared memory by stages
asked = {}
for target in ("sm_80", "sm_90", "gfx942"):
    built = {stages: build(target, num_stages=stages) for stages in (1, 2, 3, 4)}
    asked[target] = {n: lesson.resources(one).shared for n, one in built.items()}
guess.reveal(
    sm_90=asked["sm_90"][4] // 1024,
    gfx942=asked["gfx942"][4] // 1024,
    loads=asked["gfx942"][4] <= lesson.TARGETS["gfx942"].shared_per_block,
    because="sm_90 keeps a pair of tiles for every stage, gfx942 one pair less.",
)
lesson.stage_figure(asked)

# %% [markdown] law of stages
# Which operand waits where decides:
#
# - On `sm_90` the matrix instruction (`wgmma`) reads both tiles out of shared memory, so the pair in use takes room as
#   well as those on their way. `sm_100` is alike with another instruction, `tcgen05.mma`.
# - On `sm_80` and on AMD the pair in use has moved to registers. (So 3 stages on `gfx942` are 64 KiB, exactly the
#   limit: they load.)
# - With one stage there is no pipeline. NVIDIA's backend still gives A and B a place each. AMD's gives them one place,
#   as large as the larger of the two.
#
# `wgmma` and `tcgen05.mma` need BLOCK_M of 64 or more; `wgmma` at least 4 warps, `tcgen05.mma` 4 or 8. Otherwise Triton
# 3.7.1 falls back to `mma.sync`, which behaves as on `sm_80`. On AMD 0 stages are no pipeline, like 1. In the lab you
# turn this into a rule for any tile.
#
# **Try:** `lesson.resources(build("gfx942", K=32, num_stages=4)).shared`, and say first whether `gfx942` loads it.
#
# What happens with 4 stages of `K=64` on `gfx942`? The compiler does not mind; the limit is checked when the kernel is
# *loaded*.

# %% too much shared memory
TOO_MUCH = triton.runtime.errors.OutOfResources
a, b = torch.randn(2, 128, 128).half()
sizes = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "num_stages": 4}
loaded = {}
for target in ("sm_80", "gfx942"):
    c = torch.zeros(128, 128)
    with virtual_gpu(target), lesson.kept_error(TOO_MUCH) as kept:
        matmul_kernel[1, 1](a, b, c, 128, 128, 128, 128, **sizes)
    right = torch.allclose(c, a.float() @ b.float(), atol=0.1)
    loaded[target] = str(kept.error or ("right" if right else "wrong"))
deep = build("gfx942", num_stages=4)
over = lesson.resources(deep).over_budget
lesson.table({"compiled": deep, "resources": over} | loaded)

# %% [markdown] facts of stages
# <details><summary>Look it up: LDS and stages, in reports and tables</summary>
#
# > **Facts: LDS and stages**
# >
# > - This message is Triton's own, from the moment when it loads a compiled kernel. Serving frameworks met it on
# >   MI300X with tiles that were tuned on NVIDIA: `Required: 73728, Hardware limit: 65536`. (source:
# >   [vllm #17744](https://github.com/vllm-project/vllm/pull/17744))
# > - AMD's pipeliner once took `num_stages=0` for its default. Since October 2024 0 and 1 do not pipeline; right after
# >   that change 0 ran into an assertion. (source: [triton #4845](https://github.com/triton-lang/triton/pull/4845))
# > - AMD recommends `num_stages=2` for a kernel with one matrix product, and 1 for two fused products or none.
# >   (source: [ROCm, workload optimization
# >   guide](https://rocm.docs.amd.com/en/latest/how-to/rocm-for-ai/inference-optimization/workload.html))
# > - A block may have 64 KiB of LDS on CDNA2, CDNA3 and RDNA, and 160 KiB on gfx950. (source: Triton's AMD TargetInfo,
# >   `TARGETS` of this course)
# > - A WGP of RDNA, two CUs side by side, has 128 KiB of LDS, of which one block may have 64. (source: ROCm,
# >   docs/reference/gpu-arch-specs.rst; Triton's AMD TargetInfo)
# > - A block may have 163 KiB of shared memory on sm_80, 99 KiB on sm_89 and 227 KiB on sm_90 and sm_100. (source: CUDA
# >   C++ programming guide, compute capabilities)
#
# </details>
#
# ### Registers: `waves_per_eu` and spills
#
# `waves_per_eu=n` is section 2's second launch bound again: *plan for n wavefronts on each SIMD*. For that the compiler
# uses fewer registers: 512 a lane for 4 waves are 128. The kernel wants about 200 registers, each 4 bytes a lane. Two
# of its blocks of 4 wavefronts fill the LDS of a CU.

# %% guess the waves
SPILLED = ("nothing", "tens of bytes", "hundreds of bytes")
guess = predict(
    "03.waves",
    "What does waves_per_eu=4 bring?",
    more=lesson.number("wavefronts more on a CU"),
    spilled=lesson.choice(*SPILLED, label="spilled to memory, for each lane"),
)

# %% waves_per_eu
needs, rows = {}, {}
for waves in (0, 2, 3, 4):  # 0 is no wish: the compiler decides
    compiled = build("gfx942", options={"waves_per_eu": waves})
    needs[waves] = need = lesson.resources(compiled)
    rows[waves] = {
        "VGPRs": need.vgprs,
        "spilled bytes a lane": need.scratch,
        "their instructions in the loop": len(lesson.in_loops(compiled, "scratch")),
        "occupancy": str(need.occupancy),
    }
spilled = needs[4].scratch
guess.reveal(
    more=needs[4].occupancy.waves - needs[0].occupancy.waves,
    spilled=SPILLED[(spilled > 0) + (spilled >= 100)],
    because="LDS still holds two blocks; 70 registers too few are 280 bytes or more.",
)
lesson.table(rows, first="waves_per_eu")

# %% [markdown] waves explained
# Nothing gained, much lost: what no longer fits is spilled to memory, in the middle of the loop. Missing registers are
# only a lower bound of what is spilled: the compiler mostly spills four at a time (`scratch_store_dwordx4`). In the
# first row registers allow 8 waves, and so does LDS. An option that asks for occupancy helps only where registers
# *alone* limit it: first `resources(...)`, read what limits, then turn that knob.
#
# <details><summary>For those who tune: AGPRs, the shape of the matrix instruction, kpack</summary>
#
# From CDNA2 on a lane has 512 registers in one file: 256 VGPRs and as many **AGPRs**, in which matrix instructions can
# keep their sums. A tile of 256 x 256 on 4 wavefronts needs 256 registers a lane for its sums alone. On 4 wavefronts
# the compiler shelves values in AGPRs with thousands of moves, and spills. On eight there is neither: try
# `build("gfx942", M=256, N=256, num_warps=8)` against `num_warps=4`, `lesson.resources` of both, and
# `lesson.mnemonics(compiled, starting="v_accvgpr_")`.
#
# You may read that the culprit is an attribute of Triton's kernels, `amdgpu-agpr-alloc=0`. Take it out of
# `compiled.stages["llir"]`, compile again with LLVM, and count: the spills stay.
#
# `matrix_instr_nonkdim` chooses between CDNA's two shapes of matrix instructions, 32 x 32 and 16 x 16 results (0 leaves
# it to Triton), and `kpack` how many operands are packed along K; gfx950 ignores `kpack`, with a warning. AMD's guide
# recommends 16 for matrix products on MI300X ([workload optimization
# guide](https://rocm.docs.amd.com/en/latest/how-to/rocm-for-ai/inference-optimization/workload.html)); which is faster
# for your shape is a question for `@triton.autotune` on the chip.
# </details>
#
# ### Which precision is `tl.dot`?
#
# Two float32 tiles of 64 x 64, `tl.dot(a, b)`, no options. A float32 has 23 bits of mantissa. The matrix instructions
# that take one use:
#
# | | all 23 bits | 10 of them, faster |
# |---|---|---|
# | `sm_90` | none: multiply-add in the vector units | TF32 |
# | `gfx90a`, `gfx950` | yes | none |
# | `gfx942` | yes | XF32 |
#
# Sums are in float32. The last bit is $2^{-23} \approx 10^{-7}$ or $2^{-10} \approx 10^{-3}$ of a number, so the error
# tells what the default has chosen. It puts speed before digits.


# %% a product of two tiles
@triton.jit
def tile_dot_kernel(a_ptr, b_ptr, c_ptr, N: tl.constexpr, PRECISION: tl.constexpr):
    rows, cols = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    a, b = tl.load(a_ptr + rows * N + cols), tl.load(b_ptr + rows * N + cols)
    plain: tl.constexpr = PRECISION == "default"
    c = tl.dot(a, b) if plain else tl.dot(a, b, input_precision=PRECISION)
    tl.store(c_ptr + rows * N + cols, c)


def instruction(target, dtype, way="default"):
    """The matrix instruction for two tiles of a type."""
    args = (dtype, dtype, torch.float32)
    compiled = compile_for(tile_dot_kernel, target, args, N=64, PRECISION=way)
    return next(iter(lesson.mnemonics(compiled, "matrix")), "none")

# %% guess the precision
ORDERS = ("about 1e-7", "about 1e-5", "about 1e-3")
guess = predict(
    "03.precision",
    "How large is the largest error, against the largest exact result?",
    sm_90=lesson.choice(*ORDERS, label="sm_90"),
    gfx942=lesson.choice(*ORDERS, label="gfx942"),
    gfx950=lesson.choice(*ORDERS, label="gfx950"),
)

# %% default precision of dot
a, b = torch.randn(2, 64, 64)
exact = a.double() @ b.double()


def error(target, way="default"):
    """The largest error of a product, against the largest exact result."""
    c = torch.zeros(64, 64)
    with virtual_gpu(target):
        tile_dot_kernel[(1,)](a, b, c, N=64, PRECISION=way)
    return float((c - exact).abs().max() / exact.abs().max())


FOUR = ("sm_90", "gfx90a", "gfx942", "gfx950")
errors = {target: error(target) for target in FOUR}
guess.reveal(
    sm_90=lesson.nearest(errors["sm_90"], ORDERS),
    gfx942=lesson.nearest(errors["gfx942"], ORDERS),
    gfx950=lesson.nearest(errors["gfx950"], ORDERS),
    because="where the 10 bits exist, they are the default on both vendors.",
)
errors["gfx942, ieee"] = error("gfx942", "ieee")
used = {target: instruction(target, torch.float32) for target in FOUR}
used["gfx942, ieee"] = instruction("gfx942", torch.float32, "ieee")
lesson.table({n: {"error": errors[n], "instruction": used[n]} for n in errors})

# %% [markdown] precision explained
# The default takes the ten bits wherever the chip has them, and on the newer `gfx950` the same source is about three
# powers of ten more accurate than on `gfx942`. (Compare powers of ten only: the virtual `sm_90` truncates to 10 bits,
# `gfx942` rounds.) A test with a tolerance of `1e-5` passes on one chip and fails on another. If you mean float32, say
# so: `input_precision="ieee"`.
#
# <details><summary>PyTorch's switch for TF32; small numbers: denormals</summary>
#
# PyTorch's switch is `torch.backends.cuda.matmul.allow_tf32`. It is *global*, and on `gfx942` it works through AMD's
# hipBLASLt ([PyTorch, HIP semantics](https://docs.pytorch.org/docs/stable/notes/hip.html)).
#
# A float that is too small for a normal exponent is a *denormal*. The matrix instructions of MI200 (`gfx90a`) take
# float16 and bfloat16 denormals for zero, at input and output; MI300X does not ([PyTorch, numerical
# accuracy](https://docs.pytorch.org/docs/stable/notes/numerical_accuracy.html)). In training these are small gradients,
# gone without a trace: a reason for loss scaling, or for bf16, whose smallest normal number is $2^{-126}$. Try it: fill
# `a` with $2^{-20}$ in float16, `b` with ones, and run `tile_dot_kernel` on `gfx90a` and `gfx942`.
#
# `exp2` is one instruction on both vendors, and flushes on both: `v_exp_f32`, and `ex2.approx.ftz`, whose letters `ftz`
# say so. Triton's option `allow_flush_denorm` changes `exp` on AMD, and not `exp2`.
# </details>

# %% [markdown] stop after the limits
# ### Stop
#
# **What you have seen.** LDS refused at loading, hundreds of bytes spilled for no wave, and 1e-3 where the newer chip
# has 1e-7. You can do 03.shared_budget of the lab now.

# %% fourth stop
lesson.sitting("03", 4)

# %% [markdown] fp8
# ## 5. FP8: one name, two types
#
# Both vendors have an 8-bit float with 4 bits of exponent and 3 of mantissa, E4M3. But there are two kinds. NVIDIA
# since `sm_89`, and AMD since `gfx950` and RDNA4, have **FN**, the standard of the Open Compute Project (OCP): *finite*
# (no infinities), with *NaN*s of its own. `gfx942` has **FNUZ**: besides, its *zero* is *unsigned*. (PyTorch:
# `float8_e4m3fnuz`, `float8_e4m3fn`; Triton: `fp8e4b8`, `fp8e4nv`.) A value is its mantissa times $2^{e - 7}$ in FN,
# and times $2^{e - 8}$ in FNUZ (7 and 8 are called the *bias*). E5M2, with 5 bits of exponent, has two kinds as well;
# OCP's has infinities.

# %% guess the bytes
guess = predict(
    "03.bytes",
    "A checkpoint holds FP8 weights for an H100 (FN). You read the same bytes as FNUZ. "
    "By which factor are the values off?",
    factor=lesson.number("FNUZ / FN"),
)

# %% one byte, two numbers
codes = torch.arange(256, dtype=torch.uint8)
fn = codes.view(torch.float8_e4m3fn).float()
fnuz = codes.view(torch.float8_e4m3fnuz).float()
ratio = (fnuz / fn)[(fn != 0) & fn.isfinite()]
guess.reveal(
    factor=float(ratio.median()),
    because="the same mantissa and the same e, minus 8 in place of minus 7: half.",
)
other = codes[fnuz != fn / 2].tolist()
pairs = {f"{c:#04x}": {"FN": float(fn[c]), "FNUZ": float(fnuz[c])} for c in other}
lesson.table(
    pairs,
    first="code",
    note=f"{256 - len(other)} of 256 codes are exactly half; these are not.",
)

# %% [markdown] fp8 bytes explained
# So a model with the wrong flavour runs with no error, its weights halved. But FNUZ has one zero and one NaN, whose
# code `0x80` is FN's negative zero: a weight of -0 becomes NaN. The codes of FN's two NaNs are numbers in FNUZ.
#
# The second trap is the largest number: 448 in FN, 240 in FNUZ. Neither format has an infinity, and PyTorch's cast to
# FNUZ makes NaN of what is too large. A quantiser that was written for FN scales its tensor so that the largest value
# becomes 448, and casts.

# %% guess the loss
guess = predict(
    "03.largest",
    "Values spread evenly from 0 to 448, cast to FNUZ: how many in a hundred are lost?",
    percent=lesson.number("become NaN", unit="%", factor=1.1),
)

# %% the ends of the two formats
spread = torch.linspace(0, 448, 100_001).to(torch.float8_e4m3fnuz).float()
guess.reveal(
    percent=float(spread.isnan().double().mean() * 100),
    because="(448 - 240) / 448 is 46 %; of that, what is below 248 rounds down.",
)
values = [240.0, 247.0, 248.0, 448.0, 500.0]
FORMATS = {"FN": torch.float8_e4m3fn, "FNUZ": torch.float8_e4m3fnuz}
cast = {}
for name, dtype in FORMATS.items():
    became = torch.tensor(values).to(dtype).float().tolist()
    cast[name] = dict(zip(values, became, strict=True))
    cast[name] |= {"finfo.max": torch.finfo(dtype).max}
lesson.table(cast, first="cast to")

# %% [markdown] largest explained
# Numbers near 240 stand 16 apart, so 247 rounds down to 240. 248 lies halfway, and ties go to the even mantissa: 256,
# which FNUZ does not have. The
# other row is a matter of versions: torch 2.13 clips a cast to FN, before 2.12 it gave NaN, too
# ([pytorch #178817](https://github.com/pytorch/pytorch/pull/178817),
# [ao #4364](https://github.com/pytorch/ao/pull/4364)). Rely on neither: ask `torch.finfo(dtype).max`, and clamp
# *before* the cast.
#
# **Try:** set `values` to 232 and 247.9, and say first what each becomes.
#
# What does a compiler do with a flavour that its chip does not have? It can *refuse*, or *convert* each tile to a type
# that the chip multiplies: float16 has room for every value of both flavours. Triton's two backends decided
# differently. One would rather stop than be slow, the other the reverse: the precision of section 4 told you which
# of them puts speed first. (`gfx90a` and `sm_80` have no FP8.)

# %% guess the flavours
BECOMES = ("refused", "converted", "FP8 instructions")
guess = predict(
    "03.flavours",
    "What becomes of a product of two FP8 tiles?",
    sm_80=lesson.choice(*BECOMES, label="FN on sm_80"),
    gfx90a=lesson.choice(*BECOMES, label="FN on gfx90a"),
    gfx950=lesson.choice(*BECOMES, label="FNUZ on gfx950"),
)


# %% fp8 on every target
used = {}
for target in ("sm_80", "sm_89", "sm_90", "gfx90a", "gfx942", "gfx950", "gfx1201"):
    used[target] = dict.fromkeys(FORMATS, "error")
    for name, dtype in FORMATS.items():
        with lesson.kept_error(lesson.CompileFailed):
            used[target][name] = instruction(target, dtype)
guess.reveal(
    sm_80=lesson.fp8_fate(used["sm_80"]["FN"]),
    gfx90a=lesson.fp8_fate(used["gfx90a"]["FN"]),
    gfx950=lesson.fp8_fate(used["gfx950"]["FNUZ"]),
    because="NVIDIA's backend refuses what its chip lacks; AMD's converts it, also "
    "FNUZ on a chip newer than the one that had it.",
)
lesson.table(used, first="target")

# %% [markdown] fp8 silent
# `fp8`, `f8f6f4` or `e4m3` in the name: FP8 in hardware. `error`: NVIDIA's backend refuses. `f16`: AMD's backend
# converts to float16, with a warning for FNUZ on `gfx950` (unless it was compiled before), and in silence everywhere
# else. `none`: not even that, but one packed multiply-add after the other (`v_pk_fma_f32`). So on AMD "it compiles"
# does not mean "it is FP8": look at the instruction, or decide by the target. For AMD compare names: 1100 is larger
# than 942, and has no FP8. For NVIDIA compare the number behind `sm_` with 89; as texts, `"sm_100" < "sm_89"`.
#
# | target | FP8 E4M3 | largest |
# |---|---|---|
# | sm_80, sm_86, gfx90a, gfx1100 | none | |
# | sm_89, sm_90, sm_100 | FN | 448 |
# | gfx942 | FNUZ | 240 |
# | gfx950, gfx1200, gfx1201 | FN | 448 |
#
# <details><summary>Look it up: FP8 that went wrong</summary>
#
# > **Facts: FP8 on two vendors**
# >
# > - Quantisation code with 448 written into it was wrong on MI300X. (source:
# >   [pytorch/ao #4130](https://github.com/pytorch/ao/issues/4130))
# > - In PyTorch the wrong FP8 dtype for the chip raises an error in the scaled product. (source:
# >   [pytorch/ao #1066](https://github.com/pytorch/ao/issues/1066))
# > - In December 2024 `_scaled_mm` fell into a slow path on MI300X: about 110 TFLOP/s where about 1300 were possible.
# >   (source: [pytorch #143465](https://github.com/pytorch/pytorch/issues/143465))
#
# </details>
#
# ## 6. Instructions of one vendor
#
# `tl.inline_asm_elementwise` puts an instruction of one vendor into a kernel. Triton reads neither its text nor its
# constraints (`=f`: the result is in a float register of PTX); LLVM, the compiler behind it, gets both as they are. It
# is a C++ library inside your process, and an error in assembly is no Python exception there. This script compiles an
# instruction of NVIDIA for both vendors:

# %% the script
script = KERNELS / "ptx_on_amd.py"
Code(script.read_text(), language="python")

# %% guess the end
PRINTS = ("compiled, the end", "raised, the end", "raised, no end", "nothing")
guess = predict(
    "03.constraint",
    "What does the script print for gfx942?",
    gfx942=lesson.choice(*PRINTS, label="it prints"),
)

# %% PTX for an AMD chip
ended = lesson.python_process(str(script))
guess.reveal(
    gfx942=lesson.after_sm_80(ended.stdout),
    because="LLVM ends the process itself, past every except.",
)
stderr = ended.stderr.strip().splitlines()[-1]
lesson.table({"stdout": ended.stdout, "stderr": stderr, "status": ended.returncode})

# %% [markdown] fence
# The lesson ran it in a process of its own. In a notebook your kernel would die, in a server the worker. AMD's letters
# are `v` (a vector register, one value a lane) and `s` (a scalar one, shared by all lanes). `r` compiles on AMD and
# means something else: as a result it is a *scalar* register, and a `v_` instruction that writes there is refused
# (`invalid operand for instruction`): write `v`. (`compile_for` and this course's virtual GPUs look first, and raise
# `CompileFailed`.)
#
# So the other side must never be compiled. The *launcher* knows the target and passes its name as a `tl.constexpr`: the
# branch of an `if` on it that is not taken is not built. This kernel packs the lower halves of two 32-bit words into
# one, with one instruction for each vendor:


# %% a fenced kernel
@triton.jit
def pack_kernel(low_ptr, high_ptr, out_ptr, BACKEND: tl.constexpr):
    lanes = tl.arange(0, 64)
    low, high = tl.load(low_ptr + lanes), tl.load(high_ptr + lanes)
    if BACKEND == "hip":
        out = tl.inline_asm_elementwise(
            "v_perm_b32 $0, $1, $2, $3",
            "=v,v,v,v",
            [low, high, 0x01000504],
            dtype=tl.int32,
            is_pure=True,
            pack=1,
        )
    else:
        out = tl.inline_asm_elementwise(
            "prmt.b32 $0, $1, $2, 0x5410;",
            "=r,r,r",
            [low, high],
            dtype=tl.int32,
            is_pure=True,
            pack=1,
        )
    tl.store(out_ptr + lanes, out)


# %% both instructions
low, high = torch.randint(0, 2**31 - 1, (2, 64), dtype=torch.int32)
packed = {}
for target in ("sm_80", "gfx942"):
    out = torch.zeros(64, dtype=torch.int32)
    with virtual_gpu(target):
        backend = triton.runtime.driver.active.get_current_target().backend
        pack_kernel[(1,)](low, high, out, BACKEND=backend, num_warps=1)
    right = out.equal((low & 0xFFFF) | (high << 16))
    packed[target] = {"backend": backend, "right": right}
lesson.table(packed)

# %% [markdown] permutes
# Both instructions pick four bytes from two words. `0x5410`, from the right: bytes 0 and 1 (of the first word), then 4
# and 5 (bytes 0 and 1 of the second). AMD's selector has a byte for each digit, and the two words change places: 4 to 7
# are the first one's.
#
# <details><summary>Look it up, beside 03.inline_asm: how the two number their bytes</summary>
#
# | | `prmt.b32 d, a, b, sel` | `v_perm_b32 d, a, b, sel` |
# |---|---|---|
# | bytes 0 to 3 | of `a`, the **first** source | of `b`, the **second** source |
# | bytes 4 to 7 | of `b` | of `a` |
# | selector | four hexadecimal digits, `0x5410` | four bytes, `0x01000504` |
# | the selector as a literal | yes | not on GFX9: it comes in as an operand |
#
# `0x01000504`, from the right: bytes 4 and 5 (here: of `a`), then 0 and 1 (of `b`).
# </details>
#
# <details><summary>Did DeepSeek bypass CUDA with PTX?</summary>
#
# > **Claim and fact: "DeepSeek bypassed CUDA with PTX"**
# >
# > - Headlines said so. What the report says: customised PTX serves the kernels that communicate between GPUs, on 20 of
# >   the 132 SMs of an H800. (source: [DeepSeek-V3 technical report](https://arxiv.org/abs/2412.19437))
# > - PTX is part of CUDA: nvcc and Triton compile to PTX on their way, so this bypasses nothing. It ties the kernel to
# >   one vendor: on `gfx942` it does not compile. (measured: triton 3.7.1, the cell on PTX for an AMD chip above)
#
# </details>
#
# <details><summary>For those who write assembly: a wait that nobody adds</summary>
#
# On `gfx942` the result of a transcendental instruction such as `v_exp_f32` needs a moment before a vector instruction
# may use it. LLVM knows this rule (a *hazard*; `hasTransForwardingHazard` in its sources) and puts `s_nop 0` between.
# Inside your assembly text it sees only letters, and puts nothing; the virtual GPU does not model this. An operator of
# `tl` first, a function of libdevice second, inline assembly last. And libdevice has holes on AMD's side: of Triton's
# 197 functions for NVIDIA 141 are missing, all with a rounding mode in their name among them (`fma_rn`, `div_rn`; use
# `tl.fma` and the plain operators). There is also `tl.target_info.is_hip()`: it asks which driver is active, not what
# is being compiled, so the constexpr is the robust way.
# </details>
#
# ### Kernels that wait for each other
#
# Program 1 sets a flag, program 0 waits for it in a loop around a load. `volatile=True` asks for a load in every round.
# Look at what the loop in the machine code still reads.


# %% a loop that waits
@triton.jit
def wait_kernel(flag_ptr, out_ptr, ATOMIC: tl.constexpr):
    if tl.program_id(0) == 1:
        tl.atomic_add(flag_ptr, 1)
    else:
        if ATOMIC:
            while tl.atomic_add(flag_ptr, 0) == 0:
                pass
        else:
            while tl.load(flag_ptr, volatile=True) == 0:
                pass
        tl.store(out_ptr, 7)


# %% what the loop reads
reads = {}
for target in THREE:
    for way, atomic in (("volatile load", False), ("atomic_add of 0", True)):
        args = (torch.int32, torch.int32)
        compiled = compile_for(wait_kernel, target, args, ATOMIC=atomic, num_warps=1)
        found = lesson.in_loops(compiled, "global load", "global atomic")
        names = ", ".join(one.mnemonic for one in found)
        reads[f"{target}, {way}"] = {"in the loop": names or "nothing"}
lesson.table(reads)

# %% [markdown] flag explained
# On AMD the volatile load has left the loop: Triton 3.7.1 hands LLVM a plain load there (for NVIDIA a volatile one),
# and LLVM then loads once. If the flag was not set by then, the loop waits for ever. An atomic that adds 0 stays in the
# loop on both vendors; for `gfx942` LLVM writes it as an `or` with 0. Wait with atomics, and only for a program that is
# sure to be on the chip: nobody promises in which order programs start.
#
# <details><summary>More traps of Triton and libraries on AMD, each with its report</summary>
#
# Atomics on small floats differ, too: with Triton 3.7.1 bfloat16 is a single instruction on few targets and elsewhere a
# loop that reads, adds and tries to swap.
#
# > **Facts: more traps of Triton and libraries on AMD**
# >
# > - A kernel of a state-space model stopped on AMD with the message about constraint `f`, and a serving framework,
# >   too. (source: [mamba #1018](https://github.com/state-spaces/mamba/issues/1018),
# >   [sglang #34351](https://github.com/sgl-project/sglang/issues/34351))
# > - Missing libdevice functions were reported for `div_rn`, `sqrt_rn` and others. (source:
# >   [triton #7135](https://github.com/triton-lang/triton/issues/7135),
# >   [FlagGems #725](https://github.com/FlagOpen/FlagGems/issues/725))
# > - bfloat16 atomics through such a loop were measured about 7 times slower than float16's. (source:
# >   [openxla/xla #44428](https://github.com/openxla/xla/issues/44428),
# >   [pytorch #135770](https://github.com/pytorch/pytorch/issues/135770))
# > - flash-attn has two backends on AMD: the one of Composable Kernel is for CDNA only, RDNA uses the one in Triton.
# >   (source: [ROCm/flash-attention #88](https://github.com/ROCm/flash-attention/issues/88),
# >   [flash-attention #2343](https://github.com/Dao-AILab/flash-attention/issues/2343))
# > - PyTorch's fused attention on AMD (AOTriton) is tuned for contiguous tensors in the order batch, heads, sequence,
# >   channels. (source: [pytorch #190154](https://github.com/pytorch/pytorch/issues/190154))
# > - hipBLASLt knows a list of chips; on others it says "unsupported architecture", and PyTorch falls back to hipBLAS.
# >   (source: [hipBLASLt #1243](https://github.com/ROCm/hipBLASLt/issues/1243),
# >   [pytorch #138067](https://github.com/pytorch/pytorch/issues/138067))
#
# </details>
#
# ### Stop
#
# **What you have seen.** Weights halved, 45 in a hundred lost, FP8 that ran as float16, a process that ended past its
# `except`, and a loop without its load. You can do 03.fp8_weights and 03.inline_asm of the lab now.

# %% fifth stop
lesson.sitting("03", 5)

# %% [markdown] platform
# ## 7. Platform and environment
#
# ### Ask for what you mean
#
# Lesson 00 has the first question: the device string is `"cuda"` on both vendors, `torch.version.cuda` is `None` on
# AMD, and `torch.version.hip` tells them apart. Here are the others.
#
# | question | what scripts ask | what is right |
# |---|---|---|
# | is there a GPU? | `torch.version.cuda` | `torch.cuda.is_available()` |
# | which target is it? | `get_device_capability()` | see below |
# | FP8? | `capability >= (8, 9)` | the table of section 5, by target |
# | bf16? | the name of the chip | `torch.cuda.is_bf16_supported(including_emulation=False)`; on ROCm always True |
# | how wide is a wave? | 32 | `torch.cuda.get_device_properties(0).warp_size` |
# | how many ranks here? | parse `CUDA_VISIBLE_DEVICES` | `torch.cuda.device_count()`, after `torch.cuda.init()` |
# | which process group? | `"rccl"` | `"nccl"` on both (RCCL answers to the name), `"gloo"` on a CPU |
#
# The capability is a trap: on AMD it is made of the digits of the gfx number. An MI250X (`gfx90a`) says `(9, 0)`, as an
# H100 does; an MI300X (`gfx942`) says `(9, 4)`, a Radeon RX 7900 XTX (`gfx1100`) `(11, 0)`.

# %% guess the capability
guess = predict(
    "03.capability",
    "`capability >= (8, 9)` is how many scripts ask for FP8. Of these three chips: for "
    "how many does it say yes, and for how many is that right, by section 5?",
    says=lesson.number("says yes"),
    right=lesson.number("rightly"),
)

# %% what the capability says
CAPABILITIES = {"gfx90a": (9, 0), "gfx942": (9, 4), "gfx1100": (11, 0)}
fp8 = {target: lesson.TARGETS[target].fp8 for target in CAPABILITIES}
says = [target for target, found in CAPABILITIES.items() if found >= (8, 9)]
guess.reveal(
    says=len(says),
    right=sum(fp8[target] != "none" for target in says),
    because="all three pairs are larger than (8, 9), and only one chip has FP8.",
)
lesson.table({t: {"says yes": t in says, "FP8": fp8[t]} for t in fp8}, first="target")

# %% [markdown] ask for the target
# Ask for the target, the name that compilers use: on NVIDIA `sm_` and the capability's two numbers side by side; on AMD
# `torch.cuda.get_device_properties(0).gcnArchName`, up to the first colon. But `hasattr(..., "gcnArchName")` is no test
# for AMD: CUDA builds have it, too, with the marketing name in it.
#
# <details><summary>Where these questions went wrong</summary>
#
# > **Facts: asking for the platform**
# >
# > - The capability (9, 0) means Hopper with FP8 and MI200 without; code that compared it chose the wrong kernels.
# >   (source: [vllm #40620](https://github.com/vllm-project/vllm/issues/40620),
# >   [torchtitan #4778](https://github.com/pytorch/torchtitan/issues/4778))
# > - `gcnArchName` exists in CUDA builds and holds the name of the device. (source: pytorch,
# >   torch/csrc/cuda/Module.cpp)
# > - `torch.cuda`, the device string "cuda" and the process group "nccl" are the names on ROCm, too; `torch.hip` does
# >   not exist. (source: [PyTorch, HIP semantics](https://docs.pytorch.org/docs/stable/notes/hip.html))
#
# </details>
#
# ### Which GPUs a process sees
#
# NVIDIA has one variable, `CUDA_VISIBLE_DEVICES`. AMD has two layers, and each numbers the GPUs anew:
#
# 1. the ROCm runtime reads `ROCR_VISIBLE_DEVICES`, numbers of *physical* GPUs, and hides the rest;
# 2. HIP reads `HIP_VISIBLE_DEVICES`, and only where that is empty `CUDA_VISIBLE_DEVICES`: numbers *among what the first
#    layer left*.
#
# A node with 4 GPUs:
#
# ```text
# physical GPU                 0   1   2   3
# ROCR_VISIBLE_DEVICES=1,2,3   -   |   |   |
# number for the next layer        0   1   2
# HIP_VISIBLE_DEVICES=2,0          |   -   |
# number in the process            1       0     cuda:0 is GPU 3, cuda:1 is GPU 1
# ```
#
# A number that does not exist ends a list, as in CUDA: `4,9,5` among eight is GPU 4 alone. (Before HIP is initialised
# PyTorch does not compose the two layers, and its `device_count()` may be too large; only a longer second list raises:
# torch 2.13, `torch/cuda/__init__.py`.) Now a node with 8 GPUs; a scheduler sets `ROCR_VISIBLE_DEVICES=4,5,6,7`.

# %% guess the devices
guess = predict(
    "03.layers",
    "How many GPUs does the process see, with what your script sets?",
    physical=lesson.number("HIP_VISIBLE_DEVICES=4,5"),
    within=lesson.number("HIP_VISIBLE_DEVICES=0,1"),
)

# %% two layers
SETTINGS = (
    {"ROCR_VISIBLE_DEVICES": "4,5,6,7", "HIP_VISIBLE_DEVICES": "4,5"},
    {"ROCR_VISIBLE_DEVICES": "4,5,6,7", "HIP_VISIBLE_DEVICES": "0,1"},
    {"HIP_VISIBLE_DEVICES": "6", "CUDA_VISIBLE_DEVICES": "0"},
)
seen = [lesson.visible(one, gpus=8, vendor="amd").gpus for one in SETTINGS]
guess.reveal(
    physical=len(seen[0]),
    within=len(seen[1]),
    because="4 and 5 do not exist among the four that the first layer has left.",
)
pairs = zip(seen, SETTINGS, strict=True)
lesson.table([{"physical GPUs": str(list(gpus))} | one for gpus, one in pairs])

# %% [markdown] visibility
# Set one layer, not both, and before the first `import torch`: the runtimes read it when they start. Three more
# variables:
#
# > **Facts: the environment of an AMD node**
# >
# > - `HSA_OVERRIDE_GFX_VERSION=11.0.0` makes every GPU of the process pass for `gfx1100`: a help for Radeon cards that
# >   ROCm does not list. HSA is ROCm's runtime, below HIP. (source:
# >   [ROCm/rocm-systems #5686](https://github.com/ROCm/rocm-systems/issues/5686);
# >   [What is ROCR?](https://rocm.docs.amd.com/projects/ROCR-Runtime/en/latest/what-is-rocr-runtime.html))
# > - `NCCL_MIN_NCHANNELS=112` is AMD's advice for MI300X, with one process per GPU: RCCL, AMD's NCCL, reads NCCL's
# >   variables. More channels are more blocks that move data. (source: [ROCm, workload optimization
# >   guide](https://rocm.docs.amd.com/en/latest/how-to/rocm-for-ai/inference-optimization/workload.html); [NCCL,
# >   environment variables](https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html))
# > - `NCCL_P2P_DISABLE=1` sends what GPUs of a node exchange through the host: a way to look for a fault, and no cure.
# >   (source: [NCCL, environment
# >   variables](https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html))
#
# ### A node on paper
#
# A program has these rules. It reads a description, such as this one of `work/03_porting_to_rocm/nodes/`:

# %% a described node
node = KERNELS.parent / "files" / "nodes" / "mi300x_weekend.yaml"
Code(node.read_text(), language="yaml")

# %% guess the faults
guess = predict(
    "03.node",
    "The scheduler's ROCR_VISIBLE_DEVICES must stay. What of the "
    "other four, by the rules and facts above?",
    now=lesson.number("GPUs that process 0 sees as it is"),
    then=lesson.number("GPUs it sees without HIP_VISIBLE_DEVICES"),
    harmful=lesson.number("settings that are wrong or harmful here"),
)

# %% ask the doctor
ran = lesson.python_process("-m", "gpu_utils.cli", "doctor", "--node", str(node))
lines = lesson.doctor_findings(ran.stdout)
then = {"ROCR_VISIBLE_DEVICES": "4,5,6,7"}
now = then | {"HIP_VISIBLE_DEVICES": "4,5,6,7"}
guess.reveal(
    now=len(lesson.visible(now, gpus=8, vendor="amd").gpus),
    then=len(lesson.visible(then, gpus=8, vendor="amd").gpus),
    harmful=sum(line.startswith(("WRONG", "could be better")) for line in lines),
    because="4 does not exist among the four that are left. An MI300X is no gfx1100, "
    "and traffic through the host is slow; the 112 channels are for this node.",
)
print(*lines, sep="\n")

# %% [markdown] more of the node
# The first note: between four of eight GPUs lies only a part of the links (fold). `./w2w doctor --node file.yaml`
# prints more, with the source of each rule.
#
# **Try:** in `SETTINGS` above put `3,9,0` for `4,5`, and say first which GPUs are left.
#
# <details><summary>Look it up, and open it beside 03.launch_env: settings for speed; reports, links, graphs,
# counters</summary>
#
# > **Facts: settings for speed on an AMD node**
# >
# > - *Overlap* of compute and communication: AMD's guide sets `TORCH_NCCL_HIGH_PRIORITY=1` and
# >   `GPU_MAX_HW_QUEUES=2`. (source: [ROCm, workload optimization
# >   guide](https://rocm.docs.amd.com/en/latest/how-to/rocm-for-ai/inference-optimization/workload.html))
# > - *Tuned products.* `PYTORCH_TUNABLEOP_ENABLED=1` tries kernels for each new shape of a matrix product. Left in
# >   tuning mode it slows training: tune once; then keep it enabled, with `PYTORCH_TUNABLEOP_TUNING=0`, and it only
# >   uses its file. NVIDIA has it, too. (source: [pytorch #114894](https://github.com/pytorch/pytorch/pull/114894),
# >   [PyTorch, TunableOp](https://docs.pytorch.org/docs/stable/cuda.tunable.html))
# > - *Visibility.* Let each process see all GPUs of its job, and choose by `torch.cuda.set_device(local_rank)`: a
# >   `ROCR_VISIBLE_DEVICES` of its own for each rank breaks direct access between GPUs in RCCL. (source:
# >   [vllm #46895](https://github.com/vllm-project/vllm/issues/46895))
#
# > **Facts: reports, links, graphs and counters**
# >
# > - The layers compose: indices of `HIP_VISIBLE_DEVICES` count within `ROCR_VISIBLE_DEVICES`. (source:
# >   [pytorch #142292](https://github.com/pytorch/pytorch/pull/142292))
# > - Frameworks that set one of the variables while another was set saw no GPU, or the wrong one. (source:
# >   [ray #52701](https://github.com/ray-project/ray/issues/52701),
# >   [vllm #33308](https://github.com/vllm-project/vllm/issues/33308),
# >   [SwarmUI #565](https://github.com/mcmonkeyprojects/SwarmUI/issues/565))
# > - Overrides that named a wrong target ended in crashes, or in no GPU. (source:
# >   [ROCm/TheRock #1719](https://github.com/ROCm/TheRock/issues/1719),
# >   [ROCm/ROCm #3065](https://github.com/ROCm/ROCm/issues/3065))
# > - Collectives over all 8 GPUs of an MI300X node use the whole mesh of links, over 2 or 4 only a part. (source:
# >   [ROCm, workload optimization
# >   guide](https://rocm.docs.amd.com/en/latest/how-to/rocm-for-ai/inference-optimization/workload.html))
# > - Since ROCm 7 capture into a graph refuses calls that it allowed before, as CUDA does. `AMD_LOG_LEVEL=4` shows
# >   the call. (source: [ROCm/rccl #2022](https://github.com/ROCm/rccl/issues/2022),
# >   [ROCm/hip #3876](https://github.com/ROCm/hip/issues/3876))
# > - On RDNA3 and RDNA4 hardware counters mean little unless the performance level is `STABLE_STD`. (source:
# >   [rocprofv3
# >   documentation](https://rocm.docs.amd.com/projects/rocprofiler-sdk/en/latest/how-to/using-rocprofv3.html))
#
# </details>

# %% [markdown] stop after the node
# ### Stop
#
# **What you have seen.** A capability that is no age, two layers that number GPUs anew, and four GPUs of which none was
# seen. You can do 03.device_agnostic and 03.launch_env of the lab now.

# %% sixth stop
lesson.sitting("03", 6)

# %% [markdown] port
# ## 8. The training script, ported
#
# The model of unit 01 is plain PyTorch. Of a fork for CUDA, which the lab prints, this must change:
#
# | CUDA only (the fork) | one code path |
# |---|---|
# | `model.cuda()`, `x.cuda()` | `model.to(device)`, and new tensors on the device of the data |
# | `torch.autocast("cuda", torch.float16)` | `torch.autocast(device.type, torch.bfloat16)` where the device has bf16 |
# | `GradScaler()` always | a scaler for float16 only: bf16 has the range of float32 |
# | `allow_tf32 = True` at the top | leave it, or set it knowingly: it is global, and may change the losses |
# | `pin_memory=True` | only where there is a GPU |
#
# The fork calls `scaler.scale(loss).backward()`, `clip_grad_norm_(...)`, `scaler.step(optimizer)`. One call is missing,
# in silence, on both vendors: gradients come out *multiplied by the scale*, and `scaler.unscale_(optimizer)` divides
# them again. Where nobody calls it, `step` does it: too late, after the clipping.

# %% guess the norm
guess = predict(
    "03.clip",
    "Scale 65,536, true norm 5, clipped to 1 before unscaling: what is left?",
    norm=lesson.number(factor=1.2),
)

# %% the order of clipping
SCALE, seen = 65_536.0, {}
for order in (("clip", "unscale"), ("unscale", "clip")):
    weight = torch.nn.Parameter(torch.zeros(2))
    (weight @ torch.tensor([3.0, 4.0]) * SCALE).backward()
    for action in order:
        if action == "clip":
            torch.nn.utils.clip_grad_norm_([weight], 1.0)
        else:
            weight.grad /= SCALE
    seen[" then ".join(order)] = {"norm": float(weight.grad.norm())}
guess.reveal(
    norm=seen["clip then unscale"]["norm"],
    because="a norm of 1 is divided by 65,536.",
)
lesson.table(seen)

# %% [markdown] order
# The right order is *unscale, clip, step*. In bf16 there is no scaler, and no such order.
#
# **Try:** make the gradient `[3e-6, 4e-6]`, and say first what each order leaves.
#
# <details><summary>Why does the loss go down all the same?</summary>
#
# AdamW divides a gradient by its own size, so a common factor cancels while gradients are well above AdamW's $\epsilon
# = 10^{-8}$. Spread evenly over the 170,000 parameters of this section's model, a norm of $1.5 \cdot 10^{-5}$ is $3.7
# \cdot 10^{-8}$ for each, and a step shrinks to $3.7 / (3.7 + 1)$: four fifths. Over the 124 million of GPT-2 it is
# $1.4 \cdot 10^{-9}$, and $1.4 / (1.4 + 10)$ is an eighth.
# </details>
#
# ### Is it still the same training?
#
# Another order of sums is another rounding, so two right runs drift apart. *Are these further apart than two right
# runs may be?* The report takes its bounds from the reference alone, so that a bad candidate cannot excuse itself:
#
# - **arithmetic**: logits and gradients of one batch against the same code in float64 on the CPU, within a bound from
#   the number of roundings (unit 09 derives it);
# - **the future**: how far a logit moves when a later token is exchanged;
# - **losses** of runs with the same seed, data and rates: the first within the bound of one forward pass; the mean of
#   the last steps, and validation, within what *other seeds* do to the reference, at an error rate of 5% (Student's t:
#   4.3 standard errors for three seeds, which tell an error badly; take more where you can);
# - **pairs**: by how much validation moves from run to run of one seed, with its 95% interval. It is reported and not
#   judged: it also shows what another rounding does to every seed alike. Unit 09 tests it;
# - **speed** with its spread, which is reported and not judged.
#
# The model is small, 64 wide, and all 40 steps belong to the warm-up. `here` is the same code on whatever is there: a
# GPU of either vendor, or again the CPU. Three cells train: six runs here, three in each of the next two, together half
# a minute to two. In the column "apart" logits and gradients are a part of the largest, losses a difference; 26
# roundings are 12 a layer and 2.

# %% the parity report
from dataclasses import replace

preset = lesson.TrainConfig.preset("cpu")
model = replace(preset.model, n_embd=64, n_positions=64)
short = {"seq_len": 64, "steps": 40, "warmup": 40, "max_lr": 3e-4, "eval_batches": 8}
configs = [replace(preset, model=model, seed=seed, **short) for seed in (1, 2, 3)]


def runs(device=None):
    """Three runs that differ in their seed, as records."""
    return [lesson.train(one, device=device, progress=None).record for one in configs]


before, here = runs("cpu"), runs()
lesson.parity_table(lesson.parity(before, here, lesson.agreement(config=model)))

# %% [markdown] a right port
# On a CPU the losses of both columns should agree to the last digit: one code path, one machine. So first a port that
# differs, and is right: PyTorch's fused attention is exchanged for the same, written out.


# %% attention written out
from unittest.mock import patch


def written_out(q, k, v, **flags):
    T, S = q.shape[-2], k.shape[-2]
    later = torch.ones(T, S, dtype=torch.bool, device=q.device).triu(S - T + 1)
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    return scores.masked_fill(later, float("-inf")).softmax(-1) @ v


def ported(attention):
    """The report on three runs with another function for attention."""
    with patch("torch.nn.functional.scaled_dot_product_attention", attention):
        return lesson.parity(before, runs(), lesson.agreement(config=model))


lesson.parity_table(ported(written_out))

# %% [markdown] predict the mask
# The losses part ("largest gap of one step"), and every row should hold. Now a wrong port, a classic: the flag
# `is_causal` gets lost, and each token sees its future. At the start attention is nearly a plain mean of what a token
# sees, now twice as much on average: the first loss moves by thousandths. In 40 steps the model has probably hardly
# learned to look anywhere.
#
# A hint: ask which attention the float64 run calls.

# %% guess the mask
guess = predict(
    "03.mask",
    "Three runs without the mask. Which rows of the report are broken?",
    gradients=lesson.yes_no("gradients against float64"),
    first=lesson.yes_no("loss of the first step"),
    validation=lesson.yes_no("validation loss"),
    future=lesson.yes_no("what a logit sees of a later token"),
)

# %% a port that lost its mask
fused = torch.nn.functional.scaled_dot_product_attention


def without_mask(q, k, v, **flags):
    return fused(q, k, v)


report = ported(without_mask)
holds = {row.what: row.holds for row in report.rows}
guess.reveal(
    gradients=not holds["gradients of one batch"],
    first=not holds["loss of the first step"],
    validation=not holds["final validation loss"],
    future=not holds["seen of the future"],
    because="float64 ran the same fault; equal weights leave the first loss no room; a "
    "seed moves the validation by more; and a later token is seen.",
)
lesson.parity_table(report)

# %% [markdown] the first step
# The gradients agree, because float64 on the CPU ran the same wrong code: agreement with oneself. The mean of the last
# steps and the validation are off by a fraction of what another seed does: **the end of this curve shows nothing yet**.
# Step by step, with the same seed, the curves part by thousandths, where the right port above parted by a millionth.
# That row has no bound: in bfloat16, or after thousands of steps, right ports part as far. A long run should part
# downwards: a loss that is *better* than the reference is a finding, too. The *first* loss breaks: equal weights, one
# batch and float32 leave it no room. In bfloat16 its bound would be at least 0.65, and hold, too.
#
# <details><summary>Where the bound of the first loss comes from</summary>
#
# In float32 it is 7.1e-05: 12 x 2^-23 x 6.9 = 1.0e-05 for about twelve roundings of the loss on its way through the
# model (unit 09 counts them), and 2 x 256 x 2^-23 = 6.1e-05 for sums of up to 256 terms of size 1 (the MLP is 4 x 64
# wide). It leaves out the softmax over 1,024 tokens and the mean over 512 losses, which PyTorch adds in parts: each
# costs a few roundings more. In bfloat16 the twelve roundings alone are 12 x 2^-7 x 6.9 = 0.65.
# </details>
#
# What finds it, also in bf16, is a question about a *property*: exchange the last token, and no earlier logit may move.
# A masked weight is 0 exactly, so deterministic kernels need no tolerance. (Some right models fail it: one FP8 scale
# for a whole tensor lets a later token reach an earlier one. Freeze the scales first.) Write such a row for whatever
# your port exchanges: for softmax, a sum of 1. Then compare the first step, and only then a curve.
#
# `.venv/bin/python work/03_porting_to_rocm/train.py` trains this machine's preset and compares with the newest record
# of unit 01.

# %% [markdown] logs
# ## 9. Reading a failure log
#
# A failed job can leave a thousand lines, and the last one may name a consequence. A method:
#
# 1. **The first error in time**, of any rank. All later ones may be its consequences: a rank that waits for one that
#    failed reports a timeout. (Its *watchdog* does, a thread that ends what takes too long.)
# 2. **Who speaks?** The words tell the layer, and the layer tells where to look.
# 3. **What did it find, and what did it expect?** Say both in one sentence. If you cannot, read on above the error.
# 4. **Is that the line?** A fault *inside* a kernel, such as a bad address, is reported late, by a call that waits;
#    `AMD_SERIALIZE_KERNEL=3` (NVIDIA: `CUDA_LAUNCH_BLOCKING=1`) makes every launch wait. An error *of the launch* is
#    known at once, but only to code that asks for it (`hipGetLastError()`).
# 5. **The smallest experiment** that tells your two best explanations apart. Then change one thing.
#
# Lines stand in the order in which they *arrived*: sort by time first (within one node).
#
# | words | who speaks | look at |
# |---|---|---|
# | `error: static assertion failed`, `invalid output constraint` | hipcc, clang | the source: sections 1 to 3 |
# | `couldn't allocate output register`, `invalid operand for instruction` | Triton's compiler | inline assembly |
# | `LLVM ERROR` | Triton's compiler | inline assembly, options of the launch |
# | `OutOfResources: ... Hardware limit: 65536` | Triton, loading | tile and `num_stages` |
# | `HIP error: invalid device function` | HIP's runtime | for which targets was the library built? |
# | `device_count() = 0`, `No HIP GPUs are available` | the environment | visibility variables, `HSA_OVERRIDE_...` |
# | `NCCL WARN`, `watchdog`, `timeout` | RCCL, PyTorch | a *consequence*, if a rank failed before; else network, masks |
# | no error; loss is NaN, or another curve | nobody | FP8 flavour and 448, denormals, tf32, width 32 |
#
# In the next log each rank builds the library `topk` where its own cache has none. The lines of five ranks are cut:
# they are like rank 0's.

# %% a log
LOG = """\
09:14:02 launcher  torchrun --nproc-per-node 8 train.py
09:14:09 rank 0    torch 2.13.0, hip 7.1, device_count 8, AMD Instinct MI300X
09:14:10 rank 0    loading /cache/0/build-gfx942/topk.so
09:14:11 rank 5    loading /cache/5/build-gfx90a/topk.so
09:14:12 rank 2    loading /cache/2/build-gfx90a/topk.so
09:14:17 rank 2    RuntimeError: HIP error: invalid device function
09:14:18 rank 2    writes a checkpoint, waits for the other shards
09:24:16 rank 0    Watchdog caught collective operation timeout: ALLREDUCE, 600000 ms
09:14:16 rank 5    RuntimeError: HIP error: invalid device function
09:14:16 rank 5      File "train.py", line 88, in step: loss = out.mean()
09:14:17 rank 5    writes a checkpoint, waits for the other shards
09:24:17 rank 0    To avoid data inconsistency, we are taking the entire process down
09:24:18 launcher  train.py FAILED, root cause (first observed failure): rank 0
"""
print(LOG)

# %% guess the cause
guess = predict(
    "03.log",
    "Which rank failed first in time, and what is the cause?",
    rank=lesson.number("rank"),
    cause=lesson.choice(
        "the network",
        "train.py, line 88",
        "a library built for another chip",
        "a slow rank",
    ),
)

# %% first error first
lines = sorted(LOG.splitlines(), key=lambda line: line[:8])  # by time
first = next(line for line in lines if "error" in line.lower())
guess.reveal(
    rank=int(first.split("rank ")[1][0]),
    cause=lesson.cause_of(first),
    because="sorted by time rank 5 comes first, and above it stands build-gfx90a.",
)
print(*lines, sep="\n")

# %% [markdown] triaged
# 1. First in time: rank 5, `HIP error: invalid device function`, and rank 2 a second later. torchrun stops all ranks as
#    soon as one *exits*, and names that one. Ranks 5 and 2 caught their error and stayed; after ten minutes in
#    ALLREDUCE rank 0 was the first to exit.
# 2. HIP's runtime speaks.
# 3. It expected code for `gfx942`, and found none: these two loaded `build-gfx90a`, in caches that came along from an
#    older node with MI250X; rank 0 loaded `build-gfx942`. AMD's machine code runs on its own target only, and nothing
#    portable lies beside it, as PTX may in CUDA libraries, unless asked for.
# 4. `out.mean()` is innocent. The launch of the extension's kernel failed, and the extension probably did not ask for
#    errors. PyTorch asks after each launch of its own, and found this one. (Before ROCm 7 a call that succeeded in
#    between wiped the error out.) `AMD_SERIALIZE_KERNEL=3` changes nothing here.
# 5. Either the library has no `gfx942`, or the process sees another chip than we think. One experiment, with no job at
#    all: `llvm-objdump --offloading topk.so` names the targets inside (before ROCm 6.4: `roc-obj-ls`). If it
#    names `gfx942`, print `gcnArchName` in that rank. Cure: delete the two old folders, and build with
#    `PYTORCH_ROCM_ARCH="gfx90a;gfx942"`: one library then serves both nodes.
#
# <details><summary>Look it up: logs on AMD</summary>
#
# > **Facts: logs on AMD**
# >
# > - `HIP error: invalid device function` was, in many reports, a library without code for the chip. (source:
# >   [pytorch #132570](https://github.com/pytorch/pytorch/issues/132570),
# >   [pytorch #147626](https://github.com/pytorch/pytorch/issues/147626))
# > - The launch itself returns it: `hipLaunchKernel: Returned hipErrorInvalidDeviceFunction`, in a log of HIP. (source:
# >   [ROCm/MIVisionX #1437](https://github.com/ROCm/MIVisionX/issues/1437))
# > - Since ROCm 7.0 `hipGetLastError()` returns the last error, as in CUDA; before, the result of the last call.
# >   (source: [HIP API 7.0 changes](https://rocm.docs.amd.com/projects/HIP/en/latest/hip-7-changes.html))
# > - `roc-obj-ls`, which such reports use, is deprecated since ROCm 6.4; `llvm-objdump --offloading` takes its place,
# >   and also writes each code object into a file. (source: [ROCm release
# >   notes](https://rocm.docs.amd.com/en/latest/about/release-notes.html#changes-to-rocm-object-tooling))
# > - AMD's portable forms must be asked for: a generic target such as `gfx11-generic`, which serves one family, or
# >   SPIR-V (`amdgcnspirv`), which the runtime translates for the chip at hand. (source: [ROCm, code portability and
# >   compression](https://rocm.docs.amd.com/projects/llvm-project/en/latest/conceptual/code-portability.html))
# > - `AMD_SERIALIZE_KERNEL=3` makes HIP wait at each launch, `AMD_LOG_LEVEL=4` prints every call of HIP. (source:
# >   [ROCm/hip #3876](https://github.com/ROCm/hip/issues/3876),
# >   [ROCm/rccl #2022](https://github.com/ROCm/rccl/issues/2022))
#
# </details>
#
# ### Stop
#
# **What you have seen.** A gradient clipped to nothing, a lost mask that the end of the curve did not show, a rank that
# was blamed for waiting. 03.triage and 03.port_gpt2 are left.

# %% last stop
lesson.sitting("03", 7)

# %% [markdown] summary
# ## Summary
#
# - The width of a wave follows the chip: 32 on NVIDIA and RDNA, 64 on CDNA. The mistake is *mixing* a fixed 32 with
#   `warpSize`. The identity matrix shows which lanes a reduction loses.
# - Votes and masks have 64 bits on AMD. A mask names the lanes that call, and no other of the wave. Do not build on
#   what comes from a lane that is off; past the end of the wave, at 32 or at 64, a lane gets its own value.
# - A wavefront has one program counter: a lock that all its lanes ask for at once may hang. `__launch_bounds__`'s
#   second number means something else on each side.
# - hipify renames; it does not understand. Read what is left: headers, guards, PTX, 32, 448, 96 KB, and `setup.py`.
# - In Triton look at limits and defaults: LDS when loading, stages, spills, precision, FP8 flavours.
# - Ask for the target, not for a capability; for a device, not for CUDA. Set one layer of visibility.
# - The end of a short loss curve can miss what a property shows. In a log the first error in time counts, and the
#   layer that speaks.
#
# ## Read next
#
# - [HIP porting guide](https://rocm.docs.amd.com/projects/HIP/en/latest/how-to/hip_porting_guide.html) and [HIP C++
#   language extensions](https://rocm.docs.amd.com/projects/HIP/en/latest/how-to/hip_cpp_language_extensions.html).
# - [HIPIFY](https://rocm.docs.amd.com/projects/HIPIFY/en/latest/), [PyTorch, HIP (ROCm)
#   semantics](https://docs.pytorch.org/docs/stable/notes/hip.html).
# - [ROCm, workload optimization
#   guide](https://rocm.docs.amd.com/en/latest/how-to/rocm-for-ai/inference-optimization/workload.html): Triton's
#   options on MI300X, RCCL, TunableOp.
# - [ROCm, GPU isolation techniques](https://rocm.docs.amd.com/en/latest/conceptual/gpu-isolation.html).
# - [LLVM, user guide for the AMDGPU backend](https://llvm.org/docs/AMDGPUUsage.html).
# - [OCP 8-bit floating point
#   specification](https://www.opencompute.org/documents/ocp-8-bit-floating-point-specification-ofp8-revision-1-0-2023-12-01-pdf-1).
#
# ## Check yourself
#
# Answer first, then open.
#
# <details><summary>A reduction loop starts at <code>offset = 16</code>, and lane <code>% warpSize == 0</code> adds the
# result. What is lost on gfx942, and what on gfx1100?</summary>
#
# On gfx942 lanes 32 to 63 of every wavefront; on gfx1100 nothing, its waves have 32 lanes.
# </details>
#
# <details><summary><code>unsigned m = __ballot(p); int n = __popc(m);</code> What must change?</summary>
#
# <code>unsigned long long m</code> and <code>__popcll(m)</code>.
# </details>
#
# <details><summary>A block of 32 x 6 threads on gfx942: how many wavefronts, and which lane is thread
# (5, 3)?</summary>
#
# 192 threads are 3 wavefronts. The number is 5 + 32 × 3 = 101; the lane is 101 mod 64 = 37.
# </details>
#
# <details><summary>A kernel under <code>#if __CUDA_ARCH__ >= 700</code> runs on an MI300X without error. What does it
# compute?</summary>
#
# Nothing: the name is undefined there, the condition false, the body empty.
# </details>
#
# <details><summary>The loss of an FP8 model is far off on MI300X, with no error. Two suspects?</summary>
#
# Bytes of FN read as FNUZ (everything is half), and a hard-coded 448 (NaN past 240).
# </details>
#
# <details><summary>ROCR_VISIBLE_DEVICES=2,3 and HIP_VISIBLE_DEVICES=1. Which GPU?</summary>
#
# Physical GPU 3: the second of the two that the first layer left.
# </details>
#
# Now open [lab 03](../labs/03_porting_to_rocm.ipynb).
