"""The command profile: files of any profiler as one table, a report, or a program run under a profiler."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from gpu_utils.command import w2w
from gpu_utils.errors import ProfileUnreadable

if TYPE_CHECKING:
    from gpu_utils.profiling.busy import Busy
    from gpu_utils.profiling.limits import Finding, Limits
    from gpu_utils.profiling.profile import Profile

SHOWN = 20
"""Kernels in the table; --csv and --html have all."""

COPIES = 0.01
"""Share of the time from which copies are told apart from kernels."""

FINDINGS, REMARKS = 6, 6
"""Lines of each; the report has all."""

URGENT = (": left out: it ", "two runs?")
"""Words of remarks that come first: on what was not read, and on what should not be read together."""

HEAD = ("kernel", "calls", "time", "share", "a call", "limited by")
PROGRAMS = (".py", ".sh", ".ipynb")


def profile(
    files: Annotated[list[Path] | None, typer.Argument(help="Files of a profiler, or -- and a program.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a report with a timeline and a roofline here.")] = None,
    csv: Annotated[Path | None, typer.Option(help="Write the table of all launches here, with units.")] = None,
    chip: Annotated[str, typer.Option(help="The chip whose peaks count, H100 or MI300X; else the file's own.")] = "",
    tool: Annotated[str, typer.Option(help="With a program: rocprofv3, ncu, nsys or torch.")] = "",
) -> None:
    """Say whether the GPU is busy, which kernel takes the time, and what limits it, from files of any profiler.

    It reads traces of torch.profiler, ncu --csv, exports of nsys, and what rocprofv3 and rocprof write; several files
    of one run are read together. Options stand before or after the files, and before -- where a program comes.

    Example: ./w2w profile trace.json counters.csv --html report.html

    With -- and a program, run it under what the machine has (rocprofv3, ncu, nsys, else torch.profiler). Its files go
    to a new folder in profiles/, and its exit code is the command's.

    Example: ./w2w profile -- python train.py
    """
    if "--" in sys.argv:
        words = sys.argv[sys.argv.index("--") + 1 :]
        named = len(files or []) - len(words)
        if not words or named:
            raise typer.BadParameter(
                f"{'a file' if named else 'nothing'} and -- do not go together", param_hint="files"
            )
        raise typer.Exit(_program(words, tool, html, csv, chip))
    if not files:
        raise typer.BadParameter(f"name a file, or a program: {w2w('profile -- python train.py')}", param_hint="files")
    if tool:
        raise typer.BadParameter("goes with -- and a program", param_hint="--tool")
    for path in files:
        if path.suffix in PROGRAMS:
            raise ProfileUnreadable(path, f"is a program; run it: {w2w(f'profile -- python {path}')}")
    from gpu_utils.profiling.ours import REPORT, TABLE, check, foreign

    files = foreign(files)
    check({REPORT: html, TABLE: csv}, files)
    _files(files, html, csv, chip)


def _program(words: list[str], tool: str, html: Path | None, csv: Path | None, chip: str) -> int:
    """The exit code: the program's; 1 where that was 0 and there is nothing to show."""
    from gpu_utils.profiling.ours import REPORT, TABLE, check
    from gpu_utils.profiling.running import run

    check({REPORT: html, TABLE: csv})
    done = run(words, tool, lambda line: typer.echo(f"w2w: {line}", err=True))
    if done.problem:
        typer.echo(f"w2w: {done.problem}", err=True)
        return done.code or 1
    failed = f"the program ended with code {done.code}"
    try:
        _files(list(done.files), html, csv, chip)
    except ProfileUnreadable as error:
        before = f"{failed} before {done.tool.name} had recorded anything; what it said is above"
        typer.echo(f"w2w: {before if done.code else error}", err=True)
        return done.code or 1
    if done.code:
        typer.echo(f"w2w: {failed}", err=True)
    typer.echo(f"again, without running it: {w2w('profile ' + ' '.join(map(str, done.files)))}")
    return done.code


def _files(files: list[Path], html: Path | None, csv: Path | None, chip: str) -> None:
    from gpu_utils.profiling.busy import busy
    from gpu_utils.profiling.limits import limits
    from gpu_utils.profiling.reading import read

    found = read(*files)
    working = busy(found)
    judged = limits(found, chip or None, working)
    _show(found, working, judged)
    if html is not None or csv is not None:
        from gpu_utils.course.files import write_atomically

        if csv is not None:
            write_atomically(csv, _csv(found).encode("utf-8", "replace"))
            typer.echo(f"all launches: {csv}")
        if html is not None:
            from gpu_utils.profiling.report import page

            write_atomically(html, page(found, working, judged).encode("utf-8", "replace"))
            typer.echo(f"report: {html}")


def _csv(found: Profile) -> str:
    """All launches, units in the head: duration (ns)."""
    table = found.table()
    units = table.attrs["units"]
    return table.rename(columns={name: f"{name} ({unit})" for name, unit in units.items() if unit}).to_csv(index=False)


