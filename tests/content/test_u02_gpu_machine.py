"""Unit 02: what its exercises expect is what compiled kernels do, what LLVM and torch say, and what the models give."""

from __future__ import annotations

import math
import random
from types import SimpleNamespace

import pytest
import torch
import triton
import triton.language as tl
from torch.utils.flop_counter import FlopCounterMode

from gpu_utils import exercises, virtual_gpu
from gpu_utils.analytic import access, inference, operators, roofline, tiles
from gpu_utils.analytic.divergence import divergence
from gpu_utils.analytic.occupancy import occupancy
from gpu_utils.chips import TARGETS
from gpu_utils.compiler import compile_for, resources
from gpu_utils.compiler.clang import compile_cpp
from gpu_utils.exercises.u02_gpu_machine.kv_cache_bytes import MODELS
from gpu_utils.exercises.u02_gpu_machine.occupancy_amd import llvm_occupancy
from gpu_utils.grading.check import check
from gpu_utils.model import gpt2

NAMES = (
    *("transactions", "bank_conflicts", "divergence", "occupancy_nvidia", "occupancy_amd"),
    *("attainable", "arithmetic_intensity", "kv_cache_bytes", "tile_traffic"),
)
PATTERNS = """


__global__ void touch4(const int *offsets, char *x) {
  int at = offsets[threadIdx.x];
  if (at >= 0) *(volatile int *)(x + at) = 1;
}

__global__ void touch16(const int *offsets, char *x) {
  typedef int four __attribute__((ext_vector_type(4)));
  int at = offsets[threadIdx.x];
  if (at >= 0) *(volatile four *)(x + at) = four{1, 1, 1, 1};
}

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
    return [found.inputs(case, torch.Generator().manual_seed(index)) for index, case in enumerate(cases)]


def expected(name, inputs):
    return exercise(name).reference(**inputs)


# --- against the models of the library, which the lesson and the explorers use ----------------------------------


def of_model(name, given):
    """What gpu_utils.analytic says, in the form of the exercise."""
    g = SimpleNamespace(**given)
    if name == "transactions":
        return access.transactions(g.addresses, g.access_bytes, g.segment)
    if name == "bank_conflicts":
        return access.bank_conflicts(g.addresses, g.banks).conflicts
    if name == "divergence":
        found = divergence(g.paths, g.width, dict(enumerate(g.instructions)))
        return {"issued": found.issued, "lost": found.lost}
    if name == "occupancy_nvidia":
        found = occupancy(TARGETS[g.target], g.registers, g.shared_bytes, g.num_warps)
        limits = ["warps" if limit == "waves" else limit for limit in found.limited_by]
        return {"blocks": found.blocks, "limited_by": limits, "occupancy": found.fraction}
    if name == "occupancy_amd":
        registers = math.ceil(g.vgprs / 4) * 4 + g.agprs if g.agprs else g.vgprs
        found = occupancy(TARGETS[g.target], registers, g.lds_bytes, g.num_waves)
        limits = [limit for limit in found.limited_by if limit != "blocks"]  # the barriers never bind alone
        return {
            "waves_per_simd": found.waves_per_simd,
            "blocks": found.blocks,
            "limited_by": limits,
            "occupancy": found.fraction,
        }
    if name == "attainable":
        roof = roofline.Roofline("chip", g.peak_tflops * 1e12, g.bandwidth_tb * 1e12)
        point = roofline.Point("kernel", g.flops, g.bytes_moved)
        return {
            "intensity": point.intensity,
            "tflops": roof.attainable(point.intensity) / 1e12,
            "bound": roof.bound(point.intensity),
            "us": roof.seconds(point) * 1e6,
        }
    if name == "arithmetic_intensity":
        shape = SimpleNamespace(n_embd=g.n_embd, n_head=g.n_head, n_layer=1, vocab_size=g.vocab_size)
        found = operators.gpt2_operators(shape, g.batch, g.tokens, g.context, bytes_per_value=g.bytes_per_value)
        return {
            op.name: {"flops": op.flops, "bytes": op.bytes, "intensity": op.intensity}
            for op in found
            if op.name != "embedding"
        }
    if name == "kv_cache_bytes":
        model = g.model
        if "latent" in model:
            shape = inference.mla(model["layers"], model["latent"], model["rope"])
        else:
            shape = inference.gqa(model["layers"], model["kv_heads"], model["head_dim"])
        room = g.memory_gb * inference.GB - model["parameters"] * g.weight_bytes
        fits = 0
        while shape.total(fits + 1, g.context, g.cache_bytes) <= room:
            fits += 1
        return {
            "per_token": int(shape.per_token(g.cache_bytes)),
            "cache": shape.total(g.batch, g.context, g.cache_bytes),
            "largest_batch": fits,
        }
    found = tiles.tile_traffic(g.M, g.N, g.K, g.block_m, g.block_n, g.block_k, g.bytes_per_value)
    return {"read_a": found.read_a, "read_b": found.read_b, "written": found.written, "intensity": found.intensity}


@pytest.mark.parametrize("name", NAMES)
def test_what_is_expected_is_what_the_models_of_the_library_say(name):
    for inputs in inputs_of(name):
        assert of_model(name, inputs) == approximately(expected(name, inputs)), inputs


def approximately(value):
    """pytest.approx for the floats of a nested answer; the rest exact."""
    if isinstance(value, dict):
        return {key: approximately(item) for key, item in value.items()}
    return pytest.approx(value, rel=1e-12) if isinstance(value, float) else value


def test_the_models_of_kv_cache_bytes_are_those_of_the_memory_planner():
    for name, model in inference.MODELS.items():
        ours = next(sizes for label, sizes in MODELS.items() if label.startswith(name))
        assert ours["parameters"] == model.parameters
        given = {"model": ours, "batch": 1, "context": 1, "cache_bytes": 2, "weight_bytes": 2, "memory_gb": 80}
        assert expected("kv_cache_bytes", given)["per_token"] == model.cache.per_token(2)


# --- against machine code on the virtual GPU ---------------------------------------------------------------------


def launched(target, kernel, offsets, *tensors):
    """Totals of one wave whose lanes go to `offsets` (-1: off)."""
    words = torch.tensor([-1 if at is None else at for at in offsets], dtype=torch.int32)
    with virtual_gpu(target) as gpu:
        gpu.load(compile_cpp(PATTERNS, target)).launch(kernel, 1, len(offsets), [words, *tensors])
    return gpu.counters.totals()


@pytest.mark.usefixtures("clang")
def test_transactions_are_those_of_a_compiled_kernel():
    targets = {32: "sm_80", 64: "gfx90a", 128: "gfx942"}
    seen = set()
    for given in inputs_of("transactions", fresh=12):
        target = targets[given["segment"]]
        if len(given["addresses"]) != TARGETS[target].lanes:
            continue
        reach = max((at for at in given["addresses"] if at is not None), default=0) + given["access_bytes"]
        x = torch.zeros(reach, dtype=torch.int8)
        totals = launched(target, f"touch{given['access_bytes']}", given["addresses"], x)
        assert totals["global_store_sectors"] == expected("transactions", given), given
        seen.add((target, given["access_bytes"]))
    assert seen >= {("sm_80", 4), ("gfx90a", 4), ("gfx942", 4), ("gfx942", 16)}


@pytest.mark.usefixtures("clang")
def test_bank_conflicts_are_those_of_a_compiled_kernel():
    seen = set()
    for given in inputs_of("bank_conflicts", fresh=12):
        lanes, banks = len(given["addresses"]), given["banks"]
        target = "sm_80" if lanes == 32 else "gfx942" if banks == 32 else "gfx950"
        totals = launched(target, "read_shared", given["addresses"], torch.zeros(1, dtype=torch.int32))
        assert totals["bank_conflicts"] == expected("bank_conflicts", given), given
        seen.add(target)
    assert seen == {"sm_80", "gfx942", "gfx950"}


BRANCH = """
__global__ void branch(const int *paths, float *out) {{
  int path = paths[threadIdx.x];
  float x = out[threadIdx.x];
  {paths}
  out[threadIdx.x] = x;
}}
"""
STEP = {"sm_80": "ex2.approx.ftz.f32 %0, %0;", "gfx942": "v_exp_f32 %0, %0"}


def branch_source(instructions, target):
    """A kernel whose path p is instructions[p] exponentials, which nothing else in it is."""
    register = "f" if target.startswith("sm") else "v"
    step = f'asm volatile("{STEP[target]}" : "+{register}"(x));'
    return BRANCH.format(
        paths="\n  ".join(f"if (path == {p}) {{ {step * count} }}" for p, count in enumerate(instructions))
    )


@pytest.mark.usefixtures("clang")
def test_divergence_is_that_of_a_compiled_kernel():
    targets = {32: "sm_80", 64: "gfx942"}
    seen = set()
    for given in inputs_of("divergence", fresh=4):
        target = targets[given["width"]]
        paths = torch.tensor([99 if path is None else path for path in given["paths"]], dtype=torch.int32)
        out = torch.zeros(len(paths))
        with virtual_gpu(target) as gpu:
            source = branch_source(given["instructions"], target)
            launch = gpu.load(compile_cpp(source, target)).launch("branch", 1, len(paths), [paths, out])
        steps = [op.index for op in launch.program.ops if op.mnemonic.startswith(("ex2", "v_exp_f32"))]
        per_op = launch.counters.per_op()
        issued, lanes = (sum(per_op[at][part] for at in steps) for part in (0, 1))
        assert {"issued": issued, "lost": issued * given["width"] - lanes} == expected("divergence", given), given
        seen.add(target)
    assert seen == {"sm_80", "gfx942"}


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
def test_tile_traffic_is_that_of_a_compiled_matmul(target, M, N, K):
    blocks = {"block_m": 32, "block_n": 64, "block_k": 32}
    a, b = torch.randn(M, K).half(), torch.randn(K, N).half()
    c = torch.empty(M, N, dtype=torch.float16)
    grid = (triton.cdiv(M, 32), triton.cdiv(N, 64))
    with virtual_gpu(target) as gpu:
        product_kernel[grid](a, b, c, M, N, K, BLOCK_M=32, BLOCK_N=64, BLOCK_K=32, num_warps=1)
    totals = gpu.counters.totals()
    given = expected("tile_traffic", {"M": M, "N": N, "K": K, **blocks, "bytes_per_value": 2})
    assert totals["global_load_bytes"] == given["read_a"] + given["read_b"]
    assert totals["global_store_bytes"] == given["written"]


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
        given = {"lds_bytes": found.shared, "num_waves": 4, "target": target}
        if found.sgprs <= 100:  # above that, scalar registers count as well
            answer = expected("occupancy_amd", {"vgprs": found.vgprs, "agprs": found.agprs, **given})
            assert answer["waves_per_simd"] == said, found


@pytest.mark.parametrize(("vgprs", "waves"), [(64, 8), (65, 7), (72, 7), (73, 6), (168, 3), (169, 2)])
def test_llvm_hands_out_registers_by_8(vgprs, waves):
    assert llvm_occupancy(vgprs, 0, "gfx942") == waves


@pytest.mark.parametrize("target", ["gfx90a", "gfx942"])
def test_llvm_counts_agprs_from_a_multiple_of_4(target):
    for vgprs, agprs in [(65, 15), (66, 12), (61, 4), (33, 40), (5, 64)]:
        total = math.ceil(vgprs / 4) * 4 + agprs
        assert llvm_occupancy(vgprs, agprs, target) == min(8, 512 // (math.ceil(total / 8) * 8))


def test_flops_are_those_that_torch_counts():
    config = gpt2.GPT2Config(vocab_size=97, n_positions=32, n_embd=64, n_layer=3, n_head=4)
    model = gpt2.GPT2(config, attention="explicit")
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(torch.zeros(2, 16, dtype=torch.int64))
    given = {"batch": 2, "tokens": 16, "context": 16, "n_embd": 64, "n_head": 4, "vocab_size": 97}
    counted = expected("arithmetic_intensity", {**given, "bytes_per_value": 4})
    layer = ("qkv", "attention", "projection", "MLP up", "MLP down")
    products = 3 * sum(counted[name]["flops"] for name in layer) + counted["logits"]["flops"]
    assert products == counter.get_total_flops()


def test_bytes_of_a_norm_and_of_linear_layers_are_those_of_their_tensors():
    config = gpt2.GPT2Config(vocab_size=97, n_positions=32, n_embd=64, n_layer=1, n_head=4)
    model = gpt2.GPT2(config)
    moved = {}

    def record(name):
        def hook(module, inputs, output):
            tensors = [*inputs, *module.parameters(recurse=False), output]
            moved[name] = sum(t.numel() * t.element_size() for t in tensors if isinstance(t, torch.Tensor))

        return hook

    for name, module in model.named_modules():
        module.register_forward_hook(record(name))
    with torch.no_grad():
        model(torch.zeros(2, 16, dtype=torch.int64))
    given = {"batch": 2, "tokens": 16, "context": 16, "n_embd": 64, "n_head": 4, "vocab_size": 97}
    counted = expected("arithmetic_intensity", {**given, "bytes_per_value": 4})
    ours = {"norm": "ln_1", "qkv": "attn.c_attn", "projection": "attn.c_proj"}
    for operator, module in ours.items():
        assert counted[operator]["bytes"] == moved[f"h.0.{module}"]


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
    given = {"model": model, "batch": 2, "context": 7, "cache_bytes": 4, "weight_bytes": 4, "memory_gb": 1}
    assert expected("kv_cache_bytes", given)["cache"] == held


# --- honest answers that are written another way -----------------------------------------------------------------


def judged(name, answer):
    return check(exercise(name), answer, seed=7)


def test_transactions_by_marking_bytes_pass():
    def transactions(addresses, access_bytes, segment):
        marks = torch.zeros(max([at + access_bytes for at in addresses if at is not None], default=0) + segment)
        for at in addresses:
            if at is not None:
                marks[at : at + access_bytes] = 1
        whole = len(marks) // segment * segment
        return int(marks[:whole].view(-1, segment).any(1).sum()) + bool(marks[whole:].any())

    assert judged("transactions", transactions).passed


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


def test_divergence_lane_by_lane_passes():
    def divergence(paths, instructions, width):
        padded = [*paths, *[None] * (-len(paths) % width)]
        cost = {"issued": 0, "lost": 0}
        for start in range(0, len(padded), width):
            for path in {path for path in padded[start : start + width] if path is not None}:
                off = sum(other != path for other in padded[start : start + width])
                cost["issued"] += instructions[path]
                cost["lost"] += instructions[path] * off
        return cost

    assert judged("divergence", divergence).passed


def test_a_roofline_by_the_longer_of_two_times_passes():
    def attainable(flops, bytes_moved, peak_tflops, bandwidth_tb):
        times = {"compute": flops / peak_tflops / 1e6, "memory": bytes_moved / bandwidth_tb / 1e6}
        bound = max(times, key=times.get)
        us = times[bound]
        return {"bound": bound, "us": us, "tflops": flops / us / 1e6, "intensity": flops / bytes_moved}

    assert judged("attainable", attainable).passed


def test_the_third_hint_to_occupancy_nvidia_is_the_whole_answer():
    def occupancy_nvidia(registers, shared_bytes, num_warps, target):
        t = TARGETS[target]
        hint = exercise("occupancy_nvidia").hints[-1]
        rounded = {"registers": -(-registers // t.granule) * t.granule}
        allowed = {
            "warps": t.waves_per_unit // num_warps,
            "registers": t.registers // rounded["registers"] * t.simds // num_warps,
            "shared memory": t.shared_per_unit // (-(-(shared_bytes + t.shared_reserved) // 128) * 128),
            "blocks": t.blocks_per_unit,
        }
        assert "registers: t.registers // rounded * simds // num_warps." in hint
        blocks = min(allowed.values())
        limited = tuple(name for name in allowed if allowed[name] == blocks)
        return {"blocks": blocks, "limited_by": limited, "occupancy": blocks * num_warps / t.waves_per_unit}

    assert judged("occupancy_nvidia", occupancy_nvidia).passed


@pytest.mark.parametrize("seed", range(3))
def test_rounding_each_kind_of_register_by_itself_fails(seed):
    wrong = next(m for m in exercise("occupancy_amd").misconceptions if m.name == "each_kind_rounded")
    report = check(exercise("occupancy_amd"), wrong.answer, seed=seed)
    assert report.status == "failed"
    assert report.hint == wrong.hint
