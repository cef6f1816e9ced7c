"""11.fp8_dispatch: a dispatch whose rows travel as E4M3, with a scale for each 1 x 128."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gpu_utils.exercises.on_ranks import on_ranks
from gpu_utils.exercises.u08_fp8.shared import activations
from gpu_utils.exercises.u11_expert_parallelism import dispatch
from gpu_utils.exercises.u11_expert_parallelism import fp8_dispatch_slips as slips
from gpu_utils.exercises.u11_expert_parallelism.exchange import (
    Ranks,
    copies_between,
    drawn,
    given,
    too_many_or_few,
)
from gpu_utils.grading.compare import Difference
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Misconception

BESIDE_THE_MIDDLE = 2.0**-20
"""x / scale may be off by this share: a reciprocal in float32 and a product, in place of a division."""

NEARLY_ALL = 0.99
"""Of the elements, where a wrong result is recognised: the others lie beside the middle of two codes."""


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    each = []
    for one in drawn(case, generator):
        x = activations(max(1, len(one["experts"])), case["width"], generator)[: len(one["experts"])]
        if case.get("zeros"):
            x[::2, :128] = 0.0
        each.append({"x": x.to(getattr(torch, case["dtype"])), "experts": one["experts"]})
    return given(each, case, num_experts=case["num_experts"])


def _arrived(inputs: Inputs, through: Callable[[Tensor], Tensor]) -> Ranks:
    """(rows, counts) of each rank, where `through` is what is left of x after the wire."""
    return dispatch.arrived({**inputs, "each": [{**one, "x": through(one["x"])} for one in inputs["each"]]})


def _left(quantised: Callable[[Tensor], slips.Quantised] = slips.tiles, numbers: Any = slips.multiplied) -> Any:
    def through(x: Tensor) -> Tensor:
        codes, scales = quantised(x)
        return numbers(codes.float(), scales, x.shape[1])

    return through


def reference(each: Any, shared: Any, groups: Any) -> dict[str, Ranks]:
    """What each rank returns."""
    return {"ranks": _arrived({"each": each, "shared": shared, "groups": groups}, _left())}


def _pushed(share: float) -> Callable[[Tensor], Tensor]:
    """What is left of x where x / scale is pushed away from 0 by `share` before the cast."""

    def through(x: Tensor) -> Tensor:
        _, scales = slips.tiles(x)
        wide = slips.spread(scales, x.shape[1])
        pushed = (x.double() / wide.double() * (1 + share)).clamp(-448, 448)
        return pushed.float().to(slips.E4M3).float() * wide

    return through


_WRONG: dict[str, tuple[str, Callable[[Tensor], Tensor]]] = {
    "codes": ("they are the codes, without the scales", _left(numbers=slips.codes_alone)),
    "divided": ("they are code / scale", _left(numbers=slips.divided)),
    "scale:row": ("a scale for a whole row is behind them", _left(slips.rows_alone)),
    "scale:rank": ("one scale for all tokens of a rank is behind them", _left(slips.one_scale)),
    "scale:none": ("x itself was cast, without a scale", _left(slips.unscaled)),
    "scale:turn": ("column c has the scale of tile c modulo the number of tiles", _left(numbers=slips.in_turn)),
    "scale:narrow": ("the scales were rounded to bfloat16", _left(slips.bf16_scales)),
    "not:quantised": ("they are x, to more digits than E4M3 has", lambda x: x.float()),
}
"""Kind -> what the rows are instead, and what is left of x then."""


def _alike(wanted: Ranks, ranks: Ranks) -> bool:
    equal = total = 0
    for (rows, _), (got, _) in zip(wanted, ranks, strict=True):
        near = (got.double() - rows.double()).abs() <= 1e-5 * rows.double().abs()
        equal, total = equal + int((near | (got.isnan() & rows.isnan())).sum()), total + rows.numel()
    return equal >= NEARLY_ALL * total


def _wrong_rows(inputs: Inputs, ranks: Ranks) -> Difference | None:
    form = dispatch.wrong_in(
        [rows for rows, _ in ranks],
        [torch.where(torch.ones_like(r, dtype=torch.bool), r, r) for r in _shaped(inputs, ranks)],
        "rows",
        torch.float32,
        {},
        inputs,
    )
    if form:
        return form
    bounds = [_arrived(inputs, _pushed(share)) for share in (-BESIDE_THE_MIDDLE, BESIDE_THE_MIDDLE)]
    found = None
    for number, ((low, _), (high, _), (got, _)) in enumerate(zip(*bounds, ranks, strict=True)):
        slack = 2.0**-21 * high.abs()
        off = ~((got >= torch.minimum(low, high) - slack) & (got <= torch.maximum(low, high) + slack))
        if off.any() and found is None:
            at = tuple(int(i) for i in off.nonzero()[0])
            what = "nan" if got[at].isnan() else "value"
            said = f"rank {number}'s rows[{at[0]}, {at[1]}] = {got[at].item():.6g}, expected {low[at].item():.6g}"
            found = Difference(what, f"{said}; {int(off.sum())} of {off.numel()} elements differ")
    if found is None:
        return None
    for kind, (said, through) in _WRONG.items():
        if _alike(_arrived(inputs, through), ranks):
            return Difference(kind, f"{found.detail}. Rows: {said}")
    if _alike(_scales_by_source(inputs), ranks):
        return Difference("scale:order", f"{found.detail}. Rows: their codes are right, with the scales of other rows")
    return found


def _shaped(inputs: Inputs, ranks: Ranks) -> list[Tensor]:
    """Expected rows where a rank's have the right form, so that only a wrong form differs."""
    expected = [rows for rows, _ in _arrived(inputs, _left())]
    return [
        got
        if isinstance(got, Tensor) and got.shape == rows.shape and got.dtype == rows.dtype and not got.isnan().any()
        else rows
        for rows, (got, _) in zip(expected, ranks, strict=True)
    ]


