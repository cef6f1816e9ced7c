"""v_cvt_scalef32_*: gfx950's conversions to and from floats of 8, 6 and 4 bits with a common scale.

The scale is a power of two, the exponent of the last operand: what becomes smaller is divided by it, what becomes wider
is multiplied with it. Each result is rounded once. Forms: one value, a pair ("pk"), 32 values ("pk32", or
"2xpk16": two sources that take turns); "sr" rounds stochastically, with a seed that v_prng_b32 moves on after each.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from gpu_utils.virtual.amdgcn.floating import bf16_to_f32, f32_to_bf16
from gpu_utils.virtual.amdgcn.operands import Decoder
from gpu_utils.virtual.amdgcn.small_floats import FORMATS, SmallFloat, pack6, power, unpack
from gpu_utils.virtual.amdgcn.valu import next_random
from gpu_utils.virtual.halves import half_to_f32

Run = Callable[[Any], Any]
Values = Callable[[Any], list[np.ndarray]]
_NAME = re.compile(
    r"v_cvt_scalef32_(?P<random>sr_)?(?P<count>pk_|pk32_|2xpk16_)?(?P<to>[a-z]+\d+)_(?P<source>[a-z]+\d+)$"
)
_COUNTS = {None: 1, "pk_": 2, "pk32_": 32, "2xpk16_": 32}
_WORDS = {"f32": 2, "f16": 1, "bf16": 1}  # of 16 bits
_DIGITS = {"f32": 23, "f16": 10, "bf16": 7}  # of the mantissa: as many bits of the seed reach below the last kept digit


def decode(decoder: Decoder, name: str, ops: list[str], mods: dict[str, Any]) -> Run:
    """The run of a v_cvt_scalef32_* instruction; an error for a form that gfx950 does not have."""
    match = _NAME.match(name)
    if "f8f6f4" not in decoder.limits.inputs or match is None:
        raise decoder.unsupported()
    select = [*mods.get("op_sel", []), 0, 0, 0, 0]
    exponent = decoder.getter(ops[-1], "u32")

    def scale(s: Any) -> np.ndarray:
        return power(exponent(s) >> np.uint32(23) & np.uint32(0xFF))

    to, source, count = match["to"], match["source"], _COUNTS[match["count"]]
    if to in FORMATS and source in _DIGITS:
        return _narrow(decoder, ops, mods, select, scale, FORMATS[to], source, count, bool(match["random"]))
    if source in FORMATS and to in _DIGITS and not match["random"]:
        return _widen(decoder, ops, select, scale, to, FORMATS[source], count)
    raise decoder.unsupported()


def _sources(decoder: Decoder, ops: list[str], kind: str, count: int, random: bool) -> Values:
    """The values to convert as float64: of two operands, of several registers, or of the halves of registers."""
    if kind == "f32" and count <= 2 and not (random and count == 2):
        gets = [decoder.getter(text, "f32") for text in ops[1 : 1 + count]]
        return lambda s: [get(s).astype(np.float64) for get in gets]
    texts = ops[1 : 3 if kind == "f32" and count == 32 and not random else 2]
    each = count // len(texts)
    rows = [decoder.source(text, max(1, each * _WORDS[kind] // 2)) for text in texts]
    if kind == "f32":
        order = [row + i for i in range(each) for row in rows]
        return lambda s: [s.F[row].astype(np.float64) for row in order]
    widen = bf16_to_f32 if kind == "bf16" else half_to_f32
    halves = [(rows[0] + i // 2, np.uint32(16 * (i % 2))) for i in range(count)]
    return lambda s: [widen((s.U[row] >> shift).astype(np.uint16)).astype(np.float64) for row, shift in halves]


def _narrow(
    decoder: Decoder,
    ops: list[str],
    mods: dict[str, Any],
    select: list[int],
    scale: Any,
    form: SmallFloat,
    source: str,
    count: int,
    random: bool,
) -> Run:
    values = _sources(decoder, ops, source, count, random)
    seed = decoder.getter(ops[2], "u32") if random else None
    saturate = form.bits == 8 and bool(decoder.fp16_overflow)
    noise_bits = _DIGITS[source] - form.mantissa
    out = decoder.result(ops[0], max(1, form.bits * count // 32), keeps=count < 32)
    shift = 8 * (select[2] + 2 * select[3])
    if form.bits == 8 and count == 2:  # op_sel's last entry is that of the destination: which half
        shift = 16 * (mods.get("op_sel") or [0])[-1]

    def codes(s: Any) -> list[np.ndarray]:
        by, noise, found = scale(s), seed(s) if seed else None, []
        for value in values(s):
            found.append(form.encode(np.copysign(value / by, value), saturate, noise, noise_bits))
            noise = None if noise is None else next_random(noise)
        return found

    if count == 32:

        def run_many(s: Any) -> None:
            shape = s.U[out].shape
            for i, word in enumerate(pack6(np.stack([np.broadcast_to(code, shape) for code in codes(s)]))):
                s.put(out + i, word)

        return run_many
    keep = ~np.uint32(((1 << form.bits * count) - 1) << shift)

    def run(s: Any) -> None:
        made = s.U[out] & keep
        for i, code in enumerate(codes(s)):
            made = made | code << np.uint32(shift + form.bits * i)
        s.put(out, made)

    return run


def _widen(
    decoder: Decoder, ops: list[str], select: list[int], scale: Any, to: str, form: SmallFloat, count: int
) -> Run:
    registers = max(1, form.bits * count // 32)
    row = decoder.source(ops[1], registers)
    out = decoder.result(ops[0], max(1, count * _WORDS[to] // 2), keeps=count == 1 and to == "f16")
    byte = 2 * select[0] if form.bits == 8 and count == 2 else select[0] + 2 * select[1]
    first = byte * 8 // form.bits
    high = to == "f16" and count == 1 and select[2]
    table = form.values.astype(np.float64)

    def run(s: Any) -> None:
        by, codes = scale(s), unpack(s.block(row, registers), form.bits)
        with np.errstate(over="ignore"):
            values = [table[codes[..., first + i]] * by for i in range(count)]
            if to == "f32":
                for i, value in enumerate(values):
                    s.put(out + i, value.astype(np.float32).view(np.uint32))
                return
            if to == "f16":
                halves = [value.astype(np.float16).view(np.uint16).astype(np.uint32) for value in values]
            else:
                halves = [f32_to_bf16(value.astype(np.float32)).astype(np.uint32) for value in values]
        if count == 1:
            shift = np.uint32(16 if high else 0)
            s.put(out, s.U[out] & ~(np.uint32(0xFFFF) << shift) | halves[0] << shift)
            return
        for i in range(count // 2):
            s.put(out + i, halves[2 * i] | halves[2 * i + 1] << np.uint32(16))

    return run
