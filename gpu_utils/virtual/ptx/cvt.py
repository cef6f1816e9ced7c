"""Conversions (`cvt`) and comparisons (`setp`, `set`, `selp`, `slct`) of PTX, as tables: opcode -> Form.

Every conversion is exact: one rounding in the stated mode. From float to integer: NaN gives 0 (the most negative
value, or 2**63, when float64 or a 64-bit integer is involved) and values out of range are clamped.
One table of all conversions and comparisons, long for that.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np

from gpu_utils.virtual.ptx import rounding as rnd
from gpu_utils.virtual.ptx.forms import BYTES, TYPES, Form, Table, store

F16, F32, F64, U16, U32 = np.float16, np.float32, np.float64, np.uint16, np.uint32
TABLE: Table = {}
COMPARE: Table = {}
INTEGERS = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")
FLOATS = ("f16", "bf16", "f32", "f64")
_ROUND = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


def widen(x: np.ndarray, kind: str) -> np.ndarray:
    """A float operand as float64, exactly."""
    return (rnd.bf16_to_f32(x) if kind == "bf16" else x).astype(F64)


def narrow(x: np.ndarray, kind: str, mode: str) -> np.ndarray:
    """A float64 that is exact or rounded to odd, in the given type, rounded once."""
    if kind == "f64":
        return x
    return {"f32": rnd.f64_to_f32, "f16": rnd.f64_to_f16, "bf16": rnd.f64_to_bf16}[kind](np.asarray(x), mode)


def _limits(kind: str) -> tuple[int, int]:
    info = np.iinfo({"u": "u", "s": "i"}[kind[0]] + str(BYTES[kind]))
    return int(info.min), int(info.max)


def _low_bits(x: np.ndarray, kind: str) -> np.ndarray:
    """A source register cut to its type: only 8-bit types are narrower than their column."""
    if kind == "u8":
        return x.astype(np.uint8)
    return x.astype(np.uint8).view(np.int8) if kind == "s8" else x


def _int_to_int(target: str, source: str, sat: bool):
    low, high = _limits(target)
    source_low, source_high = _limits(source)
    narrow_to = np.dtype({"u": "u", "s": "i"}[target[0]] + str(BYTES[target]))

    def run(x: np.ndarray) -> np.ndarray:
        x = _low_bits(x, source)
        if sat:
            x = np.clip(x, max(low, source_low), min(high, source_high))
        return x.astype(narrow_to)

    return run


def _float_to_int(target: str, source: str, mode: str, ftz: bool):
    low, high = _limits(target)
    dtype = np.dtype({"u": "u", "s": "i"}[target[0]] + str(BYTES[target]))
    wide = source == "f64" or target in ("s64", "u64")
    nan = (
        (-(2**63) if target == "s64" else 2**63 if target == "u64" else low if target[0] == "s" else None)
        if wide
        else 0
    )
    nan = 1 << (8 * BYTES[target] - 1) if nan is None else nan
    # the first floats past either end; all of them are powers of two, so comparing is exact
    over, under = float(high + 1), float(low)

    def run(x: np.ndarray) -> np.ndarray:
        if ftz:
            x = rnd.flush(x)
        value = _ROUND[mode](widen(x, source))
        good = (value >= under) & (value < over)
        if np.count_nonzero(good) == good.size:
            return value.astype(dtype)
        result = np.where(good, value, 0.0).astype(dtype)
        result = np.where(value >= over, dtype.type(high), np.where(value < under, dtype.type(low), result))
        return np.where(np.isnan(value), np.array(nan % 2**64, np.uint64).astype(dtype), result)

    return run


def _int_to_odd(x: np.ndarray) -> np.ndarray:
    """A 64-bit integer as float64, rounded to odd."""
    near = x.astype(F64)
    kind = x.dtype.type
    top = F64(2.0 ** (63 if x.dtype.kind == "i" else 64))
    edge = near >= top
    back = np.where(edge, F64(0), near).astype(x.dtype)
    err = np.where(x > back, 1.0, np.where(x < back, -1.0, 0.0))
    err = np.where(edge, np.where(x == kind(np.iinfo(x.dtype).max) + kind(1), 0.0, -1.0), err)
    return rnd.to_odd(near, err)


def _int_to_float(target: str, source: str, mode: str):
    def run(x: np.ndarray) -> np.ndarray:
        x = np.asarray(_low_bits(x, source))
        if target == "f64" and mode == "rn":
            return x.astype(F64)
        if target == "f32" and mode == "rn":
            return x.astype(F32)
        if BYTES[source] < 8:
            return narrow(x.astype(F64), target, mode)
        if target != "f64":
            return narrow(_int_to_odd(x), target, mode)
        near = x.astype(F64)
        top = float(2 ** (63 if source[0] == "s" else 64))
        back = np.where(near >= top, 0.0, near).astype(x.dtype)
        above, below = (near >= top) | (back > x), (near < top) & (back < x)
        down = np.nextafter(near, -np.inf)
        up = np.nextafter(near, np.inf)
        if mode == "rm":
            return np.where(above, down, near)
        if mode == "rp":
            return np.where(below, up, near)
        return np.where((x >= 0) & above, down, np.where((x < 0) & below, up, near))

    return run


def _float_to_float(target: str, source: str, mode: str, ftz: bool, sat: bool):
    whole = _ROUND.get(mode)

    def run(x: np.ndarray) -> np.ndarray:
        if source == "f32" and ftz:
            x = rnd.flush(x)
        if target == source and whole is None and not sat:
            return x
        if source == "f32" and target == "bf16" and not sat:
            return rnd.f32_to_bf16(x, mode)
        if mode == "rn" and not sat and target in ("f16", "f32") and source in ("f16", "f32"):
            result = x.astype(F16 if target == "f16" else F32)
        else:
            value = widen(x, source)
            value = whole(value) if whole else value
            value = rnd.saturate(value) if sat else value
            result = narrow(value, target, "rn" if whole else mode)
        return rnd.flush(result) if ftz and target == "f32" else result

    return run


def _tf32(mode: str):
    """float32 with the low 13 bits gone: rna rounds half away from zero, rn half to even."""

    def run(x: np.ndarray) -> np.ndarray:
        bits = x.view(U32)
        if mode == "rna":
            up = bits + U32(0x1000)
        elif mode == "rn":
            up = bits + U32(0xFFF) + ((bits >> U32(13)) & U32(1))
        else:
            up = bits
        return np.where(np.isfinite(x), up & U32(0xFFFFE000), bits)

    return run


# FP8: sign, exponent, mantissa bits; OCP e4m3fn has no infinity, its NaN is 0x7F; e5m2 is a short float16.


def _decode_fp8(kind: str) -> np.ndarray:
    codes = np.arange(256, dtype=np.uint16)
    if kind == "e5m2":
        return (codes << U16(8)).view(F16)
    exponent, mantissa = (codes >> 3) & 15, codes & 7
    value = np.where(exponent == 0, mantissa * 2.0**-9, (8 + mantissa) * 2.0 ** (exponent.astype(F64) - 10))
    value = np.where((codes & 127) == 127, np.nan, value)
    return np.where(codes >= 128, -value, value).astype(F16)


FP8 = {kind: _decode_fp8(kind) for kind in ("e4m3", "e5m2")}
_FP8_STEPS = {kind: FP8[kind][: 127 if kind == "e4m3" else 124].astype(F64) for kind in FP8}


def to_fp8(x: np.ndarray, kind: str, relu: bool = False) -> np.ndarray:
    """Any float array to FP8 codes (uint8): to nearest even, clamped to the largest finite value, NaN kept.

    >>> to_fp8(np.array([1.0, 500.0, -0.0]), "e4m3").tolist()
    [56, 126, 128]
    """
    wide = np.asarray(x.astype(F64))
    steps = _FP8_STEPS[kind]
    size = np.abs(wide)
    above = np.minimum(np.searchsorted(steps, size), len(steps) - 1)
    below = np.maximum(above - 1, 0)
    gap_up, gap_down = steps[above] - size, size - steps[below]
    nearest = np.where((gap_up < gap_down) | ((gap_up == gap_down) & (above % 2 == 0)), above, below)
    nearest = np.where(size >= steps[-1], len(steps) - 1, nearest)
    code = nearest.astype(np.uint8) | np.where(np.signbit(wide), np.uint8(128), np.uint8(0))
    if relu:
        code = np.where(wide > 0, code, np.uint8(0))
    return np.where(np.isnan(wide), np.uint8(127), code).astype(np.uint8)


def _pack_fp8(kind: str, relu: bool):
    """d = {a in the upper byte, b in the lower}."""

    def run(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return (to_fp8(a, kind, relu).astype(U16) << U16(8)) | to_fp8(b, kind, relu)

    return run


def _pack_e8m0(up: bool, satfinite: bool):
    """Powers of two, 2^(code - 127), of the magnitudes of float32 a (upper byte) and b; NaN is 255, zero the least."""

    def code(x: np.ndarray) -> np.ndarray:
        bits = np.ascontiguousarray(x).view(U32) & U32(0x7FFFFFFF)
        exponent = bits >> U32(23)
        if up:  # denormal numbers up to 2^-127 have the code 0
            exponent += (bits > U32(0x400000)) & (bits & U32(0x7FFFFF) != 0)
        exponent = np.minimum(exponent, U32(254 if satfinite else 255))
        return np.where(np.isnan(x), U32(255), exponent).astype(U16)

    return lambda a, b: (code(a) << U16(8)) | code(b)


def _pack_fp8_from_half(kind: str, relu: bool):
    def run(a: np.ndarray) -> np.ndarray:
        codes = np.ascontiguousarray(to_fp8(a, kind, relu))
        return codes.view(U16)

    return run


def _unpack_fp8(kind: str, relu: bool):
    def run(a: np.ndarray) -> np.ndarray:
        pair = np.ascontiguousarray(a).view(np.uint8)
        value = FP8[kind][pair]
        return np.where((value > 0) | np.isnan(value), value, F16(0)) if relu else value

    return run


def _pack_pair(kind: str, mode: str, relu: bool, satfinite: bool):
    """cvt.*.f16x2.f32 d, a, b: a goes to the upper half, b to the lower one."""

    def one(x: np.ndarray) -> np.ndarray:
        if relu:
            x = np.where(x > 0, x, np.where(np.isnan(x), x, F32(0)))
        if kind == "bf16":
            bits = rnd.f32_to_bf16(x, mode)
            if satfinite:
                bits = np.where((bits & 0x7FFF) == 0x7F80, bits - U16(1), bits)
            return bits
        half = x.astype(F16) if mode == "rn" else rnd.f64_to_f16(x.astype(F64), mode)
        if satfinite:
            half = np.where(np.isinf(half), np.copysign(F16(65504), half), half)
        return np.asarray(half).view(U16)

    def run(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return (one(a).astype(U32) << U32(16)) | one(b)

    return run


def _build() -> None:
    for target, source, sat in itertools.product(INTEGERS, INTEGERS, (False, True)):
        TABLE[f"cvt{'.sat' if sat else ''}.{target}.{source}"] = Form(
            (target,), (source,), store(_int_to_int(target, source, sat))
        )
    for target, source, mode, ftz in itertools.product(INTEGERS, FLOATS, _ROUND, (False, True)):
        if ftz and source != "f32":
            continue
        run = store(_float_to_int(target, source, mode, ftz))
        for clamped in ("", ".sat"):
            TABLE[f"cvt.{mode}{'.ftz' if ftz else ''}{clamped}.{target}.{source}"] = Form((target,), (source,), run)
    for target, source, mode in itertools.product(FLOATS, INTEGERS, ("rn", "rz", "rm", "rp")):
        TABLE[f"cvt.{mode}.{target}.{source}"] = Form((target,), (source,), store(_int_to_float(target, source, mode)))
    size = {"f16": 1, "bf16": 1, "f32": 2, "f64": 3}
    for target, source, ftz, sat in itertools.product(FLOATS, FLOATS, (False, True), (False, True)):
        if ftz and "f32" not in (target, source):
            continue
        if sat and target == "bf16":
            continue
        tail = f"{'.ftz' if ftz else ''}{'.sat' if sat else ''}.{target}.{source}"
        if target == source:
            modes = ["", "rni", "rzi", "rmi", "rpi"]
        elif target == "bf16" and source == "f16":
            modes = ["", "rn", "rz", "rm", "rp"]
        elif size[target] > size[source]:
            modes = ["", "rn"] if source != "f32" else [""]
        else:
            modes = ["rn", "rz", "rm", "rp"]
        for mode in modes:
            run = store(_float_to_float(target, source, mode or "rn", ftz, sat))
            TABLE[f"cvt{'.' if mode else ''}{mode}{tail}"] = Form((target,), (source,), run)
    for mode, relu, satfinite in itertools.product(("rn", "rz"), ("", ".relu"), ("", ".satfinite")):
        for kind in ("f16", "bf16"):
            run = store(_pack_pair(kind, mode, bool(relu), bool(satfinite)))
            TABLE[f"cvt.{mode}{relu}{satfinite}.{kind}x2.f32"] = Form(("b32",), ("f32", "f32"), run)
    for mode in ("rna", "rn", "rz"):
        TABLE[f"cvt.{mode}.tf32.f32"] = Form(("b32",), ("f32",), store(_tf32(mode)))
    for mode, satfinite in itertools.product(("rz", "rp"), ("", ".satfinite")):
        run = store(_pack_e8m0(mode == "rp", bool(satfinite)))
        TABLE[f"cvt.{mode}{satfinite}.ue8m0x2.f32"] = Form(("b16",), ("f32", "f32"), run)
    for kind, relu in itertools.product(("e4m3", "e5m2"), ("", ".relu")):
        flag = bool(relu)
        TABLE[f"cvt.rn.satfinite{relu}.{kind}x2.f32"] = Form(("b16",), ("f32", "f32"), store(_pack_fp8(kind, flag)))
        TABLE[f"cvt.rn.satfinite{relu}.{kind}x2.f16x2"] = Form(
            ("b16",), ("f16x2",), store(_pack_fp8_from_half(kind, flag))
        )
        TABLE[f"cvt.rn{relu}.f16x2.{kind}x2"] = Form(("f16x2",), ("b16",), store(_unpack_fp8(kind, flag)))


# comparisons -----------------------------------------------------------------------------------------------------


def _differ(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a < b) | (a > b)


ORDERED: dict[str, Callable[..., np.ndarray]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
UNSIGNED = {"lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal}
FLOAT_ONLY: dict[str, Callable[..., np.ndarray]] = {
    "equ": lambda a, b: ~_differ(a, b),
    "neu": np.not_equal,
    "ltu": lambda a, b: ~(a >= b),
    "leu": lambda a, b: ~(a > b),
    "gtu": lambda a, b: ~(a <= b),
    "geu": lambda a, b: ~(a < b),
    "num": lambda a, b: ~(np.isnan(a) | np.isnan(b)),
    "nan": lambda a, b: np.isnan(a) | np.isnan(b),
}
COMBINE = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}


def comparison(operator: str, kind: str):
    """The boolean function of one comparison operator on one type; None where PTX has none."""
    if kind.rstrip("x2") in ("f16", "f32", "f64", "bf16") or kind in ("f16x2", "bf16x2", "f32", "f64"):
        fn = FLOAT_ONLY.get(operator) or (_differ if operator == "ne" else ORDERED.get(operator))
        if fn is not None and kind.startswith("bf16"):
            return lambda a, b: fn(rnd.bf16_to_f32(a), rnd.bf16_to_f32(b))
        return fn
    if kind[0] == "b":
        return ORDERED[operator] if operator in ("eq", "ne") else None
    if operator in UNSIGNED:
        return UNSIGNED[operator] if kind[0] == "u" else None
    return ORDERED.get(operator)


def _flushed(fn):
    return lambda a, b: fn(rnd.flush(a), rnd.flush(b))


def _both(fn, combine):
    """p = (a ? b) op c and q = !(a ? b) op c."""

    def run(a, b, *rest) -> None:
        hit = fn(a, b)
        if combine is None:
            p, q = rest
            np.logical_not(hit, q)
            np.copyto(p, hit)
        else:
            c, p, q = rest
            q[...], p[...] = combine(np.logical_not(hit), c), combine(hit, c)

    return run


def _choose(a: np.ndarray, b: np.ndarray, p: np.ndarray) -> np.ndarray:
    return np.where(p, a, b)


def _choose_by_sign(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    return np.where(c >= 0, a, b)


def _compare() -> None:
    kinds = ("b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64", "f16", "bf16", "f32", "f64")
    for kind, operator in itertools.product(kinds, {**ORDERED, **UNSIGNED, **FLOAT_ONLY}):
        fn = comparison(operator, kind)
        if fn is None:
            continue
        flushes = ("", ".ftz") if kind in ("f32", "f16") else ("",)
        for flush in flushes:
            each = _flushed(fn) if flush else fn
            single = each if isinstance(each, np.ufunc) else store(each)
            COMPARE[f"setp.{operator}{flush}.{kind}"] = Form(("pred",), (kind, kind), single)
            COMPARE[f"setp.{operator}{flush}.{kind}|"] = Form(("pred", "pred"), (kind, kind), _both(each, None))
            for name, combine in COMBINE.items():
                run = store(lambda a, b, c, f=each, g=combine: g(f(a, b), c))
                COMPARE[f"setp.{operator}.{name}{flush}.{kind}"] = Form(("pred",), (kind, kind, "pred"), run)
                COMPARE[f"setp.{operator}.{name}{flush}.{kind}|"] = Form(
                    ("pred", "pred"), (kind, kind, "pred"), _both(each, combine)
                )
            for out in ("u32", "s32", "f32"):
                run = store(lambda a, b, f=each, one=1 if out == "f32" else -1: np.where(f(a, b), one, 0))
                COMPARE[f"set.{operator}{flush}.{out}.{kind}"] = Form((out,), (kind, kind), run)
    for pair, operator in itertools.product(("f16x2", "bf16x2"), {**ORDERED, **FLOAT_ONLY}):
        fn = comparison(operator, pair)

        def halves(a, b, p, q, fn=fn) -> None:
            hit = fn(np.asarray(a), np.asarray(b))
            q[...], p[...] = hit[..., 1::2], hit[..., 0::2]

        COMPARE[f"setp.{operator}.{pair}|"] = Form(("pred", "pred"), (pair, pair), halves)
        ones = store(lambda a, b, f=fn: np.where(f(np.asarray(a), np.asarray(b)), np.float16(1), np.float16(0)))
        if pair == "f16x2":
            COMPARE[f"set.{operator}.{pair}.{pair}"] = Form((pair,), (pair, pair), ones)
    for kind in ("b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64", "f32", "f64"):
        COMPARE[f"selp.{kind}"] = Form((kind,), (kind, kind, "pred"), store(_choose))
        COMPARE[f"slct.{kind}.s32"] = Form((kind,), (kind, kind, "s32"), store(_choose_by_sign))
        COMPARE[f"slct.{kind}.f32"] = Form((kind,), (kind, kind, "f32"), store(_choose_by_sign))


_build()
_compare()
assert all(kind in TYPES for form in TABLE.values() for kind in (*form.outs, *form.ins))
