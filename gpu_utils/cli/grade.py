"""The commands check, hint and status: grading from the command line, with each answer in a process of its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

_What = Annotated[str, typer.Argument(help="A unit (00) or one exercise (00.vector_add).")]
_Notebook = Annotated[Path | None, typer.Option("--notebook", help="A notebook other than your copy in work/.")]


def check(what: _What, notebook: _Notebook = None) -> None:
    """Check the answers in your copy of a lab; every answer runs in its own process.

    Example: ./w2w check 00     Example: ./w2w check 00.saxpy
    """
    from gpu_utils import exercises
    from gpu_utils.command import w2w
    from gpu_utils.course.paths import course
    from gpu_utils.errors import NotebookUnreadable
    from gpu_utils.grading import fork_server
    from gpu_utils.grading.notebook import answers

    here = course()
    unit = here.find(what.split(".")[0])
    chosen = [what] if "." in what else exercises.ids(unit.number)
    modules = [exercises.module_of(name) for name in chosen]
    path = notebook or here.copy(unit)
    if notebook is None and not path.exists():
        make = w2w(f"start {unit.number}")
        raise NotebookUnreadable(f"there is no {here.relative(path)}; make your copy with: {make}")
    found = answers(path)
    fork_server.start(["gpu_utils.cli", *modules])  # it imports torch while this process does

    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from gpu_utils.grading import check as engine
    from gpu_utils.grading.sandbox import run_apart
    from gpu_utils.ui.notebook import record
    from gpu_utils.ui.report import report_text

    passed = 0
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, transient=True) as bar:
        task = bar.add_task("starting", total=len(chosen))
        for exercise in map(exercises.find, chosen):
            bar.update(task, description=f"checking {exercise.id}")
            answer = found.find(exercise.id)
            if answer is None:
                report = engine.missing_answer(exercise)
            elif answer.error or found.broken:
                report = engine.unreadable_answer(exercise, answer.error or found.broken)
            else:
                runner = run_apart(found.program(answer), exercises.find)
                report = record(engine.check(exercise, None, runner=runner))
                report = replace(report, notes=(*report.notes, *([answer.note] if answer.note else [])))
            passed += report.passed
            bar.console.print(report_text(report), markup=False, highlight=False, soft_wrap=True)
    typer.echo(f"{passed} of {len(chosen)} exercises passed.")
    raise typer.Exit(0 if passed == len(chosen) else 1)


def hint(
    exercise_id: Annotated[str, typer.Argument(metavar="EXERCISE", help="For example 00.saxpy.")],
    strength: Annotated[
        int | None, typer.Option(min=1, max=3, help="1 is the gentlest; default: the next one.")
    ] = None,
) -> None:
    """Show the next of an exercise's three hints.

    Example: ./w2w hint 00.saxpy
    """
    from gpu_utils import exercises
    from gpu_utils.course.paths import course
    from gpu_utils.errors import BadArgument
    from gpu_utils.ui.guide import hint as show

    if "." not in exercise_id:
        known = exercises.ids(course().find(exercise_id).number)
        raise BadArgument(f"a hint is for one exercise; of unit {exercise_id} there are {', '.join(known)}")
    typer.echo(repr(show(exercise_id, strength)))


def status() -> None:
    """Show where you stand: every exercise, passed or not, and where that is stored.

    Example: ./w2w status
    """
    from gpu_utils.folders import data_folder
    from gpu_utils.ui.guide import progress

    found = progress()
    typer.echo(repr(found))
    typer.echo(f"Stored in {data_folder()}")
    raise typer.Exit(1 if found.note else 0)
