"""What a learner waits for: the import in a fresh kernel, and the commands, each in a process of its own."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from gpu_utils.course.paths import Course, course
from gpu_utils.errors import W2WError

IMPORT = "from gpu_utils import check"
IMPORT_BEYOND_TORCH_SECONDS = 0.3
COMMAND_SECONDS = 0.5
CHECK_SECONDS = {"02": 4.0}
"""For the whole of `w2w check 02`, whose nine checks take 0.1 s together; checks of other units have work to do."""


class MeasureFailed(W2WError):
    """Something that should be measured did not work."""


@dataclass(frozen=True)
class Wait:
    """One thing that a learner waits for.

    seconds  the least of several runs: the machine may be busy, the course may not
    limit    seconds allowed; None where there is only a figure
    """

    what: str
    seconds: float
    limit: float | None


def seconds_of(command: Sequence[str], runs: int, **settings: str | Path) -> float:
    """Seconds of a process from its start to its end, the least of some runs. Raises MeasureFailed when it fails.

    settings  `cwd`, and variables of the environment
    """
    environment = {**os.environ, **{name: str(value) for name, value in settings.items() if name != "cwd"}}
    taken = []
    for _ in range(runs):
        start = time.perf_counter()
        done = subprocess.run(command, cwd=settings.get("cwd"), env=environment, capture_output=True, text=True)
        taken.append(time.perf_counter() - start)
        if done.returncode:
            said = (done.stderr or done.stdout).strip().splitlines()[-1:]
            raise MeasureFailed(f"{' '.join(command)} ended with code {done.returncode}: {' '.join(said)}")
    return min(taken)


def python_seconds(program: str) -> float:
    """Seconds of a fresh Python that runs a program, the least of five."""
    return seconds_of([sys.executable, "-c", program], runs=5)


def waits() -> list[dict[str, object]]:
    """Every wait, as plain data for the JSON."""
    beyond = max(0.0, python_seconds(IMPORT) - python_seconds("import torch"))
    found = [Wait(f"{IMPORT}, beyond torch's own import", beyond, IMPORT_BEYOND_TORCH_SECONDS)]
    with _checkout() as here:
        w2w, data = str(course().root / "w2w"), here.root / "data"
        for arguments in (["status"], ["hint", "00.saxpy"], ["list"]):
            taken = seconds_of([w2w, *arguments], runs=3, cwd=here.root, W2W_DATA=data)
            found.append(Wait(f"w2w {arguments[0]}", taken, COMMAND_SECONDS))
        starts = [seconds_of([w2w, "start", unit.number], 1, cwd=here.root, W2W_DATA=data) for unit in here.written()]
        found.append(Wait("w2w start, the slowest unit", max(starts), COMMAND_SECONDS))
        for unit in here.written():
            notebook = course().notebook(unit, "solution")
            command = [w2w, "check", unit.number, "--notebook", str(notebook)]
            taken = seconds_of(command, runs=2, cwd=here.root, W2W_DATA=data)
            found.append(Wait(f"w2w check {unit.number}, the solutions", taken, CHECK_SECONDS.get(unit.number)))
    return [asdict(wait) for wait in found]


@contextlib.contextmanager
def _checkout() -> Iterator[Course]:
    """A checkout of its own with the content of this one: `start` writes into the one that it is called in."""
    with tempfile.TemporaryDirectory(prefix="w2w-bench-") as name:
        for part in ("content", "gpu_utils"):
            (Path(name) / part).symlink_to(course().root / part)
        yield Course(Path(name))
