# %% [markdown]
# # Lab 03: from CUDA to ROCm
#
# **Eleven exercises.** Three C++ kernels that must be right for every width of a wave, then what Triton, a training
# script and a whole node need. Four to six hours, on any machine; each exercise stands alone.
#
# A check, its hints and its solution work as before: `hint("03.warp_reduce")`, `solution("03.warp_reduce")`. New are
# the answers in C++:
#
# - Such an answer is a Python function that returns CUDA-style C++ as a string. Write your lines where it says
#   `// YOUR CODE`, in place of the `#error` below it.
# - The check compiles your source for `sm_80` (warps of 32), `gfx942` (wavefronts of 64) and `gfx1100` (AMD too, waves
#   of 32), and executes the machine code of all three on virtual GPUs. It does so on machines with a real GPU as well:
#   the vendors' own C++ compilers are not needed.
# - The compiler is clang, from the extra `hip`: start the course once with `W2W_EXTRAS=hip ./w2w study`. Without it,
#   only sources of which the course has a stored listing can be graded, such as the solution; a check says so.
# - The names are CUDA's, and those of AMD that differ: `gpu_utils/compiler/include/w2w_gpu.h` lists them all.
#
# Nothing here has run on AMD silicon: AMD's machine code is compiled here, and executed on the virtual GPU.

# %% imports tags=["setup"]
import torch
import triton
import triton.language as tl
from torch import Tensor

from gpu_utils import check, hint, progress, solution
from gpu_utils.lesson import GPT2, TARGETS, GPT2Config, learning_rate
from gpu_utils.lesson import parameter_groups, public_logs

# %% [markdown] statement of warp_reduce
# ## 03.warp_reduce: a sum over a block
#
# $$\text{out}_r = \sum_{c=0}^{\text{columns}-1} x_{r,c} \qquad 0 \le r < \text{rows}$$
#
# One block sums one row. The kernel `row_sum` is given: each thread adds up every `blockDim.x`-th element of the row,
# then all threads call `block_sum`, and thread 0 stores what it returned. **Write `block_sum(float value)`**: the sum
# of `value` over all threads of the block, returned to thread 0.
#
# **Given** blocks of 32 to 1024 threads, a multiple of 32, in one dimension; `x` of shape `(rows, columns)`, contiguous
# float32, `columns` 1 or more; `out` of shape `(rows,)`, float32. It must be right for every width of a wave.
#
# The usual way has three steps: add up inside each wave with shuffles, write one sum a wave to shared memory, let the
# first wave add those up. With waves of 4 (for the example) and a block of 8 threads whose values are 1 to 8:
#
# | | lane 0 | lane 1 | lane 2 | lane 3 | lane 0 | lane 1 | lane 2 | lane 3 |
# |---|---|---|---|---|---|---|---|---|
# | value | 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 |
# | plus the lane 2 further on | 4 | 6 | · | · | 12 | 14 | · | · |
# | plus the lane 1 further on | **10** | · | · | · | **26** | · | · | · |
# | shared memory: 10, 26 | **36** | | | | | | | |
#
# What you have: `warpSize`, `threadIdx.x`, `blockDim.x`, `__shared__`, `__syncthreads()`, and
# `__shfl_down_sync(mask, value, offset)`, which gives the `value` of the lane `offset` further on. Past the end of the
# wave it gives the lane its own; from a lane of the wave that is not there it gives 0 on `gfx942`, which no standard
# promises (lesson, section 2). The check lets you use that 0, which changes no sum; to ask first whether the lane is
# there is better, and right for a maximum, too. The mask must name the lanes that call: which
# function tells them?


# %% 03.warp_reduce tags=["answer", "03.warp_reduce"]
def warp_reduce() -> str:
    """C++ of row_sum(x, out, columns): a block sums a row, on waves of any width."""
    return """
// INSERT gpu_utils/exercises/u03_porting_to_rocm/warp_reduce.cu
"""


# %% 03.warp_reduce check tags=["check", "03.warp_reduce"]
check("03.warp_reduce")

# %% [markdown] why warp_reduce
# **Why it matters.** A reduction like this is at the bottom of every norm, softmax and loss. With 16 as its first step
# it compiles for AMD without a warning and returns half of the sum: nothing crashes, the loss is just wrong. The mask
# is the milder fault, because ROCm refuses it when it compiles (ROCm/hip #3667, cupy #9977).

# %% [markdown] statement of ballot
# ## 03.ballot: pack what is kept
#
# The kernel `compact` moves the elements above zero of each block's piece of `x` to the front of the same piece of
# `out`, in their order, and counts them. It is given, but for one function. **Write `place_in_wave(bool keep, int
# *kept)`**:
#
# - it returns, for the lane that calls it, how many lanes of the same wave *before* it have `keep` set;
# - it stores in `*kept` how many lanes of its whole wave have `keep` set, the same number for every lane.
#
# **Given** blocks of 32 to 1024 threads in one dimension, the last wave not always full; all lanes of a wave call the
# function together. `x` and `out` are float32 of shape `(n,)`, `count` is int32, one for each block. It must be right
# for every width of a wave.
#
# With waves of 4 (for the example):
#
# | | lane 0 | lane 1 | lane 2 | lane 3 |
# |---|---|---|---|---|
# | x | 0.7 | -1.2 | 0.9 | 1.1 |
# | keep | yes | no | yes | yes |
# | returned | 0 | 1 | 1 | 2 |
# | `*kept` | 3 | 3 | 3 | 3 |
#
# So lane 0 stores to place 0, lane 2 to place 1 and lane 3 to place 2; what lane 1 got is not used.
#
# `__ballot_sync(mask, keep)` gives every lane of the wave the votes of all: bit `l` is set when lane `l` voted yes. It
# has 32 bits on NVIDIA, and 64 on AMD, whatever the width of the wave. `__popc(unsigned)` and `__popcll(unsigned long
# long)` count the bits that are set. Arithmetic on the bits is C++ as you know it.


# %% 03.ballot tags=["answer", "03.ballot"]
def ballot() -> str:
    """C++ of compact(x, out, count, n): what is above zero moves to the front."""
    return """
// INSERT gpu_utils/exercises/u03_porting_to_rocm/ballot.cu
"""


# %% 03.ballot check tags=["check", "03.ballot"]
check("03.ballot")

