"""07.dpp_sum: AMDGCN by hand. The lanes of a wave add up their numbers by DPP, in waves of 64 and of 32."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gpu_utils.analytic.tolerance import Tolerance, tolerance
from gpu_utils.chips.targets import TARGETS
from gpu_utils.errors import W2WError
from gpu_utils.exercises.u07_ptx_and_amdgcn import dpp_sum_slips as slips
from gpu_utils.exercises.u07_ptx_and_amdgcn.by_hand import AMD, amdgcn_kernel
from gpu_utils.exercises.u07_ptx_and_amdgcn.judging import judged, too_long, written
from gpu_utils.exercises.u07_ptx_and_amdgcn.lane_weights import how_often
from gpu_utils.exercises.u07_ptx_and_amdgcn.wait_states import too_near
from gpu_utils.grading.compare import Difference
from gpu_utils.grading.cpp import Framed
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs, Misconception
from gpu_utils.virtual import amdgcn, virtual_gpu
from gpu_utils.virtual.isa import Launch

NAME = "dpp_sum"
_BEHIND = 5
"""Instructions behind the learner's: the store of s8."""
MOST = 24
"""Instructions besides waits: 64 lanes need 7, and 18 where each step moves, then adds, and clears a register first."""

_FILES = {lanes: Framed.read(Path(__file__).with_name(f"dpp_sum_{lanes}.s")) for lanes in (64, 32)}

_FRAME = """  s_load_dwordx4 s[4:7], s[0:1], 0x0
  s_lshl_b32 s3, {row}, {shift}
  v_lshl_add_u32 v14, v0, 2, s3
  v_mov_b32 v2, -1
  v_mov_b32 v3, -1
  v_mov_b32 v4, -1
  {wait_scalar}
  global_load_dword v1, v14, s[4:5]
  s_lshl_b32 s14, {row}, 2
  v_mov_b32 v15, s14
  {wait_vector}
{part}
  s_nop 1
  v_mov_b32 v14, s8
  {one_lane}
  global_store_dword v15, v14, s[6:7]
  s_endpgm
"""
_REFUSED = ("row_bcast", "row_newbcast", "row_xmask", "row_share", "permlane", "s_add_f32")


def right(lanes: int) -> str:
    """The solution."""
    return _FILES[lanes]()


def kernel(part: str, target: str) -> str:
    """The whole kernel around a part: y[row] is what it leaves in s8, with x[row][lane] in v1."""
    wide, gfx12 = TARGETS[target].lanes == 64, target.startswith("gfx12")
    body = _FRAME.format(
        part=part.strip("\n"),
        row="ttmp9" if gfx12 else "s2",
        shift=8 if wide else 7,
        wait_scalar="s_wait_kmcnt 0x0" if gfx12 else "s_waitcnt lgkmcnt(0)",
        wait_vector="s_wait_loadcnt 0x0" if gfx12 else "s_waitcnt vmcnt(0)",
        one_lane="s_mov_b64 exec, 1" if wide else "s_mov_b32 exec_lo, 1",
    )
    return amdgcn_kernel(NAME, "x_ptr y_ptr", body, target)


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    lanes = TARGETS[case["target"]].lanes
    return {"lanes": lanes, "x": torch.rand(case["rows"], lanes, generator=generator) + 0.5}


def dpp_sum_reference(lanes: int, x: Tensor) -> Tensor:
    """The sum of each row, in float64."""
    return x.double().sum(dim=1)


def _tolerance(case: Case, inputs: Inputs) -> Tolerance:
    return tolerance(torch.float32, k=inputs["lanes"], magnitude=math.sqrt(inputs["lanes"]))


def _call(answer: Callable[..., Any], inputs: Inputs) -> Any:
    """The text for so many lanes, also if it is still `#error` and the one for the other waves is written."""
    try:
        return written(answer, {"lanes": inputs["lanes"]})
    except NotImplementedError:
        written(answer, {"lanes": 96 - inputs["lanes"]})
        return answer(lanes=inputs["lanes"])


