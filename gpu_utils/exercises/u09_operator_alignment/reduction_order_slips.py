"""09.reduction_order by its rules, each of which can be wrong."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from gpu_utils.analytic.summation import gamma
from gpu_utils.analytic.tolerance import unit_roundoff
from gpu_utils.exercises.u09_operator_alignment.sums import KAHAN_ENDS, kahan, pairwise, sequential

Add = Callable[[Tensor, int], Tensor]
Heights = Callable[[int, int], float]
"""(K, lanes) -> the most additions that a term goes through."""

Fits = Callable[[Tensor, float], bool]
"""(bounds of all rows, allowed) -> whether an order is good enough."""


# --- sums ---------------------------------------------------------------------------------------------------------


def _of_lanes(x: Tensor, lanes: int) -> Tensor:
    """(rows, lanes): what each lane has after it added every lanes-th term."""
    padded = torch.nn.functional.pad(x, (0, -x.shape[1] % lanes))
    return sequential(padded.view(len(x), -1, lanes).movedim(1, -1))


def _halved(x: Tensor) -> Tensor:
    while x.shape[1] > 1:
        x = x[:, : x.shape[1] // 2] + x[:, x.shape[1] // 2 :]
    return x[:, 0]


def in_lanes(x: Tensor, lanes: int) -> Tensor:
    """Lane j adds terms j, j + lanes, ...; then lane i adds what lane i + n / 2 has, and n is halved.

    >>> in_lanes(torch.tensor([[2048.0, 1, 1, 1, 1]], dtype=torch.float16), 2).tolist()
    [2050.0]
    """
    return _halved(_of_lanes(x, lanes))


def _pieces(x: Tensor, lanes: int) -> Tensor:
    padded = torch.nn.functional.pad(x, (0, -x.shape[1] % lanes))
    return _halved(sequential(padded.view(len(x), lanes, -1)))


def _whole_rounds(x: Tensor, lanes: int) -> Tensor:
    rounds = x.shape[1] // lanes
    return in_lanes(x[:, : rounds * lanes] if rounds else torch.zeros_like(x[:, :1]), lanes if rounds else 1)


def _halves(x: Tensor, lanes: int) -> Tensor:
    middle = x.shape[1] // 2
    return x[:, 0] if not middle else _halves(x[:, :middle], 0) + _halves(x[:, middle:], 0)


def _odd_is_lost(x: Tensor, lanes: int) -> Tensor:
    while x.shape[1] > 1:
        x = x[:, :-1:2] + x[:, 1::2]
    return x[:, 0]


def _odd_joins_the_last(x: Tensor, lanes: int) -> Tensor:
    while x.shape[1] > 1:
        pairs = x[:, :-1:2] + x[:, 1::2]
        if x.shape[1] % 2:
            pairs[:, -1] = pairs[:, -1] + x[:, -1]
        x = pairs
    return x[:, 0]


def _padded_in_front(x: Tensor, lanes: int) -> Tensor:
    while x.shape[1] > 1:
        x = torch.cat((x[:, : x.shape[1] % 2], x[:, x.shape[1] % 2 :: 2] + x[:, x.shape[1] % 2 + 1 :: 2]), dim=1)
    return x[:, 0]


def _kahan_with(lost: Callable[..., Tensor], sign: int = 1) -> Add:
    def add(x: Tensor, lanes: int) -> Tensor:
        total, *rest = x.unbind(1)
        carried = torch.zeros_like(total)
        for term in rest:
            mended = term - sign * carried
            larger = total + mended
            carried = lost(total, term, mended, larger)
            total = larger
        return total

    return add


RIGHT_SUMS: Mapping[str, Add] = {
    "sequential": sequential,
    "lanes": in_lanes,
    "pairwise": pairwise,
    "kahan": kahan,
}

WRONG_SUMS: Mapping[str, Mapping[str, Add]] = {
    "torch_sum": {"sequential": lambda x, lanes: x.sum(1)},
    "running_sum_of_torch": {"sequential": lambda x, lanes: x.cumsum(1)[:, -1]},
    "consecutive_pieces": {"lanes": _pieces},
    "neighbouring_lanes": {"lanes": lambda x, lanes: pairwise(_of_lanes(x, lanes))},
    "lanes_one_by_one": {"lanes": lambda x, lanes: sequential(_of_lanes(x, lanes))},
    "rest_is_lost": {"lanes": _whole_rounds},
    "split_in_the_middle": {"pairwise": _halves},
    "odd_is_lost": {"pairwise": _odd_is_lost},
    "odd_joins_the_last": {"pairwise": _odd_joins_the_last},
    "odd_in_front": {"pairwise": _padded_in_front},
    "lost_is_added": {"kahan": _kahan_with(lambda total, term, mended, larger: (larger - total) - mended, -1)},
    "lost_of_the_term": {"kahan": _kahan_with(lambda total, term, mended, larger: (larger - total) - term)},
    "lost_adds_up": {"kahan": _kahan_with(lambda total, term, mended, larger: larger - (total + mended))},
}
"""Slip -> the order that it adds otherwise."""

# --- bounds -------------------------------------------------------------------------------------------------------


def _kahan_bound(k: int, u: float) -> float:
    return 3 * u + 8 * k * u * u if k * u <= KAHAN_ENDS else math.inf


RIGHT_HEIGHTS: Mapping[str, Heights] = {
    "sequential": lambda k, lanes: k - 1,
    "lanes": lambda k, lanes: -(-k // lanes) - 1 + math.log2(lanes),
    "pairwise": lambda k, lanes: math.ceil(math.log2(k)),
}

WRONG_HEIGHTS: Mapping[str, Mapping[str, Heights]] = {
    "counts_terms": {"sequential": lambda k, lanes: k},
    "lanes_without_their_tree": {"lanes": lambda k, lanes: -(-k // lanes) - 1},
    "lanes_without_their_steps": {"lanes": lambda k, lanes: math.log2(lanes)},
    "steps_rounded_down": {"lanes": lambda k, lanes: k // lanes - 1 + math.log2(lanes)},
    "steps_not_additions": {"lanes": lambda k, lanes: -(-k // lanes) + math.log2(lanes)},
    "tree_of_all_lanes": {"lanes": lambda k, lanes: -(-k // lanes) - 1 + lanes - 1},
    "levels_rounded_down": {"pairwise": lambda k, lanes: math.floor(math.log2(k))},
    "levels_with_a_fraction": {"pairwise": lambda k, lanes: math.log2(k)},
    "all_additions": {name: lambda k, lanes: k - 1 for name in ("lanes", "pairwise")},
}
"""Slip -> the heights that it counts otherwise."""

_UNITS: Mapping[str, Callable[[torch.dtype], float]] = {
    "eps_for_u": lambda dtype: 2 * unit_roundoff(dtype),
    "u_of_float32": lambda dtype: unit_roundoff(torch.float32),
}
_GAMMAS: Mapping[str, Callable[[float, float], float]] = {
    "negative_bound": lambda n, u: n * u / (1 - n * u) if n * u != 1 else math.inf,
    "first_order": lambda n, u: n * u,
}
_KAHANS: Mapping[str, Callable[[int, float], float]] = {
    "kahan_first_order": lambda k, u: 3 * u if k * u <= KAHAN_ENDS else math.inf,
    "kahan_everywhere": lambda k, u: 3 * u + 8 * k * u * u,
    "kahan_as_sequential": lambda k, u: gamma(k - 1, u),
}
_CONDITIONS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "backward": lambda x, total: torch.ones(len(x), dtype=torch.float64),
    "absolute": lambda x, total: x.double().abs().sum(1),
    "over_the_computed_sum": lambda x, total: x.double().abs().sum(1) / total.double().abs(),
    "sign_of_the_sum": lambda x, total: x.double().abs().sum(1) / x.double().sum(1),
}

# --- the choice ---------------------------------------------------------------------------------------------------

_FITS: Mapping[str, Fits] = {
    "one_row": lambda bounds, allowed: bool((bounds <= allowed).any()),
    "mean_row": lambda bounds, allowed: float(bounds.mean()) <= allowed,
    "cheapest_of_all": lambda bounds, allowed: True,
}


def slipped(slip: str = "") -> Callable[..., dict[str, Any]]:
    """The right answer with one mistake in it; "" is without."""
    adds = {**RIGHT_SUMS, **WRONG_SUMS.get(slip, {})}
    heights = {**RIGHT_HEIGHTS, **WRONG_HEIGHTS.get(slip, {})}
    wide = {"in_float32": torch.float32, "in_float64": torch.float64}.get(slip)
    fits = _FITS.get(slip, lambda bounds, allowed: bool((bounds <= allowed).all()))
    of_gamma, of_kahan = _GAMMAS.get(slip, gamma), _KAHANS.get(slip, _kahan_bound)

    def answer(x: Tensor, lanes: int, costs: Mapping[str, float], allowed: float) -> dict[str, Any]:
        k, u = x.shape[1], _UNITS.get(slip, unit_roundoff)(x.dtype)
        sums = {name: add(x.to(wide or x.dtype), lanes).to(x.dtype) for name, add in adds.items()}
        worst = {name: of_gamma(height(k, lanes), u) for name, height in heights.items()} | {"kahan": of_kahan(k, u)}
        exact, sizes = x.double().sum(1), x.double().abs().sum(1)
        bounds = {
            name: worst[name] * _CONDITIONS.get(slip, lambda x, total: sizes / exact.abs())(x, sums[name])
            for name in sums
        }
        judged = bounds
        if slip == "measured":
            judged = {name: (total.double() - exact).abs() / exact.abs() for name, total in sums.items()}
        good = [name for name in sums if fits(judged[name], allowed)]
        if slip == "most_exact":
            choose = min(good, key=lambda name: float(bounds[name].max()), default="none")
        elif slip == "dearest":
            choose = max(good, key=lambda name: costs[name], default="none")
        elif slip == "always_one":
            choose = min(good or ["kahan"], key=lambda name: costs[name])
        else:
            choose = min(good, key=lambda name: costs[name], default="none")
        return {"sums": sums, "bounds": bounds, "choose": choose}

    return answer
