# %% [markdown] top
# # Lab 05: one matrix product, from a tile to a full chip
#
# **Seven exercises.** Each is a matrix product that you write. The counters of lesson 05 decide: matrix instructions
# and their share, bytes from memory and from the L2, spills, programs.
#
# - **First**: lesson 05. Everything that is asked here is explained there.
# - **Time**: three sittings, one for each part. As a guess, not from a stopwatch: 75 minutes, 25, and 80. A stop stands
#   at the end of each.
# - **How it works**: write your answer in the cell that says `YOUR CODE`, run it, run the check below it. A check runs
#   the public cases and three fresh ones, and says what differs. `hint("05.tiled")` gives three hints of growing
#   strength. `solution("05.tiled")` asks first.

# %% imports tags=["setup"]
import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from gpu_utils import check, compile_for, hint, lesson, progress, solution, virtual_gpu
from gpu_utils.lesson import TARGETS, resources

# %% [markdown] part one
# ## Part 1: one tile

# %% [markdown] statement of tiled
# ## 05.tiled: one tile of the result to each program
#
# Write `tiled(a, b)`, the matrix product, as one launch of one kernel:
#
# $$ \text{out}_{i,j} = \sum_{k=0}^{K-1} a_{i,k}\, b_{k,j} $$
#
# | | |
# |---|---|
# | `a`, `b` | shapes (M, K) and (K, N), both float32, float16 or bfloat16; any strides: a transpose, a part |
# | `M`, `N`, `K` | any: 1, no multiple of a tile, K longer than shared memory can hold, K = 0 (then the result is 0) |
# | what lies beside a view | any numbers, also NaN |
# | result | a new matrix (M, N), contiguous, dtype of `a`; summed in float32 and rounded once |
#
# **float32 is float32.** For float32 factors `tl.dot` has a parameter `input_precision`. Its default is not the same
# on every target: some round each factor to 10 bits, so that a matrix unit can take it. Here all digits are asked for.
#
# **Limits.** `launches`: 1. `matrix_flops`: with 16-bit factors at least `2 * M * N * K`, so matrix instructions do the
# work. `scratch_bytes`: 0, nothing spills. `global_store_bytes`: each element of the result once. Where M, N and K are
# multiples of 64, `global_load_bytes` is at most what tiles of 64 x 64 load (5% more), and `matrix_flops` at most
# `4 * M * N * K`. All of it holds on `sm_80` and on `gfx942`.
#
# **Two puzzles.** A tile has three edges that may be cut: at M, at N, and at K. Two of the masks only keep you inside
# your memory; without the third one the numbers are wrong. Which one, and why? And when a is 65 x 101 in float16, tiles
# are 64 x 64 and blocks of K are 32: how many bytes of `a` does *one* tile of the second row load, with masks and
# without?
#
# **A small example.** With a = (1 2 3), b = (4 5 6) as a column, and blocks of two along K, the first block gives
# 1·4 + 2·5 = 14. The second one has one element, and a place behind it. What must stand there, in a and in b, so that
# the sum is 32 although NaN lies beside a?
#
# **Triton that helps.** `rows[:, None]` and `cols[None, :]` make offsets and masks of two dimensions; `&` joins masks.
# `tl.dot(a, b, acc)` gives `acc + a @ b` for tiles of 16 rows, columns and steps or more. The loop over K comes again
# in four later kernels. You may write it once, as a `@triton.jit` function of your own in this cell, and call it there:
# say `tile_sum`, of pointers, rows, columns, strides, and where K begins and ends. Lesson 05, sittings *One tile* and
# *The right tile*. `hint("05.tiled")` gives three hints.


# %% 05.tiled tags=["answer", "05.tiled"]
@triton.jit
def tiled_kernel(
    a_ptr,
    b_ptr,
    out_ptr,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    # BEGIN SOLUTION
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for first in range(0, K, BLOCK_K):
        ks = first + tl.arange(0, BLOCK_K)
        a_there = (rows < M) & (ks[None, :] < K)
        b_there = (ks[:, None] < K) & (cols < N)
        a_at = a_ptr + rows * stride_am + ks[None, :] * stride_ak
        b_at = b_ptr + ks[:, None] * stride_bk + cols * stride_bn
        a = tl.load(a_at, mask=a_there, other=0.0)
        b = tl.load(b_at, mask=b_there, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    tl.store(out_ptr + rows * N + cols, acc, mask=(rows < M) & (cols < N))
    # END SOLUTION


def tiled(a: Tensor, b: Tensor) -> Tensor:
    """a @ b for a (M, K) and b (K, N) of any strides; contiguous, in the dtype of a."""
    # BEGIN SOLUTION
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), dtype=a.dtype, device=a.device)
    grid = triton.cdiv(M, 64), triton.cdiv(N, 64)
    blocks = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}
    tiled_kernel[grid](a, b, out, M, N, K, *a.stride(), *b.stride(), **blocks)
    return out
    # END SOLUTION


# %% tags=["check"]
check("05.tiled")

# %% [markdown] why tiled
# **Why it matters.** Nearly all arithmetic of GPT-2 is this one sum, and most of it with views: attention multiplies
# by a transpose, the backward pass by two. A kernel that asks for contiguous factors pays a copy for each. And the mask
# along K is the one that tests forget: with M, N, K from a table of powers of two it is never false.
#
# <details><summary>The puzzles</summary>
#
# The mask along K: what lies behind row and column ends goes to elements that are not stored, but every element of the
# tile sums over the whole block of K. The second row of tiles has one row of `a`: 101 elements, 202 bytes. Without
# masks it would load 64 rows of four blocks, 64 x 128 x 2 = 16,384 bytes. In the small example the second place must be
# 0 in both: 0 times NaN is NaN.
#
# </details>

