"""`torch.autocast("cuda")`: the same casts on the CPU, where the operations run."""

from __future__ import annotations

from typing import Any

import torch
from torch.amp.autocast_mode import autocast as _Autocast

_enter, _exit = _Autocast.__enter__, _Autocast.__exit__


def enter(self: Any) -> Any:
    """`autocast.__enter__`; of "cuda" it switches the casts of the CPU too."""
    if self.device == "cuda":
        self.__dict__.setdefault("before", []).append(
            (torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu"))
        )
        torch.set_autocast_enabled("cpu", self._enabled)
        torch.set_autocast_dtype("cpu", self.fast_dtype)
    return _enter(self)


def leave(self: Any, *error: Any) -> Any:
    """`autocast.__exit__`."""
    out = _exit(self, *error)
    if self.__dict__.get("before"):
        enabled, dtype = self.__dict__["before"].pop()
        torch.set_autocast_enabled("cpu", enabled)
        torch.set_autocast_dtype("cpu", dtype)
    return out


METHODS = {"__enter__": enter, "__exit__": leave}
