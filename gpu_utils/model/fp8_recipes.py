"""Recipes of FP8 training, good and bad: one row each, by name."""

from __future__ import annotations

from dataclasses import replace

import torch

from gpu_utils.model.fp8_linear import E4M3_FNUZ, E5M2, Recipe

_BF16 = torch.bfloat16
_TENSOR = Recipe(tiles="tensor", blocks="tensor")
_FNUZ = replace(_TENSOR, x=E4M3_FNUZ, w=E4M3_FNUZ, dy=E4M3_FNUZ)

RECIPES = {
    # the yardstick
    "bf16": replace(_TENSOR, x=_BF16, w=_BF16, dy=_BF16),
    # arXiv 2412.19437, section 3.3: E4M3 for all, scales of the matrix itself
    "deepseek": Recipe(),
    "e5m2 gradients": Recipe(dy=E5M2),
    "mx": Recipe(tiles="mx32", blocks="mx32"),
    "row": Recipe(tiles="row", blocks="row"),
    "tensor": _TENSOR,
    # as DelayedScaling in the user guide of NVIDIA's Transformer Engine, but for its 1,024 passes and E5M2 gradients
    "delayed": replace(_TENSOR, scaling="delayed"),
    # no scales: gradients below 2^-10, half of the smallest E4M3 number, become zero; E5M2 reaches 2^7 times lower
    "plain cast": replace(_TENSOR, scaling="none"),
    "plain cast, e5m2 gradients": replace(_TENSOR, scaling="none", dy=E5M2),
    # E4M3 as the MI300X has it, largest number 240
    "fnuz": _FNUZ,
    # scales of x and w from the first step for good, with room for half as much again: what grows out of it is NaN
    "frozen": replace(_FNUZ, dy=_BF16, scaling="static", margin=1.5, saturate=False),
    # scales that follow, with room for twice the largest amax: a gradient may jump out of it
    "delayed, not clipped": replace(_FNUZ, scaling="delayed", margin=2.0, saturate=False),
    "delayed, clipped": replace(_FNUZ, scaling="delayed", margin=2.0),
}
