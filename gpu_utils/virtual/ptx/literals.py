"""Faster functions for integer instructions of PTX whose inputs are literals, in place of those of the table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpu_utils.virtual.ptx.forms import store


def with_literals(opcode: str, literals: list[int | None]) -> Callable[..., object] | None:
    """A faster function for an entry whose inputs hold these literals (None: no literal); None when there is none."""
    stem, kind = opcode.split(".")[0], opcode.split(".")[-1]
    if stem in ("shl", "shr") and literals[1] is not None:
        return _shift_by(stem, np.dtype(f"{'i' if kind[0] == 's' else 'u'}{int(kind[1:]) // 8}").type, literals[1])
    if opcode == "prmt.b32" and literals[2] is not None:
        return store(_permute_by(literals[2]))
    if stem == "bfe" and kind[0] == "u" and literals[1] is not None and literals[2] is not None:
        return _extract_at(np.dtype(f"u{int(kind[1:]) // 8}").type, literals[1] & 255, literals[2] & 255)
    return None


def _shift_by(stem: str, kind: type[np.integer], amount: int) -> Callable[..., object]:
    bits = np.dtype(kind).itemsize * 8
    shift = np.left_shift if stem == "shl" else np.right_shift
    if amount < bits or (stem == "shr" and np.dtype(kind).kind == "i"):
        by = kind(min(amount, bits - 1))
        return lambda a, _, out: shift(a, by, out)
    return lambda a, _, out: np.copyto(out, 0)


def _extract_at(kind: type[np.integer], position: int, length: int) -> Callable[..., object]:
    bits = np.dtype(kind).itemsize * 8
    mask = kind(((1 << length) - 1 if position < bits else 0) & ((1 << bits) - 1))
    by = kind(min(position, bits - 1))
    return lambda a, _, __, out: np.bitwise_and(a >> by, mask, out)


def _permute_by(selector: int) -> Callable[..., np.ndarray]:
    """prmt with a literal selector: bytes are copied, two at a time where they stay together."""
    picks = [selector >> 4 * i & 15 for i in range(4)]
    pairs = [low for low, high in (picks[:2], picks[2:]) if low % 2 == 0 and low < 8 and high == low + 1]
    dtype, places = (np.uint16, [low // 2 for low in pairs]) if len(pairs) == 2 else (np.uint8, picks)
    count = len(places)

    def run(a: np.ndarray, b: np.ndarray, _: np.ndarray) -> np.ndarray:
        out = np.empty(np.broadcast_shapes(a.shape, b.shape), np.uint32)
        parts = out.view(dtype)
        for i, place in enumerate(places):
            source = np.ascontiguousarray(b if place & count else a).view(dtype)
            piece: Any = source[..., place % count :: count]
            parts[..., i::count] = (
                np.where(piece >> np.uint8(7), np.uint8(255), np.uint8(0)) if place >= 2 * count else piece
            )
        return out

    return run
