"""The verdicts: on one attempt, and on a whole check. Each is a function; the first that finds something counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpu_utils.errors import CheckTimeout, CompilerMissing
from gpu_utils.grading.compare import Difference, compare
from gpu_utils.grading.execute import NO_VERDICT, Attempt
from gpu_utils.grading.exercise import Exercise
from gpu_utils.grading.jobs import LAUNCHES, Job
from gpu_utils.grading.plain import not_plain
from gpu_utils.grading.report import Mode, Outcome, Status
from gpu_utils.grading.surroundings import TimeLimit, usual_settings

# --- one attempt ------------------------------------------------------------------------------------------------


_WHY = {
    Mode.IDLE: "the result must come from the kernel",
    Mode.DEVICE: "everything must be where the inputs are",
}


def judge(exercise: Exercise, job: Job, attempt: Attempt) -> Outcome:
    """The verdict on one attempt. Without the compiler that it needs there is none."""
    look = {Mode.IDLE: _right_when_idle, Mode.DEVICE: _on_two_devices}.get(job.mode, _problem)
    found = _without_compiler(attempt) or look(exercise, job, attempt)
    return Outcome(
        case=job.case.label,
        why=_WHY.get(job.mode, job.case.why),
        backend=job.backend,
        status="passed" if found is None else "skipped" if found.kind == "skipped" else "failed",
        mode=job.mode,
        fresh=job.fresh,
        kind=found.kind if found else "",
        detail=found.detail if found else "",
        seconds=attempt.seconds,
    )


def _without_compiler(attempt: Attempt) -> Difference | None:
    return Difference("skipped", attempt.message) if attempt.error in NO_VERDICT else None


def _right_when_idle(exercise: Exercise, job: Job, attempt: Attempt) -> Difference | None:
    found = _problem(exercise, job, attempt)
    if found is not None and found.kind != f"limit:{LAUNCHES}":
        return None
    detail = "the result stays right when the kernel does nothing; let the kernel compute and store it"
    return Difference("idle", detail)


def _problem(exercise: Exercise, job: Job, attempt: Attempt) -> Difference | None:
    looks = (
        _wrong_without_gradient,
        _raised,
        _on_another_device,
        _differs,
        _changed_its_input,
        _left_to_torch,
        _over_a_limit,
    )
    found = next((found for look in looks if (found := look(exercise, job, attempt))), None)
    return _with_what_was_not_done(exercise, job, attempt, found)


def _wrong_without_gradient(exercise: Exercise, job: Job, attempt: Attempt) -> Difference | None:
    """A value that is wrong is said before that autograd does not go through it."""
    if attempt.error != "GradientLost" or attempt.value is None:
        return None
    expected = job.expected
    if isinstance(attempt.value, dict) and isinstance(expected, dict):
        expected = {name: part for name, part in expected.items() if name in attempt.value}
    return _differs(exercise, replace(job, expected=expected), attempt)


def _raised(exercise: Exercise, job: Job, attempt: Attempt) -> Difference | None:
    if attempt.error in ("timeout", "died"):
        return Difference(attempt.error, attempt.message)
    return Difference(f"error:{attempt.error}", attempt.message) if attempt.error else None


def _on_another_device(exercise: Exercise, job: Job, attempt: Attempt) -> Difference | None:
    if not attempt.device:
        return None
    inputs_are = "cuda" if job.backend == "gpu" else "cpu"
    detail = f"the result is on {attempt.device}, expected it on {inputs_are}, where the inputs are"
    return Difference("device", detail)


def _differs(exercise: Exercise, job: Job, attempt: Attempt) -> Difference | None:
    try:
        if exercise.judge is None:
            tol = exercise.tolerance(job.case, job.inputs)
            return compare(job.expected, attempt.value, tol, exercise.dtype(job.inputs), parts=exercise.parts)
        if found := not_plain(attempt.value):
            return Difference("type", f"the result is or holds {found}; expected {_WANTED}")
        with usual_settings(), TimeLimit(exercise.seconds):
            return exercise.judge(job.case, job.inputs, attempt.value)
    except CompilerMissing as problem:
        return Difference("skipped", str(problem))
    except CheckTimeout:
        detail = f"judging it was stopped after {exercise.seconds:g} s; does a kernel hold a loop that never ends?"
        return Difference("timeout", detail)
    except Exception as problem:  # of a value that nobody expected: a dtype of two bits, a tensor in place of a name
        what = f"the result cannot be compared with what is right ({type(problem).__name__}: {problem}"[:300]
        return Difference("type", f"{what}); what does it hold?")


_WANTED = "tensors, numbers, strings, and lists and dicts of them"


def _changed_its_input(exercise: Exercise, job: Job, attempt: Attempt) -> Difference | None:
    if not attempt.mutated:
        return None
    detail = f"the answer changed its input {attempt.mutated[0]}; leave it and write the result to new memory"
    return Difference("mutated", detail)


def _left_to_torch(exercise: Exercise, job: Job, attempt: Attempt) -> Difference | None:
    """Where no kernel was launched at all, the limit on launches says so."""
    if not attempt.by_torch or not attempt.counters.get(LAUNCHES):
        return None
    return Difference(f"torch:{attempt.by_torch}", attempt.torch_did)


def _on_two_devices(exercise: Exercise, job: Job, attempt: Attempt) -> Difference | None:
    return _raised(exercise, job, attempt) or (Difference("device", attempt.foreign) if attempt.foreign else None)


def _of_prints(attempt: Attempt) -> str:
    if not attempt.counters.get("calls_of_the_host"):
        return ""
    return " A print in your kernel is compiled, too, and what it does is counted: take it out, then check again."


def _over_a_limit(exercise: Exercise, job: Job, attempt: Attempt) -> Difference | None:
    for limit in exercise.limits:
        violation = limit.violation(job.case, attempt.counters)
        if violation:
            return Difference(f"limit:{limit.counter}", violation + _of_prints(attempt))
    return None


def _with_what_was_not_done(
    exercise: Exercise, job: Job, attempt: Attempt, found: Difference | None
) -> Difference | None:
    """Numbers that are wrong may come of another way to compute them: then nothing is counted of the right one.

    An answer that rounds to bfloat16 before it multiplies is off by little, and has no operation on FP8.
    """
    if found is None or found.kind not in ("value", "nan"):
        return found
    for limit in exercise.limits:
        if limit.side(job.case, attempt.counters) == "at least" and not attempt.counters[limit.counter]:
            return replace(found, detail=f"{found.detail}. Besides, {limit.violation(job.case, attempt.counters)}")
    return found


# --- a whole check ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Checked:
    """What a check found. `runs` counts the jobs that were to run; `attempts` may be fewer."""

    exercise: Exercise
    attempts: Sequence[Attempt]
    outcomes: Sequence[Outcome]
    runs: int

    def that_are(self, status: str) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.status == status]


def conclude(checked: Checked) -> tuple[Status, str]:
    """The status of the whole and its headline."""
    looks = (_not_started, _not_usable, _failed, _without_verdict, _not_run)
    return next((found for look in looks if (found := look(checked))), None) or _passed(checked)


def _not_started(checked: Checked) -> tuple[Status, str] | None:
    if not any(attempt.unwritten for attempt in checked.attempts):
        return None
    return "not started", f"{checked.exercise.id} is yours to write: replace the line below YOUR CODE"


def _not_usable(checked: Checked) -> tuple[Status, str] | None:
    cell = next((attempt for attempt in checked.attempts if attempt.error in ("missing", "signature", "cell")), None)
    return ("failed", cell.message) if cell else None


def _failed(checked: Checked) -> tuple[Status, str] | None:
    failed = checked.that_are("failed")
    if not failed:
        return None
    first = failed[0]
    run = len(checked.outcomes) - len(checked.that_are("skipped"))
    where = f"{'fresh ' if first.fresh else ''}case {first.case} on {first.where}"
    return "failed", f"{len(failed)} of {run} checks failed; first: {where}: {first.detail}"


def _without_verdict(checked: Checked) -> tuple[Status, str] | None:
    """A case that ran, or was to run, and could not be judged for want of a compiler."""
    skipped = [outcome for outcome in checked.that_are("skipped") if outcome.mode is not Mode.NOT_RUN]
    if not skipped:
        return None
    passed = len(checked.that_are("passed"))
    checks = "1 check" if passed == 1 else f"{passed} checks"
    found = f"{checks} passed, {len(skipped)} could not run: " if passed else ""
    return "not graded", f"{found}{skipped[0].detail}"


def _not_run(checked: Checked) -> tuple[Status, str] | None:
    if checked.attempts and len(checked.attempts) >= checked.runs:
        return None
    reasons = "; ".join(f"{outcome.backend}: {outcome.detail}" for outcome in checked.that_are("skipped"))
    return "not graded", f"no backend could run this exercise here ({reasons})"


def _passed(checked: Checked) -> tuple[Status, str]:
    passed = checked.that_are("passed")
    ran = list(dict.fromkeys(outcome.backend for outcome in passed if outcome.mode is Mode.RUN))
    built = list(dict.fromkeys(outcome.backend for outcome in passed if outcome.mode is Mode.COMPILED))
    once = [ran[0]] if checked.exercise.kind != "tile" else ran  # each case of a tile program has a chip of its own
    fresh = [o.fresh for o in checked.outcomes if o.backend in once and o.mode is Mode.RUN]
    cases = f"{fresh.count(False)} public and {fresh.count(True)} fresh cases passed on {' and '.join(ran)}"
    return "passed", f"{cases}; {Mode.COMPILED.of(' and '.join(built))}" if built else cases
