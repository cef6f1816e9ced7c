"""Programs of one launch that depend on their order: what is reported, and what is not."""

import pytest
import torch
import triton
import triton.language as tl

from gpu_utils.errors import Race
from gpu_utils.virtual import virtual_gpu

TARGETS = ("sm_90", "gfx942", "gfx1100")
ORDERS = ("program", "shuffled")


@triton.jit
def update_kernel(x, ATOMIC: tl.constexpr):
    at = x + tl.arange(0, 64)
    if ATOMIC:
        tl.atomic_add(at, 1)
    else:
        tl.store(at, tl.load(at) + 1)


@triton.jit
def neighbour_kernel(x, out, n, STEP: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + (at + STEP) % n)
    tl.store(out + at, value * 2)


@triton.jit
def write_then_read_kernel(x, out, SAME: tl.constexpr, STEP: tl.constexpr):
    program = tl.program_id(0)
    at = tl.arange(0, 32)
    value = at * 3 + 1 if SAME else at + program
    tl.store(x + (0 if SAME else program * 32) + at, value)
    tl.debug_barrier()
    other = 0 if SAME else (program + STEP) % tl.num_programs(0) * 32
    tl.store(out + program * 32 + at, tl.load(x + other + at))


@triton.jit
def different_kernel(out):
    tl.store(out, (tl.program_id(0) + 1).to(out.dtype.element_ty))


@triton.jit
def last_adds_up_kernel(x, partial, ticket, out, BLOCK: tl.constexpr, PROGRAMS: tl.constexpr):
    program = tl.program_id(0)
    tl.store(partial + program, tl.sum(tl.load(x + program * BLOCK + tl.arange(0, BLOCK))))
    tl.debug_barrier()
    if tl.atomic_add(ticket, 1) == PROGRAMS - 1:
        tl.store(out, tl.sum(tl.load(partial + tl.arange(0, PROGRAMS))))


@triton.jit
def locked_update_kernel(x, lock):
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(x, tl.load(x) + 1)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("target", TARGETS)
def test_an_update_that_other_programs_lose_is_a_race_and_an_atomic_is_none(target, order):
    x = torch.zeros(64, dtype=torch.int32)
    with virtual_gpu(target, order=order) as gpu:
        with pytest.raises(Race, match=r"program \d has read 0 at byte offset 0 of x, and program \d writes 1 there"):
            update_kernel[(8,)](x, ATOMIC=False)
        x.zero_()
        update_kernel[(8,)](x, ATOMIC=True)
        update_kernel[(1,)](x, ATOMIC=False)
    assert x.tolist() == [9] * 64
    assert "test_races.py" in str(gpu.launches[0].program.ops[0].line)


@pytest.mark.parametrize("target", TARGETS)
def test_reading_a_neighbour_that_is_overwritten_is_a_race_and_reading_another_tensor_is_none(target):
    x = torch.arange(1.0, 513)
    out = torch.empty(512)
    with virtual_gpu(target):
        neighbour_kernel[(4,)](x, out, 512, STEP=1, BLOCK=128)
        assert torch.equal(out, x.roll(-1) * 2)
        neighbour_kernel[(4,)](out, out, 512, STEP=0, BLOCK=128)
        with pytest.raises(Race, match="program 3 has read 1 at byte offset 0 of out, and program 0 writes 4 there"):
            neighbour_kernel[(4,)](x, x, 512, STEP=1, BLOCK=128)


def test_what_is_read_and_left_as_it_is_is_no_race():
    x = torch.zeros(512)
    with virtual_gpu("gfx942"):
        neighbour_kernel[(4,)](x, x, 512, STEP=1, BLOCK=128)


@pytest.mark.parametrize("target", TARGETS)
def test_reading_what_another_program_wrote_is_a_race(target):
    x, out = torch.zeros(256, dtype=torch.int32), torch.zeros(256, dtype=torch.int32)
    with virtual_gpu(target):
        write_then_read_kernel[(8,)](x, out, SAME=False, STEP=0)
        x.zero_()
        with pytest.raises(Race, match=r"program \d reads \d at .* of x, which program \d has written, with no atomic"):
            write_then_read_kernel[(8,)](x, out, SAME=False, STEP=1)


