"""What limits a kernel: each verdict on each vendor's figures, what is not sure, what is missing and its command."""

from __future__ import annotations

import pytest

from gpu_utils.errors import UnknownName
from gpu_utils.profiling.columns import NCU, ROCPROF
from gpu_utils.profiling.limits import limits
from gpu_utils.profiling.modelled import Modelled
from gpu_utils.profiling.needs import ADVICE, NEEDS, THRESHOLDS, command
from gpu_utils.profiling.profile import Device, Event, Profile
from tests.unit.profiling.sample import DEVICES, training


def profile(vendor="nvidia", *, ns=100_000, calls=1, device=None, name="k", **figures):
    """Some launches of one kernel with these figures."""
    rows = []
    for call in range(calls):
        event = Event("kernel", name, call * ns, (call + 1) * ns, "stream 7", "0")
        for figure, value in figures.items():
            event.note(figure, value, f"counter {figure}")
        rows.append(event)
    return Profile(rows, devices={"0": device or DEVICES[vendor]} if vendor else {})


def judged(vendor="nvidia", **figures):
    (one,) = limits(profile(vendor, **figures)).kernels
    return one


def kinds(one):
    return {finding.kind: finding for finding in one.findings}


@pytest.mark.parametrize(("vendor", "peak"), [("nvidia", 2.039e12), ("amd", 5.3e12)])
def test_a_kernel_near_the_bandwidth_is_memory_bound(vendor, peak):
    one = judged(vendor, memory_bytes=int(peak * 100e-6 * 0.8), fp32_flop=1000, matrix_instructions=0)
    assert (one.limit, round(one.memory)) == ("memory", 80)
    (finding,) = [each for each in one.findings if each.kind == "memory"]
    assert "80 %" in finding.sentence
    assert finding.evidence[0].source.startswith("counter memory_bytes and end - start; peak ")
    assert finding.advice == ADVICE["memory"]


@pytest.mark.parametrize(("vendor", "peak"), [("nvidia", 19.5e12), ("amd", 163.4e12)])
def test_a_kernel_near_the_peak_of_arithmetic_is_compute_bound(vendor, peak):
    one = judged(vendor, memory_bytes=1000, fp32_flop=int(peak * 100e-6 * 0.7))
    assert (one.limit, round(one.compute)) == ("compute", 70)
    assert one.points["fp32"].intensity == pytest.approx(peak * 100e-6 * 0.7 / 1000)


def test_matrix_work_is_held_to_the_peak_of_the_matrix_units():
    one = judged("nvidia", memory_bytes=1000, fp32_flop=0, matrix_flop=int(312e12 * 100e-6 * 0.65))
    assert (one.limit, round(one.compute)) == ("compute", 65)


def test_what_the_tool_says_of_its_peaks_comes_first():
    one = judged("nvidia", memory_bytes=10**12, memory_busy=72.0, compute_busy=35.0)
    assert (one.limit, one.memory, one.compute) == ("memory", 72.0, 35.0)


def test_a_kernel_far_from_both_peaks_waits():
    one = judged("nvidia", memory_busy=12.0, compute_busy=20.0)
    assert (one.limit, one.verdict, one.headline) == ("latency", "latency", "Limited by latency")
    assert "20 % at most" in kinds(one)["latency"].sentence


@pytest.mark.parametrize(("vendor", "named"), [("nvidia", "sm__throughput"), ("amd", "no counter of AMD says it")])
def test_without_the_busiest_unit_waiting_is_not_sure(vendor, named):
    one = judged(vendor, memory_bytes=1000, fp32_flop=1000)
    assert (one.limit, one.verdict, one.headline) == ("latency", "latency?", "Perhaps limited by latency")
    assert "it waits, or another unit is near its peak" in kinds(one)["latency"].sentence
    assert any(named in each.command for each in one.missing if each.question == NEEDS["busiest"].question)


