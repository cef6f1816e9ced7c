"""What a GPT-2 costs, counted from its shape: parameters, FLOPs, bytes. One multiply-add is two FLOPs.

d is n_embd, L n_layer, V vocab_size, B the batch, T the sequence length. `saved_bytes` measures what
`activation_bytes` predicts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from gpu_utils.analytic.inference import mha
from gpu_utils.model.gpt2 import GPT2Config


def param_count(config: GPT2Config) -> int:
    """Parameters with the output tied to the token embedding: V d + n_positions d + L (12 d² + 13 d) + 2 d.

    >>> param_count(GPT2Config.preset("gpt2"))
    124439808
    """
    d = config.n_embd
    return (config.vocab_size + config.n_positions) * d + config.n_layer * (12 * d * d + 13 * d) + 2 * d


def matmul_params(config: GPT2Config) -> int:
    """Parameters that multiply activations for every token: 12 L d² in the blocks, V d in the output.

    This is the N of "6 N": position and token look-ups, biases and norms do no matrix product.

    >>> matmul_params(GPT2Config.preset("gpt2"))
    123532032
    """
    return 12 * config.n_layer * config.n_embd**2 + config.vocab_size * config.n_embd


def flops_per_token(config: GPT2Config, seq_len: int | None = None) -> int:
    """FLOPs to train on one token: 6 N + 12 L d T, matrix products only, backward counted as twice forward.

    The second term is attention with its full T x T scores, also where a kernel skips the masked half: the
    convention of "PaLM: Scaling Language Modeling with Pathways" (arXiv 2204.02311, appendix B), so that model
    FLOPs do not depend on the kernel. T is n_positions unless given. Generating costs a third of this.

    >>> flops_per_token(GPT2Config.preset("gpt2"), 1024)
    854438400
    """
    T = config.n_positions if seq_len is None else seq_len
    return 6 * matmul_params(config) + 12 * config.n_layer * config.n_embd * T


def state_bytes(config: GPT2Config) -> dict[str, int]:
    """Bytes of float32 weights, their gradients and the two moments of AdamW: 16 bytes a parameter.

    >>> sum(state_bytes(GPT2Config.preset("gpt2")).values()) / 2**30 < 1.9
    True
    """
    n = 4 * param_count(config)
    return {"weights": n, "gradients": n, "AdamW moments": 2 * n}


def activation_bytes(
    config: GPT2Config, batch: int, seq_len: int, *, bytes_per_value: int = 4, scores: bool = True
) -> int:
    """Bytes that forward keeps for backward: bytes_per_value (L (16 B T d + B H T²) + 2 B T d) + 4 B T V.

    A block keeps 16 values a token and channel: the inputs of two norms (2), of four linear layers (1 + 1 + 1
    + 4), of GELU (4) and q, k, v (3). Without `scores`, as with a fused attention kernel, the B H T² term goes.
    The log-probabilities of the loss are float32 whatever the model is. Left out: statistics of the norms and of
    fused attention, the causal mask, token ids; together about one part in a hundred.
    """
    tokens = batch * seq_len
    block = 16 * tokens * config.n_embd + (tokens * config.n_head * seq_len if scores else 0)
    head = 2 * tokens * config.n_embd
    return bytes_per_value * (config.n_layer * block + head) + 4 * tokens * config.vocab_size


def kv_cache_bytes(config: GPT2Config, batch: int, seq_len: int, *, bytes_per_value: int = 4) -> int:
    """Bytes of the keys and values of `seq_len` positions in every layer: 2 L B T d values.

    >>> kv_cache_bytes(GPT2Config.preset("gpt2"), 1, 1024, bytes_per_value=2) / 2**20  # MiB
    36.0
    """
    return mha(config.n_layer, config.n_head, config.head_dim).total(batch, seq_len, bytes_per_value)


def saved_bytes(model: nn.Module, forward: Callable[[], Any]) -> int:
    """Bytes of the tensors that autograd keeps while `forward()` runs; weights and buffers are not counted.

    Tensors that share storage count once. Exact on every device, because it asks autograd, not the allocator.
    """
    own = {t.untyped_storage().data_ptr() for t in [*model.parameters(), *model.buffers()]}
    kept: dict[int, Tensor] = {}  # holding the tensor keeps its address from being reused

    def keep(tensor: Tensor) -> Tensor:
        address = tensor.untyped_storage().data_ptr()
        if address not in own:
            kept[address] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        result = forward()
    del result
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
