"""Heat maps of a matrix and of what a number format loses of it, one for each way to scale it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_utils.errors import BadArgument
from gpu_utils.ui.explore.drawing import Picture, box, percent, picture, small, svg, text

_WIDTH, _GAP, _ACROSS, _HEAD = 780.0, 18.0, 3, 34.0
_LOW, _HIGH = 84.0, 150.0
_ROWS, _COLUMNS = 24, 48
"""Most cells of a map: with six maps of noise the figure stays below 200 kB."""

_LEVELS = 7


@dataclass(frozen=True)
class _Shades:
    """_LEVELS shades that end at 2**top, each `doublings` powers of two wide; what is below them has the lowest.

    >>> [_Shades(1, 1).level(x) for x in (1.0, 0.5, 0.0)], _Shades(1, 1).end(5), _Shades(1, 2).level(0.5)
    ([6, 5, 0], 1.0, 6)
    """

    top: int
    doublings: int

    def level(self, value: float) -> int:
        return max(_LEVELS - 1 - (self.top - math.frexp(value)[1]) // self.doublings, 0) if value else 0

    def end(self, level: int) -> float:
        return 2.0 ** (self.top - self.doublings * (_LEVELS - 1 - level))


def error_figure(matrix: Any, errors: Mapping[str, Any]) -> Picture:
    """A map of a matrix's magnitudes and, on one scale for all, a map of the relative errors of each way to scale it.

    matrix  (rows, columns), numbers: a tensor of any type, an array
    errors  name -> (rows, columns), |rounded - x| / |x| of each element; NaN where there is none, as x is 0

    A cell of a map stands for a patch of the matrix: its largest magnitude, or the mean of its errors. Each shade
    is four times the one before, as outliers are far from the rest; in the maps of errors it is twice.
    Errors: BadArgument for no errors, other shapes, numbers that are infinite or, as an error, below 0.

    >>> error_figure([[1.0, 64.0], [1.0, 2.0]], {"per tensor": [[0.5, 0.0], [1.0, float("nan")]]})
    2 x 2 numbers, |x| up to 64 (column 1), half of them below 1.5. per tensor: mean error 50%, largest in column 0 \
