"""Read-modify-write operations on words of memory, one lane after the other where addresses coincide."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

# At so few addresses lanes are served one by one, in place of all addresses at a time.
_FEW = 16
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


@dataclass(frozen=True, slots=True, eq=False)
class Turns:
    """In which order lanes come that meet at some address.

    order: the lanes sorted by address, (n,). groups: of addresses where as many lanes meet, the places in that order,
    (addresses, lanes that meet).
    """

    order: np.ndarray
    groups: tuple[np.ndarray, ...]

    @classmethod
    def of(cls, address: np.ndarray) -> Turns | None:
        """For addresses (n,) of a whole access; None when no two lanes meet and they ascend."""
        if (address[1:] > address[:-1]).all():
            return None
        order = np.argsort(address, kind="stable")
        places = address[order]
        starts = np.flatnonzero(np.concatenate(([True], places[1:] != places[:-1])))
        lengths = np.diff(starts, append=len(places))
        groups = (starts[lengths == length, None] + np.arange(length) for length in np.unique(lengths))
        return cls(order, tuple(groups))


def update_in_order(
    words: np.ndarray, index: np.ndarray, turns: Turns | None, kind: str, value: np.ndarray, compare: np.ndarray | None
) -> np.ndarray:
    """Do the updates in lane order and return the old values; words is a uint view of memory, the rest flat arrays."""
    dtype = words.dtype
    value = np.ascontiguousarray(value, dtype)
    compare = None if compare is None else np.ascontiguousarray(compare, dtype)
    function, view = ATOMICS["exch" if kind == "cas" else kind]
    view = dtype if view is None else np.dtype(f"{view}{dtype.itemsize}")

    def update(was: np.ndarray, values: np.ndarray, compares: np.ndarray | None) -> np.ndarray:
        if compares is not None:
            return np.where(was == compares, values, was)
        return np.ascontiguousarray(function(was.view(view), values.view(view))).view(dtype)

    if turns is None:
        was = words[index]
        words[index] = update(was, value, compare)
        return was
    places, values = index[turns.order], value[turns.order]
    compares = None if compare is None else compare[turns.order]
    old = np.empty(len(places), dtype)
    for group in turns.groups:
        at = places[group[:, 0]]
        chain = np.empty((len(group), group.shape[1] + 1), dtype)
        chain[:, 0] = words[at]
        chain[:, 1:] = values[group]
        if kind == "exch":
            pass  # each lane finds what the one before it brought
        elif isinstance(function, np.ufunc):
            chain = function.accumulate(chain.view(view), axis=1, dtype=view).view(dtype)
        elif compares is not None and group.size < _FEW * group.shape[1]:
            _swap_one_by_one(chain, compares[group])
        else:
            for step in range(group.shape[1]):
                wanted = None if compares is None else compares[group[:, step]]
                chain[:, step + 1] = update(np.ascontiguousarray(chain[:, step]), values[group[:, step]], wanted)
        old[group] = chain[:, :-1]
        words[at] = chain[:, -1]
    result = np.empty_like(old)
    result[turns.order] = old
    return result


def _swap_one_by_one(chain: np.ndarray, compares: np.ndarray) -> None:
    """chain (addresses, 1 + lanes): what memory held and the new values; becomes what it holds after each lane."""
    for row, wanted in zip(chain, compares.tolist(), strict=True):
        now, *new = row.tolist()
        for step, (value, compare) in enumerate(zip(new, wanted, strict=True), 1):
            now = value if now == compare else now
            row[step] = now
