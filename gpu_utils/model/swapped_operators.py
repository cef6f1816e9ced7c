"""Torch's operators that a function of one's own can stand in for, and how a call of one becomes a call of the other.

`OPERATORS` is the table; `gpu_utils.model.swapping` uses it. A new operator is one more row: its name, the calls of
torch that it stands for, and an adapter, with a backward pass for autograd where the given function has none itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from gpu_utils.model.gpt2 import causal_attention


@dataclass(frozen=True)
class Operator:
    """One row of the table.

    replaces  the functions of torch that a model may call it by
    adapt     (given, number of the call, *arguments of torch's function) -> its result, or NotImplemented for a call
              that `given` is not written for, which is left to torch
    takes     what has to be given, in words
    pair      two functions, forward and backward
    dtype     in which the given function computes, where that is not the model's
    eager     (*arguments) -> result, as torch in eager mode has it on a GPU, to count what that touches; None for the
              call itself
    """

    replaces: tuple[Callable[..., Any], ...]
    adapt: Callable[..., Any]
    takes: str
    pair: bool = False
    dtype: torch.dtype | None = None
    eager: Callable[..., Tensor] | None = None


class _LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float, given: Any) -> Tensor:
        forward, ctx.backward_of_learner = given
        y, mean, rstd = forward(x, weight, bias, eps)
        ctx.save_for_backward(x, weight, mean, rstd)
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        dx, dw, db = ctx.backward_of_learner(gradients[0], *ctx.saved_tensors)
        return dx, dw, db, None, None


class _Softmax(torch.autograd.Function):
    """Backward from the result y alone: dx = y * (dy - sum of y * dy over a row), which torch has as one operator."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, given: Callable[[Tensor], Tensor]) -> Tensor:
        y = given(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (y,) = ctx.saved_tensors
        return torch.ops.aten._softmax_backward_data(gradients[0], y, -1, y.dtype), None


def _matrix(x: Tensor) -> Tensor:
    """The same elements as rows of the last dimension: what every given function takes."""
    return x.reshape(-1, x.shape[-1])


class _Linear(torch.autograd.Function):
    """y = x @ weight.T + bias by one product, and its gradients by two: dx = dy @ weight, dw = dy.T @ x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, given: Callable[..., Tensor]) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.given, ctx.has_bias = given, bias is not None
        y = given(x, weight.T)
        return y if bias is None else y + bias

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (dy,), (x, weight) = gradients, ctx.saved_tensors
        return ctx.given(dy, weight), ctx.given(dy.T, x), dy.sum(0) if ctx.has_bias else None, None


def _linear(given: Callable[..., Tensor], _: int, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    if weight.dim() != 2:
        return NotImplemented
    y = _Linear.apply(_matrix(input), weight, bias, given)
    return y.view(*input.shape[:-1], len(weight))


def _layer_norm(
    given: Any,
    _: int,
    x: Tensor,
    shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Any:
    if len(shape) != 1 or weight is None or bias is None:
        return NotImplemented
    return _LayerNorm.apply(_matrix(x), weight, bias, eps, given).view(x.shape)


def _gelu(given: Callable[[Tensor], Tensor], _: int, x: Tensor, *, approximate: str = "none") -> Any:
    return given(_matrix(x)).view(x.shape) if approximate == "tanh" else NotImplemented


def _softmax(
    given: Callable[[Tensor], Tensor], _: int, x: Tensor, dim: int | None = None, *, dtype: Any = None, **__: Any
) -> Any:
    if dim is None or dim % x.dim() != x.dim() - 1 or dtype is not None:
        return NotImplemented
    return _Softmax.apply(_matrix(x), given).view(x.shape)


def _cross_entropy(
    given: Callable[..., Tensor], _: int, logits: Tensor, targets: Tensor, ignore_index: int = -100, **named: Any
) -> Any:
    plain = named.get("weight") is None and named.get("reduction", "mean") == "mean"
    if logits.dim() != 2 or not plain or named.get("label_smoothing"):
        return NotImplemented
    return given(logits, targets, ignore_index)


def _dropout(
    given: Callable[..., Tensor], number: int, x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Any:
    return given(_matrix(x), p, number).view(x.shape) if training and not inplace else NotImplemented


ATTENTION_IN = torch.bfloat16
"""What q, k and v become where they do not have 16 bits already: matrix units want it, and gradients fit its range."""


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float, given: Any) -> Tensor:
        forward, ctx.backward_of_learner = given
        o, lse = forward(q, k, v, causal, scale)
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.causal, ctx.scale = causal, scale
        return o

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        dq, dk, dv = ctx.backward_of_learner(gradients[0], *ctx.saved_tensors, ctx.causal, ctx.scale)
        return dq, dk, dv, None, None, None


def _attention(
    given: Any,
    _: int,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    **named: Any,
) -> Any:
    if attn_mask is not None or dropout_p or named or not query.shape == key.shape == value.shape:
        return NotImplemented
    dtype = query.dtype if query.dtype in (torch.float16, torch.bfloat16) else ATTENTION_IN
    q, k, v = (x.to(dtype, memory_format=torch.contiguous_format) for x in (query, key, value))
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    if given is None:  # torch's fused operator, in the same type
        o = F.scaled_dot_product_attention(q, k, v, is_causal=is_causal, scale=scale)
    else:
        o = _Attention.apply(q, k, v, is_causal, scale, given)
    return o.to(query.dtype)


OPERATORS: dict[str, Operator] = {
    "layer_norm": Operator(
        (F.layer_norm,), _layer_norm, "(layernorm, layernorm_backward), of (rows, columns) as in lab 04", pair=True
    ),
    "gelu": Operator((F.gelu,), _gelu, "gelu(x), tanh form, which autograd goes through"),
    "softmax": Operator(
        (torch.Tensor.softmax, torch.softmax, F.softmax), _softmax, "softmax(x) over the rows of a matrix"
    ),
    "cross_entropy": Operator(
        (F.cross_entropy,), _cross_entropy, "cross_entropy(logits, targets, ignore_index), which autograd goes through"
    ),
    "linear": Operator((F.linear,), _linear, "matmul(a, b), the product of two matrices of any strides"),
    "dropout": Operator(
        (F.dropout,),
        _dropout,
        "dropout(x, p, seed), which autograd goes through",
        eager=lambda x, p, **_: torch.native_dropout(x, p, True)[0],  # on a CPU F.dropout is three operators
    ),
    "attention": Operator(
        (F.scaled_dot_product_attention,),
        _attention,
        "the pair (forward, backward) of lab 06, since autograd cannot look into a kernel",
        pair=True,
        dtype=ATTENTION_IN,
        eager=lambda q, k, v, is_causal: causal_attention(q, k, v, "explicit"),
    ),
}
"""Name -> operator. In a GPT2 with attention="explicit" its softmax is a call of its own, else attention is one."""
