"""04.layernorm: rows of any length normalised, with statistics that stand a large mean, from two reads at most."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import Tolerance, unit_roundoff
from gpu_utils.exercises.u04_triton_reductions import layernorm_slips as slips
from gpu_utils.grading.compare import Difference, compare
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Limit

LANES = 700
"""Columns: from this many on every lane of a program has an element of its own, so none is asked for twice."""

PARTS = ("y", "mean", "rstd")


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    rows, columns, wide = case["rows"], case["columns"], case.get("part_of_a_wider", False)
    dtype = getattr(torch, case["dtype"])
    x = case.get("spread", 1.0) * torch.randn(rows, columns + 8 * wide, generator=generator)
    x += case.get("around", 2.0) + 0.5 * torch.arange(rows)[:, None]
    x += case.get("spread", 1.0) * torch.arange(x.shape[1]) / x.shape[1]  # blocks of a row have other means
    if case.get("constant"):
        x[0] = 3.7
    weight = (0.5 + torch.rand(columns, generator=generator)) * (1 - 2 * (torch.arange(columns) % 2))
    bias = 1.0 + torch.rand(columns, generator=generator)
    x = x.to(dtype)
    return {
        "x": x[:, 3 : 3 + columns] if wide else x[:1].expand(x.shape) if case.get("repeated") else x,
        "weight": weight.to(dtype),
        "bias": bias.to(dtype),
        "eps": case.get("eps", 1e-5),
    }


def layernorm_reference(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """(y, mean, rstd) in float64; the variance is the mean of (x - mean)^2, and rstd = 1 / sqrt(variance + eps)."""
    wide = x.double()
    mean = wide.mean(1, keepdim=True)
    rstd = ((wide - mean).square().mean(1, keepdim=True) + eps).rsqrt()
    return (wide - mean) * rstd * weight.double() + bias.double(), mean[:, 0], rstd[:, 0]


def _tolerances(inputs: Inputs) -> tuple[Tolerance, Tolerance, Tolerance]:
    """Of y, mean and rstd, for sums in float32 of at least 64 lanes.

    A sum of values of one sign rounds `path` times on its way: 4 sqrt(path) u of its size (analytic/tolerance.py).
    An error d of the mean moves y by d * rstd, and the variance by d^2. Merged parts, whose means are off by d, move it
    more: their distance is at most two standard deviations (halves of a row), so the variance by at most 2 d of those.
    Who subtracts any element of the row, to have small numbers, adds up squares that are larger than those of x - mean
    by the square of that distance.
    """
    x, u = inputs["x"].double(), unit_roundoff(torch.float32)
    _, mean, rstd = layernorm_reference(**inputs)
    sums = 4 * math.sqrt(x.shape[1] / 64 + 8) * u
    of_mean = sums * x.abs().amax(1)
    distance = ((x - mean[:, None]).abs().amax(1) * rstd).clamp(min=1.0)
    off = of_mean * rstd
    of_rstd = float((sums * (1 + distance.square()) + off + off.square()).max())
    size = float(inputs["weight"].abs().max())
    of_y = size * float(off.max() + distance.max() * of_rstd)
    rounded = 4 * unit_roundoff(inputs["x"].dtype)
    dtype = str(inputs["x"].dtype).removeprefix("torch.")
    why = f"sums of {x.shape[1]:,} terms in float32"
    return (
        Tolerance(rounded, of_y + 8 * u * (size * float(distance.max()) + 2), f"2 roundings to {dtype}, {why}"),
        Tolerance(4 * u, float(of_mean.max()), why),
        Tolerance(4 * u + of_rstd, 0.0, why),
    )


def _judge(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    """Each of the three with its own type and tolerance."""
    if not isinstance(value, (list, tuple)) or len(value) != len(PARTS):
        kind = f"{len(value)} values" if isinstance(value, (list, tuple)) else f"of type {type(value).__name__}"
        return Difference("type", f"the result is {kind}, expected three tensors: (y, mean, rstd)")
    dtypes = inputs["x"].dtype, torch.float32, torch.float32
    parts = zip(layernorm_reference(**inputs), value, _tolerances(inputs), dtypes, PARTS, strict=True)
    found = (compare(right, got, tol, dtype, name) for right, got, tol, dtype, name in parts)
    return next((difference for difference in found if difference), None)


def _tolerance(case: Case, inputs: Inputs) -> Tolerance:
    return _tolerances(inputs)[0]


def _bytes(case: Case) -> float:
    """Of x, where every lane has an element of its own; infinite elsewhere."""
    if case["columns"] < LANES:
        return math.inf
    return float(case["rows"] * case["columns"] * getattr(torch, case["dtype"]).itemsize)


def _filled(value: float) -> Callable[..., Any]:
    def answer(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
        y = torch.full(x.shape, value, dtype=x.dtype, device=x.device)
        of_rows = torch.full((len(x),), value, device=x.device)
        return y, of_rows, of_rows.clone()

    return answer


def _the_inputs(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    return x, x[:, 0].float(), x[:, 0].float()


def _fresh(rng: random.Random) -> Case:
    # odd, so that the compiler has met the like before
    return Case(
        "sizes nobody chose",
        rows=rng.randrange(2, 6),
        columns=2 * rng.randrange(400, 1200) + 1,
        dtype="float32",
        eps=rng.choice([1e-6, 1e-4, 1e-2]),
        around=rng.choice([-3.0, 0.0, 100.0]),
        spread=rng.choice([0.05, 1.0, 4.0]),
        part_of_a_wider=rng.choice([True, False]),
    )


EXERCISE = Exercise(
    id="04.layernorm",
    title="Layer norm of rows of any length",
    parameters=("x", "weight", "bias", "eps"),
    kind="kernel",
    inputs=_inputs,
    reference=layernorm_reference,
    judge=_judge,
    tolerance=_tolerance,
    dtype=lambda inputs: None,
    cases=(
        Case("GPT-2's width", rows=4, columns=768, dtype="float32"),
        Case("rows longer than two blocks of 1,024, and no multiple", rows=3, columns=2305, dtype="float32", eps=0.01),
        Case(
            "a mean of 10,000 and a spread of 1: the mean of squares, less the squared mean, is lost in float32",
            rows=3,
            columns=1501,
            dtype="float32",
            around=10_000.0,
        ),
        Case(
            "x is part of a wider matrix; the values are small, so eps counts",
            rows=3,
            columns=1501,
            dtype="float32",
            part_of_a_wider=True,
            around=0.0,
            spread=0.01,
            eps=3e-4,
        ),
        Case("a row whose elements are all the same", rows=2, columns=1023, dtype="float32", constant=True),
        Case(
            "one row of 16 bits, repeated with stride 0: 2,049 values around 200",
            rows=2,
            columns=2049,
            dtype="float16",
            around=200.0,
            repeated=True,
        ),
        Case("bfloat16, rows of seven", rows=5, columns=7, dtype="bfloat16"),
        Case("a row that fits into no program's registers", rows=1, columns=40_001, dtype="float32"),
    ),
    fresh=_fresh,
    trivial={"zeros": _filled(0.0), "ones": _filled(1.0), "nan": _filled(math.nan), "the inputs": _the_inputs},
    limits=(
        Limit("launches", "Launch your own kernel.", at_least=lambda case: 1),
        Limit(
            "launches",
            "One launch can do all of it: a program that has been along its row knows mean and rstd.",
            at_most=lambda case: 1,
        ),
        Limit(
            "scratch_bytes",
            "A lane has more values than registers, and some of them go to memory and back (spills). A loop over "
            "blocks of 1,024 leaves few to each lane, however long the row is.",
            at_most=lambda case: 0,
        ),
        Limit(
            "global_store_bytes",
            "y is to be stored once, and two numbers for each row.",
            at_most=lambda case: 1.05 * _bytes(case),
        ),
        Limit(
            "global_load_bytes",
            "x is to be loaded twice at most: once for both statistics and once for y, which also loads weight and "
            "bias. (Where BLOCK is smaller than the lanes of a program, 256 on gfx942 with four waves, several lanes "
            "load the same element.)",
            at_most=lambda case: 1.05 * 4 * _bytes(case),
        ),
    ),
    torch_may=(),
    misconceptions=slips.MISCONCEPTIONS,
    hints=(
        "Walk along the row in blocks. What must be kept of the blocks so far, so that mean and variance of all of "
        "them follow, and nothing large is subtracted from something large?",
        "Of the blocks so far keep the number of elements n, the mean m and the sum M of (x - m)^2. A block has the "
        "same three: k, b, B. With d = b - m the new mean is m + d k / (n + k), the new sum M + B + d^2 n k / (n + k).",
        "In the loop: k = tl.minimum(columns - first, BLOCK); b = tl.sum(x, 0) / k with other=0.0; off = "
        "tl.where(mask, x - b, 0.0); B = tl.sum(off * off, 0). After it rstd = 1 / tl.sqrt(M / columns + eps); store "
        "mean and rstd at [row], and walk along the row once more for (x - mean) * rstd * weight + bias.",
    ),
    seconds=90.0,  # a busy machine compiles a block that holds 40,001 elements for forty
    explanation=(
        "E[x^2] - E[x]^2 needs one walk as well, and is wrong where the mean is large: squares of 10,000 are 10^8, "
        "whose float32 neighbours are 8 apart, so a variance of 1 is lost. Merging (count, mean, sum of squared "
        "distances) subtracts only numbers near each other, and any two parts can be merged, in any order: blocks, "
        "warps, programs. A variance from distances is never below 0. The padding must be switched off after the mean "
        "is subtracted: a masked 0 is -mean then. mean and rstd are kept in float32, two numbers for each row, for "
        "the backward pass."
    ),
)
