"""Answers to 11.overlap with one mistake each, and a right one. They run on ranks, wherever an answer runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

Compute = Callable[[Tensor], Tensor]
Answer = Callable[[Sequence[Tensor], Compute], list[Tensor]]


def begun(rows: Tensor, out: Tensor | None = None) -> tuple[Tensor, Any]:
    """What will come, and the work to wait for."""
    out = torch.empty_like(rows) if out is None else out
    return out, dist.all_to_all_single(out, rows, async_op=True)


def ended(pending: Sequence[tuple[Tensor, Any]]) -> list[Tensor]:
    for _, work in pending:
        work.wait()
    return [out for out, _ in pending]


def overlapping(
    ahead: bool = True, waits_ahead: bool = False, combine: str = "later", reads_early: bool = False
) -> Answer:
    """An answer.

    ahead        the next batch is under way while one is computed; waits_ahead  and waited for before that as well
    combine      "later": results are waited for at the end; "now": each at once; "never"
    reads_early  computes before its own rows were waited for
    """

    def overlap(batches: Sequence[Tensor], compute: Compute) -> list[Tensor]:
        results, coming = [], None
        for at, batch in enumerate(batches):
            rows, work = coming or begun(batch)
            if not ahead:
                work.wait()
            coming = begun(batches[at + 1]) if ahead and at + 1 < len(batches) else None
            if not reads_early:
                work.wait()
            if waits_ahead and coming:
                coming[1].wait()
            result = begun(compute(rows))
            work.wait()
            if combine == "now":
                result[1].wait()
            results.append(result)
        return ended(results) if combine == "later" else [out for out, _ in results]

    return overlap


right = overlapping()


def all_out_then_all_in(batches: Sequence[Tensor], compute: Compute) -> list[Tensor]:
    rows = ended([begun(batch) for batch in batches])
    return ended([begun(compute(one)) for one in rows])


def phases(batches: Sequence[Tensor], compute: Compute) -> list[Tensor]:
    rows = ended([begun(batch) for batch in batches])
    return ended([begun(result) for result in [compute(one) for one in rows]])


def forgets_the_last(batches: Sequence[Tensor], compute: Compute) -> list[Tensor]:
    """The pipeline is left when no next batch can be begun."""
    results, (rows, work) = [], begun(batches[0])
    for batch in batches[1:]:
        following = begun(batch)
        work.wait()
        results.append(begun(compute(rows)))
        rows, work = following
    work.wait()
    return ended(results)


def one_buffer(batches: Sequence[Tensor], compute: Compute) -> list[Tensor]:
    """All rows come into one buffer, as large as the largest batch."""
    room = torch.empty_like(max(batches, key=len))
    results, coming = [], begun(batches[0], room[: len(batches[0])])
    for at in range(len(batches)):
        rows, work = coming
        work.wait()
        if at + 1 < len(batches):
            coming = begun(batches[at + 1], room[: len(batches[at + 1])])
        results.append(begun(compute(rows)))
    return ended(results)


def last_first(batches: Sequence[Tensor], compute: Compute) -> list[Tensor]:
    return right(batches, compute)[::-1]


def not_sent_back(batches: Sequence[Tensor], compute: Compute) -> list[Tensor]:
    results, coming = [], begun(batches[0])
    for at in range(len(batches)):
        rows, work = coming
        if at + 1 < len(batches):
            coming = begun(batches[at + 1])
        work.wait()
        results.append(compute(rows))
    return results


def own_rows_first(batches: Sequence[Tensor], compute: Compute) -> list[Tensor]:
    """Computes where the rows are, and then sends them there and back."""
    pending = [begun(compute(batch)) for batch in batches]
    return ended([begun(rows) for rows in ended(pending)])


def waits_for_the_next(batches: Sequence[Tensor], compute: Compute) -> list[Tensor]:
    return overlapping(waits_ahead=True)(batches, compute)
