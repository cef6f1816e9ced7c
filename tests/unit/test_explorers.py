"""The explorers: what they draw agrees with what they compute, and can be had without colour, mouse or network."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import pytest
import torch
import triton
import triton.language as tl

from gpu_utils import CHIPS, compile_for, explore
from gpu_utils.analytic.access import bank_conflicts, coalescing
from gpu_utils.analytic.expression import addresses
from gpu_utils.analytic.inference import MODELS, plan
from gpu_utils.analytic.occupancy import occupancy
from gpu_utils.analytic.online import merges
from gpu_utils.analytic.roofline import Point, roofline
from gpu_utils.chips import TARGETS
from gpu_utils.compiler import resources
from gpu_utils.errors import BadArgument, UnknownFigure, UnknownName
from gpu_utils.ui.explore import EXPLORERS, access, divergence, inference, online
from gpu_utils.ui.explore import occupancy as occupancy_explorer
from gpu_utils.ui.explore import roofline as roofline_explorer


def parsed(picture):
    return ElementTree.fromstring(f"<all>{picture.html}</all>")


def filled(root, **attributes):
    """Rectangles of a drawing that are filled."""
    return [
        box
        for box in root.iter("{http://www.w3.org/2000/svg}rect")
        if box.get("class") in ("even", "odd") and all(box.get(name) == value for name, value in attributes.items())
    ]


def labels(root):
    return [words.text for words in root.iter("{http://www.w3.org/2000/svg}text")]


# All of them


@pytest.fixture(scope="module", params=EXPLORERS)
def any_explorer(request):
    return explore(request.param)


def test_an_explorer_is_well_formed_and_loads_nothing(any_explorer):
    html = any_explorer.html
    ElementTree.fromstring(f"<all>{html}</all>")
    assert "<script" not in html
    assert "url(" not in html
    assert "@import" not in html
    assert not re.search(r"\b(src|href)=", html)
    assert set(re.findall(r"https?://[^\"' ]+", html)) <= {"http://www.w3.org/2000/svg"}


def test_every_drawing_has_a_text_alternative(any_explorer):
    drawings = re.findall(r"<svg [^>]*>", any_explorer.html)
    assert drawings
    for drawing in drawings:
        assert re.search(r'role="(img|group)" aria-label="[^"]{8,}"', drawing), drawing
    spoken = re.findall(r'<p role="status">(.*?)</p>', any_explorer.html)
    assert spoken
    assert all(len(words) > 40 for words in spoken)


def test_a_viewer_without_widgets_gets_the_first_state(any_explorer):
    bundle = any_explorer._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert bundle["text/html"] == any_explorer.html
    assert bundle["text/plain"] == any_explorer.words
    assert "<svg" in bundle["text/html"]


def test_an_unknown_explorer_names_the_nearest():
    with pytest.raises(UnknownName, match="did you mean 'occupancy'"):
        explore("occupency")


# Occupancy


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("registers", "shared", "threads"), [(32, 0, 256), (96, 20_000, 128), (200, 9_000, 96), (40, 0, 64)]
)
def test_as_many_wave_slots_are_filled_as_fit(target, registers, shared, threads):
    limits = TARGETS[target]
    found = occupancy(limits, registers, shared, -(-threads // limits.lanes))
    picture = occupancy_explorer.draw(target, registers, shared, threads)
    root = parsed(picture)
    assert len(filled(root, height="18.0")) == found.waves
    assert len(filled(root, height="20.0")) == (found.blocks if shared or limits.shared_reserved else 0)
    assert str(found) in picture.words
    assert found.advice in picture.words
    bold = [row.findall("td")[1].text for row in root.iter("tr") if row.get("class") == "binds"]
    assert tuple(bold) == found.limited_by


def test_the_curve_falls_where_llvm_hands_out_another_block_of_eight():
    fit = occupancy_explorer.curve(TARGETS["gfx942"], 0, 1)
    assert [registers for registers in range(1, 513) if fit[registers] < fit[registers - 1]] == [
        65,
        73,
        81,
        97,
        129,
        169,
        257,
    ]
    assert "The next cliff is at 73 registers: 24 wavefronts." in occupancy_explorer.draw("gfx942", 72, 0, 64).words


def test_a_block_that_needs_more_than_there_is_leaves_the_unit_empty():
    picture = occupancy_explorer.draw("sm_90", 300, 0, 256)
    assert filled(parsed(picture)) == []
    assert "300 are more than the 255 that a lane can have" in picture.html


def test_lanes_without_a_thread_are_said():
    assert "32 lanes without a thread" in occupancy_explorer.draw("gfx942", 32, 0, 96).words
    assert "without a thread" not in occupancy_explorer.draw("sm_90", 32, 0, 96).words


@triton.jit
def reduce_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    tl.store(out_ptr, tl.sum(tl.load(x_ptr + tl.arange(0, BLOCK))))


def test_compiled_kernels_set_the_sliders_of_their_side():
    kernels = [
        compile_for(reduce_kernel, target, (torch.float32, torch.float32), BLOCK=4096) for target in ("gfx90a", "sm_80")
    ]
    explorer = explore("occupancy", *kernels)
    for side, kernel in ((explorer.right, kernels[0]), (explorer.left, kernels[1])):
        needs = resources(kernel)
        assert needs.shared > 0
        assert side.values == {
            "target": needs.target.name,
            "registers": needs.registers,
            "shared": needs.shared,
            "threads": needs.num_warps * needs.target.lanes,
        }
        assert str(needs.occupancy) in side.words
    with pytest.raises(BadArgument, match="second kernel for amd"):
        explore("occupancy", kernels[0], resources(kernels[0]))


def test_sliders_move_together_until_they_are_told_not_to():
    explorer = explore("occupancy")
    together = explorer.children[0].children[0]
    explorer.left.controls["registers"].value = 100
    assert explorer.right.controls["registers"].value == 100
    assert "limited by registers" in explorer.right.words
    together.value = False
    explorer.right.controls["registers"].value = 50
    assert explorer.left.controls["registers"].value == 100


def test_a_target_on_the_wrong_side_is_refused():
    with pytest.raises(BadArgument, match="gfx942 is no target of nvidia; expected one of sm_80"):
        explore("occupancy", nvidia="gfx942")


# Access


@pytest.mark.parametrize(
    "expression", ["lane", "lane * 2 + 1", "lane * 33", "lane ^ 5", "lane if lane % 3 else None", "0"]
)
@pytest.mark.parametrize("size", [1, 4, 8, 16])
def test_the_segments_drawn_are_those_touched(expression, size):
    picture = access.draw(expression, size, "global", "gfx90a")
    for target, words in zip(("sm_80", "gfx90a"), picture.words.splitlines(), strict=True):
        segment = 32 if target == "sm_80" else 64
        found = coalescing(addresses(expression, TARGETS[target].lanes, size), size, segment)
        assert words.startswith(f"{found.transactions:,} segment")
        assert f"{found.moved:,} bytes are moved for {found.used:,}" in words


def test_a_segment_is_filled_as_far_as_it_is_used():
    picture = access.draw("lane * 4", 4, "global", "gfx942")
    segments = [box.get("height") for box in filled(parsed(picture)) if box.get("height") != "15.0"]  # 15: a lane
    assert segments == ["7.5"] * (16 + 8)  # a quarter of 30
    whole = [box.get("height") for box in filled(parsed(access.draw("lane", 4, "global", "gfx942")))]
    assert whole.count("30.0") == 4 + 2


@pytest.mark.parametrize(
    "expression", ["lane", "lane * 2", "lane * 32", "lane * 33", "lane // 4", "lane if lane > 9 else None"]
)
@pytest.mark.parametrize("size", [1, 4, 8, 16])
@pytest.mark.parametrize("target", ["sm_90", "gfx942", "gfx950", "gfx1100"])
@pytest.mark.parametrize("way", ["read", "write"])
def test_every_word_is_served_once_and_in_as_many_passes_as_are_counted(expression, size, target, way):
    wanted = addresses(expression, TARGETS[target].lanes, size)
    found = bank_conflicts(wanted, access_bytes=size, target=target, access=way)
    served, banks = access.schedule(found), found.served.banks
    assert max((row for row, _ in served), default=-1) + 1 == found.cycles
    wanted = sorted((lane, word % banks) for lane, one in enumerate(found.lanes) for word in one.words)
    assert sorted((lane, bank) for (_, bank), served_lanes in served.items() for lane in served_lanes) == wanted
    for lane, one in enumerate(found.lanes):
        rows = [row for (row, _), served_lanes in served.items() if lane in served_lanes]
        assert max(rows, default=None) == one.cycle
    for (row, bank), served_lanes in served.items():
        words = {word for lane in served_lanes for word in found.lanes[lane].words if word % banks == bank}
        assert len(words) == 1, (row, bank)


def test_64_banks_are_drawn_for_gfx950_and_halve_a_column():
    words = access.draw("lane * 32", 4, "shared", "gfx950").words.splitlines()
    assert words[0].startswith("32 passes through the banks, 1 would do")
    assert words[1].startswith("32 passes through the banks, 1 would do")
    assert "63" in labels(parsed(access.draw("lane", 4, "shared", "gfx950")))
    assert access.draw("lane * 32", 4, "shared_write", "gfx950").words.splitlines()[1].startswith("64 passes")
    assert access.draw("lane * 32", 4, "shared", "gfx942").words.splitlines()[1].startswith("64 passes")


def test_the_drawing_of_a_wide_read_says_which_lanes_go_together():
    words = access.draw("lane", 16, "shared", "gfx942").words.splitlines()
    assert "(8 lanes go together, 0-7 first)" in words[0]
    assert "(8 lanes go together, 0-3 and 20-23 first)" in words[1]


def test_a_broken_expression_says_why_and_leaves_the_drawing():
    explorer = explore("access", "lane * 2")
    before = explorer.picture.html
    explorer.controls["expression"].value = "lane / 2"
    assert 'role="alert"' in explorer.report.value
    assert "use // for whole numbers" in explorer.report.value
    assert before in explorer.report.value
    explorer.controls["expression"].value = "lane // 2"
    assert 'role="alert"' not in explorer.report.value


def test_the_stride_slider_writes_the_expression():
    explorer = explore("access")
    explorer.children[0].children[0].value = 7
    assert explorer.controls["expression"].value == "lane * 7"
    assert "28 segments" in explorer.words
    explorer.controls["expression"].value = "lane * 3"
    assert explorer.children[0].children[0].value == 3
    explorer.controls["expression"].value = "lane ^ 3"
    assert explorer.controls["expression"].value == "lane ^ 3"


@pytest.mark.parametrize(
    ("start", "said"),
    [
        ({"memory": "LDS"}, "there is no memory 'LDS'; there are global, shared"),
        ({"amd": "sm_90"}, "there is no AMD target 'sm_90'"),
        ({"element_bytes": 3}, "there is no bytes a lane '3'; there are 1, 2, 4, 8, 16"),
    ],
)
def test_what_the_access_explorer_cannot_show_is_refused(start, said):
    with pytest.raises(UnknownName, match=said):
        explore("access", **start)


@pytest.mark.parametrize("wrong", ["__import__('os')", "lane.real", "[lane][0]", "lane * 2.5", ""])
def test_an_expression_is_never_executed(wrong):
    with pytest.raises(BadArgument):
        explore("access", wrong)


# Roofline

POINTS = (Point("scale", 2**26, 2**29), Point("matmul", 2 * 4096**3, 6 * 4096**2, 3e-4))


def test_a_point_says_what_bounds_it_and_what_it_reached():
    picture = roofline_explorer.draw(["H100", "MI300X"], "bf16", POINTS)
    assert "On H100 SXM memory bounds 1 scale; compute bounds 2 matmul." in picture.words
    assert "matmul reached 458 TFLOP/s." in picture.words
    assert "scale reached" not in picture.words
    share = roofline("H100").fraction(POINTS[1])
    assert f"989 TFLOP/s, {share:.0%} reached" in picture.html


def test_marks_can_be_focused_and_have_words():
    picture = roofline_explorer.draw(["H100", "MI300X"], "bf16", POINTS)
    spots = [group for group in parsed(picture).iter("{http://www.w3.org/2000/svg}g") if group.get("class") == "spot"]
    assert len(spots) == 2 + 2  # two ridges, two kernels
    assert all(spot.get("tabindex") == "0" and "FLOP per byte" in spot.get("aria-label") for spot in spots)


def test_points_of_equal_intensity_stand_on_each_other():
    picture = roofline_explorer.draw(["H100"], "bf16", [Point(f"kernel {n}", 100 + n, 100) for n in range(12)])
    discs = [disc for disc in parsed(picture).iter("{http://www.w3.org/2000/svg}circle") if disc.get("class") == "ring"]
    places = {(disc.get("cx"), disc.get("cy")) for disc in discs}
    assert len(discs) == len(places) == len({y for _, y in places}) == 12


@pytest.mark.parametrize("dtype", roofline_explorer.FORMATS)
def test_chips_without_a_figure_are_grey_with_the_reason(dtype):
    explorer = explore("roofline", chips=list(CHIPS), dtype=dtype)
    for name in CHIPS:
        box = explorer.controls[name]
        try:
            roof = roofline(name, dtype)
        except UnknownFigure:
            assert box.disabled
            assert box.description.startswith(f"{name} (")
            assert f"{name} has no line: {roofline_explorer.reason(name, dtype)}" in explorer.words
        else:
            assert not box.disabled
            assert f"{roof.name}: " in explorer.words
            assert roof.sources[0].replace("'", "&#x27;") in explorer.html


def test_another_number_format_greys_other_chips():
    explorer = explore("roofline", chips=["A100", "H100"])
    assert not explorer.controls["A100"].disabled
    explorer.controls["dtype"].value = "fp8"
    assert explorer.controls["A100"].disabled
    assert "no FP8 matrix instructions" in explorer.controls["A100"].description
    assert "H100 SXM: 1.98 PFLOP/s" in explorer.words


def test_an_unknown_chip_or_format_is_refused_at_once():
    with pytest.raises(UnknownName, match="MI300X"):
        explore("roofline", chips=["MI300"])
    with pytest.raises(UnknownName, match="bf16"):
        explore("roofline", dtype="bf15")


# Memory


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("batch", [1, 64])
def test_what_fits_has_a_tick_and_what_does_not_a_cross(model, batch):
    chips = ("H100", "MI300X", "RX 7900 XTX")
    picture = inference.draw(model, batch, 8192, 2.0, 1.0, 1, chips)
    marks = [label[0] for label in labels(parsed(picture)) if label[0] in "✓✗"]
    assert marks == ["✓" if plan(chip, MODELS[model], batch, 8192, cache_bytes=1).fits else "✗" for chip in chips]
    assert MODELS[model].source in picture.html


def test_eight_chips_together_hold_what_one_does_not():
    explorer = explore("memory", "DeepSeek-V3", batch=1)
    assert "MI300X: does not fit" in explorer.words
    explorer.controls["weight_bytes"].value = 1.0
    explorer.controls["together"].value = 8
    assert "8 x MI300X: fits" in explorer.words


def test_a_context_that_the_slider_cannot_show_is_refused():
    with pytest.raises(BadArgument, match="context is 1000"):
        explore("memory", context=1000)
    with pytest.raises(UnknownName, match="Mistral-7B"):
        explore("memory", "Mistral")


def test_a_target_in_place_of_a_kernel_is_told_where_targets_go():
    with pytest.raises(BadArgument, match=r"'sm_90' is no compiled kernel; .* targets as nvidia="):
        explore("occupancy", "sm_90")


# The online softmax

_ZERO_HEIGHT = 84.0  # of exp(x - m) = 1


def bars_below(picture):
    """Heights of the lower bars, in the order of the elements."""
    floor = max(float(box.get("y")) + float(box.get("height")) for box in filled(parsed(picture)))
    lower = [
        box for box in filled(parsed(picture)) if abs(float(box.get("y")) + float(box.get("height")) - floor) < 0.3
    ]
    return [float(box.get("height")) for box in sorted(lower, key=lambda box: float(box.get("x")))]


@pytest.mark.parametrize("block", [1, 5, 8, 32])
def test_the_bars_of_what_has_joined_add_up_to_l(block):
    found = merges(online.LOGITS, block)
    for step, merge in enumerate(found, 1):
        picture = online.draw(online.LOGITS, block, step, masked=False, guarded=True)
        heights = bars_below(picture)
        assert len(heights) == merge.stop
        assert sum(heights) / _ZERO_HEIGHT == pytest.approx(merge.l, abs=0.02)
        assert max(heights) == _ZERO_HEIGHT
        bold = [row.findall("td")[3].text for row in parsed(picture).iter("tr") if row.get("class") == "binds"]
        assert bold == [f"{merge.m:.3g}"]


def test_a_larger_maximum_shrinks_what_was_there_by_the_factor():
    before = bars_below(online.draw(online.LOGITS, 8, 1, masked=False, guarded=True))
    after = bars_below(online.draw(online.LOGITS, 8, 2, masked=False, guarded=True))
    factor = merges(online.LOGITS, 8)[1].factor
    assert after[:8] == pytest.approx([height * factor for height in before], abs=0.06)
    html = online.draw(online.LOGITS, 8, 2, masked=False, guarded=True).html
    assert html.count('stroke-dasharray="2 2"') == 8
    assert 'stroke-dasharray="2 2"' not in online.draw(online.LOGITS, 8, 3, masked=False, guarded=True).html


def test_a_masked_block_is_no_bar_and_nan_only_without_the_guard():
    words = online.draw(online.LOGITS, 8, 1, masked=True, guarded=True)
    assert filled(parsed(words)) == []
    assert labels(parsed(words)).count("-∞") == 8
    assert "l stays 0" in words.words
    for step in (1, 2, 4):
        assert "NaN" in online.draw(online.LOGITS, 8, step, masked=True, guarded=False).words
        assert "NaN" not in online.draw(online.LOGITS, 8, step, masked=True, guarded=True).words
        assert "NaN" not in online.draw(online.LOGITS, 16, step, masked=True, guarded=False).words


def test_a_larger_block_has_fewer_steps():
    explorer = explore("online", step=4)
    assert explorer.words.startswith("Block 4 of 4")
    explorer.controls["block"].value = 16
    assert explorer.controls["step"].value == 2
    assert explorer.words.startswith("Block 2 of 2, elements 16 to 31")
    explorer.controls["block"].value = 1
    explorer.controls["step"].value = 32
    assert explorer.words.startswith("Block 32 of 32, elements 31 to 31")


@pytest.mark.parametrize("start", [{"block": 0}, {"block": 40}, {"step": 5}, {"logits": [1.0]}])
def test_a_row_a_block_or_a_step_that_cannot_be_drawn_is_refused(start):
    with pytest.raises(BadArgument, match="expected"):
        explore("online", **start)


def leaving(picture):
    """Words of a drawing that do not fit between its edges, by the width of an average letter."""
    found = []
    for drawing in parsed(picture).iter("{http://www.w3.org/2000/svg}svg"):
        right = float(drawing.get("viewBox").split()[2])
        for words in drawing.iter("{http://www.w3.org/2000/svg}text"):
            wide = len(words.text) * float(words.get("font-size")) * (0.6 if words.get("font-weight") else 0.5)
            left = float(words.get("x")) - wide * {"start": 0, "middle": 0.5, "end": 1}[words.get("text-anchor")]
            if left < 0 or left + wide > right:
                found.append(words.text)
    return found


def test_the_longest_words_stay_inside_of_the_drawings():
    sizes = {"weight_bytes": 2.0, "cache_bytes": 2.0, "chips": ("H100", "RX 7900 XTX")}
    for row in (online.LOGITS, [-4.25, 3.75] * 32, [12.5, 11.0]):
        assert not leaving(online.draw(row, 2, 1, masked=len(row) > 2, guarded=True)), row
    assert not leaving(inference.draw("DeepSeek-V3", batch=512, context=131072, together=16, **sizes))
    for target in ("gfx1100", "gfx942", "sm_90"):
        assert not leaving(divergence.draw(target, "lane % 2", "Triton", 0))
    for target in TARGETS:
        assert not leaving(occupancy_explorer.draw(target, 1, 0, 32))


def test_the_label_of_a_point_in_the_corner_is_not_on_the_title():
    root = parsed(occupancy_explorer.draw("gfx1100", 1, 0, 32))
    heights = {words.text: float(words.get("y")) for words in root.iter("{http://www.w3.org/2000/svg}text")}
    assert heights["1 register: 64"] > heights["wavefronts that fit"] + 14
