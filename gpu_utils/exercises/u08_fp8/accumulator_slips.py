"""Wrong answers of 08.accumulator: the right one with one mistake in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

WIDTH = 32
"""Products that one instruction adds."""


def slipped(slip: str = "") -> Callable[..., tuple[Tensor, Any]]:
    """The right answer with one mistake in it."""

    def answer(a: Tensor, b: Tensor, bits: int, bound: float) -> tuple[Tensor, Any]:
        products = (a * b).to(torch.float32 if slip == "in_float32" else torch.float64)
        if slip == "always_13":
            bits = 13
        length = products.shape[1]
        tried = [every for every in (WIDTH * 2**i for i in range(20)) if every < length] + [length]
        if slip == "none_is_forgotten":
            tried = tried[:-1]
        if slip == "ends_at_a_power":
            tried[-1] = WIDTH * 2 ** (len(tried) - 1)
        sums = {every: summed(products, every, bits, slip) for every in {*tried, length}}
        enough = [every for every in tried if _is_enough(sums[every], products.sum(1), bound, slip)]
        found = (min if slip == "the_smallest" else max)(enough, default=WIDTH if slip == "at_least_32" else 0)
        return sums[found if slip == "promoted_sums" and found else length], found

    return answer


def _is_enough(sums: Tensor, exact: Tensor, bound: float, slip: str) -> bool:
    error = (sums - exact).abs()
    if slip != "absolute_errors":
        error = error / exact.abs()
    worst = {"the_mean_row": error.mean(), "the_best_row": error.min(), "signed_errors": ((sums - exact) / exact).max()}
    return bool(worst.get(slip, error.max()) <= bound)


def summed(products: Tensor, every: int, bits: int, slip: str = "") -> Tensor:
    """The sums of the rows, promoted every so many elements. The parts of a row go side by side."""
    rows, length = products.shape
    if slip == "promotes_by_instructions" and every < length:
        every = min(every * WIDTH, length)
    if slip == "last_instruction_is_lost" and every >= length:
        products = products[:, : length // WIDTH * WIDTH]
    if slip == "keeps_the_sum" and every < length:
        totals = _totals(products, bits, slip)
        promoted = totals[:, every // WIDTH - 1 :: every // WIDTH]
        return promoted.sum(1) + (totals[:, -1] if length % every else 0)
    if slip == "last_part_is_lost" and every < length:
        products = products[:, : length // every * every]
    parts = torch.nn.functional.pad(products, (0, -products.shape[1] % (-(-every // WIDTH) * WIDTH)))
    return _totals(parts.reshape(-1, -(-every // WIDTH) * WIDTH), bits, slip)[:, -1].view(rows, -1).sum(1)


def _totals(products: Tensor, bits: int, slip: str) -> Tensor:
    """The running sums of each row, after each instruction."""
    total = products.new_zeros(len(products))
    totals = [total]
    for part in products.split(1 if slip == "one_product_at_a_time" else WIDTH, dim=1):
        total = _instruction(total, part, bits, slip)
        totals.append(total)
    return torch.stack(totals[1:] or totals, dim=1)


def _instruction(total: Tensor, part: Tensor, bits: int, slip: str) -> Tensor:
    addends = torch.cat((total[:, None], part), dim=1)
    largest = addends.abs().amax(1, keepdim=True)
    if slip == "aligned_to_the_products":
        largest = part.abs().amax(1, keepdim=True)
    if slip == "aligned_to_the_sum":
        largest = torch.where(total != 0, total.abs(), largest[:, 0])[:, None]
    if slip != "addends_in_full":
        addends = _cut(addends, largest, bits, slip, "rounds_addends")
    total = addends.sum(1)
    return total if slip == "sum_in_full" else _cut(total, total.abs(), bits, slip, "rounds_the_sum")


def _cut(x: Tensor, largest: Tensor, bits: int, slip: str, rounding: str) -> Tensor:
    power = torch.frexp(largest).exponent - 1
    if slip in ("one_bit_less", "one_bit_more"):
        power += 1 if slip == "one_bit_less" else -1
    step = torch.exp2((power - bits).double())
    if slip == "logarithm_of_zero":
        step = torch.where(largest == 0, 0.0, step)
    whole = {rounding: torch.round, "cuts_downwards": torch.floor}.get(slip, torch.trunc)
    return (whole(x / step) * step).to(x.dtype)
