"""Control flow: data-dependent loops, early returns, device functions, tuning and heuristics."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from gpu_utils.kernelset.case import Run, case


@triton.jit
def collatz_kernel(x_ptr, steps_ptr, n):
    pid = tl.program_id(0)
    if pid >= n:
        return
    value = tl.load(x_ptr + pid)
    steps = 0
    while value > 1:
        if value % 2 == 0:  # noqa: SIM108
            value = value // 2
        else:
            value = 3 * value + 1
        steps += 1
    tl.store(steps_ptr + pid, steps)


def _collatz(value: int) -> int:
    steps = 0
    while value > 1:
        value = value // 2 if value % 2 == 0 else 3 * value + 1
        steps += 1
    return steps


@case()
def while_loop_of_unknown_length(run: Run) -> None:
    n = run.size(30, 200)
    x = run.integers(1, 100, n)
    steps = torch.full((n + 2,), -1, dtype=torch.int32)
    run.launch(collatz_kernel, (n + 2,), x, steps, n, num_warps=1)
    run.equal("steps", steps, torch.tensor([*map(_collatz, x.tolist()), -1, -1], dtype=torch.int32))


@triton.jit
def newton_kernel(x_ptr, out_ptr, rounds_ptr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    y = x
    error = tl.max(tl.abs(y * y - x) / x, axis=0)
    rounds = 0
    while error > 1e-6:
        y = 0.5 * (y + x / y)
        error = tl.max(tl.abs(y * y - x) / x, axis=0)
        rounds += 1
    tl.store(out_ptr + i, y)
    tl.store(rounds_ptr + tl.program_id(0), rounds)


@case()
def while_loop_until_a_block_agrees(run: Run) -> None:
    programs = run.size(3, 60)
    x = run.uniform(0.5, 100.0, programs, 256)
    out, rounds = torch.empty_like(x), torch.zeros(programs, dtype=torch.int32)
    run.launch(newton_kernel, (programs,), x, out, rounds, BLOCK=256)
    run.close("root", out, x.double().sqrt(), k=16, magnitude=8.0)
    run.equal("at least one round", rounds > 0, torch.ones(programs, dtype=torch.bool))


@triton.jit
def early_return_kernel(flag_ptr, x_ptr, out_ptr, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    i = pid * BLOCK + tl.arange(0, BLOCK)
    if tl.load(flag_ptr + pid) == 0:
        return
    x = tl.load(x_ptr + i)
    if tl.sum(x, axis=0) < 0:
        tl.store(out_ptr + i, -x)
        return
    tl.store(out_ptr + i, x)


@case()
def early_return(run: Run) -> None:
    programs = run.size(9, 300)
    flag, x = run.integers(0, 2, programs), run.integers(-100, 100, programs, 64)
    out = torch.full_like(x, 7)
    run.launch(early_return_kernel, (programs,), flag, x, out, BLOCK=64, num_warps=1)
    kept = torch.where(x.sum(1, keepdim=True) < 0, -x, x)
    run.equal("out", out, torch.where(flag[:, None] == 0, torch.full_like(x, 7), kept))


@triton.jit
def horner(x, c0, c1, c2):
    return c0 + x * (c1 + x * c2)


@triton.jit(noinline=True)
def mean_of_the_rest(total, largest, count):
    return (total - largest) / (count - 1.0)


@triton.jit
def device_functions_kernel(x_ptr, out_ptr, ORDER: tl.constexpr):
    i = tl.program_id(0) * 128 + tl.arange(0, 128)
    x = tl.load(x_ptr + i)
    for _ in tl.static_range(ORDER):
        x = horner(x, 0.5, -0.25, 0.125)
    rest = mean_of_the_rest(tl.sum(x, axis=0), tl.max(x, axis=0), 128.0)
    tl.store(out_ptr + i, x - rest - mean_of_the_rest(1.0, 0.5, 2.0))


@case()
def device_functions_also_not_inlined(run: Run) -> None:
    programs = run.size(3, 100)
    x = run.normal(programs, 128)
    out = torch.empty_like(x)
    run.launch(device_functions_kernel, (programs,), x, out, ORDER=2, num_warps=2)
    wide = x.double()
    for _ in range(2):
        wide = 0.5 + wide * (-0.25 + wide * 0.125)
    rest = (wide.sum(1, keepdim=True) - wide.max(1, keepdim=True).values) / 127
    run.close("out", out, wide - rest - 0.5, k=128)


def _prune(configs: list[triton.Config], *_: object, **__: object) -> list[triton.Config]:
    return configs[:2]


@triton.autotune(
    configs=[
        triton.Config({"BLOCK": 64}, num_warps=1),
        triton.Config({"BLOCK": 256}, num_warps=2),
        triton.Config({"BLOCK": 512}),
    ],
    key=["n"],
    prune_configs_by={"early_config_prune": _prune},
)
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def tuned_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(out_ptr + i, tl.load(x_ptr + i) * 2)
    else:
        tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n) * 2, mask=i < n)


@case()
def autotune_and_heuristics(run: Run) -> None:
    for n in (run.size(1000, 50_000), run.size(1024, 65_536)):
        x = run.normal(n)
        out = torch.empty_like(x)
        run.launch(tuned_kernel, lambda meta, n=n: (triton.cdiv(n, meta["BLOCK"]),), x, out, n)
        run.equal(f"n = {n}", out, 2 * x)


@triton.jit
def nested_loops_kernel(start_ptr, x_ptr, out_ptr, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    first = tl.load(start_ptr + pid)
    last = tl.load(start_ptr + pid + 1)
    total = tl.zeros((BLOCK,), tl.int32)
    for row in range(first, last):
        length = tl.load(x_ptr + row)
        for begin in range(0, length, BLOCK):
            i = begin + tl.arange(0, BLOCK)
            total += tl.where(i < length, i, 0)
    tl.store(out_ptr + pid, tl.sum(total, axis=0))


@case()
def ragged_nested_loops(run: Run) -> None:
    programs = run.size(7, 100)
    counts = run.integers(0, 5, programs)
    start = torch.cat([torch.zeros(1, dtype=torch.int32), counts.cumsum(0).int()])
    x = run.integers(0, 300, int(start[-1]) + 1)
    out = torch.empty(programs, dtype=torch.int32)
    run.launch(nested_loops_kernel, (programs,), start, x, out, BLOCK=64, num_warps=2)
    rows = (x.long() * (x.long() - 1)) // 2
    expected = [int(rows[start[p] : start[p + 1]].sum()) for p in range(programs)]
    run.equal("out", out, torch.tensor(expected, dtype=torch.int32))


@triton.jit
def pick(pair, WHICH: tl.constexpr):
    return pair[WHICH]


@triton.jit
def tuples_kernel(pointers, shape, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    pair = (tl.load(pointers[0] + i, mask=i < shape[0]), i * shape[1])
    tl.store(pointers[1] + i, pick(pair, 0) + pick(pair, 1), mask=i < shape[0])


@case()
def tuples_as_arguments(run: Run) -> None:
    n = run.size(300, 20_000)
    x = run.integers(-1000, 1000, n)
    out = torch.empty_like(x)
    run.launch(tuples_kernel, (triton.cdiv(n, 256),), (x, out), (n, 3), BLOCK=256)
    run.equal("out", out, x + 3 * torch.arange(n, dtype=torch.int32))


@triton.jit
def scalars_kernel(out_ptr, small, large, half, double, flag, missing, ONE: tl.constexpr):
    value = small * ONE + large
    tl.store(out_ptr, value.to(tl.float64))
    tl.store(out_ptr + 1, half.to(tl.float64) + double)
    if flag:
        tl.store(out_ptr + 2, 1.0)
    if missing is None:
        tl.store(out_ptr + 3, 1.0)
    tl.store(out_ptr + 4, (tl.program_id(1) * 10 + tl.num_programs(2)).to(tl.float64))


@case()
def scalar_arguments(run: Run) -> None:
    out = torch.zeros(5, dtype=torch.float64)
    run.launch(scalars_kernel, (1, 1, 1), out, -3, 2**40 + 1, 0.25, 1.5, True, None, ONE=5)
    run.equal("out", out, torch.tensor([2**40 - 14, 1.75, 1, 1, 1], dtype=torch.float64))
