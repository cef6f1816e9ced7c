"""The numbers of narrow formats as ticks on one axis, and the axis that the explorer of numbers shares."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from gpu_utils.errors import BadArgument, UnknownName
from gpu_utils.formats import FORMATS, Format
from gpu_utils.ui.explore.drawing import Picture, count, path, picture, small, svg, text

_LEFT, _WIDTH, _RIGHT = 84.0, 680.0, 16.0
_ROW, _NORMAL, _SUBNORMAL = 62.0, 20.0, 11.0
_LABEL = 46.0
"""Pixels that a label under the axis has for itself."""


@dataclass(frozen=True)
class Axis:
    """Where a number stands: from `low` at the pixel `left` to `high`, `wide` pixels further.

    unit  numbers within +- unit are spread evenly, and further out every doubling takes the same room; 0: all evenly;
          low > 0 and unit > 0 is a plain logarithm
    """

    low: float
    high: float
    unit: float
    left: float = _LEFT
    wide: float = _WIDTH

    def place(self, number: float) -> float:
        """
        >>> axis = Axis(-8.0, 8.0, 1.0, left=0, wide=100)
        >>> [round(axis.place(x), 1) for x in (-8, 0, 1, 8)]
        [0.0, 50.0, 65.8, 100.0]
        """
        start, end = self._bent(self.low), self._bent(self.high)
        return self.left + self.wide * (self._bent(number) - start) / (end - start)

    def holds(self, number: float) -> bool:
        return self.low <= number <= self.high

    def _bent(self, number: float) -> float:
        if not self.unit:
            return number
        if self.low > 0:
            return math.log2(number)
        return math.copysign(math.log2(1 + abs(number) / self.unit), number)

    def labels(self) -> list[tuple[float, str]]:
        """Numbers for the scale under the axis: powers of two, or steps of 1, 2 or 5 times a power of ten."""
        if not self.unit:
            return [(number, f"{number:g}") for number in self._steps()]
        top = max(abs(self.low), abs(self.high))
        lowest = self.low if self.low > 0 else self.unit
        first, last_power = math.ceil(math.log2(lowest)), math.floor(math.log2(top))
        room = self.wide / (last_power - first + 1) / (2 if self.low < 0 < self.high else 1)
        step = next((step for step in (1, 2, 3, 4, 5, 8, 10) if step * room >= _LABEL), 16)
        powers = [power for power in range(first, last_power + 1) if power % step == 0]
        near = [0.0] if self.holds(0.0) else []
        for sign in (1.0, -1.0):
            last = self.place(0.0) if self.holds(0.0) else math.inf
            for power in powers:
                number = sign * 2.0**power
                if self.holds(number) and abs(self.place(number) - last) >= _LABEL:
                    near.append(number)
                    last = self.place(number)
        return [(number, power_of_two(number)) for number in sorted(near)]

    def _steps(self) -> Iterable[float]:
        least = (self.high - self.low) * _LABEL * 1.6 / self.wide
        decade = 10.0 ** math.floor(math.log10(least))
        step = next(step for step in (decade, 2 * decade, 5 * decade, 10 * decade) if step >= least)
        return [step * n for n in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)]


def power_of_two(number: float) -> str:
    """A power of two, or 0, as a label.

    >>> power_of_two(-0.25), power_of_two(64.0), power_of_two(1.0), power_of_two(0.0)
    ('-2^-2', '2^6', '1', '0')
    """
    if abs(number) in (0.0, 1.0):
        return f"{number:g}"
    return f"{'-' if number < 0 else ''}2^{math.frexp(abs(number))[1] - 1}"


def plain(number: float) -> str:
    """A number in the fewest digits that say it exactly, up to 13; else a power of two as such, others in six digits.

    >>> plain(0.1015625), plain(7 * 2.0**-17), plain(2.0**-100), plain(1 / 3), plain(float("nan"))
    ('0.1015625', '5.340576171875e-05', '2^-100', '0.333333', 'NaN')
    """
    if math.isnan(number):
        return "NaN"
    digits = f"{number:.13g}"
    if float(digits) == number:
        return digits
    return power_of_two(number) if abs(math.frexp(number)[0]) == 0.5 else f"{number:.6g}"


def numbers_of(number_format: Format, axis: Axis) -> np.ndarray:
    """The different finite numbers of a format on an axis, rising: float64 (n,)."""
    values = number_format.values[np.isfinite(number_format.values)]
    return np.unique(values[(values >= axis.low) & (values <= axis.high)] + 0.0)  # -0 becomes 0


def ticks(number_format: Format, axis: Axis, y: float) -> list[str]:
    """The axis at height y with a tick for each number; those of subnormals are shorter and in colour."""
    numbers = numbers_of(number_format, axis)
    normal = (np.abs(numbers) >= number_format.smallest_normal) | (numbers == 0)
    ends = [(axis.left, y), (axis.left + axis.wide, y)]
    parts = [path(ends)]
    for kind, chosen, high in (("line", numbers[normal], _NORMAL), ("hue", numbers[~normal], _SUBNORMAL)):
        marks = "".join(f"M{axis.place(x):.1f} {y:.0f}v-{high:g}" for x in chosen.tolist())
        if marks:
            parts.append(f'<path class="{kind}" stroke-width="1" d="{marks}"/>')
    return parts


def scale_under(axis: Axis, y: float) -> list[str]:
    """The labels of an axis, whose feet are at y."""
    parts = []
    for number, label in axis.labels():
        x = axis.place(number)
        parts += [path([(x, y - 12), (x, y - 16)]), text(x, y, label, size=10, at="middle")]
    return parts


def number_line(*formats: str, low: float, high: float, log: bool = True) -> Picture:
    """Formats below each other on one axis, with a tick for each number that they have there.

    formats    names of FORMATS
    low, high  ends of the axis; log: every doubling takes the same room (0 < low), else every step does

    Errors: UnknownName for a format; BadArgument for no format, ends that are no axis, or an axis without a number.

    >>> number_line("e2m1", low=0, high=6, log=False)
    From 0 to 6. e2m1: 8 numbers, 0, 0.5, ..., 4, 6; subnormal: 1; smallest above zero 0.5, smallest normal 1, \
