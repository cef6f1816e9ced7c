"""Unit 07, exchange between lanes: the kernels written by hand on all targets of their vendor, and the wait states."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from gpu_utils.chips.targets import TARGETS
from gpu_utils.compiler import compile_for
from gpu_utils.errors import CheckTimeout
from gpu_utils.exercises.u07_ptx_and_amdgcn import dpp_sum, lane_sum, mma_layout
from gpu_utils.exercises.u07_ptx_and_amdgcn.by_hand import AMD, NVIDIA, amdgcn_kernel, assembled, refused
from gpu_utils.exercises.u07_ptx_and_amdgcn.lane_weights import how_often
from gpu_utils.exercises.u07_ptx_and_amdgcn.mma_layout_kernels import kernel
from gpu_utils.exercises.u07_ptx_and_amdgcn.mma_layout_tables import LANES, MFMA, MMA, right
from gpu_utils.exercises.u07_ptx_and_amdgcn.wait_states import too_near
from gpu_utils.grading.check import check
from gpu_utils.grading.exercise import Case, Exercise
from gpu_utils.virtual import amdgcn

CDNA = ("gfx90a", "gfx942", "gfx950")


def found(exercise: Exercise, value: Any, **params: Any) -> Any:
    assert exercise.judge is not None
    case = Case("of a test", **params)
    return exercise.judge(case, exercise.inputs(case, torch.Generator().manual_seed(1)), value)


@pytest.mark.parametrize("target", NVIDIA)
@pytest.mark.parametrize("columns", [1, 31, 32, 33, 1000])
def test_the_sum_over_a_warp_is_right_on_every_nvidia_target(target, columns):
    assert found(lane_sum.EXERCISE, lane_sum.ANSWER(), target=target, rows=3, columns=columns) is None


@pytest.mark.parametrize("target", AMD)
def test_the_sum_over_a_wave_is_right_on_every_amd_target(target):
    assert found(dpp_sum.EXERCISE, dpp_sum.right(TARGETS[target].lanes), target=target, rows=4) is None


@pytest.mark.parametrize(("instruction", "target"), [*((MMA, t) for t in NVIDIA), *((MFMA, t) for t in CDNA)])
def test_the_layouts_of_the_manuals_give_the_product(instruction, target):
    assert assembled(kernel(instruction, target), target)
    tables = [right(instruction, lane) for lane in range(LANES[instruction])]
    assert found(mma_layout.EXERCISE, tables, instruction=instruction, target=target) is None


def test_c_lies_as_an_operand_of_the_next_product():
    for lane in range(64):
        assert right(MFMA, lane)["c"] == right(MFMA, lane)["b"]
    for lane in range(32):
        c = right(MMA, lane)["c"]
        assert [*c, *((row, column + 8) for row, column in c)] == right(MMA, lane)["a"]


def test_the_first_element_that_lies_elsewhere_is_named_with_its_lane():
    tables = [right(MFMA, lane) for lane in range(64)]
    tables[5]["c"][1], tables[5]["c"][2] = tables[5]["c"][2], tables[5]["c"][1]
    difference = found(mma_layout.EXERCISE, tables, instruction=MFMA, target="gfx942")
    assert difference.kind.startswith("rows of c")
    assert "lane 5, c[1], where you say (2, 5)" in difference.detail


def test_an_element_that_two_registers_hold_is_named_with_both():
    tables = [right(MMA, lane) for lane in range(32)]
    tables[9]["b"][3] = tables[0]["b"][0]
    difference = found(mma_layout.EXERCISE, tables, instruction=MMA, target="sm_80")
    assert "lane 0, b[0] and lane 9, b[3] both hold (0, 0)" in difference.detail


def test_lanes_that_are_counted_wrongly_are_named():
    part = lane_sum.ANSWER.solution.replace("%f1, 8, 0x1f", "%f1, 4, 0x1f")
    difference = found(lane_sum.EXERCISE, lane_sum.ANSWER.filled(part)(), target="sm_90", rows=1, columns=99)
    assert difference.kind == "counts " + how_often(
        [1.0] * 4 + [2.0] * 4 + [1.0] * 4 + [0.0] * 4 + [1.0] * 4 + [2.0] * 4 + [1.0] * 4 + [0.0] * 4
    )


def test_a_text_that_is_still_to_be_written_is_named_where_the_other_is_written():
    lab = '  // YOUR CODE\n  #error "07.dpp_sum is yours to write"'
    report = check(dpp_sum.EXERCISE, lambda lanes: dpp_sum.right(64) if lanes == 64 else lab)
    assert report.status == "failed"
    assert {outcome.kind for outcome in report.outcomes} == {"", "unwritten: part"}
    assert "the text for 32 lanes is still to be written" in report.headline
    assert check(dpp_sum.EXERCISE, lambda lanes: lab).status == "not started"


def test_a_hint_is_given_where_the_other_text_is_still_to_be_written_or_right():
    lab = '  // YOUR CODE\n  #error "07.dpp_sum is yours to write"'
    wrong = dpp_sum.right(64).replace("v1, 63", "v1, 0")
    for other, name in ((lab, "reads_lane_0"), (dpp_sum.right(32), "reads_lane_0_of_64")):
        report = check(dpp_sum.EXERCISE, lambda lanes, other=other: wrong if lanes == 64 else other)
        assert report.misconception == name


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("v_mov_b32 v15, 0", "writes v15"),
        ("s_mov_b32 s6, 0", "writes s6"),
        ('"x": s_branch x', "straight"),
        ("x : s_branch x", "straight"),
        ("v_nop\n" * 25, "too long"),
        ("s_nop 0\n" * 10_000, "characters"),
        ("s_nop 0 \0", "character"),
    ],
)
def test_what_a_part_may_not_do_is_said(line, kind):
    assert found(dpp_sum.EXERCISE, f"{line}\n{dpp_sum.right(64)}", target="gfx942", rows=2).kind == kind


def test_a_part_that_leaves_s8_as_it_was_is_told_from_a_wrong_sum():
    nothing, product = "  s_nop 0", dpp_sum.right(64).replace("add_f32", "mul_f32")
    assert found(dpp_sum.EXERCISE, nothing, target="gfx942", rows=2).kind == "s8"
    assert found(dpp_sum.EXERCISE, product, target="gfx942", rows=2).kind.startswith("counts")


@pytest.mark.parametrize(
    ("change", "kind", "said"),
    [
        (("summed:", "summed:\n  activemask.b32 %r9;"), "activemask", "name the lanes in the mask yourself"),
        (("@%p2 st", "@%p3 st"), "no store", "no lane of a warp stores; expected one"),
        (("@%p2 st", "st"), "stores", "32 lanes of a warp store; expected one"),
        ((".reg .f32 %f<32>", ".reg .f32 %f<2000000000>"), "registers", "a thread has 255"),
        (("%f2, %f1, 16", "%f40, %f1, 16"), "refused", "Unknown symbol '%f40'"),
        (("ret;", "ret;" + " " * 100_000), "characters", "expected at most 60,000"),
        (("ret;", "ret;\udcff"), "character", "U+DCFF"),
        ((".visible .entry lane_sum", ".visible .func lane_sum"), "no kernel", "no kernel in it"),
    ],
)
def test_what_is_wrong_with_a_kernel_of_ptx_is_said(change, kind, said):
    text = lane_sum.ANSWER().replace(*change)
    difference = found(lane_sum.EXERCISE, text, target="sm_80", rows=1, columns=40)
    assert difference.kind.startswith(kind), difference
    assert said in difference.detail
    assert "/tmp" not in difference.detail


def test_loops_in_loops_end_soon():
    loops = """  mov.u32 %r6, 0;
