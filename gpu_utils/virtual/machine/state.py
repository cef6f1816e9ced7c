"""The state of one batch of waves that every instruction set has: which block and program a wave is, and what runs."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from gpu_utils.virtual.machine.program import Program


class State:
    """The architectural state of one batch of waves; instruction sets subclass it with their registers.

    waves: number of waves in the batch; lanes: lanes of each. Rows of per-lane data have the shape (waves, lanes).
    block_of_wave (waves,): which block of the batch a wave belongs to; wave_in_block (waves,).
    block_ids (blocks, 3): grid coordinates; program_number (waves,): linear number of the block in the grid, x fastest.
    act: None, or a bool array of the units that run now, of shape (waves,) or (waves, lanes).
    mask: None (every lane runs) or a bool array (waves, lanes): the lanes that an op may write.
    keep: as mask, for registers: None also when nobody will read those of the lanes outside, see `alone`.
    active_waves, active_lanes: counts for the running group.
    first_block: how many blocks of the launch come before this batch; turn: accesses that were recorded for the L2.
    whole: the batch that this one is a part of, or None; parts: those of this batch that still run.
    watch: what the sanitizers keep of this batch; None without them.
    memory, shared, counters: of global_memory.py, shared_memory.py, counters.py. launch: what this batch is part of.
    """

    def __init__(self, program: Program, launch: Any, block_ids: np.ndarray, waves_per_block: int) -> None:
        blocks = len(block_ids)
        self.program, self.launch, self.memory, self.counters = program, launch, launch.memory, launch.counters
        self.lanes, self.waves, self.blocks = program.lanes, blocks * waves_per_block, blocks
        self.waves_per_block, self.block_ids = waves_per_block, block_ids
        self.block_of_wave, self.wave_in_block = _waves(blocks, waves_per_block)
        grid = launch.grid
        linear = block_ids[:, 0] + grid[0] * (block_ids[:, 1] + grid[1] * block_ids[:, 2])
        self.program_number = linear[self.block_of_wave]
        self.unit_shape = (self.waves,) if program.unit == "wave" else (self.waves, self.lanes)
        self.act: np.ndarray | None = None
        self.mask: np.ndarray | None = None
        self.keep: np.ndarray | None = None
        self.active_waves, self.active_lanes = self.waves, self.waves * self.lanes
        self.shared: Any = None
        self.absent: np.ndarray | None = None
        self.first_block = self.turn = 0
        self.whole: State | None = None
        self.parts = 0
        self.watch: Any = None

    def enter(self, act: np.ndarray | None) -> None:
        """Make `act` the running units: set act, mask and the counts. AMDGCN overrides it to add EXEC."""
        self.act = act
        if act is None:
            self.mask, self.active_waves, self.active_lanes = None, self.waves, self.waves * self.lanes
        elif act.ndim == 2:
            self.mask = act
            self.active_waves, self.active_lanes = int(np.count_nonzero(act.any(axis=1))), int(np.count_nonzero(act))
        else:
            self.mask = np.repeat(act[:, None], self.lanes, axis=1)
            self.active_waves = int(np.count_nonzero(act))
            self.active_lanes = self.active_waves * self.lanes
        self.keep = self.mask

    def alone(self) -> None:
        """All units that do not run have ended or will. If those are whole waves, nobody can see their registers."""
        if self.absent is None and self.active_lanes == self.active_waves * self.lanes:
            self.keep = None

    def disable(self, lanes: np.ndarray) -> None:
        """Lanes (waves, lanes) past the end of a block: they never run. AMDGCN overrides it to clear EXEC."""
        self.absent = lanes

    def snapshot(self, wave: int) -> dict[str, np.ndarray]:
        """A copy of one wave's registers by name, for a trace."""
        raise NotImplementedError

    @property
    def separable(self) -> bool:
        """Whether some blocks may go on without the others and nobody can tell."""
        return self.program.separable and self.blocks > 1 and self.absent is None and self.counters.record is None

    def part(self, blocks: slice | np.ndarray) -> State:
        """Some blocks of this batch, to go on alone.

        With a slice, registers and shared memory are views of those here; with numbers of blocks they are copies.
        Subclasses add their rows. This batch is closed after its last part.
        """
        part = object.__new__(type(self))
        part.__dict__.update(self.__dict__)  # copy.copy takes ten times as long
        waves = self.waves_of(blocks)
        part.block_ids = self.block_ids[blocks]
        part.blocks, part.wave_in_block = len(part.block_ids), self.wave_in_block[waves]
        part.waves = part.blocks * self.waves_per_block
        part.block_of_wave = _waves(part.blocks, self.waves_per_block)[0]
        part.program_number = self.program_number[waves]
        part.unit_shape = (part.waves, *self.unit_shape[1:])
        part.first_block = self.first_block + (blocks.start if isinstance(blocks, slice) else int(blocks[0]))
        part.shared = self.shared.part(blocks)
        part.whole, part.parts = self, 0
        return part

    def waves_of(self, blocks: slice | np.ndarray) -> slice | np.ndarray:
        """The waves of some blocks, to index rows with."""
        if isinstance(blocks, slice):
            return slice(blocks.start * self.waves_per_block, blocks.stop * self.waves_per_block)
        return (blocks[:, None] * self.waves_per_block + np.arange(self.waves_per_block)).ravel()

    def ended(self) -> None:
        """Called when every unit of these blocks has come to its end; a subclass checks what they leave behind."""

    def close(self) -> None:
        """Called after the batch; a subclass takes back the regions that it registered."""

    def where(self, wave: int, lane: int) -> str:
        """Words for an error message: which program and lane."""
        x, y, z = (int(v) for v in self.block_ids[self.block_of_wave[wave]])
        thread = int(self.wave_in_block[wave]) * self.lanes + lane
        return f"program ({x}, {y}, {z}), wave {int(self.wave_in_block[wave])}, lane {lane} (thread {thread})"


@lru_cache(maxsize=256)
def _waves(blocks: int, waves_per_block: int) -> tuple[np.ndarray, np.ndarray]:
    """Of each wave its block and its number there, (waves,) each; not to be written to."""
    found = np.divmod(np.arange(blocks * waves_per_block), waves_per_block)
    for each in found:
        each.flags.writeable = False
    return found
