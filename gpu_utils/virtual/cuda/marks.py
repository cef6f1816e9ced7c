"""Which storages count as memory of the GPU.

A storage carries a `Mark`: "cuda", or "cpu" where the program said so. One without a mark was made before the block,
or inside of torch (a temporary of the backward pass): it reads as "cpu", and goes to the side of what it is
first used with.
"""

from __future__ import annotations

import threading
import weakref
from contextlib import suppress
from typing import Any

import torch

from gpu_utils.virtual.cuda.memory import Books

CUDA = torch.device("cuda", 0)
CPU = torch.device("cpu")
_NAME = "_virtual_side"

books = Books()
"""Bytes of the storages that are marked "cuda"."""

local = threading.local()
"""Of each thread: `pushed` (the mode is on its stack), `backward` (in the backward pass of something on the GPU)."""


_living: dict[int, weakref.ref[Any]] = {}
"""Those storages, by the id of their mark."""


class Mark:
    """side: "cuda" or "cpu". It lives as long as its storage, so that what is allocated can be counted."""

    __slots__ = ("bytes", "pinned", "side")

    def __init__(self, side: str, size: int, pinned: bool = False) -> None:
        self.side, self.pinned, self.bytes = side, pinned, size if side == "cuda" else 0
        if self.bytes:
            books.add(self.bytes)

    def __del__(self) -> None:
        if self.bytes:
            books.add(-self.bytes)
            _living.pop(id(self), None)

    @staticmethod
    def on(storage: Any, side: str, pinned: bool = False) -> None:
        """Mark a storage, in place of the mark that it had."""
        storage.__dict__[_NAME] = mark = Mark(side, storage.nbytes(), pinned)
        if mark.bytes:
            _living[id(mark)] = weakref.ref(storage)


def living() -> list[Any]:
    """The storages that count as memory of the GPU now."""
    return [storage for known in list(_living.values()) if (storage := known()) is not None]


def mark_in(storage: Any) -> Mark | None:
    """The mark of a storage."""
    return storage.__dict__.get(_NAME)


def mark_of(tensor: Any) -> Mark | None:
    """The mark of its storage; None without one, and for tensors that have no storage."""
    try:
        return mark_in(tensor.untyped_storage())
    except (NotImplementedError, RuntimeError):  # sparse, nested, of functorch
        return tensor.__dict__.get(_NAME)


def put(tensor: Any, side: str, pinned: bool = False) -> None:
    """Mark the storage of a tensor in the memory of the process, in place of what it had."""
    if native(tensor).type != "cpu":
        return
    try:
        storage = tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        with suppress(AttributeError):
            tensor.__dict__[_NAME] = Mark(side, 0)
        return
    Mark.on(storage, side, pinned)


def native(tensor: Any) -> torch.device:
    """Where torch itself keeps the tensor."""
    return torch._C.TensorBase.device.__get__(tensor)


def side_of(tensor: Any) -> str:
    """ "cuda" or "cpu"; torch's own word for a tensor that is neither ("meta")."""
    mark = mark_of(tensor)
    if mark is not None and mark.side == "cuda":
        return "cuda"
    return native(tensor).type


def wanted(device: Any) -> str | None:
    """The side that an argument `device` names; None for None. Raises RuntimeError for a second GPU.

    >>> wanted("cuda:0"), wanted(0), wanted("cpu"), wanted(None)
    ('cuda', 'cuda', 'cpu', None)
    """
    if device is None:
        return None
    if isinstance(device, int):
        number, kind = device, "cuda"
    else:
        device = torch.device(device)
        number, kind = device.index or 0, device.type
    if kind == "cuda" and number > 0:
        raise RuntimeError(
            f"CUDA error: invalid device ordinal: cuda:{number} was asked for, and a virtual GPU is one device, "
            "cuda:0; tests of several GPUs need real ones"
        )
    return kind
