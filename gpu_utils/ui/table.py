"""Tables of a lesson: HTML in a notebook, aligned text elsewhere."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

from gpu_utils.chips.figure import Figure
from gpu_utils.errors import BadArgument
from gpu_utils.ui.explore.drawing import styled
from gpu_utils.ui.values import is_numeric, words

_EXPONENT = re.compile(r"-?[\d.]+e[-+]?\d+")
"""2.3e-07: a browser would break it behind its hyphen."""


@dataclass(frozen=True, repr=False)
class Table:
    """Words in rows and columns; it shows itself.

    head    names of the columns, with their units; rows: as many words each
    note    a sentence under the table, such as a source
    marked  numbers of the rows that stand out: bold, with an arrow before them
    """

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    marked: frozenset[int] = frozenset()

    def __repr__(self) -> str:
        lines = [self.head, *self.rows] if any(self.head) else [*self.rows]
        widths = [max((len(line[at]) for line in lines), default=0) for at in range(len(self.head))]
        shown = [
            "  ".join(
                f"{word:>{width}}" if right else f"{word:<{width}}"
                for word, width, right in zip(line, widths, self._right(), strict=True)
            )
            for line in lines
        ]
        if self.marked:
            first = len(lines) - len(self.rows)
            shown = [f"{'>' if at - first in self.marked else ' '} {line}" for at, line in enumerate(shown)]
        return "\n".join(line.rstrip() for line in [*shown, *([self.note] if self.note else [])])

    def _repr_html_(self) -> str:
        return styled(f'<div class="w2w-x">{self.html()}</div>')

    def html(self) -> str:
        """The table without the style sheet, to be put into something else."""
        kinds = [' class="num"' if right else "" for right in self._right()]
        head = "".join(
            f'<th scope="col"{kind}>{escape(name)}</th>' for name, kind in zip(self.head, kinds, strict=True)
        )
        body = "".join(
            f'<tr class="{"binds" if at in self.marked else "other"}">'
            + "".join(self._cell(at, place, word, kinds[place]) for place, word in enumerate(row))
            + "</tr>"
            for at, row in enumerate(self.rows)
        )
        head = f"<thead><tr>{head}</tr></thead>" if any(self.head) else ""
        note = f'<p class="small">{escape(self.note)}</p>' if self.note else ""
        return f'<div class="scroll"><table>{head}<tbody>{body}</tbody></table></div>{note}'

    def _cell(self, row: int, place: int, word: str, kind: str) -> str:
        sign = "▸ " if row in self.marked and place == 0 else ""
        whole = ' style="white-space:nowrap"' if _EXPONENT.fullmatch(word) else ""
        return f"<td{kind}{whole}>{sign}{escape(word)}</td>"

    def _right(self) -> list[bool]:
        """Which columns stand at their right edge: those of numbers."""
        columns = [[row[at] for row in self.rows] for at in range(len(self.head))]
        return [any(column) and all(map(is_numeric, column)) for column in columns]


def table(
    rows: Mapping[Any, Any] | Iterable[Mapping[str, Any]],
    *,
    first: str = "",
    across: bool = False,
    mark: Collection[Any] = (),
    note: str = "",
) -> Table:
    """A table, as the last line of a cell.

    rows    label -> {column: value}, one row for each label (a target, a stride);
            label -> value, a row of two cells; or a list of {column: value}, rows without a label.
            A column that a row lacks stays empty. Units belong into the names of columns
    first   what the labels are: the name of the first column
    across  the labels stand across the top instead, and what were columns are rows
    mark    labels of the rows that stand out (with `across`, names of the former columns; in a list, their numbers)
    note    a sentence under it, such as a source

    Without rows there is nothing to see, no name of the first column either.
    Values: `values.words`; a figure of the registry stands with a number, and its source under the table.
    Raises BadArgument for a label in `mark` that is not there.

    >>> table({"sm_80": {"lanes": 32, "bytes": 1024}, "gfx942": {"lanes": 64, "bytes": 128}}, first="target")
    target  lanes  bytes
    sm_80      32  1,024
    gfx942     64    128
    """
    labelled = isinstance(rows, Mapping)
    found = list(rows.items()) if isinstance(rows, Mapping) else list(enumerate(rows))
    if not all(isinstance(row, Mapping) for _, row in found):
        found = [(label, {"": value}) for label, value in found]
    columns = list(dict.fromkeys(column for _, row in found for column in row))
    if across:
        found = [(column, {label: row[column] for label, row in found if column in row}) for column in columns]
        columns = list(rows)
    unknown = [label for label in mark if label not in dict(found)]
    if unknown:
        raise BadArgument(
            f"there is no row {unknown[0]!r} to mark; there are {', '.join(words(at) for at, _ in found)}"
        )
    sources: dict[str, int] = {}
    lines = [
        (
            *([words(label)] if labelled or across else []),
            *(_with_source(row[c], sources) if c in row else "" for c in columns),
        )
        for label, row in found
    ]
    note = " ".join(filter(None, (note, *(f"[{number}] {source}." for source, number in sources.items()))))
    head = (*([first] if labelled or across else []), *map(words, columns)) if lines else ()
    return Table(head, tuple(lines), note, frozenset(at for at, (label, _) in enumerate(found) if label in mark))


def _with_source(value: Any, sources: dict[str, int]) -> str:
    """A value in words; that of a figure ends in the number of its source, which is added to `sources`."""
    if not isinstance(value, Figure) or value.value is None:
        return words(value)
    text = "; ".join(filter(None, (value.source, value.note)))
    return f"{words(value.value)} {value.unit} [{sources.setdefault(text, len(sources) + 1)}]"


def sourced(figures: Mapping[str, Figure], first: str = "") -> Table:
    """Figures of the registry with their sources: a row for each, label -> figure.

    >>> sourced({"memory": Figure(80, "GB", "a data sheet"), "bandwidth": Figure(None, "TB/s", "", "no source")})
               figure   source
    memory     80 GB    a data sheet
    bandwidth  unknown  no source
    """
    rows = [
        (
            label,
            "unknown" if one.value is None else f"{words(one.value)} {one.unit}",
            "; ".join(filter(None, (one.source, one.note))),
        )
        for label, one in figures.items()
    ]
    return Table((first, "figure", "source"), tuple(rows))
