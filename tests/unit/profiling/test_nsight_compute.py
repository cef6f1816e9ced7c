"""Outputs of ncu --csv, whole, odd and damaged: what is read, and which sentence refuses the rest."""

import pytest

from gpu_utils.errors import ProfileUnreadable
from gpu_utils.profiling import nsight_compute
from gpu_utils.profiling.files import Opened

LAUNCH = ["ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size"]
LAUNCH += ["Grid Size", "Device", "CC"]
LONG = [*LAUNCH, "Section Name", "Metric Name", "Metric Unit", "Metric Value"]
RULES = ["Rule Name", "Rule Type", "Rule Description", "Estimated Speedup Type", "Estimated Speedup"]
ADD = "add(int, float *)"


def line(*cells, delimiter=","):
    return delimiter.join('"' + str(cell).replace('"', '""') + '"' for cell in cells) + "\n"


def launch(number=0, name=ADD, process=4242):
    return [number, process, "app", "127.0.0.1", name, 1, 7, "(256, 1, 1)", "(4096, 2, 1)", 0, "9.0"]


def row(metric, unit, value, section="Command line profiler metrics", delimiter=",", **who):
    return line(*launch(**who), section, metric, unit, value, delimiter=delimiter)


def long(*rows, header=LONG):
    return line(*header) + "".join(rows)


def read(text, name="x.csv"):
    found = Opened(name, text.encode() if isinstance(text, str) else text)
    assert nsight_compute.fits(found)
    return nsight_compute.read(found)


def one(text):
    profile = read(text)
    (event,) = profile.events
    return event, " | ".join(profile.remarks)


def test_a_launch_in_long_form_has_its_sizes_lane_and_device():
    profile = read(
        "==PROF== Connected to process 4242 (/tmp/app)\n" + long(row("dram__bytes.sum", "byte", "12,582,912"))
    )
    (event,) = profile.kernels
    assert (event.name, event.lane, event.device, event.process, event.number) == (ADD, "stream 7", "0", 4242, 0)
    assert event.value("grid") == (4096, 2, 1)
    assert event.value("block") == (256, 1, 1)
    assert event.figures["memory_bytes"].value == 12582912
    assert event.figures["memory_bytes"].source == "ncu: dram__bytes.sum"
    assert profile.devices["0"].target == "sm_90"
    assert not profile.virtual
    assert profile.remarks == []


def test_the_wide_form_takes_its_units_from_the_second_row():
    names = ["dram__bytes.sum", "gpu__time_duration.sum", "sm__x.avg", "device__attribute_display_name"]
    text = line(*LAUNCH, *names, "launch__sm_count")
    text += line(*[""] * len(LAUNCH), "Mbyte", "usecond", "", "", "SM") + line(
        *launch(), "12.5", "11.25", "3", "NVIDIA H100", "132"
    )
    profile = read(text)
    (event,) = profile.events
    assert (event.value("memory_bytes"), event.duration, event.value("sm__x.avg")) == (12_500_000, 11_250, 3)
    assert (profile.devices["0"].name, profile.devices["0"].units) == ("NVIDIA H100", 132)


UNITS = [  # metric, unit, value -> column, value
    ("gpu__time_duration.sum", "nsecond", "11,584", "duration", 11584),
    ("gpu__time_duration.sum", "ns", "11,584.00", "duration", 11584),
    ("gpu__time_duration.sum", "us", "11.58", "duration", 11580),
    ("gpu__time_duration.sum", "usecond", "11.58", "duration", 11580),
    ("gpu__time_duration.sum", "ms", "1.5", "duration", 1_500_000),
    ("Duration", "msecond", "1.5", "duration", 1_500_000),
    ("gpu__time_duration.sum", "second", "1.5", "duration", 1_500_000_000),
    ("dram__bytes_read.sum", "Kbyte", "1.5", "memory_read", 1500),
    ("dram__bytes_read.sum", "Gbyte", "2.25", "memory_read", 2_250_000_000),
    ("dram__bytes_read.sum", "byte", "1,215,000,000.00", "memory_read", 1_215_000_000),
    ("DRAM Throughput", "%", "61.5", "memory_busy", 61.5),
    ("Duration gpu__time_duration.sum", "us", "2.5", "duration", 2500),
    ("smsp__thread_inst_executed_per_inst_executed.ratio", "", "16", "lanes_on", 50),
    ("Registers Per Thread", "register/thread", "32", "registers", 32),
    ("tiny", "", "4.0e-05", "tiny", 4e-05),
    ("sm__cycles_elapsed.avg.per_second", "cycle/nsecond", "1.5", "sm__cycles_elapsed.avg.per_second", 1.5e9),
    ("sm__cycles_elapsed.avg.per_second", "Ghz", "1.5", "sm__cycles_elapsed.avg.per_second", 1.5e9),
    ("per_cu", "", "240; 240; 241", "per_cu", [240, 240, 241]),
    ("total", "", "721 (240; 240; 241)", "total", 721),
    ("total", "", "721 (0: 240; 1: 240; 2: 241)", "total of each", [240, 240, 241]),
    ("launch__func", "", "some text", "launch__func", "some text"),
]


