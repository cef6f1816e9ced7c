"""What a choice of degrees costs, by the model of the lab, and choices with one mistake each. Plain Python."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

Given = Mapping[str, Any]


class Degrees(NamedTuple):
    """How many ranks share out layers, experts, the batch, and each matrix."""

    pipeline: int
    expert: int
    data: int
    tensor: int


class Cost(NamedTuple):
    """memory in bytes of the fullest chip; seconds of a step."""

    memory: float
    seconds: float


def divisors(n: int) -> list[int]:
    """
    >>> divisors(12)
    [1, 2, 3, 4, 6, 12]
    """
    return [k for k in range(1, n + 1) if n % k == 0]


def fault(cluster: Given, model: Given, at: Degrees) -> str:
    """Which rule of the lab a choice breaks, as a sentence; "" where it breaks none but perhaps the memory."""
    p, e, d, t = at
    if p * d * t != cluster["chips"]:
        return f"pipeline {p} x data {d} x tensor {t} is {p * d * t}, expected the cluster's {cluster['chips']} chips"
    if p > model["layers"]:
        return f"{p} stages for {model['layers']} layers: every stage needs one"
    if not model["experts"] and e != 1:
        return f"expert is {e}; expected 1 for a model without experts"
    if d % e or model["experts"] % e:
        return f"expert is {e}; expected a divisor of data, {d}, and of the {model['experts']} experts"
    if model["tokens"] % (d * model["micro"]):
        return (
            f"data is {d}: {model['tokens']:,} tokens / {d} are no whole number of micro-batches of {model['micro']:,}"
        )
    return ""


def possible(cluster: Given, model: Given) -> Iterator[Degrees]:
    """Every choice that breaks no rule, whatever it needs of the memory."""
    for p in divisors(cluster["chips"]):
        for t in divisors(cluster["chips"] // p):
            d = cluster["chips"] // p // t
            for e in divisors(d):
                if not fault(cluster, model, at := Degrees(p, e, d, t)):
                    yield at


class Rules(NamedTuple):
    """The lab's model; each field is a term that can be got wrong."""

    layers: Callable[[float], int] = math.ceil
    states: float = 12.0
    states_shared: bool = True
    experts_shared_by_all: bool = False
    experts_divided: bool = True
    alive: Callable[[int, int], int] = min
    kept: float = 1.0
    bubble: bool = True
    links: bool = True
    exchange: float = 1.0
    exchange_inside: bool = False
    exchange_hidden: bool = True
    tensor: float = 1.0
    tensor_inside: bool = False
    reduced: float = 1.0


def cost(cluster: Given, model: Given, at: Degrees, rules: Rules = Rules()) -> Cost:
    """Bytes of the fullest chip and seconds of a step."""
    p, e, d, t = at
    layers, micro = rules.layers(model["layers"] / p), model["micro"]
    micros = model["tokens"] // (d * micro)
    dense = layers * model["dense"] / t
    experts = layers * model["experts"] * model["expert"] / (e if rules.experts_divided else 1) / t
    shared_by = (d, d if rules.experts_shared_by_all else d / e) if rules.states_shared else (1, 1)
    memory = 6 * (dense + experts) + rules.states * (dense / shared_by[0] + experts / shared_by[1])
    memory += rules.kept * layers * rules.alive(p, micros) * micro * model["kept"] / t

    def link(ranks: int, inside: bool = False) -> float:
        return float(cluster["inside"] if inside or ranks <= cluster["node"] else cluster["across"])

    message = layers * 4 * micro * model["width"] * 2
    compute = 6 * layers * (model["dense"] + model["active"] * model["expert"]) * micro / t / cluster["flops"]
    all_reduce = rules.tensor * message * 2 * (t - 1) / t / link(t, rules.tensor_inside)
    nodes = 1 if rules.exchange_inside else -(-e * t // cluster["node"])
    copies = model["active"] * (e - 1) / e / cluster["inside"]
    far = min(model["active"], model["nodes"], nodes) * (nodes - 1) / nodes / cluster["across"]
    exchange = rules.exchange * message * max(copies, far)
    both = max(compute, exchange) if rules.exchange_hidden else compute + exchange
    replicas = d // e
    reduce = 8 * ((d - 1) / d * dense + (replicas - 1) / replicas * experts) / link(d * t)
    return Cost(memory, (micros + (p - 1) * rules.bubble) * (both + all_reduce) + rules.reduced * reduce)


Choice = dict[str, int] | None


def fitting(cluster: Given, model: Given, rules: Rules = Rules()) -> list[tuple[Degrees, Cost]]:
    """The choices that fit, with their costs."""
    found = [(at, cost(cluster, model, at, rules)) for at in possible(cluster, model)]
    return [(at, needs) for at, needs in found if needs.memory <= cluster["memory"]]


def fastest(found: list[tuple[Degrees, Cost]]) -> Choice:
    return min(found, key=lambda one: (one[1].seconds, one[0]))[0]._asdict() if found else None


def right(cluster: Given, model: Given) -> Choice:
    """The fastest choice that fits; None where nothing does."""
    return fastest(fitting(cluster, model))


def choosing(**wrong: Any) -> Callable[..., Choice]:
    """The search with a term of the model got wrong."""

    def choose(cluster: Given, model: Given) -> Choice:
        return fastest(fitting(cluster, model, Rules(**wrong)))

    return choose


def whatever_fits_or_not(cluster: Given, model: Given) -> Choice:
    return fastest([(at, cost(cluster, model, at)) for at in possible(cluster, model)])


def by(key: Callable[[Degrees], Any]) -> Callable[..., Choice]:
    """The first that fits, by an order of degrees and not by time."""

    def choose(cluster: Given, model: Given) -> Choice:
        found = fitting(cluster, model)
        return min(found, key=lambda one: key(one[0]))[0]._asdict() if found else None

    return choose


def only(keep: Callable[[Given, Given, Degrees], bool]) -> Callable[..., Choice]:
    """The search with choices left out that the rules allow."""

    def choose(cluster: Given, model: Given) -> Choice:
        return fastest([one for one in fitting(cluster, model) if keep(cluster, model, one[0])])

    return choose
