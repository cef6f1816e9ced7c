"""Faults planted one by one into kernels in AscendC: each is found, with its kind, its lines and what is missing."""

from __future__ import annotations

import pytest
import torch

from gpu_utils import npu
from gpu_utils.compiler import ascendc
from gpu_utils.errors import BadArgument, CompileFailed
from gpu_utils.npu import NpuFault, NpuRun, NpuStopped, run_ascendc
from tests.unit.virtual.ai_core import needs_clang

pytestmark = needs_clang

_HEAD = """\
#include "c_api/asc_simd.h"
#define L2_IN asc_load_l2_cache_mode(0)
#define L2_OUT asc_store_l2_cache_mode(0)
#define PLAIN asc_dual_dst_mode(1), asc_unit_flag_mode(0), asc_quant_mode(0), asc_relu_pre_mode(0), 0, 1, 0, 0
"""
ROWS = (
    _HEAD
    + """\
inline void doubled(float* from, float* to) {
  to[threadIdx.x] = 2 * from[threadIdx.x];
}
extern "C" __global__ __vector__ void k(__gm__ float* x, __gm__ float* y) {
  __ubuf__ float* in = (__ubuf__ float*)0;
  __ubuf__ float* out = in + 256;
  asc_sync_notify(PIPE_V, PIPE_MTE2, 0);
  asc_sync_notify(PIPE_V, PIPE_MTE2, 1);
  asc_sync_notify(PIPE_MTE3, PIPE_V, 0);
  asc_sync_notify(PIPE_MTE3, PIPE_V, 1);
  for (int i = 0; i < 4; ++i) {
    int b = i & 1;
    asc_sync_wait(PIPE_V, PIPE_MTE2, b);
    asc_copy_gm2ub_align((uint8_t*)(in + b * 128), (uint8_t*)(x + i * 128), 1, 512, 0, 0, 0, L2_IN, 512, 512);
    asc_sync_notify(PIPE_MTE2, PIPE_V, b);
    asc_sync_wait(PIPE_MTE2, PIPE_V, b);
    asc_sync_wait(PIPE_MTE3, PIPE_V, b);
    asc_vf_call<doubled>(cce::dim3(128), in + b * 128, out + b * 128);
    asc_sync_notify(PIPE_V, PIPE_MTE2, b);
    asc_sync_notify(PIPE_V, PIPE_MTE3, b);
    asc_sync_wait(PIPE_V, PIPE_MTE3, b);
    asc_copy_ub2gm_align((uint8_t*)(y + i * 128), (uint8_t*)(out + b * 128), 1, 512, L2_OUT, 512, 512);
    asc_sync_notify(PIPE_MTE3, PIPE_V, b);
  }
  asc_sync_wait(PIPE_V, PIPE_MTE2, 0);
  asc_sync_wait(PIPE_V, PIPE_MTE2, 1);
  asc_sync_wait(PIPE_MTE3, PIPE_V, 0);
  asc_sync_wait(PIPE_MTE3, PIPE_V, 1);
}
"""
)
"""y = 2 x, 128 elements after the other, in two buffers."""


def run(source: str, elements: int = 512, check: bool = False) -> tuple[NpuRun, torch.Tensor, torch.Tensor]:
    x = torch.randn(elements)
    y = torch.full((512,), float("nan"))
    return run_ascendc(source, "k", 1, [x, y], check=check), x, y


def line_of(source: str, words: str) -> int:
    return next(number for number, line in enumerate(source.split("\n"), 1) if words in line)


def test_the_kernel_itself_is_right_and_without_fault() -> None:
    done, x, y = run(ROWS)
    assert not done.faults
    assert torch.equal(y, 2 * x)
    assert done.counters["GM->UB"] == done.counters["UB->GM"] == 2048
    assert done.counters["vector_read"] == done.counters["vector_written"] == 2048
    assert (done.counters["notifies"], done.counters["waits"]) == (20, 20)


