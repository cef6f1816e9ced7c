"""Nsight Systems, exported to sqlite: kernels, copies, calls of the runtime, ranges of NVTX, the profiler's own cost.

Names of tables and columns: NVIDIA, Nsight Systems User Guide and its exporter schema. Times are ns since the session
began. grid counts blocks. A correlation is unique in one process only, so calls are tied with the process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from gpu_utils.errors import ProfileUnreadable
from gpu_utils.profiling.calls import call_kind, direction
from gpu_utils.profiling.files import Opened
from gpu_utils.profiling.nsight_tables import Tables, tables
from gpu_utils.profiling.plausible import without_impossible
from gpu_utils.profiling.profile import ON_GPU, Device, Event, Origin, Profile
from gpu_utils.profiling.quick import uncollected

FORM = "Nsight Systems (nsys export --type sqlite)"

_CUPTI = "CUPTI_ACTIVITY_KIND_"
KERNEL, MEMCPY, MEMSET, GRAPH = (_CUPTI + name for name in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE"))
CALLS = (_CUPTI + "RUNTIME", _CUPTI + "DRIVER")
READ = {KERNEL, MEMCPY, MEMSET, GRAPH, *CALLS, "NVTX_EVENTS", "PROFILER_OVERHEAD"}

_WHERE = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid")
_KERNEL = (
    *("demangledName", "shortName", "mangledName", "registersPerThread", "localMemoryPerThread"),
    *("staticSharedMemory", "dynamicSharedMemory", "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ"),
)
_OWN = ("sharedMemoryExecuted", "graphNodeId", "clusterX", "clusterY", "clusterZ", "launchType")
_KINDS = {1: "host to device", 2: "device to host"}  # where the export has no table of them: what all writers agree on
_PUSHED, _MARK, _RANGE = 59, 34, 60  # eventType of NVTX_EVENTS


def fits(found: Opened) -> bool:
    """A database that is not rocprofv3's: one of another tool is refused here, by its name."""
    return found.is_database and (_CUPTI.encode() in found.data or b"rocpd_" not in found.data)


def read(found: Opened) -> Profile:
    """Events and GPUs. Raises ProfileUnreadable for other databases, and where nothing was recorded."""
    with uncollected(), tables(found) as db:
        _refuse_others(db)
        events = [*_work(db), *_calls(db), *_ranges(db), *_overhead(db)]
        if not events:
            raise ProfileUnreadable(
                found.path,
                f"holds nothing that ran: its tables are {', '.join(sorted(db.names)[:12]) or 'none at all'}; profile "
                "again with --trace=cuda,nvtx",
            )
        vague = _end_at_zero(events)
        remarks = [*found.remarks, *vague, *without_impossible(events), *_missing(db, events), *_left_out(db)]
        version = dict(db.rows("META_DATA_EXPORT", "name", "value")).get("EXPORT_PRODUCT_VERSION") or ""
        return Profile(events, [Origin(found.path, "nsys", "sqlite", str(version), tuple(remarks))], _devices(db))


def _refuse_others(db: Tables) -> None:
    names = set(db.names)
    if names & {"StringTable", _CUPTI + "CONCURRENT_KERNEL"} or "_id_" in db.columns(KERNEL):
        raise ProfileUnreadable(
            db.path, "is a database of nvprof, which no longer exists; profile with: nsys profile --trace=cuda,nvtx"
        )
    if any(name.startswith("rocpd_") for name in names):
        raise ProfileUnreadable(
            db.path, "is a database of rocprofv3 (rocpd), not of nsys; read it with: w2w profile FILE"
        )
    ours = ("StringIds", "META_DATA_EXPORT", "NVTX_EVENTS", "PROFILER_OVERHEAD")
    if not any(name.startswith((_CUPTI, "TARGET_INFO_", *ours)) for name in names):
        raise ProfileUnreadable(
            db.path, f"is a database, but none of nsys: its tables are {', '.join(sorted(names)[:12]) or 'none at all'}"
        )


def _process(number: int | None) -> int | None:
    """Of globalPid or globalTid: pid = number / 2^24 % 2^24."""
    return None if number is None else number >> 24 & 0xFFFFFF


def _event(db: Tables, kind: str, name: str, where: Sequence[Any]) -> Event:
    start, end, device, stream, correlation, number = where
    process = _process(number)
    lane = "stream ?" if stream is None else f"stream {stream}"
    return Event(kind, name, start, end, lane, db.gpu(process, device), process, correlation)


def _work(db: Tables) -> list[Event]:
    """Kernels, whole graphs, copies, fills."""
    events = []
    for row in db.rows(KERNEL, *_WHERE, *_KERNEL, *_OWN):
        names, figures = row[6:9], row[9:19]
        event = _event(db, "kernel", next((db.text(name) for name in names if name is not None), None) or "?", row[:6])
        registers, local, static, dynamic, *sizes = figures
        event.note("registers", registers, "nsys: registersPerThread")
        event.note("scratch_bytes", local, "nsys: localMemoryPerThread")
        if static is not None and dynamic is not None:
            event.note("shared_bytes", static + dynamic, "nsys: staticSharedMemory + dynamicSharedMemory")
        event.note("grid", _size(sizes[:3]), "nsys: gridX, gridY, gridZ")
        event.note("block", _size(sizes[3:]), "nsys: blockX, blockY, blockZ")
        for name, value in zip(_OWN, row[19:], strict=True):
            event.note(name, value, f"nsys: {name}", "")
        events.append(event)
    for *where, graph in db.rows(GRAPH, *_WHERE, "graphId"):
        events.append(_event(db, "kernel", f"<graph {graph}: all its kernels>", where))
    kinds, memory = db.labels("ENUM_CUDA_MEMCPY_OPER"), db.labels("ENUM_CUDA_MEM_KIND")
    for *where, size, kind, source, target in db.rows(MEMCPY, *_WHERE, "bytes", "copyKind", "srcKind", "dstKind"):
        event = _event(db, "copy", f"[CUDA memcpy {kinds.get(kind, f'of kind {kind}')}]", where)
        event.note("bytes", size, "nsys: bytes")
        way = direction(kinds[kind]) if kind in kinds else None if kinds else _KINDS.get(kind)
        event.note("direction", way, "nsys: copyKind")
        event.note("srcKind", memory.get(source, source), "nsys: srcKind", "")
        event.note("dstKind", memory.get(target, target), "nsys: dstKind", "")
        events.append(event)
    for *where, size, value in db.rows(MEMSET, *_WHERE, "bytes", "value"):
        event = _event(db, "fill", "[CUDA memset]", where)
        event.note("bytes", size, "nsys: bytes")
        event.note("value", value, "nsys: value", "")
        events.append(event)
    return events


