"""The explorer of causal tiles, and the count behind it: both agree with the mask, element by element."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from gpu_utils import explore
from gpu_utils.analytic.attention_tiles import Scores, Tile
from gpu_utils.errors import BadArgument, UnknownName
from gpu_utils.ui.explore import causal

MASKS = [(False, None), (True, None), (True, 1), (True, 5), (True, 16), (True, 23), (True, 99)]


@pytest.mark.parametrize(("causal_", "window"), MASKS)
@pytest.mark.parametrize(("N", "block_m", "block_n"), [(64, 16, 16), (70, 16, 32), (50, 32, 8), (1, 16, 16)])
def test_the_kind_of_a_tile_is_what_its_elements_are(causal_, window, N, block_m, block_n):
    of = Scores(N, block_m, block_n, causal=causal_, window=window)
    kinds, needed = of.kinds(), 0
    for row in range(kinds.shape[0]):
        for key in range(kinds.shape[1]):
            queries = np.arange(row * block_m, min((row + 1) * block_m, N))[:, None]
            seen = of.sees(queries, key * block_n + np.arange(block_n)[None, :])
            expected = Tile.FULL if seen.all() else Tile.MASKED if seen.any() else Tile.SKIPPED
            assert kinds[row, key] == expected, (row, key)
            needed += int(seen.sum())
    assert of.needed == needed


def test_a_query_sees_its_window():
    of = Scores(9, 3, 3, window=3)
    assert [key for key in range(9) if of.sees(np.array(5), np.array(key))] == [3, 4, 5]


def test_work_and_bytes_are_those_of_the_tiles():
    of = Scores(512, 64, 64)
    assert of.flops(64) == 36 * 4 * 64 * 64 * 64
    assert of.flops(64, skipping=False) == 4 * 512 * 512 * 64
    assert of.bytes_of_keys(64, 2) == 36 * 64 * 2 * 64 * 2
    assert Scores(100, 64, 64, causal=False).bytes_of_keys(1, 1) == 2 * 100 * 2


@pytest.mark.parametrize("wrong", [{"N": 0}, {"block_m": 0}, {"window": 0}, {"window": 4, "causal": False}])
def test_scores_that_there_are_not_are_refused(wrong):
    with pytest.raises(BadArgument, match="expected"):
        Scores(**{"N": 8, "block_m": 4, "block_n": 4} | wrong)


def drawings(picture):
    """The boxes of each drawing: (class, x, y, width, height)."""
    root = ElementTree.fromstring(f"<all>{picture.html}</all>")
    names = ("x", "y", "width", "height")
    return [
        [(box.get("class"), *(float(box.get(name)) for name in names)) for box in drawing.iter() if "rect" in box.tag]
        for drawing in root.iter("{http://www.w3.org/2000/svg}svg")
    ]


@pytest.mark.parametrize("mask", causal.MASKS)
def test_each_tile_is_drawn_as_what_it_is(mask):
    kinds = causal.scores(500, 64, 32, mask, 100).kinds()
    tiles, _ = drawings(causal.draw(500, 64, 32, mask, 100, 0, 0))
    drawn = [kind for kind, *_ in tiles]
    assert drawn.count("even") == (kinds == Tile.FULL).sum() + 1  # one in the legend
    assert drawn.count("odd") == (kinds == Tile.MASKED).sum() + 1


def test_the_elements_of_a_tile_are_true():
    of = causal.scores(200, 32, 64, "window", 20)
    picture = causal.draw(200, 32, 64, "window", 20, 6, 2)
    cell = causal._SIDE / 64
    seen = sum(round(wide / cell) for kind, _, _, wide, _ in drawings(picture)[1] if kind == "even")
    queries, keys = causal._positions(of, 6, 2)
    assert seen == of.sees(queries, keys).sum()
    assert f"{seen:,} of 2,048 scores count" in picture.words


def test_sliders_follow_the_number_of_tiles():
    explorer = explore("causal")
    assert explorer.words.startswith("Causal: 36 of 64 tiles are computed, 8 of them with a mask, and 28 are skipped")
    explorer.controls["block_m"].value = 128
    assert explorer.controls["row"].max == 3
    assert "Queries 384 to 511, keys 192 to 255: 8,192 of 8,192 scores count" in explorer.words
    explorer.controls["N"].value = 100
    assert (explorer.controls["row"].value, explorer.controls["key"].value) == (0, 1)
    explorer.controls["mask"].value = "none"
    assert "No mask: 2 of 2 tiles are computed, 1 of them with a mask" in explorer.words


def test_a_window_makes_the_work_linear():
    def tiles(N):
        return int((Scores(N, 64, 64, window=128).kinds() != Tile.SKIPPED).sum())

    assert tiles(1024) - tiles(512) == tiles(2048) - tiles(1536) == 3 * 8


@pytest.mark.parametrize("start", [{"window": 0}, {"row": 8}, {"key": -1}])
def test_a_tile_or_a_window_that_there_is_not_is_refused(start):
    with pytest.raises(BadArgument, match="expected"):
        explore("causal", **start)


@pytest.mark.parametrize("start", [{"N": 64}, {"mask": "blocks"}, {"block_n": 48}])
def test_what_is_not_in_the_lists_is_refused(start):
    with pytest.raises(UnknownName):
        explore("causal", **start)
