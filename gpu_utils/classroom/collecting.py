"""From what students handed in to Submissions: one for each student and unit, in whatever form it came.

`gpu_utils.classroom.archives` finds the files, `layouts` says whose they are, `roster` who is in the class. Here one
file is chosen for each student and unit, and what is wrong becomes the row's `problem`, or one of its `notes`:

- Of several files the latest counts: by the number in its name, by its number in Canvas, by its time, by its name.
  A file that could not be read at all counts only where there is no other.
- The unit is the one in the notebook's metadata, else the one that most of its exercises' tags name, else the one that
  the names of file and folders speak of, else, where only one is collected, that one.
- Somebody who is not on the roster is graded, and noted. Somebody on it who handed in nothing has a row that says so.
- Two students with the same bytes are both graded, and noted.

Nothing of one student's can change another's row, apart from the note that their files are the same. The places are
read twice: once to choose, once for the content, of which no more than one file's is held at a time.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from gpu_utils.classroom import archives
from gpu_utils.classroom.archives import File
from gpu_utils.classroom.layouts import IS_NOTEBOOK, Entry, attempt, entries, layout_of, stem, unit_in
from gpu_utils.classroom.records import Submission
from gpu_utils.classroom.roster import Roster
from gpu_utils.course.units import UNITS
from gpu_utils.errors import ClassroomError, NotebookUnreadable
from gpu_utils.grading.notebook import notebook_in

TIMESTAMP = "timestamp.txt"
_UNIT = re.compile(rb'"w2w"\s*:\s*\{[^{}]*?"unit"\s*:\s*"(\d\d)_')
_RELEASE = re.compile(rb'"w2w"\s*:\s*\{[^{}]*?"release"\s*:\s*"([^"\\]{1,80})"')
_TAG = re.compile(rb'"(\d\d)\.\w{1,60}"')
_NUMBERS = {unit.number for unit in UNITS}
_NAMED_ALIKE = 3
_LONGEST_LIST = 5


@dataclass(frozen=True)
class _Seen:
    """What the first pass keeps of a file's content."""

    digest: str
    unit: str
    when: datetime | None = None  # of a timestamp.txt
    release: str = ""


@dataclass(frozen=True)
class _Candidate:
    file: File
    entry: Entry
    seen: _Seen | None
    unit: str
    how: str  # the unit was found; "" when the notebook says it itself
    when: datetime | None
    rank: tuple[object, ...]


@dataclass(frozen=True)
class _Person:
    student: str
    name: str
    note: str


