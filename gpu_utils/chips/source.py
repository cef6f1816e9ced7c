"""Where a figure stands: one document, and the day on which somebody looked that it says so."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpu_utils.chips.figure import Figure

READ = ("opened", "excerpt", "not opened")
"""How much of a source was read: the page or file itself, a passage of it, or nothing but its name."""
_WHEN = re.compile(rf"20\d\d-[01]\d-[0-3]\d(, ({'|'.join(READ[1:])}))?")


def is_dated(when: str) -> bool:
    """Whether a text is the day of a look-up, with how much was read where that was not the whole.

    >>> is_dated("2026-11-22"), is_dated("2026-11-22, excerpt"), is_dated("last week"), is_dated("")
    (True, True, False, False)
    """
    return bool(_WHEN.fullmatch(when))


@dataclass(frozen=True)
class Source:
    """One document that says one figure.

    where      what a reader can open: a link, or a repository and a path
    looked_up  the day, "2026-11-22"
    read       of READ

    >>> print(Source("ROCm docs/conceptual/gpu-arch/mi300.md", "2026-11-22"))
    ROCm docs/conceptual/gpu-arch/mi300.md (looked up 2026-11-22)
    """

    where: str
    looked_up: str
    read: str = "opened"

    @property
    def when(self) -> str:
        """The day, and how much was read where that is not the whole."""
        return self.looked_up if self.read == "opened" else f"{self.looked_up}, {self.read}"

    def figure(self, value: float, unit: str, note: str = "") -> Figure:
        """A figure that this source says.

        >>> print(Source("NVIDIA's H100 page", "2026-11-22").figure(80, "GB"))
        80 GB (source: NVIDIA's H100 page)
        """
        return Figure(value, unit, self.where, note, self.when)

    def __str__(self) -> str:
        return f"{self.where} (looked up {self.when})"
