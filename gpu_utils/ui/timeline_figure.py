"""What ran when: bars over time, lane under lane, as recorded on a rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpu_utils.errors import BadArgument
from gpu_utils.ui.explore.drawing import Picture, box, path, picture, svg, text

Lane = Sequence[tuple[str, float, float]]

_LEFT, _WIDTH, _ROW = 150.0, 800.0, 26.0
_TICKS = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0)
_KINDS = {
    "even": "the experts compute",
    "odd": "an exchange, from its start until a wait for it is over",
    "room": "a message on the link",
}


def _kind(lane: str) -> str:
    return "even" if lane == "experts" else "room" if lane.startswith("link") else "odd"


def timeline_figure(lanes: Mapping[str, Mapping[str, Lane]]) -> Picture:
    """Groups of lanes on one scale of seconds, as the last line of a cell.

    lanes   name of a run -> name of a lane -> (label, start, end) of each bar, in seconds. Bars of a lane that overlap
            stand under each other. The lane "experts" is compute, one whose name begins with "link" messages, any other
            one exchanges

    Raises BadArgument where there is nothing to draw.

    >>> compute, link = [("compute 1", 0.1, 0.3)], [("out 1", 0.0, 0.1), ("back 1", 0.3, 0.4)]
    >>> timeline_figure({"apart": {"experts": compute, "link to rank 1": link}})
    apart: 0.40 s.
    """
    ends = [end for group in lanes.values() for lane in group.values() for _, _, end in lane]
    if not ends:
        raise BadArgument("a timeline was asked for with no bars; expected at least one (label, start, end)")
    scale, said = (_WIDTH - _LEFT - 70) / max(ends), []
    parts, y = _legend({_kind(lane) for group in lanes.values() for lane in group}), 30.0
    bars_from = y
    for name, group in lanes.items():
        last = max((end for lane in group.values() for _, _, end in lane), default=0.0)
        said.append(f"{name}: {last:.2f} s")
        parts.append(text(0, y + 14, f"{name}: {last:.2f} s", bold=True))
        y += 22
        for lane, bars in group.items():
            rows: list[float] = []
            parts.append(text(_LEFT - 10, y + 15, lane, at="end"))
            for label, start, end in sorted(bars, key=lambda bar: bar[1]):
                row = next((at for at, until in enumerate(rows) if until <= start), len(rows))
                rows[row : row + 1] = [end]
                x, top = _LEFT + start * scale, y + row * _ROW
                parts.append(box(x, top, max(1.0, (end - start) * scale - 1), 20, _kind(lane)))
                shown = label if lane.startswith("link") else label.split()[-1]
                parts.append(text(x + 3, top + 14, shown, size=10))
            y += max(1, len(rows)) * _ROW
        y += 8
    parts = [*_axis(max(ends), scale, bars_from, y), *parts]
    sentence = "; ".join(said) + "."
    return picture("", sentence, svg(_WIDTH, y + 24, parts, sentence), spoken=False)


def _legend(kinds: set[str]) -> list[str]:
    parts, x = [], _LEFT
    for kind, words in _KINDS.items():
        if kind in kinds:
            parts += [box(x, 3, 20, 14, kind), text(x + 26, 14, words, size=11)]
            x += 44 + 5.6 * len(words)
    return parts


def _axis(last: float, scale: float, top: float, bottom: float) -> list[str]:
    """Seconds below the bars, with a faint line at each tick."""
    tick = next((one for one in _TICKS if last / one <= 12), last)
    parts = [text(_LEFT - 10, bottom + 16, "seconds", size=11, at="end")]
    for at in range(int(last / tick) + 1):
        x = _LEFT + at * tick * scale
        parts += [path([(x, top), (x, bottom + 4)], "grid"), text(x, bottom + 16, f"{at * tick:g}", at="middle")]
    return parts
