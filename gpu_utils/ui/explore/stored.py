"""A value in a narrow format, in words: what was typed, what it becomes, its bits, what the other flavour reads."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from gpu_utils.chips import TARGETS
from gpu_utils.errors import BadArgument
from gpu_utils.formats import FORMATS, Format
from gpu_utils.ui.explore.drawing import percent
from gpu_utils.ui.number_figure import plain

FLAVOURS = {"e4m3fn": "ocp", "e4m3fnuz": "fnuz", "e5m2": "ocp", "e5m2fnuz": "fnuz"}
"""Formats of one byte that a target's matrix units read -> the flavour, as `TARGETS` has it."""

OTHER = {"e4m3fn": "e4m3fnuz", "e4m3fnuz": "e4m3fn", "e5m2": "e5m2fnuz", "e5m2fnuz": "e5m2"}
"""A format -> the one that targets of the other flavour read the same bytes as."""

_LONGEST = 40
_POWER = re.compile(r"([+-]?)2\s*(?:\^|\*\*)\s*\(?\s*([+-]?\d{1,4})\s*\)?")
_FRACTION = re.compile(r"([+-]?\d{1,18})\s*/\s*(\d{1,18})")
_BYTE = re.compile(r"0[xX][0-9a-fA-F]{1,2}|0[bB][01]{1,8}")


@dataclass(frozen=True)
class Stored:
    """A value and what a format makes of it; `value` is None where a byte was typed that is no number."""

    of: Format
    value: float | None
    code: int

    @property
    def result(self) -> float:
        return float(self.of.values[self.code])


def stored(words: str, of: Format) -> Stored:
    """What was typed, in a format: a number to nearest even and saturated, or a byte as it is.

    Errors: BadArgument for other words; FormatError for a number or a byte that the format cannot have.

    >>> stored("1/3", FORMATS["e2m1"]).result, stored("0x7e", FORMATS["e4m3fn"]).value
    (0.5, 448.0)
    """
    words = words.strip()
    if _BYTE.fullmatch(words):
        code = int(words, 0)
        value = float(of.decode(code))
        return Stored(of, None if math.isnan(value) else value, code)
    number = _number(words)
    return Stored(of, None if math.isnan(number) else number, int(of.encode(number)))


def _number(words: str) -> float:
    """
    >>> _number("-2^-3"), _number("3/4"), _number("1e3")
    (-0.125, 0.75, 1000.0)
    """
    try:
        if found := _POWER.fullmatch(words):
            return (-1.0 if found[1] == "-" else 1.0) * 2.0 ** int(found[2])
        if found := _FRACTION.fullmatch(words):
            return int(found[1]) / int(found[2])
        if len(words) <= _LONGEST:
            return float(words)
    except (ValueError, OverflowError, ZeroDivisionError):
        pass
    shown = words if len(words) <= _LONGEST else f"{words[:_LONGEST]}..."
    raise BadArgument(f"`{shown}` is no number; type one such as 0.1, 1/3 or 2^-10, nan, or a byte such as 0x7f")


def code_of(shown: Stored) -> str:
    return f"0x{shown.code:02x}"


def fate(shown: Stored) -> str:
    """What becomes of the value, in a sentence."""
    of, value, result = shown.of, shown.value, shown.result
    if value is None:
        return f"NaN in {of.name} is the byte {code_of(shown)}, which is no number."
    said, becomes = plain(value), plain(result)
    if math.isinf(result):
        return f"{said} is what the byte {code_of(shown)} of {of.name} stands for: no finite number."
    if value == result:
        return f"{said} is a number of {of.name}."
    lower, upper = of.neighbours(value)
    if not of.signed and value < of.smallest:
        return f"{said} is below the smallest number of {of.name}, {becomes}, and becomes it."
    if math.isinf(lower) or math.isinf(upper):
        otherwise = plain(float(of.rounded(value, saturate=False)))
        how = "with saturation or without" if otherwise == becomes else f"saturated, and {otherwise} otherwise"
        return f"{said} is beyond the largest number of {of.name} and becomes {becomes}, {how}."
    away = abs(result - value)
    tie = ""
    if value - lower == upper - value:
        tie = ", a tie that goes to the larger" if of.specials == "power" else ", a tie that goes to the even code"
    return (
        f"{said} lies between {plain(lower)} and {plain(upper)} of {of.name} and becomes {becomes}: {away:.4g} away, "
        f"{percent(away / abs(value))} of it{tie}."
    )


def formula(shown: Stored) -> tuple[str, str]:
    """The rule for the value of a code, and the rule with this code's fields."""
    of, result = shown.of, plain(shown.result)
    sign, exponent, mantissa = of.fields(shown.code)
    steps = 1 << of.mantissa_bits
    if math.isnan(shown.result):
        special = {"fnuz": "the code that would be -0", "ieee": "exponent all ones, mantissa not 0"}
        return "no number", f"{special.get(of.specials, 'all ones')}: NaN"
    if math.isinf(shown.result):
        return "no number", f"exponent all ones, mantissa 0: {'-' if sign else ''}infinity"
    if of.specials == "power":
        return f"value = 2^(e - {of.bias})", f"2^({exponent} - {of.bias}) = {result}"
    if not exponent:
        rule = f"subnormal, e = 0: value = (-1)^s x 2^(1 - {of.bias}) x m/{steps}"
        return rule, f"(-1)^{sign} x 2^(1 - {of.bias}) x {mantissa}/{steps} = {result}"
    rule = f"value = (-1)^s x 2^(e - {of.bias}) x (1 + m/{steps})"
    return rule, f"(-1)^{sign} x 2^({exponent} - {of.bias}) x (1 + {mantissa}/{steps}) = {result}"


def bits_in_words(shown: Stored) -> str:
    sign, exponent, mantissa = shown.of.fields(shown.code)
    fields = f"sign {sign}, exponent {exponent}, mantissa {mantissa}" if shown.of.signed else f"exponent {exponent}"
    return f"Code {code_of(shown)} of {shown.of.name}: {fields}; {formula(shown)[1]}"


def other_in_words(shown: Stored) -> str:
    if shown.of.name not in OTHER:
        return ""
    other, _, value, against = read_as(shown)[1]
    return f"The same byte read as {other} is {value}{', ' + against if against else ''}."


def read_as(shown: Stored) -> list[tuple[str, str, str, str]]:
    """(format, targets, value, against the first) of the byte, for the format and the other flavour."""
    rows: list[tuple[str, str, str, str]] = []
    for name in (shown.of.name, OTHER[shown.of.name]):
        targets = ", ".join(target for target, row in TARGETS.items() if row.fp8 == FLAVOURS[name])
        value = float(FORMATS[name].values[shown.code])
        rows.append((name, targets, plain(value), _against(value, shown.result) if rows else ""))
    return rows


def _against(value: float, first: float) -> str:
    """
    >>> _against(0.5, 1.0), _against(float("nan"), -0.0), _against(-240.0, float("nan"))
    ('exactly half', '', 'a number where the first has none')
    """
    if not math.isfinite(first) and math.isfinite(value):
        return "a number where the first has none"
    if not math.isfinite(value) or not math.isfinite(first):
        return ""
    if value == first:
        return "the same"
    return "exactly half" if 2 * value == first else "exactly double"
