"""What the tensor exercises of this unit share: drawing inputs, and the tolerance of a chain of matrix products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import Tolerance, tolerance
from gpu_utils.errors import GradientLost


def normal(generator: torch.Generator, dtype: torch.dtype, *shape: int, std: float = 1.0) -> Tensor:
    """A CPU tensor of independent normal numbers with mean 0, drawn in float32 and rounded to `dtype`."""
    return (torch.randn(shape, generator=generator) * std).to(dtype)


def linear_weights(generator: torch.Generator, dtype: torch.dtype, n_in: int, n_out: int) -> tuple[Tensor, Tensor]:
    """Weight (n_out, n_in) and bias (n_out,) that keep numbers of size 1 at size 1; the bias is too large to "
    "forget."""
    return normal(generator, dtype, n_out, n_in, std=n_in**-0.5), normal(generator, dtype, n_out, std=0.5)


def doubled(value: Any) -> Any:
    """The same tree with its floating-point tensors in float64."""
    if isinstance(value, Tensor):
        return value.double() if value.is_floating_point() else value
    if isinstance(value, dict):
        return {key: doubled(item) for key, item in value.items()}
    return value


def chain_tolerance(dtype: torch.dtype, width: int, stages: int, magnitude: float = 1.0) -> Tolerance:
    """For `stages` operations in a row on numbers of size `magnitude`, matrix products among them of `width` terms.

    In float32 every addition rounds, so stages * width roundings reach an output. Narrower types sum in float32 and
    round once a stage.
    """
    k = stages if torch.finfo(dtype).bits < 32 else stages * width
    return tolerance(dtype, k=k, magnitude=magnitude, accumulator=dtype, roundings=stages)


_STEP = 1e-4
"""Of a tensor's size: the error of float64 and that of the step are both below a millionth of the slope."""


def require_gradients(value: Any, call: Callable[[dict[str, Tensor]], Any], tensors: dict[str, Tensor]) -> None:
    """Raise GradientLost where backward() through an answer does not reach every tensor, or gives another slope than
    the answer has: the lab trains its answers.

    value    what the answer returned, as the exercise compares it; where it is wrong, the comparison has more to say
    call     the answer as a function of `tensors`, which have names
    """
    if any(tensor.device.type == "meta" for tensor in tensors.values()):
        return  # the imaginary device of a check has no autograd
    problem = _lost(call, tensors) or _other_slope(call, tensors)
    numbers = next(iter(value.values())) if isinstance(value, dict) else value
    if problem and isinstance(numbers, Tensor) and numbers.numel() > 1:  # a single number may be right by chance
        raise GradientLost(problem, value)


def _lost(call: Callable[[dict[str, Tensor]], Any], tensors: dict[str, Tensor]) -> str:
    """Why backward() does not reach all of the tensors; "" where it does."""
    with torch.enable_grad():
        leaves = {name: tensor.detach().clone().requires_grad_() for name, tensor in tensors.items()}
        result = call({name: leaf.clone() for name, leaf in leaves.items()})
        found: tuple[Tensor | None, ...] = (None,) * len(leaves)
        if isinstance(result, Tensor) and result.requires_grad:
            try:
                found = torch.autograd.grad(result.sum(), list(leaves.values()), allow_unused=True)
            except RuntimeError as problem:
                return f"the lab trains this function, and backward() through it fails: {_why(str(problem))}"
    lost = [name for name, gradient in zip(leaves, found, strict=True) if gradient is None]
    if not lost:
        return ""
    return (
        f"the lab trains this function, and no gradient reaches {lost[0]}; "
        "does it use detach(), .data, torch.no_grad() or NumPy on the way?"
    )


def _other_slope(call: Callable[[dict[str, Tensor]], Any], tensors: dict[str, Tensor]) -> str:
    """What is wrong where the result does not change as its gradient says, along a direction drawn by chance; "" else.

    In float64, in which a small step tells the slope to many digits. An answer that does not work in it is left alone.
    """
    draw = torch.Generator().manual_seed(0)
    points = {name: doubled(tensor.detach()) for name, tensor in tensors.items()}
    ways = {name: _normal_like(point, draw) * (point.abs().mean() + 0.1) for name, point in points.items()}
    try:
        with torch.enable_grad():
            leaves = {name: point.clone().requires_grad_() for name, point in points.items()}
            result = call({name: leaf.clone() for name, leaf in leaves.items()})
            shares = _normal_like(result, draw)
            gradients = torch.autograd.grad((result * shares).sum(), list(leaves.values()))
        with torch.no_grad():
            up, down = (
                call({name: point + step * ways[name] for name, point in points.items()}) for step in (_STEP, -_STEP)
            )
        slope = float(((up - down) * shares).sum()) / (2 * _STEP)
        result = result.detach()
    except Exception:
        return ""
    parts = [float((gradient * way).sum()) for gradient, way in zip(gradients, ways.values(), strict=True)]
    allowed = 0.02 * sum(map(abs, parts)) + 0.01 * float((result * shares).norm())
    if result.dtype != torch.float64 or not abs(slope - sum(parts)) > allowed:
        return ""
    return (
        "the lab trains this function, and backward() through it gives another slope than the function has; does a "
        "part of it use detach(), .data, torch.no_grad() or NumPy?"
    )


def _normal_like(tensor: Tensor, draw: torch.Generator) -> Tensor:
    return torch.randn(tensor.shape, generator=draw, dtype=torch.float64).to(tensor.device)


def _why(problem: str) -> str:
    if "modified by an inplace operation" in problem:
        return "a tensor that it needs was changed in place, as by += or exp_(); make a new one instead"
    return problem.splitlines()[0][:200]
