"""Several files as one profile: a launch that stands in several of them becomes one event with the figures of all.

By number where the files are of one run (one process, one count of dispatches, one start). By order and name where
they are of two runs, or of two tools, and hold the same launches: with a remark, because the figures of one launch then
come from two. Whatever fits neither stays side by side. Never by the name of a device: tools count devices differently.
Never where the vendors differ.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

from gpu_utils.profiling.apart import counters, crossing, keep_apart, serial, strangers
from gpu_utils.profiling.names import LEVELS
from gpu_utils.profiling.profile import Device, Event, Figure, Profile


def joined(profiles: Sequence[Profile]) -> Profile:
    """One profile of all: events joined, devices described by agent lists, remarks on what was done.

    The inputs are used up. Order of origins: as given. Files with times and the host come first in the search.
    """
    whole = Profile(origins=[origin for profile in profiles for origin in profile.origins])
    said: dict[int, list[str]] = defaultdict(list)
    files = {id(event): at for at, profile in enumerate(profiles) for event in profile.kernels}
    first = {id(profile): sum(len(before.origins) for before in profiles[:at]) for at, profile in enumerate(profiles)}
    for profile, remark in keep_apart(profiles):
        said[first[id(profile)]].append(remark)
    before = {event.device for profile in profiles for event in profile.events} - {""}
    groups: list[Profile] = []
    same: dict[str, str] = {}
    ranked = sorted(profiles, key=_rank)
    launches = any(profile.kernels and not _sums(profile) for profile in profiles)
    for profile in ranked:
        if _sums(profile) and launches and profile.kernels:
            said[first[id(profile)]].append("sums of launches that other files give one by one; left out")
            profile.events = [event for event in profile.events if event.kind != "kernel"]
        if remark := _place(groups, profile, same):
            said[first[id(profile)]].append(remark)
    for group in groups:
        whole.events += group.events
        if group.serial:
            whole.serial |= {event.device for event in group.kernels if event.start is not None}
    for later, earlier in crossing(groups, files):
        said[first[id(profiles[later])]].append(
            f"its kernels run at the same time as those of {profiles[earlier].origins[0].path} in one stream of one "
            "process: two runs? then read each alone"
        )
    for at, remarks in said.items():
        whole.origins[at] = replace(whole.origins[at], remarks=(*whole.origins[at].remarks, *remarks))
    whole.devices = _devices(profiles, whole.events, before, same)
    return whole


def _rank(profile: Profile) -> int:
    timed = any(event.start is not None for event in profile.kernels)
    if not timed:
        return 3
    return 2 if serial(profile) else 0 if profile.of("launch", "op") else 1


def _sums(profile: Profile) -> bool:
    return any("calls" in event.figures for event in profile.kernels)


def _place(groups: list[Profile], profile: Profile, same: dict[str, str]) -> str:
    """Join a profile to one of the groups, or make it a group; the remark on that, or "".

    same: gets the names of devices that went into another: name -> the name that stands.
    """
    if serial(profile):
        profile.serial = {event.device for event in profile.kernels if event.start is not None}
    if not profile.kernels:
        groups.append(profile)
        return ""
    known = [group for group in groups if group.kernels]
    others = [group for group in known if not strangers(group, profile)]
    for group in others:
        if (pairs := _numbered(group, profile)) is not None:
            group.serial |= profile.serial
            return _merged(group, profile, pairs, same, "")
    complement = [group for group in others if _complementary(group, profile)]
    matches = [(group, pairs) for group in complement if (pairs := _ordered(group, profile))]
    if len(matches) == 1:
        group, pairs = matches[0]
        where = group.origins[0].path
        return _merged(
            group,
            profile,
            pairs,
            same,
            f"launches joined to those of {where} by order and name: {len(pairs)}; where these are two runs, "
            "the figures of a launch come from both",
        )
    groups.append(profile)
    if matches:
        return f"its launches fit those of {len(matches)} other files equally well, so they stand beside them"
    if complement:
        where = complement[0].origins[0].path
        return f"its launches are not those of {where} (other names or other numbers of calls); they stand beside them"
    if known and not others:
        return f"its GPU is not of the vendor of that of {known[0].origins[0].path}; its launches stand beside those"
    return ""


def _merged(group: Profile, profile: Profile, pairs: dict[int, Event], same: dict[str, str], remark: str) -> str:
    """Put a profile's events into a group; pairs: id of an event -> the group's event that it is."""
    conflicts: Counter[str] = Counter()
    news = 0
    rest = []
    for event in profile.events:
        if id(event) in pairs:
            news += _merge(pairs[id(event)], event, conflicts)
            same[event.device] = pairs[id(event)].device
        else:
            rest.append(event)
    group.events += rest
    group.origins += profile.origins
    remarks = [remark] if remark else []
    left = [event for event in rest if event.kind == "kernel"]
    if left and remark:
        remarks.append(
            f"launches that fit none there and stand beside: {len(left)} ({_some(event.name for event in left)})"
        )
    if not (news or rest or remark or conflicts):
        remarks.append(f"launches that are in {group.origins[0].path} already, left out: {len(pairs)}")
    if conflicts:
        remarks.append(f"figures that differ between the files, kept from the first: {_some(conflicts)}")
    return "; ".join(remarks)


def _some(names: object) -> str:
    whole = list(dict.fromkeys(names))  # type: ignore[call-overload]
    return ", ".join(whole[:4]) + (f" and {len(whole) - 4} more" if len(whole) > 4 else "")


def _merge(event: Event, other: Event, conflicts: Counter[str]) -> int:
    """Add what another file says of the same launch; how many figures are new."""
    news = 0
    if event.start is None and other.start is not None:
        event.start, event.end = other.start, other.end
    for name in ("lane", "device"):
        if not getattr(event, name):
            setattr(event, name, getattr(other, name))
    for name in ("process", "number", "correlation"):
        if getattr(event, name) is None:
            setattr(event, name, getattr(other, name))
    if event.name.startswith("<dispatch "):
        event.name = other.name
    for name, figure in other.figures.items():
        held = event.figures.get(name)
        if held is not None and held.source.startswith("= ") and not figure.source.startswith("= "):
            held = None  # what a tool says goes before what follows
        if held is None and not (name in ("blocks", "threads") and "grid" in event.figures):
            event.figures[name] = figure
            news += 1
        elif held is not None and _differ(name, held, figure):
            conflicts[name] += 1
    for product, sizes in (("blocks", "grid"), ("threads", "block")):
        if sizes in event.figures:
            event.figures.pop(product, None)
    return news


def _differ(name: str, one: Figure, other: Figure) -> bool:
    if name == "duration" or other.source.startswith("= "):
        return False
    if isinstance(one.value, list | tuple) and isinstance(other.value, list | tuple):
        return list(one.value) != list(other.value)
    return bool(one.value != other.value)


def _numbered(group: Profile, profile: Profile) -> dict[int, Event] | None:
    """Pairs by number, when the two are of one run of one tool: nothing that both say may differ."""
    tools = {origin.tool for origin in group.origins} & {origin.tool for origin in profile.origins}
    if not tools:
        return None
    known: dict[int, list[Event]] = defaultdict(list)
    for event in group.kernels:
        if event.number is not None:
            known[event.number].append(event)
    pairs = {}
    for event in profile.kernels:
        if event.number is None:
            return None
        for other in known[event.number]:
            if _may_be(event.process, other.process):
                if not (_may_be(event.start, other.start) and _one_name(event.name, other.name)):
                    return None
                if id(event) in pairs:
                    return None  # two processes, and the file does not say of which it is
                pairs[id(event)] = other
    return pairs or None


def _may_be(one: int | None, other: int | None) -> bool:
    return one is None or other is None or one == other


def _one_name(one: str, other: str) -> bool:
    return one == other or one.startswith("<dispatch ") or other.startswith("<dispatch ")


def _complementary(group: Profile, profile: Profile) -> bool:
    """Whether each may say of the same launches what the other does not: counters and times, or other counters.

    Two ranks, or two runs under one tool with the same counters, are not.
    """
    tools = [{origin.tool for origin in side.origins} for side in (group, profile)]
    ours, theirs = counters(group), counters(profile)
    if tools[0].isdisjoint(tools[1]):
        return True
    if not ours or not theirs:
        return bool(ours or theirs)
    return bool(ours - theirs and theirs - ours)


def _ordered(group: Profile, profile: Profile) -> dict[int, Event]:
    """Pairs by order among the launches of one name, for names with as many launches here as there."""
    best: dict[int, Event] = {}
    for level in LEVELS:
        here: dict[str, list[Event]] = defaultdict(list)
        there: dict[str, list[Event]] = defaultdict(list)
        for events, table in ((profile.kernels, here), (group.kernels, there)):
            for event in events:
                table[level(event.name)].append(event)
        pairs = {
            id(event): other
            for name, events in here.items()
            if len(events) == len(there.get(name, ())) and all(map(_same_sizes, events, there[name]))
            for event, other in zip(events, there[name], strict=True)
        }
        if len(pairs) > len(best):
            best = pairs
    return best


def _same_sizes(event: Event, other: Event) -> bool:
    for name in ("grid", "block"):
        one, two = event.value(name), other.value(name)
        if one is not None and two is not None and list(one) != list(two):
            return False
    return True


def _devices(
    profiles: Sequence[Profile], events: Sequence[Event], before: set[str], same: dict[str, str]
) -> dict[str, Device]:
    """Devices of all files; agent lists, which describe devices and have no event, give their names and sizes.

    before: names that events had before they were joined; one that none has now is another name of a device.
    """
    found: dict[str, Device] = {}
    agents: dict[str, Device] = {}
    for profile in profiles:
        for name, device in profile.devices.items():
            table = found if profile.events else agents
            table[name] = _combined(table[name], device) if name in table else device
    used = {event.device for event in events if event.device}
    if not used:
        return found or {name: device for name, device in agents.items() if name.startswith("Agent ")} or agents
    only = next(iter(agents.values())) if len(set(agents.values())) == 1 else None
    for name in before | used:
        described = agents.get(name, only)
        if described is not None and found.get(name, described).vendor == described.vendor:
            found[name] = _combined(described, found[name]) if name in found else described
    for name in before - used:
        if name in found and same.get(name) in found:
            found[same[name]] = _combined(found[same[name]], found[name])
        found.pop(name, None)
    return found


def _combined(device: Device, other: Device) -> Device:
    """The first, with what only the other knows."""
    return Device(
        device.name,
        device.vendor or other.vendor,
        device.target or other.target,
        device.units or other.units,
        device.lanes or other.lanes,
        device.virtual or other.virtual,
        device.parts or other.parts,
    )
