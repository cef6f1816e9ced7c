"""The listings of 07.barriers: cumulative shares by a scan in shared memory, once for each vendor."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from gpu_utils.exercises.u07_ptx_and_amdgcn.by_hand import amdgcn_kernel, ptx_kernel
from gpu_utils.exercises.u07_ptx_and_amdgcn.numbered import Numbered
from gpu_utils.virtual.isa import Launch

MOST_THREADS = 1024

_PTX_HEAD = """\
  .reg .pred %p<3>;
  .reg .b32 %r<10>;
  .reg .b64 %rd<4>;
  .reg .f32 %f<4>;
  .shared .align 4 .b8 a[4096];
  ld.param.u64 %rd1, [w_ptr];
  ld.param.u64 %rd2, [out_ptr];
  ld.param.u32 %r2, [n];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd3, %r1, 4;
  add.s64 %rd1, %rd1, %rd3;
  add.s64 %rd2, %rd2, %rd3;
  ld.global.f32 %f0, [%rd1];
  mov.f32 %f1, %f0;                // sum = w[t]
  mov.u32 %r7, a;
  mad.lo.u32 %r3, %r1, 4, %r7;
  mad.lo.u32 %r6, %r2, 4, %r7;
  sub.u32 %r6, %r6, 4;"""
_PTX_TAIL = """\
  div.rn.f32 %f1, %f1, %f3;
  st.global.f32 [%rd2], %f1;
  ret;"""
_PTX = """\
st.shared.f32 [%r3], %f0;        // a[t] = w[t]
mov.u32 %r4, 1;                  // d = 1
ROUND:
setp.lt.u32 %p1, %r1, %r4;
@%p1 bra KEEP;                   // if (t >= d) {
shl.b32 %r5, %r4, 2;
sub.u32 %r5, %r3, %r5;
ld.shared.f32 %f2, [%r5];        //   a[t - d]
add.f32 %f1, %f1, %f2;           //   sum += a[t - d]
KEEP:                            // }
st.shared.f32 [%r3], %f1;        // a[t] = sum
shl.b32 %r4, %r4, 1;             // d = 2 * d
setp.lt.u32 %p2, %r4, %r2;
@%p2 bra ROUND;                  // again while d < n
ld.shared.f32 %f3, [%r6];        // a[n - 1], the total"""

_AMD_HEAD = """\
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  s_load_dword s9, s[0:1], 0x10
  v_lshlrev_b32 v1, 2, v0
  {scalars}
  s_lshl_b32 s9, s9, 2
  global_load_dword v7, v1, s[4:5]
  s_sub_u32 s9, s9, 4
  v_mov_b32 v6, s9
  {loads}
  v_mov_b32 v3, v7"""
_AMD_TAIL = """\
  {lds}
  v_rcp_f32 v5, v5
  v_mul_f32 v3, v3, v5
  global_store_dword v1, v3, s[6:7]
  s_endpgm"""
_AMD = """\
ds_write_b32 v1, v7                   // a[t] = w[t]
s_mov_b32 s8, 4                       // d = 1, in bytes
ROUND:
v_cmp_le_u32 {vcc}, s8, v1
s_and_saveexec_{b} {saved}, {vcc}      // if (t >= d) {{
s_cbranch_execz KEEP
v_sub_u32 v2, v1, s8
ds_read_b32 v4, v2                    //   a[t - d]
{lds}                  //   the sum needs it
v_add_f32 v3, v3, v4                  //   sum += a[t - d]
KEEP:                                 // }}
s_or_{b} {exec}, {exec}, {saved}
ds_write_b32 v1, v3                   // a[t] = sum
s_lshl_b32 s8, s8, 1                  // d = 2 * d
s_cmp_le_u32 s8, s9
s_cbranch_scc1 ROUND                  // again while d < n
ds_read_b32 v5, v6                    // a[n - 1], the total"""
_LANES_64 = {"vcc": "vcc", "b": "b64", "saved": "s[10:11]", "exec": "exec"}
_LANES_32 = {"vcc": "vcc_lo", "b": "b32", "saved": "s10", "exec": "exec_lo"}
_OLD = {"scalars": "s_waitcnt lgkmcnt(0)", "lds": "s_waitcnt lgkmcnt(0)", "loads": "s_waitcnt vmcnt(0)"}
_NEW = {"scalars": "s_wait_kmcnt 0", "lds": "s_wait_dscnt 0", "loads": "s_wait_loadcnt 0"}
_SPELLED = {"gfx9": _LANES_64 | _OLD, "gfx11": _LANES_32 | _OLD, "gfx12": _LANES_32 | _NEW}


@dataclass(frozen=True)
class Gap:
    """Two accesses of shared memory of which the second must not overtake the first, of whatever waves.

    first, second  their lines; between: the lines before which a barrier for all waves keeps them apart
    """

    first: int
    second: int
    between: frozenset[int]


