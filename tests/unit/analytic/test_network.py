"""Networks: fair shares of links, steps that wait, unknown start-up times, and the line through measured times."""

from __future__ import annotations

import pytest

from gpu_utils.analytic.network import (
    TOPOLOGIES,
    Wire,
    fit_line,
    mesh_network,
    node_network,
    switch_network,
    wire_of,
)
from gpu_utils.errors import BadArgument, UnknownName

FAST, SLOW = Wire(1e-6, 100e9), Wire(5e-6, 10e9)


def test_a_transfer_alone_takes_alpha_and_its_bytes():
    assert switch_network(2, SLOW).time([[(0, 1, 10_000)]]) == pytest.approx(5e-6 + 1e-6)


def test_transfers_that_share_a_link_share_its_bandwidth():
    cost = switch_network(4, SLOW).cost([(0, 3, 1000), (1, 3, 2000), (2, 3, 3000)])
    assert cost.busiest == "3 in"
    assert cost.loads == {"0 out": 1000, "1 out": 2000, "2 out": 3000, "3 in": 6000}
    assert cost.seconds == pytest.approx(5e-6 + 6000 / 10e9)


def test_in_a_mesh_every_pair_has_its_own_link():
    cost = mesh_network(4, SLOW).cost([(0, 3, 1000), (1, 3, 2000), (3, 1, 2000)])
    assert cost.loads == {"0 to 3": 1000, "1 to 3": 2000, "3 to 1": 2000}


def test_steps_follow_one_another():
    network = switch_network(3, SLOW)
    apart = network.time([[(0, 1, 1000)], [(1, 2, 500)]])
    assert apart == pytest.approx(network.time([[(0, 1, 1000)]]) + network.time([[(1, 2, 500)]]))


def test_the_slowest_link_is_the_one_with_the_largest_sum_of_both_terms():
    network = node_network(2, 2, FAST, SLOW)
    cost = network.cost([(0, 1, 450_000), (0, 2, 1000)])  # 5.5 µs inside, 5.1 across
    assert (cost.busiest, cost.alpha) == ("0 out", FAST.alpha)


@pytest.mark.parametrize(("cards", "first"), [(4, "3 net out"), (2, "2 net out"), (1, "0 net out")])
def test_ranks_share_the_network_cards_of_their_node(cards, first):
    network = node_network(2, 4, FAST, SLOW, cards=cards)
    assert network.route(3, 4)[0] == first
    assert network.route(3, 2) == ("3 out", "2 in")


def test_a_card_for_a_part_of_a_rank_is_refused():
    with pytest.raises(BadArgument, match="a divisor of 4"):
        node_network(2, 4, FAST, SLOW, cards=3)


def test_nothing_is_computed_from_an_unknown_alpha():
    network = switch_network(2, Wire(None, 1e9))
    cost = network.cost([(0, 1, 1000)])
    assert (cost.alpha, cost.seconds) == (None, None)
    assert cost.transfer == pytest.approx(1e-6)
    assert network.terms([[(0, 1, 1000)]]) == (None, pytest.approx(1e-6))
    with pytest.raises(BadArgument, match="unknown"):
        network.time([[(0, 1, 1000)]])


@pytest.mark.parametrize("wrong", [(0, 0), (0, 4), (-1, 2)])
def test_a_transfer_between_ranks_that_there_are_not_is_refused(wrong):
    with pytest.raises(BadArgument, match="two different ranks"):
        switch_network(4, FAST).cost([(*wrong, 8)])


def test_an_empty_step_costs_nothing():
    assert switch_network(4, FAST).cost([]).seconds == 0.0


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_every_route_of_a_topology_goes_over_links_that_are_there(name):
    network = TOPOLOGIES[name]()
    for source in range(network.ranks):
        for other in range(network.ranks):
            assert source == other or set(network.route(source, other)) <= set(network.links)


def test_a_link_without_a_bandwidth_makes_no_wire():
    with pytest.raises(BadArgument, match="no source"):
        wire_of("Ascend 910B")
    with pytest.raises(UnknownName):
        wire_of("NVLink 9")


@pytest.mark.parametrize("wrong", [(-1e-6, 1e9), (1e-6, 0.0)])
def test_a_wire_that_there_cannot_be_is_refused(wrong):
    with pytest.raises(BadArgument, match="expected"):
        Wire(*wrong)


def test_the_line_is_found_again():
    sizes = [2**power for power in range(10, 25)]
    alpha, bandwidth = fit_line(sizes, [3e-5 + size / 2e9 for size in sizes])
    assert (alpha, bandwidth) == (pytest.approx(3e-5), pytest.approx(2e9))


@pytest.mark.parametrize("wrong", [([8], [1.0]), ([8, 8], [1.0, 2.0]), ([8, 16], [2.0, 1.0]), ([8, 16], [1.0])])
def test_times_that_give_no_line_are_refused(wrong):
    with pytest.raises(BadArgument):
        fit_line(*wrong)
