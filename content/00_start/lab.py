# %% [markdown]
# # Lab 00: your machine, and first kernels
#
# **Six exercises:** tell the vendors apart, write your first kernel, teach one to read views of any shape; then find a
# mask in machine code, predict what a virtual GPU counts, and repair a kernel whose lanes read far apart.
# About 100 minutes, on any machine. A good place to stop is after the third.
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

from gpu_utils import check, hint, listing, progress, solution, virtual_gpu


@triton.jit
def gather_kernel(x_ptr, out_ptr, n, stride, BLOCK: tl.constexpr):
    """For 00.predict_counters."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets * stride, mask=mask), mask=mask)


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
# $$\text{out}_i = x_i + y_{i \bmod m} \qquad 0 \le i < n$$
#
# A vector `x` of `n` elements, and a shorter one, `y`, of `m`, which starts again at its end: so a bias is added to
# every row of a matrix.
#
# **Given** `x` of shape `(n,)` and `y` of shape `(m,)`, contiguous, float32 or float16, on the same device;
# $1 \le m \le n$. **Return** a new tensor of shape `(n,)` with the dtype and device of `x`. Leave `x` and `y` as they
# are, and make no copy of `y`. All adding is the kernel's: torch only allocates the result.
#
# One program adds `BLOCK = 1024` neighbouring elements. So the kernel asks which program it is, works out its
# offsets and where each of them lies in `y`, masks those that are past the end, loads, adds, stores. The launcher
# allocates the result, works out how many programs there must be, launches, returns.
#
# The check also counts memory transactions. In float32, where `n` is a multiple of `BLOCK`, `global_sectors_per_ideal`,
# the transactions of your kernel over the least that its bytes could need, must be at most 2. A transaction
# brings a whole piece of memory, so it is enough that neighbouring lanes read and write neighbouring elements (more in
# section 6 of the lesson).
#
# With `BLOCK = 4`, `n = 6` and `m = 3` it would look like this:
#
# | | program 0 | program 1 |
# |---|---|---|
# | offsets | 0 1 2 3 | 4 5 6 7 |
# | mask | ✓ ✓ ✓ ✓ | ✓ ✓ – – |
# | x = 1 2 3 4 5 6 | 1 2 3 4 | 5 6 · · |
# | y = 10 20 30 | 10 20 30 10 | 20 30 · · |
# | out | 11 22 33 14 | 25 36 (not touched) |


# %% 00.vector_add tags=["answer", "00.vector_add"]
@triton.jit
def vector_add_kernel(x_ptr, y_ptr, out_ptr, n, m, BLOCK: tl.constexpr):
    # which elements are this program's own, which of them exist, and where in y?
    # BEGIN SOLUTION
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets % m, mask=mask)
    tl.store(out_ptr + offsets, x + y, mask=mask)
    # END SOLUTION


def vector_add(x: Tensor, y: Tensor) -> Tensor:
    """Return x + y, y repeated; x: (n,), y: (m,). Launches vector_add_kernel."""
    BLOCK = 1024
    # BEGIN SOLUTION
    n, m = x.numel(), y.numel()
    out = torch.empty_like(x)
    grid = (triton.cdiv(n, BLOCK),)
    vector_add_kernel[grid](x, y, out, n, m, BLOCK=BLOCK)
    return out
    # END SOLUTION


# %% tags=["check"]
check("00.vector_add")

# %% [markdown] why vector_add
# **Why it matters.** Every kernel in this course starts with these lines. And the report says where your one source
# passed: its PTX on `virtual:sm_80`, its AMDGCN on `virtual:gfx942`. Without the mask, it would have named the line,
# the lane and the tensor. One question more: does the load of `y` need the mask? No: `offsets % m` is below `m` in
# every lane. The load of `x` and the store do.

# %% [markdown] statement of saxpy
# ## 00.saxpy: any view, and no idle lanes
#
# $$\text{out}_{rc} = a \, x_{rc} + y_{rc} \qquad 0 \le r < \text{rows},\; 0 \le c < \text{cols}$$
#
# **Given** `a`, a Python float, and `x` and `y`, float32 tensors of shape `(rows, cols)` on the same device. They may
# be *views*: a slice of a wider matrix, every second row, a transpose, one row repeated. Each has its own strides.
# **Return** a new tensor of shape `(rows, cols)`, same dtype and device. Torch copies nothing and computes nothing
# (`contiguous`, `clone`, `reshape`): your kernel reads `x` and `y` where they are.
#
# A program for each row, as in section 3 of the lesson, wastes nearly all its lanes where rows are short: of 128
# positions, a row of 3 uses 3. Here a program takes `BLOCK = 128` neighbouring elements *of the whole result*, counted
# row after row, so a block may begin and end in the middle of a row. The check counts threads: for 500
# rows of 3, 28,096 are the most, 18.7 for each element. A result of 3 columns with `BLOCK = 4`:
#
# | | program 0 | program 1 |
# |---|---|---|
# | offsets | 0 1 2 3 | 4 5 6 7 |
# | row | 0 0 0 1 | 1 1 2 2 |
# | column | 0 1 2 0 | 1 2 0 1 |
#
# The rest is strides: `x.stride(0)` says how far apart two rows are in memory, `x.stride(1)` two columns, in elements.
# For example:
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
# Memory transactions are counted here, too: where `x` and `y` are contiguous and `cols` is a multiple of `BLOCK`,
# `global_sectors_per_ideal` must be at most 2. Through a transpose it may be more; there, nobody can help it so simply.


# %% 00.saxpy tags=["answer", "00.saxpy"]
@triton.jit
def saxpy_kernel(
    a,
    x_ptr,
    y_ptr,
    out_ptr,
    n,  # elements of the result
    n_cols,
    stride_xm,  # from row to row of x
    stride_xn,  # from column to column of x
    stride_ym,  # the same for y
    stride_yn,
    BLOCK: tl.constexpr,
):
    # BEGIN SOLUTION
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    row, col = offsets // n_cols, offsets % n_cols
    x = tl.load(x_ptr + row * stride_xm + col * stride_xn, mask=mask)
    y = tl.load(y_ptr + row * stride_ym + col * stride_yn, mask=mask)
    tl.store(out_ptr + offsets, a * x + y, mask=mask)
    # END SOLUTION


def saxpy(a: float, x: Tensor, y: Tensor) -> Tensor:
    """Return a * x + y; a: float, x, y: (rows, cols) views on one device. Launches saxpy_kernel."""
    BLOCK = 128
    rows, cols = x.shape
    # BEGIN SOLUTION
    n = rows * cols
    out = torch.empty(rows, cols, dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(n, BLOCK),)
    saxpy_kernel[grid](a, x, y, out, n, cols, *x.stride(), *y.stride(), BLOCK=BLOCK)
    return out
    # END SOLUTION


# %% tags=["check"]
check("00.saxpy")

# %% [markdown] why saxpy
# **Why it matters.** Attention heads, transposed weights and slices of a batch are all views. A kernel that takes
# strides reads them in place; one that does not costs a copy each time, and a copy moves every byte twice. And shapes
# that no block divides are the rule: which elements a program takes is yours to choose.

# %% [markdown] statement of find_mask
# ## 00.find_mask: where is the mask?
#
# Section 5 of the lesson found your lines again in the machine code of both vendors. Now write a reader that finds one
# thing in code it has never seen: the instructions in which a kernel's mask *takes effect*, so that a masked lane does
# not touch global memory.
#
# **Given** `instructions`: the machine code of one Triton kernel for one target, a list of text without labels, PTX
# (`sm_80`, `sm_90`) or AMDGCN (`gfx90a`, `gfx942`, `gfx1100`). The kernel reads one tensor and writes another.
# **Return** a dict with two entries:
#
# | `"way"` | how masked lanes are kept out | `"at"`: the indices of |
# |---|---|---|
# | `"predicate"` | an access to global memory has a guard | all accesses with a guard |
# | `"EXEC"` | lanes are switched off | what switches them off |
# | `"offset"` | an access aims outside its buffer | what chooses those offsets |
# | `"none"` | not at all: no access is masked | nothing: `[]` |
#
# The indices are in rising order, from 0. A kernel uses one way, and none switches lanes off for anything but its mask.
# For example, of these six instructions (the numbers are not part of them) the answer is
# `{"way": "predicate", "at": [1, 4]}`:
#
# ```text
# 0  setp.lt.s32 %p1, %r12, %r7;
# 1  @%p1 ld.global.b32 { %r1 }, [ %rd1 + 0 ];
# 2  mul.f32 %r3, %r8, %r1;
# 3  setp.lt.f32 %p2, %r3, 0f00000000;
# 4  @%p1 st.global.b32 [ %rd2 + 0 ], { %r3 };
# 5  @%p2 bra $L__BB0_2;
# ```
#
# Not every comparison is a mask, not every guard stands before an access, and not every `v_cndmask_b32` chooses an
# offset: `tl.where` and loops leave such instructions, too. The operands of a buffer access, as in
# `buffer_load_dword v1, v0, s[0:3], 0 offen`, are the data, the *offset*, and the buffer descriptor. What chose the
# offset is the last instruction before the access that wrote its register; the first operand is what an instruction
# writes.
#
# To see real code, with its numbers:
#
# ```python
# given = (torch.float32, torch.float32, torch.float32, 1024, 1024)
# found = listing(vector_add_kernel, "gfx942", args=given, BLOCK=1024)
# for i, one in enumerate(found.columns[0].instructions):
#     print(i, one.text)
# ```


# %% 00.find_mask tags=["answer", "00.find_mask"]
def find_mask(instructions: list[str]) -> dict[str, str | list[int]]:
    """Say how a kernel's mask keeps lanes from memory, and in which instructions.

    >>> find_mask(["v_cmp_gt_i32_e32 vcc, s6, v0", "s_and_saveexec_b64 s[0:1], vcc"])
    {'way': 'EXEC', 'at': [1]}
    """
    # BEGIN SOLUTION
    guarded, switched, chosen = [], [], set()
    writer = {}  # register -> the last instruction that wrote it
    for i, text in enumerate(instructions):
        operands = text.partition(" ")[2].split(", ")
        if text.startswith("@") and ".global" in text:
            guarded.append(i)
        elif "saveexec" in text:
            switched.append(i)
        elif text.startswith("buffer_"):
            at = writer[operands[1]]
            if instructions[at].startswith("v_cndmask"):
                chosen.add(at)
        writer[operands[0]] = i
    ways = {"predicate": guarded, "EXEC": switched, "offset": sorted(chosen)}
    way = next((way for way, at in ways.items() if at), "none")
    return {"way": way, "at": ways.get(way, [])}
    # END SOLUTION


# %% tags=["check"]
check("00.find_mask")

# %% [markdown] why find_mask
# **Why it matters.** How lanes are masked cannot be seen in the source: one kernel had all three ways, by target and by
# the size of its tensors. The difference has a price. With `EXEC` a jump can save the
# work where no lane is left. In the other two the instructions that follow work on zeros; in PTX that is not the last
# word, because `ptxas` may still turn a guard into an early exit.

# %% [markdown] statement of predict_counters
# ## 00.predict_counters: count before you run
#
# The kernel of the lesson's section 6 gathers every `stride`-th float of `x`. It is `gather_kernel` of the first cell:
#
# ```python
# offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
# mask = offsets < n
# tl.store(out_ptr + offsets, tl.load(x_ptr + offsets * stride, mask=mask), mask=mask)
# ```
#
# It is launched with `BLOCK = 256` on `triton.cdiv(n, 256)` programs, and with as many warps or wavefronts to a program
# as make one element a lane: `num_warps=8` on `sm_80`, 4 on `gfx942`. `x` begins at a transaction.
#
# **Predict**, for any `n >= 1` and `stride >= 1`, what the two virtual GPUs count: for `"sm_80"` and `"gfx942"` each
#
# - `waves`: the warps or wavefronts that are launched,
# - `transactions`: those of the *loads*: pieces of memory that each load instruction touches, summed over all waves
#   (32 lanes and sectors of 32 bytes on `sm_80`, 64 lanes and lines of 128 bytes on `gfx942`),
# - `moved_bytes`: the bytes that these are.
#
# A check asks for launches of billions of elements as well, so a loop over lanes will not come to an end. What does one
# full wave cost? The expected numbers are those that the virtual GPUs count. To see some, in a cell of your own:
#
# ```python
# n, stride = 66, 5
# x, out = torch.randn(n * stride), torch.empty(n)
# with virtual_gpu("gfx942") as gpu:
#     gather_kernel[(triton.cdiv(n, 256),)](x, out, n, stride, BLOCK=256, num_warps=4)
# gpu.counters.totals()["global_load_sectors"]
# ```


# %% 00.predict_counters tags=["answer", "00.predict_counters"]
def predict_counters(n: int, stride: int) -> dict[str, dict[str, int]]:
    """Predict waves, transactions and bytes of a strided gather on both virtual GPUs.

    >>> predict_counters(4096, 8)["sm_80"]
    {'waves': 128, 'transactions': 4096, 'moved_bytes': 131072}
    """

    # BEGIN SOLUTION
    def touched(lanes: int, piece: int) -> int:  # by one load instruction
        return lanes if 4 * stride >= piece else (lanes - 1) * 4 * stride // piece + 1

    found = {}
    for target, lanes, piece in (("sm_80", 32, 32), ("gfx942", 64, 128)):
        waves = triton.cdiv(n, 256) * 256 // lanes
        full, rest = divmod(n, lanes)
        pieces = full * touched(lanes, piece) + (touched(rest, piece) if rest else 0)
        moved = pieces * piece
        found[target] = {"waves": waves, "transactions": pieces, "moved_bytes": moved}
    return found
    # END SOLUTION


# %% tags=["check"]
check("00.predict_counters")

# %% [markdown] why predict_counters
# **Why it matters.** A number that you can predict is one that you can trust, and a counter that disagrees with your
# prediction is where a bug, or something to learn, sits. Every later unit counts bytes first.

# %% [markdown] statement of column_sums
# ## 00.column_sums: right sums, wrong reads
#
# $$\text{out}_c = \sum_{r=0}^{\text{rows} - 1} x_{rc} \qquad 0 \le c < \text{cols}$$
#
# The sums of the columns of a matrix. Every training step has some: where a bias is added to each row of a matrix, the
# gradient of the bias is such a sum. Here is a kernel by somebody who knows CPUs: a program for each column, whose
# lanes share the rows.
#
# ```python
# @triton.jit
# def column_sums_kernel(x_ptr, out_ptr, n_rows, n_cols, BLOCK: tl.constexpr):
#     col = tl.program_id(0)
#     total = tl.zeros([BLOCK], tl.float32)
#     for first in range(0, n_rows, BLOCK):
#         rows = first + tl.arange(0, BLOCK)
#         x = tl.load(x_ptr + rows * n_cols + col, mask=rows < n_rows, other=0.0)
#         total += x  # lane by lane
#     tl.store(out_ptr + col, tl.sum(total, axis=0))  # and across the lanes
# ```
#
# It is launched with `BLOCK = 128` on a grid of `(n_cols,)`. The sums are right. But for each byte that its loads ask
# for, 8 come on `sm_80` and 32 on `gfx942`. **Repair it**, kernel and launcher, so that the sums stay the same. Where
# `cols` is a multiple of 128, the check counts: `global_sectors_per_ideal` must be at most 1.6, the bytes that are
# stored, or added with atomics, at most a quarter of the matrix, and the programs at most half as many as the columns.
#
# **Given** `x`: a contiguous float32 tensor of shape `(rows, cols)`, both 1 or more. **Return** a new float32 tensor of
# shape `(cols,)` on the same device. Torch allocates the result, no more: it neither copies nor adds.


# %% 00.column_sums tags=["answer", "00.column_sums"]
@triton.jit
def column_sums_kernel(x_ptr, out_ptr, n_rows, n_cols, BLOCK: tl.constexpr):
    # which elements should neighbouring lanes read, and whose sums are those?
    # BEGIN SOLUTION
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < n_cols
    total = tl.zeros([BLOCK], tl.float32)
    for row in range(n_rows):
        total += tl.load(x_ptr + row * n_cols + cols, mask=mask)
    tl.store(out_ptr + cols, total, mask=mask)
    # END SOLUTION


def column_sums(x: Tensor) -> Tensor:
    """Return the sum of each column; x: (rows, cols) float32, contiguous."""
    BLOCK = 128
    # BEGIN SOLUTION
    n_rows, n_cols = x.shape
    out = torch.empty(n_cols, dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(n_cols, BLOCK),)
    column_sums_kernel[grid](x, out, n_rows, n_cols, BLOCK=BLOCK)
    return out
    # END SOLUTION


# %% tags=["check"]
check("00.column_sums")

# %% [markdown] why column_sums
# **Why it matters.** No test of results finds the difference; a counter does. Which lane holds
# which element decides what a kernel asks of memory. Every fast kernel of this course begins with that question. Fewer
# transactions are not yet speed: 512 columns, 128 to a program, are 4 programs, each a long loop, and most of a chip is
# idle. Unit 04 shares out the rows as well.

# %% [markdown] where you stand
# ## Where you stand
#
# `progress()` lists every exercise of the course that exists, and what you have passed. It is stored on your machine
# only.

# %% progress
progress()
