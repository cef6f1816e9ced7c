"""A DeepSeek-V3 in plain PyTorch: latent attention (MLA), a mixture of experts, multi-token prediction.

After the DeepSeek-V3 report (arXiv 2412.19437, section 2); names of modules and weights are those of its checkpoint.
For training and measuring at a small size: no cache of latents, no YaRN, no dropout, no padding masks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpu_utils.errors import W2WError
from gpu_utils.model.deepseek_config import NORM_EPS, ConfigError, DeepSeekConfig, from_config, to_config

__all__ = [
    "MLA", "MTP", "Block", "ConfigError", "DeepSeek", "DeepSeekConfig", "Expert", "Gate", "MoE", "RMSNorm",
    "from_config", "rope_tables", "rotate", "to_config",
]  # fmt: skip

INIT_STD = 0.02
MTP_WEIGHT = 0.3
"""The weight of the second token's loss: that of DeepSeek-V3's first 10T tokens (arXiv 2412.19437, section 4.2)."""

RunExperts = Callable[[Tensor, Tensor, Tensor], Tensor]
Route = Callable[[Tensor], tuple[Tensor, Tensor]]


class DeepSeekError(W2WError):
    """A model and its input do not fit together."""


class RMSNorm(nn.RMSNorm):
    """x / sqrt(mean(x²) + 1e-6) · weight, over the last dimension."""

    def __init__(self, width: int) -> None:
        super().__init__(width, eps=NORM_EPS)


def rope_tables(positions: int, rope: int, theta: float) -> tuple[Tensor, Tensor]:
    """Cosine and sine of position · theta^(-2i / rope) for pair i: two (positions, rope / 2) tensors, float32."""
    frequencies = theta ** (-torch.arange(0, rope, 2, dtype=torch.float32) / rope)
    angles = torch.outer(torch.arange(positions, dtype=torch.float32), frequencies)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """RoPE: turn the pairs (0, 1), (2, 3), ... of the last dimension by the angle of their position.

    x: (..., T, rope); cos, sin: (T, rope / 2). Positions stand in the last dimension but one.
    """
    cos, sin = cos.to(x.dtype), sin.to(x.dtype)
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack([even * cos - odd * sin, odd * cos + even * sin], dim=-1).flatten(-2)


class MLA(nn.Module):
    """Multi-head latent attention, causal: x (batch, T, width) -> (batch, T, width).

    Keys and values come out of one latent vector a token; position is in a part of its own, shared by all heads.
    """

    def __init__(self, config: DeepSeekConfig) -> None:
        super().__init__()
        self.config = config
        key = config.nope + config.rope
        if config.q_lora is None:
            self.q_proj = nn.Linear(config.width, config.heads * key, bias=False)
        else:
            self.q_a_proj = nn.Linear(config.width, config.q_lora, bias=False)
            self.q_a_layernorm = RMSNorm(config.q_lora)
            self.q_b_proj = nn.Linear(config.q_lora, config.heads * key, bias=False)
        self.kv_a_proj_with_mqa = nn.Linear(config.width, config.kv_lora + config.rope, bias=False)
        self.kv_a_layernorm = RMSNorm(config.kv_lora)
        self.kv_b_proj = nn.Linear(config.kv_lora, config.heads * (config.nope + config.v_head), bias=False)
        self.o_proj = nn.Linear(config.heads * config.v_head, config.width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """cos, sin: `rope_tables` of the T positions."""
        c = self.config
        q = self.q_proj(x) if c.q_lora is None else self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x)))
        q_nope, q_rope = self._heads(q).split([c.nope, c.rope], dim=-1)
        latent, k_rope = self.kv_a_proj_with_mqa(x).split([c.kv_lora, c.rope], dim=-1)
        k_nope, v = self._heads(self.kv_b_proj(self.kv_a_layernorm(latent))).split([c.nope, c.v_head], dim=-1)
        shared = rotate(k_rope, cos, sin).unsqueeze(1).expand(-1, c.heads, -1, -1)  # one for all heads
        queries = torch.cat([q_nope, rotate(q_rope, cos, sin)], dim=-1)
        y = F.scaled_dot_product_attention(queries, torch.cat([k_nope, shared], dim=-1), v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).flatten(2))

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.config.heads, -1)).transpose(1, 2)


class Expert(nn.Module):
    """SwiGLU: down(silu(gate(x)) · up(x)), any leading shape of x."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(width, inner, bias=False)
        self.up_proj = nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Gate(nn.Module):
    """Which experts a token goes to: x (T, width) -> weights (T, k) float32, experts (T, k) int64.

    Sigmoid scores; the bias takes part in choosing groups and experts, and not in the weights.
    """

    def __init__(self, config: DeepSeekConfig) -> None:
        super().__init__()
        self.config = config
        self.weight = nn.Parameter(torch.empty(config.experts, config.width))
        self.register_buffer("e_score_correction_bias", torch.zeros(config.experts))
        self.e_score_correction_bias: Tensor

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        c = self.config
        with torch.autocast(x.device.type, enabled=False):
            scores = F.linear(x.float(), self.weight.float()).sigmoid()
        choice = (scores + self.e_score_correction_bias).detach().unflatten(-1, (c.groups, -1))
        best = choice.topk(2, dim=-1).values.sum(dim=-1).topk(c.keep, dim=-1).indices
        open_ = torch.zeros_like(choice[..., 0], dtype=torch.bool).scatter(-1, best, True)
        experts = choice.masked_fill(~open_.unsqueeze(-1), -torch.inf).flatten(1).topk(c.k, dim=-1).indices
        weights = scores.gather(-1, experts)
        return weights / (weights.sum(dim=-1, keepdim=True) + 1e-20) * c.route_scale, experts

    @torch.no_grad()
    def update_bias(self, load: Tensor, speed: float) -> None:
        """Move each bias by `speed`: up where the expert had fewer than the mean of `load` (experts,), else down."""
        load = load.to(self.e_score_correction_bias)
        self.e_score_correction_bias += speed * (load.mean() - load).sign()


