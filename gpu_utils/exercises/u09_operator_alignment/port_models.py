"""The pairs of models of 09.layer_diff: a small decoder written in two ways, with faults at places of one's choice.

A model is described by plain data, so that it can be built where the answer runs:
    layers, width, heads, seed   its shape, and the seed of its weights
    how                          "plain", or "other": other operators for the same functions
    dtype                        "float32" or "bfloat16"
    faults                       (path of a module, what is wrong there), ...
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

VOCABULARY = 101
EPS, BASE = 1e-5, 10_000.0
SCORES = 2.0
"""Weights of q and k are drawn so much larger that a softmax has something to say."""


class Norm(nn.Module):
    """x / sqrt(mean(x²) + eps) * weight."""

    def __init__(self, width: int, how: str) -> None:
        super().__init__()
        self.weight, self.eps, self.how = nn.Parameter(torch.ones(width)), EPS, how

    def forward(self, x: Tensor) -> Tensor:
        if self.how == "other":
            return F.rms_norm(x, self.weight.shape, self.weight, self.eps)
        return x * (x.square().mean(-1, keepdim=True) + self.eps).rsqrt() * self.weight


class Rope(nn.Module):
    """Turns the pairs (i, i + half) of q and k, each (batch, heads, T, head), by the angle of their position."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.base, self.shift_k, self.how = BASE, 0, how

    def forward(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return self._turned(q, 0), self._turned(k, self.shift_k)

    def _turned(self, x: Tensor, shift: int) -> Tensor:
        half = x.shape[-1] // 2
        positions = torch.arange(x.shape[-2], dtype=torch.float32) + shift
        angles = torch.outer(positions, self.base ** (-torch.arange(half, dtype=torch.float32) / half))
        first, second = x.float().split(half, dim=-1)
        if self.how == "other":
            turned = torch.complex(first, second) * torch.polar(torch.ones_like(angles), angles)
            return torch.cat([turned.real, turned.imag], dim=-1).to(x.dtype)
        cos, sin = angles.cos(), angles.sin()
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1).to(x.dtype)


class Core(nn.Module):
    """softmax(q kᵀ scale, masked) v: three times (batch, heads, T, head) -> the same."""

    def __init__(self, head: int, how: str) -> None:
        super().__init__()
        self.scale, self.offset, self.how = head**-0.5, 0, how

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        visible = torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool).tril(self.offset)
        if self.how == "other":
            return F.scaled_dot_product_attention(q, k, v, attn_mask=visible, scale=self.scale)
        scores = (q @ k.transpose(-1, -2)) * self.scale
        return scores.masked_fill(~visible, -torch.inf).softmax(dim=-1) @ v


class Act(nn.Module):
    """GELU."""

    def __init__(self) -> None:
        super().__init__()
        self.kind = "none"

    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(x, approximate=self.kind)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, rope: Rope, how: str) -> None:
        super().__init__()
        self.heads = heads
        self.core, self.rope = Core(width // heads, how), rope
        self.o, self.v, self.k, self.q = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (self.q, self.k, self.v))
        return self.o(self.core(*self.rope(q, k), v).transpose(1, 2).flatten(2))


class MLP(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.down, self.act, self.up = nn.Linear(2 * width, width), Act(), nn.Linear(width, 2 * width)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.act(self.up(x)))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, rope: Rope, how: str) -> None:
        super().__init__()
        self.mlp, self.norm_2 = MLP(width), Norm(width, how)
        self.attn, self.norm_1 = Attention(width, heads, rope, how), Norm(width, how)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm_1(x))
        return x + self.mlp(self.norm_2(x))


class Decoder(nn.Module):
    """tokens (batch, T) int64 -> logits (batch, T, 101). Its modules do not stand in the order of execution."""

    def __init__(self, layers: int, width: int, heads: int, how: str) -> None:
        super().__init__()
        self.head, self.norm = nn.Linear(width, VOCABULARY, bias=False), Norm(width, how)
        self.layers = nn.ModuleList(Block(width, heads, Rope(how), how) for _ in range(layers))
        self.embed = nn.Embedding(VOCABULARY, width)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def build(described: Mapping[str, Any]) -> Decoder:
    """The model that plain data describes, in evaluation mode; its weights depend on the seed alone."""
    model = Decoder(described["layers"], described["width"], described["heads"], described["how"])
    generator = torch.Generator().manual_seed(described["seed"])
    with torch.no_grad():
        for name, weight in sorted(model.named_parameters()):
            weight.copy_(_drawn(name, weight, generator))
    model.to(getattr(torch, described["dtype"]))
    for path, fault in described["faults"]:
        _spoil(model.get_submodule(path), fault)
    return model.eval()


def _drawn(name: str, weight: Tensor, generator: torch.Generator) -> Tensor:
    x = torch.randn(weight.shape, generator=generator)
    if weight.dim() == 1:
        return 1 + 0.2 * x if "norm" in name else 0.1 * x
    if "embed" in name:
        return x
    return x * (SCORES if name.endswith(("q.weight", "k.weight")) else 1.0) / weight.shape[1] ** 0.5


def _spoil(module: Any, fault: str) -> None:
    if fault == "eps":
        module.eps = 100 * EPS
    elif fault == "rope base":
        module.base = 500.0
    elif fault == "rope of k":
        module.shift_k = 1
    elif fault == "mask sees the next":
        module.offset = 1
    elif fault == "mask without itself":
        module.offset = -1  # the first token sees nothing: NaN
    elif fault == "scale":
        module.scale = module.scale**2
    elif fault == "tanh":
        module.kind = "tanh"
    elif fault == "transposed weight":
        module.weight = nn.Parameter(module.weight.detach().T.contiguous())
    else:
        raise ValueError(fault)


IN_LAYER = ("norm_1", "attn.q", "attn.k", "attn.v", "attn.rope", "attn.core", "attn.o", "norm_2", "mlp.up", "mlp.act",
            "mlp.down")  # fmt: skip
"""Modules without inner ones, in order of execution."""

PLACES = {
    "eps": ("norm_1", "norm_2"),
    "rope base": ("attn.rope",),
    "rope of k": ("attn.rope",),
    "mask sees the next": ("attn.core",),
    "mask without itself": ("attn.core",),
    "scale": ("attn.core",),
    "tanh": ("mlp.act",),
    "transposed weight": ("attn.q", "attn.k", "attn.v", "attn.o"),
}
"""Fault -> the modules of a layer that can have it. `norm` at the end can have "eps" too."""


def order(layers: int) -> list[str]:
    """Paths of the modules without inner ones, in order of execution."""
    return ["embed", *(f"layers.{i}.{name}" for i in range(layers) for name in IN_LAYER), "norm", "head"]


def first_fault(described: Mapping[str, Any]) -> str | None:
    """The first faulty module of a described model; None where it has none."""
    faulty: Sequence[str] = [path for path, _ in described["faults"]]
    return next((path for path in order(described["layers"]) if path in faulty), None)
