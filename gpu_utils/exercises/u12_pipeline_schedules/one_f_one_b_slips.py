"""Answers to 12.one_f_one_b: a right one, and ones with one mistake each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Order = list[list[tuple[str, int, int]]]


def ordered(
    warm_up: Callable[[int, int], int] = lambda p, rank: p - 1 - rank,
    backward_first: bool = False,
    cool_down: bool = True,
    short_steps: bool = True,
    last_in_first_out: bool = False,
    action: Callable[[str, int, int], Any] = lambda kind, rank, micro: (kind, rank, micro),
) -> Callable[[int, int], Any]:
    """Warm-up forwards, then one forward and one backward in turn, then the backwards that are left."""

    def answer(p: int, m: int) -> Any:
        order: Any = []
        for rank in range(p):
            ahead = min(warm_up(p, rank), m) if short_steps else warm_up(p, rank)
            steps = [action("F", rank, micro) for micro in range(ahead)]
            waiting = list(range(ahead))
            ended = 0

            def backward(steps: list[Any] = steps, waiting: list[int] = waiting, rank: int = rank) -> None:
                micro = waiting.pop(-1 if last_in_first_out else 0)
                steps.append(action("B", rank, micro))

            for micro in range(ahead, m):
                if backward_first:
                    steps += [action("B", rank, ended), action("F", rank, micro)]
                    ended += 1
                    continue
                steps.append(action("F", rank, micro))
                waiting.append(micro)
                backward()
            if backward_first:
                steps += [action("B", rank, micro) for micro in range(ended, m)]
            while cool_down and waiting and not backward_first:
                backward()
            order.append(steps)
        return order

    return answer


right = ordered()


def by_micro_batches(p: int, m: int) -> Any:
    """A list for each micro-batch where one for each rank is asked for."""
    return [
        [("F", rank, micro) for rank in range(p)] + [("B", rank, micro) for rank in reversed(range(p))]
        for micro in range(m)
    ]


def one_list(p: int, m: int) -> Any:
    """The steps of all ranks behind each other."""
    return [step for steps in right(p, m) for step in steps]


def in_words(p: int, m: int) -> Any:
    """Steps as texts, as schedules are drawn: "F3"."""
    return [[f"{kind}{micro}" for kind, _, micro in steps] for steps in right(p, m)]
