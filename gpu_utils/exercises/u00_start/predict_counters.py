"""00.predict_counters: what the virtual GPUs of both vendors will count for a strided gather."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch

from gpu_utils.analytic.tolerance import EXACT
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs, Misconception

BLOCK = 256
MACHINES = {"sm_80": (32, 32), "gfx942": (64, 128)}
"""Target -> lanes of a warp or wavefront, bytes of a transaction."""

Prediction = dict[str, Any]
Touched = Callable[[int, int, int], int]
"""(lanes with work, stride in elements, bytes of a transaction) -> transactions of one load instruction."""


def _span(strides: int, stride: int, piece: int, size: int = 4) -> int:
    """Pieces from the first byte to the one that lies some strides further on."""
    return strides * size * stride // piece + 1


def _near(lanes: int, stride: int, piece: int, count: int) -> int:
    """A count for lanes that share pieces; where they do not, each has one."""
    return lanes if 4 * stride >= piece else count


def _touched(lanes: int, stride: int, piece: int) -> int:
    """Pieces that `lanes` floats touch which lie `stride` apart; the first begins a piece."""
    return _near(lanes, stride, piece, _span(lanes - 1, stride, piece))


def _waves(n: int, lanes: int) -> int:
    """Those that are launched: whole programs, also where nothing is left for a wave to do."""
    return -(-n // BLOCK) * BLOCK // lanes


def _predicting(
    touched: Touched = _touched,
    waves: Callable[[int, int], int] = _waves,
    machines: dict[str, tuple[int, int]] = MACHINES,
) -> Callable[[int, int], Prediction]:
    def answer(n: int, stride: int) -> Prediction:
        found: Prediction = {}
        for target, (lanes, piece) in machines.items():
            full, rest = divmod(n, lanes)
            transactions = full * touched(lanes, stride, piece) + (touched(rest, stride, piece) if rest else 0)
            found[target] = {
                "waves": waves(n, lanes),
                "transactions": transactions,
                "moved_bytes": transactions * piece,
            }
        return found

    return answer


counters_reference = _predicting()


def _inputs(case: Case, _generator: torch.Generator) -> Inputs:
    return {"n": case["n"], "stride": case["stride"]}


def _last_wave_is_full(n: int, stride: int) -> Prediction:
    """Counts lanes that the mask switches off."""
    right = counters_reference(n, stride)
    for target, (lanes, piece) in MACHINES.items():
        transactions = -(-n // lanes) * _touched(lanes, stride, piece)
        right[target] |= {"transactions": transactions, "moved_bytes": transactions * piece}
    return right


def _every_launched_wave_is_full(n: int, stride: int) -> Prediction:
    """Counts lanes of the last program that have no element, also whole waves of them."""
    right = counters_reference(n, stride)
    for target, (lanes, piece) in MACHINES.items():
        transactions = _waves(n, lanes) * _touched(lanes, stride, piece)
        right[target] |= {"transactions": transactions, "moved_bytes": transactions * piece}
    return right


def _full_waves_only(n: int, stride: int) -> Prediction:
    right = counters_reference(n, stride)
    for target, (lanes, piece) in MACHINES.items():
        transactions = n // lanes * _touched(lanes, stride, piece)
        right[target] |= {"transactions": transactions, "moved_bytes": transactions * piece}
    return right


def _bytes_asked_for(n: int, stride: int) -> Prediction:
    right = counters_reference(n, stride)
    return {target: {**counted, "moved_bytes": 4 * n} for target, counted in right.items()}


def _one_stretch(n: int, stride: int) -> Prediction:
    """Counts the pieces of all that the launch reaches over."""
    right = counters_reference(n, stride)
    for target, (_, piece) in MACHINES.items():
        transactions = -(-4 * n * stride // piece)
        right[target] |= {"transactions": transactions, "moved_bytes": transactions * piece}
    return right


def _fresh(rng: random.Random) -> Case:
    n = rng.choice([rng.randrange(2, 4000), rng.randrange(10**9, 10**10)])
    return Case("a launch nobody chose", n=n, stride=rng.choice([*range(1, 40), 64, 100]))


_IN_EVERY_LAUNCH = (
    Misconception(
        "ignores_the_stride",
        _predicting(touched=lambda lanes, stride, piece: -(-4 * lanes // piece)),
        "With stride 1 this is right. With a larger one the same floats lie further apart, and touch more pieces "
        "of memory: how far is it from the first lane's byte to the last one's?",
    ),
    Misconception(
        "one_for_each_lane",
        _predicting(touched=lambda lanes, stride, piece: lanes),
        "Right only where lanes are a whole transaction apart. Closer ones share: neighbouring lanes with stride 1 "
        "need one sector of 32 bytes for eight of them.",
    ),
    Misconception(
        "stride_in_bytes",
        _predicting(
            touched=lambda lanes, stride, piece: _span(lanes - 1, stride, piece, 1) if stride < piece else lanes
        ),
        "The stride counts elements, and an element of float32 has four bytes.",
    ),
    Misconception(
        "forgets_the_first_piece",
        _predicting(
            touched=lambda lanes, stride, piece: _near(lanes, stride, piece, _span(lanes - 1, stride, piece) - 1)
        ),
        "One piece is missing in each wave: (lanes - 1) * 4 * stride // piece says how many pieces further on the "
        "last lane is. The one that the first lane is in counts as well.",
    ),
    Misconception(
        "one_lane_too_many",
        _predicting(touched=lambda lanes, stride, piece: _near(lanes, stride, piece, _span(lanes, stride, piece))),
        "From the first lane to the last there are lanes - 1 strides, not lanes: the last lane's float begins at "
        "byte (lanes - 1) * 4 * stride.",
    ),
    Misconception(
        "bytes_asked_for",
        _bytes_asked_for,
        "These are the bytes that lanes asked for. What moves are whole transactions: their number times their size.",
    ),
)
"""Slips that show in nearly every case: their hint comes first, whatever else is wrong."""

_IN_SOME_LAUNCHES = (
    Misconception(
        "whole_span",
        _predicting(touched=lambda lanes, stride, piece: _span(lanes - 1, stride, piece)),
        "Too many where the stride is longer than a transaction: what lies between two lanes is not fetched. A "
        "lane touches one piece at most.",
    ),
    Misconception(
        "rounds_down",
        _predicting(touched=lambda lanes, stride, piece: _near(lanes, stride, piece, _span(lanes, stride, piece) - 1)),
        "Right for full waves where all divides, and too small elsewhere: a piece that is touched only in part is "
        "moved as a whole. In which piece is the first lane, in which the last, and how many are these?",
    ),
    Misconception(
        "counts_the_gap_behind_the_last_lane",
        _predicting(touched=lambda lanes, stride, piece: min(lanes, -(-lanes * 4 * stride // piece))),
        "Right for full waves. With fewer lanes it shows: behind the last lane's float no stride follows that "
        "anybody reads. How far is it from the first byte to the last one that is asked for?",
    ),
    Misconception(
        "forgets_the_rest",
        _full_waves_only,
        "Waves that are full are counted, the last one is not: n is no multiple of the lanes, and what is left "
        "over reads as well.",
    ),
    Misconception(
        "last_wave_is_full",
        _last_wave_is_full,
        "The last wave has work for some of its lanes only. A masked lane asks for nothing: count the transactions "
        "of the rest apart.",
    ),
    Misconception(
        "every_launched_wave_is_full",
        _every_launched_wave_is_full,
        "All waves that are launched are counted as full. In the last program some have work for a few of their "
        "lanes, and some for none: a masked lane asks for nothing.",
    ),
    Misconception(
        "one_stretch_of_memory",
        _one_stretch,
        "From the first byte that is read to the last there are as many pieces, but not every one of them is "
        "touched: where the stride is longer than a piece, what lies between two lanes is not fetched. And each "
        "wave reads with an instruction of its own, so a piece that two waves share counts twice.",
    ),
)
"""Slips that show only where n or the stride is uneven, and so together with wrong waves."""

_WAVES_WITH_WORK = (
    "Waves are launched with their program: 256 lanes at a time, whether or not an element is left for them. Count "
    "programs first."
)


def _and_waves_with_work(slip: Misconception) -> Misconception:
    """The same slip by somebody who takes n / lanes for the waves as well."""

    def answer(n: int, stride: int) -> Prediction:
        counted = slip.answer(n, stride)
        return {target: {**counted[target], "waves": -(-n // MACHINES[target][0])} for target in counted}

    return Misconception(f"{slip.name}_and_waves_with_work", answer, f"Two slips. {slip.hint} And: {_WAVES_WITH_WORK}")


EXERCISE = Exercise(
    id="00.predict_counters",
    title="Predict what both virtual GPUs will count",
    parameters=("n", "stride"),
    kind="host",
    inputs=_inputs,
    reference=counters_reference,
    cases=(
        Example("the example of the docstring", n=4096, stride=8),
        Case("neighbours: every byte that comes was asked for", n=65_536, stride=1),
        Case("a stride that does not divide a transaction", n=4096, stride=5),
        Case("just too short for a transaction each on sm_80", n=1024, stride=7),
        Case("between the two: a sector each on sm_80, a line for some on gfx942", n=2048, stride=12),
        Case("from here each lane has a line of its own on gfx942, too", n=1024, stride=32),
        Case("just below that", n=1024, stride=31),
        Case("300 elements are two programs: some waves have nothing to do", n=300, stride=2),
        Case("a last wave with a single lane", n=65, stride=3),
        Case("two lanes are left over, and share a transaction", n=66, stride=5),
        Case("one element", n=1, stride=100),
        Case("more elements than anything here can run", n=3_000_000_017, stride=9),
        Case("more than a float can count one by one", n=2**62 + 257, stride=9),
    ),
    fresh=_fresh,
    tolerance=lambda case, inputs: EXACT,
    dtype=lambda inputs: None,
    misconceptions=(
        *_IN_EVERY_LAUNCH,
        *_IN_SOME_LAUNCHES,
        Misconception("waves_with_work", _predicting(waves=lambda n, lanes: -(-n // lanes)), _WAVES_WITH_WORK),
        Misconception(
            "one_width_for_both",
            _predicting(machines={"sm_80": (32, 32), "gfx942": (32, 128)}),
            "A wavefront of gfx942 has 64 lanes, not 32: one instruction asks for twice as much, and half as many "
            "waves are launched.",
        ),
        Misconception(
            "sectors_for_both",
            _predicting(machines={"sm_80": (32, 32), "gfx942": (64, 32)}),
            "gfx942 moves cache lines of 128 bytes. Sectors of 32 bytes are NVIDIA's.",
        ),
        *map(_and_waves_with_work, _IN_SOME_LAUNCHES),
    ),
    hints=(
        "Start with one load instruction of one full wave. Lane k reads 4 bytes at byte 4 * stride * k. Which pieces "
        "of 32 or 128 bytes are those for stride 1, for 8, for 100?",
        "Where a lane is a whole transaction away from its neighbour, each has one of its own. Otherwise every piece "
        "between the first lane and the last is touched: (lanes - 1) * 4 * stride // piece + 1. Waves begin at "
        "multiples of a transaction, so all full ones are alike.",
        "full, rest = divmod(n, lanes): full waves times the transactions of one, and those of the last with `rest` "
        "lanes, if there are any. Waves: programs, (n + 255) // 256, times 256 // lanes.",
    ),
    explanation=(
        "One load instruction of a warp or wavefront becomes as many transactions as it touches pieces of memory. "
        "While lanes are closer than a piece, all pieces between the first and the last are touched; further apart, "
        "each lane has its own and the gaps are skipped. So on sm_80 the cost stops growing at stride 8, on gfx942 at "
        "32, where 124 of 128 bytes are for nobody. Idle waves of the last program are launched all the same; their "
        "lanes ask for nothing."
    ),
)
