"""Global, flat, buffer, scratch and scalar memory instructions."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_utils.errors import VirtualGpuError
from gpu_utils.virtual.amdgcn import state as st
from gpu_utils.virtual.amdgcn.buffer import buffer_address
from gpu_utils.virtual.amdgcn.operands import Decoder
from gpu_utils.virtual.amdgcn.parse import Instruction
from gpu_utils.virtual.machine import Op, nothing, source_of

Run = Callable[[Any], Any]
_LDS_HIGH, _PRIVATE_HIGH = 0x10000, 0x20000


@dataclass(frozen=True, slots=True)
class Width:
    """bytes of one word, words, signed extension, and where 16 bits go in the register: "" (whole), "lo" or "hi"."""

    width: int
    count: int = 1
    signed: bool = False
    half: str = ""


WIDTHS: dict[str, Width] = {
    "dword": Width(4),
    "dwordx2": Width(4, 2),
    "dwordx3": Width(4, 3),
    "dwordx4": Width(4, 4),
    "b32": Width(4),
    "b64": Width(4, 2),
    "b96": Width(4, 3),
    "b128": Width(4, 4),
    "ubyte": Width(1),
    "u8": Width(1),
    "sbyte": Width(1, signed=True),
    "i8": Width(1, signed=True),
    "byte": Width(1),
    "b8": Width(1),
    "ushort": Width(2),
    "u16": Width(2),
    "sshort": Width(2, signed=True),
    "i16": Width(2, signed=True),
    "short": Width(2),
    "b16": Width(2),
    "short_d16": Width(2, half="lo"),
    "short_d16_hi": Width(2, half="hi"),
    "d16_b16": Width(2, half="lo"),
    "d16_hi_b16": Width(2, half="hi"),
    "ubyte_d16": Width(1, half="lo"),
    "ubyte_d16_hi": Width(1, half="hi"),
    "sbyte_d16": Width(1, signed=True, half="lo"),
    "sbyte_d16_hi": Width(1, signed=True, half="hi"),
    "d16_u8": Width(1, half="lo"),
    "d16_hi_u8": Width(1, half="hi"),
    "d16_i8": Width(1, signed=True, half="lo"),
    "d16_hi_i8": Width(1, signed=True, half="hi"),
    "byte_d16_hi": Width(1, half="hi"),
    "d16_hi_b8": Width(1, half="hi"),
    "u16_d16": Width(2, half="lo"),
    "u16_d16_hi": Width(2, half="hi"),
    "u8_d16": Width(1, half="lo"),
    "u8_d16_hi": Width(1, half="hi"),
    "i8_d16": Width(1, signed=True, half="lo"),
    "i8_d16_hi": Width(1, signed=True, half="hi"),
    "b16_d16_hi": Width(2, half="hi"),
    "b8_d16_hi": Width(1, half="hi"),
}
ATOMIC = {
    "add": ("add", 4),
    "sub": ("sub", 4),
    "and": ("and", 4),
    "or": ("or", 4),
    "xor": ("xor", 4),
    "swap": ("exch", 4),
    "smin": ("smin", 4),
    "smax": ("smax", 4),
    "umin": ("umin", 4),
    "umax": ("umax", 4),
    "inc": ("inc", 4),
    "dec": ("dec", 4),
    "cmpswap": ("cas", 4),
    "add_f32": ("fadd", 4),
    "add_f64": ("fadd", 8),
    "min_f64": ("fmin", 8),
    "max_f64": ("fmax", 8),
    "pk_add_f16": ("pk_fadd_f16", 4),
    "pk_add_bf16": ("pk_fadd_bf16", 4),
    "min_f32": ("fmin", 4),
    "max_f32": ("fmax", 4),
    "min_num_f32": ("fmin", 4),
    "max_num_f32": ("fmax", 4),
    "fmin": ("fmin", 4),
    "fmax": ("fmax", 4),
}
for _name, _kind in (("add", "add"), ("sub", "sub"), ("inc", "inc"), ("dec", "dec"), ("min", "umin"), ("max", "umax")):
    ATOMIC[f"{_name}_u32"], ATOMIC[f"{_name}_u64"] = (_kind, 4), (_kind, 8)
for _name, _kind in (("and", "and"), ("or", "or"), ("xor", "xor"), ("swap", "exch"), ("cmpswap", "cas")):
    ATOMIC[f"{_name}_b32"], ATOMIC[f"{_name}_b64"] = (_kind, 4), (_kind, 8)
for _name, _kind in (("min", "smin"), ("max", "smax")):
    ATOMIC[f"{_name}_i32"], ATOMIC[f"{_name}_i64"] = (_kind, 4), (_kind, 8)
for _name in ("add", "sub", "and", "or", "xor", "swap", "smin", "smax", "umin", "umax", "inc", "dec", "cmpswap"):
    ATOMIC[f"{_name}_x2"] = (ATOMIC[_name][0], 8)


def extend(value: np.ndarray, width: Width) -> np.ndarray:
    """A loaded word as a 32-bit register value."""
    if width.width == 4:
        return value
    if width.signed:
        return value.view(f"i{width.width}").astype(np.int32).view(np.uint32)
    return value.astype(np.uint32)


def put_loaded(s: Any, out: int, values: list[np.ndarray], width: Width) -> None:
    """Write loaded words into registers, honouring d16 halves."""
    for i, value in enumerate(values):
        value = extend(value, width)
        if width.half == "lo":
            value = (s.U[out] & np.uint32(0xFFFF0000)) | (value & np.uint32(0xFFFF))
        elif width.half == "hi":
            value = (s.U[out] & np.uint32(0xFFFF)) | value << np.uint32(16)
        s.put(out + i, value)


def stored(s: Any, data: int, width: Width) -> list[np.ndarray]:
    """The words that a store takes from registers."""
    values = []
    for i in range(width.count):
        value = s.U[data + i]
        if width.half == "hi":
            value = value >> np.uint32(16)
        values.append(value if width.width == 4 else value.astype(f"u{width.width}"))
    return values


def returns_value(mods: dict[str, Any]) -> bool:
    """Whether an atomic gives the old value back: sc0 (gfx940), glc (before), th:TH_ATOMIC_RETURN (gfx12)."""
    return bool(mods.get("sc0") or mods.get("glc") or "RETURN" in str(mods.get("th", "")))


def _coherent(mods: dict[str, Any]) -> bool:
    """Whether a load sees what other compute units have stored: sc1 (gfx940), glc (before), a scope (gfx12)."""
    return bool(mods.get("sc1") or mods.get("glc") or mods.get("scope") in ("SCOPE_DEV", "SCOPE_SYS"))


def _volatile(mods: dict[str, Any], gfx9: bool) -> bool:
    """Whether a load that sees what others stored may be a volatile one, not a relaxed atomic at the agent's scope.

    LLVM's AMDGPUUsage: volatile is sc0 sc1 (gfx940), glc dlc (gfx10, gfx11), SCOPE_SYS (gfx12); on gfx90a both are glc.
    """
    old = mods.get("glc") and (gfx9 or mods.get("dlc"))
    return bool(old or (mods.get("sc0") and mods.get("sc1")) or mods.get("scope") == "SCOPE_SYS")


def decode(decoder: Decoder, ins: Instruction, op: Op) -> tuple[Run, str, str]:
    """(run, kind, ends) of a memory instruction."""
    name = ins.mnemonic
    if "_load_" in name:
        op.polls = op.communicates = _coherent(ins.modifiers)
        op.acquires = op.polls and _volatile(ins.modifiers, decoder.gfx9)
    if name.startswith(("s_load_", "s_buffer_load_")):
        return _scalar_load(decoder, ins, op), "scalar_memory", ""
    if re.match(r"(buffer|global|flat)_(wb|inv|gl0_inv|gl1_inv|wbl2|wbinv|prefetch)", name) or name.startswith(
        "s_prefetch"
    ):
        return nothing, "wait", ""
    if "_async_" in name:
        return _asynchronous(decoder, ins, op), "global", ""
    if name.startswith("cluster_load_") and decoder.gfx125:  # M0 lists the blocks of the cluster that get it too
        name = name.replace("cluster", "global", 1)
        decoder.reads_row(st.M0)
    match = re.match(r"(global|flat|buffer|scratch)_(load_lds|load|store|atomic)_(\w+)$", name)
    if not match:
        raise decoder.unsupported()
    decoder.masked()
    space, action, rest = match.groups()
    if rest not in (ATOMIC if action == "atomic" else WIDTHS):
        raise decoder.unsupported()
    width = Width(ATOMIC[rest][1]) if action == "atomic" else WIDTHS[rest]
    if space == "buffer":
        address = buffer_address(decoder, ins, width.width, width.count)
    else:
        address = _address(decoder, ins, space, action, width.width * width.count)
    if action == "load_lds" or ins.modifiers.get("lds"):
        return _load_to_lds(decoder, ins, op, width, address), "global", ""
    if action == "atomic":
        return _atomic(decoder, ins, op, *ATOMIC[rest], address, space), "global", ""
    if action == "load":
        return _load(decoder, ins, op, width, address, space), "global", ""
    return _store(decoder, ins, op, width, address, space), "global", ""


def _int(mods: dict[str, Any], name: str = "offset") -> int:
    return int(mods.get(name, 0))


# address functions: as buffer_address says


def _address(decoder: Decoder, ins: Instruction, space: str, action: str, size: int) -> Callable[[Any], Any]:
    """size: bytes of one lane, with which `scale_offset` (gfx1250) multiplies the register that a base is added to."""
    ops, offset = ins.operands, np.int64(_int(ins.modifiers))
    store_like = action == "store" or (action == "atomic" and not _has_result(ins)) or action == "load_lds"
    vector = ops[0] if store_like else ops[1]
    scalar = ops[-1] if space != "flat" else "off"
    if space == "scratch":
        return _scratch_address(decoder, vector, scalar, int(offset), _scale(ins, size))
    if scalar in ("off", "null") or (decoder.register(scalar) or (0,))[0] < st.SGPR:
        row = decoder.source(vector, 2)

        def wide(s: Any) -> np.ndarray:
            address = s.pair(row).view(np.int64)
            return address + offset if offset else address

        return lambda s: (wide(s), s.mask, None)
    row, base, scale = decoder.source(vector), decoder.source(scalar, 2), _scale(ins, size)
    if decoder.gfx125:  # signed there: LLVM's GCNSubtarget::hasSignedGVSOffset
        return lambda s: (s.I[row].astype(np.int64) * scale + (s.pair(base).view(np.int64) + offset), s.mask, None)
    return lambda s: (s.U[row].astype(np.int64) + (s.pair(base).view(np.int64) + offset), s.mask, None)


def _scale(ins: Instruction, size: int) -> int:
    return size if ins.modifiers.get("scale_offset") else 1


def _has_result(ins: Instruction) -> bool:
    """Whether the first operand of an atomic is its result."""
    plain = 3 if not ins.mnemonic.startswith("flat") else 2
    return len(ins.operands) > plain


def _scratch_address(decoder: Decoder, vector: str, scalar: str, offset: int, scale: int) -> Callable[[Any], Any]:
    parts = [(decoder.source(text), by) for text, by in ((vector, scale), (scalar, 1)) if text not in ("off", "null")]

    def address(s: Any) -> Any:
        total = s.scratch_base + offset
        for row, by in parts:
            total = total + s.I[row].astype(np.int64) * by
        return total, s.mask, None

    return address


# actions


def _load(decoder: Decoder, ins: Instruction, op: Op, width: Width, address: Any, space: str) -> Run:
    out = decoder.result(ins.operands[0], width.count, keeps=bool(width.half))
    flat = space == "flat"

    def run(s: Any) -> None:
        where, mask, words = address(s)
        values = _flat_load(s, op, where, width, mask) if flat else _words(s, op, where, width, mask, words)
        put_loaded(s, out, values, width)

    return run


def _words(
    s: Any, op: Op, where: Any, width: Width, mask: np.ndarray | None, words: list[np.ndarray] | None
) -> list[np.ndarray]:
    """What is loaded; words past a buffer's end read zero."""
    if words is not None:
        one = Width(width.width)
        return [_words(s, op, where + one.width * i, one, word, None)[0] for i, word in enumerate(words)]
    values = s.memory.load(s, op, where, width.width, width.count, mask, aligned=False)
    if mask is None or mask is s.mask:
        return values
    return [value * mask for value in values]


