"""Tensors that a kernel reaches through pointers in memory, as a grouped product takes them.

On a GPU every tensor that lives there may be reached so. Here only those count whose address a kernel was given: as a
64-bit number, or in a tensor of such numbers. So an index that is wrong is still found where it hits another tensor.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from gpu_utils.virtual.cuda.marks import living
from gpu_utils.virtual.regions import Region
from gpu_utils.virtual.words import ORIGIN, READ


def behind(values: list[tuple[str, str, Any]]) -> Iterator[Region]:
    """The memory of the tensors on the GPU whose addresses are among the values that `VirtualGpu.launch` takes."""
    given = [(name, words) for name, kind, value in values if len(words := _words(kind, value))]
    if not given:
        return
    storages = sorted((storage for storage in living() if storage.nbytes()), key=lambda storage: storage.data_ptr())
    if not storages:
        return
    starts = np.array([storage.data_ptr() for storage in storages], np.int64)
    ends = starts + np.array([storage.nbytes() for storage in storages], np.int64)
    for name, words in given:
        words = words[(words >= starts[0]) & (words < ends.max())]
        at = np.searchsorted(starts, words, side="right") - 1
        for number in np.unique(at[words < ends[at]]).tolist():
            start, size = int(starts[number]), int(ends[number] - starts[number])
            yield Region(f"the tensor behind {name}", start, size, "tensor", storages[number])


def _words(kind: str, value: Any) -> np.ndarray:
    """What may be addresses in an argument."""
    if kind in ("i64", "u64") and isinstance(value, int):
        return np.array([value], np.uint64).astype(np.int64) if 0 <= value < 1 << 63 else np.empty(0, np.int64)
    if isinstance(value, torch.Tensor) and value.dtype in (torch.int64, torch.uint64):
        storage = value.untyped_storage()
        first = -(-(storage.data_ptr() - ORIGIN) // 8)
        return READ[8][first : first + storage.nbytes() // 8].view(np.int64)
    return np.empty(0, np.int64)
