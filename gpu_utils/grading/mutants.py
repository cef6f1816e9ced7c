"""Mutants: the solution of an exercise with one small mistake in it, each of which the grader must fail.

The mistakes are tables of our own (`mutants_python`, `mutants_cpp`, `mutants_assembly`). Those of cosmic-ray and mutmut
know Python's operators, but no mask, barrier, axis, cast or missing factor, and come with a database and a runner for
test suites; those of universalmutator are patterns on lines, hundreds for a kernel, of which most do not compile.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple


class Edit(NamedTuple):
    """source[start:end] becomes `text`; `what` names the kind of mistake."""

    what: str
    start: int
    end: int
    text: str


@dataclass(frozen=True)
class Mutant:
    """A solution with one mistake.

    what    the kind of mistake, as in the tables of operators: "comparison"
    source  the whole answer cell
    line    the first changed line, from 1
    before  the changed lines of the solution, without indentation and in one line
    after   what they became, likewise. `before` and `after` name a mutant while other lines change
    """

    what: str
    source: str
    line: int
    before: str
    after: str

    @property
    def key(self) -> tuple[str, str]:
        return self.before, self.after

    def diff(self, solution: str) -> str:
        """The change as a unified diff without its file names."""
        lines = difflib.unified_diff(solution.splitlines(), self.source.splitlines(), lineterm="", n=1)
        return "\n".join(list(lines)[2:])


def mutants_of(solution: str, written: Iterable[int], cpp: bool) -> list[Mutant]:
    """The mutants of an answer cell, each text once, in the order of its lines.

    solution  the complete answer cell
    written   the lines that the learner writes, from 1; nothing else is changed
    cpp       whether these lines are C++ in a string; else machine code in strings is changed too

    >>> cell = "def double(x):\\n    return 2 * x"
    >>> [mutant.after for mutant in mutants_of(cell, [2], cpp=False)]  # doctest: +ELLIPSIS
    ['return 2 + x', 'return 2', 'return x', 'return 3 * x', 'return 1 * x']
    """
    from gpu_utils.grading import mutants_assembly, mutants_cpp, mutants_python

    lines = frozenset(written)
    language = mutants_cpp if cpp else mutants_python
    in_strings = () if cpp else mutants_assembly.edits(solution, lines)
    found: dict[str, Mutant] = {}
    for edit in (*language.edits(solution, lines), *in_strings):
        source = solution[: edit.start] + edit.text + solution[edit.end :]
        if source not in found:
            found[source] = _mutant(edit.what, solution, source)
    original = language.normal(solution)
    kept = [mutant for source, mutant in found.items() if language.normal(source) != original]
    return sorted(kept, key=lambda mutant: mutant.line)


def _mutant(what: str, solution: str, source: str) -> Mutant:
    old, new = solution.splitlines(), source.splitlines()
    first = next(i for i in range(len(old)) if i >= len(new) or old[i] != new[i])
    same = 0
    while same < min(len(old), len(new)) - first and old[-1 - same] == new[-1 - same]:
        same += 1
    before, after = old[first : len(old) - same], new[first : len(new) - same]
    return Mutant(what, source, first + 1, in_one_line(before), in_one_line(after))


def in_one_line(lines: Iterable[str]) -> str:
    """Lines as a mutant's key has them: single spaces, no indentation."""
    return " ".join(" ".join(lines).split())
