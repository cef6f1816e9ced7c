"""03.device_agnostic: the settings of a training script, asked of the machine and not of the name of a vendor."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch

from gpu_utils.chips import TARGETS
from gpu_utils.grading.compare import Difference
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Misconception

Settings = dict[str, Any]

# What torch says on each machine: the fields of a case. `capability` is (major, minor); AMD's is the gfx number.
_MACHINES: dict[str, dict[str, Any]] = {
    "eight H100": {"name": "NVIDIA H100 80GB HBM3", "cuda": "12.8", "gpus": 8, "capability": (9, 0), "lanes": 32},
    "eight B200": {"name": "NVIDIA B200", "cuda": "12.8", "gpus": 8, "capability": (10, 0), "lanes": 32},
    "one L4": {"name": "NVIDIA L4", "cuda": "12.8", "gpus": 1, "capability": (8, 9), "lanes": 32},
    "one RTX 5090": {
        **{"name": "NVIDIA GeForce RTX 5090", "cuda": "12.8", "gpus": 1, "capability": (12, 0), "lanes": 32},
    },
    "one A100": {"name": "NVIDIA A100-SXM4-80GB", "cuda": "12.6", "gpus": 1, "capability": (8, 0), "lanes": 32},
    "two T4": {"name": "Tesla T4", "cuda": "12.6", "gpus": 2, "capability": (7, 5), "lanes": 32},
    "eight MI300X": {"name": "AMD Instinct MI300X", "gpus": 8, "arch": "gfx942:sramecc+:xnack-", "lanes": 64},
    # where torch finds no amdgpu.ids, the name tells nothing: ROCm/TheRock #4693
    "one MI355X": {"name": "AMD Radeon Graphics", "gpus": 1, "arch": "gfx950:sramecc+:xnack-", "lanes": 64},
    "eight MI250X dies": {"name": "AMD Instinct MI250X", "gpus": 8, "arch": "gfx90a:sramecc+:xnack+", "lanes": 64},
    "one RX 7900 XTX": {"name": "AMD Radeon Graphics", "gpus": 1, "arch": "gfx1100", "lanes": 32},
    "one RX 6800": {"name": "AMD Radeon RX 6800", "gpus": 1, "arch": "gfx1030", "lanes": 32},
    "one RX 9070 XT": {"name": "AMD Radeon RX 9070 XT", "gpus": 1, "arch": "gfx1201", "lanes": 32},
    "one RX 9060 XT": {"name": "AMD Radeon RX 9060 XT", "gpus": 1, "arch": "gfx1200", "lanes": 32},
    "a CUDA build, no GPU": {"cuda": "12.8", "gpus": 0},
    "a ROCm build, no GPU": {"hip": "6.4.43483", "gpus": 0},
}
_VISIBILITY = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
_FP8 = {"gfx1200", "sm_120", *(name for name, row in TARGETS.items() if row.fp8 != "none")}


_CPU: Settings = {
    "device": "cpu",
    "target": "cpu",
    "dtype": "float32",
    "grad_scaler": False,
    "fp8": False,
    "lanes": 1,
    "process_group": "gloo",
    "ranks": 1,
}


def _machine(name: str, limit: str = "") -> dict[str, Any]:
    """The machine with every field; `limit` is the variable that hides all but its first two GPUs."""
    machine = {"name": "", "cuda": None, "hip": None, "arch": "", "capability": (0, 0), "lanes": 0, **_MACHINES[name]}
    if machine["arch"]:
        number = machine["arch"].split(":")[0].removeprefix("gfx")
        machine |= {"hip": "6.4.43483", "capability": (int(number[:-2]), int(number[-2]))}
    if limit:
        machine["gpus"] = min(2, machine["gpus"])
    return {**machine, "limit": limit}


def _inputs(case: Case, _generator: torch.Generator) -> Inputs:
    machine = _machine(case["machine"], case.get("limit", ""))
    return {**machine, "capability": list(machine["capability"])}


def _target(machine: dict[str, Any]) -> str:
    if machine["hip"]:
        return machine["arch"].split(":")[0]
    return "sm_{}{}".format(*machine["capability"])


def device_agnostic_reference(**machine: Any) -> Settings:
    """The settings for a machine that is described by the fields of a case."""
    if not machine["gpus"]:
        return _CPU
    bf16 = bool(machine["hip"]) or machine["capability"][0] >= 8
    return {
        "device": "cuda",
        "target": _target(machine),
        "dtype": "bfloat16" if bf16 else "float16",
        "grad_scaler": not bf16,
        "fp8": _target(machine) in _FP8,
        "lanes": machine["lanes"],
        "process_group": "nccl",
        "ranks": machine["gpus"],
    }


class _Properties(SimpleNamespace):
    """What `get_device_properties` gives on a machine of the check: the fields that settings follow from."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"the machines of this check have no property {name!r}; they have {', '.join(vars(self))}, as the "
            "statement says"
        )


