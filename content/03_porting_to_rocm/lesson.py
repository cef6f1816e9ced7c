# %% [markdown] top
# # 03 From CUDA to ROCm
#
# **Afterwards you can** take a CUDA kernel to a chip with wavefronts of 64 lanes and find the lane that gets lost; read
# what hipify did and what it left; choose tiles, stages, precisions and FP8 types that work on both vendors in Triton;
# set up a node with eight AMD GPUs on paper; port a training script and show that it still trains the same model; and
# read a failure log from the right end.
#
# **You need** lessons 00 to 02. No GPU, no CUDA, no ROCm. Nothing in this course has run on AMD silicon: code is
# *compiled for* a chip, and *executed on a virtual GPU*. The C++ of this lesson is compiled by clang from the optional
# extra `hip` (`W2W_EXTRAS=hip ./w2w study`, about 411 MB). Without it you get stored listings of the same files, and
# every cell still runs; you only cannot change the C++.
#
# **Time**: 80 minutes to read, about a minute for the cells to run, on a CPU as on a GPU. Then lab 03, which has the
# rest of the work.
#
# Where a cell says `my_guess = None`, write your guess before you run the next one.

# %% imports
import difflib
import re
import subprocess
import sys
import warnings
from collections import Counter
from dataclasses import replace
from unittest.mock import patch

import matplotlib.pyplot as plt
import torch
import triton
import triton.language as tl
from IPython.display import Code, display
from triton.runtime.errors import OutOfResources

from gpu_utils import compile_for, virtual_gpu
from gpu_utils.lesson import (
    TARGETS,
    CompileFailed,
    DiffFigure,
    RecordError,
    TrainConfig,
    W2WError,
    WaveFigure,
    agreement,
    compile_cpp,
    cuda_project,
    hipify,
    latest_record,
    leftovers,
    parity,
    resources,
    train,
    unit_folder,
    visible,
)

torch.manual_seed(0)
UNIT = unit_folder("03")  # the C++ that this lesson shows

# %% [markdown] one source
# ## 1. One source, two widths
#
# HIP, AMD's language for kernels, is CUDA C++ with another compiler behind it: `__global__`, `threadIdx`,
# `__shared__`, `__syncthreads()`, `atomicAdd` are all there under the same names. So the first step of a port is often
# no step: the file compiles as it is. The question is whether it is still right.
#
# Here is a kernel that every CUDA engineer has written. A block of 256 threads sums a row of 256 numbers: five shuffles
# bring the sum of a warp to its first lane, and that lane adds it to the result. (The shuffles are those of CUDA before
# Volta, without `_sync` and its mask. The mask is a trap of its own; we come to it at the end of the section.)

# %% read the kernel
KERNELS = UNIT / "kernels"


def source(name):
    return (KERNELS / name).read_text()


Code(source("row_sum_32.cu"), language="cpp")

# %% [markdown] predict the sum
# `__shfl_down(sum, 16)` gives each lane the `sum` of the lane 16 further up, so after offsets 16, 8, 4, 2, 1 lane 0
# holds the sum of 32 lanes. `warpSize` is 32 on every NVIDIA GPU and on RDNA (`gfx1100`), and 64 on CDNA (`gfx942`,
# MI300X).
#
# **Predict.** Every number in the row is 1. What is the sum on `sm_80`, on `gfx942`, on `gfx1100`?

# %% guess the sum
my_guess = None  # (on sm_80, on gfx942, on gfx1100)

# %% the sum on three targets
THREE = ("sm_80", "gfx942", "gfx1100")


def run(name, kernel, target, args, grid=1, block=256):
    """Compile a file of kernels/ for a target and launch one of its kernels on that virtual GPU."""
    with virtual_gpu(target) as gpu:
        gpu.load(compile_cpp(source(name), target)).launch(kernel, grid, block, args)


print(f"your guess: {my_guess}")
for target in THREE:
    out = torch.zeros(1)
    run("row_sum_32.cu", "row_sum", target, [torch.ones(256), out])
    print(f"{target:8} {TARGETS[target].lanes} lanes: the sum is {out.item():g}")

# %% [markdown] half is gone
# Half of the row is gone on `gfx942`. No error, no warning.
# `gfx1100` is AMD as well, and right. **The width follows the chip, not the vendor**, so "it works on my Radeon" says
# nothing about an MI300X.
#
# ### Find the lane
#
# Which half? With data of your own you would stare at a wrong float. Ask the kernel instead: give it 256 rows, where
# row $i$ is zero except for a 1 in place $i$. Then `out[i]` says whether element $i$ **reaches the sum**. That is the
# identity matrix, and it works for every reduction, on a real GPU, too.


# %% which elements reach the sum
def reach(name, target):
    """For each of 256 elements: how often it is counted in the sum."""
    out = torch.zeros(256)
    run(name, "row_sum", target, [torch.eye(256), out], grid=256)
    return out


for target in THREE:
    marks = "".join("·■"[int(n)] for n in reach("row_sum_32.cu", target))
    print(f"{target:8} elements 0 to 63:  {marks[:32]} {marks[32:64]}")

# %% [markdown] the pattern
# A filled square is an element that counts. The missing ones are lanes 32 to 63 of every wavefront: the upper half.
# Once you know the pattern you know the line: a loop that starts at 16 cannot reach across 32 lanes.
#
# Step through it to see it happen. The trace is the first wavefront, for a row of ones; the figure opens at the first
# addition. Go on with the arrow keys and watch `v1`, which holds `sum`: 2, 4, 8, 16, and in the last step
# 32 where 64 should be. Then `s_and_saveexec_b64` switches off all lanes but one: only lane 0 of 64 has
# `threadIdx.x % warpSize == 0`. So lane 32, which holds the other half, is never asked.

# %% step through the loss
with virtual_gpu("gfx942") as gpu, gpu.trace() as trace:
    module = gpu.load(compile_cpp(source("row_sum_32.cu"), "gfx942"))
    module.launch("row_sum", 1, 256, [torch.ones(256), torch.zeros(1)])
first_addition = next(number for number, step in enumerate(trace.steps) if step.text.startswith("v_add_f32"))
WaveFigure(trace, "gfx942", start=first_addition)

# %% [markdown] three repairs
# You see two kinds of code in one kernel: a loop for 32 lanes, and a test for `warpSize` lanes. Either alone would be
# consistent. Here are two candidates:
#
# - `row_sum.cu` starts the loop at `warpSize / 2`;
# - `row_sum_segments.cu` stays with 32 everywhere: shuffles in segments of 32 lanes (the third argument of
#   `__shfl_down` is the width of a segment), and every 32nd thread adds.
#
# **Predict.** Which of the two are right on all three targets?

# %% guess the repairs
my_guess = None  # "both", "row_sum", "row_sum_segments"


# %% both repairs
def show_diff(before, after):
    display(DiffFigure(source(before), source(after), f"{before} -> {after}", around=0))


print(f"your guess: {my_guess}")
for name in ("row_sum.cu", "row_sum_segments.cu"):
    show_diff("row_sum_32.cu", name)
    print({target: int(reach(name, target).sum()) for target in THREE}, "of 256 elements\n")

# %% [markdown] mixing
# Both. So a 32 in the code is not the fault. **Mixing** is: one line that means 32 and another that means `warpSize`.
# The first repair does six steps and one atomic for 64 lanes, the second five steps and two atomics. In your own code
# prefer `warpSize`; in foreign code look for both kinds and make them agree.
#
# ### A vote in 32 bits
#
# `__ballot(condition)` gives every lane the votes of all lanes, one bit each. On AMD that is a 64-bit number, on
# every chip. This kernel keeps it where CUDA code keeps it, in an `unsigned`:

# %% the ballot kernel
Code(source("outliers_32.cu"), language="cpp")

# %% [markdown] predict the votes
# Block of 64 threads. Elements 36, 40 and 50 exceed 2.
#
# **Predict.** What should `many` and `first` be for the only wavefront of `gfx942`, and what does this kernel say?

# %% guess the votes
my_guess = None  # ((many, first) as it should be, as it is)

# %% the votes
x = torch.zeros(64)
x[[36, 40, 50]] = 9.0
print(f"your guess: {my_guess}")
for name in ("outliers_32.cu", "outliers.cu"):
    for target in THREE:
        waves = 64 // TARGETS[target].lanes
        many, first = (torch.full((waves,), -9, dtype=torch.int32) for _ in range(2))
        run(name, "outliers", target, [x, many, first], block=64)
        print(f"{name:16} {target:8} many {many.tolist()!s:8} first {first.tolist()}")
show_diff("outliers_32.cu", "outliers.cu")

# %% [markdown] votes explained
# The compiler cuts 64 bits down to 32 without a word, and the votes of lanes 32 to 63 are lost. In 64 bits everything
# has another name or another letter:
#
# | for 32 lanes | for both widths |
# |---|---|
# | `unsigned votes = __ballot(p)` | `unsigned long long votes = __ballot(p)` |
# | `__popc(votes)`, `__ffs(votes)` | `__popcll(votes)`, `__ffsll(votes)` |
# | `(1u << lane) - 1`: a mask of the lanes before mine | `(1ull << lane) - 1` |
# | `0xffffffff`: all lanes | `~0ull` |
#
# The third row bites twice: `1u << 40` is not just too small, it has no defined value in C++. With the mask of the
# lanes before mine, `popcount(votes & mask)` is *my place among those who voted yes*: this is how a kernel packs the
# elements it keeps without atomics. You write that in the lab.
#
# The right-hand column is right on NVIDIA, too: there the upper 32 bits are zero.
#
# ### `threadIdx.x & 31`
#
# A prefix sum by shuffles: each lane adds what the lane `offset` below holds, if there is one. So the kernel asks for
# its lane, and asks in the wrong way.

# %% the prefix kernel
Code(source("prefix_31.cu"), language="cpp")

# %% [markdown] predict the prefix
# **Predict.** The 64 inputs are ones. Which number is `out[32]` on `gfx942`, and which should it be?

# %% guess the prefix
my_guess = None  # (as it is, as it should be)

