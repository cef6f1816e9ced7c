"""Tensor memory of a virtual GPU (sm_100): 128 lanes of 512 columns of 32 bits for each block, handed out by columns.

An address has the lane in its upper 16 bits and the column in its lower ones. Columns are allocated in powers of two
from 32 on and belong to the block until it gives them back (PTX manual, "Tensor Memory").
"""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from gpu_utils.errors import OutOfBounds, ResourceLimit, TensorMemoryFault, UninitialisedShared
from gpu_utils.virtual.machine import Op, State, source_of

LANES, COLUMNS, GRANULE = 128, 512, 32
U32 = np.uint32
UNWRITTEN = U32(0x7FFF7FFF)
"""What a tcgen05.ld gives of a word that nobody has written: NaN as float32, and each half as float16 and bfloat16."""


class TensorMemory:
    """Tensor memory of a batch. words, written: (blocks, 128, columns that some block has had so far).

    length (blocks, 16): columns of the allocation that begins at column 32 * i, 0 where none does.
    owned (blocks, 512): whether a column is allocated. closed (blocks,): no more may be.
    """

    def __init__(self, blocks: int) -> None:
        self.words = np.zeros((blocks, LANES, 0), U32)
        self.written = np.zeros((blocks, LANES, 0), bool)
        self.length = np.zeros((blocks, COLUMNS // GRANULE), np.int64)
        self.owned = np.zeros((blocks, COLUMNS), bool)
        self.closed = np.zeros(blocks, bool)

    def part(self, blocks: slice | np.ndarray) -> TensorMemory:
        """Some blocks' shares: views of them for a slice, copies for numbers of blocks."""
        part = object.__new__(TensorMemory)
        part.__dict__.update({name: rows[blocks] for name, rows in self.__dict__.items()})
        return part

    # allocation -------------------------------------------------------------------------------------------------
    def allocate(self, state: State, op: Op, wave: int, count: int) -> int:
        """The first of `count` free columns side by side, for the block of `wave`."""
        block = int(state.block_of_wave[wave])
        if self.closed[block]:
            fault(state, op, wave, "allocates tensor memory after its block gave up the right to with "
                  "`tcgen05.relinquish_alloc_permit`: allocate before it")  # fmt: skip
        check_count(state, op, wave, count)
        free = ~self.owned[block]
        for start in range(0, COLUMNS - count + 1, GRANULE):
            if free[start : start + count].all():
                break
        else:
            raise ResourceLimit(
                f"kernel {state.program.name}{source_of(op)}: {state.where(wave, 0)} asks for {count} columns of "
                f"tensor memory; of the {COLUMNS} that an SM has, "
                f"the block holds {int(self.owned[block].sum())} already "
                f"and {count} side by side are not free: on a GPU it waits for ever; use fewer, or deallocate first "
                f"(`{op.mnemonic}`)"
            )
        self.owned[block, start : start + count] = True
        self.length[block, start // GRANULE] = count
        self._grow(start + count)
        self.written[block, :, start : start + count] = False
        return start

    def _grow(self, columns: int) -> None:
        have = self.words.shape[2]
        if columns > have:
            more = ((0, 0), (0, 0), (0, columns - have))
            self.words, self.written = np.pad(self.words, more), np.pad(self.written, more)

    def free(self, state: State, op: Op, wave: int, address: int, count: int) -> None:
        """Give back the allocation that begins at `address`."""
        block = int(state.block_of_wave[wave])
        check_count(state, op, wave, count)
        start = address & 0xFFFF
        known = address >> 16 == 0 and start % GRANULE == 0 and start < COLUMNS
        held = int(self.length[block, start // GRANULE]) if known else 0
        if held != count:
            found = f"an allocation of {held}" if held else "no allocation"
            fault(state, op, wave, f"gives back {count} columns of tensor memory at {named(address)}, where there is "
                  f"{found}: address and number must be those of a `tcgen05.alloc`")  # fmt: skip
        self.length[block, start // GRANULE] = 0
        self.owned[block, start : start + count] = False

    def check_freed(self, state: State) -> None:
        """At the end of the blocks: all must have been given back."""
        left = np.argwhere(self.length)
        if len(left):
            block, place = (int(v) for v in left[0])
            x, y, z = (int(v) for v in state.block_ids[block])
            raise TensorMemoryFault(
                f"kernel {state.program.name}: program ({x}, {y}, {z}) ended with "
                f"{int(self.length[block, place])} columns of tensor memory allocated, from column {place * GRANULE}: "
                "on a GPU the next block on that SM that asks for them waits for ever; "
                "end with `tcgen05.dealloc` by the warp that allocated"
            )

    # access -----------------------------------------------------------------------------------------------------
    def moved(self, state: State, op: Op, waves: np.ndarray, lanes: np.ndarray, column: int, count: int) -> np.ndarray:
        """Like load, for a tcgen05.ld: a word that nobody has written is a NaN in every floating type.

        Such a load is no fault yet. Triton 3.7.1 reads the accumulator of a loop of products that has no turn, and
        throws it away (its tutorial 06, causal, on sm_100).
        """
        words, written = self._words(state, op, waves, lanes, column, count)
        return np.where(written, words, UNWRITTEN)

    def load(self, state: State, op: Op, waves: np.ndarray, lanes: np.ndarray, column: int, count: int) -> np.ndarray:
        """uint32 (n, lanes, count): the words of `lanes` in `count` columns, for the block of each of `waves` (n,).

        Raises UninitialisedShared for a word that nobody in the block has written.
        """
        words, good = self._words(state, op, waves, lanes, column, count)
        if not good.all():
            n, lane, at = (int(v) for v in np.argwhere(~good)[0])
            raise UninitialisedShared(
                f"kernel {state.program.name}{source_of(op)}: {state.where(int(waves[n]), 0)} reads lane "
                f"{int(lanes[lane])}, column {column + at} of tensor memory, which nobody in its block has written "
                f"since it was allocated; is a `tcgen05.st`, `tcgen05.cp` or product missing, or `enable-input-d` set "
                f"too early? (`{op.mnemonic}`)"
            )
        return words

    def _words(
        self, state: State, op: Op, waves: np.ndarray, lanes: np.ndarray, column: int, count: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """The words of load, and which of them somebody has written."""
        blocks = self._place(state, op, waves, lanes, column, count, "reads")
        if state.watch is not None:
            state.watch.tensor_memory(state, op, waves, lanes, column, count, False)
        places = blocks[:, None], lanes[None], slice(column, column + count)
        return self.words[places], self.written[places]

    def store(
        self, state: State, op: Op, waves: np.ndarray, lanes: np.ndarray, column: int, values: np.ndarray
    ) -> None:
        """Write values uint32 (n, lanes, columns) from `column` on."""
        count = values.shape[2]
        blocks = self._place(state, op, waves, lanes, column, count, "writes")
        if state.watch is not None:
            state.watch.tensor_memory(state, op, waves, lanes, column, count, True)
        places = blocks[:, None], lanes[None], slice(column, column + count)
        self.words[places] = values
        self.written[places] = True

    def _place(
        self, state: State, op: Op, waves: np.ndarray, lanes: np.ndarray, column: int, count: int, what: str
    ) -> np.ndarray:
        blocks = state.block_of_wave[waves]
        inside = column + count <= COLUMNS and int(lanes[-1]) < LANES
        held = self.owned[blocks, column : column + count].all(axis=1) if inside else np.zeros(len(blocks), bool)
        if not held.all():
            wave = int(waves[np.argmin(held)])
            first = f"lanes {int(lanes[0])} to {int(lanes[-1])}, columns {column} to {column + count - 1}"
            raise OutOfBounds(
                f"kernel {state.program.name}{source_of(op)}: {state.where(wave, 0)} {what} {first} of tensor memory; "
                f"its block has {self._held(int(state.block_of_wave[wave]))} (`{op.mnemonic}`)"
            )
        return blocks

    def _held(self, block: int) -> str:
        starts = np.flatnonzero(self.length[block])
        spans = [f"{i * GRANULE} to {i * GRANULE + self.length[block, i] - 1}" for i in starts]
        return f"allocated columns {' and '.join(spans)}, of 128 lanes" if spans else "allocated none"


def check_count(state: State, op: Op, wave: int, count: int) -> None:
    """How many columns may be allocated and given back at once."""
    if count not in (32, 64, 128, 256, 512):
        fault(state, op, wave, f"names {count} columns of tensor memory: it must be 32, 64, 128, 256 or 512")


def named(address: int) -> str:
    """Words for an address of tensor memory.

    >>> named(0x00200010)
    'lane 32, column 16'
    """
    return f"lane {address >> 16}, column {address & 0xFFFF}"


def fault(state: State, op: Op, wave: int, what: str) -> NoReturn:
    """Raise TensorMemoryFault: who, and what the manual forbids about it."""
    raise TensorMemoryFault(
        f"kernel {state.program.name}{source_of(op)}: {state.where(wave, 0)} {what} (`{op.mnemonic}`)"
    )
