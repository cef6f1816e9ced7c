"""The csv files of rocprofv3, and of rocprof v1 and v2 before it: told apart by their header, whatever their name.

Columns: generateCSV.cpp in ROCm/rocm-systems and the sample outputs of ROCm/rocprofiler-sdk; v1 and v2: README of
ROCm/rocprofiler. Columns are found by name, so one more or less does no harm; one that nobody knows is kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from gpu_utils.errors import ProfileUnreadable
from gpu_utils.profiling import dispatches
from gpu_utils.profiling.calls import call_kind, direction
from gpu_utils.profiling.files import Opened
from gpu_utils.profiling.profile import Device, Event, Origin, Profile
from gpu_utils.profiling.rocprof_rows import Sheet, dispatch_rows
from gpu_utils.profiling.sampling import sampled
from gpu_utils.profiling.written import DELIMITERS, cells, lines_of, number

FORM = "csv of rocprofv3 and rocprof"


def fits(found: Opened) -> bool:
    return not found.is_database and (_header(found) is not None or _summary(found))


def read(found: Opened) -> Profile:
    """Events of one csv. Raises ProfileUnreadable for rocprofv3's summary in words."""
    header = _header(found)
    if header is None:
        raise ProfileUnreadable(
            found.path,
            "is the summary that rocprofv3 prints, in words; profile again with --kernel-trace --output-format csv",
        )
    at, names, delimiter, (form, words, reader) = header
    sheet = Sheet(found, names, [])
    sheet.tool = "rocprof" if form.startswith("rocprof") else "rocprofv3"
    sheet.fill(lines_of(found.text)[at + 1 :], delimiter)
    events, devices = reader(sheet)
    if not events and not devices:
        sheet.remarks.append(f"the file has a header and no row: no {words} was recorded")
    for event in events:
        if event.device and event.device not in devices:
            devices[event.device] = dispatches.device_of(event.device)
    remarks = (*found.remarks, *sheet.remarks, *dispatches.remarks_of(sheet.odd))
    return Profile(events, [Origin(found.path, sheet.tool, f"csv, {form}", "", remarks)], devices)


def _timed(sheet: Sheet) -> Iterator[tuple[dict[str, str], Event]]:
    """Rows of a trace of anything but kernels, with an event that has its times, lane and process."""
    for row in sheet.rows:
        thread, process = row.get("thread_id", "").strip(), sheet.number(row, "process_id")
        event = Event("api", row.get("function", "").strip(), lane=f"thread {thread}" if thread else "")
        event.process = sheet.process if process is None else process
        event.correlation = sheet.number(row, "correlation_id")
        end = "end_timestamp" if "end_timestamp" in row else "stop_timestamp"
        yield row, event
        dispatches.set_times(event, sheet.number(row, "start_timestamp") or 0, sheet.number(row, end) or 0, sheet.odd)


def _calls(sheet: Sheet) -> tuple[list[Event], dict[str, Device]]:
    events = []
    for row, event in _timed(sheet):
        event.kind = (
            "range" if "MARKER" in row["domain"].upper() or "ROCTX" in row["domain"].upper() else call_kind(event.name)
        )
        if dispatched := row.get("kernel_name", "").strip():
            event.note("kernel", dispatches.plain_name(dispatched), f"{sheet.tool}: Kernel_Name")
        events.append(event)
    return events, {}


def _operations(sheet: Sheet) -> tuple[list[Event], dict[str, Device]]:
    """v2's trace of what ran on the GPU."""
    events = []
    for row, event in _timed(sheet):
        event.name = dispatches.plain_name(row["kernel_name"]) or row["operation"].strip()
        event.kind, event.device = ("kernel" if row["kernel_name"].strip() else "copy"), "GPU"
        events.append(event)
    return events, {}


def _copies(sheet: Sheet) -> tuple[list[Event], dict[str, Device]]:
    events = []
    for row, event in _timed(sheet):
        way = direction(row["direction"])
        event.kind, event.name = "copy", f"copy {way or row['direction'].strip()}"
        event.note("direction", way, "rocprofv3: Direction")
        to_host = way == "device to host"
        event.device = row.get("source_agent_id" if to_host else "destination_agent_id", "").strip()
        if row.get("stream_id", "").strip():
            event.lane = f"stream {row['stream_id'].strip()}"
        events.append(event)
    if events:
        sheet.remarks.append("this file does not say how many bytes were copied; rocprofv3's json and rocpd do")
    return events, {}


