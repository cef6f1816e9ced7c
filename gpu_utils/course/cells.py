"""Reading a py:percent file into cells that know their line."""

from __future__ import annotations

import ast
import io
import json
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gpu_utils.errors import ContentError

# What a tag means to the build, to nbval or to JupyterLab. An exercise id is a tag too, on answer and check cells.
TAGS = {
    "setup": "imports of a lab; its first code cell",
    "answer": "holds an exercise's answer; its solution is cut from the lab",
    "check": "calls check()",
    "solution": "only in the solution",
    "raises-exception": "the cell is meant to end in an error",
}

EXERCISE_ID = re.compile(r"\d\d\.[a-z][a-z0-9_]*")
_INSERT = re.compile(r"^// INSERT (?P<path>\S+)\n", re.MULTILINE)
_ROOT = Path(__file__).parents[2]
_MAGIC = re.compile(r"# [%!]\w")
_ANY_HEADER = re.compile(r"#\s*%%")
_HEADER = re.compile(r"# %%(?P<markdown> \[markdown\])?(?P<title> [^\[\]={}]+?)??(?: tags=(?P<tags>\[.*\]))?\s*")


@dataclass(frozen=True)
class Cell:
    """One cell of a content file.

    kind    "code" or "markdown"
    title   the text after `# %%`; "" when there is none
    tags    in the order of the file
    source  without trailing newline; markdown without its `# `
    header  line of `# %%` in the file, from 1
    first   line of the file on which `source` starts, from 1
    """

    kind: str
    title: str
    tags: tuple[str, ...]
    source: str
    header: int
    first: int

    @property
    def exercises(self) -> list[str]:
        """The exercise ids among the tags."""
        return [tag for tag in self.tags if EXERCISE_ID.fullmatch(tag)]


def parse_cells(text: str, where: str) -> list[Cell]:
    """The cells of a py:percent text; `where` names the file in errors.

    Raises ContentError for text that is not Python, text before the first `# %%`, and a header that does not read as
    `# %% [markdown] title tags=["tag"]`.

    >>> [cell.title for cell in parse_cells("# %% imports tags=['setup']\\nimport torch\\n", "lab.py")]
    Traceback (most recent call last):
    gpu_utils.errors.ContentError: lab.py:1: the tags are not a list of strings in double quotes
    >>> parse_cells('# %% imports tags=["setup"]\\nimport torch\\n', "lab.py")[0].tags
    ('setup',)
    """
    try:
        compile(text, where, "exec", flags=ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        headers = [(line, _read_header(header, f"{where}:{line}")) for line, header in _header_lines(text, where)]
    except SyntaxError as error:
        raise ContentError(f"{where}:{error.lineno or 1}: not valid Python: {error.msg}") from None
    except ValueError as error:
        raise ContentError(f"{where}:1: not valid Python: {error}") from None
    lines = text.splitlines()
    before = lines[: headers[0][0] - 1] if headers else lines
    if stray := next((number for number, line in enumerate(before, 1) if line.strip()), None):
        raise ContentError(f"{where}:{stray}: text before the first cell; a file starts with `# %%`")
    cells = []
    ends = [line - 1 for line, _ in headers[1:]] + [len(lines)]
    for (line, (kind, title, tags)), end in zip(headers, ends, strict=True):
        held = [number for number in range(line + 1, end + 1) if lines[number - 1].strip()]
        first = held[0] if held else line
        change = _without_comment if kind == "markdown" else _with_magic
        source = "\n".join(map(change, lines[first - 1 : held[-1]] if held else []))
        source = _with_inserted(source, where, first) if "answer" in tags else source
        cells.append(Cell(kind, title, tags, source, line, first))
    return cells


def _without_comment(line: str) -> str:
    """A line of a markdown cell.

    >>> _without_comment("# *a*"), _without_comment("#")
    ('*a*', '')
    """
    return line.removeprefix("# ") if line.startswith("# ") else line.removeprefix("#")


def _with_magic(line: str) -> str:
    """A line of a code cell; what only IPython reads is a comment in the file, which has to be Python.

    >>> _with_magic("# %matplotlib inline"), _with_magic("# 5 % of it")
    ('%matplotlib inline', '# 5 % of it')
    """
    return line[2:] if _MAGIC.match(line) else line


def _with_inserted(cell: str, where: str, first: int) -> str:
    """The cell with each line `// INSERT path` replaced by that file; path counts from the folder of gpu_utils."""
    inserted = {}

    def text_of(named: re.Match[str]) -> str:
        place = f"{where}:{first + cell.count(chr(10), 0, named.start())}"
        path = _ROOT / named["path"]
        if not path.is_file():
            raise ContentError(f"{place}: there is no file {named['path']} to insert")
        inserted[f"{place}: {named['path']}"] = text = path.read_text(encoding="utf-8")
        return text

    source = _INSERT.sub(text_of, cell)
    for file, text in inserted.items():
        if not any(text in value for value in _strings(source)):
            raise ContentError(f'{file} would read otherwise in this string: has it a backslash or """?')
    return source


def _strings(source: str) -> list[str]:
    try:
        nodes = ast.walk(ast.parse(source))
    except SyntaxError:
        return []
    return [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def _header_lines(text: str, where: str) -> Iterator[tuple[int, str]]:
    depth = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.OP:
            depth += (token.string in "([{") - (token.string in ")]}")
        elif token.type == tokenize.COMMENT and token.start[1] == 0 and _ANY_HEADER.match(token.string):
            if depth:
                raise ContentError(f"{where}:{token.start[0]}: a cell header inside brackets; close them first")
            yield token.start[0], token.string


def _read_header(header: str, place: str) -> tuple[str, str, tuple[str, ...]]:
    match = _HEADER.fullmatch(header)
    if match is None:
        raise ContentError(f'{place}: {header!r} is not a cell header; write `# %% [markdown] title tags=["tag"]`')
    try:
        tags = json.loads(match["tags"] or "[]")
    except json.JSONDecodeError:
        tags = None
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise ContentError(f"{place}: the tags are not a list of strings in double quotes")
    for tag in tags:
        if tag not in TAGS and not EXERCISE_ID.fullmatch(tag):
            raise ContentError(
                f"{place}: unknown tag {tag!r}; known are {', '.join(TAGS)} and exercise ids (00.vector_add)"
            )
    return ("markdown" if match["markdown"] else "code"), (match["title"] or "").strip(), tuple(tags)
