"""Whose a file is, by its name and the names of the folders and archives that it lies in.

A place is cut into entries: the files, folders and archives that are one student's each. Whose an entry is, its own
name says; what lies deeper was named by the student, and can therefore say nothing about anybody.

| The place | Its entries |
|---|---|
| `anna_00_start.ipynb`, `00_start_ben.ipynb` | the files, or an archive for each |
| `anna/00_start.ipynb`, `anna/work/labs/00_start.ipynb` | the folders |
| `submitted/anna/ps1/00_start.ipynb`, a whole course of nbgrader | the folders in `submitted` |
| `00_start/anna/...`, `submissions/anna/...`, `class.zip` with one folder in it | the folders in that one |
| `group-a/anna/...`, `group-b/ben/...` | the folders in the groups |
| `exampleanna_LATE_12345_67890_00_start-1.ipynb` | the files: Canvas |
| `Anna Example_1234567_assignsubmission_file_/00_start.ipynb` | the folders: Moodle |
| `00_start.ipynb` alone | the folder or the archive that holds it |
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from gpu_utils.classroom.archives import OUTSIDE, File, is_archive
from gpu_utils.course.units import UNITS

IS_NOTEBOOK = re.compile(r"\.ipynb(\.txt|\.json)?$", re.IGNORECASE)


@dataclass(frozen=True)
class Layout:
    """How a system names what it hands to a teacher.

    pattern   of a whole entry's name, with the groups student (its number for them), and optionally name (for people),
              late, order (a later hand-in has a larger one) and file (what the student called it)
    is_dated  whether times of files are those of the hand-in; else they are those of the teacher's download
    source    where this form is written down
    """

    system: str
    pattern: re.Pattern[str]
    is_dated: bool
    source: str


LAYOUTS = (
    Layout(
        "Moodle",
        re.compile(r"(?P<name>[^_]+)_(?P<student>\d+)_assignsubmission_[a-z]+(?:_(?P<file>.*))?", re.DOTALL),
        False,
        "moodle/moodle, mod/assign/feedback/file/importziplib.php: fullname_userid_plugintype_pluginname, before 4.1 "
        "with _ at its end; names hold no _",
    ),
    Layout(
        "Canvas",
        re.compile(r"(?P<name>[^\W_]+)_(?:(?P<late>LATE)_)?(?P<student>\d+)_(?P<order>\d{3,})_(?P<file>.+)", re.DOTALL),
        False,
        "instructure/canvas-lms, lib/content_zipper.rb: name, LATE, user's id, attachment's id, name of the file",
    ),
    Layout(
        "Canvas, anonymous",
        re.compile(r"(?:(?P<late>LATE)_)?anon_(?P<student>[^\W_]+)_(?P<order>\d{3,})_(?P<file>.+)", re.DOTALL),
        False,
        "the same file, where students are anonymous",
    ),
)

_WRAPPERS = {"submitted", "submissions", "submission", "handins", "hand-ins", "hand_ins", "downloads", "labs", "work"}
_COURSE_OF_NBGRADER = {"source", "release", "submitted"}
_NAMES = "|".join(sorted((unit.name for unit in UNITS), key=len, reverse=True))
_NUMBERED = r"(?:unit|lab|week|assignment)[ _-]?(?P<number>\d\d)(?!\d)"
_UNIT = re.compile(rf"(?<![^\W_])(?:(?P<named>{_NAMES})|{_NUMBERED})(?![^\W_])", re.IGNORECASE)
_LEADING = re.compile(r"(?P<number>\d\d)(?=[ _.-]|$)")
_KNOWN = {unit.number for unit in UNITS}
_COPY = re.compile(r"(?:[ _-]?\((?P<browser>\d+)\)|-Copy(?P<jupyter>\d+))$")
_ENDING = re.compile(r"\.(pdf|py|txt|md|html?|json|docx?|odt|png|jpe?g)$", re.IGNORECASE)
_CANVAS_ATTEMPT = re.compile(r"-(\d{1,3})$")


@dataclass(frozen=True)
class Entry:
    """What one student handed in, in one place.

    student  as the entry's name says; name: for people, "" when nothing says it
    label    the entry's whole name, in which a roster's names are looked for; "" when the folder around it had to do
    at       the number of the entry's name in the trails of its files
    unit     as a teacher's pattern says; "" elsewhere
    """

    student: str
    at: int
    files: Sequence[File]
    label: str = ""
    name: str = ""
    layout: Layout | None = None
    late: bool = False
    order: int = 0
    unit: str = ""


def entries(files: Sequence[File]) -> Iterator[Entry]:
    """The entries of a place, whose files begin with its name."""
    itself = [file for file in files if len(file.trail) == 1]  # a notebook, or an archive that could not be read
    below = [file for file in files if len(file.trail) > 1]
    if itself:
        yield from _split(itself, 0, itself[0].on_disk.parent.name)
    if below:
        yield from _split(below, 1, stem(below[0].trail[0]))


def unit_in(text: str) -> str:
    """The number of the unit that a name speaks of, "" for none.

    >>> unit_in("anna_00_start.ipynb"), unit_in("Lab 03 (final).ipynb"), unit_in("02.ipynb"), unit_in("s1234501.ipynb")
    ('00', '03', '02', '')
    """
    for found in [*_UNIT.finditer(text), *filter(None, [_LEADING.match(text)])]:
        number = (found.groupdict().get("named") or found["number"])[:2]
        if number in _KNOWN:
            return number
    return ""


def attempt(file: File, entry: Entry) -> int:
    """The number that a copy's name ends with: 0 for the first, of Canvas `-1`, of a browser ` (1)`."""
    name = stem(file.name)
    if entry.layout and entry.layout.system.startswith("Canvas") and (found := _CANVAS_ATTEMPT.search(name)):
        return int(found[1])
    found = _COPY.search(name)
    return int(found["browser"] or found["jupyter"]) if found else 0


