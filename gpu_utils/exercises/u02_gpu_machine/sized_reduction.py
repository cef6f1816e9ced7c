"""02.sized_reduction: a sum whose programs fill every unit once: as many as fit at a time, and no more."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from gpu_utils.analytic.tolerance import EXACT
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Limit, Misconception

THREADS = 2048
"""Most threads that one SM or CU of the targets holds: 64 warps of 32, 32 wavefronts of 64."""

BLOCKS = 32
"""Most blocks on one SM of sm_80; a CU has 32 wave slots, so no more blocks either."""


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    # small whole numbers: their sum is exact in float32, in any order
    x = torch.randint(0, 9, (case["n"],), generator=generator).float()
    return {"x": x, "units": case["units"]}


def sum_reference(x: Tensor, units: int) -> Tensor:
    """The sum, in float64."""
    return x.double().sum()


def _call(answer: Callable[..., Any], inputs: Inputs) -> Any:
    """The partial sums that the answer returned, added up."""
    partial = answer(**inputs)
    return partial.sum() if isinstance(partial, Tensor) else partial


@triton.jit
def _strided_kernel(
    x_ptr, out_ptr, n, stride, BLOCK: tl.constexpr, LAST_LOST: tl.constexpr = False, MASKED: tl.constexpr = True
):
    total = tl.zeros((BLOCK,), tl.float32)
    end = n - BLOCK + 1 if LAST_LOST else n
    for start in range(tl.program_id(0) * BLOCK, end, stride):
        at = start + tl.arange(0, BLOCK)
        if MASKED:
            total += tl.load(x_ptr + at, mask=at < n, other=0.0)
        else:
            total += tl.load(x_ptr + at)
    tl.store(out_ptr + tl.program_id(0), tl.sum(total, 0))


def _lanes() -> int:
    return int(triton.runtime.driver.active.get_current_target().warp_size)


def _launched(x: Tensor, programs: int, block: int, warps: int, stride: int | None = None, **options: Any) -> Tensor:
    out = torch.empty(programs, device=x.device)
    step = programs * block if stride is None else stride
    _strided_kernel[(programs,)](x, out, len(x), step, BLOCK=block, num_warps=warps, **options)
    return out


def _sized(
    block: int = 4096, warps: int = 8, threads: int = THREADS, lanes: Callable[[], int] = _lanes, **options: Any
) -> Callable[..., Tensor]:
    """An answer with so many threads to a unit."""

    def answer(x: Tensor, units: int) -> Tensor:
        return _launched(x, units * (threads // (warps * lanes())), block, warps, **options)

    return answer


def _a_program_for_each_tile(x: Tensor, units: int) -> Tensor:
    return _launched(x, triton.cdiv(len(x), 1024), 1024, 4)


def _one_program_for_each_unit(x: Tensor, units: int) -> Tensor:
    return _launched(x, units, 4096, 8)


def _same_tiles_again(x: Tensor, units: int) -> Tensor:
    return _launched(x, units * (THREADS // (8 * _lanes())), 4096, 8, stride=4096)


def _first_tiles_only(x: Tensor, units: int) -> Tensor:
    return _launched(x, units * (THREADS // (8 * _lanes())), 4096, 8, stride=2**30)


def _load_of_four_bytes(x: Tensor, units: int) -> Tensor:
    return _launched(x, units * (THREADS // (8 * _lanes())), 8 * _lanes(), 8)


def _filled(value: float) -> Callable[..., Tensor]:
    return lambda x, units: torch.full((1,), value)


def _fresh(rng: random.Random) -> Case:
    units = rng.randrange(1, 3)
    return Case("a chip nobody chose", n=16 * rng.randrange(2200, 3000) * units, units=units)


EXERCISE = Exercise(
    id="02.sized_reduction",
    title="A sum that fills every unit once",
    parameters=("x", "units"),
    kind="kernel",
    inputs=_inputs,
    reference=sum_reference,
    tolerance=lambda case, inputs: EXACT,
    call=_call,
    machine_code=True,
    cases=(
        Case("two units", n=5 * 2**14, units=2),
        Case("three units, and a last round that is not full", n=100_000, units=3),
        Case("an odd number of values: here the width of a load does not count", n=70_001, units=2),
        Case("one unit", n=40_000, units=1),
    ),
    fresh=_fresh,
    trivial={
        "zeros": _filled(0.0),
        "ones": _filled(1.0),
        "nan": _filled(math.nan),
        "x": lambda x, units: x[:1],
    },
    limits=(
        Limit("launches", "Launch your own kernel.", at_least=lambda case: 1),
        Limit(
            "global_load_bytes",
            "Each value is to be read once, 4 bytes.",
            at_most=lambda case: 4 * case["n"],
        ),
        Limit(
            "threads",
            "A unit has slots for 2,048 threads, and less than half of them are used: most of the chip has nothing to "
            "do while it waits for memory. Launch more programs, or more warps in each.",
            at_least=lambda case: THREADS // 2 * case["units"],
        ),
        Limit(
            "blocks",
            "A unit takes 32 blocks at most, and these are more than all units take at once: the rest waits for a "
            "second round. Let each program sum more tiles, or give a program more warps.",
            at_most=lambda case: BLOCKS * case["units"],
        ),
        Limit(
            "units_filled",
            "These are the units that the programs fill, as many on each as fit by warps, registers and block slots. "
            "More than there are: some programs wait for a second round, in which most of the chip is idle. Fewer "
            "programs, or fewer registers. (A second launch counts too: return the partial sums.)",
            at_most=lambda case: case["units"],
        ),
        Limit(
            "bytes_of_a_load",
            "A lane loads less than 16 bytes with one instruction. Let BLOCK be four values for each lane of the "
            "block, or a multiple of that; on AMD a warp has 64 lanes.",
            at_least=lambda case: 16 if case["n"] % 16 == 0 else 0,
        ),
    ),
    misconceptions=(
        Misconception(
            "a_program_for_each_tile",
            _a_program_for_each_tile,
            "One program for each tile: more than fit at once, so they come in rounds, and each of them reduces and "
            "stores on its own. Launch as many programs as fit, and let each walk through the tiles: "
            "range(program * BLOCK, n, programs * BLOCK).",
        ),
        Misconception(
            "warps_of_32",
            _sized(block=2048, lanes=lambda: 32),
            "Right on sm_80, twice too many programs on gfx942: `num_warps` counts wavefronts there, and each has 64 "
            "lanes. Ask the target for its lanes.",
        ),
        Misconception(
            "blocks_of_one_warp",
            _sized(block=512, warps=1),
            "Programs of one warp: an SM of sm_80 has 64 warp slots and takes 32 blocks, so half of the programs wait. "
            "On gfx942 a CU has 32 slots, and it works. More warps to a program fit both.",
        ),
        Misconception(
            "too_many_registers",
            _sized(block=8192),
            "Right on gfx942, too many registers on sm_80: 8,192 values on 256 threads are 32 of them for the sums of "
            "a lane, as many again for the loads, and a lane of a full SM has 32 in all. Take a smaller BLOCK, or half "
            "of the threads.",
        ),
        Misconception(
            "one_program_for_each_unit",
            _one_program_for_each_unit,
            "One program of 8 warps for each unit: 256 or 512 of the 2,048 threads that it could hold. How many such "
            "programs fit on one unit?",
        ),
        Misconception(
            "load_of_four_bytes",
            _load_of_four_bytes,
            "One value for each lane: loads of 4 bytes, four times as many instructions as needed. Let BLOCK be four "
            "values for each lane.",
        ),
        Misconception(
            "same_tiles_again",
            _same_tiles_again,
            "The sum is too large: the programs walk through the same tiles. From one tile of a program to its next "
            "are programs * BLOCK values.",
        ),
        Misconception(
            "first_tiles_only",
            _first_tiles_only,
            "Each program sums one tile only, and what lies behind the first programs * BLOCK values is lost. Walk on: "
            "a loop in the kernel.",
        ),
        Misconception(
            "last_tile_lost",
            _sized(LAST_LOST=True),
            "Where n is no multiple of BLOCK, the values of the last tile are lost. Load it with a mask, and 0.0 for "
            "what is not there.",
        ),
        Misconception(
            "no_mask",
            _sized(MASKED=False),
            "The last tile reaches past the end of x: mask the load, with other=0.0.",
        ),
    ),
    hints=(
        "How many threads can one unit hold, and how many has a program of `num_warps` warps on this target? The "
        "quotient, times units, is the number of programs.",
        "In the kernel: a tensor of BLOCK sums, and a loop over range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) "
        "* BLOCK) that adds a masked tile to it; after the loop tl.sum, and one store. 8 warps and a BLOCK of 2048 or "
        "4096 give each lane 4 to 16 values.",
        "lanes = triton.runtime.driver.active.get_current_target().warp_size; programs = units * (2048 // (8 * "
        "lanes)); kernel[(programs,)](x, partial, len(x), BLOCK=4096, num_warps=8) with partial = "
        "torch.empty(programs, device=x.device), and return partial.",
    ),
    explanation=(
        "The launch is made for the chip, not for the data: as many programs as fit at once, each of which walks "
        "through the data. So no unit waits for a last round, the final reductions are few, and all slots hide "
        "latency. Four limits decide how many fit: warp slots (2,048 threads on either vendor, but 64 warps or 32 "
        "wavefronts), registers (a full SM leaves 32 to a lane, a full CU 64), shared memory (little here) and block "
        "slots (32 on an SM: programs of one warp fill half of it)."
    ),
)
