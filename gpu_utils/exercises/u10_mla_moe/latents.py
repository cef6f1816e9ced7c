"""What the exercises on latent attention share: sizes read off the weights, drawn inputs, the reference in float64.

B sequences, T new tokens, D numbers of a token; `heads` heads, each with `nope` numbers without and `rope` with a
position in queries and keys, and `value` in values; latent vectors of `q_rank` (queries) and `rank` (keys and values).
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import Tolerance, tolerance
from gpu_utils.grading.exercise import Case

Weights = Mapping[str, Tensor]


@dataclass(frozen=True)
class Sizes:
    """The sizes that the shapes of the weights tell, given the number of heads."""

    heads: int
    width: int
    q_rank: int
    rank: int
    nope: int
    rope: int
    value: int

    @classmethod
    def of(cls, weights: Weights, heads: int) -> Sizes:
        """Read off the shapes.

        >>> shapes = {"q_a_proj": (24, 40), "q_b_proj": (44, 24), "kv_a_proj_with_mqa": (20, 40)}
        >>> shapes |= {"kv_a_layernorm": (16,), "kv_b_proj": (52, 16), "o_proj": (40, 24)}
        >>> Sizes.of({name: torch.empty(shape) for name, shape in shapes.items()}, heads=4)
        Sizes(heads=4, width=40, q_rank=24, rank=16, nope=7, rope=4, value=6)
        """
        rank = len(weights["kv_a_layernorm"])
        rope = len(weights["kv_a_proj_with_mqa"]) - rank
        nope = len(weights["q_b_proj"]) // heads - rope
        q_rank, width = weights["q_a_proj"].shape
        return cls(heads, width, q_rank, rank, nope, rope, len(weights["kv_b_proj"]) // heads - nope)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Name of a weight -> (outputs, inputs), or the length of a norm's: as in a checkpoint of DeepSeek-V3."""
        return {
            "q_a_proj": (self.q_rank, self.width),
            "q_a_layernorm": (self.q_rank,),
            "q_b_proj": (self.heads * (self.nope + self.rope), self.q_rank),
            "kv_a_proj_with_mqa": (self.rank + self.rope, self.width),
            "kv_a_layernorm": (self.rank,),
            "kv_b_proj": (self.heads * (self.nope + self.value), self.rank),
            "o_proj": (self.width, self.heads * self.value),
        }


def drawn_sizes(rng: random.Random) -> dict[str, int]:
    """Sizes of a fresh case, no two of them alike; rank, nope and rope are even: view_as_complex wants even strides."""
    ranges = {"width": (24, 48, 1), "q_rank": (10, 25, 1), "rank": (12, 24, 2), "nope": (6, 16, 2), "rope": (4, 10, 2)}
    while True:
        sizes = {name: rng.randrange(low, high + 1, step) for name, (low, high, step) in ranges.items()}
        sizes |= {"heads": rng.randint(2, 5), "value": sizes["nope"] + rng.choice([-3, -1, 1, 3, 5])}
        if len(set(sizes.values())) == len(sizes):
            return sizes


_STRONGER = {"q_a_proj": 2.0, "q_b_proj": 2.0, "kv_a_proj_with_mqa": 3.0}
"""So that scores differ, and that a latent vector without its norm is seen to be one."""


def drawn_weights(sizes: Sizes, generator: torch.Generator) -> dict[str, Tensor]:
    """Weights of a layer in float32: rows of a product about as long as its input, norms around 1."""
    drawn = {}
    for name, shape in sizes.shapes.items():
        numbers = torch.randn(shape, generator=generator)
        factor = _STRONGER.get(name, 1.0) / math.sqrt(shape[-1])
        drawn[name] = 1 + 0.3 * numbers if len(shape) == 1 else factor * numbers
    return drawn


def drawn_mla(
    heads: int, width: int, q_rank: int, rank: int, nope: int, rope: int, value: int, seed: int = 0
) -> dict[str, Tensor]:
    """Weights of a layer of latent attention, float32 on the CPU, by DeepSeek's names: as in the statement of 10.mla.

    >>> drawn_mla(heads=4, width=40, q_rank=24, rank=16, nope=8, rope=4, value=6)["kv_b_proj"].shape
    torch.Size([56, 16])
    """
    return drawn_weights(Sizes(heads, width, q_rank, rank, nope, rope, value), torch.Generator().manual_seed(seed))