# %% [markdown] why ballot
# **Why it matters.** Packing by votes is a common way to keep some elements of many without an atomic for each of them.
# Votes held in 32 bits, with the lane taken from `tid & 31`, lost results on AMD GPUs without an error in programs of a
# public benchmark suite (ORNL/HeCBench #167, #177).

# %% [markdown] statement of lane_id
# ## 03.lane_id: who am I in my wave?
#
# The kernel `running_sum` adds up the elements of a block: `sums[t]` is `x[0] + ... + x[t]`, and `total` is the whole
# sum. It is given, and needs five things of yours:
#
# | | |
# |---|---|
# | `MAX_WAVES` | a compile-time constant: the most waves that a block of at most 1024 threads has on any target |
# | `lane_id()` | the place of the calling thread in its wave, from 0 |
# | `wave_id()` | the number of its wave in the block, from 0 |
# | `wave_count()` | how many waves the block has, a partly filled last one included |
# | `place_of(wave, lane)` | the way back: `{x, y, z}` of the thread in that lane of that wave |
#
# **Given** blocks of any shape with up to 1024 threads, also in two and three dimensions. `thread_id()` and
# `thread_count()` are there; waves are cut from the threads in the order of `thread_id()`. `x`, `sums` (float32) and
# `number` (int32) have shape `(blocks, threads)`, `partner` (int32) has shape `(blocks, threads, 3)`, `total` (float32)
# has shape `(blocks,)`. It must be right for every width of a wave.
#
# With waves of 4 (for the example), a block of (3, 2) threads is two waves, the second half empty:
#
# | `threadIdx` (x, y) | (0, 0) | (1, 0) | (2, 0) | (0, 1) | (1, 1) | (2, 1) |
# |---|---|---|---|---|---|---|
# | `thread_id()` | 0 | 1 | 2 | 3 | 4 | 5 |
# | `lane_id()` | 0 | 1 | 2 | 3 | 0 | 1 |
# | `wave_id()` | 0 | 0 | 0 | 0 | 1 | 1 |
#
# So `place_of(1, 1)` is `{2, 1, 0}`: thread (2, 1) has lane 1 of wave 1. Debuggers speak of waves and lanes, source
# code of `threadIdx`, and this is the way from one to the other.
#
# The kernel also stores `number[t] = wave_id() * warpSize + lane_id()`, which must be the thread's own number: where it
# is not, you have found the lane. And it stores in `partner` where the thread in the lane beside sits.


# %% 03.lane_id tags=["answer", "03.lane_id"]
def lane_id() -> str:
    """C++ of running_sum(x, number, partner, sums, total), for blocks of any shape."""
    return """
// INSERT gpu_utils/exercises/u03_porting_to_rocm/lane_id.cu
"""


# %% 03.lane_id check tags=["check", "03.lane_id"]
check("03.lane_id")

# %% [markdown] why lane_id
# **Why it matters.** A width of 32 is written down in many ways: `& 31`, `>> 5`, a block of (32, 8), an array for 32
# warps. Each is far from the line that fails. Code that took `warpSize` for a constant stopped compiling with ROCm 7
# (pytorch #156979, vllm #20330): that is the good case, because the compiler says so.

# %% [markdown] statement of shared_budget
# ## 03.shared_budget: how deep may the pipeline be?
#
# A Triton matmul keeps tiles of A (`BLOCK_M` x `BLOCK_K`) and of B (`BLOCK_K` x `BLOCK_N`) in shared memory (LDS on
# AMD). `num_stages` says how many iterations of its loop are in flight at a time. The compiler (Triton 3.7.1) asks for
# so many KiB with tiles of 64 x 64 and 64 x 128 in float16, that is 8 KiB for A and 16 KiB for B:
#
# | `num_stages` | 1 | 2 | 3 | 4 |
# |---|---|---|---|---|
# | `sm_90`, `sm_100` | 24 | 48 | 72 | 96 |
# | `sm_80`, `sm_89` | 24 | 24 | 48 | 72 |
# | every `gfx` | 16 | 24 | 48 | 72 |
#
# Which tiles wait where? Section 4 of the lesson says it in words. Find the rule for any tile, then decide with it.
#
# **Write** `shared_budget(target, BLOCK_M, BLOCK_N, BLOCK_K, bytes_per_value) -> int`: the largest `num_stages` from 1
# to 8 with which the kernel still loads on `target`, or 0 when it loads with none. `TARGETS[target]` has what you need:
# `vendor` ("nvidia" or "amd") and `shared_per_block`, the bytes that one block may have.
#
# For example, 64 x 64 tiles of float16 with `BLOCK_K = 256`: $a = b = 32$ KiB. On `gfx942`, with 64 KiB, one stage asks
# for 32 KiB, two for 64 KiB, three for 128 KiB: the answer is 2. On `sm_90`, with 227 KiB, it is 3.
#
# On NVIDIA the tile of C passes through the same memory at the end and may ask for more than a shallow pipeline; at the
# depths in question here it never does. `BLOCK_M` is 64 or more in all cases.
#
# The check compiles a matmul for the target with the depth in question and with one more, and reads what the compiler
# asks for. Its first run takes about ten seconds, later ones are fast.
# `hint("03.shared_budget")` gives three hints.


# %% 03.shared_budget tags=["answer", "03.shared_budget"]
def shared_budget(
    target: str, BLOCK_M: int, BLOCK_N: int, BLOCK_K: int, bytes_per_value: int
) -> int:
    """The largest num_stages (1 to 8) that fits a block on `target`; 0 when none does.

    >>> shared_budget("gfx942", 64, 64, 256, 2), shared_budget("sm_90", 64, 64, 256, 2)
    (2, 3)
    """
    # BEGIN SOLUTION
    limits = TARGETS[target]
    a, b = BLOCK_M * BLOCK_K * bytes_per_value, BLOCK_K * BLOCK_N * bytes_per_value

    def needs(stages: int) -> int:
        if limits.vendor == "amd":
            return max(a, b) if stages == 1 else (stages - 1) * (a + b)
        if target in ("sm_90", "sm_100"):
            return stages * (a + b)
        return max(1, stages - 1) * (a + b)

    fits = [n for n in range(1, 9) if needs(n) <= limits.shared_per_block]
    return max(fits, default=0)
    # END SOLUTION


# %% 03.shared_budget check tags=["check", "03.shared_budget"]
check("03.shared_budget")

