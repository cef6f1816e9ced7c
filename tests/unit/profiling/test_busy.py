"""How busy a GPU was: unions, gaps and their causes, overlap, delays, launch-bound; held to a ticking clock."""

from __future__ import annotations

import random
import time
from itertools import pairwise

import pytest

from gpu_utils.profiling.busy import COPY, QUEUED, SLOW_HOST, SYNC, UNKNOWN, busy
from gpu_utils.profiling.intervals import Spans, length, overlap, union
from gpu_utils.profiling.modelled import Modelled
from gpu_utils.profiling.profile import Event, Profile
from tests.unit.profiling.sample import many, training


def only(events):
    (one,) = busy(Profile(list(events))).devices
    return one


def kernel(start, end, *, device="", lane="stream 7", kind="kernel", correlation=None, name="k"):
    return Event(kind, name, start, end, lane, device, correlation=correlation)


def ticked(spans, start, end):
    """Which whole ns of a window some span covers, by going through all of them."""
    covered = [False] * (end - start)
    for first, last in spans:
        for at in range(max(first, start), min(last, end)):
            covered[at - start] = True
    return sum(covered)


@pytest.mark.parametrize("seed", range(20))
def test_unions_overlaps_and_questions_agree_with_a_ticking_clock(seed):
    rng = random.Random(seed)
    spans = [(at, at + rng.randrange(0, 12)) for at in (rng.randrange(100) for _ in range(rng.randrange(1, 12)))]
    others = [(at, at + rng.randrange(0, 12)) for at in (rng.randrange(100) for _ in range(6))]
    whole = union(spans)
    assert length(whole) == ticked(spans, 0, 120)
    assert all(left[1] < right[0] for left, right in pairwise(whole))
    both = [at for at in range(120) if ticked(spans, at, at + 1) and ticked(others, at, at + 1)]
    assert overlap(whole, union(others)) == len(both)
    asked, start = Spans(spans), rng.randrange(80)
    end = start + rng.randrange(1, 40)
    assert asked.covered(start, end) == ticked(spans, start, end)
    real = [number for number, (a, b) in enumerate(spans) if a < end and b > start and a < b]
    if all(a < b for a, b in spans):
        assert asked.count(start, end) == len(real)
    found = asked.longest(start, end)
    assert (found is None) == (not [s for s in spans if s[0] < end and s[1] > start])
    if found is not None:
        assert spans[found][1] == max(b for a, b in spans if a < end)


def test_kernels_that_run_at_once_are_counted_once():
    one = only([kernel(0, 100), kernel(50, 150, lane="stream 9"), kernel(60, 70, lane="stream 9")])
    assert (one.busy, one.idle, one.window) == (150, 0, 150)
    assert [(lane.name, lane.busy, lane.events) for lane in one.lanes] == [("stream 7", 100, 1), ("stream 9", 100, 2)]


def test_copies_beside_kernels_are_told():
    one = only([kernel(0, 100), kernel(80, 130, kind="copy"), kernel(200, 210, kind="fill")])
    assert (one.kernels, one.copies, one.overlapped, one.busy) == (100, 60, 20, 140)
    assert [(gap.start, gap.end, gap.after, gap.before) for gap in one.gaps] == [(130, 200, "k", "k")]


def test_devices_have_windows_of_their_own():
    found = busy(Profile([kernel(0, 10, device="1"), kernel(1000, 1010, device="0"), kernel(1020, 1030, device="0")]))
    assert [(one.device, one.window, one.idle) for one in found.devices] == [("0", 30, 10), ("1", 10, 0)]
    assert found.of("1").start == 0
    assert found.of("7") is None


def test_work_without_times_is_counted_and_not_guessed():
    found = busy(Profile([kernel(None, None), kernel(5, 3), kernel(0, 10)]))
    assert found.untimed == 2
    assert found.devices[0].busy == 10
    assert busy(Profile([kernel(None, None)])).devices == ()
    assert busy(Profile()) == busy(Profile([Event("op", "aten::mm", 0, 10)]))


def test_a_single_instant_is_no_division_by_zero():
    one = only([kernel(5, 5)])
    assert (one.window, one.busy, one.idle_share, one.gaps) == (0, 0, 0.0, ())


