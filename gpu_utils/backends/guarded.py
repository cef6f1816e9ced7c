"""Copies of a launch's tensors with space around them, and the check of every address against them."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from triton.runtime.jit import TensorWrapper

from gpu_utils.errors import OutOfBounds

GUARD_BYTES = 1 << 16
"""Space before and after each copy: an access that misses by less is reported with the tensor's name."""

_NARROW = {"bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"}


@dataclass
class _Region:
    """One storage: where its copy lies, which parameter brought it, and whether a kernel wrote to it."""

    name: str
    start: int
    size: int
    offset: int
    storage: torch.Tensor
    guard: torch.Tensor
    written: bool = False


class GuardedMemory:
    """The memory of one launch. `program` is the index of the program that runs."""

    def __init__(self, kernel: str) -> None:
        self.kernel = kernel
        self.program: tuple[int, ...] = (0, 0, 0)
        self._regions: dict[int, _Region] = {}
        self._dtypes: dict[str, str] = {}

    def guard(self, name: str, value: Any) -> Any:
        """The same argument on guarded memory; what is no tensor stays as it is."""
        if isinstance(value, torch.Tensor):
            return self._guard_tensor(name, value)
        if isinstance(value, TensorWrapper):
            self._dtypes[name] = str(value.dtype)
            return TensorWrapper(self._guard_tensor(name, value.base), value.dtype)
        if isinstance(value, tuple):
            items = [self.guard(f"{name}[{i}]", item) for i, item in enumerate(value)]
            return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
        if type(value).__name__ == "TensorDescriptor":
            moved = copy.copy(value)
            moved.base = self.guard(name, value.base)
            return moved
        return value

    def _guard_tensor(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        self._dtypes[name] = str(tensor.dtype).removeprefix("torch.")
        storage = tensor.untyped_storage()
        key = storage.data_ptr()
        if key not in self._regions or self._regions[key].size < storage.nbytes():
            raw = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
            guard = torch.zeros(raw.numel() + 2 * GUARD_BYTES, dtype=torch.uint8)
            guard[GUARD_BYTES : GUARD_BYTES + raw.numel()] = raw
            offset = tensor.storage_offset() * tensor.element_size()
            start = guard.data_ptr() + GUARD_BYTES
            self._regions[key] = _Region(name, start, raw.numel(), offset, raw, guard)
        moved = torch.empty(0, dtype=tensor.dtype)
        offset = GUARD_BYTES // tensor.element_size() + tensor.storage_offset()
        moved.set_(self._regions[key].guard.untyped_storage(), offset, tensor.size(), tensor.stride())
        return moved

    def narrow_dtypes(self) -> str:
        """ "bfloat16 (x_ptr)" for the first argument that Triton's interpreter cannot compute with; "" for none."""
        return next((f"{dtype} ({name})" for name, dtype in self._dtypes.items() if dtype in _NARROW), "")

    def check(self, what: str, pointers: Any, mask: Any) -> None:
        """Raise OutOfBounds unless every active address lies in a tensor.

        what      "load", "store" or the atomic, for the message
        pointers  Triton's handle: .data is uint64 addresses of any shape
        mask      bool of the same shape, or True
        """
        size = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
        active = np.broadcast_to(mask, pointers.data.shape)
        addresses = pointers.data if active.all() else pointers.data[active]
        if not addresses.size:
            return
        low, high = int(addresses.min()), int(addresses.max())
        for region in self._regions.values():
            if region.start <= low and high + size <= region.start + region.size:
                region.written |= what != "load"
                return
        inside = np.zeros(addresses.shape, dtype=bool)
        for region in self._regions.values():
            here = (addresses >= np.uint64(region.start)) & (
                addresses + np.uint64(size - 1) < np.uint64(region.start + region.size)
            )
            region.written |= what != "load" and bool(here.any())
            inside |= here
        if not inside.all():
            raise OutOfBounds(self._sentence(what, addresses[~inside], size))

    def _sentence(self, what: str, outside: np.ndarray, size: int) -> str:
        address, count = int(outside.flat[0]), outside.size
        where = f"{self.kernel}, program {self.program}: a {what}"
        for region in self._regions.values():
            if region.start - GUARD_BYTES <= address < region.start + region.size + GUARD_BYTES:
                element = (address - region.start - region.offset) // size
                held = (region.size - region.offset) // size
                return (
                    f"{where} reaches element {element} of {region.name}, which holds {held} elements "
                    f"({count} accesses are outside); is there a mask for the last block, and is it the right one?"
                )
        return f"{where} reaches address {address:#x}, which is in none of the kernel's tensors ({count} accesses)"

    def copy_back(self) -> None:
        """Bring what the kernel wrote to the caller's tensors."""
        for region in self._regions.values():
            if region.written:
                region.storage.copy_(region.guard[GUARD_BYTES : GUARD_BYTES + region.size])
