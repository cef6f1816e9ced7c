"""00.vector_add: the first kernel: offsets, a mask, a grid, and a second tensor that is shorter and repeats."""

from __future__ import annotations

import math
import random

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import Tolerance, tolerance
from gpu_utils.exercises.u00_start import vector_add_slips as slips
from gpu_utils.exercises.u00_start.vector_add_slips import BLOCK
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Limit, Misconception

MOST_SECTORS = 2.0
"""Global transactions over the least possible. A right kernel is near 1; one more comes where a tensor starts inside
a transaction."""

MOST_THREADS = 16
"""Threads for each element. BLOCK = 1024 needs 1/8 on NVIDIA and 1/4 on AMD, BLOCK = 64 needs 2 and 4."""


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    dtype = getattr(torch, case.get("dtype", "float32"))
    x, y = (torch.randn(case[length], generator=generator).to(dtype) for length in ("n", "m"))
    return {"x": x, "y": y}


def vector_add_reference(x: Tensor, y: Tensor) -> Tensor:
    """x + y in float64, where y starts again at its end."""
    return x.double() + y.double().repeat(math.ceil(len(x) / len(y)))[: len(x)]


def _tolerance(case: Case, inputs: Inputs) -> Tolerance:
    # a floating-point sum is the exact sum, rounded once; that holds where x and y nearly cancel, too
    return tolerance(inputs["x"].dtype, magnitude=0.0, roundings=1)


def _fresh(rng: random.Random) -> Case:
    n = rng.choice([rng.randrange(2, BLOCK), rng.randrange(BLOCK + 2, 6 * BLOCK)])
    return Case("lengths nobody chose", n=n, m=rng.randrange(1, n), dtype=rng.choice(["float32", "float16"]))


