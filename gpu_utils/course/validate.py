"""Running every notebook from top to bottom, with nbval, in the Python that runs this.

The learner's progress is untouched: the kernels get a data folder of their own. With `strict` a check() that does not
pass raises, so that a wrong solution fails its notebook.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpu_utils.command import w2w
from gpu_utils.course.build import kinds
from gpu_utils.course.ipynb import nbformat
from gpu_utils.course.nbval_plugin import EVENTS
from gpu_utils.course.paths import Course
from gpu_utils.errors import ContentError

CELL_SECONDS = 300.0
WORKERS = 2
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


@dataclass
class NotebookRun:
    """One notebook: how many code cells it has, passed and did not run, and what failed.

    seconds  of all cells, with the kernel's start
    slowest  the cell that took longest, without the kernel's start, and its seconds
    """

    path: Path
    cells: int
    passed: int = 0
    not_run: int = 0
    seconds: float = 0.0
    slowest: tuple[str, float] = ("", 0.0)
    failures: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Every cell ran and none failed."""
        return not self.failures and self.passed == self.cells


@dataclass
class Validation:
    """The runs, in order, the wall time in seconds, and what pytest printed."""

    runs: list[NotebookRun]
    seconds: float
    output: str
    exit_code: int

    @property
    def ok(self) -> bool:
        return self.exit_code == 0 and bool(self.runs) and all(run.ok for run in self.runs)


def run_notebooks(
    root: Path,
    paths: Sequence[Path],
    *,
    strict: bool,
    cell_seconds: float = CELL_SECONDS,
    on_cell: Callable[[str], None] = lambda cell: None,
    report: Path | None = None,
) -> Validation:
    """Executes the notebooks, each in a fresh kernel, and tells `on_cell` each cell that has finished.

    report is where pytest writes a JUnit report of the cells, if anywhere.

    root is the checkout whose library the kernels import. A cell may run `cell_seconds`; the cells after one that ran
    longer, or that killed its kernel, are not run. Raises ContentError when there is nothing to run.
    """
    if not paths:
        raise ContentError(f"{root}:1: no notebooks found to run; `{w2w('build')}` makes them")
    runs = {path.resolve(): NotebookRun(path, count_cells([path])) for path in paths}
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="w2w-validate-") as folder:
        private = Path(folder)
        events, output = private / "events", private / "output"
        events.touch()
        with output.open("w+b") as log:
            process = subprocess.Popen(
                _command(root, paths, cell_seconds, report),
                cwd=root,
                env=_environment(root, private, events, strict),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            try:
                for event in _follow(events, process):
                    _record(runs, event, on_cell)
            finally:
                _stop(process)
        text = output.read_text(encoding="utf-8", errors="replace")
    return Validation(list(runs.values()), time.monotonic() - begin, text, process.returncode)


def notebooks_to_validate(course: Course, units: Sequence[str]) -> list[Path]:
    """Lessons and solutions of the named units, or of all that exist. Raises for a unit that is unknown or unbuilt."""
    chosen = [course.find(text) for text in units] if units else course.written()
    made = [(unit, kind) for kind in ("lesson", "solution") for unit in chosen if kind in kinds(course, unit)]
    paths = [course.notebook(unit, kind) for unit, kind in made]
    for path in paths:
        if not path.is_file():
            raise ContentError(f"{course.relative(path)}:1: this notebook has not been built; run `{w2w('build')}`")
    return paths


def count_cells(paths: Sequence[Path]) -> int:
    """How many code cells the notebooks hold. Raises ContentError for a notebook without any."""
    total = 0
    for path in paths:
        count = sum(cell.cell_type == "code" for cell in nbformat.read(path, as_version=4).cells)
        if not count:
            raise ContentError(f"{path}:1: this notebook has no code to run")
        total += count
    return total


def _command(root: Path, paths: Sequence[Path], cell_seconds: float, report: Path | None) -> list[str]:
    workers = WORKERS if min(WORKERS, len(paths)) > 1 else 0  # a worker of its own costs the imports again
    return [
        *(sys.executable, "-m", "pytest", "-q", "--tb=short", "--color=no"),
        *("-c", os.devnull, "--rootdir", str(root), "-p", "no:cacheprovider"),
        *("-p", "gpu_utils.course.ipynb"),  # first: nbval imports nbformat
        *("-p", "xdist.plugin", "-p", "nbval.plugin", "-p", "gpu_utils.course.nbval_plugin"),
        *("--nbval-lax", "--nbval-current-env"),
        *(f"--nbval-cell-timeout={cell_seconds:g}", "-n", str(workers), "--dist", "loadscope"),
        *((f"--junitxml={report}",) if report else ()),
        *map(str, paths),
    ]


def _environment(root: Path, private: Path, events: Path, strict: bool) -> dict[str, str]:
    """The caller's, with private folders, and threads shared out between the workers."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "W2W_STRICT"))}
    environment |= {"W2W_DATA": str(private / "data"), EVENTS: str(events)}
    environment |= {"IPYTHONDIR": str(private / "ipython"), "JUPYTER_RUNTIME_DIR": str(private / "runtime")}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
    environment.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // WORKERS)))
    if strict:
        environment["W2W_STRICT"] = "1"
    return environment


def _follow(events: Path, process: subprocess.Popen[bytes]) -> Iterator[dict[str, Any]]:
    """The lines of the events file as they appear, until the process has ended and all are read."""
    with events.open(encoding="utf-8") as file:
        rest = ""
        while True:
            ended = process.poll() is not None
            rest += file.read()
            *whole, rest = rest.split("\n")
            yield from map(json.loads, whole)
            if ended:
                return
            time.sleep(0.1)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Ends pytest if it still runs, in the way that lets it stop its kernels."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    try:
        process.wait(timeout=15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _record(runs: dict[Path, NotebookRun], event: dict[str, Any], on_cell: Callable[[str], None]) -> None:
    run = runs.get(Path(event["notebook"]).resolve())
    if run is None:
        return  # its cells are missed in the count of its notebook
    run.seconds += event["seconds"]
    if event["when"] == "call" and event["seconds"] > run.slowest[1]:
        run.slowest = (event["cell"], event["seconds"])
    if event["outcome"] == "failed":
        run.failures.append(_message(event["cell"], event["detail"]))
    elif event["outcome"] == "skipped":
        run.not_run += 1
    elif event["when"] == "call":
        run.passed += 1
    if event["when"] == "call" or event["outcome"] != "passed":
        on_cell(f"{run.path.parent.name}/{run.path.name}")


def _message(cell: str, report: str) -> str:
    """What nbval says of a cell, without its banner and colours."""
    text = _ANSI.sub("", report)
    return text.partition("Notebook cell execution failed\n")[2].strip() or f"{cell}: {text.strip()}"
