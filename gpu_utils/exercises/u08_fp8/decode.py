"""08.decode: the numbers that the codes of a narrow format stand for, to the bit."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import EXACT
from gpu_utils.exercises.u08_fp8.decode_slips import slipped
from gpu_utils.exercises.u08_fp8.kinds import PARAMETERS, format_of, invented, numbers_in, numbers_of
from gpu_utils.formats import Format
from gpu_utils.grading.compare import Difference, compare
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs, Misconception


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    """Every code of the format, in order; or codes drawn in a shape."""
    numbers = numbers_in(case)
    codes = torch.arange(1 << format_of(numbers).bits, dtype=torch.uint8)
    if shape := case.get("shape"):
        codes = torch.randint(len(codes), shape, generator=generator, dtype=torch.uint8)
    return {"codes": codes, **numbers}


def decode_reference(codes: Tensor, **numbers: Any) -> Tensor:
    """float64, by the table of the format's values.

    >>> decode_reference(torch.tensor([0x38, 0x7E], dtype=torch.uint8), **numbers_of("e4m3fn")).tolist()
    [1.0, 448.0]
    """
    return torch.from_numpy(format_of(numbers).values)[codes.long()]


def _judge(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    """Kinds: those of the comparison, and "sign" where only the sign of a zero is wrong."""
    expected = decode_reference(**inputs)
    found = compare(expected, value, EXACT, torch.float64)
    if found and found.kind not in ("value", "nan"):
        return found
    wrong = (value != expected) & ~(value.isnan() & expected.isnan())
    kind = "value"
    if not wrong.any():
        kind, wrong = "sign", (value.signbit() != expected.signbit()) & (expected == 0)
    if not wrong.any():
        return None
    place = tuple(wrong.nonzero()[0].tolist())
    code = int(inputs["codes"][place])
    said = f"code {_bits(format_of(inputs), code)} became {value[place].item()!r}, expected {expected[place].item()!r}"
    return Difference(kind, f"{said}; {int(wrong.sum())} of {wrong.numel()} codes differ")


def _bits(kind: Format, code: int) -> str:
    """A code and its fields.

    >>> _bits(format_of(numbers_of("e4m3fn")), 0xBC)
    '0xbc = 1|0111|100'
    """
    digits = f"{code:0{kind.bits}b}"
    ends = (0, int(kind.signed), kind.bits - kind.mantissa_bits, kind.bits)
    fields = (digits[start:end] for start, end in pairwise(ends))
    return f"{code:#04x} = {'|'.join(field for field in fields if field)}"


def _fresh(rng: random.Random) -> Case:
    return Case("a format that nobody has", shape=(rng.randint(2, 9), rng.randint(60, 90)), **invented(rng))


def _case(why: str, name: str, **more: Any) -> Case:
    return Case(why, **numbers_of(name), **more)


def _made_up(why: str, *numbers: Any) -> Case:
    return Case(why, **dict(zip(PARAMETERS, numbers, strict=True)))


_WRONG: tuple[tuple[str, str], ...] = (
    (
        "no_subnormals",
        "Where the exponent field is 0 there is no 1 before the mantissa: those are zero and the subnormal numbers. "
        "Which number should code 0 be?",
    ),
    (
        "only_zero_is_special",
        "Code 0 is right. The codes that follow it have exponent field 0 as well, and the same rule as zero: no 1 "
        "before the mantissa.",
    ),
    (
        "subnormals_one_lower",
        "The subnormal numbers are half of what they should be. They continue the first normal numbers downwards in "
        "equal steps, so which power of two do they share with them?",
    ),
    (
        "subnormals_are_zero",
        "All codes with exponent field 0 are zero here. Only one mantissa of them is; FP8 needs the others, and has "
        "hardware for them.",
    ),
    (
        "no_hidden_one",
        "A normal number has a 1 before its mantissa that is not stored: mantissa 0 is 1.000 in binary, not 0.",
    ),
    (
        "mantissa_as_a_whole_number",
        "The mantissa is taken for a whole number beside the 1. It is what follows the binary point: its bits count a "
        "half, a quarter, an eighth.",
    ),
    (
        "bias_of_ieee",
        "The bias is computed from the width of the exponent here. Not every format has that one: E4M3FNUZ has 8 in "
        "place of 7. Take the one that is given.",
    ),
    (
        "wraps_in_uint8",
        "Numbers below 1 have become enormous: uint8 minus a bias cannot be negative and goes around at 256. Give the "
        "codes a wider type before you compute with them.",
    ),
    (
        "sign_is_bit_7",
        "The sign is looked for in bit 7. A format of 4 bits has it in bit 3: it stands above the exponent field, "
        "wherever that ends.",
    ),
    (
        "loses_negative_zero",
        "Zero has lost its sign. A whole number has no -0, so a sign that is multiplied in before the number is a "
        "float has no effect on it.",
    ),
    (
        "one_kind_of_specials",
        "Every format with a sign is read by IEEE's rule here: the largest exponent for infinity and NaN. `fn`, `fnuz` "
        "and `finite` use it for numbers, all or nearly all of its codes.",
    ),
    (
        "last_exponent_is_nan",
        "`fn` has given up infinity for more numbers: with the largest exponent only one mantissa is NaN. E4M3FN ends "
        "at 448, not at 240.",
    ),
    ("fn_has_no_nan", "In `fn` the codes with all ones behind the sign are not a number, whatever the sign."),
    ("one_nan_of_two", "`fn` has two NaNs, one with each sign. Only one of them was found."),
    (
        "fnuz_is_fn",
        "`fnuz` is read like `fn` here. It has the unsigned zero and a NaN elsewhere: which code would have been -0, "
        "and what is all ones?",
    ),
    ("fnuz_has_no_nan", "`fnuz` has one zero. The code that would be -0 is taken for something else, its only NaN."),
    (
        "ieee_is_finite",
        "`ieee` keeps the codes with the largest exponent field for infinity and NaN, here they are numbers.",
    ),
    (
        "infinity_is_nan",
        "Among the codes with the largest exponent `ieee` has two infinities: which mantissa tells them from NaN?",
    ),
    ("one_infinity", "`ieee` has two infinities: -inf has come out as inf. The sign belongs to it too."),
    (
        "powers_have_a_sign",
        "A `power` has no sign, and all of its bits are exponent: E8M0's code 0x80 is 2^(128 - 127), and no negative "
        "number.",
    ),
    (
        "powers_are_floats",
        "A `power` is read as a float without mantissa here: code 0 becomes a subnormal, and all ones a number. Its "
        "value is 2^(code - bias) from the first code on, and the last is NaN.",
    ),
    (
        "power_zero",
        "A `power` has no zero: code 0 is the smallest power of two. A scale of 0 would wipe out its whole block.",
    ),
    ("power_without_nan", "All ones of a `power` is NaN, so the largest number has the code before it."),
    (
        "in_float32",
        "The numbers are right, in float32. The statement asks for float64: 2^-127 is below the normal numbers of "
        "float32, and not every device keeps it.",
    ),
)

EXERCISE = Exercise(
    id="08.decode",
    title="What the codes of a narrow format stand for",
    parameters=("codes", *PARAMETERS),
    kind="torch",
    inputs=_inputs,
    reference=decode_reference,
    tolerance=lambda case, inputs: EXACT,
    dtype=lambda inputs: torch.float64,
    judge=_judge,
    cases=(
        Example(
            "the example of the docstring",
            codes=lambda: torch.tensor([0x38, 0x3A, 0xB8, 0x01], dtype=torch.uint8),
            **numbers_of("e4m3fn"),
        ),
        _case("E4M3FN, every code: two NaNs and no infinity", "e4m3fn"),
        _case("E4M3FNUZ, every code: another bias, one zero, one NaN", "e4m3fnuz"),
        _case("E5M2, every code: infinities and NaN as IEEE has them", "e5m2"),
        _case("E2M1, every code: four bits, all of them numbers", "e2m1"),
        _case("E8M0, every code: powers of two, no sign and no zero", "e8m0"),
        _case("three axes, one of length 1", "e4m3fn", shape=(3, 1, 5)),
        _made_up("six bits with IEEE's specials and a bias of its own", 3, 2, 5, "ieee"),
        _made_up("six bits: all ones is not 0x7f", 2, 3, 0, "fn"),
        _made_up("five bits: -0 is not 0x80", 3, 1, 4, "fnuz"),
        _made_up("powers of five bits with a bias of their own", 5, 0, 9, "power"),
        _made_up("a bias so large that float32 has no such numbers", 4, 3, 200, "finite"),
    ),
    fresh=_fresh,
    misconceptions=tuple(Misconception(name, slipped(name), hint) for name, hint in _WRONG),
    hints=(
        "Three fields from the top: sign, exponent, mantissa. Shifts and % take them out of a code that is an int64. "
        "Do one kind of specials after the other; `power` is a branch of its own.",
        "A normal number is (2^m + mantissa) * 2^(field - bias - m), with m bits of mantissa. Where the field is 0 the "
        "2^m is missing and the power is that of field 1. Put the sign on when it is a float, and the specials last.",
        "digits = mantissa + torch.where(field > 0, 2**mantissa_bits, 0); value = digits * torch.exp2((field.clamp("
        "min=1) - bias - mantissa_bits).double()); value = torch.where(sign == 1, -value, value). Then the NaNs and "
        "infinities of `specials`, by torch.where.",
    ),
    explanation=(
        "A code is a whole number of steps: the mantissa counts them, the exponent field says how large a step is, and "
        "field 0 has the steps of field 1 without the leading 1, so that the numbers go on evenly down to zero. All "
        "formats share that; they differ in the bias and in which few codes are given up for NaN and infinity. E4M3FN "
        "gives up two and reaches 448; by IEEE's rule it would give up sixteen and end at 240."
    ),
)
