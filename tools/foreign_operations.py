"""What `foreign_kernels.py` knows of an operation: how it is called, and its reference in float64.

An operation gets its tensors by name, drawn on the CPU, and returns one tensor or several. A reference takes the same
names in float64. Sizes are small and odd: it is the machine code that is tried, not the speed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

Draw = Callable[[], torch.Tensor]


@dataclass(frozen=True)
class Operation:
    """One operation of a package.

    name       as in the table
    module     where its function is imported from; of tutorials the beginning of the file's name
    inputs     name -> how the tensor is drawn; gradients are taken of those of floats
    call       (module, **tensors) -> tensor or tensors
    reference  (**tensors in float64) -> the same, or None: it is only run
    tolerance  largest difference, as a part of the largest value of the reference
    gradients  whether the way back is run
    targets    beginnings of the targets that have the operation; empty for all
    """

    name: str
    module: str
    inputs: dict[str, Draw]
    call: Callable[..., Any]
    reference: Callable[..., Any] | None = None
    tolerance: float = 1e-3
    gradients: bool = True
    targets: tuple[str, ...] = ()


def normal(*shape: int, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> Draw:
    return lambda: (torch.randn(shape) * scale).to(dtype)


def part(*shape: int, dtype: torch.dtype = torch.float32) -> Draw:
    """Between 0 and 1."""
    return lambda: torch.rand(shape).mul(0.9).add(0.05).to(dtype)


def decay(*shape: int, dtype: torch.dtype = torch.float32) -> Draw:
    """Logarithms of factors between 0.5 and 1."""
    return lambda: torch.rand(shape).mul(0.5).add(0.5).log().to(dtype)


def unit(*shape: int, dtype: torch.dtype = torch.float32) -> Draw:
    """Of length 1 in the last dimension."""
    return lambda: F.normalize(torch.randn(shape), dim=-1).to(dtype)


def chances(*shape: int) -> Draw:
    return lambda: torch.randn(shape).softmax(-1)


def classes(high: int, *shape: int) -> Draw:
    return lambda: torch.randint(0, high, shape)


HALF = torch.float16
ROWS, WIDTH, WORDS = 5, 77, 133
TWO = {"a": normal(ROWS, WIDTH), "b": normal(ROWS, WIDTH)}
LOGITS = {"x": normal(ROWS, WORDS), "y": classes(WORDS, ROWS)}


def rms_norm(x: Any, w: Any, eps: float = 1e-6) -> Any:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * w


def turned(x: Any, angle: Any) -> Any:
    """RoPE in Llama's layout: x is (batch, heads, time, width), angle (1, time, width / 2)."""
    cos, sin = (torch.cat([part, part], -1)[:, None] for part in (angle.cos(), angle.sin()))
    one, two = x.chunk(2, -1)
    return x * cos + torch.cat([-two, one], -1) * sin


def attention(q: Any, k: Any, v: Any, g: Any = None, scale: float | None = None) -> Any:
    """Causal, (batch, time, heads, width); g (batch, time, heads) is the logarithm of what is kept at each step."""
    scores = torch.einsum("bthk,bshk->bhts", q, k) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if g is not None:
        total = g.cumsum(1).transpose(1, 2)
        scores = scores + total[..., :, None] - total[..., None, :]
    time = torch.arange(q.shape[1])
    return torch.einsum("bhts,bshk->bthk", scores.masked_fill(time > time[:, None], -torch.inf).softmax(-1), v)
