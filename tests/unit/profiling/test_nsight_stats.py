"""csv of nsys stats: every report of now and of before, several in one file, odd and damaged ones."""

import pytest

from gpu_utils.errors import ProfileUnreadable
from gpu_utils.profiling import nsight_stats
from gpu_utils.profiling.files import Opened

SUM = "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n"
SUMS = SUM + '75.0,3000000,3,1000000.0,990000.0,980000,1030000,26457.5,"gemm<float, 4>(int, float *)"\n'
SUMS += "25.0,1000000,1,1000000.0,1000000.0,1000000,1000000,0.0,add(float *)\n"
TRACE = "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),DymSMem (MB),Bytes (MB),"
TRACE += "Throughput (MB/s),SrcMemKd,DstMemKd,Device,Ctx,GreenCtx,Strm,Name\n"
LAUNCH = "1000,500,7,16,8,1,256,1,1,64,0.001,0.098,,,,,NVIDIA H100 80GB HBM3 (0),1,,7,add(float *)\n"
COPY = "2000,300,8,,,,,,,,,,4.096,13653.3,Pageable,Device,NVIDIA H100 80GB HBM3 (0),1,,7,[CUDA memcpy Host-to-Device]\n"
FILL = "2500,100,9,,,,,,,,,,0.001,10.0,Device,,NVIDIA H100 80GB HBM3 (0),1,,7,[CUDA memset]\n"
CALLS = "Start (ns),Duration (ns),Name,Result,CorrID,Pid,Tid,T-Pri,Thread Name\n"
CALLS += "100,200,cudaLaunchKernel,0,7,4242,4243,20,python\n400,900,cudaMemcpyAsync,0,8,4242,4243,20,python\n"
CALLS += "1500,700,cudaDeviceSynchronize,0,9,4242,4243,20,python\n"
CALL_SUM = "Time (%),Total Time (ns),Num Calls,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n"
CALL_SUM += (
    "60.0,600,3,200.0,200.0,100,300,81.6,cudaLaunchKernel\n40.0,400,1,400.0,400.0,400,400,0.0,cudaDeviceSynchronize\n"
)
MEMORY = "Time (%),Total Time (ns),Count,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Operation\n"
MEMORY += "100.0,900,3,300.0,300.0,300,300,0.0,[CUDA memcpy Host-to-Device]\n"
SIZES = "Total (MB),Count,Avg (MB),Med (MB),Min (MB),Max (MB),StdDev (MB),Operation\n"
SIZES += "12.288,3,4.096,4.096,4.096,4.096,0.000,[CUDA memcpy Host-to-Device]\n"


def said_before(report):
    return f"Processing [x.sqlite] with [/opt/nsys/reports/{report}.py]...\n\n"


def read(text, name="x.csv"):
    found = Opened(name, text if isinstance(text, bytes) else text.encode())
    assert nsight_stats.fits(found)
    return nsight_stats.read(found)


def said(profile):
    return " | ".join(profile.remarks)


def test_a_trace_of_the_gpu_has_launches_copies_and_fills():
    profile = read(TRACE + LAUNCH + COPY + FILL)
    one, copy, fill = profile.events
    assert (one.kind, one.name, one.start, one.end) == ("kernel", "add(float *)", 1000, 1500)
    assert (one.lane, one.device, one.correlation) == ("stream 7", "0", 7)
    assert (one.value("grid"), one.value("block"), one.value("registers")) == ((16, 8, 1), (256, 1, 1), 64)
    assert one.value("shared_bytes") == 99_000
    assert one.figures["shared_bytes"].source == "nsys stats: StcSMem + DymSMem, rounded there"
    assert (copy.kind, copy.value("bytes"), copy.value("direction")) == ("copy", 4_096_000, "host to device")
    assert copy.figures["Throughput"].unit == "MB/s"
    assert copy.value("grid") is None
    assert (fill.kind, fill.value("bytes")) == ("fill", 1000)
    device = profile.devices["0"]
    assert (device.name, device.vendor, device.target) == ("NVIDIA H100 80GB HBM3", "nvidia", "sm_90")
    assert "device name" not in one.figures
    assert profile.remarks == []


