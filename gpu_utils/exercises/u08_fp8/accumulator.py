"""08.accumulator: sums of a matrix instruction that keeps few bits, and how often they must be carried out of it."""

from __future__ import annotations

import math
import random

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import EXACT
from gpu_utils.exercises.u08_fp8.accumulator_slips import WIDTH, slipped
from gpu_utils.formats import FORMATS
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs, Misconception


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    """Values of E4M3, whose products are mostly positive, so that no sum comes near 0; a bound that is not close."""
    if case.get("uneven"):
        return _uneven(case, generator)
    shape = case["rows"], case["length"]
    a, b = (2 * torch.rand(shape, generator=generator) for _ in range(2))
    if case.get("wide"):
        a, b = (x * torch.exp2(torch.randint(-6, 7, shape, generator=generator)) for x in (a, b))
    a, b = _e4m3(a), _e4m3(b)
    a[:, 5:8] = 0  # some products are exactly 0
    b = torch.where(torch.rand(shape, generator=generator) < 0.15, -b, b)
    if case.get("short"):
        a[1:, WIDTH:] = 0
    if case.get("zeros"):
        a[0, : case["zeros"]] = 0
    if case.get("burst"):
        a[:, 70:80] *= 64
    # the rows are of different sizes, so that relative and absolute errors are two things
    b *= torch.exp2(torch.arange(case["rows"]) % 3 * 2.0 - 4)[:, None]
    b[-1] = -b[-1]
    return {"a": a, "b": b, "bits": case["bits"], "bound": _bound(a, b, case["bits"], case["every"])}


def _uneven(case: Case, generator: torch.Generator) -> Inputs:
    """A row of many, for which 64 is enough and 32 is not: errors of parts with both signs cancel as they like."""
    shape = 512, case["length"]
    a, b = (_e4m3(x) for x in torch.randn((2, *shape), generator=generator))
    products, bits = a.double() * b.double(), case["bits"]
    exact = products.sum(1)
    finer, coarser = (((promoted(products, every, bits) - exact) / exact).abs() for every in (32, 64))
    coarser = coarser.clamp(min=1e-4)
    row = int((finer / coarser * (finer < 0.5)).argmax())
    bound = math.sqrt(float(finer[row] * coarser[row]))
    return {"a": a[row : row + 1], "b": b[row : row + 1], "bits": bits, "bound": bound}


def _e4m3(x: Tensor) -> Tensor:
    return torch.from_numpy(FORMATS["e4m3fn"].rounded(x.numpy())).float()


def _bound(a: Tensor, b: Tensor, bits: int, every: int) -> float:
    """Between the error of this interval and of the next one; 0 for an `every` that is never enough."""
    products = a.double() * b.double()
    tried = _intervals(products.shape[1])
    errors = [_error(products, interval, bits) for interval in tried]
    at = tried.index(every) if every else -1
    low = errors[at] if at >= 0 else errors[0] / 4
    high = errors[at + 1] if at + 1 < len(errors) else 4 * errors[-1]
    if low > 0.1:
        high = min(high, low / (1 - low))  # what the error would be over a sum that is too small
    return math.sqrt(low * high)


def _intervals(length: int) -> list[int]:
    """What `every` may be, besides 0.

    >>> _intervals(100)
    [32, 64, 100]
    """
    return [every for every in (WIDTH * 2**i for i in range(length.bit_length())) if every < length] + [length]


def _cut(x: Tensor, largest: Tensor, bits: int) -> Tensor:
    """Toward zero, to a multiple of 2^(e - bits), where 2^e <= largest < 2^(e + 1)."""
    scale = torch.frexp(largest).exponent - 1 - bits
    return torch.ldexp(torch.trunc(torch.ldexp(x, -scale)), scale)