def _size(parts: Any) -> tuple[int, ...] | None:
    return None if None in parts else tuple(parts)


def _calls(db: Tables) -> list[Event]:
    events = []
    for table in CALLS:
        rows = db.rows(table, "start", "end", "globalTid", "correlationId", "nameId", "returnValue")
        for start, end, thread, correlation, name, result in rows:
            named = db.text(name) or "?"
            event = Event(call_kind(named), named, start, end, _thread(thread), "", _process(thread), correlation)
            if result:
                event.note("returnValue", result, "nsys: returnValue", "")
            events.append(event)
    return events


def _thread(number: int | None) -> str:
    return "thread ?" if number is None else f"thread {number & 0xFFFFFF}"


def _ranges(db: Tables) -> list[Event]:
    """Ranges of NVTX; a mark is one without length, an open range has no end."""
    events = []
    for start, end, kind, text, number, thread in db.rows(
        "NVTX_EVENTS", "start", "end", "eventType", "text", "textId", "globalTid"
    ):
        if kind in (_PUSHED, _RANGE, _MARK):
            name = text if text is not None else db.text(number)
            until = start if kind == _MARK else end
            events.append(Event("range", name or "?", start, until, _thread(thread), "", _process(thread)))
    return events


def _overhead(db: Tables) -> list[Event]:
    rows = db.rows("PROFILER_OVERHEAD", "start", "end", "nameId", "globalTid")
    return [
        Event("overhead", db.text(name) or "?", start, end, _thread(thread), "", _process(thread))
        for start, end, name, thread in rows
    ]


def _end_at_zero(events: list[Event]) -> list[str]:
    """Work and calls that the database gives no end."""
    vague = [event for event in events if event.kind != "range" and event.start is not None and not event.end]
    for event in vague:
        event.end = None
    open_ = sum(event.kind == "range" and event.end is None for event in events)
    remarks = [f"{len(vague):,} events have no end: the profile stopped before they did; in no total"] if vague else []
    return remarks + ([f"{open_:,} ranges of NVTX were not closed"] if open_ else [])


def _missing(db: Tables, events: list[Event]) -> list[str]:
    """What the database says nothing of, and why that may be."""
    remarks = []
    found = Counter(event.kind for event in events)
    if GRAPH in db.names:
        remarks.append("graphs were recorded whole; --cuda-graph-trace=node shows the kernels in them")
    if not found["kernel"] and found["launch"]:
        remarks.append(
            "launches, but no kernels: what the GPU did is unknown. Trace with --trace=cuda, with "
            "--cuda-graph-trace=node for graphs, and let the program end before the profile does"
        )
    elif not found["kernel"]:
        remarks.append(
            f"no kernel was recorded; the tables are {', '.join(sorted(db.names))}; profile with --trace=cuda"
        )
    untied = _untied(events)
    if untied:
        remarks.append(f"{untied:,} events of the GPU were launched by a call that is not recorded")
    if "ENUM_CUDA_MEMCPY_OPER" not in db.names and found["copy"]:
        remarks.append("the export does not name the kinds of copies: those other than 1 and 2 are left as numbers")
    levels = db.labels("ENUM_DIAGNOSTIC_SEVERITY_LEVEL")
    said = [text for severity, text in db.rows("DIAGNOSTIC_EVENT", "severity", "text") if levels.get(severity) in _BAD]
    return remarks + [f"nsys says: {text}" for text in dict.fromkeys(str(text).strip() for text in said)]


_BAD = ("Warning", "Error", "Fatal")


def _untied(events: list[Event]) -> int:
    tied = {(event.process, event.correlation) for event in events if event.kind in ("launch", "sync", "api")}
    return (
        sum(event.kind in ON_GPU and (event.process, event.correlation) not in tied for event in events) if tied else 0
    )


def _left_out(db: Tables) -> list[str]:
    """Tables of events that this reader has no kind for."""
    others = [
        f"{name} ({rows:,})"
        for name in sorted(db.names)
        if name not in READ and {"start", "end"} <= set(db.columns(name)) and (rows := db.count(name))
    ]
    return [f"tables that were not read, with their rows: {', '.join(others)}"] if others else []


def _devices(db: Tables) -> dict[str, Device]:
    return {str(row["id"]): _device(row) for row in db.dicts("TARGET_INFO_GPU") if row.get("id") is not None}


def _device(row: Mapping[str, Any]) -> Device:
    major, minor = row.get("computeMajor"), row.get("computeMinor")
    target = None if major is None or minor is None else f"sm_{major}{minor}"
    return Device(str(row.get("name") or "?"), "nvidia", target, row.get("smCount"), row.get("threadsPerWarp") or 32)
