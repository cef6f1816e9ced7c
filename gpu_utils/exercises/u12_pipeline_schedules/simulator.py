"""Runs an order on paper: when each step of each rank starts and ends, and how many activations are alive."""

from __future__ import annotations

from gpu_utils.analytic.schedules import Action, Costs, Run, Schedule, actions_of
from gpu_utils.errors import BadArgument
from gpu_utils.exercises.u12_pipeline_schedules.checker import faults


def simulate(schedule: Schedule, costs: Costs | None = None) -> Run:
    """The run of a schedule whose order is valid.

    A step starts when the rank's last step has ended and what it needs is there: of another rank, `costs.link` after
    it ended. Both actions of a pair start and end together. Costs may be Fractions or whole numbers: then so are the
    times, and exact.

    Raises BadArgument with the sentence of the first fault where the order cannot run.

    >>> from gpu_utils.analytic.schedules import arranged
    >>> order = [[("F", 0, 0), ("B", 0, 0)], [("F", 1, 0), ("B", 1, 0)]]
    >>> run = simulate(arranged(order, p=2, m=1), Costs(link=0.5))
    >>> run.spans[0], run.seconds, run.idle, run.memory
    (((0, 1.0), (5.0, 7.0)), 7.0, (4.0, 4.0), (1, 1))
    """
    if broken := faults(schedule):
        raise BadArgument(broken[0].sentence)
    costs = costs or Costs()
    ended: dict[Action, float] = {}
    spans: list[list[tuple[float, float]]] = [[] for _ in schedule.order]
    needs = {
        action: [(kinds, stage, micro) for kinds, stage, micro in schedule.needs(action)]
        for steps in schedule.order
        for step in steps
        for action in actions_of(step)
    }

    def there(action: Action, rank: int) -> float | None:
        """When all that an action needs is on its rank; None if not yet known."""
        last: float = 0
        for kinds, stage, micro in needs[action]:
            end = next((ended[kind, stage, micro] for kind in kinds if (kind, stage, micro) in ended), None)
            if end is None:
                return None
            last = max(last, end + (costs.link if schedule.places[stage] != rank else 0))
        return last

    moved = True
    while moved:
        moved = False
        for rank, steps in enumerate(schedule.order):
            own = spans[rank]
            while len(own) < len(steps):
                step = steps[len(own)]
                times = [there(action, rank) for action in actions_of(step)]
                if None in times:
                    break
                start = max([own[-1][1] if own else 0, *(time for time in times if time is not None)])
                end = start + costs.of(step)
                own.append((start, end))
                ended.update((action, end) for action in actions_of(step))
                moved = True
    return Run(schedule, tuple(map(tuple, spans)), alive(schedule))


def alive(schedule: Schedule) -> tuple[int, ...]:
    """For each rank, the most activations alive at once; in a pair, F starts before the other ends.

    >>> from gpu_utils.analytic.schedules import arranged
    >>> alive(arranged([[("F", 0, 0), ("I", 0, 0), ("F", 0, 1), ("W", 0, 0)]], p=1, m=2))
    (2,)
    """
    peaks = []
    for steps in schedule.order:
        now = peak = 0
        for step in steps:
            kinds = [kind for kind, _, _ in actions_of(step)]
            now += kinds.count("F")
            peak = max(peak, now)
            now -= kinds.count("B") + kinds.count("W")
        peaks.append(peak)
    return tuple(peaks)
