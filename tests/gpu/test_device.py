"""The real device: probe, backend, compiler and bench agree with it."""

from __future__ import annotations

import re

import pytest
import torch
import triton

from gpu_utils.backends import backend, interpreter
from gpu_utils.chips import TARGETS, probe
from gpu_utils.compiler import compile_for, resources
from gpu_utils.timing import bench, flush_bytes
from tests.unit.kernels import add_kernel, matmul_kernel, softmax_kernel


def device_target():
    found = triton.runtime.driver.active.get_current_target()
    return f"sm_{found.arch}" if found.backend == "cuda" else str(found.arch)


def test_the_probe_agrees_with_triton_about_the_device():
    found, target = probe(), triton.runtime.driver.active.get_current_target()
    print(found)
    assert found.vendor == {"cuda": "nvidia", "hip": "amd"}[target.backend]
    assert found.target == device_target()
    assert found.lanes == target.warp_size
    assert found.problem == ""
    assert found.memory == torch.cuda.get_device_properties(0).total_memory
    assert ("cuda" in found.versions) != ("hip" in found.versions)
    if "driver" in found.versions:  # a kernel without its own driver package has no version file
        assert re.fullmatch(r"[\d.]+\S*", found.versions["driver"])


def test_the_registry_agrees_with_the_device():
    found = probe()
    if found.chip is None:
        pytest.skip(f"{found.name} is not in the registry of chips")
    assert found.chip.target == found.target
    if found.chip.units.value is not None:
        assert found.units == found.chip.units.value
    if found.chip.memory_gb.value is not None:
        assert 0.9 < found.memory / (found.chip.memory_gb.value * 1e9) < 1.1


def test_the_limits_of_the_target_are_those_of_the_device():
    target = TARGETS.get(device_target()) if device_target() in TARGETS else None
    if target is None:
        pytest.skip(f"{device_target()} is not in the table of targets")
    utils = triton.runtime.driver.active.utils.get_device_properties(0)
    assert utils["max_shared_mem"] == target.shared_per_block
    if target.vendor == "nvidia":
        properties = torch.cuda.get_device_properties(0)
        assert utils["max_num_regs"] == target.registers * target.lanes * target.simds
        assert properties.max_threads_per_multi_processor == target.waves_per_unit * target.lanes
        assert properties.shared_memory_per_multiprocessor == target.shared_per_unit


def test_a_kernel_runs_on_the_gpu_backend_and_is_counted():
    with backend("gpu").session() as session:
        assert session.device == "cuda"
        x, y = torch.randn(1000, device="cuda"), torch.randn(1000, device="cuda")
        out = torch.empty_like(x)
        add_kernel[(8,)](x, y, out, 1000, BLOCK=128)
    assert torch.equal(out, x + y)
    assert session.counters == {"launches": 1}
    assert session.launches[0].grid == (8,)


def test_an_autotuned_kernel_counts_once():
    kernel = triton.autotune([triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})], key=["n"])(add_kernel)
    x = torch.randn(1000, device="cuda")
    out = torch.empty_like(x)
    with backend("gpu").session() as session:
        kernel[lambda meta: (triton.cdiv(1000, meta["BLOCK"]),)](x, x, out, 1000)
    assert torch.equal(out, x + x)
    assert session.counters == {"launches": 1}


def test_the_interpreter_and_the_gpu_agree():
    x = torch.randn(4, 1000)
    expected = torch.empty_like(x)
    with interpreter():
        softmax_kernel[(4,)](x, expected, 1000, BLOCK=1024)
    on_device = torch.empty_like(x, device="cuda")
    softmax_kernel[(4,)](x.cuda(), on_device, 1000, BLOCK=1024)
    torch.testing.assert_close(on_device.cpu(), expected, rtol=1e-5, atol=1e-6)


def test_after_the_interpreter_the_gpu_is_used_again():
    x = torch.randn(100, device="cuda")
    out = torch.empty_like(x)
    with interpreter():
        pass
    add_kernel[(1,)](x, x, out, 100, BLOCK=128)
    assert torch.equal(out, x + x)


def test_compile_for_gives_the_code_that_a_launch_compiles():
    """Same arguments, same assembly, same registers and shared memory as the driver reports."""
    if device_target() not in TARGETS:
        pytest.skip(f"{device_target()} is not in the table of targets")
    a = torch.randn(256, 256, device="cuda", dtype=torch.float16)
    out = torch.empty_like(a)
    args = [a, a, out, 256, 256, 256, 256]
    launched = matmul_kernel[(4, 4)](*args, M=64, N=64, BLOCK_K=32)
    compiled = compile_for(matmul_kernel, device_target(), args, M=64, N=64, BLOCK_K=32)
    assert compiled.asm == launched.asm["ptx" if "ptx" in launched.asm else "amdgcn"]
    needed = resources(compiled)
    assert needed.shared == launched.metadata.shared
    if needed.target.vendor == "nvidia":
        assert needed.registers == launched.n_regs
    torch.testing.assert_close(out.float(), (a @ a).float(), rtol=1e-2, atol=1e-1)


def test_bench_flushes_the_cache():
    """A copy that fits in the cache is slower with a flush before each run than without."""
    assert flush_bytes() >= 2 * torch.cuda.get_device_properties(0).L2_cache_size
    x = torch.randn(1 << 20, device="cuda")
    flushed = bench(lambda: x.clone(), seconds=0.2)
    assert flushed.device == "cuda"
    assert probe().target in str(flushed)
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    warm = []
    for _ in range(50):
        torch.cuda.synchronize()
        torch.cuda._sleep(200_000)  # about 0.1 ms, so that the host is ahead and its time is not measured
        start.record()
        x.clone()
        end.record()
        torch.cuda.synchronize()
        warm.append(start.elapsed_time(end) / 1000)
    print(f"flushed {flushed.median * 1e6:.1f} us, warm {sorted(warm)[25] * 1e6:.1f} us")
    assert flushed.median > sorted(warm)[25]


def test_twice_the_work_takes_about_twice_as_long():
    x = torch.randn(1 << 26, device="cuda")
    result = bench(lambda: x.add_(1), against=lambda: x.add_(1).add_(1), seconds=0.2)
    assert 1.5 < result.ratio < 2.5
