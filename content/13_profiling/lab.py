# %% [markdown] top
# # Lab 13: profiling
#
# `hint("13.fix")` gives three hints of growing strength. `solution("13.fix")` asks first.

# %% imports tags=["setup"]
import torch
import triton
import triton.language as tl
from torch import Tensor

from gpu_utils import check, hint, lesson, solution, virtual_gpu

# %% [markdown] the given kernel of fix
# ## Part 4: mending
#
# A linear layer with a bias and a ReLU sends its gradient back in two steps. With `dy`, the gradient of the output, and
# `y`, the output:
#
# $$ dz_{m,n} = dy_{m,n} \cdot [\,y_{m,n} > 0\,], \qquad db_n = \sum_m dz_{m,n} $$
#
# The function below does it. It is right for any sizes and strides. It is also slow, in three ways that do not show in
# its result. Read it, then let the profile say which three.


# %% given and slow
@triton.jit(do_not_specialize=["first", "dy_m", "dy_n", "y_m", "y_n"])
def slow_kernel(
    dy_ptr,
    y_ptr,
    dz_ptr,
    db_ptr,
    first,
    n_rows,
    n_cols,
    dy_m,
    dy_n,
    y_m,
    y_n,
    COLS: tl.constexpr,
    ROWS: tl.constexpr,
):
    cols = first + tl.arange(0, COLS)[:, None]
    total = tl.zeros([COLS, ROWS], tl.float32)
    for start in range(0, n_rows, ROWS):
        rows = start + tl.arange(0, ROWS)[None, :]
        here = (rows < n_rows) & (cols < n_cols)
        dy = tl.load(dy_ptr + rows * dy_m + cols * dy_n, mask=here, other=0.0)
        y = tl.load(y_ptr + rows * y_m + cols * y_n, mask=here, other=0.0)
        dz = tl.where(y > 0, dy, 0.0)
        tl.store(dz_ptr + rows * n_cols + cols, dz, mask=here)
        total += dz
    at = first + tl.arange(0, COLS)
    tl.store(db_ptr + at, tl.sum(total, axis=1), mask=at < n_cols)


