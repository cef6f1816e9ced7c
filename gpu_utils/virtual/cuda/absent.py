"""What cannot be pretended: one clear sentence each."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn

import torch

from gpu_utils.errors import BackendUnavailable

_GRAPHS = (
    "a virtual GPU runs each kernel when it is launched, so nothing can be captured and replayed; call it directly"
)
_SENSORS = (
    "a virtual GPU has no clock, no sensors and no power; gpu.counters and predicted_cycles say what a kernel costs"
)
_LIBRARIES = "no library of the vendor's is loaded, only Triton kernels and torch's own operations run; skip this call"
_POOLS = "tensors are in the memory of the process, so there is no allocator of the GPU to change; skip this call"
_SEVERAL = "a virtual GPU is one device; tests of several GPUs need real ones"

ABSENT: dict[str, str] = {
    **dict.fromkeys(("CUDAGraph", "graph", "make_graphed_callables", "graph_pool_handle"), _GRAPHS),
    **dict.fromkeys(("temperature", "power_draw", "clock_rate", "utilization", "memory_usage"), _SENSORS),
    **dict.fromkeys(("current_blas_handle", "current_solver_handle", "cudart", "jiterator"), _LIBRARIES),
    **dict.fromkeys(("ExternalStream", "get_stream_from_external", "GreenContext", "check_error"), _LIBRARIES),
    **dict.fromkeys(("caching_allocator_alloc", "caching_allocator_delete", "CUDAPluggableAllocator"), _POOLS),
    "MemPool": _POOLS,
    **dict.fromkeys(("change_current_allocator", "use_mem_pool", "memory_snapshot", "host_memory_stats"), _POOLS),
}
"""Name in torch.cuda -> why it raises BackendUnavailable."""


class _Absent:
    """A class of torch.cuda that cannot be made; `isinstance` with it is False."""

    message = ""

    def __init__(self, *_: Any, **__: Any) -> None:
        raise BackendUnavailable(self.message)


def absent(name: str, why: str) -> Any:
    """A function, or for a class a class, that raises BackendUnavailable."""
    message = f"torch.cuda.{name} is not there on a virtual GPU: {why}"
    if isinstance(getattr(torch.cuda, name, None), type):
        return type(name, (_Absent,), {"message": message})

    def missing(*_: Any, **__: Any) -> NoReturn:
        raise BackendUnavailable(message)

    return missing


def functions() -> dict[str, Any]:
    return {name: absent(name, why) for name, why in ABSENT.items()}


def process_groups(init: Callable[..., Any]) -> Callable[..., Any]:
    """`torch.distributed.init_process_group`, which refuses NCCL with a reason."""

    @functools.wraps(init)
    def start(backend: Any = None, *args: Any, **kwargs: Any) -> Any:
        if backend is not None and "nccl" in str(backend).lower():
            raise BackendUnavailable(
                f"the backend {backend!r} of torch.distributed is not there: {_SEVERAL}, or gloo on CPUs"
            )
        return init(backend, *args, **kwargs)

    return start


def eager(function: Any = None, **_: Any) -> Any:
    """`torch.compile` on a virtual GPU: the function as it is, since TorchInductor would compile for the CPU."""
    return (lambda wrapped: wrapped) if function is None else function
