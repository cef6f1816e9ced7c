"""Events as pandas tables: the library that the vendors' own Python tools and most learners use for this.

pandas rather than a smaller one: its tables show themselves in a notebook, group and join, and it needs nothing that
the course does not have already. The readers do without it, so `w2w profile` imports it only to print.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas

from gpu_utils.profiling.columns import COLUMNS
from gpu_utils.profiling.profile import Event

_WHO = ("name", "kind", "device", "lane", "process", "number", "start")
_UNITS = {"start": "ns", "duration": "ns"}


def table(events: Sequence[Event], *, sources: bool = False) -> pandas.DataFrame:
    """One row an event, in their order. See `Profile.table`.

    >>> event = Event("kernel", "add", 1000, 3000, "stream 7")
    >>> event.note("registers", 32, "torch: registers per thread")
    >>> list(table([event]).columns)
    ['name', 'kind', 'device', 'lane', 'process', 'number', 'start', 'duration', 'registers']
    >>> table([event], sources=True).loc[0, "source of registers"]
    'torch: registers per thread'
    """
    found = {name for event in events for name in event.figures} - {"duration"}
    known = [name for name in COLUMNS if name in found]
    chosen = [*known, *sorted(found - set(known))]
    columns: dict[str, list[Any]] = {name: [getattr(event, name) for event in events] for name in _WHO}
    columns["duration"] = [event.duration for event in events]
    units = dict(_UNITS)
    for name in chosen:
        columns[name] = [event.value(name) for event in events]
        units[name] = next(event.figures[name].unit for event in events if name in event.figures)
        if sources:
            figures = [event.figures.get(name) for event in events]
            columns[f"source of {name}"] = [None if figure is None else figure.source for figure in figures]
    frame = pandas.DataFrame({name: _column(values) for name, values in columns.items()})
    frame.attrs["units"] = units
    return frame


def figures(events: Sequence[Event]) -> pandas.DataFrame:
    """One row a figure: row (the event's place), name (the event's), figure, value, unit, source."""
    rows = [
        (row, event.name, name, figure.value, figure.unit, figure.source)
        for row, event in enumerate(events)
        for name, figure in event.figures.items()
    ]
    return pandas.DataFrame(rows, columns=["row", "name", "figure", "value", "unit", "source"])


def _column(values: list[Any]) -> Any:
    """Whole numbers stay whole beside a missing one; lists and mixtures stay as they are."""
    there = [value for value in values if value is not None]
    if there and all(type(value) is int for value in there) and all(abs(value) < 2**63 for value in there):
        return pandas.array(values, dtype="Int64")
    if there and all(type(value) in (int, float) for value in there):
        return pandas.array(values, dtype="Float64")
    return pandas.Series(values, dtype="object")
