"""What an instruction set gives to the virtual GPUs, and the launch that it is given."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from gpu_utils.chips.targets import Target
from gpu_utils.virtual.counters import Counters
from gpu_utils.virtual.global_memory import Memory
from gpu_utils.virtual.machine import Program, State


class Isa(Protocol):
    """An instruction set: the packages `ptx` and `amdgcn` are one each.

    NAME: "ptx" or "amdgcn", also the suffix of Triton's file with the text. TEXT: how a kernel begins, for messages.
    """

    NAME: str
    TEXT: str

    def decode(self, text: str, target: str, name: str | None) -> Program:
        """The program of one kernel, or of the first. Raises UnsupportedInstruction before anything runs."""

    def prepare(self, launch: Launch) -> None:
        """Lay down what this vendor's driver puts beside the arguments of a launch."""

    def new_state(self, program: Program, launch: Launch, block_ids: np.ndarray, waves_per_block: int) -> State:
        """The batch of the blocks `block_ids` (blocks, 3) as the hardware starts it."""

    def kernels(self, text: str) -> list[str]:
        """The symbols of the kernels in a text."""

    def built_for(self, text: str) -> str | None:
        """The target that a text names: "sm_80", "gfx942"; None for a text of another instruction set."""

    def runs_on(self, built_for: str, target: str) -> bool:
        """Whether a target executes what was compiled for another."""


@dataclass(eq=False)
class Launch:
    """One launch: what the instruction sets read, and what it left behind.

    chip: the row of the target. grid, block: (x, y, z). args: the packed parameter buffer, uint8. shared_bytes: shared
    memory per block. packet: what `prepare` fills: AMD's dispatch packet, the barrier of a PTX grid. fresh: start from
    registers of zero, for a trace. registers: vector registers of one lane as the vendor's compiler allots them, 0
    where nobody has asked it (PTX that was loaded as text); stack: bytes of local memory or scratch of one lane,
    likewise.
    """

    name: str
    target: str
    program: Program
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    args: np.ndarray
    memory: Memory
    counters: Counters
    shared_bytes: int
    chip: Target
    packet: np.ndarray = field(default_factory=lambda: np.zeros(0, np.uint8))
    metadata: Any = None
    text: str = ""
    fresh: bool = False
    registers: int = 0
    stack: int = 0
