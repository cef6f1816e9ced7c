"""12.dualpipe with one thing wrong each, on the skeleton of its eight phases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpu_utils.analytic.schedules import actions_of
from gpu_utils.exercises.u12_pipeline_schedules.orders import schedule

Order = list[list[Any]]


def reference(p: int, m: int) -> Order:
    """DualPipe of DeepSeek-V3."""
    return [list(steps) for steps in schedule("DualPipe", p, m).order]


def changed(change: Callable[[int, int, int, Any], list[Any]]) -> Callable[[int, int], Order]:
    """Each step of the right order becomes a list of steps: change(p, m, rank, step)."""

    def answer(p: int, m: int) -> Order:
        return [
            [new for step in steps for new in change(p, m, rank, step)]
            for rank, steps in enumerate(schedule("DualPipe", p, m).order)
        ]

    return answer


def _each_action(change: Callable[[int, int, str, int, int], tuple[str, int, int]]) -> Callable[[int, int], Order]:
    """Each action becomes another: change(p, m, kind, stage, micro)."""

    def one(p: int, m: int, rank: int, step: Any) -> list[Any]:
        new = tuple(change(p, m, *action) for action in actions_of(step))
        return [new if len(new) > 1 else new[0]]

    return changed(one)


apart = changed(lambda p, m, rank, step: list(actions_of(step)))
w_at_once = changed(lambda p, m, rank, step: [("B", *step[1:])] if step[0] == "I" else [] if step[0] == "W" else [step])
w_forgotten = changed(lambda p, m, rank, step: [] if step[0] == "W" else [step])
second_copy_same_way = _each_action(lambda p, m, kind, stage, micro: (kind, _turned(p, stage), micro))
second_copy_same_stages = _each_action(
    lambda p, m, kind, stage, micro: (kind, 2 * p - 1 - stage if stage >= p else stage, micro)
)
both_from_micro_0 = _each_action(lambda p, m, kind, stage, micro: (kind, stage, micro % (m // 2)))


def _turned(p: int, stage: int) -> int:
    """The second copy's stages in the first copy's direction."""
    return stage if stage < p else 3 * p - 1 - stage


def phases(
    near_everywhere_down: bool = False,
    warm: Callable[[int], int] = lambda away: 2 * away,
    both: Callable[[int, int], int] = lambda p, depth: depth,
    split_from: Callable[[int], int] = lambda depth: depth,
    whole_in_third: bool = False,
    in_fifth: bool = True,
    same_direction: bool = False,
) -> Callable[[int, int], Order]:
    """The eight phases of a rank; at the turning point the first pair runs together like all others.

    near_everywhere_down  the lower ranks begin with the first copy, too
    warm, both            rounds of the first two phases
    split_from            backwards of the sixth phase that are whole, before those in two
    whole_in_third        B in place of I and W in the third phase
    in_fifth              the forwards of the fifth phase are paired
    same_direction        the steady state pairs forward and backward of one copy
    """

    def answer(p: int, m: int) -> Order:
        order = []
        for rank in range(p):
            away, depth = abs(2 * rank - p + 1) // 2, min(rank, p - 1 - rank) + 1
            down, up = rank, 2 * p - 1 - rank
            near, far = (down, up) if rank < p // 2 or near_everywhere_down else (up, down)
            order.append(_rank(m, near, far, up, away, depth, both(p, depth)))
        return order

    def _rank(m: int, near: int, far: int, up: int, away: int, depth: int, second: int) -> list[Any]:
        steps: list[Any] = []
        count: dict[tuple[bool, int], int] = {}
        owed: list[tuple[int, int]] = []

        def take(kind: str, stage: int) -> tuple[str, int, int]:
            micro = count.get((kind == "F", stage), 0)
            count[kind == "F", stage] = micro + 1
            micro += m // 2 if stage == up else 0
            if kind == "I":
                owed.append((stage, micro))
            return kind, stage, micro

        def weights() -> None:
            if owed:
                steps.append(("W", *owed.pop(0)))

        def forwards_left(stage: int) -> bool:
            return count.get((True, stage), 0) < m // 2

        def pair(forward: int, backward: int, together: bool = True) -> None:
            actions = take("F", forward), take("B", backward)
            steps.extend([actions] if together else actions)

        for _ in range(warm(away)):
            steps.append(take("F", near))
        for _ in range(second):
            steps.extend([take("F", near), take("F", far)])
        for _ in range(away):
            steps.append(take("B" if whole_in_third else "I", far))
            weights()
            steps.append(take("F", far))
        while forwards_left(near) and forwards_left(far):
            one, other = (near, far) if same_direction else (far, near)
            pair(near, one)
            pair(far, other)
        while forwards_left(far):
            steps.append(take("B", far))
            pair(far, near, in_fifth)
        ends = 0
        while count.get((False, far), 0) < m // 2:
            for stage in (far, near):
                steps.append(take("B" if ends < split_from(depth) else "I", stage))
                ends += 1
        while count.get((False, near), 0) < m // 2:
            weights()
            steps.append(take("B" if split_from(depth) > 2 * depth else "I", near))
        while owed:
            weights()
        return steps

    return answer


def one_after_the_other(p: int, m: int) -> Order:
    """1F1B of the first copy, then 1F1B of the second."""
    down, up = schedule("1F1B", p, m // 2).order, list(reversed(schedule("1F1B", p, m // 2).order))
    return [
        [*down[rank], *((kind, p + stage, m // 2 + micro) for kind, stage, micro in map(_single, up[rank]))]
        for rank in range(p)
    ]


def in_turns(p: int, m: int) -> Order:
    """1F1B of both copies, a step of each in turn."""
    down, up = schedule("1F1B", p, m // 2).order, list(reversed(schedule("1F1B", p, m // 2).order))
    order: Order = []
    for rank in range(p):
        order.append([])
        for one, other in zip(down[rank], map(_single, up[rank]), strict=True):
            order[rank] += [one, (other[0], p + other[1], m // 2 + other[2])]
    return order


def _single(step: Any) -> tuple[str, int, int]:
    kind, stage, micro = step
    return kind, stage, micro
