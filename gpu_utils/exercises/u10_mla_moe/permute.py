"""10.permute: tokens go to their experts, in an order that does not depend on luck, padded to whole tiles."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import EXACT
from gpu_utils.exercises.drawing import signed
from gpu_utils.exercises.other_order import in_both_orders
from gpu_utils.exercises.u10_mla_moe import permute_slips as slips
from gpu_utils.exercises.u10_mla_moe.permute_slips import answer
from gpu_utils.grading.compare import Difference, compare
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Limit, Misconception

PARTS = ("rows", "source", "offsets", "position")

MOST_LAUNCHES = 4
"""Of one call."""

MOST_WAVES = 8
"""Of a program, for the limit on loads: each of them may load a number that a program needs once."""


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    T, E, D = case["T"], case["E"], case["D"]
    x = signed((T, D + 24), generator).to(getattr(torch, case.get("dtype", "float16")))
    x = x[:, 8 : 8 + D] if case.get("view") else x[:, :D].contiguous()
    scores = torch.rand(T, E, generator=generator) + torch.linspace(0.5, 0, E)  # the first experts get more
    scores[:, list(case.get("idle", ()))] = -1
    experts = scores.topk(case["k"]).indices
    mixed = torch.rand(experts.shape, generator=generator).argsort(1)
    return {"x": x, "experts": experts.gather(1, mixed), "num_experts": E, "tile": case["tile"]}


def _decoys(inputs: Inputs, generator: torch.Generator) -> Inputs:
    """The tokens' choices, dealt out to other tokens: each expert keeps its load, and the result its rows."""
    experts = inputs["experts"]
    return {"experts": experts[torch.randperm(len(experts), generator=generator)]}


