"""Several files as one profile: by number, by order and name, or side by side."""

import pytest

from gpu_utils.profiling import nsight_compute, rocprof_csv
from gpu_utils.profiling.busy import busy
from gpu_utils.profiling.files import Opened
from gpu_utils.profiling.joining import joined
from gpu_utils.profiling.limits import limits
from gpu_utils.profiling.names import LEVELS
from gpu_utils.profiling.profile import Device, Event, Origin, Profile
from tests.unit.profiling.rocprof_files import counted, counters, dispatch, trace
from tests.unit.profiling.test_nsight_compute import launch, line, long, row
from tests.unit.profiling.test_rocprof_csv import AGENTS, agent_text

ROCPROF = {"name": "add", "items": (1000, 1, 1)}


def rocprof(text, name="x.csv"):
    return rocprof_csv.read(Opened(name, text.encode()))


def ncu(text, name="ncu.csv"):
    return nsight_compute.read(Opened(name, text.encode()))


def torch_trace(*names, device="0", path="trace.json", start=1000):
    """What a reader of torch's trace makes: a launch on the host and a kernel on the GPU for each name."""
    events = []
    for at, name in enumerate(names):
        begin = start + 100 * at
        events.append(
            Event("launch", "cudaLaunchKernel", begin - 50, begin - 40, "thread 1", process=9, correlation=at)
        )
        events.append(Event("kernel", name, begin, begin + 60, "stream 7", device, process=9, correlation=at))
    return Profile(
        events, [Origin(path, "torch.profiler", "Chrome trace")], {device: Device("H100", "nvidia", "sm_90")}
    )


def test_counters_join_the_trace_of_their_run_by_number():
    two = trace(dispatch(1, **ROCPROF), dispatch(2, start=4000, end=5000, **ROCPROF))
    more = counted([("SQ_WAVES", 16)], 1, **ROCPROF) + counted([("SQ_WAVES", 20)], 2, start=4000, end=5000, **ROCPROF)
    profile = joined([rocprof(counters(*more)), rocprof(two)])
    assert [(event.number, event.start, event.value("waves")) for event in profile.kernels] == [
        (1, 1000, 16),
        (2, 4000, 20),
    ]
    assert [event.value("grid") for event in profile.kernels] == [(4, 1, 1)] * 2
    assert all("blocks" not in event.figures for event in profile.kernels)
    assert profile.remarks == []
    assert len(profile.origins) == 2


def test_counters_of_some_dispatches_only_join_those():
    rows = counted([("SQ_WAVES", 20)], 2, start=4000, end=5000)
    profile = joined([rocprof(trace(dispatch(1), dispatch(2, start=4000, end=5000))), rocprof(counters(*rows))])
    assert [event.value("waves") for event in profile.kernels] == [None, 20]
    assert profile.remarks == []


def test_counter_groups_of_several_runs_join_by_order_and_name_with_a_remark():
    first = counted([("SQ_WAVES", 16)], 1, Process_Id=1) + counted([("SQ_WAVES", 17)], 2, Process_Id=1)
    second = counted([("FETCH_SIZE", 1)], 5, Process_Id=2) + counted([("FETCH_SIZE", 2)], 6, Process_Id=2)
    profile = joined([rocprof(counters(*first), "pmc_1/a.csv"), rocprof(counters(*second), "pmc_2/a.csv")])
    assert [(event.value("waves"), event.value("memory_read")) for event in profile.kernels] == [(16, 1024), (17, 2048)]
    (remark,) = profile.remarks
    assert remark.startswith("pmc_2/a.csv: launches joined to those of pmc_1/a.csv by order and name: 2; where")


def test_two_ranks_with_the_same_counters_are_not_joined():
    ranks = [rocprof(counters(*counted([("SQ_WAVES", 16)], 1, Process_Id=process))) for process in (1, 2)]
    profile = joined(ranks)
    assert [event.process for event in profile.kernels] == [1, 2]
    assert profile.remarks == []


