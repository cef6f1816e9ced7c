"""04.gelu: GPT-2's activation, forward and backward in one kernel each, with nothing kept but x."""

from __future__ import annotations

import math
import random

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import Tolerance, tolerance
from gpu_utils.exercises.gradient import forward_and_backward
from gpu_utils.exercises.u04_triton_reductions import gelu_slips as slips
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Limit, Misconception

_TYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
MOST = 16_384
"""Elements of a program, at most."""

_OPERATIONS = 8
"""Roundings that follow each other on the way to y or dx, each of a number as large as x * dy."""


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    rows, cols, dtype, dy = case["rows"], case["cols"], _TYPES[case["dtype"]], case["dy"]
    x = 2 * torch.randn(rows, cols, generator=generator)
    if case.get("large"):
        x *= 50
    if dy == "expanded":
        given = (0.5 + torch.rand(1, 1, generator=generator)).to(dtype).expand(rows, cols)
    elif dy == "transposed":
        given = (0.5 + torch.rand(cols, rows, generator=generator)).to(dtype).T
    else:
        given = torch.randn(rows, cols, generator=generator).to(dtype)
    return {"x": x.to(dtype), "dy": given}


def gelu_reference(x: Tensor, dy: Tensor) -> dict[str, Tensor]:
    """y = x/2 (1 + tanh u) with u = sqrt(2/pi) (x + 0.044715 x^3), and dy times its derivative, in float64."""
    x64, root = x.double(), math.sqrt(2 / math.pi)
    t = torch.tanh(root * (x64 + 0.044715 * x64**3))
    slope = 0.5 * (1 + t) + 0.5 * x64 * (1 - t * t) * root * (1 + 3 * 0.044715 * x64**2)
    return {"y": 0.5 * x64 * (1 + t), "dx": dy.double() * slope}


def _tolerance(case: Case, inputs: Inputs) -> Tolerance:
    # 1 + tanh is near 0 where x is far below it: an error of the size of a rounding of 1, times x and dy
    largest = float(inputs["x"].abs().max()) * max(1.0, float(inputs["dy"].abs().max()))
    return tolerance(inputs["x"].dtype, k=_OPERATIONS, magnitude=largest)


def _bytes(case: Case, tensors: int) -> float:
    return 1.05 * tensors * case["rows"] * case["cols"] * _TYPES[case["dtype"]].itemsize + 1024


def _fresh(rng: random.Random) -> Case:
    shape = {"rows": rng.randrange(3, 60), "cols": 2 * rng.randrange(20, 60) + 1}
    dtype, dy = rng.choice((("float32", "transposed"), ("float16", "contiguous"), ("bfloat16", "expanded")))
    return Case("a shape nobody chose", **shape, dtype=dtype, dy=dy)


