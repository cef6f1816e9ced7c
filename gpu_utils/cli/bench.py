"""The command bench: how fast the course itself is on this machine."""

from __future__ import annotations

import json
import os
import platform
import signal
import socket
import statistics
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from gpu_utils.cli.bench_cold import MeasureFailed, python_seconds, waits
from gpu_utils.command import w2w
from gpu_utils.errors import UnknownName

MEDIAN_CHECK_SECONDS = 1.0
SLOWEST_CHECK_SECONDS = 5.0
IMPORT_SECONDS = 0.3
START_SECONDS = 5.0
TRAINING_STEPS = 20
FILES = {
    "course": "bench.json",
    "virtual": "bench_virtual.json",
    "grading": "bench_grading.json",
    "kernels": "bench_kernels.json",
    "sanitizers": "bench_sanitizers.json",
}
"""What can be measured -> the file that it writes to build/."""


def bench(
    what: Annotated[str, typer.Argument(help="course, virtual, sanitizers, grading or kernels.")] = "course",
    which: Annotated[
        str,
        typer.Argument(
            help="grading: a unit or an exercise, 00 or 00.saxpy; or class. sanitizers: checks or a target."
        ),
    ] = "",
    out: Annotated[Path | None, typer.Option(help="Where the JSON goes, build/bench.json for example.")] = None,
    save: Annotated[bool, typer.Option("--save", help="With kernels: keep the times in benchmarks/results.")] = False,
) -> None:
    """Measure what a learner waits for, from a cold process and warm, and training speed; a table and JSON.

    With `virtual`: how fast the virtual GPUs run the kernel set, against Triton's interpreter.
    With `grading`: whether the grader fails every solution that has one small mistake in it; with `grading class`: how
    fast a class of up to 300 students is graded, and whether each gets the mark that it must get.
    With `kernels`: the solutions of unit 04 and later on this GPU, against torch; counted where there is none.
    With `sanitizers`: what they cost in the checks of the course, and on the kernel set on each virtual GPU.
    Exits non-zero when a limit of the course is missed, or a mistake passes.

    Example: ./w2w bench grading 00.saxpy
    """
    if what not in FILES:
        raise UnknownName("measurement", what, FILES)
    if which and what not in ("grading", "sanitizers"):
        raise typer.BadParameter(
            f"{what} is measured as a whole; a unit or an exercise goes with grading", param_hint="which"
        )
    out = out or Path("build") / FILES[what]
    if what == "grading" and which == "class":
        from gpu_utils.cli import bench_class

        raise typer.Exit(0 if bench_class.run(out.with_name("bench_class.json")) else 1)
    if what == "grading":
        from gpu_utils.cli import bench_grading

        raise typer.Exit(0 if bench_grading.run(which, out) else 1)
    if what == "sanitizers":
        from gpu_utils.cli import bench_sanitizers

        raise typer.Exit(0 if bench_sanitizers.run(which, out) else 1)
    if what == "kernels":
        from gpu_utils.cli import bench_kernels

        bench_kernels.run(out, save)
        raise typer.Exit(0)
    if what == "virtual":
        from gpu_utils.cli.bench_virtual import run

        raise typer.Exit(0 if run(out) else 1)
    from rich.console import Console
    from rich.progress import track
    from rich.table import Table

    from gpu_utils.course.files import write_atomically
    from gpu_utils.errors import CannotWrite

    if out.is_dir():
        raise CannotWrite(f"{out} is a folder; give the name of a file, for example {out / 'bench.json'}")
    trial = out.with_name(f".{out.name}.trial")  # before minutes of measuring, not after
    write_atomically(trial, b"")
    trial.unlink()
    measures: dict[str, Callable[[], Any]] = {
        "waits": waits,
        "checks": _checks,
        "import_seconds": _import_seconds,
        "start_seconds": _start_seconds,
        "training": _training,
    }
    results = {name: measure() for name, measure in track(measures.items(), "measuring", transient=True)}
    results["machine"] = _machine()
    write_atomically(out, (json.dumps(results, indent=1) + "\n").encode())

    table = Table("what", "measured", "limit", "verdict", title="The course on this machine")
    misses = 0
    for what, value, limit, unit in _rows(results):
        verdict = "" if limit is None else "ok" if value <= limit else "MISSED"
        misses += verdict == "MISSED"
        table.add_row(what, f"{value:.4g} {unit}", "" if limit is None else f"{limit:g} {unit}", verdict)
    Console().print(table)
    typer.echo(f"written to {out}")
    raise typer.Exit(1 if misses else 0)


