"""03.device_agnostic: the settings of a training script, asked of the machine and not of the name of a vendor."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch

from gpu_utils.exercises.u03_porting_to_rocm.device_agnostic_machines import (
    CPU,
    MACHINES,
    VISIBILITY,
    Settings,
    device_agnostic_reference,
    fake_machine,
    is_amd,
    machine,
)
from gpu_utils.exercises.u03_porting_to_rocm.device_agnostic_slips import MISCONCEPTIONS
from gpu_utils.grading.compare import Difference
from gpu_utils.grading.exercise import Case, Exercise, Inputs


def _inputs(case: Case, _generator: torch.Generator) -> Inputs:
    return machine(case["machine"], case.get("limit", ""))


def _call(answer: Callable[[], Settings], inputs: Inputs) -> Settings:
    with fake_machine(inputs):
        return answer()


def _judge(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    """The first setting that is wrong, in the order of the statement: one wrong answer often spoils a later one."""
    wanted = device_agnostic_reference(**inputs)
    if not isinstance(value, dict):
        return Difference("type", f"the result is of type {type(value).__name__}, expected a dict with eight settings")
    if strange := sorted(map(str, value.keys() ^ wanted.keys())):
        words = "is missing" if strange[0] in wanted else "is not one of the eight settings"
        return Difference(f"key:{strange[0]}", f"the setting {strange[0]!r} {words}")
    for name, right in wanted.items():
        given = value[name]
        if given != right or isinstance(given, bool) != isinstance(right, bool):
            limit = f", where {inputs['limit']}=0,1" if inputs["limit"] else ""
            return Difference(
                f"{name}:{given!r}", f"{name!r} is {given!r:.80} on {case['machine']}{limit}, expected {right!r}"
            )
    return None


def _fresh(rng: random.Random) -> Case:
    name = rng.choice(list(MACHINES))
    variables = VISIBILITY if is_amd(name) else VISIBILITY[:1]
    limit = rng.choice(["", *variables]) if len(MACHINES[name]) == 8 else ""
    return Case("a machine nobody chose", machine=name, limit=limit)


EXERCISE = Exercise(
    id="03.device_agnostic",
    title="Settings for any machine, by the right questions",
    parameters=(),
    kind="host",
    inputs=_inputs,
    reference=device_agnostic_reference,
    judge=_judge,
    dtype=lambda inputs: None,
    call=_call,
    cases=(
        Case("NVIDIA, where the old script worked", machine="eight H100"),
        Case("AMD: torch.version.cuda is None", machine="eight MI300X"),
        Case("AMD's capability reads (9, 0), like an H100's, and it has no FP8", machine="eight MI250X dies"),
        Case("32 lanes on an AMD GPU, behind a name that tells nothing", machine="one RX 7900 XTX"),
        Case("an old GPU that only emulates bfloat16", machine="two T4"),
        Case("the first NVIDIA GPUs with FP8", machine="one L4"),
        Case("bfloat16 and no FP8", machine="one A100"),
        Case("a ROCm build and no GPU", machine="a ROCm build, no GPU"),
        Case("six of eight GPUs are hidden, by AMD's variable", machine="eight MI300X", limit="HIP_VISIBLE_DEVICES"),
        Case("the same, by the layer below it", machine="eight MI300X", limit="ROCR_VISIBLE_DEVICES"),
        Case("the same, by CUDA's variable, which HIP reads too", machine="eight MI300X", limit="CUDA_VISIBLE_DEVICES"),
        Case("one GPU and no variable", machine="one MI355X"),
        Case("FP8 on RDNA 4, with 32 lanes", machine="one RX 9070 XT"),
        Case("the smaller RDNA 4", machine="one RX 9060 XT"),
        Case("as text, sm_100 comes before sm_89", machine="eight B200"),
        Case("a later target, and a list that names a GPU too many", machine="one RTX 5090", limit=VISIBILITY[0]),
        Case("32 lanes on RDNA 2, and no FP8", machine="one RX 6800"),
        Case("GPU 0 is the smaller one", machine="the graphics of a CPU and an RX 9070 XT"),
        Case("the first GPU has no bfloat16, the others have", machine="a T4 and two A100"),
        Case("a smaller GPU has FP8, the largest has not", machine="an L4, an A100 and a T4"),
        Case("two of three are of the chosen kind", machine="two RX 7900 XTX and the graphics of a CPU"),
    ),
    fresh=_fresh,
    trivial={
        "nothing": lambda: None,
        "always the CPU": lambda: dict(CPU),
        "empty": lambda: {},
        "always an H100": lambda: {
            **{"device": "cuda:0", "target": "sm_90", "dtype": "bfloat16", "grad_scaler": False, "fp8": True},
            **{"lanes": 32, "process_group": "nccl", "ranks": 8},
        },
    },
    misconceptions=MISCONCEPTIONS,
    hints=(
        "First: is there a GPU at all? On the CPU the eight values are given. Then look at every GPU, choose the one "
        "with most memory, and ask all further questions about that one. Only the target needs torch.version.hip.",
        "max over range(torch.cuda.device_count()) by get_device_properties(i).total_memory. target: gcnArchName up to "
        "the first colon on AMD, the capability on NVIDIA. dtype: is_bf16_supported speaks of the current GPU: change "
        "it by torch.cuda.device. fp8: by the target, as in 03.fp8_weights. ranks: GPUs with the same target.",
        "gpus = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]; targets = "
        '[g.gcnArchName.split(":")[0] if torch.version.hip else f"sm_{g.major}{g.minor}" for g in gpus]; chosen = the '
        "index of the largest total_memory; with torch.cuda.device(chosen): bf16 = torch.cuda.is_bf16_supported("
        'including_emulation=False); fp8 = target in ("gfx942", "gfx950") or target.startswith("gfx12") on AMD, '
        "(major, minor) >= (8, 9) on NVIDIA; ranks = targets.count(targets[chosen]).",
    ),
    explanation=(
        "Each setting follows from one property, and the question must be about that property. The vendor decides only "
        "how the target is spelled. The lanes, bfloat16, the number of GPUs: torch answers for both vendors alike. "
        "What it does not know (FP8) follows from the target, never from a capability, which is a gfx number on AMD. "
        "Names and environment variables answer other questions: what the product is called, what somebody asked for."
    ),
)