# %% [markdown] why shared_budget
# **Why it matters.** A list of tiles that was tuned on an H100 compiles for MI300X without a word. The kernel then
# fails when it is loaded ("Required: 73728, Hardware limit: 65536", vllm #17744), in the middle of a run of the tuner.
# Filter the list by target first. Deeper is not always faster, either: AMD's guide for Triton recommends `num_stages=2`
# for a single matrix product.

# %% [markdown] statement of fp8_weights
# ## 03.fp8_weights: an H100's FP8 checkpoint on any target
#
# A model was published in FP8, for the H100: bytes in the format FN, and a float32 scale for each row. A weight is the
# number that its byte stands for, times the scale of its row. Load it on whatever the machine has.
#
# **Write** `fp8_weights(codes, scale, target) -> (weights, scale)`.
#
# - `codes`: uint8, (rows, cols), any of the 256 bytes. `scale`: float32, (rows, 1). `target`: a string such as
#   `"sm_100"` or `"gfx942"`; targets that you have not met yet may come.
# - The weights you return have the shape of `codes` and the E4M3 dtype that `target` computes in:
#   `torch.float8_e4m3fn`, or `torch.float8_e4m3fnuz`. Where it has none they are `torch.bfloat16`.
# - `weights.float() * scale`, of what you return, is exactly what the checkpoint says, for every byte. What was NaN
#   stays NaN.
# - `codes` and `scale` stay as they are.
#
# Which targets have which format is the table in the lesson's section 5; what the bytes mean in both is the first table
# of that section. Work on the bytes or on the values: either way is short. Before you write: which factors could the
# scale change by, and what does each lose? A chip's generation has the same abilities under every number: what do you
# do with an `sm_120`, a `gfx1101`?


