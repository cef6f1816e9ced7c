"""The divergence explorer shows what the virtual GPU executed: each side of a branch on its own lanes, in real code."""

from __future__ import annotations

import numpy as np
import pytest

from gpu_utils import explore
from gpu_utils.analytic.divergence import divergence
from gpu_utils.analytic.expression import indices
from gpu_utils.compiler import stored
from gpu_utils.errors import BackendUnavailable, BadArgument
from gpu_utils.ui.explore.divergence import EXAMPLES, SOURCE, draw, masks_kernel, rows, waves
from tests.conftest import unavailable

TARGETS = ("sm_80", "gfx942")


def traced(condition, code, target):
    try:
        return waves(condition, code, target)
    except BackendUnavailable as missing:
        unavailable(str(missing))


def takes(condition):
    return np.array(indices(f"1 if {condition} else 0", 64), bool)


def line_with(lines, words, first=1):
    return next(number for number, line in enumerate(lines, first) if words in line)


THEN, ELSE = (line_with(SOURCE.splitlines(), words) for words in ("x[lane]", "x[64 + lane]"))


@pytest.mark.parametrize("condition", EXAMPLES)
@pytest.mark.parametrize("target", TARGETS)
def test_both_sides_of_the_branch_run_on_the_lanes_of_the_condition(condition, target):
    figures = traced(condition, "C++", target)
    lanes = 64 // len(figures)
    chosen = takes(condition).reshape(len(figures), lanes)
    table = [row for row in rows(figures) if not row.scalar]
    for wave in range(len(figures)):
        for load, expected in ((THEN, chosen[wave]), (ELSE, ~chosen[wave])):
            loads = [
                row.masks[wave] for row in table if row.line == load and "load" in row.text.replace("ld.", "load.")
            ]
            ran = [mask for mask in loads if mask is not None and mask.any()]
            assert bool(ran) == bool(expected.any()), (wave, load)
            assert all(np.array_equal(mask, expected) for mask in ran)


@pytest.mark.parametrize("target", TARGETS)
def test_lost_slots_are_those_that_the_model_counts(target):
    condition = "lane < 48"
    figures = traced(condition, "C++", target)
    width = 64 // len(figures)
    table = [row for row in rows(figures) if not row.scalar]
    split = [row for row in table if any(mask is None or not mask.all() for mask in row.masks)]
    lost = sum(int((~mask).sum()) for row in table for mask in row.masks if mask is not None)
    chosen = takes(condition)
    diverged = figures[-1].target, len(figures) - 1
    of_then = [row for row in split if row.masks[diverged[1]][0]]
    model = divergence(chosen.tolist(), width, {True: len(of_then), False: len(split) - len(of_then)})
    assert lost == model.lost > 0
    assert f"{lost:,} of " in draw(target, condition, "C++", 1).words


def test_a_condition_that_splits_only_the_wavefront_costs_only_the_wavefront():
    traced("lane < 32", "C++", "sm_80")
    assert "; 0 of " in draw("sm_80", "lane < 32", "C++", 1).words
    assert "; 0 of " not in draw("gfx942", "lane < 32", "C++", 1).words


@pytest.mark.parametrize("condition", ["lane < 48", "lane % 2"])
def test_masks_of_triton_keep_the_same_lanes_out_of_memory(condition):
    source, first = masks_kernel.raw_src, masks_kernel.starting_line_number
    then = line_with(source, "mask=takes)", first)
    for target in TARGETS:
        figures = waves(condition, "Triton", target)
        chosen = takes(condition).reshape(len(figures), -1)
        table = rows(figures)
        loads = [row for row in table if row.line == then and ("ld.global" in row.text or "global_load" in row.text)]
        assert loads
        for row in loads:
            for wave, mask in enumerate(row.masks):
                assert np.array_equal(mask, chosen[wave])


def test_the_slider_goes_through_the_instructions_and_knows_where_they_end():
    explorer = explore("divergence", code="Triton")
    side = explorer.left
    step = side.controls["step"]
    before = side.words
    step.value += 1
    assert side.words != before
    step.value = step.max
    assert f"Instruction {step.max} of {step.max}, ret" in side.words


def test_what_an_instruction_wrote_is_told_of_the_lanes_that_took_part():
    table = rows(waves("lane < 48", "Triton", "gfx942"))
    step = next(number for number, row in enumerate(table, 1) if "v_fma_f32" in row.text)
    assert (
        "wrote v1 = 1, 3, ..., 95<" in draw("gfx942", "lane < 48", "Triton", step).html
    )  # 2 * lane + 1 of lanes 0 to 47


def test_another_condition_changes_both_sides():
    explorer = explore("divergence", "lane < 48", code="Triton")
    condition = explorer.left.controls["condition"]
    condition.value = "lane < 0"
    for side in (explorer.left, explorer.right):
        table = rows(waves("lane < 0", "Triton", "sm_80" if side is explorer.left else "gfx942"))
        assert side.controls["step"].max == len(table)
        assert f" of {len(table)}, " in side.words
    condition.value = "lane <"
    assert 'role="alert"' in explorer.right.report.value


def test_the_branch_is_stored_for_machines_without_the_compiler():
    assert all(stored.find(SOURCE, target) for target in TARGETS), "run `python tools/store_listings.py`"


def test_a_lane_number_is_all_that_a_condition_may_name():
    with pytest.raises(BadArgument, match="the only name is lane"):
        explore("divergence", "threadIdx < 3", code="Triton")


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("", "there is no expression; type one in lane"),
        ("lane / 2", "`lane / 2` divides with /"),
        ("9" * 250, "the expression has 250 characters"),
        ("0) or (lane", "`0) or (lane` is no expression"),
        ("None", "`None` computes with None"),
    ],
)
def test_a_condition_that_is_refused_is_quoted_as_it_was_typed(condition, said):
    with pytest.raises(BadArgument) as refused:
        waves(condition, "Triton", "gfx942")
    assert str(refused.value).startswith(said)
