"""What C++ adds around the arithmetic, on every target: constants, local arrays, calls, switches, generic pointers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from gpu_utils.compiler.clang import compile_cpp
from gpu_utils.errors import DeviceAssert
from gpu_utils.virtual import MODELS, virtual_gpu

from .test_asm import compiled, on_every_target, run, zeros

pytestmark = pytest.mark.usefixtures("clang")


def integers(low: int, high: int, n: int = 64, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    return torch.randint(low, high, (n,), generator=torch.Generator().manual_seed(3), dtype=dtype)


@on_every_target
def test_constant_memory_and_tables(target):
    from_table, from_weights = zeros(64), torch.zeros(64)
    run(target, "language", "constants", 1, 64, [from_table, from_weights])
    assert from_table.tolist() == [[3, 1, 4, 1, 5, 9, 2, 6][i % 8] for i in range(64)]
    assert from_weights.tolist() == [i % 5 + 0.5 for i in range(64)]


@on_every_target
def test_a_device_variable_lives_as_long_as_its_module(target):
    for _ in range(2):
        with virtual_gpu(target) as gpu:
            module = gpu.load(compiled("language", target))
            for first in (5, 69):
                out = zeros(64)
                module.launch("take_tickets", 1, 64, [out])
                assert sorted(out.tolist()) == list(range(first, first + 64))


@on_every_target
def test_kernels_of_one_module_share_its_device_variables(target):
    out = zeros(64)
    with virtual_gpu(target) as gpu:
        module = gpu.load(compiled("language", target))
        module.launch("take_tickets", 1, 64, [out])
        module.launch("reset_tickets", 1, 1, [1000])
        module.launch("take_tickets", 1, 64, [out])
    assert sorted(out.tolist()) == list(range(1000, 1064))


@on_every_target
def test_a_kernel_that_is_decoded_late_finds_the_first_values_of_its_module(target):
    source = """
    __device__ int ticket = 5;
    __global__ void raise(int *out) { ticket += 1; out[0] = ticket; }
    __global__ void look(int *out) { out[0] = ticket; }
    __device__ __noinline__ int twice(int a) { return 2 * a; }
    __global__ void call(int *out) { out[0] = twice(ticket); }
    """
    compiled, out = compile_cpp(source, target), zeros(1)
    with virtual_gpu(target) as gpu:
        first = gpu.load(compiled)
        first.launch("raise", 1, 1, [out])
        assert out.item() == 6
        for name, found in (("look", 5), ("call", 10)):
            gpu.load(compiled).launch(name, 1, 1, [out])
            assert out.item() == found
        first.launch("look", 1, 1, [out])
        assert out.item() == 6


@on_every_target
def test_an_array_indexed_at_run_time(target):
    x, out = integers(0, 1000), zeros(32)
    run(target, "language", "shuffle_a_local_array", 1, 32, [x, out])
    for thread, found in enumerate(out.tolist()):
        cards = [i * i for i in range(16)]
        for i in range(16):
            j = x[(thread + i) % 32].item() & 15
            cards[i], cards[j] = cards[j], cards[i]
        assert found == cards[x[thread].item() & 15]


@on_every_target
def test_a_function_that_is_called(target):
    x, out = integers(1, 1000), zeros(64)
    run(target, "language", "calls", 1, 64, [x, out])
    assert out.tolist() == [math.gcd(v, 360) + math.gcd(v, 77) for v in x.tolist()]


@on_every_target
def test_a_switch_with_eight_cases(target):
    x, out = integers(0, 1000), zeros(64)
    run(target, "language", "switches", 1, 64, [x, out])
    cases = [lambda v: v * 3, lambda v: v ^ 55, lambda v: v >> 2, lambda v: -v, lambda v: v // 7, lambda v: v % 11]
    cases += [lambda v: v * v, lambda v: 1000]
    assert out.tolist() == [cases[v & 7](v) for v in x.tolist()]


@on_every_target
def test_products_quotients_and_shifts_of_64_bits(target):
    a, b = integers(-(2**40), 2**40, dtype=torch.int64), integers(-(2**33), 2**33, dtype=torch.int64)
    b[::5], b[b == 0] = 7, 1
    out = zeros(64, 4, dtype=torch.int64)
    run(target, "language", "long_integers", 1, 64, [a, b, out])
    for i, (p, q, row) in enumerate(zip(a.tolist(), b.tolist(), out.tolist(), strict=True)):
        quotient = abs(p) // abs(q) * (1 if (p < 0) == (q < 0) else -1)
        shifted = (p << (i & 63)) ^ ((q % 2**64) >> (i % 50))
        wrapped = [v + 2**63 & 2**64 - 1 for v in (p * q, quotient, p - quotient * q, shifted)]
        assert row == [v - 2**63 for v in wrapped]


@on_every_target
def test_bytes_and_shorts_wrap_around(target):
    a, b = integers(0, 255, dtype=torch.uint8), integers(-30000, 30000, dtype=torch.int16)
    difference, product = zeros(64, dtype=torch.int8), zeros(64, dtype=torch.uint16)
    run(target, "language", "bytes_and_shorts", 1, 64, [a, b, difference, product])
    wide = a.numpy().astype(np.int64)
    np.testing.assert_array_equal(difference.numpy(), (wide - b.numpy()).astype(np.int8))
    np.testing.assert_array_equal(product.numpy(), (wide * b.numpy()).astype(np.uint16))


@on_every_target
def test_a_pointer_to_shared_memory_in_some_lanes_and_to_a_tensor_in_others(target):
    x, out = integers(0, 1000), zeros(64)
    run(target, "language", "generic_pointer", 1, 64, [x, out])
    assert torch.equal(out, torch.where(x % 2 == 1, x.flip(0) + 1, x.flip(0)))


@on_every_target
def test_arithmetic_in_double(target):
    x = torch.rand(64, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * 100 + 0.1
    out, truncated = zeros(64, dtype=torch.float64), zeros(64)
    run(target, "language", "doubles", 1, 64, [x, out, truncated])
    expected = x.sqrt() * 3 + 1 / x - (x * x + 0.1) + x.clamp(min=2)
    assert torch.allclose(out, expected, rtol=1e-12, atol=1e-12)
    assert torch.equal(truncated, x.int())


@on_every_target
@pytest.mark.parametrize(("instance", "count", "dtype"), [("IfLi4E", 4, torch.float32), ("IiLi3E", 3, torch.int32)])
def test_instances_of_a_template_are_launched_by_symbol(target, instance, count, dtype):
    symbol = next(k.symbol for k in compiled("language", target).kernels.values() if instance in k.symbol)
    x, out = integers(0, 9, 64 * count).to(dtype), zeros(64, dtype=dtype)
    run(target, "language", symbol, 1, 64, [x, out])
    assert torch.equal(out, x.reshape(64, count).sum(1).to(dtype))


@on_every_target
def test_arithmetic_in_half_precision_and_bfloat16(target):
    a, b = (torch.randn(64, generator=torch.Generator().manual_seed(i)).half() for i in (1, 2))
    out, product = zeros(64, dtype=torch.float16), zeros(64, dtype=torch.bfloat16)
    run(target, "language", "half_arithmetic", 1, 64, [a, b, out, product])
    assert torch.equal(out, (a.double() * b.double() + (a + b).double()).half())
    assert torch.equal(product, a.bfloat16() * b.bfloat16())


@on_every_target
def test_loops_that_lanes_leave_in_different_ways(target):
    x, out = integers(0, 1000), zeros(64)
    run(target, "language", "nested_loops", 1, 64, [x, out])
    values = x.tolist()

    def expected(i: int) -> int:
        total = 0
        for a in range(values[i] % 5):
            for b in range(6):
                if b == values[(i + a) % 64] % 4:
                    continue
                if total > 60:
                    break
                total += a * b + 1
            if total % 9 == 7:
                return total
        return total + 1000

    assert out.tolist() == [expected(i) for i in range(64)]


@on_every_target
def test_a_bitonic_sort(target):
    x = integers(-1000, 1000, 256)
    expected = x.reshape(2, 128).sort(1).values.reshape(-1)
    run(target, "language", "sort_128", 2, 128, [x])
    assert torch.equal(x, expected)


@on_every_target
def test_an_assertion_names_its_line_and_thread(target):
    x = zeros(64)
    run(target, "language", "asserts", 1, 64, [x])
    x[40] = 2000
    with pytest.raises(DeviceAssert, match=r"kernel\.cu:\d+.*thread 40"):
        run(target, "language", "asserts", 1, 64, [x])


@on_every_target
def test_shuffles_inside_groups_narrower_than_a_warp(target):
    lanes = MODELS[target].lanes
    x, out = integers(0, 99), zeros(64)
    run(target, "language", "groups", 1, 64, [x, out])
    values = x.tolist()
    for i, found in enumerate(out.tolist()):
        base, lane = i // lanes * lanes, i % lanes
        first = values[base + lane // 16 * 16 + i * 7 % 32 % 16]
        second = values[base + (lane ^ 3)]
        third = values[i] if lane % 4 < 2 else values[i - 2]
        assert found == first + 100 * second + 10000 * third


@on_every_target
def test_rounding_to_whole_numbers(target):
    x = torch.cat([torch.randn(56) * 10, torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5, 1e30, -0.0, 3.0])])
    out = torch.zeros(64, 4)
    run(target, "language", "rounding", 1, 64, [x, out])
    assert torch.equal(out, torch.stack([x.floor(), x.ceil(), x.trunc(), x.round()], 1))


MASKED = """
__global__ void branch(const int *x, int *out) {
  int i = threadIdx.x;
  if (i < 40) out[i] = __shfl_sync(~0ull, x[i], 0);
}
__global__ void part(const int *x, int *out) { out[threadIdx.x] = __shfl_sync(~0ull, x[threadIdx.x], 0); }
__global__ void vote(const int *x, int *out) {
  int i = threadIdx.x;
  if (i < 40) out[i] = __popcll(__ballot_sync(1ull << 40, x[i] > 0));
}
__global__ void none(const int *x, int *out) {
  __syncwarp(0ull);
  out[threadIdx.x] = x[threadIdx.x];
}
"""


@pytest.mark.parametrize("target", ["gfx942", "gfx1100"])
@pytest.mark.parametrize(
    ("kernel", "threads", "line", "named", "active"),
    [
        ("branch", 64, 4, {"gfx942": "lanes 0-63", "gfx1100": "lanes 0-31"}, {"gfx942": "0-39", "gfx1100": "0-7"}),
        ("part", 40, 6, {"gfx942": "lanes 0-63", "gfx1100": "lanes 0-31"}, {"gfx942": "0-39", "gfx1100": "0-7"}),
        ("vote", 64, 9, {"gfx942": "lane 40", "gfx1100": "no lanes"}, {"gfx942": "0-39", "gfx1100": "0-31"}),
        ("none", 64, 12, {"gfx942": "no lanes", "gfx1100": "no lanes"}, {"gfx942": "0-63", "gfx1100": "0-31"}),
    ],
)
def test_a_mask_that_does_not_name_the_lanes_that_call_stops_an_amd_kernel(
    kernel, threads, line, named, active, target
):
    said = rf"kernel\.cu:{line}\b.*the mask names {named[target]}, but lanes {active[target]} call with it"
    with virtual_gpu(target) as gpu, pytest.raises(DeviceAssert, match=said):
        gpu.load(compile_cpp(MASKED, target)).launch(kernel, 1, threads, [torch.ones(64, dtype=torch.int32), zeros(64)])


def test_nvidia_takes_a_mask_that_names_lanes_that_are_not_there():
    out = zeros(64)
    with virtual_gpu("sm_80") as gpu:
        module = gpu.load(
            compile_cpp(MASKED.replace("__popcll(__ballot_sync(1ull << 40", "__popc(__ballot_sync(~0u"), "sm_80")
        )
        module.launch("part", 1, 40, [torch.arange(64, dtype=torch.int32) + 5, out])
    assert out.tolist() == [5] * 32 + [37] * 8 + [0] * 24


@on_every_target
def test_lanes_with_different_masks_vote_shuffle_and_match_among_themselves(target):
    source = """
    #ifdef __AMDGCN__
    typedef unsigned long long lanes;
    #define COUNT __popcll
    #else
    typedef unsigned lanes;
    #define COUNT __popc
    #endif
    __global__ void groups(const int *x, int *out) {
      int i = threadIdx.x, lane = i % 32;
      lanes low = 0xffff, mine = lane < 16 ? low : low << 16;
      if (warpSize == 64 && i >= 32) mine <<= 31, mine <<= 1;
      out[i] = __shfl_sync(mine, x[i], lane < 16 ? 3 : 20, 32);
      out[64 + i] = COUNT(__ballot_sync(mine, x[i] % 2));
      out[128 + i] = 10 * __any_sync(mine, lane == 3) + __all_sync(mine, lane < 16);
      int all, none;
      lanes alike = __match_any_sync(mine, x[i] / 4), every = __match_all_sync(mine, lane / 16, &all);
      __match_all_sync(mine, (double)x[i], &none);
      __syncwarp(mine);
      out[192 + i] = 100 * COUNT(alike) + 10 * (every == mine) + all + none;
    }
    """
    x, out = torch.arange(64, dtype=torch.int32), zeros(256)
    with virtual_gpu(target) as gpu:
        gpu.load(compile_cpp(source, target)).launch("groups", 1, 64, [x, out])
    assert out[:64].tolist() == [(i & ~31) + (3 if i % 32 < 16 else 20) for i in range(64)]
    assert out[64:128].tolist() == [8] * 64
    assert out[128:192].tolist() == [11 if i % 32 < 16 else 0 for i in range(64)]
    assert out[192:].tolist() == [411] * 64


@on_every_target
def test_a_value_from_a_lane_that_is_not_there_is_counted(target):
    source = """
    __global__ void down(const int *x, int *out) {
      int i = threadIdx.x;
      if (i < 24) out[i] = __shfl_down(x[i], 8, 32);
      out[32 + i] = __shfl_xor(x[i], 1);
    }
    """
    lanes = MODELS[target].lanes
    with virtual_gpu(target) as gpu:
        gpu.load(compile_cpp(source, target)).launch(
            "down", 1, 32, [torch.arange(32, dtype=torch.int32), out := zeros(64)]
        )
    assert out[:16].tolist() == list(range(8, 24))
    assert out[32:].tolist() == [i ^ 1 for i in range(32)]
    assert gpu.counters.totals()["shuffles_from_absent_lanes"] == 8, lanes  # lanes 16 to 23 ask lanes 24 to 31
