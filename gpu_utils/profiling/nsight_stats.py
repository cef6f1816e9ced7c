"""Reports of `nsys stats --format csv`: one or several in a file, between lines that say what nsys did.

Names of columns: NVIDIA, Nsight Systems User Guide. The unit of a column stands in its header and nowhere else
(`--timeunit` changes it). MB are 1,000,000 bytes with three decimals, so sizes of shared memory are rounded to 1,000.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from gpu_utils.chips import chip_of_device
from gpu_utils.errors import ProfileUnreadable
from gpu_utils.profiling.calls import call_kind, direction
from gpu_utils.profiling.files import Opened
from gpu_utils.profiling.nsight_sheets import Row, Sheet, is_header, sheets
from gpu_utils.profiling.plausible import without_impossible
from gpu_utils.profiling.profile import ON_GPU, Device, Event, Origin, Profile

FORM = "reports of nsys stats (csv)"

_PRINTED = re.compile(r"^\s*\*\* .*\((\w+)\):\s*$", re.MULTILINE)
_SKIPPED = re.compile(r"^SKIPPED: .*$", re.MULTILINE)
_FIRST = 400  # lines in which a header is looked for
_DEVICE = re.compile(r"^(.*?)\s*\((\d+)\)$")


def fits(found: Opened) -> bool:
    """Text with a header whose columns carry units, or with the words of nsys stats."""
    if found.is_database or found.data.lstrip()[:1] in (b"{", b"["):
        return False
    text = found.text
    if _SKIPPED.search(text) or _PRINTED.search(text):
        return True
    return any(is_header(line) for line in text.splitlines()[:_FIRST])


def read(found: Opened) -> Profile:
    """Events of all reports: launches one by one from traces, sums from summaries.

    Raises ProfileUnreadable for the table that nsys prints for people, and where no report holds a row.
    """
    events: list[Event] = []
    names, others = [], []
    skipped = [line.removeprefix("SKIPPED: ").strip() for line in _SKIPPED.findall(found.text)]
    for sheet in sheets(found):
        reader = next((reader for fit, reader in _READERS if fit(sheet)), None)
        if reader is None:
            others.append(f"{sheet.name or ', '.join(sheet.labels[:3])} ({len(sheet.rows):,} rows)")
        else:
            names.append(sheet.name or reader.__name__.lstrip("_"))
            events += reader(sheet)
            found.remarks += _shares(sheet)
    if not events:
        raise ProfileUnreadable(found.path, _why_nothing(found, skipped, others))
    process = {event.process for event in events} - {None}
    for event in events:
        if event.kind in ON_GPU and len(process) == 1:
            (event.process,) = process
    events, doubles = _without_doubles(events)
    remarks = [
        *found.remarks,
        *doubles,
        *without_impossible(events),
        *(f"nsys says: skipped, {why}" for why in skipped),
    ]
    if others:
        remarks.append(f"reports that were not read: {', '.join(others)}")
    if not any(event.kind == "kernel" for event in events):
        remarks.append("no kernels in these reports; they are in: nsys stats --report cuda_gpu_trace --format csv")
    origin = Origin(found.path, "nsys", f"csv: {', '.join(dict.fromkeys(names))}", "", tuple(remarks))
    return Profile(events, [origin], _devices(events))


def _why_nothing(found: Opened, skipped: list[str], others: list[str]) -> str:
    if skipped:
        return f"holds no row, because {skipped[0]}; profile again with --trace=cuda, or ask for another --report"
    if others:
        return (
            f"holds no report that is read here ({', '.join(others)}); ask for --report cuda_gpu_trace,cuda_api_trace"
        )
    printed = _PRINTED.search(found.text)
    if printed:
        return f"is what nsys stats prints for people; ask for csv: nsys stats --report {printed.group(1)} --format csv"
    return "holds a header of nsys stats and no row: nothing was recorded; profile again with --trace=cuda"


def _figures(event: Event, row: Row, *known: str) -> None:
    """The columns that have no reader here, under nsys's own names; times in ns."""
    for label in row.sheet.labels:
        if label.lower() not in known and (value := row.value(label)) is not None:
            event.note(label, value, f"nsys stats: {label}", row.sheet.unit(label))


_CALLS = ("instances", "num calls", "calls", "count")


def _sum(event: Event, row: Row) -> Event:
    event.note("calls", row.whole(*_CALLS), "nsys stats: number of calls")
    event.note("duration", row.whole("total time"), "nsys stats: Total Time, of all calls")
    known = (
        "name",
        "operation",
        "range",
        "instances",
        "num calls",
        "count",
        "total time",
        "gridxyz",
        "blockxyz",
        "total",
    )
    _figures(event, row, *known)
    return event


def _kernel_sums(sheet: Sheet) -> Iterable[Event]:
    for row in sheet.rows:
        event = _sum(Event("kernel", row.text("name")), row)
        event.note("grid", row.size("gridxyz"), "nsys stats: GridXYZ")
        event.note("block", row.size("blockxyz"), "nsys stats: BlockXYZ")
        yield event


def _call_sums(sheet: Sheet) -> Iterable[Event]:
    for row in sheet.rows:
        name = row.text("name")
        yield _sum(Event(call_kind(name), name), row)


def _range_sums(sheet: Sheet) -> Iterable[Event]:
    for row in sheet.rows:
        yield _sum(Event("range", row.text("range")), row)