PLANTED = {
    "a buffer of another size overlaps": (
        *("overwritten", "in + 256", "in + 64", "asc_copy_gm2ub_align"),
        "overwrites what another pipe may still be reading",
    ),
    "one event for both buffers": (
        *(
            "set twice",
            "asc_sync_notify(PIPE_MTE2, PIPE_V, b)",
            "asc_sync_notify(PIPE_MTE2, PIPE_V, 0)",
            "PIPE_MTE2, PIPE_V, 0",
        ),
        "flag (PIPE_MTE2, PIPE_V, 0)",
    ),
    "a wait without a set": (
        *("never set", "    asc_sync_notify(PIPE_MTE2, PIPE_V, b);\n", "", "asc_sync_wait(PIPE_MTE2, PIPE_V"),
        "waits for ever for flag (PIPE_MTE2, PIPE_V, 0), which nothing sets",
    ),
    "no first set": (
        *("never set", "  asc_sync_notify(PIPE_MTE3, PIPE_V, 1);\n", "", "asc_sync_wait(PIPE_MTE3, PIPE_V, b)"),
        "is set only by what waits for this pipe in turn",
    ),
    "a set that is left": (
        *("left set", "  asc_sync_wait(PIPE_MTE3, PIPE_V, 1);\n", "", "asc_sync_notify(PIPE_MTE3, PIPE_V, b)"),
        "was set 3 times and taken 2 times",
    ),
    "read too early": (
        *("not ready", "    asc_sync_wait(PIPE_MTE2, PIPE_V, b);\n", "", "asc_vf_call"),
        "reads what no flag has made ready: UB byte 0 was written by line",
    ),
    "stored too early": (
        *("not ready", "    asc_sync_wait(PIPE_V, PIPE_MTE3, b);\n", "", "asc_copy_ub2gm_align"),
        "reads what no flag has made ready",
    ),
    "loaded over what is still read": (
        *("overwritten", "    asc_sync_wait(PIPE_V, PIPE_MTE2, b);\n", "", "asc_copy_gm2ub_align"),
        "overwrites what another pipe may still be reading",
    ),
    "beyond the tensor": (
        *("out of bounds", "x + i * 128", "x + i * 128 + 1", "asc_copy_gm2ub_align"),
        "goes beyond tensor 0: bytes 1540 to 2052 of 2048",
    ),
    "beyond UB": (
        *("out of bounds", "in + 256", "in + 63424", "asc_vf_call"),
        "overflows UB: bytes 253952 to 253956, and it has 253952",
    ),
    "not a multiple of 32": (
        *("misaligned", "in + 256", "in + 257", "asc_copy_ub2gm_align"),
        "its source starts at UB byte 1028, and must start at a multiple of 32",
    ),
    "nothing was loaded": (
        *("never written", "doubled>(cce::dim3(128), in", "doubled>(cce::dim3(128), in + 1024", "asc_vf_call"),
        "reads UB byte 4096, which nothing has written",
    ),
    "threads that share": (
        *(
            "not ready",
            "2 * from[threadIdx.x];",
            "2 * from[threadIdx.x];\n  to[threadIdx.x] += to[threadIdx.x ^ 1];",
            "asc_vf_call",
        ),
        "and no barrier of the threads is between the two",
    ),
    "no such flag": (
        *(
            "bad flag",
            "PIPE_V, PIPE_MTE2, 0);\n  asc_sync_notify",
            "PIPE_V, PIPE_MTE2, 16);\n  asc_sync_notify",
            "PIPE_V, PIPE_MTE2, 16",
        ),
        "there is no flag",
    ),
}


@pytest.mark.drawn("all", 6)
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_named_with_its_line(name: str) -> None:
    kind, old, new, where, words = PLANTED[name]
    assert old in ROWS
    source = ROWS.replace(old, new)
    found = [one for one in run(source)[0].faults if one.kind == kind]
    assert [one for one in found if words in one.sentence and one.line == line_of(source, where)], found


