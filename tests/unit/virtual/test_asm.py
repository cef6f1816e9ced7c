"""C++ kernels, compiled for every target by `compile_cpp` and executed through `gpu.load(...).launch(...)`."""

from __future__ import annotations

import struct
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.hipify import hipify_python as hipify

from gpu_utils.compiler.clang import compile_cpp
from gpu_utils.compiler.cpp_module import CppModule
from gpu_utils.errors import (
    BadArgument,
    OutOfBounds,
    Race,
    ResourceLimit,
    UninitialisedShared,
    UnknownName,
    UnsupportedInstruction,
)
from gpu_utils.virtual import MODELS, virtual_gpu
from gpu_utils.virtual.isa import Launch

SOURCES = Path(__file__).parent / "cpp"
TARGETS = list(MODELS)
WAVE_64 = [target for target in TARGETS if MODELS[target].lanes == 64]
WARP_32 = [target for target in TARGETS if MODELS[target].lanes == 32]
on_every_target = pytest.mark.parametrize("target", TARGETS)
on_wave_64 = pytest.mark.parametrize("target", WAVE_64)
on_warp_32 = pytest.mark.parametrize("target", WARP_32)


pytestmark = pytest.mark.usefixtures("clang")


@cache
def compiled(name: str, target: str) -> CppModule:
    return compile_cpp((SOURCES / f"{name}.cu").read_text(), target)


def run(target: str, source: str, kernel: str, grid, block, args, shared: int = 0, **options) -> Launch:
    with virtual_gpu(target, **options) as gpu:
        return gpu.load(compiled(source, target)).launch(kernel, grid, block, args, shared=shared)


def whole_numbers(*shape: int, low: int = -9, high: int = 9) -> torch.Tensor:
    """Floats whose sums are exact in any order."""
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(7)).float()


def zeros(*shape: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype)


# One thread for one element


@on_every_target
def test_vector_add(target):
    x, y, out = torch.randn(1000), torch.randn(1000), torch.full((1000,), 7.0)
    run(target, "elementwise", "vector_add", 4, 256, [x, y, out, 999])
    assert torch.equal(out[:999], (x + y)[:999])
    assert out[999] == 7.0


@on_every_target
def test_a_grid_stride_loop_covers_more_data_than_threads(target):
    x, y = whole_numbers(1000), whole_numbers(1000)
    expected = 2.5 * x + y
    run(target, "elementwise", "saxpy_grid_stride", 3, 64, [2.5, x, y, 1000])
    assert torch.equal(y, expected)


