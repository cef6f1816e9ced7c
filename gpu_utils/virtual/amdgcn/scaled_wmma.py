"""gfx1250's v_wmma_*_f8f6f4 and v_wmma_scale*: products of 8-, 6- and 4-bit floats along 128, with block scales.

Each operand has a format of its own (matrix_a_fmt, matrix_b_fmt). A lane holds half of a row of K = 128: runs of 16
elements of 8 bits, or of 32 elements of 6 or 4 bits, that take turns between lane and lane + 16. A scale register holds
for its row one byte for each 32 elements (scale16: two registers, one for each 16); matrix_a_scale and matrix_b_scale
say whether lanes 0 to 15 or 16 to 31 hold them, and of 32 rows each lane holds those of its own. Formats of scales:
E8M0, E5M3 and E4M3. Products and their sum over a block are made in float32; scales, blocks and the accumulator are
added in float64 and rounded once.

Sources: Triton's chooseScaledWmmaScaleLayout and the WMMA layouts of its LinearLayoutConversions.cpp; AMD's emulator
rocjitsu (ROCm/rocm-systems, wmma_block_scaled_input_loc), which cites the CDNA 5 manual.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from gpu_utils.virtual.amdgcn.fragments import kept
from gpu_utils.virtual.amdgcn.operands import Decoder
from gpu_utils.virtual.amdgcn.parse import Instruction
from gpu_utils.virtual.amdgcn.scaled_matrix import constant_of
from gpu_utils.virtual.amdgcn.small_floats import FORMATS, power, unpack

Run = Callable[[Any], Any]
Read = Callable[[Any], np.ndarray]
NAME = re.compile(r"v_wmma_(scale16_|scale_)?f32_(?:(16x16x128)_f8f6f4|(32x16x128)_f4)$")
_FORMAT = {"FP8": "fp8", "BF8": "bf8", "FP6": "fp6", "BF6": "bf6", "FP4": "fp4"}
K, COLUMNS, LANES = 128, 16, 32


def _e5m3() -> np.ndarray:
    """Values of unsigned floats of 5 bits of exponent and 3 of mantissa; 255 is NaN."""
    code = np.arange(256)
    exponent, digits = np.maximum(code >> 3, 1), (code & 7) + 8 * (code > 7)
    return np.where(code == 255, np.nan, np.ldexp(digits.astype(np.float64), exponent - 15 - 3))


_SCALES = {
    "E8": power(np.arange(256)),
    "E5M3": _e5m3(),
    "E4M3": np.abs(FORMATS["fp8"].values.astype(np.float64)),
}


def decode(decoder: Decoder, ins: Instruction, match: re.Match[str]) -> tuple[Run, int]:
    """(run, operations of one wave)."""
    if "f8f6f4" not in decoder.limits.inputs or decoder.lanes != LANES:
        raise decoder.unsupported()
    rows, mods = (16 if match[2] else 32), ins.modifiers
    block = {None: K, "scale_": 32, "scale16_": 16}[match[1]]
    kinds = [_format(decoder, mods, word) if match[2] else "fp4" for word in ("matrix_a_fmt", "matrix_b_fmt")]
    get_a = _operand(decoder, ins.operands[1], kinds[0], rows, block)
    get_b = _operand(decoder, ins.operands[2], kinds[1], COLUMNS, block)
    scales = None
    if match[1]:
        scales = [
            _scales(decoder, ins.operands[4 + i], mods, "ab"[i], size, block) for i, size in enumerate((rows, COLUMNS))
        ]
    count = rows * COLUMNS // LANES
    out = decoder.result(ins.operands[0], count, masked=False)
    addend = decoder.register(ins.operands[3])
    if addend:
        decoder.reads_row(addend[0], count)
    constant = 0.0 if addend else constant_of(decoder, ins.operands[3])
    negate, absolute = ([*mods.get(word, []), 0, 0, 0][2] for word in ("neg_lo", "neg_hi"))
    if any(mods.get(word, [])[:2] != [0, 0] for word in ("neg_lo", "neg_hi") if word in mods):
        raise decoder.unsupported("negated operands")

    def product(s: Any) -> np.ndarray:
        """A times B, float64 (waves, rows, columns)."""
        a, b = get_a(s), get_b(s)
        blocks = np.matmul(a.transpose(0, 2, 1, 3), b.transpose(0, 2, 3, 1))  # (waves, blocks, rows, columns)
        if scales is None:
            return blocks.sum(axis=1, dtype=np.float64)
        left, right = (get(s) for get in scales)
        return (blocks * left[..., :, None] * right[..., None, :]).sum(axis=1)

    def run(s: Any) -> None:
        # row = 16 * (r / 8) + 8 * (lane / 16) + r % 8
        result = product(s).reshape(s.waves, rows // 16, 2, 8, COLUMNS).transpose(1, 3, 0, 2, 4)
        c: Any = constant
        if addend:
            c = s.block(addend[0], count).view(np.float32)
            c = np.abs(c) if absolute else c
            c = np.negative(c) if negate else c
        with np.errstate(over="ignore", invalid="ignore"):
            total = (result.reshape(count, s.waves, LANES) + c).astype(np.float32)
        where = True if s.act is None else s.act_column[None]
        np.copyto(s.block(out, count), total.view(np.uint32), where=where)

    return run, 2 * rows * COLUMNS * K


def _format(decoder: Decoder, mods: dict[str, Any], word: str) -> str:
    name = str(mods.get(word, "MATRIX_FMT_FP8")).removeprefix("MATRIX_FMT_")
    if name not in _FORMAT:
        raise decoder.unsupported(f"format {name}")
    return _FORMAT[name]


def _operand(decoder: Decoder, text: str, kind: str, rows: int, block: int) -> Read:
    """float32 (waves, rows, K / block, block). The numbers are kept until the registers hold something else."""
    form, found = FORMATS[kind], decoder.register(text)
    registers = rows * K // LANES * form.bits // 32
    if found is None or found[1] != registers:
        raise decoder.unsupported(f"{kind} takes {registers} registers")
    row, together = decoder.source(text, registers), 16 if form.bits == 8 else 32
    key = (row, kind, rows, block, "wmma")

    def arrange(words: np.ndarray) -> np.ndarray:
        waves = words.shape[1]
        values = form.values[unpack(words, form.bits)]  # (waves, lanes, elements)
        values = values.reshape(waves, 2, 16, rows // 16, -1, together)  # half of the runs, row, upper rows, run
        return np.ascontiguousarray(values.transpose(0, 3, 2, 4, 1, 5)).reshape(waves, rows, K // block, block)

    return lambda s: kept(s, key, s.block(row, registers), arrange)


def _scales(decoder: Decoder, text: str, mods: dict[str, Any], side: str, rows: int, block: int) -> Read:
    """float64 (waves, K / block, rows)."""
    count = K // block
    name = str(mods.get(f"matrix_{side}_scale_fmt", "MATRIX_SCALE_FMT_E8")).removeprefix("MATRIX_SCALE_FMT_")
    upper = str(mods.get(f"matrix_{side}_scale", "MATRIX_SCALE_ROW0")) in ("MATRIX_SCALE_ROW1", "1")
    if name not in _SCALES:
        raise decoder.unsupported(f"format of scales {name}")
    table, words = _SCALES[name], count // 4
    word = decoder.getter(text, "u32" if words == 1 else "u64")
    first = 16 if upper and rows == 16 else 0

    def get(s: Any) -> np.ndarray:
        lanes = np.broadcast_to(word(s), (s.waves, LANES))[:, first : first + rows]
        codes = np.ascontiguousarray(lanes).view(np.uint8).reshape(s.waves, rows, count)
        return table[codes].transpose(0, 2, 1)

    return get
