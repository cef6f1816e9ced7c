"""The table of vector arithmetic: mnemonic -> types and a function on arrays; long because it is one table.

Only the meaning is here; masks, DPP, SDWA, op_sel, clamp and omod are added by vector.py. Sources that
do not have a citation are AMD's ISA manuals (MI200, MI300, RDNA3, RDNA4), whose pseudo-code the tests evaluate.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from gpu_utils.virtual.amdgcn import floating as fl
from gpu_utils.virtual.halves import half_to_f32


@dataclass(frozen=True, slots=True)
class Vector:
    """out, sources: types of operands.py. function(*sources) -> array of type `out`.

    accumulate: the destination is also the last source. kind: class for the counters. error: bound in ulp of an
    approximate instruction, 0 when exact.
    """

    out: str
    sources: tuple[str, ...]
    function: Callable[..., Any]
    accumulate: bool = False
    kind: str = "vector"
    error: float = 0


TABLE: dict[str, Vector] = {}
_u, _i, _f = np.uint32, np.int32, np.float32


def _add(names: str, out: str, sources: str, function: Callable[..., Any], **more: Any) -> None:
    for name in names.split():
        TABLE[name] = Vector(out, tuple(sources.split()), function, **more)


class Then:
    """A function whose last step is a ufunc: that can write its result where it belongs.

    prepare(*sources) gives the operands of `last`, which has the same type for all of them and its result.
    """

    def __init__(self, last: np.ufunc, prepare: Callable[..., tuple[np.ndarray, np.ndarray]]) -> None:
        self.last, self.prepare = last, prepare

    def __call__(self, *sources: np.ndarray) -> np.ndarray:
        result: np.ndarray = self.last(*self.prepare(*sources))
        return result


def _reverse(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda a, b: function(b, a)


def _u64(x: np.ndarray) -> np.ndarray:
    return x.astype(np.uint64)


# moves and bits
_add("v_mov_b32 v_accvgpr_read_b32 v_accvgpr_write_b32 v_accvgpr_mov_b32", "u32", "u32", lambda a: a, kind="move")
_add("v_mov_b16", "u16", "u16", lambda a: a, kind="move")
_add("v_mov_b64", "u64", "u64", lambda a: a, kind="move")
_add("v_not_b32", "u32", "u32", np.invert)
_add("v_not_b16", "u16", "u16", np.invert)
for _name, _ufunc in (("and", np.bitwise_and), ("or", np.bitwise_or), ("xor", np.bitwise_xor)):
    _add(f"v_{_name}_b32", "u32", "u32 u32", _ufunc)
    _add(f"v_{_name}_b16", "u16", "u16 u16", _ufunc)
_add("v_xnor_b32", "u32", "u32 u32", lambda a, b: ~(a ^ b))
_add("v_bfi_b32", "u32", "u32 u32 u32", Then(np.bitwise_or, lambda a, b, c: (a & b, ~a & c)))
_add("v_and_or_b32", "u32", "u32 u32 u32", Then(np.bitwise_or, lambda a, b, c: (a & b, c)))
_add("v_or3_b32", "u32", "u32 u32 u32", Then(np.bitwise_or, lambda a, b, c: (a | b, c)))
_add("v_xor3_b32", "u32", "u32 u32 u32", Then(np.bitwise_xor, lambda a, b, c: (a ^ b, c)))
_add("v_bfm_b32", "u32", "u32 u32", lambda a, b: ((_u(1) << (a & _u(31))) - _u(1)) << (b & _u(31)))


def _bfe(signed: bool) -> Callable[..., Any]:
    def run(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        offset, width = b & _u(31), c & _u(31)
        if not signed:
            return (a >> offset) & ((_u(1) << width) - _u(1))
        # shift the field to the top, then back with its sign; bits past 31 read as zero, as in the manual
        field = (a >> offset.view(_i) if a.dtype == _i else a >> offset).view(_u) & ((_u(1) << width) - _u(1))
        sign = np.where(width == 0, _u(0), _u(1) << ((width - _u(1)) & _u(31)))
        return ((field ^ sign) - sign).view(_i)

    return run


_add("v_bfe_u32", "u32", "u32 u32 u32", _bfe(False))
_add("v_bfe_i32", "i32", "i32 u32 u32", _bfe(True))


_REVERSED = np.packbits(np.unpackbits(np.arange(256, dtype=np.uint8)).reshape(256, 8)[:, ::-1])


def next_random(seed: np.ndarray) -> np.ndarray:
    """One step of v_prng_b32, a shift register with feedback."""
    return seed << _u(1) ^ np.where(seed >> _u(31), _u(197), _u(0))


def _reverse_bits(a: np.ndarray) -> np.ndarray:
    return _REVERSED[np.ascontiguousarray(a).byteswap().view(np.uint8)].view(_u)


_add("v_bfrev_b32", "u32", "u32", _reverse_bits)
_add("v_prng_b32", "u32", "u32", next_random)
_add("v_bcnt_u32_b32", "u32", "u32 u32", lambda a, b: np.bitwise_count(a).astype(_u) + b)


def _top_bit(a: np.ndarray) -> np.ndarray:
    """Index of the highest set bit of a uint32 or uint64, -1 for zero, exact."""
    high = np.frexp((a.astype(np.uint64) >> np.uint64(32)).astype(np.float64))[1]
    low = np.frexp((a.astype(np.uint64) & np.uint64(0xFFFFFFFF)).astype(np.float64))[1]
    return np.where(high > 0, high + 31, low - 1).astype(np.int32)


def _ffbh(a: np.ndarray) -> np.ndarray:
    return np.where(a == 0, _u(0xFFFFFFFF), (31 - _top_bit(a)).astype(_u))


def _ffbh_signed(a: np.ndarray) -> np.ndarray:
    bits = a.view(_u)
    return _ffbh(np.where(a < 0, ~bits, bits)).view(_u)


def _ffbl(a: np.ndarray) -> np.ndarray:
    return np.where(a == 0, _u(0xFFFFFFFF), np.bitwise_count((a - a.dtype.type(1)) & ~a).astype(_u))


_add("v_ffbh_u32 v_clz_i32_u32", "u32", "u32", _ffbh)
_add("v_ffbh_i32 v_cls_i32", "u32", "i32", _ffbh_signed)
_add("v_ffbl_b32 v_ctz_i32_b32", "u32", "u32", _ffbl)
_add(
    "v_sat_pk_u8_i16",
    "u16",
    "u32",
    lambda a: (
        np.clip((a & _u(0xFFFF)).astype(np.uint16).view(np.int16), 0, 255).astype(np.uint16)
        | np.clip((a >> _u(16)).astype(np.uint16).view(np.int16), 0, 255).astype(np.uint16) << np.uint16(8)
    ),
)


def _perm(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    if c.shape[-1] == 1 and (c == c.flat[0]).all():
        quick = _perm_constant(int(c.flat[0]))
        if quick is not None:
            return quick(a, b, c)
    a, b, c = np.broadcast_arrays(a, b, c)
    both = np.ascontiguousarray(a).astype(np.uint64) << np.uint64(32) | b
    result = np.zeros(both.shape, _u)
    for byte in range(4):
        select = (c >> _u(8 * byte)) & _u(0xFF)
        value = ((both >> (np.minimum(select, _u(7)).astype(np.uint64) * np.uint64(8))) & np.uint64(0xFF)).astype(_u)
        if (select > 7).any():
            sign_at = np.where(select < 12, (select - _u(8)) * _u(16) + _u(15), _u(0)).astype(np.uint64)
            sign = ((both >> (sign_at & np.uint64(63))) & np.uint64(1)).astype(_u) * _u(0xFF)
            value = np.where(select > 12, _u(0xFF), np.where(select == 12, _u(0), np.where(select > 7, sign, value)))
        result |= value << _u(8 * byte)
    return result


@lru_cache(maxsize=64)
def _perm_constant(selector: int) -> Callable[..., Any] | None:
    """v_perm_b32 for a selector known when decoding: four bytes picked by one table look-up of their place."""
    picks = [(selector >> (8 * byte)) & 0xFF for byte in range(4)]
    if any(pick > 7 and pick != 12 and pick <= 12 for pick in picks):
        return None
    ones = sum(0xFF << 8 * byte for byte, pick in enumerate(picks) if pick > 12)
    taken: dict[tuple[bool, int], int] = {}  # (from a, bits to the left) -> which bits of the source
    for byte, pick in enumerate(picks):
        if pick < 8:
            key = pick >= 4, 8 * (byte - pick % 4)
            taken[key] = taken.get(key, 0) | 0xFF << 8 * (pick % 4)
    every = 0xFFFFFFFF
    moves = [
        # the shift may drop all the others
        (upper, left, None if bits == (every >> left if left > 0 else every << -left & every) else _u(bits))
        for (upper, left), bits in taken.items()
    ]

    def run(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        result: Any = None if moves and not ones else np.full((1, 1), ones, _u)
        for upper, left, bits in moves:
            part = a if upper else b
            if bits is not None:
                part = part & bits
            if left:
                part = part << _u(left) if left > 0 else part >> _u(-left)
            result = part if result is None else result | part
        return result

    return run


_add("v_perm_b32", "u32", "u32 u32 u32", _perm)


def _align(a: np.ndarray, b: np.ndarray, shift: np.ndarray) -> np.ndarray:
    return ((_u64(a) << np.uint64(32) | b) >> _u64(shift) & np.uint64(0xFFFFFFFF)).astype(_u)


_add("v_alignbit_b32", "u32", "u32 u32 u32", lambda a, b, c: _align(a, b, c & _u(31)))
_add("v_alignbyte_b32", "u32", "u32 u32 u32", lambda a, b, c: _align(a, b, (c & _u(3)) * _u(8)))


def _bitop3(code: int, dtype: Any) -> Callable[..., Any]:
    """Any boolean function of three words, by its truth table (gfx950 and later)."""

    def run(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        a, b, c = np.broadcast_arrays(a, b, c)
        result = np.zeros(a.shape, dtype)
        for case in range(8):
            if code >> case & 1:
                result |= (a if case & 4 else ~a) & (b if case & 2 else ~b) & (c if case & 1 else ~c)
        return result

    return run


# shifts
_add("v_lshlrev_b32", "u32", "u32 u32", Then(np.left_shift, lambda a, b: (b, a & _u(31))))
_add("v_lshrrev_b32", "u32", "u32 u32", Then(np.right_shift, lambda a, b: (b, a & _u(31))))
_add("v_ashrrev_i32", "i32", "i32 i32", Then(np.right_shift, lambda a, b: (b, a & _i(31))))
_add("v_lshlrev_b16", "u16", "u16 u16", lambda a, b: b << (a & np.uint16(15)))
_add("v_lshrrev_b16", "u16", "u16 u16", lambda a, b: b >> (a & np.uint16(15)))
_add("v_ashrrev_i16", "i16", "i16 i16", lambda a, b: b >> (a & np.int16(15)))
_add("v_lshlrev_b64", "u64", "u32 u64", lambda a, b: b << _u64(a & _u(63)))
_add("v_lshrrev_b64", "u64", "u32 u64", lambda a, b: b >> _u64(a & _u(63)))
_add("v_ashrrev_i64", "i64", "u32 i64", lambda a, b: b >> (a & _u(63)).astype(np.int64))

# integers
_add("v_add_u32 v_add_nc_u32", "u32", "u32 u32", np.add)
_add("v_add_i32 v_add_nc_i32", "i32", "i32 i32", np.add)
_add("v_sub_u32 v_sub_nc_u32", "u32", "u32 u32", np.subtract)
_add("v_sub_i32 v_sub_nc_i32", "i32", "i32 i32", np.subtract)
_add("v_subrev_u32 v_subrev_nc_u32", "u32", "u32 u32", Then(np.subtract, lambda a, b: (b, a)))
_add("v_add_u16 v_add_nc_u16", "u16", "u16 u16", np.add)
_add("v_add_i16 v_add_nc_i16", "i16", "i16 i16", np.add)
_add("v_sub_u16 v_sub_nc_u16", "u16", "u16 u16", np.subtract)
_add("v_sub_i16 v_sub_nc_i16", "i16", "i16 i16", np.subtract)
_add("v_subrev_u16", "u16", "u16 u16", _reverse(np.subtract))
_add("v_mul_lo_u16", "u16", "u16 u16", np.multiply)
_add("v_mad_u16 v_mad_legacy_u16", "u16", "u16 u16 u16", lambda a, b, c: a * b + c)
_add("v_mad_i16 v_mad_legacy_i16", "i16", "i16 i16 i16", lambda a, b, c: a * b + c)
_add("v_mul_lo_u32", "u32", "u32 u32", np.multiply)
_add("v_mul_hi_u32", "u32", "u32 u32", lambda a, b: (_u64(a) * _u64(b) >> np.uint64(32)).astype(_u))
_add("v_mul_hi_i32", "i32", "i32 i32", lambda a, b: (a.astype(np.int64) * b.astype(np.int64) >> 32).astype(_i))
_24 = _u(0xFFFFFF)


def _s24(a: np.ndarray) -> np.ndarray:
    return (a << _i(8)) >> _i(8)


_add("v_mul_u32_u24", "u32", "u32 u32", Then(np.multiply, lambda a, b: (a & _24, b & _24)))
_add("v_mul_i32_i24", "i32", "i32 i32", Then(np.multiply, lambda a, b: (_s24(a), _s24(b))))
_add("v_mul_hi_u32_u24", "u32", "u32 u32", lambda a, b: (_u64(a & _24) * _u64(b & _24) >> np.uint64(32)).astype(_u))
_add(
    "v_mul_hi_i32_i24",
    "i32",
    "i32 i32",
    lambda a, b: (_s24(a).astype(np.int64) * _s24(b).astype(np.int64) >> 32).astype(_i),
)
_add("v_mad_u32_u24", "u32", "u32 u32 u32", Then(np.add, lambda a, b, c: ((a & _24) * (b & _24), c)))
_add("v_mad_i32_i24", "i32", "i32 i32 i32", Then(np.add, lambda a, b, c: (_s24(a) * _s24(b), c)))
_add("v_mad_u32_u16", "u32", "u16 u16 u32", lambda a, b, c: a.astype(_u) * b.astype(_u) + c)
_add("v_mad_i32_i16", "i32", "i16 i16 i32", lambda a, b, c: a.astype(_i) * b.astype(_i) + c)
_add("v_add3_u32", "u32", "u32 u32 u32", Then(np.add, lambda a, b, c: (a + b, c)))
_add("v_lshl_add_u32", "u32", "u32 u32 u32", Then(np.add, lambda a, b, c: (a << (b & _u(31)), c)))
_add("v_add_lshl_u32", "u32", "u32 u32 u32", Then(np.left_shift, lambda a, b, c: (a + b, c & _u(31))))
_add("v_lshl_or_b32", "u32", "u32 u32 u32", Then(np.bitwise_or, lambda a, b, c: (a << (b & _u(31)), c)))
_add("v_xad_u32", "u32", "u32 u32 u32", Then(np.add, lambda a, b, c: (a ^ b, c)))
_add("v_lshl_add_u64", "u64", "u64 u32 u64", lambda a, b, c: (a << _u64(b & _u(7))) + c)
_add("v_add_nc_u64", "u64", "u64 u64", np.add)
_add("v_sub_nc_u64", "u64", "u64 u64", np.subtract)
_add("v_mul_u64", "u64", "u64 u64", np.multiply)
_add("v_mad_u32", "u32", "u32 u32 u32", Then(np.add, lambda a, b, c: (a * b, c)))
_add("v_mad_nc_u64_u32", "u64", "u32 u32 u64", lambda a, b, c: _u64(a) * _u64(b) + c)
_add("v_mad_nc_i64_i32", "i64", "i32 i32 i64", lambda a, b, c: a.astype(np.int64) * b.astype(np.int64) + c)
for _t, _kinds in (("min", np.minimum), ("max", np.maximum)):
    for _k in ("u32", "i32", "u16", "i16", "u64", "i64"):
        _add(f"v_{_t}_{_k}", _k, f"{_k} {_k}", _kinds)
    for _k in ("u32", "i32", "u16", "i16"):
        _add(f"v_{_t}3_{_k}", _k, f"{_k} {_k} {_k}", lambda a, b, c, f=_kinds: f(f(a, b), c))
for _k in ("u32", "i32", "u16", "i16", "f32", "f16"):
    _add(f"v_med3_{_k}" if _k[0] != "f" else f"v_med3_{_k} v_med3_num_{_k}", _k, f"{_k} {_k} {_k}", fl.median3)
for _a, _b in (("min", "max"), ("max", "min")):
    for _k in ("u32", "i32"):
        _add(
            f"v_{_a}{_b}_{_k}",
            _k,
            f"{_k} {_k} {_k}",
            lambda a, b, c, f=getattr(np, _a + "imum"), g=getattr(np, _b + "imum"): g(f(a, b), c),
        )
    for _k in ("f32", "f16"):
        _add(
            f"v_{_a}{_b}_{_k} v_{_a}{_b}_num_{_k}",
            _k,
            f"{_k} {_k} {_k}",
            lambda a, b, c, f=getattr(fl, "f" + _a), g=getattr(fl, "f" + _b): g(f(a, b), c),
        )
_add("v_sad_u32", "u32", "u32 u32 u32", lambda a, b, c: np.maximum(a, b) - np.minimum(a, b) + c)


def _sad(width: int, shift: int) -> Callable[..., Any]:
    def run(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        total = c
        for at in range(0, 32, width):
            x, y = (a >> _u(at)) & _u((1 << width) - 1), (b >> _u(at)) & _u((1 << width) - 1)
            total = total + ((np.maximum(x, y) - np.minimum(x, y)) << _u(shift))
        return total

    return run


_add("v_sad_u8", "u32", "u32 u32 u32", _sad(8, 0))
_add("v_sad_hi_u8", "u32", "u32 u32 u32", _sad(8, 16))
_add("v_sad_u16", "u32", "u32 u32 u32", _sad(16, 0))

# floating point
_BASIC: tuple[Any, ...] = (np.add, np.subtract, np.multiply)
for _k, _fma in (("f32", fl.fma32), ("f16", fl.fma16), ("f64", fl.fma64)):
    _sum, _less, _times = map(fl.on_halves, _BASIC) if _k == "f16" else _BASIC
    _add(f"v_add_{_k}", _k, f"{_k} {_k}", _sum)
    _add(f"v_sub_{_k}", _k, f"{_k} {_k}", _less)
    _add(f"v_subrev_{_k}", _k, f"{_k} {_k}", _reverse(_less))
    _add(f"v_mul_{_k}", _k, f"{_k} {_k}", _times)
    _add(f"v_max_{_k} v_max_num_{_k}", _k, f"{_k} {_k}", fl.fmax)
    _add(f"v_min_{_k} v_min_num_{_k}", _k, f"{_k} {_k}", fl.fmin)
    _add(f"v_maximum_{_k}", _k, f"{_k} {_k}", fl.maximum)
    _add(f"v_minimum_{_k}", _k, f"{_k} {_k}", fl.minimum)
    _add(f"v_fma_{_k}", _k, f"{_k} {_k} {_k}", _fma)
    _add(f"v_fmac_{_k}", _k, f"{_k} {_k} {_k}", _fma, accumulate=True)
    _add(f"v_floor_{_k}", _k, _k, np.floor)
    _add(f"v_ceil_{_k}", _k, _k, np.ceil)
    _add(f"v_trunc_{_k}", _k, _k, np.trunc)
    _add(f"v_rndne_{_k}", _k, _k, np.rint)
    _add(f"v_max3_{_k} v_max3_num_{_k}", _k, f"{_k} {_k} {_k}", lambda a, b, c: fl.fmax(fl.fmax(a, b), c))
    _add(f"v_min3_{_k} v_min3_num_{_k}", _k, f"{_k} {_k} {_k}", lambda a, b, c: fl.fmin(fl.fmin(a, b), c))
    _add(f"v_maximum3_{_k}", _k, f"{_k} {_k} {_k}", lambda a, b, c: fl.maximum(fl.maximum(a, b), c))
    _add(f"v_minimum3_{_k}", _k, f"{_k} {_k} {_k}", lambda a, b, c: fl.minimum(fl.minimum(a, b), c))


def _mad(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Multiply and add with two roundings and flushed denormals (before gfx90a's v_fma took over)."""
    tiny = np.finfo(np.float32).tiny

    def flush(x: np.ndarray) -> np.ndarray:
        return np.where(np.abs(x) < tiny, np.copysign(_f(0), x), x)

    return flush(flush(flush(a) * flush(b)) + flush(c))


