"""The roofline of any chips of the registry, with the learner's kernels as points."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import ipywidgets as widgets

from gpu_utils.analytic.roofline import Point, Roofline, roofline
from gpu_utils.chips import CHIPS
from gpu_utils.errors import UnknownFigure
from gpu_utils.ui.explore.drawing import Picture, box, path, picture, small, spot, svg, table, text
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
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 720.0, 400.0, 46.0, 150.0, 24.0, 40.0


def draw(chips: Sequence[str], dtype: str, points: Sequence[Point] = ()) -> Picture:
    """FLOP/s against FLOP per byte, both logarithmic, with a line for each chip that has both figures.

    chips   names of the registry; dtype: a number format of FORMATS
    points  kernels; one with a time is a mark at what it reached, one without marks what each chip would allow

    Errors: UnknownName for a chip or a format.
    """
    roofs, missing = [], []
    for name in chips:
        try:
            roofs.append(roofline(name, dtype))
        except UnknownFigure:
            missing.append(f"{name} has no line: {reason(name, dtype)}")
    words = [f"{roof.name}: {_si(roof.peak)}FLOP/s from {roof.ridge:.0f} FLOP per byte on." for roof in roofs]
    words += [f"{point.name}: {_point_words(point, roofs)}." for point in points]
    sources = [
        f"{r.name}: peak {_si(r.peak)}FLOP/s ({r.sources[0]}), {_si(r.bandwidth)}B/s ({r.sources[1]})" for r in roofs
    ]
    said = " ".join([*words, *(f"{words}." for words in missing)]) or "No chip is chosen."
    return picture(
        "",
        said,
        svg(_WIDTH, _HEIGHT, _lines(roofs, points), f"Roofline for {dtype}", least=460, role="group"),
        _points_table(points, roofs) if points else "",
        after="".join(small(line) for line in sources),
    )


def reason(name: str, dtype: str) -> str:
    """Why a chip has no roofline for a format; "" when it has one."""
    peak, bandwidth = CHIPS[name].peak_figure(dtype), CHIPS[name].bandwidth_tb
    lacks = [
        f"{what} {figure.note}" for what, figure in (("peak:", peak), ("bandwidth:", bandwidth)) if figure.value is None
    ]
    return ", ".join(lacks)


def _point_words(point: Point, roofs: Sequence[Roofline]) -> str:
    parts = [f"{_plain(point.intensity)} FLOP per byte"]
    if point.achieved is not None:
        parts.append(f"reached {_si(point.achieved)}FLOP/s")
    for bound in ("memory", "compute"):
        names = [roof.name for roof in roofs if roof.bound(point.intensity) == bound]
        parts += [f"{bound}-bound on {' and '.join(names)}"] if names else []
    return ", ".join(parts)


def _plain(intensity: float) -> str:
    return f"{intensity:,.0f}" if intensity >= 100 else f"{intensity:.3g}"


def _limit(point: Point, roof: Roofline) -> str:
    share = roof.fraction(point)
    reached = "" if share is None else f" ({share:.0%} reached)"
    return f"on {roof.name} {roof.bound(point.intensity)} allows {_si(roof.attainable(point.intensity))}FLOP/s{reached}"


def _points_table(points: Sequence[Point], roofs: Sequence[Roofline]) -> str:
    rows = []
    for number, point in enumerate(points, 1):
        cells: list[object] = [
            number,
            point.name,
            _plain(point.intensity),
            _si(point.achieved) + "FLOP/s" if point.achieved else "-",
        ]
        for roof in roofs:
            share = roof.fraction(point)
            reached = "" if share is None else f", {share:.0%} reached"
            cells.append(f"{roof.bound(point.intensity)}: {_si(roof.attainable(point.intensity))}FLOP/s{reached}")
        rows.append(cells)
    return table(("", "kernel", "FLOP per byte", "measured", *(f"most on {roof.name}" for roof in roofs)), rows)


def _lines(roofs: Sequence[Roofline], points: Sequence[Point]) -> list[str]:
    every = [point.intensity for point in points if point.flops]
    low = math.floor(math.log10(min([0.1, *every])))
    high = math.ceil(math.log10(max([1000.0, *every, *(2 * roof.ridge for roof in roofs)])))
    rates = [*(roof.peak for roof in roofs), *(point.achieved for point in points if point.achieved)] or [1e15]
    floors = [roof.attainable(10.0**low) for roof in roofs] or [1e11]
    bottom = math.floor(math.log10(min([*floors, *(point.achieved for point in points if point.achieved)])))
    top = math.ceil(math.log10(max(rates) * 1.05))
    width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def at(intensity: float, rate: float) -> tuple[float, float]:
        x = (math.log10(intensity) - low) / (high - low)
        y = (math.log10(rate) - bottom) / (top - bottom)
        return _LEFT + width * x, _TOP + height * (1 - y)

    drawn = [box(_LEFT, _TOP, width, height)]
    for power in range(low, high + 1):
        x, y = at(10.0**power, 10.0**bottom)
        drawn += [path([(x, y), (x, _TOP)], "grid"), text(x, y + 16, f"{10.0**power:g}", at="middle")]
    for power in range(bottom, top + 1):
        x, y = at(10.0**low, 10.0**power)
        drawn += [path([(x, y), (x + width, y)], "grid"), text(x - 6, y + 4, _si(10.0**power).strip(), at="end")]
    drawn.append(text(_LEFT + width / 2, _HEIGHT - 6, "FLOP per byte", at="middle", size=13))
    drawn.append(text(4, 14, "FLOP/s", size=13))
    labels = _apart([at(1, roof.peak)[1] for roof in roofs], 17.0)
    spots = []
    for number, roof in enumerate(roofs):
        ends = [10.0**low, roof.ridge, 10.0**high]
        corners = [at(x, roof.attainable(x)) for x in ends]
        x, y = corners[1]
        edge, label = corners[2][0], labels[number]
        ridge = spot(
            x,
            y,
            f'<circle class="mark" cx="{x:.1f}" cy="{y:.1f}" r="5"/>',
            (
                roof.name,
                f"{_si(roof.peak)}FLOP/s, {_si(roof.bandwidth)}B/s",
                f"ridge at {roof.ridge:.0f} FLOP per byte",
            ),
            _WIDTH,
        )
        dashes = _DASHES[number % len(_DASHES)]
        drawn.append(
            f'<g class="{_vendor(roof)}">{path(corners, "hue", dashes)}'
            f"{path([corners[2], (edge + 14, label)])}{path([(edge + 16, label), (edge + 44, label)], 'hue', dashes)}"
            f"{text(edge + 48, label + 4, roof.name.removeprefix('Instinct ').removeprefix('Radeon '))}</g>"
        )
        spots.append(f'<g class="{_vendor(roof)}">{ridge}</g>')
    for number, point in enumerate(points, 1):
        spots += _point(number, point, roofs, at, 10.0**bottom)
    return [*drawn, *spots]


def _vendor(roof: Roofline) -> str:
    return next((chip.vendor for chip in CHIPS.values() if chip.name == roof.name), "both")


def _point(number: int, point: Point, roofs: Sequence[Roofline], at: Any, floor: float) -> Iterable[str]:
    """A numbered disc where a kernel was measured, or a numbered ring at each roof above its intensity."""
    if not point.flops:
        return
    if point.achieved is not None:
        places, kind = (
            [(point.achieved, [f"reached {_si(point.achieved)}FLOP/s", *(_limit(point, r) for r in roofs)])],
            "done",
        )
    else:
        places, kind = [(roof.attainable(point.intensity), [_limit(point, roof)]) for roof in roofs], "ring"
    highest = max([rate for rate, _ in places], default=floor)
    yield path([at(point.intensity, floor), at(point.intensity, highest)], dashes="2 4")
    for rate, words in places:
        x, y = at(point.intensity, rate)
        disc = f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="8"/>'
        mark = disc + text(x, y + 4, number, size=11, at="middle", bold=True)
        yield spot(x, y, mark, (f"{number} {point.name}: {_plain(point.intensity)} FLOP per byte", *words), _WIDTH)


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


def _si(value: float) -> str:
    """A number in three digits with a prefix, ready for its unit.

    >>> _si(989.4e12), _si(3.35e12), _si(1307.4e12)
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
