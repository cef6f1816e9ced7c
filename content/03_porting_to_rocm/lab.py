# %% [markdown]
# # Lab 03: from CUDA to ROCm
#
# **Eleven exercises.** Three C++ kernels that must be right for every width of a wave, then what Triton, a training
# script and a whole node need. About four hours, on any machine; each exercise stands alone.
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
# `__shfl_down_sync(mask, value, offset)`, which gives the `value` of the lane `offset` further on in the same wave, or
# the lane's own where there is none.


# %% 03.warp_reduce tags=["answer", "03.warp_reduce"]
def warp_reduce() -> str:
    """C++ of the kernel row_sum(x, out, columns): one block of threads sums one row, on waves of any width."""
    return """
// The sum of `value` over all threads of the block, returned to thread 0; what the others get does not matter.
__device__ float block_sum(float value) {
  // BEGIN SOLUTION
  __shared__ float partial[32];
  int lane = threadIdx.x % warpSize, warp = threadIdx.x / warpSize;
  int warps = (blockDim.x + warpSize - 1) / warpSize;
  for (int offset = warpSize / 2; offset > 0; offset /= 2) value += __shfl_down_sync(~0ull, value, offset);
  if (lane == 0) partial[warp] = value;
  __syncthreads();
  value = threadIdx.x < warps ? partial[threadIdx.x] : 0.0f;
  for (int offset = warpSize / 2; offset > 0; offset /= 2) value += __shfl_down_sync(~0ull, value, offset);
  return value;
  // END SOLUTION
}

// One block sums one row: out[row] = x[row][0] + ... + x[row][columns - 1]
__global__ void row_sum(const float *x, float *out, int columns) {
  float sum = 0.0f;
  for (int c = threadIdx.x; c < columns; c += blockDim.x) sum += x[blockIdx.x * columns + c];
  sum = block_sum(sum);
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}
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
    """C++ of the kernel compact(x, out, count, n): moves what is above zero to the front, on waves of any width."""
    return """
// For the calling lane: how many kept lanes of its wave come before it. *kept: how many its whole wave keeps.
__device__ int place_in_wave(bool keep, int *kept) {
  // BEGIN SOLUTION
  unsigned long long votes = __ballot_sync(~0ull, keep);
  int lane = threadIdx.x % warpSize;
  *kept = __popcll(votes);
  return __popcll(votes & ((1ull << lane) - 1));
  // END SOLUTION
}

// Moves the elements above zero of each block's piece of x to the front of its piece of out, and counts them.
__global__ void compact(const float *x, float *out, int *count, int n) {
  __shared__ int kept_by[32];
  int i = blockIdx.x * blockDim.x + threadIdx.x, wave = threadIdx.x / warpSize;
  int waves = (blockDim.x + warpSize - 1) / warpSize;
  bool keep = i < n && x[i] > 0.0f;

  int kept, place = place_in_wave(keep, &kept);
  if (threadIdx.x % warpSize == 0) kept_by[wave] = kept;
  __syncthreads();

  int before = 0, total = 0;
  for (int w = 0; w < waves; ++w) {
    if (w < wave) before += kept_by[w];
    total += kept_by[w];
  }
  if (keep) out[blockIdx.x * blockDim.x + before + place] = x[i];
  if (threadIdx.x == 0) count[blockIdx.x] = total;
}
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
# sum. It is given, and needs four things of yours:
#
# | | |
# |---|---|
# | `MAX_WAVES` | a compile-time constant: the most waves that a block of at most 1024 threads has on any target |
# | `lane_id()` | the place of the calling thread in its wave, from 0 |
# | `wave_id()` | the number of its wave in the block, from 0 |
# | `wave_count()` | how many waves the block has, a partly filled last one included |
#
# **Given** blocks of any shape with up to 1024 threads, also in two and three dimensions. `thread_id()` and
# `thread_count()` are there; waves are cut from the threads in the order of `thread_id()`. `x`, `sums` (float32) and
# `number` (int32) have shape `(blocks, threads)`, `total` (float32) has shape `(blocks,)`. It must be right for every
# width of a wave.
#
# With waves of 4 (for the example), a block of (3, 2) threads is two waves, the second half empty:
#
# | `threadIdx` (x, y) | (0, 0) | (1, 0) | (2, 0) | (0, 1) | (1, 1) | (2, 1) |
# |---|---|---|---|---|---|---|
# | `thread_id()` | 0 | 1 | 2 | 3 | 4 | 5 |
# | `lane_id()` | 0 | 1 | 2 | 3 | 0 | 1 |
# | `wave_id()` | 0 | 0 | 0 | 0 | 1 | 1 |
#
# The kernel also stores `number[t] = wave_id() * warpSize + lane_id()`, which must be the thread's own number: where it
# is not, you have found the lane.


# %% 03.lane_id tags=["answer", "03.lane_id"]
def lane_id() -> str:
    """C++ of the kernel running_sum(x, number, sums, total), for blocks of any shape and waves of any width."""
    return """
// The thread's number in its block, and how many there are. Waves are cut from this order: x runs fastest, then y.
__device__ int thread_id() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }
__device__ int thread_count() { return blockDim.x * blockDim.y * blockDim.z; }

// MAX_WAVES: the most waves that a block can have on any target, known when this is compiled.
// lane_id(): the thread's place in its wave. wave_id(): its wave in the block. wave_count(): the waves of the block.
// BEGIN SOLUTION
constexpr int MAX_WAVES = 1024 / 32;
__device__ int lane_id() { return thread_id() % warpSize; }
__device__ int wave_id() { return thread_id() / warpSize; }
__device__ int wave_count() { return (thread_count() + warpSize - 1) / warpSize; }
// END SOLUTION

// sums[t] = x[0] + ... + x[t] in each block; total: all of it. number: each thread's number, from its wave and lane.
__global__ void running_sum(const float *x, int *number, float *sums, float *total) {
  __shared__ float sum_of[MAX_WAVES];
  for (int w = thread_id(); w < MAX_WAVES; w += thread_count()) sum_of[w] = NAN;  // a wave that stays silent shows
  __syncthreads();

  int lane = lane_id(), wave = wave_id(), i = blockIdx.x * thread_count() + thread_id();
  number[i] = wave * warpSize + lane;
  float sum = x[i];
  for (int offset = 1; offset < warpSize; offset *= 2) {
    float before = __shfl_up_sync(~0ull, sum, offset);
    if (lane >= offset) sum += before;
  }
  if (lane == warpSize - 1 || thread_id() == thread_count() - 1) sum_of[wave] = sum;
  __syncthreads();

  for (int w = 0; w < wave; ++w) sum += sum_of[w];
  sums[i] = sum;
  if (thread_id() == 0) {
    float all = 0.0f;
    for (int w = 0; w < wave_count(); ++w) all += sum_of[w];
    total[blockIdx.x] = all;
  }
}
"""


# %% 03.lane_id check tags=["check", "03.lane_id"]
check("03.lane_id")

# %% [markdown] why lane_id
# **Why it matters.** A width of 32 is written down in many ways: `& 31`, `>> 5`, a block of (32, 8), an array for 32
# warps. Each is far from the line that fails. Code that took `warpSize` for a constant stopped compiling with ROCm 7
# (pytorch #156979, vllm #20330): that is the good case, because the compiler says so.

# %% [markdown] where you stand
# ## Where you stand
#
# `progress()` lists every exercise of the course that exists, and what you have passed.

# %% progress
progress()
