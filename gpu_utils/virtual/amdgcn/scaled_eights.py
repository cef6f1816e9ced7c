"""gfx1250's conversions of eight values at a time: v_cvt_scale_pk8_* widen, v_cvt_scalef32_pk8_* make narrow.

v_cvt_scale_pk8_{f16,bf16,f32}_{fp8,bf8,fp4}: two registers (fp4: one) times an E8M0 scale. scale_sel says which byte
of the scale register, and whether of lanes 0 to 15 or 16 to 31: both halves of a wave read the scales of one of them,
since they hold two parts of one row. With fp4 the upper half takes the byte above. Source: the tables of scale_sel in
Composable Kernel, include/ck_tile/core/numeric (pk4scaled_type_convert).
v_cvt_scalef32_[sr_]pk8_{fp8,bf8,fp4}_{f32,f16,bf16}: eight values over a power of two, each rounded once.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from gpu_utils.virtual.amdgcn.floating import bf16_to_f32, f32_to_bf16
from gpu_utils.virtual.amdgcn.operands import Decoder
from gpu_utils.virtual.amdgcn.small_floats import FORMATS, power, unpack
from gpu_utils.virtual.amdgcn.valu import next_random
from gpu_utils.virtual.halves import half_to_f32

Run = Callable[[Any], Any]
WIDEN = re.compile(r"v_cvt_scale_pk8_(f16|bf16|f32)_(fp8|bf8|fp4)$")
NARROW = re.compile(r"v_cvt_scalef32_(sr_)?pk8_(fp8|bf8|fp4)_(f32|f16|bf16)$")
_EIGHT = {"f32": 8, "f16": 4, "bf16": 4}  # registers of eight values
_DIGITS = {"f32": 23, "f16": 10, "bf16": 7}
COUNT = 8


def decode(decoder: Decoder, name: str, ops: list[str], mods: dict[str, Any]) -> Run | None:
    """The run of one of these instructions; None for any other."""
    found = WIDEN.match(name)
    if found and decoder.gfx125:
        return _widen(decoder, ops, mods, found[1], found[2])
    found = NARROW.match(name)
    if found and decoder.gfx125:
        return _narrow(decoder, ops, bool(found[1]), found[2], found[3])
    return None


def scale_places(select: int, kind: str) -> tuple[int, tuple[int, int]]:
    """(first lane of the half that holds the scales, byte for the lower and for the upper half of the wave)."""
    if select > 7:
        raise ValueError(f"scale_sel:{select}; 0 to 7 choose a scale for 32 values")
    if kind == "fp4":
        if select > 3:
            raise ValueError(f"scale_sel:{select} with fp4; 0 to 3 choose a scale for 32 values")
        byte = select & 2
        return 16 * (select & 1), (byte, byte + 1)
    byte = (select & 2) + (select >> 2)
    return 16 * (select & 1), (byte, byte)


def _widen(decoder: Decoder, ops: list[str], mods: dict[str, Any], to: str, kind: str) -> Run:
    form = FORMATS[kind]
    registers = COUNT * form.bits // 32
    row, words = decoder.source(ops[1], registers), decoder.getter(ops[2], "u32")
    out = decoder.result(ops[0], _EIGHT[to])
    first, bytes_of = scale_places(int(mods.get("scale_sel", 0)), kind)
    shift = np.repeat(np.array(bytes_of, np.uint32) * np.uint32(8), 16)
    lanes, table = first + np.tile(np.arange(16), 2), form.values.astype(np.float64)

    def run(s: Any) -> None:
        scale = np.broadcast_to(words(s), (s.waves, s.lanes))[:, lanes] >> shift & np.uint32(0xFF)
        values = table[unpack(s.block(row, registers), form.bits)] * power(scale)[..., None]
        with np.errstate(over="ignore"):
            if to == "f32":
                for i in range(COUNT):
                    s.put(out + i, values[..., i].astype(np.float32).view(np.uint32))
                return
            halves = (
                values.astype(np.float16).view(np.uint16)
                if to == "f16"
                else f32_to_bf16(values.astype(np.float32)).astype(np.uint16)
            )
        for i, word in enumerate(np.moveaxis(np.ascontiguousarray(halves).view(np.uint32), -1, 0)):
            s.put(out + i, word)

    return run


def _narrow(decoder: Decoder, ops: list[str], random: bool, kind: str, source: str) -> Run:
    form = FORMATS[kind]
    row, scale = decoder.source(ops[1], _EIGHT[source]), decoder.getter(ops[-1], "u32")
    seed = decoder.getter(ops[2], "u32") if random else None
    registers = COUNT * form.bits // 32
    out = decoder.result(ops[0], registers)
    saturate, noise_bits = form.bits == 8 and bool(decoder.fp16_overflow), _DIGITS[source] - form.mantissa

    def run(s: Any) -> None:
        words = s.block(row, _EIGHT[source])
        if source == "f32":
            values = list(words.view(np.float32))
        else:
            widen = bf16_to_f32 if source == "bf16" else half_to_f32
            values = [widen((words[i // 2] >> np.uint32(16 * (i % 2))).astype(np.uint16)) for i in range(COUNT)]
        by, noise = power(scale(s) >> np.uint32(23) & np.uint32(0xFF)), seed(s) if seed else None
        made: list[Any] = [np.uint32(0)] * registers
        for i, value in enumerate(values):
            wide = value.astype(np.float64)
            code = form.encode(np.copysign(wide / by, wide), saturate, noise, noise_bits)
            noise = None if noise is None else next_random(noise)
            at, shift = divmod(i * form.bits, 32)
            made[at] = made[at] | code << np.uint32(shift)
        for i, word in enumerate(made):
            s.put(out + i, word)

    return run
