"""The largest number of each operand over the steps of a run, beside what the format can hold at the scale in use."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from gpu_utils.errors import BadArgument, UnknownName
from gpu_utils.formats import FORMATS, Format
from gpu_utils.ui.explore.drawing import Picture, box, heading, path, percent, picture, small, svg, text

SERIES = ("amax", "scale", "saturated", "underflowed")
"""What is known of an operand, a number for each step."""

_LEFT, _WIDTH, _RIGHT = 64.0, 590.0, 126.0
_HIGH, _BETWEEN, _LOW, _FOOT = 130.0, 22.0, 46.0, 26.0
_MOST = 295
"""Points of a curve, one for two pixels; of more steps the one with the largest share of the range stands for a few."""


def amax_figure(history: Mapping[str, Mapping[str, Sequence[float]]], number_format: str = "e4m3fn") -> Picture:
    """For each operand a curve of its amax over a band, the range of the format at the scale of that step.

    history  operand -> {"amax": largest |x| of a step, "scale": what a decoded code is multiplied by, "saturated" and
             "underflowed": shares of the elements, 0 to 1, that were cut to the largest number or became 0}: lists of
             one length, one number for each step
    number_format  a name of FORMATS

    Below each: both shares. Errors: UnknownName for a format; BadArgument for lists that are missing, of unlike length,
    shorter than two steps or not finite, a scale that is not above 0, a share outside 0 to 1.

    >>> amax_figure({"x": {"amax": [1, 900], "scale": [1, 1], "saturated": [0, 0.25], "underflowed": [0, 0]}})
    e4m3fn. x, 2 steps: amax 1 to 900, beyond the range in 1 of them, first in step 2; at most 25% saturated and \
0% became 0.
    """
    if number_format not in FORMATS:
        raise UnknownName("number format", number_format, FORMATS)
    if not history:
        raise BadArgument("no operand was given; expected a name and its lists " + ", ".join(SERIES))
    of, said, parts = FORMATS[number_format], [f"{number_format}."], []
    for name, lists in history.items():
        series = _series(name, lists)
        said.append(f"{name}, {_words(series, of)}.")
        parts += [heading(f"{name}: amax and the range of {number_format}"), _panel(series, of, said[-1])]
    under = small(
        f"Band: from the smallest number above zero to the largest that {number_format} holds at the scale in use. A "
        "tick above the frame is a step whose amax was beyond it. Steps from left to right."
    )
    return picture("", " ".join(said), *parts, after=under, spoken=False)


def _series(name: str, lists: Mapping[str, Sequence[float]]) -> dict[str, np.ndarray]:
    lengths = {each: len(lists.get(each, ())) for each in SERIES}
    if len(set(lengths.values())) != 1 or min(lengths.values()) < 2:
        raise BadArgument(f"{name!r} has {lengths} numbers; expected one for each of two steps or more in every list")
    found = {each: np.asarray(lists[each], np.float64) for each in SERIES}
    shares = np.stack([found["saturated"], found["underflowed"]])
    if (
        not all(np.isfinite(each).all() for each in found.values())
        or found["scale"].min() <= 0
        or found["amax"].min() < 0
    ):
        raise BadArgument(f"{name!r} holds a number that is not finite, a scale that is not above 0 or an amax below 0")
    if shares.min() < 0 or shares.max() > 1:
        raise BadArgument(f"{name!r} has shares from {shares.min():g} to {shares.max():g}; expected 0 to 1")
    return found


def _words(series: Mapping[str, np.ndarray], of: Format) -> str:
    amax = series["amax"]
    beyond = np.flatnonzero(amax > of.largest * series["scale"])
    told = (
        f"beyond the range in {len(beyond)} of them, first in step {beyond[0] + 1}" if len(beyond) else "all in range"
    )
    return (
        f"{len(amax)} steps: amax {amax.min():.3g} to {amax.max():.3g}, {told}; at most "
        f"{percent(series['saturated'].max())} saturated and {percent(series['underflowed'].max())} became 0"
    )


def _thinned(series: Mapping[str, np.ndarray], of: Format) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The steps that are drawn, and the series there; shares are the largest of the steps that one stands for."""
    steps = len(series["amax"])
    edges = np.linspace(0, steps, min(steps, _MOST) + 1).astype(int)
    share = series["amax"] / series["scale"]
    chosen = np.array([a + int(share[a:b].argmax()) for a, b in pairwise(edges.tolist())])
    found = {each: series[each][chosen] for each in ("amax", "scale")}
    return chosen, found | {
        each: np.maximum.reduceat(series[each], edges[:-1]) for each in ("saturated", "underflowed")
    }


