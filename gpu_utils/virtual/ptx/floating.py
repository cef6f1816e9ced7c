"""Floating-point instructions of PTX, as a table: opcode -> Form.

Exact (one rounding, IEEE 754): add, sub, mul, fma, div, rcp, sqrt with `.rn`, `.rz`, `.rm` and `.rp`, min, max, abs,
neg. `.ftz` flushes subnormal float32
inputs and results. From sm_100 on: pairs of float32 in one 64-bit register, sums of a 16-bit float and a float32, and
the least or largest of three (the spelling of two with THREE behind it).
Approximate instructions return a value within the bound that the PTX manual states for the hardware, not the
hardware's bits; APPROXIMATE holds the bound that the tests hold them to. The payload of a NaN result is open.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from gpu_utils.virtual.ptx import rounding as rnd
from gpu_utils.virtual.ptx.forms import Form, Table, store

F16, F32, F64, U16, U32, U64 = np.float16, np.float32, np.float64, np.uint16, np.uint32, np.uint64
TABLE: Table = {}
THREE = "*"
"""What stands behind an opcode in the table when it takes three inputs where its usual form takes two."""
# opcode stem -> largest relative error (absolute where the name says so), from the PTX ISA manual's accuracy notes.
APPROXIMATE: dict[str, float] = {
    "ex2.approx.f32": 2**-22,
    "ex2.approx.ftz.f32": 2**-22,
    "lg2.approx.f32": 2**-22,
    "lg2.approx.ftz.f32": 2**-22,
    "rcp.approx.f32": 2**-23,
    "rcp.approx.ftz.f32": 2**-23,
    "sqrt.approx.f32": 2**-23,
    "sqrt.approx.ftz.f32": 2**-23,
    "rsqrt.approx.f32": 2**-22.9,
    "rsqrt.approx.ftz.f32": 2**-22.9,
    "sin.approx.f32": 2**-20.5,
    "sin.approx.ftz.f32": 2**-20.5,
    "cos.approx.f32": 2**-20.5,
    "cos.approx.ftz.f32": 2**-20.5,
    "tanh.approx.f32": 2**-11,
    "div.approx.f32": 2**-22,
    "div.approx.ftz.f32": 2**-22,
    "div.full.f32": 2**-22,
    "div.full.ftz.f32": 2**-22,
    "rcp.approx.ftz.f64": 2**-20,
    "rsqrt.approx.f64": 2**-20,
    "rsqrt.approx.ftz.f64": 2**-20,
    "ex2.approx.f16": 2**-9.9,
    "ex2.approx.f16x2": 2**-9.9,
    "ex2.approx.ftz.bf16": 2**-7,
    "ex2.approx.ftz.bf16x2": 2**-7,
    "tanh.approx.f16": 2**-10,
    "tanh.approx.f16x2": 2**-10,
    "tanh.approx.bf16": 2**-8,
    "tanh.approx.bf16x2": 2**-8,
}


def minimum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The smaller; a NaN loses to a number; -0 is below +0."""
    result = np.fmin(a, b)
    same = a == b
    np.logical_and(same, a == 0, same)
    return np.where(same, np.where(np.signbit(a), a, b), result) if np.count_nonzero(same) else result


