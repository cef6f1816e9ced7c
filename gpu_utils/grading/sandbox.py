"""Running an answer in a process of its own, started clean: the check of the command line, the one that counts.

The child gets the learner's source and the inputs, never the expected values, and writes raw attempts to a folder.
Whatever it does to itself (exit, crash, endless loop) costs this exercise only, and what it has started ends with it,
also what has left its group. The attempts are read back with `weights_only=True`, and field by field only what such a
field can hold, so that nothing in a result can run code here.

What this does not do: it runs with the learner's own rights, as their notebook does. An answer can import the course
and ask for a reference, write numbers of launches that never were, or end the command itself, which prints and stores
each report before the next answer starts. Who grades the notebooks of others needs walls around the whole.
"""

from __future__ import annotations
import __future__

import ast
import asyncio
import contextlib
import dataclasses
import inspect
import linecache
import multiprocessing
import os
import signal
import sys
import tempfile
import time
import types
from collections.abc import Callable, Generator, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

from gpu_utils.backends import backend
from gpu_utils.errors import CheckTimeout
from gpu_utils.grading import fork_server, processes
from gpu_utils.grading.check import Runner
from gpu_utils.grading.execute import Attempt, learner_line, run, signature_problem
from gpu_utils.grading.exercise import Exercise
from gpu_utils.grading.jobs import Job
from gpu_utils.grading.plain import NotPlain, plain
from gpu_utils.grading.program import Part, Program
from gpu_utils.grading.report import Mode
from gpu_utils.grading.surroundings import TimeLimit

START_SECONDS = 60.0
"""For starting the process and running the learner's cells, before the first case."""

GRACE_SECONDS = 5.0
"""On top of an exercise's own limit, before the process is ended from outside."""


def run_apart(program: Program, find: Callable[[str], Exercise]) -> Runner:
    """A runner for the program of an answer, in another process.

    find  the registry's look-up, a module-level function, because the child looks the exercise up by its id
    """

    def runner(exercise: Exercise, jobs: Sequence[Job]) -> Generator[Attempt, None, None]:
        with tempfile.TemporaryDirectory(prefix="w2w-check-", ignore_cleanup_errors=True) as name:
            folder = Path(name)
            torch.save(
                [(job.backend, job.inputs, job.compile_targets, job.mode.name) for job in jobs], folder / "jobs.pt"
            )
            fork_server.start()
            forking = multiprocessing.get_context("forkserver")
            process = forking.Process(target=_child, args=(find, exercise.id, str(folder), program), daemon=True)
            process.start()
            assert process.pid is not None
            server = processes.parent_of(process.pid)
            try:
                yield from _collect(exercise, process, folder, len(jobs))
            finally:
                process.kill()
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                if server is not None:
                    processes.end_below(server)  # what the answer has started, in whatever group it is now
                process.join()

    return runner


def _collect(exercise: Exercise, process: BaseProcess, folder: Path, count: int) -> Generator[Attempt, None, None]:
    for number in range(count):
        start = START_SECONDS if number == 0 else 0.0
        attempt = _next(process, folder / f"{number}.pt", start + exercise.seconds + GRACE_SECONDS)
        if attempt is None:
            message = f"did not come back within {exercise.seconds + GRACE_SECONDS:g} s and was ended"
            attempt = Attempt(error="timeout", message=message)
        yield attempt
        if attempt.final or attempt.error == "died":
            return


def _next(process: BaseProcess, path: Path, seconds: float) -> Attempt | None:
    """What the process wrote to this path, or how it died; None when the time is over."""
    deadline = time.monotonic() + seconds
    while time.monotonic() <= deadline:
        if path.exists():
            return _load(path)
        if not process.is_alive() and not path.exists():
            return Attempt(error="died", message=_death(process.exitcode))
        process.join(0.02)
    return None


def _death(code: int | None) -> str:
    how = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
    return f"the process ended ({how}) before it gave a result; does the answer exit, or crash in compiled code?"


def _load(path: Path) -> Attempt:
    try:
        with torch.serialization.safe_globals([NotPlain]):
            fields = torch.load(path, weights_only=True)
        return _attempt(fields)
    except Exception as problem:
        what = str(problem) if isinstance(problem, TypeError) else type(problem).__name__
        return Attempt(error="died", message=f"the answer's process gave something else than a result ({what})")


def _attempt(fields: Any) -> Attempt:
    """An Attempt from what the child wrote. Raises TypeError, in words, for a field that no attempt of ours has so."""
    expected = {field.name: field for field in dataclasses.fields(Attempt)}
    if not isinstance(fields, dict) or set(fields) != set(expected):
        raise TypeError("it has other fields than an attempt")
    blank = Attempt()
    for name, found in fields.items():
        kind = type(getattr(blank, name))
        if name != "value" and (type(found) is not kind or not _holds(found, _ITEMS.get(name, ()))):
            raise TypeError(f"its field {name} is of another kind")
    return Attempt(**{**fields, "value": plain(fields["value"])})


_ITEMS: dict[str, tuple[type, ...]] = {"mutated": (str,), "counters": (int, float), "compiled": (str,)}


def _holds(found: Any, kinds: tuple[type, ...]) -> bool:
    if isinstance(found, dict):
        return all(type(key) is str and type(item) in kinds for key, item in found.items())
    return not isinstance(found, tuple) or all(type(item) in kinds for item in found)


def _child(find: Callable[[str], Exercise], exercise_id: str, folder_name: str, program: Program) -> None:
    os.setsid()
    folder = Path(folder_name)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    exercise = find(exercise_id)
    jobs = torch.load(folder / "jobs.pt", weights_only=True)
    answer, problem = _answer(exercise, program, folder)
    for index, (name, inputs, targets, mode) in enumerate(jobs):
        attempt = problem or run(exercise, answer, inputs, backend(name), tuple(targets), Mode[mode])
        if attempt.error == "NameError" and problem is None:
            attempt.message += _about_missing(program, attempt.message)
        _store(attempt, folder / f"{index}.pt")
        if attempt.final:
            return


def _about_missing(program: Program, message: str) -> str:
    missing = message.split("'")[1] if message.count("'") > 1 else ""
    return f"; {program.why_missing(missing)}" if "is not defined" in message else ""


class _NoShell:
    """Stands for IPython's shell, which a check does not have: whatever is called on it does nothing."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **kwargs: None


def _answer(exercise: Exercise, program: Program, folder: Path) -> tuple[Any, Attempt | None]:
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
                problem.message += _about_missing(program, problem.message)
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


def _store(attempt: Attempt, path: Path) -> None:
    fields = {field.name: getattr(attempt, field.name) for field in dataclasses.fields(attempt)}
    part = path.with_suffix(".part")
    try:
        torch.save(fields, part)
    except Exception as problem:
        found = NotPlain(f"something that cannot be handed over ({type(problem).__name__})")
        torch.save({**fields, "value": found}, part)
    part.rename(path)
