"""Runs of pipeline schedules as timelines: a lane for each rank, a box for each step, what is idle left empty."""

from __future__ import annotations

from collections.abc import Mapping

from gpu_utils.analytic.schedules import Run, Schedule, Step, actions_of
from gpu_utils.errors import BadArgument
from gpu_utils.ui.explore.drawing import Picture, box, path, percent, picture, svg, text

_LEFT, _RIGHT, _WIDTH, _ROW, _HIGH = 56.0, 150.0, 960.0, 31.0, 27.0
_ALIVE = _WIDTH - 30
_LEGEND = (
    ("F", 0, "forward"),
    ("B", 0, "backward"),
    ("I", 0, "its input gradient"),
    ("W", 0, "its weight gradients"),
    ("F", 1, "with a bar: the rank's next stage"),
)


def schedule_figure(runs: Mapping[str, Run], unit: str = "units", spoken: bool = False) -> Picture:
    """Runs under each other on one scale of time, as the last line of a cell.

    runs   title -> run; unit: of its times, "s" for seconds; spoken: whether the words stand below, for an explorer

    A box has the letter of its kind and the number of its micro-batch, if it is wide enough; a pair that runs together
    is one box with a frame, its forward above its backward. At the right edge stand, for each rank, the idle share and
    the most activations alive, each of 1/p of the model (half as much for each of two stages on a rank) and one
    micro-batch.

    Raises BadArgument where there is nothing to draw.

    >>> from gpu_utils.analytic.schedules import arranged
    >>> own = arranged([[("F", 0, 0), ("B", 0, 0)]], p=1, m=1)
    >>> schedule_figure({"one rank": Run(own, (((0.0, 1.0), (1.0, 3.0)),), (1,))})
    one rank: 3 units, bubble 0%; idle by rank: 0; activations alive by rank: 1.
    """
    last = max((float(run.seconds) for run in runs.values()), default=0.0)
    if not last:
        raise BadArgument("a schedule was to be drawn without a step; expected at least one run with steps")
    scale = (_WIDTH - _LEFT - _RIGHT) / last
    y, parts = 30.0, _legend(runs)
    for name, run in runs.items():
        share = f"{name}: {_short(run.seconds)} {unit}, bubble {percent(float(run.bubble))}"
        parts += [text(0, y + 14, share, bold=True), text(_ALIVE - 52, y + 14, "idle", at="end", size=11)]
        parts.append(text(_ALIVE + 30, y + 14, "alive", at="end", size=11))
        y += 22
        for rank in range(len(run.spans)):
            parts += _lane(run, rank, y, scale)
            y += _ROW
        y += 6
    parts += _axis(last, scale, y, unit)
    words = " ".join(_said(name, run, unit) for name, run in runs.items())
    return picture("", words, svg(_WIDTH, y + 24, parts, words), spoken=spoken)


def _lane(run: Run, rank: int, y: float, scale: float) -> list[str]:
    whole = float(run.seconds)
    parts = [text(_LEFT - 8, y + 17, f"rank {rank}", at="end")]
    parts.append(box(_LEFT, y, whole * scale, _HIGH, "room"))
    own = [stage for stage, place in enumerate(run.schedule.places) if place == rank]
    for step, (start, end) in zip(run.schedule.order[rank], run.spans[rank], strict=True):
        parts += _step(step, own, _LEFT + float(start) * scale, y, float(end - start) * scale)
    parts.append(text(_ALIVE - 52, y + 17, percent(float(run.idle[rank]) / whole), at="end"))
    parts.append(text(_ALIVE + 30, y + 17, _short(run.memory[rank] * _part(run.schedule)), at="end"))
    return parts


def _step(step: Step, own: list[int], x: float, y: float, wide: float) -> list[str]:
    actions = sorted(actions_of(step), key=lambda action: action[0] != "F")
    parts = [f'<rect style="fill: var(--paper)" x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{_HIGH}"/>']
    high = _HIGH / len(actions)
    for at, (kind, stage, micro) in enumerate(actions):
        bars = own.index(stage) if stage in own else 0
        parts += _action(kind, micro, bars, x, y + at * high, wide, high)
    if len(actions) > 1:
        parts.append(_frame(x, y, wide, _HIGH))
    return parts


