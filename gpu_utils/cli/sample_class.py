"""`w2w sample-class`: a made class to try grading with."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from gpu_utils.classroom import sample
from gpu_utils.command import w2w
from gpu_utils.course.paths import course


def sample_class(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that does not exist yet.")],
    students: Annotated[int, typer.Option(min=1, max=10_000, help="How many.")] = 30,
    units: Annotated[str, typer.Option(help="Their numbers, with commas: 00,01")] = "00",
) -> None:
    """Make a class of invented students, what they handed in, and the marks that grading must give.

    Example: ./w2w sample-class build/class --students 30 --units 00,01
    """
    here = course()
    numbers = [here.find(unit).number for unit in units.split(",")]
    marks = sample.make(folder, here, students, numbers)
    found = Counter(mark.status for mark in marks)
    said = ", ".join(f"{number} {status}" for status, number in found.most_common())
    show = Console(soft_wrap=True, highlight=False).print
    show(f"{folder}: {students} students, {len(marks)} answers: {said}", markup=False)
    options = f"--release {folder}/release.json --roster {folder}/roster.csv --out {folder}/gradebook"
    grade = w2w(f"grade {folder}/handed_in {options}")
    show(f"`{grade}` grades it; {folder}/expected.csv has the marks that must come out", markup=False)
