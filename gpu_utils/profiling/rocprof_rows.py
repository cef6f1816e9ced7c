"""Rows of rocprof's csv files, and those that are dispatches, in all generations of headers."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from gpu_utils.profiling import dispatches
from gpu_utils.profiling.files import Opened
from gpu_utils.profiling.profile import Device, Event
from gpu_utils.profiling.written import cells, number

_FIELDS = {
    "kernel_name": "name",
    "kernelname": "name",
    "dispatch_id": "number",
    "index": "number",
    "agent_id": "device",
    "gpu_id": "device",
    "gpu-id": "device",
    "queue_id": "queue",
    "queue-id": "queue",
    "stream_id": "stream",
    "process_id": "process",
    "pid": "process",
    "correlation_id": "correlation",
    "start_timestamp": "start",
    "beginns": "start",
    "end_timestamp": "end",
    "stop_timestamp": "end",
    "endns": "end",
    "grid_size": "grid",
    "grd": "grid",
    "workgroup_size": "block",
    "wgr": "block",
    "wave_size": "lanes",
    "counter_name": "counter",
    "counter_value": "value",
}
"""Column in small letters -> what it holds, in all generations."""

_FIGURES = {
    "lds_block_size": "shared_bytes",
    "lds_per_workgroup": "shared_bytes",
    "group_segment_size": "shared_bytes",
    "lds": "shared_bytes",
    "scratch_size": "scratch_bytes",
    "scratch_per_workitem": "scratch_bytes",
    "private_segment_size": "scratch_bytes",
    "scr": "scratch_bytes",
    "vgpr_count": "registers",
    "arch_vgpr": "registers",
    "vgpr": "registers",
    "accum_vgpr_count": "accumulators",
    "accum_vgpr": "accumulators",
    "sgpr_count": "scalar_registers",
    "sgpr": "scalar_registers",
}

_IGNORED = {
    *("kind", "domain", "function", "operation", "kernel_id", "thread_id", "tid", "guid", "sig", "obj", "fbar"),
    *("queue-index", "queue_index", "dispatchns", "completens", "durationns"),
    *(f"{what}_size_{axis}" for what in ("grid", "workgroup") for axis in "xyz"),
}


@dataclass
class Sheet:
    """One file: names of its columns, and rows by these and by the same in small letters: names of counters differ in
    case alone."""

    found: Opened
    names: list[str]
    rows: list[dict[str, str]]
    tool: str = "rocprofv3"
    odd: Counter[str] = field(default_factory=Counter)
    remarks: list[str] = field(default_factory=list)

    def number(self, row: dict[str, str], name: str) -> int | None:
        """A whole number that may be missing; rocprof writes ids in decimal, addresses in hexadecimal."""
        text = row.get(name, "").strip()
        if text.lower().startswith("0x"):
            return int(text, 16)
        value = number(text)
        return None if value is None else int(value)

    @property
    def process(self) -> int | None:
        """The number before the name of the file, where rocprofv3 writes the process: 4242_kernel_trace.csv."""
        before = re.match(r"(\d+)_", Path(self.found.path).name)
        return int(before[1]) if before else None

    def fill(self, lines: list[str], delimiter: str) -> None:
        """Take the lines below the header; those that fit no row are counted."""
        keys = [name.lower() for name in self.names]
        filled = [line for line in lines if line.strip()]
        for at, line in enumerate(filled):
            row = cells(line, delimiter)
            if row is not None and len(row) == len(keys) + 1 and not row[-1]:
                row = row[:-1]
            if row is not None and len(row) == len(keys):
                if [cell.strip().lower() for cell in row] != keys:
                    self.rows.append({**dict(zip(keys, row, strict=True)), **dict(zip(self.names, row, strict=True))})
            elif at == len(filled) - 1:
                self.remarks.append("the last row is cut short and was left out")
            else:
                self.odd["rows with another number of cells than the header, left out"] += 1


def dispatch_rows(sheet: Sheet) -> tuple[list[Event], dict[str, Device]]:
    """Events of kernel traces and of counters, which have a row each (rocprofv3) or a column (v1, v2); and devices."""
    found: dict[tuple[object, ...], Event] = {}
    devices: dict[str, Device] = {}
    columns = {_FIELDS[name]: name for name in map(str.lower, sheet.names) if name in _FIELDS}
    figures = [(name.lower(), _FIGURES[name.lower()]) for name in sheet.names if name.lower() in _FIGURES]
    known = {*_FIELDS, *_FIGURES, *_IGNORED}
    wide = [name for name in sheet.names if name.lower() not in known]
    for at, row in enumerate(sheet.rows):
        get = {what: row[name].strip() for what, name in columns.items()}
        name = dispatches.plain_name(get.get("name", ""))
        process = sheet.number(row, columns.get("process", ""))
        process = sheet.process if process is None else process
        dispatch = sheet.number(row, columns.get("number", ""))
        identity = process, at if dispatch is None else dispatch, name, get.get("start") if "counter" not in get else ""
        event = found.get(identity)
        if event is not None and "counter" not in columns:
            sheet.odd["dispatches that are in the file twice, one left out"] += 1
            continue
        if event is None:
            event = found[identity] = Event("kernel", name, process=process, number=dispatch)
            _describe(event, sheet, row, columns, figures)
            lanes = sheet.number(row, columns.get("lanes", ""))
            if lanes and event.device not in devices:
                agent = dispatches.device_of(event.device)
                devices[event.device] = Device(agent.name, "amd", agent.target, None, lanes, agent.virtual)
        if "counter" in columns:
            value = number(get["value"])
            dispatches.note_counter(event, get["counter"], value, sheet.tool, sheet.odd)
        for counter in wide:
            if row[counter].strip():
                dispatches.note_counter(event, counter, number(row[counter]), sheet.tool, sheet.odd)
    return list(found.values()), devices


def _describe(
    event: Event, sheet: Sheet, row: dict[str, str], columns: dict[str, str], figures: list[tuple[str, str]]
) -> None:
    event.device = row.get(columns.get("device", ""), "").strip()
    event.correlation = sheet.number(row, columns.get("correlation", ""))
    lane = "stream" if "stream" in columns else "queue"
    if lane in columns:
        event.lane = f"{lane} {row[columns[lane]].strip()}"
    start, end = (sheet.number(row, columns.get(name, "")) for name in ("start", "end"))
    if "start" in columns:
        dispatches.set_times(event, start or 0, end or 0, sheet.odd)
    if "grid_size_x" in row:
        items, threads = (
            [sheet.number(row, f"{what}_size_{axis}") for axis in "xyz"] for what in ("grid", "workgroup")
        )
    else:
        items, threads = ([sheet.number(row, columns.get(what, ""))] for what in ("grid", "block"))
    dispatches.set_sizes(event, items, threads, sheet.tool, sheet.odd)
    by_name = {name.lower(): name for name in sheet.names}
    for name, column in figures:
        event.note(column, sheet.number(row, name), f"{sheet.tool}: {by_name[name]}")
