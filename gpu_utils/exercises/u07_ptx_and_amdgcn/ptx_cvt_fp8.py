"""07.ptx_cvt_fp8: two float32 become two bytes of E4M3 in one instruction of PTX."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import EXACT
from gpu_utils.exercises.u07_ptx_and_amdgcn import ptx_cvt_fp8_slips as slips
from gpu_utils.exercises.u07_ptx_and_amdgcn.inline import FOUND, with_assembly
from gpu_utils.formats import FORMATS
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs, Misconception

BLOCK = slips.BLOCK
TARGETS = ("sm_89", "sm_90", "sm_100", "sm_120")
FORMAT = FORMATS["e4m3fn"]
TWO = "cvt to e4m3x2, of two numbers"

_CVT = re.compile(
    r"\bcvt\.\S*e4m3x2\.(?:f16x2\s+[^\s,]+\s*,\s*[^\s;]+|f32\s+[^\s,]+\s*,\s*(?P<a>[^\s,]+)\s*,\s*(?P<b>[^\s;]+))\s*;"
)
_MOVE = re.compile(r"\bmov\.\w+\s+(\w+)\s*,\s*([^\s,;{}]+)\s*;")

INFINITY = float("inf")
EDGES = (
    *(0.0, -0.0, INFINITY, -INFINITY, float("nan"), 448.0, 463.0, 464.0, -465.0, 1e30, 65520.0),
    *(2.0**-9, 2.0**-10, -(2.0**-10), 1.5 * 2.0**-10, 2.0**-11, -1e-30, 1e-42, 7.5 * 2.0**-9),
)
"""The largest number is 448, and the next step would be 480; the smallest is 2^-9. An odd number of them."""


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    """Numbers of all sizes of the format; a third of them at, just below or just above the middle of two neighbours."""
    if isinstance(case, Example):
        return case.inputs
    n = case["n"]
    size = torch.exp2(19 * torch.rand(n, generator=generator, dtype=torch.float64) - 10)
    x = (size * (2 * torch.randint(2, (n,), generator=generator) - 1)).to(torch.float32)
    values = torch.tensor(sorted(value for value in FORMAT.decode(range(256)) if value == value))
    middles = ((values[1:] + values[:-1]) / 2)[torch.randint(len(values) - 1, (n,), generator=generator)]
    beside = torch.randint(-1, 2, (n,), generator=generator) * 2.0**-20
    x = torch.where(torch.arange(n) % 3 == 1, (middles * (1 + beside)).to(torch.float32), x)
    return {"x": x}


def reference(x: Tensor) -> dict[str, Any]:
    """The codes nearest to x, of ties the even one; too large is 448, NaN is 0x7F."""
    return {"codes": torch.from_numpy(FORMAT.encode(x.double().numpy())).to(torch.uint8), FOUND: TWO}


def _says(blocks: Sequence[str], around: str) -> str:
    found = [(block, match) for block in blocks for match in _CVT.finditer(block)]
    if not found:
        return "no cvt to e4m3x2 in inline assembly"
    pairs = [(_origin(match["a"], block), _origin(match["b"], block)) for block, match in found if match["a"]]
    if any(source[0] in "-+.0123456789" for pair in pairs for source in pair):
        return "cvt to e4m3x2, of a number and a constant"
    return "cvt to e4m3x2, of one number twice" if any(a == b for a, b in pairs) else TWO


def _origin(source: str, block: str) -> str:
    """What a source is a copy of: registers with names of their own are filled by mov."""
    moves = dict(_MOVE.findall(block))
    for _ in moves:
        source = moves.get(source, source)
    return source


def _fresh(rng: random.Random) -> Case:
    return Case("a length nobody chose", n=rng.randrange(1, 4 * BLOCK))


EXERCISE = Exercise(
    id="07.ptx_cvt_fp8",
    title="Two numbers to FP8 in one instruction",
    parameters=("x",),
    kind="kernel",
    targets=TARGETS,
    machine_code=True,
    inputs=_inputs,
    reference=reference,
    tolerance=lambda case, inputs: {"codes": EXACT, FOUND: EXACT},
    dtype=lambda inputs: None,
    parts=("codes", FOUND),
    call=with_assembly("codes", _says, TARGETS),
    cases=(
        Case("whole blocks; many numbers half way between two codes, or nearly", n=2 * BLOCK),
        Case("a tail of an odd length", n=BLOCK + 77),
        Example("the example of the statement", x=lambda: torch.tensor([1.0, 0.3, 500.0, -0.0])),
        Example("where E4M3 ends, on either side", x=lambda: torch.tensor(EDGES)),
        Case("one number", n=1),
    ),
    fresh=_fresh,
    trivial={
        "zeros": lambda x: torch.zeros(x.numel(), dtype=torch.uint8, device=x.device),
        "ones": lambda x: torch.ones(x.numel(), dtype=torch.uint8, device=x.device),
        "nan": lambda x: torch.full((x.numel(),), 0x7F, dtype=torch.uint8, device=x.device),
        "the input": lambda x: x,
    },
    misconceptions=(
        Misconception(
            "sources_turned",
            slips.sources_turned,
            "Neighbours have changed places. The first source of cvt goes into the upper byte, and memory begins with "
            "the lower one.",
        ),
        Misconception(
            "in_e5m2", slips.in_e5m2, "These are codes of E5M2: five bits of exponent. The type is in the mnemonic."
        ),
        Misconception(
            "through_float16",
            slips.through_float16,
            "Most codes are right; some of those half way between two are not. The number was rounded to float16 first "
            "and to E4M3 then, and two roundings are not one.",
        ),
        Misconception(
            "clamped_first",
            slips.clamped_first,
            "NaN has become a number: minimum and maximum drop it. .satfinite does the clamping, and keeps NaN.",
        ),
        Misconception(
            "relu", slips.relu, "Negative numbers became 0: .relu is an option of cvt that nobody asked for."
        ),
        Misconception(
            "no_satfinite",
            slips.no_satfinite,
            "ptxas wants a word more: E4M3 has no infinity, so cvt to it must saturate, and the mnemonic must say so.",
        ),
        Misconception(
            "towards_zero",
            slips.towards_zero,
            "ptxas does not know this rounding for E4M3: cvt to it rounds to the nearest, .rn.",
        ),
        Misconception(
            "wide_result",
            slips.wide_result,
            "ptxas says that an operand of cvt does not fit. Its result is a register of 16 bits, its two sources hold "
            "float32: do the letters of the constraints say so, and does the text name all three, with $ and a number?",
        ),
        Misconception(
            "pack_of_one",
            slips.pack_of_one,
            "With pack=1 the text gets one number. Two neighbours at a time are pack=2.",
        ),
        Misconception(
            "pack_of_four",
            slips.pack_of_four,
            "With pack=4 the text gets four numbers, and its results fill a whole register of 32 bits: that takes two "
            "cvt and a mov. One cvt is for pack=2.",
        ),
        Misconception(
            "one_argument",
            slips.one_argument,
            "pack=2 hands the text two float32, in two registers: the constraints name one result and two arguments.",
        ),
        Misconception("signed", slips.signed, "The bits are right. The result is uint8, not int8."),
        Misconception(
            "one_twice",
            slips.one_twice,
            "The codes are right, and half of each instruction was wasted: it converted one number twice. With pack=2 "
            "the text gets two.",
        ),
        Misconception(
            "first_for_both",
            slips.first_for_both,
            "Each second code is its neighbour's: both sources of cvt are the first number. $1 and $2 are the two.",
        ),
        Misconception(
            "second_for_both",
            slips.second_for_both,
            "Each first code is its neighbour's: both sources of cvt are the second number. $1 and $2 are the two.",
        ),
        Misconception(
            "beside_zero",
            slips.beside_zero,
            "The codes are right, and half of each instruction was wasted: one of its sources is a constant. With "
            "pack=2 the text gets two numbers.",
        ),
        Misconception(
            "no_mask", slips.no_mask, "The last block goes past the end of the codes: its store needs the mask, too."
        ),
        Misconception(
            "without_assembly",
            slips.without_assembly,
            "Triton's own cast made this. On sm_89 it rounds twice, which is why one writes the instruction oneself.",
        ),
        Misconception("with_torch", slips.with_torch, "The codes are right, but torch made them. Launch a kernel."),
    ),
    hints=(
        "pack=2 hands two neighbours to one text: $1 is the first, $2 the second, and $0 holds both results. So the "
        "constraints name one result and two arguments.",
        'The result has 16 bits, "=h", the arguments are "f". dtype=tl.uint8 says what the 16 bits are cut into. The '
        "first of the two neighbours lies in the lower byte: which source of cvt is that?",
        '"cvt.rn.satfinite.e4m3x2.f32 $0, $2, $1;" with "=h,f,f", [x], dtype=tl.uint8, is_pure=True, pack=2.',
    ),
    explanation=(
        "cvt to e4m3x2 takes two numbers because a register has no fewer than 16 bits. Its first source goes into the "
        "upper byte, so that d reads like the list of sources, {a, b}; memory is little-endian, and the lower byte "
        "comes first: $2 stands before $1. With pack=2 Triton counts registers, not elements: two float32 are two "
        "registers, two uint8 are one of 16 bits. .rn.satfinite is the only form for float32: nearest, ties to even, "
        "448 for all that is too large, and NaN stays NaN. With pack=4 the text holds two cvt and a mov that joins "
        "their results into one register of 32 bits."
    ),
)
