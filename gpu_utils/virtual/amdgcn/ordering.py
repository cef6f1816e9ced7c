"""Waits and caches as the order of programs sees them: what AMD's machine code releases and acquires.

After LLVM's AMDGPUUsage, "Memory Model": a store is released when it was waited for; where an agent has several L2
(gfx940), it must have been written back before. A load or atomic acquires when caches are invalidated after it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from gpu_utils.virtual.machine import Op
from gpu_utils.virtual.machine.op import nothing

_STORES_DONE = re.compile(
    r"s_waitcnt\b.*(vmcnt\(0\)|\s0x0$|\s0$)|s_waitcnt_vscnt null, (0x)?0$|s_wait_storecnt(_dscnt)? (0x)?0$"
)
_SEVERAL_L2 = ("gfx942", "gfx950")
_INVALIDATES = ("buffer_wbinvl1", "buffer_wbinvl1_vol", "buffer_gl1_inv")
_AGENT = re.compile(r"\bsc1\b|SCOPE_(DEV|SYS)")


def order_programs(ops: Iterable[Op], target: str) -> None:
    """Give the waits and cache operations of a kernel in which programs may wait for each other something to do."""
    ops = list(ops)
    if not any(op.kind == "global" and op.polls for op in ops):
        return
    apart = target in _SEVERAL_L2
    for op in ops:
        if op.kind != "wait" or op.run is not nothing:
            continue
        name, wide = op.mnemonic, bool(_AGENT.search(op.text))
        if _STORES_DONE.match(op.text):
            op.releases = True
            op.run = _noting(op, needs_write_back=apart)
        elif name == "buffer_wbl2" and wide:
            op.run = _noting(op, write_back=True)
        elif name in _INVALIDATES or (name in ("buffer_inv", "global_inv") and wide):
            op.acquires = True
            op.run = _noting(op)


def _noting(op: Op, **how: bool) -> Any:
    return lambda s: s.memory.fence(s, op, None if s.act is None else s.act_column, **how)