EXERCISE = Exercise(
    id="04.gelu",
    title="GELU, forward and backward",
    parameters=("x",),
    kind="kernel",
    inputs=_inputs,
    reference=gelu_reference,
    tolerance=_tolerance,
    call=forward_and_backward("x"),
    cases=(
        Case("dy is a transpose: its rows lie side by side", rows=237, cols=191, dtype="float32", dy="transposed"),
        Case("two bytes an element", rows=53, cols=79, dtype="float16", dy="contiguous"),
        Case("dy is one number, expanded, as sum() gives it", rows=29, cols=67, dtype="bfloat16", dy="expanded"),
        Case(
            "large x, where e^2u has no float32; one element more than 1024",
            rows=25,
            cols=41,
            dtype="float32",
            dy="transposed",
            large=1,
        ),
        Case("three elements", rows=1, cols=3, dtype="float16", dy="contiguous"),
    ),
    fresh=_fresh,
    trivial={
        "zeros": lambda x: x * 0.0,
        "ones": lambda x: x * 0.0 + 1.0,
        "nan": lambda x: x * math.nan,
        "x": lambda x: x * 1.0,
    },
    limits=(
        Limit(
            "launches",
            "One launch for the forward pass, one for the backward pass: gelu_kernel and gelu_backward_kernel.",
            at_least=lambda case: 1,
            at_most=lambda case: 2,
        ),
        Limit(
            "blocks",
            "Most of these programs find nothing to do: a program takes BLOCK elements. Count blocks, not elements.",
            at_most=lambda case: max(4096.0, case["rows"] * case["cols"] / 16),
        ),
        Limit(
            "blocks",
            "Too few programs. A program runs on one SM or CU, so one program keeps one of them busy and leaves the "
            f"others idle: start one for each {MOST:,} elements at least, in both launches.",
            at_least=lambda case: 2 * (case["rows"] * case["cols"] // MOST),
        ),
        Limit(
            "global_load_bytes",
            "Forward must read x once, backward x and dy once each. What else is read? Or has a program more lanes "
            "than elements (BLOCK below 256), so that several of them load the same one?",
            at_most=lambda case: _bytes(case, 3),
        ),
        Limit(
            "global_store_bytes",
            "Forward must write y, backward dx, in the dtype of x, and nothing else: what backward needs, it can work "
            "out from x again.",
            at_most=lambda case: _bytes(case, 2),
        ),
    ),
    torch_may=(),
    misconceptions=(
        Misconception(
            "the_exact_gelu",
            slips.answer("erf"),
            "y is that of the GELU with erf. GPT-2's is the approximation with tanh; they differ by up to 0.0005.",
        ),
        Misconception(
            "the_quick_gelu",
            slips.answer("quick"),
            "y is x sigmoid(1.702 x), the quick GELU, which other models have. It is off by up to 0.02.",
        ),
        Misconception(
            "a_decimal_slipped",
            slips.answer("decimal"),
            "y bends too early: look at the constant in front of x^3, digit by digit.",
        ),
        Misconception(
            "no_root",
            slips.answer("no root"),
            "y rises too slowly around 0: the factor in front is the square root of 2/pi.",
        ),
        Misconception(
            "square_for_cube",
            slips.answer("square"),
            "y is right where x is small, and for negative x it grows instead of vanishing: x^3 keeps the sign of x, "
            "x^2 does not.",
        ),
        Misconception(
            "sigmoid_of_u",
            slips.answer("sigmoid of u"),
            "tanh u is 2 sigmoid(2u) - 1. There is a 2 inside, too.",
        ),
        Misconception(
            "no_half",
            slips.answer("no half"),
            "y is twice what it should be: 1 + tanh goes from 0 to 2.",
        ),
        Misconception(
            "no_x",
            slips.answer("no x"),
            "y stays between 0 and 1: that is the gate alone. GELU is x times its gate.",
        ),
        Misconception(
            "overflows",
            slips.answer("overflow", "overflow"),
            "Where x is large there is NaN: tanh from e^2u is infinity over infinity once e^2u leaves float32. Use a "
            "form in which a large exponential stands below the line only, as in 1 / (1 + e^-v).",
        ),
        Misconception(
            "forward_overflows",
            slips.answer("overflow", ""),
            "dx is right everywhere, and y is NaN where x is large: the forward kernel has a tanh that divides "
            "infinity by infinity. Use the form of the backward kernel.",
        ),
        Misconception(
            "backward_overflows",
            slips.answer("", "overflow"),
            "y is right everywhere, and dx is NaN where x is large: the backward kernel still has a tanh that divides "
            "infinity by infinity.",
        ),
        Misconception(
            "arithmetic_in_the_type_of_x",
            slips.answer("narrow"),
            "It fails only where elements have two bytes: x^3 is worked out in 16 bits, and each step is rounded. "
            "Convert what you load to float32, and let the store convert back.",
        ),
        Misconception(
            "dy_taken_as_contiguous",
            slips.answer("", "flat dy"),
            "dx is right only where dy is contiguous. autograd hands over what it has: an expanded number (strides 0) "
            "or a transpose. Find the elements of dy by its own strides.",
        ),
        Misconception(
            "column_stride_forgotten",
            slips.answer("", "rows of dy"),
            "Rows of dy are found by their stride, and the elements of a row are taken to be neighbours. In a "
            "transpose, and in an expanded number, they are not.",
        ),
        Misconception(
            "makes_dy_contiguous",
            slips.answer(before=lambda dy: dy.contiguous()),
            "dy.contiguous() writes dy out and reads it again before your kernel does. Four numbers, a shape and two "
            "strides, save that.",
        ),
        Misconception(
            "no_dy",
            slips.answer("", "no dy"),
            "dx is the derivative alone. By the chain rule it is dy times the derivative.",
        ),
        Misconception(
            "adds_dy",
            slips.answer("", "adds dy"),
            "dy is added to the derivative. The chain rule multiplies.",
        ),
        Misconception(
            "constant_gate",
            slips.answer("", "constant gate"),
            "dx is dy times the gate, as if the gate did not depend on x. It is a product of two functions of x, and "
            "so its derivative has two terms.",
        ),
        Misconception(
            "only_the_gate",
            slips.answer("", "only the gate"),
            "One of the two terms is missing: x times the derivative of the gate is there, the gate itself is not.",
        ),
        Misconception(
            "no_chain",
            slips.answer("", "no chain"),
            "The derivative of tanh u by x is (1 - tanh^2 u) times du/dx. The last factor is missing.",
        ),
        Misconception(
            "no_two",
            slips.answer("", "no two"),
            "dx is off in the term with the derivative of the gate. The gate is sigmoid(v) with v = 2u, so the chain "
            "rule brings dv/dx = 2 du/dx.",
        ),
        Misconception(
            "no_three",
            slips.answer("", "no three"),
            "du/dx is not right: the derivative of x^3 is 3 x^2.",
        ),
        Misconception(
            "tanh_not_squared",
            slips.answer("", "tanh not squared"),
            "The derivative of tanh is 1 - tanh^2. Without the square it is 2 where it should be 0.",
        ),
        Misconception(
            "keeps_tanh",
            slips.answer("saves", "saves", keeps="tanh"),
            "The numbers are right, and tanh is written to memory in the forward pass and read again in the backward "
            "pass. Working it out again from x costs no bytes, and bytes are what this kernel waits for.",
        ),
        Misconception(
            "keeps_y",
            slips.answer(keeps="y"),
            "The backward pass gets y where it needs x. What did ctx.save_for_backward keep?",
        ),
        Misconception(
            "results_in_float32",
            slips.answer(dtype=torch.float32),
            "The result has float32 whatever x has. Ask torch.empty for x.dtype, or use torch.empty_like(x).",
        ),
        Misconception(
            "mask_one_long",
            slips.answer("mask one long"),
            "`offsets <= n` lets one lane too many through: elements are numbered 0 to n - 1.",
        ),
        Misconception(
            "one_program",
            slips.one_program,
            "The numbers are right, and one program walks over all elements. It runs on one SM or CU, and the others "
            "have nothing to do: let each program take a block.",
        ),
        Misconception(
            "torch_multiplies",
            slips.torch_multiplies,
            "The kernel writes the derivative, and torch multiplies it by dy: three more passes over memory. Give dy "
            "to the kernel.",
        ),
        Misconception(
            "no_autograd_function",
            slips.no_function,
            "The forward kernel ran, and autograd knows nothing of it. Return Gelu.apply(x), where Gelu is a "
            "torch.autograd.Function with forward and backward.",
        ),
        Misconception(
            "torchs_own_gelu",
            slips.torchs_own,
            "The numbers are right, but torch computed them. Here it is your kernels' work, one launch each way.",
        ),
    ),
    hints=(
        "The gate (1 + tanh u) / 2 is sigmoid(2u), and tl.sigmoid exists. Write y with it first. Then differentiate "
        "x * s(x): two terms.",
        "With s = sigmoid(2u): y = x s, and dy/dx = s + x s (1 - s) 2 du/dx, where du/dx = sqrt(2/pi) (1 + 3 * "
        "0.044715 x^2). Load, convert to float32, compute, store. In backward, element i of x lies in row i // cols "
        "and column i % cols of dy.",
        "dy_ptr + offsets // cols * stride_row + offsets % cols * stride_col, with dy.stride(0) and dy.stride(1). "
        "class Gelu(torch.autograd.Function): forward(ctx, x) launches and calls ctx.save_for_backward(x); "
        "backward(ctx, dy) launches and returns dx; gelu returns Gelu.apply(x).",
    ),
    seconds=30.0,  # a busy machine compiles such a kernel for ten
    explanation=(
        "Written with torch's own operations the forward pass alone is eight kernels, and each reads and writes all of "
        "x. Fused it is one: the numbers in between never leave the registers. The backward pass needs tanh u, and "
        "works it out from x again. That is 8 more instructions for each element on sm_80 and 24 on gfx942, in place "
        "of a store and a load; it costs nothing where the kernel waits for memory. And the sigmoid has no infinity "
        "over infinity."
    ),
)