def maximum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The larger; a NaN loses to a number; +0 is above -0."""
    result = np.fmax(a, b)
    same = a == b
    np.logical_and(same, a == 0, same)
    return np.where(same, np.where(np.signbit(a), b, a), result) if np.count_nonzero(same) else result


def _nan_wins(fn):
    def run(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.where(np.isnan(a) | np.isnan(b), a.dtype.type(np.nan), fn(a, b))

    return run


def _xor_signs(fn):
    """fn of the magnitudes, with the product of the signs; a NaN keeps its own sign."""

    def run(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        size = fn(np.abs(a), np.abs(b))
        return np.copysign(size, np.where(np.signbit(a) ^ np.signbit(b), size.dtype.type(-1), size.dtype.type(1)))

    return run


def _of_three(fn, prepare):
    return lambda a, b, c: fn(fn(prepare(a), prepare(b)), prepare(c))


def _ftz(fn):
    """fn on flushed inputs, its result flushed."""
    return lambda *arrays: rnd.flush(np.asarray(fn(*(rnd.flush(x) for x in arrays))))


def _sat(fn):
    return lambda *arrays: rnd.saturate(np.asarray(fn(*arrays)))


def _fused(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    out = np.empty(np.broadcast_shapes(a.shape, b.shape, c.shape), a.dtype)
    (rnd.fma32 if a.dtype == F32 else rnd.fma64)(a, b, c, out)
    return out


def _directed32(name: str, mode: str):
    """A float32 operation rounded once in `mode`, from its float64 value rounded to odd."""

    def run(*arrays: np.ndarray) -> np.ndarray:
        wide = [np.asarray(x.astype(F64)) for x in arrays]
        if name == "mul":
            exact = wide[0] * wide[1]
        elif name == "fma":
            exact = rnd.sum_to_odd(wide[0] * wide[1], wide[2])
        else:
            exact = rnd.sum_to_odd(wide[0], wide[1] if name == "add" else -wide[1])
        if mode == "rm" and name != "mul":  # a sum that cancels exactly is -0 when rounding down
            terms = (wide[0] * wide[1], wide[2]) if name == "fma" else (wide[0], wide[1] if name == "add" else -wide[1])
            both_plus = ~np.signbit(terms[0]) & ~np.signbit(terms[1])
            exact = np.where((exact == 0) & ~both_plus, -0.0, exact)
        return rnd.f64_to_f32(np.asarray(exact), mode)

    return run


def _step(near: np.ndarray, err: np.ndarray, mode: str) -> np.ndarray:
    """The result in a directed mode from the nearest one and the sign of (exact - nearest)."""
    one = near.dtype.type
    if mode == "rz":
        return np.where((err != 0) & ((err > 0) == np.signbit(near)), np.nextafter(near, one(0)), near)
    if mode == "rm":
        return np.where(err < 0, np.nextafter(near, one(-np.inf)), near)
    return np.where(err > 0, np.nextafter(near, one(np.inf)), near)


_EXACT: dict[str, Callable[..., Fraction]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "fma": lambda a, b, c: a * b + c,
    "div": lambda a, b: a / b,
    "rcp": lambda a: 1 / a,
}


def _error_sign(name: str, near: np.ndarray, arrays: tuple[np.ndarray, ...]) -> np.ndarray:
    """The sign of (exact - near), number by number in fractions: these modes are rare."""
    err = np.zeros(near.shape, np.int8)
    arrays = np.broadcast_arrays(near, *arrays)[1:]
    for at in np.ndindex(near.shape):
        values = [float(x[at]) for x in arrays]
        if not all(map(math.isfinite, values)) or math.isnan(near[at]) or (name in ("div", "rcp") and values[-1] == 0):
            continue
        if math.isinf(near[at]):
            err[at] = -1 if near[at] > 0 else 1
            continue
        found = Fraction(float(near[at]))
        numbers = [Fraction(v) for v in values]
        if name == "sqrt":
            found, exact = found * found, numbers[0]
        else:
            exact = _EXACT[name](*numbers)
        err[at] = (exact > found) - (exact < found)
    return err


def _directed(name: str, mode: str):
    """Any operation in a directed mode, by stepping from the nearest result."""
    nearest = _NEAREST[name]

    def run(*arrays: np.ndarray) -> np.ndarray:
        near = np.asarray(nearest(*arrays))
        err = _error_sign(name, near, arrays)
        result = _step(near, err, mode)
        if mode == "rm" and name in ("add", "sub", "fma"):  # a sum that cancels exactly is -0 when rounding down
            first, second = (arrays[0] * arrays[1], arrays[2]) if name == "fma" else arrays
            second = -second if name == "sub" else second
            plus = ~np.signbit(first) & ~np.signbit(second)
            result = np.where((near == 0) & (err == 0) & ~plus, result.dtype.type(-0.0), result)
        return result

    return run


_PLAIN: dict[str, Callable[..., np.ndarray]] = {"add": np.add, "sub": np.subtract, "mul": np.multiply}


_NEAREST: dict[str, Callable[..., np.ndarray]] = {
    **_PLAIN,
    "fma": _fused,
    "div": np.divide,
    "rcp": np.reciprocal,
    "sqrt": np.sqrt,
}


def _half(fn):
    """float16 through float32: with 24 bits and one more rounding, add, sub and mul still round as if once."""
    return lambda *arrays: np.asarray(fn(*(x.astype(F32) for x in arrays))).astype(F16)


def _half_fma(a, b, c) -> np.ndarray:
    return np.asarray(rnd.fma_odd(a, b, c)).astype(F16)


def _half_to_f32(a: np.ndarray) -> np.ndarray:
    return a.astype(F32)


def _widened(fn, widen):
    """fn on float32, all inputs but the last of which arrive in 16 bits."""
    return lambda *arrays: fn(*(widen(x) for x in arrays[:-1]), arrays[-1])


def _bf16(fn):
    """bfloat16 through float64, where the result is exact or rounded to odd, then rounded once."""
    return lambda *arrays: rnd.f64_to_bf16(np.asarray(fn(*(rnd.bf16_to_f32(x).astype(F64) for x in arrays))))


_BF16 = {
    "add": lambda a, b: rnd.sum_to_odd(a, b),
    "sub": lambda a, b: rnd.sum_to_odd(a, -b),
    "mul": np.multiply,
    "fma": lambda a, b, c: rnd.sum_to_odd(a * b, c),
}


def _relu(fn, kind: str):
    if kind.startswith("bf16"):

        def run(*arrays: np.ndarray) -> np.ndarray:
            bits = fn(*arrays)
            value = rnd.bf16_to_f32(bits)
            return np.where(value > 0, bits, np.where(np.isnan(value), U16(0x7FFF), U16(0)))

        return run
    return lambda *arrays: (lambda x: np.where(x > 0, x, np.where(np.isnan(x), x, F16(0))))(fn(*arrays))


def _arithmetic() -> None:
    for name, arity in (("add", 2), ("sub", 2), ("mul", 2), ("fma", 3)):
        modes = ("", ".rn", ".rz", ".rm", ".rp") if name != "fma" else (".rn", ".rz", ".rm", ".rp")
        for mode, ftz, sat in itertools.product(modes, ("", ".ftz"), ("", ".sat")):
            nearest = mode in ("", ".rn")
            plain = (_PLAIN[name] if name != "fma" else _fused) if nearest else _directed32(name, mode[1:])
            fn = _ftz(plain) if ftz else plain
            fn = _sat(fn) if sat else fn
            unchanged = rnd.fma32 if name == "fma" else plain
            run = unchanged if nearest and not ftz and not sat else store(fn)
            TABLE[f"{name}{mode}{ftz}{sat}.f32"] = Form(("f32",), ("f32",) * arity, run)
            if not sat:
                TABLE[f"{name}{mode}{ftz}.f32x2"] = Form(("f32x2",), ("f32x2",) * arity, run)
            if name != "mul" and not ftz:
                for kind, widen in (("f16", _half_to_f32), ("bf16", rnd.bf16_to_f32)):
                    ins = (kind,) * (arity - 1) + ("f32",)
                    TABLE[f"{name}{mode}{sat}.f32.{kind}"] = Form(("f32",), ins, store(_widened(fn, widen)))
        for mode in modes:
            if mode in ("", ".rn"):
                run = rnd.fma64 if name == "fma" else _PLAIN[name]
            else:
                run = store(_directed(name, mode[1:]))
            TABLE[f"{name}{mode}.f64"] = Form(("f64",), ("f64",) * arity, run)
        half = _half(_PLAIN[name]) if name != "fma" else _half_fma
        brain = _bf16(_BF16[name])
        for mode, pack in itertools.product(("", ".rn") if name != "fma" else (".rn",), ("", "x2")):
            for ftz, sat in itertools.product(("", ".ftz"), ("", ".sat")):
                fn = _ftz(half) if ftz else half
                fn = _sat(fn) if sat else fn
                TABLE[f"{name}{mode}{ftz}{sat}.f16{pack}"] = Form((f"f16{pack}",), (f"f16{pack}",) * arity, store(fn))
            TABLE[f"{name}{mode}.bf16{pack}"] = Form((f"bf16{pack}",), (f"bf16{pack}",) * arity, store(brain))
            if name == "fma":
                for kind, fn in ((f"f16{pack}", half), (f"bf16{pack}", brain)):
                    TABLE[f"fma.rn.relu.{kind}"] = Form((kind,), (kind,) * 3, store(_relu(fn, kind)))


def _comparison_free() -> None:
    for name, fn in (("min", minimum), ("max", maximum)):
        for ftz, nan, signs in itertools.product(("", ".ftz"), ("", ".NaN"), ("", ".xorsign.abs")):
            each = _nan_wins(fn) if nan else fn
            each, nan = (_xor_signs(each), nan + signs) if signs else (each, nan)
            TABLE[f"{name}{ftz}{nan}.f32"] = Form(("f32",), ("f32",) * 2, store(_ftz(each) if ftz else each))
            if not signs:
                for sizes in ("", ".abs"):
                    run = store(_of_three(_ftz(each) if ftz else each, np.abs if sizes else np.asarray))
                    TABLE[f"{name}{ftz}{nan}{sizes}.f32{THREE}"] = Form(("f32",), ("f32",) * 3, run)
            for pack in ("", "x2"):
                kind = f"f16{pack}"
                TABLE[f"{name}{ftz}{nan}.{kind}"] = Form((kind,), (kind,) * 2, store(_ftz(each) if ftz else each))
        TABLE[f"{name}.f64"] = Form(("f64",), ("f64",) * 2, store(fn))
        for nan, signs, pack in itertools.product(("", ".NaN"), ("", ".xorsign.abs"), ("", "x2")):
            each = _nan_wins(fn) if nan else fn
            each, nan = (_xor_signs(each), nan + signs) if signs else (each, nan)
            kind = f"bf16{pack}"
            run = store(lambda a, b, f=each: rnd.f32_to_bf16(np.asarray(f(rnd.bf16_to_f32(a), rnd.bf16_to_f32(b)))))
            TABLE[f"{name}{nan}.{kind}"] = Form((kind,), (kind,) * 2, run)
    for name, sign in (("abs", np.abs), ("neg", np.negative)):
        TABLE[f"{name}.f32"] = Form(("f32",), ("f32",), sign)
        TABLE[f"{name}.ftz.f32"] = Form(("f32",), ("f32",), store(lambda a, f=sign: f(rnd.flush(a))))
        TABLE[f"{name}.f64"] = Form(("f64",), ("f64",), sign)
        for pack in ("", "x2"):
            TABLE[f"{name}.f16{pack}"] = Form((f"f16{pack}",), (f"f16{pack}",), sign)
            TABLE[f"{name}.ftz.f16{pack}"] = Form((f"f16{pack}",), (f"f16{pack}",), store(_ftz(sign)))
        bits = {"abs": lambda a: a & U16(0x7FFF), "neg": lambda a: a ^ U16(0x8000)}[name]
        for pack in ("", "x2"):
            TABLE[f"{name}.bf16{pack}"] = Form((f"bf16{pack}",), (f"bf16{pack}",), store(bits))
    for kind in ("f32", "f64"):
        TABLE[f"copysign.{kind}"] = Form((kind,), (kind, kind), lambda a, b, out: np.copysign(b, a, out))


def _division() -> None:
    exact = {"div": (2, np.divide), "rcp": (1, np.reciprocal), "sqrt": (1, np.sqrt)}
    for name, (arity, fn) in exact.items():
        TABLE[f"{name}.rn.f32"] = Form(("f32",), ("f32",) * arity, fn)
        TABLE[f"{name}.rn.ftz.f32"] = Form(("f32",), ("f32",) * arity, store(_ftz(fn)))
        TABLE[f"{name}.rn.f64"] = Form(("f64",), ("f64",) * arity, fn)
        for mode in ("rz", "rm", "rp"):
            each = _directed(name, mode)
            TABLE[f"{name}.{mode}.f32"] = Form(("f32",), ("f32",) * arity, store(each))
            TABLE[f"{name}.{mode}.ftz.f32"] = Form(("f32",), ("f32",) * arity, store(_ftz(each)))
            TABLE[f"{name}.{mode}.f64"] = Form(("f64",), ("f64",) * arity, store(each))
    approximate: dict[str, Callable[..., np.ndarray]] = {
        "rcp.approx": np.reciprocal,
        "sqrt.approx": np.sqrt,
        "rsqrt.approx": lambda a: F32(1) / np.sqrt(a),
        "ex2.approx": np.exp2,
        "lg2.approx": np.log2,
        "sin.approx": np.sin,
        "cos.approx": np.cos,
    }
    for name, near in approximate.items():
        TABLE[f"{name}.f32"] = Form(("f32",), ("f32",), store(near))
        TABLE[f"{name}.ftz.f32"] = Form(("f32",), ("f32",), store(_ftz(near)))
    for name in ("div.approx", "div.full"):
        TABLE[f"{name}.f32"] = Form(("f32",), ("f32",) * 2, np.divide)
        TABLE[f"{name}.ftz.f32"] = Form(("f32",), ("f32",) * 2, store(_ftz(np.divide)))
    TABLE["tanh.approx.f32"] = Form(("f32",), ("f32",), np.tanh)
    TABLE["rcp.approx.ftz.f64"] = Form(("f64",), ("f64",), store(_ftz(np.reciprocal)))
    TABLE["rsqrt.approx.f64"] = Form(("f64",), ("f64",), store(lambda a: 1.0 / np.sqrt(a)))
    TABLE["rsqrt.approx.ftz.f64"] = Form(("f64",), ("f64",), store(_ftz(lambda a: 1.0 / np.sqrt(a))))
    for name, fn in (("ex2.approx", np.exp2), ("tanh.approx", np.tanh)):
        for pack in ("", "x2"):
            kind, brain = f"f16{pack}", f"bf16{pack}"
            TABLE[f"{name}.{kind}"] = Form((kind,), (kind,), store(lambda a, f=fn: f(a.astype(F32))))
            flushed = ".ftz" if name == "ex2.approx" else ""
            run = store(lambda a, f=fn: rnd.f32_to_bf16(f(rnd.bf16_to_f32(a))))
            TABLE[f"{name}{flushed}.{brain}"] = Form((brain,), (brain,), run)


_CLASS: dict[str, Callable[..., np.ndarray]] = {
    "finite": np.isfinite,
    "infinite": np.isinf,
    "number": lambda a: ~np.isnan(a),
    "notanumber": np.isnan,
    "normal": lambda a: np.isfinite(a) & (np.abs(a) >= np.finfo(a.dtype).tiny),
    "subnormal": lambda a: (a != 0) & (np.abs(a) < np.finfo(a.dtype).tiny),
}


def _classes() -> None:
    for name, fn in _CLASS.items():
        for kind in ("f32", "f64"):
            TABLE[f"testp.{name}.{kind}"] = Form(("pred",), (kind,), store(fn))


_arithmetic()
_comparison_free()
_division()
_classes()