# %% [markdown] statement of accumulate
# ## 05.accumulate: round once
#
# Write `accumulate(a, b, c, alpha, beta)`, as one launch of one kernel:
#
# $$ \text{out} = \alpha\, (a\, b) + \beta\, c $$
#
# | | |
# |---|---|
# | `a`, `b` | shapes (M, K) and (K, N), both float16 or both bfloat16; any strides; K from 1 to many thousands |
# | `c` | shape (M, N), dtype of `a` or float32; any strides; it is not changed |
# | `alpha`, `beta` | Python floats; where `beta` is 0, `c` may hold anything, NaN too, as in BLAS |
# | result | a new matrix (M, N), contiguous, **dtype of `c`** |
#
# **Rounded once.** The result may be off by one rounding to its dtype, and by the roundings of K additions in float32.
# Nothing else: that is the tolerance, worked out from K and the dtype. Inputs are drawn so that `alpha * (a @ b)` and
# `beta * c` often nearly cancel. And one product is larger than 65,504, the end of float16; `alpha` brings it back.
#
# **Limits.** `launches`: 1. `matrix_flops`: at least `2 * M * N * K`. `scratch_bytes`: 0. `global_store_bytes`: each
# element of the result once. `global_load_bytes`: where M, N and K are multiples of 64, what tiles of 64 x 64 load of
# `a` and `b`, and `c` once (5% more at most). On `sm_80` and on `gfx942`.
#
# **A small example.** bfloat16 has 8 bits: between 256 and 512 it holds only even numbers. Take a @ b = 257 and
# c = -256, both factors 1. Rounded once the result is 1. What is it when a @ b is rounded first? And when a sum in
# bfloat16 stands at 256, what do 1,000 products of 1 add to it?
#
# **Triton that helps.** `tl.dot(a, b, acc)` adds to a float32 `acc`, whatever the dtype of the tiles.
# `.to(tl.float32)`; `tl.store` converts to the type of the pointer. `if beta != 0:` works in a kernel, on a number that
# it is given. Your `tile_sum`, if you have one, may be called. Lesson 05, sitting *The right tile*.
# `hint("05.accumulate")` gives three hints.


# %% 05.accumulate tags=["answer", "05.accumulate"]
@triton.jit
def accumulate_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    out_ptr,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    alpha,
    beta,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    # BEGIN SOLUTION
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for first in range(0, K, BLOCK_K):
        ks = first + tl.arange(0, BLOCK_K)
        a_there = (rows < M) & (ks[None, :] < K)
        b_there = (ks[:, None] < K) & (cols < N)
        a_at = a_ptr + rows * stride_am + ks[None, :] * stride_ak
        b_at = b_ptr + ks[:, None] * stride_bk + cols * stride_bn
        a = tl.load(a_at, mask=a_there, other=0.0)
        b = tl.load(b_at, mask=b_there, other=0.0)
        acc = tl.dot(a, b, acc)
    there = (rows < M) & (cols < N)
    total = alpha * acc
    if beta != 0:
        c = tl.load(c_ptr + rows * stride_cm + cols * stride_cn, mask=there)
        total += beta * c.to(tl.float32)
    tl.store(out_ptr + rows * N + cols, total, mask=there)
    # END SOLUTION


def accumulate(a: Tensor, b: Tensor, c: Tensor, alpha: float, beta: float) -> Tensor:
    """alpha * (a @ b) + beta * c, contiguous, in the dtype of c, rounded once."""
    # BEGIN SOLUTION
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), dtype=c.dtype, device=c.device)
    grid = triton.cdiv(M, 64), triton.cdiv(N, 64)
    strides = (*a.stride(), *b.stride(), *c.stride())
    blocks = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64}
    accumulate_kernel[grid](a, b, c, out, M, N, K, *strides, alpha, beta, **blocks)
    return out
    # END SOLUTION


# %% tags=["check"]
check("05.accumulate")

# %% [markdown] why accumulate
# **Why it matters.** A batch that does not fit is cut in parts, and each part adds its gradient to what is there:
# `alpha` is 1, `beta` is 1, `c` is float32 and the factors are bfloat16. A gradient that is rounded to bfloat16 first
# has 8 bits; one that is added in bfloat16 is lost where it is less than half a step of the sum. That begins where it
# is 256 times smaller, and from 512 times on it is always so. Training goes on, and nothing warns: the loss only stops
# falling earlier.
#
# <details><summary>The small example</summary>
#
# 257 lies between 256 and 258, half way, and goes to the even one, 256: 256 - 256 is 0, and not 1. To the sum at 256 a
# thousand products of 1 add nothing, one after the other: each is half a step.
#
# </details>

