"""12.zero_bubble with one thing wrong each: what is put off and until when, on one skeleton."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpu_utils.exercises.u12_pipeline_schedules.orders import schedule

Order = list[list[tuple[str, int, int]]]


def reference(p: int, m: int) -> Order:
    """ZB-H1."""
    return [list(steps) for steps in schedule("ZB-H1", p, m).order]  # type: ignore[arg-type]


def putting_off(
    owed: Callable[[int, int], int] = lambda p, rank: rank,
    warm: Callable[[int, int], int] = lambda p, rank: p - 1 - rank,
    in_the_end: bool = True,
) -> Callable[[int, int], Order]:
    """1F1B with I for B.

    owed        p, rank -> W that a rank leaves for later
    warm        p, rank -> forwards before the first I
    in_the_end  whether W is done between the last I, too
    """

    def answer(p: int, m: int) -> Order:
        order = []
        for rank in range(p):
            first = min(warm(p, rank), m)
            steps, done = [("F", rank, micro) for micro in range(first)], 0
            for micro in range(m):
                steady = micro < m - first
                if steady:
                    steps.append(("F", rank, first + micro))
                steps.append(("I", rank, micro))
                while micro + 1 - done > owed(p, rank) and (steady or in_the_end):
                    steps.append(("W", rank, done))
                    done += 1
            steps += [("W", rank, micro) for micro in range(done, m)]
            order.append(steps)
        return order

    return answer


def whole_backward(p: int, m: int) -> Any:
    return [list(steps) for steps in schedule("1F1B", p, m).order]


def all_forwards_first(p: int, m: int) -> Order:
    return [[*_each("F", rank, m), *_each("I", rank, m), *_each("W", rank, m)] for rank in range(p)]


def _each(kind: str, rank: int, m: int) -> list[tuple[str, int, int]]:
    return [(kind, rank, micro) for micro in range(m)]


def w_before_i(p: int, m: int) -> Order:
    """Each W stands before its I."""
    order = []
    for steps in reference(p, m):
        at = {step: number for number, step in enumerate(steps)}
        for kind, rank, micro in list(steps):
            if kind == "I":
                one, other = at["I", rank, micro], at["W", rank, micro]
                steps[one], steps[other] = ("W", rank, micro), ("I", rank, micro)
        order.append(steps)
    return order


def forgets_what_is_left(p: int, m: int) -> Order:
    """What was put off is never done."""
    order = []
    for rank, steps in enumerate(reference(p, m)):
        last = max(number for number, step in enumerate(steps) if step[0] == "I")
        order.append(steps[: last + 1] if rank else steps)
    return order
