"""Traces of torch.profiler: shapes of both vendors and of several generations, and what is odd or damaged in them."""

import gzip
import json
from pathlib import Path

import pytest

from gpu_utils.errors import ProfileUnreadable
from gpu_utils.profiling import torch_trace
from gpu_utils.profiling.files import Opened, opened

FIXTURES = Path(__file__).parents[2] / "fixtures" / "profiles"
CUDA = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "computeMajor": 9, "computeMinor": 0, "warpSize": 32, "numSms": 132}
ROCM = {"id": 0, "name": "AMD Instinct MI300X", "computeMajor": 9, "computeMinor": 4, "warpSize": 64, "numSms": 304}
ROCM["maxSharedMemoryPerMultiProcessor"] = 65536


def event(cat, name, ts, dur, pid=100, tid=100, /, **args):
    args = {name.replace("_", " "): value for name, value in args.items()}
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def op(name="aten::mm", ts=10.0, dur=50.0, number=1):
    return event("cpu_op", name, ts, dur, External_id=number)


def call(name="cudaLaunchKernel", ts=20.125, dur=6.5, correlation=7, pid=100, **args):
    return event("cuda_runtime", name, ts, dur, pid, 100, correlation=correlation, **args)


def kernel(name="mm_kernel", ts=31.0, dur=12.25, correlation=7, **args):
    args = {"device": 0, "stream": 7, "correlation": correlation, **args}
    return event("kernel", name, ts, dur, 0, 7, **args)


SIZES = {"grid": [16, 16, 1], "block": [256, 1, 1]}
ON_CUDA = {
    **{"queued": 0, "context": 1, "External id": 1, "registers per thread": 64, "shared memory": 16384},
    **{"blocks per SM": 1.939, "warps per SM": 15.5, "est. achieved occupancy %": 24, **SIZES},
}


def trace(*events, device=CUDA, **head):
    return {"schemaVersion": 1, "deviceProperties": [device], **head, "traceEvents": list(events)}


def read(content, name="trace.json"):
    if not isinstance(content, (str, bytes)):
        content = json.dumps(content)
    found = Opened(name, content if isinstance(content, bytes) else content.encode())
    assert torch_trace.fits(found)
    return torch_trace.read(found)


def said(profile):
    return " | ".join(profile.remarks)


def test_a_trace_of_cuda_ties_operator_launch_and_kernel():
    profile = read(trace(op(), call(External_id=1), kernel(**ON_CUDA)))
    assert [one.kind for one in profile.events] == ["op", "launch", "kernel"]
    one = profile.kernels[0]
    assert (one.start, one.end, one.lane, one.device, one.process) == (31_000, 43_250, "stream 7", "0", 100)
    assert one.correlation == profile.of("launch")[0].correlation == 7
    assert {name: figure.value for name, figure in one.figures.items()} == {
        **{"External id": 1, "registers": 64, "shared_bytes": 16384, "blocks per SM": 1.939, "warps per SM": 15.5},
        **{"occupancy_estimate": 24, "grid": (16, 16, 1), "block": (256, 1, 1), "op": "aten::mm"},
    }
    assert one.figures["registers"].source == "torch: registers per thread"
    assert one.figures["registers"].unit == "registers"
    assert one.figures["warps per SM"].unit == "warps"
    device = profile.devices["0"]
    assert (device.vendor, device.target, device.units, device.lanes, device.virtual) == (
        "nvidia",
        "sm_90",
        132,
        32,
        False,
    )
    assert profile.origins[0].tool == "torch.profiler"
    assert profile.remarks == []


