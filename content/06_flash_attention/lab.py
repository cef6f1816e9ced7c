# %% [markdown] top
# # Lab 06: attention in tiles
#
# **Eight exercises.** Each is an attention kernel that you write. The counters of lesson 06 decide: bytes loaded and
# stored, matrix FLOPs, programs, spills.
#
# - **First**: lesson 06. Everything that is asked here is explained there.
# - **How it works**: write your answer in the cell that says `YOUR CODE`, run it, run the check below it. A check runs
#   the public cases and three fresh ones, and says what differs. `hint("06.forward")` gives three hints of growing
#   strength. `solution("06.forward")` asks first.
# - **Time**: four sittings, with the lesson's. After its first comes 06.online_softmax, after its second 06.forward and
#   06.sliding_window, after its third 06.backward, after its fourth the other four. Each exercise is a place to stop. A
#   first check compiles, about ten seconds, and up to a minute for 06.backward; the next ones take a few seconds.

# %% imports tags=["setup"]
import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from gpu_utils import check, compile_for, hint, progress, solution, virtual_gpu
from gpu_utils.lesson import resources

# %% [markdown] part one
# ## Part 1: forward

# %% [markdown] statement of online_softmax
# ## 06.online_softmax: two halves of a softmax, and the vector they carry
#
# The keys of a row were cut into parts, and each part knows only its own scores $s_j$ and values $v_j$. Part $p$ has
# left its maximum $m_p$, its sum $l_p = \sum_j e^{s_j - m_p}$ and its vector $o_p = \sum_j e^{s_j - m_p} v_j$, which is
# *not* divided. Write `online_softmax(o, m, l)`, which merges them and returns `(out, lse)`:
#
# $$ \text{out} = \frac{\sum_{\text{all } j} e^{s_j} v_j}{\sum_{\text{all } j} e^{s_j}}, \qquad
#    \text{lse} = \ln \sum_{\text{all } j} e^{s_j} $$
#
# | | |
# |---|---|
# | `o` | shape (parts, rows, d), float32, contiguous; 1 part or more; d is 1 to 128, no power of two |
# | `m`, `l` | shape (parts, rows), float32, contiguous |
# | a part that saw nothing | m is -inf, l is 0, and its vector holds any finite numbers |
# | `out` | a new tensor (rows, d), float32; 0 for a row whose parts are all empty |
# | `lse` | a new tensor (rows,), float32, natural logarithm; -inf for such a row |
#
# **Limits.** torch allocates, and does nothing else. `launches`: 1. `global_store_bytes`: out and lse once (5% more at
# most, where d is 64). `global_moved_bytes`: each vector is loaded once; with m and l at most 1.75 times the bytes of
# `o` and `out`, where d is 64. So a program wants several rows: m and l of one row fill 4 bytes of a transaction of 32
# on `sm_80` and of 128 on `gfx942`. `scratch_bytes`: 0.
#
# **Two puzzles.** Each round has four numbers for a row: m so far, m of the part, and a factor for each side. Which of
# the factors is 1? And a row may begin with an empty part: -inf is the maximum so far, and that of the part. What is
# exp(-inf - (-inf)), and what would you rather subtract?
#
# **A small example.** A row of two parts, d = 1. The first has the scores 0 and 0 with the values 2 and 4: m = 0,
# l = 2, o = 6. The second has the score 1 with the value 8: m = 1, l = 1, o = 8. Together m = 1, the first part's
# factor is $e^{-1}$ = 0.368, l = 1.736, the vector 10.207, and so out = 5.880 and lse = 1.551.
#
# **Triton that helps.** `tl.maximum` of two tensors, `tl.exp`, `tl.log` (of 0 it is -inf), `tl.where(a ==
# float("-inf"), ...)`; `factor[:, None]` multiplies each row of a tile by a number of its own. Lesson 06, *A sum that
# carries a vector*. `hint("06.online_softmax")` gives three hints.


