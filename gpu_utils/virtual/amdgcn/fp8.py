"""Conversions between float32 and the two 8-bit formats of the target: FNUZ or OCP, as its row says."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from gpu_utils.virtual.amdgcn.operands import Decoder

Run = Callable[[Any], Any]


@cache
def decode_table(fnuz: bool, exponent_bits: int) -> np.ndarray:
    """The float32 value of each of the 256 codes."""
    mantissa_bits = 7 - exponent_bits
    code = np.arange(256)
    sign = np.where(code & 0x80, -1.0, 1.0)
    exponent, mantissa = (code & 0x7F) >> mantissa_bits, code & ((1 << mantissa_bits) - 1)
    bias = (1 << (exponent_bits - 1)) - (0 if fnuz else 1)
    normal = (1 + mantissa / 2**mantissa_bits) * 2.0 ** (exponent - bias)
    value = sign * np.where(exponent == 0, mantissa / 2**mantissa_bits * 2.0 ** (1 - bias), normal)
    if fnuz:
        value[0x80] = np.nan
    elif exponent_bits == 4:
        value[[0x7F, 0xFF]] = np.nan
    else:
        value[[0x7C, 0xFC]] = np.inf, -np.inf
        value[[0x7D, 0x7E, 0x7F, 0xFD, 0xFE, 0xFF]] = np.nan
    return value.astype(np.float32)


@cache
def _grid(fnuz: bool, exponent_bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Finite non-negative values in rising order (their code is their index) and the midpoints between them."""
    values = decode_table(fnuz, exponent_bits)[:128].astype(np.float64)
    values = values[np.isfinite(values)]
    step = values[-1] - values[-2]
    return values, (values + np.append(values[1:], values[-1] + step)) / 2


def encode(value: np.ndarray, fnuz: bool, exponent_bits: int, saturate: bool) -> np.ndarray:
    """float32 -> codes (uint32), to nearest even.

    Overflow gives the largest value if saturate, else NaN (infinity for OCP E5M2).
    """
    values, middles = _grid(fnuz, exponent_bits)
    size = np.abs(value.astype(np.float64))
    code = np.searchsorted(middles, size, side="left")
    tie = (code < len(middles)) & (middles[np.minimum(code, len(middles) - 1)] == size) & (code % 2 == 1)
    code = (code + tie).astype(np.uint32)
    largest = len(values) - 1
    over = (code > largest) & ~np.isnan(value)
    negative = np.signbit(value).astype(np.uint32) << np.uint32(7)
    nan = np.uint32(0x80 if fnuz else 0x7F)
    overflow = np.uint32(largest) if saturate else (nan if fnuz or exponent_bits == 4 else np.uint32(0x7C))
    code = np.where(over, overflow, code)
    if fnuz:
        bad = np.isnan(value) | (over if not saturate else np.isinf(value) & False)
        code = np.where(code == 0, code, code | negative)
        return np.where(bad, nan, code)
    code = np.where(np.isnan(value), nan, code)
    return code | negative


def stochastic(value: np.ndarray, noise: np.ndarray, fnuz: bool, exponent_bits: int, saturate: bool) -> np.ndarray:
    """Add random bits below the kept mantissa, then cut: v_cvt_sr_*."""
    values, _ = _grid(fnuz, exponent_bits)
    size = np.abs(value.astype(np.float64))
    low = np.clip(np.searchsorted(values, size, side="right") - 1, 0, len(values) - 1)
    below = values[low]
    above = values[np.minimum(low + 1, len(values) - 1)]
    gap = np.where(above > below, above - below, below - values[np.maximum(low - 1, 0)])
    up = (size - below) / gap + noise.astype(np.float64) / 2.0**32 >= 1
    target = np.where(up & (low == len(values) - 1), size, np.where(up, above, below))
    return encode(
        np.copysign(np.where(np.isfinite(value), target, value), value).astype(np.float32),
        fnuz,
        exponent_bits,
        saturate,
    )


def is_fnuz(decoder: Decoder) -> bool:
    """Whether the 8-bit floats of the target are FNUZ, else OCP; an error where it has none."""
    if decoder.limits.fp8 == "none":
        raise decoder.unsupported("this target has no 8-bit floats")
    return decoder.limits.fp8 == "fnuz"


def decode(decoder: Decoder, name: str, ops: list[str], mods: dict[str, Any]) -> Run | None:
    if "fp8" not in name and "bf8" not in name:
        return None
    bits = 5 if "bf8" in name else 4
    saturate = bool(decoder.fp16_overflow)
    if name in ("v_cvt_f32_fp8", "v_cvt_f32_bf8"):
        table = decode_table(is_fnuz(decoder), bits)
        row, put = decoder.source(ops[1]), decoder.putter(ops[0], "f32")
        shift = np.uint32(8 * _byte(mods))
        return lambda s: put(s, table[(s.U[row] >> shift) & np.uint32(0xFF)])
    if name in ("v_cvt_pk_f32_fp8", "v_cvt_pk_f32_bf8"):
        table = decode_table(is_fnuz(decoder), bits)
        row, out = decoder.source(ops[1]), decoder.result(ops[0], 2)
        word = 1 if mods.get("src0_sel") == "WORD_1" or (mods.get("op_sel") or [0])[0] else 0
        shift = np.uint32(16 * word)

        def unpack(s: Any) -> None:
            pair = s.U[row] >> shift
            first, second = table[pair & np.uint32(0xFF)], table[pair >> np.uint32(8) & np.uint32(0xFF)]
            s.put(out, first.view(np.uint32))
            s.put(out + 1, second.view(np.uint32))

        return unpack
    if name in ("v_cvt_pk_fp8_f32", "v_cvt_pk_bf8_f32"):
        fnuz = is_fnuz(decoder)
        a, b = decoder.getter(ops[1], "f32"), decoder.getter(ops[2], "f32")
        op_sel = mods.get("op_sel", [0])
        put = decoder.putter(ops[0], "u16", high=bool(op_sel[-1]), keep_half=True)

        def pack(s: Any) -> None:
            low, high = encode(a(s), fnuz, bits, saturate), encode(b(s), fnuz, bits, saturate)
            put(s, (low | high << np.uint32(8)).astype(np.uint16))

        return pack
    if name in ("v_cvt_sr_fp8_f32", "v_cvt_sr_bf8_f32"):
        fnuz = is_fnuz(decoder)
        a, noise = decoder.getter(ops[1], "f32"), decoder.getter(ops[2], "u32")
        out = decoder.result(ops[0], keeps=True)
        op_sel = mods.get("op_sel", [0, 0, 0, 0])
        shift = np.uint32(8 * (2 * op_sel[-1] + op_sel[-2] if "byte_sel" not in mods else mods["byte_sel"]))
        keep = ~(np.uint32(0xFF) << shift)
        return lambda s: s.put(out, (s.U[out] & keep) | stochastic(a(s), noise(s), fnuz, bits, saturate) << shift)
    return None


def _byte(mods: dict[str, Any]) -> int:
    select = mods.get("src0_sel")
    if isinstance(select, str) and select.startswith("BYTE_"):
        return int(select[-1])
    if "byte_sel" in mods:
        return int(mods["byte_sel"])
    op_sel = mods.get("op_sel", [0, 0])
    return op_sel[0] * 2 + (op_sel[1] if len(op_sel) > 1 else 0)
