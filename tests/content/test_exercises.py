"""What every exercise of the course must show. Exercises are found by discovery, so a new one is tested at once."""

from __future__ import annotations

import doctest
import importlib
import inspect
import io
import math
import os
import pkgutil
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from gpu_utils import exercises
from gpu_utils.analytic.tolerance import EXACT
from gpu_utils.backends import BACKENDS, backend
from gpu_utils.compiler.clang import installed
from gpu_utils.course.build import checked
from gpu_utils.grading.check import check, run_here
from gpu_utils.grading.compare import Dtypes, compare, of_part
from gpu_utils.grading.execute import Attempt, run
from gpu_utils.grading.exercise import Exercise, Inputs
from gpu_utils.grading.jobs import draw, make_jobs
from gpu_utils.grading.report import Mode, Report
from tests.conftest import unavailable
from tests.content.conftest import answer_cell, lab_cells

PLANNED = {
    "00": ("vector_add", "saxpy", "platform", "find_mask", "predict_counters", "column_sums"),
    "01": (
        *("attention", "mlp", "block", "init", "logits", "param_count", "flops_per_token"),
        *("grad_accumulation", "lr_schedule", "train_step", "kv_cache", "activation_memory"),
    ),
    "02": (
        *("coalesce", "bank_conflicts", "transpose", "converge", "occupancy", "sized_reduction"),
        *("best_tile", "serve"),
    ),
    "03": (
        *("warp_reduce", "ballot", "lane_id", "shared_budget", "fp8_weights", "hipify_fixups"),
        *("device_agnostic", "inline_asm", "launch_env", "triage", "port_gpt2"),
    ),
    "04": (
        *("copy", "gelu", "dropout"),
        *("softmax", "rmsnorm", "layernorm"),
        *("sum_of_columns", "layernorm_backward", "transpose"),
        *("cross_entropy",),
    ),
    "05": (
        *("tiled", "accumulate", "epilogue"),  # part 1
        *("grouped_order",),  # part 2
        *("persistent", "split_k", "autotune"),  # part 3
    ),
    "06": (
        *("online_softmax", "forward"),  # forward
        *("backward", "gqa", "sliding_window"),  # backward and relatives
        *("decode", "paged_decode", "mla_decode"),  # decoding
    ),
    "07": (
        *("read_listing", "ptx_ex2", "ptx_cvt_fp8", "amdgcn_perm", "lane_sum", "dpp_sum", "mma_layout"),
        *("waitcnt", "barriers", "fix_race", "no_spills", "sm_partition"),
    ),
    "08": (
        *("decode", "encode", "fn_to_fnuz"),  # bytes
        *("quantize_tile", "quantize_block"),  # scales
        *("accumulator", "gemm"),  # sums and products
        *("linear", "train"),  # training
        *("kv_cache_fp8",),  # a cache
    ),
    "09": (
        *("ulp", "reduction_order", "tolerance"),  # how far apart
        *("fixed_tree", "batch_invariant"),  # the same bits on purpose
        *("layer_diff", "convergence"),  # noise or a bug
    ),
    "10": (
        *("mla", "mla_absorb"),  # attention
        *("gate", "group_limited", "bias_update"),  # routing
        *("permute", "grouped_gemm"),  # kernels
        *("moe_block", "mtp"),  # the model
    ),
    "11": (
        *("ring_all_reduce", "hierarchical", "all_to_all_two_hop"),  # collectives
        *("alpha_beta", "node_limited", "bandwidth_rule"),  # costs
        *("dispatch", "combine", "fp8_dispatch"),  # experts over ranks
        *("overlap", "straggler", "eplb"),  # a step
    ),
    "12": (
        *("one_f_one_b", "validate", "bubble", "memory"),  # one order, and what it costs
        *("zero_bubble", "dualpipe"),  # the backward in two
        *("choose",),  # a cluster
    ),
    "13": (
        *("read_trace", "gpu_idle", "read_ncu", "read_rocprof", "roofline_points", "occupancy_from_counters"),
        *("diagnose", "fix", "regression"),
    ),
    "14": (
        *("gemm", "fused_epilogue"),  # one source
        *("swizzle", "prove_bounds", "prove_bijective"),  # layouts and proofs
        *("flags", "memory_plan", "portability"),  # who moves the data
    ),
}
"""The names that learners, gradebooks and later units rely on."""

