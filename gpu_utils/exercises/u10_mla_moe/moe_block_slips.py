"""Wrong answers to 10.moe_block, as learners write them: the right loop with one thing otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Inner = Callable[[Tensor, Tensor], Tensor]


def swiglu(gated: Tensor, up: Tensor) -> Tensor:
    return F.silu(gated) * up


def answer(
    *,
    inner: Inner = swiglu,
    before: Callable[[Tensor, Tensor], Tensor] = lambda rows, weight: rows,
    after: Callable[[Tensor, Tensor], Tensor] = lambda rows, weight: rows * weight,
    of_weights: Callable[[Tensor], Tensor] = lambda weights: weights,
    of_experts: Callable[[Tensor], Tensor] = lambda experts: experts,
    place: Callable[[Tensor, int], Tensor] = lambda at, expert: at,
    at_most: int | None = None,
    overwrites: bool = False,
    shared: float = 1.0,
    routed: float = 1.0,
    residual: bool = False,
    dtype: torch.dtype | None = None,
    of_matrices: Callable[[Tensor], Tensor] = lambda matrices: matrices,
    of_x: Callable[[Tensor], Tensor] = lambda x: x,
) -> Callable[..., Tensor]:
    """The right answer, with one thing otherwise.

    inner          what a SwiGLU does with the two products
    before, after  what happens to the rows and the weight of an expert, before and after it
    of_...         what is done with an argument at first
    place          which column of the weights a row is weighed by, from its place and the expert's number
    at_most        rows that an expert takes
    overwrites     whether the last expert of a token replaces what the others gave
    shared, routed factors of the two parts; residual: whether x is added
    """

    def wrong(
        x: Tensor, weights: Tensor, experts: Tensor, gate: Tensor, up: Tensor, down: Tensor, shared_gate: Tensor,
        shared_up: Tensor, shared_down: Tensor,
    ) -> Tensor:  # fmt: skip
        gate, up, down = map(of_matrices, (gate, up, down))
        weights, experts, rows_of = of_weights(weights), of_experts(experts), of_x(x)
        y = torch.zeros_like(x)
        for number in range(len(gate)):
            token, at = (experts == number).nonzero(as_tuple=True)
            token, at = token[:at_most], at[:at_most]
            weight = weights[token, place(at, number)].unsqueeze(1)
            rows = before(rows_of[token], weight).to(x.dtype)
            found = after(inner(rows @ gate[number].T, rows @ up[number].T) @ down[number].T, weight).to(y.dtype)
            y = y.index_copy(0, token, found) if overwrites else y.index_add(0, token, found)
        y = routed * y
        if shared:
            y = y + shared * (inner(rows_of @ shared_gate.T, rows_of @ shared_up.T) @ shared_down.T)
        return (y + x if residual else y).to(dtype or x.dtype)

    return wrong


def all_experts(
    x: Tensor, weights: Tensor, experts: Tensor, gate: Tensor, up: Tensor, down: Tensor, shared_gate: Tensor,
    shared_up: Tensor, shared_down: Tensor,
) -> Tensor:  # fmt: skip
    """Every expert computes every token, and most of it is multiplied by 0."""
    spread = torch.zeros(len(x), len(gate), dtype=weights.dtype).scatter(1, experts, weights)
    each = swiglu(x @ gate.mT, x @ up.mT) @ down.mT  # (E, T, D)
    y = (each * spread.T.unsqueeze(-1)).sum(0).to(x.dtype)
    return y + swiglu(x @ shared_gate.T, x @ shared_up.T) @ shared_down.T


def padded_to_the_largest(
    x: Tensor, weights: Tensor, experts: Tensor, gate: Tensor, up: Tensor, down: Tensor, shared_gate: Tensor,
    shared_up: Tensor, shared_down: Tensor,
) -> Tensor:  # fmt: skip
    """One product for all experts, each with as many rows as the busiest: the rest are zeros."""
    most = int(torch.bincount(experts.flatten(), minlength=len(gate)).max())
    rows = x.new_zeros(len(gate), most, x.shape[1])
    found = [(experts == number).nonzero(as_tuple=True) for number in range(len(gate))]
    for number, (token, _) in enumerate(found):
        rows = rows.index_put((torch.full_like(token, number), torch.arange(len(token))), x[token])
    each = swiglu(rows @ gate.mT, rows @ up.mT) @ down.mT
    y = torch.zeros_like(x)
    for number, (token, at) in enumerate(found):
        y = y.index_add(0, token, (each[number, : len(token)] * weights[token, at, None]).to(x.dtype))
    return y + swiglu(x @ shared_gate.T, x @ shared_up.T) @ shared_down.T


def no_grad(**inputs: Any) -> Tensor:
    with torch.no_grad():
        return answer()(**inputs)
