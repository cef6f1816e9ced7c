"""What is asynchronous in PTX: for each rule of the manual a kernel that breaks it, and its right twin."""

from __future__ import annotations

import re
from contextlib import nullcontext

import pytest
import torch
import triton

from gpu_utils.errors import LateData, Race, UninitialisedShared, VirtualGpuError
from gpu_utils.kernelset.removals import without
from gpu_utils.virtual import virtual_gpu
from gpu_utils.virtual.models import decode
from gpu_utils.virtual.ptx import tensor
from gpu_utils.virtual.sanitize import ptx_needed

from . import async_kernels

TOOLS = ("racecheck", "waitcheck")
HEADER = ".version 8.7\n.target sm_90a\n.address_size 64\n"


@pytest.fixture(autouse=True)
def _scratch_for_descriptors():
    triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8))


def run(body, arguments, threads=64, target="sm_90", parameters="", step_limit=100):
    """Launch a kernel of these lines; `%t` is the thread, `%u` four times that, `%one` whether it is thread 0."""
    takes = ", ".join([".param .u64 x", ".param .u64 o", *[f".param .u64 {name}" for name in parameters.split()]])
    text = f"""{HEADER if target == "sm_90" else HEADER.replace("sm_90a", "sm_100a")}
      .visible .entry k({takes}) {{
      .reg .b32 %t, %u, %s, %v, %w; .reg .b64 %x, %o, %m, %n; .reg .pred %one, %ok, %second, %p;
      .shared .align 1024 .b8 tile[4096]; .shared .align 8 .b64 bar; .shared .align 8 .b64 free;
      mov.u32 %t, %tid.x; shl.b32 %u, %t, 2; setp.eq.u32 %one, %t, 0; setp.ge.u32 %second, %t, 32;
      ld.param.u64 %x, [x]; ld.param.u64 %o, [o]; mad.wide.u32 %x, %t, 16, %x; mad.wide.u32 %o, %t, 4, %o;
      mov.u32 %s, tile; mad.lo.u32 %s, %t, 16, %s;
      {body}
      ret; }}"""
    with virtual_gpu(target, sanitize=TOOLS, step_limit=step_limit) as gpu:
        gpu.load(text).launch("k", 1, threads, arguments)


def lines(body, without=""):
    """The body without the line that has a mark `// name` at its end."""
    found = [line for line in body.splitlines() if not (without and line.endswith(f"// {without}"))]
    assert not without or len(found) < len(body.splitlines())
    return "\n".join(line.split("//")[0] for line in found)


# cp.async ----------------------------------------------------------------------------------------------------------
COPY = """cp.async.cg.shared.global [%s], [%x], 16;
    cp.async.commit_group; // commit
    cp.async.wait_group 0; // wait
    ld.shared.u32 %v, [%s]; // use
    bar.sync 0; // barrier
    xor.b32 %w, %u, 128; shl.b32 %w, %w, 2; mov.u32 %s, tile; add.u32 %s, %s, %w; ld.shared.u32 %w, [%s]; // other
    add.u32 %v, %v, %w; st.global.u32 [%o], %v;"""


def copy(body):
    x, out = torch.arange(64 * 4, dtype=torch.int32), torch.zeros(64, dtype=torch.int32)
    run(body, [x, out])
    return out


def test_a_copy_that_was_committed_and_waited_for_may_be_read_and_behind_a_barrier_by_others():
    at = torch.arange(64)
    assert copy(lines(COPY)).tolist() == (4 * at + 4 * (at ^ 32)).tolist()


@pytest.mark.parametrize("missing", ["commit", "wait"])
def test_a_copy_read_by_its_own_warp_before_it_is_complete(missing):
    with pytest.raises(LateData, match=r"cp\.async\.wait_group missing") as error:
        copy(lines(COPY, missing))
    report = error.value.report
    assert (report.missing, report.first.does, report.second.does) == ("cp.async.wait_group", "writes", "reads")


def test_a_copy_that_others_read_before_its_warp_has_waited_though_a_barrier_stands_there():
    with pytest.raises(Race, match=r"a barrier stands between them, but wave \d came to it before"):
        copy(lines(lines(COPY.replace("%v, [%s]; // use", "%v, [%s]; // used"), "wait"), "")
             .replace("ld.shared.u32 %v, [%s];", "mov.u32 %v, 0;"))  # fmt: skip


def test_a_copy_that_others_read_with_no_barrier():
    with pytest.raises(Race, match="no barrier"):
        copy(lines(COPY, "barrier"))


