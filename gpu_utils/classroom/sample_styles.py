"""A solution in other words: the same computation, written by somebody else.

The text differs from student to student, and so does what a kernel compiles to: operands change places.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator

_WORDS = ("part", "temp", "item", "value", "here", "piece", "mine", "thing", "some", "res", "aux", "my")
_COMMENTS = ("as in the lesson", "next", "careful here", "this took me a while", "see the statement", "ok", "works")
_FLIPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.Gt,
    ast.Gt: ast.Lt,
    ast.LtE: ast.GtE,
    ast.GtE: ast.LtE,
    ast.Eq: ast.Eq,
    ast.NotEq: ast.NotEq,
}


def restyled(source: str, rng: random.Random) -> tuple[str, str]:
    """What stands in a cell of the student's own, "" for nothing, and the answer's cell.

    source  functions, the last of which is the answer
    """
    tree = ast.parse(source)
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    for function in functions:
        _rename(function, rng)
        _Reordered(rng).visit(function)
        _add_idle_statement(function, rng)
    helpers = _split(tree, functions[-1], rng) if rng.random() < 0.4 else []
    apart = ast.unparse(ast.fix_missing_locations(ast.Module(helpers, []))) if helpers else ""
    return _commented(apart, rng), _commented(ast.unparse(ast.fix_missing_locations(tree)), rng)


def _rename(function: ast.FunctionDef, rng: random.Random) -> None:
    """Other names for its local variables; parameters keep theirs, for they may be given by name."""
    given = {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}
    names = [node for node in ast.walk(function) if isinstance(node, ast.Name)]
    local = dict.fromkeys(node.id for node in names if isinstance(node.ctx, ast.Store) and node.id not in given)
    other = {name: f"{rng.choice(_WORDS)}_{number}{rng.choice('abcdefgh')}" for number, name in enumerate(local)}
    for node in names:
        node.id = other.get(node.id, node.id)


class _Reordered(ast.NodeTransformer):
    """Sums, products and comparisons whose sides change places, where that changes nothing."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def visit_BinOp(self, node: ast.BinOp) -> ast.BinOp:
        self.generic_visit(node)
        if isinstance(node.op, (ast.Add, ast.Mult)) and self._rng.random() < 0.5:
            node.left, node.right = node.right, node.left
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.Compare:
        self.generic_visit(node)
        if len(node.ops) == 1 and type(node.ops[0]) in _FLIPPED and self._rng.random() < 0.5:
            node.left, node.comparators = node.comparators[0], [node.left]
            node.ops = [_FLIPPED[type(node.ops[0])]()]
        return node


def _add_idle_statement(function: ast.FunctionDef, rng: random.Random) -> None:
    """One that does not matter, and sometimes no docstring."""
    start = 1 if ast.get_docstring(function) is not None else 0
    function.body.insert(start, ast.parse(f"{rng.choice(_WORDS)}_left = {rng.randrange(10_000)}").body[0])
    if start and rng.random() < 0.5:
        del function.body[0]


def _split(tree: ast.Module, answer: ast.FunctionDef, rng: random.Random) -> list[ast.stmt]:
    """Take the kernels out of the answer's cell; where there is none, the work, to which the answer hands on."""
    helpers: list[ast.stmt] = [node for node in tree.body if node is not answer]
    if not helpers:
        name = f"{rng.choice(_WORDS)}_{answer.name}"
        handed = ", ".join(f"{given.arg}={given.arg}" for given in answer.args.args)
        helpers = [ast.FunctionDef(**{**dict(ast.iter_fields(answer)), "name": name})]
        answer.body = ast.parse(f"def f():\n    return {name}({handed})").body[0].body  # type: ignore[attr-defined]
        _add_idle_statement(answer, rng)
    tree.body = [answer]
    return helpers


def _commented(source: str, rng: random.Random) -> str:
    return "\n".join(_with_comments(source, rng)) if source else ""


def _with_comments(source: str, rng: random.Random) -> Iterator[str]:
    inside_a_text = False
    for line in source.split("\n"):
        if not inside_a_text and line.strip() and rng.random() < 0.2:
            yield f"{line[: len(line) - len(line.lstrip())]}# {rng.choice(_COMMENTS)} {rng.randrange(100)}"
        inside_a_text ^= line.count('"""') % 2 == 1
        yield line
