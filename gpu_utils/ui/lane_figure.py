"""Which of a row of things are on: lanes that take part, elements that reach a sum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gpu_utils.chips import TARGETS
from gpu_utils.ui.explore.drawing import Picture, box, picture, small, svg, text

_LEFT, _CELL, _HIGH = 150.0, 9.0, 14.0
_ROW = 64
_LEGEND = "Filled: yes, hollow: no. The colour is only the vendor's."


def lane_figure(marks: Mapping[str, Any], what: str = "lanes") -> Picture:
    """A strip of squares for each label, filled where something is on, 64 to a row.

    marks  label -> bools or counts (n,): a list, a tensor on the CPU, an array; targets have the colour of their vendor
    what   what a square stands for: "lanes", "elements"

    >>> lane_figure({"gfx942": [True] * 36 + [False] * 28})
    gfx942: 36 of 64 lanes (0-35).
    """
    y, parts, said = 0.0, [], []
    for label, mark in marks.items():
        on = np.asarray(mark).astype(bool)
        drawn = [text(_LEFT - 10, y + 12, label, at="end")]
        for at, each in enumerate(on.tolist()):
            x = _LEFT + (at % _ROW) * _CELL
            drawn.append(box(x, y + at // _ROW * (_HIGH + 2), _CELL - 1, _HIGH, "even" if each else "empty"))
        y += -(-len(on) // _ROW) * (_HIGH + 2)
        drawn.append(text(_LEFT, y + 10, f"{int(on.sum())} of {len(on)} {what}", size=11))
        y += 18
        vendor = TARGETS[label].vendor if label in TARGETS else ""
        parts.append(f'<g class="{vendor}">{"".join(drawn)}</g>')
        said.append(f"{label}: {_ranges(on, what)}")
    words = "; ".join(said) + "."
    return picture("", words, svg(_LEFT + _ROW * _CELL + 4, y, parts, words), after=small(_LEGEND), spoken=False)


def _ranges(on: np.ndarray, what: str) -> str:
    edges = np.flatnonzero(np.diff(np.concatenate([[0], on.astype(np.int8), [0]])))
    runs = [f"{a}-{b - 1}" if b - a > 1 else str(a) for a, b in zip(edges[::2], edges[1::2], strict=True)]
    return f"{int(on.sum())} of {len(on)} {what}" + (f" ({', '.join(runs)})" if runs else "")
