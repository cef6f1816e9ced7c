"""One memory instruction of a warp and a wavefront: the segments that its lanes touch, or the banks that they hit."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import ipywidgets as widgets

from gpu_utils.analytic.access import SHAPES, Address, BankAccess, Coalescing, bank_conflicts, coalescing
from gpu_utils.analytic.expression import addresses
from gpu_utils.chips import TARGETS
from gpu_utils.chips.caches import L2_OF_TARGET
from gpu_utils.errors import UnknownName
from gpu_utils.ui.explore.drawing import (
    Picture,
    beside,
    box,
    count,
    heading,
    path,
    picture,
    small,
    svg,
    targets_of,
    text,
    wave,
)
from gpu_utils.ui.explore.widget import Explorer, choice, in_a_row, slider, typed

MEMORIES = {
    "global": "global memory",
    "shared": "shared memory (LDS), a read",
    "shared_write": "shared memory (LDS), a write",
}
EXAMPLES = (
    "lane",
    "lane + 1",
    "lane * 2",
    "lane * 32",
    "lane * 33",
    "31 - lane if lane < 32 else lane",
    "lane ^ 5",
    "lane // 4",
    "(lane % 8) * 32 + lane // 8",
    "lane if lane % 2 == 0 else None",
)
_COLUMNS = 32
_CELL = 14.5
_LEFT = 8.0
_PASS = 42.0
_MOST_ROWS = 32


def draw(expression: str, element_bytes: int, memory: str, amd: str) -> Picture:
    """A warp of NVIDIA beside a wave of an AMD target, for `tensor[expression]`.

    element_bytes  bytes of one element, which is what a lane accesses; element 0 begins at a segment
    memory         of MEMORIES; amd: the AMD target

    Errors: BadArgument for an expression that cannot be read or gives a negative index.
    """
    return beside(*(_side(target, expression, element_bytes, memory) for target in ("sm_80", amd)))


def _side(target: str, expression: str, element_bytes: int, memory: str) -> Picture:
    limits, shape = TARGETS[target], SHAPES[target]
    wanted = addresses(expression, limits.lanes, element_bytes)
    title = f"{target}: a {wave(limits.vendor)} of {limits.lanes} lanes"
    if memory == "global":
        found = coalescing(wanted, element_bytes, shape.sector)
        line = L2_OF_TARGET[target].l1_line
        source = f"Size of a segment: {line if line.value else f'{shape.sector} bytes assumed, no source confirms it'}."
        drawing = svg(
            _LEFT * 2 + _COLUMNS * _CELL, *_segments(found, wanted, element_bytes), _segment_words(found), least=400
        )
        return picture(
            limits.vendor,
            _segment_words(found),
            heading(f"{title}, segments of {shape.sector} bytes"),
            drawing,
            after=small(source),
        )
    way = "write" if memory == "shared_write" else "read"
    taken = bank_conflicts(wanted, access_bytes=element_bytes, target=target, access=way)
    banks = taken.served.banks
    width = _LEFT + _PASS + banks * _CELL
    note = f"; {taken.served.note.rstrip('.')}" if taken.served.note else ""
    return picture(
        limits.vendor,
        _bank_words(taken),
        heading(f"{title}, {banks} banks of 4 bytes"),
        svg(width, *_banks(taken), _bank_words(taken), least=width * 0.78),
        after=small(
            "A row is one pass; the number is the lane served, + where others want the same word. Banks and phases: "
            f"{taken.served.source}{note}."
        ),
    )


# Global memory


def _segment_words(found: Coalescing) -> str:
    if not found.transactions:
        return "No lane is active: nothing is moved."
    verdict = "as few as can be" if found.transactions == found.least else f"{found.least} would do side by side"
    return (
        f"{count(found.transactions, 'segment')} of {found.segment} bytes, {verdict}. {found.moved:,} bytes are moved "
        f"for {found.used:,} that the lanes ask for: {found.efficiency:.0%} of them are used."
    )


def _segments(found: Coalescing, wanted: Sequence[Address], size: int) -> tuple[float, list[str]]:
    """Lanes above and (from lane 32 on) below, the segments between them, a line from each lane to what it touches."""
    rows = [found.lanes[at : at + _COLUMNS] for at in range(0, len(found.lanes), _COLUMNS)]
    each = min(_COLUMNS * _CELL / max(found.transactions, 1), 58.0)
    start = _LEFT + (_COLUMNS * _CELL - each * found.transactions) / 2
    place = {number: start + each * (at + 0.5) for at, number in enumerate(found.segments)}
    digits = len(str(found.segments[-1])) if found.segments else 1
    top, height = 120.0, 30.0
    lines, boxes = [], []
    for row, lanes in enumerate(rows):
        y, edge, end = (16.0, 31.0, top) if row == 0 else (240.0, 240.0, top + height)
        for at, touched in enumerate(lanes):
            x, lane = _LEFT + at * _CELL, row * _COLUMNS + at
            boxes.append(box(x, y, _CELL - 1.5, 15, ("even", "odd")[touched[0] % 2] if touched else "empty"))
            boxes.append(text(x + _CELL / 2 - 0.7, y + 11, lane, size=9, at="middle"))
            lines += [path([(x + _CELL / 2 - 0.7, edge), (place[number], end)]) for number in touched]
    for number, x in place.items():
        share = _share(number, found.segment, wanted, size)
        boxes += [
            box(x - each / 2 + 0.7, top, each - 1.4, height, "room"),
            box(
                x - each / 2 + 0.7, top + height * (1 - share), each - 1.4, height * share, ("even", "odd")[number % 2]
            ),
        ]
        if each > 6 * digits + 2:
            boxes.append(text(x, top + 19, number, size=9, at="middle"))
    caption = "lanes"
    if found.transactions:
        caption = f"lanes, and segments {found.segments[0]} to {found.segments[-1]}, filled as far as they are used"
    boxes.append(text(_LEFT, 10, caption, size=11))
    return (262.0 if len(rows) > 1 else top + height + 6), [*lines, *boxes]


def _share(number: int, segment: int, wanted: Sequence[Address], size: int) -> float:
    """The part of a segment's bytes that lanes ask for."""
    mine = {byte for at in wanted if at is not None for byte in range(at, at + size) if byte // segment == number}
    return len(mine) / segment


# Shared memory


def _bank_words(found: BankAccess) -> str:
    if not found.cycles:
        return "No lane is active: nothing is moved."
    groups = f" ({found.together} lanes go together, {_first(found)} first)" if found.least > 1 else ""
    verdict = "no conflict" if not found.conflicts else f"{count(found.conflicts, 'pass')} lost to bank conflicts"
    return f"{count(found.cycles, 'pass')} through the banks, {found.least} would do{groups}: {verdict}."


def _first(found: BankAccess) -> str:
    """The lanes of the first phase: "0-3 and 20-23"."""
    return found.served.said.partition(";")[0]


def schedule(found: BankAccess) -> dict[tuple[int, int], list[int]]:
    """(pass, bank) -> lanes that are served there; lanes that want the same word share a pass."""
    served: dict[tuple[int, int], list[int]] = {}
    start = 0
    for phase in found.served.phases:
        queues: dict[int, list[int]] = {}
        for lane in phase:
            for word, bank in zip(found.lanes[lane].words, found.lanes[lane].banks, strict=True):
                queue = queues.setdefault(bank, [])
                if word not in queue:
                    queue.append(word)
                served.setdefault((start + queue.index(word), bank), []).append(lane)
        start += max(map(len, queues.values()), default=0)
    return served


def _banks(found: BankAccess) -> tuple[float, list[str]]:
    """A grid of passes and banks with the lane that each cell serves; rows above the least are the conflicts."""
    served, banks = schedule(found), found.served.banks
    rows = min(found.cycles, _MOST_ROWS)
    left = _LEFT + _PASS
    drawn = [text(_LEFT, 12, "bank", size=10)]
    drawn += [text(left + (bank + 0.5) * _CELL, 12, bank, size=9, at="middle") for bank in range(banks)]
    end = left + banks * _CELL
    below = 18 + rows * 16
    drawn += [path([(left, 18 + row * 16), (end, 18 + row * 16)], "grid") for row in range(rows + 1)]
    drawn += [path([(left + bank * _CELL, 18), (left + bank * _CELL, below)], "grid") for bank in range(banks + 1)]
    drawn += [text(_LEFT, 30 + row * 16, f"pass {row}", size=9) for row in range(rows)]
    for (row, bank), lanes in served.items():
        if row < rows:
            x, y = left + bank * _CELL, 18 + row * 16
            label = str(lanes[0]) if len(lanes) == 1 else f"{lanes[0]}+"
            drawn.append(box(x, y, _CELL, 16, ("even", "odd")[found.lanes[lanes[0]].group % 2]))
            drawn.append(text(x + _CELL / 2, y + 12, label, size=9 if len(label) < 3 else 7, at="middle"))
    if found.cycles > rows:
        drawn.append(text(left, below + 14, f"... and {found.cycles - rows} more passes", size=11))
        below += 18
    return below + 4, drawn


def explorer(expression: str = "lane", *, memory: str = "global", element_bytes: int = 4, amd: str = "gfx942") -> Any:
    """An index expression in `lane`, to type or to choose, and a slider for the stride, which writes the expression.

    memory         "global" (segments), "shared" (banks, of a read) or "shared_write" (of a write)
    element_bytes  1, 2, 4, 8 or 16; amd: the AMD target to compare with

    Errors: BadArgument for an expression that cannot be read; UnknownName for a memory, a size or a target.
    """
    if memory not in MEMORIES:
        raise UnknownName("memory", memory, MEMORIES)
    where = widgets.ToggleButtons(options=[(words, name) for name, words in MEMORIES.items()], value=memory)
    where.style.button_width = "auto"
    stride = slider("stride", _stride(expression) or 0, 0, 64)
    controls = {
        "expression": typed("index of a lane", expression, EXAMPLES),
        "element_bytes": choice("bytes a lane", (1, 2, 4, 8, 16), element_bytes),
        "memory": where,
        "amd": choice("AMD target", targets_of("amd"), amd),
    }
    found = Explorer(draw, controls)

    def write(change: Any) -> None:
        if _stride(controls["expression"].value) != change["new"]:
            controls["expression"].value = f"lane * {change['new']}"

    def read(change: Any) -> None:
        typed_stride = _stride(change["new"])
        if typed_stride is not None:
            stride.value = typed_stride

    stride.observe(write, names="value")
    controls["expression"].observe(read, names="value")
    found.children = (in_a_row([stride]), *found.children)
    return found


def _stride(expression: str) -> int | None:
    """The stride of an expression that is nothing but one.

    >>> _stride("lane"), _stride("lane * 33"), _stride("lane + 1")
    (1, 33, None)
    """
    found = re.fullmatch(r"\s*lane(?:\s*\*\s*(\d{1,2}))?\s*", expression)
    return int(found[1] or 1) if found and int(found[1] or 1) <= 64 else None