# %% the prefix sums
print(f"your guess: {my_guess}")
for name in ("prefix_31.cu", "prefix.cu"):
    for target in ("sm_80", "gfx942"):
        out = torch.zeros(64)
        run(name, "prefix", target, [torch.ones(64), out], block=64)
        print(f"{name:12} {target:8} out[30:36] = {out[30:36].int().tolist()}   out[63] = {out[63].item():g}")
show_diff("prefix_31.cu", "prefix.cu")

# %% [markdown] prefix explained
# With `& 31` lane 32 believes that it is lane 0, and in the step `offset = 32` nobody adds: `lane >= 32` is never true.
# The lane is the thread's number modulo `warpSize`, and the wave is the quotient.
#
# "The thread's number" needs care when a block has more than one dimension. The hardware counts `x` fastest, then `y`,
# then `z`, and cuts waves from that order:
#
# $$ number = x + \text{blockDim.x} \cdot (y + \text{blockDim.y} \cdot z), \qquad
# lane = number \bmod \text{warpSize}, \qquad wave = \lfloor number / \text{warpSize} \rfloor $$
#
# In a block of 16 x 4 threads, `threadIdx.x % warpSize` is 0 to 15 in every row, and right in the first row only, on
# either vendor. And the number of waves is rounded *up*: 96 threads are three warps, or one wavefront and a half.
#
# ### A hard-coded number of warps
#
# The last of the four mistakes sits in shared memory. Each wave leaves its maximum in `partial`, and thread 0 goes
# through eight of them, because 256 threads are eight warps.

# %% the kernel with eight warps
Code(source("warp_count_32.cu"), language="cpp")

# %% [markdown] predict the count
# **Predict.** Four wavefronts write four of eight places. What does a GPU give you, and what does the virtual GPU say?
# And a kernel that was written on an MI300X, with `partial[4]`: what does it do on an A100?

# %% guess the count
my_guess = None

# %% eight and four
rows = torch.rand(3, 256)
for name in ("warp_count_32.cu", "warp_count_64.cu", "warp_count.cu"):
    for target in THREE:
        out = torch.zeros(3)
        try:
            run(name, "row_max", target, [rows, out], grid=3)
            print(f"{name:17} {target:8} right: {torch.equal(out, rows.amax(1))}")
        except W2WError as problem:
            print(f"{name:17} {target:8} {type(problem).__name__}: {problem}")

# %% [markdown] count explained
# `UninitialisedShared`: on a real chip the four places that nobody wrote hold what the block before left there. With
# luck that is smaller than your maximum, and the test passes. The other direction is worse: `OutOfBounds` is a store
# past the array, into the next variable in shared memory. The mistake has no vendor.
#
# The repair has two halves. The array has room for the *narrowest* wave, 32 lanes, because its size must be known when
# the kernel is compiled. The loop runs to the *real* number of waves, known when it runs.

# %% room for the narrowest wave
show_diff("warp_count_32.cu", "warp_count.cu")

# %% [markdown] not constant
# Why not `partial[256 / warpSize]`? And what of shuffles with a mask? Ask the compiler.


# %% two refusals
def compiles(name, target):
    try:
        compile_cpp(source(name), target)
    except CompileFailed as problem:
        return str(problem)
    return "compiles"


for name in ("warp_size_constant.cu", "mask_32.cu", "mask_64.cu"):
    display(Code(next(line for line in source(name).splitlines() if "__shared__" in line or "_sync" in line)))
    for target in THREE:
        print(f"{target:8} {compiles(name, target)}")

# %% [markdown] facts of widths
# Both refusals are good news: they stop you, where the four mistakes above went through in silence. So write
# `__shfl_down_sync(__activemask(), sum, offset)` where all lanes of the wave come: the mask has the type that each
# vendor wants, and names the lanes that are there. `~0ull` compiles everywhere, too; on AMD it stops a wave that is
# not full, or a branch that only some lanes take.
#
# > **Facts: widths and masks in ROCm**
# >
# > - `warpSize` is no constant expression any more since ROCm 7, and the host cannot use it at all, because one host
# >   program serves chips of both widths. (source: [pytorch #156979](https://github.com/pytorch/pytorch/pull/156979),
# >   [vllm #20330](https://github.com/vllm-project/vllm/pull/20330))
# > - `__shfl_*_sync`, `__ballot_sync` and their like take a mask of 64 bits on AMD, also where a wave has 32 lanes; the
# >   upper half is ignored there. A 32-bit mask fails a `static_assert`. `~0ull` compiles on both vendors. (source:
# >   [ROCm/hip #3667](https://github.com/ROCm/hip/issues/3667), [cupy #9977](https://github.com/cupy/cupy/pull/9977))
# > - The lanes that a mask names must be exactly those that call with it: ROCm's header asserts that
# >   (`MASK == __ballot(true)`) and traps unless `NDEBUG` is defined; `__ballot_sync` returns the ballot and the mask.
# >   (source: [ROCm/rocm-systems](https://github.com/ROCm/rocm-systems), projects/clr/hipamd/include/hip/amd_detail/
# >   amd_warp_sync_functions.h)
# > - These functions came with ROCm 6.2, switched on by `HIP_ENABLE_WARP_SYNC_BUILTINS`; since ROCm 7.0 they are on,
# >   unless `HIP_DISABLE_WARP_SYNC_BUILTINS` is defined. (source: ROCm/clr at rocm-6.2.2, the same header;
# >   [HIP C++ language extensions](https://rocm.docs.amd.com/projects/HIP/en/latest/how-to/hip_cpp_language_extensions.html))
# > - The shuffles without `_sync` are gone from CUDA for compute capability 7.x and higher; HIP still has them.
# >   (source: CUDA C++ programming guide, warp shuffle functions;
# >   [HIP C++ language extensions](https://rocm.docs.amd.com/projects/HIP/en/latest/how-to/hip_cpp_language_extensions.html))
# > - Published benchmarks that were ported to HIP had the same mistakes: ballots in `int`, lanes modulo 32, `__popc`.
# >   One of them hung, others refuse to start unless a wave has 32 lanes. (source:
# >   [HeCBench #177](https://github.com/ORNL/HeCBench/issues/177),
# >   [HeCBench #167](https://github.com/ORNL/HeCBench/issues/167))
# > - The lesson's kernels compile with a header of the course that reproduces these rules; they were executed on
# >   virtual GPUs. (measured: clang 22 of ziglang 0.17.0, the cells above)
#
# A search through foreign code is short. Look for `32`, `31`, `>> 5`, `0xffffffff`, `1u <<`, `__popc(`, `WARP_SIZE`,
# and at each place ask: *does this line mean the number 32, or all lanes of a wave?* (A bit mask in an `int` may well
# mean 32.)

# %% [markdown] hipify
# ## 2. hipify: what a machine translates, and what it leaves
#
# The kernels were only half of a CUDA project. The other half talks to libraries: `cudaMalloc`, streams, cuBLAS,
# NCCL, NVTX. HIP has nearly all of it under other names: `hipMalloc`, hipBLAS, RCCL, roctx. Renaming is work for a
# machine, and PyTorch carries one: **hipify**. It runs whenever a CUDA extension is built on ROCm (`BuildExtension`
# calls it), and it needs no GPU. It is a list of names and a few patterns; it does not compile, and does not
# understand the code.

# %% the list of names
from torch.utils.hipify.cuda_to_hip_mappings import CUDA_TO_HIP_MAPPINGS

known = {name for names in CUDA_TO_HIP_MAPPINGS for name in names}
print(f"{sum(map(len, CUDA_TO_HIP_MAPPINGS))} entries in {len(CUDA_TO_HIP_MAPPINGS)} lists")
for name in ("cudaMallocAsync", "ncclAllReduce", "cuda_bf16.h", "cuda_fp8.h", "__shfl_sync", "cudaLaunchKernelEx"):
    print(f"{name:20} {'is in the list' if name in known else 'is not'}")

# %% [markdown] the project
# Not being in the list can be right: RCCL kept the names of NCCL, so `ncclAllReduce` needs no entry, and `__shfl_sync`
# exists in HIP. Or it can be a hole. The list does not say which.
#
# The project under `gpu_utils/exercises/u03_porting_to_rocm/project/` is a small PyTorch extension as one finds them in
# the wild: a fused RMSNorm that quantises to FP8, a counter of clipped values, GELU; with streams and events, cuBLAS,
# NCCL and NVTX.
#
# **Predict.** How many of its files does hipify change? And how many calls will it say that it could not translate?

# %% guess hipify
my_guess = None  # (files changed, calls reported as unsupported)

# %% run hipify
files = cuda_project()  # path -> text
result = hipify(files)  # torch.utils.hipify on a copy, with the settings of BuildExtension

print(f"your guess: {my_guess}")
print(f"kernel launches rewritten: {result.replaced}; calls reported as unsupported: {result.unsupported}\n")
print(f"{'in the CUDA project':22} {'after hipify':24} lines changed")
for after, before in result.origin.items():
    diff = difflib.ndiff(files[before].splitlines(), result.files[after].splitlines())
    changed = sum(line.startswith("+ ") for line in diff)
    print(f"{before:22} {after:24} {changed or '-'}")

# %% [markdown] translated
# Zero unsupported calls. Keep that number in mind; its own source calls the count broken, and it is always 0.
#
# A `.cu` becomes a `.hip`, other files that change get `_hip` in their name, and every `#include` of them is adapted.
# Look at what it does well: the runtime, the streams, a launch.

# %% what was translated


def hipified(path, around=0):
    before = result.origin[path]
    return DiffFigure(files[before], result.files[path], f"{before} -> {path}", around)


hipified("csrc/launch.hip", around=1)

# %% [markdown] look closely
# **Look closely** before you go on. Which lines near the top of this file should have changed, and did not? (Open
# `project/csrc/launch.cu` beside it.) What does `std::min` become? And one more, in the binding:

# %% what was broken
hipified("csrc/binding_hip.cpp")

