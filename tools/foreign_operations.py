"""The table of `foreign_kernels.py`: operations of others, how each is called, and its reference in float64.

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
LIGER = "liger_kernel.transformers.functional"
ROWS, WIDTH, WORDS = 5, 77, 133
TWO = {"a": normal(ROWS, WIDTH), "b": normal(ROWS, WIDTH)}
LOGITS = {"x": normal(ROWS, WORDS), "y": classes(WORDS, ROWS)}
GROUPED = {"x": normal(2, 6, 35), "w": normal(6), "b": normal(6)}
ROPE = {"q": normal(2, 3, 7, 16), "k": normal(2, 1, 7, 16), "angle": normal(1, 7, 8)}


def rms_norm(x: Any, w: Any, eps: float = 1e-6) -> Any:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * w


def turned(x: Any, angle: Any) -> Any:
    """RoPE in Llama's layout: x is (batch, heads, time, width), angle (1, time, width / 2)."""
    cos, sin = (torch.cat([part, part], -1)[:, None] for part in (angle.cos(), angle.sin()))
    one, two = x.chunk(2, -1)
    return x * cos + torch.cat([-two, one], -1) * sin


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
    Operation("rms_norm", LIGER, {"x": normal(ROWS, WIDTH), "w": normal(WIDTH)},
              lambda m, x, w: m.liger_rms_norm(x, w, 1e-6), rms_norm),
    Operation("layer_norm", LIGER, {"x": normal(ROWS, WIDTH), "w": normal(WIDTH), "b": normal(WIDTH)},
              lambda m, x, w, b: m.liger_layer_norm(x, w, b, 1e-5), lambda x, w, b: F.layer_norm(x, (WIDTH,), w, b)),
    Operation("group_norm", LIGER, GROUPED, lambda m, x, w, b: m.liger_group_norm(x, w, b, 6, 2, 1e-5),
              lambda x, w, b: F.group_norm(x, 2, w, b)),
    Operation("fused_add_rms_norm", LIGER,
              {"x": normal(ROWS, WIDTH), "r": normal(ROWS, WIDTH), "w": normal(WIDTH)},
              lambda m, x, r, w: m.liger_fused_add_rms_norm(x, r, w, 1e-6), lambda x, r, w: (rms_norm(x + r, w), x + r)),
    Operation("poly_norm", LIGER, {"x": normal(ROWS, WIDTH), "w": normal(3), "b": normal()},
              lambda m, x, w, b: m.liger_poly_norm(x, w, b),
              lambda x, w, b: sum(w[i] * rms_norm(x ** (3 - i), 1) for i in range(3)) + b),
    Operation("dyt", LIGER, {"x": normal(ROWS, WIDTH), "alpha": normal(1), "gamma": normal(WIDTH), "beta": normal(WIDTH)},
              lambda m, **t: m.liger_dyt(**t), lambda x, alpha, gamma, beta: gamma * torch.tanh(alpha * x) + beta),
    Operation("swiglu", LIGER, TWO, lambda m, a, b: m.liger_swiglu(a, b), lambda a, b: F.silu(a) * b),
    Operation("geglu", LIGER, TWO, lambda m, a, b: m.liger_geglu(a, b), lambda a, b: F.gelu(a, approximate="tanh") * b),
    Operation("relu_squared", LIGER, {"x": normal(ROWS, WIDTH)}, lambda m, x: m.liger_relu_squared(x),
              lambda x: F.relu(x).square()),
    Operation("softmax", LIGER, {"x": normal(ROWS, WIDTH)}, lambda m, x: m.liger_softmax(x), lambda x: x.softmax(-1)),
    Operation("sparsemax", LIGER, {"x": normal(ROWS, WIDTH)}, lambda m, x: m.liger_sparsemax(x), sparsemax),
    Operation("rope", LIGER, ROPE, lambda m, q, k, angle: m.liger_rope(q, k, *doubled(angle)),
              lambda q, k, angle: (turned(q, angle.detach()), turned(k, angle.detach()))),
    Operation("cross_entropy", LIGER, LOGITS, lambda m, x, y: m.liger_cross_entropy(x, y, label_smoothing=0.1),
              lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1)),
    Operation("cross_entropy, capped", LIGER, LOGITS, lambda m, x, y: m.liger_cross_entropy(x, y, softcap=3.0),
              lambda x, y: F.cross_entropy(3 * torch.tanh(x / 3), y)),
    Operation("fused_linear_cross_entropy", LIGER,
              {"x": normal(ROWS, WIDTH), "w": normal(WORDS, WIDTH, scale=0.2), "y": classes(WORDS, ROWS)},
              lambda m, x, w, y: m.liger_fused_linear_cross_entropy(x, w, y), lambda x, w, y: F.cross_entropy(x @ w.T, y)),
    Operation("kl_div", LIGER, {"x": lambda: torch.randn(ROWS, WORDS).log_softmax(-1), "p": chances(ROWS, WORDS)},
              lambda m, x, p: m.liger_kl_div(x, p.detach(), reduction="batchmean"),
              lambda x, p: F.kl_div(x, p.detach(), reduction="batchmean")),
    Operation("jsd", LIGER, {name: lambda: torch.randn(ROWS, WORDS).log_softmax(-1) for name in ("x", "p")},
              lambda m, x, p: m.liger_jsd(x, p.detach()), lambda x, p: jsd(p.detach(), x)),
    Operation("tvd", LIGER, {"x": chances(ROWS, WORDS), "p": chances(ROWS, WORDS)},
              lambda m, x, p: m.liger_tvd(x, p.detach(), reduction="batchmean"), lambda x, p: (x - p.detach()).abs().sum() / 2 / ROWS),
    Operation("fused_linear_jsd", LIGER,
              {"x": normal(ROWS, 19), "w": normal(WORDS, 19), "u": normal(ROWS, 19), "v": normal(WORDS, 19)},
              lambda m, x, w, u, v: m.liger_fused_linear_jsd(x, w, u.detach(), v.detach()),
              lambda x, w, u, v: jsd((u @ v.T).log_softmax(-1).detach(), (x @ w.T).log_softmax(-1))),
    Operation("multi_token_attention", LIGER, {"x": normal(1, 2, 9, 9), "w": normal(2, 2, 3, 3), "b": normal(2)},
              lambda m, x, w, b: m.liger_multi_token_attention(x, w, b, padding=1), multi_token),
    Operation("fused_neighborhood_attention", LIGER, {name: normal(1, 2, 37, 16) for name in "qkv"},
              lambda m, q, k, v: m.liger_fused_neighborhood_attention(q, k, v, kernel_size=5), neighbours, 1e-2),
    Operation("attn_res", LIGER, {"v": normal(3, 1, 7, 33), "q": normal(33), "w": normal(33)},
              lambda m, v, q, w: m.liger_attn_res(v, q, w),
              lambda v, q, w: ((rms_norm(v, w) @ q).softmax(0)[..., None] * v).sum(0)),
    Operation("embedding", "liger_kernel.ops", {"w": normal(WORDS, WIDTH), "y": classes(WORDS, 2, ROWS)},
              lambda m, w, y: m.LigerEmbeddingFunction.apply(w, y), lambda w, y: F.embedding(y, w)),
    Operation("grpo_loss", "liger_kernel.ops.grpo_loss",
              {"x": normal(2, 8, WORDS), "y": classes(WORDS, 2, 7), "ref": lambda: -part(2, 7)(), "old": lambda: -part(2, 7)(),
               "adv": normal(2)},
              lambda m, x, y, ref, old, adv: m.GrpoLossFunction.apply(
                  x, old.detach(), ref.detach(), y, adv.detach(), None, 0.9, 0.04, 0.2, 0.4, False)[0]),
)  # fmt: skip


