"""Instructions by which the lanes of a warp exchange values: shfl, vote, match, redux, activemask, elect."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from gpu_utils.chips.targets import TARGETS
from gpu_utils.virtual.ptx.decode import Decoder, PtxOp, family
from gpu_utils.virtual.ptx.forms import TYPES
from gpu_utils.virtual.ptx.state import PtxState
from gpu_utils.virtual.ptx.syntax import SINK, Imm, Instruction, Not, Pair

LANES = np.arange(32)
_BITS = np.uint32(1) << LANES.astype(np.uint32)
REDUCTIONS: dict[str, tuple[np.ufunc, int | str]] = {
    "add": (np.add, 0),
    "min": (np.minimum, "max"),
    "max": (np.maximum, "min"),
    "and": (np.bitwise_and, -1),
    "or": (np.bitwise_or, 0),
    "xor": (np.bitwise_xor, 0),
}
REDUX_FORMS = tuple(f"redux.sync.{op}.{kind}" for op in ("add", "min", "max") for kind in ("u32", "s32")) + tuple(
    f"redux.sync.{op}.b32" for op in ("and", "or", "xor")
)
REDUX_FLOAT_FORMS = tuple(
    f"redux.sync.{op}{size}{nan}.f32" for op in ("min", "max") for size in ("", ".abs") for nan in ("", ".NaN")
)
"""sm_100: without .NaN a NaN counts only where all are NaN."""
SHFL_FORMS = tuple(f"shfl.sync.{mode}.b32" for mode in ("up", "down", "bfly", "idx"))
VOTE_FORMS = ("vote.sync.all.pred", "vote.sync.any.pred", "vote.sync.uni.pred", "vote.sync.ballot.b32")
MATCH_FORMS = tuple(f"match.{mode}.sync.{kind}" for mode in ("any", "all") for kind in ("b32", "b64"))


def converge_op(members: int, op: PtxOp) -> PtxOp:
    """Before a `.sync` instruction: lanes wait until every lane of the member mask has come, or has ended."""

    def run(state: PtxState) -> np.ndarray | None:
        return None if state.act is None else member_lanes(state, members)

    return PtxOp(run, "layout", "layout", op.text, op.line, ends="sync", sources=op.sources)


def member_lanes(state: PtxState, slot: int) -> np.ndarray:
    """bool (warps, 32): the lanes that the member mask of each warp's first running lane names."""
    value = full(state, slot)
    if state.mask is not None:
        first = np.argmax(state.mask, axis=1)
        value = value[np.arange(state.waves), first][:, None]
    return (value & _BITS) != 0


def full(state: PtxState, slot: int) -> np.ndarray:
    """A slot's row as (warps, 32), also for constants."""
    row = state.r[slot]
    return row if row.ndim == 2 else np.broadcast_to(row, (state.waves, 32))


def active_lanes(state: PtxState, slot: int) -> np.ndarray:
    """Members that are running now."""
    members = member_lanes(state, slot)
    return members if state.mask is None else members & state.mask


def own_members(state: PtxState, slot: int, mask: np.ndarray | None) -> np.ndarray:
    """bool (warps, 32, 32): the running lanes that each lane's own member mask names; (warps, 1, 32) where all of a
    warp name the same."""
    value = full(state, slot)
    alike = value.strides[1] == 0 or not np.count_nonzero(value != value[:, :1])
    named = ((value[:, :1] if alike else value)[:, :, None] & _BITS) != 0
    return named if mask is None else named & mask[:, None, :]