def test_a_missing_flag_is_said_first_with_the_lines_that_it_belongs_between() -> None:
    source = ROWS.replace("    asc_sync_wait(PIPE_MTE2, PIPE_V, b);\n", "")
    with pytest.raises(NpuFault) as caught:
        run(source, check=True)
    copy, call = line_of(source, "asc_copy_gm2ub_align"), line_of(source, "asc_vf_call")
    assert caught.value.run.faults[0].kind == "not ready"
    asked = f"asc_sync_notify(PIPE_MTE2, PIPE_V, id) after line {copy} and asc_sync_wait(PIPE_MTE2, PIPE_V, id)"
    assert f"{asked} before line {call}" in str(caught.value)


TWO_CORES = (
    _HEAD
    + """\
extern "C" __global__ __mix__(1, 2) void k(__gm__ half* a, __gm__ half* b, __gm__ float* c) {
  half* left = (half*)0;
  half* right = (half*)8192;
  float* total = (float*)0;
  __ubuf__ float* part = (__ubuf__ float*)0;
  if (ASC_IS_AIC) {
    asc_set_gm2l1_nz_para(1, 1, 64, 0);
    asc_copy_gm2l1_nd2nz(left, a, 128, L2_IN, 64, 64, 0, 0);
    asc_copy_gm2l1_nd2nz(right, b, 128, L2_IN, 64, 64, 0, 0);
    asc_sync_notify(PIPE_MTE2, PIPE_MTE1, 0);
    asc_sync_wait(PIPE_MTE2, PIPE_MTE1, 0);
    asc_lock(PIPE_MTE1, 0, ASC_LOCK_BLOCK);
    asc_copy_l12l0a((half*)0, left, 0, 0, 4, 4, 4, 4);
    asc_copy_l12l0b((half*)0, right, 0, 0, 4, 4, 4, 4);
    asc_unlock(PIPE_MTE1, 0, ASC_LOCK_BLOCK);
    asc_lock(PIPE_M, 0, ASC_LOCK_BLOCK);
    asc_mmad(total, (half*)0, (half*)0, 64, 64, 64, 0, true, false, true);
    asc_unlock(PIPE_M, 0, ASC_LOCK_BLOCK);
    asc_sync_notify(PIPE_M, PIPE_FIX, 0);
    asc_sync_wait(PIPE_M, PIPE_FIX, 0);
    asc_copy_l0c2ub(part, total, 64, 64, 64, 64, 0, PLAIN);
    asc_sync_intra_arrive(PIPE_FIX, 1);
    asc_sync_intra_arrive(PIPE_FIX, 17);
  } else {
    asc_sync_intra_wait(PIPE_MTE3, 1);
    float* rows = c + asc_get_sub_block_id() * 2048;
    asc_copy_ub2gm_align((uint8_t*)rows, (uint8_t*)part, 1, 8192, L2_OUT, 8192, 8192);
  }
}
"""
)
"""C = A Bᵀ of 64 by 64: half of the rows go through each vector core."""


def product(source: str) -> tuple[NpuRun, torch.Tensor, torch.Tensor]:
    a, b = torch.randn(64, 64).half(), torch.randn(64, 64).half()
    c = torch.full((64, 64), float("nan"))
    return run_ascendc(source, "k", 1, [a, b, c], check=False), c.double(), a.double() @ b.double().T


def test_a_product_goes_over_both_vector_cores() -> None:
    done, got, exact = product(TWO_CORES)
    assert not done.faults
    assert (got - exact).abs().max() < 1e-4
    assert {one.core for one in done.operations} == {"cube", "vector 0", "vector 1"}
    moved = {"GM->L1": 16384, "L1->L0A": 8192, "L1->L0B": 8192, "L0C->UB": 16384, "UB->GM": 16384}
    assert {name: done.counters[name] for name in moved} == moved
    assert done.counters["cube_flops"] == 2 * 64**3


