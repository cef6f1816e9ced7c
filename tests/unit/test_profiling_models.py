"""What sitting 3 of lesson 13 rests on: where a wave waits, the L2 over launches, evidence, the profiler's cost."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

from gpu_utils.backends.evidence import evidence
from gpu_utils.model.profiler_cost import WAYS, profiler_cost
from gpu_utils.virtual import virtual_gpu
from gpu_utils.virtual.cache import l2_in_order, l2_traffic
from gpu_utils.virtual.waits import ANSWER, waits

TARGETS = ("sm_80", "gfx942")
each_target = pytest.mark.parametrize("target", TARGETS)


@triton.jit
def _copy_kernel(x_ptr, out_ptr, step, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at * step) + 1)


def _copy(x, out, step=1):
    _copy_kernel[(len(out) // 256,)](x, out, step, BLOCK=256, num_warps=1)


@each_target
def test_a_wave_waits_once_where_its_load_is_used(target):
    with virtual_gpu(target) as gpu, gpu.trace() as trace:
        _copy(torch.zeros(256), torch.zeros(256))
    longest = max(waits(trace), key=lambda wait: wait.cycles)
    assert longest.of == "global"
    assert 0.8 * ANSWER["global"] < longest.cycles <= ANSWER["global"]
    assert ("s_waitcnt" if target == "gfx942" else "add") in longest.text


@each_target
def test_a_launch_finds_in_the_l2_what_the_one_before_it_wrote(target):
    x, y, z = torch.zeros(4096), torch.zeros(4096), torch.zeros(4096)
    with virtual_gpu(target, l2=True) as gpu:
        _copy(x, y)
        _copy(y, z)
    first, second = l2_in_order(gpu.launches)
    assert first == l2_traffic(gpu.launches[0])
    assert first.read_bytes == 4 * 4096
    assert second.read_bytes == 0
    assert second.read_hit_rate == 1.0
    assert l2_traffic(gpu.launches[1]).read_bytes == 4 * 4096


def test_evidence_is_read_from_what_the_vendors_tools_would_write():
    x, out = torch.zeros(32 * 1024), torch.zeros(1024)
    rows = evidence(lambda: [_copy(x, out, step) for step in (32, 32)])
    assert list(rows) == [f"_copy_kernel, {target}" for target in TARGETS]
    for row in rows.values():
        assert (row["launches"], row["programs"]) == (2, 8)
    assert rows["_copy_kernel, sm_80"]["sectors or lines an access"] == 32  # every lane in a sector of its own
    assert evidence(lambda: None) == {}


def test_the_cost_of_the_profiler_is_shown_in_pairs_with_its_spread(capfd):
    rows = profiler_cost(lambda: torch.ones(1), rounds=2, calls=2)
    assert list(rows) == list(WAYS)
    assert rows["not watched"]["smallest"] == rows["not watched"]["largest"] == 1
    for row in rows.values():
        assert row["smallest"] <= row["times the unwatched"] <= row["largest"]
    assert capfd.readouterr().err == ""
