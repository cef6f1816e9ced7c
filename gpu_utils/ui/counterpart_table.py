"""Questions with the metric of Nsight Compute and the counter of rocprofv3 that answer them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpu_utils.errors import UnknownName
from gpu_utils.profiling.counterparts import COUNTERPARTS
from gpu_utils.ui.table import Table, table


@dataclass(frozen=True, repr=False)
class Names(Table):
    """A table in which long names may break behind each underscore; copied out they are whole."""

    def _cell(self, row: int, place: int, word: str, kind: str) -> str:
        return super()._cell(row, place, word, kind).replace("_", "_<wbr>")


def counterparts(*questions: str) -> Names:
    """A row for each question, all of them or only some; those that one side cannot answer are marked.

    Raises UnknownName for a question that is not in gpu_utils.profiling.counterparts.

    >>> counterparts("cycles").rows
    (('cycles', 'gpc__cycles_elapsed.max', 'GRBM_GUI_ACTIVE', 'well', ''),)
    """
    known = {row.question: row for row in COUNTERPARTS}
    for question in questions:
        if question not in known:
            raise UnknownName("question", question, known)
    rows = [known[question] for question in questions] or list(COUNTERPARTS)
    found: dict[str, Any] = vars(
        table(
            {
                row.question: {
                    "NVIDIA, ncu": row.nvidia or "nothing",
                    "AMD, rocprofv3": row.amd or "nothing",
                    "match": row.match,
                    "mind": row.note,
                }
                for row in rows
            },
            first="question",
            mark=[row.question for row in rows if row.match == "none"],
        )
    )
    return Names(**found)