# %% 03.fp8_weights tags=["answer", "03.fp8_weights"]
def fp8_weights(
    codes: torch.Tensor, scale: torch.Tensor, target: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """FN weights of a checkpoint in the format of `target`, and the scale with them.

    >>> codes = torch.tensor([[0x38, 0x80]], dtype=torch.uint8)   # 1.0 and -0.0 in FN
    >>> weights, scale = fp8_weights(codes, torch.tensor([[0.5]]), "gfx942")
    >>> weights.dtype, (weights.float() * scale).tolist()
    (torch.float8_e4m3fnuz, [[0.5, 0.0]])
    """
    # BEGIN SOLUTION
    if target.startswith("sm_"):
        ocp = int(target.removeprefix("sm_")) >= 89
    else:
        ocp = target == "gfx950" or target.startswith("gfx12")
    weights = codes.view(torch.float8_e4m3fn)
    if ocp:
        return weights, scale
    if target != "gfx942":
        return weights.to(torch.bfloat16), scale
    kept = codes.clone()
    kept[codes == 0x80] = 0
    kept[weights.isnan()] = 0x80
    return kept.view(torch.float8_e4m3fnuz), scale * 2
    # END SOLUTION


# %% 03.fp8_weights check tags=["check", "03.fp8_weights"]
check("03.fp8_weights")

# %% [markdown] why fp8_weights
# **Why it matters.** vLLM does this when it loads an FP8 checkpoint on an MI300X
# ([`normalize_e4m3fn_to_e4m3fnuz`](https://github.com/vllm-project/vllm/blob/main/vllm/model_executor/layers/quantization/utils/w8a8_utils.py)):
# it doubles the scale and looks after `0x80`. Without it the model runs, with every weight halved. Activations have the
# same trap at the other end: a quantiser with 448 written into it turns large ones into NaN (pytorch/ao #4130). Unit 08
# takes the formats apart, bit by bit.

# %% [markdown] the next project
# The next exercise works on a project of twelve files, as hipify left it. The cell below runs hipify and lists what a
# reader of the text finds afterwards: the kind, file and line, and what stands there. Look at the files that it names.

# %% the project after hipify
from gpu_utils.lesson import hipified_project, leftovers

files = hipified_project()
for one in leftovers(files):
    print(f"{one.kind:15}{one}")

# %% one of its files
print(files["csrc/kernels_hip.cuh"])

# %% [markdown] statement of hipify_fixups
# ## 03.hipify_fixups: what hipify missed
#
# The project in `gpu_utils/exercises/u03_porting_to_rocm/project` is a PyTorch extension of twelve files: residual add,
# RMSNorm and FP8 in one kernel, a counter of clipped values, GELU in bfloat16, a ring of streams, an all-reduce, a
# GEMM, ranges for the profiler, a binding and `setup.py`. hipify has translated it. **Write `hipify_fixups(files)`**:
# it gets the files that hipify wrote, as a dict from path to text, and returns a dict with the same paths and the fixed
# texts.
#
# Write rules, not a finished text: real projects stay CUDA at the source and run hipify and such a script at every
# build. So the check also gives you the same project from other teams. There the namespace, the start of the macros'
# names (`NORMQ_`) and of the kernels', `kHidden`, `kThreads` and `kTileTokens` differ; files, variables and layout do
# not. For example, a rule for one line:
#
# | `files["csrc/comm_hip.cpp"]` | your result |
# |---|---|
# | `#include <nvtx3/roctracer/roctx.h>` | `#include <roctracer/roctx.h>` |
#
# (The new `<rocprofiler-sdk-roctx/roctx.h>` is as right.)
#
# **The result must**
#
# 1. keep nothing of CUDA in code that a ROCm build sees. Comments, and branches of `#if` that it skips, may;
# 2. lose nothing: the host code queues the same kernels with the same arguments on the same streams, waits for the same
#    events, calls hipBLAS, RCCL and the ranges as before, and still notices errors;
# 3. compute the right numbers on `gfx942` (waves of 64, FP8 in FNUZ up to 240), on `gfx950` (waves of 64, FP8 in OCP up
#    to 448) and on `gfx1100` (waves of 32, no FP8 units: either type, with its own maximum). One source for all three;
# 4. ask for at most 64 KiB of LDS a block, static arrays included, and stage whole tokens;
# 5. keep `kHidden`, the kernels' names and parameters, and the names `kTileTokens`, `kStageBytes`, `kFp8Max`.
#
# | for | what ROCm has |
# |---|---|
# | conditions | a ROCm build defines `USE_ROCM` and `__HIP_PLATFORM_AMD__`; device code for CDNA also `__GFX9__` |
# | FP8 | `hip/hip_fp8.h`: `__hip_fp8_e4m3_fnuz` where `HIP_FP8_TYPE_FNUZ` is 1, |
# | | `__hip_fp8_e4m3` (OCP) where `HIP_FP8_TYPE_OCP` is 1; `gfx1100` has both, in software |
# | a launch | `hipLaunchKernelGGL(kernel, grid, block, lds_bytes, stream, arguments...)`, which returns nothing; |
# | | `hipLaunchKernelEx(&config, kernel, arguments...)` with a `hipLaunchConfig_t`, which returns an error |
# | $2^x$ | `exp2f(x)` |
# | lanes | votes and masks of 64 bits (`unsigned long long`, `1ull`), `__popcll` |
# | libraries | `hipblas`, `rccl`, `roctx64` (the new header: `rocprofiler-sdk-roctx`) |
# | flags | hipcc knows `-O3` and `-ffast-math` |
# | in setup.py | `torch.version.hip` is None in a CUDA build, and a string in a ROCm build |
#
# Two of the public cases read the text, and run the host code against a runtime that writes down every call. The others
# compile `csrc/kernels_hip.cuh` with clang and execute it on virtual GPUs. Both need the extra `hip`. Without it, a
# right answer shows as not graded.


# %% 03.hipify_fixups tags=["answer", "03.hipify_fixups"]
def hipify_fixups(files: dict[str, str]) -> dict[str, str]:
    """Fixes what hipify left: path -> text in, the same paths with fixed texts out.

    >>> fixed = hipify_fixups({"csrc/a.cpp": "#include <nvtx3/roctracer/roctx.h>"})
    >>> fixed["csrc/a.cpp"]
    '#include <roctracer/roctx.h>'
    """
    # BEGIN SOLUTION
    import re

    width = "#ifdef __GFX9__\n#define WARP_SIZE 64\n#else\n#define WARP_SIZE 32\n#endif"
    fp8 = (
        "#if HIP_FP8_TYPE_FNUZ\nusing fp8_t = __hip_fp8_e4m3_fnuz;\nconstexpr float kFp8Max = 240.0f;\n"
        "#else\nusing fp8_t = __hip_fp8_e4m3;\nconstexpr float kFp8Max = 448.0f;\n#endif"
    )
    launch = (
        r"hipLaunchKernelGGL(\2, dim3((tokens + kTileTokens - 1) / kTileTokens), dim3(kThreads), kStageBytes, stream, "
        r"\3);\n  \1(hipGetLastError());"
    )
    build = (
        "import torch\n\nROCM = torch.version.hip is not None\n"
        'LIBRARIES = ["hipblas", "rccl", "roctx64"] if ROCM else \\1\n'
        'DEVICE_FLAGS = ["-O3", "-ffast-math"] if ROCM else \\2'
    )
    plain = (
        ("nvtx3/roctracer/roctx.h", "roctracer/roctx.h"),
        ("<cuda_fp8.h>", "<hip/hip_fp8.h>"),
        ("#define WARP_SIZE 32", width),
        ("0xffffffffu", "0xffffffffffffffffull"),
        ("const unsigned vote", "const unsigned long long vote"),
        ("__popc(", "__popcll("),
        ("(1u << lane) - 1u", "(1ull << lane) - 1ull"),
        ("#if __CUDA_ARCH__ >= 800", "#if defined(USE_ROCM) || __CUDA_ARCH__ >= 800"),
    )
    patterns = (
        (r"kTileTokens = \d+;", "kTileTokens = 60 * 1024 / (kHidden * 4);"),  # the rest is for block_reduce
        (r"using fp8_t = .*?;\n.*?448.0f;", fp8),
        (r'asm\("ex2\..*?\);', "y = exp2f(x);"),
        (r"cudaLaunchAttribute overlap.*?(\w+_CHECK)\(cudaLaunchKernelEx\(&config, (\w+), (.*?)\)\);", launch),
        (r"LIBRARIES = (.*?)\nDEVICE_FLAGS = (.*?\])", build),
    )
    fixed = {}
    for path, text in files.items():
        for old, new in plain:
            text = text.replace(old, new)
        for pattern, new in patterns:
            text = re.sub(pattern, new, text, flags=re.DOTALL)
        if path.endswith("hopper_hip.cuh"):
            text = f"#ifndef USE_ROCM\n{text}\n#endif\n"
        fixed[path] = text
    return fixed
    # END SOLUTION


# %% 03.hipify_fixups check tags=["check", "03.hipify_fixups"]
check("03.hipify_fixups")

# %% [markdown] why hipify_fixups
# **Why it matters.** What hipify leaves to the compiler to find is the harmless part: a missing header stops the build.
# Three things here build without a word and are wrong: the guard compiles GELU away, the vote drops lanes 32 to 63, and
# the FP8 maximum clips. A fourth builds and then fails at the launch: the LDS. That is why a port is tested with
# numbers, on every width of wave that it will meet, before it is timed.

# %% [markdown] statement of device_agnostic
# ## 03.device_agnostic: ask the right question
#
# A training script chose its settings like this. It worked on one machine with eight equal NVIDIA GPUs:
#
# ```python
# device = "cuda" if torch.version.cuda else "cpu"
# major, minor = torch.cuda.get_device_capability()
# target = f"sm_{major}{minor}"
# dtype = torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
# fp8 = (major, minor) >= (8, 9)
# lanes = 32
# ranks = len(os.environ["CUDA_VISIBLE_DEVICES"].split(","))
# ```
#
# Every line asks something else than it means, and all of them take for granted that GPUs are equal. They are not: the
# graphics inside a CPU may be GPU 0, before the card that you bought (ROCm/TheRock #3392), and an old card may stand
# beside new ones. So the job takes **GPUs of one kind: those with the target of the GPU that has most memory** (the
# first of them, where several have as much).
#
# **Write** `device_agnostic() -> dict` with eight settings for the machine that it runs on:
#
# | key | value with a GPU | with none |
# |---|---|---|
# | `device` | the device string of that GPU, with its number: `"cuda:0"` | `"cpu"` |
# | `target` | its target: `"sm_90"`, `"gfx942"`, ... | `"cpu"` |
# | `dtype` | `"bfloat16"` where its hardware has it, else `"float16"` | `"float32"` |
# | `grad_scaler` | whether gradients need scaling: only in float16 | `False` |
# | `fp8` | whether the target has FP8 (as in 03.fp8_weights) | `False` |
# | `lanes` | lanes that run together on it | `1` |
# | `process_group` | backend of `torch.distributed` | `"gloo"` |
# | `ranks` | GPUs of this kind that torch sees | `1` |
#
# Ask `torch.version` and `torch.cuda`, each time the function is called: the check puts you on machines of both
# vendors, with equal GPUs, with different ones and with none, by changing what these say. (`nvidia-smi` is no part of
# any of them.) `get_device_properties(number)` has these fields:
#
# | | `major`, `minor` | `total_memory` | `gcnArchName` | `warp_size` |
# |---|---|---|---|---|
# | H100 | 9, 0 | 80 GiB, in bytes | `"NVIDIA H100 80GB HBM3"`: a CUDA build gives the name here | 32 |
# | MI300X | 9, 4 | 192 GiB, in bytes | `"gfx942:sramecc+:xnack-"`: the target and two features | 64 |
#
# For example, one MI300X gives `{"device": "cuda:0", "target": "gfx942", "dtype": "bfloat16", "grad_scaler": False,
# "fp8": True, "lanes": 64, "process_group": "nccl", "ranks": 1}`.


# %% 03.device_agnostic tags=["answer", "03.device_agnostic"]
def device_agnostic() -> dict[str, str | int | bool]:
    """The eight settings for this machine, by name."""
    if not torch.cuda.is_available():
        return {
            "device": "cpu",
            "target": "cpu",
            "dtype": "float32",
            "grad_scaler": False,
            "fp8": False,
            "lanes": 1,
            "process_group": "gloo",
            "ranks": 1,
        }
    # BEGIN SOLUTION
    gpus = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    if torch.version.hip:
        targets = [gpu.gcnArchName.split(":")[0] for gpu in gpus]
    else:
        targets = [f"sm_{gpu.major}{gpu.minor}" for gpu in gpus]
    memory = [gpu.total_memory for gpu in gpus]
    chosen = memory.index(max(memory))
    gpu, target = gpus[chosen], targets[chosen]
    with torch.cuda.device(chosen):
        bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
    amd_fp8 = target in ("gfx942", "gfx950") or target.startswith("gfx12")
    return {
        "device": f"cuda:{chosen}",
        "target": target,
        "dtype": "bfloat16" if bf16 else "float16",
        "grad_scaler": not bf16,
        "fp8": amd_fp8 if torch.version.hip else (gpu.major, gpu.minor) >= (8, 9),
        "lanes": gpu.warp_size,
        "process_group": "nccl",
        "ranks": targets.count(target),
    }
    # END SOLUTION


# %% 03.device_agnostic check tags=["check", "03.device_agnostic"]
check("03.device_agnostic")

# %% [markdown] why device_agnostic
# **Why it matters.** Each of these questions has been asked wrongly in public. A test for Hopper by capability chose
# FlashAttention 3 on MI350X, which has none (torchtitan #4778); the same pair of numbers means "has FP8" on one vendor
# and "has none" on the other (vllm #40620). Ask for the property that you need. Where torch does not know it, ask for
# the target.

# %% [markdown] statement of inline_asm
# ## 03.inline_asm: a line of PTX, and its twin
#
# Weights of 8 bits come four to an int32 word, and the kernel wants float16. A well-known trick does it with no
# conversion: `0x6400` is 1024 in float16, and there its lowest bit is worth 1. So a byte $w$ in the low half of
# `0x64__` reads as $1024 + w$, exactly:
#
# $$\text{halves}_{i,j} = 1024 + \text{byte}_j(\text{words}_i) \qquad 0 \le i < n,\; 0 \le j < 4$$
#
# with byte 0 the lowest. The old kernel makes two of them at a time with one byte permute of PTX:
#
# ```python
# magic = 0x64646464
# low = tl.inline_asm_elementwise(
#     "prmt.b32 $0, $1, $2, 0x4140;", "=r,r,r", [words, magic],
#     dtype=tl.int32, is_pure=True, pack=1)
# high = tl.inline_asm_elementwise(
#     "prmt.b32 $0, $1, $2, 0x4342;", "=r,r,r", [words, magic],
#     dtype=tl.int32, is_pure=True, pack=1)
# ```
#
# **Port it.** On NVIDIA these lines stay. On AMD use `v_perm_b32 $0, $1, $2, $3`, with the selector as the third
# operand (gfx9 takes no 32-bit literal there). How the two number the bytes, and which letters name their registers,
# stands in section 6 of the lesson.
#
# In both, the lowest digit or byte of the selector chooses the lowest byte of the result. In `0x4140` that is byte 0 of
# the word, then a `0x64`, byte 1, and a `0x64` again: in memory, $1024 + \text{byte}_0$ and $1024 + \text{byte}_1$.
# For example, the word `0x04030201` gives 1025, 1026, 1027, 1028.
#
# **Given** `words`: `(n,)` int32, contiguous. **Return** `(n, 4)` float16 on its device. Both parts of the cell are
# yours: the permutes, and what the launcher hands the kernel, which stores words of 32 bits. It is executed for
# `sm_80`, `gfx942`, `gfx1100` and `gfx950`; `triton.runtime.driver.active.get_current_target().backend` is `"cuda"` or
# `"hip"`.


# %% 03.inline_asm tags=["answer", "03.inline_asm"]
@triton.jit
def unpack_kernel(words_ptr, halves_ptr, n, BACKEND: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    words = tl.load(words_ptr + offsets, mask=mask)
    low, high = words, words  # two int32 with two float16 each: your permutes go here
    # BEGIN SOLUTION
    magic = 0x64646464
    if BACKEND == "cuda":
        low = tl.inline_asm_elementwise(
            "prmt.b32 $0, $1, $2, 0x4140;", "=r,r,r", [words, magic], dtype=tl.int32, is_pure=True, pack=1
        )
        high = tl.inline_asm_elementwise(
            "prmt.b32 $0, $1, $2, 0x4342;", "=r,r,r", [words, magic], dtype=tl.int32, is_pure=True, pack=1
        )
    else:
        low = tl.inline_asm_elementwise(
            "v_perm_b32 $0, $1, $2, $3", "=v,v,v,v", [magic, words, 0x04010400], dtype=tl.int32, is_pure=True, pack=1
        )
        high = tl.inline_asm_elementwise(
            "v_perm_b32 $0, $1, $2, $3", "=v,v,v,v", [magic, words, 0x04030402], dtype=tl.int32, is_pure=True, pack=1
        )
    # END SOLUTION
    tl.store(halves_ptr + 2 * offsets, low, mask=mask)
    tl.store(halves_ptr + 2 * offsets + 1, high, mask=mask)


def inline_asm(words: Tensor) -> Tensor:
    """1024 + each byte of `words` (n,) int32, the lowest first: (n, 4) float16."""
    BLOCK = 512
    n = words.numel()
    halves = torch.empty(n, 4, dtype=torch.float16, device=words.device)
    grid = (triton.cdiv(n, BLOCK),)
    # BEGIN SOLUTION
    backend = triton.runtime.driver.active.get_current_target().backend
    unpack_kernel[grid](words, halves.view(torch.int32), n, BACKEND=backend, BLOCK=BLOCK)
    return halves
    # END SOLUTION


# %% 03.inline_asm check tags=["check", "03.inline_asm"]
check("03.inline_asm")

# %% [markdown] why inline_asm
# **Why it matters.** "couldn't allocate output register for constraint 'f'" is how unfenced PTX ends on AMD
# (mamba #1018, sglang #34351), and LLVM takes the whole process with it; the check stops before that. The better port
# is often no assembly at all: three shifts and masks do the same here, and both compilers know how to turn them into
# permutes. And what you write in assembly is no longer looked at: LLVM puts a wait after `v_exp_f32` on gfx942 where
# the next vector instruction needs its result, and it cannot do so for a `v_exp_f32` in your text.

# %% [markdown] statement of launch_env
# ## 03.launch_env: start a job on a node that you cannot see
#
# You get a description of a node and start a training job on it. The launcher starts one process for each dict that you
# return, with `inherited` and on top of it your variables. The script calls `torch.cuda.set_device(local_rank)`, where
# the local rank is the place of the process in your list, so **every process must see exactly the GPUs of `use`, in
# that order**. Write `launch_env(node) -> list[dict[str, str]]`.
#
# | key of `node` | |
# |---|---|
# | `vendor`, `target` | `"amd"` or `"nvidia"`; `"gfx942"` (MI300X), `"gfx90a"`, `"gfx1103"`, `"sm_90"`, ... |
# | `gpus` | GPUs in the node; their physical numbers are 0 to `gpus` - 1 |
# | `use` | physical numbers of the GPUs that the job shall use |
# | `inherited` | variables that are set already. `ROCR_VISIBLE_DEVICES` belongs to the scheduler: leave it alone |
# | `overlap` | True when the job computes while it communicates, as sharded training does |
# | `tuned_gemms` | True when TunableOp's file of results is there and shall be used, without further tuning |
# | `built_for` | targets that the installed GPU libraries were built for |
#
# Set what the facts of section 7 of the lesson set for such a node, and nothing that it has no use for: visibility,
# RCCL's channels and streams on MI300X when several GPUs work together, TunableOp. Where a Radeon target
# (`gfx10..`, `gfx11..`, `gfx12..`) is not in `built_for`, let the GPU pass for the one of the same generation (all
# digits but the last two) that is there: `HSA_OVERRIDE_GFX_VERSION` is written with dots, `"11.0.0"` for `gfx1100`.
# An Instinct chip never passes for another.
#
# For example, two of eight MI250X dies of which a scheduler has hidden the first four:
#
# ```python
# node = {"vendor": "amd", "target": "gfx90a", "gpus": 8, "use": [5, 7],
#         "overlap": False, "tuned_gemms": False, "built_for": ["gfx90a", "gfx942"],
#         "inherited": {"ROCR_VISIBLE_DEVICES": "4,5,6,7"}}
# launch_env(node)  # [{"HIP_VISIBLE_DEVICES": "1,3"}, {"HIP_VISIBLE_DEVICES": "1,3"}]
# ```
#
# The check compares with no text. It asks the rules of `./w2w doctor --node`, which you can try on the descriptions in
# `work/03_porting_to_rocm/nodes/`, and on one of your own. `hint("03.launch_env")` gives three hints.


# %% 03.launch_env tags=["answer", "03.launch_env"]
def launch_env(node: dict) -> list[dict[str, str]]:
    """The variables of each process of the job, by local rank.

    >>> two_dies = {"vendor": "amd", "target": "gfx90a", "gpus": 8, "use": [5, 7]}
    >>> two_dies |= {"overlap": False, "tuned_gemms": False, "built_for": ["gfx90a"]}
    >>> two_dies |= {"inherited": {"ROCR_VISIBLE_DEVICES": "4,5,6,7"}}
    >>> launch_env(two_dies)
    [{'HIP_VISIBLE_DEVICES': '1,3'}, {'HIP_VISIBLE_DEVICES': '1,3'}]
    """
    # BEGIN SOLUTION
    use, inherited, target = node["use"], node["inherited"], node["target"]
    if node["vendor"] == "nvidia":
        variables = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, use))}
    else:
        mask = inherited.get("ROCR_VISIBLE_DEVICES")
        left = [int(number) for number in mask.split(",")] if mask else list(range(node["gpus"]))
        variables = {"HIP_VISIBLE_DEVICES": ",".join(str(left.index(gpu)) for gpu in use)}
    if target == "gfx942" and len(use) > 1:
        variables["NCCL_MIN_NCHANNELS"] = "112"
        if node["overlap"]:
            variables |= {"TORCH_NCCL_HIGH_PRIORITY": "1", "GPU_MAX_HW_QUEUES": "2"}
    if node["tuned_gemms"]:
        variables |= {"PYTORCH_TUNABLEOP_ENABLED": "1", "PYTORCH_TUNABLEOP_TUNING": "0"}
    if target not in node["built_for"] and target.startswith("gfx1"):
        kin = next(other for other in node["built_for"] if other[:-2] == target[:-2])
        variables["HSA_OVERRIDE_GFX_VERSION"] = f"{kin[3:-2]}.{kin[-2]}.{kin[-1]}"
    return [dict(variables) for _ in use]
    # END SOLUTION


