"""09.tolerance: an allowance that lets every honest kernel pass and no planted fault.

Judged by its decisions: sums are recorded anew as honest kernels and broken ones leave them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import EXACT
from gpu_utils.exercises.u09_operator_alignment.recorded_sums import OUTPUTS, Recipe, record
from gpu_utils.exercises.u09_operator_alignment.tolerance_slips import slipped
from gpu_utils.grading.compare import Difference
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs, Misconception

PARAMETERS = ("k", "magnitude", "one_sign", "factors", "accumulator", "every", "result")

TOLD = 3.0
"""Faults that leave the reference's allowance by less than this factor are not planted."""


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    drawn = 1 + float(torch.rand((), generator=generator, dtype=torch.float64))
    return {name: case[name] for name in PARAMETERS} | {"magnitude": case["magnitude"] * drawn}


tolerance_reference = slipped()


def _excess(found: Tensor, exact: Tensor, rtol: float, atol: float) -> float:
    """The largest error over what is allowed there."""
    return float(((found - exact).abs() / (atol + rtol * exact.abs())).max())


@lru_cache(maxsize=64)
def planted(recipe: Recipe) -> Mapping[str, Tensor]:
    """The faults that can be told from an honest kernel of this recipe."""
    recording = record(recipe)
    rtol, atol = tolerance_reference(**vars(recipe))
    return {
        name: found for name, found in recording.faulty.items() if _excess(found, recording.exact, rtol, atol) >= TOLD
    }


