"""All launches of one kernel together: sums, weighted means and largest values of their figures, with the sources."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, prod
from typing import Any

from gpu_utils.profiling.profile import Event


@dataclass(frozen=True)
class Evidence:
    """A figure behind a verdict: what it is, value, unit ("" for none), where it is from."""

    what: str
    value: float
    unit: str
    source: str

    def __str__(self) -> str:
        return f"{self.what}: {amount(self.value, self.unit)} ({self.source})"


def amount(value: float, unit: str) -> str:
    """
    >>> amount(1234567, "bytes"), amount(61.38, "%"), amount(4, "")
    ('1,234,567 bytes', '61.4 %', '4')
    """
    number = f"{value:,.0f}" if abs(value) >= 1000 or float(value).is_integer() else f"{value:.3g}"
    return f"{number} {unit}".rstrip()


class Pool:
    """The launches of one kernel. Rows with a start count as calls; where none has one, all do.

    A figure that some launches lack (ncu saw only the first) is taken from those that have it.
    """

    def __init__(self, name: str, rows: Sequence[Event]) -> None:
        timed = [row for row in rows if row.start is not None]
        counted = timed or rows
        self.name = name
        self.rows = rows
        self.calls = len(counted)
        self.ns = round(sum(time_of(row) or 0 for row in counted))
        self.untimed = all(time_of(row) is None for row in counted)
        self.device = next((row.device for row in rows if row.device), "")
        self._known = {"duration"}.union(*(row.figures for row in rows))

    def sums(self, *names: str) -> dict[str, float] | None:
        """Sums of figures over the rows that have all of them; "duration" may be among them. None without such rows."""
        if not self._known.issuperset(names):
            return None
        rows = [row for row in self.rows if all(_number(_value(row, name)) is not None for name in names)]
        return {name: sum(_value(row, name) for row in rows) for name in names} if rows else None

    def mean(self, name: str) -> float | None:
        """Mean over the rows that have it, weighted by their time where all of these have one."""
        rows = [(value, time_of(row) or 0) for value, row in self._having(name)]
        if rows and all(time for _, time in rows):
            return sum(value * time for value, time in rows) / sum(time for _, time in rows)
        return sum(value for value, _ in rows) / len(rows) if rows else None

    def most(self, name: str) -> float | None:
        """The largest value; None where no row has one."""
        return max((value for value, _ in self._having(name)), default=None)

    def least(self, name: str) -> float | None:
        """The smallest value; None where no row has one."""
        return min((value for value, _ in self._having(name)), default=None)

    def shapes(self) -> set[tuple[float, float, float, int]]:
        """(registers, accumulators, shared bytes, threads of a block) of the launches that say registers and block."""
        return {
            (registers, _number(row.value("accumulators")) or 0, _number(row.value("shared_bytes")) or 0, prod(block))
            for registers, row in self._having("registers")
            if _is_size(block := row.value("block"))
        }

    def _having(self, name: str) -> list[tuple[float, Event]]:
        if name not in self._known:
            return []
        return [(value, row) for row in self.rows if (value := _number(row.value(name))) is not None]

    def size(self, name: str) -> int | None:
        """Of grid or block: the largest product of its three axes."""
        found = [row.value(name) for row in self.rows]
        return max((prod(each) for each in found if _is_size(each)), default=None)

    def source(self, *names: str) -> str:
        """Where the figures are from, each source once."""
        found: list[str] = []
        for name in names:
            figures = [row.figures[name].source for row in self.rows if name in row.figures]
            if not figures and name == "duration":
                figures = ["end - start"]
            found += [source for source in figures[:1] if source not in found]
        return " and ".join(found)

    def evidence(self, what: str, value: float, unit: str, *names: str) -> Evidence:
        return Evidence(what, value, unit, self.source(*names))


def _value(row: Event, name: str) -> Any:
    return row.duration if name == "duration" else row.value(name)


def time_of(event: Event) -> float | None:
    """Its duration in ns; None where there is none, or where it is no time ("n/a", a list, below 0)."""
    time = _number(event.duration)
    return None if time is None or time < 0 else time


def _is_size(value: Any) -> bool:
    return isinstance(value, tuple | list) and len(value) == 3 and all(type(each) is int and each > 0 for each in value)


def _number(value: Any) -> float | None:
    """The value where it is a finite number."""
    return value if type(value) in (int, float) and isfinite(value) else None