class Collection:
    """What was found in some places: `len` of it are the rows, iterating over it yields them as Submissions.

    skipped  what was no hand-in, and how many: {"files of systems and editors": 12, ...}
    """

    def __init__(
        self,
        places: Sequence[Path],
        units: Sequence[str] | None = None,
        roster: Roster | None = None,
        pattern: str | None = None,
    ) -> None:
        self._units = tuple(units or ())
        self._roster = roster
        self._pattern = _compiled(pattern)
        self._seen: dict[File, _Seen] = {}
        self.skipped: Counter[str] = Counter()
        found: dict[str, list[_Candidate]] = defaultdict(list)
        self._people: dict[str, _Person] = {}
        for place in places:
            if not place.exists():
                raise ClassroomError(
                    f"there is no {place}; expected a folder, a notebook or a zip of what was handed in"
                )
            for entry in self._entries(self._read(place)):
                person, candidates = self._candidates(entry)
                if person is not None:
                    self._people.setdefault(person.student, person)
                    found[person.student] += candidates
        for student in roster.students if roster else ():
            self._people.setdefault(student.id, _Person(student.id, student.name, ""))
        self._rows = [row for student in sorted(self._people) for row in self._rows_of(student, found[student])]
        self._alike = _alike(self._rows)
        del self._seen

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def releases(self) -> Counter[str]:
        """Ids of the releases that the hand-ins say they are of, and how many; those that say none are left out."""
        seen = (candidate.seen for _, candidate in self._rows if candidate is not None)
        return Counter(one.release for one in seen if one is not None and one.release)

    @property
    def is_of_files(self) -> bool:
        """Whether anybody handed in anything that is a row."""
        return any(candidate is not None for _, candidate in self._rows)

    def __iter__(self) -> Iterator[Submission]:
        contents = archives.Contents()
        try:
            for row, candidate in self._rows:
                yield self._filled(row, candidate, contents)
        finally:
            contents.close()

    # --- the first pass ---

    def _read(self, place: Path) -> list[File]:
        """The files of a place that matter; what is kept of their content goes into `_seen`."""
        kept = []
        for file, content in archives.files_below(place, _is_wanted):
            if archives.is_of_systems(file):
                self.skipped["files of systems and editors"] += 1
                continue
            kept.append(file)
            if _is_wanted(file.name) and not file.problem:
                self._seen[file] = _look(file, content)
        return kept

    def _entries(self, files: Sequence[File]) -> Iterator[Entry]:
        """The entries of a place, or what the teacher's pattern says of each file."""
        if self._pattern is None:
            yield from entries(files)
            return
        others = []
        for file in files:
            said = self._pattern.search("/".join(file.trail))
            groups = said.groupdict() if said else {}
            if groups.get("student"):
                unit, name = groups.get("unit") or "", groups.get("name") or ""
                yield Entry(groups["student"], len(file.trail) - 1, [file], name=name, unit=unit_in(unit))
            else:
                others.append(file)
        yield from entries(others)

    def _candidates(self, entry: Entry) -> tuple[_Person | None, list[_Candidate]]:
        """Whose an entry is, and what of it may count; nobody's, where it is no hand-in at all."""
        if entry.label == archives.OUTSIDE:
            self.skipped["names that lead out of an archive"] += len(entry.files)
            return None, []
        offered = [file for file in entry.files if IS_NOTEBOOK.search(file.name) or file.problem]
        others = [file for file in entry.files if file not in offered and file.name != TIMESTAMP]
        is_loose = len(entry.files) == 1 and len(entry.files[0].trail) == entry.at + 1
        person = self._person(entry)
        if not offered and is_loose and not (entry.layout or unit_in(entry.label) or self._is_listed(person.student)):
            self.skipped["files that are no notebooks"] += len(entry.files)
            return None, []
        if not offered and others:
            offered = [replace(others[0], problem=_no_notebook(others))]
        elif others:
            self.skipped["files that are no notebooks"] += len(others)
        in_nbgrader = "submitted" in entry.files[0].trail[: entry.at]  # elsewhere a student may have written it
        stamps = {
            file.trail[:-1]: self._seen[file].when
            for file in entry.files
            if in_nbgrader and file in self._seen and file.name == TIMESTAMP
        }
        return person, [self._candidate(file, entry, stamps) for file in offered]

    def _is_listed(self, student: str) -> bool:
        return self._roster is not None and self._roster.find(student) is not None

    def _person(self, entry: Entry) -> _Person:
        """Who it is, noted where it may be several."""
        person = self._named(entry)
        inside = {file.trail[entry.at + 1] for file in entry.files if len(file.trail) > entry.at + 1}
        several = [layout[0].system for layout in map(layout_of, sorted(inside)) if layout]
        if entry.layout is None and len(several) > 1:
            note = f"holds {len(several)} entries named as {several[0]} names students; grade it by itself if they are"
            return replace(person, note="; ".join(filter(None, (person.note, note))))
        return person

    def _named(self, entry: Entry) -> _Person:
        """Who the roster says it is, else what the entry says."""
        if self._roster is None:
            return _Person(entry.student, entry.name, "")
        if entry.layout and entry.layout.system == "Moodle":
            listed = self._roster.find(f"Participant {entry.student}") or self._roster.find(entry.name)
        elif entry.layout:
            listed = self._roster.find(entry.student) or self._roster.find(entry.name)
        else:
            named = self._roster.named_in(stem(entry.label))
            listed = self._roster.find(entry.student) or (named[0] if len(named) == 1 else None)
            if listed is None and named:
                fits = " and ".join(student.id for student in named)
                return _Person(
                    entry.student, entry.name, f"its name fits {fits} of the roster, so it is nobody's of them"
                )
        if listed is None:
            return _Person(entry.student, entry.name, "not on the roster")
        return _Person(listed.id, listed.name or entry.name, "")

    def _candidate(self, file: File, entry: Entry, stamps: Mapping[tuple[str, ...], datetime | None]) -> _Candidate:
        seen = self._seen.get(file)
        unit, how = self._unit(file, entry, seen.unit if seen else "")
        given = file.time(entry.at) if entry.layout is None or entry.layout.is_dated else None
        when = stamps.get(file.trail[:-1]) or given
        last = file.times[-1][1] if file.times else None
        rank = (
            not file.problem,
            attempt(file, entry),
            entry.order,
            *map(_seconds, (when, last)),
            file.trail,
            file.members,
        )
        return _Candidate(file, entry, seen, unit, how, when, rank)

    def _unit(self, file: File, entry: Entry, said: str) -> tuple[str, str]:
        """The unit of a file, and how it was found when the file does not say it."""
        if said:
            return said, ""
        for unit in (entry.unit, *map(unit_in, reversed(file.trail))):
            if unit:
                return unit, f"unit {unit} by its name"
        if len(self._units) == 1 and IS_NOTEBOOK.search(file.name):
            return self._units[0], f"nothing says of which unit it is; taken as {self._units[0]}"
        return "", ""

    # --- one row for each student and unit ---

    def _rows_of(self, student: str, found: Sequence[_Candidate]) -> Iterator[tuple[Submission, _Candidate | None]]:
        person = self._people[student]
        notes = (person.note,) if person.note else ()
        by_unit: dict[str, list[_Candidate]] = defaultdict(list)
        for candidate in found:
            by_unit[candidate.unit].append(candidate)
        for unit in self._units or sorted(filter(None, by_unit)) or [""]:
            row = Submission(student, unit, "", name=person.name, notes=notes)
            unread = [candidate for candidate in by_unit[""] if candidate.file.problem]
            offered = [*by_unit[unit], *unread] if unit and by_unit[unit] else by_unit[""]
            if offered:
                yield _chosen(row, offered)
            else:
                yield replace(row, problem=_nothing(unit, found), source=_sources(found)), None

    def _filled(self, row: Submission, candidate: _Candidate | None, contents: archives.Contents) -> Submission:
        """The row with the notebook's bytes, or with what is wrong with them."""
        if candidate is None or row.problem:
            return row
        others = [student for student in self._alike.get((row.unit, row.digest), ()) if student != row.student]
        if others:
            row = replace(row, notes=(*row.notes, f"byte for byte the same file as {_some(others)} handed in"))
        content = contents.of(candidate.file)
        if hashlib.sha256(content).hexdigest() != row.digest:
            return replace(row, problem=f"{row.source} has changed while it was read; collect again")
        try:
            notebook_in(content, row.source)
        except NotebookUnreadable as error:
            return replace(row, problem=" ".join(str(error).split()))
        return replace(row, content=content)