def stem(name: str) -> str:
    """A name without the ending of a notebook or an archive.

    >>> stem("anna.ipynb"), stem("anna.v2.zip"), stem("anna.b")
    ('anna', 'anna.v2', 'anna.b')
    """
    name = IS_NOTEBOOK.sub("", name)
    return name.rpartition(".")[0] or name if is_archive(name) else name


def _left(name: str) -> str:
    """What a name says besides the unit: "anna" of "anna_00_start (1).ipynb", "" of "Lab 00.ipynb"."""
    whole = _ENDING.sub("", stem(name))
    left = _UNIT.sub("", _COPY.sub("", whole))
    return whole if left == whole else left.strip(" _-.")


def _split(files: Sequence[File], at: int, owner: str) -> Iterator[Entry]:
    groups = _groups(files, at)
    if set(groups) >= _COURSE_OF_NBGRADER:
        groups = {"submitted": groups["submitted"]}
    within = {name: _deeper(inside, at) for name, inside in groups.items() if _deeper(inside, at)}
    counting = _counting(files, at)
    sections = _sections(within, at + 1)
    for name, inside in groups.items():
        layout = layout_of(name)
        sole = counting == [name] and _holds_several(within.get(name, []), at + 1)
        if layout is None and name in within and (_is_wrapper(name) or name in sections or sole):
            yield from _split(within[name], at + 1, owner if _is_wrapper(name) else stem(name))
            inside = [file for file in inside if file not in within[name]]
        if inside and layout:
            yield _of_layout(*layout, Entry("", at, inside, name))
        elif inside:
            left = _left(name)
            yield Entry(left or owner, at, inside, name if left else "")


def _deeper(files: Sequence[File], at: int) -> list[File]:
    return [file for file in files if len(file.trail) > at + 1]


def _groups(files: Sequence[File], at: int) -> dict[str, list[File]]:
    ordered = sorted(files, key=lambda file: file.trail[at])
    return {name: list(inside) for name, inside in groupby(ordered, key=lambda file: file.trail[at])}


def layout_of(name: str) -> tuple[Layout, re.Match[str]] | None:
    """The system that names a student's entry so; None for none."""
    matches = ((layout, layout.pattern.fullmatch(name)) for layout in LAYOUTS)
    return next(((layout, match) for layout, match in matches if match), None)


def _of_layout(layout: Layout, match: re.Match[str], entry: Entry) -> Entry:
    said = match.groupdict()
    return replace(
        entry,
        student=said["student"],
        name=said.get("name") or "",
        layout=layout,
        late=bool(said.get("late")),
        order=int(said.get("order") or 0),
    )


def _is_wrapper(name: str) -> bool:
    return not _left(name) or stem(name).casefold() in _WRAPPERS


def _sections(within: dict[str, list[File]], at: int) -> set[str]:
    """The folders that hold two or more folders and nothing else, where most do: groups of a class, not students.

    Folders of the same names in each (day1, day2) are no students' either.
    """
    found = {}
    for name, inside in within.items():
        below = {file.trail[at] for file in inside}
        folders = {file.trail[at] for file in _deeper(inside, at) if not _is_wrapper(file.trail[at])}
        if len(folders) >= 2 and folders == below:
            found[name] = folders
    distinct = len(set().union(*found.values())) > 0.9 * sum(map(len, found.values()))
    return set(found) if len(within) > 1 and len(found) > len(within) / 2 and distinct else set()


def _counting(files: Sequence[File], at: int) -> list[str]:
    """The names at a place that can be students': folders, archives and notebooks, not other files beside them."""
    found = {file.trail[at] for file in files if len(file.trail) > at + 1 or IS_NOTEBOOK.search(file.trail[at])}
    return sorted(found - {OUTSIDE})


def _holds_several(files: Sequence[File], at: int) -> bool:
    """Whether a folder that is alone holds several students' work: several names that are more than a unit's."""
    names = _counting(files, at)
    if any(map(layout_of, names)):
        return True
    if len(names) == 1:
        return _holds_several([file for file in _deeper(files, at) if file.trail[at] == names[0]], at + 1)
    return len(names) > 1 and all(map(_left, names))
