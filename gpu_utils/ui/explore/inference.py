"""What a model needs to run, weights, cache and activations, held against the memory of several chips."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import ipywidgets as widgets

from gpu_utils.analytic.inference import MODELS, MemoryPlan, largest_batch, largest_context, plan
from gpu_utils.chips import CHIPS
from gpu_utils.errors import BadArgument
from gpu_utils.ui.explore.drawing import Picture, box, heading, path, picture, small, svg, table, text
from gpu_utils.ui.explore.widget import Explorer, choice, slider

WIDTHS = {"bf16, 2 bytes": 2.0, "fp8, 1 byte": 1.0}
CONTEXTS = [2**power for power in range(9, 18)]
_WIDTH, _LEFT, _BAR, _ROW = 720.0, 136.0, 350.0, 46.0


def draw(
    model: str, batch: int, context: int, weight_bytes: float, cache_bytes: float, together: int, chips: Sequence[str]
) -> Picture:
    """A bar for each chip: its memory, and in it what `batch` sequences of `context` tokens need.

    model  of gpu_utils.analytic.inference.MODELS; weight_bytes, cache_bytes: of one value; together: chips that share

    Errors: UnknownName for a chip; UnknownFigure for a chip whose memory has no source.
    """
    row = MODELS[model]
    sizes: dict[str, Any] = {"weight_bytes": weight_bytes, "cache_bytes": cache_bytes, "chips": together}
    plans = {name: plan(name, row, batch, context, **sizes) for name in chips}
    need = next(iter(plans.values()))
    parts = {"weights": need.weights, "cache": need.cache, "activations": need.activations}
    room = {
        name: (largest_batch(name, row, context, **sizes), largest_context(name, row, batch, **sizes)) for name in chips
    }
    listed = ", ".join(f"{name} {_gb(size)}" for name, size in parts.items())
    verdicts = " ".join(f"{_group(name, together)}: {_verdict(found)}." for name, found in plans.items())
    words = f"{model} needs {_gb(need.total)}: {listed}. {verdicts}"
    kinds = [(m.name, m.cache.kind, f"{m.cache.per_token(cache_bytes) / 1024:,.1f} KiB") for m in MODELS.values()]
    fits = [(_group(name, together), f"{b:,}", f"{c:,}") for name, (b, c) in room.items()]
    return picture(
        "",
        words,
        heading(f"{model} ({row.cache.kind}): {batch} sequences of {context:,} tokens"),
        small(f"In each bar, from the left: {listed}."),
        svg(_WIDTH, len(plans) * _ROW + 4, _bars(plans, parts, together), words, least=460),
        '<div class="sides"><div class="side">',
        table(("chip", f"sequences of {context:,} tokens that fit", f"tokens that fit in each of {batch}"), fits),
        '</div><div class="side">',
        table(("model", "attention", "cache of a token"), kinds, [list(MODELS).index(model)]),
        "</div></div>",
        after=small(
            f"GB = 10^9 bytes. Model: {row.source}. Memory: "
            + "; ".join(f"{name} {CHIPS[name].memory_gb}" for name in chips)
            + ". What the runtime keeps and what fragments is not counted."
        ),
    )


def _gb(size: float) -> str:
    return f"{size / 1e9:,.1f} GB"


def _group(name: str, together: int) -> str:
    return f"{together} x {name}" if together > 1 else name


def _verdict(found: MemoryPlan) -> str:
    return f"fits, {_gb(found.free)} free" if found.fits else f"does not fit, {_gb(-found.free)} too much"


def _bars(plans: dict[str, MemoryPlan], parts: dict[str, int], together: int) -> list[str]:
    """A frame as long as the memory of each chip; what is past its end does not fit and has a dashed edge."""
    widest = max(found.capacity for found in plans.values())
    scale = _BAR / (widest * 1.15)
    drawn: list[str] = []
    for number, (name, found) in enumerate(plans.items()):
        y = 4 + number * _ROW
        drawn.append(f'<g class="{CHIPS[name].vendor}">')
        drawn += [
            box(_LEFT, y, found.capacity * scale, 28, "room"),
            text(_LEFT - 8, y + 13, _group(name, together), at="end", bold=True),
        ]
        drawn.append(text(_LEFT - 8, y + 28, _gb(found.capacity), at="end", size=11))
        start = 0.0
        for part, (label, size) in enumerate(parts.items()):
            left, right = start * scale, min((start + size) * scale, _BAR)
            start += size
            if right > left:
                drawn.append(box(_LEFT + left, y + 3, right - left, 22, ("even", "odd")[part % 2]))
            if right - left > 7 * len(label):
                drawn.append(text(_LEFT + (left + right) / 2, y + 18, label, at="middle", size=11))
        edge = _LEFT + found.capacity * scale
        drawn.append(path([(edge, y - 4), (edge, y + 34)], "hue", "" if found.fits else "4 3"))
        if start * scale > _BAR:
            drawn.append(text(_LEFT + _BAR + 2, y + 20, "»", size=18, bold=True))
        sign = "✓" if found.fits else "✗"
        drawn += [text(_LEFT + _BAR + 20, y + 19, f"{sign} {_verdict(found)}", size=11), "</g>"]
    return drawn


def explorer(
    model: str = "Mistral-7B",
    *,
    batch: int = 16,
    context: int = 8192,
    chips: Sequence[str] = ("H100", "H200", "MI300X", "RX 7900 XTX"),
) -> Any:
    """A model of the table, the number of sequences, their length, and the formats of weights and cache.

    context  a power of two from 512 to 131072; chips: names of the registry, one at least

    Errors: BadArgument for another context or no chips; UnknownName for a model or a chip.
    """
    if context not in CONTEXTS or not chips:
        raise BadArgument(
            f"context is {context} and there are {len(chips)} chips; expected one of {CONTEXTS} and a chip"
        )
    lengths = widgets.SelectionSlider(
        options=[(f"{length:,}", length) for length in CONTEXTS],
        value=context,
        description="tokens each",
        style={"description_width": "120px"},
        layout=widgets.Layout(flex="1 1 340px", min_width="0"),
    )
    controls = {
        "model": choice("model", [(f"{m.name} ({m.cache.kind})", name) for name, m in MODELS.items()], model),
        "batch": slider("sequences", batch, 1, 512),
        "context": lengths,
        "together": slider("chips together", 1, 1, 16),
        "weight_bytes": choice("weights", list(WIDTHS.items()), 2.0),
        "cache_bytes": choice("cache", list(WIDTHS.items()), 2.0),
    }
    return Explorer(partial(draw, chips=tuple(chips)), controls)
