"""The listing of 07.waitcnt, and what its waits do to the accesses under way: counted on the decoded kernel."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpu_utils.exercises.u07_ptx_and_amdgcn.numbered import Numbered
from gpu_utils.virtual.machine import Op, Program
from gpu_utils.virtual.sanitize.amd_automaton import Automaton

PARAMETERS = "x_ptr y_ptr out_ptr"
THREADS, ROWS = 64, 3
"""One block: 64 threads, three rows of 64 elements. LDS holds two rows."""

LISTING = Numbered(
    tuple(
        """\
s_load_dwordx2 s[4:5], s[0:1], 0x0            // address of x
s_load_dwordx2 s[6:7], s[0:1], 0x8            // address of y
v_lshlrev_b32 v1, 2, v0                       // 4 * thread
v_xor_b32 v2, 4, v1                           // 4 * partner
global_load_dword v3, v1, s[4:5]              // x, row 0
global_load_dword v5, v1, s[6:7] offset:256   // y, row 1
global_load_dword v4, v1, s[6:7]              // y, row 0
global_load_dword v6, v1, s[4:5] offset:256   // x, row 1
s_load_dwordx2 s[8:9], s[0:1], 0x10           // address of out
ds_write_b32 v1, v3
ds_read_b32 v7, v2
v_mul_f32 v3, v3, v4
global_load_dword v4, v1, s[4:5] offset:512   // x, row 2
v_add_f32 v3, v3, v7
global_store_dword v1, v3, s[8:9]             // out, row 0
ds_write_b32 v1, v6
ds_read_b32 v9, v2
v_mul_f32 v6, v6, v5
ds_write_b32 v1, v4 offset:256
ds_read_b32 v8, v2 offset:256
v_add_f32 v6, v6, v9
global_store_dword v1, v6, s[8:9] offset:256  // out, row 1
v_add_f32 v4, v4, v8
global_store_dword v1, v4, s[8:9] offset:512  // out, row 2
s_endpgm""".splitlines()
    ),
    allowed=re.compile(r"s_wait"),
    called="instructions that wait (s_wait...)",
)


@dataclass(frozen=True)
class Found:
    """What the waits of a kernel leave open or do too much.

    late   lines that read or write a register which a load is still to fill
    early  line -> accesses that the waits before it hold it back for, and it could run without
    idle   lines before which a wait stands that holds back nothing
    """

    late: tuple[int, ...]
    early: dict[int, int]
    idle: tuple[int, ...]


def found(program: Program) -> Found:
    """Follow a kernel without branches: what is under way before and behind every wait.

    Behind a line that is reported all goes on as if the loosest wait had stood before it.
    """
    whole = Automaton(program)
    queues = list(whole.states[0])
    before: list[tuple[int, ...]] | None = None
    late: list[int] = []
    early: dict[int, int] = {}
    idle: list[int] = []
    doing_nothing = False
    for op in program.ops:
        if op.mnemonic.startswith("s_wait"):
            here = list(queues)
            before = before or here
            whole.apply(op, queues)
            doing_nothing |= queues == here
            continue
        line = LISTING.number(op.text) or 0
        if doing_nothing:
            idle.append(line)
        if before is not None and (count := _too_many(whole, op, before, queues)):
            early[line] = count
        if needs := whole.late(op, queues):
            late.append(line)
            queues = [_left(q, needs.needed.get(name)) for name, q in zip(whole.counters, queues, strict=True)]
        before, doing_nothing = None, False
        whole.apply(op, queues)
    return Found(tuple(late), early, tuple(idle))


def _too_many(whole: Automaton, op: Op, before: list[tuple[int, ...]], behind: list[tuple[int, ...]]) -> int:
    """Accesses that are done behind the waits before an op, and that the loosest wait for its registers leaves."""
    needs = whole.late(op, before)
    loosest = needs.needed if needs else {}
    left = [_left(queue, loosest.get(name)) for name, queue in zip(whole.counters, before, strict=True)]
    return sum(max(0, len(might) - len(now)) for might, now in zip(left, behind, strict=True))


def _left(queue: tuple[int, ...], count: int | None) -> tuple[int, ...]:
    """What a wait leaves under way. In this listing a counter that falls to more than 0 holds accesses of one order."""
    return queue if count is None else queue[max(0, len(queue) - count) :]
