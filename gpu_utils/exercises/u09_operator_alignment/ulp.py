"""09.ulp: how many numbers of the type lie between two results."""

from __future__ import annotations

import random
from typing import Any

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import EXACT
from gpu_utils.exercises.u09_operator_alignment.ulp_slips import CODES, places, slipped
from gpu_utils.grading.compare import Difference, compare
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs, Misconception

DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}


def _from_places(number: Tensor, dtype: torch.dtype) -> Tensor:
    """The numbers at these places, counted from 0 with their sign."""
    code = CODES[dtype]
    return torch.where(number < 0, torch.iinfo(code).min - number, number).to(code).view(dtype)


def _infinity(dtype: torch.dtype) -> int:
    """The place of infinity: one more than that of the largest number."""
    return int(places(torch.tensor(torch.inf, dtype=dtype)))


def _specials(dtype: torch.dtype) -> Tensor:
    """Numbers around which a count goes wrong: zeros, ends of the subnormal ones, powers of two, the ends."""
    info = torch.finfo(dtype)
    sizes = torch.tensor([0, info.smallest_normal, 0.25, 1, 2, 3, info.max], dtype=dtype)
    around = torch.cat([places(sizes) + step for step in (-1, 0, 1)])
    around = around[(around >= 0) & (around <= _infinity(dtype))].unique()
    found = _from_places(around, dtype)
    return torch.cat([found, -found])


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    dtype, shape = DTYPES[case["dtype"]], case.get("shape", ())
    end = _infinity(dtype)
    if case["numbers"] == "specials":
        numbers = _specials(dtype)
        a, b = (x.contiguous() for x in torch.meshgrid(numbers, numbers, indexing="ij"))
        return {"a": a, "b": b}
    at = torch.randint(-end, end + 1, shape, generator=generator)
    if case["numbers"] == "near":
        step = torch.randint(1, 20, shape, generator=generator)
        return {"a": _from_places(at, dtype), "b": _from_places(torch.where(at > 0, at - step, at + step), dtype)}
    b = _from_places(torch.randint(-end, end + 1, shape, generator=generator), dtype)
    a = _from_places(at, dtype)
    if case["numbers"] == "nan":  # of all pairs of signs, with several payloads, and beside numbers
        nans = torch.tensor([end + 1, end + 3, -end - 1, -end - 5])
        a[0, :4] = _from_places(nans, dtype)
        b[0, 1:3] = _from_places(nans[2:], dtype)
        b[1, :4] = _from_places(nans, dtype)
    if case.get("turned"):
        a, b = a.t(), b.t().contiguous()
    return {"a": a, "b": b}


def ulp_reference(a: Tensor, b: Tensor) -> Tensor:
    """int64: the places from one to the other; 0 for NaN and NaN, 2^63 - 1 for NaN and a number.

    >>> ulp_reference(torch.tensor([1.0, -0.0]), torch.tensor([1.0 - 2**-24, 2**-149])).tolist()
    [1, 1]
    """
    return slipped("")(a, b)


