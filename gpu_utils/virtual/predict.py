"""Predicted cycles of a launch: a simple model of issue, bandwidth and occupancy. A prediction, never a measurement.

Three lower bounds are computed for the whole launch on one compute unit, and the largest is taken:
issue (each of the SIMDs starts one instruction a cycle, with a cost per class), memory (bytes of
transactions over the bytes a unit may move in a cycle), and latency (each wave must wait for its own memory
accesses; waves that are resident together hide each other's waits).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from gpu_utils.analytic.occupancy import occupancy
from gpu_utils.chips.targets import TARGETS

# Issue cycles of one wave instruction by class. Transcendentals run at a quarter of the rate on both vendors.
ISSUE = {
    "scalar": 1,
    "vector": 4,
    "transcendental": 16,
    "move": 4,
    "matrix": 0,
    "global": 4,
    "shared": 4,
    "scalar_memory": 1,
    "branch": 1,
    "barrier": 1,
    "wait": 1,
}
MATRIX_FLOPS_PER_CYCLE = 512  # of one SIMD
BYTES_PER_CYCLE = 8  # of one compute unit, from memory
LATENCY = 500  # cycles of one access to memory
SIMDS = 4


class Bounds(NamedTuple):
    """Least cycles of a launch on one compute unit, by what could limit it."""

    issue: float
    memory: float
    shared: float
    latency: float


def predicted_cycles(launch: Any) -> float:
    """Predicted cycles of a Launch if one compute unit ran all of it: for comparing two versions of a kernel."""
    return max(bounds_in_cycles(launch))


def bounds_in_cycles(launch: Any) -> Bounds:
    """The bounds of which the largest is predicted."""
    counters, program = launch.counters, launch.program
    scale = program.lanes / 64
    issue = sum(
        ISSUE[kind] * (scale if ISSUE[kind] > 1 else 1) * count for kind, count in counters.instructions().items()
    )
    issue += counters.matrix_flops() / MATRIX_FLOPS_PER_CYCLE
    totals = counters.totals()
    sectors = totals["global_load_sectors"] + totals["global_store_sectors"]
    memory = sectors * totals["sector_bytes"] / BYTES_PER_CYCLE
    shared = totals["shared_cycles"]
    waits = sum(access.waves for access in counters.globals.values() if access.kind != "store") * LATENCY
    latency = waits / max(1, resident_waves(launch))
    return Bounds(issue / SIMDS, memory, shared, latency)


def resident_waves(launch: Any) -> int:
    """Waves that fit on one compute unit at once; at least the waves of one block.

    Registers are those that the vendor's compiler allotted. Where nobody did (C++, assembly text) they are those that
    the text names, up to what a lane can have: PTX names more than ptxas would allot.
    """
    limits = TARGETS[launch.target]
    per_block = max(1, -(-launch.block[0] * launch.block[1] * launch.block[2] // limits.lanes))
    registers = launch.registers or min(launch.program.info.registers, limits.registers_max)
    return max(per_block, occupancy(limits, registers, launch.shared_bytes, per_block).waves)
