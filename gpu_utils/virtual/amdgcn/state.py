"""Registers of a batch of wavefronts.

Every register is a *row* with a number: VGPR v0.. at 0 (gfx1250 has 1024), AGPR a0.. at 1024, SGPR s0.. at 1280 (with
VCC, M0, EXEC at the places of VCC..EXEC below), and the constants of the program from CONSTANTS on. U, I and F: lists
of the same rows seen as uint32, int32 and float32: shape (waves, lanes) for vector registers,
(waves, 1) for scalar ones, (1, 1) for constants, so that they mix by broadcasting.
"""

from __future__ import annotations

import copy
from functools import lru_cache
from typing import Any, cast

import numpy as np

from gpu_utils.virtual.amdgcn import hostcall
from gpu_utils.virtual.amdgcn.info import AmdInfo
from gpu_utils.virtual.kept import Kept
from gpu_utils.virtual.machine import Program, State
from gpu_utils.virtual.shared_memory import Shared

AGPR, SGPR = 1024, 1280
VCC, TTMP, M0, NULL, EXEC = SGPR + 106, SGPR + 108, SGPR + 124, SGPR + 125, SGPR + 126
CONSTANTS = SGPR + 128
SCC = -1  # no row of 32 bits: AmdState.scc
_NAMES = {
    SCC: "scc",
    VCC: "vcc_lo",
    VCC + 1: "vcc_hi",
    M0: "m0",
    EXEC: "exec_lo",
    EXEC + 1: "exec_hi",
    **{TTMP + i: f"ttmp{i}" for i in range(16)},
}


def register_name(row: int) -> str:
    """The name of a row in assembly text.

    >>> register_name(7), register_name(AGPR + 1), register_name(SGPR), register_name(VCC)
    ('v7', 'a1', 's0', 'vcc_lo')
    """
    if row in _NAMES:
        return _NAMES[row]
    kind, first = ("v", 0) if row < AGPR else ("a", AGPR) if row < SGPR else ("s", SGPR)
    return f"{kind}{row - first}"


