"""Cutting the answer out of a cell: what lies between `# BEGIN SOLUTION` and `# END SOLUTION`.

In a string that holds C++ the markers are `// BEGIN SOLUTION` and `// END SOLUTION`.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from gpu_utils.errors import ContentError

BEGIN, END = "# BEGIN SOLUTION", "# END SOLUTION"
BEGIN_CPP, END_CPP = "// BEGIN SOLUTION", "// END SOLUTION"
MARKERS = (BEGIN, END, BEGIN_CPP, END_CPP)
_ALMOST = re.compile(r"(?:#+|//+)\s*(BEGIN|END)[ _-]*SOLUTION\b", re.IGNORECASE)

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Cut:
    """Lines of a cell, counted from 0: those of the markers, and of the first and last line of code between them."""

    begin: int
    end: int
    code: tuple[int, ...]
    in_kernel: bool
    in_cpp: bool


def complete(source: str) -> str:
    """The cell as in the solution: without the marker lines.

    >>> complete("def f():\\n    # BEGIN SOLUTION\\n    return 1\\n    # END SOLUTION")
    'def f():\\n    return 1'
    """
    return "\n".join(line for line in source.split("\n") if line.strip() not in MARKERS)


def stub(source: str, exercise: str, where: str, first: int) -> str:
    """The cell as in the lab: each cut replaced by `# YOUR CODE` and a statement that keeps the cell valid.

    Host code raises NotImplementedError; a body of a `@triton.jit` function gets `pass`, so that it still compiles;
    C++ gets an `#error`, which a check reads as not started.

    >>> print(stub("def f():\\n    # BEGIN SOLUTION\\n    return 1\\n    # END SOLUTION", "00.f", "lab.py", 1))
    def f():
        # YOUR CODE (about 1 line)
        raise NotImplementedError("00.f is yours to write")
    """
    lines = source.split("\n")
    cuts = find_cuts(source, where, first)
    for cut in reversed(cuts):
        marker = lines[cut.begin]
        indent = marker[: len(marker) - len(marker.lstrip())]
        todo = f'"{exercise} is yours to write"'
        statement = (
            f"#error {todo}" if cut.in_cpp else "pass" if cut.in_kernel else f"raise NotImplementedError({todo})"
        )
        comment = "//" if cut.in_cpp else "#"
        about = f"{len(cut.code)} line" + "s" * (len(cut.code) > 1)
        lines[cut.begin : cut.end + 1] = [f"{indent}{comment} YOUR CODE (about {about})", f"{indent}{statement}"]
    text = "\n".join(lines)
    if cuts:
        _check_what_is_left(text, source, cuts, where, first)
    return text


def find_cuts(source: str, where: str, first: int) -> list[Cut]:
    """The cuts of a cell; `first` is the line of the file on which it starts.

    Raises ContentError for markers that are unbalanced, nested, misspelt, empty or outside a function.
    """
    nodes = list(ast.walk(ast.parse(source)))
    functions = [node for node in nodes if isinstance(node, Function)]
    texts = [node for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    lines = source.split("\n")
    cuts: list[Cut] = []
    begin: int | None = None
    for number, line in enumerate(lines):
        place, text = f"{where}:{first + number}", line.strip()
        in_cpp = any(node.lineno <= number + 1 <= (node.end_lineno or 0) for node in texts)
        opening, closing = (BEGIN_CPP, END_CPP) if in_cpp else (BEGIN, END)
        if text == opening:
            if begin is not None:
                raise ContentError(
                    f"{place}: a second `{opening}` before the `{closing}` of the one on line {first + begin}"
                )
            begin = number
        elif text == closing:
            if begin is None:
                raise ContentError(f"{place}: `{closing}` without a `{opening}` before it in this cell")
            cuts.append(_cut(begin, number, lines, functions, f"{where}:{first + begin}", in_cpp))
            begin = None
        elif _ALMOST.match(text):
            raise ContentError(f"{place}: found {text!r}; a marker is exactly `{opening}` or `{closing}`")
    if begin is not None:
        found = lines[begin].strip()
        raise ContentError(
            f"{where}:{first + begin}: `{found}` without an `{found.replace('BEGIN', 'END')}` after it in this cell"
        )
    return cuts


def _cut(begin: int, end: int, lines: list[str], functions: list[Function], place: str, in_cpp: bool) -> Cut:
    comment = "//" if in_cpp else "#"
    code = [n for n in range(begin + 1, end) if lines[n].strip() and not lines[n].lstrip().startswith(comment)]
    if not code:
        raise ContentError(f"{place}: no code between the markers")
    around = [
        node for node in functions if node.body[0].lineno <= code[0] + 1 and code[-1] + 1 <= (node.end_lineno or 0)
    ]
    if not around:
        raise ContentError(f"{place}: a cut lies inside the body of one function, so that the lab still runs")
    return Cut(begin, end, tuple(code), _is_kernel(max(around, key=lambda node: node.lineno)), in_cpp)


def _is_kernel(node: Function) -> bool:
    """Decorated with `@triton.jit`, `@jit` or a call of them."""
    for decorator in node.decorator_list:
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        if (target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")) == "jit":
            return True
    return False


def _check_what_is_left(text: str, source: str, cuts: list[Cut], where: str, first: int) -> None:
    """The stub parses, and no kernel in it uses a name that only the cut part bound: it would not compile."""
    place = f"{where}:{first + cuts[0].begin}"
    try:
        left = ast.parse(text)
    except SyntaxError as error:
        raise ContentError(f"{place}: what remains without the cut is not valid Python: {error.msg}") from None
    before = {node.name: node for node in ast.walk(ast.parse(source)) if isinstance(node, Function)}
    for kernel in (node for node in ast.walk(left) if isinstance(node, Function) and _is_kernel(node)):
        if lost := sorted((_bound(before[kernel.name]) - _bound(kernel)) & _used(kernel)):
            raise ContentError(f"{place}: after the cut {kernel.name} still uses {lost[0]!r}, which only the cut binds")


def _bound(node: ast.AST) -> set[str]:
    """The names that a function binds: its arguments and what it assigns. `x += 1` uses x and does not bind it."""
    added = {id(child.target) for child in ast.walk(node) if isinstance(child, ast.AugAssign)}
    arguments = {child.arg for child in ast.walk(node) if isinstance(child, ast.arg)}
    return arguments | {name.id for name in _names(node, ast.Store) if id(name) not in added}


def _used(node: ast.AST) -> set[str]:
    added = [child.target for child in ast.walk(node) if isinstance(child, ast.AugAssign)]
    return {name.id for name in (*_names(node, ast.Load), *added) if isinstance(name, ast.Name)}


def _names(node: ast.AST, context: type[ast.expr_context]) -> list[ast.Name]:
    return [child for child in ast.walk(node) if isinstance(child, ast.Name) and isinstance(child.ctx, context)]
