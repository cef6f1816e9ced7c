"""A class graded at once: dask.distributed hands the answers out, and each row is stored as soon as it is there.

A worker of dask imports nothing but this; it has a process that marks (`gpu_utils.classroom.marker`), and replaces it
when that ends or takes too long. A lost worker's answers are given to another one.
"""

from __future__ import annotations

import atexit
import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgpack

from gpu_utils.classroom.book import Book
from gpu_utils.classroom.records import Release, Result, Submission
from gpu_utils.errors import ClassroomError
from gpu_utils.grading.walls.frames import TooLate
from gpu_utils.grading.walls.talking import Broken, Process

if TYPE_CHECKING:
    from distributed import Client

MARK_SECONDS = 1800.0
"""For one answer, far above every limit of its own: what takes longer is stuck."""

TRIES = 2
"""Of one answer on one worker, each with a new process; afterwards it is not graded, and says so."""

LOST = "not graded"
MOST_LOST = 6
"""Answers in a row on which the grader's own process ended: the machine is at fault then, and not a notebook."""

AHEAD = 3
"""Answers that wait for each worker: their notebooks are in memory."""


@dataclass(frozen=True)
class Task:
    """One answer to grade. seed: 128 bits; submission: plain fields, with the notebook."""

    submission: dict[str, Any]
    exercise: str
    seed: int
    out_of: float


@dataclass(frozen=True)
class How:
    """Where answers run.

    workers    processes on this machine, each with walls of its own
    scheduler  address of a scheduler of dask, whose workers are used instead; "" for none
    backends   names in place of those that the exercises choose; () for these
    walled     False runs answers with the grader's own rights
    """

    workers: int = 1
    scheduler: str = ""
    backends: tuple[str, ...] = ()
    walled: bool = True

    @property
    def devices(self) -> bool:
        return "gpu" in self.backends


def tasks_of(submissions: Iterable[Submission], release: Release, book: Book, again: bool = False) -> Iterator[Task]:
    """What is to be graded: all exercises of each submission but those that are known. It stores the submissions.

    again  also what is known
    """
    from gpu_utils import exercises

    known = {} if again else book.graded()
    digests: dict[tuple[str, str], set[str]] = {}
    for (student, name), (digest, _) in known.items():
        digests.setdefault((student, name.partition(".")[0]), set()).add(digest)
    for submission in submissions:
        book.put_submission(submission)
        if not submission.unit:
            continue
        if not again and any(of != submission.digest for of in digests.get((submission.student, submission.unit), ())):
            book.forget(submission.student, submission.unit)
        fields = submission.as_fields()
        for exercise in exercises.ids(submission.unit):
            there, status = known.get((submission.student, exercise), (None, ""))
            if there != submission.digest or status == "not graded":
                yield Task(fields, exercise, book.seed(submission, exercise), release.worth(exercise))


def grade(tasks: Iterable[Task], how: How, keep: Callable[[Result], None]) -> None:
    """Grade every task and `keep` each result when it is there; a few notebooks at a time are in memory.

    Raises ClassroomError where no worker can be reached, and where the processes that mark do not live.
    """
    with _client(how) as client:
        window = AHEAD * max(1, len(client.scheduler_info()["workers"]))
        _feed(client, iter(tasks), how, window, keep)


def _feed(client: Client, tasks: Iterator[Task], how: How, window: int, keep: Callable[[Result], None]) -> None:
    from distributed import as_completed

    running: dict[Any, Task] = {}
    resources = {"GPU": 1} if how.devices else None

    def submit() -> list[Any]:
        new = []
        while len(running) < window and (task := next(tasks, None)) is not None:
            future = client.submit(marked, task, how, pure=False, resources=resources)
            running[future] = task
            new.append(future)
        return new

    in_a_row = 0
    done = as_completed(submit())
    for future in done:
        task = running.pop(future)
        problem = future.exception()
        result = _lost(task, f"{type(problem).__name__}: {problem}") if problem else future.result()
        keep(result)
        in_a_row = in_a_row + 1 if result.status == LOST else 0
        if in_a_row == MOST_LOST:
            raise ClassroomError(f"{MOST_LOST} answers in a row could not be graded: {result.flags[0]}")
        future.release()
        for new in submit():
            done.add(new)


@contextlib.contextmanager
def _client(how: How) -> Iterator[Client]:
    import dask
    from distributed import Client, LocalCluster

    if how.scheduler:
        try:
            client = Client(how.scheduler, timeout="20s")
        except (OSError, TimeoutError) as problem:
            raise ClassroomError(
                f"no scheduler of dask answers at {how.scheduler} ({problem}); start one with `dask scheduler` and its "
                "workers with `dask worker ADDRESS --nthreads 1`"
            ) from None
        with client:
            if not client.scheduler_info()["workers"]:
                raise ClassroomError(
                    f"the scheduler at {how.scheduler} has no workers; start some: "
                    f"dask worker {how.scheduler} --nthreads 1"
                )
            yield client
        return
    quiet = {"distributed.comm.timeouts.connect": "60s", "distributed.scheduler.worker-ttl": None}
    with dask.config.set(quiet):
        with (
            LocalCluster(
                n_workers=how.workers,
                threads_per_worker=1,
                processes=True,
                memory_limit=0,
                dashboard_address="127.0.0.1:0",  # any free port
                host="127.0.0.1",
                resources={"GPU": 1} if how.devices else None,
            ) as cluster,
            Client(cluster) as client,
        ):
            yield client


# --- on a worker ---

_marker: Process | None = None


def marked(task: Task, how: How) -> Result:
    """The result of a task, by the process of this worker that marks."""
    request = {
        "submission": task.submission,
        "exercise": task.exercise,
        "seed": str(task.seed),
        "out_of": task.out_of,
        "backends": how.backends,
    }
    said = ""
    for _ in range(TRIES):
        try:
            process = _process(how)
            process.send(msgpack.packb(request))
            return Result.of(msgpack.unpackb(process.receive(MARK_SECONDS)))
        except (Broken, TooLate) as problem:
            said = str(problem) or type(problem).__name__
            _end()
    return _lost(task, said)


def _process(how: How) -> Process:
    global _marker
    if _marker is None:
        words = [] if how.walled else ["--unsafe-no-sandbox"]
        words += ["--devices"] if how.devices else []
        _marker = Process([sys.executable, "-P", "-m", "gpu_utils.classroom.marker", *words])
        atexit.register(_end)
    _marker.wait_until_ready()
    return _marker


def _end() -> None:
    global _marker
    if _marker is not None:
        _marker.close()
        _marker = None


def _lost(task: Task, why: str) -> Result:
    return Result(
        student=task.submission["student"],
        unit=task.submission["unit"],
        exercise=task.exercise,
        digest=task.submission["digest"],
        seed=f"{task.seed:032x}",
        status=LOST,
        points=0.0,
        out_of=task.out_of,
        headline="the grader could not finish this answer; your teacher has been told",
        flags=(f"the grader's own process ended on this answer: {why[:500]}",),
    )
