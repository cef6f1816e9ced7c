"""Unit 02: what its exercises expect is what compiled kernels do, what LLVM and torch say, and what the models give."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl

from gpu_utils import exercises, virtual_gpu
from gpu_utils.analytic import inference, roofline, tiles
from gpu_utils.analytic.access import bank_conflicts
from gpu_utils.analytic.occupancy import occupancy
from gpu_utils.chips import TARGETS
from gpu_utils.compiler import compile_for, resources
from gpu_utils.compiler.clang import compile_cpp
from gpu_utils.compiler.holding import holding
from gpu_utils.compiler.reading import compiler_notes
from gpu_utils.course import sources
from gpu_utils.exercises.u02_gpu_machine import converge, transpose
from gpu_utils.exercises.u02_gpu_machine.best_tile import moved
from gpu_utils.exercises.u02_gpu_machine.converge import AS_GIVEN, most_accesses
from gpu_utils.exercises.u02_gpu_machine.numbers import up
from gpu_utils.exercises.u02_gpu_machine.serve import MODELS
from gpu_utils.grading.check import check
from gpu_utils.grading.exercise import Example

PATTERNS = """


__global__ void read_shared(const int *offsets, int *out) {
  __shared__ volatile char tile[16384];
  for (int i = threadIdx.x; i < 16384; i += blockDim.x) tile[i] = 1;  // side by side: no conflict
  __syncthreads();
  int at = offsets[threadIdx.x];
  if (at >= 0) *out = tile[at];
}
"""


def exercise(name):
    return exercises.find(f"02.{name}")


def inputs_of(name, fresh=40):
    """Inputs of every public case and of `fresh` fresh ones."""
    found, rng = exercise(name), random.Random(2)
    cases = [*found.cases, *(found.fresh(rng) for _ in range(fresh))]
    return [
        case.inputs if isinstance(case, Example) else found.inputs(case, torch.Generator().manual_seed(index))
        for index, case in enumerate(cases)
    ]


def expected(name, inputs):
    return exercise(name).reference(**inputs)


# --- against the models of the library --------------------------------------------------------------------------


def test_bank_conflicts_are_those_of_the_model_of_banks():
    for given in inputs_of("bank_conflicts"):
        assert bank_conflicts(**given).conflicts == expected("bank_conflicts", given), given


def test_occupancy_is_that_of_the_model():
    for given in inputs_of("occupancy"):
        target = TARGETS[given["target"]]
        found = [
            occupancy(target, kernel["registers"], kernel["shared_bytes"], kernel["num_warps"])
            for kernel in given["launches"]
        ]
        said = expected("occupancy", given)
        assert said["blocks"] == [each.blocks for each in found], given
        waves = [each.waves for each in found]
        assert said["most_waves"] == waves.index(max(waves))
        for ours, each in zip(said["limited_by"], found, strict=True):
            theirs = {"shared memory" if name == "LDS" else name for name in each.limited_by}
            assert set(ours) == (theirs - {"blocks"} if target.vendor == "amd" else theirs), given


def test_the_bytes_of_a_tile_are_those_of_the_model():
    for given in inputs_of("best_tile"):
        found = expected("best_tile", given)
        block_m, block_n = given["tiles"][found["tile"]]
        model = tiles.tile_traffic(given["M"], given["N"], given["K"], block_m, block_n, 32, 2)
        assert found["bytes"] == model.read_a + model.read_b + model.written
        ridge = given["tflops"] / given["tb_per_s"]
        assert found["bound"] == ("memory" if model.intensity < ridge else "compute")


def test_what_fits_and_how_fast_it_is_are_those_of_the_models():
    for given in inputs_of("serve"):
        model, found = given["model"], expected("serve", given)
        if "latent" in model:
            shape = inference.mla(model["layers"], model["latent"], model["rope"])
        else:
            shape = inference.gqa(model["layers"], model["kv_heads"], model["head_dim"])
        weights = model["parameters"] * given["weight_bytes"]
        for chip, batch, rate in zip(given["chips"], found["batch"], found["tokens_per_s"], strict=True):
            room = chip["memory_gb"] * inference.GB - weights
            fits = [shape.total(n, given["context"], given["cache_bytes"]) <= room for n in (batch, batch + 1)]
            assert fits == [True, False] or (batch == 0 and not fits[1])
            if batch:
                roof = roofline.Roofline("chip", chip["tflops"] * 1e12, chip["tb_per_s"] * 1e12)
                traffic = weights + shape.total(batch, given["context"], given["cache_bytes"])
                step = roof.seconds(roofline.Point("step", 2 * model["parameters"] * batch, traffic))
                assert rate == pytest.approx(batch / step, rel=1e-12)
        assert found["take"] == found["tokens_per_s"].index(max(found["tokens_per_s"]))


def test_the_models_of_serve_are_those_of_the_memory_planner():
    for name, model in inference.MODELS.items():
        ours = next(sizes for label, sizes in MODELS.items() if label.startswith(name))
        assert ours["parameters"] == model.parameters
        kept = ours["latent"] + ours["rope"] if "latent" in ours else 2 * ours["kv_heads"] * ours["head_dim"]
        assert 2 * ours["layers"] * kept == model.cache.per_token(2)


# --- against machine code on the virtual GPU ---------------------------------------------------------------------


def launched(target, kernel, offsets, *tensors):
    """Totals of one wave whose lanes go to `offsets` (-1: off)."""
    words = torch.tensor([-1 if at is None else at for at in offsets], dtype=torch.int32)
    with virtual_gpu(target) as gpu:
        gpu.load(compile_cpp(PATTERNS, target)).launch(kernel, 1, len(offsets), [words, *tensors])
    return gpu.counters.totals()


@pytest.mark.usefixtures("clang")
def test_bank_conflicts_are_those_of_a_compiled_kernel():
    seen = set()
    for given in inputs_of("bank_conflicts", fresh=12):
        lanes, banks = len(given["addresses"]), given["banks"]
        if banks < 32:  # the example of the statement
            continue
        target = "sm_80" if lanes == 32 else "gfx942" if banks == 32 else "gfx950"
        totals = launched(target, "read_shared", given["addresses"], torch.zeros(1, dtype=torch.int32))
        assert totals["bank_conflicts"] == expected("bank_conflicts", given), given
        seen.add(target)
    assert seen == {"sm_80", "gfx942", "gfx950"}


@pytest.mark.usefixtures("clang")
def test_the_loop_that_the_lab_shows_issues_150_instructions_on_shared_memory_and_45_are_enough():
    assert most_accesses(256) == 45
    lab = (Path(exercises.__file__).parents[2] / "content/02_gpu_machine/lab.py").read_text("utf-8")
    assert all(f"# {line[2:]}" in lab for line in AS_GIVEN.splitlines())
    assert counted(converge.ANSWER.filled(AS_GIVEN)(), "sm_80")["shared_accesses"] == 150
    assert counted(converge.ANSWER(), "sm_80")["shared_accesses"] == 45


def counted(source, target):
    with virtual_gpu(target) as gpu:
        gpu.load(compile_cpp(source, target)).launch("block_sum", 1, 256, [torch.ones(256), torch.zeros(1)])
    return gpu.counters.totals()


@triton.jit
def product_kernel(a_ptr, b_ptr, c_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        a = tl.load(a_ptr + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        b = tl.load(b_ptr + k[:, None] * N + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
        total = tl.dot(a, b, total)
    tl.store(c_ptr + m[:, None] * N + n[None, :], total.to(tl.float16), mask=(m[:, None] < M) & (n[None, :] < N))


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
@pytest.mark.parametrize(("M", "N", "K"), [(128, 192, 96), (100, 150, 75)])
def test_the_bytes_of_a_tile_are_those_of_a_compiled_matmul(target, M, N, K):
    a, b = torch.randn(M, K).half(), torch.randn(K, N).half()
    c = torch.empty(M, N, dtype=torch.float16)
    grid = (triton.cdiv(M, 32), triton.cdiv(N, 64))
    with virtual_gpu(target) as gpu:
        product_kernel[grid](a, b, c, M, N, K, BLOCK_M=32, BLOCK_N=64, BLOCK_K=32, num_warps=1)
    totals = gpu.counters.totals()
    assert totals["global_load_bytes"] + totals["global_store_bytes"] == moved(M, N, K, (32, 64))


# --- against LLVM, torch and transformers ------------------------------------------------------------------------


@triton.jit
def softmax_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * n + at, mask=at < n, other=-float("inf"))
    e = tl.exp(x - tl.max(x, 0))
    tl.store(out_ptr + tl.program_id(0) * n + at, e / tl.sum(e, 0), mask=at < n)


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
def test_kernels_of_triton_hold_as_many_waves_as_llvm_says(target):
    pointers = {"a_ptr": "*fp16:16", "b_ptr": "*fp16:16", "c_ptr": "*fp16:16", "M": "i32", "N": "i32", "K": "i32"}
    tile = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 32}
    kernels = [
        compile_for(product_kernel, target, signature=pointers, num_warps=4, **tile),
        compile_for(
            softmax_kernel,
            target,
            signature={"x_ptr": "*fp32", "out_ptr": "*fp32", "n": "i32"},
            BLOCK=16384,
            num_warps=4,
        ),
    ]
    for compiled in kernels:
        found = resources(compiled)
        said = int(compiled.asm.split("; Occupancy: ")[1].split("\n")[0])
        if found.sgprs <= 100:  # above that, scalar registers count as well
            assert min(8, 512 // up(found.registers, 8)) == said, found


@pytest.mark.parametrize(("vgprs", "waves"), [(64, 8), (65, 7), (72, 7), (73, 6), (161, 3), (168, 3), (170, 2)])
def test_llvm_hands_out_registers_by_8(vgprs, waves):
    assert compiler_notes(holding(vgprs))["Occupancy"] == waves


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_the_cache_is_as_large_as_that_of_transformers(kv_heads):
    from transformers import MistralConfig, MistralModel

    config = MistralConfig(
        vocab_size=50,
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=kv_heads,
        head_dim=16,
    )
    with torch.no_grad():
        cache = MistralModel(config)(torch.zeros(2, 7, dtype=torch.int64), use_cache=True).past_key_values
    held = sum(
        tensor.numel() * tensor.element_size() for layer in cache.layers for tensor in (layer.keys, layer.values)
    )
    model = {"layers": 3, "heads": 4, "kv_heads": kv_heads, "head_dim": 16, "parameters": 0}
    given = {"model": model, "context": 7, "cache_bytes": 4, "weight_bytes": 4}
    two = {"memory_gb": held / 10**9, "tb_per_s": 1.0, "tflops": 1.0}
    one = {**two, "memory_gb": (held - 1) / 10**9}
    assert expected("serve", {**given, "chips": [two, one]})["batch"] == [2, 1]


# --- honest answers that are written another way -----------------------------------------------------------------


def judged(name, answer):
    return check(exercise(name), answer, seed=7)


def test_bank_conflicts_by_serving_cycle_after_cycle_pass():
    def bank_conflicts(addresses, banks):
        extra = 0
        for start in range(0, len(addresses), banks):
            waiting = {at // 4 for at in addresses[start : start + banks] if at is not None}
            cycles = 0
            while waiting:
                served = {}
                for word in waiting:
                    served.setdefault(word % banks, word)
                waiting -= set(served.values())
                cycles += 1
            extra += max(0, cycles - 1)
        return extra

    assert judged("bank_conflicts", bank_conflicts).passed


@triton.jit
def whole_tiles_kernel(x_ptr, cos_ptr, sin_ptr, out_ptr, pairs, BLOCK: tl.constexpr):
    flat = tl.program_id(0) * 2 * BLOCK + tl.arange(0, 2 * BLOCK)
    pair = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + flat, mask=flat < 2 * pairs)
    a, b = tl.split(tl.reshape(x, (BLOCK, 2)))
    c, s = tl.load(cos_ptr + pair, mask=pair < pairs), tl.load(sin_ptr + pair, mask=pair < pairs)
    tl.store(out_ptr + flat, tl.interleave(a * c - b * s, a * s + b * c), mask=flat < 2 * pairs)


def test_pairs_by_reshape_and_interleave_pass():
    def coalesce(x, cos, sin):
        out = torch.empty_like(x)
        pairs = x.numel() // 2
        whole_tiles_kernel[(triton.cdiv(pairs, 512),)](x, cos, sin, out, pairs, BLOCK=512)
        return out

    report = judged("coalesce", coalesce)
    assert report.passed, report.headline


@triton.jit
def sums_of_tiles_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    total = 0.0
    for start in range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.sum(tl.load(x_ptr + at, mask=at < n, other=0.0), 0)
    tl.store(out_ptr + tl.program_id(0), total)


def test_a_kernel_that_needs_fewer_registers_and_has_more_programs_passes():
    def sized_reduction(x, units, BLOCK, num_warps, target):
        shape = {"BLOCK": BLOCK, "num_warps": num_warps}
        needs = resources(compile_for(sums_of_tiles_kernel, target, (x, x, len(x)), **shape))
        launch = {"registers": needs.registers, "shared_bytes": needs.shared, "num_warps": num_warps}
        programs = units * expected("occupancy", {"launches": [launch], "target": target})["blocks"][0]
        out = torch.zeros(programs, device=x.device)
        sums_of_tiles_kernel[(programs,)](x, out, len(x), **shape)
        return out

    report = judged("sized_reduction", sized_reduction)
    assert report.passed, report


XOR = (("(x + i) % 32", "x ^ i"), ("(i + x) % 32", "i ^ x"))


@pytest.mark.usefixtures("clang")
def test_a_tile_swizzled_by_xor_passes():
    report = judged("transpose", transpose.ANSWER.changed(*XOR))
    assert report.passed, report


WITH_SHUFFLES = """
  for (int step = blockDim.x / 2; step >= 64; step /= 2) {
    if (threadIdx.x < step) sums[threadIdx.x] += sums[threadIdx.x + step];
    __syncthreads();
  }
  if (threadIdx.x < 32) {
    float value = sums[threadIdx.x] + sums[threadIdx.x + 32];
    for (int offset = 16; offset > 0; offset /= 2) value += __shfl_down_sync(__activemask(), value, offset, 32);
    if (threadIdx.x == 0) sums[0] = value;
  }
