"""Asynchronous copies and what waits for them: cp.async, mbarrier, fences, and hints that do nothing here.

A copy is done when it is issued, so commit and wait change nothing: a kernel that forgets to wait still reads the
right data on the virtual GPU; the sanitizers find it. An mbarrier is the 64-bit word in shared memory that it is on
hardware, in a layout of ours (the manual leaves it opaque): phase, expected arrivals, arrivals still pending, pending
bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpu_utils.virtual.ptx.decode import Decoder, PtxOp, family, parse_address
from gpu_utils.virtual.ptx.load_store import address_of, read_policy
from gpu_utils.virtual.ptx.state import PtxState
from gpu_utils.virtual.ptx.syntax import SINK, Imm, Instruction
from gpu_utils.virtual.ptx.warp import full

HANDLERS: dict[str, Callable[[Decoder, PtxOp, Instruction], None]] = {}  # filled by tensor.py
CP_ASYNC_FORMS = tuple(f"cp.async.{c}.shared.global" for c in ("ca", "cg"))


@family("cp")
def _copy(decoder: Decoder, op: PtxOp, instruction: Instruction) -> None:
    parts = instruction.parts
    if parts[1:5] == ["reduce", "async", "bulk", "tensor"]:
        HANDLERS["reduce"](decoder, op, instruction)
        return
    if parts[1] != "async":
        raise ValueError("not a known form of cp")
    if parts[2] in ("commit_group", "wait_group", "wait_all") or (
        parts[2] == "bulk" and parts[3] in ("commit_group", "wait_group")
    ):
        decoder.guard(instruction)
        op.kind = "wait"
        op.run = lambda state: None
    elif parts[2:4] == ["mbarrier", "arrive"]:
        _arrive_after_copies(decoder, op, instruction)
    elif parts[2] == "bulk":
        HANDLERS["bulk"](decoder, op, instruction)
    else:
        _copy_async(decoder, op, instruction)


def _arrive_after_copies(decoder: Decoder, op: PtxOp, instruction: Instruction) -> None:
    """cp.async.mbarrier.arrive{.noinc}.shared.b64 [mbarrier]: an arrival when this thread's copies are done: at once.

    Without .noinc the instruction first adds one to the arrivals that are pending, so that nothing changes.
    """
    parts = [part.split("::")[0] for part in instruction.parts[4:]]
    if [part for part in parts if part != "noinc"] not in (["shared", "b64"], ["b64"]):
        raise ValueError("not a known form of cp.async.mbarrier")
    if "shared" not in parts:
        raise ValueError("an mbarrier by its generic address")
    op.kind = "barrier"
    slot, offset = parse_address(decoder, instruction.operands[0])
    guard = decoder.guard(instruction)
    if "noinc" in parts:
        _arrive(op, ["mbarrier", "arrive", "copies"], slot, offset, *guard, None, None)
    else:
        _on_each(op, "copies", slot, offset, *guard, lambda word, value: word, None)


def _copy_async(decoder: Decoder, op: PtxOp, instruction: Instruction) -> None:
    """cp.async.{ca,cg}.shared.global [dst], [src], size{, src-size}: bytes past src-size are zero."""
    parts = [p.split("::")[0] for p in instruction.parts]
    if parts[2] not in ("ca", "cg") or parts[3:5] != ["shared", "global"] or any(p != "L2" for p in parts[5:]):
        raise ValueError("not a known form of cp.async")
    target, source, size, *rest = instruction.operands
    if not isinstance(size, Imm) or size.value not in (4, 8, 16):
        raise ValueError("a copy of 4, 8 or 16 bytes")
    count_bytes = int(size.value)
    policy = any("cache_hint" in p for p in instruction.parts)
    limit = decoder.read(rest.pop(0), "u32") if len(rest) > policy else None
    read_policy(decoder, tuple(rest))
    to, to_offset = parse_address(decoder, target)
    base, offset = parse_address(decoder, source)
    pred, negated = decoder.guard(instruction)
    op.kind = "global"
    width = min(count_bytes, 8)
    count = count_bytes // width

    def run(state: PtxState) -> None:
        some, mask = state.active(pred, negated)
        if not some:
            return
        where = address_of(state, base, offset)
        if limit is None:
            words = state.memory.load(state, op, where, width, count, mask)
        else:
            words = _limited(state, op, where, full(state, limit), width, count, mask)
        state.shared.store(state, op, full(state, to), words, width, mask, to_offset)

    op.run = run


def _limited(state, op, where: np.ndarray, limit: np.ndarray, width: int, count: int, mask) -> list[np.ndarray]:
    """Words of the first `limit` bytes, zero after them."""
    size = width * count
    whole = limit >= size
    if whole.all():
        return state.memory.load(state, op, where, width, count, mask)
    read = whole if mask is None else whole & mask
    words = [
        np.where(read, word, word.dtype.type(0)) for word in state.memory.load(state, op, where, width, count, read)
    ]
    part = (limit > 0) & ~whole
    part = part if mask is None else part & mask
    for length in np.unique(limit[part]):
        here = part & (limit == length)
        read_bytes = state.memory.load(state, op, where, 1, int(length), here)
        for i, byte in enumerate(read_bytes):
            word = words[i // width]
            word |= np.where(here, byte, np.uint8(0)).astype(word.dtype) << word.dtype.type(8 * (i % width))
    return words


@family("fence", "membar")
def _fence(decoder: Decoder, op: PtxOp, instruction: Instruction) -> None:
    """Memory is sequentially consistent here; a fence at the scope of the GPU orders programs, see global_order.py."""
    op.kind, parts = "wait", instruction.parts
    op.run = lambda state: None
    guard = decoder.guard(instruction)
    if instruction.opcode.startswith("fence.proxy.tensormap") and instruction.operands:
        slot, offset = parse_address(decoder, instruction.operands[0])

        def run(state: PtxState) -> None:
            if state.watch is not None:
                some, mask = state.active(*guard)
                if some:
                    state.watch.map_acquired(address_of(state, slot, offset), mask)

        op.run = run
        return
    if parts[1] in ("gl", "sys") or (
        parts[1] in ("sc", "acq_rel", "acquire", "release") and parts[2] in ("gpu", "sys")
    ):
        op.acquires, op.releases = parts[1] != "release", parts[1] != "acquire"

        def run(state: PtxState) -> None:
            some, mask = state.active(*guard)
            if some:
                state.memory.fence(state, op, mask)

        op.run = run


@family("griddepcontrol", "setmaxnreg", "nanosleep", "pmevent")
def _nothing(decoder: Decoder, op: PtxOp, instruction: Instruction) -> None:
    """Time does not pass here."""
    op.kind = "wait"
    op.run = lambda state: None


# mbarrier ----------------------------------------------------------------------------------------------------------
# word: bit 63 phase, bits 40..62 pending bytes (biased by 2**22), bits 20..39 expected, bits 0..19 pending arrivals
_BIAS = 1 << 22


def unpack(word: int) -> tuple[int, int, int, int]:
    """(phase, pending bytes, expected arrivals, pending arrivals)."""
    return word >> 63, ((word >> 40) & 0x7FFFFF) - _BIAS, (word >> 20) & 0xFFFFF, word & 0xFFFFF


def pack(phase: int, pending_bytes: int, expected: int, pending: int) -> int:
    return phase << 63 | (pending_bytes + _BIAS) << 40 | expected << 20 | pending


def settle(phase: int, pending_bytes: int, expected: int, pending: int) -> int:
    """The word, moved to the next phase when nothing is pending."""
    if pending <= 0 and pending_bytes == 0:
        return pack(1 - phase, 0, expected, expected)
    return pack(phase, pending_bytes, expected, pending)


def ledger_of(state: PtxState) -> Any:
    """What the sanitizers keep of the batch's mbarriers (`sanitize.mbarriers.Mbarriers`), or None without them."""
    return None if state.watch is None else state.watch.kept.get("mbarriers")


