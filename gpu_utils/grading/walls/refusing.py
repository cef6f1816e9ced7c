"""Operations of torch that an exercise asks to write are refused: in the whole process, in every thread, for good."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import torch

from gpu_utils.errors import ForbiddenCall

_KEYS = ("CPU", "CUDA", "CompositeImplicitAutograd", "CompositeExplicitAutograd")
_kept: list[Any] = []


def refuse(names: tuple[str, ...]) -> None:
    """Every operation of torch and every function of `torch.nn.functional` whose name holds one of `names`."""
    if not names:
        return
    library = torch.library.Library("aten", "IMPL")
    _kept.append(library)  # what it registered goes with it
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of kernels that are replaced: that is meant
        for full in torch._C._dispatch_get_all_op_names():
            name = full.removeprefix("aten::")
            if full.startswith("aten::") and any(part in name for part in names):
                for key in _KEYS:
                    if torch._C._dispatch_has_kernel_for_dispatch_key(full, key):
                        library.impl(name, _refusing(name.partition(".")[0]), key)
    functional = torch.nn.functional
    for name in [name for name, _ in inspect.getmembers(functional, callable)]:
        if any(part in name for part in names):
            setattr(functional, name, _refusing(name))


def _refusing(name: str) -> Any:
    def refused(*args: Any, **kwargs: Any) -> Any:
        raise ForbiddenCall(f"{name} was called; this exercise asks you to write what it does")

    return refused