@contextlib.contextmanager
def fake_machine(machine: dict[str, Any]) -> Iterator[None]:
    """A block in which torch speaks as it does on the machine; queries of a GPU that is not there raise, as they do."""
    gpus, capability = machine["gpus"], tuple(machine["capability"])
    properties = _Properties(
        name=machine["name"],
        major=capability[0],
        minor=capability[1],
        warp_size=machine["lanes"],
        gcnArchName=machine["arch"] or machine["name"],  # a CUDA build gives the name here: torch/csrc/cuda/Module.cpp
    )

    def of_a_gpu(value: Any) -> Callable[..., Any]:
        def ask(device: Any = None) -> Any:
            if not gpus:
                raise RuntimeError("No CUDA GPUs are available")
            number = torch.device(device).index if isinstance(device, (str, torch.device)) else device
            if (number or 0) >= gpus:
                raise RuntimeError(f"Invalid device id {number}: there are {gpus} GPUs here")
            return value

        return ask

    def is_bf16_supported(including_emulation: bool = True) -> bool:
        if machine["hip"]:
            return True
        return gpus > 0 and (including_emulation or capability[0] >= 8)

    seen = {
        (torch.version, "cuda"): machine["cuda"],
        (torch.version, "hip"): machine["hip"],
        (torch.cuda, "is_available"): lambda: gpus > 0,
        (torch.cuda, "device_count"): lambda: gpus,
        (torch.cuda, "current_device"): lambda: of_a_gpu(0)(),
        (torch.cuda, "is_bf16_supported"): is_bf16_supported,
        (torch.cuda, "get_device_name"): of_a_gpu(machine["name"]),
        (torch.cuda, "get_device_capability"): of_a_gpu(capability),
        (torch.cuda, "get_device_properties"): of_a_gpu(properties),
        (torch.accelerator, "is_available"): lambda *_: gpus > 0,
        (torch.accelerator, "device_count"): lambda: gpus,
        (torch.accelerator, "current_accelerator"): lambda *_: torch.device("cuda") if gpus else None,
    }
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.dict(os.environ))
        for name in _VISIBILITY:
            os.environ.pop(name, None)
        if machine["limit"]:
            os.environ[machine["limit"]] = "0,1"
        for (owner, attribute), value in seen.items():
            stack.enter_context(mock.patch.object(owner, attribute, value))
        yield


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


def _right_target() -> str:
    properties = torch.cuda.get_device_properties(0)
    return properties.gcnArchName.split(":")[0] if torch.version.hip else f"sm_{properties.major}{properties.minor}"


def _settings() -> Settings:
    """The right settings; each misconception asks one of its questions wrongly."""
    if not torch.cuda.is_available():
        return dict(_CPU)
    bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
    return {
        "device": "cuda",
        "target": _right_target(),
        "dtype": "bfloat16" if bf16 else "float16",
        "grad_scaler": not bf16,
        "fp8": _right_target() in _FP8,
        "lanes": torch.cuda.get_device_properties(0).warp_size,
        "process_group": "nccl",
        "ranks": torch.cuda.device_count(),
    }


def _asking(**wrong: Callable[[], Any]) -> Callable[[], Settings]:
    """The right settings on a GPU, with some questions asked as in `wrong`."""

    def answer() -> Settings:
        settings = _settings()
        if settings["device"] == "cpu":
            return settings
        return {**settings, **{name: ask() for name, ask in wrong.items()}}

    return answer


def _asks_version_cuda() -> Settings:
    return _settings() if torch.version.cuda and torch.cuda.is_available() else dict(_CPU)


def _names_the_device_hip() -> Settings:
    settings = _settings()
    return {**settings, "device": "hip"} if torch.version.hip and settings["device"] == "cuda" else settings


