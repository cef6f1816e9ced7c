"""08.fn_to_fnuz: bytes of E4M3FN to the bytes of the same numbers in E4M3FNUZ, by one kernel."""

from __future__ import annotations

import math
import random
from typing import Any

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import EXACT
from gpu_utils.exercises.u08_fp8 import fn_to_fnuz_slips as slips
from gpu_utils.exercises.u08_fp8.fn_to_fnuz_slips import slipped
from gpu_utils.formats import FORMATS
from gpu_utils.grading.compare import Difference, compare
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs, Limit, Misconception

FN, FNUZ = FORMATS["e4m3fn"], FORMATS["e4m3fnuz"]


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    """Every code, or codes drawn in a shape; what lies beside a view is codes as well."""
    shape = case["shape"]
    if case["view"] == "every code":
        return {"codes": torch.arange(256, dtype=torch.uint8).view(shape)}
    if case["view"] == "transposed":
        return {"codes": _drawn(tuple(reversed(shape)), generator).permute(*reversed(range(len(shape))))}
    if case["view"] == "part":
        first, *outer = shape[:-2]
        whole = _drawn((first, *(size + 1 for size in outer), shape[-2] + 3, 2 * shape[-1]), generator)
        return {"codes": whole[(slice(None), *(slice(1, None) for _ in outer), slice(2, -1), slice(None, None, 2))]}
    return {"codes": _drawn(shape, generator)}


