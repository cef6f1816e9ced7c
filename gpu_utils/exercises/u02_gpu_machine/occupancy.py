"""02.occupancy: which of several launches keeps most waves on an SM or CU; on AMD the check asks LLVM."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

import torch

from gpu_utils.chips import TARGETS, Target
from gpu_utils.compiler.holding import holding
from gpu_utils.compiler.reading import compiler_notes
from gpu_utils.exercises.u02_gpu_machine.numbers import up
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs, Misconception

Kernel = Mapping[str, int]
Verdict = dict[str, Any]
"""blocks: for each launch; limited_by: for each launch, names; most_waves: the number of a launch."""

Rules = Callable[[Kernel, Target], dict[str, int]]
"""Blocks of a launch that each resource alone would allow."""


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    names = ("registers", "shared_bytes", "num_warps")
    return {
        "launches": [dict(zip(names, launch, strict=True)) for launch in case["launches"]],
        "target": case["target"],
    }


def _waves_of_a_part(registers: int, unit: Target) -> int:
    """Waves whose registers fit on one part. On AMD LLVM says so, up to the slots, where it stops counting."""
    fit = unit.registers // up(registers, unit.granule)
    if unit.vendor == "amd":
        said = compiler_notes(holding(registers, unit.name))["Occupancy"]
        return max(fit, said) if said == unit.waves_per_simd else said
    return fit


def _placed(kernel: Kernel, unit: Target) -> tuple[int, list[str]]:
    """Blocks put on the unit one after the other until a resource has no room for the next one, and who had none."""
    registers = _waves_of_a_part(kernel["registers"], unit) * unit.simds
    taken = up(kernel["shared_bytes"] + unit.shared_reserved, unit.shared_granule)

    def room_for(blocks: int) -> dict[str, bool]:
        waves, shared = blocks * kernel["num_warps"], blocks * taken
        fits = kernel["shared_bytes"] <= unit.shared_per_block and shared <= unit.shared_per_unit
        return {
            "waves": waves <= unit.waves_per_unit,
            "registers": waves <= registers,
            "shared memory": fits,
            "blocks": unit.vendor == "amd" or blocks <= unit.blocks_per_unit,
        }

    blocks = 0
    while all(room_for(blocks + 1).values()):
        blocks += 1
    return blocks, [name for name, fits in room_for(blocks + 1).items() if not fits]


def occupancy_reference(launches: Sequence[Kernel], target: str) -> Verdict:
    """Each launch by itself, then the first of those with most waves.

    >>> kernel = {"registers": 128, "shared_bytes": 40_000, "num_warps": 8}
    >>> occupancy_reference([kernel, {**kernel, "registers": 64}], "sm_90")
    {'blocks': [2, 4], 'limited_by': [['registers'], ['registers']], 'most_waves': 1}
    """
    return _verdict(launches, [_placed(kernel, TARGETS[target]) for kernel in launches])


def _verdict(launches: Sequence[Kernel], found: Sequence[tuple[int, list[str]]]) -> Verdict:
    waves = [blocks * kernel["num_warps"] for kernel, (blocks, _) in zip(launches, found, strict=True)]
    return {
        "blocks": [blocks for blocks, _ in found],
        "limited_by": [names for _, names in found],
        "most_waves": waves.index(max(waves)),
    }


def rules(kernel: Kernel, unit: Target) -> dict[str, int]:
    """By division, as an answer would."""
    taken = up(kernel["shared_bytes"] + unit.shared_reserved, unit.shared_granule)
    allowed = {
        "waves": unit.waves_per_unit // kernel["num_warps"],
        "registers": unit.registers // up(kernel["registers"], unit.granule) * unit.simds // kernel["num_warps"],
    }
    if taken:
        allowed["shared memory"] = unit.shared_per_unit // taken
    if kernel["shared_bytes"] > unit.shared_per_block:
        allowed["shared memory"] = 0
    if unit.vendor == "nvidia":
        allowed["blocks"] = unit.blocks_per_unit
    return allowed


def _by(change: Rules) -> Callable[..., Verdict]:
    """An answer that takes the smallest of `change(kernel, unit)`."""

    def answer(launches: Sequence[Kernel], target: str) -> Verdict:
        found = []
        for kernel in launches:
            allowed = change(kernel, TARGETS[target])
            fewest = min(allowed.values())
            found.append((fewest, [name for name, blocks in allowed.items() if blocks == fewest]))
        return _verdict(launches, found)

    return answer


def _with(**figures: Any) -> Callable[..., Verdict]:
    """The rules on a unit with some figures changed."""
    return _by(lambda kernel, unit: rules(kernel, replace(unit, **figures)))


def _and(change: Rules) -> Callable[..., Verdict]:
    """The rules with some of them replaced."""
    return _by(lambda kernel, unit: {**rules(kernel, unit), **change(kernel, unit)})


def _whole_file(kernel: Kernel, unit: Target) -> dict[str, int]:
    most = unit.simds * unit.registers // up(kernel["registers"], unit.granule)
    return {"registers": most // kernel["num_warps"]}


def _granule_of_16(kernel: Kernel, unit: Target) -> dict[str, int]:
    return rules(kernel, replace(unit, granule=16 if unit.lanes == 64 else unit.granule))


def _of_one_part(kernel: Kernel, unit: Target) -> dict[str, int]:
    return {"registers": unit.registers // up(kernel["registers"], unit.granule) // kernel["num_warps"]}


def _capped_by_the_slots(kernel: Kernel, unit: Target) -> dict[str, int]:
    fit = min(unit.waves_per_simd, unit.registers // up(kernel["registers"], unit.granule))
    return {"registers": fit * unit.simds // kernel["num_warps"]}


def _block_for_unit(kernel: Kernel, unit: Target) -> dict[str, int]:
    return rules(kernel, replace(unit, shared_per_unit=unit.shared_per_block))


def _no_limit_of_a_block(kernel: Kernel, unit: Target) -> dict[str, int]:
    return rules(kernel, replace(unit, shared_per_block=unit.shared_per_unit + 1))


def _largest_block_refused(kernel: Kernel, unit: Target) -> dict[str, int]:
    return {"shared memory": 0} if kernel["shared_bytes"] >= unit.shared_per_block else {}


def _without_shared(kernel: Kernel, unit: Target) -> dict[str, int]:
    return {name: blocks for name, blocks in rules(kernel, unit).items() if name != "shared memory"}


def _shared_of_each_warp(kernel: Kernel, unit: Target) -> dict[str, int]:
    taken = up(kernel["shared_bytes"] * kernel["num_warps"] + unit.shared_reserved, unit.shared_granule)
    return {"shared memory": unit.shared_per_unit // taken} if taken else {}


def _block_slots_of_amd(kernel: Kernel, unit: Target) -> dict[str, int]:
    return {"blocks": unit.blocks_per_unit}


def _most_blocks(launches: Sequence[Kernel], target: str) -> Verdict:
    found = occupancy_reference(launches, target)
    return {**found, "most_waves": found["blocks"].index(max(found["blocks"]))}


def _last_of_equals(launches: Sequence[Kernel], target: str) -> Verdict:
    found = occupancy_reference(launches, target)
    waves = [blocks * kernel["num_warps"] for blocks, kernel in zip(found["blocks"], launches, strict=True)]
    return {**found, "most_waves": len(waves) - 1 - waves[::-1].index(max(waves))}


def _first_limit_only(launches: Sequence[Kernel], target: str) -> Verdict:
    found = occupancy_reference(launches, target)
    return {**found, "limited_by": [names[:1] for names in found["limited_by"]]}


def in_any_order(answer: Callable[..., Any], inputs: Inputs) -> Any:
    """The answer, with the names of each launch sorted: their order says nothing."""
    found = answer(**inputs)
    if isinstance(found, dict) and isinstance(found.get("limited_by"), (list, tuple)):
        lists = [sorted(names) if _words(names) else names for names in found["limited_by"]]
        return {**found, "limited_by": lists}
    return found


def _words(names: Any) -> bool:
    return isinstance(names, (list, tuple, Set)) and all(isinstance(name, str) for name in names)


def _sorted_reference(launches: Sequence[Kernel], target: str) -> Verdict:
    return dict(in_any_order(occupancy_reference, {"launches": launches, "target": target}))


FRESH = (52, 66, 77, 85, 101, 121, 135, 162)
"""Registers of fresh kernels: few enough that Triton's cache soon holds them all."""