EXERCISE = Exercise(
    id="00.vector_add",
    title="Add a vector and a shorter one that repeats, with a mask for the tail",
    parameters=("x", "y"),
    kind="kernel",
    inputs=_inputs,
    reference=vector_add_reference,
    tolerance=_tolerance,
    cases=(
        Case("exactly one block, and y as long as x", n=BLOCK, m=BLOCK),
        Case("whole blocks: here memory transactions are counted", n=8 * BLOCK, m=2 * BLOCK),
        Case("less than one block", n=1000, m=10),
        Case("one element past a block", n=BLOCK + 1, m=BLOCK),
        Case("several blocks and a tail, and m divides neither", n=5000, m=300),
        Case("a single element", n=1, m=1),
        Case("y is one number for all", n=1500, m=1),
        Case("float16: the result has the dtype of the inputs", n=3 * BLOCK, m=BLOCK // 4, dtype="float16"),
    ),
    fresh=_fresh,
    torch_may=(),
    limits=(
        Limit(
            "launches",
            "Launch your own kernel: vector_add_kernel[grid](...); x + y in Python launches one of torch's.",
            at_least=lambda case: 1,
        ),
        Limit(
            "global_sectors_per_ideal",
            "Memory is moved in whole transactions: let neighbouring lanes read neighbouring elements, so that they "
            "share them, and let Triton know the sizes: with do_not_specialize it takes elements one by one.",
            # Where n is no multiple of 16, Triton takes elements one by one; that is not the learner's fault, and
            # neither is what it makes of float16 and two remainders.
            at_most=lambda case: MOST_SECTORS if case["n"] % BLOCK == 0 and "dtype" not in case.params else math.inf,
        ),
        Limit(
            "threads",
            "Most of these threads belong to programs that have no element: a program adds BLOCK elements, so the grid "
            "needs one program for each block.",
            at_most=lambda case: MOST_THREADS * case["n"] + 4096,
        ),
    ),
    misconceptions=(
        Misconception(
            "y_at_the_place_of_x",
            slips.launching("y at x"),
            "It fails where y is shorter than x: there is no y[i] for i = m and more. After its last element y starts "
            "again at the first: which element of y belongs to offset m, to m + 1, to 2 * m? (Its length is m, not n.)",
        ),
        Misconception(
            "y_only_once",
            slips.launching("y at x, masked by m"),
            "y is added to the first m elements only, and nothing to the rest. It starts again at its end: what must "
            "change is where y is read, not the mask.",
        ),
        Misconception(
            "y_wrapped_once",
            slips.launching("y wrapped once"),
            "y starts again once, and then runs past its end: from offset 2 * m on, taking m away once is not enough. "
            "How often it has to be taken away depends on the offset; what is left over in the end?",
        ),
        Misconception(
            "y_by_the_lane",
            slips.launching("y of the lane"),
            "Each program starts y anew: the place in y is made from tl.arange alone. Where y goes on at the start of "
            "a block depends on all elements before it.",
        ),
        Misconception(
            "y_divided",
            slips.launching("y divided"),
            "offsets // m says how often y has started again before an element. Which element of y it is, is what is "
            "left over by that division.",
        ),
        Misconception(
            "repeats_y_first",
            slips.repeats_y_first,
            "The sum is right, but torch wrote a long copy of y first, which is then read once more. The kernel can "
            "read the short y: for each offset work out the place in y.",
        ),
        Misconception(
            "torch_adds_the_kernel_copies",
            slips.torch_adds_the_kernel_copies,
            "The sum is right, but torch did a part of it, beside your kernel. Here all of it is the kernel's work: "
            "load, add, store.",
        ),
        Misconception(
            "mask_of_the_lane",
            slips.launching("mask of the lane"),
            "The mask compares positions inside the block with n. With more than one block that is always true: "
            "compare the offsets in the whole vector, the ones that you add to the pointers.",
        ),
        Misconception(
            "no_mask",
            slips.launching("no mask"),
            "The last block reaches past the end of a tensor: some of its offsets are n or larger. The load of x and "
            "the store need a mask that is true only for offsets below n.",
        ),
        Misconception(
            "grid_rounds_down",
            slips.launching(programs=lambda n: n // BLOCK),
            "The tail is never written: there are too few programs. n // BLOCK rounds down, so the last, incomplete "
            "block gets no program.",
        ),
        Misconception(
            "grid_rounds_down_to_one",
            slips.launching(programs=lambda n: max(1, n // BLOCK)),
            "The tail is never written when n is larger than a block: max(1, n // BLOCK) mends the case of no program "
            "and still rounds down in all others. Divide so that a started block counts.",
        ),
        Misconception(
            "one_program_for_each_element",
            slips.launching(programs=lambda n: n),
            "The sum is right, but the grid has one program for each element, and a program adds BLOCK of them: nearly "
            "all programs find their mask empty. Count blocks, not elements.",
        ),
        Misconception(
            "grid_is_a_number",
            slips.grid_is_a_number,
            "A grid is a tuple, also when it has one dimension: kernel[(programs,)](...), with the comma.",
        ),
        Misconception(
            "overlapping_blocks",
            slips.launching("overlapping blocks"),
            "Neighbouring programs work on almost the same elements, and the rest is never written. "
            "How far apart must the first elements of two neighbouring programs be?",
        ),
        Misconception(
            "no_program_id",
            slips.launching("no program id"),
            "Only the first block is written. Either every program computes the same offsets, where tl.program_id(0) "
            "should make one differ from another, or the grid has one program only.",
        ),
        Misconception(
            "interleaves_programs",
            slips.launching("interleaved"),
            "The sum is right, but program p takes every P-th element, so neighbouring lanes are P elements apart and "
            "each transaction brings mostly bytes that nobody in the warp or wavefront asked for. "
            "Give each program BLOCK neighbouring elements.",
        ),
        Misconception(
            "mask_one_long",
            slips.launching("mask one long"),
            "`offsets <= n` lets one lane too many through: elements are numbered 0 to n - 1, so n is the first that "
            "does not exist. It also costs speed: the compiler can no longer load four elements at once.",
        ),
        Misconception(
            "mask_of_the_block",
            slips.launching("mask of the block"),
            "The mask compares with BLOCK, the size of a program's share. How many elements there are is n: compare "
            "the offsets with that.",
        ),
        Misconception(
            "unmasked_store",
            slips.launching("unmasked store"),
            "The loads are masked, the store is not: it writes past the end of the result. Give it the same mask.",
        ),
        Misconception(
            "mask_one_short",
            slips.launching("mask one short"),
            "The last element is never written. Offsets run from 0 to n - 1, and n - 1 is a valid one.",
        ),
        Misconception(
            "allocates_a_default_tensor",
            slips.allocates_a_default_tensor,
            "The result is float32, whatever x is. A dtype that is not named is float32, as a device that is not named "
            "is the CPU: these are two questions. Name both, or ask for a tensor like x.",
        ),
        Misconception(
            "writes_into_x",
            slips.writing_into("x"),
            "The sum is written over x. Allocate a new tensor for the result; the caller still needs x.",
        ),
        Misconception(
            "writes_into_y",
            slips.writing_into("y"),
            "The sum is written over y. Allocate a new tensor for the result; the caller still needs y.",
        ),
        Misconception(
            "returns_nothing",
            slips.returns_nothing,
            "The kernel ran, and nobody gets its result: a launch returns nothing. End the launcher with return out.",
        ),
        Misconception(
            "adds_with_torch",
            lambda x, y: x + y,
            "The sum is right, but torch computed it. Here the adding is your kernel's work: load, add, store, and "
            "launch it with vector_add_kernel[grid](...).",
        ),
    ),
    hints=(
        "One program adds BLOCK neighbouring elements. Which elements are those for program 0, for program 1, for "
        "program p? How many programs cover n elements, also when n is no multiple of BLOCK? And with m = 4, which "
        "element of y belongs to x[0], x[3], x[4], x[9]?",
        "Kernel: offsets = the program's first element + tl.arange(0, BLOCK); mask = offsets < n; load x at the "
        "offsets, y at what is left over when they are divided by m, both with the mask; store the sum with the mask. "
        "Launcher: allocate with torch.empty_like(x), round the number of programs up, launch, return.",
        "offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), x = tl.load(x_ptr + offsets, mask=mask), and "
        "y = tl.load(y_ptr + offsets % m, mask=mask). The grid is (triton.cdiv(n, BLOCK),), and the launch is "
        "vector_add_kernel[grid](x, y, out, n, y.numel(), BLOCK=BLOCK).",
    ),
    explanation=(
        "Program p owns elements p * BLOCK to p * BLOCK + BLOCK - 1. cdiv rounds the number of programs up, so the "
        "last block may hang over the end; the mask keeps its lanes from touching memory that is not theirs. "
        "(n // BLOCK + 1 gives right sums as well, and a program with nothing to do where BLOCK divides n.) Where a "
        "tensor is read need not be where the result is written: offsets % m reads y in place, however often it "
        "repeats, and no long copy of it is made. So a bias is added to every row of a matrix."
    ),
)
