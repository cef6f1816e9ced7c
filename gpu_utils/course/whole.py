"""Which parts of the checkout are as they were when every test passed: their large families may be drawn from.

The tests that try each misconception, right style and kernel are over a thousand and take most of an hour. They depend
on the library and on the exercises of one unit, or on the classroom. `tests/whole.toml` keeps a hash of each part from
the last run of all of them; while a part is unchanged, `w2w test` runs a few of its cases, and all of them again when
it changes.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterable
from pathlib import Path

from gpu_utils.course.cells import parse_cells
from gpu_utils.course.files import write_atomically
from gpu_utils.course.suite import unit_of
from gpu_utils.course.units import UNITS

RECORD = "tests/whole.toml"
LIBRARY = "library"
CLASSROOM = "classroom"
_FILES = (
    *("constraints.txt", "gpu_utils/**/*.py", "gpu_utils/compiler/include/**/*", "gpu_utils/npu/include/**/*"),
    *("tests/content/*.py", "tests/unit/virtual/**/*.py"),
)
_CLASSROOM = ("gpu_utils/classroom/*.py", "tests/unit/classroom/*.py", "tests/fixtures/hostile/*")
_SHOWS_ONLY = (
    "gpu_utils/exercises/u",
    "gpu_utils/lesson.py",
    "gpu_utils/cli/",
    "gpu_utils/ui/",
    "gpu_utils/classroom/",
    "gpu_utils/course/",
    "gpu_utils/profiling/",
    "tests/content/test_u",
)
"""On these no family depends: they show, name or run things, and all of their own tests always run."""

_OF_ONE_UNIT = {"13": ("gpu_utils/profiling/**/*",)}
"""What is in the list above and the exercises of one unit are made of."""

_HEAD = (
    "# What each part was when all of its tests passed. Written by `w2w test --every`, and `--unit NN` for a unit.\n\n"
)


def state(root: Path) -> dict[str, str]:
    """Part -> hash of what its families test: "library", "classroom", and the number of each unit that has a lab."""
    found = {
        LIBRARY: _hash(one for one in _matching(root, _FILES) if not one[0].startswith(_SHOWS_ONLY)),
        CLASSROOM: _hash(_matching(root, _CLASSROOM)),
    }
    for unit in UNITS:
        for lab in root.glob(f"content/{unit.number}_*/lab.py"):
            found[unit.number] = _hash(_of_unit(root, unit.number, lab))
    return found


def parts_of(test: str) -> set[str]:
    """The parts that a case of a family depends on, by its node id; on the library depend all."""
    of_class = {CLASSROOM} if test.startswith("tests/unit/classroom/") else set()
    return of_class | {unit_of(test) or LIBRARY}


def _matching(root: Path, patterns: Iterable[str]) -> Iterable[tuple[str, bytes]]:
    for pattern in patterns:
        for path in root.glob(pattern):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path.relative_to(root).as_posix(), path.read_bytes()


def _of_unit(root: Path, number: str, lab: Path) -> Iterable[tuple[str, bytes]]:
    own = (f"gpu_utils/exercises/u{number}_*/**/*", f"tests/fixtures/*u{number}*", *_OF_ONE_UNIT.get(number, ()))
    yield from _matching(root, own)
    for cell in parse_cells(lab.read_text("utf-8"), lab.name):
        if {"answer", "setup"} & set(cell.tags):
            yield cell.title, cell.source.encode()


def _hash(files: Iterable[tuple[str, bytes]]) -> str:
    digest = hashlib.sha256()
    for name, content in sorted(files):
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]


def recorded(root: Path) -> dict[str, str]:
    """The hashes of the last whole run; none without a record."""
    path = root / RECORD
    return tomllib.loads(path.read_text("utf-8")) if path.is_file() else {}


def changed(root: Path) -> set[str]:
    """The parts of which every test must run: those that changed since, or all where the library did."""
    now, then = state(root), recorded(root)
    different = {part for part in now if now[part] != then.get(part)}
    return set(now) if LIBRARY in different else different


def record(root: Path, parts: Iterable[str] | None = None) -> None:
    """Note that all tests of these parts pass as they are; of every part when None."""
    now = state(root)
    chosen = set(now) if parts is None else set(parts)
    kept = {part: now[part] if part in chosen else recorded(root).get(part, "") for part in now}
    lines = [f'{part if part == LIBRARY else chr(34) + part + chr(34)} = "{value}"\n' for part, value in kept.items()]
    write_atomically(root / RECORD, (_HEAD + "".join(lines)).encode())
