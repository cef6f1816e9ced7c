"""The numbers of a narrow format: where a value falls, what it becomes, its bits, and what the other vendor reads."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gpu_utils.errors import BadArgument, UnknownName
from gpu_utils.formats import FORMATS, Format
from gpu_utils.ui.explore.drawing import Picture, box, heading, path, picture, small, svg, table, text
from gpu_utils.ui.explore.stored import (
    OTHER,
    Stored,
    bits_in_words,
    code_of,
    fate,
    formula,
    other_in_words,
    read_as,
    stored,
)
from gpu_utils.ui.explore.widget import Explorer, choice, slider, typed
from gpu_utils.ui.number_figure import Axis, numbers_of, plain, scale_under, ticks

EXAMPLES = ("0.1", "1/3", "2^-10", "17", "300", "500", "-0.0", "0x01", "0x7f", "0x80")
MOST_ZOOM = 6
"""The narrowest window; it shows two steps on either side of the value, and each one before it twice as many."""

_LEFT, _WIDE, _ROW, _TOP = 84.0, 676.0, 74.0, 46.0
_BIT = 34.0


def draw(number_format: str, value: str, zoom: int, second: str) -> Picture:
    """A format's number line with the value on it, its bits, and the same byte read by the other vendor's flavour.

    number_format  a name of FORMATS; second: another one to draw below, or ""
    value          a number, or a byte such as "0x7f"
    zoom           0: the whole line, each doubling as wide as the next; 1 to MOST_ZOOM: a window, evenly spaced

    Errors: as for `stored`; UnknownName for a format.
    """
    for name in (number_format, second):
        if name and name not in FORMATS:
            raise UnknownName("number format", name, FORMATS)
    first = stored(value, FORMATS[number_format])
    shown = [first]
    if second and first.value is not None:
        shown.append(Stored(FORMATS[second], first.value, int(FORMATS[second].encode(first.value))))
    words = " ".join([*(fate(each) for each in shown), f"{bits_in_words(first)}.", other_in_words(first)]).strip()
    parts = [
        heading(f"{value.strip()} in {number_format}: code {code_of(first)}, {plain(first.result)}"),
        svg(_LEFT + _WIDE + 20, *_lines(shown, _axis(first, zoom)), " ".join(map(fate, shown)), least=520),
        svg(_LEFT + _WIDE + 20, *_bits(first), bits_in_words(first), least=520),
    ]
    if number_format in OTHER:
        head = (f"the byte {code_of(first)}, read as", "FP8 of", "value", "")
        parts.append(table(head, read_as(first), [0]))
    both = f" Both lines have the axis of {number_format}." if len(shown) > 1 else ""
    under = small(
        "A tick is a number of the format, short and in colour if subnormal; tall: the neighbours of the value; the "
        f"dot is where it goes, to nearest even, saturated.{both} Source of {number_format}: {first.of.source}."
    )
    return picture("", words, *parts, after=under)


def _axis(shown: Stored, zoom: int) -> Axis:
    """The whole line of a format, or a window around the value as near as the line has it."""
    of = shown.of
    low = -of.largest if of.signed else of.smallest
    if not zoom:
        return Axis(low, of.largest, of.smallest_normal, _LEFT, _WIDE)
    centre = min(max(shown.value or 0.0, low), of.largest)
    numbers = numbers_of(of, Axis(low, of.largest, 0.0))
    at = min(max(int(np.searchsorted(numbers, centre, side="right")) - 1, 0), len(numbers) - 2)
    half = float(numbers[at + 1] - numbers[at]) * 2 ** (MOST_ZOOM + 1 - zoom)
    return Axis(centre - half, centre + half, 0.0, _LEFT, _WIDE)


def _lines(rows: list[Stored], axis: Axis) -> tuple[float, list[str]]:
    """Height and parts: a number line for each format, the value through all of them."""
    feet = [_TOP + 24 + number * _ROW for number in range(len(rows))]
    parts = []
    for shown, y in zip(rows, feet, strict=True):
        parts += _line(shown, axis, y)
    value = rows[0].value
    if value is not None:
        inside = axis.holds(value)
        x = axis.place(min(max(value, axis.low), axis.high))
        label = plain(value) if inside else f"{plain(value)} →" if value > axis.high else f"← {plain(value)}"
        wide = 3.4 * len(label)
        parts.append(text(min(max(x, wide), _LEFT + _WIDE + 20 - wide), 13, label, bold=True, at="middle"))
        if inside:
            parts += [path([(x, 18 if y == feet[0] else y - 36), (x, y)], "edge", "3 3") for y in feet]
    return feet[-1] + 54, parts


def _line(shown: Stored, axis: Axis, y: float) -> list[str]:
    """One format's line at height y: ticks, labels under it, the neighbours, and where the value goes."""
    parts = [text(0, y, shown.of.name, bold=True), *ticks(shown.of, axis, y), *_labels(shown.of, axis, y)]
    if shown.value is None:
        return parts
    lower, upper = shown.of.neighbours(shown.value)
    for neighbour in {lower, upper}:
        if axis.holds(neighbour):
            x = axis.place(neighbour)
            parts.append(path([(x, y + 3), (x, y - 26)], "edge"))
    if axis.holds(shown.result):
        x = axis.place(shown.result)
        parts.append(f'<circle class="mark" cx="{x:.1f}" cy="{y:.1f}" r="5"/>')
        if axis.holds(shown.value):
            parts.append(path([(axis.place(shown.value), y), (x, y)], "hue"))
    said = f"between {plain(lower)} and {plain(upper)}, becomes {plain(shown.result)}"
    if lower == upper:
        said = f"{plain(shown.result)}, without loss"
    elif math.isinf(lower) or math.isinf(upper):
        said = f"becomes {plain(shown.result)}"
    wide = 3.2 * len(said)
    middle = axis.place(min(max(shown.value, axis.low), axis.high))
    parts.append(text(min(max(middle, wide), _LEFT + _WIDE + 20 - wide), y + 33, said, size=11, at="middle"))
    return parts