@pytest.mark.parametrize(
    ("figures", "verdict"),
    [
        ({"load_requests": 100, "load_sectors": 3200}, "uncoalesced, latency?"),
        ({"conflict_passes": 60, "shared_passes": 100}, "bank conflicts, latency?"),
        ({"scratch_bytes": 64}, "spills, latency?"),
        ({"occupancy_limit": 12.0}, "occupancy?, latency?"),
        ({"load_requests": 100, "load_sectors": 700}, "latency?"),  # a hint explains nothing
        ({"load_requests": 100, "load_sectors": 3200, "compute_busy": 9.0}, "uncoalesced, latency"),
        ({"load_requests": 100, "load_sectors": 1500, "compute_busy": 9.0}, "latency, uncoalesced?"),
    ],
)
def test_what_explains_the_waiting_comes_before_it(figures, verdict):
    one = judged("nvidia", memory_bytes=1000, fp32_flop=1000, **figures)
    assert one.verdict == verdict
    assert (one.headline == "Neither memory nor arithmetic is near its peak") == (not verdict.startswith("latency"))


def test_matrix_work_that_was_not_counted_is_said():
    assert "not counted" in kinds(judged("nvidia", memory_bytes=1000, fp32_flop=1000))["latency"].sentence
    one = judged("nvidia", memory_bytes=1000, fp32_flop=1000, matrix_instructions=0)
    assert "not counted" not in kinds(one)["latency"].sentence


def test_half_of_the_figures_is_no_verdict():
    one = judged("nvidia", memory_busy=20.0)
    assert one.limit == "cannot be told"
    assert NEEDS["compute"].question in [each.question for each in one.missing]
    assert judged("nvidia", memory_busy=80.0).limit == "memory"  # what is near one peak needs no other figure


@pytest.mark.parametrize(
    ("vendor", "figures", "sure"),
    [
        ("nvidia", {"load_requests": 100, "load_sectors": 400}, None),
        ("nvidia", {"load_requests": 100, "load_sectors": 1600}, False),  # 16 bytes a lane in a row
        ("nvidia", {"load_requests": 100, "load_sectors": 3200}, True),
        ("nvidia", {"load_requests": 9, "load_sectors": 36, "store_requests": 9, "store_sectors": 288}, True),
        ("nvidia", {"sectors_per_load": 4.0}, None),
        ("nvidia", {"sectors_per_load": 31.5}, True),
        ("nvidia", {"load_requests": 0, "load_sectors": 0}, None),
        ("amd", {"load_instructions": 50, "store_instructions": 50, "cache_lines": 200}, None),
        ("amd", {"load_instructions": 50, "store_instructions": 50, "cache_lines": 800}, False),
        ("amd", {"load_instructions": 50, "store_instructions": 50, "cache_lines": 6400}, True),
        ("amd", {"load_instructions": 0, "store_instructions": 0, "cache_lines": 0}, None),
    ],
)
def test_scattered_loads_by_the_ideal_of_each_vendor(vendor, figures, sure):
    finding = kinds(judged(vendor, **figures)).get("uncoalesced")
    assert (None if finding is None else finding.sure) == sure
    if finding:
        assert len(finding.evidence) == 2
        assert " on average" in finding.sentence


def test_short_rows_of_a_tile_are_a_hint_and_no_verdict_beside_anything_surer():
    tiles = {"load_instructions": 100, "store_instructions": 0, "cache_lines": 400}
    alone, beside = judged("amd", **tiles), judged("amd", **tiles, occupancy_limit=6.0)
    assert kinds(alone)["uncoalesced"].faint
    assert "or short rows of a tile" in kinds(alone)["uncoalesced"].sentence
    assert (alone.verdict, beside.verdict) == ("uncoalesced?", "occupancy?")
    assert not kinds(judged("amd", **{**tiles, "cache_lines": 500}))["uncoalesced"].faint


def test_an_older_card_with_lines_of_64_bytes_has_another_ideal():
    figures = {"load_instructions": 100, "store_instructions": 0, "cache_lines": 400}
    older = Device("AMD Instinct MI210", "amd", "gfx90a", 104, 64)
    (one,) = limits(profile("amd", device=older, **figures)).kernels
    assert "uncoalesced" not in kinds(one)
    assert "uncoalesced" in kinds(judged("amd", **figures))


