"""Wrong answers of 08.accumulator: the right one with one mistake in it. In NumPy, whose small steps cost less."""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Numbers = NDArray[np.floating[Any]]

WIDTH = 32
"""Products that one instruction adds."""


def slipped(slip: str = "") -> Callable[..., tuple[Tensor, Any]]:
    """The right answer with one mistake in it."""

    def answer(a: Tensor, b: Tensor, bits: int, bound: float) -> tuple[Tensor, Any]:
        products: Numbers = (a * b).numpy().astype(np.float32 if slip == "in_float32" else np.float64)
        if slip == "always_13":
            bits = 13
        length = products.shape[1]
        tried = [every for every in (WIDTH * 2**i for i in range(20)) if every < length] + [length]
        if slip == "none_is_forgotten":
            tried = tried[:-1]
        if slip == "ends_at_a_power":
            tried[-1] = WIDTH * 2 ** (len(tried) - 1)
        if slip == "rounds_k_up":
            tried[-1] = -(-length // WIDTH) * WIDTH
        sums = {every: summed(products, every, bits, slip) for every in {*tried, length}}
        exact = products.sum(1)
        enough = [every for every in tried if _is_enough(sums[every], exact, bound, slip)]
        if slip == "stops_at_the_first":
            enough = list(takewhile(enough.__contains__, tried))
        found = (min if slip == "the_smallest" else max)(enough, default=WIDTH if slip == "at_least_32" else 0)
        shown = sums[found if slip == "promoted_sums" and found else length]
        return torch.from_numpy(shown), found

    return answer


def _is_enough(sums: Numbers, exact: Numbers, bound: float, slip: str) -> bool:
    error = np.abs(sums - exact)
    if slip != "absolute_errors":
        error = error / np.abs(sums if slip == "over_its_own_sum" else exact)
    worst = {"the_mean_row": error.mean(), "the_best_row": error.min(), "signed_errors": ((sums - exact) / exact).max()}
    return bool(worst.get(slip, error.max()) <= bound)


def summed(products: Numbers, every: int, bits: int, slip: str = "") -> Numbers:
    """The sums of the rows, promoted every so many elements. The parts of a row go side by side."""
    rows, length = products.shape
    if slip == "promotes_by_instructions" and every < length:
        every = min(every * WIDTH, length)
    if slip == "last_instruction_is_lost" and every >= length:
        products = products[:, : length // WIDTH * WIDTH]
    if slip == "keeps_the_sum" and every < length:
        totals = _totals(products, bits, slip)
        carried = totals[:, every // WIDTH - 1 :: every // WIDTH]
        return carried.sum(1) + (totals[:, -1] if length % every else 0)
    if slip == "last_part_is_lost" and every < length:
        products = products[:, : length // every * every]
    size = -(-every // WIDTH) * WIDTH
    parts = np.pad(products, ((0, 0), (0, -products.shape[1] % size))).reshape(-1, size)
    if not parts.size:
        return np.zeros(rows)
    carried = _totals(parts, bits, slip)[:, -1].reshape(rows, -1)
    if slip != "cuts_outside":
        return carried.sum(1)
    outside = np.zeros(rows, products.dtype)
    for part in carried.T:
        outside = _cut(outside + part, np.abs(outside + part), bits, slip, "")
    return outside


def _totals(products: Numbers, bits: int, slip: str) -> Numbers:
    """The running sums of each row, after each instruction."""
    width = 1 if slip == "one_product_at_a_time" else WIDTH
    total = np.zeros(len(products), products.dtype)
    totals = []
    for first in range(0, products.shape[1], width):
        total = _instruction(total, products[:, first : first + width], bits, slip)
        totals.append(total)
    return np.stack(totals, axis=1)


def _instruction(total: Numbers, part: Numbers, bits: int, slip: str) -> Numbers:
    addends = np.concatenate((total[:, None], part), axis=1)
    largest = np.abs(addends).max(1, keepdims=True)
    if slip == "largest_with_its_sign":
        largest = addends.max(1, keepdims=True)
    if slip == "aligned_to_the_products":
        largest = np.abs(part).max(1, keepdims=True)
    if slip == "aligned_to_the_sum":
        largest = np.where(total != 0, np.abs(total), largest[:, 0])[:, None]
    if slip != "addends_in_full":
        addends = _cut(addends, largest, bits, slip, "rounds_addends")
    total = addends.sum(1)
    return total if slip == "sum_in_full" else _cut(total, np.abs(total), bits, slip, "rounds_the_sum")


def _cut(x: Numbers, largest: Numbers, bits: int, slip: str, rounding: str) -> Numbers:
    power = np.frexp(largest)[1] - 1 + {"one_bit_less": 1, "one_bit_more": -1}.get(slip, 0)
    step = np.ldexp(np.ones_like(largest), power - bits)
    if slip == "logarithm_of_zero":
        step = np.where(largest == 0, 0.0, step)
    whole = np.rint if slip == rounding else np.floor if slip == "cuts_downwards" else np.trunc
    with np.errstate(invalid="ignore", divide="ignore"):
        return whole(x / step) * step
