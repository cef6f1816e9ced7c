# %% [markdown] top
# # 02 The GPU as a machine: warps, wavefronts, memory, occupancy, roofline
#
# **Afterwards you can** say what one SM and one CU hold; count what a branch, a stride and a bank conflict cost on
# each; work out how many blocks fit on a unit, and whether that matters; place every operator of GPT-2 under the
# roofline of any chip; and plan what fits into its memory.
#
# **You need** lessons 00 and 01. No GPU: PTX for NVIDIA and machine code for AMD are *executed on virtual GPUs*.
# Nothing here has run on AMD silicon. C++ kernels are compiled with clang from the optional extra `hip`
# (`W2W_EXTRAS=hip ./w2w study`); without it they come from stored listings.
#
# **Time**: three sittings: one wave (sections 1 to 3), one unit (4 to 6), the whole chip (7 to 10). To read text and
# code at 200 words a minute takes 15 minutes for each, and the cells half a minute on a CPU. With every guess made and
# every listing read, count 45 minutes for each. Then lab 02.
#
# Every figure of a chip is printed from the registry or stands in a box with its source.

# %% imports
from itertools import cycle

import torch
import triton
import triton.language as tl

from gpu_utils import CHIPS, bench, compile_for, explore, lesson, predict, virtual_gpu

# %% [markdown] the unit
# # Sitting 1: one wave
#
# ## 1. What an SM and a CU hold
#
# A GPU is a few dozen to a few hundred equal *compute units*: NVIDIA says streaming multiprocessor (SM), AMD says
# compute unit (CU). A block (AMD: workgroup) is placed on one of them and stays there until it ends.
#
# | idea | NVIDIA | AMD |
# |---|---|---|
# | compute unit | SM | CU; on Radeon RX 7000 and 9000 two CUs form a *WGP* (workgroup processor) that a block shares |
# | its parts, each with registers and places for waves of its own | sub-partition | SIMD |
# | lanes that carry out one instruction together | warp | wavefront, or wave |
# | one lane's work | thread | work-item |
# | on-chip memory of a block | shared memory | LDS, local data share |
# | registers of a lane | registers | VGPRs (vector); values that all lanes share go to SGPRs (scalar) |
#
# Code is made for a *target*, and the tables here name it:
#
# | NVIDIA | found in | AMD | found in |
# |---|---|---|---|
# | `sm_80` | A100 | `gfx90a` | MI200 series: MI210, MI250X |
# | `sm_89` | L40 | `gfx942` | MI300X |
# | `sm_90` | H100 | `gfx950` | MI350X, MI355X |
# | | | `gfx1100`, `gfx1201` | RX 7900 XTX, RX 9070 XT |
#
# Kernels are executed for `sm_80` in sections 2 to 4: what counts there, the lanes of a warp, sectors and banks, is the
# same on `sm_90`.
#
# In this course *wave* means warp or wavefront. A part keeps the registers of *many* waves at once: while one waits,
# another goes on, and nothing is saved or restored. That is also why registers limit how many waves it can keep
# (section 5).
#
# A unit of an H100 and one of an MI300X have four parts each. A part of the SM has slots for 16 warps of 32 lanes, a
# SIMD of the CU slots for 8 wavefronts of 64. Either part has **512** registers of 4 bytes for each of these 32 or 64
# lanes, and *all its waves share them*: four waves can have 128 each, eight can have 64. (CUDA's guide counts 64 K
# registers of an SM: divided by 4 parts and 32 lanes these are the 512.)

# %% predict the unit
guess = predict(
    "02.unit",
    "How many threads can a CU of an MI300X hold at a time? "
    "How many bytes of registers has it, against an SM of an H100?",
    threads=lesson.number("threads on a CU"),
    kib=lesson.choice("half", "as many", "twice", label="bytes of registers"),
)

# %% the unit in numbers
rows = {}
for name in ("sm_90", "gfx942", "gfx1100"):
    t = lesson.TARGETS[name]
    rows[name] = {
        "lanes of a wave": t.lanes,
        "parts": t.simds,
        "waves on a part, at most": t.waves_per_simd,
        "threads, at most": t.waves_per_unit * t.lanes,
        "KiB of registers": t.simds * t.registers * t.lanes * 4 // 1024,
        "most registers of a lane": t.registers_max,
        "KiB of shared memory or LDS": t.shared_per_unit // 1024,
        "of which one block may have": t.shared_per_block // 1024,
    }
times = rows["gfx942"]["KiB of registers"] / rows["sm_90"]["KiB of registers"]
guess.reveal(
    threads=rows["gfx942"]["threads, at most"],
    kib={0.5: "half", 1: "as many", 2: "twice"}[times],
    because="4 x 8 x 64 threads; 512 registers a lane on either, for 64 lanes, not 32.",
)
lesson.table(
    rows,
    across=True,
    note="gfx1100: a WGP, two CUs together. gfx942: ordinary instructions reach 256 "
    "registers; the other 256, AGPRs, serve the matrix instructions (section 5).",
)

# %% the unit drawn
lesson.unit_figure("sm_90", "gfx942")

# %% [markdown] reading the unit
# The same 2,048 threads, as 64 warps or as 32 wavefronts. But the CU has twice the registers and a fraction of the
# shared memory. So data that live in shared memory on an H100 may have to live in registers on an MI300X.
#
# ### How wide the hardware is
#
# A part of an H100's SM has 32 float32 lanes, as many as a warp. A SIMD of CDNA (AMD's chips for data centres) is 16
# lanes wide: a wavefront of 64 passes through it in four steps. They are steps of *one* instruction, so all 64 lanes
# must agree about a branch. A SIMD of RDNA (Radeon) is 32 lanes wide, as wide as the waves that Triton and clang make
# for it. (RDNA can also run waves of 64, if a compiler is told to: `-mwavefrontsize64`.)
#
# <details><summary>Sources for the unit</summary>
#
# > **Facts: the compute units**
# >
# > - An SM has four sub-partitions, each with a warp scheduler, a register file and warp slots. (source: NVIDIA
# >   developer forum, [answer on
# >   inst_executed](https://forums.developer.nvidia.com/t/inst-executed-and-thread-inst-executed/154021/4))
# > - An SM of an A100 or H100 has 64 K registers of 32 bits; a thread can have 255 of them. (source: CUDA programming
# >   guide, compute capabilities)
# > - An SM of an H100 has 128 float32 lanes, so 32 in each part. (source: NVIDIA's white paper H100 Tensor Core GPU
# >   Architecture, V1.04, table 3)
# > - A SIMD of gfx90a, gfx942 and gfx950 has 512 vector registers for each lane and takes 8 waves; a CU has four SIMDs.
# >   (source: LLVM, AMDGPUBaseInfo.cpp)
# > - A SIMD of gfx1100 and gfx1201 has 1,536 for each of 32 lanes, and takes 16 waves. (source: LLVM,
# >   AMDGPUBaseInfo.cpp)
# > - A SIMD of CDNA is 16 lanes wide and takes four cycles for a vector instruction of 64; one of RDNA is 32 lanes
# >   wide. (source: HIP documentation, docs/understand/hardware_implementation.rst in ROCm/rocm-systems)
# > - Waves of RDNA can have 32 or 64 lanes. (source: HIP documentation of ROCm 6.1.2, [hardware
# >   implementation](https://rocm.docs.amd.com/projects/HIP/en/docs-6.1.2/understand/hardware_implementation.html))
# > - For targets that can do both, clang makes waves of 32 unless told otherwise. (source: LLVM,
# >   [D92628](https://reviews.llvm.org/D92628))
# > - A block can have 163 KiB of shared memory on sm_80, 99 KiB on sm_89, 227 KiB on sm_90. (source: CUDA programming
# >   guide, compute capabilities)
# > - A block can have 64 KiB of LDS on gfx90a, gfx942 and RDNA, 160 KiB on gfx950. (source: Triton, AMD TargetInfo)
# </details>

# %% [markdown] divergence
# ## 2. Lanes that disagree
#
# What happens at an `if` when some lanes of a wave want the one side and some the other? The wave carries out *both
# sides*, one after the other, each with the lanes that took it; the others stand by. A side that no lane takes is
# jumped over.
#
# This kernel has 12 instructions on one side and 6 on the other. Which side a thread takes is read from memory.

# %% read the branch
FILES = (lesson.unit_folder("02") / "kernels").glob("*.cu")
SOURCE = {file.stem: file.read_text() for file in FILES}
print(SOURCE["branch"])

# %% [markdown] predict divergence
# A block has 128 threads: four warps of 32 on `sm_80`, two wavefronts of 64 on `gfx942`. Threads 0 to 31 take the first
# side (12 instructions), 32 to 63 the second (6), 64 to 95 the first, 96 to 127 the second.

# %% predict the branch
guess = predict(
    "02.branch",
    "On gfx942: how many instructions of the two sides do all waves of the block "
    "together issue? Which share of the lanes works in them?",
    issued=lesson.number("instructions issued"),
    on=lesson.number("share of lanes", unit="%"),
)

# %% run the branch
BOTH = ("sm_80", "gfx942")


