"""Operands of AMDGCN instructions: from text to functions of the state.

A *getter* takes the state and returns an array broadcastable to (waves, lanes) in the wanted type.
A *putter* takes the state and an array and writes the active lanes. Both are made once, at decode time.

Types: u32 i32 f32 b32; u16 i16 f16 (the low half of a register, or the high half with op_sel);
u64 i64 f64 (two registers); u8 i8 only through SDWA.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from gpu_utils.chips.targets import TARGETS
from gpu_utils.errors import UnsupportedInstruction
from gpu_utils.virtual.amdgcn import state as st
from gpu_utils.virtual.amdgcn.parse import Instruction

Getter = Callable[[Any], np.ndarray]
Putter = Callable[[Any, np.ndarray], None]

DTYPES: dict[str, Any] = {
    "u32": np.uint32,
    "i32": np.int32,
    "f32": np.float32,
    "b32": np.uint32,
    "u16": np.uint16,
    "i16": np.int16,
    "f16": np.float16,
    "b16": np.uint16,
    "u64": np.uint64,
    "i64": np.int64,
    "f64": np.float64,
    "b64": np.uint64,
    "bf16": np.uint16,  # as bits
    "v2f16": np.uint32,  # two halves, as bits
    "v2bf16": np.uint32,
}
BITS = {name: np.dtype(dtype).itemsize * 8 for name, dtype in DTYPES.items()}

_NAMED = {
    "vcc": st.VCC,
    "vcc_lo": st.VCC,
    "vcc_hi": st.VCC + 1,
    "exec": st.EXEC,
    "exec_lo": st.EXEC,
    "exec_hi": st.EXEC + 1,
    "m0": st.M0,
    "null": st.NULL,
}
# Inline constants that stand for a float; 1/(2*pi) is written 0.15915494 in all widths.
_FLOATS = {"0.5", "-0.5", "1.0", "-1.0", "2.0", "-2.0", "4.0", "-4.0"}
_INV_2PI = {"bf16": 0x3E22, "f16": 0x3118, "f32": 0x3E22F983, "f64": 0x3FC45F306DC9C882}
# Before gfx940 two scalar registers hold the base of flat scratch; each lane has its own here, whatever they hold.
_ALIASES = {"flat_scratch_lo": "s102", "flat_scratch_hi": "s103", "flat_scratch": "s[102:103]"}
_REG = re.compile(r"^([vsa]|ttmp)(\d+)(?:\.([lh]))?$")
_RANGE = re.compile(r"^([vsa]|ttmp)\[(\d+)(?::(\d+))?\]$")
_BASE = {"v": 0, "a": st.AGPR, "s": st.SGPR, "ttmp": st.TTMP, "": 0}


@lru_cache(maxsize=4096)
def _register(text: str) -> tuple[str, int, int] | None:
    """(file, first, count) of the registers that an operand names; a named one has its row as "first"."""
    text = _ALIASES.get(text, text)
    if text in _NAMED:
        return "", _NAMED[text], 2 if text in ("vcc", "exec") else 1
    if match := _REG.match(text):
        return match[1], int(match[2]), 1
    if match := _RANGE.match(text):
        low = int(match[2])
        return match[1], low, int(match[3] or low) - low + 1
    return None


class Decoder:
    """What decoding one kernel needs: target facts, the constant pool, and how many registers were seen.

    Whoever asks for the row of an operand says whether it is read (`source`, a getter) or written (`result`, a putter):
    so every Op learns what it reads and writes. reads, writes, guards: rows of the instruction at hand.
    """

    def __init__(self, target: str, kernel: str, lanes: int, symbols: dict[str, int]) -> None:
        self.target, self.kernel, self.lanes, self.symbols = target, kernel, lanes, symbols
        self.limits = TARGETS[target]
        self.gfx9, self.gfx125 = self.limits.family == "gfx9", self.limits.family == "gfx125"
        self.gfx12 = self.limits.family == "gfx12" or self.gfx125
        self.constants: list[int] = []
        self._places: dict[int, int] = {}
        self.vgprs, self.agprs, self.sgprs = 1, 0, 16
        self.instruction: Instruction | None = None
        self.index = 0
        self.reads: set[int] = set()
        self.writes: set[int] = set()
        self.guards: set[int] = set()
        self.code: list[Instruction] = []
        self.fp16_overflow = 0
        self.toward_zero16 = False

    def begin(self, instruction: Instruction, index: int) -> None:
        """Turn to the next instruction, which is the `index`th of the file."""
        self.instruction, self.index = instruction, index
        self.reads, self.writes, self.guards = set(), set(), set()

    def unsupported(self, why: str = "") -> UnsupportedInstruction:
        text = self.instruction.text if self.instruction else "?"
        return UnsupportedInstruction(self.target, self.kernel, text, why)

    def constant(self, bits: int) -> int:
        """The row of a 32-bit constant."""
        bits &= 0xFFFFFFFF
        if bits not in self._places:
            self._places[bits] = st.CONSTANTS + len(self.constants)
            self.constants.append(bits)
        return self._places[bits]

    def literal(self, text: str, kind: str) -> int:
        """The row of a constant operand."""
        bits = self.bits(text, kind)
        if bits is None:
            raise self.unsupported(f"operand {text!r}")
        return self.constant(bits)

    def register(self, text: str) -> tuple[int, int] | None:
        """(row, count) of a register or a range of them; None for anything else."""
        found = _register(text)
        if found is None:
            return None
        kind, first, count = found
        if kind == "v":
            self.vgprs = max(self.vgprs, first + count)
        elif kind == "a":
            self.agprs = max(self.agprs, first + count)
        elif kind == "s":
            self.sgprs = max(self.sgprs, first + count)
        return _BASE[kind] + first, count

    def _row(self, text: str) -> int:
        found = self.register(text)
        if found is None:
            raise self.unsupported(f"{text!r} is no register")
        return found[0]

    # what an instruction reads and writes; `words`: registers of 32 bits in a row

    def source(self, text: str, words: int = 1) -> int:
        """The first row of a register operand that is read; an error for anything else."""
        return self.reads_row(self._row(text), words)

    def reads_row(self, row: int, words: int = 1) -> int:
        """Note a row that is read, also one that the text does not name; constants are none."""
        self.reads.update(range(row, row + words) if row < st.CONSTANTS and row != st.NULL else ())
        return row

    def result(self, text: str, words: int = 1, keeps: bool = False, masked: bool = True) -> int:
        """The first row of a register that is written. keeps: bits of it stay. masked: EXEC says in which lanes."""
        row = self._row(text)
        if keeps:
            self.reads_row(row, words)
        if masked and row < st.SGPR:
            self.masked()
        return self.writes_row(row, words)

    def writes_row(self, row: int, words: int = 1) -> int:
        """Note a row that is written, also one that the text does not name."""
        self.writes.update(range(row, row + words) if row != st.NULL else ())
        return row

    def masked(self) -> None:
        """Note that EXEC decides which lanes take part."""
        self.guards.update(range(st.EXEC, st.EXEC + self.mask_words))

    @property
    def mask_words(self) -> int:
        """Scalar registers of a lane mask."""
        return self.lanes // 32

    def mask_source(self, text: str) -> int:
        """The row of a lane mask that is read."""
        return self.source(text, self.mask_words)

    def mask_result(self, text: str) -> int:
        """The row of a lane mask that is written: only bits of active lanes are set."""
        self.masked()
        return self.result(text, self.mask_words)

    def bits(self, text: str, kind: str) -> int | None:
        """The bit pattern of a literal or inline constant for an operand of type `kind`; None for a register.

        Of two halves a float constant is the low one, and the high one is 0 (LLVM, AMDGPUBaseInfo.cpp,
        getInlineEncodingV216).
        """
        text = text.strip()
        width = BITS[kind]
        if text.startswith("lit("):
            text = text[4:-1]
        if re.fullmatch(r"-?(0x[0-9a-fA-F]+|\d+)", text):
            value = int(text, 0)
            if text.lstrip("-").startswith("0x"):
                # a literal: 32 bits; a float64 takes it as its high half
                return value << 32 if kind == "f64" and value < 1 << 32 else value & ((1 << width) - 1)
            return value & ((1 << width) - 1)
        if text in ("src_scc", "scc"):
            return None
        try:
            number = float(text)
        except ValueError:
            return None
        is_float = kind[0] == "f" or "f16" in kind
        shape = kind.removeprefix("v2") if is_float else {16: "f16", 32: "f32", 64: "f64"}[width]
        if text.lstrip("-").startswith("0.1591549"):
            return _INV_2PI[shape] | ((1 << (int(shape[-2:]) - 1)) if text.startswith("-") else 0)
        if text in _FLOATS and kind in ("u64", "i64", "b64"):
            shape = "f64"
        if shape == "bf16":
            return int.from_bytes(struct.pack("<f", number)[2:], "little")
        code = {"f16": "<e", "f32": "<f", "f64": "<d"}[shape]
        return int.from_bytes(struct.pack(code, number), "little")

    # getters

    def plain_row(self, text: str, kind: str) -> int | None:
        """The row to index `state.U/I/F` with, when the operand is 32 bits wide and has no modifier."""
        if BITS.get(kind) != 32:
            return None
        if self.register(text):
            return self.source(text)
        symbol = self.symbol(text)
        if symbol is not None:
            return self.constant(symbol)
        bits = self.bits(text, kind)
        return None if bits is None else self.constant(bits)

    def symbol(self, text: str) -> int | None:
        """`name@rel32@lo+4`: half of the absolute address, see s_getpc_b64 in salu.py."""
        match = re.match(r"^([\w.$]+)@(?:(rel32|gotpcrel32|abs32)@(lo|hi)|(?:rel64))(?:\+(\d+))?$", text)
        if not match:
            return None
        plus = int(match[4] or 0) - (0 if match[2] == "abs32" else self._since_getpc())
        name = match[1] + ("@got" if "gotpcrel" in text else "")
        if name not in self.symbols:
            raise self.unsupported(f"nothing defines the symbol {match[1]}")
        address = self.symbols[name] + plus
        if match[3] is None:  # gfx1250 has literals of 64 bits
            return address
        return address & 0xFFFFFFFF if match[3] == "lo" else address >> 32

    def _since_getpc(self) -> int:
        """Bytes from what s_getpc_b64 gave to the literal of this instruction: an addend counts them as well."""
        distance = 4
        for before in reversed(self.code[: self.index]):
            if before.mnemonic in ("s_getpc_b64", "s_get_pc_i64"):
                break
            distance += 8 if "@" in before.text or "&4294967295" in before.text or ">>32" in before.text else 4
        return distance

    def getter(
        self,
        text: str,
        kind: str,
        high: bool = False,
        select: str = "",
        sext: bool = False,
        move: Any = None,
        widen: Callable[[np.ndarray], np.ndarray] | None = None,
    ) -> Getter:
        """A getter for an operand with its `-`, `|x|` and sext() modifiers.

        high: take the high half (op_sel). select: an SDWA source selector such as WORD_1.
        move: a function (state, register) -> register that moves lanes (DPP). widen: what turns the bits into the
        numbers that the modifiers are for, where `kind` does not. `-` and `|x|` of u16 are for a float16 or bfloat16
        that an instruction takes as bits: they change the highest bit. No other integer has them.
        """
        text = text.strip()
        negate = absolute = False
        if text.startswith("-") and not re.fullmatch(r"-[\d.][\dxa-fA-F.]*", text):
            negate, text = True, text[1:]
        if text.startswith("neg("):
            negate, text = True, text[4:-1]
        if text.startswith(("|", "abs(")):
            absolute, text = True, text.strip("|") if text[0] == "|" else text[4:-1]
        if text.startswith("sext("):
            sext, text = True, text[5:-1]
        if kind[-2:] == "16" and text.endswith((".l", ".h")):
            high, text = text.endswith(".h"), text[:-2]
        get = self._moved(text, kind, move) if move else self._base_getter(text, kind, high, select, sext)
        if widen:
            narrow, wide = get, widen
            get = lambda s: wide(narrow(s))  # noqa: E731
        if not negate and not absolute:
            return get
        floats = kind[0] == "f" or widen is not None
        if not floats and kind != "u16":
            raise self.unsupported(f"the sign of an operand of {kind}")
        if absolute:
            inner_abs, magnitude = get, np.abs if floats else (lambda bits: bits & np.uint16(0x7FFF))
            get = lambda s: magnitude(inner_abs(s))  # noqa: E731
        if negate:
            inner, negative = get, np.negative if floats else (lambda bits: bits ^ np.uint16(0x8000))
            get = lambda s: negative(inner(s))  # noqa: E731
        return get

    def _moved(self, text: str, kind: str, move: Any) -> Getter:
        row, dtype = self.source(text), DTYPES[kind]
        if BITS[kind] == 64:
            raise self.unsupported("DPP on two registers")
        if BITS[kind] == 16:
            return lambda s: move(s, s.U[row]).view(dtype)[:, ::2]
        return lambda s: move(s, s.U[row]).view(dtype)

    def _base_getter(self, text: str, kind: str, high: bool, select: str, sext: bool) -> Getter:
        dtype, width = DTYPES[kind], BITS[kind]
        if text in ("src_scc", "scc"):
            self.reads_row(st.SCC)
            return lambda s: s.scc.astype(dtype)
        if select and select != "DWORD":
            return _selected(
                self.source(text) if self.register(text) else self.literal(text, "u32"), select, sext, kind
            )
        found = self.register(text)
        if found is None:
            symbol = self.symbol(text)
            bits = symbol if symbol is not None else self.bits(text, kind)
            if bits is None:
                raise self.unsupported(f"operand {text!r}")
            raw = bits.to_bytes(8, "little")[: width // 8]
            value = np.frombuffer(raw, DTYPES[kind]).reshape(1, 1).copy()
            return lambda s: value
        row = self.source(text, max(1, width // 32))
        if width == 64:
            if kind in ("u64", "b64"):
                return lambda s: s.pair(row)
            return lambda s: s.pair(row).view(dtype)
        if width == 16:
            start = 1 if high else 0
            if row >= st.SGPR:
                shift = np.uint32(16 * start)
                return lambda s: (s.U[row] >> shift).astype(np.uint16).view(dtype)
            return lambda s: s.U[row].view(dtype)[:, start::2]
        if kind == "f32":
            return lambda s: s.F[row]
        if kind == "i32":
            return lambda s: s.I[row]
        return lambda s: s.U[row]

    # putters

    def putter(self, text: str, kind: str, high: bool = False, keep_half: bool = False) -> Putter:
        """A putter for a vector destination.

        16-bit results clear the other half on gfx9, and keep it on later chips; high: write the high half (op_sel).
        """
        if kind[-2:] == "16" and text.endswith((".l", ".h")):
            high, keep_half, text = text.endswith(".h"), True, text[:-2]
        width = BITS[kind]
        row = self.result(text, max(1, width // 32), keeps=width == 16 and (high or keep_half or not self.gfx9))
        if width == 64:
            return lambda s, value: s.put_pair(row, value.view(np.uint64))
        if width == 32:
            return lambda s, value: s.put(row, value.view(np.uint32))
        if high:
            return lambda s, value: s.put(
                row, (s.U[row] & np.uint32(0xFFFF)) | value.view(np.uint16).astype(np.uint32) << np.uint32(16)
            )
        if keep_half or not self.gfx9:
            return lambda s, value: s.put(row, (s.U[row] & np.uint32(0xFFFF0000)) | value.view(np.uint16))
        return lambda s, value: s.put(row, value.view(np.uint16).astype(np.uint32))


_SELECT = {
    "BYTE_0": (0, 8),
    "BYTE_1": (8, 8),
    "BYTE_2": (16, 8),
    "BYTE_3": (24, 8),
    "WORD_0": (0, 16),
    "WORD_1": (16, 16),
}


def _selected(row: int, select: str, sext: bool, kind: str) -> Getter:
    """SDWA: a byte or word of a register, extended with zeros or its sign to the width of the operand."""
    shift, size = _SELECT[select]
    left, right = 32 - shift - size, 32 - size
    dtype = DTYPES[kind]

    def get(s: Any) -> np.ndarray:
        if sext:
            value = (s.I[row] << np.int32(left)) >> np.int32(right)
            value = value.view(np.uint32)
        else:
            value = (s.U[row] << np.uint32(left)) >> np.uint32(right)
        if BITS[kind] == 16:
            return value.astype(np.uint16).view(dtype)
        return value.view(dtype)

    return get


def sdwa_putter(decoder: Decoder, text: str, kind: str, select: str, unused: str) -> Putter:
    """SDWA: put the low bits of the result into a byte or word of the destination."""
    row = decoder.result(text, keeps=select != "DWORD" and unused == "UNUSED_PRESERVE")
    if select == "DWORD":
        return lambda s, value: s.put(row, _widen(value))
    shift, size = _SELECT[select]
    ones = np.uint32((1 << size) - 1)

    def put(s: Any, value: np.ndarray) -> None:
        part = (_widen(value) & ones) << np.uint32(shift)
        if unused == "UNUSED_PRESERVE":
            part = part | (s.U[row] & ~np.uint32(int(ones) << shift))
        elif unused == "UNUSED_SEXT":
            part = ((part << np.uint32(32 - shift - size)).view(np.int32) >> np.int32(32 - shift - size)).view(
                np.uint32
            )
        s.put(row, part)

    return put


def _widen(value: np.ndarray) -> np.ndarray:
    if value.dtype.itemsize == 2:
        return value.view(np.uint16).astype(np.uint32)
    return value.view(np.uint32)