@pytest.mark.parametrize("vendor", ["nvidia", "amd"])
def test_a_host_that_launches_too_slowly_is_the_cause_of_its_gaps(vendor):
    host = Modelled(vendor)
    for _ in range(20):
        host.launch("tiny", 2000)
    (one,) = busy(host.profile()).devices
    assert {gap.cause for gap in one.gaps} == {SLOW_HOST}
    assert one.launch_bound is True
    assert (one.kernel_ns, one.launch_ns, one.delay) == (2000, 5000, 5000)
    assert "2,000 ns" in one.why
    assert "5,000 ns apart" in one.why


@pytest.mark.parametrize("vendor", ["nvidia", "amd"])
def test_a_host_that_waits_for_every_result_is_told_from_a_slow_one(vendor):
    host = Modelled(vendor)
    for _ in range(5):
        host.launch("long", 40_000)
        host.item()
    (one,) = busy(host.profile()).devices
    assert next(iter(one.idle_by_cause)) == SYNC
    assert one.launch_bound is False
    gap = one.gaps[-1]
    assert "for" in gap.words
    assert gap.words.startswith(gap.cause)


def test_a_host_that_works_long_after_a_wait_is_slow_not_waiting():
    host = Modelled("nvidia")
    for _ in range(4):
        host.launch("long", 40_000)
        host.sync()
        host.work(500_000, "load a batch")
    (one,) = busy(host.profile()).devices
    assert {gap.cause for gap in one.gaps} == {SLOW_HOST}
    assert {part.name for part in one.gaps[0].host if part.kind == "op"} == {"load a batch"}


def test_a_gap_that_calls_for_copies_fill_is_a_copy():
    calls = [Event("launch", "cudaMemcpyAsync", 110, 190, "thread 1", correlation=2)]
    one = only([kernel(0, 100), kernel(190, 300, kind="copy", correlation=2), *calls])
    assert [gap.cause for gap in one.gaps] == [COPY]


@pytest.mark.parametrize(("way", "cause"), [("host to device", COPY), ("device to host", SYNC)])
def test_a_copy_that_blocks_is_a_copy_one_way_and_a_wait_the_other(way, cause):
    copy = kernel(190, 300, kind="copy", correlation=2)
    copy.note("direction", way, "trace")
    call = Event("sync", "hipMemcpyWithStream", 110, 310, "thread 1", correlation=2)
    assert [gap.cause for gap in only([kernel(0, 100), copy, call]).gaps] == [cause]


def test_work_that_was_launched_long_before_was_not_late():
    calls = [Event("launch", "cudaLaunchKernel", at, at + 5, "thread 1", correlation=at) for at in (0, 10, 20)]
    rows = [kernel(6, 500, correlation=0), kernel(501, 700, correlation=10), kernel(800, 900, correlation=20)]
    one = only([*rows, *calls])
    assert [gap.cause for gap in one.gaps] == [QUEUED, QUEUED]
    assert one.delays == (6, 491, 780)


def test_without_the_host_nothing_is_made_up():
    one = only([kernel(0, 100), kernel(200, 300)])
    assert [gap.cause for gap in one.gaps] == [UNKNOWN]
    assert (one.launch_bound, one.delay, one.unlaunched) == (None, None, 2)


def test_a_correlation_belongs_to_one_process():
    call = Event("launch", "cudaLaunchKernel", 0, 5, "thread 1", process=1, correlation=7)
    mine, other = kernel(10, 20, correlation=7), kernel(30, 40, correlation=7)
    mine.process, other.process = 1, 2
    one = only([mine, other, call])
    assert (one.delays, one.unlaunched) == ((10,), 1)


def test_the_gaps_and_the_work_fill_the_window():
    for profile in (training("nvidia"), training("amd"), many(5000)):
        for one in busy(profile).devices:
            assert one.busy + sum(gap.ns for gap in one.gaps) == one.window
            assert sum(one.idle_by_cause.values()) == one.idle
            assert one.busy == one.kernels + one.copies - one.overlapped


def test_ten_times_the_events_take_about_ten_times_as_long():
    def seconds(events):
        profile, least = many(events), 9.0
        for _ in range(3):
            start = time.process_time()
            busy(profile)
            least = min(least, time.process_time() - start)
        return least

    assert seconds(20_000) < 40 * seconds(2000)  # quadratic: 100
