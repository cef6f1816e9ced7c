"""Counters of kernels small enough to count by hand."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from gpu_utils.analytic.access import SHAPES, bank_cycles
from gpu_utils.chips.banks import service
from gpu_utils.virtual import MODELS, virtual_gpu

from .single import execute, with_info

EVERY = tuple(MODELS)
SECTOR = {target: row.segment for target, row in MODELS.items()}

COPY = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry copy(.param .u64 source, .param .u64 out, .param .u32 first, .param .u32 step) {
    .reg .b64 %rd<4>;
    .reg .b32 %r<6>;
    ld.param.u64 %rd1, [source];
    ld.param.u64 %rd2, [out];
    ld.param.u32 %r2, [first];
    ld.param.u32 %r3, [step];
    mov.u32 %r1, %tid.x;
    mad.lo.u32 %r4, %r1, %r3, %r2;
    cvt.u64.u32 %rd3, %r4;
    add.s64 %rd1, %rd1, %rd3;
    ld.global.b32 %r5, [%rd1];
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd2, %rd2, %rd3;
    st.global.b32 [%rd2], %r5;
    ret;
}
"""

SHARED = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry shared(.param .u32 step) {
    .shared .align 16 .b8 tile[8448];
    .reg .b32 %r<6>;
    ld.param.u32 %r2, [step];
    mov.u32 %r1, %tid.x;
    mov.u32 %r3, tile;
    mad.lo.u32 %r4, %r1, %r2, %r3;
    st.shared.b32 [%r4], %r1;
    ld.shared.b32 %r5, [%r4];
    ret;
}
"""

DIVERGENT = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry divergent() {
    .reg .pred %p<2>;
    .reg .b32 %r<4>;
    mov.u32 %r1, %tid.x;
    setp.ge.u32 %p1, %r1, 8;
    @%p1 bra SKIP;
    add.u32 %r2, %r1, 1;
    add.u32 %r2, %r2, 1;
    add.u32 %r2, %r2, 1;
SKIP:
    add.u32 %r3, %r1, 1;
    ret;
}
"""


@triton.jit
def gather_kernel(x_ptr, out_ptr, FIRST: tl.constexpr, STEP: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + FIRST + i * STEP))


@triton.jit
def product_kernel(a_ptr, b_ptr, c_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    a = tl.load(a_ptr + m[:, None] * K + k[None, :])
    b = tl.load(b_ptr + k[:, None] * N + n[None, :])
    tl.store(c_ptr + m[:, None] * N + n[None, :], tl.dot(a, b))


@triton.jit
def histogram_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out_ptr + tl.load(x_ptr + i, mask=i < n, other=0), 1, mask=i < n)


@triton.jit
def two_line_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    tl.store(out_ptr + i, tl.exp2(x))


def ptx(text, name, args, block=32, target="sm_80"):
    with virtual_gpu(target) as gpu:
        gpu.load(text).launch(name, 1, block, args)
    return gpu.counters


@pytest.mark.parametrize(
    ("first", "step", "sectors"),
    [
        (0, 4, 4),  # contiguous: 128 bytes
        (4, 4, 5),  # off by one word: one sector more
        (32, 4, 4),  # off by a whole sector
        (0, 8, 8),  # every other word
        (0, 32, 32),  # a sector for each lane
        (0, 128, 32),
        (0, 0, 1),  # one word for all
        (16, 16, 17),  # half sectors, from the middle of one
    ],
)
def test_a_warp_touches_the_sectors_that_its_addresses_lie_in(first, step, sectors):
    source, out = torch.zeros(2048), torch.zeros(32)
    totals = ptx(COPY, "copy", [source, out, first, step]).totals()
    assert totals["global_load_sectors"] == sectors
    assert totals["global_store_sectors"] == 4
    assert totals["global_load_bytes"] == 128


def test_the_ideal_is_that_of_the_same_bytes_side_by_side_and_never_above_what_was_used():
    source, out = torch.zeros(2048), torch.zeros(32)
    assert ptx(COPY, "copy", [source, out, 0, 32]).totals()["global_sectors_ideal"] == 4 + 4
    assert ptx(COPY, "copy", [source, out, 0, 32]).totals()["global_lane_accesses"] == 32 + 32
    assert ptx(COPY, "copy", [source, out, 0, 0]).totals()["global_sectors_ideal"] == 1 + 4


