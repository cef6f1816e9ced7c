"""The learner's own copies below work/: made once, never overwritten, and followed where nothing in them was changed.

    work/00_start.ipynb            a lab
    work/lessons/00_start.ipynb    its lesson
    work/03_porting_to_rocm/       files that learners edit or name on a command line, from the unit's folder files/
    work/AGENTS.md                 for a learner's AI assistant

A copy of a notebook holds, in its metadata, a hash of the sources of its cells as they were made. While its cells still
have that hash, an update of the course replaces it; outputs and empty cells do not count. A copy without the hash, of
an earlier version of the course, stays as it is. For other files the hashes lie in work/.made.json.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_utils.course.build import as_text, render
from gpu_utils.course.files import write_atomically, write_new
from gpu_utils.course.paths import GENERATED, Course
from gpu_utils.course.units import UNITS, Unit

ASSISTANTS = Path(__file__).with_name("AGENTS.md")
_LINK = re.compile(r"\]\((?P<path>\.\./[^)\s#]+)(?P<rest>#[^)\s]*)?\)")


@dataclass(frozen=True)
class Copy:
    """One notebook of the learner. outdated: the course has a newer one, and this one was changed, so it was kept."""

    unit: Unit
    kind: str
    path: Path
    outdated: bool


def make_all(course: Course) -> list[Copy]:
    """Makes what is missing below work/, follows what nobody changed, and returns the notebooks, in order.

    Raises CannotWrite and ContentError.
    """
    copies = []
    for unit in course.written():
        copies += [make(course, unit, kind) for kind in kinds(course, unit)]
        make_files(course, unit)
    if not os.path.lexists(course.work / ASSISTANTS.name):
        write_new(course.work / ASSISTANTS.name, ASSISTANTS.read_bytes())
    with contextlib.suppress(OSError):  # so that ./w2w is found in a terminal of JupyterLab, too
        (course.work / "w2w").symlink_to(Path("..", "w2w"))
    return copies


def kinds(course: Course, unit: Unit) -> list[str]:
    """The kinds of notebook that a learner has of this unit: "lesson", "lab"."""
    return [kind for kind in ("lesson", "lab") if course.source(unit, kind).is_file()]


def make(course: Course, unit: Unit, kind: str) -> Copy:
    """Makes or follows one notebook: "lesson" or "lab"."""
    path = course.copy(unit, kind)
    return Copy(unit, kind, path, follow(path, notebook(course, unit, kind)) == "outdated")


def follow(path: Path, wanted: dict[str, Any], outputs: bool = False) -> str:
    """Writes a notebook where there is none, or one that nobody changed; says what came of it.

    "made"; "updated"; "same": there is nothing newer; "kept": it is the learner's, or cannot be read; "outdated": it
    is the learner's, and was made from another notebook than the wanted one. With `outputs` a notebook that nobody
    changed is written also when only its outputs would differ.
    """
    latest = wanted["metadata"]["w2w"]["sources"]
    if not os.path.lexists(path):
        write_new(path, as_text(wanted).encode())
        return "made"
    try:
        found = json.loads(path.read_bytes())
        made_from, now = found["metadata"].get("w2w", {}).get("sources"), sources_hash(found)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return "kept"
    if now in (made_from, latest):
        if now == latest and not outputs:
            return "same"
        write_atomically(path, as_text(wanted).encode())
        return "updated"
    return "kept" if made_from in (None, latest) else "outdated"


def notebook(course: Course, unit: Unit, kind: str) -> dict[str, Any]:
    """The untouched lesson or lab as it lies below work/: its links lead to copies, and it knows its hash."""
    made = json.loads(render(course, unit, kind))
    folder = course.relative(course.copy(unit, kind).parent)
    for cell in made["cells"]:
        if cell["cell_type"] == "markdown":
            cell["source"] = relinked("".join(cell["source"]), GENERATED[kind], folder).splitlines(keepends=True)
    ways = " · ".join(_ways(course, unit, kind))
    made["cells"] = [_markdown("w2w-top", ways), *made["cells"], _markdown("w2w-end", ways)]
    return stamped(made)


def stamped(made: dict[str, Any]) -> dict[str, Any]:
    """The notebook with the hash of its sources in its metadata."""
    made["metadata"].setdefault("w2w", {})["sources"] = sources_hash(made)
    return made


def sources_hash(found: dict[str, Any]) -> str:
    """A hash of types and sources of the cells; empty cells, outputs and metadata do not count."""
    cells = [(cell["cell_type"], "".join(cell["source"])) for cell in found["cells"]]
    return hashlib.sha256(json.dumps([cell for cell in cells if cell[1].strip()]).encode()).hexdigest()[:16]


def relinked(text: str, before: str, after: str) -> str:
    """Markdown whose links start in the folder `before`, for the folder `after`; both count from the root.

    Links to generated lessons and labs lead to the learner's copies of them.

    >>> relinked("[lab 00](../labs/00_start.ipynb)", "notebooks", "work/lessons")
    '[lab 00](../00_start.ipynb)'
    """

    def moved(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(before, link["path"]))
        target = re.sub(rf"^{GENERATED['lesson']}/", "work/lessons/", target)
        target = re.sub(rf"^{GENERATED['lab']}/", "work/", target)
        return f"]({posixpath.relpath(target, after)}{link['rest'] or ''})"

    return _LINK.sub(moved, text)


def _ways(course: Course, unit: Unit, kind: str) -> Iterator[str]:
    """Links from a copy: home, the lesson's lab or the lab's lesson, and the next lesson from a lab."""
    here = course.copy(unit, kind).parent

    def link(words: str, path: Path) -> str:
        return f"[{words}]({Path(os.path.relpath(path, here)).as_posix()})"

    yield link("Home", course.home)
    for other in kinds(course, unit):
        words = f"{other.capitalize()} {unit.number}"
        yield words if other == kind else link(words, course.copy(unit, other))
    following = UNITS[UNITS.index(unit) + 1 :][:1]
    if kind == "lab" and following and "lesson" in kinds(course, following[0]):
        yield link(f"Next: lesson {following[0].number}", course.copy(following[0], "lesson"))


def _markdown(identity: str, text: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "id": identity, "metadata": {}, "source": [text]}


def make_files(course: Course, unit: Unit) -> None:
    """Copies the unit's files for learners to work/NN_name/, under the same rule as notebooks."""
    record = course.work / ".made.json"
    try:
        hashes = dict(json.loads(record.read_bytes()))
    except (OSError, ValueError, TypeError):
        hashes = {}
    before = dict(hashes)
    files = course.material(unit) / "files"
    for source in sorted(path for path in files.rglob("*") if path.is_file() and "__pycache__" not in path.parts):
        copy = course.work / unit.name / source.relative_to(files)
        name, latest = course.relative(copy), hashlib.sha256(source.read_bytes()).hexdigest()
        if not os.path.lexists(copy):
            write_new(copy, source.read_bytes())
        elif not copy.is_file() or hashlib.sha256(copy.read_bytes()).hexdigest() != hashes.get(name):
            continue  # the learner changed it
        elif latest != hashes[name]:
            write_atomically(copy, source.read_bytes())
        hashes[name] = latest
    if hashes != before:
        write_atomically(record, json.dumps(hashes, indent=1, sort_keys=True).encode())
