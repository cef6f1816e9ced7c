"""rocprofv3's json: ids put together, several processes, what is missing or cut."""

import json

import pytest

from gpu_utils.errors import ProfileUnreadable
from gpu_utils.profiling import rocprof_json
from gpu_utils.profiling.files import Opened

GPU = {"handle": 77}
STRINGS = {
    "buffer_records": [
        {"kind": "NONE", "operations": []},
        {"kind": "HIP_RUNTIME_API", "operations": ["hipLaunchKernel", "hipDeviceSynchronize"]},
        {"kind": "MEMORY_COPY", "operations": ["MEMORY_COPY_NONE", "MEMORY_COPY_HOST_TO_DEVICE"]},
        {"kind": "MARKER_CORE_API", "operations": ["roctxRangePushA"]},
    ],
    "marker_api": [{"key": 5, "value": "step 3"}],
}


def info(number=1, kernel=12, items=1000):
    return {
        "agent_id": GPU,
        "queue_id": {"handle": 1},
        "kernel_id": kernel,
        "dispatch_id": number,
        "private_segment_size": 16,
        "group_segment_size": 512,
        "workgroup_size": {"x": 256, "y": 1, "z": 1},
        "grid_size": {"x": items, "y": 4, "z": 1},
    }


def record(**more):
    return {"correlation_id": {"internal": 8, "external": 0}, "start_timestamp": 1000, "end_timestamp": 3000, **more}


def counted(values, number=1):
    return {
        "dispatch_data": record(dispatch_info=info(number)),
        "records": [{"counter_id": {"handle": handle}, "value": value} for handle, value in values],
        "thread_id": 100,
        "arch_vgpr_count": 24,
        "accum_vgpr_count": 8,
        "sgpr_count": 32,
        "lds_block_size_v": 1024,
    }


def process(pid=4242, buffers=None, counters=()):
    return {
        "metadata": {"pid": pid},
        "agents": [
            {"id": {"handle": 70}, "type": 1, "node_id": 0, "logical_node_id": 0, "name": "EPYC"},
            {
                "id": GPU,
                "type": 2,
                "node_id": 4,
                "logical_node_id": 1,
                "name": "gfx942",
                "product_name": "AMD Instinct MI300X",
                "cu_count": 304,
                "wave_front_size": 64,
                "num_xcc": 8,
            },
        ],
        "counters": [{"id": {"handle": 3}, "name": "SQ_WAVES"}, {"id": {"handle": 4}, "name": "FETCH_SIZE"}],
        "kernel_symbols": [{"kernel_id": 12, "kernel_name": "_Z3addPf.kd", "formatted_kernel_name": "add(float*)"}],
        "strings": STRINGS,
        "callback_records": {"counter_collection": list(counters)},
        "buffer_records": buffers or {},
    }


def read(*processes, text=None):
    found = Opened("x.json", (text or json.dumps({"rocprofiler-sdk-tool": list(processes)})).encode())
    assert rocprof_json.fits(found)
    return rocprof_json.read(found)


def test_a_dispatch_with_its_trace_and_its_counters_is_one_event():
    traced = {"kernel_dispatch": [record(dispatch_info=info(), stream_id={"handle": 2})]}
    profile = read(process(buffers=traced, counters=[counted([(3, 10.0), (3, 6.0), (4, 2.0)])]))
    (event,) = profile.events
    assert (event.name, event.start, event.end, event.lane) == ("add(float*)", 1000, 3000, "stream 2")
    assert (event.device, event.process, event.number, event.correlation) == ("Agent 1", 4242, 1, 8)
    assert (event.value("grid"), event.value("block")) == ((4, 4, 1), (256, 1, 1))
    assert (event.value("waves"), event.value("memory_read")) == (16, 2048)
    assert (event.value("registers"), event.value("accumulators"), event.value("shared_bytes")) == (24, 8, 1024)
    device = profile.devices["Agent 1"]
    assert (device.name, device.target, device.units, device.parts) == ("AMD Instinct MI300X", "gfx942", 304, 8)
    assert profile.remarks == []


def test_copies_have_bytes_and_calls_have_names():
    buffers = {
        "memory_copy": [record(kind=2, operation=1, dst_agent_id=GPU, src_agent_id={"handle": 70}, bytes=4096)],
        "hip_api": [record(kind=1, operation=0, thread_id=100), record(kind=1, operation=9, thread_id=100)],
        "marker_api": [record(kind=3, operation=0, thread_id=100, correlation_id={"internal": 5})],
    }
    copy, launch, unknown, mark = read(process(buffers=buffers)).events
    assert (copy.kind, copy.value("bytes"), copy.value("direction")) == ("copy", 4096, "host to device")
    assert copy.device == "Agent 1"
    assert (launch.kind, launch.name, launch.lane) == ("launch", "hipLaunchKernel", "thread 100")
    assert unknown.name == "<operation 9 of kind 1>"
    assert (mark.kind, mark.name) == ("range", "step 3")


def test_two_processes_keep_their_numbers_apart():
    profile = read(*(process(pid, counters=[counted([(3, pid)])]) for pid in (1, 2)))
    assert [(event.process, event.number, event.value("waves")) for event in profile.events] == [(1, 1, 1), (2, 1, 2)]


def test_one_process_without_a_list_around_it():
    text = json.dumps({"rocprofiler-sdk-tool": process(counters=[counted([(3, 1)])])})
    assert len(read(text=text).events) == 1


def test_a_kernel_without_a_symbol_and_a_counter_without_a_name():
    data = counted([(99, 5)])
    data["dispatch_data"]["dispatch_info"] = info(kernel=13)
    (event,) = read(process(counters=[data])).events
    assert (event.name, event.value("<counter 99>")) == ("<kernel 13>", 5)


@pytest.mark.parametrize("value", [None, "nan", float("nan"), float("inf"), -1])
def test_values_that_are_none_are_left_out(value):
    profile = read(process(counters=[counted([(3, value)])]))
    assert profile.events[0].value("waves") is None
    assert "left out: 1" in profile.remarks[0]


def test_a_file_that_breaks_off_says_where():
    text = json.dumps({"rocprofiler-sdk-tool": [process()]})[:500]
    with pytest.raises(ProfileUnreadable, match="breaks off") as caught:
        read(text=text)
    assert "of 500" in str(caught.value)


def test_no_work_on_a_gpu_is_said():
    assert "no work on a GPU was recorded" in read(process()).remarks[0]


@pytest.mark.parametrize("text", ['{"traceEvents": []}', "[]", '{"schemaVersion": 1, "rocprofiler": 2}', "a,b"])
def test_other_files_are_not_for_this_reader(text):
    assert not rocprof_json.fits(Opened("x", text.encode()))
