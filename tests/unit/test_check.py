"""The check of one answer: verdicts, sentences, hints and limits."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import os
import subprocess
import sys
import textwrap
import time
from collections import Counter

import pytest
import torch

from gpu_utils import exercises
from gpu_utils.course import sources
from gpu_utils.errors import UnknownName
from gpu_utils.grading.check import check
from gpu_utils.grading.exercise import Case, Limit, Misconception
from gpu_utils.grading.jobs import FRESH_CASES
from gpu_utils.grading.report import Mode
from gpu_utils.grading.surroundings import usual_settings
from gpu_utils.ui.report import report_text
from tests.unit.sample_exercises import AFFINE, adds_before_scaling, affine, forgets_the_one, raises_on_odd


def test_a_right_answer_passes_public_and_fresh_cases():
    report = check(AFFINE, affine)
    assert report.passed
    assert [outcome.mode for outcome in report.outcomes[:-1]] == [Mode.RUN] * (len(AFFINE.cases) + FRESH_CASES)
    assert report.outcomes[-1].mode is Mode.DEVICE
    assert sum(outcome.fresh for outcome in report.outcomes) == FRESH_CASES


@pytest.mark.parametrize("misconception", AFFINE.misconceptions, ids=lambda m: m.name)
def test_each_misconception_fails_with_its_own_hint(misconception):
    report = check(AFFINE, misconception.answer)
    assert report.status == "failed"
    assert report.hint == misconception.hint


def test_an_answer_that_behaves_like_a_misconception_gets_its_hint():
    report = check(AFFINE, lambda x: x + x)
    assert report.misconception == forgets_the_one.__name__


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (lambda x: (2 * x + 1)[:-1], "drops_the_last"),
        (lambda x: (2 * x + 1)[:-2], ""),
        (lambda x: (2 * x + 1).view(1, -1), ""),
        (lambda x: print(), "returns_nothing"),
        (lambda x: "2 x + 1", ""),
        (lambda x: (2 * x + 1).to(torch.float64), "doubles"),
        (lambda x: (2 * x + 1).to(torch.float16), ""),
    ],
)
def test_a_wrong_form_gets_the_hint_for_that_form_alone(answer, found):
    exercise = dataclasses.replace(
        AFFINE,
        misconceptions=(
            Misconception("drops_the_last", lambda x: (2 * x + 1)[:-1], "All of them."),
            Misconception("returns_nothing", lambda x: None, "Return it."),
            Misconception("doubles", lambda x: (2 * x + 1).double(), "Keep the dtype."),
        ),
    )
    assert check(exercise, answer, backends=["cpu"], seed=1).misconception == found


def test_an_answer_that_is_wrong_in_a_new_way_gets_no_hint():
    report = check(AFFINE, lambda x: 3 * x + 1)
    assert report.status == "failed"
    assert report.hint == ""


def test_the_same_seed_draws_the_same_cases():
    one, two, other = (check(AFFINE, affine, seed=seed) for seed in (5, 5, 6))
    assert [o.case for o in one.outcomes] == [o.case for o in two.outcomes]
    assert [o.case for o in one.outcomes] != [o.case for o in other.outcomes]


def test_an_untouched_stub_reads_not_started():
    def stub(x):
        raise NotImplementedError("99.affine is yours to write")

    report = check(AFFINE, stub)
    assert report.status == "not started"
    assert "yours to write" in report.headline


def test_another_not_implemented_error_is_a_failure():
    def unfinished(x):
        raise NotImplementedError("later")

    assert check(AFFINE, unfinished).status == "failed"


def test_a_missing_answer_reads_not_started_and_names_the_signature():
    report = check(AFFINE, None)
    assert report.status == "not started"
    assert "affine(x)" in report.headline


def test_something_that_is_not_a_function_is_named():
    report = check(AFFINE, 3.0)
    assert report.status == "failed"
    assert "affine is of type float, expected a function affine(x)" in report.headline


@pytest.mark.parametrize("answer", [lambda: 0, lambda y: y, lambda x, y: x])
def test_wrong_parameters_are_named(answer):
    report = check(AFFINE, answer)
    assert report.status == "failed"
    assert "expected (x)" in report.headline


def test_extra_parameters_with_defaults_are_welcome():
    assert check(AFFINE, lambda x, scale=2: scale * x + 1).passed


WRONG = {
    "shape": (lambda x: affine(x)[:-1], "has shape (7,), expected (8,)"),
    "dtype": (lambda x: affine(x).double(), "has dtype torch.float64, expected torch.float32"),
    "device": (lambda x: affine(x).to("meta"), "is on meta, expected it on cpu"),
    "nan": (lambda x: affine(x) * float("nan"), "NaN"),
    "type": (lambda x: None, "is a return missing?"),
    "value": (lambda x: torch.zeros_like(x), "8 of 8 elements differ"),
    "error:ZeroDivisionError": (lambda x: 1 // 0, "ZeroDivisionError"),
    "error:SystemExit": (lambda x: exit(2), "return a value instead"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_answer_fails_with_one_sentence_that_says_what_differs(kind):
    answer, sentence = WRONG[kind]
    failure = check(AFFINE, answer).first_failure
    assert failure.kind == kind
    assert sentence in failure.detail


def test_the_learners_own_line_is_quoted():
    detail = check(AFFINE, raises_on_odd).first_failure.detail
    assert 'raise ValueError("odd sizes are not supported")' in detail


def test_memory_that_is_never_written_shows_as_nan():
    failure = check(AFFINE, torch.empty_like).first_failure
    assert failure.kind == "nan"
    assert "never written" in failure.detail


def test_an_answer_that_changes_its_input_fails():
    failure = check(AFFINE, lambda x: x.mul_(2).add_(1)).first_failure
    assert failure.kind == "mutated"
    assert "its input x" in failure.detail


def test_an_answer_that_never_ends_is_stopped_and_the_process_goes_on():
    def forever(x):
        while True:
            with contextlib.suppress(Exception):
                time.sleep(0.01)

    exercise = dataclasses.replace(AFFINE, seconds=0.3)
    start = time.perf_counter()
    report = check(exercise, forever)
    assert report.first_failure.kind == "timeout"
    assert time.perf_counter() - start < 3
    assert check(AFFINE, affine).passed


def test_a_flood_of_output_is_kept_out_of_the_report(capsys):
    def loud(x):
        print("x" * 5_000_000)
        return affine(x)

    report = check(AFFINE, loud)
    assert report.passed
    assert len(report.printed) < 1000
    assert "characters in all" in report.printed
    assert capsys.readouterr().out == ""


def test_a_limit_on_a_counter_that_the_backend_does_not_have_is_skipped_and_said():
    limit = Limit("matrix_flops", "Use the matrix cores.", at_least=lambda case: 1)
    report = check(dataclasses.replace(AFFINE, limits=(limit,)), affine)
    assert any(outcome.status == "skipped" and "matrix_flops" in outcome.detail for outcome in report.outcomes)


def test_an_unknown_backend_offers_the_nearest():
    with pytest.raises(UnknownName, match="interpreter"):
        check(AFFINE, affine, backends=["interpreted"])


def test_a_backend_that_cannot_run_the_exercise_is_skipped_never_passed():
    report = check(AFFINE, affine, backends=["interpreter"])
    assert report.status == "not graded"
    assert all(outcome.status == "skipped" for outcome in report.outcomes)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU, so the gpu backend is not skipped")
def test_a_gpu_that_is_not_there_is_skipped_with_its_reason():
    report = check(AFFINE, affine, backends=["gpu", "cpu"])
    assert report.passed
    assert any(outcome.backend == "gpu" and outcome.status == "skipped" for outcome in report.outcomes)


def test_two_backends_are_both_judged():
    report = check(AFFINE, adds_before_scaling, backends=["cpu"])
    assert report.status == "failed"


@pytest.mark.parametrize("enough", [None, 2])
def test_of_a_wrong_kernel_three_failures_or_as_many_as_it_says_are_looked_at_and_the_rest_is_left(enough):
    vector_add = exercises.find("00.vector_add")
    if enough:
        vector_add = dataclasses.replace(vector_add, failures=enough)
    enough = enough or 3

    def adds_nothing(x, y):
        return x.clone()

    report = check(vector_add, adds_nothing, backends=["virtual:sm_80", "virtual:gfx942"])
    assert len([outcome for outcome in report.outcomes if outcome.status == "failed"]) == enough
    assert {outcome.backend for outcome in report.outcomes if outcome.status != "skipped"} == {"virtual:sm_80"}
    left = [outcome for outcome in report.outcomes if outcome.case == "the other cases"]
    runs = 2 * (len(vector_add.cases) + FRESH_CASES) + 1  # and one with idle kernels
    assert len(left) == runs - enough
    text = report_text(report)
    assert f"x{len(left)} virtual:sm_80, virtual:gfx942 the other cases (not run)" in text
    assert f"{enough} failures are enough to start with: these runs follow when they are mended" in text


def test_a_kernel_that_fails_less_is_tried_on_every_case():
    vector_add = exercises.find("00.vector_add")
    right = sources.load("00.vector_add", sources.solution("00.vector_add"))

    def wrong_for_one(x, y):
        return x.clone() if len(x) == 1 else right(x, y)

    report = check(vector_add, wrong_for_one, backends=["virtual:sm_80", "virtual:gfx942"])
    ran = [outcome for outcome in report.outcomes if outcome.mode is Mode.RUN]
    assert len(ran) == 2 * (len(vector_add.cases) + FRESH_CASES)
    assert [outcome.backend for outcome in ran] == sorted((outcome.backend for outcome in ran), reverse=True)
    assert Counter(outcome.status for outcome in ran)["failed"] == 2


def test_a_limit_is_broken_on_one_side():
    limit = Limit("launches", "One.", at_least=lambda case: 1, at_most=lambda case: 2)
    found = [limit.side(Case("any"), {"launches": number}) for number in (0, 1, 2, 3)]
    assert found == ["at least", "", "", "at most"]
    assert limit.side(Case("any"), {}) == ""
    assert limit.violation(Case("any"), {"launches": 3}) == "launches is 3, expected at most 2. One."


def test_beside_a_wrong_number_it_is_said_what_was_not_done_at_all():
    launches = Limit("launches", "Launch a kernel.", at_least=lambda case: 1)
    doubling = dataclasses.replace(exercises.find("00.vector_add"), limits=(launches,), misconceptions=())
    report = check(doubling, lambda x, y: 2 * x, backends=["virtual:sm_80"])
    assert report.first_failure is not None
    assert "elements differ" in report.first_failure.detail
    assert report.first_failure.detail.endswith(". Besides, launches is 0, expected at least 1. Launch a kernel.")


def test_a_virtual_gpu_is_for_kernels():
    assert check(AFFINE, affine, backends=["virtual:gfx942"]).status == "not graded"


@pytest.mark.parametrize(
    "problem", [BaseException("base"), GeneratorExit()], ids=lambda problem: type(problem).__name__
)
def test_an_exception_outside_the_usual_tree_fails_its_case_like_any_other(problem):
    def raises(x):
        raise problem

    report = check(AFFINE, raises)
    assert report.first_failure.kind == f"error:{type(problem).__name__}"


def test_an_exception_that_cannot_say_what_it_is_fails_its_case():
    class Mute(Exception):
        def __str__(self):
            raise RuntimeError("no words")

    def raises(x):
        raise Mute

    assert "Mute: no message" in check(AFFINE, raises).first_failure.detail


def test_an_interrupt_by_the_learner_stops_the_check():
    def interrupted(x):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        check(AFFINE, interrupted)


def test_a_process_that_an_answer_forks_ends_with_the_call():
    children = []

    def forks(x):
        children.append(os.fork())
        return affine(x)

    assert check(AFFINE, forks).passed
    assert children
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * len(children)


def _defaults():
    return (
        torch.get_default_dtype(),
        torch.get_default_device(),
        torch.is_grad_enabled(),
        torch.get_rng_state().tolist(),
    )


def test_settings_that_an_answer_changes_are_back_after_its_call():
    def changes(x):
        torch.set_default_dtype(torch.float64)
        torch.set_default_device("meta")
        torch.set_grad_enabled(False)
        torch.manual_seed(0)
        return affine(x)

    before = _defaults()
    assert check(AFFINE, changes).passed
    assert _defaults() == before


def test_a_right_answer_passes_whatever_the_notebook_has_set():
    def needs_gradients(x):
        w = torch.zeros((), requires_grad=True)
        (w * 2).backward()
        return 2 * x + w.grad / 2

    try:
        torch.set_default_dtype(torch.float64)
        torch.set_default_device("meta")
        torch.set_grad_enabled(False)
        with usual_settings():
            report = check(AFFINE, needs_gradients)
        assert torch.get_default_dtype() == torch.float64
        assert torch.get_default_device().type == "meta"
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_default_device(None)
        torch.set_grad_enabled(True)
    assert report.passed, report.headline


async def _asynchronous(x):
    return affine(x)


def _yields(x):
    yield affine(x)


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (_asynchronous, "is an async function"),
        (_yields, "is a generator, because it holds a yield"),
        (lambda *given: affine(*given), "takes (*given)"),
        (lambda x, /: affine(x), "takes (x, /)"),
    ],
)
def test_a_function_that_cannot_be_called_as_asked_says_what_it_is(answer, found):
    assert found in check(AFFINE, answer).headline


class _Lazy(torch.Tensor):
    pass


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (lambda x: affine(x).to_sparse(), "another kind (torch.sparse_coo)"),
        (lambda x: affine(x).as_subclass(_Lazy), "a _Lazy, a subclass"),
        (lambda x: (affine(x),), "a list or tuple of 1 value"),
    ],
)
def test_a_result_that_is_no_ordinary_tensor_is_named(answer, found):
    failure = check(AFFINE, answer).first_failure
    assert failure.kind == "type"
    assert found in failure.detail


def test_with_triton_interpret_set_nothing_is_said_to_have_run_on_a_virtual_gpu():
    """Triton then interprets every kernel, so no machine code is executed, and a reference cannot ask a compiler."""
    script = """
    import torch
    from gpu_utils import exercises
    from gpu_utils.course.sources import load_solution
    from gpu_utils.grading.check import check
    from tests.unit.kernels import add_kernel

    def vector_add(x, y):
        out = torch.empty_like(x)
        add_kernel[(-(-x.numel() // 256),)](x, y, out, x.numel(), BLOCK=256)
        return out

    print(check(exercises.find("00.vector_add"), vector_add))
    print(check(exercises.find("00.vector_add"), vector_add, backends=["interpreter"]))
    print(check(exercises.find("02.occupancy"), load_solution("02.occupancy")))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    reports = done.stdout.splitlines()
    assert len(reports) == 3
    for report in reports:
        assert "NOT GRADED" in report
        assert "TRITON_INTERPRET=1 is set, so Triton compiles no kernel: unset it and restart Python" in report
    assert "could not run" in reports[2]  # those of AMD; the reference of NVIDIA's is arithmetic


@pytest.mark.parametrize("looked", [True, False])
def test_while_a_kernel_is_checked_python_does_not_look_for_garbage_and_then_it_does_as_before(looked):
    seen = []

    def notes(x, y):
        seen.append(gc.isenabled())
        return x

    (gc.enable if looked else gc.disable)()
    try:
        check(exercises.find("00.vector_add"), notes, backends=["virtual:sm_80"])
        after = gc.isenabled()
    finally:
        gc.enable()
    assert not any(seen)
    assert seen
    assert after == looked
