"""Matrix products of a warp with loads and stores of their own, behind CUDA's mma.h: wmma.load, .mma and .store.

The PTX manual leaves open which lane holds which element. Here the fragments are those of `mma.sync`, as in
`matrix.py`: with lane = 4 * group + quad, a 32-bit register of A holds 4 bytes of row `group` of a block of 8 rows, one
of B the same of a column. Float16 fragments of A and B have 8 registers in every shape; those that the matrix does not
need are copies. Precision is that of `mma`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from gpu_utils.virtual.ptx.decode import Decoder, PtxOp, family, parse_address
from gpu_utils.virtual.ptx.load_store import address_of, load, parts_of
from gpu_utils.virtual.ptx.matrix import clamp_or_wrap, to_f32
from gpu_utils.virtual.ptx.state import PtxState
from gpu_utils.virtual.ptx.syntax import Instruction
from gpu_utils.virtual.ptx.warp import full

F16, F32, U32, U64 = np.float16, np.float32, np.uint32, np.uint64
GROUP, QUAD = np.arange(32) // 4, np.arange(32) % 4
BITS = {"f16": 16, "bf16": 16, "tf32": 32, "f32": 32, "s32": 32, "f64": 64, "s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1}
_WIDE = ("m16n16k16", "m32n8k16", "m8n32k16")
# type of A and B -> shapes (PTX manual, wmma.mma; the types of mma.h)
SHAPES = {
    **dict.fromkeys(("f16", "bf16", "s8", "u8"), _WIDE),
    "tf32": ("m16n16k8",),
    "f64": ("m8n8k4",),
    **dict.fromkeys(("s4", "u4"), ("m8n8k32",)),
    "b1": ("m8n8k128",),
}
_ACCUMULATORS = {"f16": ("f16", "f32"), "bf16": ("f32",), "tf32": ("f32",), "f64": ("f64",)}


class Piece(NamedTuple):
    """A register's part of a matrix: rows and columns of its first element in each lane, and how many follow."""

    row: np.ndarray
    column: np.ndarray
    elements: int


def _sizes(shape: str) -> tuple[int, int, int]:
    m, n, k = map(int, re.findall(r"\d+", shape))
    return m, n, k


