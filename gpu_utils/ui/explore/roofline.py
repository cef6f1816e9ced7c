"""The roofline of any chips of the registry, with the learner's kernels as points."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import ipywidgets as widgets

from gpu_utils.analytic.roofline import Point, Roofline, roofline
from gpu_utils.chips import CHIPS
from gpu_utils.errors import UnknownFigure
from gpu_utils.ui.explore.drawing import Picture, box, path, picture, small, spot, status, svg, table, text
from gpu_utils.ui.explore.widget import Explorer, choice

FORMATS = {
    "bf16": "bf16",
    "fp8": "fp8",
    "tf32": "tf32 (NVIDIA)",
    "xf32": "xf32 (AMD)",
    "fp32_matrix": "fp32, matrix units (AMD)",
    "fp32": "fp32, vector units",
}
_DASHES = ("", "9 4", "3 3", "12 4 3 4", "6 2", "1 3", "15 5")
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 720.0, 400.0, 46.0, 162.0, 24.0, 40.0


def draw(chips: Sequence[str], dtype: str, points: Sequence[Point] = ()) -> Picture:
    """FLOP/s against FLOP per byte, both logarithmic, with a line for each chip that has both figures.

    chips   names of the registry; dtype: a number format of FORMATS
    points  kernels, numbered: one with a time stands at what it reached, one without stands on the axis below what
            each chip would allow

    Errors: UnknownName for a chip or a format.
    """
    roofs, missing = [], []
    for name in chips:
        try:
            roofs.append(roofline(name, dtype))
        except UnknownFigure:
            missing.append(f"{name} has no line: {reason(name, dtype)}")
    words = [f"{roof.name}: {si(roof.peak)}FLOP/s from {roof.ridge:.0f} FLOP per byte on." for roof in roofs]
    words += [f"On {roof.name} {_bounds(points, roof)}." for roof in roofs if points]
    words += [f"{point.name} reached {si(point.achieved)}FLOP/s." for point in points if point.achieved]
    sources = [
        f"{r.name}: peak {si(r.peak)}FLOP/s ({r.sources[0]}), {si(r.bandwidth)}B/s ({r.sources[1]})" for r in roofs
    ]
    lacking = [f"{words}." for words in missing]
    said = " ".join([*words, *lacking]) or "No chip is chosen."
    shown = bool(roofs and points)  # the table says it all
    return picture(
        "",
        said,
        plot(roofs, points, f"Roofline for {dtype}"),
        _points_table(points, roofs) if points else "",
        status(said, unseen=True) if shown else "",
        after="".join(small(line) for line in [*(lacking if shown else []), *sources]),
        spoken=not shown,
    )


def plot(roofs: Sequence[Roofline], points: Sequence[Point], words: str, ran_on: Sequence[str] = ()) -> str:
    """The drawing alone: SVG with a line for each chip and a mark for each point.

    words   for those who do not see it
    ran_on  the chip of each point, where that is known: what others allow is then left out of the point's words
    """
    of_point: list[Sequence[Roofline]] = [[roof for roof in roofs if roof.name == name] for name in ran_on]
    of_point = of_point or [roofs] * len(points)
    return svg(_WIDTH, _HEIGHT, _lines(roofs, points, of_point), words, least=460, role="group")


def reason(name: str, dtype: str) -> str:
    """Why a chip has no roofline for a format; "" when it has one."""
    peak, bandwidth = CHIPS[name].peak_figure(dtype), CHIPS[name].bandwidth_tb
    lacks = [
        f"{what} {figure.note}" for what, figure in (("peak:", peak), ("bandwidth:", bandwidth)) if figure.value is None
    ]
    return ", ".join(lacks)


def _bounds(points: Sequence[Point], roof: Roofline) -> str:
    """Which kernels memory bounds and which compute."""
    named = [(roof.bound(point.intensity), f"{number} {point.name}") for number, point in enumerate(points, 1)]
    found = {bound: [name for its, name in named if its == bound] for bound in ("memory", "compute")}
    return "; ".join(f"{bound} bounds {', '.join(names)}" for bound, names in found.items() if names)


def _plain(intensity: float) -> str:
    return f"{intensity:,.0f}" if intensity >= 100 else f"{intensity:.3g}"


def _limit(point: Point, roof: Roofline) -> str:
    share = roof.fraction(point)
    reached = "" if share is None else f" ({share:.0%} reached)"
    return f"on {roof.name} {roof.bound(point.intensity)} allows {si(roof.attainable(point.intensity))}FLOP/s{reached}"


def _points_table(points: Sequence[Point], roofs: Sequence[Roofline]) -> str:
    rows = []
    for number, point in enumerate(points, 1):
        cells: list[object] = [
            number,
            point.name,
            _plain(point.intensity),
            si(point.achieved) + "FLOP/s" if point.achieved else "-",
        ]
        for roof in roofs:
            share = roof.fraction(point)
            reached = "" if share is None else f", {share:.0%} reached"
            cells.append(f"{roof.bound(point.intensity)}: {si(roof.attainable(point.intensity))}FLOP/s{reached}")
        rows.append(cells)
    return table(("", "kernel", "FLOP per byte", "measured", *(f"most on {roof.name}" for roof in roofs)), rows)


@dataclass(frozen=True)
class _Axes:
    """Powers of ten at the edges: of FLOP per byte (low, high) and of FLOP/s (bottom, top)."""

    low: int
    high: int
    bottom: int
    top: int

    def at(self, intensity: float, rate: float) -> tuple[float, float]:
        x = (math.log10(intensity) - self.low) / (self.high - self.low)
        y = (math.log10(rate) - self.bottom) / (self.top - self.bottom)
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * x, _TOP + (_HEIGHT - _TOP - _BOTTOM) * (1 - y)


def _axes(roofs: Sequence[Roofline], points: Sequence[Point]) -> _Axes:
    every = [point.intensity for point in points]
    low = math.floor(math.log10(min([0.1, *every])))
    high = math.ceil(math.log10(max([1000.0, *every, *(2 * roof.ridge for roof in roofs)])))
    reached = [point.achieved for point in points if point.achieved]
    least = min([*(roof.attainable(10.0**low) for roof in roofs), *reached], default=1e11)
    most = max([*(roof.peak for roof in roofs), *reached], default=1e15)
    room = any(point.achieved is None for point in points)  # a decade for what stands on the axis
    return _Axes(low, high, math.floor(math.log10(least)) - room, math.ceil(math.log10(most * 1.05)))


def _lines(roofs: Sequence[Roofline], points: Sequence[Point], of_point: Sequence[Sequence[Roofline]]) -> list[str]:
    """The grid, a line for each chip with its name at the right edge, and the marks that can be focused."""
    of_point = [its for point, its in zip(points, of_point, strict=True) if point.flops]
    points = [point for point in points if point.flops]  # without FLOP there is no place on a logarithmic axis
    axes = _axes(roofs, points)
    floor, right = 10.0**axes.bottom, axes.at(10.0**axes.high, 1)[0]
    drawn = [box(_LEFT, _TOP, right - _LEFT, _HEIGHT - _TOP - _BOTTOM)]
    for power in range(axes.low, axes.high + 1):
        x, y = axes.at(10.0**power, floor)
        drawn += [path([(x, y), (x, _TOP)], "grid"), text(x, y + 16, f"{10.0**power:g}", at="middle")]
    for power in range(axes.bottom, axes.top + 1):
        y = axes.at(1, 10.0**power)[1]
        drawn += [path([(_LEFT, y), (right, y)], "grid"), text(_LEFT - 6, y + 4, si(10.0**power).strip(), at="end")]
    drawn.append(text((_LEFT + right) / 2, _HEIGHT - 6, "FLOP per byte", at="middle", size=13))
    drawn.append(text(4, 14, "FLOP/s", size=13))
    labels = _apart([axes.at(1, roof.peak)[1] for roof in roofs], 17.0)
    spots = []
    for number, (roof, label) in enumerate(zip(roofs, labels, strict=True)):
        corners = [axes.at(x, roof.attainable(x)) for x in (10.0**axes.low, roof.ridge, 10.0**axes.high)]
        dashes, end = _DASHES[number % len(_DASHES)], right + 14
        rings = "".join(_circle("mark", *axes.at(p.intensity, roof.attainable(p.intensity)), 3) for p in points)
        drawn.append(
            f'<g class="{_vendor(roof)}">{path(corners, "hue", dashes)}{rings}'
            f"{path([corners[2], (end, label)])}{path([(end + 2, label), (end + 30, label)], 'hue', dashes)}"
            f"{text(end + 34, label + 4, roof.name.removeprefix('Instinct ').removeprefix('Radeon '))}</g>"
        )
        x, y = corners[1]
        rates = f"{si(roof.peak)}FLOP/s, {si(roof.bandwidth)}B/s"
        said = (roof.name, rates, f"ridge at {roof.ridge:.0f} FLOP per byte")
        spots.append(f'<g class="{_vendor(roof)}">{spot(x, y, _circle("mark", x, y, 6), said, _WIDTH)}</g>')
    for number, (point, its, (x, y)) in enumerate(zip(points, of_point, _places(points, axes), strict=True), 1):
        most = max([roof.attainable(point.intensity) for roof in roofs], default=floor)
        drawn.append(path([axes.at(point.intensity, floor), axes.at(point.intensity, most)], dashes="2 4"))
        mark = _circle("done" if point.achieved else "ring", x, y, 8.5) + text(x, y + 4, number, size=11, at="middle")
        title = f"{number} {point.name}: {_plain(point.intensity)} FLOP per byte"
        reached = [f"reached {si(point.achieved)}FLOP/s"] if point.achieved else []
        spots.append(spot(x, y, mark, (title, *reached, *(_limit(point, roof) for roof in its)), _WIDTH))
    return [*drawn, *spots]


def _places(points: Sequence[Point], axes: _Axes) -> list[tuple[float, float]]:
    """Where each point stands: at what it reached or, without a time, on the axis, on top of those already there."""
    placed: list[tuple[float, float]] = []
    for point in points:
        x, y = axes.at(point.intensity, point.achieved or 10.0**axes.bottom)
        if not point.achieved:
            y -= 11
            while any(abs(x - other) < 18 and abs(y - height) < 17 for other, height in placed):
                y -= 18
        placed.append((x, y))
    return placed


def _circle(kind: str, x: float, y: float, radius: float) -> str:
    return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}"/>'


def _vendor(roof: Roofline) -> str:
    return next((chip.vendor for chip in CHIPS.values() if chip.name == roof.name), "both")


def _apart(wanted: Sequence[float], least: float) -> list[float]:
    """Heights near the wanted ones that are at least so far apart.

    >>> _apart([10.0, 12.0, 50.0], 8.0)
    [10.0, 18.0, 50.0]
    """
    placed = list(wanted)
    before = -math.inf
    for index in sorted(range(len(placed)), key=lambda at: placed[at]):
        placed[index] = before = max(placed[index], before + least)
    return placed


def si(value: float) -> str:
    """A number in three digits with a prefix, ready for its unit.

    >>> si(989.4e12), si(3.35e12), si(1307.4e12)
    ('989 T', '3.35 T', '1.31 P')
    """
    power = min(max(int(math.log10(value) // 3), 0), 5) if value > 0 else 0
    return f"{value / 1000**power:.3g} {('', 'k', 'M', 'G', 'T', 'P')[power]}"


def explorer(chips: Sequence[str] = ("H100", "MI300X"), points: Sequence[Point] = (), dtype: str = "bf16") -> Any:
    """Check boxes for the chips of the registry, and the number format. One without a figure is grey, with the reason.

    chips   names of the registry that are on at first; points: kernels (gpu_utils.analytic.roofline.Point)
    dtype   one of FORMATS

    Errors: UnknownName for a chip or a format.
    """
    for name in chips:
        CHIPS[name].peak_figure(dtype)
    boxes = {
        name: widgets.Checkbox(value=name in chips, description=name, indent=False, layout=widgets.Layout(width="auto"))
        for name in CHIPS
    }
    formats = choice("number format", [(words, name) for name, words in FORMATS.items()], dtype)

    def grey(_: object = None) -> None:
        for name, shown in boxes.items():
            why = reason(name, formats.value)
            shown.disabled, shown.tooltip = bool(why), why
            shown.description = f"{name} ({why})" if why else name

    formats.observe(grey, names="value")
    grey()
    return Explorer(partial(_chosen, tuple(points)), {"dtype": formats, **boxes})


def _chosen(points: Sequence[Point], dtype: str, **on: bool) -> Picture:
    return draw([name for name, shown in on.items() if shown], dtype, points)
