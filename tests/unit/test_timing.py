"""bench: what it measures, and what it prints."""

from __future__ import annotations

import statistics
import time
from types import SimpleNamespace

import pytest
import torch

from gpu_utils import timing
from gpu_utils.timing import Ratio, Timing, bench


def on_a_clock(monkeypatch, *durations):
    """Make the CPU clock give each callable its own time, with every third run disturbed alike for both."""
    calls = []

    def clock(call):
        calls.append(call)
        return call() * (10 if (len(calls) - 1) // 2 % 3 == 0 else 1)

    monkeypatch.setattr(timing, "_cpu_clock", clock)
    return calls


def test_the_median_lies_between_the_quartiles_and_the_time_is_right():
    result = bench(lambda: time.sleep(0.002), seconds=0.05, device="cpu")
    assert isinstance(result, Timing)
    assert result.low <= result.median <= result.high
    assert 0.002 <= result.median < 0.02
    assert result.runs >= 5


def test_warm_up_is_not_counted():
    calls = []

    def slow_at_first():
        calls.append(1)
        if len(calls) == 1:
            time.sleep(0.2)

    assert bench(slow_at_first, seconds=0.001, device="cpu").high < 0.1


def test_a_slow_callable_runs_at_least_five_times():
    calls = []
    assert bench(lambda: calls.append(time.sleep(0.01)), seconds=0.001, device="cpu").runs == 5
    assert len(calls) == 5 + 3


def test_a_fast_callable_runs_at_most_a_thousand_times():
    assert bench(lambda: None, seconds=10, device="cpu").runs == 1000


def test_the_ratio_says_how_much_faster():
    result = bench(lambda: time.sleep(0.001), against=lambda: time.sleep(0.003), seconds=0.03, device="cpu")
    assert isinstance(result, Ratio)
    assert 1.5 < result.ratio < 4
    assert "x faster" in str(result)


def test_disturbances_that_hit_both_do_not_change_the_ratio(monkeypatch):
    on_a_clock(monkeypatch)
    result = bench(lambda: 0.001, against=lambda: 0.002, seconds=0.3, device="cpu")
    assert result.ratio == result.low == result.high == pytest.approx(2)
    assert result.fn.high > result.fn.median or result.fn.low < result.fn.median


def test_the_two_take_turns_and_each_goes_first_half_of_the_time(monkeypatch):
    calls = on_a_clock(monkeypatch)
    one, two = (lambda: 0.1), (lambda: 0.1)
    bench(one, against=two, seconds=0.6, device="cpu")
    measured = calls[6:]
    assert measured[:8] == [one, two, two, one, one, two, two, one]


def test_no_difference_is_called_no_difference():
    same = Ratio(1.01, 0.9, 1.1, *[Timing(1, 1, 1, 5, "cpu", "here")] * 2)
    assert "no difference seen" in str(same)
    assert "no difference" not in str(Ratio(2, 1.9, 2.1, same.fn, same.against))


def test_what_is_printed_names_the_versions_and_the_spread():
    text = str(bench(lambda: None, seconds=0.001, device="cpu"))
    assert torch.__version__ in text
    assert "quartiles" in text
    assert "CPU" in text


@pytest.mark.parametrize(
    ("seconds", "text"), [(2.5, "2.5 s"), (0.0123, "12.3 ms"), (1.5e-5, "15 us"), (4.2e-8, "42 ns")]
)
def test_times_have_units(seconds, text):
    assert timing._seconds(seconds) == text


def test_an_error_of_the_callable_is_not_swallowed():
    with pytest.raises(ZeroDivisionError):
        bench(lambda: 1 / 0, device="cpu")


@pytest.mark.parametrize(("hip", "behind"), [(None, 0), ("7.1", timing.MALL_BYTES)])
def test_the_flush_is_larger_than_the_caches(monkeypatch, hip, behind):
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda index: SimpleNamespace(L2_cache_size=50 << 20), raising=False
    )
    assert timing.flush_bytes() == 4 * (50 << 20) + behind


def test_on_a_gpu_each_run_is_flushed_timed_by_events_and_synchronised(monkeypatch):
    log = []

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            log.append("record")

        def elapsed_time(self, end):
            return 2.0

    real_empty = torch.empty
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: log.append("synchronize"))
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: log.append("keep busy"))
    monkeypatch.setattr(timing, "flush_bytes", lambda: 64)
    monkeypatch.setattr(timing, "_where", lambda device: "a GPU")

    class Flush:
        def zero_(self):
            log.append("flush")

    monkeypatch.setattr(
        torch, "empty", lambda *args, **kwargs: Flush() if kwargs.get("device") == "cuda" else real_empty(*args)
    )
    result = bench(lambda: log.append("run"), seconds=0.01, device="cuda")
    assert result.median == 0.002
    assert log[:6] == ["flush", "keep busy", "record", "run", "record", "synchronize"]
    assert log == log[:6] * (result.runs + 3)


def test_the_quartiles_are_those_of_the_standard_library():
    samples = [5.0, 1.0, 4.0, 2.0, 3.0]
    assert timing._quartiles(samples) == tuple(statistics.quantiles(samples, n=4, method="inclusive"))
