"""Rows of a tensor brought far from each other, so that offsets between them need more than 32 bits.

Exercises call it as `apart.rows_apart`, by the module's name: where launches are recorded, this is recorded as well.
"""

from __future__ import annotations

import ctypes
import mmap

import torch


def bytes_apart(rows: torch.Tensor, stride: int) -> int:
    """How much address space the rows take, `stride` elements from each other."""
    count, columns = rows.shape
    return ((count - 1) * stride + columns) * rows.element_size()


def rows_apart(rows: torch.Tensor, stride: int) -> torch.Tensor:
    """The rows, `stride` elements from each other, in memory that is never touched in between and so takes no room.

    They stay where they are on a GPU, whose memory is taken at once, and where the system reserves all of it, too.
    """
    flags = mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000)
    try:
        memory = mmap.mmap(-1, bytes_apart(rows, stride), flags=flags) if rows.device.type == "cpu" else None
    except OSError:
        memory = None
    if memory is None:
        return rows
    count, columns = rows.shape
    far = torch.frombuffer(memory, dtype=rows.dtype).as_strided((count, columns), (stride, 1))
    for row in range(count):  # no work of torch's, which is watched
        at = rows.element_size() * row
        ctypes.memmove(
            far.data_ptr() + at * stride, rows.data_ptr() + at * rows.stride(0), columns * rows.element_size()
        )
    return far