# %% 06.online_softmax tags=["answer", "06.online_softmax"]
@triton.jit
def online_softmax_kernel(
    o_ptr,
    m_ptr,
    l_ptr,
    out_ptr,
    lse_ptr,
    parts,
    rows,
    d,
    BLOCK: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    # BEGIN SOLUTION
    r = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    c = tl.arange(0, BLOCK_D)[None, :]
    there = (r[:, None] < rows) & (c < d)
    m = tl.full([BLOCK], float("-inf"), tl.float32)
    l = tl.zeros([BLOCK], tl.float32)
    acc = tl.zeros([BLOCK, BLOCK_D], tl.float32)
    for part in range(parts):
        row = part * rows + r
        m_part = tl.load(m_ptr + row, mask=r < rows, other=0.0)
        l_part = tl.load(l_ptr + row, mask=r < rows, other=0.0)
        o_part = tl.load(o_ptr + row[:, None] * d + c, mask=there, other=0.0)
        new = tl.maximum(m, m_part)
        base = tl.where(new == float("-inf"), 0.0, new)
        before, joins = tl.exp(m - base), tl.exp(m_part - base)
        l = l * before + l_part * joins
        acc = acc * before[:, None] + o_part * joins[:, None]
        m = new
    out = acc / tl.where(l == 0, 1.0, l)[:, None]
    tl.store(out_ptr + r[:, None] * d + c, out, mask=there)
    tl.store(lse_ptr + r, m + tl.log(l), mask=r < rows)
    # END SOLUTION


def online_softmax(o: Tensor, m: Tensor, l: Tensor) -> tuple[Tensor, Tensor]:
    """The parts o (parts, rows, d), m and l (parts, rows), merged: (out, lse)."""
    # BEGIN SOLUTION
    parts, rows, d = o.shape
    out = torch.empty((rows, d), device=o.device)
    lse = torch.empty(rows, device=o.device)
    block = {"BLOCK": 16, "BLOCK_D": triton.next_power_of_2(d)}
    grid = (triton.cdiv(rows, 16),)
    online_softmax_kernel[grid](o, m, l, out, lse, parts, rows, d, **block)
    return out, lse
    # END SOLUTION


# %% tags=["check"]
check("06.online_softmax")

# %% [markdown] why online_softmax
# **Why it matters.** This merge is all that attention in tiles needs. 06.forward has it in its loop, 06.decode between
# programs, and attention over several GPUs sends (o, m, l) from one to the next.

# %% [markdown] statement of forward
# ## 06.forward: attention without a matrix of scores
#
# Write `forward(q, k, v, causal, scale)`, which returns `(o, lse)`. For each batch and head:
#
# $$ s_{ij} = \text{scale} \cdot \sum_d q_{id}\, k_{jd}, \qquad
#    \text{lse}_i = \ln \sum_j e^{s_{ij}}, \qquad o_{id} = \sum_j e^{s_{ij} - \text{lse}_i}\, v_{jd} $$
#
# The sums go over all keys $j$, with `causal` only over $j \le i$.
#
# | | |
# |---|---|
# | `q`, `k`, `v` | shape (B, H, N, D), all three the same; float16 or bfloat16 |
# | strides | any for batch, head and position, other ones for each tensor; the last dimension is contiguous |
# | N, D | N is 1 or more, no multiple of anything; D is 16, 32 or 64 |
# | what lies behind position N - 1 | any numbers, also NaN |
# | `causal`, `scale` | a bool, and a float above 0: no promise that it is one over the root of D |
# | `o` | a new contiguous tensor (B, H, N, D), dtype of `q` |
# | `lse` | a new contiguous tensor (B, H, N), float32, *natural* logarithm |
#
# Scores, maxima and sums are float32; weights are rounded to 16 bits only as factors of the second product.
#
# **Limits.** torch allocates, and does nothing else. `launches`: 1. `scratch_bytes`: 0, nothing spills.
# `global_store_bytes`: o and lse once, 5% more at most; so no score is stored. `matrix_flops`: both products, for the
# scores that are needed, by matrix instructions. Where N = 256, causal: at most 0.8 of the `4 * B * H * N * N * D` of
# all scores, on `sm_80` *and* on `gfx942`; and `global_load_bytes` at most what blocks of 32 queries load that skip
# what they do not see: one head of D = 32 takes 16,384 for q and 147,456 for k and v, and 5% more.
#
# **Three puzzles.** With 256 positions and tiles of 64 x 64: which share of the 16 tiles is left? Four waves and 64
# rows on `gfx942`: by which factor do the scores repeat, dealt by rows, and P V, dealt 2 x 2, where D is 32, one
# instruction wide? And of the two masks, behind N and above the diagonal: which one does a causal kernel need in its
# scores, if rows behind N are never stored?
#
# **A small example.** Two positions, D = 1, scale 1, causal: q = (1, 1), k = (0, 5), v = (2, 8). Query 0 sees key 0
# alone: o is 2 and lse is 0, however large the hidden score is. Query 1 has the scores 0 and 5: m = 5, l = 1 +
# $e^{-5}$ = 1.0067, acc = 8.0135. So o = 7.960 and lse = 5 + ln 1.0067 = 5.007.
#
# **Triton that helps.** A second `tl.program_id(1)` for batch and head together. `tl.load(k_ptr + cols[None, :] * k_n +
# d[:, None], ...)` gives a block of keys already turned, (D, BLOCK_N). `tl.exp2` and `tl.log2`, with the conversion
# from base e inside the scale. `range(0, end, BLOCK_N)` with an end of your own. `num_warps=` at the launch. Lesson 06,
# sitting 1 and section 6. `hint("06.forward")` gives three hints.


# %% 06.forward tags=["answer", "06.forward"]
@triton.jit
def forward_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    o_ptr,
    lse_ptr,
    q_b,
    q_h,
    q_n,
    k_b,
    k_h,
    k_n,
    v_b,
    v_h,
    v_n,
    H,
    N,
    scale,
    D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    # BEGIN SOLUTION
    first, head = tl.program_id(0) * BLOCK_M, tl.program_id(1)
    q_ptr += head // H * q_b + head % H * q_h
    k_ptr += head // H * k_b + head % H * k_h
    v_ptr += head // H * v_b + head % H * v_h
    rows, d = first + tl.arange(0, BLOCK_M), tl.arange(0, D)
    there = rows[:, None] < N
    q = tl.load(q_ptr + rows[:, None] * q_n + d[None, :], mask=there, other=0.0)
    m = tl.full([BLOCK_M], float("-inf"), tl.float32)
    l = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, D], tl.float32)
    end = tl.minimum(first + BLOCK_M, N) if CAUSAL else N
    for start in range(0, end, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        k_at = k_ptr + n[None, :] * k_n + d[:, None]
        v_at = v_ptr + n[:, None] * v_n + d[None, :]
        k = tl.load(k_at, mask=n[None, :] < N, other=0.0)
        v = tl.load(v_at, mask=n[:, None] < N, other=0.0)
        s = tl.dot(q, k) * (scale * 1.4426950408889634)
        seen = n[None, :] <= rows[:, None] if CAUSAL else n[None, :] < N
        s = tl.where(seen, s, float("-inf"))
        new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp2(s - new[:, None])
        factor = tl.exp2(m - new)
        l = l * factor + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype), v, acc * factor[:, None])
        m = new
    o_at = o_ptr + (head * N + rows[:, None]) * D + d[None, :]
    tl.store(o_at, acc / l[:, None], mask=there)
    lse = (m + tl.log2(l)) * 0.6931471805599453
    tl.store(lse_ptr + head * N + rows, lse, mask=rows < N)
    # END SOLUTION


