"""Vector instructions with a form of their own: selection, carries, the steps of a division, exchanges of lanes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpu_utils.virtual.amdgcn import floating as fl
from gpu_utils.virtual.amdgcn import lanes, valu
from gpu_utils.virtual.amdgcn import state as st
from gpu_utils.virtual.amdgcn.operands import DTYPES, Decoder, sdwa_putter
from gpu_utils.virtual.amdgcn.sources import source_getters

Run = Callable[[Any], Any]


def _cndmask(decoder: Decoder, ops: list[str], mods: dict[str, Any], kind: str = "u32") -> Run:
    signs = any(text.startswith(("-", "|", "neg(", "abs(")) and decoder.bits(text, "f32") is None for text in ops[1:3])
    typed = ("f" if signs else "u") + kind[1:]
    a, b = source_getters(decoder, (typed, typed), ops[1:3], mods)
    chosen = decoder.mask_source(ops[3] if len(ops) > 3 else "vcc")
    if kind == "u32" and not mods:
        return _select(a, b, chosen, decoder.result(ops[0]), decoder.bits(ops[1], "u32") == 0)
    dpp = lanes.Dpp(decoder, mods) if lanes.dpp_source(mods, decoder.lanes) is not None else None
    if "dst_sel" in mods:
        put = sdwa_putter(decoder, ops[0], kind, mods["dst_sel"], mods.get("dst_unused", "UNUSED_PAD"))
    else:
        put = decoder.putter(ops[0], kind, bool(mods.get("op_sel", [0])[-1]) and len(mods.get("op_sel", [])) > 2)

    def run(s: Any) -> None:
        put(s, np.where(s.lane_mask(chosen), b(s), a(s)))

    return run if dpp is None else (lambda s: dpp.narrowed(s, lambda: run(s)))


def _select(a: Any, b: Any, chosen: int, out: int, from_zero: bool) -> Run:
    """v_cndmask_b32 by bits: a ^ ((a ^ b) & mask). from_zero: `a` is 0."""

    def run(s: Any) -> None:
        first, second = a(s).view(np.uint32), b(s).view(np.uint32)
        spread = s.spread_of(chosen, s.lane_mask(chosen))
        target = s.U[out] if s.mask is None else None
        if from_zero:
            value = np.bitwise_and(spread, second, out=target)
        else:
            value = np.bitwise_xor(np.bitwise_and(spread, first ^ second), first, out=target)
        if target is None:
            s.put(out, value)

    return run


def _carry(operation: str, takes: bool) -> Callable[..., Run]:
    def make(decoder: Decoder, ops: list[str], mods: dict[str, Any]) -> Run:
        carry_out = decoder.mask_result(ops[1])
        a, b = source_getters(decoder, ("u32", "u32"), ops[2:4], mods)
        carry_in = decoder.mask_source(ops[4]) if takes else None
        put = decoder.putter(ops[0], "u32")
        dpp = lanes.Dpp(decoder, mods) if lanes.dpp_source(mods, decoder.lanes) is not None else None

        def run(s: Any) -> None:
            x, y = a(s), b(s)
            if operation == "subrev":
                x, y = y, x
            if carry_in is None:
                if operation == "add":
                    value = x + y
                    carry = value < x
                else:
                    value = x - y
                    carry = x < y
            else:
                bit = s.lane_mask(carry_in).astype(np.uint64)
                if operation == "add":
                    wide = x.astype(np.uint64) + y + bit
                    carry = wide > np.uint64(0xFFFFFFFF)
                else:
                    wide = x.astype(np.uint64) - (y + bit)
                    carry = y + bit > x
                value = wide.astype(np.uint32)
            value, carry = (np.broadcast_to(v, (s.waves, s.lanes)) for v in (value, carry))
            put(s, value)
            s.put_mask(carry_out, carry)

        return run if dpp is None else (lambda s: dpp.narrowed(s, lambda: run(s)))

    return make


def _mad64(signed: bool) -> Callable[..., Run]:
    def make(decoder: Decoder, ops: list[str], mods: dict[str, Any]) -> Run:
        kind = "i32" if signed else "u32"
        a, b = source_getters(decoder, (kind, kind), ops[2:4], mods)
        c, carry_out = decoder.getter(ops[4], "u64"), decoder.mask_result(ops[1])
        put = decoder.putter(ops[0], "u64")
        wide = np.int64 if signed else np.uint64
        # a carry that nobody reads costs as much as the product, so VCC is written only when it is asked for

        def run(s: Any) -> None:
            product = (a(s).astype(wide) * b(s).astype(wide)).view(np.uint64)
            total = np.broadcast_to(product + c(s), (s.waves, s.lanes))
            put(s, total)
            if carry_out != st.NULL:
                s.put_mask(carry_out, np.broadcast_to(total < product, (s.waves, s.lanes)))

        return run

    return make


def _div_scale(kind: str) -> Callable[..., Run]:
    """Scales a numerator or denominator so that the division steps neither overflow nor lose bits."""
    step, near, tiny_exponent = (64, 96, 23) if kind == "f32" else (128, 768, 53)

    def make(decoder: Decoder, ops: list[str], mods: dict[str, Any]) -> Run:
        a, b, c = source_getters(decoder, (kind,) * 3, ops[2:5], mods)
        flag, put, dtype = decoder.mask_result(ops[1]), decoder.putter(ops[0], kind), DTYPES[kind]
        info = np.finfo(dtype)

        exponent = valu.biased_exponent

        def denormal(x: np.ndarray) -> np.ndarray:
            return (x != 0) & (np.abs(x) < info.tiny)

        def run(s: Any) -> None:
            shape = (s.waves, s.lanes)
            x, den, num = a(s), b(s), c(s)
            most = 2 * info.maxexp - 4
            # where nothing comes near an end of the range the operand passes as it is
            low, high, zeros = valu.exponent_range(num)
            least, greatest, no_quotient = valu.exponent_range(den)
            inside = low > tiny_exponent and high <= most and least >= 1 and greatest <= most and no_quotient is None
            if inside and high - least < near and low - greatest >= info.minexp + 2:
                if zeros is not None:
                    x, zeros = np.broadcast_arrays(x, zeros)
                    x = valu.select_bits(zeros, dtype(np.nan), np.ascontiguousarray(x))
                put(s, x)
                s.put_no_lanes(flag)
                return
            x, den, num = (np.broadcast_to(value, shape) for value in (x, den, num))
            above, below = exponent(num), exponent(den)
            apart = above - below
            ends = (above <= tiny_exponent) | (above > most) | (below < 1) | (below > most)
            ends |= (apart >= near) | (apart < info.minexp + 2)
            both = np.zeros(shape, bool)
            if np.count_nonzero(ends):
                x = x.copy()
                x[ends], both[ends] = scaled(x[ends], den[ends], num[ends])
            put(s, x)
            if flag != st.NULL:
                s.put_mask(flag, both)

        def scaled(x: np.ndarray, den: np.ndarray, num: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            is_den, is_num = x == den, x == num
            zero = (num == 0) | (den == 0)
            conditions = [
                zero,
                exponent(num) - exponent(den) >= near,
                denormal(den),
                denormal(dtype(1) / den) & denormal(num / den),
                denormal(dtype(1) / den),
                denormal(num / den),
                exponent(num) <= tiny_exponent,
            ]
            up, down = np.full(x.shape, step), np.full(x.shape, -step)
            none = np.zeros(x.shape, int)
            only_den, only_num = np.where(is_den, up, none), np.where(is_num, up, none)
            shift = np.select(conditions, [none, only_den, up, np.where(is_den, down, none), down, only_num, up], none)
            value = np.where(conditions[0], dtype(np.nan), np.ldexp(x, shift.astype(np.int32))).astype(dtype)
            both = np.select(conditions, [False, True, False, True, False, True, False], False).astype(bool)
            return value, both

        return run

    return make


def _div_fmas(kind: str) -> Callable[..., Run]:
    """The last step of a division, which takes back the scaling of v_div_scale.

    The manuals print a factor of 2^32 (f64: 2^64) that does not undo the scaling by 2^64 (2^128) that they print for
    v_div_scale. What gives right quotients, and what emulators checked against hardware use: the inverse of that
    scaling, up for a large quotient and down for a small one. f32 rounds once, after scaling.
    """
    fma, step, bias = (fl.fma32, 64, 127) if kind == "f32" else (fl.fma64, 128, 1023)

    def make(decoder: Decoder, ops: list[str], mods: dict[str, Any]) -> Run:
        a, b, c = source_getters(decoder, (kind,) * 3, ops[1:4], mods)
        put, dtype = decoder.putter(ops[0], kind), DTYPES[kind]
        decoder.mask_source("vcc")

        def run(s: Any) -> None:
            value = fma(a(s), b(s), c(s))
            if np.count_nonzero(s.Q[st.VCC] if s.lanes == 64 else s.U[st.VCC]):
                scaled = s.lane_mask(st.VCC)
                shift = np.where(valu.biased_exponent(c(s)) > bias, step, -step).astype(np.int32)
                wide = a(s).astype(np.float64) * b(s) + c(s) if kind == "f32" else value
                value = np.where(scaled, np.ldexp(wide, shift).astype(dtype), value)
            put(s, value)

        return run

    return make


def _simple(make: Callable[..., Run], *extra: Any) -> Callable[..., Run]:
    return lambda decoder, ops, mods: make(decoder, ops, *extra)


SPECIAL: dict[str, Callable[..., Run]] = {
    "v_cndmask_b32": _cndmask,
    "v_cndmask_b16": lambda d, o, m: _cndmask(d, o, m, "u16"),
    "v_add_co_u32": _carry("add", False),
    "v_sub_co_u32": _carry("sub", False),
    "v_subrev_co_u32": _carry("subrev", False),
    "v_addc_co_u32": _carry("add", True),
    "v_subb_co_u32": _carry("sub", True),
    "v_subbrev_co_u32": _carry("subrev", True),
    "v_add_co_ci_u32": _carry("add", True),
    "v_sub_co_ci_u32": _carry("sub", True),
    "v_subrev_co_ci_u32": _carry("subrev", True),
    "v_mad_u64_u32": _mad64(False),
    "v_mad_i64_i32": _mad64(True),
    "v_mad_co_u64_u32": _mad64(False),
    "v_mad_co_i64_i32": _mad64(True),
    "v_div_scale_f32": _div_scale("f32"),
    "v_div_scale_f64": _div_scale("f64"),
    "v_div_fmas_f32": _div_fmas("f32"),
    "v_div_fmas_f64": _div_fmas("f64"),
    "v_readlane_b32": _simple(lanes.decode_readlane),
    "v_readfirstlane_b32": _simple(lanes.decode_readfirstlane),
    "v_writelane_b32": _simple(lanes.decode_writelane),
    "v_mbcnt_lo_u32_b32": _simple(lanes.decode_mbcnt, False),
    "v_mbcnt_hi_u32_b32": _simple(lanes.decode_mbcnt, True),
    "v_permlane16_b32": lambda d, o, m: lanes.decode_permlane16(d, o, False, m),
    "v_permlanex16_b32": lambda d, o, m: lanes.decode_permlane16(d, o, True, m),
    "v_permlane64_b32": _simple(lanes.decode_permlane64),
    "v_permlane16_swap_b32": _simple(lanes.decode_permlane_swap, 16),
    "v_permlane32_swap_b32": _simple(lanes.decode_permlane_swap, 32),
    "v_swap_b32": _simple(lanes.decode_swap),
}
