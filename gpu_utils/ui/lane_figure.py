"""Which of a row of things are on: lanes that take part, elements that reach a sum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gpu_utils.chips import TARGETS
from gpu_utils.ui.explore.drawing import Picture, box, path, picture, small, svg, text

_LEFT, _CELL, _HIGH = 150.0, 9.0, 14.0
_ROW, _HEAD = 64, 14.0
_ENDS = ((0, False), (31, True), (32, False), (63, True))
"""Lanes with a number above them: the first and the last of 32; whether it is a last one."""

_LEGEND = "Filled: yes, hollow: no. A line is the end of a warp or wavefront. The colour is only the vendor's."


def lane_figure(marks: Mapping[str, Any], what: str = "lanes") -> Picture:
    """A strip of bars for each label, filled where something is on, 64 to a row.

    marks  label -> bools or counts (n,): a list, a tensor on the CPU, an array; a target has its vendor's colour, and a
           line where a warp or wavefront ends
    what   what a bar stands for: "lanes", "elements"

    >>> lane_figure({"gfx942": [True] * 36 + [False] * 28})
    gfx942: 36 of 64 lanes (0-35).
    """
    wide = _CELL - 2
    heads = [text(_x(at) + (wide if end else 0), 10, at, size=10, at="end" if end else "start") for at, end in _ENDS]
    y, parts, said = _HEAD, ["".join(heads)], []
    for label, mark in marks.items():
        on = np.asarray(mark).astype(bool)
        lanes = TARGETS[label].lanes if label in TARGETS else _ROW
        drawn = [text(_LEFT - 10, y + 12, label, at="end")]
        for at, each in enumerate(on.tolist()):
            kind = "even" if each else "empty"
            drawn.append(box(_x(at), y + at // _ROW * (_HIGH + 2), wide, _HIGH, kind))
        bottom = y + -(-len(on) // _ROW) * (_HIGH + 2)
        ends = [_x(lane) - 1.5 for lane in range(lanes, _ROW, lanes)]
        drawn += [path([(x, y - 2), (x, bottom)], "edge") for x in ends]
        y = bottom
        drawn.append(text(_LEFT, y + 10, f"{int(on.sum())} of {len(on)} {what}", size=11))
        y += 18
        vendor = TARGETS[label].vendor if label in TARGETS else ""
        parts.append(f'<g class="{vendor}">{"".join(drawn)}</g>')
        said.append(f"{label}: {_ranges(on, what)}")
    words = "; ".join(said) + "."
    return picture("", words, svg(_LEFT + _ROW * _CELL + 4, y, parts, words), after=small(_LEGEND), spoken=False)


def _x(at: int) -> float:
    """Left edge of a bar."""
    return _LEFT + at % _ROW * _CELL


def _ranges(on: np.ndarray, what: str) -> str:
    edges = np.flatnonzero(np.diff(np.concatenate([[0], on.astype(np.int8), [0]])))
    runs = [f"{a}-{b - 1}" if b - a > 1 else str(a) for a, b in zip(edges[::2], edges[1::2], strict=True)]
    return f"{int(on.sum())} of {len(on)} {what}" + (f" ({', '.join(runs)})" if runs else "")
