"""Mistakes in Python, as a table of operators on the syntax tree: node -> what could stand there instead.

Docstrings, annotations, messages of exceptions and what a learner does not write stay as they are.
"""

from __future__ import annotations

import ast
import marshal
import warnings
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from gpu_utils.grading.mutants import Edit

Replacements = Iterator[ast.AST]

_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_ARITHMETIC: dict[type[ast.operator], tuple[type[ast.operator], ...]] = {
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Add,),
    ast.Div: (ast.FloorDiv, ast.Mult),
    ast.FloorDiv: (ast.Div, ast.Mult),
    ast.Mod: (ast.FloorDiv,),
    ast.Pow: (ast.Mult,),
    ast.MatMult: (ast.Mult,),
    ast.LShift: (ast.RShift,),
    ast.RShift: (ast.LShift,),
    ast.BitAnd: (ast.BitOr,),
    ast.BitOr: (ast.BitAnd,),
    ast.BitXor: (ast.BitOr,),
}
_ORDERED = (ast.Sub, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.MatMult, ast.LShift, ast.RShift)
_ALIKE = (
    *(("min", "max"), ("minimum", "maximum"), ("amin", "amax"), ("any", "all"), ("floor", "ceil"), ("sum", "mean")),
    *(("zeros", "ones"), ("tril", "triu"), ("sin", "cos"), ("startswith", "endswith"), ("program_id", "num_programs")),
)
_OTHER_NAME = {one: other for pair in _ALIKE for one, other in (pair, pair[::-1])}
_MODULES = {"tl", "torch", "triton", "math", "F", "np", "re", "gpt2"}
_WRAPS_ALL = {"min", "max", "minimum", "maximum"}  # each argument may be what is left; of other calls only the first


def _comparison(node: ast.AST) -> Replacements:
    if isinstance(node, ast.Compare):
        for index, op in enumerate(node.ops):
            for other in _COMPARISONS[type(op)]:
                yield _with(node, ops=[*node.ops[:index], other(), *node.ops[index + 1 :]])


def _arithmetic(node: ast.AST) -> Replacements:
    """Another operator, a missing term or factor, swapped operands, a missing sign."""
    if isinstance(node, ast.BinOp):
        for other in _ARITHMETIC[type(node.op)]:
            yield _with(node, op=other())
        yield node.left
        yield node.right
        if isinstance(node.op, _ORDERED):
            yield _with(node, left=node.right, right=node.left)
    elif isinstance(node, ast.AugAssign):
        for other in _ARITHMETIC[type(node.op)]:
            yield _with(node, op=other())
        yield ast.Assign([node.target], node.value)
    elif isinstance(node, ast.UnaryOp) and not isinstance(node.op, ast.UAdd):
        yield node.operand


def _constant(node: ast.AST) -> Replacements:
    if not isinstance(node, ast.Constant):
        return
    value = node.value
    if isinstance(value, bool):
        yield ast.Constant(not value)
    elif isinstance(value, int):
        yield ast.Constant(value + 1)
        if value > 0:
            yield ast.Constant(value - 1)
        if value in (32, 64):
            yield ast.Constant(96 - value)
    elif isinstance(value, float):
        yield ast.Constant(2 * value if value else 1.0)
    elif isinstance(value, str) and value:
        yield ast.Constant("")