def _target_from_the_capability() -> str:
    major, minor = torch.cuda.get_device_capability()
    return f"gfx{major}{minor}" if torch.version.hip else f"sm_{major}{minor}"


def _target_if_it_has_an_arch_name() -> str:
    properties = torch.cuda.get_device_properties(0)
    if hasattr(properties, "gcnArchName"):
        return properties.gcnArchName.split(":")[0]
    return f"sm_{properties.major}{properties.minor}"


def _arch() -> str:
    return str(torch.cuda.get_device_properties(0).gcnArchName)


def _named_by_cuda() -> int:
    listed = os.environ.get(_VISIBILITY[0])
    return len(listed.split(",")) if listed else torch.cuda.device_count()


def _target_with_features() -> str:
    return torch.cuda.get_device_properties(0).gcnArchName if torch.version.hip else _right_target()


def _dtype_with_emulation() -> str:
    return "bfloat16" if torch.cuda.is_bf16_supported() else "float16"


def _ranks_of_a_variable(otherwise: int) -> Callable[[], int]:
    def ask() -> int:
        listed = os.environ.get("HIP_VISIBLE_DEVICES") or os.environ.get("CUDA_VISIBLE_DEVICES")
        return len(listed.split(",")) if listed else otherwise

    return ask


_EMULATED = {"dtype": _dtype_with_emulation, "grad_scaler": lambda: _dtype_with_emulation() == "float16"}


