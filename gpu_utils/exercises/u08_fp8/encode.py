"""08.encode: the code of the nearest number of a narrow format, to the bit."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import EXACT
from gpu_utils.exercises.u08_fp8.encode_slips import slipped
from gpu_utils.exercises.u08_fp8.kinds import PARAMETERS, format_of, invented, numbers_in, numbers_of
from gpu_utils.formats import Format
from gpu_utils.grading.compare import Difference, compare
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs, Misconception

LAST = torch.finfo(torch.float32).max


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    """Every middle between neighbours with the numbers beside it; or NaN among some numbers."""
    given = (
        torch.tensor([1.0, torch.nan, 2.0, -torch.nan]) if case.get("nan") else _telling(format_of(numbers_in(case)))
    )
    if case.get("shuffled"):
        given = given[torch.randperm(len(given), generator=generator)].view(2, -1)
    return {"x": given, **numbers_in(case)}


def _telling(kind: Format) -> Tensor:
    """float32: the numbers of the format, the middles, what lies just beside these or a little below, and both ends."""
    sizes = kind.sizes
    steps = np.append(sizes, 2 * sizes[-1] - sizes[-2])
    middles = torch.from_numpy((steps[1:] + steps[:-1]) / 2).float()
    beside = [torch.nextafter(middles, torch.full_like(middles, end)) for end in (0.0, torch.inf)]
    under = [torch.from_numpy(steps[:-1] + part * np.diff(steps)).float() for part in (0.3, 0.45)]
    small, ends = torch.tensor([kind.smallest / 4, kind.smallest / 2]), torch.tensor([LAST, torch.inf])
    size = torch.cat((torch.from_numpy(sizes).float(), middles, *beside, *under, small, ends)).sort().values
    return torch.cat((size, -size)) if kind.signed else size[size > 0]


def encode_reference(x: Tensor, **numbers: Any) -> Tensor:
    """uint8, by the table of the format's values.

    >>> encode_reference(torch.tensor([1.0, 500.0, 0.3]), **numbers_of("e4m3fn")).tolist()
    [56, 126, 42]
    """
    return torch.from_numpy(format_of(numbers).encode(x.double().numpy()))


def _judge(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    """By the number that a code stands for: of several NaNs any is right."""
    kind, x = format_of(inputs), inputs["x"]
    right = encode_reference(**inputs)
    found = compare(right, value, EXACT)
    if found and found.kind != "value":
        return found
    if value.dtype != torch.uint8:
        return Difference("dtype", f"the result has dtype {value.dtype}, expected torch.uint8")
    codes, expected = value.numpy(), kind.values[right.numpy()]
    there = codes < len(kind.values)
    got = np.where(there, kind.values[np.minimum(codes, len(kind.values) - 1)], 0.0)
    same = (got == expected) & (np.signbit(got) == np.signbit(expected)) | np.isnan(got) & np.isnan(expected)
    wrong = np.argwhere(~(same & there))
    if not len(wrong):
        return None
    at = tuple(wrong[0].tolist())
    became = f"{got[at]:.10g}" if there[at] else f"no code of {kind.bits} bits"
    return Difference(
        "value",
        f"x[{', '.join(map(str, at))}] = {x[at].item():.10g} became {codes[at]:#04x} = {became}; expected "
        f"{int(right[at]):#04x} = {expected[at]:.10g}: {_why(kind, x[at].item(), expected[at].item(), got[at].item())} "
        f"({len(wrong)} of {codes.size} differ)",
    )


def _why(kind: Format, x: float, expected: float, got: float) -> str:
    """The rule by which a code is the right one, in words."""
    if x != x:
        return "NaN stays NaN"
    if abs(x) > kind.largest:
        return "what is too large becomes the largest number of its sign"
    if abs(x) < kind.smallest and not kind.signed:
        return "what is too small becomes the smallest number"
    if expected == 0 and not abs(got) > 0:  # another zero, or NaN
        return "this format has one zero" if kind.specials == "fnuz" else "zero has the sign of x"
    below, above = kind.neighbours(x)
    if x - below == above - x != 0:
        return "a tie goes to the even code" if kind.signed else "a tie goes to the larger number"
    return "a number of the format stays" if below == above else f"{expected:.10g} is the nearest"


def _fresh(rng: random.Random) -> Case:
    return Case("a format that nobody has", **invented(rng), shuffled=True)


def _case(why: str, name: str, **more: Any) -> Case:
    return Case(why, **numbers_of(name), **more)


def _made_up(why: str, *numbers: Any) -> Case:
    return Case(why, **dict(zip(PARAMETERS, numbers, strict=True)))


_WRONG: tuple[tuple[str, str], ...] = (
    (
        "cuts",
        "What is left over is cut here, so every number comes out too near to zero, and a long sum of them drifts. "
        "Round to the nearest.",
    ),
    (
        "ties_away",
        "Right but for ties: halves always go away from zero, as one learns at school. Here they go to the even code, "
        "so that as many go up as down.",
    ),
    (
        "ties_to_zero",
        "Right but for ties: they always go to the smaller of two neighbours. A nearest by argmin takes the first of "
        "two that are equally near. Which of the two codes is even?",
    ),
    (
        "rounds_twice",
        "x was rounded to 16 bits on the way. What lies just beside a middle falls onto it there, and then counts as a "
        "tie: round once.",
    ),
    (
        "carry_is_lost",
        "When the mantissa is rounded up past its last value, the exponent must go up by one. A code is one whole "
        "number: what happens when you add, and do not put the fields together?",
    ),
    (
        "subnormals_are_zero",
        "Everything below the smallest normal number has become zero. Exponent field 0 has numbers too, in even steps.",
    ),
    (
        "subnormals_keep_their_one",
        "Exponent field 0 is right here, and its mantissa is that of a normal number. Below the smallest normal number "
        "steps no longer shrink: of what size are they, and how many of them is x?",
    ),
    (
        "zero_by_frexp",
        "Zero has become another number. torch.frexp gives 0 the exponent 0, as if it lay near 1: which power of two "
        "should it have, so that its code is 0?",
    ),
    (
        "wraps",
        "What is too large runs over into zero and small numbers: a code beyond the last one must be held at the "
        "largest number.",
    ),
    (
        "beyond_is_special",
        "What is too large has become infinity or NaN. That is another convention; here it becomes the largest number: "
        "one activation too many must not cost the whole row.",
    ),
    (
        "infinity_stays",
        "Large numbers saturate, and infinity does not: it is no number of FP8 training, and becomes the largest too.",
    ),
    (
        "clamps_at_448",
        "x is cut to 448 here, in every format. That is the end of E4M3FN alone: where does the format at hand end?",
    ),
    (
        "ends_as_ieee",
        "The largest code is that of IEEE, where the last exponent holds no numbers. `fn`, `fnuz` and `finite` have "
        "numbers there: which is their largest code?",
    ),
    (
        "fnuz_ends_as_fn",
        "`fnuz` ends one code too early: all ones behind the sign is NaN in `fn` only. Its NaN lies elsewhere.",
    ),
    (
        "loses_negative_zero",
        "-0 has lost its sign, because `x < 0` is false for it. Ask for the bit of the sign.",
    ),
    (
        "small_negatives_are_zero",
        "What rounds to zero from below has lost its sign, while -0 itself kept it. A result of zero keeps the sign of "
        "x in every format that has -0.",
    ),
    (
        "fnuz_makes_nan",
        "A zero with a sign has become NaN: in `fnuz` the code of -0 is NaN. It happens to whole tensors of small "
        "negative numbers.",
    ),
    (
        "fnuz_knows_zero_alone",
        "In `fnuz` -0 is a plain zero here, and small negative numbers that round to zero still become NaN. Look at "
        "the code, not at x.",
    ),
    (
        "nan_becomes_zero",
        "NaN has become zero: conversion to a whole number does that, and the broken weight no longer shows. NaN stays "
        "NaN.",
    ),
    ("nan_is_the_largest", "NaN has become the largest number. Saturation is for numbers; NaN stays NaN."),
    (
        "nan_of_fn",
        "The code of NaN is all ones behind the sign here, always. In `fnuz` that is the largest number: where is its "
        "NaN?",
    ),
    (
        "bias_of_ieee",
        "The bias is computed from the width of the exponent. Not every format has that one: take the one that is "
        "given.",
    ),
    (
        "sign_is_bit_7",
        "The sign goes to bit 7. In a format of 4 or 6 bits it stands right above the exponent field.",
    ),
    (
        "power_rounds_down",
        "`power`: this takes the power of two below. Asked is the nearest, measured by the distance.",
    ),
    (
        "power_rounds_up",
        "`power`: this takes the power of two above. That is a choice for scales, where nothing may overflow; asked is "
        "the nearest.",
    ),
    (
        "power_of_the_logarithm",
        "`power`: the logarithm is rounded here, which changes at sqrt(2) = 1.414 times a power. The middle between "
        "two powers, by distance, lies at another place.",
    ),
    (
        "power_ties_to_even",
        "`power`: nearest is right, and a tie goes to the larger power here, whichever code is even.",
    ),
    (
        "power_ends_in_nan",
        "`power`: what is too large has become NaN, because all ones is no number. The largest has the code before it.",
    ),
)

EXERCISE = Exercise(
    id="08.encode",
    title="The code of the nearest number",
    parameters=("x", *PARAMETERS),
    kind="torch",
    inputs=_inputs,
    reference=encode_reference,
    tolerance=lambda case, inputs: EXACT,
    dtype=lambda inputs: None,
    judge=_judge,
    cases=(
        _case("NaN in E4M3FN", "e4m3fn", nan=True),
        Example(
            "the example of the docstring",
            x=lambda: torch.tensor([1.0, 0.3, 500.0, -0.0]),
            **numbers_of("e4m3fn"),
        ),
        _case("E4M3FN: every number, every middle, what lies beside it, both ends", "e4m3fn"),
        _case("E4M3FNUZ: the same, and one zero", "e4m3fnuz"),
        _case("E2M1: the same in four bits, where nothing is NaN", "e2m1"),
        _case("E5M2: the same, with an infinity that must not come out", "e5m2"),
        _case("E8M0: powers of two, and the middles between them", "e8m0"),
        _made_up("five bits with a bias of its own", 3, 1, 4, "fnuz"),
        _made_up("seven bits with IEEE's specials", 3, 3, 5, "ieee"),
        _made_up("six bits: the largest code is 0x1e", 2, 3, 0, "fn"),
        _made_up("powers of five bits with a bias of their own", 5, 0, 9, "power"),
        _case("NaN in E4M3FNUZ", "e4m3fnuz", nan=True),
        _case("NaN in E5M2", "e5m2", nan=True),
        _case("NaN in E8M0", "e8m0", nan=True),
    ),
    fresh=_fresh,
    misconceptions=tuple(Misconception(name, slipped(name), hint) for name, hint in _WRONG),
    hints=(
        "How many steps of the format is |x|, where a step is what one more in the mantissa adds? torch.frexp gives "
        "the power of two of x without a logarithm, and torch.round rounds halves to even. `power` is a branch of its "
        "own.",
        "With 2^p <= |x| < 2^(p + 1), and p at least 1 - bias, a step is 2^(p - m). Steps plus (p - (1 - bias)) * 2^m "
        "is the code without the sign: a carry goes into the exponent by itself. Then the largest code, the sign, NaN.",
        "power = torch.frexp(x.abs().clamp(min=2.0 ** (1 - bias))).exponent - 1; steps = torch.round(torch.ldexp("
        "x.abs(), m - power)); code = steps + (power - (1 - bias)) * 2**m, at most the largest; add the sign bit where "
        "x.signbit(), in `fnuz` only where code > 0. `power`: up where frexp's mantissa is 0.75 or more.",
    ),
    explanation=(
        "The codes of one sign are in the order of their numbers, so rounding up is adding one to the code, also "
        "across a power of two. Below the smallest normal number the power stays and the steps with it: that one "
        "clamp makes subnormals and zero right. Halves go to the even code, so that a sum of many roundings has no "
        "drift. A value is rounded once, from all of its digits: what a 16-bit number on the way has made a tie, the "
        "second rounding cannot know."
    ),
)
