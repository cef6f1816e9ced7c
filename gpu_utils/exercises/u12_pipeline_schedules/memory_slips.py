"""Answers to 12.memory: a right one, and ones with one mistake each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from gpu_utils.analytic.schedules import Action, actions_of

Step = tuple[Action, ...]


@dataclass
class Sizes:
    """Bytes by stage."""

    alive: Sequence[int]
    left: Sequence[int]
    entry: Sequence[int]
    weights: Sequence[int]


Peak = Callable[[Sequence[Step], Sizes, Collection[int]], int]


def peak(
    steps: Sequence[Step],
    sizes: Sizes,
    again: Collection[int],
    rises: bool = True,
    entry_kept: bool = True,
    left: Callable[[Sizes, int], int] = lambda sizes, stage: sizes.left[stage],
    after_the_step: bool = False,
    first: bool = False,
) -> int:
    """Most bytes of activations during one of the steps. again: the stages that are computed again."""
    now = most = 0
    for step in steps:
        freed = 0
        for kind, stage, _ in step:
            if first:
                stage = min(stage for step in steps for _, stage, _ in step)
            whole = sizes.alive[stage]
            kept = (sizes.entry[stage] if entry_kept else 0) if stage in again else whole
            back = kept if stage in again and not rises else whole
            if kind == "F":
                now += kept
            if kind in "BI":
                now += back - kept
            freed += {
                "F": 0,
                "B": back,
                "I": back - left(sizes, stage),
                "W": left(sizes, stage),
            }[kind]
        if not after_the_step:
            most = max(most, now)
        now -= freed
        most = max(most, now)
    return most


def with_flags(**flags: Any) -> Peak:
    return lambda steps, sizes, again: peak(steps, sizes, again, **flags)


def all_micro_batches(steps: Sequence[Step], sizes: Sizes, again: Collection[int]) -> int:
    return sum(
        (sizes.entry if stage in again else sizes.alive)[stage]
        for step in steps
        for kind, stage, _ in step
        if kind == "F"
    )


def first_stage_only(steps: Sequence[Step], sizes: Sizes, again: Collection[int]) -> int:
    """A rank is taken to have one stage."""
    first = min(stage for step in steps for _, stage, _ in step)
    return peak([tuple(action for action in step if action[1] == first) for step in steps], sizes, again)


def stages_apart(steps: Sequence[Step], sizes: Sizes, again: Collection[int]) -> int:
    """The peak of each stage by itself, added up: they are not at the same time."""
    stages = {stage for step in steps for _, stage, _ in step}
    return sum(peak([tuple(a for a in step if a[1] == stage) for step in steps], sizes, again) for stage in stages)


def by_a_formula(ahead: Callable[[int, int, int], int]) -> Callable[..., Any]:
    """(ranks, rank, micro-batches) -> micro-batches alive, whatever the order is."""

    def bound(rank: int, ranks: int) -> Peak:
        def found(steps: Sequence[Step], sizes: Sizes, again: Collection[int]) -> int:
            stages = sorted({stage for step in steps for _, stage, _ in step})
            micros = {micro for step in steps for _, _, micro in step}
            each = sum((sizes.entry if stage in again else sizes.alive)[stage] for stage in stages)
            return ahead(ranks, rank, len(micros)) * each

        return found

    return bound


def always(peak: Peak) -> Callable[[int, int], Peak]:
    return lambda rank, ranks: peak


# --- which stages are computed again --------------------------------------------------------------------------------

Choose = Callable[[list[int], Callable[[Collection[int]], bool], Sizes], list[int] | None]
"""(stages of a rank, whether it fits with some of them again, bytes) -> the stages."""


def fewest(stages: list[int], fits: Callable[[Collection[int]], bool], sizes: Sizes) -> list[int] | None:
    for count in range(len(stages) + 1):
        for some in combinations(stages, count):
            if fits(some):
                return list(some)
    return None


def all_or_none(stages: list[int], fits: Callable[[Collection[int]], bool], sizes: Sizes) -> list[int] | None:
    return [] if fits([]) else stages if fits(stages) else None


def in_order(stages: list[int], fits: Callable[[Collection[int]], bool], sizes: Sizes) -> list[int] | None:
    return next((stages[:count] for count in range(len(stages) + 1) if fits(stages[:count])), None)


def largest_first(stages: list[int], fits: Callable[[Collection[int]], bool], sizes: Sizes) -> list[int] | None:
    """By what one micro-batch saves, however many are alive."""
    ranked = sorted(stages, key=lambda stage: sizes.entry[stage] - sizes.alive[stage])
    found = in_order(ranked, fits, sizes)
    return None if found is None else sorted(found)


def without_a_look_back(stages: list[int], fits: Callable[[Collection[int]], bool], sizes: Sizes) -> list[int] | None:
    """All stages of a rank that no choice makes fit."""
    found = fewest(stages, fits, sizes)
    return stages if found is None else found


def all_weights(sizes: Sizes, stages: list[int]) -> int:
    return sum(sizes.weights[stage] for stage in stages)


def measured(
    peak: Callable[[int, int], Peak] = always(peak),
    choose: Choose = fewest,
    fixed: Callable[[Sizes, list[int]], int] = all_weights,
    room: int = 0,
    everywhere: bool = False,
) -> Callable[..., dict[str, Any]]:
    """memory, as it should be, or with a part replaced by a wrong one."""

    def answer(
        order: Any,
        places: Sequence[int],
        alive: Sequence[int],
        left: Sequence[int],
        entry: Sequence[int],
        weights: Sequence[int],
        budget: int,
    ) -> dict[str, Any]:
        sizes = Sizes(alive, left, entry, weights)
        peaks, again = [], []
        helpless = False
        for rank, steps in enumerate(order):
            stages = [stage for stage, where in enumerate(places) if where == rank]
            there = fixed(sizes, stages)
            of_rank = peak(rank, len(order))
            steps = [actions_of(step) for step in steps]

            def total(some: Collection[int], steps: Any = steps, of_rank: Any = of_rank, there: int = there) -> int:
                return there + of_rank(steps, sizes, some)

            peaks.append(total(()))

            def fits(some: Collection[int], total: Callable[[Collection[int]], int] = total) -> bool:
                return total(some) <= budget - room

            found = choose(stages, fits, sizes)
            helpless |= found is None
            again += found or []
        if everywhere and again:
            again = list(range(len(places)))
        return {"peak": peaks, "recompute": None if helpless else sorted(again)}

    return answer
