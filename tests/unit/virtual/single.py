"""Runs one AMDGCN instruction on chosen register values."""

from dataclasses import replace

import numpy as np

from gpu_utils.analytic.access import SHAPES
from gpu_utils.virtual.amdgcn import decode, new_state
from gpu_utils.virtual.amdgcn.state import SGPR, VCC
from gpu_utils.virtual.counters import Counters
from gpu_utils.virtual.global_memory import Memory
from gpu_utils.virtual.isa import Launch
from gpu_utils.virtual.machine import run_batches
from gpu_utils.virtual.models import MODELS


def execute(target, lines, registers, waves=1, shared=0, executable=None):
    """Run instructions on registers {"v0": array (waves, lanes), "s2": array (waves,)}; returns the state at the end.

    executable: bool (waves, lanes), which lanes EXEC allows at the start; all by default.
    """
    lines = [lines] if isinstance(lines, str) else list(lines)
    named = ", ".join(f"v{i}" for i in range(0))
    text = "kernel:\n" + "".join(f"\t{line}\n" for line in lines) + "\ts_endpgm\n" + named
    program = decode(text, target, "kernel")
    return run(program, target, registers, waves, shared, executable)


def with_info(program, **changes):
    """The program with other figures than its decoder found, for text without a descriptor."""
    return replace(program, info=replace(program.info, **changes))


def run(program, target, registers, waves=1, shared=0, executable=None, tracer=None):
    memory = Memory()
    counters = Counters(program, SHAPES[target])
    program = with_info(program, vgprs=max(program.info.vgprs, 16))
    launch = Launch(
        "kernel", target, program, (1, 1, 1), (waves * program.lanes, 1, 1), np.zeros(64, np.uint8), memory, counters,
        shared,
        MODELS[target],
    )  # fmt: skip
    state = new_state(program, launch, np.zeros((1, 3), np.int64), waves)
    for name, value in registers.items():
        if name[0] == "v" and name != "vcc":
            state.U[int(name[1:])][...] = value
        elif name == "vcc":
            (state.Q[VCC] if state.lanes == 64 else state.U[VCC])[...] = np.asarray(value).reshape(-1, 1)
        elif name == "scc":
            state.scc[...] = value
        else:
            state.U[SGPR + int(name[1:])][...] = np.asarray(value, np.uint32).reshape(-1, 1)
    if executable is not None:
        state.disable(~executable)
    run_batches(iter([state]), tracer)
    return state
