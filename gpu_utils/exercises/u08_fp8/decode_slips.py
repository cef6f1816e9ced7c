"""Wrong answers of 08.decode: the right one with one mistake in it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def slipped(slip: str = "") -> Callable[..., Tensor]:
    """The right answer with one mistake in it."""

    def answer(codes: Tensor, exponent_bits: int, mantissa_bits: int, bias: int, specials: str) -> Tensor:
        code = codes.long()
        if slip == "bias_of_ieee":
            bias = 2 ** (exponent_bits - 1) - 1
        if slip == "one_kind_of_specials" and specials != "power":
            specials = "ieee"
        if slip == "fnuz_is_fn" and specials == "fnuz":
            specials = "fn"
        if specials == "power" and slip not in ("powers_have_a_sign", "powers_are_floats"):
            return _power(code, exponent_bits, bias, slip)
        return _signed(code, exponent_bits, mantissa_bits, bias, specials, slip)

    return answer


def _power(code: Tensor, exponent_bits: int, bias: int, slip: str) -> Tensor:
    value = torch.exp2((code - bias).double())
    if slip == "power_zero":
        value[code == 0] = 0.0
    if slip != "power_without_nan":
        value[code == 2**exponent_bits - 1] = torch.nan
    return value.to(torch.float32 if slip == "in_float32" else torch.float64)


def _signed(code: Tensor, exponent_bits: int, mantissa_bits: int, bias: int, specials: str, slip: str) -> Tensor:
    if slip == "powers_have_a_sign" and specials == "power":
        exponent_bits -= 1
        bias //= 2
    top = 2 ** (exponent_bits + mantissa_bits)
    sign_at = 128 if slip == "sign_is_bit_7" else top
    sign, size = (code // sign_at) % 2, code % top
    if slip == "powers_are_floats" and specials == "power":
        sign, size = torch.zeros_like(code), code
    field, mantissa = size >> mantissa_bits, size % 2**mantissa_bits
    if slip == "no_hidden_one":
        digits = mantissa
    elif slip == "no_subnormals":
        digits = mantissa + 2**mantissa_bits
    elif slip == "only_zero_is_special":
        digits = torch.where(size > 0, mantissa + 2**mantissa_bits, 0)
    elif slip == "subnormals_are_zero":
        digits = torch.where(field > 0, mantissa + 2**mantissa_bits, 0)
    else:
        digits = mantissa + torch.where(field > 0, 2**mantissa_bits, 0)
    lowest = 0 if slip in ("subnormals_one_lower", "no_subnormals", "only_zero_is_special") else 1
    power = field.clamp(min=lowest) - bias - mantissa_bits
    if slip == "wraps_in_uint8":
        power = (power + mantissa_bits) % 256 - mantissa_bits
    if slip == "mantissa_as_a_whole_number":
        power = power + mantissa_bits
        digits = torch.where(field > 0, 1 + mantissa, mantissa)
    if slip == "loses_negative_zero":
        value = digits * (1 - 2 * sign) * torch.exp2(power.double())
    else:
        value = digits * torch.exp2(power.double())
        value = torch.where(sign == 1, -value, value)
    value = _with_specials(value, size, field, mantissa, exponent_bits, top, specials, slip)
    if specials == "fnuz" and slip != "fnuz_has_no_nan":
        value[code == top] = torch.nan
    return value.to(torch.float32 if slip == "in_float32" else torch.float64)


def _with_specials(
    value: Tensor,
    size: Tensor,
    field: Tensor,
    mantissa: Tensor,
    exponent_bits: int,
    top: int,
    specials: str,
    slip: str,
) -> Tensor:
    last = field == 2**exponent_bits - 1
    if specials == "ieee" and slip != "ieee_is_finite":
        infinite = torch.full_like(value, torch.inf).copysign(value)
        if slip == "one_infinity":
            infinite = infinite.abs()
        if slip == "infinity_is_nan":
            infinite = infinite * torch.nan
        value = torch.where(last, torch.where(mantissa == 0, infinite, torch.nan), value)
    if specials == "fn" and slip != "fn_has_no_nan":
        ones = size == top - 1
        if slip == "one_nan_of_two":
            ones &= ~value.signbit()
        if slip == "last_exponent_is_nan":
            ones = last
        value = torch.where(ones, torch.nan, value)
    return value
