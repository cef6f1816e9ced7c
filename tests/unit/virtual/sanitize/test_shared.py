"""racecheck and lockstep on small hand-written kernels of both vendors: each rule, with a fault and without."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from gpu_utils.errors import BarrierDeadlock, LateData, MissedBarrier, Race
from gpu_utils.kernelset import CASES, Run
from gpu_utils.virtual import MODELS, virtual_gpu
from gpu_utils.virtual.sanitize.barriers_apart import APART, apart
from gpu_utils.virtual.sanitize.barriers_apart import ONE_WAVE as ALONE
from gpu_utils.virtual.sanitize.barriers_needed import NOTHING_SHARED, ONE_WAVE, unnecessary
from gpu_utils.virtual.sanitize.footprint import Footprint, Spans

from .test_amd_waits import LDS, TEXT

PTX = """.version 8.0
.target {target}
.address_size 64
.visible .entry k(.param .u64 p) {{
  .reg .b32 %t, %a, %b, %v, %w, %x, %n; .reg .b64 %g, %o; .reg .b16 %h; .reg .pred %p, %q;
  .shared .align 16 .b8 s[4096];
  mov.u32 %t, %tid.x; ld.param.u64 %g, [p]; cvta.to.global.u64 %g, %g; mad.wide.u32 %o, %t, 4, %g;
  setp.lt.u32 %p, %t, 32; setp.eq.u32 %q, %t, 0;
  mov.u32 %x, s; shl.b32 %a, %t, 2; add.u32 %a, %a, %x; xor.b32 %b, %t, 32; shl.b32 %b, %b, 2; add.u32 %b, %b, %x;
  xor.b32 %n, %t, 1; shl.b32 %n, %n, 2; add.u32 %n, %n, %x;
  {lines}
  ret; }}"""


def ptx(lines, sanitize="racecheck", threads=64, blocks=1, target="sm_80"):
    """Run lines of two warps: %a is the address of a thread's own word, %b that of its twin in the other warp."""
    out = torch.zeros(64 * blocks, dtype=torch.int32)
    with virtual_gpu(target, sanitize=sanitize) as gpu:
        gpu.load(PTX.format(target=target, lines=lines)).launch("k", blocks, threads, [out])
    return out


def amd(target, *lines, sanitize="racecheck"):
    """Run lines of two waves: v0 is the offset of a lane's own word, v1 that of its twin in the other wave."""
    waves = 64 if target.startswith("gfx9") else 32
    begin = (f"v_xor_b32 v1, {waves}, v0", "v_lshlrev_b32 v0, 2, v0", "v_lshlrev_b32 v1, 2, v1")
    text = TEXT.format(target=target, lines="\n  ".join((*begin, *lines)))
    with virtual_gpu(target, sanitize=sanitize) as gpu:
        gpu.load(text).launch("k", 1, 2 * waves, [torch.zeros(256)])


READ = "ld.shared.u32 %v, [%b]; st.global.u32 [%o], %v;"
# (what it is, lines, in words what both do: None where nothing is wrong)
CASES_OF_TWO_WARPS = [
    ("read after write", f"st.shared.u32 [%a], %t; {READ}", "reads.*has written"),
    ("a barrier between", f"st.shared.u32 [%a], %t; bar.sync 0; {READ}", None),
    ("a barrier of both, named", f"st.shared.u32 [%a], %t; bar.sync 3, 64; {READ}", None),
    ("write after read", "st.shared.u32 [%a], %t; bar.sync 0; ld.shared.u32 %v, [%b]; st.shared.u32 [%a], %v;",
     "writes.*has read"),
    ("write after read and barrier",
     "st.shared.u32 [%a], %t; bar.sync 0; ld.shared.u32 %v, [%b]; bar.sync 0; st.shared.u32 [%a], %v;", None),
    ("write after write", "st.shared.u32 [%a], %t; st.shared.u32 [%b], %t;", "writes.*has written"),
    ("one store, two values", "st.shared.u32 [s], %t;", "writes.*has written"),
    ("one store, one value", "mov.u32 %v, 7; st.shared.u32 [s], %v;", None),
    ("the value that is there", "mov.u32 %v, 7; st.shared.u32 [s], %v; bar.sync 0; st.shared.u32 [s], %v;", None),
    ("each reads what both wrote alike", "mov.u32 %v, 7; st.shared.u32 [s], %v; ld.shared.u32 %w, [s];", None),
    ("atomics among each other", "mov.u32 %v, 0; @%q st.shared.u32 [s], %v; bar.sync 0;"
     "atom.shared.add.u32 %w, [s], %t; atom.shared.add.u32 %w, [s], %t;", None),
    ("an atomic and a read", "mov.u32 %v, 0; @%q st.shared.u32 [s], %v; bar.sync 0; atom.shared.add.u32 %w, [s], %t;"
     "ld.shared.u32 %w, [s];", "reads.*has updated"),
    ("bytes side by side",
     "cvt.u16.u32 %h, %t; add.u32 %a, %x, %t; st.shared.u8 [%a], %h; ld.shared.u8 %h, [%a];", None),
    ("a byte of a word", f"cvt.u16.u32 %h, %t; st.shared.u32 [%a], %t; bar.sync 0; st.shared.u8 [%b+1], %h; {READ}"
     "ld.shared.u32 %v, [%a];", "reads.*has written"),
    ("wide and across", "st.shared.u32 [%a], %t; bar.sync 0; and.b32 %a, %a, -16; ld.shared.v4.u32 {%v,%w,%v,%w}, [%a];"
     "@%p st.shared.u32 [s+128], %t;", "writes.*has read"),
    ("own words again", "st.shared.u32 [%a], %t; ld.shared.u32 %v, [%a]; st.shared.u32 [%a], %v;", None),
    ("a barrier of one warp orders nothing",
     f"st.shared.u32 [%a], %t; @%p bar.sync 1, 32; {READ}", "reads.*has written"),
]  # fmt: skip


