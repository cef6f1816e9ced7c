"""Occupancy from counters and from limits by rules, each of which can be wrong. Plain Python, as an answer is."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
Limits = Mapping[str, Any]

ACHIEVED = "sm__warps_active.avg.pct_of_peak_sustained_active"
FAR, LOW = 0.8, 50.0
"""Below FAR times the theoretical one the achieved occupancy is far below it; a theoretical one below LOW % is low."""


def up(value: int, granule: int) -> int:
    return -(-value // granule) * granule


def slots(limits: Limits) -> int:
    """Waves that one unit can hold."""
    return limits["simds"] * limits["waves_per_simd"]


def amd_achieved(row: Row, limits: Limits) -> float | None:
    if not row["GRBM_GUI_ACTIVE"]:
        return None
    return 100 * 4 * row["SQ_WAVE_CYCLES"] / row["GRBM_GUI_ACTIVE"] / limits["units"] / slots(limits)


def cycles_as_they_are(row: Row, limits: Limits) -> float | None:
    achieved = amd_achieved(row, limits)
    return None if achieved is None else achieved / 4


def over_slots_of_a_simd(row: Row, limits: Limits) -> float | None:
    achieved = amd_achieved(row, limits)
    return None if achieved is None else achieved * limits["simds"]


def of_the_whole_gpu(row: Row, limits: Limits) -> float | None:
    achieved = amd_achieved(row, limits)
    return None if achieved is None else achieved * limits["units"]


def as_waves(row: Row, limits: Limits) -> float | None:
    """Waves on a unit, not a share."""
    achieved = amd_achieved(row, limits)
    return None if achieved is None else achieved * slots(limits) / 100


def zero_where_unknown(row: Row, limits: Limits) -> float | None:
    return amd_achieved(row, limits) or 0.0


def registers_of(row: Row) -> int:
    """Of one lane: on CDNA from gfx90a on both kinds come from one file."""
    if "VGPR_Count" in row:
        return row["VGPR_Count"] + row["Accum_VGPR_Count"]
    return row["launch__registers_per_thread"]


def vgprs_only(row: Row) -> int:
    return row["VGPR_Count"] if "VGPR_Count" in row else row["launch__registers_per_thread"]


def larger_of_both(row: Row) -> int:
    """As if each kind had a file of its own."""
    return max(row["VGPR_Count"], row["Accum_VGPR_Count"]) if "VGPR_Count" in row else registers_of(row)


def shared_of(row: Row) -> int:
    if "LDS_Block_Size" in row:
        return row["LDS_Block_Size"]
    return row["launch__shared_mem_per_block_static"] + row["launch__shared_mem_per_block_dynamic"]


def static_only(row: Row) -> int:
    return row["LDS_Block_Size"] if "LDS_Block_Size" in row else row["launch__shared_mem_per_block_static"]


def threads_of(row: Row) -> int:
    return row["Workgroup_Size"] if "Workgroup_Size" in row else row["launch__block_size"]


def blocks_of(row: Row) -> int:
    """Of the grid, which AMD counts in work-items."""
    if "Grid_Size" in row:
        return -(-row["Grid_Size"] // row["Workgroup_Size"])
    return row["launch__grid_size"]


def grid_as_blocks(row: Row) -> int:
    return row["Grid_Size"] if "Grid_Size" in row else row["launch__grid_size"]


def grid_rounded_down(row: Row) -> int:
    return row["Grid_Size"] // row["Workgroup_Size"] if "Grid_Size" in row else row["launch__grid_size"]


def waves_up(threads: int, lanes: int) -> int:
    return -(-threads // lanes)


def of_parts(registers: int, waves: int, limits: Limits) -> int:
    """Blocks whose registers fit: whole waves on each part, then whole blocks on the unit."""
    return limits["registers"] // up(registers, limits["granule"]) * limits["simds"] // waves


def without_granule(registers: int, waves: int, limits: Limits) -> int:
    return limits["registers"] // registers * limits["simds"] // waves


def of_the_whole_file(registers: int, waves: int, limits: Limits) -> int:
    return limits["registers"] * limits["simds"] // (up(registers, limits["granule"]) * waves)


def of_one_part(registers: int, waves: int, limits: Limits) -> int:
    return limits["registers"] // up(registers, limits["granule"]) // waves


def of_shared(shared: int, limits: Limits) -> int:
    return limits["shared_per_unit"] // up(shared, limits["shared_granule"])


def by_bytes(shared: int, limits: Limits) -> int:
    return limits["shared_per_unit"] // shared


def full_rounds(grid: int, room: int) -> float:
    """Share of the room that the grid fills, over its whole rounds."""
    return grid / room / math.ceil(grid / room)


def less_than_a_round(grid: int, room: int) -> float:
    return min(1.0, grid / room)


def verdict(achieved: float | None, theoretical: float, filled: float) -> str:
    if achieved is None:
        return "unknown"
    if achieved < FAR * theoretical:
        return "grid" if filled < FAR else "imbalance"
    return "raise" if theoretical < LOW else "leave"


def limit_first(achieved: float | None, theoretical: float, filled: float) -> str:
    if theoretical < LOW:
        return "raise"
    return verdict(achieved, theoretical, filled)


def by_achieved_alone(achieved: float | None, theoretical: float, filled: float) -> str:
    """Low is low, whatever the kernel's limits are."""
    if achieved is None:
        return "unknown"
    return "leave" if achieved >= LOW else "raise" if theoretical < LOW else verdict(achieved, theoretical, filled)


