"""The processes below one: on Linux, by what /proc says."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Callable
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """From now on a process whose parent ends, below this one, becomes a child of this one and not of the system's."""
    with contextlib.suppress(OSError, AttributeError):  # not Linux: orphans are missed, and nothing else changes
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def parent_of(pid: int) -> int | None:
    """The parent of a process; None when it is gone, or the system does not say."""
    return _stat(str(pid))[1]


def end_below(root: int) -> None:
    """End every process below `root`, which stays. It must be a child of this process: nothing is done otherwise."""
    _end(lambda: _below(root) if parent_of(root) == os.getpid() else [])


def end_descendants() -> None:
    """End every process below this one."""
    _end(lambda: _below(os.getpid()))


def _end(find: Callable[[], list[int]]) -> None:
    for _ in range(20):  # one that was just started, or has just been adopted, is found in the next round
        below = find()
        if not below:
            return
        for pid in below:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def _below(root: int) -> list[int]:
    """Living processes below `root`, parents before children."""
    parents = {}
    for name in os.listdir("/proc"):
        state, above = _stat(name) if name.isdigit() else ("", None)
        if above is not None and state not in "ZX":
            parents[int(name)] = above
    found, level = [], [root]
    while level:
        level = [pid for pid, above in parents.items() if above in level]
        found += level
    return found


def _stat(pid: str) -> tuple[str, int | None]:
    """State and parent; "" and None when the process is gone."""
    try:
        state, above = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    except (OSError, ValueError):
        return "", None
    return state, int(above)


def bytes_held(what: str) -> int:
    """Bytes of memory of this process, by a name of /proc/self/status: VmSize for addresses, VmData for its data."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(f"{what}:"))
