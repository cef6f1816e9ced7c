"""07.ptx_ex2: exp by the one instruction that a chip has for it, in inline PTX."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import EXACT, Tolerance
from gpu_utils.exercises.u07_ptx_and_amdgcn import ptx_ex2_slips as slips
from gpu_utils.exercises.u07_ptx_and_amdgcn.inline import FOUND, with_assembly
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs, Misconception

BLOCK = slips.BLOCK
TARGETS = ("sm_80", "sm_90", "sm_100")
_EX2 = re.compile(r"\bex2\.approx(\.ftz)?\.f32\b")

INFINITY = float("inf")
EDGES = (
    *(0.0, -0.0, INFINITY, -INFINITY, float("nan"), 1e-42, 88.7, 88.75, 1000.0, -1000.0),
    *(-87.25, -87.5, -90.0, -100.0, -103.0, -104.5),
)
"""Where exp of float32 ends: infinity from 88.73 on, subnormal below -87.34, zero below -103.98."""


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    if isinstance(case, Example):
        return case.inputs
    return {"x": (2 * torch.rand(case["n"], generator=generator) - 1) * case["size"]}


def reference(x: Tensor) -> dict[str, Any]:
    """exp in float64, as float32 would show it: too large is infinity."""
    return {"y": x.double().exp().to(torch.float32).double(), FOUND: "ex2.approx.f32"}


def _says(blocks: Sequence[str], around: str) -> str:
    if not any(map(_EX2.search, blocks)):
        return "no ex2.approx.f32 in inline assembly"
    return "ex2.approx.f32" + (", and another one that Triton wrote" if _EX2.search(around) else "")


def _tolerance(case: Case, inputs: Inputs) -> dict[str, Tolerance]:
    """Two errors: of the exponent that ex2 gets, and of ex2.

    The exponent t = x log2(e) is a float32 constant times x, rounded: both are off by 2^-24 of it at most, so t by
    |t| 2^-23, and 2^t by ln(2) |t| 2^-23 = |x| 2^-23 of itself. The PTX ISA promises for ex2.approx.f32 two ulps from
    the correctly rounded result (its section on ex2). An ulp is 2^-23 of a number at most, so that is 2^-22, and 2^-24
    for the rounding. Results below 2^-126 may be flushed to zero: .ftz does so, without it they stay.
    """
    finite = inputs["x"][inputs["x"].isfinite() & (inputs["x"].abs() < 104)]
    largest = float(finite.abs().max()) if len(finite) else 0.0
    why = "x log2(e) in float32, then 2 ulps of ex2; subnormal results may be zero"
    return {"y": Tolerance(largest * 2.0**-23 + 2.0**-22 + 2.0**-24, 2.0**-126, why), FOUND: EXACT}


def _fresh(rng: random.Random) -> Case:
    return Case("a length nobody chose", n=rng.randrange(1, 4 * BLOCK), size=rng.choice([1.0, 10.0, 80.0]))


EXERCISE = Exercise(
    id="07.ptx_ex2",
    title="exp, by the instruction that the chip has",
    parameters=("x",),
    kind="kernel",
    targets=TARGETS,
    machine_code=True,
    inputs=_inputs,
    reference=reference,
    tolerance=_tolerance,
    dtype=lambda inputs: {"y": torch.float32, FOUND: None},
    parts=("y", FOUND),
    call=with_assembly("y", _says, TARGETS),
    cases=(
        Case("whole blocks, numbers near 0", n=2 * BLOCK, size=4.0),
        Case("a tail", n=BLOCK + 77, size=4.0),
        Example("the example of the statement", x=lambda: torch.tensor([0.0, 1.0, -1.0, 2.0])),
        Example("where float32 ends: infinities, NaN, results that are subnormal", x=lambda: torch.tensor(EDGES)),
        Case("one number", n=1, size=1.0),
    ),
    fresh=_fresh,
    trivial={
        "zeros": lambda x: torch.zeros_like(x),
        "ones": lambda x: torch.ones_like(x),
        "nan": lambda x: torch.full_like(x, float("nan")),
        "the input": lambda x: x,
    },
    misconceptions=(
        Misconception(
            "no_factor", slips.no_factor, "This is 2^x. ex2 raises 2, and e is 2 to the power of which number?"
        ),
        Misconception(
            "times_ln2",
            slips.times_ln2,
            "The factor is the wrong way round: x ln(2) turns a power of 2 into one of e. Here a power of e becomes "
            "one of 2.",
        ),
        Misconception(
            "short_factor",
            slips.short_factor,
            "The factor has five digits. float32 holds seven and a bit: write log2(e) with ten or so.",
        ),
        Misconception(
            "factor_after",
            slips.factor_after,
            "The factor came after ex2. It belongs into the exponent: e^x = (2^log2(e))^x.",
        ),
        Misconception(
            "in_float16",
            slips.in_float16,
            "Only 10 or so bits of the result are right, as in float16. Which type stands at the end of the mnemonic?",
        ),
        Misconception(
            "other_direction",
            slips.other_direction,
            "ex2 wrote into its input. The destination comes first in PTX: $0 is the result, $1 the first argument.",
        ),
        Misconception(
            "operands_of_cuda",
            slips.operands_of_cuda,
            "ptxas says that an operand does not fit. Triton hands the text to LLVM, which writes $0 and $1; %0 and %1 "
            "are those of asm() in CUDA C++. And each has the register of its constraint: f is float32, as .f32 wants.",
        ),
        Misconception(
            "no_semicolon", slips.no_semicolon, "ptxas stumbles over what follows: an instruction of PTX ends with ;"
        ),
        Misconception(
            "no_approx",
            slips.no_approx,
            "PTX has no ex2.f32: ex2 exists as .approx alone, and its name says so.",
        ),
        Misconception(
            "no_mask", slips.no_mask, "The last block goes past the end of y: its store needs the mask, too."
        ),
        Misconception(
            "without_assembly",
            slips.without_assembly,
            "The numbers are right: tl.exp becomes a product and ex2.approx.f32 as well. Write them yourself this "
            "time, by tl.inline_asm_elementwise.",
        ),
        Misconception(
            "beside_tl_exp",
            slips.beside_tl_exp,
            "The numbers are right, and tl.exp made them: the result of your text is not stored.",
        ),
        Misconception("with_torch", lambda x: x.exp(), "The numbers are right, but torch made them. Launch a kernel."),
    ),
    hints=(
        "A chip has one instruction for powers, and its base is 2. Which number must x be multiplied by, so that 2 to "
        "that power is e to the power x?",
        'Multiply by log2(e) = 1.4426950408889634 in Triton. Then tl.inline_asm_elementwise(text, "=f,f", [product], '
        "dtype=tl.float32, is_pure=True, pack=1), where $0 is the result and $1 the product.",
        'The text is "ex2.approx.ftz.f32 $0, $1;" - the destination first, and a semicolon at its end.',
    ),
    explanation=(
        "ex2.approx.f32 is one instruction of the special function unit. e^x = 2^(x log2 e), so a product comes first, "
        "and it is where accuracy is lost: t = x log2(e) is rounded to 24 bits, and what is lost of a large t is an "
        "absolute error of the exponent, so a relative one of the result, |x| times 2^-23. tl.exp does just the same, "
        "which a listing shows. Flash attention takes the product out of its inner loop: log2(e) goes into the scale "
        "of the scores, and each weight is a bare ex2. With .ftz results below 2^-126 become 0; without it ptxas "
        "scales the argument around the instruction, which costs a few instructions more."
    ),
)