@pytest.mark.parametrize(("metric", "unit", "value", "column", "expected"), UNITS)
def test_units_and_forms_of_values(metric, unit, value, column, expected):
    event, remarks = one(long(row(metric, unit, value)))
    assert event.value(column) == pytest.approx(expected) if not isinstance(expected, str) else expected
    assert remarks == ""


def test_missing_values_are_missing_and_counted():
    texts = ["n/a", "", "(!) n/a", "no data", "nan"]
    event, remarks = one(long(*[row(f"m{i}", "", text) for i, text in enumerate(texts)]))
    assert set(event.figures) == {"grid", "block"}
    assert "not there (n/a): 4" in remarks


LOCALES = [  # two values -> how they read, and words of the remark
    (("27.595.520", "65,77"), (27595520, 65.77), ""),
    (("117.344", "65,77"), (117344, 65.77), ""),
    (("117.344", "65.77"), (117.344, 65.77), ""),
    (("117.344", "12"), (117.344, 12), "117.344 may be"),
    (("12,345", "12"), (12345, 12), ""),
    (("27.595.520", "1,215,000.5"), (27595520, 1215000.5), "two conventions"),
    (("1'215'000", "1\u202f215\u202f000"), (1215000, 1215000), ""),
]


@pytest.mark.parametrize(("values", "expected", "words"), LOCALES)
def test_numbers_of_a_european_system(values, expected, words):
    event, remarks = one(long(row("a", "", values[0]), row("b", "", values[1])))
    if "two" not in words:
        assert (event.value("a"), event.value("b")) == pytest.approx(expected)
    assert words in remarks
    assert bool(words) == bool(remarks)


REFUSED = [  # text -> words of the sentence
    ("==PROF== Connected to process 1 (/a)\n==PROF== Disconnected from process 1\n", "give --csv"),
    ("==PROF== Connected\n==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n", "run it as root"),
    ("==WARNING== No kernels were profiled.\nAvailable Kernels:\n1. add, int\n", "name filter (-k"),
    ("==WARNING== Profiling kernels launched by child processes requires the --target-processes all.\n", "child"),
    ("==ERROR== The application returned an error code (1).\n", "without ncu"),
    ("==ERROR== Profiling failed because a driver resource was unavailable.\n", "DCGM"),
    (row("a", "", 1) + row("b", "", 2), 'begins with "ID"'),
    ('"Kernel Name","add"\n"File Path","x.cu"\n"Line No","Source","# Samples"\n"1","x = 1;","7"\n', "source page"),
    (line("Process ID", "Kernel Name", "Invocations", "Metric Name") + line(1, ADD, 3, "a"), "--print-summary"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "words"), REFUSED)
def test_what_is_no_table_is_refused_with_its_cause(text, words):
    with pytest.raises(ProfileUnreadable, match=r"x\.csv") as caught:
        read(text)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_permission_is_the_cause_though_no_kernel_was_profiled_either():
    with pytest.raises(ProfileUnreadable, match="NVreg_RestrictProfilingToAdminUsers=0"):
        read("==WARNING== No kernels were profiled.\n==ERROR== ERR_NVGPUCTRPERM - The user\n" + line(*LONG))


def test_output_of_the_program_between_rows_costs_only_its_lines():
    noise = 'step 1, loss "0.5\n1,2,3\n"a","b"\n'
    event, remarks = one("hello, world\n" + long(row("a", "", 1), noise, row("b", "", 2)))
    assert (event.value("a"), event.value("b")) == (1, 2)
    assert "left out: 4" in remarks


def test_a_pasted_second_table_counts_on():
    profile = read(
        long(row("a", "", 1)) + "==PROF== Disconnected from process 1\n" + long(row("a", "", 2), header=LONG)
    )
    assert [(event.number, event.value("a")) for event in profile.events] == [(0, 1), (1, 2)]
    assert "pasted" in profile.remarks[0]


def test_one_id_in_two_processes_is_two_launches():
    profile = read(long(row("a", "", 1), row("a", "", 2, process=4243), row("b", "", 3)))
    assert [(event.process, event.value("a"), event.value("b")) for event in profile.events] == [
        (4242, 1, 3),
        (4243, 2, None),
    ]


def test_the_header_of_2019_has_a_time_and_no_sizes():
    header = [*LAUNCH[:5], "Kernel Time", *LAUNCH[5:7], *LONG[-4:]]
    event, _ = one(
        line(*header) + line(*launch()[:5], "2020-Apr-07 17:01:05", 1, 7, "Sol", "Duration", "usecond", "2.50")
    )
    assert event.duration == 2500
    assert event.value("grid") is None
    assert event.value("block") is None