def _panel(series: Mapping[str, np.ndarray], of: Format, words: str) -> str:
    """The band with the amax above, the two shares under it, in one drawing."""
    chosen, drawn = _thinned(series, of)
    x = _LEFT + _WIDTH * chosen / (len(series["amax"]) - 1)
    upper, lower, amax = of.largest * drawn["scale"], of.smallest * drawn["scale"], drawn["amax"]
    seen = np.concatenate([upper, lower, amax[amax > 0]])
    bottom, top = math.floor(math.log2(seen.min())), math.ceil(math.log2(seen.max()) + 0.25)

    def height(values: np.ndarray) -> np.ndarray:
        """Pixels; an amax of 0 stands on the floor."""
        logs = np.log2(np.maximum(values, 2.0**bottom))
        return 8 + _HIGH * (top - logs) / (top - bottom)

    high = [height(values) for values in (upper, amax, lower)]
    parts = _powers(bottom, top)
    parts.append(f'<path class="odd" d="M{_along(x, high[0])}L{_along(x[::-1], high[2][::-1])}z"/>')
    parts.append(path(list(zip(x.tolist(), high[1].tolist(), strict=True)), "edge"))
    parts += [path([(x[at], 0), (x[at], 6)], "hue") for at in np.flatnonzero(amax > upper)]
    names = (f"largest, {of.largest:g} x scale", "amax", "smallest x scale")
    parts += _at_the_end(dict(zip(names, (float(y[-1]) for y in high), strict=True)))
    parts += _shares(drawn, x)
    foot = 8 + _HIGH + _BETWEEN + _LOW + 15
    parts += [text(_LEFT, foot, "step 1", size=10), text(_LEFT + _WIDTH, foot, len(series["amax"]), size=10, at="end")]
    return svg(_LEFT + _WIDTH + _RIGHT, foot + _FOOT - 15, parts, words)


def _along(x: np.ndarray, y: np.ndarray) -> str:
    return "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(x.tolist(), y.tolist(), strict=True))


def _powers(bottom: int, top: int) -> list[str]:
    """Lines at powers of two, six at most."""
    parts = [box(_LEFT, 8, _WIDTH, _HIGH)]
    for power in range(bottom, top + 1, -(-(top - bottom) // 6)):
        y = 8 + _HIGH * (top - power) / (top - bottom)
        parts += [
            path([(_LEFT, y), (_LEFT + _WIDTH, y)], "grid"),
            text(_LEFT - 6, y + 4, f"2^{power}", size=10, at="end"),
        ]
    return parts


def _at_the_end(names: Mapping[str, float]) -> list[str]:
    """Names of curves at the right edge, each at its height or, where another is there, under it."""
    parts, free = [], 10.0
    for name, y in sorted(names.items(), key=lambda each: each[1]):
        free = max(free, y + 4)
        parts.append(text(_LEFT + _WIDTH + 6, free, name, size=10))
        free += 12
    return parts


def _shares(drawn: Mapping[str, np.ndarray], x: np.ndarray) -> list[str]:
    """The shares of elements that were cut (solid) and lost (dashes), from 0 to the largest."""
    floor = 8 + _HIGH + _BETWEEN + _LOW
    most = max(float(drawn["saturated"].max()), float(drawn["underflowed"].max())) or 0.01
    parts = [
        box(_LEFT, floor - _LOW, _WIDTH, _LOW),
        text(_LEFT - 6, floor - _LOW + 8, percent(most), size=10, at="end"),
        text(_LEFT - 6, floor, "0", size=10, at="end"),
        text(_LEFT, floor - _LOW - 6, "share of the elements", size=11),
    ]
    at_end = {}
    for each, name, kind, dashes in (
        ("saturated", "saturated (solid)", "hue", ""),
        ("underflowed", "became 0 (dashes)", "edge", "5 4"),
    ):
        y = floor - _LOW * drawn[each] / most
        parts.append(path(list(zip(x.tolist(), y.tolist(), strict=True)), kind, dashes))
        at_end[name] = float(y[-1])
    return [*parts, *_at_the_end({name: max(y, floor - _LOW + 6) for name, y in at_end.items()})]
