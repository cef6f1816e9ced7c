"""The table that both registries are: rows by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

from gpu_utils.errors import UnknownName

Row = TypeVar("Row")


class Table(Mapping[str, Row]):
    """Rows by name, in the order in which they were written. An unknown name raises UnknownName with the nearest.

    what  the word for a row in that error: "chip", "target"

    >>> Table("letter", {"alpha": 1, "beta": 2})["betta"]
    Traceback (most recent call last):
    gpu_utils.errors.UnknownName: there is no letter 'betta'; did you mean 'beta'?
    """

    def __init__(self, what: str, rows: Mapping[str, Row]) -> None:
        self._what, self._rows = what, dict(rows)

    def __getitem__(self, name: str) -> Row:
        if name not in self._rows:
            raise UnknownName(self._what, name, self._rows)
        return self._rows[name]

    def __contains__(self, name: object) -> bool:
        return name in self._rows

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        return "\n".join(str(row) for row in self._rows.values())
