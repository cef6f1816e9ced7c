"""Mistakes in machine code that stands in a string of an answer: PTX or AMDGCN, line by line, as a table of operators.

What is text to the assembler is text here: a mutant that it refuses is one that the grader fails.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from itertools import pairwise

from gpu_utils.grading.mutants import Edit

_INSTRUCTION = re.compile(
    r"(?:^|(?<=[\"';]))[ \t]*(?P<guard>@!?%\w+[ \t]+)?"
    r"(?P<opcode>[a-z][a-z0-9]*[._][\w.:]+|bra|ret|exit)(?=[ \t;\n]|$)(?P<rest>[^\n]*)$",
    re.MULTILINE,
)
_NUMBER = re.compile(r"(?<![\w.%\[:])(-?)(0x[0-9a-f]+|\d+)\b(?![.\w])|(?<=[(:])(-?)(0x[0-9a-f]+|\d+)\b", re.IGNORECASE)
_OPCODES = {
    **{"add": ("sub",), "sub": ("add",), "mul": ("add",), "min": ("max",), "max": ("min",), "and": ("or",)},
    **{"or": ("and",), "shl": ("shr",), "shr": ("shl",), "lshlrev": ("lshrrev",), "lshrrev": ("lshlrev",)},
    **{"bfly": ("down", "up"), "down": ("bfly", "up"), "up": ("down",), "idx": ("bfly",), "lo": ("hi",)},
    **{"eq": ("ne",), "ne": ("eq",), "lt": ("le", "ge"), "le": ("lt",), "gt": ("ge", "le"), "ge": ("gt",)},
    **{"row_shr": ("row_shl",), "row_shl": ("row_shr",), "row_ror": ("row_shr",), "row_mirror": ("row_half_mirror",)},
    **{"row_half_mirror": ("row_mirror",), "row_bcast": ("row_shr",), "vmcnt": ("lgkmcnt",), "lgkmcnt": ("vmcnt",)},
}
"""A word of an opcode or of a modifier -> what it is taken for."""

_REGISTER = re.compile(r"(?:%[a-z]+|(?<![\w.%])[vsa])(\d+)\b")
_OPERAND = re.compile(rf"\$\d|{_REGISTER.pattern}|(?<![\w.])[vsa]\[\d")
_WORD = re.compile(r"[a-z]+(?:_[a-z]+)*", re.IGNORECASE)
_PART = re.compile(r"[a-z]+", re.IGNORECASE)


def _deleted(line: re.Match[str]) -> Iterator[tuple[int, int, str]]:
    """The instruction is missing."""
    yield line.start(), line.end(), ""


def _unguarded(line: re.Match[str]) -> Iterator[tuple[int, int, str]]:
    """A predicate is missing, or asks for the opposite."""
    if line["guard"]:
        yield line.start("guard"), line.end("guard"), ""
        other = line["guard"].replace("@!", "@") if "!" in line["guard"] else line["guard"].replace("@", "@!")
        yield line.start("guard"), line.end("guard"), other


def _renamed(line: re.Match[str]) -> Iterator[tuple[int, int, str]]:
    """Another instruction of its kind, another modifier."""
    for field in ("opcode", "rest"):
        text = _code(line["rest"]) if field == "rest" else line[field]
        for pattern in (_WORD, _PART):
            for found in pattern.finditer(text):
                for other in _OPCODES.get(found[0], ()):
                    yield line.start(field) + found.start(), line.start(field) + found.end(), other


def _number(line: re.Match[str]) -> Iterator[tuple[int, int, str]]:
    """A number that is one off, or twice or half of it."""
    for found in _NUMBER.finditer(_code(line["rest"])):
        digits = found[2] or found[4]
        value = int(digits, 0)
        first = line.start("rest") + found.end() - len(digits)
        for other in dict.fromkeys((value + 1, value - 1, 2 * value, value // 2)):
            if other >= 0 and other != value:
                yield first, first + len(digits), hex(other) if digits[:2].lower() == "0x" else str(other)


def _swapped(line: re.Match[str]) -> Iterator[tuple[int, int, str]]:
    """Two neighbouring operands that changed places."""
    start, parts = line.start("rest"), []
    for operand in re.finditer(r"\s*((?:\[[^\]]*\]|\{[^}]*\}|[^,;\s])+)", _code(line["rest"])):
        parts.append((start + operand.start(1), start + operand.end(1), operand[1]))
    for (first, end, one), (then, last, other) in pairwise(parts):
        if one != other and line.string[end:then].strip() == ",":
            yield first, last, f"{other}{line.string[end:then]}{one}"


def _register(line: re.Match[str]) -> Iterator[tuple[int, int, str]]:
    """The next register of its kind."""
    for found in _REGISTER.finditer(_code(line["rest"])):
        number = line.start("rest") + found.start(1)
        yield number, number + len(found[1]), str(int(found[1]) + 1)


OPERATORS: dict[str, Callable[[re.Match[str]], Iterator[tuple[int, int, str]]]] = {
    "instruction": _deleted,
    "predicate": _unguarded,
    "opcode": _renamed,
    "number": _number,
    "operands": _swapped,
    "register": _register,
}
"""The kinds of mistakes, each asked at every instruction."""


def edits(solution: str, written: frozenset[int]) -> Iterator[Edit]:
    """Every change of the table in the instructions that stand in strings of the written lines."""
    for start, end in _strings(solution):
        code = list(_INSTRUCTION.finditer(solution, start, end))
        if not any(_OPERAND.search(line["rest"]) for line in code):
            continue  # words, not machine code
        for line in code:
            if solution.count("\n", 0, line.start("opcode")) + 1 in written:
                for what, operator in OPERATORS.items():
                    for first, last, text in operator(line):
                        yield Edit(what, first, min(last, end), text)


def _strings(solution: str) -> Iterator[tuple[int, int]]:
    """Where the strings of a cell stand that are no docstrings: from the first to behind the last of their letters."""
    lines = solution.splitlines(keepends=True)
    tree = ast.parse(solution)
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
            first, last = (
                sum(map(len, lines[: number - 1])) + len(lines[number - 1].encode()[:column].decode())
                for number, column in ((node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset))
                if number is not None and column is not None
            )
            quoted = re.match(r"[a-zA-Z]*(\"{3}|'{3}|\"|')", solution[first:last])
            if quoted:
                yield first + quoted.end(), last - len(quoted[1])


def _code(rest: str) -> str:
    """What stands behind an opcode, without a comment; of the same length up to it."""
    return re.split(r"//|;\s", rest, maxsplit=1)[0]
