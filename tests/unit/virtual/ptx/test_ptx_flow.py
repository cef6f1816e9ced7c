"""Branches, loops, calls, barriers and traps: lanes part and meet again."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_harness import HEADER, launch, run_lines

from gpu_utils.errors import BarrierDeadlock, DeviceAssert, UnsupportedInstruction
from gpu_utils.virtual.ptx import decode, flow
from gpu_utils.virtual.ptx.parse import parse

LANES = np.arange(64, dtype=np.uint32)


def test_each_lane_loops_as_often_as_it_wants():
    body = """.reg .pred %p; .reg .b32 %n; mov.b32 %out0, 0; mov.b32 %n, %in0;
    AGAIN: setp.eq.u32 %p, %n, 0; @%p bra DONE; add.u32 %out0, %out0, %n; sub.u32 %n, %n, 1; bra AGAIN; DONE:"""
    (got,) = run_lines(body, [LANES], [32])
    assert (got == LANES * (LANES + 1) // 2).all()


def test_nested_branches_take_every_path():
    body = """.reg .pred %p, %q; .reg .b32 %b; and.b32 %b, %in0, 1; setp.eq.u32 %p, %b, 0; setp.lt.u32 %q, %in0, 20;
    @%p bra EVEN; @%q bra ODDLOW; mov.b32 %out0, 1; bra JOIN; ODDLOW: mov.b32 %out0, 2; bra JOIN;
    EVEN: @%q bra EVENLOW; mov.b32 %out0, 3; bra JOIN; EVENLOW: mov.b32 %out0, 4; JOIN: add.u32 %out0, %out0, 10;"""
    (got,) = run_lines(body, [LANES], [32])
    assert got.tolist() == [10 + {(0, 0): 3, (0, 1): 4, (1, 0): 1, (1, 1): 2}[i % 2, int(i < 20)] for i in range(64)]


def test_an_if_body_placed_after_the_join_still_meets_the_others_there():
    """The shuffle after the join needs all 32 lanes; the text puts the odd lanes' detour behind it."""
    body = """.reg .pred %p; .reg .b32 %b, %v; and.b32 %b, %in0, 1; setp.eq.u32 %p, %b, 1; mov.b32 %v, %in0;
    @%p bra DETOUR;
    JOIN: shfl.sync.bfly.b32 %out0, %v, 1, 31, -1; bra END; DETOUR: add.u32 %v, %v, 1000; bra JOIN; END:"""
    (got,) = run_lines(body, [LANES], [32])
    value = np.where(LANES % 2 == 1, LANES + 1000, LANES)
    assert (got == value[LANES ^ 1]).all()


def test_lanes_wait_at_a_shuffle_for_those_that_come_by_another_way():
    """Two copies of the join: no layout brings the lanes together, only the member mask does."""
    body = """.reg .pred %p, %q; .reg .b32 %b, %v, %n; and.b32 %b, %in0, 1; setp.eq.u32 %p, %b, 1; mov.b32 %v, %in0;
    mov.b32 %n, 0;
    LOOP: @%p bra SLOW; bra MEET; SLOW: add.u32 %n, %n, 1; setp.lt.u32 %q, %n, 5; @%q bra LOOP;
    MEET: shfl.sync.bfly.b32 %out0, %v, 1, 31, -1;"""
    (got,) = run_lines(body, [LANES], [32])
    assert (got == (LANES ^ 1)).all()


def test_a_shuffle_that_a_member_never_reaches_is_reported():
    body = """.reg .pred %p; mov.b32 %out0, 0; setp.eq.u32 %p, %in0, 3; @%p bra ELSEWHERE;
    shfl.sync.bfly.b32 %out0, %in0, 1, 31, -1; bra END; ELSEWHERE: bar.sync 0; END:"""
    with pytest.raises(BarrierDeadlock, match=r"shfl\.sync"):
        run_lines(body, [LANES], [32])


def test_lanes_that_have_ended_are_not_waited_for():
    text = (
        HEADER
        + """.visible .entry k(.param .u64 out) { .reg .b32 %t, %v; .reg .b64 %a; .reg .pred %p; mov.u32 %t, %tid.x;
      setp.gt.u32 %p, %t, 9; @%p exit; shfl.sync.bfly.b32 %v, %t, 1, 31, -1; bar.sync 0; ld.param.u64 %a, [out];
      mad.wide.u32 %a, %t, 4, %a; st.global.u32 [%a], %v; ret; }"""
    )
    out = np.zeros(64, np.uint32)
    launch(text, [out], block=(64, 1, 1))
    assert out[:10].tolist() == [1, 0, 3, 2, 5, 4, 7, 6, 9, 8]
    assert not out[10:].any()


def test_a_barrier_that_half_the_block_never_reaches_is_reported():
    body = ".reg .pred %p; setp.lt.u32 %p, %in0, 32; @%p bra OVER; bar.sync 1; OVER: bar.sync 2; mov.b32 %out0, 0;"
    with pytest.raises(BarrierDeadlock, match="barrier"):
        run_lines(body, [LANES], [32])


