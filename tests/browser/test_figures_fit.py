"""Figures of code and of number formats in windows of 1,000 and 1,500 pixels, as wide as a lesson: none scrolls."""

from __future__ import annotations

import pytest
import torch

from gpu_utils.compiler import listing
from gpu_utils.lesson import amax_figure, error_figure, number_line, operand_figure, scale_figure
from gpu_utils.ui.amax_figure import SERIES
from gpu_utils.ui.explore.numbers import draw
from gpu_utils.ui.explore.timeline import modelled
from gpu_utils.ui.listing import listing_html
from gpu_utils.ui.trace_figure import trace_figure
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
    yield number_line("e4m3fn", "e5m2", low=2**-16, high=2**16)._repr_html_()
    yield scale_figure({"activations": (4, 512), "weight": (256, 512)})._repr_html_()
    yield error_figure(torch.ones(64, 512), {"one": torch.rand(64, 512), "two": torch.rand(64, 512)})._repr_html_()
    yield amax_figure({"x": {each: [0.5, 1.0] for each in SERIES}})._repr_html_()
    yield draw("e5m2", "0x82", 6, "e5m2fnuz")._repr_html_()
    yield operand_figure("v_mfma_f32_32x32x8_f16", "D", row=13, column=21)._repr_html_()
    yield trace_figure(modelled("sync", "amd", 5, 20))._repr_html_()


def test_a_figure_takes_the_room_that_it_needs(browser):
    page = browser.new_page()
    for figure in figures():
        for width in (790, 1285):
            page.set_viewport_size({"width": width, "height": 900})
            page.set_content(f'<!doctype html><body style="margin: 0">{figure}</body>')
            assert page.evaluate(SIDEWAYS) == []
    page.close()
