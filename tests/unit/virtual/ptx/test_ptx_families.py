"""No instruction of the tables is without a test, and the registers of a traced warp can be read."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from ptx_harness import HEADER
from ptx_reference import reference

from gpu_utils.virtual.ptx import decode
from gpu_utils.virtual.ptx.decode import ALU, FAMILIES
from gpu_utils.virtual.ptx.floating import APPROXIMATE

# no effect that a test could see: hints to caches, fences of a machine that keeps every order, waits that never wait
WITHOUT_EFFECT = {
    "prefetch", "prefetchu", "applypriority", "discard", "createpolicy", "fence", "membar", "griddepcontrol",
    "setmaxnreg",
    "nanosleep", "pmevent",
}  # fmt: skip


def test_every_instruction_is_exercised_by_a_test():
    here = "\n".join(
        path.read_text() for path in Path(__file__).parent.glob("test_ptx_*.py") if path.name != Path(__file__).name
    )
    tested = {stem for stem in FAMILIES if re.search(rf"\b{stem}[.; ]|\b{stem.upper()}_FORMS", here)}
    missing = sorted(set(FAMILIES) - tested - WITHOUT_EFFECT)
    assert not missing, missing
    assert all(reference(opcode, APPROXIMATE) for opcode in ALU)


def test_instructions_without_effect_are_decoded_and_run():
    lines = ["prefetch.global.L2 [%a];", "prefetchu.L1 [%a];", "applypriority.global.L2::evict_normal [%a], 128;",
             "discard.global.L2 [%a], 128;",
             "createpolicy.fractional.L2::evict_first.b64 %p, 1.0;", "fence.acq_rel.gpu;",
             "fence.proxy.async.shared::cta;",
             "membar.gl;", "griddepcontrol.wait;", "setmaxnreg.inc.sync.aligned.u32 128;", "nanosleep.u32 10;",
             "pmevent 1;"]  # fmt: skip
    program = decode(HEADER + ".visible .entry k() { .reg .b64 %a, %p;" + "\n".join(lines) + " ret; }", "sm_90")
    assert [op.kind for op in program.ops if op.kind == "wait"] == ["wait"] * len(lines)


def test_a_trace_shows_the_registers_that_each_instruction_changed():
    import torch

    from gpu_utils.virtual import virtual_gpu

    text = (
        HEADER.replace("sm_90a", "sm_80")
        + """.visible .entry k(.param .u64 out) { .reg .b32 %t, %v; .reg .b64 %a;
      mov.u32 %t, %tid.x; ld.param.u64 %a, [out]; mad.wide.u32 %a, %t, 4, %a; { .reg .b32 %v; add.u32 %v, %t, 5; }
      mul.lo.u32 %v, %t, %t; st.global.u32 [%a], %v; ret; }"""
    )
    out = torch.zeros(64, dtype=torch.int32)
    with virtual_gpu("sm_80") as gpu:
        with gpu.trace(wave=1) as trace:
            gpu.load(text).launch("k", 1, 64, [out])
    steps = [step for step in trace.steps if step.changed]
    lanes = np.arange(32, 64)
    assert (steps[0].changed["%t"] == lanes).all()
    assert (trace.value("%v") == lanes * lanes).all()
    assert (trace.value("%v#2") == lanes + 5).all()
    assert out.tolist() == [i * i for i in range(64)]