# %% 03.launch_env check tags=["check", "03.launch_env"]
check("03.launch_env")

# %% [markdown] why launch_env
# **Why it matters.** A job on the wrong GPUs runs, next to somebody else's. A job that sees none stops at its first
# line, and "No HIP GPUs are available" sends people to look for a driver fault. Frameworks have met both when two
# variables were set at once (ray #53737, SwarmUI #565), and when each process had a mask of its own (vllm #46895).

# %% [markdown] the logs
# ## Sixteen logs
#
# The next exercise is about these sixteen jobs, which failed each in its own way. The texts are the course's own,
# written after public threads (the solution names them). Each is what a collector of a cluster keeps: the first line
# names the job that failed, and every other line has a time, the number of its job, and what the job wrote.
#
# Read them one at a time, as section 9 of the lesson does: the first error in time, who speaks, what was found and what
# was expected. Count lines in what this cell prints: the files in `work/03_porting_to_rocm/logs/` are the same failures
# without the job's line and its numbers.

# %% read a log
logs = public_logs()
print(*logs)
print(logs["01_batch_job"])  # change the name

# %% [markdown] statement of triage
# ## 03.triage: cause, fix and evidence
#
# **Write** `triage(log: str) -> dict`: for the text of one log `{"cause": name, "fix": name, "line": number}`. The
# names are from the two tables: a cause for each log, and more fixes than logs. `line` is the number of a line that
# shows the cause: the one in which it is set or refused. The first line of the text is line 1.
#
# | cause | what it says |
# |---|---|
# | `masks_compose` | two visibility variables are set, and the second counts among what the first has left |
# | `foreign_override` | HSA_OVERRIDE_GFX_VERSION makes the GPU pass for one of another generation |
# | `mask_for_each_rank` | each process has a ROCR_VISIBLE_DEVICES of its own |
# | `missing_target` | a library has no machine code for this GPU |
# | `wrong_build` | torch was built for the other vendor |
# | `lds_exceeded` | a block asks for more shared memory (LDS) than the target has |
# | `ptx_constraint` | inline PTX with its constraint letters meets AMD's compiler |
# | `mask_of_32_bits` | a lane mask of 32 bits |
# | `warp_size_constant` | warpSize taken for a compile-time constant |
# | `fp8_maximum` | values are scaled to the largest number of another FP8 format |
# | `call_in_capture` | a call that is not allowed while a stream is captured into a graph |
# | `tuning_left_on` | TunableOp tunes in the middle of the job |
# | `network` | ranks on two nodes do not reach each other over the network |
# | `out_of_memory` | the memory of the GPU is full |
# | `learning_rate` | the optimiser's steps are too large |
# | `driver` | the GPU driver is not loaded, or its files may not be opened |
#
# | fix | what it says |
# |---|---|
# | `number_within_mask` | number the GPUs among those that the first variable leaves, or set one variable only |
# | `unset_override` | unset HSA_OVERRIDE_GFX_VERSION |
# | `show_all_gpus` | let every process see all GPUs of the job; it takes its own by number |
# | `build_for_target` | build the library for this GPU's target as well |
# | `install_rocm_build` | install the builds for ROCm |
# | `smaller_stages` | fewer stages or smaller tiles on this target |
# | `branch_by_backend` | put the assembly behind a test of the backend, with AMD's version or none beside it |
# | `mask_of_64_bits` | a mask of 64 bits that names the lanes that call |
# | `narrowest_wave` | size the array for the narrowest wave, and count waves at run time |
# | `ask_finfo` | take the largest number from torch.finfo of the dtype |
# | `move_out_of_capture` | move the call out of the captured part |
# | `stop_tuning` | PYTORCH_TUNABLEOP_TUNING=0 with the results at hand, or the tuner off |
# | `choose_interface` | name the interface that the nodes share in NCCL_SOCKET_IFNAME |
# | `allow_device` | give the user the group that may open /dev/kfd |
# | `raise_timeout` | a longer timeout for collectives |
# | `disable_p2p` | NCCL_P2P_DISABLE=1 |
# | `set_override` | set HSA_OVERRIDE_GFX_VERSION to the target that the library knows |
# | `smaller_batch` | a smaller batch |
# | `lower_learning_rate` | a lower learning rate |
# | `reinstall_driver` | install the GPU driver again |
# | `opt_in_shared` | allow more dynamic shared memory by cudaFuncSetAttribute |
#
# For example, in this text of two lines the cause is `missing_target`, the fix `build_for_target`, and the line 2:
#
# ```text
# job 7 failed; its lines and those of its neighbours, in the order in which they arrived
# 08:15:33.160 7 RuntimeError: HIP error: invalid device function
# ```
#
# The check runs your function on the sixteen logs, and then on the same failures of other teams, with other paths,
# times, numbers and words. There the collector has done what collectors do:
#
# - lines stand in the order in which they **arrived**; the time in front says when they were written;
# - lines of **other jobs** stand in between, and some of those jobs have failed too;
# - the job was **started again** after its failure, and failed in another way. Asked is what ended it first;
# - many settings, remarks and warnings are harmless: words that mean the failure in one log mean nothing in another.
#
# So the words of another failure may stand in a text, too, and the order of events decides. For a wrong cause or fix
# the check quotes the line that speaks against it, or the one that misled you; guess freely, one log after the other.
# `hint("03.triage")` gives three hints.


