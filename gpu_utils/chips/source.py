"""Where a figure stands: one document, and the day on which somebody looked that it says so."""

from __future__ import annotations

import re
from dataclasses import dataclass

READ = ("opened", "excerpt", "not opened")
"""How much of a source was read: the page or file itself, a passage of it, or nothing but its name."""
_DAY = re.compile(r"20\d\d-[01]\d-[0-3]\d")


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
    def dated(self) -> bool:
        """Whether it says when it was looked up and how much of it was read.

        >>> Source("a page", "").dated, Source("a page", "2026-11-22", "excerpt").dated
        (False, True)
        """
        return bool(_DAY.fullmatch(self.looked_up)) and self.read in READ

    @property
    def when(self) -> str:
        """The day, and how much was read where that is not the whole."""
        return self.looked_up if self.read == "opened" else f"{self.looked_up}, {self.read}"

    def __str__(self) -> str:
        return f"{self.where} (looked up {self.when})"
