"""What limits each kernel, from whatever figures a profile has: a verdict, its evidence, advice, and what is missing.

The thresholds and the advice are tables in `needs`. A question whose figures are missing is not answered: the report
names the counters and the command that records them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from gpu_utils.analytic.roofline import Point, Roofline, roofline
from gpu_utils.chips import CHIPS, TARGETS, Chip, chip_of_device
from gpu_utils.errors import UnknownFigure
from gpu_utils.profiling.busy import COPY, SLOW_HOST, SYNC, Busy, DeviceBusy, busy
from gpu_utils.profiling.comparing import plain
from gpu_utils.profiling.needs import ADVICE, NEEDS, THRESHOLDS, command
from gpu_utils.profiling.pooled import Evidence, Pool
from gpu_utils.profiling.profile import Device, Event, Profile, vendor_of
from gpu_utils.profiling.rules import COMPUTE, LATENCY, MEMORY, RULES, UNTOLD, Finding, Ground


@dataclass(frozen=True)
class Missing:
    """A question that the figures do not answer. command: what records them on this vendor's GPU."""

    question: str
    command: str


@dataclass(frozen=True)
class KernelLimits:
    """One kernel, all its launches.

    share       of the time of all kernels, 0 to 1; None where nothing has a time
    limit       "memory", "compute", "latency", "cannot be told"
    memory, compute  % of the peaks; None where unknown
    points      on the rooflines "fp32" and "matrix", for those whose operations were counted
    """

    name: str
    device: str
    calls: int
    ns: int | None
    share: float | None
    limit: str
    memory: float | None
    compute: float | None
    findings: tuple[Finding, ...]
    missing: tuple[Missing, ...]
    points: dict[str, Point] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """The limit and what else was found, a few words; what is not sure has a question mark."""
        others = [
            f"{one.kind.replace('_', ' ')}{'' if one.sure else '?'}" for one in self.findings if one.kind != self.limit
        ]
        return ", ".join(others if others and self.limit == UNTOLD else [self.limit, *others])


@dataclass(frozen=True)
class Limits:
    """kernels: by time, the longest first; general: about whole devices

    roofs   "fp32" and "matrix" -> roofline of the chip; empty without a chip
    chip    the row of CHIPS that was used, or None
    remarks what a reader must know: where the chip comes from, figures that do not fit
    """

    kernels: tuple[KernelLimits, ...]
    general: tuple[Finding, ...]
    roofs: dict[str, Roofline]
    chip: Chip | None
    remarks: tuple[str, ...]


def limits(profile: Profile, chip: str | None = None, found: Busy | None = None) -> Limits:
    """What limits each kernel of a profile.

    chip   name of a row of CHIPS; without one it is told from the device's name, else from its target
    found  what `busy` says, where the caller has it already

    Errors: UnknownName for a chip that is not in the registry.
    """
    found = busy(profile) if found is None else found
    remarks: list[str] = []
    pools = _pools(profile)
    main = next((pool.device for pool in pools if pool.device), "")
    row = CHIPS[chip] if chip else _chip_of(profile.devices.get(main), remarks)
    roofs = _roofs(row, remarks)
    whole = sum(pool.ns for pool in pools)
    grounds: dict[str, Ground] = {}
    kernels = []
    for pool in pools:
        if pool.device not in grounds:
            grounds[pool.device] = _ground(profile, pool.device, row, roofs, found)
        kernels.append(_kernel(pool, grounds[pool.device], whole, remarks))
    general = tuple(finding for one in found.devices for finding in _general(one))
    return Limits(tuple(kernels), general, roofs, row, tuple(dict.fromkeys(remarks)))


def _pools(profile: Profile) -> list[Pool]:
    by_name: dict[str, list[Event]] = defaultdict(list)
    for event in profile.kernels:
        by_name[plain(event.name)].append(event)
    return sorted((Pool(name, rows) for name, rows in by_name.items()), key=lambda pool: (-pool.ns, pool.name))