def _show(found: Profile, working: Busy, judged: Limits) -> None:
    """In the order of the questions: is the GPU busy, which kernel, what limits it."""
    if found.virtual:
        typer.echo("virtual GPU: counters are exact, times are modelled; nothing was measured on a GPU")
    for part in found.partial:
        typer.echo(f"read in part: {part}")
    for line in _busy_lines(working):
        typer.echo(line)
    _table(judged)
    for line in _lines(found, judged):
        typer.echo(line)


def _table(judged: Limits) -> None:
    from gpu_utils.profiling.words import share, time

    rows = [
        (
            one.name,
            f"{one.calls:,}",
            time(one.ns),
            share(one.share),
            time(None if one.ns is None else one.ns / one.calls),
            one.verdict,
        )
        for one in judged.kernels[:SHOWN]
    ]
    if not rows:
        typer.echo("no kernel is in these files")
    elif sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(title="Kernels by time")
        for name in HEAD:
            justify: Literal["left", "right"] = "left" if name in ("kernel", "limited by") else "right"
            table.add_column(name, justify=justify, overflow="fold")
        for row in rows:
            table.add_row(Text(_cut(row[0])), *map(Text, row[1:]))
        Console().print(table)
    else:
        shown = [HEAD, *((_cut(row[0]), *row[1:]) for row in rows)]
        wide = [max(len(row[column]) for row in shown) for column in range(len(HEAD))]
        for row in shown:
            cells = [row[0].ljust(wide[0]), *(cell.rjust(wide[at]) for at, cell in enumerate(row[1:-1], 1)), row[-1]]
            typer.echo("  ".join(cells).rstrip())
    if (more := len(judged.kernels) - SHOWN) > 0:
        typer.echo(f"and {more} more; --csv and --html have all")


def _cut(name: str, most: int = 60) -> str:
    """At most so many letters, and none that would move a terminal's cursor."""
    shown = "".join(letter if letter.isprintable() else "?" for letter in name)
    return shown if len(shown) <= most else f"{shown[: most - 3]}..."


def _busy_lines(working: Busy) -> list[str]:
    """How busy each device was, and why it was idle."""
    from gpu_utils.profiling.busy import SERIAL
    from gpu_utils.profiling.counted import counted
    from gpu_utils.profiling.words import gpu, share, time

    lines = []
    for one in working.devices:
        name = gpu(one.device)
        causes = "; ".join(f"{time(ns)} {cause}" for cause, ns in list(one.idle_by_cause.items())[:3])
        if one.serial:
            lines.append(f"{name}: how busy it was cannot be told: {SERIAL}; record a timeline without counters")
            continue
        copied = one.copies / one.window if one.window else 0
        parts = f" (kernels {share(one.kernels / one.window)}, copies {share(copied)})" if copied > COPIES else ""
        lines.append(
            f"{name}: busy {share(1 - one.idle_share)} of {time(one.window)}{parts}, {counted(len(one.gaps), 'gap')}"
            f"{f' ({causes})' if causes else ''}"
        )
    return (
        [*lines, ""] if lines else ["how busy the GPU was cannot be told: nothing here has a start and an end on a GPU"]
    )


def _lines(found: Profile, judged: Limits) -> list[str]:
    """What stands under the table: findings with advice, what is not told, remarks."""
    from gpu_utils.profiling.words import share

    lines: list[str] = []
    of_time = {one.name: one.share for one in judged.kernels}
    if chosen := _first(judged):
        lines += ["", "what to try:"]
        for one in chosen:
            part = of_time.get(one.about)
            whose = f" ({share(part)} of the kernels' time)" if part is not None else ""
            lines.append(f"- {_cut(one.about)}{whose}: {'' if one.sure else 'perhaps: '}{one.sentence}. {one.advice}")
    if judged.kernels and judged.kernels[0].missing:
        first = judged.kernels[0].missing[0]
        lines += ["", f"what these files do not tell: {first.question}; {first.command}"]
    if remarks := sorted([*found.remarks, *judged.remarks], key=lambda one: not any(word in one for word in URGENT)):
        lines += ["", "remarks:", *(f"- {remark}" for remark in remarks[:REMARKS])]
        if (more := len(remarks) - REMARKS) > 0:
            lines.append(f"- and {more} more; --html has all")
    return lines


def _first(judged: Limits) -> list[Finding]:
    """What is true of the whole GPU, then of kernels by their time; first what is sure, last what is faint; one cause
    once. Kernels with hardly any time have no place here: to mend them wins nothing."""
    from gpu_utils.profiling.needs import THRESHOLDS

    least = THRESHOLDS["small_part"].value / 100
    whole = {one.kind for one in judged.general}
    kernels = [kernel for kernel in judged.kernels[:SHOWN] if kernel.share is None or kernel.share >= least]
    found = [one for kernel in kernels for one in kernel.findings if one.kind not in whole]
    return sorted([*judged.general, *found], key=lambda one: (not one.sure, one.faint))[:FINDINGS]
