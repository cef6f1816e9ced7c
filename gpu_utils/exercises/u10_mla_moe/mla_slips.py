"""Latent attention with one thing changed: wrong answers to 10.mla, and parts of those to 10.mla_absorb."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gpu_utils.exercises.u10_mla_moe.latents import Sizes, Weights

Rope = Callable[[Tensor, Tensor, float], Tensor]
Norm = Callable[[Tensor, Tensor, float], Tensor]


def rope(
    *, halves: bool = False, sorted_apart: bool = False, steps: float = 2.0, first: int = 0, sign: int = 1
) -> Rope:
    """A rotation of x (..., T, R) by positions (T,).

    halves: pairs are (i, i + R/2); sorted_apart: first all first members of a pair come out, then all second ones;
    steps: theta is taken to the power of minus so many i / R; first: the position that the first token gets.
    """

    def turn(x: Tensor, positions: Tensor, theta: float) -> Tensor:
        R = x.shape[-1]
        i = torch.arange(R // 2, device=x.device)
        angles = sign * (positions + first)[:, None] * theta ** (-steps * i / R)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        a, b = (x[..., : R // 2], x[..., R // 2 :]) if halves else (x[..., 0::2], x[..., 1::2])
        pair = a * cos - b * sin, a * sin + b * cos
        return torch.cat(pair, -1) if halves or sorted_apart else torch.stack(pair, -1).flatten(-2)

    return turn


TURN = rope()


def by_head_number(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    """Turned by the number of the head, as if that were the position: rope met an axis too early."""
    return TURN(x.transpose(1, 2), positions[0] + torch.arange(x.shape[1], device=x.device), theta).transpose(1, 2)


def untouched(x: Tensor, *_more: Any) -> Tensor:
    return x


def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def layer_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return norm(x - x.mean(-1, keepdim=True), weight, eps)


def eps_ignored(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return norm(x, weight, 1e-6)


def eps_outside(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True).sqrt() + eps) * weight


def summed(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Divided by the length of the vector, not by the root of its mean square."""
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + eps) * weight


def unweighted(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return norm(x, torch.ones_like(weight), eps)


def projected(
    x: Tensor,
    w: Weights,
    s: Sizes,
    positions: Tensor,
    theta: float,
    eps: float,
    *,
    q_norm: Norm = norm,
    kv_norm: Norm = norm,
    turn_q: Rope = TURN,
    turn_k: Rope = TURN,
    q_parts: str = "nope rope",
    q_heads: str = "outside",
    kv_parts: str = "latent rope",
    norm_all: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """q_nope and q_rope (B, H, T, .), the normed latent (B, T, C), the turned k_rope (B, T, R), the latent as made."""
    q = q_norm(x @ w["q_a_proj"].T, w["q_a_layernorm"], eps) @ w["q_b_proj"].T
    if q_heads == "viewed":
        q = q.view(len(x), s.heads, x.shape[1], -1)
    else:
        q = q.unflatten(-1, (s.heads, -1)) if q_heads == "outside" else q.unflatten(-1, (-1, s.heads)).mT
        q = q.transpose(1, 2)
    if q_parts == "nope rope":
        q_nope, q_rope = q.split([s.nope, s.rope], -1)
    else:
        q_rope, q_nope = q.split([s.rope, s.nope], -1)
    made = x @ w["kv_a_proj_with_mqa"].T
    if norm_all:
        made = kv_norm(made, torch.ones_like(made[0, 0]), eps)
    if kv_parts == "latent rope":
        raw, k_rope = made.split([s.rank, s.rope], -1)
    else:
        k_rope, raw = made.split([s.rope, s.rank], -1)
    latent = raw * w["kv_a_layernorm"] if norm_all else kv_norm(raw, w["kv_a_layernorm"], eps)
    return q_nope, turn_q(q_rope, positions, theta), latent, turn_k(k_rope, positions, theta), raw


def keys_and_values(latent: Tensor, w: Weights, s: Sizes, kv_b: str = "by head") -> tuple[Tensor, Tensor]:
    """(B, H, S, N) and (B, H, S, V): what the naive form expands."""
    both = latent @ w["kv_b_proj"].T
    if kv_b == "keys of all heads first":
        keys, values = both.split([s.heads * s.nope, s.heads * s.value], -1)
        keys, values = (part.unflatten(-1, (s.heads, -1)).transpose(1, 2) for part in (keys, values))
        return keys, values
    by_head = both.unflatten(-1, (s.heads, -1)).transpose(1, 2)
    if kv_b == "viewed":
        by_head = both.view(len(both), s.heads, both.shape[1], -1)
    if kv_b == "values first":
        values, keys = by_head.split([s.value, s.nope], -1)
        return keys, values
    if kv_b == "values of the keys":
        keys = by_head[..., : s.nope]
        return keys, by_head[..., : s.value]
    keys, values = by_head.split([s.nope, s.value], -1)
    return keys, values


SCALES: dict[str, Callable[[Sizes], float]] = {
    "both parts": lambda s: (s.nope + s.rope) ** -0.5,
    "nope": lambda s: s.nope**-0.5,
    "value": lambda s: s.value**-0.5,
    "row of the cache": lambda s: (s.rank + s.rope) ** -0.5,
    "none": lambda s: 1.0,
}


def answer(
    *,
    scale: str = "both parts",
    mask: str = "causal",
    kv_b: str = "by head",
    kept: str = "normed",
    kept_rope: str = "turned",
    rope_score: bool = True,
    axis: int = -1,
    turn_keys: bool = False,
    crossed: bool = False,
    output: str = "by head",
    **changed: Any,
) -> Callable[..., Any]:
    """The right answer to 10.mla, with some of its parts changed."""

    def wrong(x: Tensor, weights: Weights, heads: int, theta: float, eps: float) -> tuple[Tensor, Tensor, Tensor]:
        s, T = Sizes.of(weights, heads), x.shape[1]
        positions = torch.arange(T, device=x.device)
        q_nope, q_rope, latent, k_rope, raw = projected(x, weights, s, positions, theta, eps, **changed)
        keys, values = keys_and_values(latent, weights, s, kv_b)
        if turn_keys:
            keys = TURN(keys, positions, theta)
            q_nope = TURN(q_nope, positions, theta)
        scores = q_nope @ keys.mT
        if rope_score:
            scores = scores + q_rope @ k_rope.unsqueeze(1).mT
        if crossed:
            whole = torch.cat([keys, k_rope.unsqueeze(1).expand(-1, s.heads, -1, -1)], -1)
            scores = torch.cat([q_rope, q_nope], -1) @ whole.mT
        later = {
            "causal": positions > positions[:, None],
            "none": positions < 0,
            "not itself": (positions >= positions[:, None]) & (positions[:, None] > 0),
            "turned": positions < positions[:, None],
        }[mask]
        p = (scores * SCALES[scale](s)).masked_fill(later, -math.inf).softmax(axis).nan_to_num()
        heads_out = p @ values
        out = heads_out.transpose(1, 2) if output == "by head" else heads_out.permute(0, 2, 3, 1)
        flat = heads_out.reshape(len(x), T, -1) if output == "viewed" else out.flatten(2)
        y = flat @ weights["o_proj"].T
        of_cache = {"turned": k_rope, "as made": (x @ weights["kv_a_proj_with_mqa"].T)[..., s.rank :]}
        return y, raw if kept == "as made" else latent, of_cache[kept_rope]

    return wrong