@pytest.mark.parametrize("target", TARGETS)
def test_reading_what_every_program_wrote_alike_is_none(target):
    x, out = torch.zeros(32, dtype=torch.int32), torch.zeros(256, dtype=torch.int32)
    with virtual_gpu(target):
        write_then_read_kernel[(8,)](x, out, SAME=True, STEP=0)
    assert torch.equal(out.reshape(8, 32), (torch.arange(32) * 3 + 1).int().expand(8, 32))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("target", TARGETS)
def test_the_last_program_may_read_what_all_wrote_before_their_ticket(target, order):
    x = torch.ones(16 * 64)
    partial, ticket, out = torch.zeros(16), torch.zeros(1, dtype=torch.int32), torch.zeros(1)
    with virtual_gpu(target, order=order):
        last_adds_up_kernel[(16,)](x, partial, ticket, out, BLOCK=64, PROGRAMS=16)
    assert out.item() == 1024


@pytest.mark.parametrize("target", TARGETS)
def test_an_update_under_a_lock_is_none(target):
    x, lock = torch.zeros(1), torch.zeros(1, dtype=torch.int32)
    with virtual_gpu(target):
        locked_update_kernel[(8,)](x, lock)
    assert x.item() == 8


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.int8])
def test_the_values_of_a_race_are_numbers_of_the_tensors_type(dtype):
    out = torch.zeros(1, dtype=dtype)
    with virtual_gpu("gfx942"), pytest.raises(Race, match=r"byte offset 0 of out with different values \(2 and 1\)"):
        different_kernel[(2,)](out)


@triton.jit
def serial_sum_kernel(x, out, turn, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    total = tl.load(x + program * BLOCK + at)
    while tl.atomic_add(turn, 0, sem="acquire") != program:
        pass
    if program > 0:
        total += tl.load(out + at)
    tl.store(out + at, total)
    tl.debug_barrier()
    tl.atomic_add(turn, 1, sem="release")


@pytest.mark.parametrize("target", TARGETS)
def test_a_sum_that_programs_pass_on_in_their_turn_is_none(target):
    x, out = torch.randn(3, 128), torch.empty(128)
    with virtual_gpu(target):
        serial_sum_kernel[(3,)](x, out, torch.zeros(1, dtype=torch.int32), BLOCK=128)
    torch.testing.assert_close(out, x.sum(0))


@triton.jit
def flag_kernel(out, flag):
    program = tl.program_id(0)
    if program == 0:
        tl.store(out, 5.0)
        tl.debug_barrier()
        tl.store(flag, 1)
    else:
        while tl.load(flag, volatile=True) != 1:
            pass
        tl.store(out + program, tl.load(out, cache_modifier=".cg") + program)


def test_a_flag_that_others_poll_is_none():
    out = torch.empty(3)
    with virtual_gpu("sm_90"):
        flag_kernel[(3,)](out, torch.zeros(1, dtype=torch.int32))
    assert out.tolist() == [5, 6, 7]


@triton.jit
def same_value_kernel(x, out, VALUE: tl.constexpr):
    program = tl.program_id(0)
    if program == 0:
        tl.store(x, VALUE)
    tl.store(out + program, tl.load(x) + program)


@pytest.mark.parametrize("target", TARGETS)
def test_writing_the_value_that_is_there_is_none_and_another_value_is_a_race(target):
    out = torch.empty(3)
    with virtual_gpu(target):
        same_value_kernel[(3,)](torch.zeros(1), out, VALUE=0.0)
        assert out.tolist() == [0, 1, 2]
        with pytest.raises(Race):
            same_value_kernel[(3,)](torch.zeros(1), out, VALUE=1.0)


# What programs know of each other: releases and acquires by address


@triton.jit
def handed_over_kernel(data, flag, other, out, CASE: tl.constexpr, SEM: tl.constexpr):
    """Program 0 writes and raises a flag, program 1 waits for it and reads; CASE says what is wrong."""
    at = tl.arange(0, 64)
    if tl.program_id(0) == 0:
        if CASE == "data after the flag":
            tl.atomic_xchg(flag, 1, sem=SEM)
            tl.debug_barrier()
        if CASE == "another flag":
            tl.atomic_xchg(other, 1, sem=SEM)
            tl.debug_barrier()
        tl.store(data + at, at + 1)
        tl.debug_barrier()
        if CASE == "more after the flag":
            tl.atomic_xchg(flag, 1, sem=SEM)
            tl.debug_barrier()
            tl.store(data + at, at + 2)
        elif CASE != "data after the flag":
            tl.atomic_xchg(flag, 1, sem=SEM)
    else:
        polled = other if CASE == "another flag" else flag
        while tl.atomic_add(polled, 0, sem=SEM) == 0:
            pass
        tl.store(out + at, tl.load(data + at))


def handed_over(target, case, sem="acq_rel"):
    data, out = torch.zeros(64, dtype=torch.int32), torch.zeros(64, dtype=torch.int32)
    flag, other = torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    with virtual_gpu(target):
        handed_over_kernel[(2,)](data, flag, other, out, CASE=case, SEM=sem)
    return out


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_handed_over_by_a_flag_is_none(target):
    assert torch.equal(handed_over(target, "right"), torch.arange(1, 65).int())


@pytest.mark.parametrize("case", ["data after the flag", "more after the flag", "another flag"])
@pytest.mark.parametrize("target", TARGETS)
def test_a_flag_that_does_not_cover_the_data_is_a_race(target, case):
    with pytest.raises(Race, match=r"programs? [01]") as caught:
        handed_over(target, case)
    assert "with no order between them" in str(caught.value)
    assert caught.value.report.missing
    assert caught.value.report.first.line[0].endswith("test_races.py")


@pytest.mark.parametrize("target", TARGETS)
def test_a_relaxed_flag_hands_nothing_over(target):
    with pytest.raises(Race, match=r"relaxed access|released nothing|waited for nobody"):
        handed_over(target, "right", "relaxed")


@triton.jit
def early_unlock_kernel(x, lock):
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    value = tl.load(x)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)
    tl.store(x, value + 1)