_add("v_mad_f32 v_madak_f32 v_madmk_f32", "f32", "f32 f32 f32", _mad)
_add("v_mac_f32", "f32", "f32 f32 f32", _mad, accumulate=True)
for _k in ("f32", "f16"):
    _add(f"v_fmaak_{_k} v_fmamk_{_k}", _k, f"{_k} {_k} {_k}", fl.fma32 if _k == "f32" else fl.fma16)
_add("v_mul_legacy_f32 v_mul_dx9_zero_f32", "f32", "f32 f32", lambda a, b: np.where((a == 0) | (b == 0), _f(0), a * b))


def _fract(a: np.ndarray) -> np.ndarray:
    below_one = np.nextafter(a.dtype.type(1), a.dtype.type(0))
    return np.minimum(a - np.floor(a), below_one)


for _k in ("f32", "f16", "f64"):
    _add(f"v_fract_{_k}", _k, _k, _fract)


def _approximate(function: Callable[..., Any], flush: bool = True) -> Callable[..., Any]:
    """Evaluate in float64 and round once: within the bound of the hardware's instruction. flush: denormals become 0."""

    if not flush:
        return lambda a: function(a.astype(np.float64)).astype(a.dtype)

    def run(a: np.ndarray) -> np.ndarray:
        wide = a.astype(np.float64)
        _flush(wide, np.finfo(a.dtype).tiny)
        result = function(wide).astype(a.dtype)
        _flush(result, np.finfo(a.dtype).tiny)
        return result

    return run