def test_counters_that_fit_two_ranks_stand_beside_them():
    ranks = [rocprof(trace(dispatch(1, start=start, end=9000)), f"{start}_kernel_trace.csv") for start in (1000, 2000)]
    profile = joined([*ranks, rocprof(counters(*counted([("SQ_WAVES", 16)], 7, Process_Id=3, start=5, end=6)))])
    assert len(profile.kernels) == 3
    assert "2 other files equally well" in profile.remarks[0]


def test_a_file_that_is_read_twice_counts_once():
    text = trace(dispatch(1), dispatch(2, start=4000, end=5000))
    profile = joined([rocprof(text), rocprof(text, "copy/x.csv")])
    assert len(profile.kernels) == 2
    assert profile.remarks == ["copy/x.csv: launches that are in x.csv already, left out: 2"]


def test_figures_that_differ_are_kept_from_the_first_and_said():
    one, two = (counters(*counted([("SQ_WAVES", value)])) for value in (16, 17))
    profile = joined([rocprof(one), rocprof(two, "y.csv")])
    assert [event.value("waves") for event in profile.kernels] == [16]
    assert "y.csv: figures that differ between the files, kept from the first: waves" in profile.remarks[0]


def test_a_trace_of_torch_and_counters_of_ncu_join_by_order_and_name():
    trace_ = torch_trace("void add<float>(int, float*)", "mul(float*)", "void add<float>(int, float*)")
    rows = [row("dram__bytes.sum", "byte", 10 + at, number=at, name=name) for at, name in enumerate(
        ["void add<float>(int, float *)", "mul(float *)", "void add<float>(int, float *)"])]  # fmt: skip
    profile = joined([ncu(long(*rows)), trace_])
    assert [event.value("memory_bytes") for event in profile.kernels] == [10, 11, 12]
    assert [event.start for event in profile.kernels] == [1000, 1100, 1200]
    assert len(profile.of("launch")) == 3
    assert "launches joined to those of trace.json by order and name: 3;" in profile.remarks[0]
    assert profile.remarks[0].startswith("ncu.csv: ")


def test_other_numbers_of_calls_stay_side_by_side():
    profile = joined([torch_trace("add", "add"), ncu(long(row("a", "", 1, name="add(int)")))])
    assert len(profile.kernels) == 3
    assert "other names or other numbers of calls" in profile.remarks[0]


def test_names_that_fit_join_and_the_rest_stands_beside():
    text = long(row("a", "", 1, name="add(int)"), row("a", "", 2, number=1, name="mul(int)"))
    profile = joined([torch_trace("add", "mul", "mul"), ncu(text)])
    assert [(event.name, event.value("a")) for event in profile.kernels] == [
        ("add", 1),
        ("mul", None),
        ("mul", None),
        ("mul(int)", 2),
    ]
    assert "launches that fit none there and stand beside: 1 (mul(int))" in profile.remarks[0]


def test_another_grid_is_another_launch():
    event = Event("kernel", "add", 1, 2)
    event.note("grid", (7, 1, 1), "torch")
    trace_ = Profile([event], [Origin("t.json", "torch.profiler", "")], {})
    profile = joined([trace_, ncu(line(*LONG_HEADER) + line(*launch(name="add"), "S", "a", "", 1))])
    assert len(profile.kernels) == 2


LONG_HEADER = ["ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size"]
LONG_HEADER += ["Grid Size", "Device", "CC", "Section Name", "Metric Name", "Metric Unit", "Metric Value"]

AGENT_NAMES = ["Agent 1", "Agent 4", "GPU 0", "4", "Agent 77"]


@pytest.mark.parametrize("name", AGENT_NAMES)
def test_an_agent_list_describes_the_one_gpu_whatever_it_is_called(name):
    profile = joined([rocprof(trace(dispatch(Agent_Id=name))), rocprof(agent_text(*AGENTS), "agent_info.csv")])
    assert set(profile.devices) == {name}
    assert (profile.devices[name].target, profile.devices[name].units) == ("gfx942", 304)


