"""What the reports of a test run say: the counts, the time of each unit and its budget, and the slowest tests."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from gpu_utils.course.units import UNITS

BUDGET_MINUTES = {
    "00": 3.0,
    "01": 2.5,
    "02": 2.5,
    "03": 6.0,
    "04": 3.5,
    "05": 2.5,
    "06": 2.0,
    "07": 3.0,
    "08": 4.0,
    "09": 2.5,
    "10": 4.0,
    "11": 4.0,
    "12": 2.5,
    "13": 3.0,
    "14": 4.0,
}
"""Unit -> minutes of one core that its tests and notebooks may take together; a new unit enters its own here.

The first four units together: 14, which are seven minutes on two cores. Units 04 to 06: 8, four minutes. Units 08,
10 and 11, whose ranks are processes: two minutes each. Units 07 and 13: one and a half. Units 09 and 12: 150 seconds
together. Unit 14: two minutes.
"""

REST = "library"
SLOWEST = 10
WIDTH = 300
"""Characters that are shown of what a failed test said."""
_NUMBERS = {unit.number for unit in UNITS}
_FILE = re.compile(r"\bu(\d\d)_|_u(\d\d)_|\b(?:notebooks|labs|solutions|content)[./](\d\d)_")
_CASE = re.compile(r"\[(\d\d)(?:[._][a-z]\w*)?[\]\-]")


class Case(NamedTuple):
    """One test of a report: the id under which pytest shows it, as well as a report can tell, and its seconds."""

    name: str
    seconds: float


def unit_of(test: str) -> str | None:
    """The number of the unit that a test belongs to, by its file or by its case; None for the library's own tests.

    test  a node id of pytest, or "class::name" of its report

    >>> unit_of("tests/content/test_u03_cpp.py::test_a")
    '03'
    >>> unit_of("tests/content/test_exercises.py::test_trivial_answers_fail[02.converge]")
    '02'
    >>> unit_of("solutions/01_gpt2_baseline.ipynb::Cell 3")
    '01'
    >>> unit_of("tests/unit/test_tiles.py::test_bytes[16-32]") is None
    True
    """
    file, _, name = test.partition("::")
    found = _FILE.search(file)
    if found is None and re.match(r"tests[./]content\b", file):
        found = _CASE.search(name)
    number = next(filter(None, found.groups()), None) if found else None
    return number if number in _NUMBERS else None


def read(report: Path) -> list[Case]:
    """The tests of a JUnit report with their seconds, set-up and tear-down included; none when it is missing."""
    if not report.is_file():
        return []
    cases = ElementTree.parse(report).getroot().iter("testcase")
    return [Case(f"{case.get('classname', '')}::{case.get('name')}", float(case.get("time", 0))) for case in cases]


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


def failures(report: Path) -> list[str]:
    """The failed tests of a JUnit report and the first line of what each said; none when it is missing."""
    if not report.is_file():
        return []
    found = []
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        for fault in (*case.iter("failure"), *case.iter("error")):
            said = (fault.get("message") or fault.text or "").strip().partition("\n")[0]
            found.append(f"{case.get('classname', '')}::{case.get('name')}: {said[:WIDTH]}")
    return found


def table(cases: Iterable[Case]) -> str:
    """The slowest tests, then tests and minutes of each unit beside its budget, as text.

    Minutes are those of the processes that ran the tests: two side by side count twice.
    """
    cases = list(cases)
    lines = ["slowest tests, in seconds"]
    lines += [f"{case.seconds:8.1f}  {case.name}" for case in sorted(cases, key=lambda case: -case.seconds)[:SLOWEST]]
    tests: Counter[str] = Counter()
    seconds: Counter[str] = Counter()
    for case in cases:
        unit = unit_of(case.name) or REST
        tests[unit] += 1
        seconds[unit] += case.seconds  # type: ignore[assignment]
    lines += ["", f"{'unit':8}{'tests':>8}{'minutes':>10}{'budget':>10}"]
    for unit in sorted(tests):
        minutes, budget = seconds[unit] / 60, BUDGET_MINUTES.get(unit)
        over = "  over its budget" if budget is not None and minutes > budget else ""
        lines.append(f"{unit:8}{tests[unit]:8}{minutes:10.1f}{'' if budget is None else budget:>10}{over}")
    return "\n".join(lines)