def promoted(products: Tensor, every: int, bits: int) -> Tensor:
    """Sums of the rows of float64 products. All intervals of a row go side by side, with zeros behind the end.

    >>> promoted(torch.tensor([[16.0, 1.0, 1.0, 1.0]], dtype=torch.float64), 4, 3).tolist()
    [16.0]
    """
    rows, length = products.shape
    every = -(-every // WIDTH) * WIDTH
    parts = torch.nn.functional.pad(products, (0, -length % every)).view(-1, every // WIDTH, WIDTH)
    total = products.new_zeros(len(parts), 1)
    for part in parts.unbind(1):
        addends = torch.cat((total, part), dim=1)
        total = _cut(addends, addends.abs().amax(1, keepdim=True), bits).sum(1, keepdim=True)
        total = _cut(total, total.abs(), bits)
    return total.view(rows, -1).sum(1)


def _error(products: Tensor, every: int, bits: int) -> float:
    exact = products.sum(1)
    return float(((promoted(products, every, bits) - exact) / exact).abs().max())


def accumulator_reference(a: Tensor, b: Tensor, bits: int, bound: float) -> tuple[Tensor, int]:
    """(sums without promotion in float64, the largest interval that is enough).

    >>> ones = torch.ones(1, 4)
    >>> sums, every = accumulator_reference(torch.tensor([[16.0, 1.0, 1.0, 1.0]]), ones, 3, 0.1)
    >>> sums.tolist(), every
    ([16.0], 0)
    """
    products = a.double() * b.double()
    tried = _intervals(products.shape[1])
    enough = [every for every in tried if _error(products, every, bits) <= bound]
    return promoted(products, tried[-1], bits), max(enough, default=0)


def _fresh(rng: random.Random) -> Case:
    length, bits = rng.randint(200, 700), rng.choice([9, 10, 11, 12, 13, 14])
    every = rng.choice([32, 64, 128, length])
    return Case("a sum that nobody chose", rows=rng.randint(2, 5), length=length, bits=bits, every=every)


_WRONG: tuple[tuple[str, str], ...] = (
    (
        "addends_in_full",
        "Each addend keeps its bits, and only their sum is cut. The instruction lines all of them up to one exponent, "
        "that of the largest, and has no place for what lies too far to the right.",
    ),
    (
        "sum_in_full",
        "The addends are cut, and their sum keeps all of its bits. 33 addends can make a sum with a larger exponent, "
        "which has the same few bits.",
    ),
    (
        "aligned_to_the_products",
        "The 32 products are lined up to the largest of them. The running sum is the 33rd addend, soon the largest.",
    ),
    (
        "aligned_to_the_sum",
        "All is lined up to the running sum, as soon as there is one. A product may be larger than that: take the "
        "largest of all 33.",
    ),
    (
        "largest_with_its_sign",
        "The largest addend is looked for with its sign. Of a row of negative products that is the smallest in size.",
    ),
    ("rounds_addends", "The addends are rounded to the nearest. The instruction cuts what does not fit: toward zero."),
    ("rounds_the_sum", "The sum is rounded to the nearest. Like the addends, it is cut toward zero."),
    (
        "cuts_downwards",
        "Negative addends have become larger in size: floor goes down, and cutting goes toward zero.",
    ),
    (
        "one_bit_less",
        "One bit too few is kept. With 2^e <= |value| < 2^(e + 1) the step is 2^(e - bits); frexp counts its exponent "
        "from another place than e.",
    ),
    (
        "one_bit_more",
        "One bit too many is kept: the step is 2^(e - bits), where 2^e is the largest power of two not above the "
        "value.",
    ),
    (
        "logarithm_of_zero",
        "NaN: a row begins with 32 products that are all 0. What is the exponent of 0, and what is 0 divided by a step "
        "of 0?",
    ),
    (
        "one_product_at_a_time",
        "The products are added one after the other. An instruction takes 32 at once, and cuts their sum once.",
    ),
    (
        "in_float32",
        "Right with few bits. With 23 of them 33 addends have a sum of up to 29 bits before it is cut: compute in "
        "float64.",
    ),
    ("always_13", "The number of bits is 13 here, always. Take `bits`."),
    (
        "last_instruction_is_lost",
        "Where K is no multiple of 32 the last products are missing: the last instruction is a short one.",
    ),
    (
        "last_part_is_lost",
        "`sums` is right. With promotion, what has come together since the last one is never added to the sum outside.",
    ),
    (
        "keeps_the_sum",
        "`sums` is right. After a promotion the instruction goes on with its old sum, so that this is added outside "
        "again and again. It starts at 0.",
    ),
    (
        "promotes_by_instructions",
        "`sums` is right. The interval is counted in instructions here; it is meant in elements, 32 for each "
        "instruction.",
    ),
    ("promoted_sums", "`every` is right. `sums` are asked without any promotion; these have one."),
    (
        "the_smallest",
        "`sums` is right. The smallest interval is the most exact one and costs most: which is the largest that is "
        "still within the bound?",
    ),
    (
        "at_least_32",
        "`sums` is right. Where not even an interval of 32 is within the bound, the answer is 0.",
    ),
    (
        "none_is_forgotten",
        "`sums` is right. K itself is an interval as well, which means no promotion at all: sometimes that is enough.",
    ),
    (
        "ends_at_a_power",
        "`sums` is right. No promotion is said as K, also where K is no power of two.",
    ),
    (
        "absolute_errors",
        "`sums` is right. The bound is for relative errors: divide by the exact sum of the row.",
    ),
    (
        "rounds_k_up",
        "`sums` is right. No promotion is said as K itself, not as the next multiple of 32.",
    ),
    (
        "cuts_outside",
        "`sums` is right. The sum outside is cut to few bits as well. It has those of float32, or more: that is what "
        "promotion is for.",
    ),
    (
        "over_its_own_sum",
        "`sums` is right. The error is taken over the sum that the instruction made, which is too small itself: divide "
        "by the exact sum.",
    ),
    (
        "stops_at_the_first",
        "`sums` is right. The search ends at the first interval that is not within the bound. Errors of both signs "
        "cancel, so a longer interval can be enough all the same: try all.",
    ),
    (
        "the_mean_row",
        "`sums` is right. Every row must be within the bound, by its own sum: the mean hides the worst one, and so "
        "does a large sum that all errors are divided by.",
    ),
    ("the_best_row", "`sums` is right. One row within the bound is not enough: every one must be."),
    (
        "signed_errors",
        "`sums` is right. Cut sums are too small, so their errors are negative, and a negative number is within any "
        "bound: take the size.",
    ),
)

EXERCISE = Exercise(
    id="08.accumulator",
    title="A sum of fourteen bits, and when to leave it",
    parameters=("a", "b", "bits", "bound"),
    kind="host",
    inputs=_inputs,
    reference=accumulator_reference,
    tolerance=lambda case, inputs: EXACT,
    dtype=lambda inputs: None,
    parts=("sums", "every"),
    cases=(
        Example(
            "the example of the docstring",
            a=lambda: torch.tensor([[16.0, 1.0, 1.0, 1.0]]),
            b=lambda: torch.ones(1, 4),
            bits=3,
            bound=0.1,
        ),
        Example(
            "exact sums, and a bound of 0",
            a=lambda: torch.full((2, 64), 1.5),
            b=lambda: torch.ones(2, 64),
            bits=23,
            bound=0.0,
        ),
        Case("three bits, and a bound that such an error just meets", rows=2, length=96, bits=3, every=96),
        Case("an interval of 64 is enough where 32 is not", length=128, bits=5, uneven=True),
        Case("one instruction: its result is cut, too", rows=16, length=32, bits=7, every=32),
        Case("two instructions, and no interval is enough", rows=2, length=64, bits=10, every=0),
        Case("the last instruction is short; a row begins with zeros", rows=3, length=200, bits=13, zeros=40, every=64),
        Case("fewer bits, and large products behind small ones", rows=4, length=300, bits=7, burst=True, every=32),
        Case("one row is long, the others end after 32 products", rows=6, length=300, bits=13, short=True, every=64),
        Case("as many bits as float32: no promotion", rows=12, length=540, bits=23, wide=True, every=540),
        Case(
            "K = 4096 and the bits of Hopper: promotion is needed, and seldom", rows=2, length=4096, bits=13, every=1024
        ),
    ),
    fresh=_fresh,
    misconceptions=tuple(Misconception(name, slipped(name), hint) for name, hint in _WRONG),
    hints=(
        "Write one function that cuts a tensor to a step that follows from the largest of its addends, and one for an "
        "instruction: 33 addends, cut, added, cut again. Promotion is a loop around it, and `every` a search.",
        "torch.frexp(x).exponent - 1 is e, for 0 too, where it does no harm. torch.trunc cuts toward zero. All of it "
        "in float64, which holds every sum exactly. A row's addends: torch.cat((total, part), dim=1).",
        "step = torch.exp2(torch.frexp(largest).exponent - 1 - bits); cut = torch.trunc(x / step) * step. "
        "After each `every` elements: outside += total, total = 0; at the end outside + total. Try 32, 64, ... below "
        "K, and K; keep the last whose worst |sum - exact| / |exact| is at most the bound.",
    ),
    explanation=(
        "The running sum grows with K, and the products do not: sooner or later each of them is below the last bit "
        "that is kept, and what is cut is always cut in the same direction, so the errors add up and never cancel. "
        "Carried out every 128 elements, the sum inside stays small, and the one outside has the bits of float32. "
        "DeepSeek-V3 does that with four instructions of Hopper to an interval."
    ),
)
