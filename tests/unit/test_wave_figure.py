"""A stepped wave: the steps that were recorded, in words and as a page that needs no colour and no network."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from gpu_utils import virtual_gpu
from gpu_utils.errors import BadArgument
from gpu_utils.ui.wave_figure import WaveFigure, lane_ranges


@triton.jit
def scale_kernel(x_ptr, out_ptr, n, factor, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, factor * x, mask=mask)


def stepped(target, kernel=scale_kernel, **options):
    """Program 1 of a launch over 100 elements: 36 of its 64 elements exist."""
    x, out = torch.arange(1.0, 101), torch.zeros(100)
    with virtual_gpu(target) as gpu, gpu.trace(program=(1, 0, 0)) as trace:
        kernel[(2,)](x, out, 100, 2.5, BLOCK=64, num_warps=1)
    assert torch.equal(out, 2.5 * x)
    return WaveFigure(trace, target, kernel, **options)


def with_exec():
    with triton.knobs.amd.scope():
        triton.knobs.amd.use_buffer_ops = False
        return stepped("gfx942", triton.jit(scale_kernel.fn))


@pytest.mark.parametrize(("target", "compares", "on"), [("gfx942", "v_cmp", 36), ("sm_80", "setp", 18)])
def test_a_mask_can_be_asked_for_by_the_instruction_that_writes_it(target, compares, on):
    assert int(stepped(target).mask(compares).sum()) == on


def test_the_first_step_shown_may_be_named_by_its_instruction():
    figure = stepped("gfx942", start="buffer_load")
    assert "buffer_load" in figure.steps[figure.first].text
    assert "<b>buffer_load_dword" in figure._repr_html_()


@pytest.mark.parametrize(
    ("words", "message"), [("v_cpm", "no instruction of this"), ("v_mul", "writes no mask of lanes")]
)
def test_a_mask_that_is_not_there_is_said(words, message):
    with pytest.raises(BadArgument, match=message):
        stepped("gfx942").mask(words)


def line_of(figure, words):
    return next(line for line in repr(figure).splitlines() if words in line)


def test_the_title_names_target_wave_and_lanes():
    assert stepped("gfx942").title.startswith("gfx942: wavefront 0 of program (1, 0, 0), 64 lanes, ")
    assert stepped("sm_80").title.startswith("sm_80: warp 0 of program (1, 0, 0), 32 lanes, ")


def test_on_gfx942_a_launch_masks_by_an_offset_outside_the_buffer_and_all_lanes_stay_on():
    figure = stepped("gfx942")
    assert all("EXEC: 64 of 64 lanes" in line for line in repr(figure).splitlines()[1:])
    assert "vcc = 0xfffffffff" in line_of(figure, "v_cmp_gt_i32")
    assert "v1 = 65, 66, ..., 0" in line_of(figure, "buffer_load_dword")
    assert "= 162.5, 165, ..., 0" in line_of(figure, "v_mul_f32")


def test_on_gfx942_without_buffers_exec_switches_the_lanes_past_the_end_off():
    figure = with_exec()
    assert "EXEC: 64 of 64 lanes" in line_of(figure, "v_cmp_gt_i32")
    assert "EXEC: 36 of 64 lanes (0-35)" in line_of(figure, "s_and_saveexec_b64")
    assert "EXEC: 36 of 64 lanes (0-35)" in line_of(figure, "global_load_dword")


def test_on_sm_80_a_guard_says_which_lanes_take_part():
    figure = stepped("sm_80")
    guarded = line_of(figure, "@%p1 ld.global")
    assert "lanes on: 32 of 32 lanes (0-31); guard %p1: 18 of 32 lanes (0-17)" in guarded
    assert "= 65, 67, ..., 0" in guarded


def test_the_page_shows_one_step_and_holds_all():
    figure = stepped("gfx942", start=4)
    page = figure._repr_html_()
    root = ElementTree.fromstring(
        re.search(r"<div id=.*</div>(?=<script>)", page, re.DOTALL)[0].replace(" hidden>", ">")
    )
    rows = root.findall(".//*[@role='option']")
    assert len(rows) == len(figure.steps)
    assert [row.get("aria-selected") for row in rows].count("true") == 1
    assert rows[4].get("aria-selected") == "true"
    assert page.count("<div hidden>") == len(figure.steps) - 1
    assert root.get("aria-label") == figure.title
    assert "http" not in page


def test_lanes_that_are_off_have_their_values_in_parentheses():
    page = with_exec()._repr_html_()
    panel = page[page.index("<b>global_load_dword v2") :]
    table = panel[panel.index("<table>") : panel.index("</table>")]
    assert table.count("(") == 28
    assert ">65<" in table
    assert "<code>x = tl.load(x_ptr + offsets, mask=mask)</code>" in page


def test_lanes_that_a_guard_keeps_out_have_their_values_in_parentheses():
    page = stepped("sm_80")._repr_html_()
    panel = page[page.index("<b>@%p1 ld.global") :]
    table = panel[panel.index("<table>") : panel.index("</table>")]
    assert table.count("(0)") == 14


def test_without_the_kernel_the_lines_have_numbers_and_no_text():
    whole = stepped("gfx942")
    page = WaveFigure(whole.trace, whole.target)._repr_html_()
    assert "line " in page
    assert "tl.load" not in page


def test_the_strip_of_lanes_is_readable_without_colour():
    page = with_exec()._repr_html_()
    assert 'aria-label="EXEC: 36 of 64 lanes (0-35)"' in page
    assert "  32 ■■■■···· ········ ········ ········" in page


def test_two_figures_of_one_page_have_different_names():
    figure = stepped("sm_80")
    first, second = (re.search(r'<div id="([^"]+)"', figure._repr_html_())[1] for _ in range(2))
    assert first != second


@pytest.mark.parametrize(
    ("lanes", "said"),
    [([], "0 of 8 lanes"), ([3], "1 of 8 lanes (3)"), ([0, 1, 2, 5, 7], "5 of 8 lanes (0-2, 5, 7)")],
)
def test_ranges_of_lanes(lanes, said):
    mask = np.zeros(8, bool)
    mask[lanes] = True
    assert lane_ranges(mask) == said


def test_lines_of_cpp_are_shown_where_its_text_is_given():
    figure = stepped("gfx942")
    text = "\n".join(f"line_{number}();" for number in range(1, 100))
    pages = [WaveFigure(figure.trace, "gfx942", kernel)._repr_html_() for kernel in (text, None)]
    number = next(step.line[1] for step in figure.steps if step.line)
    assert f"line {number}: <code>line_{number}();</code>" in pages[0]
    assert "<code>line_" not in pages[1]
    assert "<code></code>" not in pages[1]


def test_values_of_a_register_are_read_after_each_instruction_with_the_words():
    figure = stepped("gfx942")
    rows = figure.floats("v1", after="v_", lanes=(0, 63))
    assert len(rows) == sum("v_" in step.text for step in figure.steps)
    assert set(rows[0]) == {"lane 0", "lane 63"}
    with pytest.raises(BadArgument, match="v_nothing"):
        figure.floats("v1", after="v_nothing", lanes=(0,))