def sides(takes_first):
    """What waves issued of the two sides (fma), and the share of lanes on."""
    takes = torch.tensor([int(takes_first(t)) for t in range(128)], dtype=torch.int32)
    args = [takes, torch.ones(128)]
    gpus = lesson.launch_cpp(BOTH, SOURCE["branch"], "branch", 1, 128, args)
    return lesson.issued(gpus, "fma")


blocks_of_32 = sides(lambda t: t // 32 % 2 == 0)
guess.reveal(
    issued=blocks_of_32["gfx942"]["issued"],
    on=blocks_of_32["gfx942"]["% of lanes on"],
    because="both wavefronts are mixed: 2 x (12 + 6), each with 32 of 64 lanes.",
)
lesson.table(blocks_of_32, first="target")

# %% [markdown] divergence by hand
# Each warp of `sm_80` is of one mind: 2 × 12 + 2 × 6. Equal counts, and yet `gfx942` spends twice the lane slots for
# the same work. The width of a wave is the distance over which threads must agree: code that gives each group of 32
# threads a role of its own loses half of the lanes on 64.
#
# **One lane is enough.** A side is issued for a wave as soon as *one* of its lanes takes it, and costs as much as with
# all lanes on. So it matters where the few stand. Now eight of the 128 threads take the long side: once every 16th
# thread (0, 16, 32 ...), once the first eight (0 to 7).

# %% predict where they stand
guess = predict(
    "02.standing_together",
    "How many instructions of the two sides does the block issue on sm_80?",
    spread=lesson.number("every 16th thread"),
    first=lesson.number("the first eight"),
)

# %% where they stand
spread, first = sides(lambda t: t % 16 == 0), sides(lambda t: t < 8)
guess.reveal(
    spread=spread["sm_80"]["issued"],
    first=first["sm_80"]["issued"],
    because="spread out, all 4 warps issue 12 + 6; together, one does, three only 6.",
)
lesson.bars({
    name: {target: found[target]["issued"] for target in BOTH}
    for name, found in {"every 16th": spread, "first eight": first}.items()
}, "instructions issued")  # fmt: skip

# %% [markdown] standing together
# (Compare within a colour. An instruction of `gfx942` is for 64 lanes, and keeps its SIMD of 16 for four cycles: counts
# are not times.)
#
# `thread % n`, with an `n` up to the lanes of a wave, puts an active lane into every wave; `thread < n` puts all of
# them into a few waves and lets the others jump. The same numbers, other threads: that is how a divergent kernel is
# repaired (lab: 02.converge).
#
# One rule comes with it. A barrier, `__syncthreads()`, waits for *all* threads of the block. Inside an `if` some never
# reach it: close the branch first.
#
# ### How the machine code switches lanes off
#
# Now 64 threads, two warps or one wavefront. Every second one takes the long side, so all waves go both ways.

# %% the branch in both listings
takes = torch.arange(64, dtype=torch.int32) % 2
args = [takes, torch.ones(64)]
gpus = lesson.launch_cpp(BOTH, SOURCE["branch"], "branch", 1, 64, args)
lesson.executed(gpus, "vector", "mask", "branch", "global load", "global store")

# %% [markdown] exec against predicates
# The lanes are those of all these waves together. (What no wave reached, loads of arguments and waits are left out.)
#
# **AMD writes it out**, in `EXEC`, a register with one bit for each lane. Vector instructions touch only lanes that are
# on. Follow the lanes:
#
# - 64 on: `v_cmp` finds the 32 that ask for the long side. `s_and_saveexec_b64` keeps the old `EXEC` in `s[0:1]` and
#   leaves these 32 on. `s_xor_b64 s[0:1], exec, s[0:1]` leaves in `s[0:1]` the 32 that still wait.
# - 32 on: somebody wants the long side, so `s_cbranch_execnz` jumps to it. After it `s_or_saveexec_b64` turns on
#   those that wait as well, and keeps in `s[0:1]` those that are done.
# - 64 on: `s_xor_b64 exec` turns off those that are done. `s_cbranch_execz` would jump if nobody were left.
# - 32 on: the short side. `s_or_b64 exec` turns all on again.
#
# **NVIDIA's PTX is written for one thread**: a predicate `%p1` and a plain branch. `ptxas` adds the meeting point when
# it makes the chip's machine code, SASS. Here is the branch, assembled for `sm_80` and executed nowhere:

# %% the branch in sass
print(lesson.sass(lesson.compile_cpp(SOURCE["branch"], "sm_80"), "BSSY", "STG.E"))

# %% [markdown] the meeting point
# `BSSY` sets in the *convergence barrier* `B0` where the lanes will meet: `.L_x_0`. The lanes that want the short side
# take `@!P0 BRA`. At `BSYNC B0` the lanes wait for each other. So `B0` plays the part of `s[0:1]`, but no instruction
# writes a mask: the hardware switches the lanes. (For a short side either compiler may drop the branch; NVIDIA's then
# guards single instructions, `@%p1`, as in unit 00.)
#
# > **Facts: where lanes meet again**
# >
# > - BSSY is "Barrier Set Convergence Synchronization Point", BSYNC "Synchronize Threads on a Convergence Barrier".
# >   (source: NVIDIA, [CUDA binary utilities](https://docs.nvidia.com/cuda/cuda-binary-utilities/index.html),
# >   instruction set reference)
#
# Since Volta each NVIDIA thread has a program counter of its own (*independent thread scheduling*: CUDA programming
# guide, SIMT architecture). Lanes that have parted may take turns, and your code may rely on their being together again
# only after `__syncwarp()`. A wavefront has one program counter, and `EXEC`. (Unit 03 shows what code breaks by it.)
#
# In Triton both sides of a `tl.where` are computed, whatever the data. And a loop runs until the *last* lane of its
# wave is done.
#
# Step through a branch yourself, on two warps and on one wavefront:

# %% explore divergence
explore("divergence", "lane < 48")

# %% [markdown] coalescing
# ## 3. Coalescing: what one load costs
#
# In unit 00 one load of a wave became *transactions* with memory. Here is the rule by which the counters
# count. Memory is cut into aligned
# segments: on NVIDIA segment 0 is bytes 0 to 31, segment 1 is bytes 32 to 63, and so on. **A load of a wave costs one
# transaction for each distinct segment that any byte of any active lane falls into.** The order of the lanes does not
# matter; a lane that is switched off costs nothing; an access that begins in one segment and ends in the next touches
# both. Stores are counted by the same rule. The counters here count what the unit for loads and stores asks for, before
# any cache.
#
# > **Facts: bytes of one transaction, as the counters here count**
# >
# > - 32 on NVIDIA: a sector, a quarter of a line of 128. (source: NVIDIA's answer in
# >   [its forum](https://forums.developer.nvidia.com/t/understanding-l1-tex-cache-sectors-req/312884))
# > - 64 on gfx90a: a line of its first-level cache. (source: Linux, drivers/gpu/drm/amd/amdkfd/kfd_crat.c)
# > - 128 on gfx942: AMD's profiler multiplies its counter by 128; its manual still says 64. (source: AMD's
# >   rocprofiler-compute, analysis_configs/gfx942/1600_vector_l1_data_cache.yaml in ROCm/rocm-systems)
# > - 128 on gfx1100. (source: Linux, kfd_crat.c for gfx10 and later)
#
# An example. A warp reads float32 values with stride 2: lane `i` reads 4 bytes at byte `8 * i`. Lanes 0 to 3 lie in
# segment 0, lanes 4 to 7 in segment 1 ...: 8 transactions of 32 bytes, 256 bytes moved for 128 asked.

# %% predict strides
guess = predict(
    "02.strides",
    "64 threads (two warps, or one wavefront) read 4 bytes each, thread i at byte "
    "4 * stride * i. How many transactions of 128 bytes does gfx942 need at stride 8? "
    "At stride 32 the threads lie further apart: who needs more than at stride 8?",
    at_8=lesson.number("gfx942, stride 8"),
    more=lesson.choice("none", *BOTH, " and ".join(BOTH), label="needs more at 32"),
)


# %% count strides
@triton.jit
def read_kernel(x_ptr, out_ptr, stride, offset, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i * stride + offset))


def read(stride=1, offset=0, each=1):
    """64 threads read `each` values apiece: target -> its virtual GPU."""
    x, out = torch.arange(64.0 * each * stride + offset), torch.zeros(64 * each)
    args = (x, out, stride, offset)
    return lesson.launch_on(BOTH, read_kernel, (1,), *args, threads=64, BLOCK=64 * each)


SECTORS = "global_load_sectors"
counted = {n: lesson.counted(read(n), SECTORS) for n in (1, 2, 4, 8, 16, 32)}
grows = [target for target in BOTH if counted[32][target] > counted[8][target]]
guess.reveal(
    at_8=counted[8]["gfx942"],
    more=" and ".join(grows) or "none",
    because="stride 8 is 32 bytes from lane to lane: a sector for each lane of sm_80, "
    "and it stays so; a line of 128 for four lanes of gfx942, later for each.",
)
lesson.bars({
    f"stride {stride}": {
        target: count * lesson.TARGETS[target].segment / 256
        for target, count in counts.items()
    }
    for stride, counts in counted.items()
}, "bytes moved for each byte asked")  # fmt: skip

