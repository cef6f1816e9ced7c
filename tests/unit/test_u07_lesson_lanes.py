"""What lesson 07 shows of lanes: exchanges on every target of a vendor, against the lane that each must read."""

from __future__ import annotations

import pytest

from gpu_utils import lesson
from gpu_utils.chips.targets import TARGETS
from gpu_utils.errors import CompileFailed, MissedBarrier
from gpu_utils.exercises.u07_ptx_and_amdgcn.by_hand import AMD, NVIDIA
from gpu_utils.ui.exchange_figure import exchange_figure

ALL = "row_mask:0xf bank_mask:0xf"
SHUFFLES = {
    "shfl.sync.bfly.b32 %r2, %r1, 1, 31, -1;": lambda lane: lane ^ 1,
    "shfl.sync.down.b32 %r2, %r1, 4, 31, -1;": lambda lane: lane + 4 if lane < 28 else lane,
    "shfl.sync.down.b32 %r2, %r1, 4, 0x181f, -1;": lambda lane: lane + 4 if lane % 8 < 4 else lane,
    "shfl.sync.up.b32 %r2, %r1, 1, 0, -1;": lambda lane: max(lane - 1, 0),
    "shfl.sync.idx.b32 %r2, %r1, 5, 31, -1;": lambda lane: 5,
}
EXCHANGES = {
    f"v_mov_b32_dpp v2, v1 quad_perm:[1,0,3,2] {ALL}": lambda lane: lane ^ 1,
    f"v_mov_b32_dpp v2, v1 row_shr:1 {ALL}": lambda lane: lane - 1 if lane % 16 else -101,
    f"v_mov_b32_dpp v2, v1 row_shr:1 {ALL} bound_ctrl:0": lambda lane: lane - 1 if lane % 16 else -100,
    f"v_mov_b32_dpp v2, v1 row_ror:4 {ALL}": lambda lane: lane // 16 * 16 + (lane - 4) % 16,
    "ds_swizzle_b32 v2, v1 offset:swizzle(SWAP,16)\nwait": lambda lane: lane ^ 16,
    "v_lshrrev_b32_e32 v3, 2, v0\nds_bpermute_b32 v2, v3, v1\nwait": lambda lane: lane // 4,
    "v_readlane_b32 s8, v1, 7\ns_nop 1\nv_mov_b32_e32 v2, s8": lambda lane: 7,
}


@pytest.mark.parametrize("target", NVIDIA)
def test_shuffles_take_the_lane_that_the_lesson_names_on_every_target(target):
    for line, source in SHUFFLES.items():
        assert lesson.lane_run(line, target, sanitize=True) == [100 + source(lane) for lane in range(32)], line


@pytest.mark.parametrize("target", AMD)
def test_dpp_and_its_kin_take_the_lane_that_the_lesson_names_on_every_target(target):
    for line, source in EXCHANGES.items():
        expected = [100 + source(lane) for lane in range(TARGETS[target].lanes)]
        assert lesson.lane_run(line, target, sanitize=True) == expected, line


def test_what_a_family_lacks_is_refused_by_its_assembler():
    with pytest.raises(CompileFailed, match="gfx1100: not a valid operand"):
        lesson.lane_run("v_mov_b32_dpp v2, v1 row_bcast:15 row_mask:0xa bank_mask:0xf", "gfx1100")
    with pytest.raises(CompileFailed, match="not supported on this GPU"):
        lesson.lane_run("v_permlane32_swap_b32 v2, v1", "gfx942")


def test_the_sanitizers_see_a_lane_that_its_mask_does_not_name():
    with pytest.raises(MissedBarrier, match="does not name this lane"):
        lesson.lane_run("shfl.sync.down.b32 %r2, %r1, 1, 31, 0xffff;", "sm_80", sanitize="synccheck")


def test_the_figure_draws_a_line_for_every_value_that_came_and_says_who_got_nothing():
    shown = exchange_figure({"gfx942: shift": [-1, 100, 0, 102]})
    assert str(shown) == "gfx942: shift: lanes 0-3 get - 0 0* 2."
    assert shown.html.count("<path") == 2
