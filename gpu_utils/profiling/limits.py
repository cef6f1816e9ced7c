"""What limits each kernel, from whatever figures a profile has: a verdict, its evidence, advice, and what is missing.

The thresholds and the advice are tables in `needs`. A question whose figures are missing is not answered: the report
names the counters and the command that records them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from gpu_utils.analytic.roofline import Point, Roofline
from gpu_utils.chips import CHIPS, Chip
from gpu_utils.profiling.apart import kinds
from gpu_utils.profiling.busy import COPY, SLOW_HOST, SYNC, Busy, DeviceBusy, busy
from gpu_utils.profiling.comparing import plain
from gpu_utils.profiling.counted import counted
from gpu_utils.profiling.grounds import chip_of, ground, roofs_of
from gpu_utils.profiling.needs import ADVICE, NEEDS, THRESHOLDS, command
from gpu_utils.profiling.pooled import Evidence, Pool
from gpu_utils.profiling.profile import Event, Profile
from gpu_utils.profiling.rules import COMPUTE, EXPLAIN_WAITING, LATENCY, MEMORY, RULES, UNTOLD, Finding, Ground
from gpu_utils.profiling.words import gpu


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
    findings    the surest first; what waits comes after what explains it
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
        told = [one for one in self.findings if not one.faint] or self.findings
        return ", ".join(f"{one.kind.replace('_', ' ')}{'' if one.sure else '?'}" for one in told) or self.limit

    @property
    def headline(self) -> str:
        """How its section begins, a few words."""
        if self.limit == UNTOLD:
            return "Memory or compute: cannot be told"
        first = self.findings[0]
        if first.kind != self.limit:
            return "Neither memory nor arithmetic is near its peak"
        return f"{'Limited' if first.sure else 'Perhaps limited'} by {self.limit}"


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
    used = {event.device for event in profile.kernels}
    sorts = kinds({name: device for name, device in profile.devices.items() if name in used})
    pools = _pools(profile, sorts)
    main = next((pool.device for pool in pools if pool.device), "")
    row = CHIPS[chip] if chip else chip_of(profile.devices.get(main), pools, remarks)
    roofs = roofs_of(row, remarks)
    whole = sum(pool.ns for pool in pools)
    grounds: dict[str, Ground] = {}
    kernels = []
    for pool in pools:
        alike = bool(chip) or sorts.get(pool.device, sorts.get(main)) == sorts.get(main)
        if pool.device not in grounds:
            its = row if alike else chip_of(profile.devices.get(pool.device), pools, remarks)
            grounds[pool.device] = ground(profile, pool.device, its, roofs if alike else roofs_of(its, remarks), found)
        one = _kernel(pool, grounds[pool.device], whole, remarks)
        kernels.append(one if alike else replace(one, points={}))  # the roofs that are drawn are not its own
    general = tuple(finding for one in found.devices for finding in _general(one))
    return Limits(tuple(kernels), general, roofs, row, tuple(dict.fromkeys(remarks)))


def _pools(profile: Profile, sorts: dict[str, int]) -> list[Pool]:
    """By name; by kind of GPU, too, where there are several. sorts: name of a device -> its kind."""
    by_name: dict[tuple[str, int], list[Event]] = defaultdict(list)
    for event in profile.kernels:
        by_name[plain(event.name), sorts.get(event.device, 0)].append(event)
    pools = []
    for (name, _), rows in by_name.items():
        where = gpu(next((row.device for row in rows if row.device), ""), "the GPU")
        pools.append(Pool(f"{name} on {where}" if len(set(sorts.values())) > 1 else name, rows))
    return sorted(pools, key=lambda pool: (-pool.ns, pool.name))


def _kernel(pool: Pool, ground: Ground, whole: int, remarks: list[str]) -> KernelLimits:
    memory, compute, points = _peaks(pool, ground)
    limit = _limit(memory, compute)
    sure = limit != LATENCY or pool.mean("compute_busy") is not None
    findings = [*_throughput(pool, limit, sure, memory, compute)]
    missing = [key for key, share in (("memory", memory), ("compute", compute)) if share is None]
    for rule in RULES:
        answer = rule(pool, ground, limit if sure else UNTOLD)
        if isinstance(answer, str):
            missing.append(answer)
        elif answer is not None:
            findings.append(answer)
    if not sure:
        missing.insert(len(missing) if ground.vendor == "amd" else 0, "busiest")  # first what can be counted
    explained = any(one.kind in EXPLAIN_WAITING and not one.faint for one in findings)
    findings.sort(key=lambda one: (not one.sure, one.faint, explained and one.kind == LATENCY))
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


def _throughput(
    pool: Pool, limit: str, sure: bool, memory: Evidence | None, compute: Evidence | None
) -> Iterator[Finding]:
    shares = tuple(share for share in (memory, compute) if share is not None)
    if limit == LATENCY:
        most = max(share.value for share in shares)
        known = any(pool.mean(name) is not None for name in _MATRIX)
        but = "" if known else "; its matrix work was not counted"
        waits = "it waits" if sure else "it waits, or another unit is near its peak"
        sentence = f"neither memory nor arithmetic is near its peak ({most:.0f} % at most): {waits}{but}"
        yield Finding(pool.name, LATENCY, sentence, shares, ADVICE[LATENCY], sure)
    elif limit in (MEMORY, COMPUTE):
        share = memory if limit == MEMORY else compute
        assert share is not None
        what = "the memory's bandwidth" if limit == MEMORY else "arithmetic"
        sentence = f"{what} limits it: it reaches {share.value:.0f} % {share.what}"
        yield Finding(pool.name, limit, sentence, shares, ADVICE[limit])


def _general(one: DeviceBusy) -> Iterator[Finding]:
    """What is true of a device as a whole: launch-bound, and gaps by their causes."""
    if one.serial:
        return
    about = gpu(one.device, "the GPU")
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
        waited = Evidence(counted(number, "gap"), ns, "ns", f"gaps of the cause: {cause}")
        yield Finding(about, kind, f"{sentence} for {share:.0f} % of the time", (waited,), ADVICE[kind])