# %% [markdown] strides explained
# Up to stride 8 the bars are equal. There each lane of `sm_80` has a sector of its own, and it cannot get worse.
# `gfx942` goes on getting worse until stride 32, where 124 of 128 bytes are for nobody.
#
# ### Wider loads
#
# A lane can load 4, 8 or 16 bytes with one instruction: same bytes, same transactions, fewer instructions. Triton does
# so where each lane's values lie side by side *and* it can prove that they are aligned. Where it cannot, it writes
# narrow loads, one for each value. LLVM can join these again for AMD; for NVIDIA it must not:
#
# > **Facts: alignment**
# >
# > - A PTX load or store must be aligned to its size; vector accesses to the size of the whole vector. (source: PTX
# >   ISA, addresses as operands)
# > - AMD's hardware, as ROCm sets it up, allows unaligned accesses. (source: LLVM, [pull request
# >   110672](https://github.com/llvm/llvm-project/pull/110672), `unaligned-access-mode`)
#
# Now 64 threads read 4 floats each: thread `i` bytes `16 * i` to `16 * i + 15`. Then the same, one float further on.

# %% predict the offset
guess = predict(
    "02.offset",
    "Does the offset at least double the load transactions?",
    sm_80=lesson.yes_no("on sm_80"),
    gfx942=lesson.yes_no("on gfx942"),
)

# %% count the offset
gpus = {offset: read(offset=offset, each=4) for offset in (0, 1)}
counted = {f"offset {n}": lesson.counted(gpus[n], SECTORS) for n in gpus}
before, after = counted.values()
guess.reveal(
    sm_80=after["sm_80"] >= 2 * before["sm_80"],
    gfx942=after["gfx942"] >= 2 * before["gfx942"],
    because="PTX wants 16 bytes aligned to 16: four loads of 4. AMD joins them again.",
)
lesson.table(counted, first="load transactions")

# %% the loads with the offset
lesson.executed(gpus[1], "global load")

# %% [markdown] offset explained
# On `gfx942` it is one load of 16 bytes again, and its bytes lie on 9 lines where they filled 8. On `sm_80` each of the
# four narrow loads has 16 bytes from lane to lane and touches every sector again. (A first-level cache softens this.
# The counter tells you what to repair, not how many microseconds it costs.)
#
# ### Data in pairs
#
# Much data is interleaved: real and imaginary parts, two channels of sound, pairs that are turned (02.coalesce).
# Loading first all even and then all odd elements gives two loads with stride 2. Or one lane loads a whole pair:
# offsets may have two dimensions in Triton, here (BLOCK, 2), and `tl.sum(..., axis=1)` adds along the second.
# (`tl.split` takes the two apart, `tl.join` puts them together again; the lab needs them.)


# %% two ways to load pairs
@triton.jit
def evens_and_odds_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    pair = tl.arange(0, BLOCK)
    a, b = tl.load(x_ptr + 2 * pair), tl.load(x_ptr + 2 * pair + 1)
    tl.store(out_ptr + pair, a * a + b * b)


@triton.jit
def whole_pairs_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    pair = tl.arange(0, BLOCK)
    offsets = 2 * pair[:, None] + tl.arange(0, 2)[None, :]
    both = tl.load(x_ptr + offsets)
    tl.store(out_ptr + pair, tl.sum(both * both, axis=1))


# %% predict pairs
guess = predict(
    "02.pairs",
    "256 pairs of floats, 2,048 bytes. How many sectors do the loads touch on sm_80?",
    apart=lesson.number("evens and odds"),
    whole=lesson.number("whole pairs"),
)

# %% count pairs
x, out, counted = torch.randn(512), torch.zeros(256), {}
for kernel in (evens_and_odds_kernel, whole_pairs_kernel):
    gpus = lesson.launch_on(BOTH, kernel, (1,), x, out, threads=256, BLOCK=256)
    counted[kernel.__name__] = lesson.counted(gpus, SECTORS)
guess.reveal(
    apart=counted["evens_and_odds_kernel"]["sm_80"],
    whole=counted["whole_pairs_kernel"]["sm_80"],
    because="2,048 / 32 = 64 sectors; evens touch all of them, and so do odds.",
)
lesson.table(counted, first="load transactions")

# %% [markdown] pairs explained
# On `sm_80` half the sectors are asked for, and only who holds what has changed. On `gfx942` nothing changes, because
# LLVM saw that the two loads lie side by side and made one of them, a `buffer_load_dwordx2`. Do not count on it: the
# kernel with which 02.coalesce begins has masks, and there it does not.
#
# Draw any pattern you like. `lane if lane < 20 else None` switches lanes off; the sizes are those of each target.

# %% explore coalescing
explore("access", "lane * 2")

# %% [markdown] stop 1
# **What you have**: what a unit holds; what a wave pays for a branch and for a load, on either vendor. That is enough
# for 02.converge and 02.coalesce in the lab. A good place to stop.

# %% sitting 1
lesson.sitting("02", 1)

# %% [markdown] banks
# # Sitting 2: one unit
#
# ## 4. Banks: what one access to shared memory costs
#
# Shared memory (LDS) is not cut into segments but dealt out to *banks*, word by word: with 32 banks, word `w` (4 bytes)
# lies in bank `w % 32`. Each bank serves one word a cycle. So 32 lanes that want words of 32 different banks are served
# in one cycle, however scattered they are; 32 lanes that want 32 different words of *one* bank take 32 cycles. Lanes
# that want the *same word*, or parts of it, are served at once.
#
# Lanes are served in **groups**, in lane order: as many lanes as there are banks. A wavefront on 32 banks goes in two
# groups, lanes 0 to 31 and 32 to 63, which never wait for each other. **Count, for each bank, the different words that
# the group wants of it. The largest count is the cycles.** A group with no active lane takes none. **Conflicts** are
# the cycles above one for each group: that is what the counter `bank_conflicts` says.
#
# `gfx950` differs: a *read* of 4 bytes a lane goes to 64 banks, all 64 lanes in one group; a *write* sees 32 banks.
#
# <details><summary>Sources for banks</summary>
#
# > **Facts: banks**
# >
# > - 32 banks of 4 bytes on NVIDIA. (source: CUDA programming guide, writing CUDA kernels, shared memory)
# > - 32 on CDNA3 and, for one wave, on RDNA3 and RDNA4; 64 on gfx950. (source:
# >   [measurements on five chips](https://github.com/nod-ai/amd-shark-ai/blob/main/docs/empirical-lds/lds_summary.md))
# > - Words are read in two phases on gfx942, lanes 0 to 31 and 32 to 63, and in one phase on gfx950. (source: the same,
# >   amd-shark-ai docs/empirical-lds/lds_summary.md)
# > - Writes on gfx950 see 32 banks: of 8 bytes a lane measured, of other sizes after AMD's model. (source: HipKittens,
# >   analysis/paper_experiments/phases; rocRoller, LDSBankModel.cpp in ROCm/rocm-libraries)
# </details>
#
# (Accesses of 8 and 16 bytes go in other groups: `docs/facts.md`, Shared memory.)
#
# A column of a matrix with rows of 32 floats is stride 32: lane `i` reads word `32 * i`.

# %% predict banks
guess = predict(
    "02.banks",
    "64 threads, two warps or one wavefront, read word 32 * i each. Conflicts?",
    sm_80=lesson.number("sm_80"),
    gfx942=lesson.number("gfx942"),
    gfx950=lesson.number("gfx950"),
)

# %% count banks
BANKED = ("sm_80", "gfx942", "gfx950")


def conflicts(words):
    """A kernel reads the word of each thread from shared memory: its counter."""
    args = [torch.tensor(words, dtype=torch.int32), torch.zeros(64)]
    gpus = lesson.launch_cpp(BANKED, SOURCE["banks"], "look_up", 1, 64, args)
    return lesson.counted(gpus, "bank_conflicts")


strides = (1, 2, 3, 16, 32, 33)
found = {f"stride {n}": conflicts([n * i for i in range(64)]) for n in strides}
found["all read word 7"] = conflicts([7] * 64)
guess.reveal(
    sm_80=found["stride 32"]["sm_80"],
    gfx942=found["stride 32"]["gfx942"],
    gfx950=found["stride 32"]["gfx950"],
    because="all words of a group in one bank of 32; in two banks of 64.",
)
lesson.table(found, first="64 threads")

# %% [markdown] banks explained
# Odd strides are free: they share no factor with a power of two, so they visit every bank. Here is stride 2 as one wave
# is served; a column is a bank, a row (a pass) a cycle, a number the lane that gets its word.

# %% banks drawn
lesson.bank_figure("lane * 2", "sm_80", "gfx950")

# %% [markdown] the transpose
# ### The transpose: both rules in one kernel
#
# A transpose reads rows and writes columns. Directly, one of the two is not coalesced. Through a tile in shared memory
# both are, but then the *tile* is read by columns. Making its rows one word longer, 33 instead of 32, moves each row to
# the next bank: **padding**. A block has 32 x 8 threads, so a wavefront is two rows of 32 lanes: it reads two columns
# of the tile.

# %% read the transpose
print(SOURCE["transpose"])