def collect(
    places: Sequence[Path],
    units: Sequence[str] | None = None,
    roster: Roster | None = None,
    pattern: str | None = None,
) -> Iterator[Submission]:
    """A Submission for each student and unit, in order; `Collection` knows how many, and what was skipped.

    places   folders, archives, notebooks
    units    numbers: everybody has a row for each. None: a row for each unit that somebody handed in
    roster   who is in the class; None: whoever handed something in
    pattern  a regular expression with the group `student`, and if wanted `unit` and `name`, looked for in the path of
             each file from the place's name on, with / between; files without it are taken by their names

    Raises ClassroomError for a place that does not exist and for a pattern that is none. One bad file never raises: it
    is a row with its `problem`.
    """
    return iter(Collection(places, units, roster, pattern))


def _compiled(pattern: str | None) -> re.Pattern[str] | None:
    try:
        found = re.compile(pattern) if pattern else None
    except re.error as error:
        raise ClassroomError(f"the pattern {pattern!r} is no regular expression: {error}") from None
    if found and "student" not in found.groupindex:
        raise ClassroomError(f"the pattern {pattern!r} has no group named student; write (?P<student>...) in it")
    return found


def _is_wanted(name: str) -> bool:
    return bool(IS_NOTEBOOK.search(name)) or name == TIMESTAMP


