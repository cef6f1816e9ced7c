"""The simulators and checkers that unit 12's exercises are judged by, against the library's and against each other."""

from __future__ import annotations

import random

import pytest

from gpu_utils import exercises
from gpu_utils.analytic.schedules import Costs, arranged
from gpu_utils.exercises.u12_pipeline_schedules import bubble_slips, memory_slips, validate_slips
from gpu_utils.exercises.u12_pipeline_schedules.checker import faults
from gpu_utils.exercises.u12_pipeline_schedules.given_orders import NAMES, broken, given, size_of
from gpu_utils.exercises.u12_pipeline_schedules.orders import WRITERS, schedule
from gpu_utils.exercises.u12_pipeline_schedules.simulator import alive, simulate
from gpu_utils.grading.check import check

LAYOUTS = {name: layout for name, (_, layout) in WRITERS.items()}


@pytest.mark.parametrize("name", NAMES)
def test_the_exercise_finds_a_fault_where_the_library_does(name):
    rng = random.Random(name)
    for _ in range(40):
        p, m = size_of(name, rng)
        changed = given(name, p, m, broken(rng, name, p, m))
        v = 2 if name == "interleaved 1F1B" else 1
        own = arranged(changed["order"], p, m, LAYOUTS[name], v)
        found = validate_slips.validated()(**changed, limit=10**6)
        assert (found is None) == (not faults(own)), changed
        if found and found[0] == "deadlock":
            assert {fault.kind for fault in faults(own)} <= {"order", "deadlock"}
            hanging = {(fault.rank, fault.step) for fault in faults(own)}
            assert set(found[1]) <= hanging


@pytest.mark.parametrize("name", NAMES)
def test_the_exercise_times_an_order_as_the_library_does(name):
    rng = random.Random(name)
    for _ in range(8):
        p, m = size_of(name, rng)
        known, order = schedule(name, p, m), given(name, p, m)
        del order["micros"]
        scale = tuple(rng.randrange(4, 13) / 8 for _ in known.places)
        costs = Costs(1, 1.25, 0.75, together=0.875, link=0.5, scale=scale)
        each = [(costs.F * one, costs.I * one, costs.W * one) for one in scale]
        run = simulate(known, costs)
        own = bubble_slips.simulated()(**order, costs=each, link=costs.link, together=costs.together)
        assert own["seconds"] == pytest.approx(run.seconds, abs=1e-12)
        assert own["idle"] == pytest.approx(list(run.idle), abs=1e-9)
        assert own["bubble"] == pytest.approx(run.bubble, abs=1e-12)
        for found, spans in zip(own["times"], run.spans, strict=True):
            assert found == [pytest.approx(span, abs=1e-9) for span in spans]


@pytest.mark.parametrize("name", NAMES)
def test_bytes_count_what_the_library_counts_where_all_stages_are_alike(name):
    rng = random.Random(name)
    p, m = size_of(name, rng)
    known, order = schedule(name, p, m), given(name, p, m)
    stages = len(known.places)
    found = memory_slips.measured()(
        order["order"],
        order["places"],
        alive=[1] * stages,
        left=[1] * stages,
        entry=[0] * stages,
        weights=[0] * stages,
        budget=10**6,
    )
    assert found == {"peak": list(alive(known)), "recompute": []}


@pytest.mark.parametrize("bad", [None, 3, "F0", [], [None], [[("F", 0)]], {"rank": []}, [[("F", 0, 0.5)]], (1, 2)])
@pytest.mark.parametrize("name", ["one_f_one_b", "validate", "bubble", "memory"])
def test_what_is_no_answer_gets_a_sentence(name, bad):
    report = check(exercises.find(f"12.{name}"), lambda **inputs: bad, seed=3)
    assert report.status == "failed"
    assert "Traceback" not in str(report)
    assert not any(outcome.kind.startswith("error:") for outcome in report.outcomes), str(report)


@pytest.mark.parametrize(
    "places", [[], [(0, 1), (0, 1)], [(7, 0)], [(-1, 0)], [(0, 99)], [(0, 1, 2)], [(0.5, 1)], "ring", [None]]
)
def test_a_ring_that_is_none_gets_a_sentence(places):
    report = check(exercises.find("12.validate"), lambda **inputs: ("deadlock", places), seed=3)
    assert report.status == "failed"
    assert not any(outcome.kind.startswith("error:") for outcome in report.outcomes), str(report)


@pytest.mark.parametrize("stages", [[-1], [99], [0, 0], "0", 0, [0.5], [None]])
def test_stages_that_are_none_get_a_sentence(stages):
    exercise = exercises.find("12.memory")
    report = check(exercise, lambda **inputs: {**exercise.reference(**inputs), "recompute": stages}, seed=3)
    assert report.status == "failed"
    assert not any(outcome.kind.startswith("error:") for outcome in report.outcomes), str(report)
