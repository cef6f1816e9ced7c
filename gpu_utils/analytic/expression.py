"""A typed index expression in `lane`, such as `(lane * 33) % 64`, to one index for each lane; nothing is executed.

The text is parsed by Python's own parser and walked: whole numbers, `lane`, arithmetic, comparisons (1 or 0, as in
C++), `and`, `or`, `not` and `a if condition else b` are known, everything else is refused with a sentence. `None` makes
a lane inactive.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping

from gpu_utils.errors import BadArgument

LONGEST = 200
LARGEST = 1 << 40
"""Characters of an expression, and the largest number that may appear on the way to an index."""

_BINARY: Mapping[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
}
_UNARY: Mapping[type, Callable[[int], int]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
    ast.Invert: operator.invert,
}
_COMPARE: Mapping[type, Callable[[int, int], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_KNOWN = (
    "use whole numbers, lane, + - * // % & | ^ << >> ~, brackets, comparisons, and, or, not, `a if condition else b`"
)


def indices(expression: str, lanes: int = 32) -> tuple[int | None, ...]:
    """The index of each lane; None where the expression says None.

    Errors: BadArgument with one sentence for text that is no such expression, a division by zero, a negative index or
    a number that is too large.

    >>> indices("lane * 2 + 1", 4), indices("lane ^ 5", 4), indices("lane if lane < 2 else None", 4)
    ((1, 3, 5, 7), (5, 4, 7, 6), (0, 1, None, None))
    """
    tree = _parsed(expression)
    found = tuple(_value(tree, lane, expression) for lane in range(lanes))
    for lane, index in enumerate(found):
        if index is not None and index < 0:
            raise BadArgument(f"`{expression}` gives lane {lane} the index {index}; an index is 0 or more")
    return found


def truths(condition: str, lanes: int = 32) -> tuple[bool, ...]:
    """Whether the condition holds for each lane: a comparison, or a number that is not 0. Errors: as `indices`.

    >>> truths("lane < 2", 4), truths("not lane % 2", 4)
    ((True, True, False, False), (True, False, True, False))
    """
    tree = _parsed(condition)
    return tuple(_condition(tree, lane, condition) for lane in range(lanes))


def addresses(expression: str, lanes: int = 32, element_bytes: int = 4, base: int = 0) -> tuple[int | None, ...]:
    """The byte address of each lane: base + index * element_bytes.

    >>> addresses("lane * 2", 3, element_bytes=8, base=16)
    (16, 32, 48)
    """
    return tuple(None if index is None else base + index * element_bytes for index in indices(expression, lanes))


def _parsed(expression: str) -> ast.expr:
    if not expression.strip():
        raise BadArgument("there is no expression; type one in lane, for example lane * 2 + 1")
    if len(expression) > LONGEST:
        raise BadArgument(f"the expression has {len(expression)} characters; expected at most {LONGEST}")
    try:
        return ast.parse(expression.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as broken:
        why = broken.msg if isinstance(broken, SyntaxError) else "it cannot be read"
        raise BadArgument(f"`{expression}` is no expression ({why}); {_KNOWN}") from None


def _value(node: ast.expr, lane: int, expression: str) -> int | None:
    """The value of a whole expression or of a branch of it: only there may None stand."""
    if isinstance(node, ast.Constant) and node.value is None:
        return None
    if isinstance(node, ast.IfExp):
        chosen = node.body if _condition(node.test, lane, expression) else node.orelse
        return _value(chosen, lane, expression)
    return _number(node, lane, expression)


def _number(node: ast.expr, lane: int, expression: str) -> int:
    match node:
        case ast.Name(id="lane"):
            return lane
        case ast.Constant(value=bool()):
            pass
        case ast.Constant(value=int() as number):
            return _bounded(number, expression)
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
            return _UNARY[type(op)](_number(operand, lane, expression))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _binary(op, _number(left, lane, expression), _number(right, lane, expression), lane, expression)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            chosen = body if _condition(test, lane, expression) else orelse
            return _number(chosen, lane, expression)
        case ast.Compare() | ast.BoolOp() | ast.UnaryOp(op=ast.Not()):
            return int(_condition(node, lane, expression))
    raise BadArgument(_refusal(node, expression))


def _binary(op: ast.operator, left: int, right: int, lane: int, expression: str) -> int:
    if isinstance(op, (ast.FloorDiv, ast.Mod)) and right == 0:
        raise BadArgument(f"`{expression}` divides by zero for lane {lane}")
    if isinstance(op, (ast.LShift, ast.RShift)) and not 0 <= right < 40:
        raise BadArgument(f"`{expression}` shifts by {right} for lane {lane}; expected 0 to 39")
    return _bounded(_BINARY[type(op)](left, right), expression)


def _condition(node: ast.expr, lane: int, expression: str) -> bool:
    if isinstance(node, ast.Compare) and all(type(op) in _COMPARE for op in node.ops):
        values = [_number(part, lane, expression) for part in (node.left, *node.comparators)]
        pairs = zip(node.ops, values[:-1], values[1:], strict=True)
        return all(_COMPARE[type(op)](left, right) for op, left, right in pairs)
    if isinstance(node, ast.BoolOp):
        parts = (_condition(part, lane, expression) for part in node.values)
        return all(parts) if isinstance(node.op, ast.And) else any(parts)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return not _condition(node.operand, lane, expression)
    if isinstance(node, ast.Compare):
        raise BadArgument(_refusal(node, expression))
    return _number(node, lane, expression) != 0


def _bounded(number: int, expression: str) -> int:
    if abs(number) > LARGEST:
        raise BadArgument(f"`{expression}` reaches {number:.3g}; expected numbers up to {LARGEST:.3g}")
    return number


def _refusal(node: ast.expr, expression: str) -> str:
    match node:
        case ast.BinOp(op=ast.Div()):
            return f"`{expression}` divides with /, which gives a fraction; use // for whole numbers"
        case ast.BinOp(op=ast.Pow()):
            return f"`{expression}` uses **; write a product, or a shift such as 1 << lane"
        case ast.Name(id=name):
            return f"`{expression}` names {name}; the only name is lane, the number of the lane in its wave"
        case ast.Constant(value=None):
            return f"`{expression}` computes with None; None may only stand for a whole index"
    return f"`{expression}` has `{ast.unparse(node)}`, which is not known here; {_KNOWN}"
