"""What `w2w validate` adds to nbval: a dead kernel is found at once, and each cell is told to whoever waits.

Loaded into pytest with `-p gpu_utils.course.nbval_plugin`. nbval 0.11 waits for a reply until the cell's timeout, also
when the process that should reply is gone; here the wait is cut into slices with a look at the process after each.
A cell tagged "raises-exception" that ends without an error fails too; nbval lets it pass. So does a cell of a lesson
that does not show what the text states of it (`gpu_utils.course.stated`).
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from queue import Empty
from typing import Any

import pytest
from nbval.plugin import IPyNbCell, NbCellError

from gpu_utils.course import stated
from gpu_utils.course.paths import Course

EVENTS = "W2W_VALIDATE_EVENTS"
SLICE_SECONDS = 0.25


def pytest_itemcollected(item: pytest.Item) -> None:
    """The whole path goes with every report: a node id holds less of it when the file lies outside the root."""
    item.user_properties.append(("notebook", str(item.path)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    """The file's kernel is running after setup: watch it, or skip what follows its end."""
    result = yield
    if isinstance(item, IPyNbCell):
        if item.parent.timed_out:
            pytest.skip("not run: a cell before it ran past the limit")
        if hasattr(item.parent, "w2w_died"):
            pytest.skip("not run: the kernel had died")
        kernel = item.parent.kernel
        if not hasattr(kernel, "w2w_watched"):
            kernel.w2w_watched = True
            kernel.get_message = _watching(kernel, kernel.get_message)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """A kernel that died, also between two cells, fails the cell; so does an expected error that did not come."""
    if not isinstance(item, IPyNbCell):
        return (yield)
    try:
        if not item.parent.kernel.is_alive():
            raise KernelDied(_why(item.parent.kernel, "before"))
        result = yield
    except KernelDied as death:
        item.parent.w2w_died = True
        raise NbCellError(item.cell_num, str(death), item.cell.source) from None
    if item.options["check_exception"] and not any(output.output_type == "error" for output in item.test_outputs):
        raise NbCellError(item.cell_num, "The cell should end in an error and did not", item.cell.source)
    if said := stated.unseen(_stated(item).get(item.cell.get("id", ""), ()), item.test_outputs):
        raise NbCellError(item.cell_num, said, item.cell.source)
    return result


def _stated(item: IPyNbCell) -> stated.Patterns:
    if not hasattr(item.parent, "w2w_stated"):
        item.parent.w2w_stated = stated.of_notebook(Course(item.config.rootpath), item.parent.path)
    return item.parent.w2w_stated


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """In the process that reports (not in the workers of xdist): one JSON line per phase of a cell."""
    path = os.environ.get(EVENTS)
    if path and "PYTEST_XDIST_WORKER" not in os.environ:
        event = {
            "notebook": dict(report.user_properties).get("notebook", ""),  # absent when a worker crashed
            "cell": report.nodeid.rpartition("::")[2],
            "when": report.when,
            "outcome": report.outcome,
            "seconds": report.duration,
            "detail": "" if report.outcome == "passed" else report.longreprtext,
        }
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(event) + "\n")


class KernelDied(Exception):
    """The kernel's process ended while a cell was running."""


def _watching(kernel: Any, get_message: Callable[..., Any]) -> Callable[..., Any]:
    """`get_message` that raises KernelDied as soon as the process is gone and no message is left."""

    def watched(stream: str, timeout: float | None = None) -> Any:
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            alive = kernel.is_alive()
            left = SLICE_SECONDS if deadline is None else min(SLICE_SECONDS, deadline - time.monotonic())
            try:
                return get_message(stream, timeout=max(left, 0.001))
            except Empty:
                if not alive:
                    raise KernelDied(_why(kernel, "while it ran")) from None
                if deadline is not None and time.monotonic() >= deadline:
                    raise

    return watched


def _why(kernel: Any, when: str) -> str:
    process = getattr(getattr(kernel, "km", None) and kernel.km.provisioner, "process", None)
    code = process.poll() if process is not None else None
    if code is None:
        how = ""
    elif code < 0:
        name = signal.Signals(-code).name
        how = f": stopped by {name}" + ("; was there too little memory?" if name == "SIGKILL" else "")
    else:
        how = f": exit code {code}"
    return f"The kernel died {when} this cell{how}"
