"""The command test: every check of the course, with one line of counts at the end."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from gpu_utils.course import changed as changes
from gpu_utils.course import suite, whole
from gpu_utils.course.paths import Course, course
from gpu_utils.errors import BadArgument

SIDE_BY_SIDE = 2
"""Steps of one stage that run at a time."""
FAULTS_SHOWN = 20
"""Failed tests of a step that are named again at the end."""


class Step(NamedTuple):
    """One part of the suite: its name, the arguments of Python, and the pytest report it writes, if it does."""

    name: str
    arguments: Sequence[str]
    report: str | None = None


Stage = tuple[Step, ...]
"""Steps that run side by side. The first shows at once what it prints; what the others print follows in order."""


def _pytest(name: str, *arguments: str) -> Step:
    report = f"build/{name.replace(' ', '-')}.xml"
    return Step(
        name, ("-m", "pytest", f"--junitxml={report}", "-p", "no:cacheprovider", "-p", "no:nbval", *arguments), report
    )


def _w2w(name: str, *arguments: str, report: str | None = None) -> Step:
    return Step(name, ("-m", "gpu_utils.cli", *arguments), report)


TYPES = Step("types", ("-m", "mypy"))
STYLE: Stage = (
    _w2w("notebooks are current", "build", "--check"),
    Step("floors of imports", ("-c", "from importlinter.cli import lint_imports_command as run; run()", "--no-logo")),
    Step("ruff check", ("-m", "ruff", "check", ".")),
    Step("ruff format", ("-m", "ruff", "format", "--check", ".")),
)
WORKERS = ("-n", "2", "--dist", "worksteal")
# worksteal gives each worker one half of the files in a row: what a file prepares is rarely prepared in both
NOTEBOOKS = "build/notebooks.xml"


def every_stage(*options: str) -> tuple[Stage, ...]:
    """The suite; `options` are pytest's, for its largest step."""
    tests = _pytest("tests", *WORKERS, *options, "--doctest-modules", "--ignore=tests/browser", "tests", "gpu_utils")
    return (
        STYLE,
        (  # a browser, a kernel and many tests wait for others: two cores have enough to do only when all run together
            tests,
            _w2w("notebooks run", "validate", "--report", NOTEBOOKS, report=NOTEBOOKS),
            _pytest("browser", "tests/browser"),
            TYPES,
        ),
    )


def stages_of_units(here: Course, units: Sequence[str]) -> tuple[Stage, ...]:
    """Notebooks that are current, tests with doctests, and runs of the notebooks of these units, by their numbers."""
    files = [path.relative_to(here.root).as_posix() for path in here.root.glob("tests/**/test_*.py")]
    content = [file for file in files if file.startswith("tests/content/") and suite.unit_of(file) is None]
    own = [file for file in files if suite.unit_of(file) in units and not file.startswith("tests/browser/")]
    exercises = [
        path.relative_to(here.root).as_posix()
        for unit in units
        for path in here.root.glob(f"gpu_utils/exercises/u{unit}_*")
    ]
    chosen = [f"--unit={unit}" for unit in units]
    return (
        (_w2w("notebooks are current", "build", "--check", *units),),
        (_pytest("unit tests", *WORKERS, "--doctest-modules", *chosen, *sorted(content + own), *exercises),),
        (_w2w("notebooks run", "validate", "--report", NOTEBOOKS, *units, report=NOTEBOOKS),),
    )


def stages_of_change(here: Course) -> tuple[Stage, ...]:
    """What the changes of this branch and of the working tree ask for; says what that is."""
    base = changes.base(here.root)
    files = changes.changed_files(here.root, base)
    choice = changes.choose(here.root, files)
    typer.echo(f"{len(files)} files changed since {base}")
    if choice.because:
        typer.echo(f"{choice.because} may matter to anything: everything runs")
        return every_stage()
    units = f"units {', '.join(choice.units)}" if choice.units else "no unit"
    typer.echo(f"they ask for {units} and {len(choice.files)} files of tests and examples")
    browser = [file for file in choice.files if file.startswith("tests/browser/")]
    tests = [file for file in choice.files if file not in browser]
    chosen: list[Stage] = [(TYPES, *STYLE)]
    if tests:
        chosen.append((_pytest("tests", *WORKERS, "--doctest-modules", *tests),))
    if choice.units:
        chosen += stages_of_units(here, choice.units)[1:]
    if browser:
        chosen.append((_pytest("browser", *browser),))
    return tuple(chosen)