# %% [markdown] broken
# - `cudaLaunchKernelEx` with its attributes, the way to launch with options since Hopper, is still there, untouched.
# - `nvtx3/nvToolsExt.h` became `nvtx3/roctracer/roctx.h`: the list has an entry for `nvToolsExt.h`, and the machine
#   replaced these characters in the middle of a path. No toolkit has such a file. What compiled now does not.
# - `at::cuda::getCurrentCUDAStream()` stays, and that is right: PyTorch keeps these names on ROCm, like `torch.cuda`.
#
# How many places deserve a look? The course has a reader of its own for that, which goes through the files as a ROCm
# build would: `leftovers(files)`. Here is one example of each kind. *Certain* means that the build or the launch fails;
# the others compile, and may be wrong.

# %% what is left
found = leftovers(result.files)
kinds = Counter(one.kind for one in found)
print(f"{len(found)} places in {len({one.file for one in found})} files\n")
for kind, count in kinds.items():
    one = next(one for one in found if one.kind == kind)
    print(f"{count:3} x {kind:15} {'certain' if one.certain else 'look   '}  {one.why}")
    print(f"      {'':15} {one.file}:{one.line}: {one.text[:78]}")

# %% [markdown] silent ones
# The certain ones announce themselves when you build. The dangerous ones are those that compile. Take the guard: it was
# written to mean "Ampere or newer".

# %% a guard
Code(source("guarded.cu"), language="cpp")

# %% [markdown] predict the guard
# **Predict.** `__CUDA_ARCH__` is 800 when compiling for `sm_80`. What is it for `gfx942`, and what does the kernel
# compute there?

# %% guess the guard
my_guess = None

# %% run the guard
x = torch.arange(1.0, 65.0)
print(f"your guess: {my_guess}")
for name in ("guarded.cu", "guarded_both.cu"):
    for target in ("sm_80", "gfx942"):
        out = torch.full((64,), -1.0)
        run(name, "square", target, [x, out], block=64)
        print(f"{name:15} {target:7} {out[:4].tolist()}")
show_diff("guarded.cu", "guarded_both.cu")

# %% [markdown] macros
# An undefined name counts as 0 in `#if`, `0 >= 800` is false, and the body is gone: a kernel that does nothing, and
# succeeds. Do not "repair" it by defining `__CUDA_ARCH__`: every header that asks for it would believe that this is
# CUDA. These are the names to ask instead:
#
# | name | defined when |
# |---|---|
# | `__CUDA_ARCH__` | compiling device code for NVIDIA; its value is the architecture |
# | `__HIP_DEVICE_COMPILE__` | compiling device code for AMD |
# | `__gfx942__`, `__GFX9__` | ... for that chip, for that family (all CDNA chips of this course are GFX9) |
# | `__HIP_PLATFORM_AMD__` | compiling HIP for AMD, host or device |
# | `USE_ROCM` | PyTorch's build of an extension on ROCm, host or device |
# | `HIP_FP8_TYPE_FNUZ`, `HIP_FP8_TYPE_OCP` | `<hip/hip_fp8.h>` is included: 1 for the types that this chip has |
#
# The same fence keeps inline PTX away from AMD's compiler:

# %% inline PTX in C++
for name in ("inline_ptx.cu", "inline_fenced.cu"):
    for target in ("sm_80", "gfx942"):
        print(f"{name:16} {target:7} {compiles(name, target)}")
show_diff("inline_ptx.cu", "inline_fenced.cu")

# %% [markdown] table of repairs
# What to put in place of the rest:
#
# | left behind | on ROCm |
# |---|---|
# | `<cuda_fp8.h>`, `__nv_fp8_e4m3` | `<hip/hip_fp8.h>`, `__hip_fp8_e4m3_fnuz` on gfx942, else `__hip_fp8_e4m3` |
# | inline PTX `ex2.approx` | a function, here `exp2f(x)`; the compiler knows the instruction |
# | `448.0f` | the largest number of *that* type: 240 for FNUZ (section 3) |
# | `<nvtx3/nvToolsExt.h>` | `<roctracer/roctx.h>`, library `roctx64` |
# | `cudaLaunchKernelEx` | `kernel<<<...>>>`, which hipcc takes, too; no overlap of launches |
# | tensor maps, `cuda/pipeline`, `mma.h` | nothing: fence them, load by hand (for `mma.h` there is rocWMMA) |
# | 96 KB of dynamic shared memory | a smaller tile: at most 64 KiB of LDS on most AMD targets |
# | `-gencode`, `--use_fast_math`, `-lineinfo` | `-ffast-math`; branch in `setup.py` on `torch.version.hip` |
# | `libraries=["cublas", "nccl", ...]` | `hipblas`, `rccl`, `roctx64`; hipify does not translate `setup.py` |
#
# > **Claim and fact: "hipify ports your code automatically"**
# >
# > - The claim has a true half: in this project hipify rewrote every stream, event, launch with `<<<>>>` and cuBLAS
# >   call, in less than a second. (measured: torch 2.13.0, the cells above)
# > - It reported 0 unsupported calls and left dozens of places that fail to build or are wrong in silence. (measured:
# >   torch 2.13.0, the cells above)
# > - It knows 3421 names and no `cuda_fp8.h`, `mma.h`, `cuda/pipeline`, `cudaLaunchKernelEx`. (measured: torch
# >   2.13.0, the lists in [torch/utils/hipify](https://github.com/pytorch/pytorch/tree/main/torch/utils/hipify))
# > - What it cannot know is what you *meant*: 32 as a width, `__CUDA_ARCH__` as an age, 448 as the largest number.
# >   (measured: torch 2.13.0, the kinds `lanes-32`, `cuda-guard` and `fp8-max` above)
#
# In the lab you take this project to the end: the device code must compile and run for `gfx942`, and nothing may be
# left.

# %% [markdown] triton
# ## 3. Triton on AMD: the same source, other limits
#
# A Triton kernel has no lanes, no warps and no `__CUDA_ARCH__`. It compiles for both vendors, so the mistakes of
# section 1 cannot be made. What is left are *limits and defaults*: the same source, and another amount of memory,
# another instruction, another rounding. This is the matrix product that the section compiles again and again. Its
# tiles divide the matrices, so it has no masks.


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
    return compile_for(matmul_kernel, target, args, BLOCK_M=M, BLOCK_N=N, BLOCK_K=K, **options)


# %% [markdown] stages
# ### Shared memory and `num_stages`
#
# A loop over tiles is *pipelined*: while the matrix unit works on one tile, the next ones are on their way from memory.
# `num_stages` says how deep. Every tile on its way needs a place in shared memory (LDS), and a place for a tile of A
# (128 x 64) and one of B (64 x 128) in float16 is 32 KB.
#
# **Predict.** How much shared memory does the kernel need with 1, 2, 3 and 4 stages, on `sm_90` and on `gfx942`? A
# block may have 227 KB on `sm_90`, 64 KB on `gfx942`. How many stages fit?

# %% guess the stages
my_guess = None  # (most stages on sm_90, on gfx942)

