"""torch.cuda, torch.accelerator and torch.version, of the innermost virtual GPU that was opened with cuda=True."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from gpu_utils.chips.targets import Target
from gpu_utils.virtual.cuda import absent, memory, randoms, streams
from gpu_utils.virtual.cuda.marks import books, wanted
from gpu_utils.virtual.cuda.properties import DeviceProperties, capability, name_of, properties


def _checked(device: Any) -> None:
    """Raise RuntimeError for a device that is not cuda:0, ValueError for one that is no GPU."""
    if wanted(device) not in (None, "cuda"):
        raise ValueError(f"Expected a cuda device, but got: {device}")


def _legacy(name: str) -> Callable[..., torch.Tensor]:
    """The old constructors, torch.cuda.FloatTensor and its kin."""
    return lambda *args, **kwargs: getattr(torch, name)(*args, **kwargs).to("cuda")


def cuda_functions(gpu: Callable[[], Any]) -> dict[str, Any]:
    """Name in torch.cuda -> value. gpu: gives the innermost VirtualGpu."""

    def row() -> Target:
        return gpu().model

    def props(device: Any = None) -> DeviceProperties:
        _checked(device)
        return properties(row())

    def name(device: Any = None) -> str:
        _checked(device)
        return name_of(row())

    def version(device: Any = None) -> tuple[int, int]:
        _checked(device)
        return capability(row())

    def of_ampere(*_: Any, **__: Any) -> bool:
        return row().vendor == "amd" or capability(row())[0] >= 8

    def choose(device: Any) -> None:
        _checked(device)

    return {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        **dict.fromkeys(("init", "_lazy_init", "ipc_collect"), lambda: None),
        "device_count": lambda: 1,
        "_device_count_nvml": lambda: 1,
        "current_device": lambda: 0,
        "set_device": choose,
        "_exchange_device": lambda device: 0,
        "_maybe_exchange_device": lambda device: 0,
        "get_device_name": name,
        "get_device_capability": version,
        "get_device_properties": props,
        "is_bf16_supported": of_ampere,
        "is_tf32_supported": lambda: row().vendor == "nvidia" and capability(row())[0] >= 8,
        "can_device_access_peer": lambda device, peer: False,
        "get_arch_list": lambda: [row().name],
        "get_gencode_flags": lambda: "",
        "get_sync_debug_mode": lambda: 0,
        "set_sync_debug_mode": lambda mode: None,
        "_sleep": lambda cycles: None,
        **{name: _legacy(name) for name in vars(torch.cuda) if name.endswith("Tensor")},
        **absent.functions(),
        **randoms.functions(),
        **streams.functions(),
        **memory.functions(books, lambda: properties(row()).total_memory),
        "Event": streams.event_class(gpu),
    }


def accelerator_functions(cuda: dict[str, Any]) -> dict[str, Any]:
    """Name in torch.accelerator -> value, from those of torch.cuda."""
    same = (
        "is_available", "device_count", "current_stream", "set_stream", "synchronize", "empty_cache",
        "memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved", "memory_stats",
        "reset_peak_memory_stats", "reset_accumulated_memory_stats",
    )  # fmt: skip
    return {
        **{name: cuda[name] for name in same},
        "current_accelerator": lambda check_available=False: torch.device("cuda"),
        **dict.fromkeys(("current_device_index", "current_device_idx"), lambda: 0),
        **dict.fromkeys(("set_device_index", "set_device_idx"), cuda["set_device"]),
        "get_memory_info": cuda["mem_get_info"],
        "device_index": torch.cuda.device,
    }


def nvtx_functions() -> dict[str, Any]:
    """Name in torch.cuda.nvtx -> value: ranges are not kept."""
    return {
        **dict.fromkeys(("range_push", "range_pop", "range_start", "range_end", "mark"), lambda *_, **__: 0),
        "_device_range_start": lambda *_, **__: object(),
        "_device_range_end": lambda *_, **__: None,
    }
