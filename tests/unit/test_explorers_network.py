"""The explorer of collectives on networks: what it draws is what the model of networks says."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import pytest

from gpu_utils import explore
from gpu_utils.analytic.collectives import collective_schedules
from gpu_utils.analytic.network import TOPOLOGIES
from gpu_utils.errors import BadArgument, UnknownName
from gpu_utils.ui.explore import network as network_explorer

H100, MI300X, NODES, ASCEND = TOPOLOGIES
EVERY = [
    (topology, collective, algorithm)
    for topology in TOPOLOGIES
    for collective in network_explorer.COLLECTIVES
    for algorithm in collective_schedules(collective, TOPOLOGIES[topology]().nodes)
]


def lines(picture):
    root = ElementTree.fromstring(f"<all>{picture.html}</all>")
    return [path.get("class") for path in root.iter("{http://www.w3.org/2000/svg}path")]


def busiest(network, cost):
    """Names of the links that are busy for longest."""
    took = {
        name: (network.links[name].alpha or 0) + size / network.links[name].bandwidth
        for name, size in cost.loads.items()
    }
    return {name for name, seconds in took.items() if seconds == pytest.approx(max(took.values()))}


@pytest.mark.parametrize(("topology", "collective", "algorithm"), EVERY)
def test_every_state_marks_all_of_the_busiest_links_and_those_that_carry_something(topology, collective, algorithm):
    network = TOPOLOGIES[topology]()
    steps = collective_schedules(collective, network.nodes)[algorithm].transfers(2**20)
    for number in {1, len(steps)}:
        picture = network_explorer.draw(topology, collective, algorithm, 20, number)
        cost = network.cost(steps[number - 1])
        drawn = lines(picture)
        most, in_use = busiest(network, cost), set(cost.loads)
        said = f"{len(most)} links are equally busy, as" if len(most) > 1 else "Busiest link:"
        assert f"{said} {cost.busiest}" in picture.words
        if topology == MI300X:  # a line is a pair
            most, in_use = ({frozenset(name.split(" to ")) for name in names} for names in (most, in_use))
        assert drawn.count("edge") == len(most) + 1  # one in the legend
        assert drawn.count("hue") == len(in_use) - len(most) + 1
        assert f"Step {number} of {len(steps)}" in picture.words


def test_time_is_shown_by_terms():
    picture = network_explorer.draw(H100, "all-reduce", "ring", 24, 1)
    alpha, transfer = TOPOLOGIES[H100]().terms(collective_schedules("all-reduce", [0] * 8)["ring"].transfers(2**24))
    assert f"{1e6 * (alpha + transfer):,.1f} µs, of which {1e6 * alpha:,.1f} µs are alpha" in picture.words


def test_where_alpha_is_unknown_no_time_is_given():
    words = network_explorer.draw(ASCEND, "all-reduce", "ring", 24, 1).words
    assert "alpha is unknown, so no time is given" in words
    assert "needs least time for its bytes" in words


def test_the_slider_follows_the_number_of_steps():
    explorer = explore("network")
    assert explorer.controls["step"].max == 14
    explorer.controls["algorithm"].value = "tree"
    assert explorer.controls["step"].max == 6
    explorer.controls["topology"].value = NODES
    assert explorer.controls["step"].max == 8
    explorer.controls["step"].value = 8
    assert "Step 8 of 8" in explorer.words


def test_an_algorithm_that_does_not_fit_is_explained_above_the_last_picture():
    explorer = explore("network")
    explorer.controls["algorithm"].value = "hierarchical"
    assert "hierarchical is no all-reduce on 8 H100" in explorer.report.value
    assert "need several nodes" in explorer.report.value


@pytest.mark.parametrize("start", [{"power": 40}, {"step": 15}, {"step": 0}, {"algorithm": "two-hop"}])
def test_what_there_is_not_is_refused(start):
    with pytest.raises(BadArgument, match=r"expected|several nodes"):
        explore("network", **start)


@pytest.mark.parametrize("start", [{"topology": "8 TPUs"}, {"collective": "gossip"}, {"algorithm": "star"}])
def test_what_is_not_in_the_lists_is_refused(start):
    with pytest.raises(UnknownName):
        explore("network", **start)


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_a_drawing_fits_half_of_a_page(topology):
    html = network_explorer.draw(topology, "all-reduce", "direct", 24, 1).html
    (box,) = re.findall(r'viewBox="0 0 (\d+)', html)
    assert int(box) <= 480
