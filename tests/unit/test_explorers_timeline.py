"""The explorer of timelines, and its drawing: gaps, shares and causes are those of the profile."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from gpu_utils import explore
from gpu_utils.errors import BadArgument, UnknownName
from gpu_utils.profiling.busy import COPY, SLOW_HOST, SYNC, busy
from gpu_utils.profiling.modelled import Modelled
from gpu_utils.profiling.profile import Event, Profile
from gpu_utils.ui.explore import timeline
from gpu_utils.ui.trace_figure import numbered_gaps, trace_figure

SVG = "{http://www.w3.org/2000/svg}"


def boxes(picture, kind):
    """(x, width) of each box of a class, without that of the legend."""
    root = ElementTree.fromstring(f"<all>{picture.html}</all>")
    found = [box for box in root.iter(f"{SVG}rect") if box.get("class") == kind]
    return [(float(box.get("x")), float(box.get("width"))) for box in found if float(box.get("y")) > 20]


def texts(picture):
    root = ElementTree.fromstring(f"<all>{picture.html}</all>")
    return [word.text for word in root.iter(f"{SVG}text")]


def test_each_kernel_and_each_gap_is_a_box_of_its_length():
    picture = timeline.draw("launch-bound", "nvidia", 5, 2, 0, 50)
    kernels, gaps = boxes(picture, "even"), boxes(picture, "done")
    assert len(kernels) == 18
    assert len(gaps) == 17
    (kernel,) = {round(width, 1) for _, width in kernels}
    (gap,) = {round(width, 1) for _, width in gaps}
    assert gap / (kernel + 0.5) == pytest.approx(3 / 2, rel=0.02)  # 5 µs of launching less 2 µs of kernel
    assert "17 gaps; the longest lasts 3 µs: host launches too slowly." in picture.words


def test_kernels_as_long_as_a_launch_leave_no_gap():
    assert "It is never idle in between." in timeline.draw("launch-bound", "amd", 5, 5, 0, 50).words


@pytest.mark.parametrize(
    ("scenario", "kernel", "cause"), [("launch-bound", 4, SLOW_HOST), ("sync", 40, SYNC), ("copy", 4, SLOW_HOST)]
)
@pytest.mark.parametrize(("vendor", "call"), [("nvidia", "cudaLaunchKernel"), ("amd", "hipLaunchKernel")])
def test_a_scenario_says_why_its_gaps_are_there_and_what_the_host_called(scenario, kernel, cause, vendor, call):
    picture = timeline.draw(scenario, vendor, 10, kernel, 0, 50)
    (device,) = busy(timeline.modelled(scenario, vendor, 10, kernel)).devices
    assert cause in device.idle_by_cause
    assert cause in picture.html
    assert call in picture.html
    assert {gap.cause for gap in device.gaps} <= {SLOW_HOST, SYNC, COPY}


def test_copies_on_a_stream_of_their_own_run_beside_kernels():
    (apart,) = busy(timeline.modelled("copy", "nvidia", 5, 20)).devices
    (beside,) = busy(timeline.modelled("overlap", "nvidia", 5, 20)).devices
    assert apart.overlapped == 0
    assert beside.overlapped > beside.window / 3
    assert {"stream 7", "stream 13"} <= set(texts(timeline.draw("overlap", "nvidia", 5, 20, 0, 50)))


def test_a_doubling_of_zoom_doubles_what_is_in_view_and_words_stay():
    whole, half = (timeline.draw("sync", "amd", 5, 20, zoom, 50) for zoom in (0, 1))
    assert whole.words == half.words
    assert max(width for _, width in boxes(half, "even")) == pytest.approx(
        2 * max(width for _, width in boxes(whole, "even")), rel=0.05
    )


def test_the_longest_gaps_have_numbers_in_the_order_of_time():
    events = [Event("kernel", "k", at, at + 10, "stream 7", "0") for at in (0, 30, 60, 100, 112, 140, 150, 200, 260)]
    (device,) = busy(Profile(events)).devices
    numbered = numbered_gaps(device)
    assert [number for number, _ in numbered] == [1, 2, 3, 4, 5, 6]
    assert [gap.start for _, gap in numbered] == sorted(gap.start for _, gap in numbered)
    assert min(gap.ns for _, gap in numbered) == 18
    assert 2 not in [gap.ns for _, gap in numbered]


def test_a_thousand_kernels_in_a_pixel_are_drawn_together():
    host = Modelled()
    for _ in range(20_000):
        host.launch("k", 2_000)
    assert len(boxes(trace_figure(host.profile()), "even")) < 2_000


def test_without_causes_a_reader_has_to_find_them():
    picture = trace_figure(timeline.modelled("sync", "nvidia", 5, 20), causes=False)
    assert SYNC not in picture.html
    assert "1: 20 µs" not in picture.words
    assert "<table>" not in picture.html


def test_a_profile_has_zoom_and_position_only():
    explorer = explore("timeline", timeline.modelled("copy", "amd", 5, 20))
    assert list(explorer.controls) == ["zoom", "position"]
    explorer.controls["zoom"].value = 2
    assert "kernels" in explorer.words


def test_the_controls_change_the_program():
    explorer = explore("timeline")
    assert "17 gaps" in explorer.words
    explorer.controls["kernel"].value = 6
    assert "never idle" in explorer.words
    explorer.controls["scenario"].value = "sync"
    assert "2 gaps" in explorer.words


@pytest.mark.parametrize("profile", [Profile(), Profile([Event("op", "aten::mm", 0, 5, "thread 1")])])
def test_a_profile_without_work_of_a_gpu_is_refused(profile):
    with pytest.raises(BadArgument, match="no work on a GPU"):
        trace_figure(profile)


def test_an_empty_view_is_refused():
    with pytest.raises(BadArgument, match="is empty"):
        trace_figure(timeline.modelled("sync", "nvidia", 5, 20), start=10, end=5)


@pytest.mark.parametrize("start", [{"launch": 0}, {"kernel": 99}, {"zoom": 9}, {"position": -1}])
def test_a_value_beyond_its_slider_is_refused(start):
    with pytest.raises(BadArgument, match="expected"):
        explore("timeline", **start)


@pytest.mark.parametrize(("what", "more"), [("network-bound", {}), ("sync", {"vendor": "intel"})])
def test_a_name_that_is_not_in_a_list_is_refused(what, more):
    with pytest.raises(UnknownName):
        explore("timeline", what, **more)
