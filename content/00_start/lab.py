# %% [markdown]
# # Lab 00: your machine, and two first kernels
#
# **Three exercises:** tell the vendors apart, write your first kernel, then teach one to read strided rows.
# About 45 minutes, on any machine.
#
# How a lab works:
#
# 1. Read the statement, then write your answer where it says `YOUR CODE`. Your lines take the place of the `raise` or
#    `pass` below it; leave everything else as it is.
# 2. Run the cell, then the `check` cell below it. A check runs your function on the cases of the statement and on a few
#    that are drawn anew each time, and tells you the first thing that differs. Your kernels are compiled for both
#    vendors, and *virtual GPUs* execute the machine code of both on the CPU: `sm_80` (NVIDIA) and `gfx942` (AMD).
#    If you have a GPU, they run there as well.
# 3. Stuck? `hint("00.platform")` gives the first of three hints; ask again for a stronger one.
#    `solution("00.platform")` shows the answer and explains it. Both are only noted in your own progress.
#
# Change anything, break anything: `./w2w reset 00` brings this lab back and keeps your copy beside it.

# %% imports tags=["setup"]
import torch
import triton
import triton.language as tl
from torch import Tensor

from gpu_utils import check, hint, progress, solution

# %% [markdown] statement of platform
# ## 00.platform: whose GPU is this?
#
# Code that runs on both vendors needs one honest answer to one question. Write
#
# ```python
# platform() -> "nvidia" | "amd" | "cpu"
# ```
#
# the vendor of the GPU that torch can use now, or `"cpu"` when there is none. It takes no arguments.
# Ask `torch.version` and `torch.cuda` each time the function is called: the check puts you on many machines by
# changing what they say, with versions that you have not seen and with torch built from source.
#
# | machine | `torch.version.cuda` | `torch.version.hip` | GPUs | answer |
# |---|---|---|---|---|
# | CUDA build, one NVIDIA GPU | `"12.8"` | `None` | 1 | `"nvidia"` |
# | ROCm build, eight AMD GPUs | `None` | `"6.4.43483"` | 8 | `"amd"` |
# | CUDA build, no GPU | `"12.8"` | `None` | 0 | ? |
#
# The others are for you to think of. Section 1 of the lesson has all you need; `hint("00.platform")` helps when stuck.


# %% 00.platform tags=["answer", "00.platform"]
def platform() -> str:
    """Return "nvidia", "amd" or "cpu": whose GPU torch can use here."""
    # BEGIN SOLUTION
    if not torch.cuda.is_available():
        return "cpu"
    return "amd" if torch.version.hip is not None else "nvidia"
    # END SOLUTION


# %% tags=["check"]
check("00.platform")

# %% [markdown] why platform
# **Why it matters.** A training script that asks `torch.version.cuda` runs on the CPU of a machine with eight MI300X,
# and says nothing. Such tests are among the first things to look for in code that moves to ROCm (unit 03).

# %% [markdown] statement of vector_add
# ## 00.vector_add: your first kernel
#
# $$\text{out}_i = x_i + y_i \qquad 0 \le i < n$$
#
# **Given** `x` and `y`: contiguous tensors of shape `(n,)`, float32 or float16, on the same device; `n` is 1 or more.
# **Return** a new tensor of shape `(n,)` with the dtype and device of `x`. Leave `x` and `y` as they are.
#
# One program adds `BLOCK = 1024` neighbouring elements. So the kernel asks which program it is, works out its
# offsets, masks those that are past the end, loads, adds, stores. The launcher allocates the result, works
# out how many programs there must be, launches, returns.
#
# The check also counts memory transactions. Where `n` is a multiple of `BLOCK`, `global_sectors_per_ideal`, the
# transactions of your kernel over the least that its bytes could need, must be at most 2 (section 6 of the lesson).
#
# With `BLOCK = 4` and `n = 6` it would look like this:
#
# | | program 0 | program 1 |
# |---|---|---|
# | offsets | 0 1 2 3 | 4 5 6 7 |
# | mask | ✓ ✓ ✓ ✓ | ✓ ✓ – – |
# | x = 1 2 3 4 5 6 | 1 2 3 4 | 5 6 · · |
# | y = 10 10 10 10 10 10 | 10 10 10 10 | 10 10 · · |
# | out | 11 12 13 14 | 15 16 (not touched) |


# %% 00.vector_add tags=["answer", "00.vector_add"]
@triton.jit
def vector_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    # which program is this, which elements are its own, and which of them exist?
    # BEGIN SOLUTION
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + y, mask=mask)
    # END SOLUTION


