"""Answers to 12.bubble: a right simulator, and ones with one mistake each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from gpu_utils.analytic.schedules import Action, actions_of
from gpu_utils.exercises.u12_pipeline_schedules.validate_slips import PARTS, Chains, Need, Needs, Work
from gpu_utils.exercises.u12_pipeline_schedules.validate_slips import needs as all_needs

Step = tuple[Action, ...]

Cost = Sequence[Sequence[Any]]
"""Seconds of F, I and W by stage."""


def seconds_of(action: Action, cost: Cost) -> Any:
    forward, gradient, weights = cost[action[1]]
    return {"F": forward, "I": gradient, "W": weights, "B": gradient + weights}[action[0]]


def together_of(step: Step, cost: Cost, together: Any) -> Any:
    total = sum(seconds_of(action, cost) for action in step)
    return together * total if len(step) > 1 else total


def one_after_the_other(step: Step, cost: Cost, together: Any) -> Any:
    return sum(seconds_of(action, cost) for action in step)


def longest_of_the_pair(step: Step, cost: Cost, together: Any) -> Any:
    return max(seconds_of(action, cost) for action in step)


def together_always(step: Step, cost: Cost, together: Any) -> Any:
    return together * sum(seconds_of(action, cost) for action in step)


def backward_is_the_input_alone(step: Step, cost: Cost, together: Any) -> Any:
    return together_of(tuple(("I" if kind == "B" else kind, s, m) for kind, s, m in step), cost, together)


def first_stage_of_all(step: Step, cost: Cost, together: Any) -> Any:
    """The costs of stage 0 for every stage."""
    return together_of(step, [cost[0]] * len(cost), together)


# --- when something has arrived ------------------------------------------------------------------------------------


def arrives(end: Any, source: int, rank: int, link: Any) -> Any:
    return end + link * (source != rank)


def at_once(end: Any, source: int, rank: int, link: Any) -> Any:
    return end


def always_by_link(end: Any, source: int, rank: int, link: Any) -> Any:
    return end + link


def link_for_each_hop(end: Any, source: int, rank: int, link: Any) -> Any:
    """The delay times the distance of the ranks' numbers."""
    return end + link * abs(source - rank)


# --- what is made of the times -------------------------------------------------------------------------------------


def last_end(times: list[list[tuple[Any, Any]]]) -> Any:
    return max(steps[-1][1] for steps in times if steps)


def end_of_the_last_rank(times: list[list[tuple[Any, Any]]]) -> Any:
    return times[-1][-1][1]


def end_of_the_first_rank(times: list[list[tuple[Any, Any]]]) -> Any:
    return times[0][-1][1]


def idle_of(steps: list[tuple[Any, Any]], seconds: Any) -> Any:
    return seconds - sum(end - start for start, end in steps)


def gaps(steps: list[tuple[Any, Any]], seconds: Any) -> Any:
    """Idle between steps alone."""
    return sum(after[0] - before[1] for before, after in pairwise(steps))


def until_the_end(steps: list[tuple[Any, Any]], seconds: Any) -> Any:
    """From the first step on: the wait for it is left out."""
    return gaps(steps, seconds) + seconds - steps[-1][1]


def until_its_own_end(steps: list[tuple[Any, Any]], seconds: Any) -> Any:
    return gaps(steps, seconds) + steps[0][0]


def share(idle: list[Any], seconds: Any) -> Any:
    return sum(idle) / (len(idle) * seconds)


def share_of_the_work(idle: list[Any], seconds: Any) -> Any:
    return sum(idle) / (len(idle) * seconds - sum(idle))


def share_of_one_rank(idle: list[Any], seconds: Any) -> Any:
    return sum(idle) / seconds


def share_of_the_worst(idle: list[Any], seconds: Any) -> Any:
    return max(idle) / seconds


def simulated(
    needs: Needs = all_needs,
    lasts: Callable[[Step, Cost, Any], Any] = together_of,
    arrives: Callable[[Any, int, int, Any], Any] = arrives,
    seconds: Callable[[list[list[tuple[Any, Any]]]], Any] = last_end,
    idle: Callable[[list[tuple[Any, Any]], Any], Any] = idle_of,
    share: Callable[[list[Any], Any], Any] = share,
    apart: bool = False,
    sender_waits: bool = False,
    cost_by_rank: bool = False,
) -> Callable[..., dict[str, Any]]:
    """bubble, as it should be, or with a part replaced by a wrong one.

    apart         the actions of a pair start and end one after the other
    sender_waits  a rank that sends is busy until it has arrived
    cost_by_rank  costs are looked up by rank
    """

    def answer(
        order: Any, places: Sequence[int], chains: Chains, costs: Cost, link: Any, together: Any
    ) -> dict[str, Any]:
        work = Work([[actions_of(step) for step in steps] for steps in order], places, chains)
        if cost_by_rank:
            costs = [costs[rank] for rank in places]
        ended: dict[Need, Any] = {}
        times: list[list[tuple[Any, Any]]] = [[] for _ in order]
        free = [0] * len(order)

        def start(rank: int, step: Step) -> Any:
            wanted = [need for action in step for need in needs(work, *action)]
            if any(need not in ended for need in wanted):
                return None
            return max([free[rank], *(arrives(ended[need], places[need[1]], rank, link) for need in wanted)])

        def run(rank: int, step: Step, begun: Any) -> None:
            free[rank] = begun + lasts(step, costs, together)
            times[rank].append((begun, free[rank]))
            each = begun
            for kind, stage, micro in step:
                each += seconds_of((kind, stage, micro), costs)
                for part in PARTS[kind]:
                    ended[part, stage, micro] = each if apart else free[rank]
            if sender_waits and any(sends(work, action) for action in step):
                free[rank] += link

        moved = True
        while moved:
            moved = False
            for rank, steps in enumerate(work.order):
                while len(times[rank]) < len(steps) and (begun := start(rank, steps[len(times[rank])])) is not None:
                    run(rank, steps[len(times[rank])], begun)
                    moved = True
        total = seconds(times)
        idles = [idle(steps, total) for steps in times]
        return {"times": times, "seconds": total, "idle": idles, "bubble": share(idles, total)}

    return answer


def sends(work: Work, action: Action) -> bool:
    """Whether something of an action goes to another rank."""
    kind, stage, _ = action
    to = work.after.get(stage) if kind == "F" else work.before.get(stage) if kind in "BI" else None
    return to is not None and work.places[to] != work.places[stage]


def in_ticks(order: Any, places: Any, chains: Any, costs: Any, link: Any, together: Any) -> dict[str, Any]:
    """All ranks take a step at a time, and wait for the slowest of it."""
    work = Work([[actions_of(step) for step in steps] for steps in order], places, chains)
    done: set[Need] = set()
    times: list[list[tuple[Any, Any]]] = [[] for _ in order]
    now = 0
    while any(len(ended) < len(steps) for ended, steps in zip(times, work.order, strict=True)):
        able = [
            (rank, steps[len(times[rank])])
            for rank, steps in enumerate(work.order)
            if len(times[rank]) < len(steps)
            and all(need in done for action in steps[len(times[rank])] for need in work.needs(*action))
        ]
        for rank, step in able:
            times[rank].append((now, now + together_of(step, costs, together)))
            done |= {(part, stage, micro) for kind, stage, micro in step for part in PARTS[kind]}
        now = max(times[rank][-1][1] for rank, _ in able) + link
    total = last_end(times)
    idles = [idle_of(steps, total) for steps in times]
    return {"times": times, "seconds": total, "idle": idles, "bubble": share(idles, total)}