def _gaps(top: int, branch: int, read: int, keep: int, stored: int, back: int) -> tuple[Gap, ...]:
    """top, keep: labels; branch, back: branches; line 1 writes first, and the line behind the loop reads last."""
    outside, before, behind = range(2, top + 1), range(top + 1, branch + 1), range(stored + 1, back + 1)
    return (
        Gap(1, read, frozenset((*outside, *before))),
        Gap(read, stored, frozenset(range(keep + 1, stored + 1))),
        Gap(stored, read, frozenset((*behind, *before))),
        Gap(stored, back + 1, frozenset((*behind, back + 1))),
    )


GAPS = {"ptx": _gaps(3, 5, 8, 10, 11, 14), "amd": _gaps(3, 6, 8, 11, 13, 16)}
BARRIER = re.compile(r"(bar|barrier)(\.cta)?(\.sync|\.red)|s_barrier(_wait)?\b")
"""What lets no wave go on before all have come."""
_OF_PTX = re.compile(r"(@!?%p\d+ +)?(bar|barrier)(\.cta)?\.(?P<what>sync|red|arrive)\S*\s*(?P<operands>.*)", re.DOTALL)
_ALL: tuple[list[str], ...] = ([], ["%r2"])
"""How many threads a barrier of PTX waits for: all of the block if it does not say, and n is as many."""


@cache
def listing(family: str) -> Numbered:
    """The listing of "ptx", "gfx9", "gfx11" or "gfx12"."""
    if family == "ptx":
        allowed = re.compile(r"(@!?%p\d+ +)?(bar|barrier|membar|fence)\b")
        return Numbered(tuple(_PTX.splitlines()), allowed, "barriers and fences", _PTX_HEAD, _PTX_TAIL, ";")
    spelled = _SPELLED[family]
    return Numbered(
        tuple(_AMD.format(**spelled).splitlines()),
        re.compile(r"s_wait|s_barrier"),
        "waits and barriers (s_wait..., s_barrier...)",
        _AMD_HEAD.format(**spelled),
        _AMD_TAIL.format(**spelled),
    )


def kernel(family: str, body: str, target: str) -> str:
    """The module of a listing with barriers in it."""
    if family == "ptx":
        # the version from which on PTX has barrier.cta, the other name of bar
        return ptx_kernel("shares", "w_ptr out_ptr n", body).replace(".version 7.0", ".version 7.8")
    return amdgcn_kernel("shares", "w_ptr out_ptr n", body, target, shared=4 * MOST_THREADS)


def in_the_branch(family: str, value: dict[int, str]) -> bool:
    """Whether a barrier stands inside of the `if`, where not every wave comes."""
    gaps = GAPS["ptx" if family == "ptx" else "amd"]
    return any(max(gaps[0].between) < line < min(gaps[1].between) for line in _placed(family, value))


def _placed(family: str, value: dict[int, str]) -> set[int]:
    """Lines with a barrier before them; one under a predicate is not for every wave."""
    found = {line: listing(family).instructions(text) for line, text in value.items()}
    return {line for line, given in found.items() if any(BARRIER.match(one) for one in given)}


def for_a_part(value: dict[int, str]) -> tuple[int, str, str] | None:
    """The first barrier of PTX that does not hold the whole block: line, instruction, and what is wrong; None if none.

    "goes on" (arrive), "no number", "count".
    """
    for line, text in value.items():
        for one in listing("ptx").instructions(text):
            found = _OF_PTX.match(one)
            if found is None:
                continue
            operands = [operand.strip() for operand in found["operands"].split(",")]
            numbers = operands[1:-1] or [""] if found["what"] == "red" else operands
            if found["what"] == "arrive":
                return line, one, "goes on"
            if not numbers[0][:1].isdigit():
                return line, one, "no number"
            if numbers[1:] not in _ALL:
                return line, one, "count"
    return None


def open_gaps(family: str, value: dict[int, str]) -> tuple[Gap, ...]:
    """The gaps in which no barrier stands that every wave comes to."""
    return tuple(gap for gap in GAPS["ptx" if family == "ptx" else "amd"] if not gap.between & _placed(family, value))


def met(launch: Launch) -> float:
    """Barriers that a wave of a launch has come to."""
    per_op = launch.counters.per_op()
    # one that reduces is two steps of the virtual GPU
    found = sum(
        per_op[op.index][0] / (2 if ".red" in op.mnemonic else 1)
        for op in launch.program.ops
        if BARRIER.match(op.mnemonic)
    )
    return found / launch.counters.launched_waves


def signalled(launch: Launch) -> tuple[float, float]:
    """Signals and waits of a split barrier that a wave has come to."""
    per_op, waves = launch.counters.per_op(), launch.counters.launched_waves
    counts = {
        what: sum(per_op[op.index][0] for op in launch.program.ops if op.mnemonic == f"s_barrier_{what}")
        for what in ("signal", "wait")
    }
    return counts["signal"] / waves, counts["wait"] / waves
