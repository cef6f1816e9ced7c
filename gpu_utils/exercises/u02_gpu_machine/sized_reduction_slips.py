"""The wrong answers of 02.sized_reduction that are recognised, each with its hint."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from gpu_utils.analytic.occupancy import occupancy
from gpu_utils.chips.targets import TARGETS, Target
from gpu_utils.compiler import Resources, compile_for, resources
from gpu_utils.grading.exercise import Misconception


@triton.jit
def _walking_kernel(
    x_ptr, out_ptr, n, BLOCK: tl.constexpr, WALK: tl.constexpr = "in turn", MASKED: tl.constexpr = True
):
    program, programs = tl.program_id(0), tl.num_programs(0)
    begin, end, stride = program * BLOCK, n, programs * BLOCK
    if WALK == "the same tiles":
        stride = BLOCK
    elif WALK == "one tile":
        end = tl.minimum(n, begin + 1)
    elif WALK == "whole tiles":
        end = n - BLOCK + 1
    elif WALK == "the first does all":
        begin, stride = program * n, BLOCK
    elif WALK == "a stretch":
        stretch = tl.cdiv(tl.cdiv(n, programs), BLOCK) * BLOCK
        begin, stride = program * stretch, BLOCK
        end = tl.minimum(n, begin + stretch)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(begin, end, stride):
        at = start + tl.arange(0, BLOCK)
        if MASKED:
            total += tl.load(x_ptr + at, mask=at < n, other=0.0)
        else:
            total += tl.load(x_ptr + at)
    tl.store(out_ptr + program, tl.sum(total, 0))


def _kernel(n: int, target: str, BLOCK: int, num_warps: int | None, **options: Any) -> Resources:
    return _compiled(n % 16 == 0, target, BLOCK, num_warps, **options)


@functools.cache
def _compiled(whole: bool, target: str, BLOCK: int, num_warps: int | None, **options: Any) -> Resources:
    """Of n Triton wants to know only whether 16 divides it."""
    args = (torch.float32, torch.float32, 16 if whole else 17)
    return resources(compile_for(_walking_kernel, target, args, BLOCK=BLOCK, num_warps=num_warps, **options))


def _launched(x: Tensor, programs: int, BLOCK: int, num_warps: int | None, **options: Any) -> Tensor:
    out = torch.empty(programs, device=x.device)
    if num_warps is not None:
        options["num_warps"] = num_warps
    _walking_kernel[(programs,)](x, out, len(x), BLOCK=BLOCK, **options)
    return out


def _fit(x: Tensor, target: str, BLOCK: int, num_warps: int, **figures: Any) -> int:
    """Blocks on a unit whose figures are changed."""
    needs = _kernel(len(x), target, BLOCK, num_warps)
    return occupancy(replace(TARGETS[target], **figures), needs.registers, needs.shared, num_warps).blocks


def _answer(programs: Callable[..., int]) -> Callable[..., Tensor]:
    """An answer that launches `programs(x, units, BLOCK, num_warps, target)` of them."""

    def answer(x: Tensor, units: int, BLOCK: int, num_warps: int, target: str) -> Tensor:
        return _launched(x, programs(x, units, BLOCK, num_warps, target), BLOCK, num_warps)

    return answer


def _right(x: Tensor, units: int, BLOCK: int, num_warps: int, target: str) -> int:
    return units * _fit(x, target, BLOCK, num_warps)


def _by_slots(x: Tensor, units: int, BLOCK: int, num_warps: int, target: str) -> int:
    unit = TARGETS[target]
    blocks = unit.waves_per_unit // num_warps
    return units * (min(blocks, unit.blocks_per_unit) if unit.vendor == "nvidia" else blocks)


def _by_threads(x: Tensor, units: int, BLOCK: int, num_warps: int, target: str) -> int:
    return units * (TARGETS[target].waves_per_unit // num_warps)


def _by_registers(change: Callable[[int, Target, int], int]) -> Callable[..., int]:
    """The smaller of slots and `change(registers of a lane, unit, num_warps)`."""

    def programs(x: Tensor, units: int, BLOCK: int, num_warps: int, target: str) -> int:
        fits = change(_kernel(len(x), target, BLOCK, num_warps).registers, TARGETS[target], num_warps)
        return min(units * fits, _by_slots(x, units, BLOCK, num_warps, target))

    return programs


def _rounded(registers: int, unit: Target) -> int:
    return -(-registers // unit.granule) * unit.granule


def _of_another(registers_only: bool = False, **changed: Any) -> Callable[..., int]:
    """Programs by a kernel compiled with something else than what is launched: its registers, or all of its blocks."""

    def programs(x: Tensor, units: int, BLOCK: int, num_warps: int, target: str) -> int:
        asked = {"n": len(x), "target": target, "num_warps": num_warps, **changed}
        found = _kernel(BLOCK=BLOCK, **asked)
        launched = occupancy(TARGETS[target], found.registers, found.shared, num_warps)
        return units * (launched if registers_only else found.occupancy).blocks

    return programs


def _block_of_its_own(x: Tensor, units: int, BLOCK: int, num_warps: int, target: str) -> Tensor:
    return _launched(x, _right(x, units, 4096, 8, target), 4096, 8)


def _warps_not_passed(x: Tensor, units: int, BLOCK: int, num_warps: int, target: str) -> Tensor:
    return _launched(x, _right(x, units, BLOCK, 4, target), BLOCK, None)


def _walking(**options: Any) -> Callable[..., Tensor]:
    """As many programs as fit, of a kernel that walks otherwise."""

    def answer(x: Tensor, units: int, BLOCK: int, num_warps: int, target: str) -> Tensor:
        found = _kernel(len(x), target, BLOCK, num_warps, **options)
        return _launched(x, units * found.occupancy.blocks, BLOCK, num_warps, **options)

    return answer


def _added_up(x: Tensor, units: int, BLOCK: int, num_warps: int, target: str) -> Tensor:
    return _launched(x, _right(x, units, BLOCK, num_warps, target), BLOCK, num_warps).sum()


_WRONG: tuple[tuple[str, Callable[..., Tensor], str], ...] = (
    (
        "by_slots_only",
        _answer(_by_slots),
        "The programs fill the wave slots, and the registers of your kernel were not asked: where a lane takes many, "
        "fewer fit, and the rest wait for a second round. Compile it as it is launched; resources(...).registers.",
    ),
    (
        "by_threads_only",
        _answer(_by_threads),
        "The programs fill the 2,048 threads of each unit. Neither the registers of your kernel were asked nor, for "
        "programs of one warp, the 32 slots for blocks of an SM.",
    ),
    (
        "a_program_for_each_tile",
        _answer(lambda x, units, BLOCK, num_warps, target: triton.cdiv(len(x), BLOCK)),
        "One program for each tile, whatever the chip. Launch as many as fit on it at once, and let each walk through "
        "the tiles: range(program * BLOCK, n, programs * BLOCK).",
    ),
    (
        "one_program_for_each_unit",
        _answer(lambda x, units, BLOCK, num_warps, target: units),
        "One program for each unit, which has room for several. How many blocks fit on one, by 02.occupancy?",
    ),
    (
        "for_one_unit",
        _answer(lambda x, units, BLOCK, num_warps, target: _right(x, 1, BLOCK, num_warps, target)),
        "These programs fill one unit; the chip has `units` of them.",
    ),
    (
        "waves_for_blocks",
        _answer(lambda x, units, BLOCK, num_warps, target: _right(x, units, BLOCK, num_warps, target) * num_warps),
        "These are the waves that fit on the chip. A program has `num_warps` of them.",
    ),
    *(
        (
            f"{what}_for_sm_80",
            _answer(_of_another(registers_only, target="sm_80")),
            f"Right on sm_80. On gfx942 the {what} are taken that the kernel has on sm_80: compile it for `target`.",
        )
        for what, registers_only in (("blocks", False), ("registers", True))
    ),
    *(
        (
            f"{what}_of_four_warps",
            _answer(_of_another(registers_only, num_warps=None)),
            f"The {what} are taken that the kernel has with four warps, Triton's default, and it is launched with "
            "`num_warps`: other lanes for the same tile, so other registers. Compile it as it is launched.",
        )
        for what, registers_only in (("blocks", False), ("registers", True))
    ),
    (
        "compiled_for_another_n",
        _answer(_of_another(n=4096)),
        "It fails where 16 does not divide n. Triton compiles another kernel then, with narrower loads and other "
        "registers: give compile_for the n of the launch, len(x).",
    ),
    (
        "no_granule",
        _answer(_by_registers(lambda registers, t, warps: t.registers // registers * t.simds // warps)),
        "Registers are not rounded up: a wave gets them in multiples of `granule` a lane.",
    ),
    (
        "whole_file",
        _answer(_by_registers(lambda registers, t, warps: t.registers * t.simds // _rounded(registers, t) // warps)),
        "These numbers come about in two ways. Where the kernel is compiled without num_warps, compile_for takes four, "
        "and the registers are another kernel's: look there first if 02.occupancy passes. Or registers are divided up "
        "for the unit as a whole. Each of its parts has its own: first how many waves fit on one part, then times the "
        "parts, then divided by the waves of a block.",
    ),
    (
        "no_block_slots",
        _answer(
            lambda x, units, BLOCK, num_warps, target: units * _fit(x, target, BLOCK, num_warps, blocks_per_unit=10**6)
        ),
        "Programs of one warp: an SM takes at most `blocks_per_unit` blocks, however small they are.",
    ),
    (
        "block_of_its_own",
        _block_of_its_own,
        "The tiles are not those of the call: BLOCK and num_warps come with it, for the kernel and for the launch.",
    ),
    (
        "num_warps_not_passed",
        _warps_not_passed,
        "The launch does not say num_warps, so Triton takes four. Pass it on, next to BLOCK.",
    ),
    (
        "one_program_does_all",
        _walking(WALK="the first does all"),
        "Program 0 sums everything, and the others stand by. Program p begins with tile p, and from one of its tiles "
        "to the next are programs * BLOCK values.",
    ),
    (
        "stretches",
        _walking(WALK="a stretch"),
        "Each program sums a stretch of neighbouring tiles. That is a right way, too, but the last ones may have "
        "nothing to do; asked for are tiles p, p + programs, p + 2 * programs ...",
    ),
    (
        "added_up",
        _added_up,
        "The partial sums are added up already. Return them, one for each program.",
    ),
    (
        "same_tiles_again",
        _walking(WALK="the same tiles"),
        "The sum is too large: programs walk through the same tiles. From one tile of a program to its next are "
        "programs * BLOCK values.",
    ),
    (
        "first_tiles_only",
        _walking(WALK="one tile"),
        "Each program sums one tile only, and what lies behind the first programs * BLOCK values is lost. Walk on: a "
        "loop in the kernel.",
    ),
    (
        "last_tile_lost",
        _walking(WALK="whole tiles"),
        "Where n is no multiple of BLOCK, the values of the last tile are lost. Load it with a mask, and 0.0 for what "
        "is not there.",
    ),
    (
        "no_mask",
        _walking(MASKED=False),
        "The last tile reaches past the end of x: mask the load, with other=0.0.",
    ),
)

MISCONCEPTIONS = tuple(Misconception(*wrong) for wrong in _WRONG)