def _chip_of(device: Device | None, remarks: list[str]) -> Chip | None:
    if device is None:
        return None
    if device.virtual:
        remarks.append("no peaks are drawn in for a virtual GPU, whose times are modelled; name a chip to compare with")
        return None
    if (known := chip_of_device(device.name)) is not None:
        return known
    if device.target and device.target in TARGETS:
        stand_in = CHIPS[TARGETS[device.target].chip]
        remarks.append(
            f"{device.name or 'the device'} names no chip of the registry, so peaks are those of {stand_in.name}, "
            f"which stands for {device.target}; choose another with --chip"
        )
        return stand_in
    return None


def _roofs(chip: Chip | None, remarks: list[str]) -> dict[str, Roofline]:
    """fp32 on the vector units, and the matrix units at bf16: the counters do not say the format."""
    roofs = {}
    for name, dtype in (("fp32", "fp32"), ("matrix", "bf16")):
        try:
            if chip is not None:
                roofs[name] = roofline(chip, dtype)
        except UnknownFigure as error:
            remarks.append(str(error))
    return roofs


def _ground(profile: Profile, device: str, chip: Chip | None, roofs: dict[str, Roofline], found: Busy) -> Ground:
    said = profile.devices.get(device)
    target = TARGETS[said.target] if said and said.target and said.target in TARGETS else chip.limits if chip else None
    units = None
    if said and said.units:
        units = float(said.units), "the profile's description of the device"
    elif chip and chip.units.value:
        units = chip.units.value, chip.units.source
    vendor = vendor_of(profile.devices, device) or (chip.vendor if chip else None)
    return Ground(vendor, target, units, roofs, found.of(device))


def _kernel(pool: Pool, ground: Ground, whole: int, remarks: list[str]) -> KernelLimits:
    memory, compute, points = _peaks(pool, ground)
    limit = _limit(memory, compute)
    findings = [*_throughput(pool, limit, memory, compute)]
    missing = [key for key, share in (("memory", memory), ("compute", compute)) if share is None]
    for rule in RULES:
        answer = rule(pool, ground, limit)
        if isinstance(answer, str):
            missing.append(answer)
        elif answer is not None:
            findings.append(answer)
    for share in (memory, compute):
        if share is not None and share.value > THRESHOLDS["above_peak"].value:
            remarks.append(
                f"{pool.name} reaches {share.value:.0f} % of a peak ({share.what}): {THRESHOLDS['above_peak'].reason}"
            )
    return KernelLimits(
        pool.name,
        pool.device,
        pool.calls,
        None if pool.untimed else pool.ns,
        pool.ns / whole if whole else None,
        limit,
        None if memory is None else memory.value,
        None if compute is None else compute.value,
        tuple(findings),
        tuple(Missing(NEEDS[key].question, command(key, ground.vendor)) for key in missing),
        points,
    )


def _peaks(pool: Pool, ground: Ground) -> tuple[Evidence | None, Evidence | None, dict[str, Point]]:
    """% of the memory's peak, % of the nearest peak of arithmetic, and points for the rooflines."""
    roofs = ground.roofs
    moved = pool.sums("memory_bytes", "duration")
    memory = None
    if (said := pool.mean("memory_busy")) is not None:
        memory = pool.evidence("of the memory's peak", said, "%", "memory_busy")
    elif moved and moved["duration"] and roofs:
        roof = next(iter(roofs.values()))
        share = 100 * moved["memory_bytes"] / (moved["duration"] * 1e-9) / roof.bandwidth
        source = f"{pool.source('memory_bytes', 'duration')}; peak {roof.bandwidth / 1e12:g} TB/s of {roof.name}"
        memory = Evidence("of the memory's peak", share, "%", f"{source}: {roof.sources[1]}")
    shares = []
    words = {
        "compute_busy": "of the busiest part of the SM",
        "matrix_busy": "of the time the matrix units worked",
        "vector_busy": "of the time the vector units worked",
    }
    for name, what in words.items():
        if (said := pool.mean(name)) is not None:
            shares.append(pool.evidence(what, said, "%", name))
    points = {}
    for name, column in (("fp32", "fp32_flop"), ("matrix", "matrix_flop")):
        work = pool.sums(column, "duration")
        if work and work["duration"] and name in roofs:
            share = 100 * work[column] / (work["duration"] * 1e-9) / roofs[name].peak
            peak = f"peak {roofs[name].peak / 1e12:g} TFLOP/s of {roofs[name].name}: {roofs[name].sources[0]}"
            source = f"{pool.source(column, 'duration')}; {peak}"
            shares.append(Evidence(f"of the {name} peak", share, "%", source))
        both = pool.sums(column, "memory_bytes", "duration")
        if both and both[column] and both["memory_bytes"] > 0 and both["duration"] > 0:
            points[name] = Point(pool.name, both[column], both["memory_bytes"], both["duration"] * 1e-9)
    return memory, max(shares, key=lambda one: one.value, default=None), points


