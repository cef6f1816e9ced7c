"""What may stand for a pointer: tensors, views of them, and objects that only have `data_ptr()`."""

import pytest
import torch
import triton
import triton.language as tl

from gpu_utils.errors import BadArgument, OutOfBounds
from gpu_utils.virtual import virtual_gpu

TARGETS = ("sm_90", "gfx942")
COPY_PTX = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry copy(.param .u64 source, .param .u64 out) {
    .reg .b64 %rd<4>;
    .reg .b32 %r<3>;
    ld.param.u64 %rd1, [source];
    ld.param.u64 %rd2, [out];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd1, %rd1, %rd3;
    add.s64 %rd2, %rd2, %rd3;
    ld.global.u32 %r2, [%rd1];
    st.global.u32 [%rd2], %r2;
    ret;
}
"""


class Wrapped:
    """As in other libraries: a pointer and a type, and the tensor somewhere inside."""

    def __init__(self, tensor):
        self.parts = [tensor]
        self.dtype = tensor.dtype

    def data_ptr(self):
        return self.parts[0].data_ptr()


class Bare:
    dtype = torch.float32

    def __init__(self, address):
        self.address = address

    def data_ptr(self):
        return self.address


@triton.jit
def copy_kernel(x, y, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i))


@triton.jit
def shift_kernel(x, y, by, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y + i + by, tl.load(x + i))


@triton.jit
def both_kernel(x, y, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i))
    tl.store(y + 2 * BLOCK + i, tl.load(x + i))


@triton.jit
def chase_kernel(table, y, BLOCK: tl.constexpr):
    source = tl.load(table).to(tl.pointer_type(tl.float32))
    i = tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(source + i))


@pytest.mark.parametrize("target", TARGETS)
def test_a_wrapper_of_a_tensor_is_as_good_as_the_tensor(target):
    x = torch.randn(64)
    for wrapper in (Wrapped(x), triton.reinterpret(x, tl.float32), Wrapped(Wrapped(x))):
        y = torch.zeros(64)
        with virtual_gpu(target):
            if isinstance(wrapper, Wrapped) and isinstance(wrapper.parts[0], Wrapped):
                wrapper.data_ptr = wrapper.parts[0].data_ptr
            copy_kernel[(1,)](wrapper, triton.reinterpret(y, tl.float32), BLOCK=64)
        assert torch.equal(x, y)


@pytest.mark.parametrize("target", TARGETS)
def test_a_wrapper_is_bounded_by_its_tensor(target):
    with virtual_gpu(target), pytest.raises(OutOfBounds, match="byte offset 160 of x, which has 160 bytes"):
        copy_kernel[(1,)](Wrapped(torch.randn(40)), torch.zeros(64), BLOCK=64)


def test_a_bare_pointer_is_refused_by_name_and_accepted_when_its_tensor_is_registered_or_passed():
    x, y = torch.randn(64), torch.zeros(64)
    with virtual_gpu("gfx942") as gpu:
        with pytest.raises(BadArgument, match=r"x is a Bare whose memory has unknown bounds.*gpu\.register"):
            copy_kernel[(1,)](Bare(x.data_ptr()), y, BLOCK=64)
        copy_kernel[(1,)](Bare(y.data_ptr()), y, BLOCK=64)
        gpu.register("x", x)
        copy_kernel[(1,)](Bare(x.data_ptr()), y, BLOCK=64)
    assert torch.equal(x, y)


def test_a_tensor_that_is_not_on_the_cpu_is_refused_at_every_door():
    meta, y = torch.ones(32, device="meta"), torch.zeros(32)
    said = r"is a tensor on 'meta'; a virtual GPU reads and writes tensors on the CPU"
    with virtual_gpu("sm_80") as gpu:
        for wrapped in (meta, Wrapped(meta), triton.reinterpret(meta, tl.float32)):
            with pytest.raises(BadArgument, match=f"x {said}"):
                copy_kernel[(1,)](wrapped, y, BLOCK=32)
        with pytest.raises(BadArgument, match=said):
            gpu.load(COPY_PTX).launch("copy", 1, 32, [meta, y])
        with pytest.raises(BadArgument, match=said):
            gpu.launch(COPY_PTX, "copy", (1,), (32,), [("x", "*fp32", meta), ("y", "*fp32", y)])
        with pytest.raises(BadArgument, match=said):
            gpu.register("x", meta)
        with pytest.raises(BadArgument, match="not a list"):
            gpu.register("x", [1.0])


@pytest.mark.parametrize("target", TARGETS)
def test_a_store_past_a_view_is_found_in_strict_mode_only(target):
    x = torch.ones(64)
    for strict in (False, True):
        base = torch.zeros(256)
        with virtual_gpu(target, strict=strict):
            shift_kernel[(1,)](x, base[64:128], 0, BLOCK=64)
            if not strict:
                shift_kernel[(1,)](x, base[64:128], 64, BLOCK=64)
                continue
            with pytest.raises(OutOfBounds, match=r"byte offset 256 of y, which has 256 bytes and is a view"):
                shift_kernel[(1,)](x, base[64:128], 64, BLOCK=64)
            if target == "gfx942":  # what lies before the base of a buffer is dropped by the hardware
                continue
            with pytest.raises(OutOfBounds, match=r"byte offset -4 of y, which has 256 bytes and is a view"):
                shift_kernel[(1,)](x, base[64:128], -1, BLOCK=64)
        assert base.sum() == 64


def test_views_that_interleave_are_one_and_views_apart_are_not():
    base = torch.arange(256.0)
    with virtual_gpu("gfx942", strict=True) as gpu:
        both_kernel[(1,)](base[0:64], base.reshape(64, 4)[:, 1], BLOCK=64)
        copy_kernel[(1,)](base[:64], base[128:192], BLOCK=64)
        assert gpu.last.memory.holds(base.data_ptr(), 256)
        assert not gpu.last.memory.holds(base.data_ptr() + 256, 4)


def test_the_view_does_not_change_what_the_counters_see():
    x, totals = torch.ones(65), []
    for strict in (False, True):
        with virtual_gpu("sm_90", strict=strict) as gpu:
            copy_kernel[(1,)](x[1:], torch.zeros(64), BLOCK=64, num_warps=2)
        totals.append(gpu.counters.totals())
    assert totals[0] == totals[1]
    assert totals[0]["global_load_sectors"] == 10  # two warps, each of which starts within a sector


@pytest.mark.parametrize("target", TARGETS)
def test_a_pointer_from_memory_says_how_to_register_its_tensor(target):
    x, y = torch.randn(1 << 20), torch.zeros(64)
    with virtual_gpu(target) as gpu:
        with pytest.raises(OutOfBounds, match=r"far from every tensor.*gpu\.register\('its name', tensor\)"):
            chase_kernel[(1,)](torch.tensor([x.data_ptr()]), y, BLOCK=64)
        gpu.register("x", x)
        chase_kernel[(1,)](torch.tensor([x.data_ptr()]), y, BLOCK=64)
        assert torch.equal(x[:64], y)
        with pytest.raises(OutOfBounds, match="next to a null pointer"):
            chase_kernel[(1,)](torch.tensor([0]), y, BLOCK=64)
