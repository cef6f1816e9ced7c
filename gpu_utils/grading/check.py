"""Check an answer: public cases and fresh ones, on every backend that applies, judged against the reference."""

from __future__ import annotations

import hashlib
import os
import random
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from gpu_utils.backends import Backend, backend
from gpu_utils.compiler.clang import installed
from gpu_utils.compiler.triton import INTERPRETED
from gpu_utils.errors import CheckTimeout, CompilerMissing
from gpu_utils.grading.compare import Difference, compare
from gpu_utils.grading.diagnose import diagnose
from gpu_utils.grading.execute import NO_COMPILER, Attempt, run, signature_problem, time_limit, usual_settings
from gpu_utils.grading.exercise import Case, Exercise, Inputs
from gpu_utils.grading.report import Outcome, Report, Status

FRESH_CASES = 3
STORED = "clang is not installed, so the listing that the course has stored of this source was executed"
LAUNCHES = "launches"
IDLE = " with idle kernels"
ALL_CASES = "all cases"
COMPILED = "compiled for "
"""How the backend column names a target that a kernel was built for and not run on."""

_NARROW = {"bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"}


@dataclass(frozen=True)
class Job:
    """One case on one backend, with its inputs and the expected value (which never leaves the grader).

    idle  every kernel does nothing, and the result must then be wrong: it has to come from the kernel
    """

    case: Case
    fresh: bool
    backend: str
    inputs: Inputs
    expected: Any
    compile_targets: tuple[str, ...] = ()
    skipped: str = ""
    idle: bool = False


Runner = Callable[[Exercise, Sequence[Job]], Sequence[Attempt]]
"""Runs the jobs that are not skipped, in order; may stop early, for example after a timeout."""


def check(
    exercise: Exercise,
    answer: Any,
    *,
    backends: Sequence[str] | None = None,
    seed: int | None = None,
    runner: Runner | None = None,
) -> Report:
    """The Report on one answer.

    answer    the learner's function; None when it was not found
    backends  names to use instead of the default of this machine
    seed      reproduces the fresh cases of an earlier report
    runner    runs the answer elsewhere (the command line's own process); then `answer` is not called here
    """
    start = time.perf_counter()
    seed = secrets.randbits(63) if seed is None else seed
    report = _quick_verdict(exercise, answer, seed) if runner is None else None
    if report is not None:
        return report
    jobs = make_jobs(exercise, seed, backends)
    active = [job for job in jobs if not job.skipped]
    attempts = list((runner or run_here(answer))(exercise, active))
    return _report(exercise, jobs, active, attempts, seed, time.perf_counter() - start)


def missing_answer(exercise: Exercise, seed: int = 0) -> Report:
    """The Report when there is no function of the exercise's name."""
    headline = f"there is no function {exercise.name} yet; write {exercise.signature} in the cell above and run it"
    return Report(exercise.id, exercise.title, "not started", headline, seed=seed)


def unreadable_answer(exercise: Exercise, problem: str) -> Report:
    """The Report when the answer's cell is not Python; `problem` is one sentence."""
    return Report(exercise.id, exercise.title, "failed", problem)


def _quick_verdict(exercise: Exercise, answer: Any, seed: int) -> Report | None:
    if answer is None:
        return missing_answer(exercise, seed)
    problem = signature_problem(exercise, answer)
    return Report(exercise.id, exercise.title, "failed", problem, seed=seed) if problem else None


def choose_backends(exercise: Exercise, names: Sequence[str] | None = None) -> list[Backend]:
    """The backends of a check: those asked for, else W2W_BACKENDS where it applies, else the machine's default.

    The default is a real GPU when there is one; otherwise the CPU, where kernels run on the exercise's virtual GPUs.
    An exercise with limits on what only a virtual GPU counts runs there as well as on the real one, and a C++ kernel
    runs there only: the vendors' compilers and launchers, which a real GPU would need, are not required of a learner.
    """
    if names is None:
        wanted = [name.strip() for name in os.environ.get("W2W_BACKENDS", "").split(",") if name.strip()]
        names = [name for name in (backend(name).name for name in wanted) if _applies(exercise, name)]
    if names:
        return [backend(name) for name in names]
    found = [where for where in map(backend, _defaults(exercise)) if where.unavailable() is None]
    enough = all(limit.counter == LAUNCHES for limit in exercise.limits)
    return found[:1] if found[0].name == "gpu" and enough else found


