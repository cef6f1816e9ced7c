"""Figures of narrow formats: numbers, who shares a scale, what scaling loses, amax: true to the element, in words."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
import torch

from gpu_utils.errors import BadArgument, UnknownName
from gpu_utils.formats import BLOCK_FORMATS, FORMATS
from gpu_utils.lesson import amax_figure, error_figure, number_line, scale_figure
from gpu_utils.ui.number_figure import Axis
from gpu_utils.ui.scale_figure import GRANULARITIES
from tests.unit.test_explorers import labels, parsed

SVG = "{http://www.w3.org/2000/svg}"


def paths(picture, kind):
    """What the paths of a kind draw, in order."""
    return [mark.get("d") for mark in parsed(picture).iter(f"{SVG}path") if mark.get("class") == kind]


def rectangles(picture, kind):
    """(x, y, width, height) of the rectangles that the paths of a kind are made of."""
    found = re.findall(r"M([\d.]+) ([\d.]+)h([\d.]+)v([\d.]+)h-[\d.]+z", "".join(paths(picture, kind)))
    return [tuple(map(float, each)) for each in found]


def test_every_figure_is_well_formed_small_and_has_the_words_it_is_read_by():
    noise = torch.randn(300, 700, generator=torch.Generator().manual_seed(1))
    errors = {f"way {n}": torch.rand(300, 700, generator=torch.Generator().manual_seed(n)) for n in range(5)}
    steps = np.exp2(np.random.default_rng(0).normal(size=4000))
    shares = np.full(4000, 0.1)
    history = {"amax": steps, "scale": steps / 300, "saturated": shares, "underflowed": shares}
    for figure in (
        number_line("e4m3fn", "e5m2", low=2**-16, high=2**16),
        scale_figure({"activations": (4, 512), "weight": (256, 512), "long": (1, 100_000), "tall": (4096, 33)}),
        error_figure(noise, errors),
        amax_figure({"x": history, "w": history, "gradient": history}),
    ):
        html = figure._repr_html_()
        ElementTree.fromstring(f"<all>{html}</all>")
        assert len(html) < 200_000
        assert "url(" not in html
        assert re.search(r'role="img" aria-label="[^"]{40,}"', html)
        assert len(repr(figure)) > 40


# Numbers


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(("low", "high", "log"), [(2**-6, 4.0, True), (-3.0, 3.0, False), (0.0, 6.0, False)])
def test_each_number_of_a_format_has_its_tick(name, low, high, log):
    of, axis = FORMATS[name], Axis(low, high, 1.0 if log else 0.0)
    picture = number_line(name, low=low, high=high, log=log)
    inside = np.unique([x + 0.0 for x in of.values if low <= x <= high])
    drawn = [
        float(x) for kind in ("line", "hue") for d in paths(picture, kind) for x in re.findall(r"M([\d.]+) \d+v", d)
    ]
    assert sorted(drawn) == pytest.approx([axis.place(x) for x in inside], abs=0.06)
    assert f"{name}: {len(inside)} numbers" in repr(picture)


def test_the_ends_of_a_format_are_marked_where_they_are():
    picture = number_line("e4m3fn", "e2m1", low=2**-17, high=2**16)
    assert {"smallest 2^-9", "normal from 2^-6", "largest 448", "smallest 0.5", "largest 6"} <= set(
        labels(parsed(picture))
    )
    axis = Axis(2**-17, 2**16, 1.0)
    marks = [float(x) for d in paths(picture, "edge") for x in re.findall(r"M ([\d.]+)", d)]
    assert marks == pytest.approx([axis.place(x) for x in (2**-9, 2**-6, 448, 0.5, 1, 6)], abs=0.06)
    assert "subnormal: 7; smallest above zero 2^-9, smallest normal 2^-6, largest 448" in repr(picture)


def test_on_a_logarithmic_axis_each_doubling_takes_the_same_room():
    axis = Axis(2**-4, 2**4, 1.0, left=0, wide=800)
    assert [axis.place(2.0**power) for power in range(-4, 5)] == pytest.approx([100 * n for n in range(9)])


@pytest.mark.parametrize("whole", [Axis(-448, 448, 2**-6), Axis(2**-127, 2**127, 1.0), Axis(-3.0, 5.0, 0.0)])
def test_labels_of_an_axis_stand_apart_and_on_it(whole):
    places = [whole.place(number) for number, _ in whole.labels()]
    assert len(places) > 4
    assert np.diff(places).min() > 40
    assert all(whole.holds(number) for number, _ in whole.labels())


@pytest.mark.parametrize(
    ("formats", "ends", "said"),
    [
        ((), (1, 2), "one format at least"),
        (("e2m1",), (0, 6), "above 0 on a logarithmic axis"),
        (("e2m1",), (3, 3), "ends that rise"),
        (("e2m1",), (1, float("inf")), "ends that rise"),
        (("e2m1",), (7, 9), "e2m1 has no number from 7 to 9; its largest is 6"),
    ],
)
def test_an_axis_that_there_is_not_is_refused(formats, ends, said):
    with pytest.raises(BadArgument, match=said):
        number_line(*formats, low=ends[0], high=ends[1])


# Scales


@pytest.mark.parametrize("name", GRANULARITIES)
@pytest.mark.parametrize("shape", [(4, 512), (16, 300), (256, 512), (130, 200)])
def test_the_blocks_of_a_granularity_cover_the_matrix_once(name, shape):
    picture = scale_figure({"x": shape}, name)
    rows, columns = shape
    of = GRANULARITIES[name]
    high, wide = min(of.rows or rows, rows), min(of.columns or columns, columns)
    drawn = rectangles(picture, "even") + rectangles(picture, "odd")
    x_scale = sum({x: w for x, _, w, _ in drawn}.values()) / columns
    y_scale = sum({y: h for _, y, _, h in drawn}.values()) / rows
    thin = high * y_scale < 6 < rows * y_scale
    assert len(drawn) == -(-columns // wide) * (1 if thin else -(-rows // high))
    assert sum(w * h for _, _, w, h in drawn) == pytest.approx(rows * columns * x_scale * y_scale, rel=0.01)
    x, y, w, h = rectangles(picture, "odd")[0]
    assert (w, h if not thin else high * y_scale) == pytest.approx((wide * x_scale, high * y_scale), abs=0.2)
    (frame,) = (box for box in parsed(picture).iter(f"{SVG}rect") if box.get("class") == "edge")
    assert [float(frame.get(side)) for side in ("x", "y")] == [x, y]
    assert float(frame.get("width")) == pytest.approx(w, abs=0.11)
    assert float(frame.get("height")) == pytest.approx(high * y_scale, abs=0.11)


def test_neighbouring_blocks_differ_in_colour():
    picture = scale_figure({"weight": (256, 512)}, "128 x 128")
    even, odd = rectangles(picture, "even"), rectangles(picture, "odd")
    assert len(even) == len(odd) == 4
    assert not {(x, y) for x, y, _, _ in even} & {(x, y) for x, y, _, _ in odd}
    assert len({x for x, _, _, _ in odd}) == 4


def test_scales_are_counted():
    words = repr(scale_figure({"x": (4, 512), "w": (256, 512)}))
    assert "x, 4 rows of 512. per tensor: 1 scale, one for 2,048 elements. per row: 4 scales, one for 512" in words
    assert "1 x 128: 1,024 scales, one for 128 elements. 128 x 128: 8 scales, one for 16,384 elements." in words
    mx = BLOCK_FORMATS["MXFP8"]
    assert f"MX, 1 x 32: 4,096 scales, one for {mx.block} elements" in words
    shown = labels(parsed(scale_figure({"w": (256, 512)})))
    assert f"4,096 scales, each row its own; +{mx.scale.bits / mx.block:.2g} bits an element" in shown
    assert "8 scales; +0.002 bits an element" in shown


def test_a_matrix_or_a_granularity_that_there_is_not_is_refused():
    for shapes in ({}, {"x": (0, 4)}):
        with pytest.raises(BadArgument, match="expected a name and"):
            scale_figure(shapes)
    with pytest.raises(UnknownName, match="1 x 128"):
        scale_figure({"x": (4, 4)}, "1x128")


# What is lost


def test_a_map_shows_outliers_and_the_errors_that_they_cause():
    x = torch.ones(16, 32)
    x[:, 5] = 300
    lost = torch.where(x > 1, 0.01, 1.0)
    picture = error_figure(x, {"per tensor": lost, "per column": torch.full_like(x, 0.02)})
    words = repr(picture)
    assert "16 x 32 numbers, |x| up to 300 (column 5), half of them below 1." in words
    assert "per tensor: mean error 96.9%, largest in column 0 (100%); lost whole: 96.9% of the elements." in words
    assert "per column: mean error 2%, largest in column 0 (2%); lost whole: 0% of the elements." in words
    maps = [
        {float(shade.get("fill-opacity")): shade.get("d") for shade in group.iter(f"{SVG}path")}
        for group in parsed(picture).iter(f"{SVG}g")
        if group.get("shape-rendering")
    ]
    assert len(maps) == 3
    assert re.findall(r"M(\d+) \d+h(\d+)", maps[0][1.0]) == [("5", "1")] * 16
    assert re.findall(r"M(\d+) \d+h(\d+)", maps[1][1.0])[:2] == [("0", "5"), ("6", "26")]
    assert len(maps[2]) == 1  # the same everywhere, on the scale of both
    assert max(maps[2]) < 0.5


def test_a_cell_is_the_mean_of_its_patch_and_stays_empty_where_there_is_no_error():
    x = np.ones((48, 96))
    error = np.full((48, 96), np.nan)
    error[:24] = np.tile([0.25, 0.75], (24, 48))
    picture = error_figure(x, {"one": error})
    (shades,) = [group for group in parsed(picture).iter(f"{SVG}g") if group.get("shape-rendering")][1:]
    marks = "".join(shade.get("d") for shade in shades.iter(f"{SVG}path"))
    assert re.findall(r"M(\d+) (\d+)h(\d+)", marks) == [("0", str(row), "48") for row in range(12)]
    assert "mean error 50%, largest in column 1 (75%)" in repr(picture)


def test_a_parameter_in_a_narrow_type_is_a_matrix_too():
    weight = torch.nn.Parameter(torch.full((4, 4), 2.0, dtype=torch.bfloat16))
    lost = torch.full((4, 4), 0.5).to(torch.float8_e4m3fn)
    assert "|x| up to 2 (column 0), half of them below 2. cast: mean error 50%" in repr(
        error_figure(weight, {"cast": lost})
    )


@pytest.mark.parametrize(
    ("matrix", "errors", "said"),
    [
        ([[1.0]], {}, "one map at least"),
        ([1.0, 2.0], {"a": [1.0, 2.0]}, "rows and columns"),
        ([[float("inf")]], {"a": [[0.0]]}, "finite numbers"),
        ([[1.0]], {"a": [[0.0, 1.0]]}, r"expected \(1, 1\), as the matrix"),
        ([[1.0]], {"a": [[-1.0]]}, "below 0"),
        ([[1.0]], {"a": [[float("nan")]]}, "only NaN"),
    ],
)
def test_maps_that_do_not_fit_are_refused(matrix, errors, said):
    with pytest.raises(BadArgument, match=said):
        error_figure(matrix, errors)


# amax


def history(**changed):
    steps = 12
    return {
        "amax": [2.0**n for n in range(steps)],
        "scale": [1.0] * steps,
        "saturated": [0.0] * 9 + [0.1, 0.2, 0.4],
        "underflowed": [0.5] * steps,
    } | changed


def test_the_band_is_the_range_of_the_format_and_steps_beyond_it_are_marked():
    picture = amax_figure({"x": history()}, "e4m3fn")
    assert "x, 12 steps: amax 1 to 2.05e+03, beyond the range in 3 of them, first in step 10" in repr(picture)
    assert "at most 40% saturated and 50% became 0" in repr(picture)
    amax, lost = (re.findall(r"([\d.]+) ([\d.]+)", d) for d in paths(picture, "edge"))
    heights = [float(y) for _, y in amax]
    octave = heights[0] - heights[1]
    assert np.diff(heights) == pytest.approx([-octave] * 11, abs=0.11)  # each step is twice the one before
    (band,) = paths(picture, "odd")
    edges = sorted({float(y) for y in re.findall(r"[\d.]+ ([\d.]+)", band)})
    assert len(edges) == 2
    of = FORMATS["e4m3fn"]
    assert (edges[1] - edges[0]) / octave == pytest.approx(np.log2(of.largest / of.smallest), rel=0.01)
    marks = [d for d in paths(picture, "hue") if d.endswith(" 6.0")]
    assert [float(re.match(r"M ([\d.]+)", d)[1]) for d in marks] == [float(x) for x, _ in amax[-3:]]
    assert len({y for _, y in lost}) == 1


def test_of_many_steps_none_beyond_the_range_is_lost():
    amax, saturated = [1.0] * 5000, [0.0] * 5000
    amax[1234], saturated[4321] = 500.0, 0.25
    rest = {"scale": [1.0] * 5000, "underflowed": [0.0] * 5000}
    picture = amax_figure({"x": {"amax": amax, "saturated": saturated, **rest}})
    assert len([d for d in paths(picture, "hue") if d.endswith(" 6.0")]) == 1
    assert "beyond the range in 1 of them, first in step 1235; at most 25% saturated" in repr(picture)
    assert "25%" in labels(parsed(picture))


def test_a_scale_that_follows_moves_the_band():
    low = amax_figure({"x": history(amax=[1.0] * 12, scale=[1.0] * 6 + [4.0] * 6)})
    (band,) = paths(low, "odd")
    assert len(set(re.findall(r"[\d.]+ ([\d.]+)", band))) == 4
    assert "all in range" in repr(low)


def test_an_operand_that_is_all_zero_stands_on_the_floor():
    assert "amax 0 to 0, all in range" in repr(amax_figure({"x": history(amax=[0.0] * 12)}))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"scale": [1.0]}, "expected one for each of two steps or more"),
        ({"scale": [0.0] * 12}, "a scale that is not above 0"),
        ({"amax": [float("nan")] * 12}, "not finite"),
        ({"saturated": [1.5] * 12}, "shares from 0.5 to 1.5; expected 0 to 1"),
    ],
)
def test_lists_that_are_no_history_are_refused(changed, said):
    with pytest.raises(BadArgument, match=said):
        amax_figure({"x": history(**changed)})


def test_no_operand_and_an_unknown_format_are_refused():
    with pytest.raises(BadArgument, match="no operand"):
        amax_figure({})
    with pytest.raises(BadArgument, match="'x' has"):
        amax_figure({"x": {"amax": [1.0, 2.0]}})
    with pytest.raises(UnknownName, match="e4m3fn"):
        amax_figure({"x": history()}, "e4m3")
