"""Wrong answers to 03.triage, as learners write them, and what each is told."""

from __future__ import annotations

import re
from collections.abc import Callable

from gpu_utils.exercises.u03_porting_to_rocm.triage_collect import public_logs
from gpu_utils.exercises.u03_porting_to_rocm.triage_read import SIGNS, Verdict, lines_of, read, triage_reference
from gpu_utils.grading.exercise import Misconception

_OF_ONE_TEAM = tuple(
    {
        "export HSA_OVERRIDE_GFX_VERSION": ("export HSA_OVERRIDE_GFX_VERSION=11.0.0", cause),
        "couldn't allocate output register": ("tanh.approx.f32", cause),
        "when stream is capturing": ("step_timer.stop() calls torch.cuda.synchronize()", cause),
    }.get(words, (words, cause))
    for words, cause in SIGNS
)


def _with(sign: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    """The signs, with one of looser words for a cause."""
    return tuple(sign if cause == sign[1] else (words, cause) for words, cause in SIGNS)


def _instead(words: str, cause: str, fix: str = "") -> Callable[[str], Verdict]:
    """A right answer, but for logs whose job wrote the words."""

    def answer(log: str) -> Verdict:
        right = triage_reference(log)
        job, lines = lines_of(log)
        own = sorted(line for line in lines if line[2] == job)
        end = next((place for place, line in enumerate(own) if "attempt 2 starts" in line[3]), len(own))
        if not any(re.search(words, line[3]) for line in own[:end]):
            return right
        return {**right, "cause": cause or right["cause"], "fix": fix or right["fix"]}

    return answer


def _reads_the_last_line(log: str) -> Verdict:
    job, lines = lines_of(log)
    last = max(line for line in lines if line[2] == job)
    consequence = re.search(r"FAILED|timeout|exit code|Exited|died|remote|CANCELLED|giving up", last[3])
    verdict = {"cause": "network", "fix": "raise_timeout", "line": last[1]}
    return verdict if consequence else triage_reference(log)


def _line_of_the_last(log: str) -> Verdict:
    job, lines = lines_of(log)
    return {**triage_reference(log), "line": max(line for line in lines if line[2] == job)[1]}


def _knows_the_public_texts(log: str) -> Verdict:
    known = {text: triage_reference(text) for text in public_logs().values()}
    return known.get(log, {"cause": "unknown", "fix": "unknown", "line": 1})


MISCONCEPTIONS = (
    Misconception(
        "reads_the_last_line",
        _reads_the_last_line,
        "The last line is what the launcher or a waiting rank says when all is over. Look for the first error in time.",
    ),
    Misconception(
        "no_gpu_means_no_driver",
        _instead("env.sh: export HIP|listed the agents", "driver", "reinstall_driver"),
        "`No HIP GPUs are available` is what torch sees at the end of four layers: driver, ROCm runtime, HIP, "
        "torch. Which of them has seen the GPU?",
    ),
    Misconception(
        "no_gpu_means_masks",
        _instead("No HIP GPUs", "masks_compose", "number_within_mask"),
        "Several logs end in `No HIP GPUs are available`. Only in one of them two lists leave no GPU; what do the "
        "others set, or refuse?",
    ),
    Misconception(
        "invalid_function_means_override",
        _instead("invalid device function", "", "set_override"),
        "The cause is right. But code for another chip stays code for another chip: giving the GPU its name "
        "makes it run what it cannot run. Which library lacks a target, and who can build it?",
    ),
    Misconception(
        "access_is_switched_off",
        _instead("P2P/IPC: handle", "", "disable_p2p"),
        "The cause is right. Switching direct access off goes round it through the host, for every later job, too. "
        "Does the process know that the peer's GPU exists? Look at what each actor was given.",
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
        _instead("OutOfResources", "out_of_memory", "smaller_batch"),
        "Not every memory is the GPU's large one: 64 KiB is the limit of something much smaller.",
    ),
    Misconception(
        "more_dynamic_shared_memory",
        _instead("OutOfResources", "", "opt_in_shared"),
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
        _instead("hipBLASLt", "tuning_left_on", "stop_tuning"),
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
        lambda log: read(log, own_only=False, in_time=False, whole=True),
        "The words stand somewhere in the text, and other failures leave their words there as well: neighbours, "
        "and a second attempt. Which line of this job came first in time?",
    ),
    Misconception(
        "every_job",
        lambda log: read(log, own_only=False),
        "That line belongs to a neighbour. The first line of the text names the job that failed, and the number "
        "behind the time says whose a line is.",
    ),
    Misconception(
        "order_of_the_file",
        lambda log: read(log, in_time=False),
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
        "every_448_is_wrong",
        lambda log: read(log, signs=_with(("amax / 448", "fp8_maximum"))),
        "448 is wrong for one of the two formats only, and right for the other. Which dtype stands in that line, "
        "and did its values become NaN? An experiment in the log tells what did it.",
    ),
    Misconception(
        "every_p2p_is_a_fault",
        lambda log: read(log, signs=_with(("P2P/IPC", "mask_for_each_rank"))),
        "P2P/IPC is the name of a way between GPUs of a node. One log warns that it cannot be opened, another one "
        "says that it is in use, which is good news.",
    ),
    Misconception(
        "every_resource_is_the_failure",
        lambda log: read(log, signs=_with(("out of resource", "lds_exceeded"))),
        "A tuner may try a configuration that does not fit, leave it out and go on. Was this an error that nobody "
        "caught, or a remark?",
    ),
    Misconception(
        "two_lists_always_clash",
        lambda log: read(log, numbers=False),
        "Two lists are harmless where the second counts within the first. Compare the numbers: does GPU 1 exist "
        "among two?",
    ),
    Misconception(
        "words_of_one_team",
        lambda log: read(log, signs=_OF_ONE_TEAM),
        "One of your signs is a number or a name that only this team's log has. Look for the words of the runtime "
        "or of the compiler, which every team's log has.",
    ),
    Misconception(
        "knows_the_public_texts",
        _knows_the_public_texts,
        "This looks up the texts that you were given. The next log has other paths, numbers and noise: look for the "
        "words that the failure itself leaves behind.",
    ),
)
