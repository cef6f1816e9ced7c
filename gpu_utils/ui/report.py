"""A Report as text for a terminal and as HTML for a notebook; both are readable without colour."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from gpu_utils.command import w2w
from gpu_utils.grading.report import Mode, Outcome, Report

STORED = "clang is not installed, so the listing that the course has stored of this source was executed"

_MARK = {"passed": "✓", "failed": "✗", "skipped": "–", "not started": "○", "not graded": "–"}
_EDGE = {"passed": "6px double #1a7f37", "failed": "6px solid #c2410c", "not started": "6px dotted #57606a"}
_EDGE["not graded"] = _EDGE["not started"]
_CELL = "text-align:left;vertical-align:top;padding:2px 10px 2px 0;white-space:normal"


def ended_python(exercise: str) -> str:
    """What is said of a check that gave no report, because the answer ended Python."""
    return (
        f"The last check of {exercise} ended Python before it could report: the answer left it (os._exit), or crashed "
        f"in compiled code. Your notebook is as it was saved; {w2w(f'check {exercise}')} runs each answer in a process "
        "of its own, and says how it ends."
    )


def report_text(report: Report) -> str:
    """The whole report in plain text, 100 columns wide."""
    lines = [f"{_MARK[report.status]} {report.status.upper()} {report.exercise}: {report.title}"]
    lines += textwrap.wrap(report.headline, 96, initial_indent="  ", subsequent_indent="  ")
    if report.hint:
        lines += textwrap.wrap(f"Hint: {report.hint}", 96, initial_indent="  ", subsequent_indent="  ")
    told, rest = _told(_rows(report))
    for row in told:
        times = f"x{row.count} " if row.count > 1 else ""
        lines.append(f"  {_MARK[row.first.status]} {times}{row.where:<12} {row.case} ({_reason(row.first)})")
        lines += textwrap.wrap(row.detail, 92, initial_indent="      ", subsequent_indent="      ")
    for status, rows in rest.items():
        names = "; ".join(dict.fromkeys(row.named for row in rows))
        more = f"  {_MARK[status]} {sum(row.count for row in rows)}{' more' * (status == 'failed')} {status}: {names}"
        lines += textwrap.wrap(more, 96, subsequent_indent="      ", max_lines=4, placeholder=" ...")
    if report.printed:
        lines += ["  Your answer printed:", textwrap.indent(report.printed.rstrip(), "  | ")]
    if report.speed:
        lines += textwrap.wrap(str(report.speed), 96, initial_indent="  ", subsequent_indent="  ")
    lines += [f"  Note: {note}" for note in _notes(report)]
    if _footer(report):
        lines.append(f"  {_footer(report)}")
    return "\n".join(lines)


def report_html(report: Report) -> str:
    """The whole report as one HTML element: no scripts, no network, colours follow JupyterLab's theme."""
    parts = [
        f'<div role="status" class="w2w-report" data-status="{escape(report.status)}" '
        f'style="border-left:{_EDGE[report.status]};padding:6px 14px;margin:4px 0;max-width:62em;'
        'color:var(--jp-ui-font-color1,#1f2328);font-family:var(--jp-ui-font-family,sans-serif);font-size:14px">',
        f'<div style="font-size:1.15em"><strong>{_MARK[report.status]} {report.status.upper()}</strong>'
        f"&ensp;<code>{escape(report.exercise)}</code>&ensp;{escape(report.title)}</div>",
        f'<p style="margin:6px 0">{escape(report.headline)}</p>',
    ]
    if report.hint:
        parts.append(
            '<p class="w2w-hint" style="margin:6px 0;padding:6px 10px;border:1px dashed currentColor">'
            f"<strong>Hint:</strong> {escape(report.hint)}</p>"
        )
    if _rows(report):
        parts.append(_tables(report))
    if report.printed:
        parts.append(
            "<details><summary>What your answer printed</summary>"
            f'<pre style="max-height:12em;overflow:auto">{escape(report.printed)}</pre></details>'
        )
    if report.speed:
        parts.append(f'<p class="w2w-speed" style="margin:6px 0">{escape(str(report.speed))}</p>')
    parts += [f'<p style="margin:6px 0"><strong>Note:</strong> {escape(note)}</p>' for note in _notes(report)]
    if _footer(report):
        parts.append(f'<p style="margin:6px 0;font-size:0.85em">{escape(_footer(report))}</p>')
    return "".join([*parts, "</div>"])


def _notes(report: Report) -> list[str]:
    return [*([STORED] if report.stored else []), *report.notes]


FAILURES_TOLD = 3
"""Rows of failures that a report tells at length."""

_OF_THE_WHOLE = ("error:missing", "error:signature", "error:cell")
"""Kinds of failures that no case had a part in: the headline says it all."""


@dataclass(frozen=True)
class _Row:
    """Outcomes that went alike: one case on several backends, or one failure in several cases; `first` is one."""

    first: Outcome
    where: str
    case: str
    detail: str
    count: int

    @property
    def named(self) -> str:
        """The case, with where it ran if that is not a plain run on a backend: the same case has run there, too."""
        return self.case if self.first.mode is Mode.RUN else f"{self.case} ({self.where})"

    @property
    def status(self) -> str:
        """In words, with how many checks the row stands for: what the headline counts."""
        return self.first.status + (f" x{self.count}" if self.count > 1 else "")


