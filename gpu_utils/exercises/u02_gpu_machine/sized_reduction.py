"""02.sized_reduction: a sum with exactly as many programs as a chip holds at a time, by the kernel's own registers."""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from gpu_utils.analytic.occupancy import occupancy
from gpu_utils.analytic.tolerance import EXACT
from gpu_utils.chips.targets import TARGETS, Target
from gpu_utils.compiler import Resources, compile_for, resources
from gpu_utils.grading.compare import Difference
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Limit, Misconception

SHAPES = ((4096, 8), (8192, 4), (512, 1), (2048, 4), (2048, 1))
"""(BLOCK, num_warps) of fresh cases: few, so that Triton's cache soon holds their kernels."""


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    # small whole numbers: their sum is exact in float32, in any order
    x = torch.randint(1, 9, (case["n"],), generator=generator).float()
    return {"x": x, "units": case["units"], "BLOCK": case["BLOCK"], "num_warps": case["num_warps"]}


def partial_sums_reference(x: Tensor, BLOCK: int, programs: int) -> Tensor:
    """What each of so many programs has to return: the sum of tiles p, p + programs, p + 2 * programs ..., in float64.

    >>> partial_sums_reference(torch.ones(10), BLOCK=4, programs=2).tolist()
    [6.0, 4.0]
    """
    tiles = [tile.double().sum() for tile in x.split(BLOCK)]
    return torch.stack(
        [sum(tiles[program::programs], torch.zeros((), dtype=torch.float64)) for program in range(programs)]
    )


