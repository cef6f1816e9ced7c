"""00.piece_sums: repair a kernel whose lanes each walk through a piece of their own."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from gpu_utils.analytic.tolerance import Tolerance, tolerance
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Limit, Misconception

BLOCK, STEPS = 256, 8
PIECE = BLOCK * STEPS
"""Elements of one program, as the statement has it."""

MOST_SECTORS = 1.6
"""Global transactions over the least possible: near 1 when right, and at most 1.5 where a tensor starts inside a line.
Two for neighbours that are two elements apart."""


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    # 0.5 and more, of both signs: an element that is lost, or counted twice, is never lost in the tolerance
    size = torch.rand(case["n"], generator=generator) + 0.5
    return {"x": size * (1 - 2 * torch.randint(2, (case["n"],), generator=generator))}


def piece_sums_reference(x: Tensor) -> Tensor:
    """The sum of squares of each piece, in float64."""
    return torch.stack([(part.double() ** 2).sum() for part in x.split(PIECE)])


def _tolerance(case: Case, inputs: Inputs) -> Tolerance:
    # terms of one sign: the partial sums grow with their number
    return tolerance(torch.float32, k=PIECE, magnitude=math.sqrt(PIECE))


@triton.jit
def _kernel(
    x_ptr,
    out_ptr,
    n,
    BLOCK: tl.constexpr,
    STEPS: tl.constexpr,
    ORDER: tl.constexpr,
    MASK: tl.constexpr,
    KEEP: tl.constexpr,
    SQUARE: tl.constexpr,
    FILL: tl.constexpr,
):
    lanes = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for step in range(STEPS):
        if ORDER == "together":
            offsets = tl.program_id(0) * BLOCK * STEPS + step * BLOCK + lanes
        elif ORDER == "apart":
            offsets = tl.program_id(0) * BLOCK * STEPS + lanes * STEPS + step
        elif ORDER == "overlapping steps":
            offsets = tl.program_id(0) * BLOCK * STEPS + step + lanes
        elif ORDER == "overlapping programs":
            offsets = tl.program_id(0) * BLOCK + step * BLOCK + lanes
        elif ORDER == "a loop over the grid":
            offsets = (step * tl.num_programs(0) + tl.program_id(0)) * BLOCK + lanes
        else:
            offsets = tl.program_id(0) * BLOCK * STEPS + lanes
        last = n + 1 if MASK == "one long" else n
        x = tl.load(
            x_ptr + offsets, mask=offsets < last if MASK != "none" else None, other=FILL if MASK != "none" else None
        )
        term = x * x if SQUARE else x
        if KEEP == "vector":
            total += term
        elif KEEP == "sum":
            total += tl.sum(term, axis=0)
        else:
            total = term
    tl.store(out_ptr + tl.program_id(0), tl.sum(total, axis=0))


def _answer(
    piece: int = PIECE,
    order: str = "together",
    mask: str = "all",
    keep: str = "vector",
    square: bool = True,
    fill: float = 0.0,
) -> Callable[[Tensor], Tensor]:
    def answer(x: Tensor) -> Tensor:
        out = torch.empty(triton.cdiv(x.numel(), piece), device=x.device)
        options: dict[str, Any] = {"ORDER": order, "MASK": mask, "KEEP": keep, "SQUARE": square, "FILL": fill}
        _kernel[(len(out),)](x, out, x.numel(), BLOCK=BLOCK, STEPS=STEPS, **options)
        return out

    return answer


def _one_piece_too_few(x: Tensor) -> Tensor:
    return _answer()(x)[: x.numel() // PIECE]


def _returns_nothing(x: Tensor) -> None:
    _answer()(x)


def _fresh(rng: random.Random) -> Case:
    return Case("a length nobody chose", n=rng.randrange(2, 5 * PIECE))


EXERCISE = Exercise(
    id="00.piece_sums",
    title="Repair a kernel: lanes that read side by side",
    parameters=("x",),
    kind="kernel",
    inputs=_inputs,
    reference=piece_sums_reference,
    tolerance=_tolerance,
    cases=(
        Case("whole pieces: here memory transactions are counted", n=4 * PIECE),
        Case("a last piece of five elements", n=2 * PIECE + 5),
        Case("less than one step of one program", n=100),
        Case("one step and one element", n=BLOCK + 1),
        Case("a single element", n=1),
    ),
    fresh=_fresh,
    trivial={
        "zeros": lambda x: torch.zeros(triton.cdiv(x.numel(), PIECE), device=x.device),
        "ones": lambda x: torch.ones(triton.cdiv(x.numel(), PIECE), device=x.device),
        "nan": lambda x: torch.full((triton.cdiv(x.numel(), PIECE),), float("nan"), device=x.device),
        "the input": lambda x: x[: triton.cdiv(x.numel(), PIECE)],
    },
    torch_may=(),
    limits=(
        Limit(
            "launches",
            "Launch your own kernel: piece_sums_kernel[grid](...).",
            at_least=lambda case: 1,
        ),
        Limit(
            "global_sectors_per_ideal",
            "Look at one load instruction, not at one lane: which elements do neighbouring lanes read in one step?",
            at_most=lambda case: MOST_SECTORS if case["n"] % PIECE == 0 else math.inf,
        ),
        Limit(
            "blocks",
            "One program sums a whole piece of 2,048 elements, in eight steps.",
            at_most=lambda case: triton.cdiv(case["n"], PIECE),
        ),
    ),
    misconceptions=(
        Misconception(
            "each_lane_its_own",
            _answer(order="apart"),
            "The sums are right, and the order is the broken kernel's: in one step neighbouring lanes read elements "
            "that are eight apart. That suits cores with caches of their own. Let the lanes take neighbours, and let "
            "the step move all of them on.",
        ),
        Misconception(
            "overlapping_steps",
            _answer(order="overlapping steps"),
            "Each step begins one element after the last, so nearly all elements are added several times and the rest "
            "never. By how much must a step move, when BLOCK lanes have just read BLOCK neighbours?",
        ),
        Misconception(
            "overlapping_programs",
            _answer(order="overlapping programs"),
            "Pieces of neighbouring programs overlap: program p begins at p * BLOCK. How many elements does a program "
            "take in all its steps?",
        ),
        Misconception(
            "a_loop_over_the_grid",
            _answer(order="a loop over the grid"),
            "Steps of all programs at once, as in a loop over the grid: the total of all sums is right, the sums are "
            "not. Such a loop serves where any program may take any element; here a program owes the sum of its own "
            "2,048 neighbours.",
        ),
        Misconception(
            "forgets_the_step",
            _answer(order="still"),
            "Every step reads the same elements: the offsets do not depend on the step.",
        ),
        Misconception(
            "no_mask",
            _answer(mask="none"),
            "The last piece reaches past the end. A load needs a mask that is true only for offsets below n, and "
            "other=0.0, so that a lane without an element adds nothing.",
        ),
        Misconception(
            "mask_one_long",
            _answer(mask="one long"),
            "`offsets <= n` lets one lane too many through: elements are numbered 0 to n - 1.",
        ),
        Misconception(
            "sums_in_every_step",
            _answer(keep="sum"),
            "total is a vector with a number for each lane. A sum over all lanes, added to it in a step, is added to "
            "every one of them, and then they are added up once more: 256 times too much. Sum once, after the loop.",
        ),
        Misconception(
            "keeps_the_last_step",
            _answer(keep="last"),
            "Only the last step arrives in the sum: the total is replaced in each step where it should grow.",
        ),
        Misconception(
            "no_square",
            _answer(square=False),
            "These are sums of the elements. The squares are asked for.",
        ),
        Misconception(
            "adds_ones_for_nothing",
            _answer(fill=1.0),
            "Whole pieces are right, the last one is too large: lanes without an element add something. What must a "
            "masked load give, so that its square adds nothing?",
        ),
        Misconception(
            "one_piece_too_few",
            _one_piece_too_few,
            "The last, incomplete piece has a sum as well: round the number of pieces up.",
        ),
        Misconception(
            "a_program_for_each_block",
            _answer(piece=BLOCK),
            "A program sums STEPS blocks, not one: a piece is BLOCK * STEPS elements. Divide n by that, rounded up.",
        ),
        Misconception(
            "returns_nothing",
            _returns_nothing,
            "The kernel ran, and nobody gets its result: a launch returns nothing. End the launcher with return out.",
        ),
        Misconception(
            "torch_squares",
            lambda x: _answer(square=False)(x * x),
            "The sums are right, but torch squared the elements, and wrote them to memory for the kernel to read "
            "again. Square them in the kernel, where they already are.",
        ),
        Misconception(
            "sums_with_torch",
            lambda x: torch.stack([(part**2).sum() for part in x.split(PIECE)]),
            "The sums are right, but torch computed them. Here it is your kernel's work: launch it with "
            "piece_sums_kernel[grid](...).",
        ),
    ),
    hints=(
        "Write down which elements lanes 0, 1, 2 and 3 read in step 0 of the broken kernel. Which would lie side by "
        "side in memory? And where must all lanes go on in step 1?",
        "In step s, lane k of program p reads element p * 2048 + s * 256 + k. Mask it with offsets < n and other=0.0, "
        "add x * x to a vector of 256 totals, and add those up once, after the loop.",
        "offsets = tl.program_id(0) * BLOCK * STEPS + step * BLOCK + tl.arange(0, BLOCK); after the loop "
        "tl.store(out_ptr + tl.program_id(0), tl.sum(total, axis=0)). The grid is (triton.cdiv(n, BLOCK * STEPS),).",
    ),
    explanation=(
        "A core with its own cache likes a piece of its own: what it fetched for one element serves the next. Lanes of "
        "a warp or wavefront read together, in one instruction, and are served together: the transactions of that "
        "instruction are counted, so its lanes should be neighbours. Both orders read each element once; in the broken "
        "one each instruction touches a piece of memory for every lane or two, and comes back for the rest in the next "
        "steps, eight times the transactions on sm_80. The order inside a sum changes its rounding, which the "
        "tolerance allows for. Without other=0.0 both compilers happen to bring 0 today; Triton leaves it undefined, "
        "so no check here can fail you for it, and a later compiler may."
    ),
)