def vector_add(x: Tensor, y: Tensor) -> Tensor:
    """Return x + y; x, y: (n,) on one device. Launches vector_add_kernel."""
    BLOCK = 1024
    # BEGIN SOLUTION
    n = x.numel()
    out = torch.empty_like(x)
    grid = (triton.cdiv(n, BLOCK),)
    vector_add_kernel[grid](x, y, out, n, BLOCK=BLOCK)
    return out
    # END SOLUTION


# %% tags=["check"]
check("00.vector_add")

# %% [markdown] why vector_add
# **Why it matters.** Every kernel in this course starts with these lines. And the report says where your one source
# passed: its PTX on `virtual:sm_80`, its AMDGCN on `virtual:gfx942`. Without the mask, both would have named the line,
# the lane and the tensor.

# %% [markdown] statement of saxpy
# ## 00.saxpy: rows and columns with strides
#
# $$\text{out}_{rc} = a \, x_{rc} + y_{rc} \qquad 0 \le r < \text{rows},\; 0 \le c < \text{cols}$$
#
# **Given** `a`, a Python float, and `x` and `y`, float32 tensors of shape `(rows, cols)` on the same device. They may
# be *views*: a slice of a wider matrix, every second row, a transpose, one row repeated. Each has its own strides.
# **Return** a new tensor of shape `(rows, cols)`, same dtype and device. Do not copy `x` or `y` first
# (`contiguous`, `clone`, `reshape`): your kernel reads them where they are.
#
# `x.stride()` tells how far apart two elements are in memory, counted in elements: `x.stride(0)` from one row to the
# next, `x.stride(1)` from one column to the next. For example:
#
# ```python
# wide = torch.arange(20.).view(4, 5)
# x = wide[::2, 1:4]        # x.shape is (2, 3), x.stride() is (10, 1)
# #  0  [1  2  3]  4          x_ptr points at the 1
# #  5   6  7  8   9          x[1, 2] is at x_ptr + 1*10 + 2*1: the value is 13
# # 10 [11 12 13] 14
# # 15  16 17 18  19
# ```
#
# Use a grid of two dimensions, `(rows, blocks to a row)`, with `BLOCK = 128` columns to a block. In the kernel
# `tl.program_id(0)` is then the row and `tl.program_id(1)` the block of columns. The result may be laid out as you
# like; contiguous is the simplest. Section 3 of the lesson does this for another kernel, and `hint("00.saxpy")` helps.
#
# Memory transactions are counted here, too: where `x` and `y` are contiguous and `cols` is a multiple of `BLOCK`,
# `global_sectors_per_ideal` must be at most 2. Through a transpose it may be more; there, nobody can help it so simply.


# %% 00.saxpy tags=["answer", "00.saxpy"]
@triton.jit
def saxpy_kernel(
    a, x_ptr, y_ptr, out_ptr, n_cols, stride_xm, stride_xn, stride_ym, stride_yn, stride_om, BLOCK: tl.constexpr
):
    # stride_xm: from row to row of x; stride_xn: from column to column; the same for y; stride_om: rows of the result
    # BEGIN SOLUTION
    row = tl.program_id(0)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * stride_xm + cols * stride_xn, mask=mask)
    y = tl.load(y_ptr + row * stride_ym + cols * stride_yn, mask=mask)
    tl.store(out_ptr + row * stride_om + cols, a * x + y, mask=mask)
    # END SOLUTION


def saxpy(a: float, x: Tensor, y: Tensor) -> Tensor:
    """Return a * x + y; a: float, x, y: (rows, cols) views on one device. Launches saxpy_kernel."""
    BLOCK = 128
    rows, cols = x.shape
    # BEGIN SOLUTION
    out = torch.empty(rows, cols, dtype=x.dtype, device=x.device)
    grid = (rows, triton.cdiv(cols, BLOCK))
    saxpy_kernel[grid](a, x, y, out, cols, *x.stride(), *y.stride(), out.stride(0), BLOCK=BLOCK)
    return out
    # END SOLUTION


# %% tags=["check"]
check("00.saxpy")

# %% [markdown] why saxpy
# **Why it matters.** Attention heads, transposed weights and slices of a batch are all views. A kernel that takes
# strides reads them in place; one that does not costs a copy each time, and a copy moves every byte twice.

# %% [markdown] where you stand
# ## Where you stand
#
# `progress()` lists every exercise of the course that exists, and what you have passed. It is stored on your machine
# only.

# %% progress
progress()
