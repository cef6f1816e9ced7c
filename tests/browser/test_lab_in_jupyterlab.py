"""A learner opens lab 00 in a real browser, runs it untouched, answers rightly and wrongly, and reads the report."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from gpu_utils.course.sources import solution
from gpu_utils.exercises import find, ids

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

EXERCISE = "00.vector_add"
RUN_SECONDS = 120


PROMPTS = """() => [...document.querySelectorAll('.jp-CodeCell .jp-InputArea-prompt')].map(found => found.innerText)"""


def open_notebook(page, lab, notebook: str):
    page.goto(lab.address(notebook))
    page.wait_for_selector(".jp-Notebook .jp-Cell")
    page.wait_for_selector('.jp-Notebook-ExecutionIndicator[data-status="idle"]')
    # The indicator starts out as "idle"; the status bar says so only once the page has its kernel.
    page.wait_for_selector('#jp-main-statusbar :text("Python 3 (ipykernel) | Idle")')


def run_all(page):
    """Run every cell and wait until each code cell has its number.

    JupyterLab drops the command when it comes in the moment between "idle" and "connected": it is given again then,
    as a person would.
    """
    for _ in range(5):
        page.click('.lm-MenuBar-item:has-text("Run")')
        page.click('.lm-Menu-item:has-text("Run All Cells")')
        page.wait_for_timeout(2000)
        if any(re.search(r"[\d*]", prompt) for prompt in page.evaluate(PROMPTS)):
            break
    deadline = time.monotonic() + RUN_SECONDS
    while not all(re.search(r"\d", prompt) for prompt in page.evaluate(PROMPTS)):
        assert time.monotonic() < deadline, page.evaluate(PROMPTS)
        page.wait_for_timeout(500)


def with_answer(lab, name: str, source: str) -> str:
    """A copy of lab 00 in which the answer cell of EXERCISE holds `source`."""
    notebook = json.loads((lab.folder / "00_start.ipynb").read_text())
    cells = [cell for cell in notebook["cells"] if {"answer", EXERCISE} <= set(cell["metadata"].get("tags", []))]
    assert len(cells) == 1
    cells[0]["source"] = source
    path = Path(lab.folder / f"{name}.ipynb")
    path.write_text(json.dumps(notebook))
    return path.name


def reports(page) -> list[tuple[str, str]]:
    """(status, text) of every report on the page."""
    return page.eval_on_selector_all(
        ".w2w-report", "found => found.map(report => [report.dataset.status, report.innerText])"
    )


def tracebacks(page) -> list[str]:
    return page.eval_on_selector_all(
        '[data-mime-type="application/vnd.jupyter.error"], [data-mime-type="application/vnd.jupyter.stderr"]',
        "found => found.map(output => output.innerText)",
    )


def test_an_untouched_lab_runs_to_its_end_and_reads_not_started(lab, page):
    open_notebook(page, lab, "00_start.ipynb")
    run_all(page)
    found = reports(page)
    assert len(found) == len(ids("00"))
    assert {status for status, _ in found} == {"not started"}
    assert all("NOT STARTED" in text for _, text in found)
    assert tracebacks(page) == []
    page.screenshot(path=lab.screenshots / "lab_not_started.png")


def test_a_right_answer_reads_passed(lab, page):
    open_notebook(page, lab, with_answer(lab, "right", solution(EXERCISE)))
    run_all(page)
    text = dict(reports(page))["passed"]
    assert EXERCISE in text
    assert "fresh cases passed" in text
    assert tracebacks(page) == []
    page.locator('.w2w-report[data-status="passed"]').scroll_into_view_if_needed()
    page.screenshot(path=lab.screenshots / "lab_passed.png")


def test_a_wrong_answer_reads_failed_and_gets_a_hint(lab, page):
    wrong = solution(EXERCISE).replace(", mask=mask", "")
    assert wrong != solution(EXERCISE)
    open_notebook(page, lab, with_answer(lab, "wrong", wrong))
    run_all(page)
    text = dict(reports(page))["failed"]
    assert EXERCISE in text
    assert any(misconception.hint in text for misconception in find(EXERCISE).misconceptions)
    assert tracebacks(page) == []
    page.locator('.w2w-report[data-status="failed"]').scroll_into_view_if_needed()
    page.screenshot(path=lab.screenshots / "lab_failed.png")
    page.locator(".jp-NotebookPanel").screenshot(path=lab.screenshots / "lab_report.png")  # README's picture
