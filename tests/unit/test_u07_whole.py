"""Unit 07, what content tests do not reach: the kernel with roles and the repaired queue on every virtual GPU."""

from __future__ import annotations

import pytest
import torch

from gpu_utils.compiler.clang import installed
from gpu_utils.errors import BadArgument, Race
from gpu_utils.exercises.u07_ptx_and_amdgcn import fix_race
from gpu_utils.exercises.u07_ptx_and_amdgcn.roles import roles_run
from gpu_utils.grading.exercise import Case
from gpu_utils.virtual import MODELS, virtual_gpu
from tests.conftest import unavailable


@pytest.mark.parametrize("target", MODELS)
def test_the_kernel_with_roles_is_right_whatever_the_split(target: str) -> None:
    for programs, communication, tiles in ((8, 2, 24), (6, 5, 9), (6, 0, 13)):
        run = roles_run(programs, communication, tiles, target)
        assert run.right
        assert sum(run.sent) == sum(run.computed) == tiles
        assert run.most_computed == -(-tiles // (programs - communication))


@pytest.mark.parametrize("target", ["sm_80", "gfx942", "gfx1201"])
def test_relaxed_flags_are_a_race(target: str) -> None:
    with pytest.raises(Race, match="roles_kernel"):
        roles_run(6, 2, 12, target, slots=2, ordered=False)


def test_programs_that_do_one_thing_are_named() -> None:
    rows = roles_run(3, 1, 2).rows
    assert [row["role"] for row in rows.values()] == ["sends", "computes", "computes"]
    assert {row["role"] for row in roles_run(2, 0, 4).rows.values()} == {"sends, then computes"}


def test_somebody_must_compute() -> None:
    with pytest.raises(BadArgument, match="at least one program that computes"):
        roles_run(4, 4, 8)


QUEUE = Case("a queue", tiles=7, slots=2, senders=2, receivers=2, threads=96)


@pytest.mark.parametrize("target", MODELS)
def test_the_repaired_queue_is_right_on_every_virtual_gpu(target: str) -> None:
    if not installed() and target not in fix_race.EXERCISE.targets:
        unavailable("clang, from the extra hip")
    inputs = fix_race.EXERCISE.inputs(QUEUE, torch.Generator().manual_seed(7))
    with virtual_gpu(target, strict=True, sanitize=("racecheck", "waitcheck")):
        value = fix_race.EXERCISE.call(fix_race.ANSWER, inputs)
    assert fix_race._judge(QUEUE, inputs, value) is None


def test_a_queue_that_hangs_is_told_with_its_counters() -> None:
    never = fix_race.ANSWER.changed(("&queue.empty[slot], turn)", "&queue.empty[slot], turn + 1)"))
    inputs = fix_race.EXERCISE.inputs(QUEUE, torch.Generator().manual_seed(7))
    with virtual_gpu("sm_80", strict=True):
        value = fix_race.EXERCISE.call(never, inputs)
    found = fix_race._judge(QUEUE, inputs, value)
    assert found is not None
    assert found.kind == "hang:start"
    assert "full is [0, 0] and empty is [0, 0] by then" in found.detail


OWN_KERNEL = """
__global__ void pass_on(const float *x, float *ring, int *full, int *empty, float *out, int *clock, int tiles,
                        int slots, int senders) {
  for (int i = threadIdx.x; i < WORDS * tiles; i += blockDim.x) out[i] = 4 * x[i];
}
"""


def _kind_of(source: str) -> str:
    inputs = fix_race.EXERCISE.inputs(QUEUE, torch.Generator().manual_seed(7))
    with virtual_gpu("sm_80", strict=True):
        value = fix_race.EXERCISE.call(lambda: source, inputs)
    found = fix_race._judge(QUEUE, inputs, value)
    return found.kind if found else ""


@pytest.mark.skipif(not installed(), reason="clang, from the extra hip")
def test_a_queue_is_asked_for_and_the_frame_stays() -> None:
    head, tail = fix_race.FRAME
    right = fix_race.ANSWER.solution
    assert _kind_of(head + right + tail) == ""
    spaced = tail.replace("int block", "/* mine */ int // which\n\tblock")
    assert _kind_of(f"// mine\n{head}#define FENCE __threadfence()\n{right}{spaced}\n// end\n") == ""
    assert _kind_of(head + right + OWN_KERNEL) == "frame"
    assert _kind_of(f"{head}{right}{OWN_KERNEL}#define pass_on unused\n{tail}") == "frame"
    assert _kind_of((head + right + tail).replace("4 * delay", "0 * delay")) == "frame"
    assert _kind_of(f"{head}{right}{OWN_KERNEL}#/**/define pass_on unused\n{tail}") == "frame"
    assert _kind_of(f"{head}{right}{OWN_KERNEL.replace('pass_on', 'other')}{tail}") == "frame"
    one_line = tail.replace("// A persistent", "").replace("\n", " ")
    assert _kind_of(f"{head}{right}{OWN_KERNEL}// \\\n{one_line}") == "frame"


def test_a_result_that_went_past_the_ring_is_refused() -> None:
    inputs = fix_race.EXERCISE.inputs(QUEUE, torch.Generator().manual_seed(7))
    value = {"race": "", "hang": "", "frame": "", "out": 4 * inputs["x"], "ring": torch.zeros(2, 100)}
    found = fix_race._judge(QUEUE, inputs, value)
    assert found is not None
    assert found.kind == "ring"
    value["ring"] = 2 * inputs["x"][[6, 5]]
    assert fix_race._judge(QUEUE, inputs, value) is None
