"""Launches of real kernels on virtual GPUs, written as the vendors' tools write them and read back."""

import pytest
import torch
import triton
import triton.language as tl

from gpu_utils.profiling.columns import NCU, ROCPROF
from gpu_utils.profiling.reading import read, read_texts
from gpu_utils.virtual import virtual_gpu
from gpu_utils.virtual.export import ncu_csv, rocprof_counters_csv, rocprof_trace_csv
from gpu_utils.virtual.vendor_counters import vendor_counters


@triton.jit
def centred_add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(x_ptr + i, mask=i < n) + tl.load(y_ptr + n - 1 - i, mask=i < n)
    tl.store(out_ptr + i, total - tl.sum(total, axis=0), mask=i < n)


@pytest.fixture(scope="module")
def launches():
    found = {}
    for target in ("sm_80", "gfx942"):
        x = torch.arange(3000.0)
        with virtual_gpu(target, l2=True) as gpu:
            for n in (3000, 1000):
                centred_add[(triton.cdiv(n, 512),)](x, x, torch.empty(3072), n, BLOCK=512, num_warps=2)
        found[target] = gpu.launches
    return found


def matches(event, launch, table, lanes):
    """Every counter is there, in its column or under its own name; so are sizes and what follows from them."""
    for counter in vendor_counters(launch):
        known = table.get(counter.name)
        column, factor = (counter.name, 1) if known is None else known
        assert event.value(column) == pytest.approx(counter.value * factor, abs=0.005 * factor), counter.name
    assert event.value("memory_bytes") == event.value("memory_read") + event.value("memory_written")
    assert event.value("waves") == launch.grid[0] * launch.block[0] // lanes


@pytest.mark.parametrize("wide", [False, True])
def test_what_ncu_writes_of_an_nvidia_target(launches, wide):
    profile = read_texts({"counters.csv": ncu_csv(launches["sm_80"], wide=wide)})
    assert profile.virtual
    for event, launch in zip(profile.kernels, launches["sm_80"], strict=True):
        matches(event, launch, NCU, 32)
        assert (event.value("grid"), event.value("block")) == (tuple(launch.grid), tuple(launch.block))
        assert (event.name, profile.devices[event.device].target) == ("centred_add", "sm_80")
        assert event.value("sectors_per_load") == event.value("load_sectors") / event.value("load_requests")


def test_what_rocprofv3_writes_of_an_amd_target(launches, tmp_path):
    times = [(1000, 4000), (5000, 7000)]
    texts = {
        "counters.csv": rocprof_counters_csv(launches["gfx942"], times),
        "trace.csv": rocprof_trace_csv(launches["gfx942"], times),
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    profile = read(*(tmp_path / name for name in texts))
    assert profile.virtual
    assert [(event.start, event.end) for event in profile.kernels] == times
    for event, launch in zip(profile.kernels, launches["gfx942"], strict=True):
        matches(event, launch, ROCPROF, 64)
        assert (event.value("grid"), event.value("block")) == (tuple(launch.grid), tuple(launch.block))
        assert event.value("shared_bytes") == launch.shared_bytes
        assert event.value("occupancy_limit") > 0
    assert profile.remarks == []


def test_without_times_no_launch_has_a_duration(launches):
    profile = read_texts({"trace.csv": rocprof_trace_csv(launches["gfx942"])})
    assert [event.duration for event in profile.kernels] == [None, None]
    assert "in no total: 2" in profile.remarks[0]
