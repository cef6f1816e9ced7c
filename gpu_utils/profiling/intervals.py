"""Sets of whole-numbered intervals of time: their union, and what overlaps a span, each in n log n."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise

Span = tuple[int, int]
"""(start, end) in ns; the end is not in it."""


def union(spans: Iterable[Span]) -> list[Span]:
    """The same time as intervals that neither touch nor overlap, in order. Empty spans vanish.

    >>> union([(5, 9), (0, 3), (2, 4), (9, 10), (7, 7)])
    [(0, 4), (5, 10)]
    """
    whole: list[Span] = []
    for start, end in sorted(spans):
        if end <= start:
            continue
        if whole and start <= whole[-1][1]:
            whole[-1] = (whole[-1][0], max(whole[-1][1], end))
        else:
            whole.append((start, end))
    return whole


def length(spans: Iterable[Span]) -> int:
    """Sum of the lengths; of a union it is the time that it covers."""
    return sum(end - start for start, end in spans)


def holes(spans: Sequence[Span]) -> list[Span]:
    """What lies between the parts of a union.

    >>> holes([(0, 4), (5, 10), (20, 21)])
    [(4, 5), (10, 20)]
    """
    return [(left[1], right[0]) for left, right in pairwise(spans)]


def overlap(first: Sequence[Span], second: Sequence[Span]) -> int:
    """Time that two unions share.

    >>> overlap([(0, 4), (6, 10)], [(2, 7)])
    3
    """
    shared = at = other = 0
    while at < len(first) and other < len(second):
        shared += max(0, min(first[at][1], second[other][1]) - max(first[at][0], second[other][0]))
        if first[at][1] < second[other][1]:
            at += 1
        else:
            other += 1
    return shared


class Spans:
    """Intervals that may overlap, asked again and again what lies in a span: each question takes log n.

    >>> calls = Spans([(0, 10), (2, 4), (20, 30)])
    >>> calls.covered(3, 25), calls.count(3, 25), calls.count(10, 20), calls.longest(9, 21)
    (12, 3, 0, 2)
    """

    def __init__(self, spans: Sequence[Span]) -> None:
        self._order = sorted(range(len(spans)), key=lambda number: spans[number])
        self._spans = spans
        self._starts = [spans[number][0] for number in self._order]
        self._ends = sorted(end for _, end in spans)
        self._last: list[int] = []  # of the first so many by their starts, the number of the one that ends last
        for number in self._order:
            held = self._last[-1] if self._last else number
            self._last.append(held if spans[held][1] >= spans[number][1] else number)
        self._union = union(spans)
        self._begins = [start for start, _ in self._union]
        self._before = [0, *accumulate(end - start for start, end in self._union)]

    def _until(self, time: int) -> int:
        """Covered time before a point in time."""
        number = bisect_right(self._begins, time)
        if not number:
            return 0
        start, end = self._union[number - 1]
        return self._before[number - 1] + min(time, end) - start

    def covered(self, start: int, end: int) -> int:
        """Time of a span in which at least one is open."""
        return self._until(end) - self._until(start)

    def count(self, start: int, end: int) -> int:
        """How many overlap a span."""
        return bisect_left(self._starts, end) - bisect_right(self._ends, start)

    def longest(self, start: int, end: int) -> int | None:
        """The number of the one that ends last of those that overlap a span; None where none does."""
        at = bisect_left(self._starts, end)
        if not at:
            return None
        number = self._last[at - 1]
        return number if self._spans[number][1] > start else None
