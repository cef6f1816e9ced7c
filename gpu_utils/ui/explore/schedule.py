"""Two pipeline schedules under each other on one scale of time, with ranks, micro-batches and costs to move."""

from __future__ import annotations

from typing import Any

from gpu_utils.analytic.schedules import Costs, Run
from gpu_utils.errors import BadArgument
from gpu_utils.exercises.u12_pipeline_schedules.orders import WRITERS, schedule
from gpu_utils.exercises.u12_pipeline_schedules.simulator import simulate
from gpu_utils.ui.explore.drawing import Picture
from gpu_utils.ui.explore.widget import Explorer, choice, slider
from gpu_utils.ui.schedule_figure import schedule_figure

RANKS, MICROS, PART, LINK, TOGETHER = (2, 8), (2, 24), (20, 200), (0, 200), (50, 100)
"""Limits of the sliders: ranks, micro-batches, and the rest in percent: I, W and link of F, F&B of F + B."""


def run_of(name: str, p: int, m: int, I: int, W: int, link: int, together: int) -> Run:  # noqa: E741 - as Costs
    """A schedule as it runs. A rank has 1/p of the model's layers, whose forward takes 1, in each schedule.

    Where it has them as two stages, each takes half as long.

    >>> run_of("1F1B", 4, 8, 100, 100, 0, 100).seconds, run_of("interleaved 1F1B", 4, 8, 100, 100, 0, 100).seconds
    (33.0, 28.5)
    """
    own = schedule(name, p, m)
    part = p * len(own.chains) / len(own.places)
    costs = Costs(part, part * I / 100, part * W / 100, together / 100, link / 100)
    return simulate(own, costs)


def draw(first: str, second: str, p: int, m: int, I: int, W: int, link: int, together: int) -> Picture:  # noqa: E741
    """Both runs; p and m: ranks and micro-batches; I, W, link: percent of F; together: F&B in percent of F + B."""
    runs = {name: run_of(name, p, m, I, W, link, together) for name in (first, second)}
    return schedule_figure(runs, "F", spoken=True)


def explorer(
    what: str = "1F1B",
    *,
    second: str = "ZB-H1",
    p: int = 4,
    m: int = 8,
    I: int = 100,  # noqa: E741 - as Costs
    W: int = 100,
    link: int = 0,
    together: int = 100,
) -> Any:
    """Two schedules of "GPipe", "1F1B", "interleaved 1F1B", "ZB-H1", "ZBV", "DualPipe" and "DualPipeV".

    what, second  their names; p, m: ranks and micro-batches; I, W, link: percent of F; together: F&B, percent of F + B

    Errors: UnknownName for a name; BadArgument for a value beyond its slider, or where no such schedule is of p and m.
    """
    limits = {"p": (p, RANKS), "m": (m, MICROS), "I": (I, PART), "W": (W, PART), "link": (link, LINK)}
    for name, (value, (low, high)) in {**limits, "together": (together, TOGETHER)}.items():
        if not low <= value <= high:
            raise BadArgument(f"{name} is {value}; expected {low} to {high}")
    return Explorer(
        draw,
        {
            "first": choice("schedule", list(WRITERS), what),
            "second": choice("schedule below", list(WRITERS), second),
            "p": slider("ranks", p, *RANKS),
            "m": slider("micro-batches", m, *MICROS),
            "I": slider("I, % of F", I, *PART, 10),
            "W": slider("W, % of F", W, *PART, 10),
            "link": slider("link, % of F", link, *LINK, 10),
            "together": slider("F&B, % of F+B", together, *TOGETHER, 5),
        },
    )
