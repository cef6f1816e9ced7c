"""Formulas as text, over whatever numbers they are given: Python's, NumPy's arrays, or the terms of Z3.

`formula("row * 8 + (piece ^ row % 8)", {"row": 3, "piece": 2})` is 25. With `z3.Int("row")` for a number the same text
gives a term that Z3 reasons about. Known are whole numbers, names, + - * // % ^ & << >>, min, max, brackets and one
comparison around them. The text is parsed and walked; nothing of it is executed. // and % round down.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import operator
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from gpu_utils.command import script
from gpu_utils.errors import BadArgument, CompilerMissing

LONGEST = 400
"""Characters of a formula."""

_BINARY: Mapping[type, str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.BitXor: "^",
    ast.BitAnd: "&",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
}
_KNOWN = "use whole numbers, names, + - * // % ^ & << >>, min(a, b), max(a, b), brackets and one comparison"

_NUMBERS: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "^": operator.xor,
    "&": operator.and_,
    "<<": operator.lshift,
    ">>": operator.rshift,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "min": min,
    "max": max,
}
_ARRAYS: Mapping[str, Callable[[Any, Any], Any]] = {**_NUMBERS, "min": np.minimum, "max": np.maximum}
_UNSIGNED = {"//": "UDiv", "%": "URem", ">>": "LShR", "<": "ULT", "<=": "ULE", ">": "UGT", ">=": "UGE"}
"""Operation -> the function of Z3 that reads bit vectors as numbers from 0 up; its operators read a sign."""


def formula(text: str, values: Mapping[str, Any]) -> Any:
    """The value of a formula: a number, a truth value, an array, or a term of Z3, as its names' values are.

    text    such as "pid * 128 + lane" or "row < rows"
    values  name -> whole number, NumPy array, `z3.Int` or `z3.BitVec`

    On bit vectors // % >> and comparisons read numbers from 0 up, as `z3.UDiv` and its kin do. Z3's integers have no
    bits, so ^ & << >> need bit vectors.
    Errors: BadArgument for text that is no formula, a name without a value, a division by zero, bits of an integer.

    >>> formula("row * 8 + (piece ^ row % 8)", {"row": 3, "piece": 2})
    25
    >>> formula("min(i, n - 1) < n", {"i": 9, "n": 4})
    True
    """
    return _value(_parsed(text), values, text)


def steps(text: str) -> list[str]:
    """Every operation of a formula, as text, inner ones first; the last is the formula itself.

    >>> steps("(low + high) // 2")
    ['low + high', '(low + high) // 2']
    """
    found: list[str] = []

    def walk(node: ast.expr) -> None:
        if isinstance(node, (ast.BinOp, ast.Call, ast.Compare)):
            for part in _parts(node, text)[1]:
                walk(part)
            found.append(ast.unparse(node))

    walk(_parsed(text))
    return found


def names(text: str) -> set[str]:
    """The names of a formula.

    >>> sorted(names("min(row, rows - 1) * 8"))
    ['row', 'rows']
    """
    called = {id(node.func) for node in ast.walk(_parsed(text)) if isinstance(node, ast.Call)}
    return {node.id for node in ast.walk(_parsed(text)) if isinstance(node, ast.Name) and id(node) not in called}


def needs_z3() -> None:
    """Raises CompilerMissing where Z3 is not installed."""
    if importlib.util.find_spec("z3") is None:
        raise CompilerMissing(
            "proofs need Z3, which is not installed; run "
            f"`W2W_EXTRAS=hip,nvrtc,tilelang {script()} study`, or `pip install z3-solver`"
        )


@lru_cache(maxsize=512)
def _parsed(text: str) -> ast.expr:
    if not isinstance(text, str) or not text.strip():
        raise BadArgument("there is no formula; type one, for example row * 8 + col")
    if len(text) > LONGEST:
        raise BadArgument(f"the formula has {len(text)} characters; expected at most {LONGEST}")
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as broken:
        why = broken.msg if isinstance(broken, SyntaxError) else "it cannot be read"
        raise BadArgument(f"`{text}` is no formula ({why}); {_KNOWN}") from None


def _parts(node: ast.expr, text: str) -> tuple[str, list[ast.expr]]:
    """Name of an operation, and its two operands."""
    match node:
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _BINARY[type(op)], [left, right]
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _BINARY:
            return _BINARY[type(op)], [left, right]
        case ast.Call(func=ast.Name(id="min" | "max" as name), args=[left, right], keywords=[]):
            return name, [left, right]
        case ast.BinOp(op=ast.Div()):
            raise BadArgument(f"`{text}` divides with /, which gives a fraction; use // for whole numbers")
    raise BadArgument(f"`{text}` has `{ast.unparse(node)}`, which is not known here; {_KNOWN}")


def _value(node: ast.expr, values: Mapping[str, Any], text: str) -> Any:
    match node:
        case ast.Constant(value=int() as number) if not isinstance(number, bool):
            return number
        case ast.Name(id=name):
            if name not in values:
                raise BadArgument(f"`{text}` names {name}, which has no value; known are {', '.join(values)}")
            return values[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return 0 - _value(operand, values, text)
    name, operands = _parts(node, text)
    left, right = (_value(one, values, text) for one in operands)
    if any(_of_z3(one) for one in (left, right)):
        return _term(name, left, right, text)
    if any(isinstance(one, np.ndarray) for one in (left, right)):
        if name in ("//", "%") and np.any(np.asarray(right) == 0):
            raise BadArgument(f"`{text}` divides by zero")
        return _ARRAYS[name](left, right)
    if name in ("//", "%") and right == 0:
        raise BadArgument(f"`{text}` divides by zero")
    if name in ("<<", ">>") and not 0 <= right <= 64:
        raise BadArgument(f"`{text}` shifts by {right}; expected 0 to 64")
    return _NUMBERS[name](left, right)


def _of_z3(value: Any) -> bool:
    return type(value).__module__.split(".")[0] == "z3"


def _term(name: str, left: Any, right: Any, text: str) -> Any:
    z3 = importlib.import_module("z3")
    bits = any(z3.is_bv(one) for one in (left, right) if _of_z3(one))
    if name in ("min", "max"):
        less = _term("<", left, right, text)
        return z3.If(less, left, right) if name == "min" else z3.If(less, right, left)
    if bits and name in _UNSIGNED:
        like = next(one for one in (left, right) if _of_z3(one) and z3.is_bv(one))
        left, right = (one if _of_z3(one) else z3.BitVecVal(one, like.size(), like.ctx) for one in (left, right))
        return getattr(z3, _UNSIGNED[name])(left, right)
    if not bits and name in ("^", "&", "<<", ">>"):
        raise BadArgument(f"`{text}` needs bits for {name}, and Z3's integers have none; give its names z3.BitVec")
    return left / right if name == "//" else _NUMBERS[name](left, right)
