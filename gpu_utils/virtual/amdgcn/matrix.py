"""MFMA (CDNA) and WMMA (RDNA) matrix instructions.

Layouts are those of AMD's matrix instruction calculator. Products of 16-bit and 8-bit floats are exact in float32;
the sum over K and the accumulator is made in float32 by the CPU's matrix product, in an order that the hardware does
not promise either: the error is within (K + 1) * 2^-24 times the sum of |a * b| and |c|.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from gpu_utils.virtual.amdgcn import scaled_matrix, scaled_wmma
from gpu_utils.virtual.amdgcn.floating import bf16_to_f32, f32_to_bf16
from gpu_utils.virtual.amdgcn.fragments import BITS, FREE_LAYOUT, flush_normal, fragment
from gpu_utils.virtual.amdgcn.operands import Decoder
from gpu_utils.virtual.amdgcn.parse import Instruction
from gpu_utils.virtual.halves import half_to_f32

Run = Callable[[Any], Any]
_MFMA = re.compile(r"v_mfma_(f32|i32|f64)_(\d+)x(\d+)x(\d+)_?(?:(\d+)b_)?(\w+)$")
_WMMA = re.compile(r"v_wmma_(f32|f16|bf16|i32)_(\d+)x(\d+)x(\d+)_(\w+)$")
# bits of an element -> K of the products of 16 by 16 that the families of WMMA have
_DEPTHS: dict[str, dict[int, tuple[int, ...]]] = {
    "gfx11": {16: (16,), 8: (16,)},
    "gfx12": {16: (16,), 8: (16,)},
    "gfx125": {32: (4,), 16: (32,), 8: (64, 128)},
}


def decode(decoder: Decoder, ins: Instruction) -> tuple[Run, int]:
    """(run, operations of one wave) of a matrix instruction."""
    name = ins.mnemonic.removesuffix("_e64")
    match = scaled_matrix.NAME.match(name)
    if match:
        return scaled_matrix.decode(decoder, ins, match)
    match = scaled_wmma.NAME.match(name)
    if match:
        return scaled_wmma.decode(decoder, ins, match)
    match = _MFMA.match(name)
    if match:
        return _mfma(decoder, ins, match)
    match = _WMMA.match(name)
    if match:
        return _wmma(decoder, ins, match)
    raise decoder.unsupported()


def _mfma(decoder: Decoder, ins: Instruction, match: re.Match[str]) -> tuple[Run, int]:
    out_kind, m, n, k, blocks = match[1], int(match[2]), int(match[3]), int(match[4]), int(match[5] or 1)
    if m != n or m not in (4, 16, 32):
        raise decoder.unsupported()
    kinds = match[6].removesuffix("_1k")
    first, second = kinds.split("_") if "_" in kinds else (kinds, kinds)
    if any(ins.modifiers.get(word) for word in ("cbsz", "abid", "blgp")):
        raise decoder.unsupported("broadcast of matrix blocks")
    if match[5] is None:  # older names leave the number of blocks out; it follows from what 64 lanes hold
        registers = _register_count(decoder, ins.operands[1])
        blocks = max(1, 64 * registers * 32 // BITS[first] // (m * k))
    registers = max(1, m * k * blocks // 64 * BITS[first] // 32)
    groups = 64 // (m * blocks)  # lanes that hold different k of one row
    parted = m == 32 and k <= FREE_LAYOUT
    get_a = fragment(decoder, ins.operands[1], first, registers, groups, blocks, m, parted)
    get_b = fragment(decoder, ins.operands[2], second, registers, groups, blocks, n)
    words = 2 if out_kind == "f64" else 1
    count = m * n * blocks // 64
    out = decoder.result(ins.operands[0], count * words, masked=False)
    dtype = {"f32": np.float32, "i32": np.int32, "f64": np.float64}[out_kind]
    c_row = decoder.register(ins.operands[3])
    constant = None if c_row else _constant(decoder, ins.operands[3], out_kind)
    if c_row:
        decoder.reads_row(c_row[0], count * words)
    flush_out = decoder.limits.flushes_halves and first in ("f16", "bf16")

    def product(s: Any) -> np.ndarray:
        """A times B with the axes of the accumulator: (count, waves, 64), the first and last perhaps split."""
        a, b = get_a(s), get_b(s)
        if parted:
            result = np.empty((count, s.waves, 64), np.float32)
            halves = a.reshape(s.waves, blocks, k, 2, 16).transpose(0, 1, 3, 4, 2)
            np.matmul(halves, b[:, :, None], out=result.reshape(blocks, 16, s.waves, 2, 32).transpose(2, 0, 3, 1, 4))
            return result
        result = np.matmul(a.transpose(0, 1, 3, 2), b)
        if m == 32:  # row = 8 * (r / 4) + 4 * (lane / 32) + r % 4
            return result.reshape(s.waves, 4, 2, 4, 32).transpose(1, 3, 0, 2, 4).reshape(count, s.waves, 64)
        if m == 4:  # block = lane / 4
            return result.transpose(2, 0, 1, 3)
        four = result.reshape(s.waves, blocks, 4, 4, 16)
        # row = 4 * r + lane / 16, or 4 * (lane / 16) + r
        return four.transpose(1, 2, 0, 3, 4) if out_kind == "f64" else four.transpose(1, 3, 0, 2, 4)

    def run_double(s: Any) -> None:
        def pairs(row: int) -> np.ndarray:
            return s.block(row, count * 2).reshape(count, 2, s.waves, 64).transpose(0, 2, 3, 1)

        result = product(s).reshape(count, s.waves, 64)
        result += np.ascontiguousarray(pairs(c_row[0])).view(np.float64)[..., 0] if c_row else constant
        where = True if s.act is None else s.act[:, None, None]
        np.copyto(pairs(out), result.view(np.uint32).reshape(count, s.waves, 64, 2), where=where)

    def run(s: Any) -> None:
        result = product(s)
        if out_kind == "i32":
            result = result.astype(np.int32)
        target = s.block(out, count).view(dtype).reshape(result.shape)
        c: Any = s.block(c_row[0], count).view(dtype).reshape(result.shape) if c_row else constant
        if s.act is None and not flush_out:
            np.add(result, c, out=target)
            return
        result = result + c
        where = True if s.act is None else s.act.reshape((-1, 1) if m == 32 else (-1, 1, 1))
        np.copyto(target, flush_normal(result) if flush_out else result, where=where)

    return run_double if out_kind == "f64" else run, 2 * m * n * k * blocks


def _register_count(decoder: Decoder, text: str) -> int:
    found = decoder.register(text)
    if found is None:
        raise decoder.unsupported(f"{text!r} is no register")
    return found[1]


def _constant(decoder: Decoder, text: str, kind: str) -> Any:
    bits = decoder.bits(text, kind)
    if bits is None:
        raise decoder.unsupported(f"accumulator {text!r}")
    dtype = {"f32": np.float32, "i32": np.int32, "f64": np.float64, "f16": np.float16, "bf16": np.float32}[kind]
    return np.frombuffer(bits.to_bytes(8, "little")[: np.dtype(dtype).itemsize], dtype)[0]


def _wmma(decoder: Decoder, ins: Instruction, match: re.Match[str]) -> tuple[Run, int]:
    """16x16xK, wave32. Both halves of the wave hold the same rows and columns on gfx11; they split k on gfx12.

    gfx1250 splits K in runs that take turns; A and B alike, so that the sum is that of one split in the middle.
    """
    out_kind, m, n, k, kinds = match[1], int(match[2]), int(match[3]), int(match[4]), match[5]
    first, second = kinds.split("_") if "_" in kinds else (kinds, kinds)
    signs = [*ins.modifiers.get("neg_lo", []), 0, 0, 0]
    if first == "iu8":
        first, second = ("i8" if signs[0] else "u8"), ("i8" if signs[1] else "u8")
    elif any(any(ins.modifiers.get(word, ())) for word in ("neg_lo", "neg_hi")):
        raise decoder.unsupported("negated operands")
    if (m, n) != (16, 16) or k not in _DEPTHS.get(decoder.limits.family, {}).get(BITS.get(first, 0), ()):
        raise decoder.unsupported()
    if decoder.lanes != 32:
        raise decoder.unsupported("waves of 64 lanes")
    if ins.modifiers.get("clamp") and out_kind == "i32":
        raise decoder.unsupported("clamp")
    gfx12 = decoder.gfx12
    groups = 2 if gfx12 else 1
    registers = k // groups * BITS[first] // 32
    get_a = fragment(decoder, ins.operands[1], first, registers, groups, 1, 16)
    get_b = fragment(decoder, ins.operands[2], second, registers, groups, 1, 16)
    c_found = decoder.register(ins.operands[3])
    constant = None if c_found else _constant(decoder, ins.operands[3], out_kind)
    half = out_kind in ("f16", "bf16")
    high = bool((ins.modifiers.get("op_sel") or [0, 0, 0])[-1]) if half else False
    packed = half and gfx12
    count = 4 if packed else 8
    out = decoder.result(ins.operands[0], count, keeps=half and not packed, masked=False)
    if c_found:
        decoder.reads_row(c_found[0], count)

    def to_float(word: np.ndarray) -> np.ndarray:
        return bf16_to_f32(word) if out_kind == "bf16" else half_to_f32(word)

    def accumulator(s: Any) -> Any:
        if c_found is None:
            return constant
        block = s.block(c_found[0], count)
        if not half:
            return block.view({"f32": np.float32, "i32": np.int32}[out_kind])
        if packed:
            halves = np.stack([block & np.uint32(0xFFFF), block >> np.uint32(16)], axis=1).reshape(8, s.waves, 32)
            return to_float(halves.astype(np.uint16))
        return to_float((block >> np.uint32(16 if high else 0)).astype(np.uint16))

    def run(s: Any) -> None:
        result = np.matmul(get_a(s)[:, 0].transpose(0, 2, 1), get_b(s)[:, 0])
        if gfx12:  # row = 8 * (lane / 16) + r
            result = result.reshape(s.waves, 2, 8, 16).transpose(2, 0, 1, 3)
        else:  # row = 2 * r + lane / 16
            result = result.reshape(s.waves, 8, 32).transpose(1, 0, 2)
        if out_kind == "i32":
            result = result.astype(np.int64).astype(np.int32)
        c = accumulator(s)
        c = c.reshape(result.shape) if c_found else c
        target = s.block(out, count)
        if out_kind == "f32" and s.act is None:
            np.add(result, c, out=target.view(np.float32).reshape(result.shape))
            return
        held = np.ascontiguousarray(result + c).reshape(8, s.waves, 32)
        if out_kind in ("f32", "i32"):
            words = held.view(np.uint32)
        else:
            words = (
                f32_to_bf16(held) if out_kind == "bf16" else held.astype(np.float16).view(np.uint16).astype(np.uint32)
            )
            if packed:
                words = words[0::2] | words[1::2] << np.uint32(16)
            else:
                old = s.block(out, 8)
                words = (
                    (old & np.uint32(0xFFFF)) | words << np.uint32(16)
                    if high
                    else (old & np.uint32(0xFFFF0000)) | words
                )
        if s.act is None:
            target[...] = words
        else:
            np.copyto(target, words, where=s.act_column[None])

    return run, 2 * m * n * k
