"""Every explorer in a real browser, by keyboard and with no network: the drawing and its words follow the controls."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.browser.test_lab_in_jupyterlab import open_notebook, run_all, tracebacks
from tests.browser.test_predict_in_jupyterlab import SIDEWAYS

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

CELLS = {
    "occupancy": 'explore("occupancy")',
    "access": 'explore("access", amd="gfx950")',
    "divergence": 'explore("divergence", "lane < 48", code="Triton")',
    "roofline": 'explore("roofline", points=[Point("scale", 2**26, 2**29), Point("matmul", 2**37, 2**27, 3e-4)])',
    "memory": 'explore("memory")',
    "costs": 'explore("costs")',
    "online": 'explore("online")',
    "tiles": 'explore("tiles", chip="MI300X", order="groups", M=4096, N=4096)',
    "causal": 'explore("causal")',
    "numbers": 'explore("numbers", second="e5m2")',
    "routing": 'explore("routing", experts=16)',
    "network": 'explore("network")',
    "timeline": 'explore("timeline")',
    "kernels": 'explore("kernels", [Point("scale", 2**26, 2**29, 4e-4)], occupancy=30)',
    "operands": 'explore("operands")',
    "schedule": 'explore("schedule")',
    "lowered": 'explore("lowered")',
    "layout": 'explore("layout", cols=32)',
}
IMPORTS = "from gpu_utils import explore\nfrom gpu_utils.analytic.roofline import Point"
WAIT_SECONDS = 15


@dataclass
class Notebook:
    """A page on which every cell has run, what it asked of other hosts, and what its console complained about."""

    page: Any
    foreign: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def cell(self, name: str) -> Any:
        return self.page.locator(".jp-CodeCell").nth(1 + list(CELLS).index(name))

    def words(self, name: str, side: int = 0) -> str:
        """The sentences under a drawing. They are replaced whole, so that a look may come between."""
        return self.cell(name).locator('[role="status"]').nth(side).inner_text()

    def await_words(self, name: str, expected: str, side: int = 0) -> str:
        deadline = time.monotonic() + WAIT_SECONDS
        while not re.search(expected, words := self.words(name, side)):
            assert time.monotonic() < deadline, f"{words!r} does not say {expected!r}"
            self.page.wait_for_timeout(50)
        return words

    def slider(self, name: str, label: str, side: int = 0) -> Any:
        row = self.cell(name).locator(".widget-slider").filter(has=self.page.locator(f'label:text-is("{label}")'))
        return row.nth(side).locator('[role="slider"]')


@pytest.fixture(scope="module")
def notebook(browser, lab):
    sources = [IMPORTS, *CELLS.values()]
    cells = [
        {"cell_type": "code", "id": f"c{n}", "metadata": {}, "source": source, "outputs": [], "execution_count": None}
        for n, source in enumerate(sources)
    ]
    kernel = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
    file = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    (lab.folder / "explorers.ipynb").write_text(json.dumps(file))
    context = browser.new_context(viewport={"width": 1330, "height": 1400})
    found = Notebook(context.new_page())
    found.page.set_default_timeout(60_000)

    def only_here(route: Any) -> None:
        if urlsplit(route.request.url).hostname in (None, "127.0.0.1"):
            route.continue_()
        else:
            found.foreign.append(route.request.url)
            route.abort()

    context.route("**/*", only_here)
    found.page.on("console", lambda message: found.complaints.append(message.text) if message.type == "error" else None)
    found.page.on("pageerror", lambda error: found.complaints.append(str(error)))
    open_notebook(found.page, lab, "explorers.ipynb")
    run_all(found.page)
    for name in CELLS:
        found.cell(name).locator(".w2w-x svg").first.wait_for()
    yield found
    context.close()


def test_every_explorer_shows_itself(notebook, lab):
    assert tracebacks(notebook.page) == []
    for name in CELLS:
        box = notebook.cell(name).locator(".w2w-x svg").first.bounding_box()
        assert box["width"] > 300
        assert box["height"] > 100
        assert notebook.cell(name).evaluate(SIDEWAYS) == 0, name
        notebook.cell(name).screenshot(path=lab.screenshots / f"explorer_{name}.png")


def test_an_arrow_key_moves_registers_over_a_cliff_on_both_sides(notebook):
    slots = notebook.cell("occupancy").locator('.nvidia rect.even[height="18.0"], .nvidia rect.odd[height="18.0"]')
    assert "32 of 64 waves" in notebook.words("occupancy")
    assert slots.count() == 32
    registers = notebook.slider("occupancy", "registers")
    registers.focus()
    notebook.page.keyboard.press("ArrowRight")
    notebook.await_words("occupancy", "24 of 64 waves")
    assert slots.count() == 24
    assert registers.get_attribute("aria-valuenow") == "65.0"
    notebook.await_words("occupancy", "limited by LDS", side=1)
    notebook.page.wait_for_function(
        "([a, b]) => a.ariaValueNow === b.ariaValueNow",
        arg=[registers.element_handle(), notebook.slider("occupancy", "registers", side=1).element_handle()],
    )
    assert notebook.page.evaluate("() => document.activeElement.getAttribute('role')") == "slider"


def test_a_target_can_be_chosen_by_keyboard(notebook):
    notebook.cell("occupancy").locator("select").nth(1).focus()
    for key in ("Space", "ArrowDown", "Enter"):  # JupyterLab keeps the arrow keys of a closed list to itself
        notebook.page.keyboard.press(key)
    notebook.cell("occupancy").locator('h4:has-text("gfx950, one CU")').wait_for()
    notebook.await_words("occupancy", "limited by registers", side=1)


def test_a_typed_expression_is_drawn_and_a_broken_one_explained(notebook):
    cell = notebook.cell("access")
    typed = cell.locator('input[type="text"]').first
    assert notebook.words("access").startswith("4 segments of 32 bytes, as few as can be")
    typed.fill("lane * 3")
    typed.press("Enter")
    notebook.await_words("access", "^12 segments of 32 bytes, 4 would do")
    notebook.await_words("access", "^6 segments of 128 bytes, 2 would do", side=1)
    typed.fill("lane / 3")
    typed.press("Enter")
    cell.locator('[role="alert"]').wait_for()
    assert "use // for whole numbers" in cell.locator('[role="alert"]').inner_text()
    assert notebook.words("access").startswith("12 segments")
    typed.fill("lane * 32")
    typed.press("Enter")
    notebook.await_words("access", "^32 segments")
    assert cell.locator('[role="alert"]').count() == 0


def test_shared_memory_has_64_banks_on_gfx950(notebook):
    cell = notebook.cell("access")
    button = cell.locator('button:has-text("a read")')
    button.focus()
    notebook.page.keyboard.press("Enter")
    notebook.await_words("access", "^32 passes through the banks, 1 would do")
    assert cell.locator('svg text:text-is("63")').count() >= 2  # a bank and a lane
    assert "64 banks" in cell.locator("h4").nth(1).inner_text()


def test_the_arrow_keys_step_through_both_sides_of_a_branch(notebook):
    before = notebook.words("divergence")
    at = int(re.search(r"Instruction (\d+) of", before)[1])
    notebook.slider("divergence", "instruction").focus()
    notebook.page.keyboard.press("ArrowRight")
    notebook.await_words("divergence", f"^Instruction {at + 1} of")
    wavefront = notebook.slider("divergence", "instruction", side=1)
    wavefront.focus()
    for _ in range(3):
        notebook.page.keyboard.press("ArrowRight")
    notebook.await_words("divergence", r"wavefront 0: 48 of 64 lanes \(0-47\)", side=1)
    typed = notebook.cell("divergence").locator('input[type="text"]').first
    typed.fill("lane % 2")
    typed.press("Enter")
    notebook.await_words("divergence", r"wavefront 0: 32 of 64 lanes \(1, 3, 5", side=1)


def test_a_point_shows_its_values_when_it_has_the_focus(notebook):
    cell = notebook.cell("roofline")
    spot = cell.locator('.spot[aria-label*="scale"]').first
    assert not spot.locator(".tip").is_visible()
    spot.focus()
    assert spot.locator(".tip").is_visible()
    assert "0.125 FLOP per byte" in spot.locator(".tip").text_content()


def test_a_chip_is_added_by_the_space_bar_and_one_without_a_figure_is_grey(notebook):
    cell = notebook.cell("roofline")
    assert "MI355X" not in notebook.words("roofline")
    cell.locator('label:has-text("MI355X") input').focus()
    notebook.page.keyboard.press("Space")
    notebook.await_words("roofline", "Instinct MI355X: 2.52 PFLOP/s")
    assert cell.locator('label:has-text("MI325X (bandwidth: no confirmed source)") input').is_disabled()


def test_longer_sequences_fill_the_memory(notebook):
    before = notebook.words("memory")
    notebook.slider("memory", "tokens each").focus()
    for _ in range(3):
        notebook.page.keyboard.press("ArrowRight")
    after = notebook.await_words("memory", "H100: does not fit")
    assert "H100: fits" in before
    assert "H200: " in after


def test_the_costs_follow_their_sliders(notebook):
    notebook.slider("costs", "layers").focus()
    notebook.page.keyboard.press("ArrowRight")
    notebook.await_words("costs", "131,527,680 parameters")


def test_a_block_that_is_masked_whole_makes_l_nan_without_the_guard(notebook):
    assert notebook.words("online").startswith("Block 2 of 4")
    notebook.slider("online", "block number").focus()
    notebook.page.keyboard.press("ArrowRight")
    notebook.await_words("online", "^Block 3 of 4, .* which stays 2.3")
    for label in ("masked", "subtract 0"):
        notebook.cell("online").locator(f'label:has-text("{label}") input').focus()
        notebook.page.keyboard.press("Space")
    notebook.await_words("online", "the l of float32 is NaN")


def test_the_order_of_tiles_decides_what_the_caches_fetch(notebook):
    before = notebook.words("tiles")
    assert "need 1 strip of A and" in before or "need 2 strips of A and" in before
    notebook.slider("tiles", "rows of a group").focus()
    notebook.page.keyboard.press("ArrowRight")
    notebook.await_words("tiles", "need 5 strips of A|need [3-9] strips of A|need [1-9][0-9] strips of A")
    notebook.cell("tiles").locator("select").nth(5).focus()
    for key in ("Space", "ArrowDown", "Enter"):
        notebook.page.keyboard.press(key)
    notebook.await_words("tiles", "dealt by die", side=1)


def test_a_block_of_keys_further_the_tile_is_skipped(notebook):
    assert notebook.words("causal").startswith("Causal: 36 of 64 tiles are computed")
    notebook.await_words("causal", "2,080 of 4,096 scores count", side=1)
    notebook.slider("causal", "key block").focus()
    notebook.page.keyboard.press("ArrowRight")
    notebook.await_words("causal", "0 of 4,096 scores count; the tile is skipped", side=1)


def test_a_step_back_and_a_bias_change_the_loads(notebook):
    assert notebook.words("routing").startswith("Step 100, no balance: the busiest of 16 experts")
    notebook.slider("routing", "step").focus()
    notebook.page.keyboard.press("ArrowLeft")
    notebook.await_words("routing", "Step 99, no balance")
    notebook.cell("routing").locator("select").first.focus()
    for key in ("Space", "ArrowDown", "Enter"):
        notebook.page.keyboard.press(key)
    notebook.await_words("routing", "Step 99, balanced by auxiliary loss")
    notebook.cell("routing").locator('svg text:text-is("this run")').wait_for()


def test_a_step_further_other_chunks_go_over_the_links(notebook):
    assert notebook.words("network").startswith("Ring all-reduce on 8 H100, NVLink switch, 16 MiB a rank. Step 1 of 14")
    notebook.slider("network", "step").focus()
    notebook.page.keyboard.press("ArrowRight")
    notebook.await_words("network", "Step 2 of 14: 8 transfers of 2 MiB")
    notebook.await_words("network", "Of 4 algorithms for this size direct takes least time", side=1)


def test_longer_kernels_close_the_gaps_between_launches(notebook):
    assert "17 gaps; the longest lasts 3 µs" in notebook.words("timeline")
    kernel = notebook.slider("timeline", "a kernel, µs")
    kernel.focus()
    notebook.page.keyboard.press("ArrowRight")
    notebook.await_words("timeline", "17 gaps; the longest lasts 2 µs")
    for _ in range(2):
        notebook.page.keyboard.press("ArrowRight")
    notebook.await_words("timeline", "It is never idle in between")
    notebook.cell("timeline").locator("select").first.focus()
    for key in ("Space", "ArrowDown", "Enter"):
        notebook.page.keyboard.press(key)
    notebook.await_words("timeline", "2 gaps; .*sync")


def test_with_few_waves_a_kernel_leaves_the_roof_and_its_own_time_stays(notebook):
    assert "It took 400 µs: 66% of its roof" in notebook.words("kernels")
    occupancy = notebook.slider("kernels", "occupancy, %")
    occupancy.focus()
    for _ in range(3):
        notebook.page.keyboard.press("ArrowLeft")
    notebook.await_words("kernels", "On A100 neither roof bounds it but latency")
    notebook.cell("kernels").locator("select").nth(3).focus()
    for key in ("Space", "ArrowDown", "Enter"):
        notebook.page.keyboard.press(key)
    notebook.cell("kernels").locator('table td:text("µs or more")').first.wait_for()


def test_a_typed_number_is_rounded_and_the_zoom_shows_its_neighbours(notebook):
    cell = notebook.cell("numbers")
    assert notebook.words("numbers").startswith("0.1 lies between 0.09375 and 0.1015625 of e4m3fn")
    notebook.slider("numbers", "zoom").focus()
    for _ in range(6):
        notebook.page.keyboard.press("ArrowRight")
    cell.locator('svg text:text-is("0.0859375")').wait_for()
    value = cell.locator('input[type="text"]').first
    value.fill("0x80")
    value.press("Enter")
    notebook.await_words("numbers", "The same byte read as e4m3fnuz is NaN")
    value.fill("ten")
    value.press("Enter")
    cell.locator('[role="alert"]').wait_for()
    assert "`ten` is no number" in cell.locator('[role="alert"]').inner_text()
    value.fill("300")
    value.press("Enter")
    cell.locator("select").first.focus()
    for key in ("Space", "ArrowDown", "Enter"):
        notebook.page.keyboard.press(key)
    notebook.await_words("numbers", "^300 is beyond the largest number of e4m3fnuz and becomes 240")


def test_an_element_of_an_operand_is_chosen_by_keyboard(notebook):
    cell = notebook.cell("operands")
    assert notebook.words("operands").startswith("Row 3, column 5 of A is in lane 14, register 0, upper half")
    notebook.slider("operands", "row").focus()
    for _ in range(8):
        notebook.page.keyboard.press("ArrowRight")
    notebook.await_words("operands", "^Row 11, column 5 of A is in lane 14, register 1, upper half")
    cell.locator("select").nth(1).focus()
    for key in ("Space", "ArrowDown", "ArrowDown", "Enter"):
        notebook.page.keyboard.press(key)
    notebook.await_words("operands", "^Row 11, column 5 of D is in lane 14, register 3")


def test_schedules_follow_their_sliders_and_what_does_not_exist_is_said(notebook):
    cell = notebook.cell("schedule")
    drawn = cell.locator('svg[aria-label^="1F1B: 33 F, bubble 27.3%"]')
    drawn.wait_for()
    notebook.slider("schedule", "ranks").focus()
    notebook.page.keyboard.press("ArrowRight")
    cell.locator('svg[aria-label^="1F1B: 36 F, bubble 33.3%"]').wait_for()
    cell.locator("select").nth(1).focus()
    for key in ("Space", "ArrowDown", "ArrowDown", "Enter"):
        notebook.page.keyboard.press(key)
    cell.locator('[role="alert"]').wait_for()
    assert "DualPipe of 5 ranks and 8 micro-batches" in cell.locator('[role="alert"]').inner_text()


def test_a_line_of_a_tile_program_marks_lines_of_three_sources(notebook):
    notebook.await_words("lowered", r"^Line 23 of the tile program: T\.gemm.*ascend950: 1 of 30 lines")
    notebook.slider("lowered", "line").focus()
    notebook.page.keyboard.press("ArrowRight")
    notebook.await_words("lowered", r"^Line 24 of the tile program: T\.copy\(total")


def test_a_typed_layout_says_whether_it_is_a_bijection(notebook):
    box = notebook.cell("layout").locator("input[type=text]").first
    box.fill("row * cols + col // 2")
    box.press("Enter")
    notebook.await_words("layout", r"both go to place 0")


def test_nothing_was_asked_of_another_host_and_the_console_is_clean(notebook):
    assert notebook.foreign == []
    assert notebook.complaints == []