def forward(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """Attention of (B, H, N, D) and the natural logarithm of its sums, (B, H, N)."""
    # BEGIN SOLUTION
    B, H, N, D = q.shape
    o = torch.empty((B, H, N, D), dtype=q.dtype, device=q.device)
    lse = torch.empty((B, H, N), dtype=torch.float32, device=q.device)
    strides = [stride for x in (q, k, v) for stride in x.stride()[:3]]
    tile = {"D": D, "BLOCK_M": 64, "BLOCK_N": 64, "CAUSAL": causal, "num_warps": 2}
    if D == 64:
        tile["num_warps"] = 4
    grid = triton.cdiv(N, 64), B * H
    forward_kernel[grid](q, k, v, o, lse, *strides, H, N, scale, **tile)
    return o, lse
    # END SOLUTION


# %% tags=["check"]
check("06.forward")

# %% [markdown] why forward
# **Why it matters.** This is the kernel that made long contexts affordable: memory grows with N, and half of a causal
# model's work is never done. What production kernels add is a second loop, so that tiles below the diagonal have no
# mask at all, and copies that run ahead of the matrix units.

# %% [markdown] part two
# ## Part 2: backward, and relatives

# %% [markdown] statement of backward
# ## 06.backward: three gradients, and no matrix of weights
#
# Forward was $s = \text{scale}\; q k^\top$, $p_{ij} = e^{s_{ij} - \text{lse}_i}$, $o = p\,v$ in each head, and kept of
# each row only $o$ and $\text{lse}$. Given `do`, the gradient of $o$, the way back is:
#
# $$ dv = p^\top do, \qquad dp = do\; v^\top, \qquad \delta_i = \sum_d do_{id}\, o_{id}, \qquad
# ds_{ij} = p_{ij}\,(dp_{ij} - \delta_i) $$
#
# $$ dq = \text{scale}\; ds\; k, \qquad dk = \text{scale}\; ds^\top q $$
#
# Write `backward(do, q, k, v, o, lse, causal, scale)`.
#
# | | |
# |---|---|
# | `q`, `k`, `v`, `o` | shape (B, H, N, D), contiguous, all float16 or all bfloat16; D is 16 or 32, N any number |
# | `do` | same shape and type, **any strides**: heads inside of tokens, or one number for all, with strides of 0 |
# | `lse` | float32, shape (B, H, N), contiguous: natural logarithms, as `06.forward` stores them |
# | `causal`, `scale` | a bool: query i sees keys 0 to i, or all; a float |
# | result | `(dq, dk, dv)`, new, contiguous, in the type of `q`; sums are in float32 |
#
# **Whose sum is it?** A tile of scores has queries as rows and keys as columns. dq sums over keys, dk and dv over
# queries. No program can own both, so either two kernels make each tile of p and ds again, or one of them adds to dq in
# memory (with atomics, in float32, or the virtual GPU reports a race).
#
# **Limits.** `launches`: at most 4. Where N = 384: `global_store_bytes`, twice dq, dk and dv, and two numbers for each
# row. The N x N weights never go to memory. `matrix_flops`, where N = 384, causal: at most 1.2 times seven products for
# each tile of 64 x 64 that holds a score that counts on `sm_80`, and 2.4 times on `gfx942`. So tiles above the diagonal
# are skipped, in *both* directions. (Twice on `gfx942`, since waves that find too few rows compute the same ones;
# `num_warps` is yours.) `scratch_bytes`: 0. `blocks`: at most one for each 16 rows of each head, in up to three
# launches. torch allocates, and does nothing else.
#
# **Puzzles.** Forward walks over keys from 0 to the diagonal. From where to where does a tile of keys walk over
# queries? And a key behind the end is loaded as 0: why may its weight be infinite all the same, and what is that
# times 0?
#
# **A small example.** One query, two keys, D = 1, scale 1: q = 1, k = (0, 0), so p = (1/2, 1/2). With v = (1, 3),
# o = 2. For do = 1: dp = (1, 3), delta = 2, ds = (-1/2, 1/2). dv = (1/2, 1/2), dk = (-1/2, 1/2), dq = 0.
#
# **Triton that helps.** `tl.trans(tile)`; `tile.to(k.dtype)`, because `tl.dot` wants both factors in one type;
# `tl.exp`. A jitted function may call another one, here `weights`: write it once and use it twice, or leave it out.
# `do_not_specialize` keeps a number from being compiled into the kernel. `hint("06.backward")` gives three hints.


# %% 06.backward tags=["answer", "06.backward"]
@triton.jit
def weights(q, k, v, do, lse, delta, rows, cols, N, scale, CAUSAL: tl.constexpr):
    # BEGIN SOLUTION
    s = tl.dot(q, tl.trans(k)) * scale
    keep = cols[None, :] < N
    if CAUSAL:
        keep = keep & (cols[None, :] <= rows[:, None])
    p = tl.where(keep, tl.exp(s - lse[:, None]), 0.0)
    dp = tl.dot(do, tl.trans(v))
    return p, p * (dp - delta[:, None])
    # END SOLUTION


@triton.jit(do_not_specialize=["N", "H"])
def dq_kernel(
    do_ptr,
    q_ptr,
    k_ptr,
    v_ptr,
    o_ptr,
    lse_ptr,
    delta_ptr,
    dq_ptr,
    N,
    H,
    scale,
    stride_b,
    stride_h,
    stride_n,
    stride_d,
    D: tl.constexpr,
    BLOCK: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    # BEGIN SOLUTION
    head = tl.program_id(1)
    first = tl.program_id(0) * BLOCK
    rows, d = first + tl.arange(0, BLOCK), tl.arange(0, D)
    there = rows < N
    at = (head * N + rows[:, None]) * D + d[None, :]
    do_ptr += head // H * stride_b + head % H * stride_h
    do_at = do_ptr + rows[:, None] * stride_n + d[None, :] * stride_d
    do = tl.load(do_at, mask=there[:, None], other=0.0)
    q = tl.load(q_ptr + at, mask=there[:, None], other=0.0)
    o = tl.load(o_ptr + at, mask=there[:, None], other=0.0)
    lse = tl.load(lse_ptr + head * N + rows, mask=there, other=0.0)
    delta = tl.sum(do.to(tl.float32) * o.to(tl.float32), axis=1)
    tl.store(delta_ptr + head * N + rows, delta, mask=there)
    dq = tl.zeros((BLOCK, D), tl.float32)
    end = tl.minimum(first + BLOCK, N) if CAUSAL else N
    for start in range(0, end, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        k_at = (head * N + cols[:, None]) * D + d[None, :]
        k = tl.load(k_ptr + k_at, mask=cols[:, None] < N, other=0.0)
        v = tl.load(v_ptr + k_at, mask=cols[:, None] < N, other=0.0)
        _, ds = weights(q, k, v, do, lse, delta, rows, cols, N, scale, CAUSAL)
        dq = tl.dot(ds.to(k.dtype), k, dq)
    tl.store(dq_ptr + at, dq * scale, mask=there[:, None])
    # END SOLUTION


@triton.jit(do_not_specialize=["N", "H"])
def dkdv_kernel(
    do_ptr,
    q_ptr,
    k_ptr,
    v_ptr,
    lse_ptr,
    delta_ptr,
    dk_ptr,
    dv_ptr,
    N,
    H,
    scale,
    stride_b,
    stride_h,
    stride_n,
    stride_d,
    D: tl.constexpr,
    BLOCK: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    # BEGIN SOLUTION
    head = tl.program_id(1)
    first = tl.program_id(0) * BLOCK
    cols, d = first + tl.arange(0, BLOCK), tl.arange(0, D)
    at = (head * N + cols[:, None]) * D + d[None, :]
    k = tl.load(k_ptr + at, mask=cols[:, None] < N, other=0.0)
    v = tl.load(v_ptr + at, mask=cols[:, None] < N, other=0.0)
    do_ptr += head // H * stride_b + head % H * stride_h
    dk = tl.zeros((BLOCK, D), tl.float32)
    dv = tl.zeros((BLOCK, D), tl.float32)
    for start in range(first if CAUSAL else 0, N, BLOCK):
        rows = start + tl.arange(0, BLOCK)
        there = rows < N
        q_at = (head * N + rows[:, None]) * D + d[None, :]
        do_at = do_ptr + rows[:, None] * stride_n + d[None, :] * stride_d
        q = tl.load(q_ptr + q_at, mask=there[:, None], other=0.0)
        do = tl.load(do_at, mask=there[:, None], other=0.0)
        lse = tl.load(lse_ptr + head * N + rows, mask=there, other=0.0)
        delta = tl.load(delta_ptr + head * N + rows, mask=there, other=0.0)
        p, ds = weights(q, k, v, do, lse, delta, rows, cols, N, scale, CAUSAL)
        dv = tl.dot(tl.trans(p.to(do.dtype)), do, dv)
        dk = tl.dot(tl.trans(ds.to(q.dtype)), q, dk)
    tl.store(dk_ptr + at, dk * scale, mask=cols[:, None] < N)
    tl.store(dv_ptr + at, dv, mask=cols[:, None] < N)
    # END SOLUTION


def backward(
    do: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    lse: Tensor,
    causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """(dq, dk, dv) of attention, from what forward kept and do, the gradient of o."""
    # BEGIN SOLUTION
    B, H, N, D = q.shape
    dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    delta = torch.empty_like(lse)
    grid = (triton.cdiv(N, 64), B * H)
    numbers = (N, H, scale, *do.stride(), D, 64, causal)
    dq_kernel[grid](do, q, k, v, o, lse, delta, dq, *numbers)
    dkdv_kernel[grid](do, q, k, v, lse, delta, dk, dv, *numbers)
    return dq, dk, dv
    # END SOLUTION


# %% tags=["check"]
check("06.backward")

# %% [markdown] why backward
# **Why it matters.** Training attention by the textbook keeps p for the way back: N x N numbers for each head and
# layer, more than all else in GPT-2 from a few thousand tokens on. Kept instead is lse, one number for each row, and p
# is made again where it is needed: five products a tile in place of four, and seven in two kernels. The identity that
# makes it possible, row sums of p * dp being those of do * o, is one line of algebra, and worth a second look.

# %% [markdown] statement of gqa
# ## 06.gqa: heads that share their keys
#
# With grouped-query attention H heads of queries share H_kv heads of keys and values: head h uses head
# $\lfloor h\, H_{kv} / H \rfloor$ of them, so neighbours are a group. Write `gqa(q, k, v, causal)`, attention with
# scale $1 / \sqrt{D}$ of a few new tokens to a cache.
#
# | | |
# |---|---|
# | `q` | shape (B, H, N, D), contiguous, float16 or bfloat16; D is 32; N is often 1, and at most S |
# | `k`, `v` | shape (B, H_kv, S, D), type of `q`; H is a multiple of H_kv; slices of longer caches |
# | their strides | the same for both, any for the first three dimensions, 1 for the last |
# | what lies behind position S - 1 | any numbers, also NaN |
# | `causal` | the last query stands at the last key: query i sees keys 0 to S - N + i. If False, all |
# | result | new, contiguous, shape and dtype of `q`; scores and sums in float32 |
#
# **The idea.** `tl.dot` wants 16 rows or more, and a head with one query has one. Its neighbours need the very same
# keys. So *pack*: the queries of a group are the rows of one tile.
#
# **Limits.** torch allocates, and does nothing else. `launches`: 1. `global_store_bytes`: the result once.
# `scratch_bytes`: 0. With 16 heads in two groups, one
# query and 512 keys: `global_load_bytes` at most 2.2 times the bytes of k and v, and `matrix_flops` at most 4.2 times
# those of tiles with 16 rows, one for each *group*. A program for each query head needs eight times of both.
#
# **Puzzles.** H = 8, H_kv = 2, N = 3: which head, which query and which position is row 7 of the first group, if
# S = 10? How far apart in memory are rows 2 and 3 of the packed tile, which belong to two heads?
#
# **A small example.** H = 2, H_kv = 1, N = 1, S = 2, D = 1, k = (0, 0), v = (1, 3): both heads get 2, from one load.
#
# **Triton that helps.** `%` and `//` on a block of numbers; `tl.where(causal, a, b)` for a number of the launch.
# `num_warps=1`, as 16 rows are work for one wave. `hint("06.gqa")` gives three hints.


# %% 06.gqa tags=["answer", "06.gqa"]
@triton.jit(do_not_specialize=["N", "S", "H_KV", "group"])
def gqa_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    o_ptr,
    N,
    S,
    H_KV,
    group,
    causal,
    scale,
    stride_b,
    stride_h,
    stride_s,
    D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    # BEGIN SOLUTION
    kv = tl.program_id(1)
    rows, d = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M), tl.arange(0, D)
    there = rows[:, None] < group * N
    at = (kv * group * N + rows[:, None]) * D + d[None, :]
    q = tl.load(q_ptr + at, mask=there, other=0.0)
    last = tl.where(causal, S - N + rows % N, S - 1)
    m = tl.full([BLOCK_M], float("-inf"), tl.float32)
    l = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, D], tl.float32)
    first = kv // H_KV * stride_b + kv % H_KV * stride_h
    for start in range(0, S, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        k_at = first + n[:, None] * stride_s + d[None, :]
        k = tl.load(k_ptr + k_at, mask=n[:, None] < S, other=0.0)
        v = tl.load(v_ptr + k_at, mask=n[:, None] < S, other=0.0)
        s = tl.dot(q, tl.trans(k)) * (scale * 1.4426950408889634)
        s = tl.where(n[None, :] <= last[:, None], s, float("-inf"))
        new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp2(s - new[:, None])
        factor = tl.exp2(m - new)
        l = l * factor + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype), v, acc * factor[:, None])
        m = new
    tl.store(o_ptr + at, acc / l[:, None], mask=there)
    # END SOLUTION


def gqa(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    """Attention of N new tokens to S keys, H heads of queries to H_kv of keys."""
    # BEGIN SOLUTION
    (B, H, N, D), (_, H_KV, S, _) = q.shape, k.shape
    o = torch.empty_like(q)
    group = H // H_KV
    grid = (triton.cdiv(group * N, 16), B * H_KV)
    numbers = (N, S, H_KV, group, causal, D**-0.5, *k.stride()[:3])
    tile = {"D": D, "BLOCK_M": 16, "BLOCK_N": 64, "num_warps": 1}
    gqa_kernel[grid](q, k, v, o, *numbers, **tile)
    return o
    # END SOLUTION


# %% tags=["check"]
check("06.gqa")

# %% [markdown] why gqa
# **Why it matters.** With 8 heads of keys for 32 of queries a cache is a quarter as large, and so are the bytes of each
# new token, *if* the kernel loads a group's keys once. That is why decoding kernels turn heads into rows. What is
# missing here is work for a whole chip, when one sequence has few heads of keys: that is the next part's puzzle.

# %% [markdown] statement of sliding_window
# ## 06.sliding_window: a band instead of a triangle
#
# Some layers of today's models let each token look back only a little: query i sees the keys
# $i - \text{window} + 1$ to $i$, those of them that exist. Write `sliding_window(q, k, v, window)`, attention of
# (B, H, N, D) with scale $1 / \sqrt{D}$:
#
# $$ o_i = \sum_{j = \max(0,\; i - \text{window} + 1)}^{i} p_{ij}\, v_j, \qquad p_{ij} \propto e^{s_{ij}} $$
#
# | | |
# |---|---|
# | `q`, `k`, `v` | shape (B, H, N, D), contiguous, all float16 or all bfloat16; D is 16 or 32, N any number |
# | `window` | a whole number from 1 on; more than N is allowed, and no multiple of anything is promised |
# | result | new, contiguous, dtype of `q`; scores and sums in float32 |
#
# **Limits.** torch allocates, and does nothing else. `launches`: 1. `global_store_bytes`: the result once.
# `scratch_bytes`: 0. `blocks`: at most one for each 16 queries of each head. `matrix_flops`: where N = 384 and the
# window is 40, at most what tiles of 128 queries and 64 keys need that touch the band (5% more): the work grows like N.
# Tiles *behind* the diagonal are skipped as before, and tiles too far *before* it, too. As in `06.forward`, waves that
# repeat each other's work count; smaller tiles leave a little room for it.
#
# **Puzzles.** N = 384, window 40, tiles of 64 x 64: how many of the 36 tiles, of which causal attention leaves 21, are
# left? Which row of a block decides where its loop begins, the first or the last? And take rows 64 to 127 with a window
# of 40: what does row 127 see of the first tile of keys that the block needs, and what is its maximum after that tile?
#
# **A small example.** window = 2, all scores equal, v = (2, 4, 8): o = (2, 3, 6). Query 0 has one key, the others two.
#
# **Triton that helps.** `tl.maximum`, `//`, `range(begin, end, BLOCK_N)` with both ends of your own,
# `tl.where(x == float("-inf"), 0.0, x)`. You may write the round (scores, maximum, p, factor, l, acc) once, as a jitted
# function of your own like the lesson's `one_block`, and call it from here on. `hint("06.sliding_window")` gives three
# hints.


# %% 06.sliding_window tags=["answer", "06.sliding_window"]
@triton.jit(do_not_specialize=["N", "window"])
def sliding_window_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    o_ptr,
    N,
    window,
    scale,
    D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    # BEGIN SOLUTION
    first, head = tl.program_id(0) * BLOCK_M, tl.program_id(1)
    rows, d = first + tl.arange(0, BLOCK_M), tl.arange(0, D)
    at = (head * N + rows[:, None]) * D + d[None, :]
    q = tl.load(q_ptr + at, mask=rows[:, None] < N, other=0.0)
    m = tl.full([BLOCK_M], float("-inf"), tl.float32)
    l = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, D], tl.float32)
    begin = tl.maximum(first - window + 1, 0) // BLOCK_N * BLOCK_N
    for start in range(begin, tl.minimum(first + BLOCK_M, N), BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        k_at = (head * N + n[:, None]) * D + d[None, :]
        k = tl.load(k_ptr + k_at, mask=n[:, None] < N, other=0.0)
        v = tl.load(v_ptr + k_at, mask=n[:, None] < N, other=0.0)
        s = tl.dot(q, tl.trans(k)) * (scale * 1.4426950408889634)
        back = rows[:, None] - n[None, :]
        s = tl.where((back >= 0) & (back < window), s, float("-inf"))
        new = tl.maximum(m, tl.max(s, 1))
        safe = tl.where(new == float("-inf"), 0.0, new)
        p = tl.exp2(s - safe[:, None])
        factor = tl.exp2(m - safe)
        l = l * factor + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype), v, acc * factor[:, None])
        m = new
    tl.store(o_ptr + at, acc / l[:, None], mask=rows[:, None] < N)
    # END SOLUTION