def test_calls_in_the_same_file_give_their_process_to_the_work():
    profile = read(said_before("cuda_gpu_trace") + TRACE + LAUNCH + COPY + "\n" + said_before("cuda_api_trace") + CALLS)
    assert [one.kind for one in profile.events] == ["kernel", "copy", "launch", "launch", "sync"]
    assert {one.process for one in profile.events} == {4242}
    assert profile.of("launch")[0].lane == "thread 4243"
    assert profile.origins[0].form == "csv: cuda_gpu_trace, cuda_api_trace"
    assert profile.remarks == []


def test_sums_carry_their_calls_and_say_what_they_cannot_show():
    profile = read(said_before("cuda_gpu_kern_sum") + SUMS)
    one = profile.kernels[0]
    assert (one.name, one.start) == ("gemm<float, 4>(int, float *)", None)
    assert (one.duration, one.value("calls")) == (3_000_000, 3)
    assert one.figures["duration"].source == "nsys stats: Total Time, of all calls"
    assert (one.figures["Avg"].value, one.figures["Avg"].unit) == (1e6, "ns")
    assert (one.figures["Time"].value, one.figures["Time"].unit) == (75, "%")
    assert said(profile) == "x.csv: sums only: no order of launches, no gaps, no overlap; those are in cuda_gpu_trace"


def test_sums_of_calls_and_of_copies_are_read():
    profile = read(SUMS + "\n" + CALL_SUM + "\n" + MEMORY + "\n" + SIZES)
    kinds = [(one.kind, one.value("calls"), one.duration) for one in profile.events]
    assert kinds == [
        ("kernel", 3, 3_000_000),
        ("kernel", 1, 1_000_000),
        ("launch", 3, 600),
        ("sync", 1, 400),
        ("copy", 3, 900),
    ]
    copy = profile.events[-1]
    assert (copy.value("bytes"), copy.value("direction")) == (12_288_000, "host to device")


OLD = (
    "Time(%),Total Time (ns),Instances,Average (ns),Minimum (ns),Maximum (ns),Name\n100.0,50,5,10.0,9,11,add(float *)\n"
)
NO_UNIT = "Time(%),Total Time (ns),Instances,Average,Minimum,Maximum,Name\n100.0,50,5,10.0,9,11,add(float *)\n"
GRIDS = "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),GridXYZ,BlockXYZ,Name\n"
GRIDS += '100.0,50,5,10.0,10.0,9,11,1.0," 16    8    1"," 256    1    1",add(float *)\n'
OLD_TRACE = TRACE.replace("GreenCtx,", "").replace("MB/s", "MBps") + LAUNCH.replace(",1,,7,", ",1,7,")
WHOLE = "Category,Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Operation\n"
WHOLE += "CUDA_KERNEL,100.0,50,5,10.0,10.0,9,11,1.0,add(float *)\n"
MICRO = SUMS.replace("(ns)", "(us)").replace("3000000,3,", "3000.000,3,")
TABS = TRACE.replace(",", "\t") + LAUNCH.replace(",", "\t")


