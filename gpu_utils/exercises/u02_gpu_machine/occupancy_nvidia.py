"""02.occupancy_nvidia: how many blocks one SM holds at a time, and what forbids the next one."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch

from gpu_utils.analytic.tolerance import Tolerance, tolerance
from gpu_utils.chips import TARGETS, Target
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Misconception

Verdict = dict[str, Any]


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    return dict(case.params)


def float_tolerance(case: Case, inputs: Inputs) -> Tolerance:
    """For answers that are a few float64 operations away from whole numbers."""
    return tolerance(torch.float64, magnitude=0.0, roundings=4)


def up(value: int, granule: int) -> int:
    """The next multiple of `granule`."""
    return -(-value // granule) * granule


def verdict(allowed: Mapping[str, int], waves_per_block: int, most_waves: int) -> Verdict:
    """What follows from the blocks that each resource allows."""
    blocks = min(allowed.values())
    return {
        "blocks": blocks,
        "limited_by": [name for name, count in allowed.items() if count == blocks],
        "occupancy": blocks * waves_per_block / most_waves,
    }


def occupancy_nvidia_reference(registers: int, shared_bytes: int, num_warps: int, target: str) -> Verdict:
    """Blocks put on an SM one after the other, until a resource has no room for the next one.

    >>> occupancy_nvidia_reference(128, 40_000, 8, "sm_90")
    {'blocks': 2, 'limited_by': ['registers'], 'occupancy': 0.25}
    """
    return _placed(registers, shared_bytes, num_warps, TARGETS[target])


def _placed(registers: int, shared_bytes: int, num_warps: int, sm: Target) -> Verdict:
    def room_for(blocks: int) -> dict[str, bool]:
        on_fullest_part = -(-blocks * num_warps // sm.simds)
        shared = blocks * up(shared_bytes + sm.shared_reserved, sm.shared_granule)
        return {
            "warps": blocks * num_warps <= sm.waves_per_unit,
            "registers": on_fullest_part * up(registers, sm.granule) <= sm.registers,
            "shared memory": shared <= sm.shared_per_unit,
            "blocks": blocks <= sm.blocks_per_unit,
        }

    blocks = 0
    while all(room_for(blocks + 1).values()):
        blocks += 1
    full = [name for name, fits in room_for(blocks + 1).items() if not fits]
    return {"blocks": blocks, "limited_by": full, "occupancy": blocks * num_warps / sm.waves_per_unit}


def _with(**changes: Any) -> Callable[..., Verdict]:
    """The reference on an SM with some figures changed."""

    def answer(registers: int, shared_bytes: int, num_warps: int, target: str) -> Verdict:
        return _placed(registers, shared_bytes, num_warps, replace(TARGETS[target], **changes))

    return answer


def _bytes_of_a_block_as_of_the_sm(registers: int, shared_bytes: int, num_warps: int, target: str) -> Verdict:
    sm = TARGETS[target]
    return _placed(registers, shared_bytes, num_warps, replace(sm, shared_per_unit=sm.shared_per_block))


def _whole_file(registers: int, shared_bytes: int, num_warps: int, target: str) -> Verdict:
    """Registers of the whole SM by bytes: parts of an SM do not matter."""
    sm = TARGETS[target]
    allowed = {
        "warps": sm.waves_per_unit // num_warps,
        "registers": sm.simds * sm.registers // up(registers, sm.granule) // num_warps,
        "shared memory": sm.shared_per_unit // up(shared_bytes + sm.shared_reserved, sm.shared_granule),
        "blocks": sm.blocks_per_unit,
    }
    return verdict(allowed, num_warps, sm.waves_per_unit)


def _capped_by_the_slots(registers: int, shared_bytes: int, num_warps: int, target: str) -> Verdict:
    sm = TARGETS[target]
    found = occupancy_nvidia_reference(registers, shared_bytes, num_warps, target)
    capped = sm.registers // up(registers, sm.granule) >= sm.waves_per_simd and "warps" in found["limited_by"]
    named = {*found["limited_by"], "registers"} if capped else {*found["limited_by"]}
    names = ("warps", "registers", "shared memory", "blocks")
    return {**found, "limited_by": [name for name in names if name in named]}


def _first_limit_only(registers: int, shared_bytes: int, num_warps: int, target: str) -> Verdict:
    found = occupancy_nvidia_reference(registers, shared_bytes, num_warps, target)
    return {**found, "limited_by": found["limited_by"][:1]}


def _occupancy_of_blocks(registers: int, shared_bytes: int, num_warps: int, target: str) -> Verdict:
    found = occupancy_nvidia_reference(registers, shared_bytes, num_warps, target)
    return {**found, "occupancy": found["blocks"] / TARGETS[target].blocks_per_unit}


def _share_of_64_warps(registers: int, shared_bytes: int, num_warps: int, target: str) -> Verdict:
    found = occupancy_nvidia_reference(registers, shared_bytes, num_warps, target)
    return {**found, "occupancy": found["blocks"] * num_warps / 64}


def _fresh(rng: random.Random) -> Case:
    target = rng.choice(["sm_80", "sm_90"])
    return Case(
        "a fresh kernel",
        registers=rng.randint(24, 255),
        shared_bytes=rng.choice([0, rng.randint(1_000, 150_000)]),
        num_warps=rng.choice([1, 2, 4, 8, 16]) if rng.random() < 0.8 else rng.randint(3, 11),
        target=target,
    )


_WRONG: tuple[tuple[str, Callable[..., Verdict], str], ...] = (
    (
        "no_shared_granule",
        _with(shared_granule=1),
        "Shared memory is handed out in pieces of 128 bytes (`shared_granule`): round up after you have added the "
        "reserved kilobyte.",
    ),
    (
        "no_register_granule",
        _with(granule=1),
        "Registers are not rounded up. They are handed out in multiples of 8 a lane (`granule`): 33 take as much room "
        "as 40.",
    ),
    (
        "no_reserved_kilobyte",
        _with(shared_reserved=0),
        "Shared memory: the system takes 1 KB of its own for every block (`shared_reserved`), and a block with none "
        "takes it too.",
    ),
    (
        "whole_file",
        _whole_file,
        "Registers are divided up for the SM as a whole. Each of its four parts has its own: first how many warps fit "
        "on one part, then times the parts, then divided by the warps of a block.",
    ),
    (
        "no_block_limit",
        _with(blocks_per_unit=10**6),
        "An SM takes at most `blocks_per_unit` blocks, however small they are. Blocks of one warp meet this limit.",
    ),
    (
        "bytes_of_a_block_as_of_the_sm",
        _bytes_of_a_block_as_of_the_sm,
        "Two figures for shared memory are mixed up: one block may ask for `shared_per_block`, all blocks together "
        "have `shared_per_unit`, which is more.",
    ),
    (
        "capped_by_the_slots",
        _capped_by_the_slots,
        "The blocks are right. Registers are named although fewer of them would let no further block in: here the warp "
        "slots alone are full. Count what the registers hold without the limit of the slots.",
    ),
    (
        "first_limit_only",
        _first_limit_only,
        "The blocks are right. When several resources allow equally few, name them all: lifting one of them does not "
        "help.",
    ),
    (
        "share_of_64_warps",
        _share_of_64_warps,
        "The blocks are right. Not every SM has 64 warp slots: sm_89 has 48. Take `waves_per_unit`.",
    ),
    (
        "occupancy_of_blocks",
        _occupancy_of_blocks,
        "The blocks are right. Occupancy is a share of warps: resident warps over the most that an SM holds "
        "(`waves_per_unit`), not a share of blocks.",
    ),
)

EXERCISE = Exercise(
    id="02.occupancy_nvidia",
    title="Occupancy of an SM",
    parameters=("registers", "shared_bytes", "num_warps", "target"),
    kind="host",
    inputs=_inputs,
    reference=occupancy_nvidia_reference,
    tolerance=float_tolerance,
    cases=(
        Case(
            "a light kernel: the warps that an SM has slots for",
            registers=24,
            shared_bytes=0,
            num_warps=8,
            target="sm_90",
        ),
        Case("a matmul tile: registers", registers=128, shared_bytes=40_000, num_warps=8, target="sm_90"),
        Case("a deep pipeline: shared memory", registers=90, shared_bytes=98_304, num_warps=4, target="sm_80"),
        Case("33 registers take the room of 40", registers=33, shared_bytes=0, num_warps=4, target="sm_80"),
        Case(
            "exactly half of the SM, but for the reserve",
            registers=64,
            shared_bytes=83_968,
            num_warps=4,
            target="sm_80",
        ),
        Case("a few bytes over a multiple of 128", registers=32, shared_bytes=12_956, num_warps=4, target="sm_80"),
        Case("blocks of one warp: the number of blocks", registers=32, shared_bytes=0, num_warps=1, target="sm_80"),
        Case("a part has room for two warps and a half", registers=200, shared_bytes=0, num_warps=2, target="sm_90"),
        Case("five warps on four parts", registers=200, shared_bytes=0, num_warps=5, target="sm_90"),
        Case("two limits at once", registers=64, shared_bytes=55_000, num_warps=8, target="sm_90"),
        Case("Ada: 48 warps, and 99 KB for a block", registers=40, shared_bytes=30_000, num_warps=8, target="sm_89"),
        Case(
            "two blocks, which need more than one alone may have",
            registers=64,
            shared_bytes=82_900,
            num_warps=4,
            target="sm_80",
        ),
        Case("more than a block may have", registers=64, shared_bytes=101_500, num_warps=4, target="sm_89"),
    ),
    fresh=_fresh,
    misconceptions=tuple(Misconception(*wrong) for wrong in _WRONG),
    hints=(
        "For each of the four resources alone: how many blocks would it allow? The smallest number is `blocks`, and "
        "whoever allows no more is in `limited_by`.",
        "Rounding up to a multiple of g is (n + g - 1) // g * g. Registers: 512 for each lane on one part; how many "
        "warps fit there? Then four parts, shared by the warps of a block.",
        "warps: waves_per_unit // num_warps. registers: t.registers // rounded * simds // num_warps. "
        "shared memory: shared_per_unit // rounded(shared_bytes + shared_reserved). blocks: blocks_per_unit.",
    ),
    explanation=(
        "A block is on an SM as a whole or not at all, so each resource is divided by what a block takes, rounded to "
        "what the hardware hands out, and the smallest quotient wins. Rounding makes steps: from 32 to 33 registers a "
        "lane a kernel of four-warp blocks falls from 64 to 48 warps. `limited_by` says what to change; "
        "any other saving gains nothing."
    ),
)