BETWEEN_CORES = {
    "L1 overflows": (
        *("out of bounds", "(half*)8192", "(half*)522240"),
        "overflows L1: bytes 524288 to 524320, and it has 524288",
    ),
    "two tiles lie on each other": ("written twice", "(half*)8192", "(half*)4096", "asc_sync_pipe(PIPE_MTE2)"),
    "L0C overflows": ("out of bounds", "(float*)0", "(float*)245776", "overflows L0C"),
    "no arrival": (
        "never set",
        "    asc_sync_intra_arrive(PIPE_FIX, 17);\n",
        "",
        "waits for ever for an arrival on id 1",
    ),
    "nobody waits": (
        "left set",
        "    asc_sync_intra_wait(PIPE_MTE3, 1);\n",
        "",
        "arrivals on id 1 that it never waited for",
    ),
    "the vector core does not wait": (
        *("not ready", "    asc_sync_intra_wait(PIPE_MTE3, 1);\n", ""),
        "asc_sync_intra_arrive(PIPE_FIX, id)",
    ),
    "a lock that nobody holds": (
        "not locked",
        "    asc_lock(PIPE_M, 0, ASC_LOCK_BLOCK);\n",
        "",
        "asc_lock(PIPE_M, 0, ASC_LOCK_BLOCK)",
    ),
    "a lock that is kept": ("left locked", "    asc_unlock(PIPE_MTE1, 0, ASC_LOCK_BLOCK);\n", "", "taken by PIPE_MTE1"),
    "the drain does not wait": (
        "not ready",
        "    asc_sync_wait(PIPE_M, PIPE_FIX, 0);\n",
        "",
        "asc_sync_wait(PIPE_M, PIPE_FIX, id)",
    ),
}


@pytest.mark.drawn("all", 3)
@pytest.mark.parametrize("name", BETWEEN_CORES)
def test_a_fault_on_the_cube_core_or_between_cores_is_named(name: str) -> None:
    kind, old, new, words = BETWEEN_CORES[name]
    assert old in TWO_CORES
    found = [one for one in product(TWO_CORES.replace(old, new))[0].faults if one.kind == kind]
    assert [one for one in found if words in str(one)], found


def test_unit_flags_stand_in_for_the_flags_between_product_and_drain() -> None:
    bare = TWO_CORES.replace("asc_sync_notify(PIPE_M, PIPE_FIX, 0);", ";").replace(
        "asc_sync_wait(PIPE_M, PIPE_FIX, 0);", ";"
    )
    with_units = bare.replace("64, 64, 64, 0, true", "64, 64, 64, 3, true").replace(
        "unit_flag_mode(0)", "unit_flag_mode(3)"
    )
    done, got, exact = product(with_units)
    assert not done.faults
    assert (got - exact).abs().max() < 1e-4
    assert "not ready" in [one.kind for one in product(bare)[0].faults]
    alone = with_units.replace("64, 64, 64, 3, true", "64, 64, 64, 0, true")
    assert "waits for ever for the unit flag of a product" in str(product(alone)[0].faults[0])


ACROSS = (
    _HEAD
    + """\
extern "C" __global__ __vector__ void k(__gm__ float* x, __gm__ float* y) {
  float* in = (__ubuf__ float*)0;
  asc_copy_gm2ub_align((uint8_t*)in, (uint8_t*)(x + block_idx * 64), 1, 256, 0, 0, 0, L2_IN, 256, 256);
  asc_sync_notify(PIPE_MTE2, PIPE_MTE3, 0);
  asc_sync_wait(PIPE_MTE2, PIPE_MTE3, 0);
  asc_copy_ub2gm_align((uint8_t*)(y + block_idx * 64), (uint8_t*)in, 1, 256, L2_OUT, 256, 256);
  asc_sync_inter_arrive(PIPE_MTE3, 3);
  asc_sync_inter_wait(PIPE_MTE2, 3);
  asc_copy_gm2ub_align((uint8_t*)(in + 64), (uint8_t*)(y + (3 - block_idx) * 64), 1, 256, 0, 0, 0, L2_IN, 256, 256);
  asc_sync_notify(PIPE_MTE2, PIPE_MTE3, 0);
  asc_sync_wait(PIPE_MTE2, PIPE_MTE3, 0);
  asc_copy_ub2gm_align((uint8_t*)(y + 256 + block_idx * 64), (uint8_t*)(in + 64), 1, 256, L2_OUT, 256, 256);
}
"""
)
"""Four blocks copy x to y, and then what another block has copied."""


