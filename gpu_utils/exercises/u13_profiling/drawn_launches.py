"""Launches drawn so that each verdict on an occupancy occurs: their shape, and what the counters said."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from gpu_utils.analytic.occupancy import Occupancy, occupancy
from gpu_utils.chips import CHIPS, TARGETS

Row = dict[str, Any]


def limits_of(target: str) -> dict[str, Any]:
    """What the statement says of a target: its row of TARGETS, and the units of the chip that stands for it.

    >>> limits_of("gfx942")["units"], limits_of("sm_90")["shared_reserved"]
    (304, 1024)
    """
    row = TARGETS[target]
    of_row = ("lanes", "simds", "waves_per_simd", "registers", "granule")
    of_shared = ("shared_per_unit", "shared_granule", "shared_reserved")
    return {
        "target": target,
        "units": int(CHIPS[row.chip].units.value or 0),
        **{name: getattr(row, name) for name in of_row + of_shared},
        "blocks_per_unit": row.blocks_per_unit if row.vendor == "nvidia" else None,
    }


def of_amd(name: str, vgprs: int, agprs: int, lds: int, block: int, grid: int, wave_cycles: Any, active: Any) -> Row:
    """One kernel as rocprofv3 describes it. grid: in work-items."""
    return {
        "name": name,
        "VGPR_Count": vgprs,
        "Accum_VGPR_Count": agprs,
        "LDS_Block_Size": lds,
        "Workgroup_Size": block,
        "Grid_Size": grid,
        "SQ_WAVE_CYCLES": wave_cycles,
        "GRBM_GUI_ACTIVE": active,
    }


def of_nvidia(name: str, registers: int, static: int, dynamic: int, block: int, grid: int, active: Any) -> Row:
    """One kernel as ncu describes it. grid: in blocks; active: %."""
    return {
        "name": name,
        "launch__registers_per_thread": registers,
        "launch__shared_mem_per_block_static": static,
        "launch__shared_mem_per_block_dynamic": dynamic,
        "launch__block_size": block,
        "launch__grid_size": grid,
        "sm__warps_active.avg.pct_of_peak_sustained_active": active,
    }


def placed(target: str, registers: int, shared: int, block: int) -> tuple[Occupancy, tuple[str, ...]]:
    """What fits, and what limits it, by the statement's names. On AMD block slots never run out first."""
    unit = TARGETS[target]
    found = occupancy(unit, registers, shared, -(-block // unit.lanes))
    names = {"LDS": "shared memory"}
    limited = (names.get(one, one) for one in found.limited_by if unit.vendor == "nvidia" or one != "blocks")
    return found, tuple(limited)


Wanted = Callable[[Occupancy, tuple[str, ...]], bool]
_ROUNDS = {"long": (9.0, 20.0), "tail": (1.08, 1.3), "small": (0.2, 0.7)}

# kernel -> (what fits, rounds of the grid, achieved over theoretical)
_ROLES: dict[str, tuple[Wanted, str, tuple[float, float]]] = {
    "attention": (lambda fit, by: by == ("registers",) and 0 < fit.fraction < 0.5, "long", (0.85, 0.98)),
    "matmul": (lambda fit, by: by == ("shared memory",) and 0 < fit.fraction < 0.5, "long", (0.85, 0.98)),
    "gather": (lambda fit, by: fit.fraction > 0.5, "long", (0.3, 0.7)),
    "loss": (lambda fit, by: fit.fraction > 0.5, "small", (0.2, 0.7)),
    "layer_norm": (lambda fit, by: fit.fraction > 0.5, "tail", (0.5, 0.7)),
    "gelu": (lambda fit, by: fit.fraction > 0.6 and "registers" not in by, "long", (0.85, 0.98)),
    "sampling": (lambda fit, by: 0 < fit.fraction < 0.5, "long", (0.3, 0.7)),
    "transpose": (lambda fit, by: fit.fraction > 0.5 and "shared memory" in by, "tail", (0.84, 0.95)),
    "router": (lambda fit, by: fit.fraction > 0.5, "long", (0.9, 0.95)),
}
UNKNOWN = "router"


def drawn_launches(rng: random.Random, target: str) -> list[Row]:
    """One kernel for each role. That of UNKNOWN has no counter that tells its achieved occupancy."""
    units = limits_of(target)["units"]
    rows = []
    for name, (wanted, rounds, achieved) in _ROLES.items():
        vectors, accumulators, shared, block, fit = _shape(rng, target, wanted, pairs=name in ("attention", "gather"))
        grid = max(1, round(fit.blocks * units * rng.uniform(*_ROUNDS[rounds])))
        share = rng.uniform(*achieved) * fit.fraction
        if TARGETS[target].vendor == "nvidia":
            static = rng.choice([0, shared // 256 * 64])
            seen = None if name == UNKNOWN else round(100 * share, 2)
            rows.append(of_nvidia(name, vectors + accumulators, static, shared - static, block, grid, seen))
        else:
            active = 0 if name == UNKNOWN else rng.randrange(50_000, 900_000)
            wave_cycles = round(share * fit.most * units * active / 4)
            items = grid * block - rng.choice([0, block // 3])
            rows.append(of_amd(name, vectors, accumulators, shared, block, items, wave_cycles, active))
    rng.shuffle(rows)
    return rows


def _shape(rng: random.Random, target: str, wanted: Wanted, pairs: bool) -> tuple[int, int, int, int, Occupancy]:
    """Vector and accumulation registers, bytes of shared memory, threads of a block: so that what fits is as wanted."""
    amd = TARGETS[target].vendor == "amd"
    while True:
        block = rng.choice([64, 96, 128, 160, 192, 256, 320, 384, 512, 640, 1024])
        vectors = 4 * rng.randrange(4, 61) if amd else rng.randrange(16, 240)
        accumulators = 4 * rng.randrange(8, 60) if amd and pairs else 0
        shared = rng.choice([0, rng.randrange(2_000, 30_000), rng.randrange(8_000, 48_000)])
        if amd:
            shared -= shared % 512  # LDS_Block_Size is rounded up by the tool
        fit, by = placed(target, vectors + accumulators, shared, block)
        if fit.blocks and wanted(fit, by):
            return vectors, accumulators, shared, block, fit