def test_wait_all_needs_no_commit():
    copy(lines(COPY, "commit").replace("cp.async.wait_group 0", "cp.async.wait_all"))


def test_a_copy_is_overwritten_while_it_is_in_flight():
    body = lines(COPY).replace("cp.async.wait_group 0;", "st.shared.u32 [%s], %t; cp.async.wait_group 0;")
    with pytest.raises(LateData, match="writes offset "):
        copy(body)


@pytest.mark.parametrize(("pending", "right"), [(0, True), (1, True), (2, False)])
def test_a_wait_for_all_but_some_groups_completes_the_older_ones(pending, right):
    body = f"""cp.async.cg.shared.global [%s], [%x], 16; cp.async.commit_group;
      cp.async.cg.shared.global [%s+2048], [%x], 16; cp.async.commit_group;
      cp.async.wait_group {pending}; ld.shared.u32 %v, [%s]; st.global.u32 [%o], %v;"""
    if right:
        copy(body)
        with pytest.raises(LateData) if pending else nullcontext():
            copy(body.replace("%v, [%s]", "%v, [%s+2048]"))
    else:
        with pytest.raises(LateData):
            copy(body)


# mbarriers ---------------------------------------------------------------------------------------------------------
# the second warp hands 32 numbers to the first, twice, through one buffer
HANDED = """@%one mbarrier.init.shared::cta.b64 [bar], 32; // init
    @%one mbarrier.init.shared::cta.b64 [free], 32;
    and.b32 %w, %u, 127; mov.u32 %s, tile; add.u32 %s, %s, %w; @!%second st.shared.u32 [%s], -1;
    bar.sync 0; // barrier
    @%second bra produce;
    full: mbarrier.try_wait.parity.shared::cta.b64 %ok, [bar], 0; @!%ok bra full; // wait
    ld.shared.u32 %v, [%s]; st.global.u32 [%o], %v;
    mbarrier.arrive.shared::cta.b64 _, [free]; // release
    again: mbarrier.try_wait.parity.shared::cta.b64 %ok, [bar], 1; @!%ok bra again;
    ld.shared.u32 %v, [%s]; st.global.u32 [%o+128], %v; bra end;
    produce: st.shared.u32 [%s], %t;
    mbarrier.arrive.shared::cta.b64 _, [bar]; // full
    empty: mbarrier.try_wait.parity.shared::cta.b64 %ok, [free], 0; @!%ok bra empty; // empty
    add.u32 %t, %t, 100; st.shared.u32 [%s], %t; mbarrier.arrive.shared::cta.b64 _, [bar];
    end:"""


def hand_over(body):
    out = torch.zeros(64, dtype=torch.int32)
    run(body, [torch.zeros(4), out])
    return out


def test_what_a_warp_wrote_before_it_arrived_is_known_to_who_waits():
    at = torch.arange(32)
    assert hand_over(lines(HANDED)).tolist() == [*(at + 32).tolist(), *(at + 132).tolist()]


def test_a_wait_for_an_mbarrier_is_missing():
    with pytest.raises(Race, match="no barrier stands between them"):
        hand_over(lines(HANDED, "wait"))


@pytest.mark.parametrize("missing", ["release", "full"])
def test_an_arrival_that_nobody_makes_is_waited_for_for_ever(missing):
    with pytest.raises(VirtualGpuError, match="went round 100 times"):
        hand_over(lines(HANDED, missing))


def test_a_wait_with_the_wrong_parity_does_not_wait():
    with pytest.raises(Race, match="no barrier stands between them"):
        hand_over(lines(HANDED).replace("[bar], 0;", "[bar], 1;"))


def test_a_relaxed_arrival_makes_nothing_known():
    body = lines(HANDED).replace("mbarrier.arrive.shared::cta.b64 _, [bar]",
                                 "mbarrier.arrive.relaxed.cta.shared::cta.b64 _, [bar]", 1)  # fmt: skip
    with pytest.raises(Race, match="wave 1 has written"):
        hand_over(body)


def test_an_mbarrier_is_used_by_a_warp_that_does_not_know_its_init():
    with pytest.raises(Race, match=r"mbarrier\.init"):
        hand_over(lines(HANDED, "barrier").replace("@!%second st.shared.u32 [%s], -1;", ""))


def test_an_mbarrier_that_nobody_has_initialised():
    with pytest.raises(UninitialisedShared, match=r"mbarrier\.init must come first"):
        hand_over(lines(HANDED, "init"))


