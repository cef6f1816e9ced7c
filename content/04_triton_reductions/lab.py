# %% [markdown] top
# # Lab 04: kernels that memory decides
#
# **Ten exercises.** Each is a kernel that you write, with its launcher; four have a backward pass, too. The counters of
# lesson 04 decide: bytes moved, accesses, launches, conflicts, spills.
#
# - **First**: lesson 04. Everything that is asked here is explained there.
# - **How it works**: write your answer in the cell that says `YOUR CODE`, run it, run the check below it. A check runs
#   the public cases and three fresh ones, and says what differs. `hint("04.softmax")` gives three hints of growing
#   strength. `solution("04.softmax")` asks first.

# %% imports tags=["setup"]
import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from gpu_utils import check, compile_for, hint, progress, solution, virtual_gpu
from gpu_utils.lesson import resources

# %% [markdown] part one
# ## Part 1: element by element

# %% [markdown] statement of copy
# ## 04.copy: full width, whatever the length
#
# A copy has no arithmetic to hide behind: it is as fast as its loads and stores. Here is the kernel as one writes it
# first. It is right for every length. Run it, and look at what one element more does to it.


# %% the kernel as one writes it first
@triton.jit
def masked_copy_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask), mask=mask)


for n in (32768, 32769):
    x = torch.randn(n)
    for target in ("sm_80", "gfx942"):
        with virtual_gpu(target) as gpu:
            masked_copy_kernel[(17,)](x, torch.empty(n), n, BLOCK=2048)
        accesses = gpu.counters.totals()["global_lane_accesses"]
        print(f"{n} elements, {target}: {2 * 4 * n / accesses:.1f} bytes a lane")

# %% [markdown] the task of copy
# ### Repair it: 04.copy
#
# Write `copy(x)`, which launches a kernel of your own and keeps 16 bytes a lane for every length.
#
# | | |
# |---|---|
# | `x` | float32, float16 or bfloat16, shape (n,), contiguous, n from 0 up; perhaps a view such as `t[1:]` |
# | result | a new tensor with the shape, the dtype and the numbers of `x` |
#
# **Limits.** `launches`: two at most, one is enough. `global_load_bytes` and `global_store_bytes`: every element once.
# `global_lane_accesses`, the lanes that loaded or stored, summed over all instructions: 5 % above
# `2 * n * itemsize / 16`, plus 1,024 for the end. It holds on `sm_80` and on `gfx942`, for n of 16,384 and more. For a
# view that does not begin at a multiple of 16 bytes it is not asked: there the result must be right, no more.
#
# **Two puzzles.** Which program needs the mask? And how large must BLOCK be, so that there *are* 16 bytes for each
# lane? A program has four waves when nobody says otherwise: 128 lanes on `sm_80`, 256 on `gfx942`.
#
# **A small example.** With BLOCK = 8 and n = 19, programs 0 and 1 have whole blocks, and program 2 has 3 elements.
# `hint("04.copy")` gives three hints.


# %% 04.copy tags=["answer", "04.copy"]
@triton.jit
def copy_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    # BEGIN SOLUTION
    first = tl.program_id(0) * BLOCK
    offsets = first + tl.arange(0, BLOCK)
    if first + BLOCK <= n:
        tl.store(out_ptr + offsets, tl.load(x_ptr + offsets))
    else:
        mask = offsets < n
        tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask), mask=mask)
    # END SOLUTION


def copy(x: Tensor) -> Tensor:
    """A copy of the contiguous vector x, moved in accesses of 16 bytes a lane."""
    # BEGIN SOLUTION
    out = torch.empty_like(x)
    n = x.numel()
    copy_kernel[(triton.cdiv(n, 4096),)](x, out, n, BLOCK=4096)
    return out
    # END SOLUTION


# %% tags=["check"]
check("04.copy")

# %% [markdown] why copy
# **Why it matters.** The vocabulary of GPT-2 has 50,257 entries, an odd number; sequence lengths are what users type.
# A kernel that is tuned on powers of two loses most of its memory instructions' width on such sizes, silently: the
# result is right and the bytes are the same. The remedy costs one comparison for each program. Where you own the
# data, there is another one: pad the rows to a multiple of 16 bytes, as nanoGPT does with a vocabulary of 50,304.

# %% [markdown] part two
# ## Part 2: a row for each program