def barrier_words(state: PtxState, offset: np.ndarray, mask: np.ndarray | None):
    """(index into the 64-bit words of shared memory, wave, lane) of every running lane, in order."""
    flat = (offset + state.shared.block_base) >> 3
    lanes = np.argwhere(np.ones(flat.shape, bool) if mask is None else mask)
    for wave, lane in lanes:
        yield int(flat[wave, lane]), int(wave), int(lane)


@family("mbarrier")
def _mbarrier(decoder: Decoder, op: PtxOp, instruction: Instruction) -> None:
    parts = [p.split("::")[0] for p in instruction.parts]
    action = parts[1]
    op.kind = "barrier"
    operands = list(instruction.operands)
    pred, negated = decoder.guard(instruction)
    out = None
    if action in ("test_wait", "try_wait") or (action in ("arrive", "arrive_drop") and operands[0] == SINK):
        first = operands.pop(0)
        out = None if first == SINK else decoder.result(first)
    elif action in ("arrive", "arrive_drop") and not hasattr(operands[0], "base"):
        out = decoder.result(operands.pop(0))
    slot, offset = parse_address(decoder, operands.pop(0))
    token = action in ("test_wait", "try_wait") and "parity" not in parts
    count = decoder.read(operands[0], "b64" if token else "u32") if operands else None
    if action == "init":
        _on_each(op, action, slot, offset, pred, negated, lambda word, value: pack(0, 0, value, value), count)
    elif action == "inval":
        _on_each(op, action, slot, offset, pred, negated, lambda word, value: word, None)
    elif action in ("arrive", "expect_tx", "complete_tx"):
        _arrive(op, parts, slot, offset, pred, negated, count, out)
    elif action in ("test_wait", "try_wait"):
        op.communicates = True
        _test(op, parts, slot, offset, pred, negated, count, out)
    else:
        raise ValueError("not a known form of mbarrier")


