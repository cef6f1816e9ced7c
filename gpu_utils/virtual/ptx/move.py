"""mov between registers, numbers, special registers and addresses; packing and unpacking; cvta."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpu_utils.virtual.ptx.decode import Decoder, PtxOp, family
from gpu_utils.virtual.ptx.elementwise import elementwise
from gpu_utils.virtual.ptx.forms import BYTES, TYPES
from gpu_utils.virtual.ptx.state import CLOCKS, PtxState
from gpu_utils.virtual.ptx.syntax import SINK, Instruction, Special, Symbol, Vector


@family("mov", "cvta")
def _move(decoder: Decoder, op: PtxOp, instruction: Instruction) -> None:
    """mov between registers, numbers, special registers, addresses; packing and unpacking; cvta."""
    op.kind = "move"
    kind = instruction.parts[-1]
    if kind not in BYTES or len(instruction.operands) != 2:
        raise ValueError("not a known form of mov")
    target, source = instruction.operands
    pred, negated = decoder.guard(instruction)
    if instruction.parts[0] == "cvta":
        _convert_address(decoder, op, instruction)
    elif isinstance(target, Vector):
        _unpack(decoder, op, target, source, kind, pred, negated)
    elif isinstance(source, Vector):
        _pack(decoder, op, target, source, kind, pred, negated)
    elif isinstance(source, Special) and source.name in CLOCKS:
        _read_clock(op, decoder.result(target), source.name.endswith("_hi"), pred, negated)
    else:
        if isinstance(source, Symbol) and decoder.addresses.get(source.name, ("", 0))[0] == "local":
            decoder.generic = True
        column = TYPES[kind][0]
        kind = {"16": "b16", "32": "b32", "64": "b64", "pred": "pred"}[column] if kind not in ("f32", "f64") else kind
        out = decoder.register(target, kind, write=True), decoder.result(target)
        op.run = elementwise(lambda a, o: np.copyto(o, a), [decoder.read(source, kind)], [out], pred, negated)


def _read_clock(op: PtxOp, out: int, upper: bool, pred: int | None, negated: bool) -> None:
    def run(state: PtxState) -> None:
        some, mask = state.active(pred, negated)
        if some:
            state.clock += 1
            state.put(out, 0 if upper else state.clock, mask)

    op.run = run


def _convert_address(decoder: Decoder, op: PtxOp, instruction: Instruction) -> None:
    """cvta.space d, a (to generic) and cvta.to.space d, a. Global and const addresses are generic already."""
    parts = instruction.parts
    target, source = instruction.operands
    pred, negated = decoder.guard(instruction)
    kind = parts[-1].replace("u", "b")
    space = next(
        (p.split("::")[0] for p in parts[1:] if p.split("::")[0] in ("global", "const", "shared", "local", "param")),
        None,
    )
    if space is None:
        raise ValueError("cvta without a state space")
    out, slot = decoder.result(target), decoder.read(source, kind)
    if space in ("global", "const", "param"):
        op.run = elementwise(lambda a, o: np.copyto(o, a), [slot], [(out, out)], pred, negated)
        return
    decoder.generic = True
    sign = -1 if "to" in parts else 1

    def run(state: PtxState) -> None:
        some, mask = state.active(pred, negated)
        if some:
            value = state.r[slot].astype(np.int64) + sign * state.generic_base(space)
            state.put(out, value.astype(state.r[out].dtype), mask)

    op.run = run


def _unpack(decoder, op, target: Vector, source: Any, kind: str, pred: int | None, negated: bool) -> None:
    """mov.b64 {lo, hi}, d."""
    parts = BYTES[kind] // len(target.items)
    slot = decoder.read(source, kind if kind[0] != "f" else f"b{8 * BYTES[kind]}")
    outs = [None if item == SINK else decoder.result(item) for item in target.items]

    def run(state: PtxState) -> None:
        some, mask = state.active(pred, negated)
        if some:
            wide = np.ascontiguousarray(np.broadcast_to(state.r[slot], (state.waves, 32)))
            pieces = wide.view(f"u{parts}").reshape(state.waves, 32, len(outs))
            for i, out in enumerate(outs):
                if out is not None:
                    state.put(out, pieces[..., i], mask)

    op.run = run


def _pack(decoder, op, target: Any, source: Vector, kind: str, pred: int | None, negated: bool) -> None:
    """mov.b32 d, {lo, hi}."""
    out = decoder.result(target)
    size = BYTES[kind] // len(source.items)
    slots = [decoder.read(item, f"b{8 * size}") for item in source.items]
    dtype, count = np.dtype(f"u{size}"), len(slots)

    def run(state: PtxState) -> None:
        some, mask = state.active(pred, negated)
        if not some:
            return
        r = state.r
        fresh = r[out] if mask is None else np.empty_like(r[out])
        halves = fresh.view(dtype)
        for i, slot in enumerate(slots):
            halves[..., i::count] = r[slot]
        if mask is not None:
            state.merge(r[out], fresh, mask)

    op.run = run
