"""Tiers: what a race against a baseline comes to, with a clock that says what it is told to."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import torch

from gpu_utils.chips import CHIPS
from gpu_utils.grading import check as engine
from gpu_utils.grading import progress as store
from gpu_utils.grading.exercise import Case, Exercise, Speed
from gpu_utils.grading.report import Report
from gpu_utils.grading.speed import race
from gpu_utils.timing import Ratio, Timing, bench
from gpu_utils.ui import guide, notebook
from gpu_utils.ui.report import report_html, report_text

SPEED = Speed(
    case=Case("large", n=4000),
    baseline="torch's doubling",
    against=lambda x: 2 * x,
    bytes=lambda case: 8 * case["n"],
    tiers=(1.0, 1.5, 2.0),
)
EXERCISE = Exercise(
    id="00.vector_add",
    title="Twice a vector",
    parameters=("x",),
    kind="torch",
    inputs=lambda case, generator: {"x": torch.rand(case["n"], generator=generator)},
    reference=lambda x: 2 * x.double(),
    cases=(Case("some", n=30),),
    fresh=lambda rng: Case("some", n=rng.randrange(3, 30)),
    misconceptions=(),
    hints=("", "", ""),
    explanation="",
    speed=SPEED,
)
H100 = CHIPS["H100"]
LEAST = 8 * 4000 / (H100.bandwidth_tb.value * 1e12)
"""Seconds that the bytes need."""


def clock(ratio=1.0, seconds=2 * LEAST, pairs=6):
    """Stands for `bench`: makes its calls, and says these times."""

    def timer(fn, *, against, device, before):
        for _ in range(pairs):
            before()
            fn()
            against()
        times = [Timing(median, median, median, pairs, device, "a GPU") for median in (seconds, ratio * seconds)]
        return Ratio(ratio, 0.98 * ratio, 1.02 * ratio, *times)

    return timer


def raced(answer=lambda x: x + x, **of_clock):
    return race(EXERCISE, answer, 1, device="cpu", chip=H100, timer=clock(**of_clock))


@pytest.mark.parametrize(
    ("ratio", "tier", "then"),
    [(0.9, "", "bronze is 1 x"), (1.2, "bronze", "silver is 1.5 x"), (1.6, "silver", "gold is 2 x"), (3, "gold", "")],
)
def test_a_tier_is_earned_by_the_lower_quartile(ratio, tier, then):
    found = raced(ratio=ratio)
    assert (found.tier, found.next_tier) == (tier, then)
    assert raced(ratio=2.0).tier == "silver"  # three of four pairs are to reach it: the quartile is 1.96


def test_the_share_of_the_roofline_follows_from_the_bytes():
    assert raced(seconds=2 * LEAST).fraction == pytest.approx(0.5)
    assert "50% of the roofline" in str(raced(seconds=2 * LEAST))


def test_a_time_that_the_memory_does_not_allow_earns_nothing():
    found = raced(ratio=9, seconds=LEAST / 2)
    assert (found.tier, found.rank) == ("", 0)
    assert "less than its bytes need" in found.problem


def kept():
    results = []

    def answer(x):
        results.append(2 * x)
        return results[0]

    return answer


def small_only(x):
    return 2 * x if len(x) < 100 else torch.zeros_like(x)


@pytest.mark.parametrize(
    "answer",
    [kept(), small_only, lambda x: (2 * x).double(), lambda x: None, lambda x: (2 * x)[:-1]],
    ids=["keeps its first result", "right for small ones only", "another dtype", "nothing", "another shape"],
)
def test_what_is_timed_is_judged(answer):
    found = raced(answer, ratio=3)
    assert (found.tier, found.rank) == ("", 0)
    assert "differs from that of torch's doubling" in found.problem


def test_every_pair_of_runs_gets_inputs_of_its_own():
    seen = []
    raced(lambda x: seen.append(x.clone()) or 2 * x)
    assert len(seen) == 6
    assert all(not torch.equal(one, other) for one, other in itertools.pairwise(seen))


def test_bench_calls_before_once_for_each_pair():
    calls = []
    found = bench(
        lambda: calls.append("fn"),
        against=lambda: calls.append("against"),
        before=lambda: calls.append("before"),
        seconds=1e-9,
        device="cpu",
    )
    assert calls[:4] == ["before", "fn", "fn", "fn"]  # the warm-up
    assert calls[7:13] == ["before", "fn", "against", "before", "against", "fn"]
    assert calls.count("before") == 1 + found.fn.runs


# --- in a check -----------------------------------------------------------------------------------------------------


REPORT = Report("00.vector_add", "Twice a vector", "passed", "all passed")


def test_only_a_right_answer_races_and_what_it_raises_is_a_note(monkeypatch):
    monkeypatch.setattr("gpu_utils.grading.speed.race", lambda *_: 1 / 0)
    (note,) = engine._raced(EXERCISE, lambda x: x, REPORT).notes
    assert "could not be timed on n=4000: ZeroDivisionError" in note
    failed = replace(REPORT, status="failed")
    assert engine._raced(EXERCISE, lambda x: x, failed) is failed
    assert engine._raced(replace(EXERCISE, speed=None), lambda x: x, REPORT) is REPORT


def test_without_a_gpu_nothing_is_shown_and_nothing_fails():
    report = engine.check(EXERCISE, lambda x: 2 * x, backends=["cpu"], seed=1)
    assert report.passed
    assert report.speed is None
    assert "Speed" not in report_text(report)


def test_a_tier_is_shown_and_remembered(monkeypatch, tmp_path):
    monkeypatch.setenv("W2W_DATA", str(tmp_path))
    for ratio in (1.6, 1.1):
        report = replace(REPORT, speed=raced(ratio=ratio))
        notebook.record(report)
    assert "bronze, 1.10 x torch's doubling" in " ".join(report_text(report).split())
    assert "w2w-speed" in report_html(report)
    assert store.standing(["00.vector_add"])[0].tier == 2  # the best of the two
    assert "silver" in repr(guide.progress())
