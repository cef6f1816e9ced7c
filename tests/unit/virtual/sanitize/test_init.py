"""initcheck: memory that nobody has written, by every way to allocate it and every way to read it."""

import pytest
import torch
import triton
import triton.language as tl

from gpu_utils.errors import UninitialisedGlobal
from gpu_utils.virtual import virtual_gpu

TARGETS = ("sm_90", "gfx942", "gfx1100")


@triton.jit
def copy_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n, other=0), mask=at < n)


@triton.jit
def count_kernel(x, out):
    tl.store(out, tl.atomic_add(x, 1))


@triton.jit
def scalar_kernel(x, out):
    tl.store(out, tl.load(x + 3))


ALLOCATE = {
    "empty": lambda: torch.empty(64),
    "empty_like": lambda: torch.empty_like(torch.zeros(64)),
    "new_empty": lambda: torch.zeros(1).new_empty(64),
    "empty_strided": lambda: torch.empty_strided((64,), (1,)),
    "Tensor": lambda: torch.Tensor(64),
    "resize_": lambda: torch.zeros(32).resize_(64),
    "empty in two bytes": lambda: torch.empty(64, dtype=torch.float16),
    "empty in eight bytes": lambda: torch.empty(64, dtype=torch.int64),
}
WRITE = {
    "zeros": lambda: torch.zeros(64),
    "filled": lambda: torch.empty(64).fill_(3),
    "out=": lambda: torch.add(torch.ones(64), 1, out=torch.empty(64)),
    "numpy": lambda: _by_numpy(torch.empty(64)),
    "random bits": lambda: torch.empty(64, dtype=torch.int32).random_(),
    "a view of what is written": lambda: _first_half(torch.empty(128)),
}


def _by_numpy(x):
    x.numpy()[:] = 1
    return x


def _first_half(x):
    x[:64] = 1
    return x


def launch(x, target="gfx942", n=64):
    out = torch.zeros(64, dtype=x.dtype)
    copy_kernel[(1,)](x, out, n, BLOCK=64)
    return out


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("how", ALLOCATE)
def test_memory_that_nobody_has_written_is_found(how, target):
    with virtual_gpu(target, sanitize="initcheck"):
        x = ALLOCATE[how]()
        with pytest.raises(UninitialisedGlobal, match="of x, which nobody has written") as caught:
            launch(x)
    assert caught.value.report.second.line[0].endswith("test_init.py")


@pytest.mark.parametrize("how", WRITE)
def test_what_the_host_has_written_is_not(how):
    with virtual_gpu("gfx942", sanitize="initcheck"):
        x = WRITE[how]()
        assert torch.equal(launch(x), x[:64])


@pytest.mark.parametrize("target", TARGETS)
def test_what_a_kernel_has_written_is_not_and_the_rest_is(target):
    with virtual_gpu(target, sanitize="initcheck"):
        x, y = torch.ones(64), torch.empty(64)
        copy_kernel[(1,)](x, y, 48, BLOCK=64)
        launch(y, n=48)
        with pytest.raises(UninitialisedGlobal, match="byte offset 192 of x"):
            launch(y)


@pytest.mark.parametrize("kernel", [count_kernel, scalar_kernel])
@pytest.mark.parametrize("target", TARGETS)
def test_atomics_and_scalar_loads_read(kernel, target):
    with virtual_gpu(target, sanitize="initcheck"):
        out = torch.zeros(1, dtype=torch.int32)
        kernel[(1,)](torch.zeros(4, dtype=torch.int32), out)
        with pytest.raises(UninitialisedGlobal):
            kernel[(1,)](torch.empty(4, dtype=torch.int32), out)


def test_every_second_element_and_a_tensor_that_was_forgotten():
    with virtual_gpu("sm_90", sanitize="initcheck") as gpu:
        x = torch.empty(64)
        x[::2] = 1
        with pytest.raises(UninitialisedGlobal, match="byte offset 4 of x"):
            launch(x)
        x.fill_(2)
        launch(x)
        assert x.data_ptr() not in gpu.untouched.storages


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        out = torch.zeros(64)
        copy_kernel[(1,)](torch.empty_like(grad), out, 64, BLOCK=64)
        return out


def test_allocations_inside_of_autograd_count():
    with virtual_gpu("gfx942", sanitize="initcheck"):
        y = Double.apply(torch.ones(64, requires_grad=True))
        with pytest.raises(UninitialisedGlobal):
            y.sum().backward()


def test_without_the_tool_nothing_is_filled_or_found():
    with virtual_gpu("gfx942", sanitize="synccheck") as gpu:
        launch(torch.empty(64))
    assert gpu.untouched is None
