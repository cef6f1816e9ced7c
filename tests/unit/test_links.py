"""The registry of links: every figure has a source and a day or a reason, and one direction is meant."""

from __future__ import annotations

import dataclasses

import pytest

from gpu_utils.analytic.published import ROWS, published_beside_paper
from gpu_utils.chips import CHIPS, Figure
from gpu_utils.chips.links import LINKS
from gpu_utils.chips.source import is_dated
from gpu_utils.errors import UnknownName

each = pytest.mark.parametrize("name", LINKS)


def figures(link):
    values = (getattr(link, field.name) for field in dataclasses.fields(link))
    return [value for value in values if isinstance(value, Figure)]


@each
def test_every_figure_has_a_source_with_a_day_or_a_reason(name):
    found = figures(LINKS[name])
    assert len(found) == 3
    for figure in found:
        if figure.value is None:
            assert figure.note
        else:
            assert figure.value > 0
            assert figure.source
            assert is_dated(figure.when)


@each
def test_what_is_usable_is_no_more_than_the_peak(name):
    link = LINKS[name]
    assert link.each in ("port", "pair")
    assert link.name in str(link)
    if link.gb.value is not None and link.usable_gb.value is not None:
        assert link.usable_gb.value <= link.gb.value
        assert link.bandwidth == link.usable_gb.value * 1e9


@pytest.mark.parametrize(
    ("link", "chip"), [("NVLink 3", "A100"), ("NVLink 4", "H100"), ("NVLink 4 of H800", "H800"), ("NVLink 5", "B200")]
)
def test_a_direction_of_nvlink_is_half_of_the_chips_figure(link, chip):
    assert 2 * LINKS[link].gb.value == CHIPS[chip].link_gb.value


def test_every_kind_of_the_lesson_is_there():
    assert {link.kind for link in LINKS.values()} == {"nvlink", "xgmi", "pcie", "network", "ascend"}
    with pytest.raises(UnknownName, match="did you mean"):
        LINKS["NVLink4"]


def test_unknown_stays_unknown():
    assert LINKS["Ascend 910B"].bandwidth is None
    assert LINKS["Ascend 910C"].alpha is None


def test_published_times_are_never_below_those_on_paper():
    rows = published_beside_paper()
    assert list(rows) == list(ROWS)
    for row in rows.values():
        assert row["more"] > 0
        assert row["more, back"] > 0
    assert rows["mori, EP8"]["dispatch, µs"] == 35
