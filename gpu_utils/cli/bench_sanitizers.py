"""The command `bench sanitizers`: what each sanitizer costs, as a ratio to a run without any.

First the checks of the course's exercises, under the sanitizers that a check has; then the kernel set on the virtual
GPUs, each tool alone and all together. Everything runs in this process, one after the other, in turn with a run without
sanitizers, and counts in CPU seconds: the best of so many runs of which the first, which puts the calls into the
program, is apart.
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpu_utils.backends import backend
from gpu_utils.backends.recording import replaced
from gpu_utils.backends.virtual import VirtualBackend
from gpu_utils.errors import UnknownName
from gpu_utils.grading.check import Runner, check, run_here
from gpu_utils.grading.execute import Attempt
from gpu_utils.grading.execute import run as run_answer
from gpu_utils.grading.exercise import Exercise
from gpu_utils.grading.jobs import Job
from gpu_utils.kernelset import CASES, TARGETS, Run
from gpu_utils.virtual import VirtualGpu, virtual_gpu
from gpu_utils.virtual.sanitize.tools import ON_REQUEST, TOOLS

CHECKS = "checks"
RUNS = 3
MOST = 2.0
"""Times a check without sanitizers: what costs more is not on by default."""

SETS: dict[str, tuple[str, ...]] = {name: (name,) for name in TOOLS if name not in ON_REQUEST} | {
    "racecheck+waitcheck": ("racecheck", "waitcheck"),
    "all": tuple(name for name in TOOLS if name not in ON_REQUEST),
}
"""What the kernel set is run with."""


class _Timed(Run):
    """CPU seconds inside launches."""

    cpu = 0.0

    def launch(self, kernel: Any, grid: Any, *args: Any, **meta: Any) -> None:
        start = time.process_time()
        super().launch(kernel, grid, *args, **meta)
        self.cpu += time.process_time() - start


def kernel_set(target: str, names: Collection[str] = CASES.keys()) -> dict[str, dict[str, float]]:
    """Tools ("" for none) -> case -> CPU seconds inside its launches, on one target: the best run after the first.

    Raises what a sanitizer raises: a false alarm.
    """
    best: dict[str, dict[str, float]] = {}
    for name in names:
        case = CASES[name]
        if target not in case.targets:
            continue
        for number in range(RUNS + 1):
            for title, tools in {"": (), **SETS}.items():
                timed = _Timed(target)
                with virtual_gpu(target, ptxas=False, sanitize=tools):
                    case.body(timed)
                if number:
                    of = best.setdefault(title, {})
                    of[name] = min(of.get(name, math.inf), timed.cpu)
    return best


def ratios(seconds: dict[str, dict[str, float]]) -> dict[str, float]:
    """Tools -> seconds of all cases over those without tools.

    >>> ratios({"": {"copy": 1.0, "sum": 3.0}, "racecheck": {"copy": 1.0, "sum": 5.0}})
    {'racecheck': 1.5}
    """
    plain = math.fsum(seconds[""].values())
    return {title: math.fsum(found.values()) / plain for title, found in seconds.items() if title}


def without(answer: Callable[..., Any]) -> Runner:
    """As `run_here`, with no sanitizer at all."""

    def runner(exercise: Exercise, jobs: Sequence[Job]) -> Generator[Attempt, None, None]:
        for job in jobs:
            place = backend(job.backend)
            if isinstance(place, VirtualBackend):
                place = replace(place, sanitize=frozenset())
            with replaced(VirtualGpu, "watch_shared", lambda gpu, all_meet=False: contextlib.nullcontext()):
                yield run_answer(exercise, answer, job.inputs, place, job.compile_targets, job.mode)

    return runner


def of_check(exercise: Exercise, answer: Callable[..., Any]) -> dict[str, Any]:
    """CPU seconds of a right answer's check: without sanitizers, with them, and what their first run costs more."""
    found: dict[str, list[float]] = {"plain": [], "sanitized": []}
    wrong = ""
    for _ in range(RUNS + 1):
        for title, runner in (("plain", without(answer)), ("sanitized", run_here(answer))):
            start = time.process_time()
            report = check(exercise, None, seed=1, runner=runner)
            found[title].append(time.process_time() - start)
            wrong = wrong or ("" if report.passed else f"{title}: {report.headline}")
    plain, sanitized = (min(found[title][1:]) for title in found)
    row = {"plain": plain, "sanitized": sanitized, "first": found["sanitized"][0] - sanitized}
    return row | {"ratio": sanitized / plain} | ({"wrong": wrong} if wrong else {})


def of_checks() -> dict[str, dict[str, Any]]:
    """Of every exercise with kernels."""
    from gpu_utils import exercises
    from gpu_utils.course import sources

    chosen = [exercise for exercise in exercises.every() if exercise.kind in ("kernel", "cpp")]
    return {exercise.id: of_check(exercise, sources.load_solution(exercise.id)) for exercise in chosen}


def run(which: str, out: Path) -> bool:
    """Measure the checks and every target, or one of them; print tables, write JSON. True where no check costs twice.

    which  CHECKS, a target, or "" for all. Raises UnknownName.
    """
    from rich.console import Console
    from rich.table import Table

    if which not in ("", CHECKS, *TARGETS):
        raise UnknownName("measurement of sanitizers", which, [CHECKS, *TARGETS])
    console = Console(width=120)
    results: dict[str, Any] = {CHECKS: {}, "kernel_set": {}}
    if which in ("", CHECKS):
        results[CHECKS] = of_checks()
        table = Table("exercise", "CPU s", "sanitized", "ratio", "first", title="A warm check of the solution")
        for name, row in results[CHECKS].items():
            seconds = [f"{row[key]:.2f}" for key in ("plain", "sanitized", "ratio", "first")]
            table.add_row(name, *seconds, style="red" if row["ratio"] >= MOST or "wrong" in row else None)
        console.print(table)
    for target in TARGETS if not which else [name for name in TARGETS if name == which]:
        results["kernel_set"][target] = kernel_set(target)
    if results["kernel_set"]:
        table = Table("target", "CPU s", *SETS, title="Kernel set: CPU seconds in launches, and ratios to them")
        for target, seconds in results["kernel_set"].items():
            plain = f"{math.fsum(seconds[''].values()):.2f}"
            table.add_row(target, plain, *(f"{ratio:.2f}" for ratio in ratios(seconds).values()))
        console.print(table)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(results, indent=1) + "\n")
    print(f"written to {out}")
    return all(row["ratio"] < MOST and "wrong" not in row for row in results[CHECKS].values())
