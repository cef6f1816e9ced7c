"""07.lane_sum: PTX by hand. The lanes of a warp add up what each has summed, by five shuffles."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import Tolerance, tolerance
from gpu_utils.errors import W2WError
from gpu_utils.exercises.u07_ptx_and_amdgcn import lane_sum_slips as slips
from gpu_utils.exercises.u07_ptx_and_amdgcn.by_hand import NVIDIA
from gpu_utils.exercises.u07_ptx_and_amdgcn.judging import judged, written
from gpu_utils.exercises.u07_ptx_and_amdgcn.lane_weights import how_often
from gpu_utils.grading.compare import Difference
from gpu_utils.grading.cpp import Framed
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs, Misconception
from gpu_utils.virtual import virtual_gpu
from gpu_utils.virtual.isa import Launch

LANES, STEPS = 32, 5
NAME = "lane_sum"
ANSWER = Framed.read(Path(__file__).with_suffix(".ptx"))


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    # all above 0.5: a lane that is lost, or counted twice, is never lost in the tolerance
    return {"x": torch.rand(case["rows"], case["columns"], generator=generator) + 0.5}


def lane_sum_reference(x: Tensor) -> Tensor:
    """The sum of each row, in float64."""
    return x.double().sum(dim=1)


def _tolerance(case: Case, inputs: Inputs) -> Tolerance:
    # terms of one sign: the partial sums grow with their number
    columns = inputs["x"].shape[1]
    return tolerance(torch.float32, k=columns, magnitude=math.sqrt(columns))


def _call(answer: Callable[[], Any], inputs: Inputs) -> Any:
    return written(answer, {})


def _cost(launch: Launch) -> Difference | None:
    """What the exercise asks besides the right sum: shuffles, at most five of a warp, and one lane that stores."""
    ran = launch.counters.per_op()
    ops, rows = launch.program.ops, launch.grid[0]
    if any(op.kind == "shared" for op in ops):
        return Difference("shared", "the kernel uses shared memory; here the lanes exchange by shfl.sync alone")
    if any(op.mnemonic.startswith(("atom.", "red.")) for op in ops):
        return Difference("atomic", "the kernel uses an atomic operation; here the lanes exchange by shfl.sync alone")
    shuffles = sum(ran[op.index][0] for op in ops if op.mnemonic.startswith("shfl"))
    if any(op.mnemonic.startswith("activemask") for op in ops):
        found = "the kernel asks activemask.b32 which lanes happen to be there, and nothing promises that all have come"
        return Difference("activemask", f"{found}; name the lanes in the mask yourself")
    if not shuffles:
        return Difference("no shuffle", "no shfl.sync is executed; expected the lanes to exchange their sums by it")
    if shuffles > STEPS * rows:
        found = f"a warp executes {shuffles / rows:g} shuffles, expected at most {STEPS}"
        many = shuffles > 2 * STEPS * rows
        return Difference("one by one" if many else f"{shuffles / rows:g} steps", f"{found}: let all lanes add in each")
    stores = sum(access.lanes for access in launch.counters.globals.values() if access.kind == "store")
    if stores != rows:
        lanes = "no lane of a warp stores" if not stores else f"{stores / rows:g} lanes of a warp store"
        return Difference("stores" if stores else "no store", f"{lanes}; expected one, to y[row]")
    return None


def _judge(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    if not isinstance(value, str):
        return Difference("type", f"the result is a {type(value).__name__}, expected the PTX of a kernel as a string")
    if ".entry" not in value:
        detail = (
            "the text has no kernel in it (.entry); return the whole text of the cell, with what is around your lines"
        )
        return Difference("no kernel", detail)
    if huge := re.search(r"^\s*\.reg\b[^;\n]*<\s*(\d{5,})", value, re.MULTILINE):
        return Difference("registers", f"the text declares {huge[1]} registers of a kind; a thread has 255")
    x, target = inputs["x"], case.get("target", NVIDIA[0])
    rows, columns = x.shape

    def arguments() -> tuple[list[Any], Tensor]:
        y = torch.full((rows,), math.nan)
        return [x, y, columns], y

    sanitize = ("racecheck", "waitcheck", "synccheck")
    expected, tol = lane_sum_reference(x), _tolerance(case, inputs)
    found = judged(value, target, NAME, rows, LANES, arguments, expected, tol, _cost, sanitize)
    if found and found.kind in ("value", "nan"):
        return _looked_at(value, target, found)
    if found and found.kind == "error:CompileFailed":
        return replace(found, kind=f"refused: {_complaint(found.detail)}")
    return found


def _complaint(said: str) -> str:
    """What ptxas complains about, of which instruction: "Arguments mismatch for instruction 'add'; add.s32"."""
    complaint, _, line = said.partition(" for sm_")[2].partition(": ")[2].partition(" (line ")
    mnemonic = re.search(r": (?:@!?%\w+ +)?([\w.]+)", line)
    return f"{complaint}; {mnemonic[1]}" if mnemonic else complaint


def _looked_at(text: str, target: str, found: Difference) -> Difference:
    """Why a sum is wrong: too many lanes store, or some lane is counted too often or not at all."""
    y = torch.full((LANES,), math.nan)
    try:
        with virtual_gpu(target) as gpu:
            launch = gpu.load(text).launch(NAME, LANES, LANES, [torch.eye(LANES), y, LANES])
    except W2WError:
        return replace(found, kind="sum")
    counted = how_often(y.tolist())
    if wrong := _cost(launch):
        return replace(wrong, kind=f"{wrong.kind}, {counted}") if wrong.kind.endswith(" steps") else wrong
    if y.isnan().any():
        return replace(found, kind="unwritten", detail=f"{found.detail}. No number arrives in y")
    if not (y == 1).all():
        return Difference(f"counts {counted}", f"{found.detail}. It counts {counted}; expected each of the 32 once")
    return Difference("sum", f"{found.detail}. A row with one number other than 0 is right. How are two added?")


def _fresh(rng: random.Random) -> Case:
    target = rng.choice(NVIDIA)
    return Case("a row nobody chose", rows=rng.randrange(2, 6), columns=rng.randrange(1, 1500), target=target)


EXERCISE = Exercise(
    id="07.lane_sum",
    title="A sum over a warp, in PTX",
    parameters=(),
    kind="host",
    inputs=_inputs,
    reference=lane_sum_reference,
    call=_call,
    judge=_judge,
    tolerance=_tolerance,
    dtype=lambda inputs: torch.float32,
    cases=(
        Example("the example of the statement", x=lambda: torch.tensor([[1.0, 2.0, 3.0, 4.0], [0.5, 0.0, 0.0, 2.0]])),
        Case("three rows, and a last turn in which 8 lanes have a column", rows=3, columns=1000, target="sm_80"),
        Case("one column: lanes 1 to 31 add nothing, and are there all the same", rows=2, columns=1, target="sm_90"),
        Case("one lane has no column", rows=1, columns=31, target="sm_120"),
        Case("one lane has two columns", rows=4, columns=33, target="sm_89"),
        Case("every lane has as many", rows=2, columns=64, target="sm_100"),
    ),
    fresh=_fresh,
    trivial={
        "zeros": ANSWER.filled(slips.storing("0f00000000")),
        "ones": ANSWER.filled(slips.storing("0f3F800000")),
        "nan": ANSWER.filled(slips.storing("0f7FC00000")),
        "the input": ANSWER.filled(slips.storing("%f9")),
    },
    misconceptions=tuple(
        Misconception(name, ANSWER.filled(part), hint) for name, (part, hint) in slips.parts(ANSWER.solution).items()
    ),
    hints=(
        "In each step every lane takes the sum of the lane `offset` further on and adds it to its own. After offset 16 "
        "the lanes 0 to 15 hold everything, after 8 the lanes 0 to 7. When does lane 0 hold all 32?",
        "shfl.sync.down.b32 d, a, offset, 0x1f, 0xffffffff: d becomes the a of the lane `offset` further on. Write it "
        "to another register than the one that you add to. Only lane 0 may store: setp.eq.u32 on %r1, then @%p2.",
        "Five times shfl.sync.down.b32 %f2, %f1, OFFSET, 0x1f, 0xffffffff; add.f32 %f1, %f1, %f2; with the offsets 16, "
        "8, 4, 2, 1. Then the address %rd2 + 4 * row by mul.wide.u32 and add.u64, and st.global.f32 under @%p2.",
    ),
    explanation=(
        "Five shuffles halve 32 sums to one. With .down the source of a lane near the end lies outside of the warp: it "
        "then gets its own value (the bound 0x1f is the last lane), so the upper lanes hold sums that mean nothing, "
        "and only lane 0 may store. With .bfly (lane XOR offset) all 32 lanes end with the sum; still one of them "
        "stores. The member mask 0xffffffff names all lanes, also those that had no column: they are still there, "
        "with 0. The lanes left the loop after different turns, and since Volta nothing promises that they meet again "
        "by themselves: shfl.sync waits for all lanes of its mask. redux.sync adds whole numbers in one instruction; "
        "for floats PTX has it on sm_100a only, as minimum and maximum."
    ),
    seconds=20.0,
)
