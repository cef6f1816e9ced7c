"""compile_for and resources: ten targets, no GPU."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
import torch
import triton

from gpu_utils.analytic.occupancy import occupancy
from gpu_utils.backends import backend
from gpu_utils.chips import TARGETS
from gpu_utils.compiler import compile_for, resources
from gpu_utils.errors import CompileFailed, UnknownName
from tests.unit.kernels import (
    add_kernel,
    bad_assembly_kernel,
    calls_the_wrong_helper_kernel,
    matmul_kernel,
    softmax_kernel,
    unknown_function_kernel,
)

AMD = [name for name, target in TARGETS.items() if target.vendor == "amd"]
NVIDIA = [name for name, target in TARGETS.items() if target.vendor == "nvidia"]


def add_for(target, n=1000, **options):
    x = torch.zeros(1024)
    return compile_for(add_kernel, target, [x, x, x, n], **{"BLOCK": 1024, **options})


def matmul_for(target, dtype=torch.float16, M=64, N=64, BLOCK_K=32, **options):
    a = torch.zeros(256, 256, dtype=dtype)
    return compile_for(matmul_kernel, target, [a, a, a, 256, 256, 256, 256], M=M, N=N, BLOCK_K=BLOCK_K, **options)


@pytest.mark.parametrize("target", list(TARGETS))
def test_every_target_compiles_without_a_gpu(target):
    compiled = add_for(target)
    assert compiled.target == target
    assert compiled.name == "add_kernel"
    named = rf"\.target {target}a?\b" if target in NVIDIA else rf"\.amdgcn_target \".*-{target}\""
    assert re.search(named, compiled.asm)
    assert compiled.binary[:4] == b"\x7fELF"
    assert set(compiled.stages) >= {"ttir", "ttgir", "llir"}


@pytest.mark.parametrize(
    ("target", "matrix"),
    [
        ("sm_80", "mma.sync.aligned.m16n8k16"),
        ("sm_90", "wgmma.mma_async.sync.aligned.m64n"),
        ("sm_100", "tcgen05.mma"),
        ("gfx90a", "v_mfma_f32_32x32x8f16"),
        ("gfx942", "v_mfma_f32_"),
        ("gfx950", "v_mfma_f32_"),
        ("gfx1100", "v_wmma_f32_16x16x16_f16"),
        ("gfx1201", "v_wmma_f32_16x16x16_f16"),
    ],
)
def test_a_dot_becomes_the_matrix_instruction_of_the_target(target, matrix):
    compiled = matmul_for(target, M=128, N=128, BLOCK_K=64)
    assert matrix in compiled.asm
    assert resources(compiled).counts["matrix"] > 0


def test_example_arguments_specialise_as_in_a_launch():
    aligned, odd, one = (add_for("sm_80", n=n).stages["ttir"] for n in (1024, 1000 - 1, 1))
    assert re.search(r"%n: i32 {tt.divisibility = 16", aligned)
    assert re.search(r"%n: i32 (?!{tt.divis)", odd)
    assert "%n: i32" not in one


def test_a_misaligned_tensor_is_not_promised_to_be_aligned():
    x = torch.zeros(1025)
    ttir = compile_for(add_kernel, "sm_80", [x[1:], x, x, 1024], BLOCK=1024).stages["ttir"]
    assert re.search(r"%x_ptr: !tt.ptr<f32> (?!{tt.divis)", ttir)
    assert re.search(r"%y_ptr: !tt.ptr<f32> {tt.divisibility = 16", ttir)


def test_the_recipe_of_triton_itself_gives_the_same_code():
    """What `kernel.warmup` makes with a driver for the target is what compile_for makes without one."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    source = ASTSource(
        add_kernel,
        {"x_ptr": "*fp32", "y_ptr": "*fp32", "out_ptr": "*fp32", "n": "i32", "BLOCK": "constexpr"},
        {(4,): 1024},
        {(i,): [["tt.divisibility", 16]] for i in range(4)},
    )
    expected = triton.compile(source, target=GPUTarget("cuda", 80, 32), options={"num_warps": 8}).asm["ptx"]
    assert add_for("sm_80", n=1024, num_warps=8).asm == expected


def test_a_signature_is_enough():
    types = {"x_ptr": "*fp16:16", "y_ptr": "*fp16:16", "out_ptr": "*fp16:16", "n": "i32:16"}
    compiled = compile_for(add_kernel, "gfx942", signature=types, constexprs={"BLOCK": 512})
    assert "tt.ptr<f16>" in compiled.stages["ttir"]
    assert compile_for(add_kernel, "sm_90", signature={**types, "n": "i32:1"}, BLOCK=512).num_warps == 4


