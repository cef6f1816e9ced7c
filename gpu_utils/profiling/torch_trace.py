"""Traces of torch.profiler: CUDA's, and ROCm's of three generations, which leave more or less to the launching call.

The file is pytorch/kineto's (libkineto/src: output_json.cpp; what an event says: CuptiActivity.cpp, and for AMD
RoctracerActivity_inl.h and RocprofActivity_inl.h). Times are microseconds with three decimals, so whole nanoseconds.
`grid` counts blocks, also on AMD.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from decimal import Decimal
from functools import cached_property
from typing import Any

from gpu_utils.errors import ProfileUnreadable
from gpu_utils.profiling.calls import HIP_KINDS, call_kind, direction
from gpu_utils.profiling.chrome import Chrome, clean, parsed
from gpu_utils.profiling.counted import counted
from gpu_utils.profiling.files import Opened
from gpu_utils.profiling.plausible import without_impossible
from gpu_utils.profiling.profile import ON_GPU, Event, Origin, Profile
from gpu_utils.profiling.quick import uncollected
from gpu_utils.profiling.recording import SAW
from gpu_utils.profiling.torch_args import external, from_launch, noted, whole
from gpu_utils.profiling.torch_devices import devices

FORM = "traces of torch.profiler (Chrome JSON)"

KIND = {
    **dict.fromkeys(("kernel", "Kernel"), "kernel"),
    **dict.fromkeys(("gpu_memcpy", "Memcpy"), "copy"),
    **dict.fromkeys(("gpu_memset", "Memset"), "fill"),
    **dict.fromkeys(("cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver", "Runtime"), "call"),
    **dict.fromkeys(("cpu_op", "Operator"), "op"),
    **dict.fromkeys(("user_annotation", "gpu_user_annotation", "cuda_profiler_range"), "range"),
    "overhead": "overhead",
    "cuda_sync": "waiting",
}
"""Category of an event -> kind; "call" is settled by the call's name, "waiting" belongs to the call that waits."""

_BY_PLACE = {"CPU functions": "op", "CUDA functions": "kernel"}  # the old export has no categories
_KNOWN = frozenset({"Trace", "external_correlation"})
_PHASES = frozenset({"M", "s", "f", "t"})
_WINDOW = frozenset({"Spans", "Traces", ""})  # where the profiler began and ended, which may be days away
_LONGEST = 10**18  # ns: 30 years


def fits(found: Opened) -> bool:
    """JSON that holds traceEvents, or a list of events; not rocprofv3's."""
    if found.is_database:
        return False
    utf16 = found.data.startswith((b"\xff\xfe", b"\xfe\xff"))
    data = found.text.encode() if utf16 else found.data
    start = data[:65536].removeprefix(b"\xef\xbb\xbf").lstrip()
    if start.startswith(b"["):
        return b'"ph"' in start
    return start.startswith(b"{") and (b'"traceEvents"' in data or b'"schemaVersion"' in start)


def read(found: Opened) -> Profile:
    """Events with their figures; see the module. Raises ProfileUnreadable where there is no event of torch.profiler."""
    with uncollected():
        return _read(found)


def _read(found: Opened) -> Profile:
    trace = parsed(found)
    reading = _Reading(trace)
    for entry in trace.events:
        reading.take(entry)
    if not reading.events:
        seen = ", ".join(sorted(reading.unknown)) or "none at all"
        raise ProfileUnreadable(
            found.path,
            f"holds no event of torch.profiler (kinds of events in it: {seen}); keep the profiler on for a whole step, "
            "and call prof.step() where it has a schedule",
        )
    reading.tie()
    calls = [event for event in reading.events if event.kind in ("launch", "sync", "api")]
    named = devices(trace.head, {event.device for event in reading.events if event.device}, calls)
    remarks = [*found.remarks, *without_impossible(reading.events), *reading.remarks(calls)]
    version = f"schema {trace.head['schemaVersion']}" if "schemaVersion" in trace.head else ""
    return Profile(
        reading.events, [Origin(found.path, "torch.profiler", "Chrome trace", version, tuple(remarks))], named
    )


