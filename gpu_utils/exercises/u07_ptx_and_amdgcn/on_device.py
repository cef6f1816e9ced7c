"""PTX text on a real NVIDIA GPU, by the driver's own functions: cuModuleLoadData compiles it for the chip."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import torch
from torch import Tensor

from gpu_utils.errors import CompileFailed


@functools.cache
def chip() -> str:
    """The name of the NVIDIA GPU that torch uses; "" where there is none."""
    usable = torch.version.cuda is not None and torch.cuda.is_available()
    return torch.cuda.get_device_name() if usable else ""


def launch(text: str, name: str, grid: int, block: int, args: list[Any], output: Tensor) -> Tensor:
    """Launch a kernel of a PTX module on the device and return its output, on the CPU.

    args  CPU tensors, which are copied to the device, and whole numbers (.u32); output: the one of them that is read

    Raises CompileFailed where the driver refuses the text or the launch.
    """
    torch.cuda.current_stream()  # makes the context
    torch.cuda.init()
    driver = ctypes.CDLL("libcuda.so.1")
    there = {id(one): one.cuda() for one in args if isinstance(one, Tensor)}
    values = [
        ctypes.c_uint64(there[id(one)].data_ptr()) if isinstance(one, Tensor) else ctypes.c_uint32(one) for one in args
    ]
    pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    _done(driver, driver.cuModuleLoadData(ctypes.byref(module), text.encode() + b"\0"))
    try:
        _done(driver, driver.cuModuleGetFunction(ctypes.byref(function), module, name.encode()))
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        _done(driver, driver.cuLaunchKernel(function, grid, 1, 1, block, 1, 1, 0, stream, pointers, None))
        torch.cuda.synchronize()
    finally:
        driver.cuModuleUnload(module)
    return there[id(output)].cpu()


def _done(driver: Any, code: int) -> None:
    if code:
        said = ctypes.c_char_p()
        driver.cuGetErrorString(code, ctypes.byref(said))
        raise CompileFailed(f"the CUDA driver refused the kernel: {(said.value or b'?').decode()} ({code})")