# %% shared memory by stages
STAGES = (1, 2, 3, 4)
by_stages = {
    target: [resources(build(target, num_stages=stages)) for stages in STAGES]
    for target in ("sm_80", "sm_90", "gfx942")
}
print(f"your guess: {my_guess}")
print(f"stages: {', '.join(map(str, STAGES))}")
print(f"{'':8} {'a block may have':18} {'KiB of shared memory':24} registers of a lane")
for target, needs in by_stages.items():
    limit = f"{TARGETS[target].shared_per_block // 1024} KiB"
    shared, registers = [need.shared // 1024 for need in needs], [need.registers for need in needs]
    print(f"{target:8} {limit:18} {shared!s:24} {registers}")

# %% figure of the stages
figure, axis = plt.subplots(figsize=(9, 3.2))
looks = {"sm_80": ("#9ccc9c", "//"), "sm_90": ("#2f7d32", ""), "gfx942": ("#b3401f", "")}
for place, (target, needs) in enumerate(by_stages.items()):
    colour, hatch = looks[target]
    at = [stages + (place - 1) * 0.27 for stages in STAGES]
    axis.bar(at, [n.shared / 1024 for n in needs], 0.25, color=colour, hatch=hatch, edgecolor="white", label=target)
axis.axhline(64, color="#b3401f", linestyle="--", label="limit of a block on gfx942")
axis.set(xticks=STAGES, xlabel="num_stages", ylabel="KiB of shared memory", title="fp16, tiles of 128 x 128 x 64")
axis.legend(loc="upper left", frameon=False)
plt.show()

# %% [markdown] law of stages
# Three laws, measured with Triton 3.7.1 for tiles of several shapes, with $A$ and $B$ the bytes of one tile of each
# matrix, and $S$ stages:
#
# | targets | $S = 1$ | $S \ge 2$ | what happens |
# |---|---|---|---|
# | sm_80, sm_89 | $A + B$ | $(S - 1)(A + B)$ | the tile in use lives in registers |
# | sm_90, sm_100 | $A + B$ | $S (A + B)$ | `wgmma` reads shared memory: the tile in use counts |
# | gfx90a ... gfx1201 | $\max(A, B)$ | $(S - 1)(A + B)$ | with one stage A and B take turns |
#
# (`wgmma` needs BLOCK_M of 64 or more; below that the first row holds on `sm_90`, too.)
#
# Two more things differ. On AMD 0 and 1 mean *no pipeline*, and 2 is the usual choice; older code says 0 and means 2.
# And a stage costs registers: look at the step from 1 to 2 on `gfx942`, where a tile waits in registers on its way to
# LDS.
#
# What happens with 4 stages on `gfx942`? The compiler does not mind; the limit is checked when the kernel is *loaded*.

# %% too much shared memory
deep = build("gfx942", num_stages=4)
print("compiled:", deep, "\n")
print("resources:", resources(deep).over_budget, "\n")
a, b, c = torch.randn(128, 128).half(), torch.randn(128, 128).half(), torch.zeros(128, 128)
for target in ("sm_80", "gfx942"):
    try:
        with virtual_gpu(target):
            matmul_kernel[(1, 1)](a, b, c, 128, 128, 128, 128, BLOCK_M=128, BLOCK_N=128, BLOCK_K=64, num_stages=4)
        print(f"{target}: largest difference {(c - a.float() @ b.float()).abs().max():.1e}")
    except OutOfResources as problem:
        print(f"{target}: OutOfResources: {problem}")

# %% [markdown] facts of stages
# > **Facts: LDS and stages**
# >
# > - This message is Triton's own, from the moment when it loads a compiled kernel. Serving frameworks met it on
# >   MI300X with tiles that were tuned on NVIDIA: `Required: 73728, Hardware limit: 65536`. (source:
# >   [vllm #17744](https://github.com/vllm-project/vllm/pull/17744))
# > - `num_stages=0` used to switch AMD's pipeline on; since October 2024 0 and 1 mean none and 2 or more pipeline.
# >   (source: [triton #4845](https://github.com/triton-lang/triton/pull/4845))
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
# ### Registers: `waves_per_eu` and spills
#
# `waves_per_eu=n` is an option that only AMD's backend has: *plan for n wavefronts on each SIMD*. The
# compiler can do one thing about that: use fewer registers. 512 registers a lane for 3 waves are 168, for 4 waves 128
# (lesson 02).
#
# **Predict.** The kernel needs about 200 registers. What does `waves_per_eu=4` do to it, and how many wavefronts more
# will a CU hold?

# %% guess the waves
my_guess = None  # (wavefronts on a CU without the option, with waves_per_eu=4)

# %% waves_per_eu
print(f"your guess: {my_guess}")
for waves in (0, 2, 3, 4):
    needs = resources(build("gfx942", options={"waves_per_eu": waves}))
    print(f"waves_per_eu={waves}: {needs.vgprs} VGPRs, {needs.spills:3} spilled; {needs.occupancy}")

# %% [markdown] waves explained
# Nothing gained, much lost: the registers that no longer fit are *spilled* to scratch, which is memory, in the middle
# of the loop, and the CU still holds 8 wavefronts, because two blocks fill the LDS. An option that asks for occupancy
# works only where registers are what limits it. So: first `resources(...)`, read what limits, then turn that knob.
#
# A second limit hides behind the first. The chip has 512 registers a lane: 256 VGPRs, and as many **AGPRs**,
# accumulation registers in which matrix instructions can keep their sums. A tile of 256 x 256 on 4 wavefronts needs
# 256 registers a lane for its sums alone.
#
# **Predict.** Does it fit into 512?

# %% guess the large tile
my_guess = None  # registers spilled to memory

# %% a large tile
print(f"your guess: {my_guess}")
print(f"{'256 x 256 x 64':14} {'VGPRs':>6} {'AGPRs':>6} {'moves between them':>19} {'spilled to memory':>18}")
tiles = {warps: build("gfx942", M=256, N=256, num_warps=warps) for warps in (4, 8)}
for warps, tile in tiles.items():
    needs, moves = resources(tile), len(re.findall("v_accvgpr_", tile.asm))
    print(f"{warps} wavefronts   {needs.vgprs:6} {needs.agprs:6} {moves:19} {needs.spills:18}")

# %% [markdown] agpr explained
# It does not. Addresses and operands need registers, too, and vector arithmetic cannot use AGPRs: the compiler
# shelves values there with thousands of moves, and what is still left over goes to memory. Eight wavefronts share the
# same tile, each with half of it, and it fits with no move at all. The repair is more wavefronts, or a
# smaller tile.
#
# You may read that the culprit is an attribute: Triton's kernels for `gfx942` carry `amdgpu-agpr-alloc=0`, which
# sounds like "no AGPRs".
#
# **Predict.** Take the attribute out of what LLVM is given, and compile again. How many registers are spilled?

# %% guess the attribute
my_guess = None  # registers spilled without the attribute

# %% without the attribute
from triton._C.libtriton import llvm

llvm.init_targets()
given = tiles[4].stages["llir"]
without = given.replace('"amdgpu-agpr-alloc"="0" ', "")
asm = llvm.translate_to_asm(without, "amdgcn-amd-amdhsa", "gfx942", "", [], True, False)
print(f"your guess: {my_guess}")
print(f"the attribute occurs {given.count('agpr-alloc')} time before, {without.count('agpr-alloc')} after")
print("spilled without it:", *re.findall(r"\.vgpr_spill_count:\s+(\d+)", asm))

# %% [markdown] attribute explained
# The same. Whatever the attribute does elsewhere, it is not the reason here. Try an explanation before you repeat it.
#
# ### The shape of the matrix instruction
#
# CDNA has two shapes of matrix instructions, 32 x 32 and 16 x 16 results a wavefront. `matrix_instr_nonkdim` chooses (0
# leaves it to Triton). `kpack` says how many operands are packed side by side along K.

# %% shapes of the matrix instruction
for options in ({}, {"matrix_instr_nonkdim": 16}, {"kpack": 2}):
    for target in ("gfx942", "gfx950"):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            compiled = build(target, options=options)
        used = Counter(re.findall(r"v_mfma\w+", compiled.asm))
        print(f"{options!s:30} {target}: {dict(used)}, {resources(compiled).registers} registers")
        for warning in said:
            print(f"{'':30} warns: {str(warning.message)[:95]} ...")

# %% [markdown] facts of shapes
# > **Facts: shapes**
# >
# > - Triton 3.7.1 chooses 32 x 32 for this tile by itself. (measured: triton 3.7.1, the cell above)
# > - AMD's guide recommends `matrix_instr_nonkdim=16` for matrix products on MI300X. Which one is faster for your
# >   shape is a question for `@triton.autotune` on the chip; here it can only be compiled. (source: [ROCm, workload
# >   optimization
# >   guide](https://rocm.docs.amd.com/en/latest/how-to/rocm-for-ai/inference-optimization/workload.html))
# > - `kpack=2` is overwritten by 1 on gfx950, with a warning. (measured: triton 3.7.1, the cell above)
#
# ### Which precision is `tl.dot`?
#
# Two float32 tiles, `tl.dot(a, b)`, no options.
#
# **Predict.** On which of `sm_90`, `gfx90a`, `gfx942`, `gfx950` is the product computed in float32?

# %% guess the precision
my_guess = None  # a list of targets


# %% default precision of dot
@triton.jit
def tile_dot_kernel(a_ptr, b_ptr, c_ptr, N: tl.constexpr, PRECISION: tl.constexpr):
    rows, cols = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    a, b = tl.load(a_ptr + rows * N + cols), tl.load(b_ptr + rows * N + cols)
    c = tl.dot(a, b) if PRECISION == "default" else tl.dot(a, b, input_precision=PRECISION)
    tl.store(c_ptr + rows * N + cols, c)


def tile_dot(target, a, b, precision="default"):
    """a @ b on a virtual GPU, and the matrix instruction that did it."""
    c = torch.zeros(len(a), len(a))
    with virtual_gpu(target) as gpu:
        tile_dot_kernel[(1,)](a, b, c, N=len(a), PRECISION=precision)
    return c, re.search(r"(?:v_mfma_|mma\.sync\.|wgmma\.mma_async\.)[\w.]*", gpu.last.text)[0]


a, b = torch.randn(2, 64, 64).unbind()
exact = a.double() @ b.double()
print(f"your guess: {my_guess}")
for target, precision in (
    *((target, "default") for target in ("sm_90", "gfx90a", "gfx942", "gfx950")),
    ("gfx942", "ieee"),
):
    c, instruction = tile_dot(target, a, b, precision)
    error = ((c - exact).abs().max() / exact.abs().max()).item()
    print(f"{target:7} {precision:8} relative error {error:.0e}   {instruction}")

# %% [markdown] precision explained
# `sm_90` rounds both operands to TF32 and `gfx942` to XF32: 10 bits of mantissa are left, and the error is more than
# a thousand times larger. `gfx90a` and `gfx950` have no such format, and compute in float32, slowly. So one source
# has two accuracies, and a test with a tolerance of `1e-5` passes on one chip and fails on another. If you mean
# float32, say so: `input_precision="ieee"`. If you mean speed, take bf16.
#
# PyTorch has the same switch at a higher level: `torch.backends.cuda.matmul.allow_tf32`. It is *global*, it changes
# results, and on `gfx942` it works through hipBLASLt ([PyTorch, HIP
# semantics](https://docs.pytorch.org/docs/stable/notes/hip.html)).
#
# ### Small numbers
#
# A float that is too small for a normal exponent is a *denormal*. Some instructions flush it to zero.
#
# **Predict.** A is full of denormals: $2^{-20}$ in float16, whose smallest normal number is $2^{-14}$, or $2^{-130}$
# in bfloat16 ($2^{-126}$). B is full of ones, or of $2^{20}$. Either product of 32 x 32 is a normal number in
# float32. On which targets is it 0?

# %% guess the denormals
my_guess = None

# %% denormals in matrix instructions
print(f"your guess: {my_guess}")
for dtype, tiny, other in ((torch.float16, 2.0**-20, 1.0), (torch.bfloat16, 2.0**-130, 2.0**20)):
    a, b = torch.full((32, 32), tiny).to(dtype), torch.full((32, 32), other).to(dtype)
    sums = {target: tile_dot(target, a, b)[0][0, 0].item() for target in ("sm_80", "gfx90a", "gfx942", "gfx950")}
    print(
        f"{str(dtype)[6:]:9} exact {32 * tiny * other:.2e}",
        *(f"{target} {it:.2e}" for target, it in sums.items()),
        sep="   ",
    )


# %% denormals in exp2
@triton.jit
def exp_kernel(x_ptr, exp_ptr, exp2_ptr, half_ptr):
    lanes = tl.arange(0, 64)
    x = tl.load(x_ptr + lanes)
    tl.store(exp_ptr + lanes, tl.exp(x))
    tl.store(exp2_ptr + lanes, tl.exp2(x))
    tl.store(half_ptr + lanes, x * 0.5)


for target in ("sm_80", "gfx942"):
    for flush in (False, True) if target == "gfx942" else (None,):
        x = torch.tensor([-90.0, -130.0, 1e-39]).repeat(22)[:64].contiguous()
        e, e2, half = (torch.zeros(64) for _ in range(3))
        options = {} if flush is None else {"allow_flush_denorm": flush}
        with virtual_gpu(target):
            exp_kernel[(1,)](x, e, e2, half, num_warps=1, **options)
        words = f"allow_flush_denorm={flush}" if options else ""
        print(f"{target:7} {words:25} exp(-90) = {e[0]:.1e}   exp2(-130) = {e2[1]:.1e}   1e-39 / 2 = {half[2]:.1e}")

# %% [markdown] denormals explained
# On `gfx90a` (MI200) the matrix instructions take float16 and bfloat16 denormals for zero. In training these are small
# gradients, gone without a trace: a reason for loss scaling, or for bf16, whose smallest normal number is $2^{-126}$.
#
# `allow_flush_denorm` is `False` by default on AMD, and yet `exp2` flushes: it is the bare instruction `v_exp_f32`.
# `exp` is corrected around it, unless you allow flushing. NVIDIA's `exp2` is `ex2.approx.ftz`, which flushes, too;
# the letters `ftz` say so. All of this was executed on virtual GPUs, which follow the manuals.
#
# > **Facts: denormals**
# >
# > - The matrix instructions of MI200 flush denormals of float16 and bfloat16 at input and output; MI300X does not.
# >   (source: [PyTorch, numerical accuracy](https://docs.pytorch.org/docs/stable/notes/numerical_accuracy.html))
# > - `exp2` flushes on gfx942 whatever `allow_flush_denorm` says. (measured: triton 3.7.1, the cell above)
#
# ### FP8: two formats with one name
#
# Both vendors have an 8-bit float with 4 bits of exponent and 3 of mantissa. It is called E4M3, and there are two of
# it. `gfx942` has one of its own, **FNUZ**: *finite* (no infinities), *unsigned zero* (no negative zero). NVIDIA
# since `sm_89`, and AMD since `gfx950` and RDNA4, have the one of the OCP standard, **FN**. (PyTorch:
# `float8_e4m3fnuz`, `float8_e4m3fn`; Triton: `fp8e4b8`, `fp8e4nv`.)
#
# **Predict.** A checkpoint holds FP8 weights for an H100. You read the same bytes as FNUZ. How far off are the values?

# %% guess the bytes
my_guess = None  # value as FNUZ / value as FN

# %% one byte, two numbers
codes = torch.arange(256, dtype=torch.uint8)
fn, fnuz = codes.view(torch.float8_e4m3fn).float(), codes.view(torch.float8_e4m3fnuz).float()
print(f"your guess: {my_guess}")
half = fnuz == fn / 2
print(f"{int(half.sum())} of 256 codes: exactly half. The others:")
for code in codes[~half].tolist():
    print(f"  {code:#04x}: FN {fn[code].item():5g}   FNUZ {fnuz[code].item():5g}")
for dtype in (torch.float8_e4m3fn, torch.float8_e4m3fnuz):
    values = torch.tensor([1.0, 240.0, 247.0, 248.0, 300.0, 448.0, 500.0])
    print(f"{str(dtype)[6:]:16} largest {torch.finfo(dtype).max:g}")
    print(f"  {values.tolist()} becomes\n  {values.to(dtype).float().tolist()}")

# %% figure of the two formats
figure, axis = plt.subplots(figsize=(9, 1.9))
for row, values, colour in ((0, fnuz, "#b3401f"), (1, fn, "#2f7d32")):
    normal = values[(values >= 1) & values.isfinite()]
    axis.plot(normal, [row] * len(normal), "|", color=colour, markersize=18)
    axis.annotate(f"{normal.max():g}", (normal.max().item(), row), (6, 8), textcoords="offset points", color=colour)
axis.set(xscale="log", ylim=(-0.6, 1.7), yticks=(0, 1), yticklabels=("FNUZ", "FN"), xticks=[2**n for n in range(9)])
axis.set_xticklabels([2**n for n in range(9)])
axis.minorticks_off()
axis.set_title("every E4M3 number from 1 on: seven steps between powers of two; the ends differ")
plt.show()

# %% [markdown] fp8 bytes explained
# Half, for nearly every code: the exponents are counted from another start. So a model with the wrong flavour runs,
# with all weights halved and no error. To convert the bytes for real, keep them and double the scale; and `0x80`, the
# negative zero of FN, must become `0x00`, because it is NaN in FNUZ.
#
# The second trap is the largest number: 448 or 240. Code that scales by a hard-coded 448 sends values past 240 into
# NaN on `gfx942`. Ask `torch.finfo(dtype).max`, and clamp *before* the cast: PyTorch's cast to FN clips 500 to 448,
# but the cast to FNUZ gives NaN from 248 on.
#
# What does the compiler do with the wrong flavour? One product of two FP8 tiles, both flavours, every target:


# %% fp8 on every target
def fp8_product(target, dtype):
    """The instruction that multiplies two FP8 tiles on a target, or the error; and whether the compiler warned."""
    with warnings.catch_warnings(record=True) as said, triton.knobs.compilation.scope():
        warnings.simplefilter("always")
        triton.knobs.compilation.always_compile = target == "gfx950"  # a kernel from Triton's cache warns nobody
        try:
            asm = compile_for(tile_dot_kernel, target, (dtype, dtype, torch.float32), N=64, PRECISION="default").asm
        except CompileFailed as problem:
            return "error: " + re.sub(r".*`: ", "", str(problem))[:75] + " ...", False
    found = re.search(r"v_w?mf?ma\w+|mma\.sync[\w.]*|wgmma\.mma_[\w.]*", asm)
    return found[0] if found else "no matrix instruction", bool(said)


for dtype in (torch.float8_e4m3fn, torch.float8_e4m3fnuz):
    print(str(dtype)[6:])
    for target in ("sm_80", "sm_89", "sm_90", "gfx90a", "gfx942", "gfx950", "gfx1201"):
        used, warned = fp8_product(target, dtype)
        print(f"  {target:8} {used}{'   (with a warning)' if warned else ''}")

# %% [markdown] fp8 silent
# Read the instructions, line by line: `fp8_fp8`, `f8f6f4` or `e4m3` in the name: FP8 in hardware. `f16`: **the
# compiler converts to float16 first**, and you get float16's instructions: with no word on `gfx942` and `gfx90a`,
# with a warning for FNUZ on `gfx950`. NVIDIA's backend raises an error. So on AMD "it compiles" does not mean "it is
# FP8": look at the listing, or decide by the target before you launch. And decide by *name*, in a table: as text
# `"sm_100" < "sm_89"`, as numbers 1100 is larger than 942 and has no FP8.
#
# | target | FP8 E4M3 | largest |
# |---|---|---|
# | sm_80, sm_86, gfx90a, gfx1100 | none | |
# | sm_89, sm_90, sm_100 | FN | 448 |
# | gfx942 | FNUZ | 240 |
# | gfx950, gfx1200, gfx1201 | FN | 448 |
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
# ### Inline assembly behind a fence
#
# `tl.inline_asm_elementwise` puts an instruction of one vendor into a kernel. Here is one for NVIDIA, compiled by
# plain Triton for both, with an `except` that catches everything.
#
# **Predict.** What does the script print?

# %% guess the end
my_guess = None

# %% PTX for an AMD chip
script = UNIT / "kernels" / "ptx_on_amd.py"
display(Code(script.read_text(), language="python"))
ended = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)  # a process of its own
print(f"your guess: {my_guess}")
print("stdout:", ended.stdout.strip())
print("stderr:", ended.stderr.strip().splitlines()[-1])
print("status:", ended.returncode)

