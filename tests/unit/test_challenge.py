"""`challenge`: only right answers enter, and the best entry is marked."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

from gpu_utils import exercises
from gpu_utils.backends.virtual import VirtualBackend
from gpu_utils.errors import UnknownName
from gpu_utils.grading import progress as store
from gpu_utils.grading.challenge import Challenge, Entry, enter
from gpu_utils.grading.exercise import Case, Exercise, Limit
from gpu_utils.grading.report import Report
from gpu_utils.ui import challenge as ui
from gpu_utils.ui.guide import Note


@triton.jit
def double_kernel(x_ptr, out_ptr, n, TIMES: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(out_ptr + offsets, x * TIMES, mask=offsets < n)


def doubling(times=2, launches=1):
    def answer(x):
        out = torch.empty_like(x)
        for _ in range(launches):
            double_kernel[(triton.cdiv(len(x), 256),)](x, out, len(x), TIMES=times, BLOCK=256)
        return out

    return answer


EXERCISE = Exercise(
    id="99.double",
    title="Twice a vector",
    parameters=("x",),
    kind="kernel",
    inputs=lambda case, generator: {"x": torch.rand(case["n"], generator=generator)},
    reference=lambda x: 2 * x.double(),
    cases=(Case("some", n=300),),
    fresh=lambda rng: Case("some", n=300),
    misconceptions=(),
    hints=("", "", ""),
    explanation="",
    limits=(Limit("launches", "Fewer.", at_most=lambda case: 3),),
)
CHALLENGE = Challenge("99.double", Case("many", n=5000))


def test_an_entry_has_cycles_for_each_target_and_more_work_has_more():
    once, twice = (enter(CHALLENGE, EXERCISE, doubling(launches=number), seed=1) for number in (1, 2))
    assert set(once.cycles) == {"sm_80", "gfx942"}
    assert all(0 < once.cycles[target] < twice.cycles[target] for target in once.cycles)
    assert once.refused == ""


@pytest.mark.parametrize(("answer", "says"), [(doubling(times=3), "expected"), (doubling(launches=4), "at most 3")])
def test_what_is_wrong_or_over_a_limit_on_the_case_of_the_challenge_is_refused(answer, says):
    entry = enter(CHALLENGE, EXERCISE, answer, seed=1)
    assert entry.cycles == {}
    assert says in entry.refused


def test_cycles_are_counted_only_where_they_are_asked_for():
    def counters(**asked):
        with VirtualBackend("virtual:sm_80", "sm_80", **asked).session() as session:
            doubling()(torch.rand(300))
        return session.counters

    assert counters(cycles=True)["predicted_cycles"] > 0
    assert "predicted_cycles" not in counters()


def test_a_unit_without_a_challenge_says_which_have_one():
    with pytest.raises(UnknownName, match="no unit with a challenge '00'"):
        exercises.challenge("00")
    assert exercises.challenge("04").exercise in exercises.ids("04")


@pytest.fixture
def entered(monkeypatch, tmp_path):
    """Enters answers of which only this is known: their cycles, or None for a wrong one."""
    monkeypatch.setenv("W2W_DATA", str(tmp_path))
    known = exercises.challenge("04")

    def check(exercise, answer):
        return Report(exercise.id, exercise.title, "failed" if answer is None else "passed", "wrong")

    def cycles(_known, _exercise, answer, _seed):
        return Entry(dict.fromkeys(known.targets, answer if isinstance(answer, int) else 50))

    monkeypatch.setattr(ui.engine, "check", check)
    monkeypatch.setattr(ui, "enter", cycles)
    monkeypatch.setattr(ui.sources, "load", lambda *_: None)
    return lambda answer: ui.challenge("04", answer)


def test_entries_stay_and_the_best_is_marked(entered):
    for number in (90, 40, 70):
        table = entered(number)
    assert [row[-1] for row in table.rows] == ["100", "180", "80", "140"]
    assert table.marked == {2}
    assert table.rows[-1][1] == "now"


def test_many_entries_show_the_latest_and_the_best(entered):
    entered(10)
    for number in range(20):
        table = entered(100 + number)
    assert [row[0] for row in table.rows] == ["the course", "entry 1", *(f"entry {at}" for at in range(10, 22))]
    assert table.marked == {1}


def test_a_wrong_answer_does_not_enter(entered):
    found = entered(None)  # and this module has no function of the exercise's name
    assert isinstance(found, Note)
    assert "not entered" in found.title
    assert store.entries("04", exercises.challenge("04").exercise) == []
