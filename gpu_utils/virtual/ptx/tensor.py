"""Tensor maps and the copies that use them (TMA), sm_90: boxes of a tensor between global and shared memory.

The 128 bytes of a tensor map are opaque in PTX; this is the layout that the virtual GPU gives them:

  0 u64 address   16 u32[5] sizes   36 u32[5] box   56 u32[5] element strides   80 u64[4] byte strides from dimension 1
  8 u32 rank - 1  76 u8 interleave  77 u8 swizzle   78 u8 fill                  79 u8 element type

Dimension 0 is the fastest. Elements outside the tensor read as zero (as NaN in fill mode 1) and are not written.
"""

from __future__ import annotations

import numpy as np

from gpu_utils.errors import OutOfBounds, UnsupportedInstruction
from gpu_utils.virtual.global_memory import count_access
from gpu_utils.virtual.machine import source_of
from gpu_utils.virtual.ptx.asynchronous import HANDLERS, ledger_of, settle, unpack
from gpu_utils.virtual.ptx.decode import Decoder, PtxOp, family, parse_address
from gpu_utils.virtual.ptx.forms import BYTES
from gpu_utils.virtual.ptx.load_store import ATOMICS as _OF_MEMORY
from gpu_utils.virtual.ptx.load_store import address_of
from gpu_utils.virtual.ptx.state import PtxState
from gpu_utils.virtual.ptx.syntax import Imm, Instruction
from gpu_utils.virtual.ptx.warp import full
from gpu_utils.virtual.ptx.wgmma import swizzle
from gpu_utils.virtual.words import ORIGIN, WORDS

MAP_BYTES = 128
# field -> (offset, bytes, step per ordinal)
FIELDS = {
    "global_address": (0, 8, 0),
    "rank": (8, 4, 0),
    "global_dim": (16, 4, 4),
    "box_dim": (36, 4, 4),
    "element_stride": (56, 4, 4),
    "interleave_layout": (76, 1, 0),
    "swizzle_mode": (77, 1, 0),
    "fill_mode": (78, 1, 0),
    "elemtype": (79, 1, 0),
    "global_stride": (80, 8, 8),
}
# codes of elemtype, PTX manual; 8 is f32.ftz, 11 tf32, 12 tf32.ftz
ELEMENTS = ("u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f32", "f64", "bf16", "f32", "f32")
ELEMENT_BYTES = tuple(BYTES[kind] for kind in ELEMENTS)
REDUCTIONS = ("add", "min", "max", "inc", "dec", "and", "or", "xor")
# the atomics of load_store.py, and those that only bulk copies have
ATOMICS = {
    **_OF_MEMORY,
    ("min", "f16"): "fmin",
    ("max", "f16"): "fmax",
    **{(op, t): op for op in ("and", "or", "xor") for t in ("u32", "s32", "u64", "s64")},
}
TF32 = 11
SWIZZLE_BYTES = (0, 32, 64, 128)


def encode(
    address: int, sizes: list[int], strides: list[int], box: list[int], element: int, swizzle_mode: int, fill: int = 0
) -> np.ndarray:
    """A tensor map, uint8 (128,). Lists go from the fastest dimension; strides are in bytes, without dimension 0's."""
    raw = np.zeros(MAP_BYTES, np.uint8)
    raw[0:8].view(np.uint64)[:] = address
    raw[8:12].view(np.uint32)[:] = len(sizes) - 1
    raw[16:36].view(np.uint32)[: len(sizes)] = sizes
    raw[36:56].view(np.uint32)[: len(sizes)] = box
    raw[56:76].view(np.uint32)[: len(sizes)] = 1
    raw[77], raw[78], raw[79] = swizzle_mode, fill, element
    raw[80:112].view(np.uint64)[: len(strides)] = strides
    return raw


@family("tensormap")
def _tensor_map(decoder: Decoder, op: PtxOp, instruction: Instruction) -> None:
    parts = instruction.parts
    if parts[1] == "replace" and parts[2] == "tile" and parts[3] in FIELDS:
        _replace(decoder, op, instruction)
    elif parts[1] == "cp_fenceproxy":
        _publish(decoder, op, instruction)
    else:
        raise ValueError("not a known form of tensormap")


def _replace(decoder: Decoder, op: PtxOp, instruction: Instruction) -> None:
    """tensormap.replace.tile.field{.space}.b1024.type [map], {ordinal,} value."""
    start, size, step = FIELDS[instruction.parts[3]]
    shared = instruction.parts[4].startswith("shared")
    address, *values = instruction.operands
    if step:
        ordinal = values.pop(0)
        if not isinstance(ordinal, Imm):
            raise ValueError("an ordinal that is no literal")
        start += step * int(ordinal.value)
    slot, offset = parse_address(decoder, address)
    source = decoder.read(values[0], f"b{8 * max(size, 4)}")
    pred, negated = decoder.guard(instruction)
    op.kind = "shared" if shared else "global"

    def run(state: PtxState) -> None:
        some, mask = state.active(pred, negated)
        if some:
            where = address_of(state, slot, offset + start)
            value = full(state, source).astype(f"u{size}")
            memory = state.shared if shared else state.memory
            memory.store(state, op, where, [value], size, mask)

    op.run = run


