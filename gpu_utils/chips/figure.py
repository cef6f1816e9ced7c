"""One number of the registry with its unit and its source."""

from __future__ import annotations

from dataclasses import dataclass

UNCONFIRMED = "no confirmed source"


@dataclass(frozen=True)
class Figure:
    """One number with its unit and its source; value None with the reason in `note` when it is not known.

    note  what else a reader should know: the formula of a derived figure, what other sources say
    when  the day on which the source was looked up, and how much of it was read: `Source.when`

    >>> print(Figure(3.35, "TB/s", "a data sheet"))
    3.35 TB/s (source: a data sheet)
    """

    value: float | None
    unit: str
    source: str
    note: str = ""
    when: str = ""

    def __str__(self) -> str:
        if self.value is None:
            return f"unknown ({self.note})"
        note = f"; {self.note}" if self.note else ""
        return f"{self.value:g} {self.unit} (source: {self.source}{note})"


def unknown(unit: str, reason: str = UNCONFIRMED) -> Figure:
    """A figure that the registry does not have, and why.

    >>> print(unknown("TB/s"))
    unknown (no confirmed source)
    """
    return Figure(None, unit, "", reason)
