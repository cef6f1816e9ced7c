"""Running an answer in a process of its own, started clean: the check of the command line.

The child gets the learner's source and the inputs, never the expected values, and writes raw attempts to a folder.
Whatever it does to itself (exit, crash, endless loop) costs this exercise only, and what it has started ends with it.
The attempts are read back with `weights_only=True`, so that nothing in a result can run code here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import linecache
import multiprocessing
import os
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

from gpu_utils.backends import backend
from gpu_utils.errors import CheckTimeout
from gpu_utils.grading import fork_server
from gpu_utils.grading.check import Runner
from gpu_utils.grading.execute import Attempt, learner_line, run, signature_problem, time_limit
from gpu_utils.grading.exercise import Exercise
from gpu_utils.grading.jobs import Job
from gpu_utils.grading.report import Mode

START_SECONDS = 60.0
"""For starting the process and running the learner's cells, before the first case."""

GRACE_SECONDS = 5.0
"""On top of an exercise's own limit, before the process is ended from outside."""


def run_apart(source: str, find: Callable[[str], Exercise]) -> Runner:
    """A runner for `source`, the setup cell and the answer cell of a notebook, in another process.

    find  the registry's look-up, a module-level function, because the child looks the exercise up by its id
    """

    def runner(exercise: Exercise, jobs: Sequence[Job]) -> list[Attempt]:
        with tempfile.TemporaryDirectory(prefix="w2w-check-") as name:
            folder = Path(name)
            (folder / "answer.py").write_text(source, encoding="utf-8")
            torch.save(
                [(job.backend, job.inputs, job.compile_targets, job.mode.name) for job in jobs], folder / "jobs.pt"
            )
            fork_server.start()
            forking = multiprocessing.get_context("forkserver")
            process = forking.Process(target=_child, args=(find, exercise.id, str(folder)), daemon=True)
            process.start()
            try:
                return _collect(exercise, process, folder, len(jobs))
            finally:
                process.kill()
                assert process.pid is not None
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # and what the answer has started
                process.join()

    return runner


def _collect(exercise: Exercise, process: BaseProcess, folder: Path, count: int) -> list[Attempt]:
    attempts: list[Attempt] = []
    deadline = time.monotonic() + START_SECONDS + exercise.seconds + GRACE_SECONDS
    while len(attempts) < count:
        path = folder / f"{len(attempts)}.pt"
        if path.exists():
            attempts.append(_load(path))
            if attempts[-1].final:
                return attempts
            deadline = time.monotonic() + exercise.seconds + GRACE_SECONDS
        elif not process.is_alive() and not path.exists():
            attempts.append(Attempt(error="died", message=_death(process.exitcode)))
            return attempts
        elif time.monotonic() > deadline:
            message = f"did not come back within {exercise.seconds + GRACE_SECONDS:g} s and was ended"
            attempts.append(Attempt(error="timeout", message=message))
            return attempts
        else:
            process.join(0.02)
    return attempts


def _death(code: int | None) -> str:
    how = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
    return f"the process ended ({how}) before it gave a result; does the answer exit, or crash in compiled code?"


def _load(path: Path) -> Attempt:
    try:
        fields = torch.load(path, weights_only=True)
        return Attempt(**fields)
    except Exception as problem:
        return Attempt(error="died", message=f"the result could not be read back ({type(problem).__name__})")


def _child(find: Callable[[str], Exercise], exercise_id: str, folder_name: str) -> None:
    os.setsid()
    folder = Path(folder_name)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    exercise = find(exercise_id)
    jobs = torch.load(folder / "jobs.pt", weights_only=True)
    answer, problem = _answer(exercise, folder / "answer.py")
    for index, (name, inputs, targets, mode) in enumerate(jobs):
        attempt = problem or run(exercise, answer, inputs, backend(name), tuple(targets), Mode[mode])
        _store(attempt, folder / f"{index}.pt")
        if attempt.final:
            return


def _answer(exercise: Exercise, path: Path) -> tuple[Any, Attempt | None]:
    """The learner's function, or the attempt that says why there is none."""
    linecache.getlines(str(path))  # so that a line of the answer can be quoted
    namespace: dict[str, Any] = {"__name__": "answer", "__file__": str(path)}
    try:
        with time_limit(START_SECONDS / 2), contextlib.suppress(SystemExit):
            exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), namespace)
    except CheckTimeout:
        return None, Attempt(error="timeout", message=f"the cell itself ran for over {START_SECONDS / 2:g} s")
    except Exception as problem:
        line = learner_line(problem)
        message = f"the cell itself failed: {type(problem).__name__}: {problem}{f' ({line})' if line else ''}"
        if isinstance(problem, NameError):
            message += "; a check runs only the setup cell and the answer cell, so keep what the answer needs in them"
        return None, Attempt(error="cell", message=message)
    answer = namespace.get(exercise.name)
    if answer is None:
        message = f"there is no function {exercise.name} in the answer cell; expected {exercise.signature}"
        return None, Attempt(error="missing", message=message)
    wrong = signature_problem(exercise, answer)
    return answer, Attempt(error="signature", message=wrong) if wrong else None


def _store(attempt: Attempt, path: Path) -> None:
    fields = {field.name: getattr(attempt, field.name) for field in dataclasses.fields(attempt)}
    part = path.with_suffix(".part")
    try:
        torch.save(fields, part)
        torch.load(part, weights_only=True)
    except Exception:
        # a value that is not plain data cannot be right; its type is what the learner needs to hear
        torch.save({**fields, "value": f"<{type(attempt.value).__name__}>"}, part)
    part.rename(path)
