"""GPT-2 in plain PyTorch: the model that the whole course measures, ports and rewrites.

Architecture of "Language Models are Unsupervised Multitask Learners" (2019): learned positions, layer norm
before each half of a block, causal multi-head attention, tanh GELU, output tied to the token embedding.
Parameter names are those of `transformers` without the `transformer.` prefix. Not handled: dropout (the course
trains for less than one pass over its data) and padding masks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpu_utils.errors import UnknownName, W2WError

Attention = Literal["explicit", "sdpa"]
INIT_STD = 0.02
NORM_EPS = 1e-5


class ModelError(W2WError):
    """A model, its weights or its input do not fit together."""


@dataclass(frozen=True)
class GPT2Config:
    """The shape of a GPT-2, with the names that `transformers` uses.

    vocab_size V; n_positions: longest sequence; n_embd d: width; n_layer L; n_head: heads of d / n_head each.

    >>> GPT2Config.preset("gpt2").n_layer
    12
    """

    vocab_size: int
    n_positions: int
    n_embd: int
    n_layer: int
    n_head: int

    def __post_init__(self) -> None:
        if self.n_embd % self.n_head:
            raise ModelError(f"n_embd {self.n_embd} does not divide into {self.n_head} heads; choose a multiple")

    @property
    def head_dim(self) -> int:
        return self.n_embd // self.n_head

    @classmethod
    def preset(cls, name: str) -> GPT2Config:
        """ "gpt2" is the published 124M model; "cpu" trains in under a minute on two cores."""
        if name not in PRESETS:
            raise UnknownName("GPT-2 preset", name, PRESETS)
        return PRESETS[name]


PRESETS = {
    "gpt2": GPT2Config(vocab_size=50257, n_positions=1024, n_embd=768, n_layer=12, n_head=12),
    "cpu": GPT2Config(vocab_size=1024, n_positions=128, n_embd=128, n_layer=2, n_head=4),
}


class KVCache:
    """Keys and values of the positions seen so far, per layer: two (batch, n_head, n_positions, head_dim) tensors.

    `length` positions are filled. Its size is fixed at the start, so that decoding never allocates.
    """

    def __init__(self, config: GPT2Config, batch: int, *, device: torch.device, dtype: torch.dtype) -> None:
        shape = (config.n_layer, batch, config.n_head, config.n_positions, config.head_dim)
        self.keys = torch.zeros(shape, device=device, dtype=dtype)
        self.values = torch.zeros(shape, device=device, dtype=dtype)
        self.length = 0

    def extend(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Store k and v (batch, n_head, new, head_dim) after the filled part; return all keys and values so far."""
        end = self.length + k.shape[2]
        self.keys[layer, :, :, self.length : end] = k
        self.values[layer, :, :, self.length : end] = v
        return self.keys[layer, :, :, :end], self.values[layer, :, :, :end]


def causal_attention(q: Tensor, k: Tensor, v: Tensor, how: Attention = "sdpa") -> Tensor:
    """softmax(q kᵀ / sqrt(head_dim)) v, where each query sees the keys up to its own position.

    q: (batch, heads, T, head_dim). k, v: (batch, heads, S, head_dim) with S >= T: the queries are the last T of
    S positions. Returns the shape of q. "explicit" writes the T x S scores to memory; "sdpa" calls PyTorch's
    fused kernel, which never does.
    """
    T, S = q.shape[-2], k.shape[-2]
    if how == "sdpa" and T == S:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    visible = torch.ones(T, S, dtype=torch.bool, device=q.device).tril(S - T)
    if how == "sdpa":
        return F.scaled_dot_product_attention(q, k, v, attn_mask=visible)
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    return scores.masked_fill(~visible, -math.inf).softmax(dim=-1) @ v


