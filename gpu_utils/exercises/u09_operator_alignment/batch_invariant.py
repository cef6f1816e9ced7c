"""09.batch_invariant: a product whose row has the same bits in every batch."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
import triton
from torch import Tensor

from gpu_utils.analytic.tolerance import Tolerance, tolerance
from gpu_utils.exercises.u09_operator_alignment import batch_invariant_slips as slips
from gpu_utils.grading.compare import Difference, compare
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs, Limit, Misconception

TALLEST_NEEDED = 16
"""Rows of the smallest tile that tl.dot takes: w may be read once for each so many rows."""


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    """The whole batch, its first rows in smaller ones, and the whole one upside down."""
    dtype = getattr(torch, case["dtype"])
    sizes, inner, wide = case["sizes"], case["K"], case.get("columns_before", 0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(dtype)

    x = draw(max(sizes), wide + inner)
    batches = [x, *(x[:rows].clone() for rows in sorted(sizes)[:-1]), x.flip(0)]
    return {"batches": [batch[:, wide:] for batch in batches], "w": draw(inner, case["N"])}


def batch_invariant_reference(batches: list[Tensor], w: Tensor) -> list[Tensor]:
    """x @ w in float64 for each batch x."""
    return [x.double() @ w.double() for x in batches]


def _call(answer: Callable[..., Any], inputs: Inputs) -> list[Any]:
    return [answer(x=x, w=inputs["w"]) for x in inputs["batches"]]


def _tolerance(case: Case, inputs: Inputs) -> Tolerance:
    return tolerance(torch.float32, k=len(inputs["w"]))


def _judge(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    """Right within float32, and of each row the same bits in every batch. The kind names the batches that differ."""
    batches, tol = inputs["batches"], _tolerance(case, inputs)
    if not isinstance(value, (list, tuple)) or len(value) != len(batches):
        return Difference("type", f"there are no results of {len(batches)} batches, one tensor (M, N) for each")
    for x, right, got in zip(batches, batch_invariant_reference(**inputs), value, strict=True):
        if found := compare(right, got, tol, torch.float32, f"the product of a batch of {len(x)}"):
            return found
    whole, upside_down = (one.detach().cpu().contiguous().view(torch.int32) for one in (value[0], value[-1]))
    others = {len(x): got.detach().cpu().contiguous().view(torch.int32) for x, got in zip(batches, value, strict=True)}
    off = [rows for rows, got in others.items() if not torch.equal(got, whole[:rows]) and rows != len(whole)]
    moved = not torch.equal(upside_down.flip(0), whole)
    if not off and not moved:
        return None
    return Difference(f"bits:{','.join(map(str, off))}{' and place' * moved}", _said(list(value), off, len(whole)))


def _said(value: list[Tensor], off: list[int], most: int) -> str:
    """What differs, with one element of one row as an instance."""
    small = next(got for got in value if len(got) == off[0]) if off else value[-1].flip(0)
    row, column = (small != value[0][: len(small)]).nonzero()[0].tolist()
    one, other = (float(got[row, column]) for got in (small, value[0]))
    where = f"in a batch of {off[0]}" if off else "at another place of the batch"
    which = f"batches of {', '.join(map(str, off))} against one of {most}" if off else f"one batch of {most}, reversed"
    return (
        f"the same row has other bits in another batch: [{row}, {column}] is {one:.9g} {where} and {other:.9g} in one "
        f"of {most}, expected the same bits ({which}); what of the launch depends on the number of rows?"
    )


def _sizes(case: Case) -> list[int]:
    if isinstance(case, Example):
        return [len(x) for x in case.inputs["batches"]]
    return [*case["sizes"], max(case["sizes"])]


def _shape(case: Case) -> tuple[int, int]:
    K, N = case.inputs["w"].shape if isinstance(case, Example) else (case["K"], case["N"])
    return K, N


def _most_load_bytes(case: Case) -> float:
    """Of w once for each 16 rows, of x once for each 32 columns; a row of few elements is loaded by several lanes."""
    K, N = _shape(case)
    tiles = sum(triton.cdiv(rows, TALLEST_NEEDED) for rows in _sizes(case))
    rows = sum(_sizes(case))
    least = 2 * K * (tiles * N + rows * triton.cdiv(N, 32))
    sums = 4 * 8 * rows * N  # parts of K that somebody adds
    return 1.05 * least + sums + 4096 * len(_sizes(case))


def _flops(case: Case) -> float:
    K, N = _shape(case)
    return 2.0 * sum(_sizes(case)) * N * K


def _fresh(rng: random.Random) -> Case:
    sizes = (1, rng.randrange(2, 9), rng.randrange(9, 16), rng.randrange(18, 31), 2 * rng.randrange(20, 30) + 1)
    return Case(
        "sizes nobody chose",
        sizes=sizes,
        N=2 * rng.randrange(20, 40) + 1,
        K=2 * rng.randrange(90, 140) + 1,
        dtype=rng.choice(["float16", "bfloat16"]),
    )


def _filled(value: float) -> Callable[..., Tensor]:
    return lambda x, w: torch.full((x.shape[0], w.shape[1]), value, device=x.device)


EXERCISE = Exercise(
    id="09.batch_invariant",
    title="A product whose row does not depend on the batch",
    parameters=("x", "w"),
    kind="kernel",
    inputs=_inputs,
    reference=batch_invariant_reference,
    call=_call,
    judge=_judge,
    tolerance=_tolerance,
    dtype=lambda inputs: torch.float32,
    cases=(
        Case("one request, and up to 39 others beside it", sizes=(1, 7, 16, 17, 40), N=71, K=301, dtype="float16"),
        Case(
            "bfloat16; x is part of a wider matrix",
            sizes=(1, 3, 36),
            N=65,
            K=173,
            dtype="bfloat16",
            columns_before=3,
        ),
        Example(
            "the example of the statement",
            batches=lambda: [torch.tensor(x).half() for x in ([[1, 2], [3, 4]], [[1, 2]], [[3, 4], [1, 2]])],
            w=lambda: torch.tensor([[1], [10]]).half(),
        ),
        Case("whole tiles, K a power of two", sizes=(1, 16, 32, 128), N=64, K=256, dtype="float16"),
        Case("one request, and a prompt of 299 tokens beside it", sizes=(1, 300), N=33, K=130, dtype="float16"),
    ),
    fresh=_fresh,
    trivial={
        "zeros": _filled(0.0),
        "ones": _filled(1.0),
        "nan": _filled(float("nan")),
        "the input": lambda x, w: x.float(),
    },
    limits=(
        Limit(
            "launches",
            "One kernel for the product, and one where parts of K are added: two for each product at most, however "
            "many rows there are.",
            at_least=lambda case: len(_sizes(case)),
            at_most=lambda case: 2 * len(_sizes(case)),
        ),
        Limit(
            "global_atomics",
            "Atomics arrive in any order, so on a real GPU even two runs of one batch may differ: parts are to be "
            "stored, and added in an order.",
            at_most=lambda case: 0,
        ),
        Limit(
            "matrix_flops",
            "The products are to be made by tl.dot. Sums of lanes have a fixed order, too, and leave the matrix units "
            "idle.",
            at_least=_flops,
        ),
        Limit(
            "global_load_bytes",
            "w is to be loaded once for each 16 rows at most. A row must not depend on its neighbours, but it may "
            "share a tile, and so the loads of w, with them.",
            at_most=_most_load_bytes,
        ),
    ),
    torch_may=(),
    misconceptions=(
        Misconception(
            "tile_by_rows",
            slips.by_plan(lambda rows, tiles: (16 if rows <= 16 else 64, 1)),
            "It holds on NVIDIA's target and fails on AMD's: a tile of 16 rows is multiplied by an instruction that "
            "takes 16 of K, one of 64 rows by 32 x 32 x 8, which sums in groups of 8. Whoever chooses the height of a "
            "tile by the number of rows, an autotuner with M among its keys, too, chooses the order of the sum.",
        ),
        Misconception(
            "tall_tile_for_large_batches",
            slips.by_plan(lambda rows, tiles: (16 if rows <= 32 else 64, 1)),
            "It holds on NVIDIA's target and fails on AMD's, between batches of up to 32 and larger ones: their tiles "
            "are multiplied by instructions of different shapes, which sum in different groups. One height for all.",
        ),
        Misconception(
            "one_row_by_vectors",
            slips.one_row_by_vectors,
            "Only a row that is alone has other bits: M = 1 goes a way of its own, with tl.sum over lanes or with K in "
            "parts. tl.dot adds in another order. Let one row go the way of all.",
        ),
        Misconception(
            "split_for_few_rows",
            slips.by_plan(lambda rows, tiles: (16, 4 if rows <= 16 else 1)),
            "Batches of up to 16 rows differ from larger ones on both vendors: for them K is cut into parts. Each part "
            "begins at 0, and sums of parts are added. K may be cut, if it is cut alike for every M.",
        ),
        Misconception(
            "splits_to_fill_the_chip",
            slips.by_plan(lambda rows, tiles: (16, max(1, 24 // (triton.cdiv(rows, 16) * tiles)))),
            "K is cut into as many parts as it takes to fill the chip, and how many that is depends on the tiles, so "
            "on M. The number of parts may depend on K and N only.",
        ),
        Misconception(
            "last_rows_apart",
            slips.last_rows_apart,
            "It holds on NVIDIA's target and fails on AMD's: rows that do not fill a tile are computed by a smaller "
            "tile, whose instruction sums in other groups. So the bits depend on where in the batch a row stands. Let "
            "a mask fill the last tile.",
        ),
        Misconception(
            "atomics",
            slips.by_plan(lambda rows, tiles: (16, 2), atomic=True),
            "K is cut alike for every M, which is right. But the parts are added by atomics, in the order in which "
            "they arrive: the virtual GPU has one order, a chip has not. Store the parts, and add them in a second "
            "kernel.",
        ),
        Misconception(
            "a_launch_for_each_row",
            slips.a_launch_for_each_row,
            "The bits are right: every row is a batch of one. But 64 rows are 64 launches, each of which reads all of "
            "w. Rows can share a tile and still be summed alike.",
        ),
        Misconception(
            "a_tile_for_each_row",
            slips.a_tile_for_each_row,
            "The bits are right: every row has a tile of its own. But 64 rows then read w 64 times. Rows can share a "
            "tile and still be summed alike.",
        ),
        Misconception(
            "by_vectors",
            slips.by_vectors,
            "The bits are right, and no matrix unit has worked: products of lanes and tl.sum. Use tl.dot for every M.",
        ),
        Misconception(
            "first_tile_only",
            slips.by_plan(tiles_of=lambda rows, tall: 1),
            "Only the first rows of a batch are written: the grid needs cdiv(M, height of a tile) programs downwards.",
        ),
        Misconception(
            "ignores_stride",
            slips.by_plan(stride=lambda x: x.shape[1]),
            "It fails where x is part of a wider matrix: row r begins at r * x.stride(0), not at r * K.",
        ),
        Misconception(
            "keeps_the_last_block",
            slips.by_plan(slip="keeps the last block"),
            "Each step along K replaces what the one before left: give the accumulator to tl.dot, or add.",
        ),
        Misconception(
            "in_16_bits",
            slips.by_plan(slip="in 16 bits"),
            "The bits agree, and the numbers are off: the accumulator is rounded to 16 bits after each step. Keep it "
            "in float32.",
        ),
        Misconception(
            "result_in_16_bits",
            slips.by_plan(dtype=torch.float16),
            "The result is to be float32, as logits are: a rounding to 16 bits hides most differences, not all.",
        ),
        Misconception(
            "no_mask",
            slips.by_plan(slip="no mask on K"),
            "A block passes an end without a mask. Behind the end of K is the next row, or nobody's memory, and behind "
            "the last row of x, too: load zeros where k >= K or row >= M, and store no such row.",
        ),
        Misconception(
            "computes_with_torch",
            slips.with_torch,
            "The product is torch's, whose library chooses by M. Here it is your kernel's work.",
        ),
        Misconception(
            "returns_nothing",
            slips.returns_nothing,
            "The kernel ran, and nobody gets its result: end the launcher with return out.",
        ),
    ),
    hints=(
        "Write down for one element of the result in which order its K products are added. Which numbers of the launch "
        "are in that order?",
        "The tile decides which matrix instruction is taken, and so in which groups K is summed; parts of K decide "
        "where partial sums begin. Neither may be chosen by M: a small batch gets the tile of a large one, mostly "
        "masked.",
        "One launch, grid (cdiv(M, 16), cdiv(N, 32)); rows masked with rows < M, K with k < K; acc = tl.dot(x, w, acc) "
        "in float32 over range(0, K, BLOCK_K). BLOCK_M = 16, BLOCK_N = 32, BLOCK_K = 32 for every M; no path for "
        "M == 1.",
    ),
    seconds=60.0,  # seven batches, and a busy machine compiles a kernel for ten
    explanation=(
        "A row's products with w never meet those of another row, so nothing forces its sum to depend on the batch. It "
        "does where a launcher looks at M: for few rows it cuts K, because a handful of tiles leaves the chip empty, "
        "and for many it takes tall tiles, which use w more often. Both are sums in another order. One tile for all M "
        "gives the bits back, and costs what those choices had won: a small batch leaves the chip emptier, and a large "
        "one loads w more often. A cut along K that depends on K alone would be invariant, too, and fills the chip for "
        "one row. Between chips the bits still differ: their instructions sum in other groups."
    ),
)
