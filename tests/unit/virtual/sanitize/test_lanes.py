"""Values of lanes that are off: found where they are used, and not where they are thrown away."""

import numpy as np
import pytest

from gpu_utils.errors import AbsentLane
from gpu_utils.virtual import virtual_gpu
from gpu_utils.virtual.sanitize.lanes import has_shuffles

from .ptx_text import launch

SHUFFLE = "shfl.sync.down.b32 %r3, %r2, 8, 31, 0x0000ffff;\n"
IN_PLACE = "shfl.sync.bfly.b32 %r2, %r2, 1, 31, 0x0000ffff;\n"
STORE = "st.global.u32 [%rd3], %r3;\n"
# a guarded shuffle of the lower half, whose mask names that half alone
MASKED = "mov.u32 %r6, 0x0000ffff;\nsetp.lt.u32 %p2, %r1, 16;\n@%p2 "
# both halves at one shuffle, each with a mask of its own
HALVES = "selp.b32 %r6, 0x0000ffff, 0xffff0000, %p1;\nshfl.sync.bfly.b32 %r3, %r2, 8, 31, %r6;\n"
ADDRESS = "and.b32 %r4, %r3, 31;\nmul.wide.u32 %rd4, %r4, 4;\nadd.u64 %rd4, %rd1, %rd4;\nst.global.u32 [%rd4], %r2;\n"
STEP = "add.u32 %r2, %r2, %r3;\nshfl.sync.down.b32 %r3, %r2, 4, 31, 0x0000ffff;\nadd.u32 %r3, %r2, %r3;\n"
WRONG = {
    "stored": f"@!%p1 bra L;\n{SHUFFLE}{STORE}L:",
    "added up and stored": f"@!%p1 bra L;\n{SHUFFLE}add.u32 %r3, %r3, 1;\n{STORE}L:",
    "an address": f"@!%p1 bra L;\n{SHUFFLE}{ADDRESS}L:",
    "a branch": f"@!%p1 bra L;\n{SHUFFLE}setp.gt.u32 %p3, %r3, 99;\n@%p3 bra L;\nst.global.u32 [%rd3], %r2;\nL:",
    "an atomic": f"@!%p1 bra L;\n{SHUFFLE}red.global.add.u32 [%rd3], %r3;\nL:",
    "shared memory": f"@!%p1 bra L;\n{SHUFFLE}mov.u32 %r5, s;\nst.shared.u32 [%r5], %r3;\nL:",
    "not in the mask": f"{MASKED}shfl.sync.down.b32 %r3, %r2, 8, 31, %r6;\n@%p2 {STORE}",
}
RIGHT = {
    "from lanes that are on": f"@!%p1 bra L;\nshfl.sync.bfly.b32 %r3, %r2, 8, 31, 0x0000ffff;\n{STORE}L:",
    "selected away": f"@!%p1 bra L;\n{SHUFFLE}setp.lt.u32 %p2, %r1, 8;\nselp.b32 %r3, %r3, 0, %p2;\n{STORE}L:",
    "stored by the others alone": f"@!%p1 bra L;\n{SHUFFLE}setp.lt.u32 %p2, %r1, 8;\n@%p2 {STORE}L:",
    "masked away": f"@!%p1 bra L;\n{SHUFFLE}mul.lo.u32 %r3, %r3, 0;\n{STORE}L:",
    "written over": f"@!%p1 bra L;\n{SHUFFLE}mov.u32 %r3, 1;\n{STORE}L:",
    "summed by the first lane": f"@!%p1 bra L;\n{SHUFFLE}{STEP}setp.eq.u32 %p2, %r1, 0;\n@%p2 {STORE}L:",
    "halves with masks of their own": f"{HALVES}{STORE}",
    "in place, and stored by all": f"@!%p1 bra L;\n{IN_PLACE}L: st.global.u32 [%rd3], %r2;",
    "never used": f"@!%p1 bra L;\n{SHUFFLE}L:",
}


@pytest.mark.parametrize("name", WRONG)
def test_a_value_of_an_absent_lane_that_is_used_is_found(name):
    with pytest.raises(AbsentLane, match=r"shfl\.sync\.down\.b32") as caught:
        launch(WRONG[name], threads=32)
    assert caught.value.report.first is not None
    assert caught.value.report.tool == "synccheck"


@pytest.mark.parametrize("name", RIGHT)
def test_one_that_is_thrown_away_is_not(name):
    assert launch(RIGHT[name], threads=32) == launch(RIGHT[name], threads=32, tools=False)


@pytest.mark.parametrize("target", ["gfx942", "gfx1100"])
@pytest.mark.parametrize("used", [True, False])
def test_a_permutation_of_amd_from_a_lane_that_exec_switches_off(target, used):
    wide = target == "gfx942"
    mask = "s_mov_b64 exec, 0xff" if wide else "s_mov_b32 exec_lo, 0xff"
    vcc = "vcc" if wide else "vcc_lo"
    lines = [
        "v_mbcnt_lo_u32_b32 v0, -1, 0",
        mask,
        "v_add_nc_u32 v1, 4, v0" if not wide else "v_add_u32 v1, 4, v0",
        "v_lshlrev_b32 v1, 2, v1",
        "ds_bpermute_b32 v2, v1, v0",
        "s_waitcnt lgkmcnt(0)",
    ]
    if not used:
        lines += [f"v_cmp_gt_u32 {vcc}, 4, v0", f"v_cndmask_b32 v2, 0, v2, {vcc}"]
    lines += ["v_lshlrev_b32 v3, 2, v0", "ds_write_b32 v3, v2" if wide else "ds_store_b32 v3, v2", "s_endpgm"]
    text = "kernel:\n" + "".join(f"  {line}\n" for line in lines)
    with virtual_gpu(target, sanitize="synccheck") as gpu:
        if used:
            with pytest.raises(AbsentLane, match="ds_bpermute_b32"):
                gpu.launch(text, "kernel", (2,), (64,), [], shared=512)
        else:
            gpu.launch(text, "kernel", (2,), (64,), [], shared=512)
            assert has_shuffles(gpu.last.program)
            assert np.count_nonzero(gpu.last.counters.absent)


@pytest.mark.parametrize("target", ["gfx942", "gfx1100"])
def test_a_permutation_in_place_leaves_what_lanes_that_are_off_hold(target):
    wide = target == "gfx942"
    lines = [
        "v_mbcnt_lo_u32_b32 v0, -1, 0",
        "v_lshlrev_b32 v3, 2, v0",
        "s_mov_b64 exec, 0xff" if wide else "s_mov_b32 exec_lo, 0xff",
        "v_xor_b32 v1, 4, v3",
        "ds_bpermute_b32 v0, v1, v0",
        "s_waitcnt lgkmcnt(0)",
        "s_mov_b64 exec, -1" if wide else "s_mov_b32 exec_lo, -1",
        "ds_write_b32 v3, v0" if wide else "ds_store_b32 v3, v0",
        "s_endpgm",
    ]
    text = "kernel:\n" + "".join(f"  {line}\n" for line in lines)
    with virtual_gpu(target, sanitize="synccheck") as gpu:
        gpu.launch(text, "kernel", (1,), (32,), [], shared=512)