class _Reading:
    """The events of one file while they are read, and what ties them."""

    def __init__(self, trace: Chrome) -> None:
        self.events: list[Event] = []
        self.unknown: Counter[str] = Counter()
        self._args: dict[int, dict[str, Any]] = {}  # id of an event -> its args
        self._calls: dict[int, list[Event]] = defaultdict(list)  # correlation -> calls
        self._operators: dict[int, list[Event]] = defaultdict(list)  # External id -> operators
        self._waiting: list[dict[str, Any]] = []
        self._odd: Counter[str] = Counter()
        self._controlled = False
        self._entries = trace.events
        self._no_gpu = trace.head.get(SAW) == "no"

    def take(self, entry: dict[str, Any]) -> None:
        """One entry of the file as an event, or counted as what it is."""
        phase, category, pid = entry.get("ph", "M"), str(entry.get("cat")), str(entry.get("pid"))
        if phase != "X":
            if str(phase) not in _PHASES and pid not in _WINDOW:
                self.unknown[f"ph {phase!r}"] += 1
            return
        kind = KIND.get(category) if "cat" in entry else _BY_PLACE.get(pid)
        if kind is None:
            if category not in _KNOWN:
                self.unknown[category] += 1
            return
        args = entry.get("args")
        args = args if isinstance(args, dict) else {}
        start, duration = self._ns(entry.get("ts")), self._ns(entry.get("dur"))
        if start is None:
            self._odd["without a time, left out"] += 1
            return
        if kind == "waiting":
            self._waiting.append(args)
            return
        name = str(entry.get("name", "?"))
        if not name.isprintable():
            raw, name = name, clean(name)
            self._controlled = self._controlled or name != raw
        if kind == "call":
            kind = call_kind(name)
        event = Event(kind, name, start, None if duration is None else start + duration)
        self._place(event, entry, args)
        noted(event, args)
        self.events.append(event)
        self._args[id(event)] = args
        if kind == "op" and (number := external(args)) is not None:
            self._operators[number].append(event)
        elif kind in ("launch", "sync", "api") and event.correlation is not None:
            self._calls[event.correlation].append(event)
        elif kind == "copy":
            event.note("direction", direction(name), "torch: name")

    def _place(self, event: Event, entry: dict[str, Any], args: dict[str, Any]) -> None:
        pid, tid = entry.get("pid"), entry.get("tid")
        event.correlation = whole(args.get("correlation"))
        if event.kind in ON_GPU or entry.get("cat") in ("gpu_user_annotation", "cuda_profiler_range"):
            stream, device = args.get("stream", tid), args.get("device", pid)
            event.lane = str(stream) if str(stream).startswith("stream") else f"stream {stream}"
            event.device = "?" if device is None else str(device)
            if event.correlation is None and event.kind in ON_GPU:
                event.correlation = self._flows.get((str(pid), str(tid), str(entry.get("ts"))))
        else:
            event.lane, event.process = f"thread {tid}", whole(pid)

    @cached_property
    def _flows(self) -> dict[tuple[str, str, str], int | None]:
        """Where an arrow ends -> its number, a correlation: all that the first traces of ROCm tie a kernel by."""
        return {
            (str(entry.get("pid")), str(entry.get("tid")), str(entry.get("ts"))): whole(entry.get("id"))
            for entry in self._entries
            if entry.get("ph") == "f"
        }

    def _ns(self, value: Any) -> int | None:
        """Microseconds as they stand in the file -> whole ns; None without a number."""
        if isinstance(value, str):
            try:
                value = Decimal(value.strip())
            except ArithmeticError:
                return None
            self._odd["with times as text, read as numbers"] += 1
        if isinstance(value, Decimal):
            return round(value * 1000) if value.is_finite() and -_LONGEST < value < _LONGEST else None
        return value * 1000 if isinstance(value, int) and abs(value) < _LONGEST else None

    def tie(self) -> None:
        """Work to the call that launched it, and to the operator around that."""
        hosts = {event.process for event in self.events if event.process is not None}
        for event in self.events:
            if event.kind not in ON_GPU:
                continue
            calls = self._calls.get(event.correlation, []) if event.correlation is not None else []
            if len({call.process for call in calls}) > 1:
                self._odd[
                    "with a correlation that several processes gave, tied to no launch: give one file a process"
                ] += 1
                continue
            call = next((call for call in calls if call.kind != "api"), calls[0] if calls else None)
            event.process = call.process if call else next(iter(hosts)) if len(hosts) == 1 else None
            if call is None:
                self._odd["of the GPU launched by a call that is not recorded"] += 1
            else:
                self._fill(event, self._args[id(call)])
            self._operator(event, call)
        self._wait()

    def _fill(self, event: Event, args: dict[str, Any]) -> None:
        if event.kind == "kernel":
            from_launch(event, args, ("grid", "block", "shared memory"))
            return
        from_launch(event, args, ("bytes", "size"))
        if event.kind == "copy" and event.value("direction") is None:
            event.note("direction", HIP_KINDS.get(str(args.get("kind"))), "torch: kind of the launch")

    def _operator(self, event: Event, call: Event | None) -> None:
        number = event.value("External id")
        if number is None and call is not None:
            number = call.value("External id")
        found = self._operators.get(number, []) if number is not None else []
        mine = [one for one in found if one.process == event.process]
        if mine:
            event.note("op", mine[0].name, "torch: External id")

    def _wait(self) -> None:
        """What torch says of waiting, to the call that waits."""
        for args in self._waiting:
            number = whole(args.get("correlation"))
            calls = self._calls.get(number, []) if number is not None else []
            if len(calls) == 1:
                noted(calls[0], {name: args[name] for name in args if name not in ("External id", "external id")})
            else:
                self.unknown["cuda_sync"] += 1

    def remarks(self, calls: list[Event]) -> list[str]:
        """What is not there, and what was left out."""
        remarks = []
        work = [event for event in self.events if event.kind in ON_GPU]
        if not work and any(call.kind == "launch" for call in calls):
            remarks.append(
                "launches, but no work of the GPU: what it did is unknown. The activities lack ProfilerActivity.CUDA, "
                "the profiler has no permission, or it stopped before the GPU was done: synchronize before its end"
            )
        elif not work and calls:
            remarks.append("calls of the runtime, but none that starts work on the GPU: profile a whole step")
        elif not work and self._no_gpu:
            remarks.append("torch saw no GPU, so only operators of the CPU are in the trace")
        elif not work:
            remarks.append(
                "CPU only: nothing of a GPU was recorded; add ProfilerActivity.CUDA, which is the name on ROCm too"
            )
        if self._controlled:
            remarks.append("control characters in names were replaced by \N{REPLACEMENT CHARACTER}")
        remarks += [f"{counted(number, 'event')} {what}" for what, number in self._odd.items()]
        if self.unknown:
            kinds = ", ".join(f"{kind} ({number:,})" for kind, number in self.unknown.most_common(5))
            more = f" and {len(self.unknown) - 5} kinds more" if len(self.unknown) > 5 else ""
            remarks.append(f"{counted(self.unknown.total(), 'event')} of other kinds left out: {kinds}{more}")
        return remarks
