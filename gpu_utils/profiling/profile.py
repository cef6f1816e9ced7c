"""What every reader makes of a file: events with figures, each with its unit and its source.

Times are whole nanoseconds on the clock of the file. A figure that the tool did not write is not there:
`event.value("registers")` is None. One that this library does not know is kept under the tool's own name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gpu_utils.profiling.columns import COLUMNS

if TYPE_CHECKING:
    import pandas

KINDS = ("kernel", "copy", "fill", "launch", "sync", "api", "op", "range", "overhead")
"""On the GPU: kernel, copy, fill. On the host: launch (a call that starts work on the GPU), sync (one that waits for
it), api (any other call of the runtime), op (an operator of torch), range (of NVTX, roctx, torch), overhead (the
profiler's own)."""

ON_GPU = ("kernel", "copy", "fill")

LEFT_OUT = "left out"
"""Form of an origin that no reader could use, beside others that could be read."""

_NOT_WHOLE = ("is cut short", "has no end", "damaged")
"""Words in a remark on a file of which only a part could be read."""


@dataclass(frozen=True)
class Figure:
    """One figure of an event.

    value   a number, a text, a list of numbers where a tool gives one for each instance
    unit    of this library: "ns", "bytes", "%", "FLOP", ...; "" where it has none, or where the tool did not say
    source  which file of which tool, and its name there: "ncu: dram__bytes.sum"; a derived one: its formula, "= ..."
    """

    value: Any
    unit: str
    source: str


@dataclass
class Event:
    """One thing that happened: on the GPU or on the host.

    kind         one of KINDS
    name         of the kernel, call, operator or range, as people read it (demangled, without .kd)
    start, end   ns; None where the tool gave no times (counters alone), or gave impossible ones
    lane         what it is in order with: "stream 7", "queue 1", "thread 4242"
    device       GPU as the tool names it; "" for the host
    process      its number, or None
    correlation  ties a launch on the host to its work on the GPU, within one process
    number       the tool's own count of dispatches (ncu's ID, rocprofv3's Dispatch_Id); None without one
    figures      name -> Figure; names of COLUMNS, or the tool's own for what is not in that table
    """

    kind: str
    name: str
    start: int | None = None
    end: int | None = None
    lane: str = ""
    device: str = ""
    process: int | None = None
    correlation: int | None = None
    number: int | None = None
    figures: dict[str, Figure] = field(default_factory=dict)

    @property
    def duration(self) -> int | None:
        """ns; None without times. A figure "duration" of a tool that gives no start (ncu) counts."""
        if self.start is not None and self.end is not None:
            return self.end - self.start
        return self.value("duration")

    def value(self, name: str) -> Any:
        """The value of a figure, or None."""
        found = self.figures.get(name)
        return None if found is None else found.value

    def note(self, name: str, value: Any, source: str, unit: str | None = None) -> None:
        """Add a figure; None is no figure. unit: that of COLUMNS unless given."""
        if value is not None:
            known = COLUMNS[name].unit if name in COLUMNS else ""
            self.figures[name] = Figure(value, known if unit is None else unit, source)


@dataclass(frozen=True)
class Device:
    """A GPU as a profile describes it; None for what it does not say.

    vendor  "nvidia" or "amd"; target: "sm_90", "gfx942"; units: SMs or CUs; lanes: of a warp or wavefront
    virtual the figures are of a virtual GPU
    parts   XCCs (AMD): what a counter of the whole GPU is the sum of, cycles too
    """

    name: str
    vendor: str | None = None
    target: str | None = None
    units: int | None = None
    lanes: int | None = None
    virtual: bool = False
    parts: int | None = None


@dataclass(frozen=True)
class Origin:
    """A file that was read.

    path     as it was given; tool: "torch.profiler", "ncu", "nsys", "rocprofv3", "rocprof"
    form     "Chrome trace", "csv, long form", "sqlite", ...
    version  as the file says, or ""
    remarks  what the reader found odd: one sentence each. Nothing is left out without one.
    """

    path: str
    tool: str
    form: str
    version: str = ""
    remarks: tuple[str, ...] = ()


@dataclass
class Profile:
    """What one or several files say.

    events   in the order of the file
    origins  the files
    devices  name of a device, as in Event.device, -> Device
    serial   devices whose times were taken while counters were collected, one kernel at a time
    """

    events: list[Event] = field(default_factory=list)
    origins: list[Origin] = field(default_factory=list)
    devices: dict[str, Device] = field(default_factory=dict)
    serial: set[str] = field(default_factory=set)

    def of(self, *kinds: str) -> list[Event]:
        """Events of some kinds, those with a start in its order and before those without."""
        found = [event for event in self.events if event.kind in kinds]
        return sorted(found, key=lambda event: (event.start is None, event.start or 0))

    @property
    def kernels(self) -> list[Event]:
        return self.of("kernel")

    @property
    def remarks(self) -> list[str]:
        """What readers found odd, with the file's name before it."""
        return [f"{origin.path}: {remark}" for origin in self.origins for remark in origin.remarks]

    @property
    def partial(self) -> list[str]:
        """Files of which a part was read, each with the remark on what is missing: "a.json (the file is cut short)"."""
        found = []
        for origin in self.origins:
            cut = [remark for remark in origin.remarks if any(word in remark for word in _NOT_WHOLE)]
            if cut and origin.form != LEFT_OUT:
                found.append(f"{origin.path} ({'; '.join(cut)})")
        return found

    @property
    def virtual(self) -> bool:
        """Whether a virtual GPU made any of it."""
        return any(device.virtual for device in self.devices.values())

    def table(self, kinds: Iterable[str] = ("kernel",), *, sources: bool = False) -> pandas.DataFrame:
        """One row for each launch of a kernel (or event of other kinds); see gpu_utils.profiling.frame.

        Columns are those of COLUMNS that any row has, in that order, then the tools' own. Nothing known is <NA>.
        `table.attrs["units"]` holds the unit of each column. sources: beside each figure's column one "source of ..."
        """
        from gpu_utils.profiling.frame import table

        return table(self.of(*kinds), sources=sources)

    def figures(self, kinds: Iterable[str] = ("kernel",)) -> pandas.DataFrame:
        """The same in long form, one row a figure: row (of `table`), name, figure, value, unit, source."""
        from gpu_utils.profiling.frame import figures

        return figures(self.of(*kinds))


def vendor_of(devices: Mapping[str, Device], name: str) -> str | None:
    """ "nvidia", "amd", or None where the profile does not say."""
    return devices[name].vendor if name in devices else None