def source_lanes(mode: str, lane: np.ndarray, b: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(source lane, whether it is in range) of shfl, after the pseudo-code of the PTX manual."""
    b, c = b.astype(np.int64), c.astype(np.int64)
    distance, segment, limit = b & 31, (c >> 8) & 31, c & 31
    top = (lane & segment) | (limit & ~segment)
    bottom = lane & segment
    if mode == "up":
        source = lane - distance
        valid = source >= top
    elif mode == "down":
        source = lane + distance
        valid = source <= top
    elif mode == "bfly":
        source = lane ^ distance
        valid = source <= top
    else:
        source = bottom | (distance & ~segment)
        valid = source <= top
    return np.where(valid, source, lane), valid


@family("shfl")
def _shuffle(decoder: Decoder, op: PtxOp, instruction: Instruction) -> None:
    if instruction.opcode not in SHFL_FORMS:
        raise ValueError("not a known form of shfl")
    mode = instruction.parts[2]
    target, a, b, c, members = instruction.operands
    flag = None
    if isinstance(target, Pair):
        target, flag = target.first, target.second
    out = None if target == SINK else decoder.result(target)
    valid_out = None if flag is None or flag == SINK else decoder.result(flag)
    slot = decoder.read(a, "b32")
    op.members = decoder.read(members, "u32")
    pred, negated = decoder.guard(instruction)
    if isinstance(b, Imm) and isinstance(c, Imm):
        source, valid = source_lanes(mode, LANES, np.array(b.value), np.array(c.value))
        swap = int(b.value) if mode == "bfly" and valid.all() and int(b.value) in (1, 2, 4, 8, 16) else 0

        def take(state: PtxState) -> tuple[np.ndarray, np.ndarray]:
            state.counters.shuffled(op, source, state.mask)
            row = full(state, slot)
            if swap:
                pairs = row.reshape(-1, 16 // swap, 2, swap)
                return pairs[:, :, ::-1, :].reshape(row.shape), valid
            return row.take(source, axis=1), valid

    else:
        distance, limits = decoder.read(b, "u32"), decoder.read(c, "u32")

        def take(state: PtxState) -> tuple[np.ndarray, np.ndarray]:
            source, valid = source_lanes(mode, LANES, full(state, distance), full(state, limits))
            state.counters.shuffled(op, source, state.mask)
            return np.take_along_axis(full(state, slot), source, axis=1), valid

    def run(state: PtxState) -> None:
        some, mask = state.active(pred, negated)
        if some:
            value, valid = take(state)
            if out is not None:
                state.put(out, value, mask)
            if valid_out is not None:
                state.put(valid_out, valid, mask)

    op.run = run


@family("vote")
def _vote(decoder: Decoder, op: PtxOp, instruction: Instruction) -> None:
    if instruction.opcode not in VOTE_FORMS:
        raise ValueError("not a known form of vote")
    mode = instruction.parts[2]
    target, source, members = instruction.operands
    inverted = isinstance(source, Not)
    slot = decoder.read(source.reg if inverted else source, "pred")
    out = decoder.result(target)
    op.members = member = decoder.read(members, "u32")
    pred, negated = decoder.guard(instruction)

    def run(state: PtxState) -> None:
        some, mask = state.active(pred, negated)
        if not some:
            return
        votes = full(state, slot)
        votes = ~votes if inverted else votes
        here = own_members(state, member, mask)
        yes = votes[:, None, :] & here
        if mode == "ballot":
            state.put(out, np.packbits(yes, axis=2, bitorder="little").view("<u4")[:, :, 0], mask)
        elif mode == "any":
            state.put(out, yes.any(axis=2), mask)
        else:
            every, none = (yes == here).all(axis=2), ~yes.any(axis=2)
            state.put(out, every if mode == "all" else every | none, mask)

    op.run = run


Combine = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""(values (warps, 32), members (warps, 1 or 32, 32)) -> what each lane gets, as words of 32 bits."""


@family("redux")
def _redux(decoder: Decoder, op: PtxOp, instruction: Instruction) -> None:
    if instruction.opcode in REDUX_FLOAT_FORMS and "tcgen05" in TARGETS[decoder.target].matrix:
        kind, combine = "b32", _of_floats(instruction.parts)
    elif instruction.opcode in REDUX_FORMS:
        kind = instruction.parts[3]
        combine = _of_integers(instruction.parts[2], kind)
    else:
        raise ValueError("not a known form of redux")
    target, source, members = instruction.operands
    slot, out = decoder.read(source, kind), decoder.result(target)
    op.members = member = decoder.read(members, "u32")
    pred, negated = decoder.guard(instruction)

    def run(state: PtxState) -> None:
        some, mask = state.active(pred, negated)
        if some:
            state.put(out, combine(full(state, slot), own_members(state, member, mask)), mask)

    op.run = run


def _of_integers(name: str, kind: str) -> Combine:
    fn, identity = REDUCTIONS[name]
    dtype = TYPES[kind][1]
    if isinstance(identity, str):
        identity = getattr(np.iinfo(dtype), identity)
    neutral = np.array(identity & 0xFFFFFFFF, np.uint32).view(dtype)

    def combine(values: np.ndarray, members: np.ndarray) -> np.ndarray:
        return fn.reduce(np.where(members, values[:, None, :], neutral), axis=2, dtype=dtype).view(np.uint32)

    return combine


def _of_floats(parts: Sequence[str]) -> Combine:
    """redux.sync.{min,max}{.abs}{.NaN}.f32; -0 is smaller than +0."""
    smallest, size, nan_wins = parts[2] == "min", "abs" in parts, "NaN" in parts

    def combine(values: np.ndarray, members: np.ndarray) -> np.ndarray:
        bits = values & np.uint32(0x7FFFFFFF if size else 0xFFFFFFFF)
        nan = (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
        order = bits.view(np.int32).astype(np.int64)
        order = np.where(order < 0, -(order & 0x7FFFFFFF) - 1, order)  # in the order of the numbers
        if not smallest:
            order = -order
        order = np.where(nan, -(2**40) if nan_wins else 2**40, order)
        found = np.argmin(np.where(members, order[:, None, :], 2**41), axis=2)
        return np.take_along_axis(np.where(nan, np.uint32(0x7FFFFFFF), bits), found, axis=1)

    return combine


@family("match")
def _match(decoder: Decoder, op: PtxOp, instruction: Instruction) -> None:
    if instruction.opcode not in MATCH_FORMS:
        raise ValueError("not a known form of match")
    every = instruction.parts[1] == "all"
    target, source, members = instruction.operands
    flag = None
    if isinstance(target, Pair):
        target, flag = target.first, target.second
    out = None if target == SINK else decoder.result(target)
    flag_out = None if flag is None or flag == SINK else decoder.result(flag)
    slot = decoder.read(source, instruction.parts[3])
    op.members = member = decoder.read(members, "u32")
    pred, negated = decoder.guard(instruction)

    def run(state: PtxState) -> None:
        some, mask = state.active(pred, negated)
        if not some:
            return
        here = own_members(state, member, mask)
        values = full(state, slot)
        same = (values[:, :, None] == values[:, None, :]) & here
        bits = (same * _BITS).sum(axis=2, dtype=np.uint32)
        if every:
            agreed = (same | ~here).all(axis=2)
            bits = np.where(agreed, bits, np.uint32(0))
            if flag_out is not None:
                state.put(flag_out, agreed, mask)
        if out is not None:
            state.put(out, bits, mask)

    op.run = run


@family("activemask")
def _active_mask(decoder: Decoder, op: PtxOp, instruction: Instruction) -> None:
    out = decoder.result(instruction.operands[0])
    op.run = lambda state: state.put(
        out,
        np.uint32(0xFFFFFFFF) if state.mask is None else (state.mask * _BITS).sum(axis=1, dtype=np.uint32)[:, None],
        state.mask,
    )


@family("elect")
def _elect(decoder: Decoder, op: PtxOp, instruction: Instruction) -> None:
    """elect.sync d|p, members: the lowest running member is the leader (the manual leaves the choice open)."""
    target, members = instruction.operands
    out = None if target.first == SINK else decoder.result(target.first)
    flag = decoder.result(target.second)
    op.members = member = decoder.read(members, "u32")

    def run(state: PtxState) -> None:
        leader = np.argmax(active_lanes(state, member), axis=1)[:, None]
        state.put(flag, leader == LANES, state.mask)
        if out is not None:
            state.put(out, leader.astype(np.uint32), state.mask)

    op.run = run