# %% [markdown] fence
# The script never reached its end, and no `except` helped: **the compiler ended the process**. In a notebook your
# kernel dies, in a server the worker. The message is about constraint `f`: `=f` is NVIDIA's word for a float
# register. AMD's are `v` (a vector register, one value a lane) and `s` (a scalar one, shared by all lanes); the
# letter `r` is known to both, and means a scalar register on AMD. (`compile_for` and the virtual GPUs of this course
# look first, and raise `CompileFailed`.)
#
# So the other side must never be compiled. The *launcher* knows the target and passes its name as a `tl.constexpr`; an
# `if` on a constexpr is decided while compiling, and the other branch is not built. Here is such a kernel: it
# packs the lower halves of two 32-bit words into one, with one instruction for each vendor.


# %% a fenced kernel
@triton.jit
def pack_kernel(low_ptr, high_ptr, out_ptr, BACKEND: tl.constexpr):
    lanes = tl.arange(0, 64)
    low, high = tl.load(low_ptr + lanes), tl.load(high_ptr + lanes)
    if BACKEND == "hip":
        out = tl.inline_asm_elementwise(
            "v_perm_b32 $0, $1, $2, $3", "=v,v,v,v", [low, high, 0x01000504], dtype=tl.int32, is_pure=True, pack=1
        )
    else:
        out = tl.inline_asm_elementwise(
            "prmt.b32 $0, $1, $2, 0x5410;", "=r,r,r", [low, high], dtype=tl.int32, is_pure=True, pack=1
        )
    tl.store(out_ptr + lanes, out)


low, high = (torch.randint(0, 2**31 - 1, (64,), dtype=torch.int32) for _ in range(2))
for target in ("sm_80", "gfx942"):
    out = torch.zeros(64, dtype=torch.int32)
    with virtual_gpu(target) as gpu:
        backend = triton.runtime.driver.active.get_current_target().backend
        pack_kernel[(1,)](low, high, out, BACKEND=backend, num_warps=1)
    used = re.findall(r"prmt\.b32|v_perm_b32", gpu.last.text)
    right = torch.equal(out, (low & 0xFFFF) | (high << 16))
    words = [f"{value.item() & 0xFFFFFFFF:#010x}" for value in (low[0], high[0], out[0])]
    print(f"{target:7} backend {backend!r:7} {used[0]:10} right: {right}   {words[0]}, {words[1]} -> {words[2]}")