def _fresh(rng: random.Random) -> Case:
    amd = rng.random() < 0.5
    target = "gfx942" if amd else rng.choice(["sm_80", "sm_90"])
    launches = []
    for _ in range(3):
        shared = rng.choice([0, rng.randint(1_000, 40_000)])
        registers = rng.choice(FRESH) if amd else rng.randint(24, 255)
        launches.append((registers, shared, rng.choice([1, 2, 4, 8] if amd else [1, 2, 3, 4, 6, 8, 16])))
    return Case("fresh launches", target=target, launches=tuple(launches))


def _case(why: str, target: str, *launches: tuple[int, int, int]) -> Case:
    """launches: (registers of a lane, bytes of shared memory, warps) of a block."""
    return Case(why, target=target, launches=launches)


_WRONG: tuple[tuple[str, Callable[..., Verdict], str], ...] = (
    (
        "granule_of_16",
        _by(_granule_of_16),
        "On CDNA registers are rounded up to 16 here, as AMD's guide says. LLVM hands them out by 8 (`granule`): the "
        "check compiled these kernels and asked it.",
    ),
    (
        "no_register_granule",
        _with(granule=1),
        "Registers are not rounded up. A wave gets them in multiples of `granule` a lane: 33 take as much room as 40 "
        "on an SM, 97 as much as 120 on gfx1100.",
    ),
    (
        "always_granule_8",
        _with(granule=8),
        "Registers are rounded up to 8 on every target. On gfx1100 they are handed out by 24: take `granule`.",
    ),
    (
        "no_reserve",
        _with(shared_reserved=0),
        "Shared memory: on NVIDIA the system takes 1 KiB of its own for every block (`shared_reserved`), also of one "
        "that asks for none.",
    ),
    (
        "no_shared_granule",
        _with(shared_granule=1),
        "Shared memory is handed out in pieces of `shared_granule` bytes: round up, after the reserve is added.",
    ),
    (
        "whole_file",
        _and(_whole_file),
        "Registers are divided up for the unit as a whole. Each of its parts has its own: first how many waves fit on "
        "one part, then times the parts, then divided by the waves of a block.",
    ),
    (
        "of_one_part",
        _and(_of_one_part),
        "The registers of one part are taken for those of the unit. The waves of a block are spread over `simds` "
        "parts: a factor of 4.",
    ),
    (
        "no_block_slots",
        _with(blocks_per_unit=10**6),
        "An SM takes at most `blocks_per_unit` blocks, however small they are. Blocks of one warp meet this limit.",
    ),
    (
        "block_slots_of_amd",
        _and(_block_slots_of_amd),
        "On AMD `blocks_per_unit` counts barriers, which blocks of one wave do not need and others never run out of "
        "before the wave slots: leave it out there.",
    ),
    (
        "block_for_unit",
        _by(_block_for_unit),
        "Two figures for shared memory are mixed up: one block may ask for `shared_per_block`, all blocks together "
        "have `shared_per_unit`, which is more.",
    ),
    (
        "no_limit_of_a_block",
        _by(_no_limit_of_a_block),
        "A block that asks for more shared memory than one block may have (`shared_per_block`) does not run at all: 0 "
        "blocks. On gfx1100 this is half of what the unit has.",
    ),
    (
        "largest_block_refused",
        _and(_largest_block_refused),
        "A block that asks for exactly `shared_per_block` bytes is refused. It may have them; only more is too much.",
    ),
    (
        "without_shared",
        _by(_without_shared),
        "Shared memory is left out. LLVM's number leaves it out too, because Triton asks for it at the launch; the "
        "blocks of a unit share it all the same.",
    ),
    (
        "shared_of_each_warp",
        _and(_shared_of_each_warp),
        "`shared_bytes` is what a block asks for, all its warps together; do not multiply it by the warps.",
    ),
    (
        "capped_by_the_slots",
        _and(_capped_by_the_slots),
        "The blocks are right. Registers are named although fewer of them would let no further block in: the slots "
        "alone are full. For the registers, count as if there were any number of slots.",
    ),
    (
        "share_of_64_slots",
        _and(lambda kernel, unit: {"waves": 64 // kernel["num_warps"]}),
        "Not every unit has 64 wave slots: a CU has 32, sm_89 has 48. Take `waves_per_unit`.",
    ),
    (
        "first_limit_only",
        _first_limit_only,
        "The blocks are right. When several resources allow equally few, name them all: lifting one of them does not "
        "help.",
    ),
    (
        "most_blocks",
        _most_blocks,
        "Only the choice is wrong: it is the launch with most blocks. Blocks differ in size; what hides latency is "
        "waves, blocks times `num_warps`.",
    ),
    (
        "last_of_equals",
        _last_of_equals,
        "Only the choice is wrong: where two launches keep equally many waves, the first of them is asked for.",
    ),
)

EXERCISE = Exercise(
    id="02.occupancy",
    title="Which launch keeps most waves",
    parameters=("launches", "target"),
    kind="host",
    inputs=_inputs,
    reference=_sorted_reference,
    call=in_any_order,
    cases=(
        Example(
            "the example of the docstring",
            launches=[{"registers": registers, "shared_bytes": 40_000, "num_warps": 8} for registers in (128, 64)],
            target="sm_90",
        ),
        _case("a matmul tile with more or fewer registers", "sm_90", (128, 40_000, 8), (64, 40_000, 8), (24, 0, 6)),
        _case("33 registers take the room of 40", "sm_80", (33, 0, 4), (40, 14_200, 4), (32, 12_956, 4)),
        _case("small blocks against large ones", "sm_80", (32, 0, 1), (48, 0, 16), (64, 83_968, 4)),
        _case("what one block may have, and what two need", "sm_80", (64, 82_900, 4), (32, 166_912, 8), (168, 0, 4)),
        _case("parts: two and a half warps, five warps on four", "sm_90", (200, 0, 2), (200, 0, 5), (64, 55_000, 8)),
        _case(
            "Ada: 48 wave slots, 24 for blocks, and 99 KiB for a block",
            *("sm_89", (40, 30_000, 8), (255, 101_500, 16), (24, 101_376, 16), (40, 0, 2)),
        ),
        _case("68 registers by 8 or by 16; equals", "gfx942", (77, 0, 1), (68, 0, 1), (52, 0, 8), (40, 0, 4)),
        _case("LDS, of which LLVM knows nothing", "gfx942", (128, 32_768, 4), (64, 9_300, 2), (80, 73_728, 4)),
        _case("exactly what a block may have", "gfx942", (66, 65_536, 8), (85, 10_240, 4), (101, 0, 2)),
        _case("gfx950 has 160 KiB of LDS", "gfx950", (166, 65_536, 4), (97, 40_960, 8)),
        _case(
            "RDNA: registers by 24, LDS of two CUs", "gfx1100", (60, 70_000, 4), (97, 0, 4), (97, 20_000, 4), (24, 0, 1)
        ),
    ),
    fresh=_fresh,
    misconceptions=tuple(Misconception(*wrong) for wrong in _WRONG),
    hints=(
        "For each launch and each resource alone: how many blocks would it allow? The smallest number is `blocks`, and "
        "whoever allows no more is in `limited_by`. Only then compare launches, by waves.",
        "Rounding up to a multiple of g is (n + g - 1) // g * g. Registers: how many waves fit on one part? Then all "
        "`simds` parts, shared by the warps of a block. Shared memory: add the reserve, round up, and look whether one "
        "block may have so much.",
        "waves: waves_per_unit // num_warps. registers: registers // rounded * simds // num_warps. shared memory: "
        "shared_per_unit // rounded(shared_bytes + shared_reserved), no limit when that is 0, and 0 blocks above "
        "shared_per_block. blocks, on NVIDIA only: blocks_per_unit. waves of a launch: blocks * num_warps.",
    ),
    explanation=(
        "A block is on a unit as a whole or not at all, so each resource is divided by what a block takes, rounded to "
        "what the hardware hands out, and the smallest quotient wins. Rounding makes steps: a saving between two steps "
        "is worth nothing, and `limited_by` says what is worth changing. AMD's guide speaks of registers in blocks of "
        "16; LLVM, which the check asked, says 8: 68 registers hold 7 waves on a SIMD, not 6."
    ),
)
