"""Figures that follow from others, each with its formula as its source: "= memory_read + memory_written".

What a tool said stands; what would need a figure that is not there, or a division by 0, stays unknown. Formulas of
AMD's derived counters: counter_defs.yaml of rocprofiler-sdk, which divides MfmaUtil by SIMDs; a counter of cycles of
the whole GPU sums over its XCCs and is divided by their number (GRBM_GUI_ACTIVE_PER_XCD of ROCm Compute Profiler).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gpu_utils.analytic.occupancy import occupancy
from gpu_utils.chips import CHIPS, TARGETS, Target
from gpu_utils.errors import BadArgument
from gpu_utils.profiling.profile import Device, Event, Profile

_NOWHERE = Device("")
_MOPS = "SQ_INSTS_VALU_MFMA_MOPS_"
_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{}.sum"
_THREADS = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
_SHARED = (
    ("launch__shared_mem_per_block_static", "launch__shared_mem_per_block_dynamic"),
    ("Static Shared Memory Per Block", "Dynamic Shared Memory Per Block"),
)
_LIMITS = (
    ("registers", "launch__occupancy_limit_registers", "Block Limit Registers"),
    ("shared memory", "launch__occupancy_limit_shared_mem", "Block Limit Shared Mem"),
    ("waves", "launch__occupancy_limit_warps", "Block Limit Warps"),
    ("blocks", "launch__occupancy_limit_blocks", "Block Limit SM"),
    ("barriers", "launch__occupancy_limit_barriers", "Block Limit Barriers"),
)
_FAR_ABOVE = 5
"""Times the peak bandwidth: caches behind the L2 give more than memory does, a wrong unit far more."""


class _Derive:
    """One launch on one device. `number` is None for what is not there, so a formula asks before it computes."""

    def __init__(self, event: Event, device: Device) -> None:
        self.event, self.device = event, device
        self.target = _target(device.target)
        self.lanes = device.lanes or (self.target.lanes if self.target else None)

    def number(self, *names: str) -> float | None:
        """The first of these figures that is a number."""
        for name in names:
            value = self.event.value(name)
            if isinstance(value, int | float):
                return value
        return None

    def numbers(self, *names: str) -> list[float] | None:
        """All of these, or None."""
        found = [self.number(name) for name in names]
        return None if None in found else [value for value in found if value is not None]

    def put(self, column: str, value: object, formula: str) -> None:
        if column not in self.event.figures:
            self.event.note(column, value, f"= {formula}")

    def ratio(self, column: str, over: float | None, under: float | None, formula: str, factor: float = 1) -> None:
        if over is not None and under:
            self.put(column, _whole(factor * over / under), formula)

    @property
    def blocks(self) -> int | None:
        grid = self.event.value("grid")
        return grid[0] * grid[1] * grid[2] if grid else self.event.value("blocks")

    @property
    def threads(self) -> int | None:
        block = self.event.value("block")
        return block[0] * block[1] * block[2] if block else self.event.value("threads")

    def waves_at(self, lanes: int | None) -> int | None:
        if not (self.blocks and self.threads and lanes):
            return None
        return self.blocks * -(-self.threads // lanes)

    @property
    def cycles(self) -> float | None:
        """In which one XCC of an AMD GPU worked; None where their number is not known."""
        whole = self.number("busy_cycles")
        parts = self.device.parts or (1 if self.device.target in ("gfx90a", "gfx1100", "gfx1201") else None)
        return whole / parts if whole and parts else None

    @property
    def simds(self) -> int | None:
        """SIMDs of one CU: 4 on gfx9, 2 from gfx10 on."""
        return None if self.target is None else 4 if self.target.family == "gfx9" else 2


def _target(name: str | None) -> Target | None:
    return TARGETS[name] if name is not None and name in TARGETS else None


def _memory(launch: _Derive) -> None:
    if both := launch.numbers("memory_read", "memory_written"):
        launch.put("memory_bytes", _whole(sum(both)), "memory_read + memory_written")
    loads, sectors = launch.number("load_requests"), launch.number("load_sectors")
    launch.ratio("sectors_per_load", sectors, loads, "load_sectors / load_requests")
    if accesses := launch.numbers("load_instructions", "store_instructions"):
        formula = "cache_lines / (load_instructions + store_instructions)"
        launch.ratio("lines_per_access", launch.number("cache_lines"), sum(accesses), formula)
    if served := launch.numbers("TCC_HIT_sum", "TCC_MISS_sum"):
        launch.ratio("l2_hits", served[0], sum(served), "100 TCC_HIT_sum / (TCC_HIT_sum + TCC_MISS_sum)", 100)


def _launched(launch: _Derive) -> None:
    if (waves := launch.waves_at(launch.lanes)) is not None:
        launch.put("waves", waves, f"blocks x ceil(threads of a block / {launch.lanes})")
    for names in _SHARED:
        if parts := launch.numbers(*names):
            launch.put("shared_bytes", _whole(sum(parts)), " + ".join(names))
    if conflicts := launch.numbers(_CONFLICTS.format("ld"), _CONFLICTS.format("st")):
        launch.put("conflict_passes", _whole(sum(conflicts)), "bank conflicts of loads + those of stores")


def _arithmetic(launch: _Derive) -> None:
    if threads := launch.numbers(*(_THREADS.format(name) for name in ("fadd", "fmul", "ffma"))):
        launch.put("fp32_flop", _whole(threads[0] + threads[1] + 2 * threads[2]), "fadd + fmul + 2 ffma, of threads")
    if waves := launch.numbers(*(f"SQ_INSTS_VALU_{name}_F32" for name in ("ADD", "MUL", "FMA"))):
        lanes = launch.lanes or 64
        flop = lanes * (waves[0] + waves[1] + 2 * waves[2])
        launch.put(
            "fp32_flop",
            _whole(flop),
            f"{lanes} (ADD + MUL + 2 FMA) of waves: too high where lanes are off, too low for packed instructions",
        )
    operations = [launch.number(name) for name in launch.event.figures if name.startswith(_MOPS)]
    if operations and None not in operations:
        launch.put("matrix_flop", _whole(512 * sum(value or 0 for value in operations)), f"512 x the sum of {_MOPS}*")
    formula = "100 SQ_THREAD_CYCLES_VALU / (SQ_ACTIVE_INST_VALU x lanes)"
    active = launch.number("SQ_ACTIVE_INST_VALU")
    if active and launch.lanes:
        launch.ratio("lanes_on", launch.number("SQ_THREAD_CYCLES_VALU"), active * launch.lanes, formula, 100)


def _busy(launch: _Derive) -> None:
    """Shares of cycles on AMD, which need the number of CUs and of XCCs."""
    raw, target = launch.number("SQ_WAVE_CYCLES"), launch.target
    if raw is not None and target is not None and launch.simds is not None:
        fours = target.family == "gfx9"
        launch.put("wave_cycles", _whole(raw * (4 if fours else 1)), "4 SQ_WAVE_CYCLES" if fours else "SQ_WAVE_CYCLES")
        slots = target.waves_per_simd * launch.simds
        if launch.cycles and launch.device.units:
            room = launch.cycles * launch.device.units * slots
            formula = f"100 wave_cycles / (busy_cycles of one XCC x {launch.device.units} CUs x {slots} waves)"
            launch.ratio("occupancy", launch.number("wave_cycles"), room, formula, 100)
    if launch.cycles and launch.device.units and launch.simds:
        units = launch.device.units
        formula = f"100 SQ_VALU_MFMA_BUSY_CYCLES / (busy_cycles of one XCC x {units * launch.simds} SIMDs)"
        room = launch.cycles * units * launch.simds
        launch.ratio("matrix_busy", launch.number("SQ_VALU_MFMA_BUSY_CYCLES"), room, formula, 100)
        formula = f"100 SQ_ACTIVE_INST_VALU / (busy_cycles of one XCC x {units} CUs)"
        launch.ratio("vector_busy", launch.number("SQ_ACTIVE_INST_VALU"), launch.cycles * units, formula, 100)


def _occupancy(launch: _Derive) -> None:
    told = {what: value for what, *names in _LIMITS if (value := launch.number(*names)) is not None}
    if len(told) > 1:
        least = min(told.values())
        names = " and ".join(what for what, value in told.items() if value == least)
        launch.put("occupancy_limiter", names, "the smallest of ncu's limits of blocks")
    target, registers, shared = launch.target, launch.number("registers"), launch.number("shared_bytes")
    if target is None or registers is None or shared is None or not launch.threads:
        return
    held = int(registers + (launch.number("accumulators") or 0))
    scalars = int(launch.number("scalar_registers") or 0)
    try:
        fit = occupancy(target, held, int(shared), -(-launch.threads // target.lanes), scalars=scalars)
    except BadArgument:
        return
    formula = f"occupancy of {target.name} at these registers, shared_bytes and threads of a block"
    launch.put("occupancy_limit", _whole(100 * fit.fraction), formula)
    launch.put("occupancy_limiter", " and ".join(fit.limited_by), formula)


_ALL: tuple[Callable[[_Derive], None], ...] = (_memory, _launched, _arithmetic, _busy, _occupancy)


def derived(profile: Profile) -> Profile:
    """The same profile, its kernels with the figures that follow from what they have, and remarks on what cannot be."""
    odd_waves, odd_bytes, kernels = 0, 0, profile.kernels
    for event in kernels:
        launch = _Derive(event, profile.devices.get(event.device, _NOWHERE))
        if "calls" in event.figures:
            continue
        odd_waves += _other_waves(launch)
        for derive in _ALL:
            derive(launch)
        odd_bytes += _too_fast(launch)
    said = []
    if odd_waves:
        said.append(
            f"{odd_waves} of {len(kernels)} launches counted other waves than their grid has: another program on the "
            "GPU, a sum over replays, or waves of 32 lanes"
        )
    if odd_bytes:
        said.append(
            f"{odd_bytes} of {len(kernels)} launches would have moved bytes at over {_FAR_ABOVE} times the peak of "
            "their memory: look whether FETCH_SIZE and WRITE_SIZE are KiB in this file"
        )
    if said and profile.origins:
        profile.origins[-1] = replace(profile.origins[-1], remarks=(*profile.origins[-1].remarks, *said))
    return profile


def _other_waves(launch: _Derive) -> bool:
    """Whether counted waves contradict the grid, at the lanes of the device or, unknown, at both widths."""
    counted = launch.number("waves")
    widths = [launch.lanes] if launch.lanes else [32, 64]
    expected = {launch.waves_at(lanes) for lanes in widths}
    return counted is not None and None not in expected and counted not in expected


def _too_fast(launch: _Derive) -> bool:
    moved, took = launch.number("memory_bytes"), launch.event.duration
    peaks = [
        chip.bandwidth
        for chip in CHIPS.values()
        if chip.bandwidth and chip.vendor == launch.device.vendor and launch.device.target in (None, chip.target)
    ]
    return bool(moved and took and peaks) and moved / took > _FAR_ABOVE * max(peaks) * 1000  # type: ignore[operator]


def _whole(value: float) -> int | float:
    return int(value) if float(value).is_integer() else value