# %% [markdown] permutes
# Both instructions pick four bytes from two words, and nearly everything else about them differs:
#
# | | `prmt.b32 d, a, b, sel` | `v_perm_b32 d, a, b, sel` |
# |---|---|---|
# | bytes 0 to 3 | of `a`, the **first** source | of `b`, the **second** source |
# | bytes 4 to 7 | of `b` | of `a` |
# | selector | four hexadecimal digits, `0x5410` | four bytes, `0x01000504` |
# | the selector as a literal | yes | not on GFX9: it comes in as an operand |
#
# Read `0x5410` from the right: result byte 0 is byte 0, result byte 1 is byte 1 (both of `a`), then 4 and 5 (of `b`).
# And `0x01000504`: bytes 4 and 5 (here: of `a`), then 0 and 1 (of `b`). The same packing in two numberings.
#
# > **Claim and fact: "DeepSeek bypassed CUDA with PTX"**
# >
# > - Headlines said so. What the report says: customised PTX serves the kernels that communicate between GPUs, on 20 of
# >   the 132 SMs of an H800. (source: [DeepSeek-V3 technical report](https://arxiv.org/abs/2412.19437))
# > - PTX is part of CUDA: everything that you write for an NVIDIA GPU becomes PTX on its way, so this bypasses
# >   nothing. It ties the kernel to one vendor: on `gfx942` it does not compile. (measured: triton 3.7.1 and clang
# >   22, the cells on inline PTX above)
#
# There is also `tl.target_info.is_hip()`. It asks which driver is *active*, not what is being compiled; with
# `compile_for` and no driver it says False for both vendors. The constexpr is the robust way.
#
# ### What the compiler knows, and you do not
#
# If AMD has an instruction `v_exp_f32`, why not write it inline? Compare.


# %% a wait that is missing
@triton.jit
def exp2_kernel(x_ptr, out_ptr, INLINE: tl.constexpr):
    lanes = tl.arange(0, 64)
    x = tl.load(x_ptr + lanes)
    if INLINE:
        y = tl.inline_asm_elementwise("v_exp_f32 $0, $1", "=v,v", [x], dtype=tl.float32, is_pure=True, pack=1)
    else:
        y = tl.exp2(x)
    tl.store(out_ptr + lanes, y + 1.0)


for inline in (False, True):
    compiled = compile_for(exp2_kernel, "gfx942", (torch.float32, torch.float32), INLINE=inline, num_warps=1)
    lines = re.findall(r"^\s+((?:v_exp_f32|s_nop|v_add_f32)\S* .*)$", compiled.asm, re.MULTILINE)
    print("inline assembly:" if inline else "tl.exp2:", "  |  ".join(lines))

# %% [markdown] hazard
# On `gfx942` the result of a transcendental instruction needs a moment before a vector instruction may use it. The
# compiler knows this rule and puts `s_nop 0` between the two (LLVM calls it a hazard; `hasTransForwardingHazard` in
# its sources). Inside your assembly text it sees only letters, and puts nothing. The virtual GPU does not model this
# hazard, so no test here would catch it. The rule of thumb: an operator of `tl` first, a function of libdevice
# second, inline assembly last.
#
# libdevice, the library of mathematical functions, has holes on AMD's side, too:

# %% libdevice on both sides
from triton.language.extra.cuda import libdevice as cuda_libdevice
from triton.language.extra.hip import libdevice as hip_libdevice


def functions(module):
    return {name for name, found in vars(module).items() if getattr(found, "__module__", "") == module.__name__}


on_nvidia, on_amd = functions(cuda_libdevice), functions(hip_libdevice)
print(f"{len(on_nvidia)} functions for NVIDIA; {len(on_nvidia - on_amd)} of them are missing for AMD, for example:")
print(", ".join(sorted(name for name in on_nvidia - on_amd if name.endswith("_rn"))))
print("on both sides:", ", ".join(sorted(on_nvidia & on_amd)[:12]), "...")


@triton.jit
def fused_kernel(x_ptr, out_ptr):
    lanes = tl.arange(0, 64)
    x = tl.load(x_ptr + lanes)
    tl.store(out_ptr + lanes, tl.extra.libdevice.fma_rn(x, x, x))


for target in ("sm_80", "gfx942"):
    try:
        print(target, compile_for(fused_kernel, target, (torch.float32, torch.float32)))
    except CompileFailed as problem:
        print(target, "CompileFailed:", problem)

# %% [markdown] atomics
# All the functions with a rounding mode in their name are missing (`add_rn`, `fma_rn`, ...). Mostly the plain
# operator is what you want: `tl.fma(x, y, z)` rounds once, to nearest, on both.
#
# ### Atomics on small floats
#
# **Predict.** `tl.atomic_add` on float32, float16 and bfloat16. Where is it one instruction, and where a loop that
# reads, adds, and tries to swap (compare-and-swap, *CAS*)?

# %% guess the atomics
my_guess = None


# %% atomics on three dtypes
@triton.jit
def add_kernel(x_ptr, out_ptr):
    lanes = tl.arange(0, 64)
    tl.atomic_add(out_ptr + lanes, tl.load(x_ptr + lanes))


print(f"your guess: {my_guess}")
for target in ("sm_80", "sm_90", "gfx90a", "gfx942", "gfx1100"):
    row = f"{target:8}"
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        asm = compile_for(add_kernel, target, (dtype, dtype), num_warps=1).asm
        native = re.search(r"atom\.\S*\.add\S*|(?:global|buffer)_atomic_(?:pk_)?add_\w+", asm)
        swaps = re.search(r"atom\.\S*cas\S*|\w+_atomic_cmpswap\w*", asm)
        row += f"{str(dtype)[6:]:>10}: {'add' if native else '':4}{'CAS loop' if swaps else '':8}"
    print(row)

# %% [markdown] facts of atomics
# Where both stand in the code, as on `gfx942`, there is a packed instruction for two neighbours and a loop for the
# rest. Where there is only the loop, every conflict means another round. The table is that of Triton 3.7.1, not of
# the chip.
#
# ### A flag that never changes
#
# Kernels that talk to each other wait for a flag in memory: a loop around a load. Program 1 sets the flag, program 0
# waits for it.
#
# **Predict.** `volatile=True` tells the compiler to load every time. Does it, on both vendors?

# %% guess the flag
my_guess = None


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


def memory_in_loops(asm):
    """The instructions on global memory between a label and a branch back to it."""
    lines, labels, inside = asm.splitlines(), {}, []
    for number, line in enumerate(lines):
        if label := re.match(r"([$.\w]+):", line):
            labels[label[1]] = number
        branch = re.search(r"\b(?:bra|bra\.uni|s_c?branch\w*)\s+([$.\w]+)", line)
        if branch and branch[1] in labels:
            inside += lines[labels[branch[1]] : number]
    return re.findall(
        r"\b(?:ld\.volatile|ld\.global|atom\.|global_load|global_atomic|buffer_load|s_load)[\w.]*", "\n".join(inside)
    )


print(f"your guess: {my_guess}")
for atomic in (False, True):
    for target in ("sm_80", "gfx942", "gfx1100"):
        asm = compile_for(wait_kernel, target, (torch.int32, torch.int32), ATOMIC=atomic, num_warps=1).asm
        print(
            "atomic_add of 0" if atomic else "volatile load  ",
            f"{target:8}",
            memory_in_loops(asm) or "the loop loads nothing",
        )
for target in ("sm_80", "gfx942"):
    flag, out = torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    with virtual_gpu(target):
        wait_kernel[(2,)](flag, out, ATOMIC=True, num_warps=1)
    print(f"{target}: waited, then wrote {out.item()}")

# %% [markdown] flag explained
# With Triton 3.7.1 AMD's backend loads the flag once, before the loop, and the loop branches to itself for ever: the
# job hangs, with no error. (So this version was compiled and not launched.) An atomic that adds 0 stays in the loop
# on both vendors; LLVM even turns it into an `or` with 0.
#
# > **Facts: more traps of Triton and libraries on AMD**
# >
# > - A kernel of a state-space model stopped on AMD with the message about constraint `f`, and a serving framework,
# >   too. (source: [mamba #1018](https://github.com/state-spaces/mamba/issues/1018),
# >   [sglang #34351](https://github.com/sgl-project/sglang/issues/34351))
# > - Missing libdevice functions were reported for `div_rn`, `sqrt_rn` and others. (source:
# >   [triton #7135](https://github.com/triton-lang/triton/issues/7135),
# >   [FlagGems #725](https://github.com/FlagOpen/FlagGems/issues/725))
# > - bfloat16 atomics through a CAS loop were measured about 7 times slower than float16's. (source:
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
# ## 4. Platform and environment
#
# ### Ask for what you mean
#
# A training script is full of questions about the machine, and most of them are asked in a way that has an answer for
# CUDA only. Lesson 00 has the first: the device string is `"cuda"` on both vendors, `torch.version.cuda` is `None` on
# AMD, and `torch.version.hip` tells them apart. Here are the others.
#
# | question | what scripts ask | what is right |
# |---|---|---|
# | is there a GPU? | `torch.version.cuda` | `torch.cuda.is_available()` |
# | whose is it? | `torch.hip` (does not exist), the name of the device | `torch.version.hip is not None` |
# | which target is it? | `get_device_capability()` | see below |
# | FP8? | `capability >= (8, 9)` | the table of section 3, by target |
# | bf16? | the name of the chip | `torch.cuda.is_bf16_supported(including_emulation=False)` |
# | how wide is a wave? | 32 | `torch.cuda.get_device_properties(0).warp_size` |
# | how much memory? | parse `nvidia-smi` | `torch.cuda.mem_get_info()` |
# | how many ranks here? | parse `CUDA_VISIBLE_DEVICES` | `torch.cuda.device_count()` |
# | which process group? | `"rccl"` | `"nccl"` on both (RCCL answers to the name), `"gloo"` on a CPU |
#
# **Predict.** `torch.cuda.get_device_capability()` on an MI250X (`gfx90a`) and on an H100: what does each say?
#
# <details><summary>Compare</summary>
#
# `(9, 0)`, both. On AMD the capability is made of the digits of the gfx number. So `capability >= (8, 9)` finds FP8
# on an MI250X, which has none, and a Radeon RX 7900 XTX (`gfx1100`) says `(11, 0)`, more than any Hopper.
# </details>
#
# The target is the name that compilers use: on AMD `props.gcnArchName` up to the first colon
# (`"gfx942:sramecc+:xnack-"`), on NVIDIA `sm_` and the two digits of the capability. And do not use `hasattr(props,
# "gcnArchName")` as a test for AMD: CUDA builds have the attribute, too, and keep the marketing name in it.