def permute_reference(x: Tensor, experts: Tensor, num_experts: int, tile: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Expert after expert, and in each of them token after token."""
    source: list[int] = []
    offsets = [0]
    position = torch.zeros(experts.shape, dtype=torch.int32)
    for expert in range(num_experts):
        for token, choice in (experts == expert).nonzero().tolist():
            position[token, choice] = len(source)
            source.append(token)
        source += [-1] * (-len(source) % tile)
        offsets.append(len(source))
    of = torch.tensor(source, dtype=torch.int32)
    rows = x[of.long()].masked_fill((of < 0)[:, None], 0.0)
    return rows, of, torch.tensor(offsets, dtype=torch.int32), position


def _judge(case: Case, inputs: Inputs, value: list[Any]) -> Difference | None:
    expected = permute_reference(**inputs)
    dtypes = {0: inputs["x"].dtype, 1: None, 2: None, 3: None}
    first, again = value
    if found := compare(expected, first, EXACT, dtypes, parts=PARTS):
        return found
    if found := compare(expected, again, EXACT, dtypes, parts=PARTS):
        return Difference(
            "order",
            f"right, and no longer right when the programs of the launches run in another order: {found.detail}",
        )
    return None


def _counted(case: Case) -> bool:
    return case["D"] % 128 == 0


def _most_loaded(case: Case) -> float:
    """Sectors of 32 bytes: each row of x once, `experts` three times for each expert, positions for each wave."""
    if not _counted(case):
        return math.inf
    entries = case["T"] * case["k"]
    experts = 3 * case["E"] * (entries * 8 / 32 + MOST_WAVES * 4)
    return 1.1 * case["T"] * case["D"] * 2 / 32 + MOST_WAVES * entries + experts


def _most_stored(case: Case) -> float:
    """Bytes: all rows with the most padding there can be, and the numbers that say where they are."""
    entries = case["T"] * case["k"]
    rows = entries + case["E"] * (case["tile"] - 1)
    return 1.05 * 2 * rows * case["D"] + 8 * (rows + 4 * entries + 4 * case["E"]) + 4096


def _filled(number: float) -> Callable[..., Any]:
    def wrong(x: Tensor, experts: Tensor, num_experts: int, tile: int) -> tuple[Tensor, ...]:
        new: dict[str, Any] = {"dtype": torch.int32, "device": x.device}
        whole = 2 if math.isnan(number) else int(number)
        rows = torch.full((tile * num_experts, x.shape[1]), number, dtype=x.dtype, device=x.device)
        source = torch.full((len(rows),), whole, **new)
        return rows, source, torch.full((num_experts + 1,), whole, **new), torch.full(experts.shape, whole, **new)

    return wrong


def _fresh(rng: random.Random) -> Case:
    E = rng.randrange(5, 20)
    return Case(
        "sizes nobody chose",
        T=rng.randrange(40, 130),
        k=rng.randrange(2, 4),
        E=E,
        D=rng.randrange(33, 127, 2),
        tile=rng.choice([4, 16, 32]),
        idle=(rng.randrange(1, E),),
    )


EXERCISE = Exercise(
    id="10.permute",
    title="Tokens to their experts",
    parameters=("x", "experts", "num_experts", "tile"),
    parts=PARTS,
    kind="kernel",
    inputs=_inputs,
    reference=permute_reference,
    tolerance=lambda case, inputs: EXACT,
    dtype=lambda inputs: {0: inputs["x"].dtype, 1: None, 2: None, 3: None},
    call=in_both_orders,
    judge=_judge,
    cases=(
        Case("wide rows: everything is counted", T=60, k=3, E=6, D=1024, tile=16),
        Case("an expert with exactly one tile of rows", T=16, k=1, E=3, D=40, tile=16, idle=(0, 2)),
        Case("odd sizes, and two experts that nobody chose", T=131, k=2, E=7, D=77, tile=16, idle=(0, 3)),
        Case("parts of wider rows, in bfloat16", T=19, k=2, E=4, D=100, tile=8, view=True, dtype="bfloat16"),
        Case("one expert has them all, the last of 45", T=9, k=1, E=45, D=48, tile=4, idle=range(44)),
        Case("a single token, and tiles that stay nearly empty", T=1, k=4, E=5, D=65, tile=32),
        Case("a single expert", T=6, k=1, E=1, D=40, tile=4),
        Case("more tokens than a block, and tiles of one row: nothing is padded", T=260, k=4, E=16, D=33, tile=1),
    ),
    fresh=_fresh,
    trivial={
        "zeros": _filled(0.0),
        "ones": _filled(1.0),
        "nan": _filled(math.nan),
        "the input": lambda x, experts, num_experts, tile: (x, experts[:, 0], experts[:, 0], experts),
    },
    torch_may=("item", "tolist"),
    decoys=_decoys,
    limits=(
        Limit("launches", "Launch kernels of your own: they count, place and copy.", at_least=lambda case: 1),
        Limit(
            "launches",
            "Too many launches: a check calls your answer twice, so four are eight. One kernel can count for all "
            "experts, one place all entries and one copy all rows.",
            at_most=lambda case: 2 * MOST_LAUNCHES,  # of both runs
        ),
        Limit(
            "blocks",
            "Too few programs copy rows: give each token, or each row, one of its own.",
            at_least=lambda case: min(case["T"], 16),
        ),
        Limit(
            "global_load_sectors",
            "More is loaded than asked for. A token has k rows in the result, and its row of x needs to be loaded only "
            "once: a program for a token stores it k times. And `experts` need not be read more than three times for "
            "each expert.",
            at_most=_most_loaded,
        ),
        Limit(
            "global_store_bytes",
            "Each row is to be stored once, and no more rows than the padding asks for.",
            at_most=_most_stored,
        ),
        Limit(
            "scratch_bytes",
            "Registers are spilled: take smaller blocks, or more warps.",
            at_most=lambda case: 0,
        ),
    ),
    misconceptions=(
        Misconception(
            "slots_by_atomics",
            answer(atomics=True),
            "The numbers are right as long as tokens come in their order. An atomic gives the next free row to whoever "
            "comes first, so the order of the rows is another one in each run. The row of an entry is the number of "
            "entries before it with the same expert: count those.",
        ),
        Misconception(
            "offsets_not_padded",
            answer(slips.NOT_PADDED),
            "The stretches of the experts follow each other without a gap. Each is to begin at a multiple of `tile`: "
            "round each count up before you add them.",
        ),
        Misconception(
            "counts_rounded_down",
            answer(slips.ROUNDED_DOWN),
            "Counts are rounded down to whole tiles, so the last rows of an expert lie on those of the next one. Round "
            "up.",
        ),
        Misconception(
            "a_tile_too_many",
            answer(slips.ONE_MORE_TILE),
            "count // tile + 1 gives a tile too many to an expert whose count is a multiple of the tile, and one to an "
            "expert that nobody chose.",
        ),
        Misconception(
            "ranks_begin_again",
            answer(slips.NOT_CARRIED),
            "A program that goes through the entries block by block begins to count anew in each block, so later rows "
            "overwrite earlier ones. Carry the number of entries that were found before.",
        ),
        Misconception(
            "ranks_from_one",
            answer(slips.FROM_ONE),
            "The first row of each expert stays empty: tl.cumsum counts the entry itself, too. The rank of the first "
            "one is 0.",
        ),
        Misconception(
            "offset_is_its_own_end",
            answer(slips.OWN_END),
            "Every stretch begins where it should end: the sum that leads to an expert's offset holds only the experts "
            "before it.",
        ),
        Misconception(
            "first_choices_first",
            answer(slips.BY_CHOICE),
            "In a stretch the rows of all first choices come first, then those of all second ones. The order is by "
            "token number, whichever choice it was: `experts` is read as it lies in memory, row by row.",
        ),
        Misconception(
            "tokens_backwards",
            answer(slips.REVERSED),
            "In each stretch the last token comes first. Ranks count from the first token on.",
        ),
        Misconception(
            "last_entries_not_counted",
            answer(slips.LAST_STEP_LOST),
            "The entries that fill no whole block are not counted: the loop must go on to the last one, with a mask.",
        ),
        Misconception(
            "first_choice_only",
            answer(slips.FIRST_CHOICE),
            "Only one row of each token is copied. A token goes to all of its k experts.",
        ),
        Misconception(
            "source_is_the_entry",
            answer(slips.SOURCE_IS_ENTRY),
            "`source` holds the number of the entry, token * k + choice. Asked for is the token.",
        ),
        Misconception(
            "padding_from_token_zero",
            answer(nobody=0),
            "Padded rows say that they come from token 0. Their `source` is -1.",
        ),
        Misconception(
            "padding_not_zeroed",
            answer(rows=torch.empty),
            "Padded rows hold whatever was in that memory. They are to be zero, also if nobody seems to read them: "
            "what a product makes of NaN is NaN.",
        ),
        Misconception(
            "rows_with_a_spare_tile",
            answer(more=slips.a_tile_more),
            "`rows` has more rows than the last offset says.",
        ),
        Misconception(
            "one_stretch_without_an_end",
            answer(returns=lambda rows, source, offsets, position: (rows, source, offsets[:-1], position)),
            "`offsets` has a number for each expert only: their counts, or their beginnings. The end of the last "
            "stretch belongs to it: num_experts + 1 numbers, the first of them 0.",
        ),
        Misconception(
            "position_is_flat",
            answer(returns=lambda rows, source, offsets, position: (rows, source, offsets, position.flatten())),
            "`position` has the shape of `experts`: for each token and choice the row where it is.",
        ),
        Misconception(
            "takes_x_for_contiguous",
            answer(stride=lambda x: x.shape[1]),
            "It fails for a view: from one token to the next it is x.stride(0) elements.",
        ),
        Misconception(
            "no_mask_of_columns",
            answer(slips.NO_MASK),
            "Rows whose width is no power of two are stored beyond their end, into the next row.",
        ),
        Misconception(
            "loads_for_each_choice",
            answer(slips.GATHERED),
            "The result is right, and each row of x was loaded k times. It is in registers after the first time.",
        ),
        Misconception(
            "of_a_copy",
            slips.of_a_copy,
            "x is copied before your kernel runs: read and written once more. Read it in place, by its stride.",
        ),
        Misconception(
            "sorted_by_torch",
            slips.sorted_by_torch,
            "torch counted, sorted and copied. Here kernels do it; torch makes empty tensors, and tells you the last "
            "offset.",
        ),
    ),
    hints=(
        "Three questions, three kernels. How many entries has each expert? In which row does an entry land? And then "
        "the copy. For the second: what must an entry know about the entries before it, and what about the experts "
        "before its own?",
        "A program for each expert can go through all of `experts` in blocks, with a mask chosen == expert. "
        "tl.sum(mask) counts; tl.cumsum(mask) - 1 ranks within a block, and the number found in earlier blocks is "
        "added to it. Where its stretch begins is a sum of rounded counts, of the experts before it.",
        "padded = tl.cdiv(counts, TILE) * TILE over all counts in one vector; first = tl.sum(tl.where(one < expert, "
        "padded, 0)). offsets[-1].item() gives the size of torch.zeros(...) for rows and torch.full(..., -1) for "
        "source. Then one program for each token: load its row once, and for each choice store it at its position.",
    ),
    seconds=30.0,
    failures=2,
    explanation=(
        "The row of an entry is the padded beginning of its expert's stretch plus the number of earlier entries of the "
        "same expert. Nothing of that depends on which program comes first, so the order is stable: the same batch "
        "gives the same rows, bit for bit, and a run can be repeated. An atomic counter for each expert would be "
        "shorter, and would shuffle the rows from run to run. Each expert's program reads all of `experts`: for a few "
        "hundred experts one counts in blocks of tokens instead, and adds those counts up. A token's row is loaded "
        "once and stored k times. `item()` makes the CPU wait for the GPU; who must not wait makes room for the "
        "largest number of rows there can be."
    ),
)
