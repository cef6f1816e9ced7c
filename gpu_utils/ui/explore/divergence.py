"""A branch on two warps of 32 lanes and on one wavefront of 64: the same 64 threads, compiled and executed for both.

The kernel asks `if (takes[lane])`, so that one compiled kernel serves every condition.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from html import escape
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

from gpu_utils.analytic.expression import truths
from gpu_utils.chips import TARGETS
from gpu_utils.compiler.clang import compile_cpp
from gpu_utils.errors import BackendUnavailable, W2WError
from gpu_utils.ui.explore.drawing import Picture, box, count, heading, picture, small, svg, text, wave
from gpu_utils.ui.explore.widget import Explorer, Sides, choice, slider, typed
from gpu_utils.ui.wave_figure import WaveFigure, lane_ranges, short, strip
from gpu_utils.virtual import virtual_gpu

THREADS = 64
EXAMPLES = ("lane < 16", "lane < 32", "lane < 48", "lane % 2", "lane % 32 < 8", "lane == 40", "lane < 64", "lane < 0")
SOURCE = """\
extern "C" __global__ void branch(
    const int *takes, const float *x, float *out) {
  int lane = threadIdx.x;
  if (takes[lane])
    out[lane] = x[lane] * 2.0f + 1.0f;
  else
    out[lane] = x[64 + lane] - 3.0f;
}
"""
CODES = {"C++": "C++: if and else", "Triton": "Triton: two masks"}
_LEGEND = {
    "nvidia": "Filled: lanes that take part. Empty: lanes that wait. Nothing: the warp skips it. PTX, before ptxas.",
    "amd": "Filled: lanes that are on (EXEC). Empty: lanes that are off. Thin: a scalar instruction, without lanes.",
}
_ROW, _CELL, _LETTERS, _WIDTH = 15.0, 3.0, 42, 480.0


@triton.jit
def masks_kernel(takes_ptr, x_ptr, out_ptr):
    lane = tl.arange(0, 64)
    takes = tl.load(takes_ptr + lane) != 0
    x = tl.load(x_ptr + lane, mask=takes)
    tl.store(out_ptr + lane, x * 2 + 1, mask=takes)
    y = tl.load(x_ptr + 64 + lane, mask=~takes)
    tl.store(out_ptr + lane, y - 3, mask=~takes)


@dataclass(frozen=True)
class Row:
    """One instruction, with its text and its source line.

    masks  for each wave the lanes that took part; None where the wave skipped it
    steps  for each wave the number of its step, or None
    """

    text: str
    line: int | None
    masks: tuple[np.ndarray | None, ...]
    steps: tuple[int | None, ...]

    @property
    def scalar(self) -> bool:
        """An AMD instruction that runs once for the whole wavefront and takes no lanes."""
        return self.text.startswith("s_")


@lru_cache(maxsize=64)
def waves(condition: str, code: str, target: str) -> tuple[WaveFigure, ...]:
    """What each wave of the 64 threads did, executed on the virtual GPU.

    Errors: BadArgument for a condition that cannot be read; CompilerMissing for C++ without the extra `hip`.
    """
    takes = torch.tensor(truths(condition, THREADS), dtype=torch.int32)
    figures = []
    for number in range(THREADS // TARGETS[target].lanes):
        x, out = torch.arange(2.0 * THREADS), torch.zeros(THREADS)
        with virtual_gpu(target) as gpu, gpu.trace(wave=number) as trace:
            if code == "C++":
                gpu.load(compile_cpp(SOURCE, target)).launch("branch", 1, THREADS, [takes, x, out])
            else:
                with triton.knobs.amd.scope():
                    triton.knobs.amd.use_buffer_ops = False
                    _without_buffers()[(1,)](takes, x, out, num_warps=THREADS // TARGETS[target].lanes)
        figures.append(WaveFigure(trace, target, None if code == "C++" else masks_kernel))
    return tuple(figures)


@lru_cache(maxsize=1)
def _without_buffers() -> Any:
    """The kernel with a cache of its own: elsewhere it may have been compiled with buffer instructions."""
    return triton.jit(masks_kernel.fn)


def rows(figures: Sequence[WaveFigure]) -> list[Row]:
    """The instructions that some wave executed, in the order of the program."""
    found: dict[int, dict[int, int]] = {}
    for number, figure in enumerate(figures):
        for at, step in enumerate(figure.steps):
            found.setdefault(step.index, {})[number] = at
    table = []
    for index in sorted(found):
        steps = tuple(found[index].get(number) for number in range(len(figures)))
        masks = tuple(None if at is None else _mask(figures[number], at) for number, at in enumerate(steps))
        first, at = next(iter(found[index].items()))
        step = figures[first].steps[at]
        table.append(Row(step.text, step.line[1] if step.line else None, masks, steps))
    return table


def _mask(figure: WaveFigure, at: int) -> np.ndarray:
    """Lanes that took part: those that are on and, with a guard, meet it. The guard of a branch says who jumps."""
    masks = [mask for _, mask in figure.lane_masks(at)]
    return masks[0] if " bra" in figure.steps[at].text else np.logical_and.reduce(masks)


def draw(target: str, condition: str, code: str, step: int) -> Picture:
    """All instructions of the waves of one target with their lanes; a closer look at number `step`, from 1."""
    figures = waves(condition, code, target)
    table = rows(figures)
    step = min(step, len(table)) - 1
    vendor = TARGETS[target].vendor
    words = f"{_step_words(vendor, table, step)} {_total_words(vendor, table)}"
    return picture(
        vendor,
        words,
        heading(f"{target}: 64 threads are {count(len(figures), wave(vendor))}"),
        svg(_WIDTH, len(table) * _ROW + 22, _listing(vendor, table, step), _total_words(vendor, table), least=400),
        small(_LEGEND[vendor]),
        _closer(figures, table[step], step, code),
    )


def _step_words(vendor: str, table: list[Row], step: int) -> str:
    row, kind = table[step], wave(vendor)
    where = f", line {row.line}" if row.line else ""
    lanes = "; ".join(
        f"{kind} {number} skips it" if mask is None else f"{kind} {number}: {lane_ranges(mask)}"
        for number, mask in enumerate(row.masks)
    )
    return f"Instruction {step + 1} of {len(table)}, {row.text}{where}. {lanes}."


def _total_words(vendor: str, table: list[Row]) -> str:
    issued = [sum(mask is not None for mask in masks) for masks in zip(*(row.masks for row in table), strict=True)]
    vector = [mask for row in table if not row.scalar for mask in row.masks if mask is not None]
    slots, used = sum(mask.size for mask in vector), sum(int(mask.sum()) for mask in vector)
    what = (
        f"The {wave(vendor)}{'s issue' if len(issued) > 1 else ' issues'} {' and '.join(map(str, issued))} instructions"
    )
    kind = "" if vendor == "nvidia" else " of vector instructions"
    return f"{what}; {slots - used:,} of {slots:,} lane slots{kind} are lost."


def _listing(vendor: str, table: list[Row], step: int) -> list[str]:
    """A row for each instruction: lanes that take part are filled, lost ones empty, scalar instructions thin."""
    left, between = 276.0, 6.0
    drawn = []
    for number in range(len(table[0].masks)):
        lanes = THREADS // len(table[0].masks)
        x = left + number * (lanes * _CELL + between)
        name = f"{wave(vendor)} {number}: {lanes} lanes"
        fits = len(name) * 5.6 < lanes * _CELL + between
        drawn.append(text(x, 11, name if fits else f"{wave(vendor)} {number}", size=11))
        for at, row in enumerate(table):
            mask, y = row.masks[number], 18 + at * _ROW
            if mask is None:
                continue
            top, height = (y + 6, 3) if row.scalar else (y + 2, _ROW - 4)
            drawn.append(box(x, top, lanes * _CELL, height))
            drawn += [box(x + a * _CELL, top, (b - a) * _CELL, height, "even") for a, b in _runs(mask)]
    drawn.append(text(0, 11, "line  instruction", size=11))
    drawn.append(box(0.5, 18 + step * _ROW, _WIDTH - 1, _ROW, "now"))
    for at, row in enumerate(table):
        shown = row.text if len(row.text) <= _LETTERS else row.text[: _LETTERS - 1] + "…"
        label = f"{'▸' if at == step else ' '}{row.line or '':>2} {shown}".replace(" ", "\N{NO-BREAK SPACE}")
        drawn.append(f'<g class="mono">{text(1, 29 + at * _ROW, label, size=9.6, bold=at == step)}</g>')
    return drawn


def _runs(mask: np.ndarray) -> list[tuple[int, int]]:
    """(first, end) of each run of lanes that are on."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8)))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def _closer(figures: Sequence[WaveFigure], row: Row, step: int, code: str) -> str:
    """One instruction: its place in the source, the lanes of each wave, and what it wrote."""
    kind = wave(TARGETS[figures[0].target].vendor)
    parts = [f"<p><b>{step + 1}</b> <code>{escape(row.text)}</code></p>", _source(row.line, code)]
    for number, (figure, at) in enumerate(zip(figures, row.steps, strict=True)):
        if at is None:
            parts.append(f"<p>{kind} {number} does not come here: none of its lanes takes this path.</p>")
            continue
        parts += [strip(f"{kind} {number}, {words}", mask) for words, mask in figure.lane_masks(at)]
        changed, on = figure.steps[at].changed, next(mask for _, mask in figure.lane_masks(at))
        wrote = "; ".join(f"{name} = {short(name, _of_active(bits, on))}" for name, bits in changed.items())
        parts.append(small(f"wrote {wrote}" if wrote else "no register changed"))
    return f'<div class="closer">{"".join(parts)}</div>'


