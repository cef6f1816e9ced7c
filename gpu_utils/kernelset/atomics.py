"""Atomics of every kind and of several types, and what programs build of them."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from gpu_utils.kernelset.case import Run, case


@triton.jit
def integer_atomics_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    x = tl.load(x_ptr + i, mask=mask, other=0)
    tl.atomic_add(out_ptr + (i & 7), x, mask=mask)
    # Triton 3.7.1 combines the lanes of one address as unsigned on gfx942 and gfx950, also for a signed maximum:
    # there the values are not negative; negative ones go to one address a lane
    tl.atomic_max(out_ptr + 8 + (i & 0), tl.abs(x), mask=mask)
    tl.atomic_min(out_ptr + 9 + (i & 0), tl.abs(x), mask=mask)
    tl.atomic_max(out_ptr + 16 + (i & 63), x, mask=mask)
    tl.atomic_min(out_ptr + 80 + (i & 63), x, mask=mask)
    tl.atomic_and(out_ptr + 10 + (i & 0), x, mask=mask)
    tl.atomic_or(out_ptr + 11 + (i & 0), x, mask=mask)
    tl.atomic_xor(out_ptr + 12 + (i & 0), x, mask=mask)


@case()
def integer_atomics(run: Run) -> None:
    n = run.size(300, 5000)
    for dtype in (torch.int32, torch.int64):
        info = torch.iinfo(dtype)
        x = run.integers(info.min // 4, info.max // 4, n, dtype=dtype)
        start = torch.tensor([0] * 8 + [0, info.max, -1, 0, 0] + [0] * 131, dtype=dtype)
        out = start.clone()
        run.launch(integer_atomics_kernel, (triton.cdiv(n, 128),), x, out, n, BLOCK=128)
        sums = torch.zeros(8, dtype=dtype).index_add(0, torch.arange(n) % 8, x)
        both, either, odd = start[10].item(), 0, 0
        for value in x.tolist():
            both, either, odd = both & value, either | value, odd ^ value
        rest = torch.tensor([x.abs().max(), x.abs().min(), both, either, odd, 0, 0, 0], dtype=dtype)
        groups = [x[lane::64] for lane in range(64)]
        tops = [group.max().clamp_min(0) for group in groups] + [group.min().clamp_max(0) for group in groups]
        run.equal(str(dtype), out, torch.cat([sums, rest, torch.stack(tops)]))


@triton.jit
def unsigned_atomics_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))
    tl.atomic_max(out_ptr + tl.zeros_like(x), x)
    tl.atomic_min(out_ptr + 1 + tl.zeros_like(x), x)


@case()
def unsigned_atomics(run: Run) -> None:
    programs = run.size(2, 30)
    x = run.integers(0, 2**32, programs * 128, dtype=torch.int64)
    out = torch.tensor([5, 2**31 + 5], dtype=torch.uint32)
    run.launch(unsigned_atomics_kernel, (programs,), x.to(torch.uint32), out, BLOCK=128)
    run.equal("max and min", out.long(), torch.stack([x.max().clamp_min(5), x.min().clamp_max(2**31 + 5)]))


@triton.jit
def float_atomics_kernel(x_ptr, sum_ptr, extreme_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    tl.atomic_add(sum_ptr + (i & 15), x, mask=i < n)
    tl.atomic_max(extreme_ptr + (i & 3), x, mask=i < n)
    tl.atomic_min(extreme_ptr + 4 + (i & 3), x, mask=i < n)


@case()
def float_atomics(run: Run) -> None:
    n = run.size(300, 5000)
    for dtype in (torch.float32, torch.float64):
        x = run.normal(n).to(dtype)
        sums, extremes = torch.zeros(16, dtype=dtype), torch.zeros(8, dtype=dtype)
        run.launch(float_atomics_kernel, (triton.cdiv(n, 128),), x, sums, extremes, n, BLOCK=128)
        expected = torch.zeros(16, dtype=torch.float64).index_add(0, torch.arange(n) % 16, x.double())
        run.close(f"sums {dtype}", sums, expected, k=n // 16, magnitude=4.0)
        groups = [x[r::4] for r in range(4)]
        tops = [g.max().clamp_min(0) for g in groups] + [g.min().clamp_max(0) for g in groups]
        run.equal(f"extremes {dtype}", extremes, torch.stack(tops))


@triton.jit
def half_atomics_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out_ptr + i % 64, tl.load(x_ptr + i, mask=i < n, other=0.0), mask=i < n, sem="relaxed")


@case()
def half_atomics(run: Run) -> None:
    n = run.size(250, 3000)
    for dtype in (torch.float16, torch.bfloat16):
        if dtype == torch.bfloat16 and 0 < run.capability < 90:
            continue  # Triton refuses atomics on bf16 before sm_90
        x = run.integers(-4, 5, n).to(dtype)
        out = torch.zeros(64, dtype=dtype)
        run.launch(half_atomics_kernel, (triton.cdiv(n, 128),), x, out, n, BLOCK=128)
        expected = torch.zeros(64, dtype=torch.float64).index_add(0, torch.arange(n) % 64, x.double())
        run.equal(str(dtype), out.double(), expected)


@triton.jit
def exchange_kernel(slot_ptr, seen_ptr, won_ptr):
    pid = tl.program_id(0)
    tl.store(seen_ptr + pid, tl.atomic_xchg(slot_ptr, pid))
    tl.store(won_ptr + pid, tl.atomic_cas(slot_ptr + 1, -1, pid) == -1)


@case()
def exchange_and_compare_and_swap(run: Run) -> None:
    programs = run.size(20, 200)
    slots = torch.tensor([-1, -1], dtype=torch.int32)
    seen, won = torch.empty(programs, dtype=torch.int32), torch.empty(programs, dtype=torch.int32)
    run.launch(exchange_kernel, (programs,), slots, seen, won, num_warps=1)
    every = torch.cat([seen, slots[:1]]).sort().values
    run.equal("each program's number is seen once", every, torch.arange(-1, programs, dtype=torch.int32))
    run.equal("one program wins", won.sum(), torch.tensor(1))
    run.equal("its number is stored", won[slots[1].long()], torch.tensor(1, dtype=torch.int32))


@triton.jit
def lock_kernel(lock_ptr, total_ptr, x_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * BLOCK + i)
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    tl.atomic_add(total_ptr + i, x)
    tl.debug_barrier()
    tl.atomic_xchg(lock_ptr, 0)


@case()
def lock_by_compare_and_swap(run: Run) -> None:
    programs = run.size(6, 60)
    x = run.integers(-100, 100, programs, 128)
    lock, total = torch.zeros(1, dtype=torch.int32), torch.zeros(128, dtype=torch.int32)
    run.launch(lock_kernel, (programs,), lock, total, x, BLOCK=128)
    run.equal("total", total, x.sum(0).int())
    run.equal("the lock is open", lock, torch.zeros(1, dtype=torch.int32))


@triton.jit
def last_block_kernel(x_ptr, part_ptr, count_ptr, out_ptr, n, BLOCK: tl.constexpr, PROGRAMS: tl.constexpr):
    pid = tl.program_id(0)
    i = pid * BLOCK + tl.arange(0, BLOCK)
    tl.store(part_ptr + pid, tl.sum(tl.load(x_ptr + i, mask=i < n, other=0), axis=0))
    tl.debug_barrier()
    if tl.atomic_add(count_ptr, 1, sem="acq_rel") == tl.num_programs(0) - 1:
        p = tl.arange(0, PROGRAMS)
        parts = tl.load(part_ptr + p, mask=p < tl.num_programs(0), other=0, volatile=True)
        tl.store(out_ptr, tl.sum(parts, axis=0))


@case()
def sum_finished_by_the_last_block(run: Run) -> None:
    n = run.size(1500, 30_000)
    programs = triton.cdiv(n, 256)
    x = run.integers(-1000, 1000, n)
    part, count, out = (torch.zeros(size, dtype=torch.int32) for size in (programs, 1, 1))
    run.launch(
        last_block_kernel, (programs,), x, part, count, out, n, BLOCK=256, PROGRAMS=triton.next_power_of_2(programs)
    )
    run.equal("sum", out, x.sum().int().reshape(1))