def test_two_warps_that_read_the_same_sectors_count_twice():
    source, out = torch.zeros(2048), torch.zeros(64)
    assert ptx(COPY, "copy", [source, out, 0, 0], block=64).totals()["global_load_sectors"] == 2


@pytest.mark.parametrize(
    ("target", "step", "lines"),
    [
        ("gfx90a", 4, 4),  # 64 lanes of 4 bytes are 256 bytes: 4 lines of 64
        ("gfx90a", 8, 8),
        ("gfx90a", 64, 64),
        ("gfx942", 4, 2),  # lines of 128
        ("gfx942", 8, 4),
        ("gfx942", 128, 64),
        ("gfx1100", 4, 1),  # 32 lanes
        ("gfx1100", 8, 2),
    ],
)
def test_a_wavefront_touches_the_lines_that_its_addresses_lie_in(target, step, lines):
    x, out = torch.zeros(64 * step), torch.zeros(64)
    lanes = MODELS[target].lanes
    with virtual_gpu(target) as gpu:
        gather_kernel[(1,)](x, out, FIRST=0, STEP=step // 4, BLOCK=lanes, num_warps=1)
    assert gpu.counters.totals()["global_load_sectors"] == lines


@pytest.mark.parametrize("target", EVERY)
def test_a_misaligned_copy_reads_one_sector_more_for_each_instruction(target):
    lanes = MODELS[target].lanes
    x, out = torch.zeros(4 * lanes + 1), torch.zeros(4 * lanes)
    with virtual_gpu(target) as gpu:
        gather_kernel[(1,)](x, out, FIRST=1, STEP=1, BLOCK=lanes, num_warps=1)
    totals = gpu.counters.totals()
    assert totals["global_load_sectors"] == lanes * 4 // SECTOR[target] + 1
    assert totals["global_store_sectors"] == lanes * 4 // SECTOR[target]


def test_a_word_on_the_border_of_two_lines_touches_both():
    target = "gfx942"
    memory = np.zeros(1024, np.uint8)
    start = memory.ctypes.data + -memory.ctypes.data % 128

    def sectors(line, offset):
        from gpu_utils.virtual.amdgcn import decode, new_state
        from gpu_utils.virtual.counters import Counters
        from gpu_utils.virtual.global_memory import Memory
        from gpu_utils.virtual.isa import Launch
        from gpu_utils.virtual.machine import run_batches

        program = decode(f"kernel:\n\t{line}\n\ts_endpgm\n", target, "kernel")
        program = with_info(program, vgprs=16)
        regions = Memory()
        regions.add_array("array", memory[start - memory.ctypes.data :][:512], "tensor")
        counters = Counters(program, SHAPES[target])
        launch = Launch("kernel", target, program, (1, 1, 1), (64, 1, 1), np.zeros(64, np.uint8), regions, counters, 0,
                        MODELS[target])  # fmt: skip
        state = new_state(program, launch, np.zeros((1, 3), np.int64), 1)
        state.U[0][...], state.U[1][...] = (start + offset) & 0xFFFFFFFF, (start + offset) >> 32
        run_batches(iter([state]))
        totals = counters.totals()
        return totals["global_load_sectors"], totals["global_store_sectors"], totals["global_store_bytes"]

    assert sectors("global_load_dword v2, v[0:1], off", 124) == (1, 0, 0)
    assert sectors("global_load_dword v2, v[0:1], off", 126) == (2, 0, 0)
    assert sectors("global_load_dwordx4 v[2:5], v[0:1], off", 120) == (2, 0, 0)
    assert sectors("global_store_dword v[0:1], v2, off", 126) == (0, 2, 256)  # counted once, though done in bytes


@pytest.mark.parametrize(("stride", "conflicts"), [(1, 0), (2, 1), (32, 31), (33, 0), (0, 0), (64, 31), (16, 15)])
def test_bank_conflicts_of_a_warp_follow_the_stride_in_words(stride, conflicts):
    counters = ptx(SHARED, "shared", [4 * stride])
    totals = counters.totals()
    assert totals["shared_accesses"] == 2
    assert totals["bank_conflicts"] == 2 * conflicts  # the store and the load
    assert totals["shared_cycles"] == 2 * (1 + conflicts)


@pytest.mark.parametrize(("stride", "conflicts"), [(1, 0), (2, 2), (32, 62), (33, 0), (0, 0)])
def test_bank_conflicts_of_a_wavefront_count_both_halves(stride, conflicts):
    lane = np.arange(64, dtype=np.uint32)[None]
    registers = {"v0": 4 * stride * lane, "v1": lane}
    state = execute("gfx942", "ds_write_b32 v0, v1", registers, shared=65536)
    assert state.counters.totals()["bank_conflicts"] == conflicts
    assert state.counters.totals()["shared_cycles"] == 2 + conflicts


@pytest.mark.parametrize(("size", "groups"), [(4, 2), (8, 4), (12, 8), (16, 8)])
def test_wide_accesses_side_by_side_have_no_conflict(size, groups):
    lane = np.arange(64)[None]
    assert bank_cycles(size * lane, size, service("gfx942", "write", size)) == (groups, groups)


def test_reads_of_twelve_bytes_side_by_side_conflict_where_lanes_0_to_3_go_with_20_to_23():
    lane = np.arange(64)[None]
    assert bank_cycles(12 * lane, 12, service("gfx942", "read", 12)) == (16, 8)  # words 0-11 and 60-71


def test_lanes_that_are_off_cause_no_conflict():
    lane = np.arange(64)[None]
    only = np.where(lane < 2, 128 * lane, -1)
    words = service("gfx942", "read", 4)
    assert bank_cycles(only, 4, words) == (2, 1)
    assert bank_cycles(np.full((1, 64), -1), 4, words) == (0, 0)


def test_lane_utilisation_of_a_divergent_warp():
    counters = ptx(DIVERGENT, "divergent", [])
    vector = {"mov": 32, "setp": 32, "add": 3 * 8 + 32}  # of 2 + 4 instructions of 32 lanes
    assert counters.lane_utilisation() == sum(vector.values()) / (6 * 32)
    per_op = counters.per_op()
    adds = [per_op[op.index] for op in counters.program.ops if op.mnemonic.startswith("add")]
    assert adds == [(1, 8), (1, 8), (1, 8), (1, 32)]


def test_a_block_that_does_not_fill_its_last_warp_lowers_lane_utilisation():
    source, out = torch.zeros(2048), torch.zeros(48)
    counters = ptx(COPY, "copy", [source, out, 0, 4], block=48)
    assert counters.totals()["waves"] == 2
    assert counters.lane_utilisation() == 48 / 64
    assert counters.totals()["global_load_sectors"] == 4 + 2


@pytest.mark.parametrize("target", EVERY)
@pytest.mark.parametrize(("m", "n", "k", "warps"), [(32, 32, 32, 1), (64, 32, 128, 1), (64, 64, 64, 4)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_matrix_flops_are_two_for_each_multiply_and_add(target, m, n, k, warps, dtype):
    a, b, c = torch.ones(m, k, dtype=dtype), torch.ones(k, n, dtype=dtype), torch.zeros(m, n)
    with virtual_gpu(target) as gpu:
        product_kernel[(1,)](a, b, c, M=m, N=n, K=k, num_warps=warps)
    assert (c == k).all()
    assert gpu.counters.matrix_flops() == 2 * m * n * k


@pytest.mark.parametrize(
    ("target", "dtype"),
    [
        ("sm_89", torch.float8_e4m3fn),
        ("sm_90", torch.float8_e5m2),
        ("gfx942", torch.float8_e4m3fnuz),
        ("gfx950", torch.float8_e4m3fn),
        ("sm_89", torch.bfloat16),
        ("gfx942", torch.float8_e4m3fn),
    ],
)
def test_matrix_flops_on_fp8_are_counted_apart(target, dtype):
    """gfx942 has no FN: Triton turns it into float16 without a word, and the count says so."""
    a, b, c = torch.ones(64, 128).to(dtype), torch.ones(128, 64).to(dtype), torch.zeros(64, 64)
    with virtual_gpu(target) as gpu:
        product_kernel[(1,)](a, b, c, M=64, N=64, K=128)
    assert (c == 128).all()
    native = dtype != torch.bfloat16 and (target != "gfx942" or dtype == torch.float8_e4m3fnuz)
    assert gpu.counters.totals()["fp8_matrix_flops"] == (gpu.counters.matrix_flops() if native else 0)


def test_waves_that_repeat_the_tile_of_another_are_counted_too():
    """32x32 is one tile of gfx942's 32x32x8 instruction: each of the 4 waves computes it."""
    a, c = torch.ones(32, 32, dtype=torch.float16), torch.zeros(32, 32)
    with virtual_gpu("gfx942") as gpu:
        product_kernel[(1,)](a, a, c, M=32, N=32, K=32, num_warps=4, matrix_instr_nonkdim=32)
    assert gpu.counters.matrix_flops() == 4 * 2 * 32**3


@pytest.mark.parametrize("target", EVERY)
def test_every_active_lane_of_an_atomic_counts(target):
    x, out = torch.zeros(1000, dtype=torch.int32), torch.zeros(4, dtype=torch.int32)
    with virtual_gpu(target) as gpu:
        histogram_kernel[(4,)](x, out, 1000, BLOCK=256)
    assert out.tolist() == [1000, 0, 0, 0]
    totals = gpu.counters.totals()
    assert totals["global_atomics"] == 1000
    assert totals["global_load_bytes"] == 4000


@pytest.mark.parametrize("target", EVERY)
def test_waves_launched_are_blocks_times_waves_of_a_block(target):
    x, out = torch.zeros(4096), torch.zeros(4096)
    with virtual_gpu(target) as gpu:
        gather_kernel[(16,)](x, out, FIRST=0, STEP=1, BLOCK=256, num_warps=2)
    assert gpu.counters.totals()["blocks"] == 16
    assert gpu.counters.totals()["waves"] == 32


@pytest.mark.parametrize("target", EVERY)
def test_instructions_are_attributed_to_the_line_that_they_come_from(target):
    x, out = torch.zeros(1024), torch.zeros(1024)
    with virtual_gpu(target) as gpu:
        two_line_kernel[(4,)](x, out, BLOCK=256, num_warps=1)
    with open(__file__) as file:
        source = file.read().splitlines()
    lines = {}
    for line, kinds in gpu.counters.per_line().items():
        text = source[line[1] - 1].strip() if line and line[0].endswith("test_counters.py") else ""
        for kind, count in kinds.items():
            lines.setdefault(kind, {}).setdefault(text, 0)
            lines[kind][text] += count
    assert set(lines["global"]) == {"x = tl.load(x_ptr + i)", "tl.store(out_ptr + i, tl.exp2(x))"}
    assert set(lines["transcendental"]) == {"tl.store(out_ptr + i, tl.exp2(x))"}
    lanes = MODELS[target].lanes
    assert lines["transcendental"]["tl.store(out_ptr + i, tl.exp2(x))"] == 4 * 256 // lanes
    total = sum(count for kinds in gpu.counters.per_line().values() for count in kinds.values())
    assert total == gpu.counters.totals()["instructions"]


def test_scratch_is_kept_out_of_the_global_totals():
    lines = [
        "v_mov_b32_e32 v1, 7",
        "scratch_store_dword off, v1, off offset:4",
        "scratch_load_dword v2, off, off offset:4",
    ]
    from gpu_utils.virtual.amdgcn import decode

    program = decode("kernel:\n" + "".join(f"\t{line}\n" for line in lines) + "\ts_endpgm\n", "gfx942", "kernel")
    program = with_info(program, scratch=16)
    from .single import run

    totals = run(program, "gfx942", {}).counters.totals()
    assert totals["global_load_bytes"] == totals["global_store_bytes"] == 0
    assert totals["scratch_bytes"] == 2 * 64 * 4


@pytest.mark.parametrize(
    ("stride", "read", "write"), [(1, 1, 2), (2, 2, 4), (32, 32, 64), (33, 1, 2), (64, 64, 64), (65, 1, 2)]
)
def test_words_go_through_64_banks_of_gfx950_when_read_and_through_32_when_written(stride, read, write):
    lane = np.arange(64, dtype=np.uint32)[None]
    text = "ds_write_b32 v0, v1\n\ts_waitcnt lgkmcnt(0)\n\tds_read_b32 v2, v0"
    state = execute("gfx950", text, {"v0": 4 * stride * lane, "v1": lane}, shared=163840)
    assert [access.transactions for _, access in sorted(state.counters.shareds.items())] == [write, read]
