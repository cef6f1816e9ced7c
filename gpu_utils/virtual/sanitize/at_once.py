"""A stand-in for the waits of AMDGCN: every access that goes to the LDS queue is complete when its instruction is.

`amd_waits.queue_hooks` takes its place in `watch.MAKERS`.
"""

from __future__ import annotations

import numpy as np

from gpu_utils.virtual.machine import Op, Program, State
from gpu_utils.virtual.sanitize.instrument import Call, NoHooks
from gpu_utils.virtual.sanitize.queues import queue_of


class AtOnce(NoHooks):
    """The calls."""

    def __init__(self, isa: str) -> None:
        self.isa = isa

    def after(self, op: Op) -> Call | None:
        if self.isa != "amdgcn" or op.kind not in ("shared", "global"):
            return None
        queue = queue_of(self.isa, op)
        if queue is None or (queue == "load to lds" and "lds" not in op.text):
            return None

        def done(state: State) -> None:
            order = state.watch.order
            waves = slice(None) if state.act is None else np.flatnonzero(state.act)
            order.complete(queue, waves, order.now(queue)[waves])

        return done


def queue_hooks(program: Program) -> AtOnce:
    """The calls for a program."""
    return AtOnce("amdgcn" if program.unit == "wave" else "ptx")
