"""Questions with the metric of Nsight Compute and the counter of rocprofv3 that answer them."""

from __future__ import annotations

from gpu_utils.errors import UnknownName
from gpu_utils.profiling.counterparts import COUNTERPARTS
from gpu_utils.ui.table import Table, table


def counterparts(*questions: str) -> Table:
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
    return table(
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
