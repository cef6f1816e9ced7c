"""Answers to one exercise that are nearly the same, as pairs for a teacher to look at.

A pair is no verdict. Two people who solve a small task well write nearly the same, and a lab suggests how. So what
counts is only what a student wrote (the statements of the untouched lab do not), and

- an answer of fewer than MIN_TOKENS tokens is in no pair: everybody's is alike;
- a form that more than a quarter of the class wrote is in no pair: it is how this is done;
- a pair has MIN_RARE stretches of code in common that no more than a quarter of the class wrote.

Answers are compared by their syntax trees, in a normal form: names of the student's own, comments, docstrings,
annotations, the spelling of constants and the order of operands that may be swapped make no difference. Below 1, the
similarity is the share of stretches of STRETCH tokens (k-grams) that both have among those that either has, so that
moved and inserted lines cost little.

What it does not see: answers rewritten statement by statement, and C++ in a string, which is compared as a string.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

MIN_TOKENS = 60
MIN_RARE = 40
STRETCH = 6
THRESHOLD = 0.8
COMMON = 0.25
_NAME = "\0"
_SWAPPED: dict[type, type] = {ast.Gt: ast.Lt, ast.GtE: ast.LtE}
_COMMUTATIVE = (ast.Add, ast.Mult, ast.BitAnd, ast.BitOr, ast.BitXor)
_WORD = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True)
class Pair:
    """Two students whose answers are nearly the same: something to look at, which proves nothing.

    similarity  0 to 1; 1 where they are the same but for names, comments and the order of operands
    alike       how many of the class wrote the first one's form, these two among them where it is 1
    of          how many answers there are
    """

    first: str
    second: str
    similarity: float
    alike: int
    of: int

    def __str__(self) -> str:
        if self.similarity == 1:
            said = f"the same but for names and comments; {self.alike} of {self.of} wrote this"
        else:
            said = f"{self.similarity:.0%} of the code is the same but for names"
        return f"to look at: {self.first} and {self.second}, {said}"


@dataclass(frozen=True)
class _Form:
    """The normal form of an answer: its tokens, and the stretches of them with one word for all names."""

    exact: tuple[str, ...]
    stretches: frozenset[tuple[str, ...]]


def pairs(answers: Mapping[str, str], stub: str = "") -> list[Pair]:
    """The pairs of students to look at for one exercise, those whose form is rarest first.

    answers  student -> source of the answer; one that is not Python is in no pair
    stub     source of the answer's cell in the untouched lab, whose statements do not count
    """
    given = _given(stub)
    forms = {student: form for student, source in sorted(answers.items()) if (form := _form(source, given))}
    most = max(2, int(COMMON * len(answers)))
    counts = Counter(form.exact for form in forms.values())
    common = Counter(stretch for form in forms.values() for stretch in form.stretches)
    bits = {stretch: 1 << at for at, stretch in enumerate(known for known, times in common.items() if times <= most)}
    rare = {
        student: sum(bits[stretch] for stretch in form.stretches if stretch in bits)
        for student, form in forms.items()
        if len(form.exact) >= MIN_TOKENS and counts[form.exact] <= most
    }
    found = []
    for first, second in combinations(rare, 2):
        if (rare[first] & rare[second]).bit_count() < MIN_RARE:
            continue
        similarity = _similarity(forms[first], forms[second])
        if similarity >= THRESHOLD:
            found.append(Pair(first, second, similarity, counts[forms[first].exact], len(answers)))
    return sorted(found, key=lambda pair: (-pair.similarity, pair.alike, pair.first, pair.second))


def _similarity(one: _Form, other: _Form) -> float:
    if one.exact == other.exact:
        return 1.0
    return min(0.99, len(one.stretches & other.stretches) / len(one.stretches | other.stretches))


# --- the normal form ---


class _Given(NamedTuple):
    """Of the untouched lab: its statements as words, and the names of its functions, whose heads do not count."""

    statements: frozenset[tuple[str, ...]] = frozenset()
    functions: frozenset[str] = frozenset()


def _given(stub: str) -> _Given:
    tree = _parsed(stub)
    if tree is None:
        return _Given()
    words = _Words(_bound(tree), _Given())
    statements = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
    functions = frozenset(node.name for node in statements if isinstance(node, ast.FunctionDef))
    return _Given(frozenset(tuple(words.of(node)) for node in statements if not hasattr(node, "body")), functions)


def _form(source: str, given: _Given) -> _Form | None:
    tree = _parsed(source)
    if tree is None:
        return None
    try:
        bound = _bound(tree)
        words = _Words(bound, given).of(tree)
    except RecursionError:
        return None
    exact = tuple(bound.get(word, word) for word in words)
    plain = tuple("a name" if word in bound else word for word in words)
    return _Form(exact, frozenset(plain[at : at + STRETCH] for at in range(len(plain) - STRETCH + 1)))


def _parsed(source: str) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes in strings
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _bound(tree: ast.AST) -> dict[str, str]:
    """Names that an answer itself binds, marked as in `_Words` -> their number, in the order in which it binds them."""
    found: dict[str, str] = {}
    nodes = deque([tree])
    while nodes:
        node = nodes.popleft()
        name = ""
        if isinstance(node, ast.Name):
            name = "" if isinstance(node.ctx, ast.Load) else node.id
        elif isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            name = node.name
        if name:
            found.setdefault(_NAME + name, f"name {len(found)}")
        for field in node._fields:
            value = getattr(node, field, None)
            if isinstance(value, ast.AST):
                nodes.append(value)
            elif isinstance(value, list):
                nodes.extend(child for child in value if isinstance(child, ast.AST))
    return found


class _Words:
    """A tree as words: kinds of nodes, names (marked by _NAME), attributes, constants by their value.

    Left out are docstrings, `pass`, annotations, and what the lab gives. Operands that may be swapped come in one
    order, which names of the student's own do not change.
    """

    def __init__(self, bound: Mapping[str, str], given: _Given) -> None:
        self._bound, self._given = bound, given

    def of(self, node: ast.AST) -> list[str]:
        if isinstance(node, ast.Name):
            return [_NAME + node.id]
        if isinstance(node, ast.Constant):
            return _WORD.findall(node.value) if isinstance(node.value, str) else [repr(node.value)]
        if isinstance(node, ast.arg):
            return [_NAME + node.arg]
        words = self._special(node)
        if words is None:
            words = [type(node).__name__]
            for field in node._fields:
                words += self._value(getattr(node, field, None))
        return [] if isinstance(node, ast.stmt) and tuple(words) in self._given.statements else words

    def _value(self, value: Any) -> list[str]:
        if isinstance(value, ast.AST):
            return [] if isinstance(value, ast.expr_context) else self.of(value)
        if isinstance(value, list):
            return [word for child in value for word in self._value(child)]
        return [value] if isinstance(value, str) else []

    def _special(self, node: ast.AST) -> list[str] | None:
        """The words of a node that is not taken field by field; None for the others."""
        if isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            return []
        if isinstance(node, ast.FunctionDef):
            head = (
                [] if node.name in self._given.functions else [*self.of(node.args), *self._value(node.decorator_list)]
            )
            return ["FunctionDef", _NAME + node.name, *head, *self._value(node.body)]
        if isinstance(node, ast.AnnAssign):
            return ["Assign", *self.of(node.target), *self.of(node.value)] if node.value else []
        if isinstance(node, ast.BinOp) and isinstance(node.op, _COMMUTATIVE):
            return ["BinOp", type(node.op).__name__, *self._in_order([node.left, node.right])]
        if isinstance(node, ast.BoolOp):
            return ["BoolOp", type(node.op).__name__, *self._in_order(node.values)]
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            operator, sides = type(node.ops[0]), [node.left, node.comparators[0]]
            if operator in _SWAPPED:
                operator, sides = _SWAPPED[operator], sides[::-1]
            swapped = operator in (ast.Eq, ast.NotEq)
            return ["Compare", operator.__name__, *(self._in_order(sides) if swapped else self._value(sides))]
        return None

    def _in_order(self, nodes: Sequence[ast.AST]) -> list[str]:
        operands = [self.of(node) for node in nodes]
        operands.sort(key=lambda words: [self._bound.get(word, word) for word in words])
        return [word for words in operands for word in words]