def _publish(decoder: Decoder, op: PtxOp, instruction: Instruction) -> None:
    """tensormap.cp_fenceproxy [to global], [from shared], 128: the whole warp copies one map."""
    target, source, _ = instruction.operands
    to, to_offset = parse_address(decoder, target)
    base, offset = parse_address(decoder, source)
    op.members = decoder.constant(0xFFFFFFFF, "b32")
    pred, negated = decoder.guard(instruction)
    op.kind = "global"
    step = 4 * np.arange(32)

    def run(state: PtxState) -> None:
        some, mask = state.active(pred, negated)
        if some:
            words = state.shared.load(state, op, address_of(state, base, offset) + step, 4, 1, mask)
            target = address_of(state, to, to_offset)
            state.memory.store(state, op, target + step, words, 4, mask)
            if state.watch is not None:
                state.watch.map_made(state, op, target, mask)

    op.run = run


class Box:
    """Where the bytes of one box are: `address` (rows, row bytes / 16 or per element), for one map and one corner."""

    way = "through a tensor map"

    def __init__(self, raw: np.ndarray, corner: list[int], shared: int) -> None:
        rank = int(raw[8:12].view(np.uint32)[0]) + 1
        size = ELEMENT_BYTES[int(raw[79])]
        dims = raw[16:36].view(np.uint32)[:rank].astype(np.int64)
        box = raw[36:56].view(np.uint32)[:rank].astype(np.int64)
        strides = np.concatenate([[size], raw[80:112].view(np.uint64)[: rank - 1].astype(np.int64)])
        self.outside = (1 << (8 * size - 1)) - 1 if raw[78] else 0
        self.bytes = int(np.prod(box)) * size
        self.size = size
        address, inside = np.int64(raw[0:8].view(np.uint64)[0]), np.ones((), bool)
        for axis in range(rank - 1, -1, -1):  # the slowest dimension first, so that the flat order is that of the box
            place = corner[axis] + np.arange(box[axis])
            address = np.asarray(address)[..., None] + place * strides[axis]
            inside = inside[..., None] & (place >= 0) & (place < dims[axis])
        self.address, self.inside = address.ravel(), inside.ravel()
        flat = shared + np.arange(len(self.address)) * size
        self.shared = swizzle(flat, SWIZZLE_BYTES[int(raw[77])])


def _read_map(state: PtxState, op: PtxOp, address: int, wave: int, lane: int) -> np.ndarray:
    if state.memory.holds(address, MAP_BYTES):
        if state.watch is not None:
            state.watch.map_used(state, op, address, wave, lane)
        return memory_bytes(address, MAP_BYTES).copy()
    if address >= 0 and address + MAP_BYTES <= len(state.params):  # a map that came as a kernel parameter
        return state.params[address : address + MAP_BYTES].copy()
    raise OutOfBounds(
        f"kernel {state.program.name}{source_of(op)}: {state.where(wave, lane)} uses a tensor map "
        f"{state.memory.describe(address, MAP_BYTES, 'is it a tensor map?')}"
    )


def memory_bytes(address: int, size: int) -> np.ndarray:
    """A view of bytes of this process that have been checked to belong to a region."""
    return WORDS[1][address - ORIGIN : address - ORIGIN + size]


def _bulk(decoder: Decoder, op: PtxOp, instruction: Instruction) -> None:
    """cp.async.bulk.tensor in tile mode, both ways."""
    parts = instruction.parts
    if parts[3] != "tensor":
        _line(decoder, op, instruction)
        return
    loads = parts[5].startswith("shared") and parts[6] == "global"
    if not loads and not (parts[5] == "global" and parts[6].startswith("shared")):
        raise ValueError("not a known direction")
    known = ("shared", "global", "mbarrier", "bulk_group", "complete_tx", "bytes", "tile", "L2")
    if any(p.split("::")[0] not in known for p in parts[5:]):
        raise ValueError("only tile mode is executed")
    operands = instruction.operands
    tensor, local = (operands[1], operands[0]) if loads else (operands[0], operands[1])
    corners = [decoder.read(item, "s32") for item in tensor.coords.items]
    map_slot, map_offset = parse_address(decoder, tensor)
    slot, offset = parse_address(decoder, local)
    barrier = parse_address(decoder, operands[2]) if loads else None
    pred, negated = decoder.guard(instruction)
    op.kind = "global"

    def run(state: PtxState) -> None:
        some, mask = state.active(pred, negated)
        if not some:
            return
        maps, places = address_of(state, map_slot, map_offset), address_of(state, slot, offset)
        corner_rows = [full(state, each) for each in corners]
        waiting = None if barrier is None else address_of(state, *barrier)
        for wave, lane in np.argwhere(np.ones(maps.shape, bool) if mask is None else mask):
            raw = _read_map(state, op, int(maps[wave, lane]), wave, lane)
            box = Box(raw, [int(row[wave, lane]) for row in corner_rows], int(places[wave, lane]))
            _move(state, op, box, wave, lane, waiting)

    op.run = run


