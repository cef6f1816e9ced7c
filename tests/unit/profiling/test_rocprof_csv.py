"""The csv files of rocprofv3 and rocprof, whole, odd and damaged."""

import pytest

from gpu_utils.errors import ProfileUnreadable
from gpu_utils.profiling import rocprof_csv
from gpu_utils.profiling.files import Opened
from tests.unit.profiling.rocprof_files import ADD, COUNTERS, TRACE, counted, counters, dispatch, line, trace


def read(text, name="x.csv"):
    found = Opened(name, text.encode())
    assert rocprof_csv.fits(found)
    return rocprof_csv.read(found)


def one(text):
    profile = read(text)
    (event,) = profile.events
    return event, " | ".join(profile.remarks)


def test_a_dispatch_of_a_kernel_trace():
    profile = read(trace(dispatch()), "4242_kernel_trace.csv")
    (event,) = profile.kernels
    assert (event.name, event.start, event.end, event.lane, event.device) == (ADD, 1000, 3000, "stream 2", "Agent 4")
    assert (event.process, event.number, event.correlation) == (4242, 1, 8)
    figures = {name: figure.value for name, figure in event.figures.items()}
    assert figures == {
        "grid": (4, 4, 1),  # 1000 work-items in blocks of 256: the last is part full
        "block": (256, 1, 1),
        "shared_bytes": 512,
        "scratch_bytes": 16,
        "registers": 24,
        "accumulators": 8,
        "scalar_registers": 32,
    }
    assert profile.devices["Agent 4"].vendor == "amd"
    assert profile.remarks == []


def test_the_trace_of_2024_has_no_registers():
    columns = [name for name in TRACE if not name.endswith("_Count") and name not in ("Stream_Id", "Scratch_Size")]
    columns[columns.index("LDS_Block_Size")] = "Group_Segment_Size"
    row = {**dispatch(), "Agent_Id": 4, "Group_Segment_Size": 512, "Private_Segment_Size": 16}
    event, remarks = one(trace(row, columns=["Private_Segment_Size", *columns]))
    assert (event.value("shared_bytes"), event.value("scratch_bytes"), event.value("registers")) == (512, 16, None)
    assert (event.device, event.lane, remarks) == ("4", "queue 1", "")


def test_counters_of_one_dispatch_become_one_event():
    rows = counted([("SQ_WAVES", "16.000000"), ("FETCH_SIZE", "1.50000000e+01"), ("SQ_WAIT_ANY", 7)])
    event, remarks = one(counters(*rows))
    assert (event.value("waves"), event.value("memory_read"), event.value("SQ_WAIT_ANY")) == (16, 15 * 1024, 7)
    assert (event.value("blocks"), event.value("threads"), event.value("grid")) == (16, 256, None)
    assert event.figures["memory_read"].source == "rocprofv3: FETCH_SIZE"
    assert remarks == ""


@pytest.mark.parametrize("gone", [("Start_Timestamp", "End_Timestamp"), ("Kernel_Id",), ("Accum_VGPR_Count",)])
def test_older_counter_files_lack_columns(gone):
    columns = [name for name in COUNTERS if name not in gone]
    event, remarks = one(counters(*counted([("SQ_WAVES", 16)]), columns=columns))
    assert event.value("waves") == 16
    assert (event.start is None) == ("Start_Timestamp" in gone)
    assert remarks == ""


VALUES = [  # value -> what it reads as, words of the remark
    ("nan", None, "none"),
    ("-nan", None, "none"),
    ("inf", None, "none"),
    ("1e+20", None, "none"),
    ("-5", None, "none"),
    ("0.00000000e+00", 0, ""),
    ("1.6e4", 16000, ""),
]


@pytest.mark.parametrize(("value", "expected", "words"), VALUES)
def test_values_of_counters(value, expected, words):
    event, remarks = one(counters(*counted([("SQ_WAVES", value)])))
    assert event.value("waves") == expected
    assert words in remarks
    assert bool(words) == bool(remarks)


