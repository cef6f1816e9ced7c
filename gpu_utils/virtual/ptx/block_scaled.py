"""mma.sync on floats of 8, 6 and 4 bits, with and without block scales, sm_120.

Fragments are those of matrix.py, a row of 32 bytes along K: 32 elements that stand each in a byte, or 64 of 4 bits.
Scales come in a register of some lanes: with the thread number t of the selector, row m of A takes that of lane
4 * (m % 8) + 2 * t + m / 8, column n of B that of lane 4 * n + t, from the byte that the selector names on (CUTLASS's
mma_traits_sm120.hpp has the same lanes). Sums of a block are float32, scaled and added in float64.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gpu_utils.chips.targets import TARGETS
from gpu_utils.virtual.ptx.decode import Decoder, PtxOp
from gpu_utils.virtual.ptx.matrix import HANDLERS, fragment_a, fragment_b, spread_accumulator
from gpu_utils.virtual.ptx.narrow import BITS, SCALES, TABLES, in_containers, nibbles
from gpu_utils.virtual.ptx.state import PtxState
from gpu_utils.virtual.ptx.syntax import Instruction, Vector
from gpu_utils.virtual.ptx.warp import full

F16, F32, F64, U32 = np.float16, np.float32, np.float64, np.uint32
ROW = np.arange(16)
COLUMN = np.arange(8)
# kind, size of the scale vector as written -> (K, scales along K, types of a scale)
KINDS = {
    ("f8f6f4", ""): (32, 0, ()),
    ("mxf8f6f4", ""): (32, 1, ("ue8m0",)),
    ("mxf8f6f4", "scale_vec::1X"): (32, 1, ("ue8m0",)),
    ("mxf4", ""): (64, 2, ("ue8m0",)),
    ("mxf4", "scale_vec::2X"): (64, 2, ("ue8m0",)),
    ("mxf4nvf4", "scale_vec::2X"): (64, 2, ("ue8m0",)),
    ("mxf4nvf4", "scale_vec::4X"): (64, 4, ("ue8m0", "ue4m3")),
}


class Scale(NamedTuple):
    """Where the scales of A or B are: the register's slot, the first byte, the lanes of the rows."""

    slot: int
    first: int
    lanes: np.ndarray


def _decode(decoder: Decoder, op: PtxOp, instruction: Instruction) -> None:
    target = TARGETS[decoder.target]
    if "f8f6f4" not in target.inputs or "tcgen05" in target.matrix:
        raise ValueError(f"{decoder.target} has no mma.sync with .kind")
    parts = instruction.parts
    kind = next(part for part in parts if part.startswith("kind::")).removeprefix("kind::")
    size = next((part for part in parts if part.startswith("scale_vec::")), "")
    plain = [part for part in parts if "::" not in part and part != "block_scale"]
    if (kind, size) not in KINDS or ("block_scale" in parts) != (kind != "f8f6f4"):
        raise ValueError("not a known form of mma")
    k, count, scales = KINDS[kind, size]
    d, a, b, c = plain[6:10] if len(plain) >= 10 else [""] * 4
    types = BITS if k == 32 else {"e2m1"}
    known = [f"m16n8k{k}", "row", "col"] == plain[3:6] and plain[:3] == ["mma", "sync", "aligned"]
    if not known or a not in types or b not in types or d != c or d not in ("f32", *(() if count else ("f16",))):
        raise ValueError("not a known form of mma")
    if plain[10:] != [] if not count else len(plain) != 11 or plain[10] not in scales:
        raise ValueError("not a known type of scale")
    operands = instruction.operands
    outs = [decoder.result(item) for item in operands[0].items]
    a_slots, b_slots = ([decoder.raw(item) for item in operand.items] for operand in operands[1:3])
    c_slots = [decoder.read(item, "f32" if d == "f32" else "f16x2") for item in operands[3].items]
    if [len(x) for x in (outs, a_slots, b_slots)] != [4 if d == "f32" else 2, 4, 2]:
        raise ValueError("registers of another form")
    op.kind, op.flops = "matrix", 2 * 16 * 8 * k
    op.members = decoder.constant(0xFFFFFFFF, "b32")
    pred, negated = decoder.guard(instruction)
    scale = []
    if count:
        scale = [
            _scale(decoder, operands[4:6], count, lambda tid: 4 * (ROW % 8) + 2 * tid + ROW // 8, 1),
            _scale(decoder, operands[6:8], count, lambda tid: 4 * COLUMN + tid, 3),
        ]

    def values(raw: np.ndarray, kind: str) -> np.ndarray:
        codes = raw.astype(np.uint8)
        return TABLES["e2m1"].take(nibbles(codes)) if k == 64 else in_containers(codes, kind)

    def run(state: PtxState) -> None:
        some, mask = state.active(pred, negated)
        if not some:
            return
        left = values(fragment_a([state.r[slot] for slot in a_slots], "u8"), a)
        right = values(fragment_b([state.r[slot] for slot in b_slots], "u8"), b)
        if count:
            total = _scaled(state, left, right, scale, count, plain[10])
        else:
            total = np.matmul(left, right.transpose(0, 2, 1))
        if d == "f32":
            for out, value, slot in zip(outs, spread_accumulator(total), c_slots, strict=True):
                state.put(out, (value + state.r[slot]).astype(F32).view(U32), mask)
            return
        for i, (out, slot) in enumerate(zip(outs, c_slots, strict=True)):
            rows = total[:, 8 * i : 8 * i + 8].reshape(state.waves, 64)
            state.put(out, (rows + state.r[slot].astype(F32)).astype(F16).view(U32), mask)

    op.run = run


def _scale(decoder: Decoder, operands: tuple, count: int, lanes, most: int) -> Scale:
    """From the register and its selector {byte, thread}."""
    register, selector = operands
    if not isinstance(selector, Vector) or len(selector.items) != 2:
        raise ValueError("a selector {byte, thread} of two numbers")
    byte, thread = (int(item.value) for item in selector.items)
    if byte % count or not 0 <= byte < 4 or not 0 <= thread <= most:
        raise ValueError("no such byte or thread of a scale")
    return Scale(decoder.read(register, "b32"), byte, lanes(thread))


def _scaled(state: PtxState, left, right, scale: list[Scale], count: int, kind: str) -> np.ndarray:
    """float64 (warps, 16, 8): the sums over the blocks along K, each times its two scales."""
    total = np.zeros((state.waves, 16, 8), F64)
    factors = []
    for where in scale:
        words = np.ascontiguousarray(full(state, where.slot)[:, where.lanes])
        codes = words.view(np.uint8).reshape(state.waves, -1, 4)[..., where.first : where.first + count]
        factors.append(SCALES[kind].take(codes))
    step = left.shape[2] // count
    for i in range(count):
        span = slice(i * step, i * step + step)
        part = np.matmul(left[..., span], right[..., span].transpose(0, 2, 1)).astype(F64)
        total += part * factors[0][..., i, None] * factors[1][:, None, :, i]
    return total


HANDLERS["kind"] = _decode
