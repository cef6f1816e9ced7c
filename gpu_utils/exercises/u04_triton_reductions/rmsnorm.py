"""04.rmsnorm: a residual added and the sum normalised by its size, in one launch, as models of Llama's kind do it."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import Tolerance, tolerance
from gpu_utils.exercises.u04_triton_reductions import rmsnorm_slips as slips
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Limit

LANES = 1000
"""Columns: from this many on every lane of a program has an element of its own, so none is asked for twice."""


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    rows, columns, size = case["rows"], case["columns"], case.get("size", 1.0)
    dtype = getattr(torch, case["dtype"])

    def draw(name: str) -> Tensor:
        wide = case.get("part_of_a_wider") == name
        drawn = size * (0.5 + torch.randn(rows, columns + 8 * wide, generator=generator))
        return drawn.to(dtype)[:, 3 : 3 + columns] if wide else drawn.to(dtype)

    weight = 0.5 + torch.rand(columns, generator=generator)
    sign = 1 - 2 * torch.randint(2, (columns,), generator=generator)
    return {
        "x": draw("x"),
        "residual": draw("residual"),
        "weight": (weight * sign).to(dtype),
        "eps": case.get("eps", 1e-5),
    }


def rmsnorm_reference(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """(y, h) in float64: h = x + residual, y = h / sqrt(mean(h^2) + eps) * weight, over each row."""
    h = x.double() + residual.double()
    return h / (h.square().mean(1, keepdim=True) + eps).sqrt() * weight.double(), h


def _tolerance(case: Case, inputs: Inputs) -> Tolerance:
    # one rounding each: of the mean of squares (terms of one sign), the root, the quotient, the product, and of h
    y, _ = rmsnorm_reference(**inputs)
    return tolerance(inputs["x"].dtype, k=5, magnitude=float(y.abs().max()))


def _bytes(case: Case) -> float:
    """Of x, where every lane has an element of its own; infinite elsewhere."""
    if case["columns"] < LANES:
        return math.inf
    return float(case["rows"] * case["columns"] * getattr(torch, case["dtype"]).itemsize)


def _whole_transactions(case: Case) -> float:
    """Bytes of x where no row starts inside a transaction; infinite elsewhere."""
    aligned = _bytes(case) < math.inf and _bytes(case) / case["rows"] % 128 == 0
    return _bytes(case) if aligned and "part_of_a_wider" not in case.params else math.inf


def _filled(value: float) -> Callable[..., tuple[Tensor, Tensor]]:
    def answer(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        full = torch.full(x.shape, value, dtype=x.dtype, device=x.device)
        return full, full.clone()

    return answer


def _fresh(rng: random.Random) -> Case:
    # odd, and between two powers of two: the compiler has met the like before
    return Case(
        "sizes nobody chose",
        rows=rng.randrange(2, 7),
        columns=2 * rng.randrange(257, 511) + 1,
        dtype="float32",
        eps=rng.choice([1e-6, 3e-5, 1e-2]),
        size=rng.choice([0.01, 1.0, 20.0]),
        part_of_a_wider=rng.choice(["x", "residual", "neither"]),
    )


EXERCISE = Exercise(
    id="04.rmsnorm",
    title="Residual and RMS norm in one launch",
    parameters=("x", "residual", "weight", "eps"),
    kind="kernel",
    inputs=_inputs,
    reference=rmsnorm_reference,
    tolerance=_tolerance,
    parts=("y", "h"),
    cases=(
        Case("rows that fill their block: here every byte is counted", rows=4, columns=1024, dtype="float32"),
        Case("x is part of a wider matrix", rows=3, columns=1001, dtype="float32", part_of_a_wider="x"),
        Case(
            "the residual is part of a wider matrix", rows=3, columns=1001, dtype="float32", part_of_a_wider="residual"
        ),
        Case("small values, which eps outweighs", rows=3, columns=1001, dtype="float32", size=0.002, eps=3e-5),
        Case("squares beyond the largest float16", rows=2, columns=1001, dtype="float16", size=300.0),
        Case("long rows, one more than a power of two", rows=2, columns=2049, dtype="bfloat16"),
        Case("rows of one element", rows=5, columns=1, dtype="float32", eps=0.5),
    ),
    fresh=_fresh,
    trivial={
        "zeros": _filled(0.0),
        "ones": _filled(1.0),
        "nan": _filled(math.nan),
        "the inputs": lambda x, residual, weight, eps: (x, residual),
    },
    limits=(
        Limit("launches", "Launch your own kernel.", at_least=lambda case: 1),
        Limit(
            "launches",
            "One launch can do both: a program that has added its row has h in registers.",
            at_most=lambda case: 1,
        ),
        Limit(
            "scratch_bytes",
            "A lane has more values than registers, and some of them go to memory and back (spills). More warps for "
            "a program, num_warps=8 at the launch, leave fewer to each lane.",
            at_most=lambda case: 0,
        ),
        Limit(
            "global_store_bytes",
            "y and h are to be stored once each, and nothing else.",
            at_most=lambda case: 1.05 * 2 * _bytes(case),
        ),
        Limit(
            "global_load_bytes",
            "x, the residual and, for each row, the weight are to be loaded once. A row that a program keeps in "
            "registers is at hand for the sum of squares and for y.",
            at_most=lambda case: 1.05 * 3 * _bytes(case),
        ),
        Limit(
            "global_moved_bytes",
            "Loads or stores touch transactions of which they use a part only: let neighbouring lanes take neighbours "
            "in a row.",
            at_most=lambda case: 1.05 * 5 * _whole_transactions(case),
        ),
    ),
    torch_may=(),
    misconceptions=slips.MISCONCEPTIONS,
    hints=(
        "One program takes one row of x and of the residual. h = x + residual is needed for the sum of squares, for y, "
        "and for the result h. In which type does each of them want it?",
        "Load both rows with other=0.0, turn them into float32 and add them: zeros in the padding add nothing to the "
        "sum of squares. Divide that sum by columns, not by BLOCK. x and residual have a row stride each.",
        "size = tl.sqrt(tl.sum(h * h, 0) / columns + eps); store h, and h / size * weight, at row * columns + cols of "
        "two new tensors of dtype x.dtype. weight is loaded at weight_ptr + cols. The grid is (rows,).",
    ),
    seconds=30.0,  # a busy machine compiles such a kernel for ten
    explanation=(
        "As two kernels, an addition and a norm, x and the residual are read, h is written, read again, and y is "
        "written: 5 units of traffic where the norm reads a row once. In one kernel h never comes back: 4 units, 2 in "
        "and 2 out. The weight is asked for by each row again, and comes from a cache. y is made of the float32 sum, "
        "before h is rounded; which of the two a model uses is a convention that a port has to keep, and it is worth "
        "one rounding of 16 bits."
    ),
)