def test_torch_dtypes_stand_for_pointers():
    compiled = compile_for(add_kernel, "sm_80", [torch.float16, torch.float16, torch.float16, 64], BLOCK=64)
    assert "tt.ptr<f16>" in compiled.stages["ttir"]


def test_num_warps_and_stages_reach_the_compiler():
    compiled = matmul_for("gfx942", num_warps=8, num_stages=1)
    assert (compiled.num_warps, compiled.metadata["num_stages"]) == (8, 1)


def test_autotuned_kernels_take_their_first_configuration_and_what_is_given_wins():
    tuned = triton.autotune([triton.Config({"BLOCK": 256}, num_warps=2), triton.Config({"BLOCK": 64})], key=[])(
        add_kernel
    )
    x = torch.zeros(1024)
    assert compile_for(tuned, "sm_80", [x, x, x, 5]).num_warps == 2
    assert compile_for(tuned, "sm_80", [x, x, x, 5], num_warps=8).num_warps == 8


def test_heuristics_are_asked():
    chosen = triton.heuristics({"BLOCK": lambda args: triton.next_power_of_2(args["n"])})(add_kernel)
    x = torch.zeros(1024)
    assert "tensor<512xi32>" in compile_for(chosen, "sm_80", [x, x, x, 300]).stages["ttir"]


def test_an_unknown_target_offers_the_nearest():
    with pytest.raises(UnknownName, match="there is no target 'gfx924'; did you mean 'gfx942'"):
        add_for("gfx924")


def test_a_compile_error_names_kernel_target_line_and_reason():
    with pytest.raises(CompileFailed) as caught:
        compile_for(unknown_function_kernel, "gfx942", [torch.zeros(8)], BLOCK=8)
    message = str(caught.value)
    assert re.match(r"unknown_function_kernel for gfx942: line \d+ of unknown_function_kernel, `tl\.store", message)
    assert "no_such_function" in message
    assert "\n" not in message


def test_an_error_in_a_called_function_shows_that_functions_line():
    with pytest.raises(CompileFailed, match=r"line \d+ of wrong_helper, `return tl\.zeros\(\(3,\)"):
        compile_for(calls_the_wrong_helper_kernel, "sm_80", [torch.zeros(8)], BLOCK=8)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: compile_for(add_kernel, "sm_80", [torch.zeros(8)] * 3, BLOCK=8), "missing 1 required"),
        (lambda: add_for("sm_80", waves_per_eu=2), "waves_per_eu was specified but unrecognised"),
        (lambda: add_for("sm_80", BLOCK=100), "power of 2"),
        (lambda: compile_for(add_kernel, "sm_80", signature={"x_ptr": "*fp32"}, BLOCK=8), "lacks a type for 'y_ptr'"),
        (lambda: compile_for(add_kernel, "sm_80", signature={}, options={}), "lacks a type for 'x_ptr'"),
        (lambda: compile_for(len, "sm_80"), "is no kernel; expected a function with @triton.jit"),
    ],
)
def test_wrong_calls_are_one_sentence(call, message):
    with pytest.raises(CompileFailed) as caught:
        call()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("sm_90", "ptxas refused the PTX: Not a name of any known instruction: 'nonsense'"),
        ("gfx942", "the backend refused it: invalid instruction"),
    ],
)
def test_what_an_assembler_says_becomes_one_sentence_and_is_not_printed(target, message, capfd):
    with pytest.raises(CompileFailed) as caught:
        compile_for(bad_assembly_kernel, target, [torch.zeros(8)])
    assert str(caught.value) == f"bad_assembly_kernel for {target}: {message}"
    assert capfd.readouterr() == ("", "")


def test_what_a_session_recorded_compiles_for_both_vendors():
    tuned = triton.autotune([triton.Config({"BLOCK": 64}, num_warps=2)], key=[])(add_kernel)
    x = torch.zeros(100)
    with backend("interpreter").session() as session:
        tuned[(2,)](x, x, x, 100)
    (launch,) = session.launches
    for target in ("sm_80", "gfx942"):
        assert compile_for(launch.kernel, target, args=launch.args, **launch.kwargs).num_warps == 2


def test_with_triton_interpret_set_the_refusal_says_what_to_do():
    script = (
        "from gpu_utils import compile_for\nfrom tests.unit.kernels import add_kernel\n"
        "try: compile_for(add_kernel, 'sm_80', signature={}, BLOCK=8)\n"
        "except Exception as e: print(type(e).__name__, e)"
    )
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.startswith("CompilerMissing TRITON_INTERPRET=1 is set")