def multiplicand(rows: int, k: int, kind: str) -> list[Piece]:
    """The registers of A, or of B as its columns: elements of one row side by side, K along the columns."""
    bits = BITS[kind]
    if bits == 64:
        return [Piece(GROUP, QUAD, 1)]
    groups, each = k * bits // 128, 32 // bits  # 16 bytes of K for the four lanes of a row
    places = [(8 * block, 4 * each * group) for block in range(rows // 8) for group in range(groups)]
    if rows % 16 == 0:  # as mma has them: two blocks of rows, then the next 16 bytes of both
        places.sort(key=lambda place: (place[0] // 16, place[1], place[0]))
    return [Piece(row + GROUP, column + each * QUAD, each) for row, column in places]


def columns_of(n: int, k: int, kind: str) -> list[Piece]:
    """The registers of B: block by block of 8 columns."""
    return [piece for block in range(n // 8) for piece in _moved(multiplicand(8, k, kind), 8 * block)]


def _moved(pieces: list[Piece], rows: int) -> list[Piece]:
    return [piece._replace(row=piece.row + rows) for piece in pieces]


def accumulator(m: int, n: int) -> list[Piece]:
    """Pairs of neighbours in a row of C and D."""
    tall = 16 if m >= 16 else 8
    return [
        Piece(GROUP + row + up, 2 * QUAD + column, 2)
        for row in range(0, m, tall)
        for column in range(0, n, 8)
        for up in range(0, tall, 8)
    ]


def pieces_of(matrix: str, shape: str, kind: str) -> list[Piece]:
    m, n, k = _sizes(shape)
    if matrix == "a":
        return multiplicand(m, k, kind)
    return columns_of(n, k, kind) if matrix == "b" else accumulator(m, n)


def registers_of(matrix: str, shape: str, kind: str) -> int:
    """How many registers a fragment has."""
    if matrix in "ab":
        return 8 if kind == "f16" else len(pieces_of(matrix, shape, kind))
    return len(pieces_of(matrix, shape, kind)) * (1 if kind == "f16" else 2)


@family("wmma")
def _wmma(decoder: Decoder, op: PtxOp, instruction: Instruction) -> None:
    op.members = decoder.constant(0xFFFFFFFF, "b32")
    {"load": _load, "store": _store, "mma": _mma}[instruction.parts[1]](decoder, op, instruction)


# Memory


class _Access(NamedTuple):
    slots: list[int]
    step: Callable[[PtxState], np.ndarray]
    where: Callable[[PtxState], np.ndarray]
    space: str
    turned: bool
    pieces: list[Piece]
    bits: int


def _access(
    decoder: Decoder, op: PtxOp, instruction: Instruction, registers, rest: tuple, matrix: str, place
) -> _Access:
    """wmma.load.a.sync.aligned.row.m16n16k16{.space}.type registers, [address]{, stride}."""
    parts = instruction.parts[3:]
    if parts[:2] != ["sync", "aligned"] or len(parts) not in (5, 6):
        raise ValueError("not a known form of wmma")
    layout, shape, kind = parts[2], parts[3], parts[-1]
    space = parts[4].split("::")[0] if len(parts) == 6 else ""
    kinds = ("f16", "f32", "s32", "f64") if matrix in "cd" else tuple(SHAPES)
    shapes = [s for group in SHAPES.values() for s in group] if matrix in "cd" else SHAPES.get(kind, ())
    if (
        kind not in kinds
        or shape not in shapes
        or layout not in ("row", "col")
        or space not in ("", "global", "shared")
    ):
        raise ValueError("not a known form of wmma")
    items = getattr(registers, "items", (registers,))
    if len(items) != registers_of(matrix, shape, kind):
        raise ValueError(f"{len(items)} registers for a fragment of {registers_of(matrix, shape, kind)}")
    turned = layout == ("row" if matrix == "b" else "col")  # neighbours of a register are not neighbours in memory
    m, n, k = _sizes(shape)
    rows, columns = {"a": (m, k), "b": (n, k)}.get(matrix, (m, n))
    slot, offset = parse_address(decoder, rest[0])
    stride = decoder.read(rest[1], "u32") if len(rest) > 1 else decoder.constant(rows if turned else columns, "u32")
    decoder.generic |= space == ""
    op.kind = "shared" if space == "shared" else "global"
    return _Access(
        [place(item) for item in items],
        lambda state: full(state, stride).astype(np.int64),
        lambda state: address_of(state, slot, offset),
        space,
        turned,
        pieces_of(matrix, shape, kind),
        BITS[kind],
    )


def _address(access: _Access, piece: Piece, element: int, base: np.ndarray, step: np.ndarray) -> np.ndarray:
    """Byte addresses of an element of a piece in each lane."""
    row, column = piece.row, piece.column + element
    index = column * step + row if access.turned else row * step + column
    return base + index * access.bits // 8


def _load(decoder: Decoder, op: PtxOp, instruction: Instruction) -> None:
    registers, *rest = instruction.operands
    access = _access(decoder, op, instruction, registers, tuple(rest), instruction.parts[2], decoder.result)
    packed = len(access.slots) == len(access.pieces) or access.bits == 16
    pred, negated = decoder.guard(instruction)

    def run(state: PtxState) -> None:
        some, mask = state.active(pred, negated)
        if not some:
            return
        base, step = access.where(state), access.step(state)
        rows: list[np.ndarray] = []
        for piece in access.pieces:
            words = _read(state, op, access, piece, base, step, mask)
            rows += [_pack(words, access.bits)] if packed and len(words) > 1 else words
        for i, out in enumerate(access.slots):
            state.put(out, rows[i % len(rows)], mask)

    op.run = run


def _read(state: PtxState, op: PtxOp, access: _Access, piece: Piece, base, step, mask) -> list[np.ndarray]:
    """A piece's elements, or 32 bits of them in one word where they lie side by side and share a register."""
    size = access.bits // 8
    if not access.turned:
        if piece.elements * access.bits == 32:
            return load(state, op, access.space, _address(access, piece, 0, base, step), 4, 1, mask)
        return load(state, op, access.space, _address(access, piece, 0, base, step), size, piece.elements, mask)
    elements = range(piece.elements)
    return [load(state, op, access.space, _address(access, piece, i, base, step), size, 1, mask)[0] for i in elements]


def _pack(words: list[np.ndarray], bits: int) -> np.ndarray:
    packed = words[0].astype(U32)
    for i, word in enumerate(words[1:], start=1):
        packed |= word.astype(U32) << U32(bits * i)
    return packed


def _store(decoder: Decoder, op: PtxOp, instruction: Instruction) -> None:
    address, registers, *rest = instruction.operands
    access = _access(decoder, op, instruction, registers, (address, *rest), instruction.parts[2], decoder.raw)
    pred, negated = decoder.guard(instruction)
    size = access.bits // 8

    def elements(state: PtxState, number: int) -> list[np.ndarray]:
        if size == 2:
            word = full(state, access.slots[number])
            return [np.ascontiguousarray(word.view(np.uint16)[..., i::2]) for i in range(2)]
        return [full(state, slot) for slot in access.slots[2 * number : 2 * number + 2]]

    def run(state: PtxState) -> None:
        some, mask = state.active(pred, negated)
        if not some:
            return
        base, step = access.where(state), access.step(state)
        for number, piece in enumerate(access.pieces):
            values = elements(state, number)
            if not access.turned:
                _write(state, op, access.space, _address(access, piece, 0, base, step), values, size, mask)
                continue
            for i, value in enumerate(values):
                _write(state, op, access.space, _address(access, piece, i, base, step), [value], size, mask)

    op.run = run


def _write(state: PtxState, op: PtxOp, space: str, where: np.ndarray, values: list, size: int, mask) -> None:
    for memory, address, part in parts_of(state, space, where, mask):
        memory.store(state, op, address, values, size, part)


# The product


def _mma(decoder: Decoder, op: PtxOp, instruction: Instruction) -> None:
    """wmma.mma{.xor.popc}.sync.aligned.row.col.shape{.rn}.d{.a.b}.c{.satfinite}: all registers of A, B and C to D."""
    parts = [part for part in instruction.parts[2:] if part not in ("sync", "aligned", "rn")]
    saturate = parts[-1] == "satfinite"
    if saturate:
        parts.pop()
    bitwise = parts[:2] if parts[1] == "popc" else []
    *layouts, shape = parts[len(bitwise) : len(bitwise) + 3]
    kinds = parts[len(bitwise) + 3 :]
    if len(kinds) == 2:  # float16: the types of D and C only
        kinds = [kinds[0], "f16", "f16", kinds[1]]
    d_kind, a_kind, b_kind, c_kind = kinds
    allowed = _ACCUMULATORS.get(a_kind, ("s32",))
    if shape not in SHAPES[a_kind] or d_kind not in allowed or c_kind not in allowed or a_kind[1:] != b_kind[1:]:
        raise ValueError("not a known form of wmma")
    if (
        not set(layouts) <= {"row", "col"}
        or bool(bitwise) != (a_kind == "b1")
        or (bitwise and bitwise[0] not in _BITWISE)
    ):
        raise ValueError("not a known form of wmma")
    m, n, k = _sizes(shape)
    op.kind, op.flops = "matrix", 2 * m * n * k
    d, a, b, c = (getattr(operand, "items", (operand,)) for operand in instruction.operands)
    for items, matrix, kind in ((d, "d", d_kind), (a, "a", a_kind), (b, "b", b_kind), (c, "c", c_kind)):
        if len(items) != registers_of(matrix, shape, kind):
            raise ValueError(f"{len(items)} registers for a fragment of {registers_of(matrix, shape, kind)}")
    outs = [decoder.result(item) for item in d]
    left = _numbers(decoder, a, multiplicand(m, k, a_kind), (m, k), a_kind)
    right = _numbers(decoder, b, columns_of(n, k, b_kind), (n, k), b_kind)
    c_slots = [decoder.raw(item) for item in c]
    product = _BITWISE[bitwise[0]] if bitwise else lambda x, y: np.matmul(x, y.transpose(0, 2, 1))
    pieces = accumulator(m, n)
    pred, negated = decoder.guard(instruction)

    def run(state: PtxState) -> None:
        some, mask = state.active(pred, negated)
        if not some:
            return
        total = product(left(state), right(state))
        carried = [_values(full(state, slot), c_kind) for slot in c_slots]
        flat = [value for pair in carried for value in pair]
        results = []
        for i, piece in enumerate(pieces):
            for j in range(2):
                value = total[:, piece.row, piece.column + j]
                if d_kind == "s32":
                    value = clamp_or_wrap(value.astype(np.int64) + flat[2 * i + j], saturate)
                else:
                    value = value + flat[2 * i + j]
                results.append(value)
        for out, word in zip(outs, _words(results, d_kind), strict=True):
            state.put(out, word, mask)

    op.run = run


def _values(word: np.ndarray, kind: str) -> list[np.ndarray]:
    """The numbers in a register of C."""
    if kind == "f16":
        halves = np.ascontiguousarray(word).view(F16).astype(F32)
        return [halves[..., 0::2], halves[..., 1::2]]
    return [np.ascontiguousarray(word).view({"f32": F32, "s32": np.int32, "f64": np.float64}[kind])]


def _words(values: list[np.ndarray], kind: str) -> list[np.ndarray]:
    """Numbers of D, in order, as registers."""
    if kind == "f16":
        halves = [np.ascontiguousarray(value.astype(F16)).view(np.uint16) for value in values]
        return [_pack(halves[i : i + 2], 16) for i in range(0, len(halves), 2)]
    return [np.ascontiguousarray(value).view(U64 if kind == "f64" else U32) for value in values]


def _numbers(
    decoder: Decoder, items: tuple, pieces: list[Piece], shape: tuple[int, int], kind: str
) -> Callable[[PtxState], np.ndarray]:
    """A, or B turned, as numbers (warps, rows, K); of one bit as bytes of 0 and 1."""
    slots = [decoder.raw(item) for item in items]
    key = decoder.fragment(items, f"wmma {kind} {shape}")
    dtype = np.float64 if kind == "f64" else bool if kind == "b1" else F32

    def build(state: PtxState) -> np.ndarray:
        matrix = np.empty((state.waves, *shape), dtype)
        for slot, piece in zip(slots, pieces, strict=False):  # the copies of a float16 fragment stay unread
            values = _elements(np.ascontiguousarray(full(state, slot)), kind)
            matrix[:, piece.row[:, None], piece.column[:, None] + np.arange(piece.elements)] = values
        return matrix

    return lambda state: state.fragment(*key, lambda: build(state))


def _elements(word: np.ndarray, kind: str) -> np.ndarray:
    """(warps, 32, elements) of one register."""
    bits = BITS[kind]
    if kind == "f64":
        return word.view(np.float64)[..., None]
    if bits >= 8:
        return to_f32(word.view(f"u{bits // 8}"), kind).reshape(*word.shape, -1)
    digits = (word[..., None] >> (np.arange(32 // bits, dtype=U32) * U32(bits))) & U32((1 << bits) - 1)
    return np.where(digits >= 8, digits.astype(F32) - 16, digits) if kind == "s4" else digits


def _counted(join: Callable) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    return lambda x, y: np.count_nonzero(join(x[:, :, None], y[:, None]), axis=3)


_BITWISE = {"xor": _counted(np.logical_xor), "and": _counted(np.logical_and)}
