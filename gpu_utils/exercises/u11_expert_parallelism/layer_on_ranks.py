"""A layer of experts over four ranks, by a learner's own dispatch and combine, beside the same layer on one rank."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from gpu_utils.distributed import run_ranks

TOKENS = (13, 9, 0, 18)
"""Of each rank."""

EXPERTS, K, WIDTH, HIDDEN = 8, 2, 256, 64


def layer_on_ranks(dispatch: Callable[..., Any], combine: Callable[..., Any]) -> dict[str, Any]:
    """What came of the layer: whether its bits are those of one rank, how far off it is, and bytes for each token.

    dispatch, combine  answers to 11.dispatch (or 11.fp8_dispatch) and 11.combine

    Raises RankFailed where one of them does.
    """
    each, weights = _tokens(), _weights()

    def layer(x: Tensor, experts: Tensor, gates: Tensor) -> tuple[Tensor, int]:
        world, rank = dist.get_world_size(), dist.get_rank()
        rows, counts = dispatch(x, experts, EXPERTS, dist.group.WORLD)
        first = rank * (EXPERTS // world)
        owned = torch.arange(first, first + EXPERTS // world).repeat_interleave(counts.sum(0))
        y = _computed(rows, owned, weights, x.dtype)
        return combine(y, counts, experts, gates, dist.group.WORLD), len(rows)

    found = run_ranks(layer, len(TOKENS), each)
    got = torch.cat([value for value, _ in found.values])
    wanted = torch.cat([_on_one_rank(weights=weights, **one) for one in each])
    off, tokens = (got.double() - wanted.double()).abs().max(), sum(TOKENS)
    leaving = _leaving(each)
    traffic = sum(map(sum, found.sent))
    return {
        "tokens": tokens,
        "rows that the ranks' experts got": ", ".join(str(rows) for _, rows in found.values),
        "the same bits as on one rank": "yes" if torch.equal(got, wanted) else "no",
        "largest difference, % of the largest result": 100 * float(off / wanted.double().abs().max()),
        "bytes that a token put on the wire": traffic / tokens,
        "on paper, bfloat16 both ways": 2 * leaving * WIDTH * 2 / tokens,
        "on paper, E4M3 out and bfloat16 back": leaving * (WIDTH + 4 * WIDTH // 128 + 2 * WIDTH) / tokens,
    }


def _tokens() -> list[dict[str, Tensor]]:
    generator, each = torch.Generator().manual_seed(11), []
    for tokens in TOKENS:
        experts = torch.rand(tokens, EXPERTS, generator=generator).argsort(1)[:, :K]
        gates = torch.rand(tokens, K, generator=generator)
        x = torch.randn(tokens, WIDTH, generator=generator).bfloat16()
        each.append({"x": x, "experts": experts, "gates": gates / gates.sum(1, keepdim=True)})
    return each


def _weights() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(12)
    up = torch.randn(EXPERTS, WIDTH, HIDDEN, generator=generator) / WIDTH**0.5
    return up, torch.randn(EXPERTS, HIDDEN, WIDTH, generator=generator) / HIDDEN**0.5


def _computed(rows: Tensor, owners: Tensor, weights: tuple[Tensor, Tensor], dtype: torch.dtype) -> Tensor:
    """Each row by its expert, one row after the other, so that sums do not depend on how many rows there are."""
    up, down = weights
    y = torch.empty(len(rows), WIDTH, dtype=dtype)
    for row, expert, out in zip(rows.float(), owners.tolist(), y, strict=True):
        out.copy_(torch.nn.functional.silu(row @ up[expert]) @ down[expert])
    return y


def _on_one_rank(x: Tensor, experts: Tensor, gates: Tensor, weights: tuple[Tensor, Tensor]) -> Tensor:
    out = torch.zeros(len(x), WIDTH)
    for j in range(K):
        out += gates[:, j, None] * _computed(x, experts[:, j], weights, x.dtype).float()
    return out.to(x.dtype)


def _leaving(each: list[dict[str, Tensor]]) -> int:
    """Copies whose expert is on another rank."""
    share = EXPERTS // len(TOKENS)
    return sum(int((one["experts"] // share != rank).sum()) for rank, one in enumerate(each))
