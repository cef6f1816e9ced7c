"""Which tests a change asks for, by a rule that a person can apply.

A file of a unit asks for that unit. A module of the library asks for its own examples, and for every test, and every
unit by its lesson or lab, that imports it, however indirectly. A test asks for itself, and a helper of tests for the
tests that import it. A document asks for the tests that name it. Everything else, and whatever cannot be told, asks for
the whole suite.

A module that imports others by their names, at run time, counts as importing all that lie beside and below it; names
that `gpu_utils` offers are looked up in its table. A test also imports the conftest.py of its folders, and with it what
that imports at its head. A test that starts processes may reach the whole library: it runs after any change of it.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from gpu_utils.command import w2w
from gpu_utils.course.suite import unit_of
from gpu_utils.errors import BadArgument

BASES = ("@{upstream}", "origin/main", "main")
_LIBRARY = "gpu_utils"
_SOURCES = ("gpu_utils/**/*.py", "tests/**/*.py", "content/*/*.py")
_SURFACE, _LAZY = "gpu_utils/__init__.py", "gpu_utils/lazy.py"
_STARTS_PROCESSES = re.compile(r"\b(?:subprocess|sys\.executable|NotebookClient|run_notebooks)\b")
_BY_NAME = re.compile(r"\bimport_module\(|\brunpy\b")


@dataclass(frozen=True)
class Choice:
    """What to run: the units of which everything runs, test files by their path from the root, or all of the suite.

    because  of a choice of everything: the file that led to it
    """

    units: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    because: str = ""

    @property
    def everything(self) -> bool:
        return bool(self.because)


def base(root: Path) -> str:
    """The commit where this branch left the first of BASES that exists; "HEAD" without any.

    Raises BadArgument where git knows no checkout.
    """
    for name in BASES:
        if found := _git(root, "merge-base", "HEAD", name):
            return found[0]
    if not _git(root, "rev-parse", "HEAD"):
        raise BadArgument(f"{root} is no checkout with commits, so git cannot tell what changed; run {w2w('test')}")
    return "HEAD"


def changed_files(root: Path, since: str) -> list[str]:
    """Paths from the root that differ from that commit, or are new. What git ignores does not count."""
    changed = _git(root, "diff", "--name-only", "--no-renames", "--relative", since)
    return sorted({*changed, *_git(root, "ls-files", "--others", "--exclude-standard")})


def _git(root: Path, *arguments: str) -> list[str]:
    """The lines that git prints; none when it fails."""
    done = subprocess.run(["git", "-c", "core.quotePath=false", *arguments], cwd=root, capture_output=True, text=True)
    return done.stdout.splitlines() if done.returncode == 0 else []


def choose(root: Path, files: Iterable[str]) -> Choice:
    """What these files, paths from the root, ask for."""
    imports = Imports(root)
    units: set[str] = set()
    chosen: set[str] = set()
    for file in files:
        if unit := unit_of(file):
            units.add(unit)
        elif file.endswith(".md"):
            chosen |= imports.tests_that_name(file)
        elif file not in (_SURFACE, _LAZY) and (asked := imports.readers(file)):
            chosen |= asked | ({file} if file.startswith(f"{_LIBRARY}/") else set())
        else:
            return Choice(because=file)
    units |= {unit for file in chosen if file.startswith("content/") and (unit := unit_of(file))}
    tests = {file for file in chosen if not file.startswith("content/") and unit_of(file) not in units}
    return Choice(tuple(sorted(units)), tuple(sorted(tests)))


class Imports:
    """Who imports what in a checkout: the library, its tests, and the sources of lessons and labs."""

    def __init__(self, root: Path) -> None:
        paths = (path for pattern in _SOURCES for path in root.glob(pattern))
        self.texts = {path.relative_to(root).as_posix(): path.read_text("utf-8") for path in paths}

    def tests_that_name(self, document: str) -> set[str]:
        """Test files in which the document's file name stands."""
        name = Path(document).name
        return {file for file, text in self.texts.items() if name in text and _is_test(file)}

    def readers(self, file: str) -> set[str]:
        """Tests, lessons and labs that are this file or import it, also through others; empty for an unknown file."""
        module = _module(file)
        if file not in self.texts:
            return set()
        reached, waiting = {module}, [module]
        while waiting:
            for found in self.importers.get(waiting.pop(), set()) - reached:
                reached.add(found)
                waiting.append(found)
        of_library = file.startswith(f"{_LIBRARY}/")
        return {
            name
            for name, text in self.texts.items()
            if (_is_test(name) and of_library and _STARTS_PROCESSES.search(text))
            or (_module(name) in reached and (_is_test(name) or name.startswith("content/")))
        }

    @cached_property
    def importers(self) -> dict[str, set[str]]:
        """Module -> the modules that import it."""
        known = {_module(file) for file in self.texts}
        homes = _homes(self.texts.get(_SURFACE, ""))
        found: dict[str, set[str]] = {}
        for file, text in self.texts.items():
            for name in _imported(file, text, known, homes):
                found.setdefault(name, set()).add(_module(file))
        return found


def _is_test(file: str) -> bool:
    return Path(file).name.startswith("test_")


def _module(file: str) -> str:
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _homes(text: str) -> dict[str, str]:
    """Name -> module, from the dict displays of the library's surface."""
    tables = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Dict)]
    pairs = [pair for table in tables for pair in zip(table.keys, table.values, strict=True)]
    found = [(k.value, v.value) for k, v in pairs if isinstance(k, ast.Constant) and isinstance(v, ast.Constant)]
    return {name: home for name, home in found if isinstance(name, str) and isinstance(home, str)}


def _imported(file: str, text: str, known: set[str], homes: dict[str, str]) -> set[str]:
    """The known modules that a file imports anywhere in its text; `from a import b` is a.b where that is a module.

    homes  name that the library's surface offers -> the module that it comes from
    """
    module = _module(file)
    package = module if file.endswith("__init__.py") else module.rpartition(".")[0]
    parts = package.split(".")
    tree = ast.parse(text)
    found: set[str] = set()
    for node in tree.body if file.endswith("conftest.py") else ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            source = ".".join(
                [*parts[: len(parts) - node.level + 1 if node.level else 0], *filter(None, [node.module])]
            )
            for name in (alias.name for alias in node.names):
                inside = f"{source}.{name}"
                found.add(inside if inside in known else homes.get(name, source) if source == _LIBRARY else source)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == _LIBRARY:
            found.add(homes.get(node.attr, _LIBRARY))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "lazily(" in text and file != _SURFACE:
            found.add(node.value)
    if file.startswith(f"{_LIBRARY}/") and file != _LAZY and _BY_NAME.search(text):
        found |= {name for name in known if name.startswith(f"{package}.")}
    if file.startswith("tests/"):
        found |= {_module(f"{folder}/conftest.py") for folder in Path(file).parents}
    return (found & known) - {module}
