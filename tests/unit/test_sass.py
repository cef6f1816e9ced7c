"""SASS: PTX assembled for a target by ptxas and read back by nvdisasm, without a GPU."""

from __future__ import annotations

import pytest

from gpu_utils import compile_for, lesson
from gpu_utils.compiler.cpp_module import CppModule
from gpu_utils.compiler.sass import sass
from gpu_utils.errors import BadArgument, CompileFailed, CompilerMissing
from tests.unit.kernels import add_kernel

SOURCE = (lesson.unit_folder("02") / "kernels" / "branch.cu").read_text()


@pytest.fixture(scope="module")
def module():
    return lesson.compile_cpp(SOURCE, "sm_80")


def test_a_branch_is_shown_from_where_it_opens_to_where_its_sides_meet(module):
    lines = [line.strip() for line in sass(module, "BSSY", "STG.E").splitlines()]
    assert lines[0].startswith("BSSY B0, .L_x_")
    assert "@!P0 BRA .L_x_1" in lines
    assert [line for line in lines if "more" in line] == [
        "FFMA R0, R0, R5, 1   ... and 11 more FFMA",
        "FFMA R0, R0, R5, -1   ... and 5 more FFMA",
    ]
    assert lines.index(".L_x_1:") < lines.index(".L_x_2:") < lines.index("BSYNC B0") < lines.index(".L_x_0:")
    assert lines[-1].startswith("STG.E")


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100"])
def test_a_triton_kernel_has_sass_for_every_nvidia_target(target):
    signature = {"x_ptr": "*fp32", "y_ptr": "*fp32", "out_ptr": "*fp32", "n": "i32"}
    assert "FADD" in sass(compile_for(add_kernel, target, signature=signature, BLOCK=128))


def test_a_stored_listing_can_be_assembled_too(monkeypatch):
    monkeypatch.setattr("gpu_utils.compiler.clang.wheel_folder", lambda: None)
    stored = lesson.compile_cpp(SOURCE, "sm_80")
    assert stored.stored
    assert "BSYNC B0" in sass(stored, "BSSY", "BSYNC")


def test_a_mnemonic_that_is_not_there_is_refused_with_those_that_are(module):
    with pytest.raises(BadArgument, match=r"no HMMA in this code; there are BRA, BSSY, "):
        sass(module, "HMMA")
    with pytest.raises(BadArgument, match=r"no LDG.E in this code; there are BRA, EXIT, "):
        sass(module, "STG.E", "LDG.E")


def test_a_kernel_for_amd_has_no_sass():
    with pytest.raises(BadArgument, match="this kernel is for gfx942"):
        sass(lesson.compile_cpp(SOURCE, "gfx942"))


def test_code_that_ptxas_refuses_is_told_with_its_first_error(module):
    with pytest.raises(CompileFailed, match=r"ptxas refused the code for sm_80: .*nonsense"):
        sass(CppModule("sm_80", module.asm.replace("fma.rn.f32", "nonsense"), module.kernels))


def test_a_lesson_goes_on_with_one_sentence_where_the_tools_are_missing(monkeypatch, module):
    def missing():
        raise RuntimeError("Cannot find nvdisasm")

    monkeypatch.setattr("gpu_utils.compiler.sass._nvdisasm", missing)
    with pytest.raises(CompilerMissing):
        sass(module)
    assert lesson.sass(module).startswith("reading SASS needs ptxas and nvdisasm")
    assert "\n" not in lesson.sass(module)