@pytest.mark.parametrize("blocks", [1, 3])
@pytest.mark.parametrize(("lines", "found"), [case[1:] for case in CASES_OF_TWO_WARPS],
                         ids=[case[0] for case in CASES_OF_TWO_WARPS])  # fmt: skip
def test_two_warps(lines, found, blocks):
    if found is None:
        ptx(lines, blocks=blocks)
    else:
        with pytest.raises(Race, match=found) as error:
            ptx(lines, blocks=blocks)
        report = error.value.report
        assert (report.tool, report.missing) == ("racecheck", "a barrier (__syncthreads())")
        assert report.second.text in str(error.value)
        assert report.first.where != report.second.where


WRITES, READS = "setp.ge.u32 %p, %t, 32; @%p bra READ; st.shared.u32 [%a], %t;", f"bra END; READ: {{}} {READ} END:"


@pytest.mark.parametrize(("arrive", "wait", "found"), [
    ("bar.arrive 1, 64;", "bar.sync 1, 64;", False), ("barrier.cta.arrive 1, 64;", "barrier.cta.sync 1, 64;", False),
    ("bar.arrive 1, 64; st.shared.u32 [%a], %x;", "bar.sync 1, 64;", True),
    ("bar.arrive 1, 64;", "bar.sync 2, 32;", True),
    ("barrier.cluster.arrive.aligned;", "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;", False),
    ("barrier.cluster.arrive.relaxed.aligned;", "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;", True),
])  # fmt: skip
def test_who_arrives_publishes_what_it_did_before_and_goes_on(arrive, wait, found):
    lines = WRITES + arrive + READS.format(wait)
    if found:
        with pytest.raises(Race, match="reads"):
            ptx(lines, target="sm_90")
    else:
        assert ptx(lines, target="sm_90")[32:].tolist() == list(range(32))


def test_who_waits_for_arrivals_that_never_come_is_reported():
    with pytest.raises(BarrierDeadlock, match="barrier 1"):
        ptx(WRITES + READS.format("bar.sync 1, 64;"))


@pytest.mark.parametrize(("form", "expected"), [
    ("bar.red.popc.u32 %v, 0, %p;", 3 * 33), ("barrier.cta.red.or.pred %q, 0, !%p; selp.u32 %v, 1, 0, %q;", 3),
    ("bar.red.and.pred %q, 0, 64, %p; selp.u32 %v, 1, 0, %q;", 0),
])  # fmt: skip
def test_a_barrier_that_reduces_gives_every_thread_of_the_block_the_same(form, expected):
    lines = f"setp.lt.u32 %p, %t, 33; mov.u32 %w, 0; {3 * (form + 'add.u32 %w, %w, %v;')} st.global.u32 [%o], %w;"
    assert set(ptx(lines, blocks=1).tolist()) == {expected}


