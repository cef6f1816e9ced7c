"""09.convergence: the paired test, and tests that alarm too often or find too little."""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import Tensor

from gpu_utils.analytic.paired import t_quantile

Answer = Callable[[Tensor, Tensor, int], str]


def _verdict(statistic: float | Tensor, limit: float) -> str:
    return "noise" if abs(float(statistic)) <= limit else "bug"


def _t(values: Tensor) -> float:
    """Mean over standard error, along the only axis."""
    return float(values.mean() / values.std() * math.sqrt(len(values)))


QUANTILES = {degrees: t_quantile(0.95, degrees) for degrees in (5, 10, 19, 119)}


def right(reference: Tensor, port: Tensor, tail: int) -> str:
    return _verdict(_t((port - reference)[:, -tail:].mean(1)), QUANTILES[5])


def one_seed(reference: Tensor, port: Tensor, tail: int) -> str:
    return _verdict(_t((port - reference)[0, -tail:]), QUANTILES[19])


def unpaired(reference: Tensor, port: Tensor, tail: int) -> str:
    one, other = (runs[:, -tail:].mean(1) for runs in (reference, port))
    error = math.sqrt(float(one.var() + other.var()) / len(one))
    return _verdict(float(other.mean() - one.mean()) / error, QUANTILES[10])


def last_step(reference: Tensor, port: Tensor, tail: int) -> str:
    return right(reference, port, 1)


def whole_curve(reference: Tensor, port: Tensor, tail: int) -> str:
    return right(reference, port, port.shape[1])


def any_step(reference: Tensor, port: Tensor, tail: int) -> str:
    apart = (port - reference)[:, -tail:]
    t = apart.mean(0) / apart.std(0) * math.sqrt(len(apart))
    return "noise" if bool((t.abs() <= QUANTILES[5]).all()) else "bug"


def steps_as_samples(reference: Tensor, port: Tensor, tail: int) -> str:
    return _verdict(_t((port - reference)[:, -tail:].flatten()), QUANTILES[119])


def deviation(reference: Tensor, port: Tensor, tail: int) -> str:
    return _verdict(_t((port - reference)[:, -tail:].mean(1)) / math.sqrt(len(port)), QUANTILES[5])


def one_sided(reference: Tensor, port: Tensor, tail: int) -> str:
    t = _t((port - reference)[:, -tail:].mean(1))
    return "noise" if t <= t_quantile(0.90, 5) else "bug"


def normal_quantile(reference: Tensor, port: Tensor, tail: int) -> str:
    return _verdict(_t((port - reference)[:, -tail:].mean(1)), 1.96)


def fixed_gap(reference: Tensor, port: Tensor, tail: int) -> str:
    return _verdict((port - reference)[:, -tail:].mean(), 0.01)


def nan_is_noise(reference: Tensor, port: Tensor, tail: int) -> str:
    return "bug" if abs(_t((port - reference)[:, -tail:].mean(1))) > QUANTILES[5] else "noise"


def always(verdict: str) -> Answer:
    return lambda reference, port, tail: verdict


def of_many(answer: Answer, pairs: tuple[Tensor, Tensor], tail: int) -> list[str]:
    return [answer(one, other, tail) for one, other in zip(*pairs, strict=True)]