# %% this machine
print("torch.version.hip:", torch.version.hip, "| torch.version.cuda:", torch.version.cuda)
print("has torch.hip:", hasattr(torch, "hip"))
if torch.cuda.is_available():
    props = torch.cuda.get_device_properties(0)
    amd = torch.version.hip is not None
    target = props.gcnArchName.split(":")[0] if amd else f"sm_{props.major}{props.minor}"
    print(f"{props.name}: target {target}, waves of {props.warp_size} lanes, capability {props.major}.{props.minor}")
    free, total = torch.cuda.mem_get_info()
    print(f"{free / 2**30:.1f} of {total / 2**30:.1f} GiB free; {torch.cuda.device_count()} devices visible")
else:
    print("no GPU here; on one with eight MI300X the same cell says: target gfx942, waves of 64 lanes, 8 devices")

# %% [markdown] facts of the platform
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
# ### Which GPUs a process sees
#
# NVIDIA has one variable, `CUDA_VISIBLE_DEVICES`. AMD has two layers, and each numbers the GPUs anew:
#
# 1. the ROCm runtime reads `ROCR_VISIBLE_DEVICES`, numbers of *physical* GPUs, and hides the rest;
# 2. HIP reads `HIP_VISIBLE_DEVICES`, and only where that is empty `CUDA_VISIBLE_DEVICES`: numbers *among what the first
#    layer left*.
#
# A number that does not exist ends a list, as in CUDA: `4,9,5` among eight is GPU 4 alone.
#
# **Predict.** A node with 8 GPUs; a scheduler sets `ROCR_VISIBLE_DEVICES=4,5,6,7`, and your script sets
# `HIP_VISIBLE_DEVICES=4,5`. Which GPUs do you get?

# %% guess the devices
my_guess = None  # a list of physical numbers


# %% two layers
ROCR, HIP, CUDA = "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"
print(f"your guess: {my_guess}")
for variables in ({ROCR: "4,5,6,7", HIP: "4,5"}, {ROCR: "4,5,6,7", HIP: "0,1"}, {HIP: "6", CUDA: "0"}):
    seen = visible(variables, gpus=8, vendor="amd")
    print(*(f"{name}={value}" for name, value in variables.items()), "gives", list(seen.gpus))
    for layer in seen.layers:
        print("   ", layer)

# %% [markdown] visibility
# None: 4 and 5 do not exist among the four that are left. What the script meant is `0,1`. Set one layer, not both;
# and set it before the first `import torch` of the process, because the runtimes read it when they start, and some
# frameworks read it when they are imported.
#
# > **Facts: the environment of an AMD node**
# >
# > - The layers compose: indices of `HIP_VISIBLE_DEVICES` count within `ROCR_VISIBLE_DEVICES`. (source:
# >   [pytorch #142292](https://github.com/pytorch/pytorch/pull/142292))
# > - Frameworks that set one of the variables while another was set saw no GPU, or the wrong one. (source:
# >   [ray #52701](https://github.com/ray-project/ray/issues/52701),
# >   [vllm #33308](https://github.com/vllm-project/vllm/issues/33308),
# >   [SwarmUI #565](https://github.com/mcmonkeyprojects/SwarmUI/issues/565))
# > - Hiding the other GPUs from each rank by `ROCR_VISIBLE_DEVICES` breaks direct access between GPUs in RCCL: let each
# >   process see all and choose by `torch.cuda.set_device(local_rank)`. (source:
# >   [vllm #46895](https://github.com/vllm-project/vllm/issues/46895))
# > - `HSA_OVERRIDE_GFX_VERSION=11.0.0` makes every GPU of the process pass for `gfx1100`. It is a help for Radeon
# >   cards that ROCm does not list; a supported chip needs none, and a wrong value breaks discovery. (source:
# >   [ROCm/rocm-systems #5686](https://github.com/ROCm/rocm-systems/issues/5686),
# >   [ROCm/TheRock #1719](https://github.com/ROCm/TheRock/issues/1719),
# >   [ROCm/ROCm #3065](https://github.com/ROCm/ROCm/issues/3065))
# > - RCCL reads NCCL's variables. For MI300X AMD recommends one process per GPU, `NCCL_MIN_NCHANNELS=112`, and
# >   collectives over all 8 GPUs of a node rather than over 2 or 4, whose links are only part of the mesh. (source:
# >   [ROCm, workload optimization
# >   guide](https://rocm.docs.amd.com/en/latest/how-to/rocm-for-ai/inference-optimization/workload.html))
# > - For overlap of compute and communication the same guide sets `TORCH_NCCL_HIGH_PRIORITY=1` and
# >   `GPU_MAX_HW_QUEUES=2`. (source: [ROCm, workload optimization
# >   guide](https://rocm.docs.amd.com/en/latest/how-to/rocm-for-ai/inference-optimization/workload.html))
# > - `PYTORCH_TUNABLEOP_ENABLED=1` tries kernels for each new shape of a matrix product. Left in tuning mode it slows
# >   training: tune once; then keep it enabled, with `PYTORCH_TUNABLEOP_TUNING=0`, and it only uses its file. (source:
# >   [pytorch #114894](https://github.com/pytorch/pytorch/pull/114894),
# >   [comfyui-amd-go-fast #2](https://github.com/Beinsezii/comfyui-amd-go-fast/issues/2))
# > - Since ROCm 7 capture into a graph refuses calls that it allowed before, as CUDA does. `AMD_LOG_LEVEL=4` shows
# >   the call. (source: [ROCm/rccl #2022](https://github.com/ROCm/rccl/issues/2022),
# >   [ROCm/hip #3876](https://github.com/ROCm/hip/issues/3876))
# > - On RDNA3 and RDNA4 hardware counters mean little unless the performance level is `STABLE_STD`. (source:
# >   [rocprofv3
# >   documentation](https://rocm.docs.amd.com/projects/rocprofiler-sdk/en/latest/how-to/using-rocprofv3.html))

#
# ### A node on paper
#
# These rules are in a program, too: describe the node and the job in a few lines, and
# `./w2w doctor --node file.yaml` says what each process will see, what is wrong, and where the rule comes from. Four
# such files lie in `work/03_porting_to_rocm/nodes/`.

# %% a described node
description = UNIT / "files" / "nodes" / "mi300x_three_faults.yaml"
Code(description.read_text(), language="yaml")

# %% [markdown] predict the faults
# **Predict.** Which of the five variables would you take out, and which GPUs do the four processes see?

# %% guess the faults
my_guess = None

# %% ask the doctor
doctor = [sys.executable, "-m", "gpu_utils.cli", "doctor", "--node", str(description)]
print(f"your guess: {my_guess}\n")
print(subprocess.run(doctor, capture_output=True, text=True).stdout)

# %% [markdown] the doctor
# Other descriptions lie in the same folder, and your own is a text file away. In the lab you go the other way, from a
# description to the right variables.

# %% [markdown] port
# ## 5. The training script, ported
#
# The model of unit 01 is plain PyTorch, so its port is a matter of a dozen lines, all of the kind of section 4:
#
# | CUDA only | one code path |
# |---|---|
# | `model.cuda()`, `x.cuda()` | `model.to(device)`, and new tensors on the device of the data |
# | `torch.autocast("cuda", torch.float16)` | `torch.autocast(device.type, torch.bfloat16)` where the device has bf16 |
# | `GradScaler()` always | a scaler for float16 only: bf16 has the range of float32 |
# | `allow_tf32 = True` at the top | leave it, or set it knowingly: it is global, and changes the loss curve |
# | `pin_memory=True` | only where there is a GPU |
# | `if torch.version.cuda:` | `if torch.cuda.is_available():` |
#
# One line of the old script is wrong on both vendors, and nobody sees it. With a scaler, gradients come out of
# `backward()` *multiplied by the scale*, and `scaler.unscale_(optimizer)` divides them again.
#
# **Predict.** The scale is 65,536, the true gradient has norm 5, and the script clips to norm 1 *before* it unscales.
# Which norm does the optimizer see?

# %% guess the norm
my_guess = None

# %% the order of clipping
SCALE = 65_536.0
print(f"your guess: {my_guess}")
for order in (("clip", "unscale"), ("unscale", "clip")):
    weight = torch.nn.Parameter(torch.zeros(2))
    (weight @ torch.tensor([3.0, 4.0]) * SCALE).backward()  # the gradient is (3, 4), times the scale
    for action in order:
        if action == "clip":
            torch.nn.utils.clip_grad_norm_([weight], 1.0)
        else:
            weight.grad /= SCALE
    print(" -> ".join(order), f": norm {weight.grad.norm():.2g}, gradient {weight.grad.tolist()}")

# %% [markdown] order
# Clipped first, the gradient is 65,536 times too small. (AdamW hides it, because it divides by the size of the
# gradient; plain SGD would stand still.) The right order is *unscale, clip, step*. In bf16 there is no scaler, and
# nothing to get wrong.
#
# ### Is it still the same training?
#
# A port that runs is not yet a port that is right. The report below compares two run records, as unit 01 saves them,
# in three ways:
#
# - **arithmetic**: the logits and gradients of one batch on this device, against float64 on the CPU. The bound comes
#   from the number of roundings and the length of the sums; unit 09 derives it;
# - **losses**: of the first step, of the last steps, of validation. Same configuration, same data in the same order;
# - **speed**, which is reported and not judged.
#
# `before` is a short run on the CPU, and `here` the same code on whatever is there: a GPU of either vendor, or again
# the CPU. On a real AMD GPU the same cell uses it: written, and not yet run on AMD silicon.

