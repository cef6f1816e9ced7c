"""Which elements of a matrix share a scale: blocks of a granularity, drawn to scale."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from gpu_utils.errors import BadArgument, UnknownName
from gpu_utils.formats import BLOCK_FORMATS
from gpu_utils.ui.explore.drawing import Picture, box, count, heading, picture, small, svg, text


@dataclass(frozen=True)
class Granularity:
    """What shares one scale: a block of so many rows and columns (None: all), and the bits that its scale takes."""

    rows: int | None
    columns: int | None
    scale_bits: int


_MX = BLOCK_FORMATS["MXFP8"]

GRANULARITIES = {
    "per tensor": Granularity(None, None, 32),
    "per row": Granularity(1, None, 32),
    "1 x 128": Granularity(1, 128, 32),
    "128 x 128": Granularity(128, 128, 32),
    "MX, 1 x 32": Granularity(1, _MX.block, _MX.scale.bits),
}
"""A row is a token of activations, an output of a weight. Scales are fp32, but e8m0 in the formats of MX."""

_SOURCE = (
    "Tiles of 1 x 128 and blocks of 128 x 128: DeepSeek-V3 (arXiv 2412.19437). 32 elements and a scale of 8 bits, "
    f"e8m0: {_MX.source}. The other scales are counted as fp32."
)
_LEFT, _WIDTH, _GAP, _HEAD = 1.0, 778.0, 24.0, 18.0
_FLAT, _ROW_HIGH, _MOST_HIGH = 16, 11.0, 260.0
_FINE = 6.0
"""Blocks that would be drawn thinner than this (pixels) are not told apart in that direction."""


def scale_figure(shapes: Mapping[str, tuple[int, int]], *granularities: str) -> Picture:
    """For each matrix its blocks, one drawing for each granularity; a block is what shares one scale.

    shapes         name of a matrix -> (rows, columns), with what is summed over (K) along the columns
    granularities  names of GRANULARITIES; none: all

    Neighbouring blocks differ in colour, and the first one has a frame. A matrix of few rows is drawn with tall rows.
    Errors: BadArgument for no matrix or an empty one; UnknownName for a granularity.

    >>> scale_figure({"x": (4, 512)}, "per row", "1 x 128")
    x, 4 rows of 512. per row: 4 scales, one for 512 elements. 1 x 128: 16 scales, one for 128 elements.
    """
    if not shapes or min(size for shape in shapes.values() for size in shape) < 1:
        raise BadArgument(f"{dict(shapes)} has no matrix to draw; expected a name and (rows, columns), from 1 on")
    chosen = granularities or tuple(GRANULARITIES)
    for name in chosen:
        if name not in GRANULARITIES:
            raise UnknownName("granularity", name, GRANULARITIES)
    parts, said = [], []
    for name, (rows, columns) in shapes.items():
        size = f"{count(rows, 'row')} of {columns:,}"
        words = " ".join(_words(each, GRANULARITIES[each], rows, columns) for each in chosen)
        said.append(f"{name}, {size}. {words}")
        parts += [heading(f"{name}: {size}"), _drawing(chosen, rows, columns, said[-1])]
    legend = (
        "Light and dark: neighbouring blocks; rows that are too thin to tell apart are drawn as one strip. In the "
        "frame: the first block, which shares one scale. A row is a token of activations or an output of a weight. "
        "The bits are those of all scales, divided among the elements."
    )
    return picture("", " ".join(said), *parts, after=small(legend) + small(_SOURCE), spoken=False)


def _blocks(of: Granularity, rows: int, columns: int) -> tuple[int, int, int, int]:
    """Rows and columns of a block, and how many blocks there are down and along."""
    high, wide = min(of.rows or rows, rows), min(of.columns or columns, columns)
    return high, wide, -(-rows // high), -(-columns // wide)


def _words(name: str, of: Granularity, rows: int, columns: int) -> str:
    high, wide, down, along = _blocks(of, rows, columns)
    return f"{name}: {count(down * along, 'scale')}, one for {count(high * wide, 'element')}."


def _drawing(chosen: tuple[str, ...], rows: int, columns: int, words: str) -> str:
    """The granularities below each other, two beside each other where the matrix is not flat."""
    flat = rows <= _FLAT
    each = _WIDTH if flat else (_WIDTH - _GAP) / 2
    x_scale = min(each / columns, math.inf if flat else _MOST_HIGH / rows)
    y_scale = max(_ROW_HIGH, x_scale) if flat else x_scale
    step = rows * y_scale + _HEAD + 14
    drawn = []
    for number, name in enumerate(chosen):
        x, y = (_LEFT, number * step) if flat else (_LEFT + number % 2 * (each + _GAP), number // 2 * step)
        drawn += _panel(name, rows, columns, x, y, x_scale, y_scale)
    lines = len(chosen) if flat else -(-len(chosen) // 2)
    return svg(_WIDTH + 2 * _LEFT, lines * step, drawn, words)


def _panel(name: str, rows: int, columns: int, left: float, top: float, x_scale: float, y_scale: float) -> list[str]:
    of = GRANULARITIES[name]
    high, wide, down, along = _blocks(of, rows, columns)
    more = of.scale_bits * down * along / (rows * columns)
    fine_down, fine_along = high * y_scale < _FINE < rows * y_scale, wide * x_scale < _FINE < columns * x_scale
    told = ", each row its own" if fine_down else ""
    title = f"{count(down * along, 'scale')}{told}; +{more:.2g} bits an element"
    top += _HEAD
    parts = [text(left, top - 6, f"{name}:", bold=True), text(left + 80, top - 6, title, size=11)]
    row_edges = [0, rows] if fine_down else [*range(0, rows, high), rows]
    column_edges = [0, columns] if fine_along else [*range(0, columns, wide), columns]
    cells: dict[str, list[str]] = {"even": [], "odd": []}
    for at, (y, y_end) in enumerate(pairwise(row_edges)):
        for along_at, (x, x_end) in enumerate(pairwise(column_edges)):
            kind = ("odd", "even")[(at + along_at) % 2]
            w, h = (x_end - x) * x_scale, (y_end - y) * y_scale
            cells[kind].append(f"M{left + x * x_scale:.1f} {top + y * y_scale:.1f}h{w:.1f}v{h:.1f}h{-w:.1f}z")
    parts += [f'<path class="{kind}" d="{"".join(marks)}"/>' for kind, marks in cells.items() if marks]
    return [*parts, box(left, top, wide * x_scale, high * y_scale, "edge")]
