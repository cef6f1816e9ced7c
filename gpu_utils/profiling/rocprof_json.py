"""rocprofv3's json: one element a process, everything an id into another list. No Chrome trace.

Shape: generateJSON.cpp in ROCm/rocm-systems, and the checks of rocprofiler-sdk's own tests. Several records of one
counter for one dispatch are its instances, and are summed.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpu_utils.errors import ProfileUnreadable
from gpu_utils.profiling import dispatches
from gpu_utils.profiling.calls import call_kind, direction
from gpu_utils.profiling.files import Opened
from gpu_utils.profiling.profile import Device, Event, Origin, Profile

FORM = "json of rocprofv3"

_KEY = "rocprofiler-sdk-tool"
_SOURCE = "rocprofv3"
_REGISTERS = (
    ("arch_vgpr_count", "registers"),
    ("accum_vgpr_count", "accumulators"),
    ("sgpr_count", "scalar_registers"),
    ("lds_block_size_v", "shared_bytes"),
)


def fits(found: Opened) -> bool:
    return not found.is_database and re.match(r'\s*\{\s*"' + _KEY + '"', found.text[:4096].lstrip("\ufeff")) is not None


def read(found: Opened) -> Profile:
    """Events of all processes in the file. Raises ProfileUnreadable when it is cut short."""
    try:
        whole = json.loads(found.text)
    except json.JSONDecodeError as error:
        raise ProfileUnreadable(
            found.path,
            f"is json of rocprofv3 and breaks off or is damaged at character {error.pos:,} of {len(found.text):,}: the "
            "program was ended before it was written; profile again, or with --output-format csv",
        ) from None
    tools = whole[_KEY] if isinstance(whole[_KEY], list) else [whole[_KEY]]
    odd: Counter[str] = Counter()
    processes = [_Process(tool, odd) for tool in tools if isinstance(tool, dict)]
    profile = Profile()
    for process in processes:
        events = process.events()
        profile.events += events
        profile.devices |= process.devices({event.device for event in events if event.device})
    remarks = [*found.remarks, *dispatches.remarks_of(odd)]
    if not profile.of("kernel", "copy", "fill"):
        remarks.append("no work on a GPU was recorded; profile with --kernel-trace or --pmc")
    profile.origins.append(Origin(found.path, _SOURCE, "json", "", tuple(remarks)))
    return profile


@dataclass
class _Process:
    """One element. odd: what could not be, counted over all of them."""

    tool: Mapping[str, Any]
    odd: Counter[str]
    _events: dict[int, Event] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.pid: int | None = _get(self.tool, "metadata", "pid")
        self.agents = {_handle(agent.get("id")): _agent_name(agent) for agent in self._list("agents")}
        self.symbols = {symbol.get("kernel_id"): symbol for symbol in self._list("kernel_symbols")}
        self.counters = {_handle(counter.get("id")): counter.get("name") for counter in self._list("counters")}
        strings = _get(self.tool, "strings", "buffer_records") or []
        self.operations: list[list[str]] = [kind.get("operations") or [] for kind in strings]
        self.kinds: list[str] = [kind.get("kind") or "" for kind in strings]
        marks = _get(self.tool, "strings", "marker_api") or []
        self.marks = {mark.get("key"): mark.get("value") for mark in marks if isinstance(mark, dict)}

    def _list(self, *names: str) -> list[Any]:
        found = _get(self.tool, *names)
        items = list(found.values()) if isinstance(found, dict) else found or []
        return [item for item in items if isinstance(item, dict)]

    def devices(self, names: set[str]) -> dict[str, Device]:
        """Devices of this process, by the names that its events use."""
        rows = [{**agent, "agent_type": agent.get("type", agent.get("agent_type"))} for agent in self._list("agents")]
        known = dispatches.agents(rows)
        return {name: known.get(name, dispatches.device_of(name)) for name in names}

    def events(self) -> list[Event]:
        for record in self._list("buffer_records", "kernel_dispatch"):
            self._dispatch(record, record.get("dispatch_info") or {})
        for record in self._list("callback_records", "counter_collection"):
            data = record.get("dispatch_data") or {}
            event = self._dispatch(data, data.get("dispatch_info") or {})
            for name, column in _REGISTERS:
                event.note(column, record.get(name), f"{_SOURCE}: {name}")
            self._counters(event, record.get("records") or [])
        whole = list(self._events.values())
        for name in _get(self.tool, "buffer_records") or {}:
            if name == "memory_copy":
                whole += [self._copy(record) for record in self._list("buffer_records", name)]
            elif name.endswith("_api"):
                whole += [self._call(record, name) for record in self._list("buffer_records", name)]
        return whole

    def _dispatch(self, record: Mapping[str, Any], info: Mapping[str, Any]) -> Event:
        """The event of a dispatch; its trace and its counters are two records."""
        number = info.get("dispatch_id")
        if number in self._events:
            return self._events[number]
        kernel = info.get("kernel_id")
        symbol = self.symbols.get(kernel, {"kernel_id": kernel})
        event = Event("kernel", _symbol_name(symbol), process=self.pid, number=number)
        stream, queue = _handle(record.get("stream_id")), _handle(info.get("queue_id"))
        event.lane = f"queue {queue}" if stream is None else f"stream {stream}"
        event.device = self.agents.get(_handle(info.get("agent_id")), "")
        event.correlation = _internal(record)
        dispatches.set_times(event, record.get("start_timestamp"), record.get("end_timestamp"), self.odd)
        items, threads = (
            [(info.get(name) or {}).get(axis) for axis in "xyz"] for name in ("grid_size", "workgroup_size")
        )
        dispatches.set_sizes(event, items, threads, _SOURCE, self.odd)
        event.note("scratch_bytes", info.get("private_segment_size"), f"{_SOURCE}: private_segment_size")
        event.note("shared_bytes", info.get("group_segment_size"), f"{_SOURCE}: group_segment_size")
        for name, column in _REGISTERS:
            event.note(column, symbol.get(name), f"{_SOURCE}: {name}")
        self._events[len(self._events) if number is None else number] = event
        return event

    def _counters(self, event: Event, records: Iterable[Mapping[str, Any]]) -> None:
        sums: dict[str, float | None] = {}
        for record in records:
            handle = _handle(record.get("counter_id"))
            name = self.counters.get(handle) or f"<counter {handle}>"
            value = record.get("value")
            if isinstance(value, int | float) and sums.get(name, 0) is not None:
                sums[name] = (sums.get(name) or 0) + value
            else:
                sums[name] = None
        for name, total in sums.items():
            dispatches.note_counter(event, name, total, _SOURCE, self.odd)

    def _operation(self, record: Mapping[str, Any]) -> str:
        kind, operation = record.get("kind"), record.get("operation")
        try:
            return str(self.operations[kind][operation])  # type: ignore[index]
        except (IndexError, TypeError):
            return f"<operation {operation} of kind {kind}>"

    def _copy(self, record: Mapping[str, Any]) -> Event:
        way = direction(self._operation(record))
        event = Event("copy", f"copy {way or self._operation(record)}", process=self.pid, correlation=_internal(record))
        event.note("direction", way, f"{_SOURCE}: operation")
        event.note("bytes", record.get("bytes"), f"{_SOURCE}: bytes")
        end = "src_agent_id" if way == "device to host" else "dst_agent_id"
        event.device = self.agents.get(_handle(record.get(end)), "")
        stream = _handle(record.get("stream_id"))
        event.lane = "" if stream is None else f"stream {stream}"
        dispatches.set_times(event, record.get("start_timestamp"), record.get("end_timestamp"), self.odd)
        return event

    def _call(self, record: Mapping[str, Any], domain: str) -> Event:
        name, correlation = self._operation(record), _internal(record)
        if domain == "marker_api":
            name = self.marks.get(correlation) or name
        event = Event("range" if domain == "marker_api" else call_kind(name), name, process=self.pid)
        event.correlation, event.lane = correlation, f"thread {record.get('thread_id')}"
        dispatches.set_times(event, record.get("start_timestamp"), record.get("end_timestamp"), self.odd)
        return event


def _get(node: Any, *names: str) -> Any:
    for name in names:
        node = node.get(name) if isinstance(node, dict) else None
    return node


def _handle(node: Any) -> Any:
    return node.get("handle") if isinstance(node, dict) else node


def _internal(record: Mapping[str, Any]) -> int | None:
    node = record.get("correlation_id")
    return node.get("internal") if isinstance(node, dict) else node


def _agent_name(agent: Mapping[str, Any]) -> str:
    logical = agent.get("logical_node_id", agent.get("node_id"))
    name = str(agent.get("name") or "")
    return name if name.startswith("virtual") else f"Agent {logical}"


def _symbol_name(symbol: Mapping[str, Any]) -> str:
    names = ("formatted_kernel_name", "demangled_kernel_name", "kernel_name")
    name = next((symbol[name] for name in names if symbol.get(name)), "")
    return dispatches.plain_name(name) or f"<kernel {symbol.get('kernel_id')}>"
