"""Figures that hold code, as wide as a lesson is in windows of 1,000 and 1,500 pixels: none scrolls sideways."""

from __future__ import annotations

import pytest
import torch

from gpu_utils.compiler import listing
from gpu_utils.ui.listing import listing_html
from tests.unit.test_wave_figure import scale_kernel, stepped

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

SIDEWAYS = """() => [...document.querySelectorAll('div')]
    .filter(box => getComputedStyle(box).overflowX === 'auto' && box.scrollWidth > box.clientWidth)
    .map(box => [box.className, box.scrollWidth, box.clientWidth])"""


def figures():
    yield stepped("gfx942", start="v_cndmask")._repr_html_()
    yield stepped("sm_80", start="@%p1 ld")._repr_html_()
    x = torch.zeros(4096)
    yield listing_html(listing(scale_kernel, "sm_90", "gfx942", args=[x, x, 4096, 2.5], BLOCK=1024))


def test_a_figure_of_code_takes_the_room_that_it_needs(browser):
    page = browser.new_page()
    for figure in figures():
        for width in (790, 1285):
            page.set_viewport_size({"width": width, "height": 900})
            page.set_content(f'<!doctype html><body style="margin: 0">{figure}</body>')
            assert page.evaluate(SIDEWAYS) == []
    page.close()