def _action(kind: str, micro: int | None, bars: int, x: float, y: float, wide: float, high: float) -> list[str]:
    """B is filled, I its upper half and W its lower one: the two of which it is made."""
    top, deep = {"I": (y, high / 2), "W": (y + high / 2, high / 2)}.get(kind, (y, high))
    parts = [box(x, top, wide, deep, "odd" if kind == "F" else "even"), box(x, y, wide, high, "empty")]
    for bar in range(bars):
        low = y + high - 2 - 3 * bar
        parts.append(path([(x + 1, low), (x + wide - 1, low)], "edge"))
    number, middle = "" if micro is None else str(micro), x + wide / 2
    size = max(6.0, min(11.0, 1.5 * wide / max(len(number), 1)))
    if high < 20 or micro is None:
        if 5.5 * (1 + len(number)) <= wide:
            parts.append(text(middle, y + high / 2 + 3, f"{kind}{number}", at="middle", size=min(size, 9)))
        else:
            parts.append(text(middle, y + high / 2 + 3, number or kind, at="middle", size=min(size, 8)))
        return parts
    if wide >= 7:  # narrower letters run into each other
        parts.append(text(middle, y + 11, kind, at="middle", size=min(size, 10)))
    if wide >= 4.5 * len(number):
        parts.append(text(middle, y + 21, number, at="middle", size=size))
    return parts


def _frame(x: float, y: float, wide: float, high: float) -> str:
    corners = [(x, y), (x + wide, y), (x + wide, y + high), (x, y + high), (x, y)]
    return path(corners, "edge")


def _legend(runs: Mapping[str, Run]) -> list[str]:
    steps = [actions_of(step) for run in runs.values() for own in run.schedule.order for step in own]
    seen = {kind for actions in steps for kind, _, _ in actions}
    pairs = any(len(actions) > 1 for actions in steps)
    several = any(len(run.schedule.places) > len(run.spans) for run in runs.values())
    parts, x = [], 0.0
    for kind, bars, words in _LEGEND:
        if kind in seen and (several or not bars):
            parts += [*_action(kind, None, bars, x, 2, 20, 18), text(x + 25, 15, words, size=11)]
            x += 40 + 5.7 * len(words)
    if pairs:
        parts += [*_action("F", None, 0, x, 1, 20, 10), *_action("B", None, 0, x, 11, 20, 10)]
        parts.append(_frame(x, 1, 20, 20))
        parts.append(text(x + 25, 15, "together", size=11))
        x += 80
    return [*parts, box(x, 2, 20, 18, "room"), text(x + 25, 15, "idle", size=11)]


def _axis(last: float, scale: float, y: float, unit: str) -> list[str]:
    step = next(one * 10**power for power in range(-6, 9) for one in (1, 2, 5) if last / (one * 10**power) <= 12)
    parts = [text(_LEFT - 8, y + 14, unit, size=11, at="end")]
    for at in range(int(last / step) + 1):
        x = _LEFT + at * step * scale
        parts += [path([(x, y - 4), (x, y + 2)]), text(x, y + 14, f"{at * step:g}", at="middle", size=11)]
    return parts


def _part(schedule: Schedule) -> float:
    """Of 1/p of the model, what one stage is."""
    return len(schedule.order) * len(schedule.chains) / len(schedule.places)


def _said(name: str, run: Run, unit: str) -> str:
    idle = ", ".join(map(_short, run.idle))
    alive = ", ".join(_short(count * _part(run.schedule)) for count in run.memory)
    return (
        f"{name}: {_short(run.seconds)} {unit}, bubble {percent(float(run.bubble))}; idle by rank: {idle}; "
        f"activations alive by rank: {alive}."
    )


def _short(number: float) -> str:
    return f"{float(number):.4g}"
