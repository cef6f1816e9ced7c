"""The home page in a real browser: it follows progress by itself, and opens lesson and lab by click and by key."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import pytest

from gpu_utils import exercises
from gpu_utils.course.paths import course
from gpu_utils.grading.progress import record_attempt

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

WIDEST = """() => { const page = document.querySelector('.w2w-home');
    return [page.scrollWidth - page.clientWidth, page.getBoundingClientRect().right - innerWidth]; }"""
LEFT = "document.querySelector('#jp-left-stack')?.offsetWidth"
FOCUSED = "() => document.activeElement.innerText"


def in_front(page, heading):
    """Wait until the notebook with this heading is the one in front."""
    page.locator(f'.jp-NotebookPanel:visible h1:has-text("{heading}")').wait_for()


def run_by_itself(page):
    page.wait_for_selector("[data-w2w-runs] .w2w-home")


def test_the_map_shows_every_unit_and_a_link_keeps_the_focus_while_the_page_runs_its_cell(lab, page):
    foreign, complaints = [], []
    page.on("request", lambda request: foreign.append(request.url) if _foreign(request.url) else None)
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    assert not re.search(r"<script|application/vnd.jupyter.widget", (lab.folder / "home.ipynb").read_text())
    page.goto(lab.address("home.ipynb"))
    page.locator(".w2w-home .next a").focus()  # what `study` wrote is there at once, with no kernel
    run_by_itself(page)
    assert page.evaluate(FOCUSED) == "Open lesson 00"
    shown = page.locator(".w2w-home")
    assert shown.locator("li").count() == 16
    here = len(course().written())
    assert shown.locator("li.planned").count() == 16 - here
    assert shown.locator("li:not(.planned) a").count() == 2 * here
    assert "Begin with lesson 00" in shown.locator(".next").inner_text()
    assert page.locator('[data-mime-type="application/vnd.jupyter.stderr"]').count() == 0
    assert (foreign, complaints) == ([], [])


def _foreign(url: str) -> bool:
    return urlsplit(url).scheme in ("http", "https") and urlsplit(url).hostname != "127.0.0.1"


def test_clicks_lead_to_lesson_lab_and_home_which_then_knows_what_was_passed(lab, page, monkeypatch):
    page.goto(lab.address("home.ipynb"))
    run_by_itself(page)
    page.click('.w2w-home a:text-is("Lesson 00")')
    in_front(page, "00 Your machine")
    page.locator('.jp-NotebookPanel:visible a:text-is("Lab 00")').first.click()
    in_front(page, "Lab 00")
    monkeypatch.setenv("W2W_DATA", str(lab.folder.parent / "data"))
    first, second, *more = exercises.ids("00")
    record_attempt(first, "passed", "cpu", "", 1, 0.1)
    page.locator('.jp-NotebookPanel:visible a:text-is("Home")').first.click()
    page.wait_for_selector(f'.w2w-home .next:has-text("Go on with lab 00: next is {second}")')
    assert f"■□{'□' * len(more)} 1 of {2 + len(more)} passed" in page.locator(".w2w-home li").first.inner_text()
    page.locator(".w2w-home").screenshot(path=lab.screenshots / "home.png")  # README's picture


def test_the_keyboard_alone_opens_lesson_and_lab(lab, page):
    page.goto(lab.address("home.ipynb"))
    run_by_itself(page)
    for link, heading in (("Lesson 01", "Lesson 01: GPT-2"), ("Lab 01", "Lab 01")):
        page.locator(".w2w-home .next a").focus()
        for _ in range(9):
            page.keyboard.press("Tab")
            if page.evaluate(FOCUSED) == link:
                break
        assert page.evaluate(FOCUSED) == link
        page.keyboard.press("Enter")
        in_front(page, heading)
        page.keyboard.press("Control+Shift+[")  # the tab before this one
        page.wait_for_selector(".w2w-home", state="visible")


def test_the_file_browser_is_folded_at_the_first_visit_and_stays_open_once_it_was_opened(lab, page):
    page.goto(lab.address("home.ipynb"))
    # while JupyterLab loads, the file browser has no width either: the note of the fold tells the two apart
    page.wait_for_function(f"() => localStorage.getItem('w2w-home:folded') && {LEFT} === 0")
    run_by_itself(page)
    page.keyboard.press("Control+b")
    page.wait_for_function(f"() => {LEFT} > 100")
    page.goto(lab.address("home.ipynb"))  # a window with a layout of its own
    run_by_itself(page)
    page.wait_for_selector("#jupyterlab-splash", state="detached")
    page.wait_for_function(f"() => {LEFT} > 100")


def test_it_fits_windows_of_1000_and_1500_pixels_in_both_themes(lab, page):
    page.goto(lab.address("home.ipynb"))
    run_by_itself(page)
    page.wait_for_selector("#jupyterlab-splash", state="detached")
    for theme in ("Dark", "Light"):
        page.click('.lm-MenuBar-item:has-text("Settings")')
        page.hover('.lm-Menu-item:has-text("Theme")')
        page.click(f'.lm-Menu-itemLabel:text-is("JupyterLab {theme}")')
        page.wait_for_function(f"() => document.body.dataset.jpThemeName === 'JupyterLab {theme}'")
        page.wait_for_selector("#jupyterlab-splash", state="detached")
        for width in (1000, 1500):
            page.set_viewport_size({"width": width, "height": 1050})
            page.wait_for_timeout(300)
            over, beyond = page.evaluate(WIDEST)
            assert over <= 0
            assert beyond <= 0
            page.screenshot(path=lab.screenshots / f"home_{theme.lower()}_{width}.png")
