"""Every entry of the arithmetic tables against exact arithmetic, on edge values, from PTX text to result."""

from __future__ import annotations

import random
from collections import defaultdict

import numpy as np
import ptx_softfloat as sf
import pytest
from ptx_harness import run_lines
from ptx_reference import BITS, FLOATS, Nan, Near, as_float, reference

from gpu_utils.virtual.ptx.decode import ALU
from gpu_utils.virtual.ptx.floating import APPROXIMATE, THREE

STEMS = sorted({opcode.split(".")[0] for opcode in ALU})
LIMIT = 120
TOGETHER = 12
"""Opcodes of one kernel: laying out and decoding a kernel for each takes longer than running it."""


def integer_edges(bits: int) -> list[int]:
    top, full = 1 << (bits - 1), (1 << bits) - 1
    edges = [
        0,
        1,
        2,
        3,
        5,
        7,
        top - 1,
        top,
        top + 1,
        full - 1,
        full,
        full // 3,
        full // 3 * 2,
        31 & full,
        32 & full,
        33 & full,
    ]
    draw = random.Random(bits)
    return sorted({*edges, 0x7F, 0x80, 0xFF, *(draw.getrandbits(bits) for _ in range(6))})


def float_edges(kind: str) -> list[int]:
    exponent_bits, mantissa_bits = sf.FORMATS[kind]
    one = ((1 << (exponent_bits - 1)) - 1) << mantissa_bits
    inf = ((1 << exponent_bits) - 1) << mantissa_bits
    unit = 1 << mantissa_bits
    positive = [
        0,
        1,
        2,
        unit - 1,
        unit,
        unit + 1,
        one - 1,
        one,
        one + 1,
        one + unit // 2,
        one + unit,
        one - unit,
        inf - 1,
    ]
    positive += [inf, inf | unit >> 1, one + unit + unit // 4, one + unit + unit // 2 + unit // 4]
    positive += [b for b in (sf.pack(sf.Fraction(n) + sf.Fraction(f, 2), kind) for n, f in
                 ((127, 1), (128, 0), (255, 1), (32767, 1), (65504, 0), (65535, 1), (2**31, 0), (2**32, 0),
                 (2**53 + 1, 0), (2**63, 0), (2**64, 0)))
                 if b < inf]  # fmt: skip
    draw = random.Random(kind)
    positive += [draw.randrange(inf) for _ in range(4)] + [one + draw.randrange(unit) for _ in range(3)]
    sign = 1 << (exponent_bits + mantissa_bits)
    return sorted({*positive, *(p | sign for p in positive)})


def edges(kind: str) -> list[int]:
    if kind in ("pred", "cc"):
        return [0, 1]
    if kind.endswith("x2"):
        half = edges(kind[:-2])
        draw = random.Random(1)
        return [draw.choice(half) | draw.choice(half) << width(kind) // 2 for _ in range(60)]
    return float_edges(kind) if kind in FLOATS else integer_edges(BITS[kind])


def samples(opcode: str, kinds: tuple[str, ...]) -> list[tuple[int, ...]]:
    """Tuples of edge values: all of them for one input, for more a draw that leaves no value of any input out."""
    choices = [edges(kind) for kind in kinds]
    if opcode.startswith("lop3"):
        choices[3] = [0x96]
    draw = random.Random(opcode)
    if len(choices) == 1:
        return [(v,) for v in choices[0]]
    count = LIMIT // 4 if opcode.startswith("set") else LIMIT  # hundreds of spellings of few comparisons
    rows = [tuple(draw.choice(c) for c in choices) for _ in range(count)]
    rows += [
        tuple(v if i == k else draw.choice(c) for i, c in enumerate(choices))
        for k in range(len(choices))
        for v in choices[k]
    ]
    if opcode.split(".")[0] in ("shl", "shr", "shf"):
        rows += [(*row[:-1], n) for row in rows[:20] for n in (0, 1, 15, 16, 31, 32, 33, 63, 64, 65)]
    return rows


def width(kind: str) -> int:
    if kind.endswith("x2"):
        return 2 * BITS[kind[:-2]]
    return {"pred": 8, "cc": 8, "b8": 8}.get(kind, BITS.get(kind, 32))


def execute(opcodes: list[str], rows: list[tuple[int, ...]]) -> list[list[tuple[int, ...]]]:
    """What each of these opcodes, whose operands are alike, makes of each row: one kernel runs them all."""
    form = ALU[opcodes[0]]
    inputs = [np.array([row[i] for row in rows], f"u{width(kind) // 8}") for i, kind in enumerate(form.ins)]
    texts = [lines_of(opcode, number * len(form.outs)) for number, opcode in enumerate(opcodes)]
    results = run_lines("\n".join(texts), inputs, [width(kind) for kind in form.outs] * len(opcodes))
    tuples = [
        list(zip(*(result.tolist() for result in outputs), strict=True)) for outputs in batched(results, len(form.outs))
    ]
    return [each[: len(rows)] for each in tuples]


def batched(values: list, size: int) -> list[list]:
    return [values[i : i + size] for i in range(0, len(values), size)]


def lines_of(opcode: str, first: int) -> str:
    """A block of PTX that applies one opcode to the inputs and leaves what comes out in %out<first> and after."""
    form = ALU[opcode]
    before, operands, after, outs = [], [], [], []
    for i, kind in enumerate(form.ins):
        if kind == "pred":
            before.append(f".reg .pred %pi{i}; setp.ne.b16 %pi{i}, %in{i}, 0;")
            operands.append(f"%pi{i}")
        elif kind == "cc":  # all ones plus the bit sets the carry; 0 minus the bit sets the borrow
            sub = opcode.startswith("sub")
            before.append(f".reg .b32 %cw, %cs; cvt.u32.u16 %cw, %in{i};"
                          + ("sub.cc.u32 %cs, 0, %cw;" if sub else "add.cc.u32 %cs, %cw, -1;"))  # fmt: skip
        elif opcode.startswith("lop3") and i == 3:
            operands.append("0x96")
        else:
            operands.append(f"%in{i}")
    for i, kind in enumerate(form.outs, first):
        if kind == "pred":
            before.append(f".reg .pred %po{i};")
            outs.append(f"%po{i}")
            after.append(f"selp.b16 %out{i}, 1, 0, %po{i};")
        elif kind == "cc":
            op = "subc" if opcode.startswith("sub") else "addc"
            after.append(f".reg .b32 %co; {op}.u32 %co, 0, 0; and.b32 %co, %co, 1; cvt.u16.u32 %out{i}, %co;")
        else:
            outs.append(f"%out{i}")
    target = "|".join(outs) if opcode.endswith("|") else ", ".join(outs)
    line = f"{opcode.rstrip('|' + THREE)} {', '.join([target, *operands])};"
    return "\n".join(["{", *before, line, *after, "}"])


def agrees(got: int, want, kind: str) -> bool:
    if want is None:
        return True
    if isinstance(want, tuple) and want[0] == "pair":
        half = kind[:-2] if kind.endswith("x2") else "b16"
        bits = width(half)
        return agrees(got & (1 << bits) - 1, want[1], half) and agrees(got >> bits, want[2], half)
    if isinstance(want, Nan):
        return sf.is_nan(got, want.kind)
    if isinstance(want, Near):
        found = as_float(got, want.kind)
        if abs(want.value) == float("inf"):
            return found == want.value
        if abs(want.value) >= {"f32": 3.4e38, "f16": 65500, "bf16": 3.38e38, "f64": 1.79e308}[want.kind] and abs(
            found
        ) == float("inf"):
            return (found > 0) == (want.value > 0)
        return abs(found - want.value) <= want.bound * (1 if want.absolute else abs(want.value))
    return got == int(want) % (1 << width(kind))


def test_every_arithmetic_entry_has_a_reference():
    missing = [opcode for opcode in ALU if reference(opcode, APPROXIMATE) is None]
    assert not missing, missing


def test_every_stated_bound_belongs_to_an_entry():
    assert set(APPROXIMATE) <= set(ALU)


@pytest.mark.parametrize("stem", STEMS)
def test_arithmetic_agrees_with_exact_arithmetic(stem):
    wrong = []
    alike = defaultdict(list)
    for opcode, form in ALU.items():
        if opcode.split(".")[0] == stem:
            alike[form.ins, form.outs].append(opcode)
    for (ins, outs), opcodes in alike.items():
        for some in batched(opcodes, TOGETHER):
            rows = samples(some[0], ins)
            for opcode, results in zip(some, execute(some, rows), strict=True):
                expected = reference(opcode, APPROXIMATE)
                for row, got in zip(rows, results, strict=True):
                    want = expected(*row)
                    for value, goal, kind in zip(got, want, outs, strict=True):
                        if not agrees(value, goal, kind):
                            wrong.append(f"{opcode} {[hex(v) for v in row]}: {value:#x}, expected {goal}")
                            break
    assert not wrong, f"{len(wrong)} wrong: " + "\n".join(wrong[:12])
