"""00.platform: which vendor's GPU torch can use here, if any."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch

from gpu_utils.grading.exercise import Case, Exercise, Inputs, Misconception

Platform = Callable[[], str]


def _inputs(case: Case, _generator: torch.Generator) -> Inputs:
    return {name: case[name] for name in ("cuda", "hip", "gpus", "release", "name")}


def platform_reference(cuda: str | None, hip: str | None, gpus: int, release: str, name: str) -> str:
    """The platform of a torch built for CUDA version `cuda` or HIP version `hip` that sees `gpus` devices.

    release  torch.__version__, which tells nothing: a build from source need not name what it was built for
    name     of a device, which tells as little: not every one names its vendor
    """
    if gpus == 0:
        return "cpu"
    return "amd" if hip is not None else "nvidia"


def _call(answer: Platform, inputs: Inputs) -> str:
    """The answer on a machine whose torch says what the case says."""
    gpus, built = inputs["gpus"], inputs["cuda"] or inputs["hip"]

    def current_accelerator(check_available: bool = False) -> torch.device | None:
        return torch.device("cuda") if built and (gpus or not check_available) else None

    def name_of_device(device: Any = None) -> str:
        if not gpus:
            raise RuntimeError("No CUDA GPUs are available")
        return inputs["name"]

    def device_properties(device: Any = None) -> SimpleNamespace:
        return SimpleNamespace(name=name_of_device(), major=9, minor=4 if inputs["hip"] else 0, total_memory=80 << 30)

    def device_capability(device: Any = None) -> tuple[int, int]:
        found = device_properties()
        return found.major, found.minor

    described = {
        (torch.version, "cuda"): inputs["cuda"],
        (torch.version, "hip"): inputs["hip"],
        (torch.version, "__version__"): inputs["release"],
        (torch, "__version__"): torch.torch_version.TorchVersion(inputs["release"]),
        (torch.cuda, "is_available"): lambda: gpus > 0,
        (torch.cuda, "device_count"): lambda: gpus,
        (torch.accelerator, "is_available"): lambda *_: gpus > 0,
        (torch.accelerator, "device_count"): lambda: gpus,
        (torch.accelerator, "current_accelerator"): current_accelerator,
        (torch.cuda, "get_device_name"): name_of_device,
        (torch.cuda, "get_device_properties"): device_properties,
        (torch.cuda, "get_device_capability"): device_capability,
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


def _knows_one_version() -> str:
    if not torch.cuda.is_available():
        return "cpu"
    return "amd" if str(torch.version.hip).startswith("6") else "nvidia"


def _reads_the_release() -> str:
    if not torch.cuda.is_available():
        return "cpu"
    return "amd" if "rocm" in torch.__version__ else "nvidia"


def _reads_the_name() -> str:
    if not torch.cuda.is_available():
        return "cpu"
    return "amd" if "AMD" in torch.cuda.get_device_name() else "nvidia"


def _takes_another_name_for_amd() -> str:
    if not torch.cuda.is_available():
        return "cpu"
    return "nvidia" if "NVIDIA" in torch.cuda.get_device_name() else "amd"


def _asks_whether_the_field_exists() -> str:
    if not torch.cuda.is_available():
        return "cpu"
    return "amd" if hasattr(torch.version, "hip") else "nvidia"


def _knows_versions_from_6_on() -> str:
    if not torch.cuda.is_available():
        return "cpu"
    return "amd" if float((torch.version.hip or "0")[:3]) >= 6 else "nvidia"


def _compares_a_version() -> str:
    if not torch.cuda.is_available():
        return "cpu"
    return "nvidia" if torch.version.cuda > "0" else "amd"  # type: ignore[operator]


def _uses_torch_hip() -> str:
    if torch.cuda.is_available() and torch.version.cuda:
        return "nvidia"
    return "amd" if torch.hip.is_available() else "cpu"  # type: ignore[attr-defined]


_H100, _T4 = "NVIDIA H100 80GB HBM3", "Tesla T4"
_MI300X, _UNNAMED = "AMD Instinct MI300X", "Device 66a1"
"""Names of devices: _UNNAMED as in pytorch PR #36827, on gfx906."""


def _cuda(version: str, gpus: int, release: str = "", name: str = _H100) -> dict[str, Any]:
    """A machine with a build for CUDA; PyTorch's own names it in the release, one from source does not."""
    own = f"2.13.0+cu{version.replace('.', '')}"
    return {"cuda": version, "hip": None, "gpus": gpus, "release": release or own, "name": name}


def _rocm(version: str, gpus: int, release: str = "", name: str = _MI300X) -> dict[str, Any]:
    """The same for ROCm."""
    own = f"2.13.0+rocm{'.'.join(version.split('.')[:2])}"
    return {"cuda": None, "hip": version, "gpus": gpus, "release": release or own, "name": name}


