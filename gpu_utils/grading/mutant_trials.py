"""Trying mutants on the grader, each until its first failure; many at a time in processes of their own."""

from __future__ import annotations

import multiprocessing
import os
import queue
import resource
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from gpu_utils.backends import backend
from gpu_utils.chips.npus import NPUS
from gpu_utils.course import sources
from gpu_utils.grading import fork_server
from gpu_utils.grading.execute import NO_COMPILER, run, signature_problem
from gpu_utils.grading.exercise import Exercise
from gpu_utils.grading.jobs import Job, make_jobs
from gpu_utils.grading.mutants import Mutant, mutants_of
from gpu_utils.grading.processes import bytes_held
from gpu_utils.grading.verdicts import judge

SEEDS = (1, 20_260, 77)
"""A mutant that only fresh cases kill must die with each of these: what dies by chance also lives by chance."""

LEAST_SECONDS = {"host": 2.0, "torch": 2.0, "kernel": 5.0, "cpp": 10.0, "tile": 10.0}
"""Kind -> time limit of one call of a mutant, which may have to be compiled; more where the solution is slow."""

LEAST_SECONDS_OF_RANKS = 20.0
"""The same where ranks have to be started: that alone takes seconds while other mutants are tried beside."""

SILENCE_SECONDS = 120.0
"""After this long without a word a process is ended: it sits in compiled code, which no alarm reaches."""

MEMORY_BYTES = 4 * 2**30
"""What a mutant may take on top of what its process has when it starts."""


class Trial(NamedTuple):
    """What became of one mutant.

    verdict  "killed", "survived", "same" (compiles to the solution's machine code), or "not tried" (no compiler)
    by       kind and place of the first failure; of a survivor the seed with which everything passed
    seconds  processor time
    """

    verdict: str
    by: str
    seconds: float


def mutants(exercise: Exercise) -> list[Mutant]:
    """The mutants of the lab's solution of an exercise."""
    written = sources.written_lines(exercise.id)
    return mutants_of(sources.solution(exercise.id), written, exercise.kind == "cpp")


def hurried(exercise: Exercise) -> Exercise:
    """The exercise with a short time limit, from how long the solution takes: endless loops become cheap."""
    answer, slowest = sources.load_solution(exercise.id), 0.0
    for job in _in_order(exercise, SEEDS[0]):
        slowest = max(slowest, run(exercise, answer, job.inputs, backend(job.backend), (), job.mode).seconds)
    least = LEAST_SECONDS_OF_RANKS if exercise.ranks else LEAST_SECONDS[exercise.kind]
    return replace(exercise, seconds=min(exercise.seconds, max(least, 5 * slowest)))


def trial(exercise: Exercise, limited: Exercise, mutant: Mutant) -> Trial:
    """Try one mutant here. `limited` is `hurried(exercise)`; the verdicts are those of a check."""
    start = time.process_time()
    verdict, by = _verdict(exercise, limited, mutant)
    return Trial(verdict, by, time.process_time() - start)


def _verdict(exercise: Exercise, limited: Exercise, mutant: Mutant) -> tuple[str, str]:
    try:
        answer = sources.load(exercise.id, mutant.source)
    except Exception as problem:
        return "killed", f"the cell: {type(problem).__name__}"
    if signature_problem(exercise, answer):
        return "killed", "signature"
    by = ""
    for seed in SEEDS:
        failure, fresh = _first_failure(exercise, limited, answer, seed)
        if failure == NO_COMPILER:
            return "not tried", failure
        if not failure:
            same = exercise.kind == "cpp" and _compiles_alike(exercise, answer)
            return ("same", "machine code") if same else ("survived", f"seed {seed}")
        by = failure
        if not fresh:
            break
    return "killed", by


def _first_failure(exercise: Exercise, limited: Exercise, answer: Callable, seed: int) -> tuple[str, bool]:
    """Kind and place of the first failure, and whether only a fresh case shows it; "" when everything passes."""
    for job in _in_order(exercise, seed):
        attempt = run(limited, answer, job.inputs, backend(job.backend), job.compile_targets, job.mode)
        if attempt.error == NO_COMPILER:
            return NO_COMPILER, False
        outcome = judge(limited, job, attempt)
        if outcome.status == "failed":
            return f"{outcome.kind} on {outcome.where}, {outcome.case}", job.fresh
        if any(attempt.compiled.values()):
            return "compile", job.fresh
    return "", False


