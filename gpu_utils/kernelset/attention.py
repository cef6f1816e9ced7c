"""Attention: the fused forward and backward passes, and decoding with the keys split over programs."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from gpu_utils.kernelset.case import Run, case


@triton.jit
def flash_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    o_ptr,
    lse_ptr,
    S,
    scale,
    D: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    head = tl.program_id(1)
    base = head.to(tl.int64) * S * D
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    q = tl.load(q_ptr + base + m[:, None] * D + d[None, :], mask=m[:, None] < S, other=0.0)
    top = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    end = tl.minimum((tl.program_id(0) + 1) * BM, S) if CAUSAL else S
    for start in range(0, end, BN):
        n = start + tl.arange(0, BN)
        k = tl.load(k_ptr + base + n[None, :] * D + d[:, None], mask=n[None, :] < S, other=0.0)
        s = tl.dot(q, k) * (scale * 1.4426950408889634)
        keep = n[None, :] < S
        if CAUSAL:
            keep = keep & (m[:, None] >= n[None, :])
        s = tl.where(keep, s, -float("inf"))
        higher = tl.maximum(top, tl.max(s, 1))
        p = tl.exp2(s - higher[:, None])
        shrink = tl.exp2(top - higher)
        total = total * shrink + tl.sum(p, 1)
        v = tl.load(v_ptr + base + n[:, None] * D + d[None, :], mask=n[:, None] < S, other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None])
        top = higher
    o = (acc / total[:, None]).to(o_ptr.dtype.element_ty)
    tl.store(o_ptr + base + m[:, None] * D + d[None, :], o, mask=m[:, None] < S)
    tl.store(lse_ptr + head * S + m, top + tl.log2(total), mask=m < S)


@triton.jit
def flash_delta_kernel(o_ptr, do_ptr, delta_ptr, S, D: tl.constexpr, BM: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    at = tl.program_id(1) * S * D + m[:, None] * D + d[None, :]
    o = tl.load(o_ptr + at, mask=m[:, None] < S, other=0.0).to(tl.float32)
    do = tl.load(do_ptr + at, mask=m[:, None] < S, other=0.0).to(tl.float32)
    tl.store(delta_ptr + tl.program_id(1) * S + m, tl.sum(o * do, 1), mask=m < S)


@triton.jit
def flash_backward_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    do_ptr,
    lse_ptr,
    delta_ptr,
    dq_ptr,
    dk_ptr,
    dv_ptr,
    S,
    scale,
    D: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
):
    head = tl.program_id(1)
    base = head * S * D
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    d = tl.arange(0, D)
    own = base + n[:, None] * D + d[None, :]
    k = tl.load(k_ptr + own, mask=n[:, None] < S, other=0.0)
    v = tl.load(v_ptr + own, mask=n[:, None] < S, other=0.0)
    dk = tl.zeros((BN, D), tl.float32)
    dv = tl.zeros((BN, D), tl.float32)
    for start in range(tl.program_id(0) * BN // BM * BM, S, BM):
        m = start + tl.arange(0, BM)
        at = base + m[:, None] * D + d[None, :]
        q = tl.load(q_ptr + at, mask=m[:, None] < S, other=0.0)
        do = tl.load(do_ptr + at, mask=m[:, None] < S, other=0.0)
        lse = tl.load(lse_ptr + head * S + m, mask=m < S, other=0.0)
        delta = tl.load(delta_ptr + head * S + m, mask=m < S, other=0.0)
        s = tl.dot(q, tl.trans(k)) * (scale * 1.4426950408889634)
        keep = (m[:, None] >= n[None, :]) & (m[:, None] < S)
        p = tl.where(keep, tl.exp2(s - lse[:, None]), 0.0)
        dv = tl.dot(tl.trans(p.to(do.dtype)), do, dv)
        ds = (p * (tl.dot(do, tl.trans(v)) - delta[:, None]) * scale).to(q.dtype)
        dk = tl.dot(tl.trans(ds), q, dk)
        tl.atomic_add(dq_ptr + at, tl.dot(ds, k), mask=m[:, None] < S, sem="relaxed")
    tl.store(dk_ptr + own, dk.to(dk_ptr.dtype.element_ty), mask=n[:, None] < S)
    tl.store(dv_ptr + own, dv.to(dv_ptr.dtype.element_ty), mask=n[:, None] < S)


def attention_reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, causal: bool) -> torch.Tensor:
    """softmax(q k^T scale) v in float64; q, k, v of (heads, S, D)."""
    s = q @ k.transpose(1, 2) * scale
    if causal:
        s = s.masked_fill(torch.ones_like(s).triu(1).bool(), -torch.inf)
    return torch.softmax(s, -1) @ v


@case()
def flash_attention_forward(run: Run) -> None:
    heads, S, D = run.size(2, 4), run.size(70, 256), 32
    for dtype, causal in ((torch.float16, True), (torch.bfloat16, False)):
        q, k, v = (run.normal(heads, S, D, dtype=dtype) for _ in range(3))
        o, lse = torch.empty_like(q), torch.empty(heads, S)
        grid = (triton.cdiv(S, 32), heads)
        run.launch(flash_kernel, grid, q, k, v, o, lse, S, D**-0.5, D=D, BM=32, BN=32, CAUSAL=causal)
        expected = attention_reference(q.double(), k.double(), v.double(), D**-0.5, causal)
        # the weights p are rounded to the inputs' type before the second product
        run.close(f"o {dtype}", o, expected, k=8, accumulator=dtype, magnitude=0.3)


@case()
def flash_attention_backward(run: Run) -> None:
    heads, S, D = run.size(1, 4), run.size(70, 128), 32
    scale, dtype = D**-0.5, torch.float16
    q, k, v, do = (run.normal(heads, S, D, dtype=dtype) for _ in range(4))
    o, lse, delta = torch.empty_like(q), torch.empty(heads, S), torch.empty(heads, S)
    dq, dk, dv = torch.zeros(heads, S, D), torch.empty_like(k), torch.empty_like(v)
    grid = (triton.cdiv(S, 32), heads)
    run.launch(flash_kernel, grid, q, k, v, o, lse, S, scale, D=D, BM=32, BN=32, CAUSAL=True)
    run.launch(flash_delta_kernel, grid, o, do, delta, S, D=D, BM=32)
    args = (q, k, v, do, lse, delta, dq, dk, dv, S, scale)
    run.launch(flash_backward_kernel, grid, *args, D=D, BM=32, BN=32, num_stages=1)
    leaf = [t.double().requires_grad_() for t in (q, k, v)]
    attention_reference(leaf[0], leaf[1], leaf[2], scale, True).backward(do.double())
    for name, got, tensor in zip(("dq", "dk", "dv"), (dq, dk, dv), leaf, strict=True):
        run.close(name, got, tensor.grad, k=S, accumulator=dtype, magnitude=0.3)


@triton.jit
def decode_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    part_ptr,
    top_ptr,
    total_ptr,
    length_ptr,
    S,
    scale,
    D: tl.constexpr,
    BN: tl.constexpr,
    SPLITS: tl.constexpr,
):
    head = tl.program_id(0)
    split = tl.program_id(1)
    length = tl.load(length_ptr + head)
    chunk = tl.cdiv(tl.cdiv(length, SPLITS), BN) * BN
    d = tl.arange(0, D)
    q = tl.load(q_ptr + head * D + d).to(tl.float32) * scale
    top = -float("inf")
    total = 0.0
    acc = tl.zeros((D,), tl.float32)
    for start in range(split * chunk, tl.minimum(length, split * chunk + chunk), BN):
        n = start + tl.arange(0, BN)
        at = head * S * D + n[:, None] * D + d[None, :]
        k = tl.load(k_ptr + at, mask=n[:, None] < length, other=0.0).to(tl.float32)
        s = tl.where(n < length, tl.sum(k * q[None, :], 1), -float("inf"))
        higher = tl.maximum(top, tl.max(s, 0))
        p = tl.exp(s - higher)
        shrink = tl.exp(top - higher)
        v = tl.load(v_ptr + at, mask=n[:, None] < length, other=0.0).to(tl.float32)
        acc = acc * shrink + tl.sum(v * p[:, None], 0)
        total = total * shrink + tl.sum(p, 0)
        top = higher
    slot = head * SPLITS + split
    tl.store(part_ptr + slot * D + d, acc)
    tl.store(top_ptr + slot, top)
    tl.store(total_ptr + slot, total)


@triton.jit
def combine_kernel(part_ptr, top_ptr, total_ptr, o_ptr, D: tl.constexpr, SPLITS: tl.constexpr):
    head = tl.program_id(0)
    s = tl.arange(0, SPLITS)
    d = tl.arange(0, D)
    top = tl.load(top_ptr + head * SPLITS + s)
    weight = tl.exp(top - tl.max(top, 0))
    total = tl.sum(weight * tl.load(total_ptr + head * SPLITS + s), 0)
    part = tl.load(part_ptr + (head * SPLITS + s[:, None]) * D + d[None, :])
    tl.store(o_ptr + head * D + d, (tl.sum(part * weight[:, None], 0) / total).to(o_ptr.dtype.element_ty))


@case()
def decode_attention_split_over_keys(run: Run) -> None:
    heads, S, D, splits = run.size(3, 32), run.size(150, 600), 64, 4
    q = run.normal(heads, D, dtype=torch.float16)
    k, v = (run.normal(heads, S, D, dtype=torch.float16) for _ in range(2))
    length = run.integers(S // 2, S + 1, heads)
    part, top, total = torch.empty(heads, splits, D), torch.empty(heads, splits), torch.empty(heads, splits)
    o = torch.empty_like(q)
    args = (q, k, v, part, top, total, length, S, D**-0.5)
    run.launch(decode_kernel, (heads, splits), *args, D=D, BN=32, SPLITS=splits)
    run.launch(combine_kernel, (heads,), part, top, total, o, D=D, SPLITS=splits, num_warps=2)
    expected = torch.stack(
        [
            torch.softmax(k[h, :n].double() @ q[h].double() * D**-0.5, 0) @ v[h, :n].double()
            for h, n in enumerate(length.tolist())
        ]
    )
    run.close("o", o, expected, k=S, magnitude=0.1)


@triton.jit
def rope_kernel(x_ptr, cos_ptr, sin_ptr, out_ptr, S, HALF: tl.constexpr, SIGN: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, HALF)
    cos = tl.load(cos_ptr + row % S * HALF + i)
    sin = tl.load(sin_ptr + row % S * HALF + i) * SIGN
    a = tl.load(x_ptr + row * 2 * HALF + i).to(tl.float32)
    b = tl.load(x_ptr + row * 2 * HALF + HALF + i).to(tl.float32)
    tl.store(out_ptr + row * 2 * HALF + i, (a * cos - b * sin).to(out_ptr.dtype.element_ty))
    tl.store(out_ptr + row * 2 * HALF + HALF + i, (b * cos + a * sin).to(out_ptr.dtype.element_ty))


@case()
def rotary_embedding_forward_and_backward(run: Run) -> None:
    heads, S, half = run.size(2, 8), run.size(19, 100), 32
    x = run.normal(heads * S, 2 * half, dtype=torch.float16)
    angle = torch.arange(S)[:, None] * 10000.0 ** (-torch.arange(half) / half)
    cos, sin = angle.cos(), angle.sin()
    out, back = torch.empty_like(x), torch.empty_like(x)
    run.launch(rope_kernel, (heads * S,), x, cos, sin, out, S, HALF=half, SIGN=1, num_warps=1)
    run.launch(rope_kernel, (heads * S,), out, cos, sin, back, S, HALF=half, SIGN=-1, num_warps=1)
    a, b = x.double().view(heads, S, 2, half).unbind(2)
    c, s = cos.double(), sin.double()
    expected = torch.cat([a * c - b * s, b * c + a * s], 2).view(heads * S, 2 * half)
    run.close("rotated", out, expected, k=2)
    run.close("rotated back", back, x.double(), k=4, accumulator=torch.float16)
