"""How an answer that autograd goes through is run: forward, then backward with a given gradient of its result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from gpu_utils.errors import GradientLost
from gpu_utils.grading.exercise import Inputs


class _Given(torch.autograd.Function):
    """A number whose gradient by `result` is `gradient`, with the strides that it has. It reads neither.

    `torch.autograd.grad(result, ..., gradient)` would do, but compares the two shapes by sympy: its import takes
    seconds of the first check, and a check that ran out of time within it would leave sympy in pieces.
    """

    @staticmethod
    def forward(ctx: Any, result: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        ctx.gradient = gradient
        return torch.zeros((), device=result.device)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        return ctx.gradient, None


def forward_and_backward(
    *wanted: str, given: str = "dy", value: str = "y"
) -> Callable[[Callable[..., Any], Inputs], dict[str, Any]]:
    """A `call` for an Exercise: the answer's result, and the gradients of the inputs `wanted`, as a dict.

    wanted  names of the inputs to differentiate by; the gradient of "x" is called "dx"
    given   the input that holds the gradient of the result; the answer itself does not get it
    value   name of the result in the dict

    A result that is no tensor, or whose shape is not that of its gradient, comes back alone: it is wrong by itself.
    Autograd itself does no work on tensors here, so `torch_may=()` holds for the answer alone.
    Raises GradientLost where the result does not depend on an input for autograd.
    """

    def call(answer: Callable[..., Any], inputs: Inputs) -> dict[str, Any]:
        arguments = {name: tensor for name, tensor in inputs.items() if name != given}
        for name in wanted:
            arguments[name] = arguments[name].detach().requires_grad_()
        result = answer(**arguments)
        if not isinstance(result, torch.Tensor) or result.shape != inputs[given].shape:
            found = result.detach() if isinstance(result, torch.Tensor) else result
            return {value: found, **{f"d{name}": None for name in wanted}}
        if not result.requires_grad:
            raise GradientLost(
                f"the result does not know how to go backward ({value}.requires_grad is False); return the result of "
                "the apply of a torch.autograd.Function, with every input that needs a gradient among its arguments"
            )
        leaves = [arguments[name] for name in wanted]
        grads = torch.autograd.grad(_Given.apply(result, inputs[given]), leaves, allow_unused=True)
        return {value: result.detach(), **{f"d{name}": grad for name, grad in zip(wanted, grads, strict=True)}}

    return call
