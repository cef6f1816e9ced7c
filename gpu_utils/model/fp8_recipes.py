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
    # scales of the first step for good, at half of the range: what grows more than twofold is cut off, or becomes NaN
    "frozen": replace(_FNUZ, scaling="static", margin=2.0),
    "frozen, not saturating": replace(_FNUZ, scaling="static", margin=2.0, saturate=False),
}