def _defaults(exercise: Exercise) -> tuple[str, ...]:
    on_virtual = tuple(f"virtual:{target}" for target in exercise.targets)
    kinds = {"kernel": ("gpu", *on_virtual), "cpp": on_virtual, "torch": ("gpu", "cpu"), "host": ("cpu",)}
    return kinds[exercise.kind]


def _applies(exercise: Exercise, name: str) -> bool:
    if exercise.kind == "kernel":
        return name in ("gpu", "interpreter") or name.startswith("virtual:")
    return name.startswith("virtual:") if exercise.kind == "cpp" else name in _defaults(exercise)


def make_jobs(exercise: Exercise, seed: int, names: Sequence[str] | None = None) -> list[Job]:
    """Every case with every backend. The same seed gives the same jobs."""
    rng = random.Random(_subseed(seed, exercise.id, "fresh"))
    cases = [(case, False) for case in exercise.cases] + [(exercise.fresh(rng), True) for _ in range(FRESH_CASES)]
    chosen = choose_backends(exercise, names)
    executed = {where.name.removeprefix("virtual:") for where in chosen}
    to_compile = tuple(target for target in exercise.targets if target not in executed)
    jobs = []
    for index, (case, fresh) in enumerate(cases):
        generator = torch.Generator().manual_seed(_subseed(seed, exercise.id, str(index)) % 2**63)
        inputs = exercise.inputs(case, generator)
        expected, uncompiled = _expected(exercise, inputs)
        targets = to_compile if exercise.kind == "kernel" and not exercise.machine_code and index == 0 else ()
        for number, where in enumerate(chosen):
            reason = where.unavailable() or _cannot_run(exercise, where.name, inputs) or uncompiled
            if not _applies(exercise, where.name):
                reason = f"{exercise.id} does not run on {where.name}"
            jobs.append(Job(case, fresh, where.name, inputs, expected, () if number else targets, reason or ""))
    first = next((job for job in jobs if not job.skipped), None)
    if exercise.kind in ("kernel", "cpp") and first:
        jobs.append(replace(first, compile_targets=(), idle=True))
    return jobs


def _expected(exercise: Exercise, inputs: Inputs) -> tuple[Any, str]:
    """What the reference returns, or why it has no compiler to ask."""
    try:
        return exercise.reference(**inputs), ""
    except CompilerMissing as problem:
        return None, str(problem)


def _cannot_run(exercise: Exercise, name: str, inputs: Inputs) -> str | None:
    if name.startswith("virtual:") and exercise.kind == "kernel" and os.environ.get("TRITON_INTERPRET") == "1":
        return INTERPRETED
    if name != "interpreter":
        return None
    if exercise.machine_code:
        return "Triton's interpreter knows no inline assembly"
    for value in inputs.values():
        if isinstance(value, torch.Tensor) and str(value.dtype).removeprefix("torch.") in _NARROW:
            return f"Triton's interpreter computes {value.dtype} wrongly"
    return None


def _subseed(seed: int, *parts: str) -> int:
    digest = hashlib.sha256("/".join([str(seed), *parts]).encode()).digest()
    return int.from_bytes(digest[:8], "little")


def run_here(answer: Callable[..., Any]) -> Runner:
    """A runner that calls the answer in this process; it stops at a stub and after a timeout."""

    def runner(exercise: Exercise, jobs: Sequence[Job]) -> list[Attempt]:
        attempts = []
        for job in jobs:
            where = backend(job.backend)
            attempts.append(run(exercise, answer, job.inputs, where, job.compile_targets, job.idle))
            if attempts[-1].final:
                break
        return attempts

    return runner


