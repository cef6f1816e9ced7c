"""Atomics, data-dependent control flow, device functions, several launches."""

import torch
import triton
import triton.language as tl

from . import case, randint, randn


@triton.jit
def atomics_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = i < n
    x = tl.load(x_ptr + i, mask=keep, other=0)
    tl.atomic_add(out_ptr + (i & 7), x, mask=keep)
    tl.atomic_max(out_ptr + 8 + i * 0, x, mask=keep)
    tl.atomic_min(out_ptr + 9 + i * 0, x, mask=keep)
    tl.atomic_and(out_ptr + 10 + i * 0, x, mask=keep)
    tl.atomic_or(out_ptr + 11 + i * 0, x, mask=keep)
    tl.atomic_xor(out_ptr + 12 + i * 0, x, mask=keep)


@case()
def integer_atomics(target):
    n = 1000
    for dtype in (torch.int32, torch.int64):
        x = randint(1, 1 << 20, n, dtype=dtype)
        out = torch.zeros(13, dtype=dtype)
        out[9] = 1 << 30
        out[10] = -1
        atomics_kernel[(4,)](x, out, n, BLOCK=256)
        want = torch.zeros(13, dtype=torch.int64)
        want.scatter_add_(0, torch.arange(n) & 7, x.long())
        want[8], want[9], want[10] = x.max(), x.min(), -1
        for v in x.tolist():
            want[10] &= v
            want[11] |= v
            want[12] ^= v
        yield f"{dtype}", out, want.to(dtype), 0


