"""What a virtual GPU reports: bounds, races, unwritten outputs, counters, order, and that the driver comes back."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from gpu_utils.analytic.access import MemoryShape
from gpu_utils.errors import BarrierDeadlock, OutOfBounds, Race, ResourceLimit, UnknownName, UnwrittenOutput
from gpu_utils.virtual import virtual_gpu
from gpu_utils.virtual.amdgcn import decode
from gpu_utils.virtual.counters import Counters
from gpu_utils.virtual.kernel_info import KernelInfo
from gpu_utils.virtual.machine import Op, Program, State, run_batches

from .single import execute, run

TARGETS = ("gfx942", "gfx1100", "sm_80")


@triton.jit
def copy_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr, STEP: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i * STEP, mask=i < n, other=0.0), mask=i < n)


@triton.jit
def unmasked_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i))


@triton.jit
def clash_kernel(out_ptr, SAME: tl.constexpr):
    tl.store(out_ptr, 7 if SAME else tl.program_id(0))


@triton.jit
def product_kernel(a_ptr, b_ptr, c_ptr, N: tl.constexpr):
    r = tl.arange(0, N)
    at = r[:, None] * N + r[None, :]
    tl.store(c_ptr + at, tl.dot(tl.load(a_ptr + at), tl.load(b_ptr + at)))


@pytest.mark.parametrize("target", TARGETS)
def test_a_read_past_the_end_names_tensor_line_program_and_offset(target):
    x, out = torch.zeros(1000), torch.zeros(1024)
    with virtual_gpu(target), pytest.raises(OutOfBounds) as caught:
        unmasked_kernel[(4,)](x, out, BLOCK=256)
    message = str(caught.value)
    for part in (
        "unmasked_kernel",
        "test_machine.py:",
        "program (3, 0, 0)",
        "lane",
        "x_ptr",
        "4000 bytes",
        "byte offset 4",
    ):
        assert part in message, message


@pytest.mark.parametrize("target", TARGETS)
def test_a_write_past_the_end_writes_nothing_outside(target):
    whole = torch.zeros(2048)
    x = torch.ones(1024)
    storage = torch.zeros(1000)
    with virtual_gpu(target), pytest.raises(OutOfBounds, match="writes"):
        unmasked_kernel[(4,)](x, storage, BLOCK=256)
    assert (whole == 0).all()


@pytest.mark.parametrize("target", TARGETS)
def test_two_programs_that_write_different_values_race(target):
    out = torch.zeros(1, dtype=torch.int32)
    with virtual_gpu(target), pytest.raises(Race, match=r"programs . and . both write byte offset 0 of out_ptr"):
        clash_kernel[(4,)](out, SAME=False)


@pytest.mark.parametrize("target", TARGETS)
def test_two_programs_may_write_the_same_value(target):
    out = torch.zeros(1, dtype=torch.int32)
    with virtual_gpu(target):
        clash_kernel[(4,)](out, SAME=True)
    assert int(out) == 7


def test_races_are_per_launch_and_can_be_switched_off():
    out = torch.zeros(1, dtype=torch.int32)
    with virtual_gpu("gfx942") as gpu:
        clash_kernel[(1,)](out, SAME=True)
        clash_kernel[(1,)](out, SAME=False)
        assert len(gpu.launches) == 2
    with virtual_gpu("gfx942", races=False):
        clash_kernel[(4,)](out, SAME=False)
    assert int(out) == 3


def test_shuffled_order_draws_who_comes_last_from_the_seed():
    seen = set()
    for seed in range(6):
        out = torch.zeros(1, dtype=torch.int32)
        with virtual_gpu("gfx942", order="shuffled", seed=seed, races=False):
            clash_kernel[(8,)](out, SAME=False)
        seen.add(int(out))
    assert len(seen) > 1


def test_an_output_element_left_unwritten_is_reported():
    x, out = torch.zeros(100), torch.zeros(100)
    with virtual_gpu("gfx942") as gpu:
        copy_kernel[(1,)](x, out, 60, BLOCK=64, STEP=1)
        with pytest.raises(UnwrittenOutput, match=r"40 of 100 elements .* flat index 60"):
            gpu.expect_written(out)
        copy_kernel[(2,)](x, out, 100, BLOCK=64, STEP=1)
        gpu.expect_written(out)


def test_the_previous_driver_returns_also_after_an_error():
    sentinel = object()
    triton.runtime.driver.set_active(sentinel)
    try:
        with pytest.raises(OutOfBounds), virtual_gpu("gfx942"):
            unmasked_kernel[(4,)](torch.zeros(1000), torch.zeros(1024), BLOCK=256)
        assert triton.runtime.driver.active is sentinel
    finally:
        triton.runtime.driver.set_active(None)


def test_chips_nest_and_take_turns_in_one_process():
    x, out = torch.arange(64.0), torch.zeros(64)
    with virtual_gpu("gfx942") as outer:
        unmasked_kernel[(1,)](x, out, BLOCK=64)
        with virtual_gpu("gfx1100") as inner:
            unmasked_kernel[(1,)](x, out, BLOCK=64)
        unmasked_kernel[(1,)](x, out, BLOCK=64)
    assert [launch.program.lanes for launch in outer.launches] == [64, 64]
    assert [launch.program.lanes for launch in inner.launches] == [32]


def test_counters_count_a_copy_exactly():
    n = 4096
    x, out = torch.zeros(n), torch.zeros(n)
    with virtual_gpu("gfx942") as gpu:
        unmasked_kernel[(16,)](x, out, BLOCK=256)
    totals = gpu.counters.totals()
    assert totals["blocks"] == 16
    assert totals["waves"] == 64
    assert totals["global_load_bytes"] == totals["global_store_bytes"] == 4 * n
    assert totals["global_load_sectors"] == 4 * n // totals["sector_bytes"]
    assert totals["lane_utilisation"] == 1.0


def test_strided_reads_cost_more_sectors_than_the_ideal():
    x, out = torch.zeros(64 * 32), torch.zeros(64)
    with virtual_gpu("sm_80") as gpu:
        copy_kernel[(1,)](x, out, 64, BLOCK=64, STEP=32, num_warps=2)
    totals = gpu.counters.totals()
    assert totals["global_load_sectors"] == 64  # one sector of 32 bytes for each lane's 4
    assert totals["global_sectors_ideal"] == 64 * 4 * 2 // 32


@pytest.mark.parametrize("target", TARGETS)
def test_matrix_flops_are_those_of_the_product(target):
    a = torch.ones(64, 64, dtype=torch.float16)
    c = torch.zeros(64, 64)
    with virtual_gpu(target) as gpu:
        product_kernel[(1,)](a, a, c, N=64)
    assert gpu.counters.matrix_flops() == 2 * 64**3
    assert (c == 64).all()


def test_a_masked_tail_lowers_lane_utilisation():
    lines = ["v_cmp_gt_u32_e32 vcc, 16, v0", "s_and_saveexec_b64 s[0:1], vcc", *["v_add_u32_e32 v1, v1, v0"] * 6]
    state = execute("gfx942", lines, {})
    counters = state.counters
    assert counters.lane_utilisation() == (64 + 6 * 16) / (7 * 64)


def test_listing_joins_source_lines_with_instructions():
    x, out = torch.zeros(256), torch.zeros(256)
    with virtual_gpu("gfx942") as gpu:
        unmasked_kernel[(1,)](x, out, BLOCK=256)
    loads = [row for row in gpu.listing if "buffer_load_dword" in row[1]]
    assert len(loads) == 1
    (file, line), _, count = loads[0]
    assert file.endswith("test_machine.py")
    assert count == 4
    assert "tl.load(x_ptr + i)" in Path(file).read_text().splitlines()[line - 1]


def test_bank_conflicts_follow_the_stride():
    def conflicts(stride):
        lane = np.arange(64, dtype=np.uint32)[None]
        state = execute("gfx942", "ds_write_b32 v0, v1", {"v0": lane * stride, "v1": lane}, shared=65536)
        return state.counters.totals()["bank_conflicts"]

    assert conflicts(4) == 0
    assert conflicts(8) == 2
    assert conflicts(128) == 62
    assert conflicts(132) == 0
    assert conflicts(0) == 0


def test_waves_that_ended_do_not_hold_up_a_barrier():
    text = [
        "v_readfirstlane_b32 s0, v0",
        "s_cmp_lg_u32 s0, 0",
        "s_cbranch_scc1 .Lskip",
        "s_barrier",
        "s_barrier",
        ".Lskip:",
        "s_nop 0",
    ]
    state = execute("gfx942", text, {}, waves=3)
    per_op = state.counters.per_op()
    assert [per_op[op.index][0] for op in state.program.ops if op.mnemonic == "s_barrier"] == [1, 1]


def test_a_barrier_that_part_of_a_block_never_reaches_is_a_deadlock():
    wait = Op(lambda s: (0, 128), "bar.sync", "barrier", "bar.sync 0, 128", ends="barrier")
    end = Op(lambda s: None, "exit", "branch", "exit", ends="end")
    nothing = KernelInfo(
        parameters=(), parameter_bytes=0, registers=0, static_shared=0, data=np.zeros(0, np.uint8), most_threads=64
    )
    program = Program.of("stuck", "gfx942", 64, "wave", [wait, end], nothing)
    launch = SimpleNamespace(grid=(1, 1, 1), memory=None, counters=Counters(program, MemoryShape()))
    with pytest.raises(BarrierDeadlock, match=r"stuck.*barrier 0"):
        run_batches(iter([State(program, launch, np.zeros((1, 3), np.int64), 1)]))


# What wave 1 skips stands after the place where the waves meet, as LLVM lays out the body of a loop.
SKIPPED = """kernel:
	v_cmp_eq_u32_e64 s[4:5], 0, v0
	s_branch .LBB0_2
