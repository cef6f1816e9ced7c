"""What `ncu --csv` prints, in long form (a row a metric) and wide form (`--page raw`, a column a metric).

Columns: Nsight Compute CLI, "Command Line Options"; old headers and labels as outputs of 2019 to 2025 show them.
Times and bytes become ns and bytes whatever the unit of the row; factors are 1000. What a metric is called in sections
("Duration") maps to the same column as its full name. A pasted second table counts on after the first.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any

from gpu_utils.errors import ProfileUnreadable
from gpu_utils.profiling.columns import COLUMNS, NCU, NCU_LABELS
from gpu_utils.profiling.files import Opened
from gpu_utils.profiling.ncu_lines import SAID, Table, header, parse
from gpu_utils.profiling.profile import Device, Event, Figure, Origin, Profile
from gpu_utils.profiling.written import Convention, convention, lines_of, missing, number, unit_of

FORM = "ncu --csv"

_LAUNCH = (
    "ID",
    "Process ID",
    "Process Name",
    "Host Name",
    "Kernel Name",
    "Kernel Time",
    "Context",
    "Stream",
    "Block Size",
    "Grid Size",
    "Device",
    "CC",
)
_LONG = ("Section Name", "Metric Name", "Metric Unit", "Metric Value")
_RULES = ("Rule Name", "Rule Type", "Rule Description", "Estimated Speedup Type", "Estimated Speedup")
_RANGE = re.compile(r"(Push/Pop|Start/Stop|Start/End)_Range")
_TAIL = re.compile(r'"\d+","\d+","[^"]*","[^"]*",".*","\(?\d+, ?\d+, ?\d+\)?",')
_FULL_NAME = re.compile(r"\b[a-z0-9]+__\w[\w.]*")
_SOURCE = re.compile(
    r'(?m)^"?#"?,.*"?Source"?,|^"?(Line No|#)"?,"?(Address|Source)"?,|"?# Samples|"Warp Stall Sampling'
)
_TWICE = "metrics that stand twice with different values, both kept"
_OUT_OF_RANGE = 110  # %; ncu's shares may pass 100 by a little, because passes differ


def fits(found: Opened) -> bool:
    if found.is_database:
        return False
    text = found.text
    lines = lines_of(text)
    if any(SAID.match(line) for line in lines) or "ERR_NVGPUCTRPERM" in text:
        return True
    return any(header(line) for line in lines) or bool(_refused(lines))


def read(found: Opened) -> Profile:
    """One event a launch. Raises ProfileUnreadable when there is no table, or one of another page."""
    text = found.text
    lines = parse(text)
    if not lines.tables:
        raise ProfileUnreadable(found.path, _why_no_table(lines.cause, lines_of(text)))
    if not any(table.rows for table in lines.tables) and lines.cause:
        raise ProfileUnreadable(found.path, f"holds no launch: {lines.cause}")
    reading = _Reading(_convention(lines.tables))
    for part, table in enumerate(lines.tables):
        reading.table(table, part)
    remarks = [*found.remarks, *lines.notable, *reading.remarks]
    if not reading.events:
        remarks.append("the table has no row: no launch was recorded")
    if lines.rules:
        remarks.append(f"rows of ncu's rules (advice, no figures), left out: {lines.rules}")
    if lines.outside:
        remarks.append(f"lines in no table (the program's own output), left out: {len(lines.outside)}")
    if lines.cut:
        remarks.append("the last row is cut short and was left out")
    forms = {"long" if table.long else "wide" for table in lines.tables}
    origin = Origin(found.path, "ncu", f"csv, {' and '.join(sorted(forms))} form", "", tuple(remarks))
    return Profile(list(reading.events.values()), [origin], reading.devices)


def _why_no_table(cause: str | None, lines: list[str]) -> str:
    if cause:
        return f"holds no table: {cause}"
    if refused := _refused(lines):
        return refused
    return (
        "is an output of ncu without a table: give --csv; after -o, which prints nothing, "
        "export with ncu --import FILE.ncu-rep --csv --page raw"
    )


def _refused(lines: list[str]) -> str | None:
    """Outputs of ncu that hold no figures of launches, told by their first lines."""
    first = [line for line in lines if line.strip() and not SAID.match(line)][:12]
    if any("Invocations" in line and "Metric Name" in line for line in first):
        return "is a summary (ncu --print-summary) without single launches; export with --print-summary none"
    if any(re.match(r'"?Kernel Name"?,', line) or _SOURCE.search(line) for line in first) and any(
        _SOURCE.search(line) for line in first
    ):
        return "is ncu's source page, not a table of metrics; export with --page raw"
    if first and _TAIL.match(first[0]):
        return 'has rows of ncu and no header, so nobody can tell its columns; keep the line that begins with "ID"'
    return None


def _convention(tables: list[Table]) -> Convention:
    texts: list[str] = []
    for table in tables:
        if table.long:
            texts += [table.has(row, "Metric Value") for row in table.rows]
        else:
            at = [i for i, name in enumerate(table.names) if _is_metric(name)]
            texts += [row[i] for row in table.rows for i in at]
    return convention(piece for text in texts for piece in re.split(r"; ?", text))


def _is_metric(name: str) -> bool:
    return bool(name) and name not in (*_LAUNCH, *_LONG, *_RULES) and not _RANGE.search(name)


@dataclass
class _Reading:
    """What is known while rows are read. numbers: how they are written; offset: added to IDs of a later table."""

    numbers: Convention
    events: dict[tuple[int | None, int], Event] = field(default_factory=dict)
    devices: dict[str, Device] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    offset: int = 0
    beyond: tuple[float, str] = (0.0, "")

    def table(self, table: Table, part: int) -> None:
        if part:
            self.offset = 1 + max((event.number or 0 for event in self.events.values()), default=-1)
            self._count("tables pasted below the first, whose launches count on after those before")
        unitless = not table.long and table.units is None and bool(table.rows)
        if unitless:
            self._count(
                "tables without their row of units, where times and bytes stay under ncu's names and are not summed"
            )
        metrics = [(i, name) for i, name in enumerate(table.names) if _is_metric(name)]
        for row in table.rows:
            event = self._event(table, row)
            if table.long:
                unit = table.has(row, "Metric Unit")
                section = table.has(row, "Section Name")
                self._metric(event, table.has(row, "Metric Name"), unit, table.has(row, "Metric Value"), section)
            else:
                for i, name in metrics:
                    self._metric(event, name, None if unitless else (table.units or row)[i], row[i], "")

    def _event(self, table: Table, row: list[str]) -> Event:
        process = table.has(row, "Process ID")
        identity = int(process) if process.isdigit() else None, int(table.has(row, "ID")) + self.offset
        if identity in self.events:
            return self.events[identity]
        stream, device = table.has(row, "Stream"), table.has(row, "Device")
        event = Event(
            "kernel",
            " ".join(table.has(row, "Kernel Name").split()),
            lane=f"stream {stream}" if stream else "",
            device=device or "0",
            process=identity[0],
            number=identity[1],
        )
        for name, column in (("Grid Size", "grid"), ("Block Size", "block")):
            sizes = [int(size) for size in re.findall(r"\d+", table.has(row, name))]
            if sizes:
                event.note(column, (*sizes, 1, 1)[:3], f"ncu: {name}")
        for name in table.names:
            if (_RANGE.search(name) or name == "Kernel Time") and table.has(row, name):
                event.note(name, table.has(row, name), f"ncu: {name}")
        self._device(event.device, table.has(row, "CC"), table.has(row, "Host Name"))
        self.events[identity] = event
        return event

    def _device(self, name: str, capability: str, host: str) -> None:
        if name not in self.devices:
            found = re.fullmatch(r"(\d+)\.(\d+)", capability)
            target = f"sm_{found[1]}{found[2]}" if found else None
            known = host.lower().startswith("virtual")
            label = f"virtual {target or 'GPU'}" if known else f"GPU {name}"
            self.devices[name] = Device(label, "nvidia", target, None, 32, known)

    def _metric(self, event: Event, name: str, unit: str | None, text: str, section: str) -> None:
        """One value of one metric. unit None: the file does not say it."""
        if missing(text):
            if text.strip():
                self._count("values that are not there (n/a)")
            return
        whole, instances = self._value(text)
        base, factor = ("", 1.0) if unit is None else unit_of(unit)
        full = found[0] if (found := _FULL_NAME.search(name)) else NCU_LABELS.get(name, "")
        counter = NCU.get(full)
        value = _scaled(whole, factor)
        if base == "%" and isinstance(value, int | float) and value > max(self.beyond[0], _OUT_OF_RANGE):
            self.beyond = value, name
        source = f"ncu: {name}"
        if full.startswith("device__attribute_multiprocessor_count") or name in ("# SMs", "launch__sm_count"):
            self._describe(event, units=value)
        if full.startswith("device__attribute_display_name"):
            self._describe(event, name=text.strip())
        if counter is not None and _same_kind(COLUMNS[counter.column].unit, base) and not isinstance(value, list | str):
            scaled = _scaled(value, counter.factor)
            held = event.figures.setdefault(counter.column, Figure(scaled, COLUMNS[counter.column].unit, source))
            if _equal(held, Figure(scaled, held.unit, source)):
                name = ""
            elif held.source == source:
                self._count(_TWICE)
        if name:
            self._own(event, name, Figure(value, base, source), section)
        if instances is not None:
            event.figures[f"{full or name} of each"] = Figure(instances, base, source)

    def _value(self, text: str) -> tuple[Any, Any]:
        """The value, and those of its instances where both are given: "720 (240; 240; 240)"."""
        decimal = self.numbers.decimal
        single = number(text, decimal)
        if single is not None:
            return single, None
        around = re.fullmatch(r"(\S[^(;]*?) *\((.*)\)", text.strip())
        if around and (first := number(around[1], decimal)) is not None:
            return first, _instances(around[2], decimal) or around[2]
        return _instances(text, decimal) or text.strip(), None

    def _own(self, event: Event, name: str, figure: Figure, section: str) -> None:
        """Under the tool's name; with its unit or section behind where that name is taken by something else."""
        held = event.figures.get(name)
        if held is None or _equal(held, figure):
            event.figures.setdefault(name, figure)
        elif held.unit != figure.unit:
            event.figures.setdefault(f"{name} ({figure.unit or section or 'no unit'})", figure)
        else:
            self._count(_TWICE)
            event.figures[f"{name} ({section or 'again'})"] = figure

    def _describe(self, event: Event, **what: Any) -> None:
        old = self.devices[event.device]
        self.devices[event.device] = Device(
            what.get("name", old.name), old.vendor, old.target, what.get("units", old.units), old.lanes, old.virtual
        )

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    @property
    def remarks(self) -> list[str]:
        said = [f"{what}: {many}" for what, many in self.counts.items()]
        if self.numbers.doubtful:
            said.append(
                f"{self.numbers.doubtful} may be a number with a decimal point or, from a European system, thousands: "
                "nothing here tells; it was read with a decimal point; run ncu with LC_ALL=C"
            )
        if self.numbers.both:
            said.append("numbers of two conventions (1,215.5 and 1.215,5) are mixed; all were read as the first")
        if self.beyond[1]:
            said.append(f"a share is above 100 %: {self.beyond[1]} = {self.beyond[0]:g}; its passes differed")
        return said


