"""Operations of flash-linear-attention for `foreign_kernels.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from foreign_operations import (
    HALF,
    LOGITS,
    ROWS,
    TWO,
    WIDTH,
    WORDS,
    Draw,
    Operation,
    attention,
    decay,
    normal,
    part,
    rms_norm,
    turned,
    unit,
)


def recurrence(
    q: Any, k: Any, v: Any, g: Any = None, beta: Any = None, a: Any = None, b: Any = None, scale: float | None = None
) -> Any:
    """Linear attention, a step at a time: q, k (batch, time, heads, K), v (batch, time, heads, V).

    g is the logarithm of the state's decay, one for each head or for each of K; beta makes it the delta rule; a and b
    add b (a S), of the state before its decay.
    """
    state = torch.zeros(*k.shape[:1], *k.shape[2:], v.shape[-1], dtype=q.dtype)
    out = []
    for t in range(q.shape[1]):
        before = state
        if g is not None:
            factor = g[:, t].exp()
            state = state * (factor[..., None] if factor.dim() == 3 else factor[..., None, None])
        if a is not None:
            state = state + b[:, t, :, :, None] * torch.einsum("bhk,bhkv->bhv", a[:, t], before)[:, :, None]
        new = v[:, t]
        if beta is not None:
            new = beta[:, t, :, None] * (new - torch.einsum("bhk,bhkv->bhv", k[:, t], state))
        state = state + k[:, t, :, :, None] * new[:, :, None]
        out.append(torch.einsum("bhk,bhkv->bhv", q[:, t], state))
    return torch.stack(out, 1) * (q.shape[-1] ** -0.5 if scale is None else scale)


def rwkv6(r: Any, k: Any, v: Any, w: Any, u: Any) -> Any:
    state, out = torch.zeros(*k.shape[:1], *k.shape[2:], v.shape[-1], dtype=r.dtype), []
    for t in range(r.shape[1]):
        new = k[:, t, :, :, None] * v[:, t, :, None]
        out.append(torch.einsum("bhk,bhkv->bhv", r[:, t], state + u[..., None] * new))
        state = state * w[:, t].exp()[..., None] + new
    return torch.stack(out, 1) * r.shape[-1] ** -0.5


def retained(q: Any, k: Any, v: Any) -> Any:
    heads = torch.arange(q.shape[2], dtype=torch.float64)
    return recurrence(q, k, v, torch.log1p(-(2.0 ** (-5 - heads))).expand(*q.shape[:3]))


T, H, K = 70, 1, 32
QKV = {name: normal(1, T, H, K, dtype=HALF) for name in "qkv"}
DELTA = {"q": QKV["q"], "k": unit(1, T, H, K, dtype=HALF), "v": QKV["v"], "beta": part(1, T, H, dtype=HALF)}
DPLR = {"a": unit(1, T, H, K, dtype=HALF), "b": unit(1, T, H, K, dtype=HALF)}
EACH_HEAD, EACH_K = decay(1, T, H), decay(1, T, H, K)
OPS = "fla.ops"


def first(found: Any) -> Any:
    return found[0] if isinstance(found, tuple) else found


def of(
    name: str,
    inputs: dict[str, Draw],
    reference: Callable[..., Any] | None = None,
    tolerance: float = 2e-2,
    gradients: bool = True,
    **given: Any,
) -> Operation:
    """An operation of fla.ops that takes its tensors by their names and returns (output, state)."""

    def call(module: Any, **tensors: Any) -> Any:
        return first(getattr(module, name)(**tensors, **given))

    return Operation(name, OPS, inputs, call, reference, tolerance, gradients)


FLA_OPERATIONS = (
    of("chunk_linear_attn", QKV, recurrence, normalize=False),
    of("fused_chunk_linear_attn", QKV, recurrence, normalize=False),
    of("fused_recurrent_linear_attn", QKV, recurrence, normalize=False),
    of("chunk_retention", QKV, retained),
    of("fused_recurrent_retention", QKV, retained),
    of("parallel_retention", QKV, retained),
    of("chunk_simple_gla", {**QKV, "g": EACH_HEAD}, recurrence),
    of("fused_recurrent_simple_gla", {**QKV, "g": EACH_HEAD}, recurrence),
    of("chunk_gla", {**QKV, "g": EACH_K}, recurrence),
    of("fused_recurrent_gla", {**QKV, "gk": EACH_K}, lambda q, k, v, gk: recurrence(q, k, v, gk)),
    of("chunk_delta_rule", DELTA, recurrence),
    of("fused_recurrent_delta_rule", DELTA, recurrence),
    of("chunk_gated_delta_rule", {**DELTA, "g": EACH_HEAD}, recurrence),
    of("fused_recurrent_gated_delta_rule", {**DELTA, "g": EACH_HEAD}, recurrence, gradients=False),
    of("chunk_kda", {**DELTA, "g": EACH_K}, recurrence),
    of("chunk_rwkv6", {"r": QKV["q"], "k": QKV["k"], "v": QKV["v"], "w": EACH_K, "u": normal(H, K)}, rwkv6),
    of("fused_recurrent_rwkv6", {"r": QKV["q"], "k": QKV["k"], "v": QKV["v"], "w": EACH_K, "u": normal(H, K)}, rwkv6),
    Operation(
        "chunk_rwkv7",
        OPS,
        {"r": QKV["q"], "k": QKV["k"], "v": QKV["v"], "w": EACH_K, **DPLR},
        lambda m, a, b, **t: first(m.chunk_rwkv7(a=a, b=-0.5 * b, **t)),
        lambda r, k, v, w, a, b: recurrence(r, k, v, w, a=a, b=-0.5 * b, scale=1.0),
        2e-2,
    ),
    Operation(
        "chunk_dplr_delta_rule",
        OPS,
        {**QKV, "gk": EACH_K, **DPLR},
        lambda m, b, **t: first(m.chunk_dplr_delta_rule(b=-0.5 * b, **t)),
        lambda q, k, v, gk, a, b: recurrence(q, k, v, gk, a=a, b=-0.5 * b),
        2e-2,
    ),
    of("parallel_attn", QKV, attention),
    of("parallel_forgetting_attn", {**QKV, "g": EACH_HEAD}, attention),
    of("parallel_stickbreaking_attn", QKV),
    of("chunk_gsa", {**QKV, "s": normal(1, T, H, 16, dtype=HALF), "g": decay(1, T, H, 16)}),
    of(
        "fused_recurrent_hgrn",
        {"x": normal(1, T, K), "g": decay(1, T, K)},
        lambda x, g: recurrence(
            torch.ones_like(x)[..., None], torch.ones_like(x)[..., None], x[..., None], g, scale=1.0
        )[..., 0],
    ),
    Operation(
        "l2norm",
        "fla.modules.l2norm",
        {"x": normal(ROWS, WIDTH)},
        lambda m, x: m.l2norm(x),
        lambda x: F.normalize(x, dim=-1),
    ),
    Operation(
        "layer_norm",
        "fla.modules.norm",
        {"x": normal(ROWS, WIDTH)},
        lambda m, x: m.LayerNorm(WIDTH).cuda()(x),
        lambda x: F.layer_norm(x, (WIDTH,)),
    ),
    Operation(
        "layer_norm_gated",
        "fla.modules.norm",
        {"x": normal(ROWS, WIDTH), "g": normal(ROWS, WIDTH)},
        lambda m, x, g: m.FusedRMSNormGated(WIDTH).cuda()(x, g),
        lambda x, g: rms_norm(x, 1, 1e-5) * F.silu(g),
    ),
    Operation(
        "rotary",
        "fla.modules.rotary",
        {"x": normal(1, 37, H, 16), "angle": normal(37, 8)},
        lambda m, x, angle: m.rotary_embedding(x, angle.detach().cos(), angle.detach().sin()),
        lambda x, angle: turned(x.transpose(1, 2), angle.detach()[None]).transpose(1, 2),
    ),
    Operation(
        "token_shift",
        "fla.modules.token_shift",
        {"x": normal(2, 37, WIDTH)},
        lambda m, x: m.token_shift(x),
        lambda x: F.pad(x, (0, 0, 1, 0))[:, :-1] - x,
    ),
    Operation(
        "causal_conv1d",
        "fla.modules.causal_conv1d",
        {"x": normal(2, 37, 48), "w": normal(48, 4)},
        lambda m, x, w: first(m.causal_conv1d(x, w, activation="silu")),
        lambda x, w: F.silu(F.conv1d(F.pad(x.transpose(1, 2), (3, 0)), w[:, None], groups=48)).transpose(1, 2),
    ),
    Operation("swiglu", "fla.modules.activations", TWO, lambda m, a, b: m.swiglu(a, b), lambda a, b: F.silu(a) * b),
    Operation(
        "cross_entropy_loss",
        "fla.modules.fused_cross_entropy",
        LOGITS,
        lambda m, x, y: m.cross_entropy_loss(x, y)[0],
        lambda x, y: F.cross_entropy(x, y, reduction="none"),
    ),
    Operation(
        "fused_kl_div_loss",
        "fla.modules.fused_kl_div",
        {"x": normal(ROWS, 19), "w": normal(WORDS, 19), "u": normal(ROWS, 19), "v": normal(WORDS, 19)},
        lambda m, x, w, u, v: m.fused_kl_div_loss(x, u.detach(), w, v.detach()),
        lambda x, w, u, v: F.kl_div((x @ w.T).log_softmax(-1), (u @ v.T).softmax(-1).detach(), reduction="batchmean"),
    ),
    Operation(
        "cumsum",
        "fla.ops.utils",
        {"g": normal(1, T, H)},
        lambda m, g: m.chunk_global_cumsum(g),
        lambda g: g.cumsum(1),
        gradients=False,
    ),
    Operation(
        "solve_tril",
        "fla.ops.utils",
        {"x": lambda: torch.randn(1, H, 64, 64).tril(-1).mul(0.1).transpose(1, 2)},
        lambda m, x: m.solve_tril(x.contiguous()),
        lambda x: torch.linalg.inv(torch.eye(64, dtype=x.dtype) + x.transpose(1, 2)).transpose(1, 2),
        gradients=False,
    ),
)
