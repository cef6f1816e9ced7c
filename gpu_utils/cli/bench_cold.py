"""What a learner waits for: the import in a fresh kernel, and the commands, each in a process of its own."""

from __future__ import annotations

import contextlib
import os
import re
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
CHECK_BEYOND_SECONDS = {"02": 4.0}
"""For `w2w check` of a whole lab beyond the seconds that its checks say they took: starting, reading, processes. Of the
other labs it is a figure without a limit."""

_OWN_SECONDS = re.compile(r"^ +(\d+\.\d\d) s; fresh cases", re.MULTILINE)


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


def fastest(command: Sequence[str], runs: int, **settings: str | Path) -> tuple[float, str]:
    """(seconds from start to end, what it printed) of the fastest of some runs of a process.

    Raises MeasureFailed when one fails.

    settings  `cwd`, and variables of the environment
    """
    environment = {**os.environ, **{name: str(value) for name, value in settings.items() if name != "cwd"}}
    taken = []
    for _ in range(runs):
        start = time.perf_counter()
        done = subprocess.run(command, cwd=settings.get("cwd"), env=environment, capture_output=True, text=True)
        taken.append((time.perf_counter() - start, done.stdout))
        if done.returncode:
            said = (done.stderr or done.stdout).strip().splitlines()[-1:]
            raise MeasureFailed(f"{' '.join(command)} ended with code {done.returncode}: {' '.join(said)}")
    return min(taken)


def python_seconds(program: str) -> float:
    """Seconds of a fresh Python that runs a program, the least of five."""
    return fastest([sys.executable, "-c", program], runs=5)[0]


def waits() -> list[dict[str, object]]:
    """Every wait, as plain data for the JSON."""
    beyond = max(0.0, python_seconds(IMPORT) - python_seconds("import torch"))
    found = [Wait(f"{IMPORT}, beyond torch's own import", beyond, IMPORT_BEYOND_TORCH_SECONDS)]
    with _checkout() as here:
        w2w, data = str(course().root / "w2w"), here.root / "data"
        for arguments in (["status"], ["hint", "00.saxpy"], ["list"]):
            taken, _ = fastest([w2w, *arguments], runs=3, cwd=here.root, W2W_DATA=data)
            found.append(Wait(f"w2w {arguments[0]}", taken, COMMAND_SECONDS))
        starts = [fastest([w2w, "start", unit.number], 1, cwd=here.root, W2W_DATA=data)[0] for unit in here.written()]
        found.append(Wait("w2w start, the slowest unit", max(starts), COMMAND_SECONDS))
        for unit in here.written():
            notebook = course().notebook(unit, "solution")
            command = [w2w, "check", unit.number, "--notebook", str(notebook)]
            taken, printed = fastest(command, runs=2, cwd=here.root, W2W_DATA=data)
            own, limit = sum(map(float, _OWN_SECONDS.findall(printed))), CHECK_BEYOND_SECONDS.get(unit.number)
            found.append(Wait(f"w2w check {unit.number}, the solutions", taken, None))
            found.append(Wait(f"w2w check {unit.number}, beyond its checks", taken - own, limit))
    return [asdict(wait) for wait in found]


@contextlib.contextmanager
def _checkout() -> Iterator[Course]:
    """A checkout of its own with the content of this one: `start` writes into the one that it is called in."""
    with tempfile.TemporaryDirectory(prefix="w2w-bench-") as name:
        for part in ("content", "gpu_utils"):
            (Path(name) / part).symlink_to(course().root / part)
        yield Course(Path(name))
