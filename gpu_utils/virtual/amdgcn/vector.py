"""From a vector instruction of the tables to a function of the state: operands, DPP, SDWA, op_sel, clamp, omod."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from gpu_utils.virtual.amdgcn import floating as fl
from gpu_utils.virtual.amdgcn import fp8, lanes, packed, scaled, scaled_eights, valu
from gpu_utils.virtual.amdgcn import state as st
from gpu_utils.virtual.amdgcn.compare import decode_compare
from gpu_utils.virtual.amdgcn.operands import BITS, DTYPES, Decoder, sdwa_putter
from gpu_utils.virtual.amdgcn.parse import Instruction
from gpu_utils.virtual.amdgcn.sources import source_getters
from gpu_utils.virtual.amdgcn.special import SPECIAL
from gpu_utils.virtual.machine import nothing

Run = Callable[[Any], Any]
_SUFFIX = re.compile(r"_(e32|e64|dpp|sdwa|e64_dpp|dpp8)$")


def base_name(mnemonic: str) -> str:
    """The name without its encoding.

    >>> base_name("v_add_f32_e64_dpp")
    'v_add_f32'
    """
    while match := _SUFFIX.search(mnemonic):
        mnemonic = mnemonic[: match.start()]
    return mnemonic


def decode(decoder: Decoder, ins: Instruction) -> tuple[Run, str, str]:
    """(run, kind, ends) of a vector instruction."""
    name = base_name(ins.mnemonic)
    ops, mods = ins.operands, ins.modifiers
    if name.startswith("v_cmpx_"):
        return decode_compare(decoder, name, ops, mods, writes_exec=True), "vector", "mask"
    if name.startswith("v_cmp_"):
        return decode_compare(decoder, name, ops, mods), "vector", ""
    special = SPECIAL.get(name)
    if special is not None:
        return special(decoder, ops, mods), "vector", ""
    made = scaled_eights.decode(decoder, name, ops, mods)
    if made is not None:
        return made, "vector", ""
    if name.startswith("v_cvt_scalef32_"):
        return scaled.decode(decoder, name, ops, mods), "vector", ""
    made = packed.decode(decoder, name, ops, mods) or fp8.decode(decoder, name, ops, mods)
    if made is not None:
        return made, "vector", ""
    if name == "v_nop":
        return nothing, "wait", ""
    if name.startswith("v_s_") and "v_" + name[4:] in valu.TABLE:  # a transcendental on scalars (gfx12)
        scalar = valu.TABLE["v_" + name[4:]]
        source, out = decoder.getter(ops[1], scalar.sources[0]), decoder.result(ops[0])
        word = np.uint32 if scalar.out == "f32" else np.uint16
        function = scalar.function
        return (lambda s: s.put_scalar(out, function(source(s)).view(word))), "transcendental", ""
    entry = valu.TABLE.get(name)
    if name == "v_bitop2_b32":  # half of a dual instruction: v_bitop3_b32 with 0 for the third source
        code = int(mods.get("bitop3", 0))
        entry = valu.Vector("u32", ("u32", "u32"), lambda a, b: valu._bitop3(code, np.uint32)(a, b, np.uint32(0)))
        mods = {}
    if name == "v_bitop3_b32" or name == "v_bitop3_b16":
        kind = "u32" if name.endswith("32") else "u16"
        code = int(mods.get("bitop3", 0))
        entry = valu.Vector(kind, (kind,) * 3, valu._bitop3(code, DTYPES[kind]))
    if name in ("v_dot4_i32_iu8", "v_dot8_i32_iu4"):  # neg_lo says which sources are signed
        signed = [bool(flag) for flag in mods.get("neg_lo", (0, 0))]
        entry = valu.Vector("u32", ("u32",) * 3, valu._dot_int(8 if name.endswith("8") else 4, signed[0], signed[1]))
        mods = {key: value for key, value in mods.items() if key != "neg_lo"}
    if entry is None:
        raise decoder.unsupported()
    if name == "v_perm_b32":
        selector = decoder.bits(ops[3], "u32")
        quick = None if selector is None else valu._perm_constant(selector)
        if quick is not None:
            entry = valu.Vector(entry.out, entry.sources, quick)
    if decoder.toward_zero16 and any(kind in ("f16", "f64") for kind in (entry.out, *entry.sources)):
        if name != "v_cvt_f16_f32":
            raise decoder.unsupported("rounding toward zero")
        entry = valu.Vector("f16", ("f32",), valu._toward_zero)
    return plain(decoder, name, entry, ops, mods), entry.kind, ""


def plain(decoder: Decoder, name: str, entry: valu.Vector, ops: list[str], mods: dict[str, Any]) -> Run:
    """An instruction of the table."""
    texts = list(ops[1:])
    if entry.accumulate:
        texts.append(ops[0])
    if len(texts) != len(entry.sources):
        raise decoder.unsupported(f"{len(texts)} sources, expected {len(entry.sources)}")
    halves = any(flag and BITS[kind] > 16 for flag, kind in zip(mods.get("op_sel", ()), entry.sources, strict=False))
    if halves or any(mods.get("neg_lo", ())) or any(mods.get("neg_hi", ())) or not all(mods.get("op_sel_hi", ())):
        raise decoder.unsupported("signs or a choice of halves")
    if not mods:
        fast = _fast(decoder, entry, ops[0], texts)
        if fast is not None:
            return fast
    sources = source_getters(decoder, entry.sources, texts, mods, entry.accumulate)
    function = _with_clamp(decoder, name, entry, mods)
    op_sel = mods.get("op_sel", [])
    high = len(op_sel) == len(texts) + 1 - entry.accumulate and bool(op_sel[-1]) and BITS[entry.out] == 16
    put = (
        sdwa_putter(decoder, ops[0], entry.out, mods.get("dst_sel", "DWORD"), mods.get("dst_unused", "UNUSED_PAD"))
        if "dst_sel" in mods and BITS[entry.out] < 64
        else decoder.putter(ops[0], entry.out, high, keep_half=bool(op_sel) and not decoder.gfx9)
    )
    dpp = lanes.Dpp(decoder, mods) if lanes.dpp_source(mods, decoder.lanes) is not None else None
    out = DTYPES[entry.out]

    def run(s: Any) -> None:
        value = function(*[get(s) for get in sources])
        if value.dtype != out:
            value = value.astype(out)
        put(s, value)

    if dpp is None:
        return run
    return lambda s: dpp.narrowed(s, lambda: run(s))


def _fast(decoder: Decoder, entry: valu.Vector, out: str, texts: list[str]) -> Run | None:
    """Plain 32-bit operands: rows are indexed directly and the result goes straight to the register."""
    if BITS[entry.out] != 32 or any(BITS[kind] != 32 for kind in entry.sources):
        return None
    found = [decoder.plain_row(text, kind) for text, kind in zip(texts, entry.sources, strict=True)]
    rows = [row for row in found if row is not None]
    target = decoder.register(out)
    if target is None or len(rows) < len(found):
        return None
    d, function = decoder.result(out), entry.function
    vector = any(row < st.SGPR for row in rows)
    letters = [{"f": "F", "i": "I"}.get(kind[0], "U") for kind in entry.sources]
    if isinstance(function, np.ufunc) and vector and len(set(letters)) == 1 and len(rows) == 2:
        return _fast_ufunc(function, letters[0], rows[0], rows[1], d)
    word = np.uint32
    if isinstance(function, valu.Then) and vector:
        return _fast_then(function, letters, rows, d)
    if len(rows) == 1:
        (a,), (la,) = rows, letters

        def run1(s: Any) -> None:
            s.put(d, function(getattr(s, la)[a]).view(word))

        return run1
    if len(rows) == 2:
        (a, b), (la, lb) = rows, letters

        def run2(s: Any) -> None:
            s.put(d, function(getattr(s, la)[a], getattr(s, lb)[b]).view(word))

        return run2
    (a, b, c), (la, lb, lc) = rows, letters

    def run3(s: Any) -> None:
        s.put(d, function(getattr(s, la)[a], getattr(s, lb)[b], getattr(s, lc)[c]).view(word))

    return run3


def _fast_then(function: valu.Then, letters: list[str], rows: list[int], d: int) -> Run:
    """A function that ends in a ufunc, all of one type."""
    letter, prepare, last = letters[0], function.prepare, function.last

    def run(s: Any) -> None:
        seen = getattr(s, letter)
        first, second = prepare(*[seen[row] for row in rows])
        if s.mask is None:
            last(first, second, out=seen[d])
        else:
            s.put(d, last(first, second).view(np.uint32))

    return run


def _fast_ufunc(function: np.ufunc, letter: str, a: int, b: int, d: int) -> Run:
    if letter == "F":

        def run_f(s: Any) -> None:
            rows = s.F
            if s.mask is None:
                function(rows[a], rows[b], out=rows[d])
            else:
                s.put(d, function(rows[a], rows[b]).view(np.uint32))

        return run_f
    if letter == "I":

        def run_i(s: Any) -> None:
            rows = s.I
            if s.mask is None:
                function(rows[a], rows[b], out=rows[d])
            else:
                s.put(d, function(rows[a], rows[b]).view(np.uint32))

        return run_i

    def run_u(s: Any) -> None:
        rows = s.U
        if s.mask is None:
            function(rows[a], rows[b], out=rows[d])
        else:
            s.put(d, function(rows[a], rows[b]))

    return run_u


_SATURATING: dict[str, tuple[Any, Any]] = {
    "v_add_u32": (np.add, np.uint32),
    "v_sub_u32": (np.subtract, np.uint32),
    "v_add_i32": (np.add, np.int32),
    "v_sub_i32": (np.subtract, np.int32),
    "v_add_u16": (np.add, np.uint16),
    "v_sub_u16": (np.subtract, np.uint16),
    "v_add_i16": (np.add, np.int16),
    "v_sub_i16": (np.subtract, np.int16),
    "v_add_nc_u32": (np.add, np.uint32),
    "v_sub_nc_u32": (np.subtract, np.uint32),
    "v_add_nc_i32": (np.add, np.int32),
    "v_sub_nc_i32": (np.subtract, np.int32),
    "v_add_nc_u16": (np.add, np.uint16),
    "v_sub_nc_u16": (np.subtract, np.uint16),
    "v_add_nc_i16": (np.add, np.int16),
    "v_sub_nc_i16": (np.subtract, np.int16),
    "v_subrev_u32": (lambda a, b: b - a, np.uint32),
    "v_subrev_nc_u32": (lambda a, b: b - a, np.uint32),
    "v_subrev_u16": (lambda a, b: b - a, np.uint16),
}


def _with_clamp(decoder: Decoder, name: str, entry: valu.Vector, mods: dict[str, Any]) -> Callable[..., Any]:
    function = entry.function
    factor = {"mul": float(mods.get("mul", 1)), "div": 1 / float(mods.get("div", 1))}
    scale = factor["mul"] * factor["div"]
    if scale != 1:
        before = function
        function = lambda *a: before(*a) * DTYPES[entry.out](scale)  # noqa: E731
    if not mods.get("clamp"):
        return function
    if entry.out[0] == "f":
        inner = function
        zero, one = DTYPES[entry.out](0), DTYPES[entry.out](1)
        return lambda *a: fl.fmin(fl.fmax(inner(*a), zero), one)
    if name not in _SATURATING:
        raise decoder.unsupported("clamp on this integer instruction")
    ufunc, dtype = _SATURATING[name]
    limits = np.iinfo(dtype)
    return lambda a, b: np.clip(ufunc(a.astype(np.int64), b.astype(np.int64)), limits.min, limits.max).astype(dtype)