def test_a_plain_load_hits_an_mbarrier_at_which_others_arrive():
    body = lines(HANDED).replace("empty:", "@%p ld.shared.b64 %m, [free]; empty:")
    hand_over(body.replace("bar.sync 0;", "setp.ne.u32 %p, 0, 0; bar.sync 0;"))
    with pytest.raises(Race, match=r"ld\.shared\.b64 %m, \[free\]"):
        hand_over(body.replace("bar.sync 0;", "setp.eq.u32 %p, 0, 0; bar.sync 0;"))


@pytest.mark.parametrize("form", ["", ".noinc"])
def test_an_mbarrier_counts_copies_only_where_it_is_told_to(form):
    """Without .noinc the arrival does not count, so that each thread arrives once more."""
    more = "" if form else "mbarrier.arrive.shared::cta.b64 _, [bar];"
    body = f"""@%one mbarrier.init.shared::cta.b64 [bar], 64; bar.sync 0;
      cp.async.cg.shared.global [%s], [%x], 16;
      cp.async.mbarrier.arrive{form}.shared::cta.b64 [bar]; {more} // counted
      full: mbarrier.try_wait.parity.shared::cta.b64 %ok, [bar], 0; @!%ok bra full;
      xor.b32 %w, %u, 128; shl.b32 %w, %w, 2; mov.u32 %s, tile; add.u32 %s, %s, %w; ld.shared.u32 %v, [%s];
      st.global.u32 [%o], %v;"""
    assert copy(lines(body)).tolist() == [4 * (t ^ 32) for t in range(64)]
    with pytest.raises(Race):
        copy(lines(body).replace(f"cp.async.mbarrier.arrive{form}.shared::cta.b64 [bar]; {more}",
                                 "mbarrier.arrive.shared::cta.b64 _, [bar];"))  # fmt: skip


# bulk copies -------------------------------------------------------------------------------------------------------
BULK = """mov.u32 %s, tile; ld.param.u64 %m, [from]; ld.param.u64 %n, [to];
    @%one mbarrier.init.shared::cta.b64 [bar], 1;
    bar.sync 0;
    @%one mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 1024; // expect
    @%one cp.async.bulk.tensor.1d.shared::cta.global.mbarrier::complete_tx::bytes [%s], [%m, {0}], [bar];
    full: mbarrier.try_wait.parity.shared::cta.b64 %ok, [bar], 0; @!%ok bra full; // wait
    add.u32 %w, %s, %u; ld.shared.u32 %v, [%w]; add.u32 %v, %v, 1;
    bar.sync 0;
    st.shared.u32 [%w], %v;
    fence.proxy.async.shared::cta; // fence
    bar.sync 0; // barrier
    @%one cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%n, {0}], [%s];
    cp.async.bulk.commit_group; // commit
    cp.async.bulk.wait_group.read 0; // read
    bar.sync 0; // after
    st.shared.u32 [%w], %t; // overwrite"""


def bulk(body):
    """Numbers through shared memory, plus one for the first 64."""
    x, y = torch.arange(256, dtype=torch.int32), torch.zeros(256, dtype=torch.int32)
    maps = [torch.from_numpy(tensor.encode(each.data_ptr(), [256], [], [256], 2, 0)) for each in (x, y)]
    run(body, [x, y, *maps], parameters="from to")
    assert y.tolist() == (x + (torch.arange(256) < 64)).tolist()


def test_a_bulk_copy_both_ways():
    bulk(lines(BULK))
    bulk(lines(BULK, "overwrite"))


@pytest.mark.parametrize(
    ("missing", "error", "words"),
    [
        ("wait", LateData, "a wait for the copy's mbarrier missing"),
        ("fence", Race, r"fence\.proxy\.async missing"),
        ("barrier", Race, "no barrier"),
        ("commit", LateData, r"cp\.async\.bulk\.wait_group\.read missing"),
        ("read", LateData, r"cp\.async\.bulk\.wait_group\.read missing"),
        ("after", Race, "wave 0 has read"),
        ("expect", VirtualGpuError, "went round 100 times"),
    ],
)
def test_a_bulk_copy_and_what_it_needs(missing, error, words):
    with pytest.raises(error, match=words):
        bulk(lines(BULK, missing))


def test_the_fence_of_the_warp_that_issues_serves_all_that_it_knows():
    body = lines(BULK, "fence").replace("@%one cp.async.bulk.tensor.1d.global",
                                        "fence.proxy.async; @%one cp.async.bulk.tensor.1d.global")  # fmt: skip
    bulk(body)
    with pytest.raises(Race, match=r"fence\.proxy\.async missing"):
        bulk(body.replace("fence.proxy.async;", "fence.proxy.async.global;"))


