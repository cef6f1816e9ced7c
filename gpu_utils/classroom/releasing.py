"""Making a release: the notebooks that a class gets, and the record of what they are worth and when they are due.

    DIR/00_start.ipynb             for students: the lab, with no answers in it
    DIR/README.txt                 for students
    DIR/release.json               for `w2w grade`
    DIR/nbgrader/                  a course folder for nbgrader, with its settings and source/00_start/00_start.ipynb

The release's id is a hash of the labs and of the course's version: what students get. Points, due times and the late
policy are not part of it, so that two releases of the same labs take each other's hand-ins.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import gpu_utils
from gpu_utils import exercises
from gpu_utils.classroom.hosted import first_cell, origin
from gpu_utils.classroom.nbgrader_course import CHECK, CONFIG, cell_metadata
from gpu_utils.classroom.records import Late, Release
from gpu_utils.course.build import as_text, render
from gpu_utils.course.files import write_atomically
from gpu_utils.course.paths import Course
from gpu_utils.course.units import Unit
from gpu_utils.errors import ClassroomError

RECORD = "release.json"
NBGRADER = "nbgrader"

_README = """\
Warp to Wavefront, release {id}: {notebooks}

How to work on these notebooks
  1. Get the course: git clone {address}
  2. Put the notebooks into a folder of your own inside of the course's folder `work`, for example work/class.
  3. In the course's folder run ./w2w study, and open them from the file browser there.
  On a hosted notebook (Colab, Kaggle) open one and run its first cell: it fetches the course.

What to do
  Replace each `# YOUR CODE` by your answer and run the check below it. Leave the tags of the cells as they are.
  A check runs public cases, and some that are drawn anew each time; grading draws cases of its own.
  To run the checks as grading does, each answer in a process of its own:
  ./w2w check {first.number} --notebook work/class/{first.name}.ipynb

What to hand in
  The notebook itself, saved, as an .ipynb file. Graded is what stands in the answer cells, with the functions, classes,
  imports and values of your other cells that it needs. Nothing of your outputs is read.
{due}"""


@dataclass(frozen=True)
class Written:
    """What came of writing a release.

    made  files that were written
    kept  files that were there with other content than the release's, and stay: somebody changed them
    """

    made: tuple[Path, ...]
    kept: tuple[Path, ...]


def plan(
    course: Course, units: Sequence[Unit], points: Mapping[str, float], due: Mapping[str, datetime], late: Late
) -> Release:
    """The record of a release of these units. Raises ContentError where a lab cannot be built."""
    made_from = [gpu_utils.__version__, *(render(course, unit, "lab") for unit in units)]
    digest = hashlib.sha256(json.dumps(made_from).encode()).hexdigest()[:12]
    numbers = tuple(unit.number for unit in units)
    worth = {name: points.get(name, 1.0) for number in numbers for name in exercises.ids(number)}
    return Release(digest, numbers, worth, due, late, gpu_utils.__version__)


def write(course: Course, release: Release, folder: Path) -> Written:
    """Write a release into a folder that is empty, missing, or holds this very release already.

    Nothing that is there is overwritten. Raises ClassroomError, with nothing written, for any other folder.
    """
    _refuse_others(release, folder)
    made, kept = [], []
    for path, text in _files(course, release).items():
        target, data = folder / path, text.encode()
        if not os.path.lexists(target):
            write_atomically(target, data)
            made.append(target)
        elif not target.is_file() or target.read_bytes() != data:
            kept.append(target)
    return Written(tuple(made), tuple(kept))


def _refuse_others(release: Release, folder: Path) -> None:
    if not os.path.lexists(folder):
        return
    if not folder.is_dir():
        raise ClassroomError(f"{folder} is a file; name a folder for the release with --out")
    record = folder / RECORD
    if not record.exists():
        if held := sorted(path.name for path in folder.iterdir()):
            raise ClassroomError(
                f"{folder} holds other files ({held[0]}) and no {RECORD}; name an empty folder with --out"
            )
    elif (found := Release.read(record)) != release:
        what = f"release {found.id}" if found.id != release.id else "this release with other points or times"
        raise ClassroomError(f"{folder} holds {what} and stays as it is; name another folder with --out")


def _files(course: Course, release: Release) -> dict[str, str]:
    """Path in the release's folder -> text; the record first, so that a write that was stopped can be taken up."""
    units = [course.find(number) for number in release.units]
    address, commit = origin(course.root)
    files = {RECORD: release.as_json()}
    for unit in units:
        lab = render(course, unit, "lab")
        first = first_cell(address, commit, clang="#error" in lab)
        files[f"{unit.name}.ipynb"] = _notebook(lab, release, first, raising=False)
        files[f"{NBGRADER}/source/{unit.name}/{unit.name}.ipynb"] = _notebook(lab, release, first, raising=True)
    names = ", ".join(f"{unit.name}.ipynb" for unit in units)
    due = "".join(
        f"  Unit {unit} is due {when:%A %d %B %Y %H:%M} (UTC{when:%z}).\n" for unit, when in release.due.items()
    )
    place = address or "(ask for the address of the course's repository)"
    files["README.txt"] = _README.format(id=release.id, notebooks=names, address=place, first=units[0], due=due)
    files[f"{NBGRADER}/nbgrader_config.py"] = CONFIG
    return files


def _notebook(lab: str, release: Release, first: str, raising: bool) -> str:
    """The text of a released notebook; `raising` is for nbgrader, whose check cells must raise."""
    notebook: dict[str, Any] = json.loads(lab)
    for role, exercise, cell in _exercise_cells(notebook):
        cell["metadata"]["nbgrader"] = cell_metadata(role, exercise, release.worth(exercise))
        if role == "check" and raising:
            cell["source"] = CHECK.format(exercise=exercise).splitlines(keepends=True)
    hosted: dict[str, Any] = {
        "cell_type": "code",
        "execution_count": None,
        "id": "w2w-hosted",
        "metadata": {},
        "outputs": [],
        "source": first.splitlines(keepends=True),
    }
    notebook["cells"].insert(0, hosted)
    notebook["metadata"]["w2w"]["release"] = release.id
    return as_text(notebook)


def _exercise_cells(notebook: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Role, exercise and cell of every answer and check."""
    for cell in notebook["cells"]:
        if found := cell["metadata"].get("w2w"):
            yield found["role"], found["exercise"], cell
