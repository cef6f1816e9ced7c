"""Figures that follow from others: formula, unit, what stays unknown."""

import pytest

from gpu_utils.profiling.deriving import derived
from gpu_utils.profiling.profile import Device, Event, Origin, Profile

MI300X = Device("AMD Instinct MI300X", "amd", "gfx942", 304, 64, False, 8)
MI210 = Device("AMD Instinct MI210", "amd", "gfx90a", 104, 64)
H100 = Device("NVIDIA H100", "nvidia", "sm_90", 132, 32)
UNKNOWN = Device("Agent 4", "amd")
NOBODY = Device("GPU", None)

THREADS = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{}.sum"
KINDS = ("static", "dynamic")
LINES = {"load_instructions": 2, "store_instructions": 1}
PLAIN = {THREADS.format("fadd"): 1, THREADS.format("fmul"): 2}
GRID = {"grid": (10, 2, 1), "block": (100, 1, 1)}
LIMIT = {"registers": 128, "shared_bytes": 40_000, "block": (256, 1, 1)}


def run(device, times=None, **figures):
    event = Event("kernel", "add", *(times or (None, None)), device="0")
    for name, value in figures.items():
        event.note(name, value, "tool")
    return derived(Profile([event], [Origin("x", "ncu", "")], {"0": device})), event


