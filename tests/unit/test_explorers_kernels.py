"""The explorer of kernels on rooflines: its sentences and its table are what the three bounds say."""

from __future__ import annotations

import re

import pytest

from gpu_utils import explore
from gpu_utils.analytic.bounds import bounds
from gpu_utils.analytic.roofline import Point, Roofline, roofline
from gpu_utils.chips import CHIPS
from gpu_utils.errors import BadArgument, UnknownName
from gpu_utils.profiling.profile import Event, Profile
from gpu_utils.ui.explore.kernels import OWN, in_flight, kernels_of, offered

SCALE = Point("scale", flops=2**20, bytes=2**23, seconds=8e-6)
PRODUCT = Point("product", flops=2**31, bytes=6e6)


def sentences(explorer):
    return dict(re.findall(r"On (\S+) (.*?)\.(?= On|$| At| \S+ has no)", explorer.words))


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({"intensity": -2, "occupancy": 50}, "memory bounds it"),
        ({"intensity": 11, "occupancy": 50}, "arithmetic bounds it"),
        ({"intensity": -2, "occupancy": 5}, "neither roof bounds it but latency"),
        ({"size": 12, "occupancy": 100}, "neither roof bounds it but latency"),  # short
    ],
)
def test_a_sentence_for_each_chip_says_what_bounds_the_kernel(state, said):
    found = sentences(explore("kernels", **state))
    assert set(found) == {"A100", "MI300X"}
    assert all(sentence.startswith(said) for sentence in found.values())


def test_the_share_of_the_roof_is_that_of_littles_law():
    explorer = explore("kernels", size=30, occupancy=10, lane_bytes=16, latency=500)
    share = in_flight("A100", 10, 16) / 500e-9 / roofline("A100", "fp32").bandwidth
    assert f"{share:.0%} of its roof" in sentences(explorer)["A100"]


def test_twice_the_bytes_of_a_lane_do_what_twice_the_occupancy_does():
    assert in_flight("MI300X", 20, 16) == in_flight("MI300X", 10, 32)


def test_a_kernel_with_a_time_stands_once_and_says_how_near_to_its_roof_it_came():
    explorer = explore("kernels", [SCALE, PRODUCT], dtype="bf16")
    assert "It took 8 µs: 51% of its roof" in sentences(explorer)["A100"]
    assert "At 500 ns its speed means 524 kB in flight" in explorer.words
    assert explorer.html.count('class="done"') == 1
    explorer.controls["kernel"].value = "product"
    assert explorer.html.count('class="done"') == 2  # what it could reach on each
    assert "It took" not in explorer.words


def test_faster_than_the_roof_is_said_and_not_hidden():
    words = explore("kernels", [Point("wrong", 0, 1e9, 1e-6)]).words
    assert "less than the roof allows" in words


def test_sliders_of_the_own_kernel_rest_while_another_one_is_chosen():
    explorer = explore("kernels", [SCALE])
    assert explorer.controls["size"].disabled
    assert not explorer.controls["occupancy"].disabled
    explorer.controls["kernel"].value = OWN
    assert not explorer.controls["size"].disabled


def test_a_chip_without_the_format_is_named_and_the_other_stays():
    words = explore("kernels", dtype="fp8").words
    assert "A100 has no roofline for fp8" in words
    assert "On MI300X" in words


def test_every_chip_that_is_offered_can_be_drawn_and_names_its_sources():
    explorer = explore("kernels", dtype="bf16")
    for vendor in ("nvidia", "amd"):
        for name in offered(vendor):
            explorer.controls[vendor].value = name
            assert f"On {name} " in explorer.words
            assert CHIPS[name].bandwidth_tb.source.split(",")[0].replace("'", "&#x27;") in explorer.html


def event(name, moved=None, flop=None, took=None):
    found = Event("kernel", name)
    for figure, value in (("memory_bytes", moved), ("fp32_flop", flop), ("duration", took)):
        found.note(figure, value, "test")
    return found


def test_launches_of_a_profile_or_of_its_table_are_added_up_by_name():
    profile = Profile([event("add", 100, 10, 1000), event("add", 100, 10, 3000), event("copy", 50), event("bare")])
    want = [Point("add (2 launches)", 20, 200, 4e-6), Point("copy", 0, 50, None)]
    assert kernels_of(profile) == want
    assert kernels_of(profile.table()) == want
    assert kernels_of([{"name": "copy", "memory_bytes": 50}]) == want[1:]
    assert "add (2 launches)" in explore("kernels", profile).controls["kernel"].options


def test_a_profile_without_bytes_says_what_to_profile():
    with pytest.raises(BadArgument, match="FETCH_SIZE"):
        explore("kernels", Profile([event("bare")]))


@pytest.mark.parametrize(
    ("start", "error"),
    [
        ({"size": 60}, BadArgument),
        ({"occupancy": 0}, BadArgument),
        ({"nvidia": "MI300X"}, UnknownName),
        ({"dtype": "int3"}, UnknownName),
    ],
)
def test_a_start_off_the_controls_is_refused(start, error):
    with pytest.raises(error):
        explore("kernels", **start)


def test_two_things_are_one_too_many():
    with pytest.raises(BadArgument, match="at most one"):
        explore("kernels", [SCALE], [PRODUCT])


def test_bounds_of_nothing_are_refused_and_no_flop_is_no_bound():
    roof = Roofline("chip", 1e12, 1e12)
    with pytest.raises(BadArgument, match="above 0"):
        bounds(roof, 1, 0, 1, 1)
    assert bounds(roof, 0, 1e6, 1e6, 1e-9).name == "memory"
