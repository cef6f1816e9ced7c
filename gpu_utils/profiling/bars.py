"""The timeline of a report: bars of every stream and host thread, few enough for a page.

Bars that would be too small to see even far zoomed in are merged with their neighbours, and counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpu_utils.profiling.profile import ON_GPU, Event, Profile
from gpu_utils.profiling.words import gpu

MOST = 20_000
"""Bars of a page: a browser draws and scrolls so many at once, and the file stays below a few MB."""

ROWS = {"gpu": 4, "host": 6}
"""Rows of one lane: what is nested more deeply is left out, and counted."""

LANES = 40
"""Lanes of a page: those with the most events; the events of the others are counted as hidden."""

COLOURS = 8
"""Kernels with a colour of their own, by their time; the others share one."""


@dataclass
class Timeline:
    """What the page draws.

    data    for the page's script: span (ns), names, notes, lanes (label, device or None for a host, rows, bars); a bar
            is [start, ns, row, name, colour, how many, note], its start counted from `start`
    start   ns: the earliest of all
    merged  events that became part of another bar; smallest: ns below which bars were merged
    hidden  events that are not drawn: nested too deeply, or in a lane beyond the last
    """

    data: dict[str, Any]
    start: int
    merged: int
    smallest: int
    hidden: int


def timeline(profile: Profile, order: Sequence[str], most: int = MOST) -> Timeline | None:
    """Bars of all events that have times; None where none has. order: names of kernels by their time."""
    lanes: dict[tuple[int, str, str], list[Event]] = defaultdict(list)
    for event in profile.events:
        if event.start is not None and event.end is not None and event.end >= event.start:
            lanes[_lane(profile, event)].append(event)
    if not lanes:
        return None
    start = min(event.start for events in lanes.values() for event in events if event.start is not None)
    end = max(event.end for events in lanes.values() for event in events if event.end is not None)
    ranks = {name: rank for rank, name in enumerate(order[:COLOURS])}
    words = _Words()
    hidden = 0
    drawn: list[dict[str, Any]] = []
    kept = sorted(lanes, key=lambda key: -len(lanes[key]))[:LANES]
    hidden += sum(len(events) for key, events in lanes.items() if key not in kept)
    for key in sorted(kept):
        side, _, label = key
        rows, lost = _rows(lanes[key], ROWS["host" if side else "gpu"])
        hidden += lost
        bars = [
            [
                (event.start or 0) - start,
                event.duration or 0,
                row,
                words.name(event.name),
                _colour(event, ranks),
                1,
                words.note(_note(event)),
            ]
            for row, event in rows
        ]
        deepest = max(row for row, _ in rows)
        device = None if side else lanes[key][0].device
        drawn.append({"label": label, "device": device, "rows": 1 + deepest, "bars": bars})
    total = sum(len(lane["bars"]) for lane in drawn)
    smallest = 0
    while sum(len(lane["bars"]) for lane in drawn) > most:
        smallest = 2 * smallest or max(1, (end - start) // 4_000_000)
        for lane in drawn:
            lane["bars"] = _merged(lane["bars"], smallest)
    left = sum(len(lane["bars"]) for lane in drawn)
    data = {"span": end - start, "names": words.names, "notes": words.notes, "lanes": drawn}
    return Timeline(data, start, total - left, smallest, hidden)


class _Words:
    """Every text once; a bar holds its number."""

    def __init__(self) -> None:
        self._name: dict[str, int] = {}
        self._note: dict[str, int] = {}

    def name(self, text: str) -> int:
        return self._name.setdefault(text, len(self._name))

    def note(self, text: str) -> int:
        return self._note.setdefault(text, len(self._note))

    @property
    def names(self) -> list[str]:
        return list(self._name)

    @property
    def notes(self) -> list[str]:
        return list(self._note)


def _lane(profile: Profile, event: Event) -> tuple[int, str, str]:
    """(0 for a GPU and 1 for the host, what sorts, what people read)."""
    where = event.lane or "no stream named"
    process = f"process {event.process}" if event.process is not None else ""
    if event.kind in ON_GPU:
        device = gpu(event.device)
        return 0, f"{event.device}/{_padded(where)}", f"{device}, {where}"
    label = ", ".join(part for part in (process, where) if part)
    return 1, f"{process}/{_padded(where)}", f"host, {label}"


def _padded(lane: str) -> str:
    """Lanes in the order of their numbers: stream 7 before stream 20."""
    head, _, number = lane.rpartition(" ")
    return f"{head} {int(number):020d}" if number.isdigit() else lane


def _rows(events: Sequence[Event], most: int) -> tuple[list[tuple[int, Event]], int]:
    """(row, event): what starts inside another lies one row below; and how many would lie too deep."""
    ordered = sorted(events, key=lambda event: (event.start or 0, -(event.end or 0)))
    ends: list[int] = []
    placed, lost = [], 0
    for event in ordered:
        while ends and ends[-1] <= (event.start or 0):
            ends.pop()
        if len(ends) < most:
            placed.append((len(ends), event))
        else:
            lost += 1
        ends.append(event.end or 0)
    return placed, lost


def _colour(event: Event, ranks: dict[str, int]) -> str:
    if event.kind != "kernel":
        return event.kind
    return f"k{ranks[event.name]}" if event.name in ranks else "k"


def _note(event: Event) -> str:
    parts = [event.kind]
    if not event.figures:
        return event.kind
    for name in ("grid", "block"):
        if isinstance(value := event.value(name), (tuple, list)):
            parts.append(f"{name} {' x '.join(map(str, value))}")
    for name in ("bytes", "direction"):
        if (value := event.value(name)) is not None:
            parts.append(f"{value:,} bytes" if name == "bytes" and isinstance(value, int) else str(value))
    return ", ".join(parts)


def _merged(bars: list[list[Any]], smallest: int) -> list[list[Any]]:
    """Neighbours of one row, each shorter than `smallest` and nearer than that, as one bar that knows their number."""
    rows: dict[int, list[list[Any]]] = defaultdict(list)
    for bar in bars:
        row = rows[bar[2]]
        last = row[-1] if row else None
        if last and _small(bar, smallest) and _small(last, smallest) and bar[0] - last[0] - last[1] < smallest:
            last[1] = max(last[1], bar[0] + bar[1] - last[0])
            last[5] += bar[5]
            if last[4] != bar[4]:
                last[4] = "mixed"
        else:
            row.append(list(bar))
    return sorted((bar for row in rows.values() for bar in row), key=lambda bar: bar[0])


def _small(bar: list[Any], smallest: int) -> bool:
    return bar[1] < smallest or (bar[5] > 1 and bar[1] < 4 * smallest)
