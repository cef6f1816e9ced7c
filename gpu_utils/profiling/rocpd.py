"""rocpd databases, rocprofv3's default since ROCm 7: kernels, their counters, copies, calls and ranges."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from typing import Any

from gpu_utils.profiling import dispatches
from gpu_utils.profiling.calls import call_kind, direction
from gpu_utils.profiling.files import Opened
from gpu_utils.profiling.profile import Device, Event, Origin, Profile
from gpu_utils.profiling.rocpd_tables import Row, Tables

FORM = "rocpd databases"

_SOURCE = "rocprofv3"
_FIGURES = (
    ("group_segment_size", "shared_bytes"),
    ("private_segment_size", "scratch_bytes"),
)
_REGISTERS = (
    ("arch_vgpr_count", "registers"),
    ("accum_vgpr_count", "accumulators"),
    ("sgpr_count", "scalar_registers"),
)


def fits(found: Opened) -> bool:
    return found.is_database and b"rocpd_" in found.data


def read(found: Opened) -> Profile:
    """Raises ProfileUnreadable for a database that is cut, or of a newer schema."""
    tables = Tables(found)
    reading = _Reading(tables)
    kernels, copies, regions = reading.kernels(), reading.copies(), reading.regions()
    remarks = [*found.remarks, *dispatches.remarks_of(reading.odd)]
    if not kernels:
        remarks.append("no kernel was recorded; profile with --kernel-trace or --pmc")
    elif not reading.counted:
        remarks.append("traced without counters; those come with --pmc")
    guids = {row["guid"] for name in ("kernel_dispatch", "region", "memory_copy") for row in tables.rows(name)}
    if len(guids) > 1:
        remarks.append(f"{len(guids)} runs or processes are merged in it, each with a clock of its own machine")
    events = [*kernels, *copies, *regions]
    used = {event.device for event in events if event.device}
    devices = {name: reading.devices.get(name, dispatches.device_of(name)) for name in used}
    origin = Origin(found.path, _SOURCE, "rocpd, sqlite", tables.version, tuple(remarks))
    return Profile(events, [origin], devices)


class _Reading:
    """Rows of the database put together. odd: what could not be; counted: whether there was a counter."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self.odd: Counter[str] = Counter()
        self.counted = False
        self.strings = {key: row["string"] for key, row in tables.by_id("string").items()}
        self.events = tables.by_id("event")
        self.processes = {key: row.get("pid") for key, row in tables.by_id("info_process").items()}
        self.threads = {key: row.get("tid") for key, row in tables.by_id("info_thread").items()}
        agents = tables.by_id("info_agent")
        self.agents = {key: _agent_name(row) for key, row in agents.items()}
        self.devices: dict[str, Device] = dispatches.agents([_agent(row) for row in agents.values()])
        self.devices |= {_agent_name(row): device for row in agents.values() if (device := self._virtual(row))}

    def _virtual(self, row: Row) -> Device | None:
        name = _agent_name(row)
        return dispatches.device_of(name) if name.startswith("virtual") else None

    def _event(self, row: Row, kind: str, name: str) -> Event:
        """What all rows have: process, lane, times, and what ties a call to its work."""
        guid = row["guid"]
        event = Event(kind, name, process=self.processes.get((guid, row.get("pid"))))
        if kind in ("kernel", "copy"):
            stream = row.get("stream_id")
            event.lane = f"queue {row.get('queue_id')}" if stream is None else f"stream {stream}"
        else:
            event.lane = f"thread {self.threads.get((guid, row.get('tid')), row.get('tid'))}"
        known = self.events.get((guid, row.get("event_id")), {})
        event.correlation = known.get("stack_id") or known.get("correlation_id")
        dispatches.set_times(event, row.get("start") or 0, row.get("end") or 0, self.odd)
        return event

    def kernels(self) -> list[Event]:
        symbols = self.tables.by_id("info_kernel_symbol")
        counters = self._counters()
        events = []
        for row in self.tables.rows("kernel_dispatch"):
            guid, kernel = row["guid"], row.get("kernel_id")
            symbol = symbols.get((guid, kernel), {})
            name = dispatches.plain_name(symbol.get("display_name") or symbol.get("kernel_name") or "")
            event = self._event(row, "kernel", name or f"<kernel {kernel}>")
            event.number = row.get("dispatch_id")
            event.device = self.agents.get((guid, row.get("agent_id")), "")
            items, threads = ([row.get(f"{what}_size_{axis}") for axis in "xyz"] for what in ("grid", "workgroup"))
            dispatches.set_sizes(event, items, threads, _SOURCE, self.odd)
            for column, figure in _FIGURES:
                event.note(figure, row.get(column), f"{_SOURCE}: {column}")
            for column, figure in _REGISTERS:
                event.note(figure, symbol.get(column), f"{_SOURCE}: {column}")
            for counter, value in counters[guid, row.get("event_id")].items():
                dispatches.note_counter(event, counter, value, _SOURCE, self.odd)
            events.append(event)
        return events

    def _counters(self) -> dict[tuple[str, Any], dict[str, float]]:
        """Of each event: counter -> value; instances of one counter are summed."""
        names = {key: row.get("symbol") or row.get("name") or "" for key, row in self.tables.by_id("info_pmc").items()}
        found: dict[tuple[str, Any], dict[str, float]] = defaultdict(dict)
        for row in self.tables.rows("pmc_event"):
            guid, counter = row["guid"], row.get("pmc_id")
            name = names.get((guid, counter)) or f"<counter {counter}>"
            values = found[guid, row.get("event_id")]
            values[name] = values.get(name, 0) + (float("nan") if row.get("value") is None else row["value"])
            self.counted = True
        return found

    def copies(self) -> list[Event]:
        events = []
        for row in self.tables.rows("memory_copy"):
            written = self.strings.get((row["guid"], row.get("name_id")), "")
            way = direction(written)
            event = self._event(row, "copy", f"copy {way or written}".strip())
            event.note("direction", way, f"{_SOURCE}: name")
            event.note("bytes", row.get("size"), f"{_SOURCE}: size")
            end = "src_agent_id" if way == "device to host" else "dst_agent_id"
            event.device = self.agents.get((row["guid"], row.get(end)), "")
            events.append(event)
        return events

    def regions(self) -> list[Event]:
        """Calls of the runtimes, and ranges of roctx."""
        events = []
        for row in self.tables.rows("region"):
            guid = row["guid"]
            known = self.events.get((guid, row.get("event_id")), {})
            category = str(self.strings.get((guid, known.get("category_id")), ""))
            name = self.strings.get((guid, row.get("name_id")), f"<string {row.get('name_id')}>")
            if "MARKER" in category.upper():
                events.append(self._event(row, "range", _dict(known.get("extdata")).get("message") or name))
            else:
                events.append(self._event(row, call_kind(name), name))
        return events


def _dict(text: Any) -> dict[str, Any]:
    """Extra data, which is json; nothing where it is none."""
    try:
        found = json.loads(text or "{}")
    except (TypeError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _agent_name(row: Row) -> str:
    name = str(row.get("name") or "")
    index = row.get("logical_index", row.get("absolute_index"))
    return name if name.startswith("virtual") else f"Agent {row['id'] if index is None else index}"


def _agent(row: Row) -> dict[str, Any]:
    """An agent under the names of rocprofv3's list; sizes stand in its extra data."""
    known = {key: value for key, value in row.items() if value is not None}
    nodes = {"node_id": row.get("absolute_index"), "logical_node_id": row.get("logical_index")}
    return {**_dict(row.get("extdata")), **known, **nodes, "agent_type": row.get("type")}
