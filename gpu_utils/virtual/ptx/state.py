"""The registers of a batch of warps while it runs PTX.

Every virtual register is one row (warps, 32) of its column: "pred" bool, "16", "32" and "64" unsigned. An op reads
and writes *slots*: `state.r[slot]` is a row seen as the type that the op wants, or a constant. The slots of a
program are laid out once, when it is decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, cast

import numpy as np

from gpu_utils.errors import OutOfBounds
from gpu_utils.virtual.kernel_info import KernelInfo
from gpu_utils.virtual.machine import Op, Program, State, source_of
from gpu_utils.virtual.ptx.tensor_memory import TensorMemory
from gpu_utils.virtual.shared_memory import Shared

COLUMNS = {"pred": np.dtype(bool), "16": np.dtype("u2"), "32": np.dtype("u4"), "64": np.dtype("u8")}
_NEGATIVE = {2: np.uint16, 4: np.uint32, 8: np.uint64}
# Special registers. Those without a meaning here are 0; a clock advances by one at each reading of it.
SPECIALS = frozenset(
    f"%{name}.{axis}"
    for name in ("tid", "ntid", "ctaid", "nctaid", "clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid")
    for axis in "xyz"
) | {
    "%laneid",
    "%warpid",
    "%nwarpid",
    "%lanemask_eq",
    "%lanemask_lt",
    "%lanemask_le",
    "%lanemask_ge",
    "%lanemask_gt",
    "%dynamic_smem_size",
    "%total_smem_size",
    "%cluster_ctarank",
    "%cluster_nctarank",
    "%is_explicit_cluster",
    "%smid",
    "%nsmid",
    "%gridid",
    *(f"%envreg{i}" for i in range(32)),
}
WORKSPACE = {"%envreg2": 0, "%envreg1": 32}
"""Halves of the address of the driver's memory for the barrier of a grid (cooperative_groups/details/driver_abi.h)."""
CLOCKS = frozenset({"%clock", "%clock_hi", "%clock64", "%globaltimer", "%globaltimer_lo", "%globaltimer_hi"})


class _Spare(NamedTuple):
    rows: list[np.ndarray]
    files: dict[str, np.ndarray]
    shared: Shared


# of the batch that ended last, by its program and number of warps: the next batch takes them over
_spare: dict[tuple[Program, int], _Spare] = {}
_SPARES = 4


class Slot(NamedTuple):
    """Where `state.r[i]` comes from: a register (`column`, `index`), a special register, or a constant."""

    column: str
    index: Any
    dtype: np.dtype
    step: int = 1


@dataclass(frozen=True, kw_only=True, eq=False)
class PtxInfo(KernelInfo):
    """A KernelInfo with the layout of the rows.

    columns: rows of each column. slots: what ops read and write; specials: those that are special registers.
    names: register -> (column, row). local_bytes: of one thread. generic: whether generic addresses may name shared or
    local memory.
    """

    columns: Mapping[str, int]
    slots: tuple[Slot, ...]
    specials: tuple[int, ...]
    names: Mapping[str, tuple[str, int]]
    local_bytes: int
    generic: bool