@pytest.mark.parametrize(
    ("vendor", "bad", "every", "unit"),
    [("nvidia", "conflict_passes", "shared_passes", "passes"), ("amd", "conflict_cycles", "shared_cycles", "cycles")],
)
def test_bank_conflicts_are_a_share_on_both_vendors(vendor, bad, every, unit):
    finding = kinds(judged(vendor, **{bad: 50, every: 100}))["bank_conflicts"]
    assert finding.sentence == f"bank conflicts are 50 % of the {unit} of its shared memory"
    assert "bank_conflicts" not in kinds(judged(vendor, **{bad: 10, every: 100}))
    assert "bank_conflicts" not in kinds(judged(vendor, **{bad: 0, every: 0}))


def test_a_kernel_without_shared_memory_needs_no_counter_of_its_conflicts():
    asked = [each.question for each in judged("amd", shared_instructions=0).missing]
    assert NEEDS["bank_conflicts"].question not in asked
    assert NEEDS["bank_conflicts"].question in [each.question for each in judged("amd").missing]


def test_what_is_sure_comes_first():
    one = judged("amd", load_instructions=100, cache_lines=400, scratch_bytes=64)
    assert [(each.kind, each.sure) for each in one.findings] == [("spills", True), ("uncoalesced", False)]
    assert one.verdict == "spills"


def test_spills_are_told_and_their_absence_is_no_finding():
    assert "400 bytes of scratch" in kinds(judged("amd", scratch_bytes=400))["spills"].sentence
    assert "400 bytes of local memory" in kinds(judged("nvidia", scratch_bytes=400))["spills"].sentence
    assert "spills" not in kinds(judged("amd", scratch_bytes=0))


def test_low_occupancy_names_its_limiter_and_what_lifts_it():
    figures = {"registers": 200, "shared_bytes": 0, "block": (256, 1, 1), "memory_busy": 5.0, "compute_busy": 5.0}
    finding = kinds(judged("nvidia", **figures))["occupancy"]
    assert finding.sure
    assert "limited by registers" in finding.sentence
    assert "at most 168 registers a lane" in finding.advice or "registers a lane" in finding.advice


def test_low_occupancy_is_no_finding_where_a_peak_is_near():
    figures = {"registers": 200, "shared_bytes": 0, "block": (256, 1, 1), "memory_busy": 85.0, "compute_busy": 5.0}
    assert "occupancy" not in kinds(judged("nvidia", **figures))
    assert not kinds(judged("nvidia", registers=200, block=(256, 1, 1)))["occupancy"].sure


def test_launches_of_several_shapes_are_judged_by_the_one_with_the_least_room():
    found = profile("nvidia", calls=2, memory_busy=5.0, compute_busy=5.0, block=(256, 1, 1), shared_bytes=0)
    for event, registers, fits in zip(found.events, (200, 32), (12.5, 100.0), strict=True):
        event.note("registers", registers, "trace")
        event.note("occupancy_limit", fits, "= registers")
    (one,) = limits(found).kernels
    assert "only 12 % of the wave slots can be filled in some launches, 100 % in others, limited by registers" in (
        kinds(one)["occupancy"].sentence
    )


def test_sizes_of_two_launches_make_no_third():  # which no GPU could hold
    found = profile("nvidia", calls=2, memory_busy=5.0, compute_busy=5.0)
    for event, registers, block in zip(found.events, (128, 32), (256, 1024), strict=True):
        event.note("registers", registers, "trace")
        event.note("block", (block, 1, 1), "trace")
    assert "only 25 % of the wave slots" in kinds(limits(found).kernels[0])["occupancy"].sentence


def test_registers_and_accumulators_share_a_file():
    figures = {"block": (256, 1, 1), "registers": 128, "memory_busy": 1.0, "vector_busy": 1.0}
    assert "occupancy" not in kinds(judged("amd", **figures))
    assert "occupancy" in kinds(judged("amd", **figures, accumulators=128))