REPEATS = [  # values -> what is kept, words
    ((512, 512, 512), 512, "not summed: 2"),
    ((512, 256), [512, 256], "kept as lists"),
    ((512, 256, 256), [512, 256, 256], "kept as lists"),
]


@pytest.mark.parametrize(("values", "expected", "words"), REPEATS)
def test_a_counter_that_comes_again_is_not_summed(values, expected, words):
    event, remarks = one(counters(*counted([("SQ_WAVES", value) for value in values])))
    assert event.value("waves") == expected
    assert words in remarks


def test_counters_that_differ_in_case_are_two():
    event, _ = one(counters(*counted([("LDSBankConflict", 12.5), ("LdsBankConflict", 0.25)])))
    assert (event.value("LDSBankConflict"), event.value("LdsBankConflict")) == (12.5, 0.25)


TIMES = [(0, 0), (0, 5), (5, 0), (9, 5)]


@pytest.mark.parametrize(("start", "end"), TIMES)
def test_impossible_times_are_taken_off_and_counted(start, end):
    event, remarks = one(trace(dispatch(start=start, end=end)))
    assert event.duration is None
    assert "in no total: 1" in remarks


NAMES = [
    ("_Z5saxpyiPf.kd", "_Z5saxpyiPf"),
    ("saxpy(int, float*) [clone .kd]", "saxpy(int, float*)"),
    ("saxpy(int, float*) (.kd)", "saxpy(int, float*)"),
    ("saxpy", "saxpy"),
]


@pytest.mark.parametrize(("written", "name"), NAMES)
def test_what_marks_the_code_object_is_no_part_of_a_name(written, name):
    assert one(trace(dispatch(name=written)))[0].name == name


def test_a_grid_smaller_than_a_block_is_said():
    assert "count blocks, not work-items: 1" in one(trace(dispatch(items=(16, 1, 1))))[1]


def test_a_header_alone_says_that_nothing_was_recorded():
    profile = read(line(TRACE))
    assert profile.events == []
    assert "no dispatch was recorded" in profile.remarks[0]


def test_line_ends_of_windows_and_a_last_row_that_is_cut():
    profile = read((trace(dispatch(1), dispatch(2))[:-30]).replace("\n", "\r\n"))
    assert [event.number for event in profile.events] == [1]
    assert profile.remarks == ["x.csv: the last row is cut short and was left out"]
    assert len(read(trace(dispatch(1), dispatch(2)).rstrip()).events) == 2


def test_a_dispatch_that_stands_twice_is_one():
    profile = read(trace(dispatch(1), dispatch(2), dispatch(1)))
    assert len(profile.events) == 2
    assert "twice" in profile.remarks[0]


def test_the_first_column_of_rocpd_convert_is_no_counter():
    event, remarks = one(trace({**dispatch(), "Guid": "abc"}, columns=["Guid", *TRACE]))
    assert "Guid" not in event.figures
    assert remarks == ""


V1 = (
    "RPL: on '261127' from '/opt/rocm' in '/tmp'\nROCProfiler: input from \"a.xml\"\n"
    "Index,KernelName,gpu-id,queue-id,queue-index,pid,tid,grd,wgr,lds,scr,arch_vgpr,accum_vgpr,sgpr,wave_size,sig,obj,"
    "SQ_WAVES,DispatchNs,BeginNs,EndNs,CompleteNs,DurationNs\n"
    '0,"add(int, float*) [clone .kd]",1,0,0,4242,4242,1000,256,512,0,24,8,32,64,0x0,0x7f,16.0,1,1000,3000,4000,2000\n'
)
V2_OLD = (
    "Dispatch_ID,GPU_ID,Queue_ID,Queue_Index,PID,TID,GRD,WGR,LDS,SCR,Arch_VGPR,ACCUM_VGPR,SGPR,Wave_Size,SIG,OBJ,"
    "Kernel_Name,Start_Timestamp,End_Timestamp,Correlation_ID,SQ_WAVES\n\n"
    '0,1,0,0,4242,4242,1000,256,512,0,24,8,32,64,0,0,"add(int, float*) (.kd)",1000,3000,8,16\n'
)
V2_NEW = (
    "Dispatch_ID,GPU_ID,Queue_ID,PID,TID,Grid_Size,Workgroup_Size,LDS_Per_Workgroup,Scratch_Per_Workitem,Arch_VGPR,"
    "Accum_VGPR,SGPR,Wave_Size,Kernel_Name,Start_Timestamp,End_Timestamp,Correlation_ID,SQ_WAVES\n"
    '0,1,0,4242,4242,1000,256,512,0,24,8,32,64,"add(int, float*)",1000,3000,8,16\n'
)