# %% the parity report
config = replace(TrainConfig.preset("cpu"), steps=20, warmup=2, eval_batches=4)
before = train(config, device="cpu", unit="01", progress=None).record
here = train(config, unit="03", progress=None).record
arithmetic = agreement()
print(parity(before, here, arithmetic))

# %% [markdown] predict the mask
# On a CPU both columns agree to the last digit, as they should: one code path, one machine. What does the report say
# when the port is wrong? A classic: the attention kernel is exchanged for one of the new platform, and the flag
# `is_causal` gets lost. Each token then sees its future.
#
# **Predict.** Which of the losses gives it away after 20 steps: that of the first step, the mean of the last ones, or
# validation? And in which direction are they off?

# %% guess the mask
my_guess = None

# %% a port that lost its mask
fused = torch.nn.functional.scaled_dot_product_attention


def without_mask(q, k, v, **flags):
    return fused(q, k, v)


with patch("torch.nn.functional.scaled_dot_product_attention", without_mask):
    wrong = train(config, unit="03", progress=None).record
print(f"your guess: {my_guess}")
print(parity(before, wrong, arithmetic))

# %% [markdown] the first step
# The first step gives it away, by ten times its bound. Its loss depends on nothing but the initial weights, one batch
# and the arithmetic, so the bound is tight, and the missing mask shows in the third decimal. Later losses carry the
# noise of their batches, and their bounds are wide: validation passes here, with no mask in any step. And where the
# losses are off, they are *lower*: a model that sees its targets can copy them. A loss that is too good is a bug
# report. So compare **the first step first**, and only then a curve.
#
# For the whole run there is a script: `.venv/bin/python work/03_porting_to_rocm/train.py` trains the preset of this
# machine and compares with the newest record of unit 01.

# %% against the record of unit 01
try:
    print(parity(latest_record("01"), here, arithmetic))
except RecordError as problem:
    print(problem)

# %% [markdown] logs
# ## 6. Reading a failure log
#
# When a job fails on a node, the log has a thousand lines and the last one is useless: it is the launcher, reporting
# that something ended. A method:
#
# 1. **The first error in time**, of any rank. All later ones may be its consequences: a rank that waits for a dead one
#    reports a timeout.
# 2. **Who speaks?** The words tell the layer, and the layer tells where to look.
# 3. **What did it find, and what did it expect?** Say both in one sentence. If you cannot, read on above the error.
# 4. **Is that the line?** GPU errors are reported late, at whatever call comes next. `AMD_SERIALIZE_KERNEL=3` (NVIDIA:
#    `CUDA_LAUNCH_BLOCKING=1`) makes every launch wait.
# 5. **The smallest experiment** that tells your two best explanations apart. Then change one thing.
#
# | words | who speaks | look at |
# |---|---|---|
# | `error: static assertion failed`, `invalid output constraint` | hipcc, clang | the source: section 1, 2 |
# | `couldn't allocate output register`, `LLVM ERROR` | Triton's compiler | inline assembly, options of the launch |
# | `OutOfResources: ... Hardware limit: 65536` | Triton, loading | tile and `num_stages` |
# | `HIP error: invalid device function` | HIP's runtime | for which targets was the library built? |
# | `HIP error: operation not permitted when stream is capturing` | HIP's runtime | what runs inside the capture |
# | `unsupported architecture` | hipBLASLt, PyTorch | the list of chips of that library |
# | `device_count() = 0`, `No HIP GPUs are available` | the environment | visibility variables, `HSA_OVERRIDE_...` |
# | `NCCL WARN`, `watchdog`, `timeout` | RCCL, PyTorch's process group | a *consequence*: which rank died first? |
# | `Found no NVIDIA driver`, on an AMD node | PyTorch | a CUDA build; install the one for ROCm |
# | peer access fails between GPUs of a node | RCCL, HIP | a `ROCR_VISIBLE_DEVICES` of its own for each rank? |
# | no error; every new shape takes long | nobody | TunableOp is still tuning |
# | no error; loss is NaN, or another curve | nobody | FP8 flavour and 448, denormals, tf32, width 32 |
#
# An example. The job trained on a node with MI250X, and was moved to one with MI300X.

# %% a log
LOG = """\
09:14:02 launcher  torchrun --nproc-per-node 8 train.py
09:14:09 rank 0    torch 2.13.0, hip 7.1, device_count 8, AMD Instinct MI300X
09:14:11 rank 5    loading normq_ext from /opt/job/build-gfx90a/normq.so
09:14:15 rank 0    step 0 started
09:14:16 rank 5    RuntimeError: HIP error: invalid device function
09:14:16 rank 5    HIP kernel errors might be asynchronously reported at some other API call
09:14:16 rank 5      File "train.py", line 88, in step: loss.item()
09:14:17 rank 2    RuntimeError: HIP error: invalid device function
09:24:16 rank 0    Watchdog caught collective operation timeout: ALLREDUCE, 600000 ms
09:24:17 rank 0    [PG 0] NCCL error: remote process exited or there was a network error
09:24:18 launcher  ChildFailedError: train.py FAILED, exit code 1, root cause (first observed): rank 0
"""

# %% [markdown] predict the cause
# **Predict** before you go on: which line is the first error, who speaks, which line of Python is *not* guilty, and
# what is the cause?

# %% guess the cause
my_guess = None

# %% first error first
errors = [line for line in LOG.splitlines() if re.search(r"[Ee]rror|timeout", line)]
print(f"your guess: {my_guess}")
print("first:", errors[0])
print("last: ", errors[-1])

# %% [markdown] triaged
# 1. First in time: rank 5, `HIP error: invalid device function`. Ten minutes later rank 0 gives up waiting, and the
#    launcher calls rank 0 the root cause, because it ended the job. Who believes the last line looks for a fault in
#    the network.
# 2. HIP's runtime speaks.
# 3. It was asked to launch a kernel, and found no code for this chip. It expected code for `gfx942`; a line above
#    says what there is: `build-gfx90a`. AMD's machine code runs on its own target only, and nothing portable lies
#    beside it as PTX does in most CUDA libraries, unless somebody asked for it when building.
# 4. `loss.item()` is innocent: it is merely the first call that waits.
# 5. Two explanations: the library has no `gfx942`, or the process sees another chip than we think. One experiment,
#    with no job at all: `roc-obj-ls normq.so` lists the targets inside. To see the guilty line of Python, start one
#    rank with `AMD_SERIALIZE_KERNEL=3`. Cure: build with `PYTORCH_ROCM_ARCH="gfx90a;gfx942"`.
#
# > **Facts: logs on AMD**
# >
# > - `HIP error: invalid device function` was, in many reports, a library without code for the chip; `roc-obj-ls` shows
# >   which targets it has. (source: [pytorch #132570](https://github.com/pytorch/pytorch/issues/132570),
# >   [pytorch #147626](https://github.com/pytorch/pytorch/issues/147626))
# > - AMD's portable forms must be asked for: a generic target such as `gfx11-generic`, which serves one family, or
# >   SPIR-V (`amdgcnspirv`), which the runtime translates for the chip at hand. (source: [ROCm, code portability and
# >   compression](https://rocm.docs.amd.com/projects/llvm-project/en/latest/conceptual/code-portability.html))
# > - `AMD_SERIALIZE_KERNEL=3` makes HIP wait at each launch, `AMD_LOG_LEVEL=4` prints every call of HIP. (source:
# >   [ROCm/hip #3876](https://github.com/ROCm/hip/issues/3876),
# >   [ROCm/rccl #2022](https://github.com/ROCm/rccl/issues/2022))
#
# The lab has twelve more, and tells you for each wrong guess which line speaks against it. There your method becomes a
# function over the text of a log: words to search for, and the first error in time before its consequences.
#
# ## Summary
#
# - The width of a wave follows the chip: 32 on NVIDIA and RDNA, 64 on CDNA. The mistake is *mixing* a fixed 32 with
#   `warpSize`. The identity matrix shows which lanes a reduction loses.
# - Ballots and masks are 64 bits on AMD: `unsigned long long`, `__popcll`, `1ull`, `~0ull`. They are right on NVIDIA,
#   too.
# - A lane is the thread's number modulo `warpSize`, x fastest. Shared memory has room for the narrowest wave; loops
#   run to the real count.
# - hipify renames; it does not understand. Read what is left: headers, guards, PTX, 32, 448, 96 KB, and `setup.py`.
# - In Triton the traps are limits and defaults: LDS when loading, stages, spills, TF32 against XF32 against float32,
#   FP8 flavours, constraints.
# - Ask for the target, not for a capability; for a device, not for CUDA. Set one layer of visibility.
# - In a log the first error counts, and the layer that speaks.
#
# ## Read next
#
# - [HIP porting guide](https://rocm.docs.amd.com/projects/HIP/en/latest/how-to/hip_porting_guide.html) and [HIP C++
#   language extensions](https://rocm.docs.amd.com/projects/HIP/en/latest/how-to/hip_cpp_language_extensions.html):
#   macros, `warpSize`, cross-lane functions.
# - [PyTorch, HIP (ROCm) semantics](https://docs.pytorch.org/docs/stable/notes/hip.html).
# - [ROCm, workload optimization
#   guide](https://rocm.docs.amd.com/en/latest/how-to/rocm-for-ai/inference-optimization/workload.html): Triton's
#   options on MI300X, RCCL, TunableOp.
# - [ROCm, GPU isolation techniques](https://rocm.docs.amd.com/en/latest/conceptual/gpu-isolation.html).
# - [LLVM, user guide for the AMDGPU backend](https://llvm.org/docs/AMDGPUUsage.html): registers, attributes, inline
#   assembly.
# - [OCP 8-bit floating point specification](https://www.opencompute.org/documents/ocp-8-bit-floating-point-specification-ofp8-revision-1-0-2023-12-01-pdf-1):
#   E4M3 and E5M2.
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
# <details><summary>Tiles of 128 x 64 and 64 x 256 in bf16. How many stages fit on gfx942?</summary>
#
# A has 16 KiB, B 32 KiB. One stage takes 32, two take 48, three take 96: two stages.
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
