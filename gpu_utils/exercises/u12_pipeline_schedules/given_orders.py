"""Orders that exercises hand to an answer: of every schedule, whole or with steps that are lost, doubled or moved."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from gpu_utils.analytic.schedules import Schedule
from gpu_utils.exercises.u12_pipeline_schedules.orders import schedule

NAMES = ("GPipe", "1F1B", "interleaved 1F1B", "ZB-H1", "ZBV", "DualPipe", "DualPipeV")

Change = Sequence[Any]
"""("lose", rank, at), ("double", rank, at, to), ("shift", rank, at, to), ("move", rank, at, other), ("be", rank, at,
step), ("add", rank, to, step): what is done with the step `at` of a rank."""


def size_of(name: str, rng: random.Random) -> tuple[int, int]:
    """Ranks and micro-batches for which a schedule exists, small.

    >>> size_of("DualPipe", random.Random(1))
    (2, 4)
    """
    if name.startswith("DualPipe"):
        p = rng.choice((2, 4)) if name == "DualPipe" else rng.choice((2, 3))
        return p, 2 * p + 2 * rng.randrange(2)
    p = rng.randrange(2, 5)
    return p, p * rng.randrange(1, 4) if name == "interleaved 1F1B" else rng.randrange(2, 3 * p)


def given(name: str, p: int, m: int, changes: Sequence[Change] = ()) -> dict[str, Any]:
    """The order, places, chains and micros of a schedule as lists; `changes` are made in turn.

    >>> given("1F1B", 1, 1, [("lose", 0, 1)])["order"]
    [[('F', 0, 0)]]
    """
    whole: Schedule = schedule(name, p, m)
    order: list[list[Any]] = [list(steps) for steps in whole.order]
    for what, rank, at, *rest in changes:
        steps = order[rank]
        if what == "add":
            steps.insert(at, rest[0])
        elif what == "be":
            steps[at] = rest[0]
        elif what == "double":
            steps.insert(rest[0], steps[at])
        else:
            step = steps.pop(at)
            if what == "shift":
                steps.insert(rest[0], step)
            elif what == "move":
                order[rest[0]].append(step)
    return {
        "order": order,
        "places": list(whole.places),
        "chains": [list(chain) for chain in whole.chains],
        "micros": [list(micros) for micros in whole.micros],
    }


def broken(rng: random.Random, name: str, p: int, m: int) -> list[Change]:
    """One or two changes that may break an order, or leave it whole."""
    lengths = [len(steps) for steps in schedule(name, p, m).order]
    if rng.random() < 0.2:
        rank = rng.randrange(p)
        at = rng.randrange(lengths[rank])
        return [
            rng.choice(
                [
                    ("lose", rank, at),
                    ("double", rank, at, rng.randrange(lengths[rank])),
                    ("move", rank, at, (rank + 1) % p),
                ]
            )
        ]
    changes: list[Change] = []
    for _ in range(rng.randrange(1, 3)):
        rank = rng.randrange(p)
        at = rng.randrange(lengths[rank])
        changes.append(("shift", rank, at, min(max(at + rng.choice((-3, -2, -1, 1, 2, 3)), 0), lengths[rank] - 1)))
    return changes
