"""07.barriers: as few barriers as keep several waves apart in shared memory, in PTX and in AMDGCN."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import tolerance
from gpu_utils.errors import BarrierDeadlock, CompileFailed, MissedBarrier, Race, UnsupportedInstruction, W2WError
from gpu_utils.exercises.u07_ptx_and_amdgcn.barriers_listing import (
    MOST_THREADS,
    for_a_part,
    in_the_branch,
    kernel,
    listing,
    met,
    open_gaps,
    signalled,
)
from gpu_utils.exercises.u07_ptx_and_amdgcn.barriers_slips import MISCONCEPTIONS, barriers_of
from gpu_utils.exercises.u07_ptx_and_amdgcn.by_hand import AMD, NVIDIA
from gpu_utils.exercises.u07_ptx_and_amdgcn.judging import judged
from gpu_utils.exercises.u07_ptx_and_amdgcn.numbered import family_of
from gpu_utils.grading.compare import Difference
from gpu_utils.grading.exercise import Case, Exercise, Inputs
from gpu_utils.virtual.isa import Launch

_SANITIZERS = ("racecheck", "waitcheck", "synccheck")


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    return {"family": family_of(case["target"])}


def shares_reference(w: Tensor) -> Tensor:
    """Cumulative sums over the total, in float64."""
    return w.double().cumsum(0) / w.double().sum()


def fewest(threads: int) -> int:
    """Barriers that a wave must come to: two in each round, one more outside of the loop.

    Distances 1, 2, 4 and so on below the number of threads are a round each.

    >>> fewest(256), fewest(96)
    (17, 15)
    """
    return 2 * (threads - 1).bit_length() + 1


def _judge(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    family, target, threads = inputs["family"], case["target"], case["threads"]
    given = listing(family)
    if wrong := given.wrong_form(value):
        return wrong
    if family == "ptx" and (part := for_a_part(value)):
        detail = f"before line {part[0]} `{part[1][:60]}` does not hold the whole block; expected bar.sync and a number"
        return Difference(f"part of a block: {part[2]}", f"{detail} below 16, without a count of threads")
    text = kernel(family, given.filled(value), target)
    w = torch.rand(threads, generator=torch.Generator().manual_seed(threads)) + 0.5

    def arguments() -> tuple[list[Any], Tensor]:
        out = torch.full((threads,), torch.nan)
        return [w, out, threads], out

    found = judged(
        text, target, "shares", 1, threads, arguments, shares_reference(w), tolerance(torch.float32, k=threads),
        partial(_cost, threads), sanitize=_SANITIZERS, failing=partial(_failing, family, value),
    )  # fmt: skip
    inside = found is not None and not found.kind.startswith("assembler") and in_the_branch(family, value)
    return replace(found, kind="inside of the if") if found and inside else found


def _failing(family: str, value: dict[int, str], problem: W2WError) -> Difference | None:
    """What a sanitizer found, in the numbers of the listing."""
    if isinstance(problem, (CompileFailed, UnsupportedInstruction)):
        return Difference(f"assembler {problem}".rpartition("`")[0].rpartition("`")[2], str(problem))
    given, gaps = listing(family), open_gaps(family, value)
    apart = [f"{gap.first} and {gap.second}" for gap in gaps]
    if isinstance(problem, Race):
        report = problem.report
        first, second = (given.number(side.text) or 0 for side in (report.first, report.second))
        detail = (
            f"{given.quoted(second)} {report.second.does} {report.what}, which {given.quoted(first)} of another wave "
            f"{report.first.does}. "
        )
        if gaps:
            detail += "No barrier stands on the way that every wave comes to"
            detail += f". In all {len(gaps)} pairs of lines have none" * (len(gaps) > 1)
            detail += ". A wave jumps over the one inside of the `if`" * in_the_branch(family, value)
        else:
            detail += "A barrier stands between them, and the access was still under way when its wave came there"
        words = [one for text in value.values() for one in given.instructions(text)]
        other = next((word for word in ("bar.warp", "fence", "membar") if any(word in one for one in words)), "")
        return Difference(f"race:{apart} {other}".replace("membar", "fence"), detail)
    if isinstance(problem, MissedBarrier):
        where = ". Inside of the `if` not every thread comes by" * in_the_branch(family, value)
        return Difference(f"missed:{apart}", f"{problem}{where}")
    if isinstance(problem, BarrierDeadlock):
        return Difference(f"deadlock:{apart}", str(problem))
    return None


def _cost(threads: int, launch: Launch) -> Difference | None:
    signals, waits = signalled(launch)
    if signals != waits:
        detail = f"each wave signalled {signals:g} times and waited {waits:g} times; expected one wait for each signal"
        return Difference("signals", detail)
    found, least = met(launch), fewest(threads)
    if found <= least:
        return None
    detail = (
        f"no race, but each wave came to {found:g} barriers, expected {least} (two in a round and one more). Take out "
        "those behind which nothing has been touched since the barrier before"
    )
    return Difference(f"many:{found:g}", detail)


def _fresh(rng: random.Random) -> Case:
    threads = 32 * rng.randrange(3, MOST_THREADS // 32)
    return Case("a block of another size, a target drawn", target=rng.choice(NVIDIA + AMD), threads=threads)


EXERCISE = Exercise(
    id="07.barriers",
    title="Place the barriers",
    parameters=("family",),
    kind="host",
    inputs=_inputs,
    reference=lambda family: barriers_of(family),
    judge=_judge,
    dtype=lambda inputs: None,
    seconds=30.0,
    cases=(
        Case("eight warps", target="sm_80", threads=256),
        Case("four wavefronts of 64", target="gfx942", threads=256),
        Case("waves of 32 on AMD", target="gfx1100", threads=256),
        Case("a barrier of two instructions", target="gfx1201", threads=256),
        Case("the last wavefront is half empty, and n is no power of two", target="gfx90a", threads=96),
        Case("three warps", target="sm_90", threads=96),
        Case("the largest block", target="gfx950", threads=1024),
        Case("gfx1250: waves of 32", target="gfx1250", threads=160),
        Case("sm_89", target="sm_89", threads=128),
        Case("sm_100", target="sm_100", threads=64),
        Case("sm_120", target="sm_120", threads=224),
    ),
    fresh=_fresh,
    trivial={
        "no barriers": lambda family: {},
        "a text": lambda family: "bar.sync 0;",
        "a number": lambda family: 0,
        "nothing": lambda family: None,
    },
    misconceptions=MISCONCEPTIONS,
    hints=(
        "Write down every access of a[] in order: the write before the loop, the read and the write of a round, the "
        "read and the write of the next round, the read behind the loop. Which neighbours in this list are of "
        "different waves and touch the same place, one of them writing?",
        "All neighbours are: write then read (is it there yet?), read then write (has everybody read the old one?). So "
        "a round needs two barriers, which all threads must come to, and one more is needed outside of the loop. On "
        "AMD the LDS access before a barrier must be done when the wave comes to it: a wait.",
        "PTX: a barrier before lines 2, 11 and 12. AMDGCN: before lines 2, 13 and 14, those behind a write with a wait "
        "for LDS before the barrier (s_waitcnt lgkmcnt(0), on gfx12 s_wait_dscnt 0). gfx12 writes a barrier as "
        "s_barrier_signal -1 and s_barrier_wait -1.",
    ),
    explanation=(
        "A barrier keeps apart what touches one place from different waves. Going round the loop the accesses are "
        "write, read, write, read, write and so on, at last a read. Between any two neighbours a barrier must stand: "
        "behind a write, because the data must be there; behind a read, because the old value must still be there. "
        "That makes one before the loop and two in a round, or two in a round and one behind the loop. The barrier "
        "between the read and the write stands behind KEEP, because in front of it not every thread comes by. On AMD "
        "a barrier does not wait for the LDS: behind a write a wait for lgkmcnt (dscnt) to fall to 0 comes first. The "
        "read needs none of its own, because the addition has waited for it already. In PTX bar.sync also "
        "makes what came before it visible to the block."
    ),
)
