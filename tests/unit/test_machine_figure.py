"""The figures of compute units and chips say in words what they draw, and where each figure comes from."""

from __future__ import annotations

import re
from html import escape

import pytest

from gpu_utils.chips import CHIPS, TARGETS
from gpu_utils.errors import UnknownFigure, UnknownName
from gpu_utils.ui.machine_figure import chip_figure, unit_figure


@pytest.mark.parametrize("name", TARGETS)
def test_a_unit_is_drawn_with_its_slots_and_lanes_and_its_source(name):
    target, figure = TARGETS[name], unit_figure(name)
    html = figure._repr_html_()
    assert html.count('class="even"') == target.waves_per_unit
    assert html.count('class="odd"') == target.simds * target.lanes
    assert f"{target.waves_per_simd} slots" in repr(figure)
    assert "Source: " in html
    assert 'role="img"' in html


def test_two_cus_of_rdna_are_one_wgp():
    assert repr(unit_figure("gfx1100")).startswith("A WGP (two CUs) of gfx1100")


@pytest.mark.parametrize("name", ["A100", "H100", "MI250X", "MI300X", "MI355X", "RX 7900 XTX"])
def test_a_chip_is_drawn_with_all_its_units_and_the_sources_of_its_figures(name):
    chip, figure = CHIPS[name], chip_figure(name)
    html = figure._repr_html_()
    assert html.count('class="even"') == chip.units.value
    for needed in (chip.units, chip.l2_mb, chip.memory_gb, chip.bandwidth_tb):
        assert escape(needed.source) in html
    assert re.search(rf"{chip.memory_gb.value:g} GB at {chip.bandwidth_tb.value:g} TB/s", repr(figure))


def test_sides_stand_beside_each_other():
    assert repr(chip_figure("H100", "MI300X")).count("\n") == 1


def test_a_chip_with_a_gap_in_the_registry_is_not_drawn():
    with pytest.raises(UnknownFigure, match="memory of H800"):
        chip_figure("H800")


def test_an_unknown_name_is_told():
    with pytest.raises(UnknownName):
        unit_figure("gfx9999")