def test_of_two_gpus_an_unknown_name_is_neither():
    second = {**AGENTS[1], "Node_Id": 5, "Logical_Node_Id": 2, "Cu_Count": 228}
    texts = [trace(dispatch(1, Agent_Id="GPU 1"), dispatch(2, Agent_Id="Agent 9")), agent_text(*AGENTS, second)]
    devices = joined([rocprof(text) for text in texts]).devices
    assert (devices["GPU 1"].units, devices["Agent 9"].units) == (228, None)


def test_sums_beside_the_launches_that_they_sum_up_are_left_out():
    sums = "Name,Calls,TotalDurationNs\nadd,2,4000\n"
    assert len(joined([rocprof(sums)]).kernels) == 1
    profile = joined([rocprof(sums, "stats.csv"), rocprof(trace(dispatch(name="add")))])
    assert len(profile.kernels) == 1
    assert profile.remarks[-1] == "stats.csv: sums of launches that other files give one by one; left out"


def test_host_calls_stand_beside_kernels():
    calls = "Domain,Function,Process_Id,Thread_Id,Correlation_Id,Start_Timestamp,End_Timestamp\n"
    calls += "HIP_RUNTIME_API,hipLaunchKernel,4242,1,8,10,20\n"
    profile = joined([rocprof(trace(dispatch())), rocprof(calls)])
    assert [event.kind for event in profile.events] == ["kernel", "launch"]
    assert {event.correlation for event in profile.events} == {8}


def test_samples_find_their_kernel_by_number():
    samples = "Sample_Timestamp,Exec_Mask,Dispatch_Id,Instruction,Instruction_Comment,Correlation_Id\n5,1,1,s_nop,,8\n"
    (event,) = joined([rocprof(trace(dispatch())), rocprof(samples)]).kernels
    assert (event.name.startswith("add"), event.value("samples")) == (True, 1)


@pytest.mark.parametrize(
    ("one", "other", "level"),
    [
        ("void f<int>(float *)", "f<int>(float*)", 0),
        ("void f<int>(float *)", "f<int>", 1),
        ("void a::f<int>(float *)", "f", 2),
        ("f", "g", None),
    ],
)
def test_levels_of_names(one, other, level):
    assert next((at for at, key in enumerate(LEVELS) if key(one) == key(other)), None) == level


def test_what_a_tool_counted_goes_before_what_was_derived():
    trace_, counted_ = torch_trace("add"), ncu(long(row("smsp__warps_launched.sum", "warp", 7, name="add")))
    trace_.kernels[0].note("waves", 8, "= blocks x 2")
    counted_.kernels[0].note("memory_bytes", 3, "= a + b")
    profile = joined([trace_, counted_])
    assert (profile.kernels[0].value("waves"), profile.kernels[0].value("memory_bytes")) == (7, 3)
    assert "differ" not in profile.remarks[0]


def test_another_name_of_a_device_goes_into_the_one_that_stands():
    torch_ = torch_trace("add", device="0")
    torch_.devices["0"] = Device("AMD Instinct MI300X", "amd")
    profile = joined([torch_, rocprof(trace(dispatch(name="add"))), rocprof(agent_text(*AGENTS))])
    assert set(profile.devices) == {"0"}
    assert (profile.devices["0"].target, profile.devices["0"].parts) == ("gfx942", 8)


def amd_counters(name="add"):
    return rocprof(counters(*counted([("SQ_WAVES", 16)], 1, name=name)), "amd.csv")


def test_counters_of_one_vendor_never_join_a_trace_of_the_other():
    profile = joined([torch_trace("add"), amd_counters()])
    assert [event.value("waves") for event in profile.kernels] == [None, 16]
    assert any("amd.csv: its GPU is not of the vendor of that of trace.json" in remark for remark in profile.remarks)
    other = joined([rocprof(trace(dispatch(name="add"))), ncu(long(row("a", "", 1, name="add")))])
    assert len(other.kernels) == 2


