"""Triton's own benchmarks, autotuners and questions about the device, inside a virtual GPU."""

import warnings

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime import driver

from gpu_utils.compiler import compile_for
from gpu_utils.compiler.resources import resources
from gpu_utils.virtual import MODELS, virtual_gpu
from gpu_utils.virtual.predict import predicted_cycles

TARGETS = ("sm_90", "gfx942")


@triton.jit
def fill_kernel(x, BLOCK: tl.constexpr):
    tl.store(x + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), 1.0)


@triton.jit
def sort_kernel(x, y, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y + i, tl.sort(tl.load(x + i)))


@triton.jit
def row_softmax_kernel(out, x, x_stride, out_stride, rows, cols, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    first, step = tl.program_id(0), tl.num_programs(0)
    for row in tl.range(first, rows, step, num_stages=STAGES):
        at = tl.arange(0, BLOCK)
        inside = at < cols
        values = tl.load(x + row * x_stride + at, mask=inside, other=-float("inf"))
        top = tl.exp(values - tl.max(values, axis=0))
        tl.store(out + row * out_stride + at, top / tl.sum(top, axis=0), mask=inside)


@pytest.mark.parametrize("target", TARGETS)
def test_a_benchmark_gives_the_predicted_cycles_of_the_call(target):
    x = torch.zeros(256)
    with virtual_gpu(target) as gpu:
        found = triton.testing.do_bench(lambda: fill_kernel[(4,)](x, BLOCK=64))
        assert found == predicted_cycles(gpu.last)
        assert triton.testing.do_bench_cudagraph(lambda: fill_kernel[(4,)](x, BLOCK=64)) == found
        twice = triton.testing.do_bench(lambda: [fill_kernel[(4,)](x, BLOCK=64) for _ in range(2)], return_mode="min")
        assert twice == 2 * found
        assert triton.testing.do_bench(lambda: fill_kernel[(4,)](x, BLOCK=64), quantiles=[0.5, 0.2]) == [found, found]
    assert triton.testing.do_bench_cudagraph.__module__ == "triton.testing"


def test_a_call_that_launches_nothing_takes_the_hosts_milliseconds():
    x = torch.ones(1000)
    with virtual_gpu("gfx942"):
        assert 0 < triton.testing.do_bench(x.sum, warmup=1, rep=1) < 1000


def test_autotuners_of_every_kind_choose_by_predicted_cycles():
    configs = [triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 512})]
    kinds = (
        {},
        {"warmup": 1, "rep": 1},
        {"use_cuda_graph": True},
        {"do_bench": lambda call, quantiles: triton.testing.do_bench(call, quantiles=quantiles)},
        {"do_bench": lambda call, quantiles: triton.testing.do_bench_cudagraph(call, quantiles=quantiles)},
    )
    chosen, timings = set(), []
    for kind in kinds:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            tuned = triton.autotune(configs=configs, key=[], **kind)(fill_kernel)
        x = torch.zeros(4096)
        with virtual_gpu("sm_90"):
            tuned[(8,)](x)
        chosen.add(tuned.best_config.kwargs["BLOCK"])
        timings.append({config.kwargs["BLOCK"]: found[0] for config, found in tuned.configs_timings.items()})
        assert x.sum() == 4096
    assert chosen == {64}
    assert timings == timings[:1] * len(kinds)
    assert timings[0][64] < timings[0][512]