class MoE(nn.Module):
    """Experts of which each token goes to k, and shared ones for all: x (..., width) -> (..., width).

    route        x (T, width) -> (weights, experts); by default the gate
    run_experts  (x, weights, experts) -> (T, width): the routed experts' part; by default a loop over the experts
    load         int64 (experts,): how many tokens went to each in the latest forward pass

    Both functions are attributes that may be replaced.
    """

    def __init__(self, config: DeepSeekConfig) -> None:
        super().__init__()
        self.config = config
        self.gate = Gate(config)
        self.experts = nn.ModuleList(Expert(config.width, config.expert_width) for _ in range(config.experts))
        self.shared_experts = Expert(config.width, config.shared * config.expert_width) if config.shared else None
        self.register_buffer("load", torch.zeros(config.experts, dtype=torch.int64), persistent=False)
        self.load: Tensor
        self.route: Route = self._by_gate
        self.run_experts: RunExperts = self._one_by_one

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(0, -2)
        weights, experts = self.route(flat)
        self.load = torch.bincount(experts.flatten(), minlength=self.config.experts)
        y = self.run_experts(flat, weights, experts)
        if self.shared_experts is not None:
            y = y + self.shared_experts(flat)
        return y.view_as(x)

    def _by_gate(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.gate(x)

    def _one_by_one(self, x: Tensor, weights: Tensor, experts: Tensor) -> Tensor:
        y = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            token, place = (experts == number).nonzero(as_tuple=True)
            if len(token):
                part = expert(x[token]) * weights[token, place].unsqueeze(-1)
                y = y.index_add(0, token, part.to(y.dtype))
        return y


class Block(nn.Module):
    """x + attention(norm(x)), then x + experts(norm(x)), or one SwiGLU in place of the experts."""

    def __init__(self, config: DeepSeekConfig, *, dense: bool) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.width)
        self.self_attn = MLA(config)
        self.post_attention_layernorm = RMSNorm(config.width)
        self.mlp = Expert(config.width, config.dense_width) if dense else MoE(config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class MTP(nn.Module):
    """The module of multi-token prediction, up to its norm; embedding and head are the main model's.

    forward: hidden (batch, T, width) of tokens, and the embeddings of the tokens that come next -> (batch, T, width).
    As in the checkpoint, the first half of the projection's input is the embedding.
    """

    def __init__(self, config: DeepSeekConfig) -> None:
        super().__init__()
        self.enorm, self.hnorm = RMSNorm(config.width), RMSNorm(config.width)
        self.eh_proj = nn.Linear(2 * config.width, config.width, bias=False)
        self.block = Block(config, dense=config.is_dense(config.layers - 1))
        self.norm = RMSNorm(config.width)

    def forward(self, hidden: Tensor, following: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        both = torch.cat([self.enorm(following), self.hnorm(hidden)], dim=-1)
        return self.norm(self.block(self.eh_proj(both), cos, sin))


class Losses(NamedTuple):
    """Mean cross-entropy in nats per token of the next token, and of the one after it (None without MTP)."""

    first: Tensor
    second: Tensor | None

    def total(self, weight: float = MTP_WEIGHT) -> Tensor:
        """What training makes small: first + weight · second."""
        return self.first if self.second is None else self.first + weight * self.second


class DeepSeek(nn.Module):
    """The language model: tokens (batch, T) int64 -> logits (batch, T, vocab_size) in the model's dtype."""

    def __init__(self, config: DeepSeekConfig) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab_size, config.width)
        self.layers = nn.ModuleList(Block(config, dense=config.is_dense(layer)) for layer in range(config.layers))
        self.norm = RMSNorm(config.width)
        self.lm_head = nn.Linear(config.width, config.vocab_size, bias=False)
        self.mtp = MTP(config) if config.mtp_depth else None
        cos, sin = rope_tables(config.n_positions, config.rope, config.rope_theta)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        self.cos: Tensor
        self.sin: Tensor
        for parameter in self.parameters():
            if parameter.dim() >= 2:
                nn.init.normal_(parameter, std=INIT_STD)

    @property
    def device(self) -> torch.device:
        return self.embed_tokens.weight.device

    def moes(self) -> Iterator[tuple[str, MoE]]:
        """(name, module) of every mixture of experts, the one of MTP included, in the order of the forward pass."""
        return ((name, module) for name, module in self.named_modules() if isinstance(module, MoE))

    def hidden(self, tokens: Tensor) -> Tensor:
        """What the head reads, (batch, T, width): the last block's output after the final norm."""
        T = tokens.shape[1]
        if self.config.n_positions < T:
            raise DeepSeekError(
                f"{T} tokens are more than the model's {self.config.n_positions} positions; give a shorter sequence"
            )
        x = self.embed_tokens(tokens)
        for block in self.layers:
            x = block(x, self.cos[:T], self.sin[:T])
        return self.norm(x)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.lm_head(self.hidden(tokens))

    def second_logits(self, hidden: Tensor, following: Tensor) -> Tensor:
        """Logits of the token after the next: from `hidden` of a token, and `following` (batch, T), the next token."""
        if self.mtp is None:
            raise DeepSeekError("this model has no module of multi-token prediction; give its config mtp_depth=1")
        T = hidden.shape[1]
        return self.lm_head(self.mtp(hidden, self.embed_tokens(following), self.cos[:T], self.sin[:T]))

    def loss(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy of the next token in nats per token, in float32 or better; both (batch, T) int64."""
        return _cross_entropy(self(tokens), targets)

    def losses(self, tokens: Tensor, targets: Tensor) -> Losses:
        """Losses of the next token, and with MTP of the one after it, for the T - 1 positions that know it."""
        hidden = self.hidden(tokens)
        first = _cross_entropy(self.lm_head(hidden), targets)
        if self.mtp is None:
            return Losses(first, None)
        return Losses(first, _cross_entropy(self.second_logits(hidden[:, :-1], targets[:, :-1]), targets[:, 1:]))


def _cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    logits = logits.flatten(0, 1)
    if logits.dtype in (torch.bfloat16, torch.float16):
        logits = logits.float()
    return F.cross_entropy(logits, targets.flatten())
