"""GPT-2 with some of torch's operators replaced by functions of one's own, one at a time or all of them.

The model stays as it is: while it runs, torch's calls are looked at, and a call of `F.layer_norm`, `F.gelu`, ... goes
to the function that was given in its place, with a backward pass for autograd where that function has none itself.
This works with every model that calls these operators. `OPERATORS` is the table; a matrix product or attention enters
as one more row: its name, the calls of torch that it stands for, and how such a call becomes one of the given function.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from gpu_utils.errors import BadArgument, UnknownName
from gpu_utils.model.gpt2 import GPT2

Given = Mapping[str, Any]
"""Name of an operator -> the function in its place; for "layer_norm" the pair of functions, forward and backward."""


@dataclass(frozen=True)
class Operator:
    """One row of the table.

    replaces  the functions of torch that a model may call it by
    adapt     (given, number of the call, *arguments of torch's function) -> its result, or NotImplemented for a call
              that `given` is not written for, which is left to torch
    takes     what has to be given, in words
    """

    replaces: tuple[Callable[..., Any], ...]
    adapt: Callable[..., Any]
    takes: str


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


OPERATORS: dict[str, Operator] = {
    "layer_norm": Operator(
        (F.layer_norm,), _layer_norm, "(layernorm, layernorm_backward), of (rows, columns) as in lab 04"
    ),
    "gelu": Operator((F.gelu,), _gelu, "gelu(x), tanh form, which autograd goes through"),
    "softmax": Operator(
        (torch.Tensor.softmax, torch.softmax, F.softmax), _softmax, "softmax(x) over the rows of a matrix"
    ),
    "cross_entropy": Operator(
        (F.cross_entropy,), _cross_entropy, "cross_entropy(logits, targets, ignore_index), which autograd goes through"
    ),
    "linear": Operator((F.linear,), _linear, "matmul(a, b), the product of two matrices of any strides"),
    "dropout": Operator((F.dropout,), _dropout, "dropout(x, p, seed), which autograd goes through"),
}
"""Name -> operator. The softmax of attention is a call of its own in a GPT2 with attention="explicit" only."""


@dataclass(frozen=True)
class Call:
    """One call of an operator: its name, the function of torch, and what it was called with."""

    operator: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass
class _Replacing(TorchFunctionMode):
    """Sends the calls of some operators elsewhere, and keeps those that went there."""

    given: Given
    calls: list[Call] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.rows = {function: name for name in self.given for function in OPERATORS[name].replaces}

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        name = self.rows.get(function)
        if name is not None:
            number = sum(call.operator == name for call in self.calls)
            found = OPERATORS[name].adapt(self.given[name], number, *args, **named)
            if found is not NotImplemented:
                self.calls.append(Call(name, function, args, named))
                return found
        return function(*args, **named)


def swapped(call: Callable[..., Any], **given: Any) -> Callable[..., Any]:
    """A function (a model, its `loss`) with operators of torch replaced while it runs.

    given  name of an operator (`OPERATORS`) -> what stands in its place: layer_norm=(layernorm, layernorm_backward),
           where layernorm(x, weight, bias, eps) -> (y, mean, rstd) and layernorm_backward(dy, x, weight, mean, rstd)
           -> (dx, dw, db); gelu=gelu; softmax=softmax, without a backward; cross_entropy=cross_entropy;
           linear=matmul, of two matrices, without a backward; dropout=dropout, whose seed is the number of the call,
           from 0. All take matrices (rows, columns): leading dimensions are flattened before, and come back afterwards

    What it returns is as differentiable as before. A call that a given function is not written for, such as a GELU that
    is not the tanh form, stays torch's. Errors: UnknownName for an operator; BadArgument for what cannot be called.

    >>> double = swapped(lambda x: F.gelu(x, approximate="tanh"), gelu=lambda x: 2 * x)
    >>> double(torch.tensor([1.0, 3.0]))
    tensor([2., 6.])
    """
    check(given)

    def run(*args: Any, **kwargs: Any) -> Any:
        with _Replacing(given):
            return call(*args, **kwargs)

    return run


def calls_of(call: Callable[[], Any], **given: Any) -> list[Call]:
    """The calls that `swapped(call, **given)` sends to the given functions, in order; it runs once."""
    check(given)
    with _Replacing(given) as mode:
        call()
    return mode.calls


def check(given: Given) -> None:
    """Raise what `swapped` raises for these functions."""
    for name, function in given.items():
        if name not in OPERATORS:
            raise UnknownName("operator", name, OPERATORS)
        functions = function if isinstance(function, tuple) else (function,)
        if len(functions) != (2 if name == "layer_norm" else 1) or not all(map(callable, functions)):
            raise BadArgument(f"{name} is {function!r}; expected {OPERATORS[name].takes}")


@contextlib.contextmanager
def with_dropout(model: GPT2, p: float) -> Iterator[None]:
    """A block in which the model drops out after its embeddings and at the end of each branch, by `F.dropout`.

    p: the share that is dropped. These are the places of the first GPT-2, but for the weights of attention.
    """

    def of_result(_: Any, __: Any, result: Tensor) -> Tensor:
        return F.dropout(result, p)

    def of_input(_: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return (F.dropout(args[0], p), *args[1:])

    blocks: list[Any] = list(model.h)
    hooks = [blocks[0].register_forward_pre_hook(of_input)]
    hooks += [part.register_forward_hook(of_result) for block in blocks for part in (block.attn, block.mlp)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