def recurrence(q: Any, k: Any, v: Any, g: Any = None, beta: Any = None, a: Any = None, b: Any = None,
               scale: float | None = None) -> Any:  # fmt: skip
    """Linear attention, a step at a time: q, k (batch, time, heads, K), v (batch, time, heads, V).

    g is the logarithm of the state's decay, one for each head or for each of K; beta makes it the delta rule; a and b add
    b (a S), of the state before its decay.
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


def attention(q: Any, k: Any, v: Any, g: Any = None, scale: float | None = None) -> Any:
    """Causal, (batch, time, heads, width); g (batch, time, heads) is the logarithm of what is forgotten at each step."""
    scores = torch.einsum("bthk,bshk->bhts", q, k) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if g is not None:
        total = g.cumsum(1).transpose(1, 2)
        scores = scores + total[..., :, None] - total[..., None, :]
    time = torch.arange(q.shape[1])
    return torch.einsum("bhts,bshk->bthk", scores.masked_fill(time > time[:, None], -torch.inf).softmax(-1), v)


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


def of(name: str, inputs: dict[str, Draw], reference: Callable[..., Any] | None = None, tolerance: float = 2e-2,
       **given: Any) -> Operation:  # fmt: skip
    """An operation of fla.ops that takes its tensors by their names and returns (output, state)."""
    return Operation(name, OPS, inputs, lambda m, **t: first(getattr(m, name)(**t, **given)), reference, tolerance)


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
    of("fused_recurrent_gated_delta_rule", {**DELTA, "g": EACH_HEAD}, recurrence),
    of("chunk_kda", {**DELTA, "g": EACH_K}, recurrence),
    of("chunk_rwkv6", {"r": QKV["q"], "k": QKV["k"], "v": QKV["v"], "w": EACH_K, "u": normal(H, K)}, rwkv6),
    of("fused_recurrent_rwkv6", {"r": QKV["q"], "k": QKV["k"], "v": QKV["v"], "w": EACH_K, "u": normal(H, K)}, rwkv6),
    Operation("chunk_rwkv7", OPS, {"r": QKV["q"], "k": QKV["k"], "v": QKV["v"], "w": EACH_K, **DPLR},
              lambda m, a, b, **t: first(m.chunk_rwkv7(a=a, b=-0.5 * b, **t)),
              lambda r, k, v, w, a, b: recurrence(r, k, v, w, a=a, b=-0.5 * b, scale=1.0), 2e-2),
    Operation("chunk_dplr_delta_rule", OPS, {**QKV, "gk": EACH_K, **DPLR},
              lambda m, b, **t: first(m.chunk_dplr_delta_rule(b=-0.5 * b, **t)),
              lambda q, k, v, gk, a, b: recurrence(q, k, v, gk, a=a, b=-0.5 * b), 2e-2),
    of("parallel_attn", QKV, attention),
    of("parallel_forgetting_attn", {**QKV, "g": EACH_HEAD}, attention),
    of("parallel_stickbreaking_attn", QKV),
    of("chunk_gsa", {**QKV, "s": normal(1, T, H, 16, dtype=HALF), "g": decay(1, T, H, 16)}),
    of("fused_recurrent_hgrn", {"x": normal(1, T, K), "g": decay(1, T, K)},
       lambda x, g: recurrence(torch.ones_like(x)[..., None], torch.ones_like(x)[..., None], x[..., None], g, scale=1.0)[
           ..., 0]),
    Operation("l2norm", "fla.modules.l2norm", {"x": normal(ROWS, WIDTH)}, lambda m, x: m.l2norm(x),
              lambda x: F.normalize(x, dim=-1)),
    Operation("layer_norm", "fla.modules.norm", {"x": normal(ROWS, WIDTH)},
              lambda m, x: m.LayerNorm(WIDTH).cuda()(x), lambda x: F.layer_norm(x, (WIDTH,))),
    Operation("layer_norm_gated", "fla.modules.norm", {"x": normal(ROWS, WIDTH), "g": normal(ROWS, WIDTH)},
              lambda m, x, g: m.FusedRMSNormGated(WIDTH).cuda()(x, g), lambda x, g: rms_norm(x, 1, 1e-5) * F.silu(g)),
    Operation("rotary", "fla.modules.rotary", {"x": normal(1, 37, H, 16), "angle": normal(37, 8)},
              lambda m, x, angle: m.rotary_embedding(x, angle.detach().cos(), angle.detach().sin()),
              lambda x, angle: turned(x.transpose(1, 2), angle.detach()[None]).transpose(1, 2)),
    Operation("token_shift", "fla.modules.token_shift", {"x": normal(2, 37, WIDTH)}, lambda m, x: m.token_shift(x),
              lambda x: F.pad(x, (0, 0, 1, 0))[:, :-1] - x),
    Operation("causal_conv1d", "fla.modules.causal_conv1d", {"x": normal(2, 37, 48), "w": normal(48, 4)},
              lambda m, x, w: first(m.causal_conv1d(x, w, activation="silu")),
              lambda x, w: F.silu(F.conv1d(F.pad(x.transpose(1, 2), (3, 0)), w[:, None], groups=48)).transpose(1, 2)),
    Operation("swiglu", "fla.modules.activations", TWO, lambda m, a, b: m.swiglu(a, b), lambda a, b: F.silu(a) * b),
    Operation("cross_entropy_loss", "fla.modules.fused_cross_entropy", LOGITS,
              lambda m, x, y: m.cross_entropy_loss(x, y)[0], lambda x, y: F.cross_entropy(x, y, reduction="none")),
    Operation("fused_kl_div_loss", "fla.modules.fused_kl_div",
              {"x": normal(ROWS, 19), "w": normal(WORDS, 19), "u": normal(ROWS, 19), "v": normal(WORDS, 19)},
              lambda m, x, w, u, v: m.fused_kl_div_loss(x, u.detach(), w, v.detach()),
              lambda x, w, u, v: F.kl_div((x @ w.T).log_softmax(-1), (u @ v.T).softmax(-1).detach(), reduction="batchmean")),
    Operation("cumsum", "fla.ops.utils", {"g": normal(1, T, H)}, lambda m, g: m.chunk_global_cumsum(g),
              lambda g: g.cumsum(1), gradients=False),
    Operation("solve_tril", "fla.ops.utils", {"x": lambda: torch.randn(1, H, 64, 64).tril(-1).mul(0.1).transpose(1, 2)},
              lambda m, x: m.solve_tril(x.contiguous()),
              lambda x: torch.linalg.inv(torch.eye(64, dtype=x.dtype) + x.transpose(1, 2)).transpose(1, 2), gradients=False),
)  # fmt: skip
