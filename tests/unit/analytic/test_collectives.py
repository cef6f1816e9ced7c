"""Schedules deliver, symbol by symbol; simulated steps agree with closed forms, and bytes with those of real ranks."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.distributed as dist

from gpu_utils.analytic.collectives import (
    COLLECTIVE_FORMS,
    MAKERS,
    TWO_LEVELS,
    collective_schedules,
    delivery_faults,
    port_bytes,
    ring_all_reduce,
)
from gpu_utils.analytic.network import Wire, mesh_network, node_network, switch_network
from gpu_utils.distributed import run_ranks
from gpu_utils.errors import BadArgument

WIRE = Wire(3e-6, 1e9)
EVERY = [
    (collective, name, n)
    for collective, makers in MAKERS.items()
    for name in makers
    for n in (2, 3, 4, 5, 8, 12, 16)
    if n & (n - 1) == 0 or ("halving" not in name and "doubling" not in name)
]


@pytest.mark.parametrize(("collective", "name", "n"), EVERY)
def test_a_schedule_delivers_every_contribution_once(collective, name, n):
    assert delivery_faults(MAKERS[collective][name](n)) == []


@pytest.mark.parametrize(("nodes", "each"), [(2, 2), (2, 4), (3, 2), (4, 4)])
@pytest.mark.parametrize("collective", TWO_LEVELS)
def test_schedules_of_two_levels_deliver(collective, nodes, each):
    for maker in TWO_LEVELS[collective].values():
        assert delivery_faults(maker(nodes, each)) == []


@pytest.mark.parametrize(("collective", "name", "n"), EVERY)
def test_simulated_steps_agree_with_the_closed_form(collective, name, n):
    size = 840 * n * n
    steps = MAKERS[collective][name](n).transfers(size)
    form = COLLECTIVE_FORMS[collective, name]
    simulated = switch_network(n, WIRE).time(steps)
    assert len(steps) == form.steps(n)
    assert simulated == pytest.approx(form.seconds(n, size, 3e-6, 1e9), rel=1e-12)


@pytest.mark.parametrize(("collective", "name", "n"), EVERY)
def test_a_schedule_without_one_of_its_moves_does_not_deliver(collective, name, n):
    schedule = MAKERS[collective][name](n)
    for number, step in enumerate(schedule.steps):
        short = replace(schedule, steps=(*schedule.steps[:number], step[1:], *schedule.steps[number + 1 :]))
        assert delivery_faults(short), (number, step[0])


@pytest.mark.parametrize("n", [3, 8])
def test_a_step_done_twice_counts_something_twice(n):
    ring = ring_all_reduce(n)
    faults = delivery_faults(replace(ring, steps=(ring.steps[0], *ring.steps)))
    assert any("once too often" in fault for fault in faults)


def test_a_chunk_that_is_not_there_cannot_be_sent():
    gather = MAKERS["all-gather"]["ring"](4)
    (fault,) = delivery_faults(replace(gather, steps=gather.steps[::-1]))
    assert "which it does not have" in fault


def test_direct_exchange_uses_all_cables_of_a_mesh_and_a_ring_one_each():
    ring, direct = (MAKERS["all-reduce"][name](8).transfers(8 * 10**6) for name in ("ring", "direct"))
    network = mesh_network(8, Wire(0.0, 1e9))
    assert network.time(ring) == pytest.approx(7 * network.time(direct))
    assert port_bytes(ring) == port_bytes(direct) == 14 * 10**6


def test_two_hops_cross_once_for_each_node_and_carry_as_many_bytes():
    network = node_network(4, 4, WIRE, Wire(9e-6, 1e8))
    found = collective_schedules("all-to-all", network.nodes)
    across = [
        sum(size for step in one.transfers(16 * 1000) for a, b, size in step if network.nodes[a] != network.nodes[b])
        for one in (found["direct"], found["two-hop"])
    ]
    assert across[0] == across[1]
    messages = [sum(map(len, one.steps)) for one in (found["direct"], found["two-hop"])]
    assert messages == [16 * 15, 16 * 3 + 16 * 3]


@pytest.mark.parametrize("name", ["halving and doubling"])
def test_halving_wants_a_power_of_two(name):
    assert name not in collective_schedules("all-reduce", [0] * 6)
    with pytest.raises(BadArgument, match="power of two"):
        MAKERS["all-reduce"][name](6)


def test_chunks_are_whole_bytes():
    with pytest.raises(BadArgument, match="do not divide"):
        ring_all_reduce(3).transfers(100)
    with pytest.raises(BadArgument, match="2 or more"):
        MAKERS["broadcast"]["tree"](1)


# --- real ranks ---------------------------------------------------------------------------------------------------


def ring_of_ranks(vector: torch.Tensor) -> list[float]:
    """An all-reduce by a ring, with nothing but send and receive."""
    rank, n = dist.get_rank(), dist.get_world_size()
    chunks = list(vector.chunk(n))
    for step in range(2 * (n - 1)):
        there, here = (rank - step) % n, (rank - step - 1) % n
        arriving = torch.empty_like(chunks[here])
        pending = dist.isend(chunks[there], (rank + 1) % n)
        dist.recv(arriving, (rank - 1) % n)
        pending.wait()
        chunks[here] = chunks[here] + arriving if step < n - 1 else arriving
    return torch.cat(chunks).tolist()


def test_a_ring_on_four_real_ranks_sends_the_bytes_of_the_schedule():
    vectors = [torch.arange(64.0) * (rank + 1) for rank in range(4)]
    found = run_ranks(ring_of_ranks, 4, each=[{"vector": vector} for vector in vectors], seconds=60.0)
    assert all(value == (torch.arange(64.0) * 10).tolist() for value in found.values)
    assert found.sent == ring_all_reduce(4).sent(64 * 4)