_FROM_SOURCE = "2.13.0a0+git9ddd3df"
"""As in pytorch PR #44106, where a build for ROCm 3.7 calls itself 1.7.0a0+9ddd3df."""

_NO_GPU = {"cuda": None, "hip": None, "gpus": 0, "release": "2.13.0+cpu", "name": ""}


def _fresh(rng: random.Random) -> Case:
    gpus = rng.choice([0, 1, 2, 4, 8])
    machine = rng.choice(
        [
            _cuda(
                f"{rng.randrange(11, 20)}.{rng.randrange(10)}",
                gpus,
                rng.choice(["", _FROM_SOURCE]),
                rng.choice([_H100, _T4]),
            ),
            _rocm(
                f"{rng.randrange(5, 20)}.{rng.randrange(10)}.{rng.randrange(10_000, 60_000)}",
                gpus,
                rng.choice(["", _FROM_SOURCE]),
                rng.choice([_MI300X, _UNNAMED]),
            ),
            _NO_GPU,
        ]
    )
    return Case("a fresh machine", **machine)


EXERCISE = Exercise(
    id="00.platform",
    title="Which vendor's GPU can torch use here?",
    parameters=(),
    kind="host",
    inputs=_inputs,
    reference=platform_reference,
    call=_call,
    cases=(
        Case("an NVIDIA machine", **_cuda("12.8", 1)),
        Case("an AMD machine: torch.version.cuda is None and the GPU works", **_rocm("6.4.43483", 8)),
        Case("a CUDA build on a machine with no GPU", **_cuda("12.8", 0)),
        Case("a ROCm build on a machine with no GPU", **_rocm("6.4.43483", 0)),
        Case("a CPU build: neither version is set", **_NO_GPU),
        Case("another version of CUDA, and eight GPUs", **_cuda("13.0", 8)),
        Case("another version of ROCm, and one GPU", **_rocm("7.1.25424", 1)),
        Case("a version of two digits, which as text comes before 6", **_rocm("10.0.10000", 2)),
        Case("torch built from source for AMD: its release names no vendor", **_rocm("6.4.43483", 4, _FROM_SOURCE)),
        Case("torch built from source for NVIDIA", **_cuda("13.0", 4, _FROM_SOURCE)),
        Case("an older CUDA", **_cuda("11.8", 2)),
        Case("an older ROCm", **_rocm("5.7.31921", 2)),
        Case("a GPU of NVIDIA whose name says nothing of it", **_cuda("12.8", 1, name=_T4)),
        Case("a GPU of AMD whose name says nothing at all", **_rocm("6.4.43483", 1, name=_UNNAMED)),
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
            "This names a vendor on machines with no GPU: it asks what torch was built for, not what is plugged in. "
            "Ask for the GPU as well.",
        ),
        Misconception(
            "takes_no_cuda_for_amd",
            _takes_no_cuda_for_amd,
            "torch.version.cuda is None in a CPU build too, so its absence does not mean AMD. "
            "Test for what AMD has, not for what it lacks.",
        ),
        Misconception(
            "knows_one_version",
            _knows_one_version,
            "This is right for ROCm 6 only. What the version is does not matter, only which of the two is there: a "
            "build sets one of torch.version.cuda and torch.version.hip, and leaves the other at None.",
        ),
        Misconception(
            "reads_the_release",
            _reads_the_release,
            "torch.__version__ names ROCm only in PyTorch's own packages: built from source, or by a distribution, it "
            "ends otherwise. torch.version.hip is set in every build for AMD.",
        ),
        Misconception(
            "knows_versions_from_6_on",
            _knows_versions_from_6_on,
            "ROCm had versions before 6. What the version is does not matter, only whether torch.version.hip is set.",
        ),
        Misconception(
            "reads_the_name",
            _reads_the_name,
            "Not every GPU of AMD has AMD in its name: some are called no more than Device 66a1. The build knows: "
            "torch.version.hip.",
        ),
        Misconception(
            "takes_another_name_for_amd",
            _takes_another_name_for_amd,
            "Not every GPU of NVIDIA has NVIDIA in its name: a Tesla T4 has not. The build knows: torch.version.hip.",
        ),
        Misconception(
            "asks_whether_the_field_exists",
            _asks_whether_the_field_exists,
            "On NVIDIA this says amd: torch.version has the field hip in every build. Not whether it is there matters, "
            "but whether it is None.",
        ),
        Misconception(
            "compares_a_version",
            _compares_a_version,
            "In a ROCm build torch.version.cuda is None, and None cannot be compared with a text or taken apart. Ask "
            "first whether a version is there.",
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