def test_all_kinds_of_events_have_their_place():
    copies = {"device": 0, "stream": 7, "bytes": 4096, "memory bandwidth (GB/s)": 12.5}
    profile = read(
        trace(
            event("user_annotation", "step", 0.0, 90.0),
            call("cudaMemcpyAsync", correlation=8),
            event("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 40.0, 2.0, 0, 7, correlation=8, **copies),
            call("cudaMemsetAsync", correlation=9),
            event("gpu_memset", "Memset (Device)", 43.0, 1.0, 0, 7, correlation=9, device=0, stream=7, bytes=64),
            call("cudaDeviceSynchronize", correlation=10),
            event("cuda_sync", "Context Sync", 20.0, 6.0, 0, 7, correlation=10, cuda_sync_kind="Context Sync"),
            call("cudaMalloc", correlation=11),
            event("gpu_user_annotation", "step", 39.999, 5.002, 0, 7, device=0, stream=7),
            event("overhead", "Activity Buffer Request", 1.0, 2.0, -1, 0),
            event("Trace", "PyTorch Profiler (0)", 0.0, 90.0, "Spans", "PyTorch Profiler"),
            {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "args": {"name": "python"}},
            {"ph": "i", "name": "Iteration Start: PyTorch Profiler", "pid": "Traces", "tid": "Trace", "ts": 0.0},
        )
    )
    kinds = ["range", "launch", "copy", "launch", "fill", "sync", "api", "range", "overhead"]
    assert [one.kind for one in profile.events] == kinds
    copy, fill = profile.of("copy", "fill")
    assert (copy.value("bytes"), copy.value("direction")) == (4096, "host to device")
    assert copy.figures["memory bandwidth (GB/s)"].unit == "GB/s"
    assert fill.value("bytes") == 64
    assert profile.of("sync")[0].value("cuda sync kind") == "Context Sync"
    assert profile.events[-2].device == "0"
    assert profile.remarks == []


ROCTRACER = {"cid": 1, "kernel": "mm", "stream": "0x55", "shared memory": 512, **SIZES}


@pytest.mark.parametrize(
    ("events", "source"),
    [
        pytest.param(
            [
                call("hipLaunchKernel", **ROCTRACER),
                {**kernel(), "args": {}},
                {"ph": "s", "id": 7, "pid": 100, "tid": 100, "ts": 20.125, "cat": "ac2g", "name": "ac2g"},
                {"ph": "f", "id": 7, "pid": 0, "tid": 7, "ts": 31.0, "cat": "ac2g", "name": "ac2g", "bp": "e"},
            ],
            "torch: grid of the launch",
            id="roctracer: the kernel says nothing and an arrow ties it",
        ),
        pytest.param(
            [call("hipLaunchKernel", **ROCTRACER), kernel(kind="Dispatch Kernel")],
            "torch: grid of the launch",
            id="ROCm 6.2: the kernel has no size",
        ),
        pytest.param([call("hipLaunchKernel", **ROCTRACER), kernel(**SIZES)], "torch: grid", id="rocprofiler-sdk"),
    ],
)
def test_a_trace_of_rocm_has_sizes_in_blocks_whichever_generation_wrote_it(events, source):
    profile = read(trace(*events, device=ROCM))
    (one,) = profile.kernels
    assert (one.value("grid"), one.value("block"), one.value("shared_bytes")) == ((16, 16, 1), (256, 1, 1), 512)
    assert one.figures["grid"].source == source
    assert one.figures["shared_bytes"].source == "torch: shared memory of the launch"
    assert (one.lane, one.device, one.process) == ("stream 7", "0", 100)
    device = profile.devices["0"]
    assert (device.vendor, device.target, device.lanes, device.units) == ("amd", "gfx942", 64, 304)
    assert profile.remarks == []


def test_copies_of_rocm_take_bytes_and_direction_from_their_call():
    copy = event("gpu_memcpy", "Memcpy ? (? -> ?)", 40.0, 2.0, 0, 0, device=0, stream=0, correlation=8)
    memcpy = call("hipMemcpyWithStream", correlation=8, src="0x1", dst="0x2", size="4096", kind="2")
    profile = read(trace(memcpy, copy, device=ROCM))
    (one,) = profile.of("copy")
    assert (one.value("bytes"), one.value("direction")) == (4096, "device to host")
    assert profile.of("sync")[0].name == "hipMemcpyWithStream"


@pytest.mark.parametrize(
    ("properties", "vendor", "target"),
    [
        ({"id": 0, "name": "x", "gcnArchName": "gfx90a:sramecc+:xnack-"}, "amd", "gfx90a"),
        ({"id": 0, "name": "AMD Radeon RX 7900 XTX", "warpSize": 32}, "amd", "gfx1100"),
        ({"id": 0, "name": "AMD Radeon of tomorrow", "computeMajor": 12, "computeMinor": 0}, "amd", None),
        ({"id": 0, "name": "Tesla V100", "major": 7, "minor": 0, "multiProcessorCount": 80}, "nvidia", "sm_70"),
        ({"id": 0, "name": "x"}, "nvidia", None),
        ({"id": 1, "name": "another GPU"}, "nvidia", None),
    ],
)
def test_the_vendor_follows_from_properties_and_else_from_the_calls(properties, vendor, target):
    device = read(trace(call(), kernel(), device=properties)).devices["0"]
    assert (device.vendor, device.target) == (vendor, target)


def test_a_virtual_gpu_says_so():
    profile = read(trace(call(), kernel(), device={**CUDA, "virtual": True}))
    assert profile.virtual


def test_old_traces_have_other_names_and_absolute_times():
    old = [
        {**op(), "cat": "Operator", "ts": 1621401187223197, "dur": 99, "tid": "24572"},
        {**call(External_id=1), "cat": "Runtime", "ts": 1621401187223200, "dur": 21},
        {**kernel(**{"external id": 1}), "cat": "Kernel", "tid": "stream 7", "ts": 1621401187223264, "dur": 5},
    ]
    profile = read({"schemaVersion": 1, "computeProperties": [{**CUDA, "id": 0}], "traceEvents": old})
    (one,) = profile.kernels
    assert (one.start, one.duration) == (1621401187223264000, 5000)
    assert (one.lane, one.value("op")) == ("stream 7", "aten::mm")
    assert profile.events[0].lane == "thread 24572"
    assert profile.devices["0"].units == 132


def test_times_of_sixteen_digits_with_fractions_stay_exact():
    text = json.dumps(trace(call(), kernel(ts=4896483166301.750, dur=0.273)))
    assert read(text.replace("4896483166301.75,", "4896483166301.751,")).kernels[0].start == 4896483166301751


WHOLE = [op(), call(), kernel()]
TEXT = json.dumps(trace(*WHOLE), indent=1)
BARE = json.dumps(WHOLE, indent=1)
FAR = {"ph": "i", "name": "Record Window End", "pid": "", "tid": "", "ts": 9e10}
WINDOWS = TEXT.replace('"aten::mm"', '"C:\\Users\\me\\model.py(7): forward"')


@pytest.mark.parametrize(
    ("content", "kernels", "words"),
    [
        pytest.param(TEXT[: TEXT.index("mm_kernel")], 0, "cut short: its 2 whole events", id="3 cut in an event"),
        pytest.param(TEXT[: TEXT.rindex("}") - 4], 1, "cut short: its 3 whole events", id="3 cut after the events"),
        pytest.param(BARE, 1, "a bare list of events: it says nothing of the GPU", id="4 bare list"),
        pytest.param(BARE.rstrip().rstrip("]"), 1, "the list has no end: its 3 whole events", id="5 list without end"),
        pytest.param({"traceEvents": [trace(*WHOLE)]}, 1, "inside traceEvents", id="6 nested in the list"),
        pytest.param({"traceEvents": trace(*WHOLE)}, 1, "inside traceEvents", id="6 nested in an object"),
        pytest.param("\ufeff" + TEXT, 1, "", id="10 byte order mark"),
        pytest.param(TEXT.encode("utf-16"), 1, "", id="10 UTF-16"),
        pytest.param(TEXT.encode().replace(b"aten::mm", b"aten\xff"), 1, "no utf-8", id="bad encoding of a name"),
        pytest.param(TEXT.replace("mm_kernel", "mm\x01kernel"), 1, "control characters", id="12 control character"),
        pytest.param(WINDOWS, 1, "in event 'C:", id="13 path of Windows"),
        pytest.param(WINDOWS, 1, "record without with_stack", id="13 says what to do"),
        pytest.param(
            TEXT.replace('"tid": 100', 'tid": 100', 1),
            1,
            "1 damaged events were left out, the first at byte",
            id="quote",
        ),
        pytest.param(
            trace(op(), call()), 0, "launches, but no work of the GPU: what it did is unknown", id="14 no kernels"
        ),
        pytest.param(trace(op()), 0, "CPU only", id="15 CPU only"),
        pytest.param(trace(*WHOLE, kernel(ts=0, dur=0)), 2, "1 event of the GPU starts and ends at 0", id="16 zero"),
        pytest.param(
            trace(*WHOLE, kernel(ts=60.0, dur=-3)), 2, "1 event with an end before the start", id="17 negative"
        ),
        pytest.param(
            trace(*WHOLE, kernel("a", 50.0, 900.0, 8), kernel("b", 70.0, 5.0, 9)),
            3,
            "1 of 3 kernels ends long after the next one on its stream began, which cannot be: 0.90 of 0.92 ms",
            id="18 impossible",
        ),
        pytest.param(trace(call(), kernel(), kernel(ts=43.249)), 2, "", id="19 overlap by rounding"),
        pytest.param(trace(call(), kernel(ts="31.000")), 1, "1 events have their times as text", id="21 time as text"),
        pytest.param(trace(*WHOLE, kernel(ts="soon")), 1, "1 events have no time and were left out", id="21 no time"),
        pytest.param(
            trace(call("cudaGraphLaunch"), kernel(), kernel("b", 32.0)), 2, "", id="23 a graph's kernels overlap"
        ),
        pytest.param(trace(op(), kernel()), 1, "1 events were launched by a call that is not recorded", id="24 window"),
        pytest.param(
            trace(call(), call(pid=200), kernel()), 1, "a correlation that several processes gave", id="25 ranks"
        ),
        pytest.param(
            trace(*WHOLE, {**op(), "cat": "python_function"}, {**op(), "ph": "B"}, {**op(), "cat": None}),
            1,
            "3 events of other kinds were left out: python_function (1), ph 'B' (1), None (1)",
            id="28 unknown kinds",
        ),
        pytest.param(trace(*WHOLE, FAR), 1, "", id="29 end of the window a day later"),
        pytest.param(trace(*WHOLE, 7, None), 1, "2 entries are no events", id="no events"),
        pytest.param(trace(call("cudaMalloc")), 0, "calls of the runtime, but none that starts work", id="no launches"),
    ],
)
def test_an_odd_or_damaged_file_is_read_as_far_as_it_goes(content, kernels, words):
    profile = read(content)
    assert len(profile.kernels) == kernels
    assert words in said(profile)
    if not words:
        assert profile.remarks == []


@pytest.mark.parametrize("word", ["N/A", "NaN", "Infinity", "-Infinity", "nan"])
def test_a_bandwidth_that_is_no_number_is_missing_and_its_line_is_told(word):
    """11."""
    copy = {"device": 0, "stream": 7, "bytes": 0, "memory bandwidth (GB/s)": 999}
    text = json.dumps(
        trace(*WHOLE, event("gpu_memcpy", "Memcpy DtoD", 60.0, 0.0, 0, 7, correlation=7, **copy)), indent=1
    )
    line = next(number for number, row in enumerate(text.splitlines(), 1) if "999" in row)
    profile = read(text.replace("999", word))
    assert profile.of("copy")[0].value("memory bandwidth (GB/s)") is None
    assert f"figures that are no number (N/A, NaN or Infinity), first in line {line}, are missing" in said(profile)
    assert len(profile.remarks) == 1


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("trace.json", gzip.compress(TEXT.encode()), ""),
        ("trace.json.gz", TEXT.encode(), ""),
        ("trace.json.gz", gzip.compress(TEXT.encode())[:-30], "the packed file is cut short"),
    ],
    ids=["7 gzip named json", "8 json named gz", "9 gzip cut short"],
)
def test_packed_files_are_told_by_their_content(tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content)
    profile = torch_trace.read(opened(tmp_path / name))
    assert profile.events
    assert words in said(profile)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param('{"schemaVersion": 1, "deviceProperties": [', "ends or is damaged before its first event", id="3"),
        pytest.param(
            {"rocprofiler-sdk-tool": []}, "is JSON of rocprofv3, no Chrome trace; read it with", id="30 rocprofv3"
        ),
        pytest.param(
            {"other": 1}, "is JSON without traceEvents; export with prof.export_chrome_trace", id="other JSON"
        ),
        pytest.param(
            trace(),
            "holds no event of torch.profiler (kinds of events in it: none at all); keep the profiler",
            id="none",
        ),
        pytest.param(trace({**op(), "cat": "JAX"}), "(kinds of events in it: JAX)", id="another tool's trace"),
        pytest.param("hello", "is no Chrome trace", id="text"),
        pytest.param("[" * 100_000, "holds no event of torch.profiler", id="nested without end"),
    ],
)
def test_a_file_without_events_is_refused_in_one_sentence(content, words):
    text = content if isinstance(content, str) else json.dumps(content)
    with pytest.raises(ProfileUnreadable) as caught:
        torch_trace.read(Opened("trace.json", text.encode()))
    assert str(caught.value).startswith("trace.json ")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "content", [b"", b"SQLite format 3\x00", b'"ID","Process ID"', b'{"rocprofiler-sdk-tool": []}', b"[1, 2]"]
)
def test_files_of_other_tools_do_not_fit(content):
    assert not torch_trace.fits(Opened("x", content))


