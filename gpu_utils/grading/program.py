"""What the command line runs of a notebook for one answer: the setup cell, what the answer needs, and the answer.

A notebook's kernel has run every cell; a check runs as little as it can, because a cell may train for an hour, ask the
network or delete a file. So of the learner's other cells, their own or those of other answers, it takes

- functions, classes, imports and assignments without a call (`tl.constexpr(...)` apart, which Triton asks for),
- and of these only what the answer names, or what these name in turn: the last definition above the answer, or where
  there is none, the last one below.

No other statement of another cell runs, and no magic anywhere. Each cell keeps its own numbers of lines.
"""

from __future__ import annotations
import __future__

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

SETUP = "the setup cell"
TAKEN = "functions, classes, imports and values without a call"


@dataclass(frozen=True)
class Part:
    """Python to execute. `name` is for the learner: SETUP, "cell 7"."""

    name: str
    source: str


@dataclass(frozen=True)
class Program:
    """Parts in the order in which they run.

    futures    names of `from __future__ import`, which hold for all parts, as in a notebook
    not_taken  name -> the number of the cell that sets it by a statement which a check does not run
    """

    parts: Sequence[Part]
    futures: frozenset[str] = frozenset()
    not_taken: Mapping[str, int] = field(default_factory=dict)

    def why_missing(self, name: str) -> str:
        """What to do about a name that is not defined, as the rest of a sentence."""
        if name in self.not_taken:
            return (
                f"cell {self.not_taken[name]} sets {name} by a statement that a check does not run; of other cells it "
                f"takes {TAKEN}, so move that statement into the answer's cell"
            )
        if not any(part.name == SETUP for part in self.parts):
            return "this notebook has no cell tagged setup: copy that cell from the untouched lab into it"
        return f"a check runs the setup cell and the answer's cell, and takes {TAKEN} from the others"


@dataclass(frozen=True)
class _Definition:
    name: str
    cell: int
    node: ast.stmt


def make_program(setup: str, answer: Sequence[tuple[int, str]], others: Sequence[tuple[int, str]]) -> Program:
    """The program of one answer.

    setup       source of the setup cell
    answer      (number, source) of its cells, in the order in which they run
    others      the same of every other code cell that is Python
    """
    place = answer[-1][0] if answer else 0
    sources = [source for _, source in answer]
    definitions, not_taken = _definitions(others)
    own = {name for source in sources for name in bound(_tree(source))}
    needed = _needed([_tree(source) for source in sources], own, definitions, place)
    parts = [Part(SETUP, setup)] if setup else []
    for number, source in others:
        nodes = [one.node for one in needed if one.cell == number]
        if nodes:
            parts.append(Part(f"cell {number}", _only(source, nodes)))
    parts += [Part(f"cell {number}", source) for number, source in answer]
    above = [setup, *sources, *(source for number, source in others if number < place)]
    futures = frozenset(name for source in above for name in _futures(source))
    return Program(tuple(parts), futures, {name: cell for name, cell in not_taken.items() if name not in own})


@lru_cache(maxsize=512)
def _tree(source: str) -> ast.Module:
    """A cell's syntax tree, which nobody may change: every answer of a notebook looks at every cell."""
    return ast.parse(source)


def bound(tree: ast.AST) -> set[str]:
    """The names that the top level of a module binds, in whatever way; those of `import *` are not known."""
    names: set[str] = set()
    waiting = list(ast.iter_child_nodes(tree))
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {alias.asname or alias.name.split(".")[0] for alias in node.names} - {"*"}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif not isinstance(node, (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            waiting += ast.iter_child_nodes(node)
    return names


def _futures(source: str) -> Iterator[str]:
    for node in _tree(source).body:
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            yield from (alias.name for alias in node.names if alias.name in __future__.all_feature_names)


def _definitions(cells: Sequence[tuple[int, str]]) -> tuple[list[_Definition], dict[str, int]]:
    definitions: list[_Definition] = []
    not_taken: dict[str, int] = {}
    for number, source in cells:
        taken, left = _of_cell(number, source)
        definitions += taken
        not_taken |= left
    return definitions, not_taken


@lru_cache(maxsize=512)
def _of_cell(number: int, source: str) -> tuple[list[_Definition], dict[str, int]]:
    taken: list[_Definition] = []
    left: dict[str, int] = {}
    for node in _tree(source).body:
        names = bound(ast.Module([node], []))
        if _runs_nothing(node):
            taken += [_Definition(name, number, node) for name in names]
        else:
            left |= dict.fromkeys(names, number)
    return taken, left


def _runs_nothing(node: ast.stmt) -> bool:
    """A definition, an import, or an assignment to names whose value calls nothing but `constexpr`."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)):
        return True
    if isinstance(node, ast.Assign):
        simple = all(isinstance(target, (ast.Name, ast.Tuple)) for target in node.targets)
    else:
        simple = isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    return simple and not any(_calls(inner) or isinstance(inner, ast.Await) for inner in _evaluated(node))


def _evaluated(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a statement that are evaluated with it: not the bodies of lambdas."""
    waiting: list[ast.AST] = [node]
    while waiting:
        inner = waiting.pop()
        yield inner
        if not isinstance(inner, ast.Lambda):
            waiting += ast.iter_child_nodes(inner)


def _calls(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and not ast.unparse(node.func).endswith("constexpr")


def _needed(
    answer: Sequence[ast.Module], own: set[str], definitions: Sequence[_Definition], place: int
) -> list[_Definition]:
    chosen: dict[str, _Definition] = {}
    wanted = [name for tree in answer for name in _used(tree)]
    while wanted:
        name = wanted.pop()
        if name in own or name in chosen:
            continue
        found = [one for one in definitions if one.name == name]
        above = [one for one in found if one.cell < place]
        if found:
            chosen[name] = (above or found)[-1]
            wanted += _used(chosen[name].node)
    return list(chosen.values())


def _used(tree: ast.AST) -> list[str]:
    return [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]


def _only(source: str, nodes: Sequence[ast.stmt]) -> str:
    """The statements `nodes` of a cell on their own lines, and nothing else of it."""
    lines = source.split("\n")
    kept = [""] * len(lines)
    statements = _tree(source).body
    for node in (node for node in statements if node in nodes):
        first, last = _span(node)
        if any(other is not node and _overlap(_span(other), (first, last)) for other in statements):
            kept.append(ast.unparse(node))  # it shares a line with a statement that must not run
        else:
            kept[first - 1 : last] = lines[first - 1 : last]
    return "\n".join(kept)


def _span(node: ast.stmt) -> tuple[int, int]:
    decorators = getattr(node, "decorator_list", [])
    return min([node.lineno, *(one.lineno for one in decorators)]), node.end_lineno or node.lineno


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]