def _move(state: PtxState, op: PtxOp, box: Box | Line, wave: int, lane: int, waiting: np.ndarray | None) -> None:
    """Copy into shared memory, where the bytes count at an mbarrier `waiting`, or out of it."""
    if waiting is not None:
        if box.bytes:
            _load_box(state, op, box, wave, lane)
        _complete(state, op, int(waiting[wave, lane]), wave, lane, box.bytes)
    elif box.bytes:
        address, words, inside = _flattened(state, op, box, wave, lane)
        state.memory.store(state, op, address, [words], box.size, inside)


class Line:
    """Where the bytes of a plain bulk copy are: a Box of one row."""

    outside, size, way = 0, 8, "by a bulk copy"

    def __init__(self, address: int, count: int, shared: int) -> None:
        steps = 8 * np.arange(count // 8)
        self.bytes = count
        self.address, self.shared = address + steps, shared + steps
        self.inside = np.ones(len(steps), bool)


_LINES = (["global", "mbarrier", "complete_tx", "bytes"], ["bulk_group"])
"""What follows the first space of cp.async.bulk, into shared memory and (behind "shared") out of it."""


def _line(decoder: Decoder, op: PtxOp, instruction: Instruction) -> None:
    """cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [to], [from], bytes, [mbarrier]; and the way
    back, cp.async.bulk.global.shared::cta.bulk_group [to], [from], bytes."""
    words = [word for part in instruction.parts[3:] for word in part.split("::") if word not in ("cta", "cluster")]
    words = [word for word in words if word not in ("L2", "cache_hint")]
    loads = words == ["shared", *_LINES[0]]
    if not loads and words != ["global", "shared", *_LINES[1]]:
        raise ValueError("not a known form of cp.async.bulk")
    to, source, count, *rest = instruction.operands
    slot, offset = parse_address(decoder, to if loads else source)
    far, far_offset = parse_address(decoder, source if loads else to)
    size = decoder.read(count, "u32")
    barrier = parse_address(decoder, rest[0]) if loads else None
    pred, negated = decoder.guard(instruction)
    op.kind = "global"

    def run(state: PtxState) -> None:
        some, mask = state.active(pred, negated)
        if not some:
            return
        places, addresses, counts = (
            address_of(state, slot, offset),
            address_of(state, far, far_offset),
            full(state, size),
        )
        waiting = None if barrier is None else address_of(state, *barrier)
        for wave, lane in np.argwhere(np.ones(places.shape, bool) if mask is None else mask):
            place, address, count = (int(row[wave, lane]) for row in (places, addresses, counts))
            if (place | address | count) % 16:
                raise OutOfBounds(
                    f"kernel {state.program.name}{source_of(op)}: {state.where(wave, lane)} copies {count} "
                    f"bytes between shared memory at {place} and the address {address:#x}; expected multiples of 16 "
                    f"(`{op.text}`)"
                )
            _move(state, op, Line(address, count, place), wave, lane, waiting)

    op.run = run


def _reduce(decoder: Decoder, op: PtxOp, instruction: Instruction) -> None:
    """cp.reduce.async.bulk.tensor.Nd.global.shared::cta.op.bulk_group: an atomic operation on each element of a box."""
    op.in_order = True
    parts = instruction.parts
    name = parts[8]
    if (
        parts[6] != "global"
        or not parts[7].startswith("shared")
        or name not in REDUCTIONS
        or parts[9:] != ["bulk_group"]
    ):
        raise ValueError("only tile mode is executed")
    tensor, local = instruction.operands[:2]
    corners = [decoder.read(item, "s32") for item in tensor.coords.items]
    map_slot, map_offset = parse_address(decoder, tensor)
    slot, offset = parse_address(decoder, local)
    pred, negated = decoder.guard(instruction)
    op.kind = "global"

    def run(state: PtxState) -> None:
        some, mask = state.active(pred, negated)
        if not some:
            return
        maps, places = address_of(state, map_slot, map_offset), address_of(state, slot, offset)
        corner_rows = [full(state, each) for each in corners]
        for wave, lane in np.argwhere(np.ones(maps.shape, bool) if mask is None else mask):
            raw = _read_map(state, op, int(maps[wave, lane]), wave, lane)
            kind = ATOMICS.get((name, ELEMENTS[int(raw[79])]))
            if kind is None:
                raise UnsupportedInstruction(
                    state.program.target, state.program.name, op.text, f"on {ELEMENTS[int(raw[79])]}"
                )
            box = Box(raw, [int(row[wave, lane]) for row in corner_rows], int(places[wave, lane]))
            address, words, inside = _flattened(state, op, box, wave, lane)
            state.memory.atomic(state, op, address, box.size, kind, words, None, inside, False)

    op.run = run


def _check(state: PtxState, op: PtxOp, box: Box | Line, wave: int, lane: int, what: str) -> None:
    used = box.address[box.inside]
    low, high = (int(used.min()), int(used.max()) + box.size) if used.size else (0, 0)
    if used.size and not state.memory.holds(low, high - low):
        bad = high - box.size if state.memory.holds(low, 1) else low
        raise OutOfBounds(
            f"kernel {state.program.name}{source_of(op)}: {state.where(wave, lane)} {what} {box.way} "
            f"{state.memory.describe(bad, box.size, 'is its shape right?')}"
        )
    if int(box.shared.max()) + box.size > state.shared.size or int(box.shared.min()) < 0:
        raise OutOfBounds(
            f"kernel {state.program.name}{source_of(op)}: {state.where(wave, lane)} copies a box that reaches offset "
            f"{int(box.shared.max()) + box.size} of shared memory, which has {state.shared.size} bytes per block"
        )


def _load_box(state: PtxState, op: PtxOp, box: Box | Line, wave: int, lane: int) -> None:
    _check(state, op, box, wave, lane, "reads")
    size = box.size
    values = np.full(len(box.address), box.outside, f"u{size}")
    values[box.inside] = WORDS[size].take((box.address[box.inside] - ORIGIN) // size)
    flat = box.shared + int(state.block_of_wave[wave]) * state.shared.stride
    _touch(state, op, wave, flat, size, "store", "bulk")
    state.shared.words[size][flat // size] = values
    state.shared.written[flat >> 1] = 1
    state.shared.written[(flat + size - 1) >> 1] = 1
    if size > 2:
        for byte in range(2, size, 2):
            state.shared.written[(flat + byte) >> 1] = 1
    _count(state, op, box, wave)


def _flattened(
    state: PtxState, op: PtxOp, box: Box | Line, wave: int, lane: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(addresses, words, mask) of what one lane writes from shared memory, in rows of one per warp."""
    _check(state, op, box, wave, lane, "writes")
    size = box.size
    flat = box.shared + int(state.block_of_wave[wave]) * state.shared.stride
    _touch(state, op, wave, flat, size, "load", "bulk store")
    values = state.shared.words[size].take(flat // size)
    columns = -(-len(values) // 32) * 32
    address = np.zeros((state.waves, columns), np.int64)
    words, mask = np.zeros((state.waves, columns), f"u{size}"), np.zeros((state.waves, columns), bool)
    address[wave, : len(values)], words[wave, : len(values)] = box.address, values
    mask[wave, : len(values)] = box.inside
    return address, words, mask


def _touch(state: PtxState, op: PtxOp, wave: int, flat: np.ndarray, size: int, kind: str, queue: str) -> None:
    """Tell the sanitizers of a box, in its chunks of 16 bytes, which no swizzle takes apart."""
    if state.watch is not None:
        each = max(1, 16 // size)
        state.shared.touch(state, op, np.array([wave]), flat[None, ::each], each * size, kind, queue)


def _count(state: PtxState, op: PtxOp, box: Box | Line, wave: int) -> None:
    inside = box.inside[None]
    if inside.any():
        where = np.where(inside, box.address[None], box.address[box.inside][0])
        count_access(state, op, state.memory.offsets(where), box.size, None if inside.all() else inside, "load", wave)


def _complete(state: PtxState, op: PtxOp, offset: int, wave: int, lane: int, count: int) -> None:
    """The copy's bytes have arrived at the mbarrier."""
    index = (offset + int(state.block_of_wave[wave]) * state.shared.stride) >> 3
    ledger = ledger_of(state)
    if ledger is not None:
        ledger.check(state, op, index, wave, lane)
    phase, pending_bytes, expected, pending = unpack(int(state.shared.words[8][index]))
    after = settle(phase, pending_bytes - count, expected, pending)
    state.shared.words[8][index] = after
    if ledger is not None:
        ledger.copied(state, op, index, wave, lane, after >> 63 != phase)


HANDLERS["bulk"] = _bulk
HANDLERS["reduce"] = _reduce