# %% [markdown] statement of softmax
# ## 04.softmax: each row once in, once out
#
# Write `softmax(x)`, over the last dimension of a matrix of any strides, as one launch of one kernel:
#
# $$ p_{r,c} = \frac{e^{x_{r,c} - m_r}}{\sum_j e^{x_{r,j} - m_r}}, \qquad m_r = \max_j x_{r,j} $$
#
# | | |
# |---|---|
# | `x` | float32, float16 or bfloat16, shape (rows, columns), both at least 1; any row stride, any column stride |
# | its values | any finite ones, -10,000 and 10,000 too; also `-inf`, but never a whole row of it |
# | `columns` | 1 to 8,192, mostly no power of two |
# | result | shape (rows, columns), contiguous, dtype of `x`; computed in float32 |
#
# **Limits.** `launches`: 1. `global_load_bytes` and `global_store_bytes`: each element once, 5% more at most (counted
# where a row has 1,000 elements or more, so that no lane is without one). `global_moved_bytes`: where rows start at
# multiples of 128 bytes, 2 x the bytes of `x`, 5% more at most. `scratch_bytes`: 0, nothing spills. A copy of `x` by
# torch, `x.contiguous()`, is a second kernel that moves everything once more; it is refused.
#
# **A small example.** The row (1, 1 + ln 3) has m = 1 + ln 3; the exponentials are 1/3 and 1, their sum is 4/3, and the
# result is (0.25, 0.75). A block for a row of three elements has four lanes. What must the fourth one hold, so that
# neither `m` nor the sum changes, for the row (-200, -201, -202) as well?
#
# **Triton that helps.** `tl.load(..., mask=mask, other=value)`, `float("-inf")`, `tl.max(x, 0)`, `tl.sum(x, 0)`,
# `tl.exp` (float32 only), `triton.next_power_of_2`. `tl.store` converts to the type of the pointer. Lesson 04, sitting
# *A row for each program*. `hint("04.softmax")` gives three hints.


# %% 04.softmax tags=["answer", "04.softmax"]
@triton.jit
def softmax_kernel(
    x_ptr, out_ptr, columns, stride_row, stride_column, BLOCK: tl.constexpr
):
    # BEGIN SOLUTION
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < columns
    at = x_ptr + row * stride_row + cols * stride_column
    x = tl.load(at, mask=mask, other=float("-inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, 0))
    tl.store(out_ptr + row * columns + cols, e / tl.sum(e, 0), mask=mask)
    # END SOLUTION


def softmax(x: Tensor) -> Tensor:
    """Softmax of each row of x (rows, columns); contiguous, in the dtype of x."""
    # BEGIN SOLUTION
    rows, columns = x.shape
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    block = triton.next_power_of_2(columns)
    softmax_kernel[(rows,)](x, out, columns, *x.stride(), BLOCK=block)
    return out
    # END SOLUTION


# %% tags=["check"]
check("04.softmax")

# %% [markdown] why softmax
# **Why it matters.** A softmax made of five operations of torch reads and writes its matrix again and again; yours
# moves 2 bytes for each byte of `x`, and no kernel can do with less. The order is the one of every kernel of this part:
# load a row, reduce it, use it while it is still in registers. Where a row is too long for that, maximum and sum must
# be merged block by block: 04.cross_entropy, and attention in unit 06.

# %% [markdown] part three
# ## Part 3: across rows and tiles

# %% [markdown] part four
# ## Part 4: the loss

# %% [markdown] your own
# ## GPT-2 on your kernels
#
# Now a GPT-2 takes a training step with your functions in place of torch's: a small one, so that it runs on the virtual
# GPUs of both vendors (2 layers of width 32, 4 sequences of 16 tokens, 300 words). Where a function is not written yet,
# the cell says so; run it again afterwards.
#
# Read the table from the left. *Off* is the relative difference of the loss, and the largest of any gradient, from
# torch in float64. *torch's off* is how far torch itself is off in float32: yours should be of that size. Launches and
# bytes are those of the replaced operators alone, forward and backward, counted alike for both: of each launch every
# 32 bytes that it reads count once, and every 32 bytes that it writes.

# %% your kernels in a training step
from gpu_utils import lesson

own = {"softmax": softmax}
rows = {}
with lesson.when_written():
    rows = lesson.own_kernels_in_gpt2(**own)
lesson.table(rows, first="replaced, on")

# %% [markdown] same bytes
# A kernel saves bytes only where torch needs several for the same work. Torch's softmax is one kernel, and so is yours:
# the bytes are equal. What you have won there is the kernel itself: in unit 06 it becomes a part of attention, and then
# the matrix of scores is never written at all.
#
# What does your softmax launch, and what would that need of chips that you do not have? It is compiled for six.

# %% your launches on six targets
x = torch.randn(64, 1000)
rows = {}
with lesson.when_written():
    for launch in lesson.launches_of(softmax, x):
        print(launch.name, launch.grid)
    rows = lesson.needs({"softmax": softmax}, x)
lesson.table(rows, first="kernel, for")

# %% [markdown] speed
# With a real GPU the last cell times a training step of GPT-2 124M, with torch's operators and with yours.

# %% your speed
rows = {}
with lesson.when_written():
    rows = lesson.speed_in_gpt2(**own)
lesson.table(rows)

# %% [markdown] end of the lab
# ## Done

# %% progress
progress()
