"""The figure of labelled tiles: a rectangle and a label for each, in words as well, and clear errors."""

from __future__ import annotations

import pytest

from gpu_utils.errors import BadArgument
from gpu_utils.ui.grid_figure import grid_figure


def test_each_tile_is_drawn_with_its_label_and_the_marked_ones_stand_out():
    html = grid_figure({"scores": [["0, 2", "0, 2"], ["1", ""]]}, marked=("0, 2",)).html
    assert html.count('class="now"') == 2
    assert html.count('class="room"') == html.count('class="empty"') == 1
    assert html.count(">0, 2</text>") == 2


@pytest.mark.parametrize("grids", [{}, {"a": []}, {"a": [[]]}, {"a": [["0"], ["0", "1"]]}])
def test_what_is_no_grid_is_refused(grids):
    with pytest.raises(BadArgument, match="expected"):
        grid_figure(grids)
