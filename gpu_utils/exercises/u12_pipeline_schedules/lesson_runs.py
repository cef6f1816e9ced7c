"""What lesson and lab of unit 12 draw: runs of the known schedules, of a learner's own order, and of measured steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpu_utils.analytic.schedules import Costs, Run, arranged
from gpu_utils.errors import BadArgument
from gpu_utils.exercises.u12_pipeline_schedules.orders import schedule
from gpu_utils.exercises.u12_pipeline_schedules.simulator import alive, simulate


def scheduled(name: str, p: int, m: int, v: int = 2, **costs: Any) -> Run:
    """A known schedule, simulated: "GPipe", "1F1B", "interleaved 1F1B", "ZB-H1", "ZBV", "DualPipe" or "DualPipeV".

    p, m    ranks and micro-batches; v: stages on a rank if interleaved
    costs   of one stage, where they are not 1: F, I, W, together, link, scale (`Costs` of gpu_utils.analytic.schedules)

    Errors: UnknownName for a name; BadArgument where the schedule does not exist for p and m.

    >>> run = scheduled("1F1B", p=4, m=12, I=1.5)
    >>> run.seconds, run.idle[0], run.memory
    (52.5, 10.5, (4, 3, 2, 1))
    """
    return simulate(schedule(name, p, m, v), Costs(**costs))


def simulated(order: Any, m: int, layout: str = "line", v: int = 1, **costs: Any) -> Run:
    """An order of one's own, simulated.

    order   for each rank the list of its steps; m: micro-batches; layout: "line" (stage s on rank s % p, v stages on
            each), "V" or "two ways"; costs: as for `scheduled`

    Errors: BadArgument with the first fault, where the order cannot run.

    >>> simulated([[("F", 0, 0), ("B", 0, 0)]], m=1).seconds
    3.0
    """
    return simulate(arranged(order, _ranks(order), m, layout, v), Costs(**costs))


def timed(order: Any, spans: Sequence[Sequence[tuple[float, float]]], m: int, layout: str = "line", v: int = 1) -> Run:
    """An order with times from elsewhere, measured or from a simulator of one's own.

    spans   for each rank the (start, end) of each of its steps; the rest as for `simulated`

    Errors: BadArgument where a rank has not as many spans as steps.

    >>> timed([[("F", 0, 0), ("B", 0, 0)]], [[(0.0, 1.5), (1.5, 3.0)]], m=1).busy
    (3.0,)
    """
    own = arranged(order, _ranks(order), m, layout, v)
    steps, found = [len(one) for one in own.order], [len(one) for one in spans]
    if steps != found:
        raise BadArgument(f"there are {found} spans by rank; expected {steps}, one (start, end) for each step")
    return Run(own, tuple(tuple((start, end) for start, end in one) for one in spans), alive(own))


def _ranks(order: Any) -> int:
    return len(order) if isinstance(order, list | tuple) else 0
