"""02.sized_reduction: a sum with exactly as many programs as a chip holds at a time, by the kernel's own registers."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import torch
import triton
from torch import Tensor

from gpu_utils.analytic.tolerance import EXACT
from gpu_utils.chips.targets import TARGETS
from gpu_utils.exercises.u02_gpu_machine.sized_reduction_slips import MISCONCEPTIONS
from gpu_utils.grading.compare import Difference
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Limit

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


def _filled(value: float) -> Callable[..., Tensor]:
    return lambda x, units, BLOCK, num_warps, target: torch.full((units,), value)


def _fresh(rng: random.Random) -> Case:
    BLOCK, num_warps = rng.choice(SHAPES)
    n = 16 * rng.randrange(1500, 3000) + rng.choice((0, 1))
    return Case("a chip nobody chose", n=n, units=rng.randrange(1, 4), BLOCK=BLOCK, num_warps=num_warps)


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
    torch_may=(),
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
    misconceptions=MISCONCEPTIONS,
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
