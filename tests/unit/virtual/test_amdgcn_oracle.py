"""Every vector arithmetic instruction against AMD's own pseudo-code, or against a reference written here."""

import functools
import importlib
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from gpu_utils.virtual.amdgcn import valu

from . import pcode
from .pcode import Evaluator, bits_of, view
from .single import execute

EDGES = {
    "f32": [0, 0x80000000, 1, 0x80000001, 0x007FFFFF, 0x00800000, 0x3F800000, 0xBF800000, 0x3F000000, 0x40200000,
    0xC0600000,
            0x4B000001, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0x3F800001, 0x3EAAAAAB, 0x4F000000,
            0xCF000001,
            0x4F800000, 0x477FE000, 0x33000000],
    "f16": [0, 0x8000, 1, 0x8001, 0x03FF, 0x0400, 0x3C00, 0xBC00, 0x3800, 0x4100, 0xC700, 0x7BFF, 0xFBFF, 0x7C00,
    0xFC00, 0x7E00,
            0x3555, 0x6401],
    "f64": [0, 1 << 63, 1, 0x3FF0000000000000, 0xBFF0000000000000, 0x4004000000000000, 0x7FEFFFFFFFFFFFFF,
    0x7FF0000000000000,
            0xFFF0000000000000, 0x7FF8000000000000, 0x3FD5555555555555, 0x41DFFFFFFFC00000, 0xC1E0000000200000],
    "u32": [0, 1, 2, 3, 7, 8, 15, 16, 31, 32, 33, 63, 64, 0xFF, 0x100, 0xFFFF, 0x10000, 0x12345678, 0x7FFFFFFF,
    0x80000000,
            0x80000001, 0xFFFFFFFF, 0xDEADBEEF, 0x0F0E0C04],
    "u16": [0, 1, 2, 7, 15, 16, 17, 0xFF, 0x100, 0x7FFF, 0x8000, 0x8001, 0xFFFF, 0x1234],
    "u64": [0, 1, 63, 0xFFFFFFFF, 0x100000000, 1 << 63, (1 << 64) - 1, 0x123456789ABCDEF0],
}  # fmt: skip
BITS_OF = {"v2f16": "u32", "v2bf16": "u32", "bf16": "u16"}  # operands that are given as bits
EDGES["i32"], EDGES["i16"], EDGES["i64"] = EDGES["u32"], EDGES["u16"], EDGES["u64"]
WIDTH = {kind: {"16": 16, "32": 32, "64": 64}[kind[1:]] for kind in EDGES}


def _overflowed_quotient(kind):
    """v_div_fixup: the manual leaves out that a quotient that overflowed arrives as NaN and becomes infinite."""
    last = f"else\nD0.{kind} = sign_out ? -abs(S0.{kind}) : abs(S0.{kind})"
    infinity = "INF" if kind == "f64" else f"INF.{kind}"
    return last, f"elsif isNAN(64'F(S0.{kind})) then\nD0.{kind} = sign_out ? -{infinity} : +{infinity}\n{last}"


CORRECTIONS = {f"v_div_fixup_{kind}": _overflowed_quotient(kind) for kind in ("f32", "f64")}


def pseudo_code(name):
    """The manual's text for a mnemonic, corrected where needed: gfx9 first, then RDNA3 and RDNA4."""
    for family in ("cdna", "rdna3", "rdna4"):
        table = importlib.import_module(f"tinygrad.runtime.autogen.amd.{family}.str_pcode").PCODE
        found = {key.name: text for key, text in table.items()}
        for suffix in ("_E32", "", "_E64"):
            text = found.get(name.upper() + suffix)
            if text is not None:
                old, new = CORRECTIONS.get(name, ("", ""))
                assert old in text
                return family, text.replace(old, new) if old else text
    return None, None


FAMILY_TARGET = {"cdna": "gfx942", "rdna3": "gfx1100", "rdna4": "gfx1201", None: "gfx942"}
# Not evaluated from the pseudo-code: it calls functions that it does not define, or describes intermediate overflow.
MANUAL_ONLY = frozenset(
    name for name in valu.TABLE
    if any(part in name for part in ("ldexp", "sin_", "cos_", "v_exp", "v_log", "v_sqrt", "v_rsq", "v_rcp", "fma",
    "legacy", "_dx9", "v_dot2_bf16_bf16",
                                  "v_cvt_pk_rtz", "v_cvt_pkrtz", "v_fract", "v_frexp", "v_rndne"))
)  # fmt: skip


