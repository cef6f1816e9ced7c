"""The table of counterparts: complete rows, names that the readers and virtual GPUs know, and how lessons show it."""

from __future__ import annotations

import pytest

from gpu_utils.errors import UnknownName
from gpu_utils.profiling.counterparts import COUNTERPARTS, MATCHES, without
from gpu_utils.ui.counterpart_table import counterparts


def test_each_row_has_a_question_of_its_own_a_match_and_a_source():
    assert len({row.question for row in COUNTERPARTS}) == len(COUNTERPARTS)
    for row in COUNTERPARTS:
        assert row.match in MATCHES
        assert row.source
        assert row.nvidia or row.amd
        assert row.match == "well" or row.note, row.question


def test_a_row_has_one_empty_side_exactly_where_nothing_matches():
    for row in COUNTERPARTS:
        assert (row.match == "none") == (not row.nvidia or not row.amd), row.question


def test_both_vendors_lack_something():
    assert without("nvidia")
    assert without("amd")


def test_chosen_questions_are_shown_in_the_order_asked():
    table = counterparts("bank conflicts", "time")
    assert [row[0] for row in table.rows] == ["bank conflicts", "time"]
    assert len(counterparts().rows) == len(COUNTERPARTS)
    assert counterparts("warps that could issue").marked == {0}


def test_an_unknown_question_is_refused_with_the_nearest():
    with pytest.raises(UnknownName, match="bank conflicts"):
        counterparts("bank conflict")
