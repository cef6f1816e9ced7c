"""PTX on the array machine: `decode` a module's kernel once, then make a state for each batch of blocks."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpu_utils.virtual.machine import Program
from gpu_utils.virtual.ptx.program import decode
from gpu_utils.virtual.ptx.state import PtxState

__all__ = ["decode", "new_state"]


def new_state(program: Program, launch: Any, block_ids: np.ndarray, waves_per_block: int) -> PtxState:
    """The registers and memories of the blocks `block_ids` (blocks, 3) of a launch of `program`."""
    return PtxState(program, launch, block_ids, waves_per_block)
