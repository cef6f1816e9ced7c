"""The report of a port as a table."""

from __future__ import annotations

from gpu_utils.model.parity import Parity
from gpu_utils.ui.table import Table, table


def parity_table(report: Parity) -> Table:
    """A row for each comparison: both sides, how far they are apart, the bound and where it comes from, the verdict."""
    rows = {}
    for row in report.rows:
        verdict = "" if row.holds is None else row.holds  # a speed has no bound
        rows[row.what] = {
            "before": row.before,
            "now": row.now,
            "apart": row.difference,
            "bound": row.limit,
            "from": row.why.rpartition(": ")[2],
            "holds": verdict,
        }
    return table(rows)
