"""Reading a learner's answers out of a notebook file, whatever was done to it.

Nothing is executed here. Answer cells are found by tag, wherever they are and whatever the file is called:

- A cell belongs to an exercise when its tags hold "answer" and the id, or when its w2w metadata names the exercise.
- Of several that define the function the last counts. Cells of the exercise that do not define it are kept with it, in
  order: they are the parts of a cell that was split.
- When no tagged cell is left, or only the untouched stub, the last untagged code cell that defines the function counts.
- A cell that is not Python costs only itself. Lines for IPython alone (`%magic`, `!shell`, `help?`) become `pass`,
  prompts (`>>>`, `In [3]:`) that were pasted with the code go, and a cell in another language (`%%bash`) is empty.
- What an answer needs of the other cells is found by `gpu_utils.grading.program`.

What this does not do: it does not run setup cells of the learner's own making, nor follow imports between notebooks.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_utils.errors import NotebookUnreadable
from gpu_utils.grading.program import Program, make_program

MAX_BYTES = 50_000_000
MAX_CELL_BYTES = 1_000_000
MAX_VALUES = 5_000_000  # of JSON: 50 MB of empty lists would be gigabytes of Python
MAX_IPYTHON_LINES = 200
_EXERCISE_ID = re.compile(r"\d\d\.\w+")
_PROMPT = re.compile(r"\s*(>>>|\.\.\.:?|In \[\d*\]:)( |$)")
_FIRST_PROMPT = re.compile(r"\s*(>>>|In \[\d*\]:)( |$)")
_CELL_MAGIC = re.compile(r"\s*%%(\w+)")
_OF_PYTHON = {"time", "timeit", "capture", "prun", "debug"}
_IPYTHON_LINE = re.compile(r"\s*([%!?]|[\w.]+\s*=\s*[%!]|[\w.]+\?{1,2}\s*$)")


@dataclass(frozen=True)
class Answer:
    """What a notebook holds for one exercise.

    exercise  "00.vector_add"
    source    Python of its cells; "" when one cannot be read
    error     why it cannot be read, one sentence; "" when it can
    note      where it was found, when that is not the tagged cell; else ""
    cells     the numbers of its cells
    """

    exercise: str
    source: str
    error: str = ""
    note: str = ""
    cells: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Cell:
    number: int  # among all cells, from 1
    source: str
    error: str
    defines: frozenset[str]
    exercise: str
    is_setup: bool


@dataclass(frozen=True)
class Answers:
    """The answers of one notebook.

    unit    "00_start" from the notebook's metadata; "" when that is lost
    setup   source of the last cell tagged "setup"; "" when there is none or it is not Python
    broken  why the setup cell cannot be read, one sentence; "" when it can
    """

    path: Path
    unit: str
    setup: str
    cells: tuple[_Cell, ...]
    broken: str = ""

    @property
    def exercises(self) -> list[str]:
        """The ids that have a tagged cell, sorted."""
        return sorted({cell.exercise for cell in self.cells if cell.exercise})

    def find(self, exercise: str) -> Answer | None:
        """The answer to an exercise; None when the notebook has none."""
        name = exercise.split(".", 1)[-1]
        tagged = [cell for cell in self.cells if cell.exercise == exercise]
        untagged = [cell for cell in self.cells if not cell.exercise and name in cell.defines]
        if untagged and (not tagged or _is_stub(tagged, name, exercise)):
            found = untagged[-1]
            note = f"found in cell {found.number}, which has lost its tag"
            return Answer(exercise, found.source, note=note, cells=(found.number,))
        if not tagged:
            return None
        return _of_tagged(exercise, name, tagged)

    def program(self, answer: Answer) -> Program:
        """What a check executes for an answer that can be read."""
        code = [cell for cell in self.cells if cell.source and not cell.error]
        own = [(cell.number, cell.source) for cell in code if cell.number in answer.cells]
        others = [(cell.number, cell.source) for cell in code if cell.number not in answer.cells and not cell.is_setup]
        return make_program(self.setup, own, others)


def answers(path: str | Path) -> Answers:
    """Reads the answers of a notebook file (nbformat 3 or 4, UTF-8, at most 50 MB).

    Raises NotebookUnreadable, one sentence, for a file that is missing, too large, truncated or not a notebook.
    """
    path = Path(path)
    return answers_in(_read(path), str(path))


def answers_in(data: bytes, name: str) -> Answers:
    """The answers of a notebook whose bytes are at hand; `name` is what its errors call it, and its path.

    Raises NotebookUnreadable as `answers` does.
    """
    notebook = notebook_in(data, name)
    cells = tuple(_cell(number, cell) for number, cell in enumerate(notebook["cells"], 1))
    setups = [cell for cell in cells if cell.is_setup]
    setup = setups[-1].source if setups else ""
    broken = f"the setup cell cannot be run: {setups[-1].error}" if setups and setups[-1].error else ""
    unit = _mapping(_mapping(notebook.get("metadata")).get("w2w")).get("unit", "")
    return Answers(Path(name), unit if isinstance(unit, str) else "", setup, cells, broken)


def _of_tagged(exercise: str, name: str, tagged: list[_Cell]) -> Answer:
    defining = [cell for cell in tagged if name in cell.defines]
    broken = [cell for cell in tagged if cell.error]
    last = defining[-1] if defining else None
    if broken and (last is None or broken[-1].number > last.number):
        return Answer(exercise, "", error=broken[-1].error)
    parts = [cell for cell in tagged if not cell.error and (cell is last or cell not in defining)]
    return Answer(exercise, "\n\n".join(cell.source for cell in parts), cells=tuple(cell.number for cell in parts))


def _is_stub(tagged: list[_Cell], name: str, exercise: str) -> bool:
    """The last tagged cell that defines the function still raises what the lab came with."""
    defining = [cell for cell in tagged if name in cell.defines]
    return bool(defining) and f"{exercise} is yours to write" in defining[-1].source


def too_large(name: str, size: int) -> str:
    """Why a notebook of so many bytes is not read, one sentence."""
    return (
        f"{name} has {size / 1e6:.0f} MB, more than {MAX_BYTES / 1e6:.0f} MB; "
        "clear its outputs in JupyterLab (Edit, Clear Outputs of All Cells) and save it"
    )


def _read(path: Path) -> bytes:
    try:
        if not path.is_file():
            raise NotebookUnreadable(f"{path} is not a file" if path.exists() else f"there is no file {path}")
        if (size := path.stat().st_size) > MAX_BYTES:
            raise NotebookUnreadable(too_large(str(path), size))
        return path.read_bytes()
    except (OSError, ValueError) as error:
        raise NotebookUnreadable(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def notebook_in(data: bytes, name: str) -> dict[str, Any]:
    """The notebook in some bytes: a dict that has a list of cells; nothing else of it is checked.

    Raises NotebookUnreadable, one sentence that starts with `name`, for bytes that hold none.
    """
    if len(data) > MAX_BYTES:
        raise NotebookUnreadable(too_large(name, len(data)))
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise NotebookUnreadable(f"{name} is not UTF-8 text (byte {error.start}); save it from JupyterLab") from None
    if sum(map(text.count, ",[{")) > MAX_VALUES:
        raise NotebookUnreadable(f"{name} holds more than {MAX_VALUES:,} values; clear its outputs and save it")
    try:
        notebook = json.loads(text)
    except (ValueError, RecursionError) as error:
        what = "is empty" if not text.strip() else f"is not complete JSON ({error})"
        raise NotebookUnreadable(f"{name} {what}; was it cut off while it was saved or copied?") from None
    if not isinstance(notebook, dict) or notebook.get("nbformat") != 4:
        notebook = _converted(name, text)
    if not isinstance(notebook, dict) or not isinstance(notebook.get("cells"), list):
        raise NotebookUnreadable(f"{name} is not a Jupyter notebook: it has no list of cells")
    return notebook


def _converted(name: str, text: str) -> Any:
    """A notebook of another format than today's, brought to it."""
    import nbformat  # seconds; JupyterLab has long saved format 4

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of missing cell ids, which do not matter here
            return nbformat.reads(text, as_version=4)
    except Exception as error:  # nbformat raises errors of many kinds for JSON that is not a notebook
        raise NotebookUnreadable(f"{name} is not a Jupyter notebook ({type(error).__name__}: {error})") from None


