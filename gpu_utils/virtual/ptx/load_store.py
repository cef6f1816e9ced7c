"""Loads, stores and atomics of PTX in every state space; cache and ordering hints change nothing here.

The batch runs its instructions one after the other, so every access is already sequentially consistent.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpu_utils.virtual.ptx.decode import Decoder, PtxOp, family, parse_address
from gpu_utils.virtual.ptx.forms import BYTES
from gpu_utils.virtual.ptx.state import PtxState
from gpu_utils.virtual.ptx.syntax import SINK, Address, Instruction, Reg, Symbol, Vector
from gpu_utils.virtual.ptx.warp import full

SPACES = ("global", "shared", "local", "const", "param")
HINTS = {
    "weak",
    "volatile",
    "relaxed",
    "acquire",
    "release",
    "acq_rel",
    "mmio",
    "cta",
    "cluster",
    "gpu",
    "sys",
    "nc",
    "ca",
    "cg",
    "cs",
    "lu",
    "cv",
    "wb",
    "wt",
    "unified",
    "noftz",
    "aligned",
}
ORDERED = {"volatile", "acquire", "relaxed"}  # what others have written is seen
# What orders programs by itself, at the scope of the GPU; a volatile access is relaxed by the PTX manual, and taken for
# more here, see global_order.py.
ACQUIRES = {"acquire", "acq_rel", "volatile"}
RELEASES = {"release", "acq_rel"}
NARROW = {"cta", "cluster"}  # scopes within a block, clusters having one block here
VECTORS = {"v2": 2, "v4": 4, "v8": 8}
LOAD_FORMS = tuple(
    f"ld{s}{v}.{t}"
    for s in ("", *(f".{n}" for n in SPACES))
    for v in ("", ".v2", ".v4")
    for t in ("b8", "u8", "s8", "b16", "u16", "s16", "b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64")
)
STORE_FORMS = tuple("st" + form[2:] for form in LOAD_FORMS if ".const" not in form and ".param" not in form)
# (operation, type) -> kind of Memory.atomic
ATOMICS: dict[tuple[str, str], str] = {
    **{("add", t): "add" for t in ("u32", "s32", "u64", "s64")},
    **{("add", t): "fadd" for t in ("f16", "f32", "f64")},
    ("add", "bf16"): "fadd_bf16",
    ("add", "f16x2"): "pk_fadd_f16",
    ("add", "bf16x2"): "pk_fadd_bf16",
    **{(op, t): t[0] + op for op in ("min", "max") for t in ("u32", "s32", "u64", "s64")},
    **{(op, t): op for op in ("and", "or", "xor") for t in ("b32", "b64")},
    ("inc", "u32"): "inc",
    ("dec", "u32"): "dec",
    **{(op, t): op for op in ("exch", "cas") for t in ("b16", "b32", "b64")},
}


def modifiers(instruction: Instruction, known: set[str] = HINTS) -> tuple[str, int, str, list[str]]:
    """(space or "", vector length, type, what is left) of an opcode; raises ValueError for an unknown modifier."""
    space, count, kind, rest = "", 1, "", []
    for part in instruction.parts[1:]:
        stem = part.split("::")[0]
        if stem in SPACES:
            if part in ("shared::cluster",):
                pass  # a cluster has one block here
            space = stem
        elif part in VECTORS:
            count = VECTORS[part]
        elif part in BYTES and part != "pred":
            kind = part
        elif part in known or stem in ("L1", "L2"):
            continue
        else:
            rest.append(part)
    return space, count, kind, rest


def address_of(state: PtxState, slot: int, offset: int) -> np.ndarray:
    """int64 (warps, 32): a base row plus an offset; the sum of a 32-bit base wraps at 32 bits."""
    row = full(state, slot)
    if row.dtype.itemsize == 8:
        return row.view(np.int64) + offset if row.flags.c_contiguous else row.astype(np.int64) + offset
    return (row.view(np.uint32) + np.uint32(offset & 0xFFFFFFFF)).astype(np.int64)


def parts_of(state: PtxState, space: str, where: np.ndarray, mask: np.ndarray | None) -> list[tuple]:
    """[(memory, addresses for it, mask)]: generic addresses go to shared memory where they lie in its window."""
    if space == "shared":
        return [(state.shared, where, mask)]
    if space:
        return [(state.memory, where, mask)]
    inside = (where >= state.shared.base) & (where < state.shared.base + state.shared.bytes.size)
    chosen = inside if mask is None else inside & mask
    if not chosen.any():
        return [(state.memory, where, mask)]
    offsets = where - state.generic_base("shared")
    others = ~inside if mask is None else ~inside & mask
    if not others.any():
        return [(state.shared, offsets, mask)]
    return [(state.shared, offsets, chosen), (state.memory, where, others)]


def load(state: PtxState, op: PtxOp, space: str, where: np.ndarray, size: int, count: int, mask) -> list[np.ndarray]:
    """Words of every lane, from one space or, by a generic address, from two."""
    (memory, address, part), *others = parts_of(state, space, where, mask)
    words = memory.load(state, op, address, size, count, part)
    for memory, address, part in others:
        more = memory.load(state, op, address, size, count, part)
        words = [np.where(part, new, old) for new, old in zip(more, words, strict=True)]
    return words


def extend(value: np.ndarray, kind: str, dtype: np.dtype) -> np.ndarray:
    """A loaded word in the type of its register: the sign is repeated for signed types."""
    if value.dtype == dtype:
        return value
    if kind[0] == "s":
        return value.view(f"i{value.dtype.itemsize}").astype(f"i{dtype.itemsize}").view(dtype)
    return value.astype(dtype)


def _orders(instruction: Instruction, words: set[str]) -> bool:
    """Whether an access says one of `words`, at the scope of the GPU."""
    return not words.isdisjoint(instruction.parts) and NARROW.isdisjoint(instruction.parts)


def _items(operand: Any, count: int) -> tuple:
    items = operand.items if isinstance(operand, Vector) else (operand,)
    if len(items) != count:
        raise ValueError(f"{len(items)} registers for a vector of {count}")
    return items


def read_policy(decoder: Decoder, operands: tuple) -> None:
    """A cache policy is read, and changes nothing here."""
    for operand in operands:
        if isinstance(operand, Reg):
            decoder.raw(operand)


def kernel_parameter(decoder: Decoder, address: Address) -> bool:
    """Whether ld.param reads the kernel's own buffer (a register base comes from the address of a parameter)."""
    if isinstance(address.base, Symbol):
        return decoder.addresses.get(address.base.name, ("",))[0] == "kernel_param"
    return True


