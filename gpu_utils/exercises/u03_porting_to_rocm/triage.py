"""03.triage: what a failed job's log says, by name of cause and fix.

An answer reads the text of a log and names cause, fix and the line that shows it. What is wrong is told with the line
that speaks against it.
"""

from __future__ import annotations

import random
from typing import Any

import torch

from gpu_utils.errors import UnknownName
from gpu_utils.exercises.u03_porting_to_rocm.triage_collect import Line, collect, matches, misleading
from gpu_utils.exercises.u03_porting_to_rocm.triage_read import triage_reference
from gpu_utils.exercises.u03_porting_to_rocm.triage_slips import MISCONCEPTIONS
from gpu_utils.exercises.u03_porting_to_rocm.triage_tables import CAUSES, FIXES, TRUTHS, Against, Truth
from gpu_utils.grading.compare import Difference
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    return {"log": collect(case["log"], case.get("seed", 0)).text}


def _judge(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    if not isinstance(value, dict) or set(value) != {"cause", "fix", "line"}:
        return Difference(
            "type", f'the result is {value!r:.60}, expected {{"cause": a name, "fix": a name, "line": a number}}'
        )
    if isinstance(case, Example):
        wanted = triage_reference(inputs["log"])
        wrong = [name for name in wanted if value[name] != wanted[name]]
        return (
            Difference(f"example:{wrong[0]}", f"{wrong[0]} is {value[wrong[0]]!r:.40}, expected {wanted[wrong[0]]!r}")
            if wrong
            else None
        )
    truth, lines = TRUTHS[case["log"]], collect(case["log"], case.get("seed", 0)).lines
    for part, right, known, against in (
        ("cause", truth.cause, CAUSES, truth.causes),
        ("fix", truth.fix, FIXES, truth.fixes),
    ):
        given = value[part]
        if given == right:
            continue
        if not isinstance(given, str) or given not in known:
            return Difference(f"name:{part}", str(UnknownName(part, given, known)))
        before = "" if part == "cause" else f"the cause is {truth.cause}, but "
        return Difference(f"{part}:{given}", f"{before}not {given}: {_why(against.get(given), lines, given, part)}")
    return _line_problem(value["line"], lines, truth)


def _line_problem(given: Any, lines: tuple[Line, ...], truth: Truth) -> Difference | None:
    if isinstance(given, bool) or not isinstance(given, int):
        return Difference("line:type", f"line is {given!r:.40}, expected a number; the first line of the log is 1")
    one = next((line for line in lines if line.number == given), None)
    if one is None:
        return Difference("line:none", f"cause and fix are right, but the log has no line {given} that says so")
    if one.kind == "log" and any(matches(marker, one.text) for marker in truth.evidence):
        return None
    near = (each.why for each in truth.near if one.kind == "log" and matches(each.line, one.text))
    why = (
        next(near, None)
        or {
            "other": "it belongs to another job, whose number stands behind the time",
            "later": "it was written after the job had failed",
            "noise": "it is harmless, and stands in many logs",
            "log": "it belongs to this job, and does not show the cause",
        }[one.kind]
    )
    return Difference(f"line:{one.kind}", f"cause and fix are right, but line {given} says `{one.text.strip()}`: {why}")


def _why(against: Against | None, lines: tuple[Line, ...], given: str, part: str) -> str:
    """The line of the log that speaks against a reading, quoted with its number."""
    if against is None:
        what = (CAUSES if part == "cause" else FIXES)[given]
        misled = misleading(given, lines)
        if misled:
            return f"line {misled.number} says `{misled.text.strip()}`: {_NOT_THE_FAILURE[misled.kind]}"
        advice = "find the first error in time, and say what was found and expected there"
        return f"nothing in the lines of this job up to its failure points to it ({what}); {advice}"
    number, line = line_with(against.line, lines)
    return f"line {number} says `{line}`: {against.why}"


_NOT_THE_FAILURE = {
    "other": "it points to this cause, and belongs to another job: keep the lines of the job that the first line names",
    "later": "it points to this cause, and was written after the job had failed: sort by time, and stop at the first",
}


def line_with(marker: str, lines: tuple[Line, ...]) -> tuple[int, str]:
    """Number and text of the first line in time, of the failure itself, that holds the marker."""
    own = sorted((line for line in lines if line.kind == "log"), key=lambda line: line.at)
    return next((line.number, line.text.strip()) for line in own if matches(marker, line.text))


def _fresh(rng: random.Random) -> Case:
    return Case("the same failure elsewhere", log=rng.choice(list(TRUTHS)), seed=rng.randrange(1, 2**31))


EXERCISE = Exercise(
    id="03.triage",
    title="Sixteen failure logs: cause and fix",
    parameters=("log",),
    kind="host",
    inputs=_inputs,
    reference=triage_reference,
    judge=_judge,
    dtype=lambda inputs: None,
    cases=(
        Case("no GPU, and eight that the driver sees", log="01_batch_job"),
        Case("the same last error, another cause", log="02_workstation"),
        Case("RCCL complains; is it RCCL's fault?", log="03_rl_actors"),
        Case("the traceback ends at an innocent line", log="04_new_node"),
        Case("which memory is too small?", log="05_autotune"),
        Case("three ranks report the network, one has died", log="06_first_step"),
        Case("a build that stops, with a warning before it", log="07_build_a"),
        Case("another build that stops, at something else", log="08_build_b"),
        Case("no error at all until the loss is NaN", log="09_loss"),
        Case("a watchdog speaks, and has only overheard it", log="10_after_upgrade"),
        Case("AMD's driver is there, and a driver is missing", log="11_fresh_env"),
        Case("nothing fails, everything is slow", log="12_slow"),
        Case("NaN again, where 448 is the right number", log="13_new_chip"),
        Case("a network that is really at fault", log="14_two_nodes"),
        Case("two memories are named, one is full", log="15_long_context"),
        Case("two lists that fit, and still no GPU", log="16_first_login"),
        Example(
            "the example of the docstring",
            log="job 7 failed; ...\n08:15:33.160 7 RuntimeError: HIP error: invalid device function",
        ),
        Case("log 1 of another team: lines as they arrived, neighbours, a second attempt", log="01_batch_job", seed=11),
        Case("log 2 of another team", log="02_workstation", seed=6),
        Case("log 3 of another team", log="03_rl_actors", seed=4),
        Case("log 4 of another team, which sets a harmless mask", log="04_new_node", seed=4),
        Case("log 5 of another team", log="05_autotune", seed=30),
        Case("log 6 of another team", log="06_first_step", seed=5),
        Case("log 7 of another team", log="07_build_a", seed=2),
        Case("log 8 of another team", log="08_build_b", seed=9),
        Case("log 9 of another team", log="09_loss", seed=3),
        Case("log 10 of another team", log="10_after_upgrade", seed=23),
        Case("log 11 of another team", log="11_fresh_env", seed=28),
        Case("log 12 of another team", log="12_slow", seed=12),
        Case("log 13 of another team", log="13_new_chip", seed=5),
        Case("log 14 of another team", log="14_two_nodes", seed=7),
        Case("log 15 of another team", log="15_long_context", seed=3),
        Case("log 16 of another team", log="16_first_login", seed=8),
    ),
    fresh=_fresh,
    trivial={
        "nothing": lambda log: None,
        "empty": lambda log: {},
        "the log": lambda log: log,
        "always the network": lambda log: {"cause": "network", "fix": "raise_timeout", "line": 2},
        "always the driver": lambda log: {"cause": "driver", "fix": "reinstall_driver", "line": 2},
    },
    misconceptions=MISCONCEPTIONS,
    hints=(
        "By hand first, for each log: find the first error in time and who speaks (section 9 of the lesson). Write "
        "down one phrase that this failure leaves behind and no other one does. Then let the program find the line.",
        "Split every line into time, job and text. Keep the lines of the job that the first line names, and sort them: "
        "the time stands in front. The first of them that holds a sign decides. A sign is what failed, not a word "
        "for it: 448 is wrong for FNUZ only, P2P/IPC may be in use, a tuner leaves configurations out, and a list of "
        "GPUs is harmless unless it names a number that a list before it has not left.",
        "for time, number, text in sorted(own): for words, (cause, fix) in signs.items(): if words in text: return "
        'them with number. Signs such as "export HSA_OVERRIDE_GFX_VERSION", "P2P/IPC: handle", '
        '"torch.version.hip None", "e4m3fnuz, scale = amax / 448", "finding fastest", "invalid device function"; '
        '"export HIP_VISIBLE_DEVICES" counts only where its largest number is not less than the count of GPUs in '
        '"ROCR_VISIBLE_DEVICES=" of an earlier line.',
    ),
    explanation=(
        "Each failure leaves words that no other one leaves; they are seldom in the last line. But a text holds the "
        "words of many failures: a dead rank makes the others speak of networks and timeouts, neighbours write into "
        "the same collector, and a second attempt fails in its own way. So the order of events decides, not the "
        "presence of a phrase, and an answer that can name its line can be checked by somebody else. The texts are "
        "ours, written after public threads: "
        + "; ".join(f"log {name[:2]}: {truth.source}" for name, truth in TRUTHS.items())
        + "."
    ),
)