@triton.jit
def float_atomics_kernel(x_ptr, sum_ptr, ends_ptr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    tl.atomic_add(sum_ptr + (i & 15), x)
    tl.atomic_max(ends_ptr + i * 0, x.to(tl.float32))
    tl.atomic_min(ends_ptr + 1 + i * 0, x.to(tl.float32))


@case()
def float_atomics(target):
    for dtype, bound in ((torch.float32, 1e-5), (torch.float16, 2e-2), (torch.float64, 1e-12)):
        x = randn(1024).to(dtype)
        total, ends = torch.zeros(16, dtype=dtype), torch.zeros(2)
        float_atomics_kernel[(4,)](x, total, ends, BLOCK=256)
        want = torch.zeros(16, dtype=torch.float64).scatter_add_(0, torch.arange(1024) & 15, x.double())
        yield f"sum {dtype}", total, want, bound
        yield f"max and min {dtype}", ends, torch.stack([x.max(), x.min()]).float(), 0


@triton.jit
def ticket_kernel(next_ptr, seen_ptr):
    ticket = tl.atomic_add(next_ptr, 1)
    tl.store(seen_ptr + ticket, tl.program_id(0))


@case()
def tickets_are_all_different(target):
    counter, seen = torch.zeros(1, dtype=torch.int32), torch.full((100,), -1, dtype=torch.int32)
    ticket_kernel[(100,)](counter, seen)
    yield "counter", counter, torch.tensor([100], dtype=torch.int32), 0
    yield "each program once", seen.sort().values, torch.arange(100, dtype=torch.int32), 0


@triton.jit
def lock_kernel(x_ptr, sum_ptr, lock_ptr, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    total = tl.load(sum_ptr + tl.arange(0, BLOCK)) + x
    tl.store(sum_ptr + tl.arange(0, BLOCK), total)
    tl.debug_barrier()
    tl.atomic_xchg(lock_ptr, 0)


@case()
def spin_lock(target):
    x, total, lock = (
        randint(-9, 9, 12 * 128, dtype=torch.int32),
        torch.zeros(128, dtype=torch.int32),
        torch.zeros(1, dtype=torch.int32),
    )
    lock_kernel[(12,)](x, total, lock, BLOCK=128)
    yield "sum under the lock", total, x.reshape(12, 128).sum(0).int(), 0


@triton.jit
def collatz_kernel(x_ptr, out_ptr):
    i = tl.program_id(0)
    n = tl.load(x_ptr + i)
    steps = 0
    while n > 1:
        if n % 2 == 0:
            n = n // 2
        else:
            n = 3 * n + 1
        steps += 1
    tl.store(out_ptr + i, steps)


@case()
def data_dependent_loops(target):
    x = torch.arange(1, 65, dtype=torch.int32)
    out = torch.zeros(64, dtype=torch.int32)
    collatz_kernel[(64,)](x, out)
    want = []
    for n in x.tolist():
        steps = 0
        while n > 1:
            n, steps = (n // 2 if n % 2 == 0 else 3 * n + 1), steps + 1
        want.append(steps)
    yield "steps", out, torch.tensor(want, dtype=torch.int32), 0


@triton.jit
def early_return_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    if tl.load(x_ptr + row * BLOCK) < 0:
        return
    c = tl.arange(0, BLOCK)
    tl.store(out_ptr + row * BLOCK + c, tl.sum(tl.load(x_ptr + row * BLOCK + c), 0) + c)


@case()
def early_return(target):
    x = randint(-50, 50, 20, 64)
    out = torch.full((20, 64), -7, dtype=torch.int32)
    early_return_kernel[(20,)](x, out, 64, BLOCK=64)
    want = torch.where(x[:, :1] < 0, torch.tensor(-7), x.sum(1, keepdim=True) + torch.arange(64)).int()
    yield "rows", out, want, 0


@triton.jit(noinline=True)
def _scaled(x, factor):
    return x * factor + 1


@triton.jit
def call_kernel(x_ptr, out_ptr):
    i = tl.program_id(0)
    v = tl.load(x_ptr + i)
    tl.store(out_ptr + i, _scaled(v, 3.0) + _scaled(v, 5.0))


@case()
def device_functions(target):
    x, out = randn(10), torch.zeros(10)
    call_kernel[(10,)](x, out)
    yield "result", out, x * 3 + 1 + (x * 5 + 1), 1e-6


@triton.jit
def grid_kernel(out_ptr):
    x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    nx, ny, nz = tl.num_programs(0), tl.num_programs(1), tl.num_programs(2)
    at = (z * ny + y) * nx + x
    tl.store(out_ptr + at, x + 100 * y + 10000 * z + nz)


@case()
def grids_of_three_dimensions(target):
    out = torch.zeros(2, 3, 5, dtype=torch.int32)
    grid_kernel[(5, 3, 2)](out)
    z, y, x = torch.meshgrid(torch.arange(2), torch.arange(3), torch.arange(5), indexing="ij")
    yield "ids", out, (x + 100 * y + 10000 * z + 2).int(), 0


@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def heuristic_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(out_ptr + i, tl.load(x_ptr + i) + 1)
    else:
        tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n) + 2, mask=i < n)


@case()
def heuristics(target):
    for n, plus in ((512, 1), (500, 2)):
        x, out = randn(n), torch.zeros(n)
        heuristic_kernel[(triton.cdiv(n, 256),)](x, out, n, BLOCK=256)
        yield f"n = {n}", out, x + plus, 0


@triton.jit
def pointers_kernel(table_ptr, out_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    source = tl.load(table_ptr + tl.program_id(0)).to(tl.pointer_type(tl.float32))
    tl.store(out_ptr + tl.program_id(0) * N + i, tl.load(source + i))


@triton.jit
def join_mask_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=(i < n) & (i % 3 != 0), other=-1.0, cache_modifier=".cg")
    tl.store(out_ptr + i, x, mask=i < n, eviction_policy="evict_first")


@case()
def scattered_masks_and_cache_hints(target):
    n = 700
    x, out = randn(n), torch.zeros(n)
    join_mask_kernel[(triton.cdiv(n, 256),)](x, out, n, BLOCK=256)
    yield "values", out, torch.where(torch.arange(n) % 3 != 0, x, torch.tensor(-1.0)), 0
