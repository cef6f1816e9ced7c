"""Which misconception behaves like this answer?

Every misconception is a wrong answer that runs. It is run on the same inputs as the learner's answer; if it fails
where the answer fails, in the same way, its hint is the one to show.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch

from gpu_utils.backends import backend
from gpu_utils.grading.compare import compare
from gpu_utils.grading.execute import Attempt, run
from gpu_utils.grading.exercise import Exercise, Misconception
from gpu_utils.grading.report import Mode, Outcome

_BY_VALUE = {"value", "nan"}
_OF_SANITIZERS = {"error:Race", "error:LateData"}
"""What the sanitizers of a check raise: a misconception is run under them where the answer failed so."""
_REFUSED = "error:CompileFailed"
_OF_PTXAS = {_REFUSED, "error:UnsupportedInstruction"}
"""What ptxas raises, and what a virtual GPU raises where ptxas did not: a misconception is run with it then, too."""
_ACCESS = re.compile(r"\) (reads|writes) |: a (load|store) reaches")
_OF_NPU = re.compile(r"^NpuFault: ([\w ]+): .*?\b(L1|L0A|L0B|L0C|UB|tensor)\b", re.DOTALL)
_OWN_LINE = re.compile(r" \(line \d+(:| of) .*", re.DOTALL)
_OF_RANK = re.compile(r"rank \d+ of \d+ failed: (\w+)")
_SEVERAL = re.compile(r"other lanes? of the wave|\((?!1 )\d+ accesses")
MOST_JOBS, MOST_PASSES = 6, 4
"""Failed jobs that are compared, and cases that passed; more would cost time and tell nothing new. Where no tensor
meets a device they cost nothing, and a word such as "amd" tells little: all that passed are compared."""

UNWRITTEN = "unwritten: part"
"""Kind of a failure where a part of the answer is still to be written, of which the rest may be wrong or right."""

_CHOSEN = ("limit:launches", "limit:blocks", "limit:threads", "limit:units_filled", "limit:uneven_loads")
"""The shape of a launch is the learner's choice, so the same mistake has other numbers there, on the same side of the
bound. What a kernel moves and executes is not."""


def diagnose(
    exercise: Exercise, judged: Sequence[tuple[Any, Attempt, Outcome]], judge: Callable[..., Outcome]
) -> Misconception | None:
    """The first misconception that behaves as the answer did: the same failures, with the same values; else None.

    judged  (job, attempt, outcome) for every job that ran
    """
    order = {case: place for place, case in enumerate(dict.fromkeys(entry[2].case for entry in judged))}
    judged = sorted(judged, key=lambda entry: order[entry[2].case])  # of each case what all backends say
    # of several texts one may be still to be written: that tells nothing of the others
    failures = [entry for entry in judged if entry[2].status == "failed" and entry[2].kind != UNWRITTEN][:MOST_JOBS]
    passed = {entry[2].case: entry for entry in judged if entry[2].status == "passed" and entry[0].mode is Mode.RUN}
    passes = _spread(list(passed.values()), len(passed) if exercise.kind == "host" else MOST_PASSES)
    if not failures or failures[0][2].kind in ("timeout", "died"):
        return None
    failures.sort(key=lambda entry: entry[1].counters.get("instructions", 0))  # a short run tells most of them apart
    for misconception in exercise.misconceptions:
        if _behaves_alike(exercise, misconception, failures + passes, judge):
            return misconception
    return None


def _spread(entries: list[Any], most: int) -> list[Any]:
    """At most so many of them, from the first to the last: cases that lie side by side are often alike."""
    if len(entries) <= most:
        return entries
    return [entries[index * (len(entries) - 1) // (most - 1)] for index in range(most)]


def _behaves_alike(
    exercise: Exercise,
    misconception: Misconception,
    entries: Sequence[tuple[Any, Attempt, Outcome]],
    judge: Callable[..., Outcome],
) -> bool:
    outside: list[tuple[Attempt, Attempt]] = []
    counters = {limit.counter for limit in exercise.limits}
    watched = any(outcome.kind in {*_OF_SANITIZERS, *_OF_PTXAS} for *_, outcome in entries)
    for job, attempt, outcome in entries:
        place = backend(job.backend)
        if not watched:
            place = place.hurried(counters)
        wrong = run(exercise, misconception.answer, job.inputs, place, mode=job.mode)
        if not _alike(exercise, job, wrong, attempt, judge(exercise, job, wrong), outcome):
            return False
        if outcome.kind == "error:OutOfBounds":
            outside.append((wrong, attempt))
    return not outside or _same_accesses(*zip(*outside, strict=True))


def _alike(exercise: Exercise, job: Any, wrong: Attempt, attempt: Attempt, verdict: Outcome, outcome: Outcome) -> bool:
    """Whether the misconception's attempt failed as the answer's did, or passed as it did."""
    by_value = {verdict.kind, outcome.kind} <= _BY_VALUE
    if verdict.kind != outcome.kind and not by_value:
        return False
    if outcome.kind == _REFUSED:
        return _complaint(wrong) == _complaint(attempt)
    if outcome.kind == "error:RankFailed":
        return _cause(wrong) == _cause(attempt)
    if outcome.kind == "error:NpuFault":
        return _OF_NPU.findall(wrong.message) == _OF_NPU.findall(attempt.message)
    if outcome.kind == "mutated":
        return wrong.mutated == attempt.mutated
    if outcome.kind == "torch:copy":  # of the same input, by whatever operation
        return wrong.torch_did.partition(" (")[0] == attempt.torch_did.partition(" (")[0]
    if outcome.kind.startswith("limit:"):
        counter = outcome.kind.removeprefix("limit:")
        if outcome.kind not in _CHOSEN:
            return wrong.counters[counter] == attempt.counters[counter]
        limits = [limit for limit in exercise.limits if limit.counter == counter]
        return all(limit.side(job.case, wrong.counters) == limit.side(job.case, attempt.counters) for limit in limits)
    if outcome.kind in ("type", "shape", "dtype"):
        return _form(wrong.value, outcome.kind) == _form(attempt.value, outcome.kind)
    if not by_value:
        return True
    tol = exercise.tolerance(job.case, job.inputs)
    found, got = (_returned(exercise, value) for value in (wrong.value, attempt.value))
    return compare(_zero_where_unwritten(found, got), got, tol) is None


def _returned(exercise: Exercise, value: Any) -> Any:
    """Of ranks what they returned: the same mistake may send other messages, at other times."""
    return value["ranks"] if exercise.ranks and isinstance(value, dict) else value


def _form(value: Any, kind: str) -> Any:
    """What a value is: its types, or the shapes or the dtypes of its tensors, with the lengths of lists."""
    if isinstance(value, torch.Tensor):
        return {"shape": tuple(value.shape), "dtype": value.dtype}.get(kind, torch.Tensor)
    if isinstance(value, dict):
        return {key: _form(one, kind) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_form(one, kind) for one in value]
    return type(value)


def _zero_where_unwritten(wrong: Any, got: Any) -> Any:
    """The misconception's value, made for comparing with an answer that allocates zeros instead of new memory."""
    if not (isinstance(wrong, torch.Tensor) and isinstance(got, torch.Tensor) and wrong.shape == got.shape):
        return wrong
    return torch.where(wrong.isnan() & (got == 0), torch.zeros_like(wrong), wrong)


def _same_accesses(wrong: Sequence[Attempt], attempts: Sequence[Attempt]) -> bool:
    """Whether both left a tensor by loads, or by stores, and by one lane alone, or by several.

    So a mask that is one too long is told from none at all. Where tensors lie in memory differs from run to run, and
    what falls into the next one is not outside: so all jobs are looked at together.
    """

    def accesses(found: Sequence[Attempt]) -> set[str]:
        return {match[0] for attempt in found for match in _ACCESS.finditer(attempt.message)}

    def alone(found: Sequence[Attempt]) -> bool:
        return not any(_SEVERAL.search(attempt.message) for attempt in found)

    same_kind = accesses(wrong) == accesses(attempts) or bool(accesses(wrong) & accesses(attempts))
    return same_kind and alone(wrong) == alone(attempts)


def _cause(attempt: Attempt) -> str:
    """The error of the rank that failed first, "" where it died."""
    found = _OF_RANK.search(attempt.message)
    return found[1] if found else ""


def _complaint(attempt: Attempt) -> str:
    """What the compiler objects to, without the line: any two sources can fail to compile."""
    return _OWN_LINE.sub("", attempt.message).rpartition(": ")[2]
