"""03.triage: what a failed job's log says, by name of cause and fix.

An answer reads the text of a log. What is wrong is told with the line that speaks against it.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

import torch

from gpu_utils.errors import UnknownName
from gpu_utils.exercises.u03_porting_to_rocm.triage_logs import public_logs, variant
from gpu_utils.exercises.u03_porting_to_rocm.triage_tables import CAUSES, FIXES, TRUTHS, Against
from gpu_utils.grading.compare import Difference
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Misconception

Verdict = dict[str, str]

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
"""Words that only one of the failures leaves behind; causes come before what follows from them."""

_FIX_OF = {truth.cause: truth.fix for truth in TRUTHS.values()}


def triage_reference(log: str) -> Verdict:
    """The verdict by the signs above."""
    cause = next((cause for words, cause in _SIGNS if words in log), "network")
    return _verdict(cause)


def _verdict(cause: str) -> Verdict:
    return {"cause": cause, "fix": _FIX_OF.get(cause, "raise_timeout")}


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    return {"log": variant(case["log"], case.get("seed", 0))}


def _judge(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    truth, log = TRUTHS[case["log"]], inputs["log"]
    if not isinstance(value, dict) or set(value) != {"cause", "fix"}:
        return Difference("type", f'the result is {value!r:.60}, expected {{"cause": a name, "fix": a name}}')
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
        return Difference(f"{part}:{given}", f"{before}not {given}: {_why(against.get(given), log, given, part)}")
    return None


def _why(against: Against | None, log: str, given: str, part: str) -> str:
    """The line of the log that speaks against a reading, quoted with its number."""
    if against is None:
        what = (CAUSES if part == "cause" else FIXES)[given]
        advice = "find the first error, and say what was found and expected there"
        return f"no line of this log points to it ({what}); {advice}"
    number, line = line_with(against.line, log)
    return f"line {number} says `{line}`: {against.why}"


def line_with(marker: str, log: str) -> tuple[int, str]:
    """Number (from 1) and text of the first line that holds the marker; `@` in it stands for any number."""
    pattern = r"\d+".join(map(re.escape, marker.split("@")))
    return next((n, line.strip()) for n, line in enumerate(log.splitlines(), 1) if re.search(pattern, line))


def _instead(words: str, cause: str, fix: str = "") -> Callable[[str], Verdict]:
    """A right answer, but for logs that hold the words."""

    def answer(log: str) -> Verdict:
        right = triage_reference(log)
        if not re.search(words, log):
            return right
        return {"cause": cause or right["cause"], "fix": fix or right["fix"]}

    return answer


def _reads_the_last_line(log: str) -> Verdict:
    last = log.strip().splitlines()[-1]
    consequence = re.search(r"FAILED|timeout|exit code|Exited|died|remote|CANCELLED|giving up", last)
    return _verdict("network") if consequence else triage_reference(log)


_BY_TEXT = {text: _verdict(TRUTHS[name].cause) for name, text in public_logs().items()}


def _knows_the_twelve(log: str) -> Verdict:
    return _BY_TEXT.get(log, {"cause": "unknown", "fix": "unknown"})


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
        Case("log 1 of another team: other numbers, more noise", log="01_batch_job", seed=11),
        Case("log 12 of another team", log="12_slow", seed=12),
    ),
    fresh=_fresh,
    trivial={
        "nothing": lambda log: None,
        "empty": lambda log: {},
        "the log": lambda log: log,
        "always the network": lambda log: _verdict("network"),
        "always the driver": lambda log: {"cause": "driver", "fix": "reinstall_driver"},
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
            "knows_the_twelve_texts",
            _knows_the_twelve,
            "This looks the twelve texts up. The next log has other paths, numbers and noise: look for the words "
            "that the failure itself leaves behind.",
        ),
    ),
    hints=(
        "For each log, find the first error in time and who speaks (section 6 of the lesson). Write down one phrase "
        "that this failure leaves behind and no other one does. Logs 1 and 2, and 7 and 8, look alike: what differs?",
        "Test for phrases in an order: what explains a failure before what follows from it. `No HIP GPUs`, `watchdog`, "
        "`NCCL` and `FAILED` are consequences in all of these logs; what one line sets, or refuses, is the cause.",
        "A list of pairs (phrase, cause), of which the first that is `in log` wins, and a dict from cause to fix. "
        "Phrases "
        'such as "export HSA_OVERRIDE_GFX_VERSION", "export HIP_VISIBLE_DEVICES", "P2P/IPC", "torch.version.hip None", '
        '"amax / 448", "finding fastest", "invalid device function"; the others stand in the error lines themselves.',
    ),
    explanation=(
        "Each failure leaves words that no other one leaves; they are seldom in the last line. Tests go from causes to "
        "consequences, because a log of one failure holds the words of many: a dead rank makes the others speak of "
        "networks and timeouts. And words that differ by run (paths, numbers, times) decide nothing. The texts are "
        "ours, written after public threads: "
        + "; ".join(f"log {name[:2]}: {truth.source}" for name, truth in TRUTHS.items())
        + "."
    ),
)
