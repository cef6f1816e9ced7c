"""What a decoder learns of a kernel beside its instructions."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

MOST_THREADS = 1024  # of a block, on every target here: CUDA programming guide; LLVM's default for AMDGPU kernels


@dataclass(frozen=True, kw_only=True, eq=False)
class KernelInfo:
    """Arguments, memory and registers of one kernel; each instruction set adds what its own state needs.

    parameters: (byte offset, bytes) of each argument of the source, in the packed buffer of parameter_bytes bytes.
    registers: 32-bit registers of one lane, as many as the text names. static_shared: bytes of shared memory (LDS) per
    block that the text declares. data: uint8 (n,), constants and variables of the module, which a kernel may write;
    first_data: a copy from before. most_threads: of a block, as the text limits it. compiled_registers, spills: vector
    registers of one lane and those that did not fit, where the text states them, else 0.
    """

    parameters: tuple[tuple[int, int], ...]
    parameter_bytes: int
    registers: int
    static_shared: int
    data: np.ndarray
    most_threads: int
    compiled_registers: int = 0
    spills: int = 0
    first_data: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "first_data", self.data.copy())
