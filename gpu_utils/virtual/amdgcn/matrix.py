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

from gpu_utils.virtual.amdgcn import fp8
from gpu_utils.virtual.amdgcn.floating import bf16_to_f32, f32_to_bf16
from gpu_utils.virtual.amdgcn.operands import Decoder
from gpu_utils.virtual.amdgcn.parse import Instruction

Run = Callable[[Any], Any]
_MFMA = re.compile(r"v_mfma_(f32|i32|f64)_(\d+)x(\d+)x(\d+)_?(?:(\d+)b_)?(\w+)$")
_WMMA = re.compile(r"v_wmma_(f32|f16|bf16|i32)_(\d+)x(\d+)x(\d+)_(\w+)$")
_BITS = {"f16": 16, "bf16": 16, "f32": 32, "xf32": 32, "i8": 8, "fp8": 8, "bf8": 8, "f64": 64, "iu8": 8}


def _round_xf32(value: np.ndarray) -> np.ndarray:
    """float32 to 10 explicit bits of mantissa, to nearest even."""
    bits = value.view(np.uint32)
    bits = bits + np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1))
    return (bits & np.uint32(0xFFFFE000)).view(np.float32)


def _flush16(value: np.ndarray) -> np.ndarray:
    return np.where(np.abs(value) < np.float32(2.0**-14), np.float32(0), value)


def element_reader(decoder: Decoder, kind: str) -> Callable[[np.ndarray], np.ndarray]:
    """uint32 (..., registers) -> values (..., elements) in a type that np.matmul multiplies exactly enough."""
    flush = decoder.target == "gfx90a"
    if kind == "f16":
        if flush:
            return lambda w: _flush16(w.view(np.float16).astype(np.float32))
        return lambda w: w.view(np.float16).astype(np.float32)
    if kind == "bf16":
        if flush:
            return lambda w: _flush_normal(bf16_to_f32(w.view(np.uint16)))
        return lambda w: bf16_to_f32(w.view(np.uint16))
    if kind == "f32":
        return lambda w: w.view(np.float32)
    if kind == "xf32":
        return lambda w: _round_xf32(w)
    if kind == "f64":
        return lambda w: w.view(np.float64)
    if kind in ("i8", "iu8"):
        return lambda w: w.view(np.int8).astype(np.float32)
    if kind == "u8":
        return lambda w: w.view(np.uint8).astype(np.float32)
    if kind in ("fp8", "bf8"):
        table = fp8.decode_table(decoder.target == "gfx942", 4 if kind == "fp8" else 5)
        return lambda w: table[w.view(np.uint8)]
    raise decoder.unsupported(f"element type {kind}")


def _flush_normal(value: np.ndarray) -> np.ndarray:
    return np.where(np.abs(value) < np.float32(2.0**-126), np.float32(0), value)


def decode(decoder: Decoder, ins: Instruction) -> tuple[Run, int] | None:
    """(run, operations of one wave) of a matrix instruction; None for others."""
    name = ins.mnemonic.removesuffix("_e64")
    match = _MFMA.match(name)
    if match:
        return _mfma(decoder, ins, match)
    match = _WMMA.match(name)
    if match:
        return _wmma(decoder, ins, match)
    if name.startswith(("v_mfma", "v_smfmac", "v_wmma", "v_swmmac")):
        raise decoder.unsupported()
    return None


def _gather(decoder: Decoder, text: str, registers: int) -> Callable[[Any], np.ndarray]:
    """Operand as uint32 (waves, lanes, registers); constants are broadcast."""
    row = decoder.row(text)
    if registers == 1:
        return lambda s: s.U[row][..., None]
    return lambda s: np.ascontiguousarray(s.block(row, registers).transpose(1, 2, 0))


