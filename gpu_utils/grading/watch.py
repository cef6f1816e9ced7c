"""Watching the operations of torch while an answer runs."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Watch(TorchDispatchMode):
    """A TorchDispatchMode, for subclasses with `__torch_dispatch__`, that does not import torch's compiler.

    A plain one imports `torch._dynamo` at the first operation, so that compiled code leaves the mode's own operations
    alone. That takes 1.8 s of a learner's first check, and no answer is compiled. torch describes this switch with
    `TorchDispatchMode._should_skip_dynamo`; a version of torch without it ignores it.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


def let_causal_biases_be_made(problem: str) -> bool:
    """Whether `problem` was that torch cannot make a CausalBias under a TorchDispatchMode; from now on it can.

    `causal_lower_right` makes one with `torch.Tensor.__new__`, which fails there: the mode has already given the new
    tensor a Python object of the plain class. `torch.Tensor._make_subclass` switches modes off for a moment.
    """
    if "CausalBias" not in problem:
        return False
    from torch.nn.attention.bias import CausalBias  # takes seconds, and the answer has imported it

    CausalBias.__new__ = _new_bias  # type: ignore[assignment, method-assign]
    return True


def _new_bias(kind: type[torch.Tensor], *_arguments: Any, **_named: Any) -> torch.Tensor:
    return torch.Tensor._make_subclass(kind, torch.empty(0))
