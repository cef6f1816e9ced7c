"""The switches of a process that an answer to 03.port_gpt2 could leave changed, watched and put back."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import torch

AS_BEFORE = "as they were"

_READ_BY_GPUS = ("CUBLAS", "CUDA", "CUDNN", "HIP", "HSA", "MIOPEN", "NCCL", "NVIDIA", "OMP", "PYTORCH", "ROC", "TORCH_")
_DEVICES = ("cpu", "cuda")


def _of_environment() -> dict[str, str]:
    """The variables that change how torch computes; its own modules set others when they are first imported."""
    return {name: value for name, value in os.environ.items() if name.startswith(_READ_BY_GPUS)}


def _set_environment(names: dict[str, str]) -> None:
    for name in _of_environment().keys() - names.keys():
        del os.environ[name]
    os.environ.update(names)


def _of_autocast() -> tuple[Any, ...]:
    each = [(torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)) for device in _DEVICES]
    return (*each, torch.is_autocast_cache_enabled())


def _set_autocast(state: tuple[Any, ...]) -> None:
    for device, (on, dtype) in zip(_DEVICES, state, strict=False):
        torch.set_autocast_enabled(device, on)
        torch.set_autocast_dtype(device, dtype)
    torch.set_autocast_cache_enabled(state[-1])


_BACKENDS: Any = torch.backends
_PRECISIONS: tuple[Any, ...] = tuple(
    owner
    for owner in (_BACKENDS, _BACKENDS.cuda.matmul, getattr(_BACKENDS.mkldnn, "matmul", None))
    if hasattr(owner, "fp32_precision")
)
"""Where newer versions of torch keep the precision of float32, beside the function for it."""


def _of_precision() -> tuple[str, ...]:
    try:
        named = torch.get_float32_matmul_precision()
    except RuntimeError:  # it refuses where somebody has used the newer switches
        named = ""
    return (named, *(owner.fp32_precision for owner in _PRECISIONS))


def _set_precision(state: tuple[str, ...]) -> None:
    if state[0]:
        torch.set_float32_matmul_precision(state[0])
    for owner, value in zip(_PRECISIONS, state[1:], strict=True):
        owner.fp32_precision = value


def _flushes() -> bool:
    return not bool(torch.full((1,), 1e-40) * 1.0)


_ATTENTION = ("flash", "mem_efficient", "math", "cudnn")


def _of_attention() -> tuple[bool, ...]:
    return tuple(getattr(torch.backends.cuda, f"{kind}_sdp_enabled")() for kind in _ATTENTION)


def _set_attention(state: tuple[bool, ...]) -> None:
    for kind, on in zip(_ATTENTION, state, strict=True):
        getattr(torch.backends.cuda, f"enable_{kind}_sdp")(on)


_FLAGS = (
    *((torch.backends.cudnn, name) for name in ("enabled", "benchmark", "deterministic", "allow_tf32")),
    (torch.backends.cuda.matmul, "allow_bf16_reduced_precision_reduction"),
    (torch.backends.cuda.matmul, "allow_fp16_reduced_precision_reduction"),
)


def _of_libraries() -> tuple[Any, ...]:
    return tuple(getattr(owner, name) for owner, name in _FLAGS)


def _set_libraries(state: tuple[Any, ...]) -> None:
    for (owner, name), value in zip(_FLAGS, state, strict=True):
        setattr(owner, name, value)


_SWITCHES: tuple[tuple[str, Callable[[], Any], Callable[[Any], Any]], ...] = (
    ("float32 precision", _of_precision, _set_precision),
    ("denormal numbers", _flushes, torch.set_flush_denormal),
    ("default dtype", torch.get_default_dtype, torch.set_default_dtype),
    ("deterministic mode", torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
    ("grad mode", torch.is_grad_enabled, torch.set_grad_enabled),
    ("anomaly mode", torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
    ("threads", torch.get_num_threads, torch.set_num_threads),
    ("autocast", _of_autocast, _set_autocast),
    ("kernels of attention", _of_attention, _set_attention),
    ("cuDNN and cuBLAS", _of_libraries, _set_libraries),
    ("environment", _of_environment, _set_environment),
)
"""What an answer could leave switched for everybody else: its name, how to ask for it, how to put it back."""


@contextlib.contextmanager
def watched_switches() -> Iterator[dict[str, str]]:
    """What became of the switches, as {"switches": text}; all are put back afterwards.

    Inside, float32 is float32, and autocast on the CPU takes float16 where no dtype is named, as it does on a GPU.
    """
    precision, narrow = _of_precision(), torch.get_autocast_dtype("cpu")
    torch.set_float32_matmul_precision("highest")
    torch.set_autocast_dtype("cpu", torch.float16)
    before = [ask() for _, ask, _ in _SWITCHES]
    found = {"switches": AS_BEFORE}
    try:
        yield found
        for (name, ask, _), old in zip(_SWITCHES, before, strict=True):
            if (new := ask()) != old:
                values = f": {old} -> {new}" if isinstance(new, (bool, int, str, torch.dtype)) else ""
                found["switches"] = f"{name} left changed{values}"
                break
    finally:
        for (_, _, put), old in zip(_SWITCHES, before, strict=True):
            put(old)
        _set_precision(precision)
        torch.set_autocast_dtype("cpu", narrow)
