"""The door: opened once in a process, however many blocks `virtual_gpu(target, cuda=True)` are inside each other."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
import torch.cuda.nvtx
import torch.utils._device as _device

from gpu_utils.virtual.cuda import absent, autocast
from gpu_utils.virtual.cuda.devices import accelerator_functions, cuda_functions, nvtx_functions
from gpu_utils.virtual.cuda.factories import factories
from gpu_utils.virtual.cuda.marks import local
from gpu_utils.virtual.cuda.mode import CudaMode, in_backward
from gpu_utils.virtual.cuda.patched import Patches
from gpu_utils.virtual.cuda.pointers import behind
from gpu_utils.virtual.cuda.properties import CUDA_VERSION, HIP_VERSION
from gpu_utils.virtual.cuda.randoms import CudaGenerator
from gpu_utils.virtual.cuda.saving import saving
from gpu_utils.virtual.cuda.tensor_methods import METHODS

_open: list[Any] = []  # the virtual GPUs, innermost last
_patches = Patches()
_lock = threading.RLock()


def innermost() -> Any:
    """The VirtualGpu of the innermost block."""
    return _open[-1]


@contextmanager
def cuda_door(gpu: Any) -> Iterator[None]:
    """Inside the block "cuda" is this virtual GPU, in all threads that the block starts and in this one."""
    with _lock:
        if not _open:
            _put_in_place()
        gpu.behind = behind
        _open.append(gpu)
        _name_versions()
    try:
        with _mode():
            yield
    finally:
        with _lock:
            _open.remove(gpu)
            if _open:
                _name_versions()
            else:
                _patches.take_away()


@contextmanager
def _mode() -> Iterator[None]:
    """The mode on this thread's stack, once."""
    if getattr(local, "pushed", False):
        yield
        return
    local.pushed = True
    try:
        with CudaMode():
            yield
    finally:
        local.pushed = False


def _name_versions() -> None:
    amd = innermost().model.vendor == "amd"
    torch.version.hip, torch.version.cuda = (HIP_VERSION, None) if amd else (None, CUDA_VERSION)


def _in_threads(bootstrap: Any) -> Any:
    """`threading.Thread._bootstrap_inner`: threads that start while the door is open have the mode too."""

    def start(self: threading.Thread) -> None:
        with _mode():
            bootstrap(self)

    return start


@cache
def _as_before() -> Any:
    """Of a torch without CUDA: what says so once the door is shut, since torch itself asks only the first time."""
    if torch.cuda._is_compiled():
        return None
    library = torch.library.Library("aten", "IMPL")

    def refuse(*_: Any, **__: Any) -> None:
        torch.cuda._lazy_init()

    for name in ("empty.memory_format", "empty_strided"):
        library.impl(name, refuse, "CUDA")
    return library


def _put_in_place() -> None:
    _as_before()
    _device._device_constructors()  # keeps the functions that torch itself dispatches on, before others stand there
    functions = cuda_functions(innermost)
    put = _patches.put
    put(torch.version, {"hip": None, "cuda": None})
    put(torch.cuda, functions)
    put(torch.accelerator, accelerator_functions(functions))
    put(torch.cuda.nvtx, nvtx_functions())
    for module in (torch.cuda.memory, torch.cuda.random, torch.cuda.streams, torch.cuda.graphs):
        put(module, functions)
    put(torch._C, {"_cuda_getCurrentRawStream": lambda device: 0}, new=True)
    put(torch.backends.cuda, {"is_built": lambda: True})
    put(torch, {**factories(), "Generator": CudaGenerator, "compile": absent.eager})
    put(torch.Tensor, METHODS, new=True)
    put(torch.amp.autocast_mode.autocast, autocast.METHODS)
    _patches.wrap(torch.autograd, "_engine_run_backward", in_backward)
    _patches.wrap(threading.Thread, "_bootstrap_inner", _in_threads)
    if torch.distributed.is_available():
        _patches.wrap(torch.distributed, "init_process_group", absent.process_groups)
    if dynamo := sys.modules.get("torch._dynamo"):
        put(dynamo.config, {"disable": True}, new=True)
    put(torch.serialization, {"_package_registry": [saving, *torch.serialization._package_registry]})
