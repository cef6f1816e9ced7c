"""Operations of conch-triton-kernels for `foreign_kernels.py`."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from foreign_operations import HALF, ROWS, WIDTH, Draw, Operation, normal, rms_norm

ACTIVATION, NORMS, QUANTIZATION = "conch.ops.activation", "conch.ops.normalization", "conch.ops.quantization"
FOUR_BITS = f"{QUANTIZATION}.bitsandbytes.functional"
HEAD, PAGE = 64, 16
OVERLAP = 0.3
X, W = normal(ROWS, WIDTH), normal(WIDTH)
PAGES = {name: normal(7, PAGE, 2, HEAD, dtype=HALF) for name in ("keys", "values")}
TABLE = torch.tensor([[3, 1, 6], [0, 5, 2]], dtype=torch.int32)  # of two sequences
LENGTHS = torch.tensor([37, 20], dtype=torch.int32)


def indices(high: int, *shape: int) -> Draw:
    return lambda: torch.randint(0, high, shape, dtype=torch.int32)


def boxes(count: int) -> Draw:
    """Corners (x1, y1, x2, y2)."""
    return lambda: (lambda corner, size: torch.cat([corner, corner + size], 1))(
        torch.rand(count, 2) * 10, torch.rand(count, 2) * 4 + 1
    )


def gathered(pages: Any, i: int) -> Any:
    """Sequence i of a cache (pages, slots, heads, width) as (heads, time, width)."""
    return pages[TABLE[i].long()].flatten(0, 1)[: LENGTHS[i]].transpose(0, 1)


def decoded(q: Any, keys: Any, values: Any) -> Any:
    """One query (batch, heads, width) of each sequence."""
    found = [
        F.scaled_dot_product_attention(q[i, :, None], gathered(keys, i), gathered(values, i), enable_gqa=True)[:, 0]
        for i in range(len(q))
    ]
    return torch.stack(found)


def prefilled(q: Any, keys: Any, values: Any) -> Any:
    """5 and 3 queries, one after the other: (8, heads, width); query i sees the first i + 1 keys."""
    found = []
    for i, part in enumerate(q.split([5, 3])):
        seen = torch.arange(int(LENGTHS[i])) <= torch.arange(len(part))[:, None]
        k, v = gathered(keys, i), gathered(values, i)
        found.append(F.scaled_dot_product_attention(part.transpose(0, 1), k, v, seen, enable_gqa=True).transpose(0, 1))
    return torch.cat(found)


def varlen(m: Any, q: Any, keys: Any, values: Any) -> Any:
    begins = torch.tensor([0, 5, 8], dtype=torch.int32).cuda()
    return m.varlen_attention(q, keys, values, begins, 5, LENGTHS.cuda(), 37, TABLE.cuda(), causal=True)


def kept(corners: Any, scores: Any) -> Any:
    """Non-maximum suppression, box by box; of two that overlap by more than OVERLAP one is kept."""
    order, found = scores.argsort(descending=True).tolist(), []
    area = (corners[:, 2:] - corners[:, :2]).prod(1)
    while order:
        first, *order = order
        found.append(first)
        size = (
            torch.minimum(corners[first, 2:], corners[order, 2:])
            - torch.maximum(corners[first, :2], corners[order, :2])
        ).clamp(min=0)
        shared = size.prod(1)
        overlap = shared / (area[first] + area[order] - shared)
        order = [one for one, part in zip(order, overlap.tolist(), strict=True) if part <= OVERLAP]
    return torch.tensor(found)


def turned(positions: Any, q: Any, k: Any, cache: Any) -> Any:
    """q and k (tokens, heads * width); cache (positions, width): cosines, then sines."""
    cos, sin = (part[positions.long()][:, None] for part in cache.chunk(2, -1))

    def one(x: Any) -> Any:
        a, b = x.reshape(len(x), -1, HEAD).chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).reshape(x.shape)

    return one(q), one(k)


def cached(m: Any, key: Any, value: Any, slots: Any) -> Any:
    keys, values = (torch.zeros(3, PAGE, 2, HEAD, dtype=key.dtype, device="cuda") for _ in range(2))
    m.reshape_and_cache(key, value, keys, values, slots)
    return keys, values


def cache_of(key: Any, value: Any, slots: Any) -> Any:
    caches = (torch.zeros(3 * PAGE, 2, HEAD, dtype=key.dtype) for _ in range(2))
    return tuple(
        cache.index_copy(0, slots, x).reshape(3, PAGE, 2, HEAD) for cache, x in zip(caches, (key, value), strict=True)
    )


def pooled(features: Any, cells: Any) -> Any:
    """Features (n, c) summed by cell; 5 intervals of 7 points, each of one cell."""
    out = torch.zeros(1, 2, 3, 4, features.shape[1], dtype=features.dtype)
    for i in range(5):
        x, y, z, b = cells[7 * i].tolist()
        out[b, z, x, y] = features[7 * i : 7 * i + 7].sum(0)
    return out


def pool(m: Any, features: Any, cells: Any) -> Any:
    begins = torch.arange(0, 35, 7, dtype=torch.int32).cuda()
    return m.bev_pool(features, cells, begins, torch.full_like(begins, 7), 1, 2, 3, 4)


def cells() -> torch.Tensor:
    chosen = torch.randperm(24)[:5]
    rows = torch.stack([chosen // 8, chosen // 2 % 4, chosen % 2, torch.zeros_like(chosen)], 1)
    return rows.repeat_interleave(7, 0).int()


def there_and_back(m: Any, x: Any, kind: str) -> Any:
    codes, state = m.quantize_4bit(x, blocksize=64, quant_type=kind)
    return m.dequantize_4bit(codes, state, blocksize=64, quant_type=kind)


def packed_product(m: Any, x: Any, w: Any, s: Any) -> Any:
    """w (k, n) of numbers below 16, eight to a word along k; s (k / 64, n)."""
    shifts = torch.arange(0, 32, 4, device=w.device)[:, None]
    words = (w.reshape(-1, 8, w.shape[1]) << shifts).sum(1)
    words = torch.where(words >= 1 << 31, words - (1 << 32), words).to(torch.int32)
    return m.mixed_precision_gemm(x, words, s, None, 4, 8, 64)


def product_of_packed(x: Any, w: Any, s: Any) -> Any:
    return x @ ((w - 8) * s.repeat_interleave(64, 0))


CONCH_OPERATIONS = (
    Operation(
        "rms_norm",
        NORMS + ".rms_norm",
        {"x": X, "w": W},
        lambda m, x, w: m.rms_norm(x, w, 1e-6),
        rms_norm,
        gradients=False,
    ),
    Operation(
        "fused_add_rms_norm",
        NORMS + ".rms_norm",
        {"x": X, "r": X, "w": W},
        lambda m, x, r, w: m.fused_add_rms_norm(x, r, w, 1e-6),
        lambda x, r, w: (rms_norm(x + r, w), x + r),
        gradients=False,
    ),
    Operation(
        "gemma_rms_norm",
        NORMS + ".gemma_rms_norm",
        {"x": X, "w": W},
        lambda m, x, w: m.gemma_rms_norm(x, w, 1e-6),
        lambda x, w: rms_norm(x, 1 + w),
        gradients=False,
    ),
    *(
        Operation(
            name,
            f"{ACTIVATION}.{name}",
            {"x": normal(ROWS, 2 * WIDTH)},
            lambda m, x, name=name: getattr(m, name)(x),
            lambda x, gate=gate: gate(x[:, :WIDTH]) * x[:, WIDTH:],
            gradients=False,
        )
        for name, gate in (("gelu_tanh_and_mul", partial(F.gelu, approximate="tanh")), ("silu_and_mul", F.silu))
    ),
    Operation(
        "rotary_embedding",
        "conch.ops.embedding.rotary_embedding",
        {"p": indices(19, 7), "q": normal(7, 3 * HEAD), "k": normal(7, HEAD), "c": normal(19, HEAD)},
        lambda m, p, q, k, c: m.rotary_embedding(p, q, k, HEAD, c),
        lambda p, q, k, c: turned(p, q, k, c),
        gradients=False,
    ),
    Operation(
        "paged_attention",
        "conch.ops.attention.paged_attention",
        {"q": normal(2, 4, HEAD, dtype=HALF), **PAGES},
        lambda m, q, keys, values: m.paged_attention(q, keys, values, TABLE.cuda(), LENGTHS.cuda()),
        decoded,
        1e-2,
        gradients=False,
    ),
    Operation(
        "varlen_attention",
        "conch.ops.attention.varlen_attention",
        {"q": normal(8, 4, HEAD, dtype=HALF), **PAGES},
        varlen,
        prefilled,
        1e-2,
        gradients=False,
    ),
    Operation(
        "reshape_and_cache",
        "conch.ops.vllm.reshape_and_cache",
        {"key": normal(7, 2, HEAD), "value": normal(7, 2, HEAD), "slots": lambda: torch.randperm(3 * PAGE)[:7]},
        cached,
        cache_of,
        gradients=False,
    ),
    Operation(
        "scaled_int8_quant",
        QUANTIZATION + ".int8",
        {"x": normal(ROWS, WIDTH)},
        lambda m, x: m.scaled_int8_quant(x, torch.tensor([0.05]).cuda())[0],
        lambda x: (x / 0.05).clamp(-128, 127).trunc(),
        0.02,
        gradients=False,
    ),
    Operation(
        "scaled_fp8_quant",
        QUANTIZATION + ".fp8",
        {"x": normal(ROWS, WIDTH)},
        lambda m, x: m.scaled_fp8_quant(x, torch.tensor([0.05]).cuda())[0].float(),
        lambda x: x / 0.05,
        0.07,
        gradients=False,
        targets=("sm_89", "sm_9", "sm_1", "gfx94", "gfx95", "gfx12"),
    ),
    *(
        Operation(
            f"quantize_4bit, {kind}",
            FOUR_BITS,
            {"x": normal(256)},
            lambda m, x, kind=kind: there_and_back(m, x, kind),
            lambda x: x,
            0.2,
            gradients=False,
        )
        for kind in ("fp4", "nf4")
    ),
    Operation(
        "scaled_gemm",
        QUANTIZATION + ".gemm",
        {
            "a": lambda: torch.randint(-9, 9, (37, 128), dtype=torch.int8),
            "b": lambda: torch.randint(-9, 9, (128, 64), dtype=torch.int8),
            "s": normal(37, 1),
            "t": normal(64, 1),
        },
        lambda m, a, b, s, t: m.scaled_gemm(a, b, s, t, torch.float32),
        lambda a, b, s, t: (a.double() @ b.double()) * s * t.T,
        gradients=False,
    ),
    Operation(
        "mixed_precision_gemm",
        QUANTIZATION + ".gemm",
        {
            "x": normal(37, 128, dtype=HALF),
            "w": lambda: torch.randint(0, 16, (128, 64)),
            "s": normal(2, 64, dtype=HALF, scale=0.1),
        },
        packed_product,
        product_of_packed,
        1e-2,
        gradients=False,
    ),
    Operation(
        "nms",
        "conch.ops.vision.nms",
        {"corners": boxes(37), "scores": lambda: torch.randperm(37).float()},
        lambda m, corners, scores: m.nms(corners, scores, OVERLAP),
        kept,
        gradients=False,
    ),
    Operation(
        "bev_pool",
        "conch.ops.vision.bev_pool",
        {"features": normal(35, 19), "cells": cells},
        pool,
        pooled,
        gradients=False,
    ),
)