# %% [markdown] statement of epilogue
# ## 05.epilogue: what is done while the tile is at hand
#
# Write `epilogue(x, weight, bias)`, the first half of GPT-2's MLP, as one launch of one kernel:
#
# $$ v = x\, w^T + b,\quad u = \sqrt{2 / \pi}\, (v + 0.044715\, v^3),\quad \text{out} = \tfrac12\, v\, (1 + \tanh u) $$
#
# | | |
# |---|---|
# | `x` | float32, float16 or bfloat16, shape (M, K); any strides |
# | `weight` | the same dtype, shape (N, K), as `torch.nn.Linear` keeps it: (out, in); any strides |
# | `bias` | the same dtype, shape (N,); any stride |
# | values of `v` | up to some hundreds, of either sign |
# | result | a new matrix (M, N), contiguous, dtype of `x`; all in float32, rounded once; float32 factors in full |
#
# **Limits.** `launches`: 1. `global_store_bytes`: each element of the result once, and nothing else. `matrix_flops`:
# with 16-bit factors at least `2 * M * N * K`. `scratch_bytes`: 0. `global_load_bytes`: where M, N and K are multiples
# of 64, what tiles of 64 x 64 load of `x` and `weight` (5% more at most), and for `bias` as many bytes as the result
# has: lanes that share a column each load its bias for themselves. On `sm_80` and on `gfx942`.
#
# **Two puzzles.** `weight.T` costs nothing in torch, because it is a view. What does it cost in your kernel? And which
# formula of tanh is still right for v = 100, and which one gives NaN there?
#
# **A small example.** x = (1 2), weight = (3 -2) as its only row, bias = (1): v is 1·3 - 2·2 + 1 = 0, and GELU of 0
# is 0. With bias = (2), v = 1: u = 0.7979 · 1.0447 = 0.8336, its tanh is 0.6825, and the result is 0.8412.
#
# **Triton that helps.** `tl.sigmoid`, `tl.exp` (float32). There is no `tl.tanh`; `libdevice.tanh` is allowed, but write
# your own once. A block of shape (1, BLOCK_N) is broadcast over the rows of a tile. Your `tile_sum` may be called.
# Lesson 05, sitting *The right tile*. `hint("05.epilogue")` gives three hints.