def test_a_wide_table_without_units_keeps_times_and_bytes_apart():
    names = ["dram__bytes.sum", "smsp__inst_executed.sum"]
    event, remarks = one(line(*LAUNCH, *names) + line(*launch(), "12.5", "7"))
    assert event.value("memory_bytes") is None
    assert (event.value("dram__bytes.sum"), event.value("instructions")) == (12.5, 7)
    assert "row of units" in remarks


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_delimiters(delimiter):
    text = line(*LONG, delimiter=delimiter) + row("a", "", "1", delimiter=delimiter)
    assert one(text)[0].value("a") == 1


def test_units_that_differ_from_row_to_row():
    profile = read(long(row("dram__bytes.sum", "Mbyte", "1.5"), row("dram__bytes.sum", "Kbyte", "2.5", number=1)))
    assert [event.value("memory_bytes") for event in profile.events] == [1_500_000, 2500]


def test_rule_rows_are_counted_also_when_a_cell_short():
    rule = [*launch(), "SpeedOfLight", "", "", "", "Bottleneck", "OPT", "Look\nhere, at 'x'", "global", "12"]
    text = line(*LONG, *RULES) + line(*launch(), "S", "a", "", "1", *[""] * 5) + line(*rule) + line(*rule[:-1])
    event, remarks = one(text)
    assert event.value("a") == 1
    assert remarks == "x.csv: rows of ncu's rules (advice, no figures), left out: 2"


SAME = [  # (unit, value) twice -> figures, whether a remark
    (("us", "11.58"), ("us", "11.58"), {"duration": 11580}, False),
    (("us", "11.58"), ("ns", "11584"), {"duration": 11580}, False),
    (("us", "11.58"), ("us", "12.5"), {"duration": 11580, "Duration": 12500}, True),
]


@pytest.mark.parametrize(("first", "second", "figures", "remark"), SAME)
def test_one_metric_in_two_sections(first, second, figures, remark):
    event, remarks = one(long(row("Duration", *first, section="A"), row("Duration", *second, section="B")))
    assert {name: event.value(name) for name in event.figures if name not in ("grid", "block")} == figures
    assert ("stand twice" in remarks) == remark


def test_one_label_of_two_metrics_is_told_apart_by_unit():
    event, remarks = one(long(row("Memory Throughput", "%", 40.5), row("Memory Throughput", "Gbyte/second", 140.5)))
    assert (event.value("Memory Throughput"), event.value("Memory Throughput (bytes/s)")) == (40.5, 140.5e9)
    assert remarks == ""


def test_names_with_commas_and_quotes_are_one_cell():
    assert one(long(row("a", "", 1, name='f<"a", 2>(int, float *)')))[0].name == 'f<"a", 2>(int, float *)'


def test_ranges_of_nvtx_stand_between_and_are_kept():
    nvtx = "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
    text = line(*LONG[:4], nvtx, *LONG[4:]) + line(*launch()[:4], "step 3", *launch()[4:], "S", "a", "", 1)
    event, _ = one(text)
    assert (event.name, event.value("a"), event.value(nvtx)) == (ADD, 1, "step 3")


@pytest.mark.parametrize(("value", "flagged"), [("100.03", False), ("250", True)])
def test_shares_above_100(value, flagged):
    event, remarks = one(long(row("DRAM Throughput", "%", value)))
    assert event.value("memory_busy") == float(value)
    assert ("above 100 %" in remarks) == flagged


def test_a_metric_that_a_launch_lacks_is_missing_there_only():
    profile = read(long(row("a", "", 1), row("b", "", 2), row("a", "", 3, number=1), row("b", "", "n/a", number=1)))
    assert [(event.value("a"), event.value("b")) for event in profile.events] == [(1, 2), (3, None)]


def test_utf_16_crlf_and_a_row_that_is_cut():
    text = long(row("a", "", 1), row("b", "", 2)[:60]).replace("\n", "\r\n").rstrip("\r\n")
    profile = read(text.encode("utf-16"))
    assert profile.events[0].value("a") == 1
    assert profile.remarks == ["x.csv: the last row is cut short and was left out"]


def test_what_ncu_warns_of_is_a_remark_of_the_table():
    _, remarks = one("==WARNING== Launching the workload is taking more time than expected.\n" + long(row("a", "", 1)))
    assert "ncu says: Launching the workload" in remarks


def test_a_table_without_rows_says_that_no_launch_was_recorded():
    profile = read(long())
    assert profile.events == []
    assert "no launch was recorded" in profile.remarks[0]


@pytest.mark.parametrize(
    "text", ['{"traceEvents": []}', '"Name","Calls"\n', "SQLite format 3\0ID Kernel Name", "hello\n"]
)
def test_other_files_are_not_for_this_reader(text):
    assert not nsight_compute.fits(Opened("x", text.encode()))


def test_what_differs_on_a_virtual_gpu_is_one_remark_for_each_reason():
    said = "".join(f"==PROF== virtual GPU, not a device: m{at}: counts PTX\n" for at in range(4))
    _, remarks = one(said + long(row("a", "", 1)))
    assert remarks == "x.csv: virtual GPU, not a device: counts PTX (m0, m1 and 2 more)"
