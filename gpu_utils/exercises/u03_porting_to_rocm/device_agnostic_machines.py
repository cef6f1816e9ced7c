"""The machines of 03.device_agnostic: what torch says on each, and the settings that are right there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch

from gpu_utils.chips import TARGETS

Settings = dict[str, Any]

# One GPU each: `capability` is (major, minor), memory in GiB. AMD's capability is made of the gfx number.
_GPUS: dict[str, dict[str, Any]] = {
    "H100": {"name": "NVIDIA H100 80GB HBM3", "capability": (9, 0), "lanes": 32, "memory": 80},
    "B200": {"name": "NVIDIA B200", "capability": (10, 0), "lanes": 32, "memory": 180},
    "L4": {"name": "NVIDIA L4", "capability": (8, 9), "lanes": 32, "memory": 24},
    "RTX 5090": {"name": "NVIDIA GeForce RTX 5090", "capability": (12, 0), "lanes": 32, "memory": 32},
    "A100": {"name": "NVIDIA A100-SXM4-80GB", "capability": (8, 0), "lanes": 32, "memory": 80},
    "T4": {"name": "Tesla T4", "capability": (7, 5), "lanes": 32, "memory": 16},
    "MI300X": {"name": "AMD Instinct MI300X", "arch": "gfx942:sramecc+:xnack-", "lanes": 64, "memory": 192},
    # where torch finds no amdgpu.ids, the name tells nothing: ROCm/TheRock #4693
    "MI355X": {"name": "AMD Radeon Graphics", "arch": "gfx950:sramecc+:xnack-", "lanes": 64, "memory": 288},
    "MI250X die": {"name": "AMD Instinct MI250X", "arch": "gfx90a:sramecc+:xnack+", "lanes": 64, "memory": 64},
    "RX 7900 XTX": {"name": "AMD Radeon Graphics", "arch": "gfx1100", "lanes": 32, "memory": 24},
    "RX 6800": {"name": "AMD Radeon RX 6800", "arch": "gfx1030", "lanes": 32, "memory": 16},
    "RX 9070 XT": {"name": "AMD Radeon RX 9070 XT", "arch": "gfx1201", "lanes": 32, "memory": 16},
    "RX 9060 XT": {"name": "AMD Radeon RX 9060 XT", "arch": "gfx1200", "lanes": 32, "memory": 16},
    # the graphics inside a CPU, which may come first: ROCm/TheRock #3392
    "graphics of a CPU": {"name": "AMD Radeon Graphics", "arch": "gfx1036", "lanes": 32, "memory": 2},
}
MACHINES: dict[str, tuple[str, ...]] = {
    "eight H100": ("H100",) * 8,
    "eight B200": ("B200",) * 8,
    "one L4": ("L4",),
    "one RTX 5090": ("RTX 5090",),
    "one A100": ("A100",),
    "two T4": ("T4",) * 2,
    "eight MI300X": ("MI300X",) * 8,
    "one MI355X": ("MI355X",),
    "eight MI250X dies": ("MI250X die",) * 8,
    "one RX 7900 XTX": ("RX 7900 XTX",),
    "one RX 6800": ("RX 6800",),
    "one RX 9070 XT": ("RX 9070 XT",),
    "one RX 9060 XT": ("RX 9060 XT",),
    "the graphics of a CPU and an RX 9070 XT": ("graphics of a CPU", "RX 9070 XT"),
    "a T4 and two A100": ("T4", "A100", "A100"),
    "an L4, an A100 and a T4": ("L4", "A100", "T4"),
    "two RX 7900 XTX and the graphics of a CPU": ("RX 7900 XTX", "RX 7900 XTX", "graphics of a CPU"),
    "a CUDA build, no GPU": (),
    "a ROCm build, no GPU": (),
}
"""Machine -> its GPUs, in the order of torch."""
VISIBILITY = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
HAVE_FP8 = {"gfx1200", "sm_120", *(name for name, row in TARGETS.items() if row.fp8 != "none")}

CPU: Settings = {
    "device": "cpu",
    "target": "cpu",
    "dtype": "float32",
    "grad_scaler": False,
    "fp8": False,
    "lanes": 1,
    "process_group": "gloo",
    "ranks": 1,
}


def is_amd(name: str) -> bool:
    """Whether a machine has a ROCm build."""
    return "ROCm" in name or any("arch" in _GPUS[gpu] for gpu in MACHINES[name])


def machine(name: str, limit: str = "") -> dict[str, Any]:
    """The machine as plain data; `limit` is the variable that hides all but its first two GPUs."""
    gpus = []
    for gpu in MACHINES[name]:
        one = {"arch": "", "capability": (0, 0), **_GPUS[gpu]}
        if one["arch"]:
            number = one["arch"].split(":")[0].removeprefix("gfx")
            one["capability"] = (int(number[:-2]), int(number[-2]))
        gpus.append(one | {"capability": list(one["capability"])})
    hip = "6.4.43483" if is_amd(name) else None
    return {"hip": hip, "cuda": None if hip else "12.8", "gpus": gpus[:2] if limit else gpus, "limit": limit}


def target_of(gpu: dict[str, Any]) -> str:
    """The target of a GPU that is described as above."""
    return str(gpu["arch"].split(":")[0]) if gpu["arch"] else "sm_{}{}".format(*gpu["capability"])


def device_agnostic_reference(gpus: list[dict[str, Any]], **_build: Any) -> Settings:
    """The settings for a machine: those of its GPUs that are of the same target as the one with most memory."""
    if not gpus:
        return dict(CPU)
    chosen = max(gpus, key=lambda gpu: gpu["memory"])
    bf16 = bool(chosen["arch"]) or chosen["capability"][0] >= 8
    return {
        "device": f"cuda:{gpus.index(chosen)}",
        "target": target_of(chosen),
        "dtype": "bfloat16" if bf16 else "float16",
        "grad_scaler": not bf16,
        "fp8": target_of(chosen) in HAVE_FP8,
        "lanes": chosen["lanes"],
        "process_group": "nccl",
        "ranks": sum(target_of(gpu) == target_of(chosen) for gpu in gpus),
    }


class _Properties(SimpleNamespace):
    """What `get_device_properties` gives on a machine of the check: the fields that settings follow from."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"the machines of this check have no property {name!r}; they have {', '.join(vars(self))}, as the "
            "statement says"
        )


