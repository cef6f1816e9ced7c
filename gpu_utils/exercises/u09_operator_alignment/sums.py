"""Sums of rows in stated orders, every addition rounded to the type of the terms; their bounds, and what they are off.

An order has a name: "sequential", "blocked", "pairwise", "kahan".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from gpu_utils.analytic.summation import backward_error, gamma, likely
from gpu_utils.errors import BadArgument

BLOCK = 128
"""Terms of a block, where nothing else is said."""


def sequential(x: Tensor, block: int = BLOCK) -> Tensor:
    """One term after the other, from the left.

    >>> sequential(torch.tensor([[2048.0, 1.0, 1.0]], dtype=torch.float16)).tolist()
    [2048.0]
    """
    total, *rest = x.unbind(-1)
    for term in rest:
        total = total + term
    return total


def blocked(x: Tensor, block: int = BLOCK) -> Tensor:
    """Blocks of so many terms, each from the left; then the sums of the blocks, from the left.

    >>> blocked(torch.tensor([[2048.0, 1.0, 1.0]], dtype=torch.float16), 2).tolist()
    [2048.0]
    """
    return sequential(torch.stack([sequential(part) for part in x.split(block, dim=-1)], dim=-1))


def pairwise(x: Tensor, block: int = BLOCK) -> Tensor:
    """Neighbours 0 and 1, 2 and 3, ... are added until one is left; an odd one at the end waits for the next round.

    >>> pairwise(torch.tensor([[2048.0, 1.0, 1.0, 1.0]], dtype=torch.float16)).tolist()
    [2050.0]
    """
    while x.shape[-1] > 1:
        last = x[..., x.shape[-1] // 2 * 2 :]
        x = torch.cat((x[..., :-1:2] + x[..., 1::2], last), dim=-1)
    return x[..., 0]


def kahan(x: Tensor, block: int = BLOCK) -> Tensor:
    """From the left; what an addition has lost is taken from the next term.

    >>> kahan(torch.tensor([[2048.0, 1.0, 1.0]], dtype=torch.float16)).tolist()
    [2050.0]
    """
    total, *rest = x.unbind(-1)
    lost = torch.zeros_like(total)
    for term in rest:
        mended = term - lost
        larger = total + mended
        lost = (larger - total) - mended
        total = larger
    return total


SUMS: Mapping[str, Callable[[Tensor, int], Tensor]] = {
    "sequential": sequential,
    "blocked": blocked,
    "pairwise": pairwise,
    "kahan": kahan,
}

_HEIGHTS: Mapping[str, Callable[[int, int], int]] = {
    "sequential": lambda k, block: k - 1,
    "blocked": lambda k, block: min(k, block) - 1 + -(-k // block) - 1,
    "pairwise": lambda k, block: math.ceil(math.log2(k)),
}

KAHAN_ENDS = 0.1
"""K u up to which Kahan's bound holds."""


def height(order: str, k: int, block: int = BLOCK) -> int:
    """The most additions that one of k terms goes through. Kahan's sum has no such number.

    >>> height("sequential", 1000), height("blocked", 1000, 100), height("pairwise", 1000)
    (999, 108, 10)
    """
    return _HEIGHTS[_known(order, _HEIGHTS)](k, block)


def sum_bound(order: str, k: int, u: float, block: int = BLOCK) -> float:
    """The most that a sum of k terms is off, over the sum of their sizes: a bound on the backward error.

    order  "sequential", "blocked" (blocks of `block` terms), "pairwise": gamma of the height of the tree of additions.
           "kahan": 3 u + 8 K u^2, as long as K u <= 0.1. There the last addition, the subtraction of what was lost and
           the difference that finds it are each off by u of a term; what the K corrections are off by themselves is
           of the order of K u^2, and 8 covers it. Infinite where there is no bound
    k      number of terms, 1 or more
    u      unit roundoff of the type in which all is added

    Errors: BadArgument for an order without a bound.

    >>> [f"{sum_bound(order, 4096, 2.0**-24):.0e}" for order in SUMS]
    ['2e-04', '9e-06', '7e-07', '2e-07']
    """
    if _known(order, SUMS) == "kahan":
        if k == 1:
            return 0.0
        return 3 * u + 8 * k * u * u if k * u <= KAHAN_ENDS else math.inf
    return gamma(height(order, k, block), u)