SEEDS = (1, 20_260)
EVERY = exercises.every()
MISCONCEPTIONS = [
    (exercise, wrong, SEEDS[number % 2]) for exercise in EVERY for number, wrong in enumerate(exercise.misconceptions)
]

each = pytest.mark.parametrize("exercise", EVERY, ids=lambda exercise: exercise.id)
each_misconception = pytest.mark.parametrize(
    ("exercise", "wrong", "seed"),
    MISCONCEPTIONS,
    ids=[f"{exercise.id}-{wrong.name}" for exercise, wrong, _ in MISCONCEPTIONS],
)


def test_there_are_exercises():
    assert EVERY
    assert len({exercise.id for exercise in EVERY}) == len(EVERY)


@pytest.mark.parametrize("number", PLANNED)
def test_every_planned_exercise_exists(number):
    assert {f"{number}.{name}" for name in PLANNED[number]} <= {exercise.id for exercise in exercises.of_unit(number)}


def test_every_unit_with_exercises_is_planned_here():
    assert {exercise.unit for exercise in EVERY} == set(PLANNED)


@each
def test_an_exercise_is_the_constant_exercise_of_the_module_that_has_its_name(exercise):
    (unit,) = (module.name for module in pkgutil.iter_modules(exercises.__path__) if module.name[1:3] == exercise.unit)
    name = exercise.id.split(".")[1]
    assert importlib.import_module(f"gpu_utils.exercises.{unit}.{name}").EXERCISE is exercise


@pytest.mark.parametrize("number", PLANNED)
def test_a_lab_answers_exactly_the_exercises_of_its_unit_in_their_order(number):
    answered = [name for cell in lab_cells(number) if "answer" in cell.tags for name in cell.exercises]
    assert answered == [exercise.id for exercise in exercises.of_unit(number)]


# --- what an exercise declares ----------------------------------------------------------------------------------


@each
def test_it_has_three_hints_an_explanation_and_three_misconceptions(exercise):
    hints = [hint.strip() for hint in exercise.hints]
    assert len(hints) == len(set(hints)) == 3
    assert all(len(hint) > 20 for hint in hints)
    assert len(exercise.explanation.strip()) > 60
    assert exercise.title.strip()
    assert len(exercise.misconceptions) >= 3
    for part in ("name", "hint"):
        texts = [getattr(wrong, part).strip() for wrong in exercise.misconceptions]
        assert len(set(texts)) == len(texts)
        assert all(texts)


@each
def test_it_has_two_cases_and_every_case_has_a_reason(exercise):
    assert len(exercise.cases) >= 2
    fresh = exercise.fresh(random.Random(1))
    reasons = [case.why.strip() for case in (*exercise.cases, fresh)]
    assert all(reasons)
    assert len(set(reasons)) == len(reasons)


@each
def test_fresh_cases_are_drawn_from_the_random_source_alone(exercise):
    drawn = [exercise.fresh(random.Random(seed)).label for seed in range(20)]
    assert drawn == [exercise.fresh(random.Random(seed)).label for seed in range(20)]
    assert len(set(drawn)) > 1


@each
def test_its_parameters_are_those_of_the_solution(exercise, load):
    assert tuple(inspect.signature(load(exercise.id, "solution")).parameters) == exercise.parameters