@pytest.mark.parametrize("target", MODELS)
def test_the_device_has_every_property_that_tritons_own_drivers_give(target):
    with virtual_gpu(target):
        found = driver.active.utils.get_device_properties(driver.active.get_current_device())
    nvidia = {"max_shared_mem", "max_num_regs", "multiprocessor_count", "warpSize", "sm_clock_rate", "mem_clock_rate"}
    amd = {"arch", "max_threads_per_sm", "cooperativeLaunch", "mem_bus_width"}
    assert set(found) == nvidia | amd
    row = MODELS[target]
    assert (found["warpSize"], found["max_threads_per_sm"]) == (row.lanes, row.waves_per_unit * row.lanes)
    assert found["max_threads_per_sm"] == (1536 if target in ("sm_89", "sm_120") else 2048)
    assert found["multiprocessor_count"] >= 1
    known = {"sm_80": 108, "sm_90": 132, "gfx942": 304, "gfx1100": 48}
    assert target not in known or found["multiprocessor_count"] == known[target]


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
def test_a_kernel_is_loaded_once_for_all_its_launches(target, monkeypatch):
    x, out = torch.arange(256.0), torch.zeros(256)
    loaded = []
    for _ in range(2):
        with virtual_gpu(target):
            kind = type(driver.active.utils)
            load = kind.load_binary
            monkeypatch.setattr(kind, "load_binary", lambda *args, load=load: loaded.append(args[1]) or load(*args))
            for _ in range(3):
                sort_kernel[(1,)](x, out, BLOCK=256, num_warps=1)
            monkeypatch.undo()
    assert len(loaded) == 1
    assert torch.equal(out, x)


@pytest.mark.parametrize("target", TARGETS)
def test_registers_are_those_of_the_machine_code(target):
    kernel = sort_kernel.warmup  # compiled as a launch would
    with virtual_gpu(target):
        compiled = kernel(torch.float32, torch.float32, BLOCK=4096, num_warps=4, grid=(1,))
        compiled._init_handles()
    expected = resources(compile_for(sort_kernel, target, [torch.float32, torch.float32], BLOCK=4096, num_warps=4))
    assert compiled.n_regs == expected.registers > 32
    assert compiled.n_spills == (expected.scratch // 4 if target == "sm_90" else expected.spills)


def test_ptxas_can_be_left_out_and_what_it_made_is_not_lost_for_others():
    x, registers = torch.randn(256), []
    for ptxas in (False, True):
        out = torch.empty_like(x)
        with virtual_gpu("sm_80", ptxas=ptxas):
            registers.append(sort_kernel[(1,)](x, out, BLOCK=256, num_warps=1).n_regs)
        assert torch.equal(out, x.sort().values)
    assert registers[0] == 0 < registers[1]


@pytest.mark.parametrize("target", TARGETS)
def test_a_persistent_softmax_is_sized_by_the_devices_properties_as_in_tritons_tutorial(target):
    """The calls of the fused-softmax tutorial in its order: properties, warm-up, registers, occupancy, launch."""
    x = torch.randn(37, 181)
    out = torch.empty_like(x)
    with virtual_gpu(target):
        device = driver.active.get_active_torch_device()
        properties = driver.active.utils.get_device_properties(driver.active.get_current_device())
        block, warps = triton.next_power_of_2(x.shape[1]), 4
        stages = 4 if properties["max_shared_mem"] > 200_000 else 2
        arguments = (out, x, x.stride(0), out.stride(0), *x.shape)
        kernel = row_softmax_kernel.warmup(*arguments, BLOCK=block, STAGES=stages, num_warps=warps, grid=(1,))
        kernel._init_handles()
        registers, shared = kernel.n_regs, kernel.metadata.shared
        if driver.active.get_current_target().backend == "hip":
            waves = properties["max_threads_per_sm"] // properties["warpSize"]
            fit = min(properties["max_num_regs"] * 2 // properties["warpSize"] // registers, waves) // warps
        else:
            fit = properties["max_num_regs"] // (registers * properties["warpSize"] * warps)
        fit = min(fit, properties["max_shared_mem"] // shared) if shared else fit
        programs = min(properties["multiprocessor_count"] * fit, x.shape[0])
        kernel[(programs, 1, 1)](*arguments, block, stages)
    assert device.type == "cpu"
    assert programs == 37
    torch.testing.assert_close(out, torch.softmax(x, 1))