@pytest.mark.parametrize(
    ("text", "kernels", "words"),
    [
        pytest.param(OLD, 1, "", id="old spelling"),
        pytest.param(NO_UNIT, 1, "", id="older spelling"),
        pytest.param(GRIDS, 1, "", id="sizes in the sums"),
        pytest.param(WHOLE, 1, "", id="kernels and copies together"),
        pytest.param(OLD_TRACE, 1, "", id="old trace"),
        pytest.param(TABS, 1, "", id="tabs"),
        pytest.param("\ufeff" + SUMS.replace("\n", "\r\n"), 2, "", id="BOM and CRLF"),
        pytest.param(SUMS.encode("utf-16"), 2, "", id="UTF-16"),
        pytest.param(
            said_before("cuda_gpu_kern_sum") + SUMS + "\n" + said_before("cuda_api_sum") + CALL_SUM, 2, "", id="73"
        ),
        pytest.param(
            "SKIPPED: x.sqlite does not contain NV Tools Extension (NVTX) data.\n" + SUMS,
            2,
            "skipped, x.sqlite does not",
            id="74",
        ),
        pytest.param(SUM + "100.0,50,5,10.0,10.0,9,11,1.0,gemm<float, 4>(int, float *)\n", 1, "", id="76 commas"),
        pytest.param(SUMS.replace("25.0", "24.9"), 2, "", id="78 shares of 99.9"),
        pytest.param(
            SUM + "40.0,50,5,10.0,10.0,9,11,1.0,add\n",
            1,
            "shares of time in a report add up to 40 %, not 100",
            id="78 of 40",
        ),
        pytest.param(SUMS + "10.0,50,5,10.0,1", 2, "1 line left out: no whole row", id="cut in a row"),
        pytest.param(
            SUMS + '10.0,50,5,10.0,10.0,9,11,1.0,"gem', 2, "1 line left out: no whole row", id="cut in a name"
        ),
        pytest.param(
            SUMS + "\nName,A (ns),B (ns)\nx,1,2\n", 2, "reports that were not read: Name, A, B (1 row)", id="unknown"
        ),
        pytest.param(
            CALLS, 0, "no kernels in these reports; they are in: nsys stats --report cuda_gpu_trace", id="calls only"
        ),
    ],
)
def test_reports_of_any_version_are_read_as_far_as_they_go(text, kernels, words):
    profile = read(text)
    assert len(profile.kernels) == kernels
    assert all(one.duration for one in profile.kernels)
    assert words in said(profile)
    if not words:
        assert all("sums only" in remark for remark in profile.remarks)


@pytest.mark.parametrize(
    ("unit", "value"), [("us", "3000.000"), ("ms", "3.000"), ("s", "0.003"), ("usec", "3000"), ("ns", '"3,000,000"')]
)
def test_units_are_those_of_the_header(unit, value):
    """75."""
    text = f"Time (%),Total Time ({unit}),Instances,Avg ({unit}),Name\n100.0,{value},3,{value},add\n"
    (one,) = read(text).kernels
    assert one.duration == 3_000_000
    assert (one.figures["Avg"].value, one.figures["Avg"].unit) == (3e6, "ns")


def test_the_sizes_of_a_sum_of_launches_are_read():
    assert read(GRIDS).kernels[0].value("grid") == (16, 8, 1)
    assert read(OLD).kernels[0].value("Avg") == 10


def test_sums_do_not_count_again_what_a_trace_has():
    profile = read(TRACE + LAUNCH + COPY + "\n" + SUMS + "\n" + MEMORY)
    assert len(profile.events) == 2
    assert "3 sums left out of what the traces in this file give one by one" in said(profile)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            said_before("cuda_gpu_kern_sum") + "SKIPPED: x.sqlite does not contain CUDA kernel data.\n",
            "holds no row, because x.sqlite does not contain CUDA kernel data; profile again with --trace=cuda",
        ),
        (SUM, "holds a header of nsys stats and no row"),
        ("Name,A (ns),B (ns)\nx,1,2\n", "holds no report that is read here (Name, A, B (1 row)); ask for --report"),
        (
            " ** CUDA GPU Kernel Summary (cuda_gpu_kern_sum):\n\n Time (%)  Total Time (ns)\n 100.0  50\n",
            "is what nsys stats prints for people; ask for csv: nsys stats --report cuda_gpu_kern_sum --format csv",
        ),
    ],
    ids=["74 skipped", "header only", "other report", "printed table"],
)
def test_what_holds_no_row_is_refused_in_one_sentence(text, words):
    with pytest.raises(ProfileUnreadable) as caught:
        read(text)
    assert str(caught.value).startswith("x.csv ")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        b"SQLite format 3\x00",
        b'{"traceEvents": []}',
        b'"Name","Calls","TotalDurationNs","AverageNs"\n"add",1,2,2\n',
        b"hello (world)\n",
    ],
)
def test_files_of_other_tools_do_not_fit(content):
    assert not nsight_stats.fits(Opened("x", content))


def test_ranges_of_nvtx_are_read():
    text = (
        "Start (ns),End (ns),Duration (ns),DurChild (ns),DurNonChild (ns),Name,PID,TID,Lvl,NumChild,RangeId,ParentId\n"
    )
    profile = read(text + "100,900,800,0,800,step,4242,4243,0,0,1,\n")
    (one,) = profile.of("range")
    assert (one.name, one.start, one.end, one.lane, one.process) == ("step", 100, 900, "thread 4243", 4242)
