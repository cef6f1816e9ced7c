"""How wrong numbers are related to the right ones, in words: a factor, an offset, a sign, an axis.

A relation is said only when it holds for every number, within the same tolerance that refused them: it is a finding,
not a guess at its cause. "" says that none was found.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import torch

_WHOLE = {*range(2, 17), *(2**k for k in range(21)), *(10**k for k in range(1, 10))} - {1}
_SIMPLE = {
    **{Fraction(n): f"{n:,}" for n in _WHOLE},
    **{Fraction(p, q): f"{p}/{q}" for p, q in ((3, 2), (4, 3), (5, 4), (5, 2), (5, 3))},
    **{Fraction(1024, 1000) ** k: f"{1.024**k:.4g} (1024/1000{f' to the power {k}' * (k > 1)})" for k in (1, 2, 3)},
}
_NEAR = 1e-6
"""Relative: two ratios of floats that are this near are the same."""

_ENOUGH = 3
"""Numbers other than 0 that a factor must explain, if it is not a simple one."""

MOST_ELEMENTS = 4_000_000
"""Larger tensors are not searched: it would take longer than it helps."""


def of_numbers(expected: float, got: float) -> str:
    """The relation of one wrong number to the right one.

    >>> of_numbers(48, 24), of_numbers(0.5, 2.0), of_numbers(3, 2)
    ('expected is 2 times yours', 'yours is 4 times the expected', '')
    """
    endless = any(isinstance(one, float) and not math.isfinite(one) for one in (expected, got))
    if endless or expected == 0 or got == 0:
        return ""
    if expected == -got:
        return "the sign is turned"
    whole = isinstance(expected, int) and isinstance(got, int)
    ratio, near = Fraction(expected) / Fraction(got), 0.0 if whole else _NEAR
    of_counts = 4 if 1 in (ratio.numerator, ratio.denominator) else 100
    if whole and min(abs(expected), abs(got)) < of_counts:
        return ""  # small numbers are in some simple ratio by chance
    if name := _simple(ratio, near):
        return f"expected is {name} times yours"
    if name := _simple(1 / ratio, near):
        return f"yours is {name} times the expected"
    return ""


def _simple(ratio: Fraction, near: float) -> str:
    return next((name for simple, name in _SIMPLE.items() if abs(ratio - simple) <= near * simple), "")


def of_tensors(expected: torch.Tensor, got: torch.Tensor, margin: torch.Tensor) -> str:
    """The relation of a wrong tensor to the right one: both float64 of one shape, `margin` what each may differ by.

    >>> right = torch.arange(1.0, 7.0).double().view(2, 3)
    >>> of_tensors(right, right / 8, right * 1e-6)
    'each expected element is 8 times yours'
    >>> of_tensors(right, right.flip(1), right * 1e-6)
    'these are the expected elements in reverse order along axis 1'
    """
    count = expected.numel()
    if not 2 <= count <= MOST_ELEMENTS or not (expected.isfinite().all() and got.isfinite().all()):
        return ""
    if bool((expected - expected.flatten()[0]).abs().max() <= margin.max()):
        return _of_constant(expected, got, margin)
    return _of_values(expected, got, margin) or _of_places(expected, got, margin)


def _of_constant(expected: torch.Tensor, got: torch.Tensor, margin: torch.Tensor) -> str:
    """All expected elements are alike: any one factor or offset would do, and only a simple ratio is worth saying."""
    if bool((got - got.flatten()[0]).abs().max() > margin.max()):
        return ""
    return of_numbers(expected.flatten()[0].item(), got.flatten()[0].item())


def _of_values(expected: torch.Tensor, got: torch.Tensor, margin: torch.Tensor) -> str:
    square = (got * got).sum().item()
    ratio = (expected * got).sum().item() / square if square else 0.0  # of least squares: narrow types round
    if ratio and _close(expected, got * ratio, margin):
        few = int((expected.abs() > margin).sum()) < _ENOUGH
        if named := _exact_factor(ratio) if few else _factor(ratio):
            return named
    if _close(expected, got + (expected - got).mean(), margin):
        offset = (expected - got).mean().item()
        return f"each expected element is yours {'plus' if offset > 0 else 'minus'} {abs(offset):.3g}"
    return ""


def _exact_factor(ratio: float) -> str:
    """Any factor would fit a number or two: only a simple one that is met exactly is worth saying."""
    name = _simple(Fraction(ratio), _NEAR)
    return f"each expected element is {name} times yours" if name else ""


def _factor(ratio: float) -> str:
    """In the digits that a tolerance of narrow types leaves; "" for a factor that is 1 in these."""
    if abs(ratio + 1) < 2e-3:
        return "the sign of every element is turned"
    exact = Fraction(ratio)
    for simple, name in _SIMPLE.items():
        if abs(exact - simple) <= 2e-3 * simple:
            return f"each expected element is {name} times yours"
        if abs(1 / exact - simple) <= 2e-3 * simple:
            return f"each element is {name} times the expected one"
    digits = f"{ratio:.3g}"
    return "" if digits == "1" else f"each expected element is {digits} times yours"


def _of_places(expected: torch.Tensor, got: torch.Tensor, margin: torch.Tensor) -> str:
    here = "these are the expected elements"
    axes = range(expected.ndim)
    if 2 <= expected.ndim <= 4:
        for order in itertools.permutations(axes):
            moved = expected.permute(order)
            if list(order) != list(axes) and moved.shape == got.shape and _close(moved, got, margin):
                turned = [axis for axis in axes if order[axis] != axis]
                return f"{here} with axes {' and '.join(map(str, turned))} exchanged"
    for axis in axes:
        if _close(expected.flip(axis), got, margin):
            return f"{here} in reverse order along axis {axis}"
    for axis, by in itertools.product(axes, (1, -1)):
        size = expected.shape[axis] - 1
        right, left = expected.narrow(axis, 0, size), expected.narrow(axis, 1, size)
        mine = got.narrow(axis, 1 if by == 1 else 0, size)
        if size > 2 and _close(right if by == 1 else left, mine, margin.narrow(axis, 0, size)):
            return f"{here} moved {'up' if by == 1 else 'down'} by one place along axis {axis}"
    return "these are the expected numbers in another order" if _same_numbers(expected, got, margin) else ""


def _same_numbers(expected: torch.Tensor, got: torch.Tensor, margin: torch.Tensor) -> bool:
    """In another order; never said where two samples of one distribution would look alike."""
    one, other = expected.flatten().sort().values, got.flatten().sort().values
    different = int((one.diff() > 2 * margin.max()).sum()) + 1
    return different > max(4, one.numel() // 2) and _close(one, other, margin.max())


def _close(one: torch.Tensor, other: torch.Tensor, margin: torch.Tensor) -> bool:
    return bool(((one - other).abs() <= margin).all())
