"""LDS instructions (ds_*), and the lane exchanges that share their encoding."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from gpu_utils.virtual.amdgcn.lanes import swizzle_source
from gpu_utils.virtual.amdgcn.mem import WIDTHS, Width, put_loaded, stored
from gpu_utils.virtual.amdgcn.operands import Decoder
from gpu_utils.virtual.amdgcn.parse import Instruction
from gpu_utils.virtual.machine import Op, nothing

Run = Callable[[Any], Any]

_ATOMIC = {
    "add": "add",
    "sub": "sub",
    "inc": "inc",
    "dec": "dec",
    "and": "and",
    "or": "or",
    "xor": "xor",
    "wrxchg": "exch",
    "storexchg": "exch",
    "cmpst": "cas",
    "cmpstore": "cas",
    "pk_add": "pk",
}


def decode(decoder: Decoder, ins: Instruction, op: Op) -> tuple[Run, str, str]:
    """(run, kind, ends)."""
    name, ops = ins.mnemonic, ins.operands
    decoder.masked()
    offset = int(ins.modifiers.get("offset", 0)) if not isinstance(ins.modifiers.get("offset"), str) else 0
    if name in ("ds_bpermute_b32", "ds_permute_b32"):
        return _permute(decoder, ops, op, offset, name == "ds_permute_b32"), "shared", ""
    if name == "ds_swizzle_b32":
        return _swizzle(decoder, ins), "shared", ""
    if name == "ds_nop":
        return nothing, "wait", ""
    match = re.match(r"ds_(read|load|write|store)(2(?:st64|_stride64)?)_b(32|64)$", name) or re.match(
        r"ds_(read|load|write|store)_2addr(?:_(stride64))?_b(32|64)$", name
    )
    if match:
        far = 64 if "64" in (match[2] or "") else 1
        words = int(match[3]) // 32
        places = [int(ins.modifiers.get(f"offset{i}", 0)) * words * 4 * far for i in (0, 1)]
        make = _read2 if match[1] in ("read", "load") else _write2
        return make(decoder, ops, op, words, places), "shared", ""
    match = re.match(r"ds_(?:read|load)_b(64|96)_tr_b(16|8|4|6)$", name) or re.match(
        r"ds_load_tr(\d+)_b(128|64)$", name
    )
    if match:
        if decoder.gfx125:
            return _load_transposed(decoder, ops, op, name, offset), "shared", ""
        return _read_transposed(decoder, ops, op, name, offset), "shared", ""
    match = re.match(r"ds_(read|load|write|store)_(\w+)$", name)
    if match and match[2] in WIDTHS:
        width = WIDTHS[match[2]]
        if match[1] in ("read", "load"):
            return _read(decoder, ops, op, width, offset), "shared", ""
        return _write(decoder, ops, op, width, offset), "shared", ""
    match = re.match(r"ds_(\w+?)(_rtn)?_(u32|i32|b32|f32|u64|i64|b64|f64|f16|bf16)$", name)
    if match:
        return _atomic(decoder, ops, op, match[1], bool(match[2]), match[3], offset), "shared", ""
    raise decoder.unsupported()


def _read(decoder: Decoder, ops: list[str], op: Op, width: Width, offset: int) -> Run:
    out, address = decoder.result(ops[0], width.count, keeps=bool(width.half)), decoder.source(ops[1])
    size, count = width.width, width.count

    def run(s: Any) -> None:
        put_loaded(s, out, s.shared.load(s, op, s.U[address], size, count, s.mask, offset), width)

    return run


def _write(decoder: Decoder, ops: list[str], op: Op, width: Width, offset: int) -> Run:
    address, data = decoder.source(ops[0]), decoder.source(ops[1], width.count)

    def run(s: Any) -> None:
        s.shared.store(s, op, s.U[address], stored(s, data, width), width.width, s.mask, offset)

    return run


def _read2(decoder: Decoder, ops: list[str], op: Op, words: int, places: list[int]) -> Run:
    out, address = decoder.result(ops[0], 2 * words), decoder.source(ops[1])

    def run(s: Any) -> None:
        parts = [s.shared.load(s, op, s.U[address], 4, words, s.mask, place) for place in places]
        for i, value in enumerate([*parts[0], *parts[1]]):
            s.put(out + i, value)

    return run


def _write2(decoder: Decoder, ops: list[str], op: Op, words: int, places: list[int]) -> Run:
    address, data = decoder.source(ops[0]), [decoder.source(text, words) for text in ops[1:3]]

    def run(s: Any) -> None:
        for row, place in zip(data, places, strict=True):
            s.shared.store(s, op, s.U[address], [s.U[row + i] for i in range(words)], 4, s.mask, place)

    return run


def _read_transposed(decoder: Decoder, ops: list[str], op: Op, name: str, offset: int) -> Run:
    """gfx950 ds_read_b64_tr_b16/b8/b4: 16 lanes read a matrix together, and lane i of them gets column i.

    Each lane reads 64 bits. A row of the matrix has 16 elements, so that with b4 it is what one lane read, with b8 two
    lanes in a row, with b16 four.
    """
    match = re.match(r"ds_read_b64_tr_b(16|8|4)$", name)
    if not match:
        raise decoder.unsupported()
    bits = int(match[1])
    out, address = decoder.result(ops[0], 2), decoder.source(ops[1])
    rows = 64 // bits
    dtype = {16: np.uint16, 8: np.uint8, 4: np.uint8}[bits]

    def run(s: Any) -> None:
        low, high = s.shared.load(s, op, s.U[address], 4, 2, s.mask, offset)
        raw = np.stack([low, high], axis=-1).view(dtype)
        if bits == 4:
            raw = np.stack([raw & 15, raw >> 4], axis=-1)
        columns = np.ascontiguousarray(raw.reshape(s.waves, -1, rows, 16).transpose(0, 1, 3, 2))
        if bits == 4:
            columns = columns[..., ::2] | columns[..., 1::2] << 4
        words = np.ascontiguousarray(columns).view(np.uint32).reshape(s.waves, s.lanes, 2)
        s.put(out, words[..., 0])
        s.put(out + 1, words[..., 1])

    return run


def _load_transposed(decoder: Decoder, ops: list[str], op: Op, name: str, offset: int) -> Run:
    """gfx1250 ds_load_tr16_b128 and ds_load_tr8_b64: lanes read rows together, and lane i of them gets column i.

    16-bit elements: eight lanes read eight rows of eight. 8-bit elements: 16 lanes read eight rows of 16, lanes 0 to 3
    and 4 to 7 the first and second half of rows 0 to 3, the next eight lanes those of rows 4 to 7. Sources: Triton's
    TargetFeatures::queryLDSTransLoadParams, the addresses that it has its kernels compute for the rows of WMMA, and for
    8 bits the example in its lowering of ds_read_tr (test ds_transpose_partitioned_remaps_lane).
    """
    match = re.match(r"ds_load_tr(?:16_b(128)|8_b(64))$", name)
    if not match:
        raise decoder.unsupported()
    words, dtype = (4, np.uint16) if match[1] else (2, np.uint8)
    out, address = decoder.result(ops[0], words), decoder.source(ops[1])

    def run(s: Any) -> None:
        raw = np.stack(s.shared.load(s, op, s.U[address], 4, words, s.mask, offset), axis=-1).view(dtype)
        turned: np.ndarray
        if words == 4:
            turned = raw.reshape(s.waves, -1, 8, 8).transpose(0, 1, 3, 2)
        else:  # upper rows, half of a row, row, column
            turned = raw.reshape(s.waves, -1, 2, 2, 4, 8).transpose(0, 1, 3, 5, 2, 4)
        turned = np.ascontiguousarray(turned).reshape(s.waves, s.lanes, -1)
        for i, word in enumerate(np.moveaxis(turned.view(np.uint32), -1, 0)):
            s.put(out + i, word)

    return run


def _atomic(decoder: Decoder, ops: list[str], op: Op, name: str, returns: bool, kind: str, offset: int) -> Run:
    if name in ("min", "max"):
        action = {"u": "u", "i": "s", "f": "f"}[kind[0]] + name
    elif name in ("min_num", "max_num"):
        action = "f" + name[:3]
    elif name == "add" and kind[0] == "f":
        action = "fadd"
    elif name == "pk_add":
        action = f"pk_fadd_{kind}"
    elif name in _ATOMIC:
        action = _ATOMIC[name]
    else:
        raise decoder.unsupported()
    width = 8 if kind.endswith("64") else 4
    out = decoder.result(ops[0], width // 4) if returns else 0
    rest = ops[1:] if returns else ops
    address, data = decoder.source(rest[0]), [decoder.source(text, width // 4) for text in rest[1:]]
    if name == "cmpst":  # the older form names the compare value first
        data = data[::-1]

    def words(s: Any, row: int) -> np.ndarray:
        return s.U[row] if width == 4 else s.pair(row)

    def run(s: Any) -> None:
        compare = words(s, data[1]) if action == "cas" else None
        old = s.shared.atomic(s, op, s.U[address], width, action, words(s, data[0]), compare, s.mask, returns, offset)
        if returns and width == 4:
            s.put(out, old)
        elif returns:
            s.put_pair(out, old)

    return run


def _permute(decoder: Decoder, ops: list[str], op: Op, offset: int, push: bool) -> Run:
    out, address, data = decoder.result(ops[0]), decoder.source(ops[1]), decoder.source(ops[2])
    lanes = decoder.lanes
    plus = np.uint32(offset)

    def index_of(s: Any) -> np.ndarray:
        index = ((s.U[address] + plus) >> np.uint32(2)).astype(np.int64) & (lanes - 1)
        return index if lanes == 64 else index & 31

    def pull(s: Any) -> None:
        index = index_of(s)
        s.counters.shuffled(op, index, s.exec_mask)
        index += np.arange(0, s.waves * lanes, lanes)[:, None]
        value = s.U[data].take(index)
        if s.exec_mask is not None:
            value = np.where(s.exec_mask.take(index), value, np.uint32(0))
        s.put(out, value)

    def send(s: Any) -> None:
        index = index_of(s)
        index += np.arange(0, s.waves * lanes, lanes)[:, None]
        result = np.zeros((s.waves, lanes), np.uint32)
        flat = result.reshape(-1)
        if s.exec_mask is None:
            flat[index] = s.U[data]  # the highest lane wins: NumPy assigns in order
        else:
            on = s.exec_mask
            flat[index[on]] = s.U[data][on]
        s.put(out, result)

    return send if push else pull


def _swizzle(decoder: Decoder, ins: Instruction) -> Run:
    out, data = decoder.result(ins.operands[0]), decoder.source(ins.operands[1])
    source = swizzle_source(ins.modifiers.get("offset", 0), decoder.lanes)

    def run(s: Any) -> None:
        value = s.U[data].take(source, axis=1)
        if s.exec_mask is not None:
            value = np.where(s.exec_mask.take(source, axis=1), value, np.uint32(0))
        s.put(out, value)

    return run