def test_an_empty_file_and_an_unfinished_one_are_named(tmp_path):
    """1 and 2."""
    from gpu_utils.profiling.reading import NAMED

    (tmp_path / "empty.json").write_text("")
    with pytest.raises(ProfileUnreadable, match="is empty: the profiler did not finish, or the disk is full"):
        opened(tmp_path / "empty.json")
    assert "torch.profiler renames it when it is written" in NAMED[".tmp"]


def test_a_graph_keeps_all_its_kernels_at_one_launch():
    """23."""
    profile = read(trace(call("cudaGraphLaunch"), kernel("a", 31.0, 2.0), kernel("b", 33.0, 2.0)))
    assert [one.correlation for one in profile.kernels] == [7, 7]
    assert len(profile.of("launch")) == 1


def test_ranks_with_one_correlation_stay_untied_and_their_operators_too():
    """25."""
    profile = read(trace(op(), call(External_id=1), call(pid=200, External_id=1), kernel(External_id=1)))
    (one,) = profile.kernels
    assert one.process is None
    assert one.value("op") is None


def test_sizes_that_nobody_wrote_are_unknown():
    """26: never 1 x 1 x 1."""
    (one,) = read(trace(call("hipLaunchKernel"), kernel(), device=ROCM)).kernels
    assert one.value("grid") is None
    assert one.value("block") is None