def _not_allowed(text: str) -> Difference | None:
    """What the exercise rules out, whatever it computes: other ways, code that is not straight, a changed EXEC.

    text  without comments in the style of C that may go over several lines
    """
    lines = [re.split(r"//|;|^\s*#", line)[0].strip() for line in text.splitlines()]
    words = [line.split()[0] for line in lines if line]
    if any(word.startswith("ds_") for word in words):
        return Difference("lds", "a ds_ instruction goes through LDS; here the lanes exchange in their registers")
    if any(re.match(r"(global|flat|scratch|t?buffer)_|s_(load|store|buffer|scratch|atomic)", word) for word in words):
        return Difference("memory", "the lines access memory; v1 has all that they need, and s8 takes the sum")
    label = any(re.match(r"\S+\s*:", line) for line in lines)
    if label or any(re.match(r"\.|s_c?branch|s_(set|swap|call)|s_endpgm|s_barrier", word) for word in words):
        return Difference("straight", "found a label, a branch or a directive; expected straight code")
    if any("exec" in line or line.startswith("v_cmpx") for line in lines):
        return Difference("exec", "EXEC is named; all lanes are on, and must stay so")
    count = sum(not word.startswith(("s_nop", "s_delay", "s_wait")) for word in words)
    if count > MOST:
        by_lane = sum("readlane" in word for word in words) > MOST // 2
        kind = "too long, lane by lane" if by_lane else "too long"
        return Difference(kind, f"found {count} instructions besides waits, expected at most {MOST}")
    return None


