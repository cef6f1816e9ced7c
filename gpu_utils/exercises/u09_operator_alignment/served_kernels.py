"""The three operators of a small served model that sum: product, RMSNorm, attention of one query to a cache.

Each launcher takes a plan (`served_plans`), which alone decides in which order its sums are added.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from gpu_utils.exercises.u09_operator_alignment.served_plans import (
    KEYS,
    AttentionChoice,
    ProductChoice,
)

DEPTH = 32
"""Columns of x that one step of a product takes."""


@triton.jit(do_not_specialize=["M", "part"])
def product_kernel(
    x_ptr, w_ptr, parts_ptr, M, N, K, part,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """One part of one tile of x @ w, stored in parts (splits, M, N)."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    cols = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    split = tl.program_id(2)
    end = tl.minimum(split * part + part, K)
    acc = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for start in range(split * part, end, DEPTH):
        k_of_x = start + tl.arange(0, DEPTH)[None, :]
        k_of_w = start + tl.arange(0, DEPTH)[:, None]
        x = tl.load(x_ptr + rows * K + k_of_x, mask=(rows < M) & (k_of_x < end), other=0.0)
        w = tl.load(w_ptr + k_of_w * N + cols, mask=(k_of_w < end) & (cols < N), other=0.0)
        acc = tl.dot(x, w, acc)
    tl.store(parts_ptr + (split * M + rows) * N + cols, acc, mask=(rows < M) & (cols < N))


@triton.jit(do_not_specialize=["n", "splits"])
def add_parts_kernel(parts_ptr, out_ptr, n, splits, BLOCK: tl.constexpr):
    """out = part 0 + part 1 + ..., in this order."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for split in range(splits):
        total += tl.load(parts_ptr + split * n + at, mask=at < n, other=0.0)
    tl.store(out_ptr + at, total, mask=at < n)


def product(x: Tensor, w: Tensor, choose: ProductChoice) -> Tensor:
    """float32 (M, N): x (M, K) @ w (K, N), both of one 16-bit type, contiguous, in tiles and parts as `choose` says."""
    (rows, depth), columns = x.shape, w.shape[1]
    plan = choose(rows, columns)
    part = triton.cdiv(triton.cdiv(depth, DEPTH), plan.splits) * DEPTH
    parts = torch.empty((plan.splits, rows, columns), dtype=torch.float32, device=x.device)
    tiles = triton.cdiv(rows, plan.rows), triton.cdiv(columns, plan.columns)
    product_kernel[(*tiles, plan.splits)](
        x, w, parts, rows, columns, depth, part, ROWS=plan.rows, COLUMNS=plan.columns, DEPTH=DEPTH
    )
    if plan.splits == 1:
        return parts[0]
    out = torch.empty((rows, columns), dtype=torch.float32, device=x.device)
    add_parts_kernel[(triton.cdiv(out.numel(), 256),)](parts, out, out.numel(), plan.splits, BLOCK=256)
    return out


@triton.jit
def row_sums_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    """out[row] = the sum of a row, block upon block; then in the order that the compiler has for lanes and warps."""
    row = tl.program_id(0)
    acc = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        acc += tl.load(x_ptr + row * columns + at, mask=at < columns, other=0.0)
    tl.store(out_ptr + row, tl.sum(acc, 0))


def row_sums(x: Tensor, block: int, warps: int) -> Tensor:
    """float32 (rows,): sums of the rows of x (rows, columns) float32, contiguous."""
    rows, columns = x.shape
    out = torch.empty(rows, dtype=torch.float32, device=x.device)
    row_sums_kernel[(rows,)](x, out, columns, BLOCK=block, num_warps=warps)
    return out


@triton.jit(do_not_specialize=["positions", "part", "parts"])
def attend_kernel(
    q_ptr, k_ptr, v_ptr, lengths_ptr, out_ptr, stats_ptr, positions, part, parts, scale,
    HEADS: tl.constexpr, D: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """One part of a context: its values weighted by exp(score - largest), the largest score, the sum of weights."""
    request = tl.program_id(0)
    head = tl.program_id(1)
    number = tl.program_id(2)
    length = tl.load(lengths_ptr + request)
    columns = tl.arange(0, D)
    q = tl.load(q_ptr + (request * HEADS + head) * D + columns).to(tl.float32) * scale
    largest = tl.full((1,), -1e30, tl.float32)
    weights = tl.zeros((1,), tl.float32)
    acc = tl.zeros((D,), tl.float32)
    for start in range(number * part, tl.minimum(number * part + part, length), KEYS):
        at = start + tl.arange(0, KEYS)
        offsets = ((request * positions + at)[:, None] * HEADS + head) * D + columns[None, :]
        k = tl.load(k_ptr + offsets, mask=(at < length)[:, None], other=0.0).to(tl.float32)
        v = tl.load(v_ptr + offsets, mask=(at < length)[:, None], other=0.0).to(tl.float32)
        scores = tl.where(at < length, tl.sum(k * q[None, :], 1), -1e30)
        new = tl.maximum(largest, tl.max(scores, 0))
        p = tl.where(at < length, tl.exp(scores - new), 0.0)
        old = tl.exp(largest - new)
        weights = weights * old + tl.sum(p, 0)
        acc = acc * old + tl.sum(p[:, None] * v, 0)
        largest = new
    place = (request * HEADS + head) * parts + number
    tl.store(out_ptr + place * D + columns, acc)
    tl.store(stats_ptr + place * 2 + tl.arange(0, 1), largest)
    tl.store(stats_ptr + place * 2 + 1 + tl.arange(0, 1), weights)


@triton.jit(do_not_specialize=["parts"])
def merge_kernel(parts_ptr, stats_ptr, out_ptr, parts, D: tl.constexpr):
    """The parts of one query, merged in order; an empty part changes nothing."""
    query = tl.program_id(0)
    columns = tl.arange(0, D)
    largest = -1e30
    weights = 0.0
    acc = tl.zeros((D,), tl.float32)
    for number in range(parts):
        place = query * parts + number
        of_part = tl.load(stats_ptr + place * 2)
        new = tl.maximum(largest, of_part)
        old, own = tl.exp(largest - new), tl.exp(of_part - new)
        weights = weights * old + tl.load(stats_ptr + place * 2 + 1) * own
        acc = acc * old + tl.load(parts_ptr + place * D + columns) * own
        largest = new
    tl.store(out_ptr + query * D + columns, acc / weights)


def attention(q: Tensor, k: Tensor, v: Tensor, lengths: Sequence[int], choose: AttentionChoice) -> Tensor:
    """float32 (requests, heads, D): each query's attention to the first `lengths[i]` positions of its cache.

    q (requests, heads, D), k and v (requests, positions, heads, D), contiguous, of one type; D a power of two.
    """
    requests, heads, size = q.shape
    longest = max(lengths)
    part = choose(requests, heads, longest)
    parts = triton.cdiv(longest, part)
    found = torch.empty((requests * heads, parts, size), dtype=torch.float32, device=q.device)
    stats = torch.empty((requests * heads, parts, 2), dtype=torch.float32, device=q.device)
    counts = torch.tensor(lengths, dtype=torch.int32, device=q.device)
    attend_kernel[(requests, heads, parts)](
        q, k, v, counts, found, stats, k.shape[1], part, parts, size**-0.5, HEADS=heads, D=size, KEYS=KEYS, num_warps=1
    )
    out = torch.empty((requests, heads, size), dtype=torch.float32, device=q.device)
    merge_kernel[(requests * heads,)](found, stats, out, parts, D=size, num_warps=1)
    return out
