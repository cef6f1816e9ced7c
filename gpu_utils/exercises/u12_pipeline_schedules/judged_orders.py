"""What orders are judged by: their form, whether they can run, how much is alive, how long ranks are idle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gpu_utils.analytic.schedules import Costs, Schedule, actions_of, arranged
from gpu_utils.errors import BadArgument
from gpu_utils.exercises.u12_pipeline_schedules.checker import Fault, faults
from gpu_utils.exercises.u12_pipeline_schedules.simulator import alive, simulate
from gpu_utils.grading.compare import Difference
from gpu_utils.grading.exercise import Case, Inputs

Look = Callable[[Schedule], Difference | None]

TRIVIAL: dict[str, Callable[[int, int], Any]] = {
    "zeros": lambda p, m: [[] for _ in range(p)],
    "ones": lambda p, m: [[("F", rank, 1)] for rank in range(p)],
    "nan": lambda p, m: float("nan"),
    "the input": lambda p, m: (p, m),
}


def sizes(case: Case, generator: Any) -> Inputs:
    """What an order is asked for: ranks and micro-batches."""
    return {"p": case["p"], "m": case["m"]}


def judged(value: Any, p: int, m: int, layout: str, looks: Sequence[Look]) -> Difference | None:
    """What is first wrong with an order: its form, what cannot run, then what each look finds; None for nothing."""
    try:
        own = arranged(value, p, m, layout)
    except BadArgument as problem:
        return Difference("form", str(problem))
    if broken := faults(own):
        first = broken[0]
        more = f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""
        return Difference(f"{first.kind}:{_which(own, first)}", first.sentence + more)
    return next((found for look in looks if (found := look(own))), None)


def _which(own: Schedule, fault: Fault) -> str:
    """The kinds of the broken step, or of the action that is missing; of an unknown one the chain of its stage, too."""
    if fault.step is None:
        return fault.sentence[0]
    actions = actions_of(own.order[fault.rank][fault.step])
    chains = [number for _, stage, _ in actions for number, chain in enumerate(own.chains) if stage in chain]
    return "".join(kind for kind, _, _ in actions) + (f":{chains}" if fault.kind == "unknown" else "")


def alive_at_most(most: int, why: str) -> Look:
    """No rank has more activations alive at once."""

    def look(own: Schedule) -> Difference | None:
        peaks = alive(own)
        rank = max(range(len(peaks)), key=lambda rank: (peaks[rank], -rank))
        if peaks[rank] <= most:
            return None
        owed = _owed_at_peak(own, rank)
        waits = f", {owed} of them only for their W" if owed else ""
        detail = f"rank {rank} has {peaks[rank]} activations alive at once{waits}; expected at most {most}, {why}"
        return Difference(f"memory:{list(peaks)}:{owed}", detail)

    return look


def _owed_at_peak(own: Schedule, rank: int) -> int:
    """When most are alive on a rank: how many of them have their I behind them, and their W before them."""
    now = owed = peak = then = 0
    for step in own.order[rank]:
        kinds = [kind for kind, _, _ in actions_of(step)]
        now += kinds.count("F")
        if now > peak:
            peak, then = now, owed
        owed += kinds.count("I") - kinds.count("W")
        now -= kinds.count("B") + kinds.count("W")
    return then


def idle_at_most(costs: Sequence[Costs], formula: Callable[[Costs], float]) -> Look:
    """With each of these costs, no rank is idle for longer than a formula says."""

    def look(own: Schedule) -> Difference | None:
        idle = [simulate(own, one).idle for one in costs]
        kind = "idle:" + ", ".join(f"{max(each):g}" for each in idle)
        for one, each in zip(costs, idle, strict=True):
            most, allowed = max(each), formula(one)
            if most > allowed + 1e-9:
                pairs = f", F&B = {one.together * (one.F + one.B):g}" if len(own.chains) > 1 else ""
                detail = (
                    f"with F = {one.F:g}, I = {one.I:g}, W = {one.W:g}{pairs}, rank {each.index(most)} is idle for "
                    f"{most:g}; expected at most {allowed:g}"
                )
                return Difference(kind, detail)
        return None

    return look