# %% [markdown] a small padded tile
# The same on a small scale: a tile of 4 x 4 with one word more in each row, its words one after another in the banks.
# `rc` is row `r`, column `c`, and `--` the padding. On the left four banks serve one column at a time, as 32 banks do.
# On the right eight banks serve two columns at once, as `gfx950` does. Find column 0 on the left, then columns 0 and 1
# on the right: does any bank hold two of the words?
#
# ```text
# bank    0   1   2   3            bank    0   1   2   3   4   5   6   7
#        00  01  02  03                   00  01  02  03  --  10  11  12
#        --  10  11  12                   13  --  20  21  22  23  --  30
#        13  --  20  21                   31  32  33  --
#        22  23  --  30
#        31  32  33  --
# ```

# %% predict transpose
guess = predict(
    "02.transpose",
    "How many bytes do the stores of `direct` move on sm_80 for each byte of the "
    "result? Has the tile of 33 conflicts?",
    times=lesson.number("bytes for a byte, sm_80"),
    gfx942=lesson.yes_no("conflicts on gfx942"),
    gfx950=lesson.yes_no("conflicts on gfx950"),
)

# %% count transpose
x, out, rows = torch.randn(128, 128), torch.zeros(128, 128), {}
for kernel in ("direct", "tile_of_32", "tile_of_33"):
    shape, args = ((4, 4), (32, 8)), [x, out, 128]
    gpus = lesson.launch_cpp(BANKED, SOURCE["transpose"], kernel, *shape, args)
    for target, row in lesson.counts(gpus).items():
        rows[f"{kernel}, {target}"] = {
            "KiB stored": row["global_store_sectors"] * row["sector_bytes"] // 1024,
            "bank conflicts": row["bank_conflicts"],
        }
direct, tiled = (rows[f"{k}, sm_80"]["KiB stored"] for k in ("direct", "tile_of_33"))
guess.reveal(
    times=direct / tiled,
    gfx942=rows["tile_of_33, gfx942"]["bank conflicts"] > 0,
    gfx950=rows["tile_of_33, gfx950"]["bank conflicts"] > 0,
    because="32 bytes for each 4; on gfx950 two columns are read at once, and meet.",
)
lesson.table(rows, first="kernel")

# %% [markdown] transpose explained
# On `gfx942` `direct` stores 16 times the bytes, not 32 times: the two rows of a wavefront write neighbours, so 8 of a
# line's 128 bytes are used.
#
# The tile of 32 repairs the stores and pays with conflicts in every read. The tile of 33 has none, except on `gfx950`:
# one in each read of a wavefront, 256 in all. As `00` and `31` above, the first word of column 0 and the last of column
# 1, word 33 · 31 + 1 = 1,024, lie in the same bank of 64. Would rows of 34 words do?

# %% predict padding
guess = predict(
    "02.padding",
    "64 threads read two columns of a tile with rows of 34 words: thread i word "
    "34 * (i % 32) + i // 32. Conflicts?",
    gfx942=lesson.number("gfx942, two groups"),
    gfx950=lesson.number("gfx950, one group"),
)

