"""Where a wave waits: a model of one wave alone on its SIMD, over a record of what it executed. No clock is read.

Every instruction takes ISSUE cycles; a load has its answer some cycles after it was issued. AMD's machine code says
where it waits: s_waitcnt names how many of the accesses still under way may stay so. In PTX nothing says it: the
hardware holds an instruction back until the registers that it reads are there.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from gpu_utils.virtual.trace import Step, Trace

ISSUE = 4
ANSWER = {"global": 500, "shared": 60, "scalar": 200}
"""Cycles from issue to answer: stated, not measured. Which instruction is waited at does not depend on them."""

_WAITCNT = re.compile(r"(vmcnt|lgkmcnt)\((\d+)\)")
_REGISTER = re.compile(r"%[a-z]+\d+")
_QUEUES = ((r"(global|flat|buffer|scratch)_", "vmcnt", "global"), (r"ds_", "lgkmcnt", "shared"))
_SCALAR = re.compile(r"s_(buffer_)?load")


@dataclass(frozen=True)
class Wait:
    """Cycles that a wave stood at an instruction.

    line: of the source, or None; of: "global", "shared" or "scalar", whose answer it waited for longest
    """

    text: str
    line: int | None
    cycles: int
    of: str


def waits(trace: Trace) -> list[Wait]:
    """The instructions at which the recorded wave waited, in the order in which it came to them.

    trace  of `gpu.trace()`, after the launch
    """
    ptx = any(step.text.startswith(("ld.", "@%", "mov.")) for step in trace.steps)
    return list((_nvidia if ptx else _amd)(trace.steps))


def _line(step: Step) -> int | None:
    return step.line[1] if step.line else None


def _amd(steps: Iterable[Step]) -> Iterable[Wait]:
    now = 0
    under_way: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for step in steps:
        stop = now
        reason = ""
        if step.text.startswith("s_waitcnt"):
            for counter, left in _WAITCNT.findall(step.text):
                queue = under_way[counter]
                over = queue[: max(0, len(queue) - int(left))]
                del queue[: len(over)]
                for ready, kind in over:
                    if ready > stop:
                        stop, reason = ready, kind
        if stop > now:
            yield Wait(step.text, _line(step), stop - now, reason)
        now = stop + ISSUE
        if _SCALAR.match(step.text):
            under_way["lgkmcnt"].append((now + ANSWER["scalar"], "scalar"))
        for pattern, counter, kind in _QUEUES:
            if re.match(pattern, step.text):
                under_way[counter].append((now + ANSWER[kind], kind))


def _nvidia(steps: Iterable[Step]) -> Iterable[Wait]:
    now = 0
    ready: dict[str, tuple[int, str]] = {}
    for step in steps:
        text = re.sub(r"^@!?%p\d+\s+", "", step.text)
        load = re.match(r"ld\.(\w+)", text)
        names = _REGISTER.findall(text)
        written = _REGISTER.findall(text.split("[")[0]) if load else []
        stop, reason = now, ""
        for name in names:
            if name not in written and name in ready and ready[name][0] > stop:
                stop, reason = ready[name]
        if stop > now:
            yield Wait(step.text, _line(step), stop - now, reason)
        now = stop + ISSUE
        for name in written:
            kind = "shared" if "shared" in text.split()[0] else "global"
            ready[name] = (now + ANSWER[kind], kind) if ".param" not in text else (now, "")