@pytest.mark.parametrize(
    "second",
    [
        Device("AMD Instinct MI300X", "amd", "gfx942"),
        Device("NVIDIA A100-SXM4-80GB", "nvidia", "sm_80"),
        Device("NVIDIA H200", "nvidia", "sm_90"),
    ],
)
def test_one_number_of_two_gpus_is_two_devices(second):
    one, two = torch_trace("add", path="x/one.json"), torch_trace("add", path="y/two.json", start=900_000)
    two.devices["0"] = second
    profile = joined([one, two])
    names = ["GPU 0 of one.json", "GPU 0 of two.json"]
    assert [event.device for event in profile.kernels] == names
    assert profile.devices[names[1]] == second
    assert [device.busy for device in busy(profile).devices] == [60, 60]
    assert sum("device 0 is another GPU in other files" in remark for remark in profile.remarks) == 2
    assert [each.name for each in limits(profile).kernels] == [f"add on {name}" for name in names]


def test_files_of_one_name_give_their_paths():
    one, two = torch_trace("add", path="x/t.json"), torch_trace("mul", path="y/t.json")
    two.devices["0"] = Device("MI300X", "amd", "gfx942")
    assert set(joined([one, two]).devices) == {"GPU 0 of x/t.json", "GPU 0 of y/t.json"}


def test_one_gpu_that_two_tools_name_differently_stays_one():
    trace_ = torch_trace("add")
    trace_.devices["0"] = Device("NVIDIA H100 80GB HBM3", "nvidia", "sm_90", 132)
    assert set(joined([trace_, ncu(long(row("a", "", 1, name="add")))]).devices) == {"0"}


def test_kernels_that_run_at_once_in_one_stream_are_of_two_runs():
    one, two = torch_trace("add", path="one.json"), torch_trace("mul", path="two.json", start=1030)
    (remark,) = joined([one, two]).remarks
    assert remark.startswith("two.json: its kernels run at the same time as those of one.json in one stream")
    assert remark.endswith("two runs? then read each alone")
    for after in (torch_trace("mul", start=5000), torch_trace("mul", device="1", start=1030)):
        after.devices["1"] = after.devices["0"] = Device("H100", "nvidia", "sm_90")
        assert joined([torch_trace("add"), after]).remarks == []


def test_times_of_a_run_with_counters_do_not_say_how_busy_the_gpu_was():
    two = trace(dispatch(1), dispatch(2, start=4000, end=5000))
    more = counted([("SQ_WAVES", 16)], 1) + counted([("SQ_WAVES", 16)], 2, start=4000, end=5000)
    for files in ([counters(*more)], [two, counters(*more)], [counters(*more), two]):
        (one,) = busy(joined([rocprof(text) for text in files])).devices
        assert (one.serial, one.launch_bound) == (True, None)
        assert "one at a time" in one.why
    (one,) = busy(joined([rocprof(two)])).devices
    assert not one.serial


def test_a_timeline_without_counters_gives_the_times_whatever_the_order_of_files():
    clean = rocprof(trace(dispatch(1, Process_Id=1)), "1_kernel_trace.csv")
    slow = rocprof(counters(*counted([("SQ_WAVES", 16)], 1, Process_Id=2, start=700, end=9000)), "2_counters.csv")
    profile = joined([slow, clean])
    assert [(event.start, event.value("waves")) for event in profile.kernels] == [(1000, 16)]
    assert profile.serial == set()


def test_counters_of_another_run_leave_the_timeline_what_it_is():
    amd = torch_trace("add", device="0")
    amd.devices["0"] = Device("AMD Instinct MI300X", "amd", "gfx942")
    profile = joined([amd, amd_counters()])
    assert (len(profile.kernels), profile.kernels[0].value("waves"), profile.serial) == (1, 16, set())
