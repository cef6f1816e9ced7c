"""In which order a sum was added up, as trees: drawn from partial sums that were found by experiment."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from gpu_utils.errors import BadArgument
from gpu_utils.ui.explore.drawing import Picture, path, picture, small, svg, text

MOST = 64
"""Leaves whose numbers can still be read in a window of 1,000 pixels."""

_STEP, _LEFT, _HIGH, _FEET, _GAP = 13.0, 66.0, 78.0, 14.0, 16.0
_SHOWN = 4
"""Elements that the words name of those that join at once."""


@dataclass(frozen=True)
class _Node:
    """A partial sum: its elements from left to right, and the partial sums that it is made of."""

    leaves: tuple[int, ...]
    parts: tuple[_Node, ...] = ()


def sum_trees(met: Mapping[str, Tensor]) -> Picture:
    """For each name the tree of a sum of n numbers: its leaves are the elements, its forks the additions.

    met  name -> (n, n) of whole numbers: of elements i and j, how many elements the smallest partial sum has in which
         both are; the diagonal is not looked at. n up to 64

    The height of a fork is the logarithm of the number of elements under it. Leaves stand in the order of the tree,
    the part with the smallest element first.

    Errors: BadArgument for no name, another shape, or numbers that come from no tree.

    >>> import torch
    >>> sum_trees({"pairs": torch.tensor([[1, 4, 2, 4], [4, 1, 4, 2], [2, 4, 1, 4], [4, 2, 4, 1]])})
    pairs: element 0 meets 2, then 1, 3.
    """
    if not met:
        raise BadArgument("no sum to draw; expected a name and a square of numbers for each")
    trees = {name: _grown(name, _square(name, sizes)) for name, sizes in met.items()}
    words = " ".join(f"{name}: element 0 {_met_by_first(tree)}." for name, tree in trees.items())
    parts: list[str] = []
    y = 0.0
    for name, tree in trees.items():
        parts += [text(0, y + _HIGH, name, bold=True), *_drawn(tree, y)]
        y += _HIGH + _FEET + _GAP
    wide = _LEFT + _STEP * max(len(tree.leaves) for tree in trees.values())
    under = small("A fork is an addition; the numbers are those of the elements, in the order in which they meet.")
    return picture("", words, svg(wide, y, parts, words), after=under, spoken=False)


def _square(name: str, sizes: Tensor) -> list[list[int]]:
    if sizes.ndim != 2 or sizes.shape[0] != sizes.shape[1] or not 2 <= len(sizes) <= MOST:
        raise BadArgument(f"{name} has the shape {tuple(sizes.shape)}; expected (n, n) with n from 2 to {MOST}")
    return [[int(size) for size in row] for row in sizes.tolist()]


def _grown(name: str, sizes: list[list[int]]) -> _Node:
    """The tree of a square of sizes, from its root: who meets in less than the whole belongs to one part."""

    def node(elements: list[int]) -> _Node:
        if len(elements) == 1:
            return _Node(tuple(elements))
        first, *others = elements
        if max(sizes[first][other] for other in others) != len(elements):
            raise BadArgument(
                f"{name}: element {first} and {others[-1]} meet in {sizes[first][others[-1]]} elements, where a tree "
                f"has {len(elements)}; expected the sizes of partial sums, counted exactly"
            )
        left, parts = elements, []
        while left:
            with_first = [other for other in left if other == left[0] or sizes[left[0]][other] < len(elements)]
            parts.append(node(with_first))
            left = [other for other in left if other not in with_first]
        return _Node(tuple(leaf for part in parts for leaf in part.leaves), tuple(parts))

    return node(list(range(len(sizes))))


def _drawn(tree: _Node, top: float) -> list[str]:
    """The tree with its feet at top + _HIGH, and the numbers of its leaves below them."""
    foot, per_doubling = top + _HIGH, (_HIGH - 6) / math.log2(len(tree.leaves))
    place = {leaf: _LEFT + _STEP * (at + 0.5) for at, leaf in enumerate(tree.leaves)}
    parts = [text(x, foot + 11, leaf, size=9, at="middle") for leaf, x in place.items()]

    def draw(node: _Node) -> tuple[float, float]:
        if not node.parts:
            return place[node.leaves[0]], foot
        y = foot - per_doubling * math.log2(len(node.leaves))
        tops = [draw(part) for part in node.parts]
        parts.extend(path([(x, under), (x, y)], "hue") for x, under in tops)
        parts.append(path([(tops[0][0], y), (tops[-1][0], y)], "hue"))
        return (tops[0][0] + tops[-1][0]) / 2, y

    draw(tree)
    return parts


def _met_by_first(tree: _Node) -> str:
    """Whom element 0 meets, addition by addition: "meets 1, then 32, 33"."""
    joined: list[str] = []
    while tree.parts:
        home = next(part for part in tree.parts if 0 in part.leaves)
        others = sorted(set(tree.leaves) - set(home.leaves))
        more = f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
        joined.append(", ".join(map(str, others[:_SHOWN])) + more)
        tree = home
    return "meets " + ", then ".join(reversed(joined))