def tiny_weights() -> dict[str, Tensor]:
    """Those of the small example in the lab: one head; rank, nope and rope are 2, and every other size is 1."""
    return {
        "q_a_proj": torch.ones(1, 1),
        "q_a_layernorm": torch.ones(1),
        "q_b_proj": torch.tensor([[1.0], [0.0], [1.0], [0.0]]),
        "kv_a_proj_with_mqa": torch.tensor([[1.0], [1.0], [0.5], [0.0]]),
        "kv_a_layernorm": torch.ones(2),
        "kv_b_proj": torch.tensor([[1.0, 0.0], [0.0, 0.0], [4.0, 0.0]]),
        "o_proj": torch.ones(1, 1),
    }


def sizes_of(case: Case) -> Sizes:
    return Sizes(**{name: int(case[name]) for name in Sizes.__dataclass_fields__})


def normed(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """RMSNorm along the last axis."""
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * weight


def turned(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    """x (..., T, rope) with the pair (2i, 2i + 1) of each token turned by position * theta^(-2i / rope)."""
    pairs = torch.view_as_complex(x.double().unflatten(-1, (-1, 2)).clone())
    steps = theta ** (-2 * torch.arange(pairs.shape[-1], dtype=torch.float64) / x.shape[-1])
    angles = positions.double()[:, None] * steps
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)


def attention_reference(
    x: Tensor, latent: Tensor, k_rope: Tensor, weights: Weights, heads: int, theta: float, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """T new tokens x (B, T, D) behind a cache of S, with keys and values of every head, in float64.

    Returns y (B, T, D), and the cache with the new tokens: latent (B, S + T, rank), k_rope (B, S + T, rope).
    """
    w = {name: weight.double() for name, weight in weights.items()}
    s, past, new = Sizes.of(w, heads), latent.shape[1], x.shape[1]
    positions = torch.arange(past, past + new)
    x = x.double()
    q = normed(x @ w["q_a_proj"].T, w["q_a_layernorm"], eps) @ w["q_b_proj"].T
    q_nope, q_rope = q.unflatten(-1, (heads, -1)).transpose(1, 2).split([s.nope, s.rope], -1)
    made, rope = (x @ w["kv_a_proj_with_mqa"].T).split([s.rank, s.rope], -1)
    latent = torch.cat([latent.double(), normed(made, w["kv_a_layernorm"], eps)], 1)
    k_rope = torch.cat([k_rope.double(), turned(rope, positions, theta)], 1)
    expanded = (latent @ w["kv_b_proj"].T).unflatten(-1, (heads, -1)).transpose(1, 2)
    keys, values = expanded.split([s.nope, s.value], -1)
    scores = q_nope @ keys.mT + turned(q_rope, positions, theta) @ k_rope[:, None].mT
    later = torch.arange(past + new) > positions[:, None]
    p = (scores / math.sqrt(s.nope + s.rope)).masked_fill(later, -math.inf).softmax(-1)
    return (p @ values).transpose(1, 2).flatten(2) @ w["o_proj"].T, latent, k_rope


def tolerances(weights: Weights, heads: int, tokens: int, position: int) -> dict[str, Tolerance]:
    """Of y, latent and k_rope. Each is a product of products; the angle of a late position is rounded, too."""
    s = Sizes.of(weights, heads)
    # a score of size 4 that is off by some roundings moves a weight, and so y, by as many
    summed = s.width + s.q_rank + 4 * (s.nope + s.rope) + s.rank + tokens + heads * s.value
    return {
        "y": tolerance(torch.float32, k=summed + 4 * position, roundings=8),
        "latent": tolerance(torch.float32, k=s.width, roundings=6),
        "k_rope": tolerance(torch.float32, k=s.width + position, magnitude=3.0, roundings=4),
    }
