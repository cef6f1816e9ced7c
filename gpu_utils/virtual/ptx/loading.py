"""What a driver of NVIDIA GPUs does around a launch: it finds the kernels of a PTX module and where they may run."""

from __future__ import annotations

import re
import sys
from typing import cast

import numpy as np

from gpu_utils.chips.targets import TARGETS, capability_of
from gpu_utils.virtual.isa import Launch
from gpu_utils.virtual.machine import Program
from gpu_utils.virtual.ptx.state import WORKSPACE, PtxInfo, PtxState

NAME = "ptx"
TEXT = "PTX (`.entry name`)"


def prepare(launch: Launch) -> None:
    """Make the memory that a barrier of the whole grid uses, where the kernel asks for it: size and barrier, 0."""
    info = cast(PtxInfo, launch.program.info)
    if any(info.slots[number].index in WORKSPACE for number in info.specials):
        launch.packet = np.zeros(8, np.uint8)
        launch.memory.add_array("the barrier of the grid", launch.packet, "args")


def new_state(program: Program, launch: Launch, block_ids: np.ndarray, waves_per_block: int) -> PtxState:
    """The registers and memories of the blocks `block_ids` (blocks, 3) of a launch of `program`."""
    return PtxState(program, launch, block_ids, waves_per_block)


def kernels(text: str) -> list[str]:
    """Symbols of the kernels of a module."""
    return re.findall(r"^\s*(?:\.visible\s+|\.weak\s+)*\.entry\s+([\w$]+)", text, re.MULTILINE)


def built_for(text: str) -> str | None:
    """The architecture that the module names, without its letter."""
    found = re.search(r"^\s*\.target\s+(sm_\d+)", text, re.MULTILINE)
    return found[1] if found else None


def runs_on(built_for: str, target: str) -> bool:
    """PTX runs on the architecture that it names and on later ones."""
    return (capability_of(built_for) or sys.maxsize) <= TARGETS[target].capability