def unpack_mask(words: np.ndarray, lanes: int) -> np.ndarray:
    """uint64 (waves, 1) -> bool (waves, lanes)."""
    raw = np.ascontiguousarray(words).view(np.uint8)[:, : lanes // 8]
    return np.unpackbits(raw, axis=1, bitorder="little").view(bool)


def spread_mask(mask: np.ndarray) -> np.ndarray:
    """bool -> uint32 of the same shape, all bits set where the mask is: to select with, faster than np.where."""
    return np.negative(mask.view(np.int8)).astype(np.int32).view(np.uint32)


def pack_mask(mask: np.ndarray) -> np.ndarray:
    """bool (waves, lanes) -> uint64 (waves, 1)."""
    packed = np.packbits(mask, axis=1, bitorder="little")
    return packed.view(np.uint64) if packed.shape[1] == 8 else packed.view(np.uint32).astype(np.uint64)


# By the words of EXEC in all waves and the lanes of a wave: those lanes, bool (waves, lanes), or None for all of them.
# One array each time, so that what follows from a mask can be kept beside it; it cannot be written.
_exec_masks: Kept[tuple[bytes, int], np.ndarray | None] = Kept(1 << 24)


@lru_cache(maxsize=32)
def _thread_ids(bx: int, by: int, threads: int) -> np.ndarray:
    """What v0 holds at the start in each lane of a block: x in bits 9:0, y in bits 19:10, z in bits 29:20."""
    thread = np.arange(threads)
    return (thread % bx | thread // bx % by << 10 | thread // (bx * by) << 20).astype(np.uint32)


class Registers:
    """The rows of one program for a number of waves, the views of them, and the shared memory of their blocks.

    Kept for the next batch of that program.
    """

    shared: Shared

    def __init__(self, program: Program, waves: int) -> None:
        info, lanes = cast(AmdInfo, program.info), program.lanes
        self.vgprs = info.vgprs
        self.vectors = np.zeros((info.vgprs + info.agprs, waves, lanes), np.uint32)
        self.S = np.zeros((64, waves, 2), np.uint32)
        rows: list[Any] = [None] * (CONSTANTS + len(info.constants))
        rows[: info.vgprs] = list(self.vectors[: info.vgprs])
        rows[AGPR : AGPR + info.agprs] = list(self.vectors[info.vgprs :])
        used = (*range(min(info.sgprs, 106)), *range(106, 128))
        for i in used:
            rows[SGPR + i] = self.S[i // 2, :, i % 2 : i % 2 + 1]
        self.parts: dict[tuple[int, int], Registers] = {}
        self.program = program
        self.of_waves = [i for i, row in enumerate(rows) if row is not None]
        for i, value in enumerate(info.constants):
            rows[CONSTANTS + i] = np.array([[value]], np.uint32)
        self.U: list[Any] = rows
        self.I, self.F = self._seen_as(np.int32), self._seen_as(np.float32)
        # 64-bit views of the even SGPR pairs, by row number of the low half
        self.Q = {SGPR + i: self.S[i // 2].view(np.uint64) for i in used if i % 2 == 0}

    def _seen_as(self, dtype: type) -> list[Any]:
        """The rows as another type of 32 bits."""
        rows = [None if row is None else row.view(dtype) for row in self.U[CONSTANTS:]]
        vectors: list[Any] = list(self.vectors.view(dtype))
        scalars: np.ndarray = self.S.view(dtype)
        agprs = len(vectors) - self.vgprs
        columns = [
            None if row is None else scalars[i // 2, :, i % 2 : i % 2 + 1]
            for i, row in enumerate(self.U[SGPR:CONSTANTS])
        ]
        gaps: tuple[list[Any], list[Any]] = [None] * (AGPR - self.vgprs), [None] * (SGPR - AGPR - agprs)
        return [*vectors[: self.vgprs], *gaps[0], *vectors[self.vgprs :], *gaps[1], *columns, *rows]

    def part(self, waves: slice | np.ndarray) -> Registers:
        """Views of the rows of some waves, made once; copies for numbers of waves."""
        if not isinstance(waves, slice):
            chosen = Registers(self.program, len(waves))
            np.take(self.vectors, waves, axis=1, out=chosen.vectors)
            np.take(self.S, waves, axis=1, out=chosen.S)
            return chosen
        if (waves.start, waves.stop) in self.parts:
            return self.parts[waves.start, waves.stop]
        part = self.parts[waves.start, waves.stop] = copy.copy(self)
        part.vectors, part.S = self.vectors[:, waves], self.S[:, waves]
        part.U, part.I, part.F = list(self.U), list(self.I), list(self.F)
        for rows in (part.U, part.I, part.F):
            for i in self.of_waves:
                rows[i] = rows[i][waves]
        part.Q = {i: row[waves] for i, row in self.Q.items()}
        return part


# Registers with fewer lanes than this are written lane by lane under a mask, others by their bits.
SMALL = 4096
_spare: dict[tuple[Program, int], Registers] = {}
_SPARES = 8


class AmdState(State):
    """Registers, SCC and EXEC of the wavefronts of a batch."""

    def __init__(self, program: Program, launch: Any, block_ids: np.ndarray, waves_per_block: int) -> None:
        super().__init__(program, launch, block_ids, waves_per_block)
        self.info = cast(AmdInfo, program.info)
        kept = None if launch.fresh else _spare.pop((program, self.waves), None)
        registers = kept or Registers(program, self.waves)
        self._use(registers)
        self.scc = np.zeros((self.waves, 1), bool)
        self.full = np.uint64((1 << self.lanes) - 1)
        self.exec_mask: np.ndarray | None = None
        self.act_column: np.ndarray | None = None
        # by row: lane masks in scalar registers that were asked for or just written; (mask, spread_mask of it)
        self.masks: dict[int, np.ndarray] = {}
        self.spread: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self.mask_rows = -self.lanes // 32  # a row & this is that of the lane mask that it is part of
        self.fragments: dict[Any, tuple[np.ndarray, np.ndarray]] = {}  # see fragments.py
        self.Q[EXEC][...] = self.full
        self.lane = np.arange(self.lanes, dtype=np.int64)[None, :]
        self.every_lane = np.ones((1, self.lanes), bool)
        if kept and (kept.shared.size, kept.shared.blocks) == (launch.shared_bytes, self.blocks):
            kept.shared.reset()
        else:
            registers.shared = Shared(self.blocks, waves_per_block, launch.shared_bytes)
        self.shared = registers.shared
        self._scratch_region = None
        self.host = hostcall.attach(self, launch)
        self._start(launch)

    def _use(self, registers: Registers) -> None:
        self.registers = registers
        self.U, self.F, self.Q, self.S = registers.U, registers.F, registers.Q, registers.S
        self.I, self.vectors = registers.I, registers.vectors

    @property
    def separable(self) -> bool:
        return super().separable and self.host is None

    def part(self, blocks: slice | np.ndarray) -> AmdState:
        part, waves = cast(AmdState, super().part(blocks)), self.waves_of(blocks)
        part._use(self.registers.part(waves))
        part.scc = self.scc[waves]
        part.fragments, part.masks, part.spread = {}, {}, {}
        part.exec_mask = None if self.exec_mask is None else self.exec_mask[waves]
        part.scratch_base = None if self.scratch_base is None else self.scratch_base[waves]
        return part

    def _clear(self, row: int, count: int) -> None:
        for i in range(row - SGPR, row - SGPR + count):
            self.S[i // 2, :, i % 2] = 0

    def _start(self, launch: Any) -> None:
        """What the hardware puts into registers before the first instruction."""
        info = self.info
        self.U[0].reshape(self.blocks, -1)[...] = _thread_ids(*launch.block[:2], self.waves_per_block * self.lanes)
        at = SGPR
        for name, count in info.user_sgprs:
            if name != "preload":
                self._clear(at, count)
            if name == "scratch":
                self.U[at + 3][...] = 1 << 23
            elif name == "kernarg":
                self.Q[at][...] = self.host.arguments if self.host else np.uint64(launch.args.ctypes.data)
            elif name == "dispatch":
                self.Q[at][...] = np.uint64(launch.packet.ctypes.data)
            elif name == "preload":
                words = launch.args.view(np.uint32)[info.preload_offset :][:count]
                for i, word in enumerate(words):
                    self.U[at + i][...] = word
            at += count
        ids = self.block_ids[self.block_of_wave].astype(np.uint32)
        if info.ids_in_ttmp:
            self.U[TTMP + 9][...] = ids[:, :1]
            self.U[TTMP + 7][...] = ids[:, 1:2] | ids[:, 2:] << np.uint32(16)
            self.U[TTMP + 8][...] = self.wave_in_block[:, None].astype(np.uint32) << np.uint32(25)
        else:
            for axis in info.group_ids:
                self.U[at][...] = ids[:, axis : axis + 1]
                at += 1
            self._clear(at, 2)  # the scratch offset of the wave: a buffer per lane needs none
        self.scratch_base: np.ndarray | None = None
        size = info.scratch
        if size:
            self.scratch_stride = -(-size // 16) * 16
            self.scratch = np.zeros(self.waves * self.lanes * self.scratch_stride + 16, np.uint8)
            self._scratch_region = self.memory.add_array("scratch memory", self.scratch, "scratch")
            self.scratch_base = (
                self.scratch.ctypes.data
                + (np.arange(self.waves)[:, None] * self.lanes + self.lane) * self.scratch_stride
            )

    def disable(self, lanes: np.ndarray) -> None:
        self.Q[EXEC][...] = pack_mask(~lanes)
        self.exec_changed()

    def close(self) -> None:
        while len(_spare) >= _SPARES:
            _spare.pop(next(iter(_spare)), None)
        _spare[self.program, self.waves] = self.registers
        if self._scratch_region is not None:
            self.memory.remove(self._scratch_region)
        if self.host is not None:
            self.memory.remove(self.host.region)

    def block(self, row: int, count: int) -> np.ndarray:
        """`count` consecutive vector registers as one array (count, waves, lanes), a view."""
        first = row if row < AGPR else row - AGPR + self.info.vgprs
        return self.vectors[first : first + count]

    def snapshot(self, wave: int) -> dict[str, np.ndarray]:
        """A copy of one wave's registers by name: vN and aN (lanes,), sN, vcc, exec, m0 and scc (1,)."""
        info = self.info
        result = {f"v{i}": self.U[i][wave].copy() for i in range(info.vgprs)}
        result |= {f"a{i}": self.U[AGPR + i][wave].copy() for i in range(info.agprs)}
        result |= {f"s{i}": self.U[SGPR + i][wave].copy() for i in range(info.sgprs)}
        result |= {"vcc": self.Q[VCC][wave].copy(), "exec": self.Q[EXEC][wave].copy(), "m0": self.U[M0][wave].copy()}
        return result | {"scc": self.scc[wave].copy()}

    # masks

    def enter(self, act: np.ndarray | None) -> None:
        self.act = act
        self.act_column = None if act is None else act[:, None]
        self.active_waves = self.waves if act is None else int(np.count_nonzero(act))
        self._combine()

    def _combine(self) -> None:
        if self.act is None:
            self.mask = self.exec_mask
        elif self.exec_mask is None:
            self.mask = self.act_column & self.every_lane
        else:
            self.mask = self.exec_mask & self.act_column
        self.active_lanes = self.waves * self.lanes if self.mask is None else int(np.count_nonzero(self.mask))

    def exec_changed(self) -> None:
        """Call after EXEC was written."""
        word = self.Q[EXEC]
        key = word.tobytes(), self.lanes
        if key in _exec_masks:
            self.exec_mask = _exec_masks[key]
        else:
            mask = None if (word == self.full).all() else unpack_mask(word, self.lanes)
            if mask is not None:
                mask.flags.writeable = False
            self.exec_mask = _exec_masks.keep(key, mask, self.waves * self.lanes)
        self._combine()

    def lane_mask(self, row: int) -> np.ndarray:
        """The lane mask in an SGPR (pair), bool (waves, lanes); not to be written."""
        found = self.masks.get(row)
        if found is None:
            word = self.Q[row] if self.lanes == 64 else self.U[row].astype(np.uint64)
            found = self.masks[row] = unpack_mask(word, self.lanes)
        return found

    def forget_mask(self, row: int, word: type) -> None:
        """Call after a scalar register, or a pair of them, was written by other means than `put_mask`."""
        self.masks.pop(row & self.mask_rows, None)
        if word is np.uint64:
            self.masks.pop(row + 1, None)

    def spread_of(self, row: int, mask: np.ndarray) -> np.ndarray:
        """`spread_mask(mask)`, kept under a row as long as that has the same mask."""
        held = self.spread.get(row)
        if held is None or held[0] is not mask:
            held = self.spread[row] = mask, spread_mask(mask)
        return held[1]

    def put_mask(self, row: int, bits: np.ndarray) -> None:
        """Write a lane mask (only active lanes may be set) into an SGPR (pair)."""
        if row == NULL:
            return
        if self.mask is not None:
            bits = bits & self.mask
        word = pack_mask(bits)
        target = self.Q[row] if self.lanes == 64 else self.U[row]
        if self.act is None:
            target[...] = word
            self.masks[row] = bits
        else:
            np.copyto(target, word.astype(target.dtype), where=self.act_column)
            self.masks.pop(row, None)

    def put_no_lanes(self, row: int) -> None:
        """Write a lane mask without a lane."""
        if self.lanes == 64:
            self.put_scalar64(row, np.zeros((1, 1), np.uint64))
        else:
            self.put_scalar(row, np.zeros((1, 1), np.uint32))

    # writes

    def put(self, row: int, value: np.ndarray) -> None:
        """Write a vector register in the active lanes; value: uint32, broadcastable to (waves, lanes)."""
        target, mask = self.U[row], self.mask
        if mask is None:
            target[...] = value
        elif target.size < SMALL:
            np.copyto(target, value, where=mask)
        else:
            change = np.bitwise_xor(target, value)
            change &= self.spread_of(EXEC, mask)
            np.bitwise_xor(target, change, out=target)

    def put_scalar(self, row: int, value: np.ndarray) -> None:
        """Write a scalar register for the running waves; value: uint32 (waves, 1) or (1, 1)."""
        if row == NULL:
            return
        self.forget_mask(row, np.uint32)
        if self.act is None:
            self.U[row][...] = value
        else:
            np.copyto(self.U[row], value, where=self.act_column)

    def put_scalar64(self, row: int, value: np.ndarray) -> None:
        """Write an even pair of scalar registers; value: uint64."""
        if row == NULL:
            return
        self.forget_mask(row, np.uint64)
        if self.act is None:
            self.Q[row][...] = value
        else:
            np.copyto(self.Q[row], value, where=self.act_column)

    def put_scc(self, value: np.ndarray) -> None:
        if self.act is None:
            self.scc[...] = value
        else:
            np.copyto(self.scc, value, where=self.act_column)

    def pair(self, row: int) -> np.ndarray:
        """Two consecutive registers as one uint64 array."""
        if row in self.Q:
            return self.Q[row]
        low, high = self.U[row], self.U[row if row == NULL else row + 1]  # null is zero in any width
        if low.shape[1] == 1:
            return low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)
        both = np.empty((*low.shape, 2), np.uint32)
        both[..., 0] = low
        both[..., 1] = high
        return both.view(np.uint64)[..., 0]

    def put_pair(self, row: int, value: np.ndarray) -> None:
        """Write two consecutive vector registers in the active lanes; value: uint64 (waves, lanes)."""
        if value.shape[1] != self.lanes:
            value = np.broadcast_to(value, self.U[row].shape)
        halves = np.ascontiguousarray(value).view(np.uint32).reshape(*value.shape, 2)
        self.put(row, halves[..., 0])
        self.put(row + 1, halves[..., 1])
