"""09.tolerance by its rules, each of which can be wrong."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from gpu_utils.exercises.u09_operator_alignment.recorded_sums import BITS

U: Mapping[str, float] = {name: 2.0 ** -(bits + 1) for name, bits in BITS.items()}
"""Unit roundoffs."""

_OF_TORCH = {"fp32": (1.3e-6, 1e-5), "fp16": (1e-3, 1e-5), "bf16": (1.6e-2, 1e-5)}
"""What torch.testing.assert_close takes for a type."""

_FIXED: Mapping[str, Callable[[str], tuple[float, float]]] = {
    "allclose": lambda result: (1e-5, 1e-8),
    "assert_close": lambda result: _OF_TORCH[result],
    "one_for_all": lambda result: (1e-2, 1e-2),
}

_GROWN: Mapping[str, Callable[[int, int, bool], float]] = {
    "no_length": lambda k, every, one_sign: 1.0,
    "size_of_a_term": lambda k, every, one_sign: math.sqrt(k),
    "sign_ignored": lambda k, every, one_sign: math.sqrt(k * every),
    "always_one_sign": lambda k, every, one_sign: every * math.sqrt(k),
    "every_ignored": lambda k, every, one_sign: k * math.sqrt(k) if one_sign else k,
    "one_piece": lambda k, every, one_sign: every * math.sqrt(every) if one_sign else every,
    "worst_case": lambda k, every, one_sign: k * k,
}
"""Slip -> roundings of the running sums together, in u and in terms."""


def _grown(k: int, every: int, one_sign: bool) -> float:
    """Deviation of all roundings of running sums of `every` terms, in u of a term, but for a factor below 1/2."""
    return every * math.sqrt(k) if one_sign else math.sqrt(k * every)


def slipped(slip: str = "") -> Callable[..., tuple[float, float]]:
    """The right answer with one mistake in it; "" is without."""

    def answer(
        k: int, magnitude: float, one_sign: bool, factors: str, accumulator: str, every: int | None, result: str
    ) -> tuple[float, float]:
        if slip in _FIXED:
            return _FIXED[slip](result)
        pieces = min(every or k, k)
        if slip == "counts_pieces" and every:
            pieces = -(-k // every)
        unit = U[{"u_of_result": result, "always_fp32": "fp32"}.get(slip, accumulator)]
        sums = 2.5 * unit * _GROWN.get(slip, _grown)(k, pieces, one_sign)
        lost = 0.0 if factors == "fp32" else U[factors]
        if slip == "tf32_as_fp32" and factors == "tf32":
            lost = 0.0
        of_factors = 3 * lost * math.sqrt(k)
        if slip in ("factors_worst", "worst_case"):
            of_factors = 2 * lost * k
        elif slip in ("factors_forgotten", "factors_relative"):
            of_factors = 0.0
        elif slip == "no_length":
            of_factors = 3 * lost
        rtol = 0.0 if slip == "result_forgotten" else 2 * U[result]
        if slip == "factors_relative":
            rtol += 3 * lost
        atol = (sums + of_factors) * (1 if slip == "magnitude_forgotten" else magnitude)
        if slip == "relative_only":
            return rtol + sums / math.sqrt(k) + 2 * lost, 0.0
        if slip == "one_deviation":
            return rtol, atol / 6
        return (atol, rtol) if slip == "swapped" else (rtol, atol)

    return answer