def test_a_warp_ends_while_its_bulk_store_may_still_read():
    with pytest.raises(LateData, match="ends while its"):
        bulk(lines(lines(BULK, "overwrite"), "").replace("cp.async.bulk.wait_group.read 0;", ""))


# wgmma -------------------------------------------------------------------------------------------------------------
# A of 64 x 16 and B of 8 x 16 float16 zeros, not swizzled; two products of one shape and what comes behind
PRODUCT = """mov.u32 %v, 0; mov.u32 %w, 0; .reg .b64 %da, %db; .reg .b32 %d<4>, %a<4>; .reg .b32 %e<4>;
    st.shared.v4.b32 [%s], {%v, %v, %v, %v}; st.shared.v4.b32 [%s+2048], {%v, %v, %v, %v};
    fence.proxy.async; // proxy
    bar.sync 0; // barrier
    mov.u32 %s, tile; shr.u32 %v, %s, 4; cvt.u64.u32 %da, %v; add.u64 %db, %da, 128;
    or.b64 %da, %da, 34360262656; or.b64 %db, %db, 34360262656;
    mov.b32 %d0, 0; mov.b32 %d1, 0; mov.b32 %d2, 0; mov.b32 %d3, 0; setp.eq.u32 %p, 0, 0;
    mov.b32 %a0, 0; mov.b32 %a1, 0; mov.b32 %a2, 0; mov.b32 %a3, 0; mov.b32 %e0, 0; mov.b32 %e1, 0;
    wgmma.fence.sync.aligned; // fence
    wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%d0, %d1, %d2, %d3}, %da, %db, %p, 1, 1, 0, 0;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%d0, %d1, %d2, %d3}, {%a0, %a1, %a2, %a3}, %db, %p, 1, 1, 0;
    MIDDLE
    wgmma.commit_group.sync.aligned; // commit
    wgmma.wait_group.sync.aligned 0; // wait
    bar.sync 0;
    add.u32 %s, %s, %u; st.shared.u32 [%s], %t;
    st.global.u32 [%o], %d0;"""


def product(body, middle=""):
    out = torch.ones(128, dtype=torch.int32)
    run(body.replace("MIDDLE", middle), [torch.zeros(4), out], threads=128)
    assert out.tolist() == [0] * 128


def test_products_of_one_shape_need_no_fence_between_them():
    product(lines(PRODUCT))


@pytest.mark.parametrize(
    ("missing", "error", "words"),
    [
        ("proxy", Race, r"fence\.proxy\.async missing"),
        ("barrier", Race, "no barrier"),
        ("fence", LateData, r"no wgmma\.fence"),
        ("commit", LateData, r"wgmma\.wait_group missing|wgmma\.wait_group that"),
        ("wait", LateData, r"is a wgmma\.wait_group missing"),
    ],
)
def test_a_product_and_what_it_needs(missing, error, words):
    with pytest.raises(error, match=words):
        product(lines(PRODUCT, missing))


@pytest.mark.parametrize(
    ("middle", "words"),
    [
        ("mov.b32 %v, %d3;", r"reads %d3, which `wgmma\.mma_async.*has in flight"),
        ("mov.b32 %d1, 0;", "writes %d1"),
        ("mov.b32 %a2, 0;", "writes %a2"),
        ("mov.b32 %v, %a2;", ""),
        ("setp.ne.u32 %second, 0, 0; @%second mov.b32 %d1, 0;", ""),
        ("setp.eq.u32 %second, %t, 5; @%second mov.b32 %d1, 0;", "writes %d1"),
        ("wgmma.commit_group.sync.aligned; mov.b32 %a2, 0;", ""),
        ("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 1; mov.b32 %v, %d3;", "reads %d3"),
        ("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; mov.b32 %v, %d3;", ""),
    ],
)
def test_registers_in_flight(middle, words):
    with pytest.raises(LateData, match=words) if words else nullcontext():
        product(lines(PRODUCT), middle)


AGAIN = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%d0, %d1, %d2, %d3}, %da, %db, %p, 1, 1, 0, 0;"
FROM_REGISTERS = AGAIN.replace("%da, %db", "{%a0, %a1, %a2, %a3}, %db").replace("1, 0, 0", "1, 0")
WAITED = "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"