def sliding_window(q: Tensor, k: Tensor, v: Tensor, window: int) -> Tensor:
    """Attention of each query to the last `window` keys, its own among them."""
    # BEGIN SOLUTION
    B, H, N, D = q.shape
    o = torch.empty_like(q)
    grid = (triton.cdiv(N, 64), B * H)
    tile = {"D": D, "BLOCK_M": 64, "BLOCK_N": 64, "num_warps": 2}
    sliding_window_kernel[grid](q, k, v, o, N, window, D**-0.5, **tile)
    return o
    # END SOLUTION


# %% tags=["check"]
check("06.sliding_window")

# %% [markdown] why sliding_window
# **Why it matters.** With a window the cost of a token does not depend on how long the text is, neither in time nor in
# cached keys; models mix such layers with a few that see everything. The kernel is the one you had, with another loop
# and another mask. That is why libraries let you give both as functions, and find the tiles to skip themselves.

# %% [markdown] part three
# ## Part 3: decoding

# %% [markdown] statement of decode
# ## 06.decode: one new token, a cache in parts
#
# A model writes. Each sequence $b$ has one new query for each head $h$, and a cache of keys and values of its own
# length $n_b$, the new token's included:
#
# $$ o_{b,h} = \sum_{s < n_b} p_s \, v_{b,s,h} \qquad p = \text{softmax}\left( \tfrac{1}{\sqrt D} \, q_{b,h} \cdot
# k_{b,s,h} \right) $$
#
# Each cache is cut into `splits` parts, as even as blocks allow, and every part of every head is a program of its own.
# A second kernel merges.
#
# | | |
# |---|---|
# | `q` | shape (B, H, D), float16 or bfloat16, contiguous; D is 32 or 64 |
# | `k`, `v` | shape (B, S, H, D), dtype of `q`, the same strides for both; the last dimension is contiguous |
# | `lengths` | shape (B,), int32: valid entries of each cache, from 1 to S. Behind them lies anything, NaN too |
# | `splits` | number of parts, at least 1; perhaps more than a cache has entries |
# | result | shape (B, H, D), dtype of `q`; all sums in float32 |
#
# **Limits.** `launches`: two at most. `blocks`: B * H * splits at least. `global_load_bytes`: the valid part of both
# caches, once (5 % more, and some room for queries and parts). `global_store_bytes`: D + 16 float32 numbers for a part.
# No `scratch_bytes`. `uneven_loads`: for lengths of 512 and 64 in two parts, no program loads more than 2.4 times what
# programs load on average. torch allocates, and does nothing else.
#
# **A small example.** D = 1, q = 1, keys (0, 0, 2), values (3, 5, 1), two parts: entries 0 and 1, and entry 2. Part 0
# leaves m = 0, l = 2 and the vector 8. Part 1 leaves m = 2, l = 1 and 1. The common peak is 2: part 0 shrinks by
# $e^{-2} = 0.135$, and the result is (8 × 0.135 + 1) / (2 × 0.135 + 1) = 1.64.
#
# **Questions to ask yourself.** How many entries has the third of three parts when the length is 4? What are its m, l
# and vector, and what does your merge make of them? What is $-\infty - (-\infty)$, and what is 0 / 0?
#
# **Triton that helps.** `tl.program_id(2)`, `tl.num_programs(2)`, `tl.cdiv`, `tl.minimum`, `tl.sum(x, axis=1)`. A
# product of one row with a block needs no `tl.dot`. `hint("06.decode")` gives three hints.