"""


@pytest.mark.usefixtures("clang")
def test_a_tree_whose_last_steps_are_shuffles_passes():
    report = judged("converge", converge.ANSWER.filled(WITH_SHUFFLES.strip("\n")))
    assert report.passed, report


def test_the_order_of_limits_does_not_matter():
    def backwards(launches, target):
        found = expected("occupancy", {"launches": launches, "target": target})
        return {**found, "limited_by": [tuple(reversed(names)) for names in found["limited_by"]]}

    assert judged("occupancy", backwards).passed


def test_a_choice_by_two_times_passes():
    def best_tile(M, N, K, tiles, tflops, tb_per_s):
        sizes = {
            index: 2 * (math.ceil(N / n) * M * K + math.ceil(M / m) * K * N + M * N)
            for index, (m, n) in enumerate(tiles)
            if m * n / 256 <= 128
        }
        best = min(sizes, key=sizes.get)
        times = {"compute": 2 * M * N * K / (tflops * 1e12), "memory": sizes[best] / (tb_per_s * 1e12)}
        return {"tile": best, "bytes": sizes[best], "bound": max(times, key=times.get)}

    assert judged("best_tile", best_tile).passed


# --- wrong answers with one slip, which only one case tells from right ones ----------------------------------------


def with_slip(name, right, wrong):
    """The lab's solution with some of its text replaced."""
    source = sources.solution(f"02.{name}")
    assert right in source
    return sources.load(f"02.{name}", source.replace(right, wrong))


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("bank_conflicts", "address // 4", "-(-address // 4)"),
        ("bank_conflicts", "if words:", "if group[0] is not None:"),
        ("bank_conflicts", "for address in group if address is not None", "for address in [at or 0 for at in group]"),
        ("best_tile", "(moved, number)", "(moved, block_m * block_n, number)"),
        (
            "best_tile",
            "if block_m * block_n <= 256 * 128",
            "if max(block_m, block_n) <= 256 and block_m * block_n <= 32768",
        ),
        ("serve", '2 * model["parameters"] * batch', "weights * batch"),
        ("serve", '2 * model["parameters"] * batch', "2 * weights * batch"),
        ("serve", 'model["parameters"] * weight_bytes', 'model["parameters"] * 2'),
        ("occupancy", 'allowed["blocks"] = t.blocks_per_unit', 'allowed["blocks"] = 32'),
        ("occupancy", "t.waves_per_unit //", '(64 if t.vendor == "nvidia" else t.waves_per_unit) //'),
        ("occupancy", 'allowed["shared memory"] = 0', 'allowed = {"shared memory": 0}'),
        ("occupancy", "-(-asked // t.shared_granule) * t.shared_granule", "-(-asked // 1024) * 1024"),
        ("occupancy", "t.shared_per_unit //", '(65536 if target == "gfx1100" else t.shared_per_unit) //'),
        ("occupancy", "waves.append(fewest * warps)", "waves.append(fewest * warps - registers / 1000)"),
    ],
)
def test_a_slip_fails_a_public_case_whatever_the_seed(name, right, wrong):
    for seed in (7, 8):
        report = check(exercise(name), with_slip(name, right, wrong), seed=seed)
        assert any(outcome.status == "failed" and not outcome.fresh for outcome in report.outcomes)


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("best_tile", "if block_m * block_n <= 256 * 128", "if min(block_m, block_n) <= 128"),
        ("best_tile", "(moved, number)", "(moved, -block_n, number)"),
        ("best_tile", "if slower", "if True"),
        ("occupancy", 'allowed["blocks"] = t.blocks_per_unit', 'allowed["blocks"] = 32'),
    ],
)
def test_a_slip_that_meets_a_misconception_on_one_case_only_is_not_given_its_hint(name, right, wrong):
    assert judged(name, with_slip(name, right, wrong)).misconception == ""


