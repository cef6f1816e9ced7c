"""Answers to 12.validate: a right one, and ones with one mistake each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from gpu_utils.analytic.schedules import Action, actions_of

Order = list[list[tuple[Action, ...]]]
"""By rank its steps, each as the actions that run together: one, or a pair."""

Chains = Sequence[Sequence[int]]
Found = tuple[str, list[tuple[int, int]]] | None
Need = tuple[str, int, int]
"""A part of an action, "F", "I" or "W", of a stage and a micro-batch."""

PARTS = {"F": "F", "B": "IW", "I": "I", "W": "W"}
"""What an action does: a full backward is the gradient of the input and those of the weights."""


@dataclass
class Work:
    """What is to be done, and what each action needs."""

    order: Order
    places: Sequence[int]
    chains: Chains
    micros: Chains = ()

    def __post_init__(self) -> None:
        both = zip(self.chains, self.micros, strict=False)
        self.pairs = {(stage, micro) for chain, micros in both for stage in chain for micro in micros}
        self.before = {two: one for chain in self.chains for one, two in pairwise(chain)}
        self.after = {one: two for two, one in self.before.items()}
        self.at = {
            (part, stage, micro): (rank, number)
            for rank, steps in enumerate(self.order)
            for number, step in enumerate(steps)
            for kind, stage, micro in step
            for part in PARTS[kind]
        }

    def needs(self, kind: str, stage: int, micro: int) -> Iterator[Need]:
        if kind == "F" and stage in self.before:
            yield ("F", self.before[stage], micro)
        if kind in "BI":
            yield ("F", stage, micro)
            if stage in self.after:
                yield ("I", self.after[stage], micro)
        if kind == "W":
            yield ("I", stage, micro)


Needs = Callable[[Work, str, int, int], Iterator[Need]]


def needs(work: Work, kind: str, stage: int, micro: int) -> Iterator[Need]:
    return work.needs(kind, stage, micro)


def own_forward_only(work: Work, kind: str, stage: int, micro: int) -> Iterator[Need]:
    """A backward that does not wait for the gradient."""
    return (need for need in work.needs(kind, stage, micro) if not (kind in "BI" and need[0] == "I"))


def gradient_only(work: Work, kind: str, stage: int, micro: int) -> Iterator[Need]:
    """A backward that does not look for its own forward."""
    return (need for need in work.needs(kind, stage, micro) if not (kind in "BI" and need[0] == "F"))


def on_this_rank_only(work: Work, kind: str, stage: int, micro: int) -> Iterator[Need]:
    return (need for need in work.needs(kind, stage, micro) if work.places[need[1]] == work.places[stage])


def weights_at_any_time(work: Work, kind: str, stage: int, micro: int) -> Iterator[Need]:
    return iter(()) if kind == "W" else work.needs(kind, stage, micro)


def whole_backward_of_the_next(work: Work, kind: str, stage: int, micro: int) -> Iterator[Need]:
    """The gradient is taken to leave when the next stage has done its weights too."""
    for need in work.needs(kind, stage, micro):
        yield ("W", *need[1:]) if kind in "BI" and need[0] == "I" else need


def neighbours_by_number(work: Work, kind: str, stage: int, micro: int) -> Iterator[Need]:
    """The stage before is taken to be stage - 1, whatever the chains are."""
    last = len(work.places) - 1
    if kind == "F" and stage > 0:
        yield ("F", stage - 1, micro)
    if kind in "BI":
        yield ("F", stage, micro)
        if stage < last:
            yield ("I", stage + 1, micro)
    if kind == "W":
        yield ("I", stage, micro)


# --- who is stuck ---------------------------------------------------------------------------------------------------


def ring(work: Work, at: list[int], waits: Callable[[int], Need], stuck: list[int]) -> list[tuple[int, int]]:
    path = [stuck[0]]
    while True:
        rank = work.at[waits(path[-1])][0]
        if rank in path:
            return [(one, at[one]) for one in path[path.index(rank) :]]
        path.append(rank)


def first_stuck(work: Work, at: list[int], waits: Callable[[int], Need], stuck: list[int]) -> list[tuple[int, int]]:
    return [(stuck[0], at[stuck[0]])]


def all_stuck(work: Work, at: list[int], waits: Callable[[int], Need], stuck: list[int]) -> list[tuple[int, int]]:
    return [(rank, at[rank]) for rank in stuck]


def way_into_the_ring(
    work: Work, at: list[int], waits: Callable[[int], Need], stuck: list[int]
) -> list[tuple[int, int]]:
    path = [stuck[0]]
    while (rank := work.at[waits(path[-1])][0]) not in path:
        path.append(rank)
    return [(one, at[one]) for one in path]


def awaited_steps(work: Work, at: list[int], waits: Callable[[int], Need], stuck: list[int]) -> list[tuple[int, int]]:
    """The steps that are waited for, in place of those that wait."""
    return [work.at[waits(rank)] for rank, _ in ring(work, at, waits, stuck)]


def against_the_waiting(
    work: Work, at: list[int], waits: Callable[[int], Need], stuck: list[int]
) -> list[tuple[int, int]]:
    return ring(work, at, waits, stuck)[::-1]


def sorted_ring(work: Work, at: list[int], waits: Callable[[int], Need], stuck: list[int]) -> list[tuple[int, int]]:
    return sorted(ring(work, at, waits, stuck))


def executed(work: Work, needs: Needs, in_turn: bool, once: bool) -> tuple[list[int], set[Need]]:
    """How far each rank gets, and what is done by then. in_turn: the actions of a pair run one after the other.
    once: each rank is visited a single time."""
    at, done = [0] * len(work.order), set[Need]()

    def ready(step: tuple[Action, ...]) -> bool:
        seen = set(done)
        for kind, stage, micro in step:
            if not all(need in seen for need in needs(work, kind, stage, micro)):
                return False
            if in_turn:
                seen |= {(part, stage, micro) for part in PARTS[kind]}
        return True

    moved = True
    while moved:
        moved = False
        for rank, steps in enumerate(work.order):
            while at[rank] < len(steps) and ready(steps[at[rank]]):
                done |= {(part, stage, micro) for kind, stage, micro in steps[at[rank]] for part in PARTS[kind]}
                at[rank] += 1
                moved = not once
    return at, done


# --- memory ---------------------------------------------------------------------------------------------------------


def held_after(steps: Sequence[tuple[Action, ...]], freed: str = "BW", after_the_step: bool = False) -> list[int]:
    """Micro-batches of stages that are alive during each step; or when it is over."""
    alive, found = 0, []
    for step in steps:
        alive += sum(kind == "F" for kind, _, _ in step)
        during = alive
        alive -= sum(kind in freed for kind, _, _ in step)
        found.append(alive if after_the_step else during)
    return found


def of_one_stage(steps: Sequence[tuple[Action, ...]]) -> list[int]:
    """The first stage that the rank runs, and no other."""
    first = steps[0][0][1] if steps else 0
    return held_after([tuple(action for action in step if action[1] == first) for step in steps])


# --- the whole ------------------------------------------------------------------------------------------------------


def stray(work: Work, rank: int, stage: int, micro: int) -> bool:
    return (stage, micro) not in work.pairs or work.places[stage] != rank


def only_the_rank(work: Work, rank: int, stage: int, micro: int) -> bool:
    """Any stage may have any micro-batch of the step."""
    micros = {micro for own in work.micros for micro in own}
    return not 0 <= stage < len(work.places) or micro not in micros or work.places[stage] != rank


def anywhere(work: Work, rank: int, stage: int, micro: int) -> bool:
    return (stage, micro) not in work.pairs


def validated(
    needs: Needs = needs,
    stray: Callable[[Work, int, int, int], bool] = stray,
    parts: dict[str, str] = PARTS,
    needed: str = "FIW",
    twice: bool = True,
    missing: bool = True,
    end: int = 0,
    named: Callable[..., list[tuple[int, int]]] = ring,
    in_turn: bool = False,
    once: bool = False,
    held: Callable[[Sequence[tuple[Action, ...]]], list[int]] = held_after,
    room: int = 0,
    memory_first: bool = False,
) -> Callable[..., Found]:
    """validate, as it should be, or with a part replaced by a wrong one."""

    def over(order: Order, limit: int) -> Found:
        for rank, steps in enumerate(order):
            for number, alive in enumerate(held(steps)):
                if alive > limit + room:
                    return "memory", [(rank, number)]
        return None

    def answer(order: Any, places: Sequence[int], chains: Chains, micros: Chains, limit: int) -> Found:
        work = Work([[actions_of(step) for step in steps] for steps in order], places, chains, micros)
        seen: set[tuple[str, int, int]] = set()
        for rank, steps in enumerate(work.order):
            for number, step in enumerate(steps):
                for kind, stage, micro in step:
                    if stray(work, rank, stage, micro):
                        return "stray", [(rank, number)]
                    did = {(part, stage, micro) for part in parts[kind]}
                    if twice and did & seen:
                        return "twice", [(rank, number)]
                    seen |= did
        whole = {(part, stage, micro) for kind, stage, micro in seen for part in PARTS.get(kind, kind)}
        for rank, steps in enumerate(work.order if missing else ()):
            if any(places[s] == rank and (part, s, m) not in whole for s, m in work.pairs for part in needed):
                return "missing", [(rank, len(steps) + end)]
        if memory_first and (found := over(work.order, limit)):
            return found
        at, done = executed(work, needs, in_turn, once)
        stuck = [rank for rank, steps in enumerate(work.order) if at[rank] < len(steps)]

        def waits(rank: int) -> Need:
            step = work.order[rank][at[rank]]
            every = [need for action in step for need in needs(work, *action) if need not in done]
            return next((need for need in every if need in work.at), ("F", *step[0][1:]))

        if stuck:
            return "deadlock", named(work, at, waits, stuck)
        return over(work.order, limit)

    return answer


def never_anything(order: Any, places: Sequence[int], chains: Chains, micros: Chains, limit: int) -> Found:
    return None
