"""05.autotune: its rules agree with the compiler and with the virtual GPU, and what is stored with both."""

from __future__ import annotations

import ast
import inspect
import json

import pytest
import torch

from gpu_utils import exercises, virtual_gpu
from gpu_utils.compiler import compile_for
from gpu_utils.course.paths import course
from gpu_utils.exercises.u05_triton_matmul import autotune, autotune_compiled
from gpu_utils.exercises.u05_triton_matmul.autotune_compiled import SIGNATURE, compiled, label, needs, product_kernel
from gpu_utils.exercises.u05_triton_matmul.autotune_slips import config, right
from gpu_utils.grading.check import check

STORED = json.loads(autotune_compiled.PLACE.read_text("utf-8"))


@pytest.mark.parametrize(
    ("target", "one"),
    [
        ("sm_80", config(64, 64, 64, 4, 3)),
        ("sm_90", config(64, 64, 64, 4, 3)),
        ("gfx942", config(64, 32, 64, 4, 2, matrix_instr_nonkdim=16)),
        ("gfx942", config(256, 256, 64, 8, 2)),
    ],
)
def test_what_is_stored_is_what_the_compiler_says(target, one):
    if STORED["of"] != autotune_compiled.of_kernel():
        pytest.skip(f"stored for another Triton: {STORED['of']['triton']}")
    assert label(target, one) in STORED["needs"]
    assert needs(target, one) == compiled(target, one)


def test_the_file_holds_for_the_kernel_as_it_is():
    assert STORED["of"]["kernel"] == autotune_compiled.of_kernel()["kernel"]


def test_the_right_lists_need_no_compiler():
    targets = ("sm_80", "sm_89", "sm_90", "gfx90a", "gfx942", "gfx950")
    assert {label(target, one) for target in targets for one in right(target)} <= set(STORED["needs"])


def test_the_kernel_of_the_lab_is_the_one_that_is_graded():
    def kernel(source):
        (found,) = (node for node in ast.parse(source).body if getattr(node, "name", "") == "product_kernel")
        return ast.dump(found)

    assert kernel(course().source(course().find("05"), "lab").read_text("utf-8")) == kernel(
        inspect.getsource(autotune_compiled)
    )


@pytest.mark.parametrize(("option", "times"), [({}, 2), ({"matrix_instr_nonkdim": 16}, 1)])
def test_four_waves_on_two_matrix_tiles_do_everything_twice(option, times):
    one = config(64, 32, 64, 4, 2, **option)
    a, b, c = torch.ones(64, 64).half(), torch.ones(64, 32).half(), torch.empty(64, 32).half()
    with virtual_gpu("gfx942") as gpu:
        product_kernel[(1, 1)](a, b, c, 32, 64, **one)
    assert gpu.counters.totals()["matrix_flops"] == times * 2 * 64 * 32 * 64
    found = autotune._on_matrix_units("gfx942", one)
    assert (found is None) == (times == 1)


@pytest.mark.parametrize(("rows", "warps", "wgmma"), [(64, 4, True), (32, 4, False), (64, 2, False)])
def test_wgmma_takes_64_rows_and_four_warps(rows, warps, wgmma):
    one = config(rows, 64, 32, warps, 2)
    asm = compile_for(product_kernel, "sm_90", signature=SIGNATURE, **one).asm
    assert ("wgmma.mma_async" in asm) == wgmma
    assert (autotune._on_matrix_units("sm_90", one) is None) == wgmma


def test_a_failure_names_the_target_the_entry_and_the_bytes():
    def answer(target):
        return [config(128, 256, 64, 8, 3), *right(target)[1:]]

    failure = check(exercises.find("05.autotune"), answer, seed=1).first_failure
    assert failure.kind == "shared"
    assert failure.detail.startswith("on gfx942, configuration 1 (BLOCK_M=128, BLOCK_N=256, BLOCK_K=64")
    assert "98,304 bytes of LDS; a block may have 65,536" in failure.detail