def _fresh(rng: random.Random) -> Case:
    machine = rng.choice(list(_MACHINES))
    variables = _VISIBILITY if "arch" in _MACHINES[machine] else _VISIBILITY[:1]
    limit = rng.choice(["", *variables]) if _MACHINES[machine]["gpus"] == 8 else ""
    return Case("a machine nobody chose", machine=machine, limit=limit)


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
        Case("a later target, and a list that names a GPU too many", machine="one RTX 5090", limit=_VISIBILITY[0]),
        Case("32 lanes on RDNA 2, and no FP8", machine="one RX 6800"),
    ),
    fresh=_fresh,
    trivial={
        "nothing": lambda: None,
        "always the CPU": lambda: dict(_CPU),
        "empty": lambda: {},
        "always an H100": lambda: {
            **{"device": "cuda", "target": "sm_90", "dtype": "bfloat16", "grad_scaler": False, "fp8": True},
            **{"lanes": 32, "process_group": "nccl", "ranks": 8},
        },
    },
    misconceptions=(
        Misconception(
            "asks_version_cuda",
            _asks_version_cuda,
            "A machine with eight MI300X trains on its CPU here: torch.version.cuda is None in a ROCm build. Ask "
            "whether there is a GPU, not which toolkit torch was built with.",
        ),
        Misconception(
            "names_the_device_hip",
            _names_the_device_hip,
            'The device string of an AMD GPU is "cuda", too.',
        ),
        Misconception(
            "target_from_the_capability",
            _asking(target=_target_from_the_capability),
            "On AMD the capability lacks the last digit of the target: (9, 4) could be gfx940, gfx941 or gfx942. Which "
            "property has the whole name?",
        ),
        Misconception(
            "arch_name_means_amd",
            _asking(target=_target_if_it_has_an_arch_name),
            "gcnArchName exists on NVIDIA as well, and holds the GPU's name there. Only torch.version.hip tells the "
            "vendors apart.",
        ),
        Misconception(
            "keeps_the_features",
            _asking(target=_target_with_features),
            "gfx942:sramecc+:xnack- is a target with two features behind it. Comparisons with the bare name fail: cut "
            "at the first colon.",
        ),
        Misconception(
            "capability_means_fp8",
            _asking(fp8=lambda: torch.cuda.get_device_capability() >= (8, 9)),
            "MI250X says (9, 0) and RX 7900 XTX says (11, 0), and neither has FP8: on AMD the capability is the gfx "
            "number. Decide by the target, as in 03.fp8_weights.",
        ),
        Misconception(
            "amd_has_no_fp8",
            _asking(fp8=lambda: not torch.version.hip and torch.cuda.get_device_capability() >= (8, 9)),
            "MI300X and its successors have FP8. Decide by the target, as in 03.fp8_weights.",
        ),
        Misconception(
            "lanes_of_listed_targets",
            _asking(lanes=lambda: 32 if _right_target().startswith(("sm_", "gfx11", "gfx12")) else 64),
            "RDNA 2 (gfx1030) has 32 lanes too. The device's properties know, without a list.",
        ),
        Misconception(
            "lanes_of_a_product",
            _asking(lanes=lambda: 64 if "Instinct" in torch.cuda.get_device_name() else 32),
            "A name tells nothing: one of these GPUs with 64 lanes calls itself AMD Radeon Graphics. The device's "
            "properties know.",
        ),
        Misconception(
            "lanes_of_the_vendor",
            _asking(lanes=lambda: 64 if torch.version.hip else 32),
            "Not every AMD GPU has 64 lanes: RDNA has 32. The device's properties know.",
        ),
        Misconception(
            "fp8_of_a_list",
            _asking(fp8=lambda: _right_target() in _FP8 - {"sm_120"}),
            "sm_120 (RTX 5090) has FP8 too: NVIDIA's targets from sm_89 on, as in 03.fp8_weights. Compare the number.",
        ),
        Misconception(
            "cuts_one_pair_of_features",
            _asking(target=lambda: _right_target() + ":sramecc+:xnack+" * ("xnack+" in _arch())),
            "The features may be others: gfx90a:sramecc+:xnack+ is a gfx90a as well. Cut at the first colon.",
        ),
        Misconception(
            "counts_cudas_list",
            _asking(ranks=lambda: _named_by_cuda() if not torch.version.hip else torch.cuda.device_count()),
            "CUDA_VISIBLE_DEVICES may name more GPUs than there are. Ask torch how many devices it sees.",
        ),
        Misconception(
            "lanes_are_32",
            _asking(lanes=lambda: 32),
            "32 is NVIDIA's number. The device's properties know how many lanes run together.",
        ),
        Misconception(
            "emulated_bf16",
            _asking(**_EMULATED),
            "torch.cuda.is_bf16_supported() also says yes where bfloat16 is emulated, slowly. Ask it to leave "
            "emulation out.",
        ),
        Misconception(
            "scales_gradients_always",
            _asking(grad_scaler=lambda: True),
            "bfloat16 has the range of float32, so its gradients do not underflow: a GradScaler belongs to float16.",
        ),
        Misconception(
            "asks_for_rccl",
            _asking(process_group=lambda: "rccl" if torch.version.hip else "nccl"),
            "torch has no backend of that name: RCCL answers to the name of NVIDIA's library.",
        ),
        Misconception(
            "reads_a_variable",
            _asking(ranks=_ranks_of_a_variable(8)),
            "A visibility variable says what somebody asked for. Often none is set, and on AMD there are three. Ask "
            "torch how many devices it sees.",
        ),
        Misconception(
            "one_without_a_variable",
            _asking(ranks=_ranks_of_a_variable(1)),
            "Where no visibility variable is set, nothing is hidden, and torch sees every GPU of the machine. Ask it "
            "how many.",
        ),
    ),
    hints=(
        "First: is there a GPU at all? On the CPU the eight values are given in the statement. On a GPU, most "
        "questions have one function of torch.cuda that answers for both vendors; only the target needs "
        "torch.version.hip.",
        "target: gcnArchName up to the first colon on AMD, the capability on NVIDIA. lanes: warp_size of "
        "torch.cuda.get_device_properties(0). dtype: is_bf16_supported(including_emulation=False). fp8: by the "
        'target, as in 03.fp8_weights. ranks: device_count(). The process group of both vendors is called "nccl".',
        'target = properties.gcnArchName.split(":")[0] if torch.version.hip else '
        'f"sm_{properties.major}{properties.minor}"; bf16 = torch.cuda.is_bf16_supported(including_emulation=False); '
        'fp8 = target in ("gfx942", "gfx950") or target.startswith("gfx12") on AMD, (properties.major, '
        "properties.minor) >= (8, 9) on NVIDIA; grad_scaler = not bf16.",
    ),
    explanation=(
        "Each setting follows from one property, and the question must be about that property. The vendor decides only "
        "how the target is spelled. The lanes, bfloat16, the number of GPUs: torch answers for both vendors alike. "
        "What it does not know (FP8) follows from the target, never from a capability, which is a gfx number on AMD. "
        "Names and environment variables answer other questions: what the product is called, what somebody asked for."
    ),
)