def _condition(node: ast.AST) -> Replacements:
    """A condition that is lost, half lost, or joined the wrong way."""
    if isinstance(node, ast.BoolOp):
        yield _with(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
        for index in range(len(node.values)):
            left = [*node.values[:index], *node.values[index + 1 :]]
            yield left[0] if len(left) == 1 else _with(node, values=left)
    elif isinstance(node, ast.IfExp):
        yield node.body
        yield node.orelse
    elif isinstance(node, ast.If):
        yield _with(node, test=ast.Constant(True))
        yield _with(node, test=ast.Constant(False))
    elif isinstance(node, ast.comprehension):
        for index in range(len(node.ifs)):
            yield _with(node, ifs=[*node.ifs[:index], *node.ifs[index + 1 :]])


def _argument(node: ast.AST) -> Replacements:
    """Neighbours swapped, the last or a named argument left out: masks, axes, keepdim and dtypes among them."""
    if not isinstance(node, ast.Call):
        return
    for args in _swapped(node.args):
        yield _with(node, args=args)
    if node.args and (len(node.args) > 1 or isinstance(node.func, ast.Attribute)):
        yield _with(node, args=node.args[:-1])
    for index in range(len(node.keywords)):
        yield _with(node, keywords=[*node.keywords[:index], *node.keywords[index + 1 :]])


def _call(node: ast.AST) -> Replacements:
    """A call that is left out (a cast, a clip, a copy), or its near relation."""
    if not isinstance(node, ast.Call):
        return
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    plain = [arg for arg in node.args if not isinstance(arg, ast.Starred)]
    if name == "cdiv" and len(plain) == 2:
        yield ast.BinOp(plain[0], ast.FloorDiv(), plain[1])
    if name == "range" and plain:
        yield _with(node, args=[*plain[:-1], ast.BinOp(plain[-1], ast.Sub(), ast.Constant(1))])
        if len(plain) == 1:
            yield _with(node, args=[ast.Constant(1), *plain])
    elif name in _WRAPS_ALL:
        yield from plain
    elif plain:
        yield plain[0]
    if isinstance(node.func, ast.Attribute) and getattr(node.func.value, "id", "") not in _MODULES:
        yield node.func.value
    if name in _OTHER_NAME and isinstance(node.func, ast.Attribute):
        yield _with(node, func=_with(node.func, attr=_OTHER_NAME[name]))
    elif name in _OTHER_NAME:
        yield _with(node, func=ast.Name(_OTHER_NAME[name], ast.Load()))


def _part(node: ast.AST) -> Replacements:
    """A part of a tuple, list, set or dict that is missing, or two that changed places; an open slice."""
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        for elements in _swapped(node.elts):
            yield _with(node, elts=elements)
        if isinstance(getattr(node, "ctx", ast.Load()), ast.Load) and len(node.elts) > 1:
            for index in range(len(node.elts)):
                yield _with(node, elts=[*node.elts[:index], *node.elts[index + 1 :]])
    elif isinstance(node, ast.Dict):
        for values in _swapped(node.values):
            yield _with(node, values=values)
        for index in range(len(node.keys)):
            yield _with(
                node,
                keys=[*node.keys[:index], *node.keys[index + 1 :]],
                values=[*node.values[:index], *node.values[index + 1 :]],
            )
    elif isinstance(node, ast.Slice):
        for bound in ("lower", "upper", "step"):
            if getattr(node, bound) is not None:
                yield _with(node, **{bound: None})


def _statement(node: ast.AST) -> Replacements:
    """A statement that is missing, where what follows still has its names."""
    bound = isinstance(node, ast.Assign) and not all(isinstance(target, ast.Name) for target in node.targets)
    if bound or isinstance(node, (ast.Expr, ast.AugAssign, ast.If, ast.For, ast.Break, ast.Continue, ast.Delete)):
        yield ast.Pass()


OPERATORS: dict[str, Callable[[ast.AST], Replacements]] = {
    "statement": _statement,
    "condition": _condition,
    "comparison": _comparison,
    "arithmetic": _arithmetic,
    "constant": _constant,
    "argument": _argument,
    "call": _call,
    "part": _part,
}
"""The kinds of mistakes. Two more need to see the function around a node: `_Cell._name` and `_Cell._again`."""


def edits(solution: str, written: frozenset[int]) -> Iterator[Edit]:
    """Every change of the table at every place that lies in the written lines."""
    yield from _Cell(solution, written).edits()


def normal(source: str) -> object:
    """Equal for sources that compile to the same code."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what a mutant calls or takes apart may be nonsense
            return marshal.dumps(compile(source, "cell", "exec", dont_inherit=True))
    except SyntaxError:
        return source  # the grader sees it fail


class _Cell:
    """A cell with its tree: where nodes stand, what is around them, and how a changed node is written back."""

    def __init__(self, solution: str, written: frozenset[int]) -> None:
        self.source, self.written = solution, written
        self.tree = ast.parse(solution)
        self.lines = solution.splitlines(keepends=True)
        self.parents = {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}
        self.kept = {part for node in ast.walk(self.tree) for kept in _kept(node) for part in ast.walk(kept)}

    def edits(self) -> Iterator[Edit]:
        for node in ast.walk(self.tree):
            anchor = self._anchor(node)
            if node in self.kept or anchor is None or not self._is_written(anchor):
                continue
            for what, operator in OPERATORS.items():
                for replacement in operator(node):
                    yield from self._edit(what, node, anchor, replacement)
            for replacement in self._name(node):
                yield from self._edit("name", node, anchor, replacement)
            for replacement in self._again(node):
                yield from self._edit("statement", node, anchor, replacement)

    def _name(self, node: ast.AST) -> Replacements:
        """Another parameter of the function."""
        function = self._function(node)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and function is not None:
            names = [arg.arg for arg in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
            if node.id in names and len(names) > 1:
                yield ast.Name(names[(names.index(node.id) + 1) % len(names)], ast.Load())

    def _again(self, node: ast.AST) -> Replacements:
        """An assignment that is missing, to a name that has a value already."""
        function = self._function(node)
        if isinstance(node, ast.Assign) and function is not None:
            targets = {name.id for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name)}
            before = {arg.arg for arg in function.args.args}
            for other in ast.walk(function):
                if isinstance(other, ast.Name) and isinstance(other.ctx, ast.Store) and other.lineno < node.lineno:
                    before.add(other.id)
            if targets and targets <= before:
                yield ast.Pass()

    def _function(self, node: ast.AST) -> ast.FunctionDef | None:
        above: ast.AST | None = node
        while above is not None and not isinstance(above, ast.FunctionDef):
            above = self.parents.get(above)
        return above

    def _anchor(self, node: ast.AST) -> ast.AST | None:
        """The node that is written anew: the f-string around it, or what has a place where it has none itself."""
        anchor = node
        above: ast.AST | None = node
        while above is not None:
            if isinstance(above, ast.JoinedStr):
                anchor = above
            above = self.parents.get(above)
        while not hasattr(anchor, "lineno"):
            if anchor not in self.parents:
                return None
            anchor = self.parents[anchor]
        return anchor

    def _is_written(self, anchor: Any) -> bool:
        return set(range(anchor.lineno, anchor.end_lineno + 1)) <= self.written

    def _edit(self, what: str, node: ast.AST, anchor: ast.AST, replacement: ast.AST) -> Iterator[Edit]:
        """The edit, in brackets where it needs them; none when the changed tree cannot be written down."""
        parent, (field, index) = self.parents[node], self._place(node)
        around = self._statement(node)
        self._put(parent, field, index, replacement)
        ast.fix_missing_locations(self.tree.body[around])
        indent = " " * getattr(anchor, "col_offset", 0)
        text = ast.unparse(replacement if node is anchor else anchor).replace("\n", f"\n{indent}")
        wanted = ast.dump(self.tree.body[around])
        self._put(parent, field, index, node)
        start, end = self._offsets(anchor)
        bare = text.removeprefix("(").removesuffix(")") if isinstance(replacement, ast.Tuple) else text
        for written in (bare, text, f"({text})"):
            changed = _statements(self.source[:start] + written + self.source[end:])
            if len(changed) == len(self.tree.body) and ast.dump(changed[around]) == wanted:
                yield Edit(what, start, end, written)
                return

    def _statement(self, node: ast.AST) -> int:
        """Which statement of the cell a node belongs to, from 0: no edit changes another."""
        while self.parents[node] is not self.tree:
            node = self.parents[node]
        return self._place(node)[1] or 0

    def _put(self, parent: ast.AST, field: str, index: int | None, child: ast.AST) -> None:
        if index is None:
            setattr(parent, field, child)
        else:
            getattr(parent, field)[index] = child

    def _place(self, node: ast.AST) -> tuple[str, int | None]:
        for field, value in ast.iter_fields(self.parents[node]):
            if value is node:
                return field, None
            if isinstance(value, list) and any(item is node for item in value):
                return field, next(index for index, item in enumerate(value) if item is node)
        raise AssertionError("a node is a child of its parent")

    def _offsets(self, node: Any) -> tuple[int, int]:
        def offset(line: int, column: int) -> int:
            text = self.lines[line - 1].encode()[:column].decode()
            return sum(map(len, self.lines[: line - 1])) + len(text)

        return offset(node.lineno, node.col_offset), offset(node.end_lineno, node.end_col_offset)


def _statements(source: str) -> list[ast.stmt]:
    """The statements of a cell; none where it is no Python."""
    try:
        return ast.parse(source).body
    except SyntaxError:
        return []


def _kept(node: ast.AST) -> Iterator[ast.AST]:
    """The children of a node that stay as they are."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Module)):
        first = node.body[0] if node.body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            yield first
    if isinstance(node, ast.FunctionDef):
        yield from node.decorator_list
        yield from filter(None, (node.returns,))
    elif isinstance(node, ast.Raise):
        yield from filter(None, (node.exc,))
    elif isinstance(node, ast.Assert):
        yield from filter(None, (node.msg,))
    elif isinstance(node, (ast.arg, ast.AnnAssign)):
        yield from filter(None, (node.annotation,))


def _with(node: Any, **fields: Any) -> Any:
    """A copy of a node with other fields."""
    values = {field: getattr(node, field) for field in node._fields if hasattr(node, field)}
    return ast.copy_location(type(node)(**{**values, **fields}), node)


def _swapped(items: list[Any]) -> Iterator[list[Any]]:
    """The list with two neighbours swapped, for each pair of neighbours that differ."""
    for index, (one, other) in enumerate(pairwise(items)):
        if ast.dump(one) != ast.dump(other):
            yield [*items[:index], other, one, *items[index + 2 :]]