class PtxState(State):
    """Rows of registers, local memory, parameters and what asynchronous copies have in flight.

    r: the slots. local: uint8 (warps * 32, bytes) per-thread memory, which also holds the `.param` variables of calls.
    params: uint8 (n,), the packed parameter buffer. tensor: see tensor_memory().
    """

    def __init__(self, program: Program, launch: Any, block_ids: np.ndarray, waves_per_block: int) -> None:
        super().__init__(program, launch, block_ids, waves_per_block)
        self.info = info = cast(PtxInfo, program.info)
        shape = (self.waves, 32)
        # rows of whole 16 bytes: what is aligned within a thread's memory is so at its generic address too
        self.local = np.zeros((self.waves * 32, -(-info.local_bytes // 16) * 16), np.uint8)
        self.thread = np.arange(self.waves * 32).reshape(shape)
        self.params = np.ascontiguousarray(launch.args, np.uint8)
        spare = None if getattr(launch, "fresh", False) else _spare.pop((program, self.waves), None)
        size = max(launch.shared_bytes, info.static_shared)
        if spare and (spare.shared.size, spare.shared.blocks) == (size, self.blocks):
            self.shared = spare.shared
            self.shared.reset()
        else:
            self.shared = Shared(self.blocks, waves_per_block, size)
        self.regions = []
        if info.generic:
            self.regions.append(launch.memory.add_array("shared memory", self.shared.bytes, "shared"))
            if self.local.size:
                self.regions.append(launch.memory.add_array("local memory", self.local, "scratch"))
        self.returns: dict[str, np.ndarray] = {}  # function -> where its lanes go back to
        self.votes: dict[int, np.ndarray] = {}  # barrier -> what those that reduce there have left, see flow.py
        self.fragments: dict[tuple, np.ndarray] = {}
        self.clock = 0
        self.tensor: TensorMemory | None = None
        self.wide_masks: dict[int, np.ndarray] = {}
        self.r = self._rows(info.columns, info.slots, spare)

    def _rows(self, columns: Mapping[str, int], slots: tuple[Slot, ...], spare: _Spare | None) -> list[np.ndarray]:
        """The slots' rows, taken over from the last batch of this program when that had as many warps."""
        rows: list[np.ndarray]
        if spare is not None:
            rows, self.files = spare.rows, spare.files
        else:
            self.files = {name: np.zeros((columns[name], self.waves, 32), dtype) for name, dtype in COLUMNS.items()}
            rows = self._views(slots)
        for number in self.info.specials:
            slot = slots[number]
            rows[number] = self.special(slot.index, slot.dtype)
        return rows

    def _views(self, slots: tuple[Slot, ...]) -> list[np.ndarray]:
        """The slots as views of `files`; a special register stands for itself."""
        files: dict[tuple[str, str], np.ndarray] = {}
        rows: list[np.ndarray] = []
        for column, index, dtype, step in slots:
            if column in ("const", "special"):
                rows.append(index)
                continue
            file = files.get((column, dtype.str))
            if file is None:
                file = files[column, dtype.str] = self.files[column].view(dtype)
            rows.append(file[index][..., ::step] if step > 1 else file[index])
        return rows

    @property
    def separable(self) -> bool:
        return super().separable and not self.info.generic

    def part(self, blocks: slice | np.ndarray) -> PtxState:
        part, waves = cast(PtxState, super().part(blocks)), self.waves_of(blocks)
        width = self.local.shape[1]
        part.local = self.local.reshape(self.waves, 32, width)[waves].reshape(part.waves * 32, width)
        part.thread = np.arange(part.waves * 32).reshape(part.waves, 32)
        part.returns = {name: places[waves] for name, places in self.returns.items()}
        part.votes = {number: met[:, waves] for number, met in self.votes.items()}
        part.fragments, part.wide_masks = {}, {}
        part.tensor = None if self.tensor is None else self.tensor.part(blocks)
        if isinstance(blocks, slice):
            part.r = [row[waves] if row.ndim and len(row) == self.waves else row for row in self.r]
        else:
            part.files = {name: file[:, waves] for name, file in self.files.items()}
            part.r = part._views(self.info.slots)
            for number in self.info.specials:
                part.r[number] = self.r[number][waves]
        return part

    def tensor_memory(self) -> TensorMemory:
        """The tensor memory of these blocks, made when the first instruction asks for it."""
        if self.tensor is None:
            self.tensor = TensorMemory(self.blocks)
        return self.tensor

    def ended(self) -> None:
        if self.tensor is not None:
            self.tensor.check_freed(self)

    def close(self) -> None:
        for region in self.regions:
            self.memory.remove(region)
        self.regions = []
        while len(_spare) >= _SPARES:
            _spare.pop(next(iter(_spare)), None)
        _spare[self.program, self.waves] = _Spare(self.r, self.files, self.shared)

    def snapshot(self, wave: int) -> dict[str, np.ndarray]:
        """Register name -> the bits of one warp's 32 lanes, a copy."""
        names = self.info.names
        return {name: self.files[column][index, wave].copy() for name, (column, index) in names.items()}

    def generic_base(self, space: str) -> np.ndarray:
        """What to add to an address of "shared" or "local" to make it generic, int64 (warps, 32)."""
        if space == "shared":
            base = self.shared.base + self.block_of_wave * self.shared.stride
            return np.repeat(base[:, None], 32, axis=1)
        return self.local.ctypes.data + self.thread * self.local.shape[1]

    def special(self, name: str, dtype: np.dtype) -> np.ndarray:
        """The row of a special register, by the PTX manual's chapter on them."""
        if name.startswith(("%ctaid.", "%clusterid.")):
            row = np.empty((self.waves, 32), dtype)
            row[...] = self.block_ids[self.block_of_wave, "xyz".index(name[-1]), None]
            return row
        launch = self.launch
        if name in WORKSPACE:
            return np.full((self.waves, 32), launch.packet.ctypes.data >> WORKSPACE[name] & 0xFFFFFFFF, dtype)
        block = (*launch.block, 1, 1)[:3]
        sizes = launch.shared_bytes, launch.shared_bytes - self.info.static_shared
        return _special(name, dtype, self.blocks, self.waves_per_block, block, launch.grid, sizes)

    def enter(self, act: np.ndarray | None) -> None:
        super().enter(act)
        self.wide_masks = {}

    def active(self, pred: int | None, negated: bool) -> tuple[bool, np.ndarray | None]:
        """(whether any lane runs, the mask of an op under its guard or None when all lanes do)."""
        if pred is None:
            return True, self.mask
        guard = ~self.r[pred] if negated else self.r[pred]
        if self.mask is not None:
            guard = guard & self.mask
        running = np.count_nonzero(guard)
        if running == self.waves * 32:
            return True, None
        return bool(running), guard

    def put(self, slot: int, value: Any, mask: np.ndarray | None) -> None:
        """Write a row (a slot of the column's own type), or the lanes of it that `mask` selects."""
        row = self.r[slot]
        if mask is None:
            row[...] = value
            return
        fresh = np.empty(row.shape, row.dtype)
        fresh[...] = value
        self.merge(row, fresh, mask)

    def merge(self, row: np.ndarray, fresh: np.ndarray, mask: np.ndarray) -> None:
        """row = fresh where mask; `fresh` is used up."""
        size = row.dtype.itemsize
        if size == 1:
            wide = mask
        elif mask is self.mask:
            if size not in self.wide_masks:
                self.wide_masks[size] = _wide(mask, size)
            wide = self.wide_masks[size]
        else:
            wide = _wide(mask, size)
        fresh ^= row
        fresh &= wide
        row ^= fresh

    def fragment(self, key: tuple, first: bool, build: Callable[[], np.ndarray]) -> np.ndarray:
        """A matrix fragment as numbers: built at its first use in a block, then kept for the block's other uses."""
        if self.mask is not None:
            self.fragments.pop(key, None)
            return build()
        found = None if first else self.fragments.get(key)
        if found is None:
            found = self.fragments[key] = build()
        return found

    def check_local(self, op: Op, offset: np.ndarray, size: int, mask: np.ndarray | None, what: str) -> None:
        """Raise OutOfBounds when a running lane reaches outside its thread's own memory."""
        has = self.info.local_bytes
        outside = (offset < 0) | (offset + size > has)
        if mask is not None:
            outside &= mask
        if outside.any():
            wave, lane = (int(v) for v in np.argwhere(outside)[0])
            raise OutOfBounds(
                f"kernel {self.program.name}{source_of(op)}: {self.where(wave, lane)} {what} {size} bytes at byte "
                f"offset {int(offset[wave, lane])} of its local memory, which has {has} bytes; is the index within the "
                f"array? (`{op.text}`)"
            )

    def read_local(self, offset: np.ndarray, width: int, count: int) -> list[np.ndarray]:
        """`count` words of `width` bytes from each thread's own memory at byte offsets (warps, 32)."""
        index = offset[..., None] + np.arange(width * count)
        raw = self.local[self.thread[..., None], np.clip(index, 0, self.local.shape[1] - 1)]
        words = np.ascontiguousarray(raw).view(f"u{width}")
        return [np.ascontiguousarray(words[..., i]) for i in range(count)]

    def write_local(self, offset: np.ndarray, values: list[np.ndarray], width: int, mask: np.ndarray | None) -> None:
        thread = self.thread if mask is None else self.thread[mask]
        start = offset if mask is None else offset[mask]
        for part, value in enumerate(values):
            picked = np.ascontiguousarray(value if mask is None else value[mask], f"u{width}")
            raw = picked[..., None].view(np.uint8)
            self.local[thread[..., None], (start + part * width)[..., None] + np.arange(width)] = raw


def _wide(mask: np.ndarray, size: int) -> np.ndarray:
    wide = mask.astype(_NEGATIVE[size])
    return np.negative(wide, wide)


@lru_cache(maxsize=256)
def _special(
    name: str,
    dtype: np.dtype,
    blocks: int,
    waves_per_block: int,
    block: tuple[int, int, int],
    grid: tuple[int, int, int],
    shared: tuple[int, int],
) -> np.ndarray:
    """The row of a special register that does not tell one block from another; not to be written to.

    shared: bytes of shared memory, and those of them that are dynamic.
    """
    wave = np.tile(np.arange(waves_per_block, dtype=np.uint32), blocks)
    lane = np.arange(32, dtype=np.uint32)
    thread = wave[:, None] * np.uint32(32) + lane
    axis = "xyz".find(name[-1])
    one = np.uint32(1)
    values: dict[str, Any] = {
        "%laneid": lane,
        "%warpid": wave[:, None],
        "%lanemask_eq": one << lane,
        "%lanemask_lt": (one << lane) - one,
        "%lanemask_le": ((one << lane) - one) | (one << lane),
        "%lanemask_ge": ~((one << lane) - one),
        "%lanemask_gt": ~(((one << lane) - one) | (one << lane)),
        "%nwarpid": waves_per_block,
        "%dynamic_smem_size": shared[1],
        "%total_smem_size": shared[0],
        "%cluster_nctarank": 1,
        "%nsmid": 1,
    }
    if name.startswith("%tid."):
        values[name] = (thread % block[0], thread // block[0] % block[1], thread // (block[0] * block[1]))[axis]
    elif name.startswith("%ntid."):
        values[name] = block[axis]
    elif name.startswith(("%nctaid.", "%nclusterid.")):
        values[name] = grid[axis]
    elif name.startswith("%cluster_nctaid."):
        values[name] = 1
    row = np.empty(thread.shape, dtype)
    row[...] = np.asarray(values.get(name, 0)).astype(dtype)
    row.flags.writeable = False
    return row
