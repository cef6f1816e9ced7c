"""Files that are not of one run or not of one GPU: devices of one name kept apart, spans that cannot be of one stream,
and times that were taken while counters were collected."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from gpu_utils.chips import chip_of_device
from gpu_utils.profiling.profile import ON_GPU, Device, Event, Profile
from gpu_utils.profiling.words import gpu

TOOL_VENDORS = {"ncu": "nvidia", "nsys": "nvidia", "rocprofv3": "amd", "rocprof": "amd"}
"""torch.profiler serves both."""

COUNTING = ("ncu", "rocprofv3", "rocprof")
"""Tools that let one kernel run at a time while they count."""

LAUNCH = {
    *("grid", "block", "blocks", "threads", "registers", "accumulators", "scalar_registers"),
    *("shared_bytes", "scratch_bytes"),
}
"""Figures that a trace has too; a file with others holds counters."""


def counters(profile: Profile) -> set[str]:
    """Names of the figures of its kernels that no plain trace has."""
    return {name for event in profile.kernels for name in event.figures if name not in {*LAUNCH, "duration"}}


def vendors(profile: Profile) -> set[str]:
    """Of the tools that wrote it, and of the devices that its work ran on."""
    used = {event.device for event in profile.events if event.kind in ON_GPU}
    said = {device.vendor for name, device in profile.devices.items() if name in used}
    return {vendor for vendor in (*said, *(TOOL_VENDORS.get(origin.tool) for origin in profile.origins)) if vendor}


def strangers(one: Profile, other: Profile) -> bool:
    """Whether the two are surely of GPUs of two vendors."""
    ours, theirs = vendors(one), vendors(other)
    return bool(ours and theirs and ours.isdisjoint(theirs))


def serial(profile: Profile) -> bool:
    """Whether a file has times that were taken while counters were collected, one kernel at a time."""
    counting = any(origin.tool in COUNTING for origin in profile.origins)
    return counting and any(event.start is not None for event in profile.kernels) and bool(counters(profile))


def keep_apart(profiles: Sequence[Profile]) -> Iterator[tuple[Profile, str]]:
    """Give devices of one name that are surely two GPUs the names of their files, "GPU 0 of a.json"; yields remarks."""
    sides: dict[str, list[Profile]] = defaultdict(list)
    for profile in profiles:
        for name in {event.device for event in profile.events if event.device}:
            sides[name].append(profile)
    many = Counter(Path(profile.origins[0].path).name for profile in profiles if profile.origins)
    for name, found in sides.items():
        sets: list[list[Profile]] = []
        for profile in sorted(
            found, key=lambda each: name not in each.devices
        ):  # what is described is told apart first
            mine = next((each for each in sets if not _two(name, profile, each[0])), None)
            if mine is None:
                sets.append([profile])
            else:
                mine.append(profile)
        for each in sets if len(sets) > 1 else ():
            path = each[0].origins[0].path if each[0].origins else "?"
            short = Path(path).name if many[Path(path).name] == 1 else path
            for profile in each:
                _rename(profile, name, f"{gpu(name)} of {short}")
                yield profile, f"device {name} is another GPU in other files: two runs? then read each alone"


def _two(name: str, one: Profile, other: Profile) -> bool:
    """Whether a device of this name is surely another GPU in another file."""
    ours, theirs = (side.devices.get(name, Device("")) for side in (one, other))
    same_tool = {origin.tool for origin in one.origins} & {origin.tool for origin in other.origins}
    named = ours.name and theirs.name and ours.name.casefold() != theirs.name.casefold()
    return strangers(one, other) or _differ(ours, theirs) or bool(same_tool and named)


def _differ(one: Device, other: Device) -> bool:
    """Whether two descriptions are surely of two kinds of GPU. Names alone are none: tools write them differently."""
    for left, right in ((one.vendor, other.vendor), (one.target, other.target)):
        if left and right and left != right:
            return True
    return len({chip.name for each in (one, other) if (chip := chip_of_device(each.name)) is not None}) == 2


def kinds(devices: Mapping[str, Device]) -> dict[str, int]:
    """Name of a device -> the number of its kind; devices that may be of one kind have one number."""
    first: list[Device] = []
    found = {}
    for name, device in devices.items():
        at = next((at for at, each in enumerate(first) if not _differ(each, device)), len(first))
        if at == len(first):
            first.append(device)
        found[name] = at
    return found


def _rename(profile: Profile, old: str, new: str) -> None:
    for event in profile.events:
        if event.device == old:
            event.device = new
    if old in profile.devices:
        profile.devices[new] = profile.devices.pop(old)


def crossing(groups: Sequence[Profile], files: dict[int, int]) -> Iterator[tuple[int, int]]:
    """(a file, an earlier one) whose kernels run at once in one stream of one process, which one run cannot do.

    files: id of an event -> the number of the file that it is from
    """
    lanes: dict[tuple[str, int | None, str], list[Event]] = defaultdict(list)
    for group in groups:
        for event in group.kernels:
            if event.start is not None and event.end is not None and event.end > event.start:
                lanes[event.device, event.process, event.lane].append(event)
    seen = set()
    for events in lanes.values():
        if len({files[id(event)] for event in events}) < 2:
            continue
        events.sort(key=lambda event: event.start or 0)
        last: dict[int, int] = {}  # file -> when its work ends
        for event in events:
            mine = files[id(event)]
            for other, end in last.items():
                if other != mine and end > (event.start or 0):
                    seen.add((max(mine, other), min(mine, other)))
            last[mine] = max(last.get(mine, 0), event.end or 0)
    yield from sorted(seen)