# %% 05.epilogue tags=["answer", "05.epilogue"]
@triton.jit
def epilogue_kernel(
    x_ptr,
    w_ptr,
    bias_ptr,
    out_ptr,
    M,
    N,
    K,
    stride_xm,
    stride_xk,
    stride_wn,
    stride_wk,
    stride_bias,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    # BEGIN SOLUTION
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for first in range(0, K, BLOCK_K):
        ks = first + tl.arange(0, BLOCK_K)
        x_there = (rows < M) & (ks[None, :] < K)
        w_there = (ks[:, None] < K) & (cols < N)
        x_at = x_ptr + rows * stride_xm + ks[None, :] * stride_xk
        w_at = w_ptr + ks[:, None] * stride_wk + cols * stride_wn
        x = tl.load(x_at, mask=x_there, other=0.0)
        w = tl.load(w_at, mask=w_there, other=0.0)
        acc = tl.dot(x, w, acc, input_precision="ieee")
    bias = tl.load(bias_ptr + cols * stride_bias, mask=cols < N, other=0.0)
    v = acc + bias.to(tl.float32)
    u = 0.7978845608028654 * (v + 0.044715 * v * v * v)
    gelu = v * tl.sigmoid(2 * u)
    tl.store(out_ptr + rows * N + cols, gelu, mask=(rows < M) & (cols < N))
    # END SOLUTION


def epilogue(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """gelu(x @ weight.T + bias) for weight (N, K); contiguous, in the dtype of x."""
    # BEGIN SOLUTION
    (M, K), N = x.shape, weight.shape[0]
    out = torch.empty((M, N), dtype=x.dtype, device=x.device)
    grid = triton.cdiv(M, 64), triton.cdiv(N, 64)
    strides = (*x.stride(), *weight.stride(), bias.stride(0))
    blocks = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}
    epilogue_kernel[grid](x, weight, bias, out, M, N, K, *strides, **blocks)
    return out
    # END SOLUTION


# %% tags=["check"]
check("05.epilogue")

# %% [markdown] why epilogue
# **Why it matters.** In GPT-2's MLP the first product has 4 * 768 columns: for 8 x 1,024 tokens in bfloat16 that is
# 50 MB. Bias and GELU in kernels of their own would each read and write all of it. Libraries call what is done to a
# tile before it leaves the registers an *epilogue*; cuBLASLt and hipBLASLt have one for exactly this.
#
# <details><summary>The puzzles</summary>
#
# `weight.T` costs nothing in your kernel either: two strides change places. (Which lanes load neighbours may change,
# and with it the number of transactions.) For v = 100 the form with e^2u gives inf / inf, NaN. 2 sigmoid(2u) - 1 has
# its exponential in a divisor, where inf gives 0, and is right.
#
# </details>

# %% [markdown] part two
# **A stop.** You have a matrix product for any sizes and strides, which rounds once and ends in what comes after it.
# What is left are questions of many tiles: their order, and how they fill a chip.
#
# ## Part 2: many tiles

# %% [markdown] statement of grouped_order
# ## 05.grouped_order: what the L2 keeps
#
# C is cut into `tiles_m` x `tiles_n` tiles, one for each program. Tile (m, n) needs strip m of A and strip n of B.
# Which program takes which tile changes no number of the result. It decides what is fetched from memory:
#
# - **A chip of one die** (`dies` is 1, an H100) runs 132 programs at a time, one on each SM: first programs 0 to 131,
#   then 132 to 263, and so on. A strip that several of them need at the same time is fetched once, into the one L2.
#   K is large, so that nothing of a strip is left for the next 132.
# - **A chip of several dies** (an MI300X has 8) runs 38 programs at a time on each die, and **program i is on die
#   `i % dies`**. Each die has an L2 of its own: a strip that programs of three dies need is fetched three times.
#
# Here is the same chip, small, with 6 programs at a time. The numbers are programs, at the places of their tiles:
#
# ```text
# row by row     0  1  2  3  4  5      group of two rows   0  2  4  6  8 10
#                6  7  8  9 10 11                          1  3  5  7  9 11
# ```
#
# With one L2 the first six need 1 + 6 strips row by row, and 2 + 3 in a group of two rows. With two dies, three
# programs on each, die 0 has programs 0, 2 and 4. In the group that is one row again, 1 + 3 strips, and so is die 1: 8
# for both.
#
# Write `tile_of`, which turns the program id of a matrix product into a tile, and the launcher
# `grouped_order(tiles, dies)`, which lets `order_kernel` say what all programs of such a product would take.
#
# | | |
# |---|---|
# | `tiles` | int32, shape (tiles_m, tiles_n), contiguous; the number that each tile has, in no order |
# | `dies` | a whole number, 1 or more |
# | result | int32, shape (tiles_m * tiles_n,): at place i the number of the tile that program i takes |
#
# **Limits.** Each tile is taken once, for every `tiles_m`, `tiles_n` and `dies`. `launches`: 1. `blocks`: at most one
# program for every 16 ids (128 is meant; a BLOCK of 16 or more will do). Strips, counted over all rounds and all L2s,
# where there are 36 tiles or more in both directions: at most 1.45 times what the best order could need. This is asked
# on one die, and on five, six and eight.
#
# **Puzzles.** What shape should the tiles of a round have? What happens in the last group, when GROUP does not divide
# `tiles_m`? And on eight dies: which tiles should programs 0, 8, 16, ... take, and what if the dies do not divide the
# number of tiles? `tl.minimum(x, y)`, `//` and `%` are all that it takes. `order_kernel` asks for 128 program ids at a
# time, so `pid` is a vector here: `tl.where(condition, x, y)` works on it, `if` does not. `hint("05.grouped_order")`
# gives three hints.


# %% 05.grouped_order tags=["answer", "05.grouped_order"]
@triton.jit
def tile_of(pid, tiles_m, tiles_n, dies):
    # BEGIN SOLUTION
    GROUP: tl.constexpr = 8
    count = tiles_m * tiles_n
    die, turn = pid % dies, pid // dies
    place = count // dies * die + tl.minimum(die, count % dies) + turn
    first = place // (GROUP * tiles_n) * GROUP
    height = tl.minimum(tiles_m - first, GROUP)
    inside = place % (GROUP * tiles_n)
    return first + inside % height, inside // height
    # END SOLUTION


@triton.jit(do_not_specialize=["tiles_m", "tiles_n", "dies"])  # compiled once
def order_kernel(tiles_ptr, out_ptr, tiles_m, tiles_n, dies, BLOCK: tl.constexpr):
    count = tiles_m * tiles_n
    pid = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m, n = tile_of(tl.minimum(pid, count - 1), tiles_m, tiles_n, dies)
    there = (m >= 0) & (m < tiles_m) & (n >= 0) & (n < tiles_n)
    number = tl.load(tiles_ptr + m * tiles_n + n, mask=there, other=-1)
    tl.store(out_ptr + pid, number, mask=pid < count)


def grouped_order(tiles: Tensor, dies: int) -> Tensor:
    """The number of the tile that each program takes, in the order of the programs."""
    # BEGIN SOLUTION
    out = tiles.new_empty(tiles.numel())
    grid = (triton.cdiv(tiles.numel(), 128),)
    order_kernel[grid](tiles, out, *tiles.shape, dies, BLOCK=128)
    return out
    # END SOLUTION


# %% tags=["check"]
check("05.grouped_order")

# %% [markdown] why grouped_order
# **Why it matters.** To rename program ids costs no memory, and a few instructions once for a program. With sizes that
# are known only when it runs, a gfx942 has 85 more of them than row by row (135 against 50, counted in the listing of a
# kernel that stores one number); PTX for sm_90 has 20 more, and a division is one of its instructions, which `ptxas`
# makes many of. For 61 x 67 tiles, row by row, an H100 fetches 3.0 times as many strips as the best order, and 1.2
# times as many in groups of eight. The same groups on an MI300X fetch 3.0 times as many (row by row 3.3), for each die
# gets one row of every group; dealt out by die it is 1.08 times. A fast matrix product for a chip of chiplets begins
# with these lines.

# %% [markdown] part three
# **A stop.** You have an order of programs that both kinds of chip like, one L2 or eight. Next: as many programs as
# there are units, and what to do when there are more units than tiles.
#
# ## Part 3: a chip full of tiles

# %% [markdown] statement of persistent
# ## 05.persistent: as many programs as there are units
#
# So far there was a program for each tile. A **persistent** kernel starts only as many as the chip runs at a time, and
# each takes its share of the tiles, one after another: for example tile `p`, its own program id, then tile `p + units`,
# then `p + 2 * units`, as long as there is one. Tiles are numbered row by row, for example: with 3 x 5 tiles, tile 7 is
# in row 1 and column 2. Another order will do, with shares as even.
#
# Write a kernel and its launcher `persistent(a, b, units)`.
#
# | | |
# |---|---|
# | `a` | float16 or bfloat16, shape (M, K); any strides, M, K of 1 and more |
# | `b` | the type of `a`, shape (K, N); any strides, N of 1 and more |
# | `units` | how many programs the chip runs at a time, 1 or more |
# | result | `a @ b`: a new contiguous tensor with the dtype of `a`, shape (M, N), summed in float32, rounded once |
#
# The tiles of the result have 32 x 32 elements (the step along K is yours).
#
# **Limits.** `launches`: 1. `blocks`: `min(units, tiles)`, no more and no fewer. `global_store_bytes`: every element
# once (5 % above). `global_load_bytes`: twice the bytes that tiles of 32 x 32 load, the formula of lesson 05, section
# 4. `matrix_flops`: at least 2 * M * N * K, so use `tl.dot`. `uneven_loads`, what the program that loads most loads,
# over the average of all programs: where all tiles are whole, at most a quarter more than an even share makes it. For
# 15 tiles on 7 units that is 3 tiles over 15 / 7, which is 1.4, and a quarter more: 1.75.
#
# **Example.** 7 units and 15 tiles: program 0 takes tiles 0, 7 and 14, program 1 takes 1 and 8, program 6 takes 6 and
# 13. Three rounds, and in the last one six programs have nothing to do.
#
# **Puzzles.** What belongs to a tile, and what to a program? Which of the two is the accumulator, the mask of the rows,
# the pointer that moves along K? Your `tile_sum` may be called. `tl.num_programs(0)` is the number of programs; `range`
# takes values that are known when the kernel runs. `hint("05.persistent")` gives three hints.


# %% 05.persistent tags=["answer", "05.persistent"]
@triton.jit
def persistent_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    TILE: tl.constexpr,
):
    # BEGIN SOLUTION
    tiles_n = tl.cdiv(N, TILE)
    tiles = tl.cdiv(M, TILE) * tiles_n
    offsets = tl.arange(0, TILE)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        m = tile // tiles_n * TILE + offsets[:, None]
        n = tile % tiles_n * TILE + offsets[None, :]
        acc = tl.zeros((TILE, TILE), tl.float32)
        for first in range(0, K, TILE):
            k = first + offsets
            a_at = a_ptr + m * stride_am + k[None, :] * stride_ak
            a = tl.load(a_at, mask=(m < M) & (k[None, :] < K), other=0.0)
            b_at = b_ptr + k[:, None] * stride_bk + n * stride_bn
            b = tl.load(b_at, mask=(k[:, None] < K) & (n < N), other=0.0)
            acc = tl.dot(a, b, acc)
        tl.store(c_ptr + m * N + n, acc, mask=(m < M) & (n < N))
    # END SOLUTION


