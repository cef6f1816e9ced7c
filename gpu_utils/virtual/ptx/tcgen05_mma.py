"""tcgen05.mma: D = A * B + D with D in tensor memory, A there or in shared memory, B in shared memory.

A row has 32 bytes along K: 8 elements of tf32, 16 of 16 bits, 32 of 8 bits (and of 6 and 4 bits, which are padded),
64 of 4 bits. Row m of D lies in lane m for M = 128, in lane m % 16 + 32 * (m / 16) for M = 64; with .ws, M = 64 has
its columns' halves in lanes 0 and 64, M = 32 its quarters in lanes 0, 32, 64 and 96 (PTX manual, "Data Path Layout
Organization"; CUTLASS's mma_traits_sm100_frag.hpp).

The scales of rows 32 * i to 32 * i + 31 are bytes of column i, and all four quarters of the lanes hold them alike.
Products are exact and summed in float32; with block scales the sums of blocks are scaled and added in float64.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from gpu_utils.errors import UnsupportedInstruction
from gpu_utils.virtual.ptx.decode import Decoder, PtxOp, parse_address
from gpu_utils.virtual.ptx.descriptors import Product, operand
from gpu_utils.virtual.ptx.load_store import address_of
from gpu_utils.virtual.ptx.matrix import clamp_or_wrap, to_f32
from gpu_utils.virtual.ptx.narrow import BITS, SCALES, TABLES, expand, in_containers, nibbles
from gpu_utils.virtual.ptx.state import PtxState
from gpu_utils.virtual.ptx.syntax import Address, Imm, Instruction, Vector
from gpu_utils.virtual.ptx.tensor_memory import fault
from gpu_utils.virtual.ptx.warp import full

F16, F32, F64, U32 = np.float16, np.float32, np.float64, np.uint32
_NARROW = {0: "e4m3", 1: "e5m2", 3: "e2m3", 4: "e3m2", 5: "e2m1"}
# kind -> (types of A and B by their number in the instruction descriptor, bytes of an element, types of D)
KINDS = {
    "f16": ({0: "f16", 1: "bf16"}, 2, {0: "f16", 1: "f32"}),
    "tf32": ({2: "tf32"}, 4, {1: "f32"}),
    "f8f6f4": (_NARROW, 1, {0: "f16", 1: "f32"}),
    "i8": ({0: "u8", 1: "s8"}, 1, {2: "s32"}),
    "mxf8f6f4": (_NARROW, 1, {}),
    "mxf4": ({1: "e2m1"}, 1, {}),
    "mxf4nvf4": ({1: "e2m1"}, 1, {}),
}
PACKED = ("mxf4", "mxf4nvf4")
# kind, how many scales along K is written -> scales along K
SCALED = {
    ("mxf8f6f4", ""): 1, ("mxf8f6f4", "scale_vec::1X"): 1, ("mxf8f6f4", "block32"): 1,
    ("mxf4", ""): 2, ("mxf4", "scale_vec::2X"): 2, ("mxf4", "block32"): 2,
    ("mxf4nvf4", "scale_vec::2X"): 2, ("mxf4nvf4", "block32"): 2,
    ("mxf4nvf4", "scale_vec::4X"): 4, ("mxf4nvf4", "block16"): 4,
}  # fmt: skip
_COLLECTOR = re.compile(r"collector::(a|b[0-3])::(fill|use|lastuse|discard)")


class Form(NamedTuple):
    """What the text of an instruction says: its kind, whether weights stay (.ws), scales along K (0: no scales)."""

    kind: str
    weights: bool
    scales: int


class Call(NamedTuple):
    """What one thread passes; calls that are equal are executed together."""

    d: int
    a: int
    b: int
    product: int
    scale_a: int
    scale_b: int
    accumulate: bool
    off: tuple[int, ...]


def _form(instruction: Instruction) -> Form:
    parts = instruction.parts[2:]
    weights = parts[0] == "ws"
    parts = parts[weights:]
    kind = parts[1].removeprefix("kind::") if len(parts) > 1 else ""
    if parts[0] != "cta_group::1" or kind not in KINDS:
        raise ValueError("a sparse product" if "sp" in instruction.parts else "not a known form of tcgen05.mma")
    rest = [part for part in parts[2:] if not _COLLECTOR.fullmatch(part)]
    scales = 0
    if rest[:1] == ["block_scale"]:
        scales = SCALED.get((kind, ".".join(rest[1:])), 0)
        rest = [] if scales else rest
    if rest or (not KINDS[kind][2]) != bool(scales) or (weights and scales):
        raise ValueError("not a known form of tcgen05.mma")
    return Form(kind, weights, scales)


def decode_product(decoder: Decoder, op: PtxOp, instruction: Instruction) -> None:
    """op.run of a tcgen05.mma."""
    form = _form(instruction)
    d, a, b, bits, *rest = instruction.operands
    from_memory = isinstance(a, Address)
    d_at = parse_address(decoder, d)
    a_at = parse_address(decoder, a) if from_memory else (decoder.read(a, "b64"), 0)
    b_slot, bits_slot = decoder.read(b, "b64"), decoder.read(bits, "b32")
    scale_at = [parse_address(decoder, rest.pop(0)) for _ in range(2)] if form.scales else []
    off = [decoder.read(item, "b32") for item in rest.pop(0).items] if isinstance(rest[0], Vector) else []
    keep = decoder.read(rest.pop(0), "pred")
    shift = int(rest.pop(0).value) if rest and isinstance(rest[0], Imm) and form.kind in ("f16", "tf32") else 0
    if rest or not 0 <= shift <= 15 or len(off) not in (0, 4):
        raise ValueError("operands of another form; a mask of zero columns is not executed")
    op.kind = "matrix"
    pred, negated = decoder.guard(instruction)

    def run(state: PtxState) -> None:
        some, mask = state.active(pred, negated)
        if not some:
            return
        rows = [address_of(state, *d_at), address_of(state, *a_at) if from_memory else full(state, a_at[0])]
        rows += [full(state, b_slot), full(state, bits_slot)]
        scales = [address_of(state, *at) for at in scale_at] or [np.zeros_like(rows[0])] * 2
        keeps, offs = full(state, keep), [full(state, slot) for slot in off]
        turns: list[dict[Call, list[int]]] = []
        issued = np.zeros(state.blocks, np.int64)
        for wave, lane in np.argwhere(np.ones(keeps.shape, bool) if mask is None else mask):
            d_word, a_word, b_word, shape, *factors = (int(row[wave, lane]) for row in (*rows, *scales))
            keep_d, disabled = bool(keeps[wave, lane]), tuple(int(row[wave, lane]) for row in offs)
            call = Call(d_word, a_word, b_word, shape, factors[0], factors[1], keep_d, disabled)
            block = state.block_of_wave[wave]
            if issued[block] == len(turns):
                turns.append({})
            turns[issued[block]].setdefault(call, []).append(int(wave))
            issued[block] += 1
        for calls in turns:
            for call, waves in calls.items():
                _execute(state, op, form, call, np.array(waves), from_memory, shift)

    op.run = run


def _execute(
    state: PtxState, op: PtxOp, form: Form, call: Call, waves: np.ndarray, from_memory: bool, shift: int
) -> None:
    types, size, results = KINDS[form.kind]
    product = Product.of(call.product, bool(form.scales))
    a_type, b_type = types.get(product.a), types.get(product.b)
    d_type = "f32" if form.scales else results.get(product.d)
    _check(state, op, form, product, a_type, b_type, d_type, waves)
    assert a_type
    assert b_type
    memory = state.tensor_memory()
    if from_memory:
        lanes = _lanes(product.m, form.weights) + (call.a >> 16)
        raw = memory.load(state, op, waves, lanes, call.a & 0xFFFF, 8).view(f"u{size}")
        left = _values(raw, a_type, form, True)
    else:
        used = _used(a_type, form)
        left = _values(operand(state, op, call.a, waves, product.m, size, product.turn_a, used), a_type, form, False)
    used = _used(b_type, form)
    right = _values(operand(state, op, call.b, waves, product.n, size, product.turn_b, used), b_type, form, False)
    if form.scales:
        kind = "ue8m0" if product.powers else "ue4m3"
        a_scale = _scales(state, op, waves, call.scale_a, product.m, product.scale_a, form.scales, kind)
        b_scale = _scales(state, op, waves, call.scale_b, product.n, product.scale_b, form.scales, kind)
        total = np.zeros((len(waves), product.m, product.n), F64)
        step = left.shape[2] // form.scales
        for i in range(form.scales):
            span = slice(i * step, i * step + step)
            part = np.matmul(left[..., span], right[..., span].swapaxes(1, 2)).astype(F64)
            total += part * a_scale[..., i, None] * b_scale[:, None, :, i]
    else:
        total = np.matmul(left, right.swapaxes(1, 2))
    state.counters.note_flops(op, 2 * product.m * product.n * left.shape[2] * len(waves))
    _write(state, op, form, call, waves, product, -total if product.negate else total, str(d_type), shift)


def _check(state, op, form: Form, product: Product, a_type, b_type, d_type, waves: np.ndarray) -> None:
    tall = (32, 64, 128) if form.weights else (128,) if form.scales else (64, 128)
    wide = product.n % (8 if product.m == 64 else 16) == 0 and 8 <= product.n <= 256
    if form.weights:
        wide = product.n in (64, 128, 256)
    if product.sparse or product.long_k:
        what = "a sparse product" if product.sparse else "K = 96"
        raise UnsupportedInstruction(state.program.target, state.program.name, op.text, what)
    if a_type is None or b_type is None or d_type is None or product.m not in tall or not wide:
        fault(state, op, int(waves[0]), f"passes an instruction descriptor that .kind::{form.kind} does not take: M = "
              f"{product.m}, N = {product.n}, types {product.a} and {product.b}, D {product.d}")  # fmt: skip


def _lanes(m: int, weights: bool) -> np.ndarray:
    """The lanes of the rows of A and D; with .ws those of the first part of the columns."""
    return np.arange(m) if m != 64 or weights else (np.arange(0, 128, 32)[:, None] + np.arange(16)).ravel()


def _used(kind: str, form: Form) -> int:
    """Bytes of 16 in shared memory that hold elements."""
    return 16 if form.kind in PACKED or kind not in BITS else 2 * BITS[kind]


def _values(raw: np.ndarray, kind: str, form: Form, from_memory: bool) -> np.ndarray:
    """float32 of the elements; in tensor memory those of 6 and 4 bits stand in a byte each, in shared memory packed."""
    if form.kind in PACKED:
        return TABLES["e2m1"].take(nibbles(raw))
    if kind not in BITS or BITS[kind] == 8:
        return to_f32(np.ascontiguousarray(raw), kind)
    return in_containers(raw, kind) if from_memory else TABLES[kind].take(expand(np.ascontiguousarray(raw), BITS[kind]))


def _scales(state, op, waves, address: int, rows: int, first: int, count: int, kind: str) -> np.ndarray:
    """float64 (n, rows, count): bytes `first` on of the words of 32 rows to a column."""
    lanes = (address >> 16 & 0x3FFF) + np.arange(128)
    words = state.tensor_memory().load(state, op, waves, lanes, address & 0xFFFF, -(-rows // 32))
    quarters = words.view(np.uint8).reshape(len(waves), 4, 32, -1, 4)[..., first : first + count]
    if (quarters != quarters[:, :1]).any():
        fault(state, op, int(waves[0]), "uses scales that differ between the four quarters of the lanes of tensor "
              "memory: each quarter must hold the same (`tcgen05.cp` with .warpx4 writes all)")  # fmt: skip
    codes = quarters[:, 0].swapaxes(1, 2).reshape(len(waves), -1, count)[:, :rows]
    return SCALES[kind].take(codes)


def _write(state, op, form: Form, call: Call, waves, product: Product, total, d_type: str, shift: int) -> None:
    memory, column = state.tensor_memory(), call.d & 0xFFFF
    parts = 128 // product.m if form.weights else 1
    width = product.n // parts
    lanes = _lanes(product.m, form.weights) + (call.d >> 16)
    off = np.array(call.off, U32).view(np.uint8)
    disabled = np.unpackbits(off, bitorder="little").astype(bool)
    for i in range(parts):
        rows = lanes + i * product.m
        value = total[..., i * width : (i + 1) * width]
        live = ~disabled[rows] if call.off else np.ones(len(rows), bool)
        if not live.any():
            continue
        rows, value = rows[live], value[:, live]
        old = memory.load(state, op, waves, rows, column, width) if call.accumulate else None
        memory.store(state, op, waves, rows, column, _accumulated(value, old, d_type, product.saturate, shift))


def _accumulated(value: np.ndarray, old: np.ndarray | None, d_type: str, saturate: bool, shift: int) -> np.ndarray:
    """The words of D: value + old * 2**-shift, or value alone."""
    if d_type == "s32":
        sums = value.astype(np.int64)
        return clamp_or_wrap(sums if old is None else sums + old.view(np.int32), saturate).view(U32)
    if old is not None:
        before = old.view(F32) if d_type == "f32" else (old & U32(0xFFFF)).astype(np.uint16).view(F16).astype(F32)
        value = value + before * F32(2.0**-shift)
    if d_type == "f32":
        return value.astype(F32).view(U32)
    return value.astype(F32).astype(F16).view(np.uint16).astype(U32)
