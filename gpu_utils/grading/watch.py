"""Watching the operations of torch while an answer runs."""

from __future__ import annotations

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
