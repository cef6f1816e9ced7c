"""Answers in C++: compiled for each target of the exercise, executed on its virtual GPU, judged like any other."""

from __future__ import annotations

import importlib.util
from dataclasses import replace

import pytest
import torch

from gpu_utils.analytic.tolerance import EXACT
from gpu_utils.errors import BackendUnavailable, ContentError
from gpu_utils.grading.check import check
from gpu_utils.grading.cpp import Framed, launching, load
from gpu_utils.grading.exercise import Case, Exercise, Limit, Misconception
from gpu_utils.grading.jobs import choose_backends, make_jobs
from gpu_utils.grading.program import Part, Program
from gpu_utils.grading.report import Mode
from gpu_utils.grading.sandbox import run_apart
from gpu_utils.ui.report import STORED, report_text
from gpu_utils.virtual import active_gpu, virtual_gpu

DOUBLE = Framed(
    """
__global__ void doubled(const int *x, int *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
@@@
}
""",
    "  if (i < n) out[i] = 2 * x[i];",
)


def _launch(module, inputs):
    x = inputs["x"]
    out = torch.full_like(x, -1)
    module.launch("doubled", -(-len(x) // 64), 64, [x, out, len(x)])
    return out


def doubled():
    return DOUBLE()


EXERCISE = Exercise(
    id="99.doubled",
    title="Twice each element",
    parameters=(),
    kind="cpp",
    inputs=lambda case, generator: {"x": torch.randint(1, 99, (case["n"],), generator=generator, dtype=torch.int32)},
    reference=lambda x: 2 * x,
    cases=(Case("a tail", n=100), Case("full blocks", n=128)),
    fresh=lambda rng: Case("a size nobody chose", n=rng.randrange(65, 300)),
    misconceptions=(
        Misconception("squares", DOUBLE.changed(("2 * x[i]", "x[i] * x[i]")), "Twice, not squared."),
        Misconception("forgets_the_semicolon", DOUBLE.changed(("x[i];", "x[i]")), "A statement ends in a semicolon."),
        Misconception("no_mask", DOUBLE.changed(("if (i < n) ", "")), "The last block reaches past the end."),
    ),
    hints=("One multiplication.", "Mind the tail.", "if (i < n) out[i] = 2 * x[i];"),
    explanation="Each thread doubles one element.",
    tolerance=lambda case, inputs: EXACT,
    call=launching(_launch),
    seconds=30.0,
)


def find(_exercise_id):
    return EXERCISE


@pytest.fixture
def no_clang(monkeypatch):
    really = importlib.util.find_spec
    hidden = lambda name, *rest: None if name == "ziglang" else really(name, *rest)  # noqa: E731
    monkeypatch.setattr(importlib.util, "find_spec", hidden)


# Where it runs


def test_it_runs_on_the_virtual_gpus_that_the_exercise_names_and_nowhere_else():
    assert [where.name for where in choose_backends(EXERCISE)] == ["virtual:sm_80", "virtual:gfx942"]
    narrow = replace(EXERCISE, targets=("sm_89", "gfx942"))
    assert [where.name for where in choose_backends(narrow)] == ["virtual:sm_89", "virtual:gfx942"]
    assert [where.name for where in choose_backends(replace(narrow, kind="kernel"))][-2:] == [
        "virtual:sm_89",
        "virtual:gfx942",
    ]


def test_asked_for_another_kind_of_backend_it_is_skipped_with_the_reason(clang):
    report = check(EXERCISE, doubled, backends=["cpu"])
    assert report.status == "not graded"
    assert "99.doubled does not run on cpu" in report.headline


def test_backends_from_the_environment_count_where_they_apply(monkeypatch):
    monkeypatch.setenv("W2W_BACKENDS", "virtual:gfx1100,interpreter")
    assert [where.name for where in choose_backends(EXERCISE)] == ["virtual:gfx1100"]
    monkeypatch.setenv("W2W_BACKENDS", "interpreter")
    assert [where.name for where in choose_backends(EXERCISE)] == ["virtual:sm_80", "virtual:gfx942"]


# What a check says


def test_a_right_kernel_passes_on_both_vendors(clang):
    report = check(EXERCISE, doubled)
    assert report.passed, report
    assert "passed on virtual:sm_80 and virtual:gfx942" in report.headline
    assert report.notes == ()


@pytest.mark.parametrize("wrong", EXERCISE.misconceptions, ids=lambda wrong: wrong.name)
def test_a_wrong_kernel_gets_the_hint_of_the_misconception_that_behaves_like_it(clang, wrong):
    report = check(EXERCISE, wrong.answer)
    assert (report.status, report.misconception) == ("failed", wrong.name)


def test_the_answer_is_the_same_in_a_process_of_its_own(clang):
    source = f"def doubled():\n    return {DOUBLE()!r}\n"
    assert check(EXERCISE, None, runner=run_apart(Program((Part("cell 5", source),)), find)).passed


def test_an_error_of_the_compiler_names_the_learners_line(clang):
    failure = check(EXERCISE, DOUBLE.filled("  out[i] = twice(x[i]);")).first_failure
    assert failure.kind == "error:CompileFailed"
    assert "line 4, `out[i] = twice(x[i]);`: use of undeclared identifier 'twice'" in failure.detail


def test_another_error_of_the_compiler_gets_nobodys_hint(clang):
    report = check(EXERCISE, DOUBLE.filled("  if (i < n) out[i] = twice(x[i]);"))
    assert (report.status, report.hint) == ("failed", "")


def test_an_access_outside_a_tensor_names_the_line_the_thread_and_the_tensor(clang):
    failure = check(EXERCISE, DOUBLE.changed(("if (i < n) ", ""))).first_failure
    assert failure.kind == "error:OutOfBounds"
    assert "kernel doubled (line 4: out[i] = 2 * x[i];)" in failure.detail
    assert "thread 36" in failure.detail


def test_blocks_that_write_different_values_to_one_place_are_a_race(clang):
    failure = check(EXERCISE, DOUBLE.filled("  if (i < n) out[i % 64] = 2 * x[i];")).first_failure
    assert failure.kind == "error:Race"


def test_a_kernel_that_never_ends_is_stopped_and_its_loop_named(clang):
    source = DOUBLE.filled("  while (((volatile int *)out)[0] < 0) {}")
    failure = check(EXERCISE, source, backends=["virtual:sm_80"]).first_failure
    assert failure.kind == "error:StepLimit"
    assert "the loop (line 4: while (((volatile int *)out)[0] < 0) {}) went round" in failure.detail


@pytest.mark.parametrize("value", [None, 3, b"text"])
def test_an_answer_that_is_no_text_is_named(value):
    detail = check(EXERCISE, lambda: value).first_failure.detail
    assert f"the answer returned {type(value).__name__}, expected the C++ source as a string" in detail


@pytest.mark.parametrize("line", ['#error "99.doubled is yours to write"', '  # error "99.doubled is yours to write"'])
def test_the_labs_error_line_reads_not_started_with_and_without_the_compiler(line, monkeypatch):
    monkeypatch.setattr("gpu_utils.grading.cpp.compile_cpp", lambda *_: pytest.fail("compiled"))
    report = check(EXERCISE, DOUBLE.filled(line))
    assert report.status == "not started"
    assert report.headline == "99.doubled is yours to write: replace the line below YOUR CODE"
    assert report.outcomes == ()


def test_another_error_line_is_a_failure(clang):
    assert check(EXERCISE, DOUBLE.filled('#error "later"')).status == "failed"


def test_a_result_that_stays_right_without_the_kernel_fails(clang):
    def without_kernel(module, inputs):
        _launch(module, inputs)
        return 2 * inputs["x"]

    report = check(replace(EXERCISE, call=launching(without_kernel)), doubled)
    assert report.first_failure.kind == "idle"


def test_limits_on_counters_hold_for_cpp_and_zero_barriers_are_counted(clang):
    limited = replace(EXERCISE, limits=(Limit("barriers", "Add one.", at_least=lambda case: 1),))
    assert check(limited, doubled).first_failure.kind == "limit:barriers"
    with_barrier = DOUBLE.changed(("2 * x[i];", "2 * x[i];\n  __syncthreads();"))
    assert check(limited, with_barrier).passed


# Without the compiler


def test_without_the_compiler_an_unknown_source_is_not_graded_and_never_passed(no_clang):
    report = check(EXERCISE, doubled)
    assert report.status == "not graded"
    assert "W2W_EXTRAS=hip ./w2w study" in report.headline
    assert "pip install" in report.headline
    assert all(outcome.status == "skipped" for outcome in report.outcomes)


def test_without_the_compiler_a_stored_source_is_graded_and_the_report_says_so(no_clang):
    from gpu_utils.exercises.u03_porting_to_rocm import warp_reduce

    exercise = warp_reduce.EXERCISE
    report = check(exercise, warp_reduce.ANSWER)
    assert report.passed, report
    assert report.stored
    assert STORED in report_text(report)
    wrong = check(exercise, exercise.misconceptions[0].answer)
    assert (wrong.status, wrong.misconception) == ("failed", exercise.misconceptions[0].name)
    refused = next(wrong for wrong in exercise.misconceptions if wrong.name == "mask_of_32_bits")
    assert check(exercise, refused.answer).misconception == "mask_of_32_bits"


# The parts


def test_making_jobs_compiles_nothing_elsewhere():
    jobs = make_jobs(EXERCISE, 1)
    assert all(job.compile_targets == () for job in jobs)
    assert sum(job.mode is Mode.IDLE for job in jobs) == 1


def test_a_change_that_changes_nothing_is_refused():
    with pytest.raises(AssertionError, match="the solution has no 'warpSize'"):
        DOUBLE.changed(("warpSize", "32"))


def test_the_active_virtual_gpu_is_the_one_of_the_block_and_outside_there_is_none():
    with virtual_gpu("gfx942") as gpu:
        assert active_gpu() is gpu
        with virtual_gpu("sm_80") as inner:
            assert active_gpu() is inner
        assert active_gpu() is gpu
    with pytest.raises(BackendUnavailable, match="launch this kernel inside"):
        load(DOUBLE())


@pytest.mark.parametrize("text", ["int x;\n", "// BEGIN SOLUTION\nint x;\n", "// END SOLUTION\n// BEGIN SOLUTION\nx\n"])
def test_a_source_without_a_part_for_the_learner_is_refused(tmp_path, text):
    path = tmp_path / "answer.cu"
    path.write_text(text)
    with pytest.raises(ContentError, match=r"answer\.cu:1: expected one `// BEGIN SOLUTION`"):
        Framed.read(path)


def test_a_source_in_a_file_is_cut_at_its_markers(tmp_path):
    path = tmp_path / "answer.cu"
    path.write_text("int a;\n  // BEGIN SOLUTION\n  int b;\n  // END SOLUTION\nint c;\n")
    assert Framed.read(path) == Framed("\nint a;\n@@@\nint c;\n", "  int b;")
