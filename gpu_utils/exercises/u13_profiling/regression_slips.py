"""What made a program slower, by rules, each of which can be wrong. Plain Python: it runs wherever an answer runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
Rows = Sequence[Row]
Groups = Mapping[str, Rows]

NOISE = 0.03
"""Of the span of `before`: a smaller loss is none."""
CLOCK, TOGETHER = 1.05, 1.04
"""All launches slower by CLOCK at least, and the largest factor at most TOGETHER times the smallest: the clock."""
MORE = 1.1
"""A figure has risen, or fallen, where it changed by this factor."""


def base(name: str) -> str:
    name = re.split(r"[<(\[.]", name.removeprefix("void "))[0].strip()
    return re.sub(r"_\d+$", "", name)


def as_it_stands(name: str) -> str:
    return name


def without_arguments(name: str) -> str:
    """Templates and arguments are off, numbers behind the name are not."""
    return re.split(r"[<(\[.]", name.removeprefix("void "))[0].strip()


def by_letters(name: str) -> str:
    """Letters of "void " are taken off in front, not the word."""
    return base(name.lstrip("void "))


def grouped(rows: Rows, key: Callable[[str], str]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(key(row["name"]), []).append(row)
    return found


def time(rows: Rows) -> int:
    return sum(row["duration"] for row in rows)


def mean_time(rows: Rows) -> float:
    return time(rows) / len(rows)


def span(rows: Rows) -> int:
    return max(row["start"] + row["duration"] for row in rows) - min(row["start"] for row in rows)


def idle(rows: Rows) -> int:
    return span(rows) - time(rows)


def first_to_last(rows: Rows) -> int:
    """The span as if rows were in the order of time."""
    return rows[-1]["start"] + rows[-1]["duration"] - rows[0]["start"] - time(rows)


def no_idle(rows: Rows) -> int:
    return 0


def mean(rows: Rows, column: str) -> float | None:
    values = [row[column] for row in rows]
    return None if None in values else sum(values) / len(values)


def total(rows: Rows, column: str) -> float | None:
    values = [row[column] for row in rows]
    return None if None in values else sum(values)


Figure = Callable[[Rows, str], float | None]


def rose(old: Rows, new: Rows, column: str, figure: Figure = mean) -> bool:
    was, now = figure(old, column), figure(new, column)
    return was is not None and now is not None and now > MORE * was


def why(old: Rows, new: Rows) -> str:
    """What explains that a kernel takes longer."""
    if len(new) > len(old):
        return "calls"
    if rose(old, new, "memory_bytes"):
        return "bytes"
    return "occupancy" if _less_resident(old, new) else "unknown"


def _less_resident(old: Rows, new: Rows) -> bool:
    was, now = mean(old, "occupancy"), mean(new, "occupancy")
    if was is None or now is None:
        return rose(old, new, "registers") or rose(old, new, "shared_bytes")
    return rose(new, old, "occupancy")


def why_by_sums(old: Rows, new: Rows) -> str:
    """Bytes of all launches together: with more calls they rise too."""
    return "bytes" if rose(old, new, "memory_bytes", total) else why(old, new)


def why_by_registers(old: Rows, new: Rows) -> str:
    """Registers and shared memory are asked, whatever the occupancy was."""
    found = why(old, new)
    if found in ("calls", "bytes"):
        return found
    return "occupancy" if rose(old, new, "registers") or rose(old, new, "shared_bytes") else "unknown"


def why_without_launch(old: Rows, new: Rows) -> str:
    """Where occupancy is unknown, nothing is looked at instead."""
    return "unknown" if new[0]["occupancy"] is None and why(old, new) == "occupancy" else why(old, new)


def why_registers_only(old: Rows, new: Rows) -> str:
    """Where occupancy is unknown, shared memory is not looked at."""
    found = why(old, new)
    if found == "occupancy" and new[0]["occupancy"] is None and not rose(old, new, "registers"):
        return "unknown"
    return found


def why_always_occupancy(old: Rows, new: Rows) -> str:
    """What is neither calls nor bytes must be occupancy."""
    found = why(old, new)
    return "occupancy" if found == "unknown" else found


def why_calls_last(old: Rows, new: Rows) -> str:
    """Calls are never counted."""
    return why(old, new[: len(old)])


def by_loss(lost: Mapping[str, int], old: Groups, new: Groups) -> str:
    return max(lost, key=lambda name: lost[name])


def by_percent(lost: Mapping[str, int], old: Groups, new: Groups) -> str:
    return max(lost, key=lambda name: time(new[name]) / max(1, time(old[name])))


def by_time(lost: Mapping[str, int], old: Groups, new: Groups) -> str:
    """The kernel that takes most time afterwards."""
    return max(lost, key=lambda name: time(new[name]))


def by_launch(lost: Mapping[str, int], old: Groups, new: Groups) -> str:
    """The kernel whose single launch became longer by most."""
    return max(lost, key=lambda name: mean_time(new[name]) - mean_time(old[name]))


def answer(
    key: Callable[[str], str] = base,
    new_too: bool = False,
    noise: float = NOISE,
    clock: bool = True,
    waiting: Callable[[Rows], int] = idle,
    worst: Callable[[Mapping[str, int], Groups, Groups], str] = by_loss,
    cause: Callable[[Rows, Rows], str] = why,
    lost_of: Callable[[Rows, Rows, Rows, Rows], float] | None = None,
    idle_first: bool = False,
) -> Callable[..., dict[str, Any]]:
    """An answer with these rules.

    new_too     a name of `after` alone is a kernel that was called more often
    waiting     idle time of a profile;  worst: which kernel;  cause: why it is slower
    lost_of     (rows of the kernel before and after, all rows before and after) -> what is told of a kernel
    idle_first  idle that grew by more than noise is the cause, whatever else was lost
    """

    def regression(before: Rows, after: Rows) -> dict[str, Any]:
        old, new = grouped(before, key), grouped(after, key)
        both = [name for name in old if name in new]
        ratios = [mean_time(new[name]) / mean_time(old[name]) for name in both]
        if clock and ratios and min(ratios) >= CLOCK and max(ratios) <= TOGETHER * min(ratios):
            return {"cause": "clock", "kernel": None, "lost": time(after) - time(before)}
        lost = {name: time(new[name]) - time(old[name]) for name in both}
        if new_too:
            lost |= {name: time(new[name]) for name in new if name not in old}
            old = {name: old.get(name, []) for name in lost}
        waited = waiting(after) - waiting(before)
        kernel = worst(lost, old, new) if lost else None
        most = lost[kernel] if kernel else 0
        if max(waited, most) < noise * span(before):
            return {"cause": "none", "kernel": None, "lost": 0}
        if waited > most or (idle_first and waited >= noise * span(before)) or kernel is None:
            return {"cause": "idle", "kernel": None, "lost": waited}
        told = lost_of(old[kernel], new[kernel], before, after) if lost_of else most
        return {"cause": cause(old[kernel], new[kernel]), "kernel": kernel, "lost": told}

    return regression
