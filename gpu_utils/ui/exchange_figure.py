"""Which lane gets whose value: a line from every giver to every getter, true to the lane."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpu_utils.chips import TARGETS
from gpu_utils.ui.explore.drawing import Picture, box, path, picture, small, svg, text

_WIDTH, _HIGH, _GAP, _TITLE = 704.0, 14.0, 44.0, 18.0

_LEGEND = (
    "Above: who gives. Below: whose value this lane holds afterwards. A dot: nothing came, the register is as it was. "
    "A 0 in a hollow box: nothing came, and the instruction wrote 0. Filled below: another lane's value. On AMD a "
    "thick line ends a row of 16 lanes. The colour is only the vendor's."
)


def exchange_figure(got: Mapping[str, Sequence[int]], given: int = 100) -> Picture:
    """One exchange for each label, as two strips of lanes with lines between them.

    got    "target: words" -> what each lane of a wave got; the target's vendor gives the colour
    given  what lane 0 gave; lane i gave i more. A smaller number came from no lane: 0, or what was there before

    >>> exchange_figure({"sm_80: down 1": [101, 102, 103, 103]})
    sm_80: down 1: lanes 0-3 get 1 2 3 3.
    """
    parts, said, y = [], [], 0.0
    for label, values in got.items():
        target = label.partition(":")[0]
        vendor = TARGETS[target].vendor if target in TARGETS else ""
        cell = _WIDTH / max(len(values), 32)
        drawn = [text(0, y + 12, label, bold=True)]
        top, low = y + _TITLE, y + _TITLE + _HIGH + _GAP
        sources = [value - given if value >= given else None for value in values]
        for lane, source in enumerate(sources):
            if source is not None:
                kind = "hue" if source != lane else "line"
                drawn.append(path([((source + 0.5) * cell, top + _HIGH), ((lane + 0.5) * cell, low)], kind))
        size = 10 if cell > 18 else 7
        for lane, (source, value) in enumerate(zip(sources, values, strict=True)):
            x, middle = lane * cell, (lane + 0.5) * cell
            drawn += [box(x, top, cell - 1, _HIGH, "room"), text(middle, top + 11, lane, size=size, at="middle")]
            drawn.append(box(x, low, cell - 1, _HIGH, "odd" if source not in (None, lane) else "empty"))
            word = str(source) if source is not None else "0" if value == 0 else "·"
            drawn.append(text(middle, low + 11, word, size=size, at="middle"))
        for row in range(16, len(values) if vendor == "amd" else 0, 16):
            drawn.append(path([(row * cell - 0.5, top - 3), (row * cell - 0.5, low + _HIGH + 3)], "edge"))
        parts.append(f'<g class="{vendor}">{"".join(drawn)}</g>')
        words = " ".join(
            str(source) if source is not None else "0*" if value == 0 else "-"
            for source, value in zip(sources, values, strict=True)
        )
        said.append(f"{label}: lanes 0-{len(values) - 1} get {words}.")
        y = low + _HIGH + 16
    words = "\n".join(said)
    return picture("", words, svg(_WIDTH + 2, y, parts, words, least=620), after=small(_LEGEND), spoken=False)
