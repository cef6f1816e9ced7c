"""A stand-in for the experts of a rank, which takes a given time and notes when it ran and on what."""

from __future__ import annotations

import time
from typing import Any

from torch import Tensor


def computed(rows: Tensor, rank: int) -> Tensor:
    """What the experts of a rank make of rows: another thing on each rank, exact in float32 for small whole numbers."""
    return rows * (rank + 2) + (rank + 1)


class RecordedCompute:
    """compute(rows) -> tensor of the same shape. It sleeps, so that a busy machine has time for messages meanwhile.

    calls  of each call: start and end by the clock of all ranks, number of rows, from where to where they lie in memory
           (place, until), and the rows as they were (given)
    """

    def __init__(self, rank: int, seconds: float) -> None:
        self.calls: list[dict[str, Any]] = []
        self._rank, self._seconds = rank, seconds
        self._kept: list[Tensor] = []

    def __call__(self, rows: Tensor) -> Tensor:
        self._kept.append(rows)  # so that no later rows can lie in the same place by chance
        place = rows.data_ptr()
        call = {"start": time.monotonic(), "place": place, "until": place + rows.nbytes, "given": rows.clone()}
        time.sleep(self._seconds)
        out = computed(rows, self._rank)
        self.calls.append(call | {"rows": len(rows), "end": time.monotonic()})
        return out
