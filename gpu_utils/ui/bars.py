"""Bars for counters: one for each label, or one for each label and series, with the number at its end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpu_utils.chips import TARGETS
from gpu_utils.errors import BadArgument
from gpu_utils.ui.explore.drawing import Picture, picture, small, svg, text
from gpu_utils.ui.values import plain, words

_WIDTH, _LABEL, _SERIES, _NUMBER = 640.0, 150.0, 74.0, 80.0
_BAR, _STEP, _GAP = 12.0, 16.0, 8.0


def bars(values: Mapping[Any, Any], unit: str = "") -> Picture:
    """Numbers as bars, as the last line of a cell; all start at 0 and have one scale.

    values  label -> number, or label -> {series: number} for a group of bars: targets have the colour of their vendor
    unit    of all numbers: "bytes for each byte asked for"

    Raises BadArgument for a number below 0, and where there is nothing to draw.

    >>> bars({"stride 1": {"sm_80": 1, "gfx942": 1}, "stride 8": {"sm_80": 8, "gfx942": 8}}, "bytes")
    stride 1: sm_80 1, gfx942 1; stride 8: sm_80 8, gfx942 8 (bytes).
    """
    groups = {words(label): _group(value) for label, value in values.items()}
    every = [number for group in groups.values() for number in group.values()]
    if not every or min(every) < 0:
        raise BadArgument(
            f"bars were asked for {words(min(every)) if every else 'no numbers'}; expected numbers from 0 on"
        )
    said = "; ".join(f"{label}: {_words(group)}" for label, group in groups.items())
    series = any(set(group) != {""} for group in groups.values())
    start = _LABEL + (_SERIES if series else 0)
    room = (_WIDTH - start - _NUMBER) / (max(every) or 1)
    y, parts = 4.0, []
    for label, group in groups.items():
        parts.append(text(_LABEL - 10, y + 10, label, at="end"))
        for name, number in group.items():
            vendor = TARGETS[name].vendor if name in TARGETS else ""
            bar = f'<rect class="even" x="{start:.1f}" y="{y:.1f}" width="{number * room:.1f}" height="{_BAR}"/>'
            parts.append(f'<g class="{vendor}">{bar}</g>' if vendor else bar)
            parts.append(text(start - 8, y + 10, name, size=11, at="end"))
            parts.append(text(start + number * room + 6, y + 10, words(number), size=11))
            y += _STEP
        y += _GAP if series else 0
    sentence = f"{said} ({unit})." if unit else f"{said}."
    return picture("", sentence, svg(_WIDTH, y, parts, sentence), spoken=False, after=small(unit) if unit else "")


def _group(value: Any) -> dict[str, float]:
    return {str(k): plain(v) for k, v in value.items()} if isinstance(value, Mapping) else {"": plain(value)}


def _words(group: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {words(number)}".strip() for name, number in group.items())
