"""13.regression: two profiles, and the change that made the program slower."""

from __future__ import annotations

import random
from typing import Any

import torch

from gpu_utils.analytic.tolerance import Tolerance, tolerance
from gpu_utils.exercises.u13_profiling import regression_slips as slips
from gpu_utils.exercises.u13_profiling.drawn_profiles import CAUSES, HARMLESS, HOST, drawn_profiles
from gpu_utils.exercises.u13_profiling.judging import short
from gpu_utils.exercises.u13_profiling.regression_cases import WRITTEN
from gpu_utils.grading.compare import Difference, compare
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Misconception

_right = slips.answer()


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    rng = random.Random(int(torch.randint(2**31, (1,), generator=generator)))
    return drawn_profiles(rng, case["cause"], case["besides"])


def _tolerance(case: Case, inputs: Inputs) -> Tolerance:
    return tolerance(torch.float64, magnitude=0.0, roundings=2 * len(inputs["before"]) + 2 * len(inputs["after"]))


def _judge(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    expected, tol = _right(**inputs), _tolerance(case, inputs)
    if not isinstance(value, dict) or set(value) != set(expected):
        return compare(expected, value, tol)
    right = {field: compare(expected[field], value[field], tol, where=f"'{field}'") for field in expected}
    wrong = [field for field, difference in right.items() if difference]
    if not wrong:
        return None
    first = right[wrong[0]]
    assert first is not None
    kept = [repr(field) for field in right if field not in wrong]
    said = f"; {' and '.join(kept)} {'is' if len(kept) == 1 else 'are'} right" if kept else ""
    return Difference(
        "value" if first.kind == "type" else first.kind, first.detail + _told(expected, value, inputs) + said
    )


def _told(expected: dict[str, Any], value: dict[str, Any], inputs: Inputs) -> str:
    """What the profiles say of the kernel that was named, where that is another one."""
    said = value["kernel"]
    if said == expected["kernel"] or not isinstance(said, str):
        return ""
    if expected["kernel"] is None and said.lower() in ("", "none"):
        return "; asked is None itself, not a word"
    old, new = (slips.grouped(inputs[which], slips.base) for which in ("before", "after"))
    if said in old and said in new:
        return f"; {said} lost {slips.time(new[said]) - slips.time(old[said]):,} ns"
    base = slips.base(said[:1000])
    if base != said and (base in old or base in new):
        return f"; the base name of {short(said)} is {base}"
    if said in old or said in new:
        return f"; {said} is in {'before' if said in old else 'after'} only"
    return f"; {short(said)} is in neither profile"


def _besides(rng: random.Random, cause: str) -> list[str]:
    """Other changes that cost nothing, or less."""
    may = ["renamed", "split", "registers"] if cause == "clock" else list(HARMLESS)
    if cause in CAUSES:
        may.append(HOST)
    return rng.sample(may, rng.randrange(len(may)))


def _fresh(rng: random.Random) -> Case:
    cause = rng.choice([*CAUSES, "idle", "clock", "none"])
    return Case("commits nobody chose", cause=cause, besides=_besides(rng, cause), draw=rng.randrange(10**6))


_WRONG = (
    (
        "the_largest_kernel",
        slips.answer(worst=slips.by_time),
        "You named the kernel that takes most time. Asked is where time was lost: the largest difference.",
    ),
    (
        "by_percent",
        slips.answer(worst=slips.by_percent),
        "You named the kernel that grew by the largest factor. Three times very little is little: compare ns.",
    ),
    (
        "by_launch",
        slips.answer(worst=slips.by_launch),
        "Single launches were compared. A kernel that is launched more often loses time with launches as long as "
        "before: compare sums.",
    ),
    (
        "names_as_they_stand",
        slips.answer(key=slips.as_it_stands),
        "Names were compared as they stand. Template arguments and suffixes change with a build: compare base names.",
    ),
    (
        "new_names_as_they_stand",
        slips.answer(key=slips.as_it_stands, new_too=True),
        "A kernel with another template argument or suffix was taken for a new one that lost all of its time. Compare "
        "base names.",
    ),
    (
        "numbers_left_on",
        slips.answer(key=slips.without_arguments),
        "Numbers behind a name were left on: softmax_3 and softmax_5 are one kernel of two builds.",
    ),
    (
        "void_by_letters",
        slips.answer(key=slips.by_letters),
        "lstrip('void ') takes off every v, o, i, d and space in front: vortex became rtex. removeprefix takes off the "
        "word.",
    ),
    (
        "renamed_is_new",
        slips.answer(new_too=True),
        "A kernel with a new name was called the cause. Others have vanished, and what came takes the time of what "
        "went: the work was there before.",
    ),
    (
        "noise_is_a_cause",
        slips.answer(noise=-1.0),
        "A cause was named where nothing is lost but noise. Below 0.03 of the span of 'before' the answer is 'none'.",
    ),
    (
        "noise_of_a_tenth",
        slips.answer(noise=0.1),
        "A loss was taken for noise. Noise ends at 0.03 of the span of 'before'.",
    ),
    (
        "clock_unseen",
        slips.answer(clock=False),
        "One kernel was blamed where all launches are longer by one factor. No line of code does that: look at all "
        "ratios first.",
    ),
    (
        "idle_ignored",
        slips.answer(waiting=slips.no_idle),
        "Time between kernels was not looked at. The GPU may wait for the host longer than before: span minus the sum "
        "of durations.",
    ),
    (
        "span_for_idle",
        slips.answer(waiting=slips.span),
        "The difference of the spans was taken for idle time. Take the time of the kernels off.",
    ),
    (
        "rows_in_order",
        slips.answer(waiting=slips.first_to_last),
        "The span was taken from the first row to the last. Rows come in any order: take the earliest start and the "
        "latest end.",
    ),
    (
        "idle_first",
        slips.answer(idle_first=True),
        "Idle time has grown, and a kernel lost more than that. Name what costs most.",
    ),
    (
        "bytes_of_all_launches",
        slips.answer(cause=slips.why_by_sums),
        "Bytes of all launches were compared. With more calls they rise as well: compare the bytes of a launch.",
    ),
    (
        "calls_not_counted",
        slips.answer(cause=slips.why_calls_last),
        "The kernel and the loss are right. How often is it launched in either profile?",
    ),
    (
        "registers_for_occupancy",
        slips.answer(cause=slips.why_by_registers),
        "More registers were taken for less occupancy. Between two steps nothing changes: where occupancy is known, it "
        "decides.",
    ),
    (
        "unknown_too_soon",
        slips.answer(cause=slips.why_without_launch),
        "Where occupancy was not collected, the launch still says something: registers and shared memory.",
    ),
    (
        "shared_memory_unseen",
        slips.answer(cause=slips.why_registers_only),
        "Where occupancy was not collected, only registers were looked at. Shared memory keeps blocks out as well.",
    ),
    (
        "always_occupancy",
        slips.answer(cause=slips.why_always_occupancy),
        "Occupancy was named because nothing else was left. No column shows that it fell: then the cause is 'unknown', "
        "and the next step is another counter.",
    ),
    (
        "loss_of_a_launch",
        slips.answer(lost_of=lambda old, new, before, after: slips.mean_time(new) - slips.mean_time(old)),
        "'lost' is that of one launch. Take all launches of the kernel.",
    ),
    (
        "loss_of_the_run",
        slips.answer(lost_of=lambda old, new, before, after: slips.span(after) - slips.span(before)),
        "'lost' is how much longer the whole run took. Other kernels became faster or slower too: take this kernel's "
        "own.",
    ),
    (
        "loss_of_all_kernels",
        slips.answer(lost_of=lambda old, new, before, after: slips.time(after) - slips.time(before)),
        "'lost' is that of all kernels together. Take this kernel's own.",
    ),
    (
        "loss_in_microseconds",
        slips.answer(lost_of=lambda old, new, before, after: (slips.time(new) - slips.time(old)) / 1000),
        "'lost' is 1,000 times too small. Durations are in ns, and so is the loss.",
    ),
    (
        "loss_in_percent",
        slips.answer(lost_of=lambda old, new, before, after: 100 * slips.time(new) / slips.time(old) - 100),
        "'lost' is in percent. Asked are ns: they say what mending it would bring.",
    ),
    (
        "new_time_for_loss",
        slips.answer(lost_of=lambda old, new, before, after: slips.time(new)),
        "'lost' is all the time that the kernel takes now. Take off what it took before.",
    ),
    (
        "turned_around",
        lambda before, after: _right(after, before),
        "Before and after are the wrong way round.",
    ),
)

EXERCISE = Exercise(
    id="13.regression",
    title="Which commit made it slower, and how",
    parameters=("before", "after"),
    kind="host",
    inputs=_inputs,
    reference=_right,
    judge=_judge,
    tolerance=_tolerance,
    dtype=lambda inputs: None,
    cases=(
        *WRITTEN,
        Case("called more often; a small kernel three times as slow", cause="calls", besides=["small", "faster", HOST]),
        Case("more bytes a launch; one kernel split in two", cause="bytes", besides=["split", "small", "faster"]),
        Case(
            "fewer waves resident; another kernel has more registers",
            cause="occupancy",
            besides=["registers", "halves"],
        ),
        Case("the same, where occupancy was not collected", cause="occupancy, not collected", besides=["renamed"]),
        Case("slower, and no column says why", cause="unknown", besides=["small"]),
        Case("slower, bytes and occupancy not collected", cause="unknown, not collected", besides=["halves"]),
        Case("the GPU waits for the host", cause="idle", besides=["small", "renamed", "registers"]),
        Case("every launch longer by one factor", cause="clock", besides=["renamed"]),
        Case(
            "renamed, split, more launches of half the work: nothing lost",
            cause="none",
            besides=["split", "halves", "small"],
        ),
        Case("one kernel renamed, and nothing lost", cause="none", besides=["renamed", "registers"]),
    ),
    fresh=_fresh,
    misconceptions=tuple(Misconception(*wrong) for wrong in _WRONG),
    hints=(
        "Write the losses down first, in ns: one for each kernel that both profiles have, and one for the time in "
        "which no kernel ran. Which is the largest, and is it more than noise?",
        "Group rows by base name. Before anything else look at the ratios of mean launch times: if all are 1.05 or "
        "more and nearly alike, it was the clock. Then the largest loss; then the evidence for that kernel, in the "
        "order calls, bytes of a launch, occupancy.",
        "base = re.sub(r'_\\d+$', '', re.split(r'[<(\\[.]', name.removeprefix('void '))[0].strip()); "
        "span = max(start + duration) - min(start); idle = span - sum of durations; lost[name] = sum of its durations "
        "after - before, for names in both.",
    ),
    explanation=(
        "A regression is a sum of differences, and each belongs to a kernel or to the time between kernels. Sums in ns "
        "can be compared with each other and with the whole; factors and means cannot. Names must be made equal first, "
        "or every new build looks like a new program. The clock comes before the code, since it makes every kernel a "
        "suspect. And evidence is read for one kernel, the one that lost most: something else has always changed too."
    ),
)
