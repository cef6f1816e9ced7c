"""What a profile of PyTorch says, in a few rows."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch


def operator_shares(call: Callable[[], Any]) -> dict[str, dict[str, Any]]:
    """The operators that ran in `call()`, the longest first: each with its share of the time, and its calls.

    The time is an operator's own: on the GPU where it spent any there, else on the CPU.
    """
    with _without_the_profilers_own_log(), torch.profiler.profile() as trace:
        call()
    rows = trace.key_averages()
    on_gpu = any(row.self_device_time_total for row in rows)
    spent = {row.key: row.self_device_time_total if on_gpu else row.self_cpu_time_total for row in rows}
    whole = sum(spent.values())
    longest_first = sorted(rows, key=lambda row: -spent[row.key])
    return {row.key: {"share of the time": spent[row.key] / whole, "calls": row.count} for row in longest_first}


@contextlib.contextmanager
def _without_the_profilers_own_log() -> Iterator[None]:
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
