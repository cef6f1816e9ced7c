"""Check an answer: public cases and fresh ones, on every backend that applies, judged against the reference."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, nullcontext
from dataclasses import replace
from typing import Any

from gpu_utils.backends import backend
from gpu_utils.compiler.clang import installed
from gpu_utils.grading.diagnose import diagnose
from gpu_utils.grading.execute import Attempt, run, signature_problem
from gpu_utils.grading.exercise import Exercise
from gpu_utils.grading.jobs import Job, make_jobs
from gpu_utils.grading.report import Mode, Outcome, Report
from gpu_utils.grading.surroundings import garbage_left
from gpu_utils.grading.verdicts import Checked, conclude, judge

Judged = tuple[Job, Attempt, Outcome]

Runner = Callable[[Exercise, Sequence[Job]], Generator[Attempt, None, None]]
"""Runs the jobs that are not skipped, in order, each when it is asked for. It ends early where no more can be told,
for example after a timeout."""


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
    with garbage_left() if exercise.kind == "kernel" else nullcontext():
        judged = _judged(exercise, active, runner or run_here(answer))
        report = _report(exercise, jobs, active, judged, seed)
    report = replace(report, seconds=time.perf_counter() - start)
    on_gpu = any(job.backend == "gpu" for job in active)
    return _raced(exercise, answer, report) if on_gpu and runner is None else report


def _raced(exercise: Exercise, answer: Callable[..., Any], report: Report) -> Report:
    """A right answer on a real GPU, timed against the baseline. What it raises there is a note, and no failure."""
    if exercise.speed is None or not report.passed:
        return report
    from gpu_utils.grading.speed import race

    try:
        return replace(report, speed=race(exercise, answer, report.seed))
    except Exception as problem:  # the answer's own: out of memory, a size that it did not expect
        said = f"{type(problem).__name__}: {str(problem).partition(chr(10))[0][:200]}"
        return replace(report, notes=(*report.notes, f"it could not be timed on {exercise.speed.case.label}: {said}"))


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


def run_here(answer: Callable[..., Any]) -> Runner:
    """A runner that calls the answer in this process; it stops at a stub and after a timeout."""

    def runner(exercise: Exercise, jobs: Sequence[Job]) -> Generator[Attempt, None, None]:
        for job in jobs:
            attempt = run(exercise, answer, job.inputs, backend(job.backend), job.compile_targets, job.mode)
            yield attempt
            if attempt.final:
                return

    return runner


def _judged(exercise: Exercise, active: Sequence[Job], runner: Runner) -> list[Judged]:
    """What ran, with its verdict: all of it, or as much as it takes to see that a kernel is wrong."""
    judged: list[Judged] = []
    with closing(runner(exercise, active)) as attempts:
        for job, attempt in zip(active, attempts, strict=False):
            judged.append((job, attempt, judge(exercise, job, attempt)))
            if _is_enough(exercise, judged) or judged[-1][2].kind == "timeout":  # each case would take as long
                break
    return judged


def _is_enough(exercise: Exercise, judged: Sequence[Judged]) -> bool:
    failed = sum(outcome.status == "failed" for _, _, outcome in judged)
    return exercise.kind in ("kernel", "tile") and failed == exercise.failures


def _report(exercise: Exercise, jobs: Sequence[Job], active: Sequence[Job], judged: list[Judged], seed: int) -> Report:
    attempts = [attempt for _, attempt, _ in judged]
    outcomes = [outcome for _, _, outcome in judged]
    for job, attempt, _ in judged:
        outcomes += _of_compiling(job, attempt)
    outcomes += _of_backends_that_cannot_run(jobs)
    outcomes += _of_uncounted_limits(exercise, judged)
    status, headline = conclude(Checked(exercise, attempts, outcomes, len(active)))
    if _is_enough(exercise, judged):
        outcomes += _left_out(exercise, active[len(judged) :])
    misconception = diagnose(exercise, judged, judge) if status == "failed" else None
    return Report(
        exercise.id,
        exercise.title,
        status,
        headline,
        outcomes=tuple(outcomes) if status != "not started" else (),
        misconception=misconception.name if misconception else "",
        hint=misconception.hint if misconception else "",
        seed=seed,
        printed=_printed(attempts),
        stored=exercise.kind == "cpp" and status in ("passed", "failed") and not installed(),
    )


def _left_out(exercise: Exercise, jobs: Sequence[Job]) -> list[Outcome]:
    """The runs that were not needed any more: alike, so that one row of a report stands for them all."""
    said = f"{exercise.failures} failures are enough to start with: these runs follow when they are mended"
    return [replace(_not_run(job.backend, "", said), case="the other cases") for job in jobs]


def _of_compiling(job: Job, attempt: Attempt) -> list[Outcome]:
    return [
        Outcome(
            case=job.case.label,
            why=f"the kernel must build for {'AMD' if target.startswith('gfx') else 'NVIDIA'} too",
            backend=target,
            status="failed" if error else "passed",
            mode=Mode.COMPILED,
            kind="compile" if error else "",
            detail=error,
        )
        for target, error in attempt.compiled.items()
    ]


def _of_backends_that_cannot_run(jobs: Sequence[Job]) -> list[Outcome]:
    """One for each backend; and one for each case that no backend could have judged, which leaves the check open."""
    reasons = {job.backend: job.skipped for job in jobs if job.skipped and not job.unjudged}
    open_cases = [
        Outcome(job.case.label, job.case.why, job.backend, "skipped", job.mode, job.fresh, "skipped", job.skipped)
        for job in jobs
        if job.unjudged
    ]
    return [_not_run(name, "", reason) for name, reason in reasons.items()] + open_cases


def _of_uncounted_limits(exercise: Exercise, judged: Sequence[Judged]) -> list[Outcome]:
    """A limit whose counter a backend does not report is shown as skipped there; without a launch there is no count."""
    counted = {
        job.backend: attempt.counters
        for job, attempt, _ in judged
        if not attempt.error and job.mode is Mode.RUN and attempt.counters.get("launches") != 0
    }
    return [
        _not_run(name, "a limit", f"the limit on {limit.counter} needs a backend that counts it")
        for name, counters in counted.items()
        for limit in exercise.limits
        if limit.counter not in counters
    ]


def _not_run(backend: str, why: str, detail: str) -> Outcome:
    return Outcome("all cases", why, backend, "skipped", mode=Mode.NOT_RUN, kind="skipped", detail=detail)


def _printed(attempts: Sequence[Attempt]) -> str:
    text = next((attempt.printed for attempt in attempts if attempt.printed_total), "")
    total = sum(attempt.printed_total for attempt in attempts)
    shown = text[:500]
    if total > len(shown) and len(shown) < len(text):
        shown += f"\n... the answer printed {total:,} characters in all; the first {len(shown)} are shown"
    return shown
