"""What training a GPT-2 of any shape costs on a chip."""

from __future__ import annotations

from typing import Any

import ipywidgets as widgets

from gpu_utils.chips import CHIPS
from gpu_utils.errors import UnknownName
from gpu_utils.model.costs import activation_bytes, flops_per_token, matmul_params, param_count, state_bytes
from gpu_utils.model.gpt2 import GPT2Config
from gpu_utils.ui.explore.drawing import Picture, box, path, picture, small, svg, text
from gpu_utils.ui.explore.widget import Explorer, choice, slider

GIB = 2**30
_WIDTH, _LEFT, _BAR = 720, 212, 370
_VOCAB_SIZE, _HEAD_DIM = 50257, 64
KNOWN_CHIPS = tuple(name for name in CHIPS if CHIPS[name].peak("bf16") and CHIPS[name].memory_gb.value)
"""Chips whose bf16 peak and memory both have a source."""


def memory_parts(config: GPT2Config, batch: int, seq_len: int, fused: bool) -> dict[str, int]:
    """Bytes alive when backward begins, by what holds them: state in float32, activations in bfloat16.

    The two gradients are those of the log-probabilities and of the logits, in float32 each as large as the
    log-probabilities: a lower bound of the peak, since operators have temporaries of their own.
    """
    without = activation_bytes(config, batch, seq_len, bytes_per_value=2, scores=False)
    scores = activation_bytes(config, batch, seq_len, bytes_per_value=2) - without
    log_probabilities = 4 * batch * seq_len * config.vocab_size
    return {
        "weights, gradients, moments": sum(state_bytes(config).values()),
        "channels kept for backward": without - log_probabilities,
        "attention probabilities": 0 if fused else scores,
        "log-probabilities": log_probabilities,
        "two gradients of the loss": 2 * log_probabilities,
    }


def draw(config: GPT2Config, batch: int, seq_len: int, chip_name: str, fused: bool) -> Picture:
    """The counts for one shape and chip, with a bar for each part of the memory.

    Raises UnknownName for a chip that the registry does not have, or whose figures are unknown.
    """
    chip = CHIPS[chip_name]
    memory, peak = chip.memory_gb.value, chip.peak("bf16")
    if memory is None or peak is None:
        raise UnknownName("chip with a known memory and bf16 peak", chip_name, KNOWN_CHIPS)
    parts = memory_parts(config, batch, seq_len, fused)
    needed = sum(parts.values())
    kept = needed - parts["two gradients of the loss"]
    room = memory * 1e9
    flops = flops_per_token(config, seq_len)
    verdict = "fits" if needed <= room else "does not fit"
    words = (
        f"{param_count(config):,} parameters, {flops:,} FLOPs per token to train "
        f"({1 - 6 * matmul_params(config) / flops:.0%} of them attention). "
        f"It keeps {kept / GIB:.1f} GiB; when backward begins {needed / GIB:.1f} GiB are alive, and that {verdict} in "
        f"the {memory:g} GB of {chip.name}, taken as {room / GIB:.1f} GiB. "
        f"{peak * 1e12 / flops:,.0f} tokens/s, were every FLOP of the peak used, and attention computed whole."
    )
    scale = _BAR / max(needed, room)
    drawn = []
    start = 0.0
    for row, (name, size) in enumerate(parts.items()):
        y = 12 + 32 * row
        drawn += [
            text(_LEFT - 12, y + 17, name, size=13, at="end"),
            box(_LEFT + start * scale, y, max(size * scale, 1), 24, ("even", "odd")[row % 2]),
            text(_WIDTH - 10, y + 17, f"{size / GIB:.2f} GiB", size=13, at="end"),
        ]
        start += size
    edge = _LEFT + room * scale
    drawn += [
        path([(edge, 6), (edge, 180)], "edge", "6 4"),
        text(max(edge, _LEFT + 130), 200, f"memory of {chip.name}", size=13, at="end"),
    ]
    spoken = "; ".join(f"{name} {size / GIB:.2f} GiB" for name, size in parts.items())
    sources = f"memory {chip.memory_gb}; peak {chip.peak_figure('bf16')}"
    return picture(chip.vendor, words, svg(_WIDTH, 208, drawn, spoken, least=460), after=small(sources))


def _draw(layers: int, width: int, tokens: int, batch: int, chip: str, fused: bool) -> Picture:
    config = GPT2Config(
        vocab_size=_VOCAB_SIZE, n_positions=tokens, n_embd=width, n_layer=layers, n_head=width // _HEAD_DIM
    )
    return draw(config, batch, tokens, chip, fused)


def explorer() -> Any:
    """Sliders for layers, width, tokens and batch, a chip and the kind of attention, and their report below.

    The vocabulary is GPT-2's and a head has 64 channels. It starts as the 124M model at 8 sequences of 1024, on an
    H100.
    """
    controls = {
        "layers": slider("layers", 12, 1, 96),
        "width": slider("width", 768, 64, 8192, 64),
        "tokens": slider("tokens", 1024, 128, 16384, 128),
        "batch": slider("batch", 8, 1, 64),
        "chip": choice("chip", KNOWN_CHIPS, "H100"),
        "fused": widgets.Checkbox(value=False, description="fused attention"),
    }
    return Explorer(_draw, controls)
