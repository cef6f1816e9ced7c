"""Tile programs that bring C++ of their own are refused, by the program and by the text that would be compiled."""

from __future__ import annotations

import pytest
import torch

from gpu_utils.compiler.tilelang import installed, lower
from gpu_utils.errors import BadArgument, CompileFailed
from gpu_utils.grading.own_code import refuse_foreign
from gpu_utils.grading.tiles import Tiled
from gpu_utils.kernelset import tile_attention, tile_matmuls, tile_rows  # noqa: F401 (they register their cases)
from gpu_utils.kernelset.tile_case import TILE_CASES

HEAD = "#include <tl_templates/ascend/common.h>\n"
KERNEL = 'extern "C" __global__ __vector__ void k(__gm__ float* a) {\n  asc_init();\n  @\n}\n'
NEEDS = pytest.mark.skipif(not installed(), reason="needs the extra tilelang")
EVASIONS = (
    "system(0);",
    "(system)(0);",
    "(0, system)(0);",
    "(*&system)(0);",
    "((void(*)(int))4096)(0);",
    "auto p = system; p(0);",
    "{ int system; } (system)(0);",
    "[&] { asc_init(); }();",
    "asc_vf_call<system>(cce::dim3(1), a);",
    "std::abort();",
    "asm volatile (0);",
    '__asm__("nop");',
    'puts("x");',
    "w2w_at(1);",
    "__builtin_trap();",
    "struct x { int y; };",
    "new int;",
    "\n#include </etc/passwd>\n",
    "\n#define asc_init system\n",
    "\n%:define asc_init system\n",
    "// \\\n",
)


def bringing(kind):
    """A tile program that copies, and brings code of its own."""

    def program(T, vendor, n):
        npu = vendor == "ascend"

        @T.prim_func
        def main(a: T.Tensor((n,), "float32"), b: T.Tensor((n,), "float32")):
            with T.Kernel(1) if npu else T.Kernel(1, threads=128):
                tile = T.alloc_shared((n,), "float32")
                if kind == "source":
                    T.import_source("inline int own() { return 1; }\n")
                T.copy(a, tile)
                if kind == "extern":
                    T.evaluate(T.call_extern("int32", "system", 0))
                T.copy(tile, b)

        return main

    return program


@pytest.mark.parametrize("more", EVASIONS)
def test_what_tilelang_does_not_write_is_refused(more):
    with pytest.raises(BadArgument, match=r"^[^\n]+$"):
        refuse_foreign(HEAD + KERNEL.replace("@", more), "k")


def test_a_prelude_is_refused():
    with pytest.raises(BadArgument, match="`own`"):
        refuse_foreign(HEAD + "int own() { return 1; }" + KERNEL.replace("@", ""), "k")


@NEEDS
@pytest.mark.parametrize("kind", ["source", "extern"])
@pytest.mark.parametrize("target", ["ascend950", "sm_80"])
def test_a_program_with_own_code_is_refused(kind, target):
    graded = Tiled(("n",), lambda inputs: (torch.zeros(128), torch.zeros(128)))
    with pytest.raises(CompileFailed, match="brings code of its own"):
        graded.lowered(bringing(kind), {"target": target, "n": 128})
    lowered = lower(bringing(kind), "ascend950", n=128)
    with pytest.raises(BadArgument, match="does not write by itself"):
        refuse_foreign(lowered.source, lowered.kernel)


@NEEDS
@pytest.mark.parametrize("case", list(TILE_CASES.values()), ids=list(TILE_CASES))
def test_the_courses_own_programs_are_read(case):
    try:
        lowered = lower(case.program, "ascend950", **case.sizes)
    except CompileFailed:
        return
    refuse_foreign(lowered.source, lowered.kernel)
