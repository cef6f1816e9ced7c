"""What is wrong with an order: actions missing, done twice or elsewhere, and steps that wait for ever."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpu_utils.analytic.schedules import Action, Schedule, Step, actions_of, spelled

Place = tuple[int, int]
"""A rank, and the number of a step in its list."""


@dataclass(frozen=True)
class Fault:
    """What is wrong where.

    rank, step  of the broken step; step is None where an action is missing
    kind        "unknown": no such stage or micro-batch; "rank": on another rank than its stage; "pair": two that are no
                F and B; "twice"; "split": B beside I or W of the same; "missing"; "order": needs a later step of its
                own rank; "deadlock": ranks wait for each other
    sentence    the same for a reader
    """

    rank: int
    step: int | None
    kind: str
    sentence: str


def faults(schedule: Schedule) -> list[Fault]:
    """All that is wrong; [] for an order that can run. What says most comes first: what is done, then what is not
    done, then who waits for ever, for which the rest is a cause.

    >>> from gpu_utils.analytic.schedules import arranged
    >>> own = arranged([[("B", 0, 0), ("F", 0, 0)]], p=1, m=1)
    >>> print(faults(own)[0].sentence)
    step 0 of rank 0, B(stage 0, micro 0), needs F(stage 0, micro 0), which is step 1 of the same rank
    """
    places = {
        action: (rank, at)
        for rank, steps in enumerate(schedule.order)
        for at, step in enumerate(steps)
        for action in actions_of(step)
    }
    found = list(_done_wrong(schedule, places)) + list(_not_done(schedule, places))
    return found or list(_waiting(schedule, places))


def _done_wrong(schedule: Schedule, places: dict[Action, Place]) -> Iterator[Fault]:
    micros = {stage: set(own) for chain, own in zip(schedule.chains, schedule.micros, strict=True) for stage in chain}
    seen: dict[Action, Place] = {}
    for rank, steps in enumerate(schedule.order):
        for at, step in enumerate(steps):
            actions = actions_of(step)
            if len(actions) > 1 and [kind for kind, _, _ in actions] not in (["F", "B"], ["B", "F"]):
                yield _fault(rank, at, step, "pair", "pairs what cannot run together: expected one F and one B")
            for action in actions:
                kind, stage, micro = action
                if stage not in micros:
                    yield _fault(rank, at, step, "unknown", f"names a stage that is not there: there are {len(micros)}")
                elif micro not in micros[stage]:
                    yield _fault(rank, at, step, "unknown", "is no micro-batch of that stage")
                elif schedule.places[stage] != rank:
                    yield _fault(
                        rank, at, step, "rank", f"is not this rank's: its stage is on {schedule.places[stage]}"
                    )
                elif action in seen:
                    yield _fault(rank, at, step, "twice", f"was done already, in step {seen[action][1]}")
                elif kind in "IW" and ("B", stage, micro) in places:
                    yield _fault(rank, at, step, "split", "stands beside B of the same, which is I and W in one")
                seen.setdefault(action, (rank, at))


def _not_done(schedule: Schedule, places: dict[Action, Place]) -> Iterator[Fault]:
    for chain, micros in zip(schedule.chains, schedule.micros, strict=True):
        for stage in chain:
            for micro in micros:
                halves = {kind for kind in "IW" if (kind, stage, micro) in places}
                backward = ["B"] if not halves else ["I", "W"]
                for kind in ["F", *backward]:
                    if (kind, stage, micro) not in places and not (kind in "IW" and ("B", stage, micro) in places):
                        rank = schedule.places[stage]
                        sentence = f"{spelled((kind, stage, micro))} is missing from rank {rank}"
                        yield Fault(rank, None, "missing", sentence)


def _waiting(schedule: Schedule, places: dict[Action, Place]) -> Iterator[Fault]:
    """Runs without a clock until nothing moves; then says for what each rank waits."""
    done: set[Action] = set()
    at = [0] * len(schedule.order)
    moved = True
    while moved:
        moved = False
        for rank, steps in enumerate(schedule.order):
            while at[rank] < len(steps) and next(_lacking(schedule, steps[at[rank]], done), None) is None:
                done.update(actions_of(steps[at[rank]]))
                at[rank] += 1
                moved = True
    stuck = [rank for rank, steps in enumerate(schedule.order) if at[rank] < len(steps)]
    waits = []
    for rank in stuck:
        step = schedule.order[rank][at[rank]]
        kinds, stage, micro = next(_lacking(schedule, step, done))
        needed = next((kind, stage, micro) for kind in kinds if (kind, stage, micro) in places)
        there, later = places[needed]
        needs = f"needs {spelled(needed)}, which is"
        if there == rank:
            part = "part of the same step" if later == at[rank] else f"step {later} of the same rank"
            waits.append(_fault(rank, at[rank], step, "order", f"{needs} {part}"))
        else:
            blocked = spelled(schedule.order[there][at[there]])
            why = f"{needs} step {later} of rank {there}, and that waits too, at its step {at[there]}, {blocked}"
            waits.append(_fault(rank, at[rank], step, "deadlock", why))
    yield from sorted(waits, key=lambda fault: fault.kind != "order")


def _lacking(schedule: Schedule, step: Step, done: set[Action]) -> Iterator[tuple[tuple[str, ...], int, int]]:
    """What a step needs and nobody has done."""
    for action in actions_of(step):
        for kinds, stage, micro in schedule.needs(action):
            if not any((kind, stage, micro) in done for kind in kinds):
                yield kinds, stage, micro


def _fault(rank: int, at: int, step: Step, kind: str, why: str) -> Fault:
    return Fault(rank, at, kind, f"step {at} of rank {rank}, {spelled(step)}, {why}")
