"""Plans of on-chip memory: a panel for each memory, bytes upward, the steps of a round to the right."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any

from gpu_utils.analytic.memory_plan import STEPS, Memories, Placed, attention_buffers, placed
from gpu_utils.chips import TARGETS
from gpu_utils.errors import BadArgument
from gpu_utils.ui.explore.drawing import Picture, box, count, picture, small, svg, text

_WIDTH, _HIGH, _NEXT, _STEP = 306.0, 96.0, 326.0, 128.0
_LEAST = 9.0
"""Height of a box, in pixels, from which on its name has room."""


def plan_figure(plans: Mapping[str, Mapping[str, Any] | None], d: int = 128) -> Picture:
    """Plans of attention, machines beside each other, as the last line of a cell.

    plans  machine -> {"tile": ..., "offsets": ...} as 14.memory_plan returns it, or None where nothing fits
    d      length of the vectors, as the plans were made for

    A box spans the steps in which a copy is live and the bytes that it has; each memory fills its panel, whatever its
    size. Where two boxes cover each other, the plan is wrong. Raises UnknownName for a machine, BadArgument where a
    plan lacks a buffer.

    >>> plan_figure({"gfx942": None})
    gfx942: no tile fits.
    """
    parts, words, sources, tall = [], [], [], 0.0
    for at, (machine, plan) in enumerate(plans.items()):
        memories, buffers = attention_buffers(machine, d)
        vendor = TARGETS[machine].vendor if machine in TARGETS else ""
        if plan is None:
            words.append(f"{machine}: no tile fits.")
            parts.append(text(at * _NEXT, 12, words[-1], bold=True))
            continue
        missing = [one["name"] for one in buffers if one["name"] not in plan["offsets"]]
        if missing:
            raise BadArgument(f"the plan of {machine} has no offset for {missing}; expected one for each copy of each")
        tile = plan["tile"]
        title = f"{machine}: {tile['queries']} x {tile['keys']}, {count(tile['stages'], 'stage')}"
        drawn, lines = _machine(memories, placed(memories, buffers, tile, plan["offsets"]), machine, at * _NEXT)
        parts.append(f'<g class="{vendor}">{text(at * _NEXT, 12, title, bold=True)}{"".join(drawn)}</g>')
        words.append(f"{title}. {'. '.join(lines)}.")
        sources.append(f"{machine}: {'; '.join(f'{n} {what}' for n, what in enumerate(STEPS[machine]))}.")
        tall = max(tall, len(memories) * _STEP)
    said = " ".join(words)
    drawing = svg(_NEXT * len(plans), tall + 22, parts, said)
    return picture("", said, drawing, after=small(" ".join(["Steps from left to right.", *sources])), spoken=False)


def _machine(memories: Memories, found: list[Placed], machine: str, x: float) -> tuple[list[str], list[str]]:
    """The panels of one machine below each other, and a line of words for each."""
    parts, words = [], []
    for at, (name, memory) in enumerate(memories.items()):
        own = [one for one in found if one.memory == name]
        used = max((one.offset + one.bytes for one in own), default=0)
        each = f", in each of {memory['parts']}" if memory["parts"] > 1 else ""
        words.append(f"{name}: {used / 1024:g} of {memory['bytes'] / 1024:g} KiB{each}")
        y = 20 + at * _STEP
        parts += [text(x, y + 12, words[-1], size=11), *_panel(own, memory["bytes"], len(STEPS[machine]), x, y + 17)]
    return parts, words


def _panel(own: list[Placed], room: int, steps: int, left: float, y: float) -> list[str]:
    wide, scale = _WIDTH / steps, _HIGH / room
    parts = [box(left, y, _WIDTH, _HIGH, "room")]
    for one in own:
        x, across = left + one.first * wide, (one.last - one.first + 1) * wide
        parts.append(box(x + 1, y + _HIGH - (one.offset + one.bytes) * scale, across - 2, one.bytes * scale, "even"))
    for name, some in groupby(sorted(own, key=lambda one: (one.offset, one.name)), key=lambda one: one.name):
        copies = list(some)
        first, last = copies[0], copies[-1]
        high, across = (last.offset + last.bytes - first.offset) * scale, (first.last - first.first + 1) * wide
        label = name if len(copies) == 1 else f"{name}, {len(copies)} copies"
        if high >= _LEAST and len(label) * 5.5 < across:
            middle = left + first.first * wide + across / 2
            parts.append(
                text(middle, y + _HIGH - first.offset * scale - high / 2 + 4, label, at="middle", size=min(11.0, high))
            )
    return parts
