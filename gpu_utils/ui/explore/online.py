"""The online softmax, block by block: the logits of a row, maximum and sum so far, and how a block joins them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import ipywidgets as widgets

from gpu_utils.analytic.online import Merge, exact, merges
from gpu_utils.errors import BadArgument
from gpu_utils.ui.explore.drawing import Picture, box, heading, path, picture, small, svg, table, text
from gpu_utils.ui.explore.widget import Explorer, slider

LOGITS = (
    *(0.4, -0.9, 1.1, -1.6, 0.2, 1.5, -0.3, 0.8),
    *(-1.2, 0.6, 2.3, -0.5, 1.0, -2.0, 0.1, 1.7),
    *(0.3, -0.7, 1.2, 0.9, -1.1, 1.9, -0.2, 0.5),
    *(3.1, -0.4, 0.7, 2.6, -1.4, 0.0, 1.3, -0.8),
)
"""32 logits whose maximum grows in the second and in the last eight, and not in the third."""

MASKED = 8
"""As many elements at the front are -inf where the row is masked."""

_MOST = 64
_LEFT, _CELL, _TOP, _HIGH, _LOW = 74.0, 20.0, 22.0, 120.0, 84.0


def draw(logits: Sequence[float], block: int, step: int, masked: bool, guarded: bool) -> Picture:
    """The state after `step` blocks.

    logits   the row; masked: its first MASKED elements are -inf
    block    elements of a block; step: from 1 on, a larger one stands for the last
    guarded  whether 0 is subtracted where the maximum so far is -inf

    Errors: BadArgument, as for `merges`.
    """
    row = [-math.inf if masked and at < MASKED else float(x) for at, x in enumerate(logits)]
    found = merges(row, block, guarded=guarded)
    now = found[min(step, len(found)) - 1]
    done = found[: min(step, len(found))]
    words = _words(row, done, len(found))
    width = _LEFT + len(row) * max(_CELL, 640 / len(row)) + 8
    rows = [
        (f"{at.start} to {at.stop - 1}", *map(_number, (at.block_max, at.m, at.factor, at.l_old, at.added, at.l)))
        for at in done
    ]
    heads = ("elements", "their maximum", "m", "factor exp(m_old - m)", "l before", "block adds", "l")
    return picture(
        "",
        words,
        heading(f"After block {len(done)} of {len(found)}: m = {_number(now.m)}, l = {_number(now.l)}"),
        svg(width, *_drawn(row, done, width), words, least=560),
        table(heads, rows, [len(rows) - 1]),
        after=small(
            "l = factor * l before + what the block adds, in float32. Below: exp(x - m) of every element so far, whose "
            f"sum {'would be l' if math.isnan(now.l) else 'is l'}; a dashed frame is what an element was worth before "
            "m grew."
        ),
    )


def _number(value: float) -> str:
    """
    >>> _number(float("-inf")), _number(0.036883), _number(float("nan")), _number(2)
    ('-inf', '0.0369', 'NaN', '2')
    """
    return "NaN" if math.isnan(value) else f"{value:.3g}"


def _words(row: Sequence[float], done: Sequence[Merge], blocks: int) -> str:
    now = done[-1]
    m, total = exact(row[: now.stop])
    where = f"Block {len(done)} of {blocks}, elements {now.start} to {now.stop - 1}: its maximum is"
    said = [f"{where} {_number(now.block_max)}."]
    if now.m == -math.inf:
        if math.isnan(now.l):
            said.append("All so far is -inf, and exp(-inf - (-inf)) is NaN: m = -inf, and l is NaN from here on.")
        else:
            said.append("All so far is -inf: 0 is subtracted in place of m, every exp(-inf - 0) is 0, and l stays 0.")
    else:
        if now.m_old == -math.inf:
            said.append(f"It is the first number: m = {_number(now.m)}.")
        elif now.m > now.m_old:
            said.append(f"It is larger than m = {_number(now.m_old)}, so m = {_number(now.m)}.")
        else:
            said.append(f"It is not larger than m, which stays {_number(now.m)}.")
        said.append(
            f"l = exp({_number(now.m_old)} - {_number(now.m)}) * {_number(now.l_old)} + {_number(now.added)} = "
            f"{_number(now.factor)} * {_number(now.l_old)} + {_number(now.added)} = {_number(now.l)}."
        )
    said.append(
        f"In float64, over the same elements at once: m = {_number(m)}, l = {total:.9g}; {_verdict(now, total)}."
    )
    return " ".join(said)


def _verdict(now: Merge, total: float) -> str:
    if math.isnan(now.l):
        return "the l of float32 is NaN, and no later block repairs it"
    if not total:
        return "they agree"
    return f"the l of float32 is {now.l:.9g}, {abs(now.l - total) / total:.0e} away"


def _drawn(row: Sequence[float], done: Sequence[Merge], width: float) -> tuple[float, list[str]]:
    """Logits above (as bars from 0), what each is worth below: exp(x - m), between 0 and 1."""
    now = done[-1]
    cell = (width - _LEFT - 8) / len(row)
    finite = [x for x in row if x != -math.inf] or [0.0]
    high, low = max(*finite, 0.5), min(*finite, -0.5)
    scale = _HIGH / (high - low)
    zero, floor = _TOP + high * scale, _TOP + _HIGH + 40 + _LOW
    parts = [text(0, zero + 4, "logit 0", size=11), path([(_LEFT, zero), (width - 8, zero)], "line")]
    parts += [text(0, floor - _LOW + 4, "exp(x-m) 1", size=11), text(0, floor + 4, "0", size=11)]
    parts += [path([(_LEFT, y), (width - 8, y)], "grid" if y < floor else "line") for y in (floor - _LOW, floor)]
    for number, merge in enumerate(done):
        parts += _block(row, merge, number, merge is now, cell, (zero, scale, floor), now)
    for at in range(now.stop, len(row)):
        x, logit = _LEFT + at * cell, row[at]
        if logit == -math.inf:
            parts.append(_minus_inf(x, cell, zero))
        else:
            parts.append(box(x + 1.5, zero - max(logit, 0) * scale, cell - 3, abs(logit) * scale))
    for m, dashes, end in ((now.m_old, "4 3", now.start), (now.m, "", now.stop)):
        if m != -math.inf:
            parts.append(path([(_LEFT, zero - m * scale), (_LEFT + end * cell, zero - m * scale)], "edge", dashes))
    if now.m != -math.inf:
        parts.append(text(_LEFT - 4, zero - now.m * scale + 4, f"m {_number(now.m)}", size=11, at="end", bold=True))
    left, right = _LEFT + now.start * cell, _LEFT + now.stop * cell
    parts.append(path([(left, 8), (left, floor + 5), (right, floor + 5), (right, 8), (left, 8)], "hue"))
    return floor + 22, [*parts, *_numbers(row, cell, floor)]


def _block(
    row: Sequence[float],
    merge: Merge,
    number: int,
    current: bool,
    cell: float,
    place: tuple[float, float, float],
    now: Merge,
) -> list[str]:
    """The bars of one block that has joined; `now` is the last that has."""
    zero, scale, floor = place
    kind, parts = ("even", "odd")[number % 2], []
    for at in range(merge.start, merge.stop):
        x = _LEFT + at * cell
        if row[at] == -math.inf:
            parts.append(_minus_inf(x, cell, zero))
        else:
            parts.append(box(x + 1.5, zero - max(row[at], 0) * scale, cell - 3, abs(row[at]) * scale, kind))
            if not current and now.m > now.m_old:
                before = _LOW * math.exp(row[at] - now.m_old)
                frame = [(x + 1.5, floor), (x + 1.5, floor - before), (x + cell - 1.5, floor - before)]
                parts.append(path([*frame, (x + cell - 1.5, floor)], "line", "2 2"))
            worth = _LOW * math.exp(row[at] - now.m)
            parts.append(box(x + 1.5, floor - worth, cell - 3, worth, kind))
    return parts


def _minus_inf(x: float, cell: float, zero: float) -> str:
    return text(x + cell / 2, zero - 4, "-∞", size=min(11, cell * 0.6), at="middle")


def _numbers(row: Sequence[float], cell: float, floor: float) -> list[str]:
    every = 1 if cell >= 16 else 4
    return [text(_LEFT + (at + 0.5) * cell, floor + 18, at, size=9, at="middle") for at in range(0, len(row), every)]


def explorer(
    logits: Sequence[float] = LOGITS, *, block: int = 8, step: int = 2, masked: bool = False, guarded: bool = True
) -> Any:
    """A row of logits, a slider for the size of a block and one for the block that has just joined.

    logits  2 to 64 numbers; masked: the first eight are -inf; guarded: 0 is subtracted where the maximum is -inf

    Errors: BadArgument for another row, or a block or step that the row does not have.
    """
    if not 2 <= len(logits) <= _MOST or not all(map(math.isfinite, logits)):
        raise BadArgument(f"the row {list(logits)} cannot be drawn; expected 2 to {_MOST} finite numbers")
    if not 1 <= block <= len(logits) or not 1 <= step <= -(-len(logits) // block):
        raise BadArgument(
            f"block is {block} and step {step}; expected a block of 1 to {len(logits)} elements and one of its steps"
        )
    controls = {
        "block": slider("elements a block", block, 1, len(logits)),
        "step": slider("block number", step, 1, -(-len(logits) // block)),
        "masked": widgets.Checkbox(masked, description=f"the first {MASKED} are -inf (masked)", indent=False),
        "guarded": widgets.Checkbox(guarded, description="subtract 0 where m is -inf", indent=False),
    }
    found = Explorer(partial(draw, logits), controls)

    def steps(change: Any) -> None:
        controls["step"].max = -(-len(logits) // change["new"])

    controls["block"].observe(steps, names="value")
    return found
