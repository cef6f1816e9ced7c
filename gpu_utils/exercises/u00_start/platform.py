"""00.platform: which vendor's GPU torch can use here, if any."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from unittest import mock

import torch

from gpu_utils.grading.exercise import Case, Exercise, Inputs, Misconception

Platform = Callable[[], str]


def _inputs(case: Case, _generator: torch.Generator) -> Inputs:
    return {"cuda": case["cuda"], "hip": case["hip"], "gpus": case["gpus"]}


def platform_reference(cuda: str | None, hip: str | None, gpus: int) -> str:
    """The platform of a torch built for CUDA version `cuda` or HIP version `hip` that sees `gpus` devices."""
    if gpus == 0:
        return "cpu"
    return "amd" if hip is not None else "nvidia"


def _call(answer: Platform, inputs: Inputs) -> str:
    """The answer on a machine whose torch says what the case says."""
    gpus = inputs["gpus"]
    described = {
        (torch.version, "cuda"): inputs["cuda"],
        (torch.version, "hip"): inputs["hip"],
        (torch.cuda, "is_available"): lambda: gpus > 0,
        (torch.cuda, "device_count"): lambda: gpus,
        (torch.accelerator, "is_available"): lambda *_: gpus > 0,
        (torch.accelerator, "device_count"): lambda: gpus,
    }
    with contextlib.ExitStack() as stack:
        for (owner, name), value in described.items():
            stack.enter_context(mock.patch.object(owner, name, value))
        return answer()


def _tests_version_cuda() -> str:
    return "nvidia" if torch.cuda.is_available() and torch.version.cuda else "cpu"


def _trusts_is_available() -> str:
    return "nvidia" if torch.cuda.is_available() else "cpu"


def _asks_only_the_build() -> str:
    if torch.version.hip:
        return "amd"
    return "nvidia" if torch.version.cuda else "cpu"


def _takes_no_cuda_for_amd() -> str:
    if torch.version.cuda is None:
        return "amd"
    return "nvidia" if torch.cuda.is_available() else "cpu"


def _uses_torch_hip() -> str:
    if torch.cuda.is_available() and torch.version.cuda:
        return "nvidia"
    return "amd" if torch.hip.is_available() else "cpu"


_BUILDS = (
    ("12.8", None, 1),
    ("13.0", None, 8),
    (None, "6.4.43483", 8),
    (None, "7.1.25424", 1),
    ("12.6", None, 0),
    (None, "6.3.42131", 0),
    (None, None, 0),
)


def _fresh(rng: random.Random) -> Case:
    cuda, hip, gpus = rng.choice(_BUILDS)
    return Case("a fresh machine", cuda=cuda, hip=hip, gpus=gpus)


EXERCISE = Exercise(
    id="00.platform",
    title="Which vendor's GPU can torch use here?",
    parameters=(),
    kind="host",
    inputs=_inputs,
    reference=platform_reference,
    call=_call,
    cases=(
        Case("an NVIDIA machine", cuda="12.8", hip=None, gpus=1),
        Case("an AMD machine: torch.version.cuda is None and the GPU works", cuda=None, hip="6.4.43483", gpus=8),
        Case("a CUDA build on a machine with no GPU", cuda="12.8", hip=None, gpus=0),
        Case("a ROCm build on a machine with no GPU", cuda=None, hip="6.4.43483", gpus=0),
        Case("a CPU build: neither version is set", cuda=None, hip=None, gpus=0),
    ),
    fresh=_fresh,
    trivial={
        "always nvidia": lambda: "nvidia",
        "always amd": lambda: "amd",
        "always cpu": lambda: "cpu",
        "nothing": lambda: None,
    },
    misconceptions=(
        Misconception(
            "tests_version_cuda",
            _tests_version_cuda,
            "On AMD this says cpu: in a ROCm build torch.version.cuda is None although the GPU works. "
            "Which field of torch.version is set there instead?",
        ),
        Misconception(
            "trusts_is_available",
            _trusts_is_available,
            "On AMD this says nvidia: torch.cuda.is_available() is True for both vendors, because ROCm builds keep the "
            "name cuda. It tells you that there is a GPU, not whose.",
        ),
        Misconception(
            "asks_only_the_build",
            _asks_only_the_build,
            "This names a vendor on machines with no GPU: torch.version says what torch was built for, not what is "
            "plugged in. Ask for the GPU as well.",
        ),
        Misconception(
            "takes_no_cuda_for_amd",
            _takes_no_cuda_for_amd,
            "torch.version.cuda is None in a CPU build too, so its absence does not mean AMD. "
            "Test for what AMD has, not for what it lacks.",
        ),
        Misconception(
            "uses_torch_hip",
            _uses_torch_hip,
            "There is no torch.hip: AMD GPUs are driven through torch.cuda, with the same function names. "
            "Only torch.version tells the two vendors apart.",
        ),
    ),
    hints=(
        "Two questions, in this order: is there a GPU at all? And if so, whose is it?",
        "torch.cuda.is_available() answers the first question on both vendors. For the second, compare what "
        "torch.version.cuda and torch.version.hip hold in the three builds of torch.",
        'Return "cpu" when torch.cuda.is_available() is False. Otherwise return "amd" when torch.version.hip is not '
        'None, else "nvidia".',
    ),
    explanation=(
        "A ROCm build of PyTorch keeps the names of CUDA: torch.cuda drives an AMD GPU and its device string is "
        '"cuda". So is_available() tells whether there is a GPU, and torch.version.hip tells whose. Code that asks '
        "torch.version.cuda instead loses the AMD machine, and code that asks only the build names a GPU that is not "
        "there."
    ),
)
