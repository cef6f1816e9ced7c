"""Readings of a trace with one mistake each, and the right one. Plain Python: they run wherever an answer runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

Rows = list[dict[str, Any]]
Event = dict[str, Any]
CALLS = ("cuda_runtime", "cuda_driver")
NO_CALL: Event = {"args": {}}


def _by_correlation(kernels: list[Event], calls: list[Event]) -> list[Event | None]:
    found = {call["args"]["correlation"]: call for call in calls}
    return [found.get(kernel["args"].get("correlation")) for kernel in kernels]


def _in_order(kernels: list[Event], calls: list[Event]) -> list[Event | None]:
    launches = sorted((call for call in calls if "Launch" in call["name"]), key=lambda call: call["ts"])
    return [launches[at] if at < len(launches) else None for at in range(len(kernels))]


def _nearest(kernels: list[Event], calls: list[Event]) -> list[Event | None]:
    def last_before(kernel: Event) -> Event | None:
        before = [call for call in calls if "Launch" in call["name"] and call["ts"] <= kernel["ts"]]
        return max(before, key=lambda call: call["ts"], default=None)

    return [last_before(kernel) for kernel in kernels]


def _once(kernels: list[Event], calls: list[Event]) -> list[Event | None]:
    """Each launch is taken by the first kernel that asks for it."""
    left = {call["args"]["correlation"]: call for call in calls}
    return [left.pop(kernel["args"].get("correlation"), None) for kernel in kernels]


def _itself(kernels: list[Event], calls: list[Event]) -> list[Event | None]:
    """One table of all events with a correlation: a kernel's own event lies over its launch."""
    return [kernel if call else None for kernel, call in zip(kernels, _by_correlation(kernels, calls), strict=True)]


def _op_by_id(kernel: Event, call: Event | None, ops: list[Event]) -> str | None:
    return next((op["name"] for op in ops if op["args"]["External id"] == kernel["args"].get("External id")), None)


def op_by_correlation(kernel: Event, call: Event | None, ops: list[Event]) -> str | None:
    return next((op["name"] for op in ops if op["args"]["External id"] == kernel["args"].get("correlation")), None)


def op_around(kernel: Event, call: Event | None, ops: list[Event]) -> str | None:
    """The outermost op of the thread that holds the launching call in time."""
    if call is None:
        return None
    around = [op for op in ops if op["tid"] == call["tid"] and op["ts"] <= call["ts"] <= op["ts"] + op["dur"]]
    return max(around, key=lambda op: op["dur"])["name"] if around else None


def reading(
    cats: tuple[str, ...] = ("kernel",),
    launches: tuple[str, ...] = CALLS,
    join: Callable[[list[Event], list[Event]], list[Event | None]] = _by_correlation,
    op: Callable[[Event, Event | None, list[Event]], str | None] = _op_by_id,
    unit: float = 1.0,
    dur_is_end: bool = False,
    unknown: Any = None,
    borrowed: bool = True,
    own_first: bool = True,
    from_its_end: bool = False,
    unlaunched: Any = None,
    ordered: bool = True,
) -> Callable[[str], Rows]:
    """An answer.

    cats          of the events that are taken for kernels; launches: of those that are taken for calls
    join          who started a kernel; op: the name of its operator
    unit          what times are multiplied by; dur_is_end: "dur" is read as the end
    unknown       the grid and block of a kernel that has none; borrowed: whether its launch is asked
    own_first     of two grids the kernel's counts
    from_its_end  the delay counts from the end of the call
    unlaunched    the delay of a kernel whose launch is not there; "left out" drops such a kernel
    ordered       by start
    """

    def read_trace(text: str) -> Rows:
        events = [event for event in json.loads(text)["traceEvents"] if event["ph"] == "X"]
        kernels = [event for event in events if event["cat"] in cats]
        if ordered:
            kernels.sort(key=lambda event: event["ts"])
        calls = [event for event in events if event["cat"] in launches and "correlation" in event["args"]]
        ops = [event for event in events if event["cat"] == "cpu_op"]
        rows = []
        for kernel, call in zip(kernels, join(kernels, calls), strict=True):
            if call is None and unlaunched == "left out":
                continue
            args, there = kernel["args"], (call or NO_CALL)["args"] if borrowed else {}
            one, other = (args, there) if own_first else (there, args)
            start = kernel["ts"] * unit
            since = None if call is None else (call["ts"] + call["dur"] * from_its_end) * unit
            rows.append(
                {
                    "name": kernel["name"],
                    "device": args.get("device"),
                    "stream": args.get("stream"),
                    "start": start,
                    "duration": kernel["dur"] * unit - start * dur_is_end,
                    "grid": one.get("grid", other.get("grid", unknown)),
                    "block": one.get("block", other.get("block", unknown)),
                    "launched": None if call is None else call["ts"] * unit,
                    "delay": unlaunched if since is None else start - since,
                    "op": op(kernel, call, ops),
                }
            )
        return rows

    return read_trace


right = reading()
milliseconds = reading(unit=1000.0)
nanoseconds = reading(unit=0.001)
ends_for_durations = reading(dur_is_end=True)
copies_too = reading(cats=("kernel", "gpu_memcpy", "gpu_memset"))
calls_too = reading(cats=("kernel", *CALLS))
ranges_too = reading(cats=("kernel", "gpu_user_annotation"))
in_order_of_launches = reading(join=_in_order)
nearest_launch = reading(join=_nearest)
one_kernel_a_launch = reading(join=_once)
joined_with_itself = reading(join=_itself)
runtime_only = reading(launches=("cuda_runtime",))
copies_are_calls = reading(launches=(*CALLS, "gpu_memcpy", "gpu_memset"))
ones_for_unknown = reading(unknown=[1, 1, 1])
ones_at_once = reading(unknown=[1, 1, 1], borrowed=False)
own_fields_only = reading(borrowed=False)
grid_of_the_launch = reading(own_first=False)
delay_from_its_end = reading(from_its_end=True)
no_launch_no_delay = reading(unlaunched=0.0)
launched_only = reading(unlaunched="left out")
order_of_the_file = reading(ordered=False)
by_op_of_correlation = reading(op=op_by_correlation)
outermost_op = reading(op=op_around)