def split_heads(qkv: Tensor, n_head: int) -> tuple[Tensor, Tensor, Tensor]:
    """(batch, T, 3 d) -> q, k, v, each (batch, n_head, T, d / n_head)."""
    B, T, width = qkv.shape
    q, k, v = (part.view(B, T, n_head, -1).transpose(1, 2) for part in qkv.split(width // 3, dim=-1))
    return q, k, v


def merge_heads(y: Tensor) -> Tensor:
    """(batch, n_head, T, head_dim) -> (batch, T, d): the heads side by side again."""
    return y.transpose(1, 2).flatten(2)


def attention(
    x: Tensor, w_qkv: Tensor, b_qkv: Tensor, w_proj: Tensor, b_proj: Tensor, n_head: int, how: Attention = "sdpa"
) -> Tensor:
    """Causal multi-head attention from raw weights: x (batch, T, d) -> (batch, T, d).

    w_qkv (3d, d), w_proj (d, d): (out, in) as in nn.Linear; biases (3d,) and (d,).
    """
    q, k, v = split_heads(F.linear(x, w_qkv, b_qkv), n_head)
    return F.linear(merge_heads(causal_attention(q, k, v, how)), w_proj, b_proj)


def mlp(x: Tensor, w_fc: Tensor, b_fc: Tensor, w_proj: Tensor, b_proj: Tensor) -> Tensor:
    """Linear d -> 4d, tanh GELU, linear 4d -> d; w_fc (4d, d), w_proj (d, 4d), any leading shape of x."""
    return F.linear(F.gelu(F.linear(x, w_fc, b_fc), approximate="tanh"), w_proj, b_proj)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Normalise the last dimension to mean 0 and variance 1 (eps 1e-5), then scale and shift; shapes (d,)."""
    return F.layer_norm(x, weight.shape, weight, bias, NORM_EPS)


class SelfAttention(nn.Module):
    """`attention` with its weights, and with the keys and values of earlier positions when there is a cache."""

    def __init__(self, config: GPT2Config, layer: int, how: Attention) -> None:
        super().__init__()
        self.n_head, self.layer, self.how = config.n_head, layer, how
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd)

    def forward(self, x: Tensor, cache: KVCache | None = None) -> Tensor:
        q, k, v = split_heads(self.c_attn(x), self.n_head)
        if cache is not None:
            k, v = cache.extend(self.layer, k, v)
        return self.c_proj(merge_heads(causal_attention(q, k, v, self.how)))


class MLP(nn.Module):
    """`mlp` with its weights."""

    def __init__(self, config: GPT2Config) -> None:
        super().__init__()
        self.c_fc = nn.Linear(config.n_embd, 4 * config.n_embd)
        self.c_proj = nn.Linear(4 * config.n_embd, config.n_embd)

    def forward(self, x: Tensor) -> Tensor:
        return mlp(x, self.c_fc.weight, self.c_fc.bias, self.c_proj.weight, self.c_proj.bias)


class Block(nn.Module):
    """Pre-norm block: x + attention(norm(x)), then x + MLP(norm(x))."""

    def __init__(self, config: GPT2Config, layer: int, how: Attention) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.n_embd, eps=NORM_EPS)
        self.attn = SelfAttention(config, layer, how)
        self.ln_2 = nn.LayerNorm(config.n_embd, eps=NORM_EPS)
        self.mlp = MLP(config)

    def forward(self, x: Tensor, cache: KVCache | None = None) -> Tensor:
        x = x + self.attn(self.ln_1(x), cache)
        return x + self.mlp(self.ln_2(x))


class GPT2(nn.Module):
    """The language model: tokens (batch, T) int64 -> logits (batch, T, vocab_size) in the model's dtype.

    attention: "sdpa" (fused) or "explicit" (scores in memory), the same function to rounding.
    """

    def __init__(self, config: GPT2Config, *, attention: Attention = "sdpa") -> None:
        super().__init__()
        self.config = config
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.wpe = nn.Embedding(config.n_positions, config.n_embd)
        self.h = nn.ModuleList(Block(config, layer, attention) for layer in range(config.n_layer))
        self.ln_f = nn.LayerNorm(config.n_embd, eps=NORM_EPS)
        self.apply(self._init)
        # 2L branches add to one residual stream: scaled by 1/sqrt(2L), their sum keeps the variance of one.
        for name, weight in self.named_parameters():
            if name.endswith("c_proj.weight"):
                nn.init.normal_(weight, std=INIT_STD / math.sqrt(2 * config.n_layer))

    @staticmethod
    def _init(module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=INIT_STD)
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)

    @property
    def device(self) -> torch.device:
        return self.wte.weight.device

    def forward(self, tokens: Tensor, cache: KVCache | None = None) -> Tensor:
        """With a cache, `tokens` continue what the cache holds, and the cache grows by them."""
        past = cache.length if cache is not None else 0
        T = tokens.shape[1]
        if past + T > self.config.n_positions:
            raise ModelError(
                f"{past + T} tokens are more than the model's {self.config.n_positions} learned positions; "
                "give it a shorter sequence"
            )
        x = self.wte(tokens) + self.wpe.weight[past : past + T]
        for block in self.h:
            x = block(x, cache)
        if cache is not None:
            cache.length += T
        return F.linear(self.ln_f(x), self.wte.weight)

    def loss(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy in nats per token, in float32 or better; both arguments (batch, T) int64."""
        logits = self(tokens).flatten(0, 1)
        if logits.dtype in (torch.bfloat16, torch.float16):
            logits = logits.float()
        return F.cross_entropy(logits, targets.flatten())

    def new_cache(self, batch: int) -> KVCache:
        return KVCache(self.config, batch, device=self.device, dtype=self.wte.weight.dtype)


@torch.no_grad()
def generate(
    model: GPT2,
    tokens: Tensor,
    n_new: int,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    generator: torch.Generator | None = None,
    use_cache: bool = True,
) -> Tensor:
    """Continue `tokens` (batch, T) int64 by n_new tokens each: (batch, T + n_new).

    temperature 0 takes the likeliest token. top_k keeps that many candidates. `use_cache=False` computes every
    position again for every token: same tokens, more work. Raises ModelError past n_positions.

    >>> model = GPT2(GPT2Config(vocab_size=16, n_positions=8, n_embd=8, n_layer=1, n_head=2))
    >>> generate(model, torch.tensor([[1, 2]]), 3).shape
    torch.Size([1, 5])
    """
    cache = model.new_cache(tokens.shape[0]) if use_cache else None
    fresh = tokens
    for _ in range(n_new):
        logits = model(fresh, cache)[:, -1]
        fresh = _pick(logits, temperature, top_k, generator)
        tokens = torch.cat([tokens, fresh], dim=1)
        if not use_cache:
            fresh = tokens
    return tokens


def _pick(logits: Tensor, temperature: float, top_k: int | None, generator: torch.Generator | None) -> Tensor:
    if temperature == 0:
        return logits.argmax(dim=-1, keepdim=True)
    logits = logits.float() / temperature
    if top_k is not None:
        worst_kept = logits.topk(min(top_k, logits.shape[-1])).values[:, -1:]
        logits = logits.masked_fill(logits < worst_kept, -math.inf)
    return torch.multinomial(logits.softmax(dim=-1), 1, generator=generator)


# --- weights in the format of transformers ---------------------------------------------------------------------

# transformers keeps these four matrices as (in, out), from the TensorFlow original; nn.Linear is (out, in).
_TRANSPOSED = ("c_attn.weight", "c_proj.weight", "c_fc.weight")


def load_transformers(source: Any, *, n_head: int | None = None, attention: Attention = "sdpa") -> GPT2:
    """A GPT2 with the weights of a `transformers.GPT2LMHeadModel` or of its state dict.

    A state dict does not tell the number of heads: give n_head with it. Raises ModelError when weights are
    missing, unknown or of the wrong shape. The dtype and device of the weights are kept.
    """
    if isinstance(source, nn.Module):
        config: Any = source.config
        n_head, state = config.n_head, source.state_dict()
    else:
        state = dict(source)
    if n_head is None:
        raise ModelError("a state dict does not tell the number of heads; give n_head (12 for the 124M model)")
    state = {name.removeprefix("transformer."): weight for name, weight in state.items()}
    # The tied copy, and causal masks that old checkpoints carry.
    state = {n: w for n, w in state.items() if n != "lm_head.weight" and not n.endswith((".attn.bias", "masked_bias"))}
    if not {"wte.weight", "wpe.weight"} <= state.keys():
        raise ModelError("these weights hold no wte.weight and wpe.weight; give those of a GPT2LMHeadModel")
    vocab_size, n_embd = state["wte.weight"].shape
    n_layer = len({name.split(".")[1] for name in state if name.startswith("h.")})
    config = GPT2Config(vocab_size, state["wpe.weight"].shape[0], n_embd, n_layer, n_head)
    model = GPT2(config, attention=attention).to(state["wte.weight"])
    try:
        model.load_state_dict({n: w.T if n.endswith(_TRANSPOSED) else w for n, w in state.items()})
    except RuntimeError as problem:
        raise ModelError(f"these weights are not those of a GPT-2: {problem}") from None
    return model


def to_transformers(model: GPT2) -> Any:
    """A `transformers.GPT2LMHeadModel` with copies of this model's weights, in evaluation mode."""
    from transformers import GPT2Config as TransformersConfig
    from transformers import GPT2LMHeadModel

    config = model.config
    theirs = GPT2LMHeadModel(
        TransformersConfig(
            vocab_size=config.vocab_size,
            n_positions=config.n_positions,
            n_embd=config.n_embd,
            n_layer=config.n_layer,
            n_head=config.n_head,
            layer_norm_epsilon=NORM_EPS,
            attn_pdrop=0.0,
            embd_pdrop=0.0,
            resid_pdrop=0.0,
            bos_token_id=None,  # the default, 50256, is in no small vocabulary
            eos_token_id=None,
        )
    ).to(model.wte.weight)
    state = {f"transformer.{n}": w.T if n.endswith(_TRANSPOSED) else w for n, w in model.state_dict().items()}
    theirs.load_state_dict({**state, "lm_head.weight": model.wte.weight})
    return theirs.eval()


def from_pretrained(name: str = "gpt2", *, attention: Attention = "sdpa") -> GPT2:
    """Published weights, through transformers: from its cache, else from the hub (548 MB for "gpt2").

    Raises ModelError, in one sentence, where neither has them.
    """
    from transformers import GPT2LMHeadModel

    try:
        theirs = GPT2LMHeadModel.from_pretrained(name)
    except (OSError, ValueError) as problem:
        raise ModelError(
            f"the weights {name!r} are not in the cache of transformers and no hub gave them; train your own with "
            "gpu_utils.model.training, or run this once where the hub is reachable"
        ) from problem
    return load_transformers(theirs, attention=attention)
