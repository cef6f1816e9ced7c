"""What ranks returned, and what they sent to whom: shared by the exercises that move data by send and receive.

A value is what `on_ranks` gives: {"ranks": [what each rank returned], "sent": [source][destination] in bytes,
"calls": [collective -> times], "events": [each call of a rank]}. Each look gives the first thing that is wrong, or
None. Its kinds are stable words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from gpu_utils.analytic.tolerance import Tolerance
from gpu_utils.grading.compare import Difference, compare

ALLOWED = {"send", "recv", "barrier"}
"""What an answer may call: messages, and a collective that moves no data."""

HANGING = 12.0
"""Seconds after which ranks are hanging: a start takes less than one, and some more on a machine that is busy."""

Pairs = Callable[[int, int], bool]


def size_in_bytes(elements: int) -> int:
    """Of float32."""
    return 4 * elements


def padded(elements: int, parts: int) -> int:
    """Elements of the largest of so many equal parts: what is left over makes all of them one element longer.

    >>> padded(10, 4), padded(8, 4), padded(0, 3)
    (3, 2, 0)
    """
    return -(-elements // parts)


def results(value: Any, expected: Sequence[Any], tol: Tolerance, dtype: Any) -> Difference | None:
    """The first rank whose result is not the expected one, with the ranks that are right."""
    found = {
        rank: compare(one, got, tol, dtype, f"the result of rank {rank}")
        for rank, (one, got) in enumerate(zip(expected, value["ranks"], strict=True))
    }
    wrong = [rank for rank in found if found[rank]]
    if not wrong:
        return None
    first = found[wrong[0]]
    assert first is not None
    right = [str(rank) for rank in found if not found[rank]]
    others = f"; right on rank {', '.join(right)}" if right else "; no rank has the right result" * (len(found) > 1)
    return Difference(first.kind, first.detail + others)


def bits(value: Any, groups: Sequence[Sequence[int]]) -> Difference | None:
    """Ranks of one group hold the same bits."""
    for group in groups:
        first: Tensor = value["ranks"][group[0]]
        for rank in group[1:]:
            other = value["ranks"][rank]
            if not bool((first == other).all()):
                worst = float((first.double() - other.double()).abs().max())
                return Difference(
                    "bits",
                    f"ranks {group[0]} and {rank} are both near the sum, and differ by up to {worst:.1e}: every rank "
                    "must hold the same bits, or their weights drift apart",
                )
    return None


def collectives(value: Any) -> Difference | None:
    """No collective of torch.distributed did the work."""
    for rank, calls in enumerate(value["calls"]):
        for name in calls:
            if name not in ALLOWED:
                return Difference(
                    "collective",
                    f"rank {rank} called torch.distributed.{name}; expected send and receive only (isend, irecv, "
                    "batch_isend_irecv)",
                )
    return None


def of_rank(value: Any, rank: int, counted: Pairs) -> int:
    """Bytes that a rank sent, of the pairs that are counted."""
    return sum(size for to, size in enumerate(value["sent"][rank]) if counted(rank, to))


def off_rail(value: Any, node_size: int) -> Difference | None:
    """Between nodes only ranks with the same number in their nodes talk to each other."""
    for source, row in enumerate(value["sent"]):
        for to, size in enumerate(row):
            if size and source // node_size != to // node_size and source % node_size != to % node_size:
                return Difference(
                    "off the rail",
                    f"rank {source} sent {size} bytes to rank {to} in another node; between nodes only ranks with the "
                    f"same local number may talk, and these have {source % node_size} and {to % node_size}",
                )
    return None


def too_few(value: Any, elements: int) -> Difference | None:
    """All ranks together sent fewer elements of float32 than the result needs: some went another way, uncounted.

    >>> too_few({"sent": [[0, 4], [4, 0]]}, 2), too_few({"sent": [[0, 4], [0, 0]]}, 2).kind
    (None, 'uncounted')
    """
    found, needed = sum(map(sum, value["sent"])), size_in_bytes(elements)
    if found >= needed:
        return None
    return Difference(
        "uncounted",
        f"all ranks together sent {found:,} bytes, and this result needs {needed:,}: tensors go through isend, irecv, "
        "send, recv or batch_isend_irecv of torch.distributed, in float32",
    )
