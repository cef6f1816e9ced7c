"""Shared memory over num_stages, against what a block may have on each target."""

from __future__ import annotations

from collections.abc import Mapping

from gpu_utils.chips import TARGETS
from gpu_utils.ui.explore.drawing import Picture, box, count, path, picture, small, svg, text

_KIB = 1024
_LEFT, _WIDTH, _STEP = 70.0, 470.0, 18.0


def stage_figure(shared: Mapping[str, Mapping[int, int]]) -> Picture:
    """Bars of shared memory (LDS) against a block's limit, as the last line of a cell.

    shared  target -> {num_stages: bytes of shared memory that a block asks for}

    All targets have one scale; the limits are those of `TARGETS`, each with its source under the figure. A bar that is
    past its limit is hollow: the kernel compiles and will not load. Raises UnknownName for a target.

    >>> stage_figure({"gfx942": {2: 32768, 3: 65536, 4: 98304}})
    gfx942, at most 64 KiB a block: 2 stages 32 KiB; 3 stages 64 KiB; 4 stages 96 KiB, does not fit.
    """
    limits = {name: TARGETS[name].shared_per_block for name in shared}
    most = max([*limits.values(), *(size for sizes in shared.values() for size in sizes.values())])
    scale, y, parts, said = _WIDTH / most, 0.0, [], []
    for name, sizes in shared.items():
        limit = limits[name]
        at, top, words = _LEFT + limit * scale, y + 18, []
        drawn = [text(0, y + 13, name, bold=True)]
        drawn.append(text(at, y + 13, f"{limit / _KIB:g} KiB: the limit of a block", size=11, at="end"))
        y += 20
        for stages, size in sizes.items():
            what = f"{size / _KIB:g} KiB{'' if size <= limit else ', does not fit'}"
            drawn.append(text(_LEFT - 8, y + 11, count(stages, "stage"), size=11, at="end"))
            drawn.append(box(_LEFT, y, size * scale, 13, "even" if size <= limit else "empty"))
            drawn.append(text(_LEFT + size * scale + 6, y + 11, what, size=11))
            words.append(f"{count(stages, 'stage')} {what}")
            y += _STEP
        drawn.append(path([(at, top), (at, y)], "edge", "4 3"))
        parts.append(f'<g class="{TARGETS[name].vendor}">{"".join(drawn)}</g>')
        said.append(f"{name}, at most {limit / _KIB:g} KiB a block: {'; '.join(words)}.")
        y += 8
    sources = "; ".join(f"{name}: {TARGETS[name].source}" for name in shared)
    drawing = svg(_LEFT + _WIDTH + 130, y, parts, " ".join(said))
    under = small("The colour is only the vendor's. Hollow: does not fit.")
    under += f"<details><summary>Where the limits come from</summary>{small(sources)}</details>"
    return picture("", " ".join(said), drawing, after=under, spoken=False)
