"""Inline assembly with another vendor's constraints raises, where LLVM would end the process."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

from gpu_utils import virtual_gpu
from gpu_utils.compiler import compile_for
from gpu_utils.errors import CompileFailed


@triton.jit
def assembly_kernel(x_ptr, TEXT: tl.constexpr, CONSTRAINTS: tl.constexpr):
    offsets = tl.arange(0, 128)
    x = tl.load(x_ptr + offsets)
    tl.store(x_ptr + offsets, tl.inline_asm_elementwise(TEXT, CONSTRAINTS, [x], x.dtype, is_pure=True, pack=1))


def build(target, constraints, text="// $0 $1", dtype=torch.int32):
    return compile_for(assembly_kernel, target, (torch.zeros(128, dtype=dtype),), TEXT=text, CONSTRAINTS=constraints)


@pytest.mark.parametrize(
    ("target", "constraints", "letter"),
    [("gfx942", "=f,f", "f"), ("gfx1100", "=l,l", "l"), ("sm_80", "=v,v", "v"), ("sm_90", "=r,s", "s")],
)
def test_a_constraint_of_the_other_vendor_is_named(target, constraints, letter):
    with pytest.raises(CompileFailed, match=rf"couldn't allocate a register for constraint '{letter}'"):
        build(target, constraints)


@pytest.mark.parametrize(("target", "constraints"), [("sm_80", "=r,r"), ("gfx942", "=&v,v"), ("gfx942", "=v,0")])
def test_constraints_of_the_target_build(target, constraints):
    assert build(target, constraints).asm


@triton.jit
def packing_kernel(x_ptr, TEXT: tl.constexpr, CONSTRAINTS: tl.constexpr, PACK: tl.constexpr):
    offsets = tl.arange(0, 256)
    x = tl.load(x_ptr + offsets)
    halves = x.to(tl.float16)
    y, z = tl.inline_asm_elementwise(
        TEXT, CONSTRAINTS, [x, halves, offsets.to(tl.int64)], dtype=(tl.float32, tl.int8), is_pure=True, pack=PACK
    )
    tl.store(x_ptr + offsets, y + z)


@pytest.mark.parametrize(
    ("pack", "constraints"),
    [(1, "=f,=r,f,h,l"), (2, "=f,=f,=h,f,f,r,l,l"), (4, "=f,=f,=f,=f,=r,f,f,f,f,r,r,l,l,l,l,~{memory}")],
)
def test_a_constraint_for_each_register_that_is_filled_builds(pack, constraints):
    def built(constraints, text="// $0 $1"):
        return compile_for(
            packing_kernel, "sm_80", (torch.zeros(256),), TEXT=text, CONSTRAINTS=constraints, PACK=pack
        ).stages["ttir"]

    assert "elementwise_inline_asm" in built(constraints)
    count = constraints.replace(",~{memory}", "").count(",") + 1
    assert f"${count - 1}" in built(constraints, f"// ${count - 1} $$99")
    with pytest.raises(CompileFailed, match=rf"names \${count}, expected \$0 to \${count - 1}: it has \d results? and"):
        built(constraints, f"// $0 ${count}")
    with pytest.raises(CompileFailed, match=rf"expected \d results and \d+ arguments, one .* pack={pack} fills"):
        built(constraints + ",r")
    with pytest.raises(CompileFailed, match="one constraint for each register"):
        built(constraints.removeprefix("=f,"))


def test_a_launch_on_a_virtual_gpu_raises_too():
    with virtual_gpu("gfx942"), pytest.raises(CompileFailed, match="constraint 'f'"):
        assembly_kernel[(1,)](torch.zeros(128), TEXT="v_exp_f32 $0, $1", CONSTRAINTS="=f,f")


def test_triton_is_left_as_it_was():
    from triton.compiler.compiler import ASTSource

    before = ASTSource.make_ir
    with pytest.raises(CompileFailed):
        build("sm_80", "=v,v")
    assert ASTSource.make_ir is before


@triton.jit
def constant_kernel(x_ptr, TEXT: tl.constexpr, CONSTRAINTS: tl.constexpr):
    offsets = tl.arange(0, 128)
    x = tl.load(x_ptr + offsets)
    tl.store(x_ptr + offsets, tl.inline_asm_elementwise(TEXT, CONSTRAINTS, [x, 3], x.dtype, is_pure=True, pack=1))


@triton.jit
def clock_kernel(x_ptr, TEXT: tl.constexpr, CONSTRAINTS: tl.constexpr):
    tl.store(x_ptr, tl.inline_asm_elementwise(TEXT, CONSTRAINTS, [], tl.int64, is_pure=False, pack=1))


@pytest.mark.parametrize(
    ("target", "text", "constraints"),
    [
        ("sm_90", "add.s32 $0, $1, $2;", "=r,r,n"),
        ("sm_90", "add.s32 $0, $1, $2;", "=r, r, ri"),
        ("sm_90", "add.s32 $0, $1, $2;", "=r|f,%r|f,i,~{memory},~{cc}"),
        ("sm_90", "{ .reg .b32 a<2>; mov.b32 a0, ${2}; add.s32 $0, $1, a0; } // $$9 ${:uid}", "=r,0,r"),
        ("gfx942", "v_add_u32 $0, $2, $1", "=v,v,n"),
        ("gfx942", "v_add_u32 $0, $2, $1", "=v,v,I"),
        ("gfx942", "v_add_u32 $0, $2, $1", "=v,v,vs,~{vcc},~{s[6:7]}"),
        ("gfx942", "v_add_u32 $0, $2, $1", "={v7},v,{s7}"),
        ("gfx942", "v_accvgpr_write_b32 $0, $2", "=a,v,s"),
        ("gfx942", "v_add_u32 $0, $2, $1", "=^VA,v,A"),
    ],
)
def test_what_llvm_takes_builds(target, text, constraints):
    x = torch.zeros(128, dtype=torch.int32)
    assert compile_for(constant_kernel, target, (x,), TEXT=text, CONSTRAINTS=constraints).asm


@pytest.mark.parametrize(
    ("target", "text", "constraints", "said"),
    [
        ("sm_90", "// $0", "+r,r", r"0 results and 2 arguments.*LLVM knows no '\+'"),
        ("sm_90", "// $0", "=r,r,r, ~{memory}", r"with a blank before '~\{memory\}': LLVM takes that for an argument"),
        ("sm_90", "// $0", "", "expected 1 result and 2 arguments"),
        ("sm_90", "// $0", "r,=r,r", "expected the results, with '=', before the arguments"),
        ("sm_90", "// $0", "=r,r,1", "constraint '1', the register of result 1; it has 1 result and 2 arguments"),
        ("sm_90", "$L1: add.s32 $0, $1, $2;", "=r,r,r", r"has '\$L1:' in its text.*a dollar itself"),
        ("sm_90", "// $0 costs 5$", "=r,r,r", r"has '\$' in its text"),
        ("sm_90", "// ${1:q}", "=r,r,r", r"has '\$\{1:q\}' in its text"),
        ("sm_90", "// ${1", "=r,r,r", r"has '\$\{1' in its text"),
        (
            "sm_90",
            "// $0",
            "=r,n,r",
            "constraint 'n', a number that is known when it is compiled, for an argument that",
        ),
        ("gfx942", "// $0", "=v,I,v", "constraint 'I', a number that is known when it is compiled"),
        ("sm_90", "// $0 $$$7", "=r,r,r", r"names \$7, expected \$0 to \$2"),
        ("sm_90", "// $0", "=r,r,{r1}", "couldn't allocate a register for constraint '{r1}'"),
        ("gfx1100", "// $0", "=a,v,v", "couldn't allocate a register for constraint 'a'"),
    ],
)
def test_what_would_end_the_process_is_said(target, text, constraints, said):
    x = torch.zeros(128, dtype=torch.int32)
    with pytest.raises(CompileFailed, match=said):
        compile_for(constant_kernel, target, (x,), TEXT=text, CONSTRAINTS=constraints)


@pytest.mark.parametrize(("constraints", "bits"), [("=f,=f,=h,f,f,h,l,l", 32), ("=f,=f,=b,f,f,r,l,l", 16)])
def test_elements_side_by_side_need_a_register_that_holds_them(constraints, bits):
    with pytest.raises(CompileFailed, match=f"for {bits} bits: pack=2 puts 2 elements"):
        compile_for(packing_kernel, "sm_80", (torch.zeros(256),), TEXT="// $0", CONSTRAINTS=constraints, PACK=2)


def test_a_text_without_arguments_is_checked_too():
    def built(text, constraints):
        return compile_for(clock_kernel, "sm_90", (torch.zeros(1).long(),), TEXT=text, CONSTRAINTS=constraints).asm

    assert "globaltimer" in built("mov.u64 $0, %globaltimer;", "=l")
    with pytest.raises(CompileFailed, match="1 result and 1 argument; expected 1 result and 0 arguments"):
        built("mov.u64 $0, %globaltimer;", "=l,r")
    with pytest.raises(CompileFailed, match=r"names \$1, expected \$0 to \$0"):
        built("mov.u64 $0, $1;", "=l")


@pytest.mark.parametrize(
    "text",
    [
        '.include "/dev/null"',
        '.INCBIN "/dev/null"',
        ".altmacro",
        '.ascii "/*"\n.include "f"\n.ascii "*/"',
        ".irp x, clude\n.in\\x 3\n.endr",
    ],
)
def test_a_text_that_reads_files_is_refused(text):
    with pytest.raises(CompileFailed, match="may read no file; expected instructions"):
        build("gfx942", "=v,v", text)


def test_directives_that_read_nothing_and_comments_build():
    text = "/* .include */ .rept 2\nv_mov_b32 $0, $1 ; .incbin\n.endr"
    assert build("gfx942", "=v,v", text).asm.count("v_mov_b32") >= 1
