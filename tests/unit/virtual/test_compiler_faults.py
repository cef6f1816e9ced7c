"""Faults of a compiler that the docs name: executed faithfully, and noticed when a new version mends them."""

from __future__ import annotations

import contextlib
import re

import pytest
import torch
import triton
import triton.language as tl

from gpu_utils import compile_for
from gpu_utils.errors import UninitialisedShared
from gpu_utils.virtual import virtual_gpu


@triton.jit
def largest_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    tl.atomic_max(out_ptr + tl.zeros((BLOCK,), tl.int32), tl.load(x_ptr + tl.arange(0, BLOCK)))


@pytest.mark.parametrize("target", ["sm_80", "gfx90a", "gfx942", "gfx950"])
def test_a_signed_maximum_on_one_address_is_what_the_machine_code_makes_of_it(target):
    x = torch.tensor([-5, 3, -9, 7] * 16, dtype=torch.int32)
    out = torch.full((1,), -100, dtype=torch.int32)
    with virtual_gpu(target) as gpu:
        largest_kernel[(1,)](x, out, BLOCK=64, num_warps=1)
    combined_unsigned = any("v_max_u32" in op.text for op in gpu.last.program.ops)
    assert out.item() == (-5 if combined_unsigned else 7)


@triton.jit
def filled_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n, other=-2))


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100", "gfx942", "gfx1201"])
@pytest.mark.parametrize(("dtype", "in_a_word"), [(torch.int8, 4), (torch.int16, 2), (torch.int32, 1)])
def test_a_negative_other_of_small_integers_is_what_the_machine_code_makes_of_it(target, dtype, in_a_word):
    out = torch.zeros(128, dtype=dtype)
    with virtual_gpu(target) as gpu:
        filled_kernel[(1,)](torch.ones(128, dtype=dtype), out, 64, BLOCK=128, num_warps=1)
    whole_word = re.search(r"mov\.u32 %r\d+, 0xf{15}e;", gpu.last.text)  # -2, not four or two of it
    other = [-2] + [-1 if whole_word else -2] * (in_a_word - 1)
    assert out.tolist() == [1] * 64 + other * (64 // in_a_word)
    assert target.startswith("sm_") or not whole_word


@triton.jit
def place_kernel(x_ptr, out_ptr):
    x = tl.load(x_ptr + tl.arange(0, 16)[:, None] + tl.arange(0, 4)[None] * 16)  # columns lie one after the other
    best, place = tl.max(tl.reshape(x, [64]), 0, return_indices=True)
    tl.store(out_ptr, best)
    tl.store(out_ptr + 1, place)


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
def test_the_place_of_a_maximum_behind_a_reshape_is_what_the_machine_code_makes_of_it(target):
    right = 0
    for place in range(0, 64, 3):
        x, out = torch.zeros(64, dtype=torch.int32), torch.zeros(2, dtype=torch.int32)
        x[place // 4 + place % 4 * 16] = 5
        with virtual_gpu(target):
            place_kernel[(1,)](x, out, num_warps=2)
        assert out[0] == 5
        right += out[1].item() == place
    text = compile_for(place_kernel, target, [x, out], num_warps=2).stages["ttir"]
    assert (right < 22) == ("allow_reorder" in str(text))


@triton.jit
def poll_kernel(flag_ptr, out_ptr):
    while tl.load(flag_ptr, volatile=True) == 0:
        pass
    tl.store(out_ptr, 1)


def loops(target: str) -> list[str]:
    """The text of each loop, from its label to the jump back to it."""
    text = compile_for(poll_kernel, target, [torch.zeros(1, dtype=torch.int32)] * 2).asm
    blocks = re.split(r"^(\.LBB\w+|\$L__BB\w+):", text, flags=re.MULTILINE)[1:]
    pairs = zip(blocks[::2], blocks[1::2], strict=True)
    return [body for label, body in pairs if re.search(rf"bra\w*\s+{re.escape(label)}\b", body)]


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201", "gfx1250"])
def test_a_volatile_load_that_is_polled_leaves_its_loop_on_amd(target):
    assert [("load" in loop) for loop in loops(target)] == [False]


def test_a_volatile_load_that_is_polled_stays_in_its_loop_on_nvidia():
    assert [("ld.volatile" in loop) for loop in loops("sm_80")] == [True]


@triton.jit
def queue_kernel(x_ptr, out_ptr, queue_ptr, n, AT_THE_HEAD: tl.constexpr):
    if AT_THE_HEAD:
        i = 0
        while i < n:
            i = tl.atomic_add(queue_ptr, 1)
            tl.store(out_ptr + i, 2 * tl.load(x_ptr + i, mask=i < n), mask=i < n)
    else:
        i = tl.atomic_add(queue_ptr, 1)
        while i < n:
            tl.store(out_ptr + i, 2 * tl.load(x_ptr + i))
            i = tl.atomic_add(queue_ptr, 1)


@pytest.mark.parametrize("target", ["sm_80", "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"])
@pytest.mark.parametrize("at_the_head", [True, False])
def test_a_queue_with_an_atomic_before_its_loop_reads_too_early_on_amd(target, at_the_head):
    x, out = torch.randn(20), torch.zeros(20)
    fails = target.startswith("gfx") and not at_the_head
    says = pytest.raises(UninitialisedShared, match="wave 0, lane 1 ") if fails else contextlib.nullcontext()
    with virtual_gpu(target, step_limit=1000), says:
        queue_kernel[(2,)](x, out, torch.zeros(1, dtype=torch.int32), 20, at_the_head)
    assert torch.equal(out, 2 * x) is not fails
