"""Reading C++ text without a compiler: the tokens, includes and conditions that a build would see.

Comments are gone, `#if` is evaluated, `#include "..."` of the same project is followed with the macros that are defined
by then. Macros are not expanded in code: a token is what the file says.
"""

from __future__ import annotations

import ast
import operator
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any


@dataclass(frozen=True)
class Token:
    """One token of an active line. kind: "name", "number", "text" (a string with its quotes) or "sign"."""

    file: str
    line: int
    kind: str
    text: str


@dataclass(frozen=True)
class Directive:
    """One active preprocessor line: word "include", "define", "if", ...; rest is what follows, without comments."""

    file: str
    line: int
    word: str
    rest: str


_PIECES = re.compile(
    r'(?P<comment>//[^\n]*|/\*.*?(?:\*/|\Z))|(?P<text>"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\')', re.DOTALL
)
_TOKENS = re.compile(
    r'(?P<text>"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\')|(?P<name>[A-Za-z_]\w*)'
    r"|(?P<number>\.?\d(?:[eEpP][+-]|[\w.'])*)|(?P<sign>::|<<<|>>>|<<|>>|\S)"
)


@lru_cache(maxsize=64)
def without_comments(text: str) -> str:
    """The text with every comment replaced by blanks; line numbers stay.

    >>> without_comments('int a; // cudaMalloc') == 'int a;              '
    True
    """

    def blank(found: re.Match[str]) -> str:
        return found[0] if found["text"] else re.sub(r"[^\n]", " ", found[0])

    return _PIECES.sub(blank, text)


def tokens_of(text: str, file: str = "", line: int = 1) -> Iterator[Token]:
    """Tokens of text without comments, counted from `line`.

    >>> [token.text for token in tokens_of("x<<<n, 1u>>>(y)")]
    ['x', '<<<', 'n', ',', '1u', '>>>', '(', 'y', ')']
    """
    for number, row in enumerate(text.split("\n"), line):
        for found in _TOKENS.finditer(row):
            yield Token(file, number, str(found.lastgroup), found[0])


@lru_cache(maxsize=1 << 14)
def _tokens(row: str, file: str, line: int) -> tuple[Token, ...]:
    """`tokens_of` a line of a file: a project is read once for each source and each set of macros."""
    return tuple(tokens_of(row, file, line))


@dataclass(frozen=True)
class Reading:
    """What a build sees of a project: tokens of active code (bodies of `#define` too) and active directives."""

    tokens: tuple[Token, ...]
    directives: tuple[Directive, ...]


def read(files: Mapping[str, str], root: str, macros: Mapping[str, str]) -> Reading:
    """Read the file `root` and what it includes from `files`, with these macros defined at the start.

    files  path with "/" -> text
    A file is read once, as with `#pragma once`. A condition that cannot be evaluated counts as true.
    """
    reader = _Reader(files, dict(macros))
    reader.file(root)
    return Reading(tuple(reader.tokens), tuple(reader.directives))


def includes(files: Mapping[str, str], path: str) -> Iterator[tuple[int, str, str]]:
    """(line, spelling, path in `files` or "") of every include in a file, active or not."""
    for number, row in enumerate(without_comments(files[path]).split("\n"), 1):
        if found := _INCLUDE.match(row):
            yield number, found[1], resolve(files, path, found[1])


_INCLUDE = re.compile(r'\s*#\s*include\s*([<"][^>"]+[>"])')


def resolve(files: Mapping[str, str], path: str, spelling: str) -> str:
    """The file of the project that `#include "..."` (or <...>) in `path` names; "" for a header from elsewhere."""
    name = spelling[1:-1]
    beside = posixpath.normpath(posixpath.join(posixpath.dirname(path), name))
    return next((found for found in (beside, name) if found in files), "")


