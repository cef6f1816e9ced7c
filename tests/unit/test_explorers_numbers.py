"""The explorer of numbers: ticks, neighbours, bits and the other flavour are those of the format, code by code."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from gpu_utils import explore
from gpu_utils.errors import BadArgument, UnknownName, W2WError
from gpu_utils.formats import FORMATS
from gpu_utils.ui.explore import numbers
from gpu_utils.ui.explore.stored import OTHER, read_as, stored
from tests.unit.test_explorers import filled, labels, parsed

SVG = "{http://www.w3.org/2000/svg}"


def tick_places(picture, kind):
    """x of every tick of a kind ("line" normal, "hue" subnormal), of all lines of the picture."""
    return [
        float(x)
        for mark in parsed(picture).iter(f"{SVG}path")
        if mark.get("class") == kind and re.search("v-", mark.get("d"))
        for x in re.findall(r"M([-\d.]+) ", mark.get("d"))
    ]


@pytest.mark.parametrize("name", FORMATS)
def test_the_whole_line_has_a_tick_for_each_number(name):
    of = FORMATS[name]
    finite = np.unique(of.values[np.isfinite(of.values)])
    picture = numbers.draw(name, "2", 0, "")
    normal = (np.abs(finite) >= of.smallest_normal) | (finite == 0)
    assert len(tick_places(picture, "line")) == normal.sum()
    assert len(tick_places(picture, "hue")) == (~normal).sum()
    places = np.array(sorted(tick_places(picture, "line") + tick_places(picture, "hue")))
    assert (np.diff(places) > 0.5).all()  # no two ticks on one pixel
    assert places[0] == pytest.approx(numbers._LEFT)
    assert places[-1] == pytest.approx(numbers._LEFT + numbers._WIDE)


@pytest.mark.parametrize("name", FORMATS)
def test_every_byte_has_its_bits_and_a_formula_that_gives_its_value(name):
    of = FORMATS[name]
    for code in range(1 << of.bits):
        shown = stored(f"0x{code:02x}", of)
        assert shown.code == code
        rule, filled_in = numbers.formula(shown)
        if not math.isfinite(of.values[code]):
            assert rule == "no number"
            continue
        expression, _, result = filled_in.replace(" x ", " * ").replace("^", "**").partition(" = ")
        assert eval(expression) == of.values[code]
        assert eval(result) == of.values[code]


def test_the_boxes_are_the_bits_in_three_colours():
    boxes = [
        (box.get("class"), words)
        for drawing in parsed(numbers.draw("e4m3fn", "-0.1", 0, "")).iter(f"{SVG}svg")
        for box, words in zip(
            (part for part in drawing.iter(f"{SVG}rect") if part.get("height") == "28.0"),
            (part.text for part in drawing.iter(f"{SVG}text") if part.get("font-size") == "14"),
            strict=True,
        )
    ]
    assert "".join(digit for _, digit in boxes) == "10011101"
    assert [kind for kind, _ in boxes] == ["room"] + ["even"] * 4 + ["odd"] * 3


@pytest.mark.parametrize("name", OTHER)
def test_the_other_flavour_reads_half_or_double_but_for_the_special_bytes(name):
    said = {}
    for code in range(256):
        (_, _, _, _), (other, targets, value, against) = read_as(stored(f"0x{code:02x}", FORMATS[name]))
        assert other == OTHER[name]
        assert ("gfx942" in targets) == (other.endswith("fnuz"))
        if not value.startswith(("NaN", "inf", "-inf")):
            assert float(value) == FORMATS[other].values[code]
        said.setdefault(against, []).append(code)
    usual = "exactly half" if not name.endswith("fnuz") else "exactly double"
    special = 3 if "e4m3" in name else 9  # both zeros and the NaN of e4m3fn; of e5m2 two infinities and six NaN as well
    assert len(said[usual]) == 256 - special - 1
    assert said["the same"] == [0]
    assert set(said) <= {usual, "the same", "", "a number where the first has none"}


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        (
            ("e4m3fn", "0.1"),
            "between 0.09375 and 0.1015625 of e4m3fn and becomes 0.1015625: 0.001562 away, 1.56% of it.",
        ),
        (("e2m1", "5"), "becomes 4: 1 away, 20% of it, a tie that goes to the even code."),
        (("e8m0", "3"), "becomes 4: 1 away, 33.3% of it, a tie that goes to the larger."),
        (
            ("e4m3fn", "500"),
            "500 is beyond the largest number of e4m3fn and becomes 448, saturated, and NaN otherwise.",
        ),
        (
            ("e5m2", "-inf"),
            "-inf is beyond the largest number of e5m2 and becomes -57344, saturated, and -inf otherwise.",
        ),
        (("e4m3fn", "460"), "becomes 448, with saturation or without."),
        (("e4m3fnuz", "0x80"), "NaN in e4m3fnuz is the byte 0x80, which is no number."),
        (("e4m3fnuz", "0x80"), "the code that would be -0: NaN. The same byte read as e4m3fn is -0, a number where"),
        (("e4m3fn", "0x80"), "-0 is a number of e4m3fn. Code 0x80 of e4m3fn: sign 1, exponent 0, mantissa 0;"),
        (("e4m3fn", "0x80"), "The same byte read as e4m3fnuz is NaN."),
        (("e4m3fn", "2^-12"), "becomes 0: 0.0002441 away, 100% of it"),
        (("e5m2", "0x7c"), "exponent all ones, mantissa 0: infinity. The same byte read as e5m2fnuz is 32768"),
        (("e8m0", "0"), "0 is below the smallest number of e8m0, 2^-127, and becomes it."),
        (("e4m3fn", "1/3"), "0.333333 lies between 0.3125 and 0.34375"),
    ],
)
def test_the_words_say_what_becomes_of_a_value(state, sentence):
    assert sentence in numbers.draw(*state, 0, "").words


@pytest.mark.parametrize("zoom", range(1, numbers.MOST_ZOOM + 1))
@pytest.mark.parametrize("name", FORMATS)
def test_a_window_shows_the_value_its_neighbours_and_where_it_goes(name, zoom):
    of = FORMATS[name]
    for value in (1.3, 5.5, float(of.smallest_normal) * 1.01, of.largest * 0.9):
        axis = numbers._axis(stored(repr(value), of), zoom)
        lower, upper = of.neighbours(value)
        assert all(axis.holds(x) for x in (lower, upper, value)), value
        assert axis.place(value) == pytest.approx(numbers._LEFT + numbers._WIDE / 2)


def test_the_dot_stands_on_the_number_that_the_value_becomes():
    picture = numbers.draw("e4m3fn", "0.1", numbers.MOST_ZOOM, "e5m2")
    dots = [float(dot.get("cx")) for dot in parsed(picture).iter(f"{SVG}circle")]
    places = {words.text: float(words.get("x")) for words in parsed(picture).iter(f"{SVG}text")}
    assert dots == pytest.approx([places["0.1015625"], places["0.09375"]], abs=0.1)
    assert "0.1015625" in labels(parsed(picture))


def test_a_value_outside_of_the_drawing_has_an_arrow():
    assert "500 →" in labels(parsed(numbers.draw("e4m3fn", "500", 0, "")))
    assert "← -5000" in labels(parsed(numbers.draw("e4m3fn", "-5e3", 3, "")))
    assert "448" in labels(parsed(numbers.draw("e4m3fn", "448", 0, "")))


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("value", ["0.1", "3e38", "nan", "0x05", "-7", "0"])
def test_every_state_is_well_formed_and_inside_its_frame_or_one_sentence(name, value):
    for zoom in (0, 3, numbers.MOST_ZOOM):
        if (name, value) == ("e8m0", "-7") or (value == "nan" and FORMATS[name].nan is None):
            with pytest.raises(W2WError, match=name):
                numbers.draw(name, value, zoom, "e4m3fnuz")
            continue
        picture = numbers.draw(name, value, zoom, "e4m3fnuz")
        for drawing in ElementTree.fromstring(f"<all>{picture.html}</all>").iter(f"{SVG}svg"):
            wide = float(drawing.get("viewBox").split()[2])
            for part in drawing.iter(f"{SVG}text"):
                half = 0.29 * float(part.get("font-size")) * len(part.text)
                left, right = {"start": (0, 2 * half), "middle": (half, half)}[part.get("text-anchor")]
                assert float(part.get("x")) - left > -3, part.text
                assert float(part.get("x")) + right < wide + 3, part.text


def test_wrong_words_leave_the_drawing_with_one_sentence():
    explorer = explore("numbers", value="17")
    before = explorer.picture.html
    explorer.controls["value"].value = "seventeen"
    assert 'role="alert"' in explorer.report.value
    assert "`seventeen` is no number; type one such as 0.1" in explorer.report.value
    assert before in explorer.report.value
    explorer.controls["value"].value = "18"
    assert 'role="alert"' not in explorer.report.value
    assert explorer.words.startswith("18 is a number of e4m3fn.")
    explorer.controls["number_format"].value = "e2m1"
    assert explorer.words.startswith("18 is beyond the largest number of e2m1")


def test_a_second_format_is_drawn_below_and_told():
    explorer = explore("numbers", "e4m3fnuz", value="300")
    assert "of e4m3fn " not in explorer.words
    explorer.controls["second"].value = "e4m3fn"
    assert "300 lies between 288 and 320 of e4m3fn and becomes 288" in explorer.words
    assert len(filled(parsed(explorer.picture), height="28.0")) == 7  # the bits stay those of the first


@pytest.mark.parametrize("wrong", ["", "1/0", "2^9999", "9" * 41, "lane", "0x1ff", "1e", "__import__('os')"])
def test_what_is_no_number_is_refused(wrong):
    with pytest.raises(BadArgument, match="is no number"):
        explore("numbers", value=wrong)


def test_what_is_not_in_the_lists_is_refused():
    for start in ({"number_format": "e4m3"}, {"second": "fp8"}):
        with pytest.raises(UnknownName):
            explore("numbers", **start)
    with pytest.raises(BadArgument, match="expected 0"):
        explore("numbers", zoom=7)
    with pytest.raises(W2WError, match="the codes of e2m1 are 0 to 15"):
        explore("numbers", "e2m1", value="0x10")
