"""Checks that ended Python itself: os._exit in an answer, or a crash in compiled code, leaves no report.

While a check runs in a notebook, a small file beside the progress file names it. One whose process is gone tells, at
the next check or in `progress()`, what became of it. Nothing here ever stops a check: without the file, nobody is told.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from gpu_utils.folders import data_folder


@contextlib.contextmanager
def noted(exercise: str) -> Iterator[None]:
    """A block in which a check of `exercise` runs."""
    path = _folder() / f"{os.getpid()}-{_started(os.getpid())}"
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(exercise, encoding="utf-8")
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()


def interrupted(forget: bool = False) -> list[str]:
    """The ids of exercises whose last check ended Python; with `forget`, they are told once."""
    found = []
    with contextlib.suppress(OSError):
        for path in sorted(_folder().iterdir()):
            pid, _, started = path.name.partition("-")
            if not pid.isdigit() or _started(int(pid)) == started:
                continue
            found.append(path.read_text(encoding="utf-8")[:100])
            if forget:
                path.unlink()
    return list(dict.fromkeys(found))


def _folder() -> Path:
    return data_folder() / "checking"


def _started(pid: int) -> str:
    """When a process was started, in the system's ticks: numbers of processes are given again. "" when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