@pytest.mark.parametrize(
    ("middle", "right"),
    [
        (f"{WAITED} {AGAIN}", True),
        (f"{WAITED} mov.b32 %v, %d0; {AGAIN}", False),
        (f"{WAITED} mov.b32 %v, %d0; wgmma.fence.sync.aligned; {AGAIN}", True),
        (f"{WAITED} {FROM_REGISTERS}", True),
        (f"{WAITED} mov.b32 %a1, 0; {FROM_REGISTERS}", False),
        # LLVM sinks the conversion of a fragment below the fence, and ptxas puts it back
        (f"{WAITED} wgmma.fence.sync.aligned; mov.b32 %a1, 0; {FROM_REGISTERS}", True),
        (f"{WAITED} wgmma.fence.sync.aligned; {FROM_REGISTERS} {WAITED} mov.b32 %a1, 0; {FROM_REGISTERS}", False),
        (f"{WAITED} wgmma.fence.sync.aligned; mov.b32 %d1, 0; {FROM_REGISTERS}", False),
    ],
)
def test_a_fence_stands_between_another_access_of_a_register_and_a_product(middle, right):
    with nullcontext() if right else pytest.raises(LateData, match=r"with no wgmma\.fence between them"):
        product(lines(PRODUCT), middle)


def test_operands_in_shared_memory_are_read_until_the_group_is_waited_for():
    body = lines(PRODUCT, "wait").replace("st.shared.u32 [%s], %t;", "st.shared.u32 [%s], 1; " + WAITED)
    with pytest.raises((LateData, Race), match=r"wgmma\.wait_group"):
        product(body)


# tcgen05 -----------------------------------------------------------------------------------------------------------
TENSOR = """.reg .b32 %d0, %d1; .shared .align 4 .b32 cell; mov.u32 %w, cell;
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%w], 32; bar.warp.sync -1; ld.shared.u32 %v, [%w];
    tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
    tcgen05.st.sync.aligned.32x32b.x1.b32 [%v], {%t};
    tcgen05.wait::st.sync.aligned; // stored
    tcgen05.ld.sync.aligned.32x32b.x1.b32 {%d0}, [%v];
    tcgen05.wait::ld.sync.aligned; // loaded
    st.global.u32 [%o], %d0; tcgen05.dealloc.cta_group::1.sync.aligned.b32 %v, 32;"""


@pytest.mark.parametrize(
    ("missing", "words"),
    [("", ""), ("stored", r"is tcgen05\.wait::st missing"), ("loaded", r"tcgen05\.wait::ld missing")],
)
def test_tensor_memory_and_what_is_loaded_from_it(missing, words):
    out = torch.zeros(32, dtype=torch.int32)
    with pytest.raises(LateData, match=words) if words else nullcontext():
        run(lines(TENSOR, missing), [torch.zeros(4), out], threads=32, target="sm_100")
        assert out.tolist() == list(range(32))


PACK = ".reg .b64 %q; mov.b64 %q, {%d0, %t};"


@pytest.mark.parametrize(
    ("before", "behind", "right"),
    [
        (PACK, "mov.b64 {%d0, %d1}, %q;", True),  # LLVM lifts the packing above the wait
        ("", f"{PACK} mov.b64 {{%d0, %d1}}, %q;", True),
        (f"{PACK} mov.b64 {{%d0, %d1}}, %q; add.u32 %d0, %d0, 0;", "", False),
        ("add.u32 %d0, %d0, 0;", "", False),
    ],
)
def test_what_a_mov_packs_is_in_flight_as_what_it_packs(before, behind, right):
    body = lines(TENSOR).replace("tcgen05.wait::ld.sync.aligned;", f"{before} tcgen05.wait::ld.sync.aligned; {behind}")
    out = torch.zeros(32, dtype=torch.int32)
    with nullcontext() if right else pytest.raises(LateData, match=r"tcgen05\.wait::ld missing"):
        run(body, [torch.zeros(4), out], threads=32, target="sm_100")
    if right:
        assert torch.equal(out, torch.arange(32, dtype=torch.int32))


HALVES = """.reg .pred %own, %low; .shared .align 4 .b32 cell; mov.u32 %w, cell; setp.lt.u32 %own, %t, 32;
    setp.lt.u32 %low, %t, 128;
    @%own tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%w], 32; bar.sync 0; ld.shared.u32 %v, [%w];
    @!%low add.u32 %v, %v, LANES;
    @%own tcgen05.st.sync.aligned.16x32bx2.x1.b32 [%v], 1, {%t};
    @!%low tcgen05.st.sync.aligned.16x32bx2.x1.b32 [%v], 1, {%t};
    tcgen05.wait::st.sync.aligned; bar.sync 0;
    @%own tcgen05.dealloc.cta_group::1.sync.aligned.b32 %v, 32;"""