def kinds_of(entry):
    return tuple(BITS_OF.get(kind, kind) for kind in entry.sources)


def inputs(entry):
    """Rows of operand values: all pairs of edge values, a shorter product for three operands."""
    return rows_of(kinds_of(entry))


@functools.cache
def rows_of(kinds):
    lists = [EDGES[kind] for kind in kinds]
    if len(lists) == 3:
        random = np.random.default_rng(1)
        rows = [tuple(random.choice(np.array(values, object)) for values in lists) for _ in range(320)]
    else:
        rows = list(itertools.product(*lists))
    return list(itertools.islice(itertools.cycle(rows), -(-len(rows) // 64) * 64))


def machine_results(target, name, entry, rows):
    """The destination bits that the virtual GPU gives for each row of operands."""
    lanes = 64 if target.startswith("gfx9") else 32
    waves = len(rows) // lanes
    registers, texts, at = {}, [], 4
    for i, kind in enumerate(kinds_of(entry)):
        column = np.array([int(row[i]) for row in rows], np.uint64).reshape(waves, lanes)
        last = entry.accumulate and i == len(entry.sources) - 1
        place = 0 if last else at
        if WIDTH[kind] == 64:
            registers[f"v{place}"], registers[f"v{place + 1}"] = column & 0xFFFFFFFF, column >> np.uint64(32)
            text = f"v[{place}:{place + 1}]"
        else:
            registers[f"v{place}"] = column
            text = f"v{place}"
        if not last:
            texts.append(text)
            at += 2
    out = "v[0:1]" if WIDTH[entry.out] == 64 else "v0"
    state = execute(target, f"{name} {out}, {', '.join(texts)}", registers, waves)
    low = state.U[0].astype(np.uint64)
    result = low | state.U[1].astype(np.uint64) << np.uint64(32) if WIDTH[entry.out] == 64 else low
    return [int(v) & ((1 << WIDTH[entry.out]) - 1) for v in result.ravel()]


def same(kind, got, want, tolerance=0):
    if kind[0] != "f":
        return got == want
    a, b = view(got, kind), view(want, kind)
    if np.isnan(a) and np.isnan(b):
        return True
    if tolerance and np.isfinite(b):
        return abs(float(a) - float(b)) <= tolerance * max(float(np.spacing(np.abs(b))), 0) or (a == b)
    return got == want


def evaluated(text, entry, row):
    env = {f"S{i}": int(value) for i, value in enumerate(row)}
    env |= {
        "D0": int(row[-1]) if entry.accumulate else 0,
        "VCC": 0,
        "laneId": 0,
        "UNDERFLOW_F32": np.float32(0),
        "OVERFLOW_F32": np.float32(np.inf),
        "UNDERFLOW_F64": 0.0,
        "OVERFLOW_F64": np.inf,
    }
    done = Evaluator(text).run(env)
    return bits_of(done["D0"], WIDTH[entry.out])


def oracle_works(name, entry):
    family, text = pseudo_code(name)
    if text is None or name in MANUAL_ONLY:
        return None
    try:
        evaluated(text, entry, inputs(entry)[3])
    except (NotImplementedError, KeyError, ValueError, TypeError, IndexError, ZeroDivisionError, OverflowError):
        return None
    return family, text


BY_ORACLE = {name: found for name, entry in valu.TABLE.items() if (found := oracle_works(name, entry))}


@pytest.mark.parametrize("name", sorted(BY_ORACLE))
def test_instruction_does_what_the_manual_says(name):
    family, text = BY_ORACLE[name]
    entry = valu.TABLE[name]
    rows = inputs(entry)
    got = machine_results(FAMILY_TARGET[family], name, entry, rows)
    for row, value in zip(rows, got, strict=True):
        want = evaluated(text, entry, row)
        assert same(entry.out, value, want), (
            f"{name} {[hex(int(v)) for v in row]}: {value:#x}, the manual says {want:#x}"
        )


# References written here, in exact or float64 arithmetic; `row` holds Python numbers of the operands' types.
def _float(kind):
    return {"16": np.float16, "32": np.float32, "64": np.float64}[kind[1:]]


def _rounded(function):
    """Evaluate in float64 and round once."""

    def run(*row):
        with np.errstate(all="ignore"):
            return type(row[0])(function(*(np.float64(x) for x in row)))

    return run


def _flushed(function):
    """The same for exp and log of float32, which know no denormals."""

    def run(x):
        tiny = np.finfo(np.float32).tiny
        x = np.float32(np.copysign(0, x)) if abs(x) < tiny else x
        value = _rounded(function)(x)
        return np.float32(np.copysign(0, value)) if abs(value) < tiny else value

    return run


def _fma(a, b, c):
    return pcode.fma(a, b, c)


def _mad(a, b, c):
    flush = lambda x: np.float32(np.copysign(0, x)) if abs(x) < np.finfo(np.float32).tiny else x  # noqa: E731
    return flush(flush(flush(a) * flush(b)) + flush(c))


def _extreme(order, propagate):
    def two(a, b):
        if propagate and (np.isnan(a) or np.isnan(b)):
            return type(a)(np.nan)
        return pcode._pick(a, b, order)

    return lambda *row: functools.reduce(two, row)


def _min_of_max(first, second):
    return lambda a, b, c: pcode._pick(pcode._pick(a, b, first), c, second)


def _med3(a, b, c):
    if any(np.isnan(x) for x in (a, b, c)):
        return _extreme(min, False)(a, b, c)
    return sorted((a, b, c), key=lambda x: (float(x), -np.signbit(x).astype(int)))[1]


def _ldexp(x, n):
    size = x.dtype.itemsize * 8
    if not np.isfinite(x) or x == 0:
        return x
    return pcode.round_to(Fraction(float(x)) * Fraction(2) ** max(min(n, 5000), -5000), size)


def _turn(function):
    return lambda x: (
        type(x)(function(2 * math.pi * (float(x) - math.floor(float(x))))) if np.isfinite(x) else type(x)(np.nan)
    )


def _bytes(word):
    return [word >> 8 * i & 255 for i in range(4)]


def _perm(a, b, c):
    data, out = _bytes(b) + _bytes(a), 0
    for i, select in enumerate(_bytes(c)):
        if select > 12:
            value = 255
        elif select == 12:
            value = 0
        elif select > 7:
            value = 255 if data[2 * (select - 8) + 1] & 128 else 0
        else:
            value = data[select]
        out |= value << 8 * i
    return out


def _pack(narrow):
    return lambda a, b: narrow(a) & 0xFFFF | (narrow(b) & 0xFFFF) << 16


def _half(x):
    return bits_of(np.float16(x), 16)


def _half_to_zero(x):
    if not np.isfinite(x):
        return _half(x)
    near = np.float16(x)
    return bits_of(near, 16) - (abs(float(near)) > abs(float(x)))


def _bfloat(x):
    if np.isnan(x):
        return 0x7FC0
    bits = bits_of(x, 32)
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 & 0xFFFF


def _normed(low, scale):
    return lambda x: 0 if np.isnan(x) else round(min(max(float(x), low), 1.0) * scale)


def _clip(low, high):
    return lambda x: 0 if np.isnan(x) else int(min(max(np.trunc(np.float64(x)), low), high))


def _frexp(x):
    return math.frexp(float(x)) if np.isfinite(x) else (x, 0)


def _bf(word):
    return view(word & 0xFFFF, "bf16")


def _dot2(a, b, c):
    with np.errstate(all="ignore"):
        return np.float32(np.float64(_bf(a)) * _bf(b) + np.float64(_bf(a >> 16)) * _bf(b >> 16) + np.float64(c))


def _dot2_bf16(a, b, c):
    total = _bf(c)
    for shift in (0, 16):
        product = _bf(_bfloat(np.float32(_bf(a >> shift) * _bf(b >> shift))))
        total = _bf(_bfloat(np.float32(total + product)))
    return bits_of(total, 32) >> 16


def _nibbles(a, b, c):
    signed = lambda v: v - 16 if v & 8 else v  # noqa: E731
    return sum(signed(a >> 4 * i & 15) * signed(b >> 4 * i & 15) for i in range(8)) + c


def _sad(width, shift):
    mask = (1 << width) - 1
    return lambda a, b, c: c + (sum(abs((a >> i & mask) - (b >> i & mask)) for i in range(0, 32, width)) << shift)


def _preop(x, segment):
    """53 bits of 2/pi (its first 1201 bits, from a series) below the bit that the exponent of x asks for."""
    exponent = int(np.float64(x).view(np.uint64)) >> 52 & 0x7FF
    shift = (int(segment) & 31) * 53 + max(exponent - 1077, 0)
    kept = (TWO_OVER_PI << shift & ((1 << 1201) - 1)) >> 1148
    return np.float64(math.ldexp(kept, -53 - shift + (128 if exponent >= 1968 else 0)))


def _pi(digits):
    """floor(pi * 10**digits) by Gosper's spigot of J. Gibbons."""
    q, r, t, i, value = 1, 180, 60, 2, 0
    for _ in range(digits + 1):
        u, y = 3 * (3 * i + 1) * (3 * i + 2), (q * (27 * i - 12) + 5 * r) // (5 * t)
        value = 10 * value + y
        q, r, t, i = 10 * q * i * (2 * i - 1), 10 * u * (q * (5 * i - 2) + r - y * t), t * u, i + 1
    return value


TWO_OVER_PI = (2 * 10**450 << 1201) // _pi(450)

REFERENCES = {
    "v_trig_preop_f64": _preop,
    **dict.fromkeys(("v_mad_legacy_u16", "v_mad_legacy_i16"), lambda a, b, c: (int(a) * int(b) + int(c)) & 0xFFFF),
    **dict.fromkeys(("v_accvgpr_mov_b32", "v_accvgpr_read_b32", "v_accvgpr_write_b32"), lambda a: a),
    "v_mad_u32": lambda a, b, c: (int(a) * int(b) + int(c)) % 2**32,
    **dict.fromkeys(("v_mad_nc_u64_u32", "v_mad_nc_i64_i32"), lambda a, b, c: (int(a) * int(b) + int(c)) % 2**64),
    "v_add_nc_u64": lambda a, b: a + b, "v_sub_nc_u64": lambda a, b: a - b, "v_mul_u64": lambda a, b: a * b,
    **{f"v_{w}_{k}": f for w, f in (("min", min), ("max", max)) for k in ("u64", "i64")},
    "v_clz_i32_u32": lambda a: 32 - a.bit_length() if a else -1, "v_ctz_i32_b32": lambda a: (a & -a).bit_length() - 1,
    "v_perm_b32": _perm, "v_sad_u8": _sad(8, 0), "v_sad_hi_u8": _sad(8, 16), "v_sad_u16": _sad(16, 0),
    "v_sad_u32": _sad(32, 0),
    "v_dot8_i32_i4": _nibbles, "v_dot8c_i32_i4": _nibbles, "v_cvt_u32_u16": lambda a: a, "v_cvt_i32_i16": lambda a: a,
    "v_sat_pk_u8_i16": lambda a: min(max(view(a, "i16"), 0), 255) | min(max(view(a >> 16, "i16"), 0), 255) << 8,
    **{f"v_{op}_{k}": f for op, f in (("sub", lambda a, b: a - b), ("subrev", lambda a, b: b - a)) for k in ("f64",)},
    **{f"v_{op}_{k}": _fma for op in ("fma", "fmac", "fmaak", "fmamk") for k in ("f16", "f32", "f64")},
    **dict.fromkeys(("v_mad_f32", "v_mac_f32", "v_madak_f32", "v_madmk_f32"), _mad),
    **{f"v_{w}{n}{tail}_{k}": _extreme(order, tail == "imum") for w, order in (("min", min), ("max",
    max)) for n in ("", "3")
       for tail in ("", "_num") for k in ("f16", "f32", "f64")},
    **{f"v_{w}imum{n}_{k}": _extreme(order, True) for w, order in (("min", min), ("max", max)) for n in ("", "3")
       for k in ("f16", "f32", "f64")},
    **{f"v_{a}{b}_num_{k}": _min_of_max({"min": min, "max": max}[a], {"min": min, "max": max}[b])
       for a, b in (("min", "max"), ("max", "min")) for k in ("f16", "f32")},
    **{f"v_med3_num_{k}": _med3 for k in ("f16", "f32")},
    **{f"v_ldexp_{k}": _ldexp for k in ("f16", "f32", "f64")},
    **{f"v_rndne_{k}": lambda x: type(x)(np.rint(x)) for k in ("f16", "f32", "f64")},
    **{f"v_fract_{k}": lambda x: min(x - np.floor(x), np.nextafter(type(x)(1), type(x)(0))) for k in ("f16", "f32",
    "f64")},
    **{f"v_frexp_mant_{k}": lambda x: type(x)(_frexp(x)[0]) for k in ("f16", "f32", "f64")},
    "v_frexp_exp_i16_f16": lambda x: _frexp(x)[1], "v_frexp_exp_i32_f32": lambda x: _frexp(x)[1],
    "v_frexp_exp_i32_f64": lambda x: _frexp(x)[1],
    "v_exp_f32": _flushed(np.exp2), "v_log_f32": _flushed(np.log2), "v_exp_f16": _rounded(np.exp2),
    "v_log_f16": _rounded(np.log2),
    **{f"v_{op}_{k}": _rounded(f) for k in ("f16", "f32", "f64")
       for op, f in (("rcp", lambda x: 1 / x), ("rsq", lambda x: 1 / np.sqrt(x)), ("sqrt", np.sqrt))},
    "v_rcp_iflag_f32": _rounded(lambda x: 1 / x),
    **{f"v_{op}_{k}": _turn(f) for op, f in (("sin", math.sin), ("cos", math.cos)) for k in ("f16", "f32")},
    **dict.fromkeys(("v_mul_legacy_f32", "v_mul_dx9_zero_f32"), lambda a,
    b: np.float32(0) if a == 0 or b == 0 else a * b),
    "v_cvt_f32_bf16": lambda a: _bf(a), "v_cvt_pk_bf16_f32": _pack(_bfloat), "v_cvt_pk_f16_f32": _pack(_half),
    **dict.fromkeys(("v_cvt_pkrtz_f16_f32", "v_cvt_pk_rtz_f16_f32"), _pack(_half_to_zero)),
    "v_cvt_pk_i16_f32": _pack(_clip(-32768, 32767)), "v_cvt_pk_u16_f32": _pack(_clip(0, 65535)),
    **dict.fromkeys(("v_cvt_pknorm_i16_f32", "v_cvt_pk_norm_i16_f32"), _pack(_normed(-1, 32767))),
    **dict.fromkeys(("v_cvt_pknorm_u16_f32", "v_cvt_pk_norm_u16_f32"), _pack(_normed(0, 65535))),
    "v_dot2acc_f32_bf16": _dot2, "v_dot2c_f32_bf16": _dot2, "v_dot2_f32_bf16": _dot2, "v_dot2_bf16_bf16": _dot2_bf16,
}  # fmt: skip


def test_every_instruction_of_the_table_has_a_reference():
    assert sorted(set(valu.TABLE) - set(BY_ORACLE) - set(REFERENCES)) == []


def _target_of(name):
    if "_num_" in name or (name.endswith("_u64") and "min" in name) or "imum" in name:
        return "gfx1201"
    return "gfx1100" if name.startswith(("v_clz", "v_ctz", "v_cls")) else "gfx942"


@pytest.mark.parametrize("name", sorted(set(valu.TABLE) & set(REFERENCES)))
def test_instruction_agrees_with_its_written_reference(name):
    entry, reference = valu.TABLE[name], REFERENCES[name]
    rows = inputs(entry)
    got = machine_results(_target_of(name), name, entry, rows)
    for row, value in zip(rows, got, strict=True):
        with np.errstate(all="ignore"):
            want = bits_of(
                reference(*(view(int(x), kind) for x, kind in zip(row, kinds_of(entry), strict=True))), WIDTH[entry.out]
            )
        if name == "v_dot2_bf16_bf16" and np.isnan(view(want, "bf16")):
            assert np.isnan(view(value, "bf16"))
            continue
        if "cos" in name or "sin" in name:
            close = abs(
                float(view(value, entry.out)) - float(view(want, entry.out))
            ) <= entry.error * 2.0**-20 + 2.0**-10 * (entry.out == "f16")
            assert close or same(entry.out, value, want), f"{name} {row}"
            continue
        assert same(entry.out, value, want, entry.error), (
            f"{name} {[hex(int(v)) for v in row]}: {value:#x}, expected {want:#x}"
        )
