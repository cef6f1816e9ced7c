"""The explorer of routing: what it draws are the choices and loads of its run."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from gpu_utils import explore
from gpu_utils.errors import BadArgument, UnknownName
from gpu_utils.model.routing import capacity, fits
from gpu_utils.ui.explore import routing


def drawings(picture):
    """The boxes of each drawing: (class, x, y, width, height)."""
    root = ElementTree.fromstring(f"<all>{picture.html}</all>")
    names = ("x", "y", "width", "height")
    return [
        [(box.get("class"), *(float(box.get(name)) for name in names)) for box in drawing.iter() if "rect" in box.tag]
        for drawing in root.iter("{http://www.w3.org/2000/svg}svg")
    ]


@pytest.mark.parametrize(("balance", "experts", "step"), [("none", 8, 100), ("bias", 16, 3)])
def test_each_choice_is_a_box_and_what_is_dropped_is_outlined(balance, experts, step):
    picture = routing.draw(balance, experts, 2, 1.25, step)
    chosen = routing.run(balance, experts, 2).experts[step - 1].flatten(0, 1)
    kept = fits(chosen, experts, capacity(len(chosen), 2, experts, 1.25))
    tokens, bars, _ = drawings(picture)
    assert len(tokens) == 2 * routing.SHOWN
    shown = kept[-routing.SHOWN :]
    assert [kind for kind, *_ in tokens].count("even") == int(shown.sum())
    high = tokens[0][4] + 1
    rows = [round((y - 0.5) / high) for _, _, y, _, _ in tokens]
    assert rows == chosen[-routing.SHOWN :].flatten().tolist()
    assert [kind for kind, *_ in bars].count("even") == experts
    assert f"{int((~kept).sum())} choices of 512" in picture.words.replace("choice of", "choices of")


def test_the_bars_are_the_loads():
    picture = routing.draw("none", 8, 2, 3.0, 100)
    load = routing.run("none", 8, 2).loads[99].tolist()
    highs = [high for _, _, _, _, high in drawings(picture)[1]]
    for number, high in zip(load, highs, strict=True):
        assert high / max(highs) == pytest.approx(number / max(load), abs=0.01)


def test_a_bias_evens_out_what_is_uneven_without():
    assert routing.run("none", 8, 2).imbalance(20)[-1] > 1.6
    assert routing.run("bias", 8, 2).imbalance(20)[-1] < 1.3


def test_controls_move_the_picture():
    explorer = explore("routing")
    assert explorer.words.startswith("Step 100, no balance: the busiest of 8 experts")
    explorer.controls["balance"].value = "bias"
    explorer.controls["step"].value = 40
    assert explorer.words.startswith("Step 40, balanced by bias: the busiest of 8 experts")
    explorer.controls["factor"].value = 3.0
    assert "With a capacity factor of 3 each has 192 places; 0 choices of 512 (0%)" in explorer.words
    explorer.controls["k"].value = 1
    assert "0 choices of 256" in explorer.words


@pytest.mark.parametrize("start", [{"step": 0}, {"step": 101}, {"k": 0}, {"factor": 0.5}])
def test_what_there_is_not_is_refused(start):
    with pytest.raises(BadArgument, match="expected"):
        explore("routing", **start)


@pytest.mark.parametrize("start", [{"balance": "luck"}, {"experts": 12}])
def test_what_is_not_in_the_lists_is_refused(start):
    with pytest.raises(UnknownName):
        explore("routing", **start)
