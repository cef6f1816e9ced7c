"""07.no_spills: a kernel whose tile does not fit in the registers, retiled until it does on seven targets."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from gpu_utils.analytic.tolerance import Tolerance, tolerance
from gpu_utils.backends import record_launches
from gpu_utils.compiler import compile_for, resources
from gpu_utils.exercises.u07_ptx_and_amdgcn.no_spills_slips import given, retiled, strips
from gpu_utils.grading.compare import Difference, compare
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Limit, Misconception

ALIKE = (("sm_80", "sm_90"), ("gfx90a", "gfx942", "gfx950"), ("gfx1100", "gfx1201"))
"""Targets for which a launch looks the same: of one vendor, with waves as wide."""

HEAVY = 2_000
"""Bytes of spill stores of a thread on NVIDIA, above which far more than a tile was alive at once."""


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    m, n, k = case["m"], case["n"], case["k"]
    return {"a": torch.randn(k, m, generator=generator), "b": torch.randn(k, n, generator=generator)}


def no_spills_reference(a: Tensor, b: Tensor) -> Tensor:
    """The sum over k of |a[k, m] - b[k, n]|, in float64."""
    return (a.double()[:, :, None] - b.double()[:, None, :]).abs().sum(dim=0)


def _tolerance(case: Case, inputs: Inputs) -> Tolerance:
    return tolerance(torch.float32, k=case["k"], magnitude=2 * math.sqrt(case["k"]))


def _call(answer: Callable[..., Tensor], inputs: Inputs) -> dict[str, Any]:
    """The result, and what the launched kernels spill on the targets that are like this one."""
    here = triton.runtime.driver.active.get_current_target()
    width = ("sm", 32) if here.backend == "cuda" else ("gfx", here.warp_size)
    targets = {("sm", 32): ALIKE[0], ("gfx", 64): ALIKE[1], ("gfx", 32): ALIKE[2]}[width]
    with record_launches() as launches:
        out = answer(**inputs)
    spills = {
        target: max(
            (resources(compile_for(one.kernel, target, one.args, **one.kwargs)).spills for one in launches), default=0
        )
        for target in targets
    }
    asked = sorted({name for one in launches for name in ("maxnreg", "waves_per_eu") if one.kwargs.get(name)})
    return {"out": out, "spills": spills, "asked": asked}


def _judge(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    expected, tol = no_spills_reference(**inputs), _tolerance(case, inputs)
    if found := compare(expected, value["out"], tol, torch.float32):
        return found
    spilled = {target: count for target, count in value["spills"].items() if count}
    if not spilled:
        return None
    units = {"sm": "bytes a thread", "gf": "registers a lane"}
    said = ", ".join(f"{count} {units[target[:2]]} on {target}" for target, count in spilled.items())
    kept = [target for target in value["spills"] if target not in spilled]
    some = "heavy" if spilled.get("sm_80", 0) > HEAVY else "partly" if kept else "some"
    why = ",".join(value["asked"]) or some
    none = f"; none on {', '.join(kept)}" if kept else ""
    return Difference(f"spills:{why}", f"the result is right, and the kernel spills {said}{none}; expected none")


def _fresh(rng: random.Random) -> Case:
    # odd, and no k of 1: Triton compiles a kernel anew for a size that 16 divides
    return Case("sizes nobody chose", m=rng.randrange(21, 200, 2), n=rng.randrange(21, 200, 2), k=rng.randrange(3, 12))


EXERCISE = Exercise(
    id="07.no_spills",
    title="Retile until nothing spills, on seven targets",
    parameters=("a", "b"),
    kind="kernel",
    targets=("gfx942", "sm_80", "gfx1100"),
    machine_code=True,
    inputs=_inputs,
    reference=no_spills_reference,
    tolerance=_tolerance,
    dtype=lambda inputs: torch.float32,
    call=_call,
    judge=_judge,
    cases=(
        Case("nearly whole tiles: here programs are counted", m=255, n=255, k=9),
        Case("one row and one column more than a tile of 128 x 64", m=129, n=65, k=5),
        Case("less than one tile", m=3, n=5, k=2),
    ),
    fresh=_fresh,
    trivial={
        "zeros": lambda a, b: torch.zeros(a.shape[1], b.shape[1], device=a.device),
        "ones": lambda a, b: torch.ones(a.shape[1], b.shape[1], device=a.device),
        "nan": lambda a, b: torch.full((a.shape[1], b.shape[1]), float("nan"), device=a.device),
        "the input": lambda a, b: a,
    },
    limits=(
        Limit("launches", "Let a Triton kernel do the work.", at_least=lambda case: 1),
        Limit(
            "blocks",
            "One program that walks over the result in strips has small tiles, too. Keep 8192 elements of the result "
            "in a tile, in one piece, and give each tile a program of its own.",
            at_least=lambda case: 4 if case["m"] == case["n"] == 255 else 1,
        ),
        Limit(
            "blocks",
            "Small tiles need few registers, and read the inputs again and again: each program loads BLOCK_M + BLOCK_N "
            "numbers for each k. Keep 8192 elements of the result in a tile, no side of it longer than the matrix, and "
            "share it among more waves.",
            at_most=lambda case: 8 if case["m"] == case["n"] == 255 else math.inf,
        ),
        # no bound: ptxas, which knows what a kernel spills, then compiles misconceptions too
        Limit("units_filled", "Leave the registers room for one block at least.", at_least=lambda case: 0),
    ),
    misconceptions=(
        Misconception(
            "as_given",
            given(),
            "A chunk of 4 k makes 4 x 128 x 64 differences before it adds them up: they are all alive at once. What "
            "must live during the whole loop, and what only for one k?",
        ),
        Misconception(
            "small_tiles",
            retiled(32, 32, 1),
            "Nothing spills, and each number is loaded many times more often: 64 programs where 8 are enough. Lanes "
            "are what there is more of: give the tile to more waves. A side longer than the matrix is partly empty: "
            "such a tile counts as a small one.",
        ),
        Misconception(
            "strips_of_one_program",
            strips,
            "One program walks over 32 x 32 tiles: few programs, and each number is loaded as often as by small ones. "
            "A tile of 8192 elements stays in registers in one piece.",
        ),
        Misconception(
            "too_many_waves",
            retiled(num_warps=16),
            "A block of 16 waves has 512 threads, and the compiler leaves each of them fewer registers: sm_90 spills "
            "then. 4 or 8 waves are enough for this tile.",
        ),
        Misconception(
            "few_waves",
            retiled(num_warps=2),
            "One k at a time is right. With 2 waves of 32 lanes a lane still holds 128 elements of the tile, and as "
            "much again for what one k needs: 255 registers are not enough. gfx90a and its kin have 64 lanes and 512 "
            "registers, and do not show it.",
        ),
        Misconception(
            "mended_for_nvidia",
            retiled(on_amd=2),
            "Right on NVIDIA and on waves of 64 lanes; RDNA (gfx1100, gfx1201) has waves of 32 and no AGPRs. The "
            "backend does not say how wide a wave is: what does a lane of 32 hold there?",
        ),
        Misconception(
            "asks_for_occupancy",
            retiled(occupancy=True),
            "maxnreg and waves_per_eu take registers away: they make the compiler spill, never the opposite. Make the "
            "part of a lane smaller instead.",
        ),
        Misconception(
            "narrow_sum",
            retiled(SUM=tl.float16),
            "Half the bits make room, and lose the result: a sum of float32 numbers wants a float32 accumulator.",
        ),
        Misconception(
            "squares",
            retiled(SQUARED=True),
            "The distance here is the sum of absolute differences: tl.abs, no squares.",
        ),
        Misconception(
            "loads_without_mask",
            retiled(LOADS_MASKED=False),
            "The last tile reaches past the end of a row of a or b. Rows from M on, and columns from N on, must not be "
            "loaded.",
        ),
        Misconception(
            "stores_past_the_row",
            retiled(STORE_MASKED=False),
            "Columns at or above N are stored: they fall into the next row of the result, or past its end. The mask of "
            "the store has two sides.",
        ),
        Misconception(
            "forgets_the_last_k",
            retiled(LAST=1),
            "The loop ends one k too early.",
        ),
        Misconception(
            "with_torch",
            lambda a, b: torch.cdist(a.T.contiguous(), b.T.contiguous(), p=1.0),
            "The numbers are right, and torch made them. Launch a kernel.",
        ),
    ),
    hints=(
        "Count what one lane must hold: 128 x 64 elements of the sum over 4 waves of 32 lanes are 64 registers. Then "
        "count the differences of a chunk of 4 k in the same way, and compare with 255.",
        "Let the loop take one k at a time: a column of 128 numbers, a column of 64, and their differences, which go "
        "into the sum at once. Nothing three-dimensional is needed.",
        "for k in range(K): a = tl.load(a_ptr + k * M + rows, mask=rows < M, other=0.0), b likewise, then "
        "total += tl.abs(a[:, None] - b[None, :]). Keep BLOCK_M=128, BLOCK_N=64 and num_warps=4.",
    ),
    explanation=(
        "A spill is a store to memory that belongs to one lane, and a load later: the registers were not enough for "
        "what is alive at one time. The sum of the tile lives through the loop: BLOCK_M * BLOCK_N / (lanes * waves) "
        "registers, here 64 on waves of 32 and 32 on waves of 64. What one step makes must fit beside it. The chunk "
        "of 4 k asked for four times the tile. Where a lane has 512 registers, as on gfx90a, gfx942 and gfx950 "
        "(256 VGPRs and 256 AGPRs), that fits and nobody notices; a lane of sm_80 and sm_90 has 255, one of RDNA 256. "
        "So a kernel that was tuned on one chip spills on the next. Three ways make a lane's part smaller: less alive "
        "in one step, more waves for the tile, a smaller tile; only the last costs traffic. maxnreg and waves_per_eu "
        "work the other way: they lower the limit so that more waves fit, and what does not fit is spilled."
    ),
    seconds=60.0,
)
