"""`w2w build` and `w2w validate`: for people who write the course."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from gpu_utils.command import w2w
from gpu_utils.course import benchmarks_page, facts_page
from gpu_utils.course import build as builder
from gpu_utils.course import validate as validator
from gpu_utils.course.paths import course

Units = Annotated[list[str] | None, typer.Argument(help="Units, for example 04 or triton_reductions; all without.")]


def build(
    units: Units = None,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; fail when a notebook is not current.")] = False,
) -> None:
    """Make notebooks/, labs/ and solutions/ from content/, docs/facts.md, and the tables of what was measured.

    Example: ./w2w build 04
    """
    here = course()
    chosen = [here.find(text) for text in units] if units else here.written()
    console = Console(soft_wrap=True, highlight=False)
    if not chosen:
        console.print(f"content/ holds no unit; write {here.relative(here.content)}/00_start/lesson.py first")
        raise typer.Exit(1)
    count = sum(len(builder.kinds(here, unit)) for unit in chosen)
    made = f"{count} notebooks of {len(chosen)} unit" + "s" * (len(chosen) > 1)
    stray = [] if units else builder.strays(here)
    if not check:
        changed = builder.build(here, chosen, datetime.now())
        for written in changed:
            kept = f"; it had been run in place, and is kept as {here.relative(written.kept)}" if written.kept else ""
            console.print(f"wrote {here.relative(written.path)}{kept}", markup=False)
        if facts_page.write(here):
            console.print(f"wrote {here.relative(facts_page.place(here))}", markup=False)
        for path in benchmarks_page.write(here):
            console.print(f"wrote {here.relative(path)}", markup=False)
    wrong = (builder.differences(here, chosen) if check else []) + stray
    if check and not facts_page.is_current(here):
        wrong.append(builder.Difference(facts_page.place(here), "is not what its sources make"))
    if check:
        why = "is not what benchmarks/results makes"
        wrong += [builder.Difference(path, why) for path in benchmarks_page.stale(here)]
    for found in wrong:
        console.print(f"{here.relative(found.path)} {found.why}", markup=False)
    if not check:
        console.print(f"{made}: {len(changed)} changed")
    elif wrong:
        console.print(f"{len(wrong)} files differ from a rebuild of {made}; run `{w2w('build')}`")
        raise typer.Exit(1)
    else:
        console.print(f"{made} are current")


def validate(
    units: Units = None,
    report: Annotated[Path | None, typer.Option(help="Write a JUnit report of the cells there.")] = None,
) -> None:
    """Run every cell of the lessons and solutions; fail on an error, a failing check, a dead kernel or a timeout.

    Example: ./w2w validate 04
    """
    here = course()
    paths = validator.notebooks_to_validate(here, units or [])
    console = Console(soft_wrap=True, highlight=False)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("running", total=validator.count_cells(paths))

        def show(notebook: str) -> None:
            progress.update(task, advance=1, description=notebook)

        result = validator.run_notebooks(here.root, paths, strict=True, on_cell=show, report=report)
    console.print(_table_of_runs(result))
    for run in result.runs:
        for failure in run.failures:
            console.print(f"\n{here.relative(run.path)}, {failure}", markup=False)
    good = sum(run.ok for run in result.runs)
    console.print(f"\n{good} of {len(result.runs)} notebooks ran without a fault, in {result.seconds:.0f} s")
    if not result.ok:
        if not any(run.failures for run in result.runs):
            console.print(result.output, markup=False)
        raise typer.Exit(1)


def _table_of_runs(result: validator.Validation) -> Table:
    table = Table(box=box.SIMPLE, pad_edge=False, collapse_padding=True)
    for name in ("notebook", "passed", "failed", "seconds", "slowest cell"):
        table.add_column(name, no_wrap=True)
    for run in result.runs:
        table.add_row(
            f"{run.path.parent.name}/{run.path.name}",
            f"{run.passed} of {run.cells}",
            str(len(run.failures)),
            f"{run.seconds:.1f}",
            f"{run.slowest[0]}: {run.slowest[1]:.1f}",
            style="" if run.ok else "bold",
        )
    return table
