"""The table of scalar arithmetic: mnemonic -> types, a function on arrays, what it does to SCC."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_utils.virtual.amdgcn import valu
from gpu_utils.virtual.amdgcn.floating import fma32, fmax, fmin, to_int
from gpu_utils.virtual.amdgcn.operands import DTYPES
from gpu_utils.virtual.amdgcn.valu import _bfe, _ffbh, _ffbh_signed, _ffbl, _reverse_bits, _top_bit
from gpu_utils.virtual.halves import half_to_f32

_u, _q = np.uint32, np.uint64


@dataclass(frozen=True, slots=True)
class Scalar:
    """function(*sources) -> value, or (value, scc) when scc is "own". scc: "", "nonzero" or "own"."""

    out: str
    sources: tuple[str, ...]
    function: Callable[..., Any]
    scc: str = ""


TABLE: dict[str, Scalar] = {}


def _add(names: str, out: str, sources: str, function: Callable[..., Any], scc: str = "") -> None:
    for name in names.split():
        TABLE[name] = Scalar(out, tuple(sources.split()), function, scc)


_LOGIC: dict[str, Any] = {
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "nand": lambda a, b: ~(a & b),
    "nor": lambda a, b: ~(a | b),
    "xnor": lambda a, b: ~(a ^ b),
    "andn2": lambda a, b: a & ~b,
    "orn2": lambda a, b: a | ~b,
    "and_not1": lambda a, b: a & ~b,
    "or_not1": lambda a, b: a | ~b,
}
for _w, _k in ((32, "u32"), (64, "u64")):
    _t = DTYPES[_k]
    for _name, _function in _LOGIC.items():
        _add(f"s_{_name}_b{_w}", _k, f"{_k} {_k}", _function, "nonzero")
    _add(f"s_mov_b{_w}", _k, _k, lambda a: a)
    _add(f"s_not_b{_w}", _k, _k, np.invert, "nonzero")
    _add(f"s_lshl_b{_w}", _k, f"{_k} u32", lambda a, b, t=_t, m=_w - 1: a << (b & _u(m)).astype(t), "nonzero")
    _add(f"s_lshr_b{_w}", _k, f"{_k} u32", lambda a, b, t=_t, m=_w - 1: a >> (b & _u(m)).astype(t), "nonzero")
    _add(
        f"s_ashr_i{_w}",
        f"i{_w}",
        f"i{_w} u32",
        lambda a, b, t=DTYPES[f"i{_w}"], m=_w - 1: a >> (b & _u(m)).astype(t),
        "nonzero",
    )
    _add(f"s_bcnt1_i32_b{_w}", "u32", _k, lambda a: np.bitwise_count(a).astype(_u), "nonzero")
    _add(f"s_bcnt0_i32_b{_w}", "u32", _k, lambda a: np.bitwise_count(~a).astype(_u), "nonzero")
    _add(
        f"s_bfm_b{_w}",
        _k,
        "u32 u32",
        lambda a, b, t=_t, m=_w - 1: ((t(1) << (a & _u(m)).astype(t)) - t(1)) << (b & _u(m)).astype(t),
    )
    _add(f"s_cselect_b{_w}", _k, f"{_k} {_k} scc", lambda a, b, c: np.where(c, a, b))
    _add(f"s_bitset1_b{_w}", _k, f"u32 {_k}", lambda a, b, t=_t, m=_w - 1: b | t(1) << (a & _u(m)).astype(t))
    _add(f"s_bitset0_b{_w}", _k, f"u32 {_k}", lambda a, b, t=_t, m=_w - 1: b & ~(t(1) << (a & _u(m)).astype(t)))


def _wqm(a: np.ndarray) -> np.ndarray:
    any_in_quad = a | a >> a.dtype.type(1) | a >> a.dtype.type(2) | a >> a.dtype.type(3)
    return (any_in_quad & a.dtype.type(0x1111111111111111 & ((1 << a.dtype.itemsize * 8) - 1))) * a.dtype.type(15)


_add("s_wqm_b32", "u32", "u32", _wqm, "nonzero")
_add("s_wqm_b64", "u64", "u64", _wqm, "nonzero")
_add("s_brev_b32", "u32", "u32", _reverse_bits)


def _reverse64(a: np.ndarray) -> np.ndarray:
    low, high = (a & _q(0xFFFFFFFF)).astype(_u), (a >> _q(32)).astype(_u)
    return _reverse_bits(low).astype(_q) << _q(32) | _reverse_bits(high)


_add("s_brev_b64", "u64", "u64", _reverse64)
_add("s_flbit_i32_b32 s_clz_i32_u32", "u32", "u32", _ffbh)
_add("s_flbit_i32 s_cls_i32", "u32", "i32", _ffbh_signed)
_add(
    "s_flbit_i32_b64 s_clz_i32_u64",
    "u32",
    "u64",
    lambda a: np.where(a == 0, _u(0xFFFFFFFF), (63 - _top_bit(a)).astype(_u)),
)
_add("s_ff1_i32_b32 s_ctz_i32_b32", "u32", "u32", _ffbl)
_add(
    "s_ff1_i32_b64 s_ctz_i32_b64",
    "u32",
    "u64",
    _ffbl,
)
_add("s_sext_i32_i8", "i32", "i32", lambda a: (a << np.int32(24)) >> np.int32(24))
_add("s_sext_i32_i16", "i32", "i32", lambda a: (a << np.int32(16)) >> np.int32(16))


def _add_carry(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    total = a + b
    return total, total < a


def _add_signed(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    value = a + b
    return value, (a ^ value) & (b ^ value) < 0


def _sub_signed(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    value = a - b
    return value, (a ^ b) & (a ^ value) < 0


def _add_with(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    wide = a.astype(_q) + b + c.astype(_q)
    return wide.astype(_u), wide > _q(0xFFFFFFFF)


def _sub_with(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    taken = b.astype(_q) + c.astype(_q)
    return (a.astype(_q) - taken).astype(_u), taken > a


_add("s_add_u32 s_add_co_u32", "u32", "u32 u32", _add_carry, "own")
_add("s_sub_u32 s_sub_co_u32", "u32", "u32 u32", lambda a, b: (a - b, b > a), "own")
_add("s_add_i32 s_add_co_i32", "i32", "i32 i32", _add_signed, "own")
_add("s_sub_i32 s_sub_co_i32", "i32", "i32 i32", _sub_signed, "own")
_add("s_addc_u32 s_add_co_ci_u32", "u32", "u32 u32 scc", _add_with, "own")
_add("s_subb_u32 s_sub_co_ci_u32", "u32", "u32 u32 scc", _sub_with, "own")
_add("s_add_nc_u64 s_add_u64", "u64", "u64 u64", np.add)
_add("s_sub_nc_u64 s_sub_u64", "u64", "u64 u64", np.subtract)
_add("s_mul_u64", "u64", "u64 u64", np.multiply)
_add("s_mul_i32", "u32", "u32 u32", np.multiply)
_add("s_mul_hi_u32", "u32", "u32 u32", lambda a, b: (a.astype(_q) * b >> _q(32)).astype(_u))
_add("s_mul_hi_i32", "i32", "i32 i32", lambda a, b: (a.astype(np.int64) * b >> np.int64(32)).astype(np.int32))
for _k in ("u32", "i32"):
    _add(f"s_min_{_k}", _k, f"{_k} {_k}", lambda a, b: (np.minimum(a, b), a < b), "own")
    _add(f"s_max_{_k}", _k, f"{_k} {_k}", lambda a, b: (np.maximum(a, b), a >= b), "own")
_add("s_abs_i32", "i32", "i32", np.abs, "nonzero")
_add("s_absdiff_i32", "i32", "i32 i32", lambda a, b: np.abs(a - b), "nonzero")
for _n in (1, 2, 3, 4):
    _add(
        f"s_lshl{_n}_add_u32",
        "u32",
        "u32 u32",
        lambda a, b, n=_n: ((a << _u(n)) + b, (a.astype(_q) << _q(n)) + b > _q(0xFFFFFFFF)),
        "own",
    )
_add(
    "s_bfe_u32",
    "u32",
    "u32 u32",
    lambda a, b: _bfe(False)(a, b & _u(31), np.minimum(b >> _u(16) & _u(127), _u(31))),
    "nonzero",
)
_add("s_bfe_i32", "i32", "i32 u32", lambda a, b: _bfe(True)(a, b & _u(31), b >> _u(16) & _u(31)), "nonzero")


def _bfe64(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    width = (b >> _u(16) & _u(127)).astype(_q)
    field = a >> (b & _u(63)).astype(_q)
    return np.where(width >= 64, field, field & ((_q(1) << (width & _q(63))) - _q(1)))


def _bfe_signed64(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    width = (b >> _u(16) & _u(127)).astype(_q)
    field = _bfe64((a >> (b & _u(63)).astype(np.int64)).view(_q), b & ~_u(63))
    sign = np.where(width == 0, _q(0), _q(1) << ((width - _q(1)) & _q(63)))
    return np.where(width >= 64, field, (field ^ sign) - sign).view(np.int64)


_add("s_bfe_u64", "u64", "u64 u32", _bfe64, "nonzero")
_add("s_bfe_i64", "i64", "i64 u32", _bfe_signed64, "nonzero")
_add("s_pack_ll_b32_b16", "u32", "u32 u32", lambda a, b: (a & _u(0xFFFF)) | b << _u(16))
_add("s_pack_lh_b32_b16", "u32", "u32 u32", lambda a, b: (a & _u(0xFFFF)) | (b & _u(0xFFFF0000)))
_add("s_pack_hh_b32_b16", "u32", "u32 u32", lambda a, b: a >> _u(16) | (b & _u(0xFFFF0000)))
_add("s_pack_hl_b32_b16", "u32", "u32 u32", lambda a, b: a >> _u(16) | b << _u(16))
# scalar floating point of gfx11.5 and gfx12
_f = np.float32
_ufunc: Any
for _name, _ufunc in (("add", np.add), ("sub", np.subtract), ("mul", np.multiply)):
    _add(f"s_{_name}_f32", "f32", "f32 f32", _ufunc)
for _name, _ufunc in (("ceil", np.ceil), ("floor", np.floor), ("trunc", np.trunc), ("rndne", np.rint)):
    _add(f"s_{_name}_f32", "f32", "f32", _ufunc)
_add("s_fmac_f32 s_fmaak_f32 s_fmamk_f32", "f32", "f32 f32 f32", fma32)
_add("s_min_f32 s_min_num_f32", "f32", "f32 f32", fmin)
_add("s_max_f32 s_max_num_f32", "f32", "f32 f32", fmax)
_add("s_cvt_i32_f32", "i32", "f32", lambda a: to_int(a, np.int32))
_add("s_cvt_u32_f32", "u32", "f32", lambda a: to_int(a, np.uint32))
_add("s_cvt_f32_i32", "f32", "i32", lambda a: a.astype(_f))
_add("s_cvt_f32_u32", "f32", "u32", lambda a: a.astype(_f))
for _name in (
    *("add_f16", "sub_f16", "mul_f16", "fmac_f16", "min_f16", "max_f16", "min_num_f16", "max_num_f16"),
    *("minimum_f16", "maximum_f16", "minimum_f32", "maximum_f32", "ceil_f16", "floor_f16", "trunc_f16", "rndne_f16"),
    *("cvt_f16_f32", "cvt_f32_f16", "cvt_pk_rtz_f16_f32"),
):  # what the vector instruction does to one lane
    _vector = valu.TABLE[f"v_{_name}"]
    _add(f"s_{_name}", _vector.out, " ".join(_vector.sources), _vector.function)
_add("s_cvt_hi_f32_f16", "f32", "u32", lambda a: half_to_f32((a >> _u(16)).astype(np.uint16)))
