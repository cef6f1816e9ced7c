"""Tables of the pages that `w2w build` makes."""

from __future__ import annotations

from collections.abc import Sequence


def markdown_table(head: Sequence[object], rows: Sequence[Sequence[object]]) -> list[str]:
    """Lines of a table.

    >>> markdown_table(("a", "b"), [(1, "x|y")])
    ['| a | b |', '| --- | --- |', '| 1 | x\\\\|y |']
    """
    cells = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in cells]