def slow(dy: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    n_rows, n_cols = dy.shape
    dz = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    db = torch.empty(n_cols, device=dy.device)
    strides = (*dy.stride(), *y.stride())
    for first in range(0, n_cols, 8):
        slow_kernel[(1,)](
            *(dy, y, dz, db, first, n_rows, n_cols, *strides),
            COLS=8,
            ROWS=512,
            num_warps=1,
        )
    return dz, db


# %% [markdown] profile of the given kernel
# Run it on both virtual GPUs, and export what they counted as the vendors' tools would: `ncu --csv` for `sm_80`,
# `rocprofv3 --pmc ... --output-format csv` for `gfx942`. `lesson.evidence` reads these files back and makes a row for
# each kernel. What to hold it against: 32 lanes that load 32 bits each, side by side, touch 4 sectors of 32 bytes on
# `sm_80`; 64 lanes touch 2 lines of 128 bytes on `gfx942`. With 128 bits for a lane it is 4 times as much, and as good:
# so look at the bits beside it. (NVIDIA's figure is of loads, AMD's of loads and stores.)
# And a launch fills a chip only if it has a program for each SM or CU; both vendors' large chips have more than 100.

# %% the profile of the given kernel
dy, y = torch.randn(2048, 128), torch.randn(2048, 128)
for target in ("sm_80", "gfx942"):
    with virtual_gpu(target) as gpu:
        slow(dy, y)
    print(lesson.exported(gpu)[-600:])  # the end of what ncu and rocprofv3 would write
lesson.table(lesson.evidence(slow, dy, y), first="kernel, target")

# %% [markdown] statement of fix
# ## 13.fix: mend it
#
# Write `fix(dy, y) -> (dz, db)`, with as many kernels of your own as you need.
#
# | | |
# |---|---|
# | `dy`, `y` | float32, float16 or bfloat16, both alike; shape (rows, columns), at least one of each; any strides |
# | `dz` | contiguous, shape and type of `dy`: `dy` where `y > 0`, else 0. `y` is 0 in many places |
# | `db` | float32, shape (columns,): the sums of `dz` over the rows, summed in float32 |
#
# **The same bits in every run.** Where nothing is counted the check calls you twice, the second time with the programs
# in another order. So no atomics.
#
# **Limits**, each the mended form of one symptom. `global_sectors_per_ideal`: sectors (on `gfx942` lines) over the
# fewest possible, at most 1.6. `launches`: one or two. `blocks`: a program adds up at most 128 rows, so that there are
# programs for a whole chip, and at least as much as 16 rows of 32 columns. `global_moved_bytes`: at most 1.15 times one
# read of `dy` and `y` and one write of `dz`. `scratch_bytes`: none, no spills; PTX has no spills before `ptxas` makes
# them, so this is counted on `gfx942`. torch may make tensors, not compute.
#
# **A small example.** dy = ((1, 2), (3, 4), (5, 6)) and y = ((1, 0), (0, 1), (2, 2)) give dz = ((1, 0), (0, 4), (5, 6))
# and db = (6, 10). If a program takes two rows, the parts of db are (1, 4) and (5, 6).
#
# **Go by one fault at a time**: change one thing, put `lesson.table(lesson.evidence(fix, dy, y))`
# into a cell, and see which number moved.


# %% 13.fix tags=["answer", "13.fix"]
@triton.jit
def fix_kernel(
    dy_ptr,
    y_ptr,
    dz_ptr,
    parts_ptr,
    n_rows,
    n_cols,
    dy_m,
    dy_n,
    y_m,
    y_n,
    rows_each,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    # BEGIN SOLUTION
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    first = tl.program_id(0) * rows_each
    total = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for start in range(first, first + rows_each, BLOCK_M):
        rows = start + tl.arange(0, BLOCK_M)
        here = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
        at_dy = rows[:, None] * dy_m + cols[None, :] * dy_n
        at_y = rows[:, None] * y_m + cols[None, :] * y_n
        dy = tl.load(dy_ptr + at_dy, mask=here, other=0.0)
        y = tl.load(y_ptr + at_y, mask=here, other=0.0)
        dz = tl.where(y > 0, dy, 0.0)
        tl.store(dz_ptr + rows[:, None] * n_cols + cols[None, :], dz, mask=here)
        total += dz
    part = parts_ptr + tl.program_id(0) * n_cols
    tl.store(part + cols, tl.sum(total, axis=0), mask=cols < n_cols)
    # END SOLUTION


@triton.jit
def add_kernel(parts_ptr, db_ptr, n_parts, n_cols, BLOCK: tl.constexpr):
    # BEGIN SOLUTION
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for part in range(n_parts):
        at = parts_ptr + part * n_cols + cols
        total += tl.load(at, mask=cols < n_cols, other=0.0)
    tl.store(db_ptr + cols, total, mask=cols < n_cols)
    # END SOLUTION


def fix(dy: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """dz = dy where y > 0, else 0; db = its sums over the rows, in float32: (dz, db)."""
    # BEGIN SOLUTION
    n_rows, n_cols = dy.shape
    dz = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    db = torch.empty(n_cols, device=dy.device)
    n_parts = triton.cdiv(n_rows, 64)
    parts = torch.empty(n_parts, n_cols, device=dy.device)
    fix_kernel[(n_parts, triton.cdiv(n_cols, 64))](
        *(dy, y, dz, parts, n_rows, n_cols, *dy.stride(), *y.stride(), 64),
        BLOCK_M=16,
        BLOCK_N=64,
    )
    add_kernel[(triton.cdiv(n_cols, 64),)](parts, db, n_parts, n_cols, BLOCK=64)
    return dz, db
    # END SOLUTION


# %% tags=["check"]
check("13.fix")

# %% [markdown] why fix
# **Why it matters.** Nothing in a result says that a kernel is slow. Each of the three faults had one number that did,
# and each number had one line to blame. Both versions beside each other:

# %% both profiles
rows = lesson.evidence(slow, dy, y)
with lesson.when_written():
    rows |= lesson.evidence(fix, dy, y)
lesson.table(rows, first="before and after")