def _memory(sheet: Sheet) -> tuple[list[Event], dict[str, Device]]:
    """Allocations, and scratch that the runtime gave out: calls on the host, with their bytes."""
    events = []
    for row, event in _timed(sheet):
        event.name = row["operation"].strip()
        event.note("allocated", sheet.number(row, "allocation_size"), "rocprofv3: Allocation_Size", "bytes")
        events.append(event)
    return events, {}


def _sums(sheet: Sheet) -> tuple[list[Event], dict[str, Device]]:
    """One event for each name: calls, and the time of all of them."""
    events = []
    kind = "api" if re.search(r"(hip|hsa|marker|rccl)\w*_stats", sheet.found.path) else "kernel"
    by_name = {name.lower(): name for name in sheet.names}
    for row in sheet.rows:
        event = Event(kind, dispatches.plain_name(row["name"]), process=sheet.process)
        event.note("calls", sheet.number(row, "calls"), f"{sheet.tool}: Calls")
        event.note("duration", sheet.number(row, "totaldurationns"), f"{sheet.tool}: TotalDurationNs, of all calls")
        for name, unit in (
            ("averagens", "ns"),
            ("minns", "ns"),
            ("maxns", "ns"),
            ("percentage", "%"),
            ("stddev", "ns"),
        ):
            if name in row:
                event.note(by_name[name], number(row[name]), f"{sheet.tool}: {by_name[name]}", unit)
        events.append(event)
    sheet.remarks.append("sums only: no order of launches, no gaps, no overlap; those are in a kernel trace")
    return events, {}


def _agents(sheet: Sheet) -> tuple[list[Event], dict[str, Device]]:
    return [], dispatches.agents(sheet.rows)


def _samples(sheet: Sheet) -> tuple[list[Event], dict[str, Device]]:
    events, remarks = sampled(sheet.rows, sheet.process)
    sheet.remarks += remarks
    return events, {}


_Reader = Callable[[Sheet], tuple[list[Event], dict[str, Device]]]

_FORMS: tuple[tuple[str, str, _Reader, str], ...] = (
    ("counter collection", "dispatch", dispatch_rows, "dispatch_id kernel_name counter_name counter_value"),
    ("kernel trace", "dispatch", dispatch_rows, "kind kernel_name start_timestamp end_timestamp"),
    ("memory copy trace", "copy", _copies, "kind direction start_timestamp"),
    ("memory allocations", "allocation", _memory, "kind operation agent_id start_timestamp"),
    ("rocprof v2, calls", "call", _calls, "domain function kernel_name start_timestamp"),
    ("rocprof v2, operations", "operation", _operations, "domain operation kernel_name start_timestamp"),
    ("API trace", "call", _calls, "domain function process_id start_timestamp"),
    ("agent info", "agent", _agents, "node_id agent_type"),
    ("PC sampling", "sample", _samples, "sample_timestamp exec_mask dispatch_id"),
    ("sums", "call", _sums, "name calls totaldurationns"),
    ("rocprof v1, counters", "dispatch", dispatch_rows, "index kernelname"),
    ("rocprof v2, counters", "dispatch", dispatch_rows, "dispatch_id gpu_id kernel_name"),
)
"""Form, what a row is, its reader, and the columns that tell it, in small letters. The first that fits is it."""


def _header(found: Opened) -> tuple[int, list[str], str, tuple[str, str, _Reader]] | None:
    """Line, names, delimiter and form of the header; lines that rocprof printed may stand before it."""
    for at, line in enumerate(lines_of(found.text)):
        if not line.strip() or line.count("_") + line.lower().count("name") == 0:
            continue
        for delimiter in DELIMITERS:
            names = [name.strip() for name in cells(line, delimiter) or ()]
            keys = {name.lower() for name in names}
            for form, words, reader, telling in _FORMS:
                if keys.issuperset(telling.split()):
                    return at, names, delimiter, (form, words, reader)
        if at > 200:
            return None
    return None


def _summary(found: Opened) -> bool:
    return bool(re.search(r"^\|\s*NAME\s*\|\s*DOMAIN\s*\|\s*CALLS", found.text, re.M))