# %% every padding
found = {}
for words in (32, 33, 34, 35, 36):
    found[words] = conflicts([words * (i % 32) + i // 32 for i in range(64)])
guess.reveal(
    gfx942=found[34]["gfx942"],
    gfx950=found[34]["gfx950"],
    because="34 mod 32 = 2: a column takes 16 of 32 banks, two words each. Of 64 banks "
    "the left column takes the even ones, the right one the odd.",
)
lesson.table(found, first="words of a row")

# %% [markdown] no padding for all
# On 32 banks a column is free when a row has an odd number of words. On `gfx950` two columns are free only when it has
# twice an odd number (34, 38): no one length of a row serves all chips.
#
# What is left is to keep rows of 32 words and to put the words of each row in **another order**. A row visits all banks
# in any order; the columns need care. Turning every second row round, for example, is not enough, here with four banks:
#
# ```text
# bank    0   1   2   3
#        00  01  02  03
#        13  12  11  10
#        20  21  22  23
#        33  32  31  30         column 0 lies in banks 0, 3, 0, 3
# ```
#
# Compilers call a layout that works a *swizzle*; unit 14 searches for them. You find one in the lab: 02.bank_conflicts
# judges a layout, 02.transpose needs one.
#
# Here is the read of the padded tile. Type other lengths of a row.

# %% explore banks
explore("access", "lane % 32 * 33 + lane // 32", memory="shared", amd="gfx950")

# %% [markdown] occupancy
# ## 5. Occupancy: how many waves fit
#
# **Occupancy** is the number of waves that are on a unit at a time, over the most that it can hold. Blocks come whole,
# so: how many *blocks* fit? Four resources decide, each alone, and the smallest wins:
#
# 1. **Wave slots** of the unit, divided by the waves of a block.
# 2. **Registers**: those of a lane are rounded up to what the hardware hands out, the *granule*. So many whole waves
#    fit on one part, four times as many on four parts; this, divided by the waves of a block.
# 3. **Shared memory** of a block, rounded up to its granule. On NVIDIA the system takes 1 KiB for itself in each block,
#    also in one that asks for none. On AMD a block that uses no LDS is not limited by it.
# 4. **Block slots**: NVIDIA has a fixed number on an SM. (AMD: barriers. A block of one wave needs none;
#    larger ones never run out of them before the wave slots.)
#
# A block that asks for more shared memory than one block may have does not fit at all.

# %% the limits in numbers
names = ("sm_80", "sm_90", "gfx942", "gfx950", "gfx1100")
lesson.table(
    {
        name: {
            "wave slots": t.waves_per_unit,
            "parts": t.simds,
            "registers of a part, for each lane": t.registers,
            "granule of registers": t.granule,
            "shared memory of the unit": t.shared_per_unit,
            "of a block, at most": t.shared_per_block,
            "granule": t.shared_granule,
            "taken by the system, a block": t.shared_reserved,
            "block slots": t.blocks_per_unit,
        }
        for name, t in ((name, lesson.TARGETS[name]) for name in names)
    },
    across=True,
    note="gfx1100: of a WGP. Block slots of AMD are barriers, which never limit.",
)

# %% [markdown] an example of occupancy
# **An example**: blocks of 8 warps on `sm_80`, with 100 registers a lane and 30,000 bytes.
#
# | resource | counted | blocks |
# |---|---|---|
# | wave slots | 64 // 8 | 8 |
# | registers | 100 → 104; 512 // 104 = 4 warps on a part, 16 on four, 16 // 8 | **2** |
# | shared memory | 30,000 + 1,024 = 31,024 → 31,104; 167,936 // 31,104 | 5 |
# | block slots | | 32 |
#
# So 2 blocks, 16 of 64 warps: an occupancy of 25%, limited by registers.

# %% [markdown] a kernel to measure
# Now a real kernel: a matrix product with tiles, which unit 05 makes fast. Each program computes a tile of `C`; it
# walks along `K` and multiplies strips of `A` and `B`.


# %% a matmul
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        a_mask, b_mask = (rows < M) & (k[None, :] < K), (k[:, None] < K) & (columns < N)
        a = tl.load(a_ptr + rows * K + k[None, :], mask=a_mask, other=0.0)
        b = tl.load(b_ptr + k[:, None] * N + columns, mask=b_mask, other=0.0)
        total = tl.dot(a, b, total)
    tl.store(
        c_ptr + rows * N + columns,
        total.to(tl.float16),
        mask=(rows < M) & (columns < N),
    )


def compiled(target, tile, num_warps=4, **options):
    sizes = (torch.float16, torch.float16, torch.float16, 4096, 4096, 4096)
    blocks = {"BLOCK_M": tile, "BLOCK_N": tile, "BLOCK_K": 32}
    options |= {"num_warps": num_warps, **blocks}
    return compile_for(matmul_kernel, target, sizes, **options)


needs = {name: lesson.resources(compiled(name, 64)) for name in ("sm_90", "gfx942")}
registers = {name: found.registers for name, found in needs.items()}
shared = {name: found.shared for name, found in needs.items()}
rows = {"registers of a lane": registers, "bytes of shared memory": shared}
lesson.table(rows, first="tile of 64 x 64, 4 waves")

# %% predict occupancy
guess = predict(
    "02.occupancy",
    "By both tables: how many blocks fit on one SM of sm_90, on one CU of gfx942?",
    sm_90=lesson.number("blocks on an SM"),
    gfx942=lesson.number("blocks on a CU"),
)

# %% occupancy by library
guess.reveal(
    sm_90=needs["sm_90"].occupancy.blocks,
    gfx942=needs["gfx942"].occupancy.blocks,
    because="each line below is one resource alone; > marks the smallest.",
)
for name, found in needs.items():
    print(name, found.occupancy.explain(), "", sep="\n")

# %% [markdown] reading occupancy
# The last line of each says what would let one block more in. The limits move in steps: on `gfx942` every count from 65
# to 72 registers gives 7 waves on a SIMD, and 73 gives 6. A saving between two steps is worth nothing, and so is one in
# a resource that does not limit. (Shared memory differs because Triton, if not told otherwise, keeps the strips of
# three steps along `K` there on `sm_90` and of one on `gfx942`, 8,192 bytes each; unit 05 chooses. `scalar registers`:
# few kernels need so many.)
#
# **A launch made for the chip.** Turn the sum round: if 12 blocks fit on a unit and the chip has 100 units, a kernel
# with 1,200 programs fills it exactly once. Each program then walks through the data: first tile `tl.program_id(0)`,
# then `tl.num_programs(0)` tiles further on, and again. No unit waits for a last, half-empty round. Such a launch
# compiles the kernel first and asks for its registers. (Lab: 02.occupancy, 02.sized_reduction.)
#
# ### What LLVM says
#
# LLVM writes its own verdict into the assembly of every AMD kernel: `; Occupancy:`, waves on a SIMD. Take the same
# product with tiles of 128 x 128, 8 waves, and strips of more steps in LDS: 63 registers, and 49,152 bytes. Triton asks
# for the LDS only at launch, as *dynamic* shared memory, like the third argument of a launch in CUDA.

# %% predict llvm
guess = predict(
    "02.llvm",
    "How many waves fit on a SIMD, and how many does LLVM print?",
    fits=lesson.number("waves that fit"),
    llvm=lesson.number("waves that LLVM prints"),
)

# %% read the comments
deep = compiled("gfx942", 128, num_warps=8, num_stages=4)
notes, found = lesson.compiler_notes(deep), lesson.resources(deep)
guess.reveal(
    fits=found.occupancy.waves // 4,
    llvm=notes["Occupancy"],
    because="LLVM sees none of the LDS, which is asked for at launch.",
)
print(found.occupancy.explain())
lesson.table({"bytes of LDS": {"LLVM": notes["LDSByteSize"], "launch": deep.shared}})

# %% [markdown] llvm explained
# One block of 8 waves, so two on each SIMD, where LLVM says 8: of LDS it counts what it sees, such as a `__shared__`
# array in C++, and not what Triton asks for at launch. Take the registers from the assembly and the LDS from
# `kernel.metadata.shared`; `lesson.resources` does.
#
# One thing is open. On gfx942 registers are handed out in 16s, says AMD's guide for the MI300X; in 8s, says LLVM. This
# course follows LLVM until an MI300X is asked.
#
# <details><summary>The evidence, and why it does not settle the matter</summary>
#
# The guide's example, a kernel with 170 registers, does not decide: 170 rounds to 176 either way, which is 2 waves.
# Only with 65 to 72 and with 161 to 168 do the rules differ. A kernel of 68 takes 72 by the one, so 7 waves fit on a
# SIMD, and 80 by the other, so 6. What LLVM says can be tried for any number:
#
# ```python
# from gpu_utils.compiler.holding import holding  # a kernel that needs so many registers
#
# lesson.compiler_notes(holding(68))["Occupancy"]
# ```
#
# It prints 7. On an MI300X `OccupancyPercent` of `rocprofv3` (unit 13) would tell how many of its waves really fit.
#
# The kernel descriptor, which tells the chip how many registers to hand out, counts in eights as well: of 68 it makes
# 72. (`gpu_utils.compiler.reading.kernel_descriptor(holding(68).binary).vgprs`.) But a field may count in eights and
# the hardware still round further up. `gfx1100` is such a case: with 97 registers its field says 104, and LLVM knows
# that the chip hands out 24 at a time, so 120.
#
# > **Facts: how registers are handed out on gfx942**
# >
# > - AMD's guide: in units of 16. (source: ROCm, [MI300X workload
# >   optimization](https://rocm.docs.amd.com/en/latest/how-to/rocm-for-ai/inference-optimization/workload.html),
# >   `waves_per_eu`)
# > - LLVM: in units of 8. (source: LLVM AMDGPUBaseInfo.cpp, getVGPRAllocGranule)
# > - The descriptor asks for 72 where a kernel has 68. (measured: LLVM of Triton 3.7.1, read as said above)
# </details>
#
# <details><summary>AGPRs, the other registers of CDNA</summary>
#
# CDNA has *accumulation* registers, AGPRs, for its matrix instructions. Since CDNA2 (gfx90a) they come out of the
# same file as the VGPRs; on the MI100 (gfx908) they were a file of their own. LLVM's `TotalNumVgprs` is what counts:
# the VGPRs, rounded up to a multiple of 4 if there are AGPRs, plus the AGPRs. So 66 VGPRs and 20 AGPRs are 68 + 20 =
# 88 registers, and 5 waves. (source: ROCm Compute Profiler docs/conceptual/pipeline-descriptions.rst; LLVM,
# AMDGPUBaseInfo.cpp)
# </details>
#
# **A rest.** Turn the sliders, get up for five minutes, then come back for the question whether occupancy matters.

# %% explore occupancy
explore("occupancy", compiled("sm_90", 64), compiled("gfx942", 64))

# %% [markdown] latency
# ## 6. Does it matter? Waves that hide latency
#
# While one wave waits for memory, the others on its SIMD can go on. Say a wave computes for 50 cycles between two
# loads, and a load takes 400 cycles to answer.

# %% predict waves
guess = predict(
    "02.latency",
    "How many such waves keep a SIMD busy all the time? And how busy is it with one?",
    needed=lesson.number("waves"),
    alone=lesson.number("busy with one wave", unit="%", factor=1.1),
)

# %% latency drawn
guess.reveal(
    needed=1 + 400 // 50,
    alone=100 * 50 / (50 + 400),
    because="while one waits 400 cycles, eight others compute 50 each.",
)
lesson.latency_figure(50, 400, 1, 8, 9)

# %% [markdown] little
# A part of an SM has 16 slots and can hold nine. A SIMD of gfx942 has 8, so it ends at 89%. More work between two loads
# is a way out: with 100 cycles five waves do. Occupancy and *work for each wave* do the same job.
#
# The chip as a whole obeys *Little's law*: to keep a memory busy that answers after a time, there must be
#
# $$ \text{bytes in flight} = \text{latency} \times \text{bandwidth} $$
#
# on the way. Each lane that waits contributes what it asked for: 4 bytes, or 16 with a wide load.
#
# The latency here is an **assumption**: 400 cycles, a round number that its source uses for V100, A100 and H100 alike.
# At 1,755 MHz that is 228 ns, and the cell takes it for both chips. An MI300X's Infinity Cache alone takes 218, so read
# the percentages as "at least".
#
# > **Facts: a latency to calculate with**
# >
# > - 400 cycles for global memory, and an H100 at 1,755 MHz. (source: [doi
# >   10.1016/j.ultsonch.2023.106546](https://pmc.ncbi.nlm.nih.gov/articles/PMC10448217/table/t0015), Table 3)
# > - MI300X: about 218 ns for its Infinity Cache; memory answers later. (source: Chips and Cheese,
# >   [Testing AMD's Giant MI300X](https://chipsandcheese.com/p/testing-amds-giant-mi300x))

# %% what the law needs
LATENCY = 400 / 1755e6  # seconds
rows = {}
for name in ("H100", "MI300X"):
    chip, t = CHIPS[name], CHIPS[name].limits
    rows[name] = {
        "TB/s": chip.bandwidth,
        "threads on the chip": chip.units.value * t.waves_per_unit * t.lanes,
        "KB in flight on the chip": round(LATENCY * chip.bandwidth * 1e9),
    }
lesson.table(rows, first="228 ns")

# %% predict in flight
guess = predict(
    "02.in_flight",
    "Which occupancy of an H100 has so many bytes on the way, with one load a lane?",
    narrow=lesson.number("loads of 4 bytes", unit="%", factor=1.2),
    wide=lesson.number("loads of 16 bytes", unit="%", factor=1.2),
)

# %% littles law
shares = {}
for name, row in rows.items():
    of_a_lane = 1000 * row["KB in flight on the chip"] / row["threads on the chip"]
    shares[name] = {
        f"% with {width} bytes a lane": round(100 * of_a_lane / width)
        for width in (4, 8, 16)
    }
guess.reveal(
    narrow=shares["H100"]["% with 4 bytes a lane"],
    wide=shares["H100"]["% with 16 bytes a lane"],
    because="bytes in flight, over threads on the chip times bytes of a lane.",
)
lesson.table(shares, first="occupancy needed")

# %% [markdown] force it
# So occupancy is one way to have bytes in flight, and wide loads are another: with twice the latency, 4 bytes a lane
# would need more than all of an H100.
#
# What does it cost to force occupancy? Triton's `waves_per_eu` asks LLVM for that many waves on a SIMD (an *execution
# unit*). If a kernel needs more registers than are then left for each wave, some *spill*: values are written to memory
# and read back. A tile of 128 x 128 with 4 waves takes 140 registers on `gfx942`, so 512 // 144 is 3 waves, and 16,384
# bytes of LDS.
#
# For example, we ask for 4 waves. Registers: 512 // 4 leaves 128 for each, fewer than 140, so some spill. LDS:
# 65,536 // 16,384 is 4 blocks of 4 waves, 16 on the CU, 4 on a SIMD. So 4 fit.

# %% predict force
guess = predict(
    "02.force",
    "We ask for 5 waves on a SIMD. Do registers spill? Do more waves fit than with 4?",
    spills=lesson.yes_no("registers spill"),
    more=lesson.yes_no("more waves fit"),
)

# %% force more waves
rows = {}
for asked in (0, 4, 5):
    options = {"options": {"waves_per_eu": asked}} if asked else {}
    found = lesson.resources(compiled("gfx942", 128, **options))
    rows[asked or "unset"] = {
        "registers": found.registers,
        "spilled bytes of a lane": found.scratch,
        "waves of 32": found.occupancy.waves,
        "limited by": " and ".join(found.occupancy.limited_by),
    }
guess.reveal(
    spills=rows[5]["spilled bytes of a lane"] > 0,
    more=rows[5]["waves of 32"] > rows[4]["waves of 32"],
    because="the fifth wave needs registers, and LDS has room for 16 waves a CU.",
)
lesson.table(rows, first="waves_per_eu")

# %% [markdown] occupancy is a means
# With 5, 364 bytes of each lane are spilled, and the fifth wave does not even fit: now LDS is the limit. The fourth
# costs 48 spilled bytes; whether it is worth them only a measurement can say. A kernel with large tiles lives with few
# waves: it loads 16 bytes a lane, several steps ahead, and has plenty to compute meanwhile.
#
# - **Occupancy matters** when waves wait on memory with little asked for at a time: gathers, short rows, reductions,
#   generating one token at a time.
# - **It does not** when the kernel keeps enough on the way by itself, or when it is already at the roof of the next
#   section.
#
# **What you have**: layouts without conflicts; how many blocks fit; when that matters. That is enough for
# 02.bank_conflicts, 02.transpose, 02.occupancy and 02.sized_reduction. A good place to stop.

# %% sitting 2
lesson.sitting("02", 2)

# %% [markdown] roofline
# # Sitting 3: the whole chip
#
# ## 7. The roofline: which of the two limits is yours
#
# Before you optimise a kernel, count its FLOPs (a multiply-add is two) and the bytes that it must move to and from
# memory. Their quotient is the **arithmetic intensity**, in FLOP per byte. A chip adds two figures: peak FLOP/s and
# bandwidth. A GPU computes while it loads, so at best
#
# $$ t = \max\left(\frac{\text{FLOPs}}{\text{peak}}, \frac{\text{bytes}}{\text{bandwidth}}\right) $$
#
# The two times are equal at the **ridge**, peak over bandwidth. Left of it memory decides, from it on arithmetic. (T is
# $10^{12}$ here, G is $10^9$: vendors' prefixes are decimal.)

# %% the two figures
FIVE = ("H100", "H200", "H20", "MI300X", "RX 7900 XTX")
peaks = {name: CHIPS[name].peak("bf16") for name in FIVE}
bandwidths = {name: CHIPS[name].bandwidth for name in FIVE}
rows = {"bf16 TFLOP/s": peaks, "TB/s": bandwidths}
lesson.table(rows, first="chip", note="dense, no sparsity; sources: docs/facts.md")

# %% predict ridge
guess = predict(
    "02.ridge",
    "Which of these needs most FLOP a byte to keep its units busy, and which least?",
    most=lesson.choice(*FIVE),
    least=lesson.choice(*FIVE),
)

# %% the ridges
ridges = {name: CHIPS[name].ridge("bf16") for name in FIVE}
guess.reveal(
    most=max(ridges, key=ridges.get),
    least=min(ridges, key=ridges.get),
    because="989 / 3.35 against 148 / 4: the H20 has bandwidth and little arithmetic.",
)
lesson.bars({name: round(at) for name, at in ridges.items()}, "FLOP per byte, ridge")

# %% [markdown] count by hand
# What is limited by arithmetic on one chip is limited by memory on the next.
#
# ### Count one operator by hand
#
# The first linear layer of GPT-2's MLP: $y = x W + b$ with $x$: $(n, d)$, $W$: $(d, 4d)$, for $n$ tokens at once, in
# bf16, $d = 768$.
#
# - FLOPs: $2 \cdot n \cdot d \cdot 4d$ (the bias is left out: it is small).
# - Bytes: read $x$, $W$ and $b$, write $y$, each once: $2\,(nd + 4d^2 + 4d + 4nd)$.
#
# In training with 8 sequences of 1,024 tokens $n$ is 8,192. When one sequence *decodes*, it makes one token at a time:
# $n = 1$.

# %% predict intensity
guess = predict(
    "02.intensity",
    "FLOP per byte of this layer?",
    training=lesson.number(factor=1.1),
    decoding=lesson.number(factor=1.1),
)

# %% intensity by hand
d, rows = 768, {}
for phase, n in {"training": 8192, "decoding": 1}.items():
    flops, moved = 2 * n * d * 4 * d, 2 * (n * d + d * 4 * d + 4 * d + n * 4 * d)
    intensity = round(flops / moved, 2)
    rows[phase] = {"FLOP": flops, "bytes": moved, "FLOP per byte": intensity}
guess.reveal(
    training=rows["training"]["FLOP per byte"],
    decoding=rows["decoding"]["FLOP per byte"],
    because="in decoding every weight is read for one token: two FLOP for two bytes.",
)
lesson.table(rows, first="phase")

# %% [markdown] all operators
# 1 FLOP a byte is far left of every ridge: that is the whole story of decoding. Now all operators of a forward pass,
# with fused attention (its scores are never written). The third column decodes for 64 sequences at once.

# %% predict the batch
guess = predict(
    "02.batch",
    "From batch 1 to batch 64: does the intensity grow?",
    linear=lesson.yes_no("of linear layers such as MLP up"),
    attention=lesson.yes_no("of attention"),
)

# %% operators of gpt2
gpt2 = lesson.GPT2Config.preset("gpt2")
PHASES = {
    "training, 8 x 1024": {"batch": 8, "tokens": 1024},
    "decoding, batch 1": {"batch": 1, "tokens": 1, "context": 1024},
    "decoding, batch 64": {"batch": 64, "tokens": 1, "context": 1024},
}
operators = {}
for phase, shape in PHASES.items():
    operators[phase] = {op.name: op for op in lesson.gpt2_operators(gpt2, **shape)}
one, many = operators["decoding, batch 1"], operators["decoding, batch 64"]
guess.reveal(
    linear=many["MLP up"].intensity > 2 * one["MLP up"].intensity,
    attention=many["attention"].intensity > 2 * one["attention"].intensity,
    because="64 sequences share the weights; each has keys and values of its own.",
)
lesson.table({
    name: {phase: round(op[name].intensity, 2) for phase, op in operators.items()}
    for name in one
}, first="FLOP per byte")  # fmt: skip

# %% [markdown] operators explained
# - **In training** the matrix products are right of the ridges of H100 (295) and MI300X (247). Norms and GELU, 8 and 9
#   FLOP a value, stay near 2 FLOP per byte and residuals far below, whatever the batch: fusing them is the only cure
#   (unit 04). Attention counts all scores here, also those that the causal mask hides: a kernel that skips them has
#   256, between the two ridges.
# - **In decoding** with a batch of one everything is memory-bound on both, by a factor of a hundred and more.
# - **A batch helps the linear layers and not attention.** At large batches and long contexts decoding is reading the
#   cache, and what shrinks the cache (section 9) makes it faster.
#
# ### Your own machine has a roof, too
#
# The same layer on whatever runs this notebook: a GPU in bf16, or one core of this CPU in float32. Twelve layers take
# turns, so that no weight is still in a cache when it is needed again. First the two roofs: only reading weights, and
# 64 tokens at once (on a GPU 8,192).

# %% two roofs of your machine
gpu = torch.cuda.is_available()
device, tokens = ("cuda", 8192) if gpu else ("cpu", 64)
dtype = torch.bfloat16 if gpu else torch.float32
threads = torch.get_num_threads()
torch.set_num_threads(1)  # one core: no waiting for a second one
layers = [torch.randn(768, 3072, device=device, dtype=dtype) for _ in range(12)]
weights = cycle(layers)


def gflops(n):
    x = torch.randn(n, 768, device=device, dtype=dtype)
    return 2 * n * 768 * 3072 / bench(lambda: x @ next(weights)).low / 1e9


read = layers[0].nbytes / bench(lambda: next(weights).sum()).low / 1e9
lesson.table({
    "bytes of a weight": layers[0].element_size(),
    "GB/s, reading": round(read, 1),
    f"GFLOP/s, {tokens} tokens": round(gflops(tokens), 1),
})  # fmt: skip

# %% predict your machine
guess = predict(
    "02.your_machine",
    "How many GFLOP/s does one token reach? Each weight is read once for it.",
    one=lesson.number("GFLOP/s of one token", factor=2),
)

# %% one token on your machine
one_token = gflops(1)
torch.set_num_threads(threads)
guess.reveal(
    one=one_token,
    because="two FLOP for each weight that is read: its time is the time of reading.",
)
lesson.table({
    "by the roofline": round(read * 2 / layers[0].element_size(), 1),
    "measured": round(one_token, 1),
}, first="GFLOP/s of one token")  # fmt: skip

# %% [markdown] your machine explained
# (The times are lower quartiles, because whatever else runs on the machine only adds. On a GPU launching so small a
# kernel can take longer than reading for it.) The operators of GPT-2 under the roofs of two chips; choose others:

# %% explore roofline
points = [
    lesson.Point(f"{phase}: {name}", (op := operators[phase][name]).flops, op.bytes)
    for phase in ("training, 8 x 1024", "decoding, batch 64")
    for name in ("norm", "qkv", "attention", "MLP up", "GELU")
]
explore("roofline", chips=["H100", "MI300X"], points=points, dtype="bf16")

# %% [markdown] tiles
# ## 8. Bytes of a tiled matrix product
#
# The intensity above assumed that each matrix is read *once*. No kernel does that. A tile of $C$ needs a strip of
# rows of $A$ and a strip of columns of $B$. All tiles in one row of tiles want the same rows of $A$; all in one column
# the same columns of $B$. `BLOCK_K` changes nothing: the strips are read whole, in however many steps.
#
# So with $M = N = K = 256$ in float16 and tiles of 128, two tiles want each row of $A$: 2 readings of $A$, 2 of $B$,
# 131,072 bytes each, 524,288 in all.

# %% predict tiles
guess = predict(
    "02.tiles",
    "The same product. How many bytes of A and B are read with smaller tiles?",
    of_64=lesson.number("tiles of 64 x 64"),
    of_32=lesson.number("tiles of 32 x 32"),
)

# %% count tiles
a, b, c = (torch.randn(256, 256).half() for _ in range(3))
rows = {}
for tile in (64, 32):
    blocks = {"BLOCK_M": tile, "BLOCK_N": tile, "BLOCK_K": 32}
    grid, args = (256 // tile, 256 // tile), (a, b, c, 256, 256, 256)
    gpus = lesson.launch_on(BOTH, matmul_kernel, grid, *args, **blocks)
    rows[tile] = lesson.counted(gpus, "global_load_bytes")
guess.reveal(
    of_64=rows[64]["sm_80"],
    of_32=rows[32]["sm_80"],
    because="4 and 8 readings of either matrix, 131,072 bytes each.",
)
lesson.table(rows, first="tile")

# %% [markdown] tiles explained
# Larger tiles, fewer readings, on both vendors alike: this is a property of the algorithm. The intensity of a tile of
# side $s$ in 16 bits is about $s / 2$: the tile is worth $2 s^2$ FLOP for each step along $K$, and loads $2 s$ values
# for it. To reach the ridge of an H100 by itself, near 300, a tile would need $s = 600$, and its sums alone, in
# float32, would take more than all registers of an SM. (Lab: 02.best_tile.)
#
# What saves us is the L2: a strip that several programs want comes from memory once. But whose L2? An H100 has one die.
# An MI300X is made of eight dies for computing (XCDs), each with an L2 of its own, and blocks are dealt out in turn:
# block 0 to die 0, block 1 to die 1, ..., block 8 to die 0 again. What an L2 misses goes to the Infinity Cache, which
# all dies share, and to memory only if it is not there either. (The L2 of an H100 is drawn and counted as one. It has
# two halves, and a hit in the far one takes longer.)

# %% the chips drawn
lesson.chip_figure("H100", "MI300X")

# %% [markdown] predict l2
# A product of 512 x 512 x 512 with tiles of 64: 8 readings of each matrix without a cache. Its grid is 8 x 8, and the
# row of tiles runs fastest: block 0 is row 0 of tiles, block 1 row 1, ..., block 8 row 0 again, one column further.
# So die 0 gets row 0 of every column. Each L2 can hold all that it is asked for.

# %% predict the l2
guess = predict(
    "02.l2",
    "How many times are A and B read past the L2s, on average of the two matrices?",
    one=lesson.number("one L2 for all"),
    eight=lesson.number("eight L2s"),
)

# %% through the l2
a, b, c = (torch.randn(512, 512).half() for _ in range(3))
readings = {}
for target in BOTH:
    with virtual_gpu(target, l2=True) as gpu:
        blocks = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}
        matmul_kernel[(8, 8)](a, b, c, 512, 512, 512, **blocks)
    l2 = lesson.L2_OF_TARGET[target]
    read = lesson.l2_traffic(gpu.last, cache=l2.sizes).read_bytes
    readings[l2.sizes.parts] = {"readings": read / (a.nbytes + b.nbytes)}
guess.reveal(
    one=readings[1]["readings"],
    eight=readings[8]["readings"],
    because="a die has one row of tiles, a strip of A; and every column, all of B.",
)
lesson.table(readings, first="number of L2s")

# %% [markdown] l2 explained
# One reading of A and eight of B: 4.5 on average. On an MI300X the Infinity Cache answers the repeats, so memory sees
# one reading of matrices as small as these. (The model knows sizes and dies and no time, and its caches are cold at the
# start: `docs/virtual-gpu.md`.)
#
# So *the order in which programs are numbered* is part of the algorithm. Unit 05 groups them.
#
# <details><summary>Sources for dies and L2</summary>
#
# > **Facts: dies and L2**
# >
# > - H100: one die of 814 mm². (source: Chips and Cheese, [Nvidia's H100: Funny L2, and Tons of
# >   Bandwidth](https://chipsandcheese.com/2023/07/02/nvidias-h100-funny-l2-and-tons-of-bandwidth/))
# > - MI300X: eight XCDs, each with 38 active CUs and an L2 of 4 MB. (source: ROCm, [MI300X workload
# >   optimization](https://rocm.docs.amd.com/en/latest/how-to/rocm-for-ai/inference-optimization/workload.html))
# > - MI300X: an Infinity Cache of 256 MB. (source: ROCm docs/reference/gpu-arch-specs.rst)
# > - Blocks are dealt to the XCDs in turn. (source: Modular docs, chiplet_transform_chunked)
# > - An H100's L2 is split into two halves of 25 MB, with a longer latency to the far one. (source: Chips and Cheese,
# >   [Testing AMD's Giant MI300X](https://chipsandcheese.com/p/testing-amds-giant-mi300x))
# > - An A100's L2 has two partitions; each caches what the SMs connected to it ask for, and data move between them.
# >   (source: NVIDIA developer forum, [answer that quotes the A100
# >   whitepaper](https://forums.developer.nvidia.com/t/meanings-of-l2-l2-copy/200725))
# </details>

# %% [markdown] memory
# ## 9. What fits: weights, cache, activations
#
# In training memory holds state, 16 bytes a parameter with AdamW as unit 01 counted, and activations. In inference it
# holds the weights, the **KV cache** of every sequence, and the activations of one step. The cache keeps, for each
# token and layer, what attention will ask for again:
#
# - **MHA**, multi-head: a key and a value of `head_dim` numbers for every head;
# - **GQA**, grouped-query: a key and a value for each *group* of query heads; **MQA**: one for all of them;
# - **MLA**, multi-head latent: one compressed vector for all heads, from which keys *and* values follow,
#   and beside it a short part of the key that carries the token's position.
#
# For example Llama-7B: 32 layers, 32 heads with a key and a value of 128 numbers each: 524,288 bytes a token in bf16.
# Mistral-7B is of the same shape but has 8 heads for keys and values (take it without the window of 4,096 tokens that
# its first version had). DeepSeek-V3 has 61 layers, 512 numbers of latent and 64 of position.

# %% predict cache
guess = predict(
    "02.cache",
    "Bytes of cache for one token, in bf16?",
    mistral=lesson.number("Mistral-7B"),
    deepseek=lesson.number("DeepSeek-V3"),
)

# %% cache by hand
guess.reveal(
    mistral=lesson.MODELS["Mistral-7B"].cache.total(1, 1),
    deepseek=lesson.MODELS["DeepSeek-V3"].cache.total(1, 1),
    because="32 x 2 x 8 x 128 x 2, and 61 x (512 + 64) x 2: one vector for both.",
)
lesson.table({
    model.name: {
        "parameters": model.parameters,
        "kind": model.cache.kind,
        "bytes a token": model.cache.total(1, 1),
        "source": model.source,
    }
    for model in lesson.MODELS.values()
}, first="model")  # fmt: skip

# %% [markdown] what fits
# DeepSeek-V3 is a hundred times as large as Llama-7B and keeps less than a seventh of its cache. Now the chips. Weights
# are paid once; what is left beside them is for sequences. We take the GB of a data sheet as $10^9$ bytes; the chips
# report some more.
#
# <details><summary>Sources for the bytes of a GB</summary>
#
# > **Facts: the bytes of a GB**
# >
# > - An H100 of 80 GB reports 81,559 MiB, so 85.52 GB of $10^9$ bytes. (source: [Why does an NVIDIA H100 80GB card
# >   offer 85.52 GB?](https://thundergolfer.com/blog/nvidia-gpu-memory-capacity))
# > - An MI300X of 192 GB reports 206,141,652,992 bytes. (source: [ROCm issue
# >   4750](https://github.com/ROCm/legacy-rocm-build/issues/4750))
# </details>
#
# Mistral-7B in bf16 has 14.5 GB of weights, and a sequence of 32,768 tokens takes 4.29 GB of cache. We leave out the
# activations.

# %% predict fits
guess = predict(
    "02.fits",
    "How many such sequences fit on an H100 (80 GB), and on an MI300X (192 GB)?",
    h100=lesson.number("H100"),
    mi300x=lesson.number("MI300X"),
)

# %% what fits where
mistral, rows = lesson.MODELS["Mistral-7B"], {}
sequence = mistral.cache.total(batch=1, context=32768)
for name in ("H100", "H200", "MI300X"):
    gb = CHIPS[name].memory_gb.value
    room = gb * 1e9 - 2 * mistral.parameters
    rows[name] = {
        "GB": gb,
        "GB beside the weights": round(room / 1e9, 1),
        "sequences": int(room // sequence),
    }
guess.reveal(
    h100=rows["H100"]["sequences"],
    mi300x=rows["MI300X"]["sequences"],
    because="(80 - 14.5) / 4.29 and (192 - 14.5) / 4.29, rounded down.",
)
lesson.table(rows, first="chip")

# %% [markdown] fits explained
# 2.4 times the memory holds 2.7 times the sequences: weights are paid once. (The explorer below, set to 32,768 tokens,
# says 14 and 40: it also counts 3.6 GB of activations, those of reading one prompt.)
#
# And how fast? One step of decoding makes one token for each sequence. A dense model reads all its weights once, and
# the cache of every sequence; with a full memory the step takes memory over bandwidth. Its FLOPs, about 2 for each
# parameter and sequence, count only if the batch is huge. So the batch makes the tokens a second. (Lab: 02.serve. Of a
# mixture of experts, such as DeepSeek-V3, a token uses a part of the weights only: unit 10.)

# %% explore memory
explore("memory")

# %% [markdown] claims
# ## 10. Claim and fact
#
# One hears that DeepSeek trained on crippled H100s, and that an H20 is a toy.

# %% the figures behind the claims
THREE = ("H100", "H800", "H20")
peaks = {name: CHIPS[name].peak("bf16") for name in THREE}
bandwidths = {name: CHIPS[name].bandwidth for name in THREE}
links = {name: CHIPS[name].link_gb.value for name in THREE}
rows = {"bf16 TFLOP/s": peaks, "TB/s": bandwidths, "GB/s of NVLink": links}
note = "sources: docs/facts.md; 989.4 and 989.5 are from two of them"
lesson.table(rows, first="chip", note=note)

# %% predict the claims
guess = predict(
    "02.h20",
    "By the roofline: how many times as long as on an H100 does `MLP up` of section 7 "
    "take on an H20: in training (571 FLOP a byte), in decoding one sequence (1), and "
    "64 of them (58)?",
    training=lesson.number("training", factor=1.1),
    one=lesson.number("decoding one sequence", factor=1.1),
    many=lesson.number("decoding 64", factor=1.1),
)

# %% an h20 against an h100
times = {}
for phase in PHASES:
    op = operators[phase]["MLP up"]
    point = lesson.Point(phase, op.flops, op.bytes)
    times[phase] = {name: lesson.roofline(name).seconds(point) for name in THREE}
slower = {phase: row["H20"] / row["H100"] for phase, row in times.items()}
guess.reveal(
    training=slower["training, 8 x 1024"],
    one=slower["decoding, batch 1"],
    many=slower["decoding, batch 64"],
    because="989 / 148 where arithmetic decides on both, 3.35 / 4 where memory does; "
    "58 lies between their ridges, 37 and 295: 58 / 148 against 1 / 3.35.",
)
lesson.table({
    phase: {f"us on {name}": round(1e6 * found, 1) for name, found in row.items()}
    for phase, row in times.items()
}, first="MLP up")  # fmt: skip

# %% [markdown] the boxes
# > **Claim and fact: "DeepSeek trained on crippled H100s"**
# >
# > *The claim*: the H800 is a slow H100, so DeepSeek's results came from weak chips. *The figures*:
# >
# > - The H800 has 132 SMs, as many as an H100. (source: DeepSeek-V3 report, arXiv 2412.19437)
# > - Its peak in bf16 is 989.5 TFLOP/s, and its memory has 3.35 TB/s: an H100's. (source: feifeibear/LLMRoofline
# >   hardware_dict.py)
# > - What was cut is the link between GPUs: 400 GB/s of NVLink against 900. (source: tumgag.com, NVIDIA H800 vs
# >   H100, read as an excerpt)
# > - The H20 is the other way round: 4.0 TB/s, but 148 TFLOP/s in bf16. (source: feifeibear/LLMRoofline
# >   hardware_dict.py)
#
# So a matrix product runs on an H800 as on an H100, and what changes is communication (units 11 and 12). On an H20
# training is slow. Decoding is faster than on an H100 while its intensity stays below 148 / 3.35 = 44: attention in
# which each head or a few have a cache of their own (GPT-2: 1, Mistral: 4), the linear layers up to some 47 sequences.
# Not MLA. There the cached vector need not be turned into keys and values again: the matrices that would do it are
# multiplied into those of query and output ([DeepSeek-V2](https://arxiv.org/abs/2405.04434)). So each of
# DeepSeek-V3's 128 heads compares a query of 512 + 64 numbers with the cached 576, and adds up the 512 of the latent:
# 2 · 128 · (576 + 512) FLOP for 2 · 576 bytes, 242 FLOP a byte, and 5.5 times as long as on an H100.
#
# > **Claim and fact: "MI300X has unified CPU and GPU memory"**
# >
# > *The claim* mixes up two products. *The facts*:
# >
# > - The MI300X is a discrete accelerator with 192 GB of its own. (source: ROCm docs/conceptual/gpu-arch/mi300.md and
# >   docs/reference/gpu-arch-specs.rst)
# > - One memory for CPU and GPU is what the MI300A has, which is another product. (source: ROCm
# >   docs/conceptual/gpu-arch/mi300.md)
#
# So on an MI300X `tensor.cpu()` is a copy over PCIe, as on an H100 in a server.

# %% [markdown] summary
# ## Summary
#
# | | NVIDIA | AMD CDNA | AMD RDNA |
# |---|---|---|---|
# | lanes of a wave | 32 | 64, on SIMDs of 16 | 32; 64 if a compiler is told to |
# | lanes are switched off by | predicates; branches that meet at `BSYNC` | `EXEC`, written out | `EXEC`, written out |
# | bytes of a transaction, as counted here | 32 | 64 (gfx90a), 128 | 128 |
# | banks of shared memory | 32 | 32; gfx950: 64 for reads of 4 bytes a lane | 32 |
# | registers of a part for each lane, granule | 512, 8 | 512, 8 (a guide says 16) | 1,536, 24 (gfx1100, gfx1201) |
#
# - A wave pays for every side that one of its lanes takes; let the active lanes stand together.
# - One load costs as many transactions as it touches aligned segments; a group's access to shared memory as many cycles
#   as it wants different words of the busiest bank.
# - Occupancy: of slots, registers, shared memory and block slots the smallest wins. It is a means to hide latency; wide
#   loads and work for each wave are others.
# - Intensity against ridge decides whether memory or arithmetic limits. Decoding one sequence has about 1 FLOP per
#   byte; a batch of n has about n in the linear layers, and still 1 in GPT-2's attention (4 in Mistral's, 242 in MLA).
# - Larger tiles read A and B less often; the L2 repairs the rest, if it is one L2.
# - Weights are paid once; the cache is paid per token, and GQA and MLA shrink it.
#
# <details><summary><b>Check yourself</b>: a block of 256 threads; thread <code>t</code> takes the long side (40
# instructions) when <code>t % 64 &lt; 32</code>, else the short one (10). How many instructions of the sides are issued
# on sm_90, and on gfx942?</summary>
#
# sm_90: 8 warps, four take each side: 4 × 40 + 4 × 10 = 200, no lane lost. gfx942: 4 wavefronts, all mixed:
# 4 × 50 = 200, half of the lane slots lost.
# </details>
#
# <details><summary>A warp reads float64 values side by side, starting 8 bytes after an aligned address. Transactions on
# sm_80?</summary>
#
# 256 bytes from byte 8 to 263: segments 0 to 8 of 32 bytes: 9.
# </details>
#
# <details><summary>A kernel for gfx942 has 100 registers, 4 waves a block and 20,000 bytes of LDS. How many waves are
# on a CU?</summary>
#
# 100 → 104; 512 // 104 = 4 waves a SIMD, 4 blocks. LDS: 20,000 → 20,480; 65,536 // 20,480 = 3 blocks. So 3 blocks, 12
# of 32 waves, limited by LDS. LLVM's comment says Occupancy 4 for a Triton kernel; of a static array it knows, and says
# 3.
# </details>
#
# <details><summary>Does a chip with twice the FLOP/s and the same bandwidth decode faster?</summary>
#
# With a small batch no: intensity is near 1 and memory decides. With 512 the linear layers come near the ridge and may
# profit; attention still reads every cache, at 1 FLOP per byte if each head has its own.
# </details>
#
# <details><summary><b>Read next</b></summary>
#
# - [CUDA C++ programming guide](https://docs.nvidia.com/cuda/cuda-c-programming-guide/): compute capabilities, shared
#   memory; [best practices](https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/): coalescing, occupancy.
# - [Nsight Compute profiling guide](https://docs.nvidia.com/nsight-compute/ProfilingGuide/): what sectors and bank
#   conflicts are to a profiler.
# - [HIP performance guidelines](https://rocm.docs.amd.com/projects/HIP/en/latest/how-to/performance_guidelines.html)
#   and [MI300X workload
#   optimization](https://rocm.docs.amd.com/en/latest/how-to/rocm-for-ai/inference-optimization/workload.html).
# - [LLVM, user guide for AMDGPU](https://llvm.org/docs/AMDGPUUsage.html): kernel descriptor, registers.
# - [Roofline: an insightful visual performance model](https://doi.org/10.1145/1498765.1498785).
# - [GQA](https://arxiv.org/abs/2305.13245), [DeepSeek-V2](https://arxiv.org/abs/2405.04434) for MLA.
# </details>
#
# Now open [lab 02](../labs/02_gpu_machine.ipynb): eight exercises, four of them kernels.

# %% sitting 3
lesson.sitting("02", 3)