def _rows(results: dict[str, Any]) -> list[tuple[str, float, float | None, str]]:
    checks, training = results["checks"], results["training"]
    rows: list[tuple[str, float, float | None, str]] = [
        (f"warm check {name}", seconds, SLOWEST_CHECK_SECONDS, "s") for name, seconds in checks.items()
    ]
    return [
        *((wait["what"], wait["seconds"], wait["limit"], "s") for wait in results["waits"]),
        *rows,
        ("median warm check", statistics.median(checks.values()), MEDIAN_CHECK_SECONDS, "s"),
        ("import gpu_utils", results["import_seconds"], IMPORT_SECONDS, "s"),
        ("w2w study, second start to the server's answer", results["start_seconds"], START_SECONDS, "s"),
        (
            f"training, preset {training['preset']}",
            training["tokens_per_second"],
            None,
            "tokens/s",
        ),
    ]


def _checks() -> dict[str, float]:
    """Seconds of a check of each solution, the median of three after one that loads the unit."""
    from gpu_utils import exercises
    from gpu_utils.course import sources
    from gpu_utils.grading.check import check

    seconds = {}
    for exercise in exercises.every():
        answer = sources.load_solution(exercise.id)
        reports = [check(exercise, answer) for _ in range(4)]
        if not all(report.passed for report in reports):
            raise MeasureFailed(f"the solution of {exercise.id} does not pass: {reports[-1].headline}")
        seconds[exercise.id] = statistics.median(report.seconds for report in reports[1:])
    return seconds


def _import_seconds() -> float:
    """Seconds that `import gpu_utils` adds to a Python process."""

    return max(0.0, python_seconds("import gpu_utils") - python_seconds("pass"))


def _start_seconds() -> float:
    """Seconds from `./w2w study --no-browser` to the server's first answer, the second of two starts."""
    from gpu_utils.course.paths import course

    root = course().root
    with tempfile.TemporaryDirectory() as data:
        environment = {**os.environ, "W2W_DATA": data}
        return [_one_start(root, environment) for _ in range(2)][1]


def _one_start(root: Path, environment: dict[str, str]) -> float:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    start = time.perf_counter()
    command = [str(root / "w2w"), "study", "--no-browser", "--port", str(port)]
    server = subprocess.Popen(
        command, cwd=root, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        while time.perf_counter() - start < 120:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/api", timeout=1)
                return time.perf_counter() - start
            except urllib.error.HTTPError:
                return time.perf_counter() - start  # it answers: the token is missing, as it should be
            except OSError:
                if server.poll() is not None:
                    raise MeasureFailed(
                        f"{w2w('study')} ended with code {server.returncode} before it answered; run it to see why"
                    ) from None
                time.sleep(0.02)
        raise MeasureFailed(f"{w2w('study')} did not answer within 120 s; run it to see why")
    finally:
        if server.poll() is None:
            os.killpg(server.pid, signal.SIGINT)
            try:
                server.wait(15)
            except subprocess.TimeoutExpired:
                os.killpg(server.pid, signal.SIGKILL)


def _training() -> dict[str, Any]:
    """Tokens per second of a short run of unit 01's training."""
    from gpu_utils.model.training import speed

    return speed(TRAINING_STEPS)


def _machine() -> dict[str, Any]:
    import torch
    import triton

    from gpu_utils.chips import probe

    return {
        "device": str(probe()),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