def _flush(a: np.ndarray, tiny: np.floating[Any]) -> None:
    """Make what is smaller than `tiny` a zero of its sign, in place."""
    small = np.abs(a) < tiny
    if np.count_nonzero(small):
        a[small] = np.copysign(0, a[small])


def _rsq(a: np.ndarray) -> np.ndarray:
    return 1 / np.sqrt(a)


def _turns(function: Callable[..., Any]) -> Callable[..., Any]:
    """v_sin and v_cos take turns: 1.0 is a full circle."""

    def run(a: np.ndarray) -> np.ndarray:
        return np.where(np.isfinite(a), function((a - np.floor(a)) * (2 * np.pi)), np.nan)

    return run


# Bounds: AMD's manuals state 1 ulp for exp, log, rcp, rsq and sqrt of float32; sin and cos have an absolute error.
_slow: dict[str, Any] = {"kind": "transcendental"}
_function: Any
for _name, _function, _flushes in (
    ("exp", np.exp2, True),
    ("log", np.log2, True),
    ("rcp", np.reciprocal, False),
    ("rsq", _rsq, False),
    ("sqrt", np.sqrt, False),
):
    # a reciprocal or a root of a float32 is rounded right at once
    _single = _function if _name in ("rcp", "sqrt") else _approximate(_function, _flushes)
    _add(f"v_{_name}_f32", "f32", "f32", _single, error=1, **_slow)
    _add(f"v_{_name}_f16", "f16", "f16", _approximate(_function, False), error=1, **_slow)