def test_limits_in_sets_pass():
    def in_sets(launches, target):
        found = expected("occupancy", {"launches": launches, "target": target})
        return {**found, "limited_by": [frozenset(names) for names in found["limited_by"]]}

    assert judged("occupancy", in_sets).passed


@triton.jit
def copy_kernel(from_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(from_ptr + at, mask=at < n), mask=at < n)


def test_a_kernel_that_copies_what_torch_has_turned_fails():
    def coalesce(x, cos, sin):
        a, b = x[:, 0::2], x[:, 1::2]
        turned = torch.stack((a * cos - b * sin, a * sin + b * cos), 2).reshape(x.shape)
        out = torch.empty_like(x)
        copy_kernel[(triton.cdiv(x.numel(), 1024),)](turned, out, x.numel(), BLOCK=1024)
        return out

    assert judged("coalesce", coalesce).first_failure.kind == "torch:work"


def test_one_program_with_4096_pairs_fails():
    def coalesce(x, cos, sin):
        out = torch.empty_like(x)
        whole_tiles_kernel[(1,)](x, cos, sin, out, x.numel() // 2, BLOCK=4096, num_warps=16)
        return out

    report = check(exercise("coalesce"), coalesce, backends=["virtual:sm_80"], seed=7)
    assert report.first_failure.case == "tokens=2, d=6144"


TWO_LEVELS = """
  float value = sums[threadIdx.x];
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_down_sync(__activemask(), value, offset, 32);
  __syncthreads();
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
  __syncthreads();
  if (threadIdx.x < 32) {
    value = threadIdx.x < blockDim.x / 32 ? sums[threadIdx.x] : 0.0f;
    for (int offset = 16; offset > 0; offset /= 2) value += __shfl_down_sync(__activemask(), value, offset, 32);
    if (threadIdx.x == 0) sums[0] = value;
  }
"""
WARPS_IN_STEP_WITH_SYNCWARP = """
  int t = threadIdx.x;
  for (int step = blockDim.x / 2; step > 32; step /= 2) {
    if (t < step) sums[t] += sums[t + step];
    __syncthreads();
  }
  if (t < 32)
    for (int step = 32; step > 0; step /= 2) {
      float other = t < step ? sums[t + step] : 0.0f;
      __syncwarp();
      sums[t] += other;
      __syncwarp();
    }
"""


@pytest.mark.usefixtures("clang")
@pytest.mark.parametrize("part", [TWO_LEVELS, WARPS_IN_STEP_WITH_SYNCWARP], ids=["shuffles", "syncwarp"])
def test_sums_with_fewer_barriers_of_the_block_pass(part):
    report = judged("converge", converge.ANSWER.filled(part.strip("\n")))
    assert report.passed, report


RETURNS_EARLY = """
  for (int step = blockDim.x / 2; step > 0; step /= 2) {
    if (threadIdx.x >= step) return;
    sums[threadIdx.x] += sums[threadIdx.x + step];
    __syncthreads();
  }
"""


@pytest.mark.usefixtures("clang")
def test_threads_that_return_before_a_barrier_are_told_so():
    report = judged("converge", converge.ANSWER.filled(RETURNS_EARLY.strip("\n")))
    assert report.first_failure.kind == "error:MissedBarrier"
    assert report.misconception == "barrier_in_the_branch"


@pytest.mark.usefixtures("clang")
def test_rows_that_are_moved_twice_are_not_called_stores_down_a_column():
    report = judged("transpose", transpose.ANSWER.changed(("i += 8", "i += 4")))
    assert report.first_failure.kind == "limit:global_moved_bytes"
    assert report.misconception == ""


@pytest.mark.usefixtures("clang")
def test_a_tile_without_a_barrier_is_told_of_other_waves_first():
    no_barrier = next(one for one in transpose.EXERCISE.misconceptions if one.name == "no_barrier")
    detail = judged("transpose", no_barrier.answer).first_failure.detail
    assert "wave 1 has written" in detail
    assert "__syncwarp" not in detail


def test_a_tile_that_one_lane_could_hold_gets_the_hint_about_the_other_lanes():
    def best_tile(M, N, K, tiles, tflops, tb_per_s):
        fits = [tile for tile in tiles if tile[0] * tile[1] <= 128]
        found = expected("best_tile", {"M": M, "N": N, "K": K, "tiles": fits, "tflops": tflops, "tb_per_s": tb_per_s})
        return {**found, "tile": tiles.index(fits[found["tile"]])}

    assert judged("best_tile", best_tile).misconception == "lanes_forgotten"