@pytest.mark.parametrize("wait", ["bar.sync 0;", "barrier.sync 0;", "barrier.sync.aligned 0, 64;", "bar.cta.sync 0;"])
def test_warps_exchange_through_shared_memory_across_a_barrier(wait):
    body = """.shared .align 4 .b8 buffer[256]; .reg .b32 %s, %r; shl.b32 %s, %in0, 2; add.u32 %s, %s, buffer;
    st.shared.u32 [%s], %in0;
    WAIT mov.u32 %r, 63; sub.u32 %r, %r, %in0; shl.b32 %r, %r, 2; add.u32 %r, %r, buffer;
    ld.shared.u32 %out0, [%r];""".replace("WAIT", wait)
    (got,) = run_lines(body, [LANES], [32])
    assert (got == 63 - LANES).all()


def test_a_named_barrier_waits_for_the_number_of_threads_it_names():
    body = """.shared .align 4 .b32 cell; .reg .pred %p, %q; setp.lt.u32 %p, %in0, 32; mov.b32 %out0, 0;
    setp.eq.u32 %q, %in0, 32;
    @%p bra READ; @%q st.shared.u32 [cell], 77; bar.sync 3, 64; bra END; READ: bar.sync 3, 64;
    ld.shared.u32 %out0, [cell]; END:"""
    (got,) = run_lines(body, [LANES], [32])
    assert got.tolist() == [77] * 32 + [0] * 32


CALLS = (
    HEADER
    + """
.func (.param .b32 result) twice(.param .b32 x) { .reg .b32 %a; ld.param.b32 %a, [x]; add.u32 %a, %a, %a;
    st.param.b32 [result], %a; ret; }
.func (.param .b32 result) odd_even(.param .b32 x) { .reg .b32 %a, %b; .reg .pred %p; ld.param.b32 %a, [x];
    and.b32 %b, %a, 1;
  setp.eq.u32 %p, %b, 0; @%p bra EVEN; { .param .b32 p0; .param .b32 r0; st.param.b32 [p0], %a; call (r0), twice, (p0);
  ld.param.b32 %a, [r0]; } st.param.b32 [result], %a; ret; EVEN: neg.s32 %a, %a; st.param.b32 [result], %a; ret; }
.visible .entry k(.param .u64 out) { .reg .b32 %t, %v; .reg .b64 %a; mov.u32 %t, %tid.x;
  { .param .b32 p0; .param .b32 r0; st.param.b32 [p0], %t; call.uni (r0), odd_even, (p0); ld.param.b32 %v, [r0]; }
  { .param .b32 p0; .param .b32 r0; st.param.b32 [p0], %v; call.uni (r0), twice, (p0); ld.param.b32 %v, [r0]; }
  shfl.sync.bfly.b32 %v, %v, 1, 31, -1;
  ld.param.u64 %a, [out]; mad.wide.u32 %a, %t, 4, %a; st.global.u32 [%a], %v; ret; }"""
)


def test_functions_are_called_from_parted_lanes_and_return_to_their_callers():
    out = np.zeros(64, np.int32)
    launch(CALLS, [out], block=(64, 1, 1))
    value = np.where(np.arange(64) % 2 == 1, 2 * np.arange(64), -np.arange(64)) * 2
    assert (out == value[np.arange(64) ^ 1]).all()


def test_recursion_is_refused_before_anything_runs():
    text = HEADER + ".func f() { call.uni f; ret; } .visible .entry k() { call.uni f; ret; }"
    with pytest.raises(UnsupportedInstruction, match="recursive"):
        decode(text, "sm_80")


def test_an_indexed_branch_goes_to_the_label_of_its_lane():
    body = """.reg .b32 %i; and.b32 %i, %in0, 3; TABLE: .branchtargets A, B, C, D; brx.idx %i, TABLE;
    A: mov.b32 %out0, 5; bra END; B: mov.b32 %out0, 6; bra END; C: mov.b32 %out0, 7; bra END; D: mov.b32 %out0, 8;
    END:"""
    (got,) = run_lines(body, [LANES], [32])
    assert got.tolist() == [5 + i % 4 for i in range(64)]


@pytest.mark.parametrize("stop", ["trap;", "brkpt;"])
def test_a_trap_names_the_lane_that_ran_into_it(stop):
    with pytest.raises(DeviceAssert, match="lane 7"):
        run_lines(
            ".reg .pred %p; mov.b32 %out0, 0; setp.eq.u32 %p, %in0, 7; @!%p bra FINE; STOP FINE:".replace("STOP", stop),
            [LANES],
            [32],
        )


def test_a_clock_advances_so_that_a_loop_that_waits_for_it_ends():
    body = """.reg .b64 %a, %b; .reg .pred %p; mov.u64 %a, %clock64; add.u64 %a, %a, 20;
    WAIT: mov.u64 %b, %clock64; setp.lt.u64 %p, %b, %a; @%p bra WAIT; mov.b32 %out0, 1;"""
    (got,) = run_lines(body, [LANES], [32])
    assert got.all()


def test_a_special_register_that_does_not_exist_is_refused():
    with pytest.raises(UnsupportedInstruction, match="%tidd"):
        decode(HEADER + ".visible .entry k() { .reg .b32 %r; mov.u32 %r, %tidd.x; ret; }", "sm_80")


