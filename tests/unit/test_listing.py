"""The listing: source lines and instructions matched, as text and as HTML."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

import pytest
import torch

from gpu_utils.compiler import listing
from gpu_utils.errors import UnknownName
from gpu_utils.ui.listing import listing_html
from tests.unit.kernels import add_kernel, matmul_kernel, softmax_kernel


@pytest.fixture(scope="module")
def softmax_listing():
    x = torch.zeros(1024)
    return listing(softmax_kernel, "sm_90", "gfx942", args=[x, x, 1000], BLOCK=1024)


def line_of(found, fragment):
    return next(number for number, text in found.source if fragment in text)


def kinds(found, target, fragment):
    column = next(column for column in found.columns if column.target == target)
    return {instruction.kind for instruction in column.of_line(line_of(found, fragment))}


@pytest.mark.parametrize("target", ["sm_90", "gfx942"])
def test_loads_and_stores_belong_to_the_lines_that_wrote_them(softmax_listing, target):
    assert "global load" in kinds(softmax_listing, target, "tl.load")
    assert "global store" in kinds(softmax_listing, target, "tl.store")
    assert "global load" not in kinds(softmax_listing, target, "tl.store")


@pytest.mark.parametrize("target", ["sm_90", "gfx942"])
def test_what_tl_max_became_belongs_to_the_line_that_called_it(softmax_listing, target):
    assert kinds(softmax_listing, target, "tl.max") >= {"cross-lane", "shared load", "barrier", "vector"}


def test_nearly_every_instruction_has_a_line(softmax_listing):
    for column in softmax_listing.columns:
        assert len(column.of_line(None)) < 0.1 * len(column.instructions)


def test_the_source_has_the_numbers_of_its_file(softmax_listing):
    file = softmax_kernel.fn.__code__.co_filename
    with open(file) as lines:
        written = lines.read().split("\n")
    assert all(written[number - 1] == text for number, text in softmax_listing.source)


def test_the_text_shows_source_then_both_targets_side_by_side(softmax_listing):
    text = str(softmax_listing)
    assert text.splitlines()[0] == "softmax_kernel: source, then sm_90 | gfx942"
    assert re.search(r"ld\.global.* \| .*buffer_load|buffer_load", text)
    below = text[text.index("tl.store") :]
    assert "st.global" in below
    assert "_store_" in below


def test_without_targets_one_of_each_vendor_is_shown():
    x = torch.zeros(64)
    assert [column.target for column in listing(add_kernel, args=[x, x, x, 64], BLOCK=64).columns] == [
        "sm_90",
        "gfx942",
    ]


def test_an_unknown_target_offers_the_nearest():
    with pytest.raises(UnknownName, match="did you mean 'sm_90'"):
        listing(add_kernel, "sm_9O", args=[], BLOCK=64)


def test_the_html_loads_nothing_and_names_only_itself(softmax_listing):
    html = listing_html(softmax_listing)
    assert "http" not in html
    assert "@import" not in html
    name = re.search(r'<div id="(w2w-listing-[0-9a-f]{8})"', html).group(1)
    style = re.search(r"<style>(.*?)</style>", html, re.DOTALL).group(1)
    rules = [rule.strip() for rule in re.findall(r"([^{}]+){", style)]
    assert rules
    assert all(rule.startswith(f"#{name}") for rule in rules)
    assert listing_html(softmax_listing) != html  # two listings on one page do not share a name


def test_the_html_shows_every_instruction_with_its_line(softmax_listing):
    html = listing_html(softmax_listing)
    total = sum(len(column.instructions) for column in softmax_listing.columns)
    assert html.count('class="row"') == total + len(softmax_listing.source)
    number = line_of(softmax_listing, "tl.load")
    assert html.count(f'data-line="{number}"') == 1 + sum(len(c.of_line(number)) for c in softmax_listing.columns)


def test_source_text_is_escaped(softmax_listing):
    html = listing_html(softmax_listing)
    assert "mask=i &lt; n" in html
    assert "float(&quot;-inf&quot;)" in html


def test_a_notebook_gets_the_html():
    script = (
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "shell = InteractiveShell.instance()\n"
        "import torch, gpu_utils\n"
        "from tests.unit.kernels import add_kernel\n"
        "x = torch.zeros(64)\n"
        "found = gpu_utils.listing(add_kernel, 'sm_80', args=[x, x, x, 64], BLOCK=64)\n"
        "shown, _ = shell.display_formatter.format(found)\n"
        "print(sorted(shown), 'w2w-listing-' in shown['text/html'])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['text/html', 'text/plain'] True"


@pytest.mark.browser
def test_in_a_browser_a_line_and_its_instructions_light_up_together(tmp_path):
    sync_api = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("Chromium is not installed")
    a = torch.zeros(256, 256, dtype=torch.float16)
    found = listing(matmul_kernel, "sm_90", "gfx942", args=[a, a, a, 256, 256, 256, 256], M=64, N=64, BLOCK_K=32)
    page_file = tmp_path / "listing.html"
    page_file.write_text(f"<!doctype html><meta charset=utf-8><body>{listing_html(found)}{listing_html(found)}")
    number = line_of(found, "tl.dot")
    expected = 1 + sum(len(column.of_line(number)) for column in found.columns)
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        problems = []
        page.on("pageerror", lambda problem: problems.append(str(problem)))
        page.goto(page_file.as_uri())
        first = page.locator("div[id^=w2w-listing]").nth(0)
        first.locator(f'.row[data-line="{number}"]').first.hover()
        assert page.locator(".on").count() == expected
        first.locator('.pane:nth-child(2) .row[data-line="' + str(number) + '"]').first.hover()
        assert page.locator(".on").count() == expected
        assert first.locator('.on[aria-selected="true"]').count() == expected
        assert first.locator(".pane:nth-child(3) .on").first.is_visible()
        page.mouse.move(0, 0)
        first.locator(".row").first.focus()
        for _ in range(number - found.source[0][0]):
            page.keyboard.press("ArrowDown")
        assert page.evaluate("document.activeElement.dataset.line") == str(number)
        assert page.locator(".on").count() == expected
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.closest('.lines').getAttribute('aria-label')").startswith("instr")
        assert problems == []
        browser.close()
