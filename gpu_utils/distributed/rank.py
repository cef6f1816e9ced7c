"""What a rank does: join the others, call the function, leave its value or its error in a file."""

from __future__ import annotations

import faulthandler
import os
import pickle
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from gpu_utils.distributed import wires as wires_of

PAYLOAD = "task.pkl"
"""The file in a task's folder that holds the task, for processes that start anew."""

PATIENCE = 1.0
"""Seconds that a rank which is done waits for the others before it closes its connections."""

GONE_SECONDS = 0.3
"""For the process of a neighbour to end, after its connection has closed."""

START_SECONDS = 60.0
"""For the ranks to find each other, which takes a tenth of a second where nothing else runs."""

BEFORE_THE_END = 0.4
"""Seconds before the time is over at which a rank notes where it is."""


@dataclass(frozen=True)
class Task:
    """What is run on all ranks.

    seconds  for the call, once the rank has joined the others
    """

    function: Callable[..., Any]
    each: Sequence[Mapping[str, Any]]
    shared: Mapping[str, Any]
    wires: wires_of.Wires | None
    device: str
    seconds: float
    folder: str


@dataclass
class Left:
    """What a rank left behind when it came to its end.

    error   sentence of the exception; "" for none
    trace   its traceback as text
    frames  (file, number of the line, name of the function) of its traceback
    at      when it ended, by the clock of all ranks
    gone    ranks whose process had ended without a word when this one failed: they, and not it, are the cause
    """

    value: Any = None
    traffic: wires_of.Traffic | None = None
    error: str = ""
    trace: str = ""
    frames: Sequence[tuple[str, int, str]] = ()
    at: float = 0.0
    gone: Sequence[int] = ()


def task_of(folder: str) -> Task:
    """The task that its caller has written to a folder, with cloudpickle."""
    import cloudpickle

    with open(Path(folder) / PAYLOAD, "rb") as file:
        return cloudpickle.load(file)


def of_file(folder: str) -> None:
    """In the process of one rank that starts anew."""
    main(task_of(folder))


def main(task: Task) -> None:
    """In the process of one rank. It is forked from the agent, whose handlers of signals are not for it."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    rank, folder = int(os.environ["RANK"]), Path(task.folder)
    (folder / f"{rank}.pid").write_text(str(os.getpid()))
    with open(folder / f"{rank}.out", "wb", buffering=0) as out:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
    sys.stdout = os.fdopen(1, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False)
    sys.stderr = sys.stdout
    stack = open(folder / f"{rank}.stack", "w")  # noqa: SIM115  faulthandler writes to it until the end
    faulthandler.dump_traceback_later(START_SECONDS - BEFORE_THE_END, file=stack)
    torch.set_num_threads(1)
    left = Left(traffic=wires_of.Traffic())
    try:
        _join(task, left)
        faulthandler.dump_traceback_later(max(0.1, task.seconds - BEFORE_THE_END), file=stack)
        (folder / f"{rank}.joined").touch()
        left.value = task.function(**task.each[rank], **task.shared)
        left.at = time.monotonic()
        _leave(folder, rank, left)
    except BaseException as problem:
        left.value, left.at = None, time.monotonic()
        left.error = f"{type(problem).__name__}: {problem}".strip().removesuffix(":")
        left.trace = traceback.format_exc()
        left.gone = _gone(folder, len(task.each)) if isinstance(problem, RuntimeError) else ()
        left.frames = [(f.filename, f.lineno or 0, f.name) for f in traceback.extract_tb(problem.__traceback__)]
        _leave(folder, rank, left)
        sys.stdout.flush()
        os._exit(1)
    _wait_for_the_others(len(task.each), folder)
    sys.stdout.flush()
    os._exit(0)  # gloo's threads, and those of slow wires, are not waited for


def _join(task: Task, left: Left) -> None:
    timeout = timedelta(seconds=task.seconds + START_SECONDS)  # who waits for all is the one that ends them
    if task.device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("nccl", timeout=timeout)
        return
    assert left.traffic is not None
    wires_of.register(left.traffic, task.wires)
    dist.init_process_group(wires_of.NAME, timeout=timeout)


def _leave(folder: Path, rank: int, left: Left) -> None:
    part = folder / f"{rank}.part"
    try:
        torch.save(left, part)
    except (pickle.PicklingError, TypeError, AttributeError, RuntimeError) as problem:
        found = type(left.value).__name__
        torch.save(
            Left(error=f"TypeError: returned a {found} that cannot be handed over ({problem})", at=left.at), part
        )
        part.rename(folder / f"{rank}.left")
        os._exit(1)
    part.rename(folder / f"{rank}.left")


def _gone(folder: Path, world: int) -> list[int]:
    """Ranks whose process has ended, and that have left nothing. For a moment: a process ends in steps."""
    until = time.monotonic() + GONE_SECONDS
    while True:
        gone = [rank for rank in range(world) if not (folder / f"{rank}.left").exists() and has_ended(folder, rank)]
        if gone or time.monotonic() > until:
            return gone
        time.sleep(0.01)


def has_ended(folder: Path, rank: int) -> bool:
    """Whether the process of a rank that had begun is gone, or waits to be noticed by its parent."""
    try:
        pid = (folder / f"{rank}.pid").read_text()
    except OSError:
        return False
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def _wait_for_the_others(world: int, folder: Path) -> None:
    """A connection that closes while a neighbour still reads from it would fail the neighbour."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if all((folder / f"{rank}.left").exists() for rank in range(world)):
            return
        time.sleep(0.01)