def _labels(of: Format, axis: Axis, y: float) -> list[str]:
    """Under the line: its numbers where they are few enough for words, else the scale of the axis."""
    numbers = numbers_of(of, axis).tolist()
    if axis.unit or not numbers or len(numbers) > 12:
        return scale_under(axis, y + 17)
    parts, free = [], -math.inf
    for number in numbers:
        label = plain(number)
        wide = 2.9 * len(label)
        x = min(axis.place(number), _LEFT + _WIDE + 20 - wide)
        if x - wide > free:
            parts.append(text(x, y + 17, label, size=10, at="middle"))
            free = x + wide + 4
    return parts


def _bits(shown: Stored) -> tuple[float, list[str]]:
    """Height and parts: a box for each bit, the fields named under them, the formula beside them."""
    of = shown.of
    digits = f"{shown.code:0{of.bits}b}"
    kinds = "s" * of.signed + "e" * of.exponent_bits + "m" * of.mantissa_bits
    parts = []
    for at, (digit, kind) in enumerate(zip(digits, kinds, strict=True)):
        x = at * _BIT
        parts.append(box(x + 1, 6, _BIT - 2, 28, {"s": "room", "e": "even", "m": "odd"}[kind]))
        parts.append(text(x + _BIT / 2, 25, digit, size=14, at="middle", bold=True))
    fields = zip("sem", ("sign", "exponent", "mantissa"), of.fields(shown.code), strict=True)
    for kind, name, field in fields:
        if wide := kinds.count(kind):
            x = (kinds.index(kind) + wide / 2) * _BIT
            parts += [text(x, 48, name if wide > 1 or kind == "s" else "mant.", size=11, at="middle")]
            parts.append(text(x, 62, f"{kind} = {field}", size=11, at="middle"))
    rule, filled = formula(shown)
    left = of.bits * _BIT + 24
    return 68, [*parts, text(left, 20, rule, size=13), text(left, 42, filled, size=13, bold=True)]


def explorer(number_format: str = "e4m3fn", *, value: str = "0.1", zoom: int = 0, second: str = "") -> Any:
    """A format, a value or a byte to type, a slider that zooms in on it, and a second format to compare with.

    number_format  a name of gpu_utils.formats.FORMATS, such as "e4m3fn"; second: another, or "" for none
    value          a number such as "0.1", "1/3", "2^-10", "nan", or a byte such as "0x7f"
    zoom           0 (the whole line) to 6 (the nearest numbers)

    Errors: UnknownName for a format; BadArgument for words that are no number, or a zoom outside 0 to 6.
    """
    if not 0 <= zoom <= MOST_ZOOM:
        raise BadArgument(f"zoom is {zoom}; expected 0 (the whole line) to {MOST_ZOOM} (the nearest numbers)")
    controls = {
        "number_format": choice("number format", list(FORMATS), number_format),
        "value": typed("value or byte", value, EXAMPLES),
        "zoom": slider("zoom", zoom, 0, MOST_ZOOM),
        "second": choice("second format", [("none", ""), *((name, name) for name in FORMATS)], second),
    }
    return Explorer(draw, controls)
