"""Counters under the vendors' names and in the columns of their profilers' CSV files."""

import csv
import io

import pytest
import torch
import triton
import triton.language as tl

from gpu_utils.errors import BadArgument
from gpu_utils.virtual import MODELS, virtual_gpu
from gpu_utils.virtual.export import ncu_csv, rocprof_counters_csv, rocprof_trace_csv
from gpu_utils.virtual.vendor_counters import table, vendor_counters

AMD = tuple(name for name, row in MODELS.items() if row.vendor == "amd")
NVIDIA = tuple(name for name, row in MODELS.items() if row.vendor == "nvidia")


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(x_ptr + i, mask=i < n) + tl.load(y_ptr + i, mask=i < n)
    tl.store(out_ptr + i, total, mask=i < n)


@triton.jit
def product_kernel(a_ptr, b_ptr, c_ptr, N: tl.constexpr):
    r = tl.arange(0, N)
    at = r[:, None] * N + r[None, :]
    tl.store(c_ptr + at, tl.dot(tl.load(a_ptr + at), tl.load(b_ptr + at)))


@triton.jit
def count_kernel(x_ptr, out_ptr, old_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    tl.atomic_add(out_ptr + x, 1)
    tl.store(old_ptr + i, tl.atomic_add(out_ptr + x, 1))


def add(target, l2=True, n=1 << 14):
    x = torch.randn(n)
    out = torch.empty_like(x)
    with virtual_gpu(target, l2=l2) as gpu:
        add_kernel[(n // 1024,)](x, x + 1, out, n, BLOCK=1024, num_warps=4)
    return gpu


def values(launch):
    return {counter.name: counter.value for counter in vendor_counters(launch)}


def rows(text):
    return list(csv.DictReader(io.StringIO(text)))


@pytest.mark.parametrize("target", AMD)
def test_the_counters_of_an_addition_on_amd(target):
    gpu = add(target)
    found = values(gpu.last)
    lanes = gpu.model.lanes
    assert found["SQ_WAVES"] == 16 * 4
    assert found["FETCH_SIZE"] == 2 * (1 << 14) * 4 / 1024
    assert found["WRITE_SIZE"] == (1 << 14) * 4 / 1024
    assert found["SQ_LDS_BANK_CONFLICT"] == found["SQ_INSTS_LDS"] == 0
    if target.startswith("gfx9"):
        words = 4 if 1024 // (4 * lanes) >= 4 else 1024 // (4 * lanes)  # a lane's 4 elements are one dwordx4
        assert found["SQ_INSTS_VMEM_WR"] == (1 << 14) // (lanes * words)
        assert found["SQ_INSTS_VMEM_RD"] == 2 * found["SQ_INSTS_VMEM_WR"]


@pytest.mark.parametrize("target", AMD)
def test_vector_instructions_include_the_matrix_ones_and_scalar_ones_are_apart(target):
    a, c = torch.ones(64, 64, dtype=torch.float16), torch.zeros(64, 64)
    with virtual_gpu(target) as gpu:
        product_kernel[(1,)](a, a, c, N=64)
    found, per_op = values(gpu.last), gpu.counters.per_op()
    vector = sum(per_op[op.index][0] for op in gpu.last.program.ops if op.mnemonic.startswith("v_"))
    matrix = sum(per_op[op.index][0] for op in gpu.last.program.ops if op.kind == "matrix")
    assert found["SQ_INSTS_VALU"] == vector > matrix > 0
    assert "FETCH_SIZE" not in found  # the accesses were not recorded
    if target.startswith("gfx9"):
        assert found["SQ_INSTS_VALU_MFMA_MOPS_F16"] * 512 == 2 * 64**3
        assert found["SQ_INSTS_MFMA"] == matrix
        others = [name for name in found if "MOPS" in name and not name.endswith("MOPS_F16")]
        assert len(others) >= 4
        assert all(found[name] == 0 for name in others)
    else:
        assert not any("MFMA" in name for name in found)


@pytest.mark.parametrize(
    ("target", "dtype", "suffix"),
    [
        ("gfx90a", torch.bfloat16, "BF16"),
        ("gfx942", torch.bfloat16, "BF16"),
        ("gfx942", torch.int8, "I8"),
        ("gfx942", torch.float32, "XF32"),
        ("gfx90a", torch.float32, "F32"),
        ("gfx942", torch.float8_e4m3fnuz, "F8"),
        ("gfx950", torch.float8_e4m3fn, "F6F4"),
        ("gfx950", torch.float8_e5m2, "F6F4"),
    ],
)
def test_matrix_operations_are_filed_under_the_format_of_their_inputs(target, dtype, suffix):
    a = torch.ones(64, 64).to(dtype)
    c = torch.zeros(64, 64, dtype=torch.int32 if dtype == torch.int8 else torch.float32)
    with virtual_gpu(target) as gpu:
        product_kernel[(1,)](a, a, c, N=64)
    counted = {name: value * 512 for name, value in values(gpu.last).items() if "MOPS" in name and value}
    assert list(counted) == [f"SQ_INSTS_VALU_MFMA_MOPS_{suffix}"]
    assert sum(counted.values()) == 2 * 64**3


@pytest.mark.parametrize("target", NVIDIA)
def test_the_counters_of_an_addition_on_nvidia(target):
    found = values(add(target).last)
    n = 1 << 14
    assert found["smsp__warps_launched.sum"] == 16 * 4
    assert found["smsp__inst_executed_op_global_ld.sum"] == 2 * n // (32 * 4)  # 4 elements of a lane in one load
    assert found["smsp__inst_executed_op_global_st.sum"] == n // (32 * 4)
    assert found["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"] == 2 * n * 4 // 32
    assert found["l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"] == n * 4 // 32
    assert found["smsp__thread_inst_executed_per_inst_executed.ratio"] == 32
    assert found["dram__bytes_read.sum"] == 2 * n * 4
    assert found["dram__bytes.sum"] == 3 * n * 4


def test_an_instruction_whose_lanes_are_all_off_is_executed_and_requests_nothing():
    x, out = torch.zeros(4096), torch.zeros(4096)
    with virtual_gpu("sm_80") as gpu:
        add_kernel[(4,)](x, x, out, 4000, BLOCK=1024, num_warps=8)
    found = values(gpu.last)
    assert found["smsp__inst_executed_op_global_st.sum"] == 4096 // 128
    assert found["l1tex__t_requests_pipe_lsu_mem_global_op_st.sum"] == 4000 // 128 + 1
    assert found["l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"] == 4000 * 4 // 32


def test_atomics_with_and_without_a_result_have_their_own_names():
    x, out, old = torch.zeros(128, dtype=torch.int32), torch.zeros(4, dtype=torch.int32), torch.zeros(128).int()
    with virtual_gpu("sm_80") as gpu:
        count_kernel[(1,)](x, out, old, BLOCK=128, num_warps=4)
    found = values(gpu.last)
    plain = sum(found[f"smsp__inst_executed_op_global_{name}.sum"] for name in ("atom", "red"))
    assert plain == 2 * 4
    assert found["smsp__inst_executed_op_global_ld.sum"] == 4


def test_asynchronous_copies_are_counted_as_such():
    from tests.unit.kernels import matmul_kernel

    a = torch.randn(64, 64).half()
    c = torch.empty_like(a)
    with virtual_gpu("sm_80") as gpu:
        matmul_kernel[(1, 1)](a, a, c, 64, 64, 64, 64, M=64, N=64, BLOCK_K=32)
    found = values(gpu.last)
    assert found["smsp__inst_executed_op_global_ld.sum"] == 0
    assert found["l1tex__t_sectors_pipe_lsu_mem_global_op_ldgsts.sum"] == 2 * 64 * 64 * 2 // 32


def test_the_counter_file_has_the_columns_of_rocprofv3_and_a_row_for_each_dispatch_and_counter():
    gpu = add("gfx942")
    text = rocprof_counters_csv(gpu.launches)
    assert text.splitlines()[0] == (
        '"Correlation_Id","Dispatch_Id","Agent_Id","Queue_Id","Process_Id","Thread_Id","Grid_Size","Kernel_Id",'
        '"Kernel_Name","Workgroup_Size","LDS_Block_Size","Scratch_Size","VGPR_Count","Accum_VGPR_Count","SGPR_Count",'
        '"Counter_Name","Counter_Value","Start_Timestamp","End_Timestamp"'
    )
    found = rows(text)
    assert len(found) == len(vendor_counters(gpu.last))
    waves = next(row for row in found if row["Counter_Name"] == "SQ_WAVES")
    assert int(waves["Grid_Size"]) / 64 == float(waves["Counter_Value"])  # Grid_Size counts work-items
    assert waves["Workgroup_Size"] == "256"
    assert waves["Kernel_Name"] == "add_kernel"
    assert int(waves["VGPR_Count"]) > 0


def test_the_trace_has_the_columns_of_rocprofv3_and_a_row_for_each_dispatch():
    gpu = add("gfx1100")
    text = rocprof_trace_csv([*gpu.launches, *gpu.launches])
    assert text.splitlines()[0].replace('"', "").split(",") == [
        "Kind", "Agent_Id", "Queue_Id", "Stream_Id", "Thread_Id", "Dispatch_Id", "Kernel_Id", "Kernel_Name",
        "Correlation_Id", "Start_Timestamp", "End_Timestamp", "LDS_Block_Size", "Scratch_Size", "VGPR_Count",
        "Accum_VGPR_Count", "SGPR_Count", "Workgroup_Size_X", "Workgroup_Size_Y", "Workgroup_Size_Z", "Grid_Size_X",
        "Grid_Size_Y", "Grid_Size_Z",
    ]  # fmt: skip
    found = rows(text)
    assert [row["Dispatch_Id"] for row in found] == ["1", "2"]
    assert (found[0]["Workgroup_Size_X"], found[0]["Grid_Size_X"], found[0]["Grid_Size_Y"]) == ("128", "2048", "1")


def test_the_long_form_of_ncu_follows_its_notes():
    gpu = add("sm_90")
    text = ncu_csv(gpu.launches)
    notes = [line for line in text.splitlines() if line.startswith("==PROF==")]
    body = text[text.index('"ID"') :]
    assert text.startswith("==PROF==")
    assert any("smsp__inst_executed.sum" in note and "PTX" in note for note in notes)
    found = rows(body)
    assert list(found[0]) == [
        "ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size",
        "Device", "CC", "Section Name", "Metric Name", "Metric Unit", "Metric Value",
    ]  # fmt: skip
    read = next(row for row in found if row["Metric Name"] == "dram__bytes_read.sum")
    assert (read["Metric Value"], read["Metric Unit"], read["CC"]) == ("131,072", "byte", "9.0")
    assert (read["Block Size"], read["Grid Size"]) == ("(128, 1, 1)", "(16, 1, 1)")


def test_a_reader_of_real_files_reads_ours():
    """The way analysis scripts read both tools: skip ncu's notes, strip its thousands separators."""
    lines = [line for line in ncu_csv(add("sm_80").launches).splitlines() if not line.startswith("==")]
    total = sum(float(row["Metric Value"].replace(",", "")) for row in csv.DictReader(lines))
    assert total > 0
    wide = {}
    for row in rows(rocprof_counters_csv(add("gfx942").launches)):
        wide.setdefault(row["Dispatch_Id"], {})[row["Counter_Name"]] = float(row["Counter_Value"])
    assert wide["1"]["SQ_WAVES"] == 64


def test_launches_of_the_other_vendor_are_refused():
    with pytest.raises(BadArgument, match="add_kernel ran on gfx942, and Nsight Compute"):
        ncu_csv(add("gfx942", l2=False).launches)
    with pytest.raises(BadArgument, match="add_kernel ran on sm_80, and rocprofv3"):
        rocprof_trace_csv(add("sm_80", l2=False).launches)


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
def test_the_table_says_what_differs_from_a_device(target):
    launch = add(target).last
    text = table(launch)
    for counter in vendor_counters(launch):
        assert counter.name in text
        assert counter.differs in text
    assert any(not counter.differs for counter in vendor_counters(launch))


@triton.jit
def three_operations_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x, y = tl.load(x_ptr + i, mask=i < n, other=0.0), tl.load(y_ptr + i, mask=i < n, other=0.0)
    tl.store(out_ptr + i, tl.fma(x, y, x) + y, mask=i < n)


@pytest.mark.parametrize(
    ("target", "added", "fused", "lanes"),
    [
        ("sm_80", *(f"smsp__sass_thread_inst_executed_op_{op}_pred_on.sum" for op in ("fadd", "ffma")), 1),
        ("gfx942", *(f"SQ_INSTS_VALU_{op}_F32" for op in ("ADD", "FMA")), 64),
    ],
)
def test_operations_on_float32_are_counted_by_thread_on_nvidia_and_by_wave_on_amd(target, added, fused, lanes):
    x = torch.randn(2048)
    with virtual_gpu(target) as gpu:
        three_operations_kernel[(2,)](x, x + 1, torch.empty_like(x), 2048, BLOCK=1024, num_warps=1)
    found = values(gpu.last)
    packed = 2 if target == "gfx942" and found[added] * lanes == 1024 else 1
    assert found[added] * lanes * packed == 2048
    assert found[fused] * lanes * packed == 2048


def test_the_wide_form_of_ncu_has_a_row_of_units_and_a_row_for_each_launch():
    launches = add("sm_90").launches
    text = ncu_csv(launches * 2, wide=True)
    lines = [line for line in text.splitlines() if not line.startswith("==")]
    head, units, *data = csv.reader(lines)
    assert len(data) == 2
    assert len(set(map(len, (head, units, *data)))) == 1
    at = head.index("smsp__warps_launched.sum")
    assert units[at] == "warp"
    assert units[0] == ""
    assert data[1][at].replace(",", "") == str(int(values(launches[0])["smsp__warps_launched.sum"]))
    assert data[1][0] == "1"


def test_modelled_times_are_written_and_named_so():
    nvidia, amd = add("sm_80").launches, add("gfx942").launches
    text = ncu_csv(nvidia, [(100, 2_600)])
    assert "gpu__time_duration.sum: modelled" in text
    (row,) = [row for row in rows(text[text.index('"ID"') :]) if row["Metric Name"] == "gpu__time_duration.sum"]
    assert (row["Metric Value"], row["Metric Unit"]) == ("2,500", "ns")
    (row,) = rows(rocprof_trace_csv(amd, [(100, 2_600)]))
    assert (row["Start_Timestamp"], row["End_Timestamp"], row["Agent_Id"]) == ("100", "2600", "virtual gfx942")
    assert "gpu__time_duration" not in ncu_csv(nvidia)


def test_ncu_works_out_the_occupancy_of_a_launch():
    found = values(add("sm_80").last)
    assert found["sm__maximum_warps_per_active_cycle_pct"] == 100
    assert found["launch__occupancy_limit_blocks"] == 32
    assert found["launch__registers_per_thread"] > 0