def test_waves_that_would_fit_but_are_not_there():
    one = judged("nvidia", occupancy=20.0, occupancy_limit=100.0, memory_busy=5.0, compute_busy=5.0)
    assert kinds(one)["uneven"].sentence == "20 % of the wave slots are filled, although 100 % could be"


def test_a_grid_smaller_than_the_gpu():
    one = judged("nvidia", grid=(8, 4, 1), memory_busy=5.0, compute_busy=5.0)
    assert "32 blocks for 108 SMs" in kinds(one)["small_grid"].sentence
    assert "CUs" in kinds(judged("amd", grid=(8, 4, 1)))["small_grid"].sentence
    assert "small_grid" not in kinds(judged("nvidia", grid=(108, 1, 1)))


def test_lanes_that_are_off():
    assert "50 % of the lanes" in kinds(judged("nvidia", lanes_on=50.0))["lanes_off"].sentence
    assert "lanes_off" not in kinds(judged("nvidia", lanes_on=99.0))


def test_a_launch_bound_program_and_its_kernels():
    host = Modelled("nvidia")
    for _ in range(20):
        host.launch("tiny", 2000)
    found = limits(host.profile(device=DEVICES["nvidia"]))
    assert [one.kind for one in found.general] == ["launch_bound"]
    assert "launch_bound" in kinds(found.kernels[0])


@pytest.mark.parametrize("vendor", ["nvidia", "amd"])
def test_waits_and_slow_hosts_are_told_of_the_whole_gpu(vendor):
    waiting, loading = Modelled(vendor), Modelled(vendor)
    for _ in range(5):
        waiting.launch("step", 60_000)
        waiting.item()
        loading.launch("step", 60_000)
        loading.work(300_000, "next batch")
    assert [one.kind for one in limits(waiting.profile()).general] == ["sync"]
    assert [one.kind for one in limits(loading.profile()).general] == ["slow_host"]


def test_figures_of_some_launches_stand_for_all_but_time_does_not():
    found = profile("nvidia", calls=4)
    found.events[0].note("memory_bytes", int(2.039e12 * 100e-6 * 0.9), "ncu: dram__bytes.sum")
    found.events[0].note("compute_busy", 10.0, "ncu")
    (one,) = limits(found).kernels
    assert (one.calls, one.ns, round(one.memory)) == (4, 400_000, 90)


def test_rows_of_counters_alone_do_not_count_twice():
    counted = Event("kernel", "k", device="0")
    counted.note("duration", 50_000, "ncu")
    counted.note("memory_busy", 90.0, "ncu")
    found = profile("nvidia", calls=2)
    found.events.append(counted)
    (one,) = limits(found).kernels
    assert (one.calls, one.ns, one.limit) == (2, 200_000, "memory")
    alone = Profile([counted], devices={"0": DEVICES["nvidia"]})
    assert (limits(alone).kernels[0].calls, limits(alone).kernels[0].ns) == (1, 50_000)


def test_gpus_of_two_kinds_are_judged_each_by_its_own_peaks():
    found = profile("nvidia", memory_bytes=int(2.039e12 * 100e-6 * 0.8))
    found.events += profile("amd", memory_bytes=int(5.3e12 * 100e-6 * 0.8)).events
    found.events[1].device = "Agent 4"
    found.devices["Agent 4"] = DEVICES["amd"]
    both = {one.name: round(one.memory or 0) for one in limits(found).kernels}
    assert both == {"k on GPU 0": 80, "k on Agent 4": 80}
    found.events.pop()  # a card that runs nothing changes no name
    assert [one.name for one in limits(found).kernels] == ["k"]


def test_gpus_of_one_kind_share_a_row():
    found = profile("nvidia", calls=2)
    found.events[1].device = "1"
    found.devices["1"] = DEVICES["nvidia"]
    assert [(one.name, one.calls) for one in limits(found).kernels] == [("k", 2)]


def test_kernels_come_by_their_time_and_shares_add_up():
    found = limits(training("nvidia"))
    shares = [one.share for one in found.kernels]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(1)


