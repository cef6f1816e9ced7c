"""What the pipes of virtual AI cores did: a lane for each pipe, a box for each copy, product and vector function."""

from __future__ import annotations

from collections.abc import Mapping

from gpu_utils.errors import BadArgument
from gpu_utils.npu.run import NpuRun, Operation
from gpu_utils.ui.explore.drawing import Picture, box, count, path, picture, svg, text

MOST_STEPS = 60
_LEFT, _WIDTH, _ROW = 120.0, 860.0, 24.0
_SHORT = {
    "asc_copy_gm2l1_nd2nz": "in",
    "asc_copy_gm2l1_dn2nz": "in",
    "asc_copy_gm2ub_align": "in",
    "asc_copy_l12l0a": "A",
    "asc_copy_l12l0b": "B",
    "asc_mmad": "mm",
    "asc_copy_l0c2gm": "out",
    "asc_copy_l0c2ub": "UB",
    "asc_copy_ub2gm_align": "out",
    "asc_copy_ub2l1": "L1",
    "vector function": "vf",
}


def pipe_figure(runs: NpuRun | Mapping[str, NpuRun], block: int = 0) -> Picture:
    """The operations of one block, each at the earliest step at which flags and its pipe would let it start.

    runs   a run, or several under each other by name, on one scale; block: whose cores are drawn

    A step is no time: every copy, product and vector function takes one. What overlaps here may overlap on a chip.
    Errors: BadArgument where the block did nothing.
    """
    given = {"": runs} if isinstance(runs, NpuRun) else dict(runs)
    chosen = {name: [one for one in run.work if one.block == block] for name, run in given.items()}
    if not all(chosen.values()):
        raise BadArgument(f"block {block} did nothing in this run; expected the number of a block, from 0")
    steps = min(max(one.step + 1 for work in chosen.values() for one in work), MOST_STEPS)
    scale, y, parts, said = (_WIDTH - _LEFT - 10) / steps, 8.0, [], []
    for name, work in chosen.items():
        total = max(one.step + 1 for one in work)
        words = f"{name + ': ' if name else ''}{count(len(work), 'operation')} in {count(total, 'step')}"
        if total > steps:
            words += f" (the first {steps} are drawn)"
        said.append(words)
        parts.append(text(0, y + 12, words, bold=True))
        y += 20
        for lane in _lanes(work):
            parts.append(text(_LEFT - 8, y + 14, f"{lane[0]}, {lane[1]}", at="end"))
            parts.append(path(((_LEFT, y + _ROW - 2), (_WIDTH - 10, y + _ROW - 2)), "grid"))
            for one in work:
                if (one.core, one.pipe) == lane and one.step < steps:
                    parts += _drawn(one, _LEFT + one.step * scale, y, scale)
            y += _ROW
        y += 10
    return picture("", ". ".join(said) + ".", svg(_WIDTH, y, parts, ". ".join(said)))


def _lanes(work: list[Operation]) -> list[tuple[str, str]]:
    order = ("MTE2", "MTE1", "M", "FIX", "V", "MTE3", "S")
    cores = ("cube", "vector 0", "vector 1")
    there = {(one.core, one.pipe) for one in work}
    return sorted(there, key=lambda lane: (cores.index(lane[0]), order.index(lane[1])))


def _drawn(one: Operation, x: float, y: float, scale: float) -> list[str]:
    kind = "even" if one.pipe in ("M", "V") else "odd"
    short = _SHORT.get(one.name, one.name.removeprefix("asc_copy_"))
    drawn = [box(x, y, scale - 1, _ROW - 4, kind)]
    if scale >= 7 * len(short):
        drawn.append(text(x + 3, y + 14, short, size=10))
    return drawn
