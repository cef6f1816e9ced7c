"""From the cells of an answer to the learner's function, in a process that is there for nothing else."""

from __future__ import annotations
import __future__

import ast
import asyncio
import contextlib
import inspect
import linecache
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpu_utils.errors import CheckTimeout
from gpu_utils.grading.execute import Attempt, Contract, learner_line, signature_problem
from gpu_utils.grading.program import Part, Program
from gpu_utils.grading.surroundings import TimeLimit

START_SECONDS = 60.0
"""For starting the process and running the learner's cells, before the first case."""


def about_missing(program: Program, message: str) -> str:
    missing = message.split("'")[1] if message.count("'") > 1 else ""
    return f"; {program.why_missing(missing)}" if "is not defined" in message else ""


class _NoShell:
    """Stands for IPython's shell, which a check does not have: whatever is called on it does nothing."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **kwargs: None


def answer_of(exercise: Contract, program: Program, folder: Path) -> tuple[Any, Attempt | None]:
    """The learner's function, or the attempt that says why there is none."""
    module = types.ModuleType("answer")
    sys.modules["answer"] = module  # where dataclasses and pickle look
    namespace = vars(module)
    namespace.update(display=print, get_ipython=_NoShell)
    futures = 0
    for name in program.futures:
        futures |= getattr(__future__, name).compiler_flag
    deadline = time.monotonic() + START_SECONDS / 2
    for part in program.parts:
        problem = _run_part(part, namespace, futures, folder, max(0.1, deadline - time.monotonic()))
        if problem is not None:
            if problem.error == "cell":
                problem.message += about_missing(program, problem.message)
            return None, problem
    answer = namespace.get(exercise.name)
    if answer is None:
        message = f"there is no function {exercise.name} in the answer cell; expected {exercise.signature}"
        return None, Attempt(error="missing", message=message)
    wrong = signature_problem(exercise, answer)
    return answer, Attempt(error="signature", message=wrong) if wrong else None


def _run_part(part: Part, namespace: dict[str, Any], futures: int, folder: Path, seconds: float) -> Attempt | None:
    """Execute a cell, with the `await` that a notebook allows; why it could not be, or None."""
    path = folder / f"{part.name.replace(' ', '_')}.py"  # a file of its own, so that its lines can be quoted
    path.write_text(part.source, encoding="utf-8")
    linecache.getlines(str(path))
    namespace["__file__"] = str(path)
    try:
        with TimeLimit(seconds), contextlib.suppress(SystemExit):
            flags = futures | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
            code = compile(part.source, str(path), "exec", flags=flags, dont_inherit=True)
            if code.co_flags & inspect.CO_COROUTINE:
                asyncio.run(eval(code, namespace))
            else:
                exec(code, namespace)
    except CheckTimeout:
        return Attempt(error="timeout", message=f"{part.name} itself ran for over {START_SECONDS / 2:g} s")
    except BaseException as problem:
        line = learner_line(problem)
        said = f"{type(problem).__name__}: {problem}{f' ({line})' if line else ''}"
        return Attempt(error="cell", message=f"{part.name} itself failed: {said}")
    return None
