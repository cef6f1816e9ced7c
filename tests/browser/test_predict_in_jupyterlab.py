"""A prediction in a real browser, by keyboard only: a number, a choice, the answer, a second try."""

from __future__ import annotations

import json

import pytest

from tests.browser.test_lab_in_jupyterlab import open_notebook, tracebacks

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

ASK = """\
from gpu_utils import predict
from gpu_utils.lesson import choice, number

guess = predict(
    "00.browser",
    "How many programs must the grid have? What would the last of them do without a mask?",
    programs=number("programs"),
    tail=choice("write past the end", "nothing"),
)"""
SIDEWAYS = "cell => Math.max(...[...cell.querySelectorAll('.widget-box')].map(b => b.scrollWidth - b.clientWidth))"
ANSWER = """\
guess.reveal(programs=-(-10 // 4), tail="write past the end", because="10 / 4 is 2.5, rounded up.")"""


@pytest.fixture
def asked(page, lab):
    """The page of a notebook whose first cell, which asks, has run by Shift-Enter; the second one answers."""
    cells = [
        {"cell_type": "code", "id": f"c{n}", "metadata": {}, "source": source, "outputs": [], "execution_count": None}
        for n, source in enumerate((ASK, ANSWER))
    ]
    kernel = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
    file = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    (lab.folder / "predict.ipynb").write_text(json.dumps(file))
    open_notebook(page, lab, "predict.ipynb")
    page.locator(".jp-CodeCell").first.locator(".cm-content").click()
    page.keyboard.press("Shift+Enter")
    page.locator('input[type="text"][placeholder^="a number"]').wait_for()
    return page


def test_a_guess_is_typed_chosen_answered_and_made_again_by_keyboard_only(asked, lab):
    page = asked
    form, answer = page.locator(".jp-CodeCell").first, page.locator(".jp-CodeCell").nth(1)
    page.locator('input[type="text"][placeholder^="a number"]').focus()
    page.keyboard.type("about four")
    page.keyboard.press("Enter")
    form.locator('[role="alert"]:has-text("\'about four\' is not a number")').wait_for()
    page.wait_for_function("() => document.activeElement.matches('input[type=text]')")  # back to what cannot be read
    page.keyboard.press("Control+a")
    page.keyboard.type("2**2")
    page.keyboard.press("Enter")
    form.locator('[role="status"]:has-text("Kept: programs: 4. 1 still open.")').wait_for()
    assert page.evaluate("() => document.activeElement.matches('.widget-toggle-buttons button')")  # Enter went on
    page.keyboard.press("Enter")
    form.locator('[role="status"]:has-text("tail: write past the end. Now run the next cell.")').wait_for()
    assert form.evaluate(SIDEWAYS) == 0
    form.screenshot(path=lab.screenshots / "predict_guessed.png")

    page.keyboard.press("Escape")  # to the cell below
    page.keyboard.press("Shift+Enter")
    answer.locator('.answer:has-text("1.33 times too high")').wait_for()
    form.locator('[role="status"]:has-text("Locked: the answer is below.")').wait_for()
    assert form.locator('input[type="text"]').is_disabled()
    page.screenshot(path=lab.screenshots / "predict_answered.png")

    form.locator('button:has-text("Guess again")').focus()
    page.keyboard.press("Enter")
    form.locator('[role="status"]:has-text("Try 2, with the answer seen before")').wait_for()
    page.wait_for_function("() => document.activeElement.matches('input[type=text]')")
    page.keyboard.type("3")
    page.keyboard.press("Enter")
    form.locator('[role="status"]:has-text("Kept: programs: 3")').wait_for()
    assert tracebacks(page) == []