@pytest.mark.parametrize(("wait", "barrier", "error", "missing"), [
    ("cp.async.wait_group 0;", "bar.sync 0;", None, ""),
    ("", "bar.sync 0;", Race, "cp.async.wait_group before the barrier"),
    ("cp.async.wait_group 0;", "", Race, "a barrier (__syncthreads())"),
    ("cp.async.wait_group 1;", "bar.sync 0;", Race, "cp.async.wait_group before the barrier"),
])  # fmt: skip
def test_copies_in_flight_are_published_by_wait_and_barrier(wait, barrier, error, missing):
    lines = f"cp.async.ca.shared.global [%a], [%o], 4; cp.async.commit_group; {wait} {barrier} {READ}"
    if error is None:
        ptx(lines)
        return
    with pytest.raises(error) as found:
        ptx(lines)
    assert found.value.report.missing == missing


def test_a_warp_that_reads_its_own_copy_before_the_wait_comes_too_early():
    lines = "cp.async.ca.shared.global [%a], [%o], 4; cp.async.commit_group; {} ld.shared.u32 %v, [%a];"
    ptx(lines.format("cp.async.wait_all;"))
    with pytest.raises(LateData, match=r"is cp.async.wait_group missing") as found:
        ptx(lines.format(""), threads=32)
    assert found.value.report.tool == "waitcheck"


@pytest.mark.parametrize(("lines", "found"), [
    ("st.shared.u32 [%a], %t; ld.shared.u32 %v, [%n];", "__syncwarp"),
    ("st.shared.u32 [%a], %t; bar.warp.sync -1; ld.shared.u32 %v, [%n];", None),
    ("st.shared.u32 [%a], %t; shfl.sync.bfly.b32 %w, %t, 1, 31, -1; ld.shared.u32 %v, [%n];", None),
    ("st.shared.u32 [%a], %t; bar.sync 0; ld.shared.u32 %v, [%n];", None),
    ("st.shared.u32 [%a], %t; bar.sync 0; ld.shared.u32 %v, [%n]; st.shared.u32 [%a], %x;", "has read"),
    ("st.shared.u32 [%a], %t; bar.sync 0; ld.shared.u32 %v, [%n]; bar.warp.sync -1; st.shared.u32 [%a], %x;", None),
    ("st.shared.u32 [%a], %t; bar.sync 0; ld.shared.u32 %v, [%n]; st.shared.u32 [%a], %t;", None),
    ("st.shared.u32 [%a], %t; st.shared.u32 [%n], %t;", "has written"),
])  # fmt: skip
def test_lanes_of_a_warp_need_something_between_them(lines, found):
    ptx(lines)
    if found is None:
        ptx(lines, "lockstep")
    else:
        with pytest.raises(Race, match=found) as error:
            ptx(lines, "lockstep")
        assert error.value.report.tool == "lockstep"


BARRIER = {
    "gfx942": ("s_barrier",),
    "gfx1100": ("s_barrier",),
    "gfx1201": ("s_barrier_signal -1", "s_barrier_wait -1"),
}
NAMES = {"gfx942": ("ds_write_b32", "ds_read_b32")}
EVERY = pytest.mark.parametrize("target", list(BARRIER))


@EVERY
def test_two_waves_need_the_wait_and_the_barrier(target):
    write, read = NAMES.get(target, ("ds_store_b32", "ds_load_b32"))
    stores, loads = f"{write} v0, v0", f"{read} v2, v1"
    amd(target, stores, LDS[target], *BARRIER[target], loads)
    amd(target, stores, f"{read} v2, v0", f"{write} v0, v1")  # a wave's own words: its accesses keep their order
    with pytest.raises(
        Race, match=r"reads offset \d+ of shared memory \(LDS\), which wave \d has written, and no barr"
    ):
        amd(target, stores, LDS[target], loads)
    with pytest.raises(Race, match="a barrier stands between") as found:
        amd(target, stores, *BARRIER[target], loads)
    assert found.value.report.missing == f"{LDS[target]} before the barrier"


@EVERY
def test_lockstep_on_amd_says_what_is_true(target):
    write, read = NAMES.get(target, ("ds_store_b32", "ds_load_b32"))
    lines = ("v_xor_b32 v3, 4, v0", f"{write} v0, v0", f"{read} v2, v3")
    amd(target, *lines)
    with pytest.raises(Race, match="this machine code is right"):
        amd(target, *lines, sanitize="lockstep")