def _look(file: File, content: bytes) -> _Seen:
    """What is kept of a file. The unit is found without parsing the JSON, in whose strings a quote is \\"."""
    if file.name == TIMESTAMP:
        return _Seen("", "", _stamp(content))
    said = [unit.decode() for unit in _UNIT.findall(content)[-1:]]
    tags = Counter(unit.decode() for unit in _TAG.findall(content))
    known = [unit for unit in [*said, *(unit for unit, _ in tags.most_common())] if unit in _NUMBERS]
    releases = [found.decode("utf-8", "replace") for found in _RELEASE.findall(content)[-1:]]
    return _Seen(hashlib.sha256(content).hexdigest(), known[0] if known else "", None, *releases)


def _stamp(content: bytes) -> datetime | None:
    """The time in nbgrader's timestamp.txt: 2026-03-01 17:58:23.948203 UTC."""
    try:
        when = datetime.fromisoformat(content[:100].decode().strip().removesuffix(" UTC"))
    except ValueError:
        return None
    return when if when.tzinfo else when.replace(tzinfo=UTC)


def _chosen(row: Submission, offered: Sequence[_Candidate]) -> tuple[Submission, _Candidate]:
    """The row of the candidate that counts, without its content."""
    *others, best = sorted(offered, key=lambda candidate: candidate.rank)
    notes = [*row.notes, *([best.how] if best.how else [])]
    if others:
        notes.append(f"{len(offered)} files: {best.file.source} counts, not {_some([c.file.source for c in others])}")
        notes += [other.file.problem for other in others if other.file.problem][:_LONGEST_LIST]
    if best.entry.late:
        notes.append("handed in late, as its name says")
    digest = best.seen.digest if best.seen else hashlib.sha256(best.file.problem.encode()).hexdigest()
    return replace(
        row,
        source=best.file.source,
        name=row.name or best.entry.name,
        digest=digest,
        handed_in=best.when,
        problem=best.file.problem or ("" if row.unit else f"{best.file.source} does not say of which unit it is"),
        notes=tuple(notes),
    ), best


def _nothing(unit: str, found: Sequence[_Candidate]) -> str:
    of_unit = f" for unit {unit}" if unit else ""
    others = sorted({candidate.unit for candidate in found})
    also = (
        f"; there is {_some([candidate.file.source for candidate in found])} of unit {', '.join(others)}"
        if found
        else ""
    )
    return f"handed in nothing{of_unit}{also}"


def _no_notebook(others: Sequence[File]) -> str:
    return (
        f"handed in {_some([file.source for file in others])}, and no notebook; expected a file that ends with .ipynb"
    )


def _sources(found: Sequence[_Candidate]) -> str:
    return found[0].file.source if found else ""


def _some(names: Sequence[str]) -> str:
    """A few of many names: "a, b and 57 more"."""
    shown = ", ".join(names[:_NAMED_ALIKE])
    return shown if len(names) <= _NAMED_ALIKE else f"{shown} and {len(names) - _NAMED_ALIKE} more"


def _alike(rows: Iterable[tuple[Submission, _Candidate | None]]) -> dict[tuple[str, str], list[str]]:
    """(unit, digest) -> the students who handed in these bytes."""
    students: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row, _ in rows:
        if row.digest and not row.problem:
            students[row.unit, row.digest].append(row.student)
    return students


def _seconds(when: datetime | None) -> float:
    return when.timestamp() if when else 0.0