def _scales_by_source(inputs: Inputs) -> Ranks:
    """Codes in their order, scales in the order in which they came."""
    tiled = [slips.tiles(one["x"]) for one in inputs["each"]]
    codes, scales = (
        {**inputs, "each": [{**one, "x": part[which]} for one, part in zip(inputs["each"], tiled, strict=True)]}
        for which in (0, 1)
    )
    width = inputs["each"][0]["x"].shape[1]
    came = dispatch.arrived(scales, lambda c: (c.source, c.local, c.token))
    return [
        (rows.float() * slips.spread(own, width), counts)
        for (rows, counts), (own, _) in zip(dispatch.arrived(codes), came, strict=True)
    ]


def _judge(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    if problem := dispatch.pairs_of(value):
        return problem
    return (
        _wrong_rows(inputs, value["ranks"])
        or dispatch.wrong_counts(value["ranks"], inputs)
        or _wrong_bytes(inputs, value["sent"])
    )


def _wrong_bytes(inputs: Inputs, sent: Any) -> Difference | None:
    x, E = inputs["each"][0]["x"], inputs["shared"]["num_experts"]
    width = x.shape[1]
    row = width + 4 * math.ceil(width / slips.TILE)
    copies = copies_between(inputs, E)
    found = too_many_or_few(sent, copies, row, E, "copies", copies_between(inputs, E, once=True))
    if found is None or found.kind == "bytes:few":
        return found
    travelled, count = sum(map(sum, sent)), sum(map(sum, copies))
    if travelled < count * width * 2:
        return found
    kind = "bytes:wide" if travelled < count * width * 3 else "bytes:wider"
    return Difference(kind, f"{found.detail}. That is more than bfloat16 would take")


def _fresh(rng: random.Random) -> Case:
    world = rng.choice([2, 3, 4])
    return Case(
        "ranks, tokens and widths that nobody chose",
        tokens=tuple(rng.randrange(0, 7) for _ in range(world)),
        num_experts=2 * world,
        k=2,
        width=rng.randrange(130, 700),
        dtype=rng.choice(["float32", "bfloat16"]),
    )


EXERCISE = Exercise(
    id="11.fp8_dispatch",
    title="A dispatch in FP8: half the bytes",
    parameters=("x", "experts", "num_experts", "group"),
    kind="host",
    inputs=_inputs,
    reference=reference,
    call=on_ranks(),
    ranks=True,
    judge=_judge,
    cases=(
        Case(
            "four tiles: here bytes are 51.6% of bfloat16",
            tokens=(5, 4),
            num_experts=4,
            k=2,
            width=512,
            dtype="bfloat16",
        ),
        Case(
            "the last tile is short, and 4 does not divide the width",
            tokens=(8, 9, 7),
            num_experts=6,
            k=3,
            width=301,
            dtype="bfloat16",
        ),
        Case("ranks without tokens", tokens=(0, 5, 0), num_experts=6, k=2, width=200, dtype="float32"),
        Case(
            "a single row arrives, elsewhere none, and 4 does not divide the width",
            tokens=(1, 0),
            num_experts=4,
            k=1,
            width=131,
            dtype="bfloat16",
        ),
        Case("tiles of zeros", tokens=(4, 4), num_experts=4, k=2, width=256, dtype="bfloat16", zeros=True),
        Case(
            "two groups in a world of four: ranks 0 and 2, and ranks 1 and 3",
            tokens=(3, 4, 2, 3),
            num_experts=8,
            k=2,
            width=257,
            dtype="float32",
            groups=((0, 2), (1, 3)),
        ),
    ),
    fresh=_fresh,
    trivial={
        "zeros": slips.filled(0.0),
        "ones": slips.filled(1.0),
        "nan": slips.filled(math.nan),
        "the input": slips.the_input,
    },
    seconds=30.0,
    misconceptions=(
        Misconception(
            "quantised_afterwards",
            slips.quantised_afterwards,
            "The numbers are right, and x travelled as it was: it was quantised where it arrived. The bytes are saved "
            "on the wire alone: quantise before the exchange.",
        ),
        Misconception(
            "widened_codes",
            slips.codes_as_float32,
            "The numbers are right, and each code travelled in more than a byte. .view(torch.uint8) reads codes as "
            "bytes, without a conversion.",
        ),
        Misconception(
            "float8_on_the_wire",
            slips.float8_on_the_wire,
            "gloo has no float8 and refuses it. A byte is a byte: codes.view(torch.uint8) before the exchange, "
            ".view(torch.float8_e4m3fn) behind it.",
        ),
        Misconception(
            "codes_without_scales",
            slips.answer(numbers=slips.codes_alone),
            "These are the codes. A code is a number only with its scale, which must travel too: 4 bytes for each 128 "
            "columns.",
        ),
        Misconception(
            "divided_by_the_scale",
            slips.answer(numbers=slips.divided),
            "The codes were divided by their scales, and should be multiplied: code = x / scale.",
        ),
        Misconception(
            "a_scale_for_a_row",
            slips.answer(slips.rows_alone),
            "Each row has one scale, so its small tiles lose digits to its large ones. Each 128 columns have their "
            "own.",
        ),
        Misconception(
            "a_scale_for_a_rank",
            slips.answer(slips.one_scale),
            "All tokens of a rank share one scale. Each 128 columns of each token have their own.",
        ),
        Misconception(
            "no_scale",
            slips.answer(slips.unscaled),
            "x was cast as it is. What is above 448 is cut, and what is small becomes 0: divide by the scale first.",
        ),
        Misconception(
            "scales_in_turn",
            slips.answer(numbers=slips.in_turn),
            "Column c has the scale of tile c modulo the number of tiles. A tile is 128 columns that lie together: "
            "repeat_interleave(128, 1), where repeat was.",
        ),
        Misconception(
            "scales_of_other_rows",
            slips.scales_as_they_came,
            "Codes are sorted by local expert, and scales lie as they came, by source. Sort both alike; it is simplest "
            "where both travel in one row.",
        ),
        Misconception(
            "scales_in_bfloat16",
            slips.answer(slips.bf16_scales),
            "The scales were rounded to bfloat16, and all numbers of a tile with them. They are float32.",
        ),
        Misconception(
            "zero_divided_by_zero",
            slips.answer(lambda x: slips.tiles(x, guarded=False)),
            "NaN where a tile is all zeros: its amax is 0, and 0 / 0 is NaN. Give such a tile a scale of 1.",
        ),
        Misconception(
            "tiles_filled_up",
            slips.answer(lambda x: slips.tiles(x, whole=True)),
            "The last tile was filled up to 128 columns, and the filling travelled. Cut the codes to D columns before "
            "the exchange.",
        ),
        Misconception(
            "bfloat16_rows",
            slips.answer(out=torch.bfloat16),
            "The rows are bfloat16. Code times scale has more digits than that: rows are float32.",
        ),
        Misconception(
            "not_quantised",
            slips.not_quantised,
            "The rows came as they were. Cast them to E4M3, with a scale for each 128 columns, before they leave.",
        ),
        Misconception(
            "gathers_everything",
            slips.gathered,
            "All tokens went to all ranks. Send each copy to its owner alone, as in 11.dispatch.",
        ),
        Misconception(
            "skips_the_call_without_tokens",
            slips.skips_without_tokens,
            "It fails where a rank has no tokens. A view(T, -1) cannot guess there: flatten(1) and unflatten know "
            "their sizes. Or does the rank return before it has called all_to_all, so that the others wait for it?",
        ),
    ),
    hints=(
        "Three parts: quantise x, dispatch what stands for it, turn it back into numbers. The middle part is "
        "11.dispatch, with rows that are bytes.",
        "Pad x to whole tiles, view it as (T, tiles, 128), take amax along the last axis. The codes, cut to D columns "
        "and viewed as uint8, and the scales, viewed as uint8, make one matrix of T rows: torch.cat(..., 1).",
        "Behind the exchange: rows[:, :D].contiguous().view(torch.float8_e4m3fn).float() are the codes. "
        "rows[:, D:].clone(memory_format=torch.contiguous_format).view(torch.float32) are the scales, also where "
        "there is a single row, and repeat_interleave(128, 1)[:, :D] spreads them.",
    ),
    explanation=(
        "What travels is D codes of one byte and a float32 for each 128 columns, in one row of bytes, so that codes "
        "and scales cannot be sorted apart. The exchange does not care what bytes mean. A scale for each 1 x 128 is "
        "made by the source, which has the whole token; the owner's product along D can use the codes and scales as "
        "they come, and only here they are turned back into float32 for the check."
    ),
)
