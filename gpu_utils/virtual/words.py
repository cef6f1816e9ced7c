"""The memory of this process as words: address spaces and log entries are views of these widths."""

from __future__ import annotations

import numpy as np

UINT = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
ORIGIN = 4096


class _AddressSpace:
    __array_interface__ = {  # noqa: RUF012  (NumPy reads it by this name)
        "data": (ORIGIN, False),
        "shape": ((1 << 47) - ORIGIN,),
        "typestr": "|u1",
        "version": 3,
    }


_BYTES = np.asarray(_AddressSpace())
# WORDS[width][(address - 4096) // width] is the word at a real address: only ever indexed after a bounds check.
WORDS = {width: _BYTES.view(dtype) for width, dtype in UINT.items()}
# The same for what must not be written by mistake: views of memory that are handed out.
_BYTES.flags.writeable = False
READ = {width: _BYTES.view(dtype) for width, dtype in UINT.items()}
# Items of other sizes are moved at once and never computed with.
_ITEM = {**{size: np.dtype(dtype) for size, dtype in UINT.items()}, 16: np.dtype(np.complex128)}
_LOOSE: dict[int, np.dtype] = {}


def items_of(words: np.ndarray, size: int, skip: int = 0) -> np.ndarray:
    """An aligned array (n,) from its word `skip` on as items of `size` bytes; what is left at its end is not there.

    size: a power of two. NumPy copies a misaligned array before it picks items, other than void ones.
    """
    dtype = None if skip else _ITEM.get(size)
    if dtype is None:
        dtype = _LOOSE.get(size) or _LOOSE.setdefault(size, np.dtype(f"V{size}"))
    per_item = size // words.itemsize
    return words[skip : skip + (len(words) - skip) // per_item * per_item].view(dtype)


def narrow(mask: np.ndarray | None) -> tuple[np.ndarray | None, bool]:
    """(None in place of a mask of all lanes, whether any lane takes part)."""
    if mask is None:
        return None, True
    some = np.count_nonzero(mask)
    return None if some == mask.size else mask, bool(some)
