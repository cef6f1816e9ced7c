"""Exact counters of one launch: instructions by class and per line, memory transactions, bank conflicts, lanes.

Instructions are counted per segment of straight code and spread over its ops when somebody asks.
A memory access is counted when it happens, per wave instruction, in the way the hardware splits it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_utils.analytic.access import MemoryShape, bank_cycles, touched_segments
from gpu_utils.virtual import global_patterns, shared_patterns
from gpu_utils.virtual.global_patterns import Touched
from gpu_utils.virtual.kept import Kept

# Classes of instructions. "scalar": SALU; "vector": VALU or a PTX arithmetic instruction; "transcendental": exp2, log2,
# rcp, rsq, sqrt, sin, cos; "matrix": MFMA, WMMA, mma, wgmma; "global", "shared": memory; "scalar_memory": s_load,
# ld.param; "branch", "barrier", "wait" (waitcnt, fences, delays), "move" (register moves, no arithmetic).
KINDS = (
    "scalar",
    "vector",
    "transcendental",
    "move",
    "matrix",
    "global",
    "shared",
    "scalar_memory",
    "branch",
    "barrier",
    "wait",
)
_EIGHT_BITS = re.compile(r"e4m3|e5m2|fp8|bf8|f8f6f4")  # matrix instructions on floats of 8 bits or fewer
_SCRATCH = "scratch_"  # AMD's private memory: spills and stacks, kept out of the global_ totals


@dataclass(slots=True)
class Access:
    """Totals of one memory op.

    waves: wave instructions; lanes: active lanes; bytes: bytes asked for; transactions: distinct sectors of each wave
    instruction (global) or bank cycles (shared); ideal: the least that the same bytes could need side by side, and no
    more than was used (lanes that share an address need less).
    """

    waves: int = 0
    lanes: int = 0
    bytes: int = 0
    transactions: int = 0
    ideal: int = 0
    kind: str = "load"


# What patterns of addresses cost, for all launches: (sector, bytes of a lane, lanes, addresses) -> counts, and
# (target, read or write, bytes of a lane, addresses) -> counts.
MOST_SEEN = 256
_sectors_seen: Kept[tuple[int, int, int, bytes], Touched] = Kept(MOST_SEEN)
_banks_seen: Kept[tuple[str, str, int, bytes], tuple[int, int]] = Kept(MOST_SEEN)
_FAR = np.int64(1 << 62)


class Counters:
    """Counts of one launch. `chip` is a MemoryShape.

    record: None, or for the model of the L2 a list of (turn of the instruction within its batch, launch number of the
    block of each sector, sectors of 32 bytes, reads, writes).
    """

    def __init__(self, program: Any, chip: MemoryShape, record: bool = False) -> None:
        self.program, self.chip = program, chip
        self.record: list[tuple[int, np.ndarray, np.ndarray, bool, bool]] | None = [] if record else None
        self.segment_waves = [0] * len(program.segments)
        self.segment_lanes = [0] * len(program.segments)
        self.globals: dict[int, Access] = {}
        self.shareds: dict[int, Access] = {}
        self.absent: dict[int, int] = {}  # op index -> lanes that shuffled in a value of a lane that was not active
        self.described: dict[int, int] = {}  # op index -> operations of products whose shape the kernel computes
        self.launched_waves = 0
        self.launched_blocks = 0

    # called by memory and matrix instructions

    def note_flops(self, op: Any, count: int) -> None:
        """Count the operations of a product whose shape is not in the text but in a descriptor."""
        self.described[op.index] = self.described.get(op.index, 0) + count

    def global_access(
        self,
        state: Any,
        op: Any,
        pattern: global_patterns.Pattern,
        offset: int,
        size: int,
        kind: str,
        wave: int | None = None,
    ) -> None:
        """Count the sectors that each wave's active lanes touch.

        offset: where the first of the lanes is, see `global_memory._origin`. wave: that of a single row of addresses.
        """
        access = self.globals.get(op.index)
        if access is None:
            access = self.globals[op.index] = Access(kind=kind)
        if self.record is not None:
            touched, _ = touched_segments(pattern.delta + offset, size, pattern.mask, 32)
            self._keep(self.record, state, touched, kind, wave)
        sector = self.chip.sector
        key = size, offset & (sector - 1), sector
        cost = pattern.costs.get(key)
        if cost is None:
            cost = pattern.costs[key] = _touched(pattern, key, state.waves_per_block)
        waves, lanes, transactions, ideal = cost
        access.waves += waves
        access.lanes += lanes
        access.bytes += lanes * size
        access.transactions += transactions
        access.ideal += ideal

    def _keep(self, record: list[Any], state: Any, ordered: np.ndarray, kind: str, wave: int | None) -> None:
        """Record the sectors of one wave instruction in each wave, for the model of the L2."""
        fresh = ordered >= 0
        fresh[:, 1:] &= ordered[:, 1:] != ordered[:, :-1]
        row = np.nonzero(fresh)[0] if wave is None else np.full(int(np.count_nonzero(fresh)), wave)
        block = state.first_block + state.block_of_wave[row]
        record.append((state.turn, block, ordered[fresh], kind != "store", kind != "load"))
        state.turn += 1

    def shared_access(self, op: Any, pattern: shared_patterns.Pattern, offset: int, size: int, kind: str) -> None:
        """Count bank cycles: lanes of one phase that want different words of one bank wait for each other.

        `gpu_utils.chips.banks` says how many banks an access sees and which lanes are a phase.
        """
        access = self.shareds.get(op.index)
        if access is None:
            access = self.shareds[op.index] = Access(kind=kind)
        way = "read" if kind == "load" else "write"
        key = size, offset % (4 * self.chip.banks), way
        cost = pattern.costs.get(key)
        if cost is None:
            place = pattern.base.astype(np.int64) + offset
            cost = pattern.costs[key] = self._banked(place, size, pattern.mask, pattern.block, way)
        waves, lanes, cycles, least = cost
        access.waves += waves
        access.lanes += lanes
        access.bytes += lanes * size
        access.transactions += cycles
        access.ideal += least

    def _banked(self, offset: np.ndarray, size: int, mask: np.ndarray | None, block: int, way: str) -> Touched:
        """(waves and lanes that take part, bank cycles, the fewest possible)."""
        low = _lowest(offset, mask, 4 * self.chip.banks)
        waves, times = _without_repeats(low, block)
        key = (self.chip.target, way, size, waves.tobytes())
        cycles = _banks_seen.get(key)
        if cycles is None:
            cycles = _banks_seen.keep(key, bank_cycles(waves, size, self.chip.service(way, size)))
        if mask is None:
            return len(offset), offset.size, cycles[0] * times, cycles[1] * times
        taking_part = int(np.count_nonzero(mask.any(axis=1))), int(np.count_nonzero(mask))
        return *taking_part, cycles[0] * times, cycles[1] * times

    def shuffled(self, op: Any, source: np.ndarray, active: np.ndarray | None) -> None:
        """Count lanes that take a value from a lane that is not active: no vendor says what they get in general.

        source: int, the lane that each lane takes its value from, (lanes,) or (waves, lanes); active: bool
        (waves, lanes), None when all are.
        """
        if active is None:
            return
        there = active.take(source, axis=1) if source.ndim == 1 else np.take_along_axis(active, source, axis=1)
        if absent := int(np.count_nonzero(active & ~there)):
            self.absent[op.index] = self.absent.get(op.index, 0) + absent

    # asked by people

    def per_op(self) -> dict[int, tuple[int, int]]:
        """Op index -> (wave instructions, lane instructions)."""
        result: dict[int, tuple[int, int]] = {}
        for segment in self.program.segments.values():
            waves = self.segment_waves[segment.index]
            lanes = self.segment_lanes[segment.index]
            for op in (*segment.ops, segment.stop):
                if op is not None:
                    result[op.index] = (waves, lanes)
        return result

    def instructions(self) -> dict[str, int]:
        """Wave instructions by class, every class of KINDS that occurs."""
        total: dict[str, int] = defaultdict(int)
        per_op = self.per_op()
        for op in self.program.ops:
            total[op.kind] += per_op[op.index][0]
        return {kind: total[kind] for kind in KINDS if total[kind]}

    def per_line(self) -> dict[tuple[str, int] | None, dict[str, int]]:
        """Source line -> wave instructions by class."""
        lines: dict[Any, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        per_op = self.per_op()
        for op in self.program.ops:
            if per_op[op.index][0]:
                lines[op.line][op.kind] += per_op[op.index][0]
        return {line: dict(kinds) for line, kinds in lines.items()}

    def lane_utilisation(self) -> float:
        """Active lanes over lanes, over all vector, matrix and vector memory instructions (1.0: no divergence)."""
        used = possible = 0
        per_op = self.per_op()
        for op in self.program.ops:
            if op.kind in ("vector", "transcendental", "move", "matrix", "global", "shared"):
                waves, lanes = per_op[op.index]
                used += lanes
                possible += waves * self.program.lanes
        return used / possible if possible else 1.0

    def matrix_flops(self, inputs: re.Pattern[str] | None = None) -> int:
        """Floating-point (or integer) operations of matrix instructions, a multiply and an add counted as two.

        inputs: only those of instructions whose names say so.
        """
        per_op = self.per_op()
        found = [op for op in self.program.ops if op.kind == "matrix" and (inputs is None or inputs.search(op.text))]
        return sum(op.flops * per_op[op.index][0] + self.described.get(op.index, 0) for op in found)

    def _sum(self, table: dict[int, Access], field: str, *kinds: str) -> int:
        ops = self.program.ops
        return sum(
            getattr(access, field)
            for at, access in table.items()
            if (not kinds or access.kind in kinds) and not ops[at].mnemonic.startswith(_SCRATCH)
        )

    def totals(self) -> dict[str, float]:
        """One flat table of everything, in the units of the names."""
        instructions = self.instructions()
        loads, stores = ("load",), ("store",)
        return {
            "blocks": self.launched_blocks,
            "waves": self.launched_waves,
            "instructions": sum(instructions.values()),
            **{f"instructions_{kind}": count for kind, count in instructions.items()},
            "global_load_bytes": self._sum(self.globals, "bytes", *loads),
            "global_store_bytes": self._sum(self.globals, "bytes", *stores),
            "global_load_sectors": self._sum(self.globals, "transactions", *loads),
            "global_store_sectors": self._sum(self.globals, "transactions", *stores),
            "global_sectors_ideal": self._sum(self.globals, "ideal"),
            "global_lane_accesses": self._sum(self.globals, "lanes", "load", "store"),
            "global_atomics": self._sum(self.globals, "lanes", "atomic"),
            "global_atomic_sectors": self._sum(self.globals, "transactions", "atomic"),
            "scratch_bytes": sum(access.bytes for access in self.globals.values()) - self._sum(self.globals, "bytes"),
            "sector_bytes": self.chip.sector,
            "shared_accesses": self._sum(self.shareds, "waves"),
            "shared_bytes": self._sum(self.shareds, "bytes"),
            "shared_atomics": self._sum(self.shareds, "lanes", "atomic"),
            "shared_cycles": self._sum(self.shareds, "transactions"),
            "bank_conflicts": self._sum(self.shareds, "transactions") - self._sum(self.shareds, "ideal"),
            "shuffles_from_absent_lanes": sum(self.absent.values()),
            "matrix_flops": self.matrix_flops(),
            "fp8_matrix_flops": self.matrix_flops(_EIGHT_BITS),
            "lane_utilisation": self.lane_utilisation(),
        }

    def table(self) -> str:
        """The totals as lines of text."""
        rows = self.totals()
        wide = max(map(len, rows))
        return "\n".join(
            f"{name:<{wide}}  {value:>14,.3f}" if isinstance(value, float) else f"{name:<{wide}}  {value:>14,}"
            for name, value in rows.items()
        )


def _lowest(address: np.ndarray, mask: np.ndarray | None, period: int) -> np.ndarray:
    """Each wave's pattern near zero, -1 for a lane that does not take part: whole periods further on nothing changes.

    period: a power of two.
    """
    first = (address if mask is None else np.where(mask, address, _FAR)).min(axis=1)
    low = address - (first & -period)[:, None]
    return low if mask is None else np.where(mask, low, -1)


def _without_repeats(low: np.ndarray, block: int) -> tuple[np.ndarray, int]:
    """(the first waves, how often they come) when all waves do the same, or all blocks of `block` waves."""
    for count in (1, block):
        if len(low) % count == 0 and not np.count_nonzero(low.reshape(-1, count, low.shape[1]) != low[:count]):
            return low[:count], len(low) // count
    return low, 1


def _touched(pattern: global_patterns.Pattern, key: tuple[int, int, int], block: int) -> Touched:
    """What `_sectors` says of a pattern; what the waves of all blocks do alike is counted once. key: see Pattern."""
    size, offset, sector = key
    low = _lowest(pattern.delta + offset, pattern.mask, sector)
    waves, times = _without_repeats(low, block)
    of_waves = (sector, size, waves.shape[1], waves.tobytes())
    once = _sectors_seen.get(of_waves)
    if once is None:
        once = _sectors(waves, size, None if pattern.mask is None else waves >= 0, sector)
        _sectors_seen.keep(of_waves, once)
    return once[0] * times, once[1] * times, once[2] * times, once[3] * times


def _sectors(address: np.ndarray, size: int, mask: np.ndarray | None, sector: int) -> Touched:
    """(waves and lanes that take part, sectors that the waves touch, the fewest possible for as many lanes)."""
    ordered, lanes = touched_segments(address, size, mask, sector)
    per_wave = np.add.reduce(ordered[:, 1:] != ordered[:, :-1], axis=1, dtype=np.uint16)
    per_wave += ordered[:, 0] >= 0
    side_by_side = -(-(address.shape[1] if lanes is None else lanes) * size // sector)
    ideal = int(np.minimum(per_wave, side_by_side).sum())
    waves = len(address) if lanes is None else int(np.count_nonzero(lanes))
    active = address.size if lanes is None else int(lanes.sum())
    return waves, active, int(per_wave.sum()), ideal