def _in_order(exercise: Exercise, seed: int) -> list[Job]:
    """The jobs of a check: public cases first, and one backend after the other, so that few mutants compile for all."""
    jobs = [job for job in make_jobs(exercise, seed) if not job.skipped]
    places = {name: place for place, name in enumerate(dict.fromkeys(job.backend for job in jobs))}
    return sorted(jobs, key=lambda job: (job.fresh, places[job.backend]))


def _compiles_alike(exercise: Exercise, answer: Callable[[], str]) -> bool:
    """Whether a C++ answer becomes the solution's code for every target; of an AI core's no listing is kept."""
    if exercise.targets[0] in NPUS:
        return False
    from gpu_utils.compiler.clang import compile_cpp

    solution = sources.load_solution(exercise.id)
    return all(_code(compile_cpp(answer(), t).asm) == _code(compile_cpp(solution(), t).asm) for t in exercise.targets)


def _code(asm: str) -> list[str]:
    """The lines of a listing without comments and positions in the source."""
    lines = (line.partition("//")[0].partition(";")[0].strip() for line in asm.splitlines())
    return [line for line in lines if line and not line.startswith((".loc", ".file", ".section", ".ident"))]


# --- many at a time ---------------------------------------------------------------------------------------------

Find = Callable[[str], Exercise]
Task = tuple[str, Mutant]


def try_all(tasks: Sequence[Task], find: Find, processes: int | None = None) -> Iterator[tuple[str, Mutant, Trial]]:
    """Try (exercise id, mutant) one after the other in several processes; results come as they are ready.

    find  the registry's look-up, a module-level function, because each process looks its exercises up by their ids
    A process that dies or falls silent over a mutant has killed it, and another one takes its place.
    """
    fork_server.start()
    waiting: queue.SimpleQueue[Task] = queue.SimpleQueue()
    for task in tasks:
        waiting.put(task)
    done: queue.SimpleQueue[tuple[str, Mutant, Trial] | BaseException] = queue.SimpleQueue()
    workers = [
        threading.Thread(target=_feed, args=(waiting, done, find), daemon=True)
        for _ in range(processes or os.cpu_count() or 1)
    ]
    for worker in workers:
        worker.start()
    for _ in tasks:
        result = done.get()
        if isinstance(result, BaseException):
            raise result
        yield result


def _feed(waiting: queue.SimpleQueue, done: queue.SimpleQueue, find: Find) -> None:
    """Hand tasks to one process, and to the next when it is gone."""
    process: Any = None
    pipe: Any = None
    try:
        while True:
            try:
                task = waiting.get_nowait()
            except queue.Empty:
                return
            if process is None or not process.is_alive():
                process, pipe = _start(find)
            pipe.send(task)
            try:
                answer = pipe.recv() if pipe.poll(SILENCE_SECONDS) else None
            except EOFError:
                answer = Trial("killed", "died", 0.0)
            if answer is None:
                answer = Trial("killed", "timeout", SILENCE_SECONDS)
            elif isinstance(answer, str):
                raise RuntimeError(answer)
            if answer.by in ("died", "timeout"):
                process.kill()
                process.join()
            done.put((*task, answer))
    except BaseException as problem:
        done.put(problem)
    finally:
        if process is not None:
            process.kill()


def _start(find: Find) -> tuple[Any, Connection]:
    context = multiprocessing.get_context("forkserver")
    ours, theirs = context.Pipe()
    process = context.Process(target=_child, args=(theirs, find), daemon=True)
    process.start()
    theirs.close()
    return process, ours


def _child(pipe: Connection, find: Find) -> None:
    import torch

    with open(os.devnull, "w") as nowhere:  # a mutant may warn, or crash with a dump
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    torch.set_num_threads(1)
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (bytes_held("VmData") + MEMORY_BYTES, most))
    known: dict[str, tuple[Exercise, Exercise]] = {}
    while True:
        try:
            name, mutant = pipe.recv()
        except EOFError:
            return
        try:
            if name not in known:
                exercise = find(name)
                known[name] = exercise, hurried(exercise)
            pipe.send(trial(*known[name], mutant))
        except Exception as problem:
            pipe.send(f"{name}: {type(problem).__name__}: {problem}")