@family("ld", "ldu")
def _load(decoder: Decoder, op: PtxOp, instruction: Instruction) -> None:
    space, count, kind, rest = modifiers(instruction)
    if rest or not kind:
        raise ValueError(f"unknown modifier {'.'.join(rest)}")
    target, address = instruction.operands[:2]
    read_policy(decoder, instruction.operands[2:])
    items = _items(target, count)
    size = BYTES[kind]
    slot, offset = parse_address(decoder, address)
    outs = [None if item == SINK else decoder.result(item) for item in items]
    pred, negated = decoder.guard(instruction)
    op.polls = op.communicates = not ORDERED.isdisjoint(instruction.parts)
    op.acquires = _orders(instruction, ACQUIRES)
    if space == "param":
        op.kind = "scalar_memory"
        if kernel_parameter(decoder, address):
            _load_parameter(op, slot, offset, kind, outs, pred, negated)
            return
        space = "local"
    else:
        op.kind = "shared" if space == "shared" else "global"
    if space == "":
        decoder.generic = True

    def run(state: PtxState) -> None:
        some, mask = state.active(pred, negated)
        if not some:
            return
        if space == "shared":
            words = state.shared.load(state, op, full(state, slot), size, count, mask, offset)
        elif space == "local":
            where = address_of(state, slot, offset)
            state.check_local(op, where, size * count, mask, "reads")
            words = state.read_local(where, size, count)
        else:
            words = load(state, op, space, address_of(state, slot, offset), size, count, mask)
        for out, word in zip(outs, words, strict=True):
            if out is not None:
                row = state.r[out]
                word = extend(word, kind, row.dtype)
                if mask is None:
                    np.copyto(row, word)
                else:
                    state.put(out, word, mask)

    op.run = run


def _load_parameter(op, slot: int, offset: int, kind: str, outs: list, pred: int | None, negated: bool) -> None:
    size = BYTES[kind]
    dtype = np.dtype(f"u{size}")

    def run(state: PtxState) -> None:
        some, mask = state.active(pred, negated)
        if not some:
            return
        base = state.r[slot]
        for part, out in enumerate(outs):
            if out is None:
                continue
            if base.ndim == 0:
                at = int(base) + offset + part * size
                word = state.params[at : at + size].view(dtype)
            else:
                index = (base.astype(np.int64) + offset + part * size)[..., None] + np.arange(size)
                word = state.params[np.minimum(index, len(state.params) - 1)].view(f"u{size}")[..., 0]
            state.put(out, extend(word, kind, state.r[out].dtype), mask)

    op.run = run


