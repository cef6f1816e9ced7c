"""The second front door: assembly text from any compiler, loaded and launched on a virtual GPU.

    module = gpu.load(text)                                   # PTX or AMDGCN, or what `compile_cpp` returned
    module.launch("vector_add", 4, 256, [x, y, out, 1000])    # grid, block, arguments

A tensor stands for a pointer; Python numbers take the size that the kernel declares.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from gpu_utils.compiler.cpp_module import Argument, CppModule, source_name
from gpu_utils.errors import BadArgument, ResourceLimit, UnknownName
from gpu_utils.virtual.arguments import TensorMap
from gpu_utils.virtual.isa import Launch
from gpu_utils.virtual.kernel_info import KernelInfo
from gpu_utils.virtual.models import ISAS, decode, isa_of

_FLOATS = {2: "<e", 4: "<f", 8: "<d"}


class Gpu(Protocol):
    """What a module needs of the VirtualGpu that loaded it."""

    target: str

    def launch(
        self,
        text: str,
        name: str | None,
        grid: tuple[int, ...],
        threads: tuple[int, ...],
        values: list[tuple[str, str, Any]],
        shared: int,
    ) -> Launch:
        """Execute a kernel of an assembly text to its end."""


class LoadedModule:
    """Assembly text on one virtual GPU; made by `VirtualGpu.load`. kernels: the names that `launch` takes.

    A `__device__` variable belongs to the module: launches of all its kernels see what the ones before have written.
    """

    def __init__(self, gpu: Gpu, source: str | CppModule) -> None:
        self.gpu = gpu
        self.text = source if isinstance(source, str) else source.asm
        self.compiled = None if isinstance(source, str) else source
        isa = isa_of(gpu.target)
        named = (each.built_for(self.text) for each in (isa, *(load() for load in ISAS.values())))
        built_for = next(filter(None, named), None)
        if built_for is not None and not isa.runs_on(built_for, gpu.target):
            raise BadArgument(
                f"this text was compiled for {built_for}, and the virtual GPU is a {gpu.target}; compile it for that"
            )
        symbols = isa.kernels(self.text)
        if not symbols:
            raise BadArgument(f"the text has no kernel; a {gpu.target} runs {isa.TEXT}")
        names = [self.compiled.kernel(s).name if self.compiled else source_name(s) for s in symbols]
        self._changed: np.ndarray | None = None  # which bytes of the module's data differ from their first values
        self._values = np.zeros(0, np.uint8)
        self.kernels = {n if names.count(n) == 1 else s: s for n, s in zip(names, symbols, strict=True)}

    def launch(
        self,
        name: str,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[Any],
        shared: int = 0,
    ) -> Launch:
        """Execute a kernel to its end.

        name    as in the source, or its symbol
        grid    blocks, block: threads of a block; a number, or up to three (x, y, z)
        args    one for each parameter: a CPU tensor (a pointer to its first element), None (a null pointer), an int, a
                bool, a float, or bytes for a struct. Without the signature from `compile_cpp` an int is laid down as
                an integer and a float as a floating-point number of the parameter's size.
        shared  bytes of dynamic shared memory (LDS), beside the static ones

        Returns the Launch with its counters. Errors: UnknownName for the kernel; BadArgument for arguments that do not
        fit; ResourceLimit; UnsupportedInstruction before anything runs; and what the kernel does wrong: OutOfBounds ...
        """
        symbol = self.kernels.get(name, name)
        if symbol not in self.kernels.values():
            raise UnknownName("kernel", name, self.kernels)
        program = decode(self.text, self.gpu.target, symbol)
        grid, block = _three("grid", grid), _three("block", block)
        _check_block(program.info, name, block)
        params = program.info.parameters
        if len(args) != len(params):
            raise BadArgument(f"kernel {name} takes {len(params)} arguments, {len(args)} were given")
        known = self.compiled.kernel(symbol).arguments if self.compiled else [None] * len(params)
        values = [
            _value(i, argument, size, value)
            for i, (argument, (_, size), value) in enumerate(zip(known, params, args, strict=True))
        ]
        self._restore(program.info)
        try:
            launch = self.gpu.launch(self.text, symbol, grid, block, values, shared)
        finally:
            self._keep(program.info)
        if self.compiled:
            kernel = self.compiled.kernel(symbol)
            launch.registers, launch.stack = kernel.registers, kernel.scratch
        return launch

    def _restore(self, info: KernelInfo) -> None:
        """Decoded programs are shared, and each has its own copy of the data: give it this module's values."""
        data = info.data
        data[...] = info.first_data
        if self._changed is not None:
            n = min(len(data), len(self._changed))
            data[:n][self._changed[:n]] = self._values[:n][self._changed[:n]]

    def _keep(self, info: KernelInfo) -> None:
        self._changed, self._values = info.data != info.first_data, info.data.copy()

    def __repr__(self) -> str:
        return f"LoadedModule({', '.join(self.kernels)} on a virtual {self.gpu.target})"


