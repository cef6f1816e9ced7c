"""07.waitcnt: every wait of a kernel with several accesses under way, each as loose as it can be."""

from __future__ import annotations

import random
from typing import Any

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import tolerance
from gpu_utils.errors import CompileFailed, LateData, UnsupportedInstruction, W2WError
from gpu_utils.exercises.u07_ptx_and_amdgcn.by_hand import AMD, amdgcn_kernel
from gpu_utils.exercises.u07_ptx_and_amdgcn.judging import judged
from gpu_utils.exercises.u07_ptx_and_amdgcn.numbered import counted, family_of
from gpu_utils.exercises.u07_ptx_and_amdgcn.waitcnt_listing import LISTING, PARAMETERS, ROWS, THREADS, Found, found
from gpu_utils.exercises.u07_ptx_and_amdgcn.waitcnt_slips import MISCONCEPTIONS, waits_of
from gpu_utils.grading.compare import Difference
from gpu_utils.grading.exercise import Case, Exercise, Inputs
from gpu_utils.virtual import amdgcn
from gpu_utils.virtual.isa import Launch


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    return {"family": family_of(case["target"])}


def rows_reference(x: Tensor, y: Tensor) -> Tensor:
    """What the kernel stores, in float64: rows of x times y, then the partner's x; the last row without y."""
    x, y = x.double().view(ROWS, THREADS), y.double().view(ROWS, THREADS)
    partner = x[:, torch.arange(THREADS) ^ 1]
    product = torch.cat([x[:2] * y[:2], x[2:]])
    return (product + partner).view(-1)


def _judge(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    if wrong := LISTING.wrong_form(value):
        return wrong
    target = case["target"]
    text = amdgcn_kernel("rows", PARAMETERS, LISTING.filled(value), target, shared=8 * THREADS)
    x, y = torch.rand(2, ROWS * THREADS, generator=torch.Generator().manual_seed(case["seed"])) + 0.5

    def arguments() -> tuple[list[Any], Tensor]:
        out = torch.full((ROWS * THREADS,), torch.nan)
        return [x, y, out], out

    def failing(problem: W2WError) -> Difference | None:
        if isinstance(problem, CompileFailed):
            return Difference(f"assembler {problem}".rpartition(": ")[2], str(problem))
        if isinstance(problem, UnsupportedInstruction) and inputs["family"] == "gfx12" and "`s_waitcnt" in str(problem):
            have = ", ".join(f"s_wait_{counter}" for counter in ("loadcnt", "storecnt", "dscnt", "kmcnt"))
            return Difference("assembler", f"{target} has an instruction for each counter ({have}); found others")
        return _late(problem, text, target, value) if isinstance(problem, LateData) else None

    return judged(
        text, target, "rows", 1, THREADS, arguments, rows_reference(x, y), tolerance(torch.float32), _cost,
        failing=failing,
    )  # fmt: skip


def _late(problem: LateData, text: str, target: str, value: dict[int, str]) -> Difference:
    """The use that came too early, in the listing's numbers, and how many more there are."""
    uses = found(amdgcn.decode(text, target, "rows")).late
    use, load = (LISTING.number(side.text) or 0 for side in (problem.report.second, problem.report.first))
    given = {line for line, one in value.items() if LISTING.rows(one)}
    more = f" So do {len(uses) - 1} lines after it." if len(uses) > 1 else ""
    detail = (
        f"{LISTING.quoted(use)} uses {problem.report.what} too early: {LISTING.quoted(load)} is still to fill it."
        f"{more} "
    )
    detail += f"The wait before line {use} lets too many stay under way" if use in given else f"Line {use} has no wait"
    return Difference(f"late:{uses}, waits: {[line for line in uses if line in given] if given else None}", detail)


def _cost(launch: Launch) -> Difference | None:
    return _too_tight(found(launch.program))


def _too_tight(waits: Found) -> Difference | None:
    """One access that is waited for early, or one wait that holds back nothing, is too much."""
    total = sum(waits.early.values())
    if total:
        detail = (
            f"right, but accesses waited for early: {total}, expected 0. Held back longer than it must be: "
            f"{counted(tuple(waits.early))}. Let as many accesses stay under way as the line behind the wait allows"
        )
        return Difference(f"early:{waits.early}", detail)
    if waits.idle:
        detail = (
            f"right, but waits that hold back nothing: {len(waits.idle)}, expected 0. One stands before line "
            f"{waits.idle[0]}: what it waits for is there already. Take it out"
        )
        return Difference(f"idle:{waits.idle}", detail)
    return None


def _fresh(rng: random.Random) -> Case:
    return Case("other numbers, a target drawn", target=rng.choice(AMD), seed=rng.randrange(10**6))


EXERCISE = Exercise(
    id="07.waitcnt",
    title="Place the waits",
    parameters=("family",),
    kind="host",
    inputs=_inputs,
    reference=lambda family: waits_of(family),
    judge=_judge,
    dtype=lambda inputs: None,
    seconds=30.0,
    cases=(
        Case("stores count in vmcnt, as loads do", target="gfx942", seed=1),
        Case("stores have a counter of their own", target="gfx1100", seed=2),
        Case("loads, stores, LDS and scalar loads: a counter each", target="gfx1201", seed=3),
        Case("the first of CDNA with one file of registers", target="gfx90a", seed=4),
        Case("the newest of CDNA", target="gfx950", seed=5),
        Case("gfx12's counters; the older instruction is gone", target="gfx1250", seed=6),
    ),
    fresh=_fresh,
    trivial={
        "no waits": lambda family: {},
        "a text": lambda family: "s_waitcnt vmcnt(0)",
        "a number": lambda family: 0,
        "nothing": lambda family: None,
    },
    misconceptions=MISCONCEPTIONS,
    hints=(
        "Go down the listing with one queue for each counter. A load, a store or an access of LDS joins the end of its "
        "queue. At each line ask: which register does it use that something in a queue is still to fill? If there is "
        "none, the line needs no wait.",
        "The number in a wait is how many of the newest may stay under way: count what has joined the queue behind "
        "the access that you need. Which queues do stores join on each family? ds_write_b32 joins one as well. Scalar "
        "loads come back in any order, so of them all or none must be done.",
        "The lines that need something are 5, 10, 12, 14, 16, 19, 21 and 23; on gfx12 line 15 as well, because the "
        "address of out has a counter of its own there. Line 10 needs the oldest of four loads, so three may stay "
        "under way. Before line 16, loads 8 and 13 and, on gfx9, the store of line 15 are under way.",
    ),
    explanation=(
        "A wait names how many of the newest accesses may stay under way. Line 10 needs the oldest of four loads: "
        "vmcnt(3). Line 12 needs the third of them: vmcnt(1), and row 1's x stays on its way under the work on row 0. "
        "Line 16 needs that x, behind which a load and a store have been issued: on gfx9 both count in vmcnt, so "
        "vmcnt(2); on gfx11 stores count in vscnt and on gfx12 in storecnt, so 1. Line 19 in the same way. Lines 11, "
        "17 and 20 read in LDS what the same wave has just written: the LDS does a wave's accesses in order, so no "
        "wait is needed. Line 21 needs the read of line 17, behind which two accesses of LDS were issued: 2. Line 5 "
        "needs one of two scalar loads; these may come back in any order, so only 0 is safe. Line 18 needs y of row "
        "1, which was older than what line 12 has waited for. LLVM's pass SIInsertWaitcnts keeps the same queues."
    ),
)
