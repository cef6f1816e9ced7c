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

import contextlib
import multiprocessing
import os
import signal
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch

from gpu_utils.backends import backend
from gpu_utils.grading import fork_server, processes
from gpu_utils.grading.answering import START_SECONDS, about_missing, answer_of
from gpu_utils.grading.check import Runner
from gpu_utils.grading.execute import Attempt, run
from gpu_utils.grading.exercise import Exercise
from gpu_utils.grading.handing_over import attempt_of, fields_of
from gpu_utils.grading.jobs import Job
from gpu_utils.grading.plain import NotPlain
from gpu_utils.grading.program import Program
from gpu_utils.grading.report import Mode

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
        return attempt_of(fields)
    except Exception as problem:
        what = str(problem) if isinstance(problem, TypeError) else type(problem).__name__
        return Attempt(error="died", message=f"the answer's process gave something else than a result ({what})")


def _child(find: Callable[[str], Exercise], exercise_id: str, folder_name: str, program: Program) -> None:
    os.setsid()
    folder = Path(folder_name)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    exercise = find(exercise_id)
    jobs = torch.load(folder / "jobs.pt", weights_only=True)
    answer, problem = answer_of(exercise, program, folder)
    for index, (name, inputs, targets, mode) in enumerate(jobs):
        attempt = problem or run(exercise, answer, inputs, backend(name), tuple(targets), Mode[mode])
        if attempt.error == "NameError" and problem is None:
            attempt.message += about_missing(program, attempt.message)
        _store(attempt, folder / f"{index}.pt")
        if attempt.final:
            return


def _store(attempt: Attempt, path: Path) -> None:
    fields = fields_of(attempt)
    part = path.with_suffix(".part")
    try:
        torch.save(fields, part)
    except Exception as problem:
        found = NotPlain(f"something that cannot be handed over ({type(problem).__name__})")
        torch.save({**fields, "value": found}, part)
    part.rename(path)
