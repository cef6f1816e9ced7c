"""Tables of lessons: numbers at the right edge, units in the head, the same words in text and in HTML."""

from __future__ import annotations

import re

import pytest
import torch

from gpu_utils.chips.figure import Figure
from gpu_utils.errors import BadArgument
from gpu_utils.lesson import table

BY_TARGET = {"sm_80": {"lanes": 32, "bytes": 1024}, "gfx942": {"lanes": 64, "bytes": 128}}


def test_labels_across_the_top_turn_the_table():
    assert repr(table(BY_TARGET, across=True)).splitlines() == [
        "       sm_80  gfx942",
        "lanes     32      64",
        "bytes  1,024     128",
    ]


def test_a_marked_row_has_an_arrow_in_text_and_in_html():
    found = table({60: {"by 8": 8}, 65: {"by 8": 7}}, first="VGPRs", mark=[65])
    assert repr(found).splitlines() == ["  VGPRs  by 8", "     60     8", ">    65     7"]
    assert "▸ 65" in found._repr_html_()


def test_a_column_that_a_row_lacks_stays_empty_and_none_is_unknown():
    found = table({"H100": {"TB/s": 3.35, "note": "SXM"}, "B200": {"TB/s": None}})
    assert found.rows == (("H100", "3.35", "SXM"), ("B200", "unknown", ""))


def test_a_list_of_rows_has_no_labels_and_pairs_have_no_head():
    assert repr(table([{"step": 1, "loss": torch.tensor(2.5)}])).splitlines() == ["step  loss", "   1   2.5"]
    assert repr(table({"parameters": 124_439_808})) == "parameters  124,439,808"


def test_a_table_without_rows_shows_nothing_of_its_head():
    found = table({}, first="validation text")
    assert found.head == ()
    assert repr(found) == ""


def test_text_stands_left_and_numbers_right_in_html_too():
    html = table({"sm_80": {"loads": "2 x 128 bits", "share": "12%"}})._repr_html_()
    assert re.search(r"<td>2 x 128 bits</td><td class=\"num\">12%</td>", html)


def test_what_comes_from_outside_is_escaped():
    assert "<b>" not in table({"<b>": {"<b>": "<b>"}}, note="<b>").html().replace("&lt;b&gt;", "")


def test_a_figure_of_the_registry_has_its_source_under_the_table_once():
    peak = Figure(989.4, "TFLOP/s", "a data sheet", "dense")
    shown = repr(table({"peak": peak, "peak again": peak, "L2": Figure(50, "MB", "a guide")}, note="An H100."))
    assert "989.4 TFLOP/s [1]" in shown
    assert shown.endswith("An H100. [1] a data sheet; dense. [2] a guide.")


def test_a_row_to_mark_must_be_there():
    with pytest.raises(BadArgument, match="no row 'sm_90' to mark; there are sm_80, gfx942"):
        table(BY_TARGET, mark=["sm_90"])


def test_a_number_with_an_exponent_stays_in_one_line():
    html = table([{"apart": "2.3e-07", "words": "two words"}])._repr_html_()
    assert 'style="white-space:nowrap">2.3e-07</td>' in html
    assert "<td>two words</td>" in html
