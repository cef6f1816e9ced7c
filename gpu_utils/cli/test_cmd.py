"""The command test: every check of the course, one after another, with one line of counts at the end."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import typer


class Step(NamedTuple):
    """One part of the suite: its name, the arguments of Python, and the pytest report it writes, if it does."""

    name: str
    arguments: Sequence[str]
    report: str | None = None


def _pytest(name: str, *arguments: str) -> Step:
    report = f"build/{name}.xml"
    return Step(name, ("-m", "pytest", f"--junitxml={report}", "-p", "no:cacheprovider", *arguments), report)


STEPS = (
    Step("ruff check", ("-m", "ruff", "check", ".")),
    Step("ruff format", ("-m", "ruff", "format", "--check", ".")),
    Step("floors of imports", ("-c", "from importlinter.cli import lint_imports_command as run; run()", "--no-logo")),
    Step("types", ("-m", "mypy")),
    Step("notebooks are current", ("-m", "gpu_utils.cli", "build", "--check")),
    _pytest("tests", "-n", "2", "--doctest-modules", "--ignore=tests/browser", "tests", "gpu_utils"),
    _pytest("browser", "tests/browser"),
    Step("notebooks run", ("-m", "gpu_utils.cli", "validate")),
)


def run_suite() -> None:
    """Run the whole suite: style, floors, types, tests, the page in a browser, and every notebook.

    Each part runs even when an earlier one failed. Reports and pictures are kept in build/. The last line counts what
    passed, failed and was skipped; the exit code is non-zero when anything failed.

    Example: w2w test
    """
    from gpu_utils.course.paths import course

    root = course().root
    (root / "build").mkdir(exist_ok=True)
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as data:  # the learner's own progress is not touched
        environment = {**os.environ, "W2W_DATA": data}
        outcomes = [
            _run(f"[{number}/{len(STEPS)}]", step, root, environment) for number, step in enumerate(STEPS, start=1)
        ]
    typer.echo("")
    for step, (counts, seconds) in zip(STEPS, outcomes, strict=True):
        typer.echo(f"{'FAILED' if counts['failed'] else 'ok':8}{step.name:24}{seconds:8.1f} s")
    total = sum((counts for counts, _ in outcomes), Counter())
    typer.echo(f"{'':8}{'together':24}{time.monotonic() - started:8.1f} s\n")
    typer.echo(f"{total['passed']} passed, {total['failed']} failed, {total['skipped']} skipped")
    raise typer.Exit(1 if total["failed"] else 0)


def _run(number: str, step: Step, root: Path, environment: dict[str, str]) -> tuple[Counter[str], float]:
    typer.echo(f"\n{number} {step.name}", nl=True)
    sys.stdout.flush()
    report = root / step.report if step.report else None
    if report:
        report.unlink(missing_ok=True)
    started = time.monotonic()
    status = subprocess.run([sys.executable, *step.arguments], cwd=root, env=environment, check=False).returncode
    seconds = time.monotonic() - started
    counts = count(report) if report else Counter(passed=1)
    if status and not counts["failed"]:
        counts = Counter(failed=1) if report is None else counts + Counter(failed=1)
    typer.echo(f"{number} {step.name}: {'FAILED' if counts['failed'] else 'ok'} in {seconds:.1f} s")
    return counts, seconds


def count(report: Path) -> Counter[str]:
    """Passed, failed and skipped tests of a JUnit report; a report that is missing or holds no test is a failure.

    An error in a fixture or in collecting counts as failed.
    """
    if not report.is_file():
        return Counter(failed=1)
    suites = ElementTree.parse(report).getroot().iter("testsuite")
    counts: Counter[str] = Counter()
    for suite in suites:
        tests, skipped = int(suite.get("tests", 0)), int(suite.get("skipped", 0))
        failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        counts.update(passed=max(0, tests - failed - skipped), failed=failed, skipped=skipped)
    return counts if counts.total() else Counter(failed=1)
