"""`w2w release`: the notebooks that a class gets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def release(
    units: Annotated[list[str], typer.Argument(metavar="UNIT...", help="Units, for example 00 01.")],
    out: Annotated[Path, typer.Option("--out", help="A folder that is empty or missing, or holds this very release.")],
    points: Annotated[Path | None, typer.Option(help="A YAML file: lines like `00.saxpy: 2`, and `late:`.")] = None,
    due: Annotated[
        list[str] | None,
        typer.Option(help="2026-12-01T23:59+01:00 for all units, 00=2026-12-01T23:59+01:00 for one; may be repeated."),
    ] = None,
) -> None:
    """Write the notebooks for a class: labs without answers, for any learning platform and for nbgrader.

    Example: ./w2w release 00 01 --out spring --points points.yaml --due 2026-12-01T23:59+01:00
    """
    from datetime import datetime

    from rich.console import Console
    from rich.table import Column, Table

    from gpu_utils import exercises
    from gpu_utils.classroom.hosted import origin
    from gpu_utils.classroom.points import read_due, read_points
    from gpu_utils.classroom.records import Late
    from gpu_utils.classroom.releasing import NBGRADER, RECORD, plan, write
    from gpu_utils.course.paths import course

    here = course()
    chosen = sorted({here.find(text) for text in units}, key=lambda unit: unit.number)
    numbers = [unit.number for unit in chosen]
    known = [name for number in numbers for name in exercises.ids(number)]
    worth, late = read_points(points, known) if points else ({}, Late())
    made = plan(here, chosen, worth, read_due(due or [], numbers), late)
    written = write(here, made, out)

    table = Table("notebook", Column("exercises", justify="right"), Column("points", justify="right"), "due")
    for unit in chosen:
        ids = exercises.ids(unit.number)
        when = made.due.get(unit.number)
        total = f"{sum(made.worth(name) for name in ids):g}"
        table.add_row(f"{unit.name}.ipynb", str(len(ids)), total, f"{when:%Y-%m-%d %H:%M %z}" if when else "no time")
    console = Console(soft_wrap=True, highlight=False)
    console.print(table)
    for number, when in made.due.items():
        if when < datetime.now(when.tzinfo):
            console.print(f"unit {number} was due at {when:%Y-%m-%d %H:%M %z}, which is over", markup=False)
    if not origin(here.root)[0]:
        said = "this clone has no public address: students must write one into the first cell, to use a hosted notebook"
        console.print(f"{said}; make the release from a clone that has one, or tell them", markup=False)
    for path in written.kept:
        console.print(f"{path} was changed since it was made, and is kept", markup=False)
    count = f"{len(written.made)} files written" if written.made else "nothing new to write"
    console.print(f"release {made.id} in {out}: {count}. For students: the notebooks and README.txt.", markup=False)
    console.print(f"For w2w grade: --release {out / RECORD}. For nbgrader: the folder {out / NBGRADER}.", markup=False)
