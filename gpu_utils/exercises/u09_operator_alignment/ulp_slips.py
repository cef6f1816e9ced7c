"""Wrong answers of 09.ulp: the right one with one mistake in it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

CODES = {torch.float16: torch.int16, torch.bfloat16: torch.int16, torch.float32: torch.int32}
FAR = 2**63 - 1
"""Distance of NaN from a number."""


def codes(x: Tensor) -> Tensor:
    """The bits as whole numbers with a sign, int64."""
    return x.view(CODES[x.dtype]).long()


def places(x: Tensor) -> Tensor:
    """int64: how many numbers from 0, with the sign of x.

    >>> places(torch.tensor([0.0, -0.0, 2**-149, -(2**-149)])).tolist()
    [0, 0, 1, -1]
    """
    bits = codes(x)
    return torch.where(bits < 0, torch.iinfo(CODES[x.dtype]).min - bits, bits)


def _steps(x: Tensor, lowest: float) -> Tensor:
    """The spacing of the type at the size of x."""
    power = torch.frexp(x.double().abs().clamp(min=lowest)).exponent - 1
    return torch.exp2(power.double()) * torch.finfo(x.dtype).eps


def _over(spacing: Callable[[Tensor, Tensor], Tensor | float]) -> Callable[[Tensor, Tensor], Tensor]:
    """|a - b| in units of a spacing, from both."""

    def count(a: Tensor, b: Tensor) -> Tensor:
        return ((a.double() - b.double()).abs() / spacing(a, b)).round().long()

    return count


def _larger(a: Tensor, b: Tensor) -> Tensor:
    return torch.where(a.abs() > b.abs(), a, b)


def _in_units_of_larger(a: Tensor, b: Tensor) -> Tensor:
    return _steps(_larger(a, b), torch.finfo(a.dtype).smallest_normal)


def _by(place: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    def count(a: Tensor, b: Tensor) -> Tensor:
        return (place(a) - place(b)).abs()

    return count


def _unsigned(x: Tensor) -> Tensor:
    return codes(x) % 2 ** torch.finfo(x.dtype).bits


def _ones_complement(x: Tensor) -> Tensor:
    return places(x) - (codes(x) < 0).long()


def _flushed(x: Tensor) -> Tensor:
    return places(x.where(x.abs() >= torch.finfo(x.dtype).smallest_normal, 0.0).where(~x.isnan(), x))


def _without_subnormal(x: Tensor) -> Tensor:
    normal = int(places(torch.tensor(torch.finfo(x.dtype).smallest_normal, dtype=x.dtype)))
    place = places(x)
    return place.sign() * (place.abs() - normal + 1).clamp(min=0)


def _sizes(x: Tensor) -> Tensor:
    return places(x).abs()


def _narrow(a: Tensor, b: Tensor) -> Tensor:
    one, other = (places(x).to(CODES[x.dtype]) for x in (a, b))
    return (one - other).abs().long()


def _infinity_is_far(a: Tensor, b: Tensor) -> Tensor:
    return torch.where((a.isinf() | b.isinf()) & (a != b), FAR, _by(places)(a, b))


_COUNTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "over_eps": _over(lambda a, b: torch.finfo(a.dtype).eps),
    "relative": _over(lambda a, b: _larger(a, b).double().abs() * torch.finfo(a.dtype).eps),
    "of_larger": _over(_in_units_of_larger),
    "of_a": _over(lambda a, b: _steps(a, torch.finfo(a.dtype).smallest_normal)),
    "raw_codes": _by(codes),
    "unsigned_codes": _by(_unsigned),
    "narrow": _narrow,
    "ones_complement": _by(_ones_complement),
    "float32_first": _by(lambda x: places(x.float())),
    "denormals_are_zero": _by(_flushed),
    "denormals_skipped": _by(_without_subnormal),
    "infinity_is_far": _infinity_is_far,
    "only_between": lambda a, b: (_by(places)(a, b) - 1).clamp(min=0),
    "signed": lambda a, b: places(a) - places(b),
    "sizes_only": _by(_sizes),
    "always_int32": _by(lambda x: x.view(torch.int32).long()),
    "whole_numbers": _by(lambda x: x.long()),
}
"""Slip -> how numbers are counted."""


def slipped(slip: str) -> Callable[[Tensor, Tensor], Tensor]:
    """The right answer with one mistake in it; "" is without."""

    def answer(a: Tensor, b: Tensor) -> Tensor:
        apart = _COUNTS.get(slip, _by(places))(a, b)
        one, both = a.isnan() != b.isnan(), a.isnan() & b.isnan()
        if slip == "nan_by_code":
            return apart
        if slip == "always_int32":
            return apart if apart.shape != a.shape else apart.masked_fill(both, 0).masked_fill(one, FAR)
        apart = apart.masked_fill(both, FAR if slip == "nan_unlike_nan" else 0)
        return apart.masked_fill(one, {"any_nan_is_0": 0, "minus_1_for_nan": -1}.get(slip, FAR))

    return answer