def _judge(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    if not isinstance(value, str):
        return Difference("type", f"the result is a {type(value).__name__}, expected lines of AMDGCN as a string")
    if "#error" in value:
        return Difference(
            "unwritten: part", f"the text for {inputs['lanes']} lanes is still to be written: it holds #error"
        )
    if found := too_long(value):
        return found
    value = re.sub(r"/\*.*?\*/", " ", value, flags=re.DOTALL)
    if found := _not_allowed(value):
        return found
    x, target = inputs["x"], case.get("target") or {64: "gfx942", 32: "gfx1100"}[inputs["lanes"]]
    text, rows = kernel(value, target), len(x)

    def arguments() -> tuple[list[Any], Tensor]:
        y = torch.full((rows,), math.nan)
        return [x, y], y

    def cost(launch: Launch) -> Difference | None:
        near = too_near(launch.program.ops, target)
        if near is None:
            return None
        wanted = f"{near.wanted} wait state{'s' * (near.wanted > 1)}"
        detail = (
            f"right on the virtual {target}, which runs one instruction after the other; the chip asks for {wanted} "
            f"between `{near.writer}` and `{near.reader}`, found {near.found}"
        )
        return Difference(f"wait states, {near.what}: {near.found} of {near.wanted}", detail)

    expected, tol = dpp_sum_reference(**inputs), _tolerance(case, inputs)
    found = judged(text, target, NAME, rows, inputs["lanes"], arguments, expected, tol, cost)
    if found and (wrong := _registers(text, target, value)):
        return wrong
    if found and found.kind in ("value", "nan"):
        return _looked_at(text, target, inputs["lanes"], found)
    if found and found.kind == "error:CompileFailed":
        word = next((word for word in _REFUSED if word in found.detail), "")
        return replace(found, kind=f"refused {word}")
    return found


def _registers(text: str, target: str, part: str) -> Difference | None:
    """Whether a wrong part leaves s8 as it was, or writes what the lines behind it still need."""
    try:
        ops = amdgcn.decode(text, target, NAME).ops
    except W2WError:
        return None
    before = len(amdgcn.decode(kernel("", target), target, NAME).ops) - _BEHIND
    written = [name for op in ops[before:-_BEHIND] for name in op.writes]
    if taken := [name for name in ("v15", "s6", "s7") if name in written]:
        detail = f"the lines write {taken[0]}, which the lines behind them need; v1 to v13 and s8 to s13 are yours"
        return Difference(f"writes {taken[0]}", detail)
    if "s8" not in written:
        return Difference("s8", "no line writes s8, which must hold the sum at the end")
    return None


def _looked_at(text: str, target: str, lanes: int, found: Difference) -> Difference:
    """Which lanes a wrong sum counts, and how often."""
    y = torch.full((lanes,), math.nan)
    try:
        with virtual_gpu(target) as gpu:
            gpu.load(text).launch(NAME, lanes, lanes, [torch.eye(lanes), y])
    except W2WError:
        return replace(found, kind="sum")
    if y.isnan().any():
        return replace(found, kind="no number", detail=f"{found.detail}. Is a register read that nobody has written?")
    if not (y == 1).all():
        counted = how_often(y.tolist())
        return Difference(
            f"counts {counted}", f"{found.detail}. It counts {counted}; expected each of the {lanes} once"
        )
    return Difference("sum", f"{found.detail}. A row with one number other than 0 is right. How are two added?")


def _fresh(rng: random.Random) -> Case:
    return Case("numbers nobody chose", rows=rng.randrange(2, 6), target=rng.choice(AMD))


EXERCISE = Exercise(
    id="07.dpp_sum",
    title="A sum over a wave, in AMDGCN",
    parameters=("lanes",),
    kind="host",
    inputs=_inputs,
    reference=dpp_sum_reference,
    call=_call,
    judge=_judge,
    tolerance=_tolerance,
    dtype=lambda inputs: torch.float32,
    cases=(
        Example("the example of the statement", lanes=32, x=lambda: torch.arange(1.0, 33.0).view(1, 32)),
        Case("a wavefront of 64: four rows of 16", rows=3, target="gfx942"),
        Case("a wave of 32: two rows of 16", rows=3, target="gfx1100"),
        Case("a wavefront of 64, which asks for fewer wait states", rows=2, target="gfx90a"),
        Case("a wave of 32 on RDNA 4", rows=2, target="gfx1201"),
        Case("a wavefront of 64 on CDNA 4", rows=2, target="gfx950"),
        Case("a wave of 32 on gfx1250", rows=2, target="gfx1250"),
    ),
    fresh=_fresh,
    trivial={
        "zeros": lambda lanes: "  s_mov_b32 s8, 0",
        "ones": lambda lanes: "  s_mov_b32 s8, 1.0",
        "nan": lambda lanes: "  s_mov_b32 s8, 0x7fc00000",
        "the input": lambda lanes: "  s_nop 1\n  v_readlane_b32 s8, v1, 0",
    },
    misconceptions=tuple(
        Misconception(name, answer, hint) for name, (answer, hint) in slips.all_of(_FILES[64], _FILES[32]).items()
    ),
    hints=(
        "Inside a row of 16 lanes four steps are enough, each with twice as many lanes summed: by 8, 4, 2 and 1. DPP "
        "does the move and the addition in one instruction: v_add_f32_dpp v1, v1, v1 and then where src0 comes from.",
        "Rows of 16 are then left: four of them in a wave of 64, two in one of 32. gfx9 has row_bcast:15 and "
        "row_bcast:31, which hand on the last lane of a row, so let the sums gather there, by row_shr. gfx11 and gfx12 "
        "have v_permlanex16_b32, which reads the other row. v_readlane_b32 takes one lane to s8.",
        "64: row_shr:8, :4, :2, :1, row_bcast:15, row_bcast:31, each as v_add_f32_dpp v1, v1, v1 with s_nop 1 before "
        "it; then s_nop 0 and v_readlane_b32 s8, v1, 63. 32: row_xmask:8, :4, :2, :1, then v_permlanex16_b32 v2, v1, "
        "0, 0, an ordinary v_add_f32 and v_readlane_b32 s8, v1, 0.",
    ),
    explanation=(
        "row_shr:8 gives lane i of a row what lane i - 8 has. Lanes 0 to 7 have no source: without bound_ctrl DPP "
        "leaves them as they were. That does not matter: after 8, 4, 2 and 1 the last lane of each row holds its row. "
        "row_bcast:15 gives the last lane of a row to the row behind it, row_bcast:31 gives lane 31 to rows 2 and 3, "
        "so lane 63 ends with all. gfx11 and gfx12 have no row_bcast: v_permlanex16_b32 reads the other row. On gfx9 "
        "nothing holds a DPP read back until the vector instruction before it has written: two wait states must stand "
        "between them, and gfx942 and gfx950 want one before v_readlane_b32 (LLVM, GCNHazardRecognizer.cpp). The "
        "virtual GPU runs one instruction after the other, so the check reads the text for that. gfx11 and gfx12 "
        "hold such reads back; s_delay_alu, which compilers write there, only saves time."
    ),
    seconds=20.0,
)