def test_an_estimate_of_zero_is_kept():
    """31."""
    (one,) = read(trace(call(), kernel(**{"est. achieved occupancy %": 0}))).kernels
    assert one.value("occupancy_estimate") == 0


def test_odd_threads_and_processes_are_labels():
    """22."""
    profile = read(trace({**op(), "tid": "", "pid": "Spans"}, event("overhead", "x", 1.0, 2.0, -1, -1)))
    assert [(one.lane, one.process) for one in profile.events] == [("thread ", None), ("thread -1", -1)]


def test_an_impossible_duration_leaves_the_kernel_without_one():
    """18."""
    profile = read(trace(*WHOLE, kernel("a", 50.0, 900.0, 8), kernel("b", 70.0, 5.0, 9)))
    assert [one.duration for one in profile.kernels] == [12_250, None, 5_000]


def test_streams_that_hold_several_are_said_to_but_keep_their_durations():
    kernels = [kernel("a", 50.0 * number, 120.0, number) for number in range(4)]
    profile = read(trace(*(call(correlation=number) for number in range(4)), *kernels))
    assert "3 of 4 kernels run beside the next one on their stream" in said(profile)
    assert all(one.duration == 120_000 for one in profile.kernels)


def test_the_old_export_tells_host_and_gpu_by_its_processes():
    """4: without categories."""
    old = [
        {"name": "aten::mm", "ph": "X", "ts": 10, "dur": 5, "tid": 1, "pid": "CPU functions", "args": {}},
        {"name": "mm_kernel", "ph": "X", "ts": 12, "dur": 2, "tid": "CUDA0", "pid": "CUDA functions", "args": {}},
    ]
    assert [one.kind for one in read(old).events] == ["op", "kernel"]