def _same_kind(column: str, base: str) -> bool:
    """Whether a value in this base unit can stand in a column: times, bytes and shares must be just that."""
    if column in ("ns", "bytes"):
        return base.partition("/")[0] == column and not base.endswith("/s")
    return column != "%" or base not in ("ns", "bytes", "bytes/s")


def _scaled(value: Any, factor: float) -> Any:
    if isinstance(value, list):
        return [_scaled(one, factor) for one in value]
    if factor == 1 or not isinstance(value, int | float):
        return value
    scaled = value * factor
    near = round(scaled)
    return near if abs(scaled - near) < 1e-6 * max(1, abs(scaled)) and abs(near) < 2**53 else scaled


def _instances(text: str, decimal: str) -> list[Any] | None:
    """ "240; 240" and "0: 240; 1: 240" as numbers."""
    parts = [part.strip() for part in text.split(";") if part.strip()]
    if len(parts) < 2:
        return None
    values = [number(part.rpartition(":")[2], decimal) for part in parts]
    return None if None in values else values


def _equal(one: Figure, other: Figure) -> bool:
    """The same within rounding: a section prints two digits behind the point."""
    if isinstance(one.value, int | float) and isinstance(other.value, int | float):
        return one.unit == other.unit and math.isclose(one.value, other.value, rel_tol=5e-3, abs_tol=5e-3)
    return one == other or (one.value, one.unit) == (other.value, other.unit)
