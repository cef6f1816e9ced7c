"""What lesson 07 runs in one wave: a kernel around a few lines that exchange values between lanes, for both vendors."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from gpu_utils.chips.targets import TARGETS
from gpu_utils.exercises.u07_ptx_and_amdgcn.lesson_by_hand import by_hand

GIVEN, BEFORE = 100, -1
"""What lane 0 gives, lane 1 gives one more; what the result holds before the exchange."""

_PTX = """
  .reg .pred %p<4>; .reg .b32 %r<8>; .reg .b64 %rd<6>;
  ld.param.u64 %rd1, [x_ptr];
  ld.param.u64 %rd2, [out_ptr];
  mov.u32 %r0, %tid.x;
  mul.wide.u32 %rd3, %r0, 4;
  add.u64 %rd4, %rd1, %rd3;
  add.u64 %rd5, %rd2, %rd3;
  ld.global.u32 %r1, [%rd4];      // r1: what this lane gives
  mov.u32 %r2, -1;                // r2: what it gets
{exchange}
  st.global.u32 [%rd5], %r2;
  ret;"""

_AMDGCN = """
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  v_mov_b32_e32 v2, -1                   ; v2: what it gets
  v_lshlrev_b32_e32 v0, 2, v0
  {wait_scalar}
  global_load_dword v1, v0, s[4:5]       ; v1: what this lane gives
  {wait_load}
{exchange}
  global_store_dword v0, v2, s[6:7]
  s_endpgm"""

_WAITS = {
    "gfx9": ("s_waitcnt lgkmcnt(0)", "s_waitcnt vmcnt(0)", "s_waitcnt lgkmcnt(0)"),
    "gfx12": ("s_wait_kmcnt 0x0", "s_wait_loadcnt 0x0", "s_wait_dscnt 0x0"),
}


def lane_body(exchange: str, target: str) -> str:
    """The body of a kernel of one wave: lane i gives x[i], and what it gets becomes out[i].

    exchange  the lines in the middle, one instruction each: they read %r1 or v1 and write %r2 or v2, which is -1
              before; "wait" is the target's wait for LDS instructions

    >>> "shfl.sync" in lane_body("shfl.sync.idx.b32 %r2, %r1, 0, 31, -1;", "sm_80")
    True
    """
    lines = [line.strip() for line in exchange.strip().splitlines()]
    if TARGETS[target].vendor == "nvidia":
        return _PTX.format(exchange="\n".join(f"  {line}" for line in lines)).strip("\n")
    scalar, load, lds = _WAITS["gfx12" if target.startswith("gfx12") else "gfx9"]
    middle = "\n".join(f"  {lds if line == 'wait' else line}" for line in lines)
    return _AMDGCN.format(exchange=middle, wait_scalar=scalar, wait_load=load).strip("\n")


def lane_run(
    exchange: str, target: str, values: Sequence[int] | None = None, sanitize: bool | str | Sequence[str] = False
) -> list[int]:
    """What each lane of one wave got, executed on a virtual GPU.

    exchange  as for `lane_body`; 256 bytes of LDS are there on AMD
    values    what the lanes give, one for each; without them lane i gives 100 + i
    sanitize  as for `virtual_gpu`

    Raises CompileFailed where the vendor's assembler refuses the lines, and what the virtual GPU reports.

    >>> lane_run("shfl.sync.idx.b32 %r2, %r1, 7, 31, -1;", "sm_80")[:3]
    [107, 107, 107]
    """
    lanes = TARGETS[target].lanes
    given = range(GIVEN, GIVEN + lanes) if values is None else values
    x = torch.tensor(list(given)[:lanes], dtype=torch.int32)
    out = torch.full_like(x, BEFORE - 1)
    kernel = by_hand("lanes", "x_ptr out_ptr", lane_body(exchange, target), target, shared=256)
    kernel.run(lanes, [x, out], sanitize=sanitize)
    return out.tolist()
