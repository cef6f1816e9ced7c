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