def _of_active(bits: np.ndarray, on: np.ndarray) -> np.ndarray:
    """A vector register's values in the lanes that took part; anything else as it is."""
    return bits[on] if bits.shape == on.shape and bits.dtype != bool and on.any() else bits


def _source(line: int | None, code: str) -> str:
    """The kernel with an arrow at a line."""
    first, lines = 1, SOURCE.splitlines()
    if code == "Triton":
        first, lines = masks_kernel.starting_line_number, masks_kernel.raw_src
    marked = [f"{'▸' if number == line else ' '} {words.rstrip()}" for number, words in enumerate(lines, first)]
    return f"<pre>{escape(chr(10).join(marked))}</pre>"


def explorer(
    condition: str = "lane < 48", *, code: str | None = None, nvidia: str = "sm_80", amd: str = "gfx942"
) -> Any:
    """Two warps beside one wavefront, each with a slider that goes from instruction to instruction.

    condition    an expression in `lane`, which is 0 to 63; true where the lane takes the `if`
    code         "C++" (a branch; the default where the extra `hip` is installed) or "Triton" (masks; always there)
    nvidia, amd  targets that a virtual GPU has

    Errors: BadArgument for a condition that cannot be read; CompilerMissing for code="C++" without the extra.
    """
    codes = dict(CODES)
    if code is None:
        try:
            waves(condition, "C++", nvidia)
        except BackendUnavailable:
            del codes["C++"]
        code = next(iter(codes))
    shared = {
        "condition": typed("lanes that take it", condition, EXAMPLES),
        "code": choice("code", [(label, name) for name, label in codes.items()], code),
    }
    sides = []
    for target in (nvidia, amd):
        table = rows(waves(condition, code, target))
        parts_at = next((at for at, row in enumerate(table) if any(m is None or not m.all() for m in row.masks)), 0)
        steps = slider("instruction", parts_at + 1, 1, len(table))
        sides.append(Explorer(partial(draw, target), {**shared, "step": steps}, shared=shared))

    def fit(_: object) -> None:
        """Another condition may run another number of instructions."""
        with suppress(W2WError):
            for target, side in zip((nvidia, amd), sides, strict=True):
                table = rows(waves(shared["condition"].value, shared["code"].value, target))
                side.controls["step"].max = len(table)

    for control in shared.values():
        control.observe(fit, names="value")
    left, right = sides
    return Sides(left, right, above=list(shared.values()))
