"""Two texts as one: what was taken out, what came in, with a few lines around."""

from __future__ import annotations

import difflib
import itertools
from dataclasses import dataclass
from html import escape

_STYLE = (
    "font:12px/1.5 ui-monospace,monospace;border:1px solid rgba(127,127,127,.5);overflow:auto;max-height:480px;"
    "padding:4px"
)
_LOOK = {
    "-": ("del", "background:rgba(220,60,40,.18)"),
    "+": ("ins", "background:rgba(40,160,80,.18)"),
    " ": ("span", ""),
    "⋯": ("span", "opacity:.6"),
}


@dataclass(frozen=True, repr=False)
class DiffFigure:
    """The lines that differ between two texts, marked `-` and `+`, with `around` equal lines on each side.

    Where as many lines come in as were taken out, and each is like its partner, they stand in pairs.

    title  one line above the figure: a file name

    It shows itself as HTML in a notebook and as text elsewhere; the marks are characters, so it reads without colour.

    >>> DiffFigure("a\\nb\\n", "a\\nc\\n", "letters")
    letters
      a
    - b
    + c
    """

    before: str
    after: str
    title: str
    around: int = 2

    @property
    def lines(self) -> list[tuple[str, str]]:
        """(mark, text): `-` taken out, `+` put in, a space for equal lines, `⋯` where equal lines are left out."""
        found = list(
            difflib.unified_diff(self.before.splitlines(), self.after.splitlines(), lineterm="", n=self.around)
        )[2:]
        rows = [("⋯", "") if line.startswith("@@") else (line[0], line[1:]) for line in found]
        return _paired(rows[1:])

    def __repr__(self) -> str:
        return "\n".join([self.title, *(f"{mark} {text}".rstrip() for mark, text in self.lines)])

    def _repr_html_(self) -> str:
        rows = []
        for mark, text in self.lines:
            tag, style = _LOOK[mark]
            rows.append(
                f'<{tag} style="display:block;white-space:pre;width:max-content;min-width:100%;text-decoration:none;'
                f'{style}">{mark} {escape(text)}</{tag}>'
            )
        label = escape(f"what changed in {self.title}")
        return (
            f'<div style="{_STYLE}" role="group" aria-label="{label}"><b>{escape(self.title)}</b>{"".join(rows)}</div>'
        )


def _paired(rows: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """n lines that are taken out and n that are put in become n pairs, where the lines of each pair are alike."""
    blocks = [(mark, list(lines)) for mark, lines in itertools.groupby(rows, key=lambda row: row[0])]
    for (mark, old), (then, new) in itertools.pairwise(blocks):
        if (mark, then) == ("-", "+") and len(old) == len(new) and all(map(_alike, old, new)):
            both = [row for pair in zip(old, new, strict=True) for row in pair]
            old[:], new[:] = both, []
    return [row for _, lines in blocks for row in lines]


def _alike(old: tuple[str, str], new: tuple[str, str]) -> bool:
    return difflib.SequenceMatcher(None, old[1].strip(), new[1].strip()).ratio() > 0.5