def _on_each(op: PtxOp, action: str, slot: int, offset: int, pred, negated, change, count) -> None:
    """Replace the word of each running lane's barrier, one lane after the other."""

    def run(state: PtxState) -> None:
        some, mask = state.active(pred, negated)
        if not some:
            return
        where = address_of(state, slot, offset)
        values = None if count is None else full(state, count)
        words, mark = state.shared.words[8], state.shared.marks[4]
        ledger = ledger_of(state)
        if ledger is not None:
            ledger.begin()
        for index, wave, lane in barrier_words(state, where, mask):
            value = 1 if values is None else int(values[wave, lane])
            if ledger is not None and action != "init":
                ledger.check(state, op, index, wave, lane)
            before = int(words[index])
            after = change(before, value)
            words[index] = after
            mark[index] = 0x01010101
            if ledger is not None:
                ledger.changed(state, op, action, index, wave, lane, bool((before ^ after) >> 63))

    op.run = run


def arrive_once(op: PtxOp, slot: int, offset: int, pred: int | None, negated: bool) -> None:
    """op.run: each running lane arrives once at the mbarrier that it names, as tcgen05.commit does."""
    _arrive(op, ["mbarrier", "arrive", "commit"], slot, offset, pred, negated, None, None)


def _arrive(op, parts, slot, offset, pred, negated, count, out) -> None:
    expects = "expect_tx" in parts
    arrives = parts[1] == "arrive"
    completes = parts[1] == "complete_tx"

    def change(word: int, value: int) -> int:
        phase, pending_bytes, expected, pending = unpack(word)
        if completes:
            return settle(phase, pending_bytes - value, expected, pending)
        if expects:
            pending_bytes += value
            value = 1
        return settle(phase, pending_bytes, expected, pending - value if arrives else pending)

    action = next((part for part in ("copies", "commit", "relaxed") if part in parts), parts[1])
    _on_each(op, action, slot, offset, pred, negated, change, count)
    if out is None:
        return
    update = op.run

    def run(state: PtxState) -> None:
        some, mask = state.active(pred, negated)
        if some:
            before = np.zeros((state.waves, 32), np.uint64)
            for index, wave, lane in barrier_words(state, address_of(state, slot, offset), mask):
                before[wave, lane] = state.shared.words[8][index]
            update(state)
            state.put(out, before, mask)

    op.run = run


def _test(op, parts, slot, offset, pred, negated, count, out) -> None:
    """True when the phase that the operand names is over."""
    parity, acquires = "parity" in parts, "relaxed" not in parts

    def run(state: PtxState) -> None:
        some, mask = state.active(pred, negated)
        if not some:
            return
        where = address_of(state, slot, offset) + state.shared.block_base
        where = where if mask is None else np.where(mask, where, 0)
        phase = state.shared.words[8].take(where >> 3) >> np.uint64(63)
        wanted = full(state, count).astype(np.uint64)
        wanted = wanted & np.uint64(1) if parity else wanted >> np.uint64(63)
        over = phase != wanted
        ledger = ledger_of(state)
        if ledger is not None:
            ledger.waited(state, op, where >> 3, over if mask is None else over & mask, acquires)
        state.put(out, over, mask)

    op.run = run