def persistent(a: Tensor, b: Tensor, units: int) -> Tensor:
    """a @ b by at most `units` programs, each of which takes tile after tile."""
    # BEGIN SOLUTION
    (M, K), N = a.shape, b.shape[1]
    c = a.new_empty(M, N)
    programs = min(units, triton.cdiv(M, 32) * triton.cdiv(N, 32))
    persistent_kernel[(programs,)](a, b, c, M, N, K, *a.stride(), *b.stride(), TILE=32)
    return c
    # END SOLUTION


# %% tags=["check"]
check("05.persistent")

# %% [markdown] why persistent
# **Why it matters.** Libraries of both vendors have persistent products. CUTLASS 3.0 came with persistent kernels for
# Hopper ([its announcement](https://github.com/NVIDIA/cutlass/discussions/787)). hipBLASLt deals out equal shares of
# all steps along K (Stream-K), and for the MI350 series by that alone ([its
# guide](https://rocm.docs.amd.com/projects/hipBLASLt/en/develop/how-to/how-to-use-streamk.html)). Setting up once and
# not thousands of times is the smaller gain. The larger one: a program knows its next tile before it has stored this
# one, and can load ahead. The price is yours to see: 133 tiles on an H100 take two rounds, like 264. `05.split_k` is
# one way out.

# %% [markdown] statement of split_k
# ## 05.split_k: K in parts, for a result with few tiles
#
# A product has one program for each tile of its result, and a long K gives it no more: 3 x 768 makes 24 tiles of 32 x
# 32, and an MI300X has more than ten times as many CUs. So K is cut into parts. Part $s$ owns a share $K_s$ of it, a
# stretch or every `splits`-th block. Each part of each tile has a program of its own, and somebody adds up:
#
# $$ c_{i,j} = \sum_{s < \mathrm{splits}} \; \sum_{k \in K_s} a_{i,k} \, b_{k,j} $$
#
# | | |
# |---|---|
# | `a`, `b` | shapes (M, K) and (K, N), contiguous, both float16 or both bfloat16; any sizes from 1 up |
# | `splits` | the number of parts, at least 1; perhaps more than there are blocks of K |
# | `deterministic` | False: the parts are added by atomics. True: no atomic at all, and always in the same order |
# | result | shape (M, N), dtype of `a`; summed in float32, **rounded once** |
#
# **Limits.** `launches`: two at most. `blocks`: at least `splits` programs for each tile, or one for each block where K
# has fewer blocks (tiles of up to 64 x 64 and blocks of up to 128 will do). `global_atomics`: 0 where `deterministic`
# is True; else each part sends each element of its tile once. `global_load_bytes`: of `a` and `b` what tiles of
# 32 x 32 load, 5 % more at most; loads of partial sums come on top. `matrix_flops`: at least 2 * M * N * K; a padded
# tile counts in full, and there is room for that, but none for a part that multiplies its way over all of K.
# `uneven_loads`, what the program that loads most loads, over the average of all programs of its launch: with 10 parts
# or more at most 4. Of 14 parts, part 0 with all of K makes 14. torch may allocate and convert (`torch.zeros`, `.to`),
# not add.
#
# **A small example.** K = 10, blocks of 2, three parts: there are 5 blocks, so a part has at most 2 of them. In
# stretches, part 0 owns k from 0 to 3, part 1 from 4 to 7, part 2 the rest, 8 and 9. With `splits` = 7 a part has one
# block, and two parts have none. For the ones-matrices `a` (1 x 10) and `b` (10 x 1) the three stretches give 4, 4, 2.
#
# **Questions to ask yourself.** What is in the memory that atomics add to? Which type has a part while it waits to be
# added: is 1,000 + 1 - 1,000 the same in bfloat16? What does a part write that has nothing to do?
#
# **Triton that helps.** `tl.program_id(2)`, `tl.minimum`, `tl.dot(a, b, acc)`, `tl.atomic_add(ptr, value, mask=mask)`.
# A `tl.constexpr` can be a flag: the branch that it does not choose is not compiled. Your `tile_sum` may be called, if
# it is told where K begins and ends. `hint("05.split_k")` gives three hints.