def _store(decoder: Decoder, ins: Instruction, op: Op, width: Width, address: Any, space: str) -> Run:
    data = decoder.source(ins.operands[0 if space == "buffer" else 1], width.count)
    flat = space == "flat"

    def run(s: Any) -> None:
        where, mask, words = address(s)
        values = stored(s, data, width)
        if flat:
            _flat_store(s, op, where, values, width, mask)
        elif words is not None:
            for i, (value, word) in enumerate(zip(values, words, strict=True)):
                s.memory.store(s, op, where + width.width * i, [value], width.width, word, aligned=False)
        else:
            s.memory.store(s, op, where, values, width.width, mask, aligned=False)

    return run


def _atomic(decoder: Decoder, ins: Instruction, op: Op, kind: str, width: int, address: Any, space: str) -> Run:
    ops = ins.operands
    gives = returns_value(ins.modifiers)
    if space == "buffer":
        taken = ops[0]
    else:
        gives = _has_result(ins)
        taken = ops[2 if gives else 1]
    words_taken = width // 4 * (2 if kind == "cas" else 1)
    out, data = (decoder.result(ops[0], width // 4) if gives else 0), decoder.source(taken, words_taken)
    op.polls, op.communicates, op.takes = True, True, kind in ("cas", "exch")
    op.in_order = True

    def words(s: Any, row: int) -> np.ndarray:
        return s.U[row] if width == 4 else s.pair(row)

    def run(s: Any) -> None:
        where, mask, _ = address(s)
        value = words(s, data)
        compare = words(s, data + width // 4) if kind == "cas" else None
        if space == "flat":
            lds = where >> 32 == _LDS_HIGH
            if lds.any():
                raise VirtualGpuError(
                    f"kernel {s.program.name}{source_of(op)}: `{op.text}` is a flat atomic on an address in LDS; "
                    "a virtual GPU executes flat atomics on global memory; LDS has its own, such as ds_add_u32"
                )
        old = s.memory.atomic(s, op, where, width, kind, value, compare, mask, gives)
        if gives:
            if mask is not s.mask:
                old = np.where(mask, old, old.dtype.type(0))
            if width == 4:
                s.put(out, old)
            else:
                s.put_pair(out, old)

    return run


def _load_to_lds(decoder: Decoder, ins: Instruction, op: Op, width: Width, address: Any) -> Run:
    """Global memory straight into LDS: lane i writes at M0 + offset + i * size."""
    offset, size = _int(ins.modifiers), max(4, width.width * width.count)
    decoder.reads_row(st.M0)

    def run(s: Any) -> None:
        where, mask, words = address(s)
        values = [extend(value, width) for value in _words(s, op, where, width, mask, words)]
        at = s.U[st.M0].astype(np.int64) + offset + s.lane * size
        s.shared.store(s, op, np.broadcast_to(at, (s.waves, s.lanes)), values, 4, s.mask)

    return run


def _asynchronous(decoder: Decoder, ins: Instruction, op: Op) -> Run:
    """gfx1250: memory straight into LDS, or from there, at an address in LDS of each lane; done when it is issued.

    The constant offset counts on both sides (LLVM's IntrinsicsAMDGPU.td). A cluster of one block gets what it loads.
    """
    match = re.match(r"(?:(global|cluster)_load_async_to|global_store_async_from)_lds_(b8|b32|b64|b128)$", ins.mnemonic)
    if not match or not decoder.gfx125:
        raise decoder.unsupported()
    decoder.masked()
    loads, width = bool(match[1]), WIDTHS[match[2]]
    if match[1] == "cluster":
        decoder.reads_row(st.M0)
    local, offset = decoder.source(ins.operands[0 if loads else 1]), _int(ins.modifiers)
    address = _address(decoder, ins, "global", "load" if loads else "store", width.width * width.count)

    def run(s: Any) -> None:
        where, mask, _ = address(s)
        if loads:
            values = s.memory.load(s, op, where, width.width, width.count, mask, aligned=False)
            s.shared.store(s, op, s.U[local], values, width.width, mask, offset)
        else:
            values = s.shared.load(s, op, s.U[local], width.width, width.count, mask, offset)
            s.memory.store(s, op, where, values, width.width, mask, aligned=False)

    return run


def _flat_load(s: Any, op: Op, where: np.ndarray, width: Width, mask: np.ndarray | None) -> list[np.ndarray]:
    high = where >> 32
    lds = high == _LDS_HIGH
    private = high == _PRIVATE_HIGH
    if private.any():
        where = np.where(private, s.scratch_base + (where & 0xFFFFFFFF), where)
    if not lds.any():
        return s.memory.load(s, op, where, width.width, width.count, mask, aligned=False)
    inside = lds if mask is None else lds & mask
    first = s.shared.load(s, op, np.where(inside, where & 0xFFFFFFFF, 0), width.width, width.count, inside)
    outside = ~lds if mask is None else ~lds & mask
    second = s.memory.load(s, op, where, width.width, width.count, outside, aligned=False)
    return [np.where(lds, a, b) for a, b in zip(first, second, strict=True)]


def _flat_store(
    s: Any, op: Op, where: np.ndarray, values: list[np.ndarray], width: Width, mask: np.ndarray | None
) -> None:
    high = where >> 32
    lds = high == _LDS_HIGH
    private = high == _PRIVATE_HIGH
    if private.any():
        where = np.where(private, s.scratch_base + (where & 0xFFFFFFFF), where)
    if not lds.any():
        s.memory.store(s, op, where, values, width.width, mask, aligned=False)
        return
    inside = lds if mask is None else lds & mask
    s.shared.store(s, op, np.where(inside, where & 0xFFFFFFFF, 0), values, width.width, inside)
    s.memory.store(s, op, where, values, width.width, ~lds if mask is None else ~lds & mask, aligned=False)


def _scalar_load(decoder: Decoder, ins: Instruction, op: Op) -> Run:
    match = re.match(r"s_(buffer_)?load_(?:dword(?:x(\d+))?|b(\d+)|([iu])(8|16))$", ins.mnemonic)
    if not match or (match[4] and not decoder.gfx12):
        raise decoder.unsupported()
    width = int(match[5]) // 8 if match[4] else 4
    count = int(match[3]) // 32 if match[3] else int(match[2] or 1)
    is_buffer = bool(match[1])
    out, base = decoder.result(ins.operands[0], count), decoder.source(ins.operands[1], 4 if is_buffer else 2)
    text = ins.operands[2] if len(ins.operands) > 2 else "0"
    extra, scale = _int(ins.modifiers), np.int64(_scale(ins, width * count))
    offset = decoder.getter(text, "u32") if decoder.register(text) else None
    number = int(text, 0) if offset is None else 0
    narrow = f"{match[4]}{width}"

    def run(s: Any) -> None:
        start = s.pair(base).view(np.int64)
        if is_buffer:
            start = start & 0xFFFFFFFFFFFF
        address = start + (number + extra)
        if offset is not None:
            address = address + offset(s).astype(np.int64) * scale
        if len(address) != s.waves:
            address = np.broadcast_to(address, (s.waves, 1))
        address = address & -np.int64(width)
        values = s.memory.load_scalar(s, op, address, count, s.act_column, width)
        if width < 4:
            values = [values[0].view(narrow).astype(np.int32).view(np.uint32)]
        for i, value in enumerate(values):
            s.put_scalar(out + i, value)

    return run
