"""The report of a profile in a real browser: from a file, offline, by keyboard alone, in both colour schemes."""

from __future__ import annotations

import pytest

from gpu_utils.profiling.profile import Event, Profile
from gpu_utils.profiling.report import report
from tests.unit.profiling.sample import HOSTILE, many, training

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

VIEW = "() => document.getElementById('where').textContent"
FOCUSED = "() => document.activeElement.getAttribute('aria-label') || document.activeElement.textContent"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    two = [Event("kernel", "k", at, at + 10, "stream 7", device) for device in "01" for at in (0, 100 + int(device))]
    pages = {"nvidia": training("nvidia"), "amd": training("amd", virtual=True), "many": many(30_000)}
    pages["two"] = Profile(two)
    for name, profile in pages.items():
        (folder / f"{name}.html").write_text(report(profile))
    return folder


@pytest.fixture
def opened(browser, files):
    """A function that opens a report offline; no message of the console and no request may be left at the end."""
    troubles, contexts = [], []

    def open_one(name, *, width=1000, scheme="light"):
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: troubles.append(message.text))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("request", lambda asked: None if asked.url.startswith("file:") else troubles.append(asked.url[:80]))
        page.goto((files / f"{name}.html").as_uri())
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert [trouble for trouble in troubles if not trouble.startswith("data:")] == []


def press(page, *keys):
    for key in keys:
        page.keyboard.press(key)


@pytest.mark.parametrize("name", ["nvidia", "amd", "many"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_opens_and_fits_a_thousand_pixels(opened, name, scheme):
    page = opened(name, scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= 1000
    assert page.locator("#timeline .bar").count() > 10
    text, back = page.evaluate(
        "() => { const s = getComputedStyle(document.body); return [s.color, s.backgroundColor]; }"
    )
    bright = [sum(map(int, colour[4:-1].split(","))) for colour in (text, back)]
    assert (bright[0] > bright[1]) == (scheme == "dark")


def test_the_keyboard_zooms_pans_and_comes_back(opened):
    page = opened("nvidia")
    page.locator("#timeline").focus()
    whole = page.evaluate(VIEW)
    assert whole.startswith("0 ns to 1.")
    press(page, "+", "+")
    zoomed = page.evaluate(VIEW)
    assert zoomed != whole
    press(page, "ArrowRight")
    assert page.evaluate(VIEW) != zoomed
    press(page, "ArrowLeft")
    assert page.evaluate(VIEW) == zoomed
    press(page, "-", "-", "-")
    assert page.evaluate(VIEW) == whole
    press(page, "+", "Home")
    assert page.evaluate(VIEW) == whole


def test_bars_are_reached_by_key_and_say_what_they_are(opened):
    page = opened("nvidia")
    page.locator("#timeline").focus()
    press(page, "n")
    first = page.evaluate(FOCUSED)
    press(page, "n")
    second = page.evaluate(FOCUSED)
    assert first != second
    assert page.locator("#detail").text_content() == second
    assert "copy_rows: 30 us from " in first + second
    press(page, "p")
    assert page.evaluate(FOCUSED) == first
    press(page, "+", "+", "+")
    assert page.evaluate(FOCUSED) == first  # the focus stays on it
    assert page.locator('#timeline [tabindex="0"]').count() == 1  # one stop of Tab, not hundreds


def test_gaps_are_jumped_to_from_the_list_and_by_key(opened):
    page = opened("nvidia")
    whole = page.evaluate(VIEW)
    button = page.locator("[data-gap]").nth(1)
    button.focus()
    press(page, "Enter")
    assert page.evaluate(VIEW) != whole
    assert page.evaluate("document.activeElement.id") == "timeline"
    assert page.locator("#timeline .gap.now").count() == 1
    assert page.locator("#detail").text_content().startswith("idle for 155 us from ")
    at = page.evaluate(VIEW)
    press(page, "g")
    assert page.evaluate(VIEW) != at


def test_a_gap_lies_over_the_streams_of_its_own_gpu(opened):
    page = opened("two")
    gaps, bars = page.locator("#timeline .gap"), page.locator("#timeline .bar")
    assert (gaps.count(), bars.count()) == (2, 4)
    for number in range(2):
        gap, bar = gaps.nth(number).bounding_box(), bars.nth(2 * number).bounding_box()
        assert gap["y"] <= bar["y"] < bar["y"] + bar["height"] <= gap["y"] + gap["height"] + 2
        assert gap["height"] < 2 * bar["height"]


def test_tables_are_sorted_by_key(opened):
    page = opened("nvidia")
    names = "() => [...document.querySelectorAll('#kernels tbody tr')].map(row => row.cells[1].textContent)"
    by_time = page.evaluate(names)
    assert by_time == ["matmul", "transpose", "copy_rows", HOSTILE]
    page.locator("#kernels th", has_text="memory").locator("button").focus()
    press(page, "Enter")
    assert page.evaluate(names)[0] == "copy_rows"
    assert page.locator('#kernels th[aria-sort="descending"]').text_content() == "memory"
    press(page, "Space")
    assert page.evaluate(names)[-1] == "copy_rows"
    page.locator("#kernels th", has_text="kernel").locator("button").focus()
    press(page, "Enter")
    assert page.evaluate(names) == sorted(by_time, key=str.lower)


def test_everything_can_be_reached_with_tab_and_shows_where_one_is(opened):
    page = opened("nvidia")
    here = """() => { const at = document.activeElement;
        return [at === document.body, at.textContent.trim().slice(0, 20), getComputedStyle(at).outlineStyle,
            at.closest('svg') !== null]; }"""
    seen = []
    for _ in range(60):
        press(page, "Tab")
        past, text, outline, in_drawing = page.evaluate(here)
        if past:
            break
        seen.append(text)
        assert outline != "none" or in_drawing  # in a drawing the bar's own edge shows it
    assert {"zoom in", "show all", "#", "calls"} <= set(seen)


def test_points_of_the_roofline_have_words(opened):
    page = opened("nvidia")
    spots = page.locator(".roof .spot")
    assert spots.count() == 3
    spots.first.focus()
    assert page.evaluate(FOCUSED).startswith("1. matmul: 350 FLOP per byte, 17.5 TFLOP/s, 89.7 % of the roof")


def test_wheel_and_drag_do_what_keys_do(opened):
    page = opened("nvidia")
    box = page.locator("#timeline").bounding_box()
    page.mouse.move(box["x"] + 600, box["y"] + 30)
    whole = page.evaluate(VIEW)
    page.mouse.wheel(0, -200)
    page.wait_for_function(f"({VIEW})() !== {whole!r}")
    zoomed = page.evaluate(VIEW)
    page.mouse.down()
    page.mouse.move(box["x"] + 400, box["y"] + 30)
    page.mouse.up()
    assert page.evaluate(VIEW) != zoomed


def test_many_kernels_are_drawn_as_few_bars_until_one_zooms_in(opened):
    page = opened("many")
    count = page.locator("#timeline .bar").count()
    assert count < 1000
    assert "bars stand for several events" in page.evaluate(VIEW)
    page.locator("#timeline").focus()
    press(page, *["+"] * 12)
    assert page.locator("#timeline .bar").count() < 1000


def test_it_prints_dark_on_light_without_its_buttons(opened):
    page = opened("amd", scheme="dark")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
    assert not page.locator(".tools").is_visible()
    assert page.locator(".banner").first.is_visible()
