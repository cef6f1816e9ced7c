"""Machine code asked by lessons: parts of listings, mnemonics, loops, notes; launches on several virtual GPUs."""

from __future__ import annotations

import re

import pytest
import torch

from gpu_utils import compile_for
from gpu_utils.compiler import listing
from gpu_utils.compiler.reading import kernel_descriptor
from gpu_utils.errors import BadArgument, UnknownName
from gpu_utils.lesson import (
    compiler_notes,
    counted,
    counts,
    counts_by_line,
    executed,
    in_loops,
    issued,
    launch_cpp,
    launch_on,
    mnemonics,
    resources,
)
from tests.unit.kernels import add_kernel, matmul_kernel

TARGETS = ("sm_80", "gfx942")


@pytest.fixture(scope="module")
def found():
    x = torch.zeros(1024)
    return listing(add_kernel, *TARGETS, args=[x, x, x, 1000], BLOCK=1024)


@pytest.fixture(scope="module")
def matmul():
    a = torch.zeros(256, 256, dtype=torch.float16)
    sizes = {"M": 64, "N": 64, "BLOCK_K": 32}
    return {t: compile_for(matmul_kernel, t, [a, a, a, 256, 256, 256, 256], **sizes) for t in TARGETS}


@pytest.fixture(scope="module")
def gpus():
    x, out = torch.randn(1000), torch.empty(1000)
    return launch_on(TARGETS, add_kernel, (1,), x, x, out, 1000, threads=128, BLOCK=1024)


def test_a_part_of_a_listing_has_the_lines_that_were_asked_for(found):
    part = found.only("tl.load")
    assert all("tl.load" in text for _, text in part.source)
    numbers = {number for number, _ in part.source}
    assert all(one.source in numbers for column in part.columns for one in column.instructions)
    assert all(column.instructions for column in part.columns)


def test_a_part_of_a_listing_has_the_kinds_that_were_asked_for(found):
    part = found.only(kinds=("global load",))
    assert {one.kind for column in part.columns for one in column.instructions} == {"global load"}
    assert len(part.source) < len(found.source)
    assert "tl.load" in str(part)


def test_what_makes_or_uses_a_mask_is_a_kind_of_its_own(found):
    nvidia, amd = (column.instructions for column in found.only(kinds=("mask",)).columns)
    assert {one.mnemonic.split(".")[0] for one in nvidia} == {"setp", "ld", "st"}
    assert any(one.mnemonic.startswith("v_cmp_") for one in amd)


def test_what_is_not_in_a_listing_is_said(found):
    with pytest.raises(BadArgument, match=r"no line of add_kernel holds 'tl\.laod'; quote it as it stands"):
        found.only("tl.laod")
    with pytest.raises(UnknownName, match="did you mean 'global load'"):
        found.only(kinds=("globl load",))


def test_mnemonics_are_counted_by_kind_and_by_how_they_start(matmul):
    assert all(re.match(r"v_mfma_", name) for name in mnemonics(matmul["gfx942"], "matrix"))
    assert sum(mnemonics(matmul["sm_80"], "matrix").values()) == resources(matmul["sm_80"]).counts["matrix"]
    assert set(mnemonics(matmul["sm_80"], starting="ldmatrix")) < set(mnemonics(matmul["sm_80"]))
    with pytest.raises(UnknownName):
        mnemonics(matmul["sm_80"], "matrices")


@pytest.mark.parametrize("target", TARGETS)
def test_the_loop_of_a_product_has_its_matrix_instructions_and_not_its_stores(matmul, target):
    assert in_loops(matmul[target], "matrix")
    assert not in_loops(matmul[target], "global store")
    assert mnemonics(matmul[target], "global store")


def test_llvm_notes_and_the_descriptor_agree_with_the_registers(matmul):
    needs = resources(matmul["gfx942"])
    assert compiler_notes(matmul["gfx942"])["NumVgprs"] == needs.vgprs
    assert compiler_notes(matmul["sm_80"]) == {}
    asked = kernel_descriptor(matmul["gfx942"].binary).vgprs
    assert needs.registers <= asked < needs.registers + 8


@pytest.mark.parametrize("binary", [b"", b"\x7fELF", bytes(200), b"MZ" * 100])
def test_bytes_that_are_no_code_object_are_refused(binary):
    with pytest.raises(BadArgument, match="no code object of an AMD kernel"):
        kernel_descriptor(binary)


def test_a_cubin_is_no_code_object_of_an_amd_kernel(matmul):
    with pytest.raises(BadArgument, match="no code object"):
        kernel_descriptor(matmul["sm_80"].binary)


def test_one_launch_on_several_gpus_has_as_many_threads_on_each(gpus):
    counted = counts(gpus, "waves", "instructions_wait")
    assert {target: row["waves"] for target, row in counted.items()} == {"sm_80": 4, "gfx942": 2}
    assert counted["sm_80"]["instructions_wait"] == 0
    assert list(counts(gpus)["sm_80"]) == list(counts(gpus)["gfx942"])
    with pytest.raises(UnknownName, match="did you mean 'waves'"):
        counts(gpus, "wave")


def test_counts_by_line_add_up_to_the_counts(gpus):
    rows = counts_by_line(gpus, add_kernel)
    assert any("tl.store" in line for line in rows)
    for target, gpu in gpus.items():
        *lines, in_all = (
            sum(float(part.split()[0]) for part in row[target].split(", ") if part) for row in rows.values()
        )
        counted = counts(gpus, "waves", "instructions")[target]
        assert sum(lines) == in_all == counted["instructions"] / counted["waves"]
        assert gpu.counters.per_line().get(None) is None


def test_what_was_executed_is_folded_where_one_mnemonic_repeats(gpus):
    found = executed(gpus, "global store")
    assert [line.waves for line in found.columns["sm_80"]] == [4]
    assert "... and 7 more st.global.b32" in repr(found)
    assert 'class="num">4</td>' in found._repr_html_()


def test_cpp_runs_on_several_targets(clang):
    source = 'extern "C" __global__ void twice(float *x) { x[threadIdx.x] = 2.0f * x[threadIdx.x]; }\n'
    x = torch.ones(64)
    gpus = launch_cpp(TARGETS, source, "twice", 1, 64, [x])
    assert x.tolist() == [4.0] * 64
    assert {target: row["waves"] for target, row in counts(gpus, "waves").items()} == {"sm_80": 2, "gfx942": 1}


def test_instructions_of_a_mnemonic_are_counted_with_the_share_of_lanes_on(gpus):
    found = issued(gpus, "add")
    assert all(row["issued"] > 0 and row["% of lanes on"] == 100 for row in found.values())
    assert issued(gpus, "no such") == {target: {"issued": 0, "% of lanes on": 0} for target in TARGETS}
    assert counted(gpus, "waves") == {"sm_80": 4, "gfx942": 2}
