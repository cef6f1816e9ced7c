"""What training a GPT-2 of any shape costs on a chip, to play with: sliders above one report."""

from __future__ import annotations

from html import escape
from typing import Any

from gpu_utils.chips import CHIPS
from gpu_utils.costs import activation_bytes, flops_per_token, matmul_params, param_count, state_bytes
from gpu_utils.gpt2 import GPT2Config

GIB = 2**30
_INK, _LINE = "#1f2328", "#8c959f"
_FILLS = ("#dcecff", "#e3f4e1", "#ffe0d6", "#fff4d6")
_WIDTH, _LEFT, _BAR = 900, 250, 420
_VOCAB_SIZE, _HEAD_DIM = 50257, 64
KNOWN_CHIPS = tuple(name for name in CHIPS if CHIPS[name].peak("bf16") and CHIPS[name].memory_gb.value)
"""Chips whose bf16 peak and memory both have a source."""


def memory_parts(config: GPT2Config, batch: int, seq_len: int, fused: bool) -> dict[str, int]:
    """Bytes to train with float32 state and bfloat16 activations, by what holds them."""
    without = activation_bytes(config, batch, seq_len, bytes_per_value=2, scores=False)
    scores = activation_bytes(config, batch, seq_len, bytes_per_value=2) - without
    log_probabilities = 4 * batch * seq_len * config.vocab_size
    return {
        "weights, gradients, moments": sum(state_bytes(config).values()),
        "channels kept for backward": without - log_probabilities,
        "attention scores": 0 if fused else scores,
        "log-probabilities": log_probabilities,
    }


def cost_report(config: GPT2Config, batch: int, seq_len: int, chip_name: str, fused: bool) -> str:
    """The counts for one shape and chip, as HTML with an SVG bar per part of the memory.

    Raises UnknownName for a chip that the registry does not have.
    """
    chip = CHIPS[chip_name]
    parts = memory_parts(config, batch, seq_len, fused)
    needed = sum(parts.values())
    room = chip.memory_gb.value * 1e9
    flops = flops_per_token(config, seq_len)
    verdict = "fits" if needed <= room else "does not fit"
    lines = [
        f"{param_count(config):,} parameters, {flops:,} FLOPs per token to train "
        f"({1 - 6 * matmul_params(config) / flops:.0%} of them attention)",
        f"needs {needed / GIB:.1f} GiB and {verdict} in the {room / GIB:.1f} GiB of {chip.name}",
        f"at most {chip.peak('bf16') * 1e12 / flops:,.0f} tokens/s, were every FLOP of the peak used",
    ]
    words = escape("; ".join(f"{name} {size / GIB:.2f} GiB" for name, size in parts.items()))
    scale = _BAR / max(needed, room)
    svg = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} 190" role="img" aria-label="{words}" '
        f'style="max-width:{_WIDTH}px;width:100%;background:white" font-family="sans-serif" font-size="14">',
        f"<title>{words}</title>",
    ]
    start = 0.0
    for row, ((name, size), fill) in enumerate(zip(parts.items(), _FILLS, strict=True)):
        y = 12 + 32 * row
        x = _LEFT + start * scale
        svg += [
            f'<text x="{_LEFT - 12}" y="{y + 17}" text-anchor="end" fill="{_INK}">{escape(name)}</text>',
            f'<rect x="{x:.1f}" y="{y}" width="{max(size * scale, 1):.1f}" height="24" fill="{fill}" '
            f'stroke="{_LINE}"/>',
            f'<text x="{_LEFT + _BAR + 130}" y="{y + 17}" text-anchor="end" fill="{_INK}">{size / GIB:.2f} GiB</text>',
        ]
        start += size
    edge = _LEFT + room * scale
    label_end = max(edge, _LEFT + 130)
    svg += [
        f'<line x1="{edge:.1f}" y1="6" x2="{edge:.1f}" y2="148" stroke="{_INK}" stroke-width="2" '
        'stroke-dasharray="6 4"/>',
        f'<text x="{label_end:.1f}" y="168" text-anchor="end" fill="{_INK}">memory of {escape(chip.name)}</text>',
        "</svg>",
    ]
    sources = f"memory {chip.memory_gb}; peak {chip.peak_figure('bf16')}"
    body = "".join(f"<p style='margin:2px 0'>{escape(line)}</p>" for line in lines)
    return f"<div>{body}{''.join(svg)}<p style='margin:2px 0;font-size:small'>{escape(sources)}</p></div>"


def explore_costs() -> Any:
    """Sliders for layers, width, tokens and batch, a chip and the kind of attention, and their report below.

    The vocabulary is GPT-2's and a head has 64 channels. It starts as the 124M model at 8 sequences of 1024.
    """
    import ipywidgets as widgets

    def slider(name: str, value: int, low: int, high: int, step: int) -> Any:
        return widgets.IntSlider(value, low, high, step, description=name, continuous_update=True)

    layers, width = slider("layers", 12, 1, 96, 1), slider("width", 768, 64, 8192, 64)
    tokens, batch = slider("tokens", 1024, 128, 16384, 128), slider("batch", 8, 1, 64, 1)
    chip = widgets.Dropdown(options=KNOWN_CHIPS, value="MI300X", description="chip")
    fused = widgets.Checkbox(value=False, description="fused attention (no scores in memory)")
    report = widgets.HTML()

    def update(_: object = None) -> None:
        config = GPT2Config(
            vocab_size=_VOCAB_SIZE,
            n_positions=tokens.value,
            n_embd=width.value,
            n_layer=layers.value,
            n_head=width.value // _HEAD_DIM,
        )
        report.value = cost_report(config, batch.value, tokens.value, chip.value, fused.value)

    controls = (layers, width, tokens, batch, chip, fused)
    for control in controls:
        control.observe(update, names="value")
    update()
    grid = widgets.GridBox(controls, layout=widgets.Layout(grid_template_columns="repeat(2, 380px)"))
    return widgets.VBox([grid, report])