def in_points(achieved: float | None, theoretical: float, filled: float) -> str:
    """Far is 20 points below."""
    if achieved is not None and achieved >= theoretical - 20:
        return verdict(theoretical, theoretical, filled)
    return verdict(achieved, theoretical, filled) if achieved is None else "grid" if filled < FAR else "imbalance"


def grid_never(achieved: float | None, theoretical: float, filled: float) -> str:
    return verdict(achieved, theoretical, 1.0)


def grid_always(achieved: float | None, theoretical: float, filled: float) -> str:
    return verdict(achieved, theoretical, 0.0)


def answer(
    achieved: Callable[[Row, Limits], float | None] = amd_achieved,
    registers: Callable[[Row], int] = registers_of,
    shared: Callable[[Row], int] = shared_of,
    waves: Callable[[int, int], int] = waves_up,
    grid: Callable[[Row], int] = blocks_of,
    fit: Callable[[int, int, Limits], int] = of_parts,
    fit_shared: Callable[[int, Limits], int] = of_shared,
    reserved: bool = True,
    without: tuple[str, ...] = (),
    fewest: Callable[..., int] = min,
    all_limits: bool = True,
    filled: Callable[[int, int], float] = full_rounds,
    say: Callable[[float | None, float, float], str] = verdict,
    lanes: int | None = None,
) -> Callable[..., list[dict[str, Any]]]:
    """An answer with these rules.

    reserved    False: what the system takes of each block's shared memory is forgotten
    without     resources that are not looked at;  all_limits: False: only the first of those that limit
    lanes       of a wave, whatever the target says
    """

    def occupancy_from_counters(kernels: Sequence[Row], limits: Limits) -> list[dict[str, Any]]:
        found = []
        for row in kernels:
            of_block = waves(threads_of(row), lanes or limits["lanes"])
            taken = shared(row) + reserved * limits["shared_reserved"]
            allowed = {
                "waves": slots(limits) // of_block,
                "registers": fit(registers(row), of_block, limits),
                "shared memory": fit_shared(taken, limits) if taken else 10**9,
                "blocks": limits["blocks_per_unit"] or 10**9,
            }
            allowed = {name: blocks for name, blocks in allowed.items() if name not in without}
            blocks = fewest(allowed.values())
            limited = [name for name, each in allowed.items() if each == blocks]
            theoretical = 100 * blocks * of_block / slots(limits)
            seen = row[ACHIEVED] if ACHIEVED in row else achieved(row, limits)
            share = filled(grid(row), blocks * limits["units"]) if blocks else 0.0
            found.append(
                {
                    "name": row["name"],
                    "blocks": blocks,
                    "limited_by": limited if all_limits else limited[:1],
                    "theoretical": theoretical,
                    "achieved": seen,
                    "verdict": say(seen, theoretical, share),
                }
            )
        return found

    return occupancy_from_counters
