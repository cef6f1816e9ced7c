"""Tensor-core instructions of a warp: ldmatrix, stmatrix, movmatrix and mma.sync.

Fragment layouts follow the PTX manual. With lane = 4 * group + quad, a 32-bit register of A holds 4 bytes of one
row: rows group and group + 8, columns (in bytes) 4 * quad and 16 + 4 * quad; a register of B the same of one column
`group`; the accumulator has columns 2 * quad and 2 * quad + 1 of rows group and group + 8.

Products are exact and are summed in float32 (float64 for f64), in the order of a matrix product of NumPy; the
accumulator is added last. A result thus differs from the exact one by at most K + 1 roundings of float32 at the
size of the largest partial sum: |error| <= (K + 1) * 2**-23 * sum(|a * b|) + 2**-23 * |c|. Hardware keeps fewer bits
and another order, so it is not matched bit for bit. Integer results are exact, wrapped or clamped (.satfinite).
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from gpu_utils.virtual.halves import half_to_f32
from gpu_utils.virtual.ptx import rounding as rnd
from gpu_utils.virtual.ptx.cvt import FP8
from gpu_utils.virtual.ptx.decode import Decoder, PtxOp, family, parse_address
from gpu_utils.virtual.ptx.state import PtxState
from gpu_utils.virtual.ptx.syntax import Instruction
from gpu_utils.virtual.ptx.warp import full

F16, F32, F64, U16, U32 = np.float16, np.float32, np.float64, np.uint16, np.uint32
_FP8_F32 = {kind: table.astype(F32) for kind, table in FP8.items()}
HANDLERS: dict[str, Callable[[Decoder, PtxOp, Instruction], None]] = {}  # filled by block_scaled.py
SIGN = {"s8": "i1", "u8": "u1"}
LDMATRIX_FORMS = tuple(f"ldmatrix.sync.aligned.m8n8.x{n}{t}.shared.b16" for n in (1, 2, 4) for t in ("", ".trans"))
MATRICES = {"x1": 1, "x2": 2, "x4": 4}
STMATRIX_FORMS = tuple("st" + form[2:] for form in LDMATRIX_FORMS)

# type of A and B -> (bytes per element, K of the full shape: 32 bytes of a row)
MULTIPLICANDS = {"f16": 2, "bf16": 2, "tf32": 4, "s8": 1, "u8": 1, "e4m3": 1, "e5m2": 1}
MMA_FORMS = (
    *(f"mma.sync.aligned.m16n8k{k}.row.col.{d}.f16.f16.{d}" for k in (8, 16) for d in ("f32", "f16")),
    *(f"mma.sync.aligned.m16n8k{k}.row.col.f32.bf16.bf16.f32" for k in (8, 16)),
    *(f"mma.sync.aligned.m16n8k{k}.row.col.f32.tf32.tf32.f32" for k in (4, 8)),
    *(
        f"mma.sync.aligned.m{m}k{k}.row.col{sat}.s32.{a}.{b}.s32"
        for m, k in (("8n8", 16), ("16n8", 16), ("16n8", 32))
        for sat in ("", ".satfinite")
        for a in ("s8", "u8")
        for b in ("s8", "u8")
    ),
    *(
        f"mma.sync.aligned.m16n8k{k}.row.col.{d}.{a}.{b}.{d}"
        for k in (16, 32)
        for d in ("f32", "f16")
        for a in ("e4m3", "e5m2")
        for b in ("e4m3", "e5m2")
    ),
    "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64",
    *(f"mma.sync.aligned.m16n8k{k}.row.col.f64.f64.f64.f64" for k in (4, 8, 16)),
)


def to_f32(x: np.ndarray, kind: str) -> np.ndarray:
    """Multiplicands of the given type (as unsigned words of their size) as float32, exactly."""
    if kind == "f16":
        return half_to_f32(x)
    if kind == "bf16":
        return rnd.bf16_to_f32(x)
    if kind == "tf32":
        return (x & U32(0xFFFFE000)).view(F32)
    if kind in _FP8_F32:
        return _FP8_F32[kind].take(x)
    return x.view(SIGN[kind]).astype(F32)


def fragment_a(registers: list[np.ndarray], kind: str) -> np.ndarray:
    """A of (warps, 16 or 8, K) from its registers, as float32."""
    warps, count = len(registers[0]), len(registers)
    rows = 2 if count > 1 else 1
    words = np.empty((warps, rows, 8, count // rows, 4), U32)
    for i, register in enumerate(registers):
        words[:, i % rows, :, i // rows] = register.reshape(warps, 8, 4)
    return to_f32(words.view(f"u{MULTIPLICANDS[kind]}"), kind).reshape(warps, 8 * rows, -1)


def fragment_b(registers: list[np.ndarray], kind: str) -> np.ndarray:
    """B transposed, (warps, 8 columns, K), from its registers, as float32."""
    warps = len(registers[0])
    words = np.empty((warps, 8, len(registers), 4), U32)
    for i, register in enumerate(registers):
        words[:, :, i] = register.reshape(warps, 8, 4)
    return to_f32(words.view(f"u{MULTIPLICANDS[kind]}"), kind).reshape(warps, 8, -1)


def spread_accumulator(d: np.ndarray) -> list[np.ndarray]:
    """The 2 or 4 values per lane of an accumulator (warps, 8 or 16, 8)."""
    warps, rows = d.shape[:2]
    parts = d.reshape(warps, rows // 8, 8, 4, 2)
    return [parts[:, i // 2, :, :, i % 2].reshape(warps, 32) for i in range(rows // 4)]


def gather_accumulator(registers: list[np.ndarray]) -> np.ndarray:
    """(warps, 8 or 16, 8) from 2 or 4 values per lane."""
    warps = len(registers[0])
    parts = np.empty((warps, len(registers) // 2, 8, 4, 2), registers[0].dtype)
    for i, register in enumerate(registers):
        parts[:, i // 2, :, :, i % 2] = register.reshape(warps, 8, 4)
    return parts.reshape(warps, -1, 8)


def clamp_or_wrap(total: np.ndarray, saturate: bool) -> np.ndarray:
    """int64 sums as int32."""
    return np.clip(total, -(2**31), 2**31 - 1).astype(np.int32) if saturate else total.astype(np.int32)


@family("mma")
def _mma(decoder: Decoder, op: PtxOp, instruction: Instruction) -> None:
    if any(part.startswith("kind::") for part in instruction.parts):
        HANDLERS["kind"](decoder, op, instruction)
        return
    if instruction.opcode not in MMA_FORMS:
        raise ValueError("not a known form of mma")
    parts = instruction.parts
    m, n, k = map(int, re.findall(r"\d+", parts[3]))
    saturate = "satfinite" in parts
    kinds = parts[-4:]
    op.kind, op.flops = "matrix", 2 * m * n * k
    d, a, b, c = (operand.items for operand in instruction.operands)
    outs = [decoder.result(item) for item in d]
    op.members = decoder.constant(0xFFFFFFFF, "b32")
    pred, negated = decoder.guard(instruction)
    if kinds[0] == "f64":
        product = _double(decoder, a, b, c)
    elif kinds[0] == "s32":
        product = _integer(decoder, a, b, c, kinds, saturate)
    elif kinds[0] == "f16":
        product = _half(decoder, a, b, c, kinds)
    else:
        product = _single(decoder, a, b, c, kinds)

    def run(state: PtxState) -> None:
        some, mask = state.active(pred, negated)
        if some:
            for out, value in zip(outs, product(state), strict=True):
                state.put(out, value, mask)

    op.run = run


Product = Callable[[PtxState], list[np.ndarray]]


def _multiply(decoder: Decoder, a: tuple, b: tuple, kinds: list[str]) -> Callable[[PtxState], np.ndarray]:
    a_slots, b_slots = [decoder.raw(item) for item in a], [decoder.raw(item) for item in b]

    a_key, b_key = decoder.fragment(a, kinds[1] + " A"), decoder.fragment(b, kinds[2] + " B")

    def run(state: PtxState) -> np.ndarray:
        r = state.r
        left = state.fragment(*a_key, lambda: fragment_a([r[s] for s in a_slots], kinds[1]))
        right = state.fragment(*b_key, lambda: fragment_b([r[s] for s in b_slots], kinds[2]))
        return np.matmul(left, right.transpose(0, 2, 1))

    return run


def _single(decoder: Decoder, a: tuple, b: tuple, c: tuple, kinds: list[str]) -> Product:
    multiply = _multiply(decoder, a, b, kinds)
    c_slots = [decoder.read(item, "f32") for item in c]

    def run(state: PtxState) -> list[np.ndarray]:
        values = spread_accumulator(multiply(state))
        return [np.add(value, state.r[slot]).view(U32) for value, slot in zip(values, c_slots, strict=True)]

    return run


def _half(decoder: Decoder, a: tuple, b: tuple, c: tuple, kinds: list[str]) -> Product:
    multiply = _multiply(decoder, a, b, kinds)
    c_slots = [decoder.read(item, "f16x2") for item in c]

    def run(state: PtxState) -> list[np.ndarray]:
        d = multiply(state)
        results = []
        for i, slot in enumerate(c_slots):
            rows = d[:, 8 * i : 8 * i + 8].reshape(state.waves, 64)
            results.append((rows + state.r[slot].astype(F32)).astype(F16).view(U32))
        return results

    return run


def _integer(decoder: Decoder, a: tuple, b: tuple, c: tuple, kinds: list[str], saturate: bool) -> Product:
    """A dot product of 32 bytes stays below 2**24, so float32 sums it exactly."""
    multiply = _multiply(decoder, a, b, kinds)
    c_slots = [decoder.read(item, "s32") for item in c]

    def run(state: PtxState) -> list[np.ndarray]:
        values = spread_accumulator(multiply(state).astype(np.int64))
        return [
            clamp_or_wrap(value + state.r[slot], saturate).view(U32)
            for value, slot in zip(values, c_slots, strict=True)
        ]

    return run


def _double(decoder: Decoder, a: tuple, b: tuple, c: tuple) -> Product:
    """f64: element i of A is row group + 8 * (i % 2) (m16), column quad + 4 * (i // 2); of B row quad + 4 * i."""
    a_slots = [decoder.read(item, "f64") for item in a]
    b_slots = [decoder.read(item, "f64") for item in b]
    c_slots = [decoder.read(item, "f64") for item in c]
    tall = 2 if len(c) == 4 else 1

    def run(state: PtxState) -> list[np.ndarray]:
        r, warps = state.r, state.waves
        left = np.empty((warps, tall, 8, len(a_slots) // tall, 4))
        for i, slot in enumerate(a_slots):
            left[:, i % tall, :, i // tall] = r[slot].reshape(warps, 8, 4)
        right = np.empty((warps, 8, len(b_slots), 4))
        for i, slot in enumerate(b_slots):
            right[:, :, i] = r[slot].reshape(warps, 8, 4)
        k = 4 * len(b_slots)
        total = gather_accumulator([full(state, slot) for slot in c_slots])
        total = total + np.matmul(left.reshape(warps, -1, k), right.reshape(warps, 8, k).transpose(0, 2, 1))
        return [value.view(np.uint64) for value in spread_accumulator(total)]

    return run


@family("ldmatrix", "stmatrix")
def _matrix_memory(decoder: Decoder, op: PtxOp, instruction: Instruction) -> None:
    """8x8 matrices of 16 bits: lane 8 * i + j has the address of row j of matrix i.

    The manual writes .m8n8.x4{.trans}.shared.b16; ptxas takes any order: CUTLASS writes .x4{.trans}.m8n8.shared.b16.
    """
    stem, *first, modifiers = instruction.opcode.replace("shared::cta", "shared").split(".", 3)
    names = sorted(modifiers.split("."))
    counts = [name for name in names if name in MATRICES]
    known = {"m8n8", "b16", *counts, *({"trans", "shared"} & set(names))}
    if first != ["sync", "aligned"] or len(counts) != 1 or names != sorted(known):
        raise ValueError("not a known form")
    loads, count, transposed = stem == "ldmatrix", MATRICES[counts[0]], "trans" in names
    registers, address = instruction.operands if loads else instruction.operands[::-1]
    generic = "shared" not in names
    decoder.generic |= generic
    place = decoder.result if loads else decoder.raw
    slots = [place(item) for item in getattr(registers, "items", (registers,))]
    if len(slots) != count:
        raise ValueError(f"{len(slots)} registers for {count} matrices")
    slot, offset = parse_address(decoder, address)
    op.kind = "shared"
    op.members = decoder.constant(0xFFFFFFFF, "b32")
    pred, negated = decoder.guard(instruction)

    def rows_of(state: PtxState) -> np.ndarray:
        rows = full(state, slot)
        return (rows.astype(np.int64) - state.generic_base("shared") if generic else rows)[:, : 8 * count]

    def load(state: PtxState) -> None:
        some, mask = state.active(pred, negated)
        if not some:
            return
        rows = rows_of(state)
        picked = None if mask is None else np.ascontiguousarray(mask[:, : 8 * count])
        low, high = state.shared.load(state, op, rows, 8, 2, picked, offset)
        words = np.empty((state.waves, count, 8, 2), np.uint64)
        words[..., 0], words[..., 1] = low.reshape(words.shape[:3]), high.reshape(words.shape[:3])
        if transposed:
            words = np.ascontiguousarray(words.view(U16).swapaxes(2, 3))
        values = words.view(U32).reshape(state.waves, count, 32)
        for i, out in enumerate(slots):
            state.put(out, values[:, i], mask)

    def store(state: PtxState) -> None:
        some, mask = state.active(pred, negated)
        if not some:
            return
        rows = rows_of(state)
        picked = None if mask is None else np.ascontiguousarray(mask[:, : 8 * count])
        values = np.empty((state.waves, count, 8, 4), U32)
        for i, source in enumerate(slots):
            values[:, i] = state.r[source].reshape(state.waves, 8, 4)
        if transposed:
            values = np.ascontiguousarray(values.view(U16).swapaxes(2, 3)).view(U32)
        words = values.view(np.uint64).reshape(state.waves, 8 * count, 2)
        parts = [np.ascontiguousarray(words[..., i]) for i in range(2)]
        state.shared.store(state, op, rows, parts, 8, picked, offset)

    op.run = load if loads else store


@family("movmatrix")
def _move_matrix(decoder: Decoder, op: PtxOp, instruction: Instruction) -> None:
    """movmatrix.sync.aligned.m8n8.trans.b16: the transpose of an 8x8 matrix across the registers of a warp."""
    if instruction.opcode != "movmatrix.sync.aligned.m8n8.trans.b16":
        raise ValueError("not a known form")
    out, slot = decoder.result(instruction.operands[0]), decoder.raw(instruction.operands[1])
    op.members = decoder.constant(0xFFFFFFFF, "b32")

    def run(state: PtxState) -> None:
        matrix = np.ascontiguousarray(state.r[slot]).view(U16).reshape(state.waves, 8, 8)
        turned = np.ascontiguousarray(matrix.swapaxes(1, 2)).reshape(state.waves, 64)
        state.put(out, turned.view(U32), state.mask)

    op.run = run
