"""Blocks of a batch that part ways in a loop go on in batches of their own: same results, same counts."""

import pytest
import torch
import triton
import triton.language as tl

import gpu_utils.virtual.gpu as gpu_module
from gpu_utils.virtual import virtual_gpu
from gpu_utils.virtual.machine.scheduler import Scheduler

PROGRAMS, BLOCK = 9, 256


@triton.jit
def ragged_kernel(x_ptr, out_ptr, total_ptr, BLOCK: tl.constexpr, SHARED: tl.constexpr, ATOMIC: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), tl.float32)
    for row in range(tl.program_id(0) * 2 % 9 + 1):
        x = tl.load(x_ptr + row * BLOCK + lane)
        if SHARED:  # warps meet in shared memory
            x -= tl.max(x + acc, 0)
        acc += x
    tl.store(out_ptr + tl.program_id(0) * BLOCK + lane, acc)
    if ATOMIC:
        tl.atomic_add(total_ptr + lane, acc)


@pytest.fixture
def parted(monkeypatch):
    """The numbers of blocks that went on together."""
    seen = []
    off = Scheduler.off

    def noted(self, blocks, groups):
        seen.append(len(blocks))
        return off(self, blocks, groups)

    monkeypatch.setattr(Scheduler, "off", noted)
    return seen


def launch(target, **meta):
    x = torch.randn(PROGRAMS, BLOCK, generator=torch.Generator().manual_seed(0))
    out, total = torch.empty(PROGRAMS, BLOCK), torch.zeros(BLOCK)
    with virtual_gpu(target) as gpu:
        ragged_kernel[(PROGRAMS,)](x, out, total, BLOCK=BLOCK, **meta)
    return out, gpu.counters.totals()


@pytest.mark.parametrize("target", ["gfx942", "gfx1100", "sm_80"])
def test_blocks_that_part_in_a_loop_compute_and_count_what_each_alone_does(target, parted, monkeypatch):
    out, totals = launch(target, SHARED=True, ATOMIC=False)
    assert sum(parted) >= PROGRAMS
    monkeypatch.setattr(gpu_module, "MAX_WAVES", 1)
    alone, totals_alone = launch(target, SHARED=True, ATOMIC=False)
    assert torch.equal(out, alone)
    assert totals == totals_alone


@pytest.mark.parametrize("target", ["gfx942", "sm_80"])
def test_blocks_stay_together_where_their_order_may_show(target, parted):
    launch(target, SHARED=False, ATOMIC=True)
    assert not parted