def _judge(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    x, BLOCK = inputs["x"], inputs["BLOCK"]
    if not isinstance(value, Tensor):
        return Difference("type", f"the result is of type {type(value).__name__}, expected a tensor of partial sums")
    if value.dim() != 1 or not 0 < len(value) <= len(x):
        return Difference("shape", f"the result has shape {tuple(value.shape)}, expected (programs,)")
    if value.dtype != torch.float32:
        return Difference("dtype", f"the result is {value.dtype}, expected torch.float32")
    programs = len(value)
    expected = partial_sums_reference(x, BLOCK, programs)
    wrong = (value.double() != expected).nonzero()
    if not len(wrong):
        return None
    p = int(wrong[0])
    return Difference(
        "nan" if bool(value[p].isnan()) else "value",
        f"partial[{p}] = {float(value[p]):g}, expected {float(expected[p]):g}: the sum of tiles {p}, {p + programs}, "
        f"{p + 2 * programs} ... of {BLOCK} values, as far as there are any ({programs} partial sums; they add up to "
        f"{float(value.double().sum()):g}, and x to {float(x.double().sum()):g})",
    )


def _target() -> str:
    """The name in TARGETS of the machine that runs the answer; of another NVIDIA GPU the last one below it."""
    arch = triton.runtime.driver.active.get_current_target().arch
    if isinstance(arch, str):
        return arch
    known = [int(name[3:]) for name, t in TARGETS.items() if t.vendor == "nvidia"]
    return f"sm_{max((number for number in known if number <= arch), default=min(known))}"


def _call(answer: Callable[..., Any], inputs: Inputs) -> Any:
    return answer(**inputs, target=_target())


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


def _by_registers(change: Callable[[int, Target, int], int]) -> Callable[..., int]:
    """The smaller of slots and `change(registers of a lane, unit, num_warps)`."""

    def programs(x: Tensor, units: int, BLOCK: int, num_warps: int, target: str) -> int:
        fits = change(_kernel(len(x), target, BLOCK, num_warps).registers, TARGETS[target], num_warps)
        return min(units * fits, _by_slots(x, units, BLOCK, num_warps, target))

    return programs


def _rounded(registers: int, unit: Target) -> int:
    return -(-registers // unit.granule) * unit.granule


def _of_another(**changed: Any) -> Callable[..., int]:
    """Programs by a kernel compiled with something else than what is launched."""

    def programs(x: Tensor, units: int, BLOCK: int, num_warps: int, target: str) -> int:
        asked = {"n": len(x), "target": target, "num_warps": num_warps, **changed}
        found = _kernel(BLOCK=BLOCK, **asked)
        return units * occupancy(TARGETS[target], found.registers, found.shared, num_warps).blocks

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


def _filled(value: float) -> Callable[..., Tensor]:
    return lambda x, units, BLOCK, num_warps, target: torch.full((units,), value)


def _fresh(rng: random.Random) -> Case:
    BLOCK, num_warps = rng.choice(SHAPES)
    n = 16 * rng.randrange(1500, 3000) + rng.choice((0, 1))
    return Case("a chip nobody chose", n=n, units=rng.randrange(1, 4), BLOCK=BLOCK, num_warps=num_warps)


_WRONG: tuple[tuple[str, Callable[..., Tensor], str], ...] = (
    (
        "by_slots_only",
        _answer(_by_slots),
        "The programs fill the wave slots, and the registers of your kernel were not asked: where a lane takes many, "
        "fewer fit, and the rest wait for a second round. Compile it as it is launched; resources(...).registers.",
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
    (
        "compiled_for_sm_80",
        _answer(_of_another(target="sm_80")),
        "Right on sm_80. On gfx942 the programs follow from the registers that the kernel has on sm_80: compile it for "
        "`target`.",
    ),
    (
        "compiled_with_four_warps",
        _answer(_of_another(num_warps=None)),
        "The kernel whose registers were asked has four warps, Triton's default, and is launched with `num_warps`: "
        "other lanes for the same tile, so other registers. Compile it as it is launched.",
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
        "Registers are divided up for the unit as a whole. Each of its parts has its own: first how many waves fit on "
        "one part, then times the parts, then divided by the waves of a block.",
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

_FILLED = (
    "These are the units that your programs fill, by the registers that the compiler gave your kernel: blocks over the "
    "blocks that fit on one unit. {} Count by the rules of 02.occupancy, for the kernel as it is launched."
)

EXERCISE = Exercise(
    id="02.sized_reduction",
    title="A sum that fills every unit once",
    parameters=("x", "units", "BLOCK", "num_warps", "target"),
    kind="kernel",
    inputs=_inputs,
    reference=lambda x, units, BLOCK, num_warps: partial_sums_reference(x, BLOCK, units),
    tolerance=lambda case, inputs: EXACT,
    call=_call,
    judge=_judge,
    machine_code=True,
    cases=(
        Case("small tiles: slots or registers, by your kernel", n=5 * 2**14, units=2, BLOCK=4096, num_warps=8),
        Case("large tiles of few warps: registers decide", n=100_000, units=1, BLOCK=8192, num_warps=4),
        Case("programs of one warp: an SM has 32 slots for blocks", n=40_000, units=1, BLOCK=512, num_warps=1),
        Case("an odd number of values: other loads, other registers", n=70_001, units=3, BLOCK=2048, num_warps=4),
        Case("the same, with many values for a lane", n=90_001, units=1, BLOCK=2048, num_warps=1),
    ),
    fresh=_fresh,
    trivial={
        "zeros": _filled(0.0),
        "ones": _filled(1.0),
        "nan": _filled(math.nan),
        "x": lambda x, units, BLOCK, num_warps, target: x[:units],
    },
    limits=(
        Limit("launches", "Launch your own kernel.", at_least=lambda case: 1),
        Limit(
            "global_load_bytes",
            "Each value is to be read once, 4 bytes.",
            at_most=lambda case: 4 * case["n"],
        ),
        Limit(
            "waves_of_a_block",
            "A program is to have `num_warps` warps: pass it to the launch.",
            at_least=lambda case: case["num_warps"],
            at_most=lambda case: case["num_warps"],
        ),
        Limit(
            "units_filled",
            _FILLED.format("More than there are: some programs wait for a second round. (A second launch counts too.)"),
            at_most=lambda case: case["units"],
        ),
        Limit(
            "units_filled",
            _FILLED.format("Fewer than there are: where one more fits, the chip has less to do while it waits."),
            at_least=lambda case: case["units"],
        ),
    ),
    misconceptions=tuple(Misconception(*wrong) for wrong in _WRONG),
    hints=(
        "Two things are asked. The kernel: program p sums tiles p, p + programs, p + 2 * programs ... The launch: "
        "how many blocks of this kernel fit on one unit of `target`, times units. Which figures of the kernel does "
        "02.occupancy want?",
        "In the kernel: a tensor of BLOCK sums, and a loop over range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) "
        "* BLOCK) that adds a masked tile to it; after the loop tl.sum, and one store. For the launch: "
        "needs = resources(compile_for(partial_sums_kernel, target, (x, x, len(x)), ...)), with BLOCK and num_warps.",
        'launch = {"registers": needs.registers, "shared_bytes": needs.shared, "num_warps": num_warps}; programs = '
        'units * occupancy([launch], target)["blocks"][0], with your occupancy; or units * needs.occupancy.blocks. '
        "partial = torch.empty(programs, device=x.device), and return partial.",
    ),
    explanation=(
        "The launch is made for the chip, not for the data: as many programs as fit at once, each of which walks "
        "through the data. So no unit waits for a last round, the final reductions are few, and the slots that the "
        "kernel can have hide latency. How many fit is the compiler's answer as much as yours: the same tile takes "
        "other registers with other warps, on another target, and where 16 does not divide n. So the launch asks."
    ),
    seconds=30.0,
)
