"""The commands grade and regrade: a class, graded inside of walls."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from gpu_utils.classroom.batch import How
    from gpu_utils.classroom.book import Book
    from gpu_utils.classroom.collecting import Collection
    from gpu_utils.classroom.records import Release, Result

_Workers = Annotated[
    int, typer.Option("--workers", min=1, help="Answers graded at a time; default: one for each core.")
]
_Scheduler = Annotated[str, typer.Option("--scheduler", help="tcp://... of a scheduler of dask, whose workers grade.")]
_Backend = Annotated[
    list[str] | None, typer.Option("--backend", help="gpu, virtual:gfx942 ...; default: those an exercise names.")
]
_Unsafe = Annotated[
    bool, typer.Option("--unsafe-no-sandbox", help="Run answers with your own rights; every report will say so.")
]


def grade(
    places: Annotated[list[Path], typer.Argument(metavar="PLACE...", help="Folders, notebooks, zips in any layout.")],
    out: Annotated[Path, typer.Option("--out", help="The gradebook's folder; a rerun goes on with it.")],
    release: Annotated[Path | None, typer.Option("--release", help="The release.json of w2w release.")] = None,
    roster: Annotated[Path | None, typer.Option("--roster", help="A CSV of the class: id, name, email.")] = None,
    pattern: Annotated[
        str, typer.Option("--pattern", help="A regular expression for paths, with a group (?P<student>...).")
    ] = "",
    unit: Annotated[list[str] | None, typer.Option("--unit", help="Only this unit; may be repeated.")] = None,
    seed_file: Annotated[Path | None, typer.Option("--seed-file", help="A seed of another gradebook.")] = None,
    workers: _Workers = os.cpu_count() or 1,
    scheduler: _Scheduler = "",
    backend: _Backend = None,
    unsafe: _Unsafe = False,
) -> None:
    """Grade what a class handed in; each row is stored as soon as it is known, and a rerun grades what has changed.

    Example: ./w2w grade handed_in --release spring/release.json --roster roster.csv --out gradebook
    """
    from gpu_utils.classroom.batch import How
    from gpu_utils.classroom.book import Book
    from gpu_utils.errors import ClassroomError

    how = How(workers, scheduler, tuple(backend or ()), not unsafe)
    told = {
        "places": [str(place.absolute()) for place in places],
        "roster": str(roster.absolute()) if roster else "",
        "pattern": pattern,
        "units": _numbers(unit or []),
    }
    chosen = _release(out, release, places)
    told["units"] = told["units"] or list(chosen.units if chosen else ())
    found = _collection(told)
    if not found.is_of_files:
        what = f"of unit {' or '.join(told['units'])} " if told["units"] else ""
        raise ClassroomError(f"nothing that was handed in {what}lies in {', '.join(map(str, places))}")
    chosen = chosen or _of_all(found)
    book = Book(out, make=True)
    book.secret(seed_file)
    book.take_release(chosen)
    book.keep_places(told)
    _run(book, chosen, found, how, again=False, keep=book.put_result)


def regrade(
    folder: Annotated[Path, typer.Argument(metavar="GRADEBOOK", help="The folder that w2w grade made.")],
    workers: _Workers = os.cpu_count() or 1,
    scheduler: _Scheduler = "",
    unsafe: _Unsafe = False,
) -> None:
    """Grade everything of a gradebook once more, with the same cases, and say which marks are other ones now.

    Exits with 1 when a mark has changed. The rows are those of the new run.
    Example: ./w2w regrade gradebook
    """
    from gpu_utils.classroom.batch import How
    from gpu_utils.classroom.book import Book

    book = Book(folder)
    before = {(row.student, row.exercise): row for row in book.results()}
    changed: list[tuple[Result, Result]] = []

    def keep(result: Result) -> None:
        old = before.get((result.student, result.exercise))
        if old is not None and _told(old) != _told(result):
            changed.append((old, result))
        book.put_result(result)

    _run(book, book.release(), _collection(book.places()), How(workers, scheduler, (), not unsafe), True, keep)
    for old, new in sorted(changed, key=lambda pair: (pair[0].student, pair[0].exercise)):
        typer.echo(f"{new.student} {new.exercise}: {old.status} {old.points:g} -> {new.status} {new.points:g}")
    typer.echo(f"{len(changed)} of {len(before)} marks have changed.")
    raise typer.Exit(1 if changed else 0)


def _told(result: Result) -> tuple[Any, ...]:
    """What a regrade must give again."""
    return result.digest, result.seed, result.status, result.points, result.headline, result.misconception


def _run(
    book: Book, release: Release, found: Collection, how: How, again: bool, keep: Callable[[Result], None]
) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
    from rich.text import Text

    from gpu_utils.classroom.batch import grade as grade_all
    from gpu_utils.classroom.batch import tasks_of
    from gpu_utils.classroom.book import NO_RELEASE
    from gpu_utils.command import w2w
    from gpu_utils.grading.walls import bwrap

    if how.walled and not how.scheduler:
        bwrap.require()
    console = Console(highlight=False, soft_wrap=True)
    if not how.walled:
        console.print(
            "Without a sandbox: answers run with your own rights, and every report says so.", style="bold red"
        )
    total = sum(1 for _ in tasks_of(found, release, book, again))
    statuses: Counter[str] = Counter()

    class Rate(ProgressColumn):
        def render(self, task: Any) -> Text:
            return Text(f"{60 * task.completed / max(1.0, task.elapsed or 0):.0f} a minute")

    says = TextColumn("{task.description}")
    columns = (says, BarColumn(), MofNCompleteColumn(), Rate(), TimeRemainingColumn(elapsed_when_finished=True))
    try:
        with Progress(*columns, console=console) as bar:
            task = bar.add_task("starting", total=total)

            def kept(result: Result) -> None:
                keep(result)
                statuses[result.status] += 1
                bar.update(task, advance=1, description="grading")

            if total:
                grade_all(tasks_of(found, release, book, again), how, kept)
    except KeyboardInterrupt:
        done = statuses.total()
        console.print(f"stopped: {done} of {total} answers are graded and stored; the same command does the others")
        raise typer.Exit(130) from None
    said = ", ".join(f"{count} {status}" for status, count in statuses.most_common())
    console.print(f"{total} answers graded{f': {said}' if said else ''}. Submissions: {len(book.submissions())}.")
    for other, count in found.releases.items():
        if release.id not in (other, NO_RELEASE):
            console.print(f"hand-ins of release {other}, graded as of {release.id}: {count}", markup=False)
    for what, count in found.skipped.items():
        console.print(f"passed over: {count} {what}", markup=False)
    for row in book.submissions():
        if row.problem:
            console.print(f"{row.student} {row.unit}: {row.problem}", markup=False)
    console.print(f"Next: {w2w(f'gradebook {book.folder}')}", markup=False)


def _numbers(units: list[str]) -> list[str]:
    from gpu_utils.course.units import find_unit

    return [find_unit(text).number for text in units]


def _collection(told: dict[str, Any]) -> Collection:
    from gpu_utils.classroom.collecting import Collection
    from gpu_utils.classroom.roster import read_roster

    roster = read_roster(Path(told["roster"])) if told["roster"] else None
    return Collection([Path(place) for place in told["places"]], told["units"] or None, roster, told["pattern"] or None)


def _release(out: Path, given: Path | None, places: list[Path]) -> Release | None:
    """The release that was named, by its file or its folder, that of the book, or one beside what was handed in."""
    from gpu_utils.classroom.book import RELEASE
    from gpu_utils.classroom.records import Release

    if given:
        return Release.read(given / RELEASE if given.is_dir() else given)
    beside = [folder / RELEASE for place in places for folder in (place, place.absolute().parent)]
    path = next((path for path in [out / RELEASE, *beside] if path.is_file()), None)
    return Release.read(path) if path else None


def _of_all(found: Collection) -> Release:
    """Without a release: the units that were handed in, each exercise worth one point, nothing ever late."""
    from gpu_utils import __version__
    from gpu_utils.classroom.book import NO_RELEASE
    from gpu_utils.classroom.records import Release

    units = tuple(sorted({row.unit for row in found if row.unit}))
    return Release(NO_RELEASE, units, course=__version__)
