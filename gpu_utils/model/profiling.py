"""What a profile of PyTorch says, in a few rows."""

from __future__ import annotations

import contextlib
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

_PRODUCTS = ("aten::addmm", "aten::mm", "aten::bmm")
"""Operators that do what the FLOPs of a model count, beside those with "attention" in their names."""

_NODE = "autograd::engine::evaluate_function: "


@dataclass(frozen=True)
class ProductShare:
    """A profile of which the products are of interest.

    rows      operator -> its share of the time and its calls: the longest, every product worth a row, all others
    products  the operators among them that multiply matrices
    share     of the time in all products, 0 to 1
    """

    rows: dict[str, dict[str, Any]]
    products: tuple[str, ...]
    share: float


def product_share(call: Callable[[], Any], *, times: int = 5, longest: int = 8) -> ProductShare:
    """Profile `call()` several times; of these profiles the one in which products have the middle share of the time."""
    profiles = sorted((_of_products(operator_shares(call), longest) for _ in range(times)), key=lambda one: one.share)
    return profiles[times // 2]


def _of_products(operators: dict[str, dict[str, Any]], longest: int) -> ProductShare:
    spent = {name: row["share of the time"] for name, row in operators.items()}
    products = {name: share for name, share in spent.items() if name in _PRODUCTS or "attention" in name}
    shown = {*list(operators)[:longest], *(name for name, share in products.items() if share > 0.005)}
    rows = {name: row for name, row in operators.items() if name in shown}
    if others := [row for name, row in operators.items() if name not in shown]:
        rows["all others"] = {what: sum(row[what] for row in others) for what in others[0]}
    return ProductShare(rows, tuple(name for name in rows if name in products), sum(products.values()))


def operator_shares(call: Callable[[], Any]) -> dict[str, dict[str, Any]]:
    """The operators that ran in `call()`, the longest first: each with its share of the time, and its calls.

    The time is an operator's own: on the GPU where it spent any there, else on the CPU.
    """
    with without_the_profilers_own_log(), torch.profiler.profile() as trace:
        call()
    rows = trace.key_averages()
    on_gpu = any(row.self_device_time_total for row in rows)
    spent = {row.key: row.self_device_time_total if on_gpu else row.self_cpu_time_total for row in rows}
    whole = sum(spent.values())
    longest_first = sorted(rows, key=lambda row: -spent[row.key])
    return {row.key: {"share of the time": spent[row.key] / whole, "calls": row.count} for row in longest_first}


def callers(call: Callable[[], Any], operator: str) -> dict[str, int]:
    """How often an operator ran in `call()`, by what called it: "its caller in that one's caller", three at most.

    Most frequent first. Nodes of autograd carry their own names, such as MaskedFillBackward0.
    """
    with without_the_profilers_own_log(), torch.profiler.profile() as trace:
        call()
    found: Counter[str] = Counter()
    for event in trace.events():
        if event.name == operator:
            names = [above.name.removeprefix(_NODE) for above in _above(event)]
            found[" in ".join(list(dict.fromkeys(names))[:3]) or "the program"] += 1
    return dict(found.most_common())


def _above(event: Any) -> Iterator[Any]:
    """What an event ran in, from the inside out."""
    while (event := event.cpu_parent) is not None:
        yield event


@contextlib.contextmanager
def without_the_profilers_own_log() -> Iterator[None]:
    """The profiler's C++ part writes to the standard error of the process, below Python's."""
    sys.stderr.flush()
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(nowhere)
        os.close(kept)
