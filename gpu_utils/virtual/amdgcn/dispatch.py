"""What a driver of AMD GPUs does around a launch: it finds the kernels of a file and writes the dispatch packet."""

from __future__ import annotations

import re
import struct
from typing import cast

import numpy as np

from gpu_utils.virtual.amdgcn.info import AmdInfo
from gpu_utils.virtual.amdgcn.state import AmdState
from gpu_utils.virtual.isa import Launch
from gpu_utils.virtual.machine import Program

NAME = "amdgcn"
TEXT = "AMDGCN (`.amdhsa_kernel name`)"
PACKET_BYTES = 64


def prepare(launch: Launch) -> None:
    """Write the dispatch packet of the HSA specification, from which code may read the block size, and the implicit
    arguments: block counts, block sizes, grid dimensions; the rest of them is 0."""
    sizes = [launch.grid[i] * launch.block[i] for i in range(3)]
    raw = struct.pack("<HHHHHHIIIII", 2, 3, *launch.block, 0, *sizes, 0, launch.shared_bytes)
    launch.packet = np.zeros(PACKET_BYTES, np.uint8)
    launch.packet[: len(raw)] = np.frombuffer(raw, np.uint8)
    launch.memory.add_array("the dispatch packet", launch.packet, "args")
    values = {
        **{f"hidden_block_count_{axis}": launch.grid[i] for i, axis in enumerate("xyz")},
        **{f"hidden_group_size_{axis}": launch.block[i] for i, axis in enumerate("xyz")},
        "hidden_grid_dims": 3,
    }
    for offset, size, kind in cast(AmdInfo, launch.program.info).hidden:
        raw = int(values.get(kind, 0)).to_bytes(8, "little")[:size]
        launch.args[offset : offset + size] = np.frombuffer(raw, np.uint8)


def new_state(program: Program, launch: Launch, block_ids: np.ndarray, waves_per_block: int) -> AmdState:
    """The registers of a batch of blocks as the hardware leaves them at the first instruction."""
    return AmdState(program, launch, block_ids, waves_per_block)


def kernels(text: str) -> list[str]:
    """Symbols of the kernels of an assembly file."""
    return re.findall(r"^\s*\.amdhsa_kernel\s+(\S+)", text, re.MULTILINE)


def built_for(text: str) -> str | None:
    """The target that the file names."""
    found = re.search(r"\.amdgcn_target\s+\"[\w-]*?--(gfx\w+)", text)
    return found[1] if found else None


def runs_on(built_for: str, target: str) -> bool:
    """AMD machine code runs on its own target only."""
    return built_for == target
