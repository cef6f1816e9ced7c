"""Blocks that wait for other blocks: locks, barriers of the whole grid, chains."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

from gpu_utils.kernelset import CASES, Run
from gpu_utils.virtual import MODELS, virtual_gpu
from gpu_utils.virtual import gpu as gpu_module

BLOCKS = 10
each_target = pytest.mark.parametrize("target", MODELS)


@pytest.fixture
def small_batches(monkeypatch):
    """Two blocks of four waves a batch (four of wave 32 would be eight waves: two blocks all the same)."""
    monkeypatch.setattr(gpu_module, "MAX_WAVES", 8)


@triton.jit
def grid_barrier_kernel(count_ptr, part_ptr, out_ptr, n):
    pid = tl.program_id(0)
    tl.atomic_xchg(part_ptr + pid, pid + 1)
    tl.debug_barrier()
    tl.atomic_add(count_ptr, 1, sem="acq_rel")
    while tl.atomic_add(count_ptr, 0, sem="acquire") < n:
        pass
    tl.store(out_ptr + pid, tl.atomic_add(part_ptr + n - 1 - pid, 0))


@triton.jit
def chain_kernel(flag_ptr, out_ptr, n):
    pid = tl.program_id(0)
    value = 0
    if pid < n - 1:
        while tl.atomic_add(flag_ptr + pid + 1, 0, sem="acquire") == 0:
            pass
        value = tl.atomic_add(out_ptr + pid + 1, 0)
    tl.atomic_xchg(out_ptr + pid, value + 1)
    tl.debug_barrier()
    tl.atomic_xchg(flag_ptr + pid, 1, sem="release")


def barrier(gpu) -> torch.Tensor:
    count, part, out = (torch.zeros(n, dtype=torch.int32) for n in (1, BLOCKS, BLOCKS))
    grid_barrier_kernel[(BLOCKS,)](count, part, out, BLOCKS)
    return out


DOWN = torch.arange(BLOCKS, 0, -1, dtype=torch.int32)


@each_target
@pytest.mark.parametrize("order", ["program", "shuffled"])
@pytest.mark.usefixtures("small_batches")
def test_every_block_of_the_grid_meets_at_a_barrier_that_spans_batches(target, order):
    with virtual_gpu(target, order=order) as gpu:
        assert torch.equal(barrier(gpu), DOWN)
        assert gpu.counters.launched_blocks == BLOCKS


@each_target
@pytest.mark.usefixtures("small_batches")
def test_a_block_waits_for_a_block_of_a_later_batch(target):
    flag, out = torch.zeros(BLOCKS, dtype=torch.int32), torch.zeros(BLOCKS, dtype=torch.int32)
    with virtual_gpu(target):
        chain_kernel[(BLOCKS,)](flag, out, BLOCKS)
    assert torch.equal(out, DOWN)


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
@pytest.mark.usefixtures("small_batches")
def test_waiting_batches_take_turns_when_no_more_may_start_than_are_needed(target, monkeypatch):
    monkeypatch.setattr(gpu_module, "MOST_BYTES", gpu_module.MOST_BYTES // 1024)
    with virtual_gpu(target) as gpu:
        assert torch.equal(barrier(gpu), DOWN)


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
@pytest.mark.usefixtures("small_batches")
def test_a_trace_follows_its_wave_through_all_its_turns(target):
    with virtual_gpu(target) as gpu, gpu.trace((1, 0, 0), wave=0) as trace:
        barrier(gpu)
    program = gpu.last.program
    assert trace.steps[-1].index == max(step.index for step in trace.steps)
    assert len(trace.steps) > len(program.ops)  # it went round the loop


@each_target
def test_at_a_lock_the_blocks_of_a_batch_go_on_one_after_the_other(target):
    run = Run(target)
    with virtual_gpu(target) as gpu:
        CASES["lock_by_compare_and_swap"].body(run)
    assert gpu.last.program.locks
    rounds = max(waves for waves, _ in gpu.counters.per_op().values())
    assert rounds <= gpu.counters.launched_waves * 2  # hardly a wave tried twice


@triton.jit
def locked_rows_kernel(lock_ptr, last_ptr, order_ptr, x_ptr, out_ptr, COLUMNS: tl.constexpr):
    row, columns = tl.program_id(0), tl.arange(0, COLUMNS)
    x = tl.load(x_ptr + row * COLUMNS + columns)
    before = tl.sum(tl.where(columns % 2 == 0, x, 0.0), axis=0)  # through shared memory, before the lock
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    place = tl.load(last_ptr)
    tl.store(order_ptr + place, row)
    tl.debug_barrier()
    tl.store(last_ptr, place + 1)
    tl.debug_barrier()
    tl.atomic_xchg(lock_ptr, 0)
    after = tl.sum(x, axis=0)  # and after it
    tl.store(out_ptr + 2 * row, before)
    tl.store(out_ptr + 2 * row + 1, after)


@each_target
@pytest.mark.parametrize("order", ["program", "shuffled"])
def test_a_block_that_goes_on_alone_keeps_its_registers_and_its_shared_memory(target, order):
    x = torch.randn(24, 256)
    lock, last, rows = (torch.zeros(n, dtype=torch.int32) for n in (1, 1, 24))
    out = torch.zeros(24, 2)
    with virtual_gpu(target, order=order) as gpu:
        locked_rows_kernel[(24,)](lock, last, rows, x, out, COLUMNS=256)
    assert gpu.last.program.locks
    assert sorted(rows.tolist()) == list(range(24))
    assert torch.allclose(out, torch.stack([x[:, ::2].sum(1), x.sum(1)], dim=1), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
def test_a_lock_is_traced_one_block_a_batch(target):
    run = Run(target)
    with virtual_gpu(target) as gpu, gpu.trace((3, 0, 0), wave=0) as trace:
        CASES["lock_by_compare_and_swap"].body(run)
    assert trace.steps[-1].index == max(step.index for step in trace.steps)


@pytest.mark.parametrize("target", ["gfx942", "gfx90a"])
def test_a_loop_that_swaps_in_what_it_computed_is_no_lock(target):
    run = Run(target)
    with virtual_gpu(target) as gpu:
        CASES["half_atomics"].body(run)
    assert gpu.last.program.waiting
    assert not gpu.last.program.locks


def test_the_accesses_of_waiting_batches_are_recorded_for_the_right_blocks(small_batches):
    with virtual_gpu("gfx942", l2=True) as gpu:
        barrier(gpu)
    assert gpu.counters.record is not None
    blocks = {int(block) for _, owners, *_ in gpu.counters.record for block in owners}
    assert blocks == set(range(BLOCKS))
