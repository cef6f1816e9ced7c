"""The process that answers are forked from: it imports what they need and runs nothing, neither theirs nor torch's.

A process that has run torch's kernels holds locks and threads that do not survive a fork, and one that has asked for a
GPU cannot hand it on. So answers are forked from this one, which can be started before its caller has imported torch.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.forkserver
from collections.abc import Iterable


def start(modules: Iterable[str] = ()) -> None:
    """Start it, unless it runs already, and let it import `modules` meanwhile: the call comes back at once."""
    first = ["gpu_utils.grading.adopting", "gpu_utils.grading.sandbox"]
    multiprocessing.get_context("forkserver").set_forkserver_preload([*first, *modules])
    multiprocessing.forkserver.ensure_running()
