"""Wrong answers to 10.mla_absorb: decoding that expands the cache, or absorbs a projection in the wrong place."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gpu_utils.exercises.u10_mla_moe.latents import Sizes, Weights
from gpu_utils.exercises.u10_mla_moe.mla_slips import SCALES, TURN, norm, projected

MASKS: dict[str, Callable[[Tensor, Tensor, int], Tensor]] = {
    "causal": lambda keys, queries, past: keys > queries[:, None],
    "none": lambda keys, queries, past: (keys < 0) & (queries[:, None] < 0),
    "from the left": lambda keys, queries, past: keys > queries[:, None] - past,
    "not itself": lambda keys, queries, past: (keys >= queries[:, None]) & (keys > 0),
    "the past alone": lambda keys, queries, past: (keys >= past) & (keys > 0) & (queries[:, None] >= 0),
}
"""(positions of the keys, of the queries, tokens in the cache) -> what is hidden, (T, S + T)."""


def answer(
    *,
    scale: str = "both parts",
    mask: str = "causal",
    position: str = "behind the cache",
    keys: str = "absorbed",
    values: str = "absorbed",
    w_uk: str = "keys",
    w_uv: str = "values",
    heads_of: str = "each its own",
    rope_score: bool = True,
    kept: str = "normed",
    kept_rope: str = "turned",
    returned: str = "all",
    norm_again: bool = False,
    turn_again: bool = False,
    **changed: Any,
) -> Callable[..., Any]:
    """The right answer, with some of its parts changed.

    keys, values: "absorbed", "expanded" for the whole cache, or "copied": multiplied by a copy of the cache a head
    """

    def wrong(
        x: Tensor, latent: Tensor, k_rope: Tensor, weights: Weights, heads: int, theta: float, eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        s, past, T = Sizes.of(weights, heads), latent.shape[1], x.shape[1]
        first = {"behind the cache": past, "0": 0, "one too far": past + 1, "all the same": past}[position]
        at = (
            torch.full((T,), first, device=x.device)
            if position == "all the same"
            else torch.arange(first, first + T, device=x.device)
        )
        q_nope, q_rope, new, new_rope, raw = projected(x, weights, s, at, theta, eps, **changed)
        if kept == "as made":
            new = raw
        if kept_rope == "as made":
            new_rope = (x @ weights["kv_a_proj_with_mqa"].T)[..., s.rank :]
        c, r = torch.cat([latent, new], 1), torch.cat([k_rope, new_rope], 1)
        seen = norm(c, weights["kv_a_layernorm"], eps) if norm_again else c
        turned = TURN(r, torch.arange(past + T, device=x.device), theta) if turn_again else r
        by_head = weights["kv_b_proj"].view(heads, -1, s.rank)
        halves = {"keys": by_head[:, : s.nope], "values": by_head[:, s.nope :]}
        uk, uv = halves[w_uk], halves[w_uv]
        if w_uk == "values":
            uk = torch.nn.functional.pad(uk, (0, 0, 0, max(0, s.nope - s.value)))[:, : s.nope]
        if w_uv == "keys":
            uv = torch.nn.functional.pad(uv, (0, 0, 0, max(0, s.value - s.nope)))[:, : s.value]
        if heads_of == "head 0":
            uk, uv = uk[:1].expand(heads, -1, -1), uv[:1].expand(heads, -1, -1)
        if keys == "expanded":
            scores = q_nope @ torch.einsum("bsc,hnc->bhsn", seen, uk).mT
        elif keys == "copied":
            scores = (q_nope @ uk) @ seen.unsqueeze(1).mT
        else:
            scores = torch.einsum("bhtn,hnc,bsc->bhts", q_nope, uk, seen)
        if rope_score:
            scores = scores + torch.einsum("bhtr,bsr->bhts", q_rope, turned)
        keys_at = torch.arange(past + T, device=x.device)
        hidden = MASKS[mask](keys_at, past + torch.arange(T, device=x.device), past)
        p = (scores * SCALES[scale](s)).masked_fill(hidden, -math.inf).softmax(-1)
        if values == "expanded":
            out = p @ torch.einsum("bsc,hvc->bhsv", seen, uv)
        elif values == "copied":
            out = (p @ seen.unsqueeze(1)) @ uv.mT
        elif values == "first numbers":
            out = torch.nn.functional.pad(torch.einsum("bhts,bsc->bhtc", p, seen), (0, s.value))[..., : s.value]
        else:
            out = torch.einsum("bhtc,hvc->bhtv", torch.einsum("bhts,bsc->bhtc", p, seen), uv)
        y = out.transpose(1, 2).flatten(2) @ weights["o_proj"].T
        if returned == "new":
            return y, new, new_rope
        return (y, latent.clone(), k_rope.clone()) if returned == "old" else (y, c, r)

    return wrong


def head_by_head(
    x: Tensor, latent: Tensor, k_rope: Tensor, weights: Weights, heads: int, theta: float, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Keys and values of the whole cache, of one head after the other: small tensors, as much work."""
    s, past, T = Sizes.of(weights, heads), latent.shape[1], x.shape[1]
    at = torch.arange(past, past + T, device=x.device)
    q_nope, q_rope, new, new_rope, _ = projected(x, weights, s, at, theta, eps)
    c, r = torch.cat([latent, new], 1), torch.cat([k_rope, new_rope], 1)
    hidden = torch.arange(past + T, device=x.device) > at[:, None]
    out = []
    for h, rows in enumerate(weights["kv_b_proj"].view(heads, -1, s.rank)):
        keys, values = (c @ rows.T).split([s.nope, s.value], -1)
        scores = q_nope[:, h] @ keys.mT + q_rope[:, h] @ r.mT
        p = (scores * SCALES["both parts"](s)).masked_fill(hidden, -math.inf).softmax(-1)
        out.append(p @ values)
    return torch.cat(out, -1) @ weights["o_proj"].T, c, r