@on_every_target
def test_lanes_leave_a_loop_after_different_numbers_of_steps(target):
    start, steps = torch.arange(1, 301, dtype=torch.int32), zeros(300)
    launch = run(target, "elementwise", "collatz_steps", 3, 128, [start, steps, 300])

    def collatz(n: int) -> int:
        count = 0
        while n != 1:
            n, count = (n // 2 if n % 2 == 0 else 3 * n + 1), count + 1
        return count

    assert steps.tolist() == [collatz(n) for n in range(1, 301)]
    assert launch.counters.launched_waves == 3 * 128 // MODELS[target].lanes


@on_every_target
def test_a_divergent_branch(target):
    x, out = torch.arange(200, dtype=torch.int32), zeros(200)
    run(target, "elementwise", "divergent_branch", 2, 128, [x, out, 200])
    assert torch.equal(out, torch.where(x % 2 == 0, x * x, -x - 1))


@on_every_target
def test_loads_of_128_bits(target):
    x, out = torch.randn(4 * 100), torch.zeros(4 * 100)
    run(target, "elementwise", "scale_by_four", 1, 128, [x, out, 0.5, 100])
    assert torch.equal(out, 0.5 * x)


@on_every_target
def test_half_precision_becomes_bfloat16(request, target):
    if target == "gfx1250":
        why = "clang of ziglang 0.17.0 drops the widening of the float16 when it selects v_fma_mixlo_bf16"
        request.applymarker(pytest.mark.xfail(reason=why, strict=True, raises=AssertionError))
    x = torch.cat([torch.randn(250), torch.tensor([0.0, -0.0, 6e-8, 65504.0, float("inf"), float("nan")])]).half()
    out = zeros(256, dtype=torch.bfloat16)
    run(target, "elementwise", "half_to_bfloat16", 1, 256, [x, out, 3.0, 256])
    expected = (x.float() * 3).bfloat16()
    assert torch.equal(out.nan_to_num(nan=1.5), expected.nan_to_num(nan=1.5))


@on_every_target
def test_functions_stay_within_their_error_bounds(target):
    x = torch.cat([torch.linspace(-110, 95, 4000), torch.randn(96), torch.tensor([float("inf"), -float("inf"), 1e-30])])
    n = len(x)
    exponential, inverse_root, root, quotient = (torch.zeros(n) for _ in range(4))
    run(target, "elementwise", "functions", 17, 256, [x, exponential, inverse_root, root, quotient, n])
    exact, size = x.double(), x.double().abs()
    assert torch.equal(exponential.isinf(), exact.exp().float().isinf())
    finite = exponential.isfinite()
    bound = 2**-21 * exact.exp() + 2**-149
    assert ((exponential.double() - exact.exp()).abs() <= bound)[finite].all()
    assert torch.allclose(inverse_root.double(), size.rsqrt(), rtol=2**-21, atol=0)
    assert torch.equal(root, size.sqrt().float())
    assert torch.equal(quotient, (1 / exact).float())


@on_every_target
def test_quotients_are_rounded_correctly_also_when_tiny_and_huge(target):
    random = np.random.default_rng(5)
    edges = np.array(
        [0.0, -0.0, 1e-45, 1e-40, 1.1754944e-38, 1e-30, 1.0, -3.0, 1e30, 3e38, -1.7e38, np.inf, np.nan], np.float32
    )
    pairs = np.array(np.meshgrid(edges, edges)).reshape(2, -1)
    x, y = np.concatenate([pairs, random.integers(0, 2**32, (2, 3000), np.uint32).view(np.float32)], axis=1)
    exponents = random.integers(-480, 480, (2, len(x)))  # quotients of doubles that are no denormals
    a, b = np.ldexp(random.uniform(1, 2, (2, len(x))), exponents)
    out, wide = torch.zeros(len(x)), zeros(len(x), dtype=torch.float64)
    tensors = [torch.from_numpy(np.ascontiguousarray(values)) for values in (x, y, a, b)]
    args = [*tensors[:2], out, *tensors[2:], wide, len(x)]
    run(target, "elementwise", "divide", -(-len(x) // 256), 256, args)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(out.numpy(), x / y)
        np.testing.assert_array_equal(wide.numpy(), a / b)


@on_every_target
def test_threads_and_blocks_have_three_dimensions(target):
    grid, block = (2, 3, 2), (4, 3, 5)
    out = zeros(12, 60)
    run(target, "elementwise", "coordinates", grid, block, [out])
    expected = zeros(2, 3, 2, 5, 3, 4)
    for place in torch.cartesian_prod(*(torch.arange(n) for n in expected.shape)).tolist():
        bz, by, bx, tz, ty, tx = place
        expected[tuple(place)] = tx + 10 * ty + 100 * tz + 1000 * bx + 10000 * by + 100000 * bz
    assert torch.equal(out, expected.reshape(12, 60))


@on_every_target
def test_bits_of_a_word(target):
    x = torch.tensor([0, 1, -1, 8, 12, 2**31 - 1, -(2**31), 1 << 20], dtype=torch.int32)
    ones, first, leading = (zeros(8) for _ in range(3))
    run(target, "elementwise", "bits", 1, 8, [x, ones, first, leading, 8])
    words = [n & 0xFFFFFFFF for n in x.tolist()]
    assert ones.tolist() == [bin(n).count("1") for n in words]
    assert first.tolist() == [(n & -n).bit_length() for n in words]
    assert leading.tolist() == [32 - n.bit_length() for n in words]


# Blocks


@on_every_target
@pytest.mark.parametrize("kernel", ["block_sum", "block_sum_shuffle"])
def test_a_block_sums_through_shared_memory(target, kernel):
    x, out = whole_numbers(1000), torch.zeros(4)
    run(target, "block_reduce", kernel, 4, 256, [x, out, 1000], shared=1024 if kernel == "block_sum" else 0)
    assert torch.equal(out, torch.nn.functional.pad(x, (0, 24)).reshape(4, 256).sum(1))


@on_every_target
def test_an_early_return_before_a_barrier_leaves_shared_memory_unwritten(target):
    x, out = whole_numbers(1000), torch.zeros(4)
    run(target, "block_reduce", "block_sum_early_return", 3, 256, [x, out, 768], shared=1024)
    assert torch.equal(out[:3], x[:768].reshape(3, 256).sum(1)), "right as long as no thread is past the end"
    with pytest.raises(UninitialisedShared):
        run(target, "block_reduce", "block_sum_early_return", 4, 256, [x, out, 1000], shared=1024)


@on_warp_32
def test_a_warp_count_of_block_size_over_32_is_right_on_warps_of_32(target):
    x, out = whole_numbers(512), torch.zeros(2)
    run(target, "block_reduce", "block_sum_warp_count_32", 2, 256, [x, out, 512])
    assert torch.equal(out, x.reshape(2, 256).sum(1))


@on_wave_64
def test_a_warp_count_of_block_size_over_32_reads_what_no_wavefront_of_64_wrote(target):
    x, out = whole_numbers(512), torch.zeros(2)
    with pytest.raises(UninitialisedShared):
        run(target, "block_reduce", "block_sum_warp_count_32", 2, 256, [x, out, 512])


@on_every_target
def test_softmax_of_rows(target):
    x, out = torch.randn(5, 300) * 10, torch.zeros(5, 300)
    run(target, "block_reduce", "softmax", 5, 128, [x, out, 300], shared=512)
    torch.testing.assert_close(out.double(), x.double().softmax(1), rtol=1e-5, atol=1e-9)


# Warps and wavefronts


@on_every_target
def test_a_warp_sums_with_warp_size_from_the_chip(target):
    lanes = MODELS[target].lanes
    x, out = whole_numbers(512), torch.zeros(512 // lanes)
    run(target, "warp", "warp_sum", 2, 256, [x, out])
    assert torch.equal(out, x.reshape(-1, lanes).sum(1))


@on_warp_32
def test_a_sum_over_32_lanes_is_right_on_warps_of_32(target):
    x, out = whole_numbers(512), torch.zeros(16)
    run(target, "warp", "warp_sum_32", 2, 256, [x, out])
    assert torch.equal(out, x.reshape(16, 32).sum(1))


@on_wave_64
def test_a_sum_over_32_lanes_loses_half_of_a_wavefront_of_64(target):
    x, out = whole_numbers(512, low=1), torch.zeros(8)
    run(target, "warp", "warp_sum_32", 2, 256, [x, out])
    assert torch.equal(out, x.reshape(8, 2, 32)[:, 0].sum(1)), "lanes 0 to 31 only"
    assert not torch.equal(out, x.reshape(8, 64).sum(1))


@on_every_target
def test_a_shuffle_in_groups_of_32_lanes(target):
    x, out = whole_numbers(512), torch.zeros(16)
    run(target, "warp", "sum_of_32", 2, 256, [x, out])
    assert torch.equal(out, x.reshape(16, 32).sum(1))


@on_every_target
def test_a_ballot_kept_in_64_bits_counts_every_lane(target):
    x, count = whole_numbers(1000), zeros(1)
    run(target, "warp", "count_positive", 4, 256, [x, count, 1000])
    assert count.item() == int((x > 0).sum())


@on_every_target
def test_a_ballot_kept_in_32_bits_loses_lanes_on_wave_64_only(target):
    x, count = whole_numbers(1000), zeros(1)
    run(target, "warp", "count_positive_32", 4, 256, [x, count, 1000])
    seen = x > 0
    if target in WAVE_64:
        seen &= torch.arange(1000) % 64 < 32
    assert count.item() == int(seen.sum())


@on_every_target
@pytest.mark.parametrize("kernel", ["compact", "compact_lane_31"])
def test_a_lane_numbered_by_31_takes_the_place_of_another_on_wave_64(target, kernel):
    lanes = MODELS[target].lanes
    x = whole_numbers(lanes).int()
    out, count = zeros(lanes), zeros(1)
    run(target, "warp", kernel, 1, lanes, [x, out, count])
    kept = x[x > 0]
    right = torch.equal(out[: len(kept)], kept)
    assert right == (kernel == "compact" or lanes == 32)


@on_every_target
def test_running_sums_inside_a_warp(target):
    lanes = MODELS[target].lanes
    x, out = whole_numbers(256).int(), zeros(256)
    run(target, "warp", "warp_scan", 2, 128, [x, out])
    assert torch.equal(out, x.reshape(-1, lanes).cumsum(1).int().reshape(-1))


@on_every_target
def test_a_shuffle_moves_64_bits(target):
    lanes = MODELS[target].lanes
    x, out = torch.randn(128, dtype=torch.float64), zeros(128, dtype=torch.float64)
    run(target, "warp", "broadcast_last", 1, 128, [x, out])
    assert torch.equal(out, x.reshape(-1, lanes)[:, -1:].expand(-1, lanes).reshape(-1))


@on_every_target
def test_votes_inside_a_branch_see_the_lanes_of_the_branch(target):
    lanes, n = MODELS[target].lanes, 200
    x = whole_numbers(256).int()
    active, some, every = zeros(256, dtype=torch.int64), zeros(256), zeros(256)
    run(target, "warp", "votes_in_a_branch", 2, 128, [x, active, some, every, n])
    for start in range(0, 256, lanes):
        inside = [i for i in range(start, start + lanes) if i % 128 % 3 == 0 and i < n]
        mask = sum(1 << i - start for i in inside)
        for i in range(start, start + lanes):
            if i in inside:
                assert active[i].item() & (1 << 64) - 1 == mask
                assert some[i].item() == any(x[j] > 5 for j in inside)
                assert every[i].item() == all(x[j] > -5 for j in inside)
            else:
                assert active[i].item() == some[i].item() == every[i].item() == 0


@on_every_target
def test_shuffles_with_a_mask(target):
    lanes = MODELS[target].lanes
    x, out = whole_numbers(256).int(), zeros(256)
    run(target, "warp", "warp_max_sync", 1, 256, [x, out])
    assert torch.equal(out, x.reshape(-1, lanes).amax(1, keepdim=True).expand(-1, lanes).reshape(-1))


# Atomics


@on_every_target
def test_a_histogram_with_atomics(target):
    x, bins = torch.randint(0, 64, (3000,), dtype=torch.int32), zeros(64)
    launch = run(target, "atomics", "histogram", 3, 128, [x, bins, 3000])
    assert torch.equal(bins, torch.bincount(x, minlength=64).int())
    assert launch.counters.launched_blocks == 3


@on_every_target
def test_a_histogram_without_atomics_is_a_race(target):
    x, bins = torch.randint(0, 4, (300,), dtype=torch.int32), zeros(64)
    with pytest.raises(Race, match="histogram_without_atomics"):
        run(target, "atomics", "histogram_without_atomics", 3, 128, [x, bins, 300])


@on_every_target
@pytest.mark.parametrize("order", ["program", "shuffled"])
def test_atomic_extremes_signed_and_unsigned(target, order):
    x = torch.randint(-1000, 1000, (500,), dtype=torch.int32)
    largest, smallest, unsigned = zeros(1), zeros(1), zeros(1)
    run(target, "atomics", "extremes", 4, 128, [x, largest, smallest, unsigned, 500], order=order, seed=3)
    assert largest.item() == x.max().item()
    assert smallest.item() == x.min().item()
    assert unsigned.item() == x[x < 0].max().item(), "as unsigned numbers the negative ones are the largest"


@on_every_target
def test_atomic_sums_of_float_double_and_64_bits(target):
    x, total, exact, count = (
        whole_numbers(300),
        torch.zeros(1),
        zeros(1, dtype=torch.float64),
        zeros(1, dtype=torch.int64),
    )
    run(target, "atomics", "sums", 3, 128, [x, total, exact, count, 300])
    assert total.item() == exact.item() == x.sum().item()
    assert count.item() == 300 << 33


@on_every_target
def test_compare_and_swap_in_a_loop(target):
    x, out = torch.randn(300), torch.full((1,), -1e30)
    run(target, "atomics", "largest_float", 3, 128, [x, out, 300])
    assert out.item() == x.max().item()


@on_every_target
def test_the_last_block_adds_up_what_the_others_left(target):
    x, partial, finished, out = whole_numbers(300), torch.zeros(5), zeros(1), torch.zeros(1)
    run(target, "atomics", "sum_in_one_launch", 5, 64, [x, partial, finished, out, 300], order="shuffled", seed=1)
    assert out.item() == x.sum().item()


# Matrices


@on_every_target
@pytest.mark.parametrize(("kernel", "tile"), [("matmul_static", 16), ("matmul_dynamic", 16), ("matmul_dynamic", 8)])
def test_a_tiled_product_of_matrices_with_masked_edges(target, kernel, tile):
    rows, columns, inner = 37, 29, 50
    a, b, c = whole_numbers(rows, inner), whole_numbers(inner, columns), torch.zeros(rows, columns)
    grid = (-(-columns // tile), -(-rows // tile))
    shared = 2 * tile * tile * 4 if kernel == "matmul_dynamic" else 0
    run(target, "matrix", kernel, grid, (tile, tile), [a, b, c, rows, columns, inner], shared=shared)
    assert torch.equal(c, a @ b)


@on_every_target
def test_dynamic_shared_memory_lies_behind_the_static(target):
    x, out = torch.arange(64, dtype=torch.int32), zeros(64)
    run(target, "matrix", "static_and_dynamic", 1, 64, [x, out], shared=256)
    assert torch.equal(out, x.flip(0) + 100 * (x % 3))


@on_every_target
def test_a_padded_tile_transposes_with_few_bank_conflicts(target):
    x = torch.randn(64, 64)
    conflicts = {}
    for kernel in ("transpose", "transpose_conflicts"):
        out = torch.zeros(64, 64)
        launch = run(target, "matrix", kernel, (2, 2), (32, 8), [x, out, 64])
        assert torch.equal(out, x.T)
        conflicts[kernel] = launch.counters.totals()["bank_conflicts"]
    banks = MODELS[target].banks
    assert conflicts["transpose"] == 0 if banks == 32 else conflicts["transpose"] < conflicts["transpose_conflicts"] / 7


@on_every_target
def test_72_kib_of_shared_memory_fit_some_chips(target):
    out, elements = zeros(1), 73728 // 4
    if MODELS[target].shared_per_block < 73728:
        with pytest.raises(ResourceLimit, match="73728"):
            run(target, "matrix", "uses_the_last_byte", 1, 256, [out, elements], shared=73728)
    else:
        run(target, "matrix", "uses_the_last_byte", 1, 256, [out, elements], shared=73728)
        assert out.item() == elements - 1


@on_every_target
def test_one_byte_past_dynamic_shared_memory_is_out_of_bounds(target):
    with pytest.raises(OutOfBounds):
        run(target, "matrix", "uses_the_last_byte", 1, 256, [zeros(1), 257], shared=1024)


# The front door


@on_every_target
@pytest.mark.parametrize("sign", [1, -1])
def test_arguments_of_8_and_16_bits(target, sign):
    out = zeros(5)
    given = [200, 100 * sign, 60000, 30000 * sign, sign > 0]
    run(target, "elementwise", "narrow_arguments", 1, 1, [*given, out])
    assert out.tolist() == given


@on_every_target
def test_a_struct_passed_by_value(target):
    out = zeros(1, dtype=torch.float64)
    run(target, "elementwise", "struct_argument", 1, 1, [struct.pack("<fid", 0.5, 7, 2.0), out])
    assert out.item() == 5.5


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
def test_an_access_past_a_tensor_names_the_argument(target):
    with pytest.raises(OutOfBounds, match=r"vector_add.*out"):
        run(target, "elementwise", "vector_add", 4, 256, [torch.zeros(1000), torch.zeros(1000), torch.zeros(900), 1000])


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
def test_an_error_names_the_line_of_the_source(target):
    text = (SOURCES / "elementwise.cu").read_text().split("\n")
    line = next(i for i, words in enumerate(text, 1) if "x[i] + y[i]" in words)
    with pytest.raises(OutOfBounds, match=rf"kernel\.cu:{line}\b"):
        run(target, "elementwise", "vector_add", 1, 64, [torch.zeros(64), torch.zeros(64), torch.zeros(1), 64])


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
def test_plain_text_runs_without_the_signature(target):
    x, y, out = torch.randn(64), torch.randn(64), torch.zeros(64)
    with virtual_gpu(target) as gpu:
        module = gpu.load(compiled("elementwise", target).asm)
        module.launch("vector_add", 1, 64, [x, y, out, 64])
        module.launch("saxpy_grid_stride", 1, 64, [2.0, x, y, 64])
    assert torch.equal(out, x + torch.sub(y, 2 * x)) or torch.allclose(out, y - x)


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
def test_arguments_that_do_not_fit_are_refused_in_one_sentence(target):
    x = torch.zeros(64)
    with virtual_gpu(target) as gpu:
        module = gpu.load(compiled("elementwise", target))
        for args, message in [
            ([x, x, x], "takes 4 arguments, 3 were given"),
            ([x, x, x, x], "n: a tensor was given, the kernel takes an integer of 4 bytes"),
            ([x, x, 3, 64], "out: 3 was given, the kernel takes a pointer"),
            ([x, x, x, 2**32], "does not fit into an integer of 4 bytes"),
            ([x, x, x, 1.5], "n: 1.5 was given, the kernel takes an integer"),
        ]:
            with pytest.raises(BadArgument, match=message):
                module.launch("vector_add", 1, 64, args)
        with pytest.raises(UnknownName, match="did you mean 'vector_add'"):
            module.launch("vectoradd", 1, 64, [x, x, x, 64])
        with pytest.raises(BadArgument, match="the grid is 0"):
            module.launch("vector_add", 0, 64, [x, x, x, 64])
        with pytest.raises(ResourceLimit, match="2048 threads"):
            module.launch("vector_add", 1, 2048, [x, x, x, 64])


def test_what_hipify_makes_of_cuda_source_compiles_and_runs(tmp_path):
    (tmp_path / "cuda").mkdir()
    (tmp_path / "cuda" / "k.cu").write_text(
        "#include <cuda_runtime.h>\n#include <cuda_bf16.h>\n"
        "__global__ void k(const float *x, __nv_bfloat16 *out) { out[threadIdx.x] = __float2bfloat16(x[threadIdx.x]); }"
    )
    results = hipify.hipify(
        str(tmp_path / "cuda"), output_directory=str(tmp_path / "hip"), includes=["*"], is_pytorch_extension=False
    )
    (result,) = results.values()
    source = Path(result.hipified_path).read_text()
    assert "hip_runtime.h" in source
    assert "__hip_bfloat16" in source
    x, out = torch.randn(64), zeros(64, dtype=torch.bfloat16)
    with virtual_gpu("gfx942") as gpu:
        gpu.load(compile_cpp(source, "gfx942")).launch("k", 1, 64, [x, out])
    assert torch.equal(out, x.bfloat16())


@on_every_target
def test_inline_assembly_behind_a_target_check(target):
    source = """
    __global__ void lanes(int *out) {
      int lane;
    #ifdef __AMDGCN__
      asm("v_mbcnt_lo_u32_b32 %0, -1, 0\\n\\tv_mbcnt_hi_u32_b32 %0, -1, %0" : "=v"(lane));
    #else
      asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    #endif
      out[threadIdx.x] = lane;
    }
    """
    out = zeros(128)
    lanes = MODELS[target].lanes
    if lanes == 32:
        source = source.replace("\\n\\tv_mbcnt_hi_u32_b32 %0, -1, %0", "")
    with virtual_gpu(target) as gpu:
        gpu.load(compile_cpp(source, target)).launch("lanes", 1, 128, [out])
    assert out.tolist() == [i % lanes for i in range(128)]


HAND_WRITTEN = """
kernel:
    s_load_b128 s[4:7], s[0:1], 0x0
    s_wait_kmcnt 0x0
    {instruction}
    s_wait_kmcnt 0x0
    v_mov_b32 v0, 0
    v_mov_b32 v1, s8
    global_store_b32 v0, v1, s[6:7]
    s_endpgm
    .amdhsa_kernel kernel
        .amdhsa_user_sgpr_count 2
        .amdhsa_user_sgpr_kernarg_segment_ptr 1
    .end_amdhsa_kernel
    .amdgpu_metadata
amdhsa.kernels:
  - .args:
      - .offset:         0
        .size:           8
        .value_kind:     global_buffer
      - .offset:         8
        .size:           8
        .value_kind:     global_buffer
    .name:           kernel
    .kernarg_segment_size: 16
    .end_amdgpu_metadata
"""


@pytest.mark.parametrize(
    ("instruction", "expected"),
    [
        ("s_load_u8 s8, s[4:5], 0x3", 0xF4),
        ("s_load_i8 s8, s[4:5], 0x3", 0xF4 - 256),
        ("s_load_u16 s8, s[4:5], 0x2", 0xF403),
        ("s_load_i16 s8, s[4:5], 0x2", 0xF403 - 65536),
        ("s_load_i8 s8, s[4:5], 0x1", 0x02),
        ("s_load_u8 s8, s[4:5], 0x4", 0xFF),
        ("s_load_b32 s8, s[4:5], 0x0", 0xF4030201 - (1 << 32)),
    ],
)
def test_narrow_scalar_loads_in_text_written_by_hand(instruction, expected):
    """RDNA4 instruction set manual: S_LOAD_{I,U}{8,16} extend one byte or two to 32 bits."""
    data, out = torch.tensor([1, 2, 3, 0xF4, 0xFF], dtype=torch.uint8), zeros(1)
    with virtual_gpu("gfx1201") as gpu:
        gpu.load(HAND_WRITTEN.format(instruction=instruction)).launch("kernel", 1, 32, [data, out])
    assert out.item() == expected


def test_a_narrow_scalar_load_is_no_instruction_of_gfx11():
    text = HAND_WRITTEN.replace("s_wait_kmcnt 0x0", "s_waitcnt lgkmcnt(0)").format(
        instruction="s_load_u8 s8, s[4:5], 0x3"
    )
    with virtual_gpu("gfx1100") as gpu, pytest.raises(UnsupportedInstruction, match="s_load_u8"):
        gpu.load(text).launch("kernel", 1, 32, [zeros(1), zeros(1)])


def test_text_for_another_chip_is_refused():
    with virtual_gpu("gfx90a") as gpu, pytest.raises(BadArgument, match="compiled for gfx942"):
        gpu.load(compiled("elementwise", "gfx942"))
    with virtual_gpu("sm_80") as gpu, pytest.raises(BadArgument, match="compiled for sm_90"):
        gpu.load(compiled("elementwise", "sm_90").asm)
    with virtual_gpu("sm_80") as gpu, pytest.raises(BadArgument, match="no kernel"):
        gpu.load("int main() { return 0; }")


def test_ptx_runs_on_a_later_architecture():
    x, out = torch.randn(64), torch.zeros(64)
    with virtual_gpu("sm_90") as gpu:
        gpu.load(compiled("elementwise", "sm_80")).launch("vector_add", 1, 64, [x, x, out, 64])
    assert torch.equal(out, x + x)


@pytest.mark.parametrize(("target", "old"), [("sm_80", "add.f32"), ("gfx942", "v_add_f32_e32")])
def test_an_unknown_instruction_stops_the_kernel_before_anything_runs(target, old):
    text = compiled("elementwise", target).asm
    assert old in text
    with virtual_gpu(target) as gpu:
        module = gpu.load(text.replace(old, old.replace("add", "frob")))
        out = torch.zeros(64)
        with pytest.raises(UnsupportedInstruction, match="frob"):
            module.launch("vector_add", 1, 64, [out, out, out, 64])
        assert not gpu.launches
