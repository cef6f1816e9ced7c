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
# **Limits.** `launches`: 1. `scratch_bytes`: 0, nothing spills. `global_store_bytes`: o and lse once, 5% more at most;
# so no score is stored. `matrix_flops`: both products, for the scores that are needed, by matrix instructions. Where
# N = 256, causal: at most 0.8 of the `4 * B * H * N * N * D` of all scores, on `sm_80` *and* on `gfx942`; and
# `global_load_bytes` at most what blocks of 32 queries load that skip what they do not see (5% more).
#
# **Three puzzles.** With 256 positions and tiles of 64 x 64: which share of the 16 tiles is left? A matrix instruction
# takes 16 rows on one of the two targets and 32 on the other, and here all waves of a program stand one below the
# other: what do four waves do with 64 rows? And of the two masks, behind N and above the diagonal: which one does a
# causal kernel need in its scores, if rows behind N are never stored?
#
# **A small example.** One query, scale 1, scores 0 and 0 with the values 2 and 4 in the first block, and 1 with the
# value 8 in the second. After the first block m = 0, l = 2, acc = 6. After the second m = 1, the factor is
# $e^{-1}$ = 0.368, l = 1.736, acc = 10.207. So o = 5.880 and lse = 1 + ln 1.736 = 1.551.
#
# **Triton that helps.** A second `tl.program_id(1)` for batch and head together. `tl.load(k_ptr + cols[None, :] * k_n +
# d[:, None], ...)` gives a block of keys already turned, (D, BLOCK_N). `tl.exp2` and `tl.log2`, with the conversion
# from base e inside the scale. `range(0, end, BLOCK_N)` with an end of your own. `num_warps=` at the launch. Lesson 06,
# sitting 1. `hint("06.forward")` gives three hints.


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

# %% [markdown] part three
# ## Part 3: decoding

# %% [markdown] end of the lab
# ## Done

# %% progress
progress()
