"""synccheck: barriers and member masks, each fault beside a near one that is right."""

import pytest

from gpu_utils.errors import MissedBarrier
from gpu_utils.virtual import MODELS, virtual_gpu

from .ptx_text import launch

WRONG = {
    "threads leave before the barrier": ("@%p1 exit;\n bar.sync 0;", "fewer barriers"),
    "a warp leaves before the barrier": ("setp.lt.u32 %p2, %r1, 32;\n @%p2 exit;\n bar.sync 0;", "fewer barriers"),
    "a part of a warp": ("@!%p1 bra L;\n bar.sync 0;\n bra M;\nL: bar.sync 0;\nM:", "is elsewhere"),
    "no multiple of a warp": ("bar.sync 1, 40;", "multiple of 32"),
    "more threads than the block has": ("bar.sync 1, 128;", "at most the 64"),
    "a mask without the lane": ("vote.sync.ballot.b32 %r3, %p1, 0x0000ffff;", "does not name this lane"),
    "a mask without the lane, guarded": ("@%p1 bar.warp.sync 0x000000ff;", "does not name this lane"),
}
RIGHT = {
    "all come": "bar.sync 0;\n @%p1 exit;",
    "half of the block at a barrier of its own": """
        setp.lt.u32 %p2, %r1, 32;
        @!%p2 bra L;
        bar.sync 1, 32;
        L: bar.sync 0;""",
    "the count of the block": "bar.sync 1, 64;",
    "unaligned, in two places": "@!%p1 bra L;\n barrier.sync 0;\n bra M;\nL: barrier.sync 0;\nM:",
    "a mask of those that come": "@!%p1 bra L;\n bar.warp.sync 0x0000ffff;\nL:",
    "a mask that names who has ended": "@%p1 exit;\n vote.sync.ballot.b32 %r3, %p1, 0xffffffff;",
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_use_of_a_barrier_or_mask_is_found(name):
    body, says = WRONG[name]
    with pytest.raises(MissedBarrier, match=says) as caught:
        launch(body)
    report = caught.value.report
    assert report.tool == "synccheck"
    assert report.missing
    assert report.kernel == "k"


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_one_is_not(name):
    launch(RIGHT[name])


_AMD = """kernel:
{body}
  s_barrier
  s_endpgm
LATE:
  s_barrier
  s_barrier
  s_endpgm
"""


@pytest.mark.parametrize("target", [name for name, row in MODELS.items() if row.vendor == "amd"])
def test_a_wave_that_comes_to_fewer_barriers(target):
    with virtual_gpu(target, sanitize="synccheck") as gpu:
        lanes = gpu.model.lanes
        vcc = "vcc" if lanes == 64 else "vcc_lo"
        late = f"v_mov_b32 v1, {lanes - 1}", f"v_cmp_lt_u32 {vcc}, v1, v0", "s_cbranch_vccnz LATE"
        lines = "v_and_b32 v0, 0x3ff, v0", *late
        body = "\n".join(f"  {line}" for line in lines)
        barrier = "s_barrier" if not target.startswith("gfx12") else "s_barrier_signal -1\n  s_barrier_wait -1"
        text = _AMD.replace("s_barrier", barrier).format(body=body)
        gpu.launch(text, "kernel", (2,), (lanes,), [])
        with pytest.raises(MissedBarrier, match="fewer barriers"):
            gpu.launch(text, "kernel", (2,), (2 * lanes,), [])
