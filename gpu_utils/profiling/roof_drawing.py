"""The roofline of a report as inline SVG: both axes logarithmic, kernels as numbered points that can be focused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

from gpu_utils.analytic.roofline import Point, Roofline
from gpu_utils.profiling.words import rate, share, time

WIDTH, HEIGHT = 880, 430
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 16, 46
_WORDS = {"fp32": "fp32, vector units", "matrix": "bf16, matrix units"}


@dataclass(frozen=True)
class Spot:
    """A kernel on a roofline. number: its rank by time, from 1; roof: "fp32" or "matrix"."""

    number: int
    roof: str
    point: Point
    line: Roofline

    @property
    def achieved(self) -> float:
        return self.point.achieved or 0.0

    @property
    def part(self) -> float:
        """Of the roof above it: least time over its time."""
        return self.line.fraction(self.point) or 0.0

    @property
    def words(self) -> str:
        return (
            f"{self.number}. {self.point.name}: {self.point.intensity:.3g} FLOP per byte, {rate(self.achieved)}FLOP/s, "
            f"{share(self.part)} of the roof above it ({_WORDS[self.roof]}), {time(1e9 * (self.point.seconds or 0))}"
        )


class _Axes:
    """From FLOP per byte and FLOP/s to the drawing's units."""

    def __init__(self, roofs: Mapping[str, Roofline], spots: Sequence[Spot]) -> None:
        across = [roof.ridge for roof in roofs.values()] + [spot.point.intensity for spot in spots]
        up = [roof.peak for roof in roofs.values()] + [spot.achieved for spot in spots]
        self.left, self.right = floor(log10(min(across) / 2)), ceil(log10(max(across) * 4))
        low = min(min(up), min(roof.attainable(10.0**self.left) for roof in roofs.values()))
        self.bottom, self.top = floor(log10(low)), ceil(log10(max(up) * 1.2))

    def x(self, intensity: float) -> float:
        part = (log10(intensity) - self.left) / (self.right - self.left)
        return LEFT + part * (WIDTH - LEFT - RIGHT)

    def y(self, flops: float) -> float:
        part = (log10(flops) - self.bottom) / (self.top - self.bottom)
        return HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM)


def drawing(roofs: Mapping[str, Roofline], spots: Sequence[Spot]) -> str:
    """The SVG; roofs are not empty."""
    axes = _Axes(roofs, spots)
    parts = [*_grid(axes), *_lines(axes, roofs), *_points(axes, spots)]
    words = f"Roofline with {len(spots)} kernels; the table below has the same figures"
    return f'<svg class="roof" viewBox="0 0 {WIDTH} {HEIGHT}" role="group" aria-label="{words}">{"".join(parts)}</svg>'


def _grid(axes: _Axes) -> Iterator[str]:
    for power in range(axes.left, axes.right + 1):
        x = axes.x(10.0**power)
        yield f'<path class="grid" d="M {x:.1f} {TOP} V {HEIGHT - BOTTOM}"/>'
        yield f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{10.0**power:g}</text>'
    for power in range(axes.bottom, axes.top + 1):
        y = axes.y(10.0**power)
        yield f'<path class="grid" d="M {LEFT} {y:.1f} H {WIDTH - RIGHT}"/>'
        yield f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{rate(10.0**power)}</text>'
    middle = (LEFT + WIDTH - RIGHT) / 2
    yield f'<text x="{middle:.0f}" y="{HEIGHT - 8}" text-anchor="middle">FLOP per byte of memory traffic</text>'
    height = (TOP + HEIGHT - BOTTOM) / 2
    yield f'<text transform="translate(14 {height:.0f}) rotate(-90)" text-anchor="middle">FLOP/s</text>'


def _lines(axes: _Axes, roofs: Mapping[str, Roofline]) -> Iterator[str]:
    least, most = 10.0**axes.left, 10.0**axes.right
    for name, roof in roofs.items():
        ridge = min(max(roof.ridge, least), most)
        yield (
            f'<path class="ceiling {name}" d="M {axes.x(least):.1f} {axes.y(roof.attainable(least)):.1f} '
            f"L {axes.x(ridge):.1f} {axes.y(roof.attainable(ridge)):.1f} "
            f'L {axes.x(most):.1f} {axes.y(roof.attainable(most)):.1f}"/>'
        )
        words = f"{rate(roof.peak)}FLOP/s, {_WORDS[name]}"
        yield f'<text x="{WIDTH - RIGHT - 4}" y="{axes.y(roof.peak) - 5:.1f}" text-anchor="end">{escape(words)}</text>'
    roof = next(iter(roofs.values()))
    at = least * 10**0.25
    y = axes.y(roof.attainable(at))
    yield f'<text x="{axes.x(at):.1f}" y="{y + 22:.1f}">{rate(roof.bandwidth)}byte/s</text>'


def _points(axes: _Axes, spots: Sequence[Spot]) -> Iterator[str]:
    taken: list[tuple[float, float]] = []
    for spot in spots:
        x, y = axes.x(spot.point.intensity), axes.y(spot.achieved)
        left, top = x + 9, y + 4
        while any(abs(left - a) < 18 and abs(top - b) < 13 for a, b in taken):
            top += 13
        taken.append((left, top))
        words = escape(spot.words)
        yield (
            f'<g class="spot {spot.roof}" tabindex="0" role="img" aria-label="{words}"><title>{words}</title>'
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6"/><text x="{left:.1f}" y="{top:.1f}">{spot.number}</text></g>'
        )
