"""Sums of products as kernels would leave them: honest ones in several orders, and ones with a fault planted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

OUTPUTS = 256
"""Sums of a recording."""

BITS: Mapping[str, int] = {"fp32": 23, "tf32": 10, "fp16": 10, "bf16": 7}
"""Bits behind the binary point."""

_TYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
_NARROWER = {"fp32": "tf32", "tf32": "bf16", "fp16": "bf16"}


@dataclass(frozen=True)
class Recipe:
    """How a kernel sums: the inputs of 09.tolerance."""

    k: int
    magnitude: float
    one_sign: bool
    factors: str
    accumulator: str
    every: int | None
    result: str


@dataclass(frozen=True)
class Recording:
    """exact: float64 (OUTPUTS,); honest and faulty: what was done -> float64 (OUTPUTS,)."""

    exact: Tensor
    honest: Mapping[str, Tensor]
    faulty: Mapping[str, Tensor]


def rounded(x: Tensor, name: str) -> Tensor:
    """float32 numbers rounded to the nearest of a format, ties to even; float32.

    >>> x = torch.tensor([1 + 2**-10 + 2**-12])
    >>> [(rounded(x, name) - 1).item() * 2**12 for name in ("fp32", "tf32", "bf16")]
    [5.0, 4.0, 0.0]
    """
    if name != "tf32":
        return x.to(_TYPES[name]).float()
    bits = x.view(torch.int32)
    half = 2**12 - 1 + (bits >> 13 & 1)  # 13 bits less than float32
    return (bits + half & -(2**13)).view(torch.float32)


@lru_cache(maxsize=64)
def record(recipe: Recipe) -> Recording:
    """What kernels of this recipe leave. The numbers follow from the recipe alone, of which the magnitude is drawn."""
    generator = torch.Generator().manual_seed(hash((recipe.k, recipe.magnitude)) % 2**63)
    a, b = (_factor(recipe, generator) for _ in range(2))
    b = b * (recipe.magnitude / (13 / 12))
    exact = (a.double() * b.double()).sum(0)
    products = _products(recipe, a, b)
    honest = {name: _finished(recipe, products, add) for name, add in _ORDERS.items()}
    return Recording(exact, honest, _faults(recipe, a, b, products))


def _factor(recipe: Recipe, generator: torch.Generator) -> Tensor:
    """(K, OUTPUTS) of size 0.5 to 1.5, so that their products have a root mean square of 13/12."""
    size = torch.rand(recipe.k, OUTPUTS, generator=generator) + 0.5
    if recipe.one_sign:
        return size
    return size * (1 - 2 * torch.randint(2, size.shape, generator=generator))


def _products(recipe: Recipe, a: Tensor, b: Tensor) -> Tensor:
    return rounded(a, recipe.factors) * rounded(b, recipe.factors)


def _padded(products: Tensor, multiple: int) -> Tensor:
    """With zeros up to a multiple of the last axis but one."""
    missing = -products.shape[-2] % multiple
    return torch.nn.functional.pad(products, (0, 0, 0, missing)) if missing else products


def _from_the_left(products: Tensor, kind: torch.dtype) -> Tensor:
    """Over the last axis but one: products and running sums are rounded to the type."""
    return torch.from_numpy(np.add.accumulate(products.to(kind).numpy(), axis=-2)[..., -1, :]).float()


def _in_parts(products: Tensor, kind: torch.dtype) -> Tensor:
    """Eight sums side by side, then those from the left."""
    return _from_the_left(_from_the_left(_padded(products, 8).unflatten(-2, (8, -1)), kind), kind)


def _in_pairs(products: Tensor, kind: torch.dtype) -> Tensor:
    values = products.to(kind)
    while values.shape[-2] > 1:
        padded = _padded(values, 2)
        values = padded[..., ::2, :] + padded[..., 1::2, :]
    return values[..., 0, :].float()


Add = Callable[[Tensor, torch.dtype], Tensor]

_ORDERS: Mapping[str, Add] = {
    "from the left": _from_the_left,
    "in eight parts": _in_parts,
    "in pairs": _in_pairs,
}


def _finished(recipe: Recipe, products: Tensor, add: Add) -> Tensor:
    """The sums: pieces of `every` products in the accumulator, their total in float32, one rounding at the end."""
    kind, every = _TYPES[recipe.accumulator], recipe.every or len(products)
    pieces = _padded(products, every).unflatten(0, (-1, every))
    total = _from_the_left(add(pieces, kind), torch.float32)
    return rounded(total, recipe.result).double()


def _faults(recipe: Recipe, a: Tensor, b: Tensor, products: Tensor) -> dict[str, Tensor]:
    found = {}
    if recipe.every:
        found["a promotion that is forgotten"] = _finished(replace(recipe, every=None), products, _from_the_left)
    if recipe.accumulator == "fp32":
        found["running sums in fp16"] = _finished(replace(recipe, accumulator="fp16"), products, _from_the_left)
    if recipe.factors in _NARROWER:
        narrow = replace(recipe, factors=_NARROWER[recipe.factors])
        found[f"factors in {narrow.factors}"] = _finished(narrow, _products(narrow, a, b), _in_parts)
    if recipe.result != "bf16":
        found["results in bf16"] = _finished(replace(recipe, result="bf16"), products, _in_parts)
    found["a product that is left out"] = _finished(recipe, products[:-1], _in_parts)
    return found