def judge(exercise: Exercise, job: Job, attempt: Attempt) -> Outcome:
    """The verdict on one attempt. Without the compiler that it needs there is none."""
    kind, detail = _idle_problem(exercise, job, attempt) if job.idle else _problem(exercise, job, attempt)
    if attempt.error == NO_COMPILER:
        kind, detail = "skipped", attempt.message
    return Outcome(
        case=job.case.label,
        why="the result must come from the kernel" if job.idle else job.case.why,
        backend=f"{job.backend}{IDLE}" if job.idle else job.backend,
        status="skipped" if kind == "skipped" else "failed" if kind else "passed",
        fresh=job.fresh,
        kind=kind,
        detail=detail,
        seconds=attempt.seconds,
    )


def _idle_problem(exercise: Exercise, job: Job, attempt: Attempt) -> tuple[str, str]:
    if _problem(exercise, job, attempt)[0] in ("", f"limit:{LAUNCHES}"):
        return "idle", "the result stays right when the kernel does nothing; let the kernel compute and store it"
    return "", ""


def _problem(exercise: Exercise, job: Job, attempt: Attempt) -> tuple[str, str]:
    if attempt.error in ("timeout", "died"):
        return attempt.error, attempt.message
    if attempt.error:
        return f"error:{attempt.error}", attempt.message
    if attempt.device:
        inputs_are = "cuda" if job.backend == "gpu" else "cpu"
        return "device", f"the result is on {attempt.device}, expected it on {inputs_are}, where the inputs are"
    try:
        difference = _difference(exercise, job, attempt.value)
    except CompilerMissing as problem:
        return "skipped", str(problem)
    if difference:
        return difference.kind, difference.detail
    if attempt.mutated:
        return (
            "mutated",
            f"the answer changed its input {attempt.mutated[0]}; leave it and write the result to new memory",
        )
    for limit in exercise.limits:
        violation = limit.violation(job.case, attempt.counters)
        if violation:
            return f"limit:{limit.counter}", violation
    return "", ""


def _difference(exercise: Exercise, job: Job, value: Any) -> Difference | None:
    if exercise.judge is None:
        tol = exercise.tolerance(job.case, job.inputs)
        return compare(job.expected, value, tol, exercise.dtype(job.inputs))
    try:
        with usual_settings(), time_limit(exercise.seconds):
            return exercise.judge(job.case, job.inputs, value)
    except CheckTimeout:
        seconds = f"{exercise.seconds:g} s"
        return Difference(
            "timeout", f"judging it was stopped after {seconds}; does a kernel hold a loop that never ends?"
        )


def _report(
    exercise: Exercise,
    jobs: Sequence[Job],
    active: Sequence[Job],
    attempts: Sequence[Attempt],
    seed: int,
    seconds: float,
) -> Report:
    judged = [(job, attempt, judge(exercise, job, attempt)) for job, attempt in zip(active, attempts, strict=False)]
    outcomes = [outcome for _, _, outcome in judged]
    for job, attempt, _ in judged:
        outcomes += _compile_outcomes(job, attempt)
    skipped = {job.backend: job.skipped for job in jobs if job.skipped}
    outcomes += [
        Outcome(case=ALL_CASES, why="", backend=name, status="skipped", kind="skipped", detail=reason)
        for name, reason in skipped.items()
    ]
    outcomes += _uncounted_limits(exercise, judged)
    status, headline = _verdict(exercise, outcomes, attempts, len(active))
    misconception, hint = "", ""
    if status == "failed":
        found = diagnose(exercise, judged, judge)
        misconception, hint = (found.name, found.hint) if found else ("", "")
    return Report(
        exercise.id,
        exercise.title,
        status,
        headline,
        outcomes=tuple(outcomes) if status != "not started" else (),
        misconception=misconception,
        hint=hint,
        seed=seed,
        seconds=seconds,
        printed=_printed(attempts),
        notes=(STORED,) if exercise.kind == "cpp" and status in ("passed", "failed") and not installed() else (),
    )