def _drawn(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.randint(256, shape, generator=generator, dtype=torch.uint8)


def fn_to_fnuz_reference(codes: Tensor) -> Tensor:
    """By the numbers: decoded as FN, encoded as FNUZ.

    >>> fn_to_fnuz_reference(torch.tensor([0x38, 0x7E, 0xFF], dtype=torch.uint8)).tolist()
    [64, 127, 128]
    """
    return torch.from_numpy(FNUZ.encode(FN.decode(codes.numpy())))


def _judge(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    codes, right = inputs["codes"], fn_to_fnuz_reference(inputs["codes"])
    found = compare(right, value, EXACT)
    if found and found.kind != "value":
        return found
    if value.dtype != torch.uint8:
        return Difference("dtype", f"the result has dtype {value.dtype}, expected torch.uint8")
    wrong = (value != right).nonzero()
    if not len(wrong):
        return None
    at = tuple(wrong[0].tolist())
    code, got, expected = (int(each[at]) for each in (codes, value, right))
    return Difference(
        "value",
        f"codes[{', '.join(map(str, at))}] = {code:#04x} = {FN.decode(code):.10g} in FN became {got:#04x} = "
        f"{FNUZ.decode(got):.10g} in FNUZ, expected {expected:#04x} = {FNUZ.decode(expected):.10g}; {len(wrong)} of "
        f"{codes.numel()} differ",
    )


def _elements(case: Case) -> int:
    return int(case.inputs["codes"].numel()) if isinstance(case, Example) else math.prod(case["shape"])


def _most_bytes(case: Case) -> float:
    return 1.1 * _elements(case) + 1024


def _fresh(rng: random.Random) -> Case:
    shape = (rng.randint(2, 5), rng.randint(9, 40), rng.randint(5, 40))
    return Case("a shape nobody chose", shape=shape, view=rng.choice(["transposed", "part", "whole"]))


_WRONG: tuple[tuple[str, Any, str], ...] = (
    (
        "keeps_the_bytes",
        slipped("keeps the bytes"),
        "These bytes are half of the numbers in FNUZ. In 03.fp8_weights the scale made up for it; here no scale may "
        "change, so the bytes must.",
    ),
    (
        "adds_everywhere",
        slipped("adds everywhere"),
        "Normal numbers are right. Zero and the subnormal numbers have no exponent that could be one more: what "
        "becomes of a number with exponent field 0?",
    ),
    (
        "spares_zero",
        slipped("spares zero"),
        "Normal numbers and zero are right. The seven subnormal sizes have exponent field 0 too, and counting it up "
        "puts a 1 before their mantissa.",
    ),
    (
        "subnormals_stay",
        slipped("subnormals stay"),
        "Numbers with exponent field 0 keep their byte here. But the steps there are half as large in FNUZ as in FN: "
        "how many of them make the same number?",
    ),
    (
        "subnormals_lost",
        slipped("subnormals lost"),
        "Numbers with exponent field 0 have become zero. FNUZ holds each of them, exactly.",
    ),
    (
        "halves",
        slipped("halves"),
        "The numbers have come out a quarter of what they were: the exponent was moved the wrong way. FNUZ's bias is "
        "one larger, so the same number has a larger field.",
    ),
    (
        "no_end",
        slipped("no end"),
        "FN's numbers above 240 have run over into the bit of the sign. FNUZ ends before FN does: what should become "
        "of them?",
    ),
    (
        "beyond_is_nan",
        slipped("beyond is nan"),
        "What is above 240 has become NaN. It is a number, and the nearest that FNUZ has is its largest.",
    ),
    (
        "ends_one_early",
        slipped("ends one early"),
        "The largest number is taken for 0x7e = 224, as FN's largest is 0x7e. What is 0x7f in FNUZ?",
    ),
    (
        "zero_keeps_its_sign",
        slipped("zero keeps its sign"),
        "0x80 came out as 0x80: FN's negative zero, and FNUZ's NaN. A cache is full of them.",
    ),
    (
        "nan_is_a_number",
        slipped("nan is a number"),
        "FN's NaN has become 240: 0x7f and 0xff are numbers in FNUZ. A NaN that looks like a number is found by "
        "nobody.",
    ),
    ("one_nan", slipped("one nan"), "FN has a NaN with each sign; that of one sign has become a number."),
    (
        "new_nan_is_zero",
        slipped("new nan is zero"),
        "NaN has become zero. Was it made 0x80 first, and then taken for FN's negative zero? Test the bytes that came, "
        "not those that you have made.",
    ),
    ("no_sign", slipped("no sign"), "Negative numbers have come out positive: put the bit of the sign back."),
    (
        "mask_one_long",
        slipped("one long"),
        "One lane too many takes part: with n bytes the last one has number n - 1.",
    ),
    (
        "grid_rounds_down",
        slipped(programs=lambda n: n // slips.BLOCK),
        "The last, partly filled block has no program. How many blocks does it take to cover n bytes?",
    ),
    (
        "a_program_for_each_byte",
        slipped(programs=lambda n: n),
        "There is a program for each byte, and each of them takes a block of bytes: most find nothing to do. How many "
        "blocks are there?",
    ),
    (
        "taken_as_contiguous",
        slipped(steps=slips.as_contiguous),
        "Right where the codes lie side by side. Of a view this reads what lies behind its first byte: find each "
        "element by the strides of the view.",
    ),
    (
        "last_axis_side_by_side",
        slipped(steps=slips.last_axis_side_by_side),
        "The elements of the last axis are taken for neighbours. In a transpose, or in every second column, they are "
        "not: the last axis has a stride too.",
    ),
    (
        "makes_it_contiguous",
        slipped(before=lambda codes: codes.contiguous()),
        "contiguous() reads and writes a view once more before your kernel does: the strides say where each byte lies.",
    ),
    (
        "flattened",
        slipped(after=lambda out: out.flatten()),
        "The bytes are right, in one long row. The result has the shape of `codes`.",
    ),
    (
        "as_words",
        slipped(after=lambda out: out.to(torch.int32)),
        "The codes are right, and each takes four bytes: the result is uint8.",
    ),
    (
        "as_a_float_type",
        slipped(after=lambda out: out.view(torch.float8_e4m3fnuz)),
        "The bytes are right, under the name of their number format. Asked are the bytes themselves, as uint8.",
    ),
    (
        "in_two_launches",
        slips.in_two_launches,
        "Two launches go over all bytes twice. What the second one does can be done on what the first has in "
        "registers.",
    ),
    (
        "in_place",
        slips.in_place,
        "The codes were overwritten. Whoever reads the cache as FN next finds other numbers: write to new memory.",
    ),
    (
        "reads_twice",
        slipped("reads twice"),
        "Each byte is loaded twice, or a table is asked for each byte. What was loaded is still in a register, and "
        "three rules need no table.",
    ),
)

EXERCISE = Exercise(
    id="08.fn_to_fnuz",
    title="From FN to FNUZ, with the scale as it is",
    parameters=("codes",),
    kind="kernel",
    inputs=_inputs,
    reference=fn_to_fnuz_reference,
    tolerance=lambda case, inputs: EXACT,
    dtype=lambda inputs: None,
    judge=_judge,
    cases=(
        Case("every code", shape=(256,), view="every code"),
        Case("a transpose, and blocks that are not full", shape=(37, 71), view="transposed"),
        Case("a part of a cache: four axes, every other column", shape=(2, 3, 15, 16), view="part"),
        Example(
            "the example of the docstring",
            codes=lambda: torch.tensor([0x38, 0x01, 0x7E, 0x80, 0xFF], dtype=torch.uint8),
        ),
        Case("long, and one byte more than whole blocks: bytes are counted", shape=(2, 3, 1639), view="whole"),
    ),
    fresh=_fresh,
    misconceptions=tuple(Misconception(*wrong) for wrong in _WRONG),
    limits=(
        Limit(
            "launches",
            "One launch of one kernel does all of it.",
            at_least=lambda case: 1,
            at_most=lambda case: 1,
        ),
        Limit(
            "global_load_bytes",
            "Each byte must be loaded once. What else is loaded? Or has a program more lanes than elements (BLOCK "
            "below 256), so that several of them load the same one?",
            at_most=_most_bytes,
        ),
        Limit(
            "blocks",
            "Most of these programs find nothing to do: a program takes BLOCK bytes. Count blocks, not bytes.",
            at_most=lambda case: max(1024.0, _elements(case) / 16),
        ),
        Limit("global_store_bytes", "Each byte of the result must be stored once.", at_most=_most_bytes),
    ),
    torch_may=(),
    hints=(
        "Take the sign off first: what is left is a number from 0 to 0x7f. Decode 0x38 to 0x3f in both formats, then "
        "0x00 to 0x08, and look how codes of the same number differ.",
        "One more in the exponent field is 8 more in the code. With exponent field 0 there is none to count up; there "
        "the steps are half as large in FNUZ, so it takes twice as many. Then what is too large, zero, and NaN.",
        "size = code & 0x7f; new = tl.where(size < 8, 2 * size, size + 8); new = tl.minimum(new, 0x7f); the sign only "
        "where size > 0; 0x80 where size == 0x7f.",
    ),
    explanation=(
        "FNUZ's bias is one larger, so a normal number has an exponent field one larger: 8 more in the code. A "
        "subnormal number counts steps, which are half as large in FNUZ: twice the code. At 8 steps both rules say 16, "
        "so they meet. All of FN's numbers up to 240 are there, exactly; what is lost is the top, 256 to 448. Doubling "
        "the scale instead loses nothing, and is what one does with weights. A cache that is written with a fixed "
        "scale by somebody else has no such choice."
    ),
)
