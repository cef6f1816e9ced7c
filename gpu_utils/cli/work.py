"""`w2w list`, `w2w start` and `w2w reset`."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Column, Table

from gpu_utils.command import w2w
from gpu_utils.course import work
from gpu_utils.course.paths import course

Unit = Annotated[str, typer.Argument(help="A unit: 4, 04, triton_reductions or 04_triton_reductions.")]


def list_units() -> None:
    """Show the units: which exist now, how many exercises they have, and where your copies are.

    Example: ./w2w list
    """
    here = course()
    table = Table("unit", "title", "exercises", Column("your copy", no_wrap=True))  # a path is there to be copied
    for row in work.rows(here):
        if row.written:
            copy = here.relative(row.copy) if row.copy else w2w(f"start {row.unit.number}")
            table.add_row(row.unit.number, row.unit.title, str(row.exercises), copy)
        else:
            table.add_row(row.unit.number, row.unit.title, "", "planned", style="dim")
    Console().print(table)


def start(unit: Unit) -> None:
    """Copy a unit's lab and lesson to work/, where you write your answers; `study` does so for every unit.

    Example: ./w2w start 04
    """
    here = course()
    copy = work.start(here, here.find(unit))
    _say(f"your lab is {here.relative(copy)}; `{w2w('study')}` opens JupyterLab")


def reset(
    unit: Unit, lesson: Annotated[bool, typer.Option("--lesson", help="The lesson instead of the lab.")] = False
) -> None:
    """Start a unit's lab over, or its lesson; your old copy is kept beside the new one.

    Example: ./w2w reset 04     Example: ./w2w reset 04 --lesson
    """
    here, kind = course(), "lesson" if lesson else "lab"
    copy, kept = work.reset(here, here.find(unit), datetime.now(), kind)
    if kept:
        _say(f"your old copy is kept as {here.relative(kept)}")
    _say(f"{here.relative(copy)} is the untouched {kind} again")


def _say(text: str) -> None:
    Console(soft_wrap=True, highlight=False).print(text, markup=False)