def _judge(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    if isinstance(value, Tensor):
        value = value.tolist()
    if not isinstance(value, (list, tuple)) or len(value) != 2 or not all(map(_is_number, value)):
        return Difference("type", f"the result is {str(value)[:80]}; expected two numbers, (rtol, atol)")
    rtol, atol = (float(part.item() if isinstance(part, Tensor) else part) for part in value)
    if not (0 <= rtol < math.inf and 0 <= atol < math.inf):
        return Difference("range", f"(rtol, atol) is ({rtol:g}, {atol:g}); expected two finite numbers from 0 on")
    recipe = Recipe(**inputs)
    recording = record(recipe)
    refused = {name: _beyond(found, recording.exact, rtol, atol) for name, found in recording.honest.items()}
    refused = {name: beyond for name, beyond in refused.items() if len(beyond)}
    said = f"with rtol = {rtol:.3g} and atol = {atol:.3g}"
    if refused:
        name, beyond = max(refused.items(), key=lambda item: len(item[1]))
        at = int(beyond[0])
        exact, found = float(recording.exact[at]), float(recording.honest[name][at])
        return Difference(
            f"refuses: {', '.join(refused)}",
            f"{said} an honest kernel that adds {name} is refused: {len(beyond)} of {OUTPUTS} sums are off by more, "
            f"the first is {found:.8g} where {exact:.8g} is exact, off by {abs(found - exact):.2g}",
        )
    passed = [name for name, found in planted(recipe).items() if not len(_beyond(found, recording.exact, rtol, atol))]
    if passed:
        off = float((planted(recipe)[passed[0]] - recording.exact).abs().max())
        return Difference(
            f"accepts: {', '.join(passed)}",
            f"{said} a kernel with {passed[0]} is accepted, whose sums are off by up to {off:.2g}",
        )
    return None


def _is_number(part: Any) -> bool:
    scalar = isinstance(part, Tensor) and part.numel() == 1 and part.dtype is not torch.bool
    return scalar or (isinstance(part, (int, float)) and not isinstance(part, bool))


def _beyond(found: Tensor, exact: Tensor, rtol: float, atol: float) -> Tensor:
    return (~((found - exact).abs() <= atol + rtol * exact.abs())).nonzero()


_FRESH: tuple[tuple[Any, ...], ...] = (
    (False, "fp32", "fp32", None, "fp32", (300, 500)),
    (True, "fp32", "fp32", None, "fp32", (200, 400)),
    (False, "tf32", "fp32", None, "fp32", (200, 500)),
    (True, "tf32", "fp32", None, "fp32", (200, 400)),
    (False, "fp16", "fp32", None, "fp16", (200, 500)),
    (False, "fp32", "fp16", 16, "fp32", (700, 1000)),
    (True, "fp32", "fp16", 32, "fp32", (400, 600)),
    (False, "bf16", "fp32", None, "bf16", (128, 400)),
)


def _fresh(rng: random.Random) -> Case:
    *rest, lengths = rng.choice(_FRESH)
    return _case("a kernel nobody chose", rng.randint(*lengths), 2.0 ** rng.randint(-6, 3), *rest)


def _case(why: str, k: int, magnitude: float, *rest: Any) -> Case:
    """rest: one_sign, factors, accumulator, every, result."""
    return Case(why, **dict(zip(PARAMETERS, (k, magnitude, *rest), strict=True)))


_WRONG: tuple[tuple[str, str], ...] = (
    (
        "allclose",
        "These are torch.allclose's defaults, for any K and any type. They refuse honest kernels, and where "
        "numbers are large or small they mean nothing.",
    ),
    (
        "assert_close",
        "These are torch.testing's numbers for the type of the result. They know nothing of K, of the magnitude and of "
        "what was rounded before.",
    ),
    ("one_for_all", "1e-2 for all: it hides every fault of a float32 kernel, and refuses large sums in few bits."),
    (
        "relative_only",
        "atol is 0. Where terms of both signs cancel, a sum is small and its error is not: the roundings were those of "
        "the running sums, or of the factors.",
    ),
    ("no_length", "K is not in it: the roundings of a long sum add up."),
    (
        "size_of_a_term",
        "Each rounding is taken as u of a term. It is u of the running sum, which has grown by then: how large is it "
        "after i terms?",
    ),
    (
        "worst_case",
        "This is the worst case, all roundings at their largest and in one direction. A fault hides below it. "
        "Roundings go their own ways: deviations add like squares.",
    ),
    (
        "sign_ignored",
        "Products of one sign do not cancel: the running sum grows like i, not like its square root, and its roundings "
        "with it.",
    ),
    (
        "always_one_sign",
        "Running sums grow like i here, always. With products of either sign they grow like a square root, and so wide "
        "an allowance hides faults.",
    ),
    (
        "factors_forgotten",
        "What the factors lost before they were multiplied is missing: each product is off by some u of their format.",
    ),
    (
        "factors_worst",
        "The roundings of the factors are counted as if all went one way. They are of either sign in each product, "
        "whatever the sign of the product: their sum grows like sqrt(K).",
    ),
    (
        "factors_relative",
        "The roundings of the factors are in rtol. Where terms cancel the result is small and what the factors lost is "
        "not: it belongs into atol, with the magnitude of a product.",
    ),
    (
        "tf32_as_fp32",
        "tf32 is stored in 32 bits and has 10 behind the point, as fp16: its u is 2^-11.",
    ),
    (
        "u_of_result",
        "The running sums are rounded with the u of the result here. They are in the accumulator; only the last "
        "rounding is to the result.",
    ),
    (
        "always_fp32",
        "The running sums are taken to be in fp32. Here the accumulator may be fp16.",
    ),
    (
        "every_ignored",
        "The promotion is left out: a running sum ends after `every` terms and starts at 0, so it never grows to the "
        "size of the whole. With so much room one would not see that it was forgotten.",
    ),
    (
        "one_piece",
        "The error of one piece is here. There are K / every of them: their errors go their own ways and add up like a "
        "square root.",
    ),
    (
        "counts_pieces",
        "`every` is a number of products, not of pieces.",
    ),
    (
        "magnitude_forgotten",
        "The magnitude is not in atol. A sum of products a thousand times as large is off by a thousand times as much.",
    ),
    (
        "result_forgotten",
        "rtol is 0: the last rounding, to the type of the result, is off by up to u of the result.",
    ),
    ("swapped", "Right numbers, swapped: first rtol, then atol."),
    (
        "one_deviation",
        "This is about one standard deviation. The largest of 256 errors is three of them, of 100,000 four and a half: "
        "allow for it.",
    ),
)

EXERCISE = Exercise(
    id="09.tolerance",
    title="An allowance that hides nothing",
    parameters=PARAMETERS,
    kind="host",
    inputs=_inputs,
    reference=tolerance_reference,
    tolerance=lambda case, inputs: EXACT,
    dtype=lambda inputs: None,
    judge=_judge,
    cases=(
        Example(
            "the example of the statement",
            **dict(zip(PARAMETERS, (500, 1.0, False, "fp32", "fp32", None, "fp32"), strict=True)),
        ),
        _case("products of one sign: a sum of 256", 256, 4.0, True, "fp32", "fp32", None, "fp32"),
        _case("factors in tf32, small products", 500, 0.002, False, "tf32", "fp32", None, "fp32"),
        _case("factors in tf32, products of one sign", 300, 1.5, True, "tf32", "fp32", None, "fp32"),
        _case("a half-precision product with wide sums", 500, 2.0, False, "fp16", "fp32", None, "fp16"),
        _case("sums in fp16, promoted every 16", 1024, 1.0, False, "fp32", "fp16", 16, "fp32"),
        _case("sums in fp16, promoted every 128: few pieces", 1024, 1.5, False, "fp32", "fp16", 128, "fp32"),
        _case("sums in fp16 of one sign, promoted every 32", 600, 0.3, True, "fp32", "fp16", 32, "fp32"),
        _case("bfloat16 in and out", 256, 0.6, False, "bf16", "fp32", None, "bf16"),
        _case("all in fp16, never promoted", 400, 0.7, False, "fp16", "fp16", None, "fp16"),
        _case("bfloat16 factors of one sign, results in fp16", 500, 0.5, True, "bf16", "fp32", None, "fp16"),
    ),
    fresh=_fresh,
    misconceptions=tuple(Misconception(name, slipped(name), hint) for name, hint in _WRONG),
    hints=(
        "Three things are rounded: the factors, each running sum, the result. Write down for each how often, and u of "
        "what size. Only the last is in proportion to the result.",
        "Independent roundings add like squares. After i terms the running sum is about sqrt(i) x magnitude with both "
        "signs, i x magnitude with one: square, add up to the length of a piece, times the pieces, and take the root. "
        "What the factors lost is like a random term of 2/3 u in each product: sqrt(k). Then five deviations or so.",
        "every = min(every or k, k); grown = every * sqrt(k) if one_sign else sqrt(k * every); atol = magnitude * (2.5 "
        "* u[accumulator] * grown + 3 * u[factors] * sqrt(k)), the second part only where factors are not fp32; rtol = "
        "2 * u[result].",
    ),
    explanation=(
        "A rounding is off by 0.4 u of its number, in the mean square. Over a piece of n running sums that is 0.3 u n "
        "m where they grow like sqrt(i) m, and 0.24 u n^1.5 m where they grow like i m; K / n pieces multiply it by "
        "sqrt(K / n). Two factors that were rounded put 0.6 u m into each product, of either sign, so sqrt(K) of it "
        "into the sum. The largest of some hundred outputs is beyond three deviations, so five to eight leave room for "
        "any honest order. Much more than that, and a narrower type or a lost term passes: an allowance is judged from "
        "both sides."
    ),
)