# %% 03.triage tags=["answer", "03.triage"]
def triage(log: str) -> dict[str, str | int]:
    """Cause, fix and number of the line that shows it, for a failed job's log.

    >>> error = "08:15:33.160 7 RuntimeError: HIP error: invalid device function"
    >>> log = "job 7 failed; ...\\n" + error
    >>> triage(log)
    {'cause': 'missing_target', 'fix': 'build_for_target', 'line': 2}
    """
    # BEGIN SOLUTION
    signs = {
        "couldn't allocate output register": ("ptx_constraint", "branch_by_backend"),
        "sizeof(MaskT)": ("mask_of_32_bits", "mask_of_64_bits"),
        "'warpSize' cannot be used": ("warp_size_constant", "narrowest_wave"),
        "OutOfResources: out of resource": ("lds_exceeded", "smaller_stages"),
        "when stream is capturing": ("call_in_capture", "move_out_of_capture"),
        "torch.version.hip None": ("wrong_build", "install_rocm_build"),
        "finding fastest for": ("tuning_left_on", "stop_tuning"),
        "e4m3fnuz, scale = amax / 448": ("fp8_maximum", "ask_finfo"),
        "P2P/IPC: handle": ("mask_for_each_rank", "show_all_gpus"),
        "export HSA_OVERRIDE_GFX_VERSION": ("foreign_override", "unset_override"),
        "invalid device function": ("missing_target", "build_for_target"),
        "Permission denied": ("driver", "allow_device"),
        "in bfloat16: step 3 loss nan": ("learning_rate", "lower_learning_rate"),
        "HIP out of memory": ("out_of_memory", "smaller_batch"),
        "Connection refused": ("network", "choose_interface"),
    }
    compose = ("masks_compose", "number_within_mask")
    header, *rows = log.splitlines()
    failed = header.split()[1]
    own = []
    for number, row in enumerate(rows, 2):
        time, job, text = row.split(" ", 2)
        if job == failed:
            own.append((time, number, text))
    left = None  # GPUs that the first variable has left
    for _, number, text in sorted(own):
        found = [verdict for words, verdict in signs.items() if words in text]
        if "ROCR_VISIBLE_DEVICES=" in text:
            left = len(text.split("ROCR_VISIBLE_DEVICES=")[1].split()[0].split(","))
        if "export HIP_VISIBLE_DEVICES=" in text:
            listed = text.split("export HIP_VISIBLE_DEVICES=")[1].split()[0]
            if left and max(int(gpu) for gpu in listed.split(",")) >= left:
                found.append(compose)
        if found:
            cause, fix = found[0]
            return {"cause": cause, "fix": fix, "line": number}
    raise ValueError("no sign of a failure in the lines of this job")
    # END SOLUTION