def _three(what: str, size: int | Sequence[int]) -> tuple[int, int, int]:
    sizes = [size] if isinstance(size, int) else list(size)
    if not 1 <= len(sizes) <= 3 or any(not isinstance(n, int) or n < 1 for n in sizes):
        raise BadArgument(f"the {what} is {size!r}; expected one to three numbers of 1 or more, for example (64, 1, 1)")
    x, y, z = [*sizes, 1, 1][:3]
    return x, y, z


def _check_block(info: KernelInfo, name: str, block: tuple[int, int, int]) -> None:
    threads = block[0] * block[1] * block[2]
    if threads > info.most_threads:
        raise ResourceLimit(f"kernel {name}: a block of {threads} threads; at most {info.most_threads} are possible")


def _value(number: int, argument: Argument | None, size: int, value: Any) -> tuple[str, str, Any]:
    """(name, type as the driver knows it, value) of one argument."""
    name = argument.name if argument and argument.name else f"argument {number}"
    kind = argument.kind if argument else _kind(value)
    if kind == "word":  # NVRTC does not say which
        kind = "int" if isinstance(value, (int, float)) else "pointer"
    if isinstance(value, TensorMap):
        if size != len(value.raw):
            raise BadArgument(f"{name}: a tensor map was given, the kernel takes {_words(kind, size)}")
        return name, "tensor map", (value.raw, value.tensor)
    if hasattr(value, "data_ptr") or value is None:
        if size != 8 or kind != "pointer":
            raise BadArgument(f"{name}: a tensor was given, the kernel takes {_words(kind, size)}")
        return name, "*", value
    if isinstance(value, bytes) and len(value) == size:
        return name, "bytes", value
    if not isinstance(value, (int, float)) or kind in ("pointer", "struct") or (kind == "int" and value != int(value)):
        raise BadArgument(f"{name}: {value!r} was given, the kernel takes {_words(kind, size)}")
    if kind == "bfloat":
        return name, "bf16", value
    if kind == "float" and size in _FLOATS:
        return name, "bytes", struct.pack(_FLOATS[size], value)
    if kind == "int" and size in (1, 2, 4, 8) and -(1 << 8 * size - 1) <= value < 1 << 8 * size:
        return name, "bytes", (int(value) % (1 << 8 * size)).to_bytes(size, "little")
    raise BadArgument(f"{name}: {value!r} does not fit into {_words(kind, size)}")


def _kind(value: Any) -> str:
    if hasattr(value, "data_ptr") or value is None:
        return "pointer"
    return "struct" if isinstance(value, bytes) else "float" if isinstance(value, float) else "int"


def _words(kind: str, size: int) -> str:
    if kind == "pointer":
        return "a pointer: pass a CPU tensor"
    if kind == "struct":
        return f"a struct of {size} bytes: pass bytes"
    return f"{'an integer' if kind == 'int' else 'a floating-point number'} of {size} bytes"