@pytest.mark.parametrize(("lanes", "right"), [(16 << 16, True), (0, False)])
def test_two_warps_share_a_quarter_of_tensor_memory_by_halves(lanes, right):
    body = HALVES.replace("LANES", str(lanes))
    with nullcontext() if right else pytest.raises(LateData, match=r"tcgen05\.wait::st, or a barrier behind it"):
        run(body, [torch.zeros(4), torch.zeros(160, dtype=torch.int32)], threads=160, target="sm_100")


# what Triton compiles ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100", "sm_120"])
@pytest.mark.parametrize("name", ["pipelined", "scaled", "tma", "special", "copy"])
@pytest.mark.drawn("all", 4)
def test_kernels_as_compiled_are_right(name, target):
    wide = target in ("sm_90", "sm_100")
    got, expected, _ = {
        "pipelined": lambda: async_kernels.matmul(target, sanitize=TOOLS),
        "scaled": lambda: async_kernels.matmul(target, async_kernels.scaled_pipelined_matmul, 2, sanitize=TOOLS),
        "tma": lambda: async_kernels.tma_product(target, sanitize=TOOLS, tile=(64, 64, 64), sizes=(128, 128, 256)),
        "special": lambda: async_kernels.tma_product(
            target, special=True, sanitize=TOOLS, tile=(128 if wide else 64, 64, 32), sizes=(256, 128, 128)
        ),
        "copy": lambda: async_kernels.copy(target, sanitize=TOOLS),
    }[name]()
    assert torch.allclose(got.float(), expected, rtol=1e-2, atol=0.1)


ORDERS = re.compile(r"(@\S+\s+)?(cp\.async\.(bulk\.)?(commit|wait)|wgmma\.(fence|commit|wait)|fence\.proxy)")


def _removals(launch, again):
    """What is said of each op that orders something, removed by itself: (op, error or "", why not needed or "")."""
    program = decode(launch.text, launch.target, None)
    for op in program.ops:
        if ORDERS.match(op.text):
            try:
                again(without(program, op))
            except VirtualGpuError as error:
                yield op, type(error).__name__, ""
            else:
                yield op, "", ptx_needed.unnecessary(program, op) or ""


@pytest.mark.parametrize(("target", "stages"), [("sm_80", 3), ("sm_90", 3), ("sm_90", 4), ("sm_80", 2)])
@pytest.mark.drawn("all", 1)
def test_each_commit_wait_and_fence_of_a_pipelined_product_is_needed_or_it_is_said_why_not(target, stages):
    a, b = torch.randn(128, 128).half(), torch.randn(128, 64).half()
    out = torch.empty(128, 64)
    with virtual_gpu(target, sanitize=TOOLS, step_limit=1000) as gpu:
        kept = []
        execute = gpu.execute
        gpu.execute = lambda program, *rest: kept.append(rest) or execute(program, *rest)
        async_kernels.pipelined_matmul[(1,)](a, b, out, 128, BM=128, BN=64, BK=32, num_stages=stages)
        found = list(_removals(gpu.last, lambda program: execute(program, *kept[0])))
    assert len(found) >= 6
    assert [op.text for op, error, why in found if not (error or why)] == []
    assert sum(bool(error) for _, error, _ in found) >= len(found) // 2


def test_arguments_why_an_op_is_not_needed():
    body = f"""{HEADER} .visible .entry k() {{ .reg .b32 %s, %v; .reg .b64 %x; .reg .pred %p;
      .shared .align 16 .b8 tile[64]; mov.u32 %s, tile;
      cp.async.bulk.commit_group; fence.proxy.async;
      cp.async.ca.shared.global [%s], [%x], 4; cp.async.commit_group; cp.async.wait_group 0; cp.async.wait_group 0;
      ld.shared.u32 %v, [%s]; cp.async.wait_all; ret; }}"""
    program = decode(body, "sm_90", "k")
    why = {i: ptx_needed.unnecessary(program, op) for i, op in enumerate(program.ops) if op.kind == "wait"}
    assert list(why.values()) == [
        ptx_needed.IDLE,
        ptx_needed.UNWRITTEN,
        None,
        ptx_needed.COVERED,
        ptx_needed.IDLE,
        ptx_needed.IDLE,
    ]
