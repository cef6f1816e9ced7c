"""04.dropout: a mask that is never stored. Many draws are right, so properties decide."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import Tolerance, tolerance
from gpu_utils.exercises.drawing import signed
from gpu_utils.exercises.gradient import forward_and_backward
from gpu_utils.exercises.u04_triton_reductions import dropout_slips as slips
from gpu_utils.grading.compare import Difference, compare
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Limit, Misconception

_TYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}

MANY = 4096
"""From so many elements on shares and patterns are judged."""

SIGMAS = 8.0
"""Standard deviations from what independent draws give. Of 100,000 numbers that honest draws give, the farthest is at
4.5; a mask that repeats itself is at 50 and more."""


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    shape, dtype = (case["rows"], case["cols"]), _TYPES[case["dtype"]]

    def drawn() -> Tensor:  # none is zero, so that a zero has been dropped
        return signed(shape, generator).to(dtype)

    # no multiple of 16 and not 1, nor is the next one: Triton compiles anew for those
    seed = 16 * int(torch.randint(1, 10**6, (1,), generator=generator)) + 5
    return {"x": drawn(), "dy": drawn(), "p": case["p"], "seed": seed}


def dropout_reference(x: Tensor, dy: Tensor, p: float, seed: int) -> dict[str, Tensor]:
    """What is kept, in float64; which elements are dropped is for the draw to say."""
    factor = 1 / (1 - p) if p < 1 else 0.0
    y, dx = x.double() * factor, dy.double() * factor
    return {"y": y, "dx": dx, "again": y, "other": y}


def _call(answer: Callable[..., Any], inputs: Inputs) -> dict[str, Any]:
    """Forward and backward; forward again with the same seed; and with another one."""
    x, p, seed = inputs["x"], inputs["p"], inputs["seed"]
    found = forward_and_backward("x")(answer, inputs)
    return {**found, "again": answer(x=x, p=p, seed=seed), "other": answer(x=x, p=p, seed=seed + 1)}


def _tolerance(case: Case, inputs: Inputs) -> Tolerance:
    return tolerance(inputs["x"].dtype, k=2, magnitude=1.5)


def _judge(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    expected = dropout_reference(**inputs)
    form = compare(expected, value, Tolerance(0.0, math.inf, "only the form"), inputs["x"].dtype)
    if form is not None:
        return form
    looks = (_values, _repeated, _pattern, _share, _of_seeds, _backward)
    got = {name: tensor.detach().cpu().double() for name, tensor in value.items()}
    found = (look(case, inputs, expected, got) for look in looks)
    return next((difference for difference in found if difference), None)


Tensors = dict[str, Tensor]


def _near(case: Case, inputs: Inputs, one: Tensor, other: Tensor) -> Tensor:
    tol = _tolerance(case, inputs)
    return (one - other).abs() <= tol.atol + tol.rtol * other.abs()


def _wrong_scale(case: Case, inputs: Inputs, given: Tensor, y: Tensor) -> str:
    """By what the kept elements were multiplied instead of 1 / (1 - p); "" where it is nothing known."""
    p, kept = inputs["p"], y != 0
    factors = {"1": 1.0, "1 / p": 1 / p if p else 0.0, "1 - p": 1 - p}
    for name, factor in factors.items():
        if bool(_near(case, inputs, y, given.double() * factor)[kept].all()):
            return name
    return ""


def _values(case: Case, inputs: Inputs, expected: Tensors, got: Tensors) -> Difference | None:
    for name in ("y", "again", "other"):
        y = got[name]
        wrong = (y != 0) & ~_near(case, inputs, y, expected[name])
        if not wrong.any():
            continue
        row, col = wrong.nonzero()[0].tolist()
        factor = _wrong_scale(case, inputs, inputs["x"], y)
        said = f"; what is kept is multiplied by {factor}, expected 1 / (1 - p)" if factor else ""
        return Difference(
            f"scale:{factor}" if factor else "scale",
            f"y[{row}, {col}] = {y[row, col]:.6g}, expected 0 or {expected[name][row, col]:.6g}; "
            f"{int(wrong.sum())} of {y.numel()} elements are neither{said}",
        )
    return None


def _share(case: Case, inputs: Inputs, expected: Tensors, got: Tensors) -> Difference | None:
    p, n = inputs["p"], inputs["x"].numel()
    share = float((got["y"] != 0).double().mean())
    sigma = math.sqrt(p * (1 - p) / n)
    if (n < MANY and 0 < p < 1) or abs(share - (1 - p)) <= SIGMAS * sigma:
        return None
    detail = f"{share:.1%} of {n} elements are kept, expected {1 - p:.0%} within {SIGMAS * sigma:.1%}"
    return Difference("share:p" if abs(share - p) <= SIGMAS * sigma else "share", detail)


def _repeated(case: Case, inputs: Inputs, expected: Tensors, got: Tensors) -> Difference | None:
    differ = int(((got["y"] != 0) != (got["again"] != 0)).sum())
    if not differ:
        return None
    return Difference("again", f"a second call with the same seed drops others: {differ} elements differ")


def _moved(one: Tensor, other: Tensor, least: int) -> int | None:
    """The lag from `least` up at which other[i + lag] follows one[i] most closely; None where chance explains it.

    The correlation for each lag, by Fourier transforms. A mask that repeats itself does so at multiples of its period
    too, nearly as closely: then the first of them counts.
    """
    n = one.numel()
    share = float(one.double().mean())
    if share in (0.0, 1.0):
        return None
    a, b = (torch.fft.rfft(mask.flatten().double() - share, 2 * n) for mask in (one, other))
    terms = (n - torch.arange(n)).double()
    alike = torch.fft.irfft(a.conj() * b, 2 * n)[:n].abs() / (share * (1 - share) * terms)
    alike[:least] = 0
    alike[terms < 500] = 0
    if not (alike > SIGMAS / terms.sqrt()).any():
        return None
    return int((alike > 0.8 * alike.max()).nonzero()[0])


def _judged(inputs: Inputs) -> bool:
    return bool(0 < inputs["p"] < 1 and inputs["x"].numel() >= MANY)


def _pattern(case: Case, inputs: Inputs, expected: Tensors, got: Tensors) -> Difference | None:
    if not _judged(inputs):
        return None
    kept, cols = got["y"] != 0, inputs["x"].shape[1]
    lag = _moved(kept, kept, 1)
    if lag is None:
        return None
    kind = {1: "neighbours", cols: "rows"}.get(lag, "programs")
    detail = f"the mask repeats itself: what happens to element i mostly happens to element i + {lag} of x.flatten()"
    return Difference(f"pattern:{kind}", f"{detail} (a row has {cols} elements)")


def _of_seeds(case: Case, inputs: Inputs, expected: Tensors, got: Tensors) -> Difference | None:
    if not _judged(inputs):
        return None
    one, other = got["y"] != 0, got["other"] != 0
    if torch.equal(one, other):
        return Difference("seeds:same", "seed and seed + 1 drop the same elements")
    lags = [_moved(one, other, 0), _moved(other, one, 0)]
    lag = next((lag for lag in lags if lag is not None), None)
    if lag is None:
        return None
    kind = "seeds:moved by one" if lag == 1 else "seeds:moved"
    return Difference(kind, f"the mask of seed + 1 is that of seed, moved by {lag} element{'s' * (lag != 1)}")


def _backward(case: Case, inputs: Inputs, expected: Tensors, got: Tensors) -> Difference | None:
    y, dx, n = got["y"], got["dx"], inputs["x"].numel()
    differ = int(((y != 0) != (dx != 0)).sum())
    if differ and bool((dx != 0).all()):
        return Difference("backward:all", "every element of dx has a gradient, also where y was dropped")
    if differ:
        return Difference("backward:mask", f"dx was dropped at other places than y: {differ} of {n} elements differ")
    wrong = (dx != 0) & ~_near(case, inputs, dx, expected["dx"])
    if not wrong.any():
        return None
    row, col = wrong.nonzero()[0].tolist()
    factor = _wrong_scale(case, inputs, inputs["dy"], dx)
    said = f"; dy is multiplied by {factor}, expected 1 / (1 - p)" if factor else ""
    return Difference(
        f"backward:scale:{factor}",
        f"dx[{row}, {col}] = {dx[row, col]:.6g}, expected {expected['dx'][row, col]:.6g}{said}",
    )


def _bytes(case: Case) -> float:
    # three calls forward and one backward, each reads one tensor and writes one
    return 1.05 * 4 * case["rows"] * case["cols"] * _TYPES[case["dtype"]].itemsize + 1024


def _fresh(rng: random.Random) -> Case:
    shape = {"rows": rng.randrange(21, 27), "cols": 2 * rng.randrange(100, 150) + 1}
    p = rng.choice((rng.uniform(0.1, 0.4), rng.uniform(0.6, 0.9)))
    return Case("a share nobody chose", **shape, p=round(p, 3), dtype=rng.choice(sorted(_TYPES)))


MOST = 16_384
"""Elements of a program, at most."""


EXERCISE = Exercise(
    id="04.dropout",
    title="Dropout without a stored mask",
    parameters=("x", "p", "seed"),
    kind="kernel",
    inputs=_inputs,
    reference=dropout_reference,
    tolerance=_tolerance,
    call=_call,
    judge=_judge,
    cases=(
        Case("three elements of ten are dropped", rows=129, cols=369, p=0.3, dtype="float32"),
        Case("one of ten, two bytes an element", rows=21, cols=203, p=0.1, dtype="float16"),
        Case("most are dropped", rows=19, cols=223, p=0.8, dtype="bfloat16"),
        Case("none is dropped, of 1,025 elements", rows=5, cols=205, p=0.0, dtype="float32"),
        Case("all are dropped, and 1 / (1 - p) is no number", rows=5, cols=131, p=1.0, dtype="float32"),
    ),
    fresh=_fresh,
    trivial={
        "zeros": lambda x, p, seed: x * 0.0,
        "ones": lambda x, p, seed: x * 0.0 + 1.0,
        "nan": lambda x, p, seed: x * math.nan,
        "x": lambda x, p, seed: x * 1.0,
    },
    limits=(
        Limit(
            "launches",
            "One launch for each pass. A check goes forward three times (with a seed, with it again, with the next "
            "one) and backward once.",
            at_least=lambda case: 4 if 0 < case["p"] < 1 else 0,
            at_most=lambda case: 4,
        ),
        Limit(
            "blocks",
            "Most of these programs find nothing to do: a program takes BLOCK elements. Count blocks, not elements.",
            at_most=lambda case: max(8192.0, case["rows"] * case["cols"] / 8),
        ),
        Limit(
            "blocks",
            "Too few programs. A program runs on one SM or CU, so one program keeps one of them busy and leaves the "
            f"others idle: start one for each {MOST:,} elements at least, in all four launches.",
            at_least=lambda case: 4 * (case["rows"] * case["cols"] // MOST),
        ),
        Limit(
            "global_load_bytes",
            "Forward must read x and backward dy, once. What else is read? A mask can be drawn again from seed and "
            "offsets.",
            at_most=_bytes,
        ),
        Limit(
            "global_store_bytes",
            "Forward must write y and backward dx, in the dtype of x, and nothing else. A mask can be drawn again from "
            "seed and offsets.",
            at_most=_bytes,
        ),
    ),
    torch_may=(),
    misconceptions=(
        Misconception(
            "keeps_p",
            slips.answer("drops the rest"),
            "p is the share that is dropped. tl.rand is below p with probability p.",
        ),
        Misconception(
            "normal_numbers",
            slips.answer("normal"),
            "The share that is kept does not follow p: tl.randn gives normal numbers, which are below p more often "
            "than a fraction p of the time. Which function gives numbers spread evenly from 0 to 1?",
        ),
        Misconception(
            "not_scaled",
            slips.answer("no scale"),
            "What is kept goes on unchanged, so the mean of y is smaller than that of x, by the factor 1 - p. Make up "
            "for it.",
        ),
        Misconception(
            "scaled_by_p",
            slips.answer("by p"),
            "What is kept is divided by p. A share of 1 - p is kept, and that is what the mean has lost.",
        ),
        Misconception(
            "scaled_down",
            slips.answer("times 1 - p"),
            "What is kept is made smaller still. Dividing by 1 - p restores the mean; multiplying by it takes twice.",
        ),
        Misconception(
            "leaves_the_dropped",
            slips.answer("leaves the dropped"),
            "Elements that are dropped still stand in y, unscaled. tl.where has a third argument: what they become.",
        ),
        Misconception(
            "nan_where_all_are_dropped",
            slips.answer("times keep"),
            "With p = 1 there is NaN: 0 divided by 1 - p = 0. A product cannot hide that, a choice (tl.where) can.",
        ),
        Misconception(
            "divides_by_zero",
            slips.answer(scale=lambda p: 1 / (1 - p)),
            "With p = 1 the launcher divides by zero before a kernel runs. Nothing is kept then, so any factor will "
            "do; or divide in the kernel.",
        ),
        Misconception(
            "the_same_in_every_program",
            slips.answer("offsets of the block"),
            "Every program draws the same mask: the offsets given to tl.rand start at 0 in each block. Give it the "
            "offsets in the whole of x.",
        ),
        Misconception(
            "the_same_in_every_row",
            slips.answer("offsets of the row"),
            "All rows have the same mask: the column alone decides. Give tl.rand the offset in the whole of x.",
        ),
        Misconception(
            "whole_rows",
            slips.answer("one for a row"),
            "A row is kept or dropped as a whole, so neighbours share their fate: the row alone decides. Each element "
            "needs a number of its own.",
        ),
        Misconception(
            "seed_of_the_program",
            slips.answer("seed of the program"),
            "Each program adds its number to the seed. Within one call all looks well; but program 1 of one seed "
            "draws what program 0 of the next one draws. Leave the seed alone, and use offsets in the whole of x.",
        ),
        Misconception(
            "seed_in_the_offsets",
            slips.answer("seed in the offsets"),
            "The seed is added to the offsets: the next seed gives the same mask, one element further on. tl.rand has "
            "an argument of its own for the seed.",
        ),
        Misconception(
            "no_seed",
            slips.answer("no seed"),
            "Every seed gives the same mask: the seed does not reach tl.rand.",
        ),
        Misconception(
            "drawn_anew_in_backward",
            slips.answer(again=lambda seed: seed + 7),
            "The backward pass drops others than the forward pass did. It must draw the same mask: same seed, same "
            "offsets.",
        ),
        Misconception(
            "gradient_as_it_is",
            slips.gradient_as_it_is,
            "Also elements that were dropped get a gradient: backward hands dy on as it is. y does not depend on an x "
            "that was dropped.",
        ),
        Misconception(
            "gradient_not_scaled",
            slips.answer("", "no scale"),
            "The right gradients are kept, at the wrong size: y = x / (1 - p) where it is kept, and dx has the same "
            "factor.",
        ),
        Misconception(
            "stores_the_mask",
            slips.answer("stores the mask", "reads what was kept", keeps="mask"),
            "The numbers are right, and the mask goes to memory and back, a byte for each element. Keep the seed in "
            "its place: from it the backward pass can draw the mask again.",
        ),
        Misconception(
            "keeps_the_result",
            slips.answer("", "reads what was kept", keeps="result"),
            "The backward pass finds the mask in y, and reads all of y for it; y also has to stay in memory until "
            "then. The seed says the same.",
        ),
        Misconception(
            "torch_draws",
            slips.drawn_by_torch,
            "The random numbers are torch's, and the seed has no part in them: a second call drops others. Draw in the "
            "kernel, with tl.rand.",
        ),
        Misconception(
            "torch_draws_with_the_seed",
            slips.drawn_by_torch_with_the_seed,
            "torch fills a tensor with random numbers, and the kernel reads it: four bytes for each element, written, "
            "read, and read again in the backward pass. tl.rand makes them in registers.",
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
            "no_autograd_function",
            slips.no_function,
            "The kernel ran, and autograd knows nothing of it. Return Dropout.apply(x, p, seed), where Dropout is a "
            "torch.autograd.Function with forward and backward.",
        ),
        Misconception(
            "torchs_own_dropout",
            slips.torchs_own,
            "The dropout is torch's. Here it is your kernel's work, in one launch for each pass.",
        ),
        Misconception(
            "one_program",
            slips.one_program,
            "The numbers are right, and one program walks over all elements. It runs on one SM or CU, and the others "
            "have nothing to do: let each program take a block.",
        ),
    ),
    hints=(
        "tl.rand(seed, offsets) is a function: it has no state, and the same two arguments give the same number, in "
        "any launch. What must the backward pass know to draw the same mask?",
        "Backward does to dy what forward did to x: one kernel serves both. keep = tl.rand(seed, offsets) >= p, with "
        "offsets counted through all of x. What happens to a kept element when p = 1?",
        "tl.store(y_ptr + offsets, tl.where(keep, x / (1 - p), 0.0), mask=mask). forward: ctx.p, ctx.seed = p, seed, "
        "and launch on x; backward: launch on dy, and return dx, None, None, as p and seed have no gradients.",
    ),
    seconds=30.0,  # a busy machine compiles such a kernel for ten
    failures=2,
    explanation=(
        "A counter-based generator (Philox) makes number i of a seed by itself, in registers, without what came before "
        "it. So the mask is a function of seed and place: the backward pass draws it again, and nothing but two "
        "numbers is kept. The offset must be that of the element in the whole tensor, or programs repeat each other; "
        "and the seed must go where the seed belongs, or neighbouring seeds share their masks."
    ),
)
