"""Figures of lesson 09: trees of sums, and measured errors beside their bounds."""

import matplotlib
import matplotlib.pyplot as plt
import pytest
import torch

from gpu_utils.errors import BadArgument
from gpu_utils.ui.bound_figure import bound_figure
from gpu_utils.ui.tree_figure import sum_trees


def met_in(tree):
    """(n, n): the size of the smallest part of a nested tuple of elements in which two of them are."""
    elements: list[int] = []
    pairs: list[tuple[int, int, int]] = []

    def walk(node):
        if isinstance(node, int):
            elements.append(node)
            return [node]
        parts = [walk(part) for part in node]
        leaves = [leaf for part in parts for leaf in part]
        for at, part in enumerate(parts):
            for other in parts[at + 1 :]:
                pairs.extend((i, j, len(leaves)) for i in part for j in other)
        return leaves

    walk(tree)
    sizes = torch.ones(len(elements), len(elements), dtype=torch.int)
    for i, j, size in pairs:
        sizes[i, j] = sizes[j, i] = size
    return sizes


def test_a_tree_is_told_addition_by_addition_from_element_0():
    figure = sum_trees({"flat": met_in(((0, 2), (1, 3))), "long": met_in((((0, 1), 2), 3))})
    assert repr(figure) == "flat: element 0 meets 2, then 1, 3. long: element 0 meets 1, then 2, then 3."


def test_leaves_stand_in_the_order_of_the_tree_and_every_addition_is_a_fork():
    drawn = sum_trees({"flat": met_in(((0, 2), (1, 3)))}).html
    places = [drawn.index(f">{leaf}</text>") for leaf in (0, 2, 1, 3)]
    assert places == sorted(places)
    assert drawn.count("<path") == 3 + 6  # a beam for each of three additions, a leg for each of their parts


def test_a_sum_of_several_at_once_is_one_fork():
    figure = sum_trees({"four at once": met_in(((0, 1, 2, 3), (4, 5, 6, 7)))})
    assert repr(figure) == "four at once: element 0 meets 1, 2, 3, then 4, 5, 6, 7."


@pytest.mark.parametrize(
    ("met", "words"),
    [
        ({}, "no sum to draw"),
        ({"x": torch.ones(2, 3)}, r"\(2, 3\)"),
        ({"x": torch.ones(65, 65)}, r"\(65, 65\)"),
        ({"x": torch.tensor([[1, 2, 2], [2, 1, 2], [2, 2, 1]])}, "where a tree has 3"),
    ],
)
def test_what_is_no_tree_is_refused_in_one_sentence(met, words):
    with pytest.raises(BadArgument, match=words):
        sum_trees(met)


@pytest.fixture
def drawn(monkeypatch):
    matplotlib.use("agg")
    found = []
    monkeypatch.setattr(plt, "show", lambda: found.append(plt.gcf().axes[0]))
    return found


def test_points_and_their_bound_share_a_colour_and_a_zero_is_left_out(drawn):
    bound_figure({"a": [(16, 0.0), (64, 1e-7)], "b": [(16, 1e-6)]}, {"a": [(16, 1e-6), (64, 4e-6)]}, "error")
    points, bound, others = drawn[0].lines
    assert points.get_xydata().tolist() == [[64, 1e-7]]
    assert bound.get_xydata().tolist() == [[16, 1e-6], [64, 4e-6]]
    assert points.get_color() == bound.get_color() != others.get_color()
    assert (drawn[0].get_xscale(), drawn[0].get_yscale(), drawn[0].get_ylabel()) == ("log", "log", "error")


@pytest.mark.parametrize(("measured", "bounds"), [({}, {}), ({"a": []}, {}), ({"a": [(1, 1)]}, {"b": [(1, 1)]})])
def test_nothing_to_draw_and_a_bound_of_nothing_are_refused(measured, bounds):
    with pytest.raises(BadArgument, match="expected points"):
        bound_figure(measured, bounds, "error")