def _mfma(decoder: Decoder, ins: Instruction, match: re.Match[str]) -> tuple[Run, int]:
    out_kind, m, n, k, blocks = match[1], int(match[2]), int(match[3]), int(match[4]), int(match[5] or 1)
    if m != n or m not in (4, 16, 32):
        raise decoder.unsupported()
    kinds = match[6].removesuffix("_1k")
    first, second = kinds.split("_") if "_" in kinds else (kinds, kinds)
    mods = dict(ins.modifiers)
    if kinds == "f8f6f4":  # the formats are modifiers: 0 is fp8 (E4M3), 1 is bf8 (E5M2)
        formats = [mods.pop("cbsz", 0), mods.pop("blgp", 0)]
        if max(formats) > 1:
            raise decoder.unsupported("6- and 4-bit floats")
        first, second = (("fp8", "bf8")[code] for code in formats)
    if any(mods.get(word) for word in ("cbsz", "abid", "blgp")):
        raise decoder.unsupported("broadcast of matrix blocks")
    if match[5] is None:  # older names leave the number of blocks out; it follows from what 64 lanes hold
        registers_a = _register_count(decoder, ins.operands[1])
        blocks = max(1, 64 * registers_a * 32 // _BITS[first] // (m * k))
    per_lane = m * k * blocks // 64
    registers_a = max(1, per_lane * _BITS[first] // 32)
    read_a, read_b = element_reader(decoder, first), element_reader(decoder, second)
    get_a, get_b = _gather(decoder, ins.operands[1], registers_a), _gather(decoder, ins.operands[2], registers_a)
    groups = 64 // (m * blocks)  # lanes that hold different k of one row
    out = decoder.row(ins.operands[0])
    words = 2 if out_kind == "f64" else 1
    count = m * n * blocks // 64
    dtype = {"f32": np.float32, "i32": np.int32, "f64": np.float64}[out_kind]
    c_row = decoder.register(ins.operands[3])
    constant = None if c_row else _constant(decoder, ins.operands[3], out_kind)
    flops = 2 * m * n * k * blocks
    flush_out = decoder.target == "gfx90a" and first in ("f16", "bf16")

    def operand(values: np.ndarray, rows: int) -> np.ndarray:
        """(waves, 64, elements) -> (waves, blocks, rows, k): a lane holds consecutive k of one row."""
        waves = len(values)
        shaped = (
            values.reshape(waves, groups, blocks, rows, -1) if m != 4 else values.reshape(waves, 1, blocks, rows, -1)
        )
        return shaped.transpose(0, 2, 3, 1, 4).reshape(waves, blocks, rows, k)

    def split(block: np.ndarray) -> np.ndarray:
        """Registers (count, waves, 64) -> a view of shape (waves, blocks, m, n) axes, as a tuple for transposing."""
        waves = block.shape[1]
        if m == 32:  # row = 8 * (r / 4) + 4 * (lane / 32) + r % 4
            return block.reshape(blocks, 4, 4, waves, 2, 32).transpose(3, 0, 1, 4, 2, 5)
        if m == 16 and out_kind == "f64":  # row = 4 * r + lane / 16
            return block.reshape(blocks, 4, waves, 4, 16).transpose(2, 0, 1, 3, 4)
        if m == 16:  # row = 4 * (lane / 16) + r
            return block.reshape(blocks, 4, waves, 4, 16).transpose(2, 0, 3, 1, 4)
        return block.reshape(4, waves, 16, 4).transpose(1, 2, 0, 3)  # 4x4: block = lane / 4

    def run(s: Any) -> None:
        a = operand(read_a(get_a(s)), m)
        b = operand(read_b(get_b(s)), n)
        product = np.matmul(a, b.transpose(0, 1, 3, 2))
        target = s.block(out, count * words)
        if words == 2:
            pairs = target.reshape(count, 2, s.waves, 64).transpose(0, 2, 3, 1)
            old = s.block(c_row[0], count * 2).reshape(count, 2, s.waves, 64).transpose(0, 2, 3, 1) if c_row else None
            c: Any = constant if old is None else split(np.ascontiguousarray(old).view(np.float64)[..., 0])
        else:
            c = constant if c_row is None else split(s.block(c_row[0], count).view(dtype))
        result = product.reshape(
            c.shape
            if c_row
            else split(target[:count].view(dtype) if words == 1 else np.empty((count, s.waves, 64))).shape
        )
        result = result.astype(dtype) + c if out_kind == "i32" else result + c
        if flush_out:
            result = _flush_normal(result)
        if s.act is not None:
            result = np.where(
                s.act.reshape(-1, *[1] * (result.ndim - 1)), result, _current(s, target, split, dtype, count, words)
            )
        if words == 2:
            held = np.empty((count, s.waves, 64), np.float64)
            split(held)[...] = result
            pairs[...] = held.view(np.uint32).reshape(count, s.waves, 64, 2)
        else:
            split(target.view(dtype))[...] = result

    return run, flops


def _current(s: Any, target: np.ndarray, split: Any, dtype: Any, count: int, words: int) -> np.ndarray:
    if words == 1:
        return split(target.view(dtype))
    held = np.ascontiguousarray(target.reshape(count, 2, s.waves, 64).transpose(0, 2, 3, 1)).view(np.float64)[..., 0]
    return split(held)


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
    """16x16x16, wave32. Both halves of the wave hold the same rows and columns on gfx11; they split k on gfx12."""
    out_kind, m, n, k, kinds = match[1], int(match[2]), int(match[3]), int(match[4]), match[5]
    if (m, n, k) != (16, 16, 16) or decoder.lanes != 32:
        raise decoder.unsupported()
    first, second = kinds.split("_") if "_" in kinds else (kinds, kinds)
    signs = [*ins.modifiers.get("neg_lo", []), 0, 0]
    if first == "iu8":
        first, second = ("i8" if signs[0] else "u8"), ("i8" if signs[1] else "u8")
    elif any(ins.modifiers.get(word) for word in ("neg_lo", "neg_hi")):
        raise decoder.unsupported("negated operands")
    if ins.modifiers.get("clamp") and out_kind == "i32":
        raise decoder.unsupported("clamp")
    gfx12 = decoder.gfx12
    bits = _BITS.get(first, 8)
    registers = (8 if gfx12 else 16) * bits // 32
    read_a, read_b = element_reader(decoder, first), element_reader(decoder, second)
    get_a, get_b = _gather(decoder, ins.operands[1], registers), _gather(decoder, ins.operands[2], registers)
    out = decoder.row(ins.operands[0])
    c_found = decoder.register(ins.operands[3])
    constant = None if c_found else _constant(decoder, ins.operands[3], out_kind)
    half = out_kind in ("f16", "bf16")
    high = bool((ins.modifiers.get("op_sel") or [0, 0, 0])[-1]) if half else False
    packed = half and gfx12
    count = 4 if packed else 8

    def operand(values: np.ndarray) -> np.ndarray:
        waves = len(values)
        if gfx12:
            return values.reshape(waves, 2, 16, 8).transpose(0, 2, 1, 3).reshape(waves, 16, 16)
        return values[:, :16, :]

    def split(block: np.ndarray) -> np.ndarray:
        """Values (8, waves, 32) -> (waves, 16, 16) by a view of its axes."""
        waves = block.shape[1]
        if gfx12:  # row = 8 * (lane / 16) + r
            return block.reshape(8, waves, 2, 16).transpose(1, 2, 0, 3)
        return block.reshape(8, waves, 2, 16).transpose(1, 0, 2, 3)  # row = 2 * r + lane / 16

    def to_float(word: np.ndarray) -> np.ndarray:
        return (
            bf16_to_f32(word) if out_kind == "bf16" else np.ascontiguousarray(word).view(np.float16).astype(np.float32)
        )

    def accumulator(s: Any) -> Any:
        if c_found is None:
            return constant
        block = s.block(c_found[0], count)
        if not half:
            return split(block.view({"f32": np.float32, "i32": np.int32}[out_kind]))
        if packed:
            halves = np.stack([block & np.uint32(0xFFFF), block >> np.uint32(16)], axis=1).reshape(8, s.waves, 32)
            return split(to_float(halves.astype(np.uint16)))
        shift = np.uint32(16 if high else 0)
        return split(to_float((block >> shift).astype(np.uint16)))

    def run(s: Any) -> None:
        product = np.matmul(operand(read_a(get_a(s))), operand(read_b(get_b(s))).transpose(0, 2, 1))
        shape = (s.waves, 2, 8, 16) if gfx12 else (s.waves, 8, 2, 16)
        product = product.reshape(shape)
        if out_kind == "i32":
            product = product.astype(np.int64).astype(np.int32)
        result = product + accumulator(s)
        held = np.empty((8, s.waves, 32), result.dtype)
        split(held)[...] = result
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
        target = s.block(out, count)
        if s.act is None:
            target[...] = words
        else:
            np.copyto(target, words, where=s.act_column[None])

    return run, 2 * m * n * k
