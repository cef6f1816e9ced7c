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


def narrow(mask: np.ndarray | None) -> tuple[np.ndarray | None, bool]:
    """(None in place of a mask of all lanes, whether any lane takes part)."""
    if mask is None:
        return None, True
    some = np.count_nonzero(mask)
    return None if some == mask.size else mask, bool(some)