def _judge(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    expected = ulp_reference(**inputs)
    found = compare(expected, value, EXACT)
    if found is None or found.kind != "value":
        return found
    at = tuple((value.long() != expected).nonzero()[0].tolist())
    wrong = int((value.long() != expected).sum())
    a, b = (_shown(inputs[name][at]) for name in ("a", "b"))
    return Difference(
        "value",
        f"{a} and {b} are {int(value[at]):,} apart, expected {int(expected[at]):,} "
        f"({wrong} of {expected.numel()} differ; {str(inputs['a'].dtype).removeprefix('torch.')})",
    )


def _shown(x: Tensor) -> str:
    """A number with its bits."""
    code = x.view(CODES[x.dtype]).item() % 2 ** torch.finfo(x.dtype).bits
    return f"{x.item():.9g} ({code:#0{torch.finfo(x.dtype).bits // 4 + 2}x})"


def _fresh(rng: random.Random) -> Case:
    shape = (rng.randint(3, 40), rng.randint(4, 60))
    dtype, numbers = rng.choice(sorted(DTYPES)), rng.choice(["near", "any", "nan"])
    return Case("numbers that nobody chose", dtype=dtype, numbers=numbers, shape=shape)


def _case(why: str, dtype: str, numbers: str, **more: Any) -> Case:
    return Case(why, dtype=dtype, numbers=numbers, **more)


_WRONG: tuple[tuple[str, str], ...] = (
    (
        "over_eps",
        "The difference is divided by eps, which is the spacing between 1 and 2 only. Numbers lie closer below and "
        "wider above.",
    ),
    (
        "relative",
        "This is a relative error in eps. Between two powers of two the spacing stays the same, while |a| doubles: "
        "such a count is off by up to 2.",
    ),
    (
        "of_larger",
        "The difference is counted in steps of the larger number. Where a power of two lies between, or far below, "
        "numbers are denser there: all between must be counted.",
    ),
    (
        "of_a",
        "The difference is counted in steps of a. Where b lies beyond a power of two the steps are others, and the "
        "distance from b to a must be that from a to b.",
    ),
    (
        "raw_codes",
        "The codes are subtracted as they are. With one sign that is right; of negative numbers the code is not the "
        "place: the sign is a bit, not a two's complement. Try -0 and 0.",
    ),
    (
        "unsigned_codes",
        "The codes are subtracted as whole numbers without a sign: all negative numbers lie beyond all positive ones "
        "then, and in the wrong direction. Try -0 and 0.",
    ),
    (
        "narrow",
        "Right for near numbers. Far ones overflow the integers that hold the codes, and come back from the other "
        "side: widen to int64 before you subtract.",
    ),
    (
        "ones_complement",
        "One too many across zero: ~code puts -0 one below 0. Both have the same place.",
    ),
    (
        "float32_first",
        "Both were converted to float32, which has many numbers between two neighbours of 16 bits. Count in the type "
        "that they come in.",
    ),
    (
        "denormals_are_zero",
        "Subnormal numbers have become zero. They are numbers of the type, whatever a chip does with them.",
    ),
    (
        "denormals_skipped",
        "From zero to the smallest normal number is one step here. All subnormal numbers lie between.",
    ),
    (
        "nan_by_code",
        "Of NaN the code is counted as if it were a number beyond infinity. Which pairs hold one NaN, and which two?",
    ),
    (
        "nan_unlike_nan",
        "Where both are NaN the distance is 0: two results that agree, even in being broken.",
    ),
    (
        "any_nan_is_0",
        "Where one of the two is NaN and the other a number, they are as far apart as can be; 0 hides the fault.",
    ),
    (
        "minus_1_for_nan",
        "NaN beside a number has become -1. A largest distance over all elements would never show it.",
    ),
    (
        "infinity_is_far",
        "Infinity counts as a number here, one step above the largest: an overflow by one rounding is one step.",
    ),
    (
        "only_between",
        "One too few: the numbers strictly between are counted. Neighbours are 1 apart, as steps go.",
    ),
    ("signed", "The distance has a sign. It is the same from b to a."),
    (
        "sizes_only",
        "The sign is left out: 1 and -1 have become equal. The way between them leads through zero.",
    ),
    (
        "always_int32",
        "The bits are read as int32, whatever the type: of 16-bit numbers that takes two at a time. Which integer has "
        "as many bits as the type?",
    ),
    (
        "whole_numbers",
        "The numbers were converted to whole ones: that counts integers between them. Reading the same bits as an "
        "integer is another operation.",
    ),
)

EXERCISE = Exercise(
    id="09.ulp",
    title="Units in the last place",
    parameters=("a", "b"),
    kind="torch",
    inputs=_inputs,
    reference=ulp_reference,
    tolerance=lambda case, inputs: EXACT,
    dtype=lambda inputs: None,
    judge=_judge,
    cases=(
        Example(
            "the example of the docstring",
            a=lambda: torch.tensor([1.0, 1.0, -0.0], dtype=torch.float16),
            b=lambda: torch.tensor([1 + 2**-10, 1 - 2**-11, 0.0], dtype=torch.float16),
        ),
        _case("zeros, subnormal numbers, powers of two, the ends: each with each", "float16", "specials"),
        _case("the same with eight bits of exponent", "bfloat16", "specials"),
        _case("the same in float32, where the two ends are more than 2^31 apart", "float32", "specials"),
        _case("NaN of either sign, beside numbers and beside NaN", "float16", "nan", shape=(3, 7)),
        _case("near ones from the whole range", "float32", "near", shape=(50, 9)),
        _case("any two, in a transposed tensor", "bfloat16", "any", shape=(6, 11), turned=True),
        _case("one number", "bfloat16", "any", shape=()),
        _case("nothing", "float32", "any", shape=(0, 3)),
        _case("NaN in float32", "float32", "nan", shape=(2, 5)),
    ),
    fresh=_fresh,
    misconceptions=tuple(Misconception(name, slipped(name), hint) for name, hint in _WRONG),
    hints=(
        "Write the 16 bits of 0, of the smallest subnormal number, of 1 and of its two neighbours below each other. "
        "What do they say as whole numbers? And those of -0 and of the largest negative number?",
        "x.view(torch.int16) reads the same bits as a whole number (int32 for float32). For numbers that are not "
        "negative it is the place, counted from 0. For negative ones the sign bit must go, and the place is negative. "
        "Subtract in int64.",
        "bits = x.view(torch.int16).long(); place = torch.where(bits < 0, -(bits + 2**15), bits); (place_a - "
        "place_b).abs(). Then torch.where on a.isnan() and b.isnan(): 0 where both are, torch.iinfo(torch.int64).max "
        "where one is.",
    ),
    explanation=(
        "The codes of one sign are in the order of their numbers: that is what the bias of the exponent is for. So the "
        "place of a number is its code, and the distance of two is a subtraction, across powers of two and among "
        "subnormal numbers too. Only the sign is stored apart from the size: the place of a negative number is minus "
        "that of its size, and both zeros have the place 0. One ulp is the least that two different results can be "
        "apart, so a histogram of distances reads the same at every magnitude and in every type."
    ),
)
