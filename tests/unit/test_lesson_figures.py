"""Figures of lessons are true down to the element and say in words what they draw."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
import torch

from gpu_utils.analytic.access import bank_conflicts
from gpu_utils.chips import TARGETS
from gpu_utils.errors import BadArgument, UnknownName
from gpu_utils.lesson import bank_figure, bars, lane_figure, latency_figure, stage_figure
from gpu_utils.ui.latency_figure import waves_needed

KIB = 1024


def rectangles(html: str, kind: str) -> list[dict[str, float]]:
    """Place and size of the rectangles of a kind."""
    found = re.findall(rf'<rect class="{kind}" x="([^"]*)" y="([^"]*)" width="([^"]*)" height="([^"]*)"', html)
    return [dict(zip("xywh", map(float, each), strict=True)) for each in found]


def test_bars_are_as_long_as_their_numbers():
    html = bars({"stride 1": {"sm_80": 1, "gfx942": 2}, "stride 8": {"sm_80": 8, "gfx942": 16}}, "bytes")._repr_html_()
    widths = [each["w"] for each in rectangles(html, "even")]
    assert [width / widths[0] for width in widths] == pytest.approx([1, 2, 8, 16], rel=0.01)
    assert html.count('<g class="nvidia">') == html.count('<g class="amd">') == 2


def test_bars_of_nothing_or_below_zero_are_refused():
    for values in ({}, {"a": -1}):
        with pytest.raises(BadArgument, match="expected numbers from 0 on"):
            bars(values)


@pytest.mark.parametrize(("compute", "latency"), [(50, 400), (40, 410), (100, 50), (7, 500)])
def test_with_the_waves_that_are_needed_the_simd_never_waits_and_with_one_less_it_does(compute, latency):
    needed = waves_needed(compute, latency)
    words = repr(latency_figure(compute, latency, needed - 1, needed)) if needed > 1 else ""
    assert words.endswith(f"{needed} waves: all of the time.")
    assert "% of the time" in words


def test_waves_of_the_timeline_never_have_the_simd_at_the_same_time():
    html = latency_figure(50, 400, 9)._repr_html_()
    computing = [each for each in rectangles(html, "even") if each["h"] != 16]
    spans = sorted((each["x"], each["x"] + each["w"]) for each in computing)
    assert all(end <= start + 0.2 for (_, end), (start, _) in pairwise(spans))


def test_stages_past_the_limit_of_a_block_are_hollow():
    found = stage_figure({name: {n: n * 32 * KIB for n in (1, 2, 3, 8)} for name in ("sm_90", "gfx942")})
    html = found._repr_html_()
    fits = sum(n * 32 * KIB <= TARGETS[name].shared_per_block for name in ("sm_90", "gfx942") for n in (1, 2, 3, 8))
    assert len(rectangles(html, "even")) == fits
    assert len(rectangles(html, "empty")) == 8 - fits
    assert "sm_90, at most 227 KiB a block: 1 stage 32 KiB" in repr(found)
    assert TARGETS["gfx942"].source[:20] in html


@pytest.mark.parametrize("target", ["sm_80", "gfx942", "gfx950", "gfx1100"])
@pytest.mark.parametrize("size", [4, 16])
def test_every_bank_serves_the_lanes_that_the_rule_says(target, size):
    lanes = TARGETS[target].lanes
    found = bank_conflicts([size * lane for lane in range(lanes)], target=target, access_bytes=size)
    html = bank_figure("lane", target, element_bytes=size)._repr_html_()
    cells = rectangles(html, "even") + rectangles(html, "odd")
    assert len(cells) == lanes * size // 4
    assert len({cell["y"] for cell in cells}) == found.cycles
    assert f"{found.served.banks} banks" in html


def test_a_column_of_a_matrix_waits_for_one_bank_or_for_two():
    words = repr(bank_figure("lane * 32", "sm_80", "gfx950"))
    assert "32 passes, 1 would do, so 31 conflicts. The busiest bank is 0, for lanes 0, 1, 2, 3 and 28 more" in words
    assert "gfx950, a wavefront of 64 lanes, 64 banks: 32 passes" in words


def test_a_lane_figure_has_a_square_for_each_and_names_the_ranges():
    found = lane_figure({"sm_80": [True] * 32, "gfx942": torch.arange(64) % 32 < 4}, "elements")
    assert repr(found) == "sm_80: 32 of 32 elements (0-31); gfx942: 8 of 64 elements (0-3, 32-35)."
    html = found._repr_html_()
    assert (len(rectangles(html, "even")), len(rectangles(html, "empty"))) == (40, 56)
    assert "The colour is only the vendor&#x27;s." in html


def test_a_lane_figure_has_a_line_where_a_wave_ends_and_numbers_above_it():
    ends = {}
    for target in ("sm_80", "gfx942"):
        html = lane_figure({target: [True] * 64})._repr_html_()
        edges = [each["x"] for each in rectangles(html, "even")]
        assert {after - before for before, after in pairwise(edges)} == {9}
        assert re.findall(r"<text[^>]*>(\d+)</text>", html) == ["0", "31", "32", "63"]
        lines = [float(x) for x in re.findall(r'<path[^>]* d="M ([\d.]+) ', html)]
        ends[target] = [sum(edge < x for edge in edges) for x in lines]
    assert ends == {"sm_80": [32], "gfx942": []}


def test_figures_of_unknown_targets_are_refused():
    for call in (lambda: bank_figure("lane", "sm_8"), lambda: stage_figure({"gfx94": {1: 1}})):
        with pytest.raises(UnknownName):
            call()
