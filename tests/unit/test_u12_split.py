"""12.zero_bubble and 12.dualpipe: what their judges say of orders that no misconception explains."""

from __future__ import annotations

import numpy as np
import pytest

from gpu_utils import exercises
from gpu_utils.exercises.u12_pipeline_schedules import dualpipe_slips, zero_bubble_slips
from gpu_utils.grading.check import check

ZERO, DUAL = (exercises.find(name) for name in ("12.zero_bubble", "12.dualpipe"))


def said(exercise, value, p=2, m=4):
    found = exercise.judge(exercise.cases[0], {"p": p, "m": m}, value)
    return found and found.detail


@pytest.mark.parametrize("exercise", [ZERO, DUAL])
@pytest.mark.parametrize("value", [None, 3, "F", {}, np.zeros(3), [[]], [[], None], [["F"], []], [[("F", 0)], []]])
def test_what_is_no_order_gets_a_sentence(exercise, value):
    sentence = said(exercise, value)
    assert "expected" in sentence
    report = check(exercise, lambda p, m: value)
    assert not report.passed
    assert "Traceback" not in report.headline


@pytest.mark.parametrize(("exercise", "right"), [(ZERO, zero_bubble_slips.reference), (DUAL, dualpipe_slips.reference)])
def test_the_references_keep_every_bound_for_many_sizes(exercise, right):
    for p in (2, 4, 6):
        for m in (2 * p, 2 * p + 2, 3 * p):
            assert said(exercise, right(p, m), p, m) is None


def test_a_rank_that_keeps_too_many_alive_is_named_with_what_waits_for_its_w():
    own = zero_bubble_slips.putting_off(lambda p, rank: p - 1)(4, 8)
    assert said(ZERO, own, 4, 8) == (
        "rank 0 has 7 activations alive at once, 3 of them only for their W; expected at most 4, as 1F1B on its "
        "fullest rank"
    )


def test_an_idle_rank_is_told_with_the_costs():
    own = zero_bubble_slips.putting_off(lambda p, rank: 0)(4, 8)
    assert said(ZERO, own, 4, 8) == "with F = 2, I = 2, W = 2, rank 0 is idle for 12; expected at most 6"
    own = dualpipe_slips.w_at_once(4, 8)
    assert said(DUAL, own, 4, 8).startswith(
        "with F = 2, I = 2, W = 2, F&B = 6, rank 0 is idle for 8; expected at most 4"
    )


def test_pairs_that_are_missing_are_counted():
    assert said(DUAL, dualpipe_slips.apart(4, 8), 4, 8) == (
        "rank 0 runs a forward and a backward together in 0 steps; expected 2 or more"
    )


def test_a_zero_bubble_order_has_no_pairs_of_other_kinds_and_no_whole_backward():
    own = zero_bubble_slips.reference(2, 4)
    own[1][0:2] = [(tuple(own[1][0]), tuple(own[1][1]))]
    assert "cannot run together" in said(ZERO, own)
    assert "its two halves" in said(ZERO, zero_bubble_slips.whole_backward(2, 4))
