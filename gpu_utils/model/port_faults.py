"""Six small ways in which a port goes wrong, planted into a model at a place that a seed chooses.

Works on what the model has: buffers `inv_freq`, numbers `eps` or `variance_epsilon`, modules of GELU, attention with a
number `scaling` and a parameter `attention_mask`, square matrices. That is how transformers writes its models.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from gpu_utils.errors import BadArgument


@dataclass(frozen=True)
class Planted:
    """A fault, the path of the module that has it, and what was done."""

    fault: str
    module: str
    what: str


def plant_fault(model: nn.Module, fault: str, seed: int) -> Planted:
    """Plant one of `FAULTS` into the model itself. Raises BadArgument where the model has no place for it.

    >>> model = nn.Sequential(nn.LayerNorm(4))
    >>> plant_fault(model, "eps", seed=1).module, model[0].eps
    ('0', 0.001)
    """
    if fault not in FAULTS:
        raise BadArgument(f"no fault is named {fault!r}; there are {', '.join(FAULTS)}")
    fits, spoil = FAULTS[fault]
    places = [(path, module) for path, module in model.named_modules() if fits(module)]
    if not places:
        raise BadArgument(f"{type(model).__name__} has no place for the fault {fault!r}; try {_possible(model)}")
    path, module = random.Random(f"{fault} {seed}").choice(places)
    return Planted(fault, path, spoil(model, path, module))


def _possible(model: nn.Module) -> str:
    found = [name for name, (fits, _) in FAULTS.items() if any(map(fits, model.modules()))]
    return ", ".join(found) or "another model"


def _rope(model: nn.Module, path: str, module: Any) -> str:
    # base^(-2i/d) to the power of 1.1 is (base^1.1)^(-2i/d)
    module.inv_freq.copy_(module.inv_freq**1.1)
    return "the base of the angles to the power of 1.1"


def _eps_name(module: nn.Module) -> str:
    return next((name for name in ("variance_epsilon", "eps") if isinstance(getattr(module, name, None), float)), "")


def _eps(model: nn.Module, path: str, module: nn.Module) -> str:
    name = _eps_name(module)
    before = getattr(module, name)
    setattr(module, name, 100 * before)
    return f"{name} {before:g} became {100 * before:g}"


def _gelu(model: nn.Module, path: str, module: nn.Module) -> str:
    x = torch.linspace(-3, 3, 61)
    exact = torch.allclose(module(x), nn.functional.gelu(x), atol=1e-6)
    other = nn.GELU(approximate="tanh" if exact else "none")
    model.set_submodule(path, other)
    return "erf became tanh" if exact else "tanh became erf"


def _mask(model: nn.Module, path: str, module: Any) -> str:
    forward = module.forward

    def sees_one_more(hidden_states: Tensor, *args: Any, **kwargs: Any) -> Any:
        steps = hidden_states.shape[1]
        visible = torch.ones(steps, steps, dtype=torch.bool, device=hidden_states.device).tril(1)
        mask = torch.zeros_like(visible, dtype=hidden_states.dtype).masked_fill(~visible, -torch.inf)
        kwargs["attention_mask"] = mask[None, None]
        return forward(hidden_states, *args, **kwargs)

    module.forward = sees_one_more
    return "each token sees the next one"


def _scale(model: nn.Module, path: str, module: Any) -> str:
    before = module.scaling
    module.scaling = before**2
    return f"scores times {before**2:.4g}, not {before:.4g}"


def _transposed(model: nn.Module, path: str, module: Any) -> str:
    module.weight = nn.Parameter(module.weight.detach().T.contiguous())
    return "the weight is its transpose"


def _square(module: nn.Module) -> bool:
    weight = getattr(module, "weight", None)
    return isinstance(weight, Tensor) and weight.dim() == 2 and weight.shape[0] == weight.shape[1]


FAULTS: dict[str, tuple[Callable[[nn.Module], bool], Callable[[nn.Module, str, Any], str]]] = {
    "rope base": (lambda module: "inv_freq" in dict(module.named_buffers(recurse=False)), _rope),
    "eps": (lambda module: bool(_eps_name(module)), _eps),
    "gelu": (lambda module: "GELU" in type(module).__name__, _gelu),
    "mask": (lambda module: hasattr(module, "scaling"), _mask),
    "scale": (lambda module: hasattr(module, "scaling"), _scale),
    "transposed weight": (_square, _transposed),
}
"""Name -> (whether a module has a place for it, what plants it and says what it did)."""
