"""Code that says "cuda" on a virtual GPU: devices, gradients, moves, refusals, and torch as it was after."""

from __future__ import annotations

import copy
import io
import threading

import pytest
import torch
import triton
import triton.language as tl

from gpu_utils.errors import BackendUnavailable, OutOfBounds
from gpu_utils.virtual import virtual_gpu


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=mask) + tl.load(y_ptr + at, mask=mask), mask=mask)


class Doubled(torch.autograd.Function):
    """x + x, and its gradient, by kernels."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return plus(x, x)

    @staticmethod
    def backward(ctx, grad):
        assert grad.is_cuda
        assert ctx.saved_tensors[0].is_cuda
        return plus(grad.contiguous(), grad.contiguous())


def plus(x, y):
    out = torch.empty_like(x)
    add_kernel[(triton.cdiv(x.numel(), 64),)](x, y, out, x.numel(), BLOCK=64)
    return out


@pytest.fixture
def gpu():
    with virtual_gpu("gfx942", cuda=True) as gpu:
        yield gpu


@pytest.mark.parametrize(
    ("target", "capability", "hip"), [("gfx942", (9, 4), True), ("gfx90a", (9, 0), True), ("sm_90", (9, 0), False)]
)
def test_the_chip_is_the_one_of_the_target(target, capability, hip):
    with virtual_gpu(target, cuda=True) as gpu:
        assert torch.cuda.is_available()
        assert torch.cuda.get_device_capability() == capability
        assert (torch.version.hip is not None, torch.version.cuda is not None) == (hip, not hip)
        properties = torch.cuda.get_device_properties("cuda")
        assert properties.warp_size == gpu.model.lanes
        assert properties.gcnArchName.split(":")[0] == (target if hip else "")
        assert gpu.model.chip in torch.cuda.get_device_name(0)
        assert triton.runtime.driver.active.get_active_torch_device() == torch.device("cuda", 0)


MAKERS = {
    "empty": lambda d: torch.empty(3, device=d),
    "tensor": lambda d: torch.tensor([1, 2], device=d),
    "asarray": lambda d: torch.asarray([1.0], device=d),
    "randn": lambda d: torch.randn(3, device=d),
    "generator": lambda d: torch.rand(3, device=d, generator=torch.Generator(device=d)),
    "to": lambda d: torch.ones(3).to(d),
    "to with a dtype": lambda d: torch.ones(3).to(d, torch.float16),
    "to another": lambda d: torch.ones(3).to(torch.ones(1, dtype=torch.int8, device=d)),
    "like": lambda d: torch.zeros_like(torch.ones(3), device=d),
    "new": lambda d: torch.ones(3).new_full((2,), 1.0, device=d),
    "normal": lambda d: torch.normal(0.0, 1.0, (3,), device=d),
    "triangle": lambda d: torch.tril_indices(3, 3, device=d),
    "module": lambda d: torch.nn.Linear(3, 4).to(d).weight,
    "module made there": lambda d: torch.nn.Linear(3, 4, device=d).weight,
    "one hot": lambda d: torch.nn.functional.one_hot(torch.tensor([0, 2], device=d)),
    "view": lambda d: torch.ones(4, 4, device=d)[1:].T,
    "copy": lambda d: copy.deepcopy(torch.ones(3, device=d)),
    "random in place": lambda d: torch.nn.functional.dropout(torch.ones(8, device=d)),
    "vmap": lambda d: torch.vmap(lambda x: x * 2)(torch.ones(3, 2, device=d)),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_what_is_made_there_says_cuda_and_what_is_made_here_says_cpu(gpu, make):
    there, here = make("cuda"), make("cpu")
    assert (there.device, there.is_cuda, there.is_cpu, there.get_device()) == (torch.device("cuda", 0), True, False, 0)
    assert (here.device, here.is_cuda, here.is_cpu, here.get_device()) == (torch.device("cpu"), False, True, -1)
    assert there.cpu().device.type == "cpu"
    assert there.cuda() is there
    assert here.cpu() is here
    assert (there + there).is_cuda


def test_default_devices(gpu):
    with torch.device("cuda"):
        assert torch.zeros(2).is_cuda
        assert torch.tensor([1]).is_cuda
    assert not torch.zeros(2).is_cuda
    torch.set_default_device("cuda")
    try:
        assert torch.ones(2).is_cuda
        assert not torch.ones(2, device="cpu").is_cuda
    finally:
        torch.set_default_device(None)
    with torch.cuda.device(0):
        assert torch.cuda.current_device() == 0


def test_gradients_are_where_their_tensors_are(gpu):
    x = torch.randn(100, device="cuda", requires_grad=True)
    y = torch.randn(100, requires_grad=True)
    (Doubled.apply(x * 2) + Doubled.apply(y.cuda())).sum().backward()
    assert (x.grad.device.type, y.grad.device.type) == ("cuda", "cpu")
    assert torch.equal(x.grad, torch.full((100,), 4.0, device="cuda"))
    assert torch.equal(y.grad, torch.full((100,), 2.0))


def test_a_model_moves_and_trains_with_its_parameters_the_same_objects(gpu):
    model = torch.nn.Linear(4, 4)
    before = list(model.parameters())
    optimizer = torch.optim.AdamW(model.cuda().parameters())
    with torch.autocast("cuda", dtype=torch.float16):
        out = model(torch.ones(2, 4, device="cuda"))
    assert out.dtype == torch.float16
    out.sum().backward()
    optimizer.step()
    assert all(a is b and a.is_cuda and a.grad.is_cuda for a, b in zip(before, model.parameters(), strict=True))
    assert optimizer.state[model.weight]["exp_avg"].is_cuda
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    for place, kind in ((None, "cuda"), ("cpu", "cpu"), ("cuda", "cuda")):
        file.seek(0)
        assert {t.device.type for t in torch.load(file, map_location=place).values()} == {kind}
    assert model.cpu().weight.device.type == "cpu"


def test_tensors_of_both_sides_do_not_meet(gpu):
    x, y = torch.ones(3, device="cuda"), torch.ones(3)
    for wrong in (lambda: x + y, lambda: torch.cat([x, y]), lambda: y[torch.tensor([0], device="cuda")]):
        with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
            wrong()
    assert (x + torch.tensor(1.0)).is_cuda  # a number may come from the CPU
    assert x[torch.tensor([0])].is_cuda  # so may indices
    assert not y.copy_(x).is_cuda
    with pytest.raises(AssertionError, match="device"):
        torch.testing.assert_close(x, y)
    with pytest.raises(ValueError, match="cannot be accessed from Triton"):
        plus(x, y)


REFUSED = {
    "numpy": (lambda: torch.ones(3, device="cuda").numpy(), TypeError, "Use Tensor.cpu"),
    "second device": (lambda: torch.ones(3, device="cuda:1"), RuntimeError, "invalid device ordinal"),
    "graph": (lambda: torch.cuda.CUDAGraph(), BackendUnavailable, "captured"),
    "sensors": (lambda: torch.cuda.temperature(), BackendUnavailable, "sensors"),
    "nccl": (lambda: torch.distributed.init_process_group("nccl"), BackendUnavailable, "one device"),
    "dlpack": (lambda: torch.ones(3, device="cuda").__dlpack__(), BackendUnavailable, "hand over tensor.cpu"),
}


@pytest.mark.parametrize(("call", "error", "words"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_pretended_is_refused_in_words(gpu, call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_random_numbers_of_both_sides_do_not_disturb_each_other(gpu):
    torch.manual_seed(0)
    first = torch.randn(3, device="cuda")
    torch.manual_seed(0)
    torch.randn(5)
    assert torch.equal(first, torch.randn(3, device="cuda"))
    state = torch.cuda.get_rng_state()
    drawn = torch.rand(3, device="cuda")
    torch.cuda.set_rng_state(state)
    assert torch.equal(drawn, torch.rand(3, device="cuda"))


def test_state_of_a_generator_is_a_seed_and_an_offset(gpu):
    torch.manual_seed(7)
    generator = torch.cuda.default_generators[0]
    start = generator.get_state()
    assert start.view(torch.int64).tolist() == [7, 0]  # what Philox of a package's own kernel is given
    first = torch.rand(3, device="cuda")
    middle = generator.get_state()
    assert middle.view(torch.int64).tolist() == [7, 4]
    second = torch.rand(3, device="cuda")
    for state, drawn in ((middle, second), (start, first)):
        generator.set_state(state)
        assert torch.equal(drawn, torch.rand(3, device="cuda"))
    moved = start.clone()
    moved.view(torch.int64)[1] += 400
    found = []
    for _ in range(2):
        generator.set_state(moved)
        assert (generator.get_offset(), generator.initial_seed()) == (400, 7)
        found.append(torch.rand(3, device="cuda"))
    assert torch.equal(*found)
    assert not torch.equal(found[0], first)


def test_memory_is_counted_as_long_as_it_lives(gpu):
    before = torch.cuda.memory_allocated()
    x = torch.empty(1000, device="cuda")
    view = x[10:]
    torch.empty(500, device="cpu")
    assert torch.cuda.memory_allocated() - before == 4000
    del x
    assert torch.cuda.memory_allocated() - before == 4000
    del view
    assert torch.cuda.memory_allocated() == before
    assert torch.cuda.max_memory_allocated() >= before + 4000


def test_streams_and_events_pass_and_time_is_predicted_cycles(gpu):
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        assert torch.cuda.current_stream() == stream
        start.record()
        plus(torch.ones(64, device="cuda"), torch.ones(64, device="cuda"))
        end.record()
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    torch.cuda.synchronize()
    from gpu_utils.virtual.predict import predicted_cycles

    assert start.elapsed_time(end) == predicted_cycles(gpu.last)
    with pytest.raises(ValueError, match="enable_timing"):
        start.elapsed_time(torch.cuda.Event())


def test_threads_that_start_inside_have_the_door(gpu):
    found = []
    thread = threading.Thread(target=lambda: found.append((torch.ones(2, device="cuda") * 2).device.type))
    thread.start()
    thread.join()
    assert found == ["cuda"]


def test_torch_is_as_it_was_also_after_an_error_and_inside_another_block():
    watched = {name: getattr(torch.cuda, name) for name in ("is_available", "Event", "_lazy_init", "manual_seed")}
    watched_too = (
        torch.tensor,
        torch.compile,
        torch.version.hip,
        torch.version.cuda,
        threading.Thread._bootstrap_inner,
    )
    attributes = set(vars(torch.Tensor))

    def fail():
        with virtual_gpu("gfx942", cuda=True):
            with virtual_gpu("sm_90", cuda=True):
                assert torch.version.cuda is not None
                assert torch.ones(1, device="cuda").is_cuda
            assert torch.version.hip is not None
            raise KeyError("planted")

    with pytest.raises(KeyError):
        fail()
    assert all(getattr(torch.cuda, name) is value for name, value in watched.items())
    now = (torch.tensor, torch.compile, torch.version.hip, torch.version.cuda, threading.Thread._bootstrap_inner)
    assert now == watched_too
    assert set(vars(torch.Tensor)) == attributes
    if not torch.cuda._is_compiled():
        with pytest.raises(AssertionError, match="not compiled with CUDA"):
            torch.ones(1, device="cuda")


@triton.jit
def fill_all(pointers, sizes, BLOCK: tl.constexpr, BEYOND: tl.constexpr):
    out = tl.load(pointers + tl.program_id(0)).to(tl.pointer_type(tl.float32))
    at = tl.arange(0, BLOCK)
    tl.store(out + at, 7.0, mask=at < tl.load(sizes + tl.program_id(0)) + BEYOND)


@pytest.mark.parametrize("target", ["gfx942", "sm_90"])
def test_tensors_behind_pointers_are_reached_and_nothing_beside_them(target):
    with virtual_gpu(target, cuda=True):
        kept = [torch.zeros(size, device="cuda") for size in (5, 16, 40)]
        sizes = torch.tensor([len(one) for one in kept], device="cuda")
        pointers = torch.tensor([one.data_ptr() for one in kept], device="cuda")
        fill_all[(3,)](pointers, sizes, BLOCK=64, BEYOND=0)
        assert all((one == 7).all() for one in kept)
        with pytest.raises(OutOfBounds, match="of the tensor behind pointers, which has 20 bytes"):
            fill_all[(1,)](pointers, sizes, BLOCK=64, BEYOND=1)
        host = torch.zeros(5, device="cpu")
        pointers = torch.tensor([host.data_ptr()], device="cuda")
        with pytest.raises(OutOfBounds):
            fill_all[(1,)](pointers, sizes, BLOCK=64, BEYOND=0)
        assert not host.any()
