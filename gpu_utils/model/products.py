"""The matrix products of a training step, each timed alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from gpu_utils.model.device import training_dtype
from gpu_utils.model.gpt2 import GPT2Config, causal_attention


@dataclass(frozen=True)
class Products:
    """FLOPs and seconds of all products of one kind in forward and backward of a batch."""

    flops: int
    seconds: float


def fastest(call: Callable[[], Tensor], tries: int = 15) -> float:
    """Seconds of the fastest of some calls that return a tensor, until its device has finished.

    >>> fastest(lambda: torch.ones(2, 2) @ torch.ones(2, 2)) > 0
    True
    """
    found = []
    for _ in range(tries):
        start = time.perf_counter()
        call().flatten()[0].item()  # waits for a GPU, too
        found.append(time.perf_counter() - start)
    return min(found)


def products_alone(model: GPT2Config, batch: int, seq_len: int, device: torch.device) -> dict[str, Products]:
    """Name -> the products of that name, timed with random data in the dtype that `device` trains in.

    A linear layer has three: forward, the gradient of its input and that of its weights. Attention is the fused
    operator with its backward; its FLOPs are those of the two products over the whole T x T. Of each call the fastest
    of 15 counts. The FLOPs of all together are those of model.costs.flops_per_token, times the tokens.
    """
    dtype, tokens, d, layers = training_dtype(device), batch * seq_len, model.n_embd, model.n_layer

    def linear(n_in: int, n_out: int, times: int) -> Products:
        x, w, g = (
            torch.randn(shape, device=device, dtype=dtype) for shape in ((tokens, n_in), (n_out, n_in), (tokens, n_out))
        )
        seconds = fastest(lambda: x @ w.T) + fastest(lambda: g @ w) + fastest(lambda: g.T @ x)
        return Products(times * 6 * tokens * n_in * n_out, times * seconds)

    shape = (3, batch, model.n_head, seq_len, model.head_dim)
    qkv = torch.randn(shape, device=device, dtype=dtype, requires_grad=True)

    def attend() -> Tensor:
        q, k, v = qkv.unbind()
        out = causal_attention(q, k, v, "sdpa")
        return torch.autograd.grad(out.sum(), qkv)[0]

    return {
        f"{d} to {3 * d}, {layers} layers": linear(d, 3 * d, layers),
        f"{d} to {d}, {layers} layers": linear(d, d, layers),
        f"{d} to {4 * d}, {layers} layers": linear(d, 4 * d, layers),
        f"{4 * d} to {d}, {layers} layers": linear(4 * d, d, layers),
        f"attention, {layers} layers": Products(layers * 12 * tokens * seq_len * d, layers * fastest(attend)),
        f"output, {d} to {model.vocab_size:,}": linear(d, model.vocab_size, 1),
    }
