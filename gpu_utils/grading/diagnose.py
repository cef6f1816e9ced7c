"""Which misconception behaves like this answer?

Every misconception is a wrong answer that runs. It is run on the same inputs as the learner's answer; if it fails
where the answer fails, in the same way, its hint is the one to show.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gpu_utils.backends import backend
from gpu_utils.grading.compare import compare
from gpu_utils.grading.execute import Attempt, run
from gpu_utils.grading.exercise import Exercise, Misconception
from gpu_utils.grading.report import Mode, Outcome

_BY_VALUE = {"value", "nan"}
MOST_JOBS = 6
"""Failed jobs that are compared; more would cost time and tell nothing new."""


def diagnose(
    exercise: Exercise, judged: Sequence[tuple[Any, Attempt, Outcome]], judge: Callable[..., Outcome]
) -> Misconception | None:
    """The first misconception that behaves as the answer did: the same failures, with the same values; else None.

    judged  (job, attempt, outcome) for every job that ran
    """
    failures = [entry for entry in judged if entry[2].status == "failed"][:MOST_JOBS]
    passed = {entry[2].case: entry for entry in judged if entry[2].status == "passed" and entry[0].mode is Mode.RUN}
    passes = list(passed.values())[:2]
    if not failures or failures[0][2].kind in ("timeout", "died"):
        return None
    for misconception in exercise.misconceptions:
        if all(_alike(exercise, misconception, *entry, judge) for entry in failures + passes):
            return misconception
    return None


def _alike(
    exercise: Exercise,
    misconception: Misconception,
    job: Any,
    attempt: Attempt,
    outcome: Outcome,
    judge: Callable[..., Outcome],
) -> bool:
    wrong = run(exercise, misconception.answer, job.inputs, backend(job.backend), mode=job.mode)
    verdict = judge(exercise, job, wrong)
    if verdict.kind != outcome.kind:
        return False
    if outcome.kind == "error:CompileFailed":
        return _complaint(wrong) == _complaint(attempt)
    if outcome.kind not in _BY_VALUE:
        return True
    tol = exercise.tolerance(job.case, job.inputs)
    return compare(wrong.value, attempt.value, tol) is None


def _complaint(attempt: Attempt) -> str:
    """What the compiler objects to, without the line: any two sources can fail to compile."""
    return attempt.message.rpartition(": ")[2]
