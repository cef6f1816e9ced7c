"""What rounding may do to a sum: worst cases, likely cases, and forward and backward error.

Every addition in floating point is exact but for a factor 1 + d with |d| <= u, the unit roundoff. A term that goes
through h additions is multiplied by h such factors. So a computed sum is the exact sum of terms each of which is off by
at most gamma(h) of its size, and h is a matter of the order alone: the height of the tree of additions (Hallman, Ipsen:
"Deterministic and Probabilistic Error Bounds for Floating Point Summation Algorithms", arXiv 2107.01604).

That is the *backward* error: how far the terms would have to move. The *forward* error, over the exact result, is
larger by the sum's condition, the sizes of all terms over the size of their sum: what terms of both signs cancel.

    forward error  =  condition  x  backward error
"""

from __future__ import annotations

import math

from torch import Tensor

from gpu_utils.errors import BadArgument


def gamma(roundings: float, u: float) -> float:
    """The most that so many factors 1 + d with |d| <= u move a number from where it was, over its size.

    roundings  how many, 0 or more: the additions that a term goes through, and the rounding of a product where it is
               one (a fused multiply-add has one for both)
    u          unit roundoff (`gpu_utils.analytic.tolerance.unit_roundoff`)
    Infinite where roundings x u is 1 or more: there the bound n u / (1 - n u) says nothing.

    Errors: BadArgument for a number below 0.

    >>> gamma(0, 2.0**-11), gamma(1024, 2.0**-11), gamma(2048, 2.0**-11)
    (0.0, 1.0, inf)
    """
    _refuse(roundings, u)
    share = roundings * u
    return share / (1 - share) if share < 1 else math.inf


def likely(roundings: float, u: float, deviations: float = 5.0) -> float:
    """What so many roundings do not exceed in practice: they grow like a square root, as each goes its own way.

    Where roundings are independent and 0 in the mean, |d| <= u for each, their sum stays below
    deviations x sqrt(roundings) x u but for a chance of 2 exp(-deviations^2 / 2), to the first order in u ("A new
    approach to probabilistic rounding error analysis", SIAM J. Sci. Comput., 2019). Never more than `gamma`. Roundings
    that all go one way, as where small terms are added to a large sum and get lost, are not independent.

    Errors: BadArgument for a number below 0.

    >>> likely(10_000, 2.0**-24) / gamma(10_000, 2.0**-24) < 0.06
    True
    """
    return min(deviations * math.sqrt(roundings) * u, gamma(roundings, u))


def condition(terms: Tensor) -> Tensor:
    """sum |x| / |sum x| of each row, float64: 1 where all terms have one sign, infinite where they cancel.

    terms  (..., K), any floating-point type

    >>> import torch
    >>> condition(torch.tensor([[1.0, 2.0], [3.0, -2.0]])).tolist()
    [1.0, 5.0]
    """
    exact = terms.double()
    return exact.abs().sum(-1) / exact.sum(-1).abs()


def forward_error(found: Tensor, terms: Tensor) -> Tensor:
    """|found - exact| / |exact| of each row's sum, float64.

    found  (...), sums as computed; terms: (..., K)

    >>> import torch
    >>> forward_error(torch.tensor([1.5]), torch.tensor([[3.0, -2.0]])).tolist()
    [0.5]
    """
    exact = terms.double().sum(-1)
    return (found.double() - exact).abs() / exact.abs()


def backward_error(found: Tensor, terms: Tensor) -> Tensor:
    """|found - exact| / sum |x| of each row's sum, float64: so far must the terms move for `found` to be their sum.

    found  (...), sums as computed; terms: (..., K)

    >>> import torch
    >>> backward_error(torch.tensor([1.5]), torch.tensor([[3.0, -2.0]])).tolist()
    [0.1]
    """
    exact = terms.double()
    return (found.double() - exact.sum(-1)).abs() / exact.abs().sum(-1)


def _refuse(roundings: float, u: float) -> None:
    if roundings < 0 or u < 0:
        raise BadArgument(
            f"{roundings:g} roundings of at most {u:g} were asked for; expected numbers from 0 on: "
            "torch.finfo(dtype).eps / 2 is the unit roundoff of a type"
        )
