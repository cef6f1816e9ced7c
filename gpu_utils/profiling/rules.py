"""The rules by which `limits` judges one kernel: each finds something, nothing, or says which figures are missing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpu_utils.analytic.occupancy import Occupancy, occupancy
from gpu_utils.analytic.roofline import Roofline
from gpu_utils.chips import Target
from gpu_utils.errors import BadArgument
from gpu_utils.profiling.busy import DeviceBusy
from gpu_utils.profiling.needs import ADVICE, THRESHOLDS
from gpu_utils.profiling.pooled import Evidence, Pool

MEMORY, COMPUTE, LATENCY, UNTOLD = "memory", "compute", "latency", "cannot be told"


@dataclass(frozen=True)
class Finding:
    """One thing that costs time.

    about     the kernel's name, or the device's ("GPU 0")
    kind      of ADVICE
    sure      False where the figures allow another reading, too; the sentence says which
    faint     not sure, and so little that anything else comes first
    evidence  figures with unit and source
    advice    what to try, one sentence
    """

    about: str
    kind: str
    sentence: str
    evidence: tuple[Evidence, ...]
    advice: str
    sure: bool = True
    faint: bool = False


@dataclass(frozen=True)
class Ground:
    """What all kernels of a device are judged on."""

    vendor: str | None
    target: Target | None
    units: tuple[float, str] | None
    roofs: dict[str, Roofline]
    busy: DeviceBusy | None


Rule = Callable[[Pool, Ground, str], Finding | str | None]
"""A finding, None where all is well, or the key of NEEDS whose counters are missing. The last argument: what limits the
kernel as far as that is sure."""

EXPLAIN_WAITING = ("uncoalesced", "bank_conflicts", "spills", "occupancy", "uneven", "small_grid")
"""Kinds of findings that say why a kernel waits."""


def _uncoalesced(pool: Pool, ground: Ground, _: str) -> Finding | str | None:
    """NVIDIA: 32-byte sectors of a request; AMD: lines of an instruction. The ideal is 4 bytes a lane in a row."""
    lanes = ground.target.lanes if ground.target else 64 if ground.vendor == "amd" else 32
    found = _touched(pool, ground.target.segment if ground.target else 64)
    if not found:
        return "uncoalesced"
    each, size, what, names = max(found, key=lambda one: one[0] * one[1])
    ideal = max(1, lanes * 4 / size)
    if each <= THRESHOLDS["wider_or_scattered"].value * ideal:
        return None
    sure = each > THRESHOLDS["scattered"].value * ideal
    told = f"{each:.3g} {what} on average"
    sentence = f"its lanes touch scattered addresses: {told}, where {ideal:g} would do for 4 bytes a lane"
    if not sure:
        sentence = f"{told}; {ideal:g} would do for 4 bytes a lane: wider elements, a stride, or short rows of a tile"
    evidence = (
        pool.evidence(what, each, "", *names),
        Evidence("ideal for 4 bytes a lane", ideal, "", f"{lanes} lanes x 4 bytes / {size} bytes"),
    )
    faint = each <= THRESHOLDS["short_rows"].value * ideal
    return Finding(pool.name, "uncoalesced", sentence, evidence, ADVICE["uncoalesced"], sure, faint)


def _touched(pool: Pool, line: int) -> list[tuple[float, int, str, tuple[str, ...]]]:
    """(how many, bytes of one, words, figures) for loads and for stores; AMD counts lines of both together."""
    found: list[tuple[float, int, str, tuple[str, ...]]] = []
    for what in ("load", "store"):
        names = f"{what}_sectors", f"{what}_requests"
        if sums := pool.sums(*names):
            each = sums[names[0]] / sums[names[1]] if sums[names[1]] else 0
            found.append((each, 32, f"sectors a {what} touches", names))
    ratio = None if pool.sums("load_sectors", "load_requests") else pool.mean("sectors_per_load")
    if ratio is not None:
        found.append((ratio, 32, "sectors a load touches", ("sectors_per_load",)))
    if sums := _lines(pool):
        count = sums["load_instructions"] + sums["store_instructions"]
        words = f"lines of {line} bytes that a vector memory instruction touches"
        names_of = ("cache_lines", "load_instructions", "store_instructions")
        found.append((sums["cache_lines"] / count if count else 0, line, words, names_of))
    return found


def _lines(pool: Pool) -> dict[str, float] | None:
    """Lines and instructions; a kernel without a count of its loads or stores has none of them."""
    if sums := pool.sums("cache_lines", "load_instructions", "store_instructions"):
        return sums
    if sums := pool.sums("cache_lines", "load_instructions"):
        return {**sums, "store_instructions": 0}
    return None


def _conflicts(pool: Pool, _: Ground, __: str) -> Finding | str | None:
    """NVIDIA counts passes, AMD cycles; the share of all passes or cycles compares."""
    for bad, every, unit in (
        ("conflict_passes", "shared_passes", "passes"),
        ("conflict_cycles", "shared_cycles", "cycles"),
    ):
        if (sums := pool.sums(bad, every)) is None:
            continue
        share = 100 * sums[bad] / sums[every] if sums[every] else 0
        if share < THRESHOLDS["conflicts"].value:
            return None
        sentence = f"bank conflicts are {share:.0f} % of the {unit} of its shared memory"
        evidence = (
            pool.evidence(f"{unit} because of conflicts", sums[bad], unit, bad),
            pool.evidence(f"{unit} in all", sums[every], unit, every),
        )
        return Finding(pool.name, "bank_conflicts", sentence, evidence, ADVICE["bank_conflicts"])
    return None if pool.most("shared_instructions") == 0 else "bank_conflicts"


def _spills(pool: Pool, ground: Ground, _: str) -> Finding | str | None:
    scratch = pool.most("scratch_bytes")
    if scratch is None:
        return "spills"
    if not scratch:
        return None
    where = "scratch" if ground.vendor == "amd" else "local memory"
    sentence = f"each thread has {scratch:,.0f} bytes of {where}: spilled registers, or an array indexed at run time"
    return Finding(
        pool.name,
        "spills",
        sentence,
        (pool.evidence("scratch of a thread", scratch, "bytes", "scratch_bytes"),),
        ADVICE["spills"],
    )


def _occupancy(pool: Pool, ground: Ground, limit: str) -> Finding | str | None:
    achieved, fits, table = pool.mean("occupancy"), pool.least("occupancy_limit"), _table(pool, ground)
    source, most = pool.source("occupancy_limit"), pool.most("occupancy_limit")
    if fits is None and table is not None:
        fits, source = 100 * table.fraction, f"= registers, shared memory and block on {table.target.name}"
    if achieved is None and fits is None:
        return "occupancy"
    if limit in (MEMORY, COMPUTE):
        return None
    evidence = []
    others = f" in some launches, {most:.0f} % in others" if fits and most and most - fits >= 1 else ""
    if achieved is not None:
        evidence.append(pool.evidence("achieved occupancy", achieved, "%", "occupancy"))
    if fits is not None:
        evidence.append(Evidence("theoretical occupancy", fits, "%", source))
    sure = limit == LATENCY
    if fits is not None and fits < THRESHOLDS["occupancy"].value:
        by = f", limited by {' and '.join(table.limited_by)}" if table else ""
        sentence = f"only {fits:.0f} % of the wave slots can be filled{others}{by}"
        advice = f"{ADVICE['occupancy'][:-1]}; {table.advice}." if table else ADVICE["occupancy"]
        return Finding(pool.name, "occupancy", sentence, tuple(evidence), advice, sure)
    if achieved is None:
        return None
    if fits is not None and achieved < THRESHOLDS["uneven"].value / 100 * fits:
        sentence = f"{achieved:.0f} % of the wave slots are filled, although {fits:.0f} % could be"
        return Finding(pool.name, "uneven", sentence, tuple(evidence), ADVICE["uneven"], sure)
    if fits is None and achieved < THRESHOLDS["occupancy"].value:
        sentence = f"only {achieved:.0f} % of the wave slots are filled"
        return Finding(pool.name, "occupancy", sentence, tuple(evidence), ADVICE["occupancy"], sure)
    return None


def _table(pool: Pool, ground: Ground) -> Occupancy | None:
    """What registers, shared memory and the block allow, where all three and the target are known: of the launch with
    the least. Where no launch has all, the largest of each."""
    registers, threads = pool.most("registers"), pool.size("block")
    if ground.target is None or registers is None or not threads:
        return None
    whole = registers, pool.most("accumulators") or 0, pool.most("shared_bytes") or 0, threads
    found = []
    for held, extra, shared, size in pool.shapes() or {whole}:
        try:
            waves = -(-size // ground.target.lanes)
            found.append(occupancy(ground.target, int(held + extra), int(shared), waves))
        except BadArgument:  # a launch that this target cannot hold: the chip is another one
            return None
    return min(found, key=lambda one: one.fraction)


def _lanes_off(pool: Pool, _: Ground, __: str) -> Finding | str | None:
    lanes = pool.mean("lanes_on")
    if lanes is None:
        return "lanes_off"
    if lanes >= THRESHOLDS["lanes"].value:
        return None
    sentence = f"{100 - lanes:.0f} % of the lanes of its instructions are off"
    evidence = (pool.evidence("lanes on", lanes, "%", "lanes_on"),)
    return Finding(pool.name, "lanes_off", sentence, evidence, ADVICE["lanes_off"])


def _small_grid(pool: Pool, ground: Ground, limit: str) -> Finding | None:
    blocks = pool.size("grid")
    if blocks is None or ground.units is None or limit in (MEMORY, COMPUTE) or blocks >= ground.units[0]:
        return None
    units, source = ground.units
    unit = "CUs" if ground.vendor == "amd" else "SMs"
    sentence = f"its largest launch has {blocks:,} blocks for {units:,.0f} {unit}: the others have nothing to do"
    evidence = (pool.evidence("blocks", blocks, "", "grid"), Evidence(unit, units, "", source))
    return Finding(pool.name, "small_grid", sentence, evidence, ADVICE["small_grid"], limit == LATENCY)


def _short(pool: Pool, ground: Ground, _: str) -> Finding | None:
    one = ground.busy
    if one is None or not one.launch_bound or one.launch_ns is None or not pool.ns:
        return None
    each = pool.ns / pool.calls
    if each >= one.launch_ns:
        return None
    sentence = f"a launch takes {each:,.0f} ns on the GPU, but the next comes only after {one.launch_ns:,} ns"
    evidence = (
        Evidence("time of a launch on the GPU", each, "ns", "end - start, mean"),
        Evidence("time between launches", one.launch_ns, "ns", "median between starts of launching calls"),
    )
    return Finding(pool.name, "launch_bound", sentence, evidence, ADVICE["launch_bound"])


RULES: tuple[Rule, ...] = (_uncoalesced, _conflicts, _spills, _occupancy, _lanes_off, _small_grid, _short)
