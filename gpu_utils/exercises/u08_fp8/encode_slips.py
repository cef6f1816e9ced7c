"""Wrong answers of 08.encode: the right one with one mistake in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from gpu_utils.exercises.u08_fp8.kinds import format_of

_TIES: Mapping[str, Callable[[Tensor], Tensor]] = {
    "cuts": torch.floor,
    "ties_away": lambda steps: (steps + 0.5).floor(),
    "ties_to_zero": lambda steps: (steps - 0.5).ceil(),
}
"""Slip -> how many steps a size has; the right answer rounds half to even."""

_POWERS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "power_rounds_down": lambda digits, code: digits < 0.5,
    "power_rounds_up": lambda digits, code: digits > 0.5,
    "power_of_the_logarithm": lambda digits, code: digits > 2**-0.5,
    "power_ties_to_even": lambda digits, code: (digits > 0.75) | ((digits == 0.75) & (code % 2 == 1)),
}
"""Slip -> whether the power goes up, from frexp's digits (1/2 to 1) and the code below."""


def slipped(slip: str = "") -> Callable[..., Tensor]:
    """The right answer with one mistake in it."""

    def answer(x: Tensor, exponent_bits: int, mantissa_bits: int, bias: int, specials: str) -> Tensor:
        if slip == "rounds_twice":
            x = x.to(torch.bfloat16)
        if slip == "bias_of_ieee":
            bias = 2 ** (exponent_bits - 1) - 1
        numbers = {"exponent_bits": exponent_bits, "mantissa_bits": mantissa_bits, "bias": bias, "specials": specials}
        if specials == "power":
            return _power(x.double(), exponent_bits, bias, slip)
        code = _size(x.double(), numbers, slip)
        code = _with_sign(code, x.double(), numbers, slip)
        return code.where(~x.isnan(), _nan(numbers, slip)).to(torch.uint8)

    return answer


def _power(x: Tensor, exponent_bits: int, bias: int, slip: str) -> Tensor:
    largest = 2**exponent_bits - 2
    digits, power = torch.frexp(x.clamp(max=torch.finfo(torch.float32).max))
    code = power - 1 + bias
    up = _POWERS.get(slip, lambda digits, code: digits >= 0.75)(digits, code)
    code = (code + up).clamp(0, largest + (slip == "power_ends_in_nan"))
    return code.where(~x.isnan(), 0 if slip == "nan_becomes_zero" else largest + 1).to(torch.uint8)


def _size(x: Tensor, numbers: Mapping, slip: str) -> Tensor:
    """The code without its sign."""
    mantissa_bits, specials = numbers["mantissa_bits"], numbers["specials"]
    top = 2 ** (numbers["exponent_bits"] + mantissa_bits)
    lowest = 1 - numbers["bias"]
    if slip == "clamps_at_448":
        x = x.clamp(-448.0, 448.0)
    size = x.abs().where(x.isfinite(), 1.0)
    digits, power = torch.frexp(size)
    if slip != "zero_by_frexp":
        power = power.where(size > 0, lowest)
    power = (power - 1).clamp(min=lowest)
    steps = _TIES.get(slip, torch.round)(size * torch.exp2((mantissa_bits - power).double())).long()
    if slip == "carry_is_lost":
        steps = steps.where(steps < 2 ** (mantissa_bits + 1), 2**mantissa_bits)
    code = steps + ((power - lowest) << mantissa_bits)
    if slip == "subnormals_are_zero":
        code = code.where(code >= 2**mantissa_bits, 0)
    if slip == "subnormals_keep_their_one":
        stored = ((2 * digits - 1) * 2**mantissa_bits).round().long().clamp(max=2**mantissa_bits - 1)
        code = stored.where((size > 0) & (size < 2.0**lowest), code)
    largest = _largest(numbers, slip)
    special = {"ieee": top - 2**mantissa_bits, "fn": top - 1, "fnuz": top}.get(specials, largest)
    if slip == "wraps":
        code = code % top
    else:
        code = code.where(code <= largest, special if slip == "beyond_is_special" else largest)
    keeps_infinity = slip in ("infinity_stays", "beyond_is_special")
    return code.where(~x.isinf(), special if keeps_infinity else largest)


def _largest(numbers: Mapping, slip: str) -> int:
    """The code of the largest number."""
    if slip == "ends_as_ieee":
        numbers = {**numbers, "specials": "ieee"}
    if slip == "fnuz_ends_as_fn" and numbers["specials"] == "fnuz":
        numbers = {**numbers, "specials": "fn"}
    return len(format_of(numbers).sizes) - 1


def _with_sign(code: Tensor, x: Tensor, numbers: Mapping, slip: str) -> Tensor:
    top = 2 ** (numbers["exponent_bits"] + numbers["mantissa_bits"])
    negative = x < 0 if slip == "loses_negative_zero" else x.signbit()
    if slip == "small_negatives_are_zero":
        negative &= (code > 0) | (x == 0)
    if numbers["specials"] == "fnuz" and slip == "fnuz_knows_zero_alone":
        negative = x < 0
    elif numbers["specials"] == "fnuz" and slip != "fnuz_makes_nan":
        negative &= code > 0
    return torch.where(negative & (code < top), code + (128 if slip == "sign_is_bit_7" else top), code)


def _nan(numbers: Mapping, slip: str) -> int:
    """The code of NaN."""
    top = 2 ** (numbers["exponent_bits"] + numbers["mantissa_bits"])
    if slip == "nan_becomes_zero":
        return 0
    if slip == "nan_is_the_largest":
        return _largest(numbers, "")
    if slip == "nan_of_fn":
        return top - 1
    return format_of(numbers).nan or 0
