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

# %% [markdown] where you stand
# ## Where you stand
#
# `progress()` lists every exercise of the course that exists, and what you have passed.

# %% progress
progress()