@pytest.mark.parametrize("text", [V1, V2_OLD, V2_NEW], ids=["v1", "v2 old", "v2 new"])
def test_the_older_rocprof(text):
    profile = read(text)
    (event,) = profile.kernels
    assert (event.name, event.duration, event.process, event.number) == (ADD, 2000, 4242, 0)
    assert (event.value("waves"), event.value("blocks"), event.value("registers")) == (16, 4, 24)
    assert (event.value("shared_bytes"), event.value("accumulators")) == (512, 8)
    assert (profile.devices["1"].lanes, profile.origins[0].tool) == (64, "rocprof")
    assert set(event.figures) <= {
        *("blocks", "threads", "waves", "registers", "accumulators", "scalar_registers", "shared_bytes"),
        "scratch_bytes",
    }


def test_calls_of_the_runtime_and_ranges():
    rows = [
        ("HIP_RUNTIME_API", "hipLaunchKernel", 4242, 100, 8, 10, 20),
        ("HIP_RUNTIME_API", "hipDeviceSynchronize", 4242, 100, 9, 20, 30),
        ("HSA_CORE_API", "hsa_queue_create", 4242, 100, 10, 30, 40),
        ("MARKER_CORE_API", "step 3", 4242, 100, 11, 10, 40),
    ]
    columns = ["Domain", "Function", "Process_Id", "Thread_Id", "Correlation_Id", "Start_Timestamp", "End_Timestamp"]
    profile = read(line(columns) + "".join(map(line, rows)))
    assert [event.kind for event in profile.events] == ["launch", "sync", "api", "range"]
    assert [event.correlation for event in profile.events] == [8, 9, 10, 11]
    assert {event.lane for event in profile.events} == {"thread 100"}
    assert profile.devices == {}


@pytest.mark.parametrize("way", ["HOST_TO_DEVICE", "MEMORY_COPY_HOST_TO_DEVICE"])
def test_copies_have_a_direction_and_no_bytes(way):
    columns = ["Kind", "Direction", "Stream_Id", "Source_Agent_Id", "Destination_Agent_Id", "Correlation_Id"]
    text = line([*columns, "Start_Timestamp", "End_Timestamp"]) + line(
        ["MEMORY_COPY", way, 2, "Agent 0", "Agent 4", 3, 10, 20]
    )
    event, remarks = one(text)
    assert (event.kind, event.value("direction"), event.value("bytes")) == ("copy", "host to device", None)
    assert (event.device, event.lane, event.duration) == ("Agent 4", "stream 2", 10)
    assert "how many bytes" in remarks


def test_sums_are_sums():
    columns = ["Name", "Calls", "TotalDurationNs", "AverageNs", "Percentage", "MinNs", "MaxNs", "StdDev"]
    event, remarks = one(line(columns) + line([ADD, 4, 8000, 2000.0, 85.15, 1000, 3000, "2.920e-03"]))
    assert (event.value("calls"), event.duration, event.value("AverageNs")) == (4, 8000, 2000)
    assert "no order" in remarks


