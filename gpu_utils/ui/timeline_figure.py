"""What ran when: bars over time, lane under lane, as recorded on a rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpu_utils.errors import BadArgument
from gpu_utils.ui.explore.drawing import Picture, box, picture, svg, text

Lane = Sequence[tuple[str, float, float]]

_LEFT, _WIDTH, _ROW = 150.0, 800.0, 26.0


def timeline_figure(lanes: Mapping[str, Mapping[str, Lane]]) -> Picture:
    """Groups of lanes on one scale, as the last line of a cell.

    lanes   name of a run -> name of a lane -> (label, start, end) of each bar, in seconds. Bars of a lane that overlap
            stand under each other

    Raises BadArgument where there is nothing to draw.
    """
    ends = [end for group in lanes.values() for lane in group.values() for _, _, end in lane]
    if not ends:
        raise BadArgument("a timeline was asked for with no bars; expected at least one (label, start, end)")
    scale, y, parts, said = (_WIDTH - _LEFT - 70) / max(ends), 4.0, [], []
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
                parts.append(
                    box(x, top, max(1.0, (end - start) * scale - 1), 20, "even" if lane == "experts" else "odd")
                )
                parts.append(text(x + 4, top + 14, label.split()[-1], size=11))
            y += max(1, len(rows)) * _ROW
        y += 8
    sentence = "; ".join(said) + "."
    return picture("", sentence, svg(_WIDTH, y, parts, sentence), spoken=False)