# %% 06.decode tags=["answer", "06.decode"]
@triton.jit
def decode_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    lengths_ptr,
    parts_ptr,
    stride_b,
    stride_s,
    stride_h,
    scale,
    D: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One part of one cache for one head: D numbers of its vector, its sum, its peak."""
    # BEGIN SOLUTION
    b, h, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    splits = tl.num_programs(2)
    length = tl.load(lengths_ptr + b)
    part = tl.cdiv(length, splits)
    end = tl.minimum(split * part + part, length)
    row = b * tl.num_programs(1) + h
    d = tl.arange(0, D)
    q = tl.load(q_ptr + row * D + d).to(tl.float32) * scale
    m = float("-inf")
    weight = 0.0
    vector = tl.zeros([D], dtype=tl.float32)
    for start in range(split * part, end, BLOCK):
        s = start + tl.arange(0, BLOCK)
        there = s < end
        at = b * stride_b + s[:, None] * stride_s + h * stride_h + d
        k = tl.load(k_ptr + at, mask=there[:, None], other=0.0)
        v = tl.load(v_ptr + at, mask=there[:, None], other=0.0)
        scores = tl.where(there, tl.sum(q * k, axis=1), float("-inf"))
        new = tl.maximum(m, tl.max(scores))
        p, factor = tl.exp(scores - new), tl.exp(m - new)
        weight = weight * factor + tl.sum(p)
        vector = vector * factor + tl.sum(p[:, None] * v, axis=0)
        m = new
    to_ptr = parts_ptr + (row * splits + split) * (D + 2)
    tl.store(to_ptr + d, vector)
    tl.store(to_ptr + D, weight)
    tl.store(to_ptr + D + 1, m)
    # END SOLUTION


@triton.jit
def merge_kernel(parts_ptr, o_ptr, splits, D: tl.constexpr):
    """The parts of one head, brought to one peak, added and divided."""
    # BEGIN SOLUTION
    row = tl.program_id(0)
    d = tl.arange(0, D)
    m = float("-inf")
    weight = 0.0
    vector = tl.zeros([D], dtype=tl.float32)
    for part in range(row * splits, row * splits + splits):
        at = parts_ptr + part * (D + 2)
        m_part = tl.load(at + D + 1)
        new = tl.maximum(m, m_part)
        old, more = tl.exp(m - new), tl.exp(m_part - new)
        weight = weight * old + tl.load(at + D) * more
        vector = vector * old + tl.load(at + d) * more
        m = new
    tl.store(o_ptr + row * D + d, vector / weight)
    # END SOLUTION


def decode(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, splits: int) -> Tensor:
    """Attention of one query for each sequence and head to the valid part of its cache."""
    # BEGIN SOLUTION
    B, H, D = q.shape
    parts = torch.empty((B, H, splits, D + 2), dtype=torch.float32, device=q.device)
    decode_kernel[(B, H, splits)](
        *(q, k, v, lengths, parts, *k.stride()[:3], D**-0.5), D=D, BLOCK=32
    )
    o = torch.empty_like(q)
    merge_kernel[(B * H,)](parts, o, splits, D=D)
    return o
    # END SOLUTION


# %% tags=["check"]
check("06.decode")

# %% [markdown] why decode
# **Why it matters.** This is Flash-Decoding, and what serving engines launch for every token. 8 sequences of 12 heads
# are 96 programs without it, fewer than one for every three CUs of an MI300X, however long their caches are. The price
# is small: D + 2 numbers for each part. As the order of the sum depends on `splits`, so do the last bits: unit 09
# returns to that.

# %% [markdown] statement of paged_decode
# ## 06.paged_decode: a cache in pages
#
# As in `06.decode`, with one part: a program for each head of each sequence, one launch. But the caches of all
# sequences lie in one pool of pages with 16 places each, in any order. Position $t$ of sequence $b$ is place $t \bmod
# 16$ of page `table[b, t // 16]`:
#
# $$ o_{b,h} = \sum_{t < n_b} p_t \, v_{b,t,h} \qquad v_{b,t,h} = \text{v\_pages}\left[\,\text{table}[b, \lfloor t / 16
# \rfloor],\; t \bmod 16,\; h\,\right] $$
#
# | | |
# |---|---|
# | `q` | shape (B, H, D), float16 or bfloat16, contiguous; D is 32 or 64 |
# | `k_pages`, `v_pages` | shape (P, 16, H, D), dtype of `q`, the same strides; the last dimension is contiguous |
# | `table` | shape (B, T), int32, perhaps a part of a wider table: its rows are `table.stride(0)` apart |
# | `lengths` | shape (B,), int32: positions of each sequence, from 1 to 16 T |
# | result | shape (B, H, D), dtype of `q`; scores are scaled by $1/\sqrt D$, all sums in float32 |
#
# Sequences may share pages at their beginnings. Behind the end of a sequence nothing means anything: the rest of its
# last page is NaN here, and its further entries of the table are -1, or 1,000,000.
#
# **Limits.** `launches`: one. `blocks`: B * H. `global_load_bytes`: each valid key and value once, and some room for
# entries of the table (a quarter, as all lanes of a position load its entry). `global_store_bytes`: the result. No
# `scratch_bytes`. torch allocates, and does nothing else.
#
# **A small example.** The row of a table is (7, 2, -1, -1) and the length is 20. Positions 0 to 15 are the places of
# page 7. Positions 16 to 19 are the first four places of page 2. Its other twelve are not part of the sequence.
#
# **Questions to ask yourself.** Which number does the mask compare with the length: $t$, the page, or the place? May a
# lane whose position is behind the length load an entry of the table, and may it follow it?
#
# **Triton that helps.** `tl.load` takes a block of addresses that you compute, and they may come from another
# `tl.load`. `x // 16`, `x % 16`. `hint("06.paged_decode")` gives three hints.


# %% 06.paged_decode tags=["answer", "06.paged_decode"]
@triton.jit
def paged_decode_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    table_ptr,
    lengths_ptr,
    o_ptr,
    stride_page,
    stride_place,
    stride_head,
    stride_table,
    scale,
    D: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One head of one sequence, whose pages the table finds."""
    # BEGIN SOLUTION
    b, h = tl.program_id(0), tl.program_id(1)
    length = tl.load(lengths_ptr + b)
    row = b * tl.num_programs(1) + h
    d = tl.arange(0, D)
    q = tl.load(q_ptr + row * D + d).to(tl.float32) * scale
    m = float("-inf")
    weight = 0.0
    vector = tl.zeros([D], dtype=tl.float32)
    for start in range(0, length, BLOCK):
        t = start + tl.arange(0, BLOCK)
        there = t < length
        page = tl.load(table_ptr + b * stride_table + t // 16, mask=there, other=0)
        at = page * stride_page + t % 16 * stride_place + h * stride_head
        k = tl.load(k_ptr + at[:, None] + d, mask=there[:, None], other=0.0)
        v = tl.load(v_ptr + at[:, None] + d, mask=there[:, None], other=0.0)
        scores = tl.where(there, tl.sum(q * k, axis=1), float("-inf"))
        new = tl.maximum(m, tl.max(scores))
        p, factor = tl.exp(scores - new), tl.exp(m - new)
        weight = weight * factor + tl.sum(p)
        vector = vector * factor + tl.sum(p[:, None] * v, axis=0)
        m = new
    tl.store(o_ptr + row * D + d, vector / weight)
    # END SOLUTION


def paged_decode(
    q: Tensor, k_pages: Tensor, v_pages: Tensor, table: Tensor, lengths: Tensor
) -> Tensor:
    """Attention of one query for each sequence and head to a cache in pages."""
    # BEGIN SOLUTION
    B, H, D = q.shape
    o = torch.empty_like(q)
    strides = (*k_pages.stride()[:3], table.stride(0))
    paged_decode_kernel[(B, H)](
        *(q, k_pages, v_pages, table, lengths, o, *strides, D**-0.5), D=D, BLOCK=32
    )
    return o
    # END SOLUTION


# %% tags=["check"]
check("06.paged_decode")

# %% [markdown] why paged_decode
# **Why it matters.** This is the kernel that vLLM is named for (PagedAttention). Before it, a server kept room for the
# longest answer of every request. With pages a sequence takes memory as it grows, and a thousand requests with one
# system prompt share its pages. The table costs one more load that everything waits for.

# %% [markdown] statement of mla_decode
# ## 06.mla_decode: one small cache for all heads
#
# Multi-head latent attention keeps for each position one latent vector $c$ and one rotary part $r$, side by side, for
# all heads together. Head $h$ makes its key and its value of $c$ by matrices of its own:
#
# $$ s_{h,t} = \frac{q_h \cdot (W^{UK}_h c_t) + q^{rope}_h \cdot r_t}{\sqrt{N + R}} \qquad o_h = \sum_{t < n_b} p_{h,t}
# \; W^{UV}_h c_t \qquad p_h = \text{softmax}(s_h) $$
#
# | | |
# |---|---|
# | `q`, `q_rope` | shapes (B, H, N) and (B, H, R), float16 or bfloat16; H is 1 to 16, N = 48, R = 16 |
# | `cache` | shape (B, S, C + R), the latent vector first; C = 64 |
# | `lengths` | shape (B,), int32: valid rows of each cache, from 1 to S. Behind them lies anything, NaN too |
# | `w_uk`, `w_uv` | shapes (H, N, C) and (H, V, C): key = `w_uk[h] @ c`, value = `w_uv[h] @ c`; V = 48 |
# | result | shape (B, H, V), dtype of `q`; sums in float32 |
#
# All tensors are contiguous and have the dtype of `q`. The products with `w_uk` and `w_uv` are torch's
# (`torch.einsum`, and `.contiguous()` of its result, if you like): where you put them is the exercise. The attention is
# your kernel's.
#
# **Limits.** `global_load_bytes` of your kernels: each valid row of the cache **once** for all heads, 5 % more, and
# 32 KB a sequence for queries. Keys and values of 16 heads have twenty times the bytes. `matrix_flops`: the attention
# at least. `launches`: one or two. No `scratch_bytes`.
#
# **A small example.** N = C = 2, no rotary part, q = (1, 2), W = ((0, 1), (3, 0)), c = (5, 7). The key is W c = (7, 15)
# and q · key = 37. The other way: W turned, times q, is (6, 1), and (6, 1) · (5, 7) = 37.
#
# **Questions to ask yourself.** Which of the two ways does its work once a step, and which once for each position?
# What is a latent vector to your kernel: key or value? Whose length is under the root? What are the strides of what
# `torch.einsum` returns?
#
# **Triton that helps.** `tl.dot(a, tl.trans(b), acc)`; its smallest tile has 16 rows, so rows from H on are masked.
# `hint("06.mla_decode")` gives three hints.


# %% 06.mla_decode tags=["answer", "06.mla_decode"]
@triton.jit
def mla_kernel(
    q_ptr,
    rope_ptr,
    cache_ptr,
    lengths_ptr,
    o_ptr,
    H,
    S,
    scale,
    C: tl.constexpr,
    R: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """All heads of one sequence attend to its latent vectors: a sum of C numbers each."""
    # BEGIN SOLUTION
    b = tl.program_id(0)
    length = tl.load(lengths_ptr + b)
    c, r = tl.arange(0, C), tl.arange(0, R)
    head = tl.arange(0, 16)[:, None]
    row = b * H + head
    q = tl.load(q_ptr + row * C + c, mask=head < H, other=0.0)
    q_rope = tl.load(rope_ptr + row * R + r, mask=head < H, other=0.0)
    m = tl.full([16], float("-inf"), dtype=tl.float32)
    weight = tl.zeros([16], dtype=tl.float32)
    vectors = tl.zeros([16, C], dtype=tl.float32)
    for start in range(0, length, BLOCK):
        t = start + tl.arange(0, BLOCK)
        there = (t < length)[:, None]
        at = cache_ptr + (b * S + t[:, None]) * (C + R)
        latent = tl.load(at + c, mask=there, other=0.0)
        k_rope = tl.load(at + C + r, mask=there, other=0.0)
        scores = tl.dot(q, tl.trans(latent))
        scores = tl.dot(q_rope, tl.trans(k_rope), scores) * scale
        scores = tl.where(t < length, scores, float("-inf"))
        new = tl.maximum(m, tl.max(scores, axis=1))
        p, factor = tl.exp(scores - new[:, None]), tl.exp(m - new)
        weight = weight * factor + tl.sum(p, axis=1)
        vectors = tl.dot(p.to(latent.dtype), latent, vectors * factor[:, None])
        m = new
    tl.store(o_ptr + row * C + c, vectors / weight[:, None], mask=head < H)
    # END SOLUTION


def mla_decode(
    q: Tensor,
    q_rope: Tensor,
    cache: Tensor,
    lengths: Tensor,
    w_uk: Tensor,
    w_uv: Tensor,
) -> Tensor:
    """Latent attention of one query for each sequence and head."""
    # BEGIN SOLUTION
    (B, H, _), R = q.shape, q_rope.shape[2]
    scale = (q.shape[2] + R) ** -0.5
    absorbed = torch.einsum("bhn,hnc->bhc", q, w_uk).contiguous()
    latents = torch.empty_like(absorbed)
    mla_kernel[(B,)](
        *(absorbed, q_rope, cache, lengths, latents, H, cache.shape[1], scale),
        C=absorbed.shape[2],
        R=R,
        BLOCK=32,
    )
    return torch.einsum("bhc,hvc->bhv", latents, w_uv)
    # END SOLUTION


# %% tags=["check"]
check("06.mla_decode")

# %% [markdown] why mla_decode
# **Why it matters.** DeepSeek-V3 has 128 heads, latent vectors of 512 and a rotary part of 64: 70 KB for a token in all
# its 61 layers, where Llama 3.1 405B keeps 516 KB. DeepSeek's FlashMLA is a kernel of this kind. A long prompt is
# another matter: there FLOPs decide, and products of length 576 cost three times those of 192.

# %% [markdown] gpt2 on your attention
# ## GPT-2 on your attention
#
# Unit 01's GPT-2 calls attention once in each block. In the next cell that call becomes your `forward`, and your
# `backward` is what autograd finds on the way back; everything else stays torch's. Your kernels compute in bfloat16, so
# the bound is torch itself in bfloat16 (*torch's off*); *off* is the relative difference from torch in float64.
#
# Launches and bytes stand beside those of unit 01's explicit attention, whose scores go through memory: fifteen
# operators for a layer, forward and backward. **Before you run it:** from 16 to 128 positions, by which factor do the
# bytes of the one grow, and by which those of the other?

# %% your attention in a training step
from gpu_utils import lesson

rows = {}
for positions in (16, 128):
    with lesson.when_written():
        own = (forward, backward)
        found = lesson.own_kernels_in_gpt2(positions=positions, attention=own)
        rows |= {f"{positions} positions, {name}": row for name, row in found.items()}
lesson.table(rows, first="replaced, on")

# %% [markdown] what torch has
# Eight times the positions: eight times the bytes where no score is written, and 43 times where they all are. (The
# fused operator that torch chooses on a recent GPU does as yours does: q, k, v and o once, and no scores. Counted
# alike, it would touch 802,816 bytes at 128 positions, in four launches: in each of two layers 12 tensors of 32,768
# bytes, q, k, v and o forward and the same four with four gradients on the way back, and lse of 4,096 bytes twice. With
# two kernels on the way back, as in the solution, you touch q, k, v and do once more, and delta twice and lse once
# more: 1,089,536.)
#
# Is it good enough to learn with? Ten steps on a virtual MI300X:

# %% ten steps on your attention
with lesson.when_written():
    torch.manual_seed(0)
    shape = lesson.GPT2Config(300, n_positions=16, n_embd=32, n_layer=2, n_head=2)
    model = lesson.GPT2(shape)
    loss_of = lesson.swapped(model.loss, attention=(forward, backward))
    adamw = torch.optim.AdamW(model.parameters(), lr=3e-3)
    tokens = torch.randint(300, (4, 17))
    with virtual_gpu("gfx942"):
        for step in range(10):
            loss = loss_of(tokens[:, :-1], tokens[:, 1:])
            adamw.zero_grad()
            loss.backward()
            adamw.step()
            print(f"step {step}: loss {loss.item():.3f}")

# %% [markdown] speed of your attention
# With a real GPU, the next cell times a training step of GPT-2 124M against torch's fused attention in bfloat16. It has
# 24 heads of 32 here, in place of 12 of 64, since your `backward` is checked for D up to 32.

# %% your speed
rows = {}
with lesson.when_written():
    shape = lesson.GPT2Config(
        50257, n_positions=1024, n_embd=768, n_layer=12, n_head=24
    )
    rows = lesson.speed_in_gpt2(shape, attention=(forward, backward))
lesson.table(rows)

# %% [markdown] python by your kernels
# ## Python, by your kernels
#
# Last, text. Torch trains unit 01's small model on Python's standard library (about a minute on a CPU). Then the model
# writes: your `forward` reads the prompt and fills a cache, and your `decode` takes each token from there, two launches
# for each of two layers. On a machine without a GPU they run on a virtual MI300X.
#
# Torch's model is given the same tokens, and the same luck where one is drawn. *Different* counts the tokens where it
# would have written another one: 0 means that the two texts are the same from end to end.

# %% your kernels write
prompts = (
    "class Stack:\n    def __init__(self,",
    "import os\n\n\ndef main(",
    "for name in",
)
rows = {}
with lesson.when_written():
    own = {"forward": forward, "decode": decode, "target": "gfx942"}
    lesson.generated(lesson.GPT2(lesson.PRESETS["cpu"].model), [0], 2, **own)
    run = lesson.train(lesson.PRESETS["cpu"])
    for seed, prompt in enumerate(prompts):
        read = run.corpus.tokenizer.encode(prompt).ids
        luck = {"temperature": 0.7, "seed": seed}
        text = lesson.generated(run.model, read, 100, **luck, **own)
        print(run.corpus.tokenizer.decode(text.tokens), "-" * 60, sep="\n")
        rows[prompt.splitlines()[0]] = {
            "tokens read": len(read),
            "written": len(text.tokens) - len(read),
            "different": text.different,
            "logits off": text.logits_off,
            "launches": sum(text.launches.values()),
        }
lesson.table(rows, first="prompt")


# %% [markdown] challenge
# ## A challenge: causal attention in the fewest cycles
#
# Optional, and against yourself alone. Your `forward` gets two heads of 384 positions with D = 64, causal, in bfloat16,
# on both virtual GPUs; the predicted cycles are added up. Only a right answer enters, within the limits of 06.forward.
# First look what binds: the bytes of keys and values that each block of queries loads again, or instructions. Only the
# one that binds is worth your time. Then: where is a mask not needed? Which rows belong to which wave? Which factor can
# be multiplied once, in place of once for each block?

# %% your entry
from gpu_utils import challenge

challenge("06")

# %% [markdown] end of the lab
# ## Done
#
# A minute of training makes no programmer. But every attention weight p behind these lines came out of a loop that
# you wrote, and no matrix of them ever met memory. Unit 07 goes below Triton, to the instructions of your loops.

# %% progress
progress()