@each
def test_inputs_and_expected_values_are_plain_data_on_the_cpu_and_depend_on_the_seed_alone(exercise):
    jobs = make_jobs(exercise, SEEDS[0])
    draw.cache_clear()
    again = make_jobs(exercise, SEEDS[0])
    for job, repeated in zip(jobs, again, strict=True):
        for value, same in ((job.inputs, repeated.inputs), (job.expected, repeated.expected)):
            assert_plain(value)
            assert compare(value, stored_and_read(value), EXACT) is None
            assert compare(value, same, EXACT) is None


@each
def test_making_its_cases_leaves_the_random_numbers_of_the_notebook_alone(exercise):
    before = torch.get_rng_state(), random.getstate()
    draw.cache_clear()
    make_jobs(exercise, SEEDS[0])
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]


def stored_and_read(value: Any) -> Any:
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def assert_plain(value: Any) -> None:
    if isinstance(value, torch.Tensor):
        assert type(value) is torch.Tensor
        assert value.device.type == "cpu"
        assert not value.requires_grad
    elif isinstance(value, dict):
        assert all(isinstance(key, (str, int)) for key in value)
        for item in value.values():
            assert_plain(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            assert_plain(item)
    else:
        assert value is None or isinstance(value, (str, int, float, torch.dtype))


def without_a_compiler(report: Report) -> None:
    """Skip (in CI: fail) where C++ that no listing is stored of could not be compiled."""
    if report.status == "not graded" and not installed():
        unavailable(report.headline)


# --- what a check says ------------------------------------------------------------------------------------------


@pytest.mark.drawn("unit", 1)
@each
def test_the_solution_passes_on_every_backend_of_this_machine(exercise, load):
    passed = set()
    for name in (*BACKENDS, *(f"virtual:{target}" for target in exercise.targets)):
        for seed in SEEDS if backend(name).unavailable() is None else ():
            report = check(exercise, load(exercise.id, "solution"), backends=[name], seed=seed)
            if report.status != "not graded":  # a backend that is not for this kind of exercise
                assert report.passed, f"{report}\n{report.first_failure}"
                passed.add(name)
    if not passed:
        without_a_compiler(report)
    assert passed


@pytest.mark.drawn("unit", 1)
@each
def test_the_result_of_the_solution_survives_the_way_from_another_process(exercise, load):
    def runner(exercise, jobs):
        for attempt in run_here(load(exercise.id, "solution"))(exercise, jobs):
            yield replace(attempt, value=stored_and_read(attempt.value))

    report = check(exercise, None, runner=runner, seed=SEEDS[0])
    without_a_compiler(report)
    assert report.passed


@each
def test_the_untouched_answer_cell_reads_not_started(exercise, load):
    report = check(exercise, load(exercise.id, "untouched"))
    assert report.status == "not started"
    assert exercise.id in report.headline
    assert report.outcomes == ()
    assert "Traceback" not in str(report)


@pytest.mark.drawn("unit", 3)
@each
def test_trivial_answers_fail(exercise):
    undiagnosed = replace(exercise, misconceptions=())
    for name, answer in (exercise.trivial or trivial_answers(exercise)).items():
        report = check(undiagnosed, answer, seed=SEEDS[0])
        without_a_compiler(report)
        assert report.status == "failed", f"{name} is {report.status}"
        assert report.outcomes, f"{name} never ran: {report}"
        raised = [outcome.detail for outcome in report.outcomes if outcome.kind.startswith("error:")]
        assert raised == [], f"{name} raises instead of being judged: declare trivial answers that run"


def trivial_answers(exercise: Exercise) -> dict[str, Callable[..., Any]]:
    """Zeros, ones, NaN and an input, in the shape and dtype of what the case of SEEDS[0] with these inputs expects."""
    jobs = [job for job in make_jobs(exercise, SEEDS[0]) if not job.skipped]

    def expected(inputs: Inputs) -> Any:
        return next(job.expected for job in jobs if compare(job.inputs, inputs, EXACT) is None)

    def filled(number: float) -> Callable[..., Any]:
        return lambda **inputs: fill(expected(inputs), number, exercise.dtype(inputs))

    def the_input(**inputs: Any) -> Any:
        shape = getattr(expected(inputs), "shape", None)
        return next((x for x in inputs.values() if getattr(x, "shape", ()) == shape), next(iter(inputs.values())))

    return {"zeros": filled(0.0), "ones": filled(1.0), "nan": filled(math.nan), "the input": the_input}


def fill(value: Any, number: float, dtype: Dtypes) -> Any:
    """The tree with every tensor and number replaced by `number`."""
    if isinstance(value, torch.Tensor):
        if value.is_floating_point():
            return torch.full_like(value, number, dtype=dtype)
        return torch.full_like(value, 2 if math.isnan(number) else int(number))
    if isinstance(value, dict):
        return {key: fill(item, number, of_part(dtype, key)) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [fill(item, number, of_part(dtype, at)) for at, item in enumerate(value)]
    return number


ATTEMPTS: dict[tuple[Any, ...], tuple[Attempt, Inputs]] = {}
"""What misconceptions of one exercise gave for which inputs (told apart by their id): a diagnosis looks at all."""


@pytest.fixture
def misconceptions_run_once(monkeypatch):
    """A diagnosis takes the attempts of misconceptions that were checked before; it makes only those that are new."""

    def own(exercise, answer, inputs, where, targets=(), mode=Mode.RUN):
        attempt = run(exercise, answer, inputs, where, targets, mode)
        if ATTEMPTS and next(iter(ATTEMPTS))[0] != exercise.id:
            ATTEMPTS.clear()
        ATTEMPTS[exercise.id, answer, id(inputs), where.name, mode] = attempt, inputs
        return attempt

    def again(exercise, answer, inputs, where, mode=Mode.RUN):
        known = ATTEMPTS.get((exercise.id, answer, id(inputs), where.name, mode))
        return known[0] if known else run(exercise, answer, inputs, where, mode=mode)

    monkeypatch.setattr("gpu_utils.grading.check.run", own)
    monkeypatch.setattr("gpu_utils.grading.diagnose.run", again)


@pytest.mark.drawn("unit", 2)
@each_misconception
def test_a_misconception_fails_with_its_own_hint(exercise, wrong, seed, misconceptions_run_once):
    report = check(exercise, wrong.answer, seed=seed)
    if report.passed and os.environ.get("W2W_BACKENDS"):  # only a counter tells, and a backend without it was chosen
        assert any("needs a backend that counts it" in outcome.detail for outcome in report.outcomes)
        return
    without_a_compiler(report)
    assert report.status == "failed"
    assert (report.misconception, report.hint) == (wrong.name, wrong.hint), str(report)


# --- what the lab shows -----------------------------------------------------------------------------------------


@each
def test_the_lab_states_it_before_the_answer_and_checks_it_after(exercise):
    cells = lab_cells(exercise.unit)
    place = cells.index(answer_cell(exercise.id))
    statement = cells[place - 1]
    assert statement.kind == "markdown"
    assert exercise.id in statement.source
    assert len(statement.source) > 200
    after = cells[place + 1]
    assert "check" in after.tags
    assert checked(after.source) == [exercise.id]


@pytest.mark.parametrize("number", PLANNED)
def test_a_lab_says_how_to_get_hints_and_the_solution(number):
    text = "\n".join(cell.source for cell in lab_cells(number) if cell.kind == "markdown")
    assert "`hint(" in text
    assert "`solution(" in text


@each
def test_the_starter_has_a_docstring(exercise, load):
    assert inspect.getdoc(load(exercise.id, "untouched"))


@each
def test_the_examples_in_the_starter_hold_for_the_solution(exercise, load):
    answer = load(exercise.id, "solution")
    for example in doctest.DocTestFinder(recurse=False).find(answer, exercise.name, globs=answer.__globals__):
        result = doctest.DocTestRunner().run(example)
        assert result.failed == 0
