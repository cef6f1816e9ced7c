"""The reader of PTX text."""

from __future__ import annotations

import pytest

from gpu_utils.errors import AsmSyntaxError
from gpu_utils.virtual.ptx.parse import parse
from gpu_utils.virtual.ptx.program import decode
from gpu_utils.virtual.ptx.syntax import Address, Imm, Pair, Reg, Special, Symbol, Vector

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"


def body(text: str):
    return parse(
        HEAD
        + ".visible .entry k(.param .u64 p, .param .u32 q) {\n.reg .b32 %r<9>; .reg .b64 %d<3>; .reg .pred %p<3>;\n"
        + text
        + "\n}"
    ).functions["k"]


def test_operands_are_told_apart():
    (i,) = body(
        "@!%p1 foo.a.b %r1|%p2, {%r2, _}, [%d1+-8], [%d1, {%r1, 3}], 0x10, -5, 0f3F800000, 1.5, %tid.x, name+4, !%p0;"
    ).body
    assert (i.opcode, i.pred.name, i.negated) == ("foo.a.b", "%p1", True)
    kinds = [type(o) for o in i.operands[:4]]
    assert kinds == [Pair, Vector, Address, Address]
    assert i.operands[2].offset == -8
    assert i.operands[3].coords.items[1] == Imm(3)
    assert i.operands[4:8] == (Imm(16), Imm(-5), Imm(0x3F800000, 32), Imm(1.5))
    assert i.operands[8:10] == (Special("%tid.x"), Symbol("name", 4))


def test_directives_may_stand_without_a_space_between_them():
    function = body("{.reg.b16 low, high; mov.b16 low, high;}\n.shared.align 8 .b8 tile[16];")
    assert [o.kind for o in function.body[0].operands] == ["16", "16"]
    assert function.variables[0].align == 8


def test_a_register_of_an_inner_scope_hides_the_outer_one():
    function = body("{ .reg .b32 %r1; mov.b32 %r1, 1; } mov.b32 %r1, 2;")
    inner, outer = (i.operands[0] for i in function.body)
    assert isinstance(inner, Reg)
    assert inner != outer


def test_a_label_of_an_inner_scope_is_its_own():
    function = body("{ L: bra L; } { L: bra L; }")
    first, second = (i.operands[0].name for i in function.body)
    assert first != second
    assert function.labels[first] == 0
    assert function.labels[second] == 1


def test_parameters_lie_at_aligned_offsets():
    text = HEAD + ".entry k(.param .u8 a, .param .u64 b, .param .align 16 .b8 c[20], .param .u16 d) { ret; }"
    function = parse(text).functions["k"]
    assert [(p.offset, p.size) for p in function.params] == [(0, 1), (8, 8), (16, 20), (36, 2)]
    assert function.param_bytes() == 38


def test_a_source_line_of_inlined_code_is_that_of_its_caller():
    text = ".loc 1 7 3\nmov.b32 %r1, 1;\n.loc 2 90 1, function_name $L__1, inlined_at 1 8 2\nmov.b32 %r1, 2;"
    function = parse(
        HEAD + ".entry k() {\n.reg .b32 %r<2>;\n" + text + '\n}\n.file 1 "kernel.py"\n.file 2 "library.py"\n'
    ).functions["k"]
    assert [i.line for i in function.body] == [("kernel.py", 7), ("kernel.py", 8)]


def test_directives_arrays_and_debug_sections_are_read():
    module = parse(
        HEAD
        + """.extern .shared .align 16 .b8 dyn[]; .const .align 4 .u32 t[2][2] = {{1, 2}, {3, 4}};
      .global .align 8 .f64 f = 0d3FF0000000000000; .visible .entry k() .reqntid 128,
      1 .minnctapersm 2 { .pragma "nounroll"; ret; }
      .section .debug_str { .b8 1 .b8 2 info: .b8 0 }"""
    )
    assert module.variables["dyn"].size == 0
    assert [item.value for item in module.variables["t"].init] == [1, 2, 3, 4]
    assert module.variables["t"].size == 16
    assert module.variables["f"].init == [Imm(0x3FF0000000000000, 64)]
    assert module.functions["k"].directives == {"reqntid": [128, 1], "minnctapersm": [2]}


@pytest.mark.parametrize(("text", "what"), [
    ("mov.b32 %r1, 1", "expected ',' or ';'"), ("@%r1 ret;", "no predicate register"), ("mov.b32 %r1, #;",
    "cannot read"),
    (".reg .b99 %x;", "not executed"), ("{ mov.b32 %r1, 1;", "no closing brace"),
])  # fmt: skip
def test_text_that_is_no_ptx_is_refused_with_its_line(text, what):
    with pytest.raises(AsmSyntaxError, match=what):
        body(text)


def test_decoding_a_kernel_leaves_the_parsed_module_as_it_is():
    text = HEAD + (
        ".global .align 4 .u32 first = 1;\n.global .align 4 .u32 second = 2;\n.visible .entry kernel()\n{\n ret;\n}\n"
    )
    before = repr(parse(text))
    decode(text, "sm_80", "kernel")
    assert repr(parse(text)) == before