@family("st")
def _store(decoder: Decoder, op: PtxOp, instruction: Instruction) -> None:
    space, count, kind, rest = modifiers(instruction)
    if rest or not kind:
        raise ValueError(f"unknown modifier {'.'.join(rest)}")
    address, source = instruction.operands[:2]
    read_policy(decoder, instruction.operands[2:])
    size = BYTES[kind]
    plain = f"b{8 * size}" if kind not in ("f32", "f64") else kind
    slots = [decoder.read(item, plain) for item in _items(source, count)]
    slot, offset = parse_address(decoder, address)
    pred, negated = decoder.guard(instruction)
    op.kind = "shared" if space == "shared" else "scalar_memory" if space == "param" else "global"
    op.communicates = not ORDERED.isdisjoint(instruction.parts)
    op.releases = "relaxed" not in instruction.parts and NARROW.isdisjoint(instruction.parts)
    if space == "":
        decoder.generic = True
    dtype = np.dtype(f"u{size}")

    def run(state: PtxState) -> None:
        some, mask = state.active(pred, negated)
        if not some:
            return
        values = []
        for each in slots:
            value = full(state, each)
            if value.dtype.itemsize != size:
                value = value.astype(dtype)
            values.append(value.view(dtype) if value.dtype.itemsize == size else value)
        if space == "shared":
            state.shared.store(state, op, full(state, slot), values, size, mask, offset)
            return
        where = address_of(state, slot, offset)
        if space in ("local", "param"):
            state.check_local(op, where, size * len(values), mask, "writes")
            state.write_local(where, values, size, mask)
            return
        for memory, address, part in parts_of(state, space, where, mask):
            memory.store(state, op, address, values, size, part)

    op.run = run


@family("atom", "red")
def _atomic(decoder: Decoder, op: PtxOp, instruction: Instruction) -> None:
    space, count, kind, rest = modifiers(instruction)
    if len(rest) != 1 or (rest[0], kind) not in ATOMICS or space not in ("", "global", "shared"):
        raise ValueError("not a known form of an atomic")
    name = ATOMICS[rest[0], kind]
    operands = list(instruction.operands)
    returns = instruction.parts[0] == "atom"
    op.polls, op.takes = returns, returns and rest[0] in ("exch", "cas")
    op.communicates = returns or not ORDERED.isdisjoint(instruction.parts)
    op.in_order = space != "shared"
    op.acquires, op.releases = (_orders(instruction, words) for words in (ACQUIRES, RELEASES))
    target = operands.pop(0) if returns else SINK
    address, source = operands[:2]
    compare = None
    if rest[0] == "cas":
        compare, source = operands[1:3]
    read_policy(decoder, tuple(operands[2 if compare is None else 3 :]))
    size = BYTES[kind]
    plain = kind if kind in ("f32", "f64") else f"b{8 * size}"
    slots = [decoder.read(item, plain) for item in _items(source, count)]
    compare_slot = None if compare is None else decoder.read(compare, plain)
    outs = (
        [None] * count if target == SINK else [None if t == SINK else decoder.result(t) for t in _items(target, count)]
    )
    slot, offset = parse_address(decoder, address)
    pred, negated = decoder.guard(instruction)
    op.kind = "shared" if space == "shared" else "global"
    if space == "":
        decoder.generic = True
    dtype = np.dtype(f"u{size}")

    def word(state: PtxState, each: int) -> np.ndarray:
        value = full(state, each)
        return np.ascontiguousarray(value).view(dtype)

    def run(state: PtxState) -> None:
        some, mask = state.active(pred, negated)
        if not some:
            return
        where = address_of(state, slot, offset)
        expected = None if compare_slot is None else word(state, compare_slot)
        for step, (each, out) in enumerate(zip(slots, outs, strict=True)):
            for memory, address, part in parts_of(state, space, where + step * size, mask):
                old = memory.atomic(state, op, address, size, name, word(state, each), expected, part, returns)
                if out is not None:
                    state.put(out, old, part)

    op.run = run


@family("isspacep")
def _is_space(decoder: Decoder, op: PtxOp, instruction: Instruction) -> None:
    space = instruction.parts[1].split("::")[0]
    target, source = instruction.operands
    out, slot = decoder.result(target), decoder.read(source, "b64")
    pred, negated = decoder.guard(instruction)
    decoder.generic = True

    def run(state: PtxState) -> None:
        some, mask = state.active(pred, negated)
        if not some:
            return
        address = full(state, slot).astype(np.int64)
        shared = (address >= state.shared.base) & (address < state.shared.base + state.shared.bytes.size)
        start = state.local.ctypes.data
        local = (address >= start) & (address < start + state.local.size)
        data = state.program.info.data
        const = (address >= data.ctypes.data) & (address < data.ctypes.data + data.size)
        inside = {"shared": shared, "local": local, "const": const, "global": ~(shared | local)}[space]
        state.put(out, inside, mask)

    op.run = run


@family("prefetch", "prefetchu", "applypriority", "discard", "createpolicy")
def _nothing(decoder: Decoder, op: PtxOp, instruction: Instruction) -> None:
    """Hints to caches. createpolicy's result is a policy that no load looks at."""
    op.kind = "wait"
    op.run = lambda state: None
    if instruction.parts[0] == "createpolicy":
        out = decoder.result(instruction.operands[0])
        op.run = lambda state: state.put(out, 0, state.mask)