def test_an_unknown_instruction_is_named_and_nothing_runs():
    out = np.zeros(32, np.uint32)
    text = (
        HEADER
        + """.visible .entry kern(.param .u64 out) { .reg .b32 %r<3>; .reg .b64 %a; ld.param.u64 %a, [out];
        mov.b32 %r1, 1;
      st.global.u32 [%a], %r1; frobnicate.b32 %r2, %r1; ret; }"""
    )
    with pytest.raises(
        UnsupportedInstruction, match=r"virtual sm_90 cannot execute `frobnicate\.b32 %r2, %r1.*kernel kern"
    ):
        launch(text, [out])
    assert not out.any()


@pytest.mark.parametrize("line", [
    "add.f32.rn %r1, %r1, %r1;", "mul.b32 %r1, %r1, %r1;", "setp.lt.b32 %p, %r1, %r1;", "cvt.f32.s32 %r1, %r1;",
    "add.u64 %r1, %r1, %r1;", "add.u32 %r1, %r1;", "add.u32 %r1, %r1, %r1, %r1;", "ld.global.frob.b32 %r1, [%r1];",
    "atom.global.add.b32 %r1, [%r1], %r1;", "bar.red.max.u32 %r1, 0, %p;", "mov.b32 %r1, nowhere;",
    "mma.sync.aligned.m16n8k16.row.row.f32.f16.f16.f32 {%r1,%r1,%r1,%r1}, {%r1,%r1,%r1,%r1}, {%r1,%r1}, "
    "{%r1,%r1,%r1,%r1};",
])  # fmt: skip
def test_a_form_outside_the_tables_is_refused(line):
    with pytest.raises(UnsupportedInstruction):
        decode(HEADER + f".visible .entry k() {{ .reg .b32 %r<3>; .reg .pred %p; {line} ret; }}", "sm_80")


def test_blocks_are_laid_out_with_loops_before_their_exits():
    text = (
        HEADER + """.visible .entry k() { .reg .pred %p; bra A; EXIT: ret; A: @%p bra EXIT; B: @%p bra A; bra EXIT; }"""
    )
    function = parse(text).functions["k"]
    blocks = flow.blocks_of(function)
    order = [blocks[i].start for i in flow.layout(blocks)]
    assert order[0] == 0
    assert order[-1] == function.labels["EXIT"]
    assert order.index(function.labels["A"]) < order.index(function.labels["B"])


def test_special_registers_know_the_shape_of_the_launch():
    names = ["%tid.x", "%tid.y", "%tid.z", "%ctaid.x", "%ctaid.y", "%ctaid.z", "%ntid.x", "%ntid.y", "%ntid.z",
             "%nctaid.x",
             "%nctaid.y", "%nctaid.z", "%laneid", "%warpid", "%nwarpid", "%lanemask_lt", "%lanemask_ge"]  # fmt: skip
    block, grid = (5, 4, 3), (2, 3, 2)
    threads, blocks = 60, 12
    out = np.zeros((blocks, threads, len(names)), np.uint32)
    lines = [".reg .b32 %x, %y, %z, %f, %b, %c, %v; .reg .b64 %a;",
             "mov.u32 %x, %tid.x; mov.u32 %y, %tid.y; mov.u32 %z, %tid.z;",
             "mad.lo.u32 %f, %z, 4, %y; mad.lo.u32 %f, %f, 5, %x; mov.u32 %b, %ctaid.z; mov.u32 %c, %ctaid.y; "
             "mad.lo.u32 %b, %b, 3, %c;",
             f"mov.u32 %c, %ctaid.x; mad.lo.u32 %b, %b, 2, %c; mad.lo.u32 %f, %b, {threads}, %f;",
             f"ld.param.u64 %a, [out]; mad.wide.u32 %a, %f, {4 * len(names)}, %a;"]  # fmt: skip
    lines += [f"mov.u32 %v, {name}; st.global.u32 [%a+{4 * i}], %v;" for i, name in enumerate(names)]
    launch(
        HEADER + ".visible .entry k(.param .u64 out) {" + "\n".join(lines) + " ret; }", [out], grid=grid, block=block
    )
    for linear in range(blocks):
        cta = (linear % 2, linear // 2 % 3, linear // 6)
        for t in range(threads):
            lane = t % 32
            want = [
                t % 5,
                t // 5 % 4,
                t // 20,
                *cta,
                *block,
                *grid,
                lane,
                t // 32,
                2,
                (1 << lane) - 1,
                2**32 - (1 << lane),
            ]
            assert out[linear, t].tolist() == want


def test_a_call_through_a_pointer_is_refused_by_name():
    text = (
        HEADER
        + """.visible .entry k(.param .u64 p) { .reg .b64 %f; ld.param.u64 %f, [p];
      { .param .b32 a; .param .b32 r; form : .callprototype (.param .b32 _) _ (.param .b32 _);
      call (r), %f, (a), form; } ret; }"""
    )
    with pytest.raises(UnsupportedInstruction, match="a call through a pointer"):
        decode(text, "sm_90")