def _memory_sums(sheet: Sheet) -> Iterable[Event]:
    """Times of copies, in another report their sizes, in a third with those of kernels."""
    for row in sheet.rows:
        name = row.text("operation")
        other = "kernel" if row.text("category") == "CUDA_KERNEL" else "copy"
        event = _sum(Event(_memory_kind(name) or other, name), row)
        event.note("direction", direction(name), "nsys stats: Operation")
        event.note("bytes", row.whole("total"), "nsys stats: Total, of all calls")
        yield event


def _memory_kind(name: str) -> str | None:
    return "copy" if name.startswith("[CUDA memcpy") else "fill" if name.startswith("[CUDA memset") else None


def _spans(row: Row) -> tuple[int | None, int | None]:
    start, duration = row.whole("start"), row.whole("duration")
    return start, None if start is None or duration is None else start + duration


def _work(sheet: Sheet) -> Iterable[Event]:
    for row in sheet.rows:
        name, device = row.text("name"), _DEVICE.match(row.text("device"))
        start, end = _spans(row)
        event = Event(_memory_kind(name) or "kernel", name, start, end, f"stream {row.text('strm') or '?'}")
        event.device = device.group(2) if device else row.text("device")
        event.correlation = row.whole("corrid")
        event.note("grid", row.size("grdx", "grdy", "grdz"), "nsys stats: GrdX, GrdY, GrdZ")
        event.note("block", row.size("blkx", "blky", "blkz"), "nsys stats: BlkX, BlkY, BlkZ")
        event.note("registers", row.whole("reg/trd"), "nsys stats: Reg/Trd")
        static, dynamic = row.number("stcsmem"), row.number("dymsmem")
        if static is not None and dynamic is not None:
            event.note("shared_bytes", round(static + dynamic), "nsys stats: StcSMem + DymSMem, rounded there")
        event.note("bytes", row.whole("bytes"), "nsys stats: Bytes, rounded there")
        if event.kind == "copy":
            event.note("direction", direction(name), "nsys stats: Name")
        for label in ("Throughput", "SrcMemKd", "DstMemKd"):
            event.note(label, row.value(label), f"nsys stats: {label}", sheet.unit(label))
        event.note("device name", device.group(1) if device else None, "nsys stats: Device", "")
        yield event


def _calls(sheet: Sheet) -> Iterable[Event]:
    for row in sheet.rows:
        name = row.text("name")
        start, end = _spans(row)
        event = Event(call_kind(name), name, start, end, f"thread {row.text('tid') or '?'}", "", row.whole("pid"))
        event.correlation = row.whole("corrid")
        if row.whole("result"):
            event.note("Result", row.whole("result"), "nsys stats: Result", "")
        yield event


def _ranges(sheet: Sheet) -> Iterable[Event]:
    for row in sheet.rows:
        start, end = _spans(row)
        lane = f"thread {row.text('tid') or '?'}"
        yield Event("range", row.text("name") or "?", start, end, lane, "", row.whole("pid"))


_READERS: tuple[tuple[Callable[[Sheet], bool], Callable[[Sheet], Iterable[Event]]], ...] = (
    (lambda sheet: sheet.has("start", "duration", "name", "grdx"), _work),
    (lambda sheet: sheet.has("start", "duration", "name", "corrid"), _calls),
    (lambda sheet: sheet.has("start", "end", "duration", "name"), _ranges),
    (lambda sheet: sheet.has("total time", "instances", "name"), _kernel_sums),
    (lambda sheet: sheet.has("total time", "name") and sheet.has_any("num calls", "calls"), _call_sums),
    (lambda sheet: sheet.has("total time", "instances", "range"), _range_sums),
    (lambda sheet: sheet.has("operation") and sheet.has_any("total time", "total"), _memory_sums),
)
"""Columns that a report has -> what reads it, the first that fits."""


def _shares(sheet: Sheet) -> list[str]:
    """Shares are of the rows of a report: a sum far from 100 shows that rows are missing."""
    shares = [share for row in sheet.rows if (share := row.number("time")) is not None] if sheet.has("time") else []
    if not shares or 95 <= sum(shares) <= 105:
        return []
    what = sheet.name or "a report"
    return [f"the shares of time in {what} add up to {sum(shares):.0f} %, not 100: rows were cut off or filtered out"]


def _without_doubles(events: list[Event]) -> tuple[list[Event], list[str]]:
    """Sums of what a trace in the same file gives one by one go; times and sizes of copies become one event."""
    single = {event.kind for event in events if "calls" not in event.figures}
    kept: list[Event] = []
    sums: dict[tuple[str, str], Event] = {}
    left = 0
    for event in events:
        if "calls" not in event.figures:
            kept.append(event)
        elif event.kind in single:
            left += 1
        elif event.kind in ("copy", "fill") and (event.kind, event.name) in sums:
            other = sums[event.kind, event.name]
            other.figures |= {name: figure for name, figure in event.figures.items() if name not in other.figures}
        else:
            sums[event.kind, event.name] = event
            kept.append(event)
    remarks = [f"{left:,} sums of what the traces in this file give one by one were left out"] if left else []
    if sums:
        remarks.append("sums only: no order of launches, no gaps, no overlap; those are in cuda_gpu_trace")
    return kept, remarks


def _devices(events: list[Event]) -> dict[str, Device]:
    """Names stand in the rows; they are of the GPU and no figure of a launch."""
    found: dict[str, Device] = {}
    for event in events:
        named = event.figures.pop("device name", None)
        if event.device and event.device not in found:
            name = event.device if named is None else str(named.value)
            chip = chip_of_device(name)
            found[event.device] = Device(name, "nvidia", chip.target if chip else None, None, 32)
    return found