# %% 03.triage check tags=["check", "03.triage"]
check("03.triage")

# %% [markdown] why triage
# **Why it matters.** A wrong reading costs more than no reading: a longer timeout hides a failed rank for an hour, an
# override turns a clear refusal into a crash, `NCCL_P2P_DISABLE=1` makes every job slower for good. Each of these is
# advice that people give each other for logs like yours. Ask of every advice: which line of my log says so? That is
# why an answer without its line is worth little.

# %% [markdown] statement of port_gpt2
# ## 03.port_gpt2: the training step of unit 01, on whatever is there
#
# Somebody's fork of unit 01 trains on one NVIDIA GPU and nowhere else:
#
# ```python
# def train_steps(config, weights, tokens, settings):
#     torch.backends.cuda.matmul.allow_tf32 = True
#     model = GPT2(GPT2Config(**config))
#     model.load_state_dict(weights)
#     model = model.cuda()
#     optimizer = torch.optim.AdamW(
#         model.parameters(), betas=(0.9, 0.95), weight_decay=settings["weight_decay"])
#     scaler = torch.amp.GradScaler("cuda")
#     losses = []
#     for step, parts in enumerate(tokens):
#         for group in optimizer.param_groups:
#             group["lr"] = learning_rate(step, **rates)
#         total = 0.0
#         for part in parts:
#             part = part.pin_memory().cuda(non_blocking=True)
#             with torch.autocast("cuda", torch.float16):
#                 loss = model.loss(part[:, :-1], part[:, 1:]) / len(parts)
#             scaler.scale(loss).backward()
#             total += loss.item()
#         torch.nn.utils.clip_grad_norm_(model.parameters(), settings["clip"])
#         scaler.step(optimizer)
#         scaler.update()
#         optimizer.zero_grad()
#         losses.append(total)
#     return {"losses": losses, "weights": model.state_dict()}
# ```
#
# **Write** `port_gpt2(config, weights, tokens, settings) -> dict`: one code path that gives unit 01's numbers on a CPU
# and on a GPU of either vendor.
#
# | | |
# |---|---|
# | `config` | dict for `GPT2Config(**config)` |
# | `weights` | dict of tensors by name, all float32 or all float64, on the device of the work |
# | `tokens` | (steps, parts, batch, T + 1) int64 on the same device; a part's targets are its tokens one later |
# | `settings` | dict: `max_lr`, `min_lr`, `warmup`, `total` (for `learning_rate`), `weight_decay`, `clip`, `bf16` |
# | result | `{"losses": list of floats, one a step, "weights": dict of tensors}`, dtype and device of `weights` |
#
# A step, as in unit 01: set the rate of each group to $\eta(\text{step})$; for each part add the gradient of its mean
# loss divided by the number of parts; clip the norm of the gradient to `clip`; AdamW with betas 0.9 and 0.95. Matrices
# decay, biases and the gains of norms do not: `parameter_groups(model, weight_decay)` makes the two groups. The loss of
# a step is the sum over its parts. Matrix products are in the dtype of the weights, or in bfloat16 under autocast where
# `settings["bf16"]` is true. Nothing global may stay switched, and `weights` is not changed.
#
# For example, two parts with mean losses 4.0 and 5.0 give a step the loss 4.5.
#
# The check runs unit 01's own step in float64 and compares: losses, the loss of your new weights, and for float64 every
# weight. The tolerance follows from the dtype and the lengths of the sums; unit 09 makes that argument sharp. It also
# looks at the dtype of the matrix products. `GPT2`, `GPT2Config`, `learning_rate` and `parameter_groups` are imported.
# `hint("03.port_gpt2")` gives three hints.