AGENTS = [
    {"Node_Id": 0, "Logical_Node_Id": 0, "Agent_Type": "CPU", "Name": "AMD EPYC"},
    {
        "Node_Id": 4,
        "Logical_Node_Id": 1,
        "Agent_Type": "GPU",
        "Wave_Front_Size": 64,
        "Num_Xcc": 8,
        "Cu_Count": 304,
        "Gfx_Target_Version": 90402,
        "Name": "gfx942",
        "Product_Name": "AMD Instinct MI300X",
    },
]


def agent_text(*rows):
    columns = list(AGENTS[1])
    return line(columns) + "".join(line(row.get(name, 0) for name in columns) for row in rows)


def test_agents_are_devices_under_each_of_their_names():
    devices = read(agent_text(*AGENTS)).devices
    assert set(devices) == {"Agent 1", "GPU 0", "Agent 4", "4"}
    (device,) = set(devices.values())
    assert (device.name, device.target, device.units, device.lanes) == ("AMD Instinct MI300X", "gfx942", 304, 64)
    assert device.parts == 8


def test_an_agent_that_begins_with_virtual_is():
    device = read(trace(dispatch(Agent_Id="virtual gfx942"))).devices["virtual gfx942"]
    assert (device.virtual, device.target, device.lanes) == (True, "gfx942", 64)


def test_samples_are_summed_up_for_each_dispatch():
    columns = ["Sample_Timestamp", "Exec_Mask", "Dispatch_Id", "Instruction", "Instruction_Comment", "Correlation_Id"]
    columns += ["Wave_Issued_Instruction", "Instruction_Type", "Stall_Reason", "Wave_Count"]
    every = "18446744073709551615"
    rows = [
        [9, every, 1, "v_add_f32", "", 8, 1, "VALU", "ROCPROFILER_PC_SAMPLING_INSTRUCTION_NOT_ISSUED_REASON_NONE", 8],
        [
            5,
            every,
            1,
            "s_waitcnt",
            "",
            8,
            0,
            "NO_INST",
            "ROCPROFILER_PC_SAMPLING_INSTRUCTION_NOT_ISSUED_REASON_WAITCNT",
            8,
        ],
        [6, "0", 1, "", "Unrecognized code object id: 7", 8, 0, "NO_INST", "WAITCNT", 8],
    ]
    event, remarks = one(line(columns) + "".join(map(line, rows)))
    assert (event.name, event.number) == ("<dispatch 1>", 1)
    figures = {name: figure.value for name, figure in event.figures.items()}
    assert figures == {
        "samples": 3,
        "samples that issued": 1,
        "stalled: WAITCNT": 1,
        "samples without a known instruction": 1,
        "lanes of a sample": pytest.approx(128 / 3),
    }
    assert "nobody knows (no stalls): 1" in remarks


def test_allocations_keep_their_bytes():
    columns = ["Kind", "Operation", "Agent_Id", "Allocation_Size", "Address", "Correlation_Id"]
    text = line([*columns, "Start_Timestamp", "End_Timestamp"])
    text += line(["MEMORY_ALLOCATION", "MEMORY_ALLOCATION_ALLOCATE", "Agent 4", 4096, "0x7f00", 3, 10, 20])
    event, _ = one(text + "")
    assert (event.kind, event.value("allocated")) == ("api", 4096)


def test_the_summary_in_words_is_refused():
    with pytest.raises(ProfileUnreadable, match="--kernel-trace --output-format csv"):
        read("ROCPROFV3 SUMMARY:\n\n|  NAME  |  DOMAIN  |  CALLS  | DURATION (nsec) |\n|---|---|---|---|\n")


@pytest.mark.parametrize("text", ['{"rocprofiler-sdk-tool": []}', '"ID","Kernel Name"\n', "Time (%),Name\n", "hello\n"])
def test_other_files_are_not_for_this_reader(text):
    assert not rocprof_csv.fits(Opened("x", text.encode()))
