"""Files that the exercises of unit 13 are drawn from are valid, and what is said of a wrong row names row and field."""

from __future__ import annotations

import csv
import json
import random

import pytest

from gpu_utils.analytic.tolerance import EXACT
from gpu_utils.exercises.u13_profiling import read_ncu_slips, read_rocprof_slips, read_trace_slips
from gpu_utils.exercises.u13_profiling.rows import wrong_row
from gpu_utils.exercises.u13_profiling.tiny import FILES
from gpu_utils.exercises.u13_profiling.written import VENDORS, trace
from gpu_utils.exercises.u13_profiling.written_tables import FORMS, GENERATIONS, ncu, rocprof
from gpu_utils.profiling.reading import read_texts

ROWS = [{"kernel": "a", "grid": (2, 1, 1), "read": 1024.0}, {"kernel": "b", "grid": None, "read": None}]


def with_other(at, **fields):
    return [row | (fields if number == at else {}) for number, row in enumerate(ROWS)]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (
            with_other(0, read=1.0),
            "row 0, 'a': read is 1.0, expected 1024.0; expected is 1,024 times yours (read is wrong",
        ),
        (with_other(1, grid=(1, 1, 1)), "row 1, 'b': grid is (1, 1, 1), expected None (grid is wrong in 1 of 2 rows)"),
        (with_other(1, read=0.0), "row 1, 'b': read is 0.0, expected None"),
        (with_other(0, read=True), "row 0, 'a': read is True, expected 1024.0"),
        (ROWS[:1], "1 row came back, expected 2; row 1, 'b', is missing"),
        (ROWS[1:], "1 row came back, expected 2; row 0 is 'b', expected 'a'"),
        ([*ROWS, ROWS[0]], "3 rows came back, expected 2; row 2, 'a', is one too many"),
        (with_other(0, blocks=2), "row 0 has a field 'blocks' that was not asked for"),
        ([{"kernel": "a"}], "row 0 has no field 'grid'; it has kernel"),
        ([{"x" * 3_000_000: 1}], f"row 0 has no field 'kernel'; it has {'x' * 57}..."),
        (with_other(0, read=10**400), "row 0, 'a': read is 1000"),
        (with_other(0, grid=[10**5000, 1, 1]), "row 0, 'a': grid is a number of very many digits, expected (2, 1, 1)"),
        ([("a", 1)], "row 0 is ('a', 1), expected a dict with kernel, grid, read"),
        ({"a": 1}, "the result is {'a': 1}, expected a list with one dict for each kernel"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_a_wrong_row_is_named_with_its_field(found, said):
    assert said in wrong_row(ROWS, found, EXACT, "kernel").detail


@pytest.mark.parametrize(
    ("found", "said"), [([{}], "; row 0 is one too many"), ([{"kernel": "a"}], "; row 0, 'a', is one too many")]
)
def test_a_row_where_there_are_none_is_told(found, said):
    assert wrong_row([], found, EXACT, "kernel").detail == f"1 row came back, expected 0{said}"


def test_right_rows_are_right_with_lists_for_tuples():
    assert wrong_row(ROWS, with_other(0, grid=[2, 1, 1]), EXACT, "kernel") is None


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_trace_is_json_and_follows_from_the_seed(vendor):
    text = trace(random.Random(3), vendor, ops=6)
    assert text == trace(random.Random(3), vendor, ops=6)
    events = json.loads(text)["traceEvents"]
    starts = [event["ts"] for event in events if event.get("cat") == "kernel"]
    assert len(set(starts)) == len(starts)
    calls = {event["args"].get("correlation") for event in events if event["cat"].startswith("cuda_")}
    assert {e["args"]["correlation"] for e in events if e["cat"] == "gpu_memcpy"} <= calls


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_kernel_begins_after_its_launch_and_after_the_one_before_on_its_stream(vendor):
    rows = read_trace_slips.right(trace(random.Random(4), vendor, ops=12, devices=2))
    assert all(row["delay"] > 0 for row in rows if row["delay"] is not None)
    until: dict[tuple[int, int], float] = {}
    for row in rows:
        place = row["device"], row["stream"]
        assert row["start"] > until.get(place, 0)
        until[place] = row["start"] + row["duration"]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("vendor", VENDORS)
def test_a_trace_has_events_with_the_numbers_of_others(vendor, seed):
    events = json.loads(trace(random.Random(seed), vendor, ops=6))["traceEvents"]
    ran = [event for event in events if event["ph"] == "X"]
    kernels = [event for event in ran if event["cat"] == "kernel"]
    calls = {e["args"].get("correlation") for e in ran if e["cat"].startswith("cuda_")}
    ops = {e["args"]["External id"] for e in ran if e["cat"] == "cpu_op"}
    first = next(at for at, event in enumerate(ran) if event["cat"] == "cpu_op")
    ranges = {e["args"]["External id"] for e in ran[:first] if e["cat"] == "user_annotation"}
    assert ops & ranges & {e["args"].get("External id") for e in kernels}
    graph = next(e["args"]["correlation"] for e in ran if e["name"].endswith("GraphLaunch"))
    cats = [e["cat"] for e in ran if e["args"].get("correlation") == graph]
    assert (cats[0], cats[-1], cats.count("kernel")) == ("gpu_memcpy", "gpu_memcpy", 2)
    assert any(e["args"]["correlation"] not in calls and e["args"].get("External id") in ops for e in kernels)
    assert any(e["tid"] != e["args"]["stream"] for e in kernels)


@pytest.mark.parametrize("form", FORMS)
def test_lines_of_a_table_of_ncu_are_those_with_a_quote_and_no_row_is_longer_than_its_header(form):
    text = ncu(random.Random(5), form, kernels=5, processes=2)
    header, *rows = csv.reader(line for line in text.splitlines() if line.startswith('"'))
    assert header[0] == "ID"
    assert all(len(header) - len(row) in (0, 1) for row in rows)
    assert len(read_ncu_slips.right(text)) == 10


@pytest.mark.parametrize("generation", GENERATIONS)
def test_tables_of_rocprof_have_one_row_for_each_figure(generation):
    traced, counted = rocprof(random.Random(6), generation, dispatches=9)
    for text in (traced, counted):
        header, *rows = csv.reader(text.splitlines())
        assert {len(row) for row in rows} == {len(header)}
    rows = read_rocprof_slips.right(traced, counted)
    assert len(rows) == 8
    assert any(row["duration"] is None for row in rows)
    assert [row["start"] for row in rows] == sorted(row["start"] for row in rows)


def test_both_tiny_tables_of_ncu_say_the_same():
    assert read_ncu_slips.right(FILES["ncu.csv"]) == read_ncu_slips.right(FILES["ncu_wide.csv"])


# --- two readers of one file: the library's own knows nothing of the exercises --------------------------------------


def triple(size):
    return None if size is None else tuple(size)


@pytest.mark.parametrize("vendor", VENDORS)
def test_the_library_reads_the_same_kernels_from_a_trace(vendor):
    text = trace(random.Random(7), vendor, ops=7, devices=2)
    mine = [(r["name"], round(1000 * r["duration"]), triple(r["grid"])) for r in read_trace_slips.right(text)]
    assert mine == [(k.name, k.duration, triple(k.value("grid"))) for k in read_texts({"trace.json": text}).kernels]


@pytest.mark.parametrize("form", FORMS)
def test_the_library_reads_the_same_launches_from_a_table_of_ncu(form):
    text = ncu(random.Random(8), form, kernels=4, processes=2)
    found = {(k.process, k.number): k for k in read_texts({"ncu.csv": text}).kernels}
    for row in read_ncu_slips.right(text):
        kernel = found.pop((row["process"], row["id"]))
        assert (kernel.name, triple(kernel.value("grid"))) == (row["kernel"], triple(row["grid"]))
        assert kernel.duration == pytest.approx(row["metrics"]["gpu__time_duration.sum"], abs=1)
        assert kernel.value("memory_read") == pytest.approx(row["metrics"]["dram__bytes_read.sum"])
    assert not found


@pytest.mark.parametrize("generation", [one for one in GENERATIONS if "without" not in one])
def test_the_library_reads_the_same_dispatches_from_tables_of_rocprof(generation):
    traced, counted = rocprof(random.Random(9), generation, dispatches=9)
    found = {k.start: k for k in read_texts({"kernel_trace.csv": traced, "counters.csv": counted}).kernels}
    for row in read_rocprof_slips.right(traced, counted):
        if row["duration"] is not None:
            kernel = found[row["start"]]
            assert (kernel.name, kernel.duration) == (row["kernel"], row["duration"])
            assert triple(kernel.value("grid")) == triple(row["grid"])
            assert (kernel.value("memory_read"), kernel.value("memory_written")) == (row["read"], row["written"])
