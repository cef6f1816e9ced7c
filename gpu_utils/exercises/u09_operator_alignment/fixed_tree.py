"""09.fixed_tree: sums of rows by a tree that is a function of the index alone, whatever the block, the warps, the chip.

The tree is stated, so NumPy has its bits: every target is compared with the same ones.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import EXACT
from gpu_utils.exercises.u09_operator_alignment import fixed_tree_slips as slips
from gpu_utils.exercises.u09_operator_alignment.fixed_tree_slips import by, treed
from gpu_utils.grading.compare import Difference, compare
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs, Limit, Misconception

SETTINGS = ((64, 1), (256, 4), (512, 2))
"""(block, warps) of the launches whose bits must be the same."""


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    rows, K, before = case["rows"], case["K"], case.get("columns_before", 0)
    size = torch.exp(2 * torch.randn(rows, before + K, generator=generator))
    x = torch.randn(rows, before + K, generator=generator) * size
    return {"x": x[:, before:], "settings": [list(one) for one in case.get("settings", SETTINGS)]}


def fixed_tree_reference(x: Tensor, settings: list[list[int]]) -> list[Tensor]:
    """The sums of the rows, neighbours first, float32: the same for each setting."""
    rows, K = x.shape
    level = np.zeros((rows, 1 << max(0, (K - 1).bit_length())), np.float32)
    level[:, :K] = x.detach().cpu().numpy()
    while level.shape[1] > 1:
        level = level[:, 0::2] + level[:, 1::2]
    return [torch.from_numpy(level[:, 0].copy())] * len(settings)


def _call(answer: Callable[..., Any], inputs: Inputs) -> list[Any]:
    return [answer(x=inputs["x"], block=block, warps=warps) for block, warps in inputs["settings"]]


def _judge(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    """Bits. The kind names the settings that are off, and the first number that is."""
    settings = inputs["settings"]
    if not isinstance(value, (list, tuple)) or len(value) != len(settings):
        return Difference("type", "there are no results of all launches, one tensor (rows,) for each")
    right, off, first = fixed_tree_reference(**inputs), [], None
    for setting, expected, got in zip(settings, right, value, strict=True):
        where = f"with block {setting[0]} and num_warps {setting[1]}, the result"
        if found := compare(expected, got, EXACT, torch.float32, where):
            off.append(tuple(setting))
            first = first or found
    if first is None:
        return None
    same = all(isinstance(got, Tensor) and torch.equal(got, value[0]) for got in value)
    alike = "; all launches have these bits" if same and len(value) > 1 else ""
    return Difference(f"{first.kind}:{off}:{_number(value[settings.index(list(off[0]))])}", f"{first.detail}{alike}")


def _number(got: Any) -> str:
    return f"{float(got.flatten()[0]):.9g}" if isinstance(got, Tensor) and got.numel() else type(got).__name__


def _settings(case: Case) -> list[tuple[int, int]]:
    if isinstance(case, Example):
        return [(block, warps) for block, warps in case.inputs["settings"]]
    return list(case.get("settings", SETTINGS))


def _rows(case: Case) -> int:
    return len(case.inputs["x"]) if isinstance(case, Example) else case["rows"]


def _waves(case: Case) -> int:
    return _rows(case) * sum(warps for _, warps in _settings(case))


def _fresh(rng: random.Random) -> Case:
    return Case("a row nobody chose", rows=rng.randrange(2, 5), K=rng.randrange(513, 1024))


EXERCISE = Exercise(
    id="09.fixed_tree",
    title="Sums by a tree that only the index decides",
    parameters=("x", "block", "warps"),
    kind="kernel",
    inputs=_inputs,
    reference=fixed_tree_reference,
    call=_call,
    judge=_judge,
    tolerance=lambda case, inputs: EXACT,
    dtype=lambda inputs: torch.float32,
    cases=(
        Case("no multiple of a block, three settings", rows=3, K=1000),
        Case("rows of a wider matrix; one element in the last block of 256", rows=2, K=769, columns_before=5),
        Example(
            "the example of the statement",
            x=lambda: torch.tensor([[1.0, 2.0**-24, 2.0**-24, 2.0**-24, 2.0**-24]]),
            settings=[[64, 1]],
        ),
        Case("a power of two", rows=2, K=1024),
        Case("one element", rows=2, K=1, settings=((64, 1),)),
    ),
    fresh=_fresh,
    trivial={
        "zeros": lambda x, block, warps: torch.zeros(len(x), device=x.device),
        "ones": lambda x, block, warps: torch.ones(len(x), device=x.device),
        "nan": lambda x, block, warps: torch.full((len(x),), float("nan"), device=x.device),
        "the input": lambda x, block, warps: x,
    },
    limits=(
        Limit(
            "launches",
            "One launch for each call: all rows side by side, a program for each, and no second kernel.",
            at_least=lambda case: len(_settings(case)),
            at_most=lambda case: len(_settings(case)),
        ),
        Limit(
            "waves",
            "Each row has a program of `warps` warps: give num_warps=warps to the launch.",
            at_least=_waves,
            at_most=_waves,
        ),
        Limit(
            "global_atomics",
            "Atomic additions come in any order. Keep the sums of the blocks in the program.",
            at_most=lambda case: 0,
        ),
    ),
    torch_may=(),
    misconceptions=(
        Misconception(
            "tl_sum_in_a_block",
            treed("tl.sum in a block"),
            "A block is summed by tl.sum. Its tree follows the layout, so block, warps and the width of a wave decide "
            "it. Let only two elements meet in a tl.sum, level by level.",
        ),
        Misconception(
            "halves_in_a_block",
            treed("halves in a block"),
            "In a block the second half is added to the first. With a block of twice the size other elements meet: the "
            "tree follows the block. Neighbours meet in every block that they are both in.",
        ),
        Misconception(
            "blocks_in_turn",
            treed("blocks in turn"),
            "Within a block the tree is right, and the blocks' sums are added one after another. That is no tree of "
            "the row: with another block there are other sums to add. Keep them all, and let neighbours meet again.",
        ),
        Misconception(
            "lanes_first",
            by(slips.lanes_kernel),
            "Elements a block apart are added first, in the places of one block, and a tree comes last. So the block "
            "decides who meets whom. First a block's own elements, then blocks.",
        ),
        Misconception(
            "atomics",
            slips.atomics,
            "Sums of blocks are added by atomics: in any order, and one after another where a tree is asked for.",
        ),
        Misconception(
            "in_double",
            by(slips.double_kernel),
            "The sum is made in float64 and rounded once. That is nearer to the truth, and these are other bits: the "
            "stated tree rounds to float32 at every node.",
        ),
        Misconception(
            "no_mask",
            treed("no mask"),
            "The last block passes the end of its row: load zeros there, with mask=k < K and other=0.0.",
        ),
        Misconception(
            "last_block_missing",
            treed(blocks_of=lambda K, block: max(1, K // block)),
            "The last block, which is not full, is left out: a row has cdiv(K, block) of them.",
        ),
        Misconception(
            "ignores_stride",
            treed(stride=lambda x: x.shape[1]),
            "It fails where x is part of a wider matrix: row r begins at r * x.stride(0), not at r * K.",
        ),
        Misconception(
            "ignores_warps",
            treed(warps_of=lambda warps: 1),
            "The bits are right, and every launch had one warp. The point is that the number of warps does not matter: "
            "give num_warps=warps to the launch.",
        ),
        Misconception(
            "a_column",
            treed(shape=lambda rows: (rows, 1)),
            "The result is a column, (rows, 1). It is to be of shape (rows,).",
        ),
        Misconception(
            "with_torch",
            slips.with_torch,
            "The sums are torch's, whose order is its own. Here they are your kernel's work.",
        ),
        Misconception(
            "returns_nothing",
            slips.returns_nothing,
            "The kernel ran, and nobody gets its result: end the launcher with return out.",
        ),
    ),
    hints=(
        "Draw the tree over 8 elements, and put blocks of 2 and of 4 below it. Which of its nodes are sums of a whole "
        "block, in either case?",
        "A block is a subtree. So a program makes the tree of each block, keeps the sums of all of them in one tensor, "
        "in their places, and makes the same tree of that. One function serves for both.",
        "x = tl.sum(tl.reshape(x, (n // 2, 2)), 1), in a loop over tl.static_range, until one is left; tl.sum of one "
        "element takes it out. sums = tl.where(tl.arange(0, P) == block, one, sums), where P is "
        "the next power of two of cdiv(K, BLOCK).",
    ),
    seconds=60.0,  # three settings are compiled for each target
    explanation=(
        "Blocks whose size is a power of two, and which begin at multiples of it, are subtrees of the tree of "
        "neighbours. So however large they are, the same pairs meet. Nothing of the launch is left in the order, and "
        "IEEE 754 has one result for each addition: all chips agree, waves of 32 and of 64. What it costs: neighbours "
        "are exchanged at every level, where one tl.sum would first add what a lane holds and then let lanes exchange "
        "as the chip does it best. (tl.split into even and odd elements has the same bits, and makes a lane hold its "
        "whole subtree: several times the instructions.) What it wins besides: the error grows with log2 K, as it does "
        "for every pairwise sum."
    ),
)