outer:
  mov.u32 %r7, 0;
inner:
  add.u32 %r7, %r7, 1;
  setp.lt.u32 %p3, %r7, 1900;
  @%p3 bra inner;
  add.u32 %r6, %r6, 1;
  setp.lt.u32 %p3, %r6, 1900;
  @%p3 bra outer;
"""
    difference = found(lane_sum.EXERCISE, lane_sum.ANSWER.filled(loops)(), target="sm_80", rows=1, columns=40)
    assert difference.kind == "error:StepLimit"


def test_a_case_that_is_judged_for_too_long_is_the_last():
    def never(case, inputs, value):
        raise CheckTimeout

    report = check(replace(lane_sum.EXERCISE, judge=never), lane_sum.ANSWER)
    assert [outcome.kind for outcome in report.outcomes] == ["timeout"]
    assert "does a kernel hold a loop that never ends?" in report.headline


def test_numbers_that_are_none_are_no_places():
    tables = [right(MMA, lane) for lane in range(32)]
    for wrong in (float("inf"), float("nan"), 0.5, 1e300, "0"):
        tables[3] = tables[3] | {"b": [(wrong, 0)] * 4}
        difference = found(mma_layout.EXERCISE, tables, instruction=MMA, target="sm_80")
        assert difference.kind == "form"
        assert "expected a pair of whole numbers" in difference.detail


# --- wait states -------------------------------------------------------------------------------------------------


@triton.jit
def _sum_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    tl.store(y_ptr, tl.sum(tl.load(x_ptr + tl.arange(0, BLOCK))))


@pytest.mark.parametrize("target", CDNA)
def test_what_llvm_writes_keeps_the_wait_states_and_without_any_one_s_nop_does_not(target):
    text = compile_for(_sum_kernel, target, [torch.zeros(64), torch.zeros(1)], BLOCK=64, num_warps=1).asm
    assert near(text, target) is None
    pauses = list(re.finditer(r"^\ts_nop \d+\n", text, re.MULTILINE))
    assert len(pauses) >= 5
    for pause in pauses:
        assert near(text[: pause.start()] + text[pause.end() :], target), pause


def near(text: str, target: str) -> Any:
    return too_near(amdgcn.decode(text, target, None).ops, target)


@pytest.mark.parametrize(
    ("part", "what", "states"),
    [
        ("  v_add_f32 v1, v1, v1\n  v_add_f32_dpp v2, v1, v3 row_shr:1\n", "a DPP read", (0, 2)),
        ("  v_mov_b32 v3, 0\n  s_nop 0\n  v_add_f32_dpp v2, v1, v3 row_mirror\n", "a DPP read", (1, 2)),
        ("  v_mov_b32 v3, 0\n  v_readlane_b32 s8, v3, 5\n", "a read of a lane", (0, 1)),
        ("  v_readfirstlane_b32 s9, v1\n  s_nop 2\n  v_readlane_b32 s8, v1, s9\n", "a choice of a lane", (3, 4)),
        (
            "  v_readlane_b32 s9, v1, 0\n  s_mov_b32 s10, 0\n  v_add_f32 v2, s9, v1\n",
            "a read of a scalar register",
            (1, 2),
        ),
    ],
)
def test_a_read_that_comes_too_early_is_found(part, what, states):
    (lines, *_), target = part.rsplit("\n  v_", 1), "gfx942"
    wrong = near(dpp_sum.kernel(part, target), target)
    assert (wrong.what, (wrong.found, wrong.wanted)) == (what, states)
    missing = states[1] - states[0]
    mended = f"{lines}\n  s_nop {missing - 1}\n  v_{part.rsplit(chr(10) + '  v_', 1)[1]}"
    assert near(dpp_sum.kernel(mended, target), target) is None


def test_only_cdna_3_wants_a_wait_state_before_readlane_and_gfx11_none_at_all():
    part = "  v_mov_b32 v3, 0\n  v_readlane_b32 s8, v3, 5\n"
    assert near(dpp_sum.kernel(part, "gfx90a"), "gfx90a") is None
    assert (
        near(dpp_sum.kernel("  v_mov_b32_dpp v2, v2 row_shr:1\n  v_mov_b32_dpp v2, v2 row_shr:1", "gfx1100"), "gfx1100")
        is None
    )


@pytest.mark.parametrize("line", ['.include "/etc/hostname"', '. incbin "x"', ".macro m\n.endm", ".rept 3\n.endr"])
def test_a_text_for_amd_reads_no_file_and_makes_no_text(line):
    said = refused(amdgcn_kernel("k", "x_ptr", f"  {line}\n  s_endpgm", "gfx942"), "gfx942")
    assert said.startswith("the directive .")