def _uncounted_limits(exercise: Exercise, judged: Sequence[tuple[Job, Attempt, Outcome]]) -> list[Outcome]:
    """A limit whose counter a backend does not report is shown as skipped there."""
    counted = {job.backend: attempt.counters for job, attempt, _ in judged if not attempt.error and not job.idle}
    return [
        Outcome(
            case=ALL_CASES,
            why="a limit",
            backend=name,
            status="skipped",
            kind="skipped",
            detail=f"the limit on {limit.counter} needs a backend that counts it",
        )
        for name, counters in counted.items()
        for limit in exercise.limits
        if limit.counter not in counters
    ]


def _compile_outcomes(job: Job, attempt: Attempt) -> list[Outcome]:
    return [
        Outcome(
            case=job.case.label,
            why=f"the kernel must build for {'AMD' if target.startswith('gfx') else 'NVIDIA'} too",
            backend=f"{COMPILED}{target}",
            status="failed" if error else "passed",
            kind="compile" if error else "",
            detail=error,
        )
        for target, error in attempt.compiled.items()
    ]


def _verdict(
    exercise: Exercise, outcomes: Sequence[Outcome], attempts: Sequence[Attempt], expected_runs: int
) -> tuple[Status, str]:
    if any(attempt.unwritten for attempt in attempts):
        line = "with `#error`" if exercise.kind == "cpp" else "that raises NotImplementedError"
        return "not started", f"{exercise.id} is yours to write: replace the line {line}"
    cell = next((attempt for attempt in attempts if attempt.error in ("missing", "signature", "cell")), None)
    if cell:
        return "failed", cell.message
    failed = [outcome for outcome in outcomes if outcome.status == "failed"]
    if failed:
        first = failed[0]
        run = sum(outcome.status != "skipped" for outcome in outcomes)
        where = f"{'fresh ' if first.fresh else ''}case {first.case} on {first.backend}"
        return "failed", f"{len(failed)} of {run} checks failed; first: {where}: {first.detail}"
    uncompiled = [outcome for outcome in outcomes if outcome.status == "skipped" and outcome.case != ALL_CASES]
    if uncompiled:
        passed = sum(outcome.status == "passed" for outcome in outcomes)
        checks = "1 check" if passed == 1 else f"{passed} checks"
        found = f"{checks} passed, {len(uncompiled)} could not run: " if passed else ""
        return "not graded", f"{found}{uncompiled[0].detail}"
    if not attempts or len(attempts) < expected_runs:
        reasons = "; ".join(f"{o.backend}: {o.detail}" for o in outcomes if o.status == "skipped")
        return "not graded", f"no backend could run this exercise here ({reasons})"
    names = dict.fromkeys(outcome.backend for outcome in outcomes if outcome.status == "passed")
    ran = [name for name in names if not name.startswith(COMPILED) and not name.endswith(IDLE)]
    fresh = [outcome.fresh for outcome in outcomes if outcome.backend == ran[0]]
    built = " and ".join(name.removeprefix(COMPILED) for name in names if name.startswith(COMPILED))
    cases = f"{fresh.count(False)} public and {fresh.count(True)} fresh cases passed on {' and '.join(ran)}"
    return "passed", f"{cases}; {COMPILED}{built}" if built else cases


def _printed(attempts: Sequence[Attempt]) -> str:
    text = next((attempt.printed for attempt in attempts if attempt.printed_total), "")
    total = sum(attempt.printed_total for attempt in attempts)
    shown = text[:500]
    if total > len(shown) and len(shown) < len(text):
        shown += f"\n... the answer printed {total:,} characters in all; the first {len(shown)} are shown"
    return shown