def test_counters_in_a_trace_become_columns():
    counters = {"dram__bytes_read.sum": 4096, "x__y.sum": 3}
    one = read(trace(*WHOLE, {**event("cuda_profiler_range", "mm_kernel", 1.0, 2.0, 0, 0), "args": counters})).events[
        -1
    ]
    assert (one.value("memory_read"), one.value("x__y.sum")) == (4096, 3)


def test_args_that_are_not_known_are_kept_under_their_names():
    one = read(trace({**op(), "args": {"External id": 1, "Input Dims": [[2, 3], [3, 4]], "note": "N/A"}})).events[0]
    assert one.figures["Input Dims"].value == [[2, 3], [3, 4]]
    assert one.figures["Input Dims"].source == "torch: Input Dims"
    assert one.value("note") is None


@pytest.mark.parametrize(("name", "operators"), [("forward.json", 98), ("step.json.gz", 388)])
def test_a_recorded_trace_of_a_cpu_is_read(name, operators):
    """See the README beside it for what was recorded, and how."""
    profile = torch_trace.read(opened(FIXTURES / f"torch_cpu_2.13.0_{name}"))
    assert len(profile.of("op")) == operators
    assert {one.name for one in profile.of("range")} >= {"attention", "mlp"}
    assert "aten::scaled_dot_product_attention" in {one.name for one in profile.of("op")}
    assert all(one.duration is not None and one.duration >= 0 for one in profile.events)
    assert [remark.split(": ")[1] for remark in profile.remarks] == ["CPU only"]
    assert not profile.devices
