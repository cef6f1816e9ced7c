"""The modelled timeline: what starts when, by its stated costs."""

import pytest

from gpu_utils.profiling.modelled import CALLS, Costs, Modelled


def test_a_kernel_starts_when_its_call_is_over_and_the_stream_is_free():
    host = Modelled(costs=Costs(launch=5))
    first, second = host.launch("a", 4_000), host.launch("b", 4_000)
    assert (first.start, first.end, second.start, second.end) == (5, 4_005, 4_005, 8_005)
    assert host.now == 10


def test_a_short_kernel_lasts_its_least_time_and_waits_for_its_call():
    host = Modelled(costs=Costs(launch=5_000, least=2_000))
    first, second = host.launch("a", 10), host.launch("b", 10)
    assert first.duration == 2_000
    assert second.start - first.end == 3_000  # the GPU waits for the next launch


def test_streams_are_apart_and_an_event_ties_them():
    host = Modelled(costs=Costs(launch=5))
    first = host.launch("a", 50_000, 1)
    assert host.launch("b", 50_000, 2).start == 10
    host.wait(host.record(1), 2)
    host.wait(host.record(1), 3)
    assert host.launch("c", 50_000, 3).start == first.end
    assert host.now == 15  # the host waited for nothing


def test_copies_of_one_direction_take_turns_and_of_two_do_not():
    host = Modelled(costs=Costs(launch=5, latency=0, bandwidth=1.0))
    first, second, back = host.copy(100, stream=1), host.copy(100, stream=2), host.copy(100, "DtoH", stream=3)
    assert (first.start, first.end, second.start, second.end) == (5, 105, 105, 205)
    assert back.start == 15


def test_a_blocking_copy_and_a_sync_hold_the_host():
    host = Modelled(costs=Costs(launch=5, latency=0, bandwidth=1.0, sync=1))
    copied = host.copy(1_000, blocking=True)
    assert host.now == copied.end == host.events[0].end
    host.launch("a", 9_000)
    assert host.sync().end == host.now == copied.end + 5 + 9_000
    assert host.sync().duration == 1


def test_one_launch_of_a_graph_starts_many_kernels_of_one_correlation():
    host = Modelled()
    kernels = host.graph([("a", 2_000)] * 3)
    assert host.now == Costs().launch
    assert {event.correlation for event in kernels} == {1}
    assert [event.start for event in kernels] == [5_000, 7_000, 9_000]


@pytest.mark.parametrize("vendor", CALLS)
def test_what_an_operator_starts_carries_its_number(vendor):
    host = Modelled(vendor)
    with host.op("aten::mm", 3_000) as outer:
        kernel = host.launch("matmul", 40_000)
    host.item()
    assert outer.value("External id") == kernel.value("External id") == 1
    assert outer.end == 8_000
    profile = host.profile()
    assert {event.name for event in profile.of("launch", "sync")} <= set(CALLS[vendor].values())
    assert profile.virtual
    assert "not measured" in profile.remarks[0]