def _properties(gpu: dict[str, Any]) -> _Properties:
    return _Properties(
        name=gpu["name"],
        major=gpu["capability"][0],
        minor=gpu["capability"][1],
        total_memory=gpu["memory"] * 2**30,
        warp_size=gpu["lanes"],
        gcnArchName=gpu["arch"] or gpu["name"],  # a CUDA build gives the name here: torch/csrc/cuda/Module.cpp
    )


@contextlib.contextmanager
def fake_machine(described: dict[str, Any]) -> Iterator[None]:
    """A block in which torch speaks as it does on the machine; queries of a GPU that is not there raise, as they do."""
    gpus, current = described["gpus"], [0]

    def number_of(device: Any) -> int:
        if not gpus:
            raise RuntimeError("No CUDA GPUs are available")
        number = torch.device(device).index if isinstance(device, (str, torch.device)) else device
        number = current[0] if number is None else number
        if not 0 <= number < len(gpus):
            raise RuntimeError(f"Invalid device id {number}: there are {len(gpus)} GPUs here")
        return int(number)

    def of_a_gpu(value: Callable[[dict[str, Any]], Any]) -> Callable[..., Any]:
        return lambda device=None: value(gpus[number_of(device)])

    def set_device(device: Any) -> None:
        current[0] = number_of(device)

    @contextlib.contextmanager
    def device(device: Any) -> Iterator[None]:
        before = current[0]
        set_device(device)
        try:
            yield
        finally:
            current[0] = before

    def is_bf16_supported(including_emulation: bool = True) -> bool:
        if described["hip"]:
            return True
        return bool(gpus) and (including_emulation or gpus[current[0]]["capability"][0] >= 8)

    seen = {
        (torch.version, "cuda"): described["cuda"],
        (torch.version, "hip"): described["hip"],
        (torch.cuda, "is_available"): lambda: bool(gpus),
        (torch.cuda, "device_count"): lambda: len(gpus),
        (torch.cuda, "current_device"): lambda: number_of(None),
        (torch.cuda, "set_device"): set_device,
        (torch.cuda, "device"): device,
        (torch.cuda, "is_bf16_supported"): is_bf16_supported,
        (torch.cuda, "get_device_name"): of_a_gpu(lambda gpu: gpu["name"]),
        (torch.cuda, "get_device_capability"): of_a_gpu(lambda gpu: tuple(gpu["capability"])),
        (torch.cuda, "get_device_properties"): of_a_gpu(_properties),
        (torch.cuda, "mem_get_info"): of_a_gpu(lambda gpu: (gpu["memory"] * 2**30,) * 2),
        (torch.accelerator, "is_available"): lambda *_: bool(gpus),
        (torch.accelerator, "device_count"): lambda: len(gpus),
        (torch.accelerator, "current_accelerator"): lambda *_: torch.device("cuda") if gpus else None,
    }
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.dict(os.environ))
        for name in VISIBILITY:
            os.environ.pop(name, None)
        if described["limit"]:
            os.environ[described["limit"]] = "0,1"
        for (owner, attribute), value in seen.items():
            stack.enter_context(mock.patch.object(owner, attribute, value))
        yield
