"""A Report as text for a terminal and as HTML for a notebook; both are readable without colour."""

from __future__ import annotations

import textwrap
from collections import Counter
from html import escape

from gpu_utils.grading.report import Outcome, Report

STORED = "clang is not installed, so the listing that the course has stored of this source was executed"

_MARK = {"passed": "✓", "failed": "✗", "skipped": "–", "not started": "○", "not graded": "–"}
_EDGE = {"passed": "6px double #1a7f37", "failed": "6px solid #c2410c", "not started": "6px dotted #57606a"}
_EDGE["not graded"] = _EDGE["not started"]
_CELL = "text-align:left;vertical-align:top;padding:2px 10px 2px 0;white-space:normal"


def report_text(report: Report) -> str:
    """The whole report in plain text, 100 columns wide."""
    lines = [f"{_MARK[report.status]} {report.status.upper()} {report.exercise}: {report.title}"]
    lines += textwrap.wrap(report.headline, 96, initial_indent="  ", subsequent_indent="  ")
    if report.hint:
        lines += textwrap.wrap(f"Hint: {report.hint}", 96, initial_indent="  ", subsequent_indent="  ")
    shown = _shown(report)
    for (outcome, where), detail in zip(shown, _details(shown), strict=True):
        lines.append(f"  {_MARK[outcome.status]} {where:<12} {outcome.case} ({_reason(outcome)})")
        lines += textwrap.wrap(detail, 92, initial_indent="      ", subsequent_indent="      ")
    if report.printed:
        lines += ["  Your answer printed:", textwrap.indent(report.printed.rstrip(), "  | ")]
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
    if report.outcomes:
        parts.append(_table(report))
    if report.printed:
        parts.append(
            "<details><summary>What your answer printed</summary>"
            f'<pre style="max-height:12em;overflow:auto">{escape(report.printed)}</pre></details>'
        )
    parts += [f'<p style="margin:6px 0"><strong>Note:</strong> {escape(note)}</p>' for note in _notes(report)]
    if _footer(report):
        parts.append(f'<p style="margin:6px 0;font-size:0.85em">{escape(_footer(report))}</p>')
    return "".join([*parts, "</div>"])


def _notes(report: Report) -> list[str]:
    return [*([STORED] if report.stored else []), *report.notes]


def _shown(report: Report) -> list[tuple[Outcome, str]]:
    """Failures first, then what was skipped, then what passed; a case that went alike on two backends is one row.

    Each outcome with its backends in words.
    """
    order = {"failed": 0, "skipped": 1, "passed": 2}
    rows: dict[tuple[str, ...], list[Outcome]] = {}
    for outcome in report.outcomes:
        key = (
            outcome.case,
            outcome.why,
            outcome.status,
            outcome.kind if outcome.status == "failed" else outcome.detail,
        )
        rows.setdefault(key, []).append(outcome)
    shown = [(alike[0], ", ".join(outcome.where for outcome in alike)) for alike in rows.values()]
    return sorted(shown, key=lambda row: order[row[0].status])


def _details(shown: list[tuple[Outcome, str]]) -> list[str]:
    """The sentence of each outcome: in full for the first failure of a kind, cut short where it repeats."""
    seen: set[str] = set()
    details = []
    for outcome, _ in shown:
        repeats = outcome.status == "failed" and outcome.kind in seen
        details.append(textwrap.shorten(outcome.detail, 100, placeholder=" ...") if repeats else outcome.detail)
        seen.add(outcome.kind)
    return details


def _reason(outcome: Outcome) -> str:
    return f"fresh: {outcome.why}" if outcome.fresh else outcome.why or "not run"


def _table(report: Report) -> str:
    shown = _shown(report)
    counts = Counter(outcome.status for outcome in report.outcomes)
    summary = ", ".join(f"{counts[name]} {name}" for name in ("passed", "failed", "skipped") if counts[name])
    rows = "".join(
        f'<tr><td style="{_CELL}">{_MARK[outcome.status]}&nbsp;{outcome.status}</td>'
        f'<td style="{_CELL}">{escape(where)}</td>'
        f'<td style="{_CELL}"><code>{escape(outcome.case)}</code></td>'
        f'<td style="{_CELL}">{escape(_reason(outcome))}'
        f"{'<br>' + escape(detail) if detail else ''}</td></tr>"
        for (outcome, where), detail in zip(shown, _details(shown), strict=True)
    )
    head = "".join(
        f'<th scope="col" style="{_CELL}">{name}</th>' for name in ("Result", "Backend", "Case", "Why it is there")
    )
    return (
        f"<details{' open' if report.status == 'failed' else ''}><summary>{summary}</summary>"
        f'<table style="border-collapse:collapse;margin:4px 0"><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table>"
        "</details>"
    )


def _footer(report: Report) -> str:
    if not report.outcomes:
        return ""
    again = f'the same cases again: check("{report.exercise}", seed={report.seed})'
    return f"{report.seconds:.2f} s; fresh cases are drawn anew at every check; {again}"
