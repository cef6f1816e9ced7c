"""v_mfma_f32_*_f8f6f4 and v_mfma_scale_f32_*_f8f6f4: gfx950's products of 8-, 6- and 4-bit floats, with block scales.

Each operand has a format of its own (cbsz for A, blgp for B) and a scale, 2 to the power of a byte less 127, for each
32 elements along K. A lane holds 32 elements of one row: of fp4 those of one block, of the wider formats 16 of the
first half of K and 16 of the second. The lane whose number divided by the rows is b gives the scale of block b of
its row.

Products and their sum over a block are made in float32; scales, blocks and the accumulator are added in float64 and
rounded once. Layouts: the tables in Composable Kernel's test of these instructions, and Triton's
chooseScaledMfmaScaleLayout.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from gpu_utils.virtual.amdgcn.fragments import kept
from gpu_utils.virtual.amdgcn.operands import Decoder
from gpu_utils.virtual.amdgcn.parse import Instruction
from gpu_utils.virtual.amdgcn.small_floats import FORMATS, power, unpack

Run = Callable[[Any], Any]
Read = Callable[[Any], np.ndarray]
NAME = re.compile(r"v_mfma_(scale_)?f32_(16x16x128|32x32x64)_f8f6f4$")
_FORMAT = ("fp8", "bf8", "fp6", "bf6", "fp4")  # by the number in cbsz and blgp
BLOCK = 32  # elements along K with one scale


def decode(decoder: Decoder, ins: Instruction, match: re.Match[str]) -> tuple[Run, int]:
    """(run, operations of one wave)."""
    scaled, (rows, _, k) = bool(match[1]), (int(size) for size in match[2].split("x"))
    mods = ins.modifiers
    get_a, get_b = (
        _operand(decoder, ins.operands[at], mods.get(word, 0), rows) for at, word in ((1, "cbsz"), (2, "blgp"))
    )
    scales = [_scales(decoder, ins.operands[4 + i], mods, i, rows) for i in range(2)] if scaled else None
    count = rows * rows // 64
    out = decoder.result(ins.operands[0], count, masked=False)
    addend = decoder.register(ins.operands[3])
    if addend:
        decoder.reads_row(addend[0], count)
    constant = 0.0 if addend else constant_of(decoder, ins.operands[3])

    def product(s: Any) -> np.ndarray:
        """A times B, float64 (waves, rows, columns)."""
        a, b = get_a(s), get_b(s)
        blocks = np.matmul(a.transpose(0, 2, 1, 3), b.transpose(0, 2, 3, 1))  # (waves, K / 32, rows, columns)
        if scales is None:
            return blocks.sum(axis=1, dtype=np.float64)
        left, right = (get(s) for get in scales)
        return (blocks * left[..., :, None] * right[..., None, :]).sum(axis=1)

    def run(s: Any) -> None:
        result = product(s)
        if rows == 32:  # row = 8 * (r / 4) + 4 * (lane / 32) + r % 4
            result = result.reshape(s.waves, 4, 2, 4, 32).transpose(1, 3, 0, 2, 4).reshape(count, s.waves, 64)
        else:  # row = 4 * (lane / 16) + r
            result = result.reshape(s.waves, 4, 4, 16).transpose(2, 0, 1, 3).reshape(count, s.waves, 64)
        c = s.block(addend[0], count).view(np.float32) if addend else constant
        with np.errstate(over="ignore", invalid="ignore"):
            total = (result + c).astype(np.float32)
        where = True if s.act is None else s.act_column[None]
        np.copyto(s.block(out, count), total.view(np.uint32), where=where)

    return run, 2 * rows * rows * k


def _operand(decoder: Decoder, text: str, code: int, rows: int) -> Read:
    """float32 (waves, rows, K / 32, 32). The numbers are kept until the registers hold something else."""
    if code >= len(_FORMAT):
        raise decoder.unsupported(f"no format has the number {code}")
    kind = _FORMAT[code]
    form, found = FORMATS[kind], decoder.register(text)
    if found is None or found[1] != form.bits:  # 32 elements take as many registers as one has bits
        raise decoder.unsupported(f"{kind} takes {form.bits} registers")
    row, groups, halves = decoder.source(text, form.bits), 64 // rows, 1 if form.bits == 4 else 2
    key = (row, kind, rows, "f8f6f4")

    def arrange(words: np.ndarray) -> np.ndarray:
        waves = words.shape[1]
        values = form.values[unpack(words, form.bits)].reshape(waves, groups, rows, halves, BLOCK // halves)
        return np.ascontiguousarray(values.transpose(0, 2, 3, 1, 4)).reshape(waves, rows, groups, BLOCK)

    return lambda s: kept(s, key, s.block(row, form.bits), arrange)


def _scales(decoder: Decoder, text: str, mods: dict[str, Any], operand: int, rows: int) -> Read:
    """float64 (waves, K / 32, rows): the byte of the operand that op_sel (low bit) and op_sel_hi (high bit) choose."""
    low, high = ([*mods.get(word, []), 0, 0][operand] for word in ("op_sel", "op_sel_hi"))
    word, shift = decoder.getter(text, "u32"), np.uint32(8 * (low + 2 * high))

    def get(s: Any) -> np.ndarray:
        codes = np.broadcast_to(word(s) >> shift & np.uint32(0xFF), (s.waves, 64))
        return power(codes).reshape(s.waves, 64 // rows, rows)

    return get


def constant_of(decoder: Decoder, text: str) -> float:
    """An accumulator that is a constant. Raises UnsupportedInstruction for another one."""
    bits = decoder.bits(text, "f32")
    if bits is None:
        raise decoder.unsupported(f"accumulator {text!r}")
    return float(np.array(bits, np.uint32).view(np.float32))