def test_what_is_stored_between_signal_and_wait_is_not_published():
    signal, wait = BARRIER["gfx1201"]
    amd("gfx1201", "ds_store_b32 v0, v0", "s_wait_dscnt 0x0", signal, "v_mov_b32 v3, 1", wait, "ds_load_b32 v2, v1")
    with pytest.raises(Race, match="no barrier"):
        amd("gfx1201", signal, "ds_store_b32 v0, v0", "s_wait_dscnt 0x0", wait, "ds_load_b32 v2, v1")
    with pytest.raises(BarrierDeadlock, match="never signal"):
        amd("gfx1201", "ds_store_b32 v0, v0", "s_wait_dscnt 0x0", wait, "ds_load_b32 v2, v1")
    with pytest.raises(Race, match="no barrier"):
        amd("gfx1201", "ds_store_b32 v0, v0", "s_wait_dscnt 0x0", signal, "ds_load_b32 v2, v1", wait)


def test_watch_shared_is_racecheck_and_finds_threads_that_miss_a_barrier():
    with virtual_gpu("sm_80") as gpu:
        part, missed = (
            gpu.load(PTX.format(target="sm_80", lines=f"@%p bar.sync {which};")) for which in ("1, 32", "0")
        )
        with gpu.watch_shared(all_meet=True):
            part.launch("k", 1, 64, [torch.zeros(64)])
        with gpu.watch_shared():
            missed.launch("k", 1, 64, [torch.zeros(64)])
        with gpu.watch_shared(all_meet=True), pytest.raises(MissedBarrier, match=r"fewer barriers \(0\)"):
            missed.launch("k", 1, 64, [torch.zeros(64)])
        racing = gpu.load(PTX.format(target="sm_80", lines="st.shared.u32 [%a], %t; ld.shared.u32 %v, [%n];"))
        racing.launch("k", 1, 64, [torch.zeros(64)])
        with gpu.watch_shared(), pytest.raises(Race, match="__syncwarp"):
            racing.launch("k", 1, 64, [torch.zeros(64)])
        assert not gpu.sanitize


@pytest.mark.parametrize(("lines", "threads", "why"), [
    ("st.shared.u32 [%a], %t; bar.sync 0; ld.shared.u32 %v, [%b];", 64, None),
    ("st.shared.u32 [%a], %t; bar.sync 0; ld.shared.u32 %v, [%a];", 64, NOTHING_SHARED),
    ("mov.u32 %v, 7; st.shared.u32 [s], %v; bar.sync 0; ld.shared.u32 %v, [s];", 64, NOTHING_SHARED),
    ("st.shared.u32 [%a], %t; bar.sync 0; ld.shared.u32 %v, [%a];", 32, ONE_WAVE),
])  # fmt: skip
def test_a_barrier_is_needed_when_it_parts_two_waves(lines, threads, why):
    values = [("p", "*i32", torch.zeros(64, dtype=torch.int32))]
    with virtual_gpu("sm_80") as gpu:
        launch = gpu.launch(PTX.format(target="sm_80", lines=lines), "k", (1,), (threads,), values)
        barrier = next(op for op in launch.program.ops if op.ends == "barrier")
        run = lambda program: gpu.execute(program, (1,), (threads,), values)  # noqa: E731
        assert unnecessary(launch.program, threads, [barrier], run) == why


def test_of_two_barriers_each_may_be_too_much_and_one_needed():
    """A word is written; behind two barriers another wave reads it."""
    text = PTX.format(target="sm_80", lines=f"st.shared.u32 [%a], %t; bar.sync 0; bar.sync 0; {READ}")
    values = [("p", "*i32", torch.zeros(64, dtype=torch.int32))]
    with virtual_gpu("sm_80") as gpu:
        launch = gpu.launch(text, "k", (1,), (64,), values)
        first, second = (op for op in launch.program.ops if op.ends == "barrier")
        run = lambda program: gpu.execute(program, (1,), (64,), values)  # noqa: E731
        assert unnecessary(launch.program, 64, [first], run) == unnecessary(launch.program, 64, [second], run)
        assert unnecessary(launch.program, 64, [first], run) == NOTHING_SHARED
        assert unnecessary(launch.program, 64, [first, second], run) is None


WAYS = """@%p bra ONE;
  st.shared.u32 [%a], %t; bar.sync 0; bra BOTH;
ONE: bar.sync 0;
BOTH: bar.sync 0; @!%p ld.shared.u32 %v, [%a];"""


def test_waves_that_come_to_barriers_in_several_places_get_no_argument():
    values = [("p", "*i32", torch.zeros(64, dtype=torch.int32))]
    with virtual_gpu("sm_80") as gpu:
        launch = gpu.launch(PTX.format(target="sm_80", lines=WAYS), "k", (1,), (64,), values)
        barrier = next(op for op in launch.program.ops if op.ends == "barrier")
        run = lambda program: gpu.execute(program, (1,), (64,), values)  # noqa: E731
        assert unnecessary(launch.program, 64, [barrier], run) is None