def _limit(memory: Evidence | None, compute: Evidence | None) -> str:
    near = THRESHOLDS["near_peak"].value
    shares = {MEMORY: memory, COMPUTE: compute}
    known = {name: share.value for name, share in shares.items() if share is not None}
    if known and max(known.values()) >= near:
        return max(known, key=lambda name: known[name])
    return LATENCY if len(known) == len(shares) else UNTOLD


_MATRIX = ("compute_busy", "matrix_busy", "matrix_flop", "matrix_instructions")
"""With any of these it is known whether the matrix units worked."""


def _throughput(pool: Pool, limit: str, memory: Evidence | None, compute: Evidence | None) -> Iterator[Finding]:
    shares = tuple(share for share in (memory, compute) if share is not None)
    if limit == LATENCY:
        most = max(share.value for share in shares)
        counted = any(pool.mean(name) is not None for name in _MATRIX)
        but = "" if counted else "; its matrix work was not counted"
        sentence = f"neither memory nor arithmetic is near its peak ({most:.0f} % at most): it waits{but}"
        yield Finding(pool.name, LATENCY, sentence, shares, ADVICE[LATENCY])
    elif limit in (MEMORY, COMPUTE):
        share = memory if limit == MEMORY else compute
        assert share is not None
        what = "the memory's bandwidth" if limit == MEMORY else "arithmetic"
        sentence = f"{what} limits it: it reaches {share.value:.0f} % {share.what}"
        yield Finding(pool.name, limit, sentence, shares, ADVICE[limit])


def _general(one: DeviceBusy) -> Iterator[Finding]:
    """What is true of a device as a whole: launch-bound, and gaps by their causes."""
    about = f"GPU {one.device}" if one.device.isdigit() else one.device or "the GPU"
    if one.launch_bound:
        evidence = (
            Evidence("idle", 100 * one.idle_share, "%", "gaps between the union of all work"),
            Evidence("median kernel", one.kernel_ns or 0, "ns", "end - start"),
            Evidence("between launches", one.launch_ns or 0, "ns", "median between starts of launching calls"),
        )
        yield Finding(about, "launch_bound", f"launch-bound: {one.why}", evidence, ADVICE["launch_bound"])
    words = {
        SYNC: ("sync", "the GPU ran dry because the host waited for it"),
        COPY: ("copy", "the GPU waited for copies"),
        SLOW_HOST: ("slow_host", "the GPU waited for the host"),
    }
    for cause, ns in one.idle_by_cause.items():
        share = 100 * ns / one.window
        if cause not in words or share < THRESHOLDS["idle"].value or (cause == SLOW_HOST and one.launch_bound):
            continue
        kind, sentence = words[cause]
        number = sum(gap.cause == cause for gap in one.gaps)
        waited = Evidence(f"{number} gaps", ns, "ns", f"gaps of the cause: {cause}")
        yield Finding(about, kind, f"{sentence} for {share:.0f} % of the time", (waited,), ADVICE[kind])
