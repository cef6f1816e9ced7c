"""What torch allocates without a promise, filled with the pattern of initcheck."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gpu_utils.virtual.sanitize.init import Unwritten

_PROMISE_NOTHING = ("aten::empty", "aten::new_empty")
_RESIZES = "aten::resize_"


class Allocations(TorchDispatchMode):
    """Inside the block, memory that torch allocates without a promise is filled with the pattern of `unwritten`."""

    def __init__(self, unwritten: Unwritten) -> None:
        super().__init__()
        self.unwritten = unwritten

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name
        if name == _RESIZES:
            before = args[0].untyped_storage().nbytes()
            result = func(*args, **(kwargs or {}))
            self.unwritten.allocated(result, before)
            return result
        result = func(*args, **(kwargs or {}))
        if name.startswith(_PROMISE_NOTHING) and isinstance(result, torch.Tensor):
            self.unwritten.allocated(result)
        return result
