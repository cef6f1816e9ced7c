"""What lesson 10 measures of latent attention: its two forms timed in turn, and their FLOPs as torch counts them."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from gpu_utils.timing import Ratio, bench

Core = Callable[..., Tensor]


def _expanded(q: Tensor, q_rope: Tensor, latent: Tensor, k_rope: Tensor, w_uk: Tensor, w_uv: Tensor) -> Tensor:
    keys, values = latent @ w_uk.mT, latent @ w_uv.mT
    scores = (q @ keys.mT).add_(q_rope @ k_rope.T).div_(math.sqrt(q.shape[-1] + q_rope.shape[-1]))
    return scores.softmax(-1) @ values


def _absorbed(q: Tensor, q_rope: Tensor, latent: Tensor, k_rope: Tensor, w_uk: Tensor, w_uv: Tensor) -> Tensor:
    scores = ((q @ w_uk) @ latent.T).add_(q_rope @ k_rope.T).div_(math.sqrt(q.shape[-1] + q_rope.shape[-1]))
    return (scores.softmax(-1) @ latent) @ w_uv.mT


def _drawn(queries: int, tokens: int, heads: int) -> tuple[Tensor, ...]:
    """With the sizes of DeepSeek-V3 for a head: nope 128, rope 64, value 128, rank 512. float32, no mask."""
    generator = torch.Generator().manual_seed(0)
    shapes = ((heads, queries, 128), (heads, queries, 64), (tokens, 512), (tokens, 64), (heads, 128, 512))
    return tuple(torch.randn(shape, generator=generator) / 10 for shape in (*shapes, shapes[-1]))


def mla_race(queries: int, tokens: int, heads: int = 4, seconds: float = 0.4) -> Ratio:
    """How many times faster the absorbed form is than the expanded one, here and now, for so many queries and tokens.

    Both get queries and a cache of latent vectors and give the values of each head; ratios of runs in turn, on one core
    of the CPU: with several, the waiting for each other would be timed where others compute, too.
    """
    drawn, threads = _drawn(queries, tokens, heads), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        race = bench(partial(_absorbed, *drawn), against=partial(_expanded, *drawn), seconds=seconds, device="cpu")
    finally:
        torch.set_num_threads(threads)
    assert isinstance(race, Ratio)
    return race


def mla_flops(queries: int, tokens: int, heads: int = 4) -> dict[str, int]:
    """FLOPs of the two forms as torch counts them, products of matrices only.

    >>> mla_flops(queries=1, tokens=64, heads=1) == {
    ...     "expanded": 2 * 64 * 512 * 256 + 2 * 64 * 320, "absorbed": 2 * 512 * 256 + 2 * 64 * 1088
    ... }
    True
    """
    from torch.utils.flop_counter import FlopCounterMode

    found, drawn = {}, _drawn(queries, tokens, heads)
    for name, core in (("expanded", _expanded), ("absorbed", _absorbed)):
        with FlopCounterMode(display=False) as counter:
            core(*drawn)
        found[name] = counter.get_total_flops()
    return found
