"""Tokens to experts over the steps of a training: loads, imbalance, dropped tokens, with and without balance."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from gpu_utils.errors import BadArgument, UnknownName
from gpu_utils.model.routed_training import BALANCES, RoutedConfig, RoutedRun, routed_run, zipf_stream
from gpu_utils.model.routing import capacity, fits
from gpu_utils.ui.explore.drawing import Picture, box, count, heading, path, percent, picture, small, svg, table, text
from gpu_utils.ui.explore.widget import Explorer, choice, slider

STEPS, VOCABULARY, SHOWN, WINDOW = 100, 64, 64, 10
"""Steps of a run, tokens of its made-up language, tokens that are drawn, steps whose loads are added up."""

EXPERTS = (8, 16)
ALPHA, SPEED = 0.1, 0.01
SEED = 2

_LEFT, _CELL = 84.0, 9.0
_WIDE = _LEFT + SHOWN * _CELL
_BARS, _CURVE = 190.0, 130.0


@lru_cache(maxsize=1)
def _stream() -> np.ndarray:
    return zipf_stream(VOCABULARY, 20_000)


@lru_cache(maxsize=64)
def run(balance: str, experts: int, k: int) -> RoutedRun:
    """The training behind the picture: a real one, of a tiny model on a made-up language; the same at each call."""
    config = RoutedConfig(
        vocab_size=VOCABULARY,
        experts=experts,
        k=k,
        width=16,
        hidden=16,
        batch=8,
        length=32,
        steps=STEPS,
        balance=balance,
        alpha=ALPHA,
        speed=SPEED,
    )
    return routed_run(config, _stream(), SEED)


def draw(balance: str, experts: int, k: int, factor: float, step: int) -> Picture:
    """One step: which tokens go where, the loads against a capacity, and the imbalance of the whole run.

    balance  a name of BALANCES; experts, k: of the layer; factor: of the capacity; step: 1 to STEPS
    """
    if balance not in BALANCES:
        raise UnknownName("way to balance", balance, BALANCES)
    if not 1 <= k <= experts:
        raise BadArgument(f"k is {k}; expected 1 to the number of experts, {experts}")
    if not 1 <= step <= STEPS:
        raise BadArgument(f"step is {step}; expected 1 to {STEPS}")
    of, bare = run(balance, experts, k), run("none", experts, k)
    chosen = of.experts[step - 1].flatten(0, 1)
    places = capacity(len(chosen), k, experts, factor)
    kept = fits(chosen, experts, places)
    load = of.loads[step - 1]
    dropped, choices = int((~kept).sum()), chosen.numel()
    words = (
        f"Step {step}, {_balanced(balance)}: the busiest of {experts} experts has {int(load.max())} of {choices} "
        f"choices, {float(load.max()) * experts / choices:.2f} times the mean, and the idlest has {int(load.min())}. "
        f"With a capacity factor of {factor:g} each has {count(places, 'place')}; {count(dropped, 'choice')} of "
        f"{choices} ({percent(dropped / choices)}) find none and are dropped."
    )
    curve = (
        f"Imbalance, {WINDOW} steps together: {of.imbalance(WINDOW)[step - 1]:.2f} at step {step}, "
        f"{of.imbalance(WINDOW)[-1]:.2f} at the end; without balance {bare.imbalance(WINDOW)[-1]:.2f}."
    )
    return picture(
        "",
        words,
        heading(f"The last {SHOWN} of {len(chosen)} tokens of step {step}, and their experts; outlined: dropped"),
        svg(_WIDE, *_tokens(chosen[-SHOWN:].tolist(), kept[-SHOWN:].tolist(), experts), words, least=520),
        heading("Load of each expert: filled has a place, outlined is dropped"),
        svg(_WIDE, *_loads(load.tolist(), places, choices / experts), words, least=520),
        heading(f"Imbalance: largest load over the mean, {WINDOW} steps together"),
        svg(_WIDE, *_curve(of.imbalance(WINDOW), bare.imbalance(WINDOW), step), curve, least=520),
        after=table(("", *_HEAD), [_row("this run", of, factor), _row("no balance", bare, factor)], [0])
        + small(
            f"{curve} Behind it is a real training of {STEPS} steps on a made-up language of {VOCABULARY} tokens, 256 "
            f"tokens a step; alpha of the losses is {ALPHA:g}, the speed of the bias {SPEED:g}. Tokens queue for an "
            "expert in their order."
        ),
    )


def _balanced(balance: str) -> str:
    return "no balance" if balance == "none" else f"balanced by {balance}"


_HEAD = ("imbalance, last 20 steps", "within a sequence", "dropped, last 20 steps", "loss in nats, last 20 steps")


def _row(name: str, of: RoutedRun, factor: float) -> tuple[str, ...]:
    last = of.experts[-20:].flatten(1, 2)
    experts, k = of.loads.shape[1], last.shape[-1]
    places = capacity(last.shape[1], k, experts, factor)
    dropped = sum(int((~fits(chosen, experts, places)).sum()) for chosen in last) / last.numel()
    within = float(np.mean(of.of_sequences()[-20:]))
    return (
        name,
        f"{of.imbalance(20)[-1]:.2f}",
        f"{within:.2f}",
        percent(dropped),
        f"{float(np.mean(of.losses[-20:])):.3f}",
    )


def _tokens(chosen: list[list[int]], kept: list[list[bool]], experts: int) -> tuple[float, list[str]]:
    """Height and parts: a column for each token, a row for each expert."""
    high = _CELL if experts > 8 else 1.4 * _CELL
    parts = [text(_LEFT - 8, e * high + high - 1, f"expert {e}", size=9, at="end") for e in range(experts)]
    parts += [path([(_LEFT, e * high), (_WIDE, e * high)], "grid") for e in range(experts + 1)]
    for token in range(len(chosen)):
        for expert, place in zip(chosen[token], kept[token], strict=True):
            kind = "even" if place else "empty"
            parts.append(box(_LEFT + token * _CELL + 0.5, expert * high + 0.5, _CELL - 1, high - 1, kind))
    return experts * high + 2, parts


def _loads(load: list[int], places: int, mean: float) -> tuple[float, list[str]]:
    """Height and parts: a bar for each expert, a line at the capacity, a dashed one at the mean."""
    top = max(*load, places, 1) * 1.05
    wide, foot = (_WIDE - _LEFT - 96) / len(load), _BARS - 20
    scale = (foot - 12) / top
    parts = []
    for expert, number in enumerate(load):
        x, high = _LEFT + expert * wide, min(number, places) * scale
        parts.append(box(x + 2, foot - high, wide - 4, high, "even"))
        if number > places:
            parts.append(box(x + 2, foot - number * scale, wide - 4, (number - places) * scale, "empty"))
        parts.append(text(x + wide / 2, foot + 14, expert, size=10, at="middle"))
        inside = number * scale > 16  # a number above its bar meets the lines of mean and capacity
        parts.append(text(x + wide / 2, foot - (5 if inside else number * scale + 3), number, size=10, at="middle"))
    parts.append(text(_LEFT - 8, foot + 14, "expert", size=10, at="end"))
    edge = _LEFT + len(load) * wide
    apart = 6 if abs(places - mean) * scale < 12 else 0
    for level, name, dashes, shift in (
        (places, f"capacity {places}", "", -apart),
        (mean, f"mean {mean:g}", "3 3", apart),
    ):
        y = foot - level * scale
        parts.append(path([(_LEFT, y), (edge, y)], "edge" if not dashes else "line", dashes))
        parts.append(text(edge + 6, y + 4 + shift, name, size=11))
    return _BARS, parts


def _curve(found: list[float], bare: list[float], step: int) -> tuple[float, list[str]]:
    """Height and parts: the run's curve, that of no balance in grey, the step."""
    top, foot = max(*found, *bare) * 1.05, _CURVE - 18
    across = (_WIDE - _LEFT - 96) / (STEPS - 1)

    def at(number: int, value: float) -> tuple[float, float]:
        return _LEFT + (number - 1) * across, foot - (value - 1) / max(top - 1, 1e-9) * (foot - 10)

    parts = [path([at(1, level), at(STEPS, level)], "grid") for level in range(1, int(top) + 1)]
    parts += [text(_LEFT - 8, at(1, level)[1] + 4, level, size=10, at="end") for level in range(1, int(top) + 1)]
    parts.append(path([at(n, value) for n, value in enumerate(bare, 1)]))
    parts.append(path([at(n, value) for n, value in enumerate(found, 1)], "hue"))
    parts.append(path([at(step, 1), at(step, top)], "edge", "2 3"))
    parts += [text(at(n, 1)[0], _CURVE - 3, n, size=10, at="middle") for n in (1, 25, 50, 75, STEPS)]
    parts.append(text(_LEFT - 8, _CURVE - 3, "step", size=10, at="end"))
    ends = [(at(STEPS, bare[-1])[1], "no balance")]
    if found != bare:
        ends.append((at(STEPS, found[-1])[1], "this run"))
        ends.sort()
        ends[1] = (max(ends[1][0], ends[0][0] + 13), ends[1][1])
    parts += [text(at(STEPS, 1)[0] + 6, y + 4, name, size=11) for y, name in ends]
    return _CURVE, parts


def explorer(balance: str = "none", *, experts: int = 8, k: int = 2, factor: float = 1.25, step: int = STEPS) -> Any:
    """A way to balance, experts and how many of them a token gets, a capacity factor, and a slider over the steps.

    balance  a name of gpu_utils.model.routed_training.BALANCES
    experts  8 or 16; k: 1 to 4; factor: 1 to 3; step: 1 to 100

    Errors: UnknownName for a way to balance or a number of experts that is not in the list; BadArgument for the rest.
    """
    for name, value, low, high in (("k", k, 1, 4), ("factor", factor, 1, 3), ("step", step, 1, STEPS)):
        if not low <= value <= high:
            raise BadArgument(f"{name} is {value}; expected {low} to {high}")
    controls = {
        "balance": choice("balance", list(BALANCES), balance),
        "experts": choice("experts", list(EXPERTS), experts),
        "k": slider("experts of a token", k, 1, 4),
        "factor": choice("capacity factor", [1.0, 1.25, 1.5, 2.0, 3.0], factor),
        "step": slider("step", step, 1, STEPS),
    }
    return Explorer(draw, controls)