# %% 05.split_k tags=["answer", "05.split_k"]
@triton.jit
def split_k_kernel(
    a_ptr,
    b_ptr,
    sums_ptr,
    M,
    N,
    K,
    part,
    ATOMIC: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """One part of one tile, added to sums (M, N) or stored in sums (splits, M, N)."""
    # BEGIN SOLUTION
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    split = tl.program_id(2)
    end = tl.minimum(split * part + part, K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(split * part, end, BLOCK_K):
        k_of_a = start + tl.arange(0, BLOCK_K)[None, :]
        k_of_b = start + tl.arange(0, BLOCK_K)[:, None]
        a_mask, b_mask = (rows < M) & (k_of_a < end), (k_of_b < end) & (cols < N)
        a = tl.load(a_ptr + rows * K + k_of_a, mask=a_mask, other=0.0)
        b = tl.load(b_ptr + k_of_b * N + cols, mask=b_mask, other=0.0)
        acc = tl.dot(a, b, acc)
    mask = (rows < M) & (cols < N)
    if ATOMIC:
        tl.atomic_add(sums_ptr + rows * N + cols, acc, mask=mask)
    else:
        tl.store(sums_ptr + split * M * N + rows * N + cols, acc, mask=mask)
    # END SOLUTION


@triton.jit
def add_parts_kernel(sums_ptr, out_ptr, n, splits, BLOCK: tl.constexpr):
    """out[i] = the sum of sums[s * n + i] over all s < splits, for i < n."""
    # BEGIN SOLUTION
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for split in range(splits):
        total += tl.load(sums_ptr + split * n + offsets, mask=mask)
    tl.store(out_ptr + offsets, total, mask=mask)
    # END SOLUTION


def split_k(a: Tensor, b: Tensor, splits: int, deterministic: bool) -> Tensor:
    """a @ b with K in `splits` parts, in the dtype of a."""
    # BEGIN SOLUTION
    (M, K), N = a.shape, b.shape[1]
    tiles = (triton.cdiv(M, 32), triton.cdiv(N, 32))
    part = triton.cdiv(triton.cdiv(K, 32), splits) * 32
    f32 = {"dtype": torch.float32, "device": a.device}
    sums = (
        torch.empty((splits, M, N), **f32)
        if deterministic
        else torch.zeros((M, N), **f32)
    )
    split_k_kernel[(*tiles, splits)](
        *(a, b, sums, M, N, K, part),
        ATOMIC=not deterministic,
        BLOCK_M=32,
        BLOCK_N=32,
        BLOCK_K=32,
    )
    if not deterministic:
        return sums.to(a.dtype)
    out = torch.empty((M, N), dtype=a.dtype, device=a.device)
    add_parts_kernel[(triton.cdiv(M * N, 512),)](sums, out, M * N, splits, BLOCK=512)
    return out
    # END SOLUTION


# %% tags=["check"]
check("05.split_k")

# %% [markdown] why split_k
# **Why it matters.** While a model writes text, each step multiplies a few rows with every weight: few tiles, long K,
# and a chip that waits. Libraries split K there by themselves. They ask for room (`workspace`) where they add in order,
# and PyTorch's `use_deterministic_algorithms` is what forbids the other way. In a batch the split may change with the
# number of rows, and with it the last bits of a row that did not change: unit 09 returns to that.

# %% [markdown] the kernel of autotune
# ## 05.autotune: what a tuner is given
#
# `triton.autotune` compiles every configuration of a list, times each of them for every new size, and keeps the
# fastest. It finds nothing that is not in the list, and an entry that does not load, or that spills, is a waste for
# every user. Here is a kernel, and what one configuration of it needs of two chips.


# %% the kernel that is to be tuned
@triton.jit
def product_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """C = A B in float16, for whole tiles: A (M, K), B (K, N), C (M, N), row by row."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    a_ptrs = a_ptr + rows * K + tl.arange(0, BLOCK_K)[None, :]
    b_ptrs = b_ptr + tl.arange(0, BLOCK_K)[:, None] * N + cols
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(0, K, BLOCK_K):
        acc = tl.dot(tl.load(a_ptrs), tl.load(b_ptrs), acc)
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K * N
    tl.store(c_ptr + rows * N + cols, acc.to(tl.float16))


def needs(target: str, config: dict[str, int]):
    """A row: what product_kernel needs of a target in one configuration; it compiles."""
    half, size = torch.float16, 4096
    args = (half, half, half, size, size)
    compiled = compile_for(product_kernel, target, args, **config)
    found, limit = resources(compiled), TARGETS[target].shared_per_block
    return {
        "registers": found.registers,
        "spills": found.spills,
        "shared KiB": f"{found.shared / 1024:g} of {limit / 1024:g}",
        "matrix instruction": " ".join(lesson.mnemonics(compiled, "matrix")),
    }


one = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "num_warps": 4, "num_stages": 2}
rows = {target: needs(target, one) for target in ("sm_90", "gfx942")}
lesson.table(rows, first="target")

# %% [markdown] statement of autotune
# ### The task: 05.autotune
#
# Write `autotune(target)`: the list for `product_kernel` on `sm_80`, `sm_89`, `sm_90`, `gfx90a`, `gfx942` and
# `gfx950`. Three to six configurations, no two alike. Each is a dict with `BLOCK_M`, `BLOCK_N`, `BLOCK_K` (powers of
# two from 16 to 256), `num_warps` (1 to 16) and `num_stages` (at most 8); on AMD perhaps also `matrix_instr_nonkdim`
# (16 or 32), `waves_per_eu`, `kpack`.
#
# **Every entry**
#
# - loads: a block of it asks for no more shared memory (LDS) than `TARGETS[target].shared_per_block`;
# - spills nothing;
# - is pipelined: `num_stages` is 2 or more;
# - uses the best matrix instruction of the chip: on `sm_90` that is `wgmma`;
# - gives each wave work of its own (lesson 05, section 2): no more waves than the tile has pieces, which are of 16 x 8
#   on NVIDIA, and on AMD of 32 x 32 (what Triton takes where both sides have 32) or of `matrix_instr_nonkdim`.
#
# **Among the entries there is**
#
# - one for a small result: 1,024 x 1,024 makes at least as many programs as the chip has SMs or CUs;
# - one for a large product: BLOCK_M BLOCK_N / (BLOCK_M + BLOCK_N), the FLOPs for each byte of float16 that a tile
#   loads, is 85 or more;
# - one that uses the chip: it asks for more than half of `shared_per_block`.
#
# | target | sm_80 | sm_89 | sm_90 | gfx90a | gfx942 | gfx950 |
# |---|---|---|---|---|---|---|
# | chip | A100 | L40 | H100 | MI250X, one die | MI300X | MI355X |
# | SMs or CUs | 108 | 142 | 132 | 110 | 304 | 256 |
# | KiB of a block | 163 | 99 | 227 | 64 | 64 | 160 |
#
# **A small example.** 128 x 128 has 64 FLOPs for each byte, and makes 64 programs of a result of 1,024 x 1,024: too
# small for the one, too large for the other. How many bytes S stages hold, you know from 03.shared_budget; spills only
# the compiler knows, so ask `needs`. The check asks it too: an entry that nobody has tried before takes it a second.
# `hint("05.autotune")` gives three hints.


# %% 05.autotune tags=["answer", "05.autotune"]
def autotune(target: str) -> list[dict[str, int]]:
    """Three to six configurations of product_kernel for a target."""

    # BEGIN SOLUTION
    def entry(rows, cols, warps, stages, **more):
        tile = {"BLOCK_M": rows, "BLOCK_N": cols, "BLOCK_K": 64}
        return {**tile, "num_warps": warps, "num_stages": stages, **more}

    if TARGETS[target].vendor == "nvidia":
        return [entry(128, 256, 8, 3), entry(128, 128, 8, 3), entry(64, 64, 4, 3)]
    deep = 3 if TARGETS[target].shared_per_block > 65536 else 2
    small = entry(64, 32, 4, 2, matrix_instr_nonkdim=16)
    return [entry(128, 256, 8, deep), entry(128, 128, 8, 2), small]
    # END SOLUTION


# %% tags=["check"]
check("05.autotune")

# %% [markdown] why autotune
# **Why it matters.** A list that was made for one chip is what a port copies first. vLLM keeps a file of configurations
# for each model of GPU and each shape, and takes a default where it has none
# ([issue 17768](https://github.com/vllm-project/vllm/issues/17768)); on an MI300X such an entry ended in "out of
# resource: shared memory, Required: 66560, Hardware limit: 65536"
# ([issue 12498](https://github.com/vllm-project/vllm/issues/12498)). To use your list, make a
# `triton.Config({"BLOCK_M": ..., ...}, num_warps=..., num_stages=...)` of each dict: tiles and AMD's options go into
# the dict, the other two beside it, and `key=["M", "N", "K"]` says when to time again.

# %% [markdown] the ladder
# ## One product, four ways
#
# Your products beside each other: the same 256 × 256 × 256 in fp16, on both vendors. *Programs* are those of the
# product, *a program* is the average share of all instructions. Which column should not change, and where does it all
# the same? Why? And which of the four would you take for this product?

# %% your products on both vendors
yours = {
    "tiled": tiled,
    "persistent, 6 programs": lambda a, b: persistent(a, b, 6),
    "split K, atomics": lambda a, b: split_k(a, b, 4, False),
    "split K, in order": lambda a, b: split_k(a, b, 4, True),
}
COLUMNS = ("launches", "over the least", "matrix FLOPs", "instructions")


def four_ways(M, N, K):
    """A row for each way and target: what the product of (M, K) and (K, N) counts."""
    a, b = torch.randn(M, K).half(), torch.randn(K, N).half()
    rows, least = {}, 2 * (M * K + K * N + M * N)
    for name, way in yours.items():
        with lesson.when_written():
            found = lesson.climbed({name: way}, ("sm_80", "gfx942"), a, b, least=least)
            programs = math.prod(lesson.launches_of(way, a, b)[0].grid)
            for at, row in found.items():
                rows[at] = {"programs": programs} | {c: row[c] for c in COLUMNS}
                rows[at]["a program"] = row["instructions"] // programs
    return rows


lesson.table(four_ways(256, 256, 256), first="product, target")

# %% [markdown] few tiles
# The work is 2 × 256³ = 33,554,432 matrix FLOPs. Where you see four times as many on `gfx942`, four wavefronts share a
# tile that is too small for them, and each does all of it (lesson 05, section 2). Here `tiled` is the one to take: its
# tiles are the largest. The others have tiles of 32 × 32 and pay for it, and split K adds traffic for partial sums.
#
# Now a product of few tiles, 16 × 256 with K = 1,024. What does split K buy? Look at *programs* and *a program*: where
# the chip has a unit for each program, the launch takes as long as one of them.

# %% the four on few tiles
lesson.table(four_ways(16, 256, 1024), first="product, target")

# %% [markdown] your order
# The work is 2 × 16 × 256 × 1,024 = 8,388,608 matrix FLOPs. Of a tile of 64 rows 48 are zeros here, so `tiled` does
# four times as much, and tiles of 32 rows do twice as much (on `gfx942` eight times, as above). With the course's
# solutions split K makes 32 programs in place of 4. On `sm_80` each issues 2,264 instructions in place of 12,276, on
# `gfx942` 2,668 in place of 8,896. The price is traffic for partial sums, which you see in *over the least*.
#
# And your order of programs: 61 × 67 tiles of 128 × 128 with K = 8,192, on an H100 and an MI300X, by the model of
# lesson 05, section 9.

# %% your order on two chips
numbers, rows = torch.arange(61 * 67, dtype=torch.int32).view(61, 67), {}
sizes, tile = (61 * 128, 67 * 128, 8192), (128, 128)
for target, dies, running in (("sm_90", 1, 132), ("gfx942", 8, 304)):
    l2 = lesson.L2_OF_TARGET[target].sizes.size
    orders = {"row by row": numbers.flatten()}
    with lesson.when_written(), virtual_gpu("sm_80"):
        orders["yours"] = grouped_order(numbers, dies)
    for name, taken in orders.items():
        order = torch.stack([taken // 67, taken % 67], dim=1).numpy()
        past = lesson.order_traffic(order, sizes, tile, running, l2, dies=dies)
        rows[f"{name}, {target}"] = {"GB past the L2": past.bytes / 1e9}
lesson.table(rows, first="order, on")

# %% [markdown] gpt2 on your product
# Now GPT-2: every linear layer of a small one, forward and backward, by your `tiled`: nine products forward, and two
# more for each in the backward pass, of strides that torch hands over (`weight.T`, `dy.T`). *Off* is the relative
# difference from torch in float64; launches and bytes are counted as in lab 04. The cell takes about a minute.

# %% your product in a training step
rows = {}
with lesson.when_written():
    rows = lesson.own_kernels_in_gpt2(linear=tiled)
lesson.table(rows, first="replaced, on")

# %% [markdown] what the epilogue saves
# Eight launches and 0.3 MB more than torch. `tiled` leaves the bias to a kernel of its own, in each of eight layers
# forward, which reads the product and writes it again: 64 tokens × 288 outputs × 2 blocks × 4 bytes, twice, is 294,912.
# Torch adds the bias in its product (`addmm`). That round trip is what an epilogue saves, and yours of 05.epilogue
# saves GELU's as well.
#
# Last, ten steps of training on your product:

# %% ten steps on your product
with lesson.when_written():
    torch.manual_seed(0)
    shape = lesson.GPT2Config(300, n_positions=16, n_embd=32, n_layer=2, n_head=2)
    model = lesson.GPT2(shape)
    loss_of = lesson.swapped(model.loss, linear=tiled)
    adamw = torch.optim.AdamW(model.parameters(), lr=3e-3)
    tokens = torch.randint(300, (4, 17))
    with virtual_gpu("gfx942"):
        for step in range(10):
            loss = loss_of(tokens[:, :-1], tokens[:, 1:])
            adamw.zero_grad()
            loss.backward()
            adamw.step()
            print(f"step {step}: loss {loss.item():.3f}")

# %% your speed
rows = {}
with lesson.when_written():
    rows = lesson.speed_in_gpt2(linear=tiled)
lesson.table(rows)

# %% [markdown] challenge
# ## A challenge: a product in the fewest cycles
#
# Optional, and against yourself alone. Your `tiled` multiplies 256 × 512 by 512 × 256 in bfloat16 on both virtual GPUs;
# the predicted cycles are added up, **as if one SM or CU ran all programs**, one after another. So filling a chip
# counts for nothing here: 128 x 128 tiles make four programs, which do well in this challenge, and would leave nearly
# all of an H100 or MI300X idle (lesson 05, section 12). The course's entry is its plain solution of 05.tiled, a start
# and not a record. Only a right answer enters, within the limits of 05.tiled. For a launch the model takes the largest
# of its bounds: instructions that must be issued, matrix instructions, bytes over the memory bus, passes of shared
# memory, and waits that no other wave fills. It predicts, and measures nothing.
#
# Which tile, how many waves and stages for each vendor? A launcher can ask Triton where it runs:
# `triton.runtime.driver.active.get_current_target().warp_size` is 32 or 64.

# %% your entry
from gpu_utils import challenge

challenge("05")

# %% [markdown] end of the lab
# ## Done
#
# Nearly all arithmetic of GPT-2 is yours now. Unit 06 takes what is left between two products: attention.

# %% progress
progress()
