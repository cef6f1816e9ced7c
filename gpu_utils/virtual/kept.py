"""A dictionary of what was worked out, which forgets all of it once it has grown too large."""

from __future__ import annotations

from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Kept(dict[K, V]):
    """What was worked out, by what it follows from. Write with `keep`, read as a dictionary.

    most: sizes that may come together, in what `keep` counts: entries, or bytes.

    >>> squares = Kept(2)
    >>> [squares.keep(n, n * n) for n in range(2)], sorted(squares)
    ([0, 1], [0, 1])
    >>> squares.keep(3, 9), sorted(squares)
    (9, [3])
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most, self.size = most, 0

    def keep(self, key: K, value: V, size: int = 1) -> V:
        """Store a value and return it; what was kept before is forgotten when it would be more than `most`."""
        if self.size + size > self.most:
            self.clear()
            self.size = 0
        self.size += size
        self[key] = value
        return value
