"""Operations of liger-kernel for `foreign_kernels.py`."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from foreign_operations import (
    LOGITS,
    ROWS,
    TWO,
    WIDTH,
    WORDS,
    Operation,
    chances,
    classes,
    normal,
    part,
    rms_norm,
    turned,
)

LIGER = "liger_kernel.transformers.functional"
GROUPED = {"x": normal(2, 6, 35), "w": normal(6), "b": normal(6)}
ROPE = {"q": normal(2, 3, 7, 16), "k": normal(2, 1, 7, 16), "angle": normal(1, 7, 8)}


def doubled(angle: Any) -> tuple[Any, Any]:
    angle = torch.cat([angle, angle], -1).detach()
    return angle.cos().contiguous(), angle.sin().contiguous()


def jsd(log_p: Any, log_q: Any, beta: float = 0.5) -> Any:
    middle = (beta * log_p.exp() + (1 - beta) * log_q.exp()).log()
    return (beta * log_p.exp() * (log_p - middle) + (1 - beta) * log_q.exp() * (log_q - middle)).sum() / len(log_p)


def sparsemax(x: Any) -> Any:
    ordered, place = x.sort(-1, descending=True).values, torch.arange(1, x.shape[-1] + 1)
    kept = (1 + place * ordered > ordered.cumsum(-1)).sum(-1, keepdim=True)
    return (x - (ordered.cumsum(-1).gather(-1, kept - 1) - 1) / kept).clamp(min=0)


def multi_token(x: Any, w: Any, b: Any) -> Any:
    above = torch.ones(x.shape[-2:], dtype=torch.bool).triu(1)
    return F.conv2d(x.masked_fill(above, -torch.inf).softmax(-1), w, b, padding=1).masked_fill(above, 0)


def neighbours(q: Any, k: Any, v: Any) -> Any:
    place = torch.arange(q.shape[2])
    scores = (q @ k.transpose(2, 3) * q.shape[-1] ** -0.5).masked_fill((place - place[:, None]).abs() > 2, -torch.inf)
    return scores.softmax(-1) @ v


LIGER_OPERATIONS = (
    Operation(
        "rms_norm",
        LIGER,
        {"x": normal(ROWS, WIDTH), "w": normal(WIDTH)},
        lambda m, x, w: m.liger_rms_norm(x, w, 1e-6),
        rms_norm,
    ),
    Operation(
        "layer_norm",
        LIGER,
        {"x": normal(ROWS, WIDTH), "w": normal(WIDTH), "b": normal(WIDTH)},
        lambda m, x, w, b: m.liger_layer_norm(x, w, b, 1e-5),
        lambda x, w, b: F.layer_norm(x, (WIDTH,), w, b),
    ),
    Operation(
        "group_norm",
        LIGER,
        GROUPED,
        lambda m, x, w, b: m.liger_group_norm(x, w, b, 6, 2, 1e-5),
        lambda x, w, b: F.group_norm(x, 2, w, b),
    ),
    Operation(
        "fused_add_rms_norm",
        LIGER,
        {"x": normal(ROWS, WIDTH), "r": normal(ROWS, WIDTH), "w": normal(WIDTH)},
        lambda m, x, r, w: m.liger_fused_add_rms_norm(x, r, w, 1e-6),
        lambda x, r, w: (rms_norm(x + r, w), x + r),
    ),
    Operation(
        "poly_norm",
        LIGER,
        {"x": normal(ROWS, WIDTH), "w": normal(3), "b": normal()},
        lambda m, x, w, b: m.liger_poly_norm(x, w, b),
        lambda x, w, b: sum(w[i] * rms_norm(x ** (3 - i), 1) for i in range(3)) + b,
    ),
    Operation(
        "dyt",
        LIGER,
        {"x": normal(ROWS, WIDTH), "alpha": normal(1), "gamma": normal(WIDTH), "beta": normal(WIDTH)},
        lambda m, **t: m.liger_dyt(**t),
        lambda x, alpha, gamma, beta: gamma * torch.tanh(alpha * x) + beta,
    ),
    Operation("swiglu", LIGER, TWO, lambda m, a, b: m.liger_swiglu(a, b), lambda a, b: F.silu(a) * b),
    Operation("geglu", LIGER, TWO, lambda m, a, b: m.liger_geglu(a, b), lambda a, b: F.gelu(a, approximate="tanh") * b),
    Operation(
        "relu_squared",
        LIGER,
        {"x": normal(ROWS, WIDTH)},
        lambda m, x: m.liger_relu_squared(x),
        lambda x: F.relu(x).square(),
    ),
    Operation("softmax", LIGER, {"x": normal(ROWS, WIDTH)}, lambda m, x: m.liger_softmax(x), lambda x: x.softmax(-1)),
    Operation("sparsemax", LIGER, {"x": normal(ROWS, WIDTH)}, lambda m, x: m.liger_sparsemax(x), sparsemax),
    Operation(
        "rope",
        LIGER,
        ROPE,
        lambda m, q, k, angle: m.liger_rope(q, k, *doubled(angle)),
        lambda q, k, angle: (turned(q, angle.detach()), turned(k, angle.detach())),
    ),
    Operation(
        "cross_entropy",
        LIGER,
        LOGITS,
        lambda m, x, y: m.liger_cross_entropy(x, y, label_smoothing=0.1),
        lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1),
    ),
    Operation(
        "cross_entropy, capped",
        LIGER,
        LOGITS,
        lambda m, x, y: m.liger_cross_entropy(x, y, softcap=3.0),
        lambda x, y: F.cross_entropy(3 * torch.tanh(x / 3), y),
    ),
    Operation(
        "fused_linear_cross_entropy",
        LIGER,
        {"x": normal(ROWS, WIDTH), "w": normal(WORDS, WIDTH, scale=0.2), "y": classes(WORDS, ROWS)},
        lambda m, x, w, y: m.liger_fused_linear_cross_entropy(x, w, y),
        lambda x, w, y: F.cross_entropy(x @ w.T, y),
    ),
    Operation(
        "kl_div",
        LIGER,
        {"x": lambda: torch.randn(ROWS, WORDS).log_softmax(-1), "p": chances(ROWS, WORDS)},
        lambda m, x, p: m.liger_kl_div(x, p.detach(), reduction="batchmean"),
        lambda x, p: F.kl_div(x, p.detach(), reduction="batchmean"),
    ),
    Operation(
        "jsd",
        LIGER,
        {name: lambda: torch.randn(ROWS, WORDS).log_softmax(-1) for name in ("x", "p")},
        lambda m, x, p: m.liger_jsd(x, p.detach()),
        lambda x, p: jsd(p.detach(), x),
    ),
    Operation(
        "tvd",
        LIGER,
        {"x": chances(ROWS, WORDS), "p": chances(ROWS, WORDS)},
        lambda m, x, p: m.liger_tvd(x, p.detach(), reduction="batchmean"),
        lambda x, p: (x - p.detach()).abs().sum() / 2 / ROWS,
    ),
    Operation(
        "fused_linear_jsd",
        LIGER,
        {"x": normal(ROWS, 19), "w": normal(WORDS, 19), "u": normal(ROWS, 19), "v": normal(WORDS, 19)},
        lambda m, x, w, u, v: m.liger_fused_linear_jsd(x, w, u.detach(), v.detach()),
        lambda x, w, u, v: jsd((u @ v.T).log_softmax(-1).detach(), (x @ w.T).log_softmax(-1)),
    ),
    Operation(
        "multi_token_attention",
        LIGER,
        {"x": normal(1, 2, 9, 9), "w": normal(2, 2, 3, 3), "b": normal(2)},
        lambda m, x, w, b: m.liger_multi_token_attention(x, w, b, padding=1),
        multi_token,
    ),
    Operation(
        "fused_neighborhood_attention",
        LIGER,
        {name: normal(1, 2, 37, 16) for name in "qkv"},
        lambda m, q, k, v: m.liger_fused_neighborhood_attention(q, k, v, kernel_size=5),
        neighbours,
        1e-2,
    ),
    Operation(
        "attn_res",
        LIGER,
        {"v": normal(3, 1, 7, 33), "q": normal(33), "w": normal(33)},
        lambda m, v, q, w: m.liger_attn_res(v, q, w),
        lambda v, q, w: ((rms_norm(v, w) @ q).softmax(0)[..., None] * v).sum(0),
    ),
    Operation(
        "embedding",
        "liger_kernel.ops",
        {"w": normal(WORDS, WIDTH), "y": classes(WORDS, 2, ROWS)},
        lambda m, w, y: m.LigerEmbeddingFunction.apply(w, y),
        lambda w, y: F.embedding(y, w),
    ),
    Operation(
        "grpo_loss",
        "liger_kernel.ops.grpo_loss",
        {
            "x": normal(2, 8, WORDS),
            "y": classes(WORDS, 2, 7),
            "ref": lambda: -part(2, 7)(),
            "old": lambda: -part(2, 7)(),
            "adv": normal(2),
        },
        lambda m, x, y, ref, old, adv: m.GrpoLossFunction.apply(
            x, old.detach(), ref.detach(), y, adv.detach(), None, 0.9, 0.04, 0.2, 0.4, False
        )[0],
    ),
)