def sum_likely(order: str, k: int, u: float, block: int = BLOCK) -> float:
    """As `sum_bound`, for roundings that go their own ways: five deviations, or the bound where that is less.

    >>> sum_likely("sequential", 10_001, 2.0**-24) == 500 * 2.0**-24
    True
    """
    return sum_bound(order, k, u) if order == "kahan" else likely(height(order, k, block), u)


def sum_errors(
    order: str,
    lengths: Sequence[int],
    dtype: torch.dtype = torch.float32,
    *,
    one_sign: bool = False,
    rows: int = 64,
    block: int = BLOCK,
    seed: int = 0,
) -> dict[int, float]:
    """K -> the largest backward error among the sums of `rows` rows of K drawn terms, each added in this order.

    order     "sequential", "blocked", "pairwise", "kahan"
    lengths   numbers of terms
    dtype     of the terms and of every addition: float16, bfloat16 or float32
    one_sign  terms evenly from 0 to 1; else from a bell curve
    The truth is the sum in float64. All orders get the same terms, with the same seed.

    Errors: BadArgument for another order.

    >>> found = {order: sum_errors(order, [1000])[1000] for order in SUMS}
    >>> found["sequential"] > found["pairwise"] > found["kahan"] > 0
    True
    """
    add = SUMS[_known(order, SUMS)]
    found = {}
    for k in lengths:
        terms = _drawn((rows, k), one_sign, seed).to(dtype)
        found[k] = float(backward_error(add(terms, block), terms).max())
    return found


def dot_errors(
    lengths: Sequence[int],
    dtype: torch.dtype = torch.float32,
    *,
    fused: bool,
    one_sign: bool = False,
    rows: int = 64,
    seed: int = 0,
) -> dict[int, float]:
    """K -> the largest error among `rows` dot products of length K over the sum of the sizes of their products.

    fused  every step a * b + s is rounded once, as a fused multiply-add does; else the product and the sum
    The products are added from the left. Both are within gamma(K, u).

    dtype  of factors and sums: float16, bfloat16 or float32

    >>> once, twice = (dot_errors([8], fused=fused, rows=512)[8] for fused in (True, False))
    >>> once < twice < gamma(8, 2.0**-24)
    True
    """
    found = {}
    for k in lengths:
        a, b = (_drawn((rows, k), one_sign, seed + at).to(dtype) for at in (0, 1))
        total = torch.zeros(rows, dtype=dtype)
        for one, other in zip(a.unbind(-1), b.unbind(-1), strict=True):
            total = _fused(one, other, total) if fused else one * other + total
        found[k] = float(backward_error(total, a.double() * b.double()).max())
    return found


def _fused(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """a * b + c of types of at most 32 bits, rounded once: float64 holds the product, and the sum is rounded to odd."""
    product, addend = (a.double() * b.double()).numpy(), c.double().numpy()
    whole = product + addend
    part = whole - product
    lost = (product - (whole - part)) + (addend - part)
    even = whole.view(np.int64) % 2 == 0
    toward = np.where(lost > 0, np.inf, -np.inf)
    odd = np.where((lost != 0) & even, np.nextafter(whole, toward), whole)
    return torch.from_numpy(odd).to(c.dtype)


def _drawn(shape: tuple[int, int], one_sign: bool, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    draw = torch.rand if one_sign else torch.randn
    return draw(shape, generator=generator, dtype=torch.float64)


def _known(order: str, orders: Mapping[str, object]) -> str:
    if order not in orders:
        raise BadArgument(f"there is no order {order!r} here; expected one of {', '.join(orders)}")
    return order