def test_blocks_that_read_from_each_other_need_to_have_met() -> None:
    x, y = torch.randn(256), torch.zeros(512)
    run_ascendc(ACROSS, "k", 4, [x, y])
    assert torch.equal(y, torch.cat([x, x.view(4, 64).flip(0).flatten()]))
    met = "  asc_sync_inter_arrive(PIPE_MTE3, 3);\n  asc_sync_inter_wait(PIPE_MTE2, 3);\n"
    early, late = run_ascendc(ACROSS.replace(met, ""), "k", 4, [x, y], check=False).faults
    assert (early.kind, late.kind) == ("not ready", "overwritten")
    assert "asc_sync_inter_arrive(PIPE_MTE3, id)" in early.missing


def test_layouts_are_real_so_that_a_wrong_stride_gives_a_wrong_product() -> None:
    _, got, exact = product(
        TWO_CORES.replace("asc_set_gm2l1_nz_para(1, 1, 64, 0)", "asc_set_gm2l1_nz_para(1, 1, 65, 0)")
    )
    assert not (got - exact).abs().max() < 1


def test_an_unknown_intrinsic_is_refused_by_its_name() -> None:
    with pytest.raises(
        CompileFailed, match=f"line {line_of(ROWS, 'PIPE_V, PIPE_MTE2, 0')}: the virtual AI core does not know asc_sort"
    ):
        run(ROWS.replace("  asc_sync_notify(PIPE_V, PIPE_MTE2, 0);", "  asc_sort(in, out, 256);"))


def test_a_block_scaled_product_is_refused_by_its_name() -> None:
    done = product(TWO_CORES.replace("asc_mmad(", "asc_mmad_mx("))[0]
    assert [one.sentence for one in done.faults if one.kind == "not modelled"] == [
        f"line {line_of(TWO_CORES, 'asc_mmad')}: the virtual AI core does not model asc_mmad_mx"
    ]


def test_a_kernel_without_end_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpu_utils.npu.run.SECONDS", 1)
    with pytest.raises(NpuStopped, match="more than 1 s"):
        run(ROWS.replace("  for (int i", "  while (block_idx == 0) {}\n  for (int i"))


def test_a_loop_that_issues_without_end_is_told_so_with_its_line() -> None:
    source = ROWS.replace("i < 4; ++i", "i < 4;")
    (fault,) = [one for one in run(source)[0].faults if one.kind == "no end"]
    assert "1000000 operations" in fault.sentence


def test_a_kernel_that_crashes_does_not_take_the_caller_with_it() -> None:
    with pytest.raises(NpuStopped, match="outside of every buffer"):
        run(ROWS.replace("  for (int i", "  *(volatile int*)8 = 1;\n  for (int i"))


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        ([torch.zeros(512)], "2 parameters and 1 tensors"),
        ([torch.zeros(512), None], "tensor 1 is a NoneType"),
        ([torch.zeros(512), torch.zeros(512, 2)[:, 0]], "must be contiguous"),
    ],
)
def test_what_is_no_tensor_of_the_kernel_gets_a_sentence(tensors, words) -> None:
    with pytest.raises(BadArgument, match=words):
        run_ascendc(ROWS, "k", 1, tensors)


def test_a_kernel_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(BadArgument, match=r"void main_kernel.*kernels in it: k"):
        run_ascendc(ROWS, "main_kernel", 1, [])


def test_the_names_of_the_package_are_these() -> None:
    assert set(npu.__all__) == {"NpuFault", "NpuRun", "NpuStopped", "run_ascendc"}
    assert ascendc.CHIP.ub == 253_952
