"""Recipes of FP8 training, good and bad: one row each."""

from __future__ import annotations

import torch

from gpu_utils.model.fp8_linear import E5M2, Recipe

_BF16 = torch.bfloat16

RECIPES = {
    "bf16": Recipe(x=_BF16, w=_BF16, dy=_BF16, tiles="tensor", blocks="tensor"),
    "deepseek": Recipe(),
    "e5m2 gradients": Recipe(dy=E5M2),
    "mx": Recipe(tiles="mx32", blocks="mx32"),
    "row": Recipe(tiles="row", blocks="row"),
    "tensor": Recipe(tiles="tensor", blocks="tensor"),
    "delayed": Recipe(tiles="tensor", blocks="tensor", scaling="delayed"),
}
