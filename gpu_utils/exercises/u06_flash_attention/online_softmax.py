"""06.online_softmax: partial results of attention, each relative to its own maximum, merged into one."""

from __future__ import annotations

import math
import random

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import Tolerance, tolerance
from gpu_utils.exercises.u06_flash_attention import online_softmax_slips as slips
from gpu_utils.exercises.u06_flash_attention.online_softmax_slips import FAR
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs, Limit, Misconception

COUNTED = 64
"""Columns where bytes are counted: each row is made of whole transactions."""


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    parts, rows, d = case["parts"], case["rows"], case["d"]
    m = 3 * torch.randn(parts, rows, generator=generator)
    l = 1 + 9 * torch.rand(parts, rows, generator=generator)
    signs = 1 - 2 * torch.randint(2, (parts, rows, d), generator=generator)
    o = l[:, :, None] * (torch.rand(parts, rows, d, generator=generator) + 0.5) * signs
    if case.get("around"):
        m += case["around"] * (1 - 2 * (torch.arange(rows) % 2)) - 30.0 * torch.arange(parts)[:, None]
    if case.get("empty"):
        # one of the parts in each row, from the first to the last; in each fifth row all of them
        empty = torch.arange(rows) % parts == torch.arange(parts)[:, None]
        empty[:, ::5] = True
        m[empty], l[empty] = -math.inf, 0.0
    return {"o": o, "m": m, "l": l}


def merge_reference(o: Tensor, m: Tensor, l: Tensor) -> tuple[Tensor, Tensor]:
    """The merged result and the logarithm of its sum, in float64; 0 and -inf where every part is empty."""
    logs = m.double() + l.double().log()
    lse = torch.logsumexp(logs, 0)
    weights = torch.exp(m.double() - lse.where(lse > -math.inf, 0.0))
    return (weights[:, :, None] * o.double()).sum(0), lse


def _tolerance(case: Case, inputs: Inputs) -> dict[int, Tolerance]:
    # e^-x is off by a share of x roundings, so by less than one of 1; and x is the difference of two maxima
    parts, m = len(inputs["o"]), inputs["m"]
    largest = float(m.masked_fill(m.isinf(), 0).abs().max())
    return {
        0: tolerance(torch.float32, k=parts + 2, magnitude=1.5),
        1: tolerance(torch.float32, k=parts + 2 + math.ceil(math.log2(1 + largest))),
    }


def _bytes(case: Case) -> float:
    """Of the vectors, where they are counted; infinite elsewhere."""
    if isinstance(case, Example) or case["d"] % COUNTED:
        return math.inf
    return 4.0 * case["rows"] * case["d"]


def _fresh(rng: random.Random) -> Case:
    # d as in a public case: the compiler has met it
    rows, parts = 2 * rng.randrange(9, 40) + 1, rng.randrange(2, 9)
    return Case("sizes nobody chose", parts=parts, rows=rows, d=24, empty=rng.random() < 0.5)