FIRST, LAST = "setp.eq.u32 %p, %t, 0;", "setp.eq.u32 %q, %t, 32;"


@pytest.mark.parametrize(("lines", "why"), [
    ("st.shared.u32 [%a], %t; bar.sync 0; st.global.u32 [%o], %t;", APART),
    (f"{FIRST} @%p st.shared.u32 [s], %t; bar.sync 0; @%p ld.shared.u32 %v, [s];", ALONE),
    (f"{FIRST} {LAST} @%p st.shared.u32 [s], %t; bar.sync 0; @%q ld.shared.u32 %v, [s];", None),
    (f"{FIRST} @%p st.shared.u32 [s], %t; bar.sync 0; @!%p ld.shared.u32 %v, [s];", None),
    ("st.shared.u32 [%a], %t; bar.sync 0; ld.shared.u32 %v, [%a];", None),
    (f"{FIRST} @%p mbarrier.init.shared.b64 [s], 1; bar.sync 0; @%p mbarrier.inval.shared.b64 [s];", ALONE),
])  # fmt: skip
def test_a_barrier_stands_between_what_has_no_memory_in_common_or_is_done_by_one_wave(lines, why):
    values = [("p", "*i32", torch.zeros(64, dtype=torch.int32))]
    with virtual_gpu("sm_80") as gpu:
        launch = gpu.launch(PTX.format(target="sm_80", lines=lines), "k", (1,), (64,), values)
        barrier = next(op for op in launch.program.ops if op.ends == "barrier")
        assert apart(launch.program, barrier, lambda program: gpu.execute(program, (1,), (64,), values)) == why


SIZES = [(size, grain) for size in (2, 4, 8, 12, 16) for grain in (1, 2, 4) if size >= grain]


@pytest.mark.parametrize(("size", "grain"), SIZES)
def test_a_footprint_reads_what_it_wrote(size, grain):
    rng = np.random.default_rng(size * grain)
    flat = np.sort(rng.permutation(256)[:21]) * size
    foot = Footprint(np.arange(21) % 3, np.zeros(21, np.int64), flat, size, grain, 3)
    shadow, marks = np.zeros(4096, np.int32), np.arange(1, 22, dtype=np.int32)
    foot.scatter(shadow, marks)
    expected = np.zeros(4096, np.int32)
    for place, mark in zip(flat, marks, strict=True):
        expected[place // grain : (place + size) // grain] = mark
    assert (shadow == expected).all()
    assert (foot.gather(shadow) == marks[:, None]).all()


def test_spans_join_and_never_lose_a_byte():
    spans = Spans()
    for low in range(0, 400, 8):
        spans.add(low, low + 4)
    assert len(spans.spans) <= Spans.MOST + 1
    assert all(spans.meets(low, low + 4) for low in range(0, 400, 8))
    assert not spans.meets(400, 500)


@triton.jit
def divided_kernel(x, w, y, out, P: tl.constexpr, R: tl.constexpr, D: tl.constexpr):
    p, r, c = tl.arange(0, P), tl.arange(0, R), tl.arange(0, D)
    at = p[:, None] * R + r[None]
    total = tl.sum(tl.load(x + at) * tl.load(w + at), 0)
    place = r[:, None] * D + c[None]
    tl.store(out + place, tl.load(y + place) / total[:, None])


@pytest.mark.parametrize("target", MODELS)
def test_copies_of_an_element_may_differ_by_a_rounding(target):
    """The first product of the sum is fused, so each lane rounds another term; the waves store the sum together."""
    generator = torch.Generator().manual_seed(0)
    x, w, y = (torch.rand(*shape, generator=generator) + 0.5 for shape in ((4, 8), (4, 8), (8, 32)))
    out = torch.empty(8, 32)
    with virtual_gpu(target, sanitize=True) as gpu:
        divided_kernel[(1,)](x, w, y, out, P=4, R=8, D=32)
    torch.testing.assert_close(out, y / (x * w).sum(0)[:, None])
    assert any(op.kind == "shared" for op in gpu.launches[-1].program.ops)


DRAWN = [pytest.param(case, target, id=f"{case.name}-{target}") for case in CASES.values() for target in case.targets]


@pytest.mark.drawn("all", 8)
@pytest.mark.parametrize(("case", "target"), DRAWN)
def test_the_kernel_set_runs_without_a_report(case, target):
    with virtual_gpu(target, sanitize="racecheck"):
        case.body(Run(target))