def _cell(number: int, cell: Any) -> _Cell:
    cell = _mapping(cell)
    metadata = _mapping(cell.get("metadata"))
    tags = metadata.get("tags")
    tags = [tag for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else []
    exercise = _exercise(tags, metadata)
    source = cell.get("source", "")
    source = "".join(map(str, source)) if isinstance(source, list) else str(source)
    is_setup = "setup" in tags
    if cell.get("cell_type") != "code":
        error = f"cell {number}, the answer to {exercise}, is not a code cell; change its type to Code and save"
        return _Cell(number, "", error if exercise else "", frozenset(), exercise, False)
    source, error = _python(source)
    if error:
        return _Cell(number, "", f"cell {number} is not valid Python: {error}", frozenset(), exercise, is_setup)
    return _Cell(number, source, "", _names(source), exercise, is_setup)


def _exercise(tags: list[str], metadata: Mapping[str, Any]) -> str:
    """The exercise that a cell answers, by tags, else by w2w metadata; "" for other cells."""
    ids = [tag for tag in tags if _EXERCISE_ID.fullmatch(tag)]
    if "answer" in tags and ids:
        return ids[0]
    w2w = _mapping(metadata.get("w2w"))
    named = w2w.get("exercise")
    if w2w.get("role") == "answer" and isinstance(named, str) and _EXERCISE_ID.fullmatch(named):
        return named
    return ""


def _python(source: str) -> tuple[str, str]:
    """The source with IPython's lines replaced by `pass`, and "" or what is wrong with it."""
    if len(source) > MAX_CELL_BYTES:
        return "", f"more than {MAX_CELL_BYTES / 1e6:.0f} MB of text"
    lines = _without_prompts(source.split("\n"))
    if other := _CELL_MAGIC.match(source):
        lines = lines if other[1] in _OF_PYTHON else []
    for _ in range(MAX_IPYTHON_LINES):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of the learner's escapes in strings
                ast.parse("\n".join(lines))
            return "\n".join(lines), ""
        except SyntaxError as error:
            at = (error.lineno or 0) - 1
            if not (0 <= at < len(lines) and _IPYTHON_LINE.match(lines[at])):
                return "", error.msg + (f" (line {error.lineno})" if error.lineno else "")
            _blank(lines, at)
        except (ValueError, RecursionError, MemoryError) as error:
            return "", str(error) or type(error).__name__
    return "", "too many lines that only IPython reads"


def _without_prompts(lines: list[str]) -> list[str]:
    """The lines without the prompts of an interpreter, when the first line has one, as in a notebook."""
    first = next((line for line in lines if line.strip()), "")
    return [_PROMPT.sub("", line, count=1) for line in lines] if _FIRST_PROMPT.match(first) else lines


def _blank(lines: list[str], at: int) -> None:
    """Replaces a magic by `pass` and empties the lines it continues on: line numbers and indented bodies stay valid."""
    line = lines[at]
    lines[at] = line[: len(line) - len(line.lstrip())] + "pass"
    while line.endswith("\\") and at + 1 < len(lines):
        at += 1
        line, lines[at] = lines[at], ""


def _names(source: str) -> frozenset[str]:
    """The names that the top level of a cell binds to functions and classes, or by assignment."""
    names = set()
    for node in ast.parse(source).body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names.update(target.id for target in targets if isinstance(target, ast.Name))
    return frozenset(names)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
