"""What ops say about the registers that they read and write, and that a false word is found out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpu_utils.virtual.amdgcn import decode as amd
from gpu_utils.virtual.isa import Launch
from gpu_utils.virtual.machine import Program
from gpu_utils.virtual.models import MODELS
from gpu_utils.virtual.ptx import decode as ptx

from . import operands

EXEC = "exec_lo exec_hi"
# target, text, what it reads without its guards, what it writes, its guards
AMD = [
    ("gfx942", "v_add_f32_e32 v1, v2, v3", "v2 v3", "v1", EXEC),
    ("gfx1100", "v_add_f32_e32 v1, v2, v3", "v2 v3", "v1", "exec_lo"),
    ("gfx942", "v_fmac_f32_e32 v1, v2, v3", "v1 v2 v3", "v1", EXEC),
    ("gfx942", "v_addc_co_u32_e32 v1, vcc, v2, v3, vcc", "v2 v3 vcc_lo vcc_hi", "v1 vcc_lo vcc_hi", EXEC),
    ("gfx942", "v_cndmask_b32_e64 v1, 0, v2, s[4:5]", "v2 s4 s5", "v1", EXEC),
    ("gfx942", "v_cmp_lt_u32_e64 s[2:3], v0, v1", "v0 v1", "s2 s3", EXEC),
    ("gfx942", "v_div_fmas_f32 v1, v2, v3, v4", "v2 v3 v4 vcc_lo vcc_hi", "v1", EXEC),
    ("gfx942", "v_readlane_b32 s1, v2, s3", "v2 s3", "s1", ""),
    ("gfx942", "v_readfirstlane_b32 s1, v2", "v2", "s1", EXEC),
    ("gfx942", "v_writelane_b32 v1, s2, 3", "s2", "v1", ""),
    ("gfx1100", "v_add_f16_e32 v1, v2, v3", "v1 v2 v3", "v1", "exec_lo"),
    ("gfx942", "v_add_f16_e32 v1, v2, v3", "v2 v3", "v1", EXEC),
    ("gfx942", "s_add_u32 s0, s1, s2", "s1 s2", "s0 scc", ""),
    ("gfx942", "s_addc_u32 s0, s1, s2", "s1 s2 scc", "s0 scc", ""),
    ("gfx942", "s_and_saveexec_b64 s[0:1], vcc", f"vcc_lo vcc_hi {EXEC}", f"s0 s1 scc {EXEC}", ""),
    ("gfx942", "s_cbranch_vccnz .Lend", "vcc_lo vcc_hi", "", ""),
    ("gfx942", "global_load_dwordx2 v[1:2], v3, s[4:5]", "v3 s4 s5", "v1 v2", EXEC),
    ("gfx942", "global_load_short_d16_hi v1, v[2:3], off", "v1 v2 v3", "v1", EXEC),
    ("gfx942", "global_atomic_cmpswap v1, v[2:3], v[4:5], off sc0", "v2 v3 v4 v5", "v1", EXEC),
    ("gfx942", "buffer_load_dword v0, s[4:7], 0 offen lds", "v0 s4 s5 s6 s7 m0", "", EXEC),
    ("gfx942", "buffer_store_dwordx3 v[0:2], v3, s[4:7], s8 offen", "v0 v1 v2 v3 s4 s5 s6 s7 s8", "", EXEC),
    ("gfx942", "ds_read2_b64 v[0:3], v4 offset1:1", "v4", "v0 v1 v2 v3", EXEC),
    ("gfx942", "v_mfma_f32_4x4x4_16b_f16 a[0:3], v[0:1], v[2:3], a[0:3]", "v0 v1 v2 v3 a0 a1 a2 a3", "a0 a1 a2 a3", ""),
    ("gfx1100", "v_dual_mul_f32 v0, v1, v2 :: v_dual_mov_b32 v3, v0", "v0 v1 v2", "v0 v3", "exec_lo"),
]  # fmt: skip
PTX = [
    ("add.s32 %r1, %r2, 7;", "%r2", "%r1", ""),
    ("@!%p1 add.s32 %r1, %r2, %r3;", "%r2 %r3", "%r1", "%p1"),
    ("addc.cc.u32 %r1, %r2, %r3;", "%r2 %r3 cc", "%r1 cc", ""),
    ("setp.lt.s32 %p1|%p2, %r1, 3;", "%r1", "%p1 %p2", ""),
    ("ld.global.v2.b32 {%r1, %r2}, [%rd1+8];", "%rd1", "%r1 %r2", ""),
    ("@%p1 st.global.b32 [%rd1], %r1;", "%r1 %rd1", "", "%p1"),
    ("atom.global.cas.b32 %r1, [%rd1], %r2, %r3;", "%rd1 %r2 %r3", "%r1", ""),
    ("red.global.add.u32 [%rd1], %r1;", "%rd1 %r1", "", ""),
    ("shfl.sync.bfly.b32 %r1|%p1, %r2, %r3, 31, %r4;", "%r2 %r3 %r4", "%r1 %p1", ""),
    ("@%p1 bra end;", "", "", "%p1"),
]


def amd_program(target: str, text: str) -> Program:
    return amd(f"kernel:\n\t{text}\n.Lend:\n\ts_endpgm\n", target, "kernel")


def ptx_program(text: str) -> Program:
    return ptx(
        ".version 8.7\n.target sm_90a\n.address_size 64\n.visible .entry kernel() {\n.reg .pred %p<4>; .reg .b32 %r<8>;"
        f" .reg .b64 %rd<4>;\n{text}\nend:\nret;\n}}\n", "sm_90", "kernel",
    )  # fmt: skip


@pytest.mark.parametrize(("target", "text", "reads", "writes", "guards"), [*AMD, *(("sm_90", *row) for row in PTX)])
def test_an_op_names_the_registers_that_it_reads_and_writes(target, text, reads, writes, guards):
    op = (ptx_program(text) if target == "sm_90" else amd_program(target, text)).ops[0]
    assert (op.reads - op.guards, op.writes, op.guards) == tuple(frozenset(x.split()) for x in (reads, writes, guards))


@pytest.mark.parametrize(
    ("target", "text", "lie", "found"),
    [
        ("gfx942", "v_add_f32_e32 v1, v2, v3", {"reads": frozenset({"v2"})}, "depends on a register"),
        ("gfx942", "v_add_f32_e32 v1, v2, v3", {"reads": frozenset({"v2", "v3"})}, "depends on a register"),  # EXEC
        ("gfx942", "v_add_f32_e32 v1, v2, v3", {"writes": frozenset()}, "it changes"),
        ("gfx942", "s_add_u32 s0, s1, s2", {"writes": frozenset({"s0"})}, "it changes"),
        ("gfx942", "v_mov_b32_e32 v1, v2", {"reads": frozenset({"v2", "v3", "exec_lo", "exec_hi"})}, "not name"),
        ("sm_90", "st.global.b32 [%rd1], %r1;", {"reads": frozenset({"%rd1"})}, "what it does depends"),
        ("sm_90", "@%p1 add.s32 %r1, %r2, %r3;", {"reads": frozenset({"%r2", "%r3"})}, "depends on a register"),
    ],
)
def test_the_check_of_the_kernel_set_finds_a_false_word(target, text, lie, found, monkeypatch):
    program = ptx_program(text) if target == "sm_90" else amd_program(target, text)
    launch = Launch(
        "kernel", target, program, (1, 1, 1), (64, 1, 1), np.zeros(256, np.uint8), None, None, 0, MODELS[target]
    )
    monkeypatch.setattr(operands, "_seen", set())
    assert operands.complaints(program, launch) == []
    false = replace(program.ops[0], **lie)
    monkeypatch.setattr(operands, "_seen", set())
    wrong = operands.complaints(replace(program, ops=(false, *program.ops[1:])), launch)
    assert any(found in sentence for sentence in wrong), wrong


def test_a_program_cannot_be_changed():
    program = amd_program("gfx942", "s_nop 0")
    with pytest.raises(AttributeError):
        program.entry = 1
    with pytest.raises(TypeError):
        program.segments[0] = None
    assert isinstance(program.ops, tuple)


def test_what_an_op_does_to_memory_that_others_see_comes_from_its_decoder():
    swap = amd_program("gfx942", "global_atomic_cmpswap v1, v[2:3], v[4:5], off sc0").ops[0]
    assert (swap.communicates, swap.polls, swap.takes) == (True, True, True)
    lanes = amd_program("gfx950", "v_permlane16_swap_b32_e32 v0, v1").ops[0]
    assert (lanes.communicates, lanes.polls, lanes.takes) == (False, False, False)  # though its name ends in _swap
    coherent = amd_program("gfx942", "global_load_dword v0, v[2:3], off sc1").ops[0]
    assert (coherent.polls, coherent.takes) == (True, False)
    assert ptx_program("ld.acquire.gpu.global.b32 %r1, [%rd1];").ops[0].polls
    assert not ptx_program("ld.global.b32 %r1, [%rd1];").ops[0].polls
    assert ptx_program("red.relaxed.gpu.global.add.u32 [%rd1], %r1;").ops[0].communicates


def test_a_lock_is_one_also_when_its_value_is_kept_in_scalar_registers():
    """The mask of a swap in a scalar register was once overlooked: a value made from the old one is no lock's."""
    loop = """
.Lagain:
        s_and_b32 s2, s1, 1
        v_mov_b32_e32 v4, {value}
        global_atomic_swap v5, v[2:3], v4, off sc0
        s_waitcnt vmcnt(0)
        v_readfirstlane_b32 s1, v5
        s_cmp_lg_u32 s1, 0
        s_cbranch_scc1 .Lagain"""
    assert amd_program("gfx942", loop.format(value=1)).locks
    assert not amd_program("gfx942", loop.format(value="s2")).locks
