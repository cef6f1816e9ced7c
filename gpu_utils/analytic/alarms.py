"""How often a test of two sets of runs raises an alarm, for shifts of the loss that are drawn into them.

Drawn are final losses: run i of one set is what its seed made of it. Run i of the other has the same seed and is the
same, plus what rounding has made of the pair; or it has a seed of its own. All parts are normal. The tests are
Student's, two-sided, of pairs and of two independent sets.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpu_utils.analytic.paired import t_quantile
from gpu_utils.errors import BadArgument


def alarm_rates(
    shifts: Sequence[float],
    *,
    seeds: float,
    within: float,
    runs: int = 5,
    error: float = 0.05,
    sets: int = 20_000,
) -> dict[str, list[float]]:
    """Share of drawn sets that raise an alarm: {"the same seeds, in pairs": one for each shift, "other seeds": ...}.

    shifts   of the mean, in the unit of the losses; 0 gives the false alarms
    seeds    standard deviation of a run's loss over seeds; within: of the difference within a pair
    runs     in each set; error: the rate of false alarms that both tests state; sets: how many are drawn

    Raises BadArgument for fewer than two runs.

    >>> rates = alarm_rates([0.0, 0.01], seeds=0.03, within=0.001)
    >>> {test: [round(share, 1) for share in row] for test, row in rates.items()}
    {'the same seeds, in pairs': [0.1, 1.0], 'other seeds': [0.0, 0.1]}
    """
    if runs < 2:
        raise BadArgument(f"{runs} runs have no spread; give two or more")
    rng = np.random.default_rng(9)
    one, third = rng.normal(0, seeds, (2, sets, runs))
    paired = one + rng.normal(0, within, (sets, runs))
    found: dict[str, list[float]] = {"the same seeds, in pairs": [], "other seeds": []}
    for shift in shifts:
        gap = paired + shift - one
        t = gap.mean(1) / (gap.std(1, ddof=1) / np.sqrt(runs))
        found["the same seeds, in pairs"].append(_beyond(t, error, runs - 1))
        apart = np.sqrt((one.var(1, ddof=1) + third.var(1, ddof=1)) / runs)
        found["other seeds"].append(_beyond((third.mean(1) + shift - one.mean(1)) / apart, error, 2 * runs - 2))
    return found


def _beyond(t: np.ndarray, error: float, degrees: int) -> float:
    return float((np.abs(t) > t_quantile(1 - error, degrees)).mean())