class _Reader:
    def __init__(self, files: Mapping[str, str], macros: dict[str, str]) -> None:
        self.files, self.macros = files, macros
        self.tokens: list[Token] = []
        self.directives: list[Directive] = []
        self.seen: set[str] = set()

    def file(self, path: str) -> None:
        if path in self.seen:
            return
        self.seen.add(path)
        # for every open #if: is this branch active, and was one before it
        branches: list[list[bool]] = []
        for number, row in joined_lines(without_comments(self.files[path])):
            found = re.match(r"\s*#\s*(\w+)\s*(.*)", row, re.DOTALL)
            if not found:
                if all(active for active, _ in branches):
                    self.tokens.extend(_tokens(row, path, number))
            else:
                self._directive(path, number, found[1], found[2].strip(), branches)

    def _directive(self, path: str, number: int, word: str, rest: str, branches: list[list[bool]]) -> None:
        outside = all(active for active, _ in branches[:-1])
        if word in ("if", "ifdef", "ifndef"):
            active = all(active for active, _ in branches)
            taken = active and self._holds(word, rest)
            branches.append([taken, taken])
        elif word in ("elif", "else") and branches:
            active, now = outside and not branches[-1][1], branches[-1]
            now[0] = active and (word == "else" or self._holds("if", rest))
            now[1] = now[1] or now[0]
        elif word == "endif" and branches:
            branches.pop()
            return
        else:
            active = all(active for active, _ in branches)
        if not active:
            return
        self.directives.append(Directive(path, number, word, rest))
        if word == "define" and (found := re.match(r"(\w+)(\([^)]*\))?\s*(.*)", rest, re.DOTALL)):
            self.macros[found[1]] = "" if found[2] else found[3].strip()
            self.tokens.extend(_tokens(found[3], path, number))
        elif word == "undef":
            self.macros.pop(rest, None)
        elif word == "include" and re.match(r'[<"]', rest) and (local := resolve(self.files, path, rest)):
            self.file(local)

    def _holds(self, word: str, condition: str) -> bool:
        if word != "if":
            return (condition.split()[0] in self.macros if condition else False) == (word == "ifdef")
        try:
            return bool(evaluate(condition, self.macros))
        except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
            return True


def joined_lines(text: str) -> Iterator[tuple[int, str]]:
    """(first line number, line), where a backslash joins a line with the next."""
    kept, first = "", 0
    for number, row in enumerate(text.split("\n"), 1):
        first = first if kept else number
        if row.rstrip().endswith("\\"):
            kept += row.rstrip()[:-1] + "\n"
            continue
        yield first, kept + row
        kept = ""
    if kept:
        yield first, kept


_OPERATORS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.Mod: operator.mod,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.not_,
}


_LONGEST = 2000
_NAME = re.compile(r"\b[A-Za-z_]\w*")


def evaluate(expression: str, macros: Mapping[str, str]) -> int:
    """A condition of `#if`, or a whole-number constant. A name that is not a macro is 0, as in the preprocessor.

    Raises ValueError or SyntaxError for anything else than whole numbers and operators.

    >>> evaluate("defined(USE_ROCM) && !defined(__CUDA_ARCH__)", {"USE_ROCM": "1"})
    1
    >>> evaluate("TILE * 4 <= 64 * 1024", {"TILE": "WIDE * 2", "WIDE": "768"})
    1
    """
    text = re.sub(r"\bdefined\s*(?:\(\s*(\w+)\s*\)|(\w+))", lambda m: str(int((m[1] or m[2]) in macros)), expression)
    text = re.sub(r'__has_include\s*\(\s*[<"](\w*)[^)]*\)', lambda m: str(int(m[1].startswith(("hip", "roc")))), text)
    for _ in range(9):
        if len(text) > _LONGEST:
            raise ValueError("a condition that grows without end")
        text = _NAME.sub(lambda m: f"({macros[m[0]] or 0})" if m[0] in macros else m[0], text)
    text = re.sub(r"\b(0[xX][\da-fA-F]+|\d+)[uUlL]*\b", r"\1", text)
    text = _NAME.sub(lambda m: str(int(m[0] == "true")), text)
    text = text.replace("&&", " and ").replace("||", " or ")
    if "~" in text:
        raise ValueError("~ is not evaluated here")
    # `!` binds tighter than Python's `not`: `~` stands for it on the way
    return int(_value(ast.parse(re.sub(r"!(?!=)", "~", text).strip(), mode="eval").body))


def _value(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.BoolOp):
        values = [bool(_value(part)) for part in node.values]
        return int(all(values) if isinstance(node.op, ast.And) else any(values))
    if isinstance(node, ast.UnaryOp):
        return int(_OPERATORS[type(node.op)](_value(node.operand)))
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = _value(node.left), _value(node.right)
        if isinstance(node.op, (ast.LShift, ast.RShift)) and not 0 <= right < 64:
            raise ValueError("a shift by more than 63 bits")
        return int(_OPERATORS[type(node.op)](left, right))
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _OPERATORS:
        return int(_OPERATORS[type(node.ops[0])](_value(node.left), _value(node.comparators[0])))
    raise ValueError("not a whole-number expression")
