"""The grader fails solutions with one small mistake in them: a sample here, all of them in `w2w bench grading`."""

from __future__ import annotations

import ast
import doctest
import inspect
import random
import re
from collections.abc import Callable
from typing import Any

import pytest

from gpu_utils import exercises
from gpu_utils.course import sources
from gpu_utils.grading.check import check
from gpu_utils.grading.execute import same
from gpu_utils.grading.exercise import Exercise
from gpu_utils.grading.mutant_trials import mutants, try_all
from gpu_utils.grading.mutants import Mutant
from tests.conftest import unavailable
from tests.content.conftest import answer_cell, lab_cells

EXAMPLES_OWED: set[str] = set()
"""Exercises that do not run their own examples yet; an `Example` among their cases does it."""

DRAWN = 3
"""Mutants of each exercise that are tried here."""

EVERY = exercises.every()
each = pytest.mark.parametrize("exercise", EVERY, ids=lambda exercise: exercise.id)


@pytest.mark.drawn("all", 2)
@each
def test_a_sample_of_mutants_fails_the_check(exercise):
    tasks = [(exercise.id, mutant) for mutant in sample(exercise)]
    tried = list(try_all(tasks, exercises.find, processes=1))
    assert len(tried) == len(tasks)
    faults = [
        f"{name}: {found.verdict}, {found.by}\n{mutant.diff(sources.solution(name))}"
        for name, mutant, found in tried
        if found.verdict == "survived"
    ]
    assert not faults, "\n".join(faults)
    if any(found.verdict == "not tried" for _, _, found in tried):
        unavailable("without a compiler for C++ its mutants cannot be tried")


def sample(exercise: Exercise) -> list[Mutant]:
    """Some of the mutants that are wrong, the same ones until the solution changes."""
    known = exercises.equivalents(exercise.id)
    wrong = [mutant for mutant in mutants(exercise) if mutant.key not in known]
    return random.Random(exercise.id).sample(wrong, min(DRAWN, len(wrong)))


@pytest.mark.drawn("unit", 1)
@each
def test_every_equivalent_mutant_is_a_mutant_of_the_solution_and_has_a_reason(exercise):
    known = exercises.equivalents(exercise.id)
    stale = set(known) - {mutant.key for mutant in mutants(exercise)}
    assert not stale, f"take these out of equivalent.toml, the solution has changed: {stale}"
    assert all(len(reason) > 20 for reason in known.values())


# --- examples are cases -----------------------------------------------------------------------------------------


@each
def test_an_answer_that_fails_an_example_of_its_docstring_or_statement_fails_the_check(exercise, load):
    solution = load(exercise.id, "solution")
    unchecked = [given for given in examples(exercise, solution) if not is_checked(exercise, solution, given)]
    if exercise.id in EXAMPLES_OWED:
        assert unchecked, f"all its examples are checked: take {exercise.id} out of EXAMPLES_OWED"
    else:
        assert not unchecked, f"no case of {exercise.id} is this example"


def is_checked(exercise: Exercise, solution: Callable[..., Any], given: dict[str, Any]) -> bool:
    """Whether an answer that is right everywhere but there fails."""

    def wrong_there(**inputs: Any) -> Any:
        return None if same(inputs, given) else solution(**inputs)

    return check(exercise, wrong_there, seed=1).status == "failed"


def examples(exercise: Exercise, solution: Callable[..., Any]) -> list[dict[str, Any]]:
    """The inputs of every example call in the docstring of the answer, and of literal ones in the statement."""
    calls: list[dict[str, Any]] = []
    signature = inspect.signature(solution)

    def noted(*args: Any, **kwargs: Any) -> Any:
        calls.append(dict(signature.bind(*args, **kwargs).arguments))
        return solution(*args, **kwargs)

    for test in doctest.DocTestFinder(recurse=False).find(solution, exercise.name, globs=solution.__globals__):
        test.globs[exercise.name] = noted
        doctest.DocTestRunner(verbose=False).run(test, out=lambda _: None)
    return calls + [call for text in statement_code(exercise) for call in literal_calls(text, exercise.name, signature)]


def statement_code(exercise: Exercise) -> list[str]:
    """The code in the statement of an exercise: between single backquotes, and lines of fenced blocks."""
    cells = lab_cells(exercise.unit)
    statement = cells[cells.index(answer_cell(exercise.id)) - 1].source
    fenced = re.findall(r"```\w*\n(.*?)```", statement, re.DOTALL)
    return [
        *re.findall(r"(?<!`)`([^`\n]+)`(?!`)", statement),
        *(line for block in fenced for line in block.split("\n")),
    ]


def literal_calls(text: str, name: str, signature: inspect.Signature) -> list[dict[str, Any]]:
    try:
        nodes = list(ast.walk(ast.parse(text.strip().removeprefix(">>> "))))
    except SyntaxError:
        return []
    found = []
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name and node.args:
            try:
                args = [ast.literal_eval(arg) for arg in node.args]
                kwargs = {word.arg: ast.literal_eval(word.value) for word in node.keywords if word.arg}
                found.append(dict(signature.bind(*args, **kwargs).arguments))
            except (ValueError, TypeError):
                continue  # names, as in a signature: `saxpy(a, x, y)`
    return found