# --- resources


@pytest.mark.parametrize("target", AMD)
@pytest.mark.parametrize("make", [add_for, matmul_for], ids=["add", "matmul"])
def test_occupancy_by_registers_agrees_with_llvm(target, make):
    compiled = make(target)
    llvm = int(re.search(r"; Occupancy: (\d+)", compiled.asm).group(1))
    assert resources(compiled).occupancy.waves_per_simd == llvm


@pytest.mark.parametrize(
    ("target", "registers", "waves"),
    [
        *[("gfx942", registers, waves) for registers, waves in ((68, 7), (99, 4), (166, 3), (210, 2), (64, 8))],
        ("gfx1100", 256, 5),
        ("gfx1201", 238, 6),
        *[("sm_90", registers, waves) for registers, waves in ((32, 16), (33, 12), (128, 4), (255, 2))],
    ],
)
def test_waves_follow_from_registers(target, registers, waves):
    assert occupancy(TARGETS[target], registers, 0, num_warps=1).waves_per_simd == waves


def test_lds_can_be_what_limits():
    found = occupancy(TARGETS["gfx942"], registers=64, shared=20_000, num_warps=4)
    assert (found.blocks, found.waves, found.limited_by) == (3, 12, ("LDS",))


def test_each_nvidia_block_loses_a_kibibyte_to_the_system():
    target = TARGETS["sm_90"]
    assert occupancy(target, 32, 113 * 1024, 4).blocks == 2
    assert occupancy(target, 32, 113 * 1024 + 1, 4).blocks == 1


def test_more_blocks_than_the_hardware_takes_do_not_fit():
    assert occupancy(TARGETS["sm_80"], 16, 0, num_warps=1).limited_by == ("blocks",)


def test_a_spilling_kernel_says_so_on_amd():
    """Asking for more waves a SIMD leaves fewer registers to each."""
    big = {"M": 128, "N": 128, "BLOCK_K": 64, "num_warps": 4}
    assert resources(matmul_for("gfx942", **big)).spills == 0
    found = resources(matmul_for("gfx942", **big, waves_per_eu=4))
    assert found.registers <= 128
    assert found.spills > 0
    assert found.scratch > 0
    assert found.counts["scratch"] > 0


def test_a_spilling_kernel_says_so_on_nvidia():
    assert resources(matmul_for("sm_80", M=128)).spills == 0
    found = resources(matmul_for("sm_80", M=128, maxnreg=64))
    assert found.registers <= 64
    assert found.spills > 0
    assert found.scratch > 0


def test_registers_agree_with_what_the_metadata_of_the_code_object_says():
    compiled = matmul_for("gfx90a")
    assert resources(compiled).registers == int(re.search(r"\.vgpr_count:\s+(\d+)", compiled.asm).group(1))


def test_over_budget_shared_memory_is_reported_although_it_compiles():
    fits, too_much = (resources(matmul_for("gfx942", M=128, N=128, BLOCK_K=64, num_stages=s)) for s in (1, 4))
    assert fits.over_budget == ""
    assert too_much.shared > 65536
    assert "has 65536 for a block: it compiles, but it will not load" in too_much.over_budget
    assert too_much.occupancy.blocks == 0
    assert too_much.over_budget in str(too_much)


@pytest.mark.parametrize("target", list(TARGETS))
def test_a_vector_add_loads_twice_and_stores_once_with_full_width(target):
    found = resources(add_for(target, n=1024))
    per_lane = 1024 // (4 * TARGETS[target].lanes) * 32
    loads, stores = found.widths["global load"], found.widths["global store"]
    assert sum(bits * count for bits, count in loads.items()) == 2 * per_lane
    assert sum(bits * count for bits, count in stores.items()) == per_lane
    assert max(loads) == 128


@pytest.mark.parametrize("target", list(TARGETS))
def test_a_block_wide_reduction_uses_shared_memory_barriers_and_lanes(target):
    x = torch.zeros(1024)
    found = resources(compile_for(softmax_kernel, target, [x, x, 1000], BLOCK=1024))
    for kind in ("shared load", "shared store", "barrier", "cross-lane", "vector", "branch"):
        assert found.counts[kind] > 0, kind
    assert "matrix" not in found.counts
    assert found.shared > 0


def test_the_table_names_each_figure():
    text = str(resources(matmul_for("gfx942")))
    for word in ("VGPR", "SGPR", "spills", "LDS", "occupancy", "matrix", "bits"):
        assert word in text
