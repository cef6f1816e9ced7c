"""What a DeepSeek-V3 costs, counted from its shape: parameters in all, those that a token uses, FLOPs.

One multiply-add is two FLOPs. A token uses its k routed experts, the shared ones, and everything else: the embedding,
of which it reads one row, counts in full, as the published figures count it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gpu_utils.model.deepseek_config import DeepSeekConfig


@dataclass(frozen=True)
class Count:
    """Parameters that there are, and those that one token uses."""

    total: int
    active: int

    def __add__(self, other: Count) -> Count:
        return Count(self.total + other.total, self.active + other.active)

    def __mul__(self, times: int) -> Count:
        return Count(times * self.total, times * self.active)


def attention_matrices(config: DeepSeekConfig) -> int:
    """Parameters of the matrices of one MLA.

    >>> attention_matrices(DeepSeekConfig.preset("v3"))
    187105280
    """
    c = config
    key = c.heads * (c.nope + c.rope)
    queries = c.width * key if c.q_lora is None else (c.width + key) * c.q_lora
    values = c.width * (c.kv_lora + c.rope) + c.kv_lora * c.heads * (c.nope + c.v_head)
    return queries + values + c.heads * c.v_head * c.width


def ffn(config: DeepSeekConfig, *, dense: bool) -> Count:
    """One SwiGLU, or the experts of a layer with their gate."""
    c = config
    if dense:
        return Count(3 * c.width * c.dense_width, 3 * c.width * c.dense_width)
    gate, expert = c.experts * c.width, 3 * c.width * c.expert_width
    return Count(gate + (c.experts + c.shared) * expert, gate + (c.k + c.shared) * expert)


def _both(number: int) -> Count:
    return Count(number, number)


def parameters(config: DeepSeekConfig) -> dict[str, Count]:
    """Parameters by part; the module of MTP, if there is one, stands last and apart.

    The biases of gates are no parameters: no gradient moves them.

    >>> found = parameters(DeepSeekConfig.preset("v3"))
    >>> sum(part.total for name, part in found.items() if name != "MTP")
    671026404352
    """
    c = config
    sparse = c.layers - c.dense_layers
    norms = 2 * c.width + (c.q_lora or 0) + c.kv_lora
    found = {
        "embedding": _both(c.vocab_size * c.width),
        "attention": _both(c.layers * attention_matrices(c)),
        "dense SwiGLUs": ffn(c, dense=True) * c.dense_layers,
        "experts and gates": ffn(c, dense=False) * sparse,
        "norms": _both(c.layers * norms + c.width),
        "head": _both(c.vocab_size * c.width),
    }
    if c.mtp_depth:
        own = 2 * c.width * c.width + 3 * c.width + norms + attention_matrices(c)
        found["MTP"] = _both(own) + ffn(c, dense=c.is_dense(c.layers - 1))
    return {name: part for name, part in found.items() if part.total}


def forward_flops(config: DeepSeekConfig, batch: int, seq_len: int) -> int:
    """FLOPs of the matrix products of one forward pass with its losses, that of MTP included.

    Attention counts its full T x T scores. MTP runs on T - 1 positions of each sequence. With backward it is three
    times as many: each product has two in its backward pass.

    >>> forward_flops(DeepSeekConfig.preset("cpu"), 8, 128)
    2375814656
    """
    c = config
    head = c.vocab_size * c.width

    def block(T: int, dense: bool) -> int:
        scores = c.heads * T * (c.nope + c.rope + c.v_head)
        return T * (attention_matrices(c) + ffn(c, dense=dense).active + scores)

    T = seq_len
    products = T * head + sum(block(T, c.is_dense(layer)) for layer in range(c.layers))
    if c.mtp_depth:
        products += (T - 1) * (head + 2 * c.width * c.width) + block(T - 1, c.is_dense(c.layers - 1))
    return 2 * batch * products


def dense_of_equal_activity(config: DeepSeekConfig) -> DeepSeekConfig:
    """The same model with one SwiGLU in each layer, as wide as the experts of a token: equal but for the gates."""
    return replace(config, dense_layers=config.layers, dense_width=(config.k + config.shared) * config.expert_width)
