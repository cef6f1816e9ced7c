"""Packed instructions: two halves in a register (v_pk_*16), two float32 in a pair (v_pk_*_f32), mixed fma."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpu_utils.virtual.amdgcn import floating as fl
from gpu_utils.virtual.amdgcn import state as st
from gpu_utils.virtual.amdgcn.operands import Decoder
from gpu_utils.virtual.halves import half_to_f32

Run = Callable[[Any], Any]
_h = np.uint16

# name -> (element type, number of sources, function on one element each); the destination is the last source of fmac
PACKED16: dict[str, tuple[Any, int, Callable[..., Any]]] = {
    "v_pk_add_f16": (np.float16, 2, fl.on_halves(np.add)),
    "v_pk_mul_f16": (np.float16, 2, fl.on_halves(np.multiply)),
    "v_pk_fma_f16": (np.float16, 3, fl.fma16),
    "v_pk_max_f16": (np.float16, 2, fl.fmax),
    "v_pk_min_f16": (np.float16, 2, fl.fmin),
    "v_pk_max_num_f16": (np.float16, 2, fl.fmax),
    "v_pk_min_num_f16": (np.float16, 2, fl.fmin),
    "v_pk_maximum_f16": (np.float16, 2, fl.maximum),
    "v_pk_minimum_f16": (np.float16, 2, fl.minimum),
    "v_pk_maximum3_f16": (np.float16, 3, lambda a, b, c: fl.maximum(fl.maximum(a, b), c)),
    "v_pk_minimum3_f16": (np.float16, 3, lambda a, b, c: fl.minimum(fl.minimum(a, b), c)),
    "v_pk_add_u16": (np.uint16, 2, np.add),
    "v_pk_add_i16": (np.int16, 2, np.add),
    "v_pk_sub_u16": (np.uint16, 2, np.subtract),
    "v_pk_sub_i16": (np.int16, 2, np.subtract),
    "v_pk_mul_lo_u16": (np.uint16, 2, np.multiply),
    "v_pk_mad_u16": (np.uint16, 3, lambda a, b, c: a * b + c),
    "v_pk_mad_i16": (np.int16, 3, lambda a, b, c: a * b + c),
    "v_pk_max_u16": (np.uint16, 2, np.maximum),
    "v_pk_min_u16": (np.uint16, 2, np.minimum),
    "v_pk_max_i16": (np.int16, 2, np.maximum),
    "v_pk_min_i16": (np.int16, 2, np.minimum),
    "v_pk_lshlrev_b16": (np.uint16, 2, lambda a, b: b << (a & _h(15))),
    "v_pk_lshrrev_b16": (np.uint16, 2, lambda a, b: b >> (a & _h(15))),
    "v_pk_ashrrev_i16": (np.int16, 2, lambda a, b: b >> (a & np.int16(15))),
}
PACKED32: dict[str, tuple[int, Any]] = {
    "v_pk_add_f32": (2, np.add),
    "v_pk_mul_f32": (2, np.multiply),
    "v_pk_fma_f32": (3, fl.fma32),
    "v_pk_mov_b32": (2, None),
}
MIX = {
    "v_fma_mix_f32": ("f16", "f32"),
    "v_fma_mixlo_f16": ("f16", "lo"),
    "v_fma_mixhi_f16": ("f16", "hi"),
    "v_mad_mix_f32": ("f16", "f32"),
    "v_mad_mixlo_f16": ("f16", "lo"),
    "v_mad_mixhi_f16": ("f16", "hi"),
    "v_fma_mix_f32_bf16": ("bf16", "f32"),
    "v_fma_mixlo_bf16": ("bf16", "lo"),
    "v_fma_mixhi_bf16": ("bf16", "hi"),
}
"""Name -> (type of its halves, the result: float32, or the low or high half of a register)."""


def decode(decoder: Decoder, name: str, ops: list[str], mods: dict[str, Any]) -> Run | None:
    if name in PACKED16:
        return _packed16(decoder, ops, mods, *PACKED16[name])
    if name == "v_pk_fmac_f16":
        return _packed16(decoder, [*ops, ops[0]], mods, np.float16, 3, fl.fma16)
    if name in PACKED32:
        return _packed32(decoder, name, ops, mods, *PACKED32[name])
    if name in MIX:
        return _mix(decoder, ops, mods, *MIX[name])
    return None


def _flags(mods: dict[str, Any], name: str, default: int, count: int) -> list[int]:
    given = list(mods.get(name, []))
    return (given + [default] * count)[:count]


def _word(decoder: Decoder, text: str, floats: bool) -> Callable[[Any], np.ndarray]:
    """A source as 32-bit words; a float constant is one half in the low 16 bits."""
    if decoder.register(text):
        row = decoder.source(text)
        return lambda s: s.U[row]
    plain = text.lstrip("-").isdigit() or "0x" in text
    value = np.array([[decoder.bits(text, "u32" if plain or not floats else "f16")]], np.uint32)
    return lambda s: value


def _packed16(decoder: Decoder, ops: list[str], mods: dict[str, Any], dtype: Any, count: int, function: Any) -> Run:
    sources = [_word(decoder, text, dtype == np.float16) for text in ops[1 : 1 + count]]
    out = decoder.result(ops[0])
    low, high = _flags(mods, "op_sel", 0, count), _flags(mods, "op_sel_hi", 1, count)
    neg_low, neg_high = _flags(mods, "neg_lo", 0, count), _flags(mods, "neg_hi", 0, count)
    clamp = bool(mods.get("clamp"))
    if clamp and dtype != np.float16:
        raise decoder.unsupported("clamp on packed integers")
    if any(neg_low + neg_high) and dtype != np.float16:
        raise decoder.unsupported("signs of packed integers")
    straight = not any(low) and all(high) and not any(neg_low) and not any(neg_high)
    straight &= all((decoder.register(text) or (st.SGPR,))[0] < st.SGPR for text in ops[1 : 1 + count])

    def finish(value: np.ndarray) -> np.ndarray:
        return fl.fmin(fl.fmax(value, dtype(0)), dtype(1)) if clamp else value

    if straight:

        def run(s: Any) -> None:
            value = finish(function(*[get(s).view(dtype) for get in sources]))
            s.put(out, np.ascontiguousarray(value).view(np.uint32))

        return run

    def half(get: Any, use_high: int, negate: int) -> Any:
        shift = np.uint32(16 if use_high else 0)

        def take(s: Any) -> np.ndarray:
            value = (get(s) >> shift).astype(np.uint16).view(dtype)
            return np.negative(value) if negate else value

        return take

    lows = [half(get, low[i], neg_low[i]) for i, get in enumerate(sources)]
    highs = [half(get, high[i], neg_high[i]) for i, get in enumerate(sources)]

    def run_halves(s: Any) -> None:
        first = np.ascontiguousarray(finish(function(*[take(s) for take in lows]))).view(np.uint16)
        second = np.ascontiguousarray(finish(function(*[take(s) for take in highs]))).view(np.uint16)
        s.put(out, first.astype(np.uint32) | second.astype(np.uint32) << np.uint32(16))

    return run_halves


def _packed32(decoder: Decoder, name: str, ops: list[str], mods: dict[str, Any], count: int, function: Any) -> Run:
    out = decoder.result(ops[0], 2)
    low, high = _flags(mods, "op_sel", 0, count), _flags(mods, "op_sel_hi", 1, count)
    neg_low, neg_high = _flags(mods, "neg_lo", 0, count), _flags(mods, "neg_hi", 0, count)

    def part(text: str, use: int, negate: int) -> Any:
        found = decoder.register(text)
        row = found[0] + (use if found[1] > 1 else 0) if found else decoder.literal(text, "f32")
        decoder.reads_row(row)
        if negate:
            return lambda s: np.negative(s.F[row])
        return lambda s: s.F[row]

    if name == "v_pk_mov_b32":
        pick = _flags(mods, "op_sel", 0, 2)
        first_of, second_of = part(ops[1], pick[0], 0), part(ops[2], pick[1], 0)

        def move(s: Any) -> None:
            first, second = first_of(s).copy(), second_of(s)
            second = second.copy()
            s.put(out, first.view(np.uint32))
            s.put(out + 1, second.view(np.uint32))

        return move
    lows = [part(text, low[i], neg_low[i]) for i, text in enumerate(ops[1 : 1 + count])]
    highs = [part(text, high[i], neg_high[i]) for i, text in enumerate(ops[1 : 1 + count])]

    def run(s: Any) -> None:
        first = function(*[take(s) for take in lows])
        second = function(*[take(s) for take in highs])
        s.put(out, first.view(np.uint32))
        s.put(out + 1, second.view(np.uint32))

    return run


def _widened(inner: Callable[[Any], np.ndarray]) -> Callable[[Any], np.ndarray]:
    return lambda s: half_to_f32(inner(s).view(np.uint16))


def _to_bf16(value: np.ndarray) -> np.ndarray:
    return fl.f32_to_bf16(value).astype(np.uint16)


def _mix(decoder: Decoder, ops: list[str], mods: dict[str, Any], halves: str, to: str) -> Run:
    """fma in float32 whose sources are float32, or a half of a register where op_sel_hi says so.

    halves: "f16" or "bf16" (gfx1250), the type of those and of a result that is one.
    """
    if halves == "bf16" and not decoder.gfx125:
        raise decoder.unsupported()
    half, is_half = _flags(mods, "op_sel", 0, 3), _flags(mods, "op_sel_hi", 0, 3)
    gets: list[Callable[[Any], np.ndarray]] = []
    for i, text in enumerate(ops[1:4]):
        if is_half[i] and halves == "bf16":
            if decoder.register(text.strip("-|")) is None:
                raise decoder.unsupported(f"half of {text!r}")
            gets.append(decoder.getter(text, "bf16", high=bool(half[i]), widen=fl.bf16_to_f32))
        elif is_half[i]:
            inner = decoder.getter(text, "f16", high=bool(half[i]))
            gets.append(_widened(inner))
        else:
            gets.append(decoder.getter(text, "f32"))
    clamp = bool(mods.get("clamp"))
    narrow = fl.f32_to_half if halves == "f16" else _to_bf16
    put = decoder.putter(ops[0], "f32" if to == "f32" else "f16", high=to == "hi", keep_half=True)

    def run(s: Any) -> None:
        value = fl.fma32(*[get(s) for get in gets])
        if clamp:
            value = np.clip(np.nan_to_num(value, nan=0.0, posinf=1.0, neginf=0.0), 0, 1)
        put(s, value if to == "f32" else narrow(value))

    return run