_add("v_rcp_iflag_f32", "f32", "f32", np.reciprocal, error=1, **_slow)
_add("v_rcp_f64", "f64", "f64", np.reciprocal, error=2**24, **_slow)
_add("v_rsq_f64", "f64", "f64", _rsq, error=2**24, **_slow)
_add("v_sqrt_f64", "f64", "f64", np.sqrt, error=2**24, **_slow)
for _name, _function in (("sin", np.sin), ("cos", np.cos)):
    _add(f"v_{_name}_f32", "f32", "f32", _approximate(_turns(_function)), error=2**4, **_slow)
    _add(f"v_{_name}_f16", "f16", "f16", _approximate(_turns(_function), False), error=2, **_slow)


def _ldexp(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype == np.float64:
        return np.ldexp(a, np.clip(b, -4200, 4200))
    return np.ldexp(a.astype(np.float64), np.clip(b.astype(_i), -700, 700)).astype(a.dtype)


_add("v_ldexp_f32", "f32", "f32 i32", _ldexp)
_add("v_ldexp_f16", "f16", "f16 i16", _ldexp)
_add("v_ldexp_f64", "f64", "f64 i32", _ldexp)


def _two_over_pi(digits: int = 1201) -> int:
    """floor(2 / pi * 2**digits), pi by Machin's formula in integers."""
    one = 1 << (digits + 64)

    def arctan_of_inverse(n: int) -> int:
        total, term, k = 0, one // n, 1
        while term:
            total += term // k if k % 4 == 1 else -(term // k)
            term, k = term // (n * n), k + 2
        return total

    pi = 4 * (4 * arctan_of_inverse(5) - arctan_of_inverse(239))
    return (2 * one << digits) // pi


@lru_cache(maxsize=4096)
def _preop(shift: int, huge: bool) -> float:
    bits = (_two_over_pi_bits() << shift) >> (1201 - 53) & ((1 << 53) - 1)
    return math.ldexp(float(bits), -53 - shift + (128 if huge else 0))


_two_over_pi_bits = lru_cache(maxsize=1)(_two_over_pi)


def _trig_preop(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """53 bits of 2/pi, taken from where the exponent of the argument needs them, for sin and cos of float64."""
    exponent = (a.view(np.uint64) >> np.uint64(52) & np.uint64(0x7FF)).astype(np.int64)
    shift = (b & _u(31)).astype(np.int64) * 53 + np.maximum(exponent - 1077, 0)
    keys, back = np.unique(shift * 2 + (exponent >= 1968), return_inverse=True)
    values = np.array([_preop(int(key) >> 1, bool(key & 1)) for key in keys])
    return values[back].reshape(a.shape)


_add("v_trig_preop_f64", "f64", "f64 u32", _trig_preop)


def _frexp_exp(a: np.ndarray) -> np.ndarray:
    exponent = np.frexp(np.where(np.isfinite(a), a, 0))[1]
    return exponent.astype(np.int16 if a.dtype == np.float16 else _i)


def _frexp_mant(a: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(a), np.frexp(np.where(np.isfinite(a), a, 0))[0], a).astype(a.dtype)


for _k, _e in (("f32", "i32"), ("f16", "i16"), ("f64", "i32")):
    _add(f"v_frexp_exp_{_e}_{_k}", _e, _k, _frexp_exp)
    _add(f"v_frexp_mant_{_k}", _k, _k, _frexp_mant)

# conversions
_add("v_cvt_f32_i32", "f32", "i32", lambda a: a.astype(_f))
_add("v_cvt_f32_u32", "f32", "u32", lambda a: a.astype(_f))
_add("v_cvt_f64_i32", "f64", "i32", lambda a: a.astype(np.float64))
_add("v_cvt_f64_u32", "f64", "u32", lambda a: a.astype(np.float64))
_add("v_cvt_f64_f32", "f64", "f32", lambda a: a.astype(np.float64))
_add("v_cvt_f32_f64", "f32", "f64", lambda a: a.astype(_f))
_add("v_cvt_f16_f32", "f16", "f32", fl.f32_to_half)
_add("v_cvt_f32_f16", "f32", "f16", lambda a: half_to_f32(a.view(np.uint16)))
_add("v_cvt_f32_bf16", "f32", "u16", fl.bf16_to_f32)
_add("v_cvt_f16_u16", "f16", "u16", lambda a: a.astype(np.float16))
_add("v_cvt_f16_i16", "f16", "i16", lambda a: a.astype(np.float16))
_add("v_cvt_u16_f16", "u16", "f16", lambda a: fl.to_int(a, np.uint16))
_add("v_cvt_i16_f16", "i16", "f16", lambda a: fl.to_int(a, np.int16))
for _k in ("f32", "f64"):
    _add(f"v_cvt_i32_{_k}", "i32", _k, lambda a: fl.to_int(a, np.int32))
    _add(f"v_cvt_u32_{_k}", "u32", _k, lambda a: fl.to_int(a, np.uint32))
_add("v_cvt_flr_i32_f32 v_cvt_floor_i32_f32", "i32", "f32", lambda a: fl.to_int(np.floor(a), np.int32))
_add(
    "v_cvt_rpi_i32_f32 v_cvt_nearest_i32_f32",
    "i32",
    "f32",
    lambda a: fl.to_int(np.floor(a + _f(0.5)), np.int32),
)
for _byte in range(4):
    _add(f"v_cvt_f32_ubyte{_byte}", "f32", "u32", lambda a, s=_u(8 * _byte): ((a >> s) & _u(0xFF)).astype(_f))
_add("v_cvt_i32_i16", "i32", "i16", lambda a: a.astype(_i))
_add("v_cvt_u32_u16", "u32", "u16", lambda a: a.astype(_u))


def _halves(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    low, high = np.ascontiguousarray(low).view(np.uint16), np.ascontiguousarray(high).view(np.uint16)
    return low.astype(_u) | high.astype(_u) << _u(16)


def _toward_zero(a: np.ndarray) -> np.ndarray:
    """float32 -> float16 rounded toward zero."""
    near = fl.f32_to_half(a)
    over = np.abs(half_to_f32(near.view(np.uint16))) > np.abs(a)
    bits = near.view(np.uint16)
    return np.where(over, bits - np.uint16(1), bits).view(np.float16)


_add(
    "v_cvt_pkrtz_f16_f32 v_cvt_pk_rtz_f16_f32", "u32", "f32 f32", lambda a, b: _halves(_toward_zero(a), _toward_zero(b))
)
_add("v_cvt_pk_f16_f32", "u32", "f32 f32", lambda a, b: _halves(fl.f32_to_half(a), fl.f32_to_half(b)))
_add("v_cvt_pk_bf16_f32", "u32", "f32 f32", lambda a, b: fl.f32_to_bf16(a) | fl.f32_to_bf16(b) << _u(16))
_add("v_pack_b32_f16", "u32", "u16 u16", _halves)
_add(
    "v_cvt_pk_i16_i32",
    "u32",
    "i32 i32",
    lambda a, b: _halves(np.clip(a, -32768, 32767).astype(np.int16), np.clip(b, -32768, 32767).astype(np.int16)),
)
_add(
    "v_cvt_pk_u16_u32",
    "u32",
    "u32 u32",
    lambda a, b: _halves(np.minimum(a, _u(65535)).astype(np.uint16), np.minimum(b, _u(65535)).astype(np.uint16)),
)
_add("v_cvt_pk_i16_f32", "u32", "f32 f32", lambda a, b: _halves(fl.to_int(a, np.int16), fl.to_int(b, np.int16)))
_add("v_cvt_pk_u16_f32", "u32", "f32 f32", lambda a, b: _halves(fl.to_int(a, np.uint16), fl.to_int(b, np.uint16)))


def _norm(low: float, scale: float, dtype: type) -> Callable[..., Any]:
    def one(a: np.ndarray) -> np.ndarray:
        wide = np.clip(np.nan_to_num(a.astype(np.float64)), low, 1.0) * scale
        return np.rint(wide).astype(dtype)

    return lambda a, b: _halves(one(a), one(b))


_add("v_cvt_pknorm_i16_f32 v_cvt_pk_norm_i16_f32", "u32", "f32 f32", _norm(-1, 32767, np.int16))
_add("v_cvt_pknorm_u16_f32 v_cvt_pk_norm_u16_f32", "u32", "f32 f32", _norm(0, 65535, np.uint16))


def _pk_u8(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    shift = (b & _u(3)) * _u(8)
    value = np.clip(np.rint(np.nan_to_num(a)), 0, 255).astype(_u)
    return (c & ~(_u(0xFF) << shift)) | value << shift


_add("v_cvt_pk_u8_f32", "u32", "f32 u32 u32", _pk_u8)


# division helpers
def select_bits(mask: np.ndarray, chosen: np.floating[Any], others: np.ndarray) -> np.ndarray:
    """np.where(mask, chosen, others) for one float, faster."""
    word = np.dtype(f"i{others.dtype.itemsize}")
    bits = np.negative(mask.view(np.int8)).astype(word)
    change = others.view(word) ^ chosen.view(word)
    bits &= change
    bits ^= others.view(word)
    return bits.view(others.dtype)


def biased_exponent(x: np.ndarray) -> np.ndarray:
    """The exponent field of a float, int64; 0 for denormals and zero."""
    info = np.finfo(x.dtype)
    word = np.dtype(f"u{x.dtype.itemsize}").type
    raw = np.ascontiguousarray(x).view(word) >> word(info.nmant)
    raw &= word(2 * info.maxexp - 1)
    return raw.astype(np.int64)


def exponent_range(x: np.ndarray) -> tuple[int, int, np.ndarray | None]:
    """The least and the greatest `biased_exponent` of what is not zero, and where zeros are (None: nowhere)."""
    info = np.finfo(x.dtype)
    word = np.dtype(f"u{x.dtype.itemsize}").type
    size = np.ascontiguousarray(x).view(word) << word(1)
    top = int(size.max()) >> 1 + info.nmant
    size -= word(1)  # a zero becomes the greatest
    zeros = x == 0 if int(size.max()) == np.iinfo(word).max else None
    return (int(size.min()) + 1) >> 1 + info.nmant, top, zeros


def _div_fixup(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """a: quotient, b: denominator, c: numerator.

    A quotient that overflows has become NaN (inf - inf) in the steps before: f32 and f64 make it infinite, which the
    manuals leave out and emulators checked against hardware do.
    """
    a, b, c = np.broadcast_arrays(a, b, c)
    top, bottom = 2 * np.finfo(a.dtype).maxexp - 1, {2: -30, 4: -150, 8: -1075}[a.dtype.itemsize]
    (least, most, no_quotient), (low, high, zeros) = exponent_range(b), exponent_range(c)
    if least and low and no_quotient is None and most < top and high < top and low - most >= bottom:
        if zeros is not None:
            a = select_bits(zeros, a.dtype.type(0), a)
        if not np.count_nonzero(np.isnan(a)):
            return np.copysign(a, b * c)
    signed = np.where(np.signbit(b) ^ np.signbit(c), a.dtype.type(-1), a.dtype.type(1))
    result = np.abs(a) * signed
    below, above = biased_exponent(b), biased_exponent(c)
    ends = (below == 0) | (below == top) | (above == 0) | (above == top) | (above - below < bottom) | np.isnan(a)
    if np.count_nonzero(ends):
        result[ends] = _fixed(a[ends], b[ends], c[ends], signed[ends], bottom)
    return result


def _fixed(a: np.ndarray, b: np.ndarray, c: np.ndarray, signed: np.ndarray, bottom: int) -> np.ndarray:
    """`_div_fixup` where an operand is no normal number, or the exponents are `bottom` apart."""
    dtype = a.dtype
    result = np.abs(a) * signed
    if dtype.itemsize > 2:
        result = np.where(np.isnan(a), signed * dtype.type(np.inf), result)
        result = np.where(biased_exponent(c) - biased_exponent(b) < bottom, signed * dtype.type(0), result)
    result = np.where(np.isinf(b) | (c == 0), signed * dtype.type(0), result)
    result = np.where((b == 0) | np.isinf(c), signed * dtype.type(np.inf), result)
    invalid = ((b == 0) & (c == 0)) | (np.isinf(b) & np.isinf(c))
    result = np.where(invalid, dtype.type(np.nan), result)
    return np.where(np.isnan(b) | np.isnan(c), b + c, result).astype(dtype)


_add("v_fmaak_f64 v_fmamk_f64", "f64", "f64 f64 f64", fl.fma64)
for _k in ("f16", "f32", "f64"):
    _add(f"v_div_fixup_{_k}", _k, f"{_k} {_k} {_k}", _div_fixup)


# dot products of small integers and halves
def _parts(a: np.ndarray, width: int, signed: bool) -> list[np.ndarray]:
    result = []
    for at in range(0, 32, width):
        field = a << _u(32 - width - at)
        result.append(field.view(_i) >> _i(32 - width) if signed else (field >> _u(32 - width)).view(_i))
    return result


def _dot_int(width: int, first: bool, second: bool) -> Callable[..., Any]:
    def run(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        total = c.view(_i)
        for x, y in zip(_parts(a, width, first), _parts(b, width, second), strict=True):
            total = total + x * y
        return total.view(_u)

    return run


for _w, _k in ((8, "dot4"), (4, "dot8"), (16, "dot2")):
    _add(f"v_{_k}_i32_i{_w}", "u32", "u32 u32 u32", _dot_int(_w, True, True))
    _add(f"v_{_k}_u32_u{_w}", "u32", "u32 u32 u32", _dot_int(_w, False, False))
    _add(f"v_{_k}c_i32_i{_w}", "u32", "u32 u32 u32", _dot_int(_w, True, True), accumulate=True)


def _dot2(low: Callable[..., Any], high: Callable[..., Any]) -> Callable[..., Any]:
    def run(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        first = low(a).astype(np.float64) * low(b)
        second = high(a).astype(np.float64) * high(b)
        return (first + second + c.view(_f)).astype(_f)

    return run


def _f16_low(a: np.ndarray) -> np.ndarray:
    return (a & _u(0xFFFF)).astype(np.uint16).view(np.float16)


def _f16_high(a: np.ndarray) -> np.ndarray:
    return (a >> _u(16)).astype(np.uint16).view(np.float16)


def _bf_low(a: np.ndarray) -> np.ndarray:
    return (a << _u(16)).view(_f)


def _bf_high(a: np.ndarray) -> np.ndarray:
    return (a & _u(0xFFFF0000)).view(_f)


for _k, _low, _high in (("f16", _f16_low, _f16_high), ("bf16", _bf_low, _bf_high)):
    _add(f"v_dot2_f32_{_k}", "f32", f"v2{_k} v2{_k} f32", _dot2(_low, _high), error=1)
    _add(
        f"v_dot2c_f32_{_k} v_dot2acc_f32_{_k}",
        "f32",
        f"v2{_k} v2{_k} f32",
        _dot2(_low, _high),
        accumulate=True,
        error=1,
    )


def _dot2_narrow(
    low: Callable[..., Any], high: Callable[..., Any], narrow: Callable[..., Any], widen: Callable[..., Any]
) -> Any:
    """v_dot2 with a 16-bit accumulator: every product and every sum is rounded to 16 bits."""

    def run(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        total = widen(c)
        for part in (low, high):
            total = widen(narrow(total + widen(narrow(part(a).astype(_f) * part(b).astype(_f)))))
        return narrow(total)

    return run


_add(
    "v_dot2_f16_f16",
    "f16",
    "v2f16 v2f16 f16",
    _dot2_narrow(_f16_low, _f16_high, lambda x: x.astype(np.float16), lambda c: c.astype(_f)),
    error=1,
)
_add(
    "v_dot2_bf16_bf16",
    "u16",
    "v2bf16 v2bf16 bf16",
    _dot2_narrow(_bf_low, _bf_high, lambda x: fl.f32_to_bf16(x).astype(np.uint16), fl.bf16_to_f32),
    error=1,
)