EXERCISE = Exercise(
    id="06.online_softmax",
    title="Partial results of attention, merged",
    parameters=("o", "m", "l"),
    kind="kernel",
    inputs=_inputs,
    reference=merge_reference,
    tolerance=_tolerance,
    dtype=lambda inputs: torch.float32,
    parts=("out", "lse"),
    cases=(
        Case("three parts; neither rows nor columns fill a block", parts=3, rows=37, d=24),
        Case("some parts of a row are empty, the first, the last or all of them", parts=4, rows=45, d=24, empty=True),
        Case("maxima near 10,000 and near -10,000, the first part's the highest", parts=3, rows=21, d=24, around=1e4),
        Case("one part: nothing to merge, and still to divide", parts=1, rows=33, d=24),
        Case("whole rows: here every byte is counted", parts=6, rows=64, d=COUNTED),
    ),
    fresh=_fresh,
    limits=(
        Limit("launches", "Launch your own kernel: online_softmax_kernel[grid](...).", at_least=lambda case: 1),
        Limit(
            "launches",
            "One launch can do all of it: a program takes some rows, and goes through their parts.",
            at_most=lambda case: 1,
        ),
        Limit(
            "global_store_bytes",
            "Only out and lse are to be stored, each element once: what is merged so far stays in registers.",
            at_most=lambda case: 1.05 * _bytes(case) * (1 + 1 / COUNTED),
        ),
        Limit(
            "global_moved_bytes",
            "Each vector is to be loaded once. m and l of neighbouring rows lie side by side; a program with one row "
            "fetches a whole line (128 bytes on gfx942) for 4 of them. Give a program a block of rows, and load their "
            "m and l once, not for each column anew.",
            at_most=lambda case: 1.75 * _bytes(case) * (case["parts"] + 1) if _bytes(case) < math.inf else math.inf,
        ),
        Limit(
            "scratch_bytes",
            "Registers spill to memory: take fewer rows to a program.",
            at_most=lambda case: 0,
        ),
    ),
    torch_may=(),
    seconds=30.0,
    misconceptions=(
        Misconception(
            "parts_added_as_they_are",
            slips.answer(old_o=0, old_l=0, new_o=0, new_l=0),
            "Sums of parts are added although each is relative to a maximum of its own. Bring them to one maximum "
            "first: each part has a factor.",
        ),
        Misconception(
            "vector_not_rescaled",
            slips.answer(old_o=0),
            "The sum l is brought to the new maximum, and the vector is not. Both are sums of exp(s - m), and both "
            "need the factor.",
        ),
        Misconception(
            "sum_not_rescaled",
            slips.answer(old_l=0),
            "The vector is brought to the new maximum, and the sum l is not. Both are sums of exp(s - m), and both "
            "need the factor.",
        ),
        Misconception(
            "new_part_not_rescaled",
            slips.answer(new_o=0, new_l=0),
            "What was merged before is rescaled, and the part that joins is not. Its own maximum may be the lower one: "
            "then it is that part which has to shrink.",
        ),
        Misconception(
            "sum_of_the_part_not_rescaled",
            slips.answer(new_l=0),
            "Of the part that joins, the vector has its factor, and the sum l has not: both sides shrink, each by its "
            "own factor.",
        ),
        Misconception(
            "mean_of_the_parts",
            slips.mean_of_the_parts,
            "Each part is divided by its own sum, and the quotients are averaged. A part with large scores weighs more "
            "than one with small ones: divide once, behind the merge.",
        ),
        Misconception(
            "no_maximum",
            slips.answer(raw=1),
            "Each part is multiplied by exp(m), which is infinite for m = 89 and 0 for m = -104. Only differences of "
            "maxima belong into exp: exp(m - the highest).",
        ),
        Misconception(
            "inf_minus_inf",
            slips.answer(guarded=0),
            "NaN where a row begins with an empty part: its maximum is -inf, the one so far is -inf as well, and -inf "
            "- (-inf) is NaN. Subtract something finite there; its sum is 0 in any case.",
        ),
        Misconception(
            "zero_by_zero",
            slips.answer(safe=0),
            "NaN where all parts of a row are empty: 0 / 0. The result is to be 0 there.",
        ),
        Misconception(
            "lse_of_an_empty_row",
            slips.answer(from_base=1),
            "lse of a row without any scores is the logarithm of 0, -inf. What keeps out from dividing by 0 must not "
            "reach the logarithm: it would claim that the row has a weight.",
        ),
        Misconception(
            "lse_without_the_maximum",
            slips.answer(without_m=1),
            "lse is the logarithm of l alone. l is relative to the maximum, so that has to be added again.",
        ),
        Misconception(
            "lse_in_base_two",
            slips.answer(of_log=1 / math.log(2)),
            "The maximum is in base e and its logarithm in base 2: lse = m + ln l, and ln l = ln(2) * log2 l.",
        ),
        Misconception(
            "powers_of_two",
            slips.answer(log2_e=1.0),
            "The factors are powers of 2. exp(x) is exp2(x * 1.4427).",
        ),
        Misconception(
            "never_divided",
            slips.answer(divisor=1),
            "The merged vector is stored as it is; out is that vector, divided by the merged sum.",
        ),
        Misconception(
            "first_part_lost",
            slips.answer(first=1),
            "The merge begins with part 1. Parts are numbered from 0.",
        ),
        Misconception(
            "columns_unmasked",
            slips.answer(cols=FAR),
            "d is no power of two, the block of columns is: what lies behind the end of a vector belongs to the next "
            "row. Mask columns, too.",
        ),
        Misconception(
            "rows_unmasked",
            slips.answer(stored=FAR),
            "The last program stores rows that do not exist, past the ends of out and of lse.",
        ),
        Misconception(
            "rounded_down",
            slips.rounded_down,
            "The last rows have no program: rows // BLOCK rounds down.",
        ),
        Misconception(
            "a_launch_for_each_part",
            slips.a_launch_for_each_part,
            "The numbers are right, with a launch for each part. A program can loop over the parts.",
        ),
        Misconception(
            "computes_with_torch",
            slips.of_torch,
            "The numbers are right, but torch computed them. Here it is your kernel's work.",
        ),
    ),
    hints=(
        "Two parts with maxima 3 and 5: by what is the first one's sum too large or too small, when both are to be "
        "relative to 5? And its vector?",
        "Keep m = -inf, l = 0 and a vector of zeros for each row, and let part after part join: new = the larger "
        "maximum, the old three are multiplied by exp(m - new), what joins by exp(m_part - new). Where new is -inf, "
        "subtract 0 in its place.",
        "Rows r in a block, columns c up to the next power of two of d, part p at (p * rows + r) * d + c. In the loop: "
        'base = tl.where(new == float("-inf"), 0.0, new); l = l * tl.exp(m - base) + l_part * tl.exp(m_part - base), '
        "the same for the vector with [:, None]. At the end out = acc / tl.where(l == 0, 1.0, l)[:, None] and lse = m "
        "+ tl.log(l).",
    ),
    explanation=(
        "(m, l, o) of two sets of keys merge into those of both, in any order, and (-inf, 0, anything finite) changes "
        "nothing: so keys may be cut into blocks of a loop, or into parts for programs that run side by side. "
        "06.forward does the first, 06.decode the second, and ring attention does it across GPUs. The division comes "
        "once, at the end; lse is what a next merge would need, with l = 1."
    ),
)