def run_suite(
    unit: Annotated[
        list[str] | None, typer.Option(help="Only tests, doctests and notebooks of this unit; may be repeated.")
    ] = None,
    changed: Annotated[bool, typer.Option("--changed", help="Only what the files changed in git ask for.")] = False,
    every: Annotated[bool, typer.Option("--every", help="Every case, also of what is as it was.")] = False,
) -> None:
    """Run the whole suite: style, floors, types, tests, the page in a browser, and every notebook.

    Each part runs even when an earlier one failed. Reports and pictures are kept in build/, and so is build/times.txt:
    the slowest tests, and the time of each unit. The last line counts what passed, failed and was skipped; the exit
    code is non-zero when anything failed.

    There are over a thousand misconceptions, right answers in other styles and kernels of the virtual GPUs. All of a
    unit's are tried where its exercises or the library changed since they were last all tried, which tests/whole.toml
    records, and a few elsewhere. With --every, all are, and with --unit those of the unit; when everything passed, it
    is recorded.

    With --changed, a file of a unit asks for that unit, a module of the library for the tests, lessons and labs that
    import it, a test for itself, a document for the tests that name it, and anything else for everything. Changed is
    what differs from where this branch left its upstream, origin/main or main, whichever is there first.

    Example: ./w2w test, or ./w2w test --unit 03, or ./w2w test --changed
    """
    here = course()
    if bool(unit) + changed + every > 1:
        raise BadArgument("--unit, --changed and --every exclude each other; give one of them")
    if unit:
        numbers = [here.find(text).number for text in unit]
        stages = stages_of_units(here, numbers)
    else:
        stages = stages_of_change(here) if changed else every_stage(*(() if every else ("--drawn",)))
    failed = run_stages(here, stages)
    if (unit or every) and not failed:
        whole.record(here.root, numbers if unit else None)
    raise typer.Exit(failed)


def run_stages(here: Course, stages: Sequence[Stage]) -> int:
    """Run the stages one after another and print what came of them; 0 when nothing failed, else 1."""
    (here.root / "build").mkdir(exist_ok=True)
    started = time.monotonic()
    steps = [step for stage in stages for step in stage]
    numbers = {step.name: f"[{number}/{len(steps)}] {step.name}" for number, step in enumerate(steps, start=1)}
    outcomes: dict[str, Outcome] = {}
    with tempfile.TemporaryDirectory() as data:  # the learner's own progress is not touched
        environment = {**os.environ, "W2W_DATA": data, "TRITON_CACHE_DIR": str(here.triton_cache)}
        environment["PYTHONDONTWRITEBYTECODE"] = ""  # dozens of processes import the same modules
        for stage in stages:
            shared = {} if len(stage) == 1 else {"OMP_NUM_THREADS": "1"}
            run = partial(_run, root=here.root, environment=environment | shared)
            titles, live = [numbers[step.name] for step in stage], [True] + [False] * (len(stage) - 1)
            with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
                for step, title, outcome in zip(stage, titles, pool.map(run, titles, stage, live), strict=True):
                    typer.echo(f"{outcome.printed}{title}: {outcome.word} in {outcome.seconds:.1f} s")
                    outcomes[step.name] = outcome
    times = suite.table(case for step in steps if step.report for case in suite.read(here.root / step.report))
    (here.root / "build" / "times.txt").write_text(times + "\n", "utf-8")
    typer.echo(f"\n{times}\n")
    for step in steps:
        outcome = outcomes[step.name]
        typer.echo(f"{outcome.word:8}{step.name:24}{outcome.seconds:8.1f} s")
        for fault in outcome.faults[:FAULTS_SHOWN]:
            typer.echo(f"{'':8}{fault}")
    total = sum((outcome.counts for outcome in outcomes.values()), Counter())
    typer.echo(f"{'':8}{'together':24}{time.monotonic() - started:8.1f} s\n")
    typer.echo(f"{total['passed']} passed, {total['failed']} failed, {total['skipped']} skipped")
    return 1 if total["failed"] else 0


class Outcome(NamedTuple):
    """What came of a step: tests by what became of them, seconds, what is left to print, and each fault in a line."""

    counts: Counter[str]
    seconds: float
    printed: str
    faults: Sequence[str] = ()

    @property
    def word(self) -> str:
        return "FAILED" if self.counts["failed"] else "ok"


def _run(title: str, step: Step, live: bool, *, root: Path, environment: dict[str, str]) -> Outcome:
    report = root / step.report if step.report else None
    if report:
        report.unlink(missing_ok=True)
    if live:
        typer.echo(f"\n{title}")
    sys.stdout.flush()
    started = time.monotonic()
    with nullcontext() if live else tempfile.TemporaryFile() as output:
        command = [sys.executable, *step.arguments]
        status = subprocess.run(
            command, cwd=root, env=environment, check=False, stdout=output, stderr=subprocess.STDOUT
        ).returncode
        seconds = time.monotonic() - started
        printed = ""
        if output:
            output.seek(0)
            printed = f"\n{title}\n{output.read().decode(errors='replace')}"
    counts = suite.count(report) if report else Counter(passed=1)
    faults = suite.failures(report) if report else []
    if status and not counts["failed"]:
        counts = Counter(failed=1) if report is None else counts + Counter(failed=1)
    if counts["failed"] and not faults:
        faults = [f"exit code {status}, and no test that failed: see above what it printed"]
    return Outcome(counts, seconds, printed, faults)
