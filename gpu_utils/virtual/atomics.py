"""Read-modify-write operations on words of memory, one lane after the other where addresses coincide."""

from __future__ import annotations

from typing import Any

import numpy as np

# kind -> (function of (old, value), dtype it works on). Packed halves work on two values of 16 bits.
ATOMICS: dict[str, tuple[Any, Any]] = {
    "add": (np.add, None),
    "sub": (np.subtract, None),
    "and": (np.bitwise_and, None),
    "or": (np.bitwise_or, None),
    "xor": (np.bitwise_xor, None),
    "umin": (np.minimum, None),
    "umax": (np.maximum, None),
    "smin": (np.minimum, "i"),
    "smax": (np.maximum, "i"),
    "fadd": (np.add, "f"),
    "fmin": (np.fmin, "f"),
    "fmax": (np.fmax, "f"),
    "inc": (lambda old, top: np.where(old >= top, 0, old + 1).astype(old.dtype), None),
    "dec": (lambda old, top: np.where((old == 0) | (old > top), top, old - 1).astype(old.dtype), None),
    "exch": (lambda old, value: value, None),
}


def _add_bf16(old: np.ndarray, value: np.ndarray) -> np.ndarray:
    total = (old.astype(np.uint32) << 16).view(np.float32) + (value.astype(np.uint32) << 16).view(np.float32)
    bits = total.view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(total), (bits >> 16 | 0x40).astype(np.uint16), rounded)


def _packed(function: Any) -> Any:
    def apply(old: np.ndarray, value: np.ndarray) -> np.ndarray:
        halves = np.ascontiguousarray(old).view(np.uint16), np.ascontiguousarray(value).view(np.uint16)
        return np.ascontiguousarray(function(*halves)).view(np.uint32)

    return apply


def _add_f16(old: np.ndarray, value: np.ndarray) -> np.ndarray:
    return (old.view(np.float16) + value.view(np.float16)).view(np.uint16)


ATOMICS["fadd_bf16"] = (_add_bf16, None)
ATOMICS["pk_fadd_f16"] = (_packed(_add_f16), None)
ATOMICS["pk_fadd_bf16"] = (_packed(_add_bf16), None)

_ROUNDS = 12


def update_in_order(
    words: np.ndarray, index: np.ndarray, kind: str, value: np.ndarray, compare: np.ndarray | None
) -> np.ndarray:
    """Do the updates in lane order and return the old values; words is a uint view of memory, the rest flat arrays."""
    dtype = words.dtype
    value = np.ascontiguousarray(value, dtype)
    compare = None if compare is None else np.ascontiguousarray(compare, dtype)
    function, view = ATOMICS["exch" if kind == "cas" else kind]
    view = dtype if view is None else np.dtype(f"{view}{dtype.itemsize}")

    def update(places: np.ndarray, values: np.ndarray, compares: np.ndarray | None) -> np.ndarray:
        was = words[places]
        if compares is not None:
            words[places] = np.where(was == compares, values, was)
        else:
            words[places] = np.ascontiguousarray(function(was.view(view), values.view(view))).view(dtype)
        return was

    if len(index) == 1 or (index[1:] > index[:-1]).all():  # no two lanes meet
        return update(index, value, compare)
    order = np.argsort(index, kind="stable")
    places, values = index[order], value[order]
    first = np.empty(len(places), bool)
    first[0] = True
    np.not_equal(places[1:], places[:-1], out=first[1:])
    starts = np.flatnonzero(first)
    lengths = np.diff(np.append(starts, len(places)))
    old = np.empty(len(places), dtype)
    if lengths.max() > _ROUNDS and isinstance(function, np.ufunc):
        for begin, end in zip(starts, starts + lengths, strict=True):
            chain = np.empty(end - begin + 1, dtype)
            chain[0] = words[places[begin]]
            chain[1:] = values[begin:end]
            running = function.accumulate(chain.view(view), dtype=view).view(dtype)
            old[begin:end] = running[:-1]
            words[places[begin]] = running[-1]
    else:
        rank = np.arange(len(places)) - np.repeat(starts, lengths)
        for step in range(int(lengths.max())):
            now = rank == step
            compares = None if compare is None else compare[order][now]
            old[now] = update(places[now], values[now], compares)
    result = np.empty_like(old)
    result[order] = old
    return result