def test_a_profile_of_counters_without_any_time_is_judged_all_the_same():
    event = Event("kernel", "k", device="0")
    event.note("load_sectors", 3200, "ncu")
    event.note("load_requests", 100, "ncu")
    (one,) = limits(Profile([event], devices={"0": DEVICES["nvidia"]})).kernels
    assert (one.ns, one.share, one.limit) == (None, None, "cannot be told")
    assert one.verdict == "uncoalesced"


def test_a_share_above_a_peak_is_doubted_aloud():
    found = limits(profile("amd", memory_bytes=10**12))
    assert any(THRESHOLDS["above_peak"].reason in remark for remark in found.remarks)


def test_the_chip_is_the_named_one_then_the_devices_then_the_one_for_its_target():
    assert limits(profile("nvidia"), "H100").chip.name == "H100 SXM"
    assert limits(profile("nvidia")).chip.name == "A100 80GB SXM"
    found = limits(profile("amd", device=Device("gfx942", "amd", "gfx942")))
    assert found.chip.name == "Instinct MI300X"
    assert "stands for gfx942" in found.remarks[0]
    assert limits(profile(None)).chip is None
    with pytest.raises(UnknownName, match="H100"):
        limits(profile("nvidia"), "H1000")


def test_a_virtual_gpu_is_held_to_no_peak_unless_a_chip_is_named():
    virtual = Device("virtual gfx942", "amd", "gfx942", virtual=True)
    found = limits(profile("amd", device=virtual, memory_bytes=1000))
    assert (found.chip, found.roofs, found.kernels[0].memory) == (None, {}, None)
    assert limits(profile("amd", device=virtual, memory_bytes=1000), "MI300X").kernels[0].memory is not None
    assert "--chip" in found.remarks[0]
    assert "--chip" not in limits(profile("amd", device=virtual)).remarks[0]  # there is nothing to compare


def test_a_chip_without_a_figure_leaves_its_roof_out_and_says_so():
    found = limits(profile("nvidia", memory_bytes=1000), "H20")
    assert list(found.roofs) == ["matrix"]
    assert any("H20" in remark for remark in found.remarks)


def test_a_launch_that_the_chip_cannot_hold_is_no_error():
    assert judged("nvidia", registers=9999, block=(4096, 1, 1)).limit == "cannot be told"


@pytest.mark.parametrize("value", ["n/a", [1, 2], float("nan"), True])
def test_a_value_that_is_no_number_is_no_figure(value):
    found = profile("nvidia", memory_busy=80.0)
    found.events[0].note("memory_busy", value, "odd", unit="%")
    assert limits(found).kernels[0].memory is None


@pytest.mark.parametrize("vendor", ["nvidia", "amd", None])
def test_what_is_missing_comes_with_a_command_of_the_vendor(vendor):
    (one,) = limits(profile(vendor)).kernels
    tools = {"nvidia": ["ncu "], "amd": ["rocprofv3 "], None: ["ncu ", "rocprofv3 "]}[vendor]
    assert len(one.missing) == len(NEEDS) - 1  # nothing says that it waits
    for each in one.missing:
        assert all(tool in each.command for tool in tools)


def test_the_counters_of_the_commands_are_those_that_the_readers_know():
    derived = {"smsp__sass_thread_inst_executed_op_", "SQ_INSTS_VALU_"}  # they sum up in `deriving`
    for need in NEEDS.values():
        for counter, known in [(each, NCU) for each in need.nvidia] + [(each, ROCPROF) for each in need.amd or ()]:
            assert counter in known or any(counter.startswith(start) for start in derived), counter


def test_every_threshold_has_its_reason_and_every_advice_is_a_sentence():
    assert all(len(one.reason) > 20 for one in THRESHOLDS.values())
    assert all(one.endswith(".") for one in ADVICE.values())
    assert command("spills", "amd") == "rocprofv3 --kernel-trace --output-format csv -d counters -- python train.py"


def test_no_kernels_are_no_findings():
    found = limits(Profile())
    assert (found.kernels, found.general, found.remarks) == ((), (), ())
