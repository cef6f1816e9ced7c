"""05.grouped_order: which tile a program takes, so that an L2 keeps what its neighbours need, on one die and eight."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gpu_utils.analytic.tile_order import by_die, fetched_strips, grouped, least_strips, rounds
from gpu_utils.analytic.tolerance import EXACT
from gpu_utils.exercises.u05_triton_matmul import grouped_order_slips as slips
from gpu_utils.exercises.u05_triton_matmul.grouped_order_slips import switched
from gpu_utils.grading.compare import Difference
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Limit, Misconception

ONE, EACH = 132, 38
"""Programs that run at a time on a chip of one die, and on each die of a chip of several: H100 and MI300X."""

MOST = 1.45
"""Strips over the least that any order could fetch. Groups of 6 to 13 rows stay below, and of 4 or 16 do not."""

COUNTED = 36
"""Strips are counted where there are so many tiles in both directions."""


def resident(dies: int) -> int:
    """Programs of the whole chip that run at a time."""
    return ONE if dies == 1 else EACH * dies


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    # numbers in no order: the tile that a program took is known by its number alone
    rows, columns = case["tiles_m"], case["tiles_n"]
    numbers = torch.randperm(rows * columns, generator=generator, dtype=torch.int32) + 1000
    return {"tiles": numbers.view(rows, columns), "dies": case["dies"]}


def grouped_order_reference(tiles: Tensor, dies: int) -> Tensor:
    """The numbers of the tiles in one right order; there are many."""
    rows, columns = tiles.shape
    order = torch.from_numpy(by_die(grouped(rows, columns, slips.GROUP), dies))
    return tiles[order[:, 0], order[:, 1]].long()


def _judge(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    tiles, dies = inputs["tiles"], inputs["dies"]
    if not isinstance(value, Tensor):
        return Difference(
            "type", f"the result is of type {type(value).__name__}, expected a tensor; is a return missing?"
        )
    if value.shape != (tiles.numel(),):
        return Difference("shape", f"the result has shape {tuple(value.shape)}, expected one number for each tile")
    if value.dtype != tiles.dtype:
        return Difference("dtype", f"the result is {value.dtype}, expected {tiles.dtype}, as the tiles are")
    return _not_each_once(tiles, value) or _too_many_strips(tiles, dies, value)


def _not_each_once(tiles: Tensor, value: Tensor) -> Difference | None:
    """Kinds: "outside" where a program took no tile at all, "unwritten", "twice"."""
    taken = torch.isin(value, tiles)
    if not taken.all():
        pid = int((~taken).nonzero()[0])
        if value[pid] == -1:
            said = f"program {pid} takes a tile that is not there: there are {tiles.shape[0]} x {tiles.shape[1]} tiles"
            return Difference("outside", f"{said} ({int((value == -1).sum())} programs do)")
        return Difference("unwritten", f"out[{pid}] = {int(value[pid])}, which is no tile's number; was it written?")
    numbers, times = value.unique(return_counts=True)
    if len(numbers) == tiles.numel():
        return None
    row, column = (tiles == numbers[times > 1][0]).nonzero()[0].tolist()
    lost = tiles.numel() - len(numbers)
    return Difference("twice", f"tile ({row}, {column}) is taken {int(times.max())} times, and {lost} tiles by nobody")


def _too_many_strips(tiles: Tensor, dies: int, value: Tensor) -> Difference | None:
    """Kinds: by the shape of what one L2 serves at a time: "strips:low", "strips:high" or "strips:scattered"."""
    if min(tiles.shape) < COUNTED:
        return None
    place = torch.argsort(tiles.flatten())[torch.argsort(torch.argsort(value))]
    order = torch.stack([place // tiles.shape[1], place % tiles.shape[1]], dim=1).numpy()
    found = fetched_strips(order, resident(dies), dies)
    least = least_strips(tiles.shape[0], tiles.shape[1], resident(dies), dies)
    if found <= MOST * least:
        return None
    first = next(rounds(order, resident(dies), dies))[0]
    rows, columns = (len(np.unique(first[:, side])) for side in (0, 1))
    kind = "scattered" if rows * columns > 2.5 * len(first) else "low" if rows < columns else "high"
    of = "the L2 fetches" if dies == 1 else f"the {dies} L2s fetch"
    where = "the chip" if dies == 1 else "die 0"
    return Difference(
        f"strips:{kind}",
        f"{of} {found:,} strips, and {int(MOST * least):,} are allowed ({least:,} is the least for any order). The "
        f"first {len(first)} programs of {where} need {rows} strips of A and {columns} of B",
    )


def _fresh(rng: random.Random) -> Case:
    sides = {"tiles_m": rng.randrange(COUNTED, 56), "tiles_n": rng.randrange(COUNTED + 1, 56, 2)}
    return Case("tiles and dies that nobody chose", **sides, dies=rng.choice([1, 6, 8]))


def _case(why: str, tiles_m: int, tiles_n: int, dies: int) -> Case:
    return Case(why, tiles_m=tiles_m, tiles_n=tiles_n, dies=dies)


def _filled(value: int) -> Any:
    return lambda tiles, dies: torch.full((tiles.numel(),), value, dtype=tiles.dtype, device=tiles.device)


EXERCISE = Exercise(
    id="05.grouped_order",
    title="The order of tiles decides what the L2 keeps",
    parameters=("tiles", "dies"),
    kind="kernel",
    inputs=_inputs,
    reference=grouped_order_reference,
    tolerance=lambda case, inputs: EXACT,
    judge=_judge,
    cases=(
        _case("fewer tiles than dies", 1, 5, 8),
        _case("fewer rows of tiles than a group has", 3, 5, 8),
        _case("one column of tiles", 37, 1, 1),
        _case("one L2, and groups divide the rows of tiles: strips are counted", 48, 40, 1),
        _case("one L2, and the last group is low", 41, 51, 1),
        _case("eight dies, each with its L2; they do not divide the tiles", 41, 51, 8),
        _case("eight dies, and a multiple of eight tiles", 48, 43, 8),
        _case("another number of dies", 37, 44, 5),
    ),
    fresh=_fresh,
    trivial={
        "zeros": _filled(0),
        "ones": _filled(1),
        "nan": _filled(-(2**31)),
        "the input": lambda tiles, dies: tiles.flatten().clone(),
    },
    torch_may=(),
    limits=(
        Limit(
            "launches",
            "One launch of order_kernel writes the whole order.",
            at_least=lambda case: 1,
            at_most=lambda case: 1,
        ),
        Limit(
            "blocks",
            "A program of order_kernel answers for BLOCK program ids of the product.",
            at_most=lambda case: case["tiles_m"] * case["tiles_n"] // 16 + 1,
        ),
    ),
    misconceptions=(
        Misconception(
            "row_by_row",
            switched(slips.ROW_BY_ROW),
            "Every tile is taken once, in rows: programs that run together share a strip or two of A and need nearly "
            "every strip of B. A block of tiles that is about as high as it is wide needs far fewer: group rows.",
        ),
        Misconception(
            "column_by_column",
            switched(slips.COLUMN_BY_COLUMN),
            "Every tile is taken once, in columns: programs that run together share a strip or two of B and need "
            "nearly every strip of A. Go down a few rows only, then to the next column.",
        ),
        Misconception(
            "group_too_low",
            switched(group=3),
            "The order is grouped, and the group has too few rows for one L2: 132 programs that run together reach far "
            "to the right. How many rows make their block of tiles about square?",
        ),
        Misconception(
            "group_of_16",
            switched(group=16),
            "Sixteen rows are good for one L2, and too many for a die: its 38 programs are 16 x 3 tiles or 16 x 4, "
            "some 20 strips where 6 x 7 has 13. How many rows suit both?",
        ),
        Misconception(
            "group_too_high",
            switched(group=20),
            "For the 132 programs of one die these groups are low enough. On a chip of several dies 38 run together on "
            "each: they fill little more than a column or two of your group. How many rows suit both?",
        ),
        Misconception(
            "exchanged",
            switched(slips.EXCHANGED),
            "Row and column of the tile are exchanged, which shows where there are not as many columns as rows.",
        ),
        Misconception(
            "no_low_group",
            switched(slips.NO_LOW_GROUP),
            "It is right where the group divides the rows of tiles. If it does not, the last group has fewer rows, and "
            "its programs walk out of the bottom: how high is this group?",
        ),
        Misconception(
            "low_only_alone",
            switched(slips.LOW_ONLY_ALONE),
            "The height of a group is limited by all rows of tiles. It must be by those that are left below its first "
            "row.",
        ),
        Misconception(
            "column_of_a_full_group",
            switched(slips.COLUMN_OF_A_FULL_GROUP),
            "In the last, low group the column is found with the height of a full one. A column of tiles is finished "
            "after as many programs as this group has rows.",
        ),
        Misconception(
            "group_of_the_columns",
            switched(slips.GROUP_OF_THE_COLUMNS),
            "A group has GROUP rows of tiles, and each row has tiles_n tiles, not tiles_m.",
        ),
        Misconception(
            "dies_forgotten",
            switched(dies_are=1),
            "On one L2 this is right. On several dies program i is on die i % dies, so neighbours in your order never "
            "share an L2. Let the programs of one die, which are dies apart, walk through neighbouring tiles.",
        ),
        Misconception(
            "always_eight_dies",
            switched(dies_are=8),
            "The order is made for eight dies whatever `dies` is. A chip with one L2 then works in eight places at "
            "once.",
        ),
        Misconception(
            "remainder_lost",
            switched(slips.REMAINDER_LOST),
            "It is right where the dies divide the number of tiles. If some are left over, the first dies have one "
            "program more than the others, so the parts of the later ones begin further on.",
        ),
        Misconception(
            "parts_rounded_up",
            switched(slips.PARTS_ROUNDED_UP),
            "Every die's part is as long as that of the first die, so the last ones go beyond the last tile. Only "
            "tiles % dies of the dies have one program more.",
        ),
        Misconception(
            "inverse",
            switched(slips.INVERSE),
            "The programs are dealt out the other way round. Program i is on die i % dies and is the (i // dies)-th "
            "one there: that one is to take the (i // dies)-th tile of its die's part.",
        ),
        Misconception(
            "remainder_added_to_each",
            switched(slips.REMAINDER_ADDED_TO_EACH),
            "The whole remainder is added in front of every part, and the first part loses its beginning. Die d begins "
            "later by as many tiles as dies before it have one more.",
        ),
        Misconception(
            "grid_rounded_down",
            switched(programs=lambda tiles: max(1, tiles.numel() // slips.BLOCK)),
            "The end of the result is not written: tiles // BLOCK rounds down. Launch triton.cdiv(tiles, BLOCK) "
            "programs.",
        ),
        Misconception(
            "a_program_for_each_tile",
            switched(programs=lambda tiles: tiles.numel()),
            "The order is right. The product would have a program for each tile; order_kernel asks for BLOCK ids at a"
            " time, so most of your programs find nothing to do. Count blocks.",
        ),
        Misconception(
            "in_two_dimensions",
            slips.in_two_dimensions,
            "The result is a vector: one number for each program, in the order of the programs.",
        ),
        Misconception(
            "returns_nothing",
            slips.returns_nothing,
            "The kernel ran, and nobody gets what it wrote. End the launcher with return out.",
        ),
        Misconception(
            "the_numbers_as_they_are",
            lambda tiles, dies: tiles.flatten().clone(),
            "These are the numbers row by row, and no kernel chose them. Launch order_kernel.",
        ),
    ),
    hints=(
        "Take 132 programs that run together. If their tiles are r rows high and c columns wide, the L2 fetches r + c "
        "strips, and r * c is 132. Which r is best? Then draw the last group of 41 rows of tiles on paper.",
        "One L2: GROUP rows of tiles are GROUP * tiles_n programs. Divide the program id by that: the quotient says "
        "which group, and so its first row and how many rows it has (the last one fewer); the rest says where inside,"
        " and you go down a column of the group before you go to the next one. Several dies: first find the place in "
        "that order. Program i is number i // dies of die i % dies, and each die takes one part without gaps.",
        "Several dies: place = count // dies * die + tl.minimum(die, count % dies) + turn, with die = pid % dies and "
        "turn = pid // dies. One order: first = place // (GROUP * tiles_n) * GROUP; height = tl.minimum(tiles_m - "
        "first, GROUP); inside = place % (GROUP * tiles_n); the row is first + inside % height, the column inside // "
        "height.",
    ),
    seconds=30.0,  # a busy machine compiles such a kernel for ten
    explanation=(
        "Programs that run together need r strips of A and c of B for r * c tiles, and r + c is least for a square. "
        "Row by row, 132 programs need nearly all of B in every round; in groups of eight rows about 8 + 17 strips. "
        "On a chip of dies the same order is the worst one: with GROUP = 8 and eight dies, each die gets one row of "
        "every group, 1 + 38 strips where 13 would do. Dealing the order in parts gives each L2 neighbours again. "
        "Both are only a renaming of program ids: each tile is still computed once, so the result cannot change, and "
        "every slip in the arithmetic that loses a tile can."
    ),
)