TABLE = [  # device, figures -> derived column, value, words of the formula
    (NOBODY, {"memory_read": 3, "memory_written": 4}, "memory_bytes", 7, "memory_read + memory_written"),
    (NOBODY, {"memory_read": 3}, "memory_bytes", None, ""),
    (NOBODY, {"memory_read": 3, "memory_written": 4, "memory_bytes": 9}, "memory_bytes", 9, "tool"),
    (H100, {"load_sectors": 64, "load_requests": 16}, "sectors_per_load", 4, "load_sectors / load_requests"),
    (H100, {"load_sectors": 0, "load_requests": 0}, "sectors_per_load", None, ""),
    (UNKNOWN, {**LINES, "cache_lines": 12}, "lines_per_access", 4, "cache_lines"),
    (UNKNOWN, {"cache_lines": 0, "load_instructions": 0, "store_instructions": 0}, "lines_per_access", None, ""),
    (UNKNOWN, {"TCC_HIT_sum": 3, "TCC_MISS_sum": 1}, "l2_hits", 75, "TCC_HIT_sum"),
    (H100, GRID, "waves", 80, "ceil(threads of a block / 32)"),
    (MI210, GRID, "waves", 40, "ceil(threads of a block / 64)"),
    (UNKNOWN, GRID, "waves", None, ""),
    (MI210, {"blocks": 20, "threads": 100}, "waves", 40, "blocks x"),
    (H100, {f"launch__shared_mem_per_block_{kind}": 16 for kind in KINDS}, "shared_bytes", 32, "+"),
    (H100, {f"{kind.title()} Shared Memory Per Block": 16 for kind in KINDS}, "shared_bytes", 32, "+"),
    (H100, {CONFLICTS.format("ld"): 3, CONFLICTS.format("st"): 2}, "conflict_passes", 5, "loads"),
    (H100, {THREADS.format("ffma"): 4, **PLAIN}, "fp32_flop", 11, "2 ffma"),
    (H100, PLAIN, "fp32_flop", None, ""),
    (
        MI300X,
        {"SQ_INSTS_VALU_ADD_F32": 1, "SQ_INSTS_VALU_MUL_F32": 2, "SQ_INSTS_VALU_FMA_F32": 4},
        "fp32_flop",
        704,
        "too high where lanes are off",
    ),
    (MI300X, {"SQ_INSTS_VALU_MFMA_MOPS_BF16": 3, "SQ_INSTS_VALU_MFMA_MOPS_F32": 1}, "matrix_flop", 2048, "512 x"),
    (MI300X, {"SQ_THREAD_CYCLES_VALU": 320, "SQ_ACTIVE_INST_VALU": 10}, "lanes_on", 50, "SQ_THREAD_CYCLES_VALU"),
    (MI300X, {"SQ_WAVE_CYCLES": 5}, "wave_cycles", 20, "4 SQ_WAVE_CYCLES"),
    (Device("", "amd", "gfx1100", 96, 32), {"SQ_WAVE_CYCLES": 5}, "wave_cycles", 5, "SQ_WAVE_CYCLES"),
    (UNKNOWN, {"SQ_WAVE_CYCLES": 5}, "wave_cycles", None, ""),
    (MI210, {"SQ_WAVE_CYCLES": 104 * 8 * 500, "busy_cycles": 1000}, "occupancy", 50, "104 CUs x 32 waves"),
    (MI300X, {"SQ_WAVE_CYCLES": 304 * 8 * 500, "busy_cycles": 8000}, "occupancy", 50, "of one XCC"),
    (Device("", "amd", "gfx942", 304, 64), {"SQ_WAVE_CYCLES": 9, "busy_cycles": 8000}, "occupancy", None, ""),
    (MI210, {"SQ_WAVE_CYCLES": 9, "busy_cycles": 0}, "occupancy", None, ""),
    (MI210, {"SQ_VALU_MFMA_BUSY_CYCLES": 104 * 4 * 250, "busy_cycles": 1000}, "matrix_busy", 25, "416 SIMDs"),
    (MI210, {"SQ_ACTIVE_INST_VALU": 104 * 250, "busy_cycles": 1000}, "vector_busy", 25, "104 CUs"),
    (H100, LIMIT, "occupancy_limit", 25, "occupancy of sm_90"),
    (H100, LIMIT, "occupancy_limiter", "registers", "occupancy of sm_90"),
    (MI300X, {**LIMIT, "accumulators": 38, "shared_bytes": 0}, "occupancy_limit", 37.5, "occupancy of gfx942"),
    (MI300X, {**LIMIT, "registers": 16}, "occupancy_limiter", "LDS", "occupancy of gfx942"),
    (UNKNOWN, LIMIT, "occupancy_limit", None, ""),
    (H100, {**LIMIT, "block": (4096, 1, 1)}, "occupancy_limit", None, ""),
    (
        H100,
        {**LIMIT, "launch__occupancy_limit_registers": 8, "launch__occupancy_limit_shared_mem": 2},
        "occupancy_limiter",
        "shared memory",
        "ncu's limits",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("device", "figures", "column", "expected", "words"), TABLE)
def test_a_figure_follows_or_stays_unknown(device, figures, column, expected, words):
    _, event = run(device, **figures)
    found = event.value(column)
    assert found == (pytest.approx(expected) if isinstance(expected, float) else expected)
    if expected is not None:
        assert words in event.figures[column].source
        assert event.figures[column].source.startswith("= ") == (words != "tool")


WAVES = [  # device, counted -> whether it is said
    (MI210, 40, False),
    (MI210, 80, True),
    (UNKNOWN, 40, False),
    (UNKNOWN, 80, False),
    (UNKNOWN, 120, True),
]


@pytest.mark.parametrize(("device", "counted", "said"), WAVES)
def test_waves_that_the_grid_does_not_have_are_said(device, counted, said):
    profile, event = run(device, waves=counted, **GRID)
    assert event.value("waves") == counted
    assert any("other waves than their grid" in remark for remark in profile.remarks) == said


@pytest.mark.parametrize(("moved", "said"), [(5_000_000, False), (5_000_000 * 1024, True)])
def test_bytes_far_above_the_peak_are_said(moved, said):
    profile, _ = run(MI300X, (1000, 2000), memory_bytes=moved)
    assert any("KiB" in remark for remark in profile.remarks) == said


def test_sums_of_launches_derive_nothing():
    _, event = run(H100, calls=4, memory_read=1, memory_written=1)
    assert event.value("memory_bytes") is None