(75%); lost whole: 33.3% of the elements.
    """
    x = np.abs(_array(matrix))
    found = {name: _array(error) for name, error in errors.items()}
    _refuse(x, found)
    maps = {name: _cells(error, np.nanmean) for name, error in found.items()}
    of_x, of_errors = _Shades(_top(x), 2), _Shades(max(map(_top, maps.values())), 1)
    said = [
        f"{x.shape[0]} x {x.shape[1]} numbers, |x| up to {_number(x.max())} (column {x.max(axis=0).argmax()}), "
        f"half of them below {np.median(x):.2g}.",
        *(f"{name}: {_verdict(error)}." for name, error in found.items()),
    ]
    panels = [("the matrix, |x|", f"up to {_number(x.max())}", _cells(x, np.max), of_x)]
    for name, cells in maps.items():
        mean, lost = percent(float(np.nanmean(found[name]))), percent(_lost(found[name]))
        panels.append((name, f"mean {mean}, lost whole {lost}", cells, of_errors))
    wide = (_WIDTH - _GAP * (_ACROSS - 1)) / _ACROSS
    high = min(_HIGH, max(wide * x.shape[0] / x.shape[1], _LOW))
    parts = []
    for at, (title, below, cells, shades) in enumerate(panels):
        left, y = 1 + at % _ACROSS * (wide + _GAP), at // _ACROSS * (high + _HEAD + 6)
        parts += [text(left, y + 13, title, bold=True), text(left, y + 28, below, size=11)]
        parts += _map(cells, shades, left, y + _HEAD, wide, high)
    y = -(-len(panels) // _ACROSS) * (high + _HEAD + 6) + 6
    parts += _legend("|x|", of_x, 0, y, _number)
    parts += _legend("error", of_errors, _WIDTH / 2, y, percent)
    words = " ".join(said)
    under = small(
        "Columns of the matrix run to the right. Each cell is the largest |x|, or the mean error, of its patch. Lost "
        "whole: as much error as there was number, as where it became 0."
    )
    return picture("", words, svg(_WIDTH + 2, y + 40, parts, words), after=under, spoken=False)


def _array(values: Any) -> np.ndarray:
    """float64; NumPy knows neither the narrow types of torch nor its gradients."""
    return np.asarray(values.detach().double().cpu() if hasattr(values, "detach") else values, np.float64)


def _refuse(x: np.ndarray, errors: Mapping[str, np.ndarray]) -> None:
    if not errors or x.ndim != 2 or not x.size or not np.isfinite(x).all():
        raise BadArgument(
            f"a matrix of shape {x.shape} with {len(errors)} maps of errors cannot be drawn; expected rows and columns "
            "of finite numbers, and one map at least"
        )
    for name, error in errors.items():
        if error.shape != x.shape:
            raise BadArgument(f"the errors {name!r} have the shape {error.shape}; expected {x.shape}, as the matrix")
        if np.isinf(error).any() or (error < 0).any() or np.isnan(error).all():
            raise BadArgument(
                f"the errors {name!r} hold inf, a number below 0 or only NaN; expected |rounded - x| / |x|"
            )


def _lost(error: np.ndarray) -> float:
    """The share of elements whose error is as large as they were."""
    return float((error >= 1).sum() / (~np.isnan(error)).sum())


def _verdict(error: np.ndarray) -> str:
    valid = ~np.isnan(error)
    columns = np.where(valid, error, 0).sum(axis=0) / np.maximum(valid.sum(axis=0), 1)
    worst = int(columns.argmax())
    return (
        f"mean error {percent(float(np.nanmean(error)))}, largest in column {worst} "
        f"({percent(float(columns[worst]))}); lost whole: {percent(_lost(error))} of the elements"
    )


def _cells(values: np.ndarray, taken: Callable[[np.ndarray], Any]) -> np.ndarray:
    """The values of patches, at most _ROWS x _COLUMNS; NaN where a patch has nothing but NaN."""
    rows, columns = (
        np.linspace(0, size, min(size, most) + 1).astype(int)
        for size, most in zip(values.shape, (_ROWS, _COLUMNS), strict=True)
    )
    found = np.full((len(rows) - 1, len(columns) - 1), np.nan)
    for down, along in np.ndindex(*found.shape):
        patch = values[rows[down] : rows[down + 1], columns[along] : columns[along + 1]]
        if not np.isnan(patch).all():
            found[down, along] = taken(patch)
    return found


def _top(values: np.ndarray) -> int:
    """The power of two above the largest value."""
    most = float(np.nanmax(values))
    return math.frexp(most)[1] if most else 0


def _number(value: float) -> str:
    """
    >>> _number(16384.0), _number(0.25)
    ('16,384', '0.25')
    """
    return f"{value:,.0f}" if 100 <= value < 1e6 else f"{value:.3g}"


def _shade(level: int) -> str:
    return f"{0.04 + 0.96 * level / (_LEVELS - 1):.2f}"


def _map(cells: np.ndarray, shades: _Shades, left: float, y: float, wide: float, high: float) -> list[str]:
    """A frame with a path for each shade; neighbours of a row that are alike are one rectangle."""
    marks: dict[int, list[str]] = {level: [] for level in range(_LEVELS)}
    for down, row in enumerate(cells):
        levels = [None if math.isnan(value) else shades.level(value) for value in row.tolist()]
        start = 0
        for end in range(1, len(levels) + 1):
            if end == len(levels) or levels[end] != levels[start]:
                level = levels[start]
                if level is not None:
                    marks[level].append(f"M{start} {down}h{end - start}v1H{start}z")
                start = end
    drawn = [
        f'<path class="mark" fill-opacity="{_shade(level)}" d="{"".join(found)}"/>'
        for level, found in marks.items()
        if found
    ]
    x_scale, y_scale = wide / cells.shape[1], high / cells.shape[0]
    move = f'transform="translate({left:.1f} {y:.1f}) scale({x_scale:.4f} {y_scale:.4f})"'
    return [f'<g {move} shape-rendering="crispEdges">{"".join(drawn)}</g>', box(left, y, wide, high)]


def _legend(what: str, shades: _Shades, left: float, y: float, written: Callable[[float], str]) -> list[str]:
    """A box for each shade with the number that it ends at."""
    parts, wide = [text(left, y + 12, what)], 44.0
    for level in range(_LEVELS):
        x = left + 40 + level * wide
        parts.append(f'<g fill-opacity="{_shade(level)}">{box(x, y, wide, 14, "mark")}</g>')
        end = written(shades.end(level))
        parts.append(text(x + wide, y + 27, f"< {end}" if level == 0 else end, size=10, at="middle"))
    return [*parts, box(left + 40, y, wide * _LEVELS, 14)]
