"""09.layer_diff: a right answer whose steps can be exchanged for wrong ones, and answers that are wrong as a whole."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

Answer = Callable[[nn.Module, nn.Module, Tensor, float], Any]
Named = list[tuple[str, nn.Module]]


def leaves(model: nn.Module) -> Named:
    return [(name, module) for name, module in model.named_modules() if not list(module.children())]


def everything(model: nn.Module) -> Named:
    return list(model.named_modules())


def as_tuple(value: Any) -> tuple[Tensor, ...]:
    return value if isinstance(value, tuple) else (value,)


def relative(ours: Tensor, theirs: Tensor) -> float:
    """Norm of the difference over norm; inf where it is no number."""
    ours, theirs = ours.double(), theirs.double()
    error = float((theirs - ours).norm() / ours.norm())
    return math.inf if math.isnan(error) else error


def worst(ours: Any, theirs: Any) -> float:
    return max(relative(x, y) for x, y in zip(as_tuple(ours), as_tuple(theirs), strict=True))


@torch.no_grad()
def watched(model: nn.Module, tokens: Tensor, modules: Named, leave: bool = False) -> list[tuple[str, Any, Any]]:
    """(name, arguments, output) of each call of these modules, in the order in which they ended."""
    calls: list[tuple[str, Any, Any]] = []
    handles = [
        module.register_forward_hook(lambda module, args, out, name=name: calls.append((name, args, out)))
        for name, module in modules
    ]
    model(tokens)
    for handle in () if leave else handles:
        handle.remove()
    return calls


def answer(
    *,
    modules: Callable[[nn.Module], Named] = leaves,
    error: Callable[[Any, Any], float] = worst,
    allowed: Callable[[float], float] = lambda tolerance: tolerance,
    ordered: Callable[[list[Any], nn.Module], Iterable[Any]] = lambda calls, model: calls,
    pick: Callable[[list[str]], str] = lambda found: found[0],
    leave: bool = False,
) -> Answer:
    """The port's modules, each with the arguments that the original's got."""

    @torch.no_grad()
    def wanted(original: nn.Module, port: nn.Module, tokens: Tensor, tolerance: float) -> Any:
        dtype = next(port.parameters()).dtype
        found = []
        for name, args, out in ordered(watched(original, tokens, modules(original), leave), original):
            given = [one.to(dtype) if one.is_floating_point() else one for one in args]
            if not error(out, port.get_submodule(name)(*given)) <= allowed(tolerance):
                found.append(name)
        return pick(found) if found else None

    return wanted


right = answer()


def runs(original: nn.Module, port: nn.Module, tokens: Tensor, tolerance: float) -> Any:
    """Both models run by themselves, and their outputs compared."""
    pairs = zip(*(watched(model, tokens, leaves(model)) for model in (original, port)), strict=True)
    return next((ours[0] for ours, theirs in pairs if worst(ours[2], theirs[2]) > tolerance), None)


@torch.no_grad()
def logits_alone(original: nn.Module, port: nn.Module, tokens: Tensor, tolerance: float) -> Any:
    return "head" if worst(original(tokens), port(tokens)) > tolerance else None


def as_registered(calls: list[Any], model: nn.Module) -> list[Any]:
    places = {name: place for place, (name, _) in enumerate(model.named_modules())}
    return sorted(calls, key=lambda call: places[call[0]])


def absolute(ours: Any, theirs: Any) -> float:
    """The largest difference, whatever the size."""
    pairs = zip(as_tuple(ours), as_tuple(theirs), strict=True)
    return max(float((x.double() - y.double()).abs().max()) for x, y in pairs)


def without_nan(ours: Any, theirs: Any) -> float:
    """0 where the difference is no number, as `error > tolerance` takes it."""
    found = worst(ours, theirs)
    return 0.0 if math.isinf(found) else found


def first_tensor(ours: Any, theirs: Any) -> float:
    return relative(as_tuple(ours)[0], as_tuple(theirs)[0])


def at(position: int) -> Callable[[Any, Any], float]:
    """Only one position of the sequence, which is the axis before the last."""

    def error(ours: Any, theirs: Any) -> float:
        return max(
            relative(x.select(-2, position), y.select(-2, position))
            for x, y in zip(as_tuple(ours), as_tuple(theirs), strict=True)
        )

    return error


def summed(ours: Any, theirs: Any) -> float:
    """Means and not elements."""
    return max(
        abs(float(x.double().mean() - y.double().mean())) / float(x.double().abs().mean())
        for x, y in zip(as_tuple(ours), as_tuple(theirs), strict=True)
    )
