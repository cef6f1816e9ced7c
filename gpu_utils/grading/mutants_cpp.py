"""Mistakes in the C++ of a kernel, as a table of operators on its tokens.

What is text to the compiler is text here: a mutant that does not compile is one that the grader fails.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

from gpu_utils.grading.mutants import Edit

_TOKEN = re.compile(
    r'"(?:\\.|[^"\\])*"|\.?\d(?:[eEpP][+-]|[\w.])*|\w+|<<=|>>=|->|\+\+|--|&&|\|\||::|<<|>>|[-+*/%&|^!=<>]=|\S'
)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_OTHER = {
    **{"<": ("<=", ">="), "<=": ("<", ">"), ">": (">=", "<"), ">=": (">", "<="), "==": ("!=",), "!=": ("==",)},
    **{"+": ("-",), "-": ("+",), "*": ("+",), "/": ("*", "%"), "%": ("/",), "<<": (">>",), ">>": ("<<",)},
    **{"&&": ("||",), "||": ("&&",), "&": ("|",), "|": ("&",), "^": ("|",)},
    **{"+=": ("-=", "="), "-=": ("+=", "="), "*=": ("+=",), "/=": ("-=",), "|=": ("=",), "&=": ("=",)},
}
_NAMES = {
    **{"threadIdx": ("blockIdx",), "blockIdx": ("threadIdx",), "blockDim": ("gridDim",), "gridDim": ("blockDim",)},
    **{"x": ("y",), "y": ("z",), "z": ("x",), "warpSize": ("32", "64"), "true": ("false",), "false": ("true",)},
    **{"__shfl_down_sync": ("__shfl_up_sync",), "__shfl_up_sync": ("__shfl_down_sync",)},
    **{"__shfl_xor_sync": ("__shfl_down_sync",), "__shfl_sync": ("__shfl_xor_sync",)},
    **{"__popcll": ("__popc",), "__ffsll": ("__ffs",), "__clzll": ("__clz",), "__brevll": ("__brev",)},
    **{"__any_sync": ("__all_sync",), "__all_sync": ("__any_sync",), "min": ("max",), "max": ("min",)},
    **{"fminf": ("fmaxf",), "fmaxf": ("fminf",), "atomicMax": ("atomicMin",), "atomicMin": ("atomicMax",)},
}
_TYPES = {"int", "unsigned", "float", "double", "bool", "char", "void", "long", "short", "const", "auto", "half"}
_NO_OPERAND = _TYPES | {"return", "case", "else"}
_OPEN, _CLOSE = {"(": ")", "[": "]", "{": "}"}, {")", "]", "}"}


class _Token(NamedTuple):
    text: str
    start: int
    end: int


Tokens = list[_Token]
Found = Iterator[tuple[int, int, str]]
"""First token, the one behind the last, and the text that takes their place."""


def _operator(tokens: Tokens, at: int) -> Found:
    """Another operator, where the token stands between two operands."""
    if tokens[at].text in _OTHER and at and _ends_operand(tokens[at - 1]):
        for other in _OTHER[tokens[at].text]:
            yield at, at + 1, other


def _operand(tokens: Tokens, at: int) -> Found:
    """A term, a factor or a condition that is missing."""
    if tokens[at].text not in ("+", "-", "*", "/", "%", "&", "&&", "||", "<<", ">>") or not at:
        return
    if not _ends_operand(tokens[at - 1]):
        return
    wide = tokens[at].text in ("&&", "||")
    first, last = _operand_before(tokens, at, wide), _operand_behind(tokens, at, wide)
    yield at, last, ""
    if tokens[at].text in ("+", "*", "&", "&&", "||"):
        yield first, at + 1, ""


def _constant(tokens: Tokens, at: int) -> Found:
    number = re.fullmatch(r"(0[xX][\da-fA-F]+|\d+)([uUlL]*)", tokens[at].text)
    if number:
        value = int(number[1], 0)
        hexadecimal = number[1][:2] in ("0x", "0X")
        for other in dict.fromkeys((value + 1, value - 1 if value else 1, *({32: (64,), 64: (32,)}.get(value, ())))):
            yield at, at + 1, (hex(other) if hexadecimal else str(other)) + number[2]
        if "l" in number[2].lower():
            yield at, at + 1, number[1] + "u" * ("u" in number[2].lower())
    elif re.fullmatch(r"(\d+\.\d*|\.\d+)[fF]?", tokens[at].text):
        yield at, at + 1, "1.0f" if float(tokens[at].text.rstrip("fF")) == 0 else f"2 * {tokens[at].text}"


def _name(tokens: Tokens, at: int) -> Found:
    """A near relation: another axis, another index, another intrinsic."""
    text = tokens[at].text
    if text in ("x", "y", "z") and not (at and tokens[at - 1].text == "."):
        return
    for other in _NAMES.get(text, ()):
        yield at, at + 1, other


def _condition(tokens: Tokens, at: int) -> Found:
    """A condition that always or never holds; of a choice, one branch."""
    if tokens[at].text == "if" and at + 1 < len(tokens) and tokens[at + 1].text == "(":
        end = _partner(tokens, at + 1)
        yield at + 2, end, "true"
        yield at + 2, end, "false"
    elif tokens[at].text == "?":
        colon = _behind(tokens, at + 1, {":"})
        end = _behind(tokens, colon + 1, {";", ",", ")", "]", "}"})
        start = _operand_before(tokens, at, wide=True, also={"||", "&&"})
        yield start, end, _text(tokens, at + 1, colon)
        yield start, end, _text(tokens, colon + 1, end)


def _argument(tokens: Tokens, at: int) -> Found:
    """Two neighbouring arguments that changed places."""
    if tokens[at].text != "(" or not at or not re.fullmatch(r"[A-Za-z_]\w*", tokens[at - 1].text):
        return
    if tokens[at - 1].text in ("if", "for", "while", "switch", "asm", "sizeof"):
        return
    end, start, parts = _partner(tokens, at), at + 1, []
    while start < end:
        comma = min(_behind(tokens, start, {","}), end)
        parts.append((start, comma))
        start = comma + 1
    for (first, behind), (second, last) in pairwise(parts):
        one, other = (_text(tokens, a, b) for a, b in ((first, behind), (second, last)))
        if one != other:
            yield first, last, f"{other}, {one}"


def _cast(tokens: Tokens, at: int) -> Found:
    if tokens[at].text == "(" and at + 2 < len(tokens) and tokens[at + 1].text in _TYPES - {"void"}:
        end = _partner(tokens, at)
        if all(token.text in _TYPES for token in tokens[at + 1 : end]) and not (at and _ends_operand(tokens[at - 1])):
            yield at, end + 1, ""


def _sign(tokens: Tokens, at: int) -> Found:
    if tokens[at].text in ("!", "~", "-") and not (at and _ends_operand(tokens[at - 1])):
        yield at, at + 1, ""


def _statement(tokens: Tokens, at: int) -> Found:
    """A statement that is missing: a barrier, a store, a sum."""
    if at and tokens[at - 1].text not in (";", "{", "}", ")", "else"):
        return
    if at and tokens[at - 1].text == ")" and not _closes_head(tokens, at - 1):
        return
    if sum((token.text == "(") - (token.text == ")") for token in tokens[:at]):
        return  # in the head of a for
    if not re.fullmatch(r"[A-Za-z_*]\w*", tokens[at].text) or tokens[at].text in _NO_OPERAND | {"if", "for", "while"}:
        return
    end = _behind(tokens, at, {";"})
    body = [token.text for token in tokens[at:end]]
    calls = len(body) > 1 and body[1] == "("
    if end < len(tokens) and "{" not in body and (calls or any(text.endswith("=") for text in body)):
        if re.fullmatch(r"\w+", body[0]) and len(body) > 1 and re.fullmatch(r"\w+", body[1]):
            return  # a declaration
        yield at, end, ""


OPERATORS: dict[str, Callable[[Tokens, int], Found]] = {
    "statement": _statement,
    "condition": _condition,
    "operator": _operator,
    "operand": _operand,
    "constant": _constant,
    "argument": _argument,
    "name": _name,
    "cast": _cast,
    "sign": _sign,
}
"""The kinds of mistakes, each asked at every token."""


def edits(solution: str, written: frozenset[int]) -> Iterator[Edit]:
    """Every change of the table in every stretch of written lines; comments and preprocessor lines stay."""
    lines = solution.splitlines(keepends=True)
    start = 0
    stretch: tuple[int, int] | None = None
    for number, line in enumerate([*lines, ""], 1):
        if number in written:
            stretch = (stretch[0] if stretch else start, start + len(line))
        elif stretch:
            yield from _of_stretch(solution, *stretch)
            stretch = None
        start += len(line)


def normal(source: str) -> object:
    """Equal for sources that differ in comments and spaces only."""
    return [token.text for token in _tokens(source, 0, len(source))]


def _of_stretch(solution: str, start: int, end: int) -> Iterator[Edit]:
    tokens = _tokens(solution, start, end)
    for at in range(len(tokens)):
        for what, operator in OPERATORS.items():
            for first, behind, text in operator(tokens, at):
                if first < behind <= len(tokens):
                    yield Edit(what, tokens[first].start, tokens[behind - 1].end, text)


def _tokens(source: str, start: int, end: int) -> Tokens:
    text = _COMMENT.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), source[start:end])
    text = re.sub(r"^[ \t]*#[^\n]*", lambda found: " " * len(found[0]), text, flags=re.MULTILINE)
    return [_Token(found[0], start + found.start(), start + found.end()) for found in _TOKEN.finditer(text)]


def _text(tokens: Tokens, first: int, behind: int) -> str:
    parts = [f"{' ' * (token.start > before.end)}{token.text}" for before, token in pairwise(tokens[first:behind])]
    return tokens[first].text + "".join(parts) if first < behind else ""


def _ends_operand(token: _Token) -> bool:
    return token.text in (")", "]") or (re.match(r"[\w.]", token.text) is not None and token.text not in _NO_OPERAND)


def _partner(tokens: Tokens, at: int) -> int:
    """Where the bracket that opens at `at` closes; the end of the text when it does not."""
    return _behind(tokens, at + 1, {_OPEN[tokens[at].text]})


def _behind(tokens: Tokens, at: int, wanted: set[str]) -> int:
    """The next of some tokens outside of brackets."""
    depth = 0
    while at < len(tokens):
        text = tokens[at].text
        if depth == 0 and text in wanted:
            return at
        depth += (text in _OPEN) - (text in _CLOSE)
        at += 1
    return at


_LIMITS = {";", ",", "?", ":", "=", "{", "}", "return", "+=", "-=", "*=", "/=", "|=", "&=", "if", "for", "else"}
_LOOSER = {"+", "-", "<", ">", "<=", ">=", "==", "!=", "&", "|", "^", "&&", "||", "<<", ">>"}


def _operand_before(tokens: Tokens, at: int, wide: bool, also: set[str] = frozenset()) -> int:  # type: ignore[assignment]
    """The first token of the operand before an operator."""
    stops = _LIMITS | ({"||"} if wide else _LOOSER)
    stops = stops - set(also)
    depth, index = 0, at
    while index:
        text = tokens[index - 1].text
        if depth == 0 and (text in stops or text in _OPEN):
            return index
        depth += (text in _CLOSE) - (text in _OPEN)
        index -= 1
    return index


def _operand_behind(tokens: Tokens, at: int, wide: bool) -> int:
    """The token behind the operand that follows an operator."""
    stops = _LIMITS | _CLOSE | ({"&&", "||"} if wide else _LOOSER | {"*", "/", "%"})
    return max(_behind(tokens, at + 1, stops), at + 2)


def _closes_head(tokens: Tokens, at: int) -> bool:
    """Whether this bracket closes the head of an if, for or while."""
    depth = 0
    while at >= 0:
        depth += (tokens[at].text in _CLOSE) - (tokens[at].text in _OPEN)
        if depth == 0:
            return at > 0 and tokens[at - 1].text in ("if", "for", "while")
        at -= 1
    return False
