"""Wrong answers to 03.device_agnostic, as learners write them, and what each is told."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

from gpu_utils.exercises.u03_porting_to_rocm.device_agnostic_machines import CPU, HAVE_FP8, VISIBILITY, Settings
from gpu_utils.grading.exercise import Misconception


def _chosen() -> int:
    """The number of the GPU with most memory."""
    return max(range(torch.cuda.device_count()), key=lambda i: torch.cuda.get_device_properties(i).total_memory)


def _target(gpu: int) -> str:
    properties = torch.cuda.get_device_properties(gpu)
    return properties.gcnArchName.split(":")[0] if torch.version.hip else f"sm_{properties.major}{properties.minor}"


def _right_target() -> str:
    return _target(_chosen())


def _bf16(gpu: int) -> bool:
    with torch.cuda.device(gpu):
        return torch.cuda.is_bf16_supported(including_emulation=False)


def _settings(gpu: int | None = None) -> Settings:
    """The right settings, or those of one GPU; each misconception asks one of its questions wrongly."""
    if not torch.cuda.is_available():
        return dict(CPU)
    gpu = _chosen() if gpu is None else gpu
    bf16 = _bf16(gpu)
    return {
        "device": f"cuda:{gpu}",
        "target": _target(gpu),
        "dtype": "bfloat16" if bf16 else "float16",
        "grad_scaler": not bf16,
        "fp8": _target(gpu) in HAVE_FP8,
        "lanes": torch.cuda.get_device_properties(gpu).warp_size,
        "process_group": "nccl",
        "ranks": sum(_target(i) == _target(gpu) for i in range(torch.cuda.device_count())),
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
    return _settings() if torch.version.cuda and torch.cuda.is_available() else dict(CPU)


def _names_the_device_hip() -> Settings:
    settings = _settings()
    return (
        {**settings, "device": settings["device"].replace("cuda", "hip")}
        if torch.version.hip and settings["device"] != "cpu"
        else settings
    )


def _target_from_the_capability() -> str:
    major, minor = torch.cuda.get_device_capability(_chosen())
    return f"gfx{major}{minor}" if torch.version.hip else f"sm_{major}{minor}"


def _target_if_it_has_an_arch_name() -> str:
    properties = torch.cuda.get_device_properties(_chosen())
    if hasattr(properties, "gcnArchName"):
        return properties.gcnArchName.split(":")[0]
    return f"sm_{properties.major}{properties.minor}"


def _arch() -> str:
    return str(torch.cuda.get_device_properties(_chosen()).gcnArchName)


def _named_by_cuda() -> int:
    listed = os.environ.get(VISIBILITY[0])
    return len(listed.split(",")) if listed else torch.cuda.device_count()


def _target_with_features() -> str:
    return _arch() if torch.version.hip else _right_target()


def _dtype_with_emulation() -> str:
    with torch.cuda.device(_chosen()):
        return "bfloat16" if torch.cuda.is_bf16_supported() else "float16"


def _dtype_of_the_current() -> str:
    return "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float16"


def _ranks_of_a_variable(otherwise: int) -> Callable[[], int]:
    def ask() -> int:
        listed = os.environ.get("HIP_VISIBLE_DEVICES") or os.environ.get("CUDA_VISIBLE_DEVICES")
        return len(listed.split(",")) if listed else otherwise

    return ask


_CURRENT = {"dtype": _dtype_of_the_current, "grad_scaler": lambda: _dtype_of_the_current() == "float16"}
_EMULATED = {"dtype": _dtype_with_emulation, "grad_scaler": lambda: _dtype_with_emulation() == "float16"}


def _same() -> int:
    return int(_settings()["ranks"])


MISCONCEPTIONS = (
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
        _asking(fp8=lambda: torch.cuda.get_device_capability(_chosen()) >= (8, 9)),
        "MI250X says (9, 0) and RX 7900 XTX says (11, 0), and neither has FP8: on AMD the capability is the gfx "
        "number. Decide by the target, as in 03.fp8_weights.",
    ),
    Misconception(
        "amd_has_no_fp8",
        _asking(fp8=lambda: not torch.version.hip and torch.cuda.get_device_capability(_chosen()) >= (8, 9)),
        "MI300X and its successors have FP8. Decide by the target, as in 03.fp8_weights.",
    ),
    Misconception(
        "lanes_of_listed_targets",
        _asking(lanes=lambda: 32 if _right_target().startswith(("sm_", "gfx11", "gfx12")) else 64),
        "RDNA 2 (gfx1030) has 32 lanes too. The device's properties know, without a list.",
    ),
    Misconception(
        "lanes_of_a_product",
        _asking(lanes=lambda: 64 if "Instinct" in torch.cuda.get_device_name(_chosen()) else 32),
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
        _asking(fp8=lambda: _right_target() in HAVE_FP8 - {"sm_120"}),
        "sm_120 (RTX 5090) has FP8 too: NVIDIA's targets from sm_89 on, as in 03.fp8_weights. Compare the number.",
    ),
    Misconception(
        "cuts_one_pair_of_features",
        _asking(target=lambda: _right_target() + ":sramecc+:xnack+" * ("xnack+" in _arch())),
        "The features may be others: gfx90a:sramecc+:xnack+ is a gfx90a as well. Cut at the first colon.",
    ),
    Misconception(
        "counts_cudas_list",
        _asking(ranks=lambda: _named_by_cuda() if not torch.version.hip else _same()),
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
    Misconception(
        "asks_about_gpu_0",
        lambda: _settings(0),
        "GPU 0 is the first one, and need not be the one to train on: an integrated one, or an old one, may stand "
        "there. Look at all GPUs before you choose.",
    ),
    Misconception(
        "bf16_of_the_current_gpu",
        _asking(**_CURRENT),
        "is_bf16_supported() speaks of the current GPU, which is number 0 until you change it. Ask it about the GPU "
        "that you have chosen: `with torch.cuda.device(...)`.",
    ),
    Misconception(
        "counts_every_gpu",
        _asking(ranks=lambda: torch.cuda.device_count()),
        "Not all GPUs of the machine are of the chosen kind. Count those that have its target.",
    ),
    Misconception(
        "any_gpu_with_fp8",
        _asking(fp8=lambda: any(_target(i) in HAVE_FP8 for i in range(torch.cuda.device_count()))),
        "Another GPU of the machine has FP8, the chosen one has not.",
    ),
    Misconception(
        "device_without_a_number",
        _asking(device=lambda: "cuda"),
        '"cuda" alone is the current GPU, number 0 by default. Say which one: "cuda:1".',
    ),
)