# %% 03.port_gpt2 tags=["answer", "03.port_gpt2"]
def port_gpt2(
    config: dict[str, int],
    weights: dict[str, Tensor],
    tokens: Tensor,
    settings: dict[str, float | bool],
) -> dict[str, list[float] | dict[str, Tensor]]:
    """Losses and new weights after len(tokens) steps of unit 01's training."""
    rates = {name: settings[name] for name in ("warmup", "total", "max_lr", "min_lr")}
    # BEGIN SOLUTION
    device = tokens.device
    model = GPT2(GPT2Config(**config)).to(device, weights["wte.weight"].dtype)
    model.load_state_dict(weights)
    groups = parameter_groups(model, settings["weight_decay"])
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.95))
    losses = []
    for step, parts in enumerate(tokens):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, **rates)
        total = 0.0
        for part in parts:
            with torch.autocast(device.type, torch.bfloat16, enabled=settings["bf16"]):
                loss = model.loss(part[:, :-1], part[:, 1:]) / len(parts)
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), settings["clip"])
        optimizer.step()
        optimizer.zero_grad()
        losses.append(total)
    return {"losses": losses, "weights": model.state_dict()}
    # END SOLUTION


# %% 03.port_gpt2 check tags=["check", "03.port_gpt2"]
check("03.port_gpt2")

# %% [markdown] why port_gpt2
# **Why it matters.** What is left has fewer lines than what you started from, and it agrees with unit 01 to the last
# digits of float64. That is the baseline of every port: first prove in a type where rounding cannot hide anything that
# the text is the same computation, then look at what another chip does to it. `work/03_porting_to_rocm/train.py` is
# the whole script ported in this way, with a report that compares a run with the record of unit 01.

# %% [markdown] where you stand
# ## Where you stand
#
# `progress()` lists every exercise of the course that exists, and what you have passed.

# %% progress
progress()
