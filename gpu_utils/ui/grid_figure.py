"""Tiles of matrices as grids with a label in each tile: who computes it, who owns it, whether it is skipped."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from gpu_utils.errors import BadArgument
from gpu_utils.ui.explore.drawing import Picture, beside, box, heading, picture, svg, text

_WIDE, _HIGH = 56.0, 26.0

Grid = Sequence[Sequence[str]]
"""Rows of labels, as many in each; "" is a tile that nobody touches."""


def grid_figure(grids: Mapping[str, Grid], marked: Collection[str] = ()) -> Picture:
    """Grids side by side, each under its title.

    grids   title -> rows of labels
    marked  labels whose tiles are drawn in the strong colour

    Errors: BadArgument for no grid, an empty one, or rows of unlike length.

    >>> grid_figure({"two waves": [["0", "0"], ["1", "1"]]})
    two waves: 0, 0 / 1, 1
    """
    if not grids:
        raise BadArgument("no grid was given; expected a dict of titles and rows of labels")
    return beside(*(_one(title, grid, marked) for title, grid in grids.items()))


def _one(title: str, grid: Grid, marked: Collection[str]) -> Picture:
    lengths = {len(row) for row in grid}
    if len(lengths) != 1 or lengths == {0}:
        raise BadArgument(f"{title!r} has rows of {sorted(lengths)} labels; expected rows that are equally long")
    parts = []
    for down, row in enumerate(grid):
        for along, label in enumerate(row):
            kind = "now" if label in marked else "room" if label else "empty"
            x, y = along * _WIDE, down * _HIGH
            parts.append(box(x + 1, y + 1, _WIDE - 2, _HIGH - 2, kind))
            parts.append(text(x + _WIDE / 2, y + _HIGH / 2 + 4, label, at="middle"))
    words = f"{title}: " + " / ".join(", ".join(label or "-" for label in row) for row in grid)
    drawing = svg(lengths.pop() * _WIDE, len(grid) * _HIGH, parts, words)
    return picture("", words, heading(title), drawing, spoken=False)
