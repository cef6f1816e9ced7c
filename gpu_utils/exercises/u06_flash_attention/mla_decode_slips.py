"""Wrong answers to 06.mla_decode, as learners write them: a kernel with switches, and its launcher.

What is wrong is an argument and not a constant of the compiler, so that all of them are compiled once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from gpu_utils.exercises.u06_flash_attention import decode_slips

HEADS = 16
"""Most heads of a sequence: the rows of a tile."""

BLOCK = 32

SLIPS = ("", "no rope", "loaded again", "numerator unscaled", "padding counts", "one peak")


@triton.jit(do_not_specialize=["H", "COUNT", "stride_b", "ROW", "LATENT", "ROPE", "scale", "USED", "MORE", "slip"])
def kernel(
    q_ptr,
    rope_ptr,
    cache_ptr,
    lengths_ptr,
    o_ptr,
    H,
    COUNT,
    stride_b,
    ROW,
    LATENT,
    ROPE,
    scale,
    USED,
    MORE,
    slip,
    C: tl.constexpr,
    R: tl.constexpr,
    B: tl.constexpr,
):
    """COUNT heads of a sequence, from its second program id on; slip is a place in SLIPS.

    A position has ROW numbers; the latent begins at LATENT, the rotary part at ROPE.
    A length is USED * its entry + MORE.
    """
    b = tl.program_id(0)
    length = tl.load(lengths_ptr + b) * USED + MORE
    heads, c, r = tl.arange(0, 16), tl.arange(0, C), tl.arange(0, R)
    mine = heads[:, None] < COUNT
    row = b * H + tl.program_id(1) + heads[:, None]
    q = tl.load(q_ptr + row * C + c[None, :], mask=mine, other=0.0)
    rope = tl.load(rope_ptr + row * R + r[None, :], mask=mine & (slip != 1), other=0.0)
    m = tl.full([16], float("-inf"), tl.float32)
    total = tl.zeros([16], tl.float32)
    acc = tl.zeros([16, C], tl.float32)
    for start in range(0, length, B):
        t = start + tl.arange(0, B)
        there = t < length
        at = cache_ptr + b * stride_b + t[:, None] * ROW
        latent = tl.load(at + LATENT + c[None, :], mask=there[:, None], other=0.0)
        k_rope = tl.load(at + ROPE + r[None, :], mask=there[:, None], other=0.0)
        again = tl.load(at + LATENT + c[None, :], mask=there[:, None] & (slip == 2), other=0.0)
        s = tl.dot(rope, tl.trans(k_rope), tl.dot(q, tl.trans(latent))) * scale
        s = tl.where(there[None, :] | (slip == 4), s, float("-inf"))
        new = tl.maximum(m, tl.where(slip == 5, tl.max(s), tl.max(s, 1)))
        p = tl.exp(s - new[:, None])
        factor = tl.exp(m - new)
        total = total * factor + tl.sum(p, 1)
        acc = acc * tl.where(slip == 3, 1.0, factor)[:, None]
        acc = tl.dot(p.to(latent.dtype), tl.where(slip == 2, again, latent), acc)
        m = new
    o = acc / total[:, None]
    tl.store(o_ptr + row * C + c[None, :], o.to(o_ptr.dtype.element_ty), mask=mine)


def absorb(q: Tensor, w_uk: Tensor) -> Tensor:
    """Each head's query as one for latent vectors."""
    return torch.einsum("bhn,hnc->bhc", q, w_uk).contiguous()


def project(latents: Tensor, w_uv: Tensor) -> Tensor:
    """Each head's mean of latent vectors as a value."""
    return torch.einsum("bhc,hvc->bhv", latents, w_uv)


def answer(
    slip: str = "",
    *,
    first: Callable[[Tensor, Tensor, Tensor], Tensor] = lambda q, w_uk, w_uv: absorb(q, w_uk),
    last: Callable[[Tensor, Tensor, Tensor], Tensor] = lambda latents, w_uk, w_uv: project(latents, w_uv),
    scale: Callable[[int, int, int], float] = lambda nope, rope, latent: (nope + rope) ** -0.5,
    row: Callable[[int, int], int] = lambda latent, rope: latent + rope,
    places: Callable[[int, int], tuple[int, int]] = lambda latent, rope: (0, latent),
    each_head: bool = False,
    like_absorbed: bool = False,
    used: int = 1,
    more: Callable[[int], int] = lambda S: 0,
) -> Callable[..., Any]:
    """The right answer, with some of its parts changed. `places`: where latent and rotary part begin."""

    def wrong(q: Tensor, q_rope: Tensor, cache: Tensor, lengths: Tensor, w_uk: Tensor, w_uv: Tensor) -> Tensor:
        (B, H, N), R, (S, width) = q.shape, q_rope.shape[2], cache.shape[1:]
        C = width - R
        absorbed = first(q, w_uk, w_uv)
        latents = torch.empty((B, H, C), dtype=q.dtype, device=q.device)
        latents = torch.empty_like(absorbed) if like_absorbed else latents
        kernel[(B, H if each_head else 1)](
            *(absorbed, q_rope, cache, lengths, latents, H, 1 if each_head else H, S * width, row(C, R), *places(C, R)),
            *(scale(N, R, C), used, more(S), SLIPS.index(slip)),
            C=C,
            R=R,
            B=BLOCK,
        )
        return last(latents, w_uk, w_uv)

    return wrong


def expands(q: Tensor, q_rope: Tensor, cache: Tensor, lengths: Tensor, w_uk: Tensor, w_uv: Tensor) -> Tensor:
    """Keys and values of every head are made from the latent vectors, and 06.decode does the rest."""
    C = w_uk.shape[2]
    latent, rope = cache[..., :C], cache[..., None, C:].expand(-1, -1, q.shape[1], -1)
    k = torch.cat([torch.einsum("bsc,hnc->bshn", latent, w_uk), rope], 3)
    v = torch.einsum("bsc,hvc->bshv", latent, w_uv)
    v = torch.cat([v, v.new_zeros(*v.shape[:3], k.shape[3] - v.shape[3])], 3)
    o = decode_slips.answer()(torch.cat([q, q_rope], 2), k, v, lengths, 1)
    return o[..., : w_uv.shape[1]]
