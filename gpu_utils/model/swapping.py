"""GPT-2 with some of torch's operators replaced by functions of one's own, one at a time or all of them.

The model stays as it is: while it runs, torch's calls are looked at, and a call of `F.layer_norm`, `F.gelu`, ... goes
to the function that was given in its place, by way of a row of `OPERATORS` (gpu_utils.model.swapped_operators), which
gives it a backward pass for autograd where it has none itself. This works with every model that calls these operators.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from gpu_utils.errors import BadArgument, UnknownName
from gpu_utils.model.gpt2 import GPT2
from gpu_utils.model.swapped_operators import OPERATORS

Given = Mapping[str, Any]
"""Name of an operator -> the function in its place; for "layer_norm" and "attention" the pair, forward and backward."""


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
           from 0. All take matrices (rows, columns): leading dimensions are flattened before, and come back afterwards.
           attention=(forward, backward), where forward(q, k, v, causal, scale) -> (o, lse) and backward(do, q, k, v, o,
           lse, causal, scale) -> (dq, dk, dv), all (batch, heads, positions, D) in bfloat16, lse float32 without D

    What it returns is as differentiable as before. A call that a given function is not written for, such as a GELU that
    is not the tanh form, stays torch's. Errors: UnknownName for an operator; BadArgument for what cannot be called.

    >>> import torch
    >>> double = swapped(lambda x: F.gelu(x, approximate="tanh"), gelu=lambda x: 2 * x)
    >>> double(torch.tensor([1.0, 3.0]))
    tensor([2., 6.])
    """
    check(given)
    return with_own(call, given)


def with_own(call: Callable[..., Any], given: Given) -> Callable[..., Any]:
    """As `swapped`, unchecked; attention=None stands for torch's fused operator in 16 bits."""

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
        if len(functions) != 1 + OPERATORS[name].pair or not all(map(callable, functions)):
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