def _rows(report: Report) -> list[_Row]:
    """Failures first, then what was skipped, then what passed. A sentence that repeats is said once."""
    order = {"failed": 0, "skipped": 1, "passed": 2}
    if any(outcome.kind in _OF_THE_WHOLE for outcome in report.outcomes):
        return []
    alike: dict[tuple[str, ...], list[Outcome]] = {}
    for outcome in report.outcomes:
        if outcome.status == "failed":
            key = (outcome.kind, _of_any_target(outcome) if _says_all(outcome) else f"{outcome.case} {outcome.why}")
        else:
            key = (f"{outcome.case} {outcome.why}", outcome.detail)
        alike.setdefault((outcome.status, *key), []).append(outcome)
    rows: list[_Row] = []
    seen: set[str] = set()
    for outcomes in sorted(alike.values(), key=lambda many: order[many[0].status]):
        first = outcomes[0]
        detail = first.detail
        if report.headline.endswith(detail):
            detail = ""  # the headline has just said it
        elif first.status == "failed" and first.kind in seen:
            detail = textwrap.shorten(detail, 100, placeholder=" ...")
        seen.add(first.kind)
        where = ", ".join(dict.fromkeys(outcome.where for outcome in outcomes))
        others = len({(outcome.case, outcome.why) for outcome in outcomes}) - 1
        cases = first.case + (f" and {others} more case{'s' * (others > 1)}" if others else "")
        rows.append(_Row(first, where, cases, detail, len(outcomes)))
    return rows


def _told(rows: Sequence[_Row]) -> tuple[list[_Row], dict[str, list[_Row]]]:
    """(what is told at length, the rest by status): after a failure a few rows say more than thirty.

    Of the failures the first of every kind comes before a second of any. What was skipped has a reason and is told.
    """
    failed = [row for row in rows if row.first.status == "failed"]
    if not failed:
        return list(rows), {}
    firsts = list({row.first.kind: row for row in reversed(failed)}.values())[::-1]
    by_kind = [*firsts, *(row for row in failed if row not in firsts)]
    told = [*by_kind[:FAILURES_TOLD], *(row for row in rows if row.first.status == "skipped")]
    rest: dict[str, list[_Row]] = {}
    for row in [*by_kind[FAILURES_TOLD:], *(row for row in rows if row.first.status == "passed")]:
        rest.setdefault(row.first.status, []).append(row)
    return told, rest


def _of_any_target(outcome: Outcome) -> str:
    """Its sentence without the name of the target: a mistake in C++ is refused for each of them alike."""
    return outcome.detail.replace(outcome.backend.rpartition(":")[2], "") if outcome.backend else outcome.detail


def _says_all(outcome: Outcome) -> bool:
    """Whether a failure says the same wherever it happens, as an error does; wrong values are of their case."""
    return outcome.kind.startswith(("error:", "limit:")) or outcome.kind in (
        "compile",
        "timeout",
        "died",
        "mutated",
        "device",
    )


def _reason(outcome: Outcome) -> str:
    return f"fresh: {outcome.why}" if outcome.fresh else outcome.why or "not run"


def _tables(report: Report) -> str:
    """What is told at length, open after a failure; the other rows in a second table that is folded."""
    told, rest = _told(_rows(report))
    summary = _summary(Counter(outcome.status for outcome in report.outcomes))
    opened = " open" if report.status == "failed" else ""
    parts = [f"<details{opened}><summary>{summary}</summary>{_table(told)}</details>"]
    if rest:
        others = _summary({status: sum(row.count for row in rows) for status, rows in rest.items()})
        rows = [row for many in rest.values() for row in many]
        parts.append(f"<details><summary>The others: {others}</summary>{_table(rows)}</details>")
    return "".join(parts)


def _summary(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{counts[name]} {name}" for name in ("passed", "failed", "skipped") if counts.get(name))


def _table(rows: Sequence[_Row]) -> str:
    lines = "".join(
        f'<tr><td style="{_CELL}">{_MARK[row.first.status]}&nbsp;{row.status}</td>'
        f'<td style="{_CELL}">{escape(row.where)}</td>'
        f'<td style="{_CELL}"><code>{escape(row.case)}</code></td>'
        f'<td style="{_CELL}">{escape(_reason(row.first))}'
        f"{'<br>' + escape(row.detail) if row.detail else ''}</td></tr>"
        for row in rows
    )
    head = "".join(
        f'<th scope="col" style="{_CELL}">{name}</th>' for name in ("Result", "Backend", "Case", "Why it is there")
    )
    return (
        f'<table style="border-collapse:collapse;margin:4px 0"><thead><tr>{head}</tr></thead>'
        f"<tbody>{lines}</tbody></table>"
    )


def _footer(report: Report) -> str:
    if not _rows(report):
        return ""
    again = f'the same cases again: check("{report.exercise}", seed={report.seed})'
    return f"{report.seconds:.2f} s; fresh cases are drawn anew at every check; {again}"
