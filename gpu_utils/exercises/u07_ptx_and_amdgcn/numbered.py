"""A listing with numbered lines, into which an answer puts instructions: {line: what stands before it}."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpu_utils.chips.targets import TARGETS
from gpu_utils.grading.compare import Difference

_COMMENT = re.compile(r"\s*//.*")
_MORE = re.compile(r"[:={}\"]|/\*|\*/")
"""What brings in more than one instruction: a label and what stands behind it, a comment that does not end."""

MOST_CHARACTERS = 10_000
"""Of all that an answer puts in."""


def _plain(line: str) -> str:
    """A line without its comment, with single blanks.

    >>> _plain("  s_mov_b32  s8, 4   // 4 * d")
    's_mov_b32 s8, 4'
    """
    return " ".join(_COMMENT.sub("", line).rstrip(";").split())


@dataclass(frozen=True)
class Numbered:
    """A listing; `head` and `tail` are lines around it that have no numbers.

    allowed  what the instructions that an answer may put in begin with; called: what a message calls them
    ends     what ends an instruction besides its line: ";" in PTX
    """

    lines: tuple[str, ...]
    allowed: re.Pattern[str]
    called: str
    head: str = ""
    tail: str = ""
    ends: str = ""

    def wrong_form(self, value: Any) -> Difference | None:
        """Why an answer is no dict from numbers of lines to instructions that may be put in; None if it is one."""
        what = f"expected a dict {{line: text}} with lines 1 to {len(self.lines)}"
        if not isinstance(value, dict):
            return Difference("form", f"the answer is {_short(value)}; {what}")
        if (long := sum(len(text) for text in value.values() if isinstance(text, str))) > MOST_CHARACTERS:
            return Difference("form", f"the texts have {long:,} characters, expected at most {MOST_CHARACTERS:,}")
        for line, text in value.items():
            if isinstance(line, bool) or not isinstance(line, int) or not 1 <= line <= len(self.lines):
                return Difference("form", f"{_short(line)} is no line of the listing; {what}")
            if not isinstance(text, str):
                return Difference("form", f"before line {line} stands {_short(text)}; {what}")
            for row in self.rows(text):
                if self.ends and not row.endswith(self.ends):
                    return Difference("form", f"before line {line} `{row[:60]}` ends without `{self.ends}`")
            for one in self.instructions(text):
                if not self.allowed.match(one) or _MORE.search(one):
                    detail = f"before line {line} stands `{one[:60]}`; only {self.called} may be put in, one a line"
                    return Difference("form", detail)
        return None

    def rows(self, text: str) -> list[str]:
        """The lines of an answer's text, without comments and blank lines."""
        plain = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)
        comment = re.compile(r"//.*" if self.ends else r"//.*|;.*|^\s*#.*")
        return [line for row in plain.splitlines() if (line := comment.sub("", row).strip())]

    def instructions(self, text: str) -> list[str]:
        """The instructions in it."""
        rows = self.rows(text)
        return [one.strip() for row in rows for one in row.split(self.ends) if one.strip()] if self.ends else rows

    def filled(self, value: dict[int, str]) -> str:
        """The body of the kernel with an answer's instructions put in, without comments."""
        rows = [self.head]
        for number, line in enumerate(self.lines, 1):
            rows += [f"  {one.replace('0X', '0x')}" for one in self.rows(value.get(number, ""))]
            rows.append("  " + _COMMENT.sub("", line))
        return "\n".join([*rows, self.tail])

    def number(self, text: str) -> int | None:
        """The number of the line that an executed instruction stands on; None for one that an answer put in."""
        wanted = _plain(text)
        return next((number for number, line in enumerate(self.lines, 1) if _plain(line) == wanted), None)

    def quoted(self, number: int) -> str:
        """A line as messages name it.

        >>> Numbered(("ret;",), re.compile(""), "").quoted(1)
        'line 1 (`ret`)'
        """
        return f"line {number} (`{_plain(self.lines[number - 1])}`)"

    def shown(self) -> str:
        """The listing as the lab prints it."""
        return "\n".join(f"{number:2}  {line}" for number, line in enumerate(self.lines, 1))


def _short(value: Any) -> str:
    text = f"{type(value).__name__} {value!r}"
    return text if len(text) <= 60 else f"{text[:57]}..."


def counted(numbers: Sequence[int]) -> str:
    """Lines in a sentence.

    >>> counted([5]), counted([5, 9, 12])
    ('line 5', '3 lines, 5, 9, 12')
    """
    if len(numbers) == 1:
        return f"line {numbers[0]}"
    return f"{len(numbers)} lines, {', '.join(map(str, numbers))}"


def family_of(target: str) -> str:
    """The families that the lab names: "ptx" and those of AMD that wait alike.

    >>> [family_of(target) for target in ("sm_90", "gfx942", "gfx1250")]
    ['ptx', 'gfx9', 'gfx12']
    """
    family = TARGETS[target].family
    return "ptx" if family == "sm" else family.removesuffix("5")