largest 6.
    """
    for name in formats:
        if name not in FORMATS:
            raise UnknownName("number format", name, FORMATS)
    if not formats or not -math.inf < low < high < math.inf or (log and low <= 0):
        raise BadArgument(
            f"{len(formats)} formats from {low:g} to {high:g} cannot be drawn; expected one format at least, and ends "
            "that rise, above 0 on a logarithmic axis"
        )
    axis = Axis(low, high, 1.0 if log else 0.0)
    parts, said, y = [], [f"From {plain(low)} to {plain(high)}."], 0.0
    for name in formats:
        number_format = FORMATS[name]
        if not len(numbers_of(number_format, axis)):
            raise BadArgument(
                f"{name} has no number from {low:g} to {high:g}; its largest is {number_format.largest:g}"
            )
        parts += [
            text(0, y + 38, name, bold=True),
            *ticks(number_format, axis, y + 40),
            *_ends(number_format, axis, y + 40),
        ]
        said.append(f"{name}: {_words(number_format, axis)}.")
        y += _ROW
    parts += scale_under(axis, y + 12)
    words = " ".join(said)
    under = small("A tick is a number of the format; a short tick in colour is a subnormal one.")
    return picture("", words, svg(_LEFT + _WIDTH + _RIGHT, y + 18, parts, words), after=under, spoken=False)


def _ends(number_format: Format, axis: Axis, y: float) -> list[str]:
    """Marks of the smallest number, the smallest normal one and the largest, as far as they are on the axis."""
    named = {number_format.smallest: "smallest", number_format.largest: "largest"}
    named.setdefault(number_format.smallest_normal, "normal from")
    parts, free = [], -math.inf
    for number, what in sorted(named.items()):
        if not axis.holds(number):
            continue
        label = f"{what} {short(number)}"
        x, wide = axis.place(number), 5.4 * len(label)
        fits_left = x - wide > max(free, 0.0) and what != "normal from"
        start = x + 4 - wide if fits_left else max(x - 4, free)
        start = min(start, axis.left + axis.wide + _RIGHT - wide)
        parts.append(path([(x, y + 4), (x, y - _NORMAL - 5)], "edge"))
        if free <= start < x + _LABEL:
            parts.append(text(start, y - _NORMAL - 8, label, size=10))
            free = start + wide + 8
    return parts


def short(number: float) -> str:
    """A number as a label: a power of two that is small or large as such.

    >>> short(2.0**-9), short(448.0), short(57344.0)
    ('2^-9', '448', '57344')
    """
    power = math.frexp(number)[0] == 0.5
    return power_of_two(number) if power and not 0.25 <= number <= 1024 else plain(number)


def _words(number_format: Format, axis: Axis) -> str:
    numbers = numbers_of(number_format, axis)
    some = [plain(x) for x in numbers.tolist()]
    if len(some) > 4:
        some = [*some[:2], "...", *some[-2:]]
    below = int(((np.abs(numbers) < number_format.smallest_normal) & (numbers != 0)).sum())
    return (
        f"{count(len(numbers), 'number')}, {', '.join(some)}; subnormal: {below}; smallest above zero "
        f"{short(number_format.smallest)}, smallest normal {short(number_format.smallest_normal)}, largest "
        f"{short(number_format.largest)}"
    )
