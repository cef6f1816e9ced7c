"""What an answer returned, as plain data: tensors, numbers, strings, None, and lists and dicts of them.

A right number is right in whatever clothes: NumPy's numbers and arrays, Fraction, Decimal, members of an enumeration,
named tuples and any mapping become what they stand for. What stands for nothing becomes a `NotPlain`, which says in
words what was found, so that nothing of the learner's own class reaches the comparison or the way between processes.
"""

from __future__ import annotations

import dataclasses
import enum
import numbers
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from decimal import Decimal
from itertools import islice
from typing import Any

import numpy as np
import torch

MOST_BITS = 2000
"""A whole number with more bits is named, not carried on: no exercise asks for one, and its digits fill a report."""

MOST_DEEP = 30
"""Lists and dicts within each other; deeper ones are named."""

MOST_LONG = 200_000
"""Items of a list or a dict; longer ones are named."""


@dataclasses.dataclass(frozen=True)
class NotPlain:
    """Stands for a value that is no plain data; `found` is for the learner: "a generator (list(...) makes a list)"."""

    found: str


def plain(value: Any, read: Callable[[torch.Tensor], Any] = lambda tensor: tensor, depth: int = 0) -> Any:
    """The value as plain data; `read` gives what stands for each of its tensors, for example a copy on another device.

    >>> from fractions import Fraction
    >>> plain({"share": np.float64(0.5), "shape": (np.int64(3), Fraction(8, 2))})
    {'share': 0.5, 'shape': [3, 4]}
    >>> plain(2 * n for n in (1, 2))
    NotPlain(found='a generator (list(...) makes a list of it)')
    """
    if depth > MOST_DEEP:
        return NotPlain(f"a structure more than {MOST_DEEP} levels deep")
    if isinstance(value, torch.Tensor):
        return read(value)
    if value is None or type(value) in (bool, str, float, torch.dtype):
        return value
    if isinstance(value, NotPlain):
        return NotPlain(str(getattr(value, "found", "an object"))[:200])
    if isinstance(value, enum.Enum):
        return plain(value.value, read, depth + 1)
    if isinstance(value, (np.generic, np.ndarray)):
        return _of_numpy(value, read, depth)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, (numbers.Number, Decimal)):
        return _number(value)
    if isinstance(value, (Mapping, Sequence)) and not isinstance(value, (bytes, bytearray, memoryview)):
        return _of_many(value, read, depth)
    return NotPlain(_in_words(value))


def not_plain(value: Any) -> str:
    """What the first NotPlain in a tree was; "" when there is none."""
    if isinstance(value, NotPlain):
        return value.found
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next((found for found in map(not_plain, children) if found), "")


def copy_of(tensor: torch.Tensor, device: str) -> torch.Tensor:
    """A copy on `device`, with the strides that the tensor has."""
    moved = tensor.detach().to(device, copy=True)
    return moved if moved.stride() == tensor.stride() else _copy_of_view(tensor, device)


def _copy_of_view(view: torch.Tensor, device: str) -> torch.Tensor:
    """A view with gaps or repeats, on a copy of its whole storage; a plain copy would be contiguous."""
    storage = torch.empty(0, dtype=torch.uint8, device=view.device).set_(view.untyped_storage())
    moved = torch.empty(0, dtype=view.dtype, device=device)
    moved.set_(storage.to(device, copy=True).untyped_storage(), view.storage_offset(), view.size(), view.stride())
    return moved


def _of_numpy(value: np.generic | np.ndarray, read: Callable[[torch.Tensor], Any], depth: int) -> Any:
    if value.ndim == 0:
        item = value.item()
        return NotPlain(f"a NumPy value of type {value.dtype}") if isinstance(item, np.generic) else plain(item)
    try:
        return read(torch.tensor(np.asarray(value)))
    except TypeError:  # strings and objects
        return plain(value.tolist(), read, depth)


def _of_many(value: Mapping | Sequence, read: Callable[[torch.Tensor], Any], depth: int) -> Any:
    pairs = isinstance(value, Mapping)
    items = list(islice(value.items() if isinstance(value, Mapping) else value, MOST_LONG + 1))
    if len(items) > MOST_LONG:
        return NotPlain(f"a {type(value).__name__} of more than {MOST_LONG:,} items")
    if pairs:
        return {_key(key): plain(item, read, depth + 1) for key, item in items}
    return [plain(item, read, depth + 1) for item in items]


def _number(value: Any) -> Any:
    if isinstance(value, numbers.Integral):
        whole = int(value)
        digits = int(whole.bit_length() * 0.30103) + 1
        return whole if whole.bit_length() <= MOST_BITS else NotPlain(f"an int of about {digits:,} digits")
    if isinstance(value, Decimal) and value.is_finite() and abs(value.adjusted()) > 400:
        return NotPlain(f"a Decimal of about 10**{value.adjusted():,}")
    if isinstance(value, numbers.Rational) and value.denominator == 1:
        return _number(value.numerator)
    if isinstance(value, Decimal) and value.is_finite() and value == value.to_integral_value():
        return _number(int(value))
    if isinstance(value, (numbers.Real, Decimal)):
        try:
            return float(value)
        except OverflowError:
            return NotPlain(f"a {type(value).__name__} too large for a float")
    return NotPlain(f"a {type(value).__name__}")


def _key(key: Any) -> Any:
    key = plain(key)
    return key if isinstance(key, (str, int, float, bool, type(None))) else f"<{type(key).__name__}>"


_ADVICE: tuple[tuple[Any, str], ...] = (
    (Set, "a set has no order; sorted(...) makes a list"),
    (Iterable, "list(...) makes a list of it"),
)


def _in_words(value: Any) -> str:
    kind = type(value)
    name = f"a {kind.__name__[:60]}"
    if isinstance(value, type):
        return f"the class {value.__name__[:60]}"
    if dataclasses.is_dataclass(value):
        return f"{name}, a dataclass (dataclasses.asdict makes a dict of it)"
    advice = next((words for abstract, words in _ADVICE if isinstance(value, abstract)), "")
    if not advice and callable(value):
        advice = "was it meant to be called?"
    return f"{name} ({advice})" if advice else f"{name} object"