@pytest.mark.parametrize("target", TARGETS)
def test_a_lock_that_is_released_before_the_store_is_a_race(target):
    with virtual_gpu(target), pytest.raises(Race, match="with no order between them: program 0 did it after"):
        early_unlock_kernel[(8,)](torch.zeros(1), torch.zeros(1, dtype=torch.int32))


@triton.jit
def two_locks_kernel(x, lock):
    mine = lock + tl.program_id(0) % 2
    while tl.atomic_cas(mine, 0, 1) == 1:
        pass
    tl.store(x, tl.load(x) + 1)
    tl.debug_barrier()
    tl.atomic_xchg(mine, 0)


@pytest.mark.parametrize("target", TARGETS)
def test_two_locks_for_one_place_are_a_race(target):
    with virtual_gpu(target), pytest.raises(Race, match="at no address at which"):
        two_locks_kernel[(8,)](torch.zeros(1), torch.zeros(2, dtype=torch.int32))


@triton.jit
def chained_kernel(x, flag, out, n):
    """Program p hands x[p] to program p + 1, which hands on what it got: the last one reads them all."""
    program = tl.program_id(0)
    tl.store(x + program, program + 1)
    tl.debug_barrier()
    if program > 0:
        while tl.atomic_add(flag + program - 1, 0, sem="acquire") == 0:
            pass
    tl.debug_barrier()
    if program == n - 1:
        tl.store(out, tl.sum(tl.load(x + tl.arange(0, 8))))
    tl.atomic_xchg(flag + program, 1, sem="release")


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("target", TARGETS)
def test_what_is_handed_on_from_program_to_program_is_none(target, order):
    x, flag, out = (torch.zeros(8, dtype=torch.int32) for _ in range(3))
    with virtual_gpu(target, order=order):
        chained_kernel[(8,)](x, flag, out, 8)
    assert out[0].item() == 36


@triton.jit
def grid_barrier_kernel(x, count, out, n):
    """Every program writes, all meet, and each reads what its neighbour has written: twice."""
    program = tl.program_id(0)
    for round in range(1, 3):
        tl.store(x + program, program + round)
        tl.debug_barrier()
        tl.atomic_add(count, 1)
        while tl.atomic_add(count, 0) < n * round:
            pass
        tl.store(out + program, tl.load(x + (program + 1) % n))
        tl.debug_barrier()
        tl.atomic_add(count + 1, 1)
        while tl.atomic_add(count + 1, 0) < n * round:
            pass


@pytest.mark.parametrize("target", TARGETS)
def test_a_barrier_of_the_whole_grid_orders_reads_and_writes(target):
    x, count, out = (torch.zeros(8, dtype=torch.int32) for _ in range(3))
    with virtual_gpu(target):
        grid_barrier_kernel[(8,)](x, count, out, 8)
    assert out.tolist() == [3, 4, 5, 6, 7, 8, 9, 2]
