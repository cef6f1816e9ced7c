"""03.triage: what a failed job's log says, by name of cause and fix.

An answer reads the text of a log and names cause, fix and the line that shows it. What is wrong is told with the line
that speaks against it.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

import torch

from gpu_utils.errors import UnknownName
from gpu_utils.exercises.u03_porting_to_rocm.triage_collect import Line, collect, matches, misleading, public_logs
from gpu_utils.exercises.u03_porting_to_rocm.triage_tables import CAUSES, FIXES, TRUTHS, Against
from gpu_utils.grading.compare import Difference
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs, Misconception

Verdict = dict[str, Any]

_SIGNS: tuple[tuple[str, str], ...] = (
    ("couldn't allocate output register", "ptx_constraint"),
    ("sizeof(MaskT)", "mask_of_32_bits"),
    ("'warpSize' cannot be used", "warp_size_constant"),
    ("out of resource: shared memory", "lds_exceeded"),
    ("when stream is capturing", "call_in_capture"),
    ("torch.version.hip None", "wrong_build"),
    ("finding fastest for", "tuning_left_on"),
    ("amax / 448", "fp8_maximum"),
    ("P2P/IPC", "mask_for_each_rank"),
    ("export HSA_OVERRIDE_GFX_VERSION", "foreign_override"),
    ("export HIP_VISIBLE_DEVICES", "masks_compose"),
    ("invalid device function", "missing_target"),
)
"""Words that only one of the failures leaves behind; where several stand in one line, the first counts."""

_OF_ONE_TEAM = tuple(
    {
        "export HSA_OVERRIDE_GFX_VERSION": ("export HSA_OVERRIDE_GFX_VERSION=11.0.0", cause),
        "couldn't allocate output register": ("tanh.approx.f32", cause),
        "when stream is capturing": ("step_timer.stop() calls torch.cuda.synchronize()", cause),
    }.get(words, (words, cause))
    for words, cause in _SIGNS
)

_FIX_OF = {truth.cause: truth.fix for truth in TRUTHS.values()}


_LISTED = "export HIP_VISIBLE_DEVICES"
_BELOW = "ROCR_VISIBLE_DEVICES="


def _lines(log: str) -> tuple[str, list[tuple[str, int, str, str]]]:
    """(the job that failed, its and others' lines as (time, number, job, text))."""
    header, *rows = log.splitlines()
    return header.split()[1], [(*_split(row, number),) for number, row in enumerate(rows, 2)]


def _split(row: str, number: int) -> tuple[str, int, str, str]:
    time, job, text = row.split(" ", 2)
    return time, number, job, text


def _read(
    log: str,
    own_only: bool = True,
    in_time: bool = True,
    whole: bool = False,
    signs: tuple[tuple[str, str], ...] = _SIGNS,
) -> Verdict:
    """The first line that holds a sign, of the job alone and in the order of time unless something is switched off.

    whole: the first sign that the text holds anywhere, in the order of the signs.
    """
    job, lines = _lines(log)
    if own_only:
        lines = [line for line in lines if line[2] == job]
    if in_time:
        lines.sort()
    hits, below = [], False
    for _, number, _, text in lines:
        below = below or _BELOW in text
        hits += [
            (rank, number, cause)
            for rank, (words, cause) in enumerate(signs)
            if words in text and (words != _LISTED or below)
        ]
    if not hits:
        return _verdict("network", 2)
    _, number, cause = min(hits) if whole else hits[0]
    return _verdict(cause, number)


def triage_reference(log: str) -> Verdict:
    """The verdict by the first sign in time, of the job itself."""
    return _read(log)


def _verdict(cause: str, line: int) -> Verdict:
    return {"cause": cause, "fix": _FIX_OF.get(cause, "raise_timeout"), "line": line}


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
    return _line_problem(value["line"], lines, truth.evidence)


def _line_problem(given: Any, lines: tuple[Line, ...], evidence: tuple[str, ...]) -> Difference | None:
    if isinstance(given, bool) or not isinstance(given, int):
        return Difference("line:type", f"line is {given!r:.40}, expected a number; the first line of the log is 1")
    one = next((line for line in lines if line.number == given), None)
    if one is None:
        return Difference("line:none", f"cause and fix are right, but the log has no line {given} that says so")
    if one.kind == "log" and any(matches(marker, one.text) for marker in evidence):
        return None
    why = {
        "other": "it belongs to another job, whose number stands behind the time",
        "later": "it was written after the job had failed",
        "noise": "it is harmless, and stands in many logs",
        "log": "it belongs to this job, and does not show the cause",
    }[one.kind]
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


def _instead(words: str, cause: str, fix: str = "") -> Callable[[str], Verdict]:
    """A right answer, but for logs whose job wrote the words."""

    def answer(log: str) -> Verdict:
        right = triage_reference(log)
        job, lines = _lines(log)
        own = sorted(line for line in lines if line[2] == job)
        end = next((place for place, line in enumerate(own) if "attempt 2 starts" in line[3]), len(own))
        if not any(re.search(words, line[3]) for line in own[:end]):
            return right
        return {**right, "cause": cause or right["cause"], "fix": fix or right["fix"]}

    return answer


def _reads_the_last_line(log: str) -> Verdict:
    job, lines = _lines(log)
    last = max(line for line in lines if line[2] == job)
    consequence = re.search(r"FAILED|timeout|exit code|Exited|died|remote|CANCELLED|giving up", last[3])
    return _verdict("network", last[1]) if consequence else triage_reference(log)


def _line_of_the_last(log: str) -> Verdict:
    job, lines = _lines(log)
    return {**triage_reference(log), "line": max(line for line in lines if line[2] == job)[1]}


def _knows_the_twelve(log: str) -> Verdict:
    known = {text: triage_reference(text) for text in public_logs().values()}
    return known.get(log, {"cause": "unknown", "fix": "unknown", "line": 1})


def _fresh(rng: random.Random) -> Case:
    return Case("the same failure elsewhere", log=rng.choice(list(TRUTHS)), seed=rng.randrange(1, 2**31))


EXERCISE = Exercise(
    id="03.triage",
    title="Twelve failure logs: cause and fix",
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
    ),
    fresh=_fresh,
    trivial={
        "nothing": lambda log: None,
        "empty": lambda log: {},
        "the log": lambda log: log,
        "always the network": lambda log: _verdict("network", 2),
        "always the driver": lambda log: {"cause": "driver", "fix": "reinstall_driver", "line": 2},
    },
    misconceptions=(
        Misconception(
            "reads_the_last_line",
            _reads_the_last_line,
            "The last line is what the launcher or a waiting rank says when all is over. Look for the first error in "
            "time.",
        ),
        Misconception(
            "no_gpu_means_no_driver",
            _instead("No HIP GPUs", "driver", "reinstall_driver"),
            "`No HIP GPUs are available` is what torch sees at the end of four layers: driver, ROCm runtime, HIP, "
            "torch. Which of them has seen the GPU?",
        ),
        Misconception(
            "no_gpu_means_masks",
            _instead("No HIP GPUs", "masks_compose", "number_within_mask"),
            "Two of the logs end in `No HIP GPUs are available`. Only in one of them two lists compose; what does "
            "the other one set?",
        ),
        Misconception(
            "invalid_function_means_override",
            _instead("invalid device function", "", "set_override"),
            "The cause is right. But code for another chip stays code for another chip: giving the GPU its name "
            "makes it run what it cannot run. Which library lacks a target, and who can build it?",
        ),
        Misconception(
            "nccl_means_broken_links",
            _instead("P2P/IPC", "broken_link", "disable_p2p"),
            "RCCL could not open a peer's memory. Before you blame the links: does the process know that the peer's "
            "GPU exists? Look at what each actor was given.",
        ),
        Misconception(
            "watchdog_means_network",
            _instead("[Ww]atchdog (caught|thread terminated)", "network", "raise_timeout"),
            "A watchdog reports that something else has gone wrong, often ten minutes later. What happened before, on "
            "another rank?",
        ),
        Misconception(
            "connection_means_network",
            _instead("remote process exited|both ranks have joined", "network", "raise_timeout"),
            "A connection ends when a process ends. Which process ended first, and with which words?",
        ),
        Misconception(
            "resource_means_gpu_memory",
            _instead("out of resource", "out_of_memory", "smaller_batch"),
            "Not every memory is the GPU's large one: 64 KiB is the limit of something much smaller.",
        ),
        Misconception(
            "more_dynamic_shared_memory",
            _instead("out of resource", "", "opt_in_shared"),
            "The cause is right. On NVIDIA an attribute raises a default up to the hardware's limit; here the limit "
            "in the log is the hardware's already.",
        ),
        Misconception(
            "every_failed_build_is_the_mask",
            _instead("ninja: build stopped", "mask_of_32_bits", "mask_of_64_bits"),
            "Two builds stop, and not for one reason. Read the word after `error:`; what stands behind `warning:` "
            "stopped nothing.",
        ),
        Misconception(
            "every_failed_build_is_warp_size",
            _instead("ninja: build stopped", "warp_size_constant", "narrowest_wave"),
            "Two builds stop, and not for one reason. One assertion counts the bits of a type.",
        ),
        Misconception(
            "every_failed_build_lacks_a_target",
            _instead("ninja: build stopped", "missing_target", "build_for_target"),
            "Both builds are for the right targets, and the compiler says what it objects to in the source.",
        ),
        Misconception(
            "nan_means_learning_rate",
            _instead("loss nan", "learning_rate", "lower_learning_rate"),
            "The log holds an experiment that settles this: the same seed and learning rate in another dtype.",
        ),
        Misconception(
            "hipblaslt_is_to_blame",
            _instead("hipBLASLt", "blas_unsupported", "build_for_target"),
            "A warning of a library is not the failure: work went on after it. Which line is an error?",
        ),
        Misconception(
            "amd_driver_is_missing",
            _instead("Found no NVIDIA driver", "driver", "reinstall_driver"),
            "The driver that is missing is NVIDIA's, on an AMD machine. Who asks for that one?",
        ),
        Misconception(
            "slow_means_network",
            _instead("finding fastest", "network", "raise_timeout"),
            "The log says how long collectives take in each step. Where does the rest of the time go?",
        ),
        Misconception(
            "phrase_anywhere",
            lambda log: _read(log, own_only=False, in_time=False, whole=True),
            "The words stand somewhere in the text, and other failures leave their words there as well: neighbours, "
            "and a second attempt. Which line of this job came first in time?",
        ),
        Misconception(
            "every_job",
            lambda log: _read(log, own_only=False),
            "That line belongs to a neighbour. The first line of the text names the job that failed, and the number "
            "behind the time says whose a line is.",
        ),
        Misconception(
            "order_of_the_file",
            lambda log: _read(log, in_time=False),
            "Lines stand in the order in which they arrived. What arrived first need not have happened first: sort by "
            "the time.",
        ),
        Misconception(
            "line_of_the_last",
            _line_of_the_last,
            "Cause and fix are right. The last line is a consequence: the evidence is the line in which the failure "
            "itself is set or refused.",
        ),
        Misconception(
            "words_of_one_team",
            lambda log: _read(log, signs=_OF_ONE_TEAM),
            "One of your signs is a number or a name that only this team's log has. Look for the words of the runtime "
            "or of the compiler, which every team's log has.",
        ),
        Misconception(
            "knows_the_twelve_texts",
            _knows_the_twelve,
            "This looks the twelve texts up. The next log has other paths, numbers and noise: look for the words "
            "that the failure itself leaves behind.",
        ),
    ),
    hints=(
        "By hand first, for each log: find the first error in time and who speaks (section 8 of the lesson). Write "
        "down one phrase that this failure leaves behind and no other one does. Then let the program find the line.",
        "Split every line into time, job and text. Keep the lines of the job that the first line names, and sort them: "
        "the time stands in front. The first of them that holds a sign decides. One sign needs a second look: a list "
        "of GPUs is harmless unless a variable below it was set before.",
        "for time, number, text in sorted(own): for words, (cause, fix) in signs.items(): if words in text: return "
        'them with number. Signs such as "export HSA_OVERRIDE_GFX_VERSION", "P2P/IPC", "torch.version.hip None", '
        '"amax / 448", "finding fastest", "invalid device function"; "export HIP_VISIBLE_DEVICES" counts only where '
        '"ROCR_VISIBLE_DEVICES=" stood in an earlier line of the job.',
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
