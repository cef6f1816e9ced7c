"""tcgen05 but for the products: tensor memory handed out, read, written, filled from shared memory; commit and waits.

All is done when it is issued, so a wait changes nothing, and a commit arrives at its mbarrier at once. A warp reaches
the quarter of the lanes that its number modulo 4 names. An address whose lane lies in the first quarter stands for the
same place in the warp's own: DeepGEMM's kernels pass such addresses, the manual's figures those with the lane.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gpu_utils.chips.targets import TARGETS
from gpu_utils.virtual.ptx.asynchronous import arrive_once
from gpu_utils.virtual.ptx.decode import Decoder, PtxOp, family, parse_address
from gpu_utils.virtual.ptx.descriptors import copied_rows
from gpu_utils.virtual.ptx.load_store import address_of
from gpu_utils.virtual.ptx.narrow import expand
from gpu_utils.virtual.ptx.state import PtxState
from gpu_utils.virtual.ptx.syntax import Imm, Instruction
from gpu_utils.virtual.ptx.tcgen05_mma import decode_product
from gpu_utils.virtual.ptx.tensor_memory import fault, named
from gpu_utils.virtual.ptx.tensor_shapes import SHAPES, Shape, from_registers, packed, to_registers, unpacked
from gpu_utils.virtual.ptx.warp import full

U32 = np.uint32
WAITS = ("wait::ld.sync.aligned", "wait::st.sync.aligned", "fence::before_thread_sync", "fence::after_thread_sync")
ALLOC_FORMS = ("tcgen05.alloc.cta_group::1.sync.aligned.b32", "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32")
DEALLOC_FORM = "tcgen05.dealloc.cta_group::1.sync.aligned.b32"
RELINQUISH_FORM = "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned"
COMMIT_FORMS = tuple(
    f"tcgen05.commit.cta_group::1.mbarrier::arrive::one{space}.b64" for space in ("", ".shared::cluster")
)
# shape and multicast of tcgen05.cp -> (lanes that each row goes to, first of them by row; 32-bit columns)
COPIES = {
    "128x256b": ((np.arange(128),), 8),
    "128x128b": ((np.arange(128),), 4),
    "4x256b": (tuple(32 * i + 28 + np.arange(4) for i in range(4)), 8),
    "64x128b.warpx2::02_13": ((np.arange(64), 64 + np.arange(64)), 4),
    "64x128b.warpx2::01_23": (tuple(np.r_[0:32, 64:96] + 32 * i for i in range(2)), 4),
    "32x128b.warpx4": (tuple(32 * i + np.arange(32) for i in range(4)), 4),
}
SOURCES = {"b4x16_p64": 4, "b6x16_p32": 6}


@family("tcgen05")
def _tcgen05(decoder: Decoder, op: PtxOp, instruction: Instruction) -> None:
    if "tcgen05" not in TARGETS[decoder.target].matrix:
        raise ValueError(f"{decoder.target} has no tcgen05")
    parts = instruction.parts
    if "cta_group::2" in parts:
        raise ValueError("cta_group::2 takes a cluster of two blocks, and clusters of one block are executed")
    name = parts[1]
    if name in ("mma", "ld", "st"):
        {"mma": decode_product, "ld": _load, "st": _store}[name](decoder, op, instruction)
    elif name == "cp":
        _copy(decoder, op, instruction)
    elif ".".join(parts[1:]) in WAITS:
        op.kind, op.run = "wait", lambda state: None
    elif instruction.opcode in COMMIT_FORMS:
        _commit(decoder, op, instruction)
    elif instruction.opcode in ALLOC_FORMS:
        _allocate(decoder, op, instruction)
    elif instruction.opcode == DEALLOC_FORM:
        _free(decoder, op, instruction)
    elif instruction.opcode == RELINQUISH_FORM:
        _relinquish(decoder, op, instruction)
    else:
        raise ValueError("not a known form of tcgen05")


def running_warps(state: PtxState, mask: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """(warps of which a lane runs, the first such lane of each)."""
    if mask is None:
        return np.arange(state.waves), np.zeros(state.waves, np.int64)
    waves = np.flatnonzero(mask.any(axis=1))
    return waves, np.argmax(mask[waves], axis=1)


# allocation --------------------------------------------------------------------------------------------------------
def _allocate(decoder: Decoder, op: PtxOp, instruction: Instruction) -> None:
    """tcgen05.alloc [where in shared memory], columns: the address of what was handed out goes there."""
    slot, offset = parse_address(decoder, instruction.operands[0])
    generic = "shared::cta" not in instruction.parts
    decoder.generic |= generic
    count = decoder.read(instruction.operands[1], "u32")
    op.kind, op.communicates = "shared", True
    op.members = decoder.constant(0xFFFFFFFF, "b32")
    pred, negated = decoder.guard(instruction)

    def run(state: PtxState) -> None:
        some, mask = state.active(pred, negated)
        if not some:
            return
        memory, counts = state.tensor_memory(), full(state, count)
        value, one = np.zeros((state.waves, 32), U32), np.zeros((state.waves, 32), bool)
        for wave, lane in zip(*running_warps(state, mask), strict=True):
            value[wave, lane] = memory.allocate(state, op, int(wave), int(counts[wave, lane]))
            one[wave, lane] = True
        where = address_of(state, slot, offset)
        if generic:
            where = where - state.generic_base("shared")
        state.shared.store(state, op, where, [value], 4, one)

    op.run = run


def _free(decoder: Decoder, op: PtxOp, instruction: Instruction) -> None:
    address, count = (decoder.read(operand, "u32") for operand in instruction.operands)
    op.kind = "shared"
    op.members = decoder.constant(0xFFFFFFFF, "b32")
    pred, negated = decoder.guard(instruction)

    def run(state: PtxState) -> None:
        some, mask = state.active(pred, negated)
        if some:
            addresses, counts = full(state, address), full(state, count)
            for wave, lane in zip(*running_warps(state, mask), strict=True):
                place = int(addresses[wave, lane]), int(counts[wave, lane])
                state.tensor_memory().free(state, op, int(wave), *place)

    op.run = run


def _relinquish(decoder: Decoder, op: PtxOp, instruction: Instruction) -> None:
    op.kind = "wait"
    pred, negated = decoder.guard(instruction)

    def run(state: PtxState) -> None:
        some, mask = state.active(pred, negated)
        if some:
            waves, _ = running_warps(state, mask)
            state.tensor_memory().closed[state.block_of_wave[waves]] = True

    op.run = run


# registers ---------------------------------------------------------------------------------------------------------
def _shape_of(instruction: Instruction, change: str) -> tuple[Shape, str, int, bool]:
    """(shape, its name, repeats, whether two columns share a register) of a load or store."""
    name, number, *rest = instruction.parts[4:]
    shape = SHAPES.get(name)
    repeats = int(number[1:]) if number[:1] == "x" and number[1:].isdigit() else 0
    if shape is None or instruction.parts[2:4] != ["sync", "aligned"] or rest not in (["b32"], [change, "b32"]):
        raise ValueError("not a known form of tcgen05.ld and tcgen05.st")
    if repeats not in (1, 2, 4, 8, 16, 32, 64, 128) or repeats > shape.most:
        raise ValueError("no such number of repeats")
    return shape, name, repeats, len(rest) == 2


def _second_half(operands: list, name: str) -> int:
    """Columns from the first half's address to the second's; takes the operand away."""
    if name != "16x32bx2":
        return 0
    found = next((item for item in operands if isinstance(item, Imm)), None)
    if found is None:
        raise ValueError("immHalfSplitoff must be a number")
    operands.remove(found)
    return int(found.value)


def _halves(state, op, slot, offset, mask, shape: Shape, split: int) -> Iterator[tuple[np.ndarray, np.ndarray, list]]:
    """(warps, lanes, columns where each half begins) of warps that have one address."""
    waves, first = running_warps(state, mask)
    addresses = address_of(state, slot, offset)[waves]
    own = addresses[np.arange(len(waves)), first]
    differing = addresses != own[:, None] if mask is None else (addresses != own[:, None]) & mask[waves]
    if differing.any():
        fault(state, op, int(waves[np.argmax(differing.any(axis=1))]), "names different addresses of tensor memory in "
              "different lanes: all lanes of a warp must give the same")  # fmt: skip
    quarter = (state.wave_in_block[waves] % 4) * 32
    lane = own >> 16
    inside = (lane // 32 * 32 == quarter) | (lane < 32)
    inside &= lane % shape.rows == 0
    if not inside.all():
        bad = int(np.argmin(inside))
        first_lane = int(quarter[bad])
        rows = f"from lane {first_lane}" + (f" or {first_lane + 16}" if shape.rows == 16 else "")
        fault(state, op, int(waves[bad]), f"reaches for tensor memory at {named(int(own[bad]))}: a warp has the "
              f"quarter of the lanes that its number modulo 4 "
              f"names, and this access takes {shape.rows} {rows} on")  # fmt: skip
    keys = quarter + lane % 32 | (own & 0xFFFF) << 16
    for key in np.unique(keys):
        column = int(key) >> 16
        lanes = (int(key) & 0xFFFF) + np.arange(shape.rows)
        yield waves[keys == key], lanes, [column, column + split] if split else [column]


def _columns(shape: Shape, repeats: int, registers: int, split: int) -> int:
    """The columns that a load or store moves. Raises ValueError where its registers are another number."""
    columns = repeats * shape.columns
    if registers * 32 != columns * shape.rows * (2 if split else 1):
        raise ValueError(f"{registers} registers for {columns} columns")
    return columns


def _load(decoder: Decoder, op: PtxOp, instruction: Instruction) -> None:
    shape, name, repeats, pack = _shape_of(instruction, "pack::16b")
    operands = list(instruction.operands)
    split = _second_half(operands, name)
    registers, address = operands
    outs = [decoder.result(item) for item in getattr(registers, "items", (registers,))]
    columns = _columns(shape, repeats, len(outs), split)
    slot, offset = parse_address(decoder, address)
    op.kind, op.members = "shared", decoder.constant(0xFFFFFFFF, "b32")
    pred, negated = decoder.guard(instruction)

    def run(state: PtxState) -> None:
        some, mask = state.active(pred, negated)
        if not some:
            return
        memory, count = state.tensor_memory(), columns * (2 if pack else 1)
        for waves, lanes, starts in _halves(state, op, slot, offset, mask, shape, split):
            halves = [memory.moved(state, op, waves, lanes, start, count) for start in starts]
            block = np.concatenate(halves, axis=1) if split else halves[0]
            values = to_registers(shape, packed(block) if pack else block)
            if len(waves) == state.waves:
                for out, value in zip(outs, values, strict=True):
                    state.put(out, value, mask)
                continue
            these = None if mask is None else mask[waves]
            for out, value in zip(outs, values, strict=True):
                row = state.r[out]
                row[waves] = value if these is None else np.where(these, value, row[waves])

    op.run = run


def _store(decoder: Decoder, op: PtxOp, instruction: Instruction) -> None:
    shape, name, repeats, unpack = _shape_of(instruction, "unpack::16b")
    operands = list(instruction.operands)
    split = _second_half(operands, name)
    address, registers = operands
    slots = [decoder.read(item, "b32") for item in getattr(registers, "items", (registers,))]
    _columns(shape, repeats, len(slots), split)
    slot, offset = parse_address(decoder, address)
    op.kind, op.members = "shared", decoder.constant(0xFFFFFFFF, "b32")
    pred, negated = decoder.guard(instruction)

    def run(state: PtxState) -> None:
        some, mask = state.active(pred, negated)
        if not some:
            return
        memory = state.tensor_memory()
        for waves, lanes, starts in _halves(state, op, slot, offset, mask, shape, split):
            values = np.empty((len(slots), len(waves), 32), U32)
            for i, source in enumerate(slots):
                values[i] = full(state, source)[waves]
            block = from_registers(shape, values)
            block = unpacked(block) if unpack else block
            for i, start in enumerate(starts):
                part = block[:, 16 * i : 16 * i + 16] if split else block
                memory.store(state, op, waves, lanes, start, part)

    op.run = run


# shared memory -----------------------------------------------------------------------------------------------------
def _copy(decoder: Decoder, op: PtxOp, instruction: Instruction) -> None:
    """tcgen05.cp.cta_group.shape{.multicast}{.b8x16.source} [to tensor memory], descriptor."""
    parts = instruction.parts[3:]
    bits = 0
    if len(parts) > 2 and parts[-2] == "b8x16" and parts[-1] in SOURCES:
        bits = SOURCES[parts[-1]]
        parts = parts[:-2]
    if parts[0].startswith("warpx"):  # as Triton writes it; ptxas takes both orders
        parts = [*parts[1:2], parts[0], *parts[2:]]
    if instruction.parts[2] != "cta_group::1" or ".".join(parts) not in COPIES:
        raise ValueError("not a known form of tcgen05.cp")
    targets, columns = COPIES[".".join(parts)]
    rows = len(targets[0])
    address, descriptor = instruction.operands
    slot, offset = parse_address(decoder, address)
    source = decoder.raw(descriptor)
    op.kind = "shared"
    pred, negated = decoder.guard(instruction)

    def run(state: PtxState) -> None:
        some, mask = state.active(pred, negated)
        if not some:
            return
        addresses, descriptors = address_of(state, slot, offset), full(state, source)
        for wave, lane in np.argwhere(np.ones(addresses.shape, bool) if mask is None else mask):
            waves, place = np.array([wave]), int(addresses[wave, lane])
            raw = copied_rows(state, op, int(descriptors[wave, lane]), waves, rows, columns * 4, bits)
            words = (expand(raw, bits) if bits else raw).view(U32)
            for lanes in targets:
                state.tensor_memory().store(state, op, waves, lanes + (place >> 16), place & 0xFFFF, words)

    op.run = run


def _commit(decoder: Decoder, op: PtxOp, instruction: Instruction) -> None:
    """tcgen05.commit [mbarrier]: one arrival when what the thread has issued is done: at once."""
    slot, offset = parse_address(decoder, instruction.operands[0])
    op.kind = "barrier"
    if "shared::cluster" not in instruction.parts:
        raise ValueError("an mbarrier by its generic address")
    arrive_once(op, slot, offset, *decoder.guard(instruction))
