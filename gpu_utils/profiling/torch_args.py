"""What the args of an event of torch.profiler mean: a figure of the table, a figure of torch's own, or a place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any

from gpu_utils.profiling.chrome import clean
from gpu_utils.profiling.columns import COLUMNS, NCU
from gpu_utils.profiling.profile import Event, Figure

COLUMN = {
    "registers per thread": "registers",
    "shared memory": "shared_bytes",
    "grid": "grid",
    "block": "block",
    "est. achieved occupancy %": "occupancy_estimate",
    "bytes": "bytes",
    "size": "bytes",
}
UNIT = {"blocks per SM": "blocks", "warps per SM": "warps", "memory bandwidth (GB/s)": "GB/s"}

PLACES = frozenset(
    {
        *("device", "Device", "stream", "correlation", "queued", "context", "cid", "cbid", "kind", "ptr", "src", "dst"),
        *("Ev Idx", "Record function id", "Trace id", "Op count", "Sequence number", "Fwd thread id", "Trace name"),
    }
)
"""Where an event is, what it is tied to, and numbers of the profiler's own: no figures."""

TIED = ("External id", "external id")


def noted(event: Event, args: Mapping[str, Any]) -> None:
    """Args as figures. An arg that is not known is kept under its own name."""
    figures = event.figures
    for name, value in args.items():
        if name not in PLACES and (found := _figure(name, value)) is not None:
            figures[found[0]] = found[1]


def from_launch(event: Event, args: Mapping[str, Any], names: Iterable[str]) -> None:
    """Of a launching call's args those that its work has not: torch on ROCm writes them there only."""
    for name in names:
        if name in args and COLUMN[name] not in event.figures and (found := _figure(name, args[name])) is not None:
            event.note(COLUMN[name], found[1].value, f"{found[1].source} of the launch")


def _figure(name: str, value: Any) -> tuple[str, Figure] | None:
    """The name and the figure; equal ones are one object, because a trace has few and repeats them for each launch."""
    try:
        return _known(name, tuple(value) if isinstance(value, list) else value)
    except TypeError:  # lists in lists, dicts
        return _made(name, value)


def _made(name: str, value: Any) -> tuple[str, Figure] | None:
    source = f"torch: {name}"
    if name in TIED:
        return _row("External id", whole(value), "", source)
    if name in COLUMN:
        column = COLUMN[name]
        return _row(column, size(value) if column in ("grid", "block") else whole(value), COLUMNS[column].unit, source)
    found = plain(value)
    if name in NCU and isinstance(found, (int, float)):
        column, factor = NCU[name]
        return _row(column, found * factor, COLUMNS[column].unit, source)
    return _row(name, found, UNIT.get(name, ""), source)


_known = lru_cache(maxsize=100_000, typed=True)(_made)


def _row(name: str, value: Any, unit: str, source: str) -> tuple[str, Figure] | None:
    return None if value is None else (name, Figure(value, unit, source))


def external(args: Mapping[str, Any]) -> int | None:
    """The operator that an event belongs to."""
    return next((whole(args[name]) for name in TIED if name in args), None)


def whole(value: Any) -> int | None:
    """A whole number that stands as one, as text or as a fraction; None for anything else."""
    if isinstance(value, str):
        value = int(value) if value.isascii() and value.strip().lstrip("-").isdigit() and len(value) < 20 else None
    if isinstance(value, Decimal):
        value = int(value) if value.is_finite() and abs(value) < 10**18 else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def size(value: Any) -> tuple[int, ...] | None:
    """Three whole numbers, or None.

    >>> size([16, 16, 1]), size([16, 16]), size([0, 0, 0]), size("[1, 1, 1]")
    ((16, 16, 1), None, None, None)
    """
    parts = [whole(part) for part in value] if isinstance(value, (list, tuple)) and len(value) == 3 else []
    numbers = tuple(part for part in parts if part is not None)
    return numbers if len(numbers) == 3 and min(numbers) > 0 else None


def plain(value: Any) -> Any:
    """Without Decimal; "N/A" is no value."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, str):
        return None if value == "N/A" else clean(value)
    return [plain(part) for part in value] if isinstance(value, (list, tuple)) else value