.LBB0_1:
	s_or_b64 exec, exec, s[6:7]
	v_add_u32_e32 v2, 1, v1
	s_endpgm
.LBB0_2:
	s_and_saveexec_b64 s[6:7], s[4:5]
	s_cbranch_execz .LBB0_1
	v_mov_b32_e32 v1, 7
	s_branch .LBB0_1
"""


def test_waves_that_skip_code_wait_where_the_others_come_back():
    seen = []

    def tracer(state, op):
        if op.mnemonic == "v_add_u32_e32":
            seen.append(state.active_waves)

    program = decode(SKIPPED, "gfx942", "kernel")
    state = run(program, "gfx942", {"v0": np.arange(128).reshape(2, 64), "v1": 0, "v2": 0}, waves=2, tracer=tracer)
    assert state.U[2][0].tolist() == [8, *[1] * 63]
    assert state.U[2][1].tolist() == [1] * 64
    assert seen == [2]


def test_too_much_shared_memory_is_refused():
    from gpu_utils.virtual import VirtualGpu

    gpu = VirtualGpu("gfx942")
    with pytest.raises(ResourceLimit, match="65536"):
        gpu.launch("kernel:\n\ts_endpgm\n", "kernel", (1,), (64,), [], shared=70000)


def test_an_unknown_target_names_its_neighbours():
    with pytest.raises(UnknownName, match="gfx942"), virtual_gpu("gfx943"):
        pass


@triton.autotune(configs=[triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 1024})], key=["n"])
@triton.jit
def tuned_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n) * 2, mask=i < n)


def test_autotune_chooses_by_predicted_cycles():
    x, out = torch.randn(8192), torch.zeros(8192)
    with virtual_gpu("gfx942") as gpu:
        tuned_kernel[lambda meta: (triton.cdiv(8192, meta["BLOCK"]),)](x, out, 8192)
    assert torch.equal(out, x * 2)
    assert len(gpu.launches) == 3  # one for each configuration, then the chosen one
    assert tuned_kernel.best_config.kwargs["BLOCK"] == 1024


def test_a_launch_with_an_empty_grid_does_nothing():
    with virtual_gpu("gfx942") as gpu:
        unmasked_kernel[(0,)](torch.zeros(64), torch.zeros(64), BLOCK=64)
        assert gpu.launches == []


def test_a_trace_steps_one_wave_through_its_instructions():
    x, out = torch.arange(512.0), torch.zeros(512)
    with virtual_gpu("gfx942") as gpu, gpu.trace(program=(1, 0, 0), wave=2) as trace:
        unmasked_kernel[(2,)](x, out, BLOCK=256)
    load = next(i for i, step in enumerate(trace.steps) if "buffer_load" in step.text)
    assert trace.steps[load].line[0].endswith("test_machine.py")
    (name, bits), *_ = trace.steps[load].changed.items()
    assert bits.view(np.float32).tolist() == [256.0 + 128 + lane for lane in range(64)]
    assert np.array_equal(trace.value(name, load), bits)
    assert trace.steps[-1].text == "s_endpgm"
    assert len(trace.steps) == gpu.counters.totals()["instructions"] // 8
