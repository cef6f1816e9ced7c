"""rocpd databases: tables by prefix, several runs in one file, versions, damage."""

import sqlite3

import pytest

from gpu_utils.errors import ProfileUnreadable
from gpu_utils.profiling import rocpd
from gpu_utils.profiling.files import Opened

TABLES = {
    "metadata": "id, guid, tag, value",
    "string": "id, guid, string",
    "info_process": "id, guid, nid, pid",
    "info_thread": "id, guid, nid, pid, tid",
    "info_agent": "id, guid, nid, pid, type, absolute_index, logical_index, type_index, name, product_name, extdata",
    "info_kernel_symbol": "id, guid, kernel_name, display_name, sgpr_count, arch_vgpr_count, accum_vgpr_count",
    "info_pmc": "id, guid, name, symbol",
    "event": "id, guid, category_id, stack_id, correlation_id, extdata",
    "pmc_event": "id, guid, event_id, pmc_id, value",
    "region": "id, guid, nid, pid, tid, start, end, name_id, event_id",
    "kernel_dispatch": (
        "id, guid, nid, pid, tid, agent_id, kernel_id, dispatch_id, queue_id, stream_id, start, end, "
        "private_segment_size, group_segment_size, workgroup_size_x, workgroup_size_y, workgroup_size_z, "
        "grid_size_x, grid_size_y, grid_size_z, event_id"
    ),
    "memory_copy": (
        "id, guid, nid, pid, tid, start, end, name_id, dst_agent_id, src_agent_id, size, queue_id, stream_id, event_id"
    ),
}


def rows(guid, pid=4242, counters=((1, 10.0), (1, 6.0), (2, 2.0)), start=1000, end=3000):
    """One run: a launch, its kernel with counters, a copy, a range."""
    extra = '{"cu_count": 304, "wave_front_size": 64, "num_xcc": 8}'
    return {
        "metadata": [(1, guid, "schema_version", "3.0.1")],
        "string": [
            (1, guid, "HIP_RUNTIME_API"),
            (2, guid, "hipLaunchKernel"),
            (3, guid, "MEMORY_COPY_HOST_TO_DEVICE"),
            (4, guid, "MARKER_CORE_API"),
            (5, guid, "roctxRangePushA"),
        ],
        "info_process": [(1, guid, 1, pid)],
        "info_thread": [(1, guid, 1, 1, 100)],
        "info_agent": [
            (1, guid, 1, 1, "CPU", 0, 0, 0, "EPYC", "EPYC", "{}"),
            (2, guid, 1, 1, "GPU", 4, 1, 0, "gfx942", "AMD Instinct MI300X", extra),
        ],
        "info_kernel_symbol": [(12, guid, "_Z3addPf.kd", "add(float*)", 32, 24, 8)],
        "info_pmc": [(1, guid, "SQ_WAVES", "SQ_WAVES"), (2, guid, "FETCH_SIZE", "FETCH_SIZE")],
        "event": [
            (1, guid, 1, 8, 0, "{}"),
            (2, guid, None, 8, 0, "{}"),
            (3, guid, None, 9, 0, "{}"),
            (4, guid, 4, 10, 0, '{"message": "step 3"}'),
        ],
        "pmc_event": [(at, guid, 2, pmc, value) for at, (pmc, value) in enumerate(counters, 1)],
        "region": [(1, guid, 1, 1, 1, 500, 600, 2, 1), (2, guid, 1, 1, 1, 400, 4000, 5, 4)],
        "kernel_dispatch": [(1, guid, 1, 1, 1, 2, 12, 1, 1, 2, start, end, 16, 512, 256, 1, 1, 1000, 4, 1, 2)],
        "memory_copy": [(1, guid, 1, 1, 1, 100, 200, 3, 2, 1, 4096, 1, 2, 3)],
    }


def database(*runs, views=False, edit=""):
    """The bytes of a file with one set of tables for each (suffix, rows)."""
    connection = sqlite3.connect(":memory:")
    for suffix, content in runs:
        for name, columns in TABLES.items():
            table = f"rocpd_{name}{suffix}"
            connection.execute(
                f'CREATE TABLE "{table}" ({", ".join(chr(34) + c.strip() + chr(34) for c in columns.split(","))})'
            )
            marks = ", ".join("?" for _ in columns.split(","))
            connection.executemany(f'INSERT INTO "{table}" VALUES ({marks})', content[name])
            if views:
                connection.execute(f'CREATE VIEW "rocpd_{name}" AS SELECT * FROM "{table}"')
    connection.executescript(edit)
    connection.commit()
    return connection.serialize()


def read(data):
    found = Opened("x.db", data)
    assert rocpd.fits(found)
    return rocpd.read(found)


@pytest.mark.parametrize("views", [True, False])
def test_a_run_with_or_without_its_views(views):
    profile = read(database(("_1f_2e", rows("1f-2e")), views=views))
    kernel, copy, launch, mark = profile.events
    assert (kernel.name, kernel.start, kernel.end, kernel.lane) == ("add(float*)", 1000, 3000, "stream 2")
    assert (kernel.device, kernel.process, kernel.number) == ("Agent 1", 4242, 1)
    assert kernel.correlation == launch.correlation == 8
    assert (kernel.value("grid"), kernel.value("block")) == ((4, 4, 1), (256, 1, 1))
    assert (kernel.value("waves"), kernel.value("memory_read"), kernel.value("registers")) == (16, 2048, 24)
    assert (copy.value("bytes"), copy.value("direction"), copy.device) == (4096, "host to device", "Agent 1")
    assert (launch.kind, launch.name, launch.lane) == ("launch", "hipLaunchKernel", "thread 100")
    assert (mark.kind, mark.name) == ("range", "step 3")
    device = profile.devices["Agent 1"]
    assert (device.name, device.target, device.units, device.lanes) == ("AMD Instinct MI300X", "gfx942", 304, 64)
    assert profile.remarks == []
    assert profile.origins[0].version == "3.0.1"


def test_two_runs_in_one_file_are_joined_by_guid():
    runs = ("_a", rows("a", 1)), ("_b", rows("b", 2, [(1, 7.0)]))
    profile = read(database(*runs))
    assert [(event.process, event.value("waves")) for event in profile.kernels] == [(1, 16), (2, 7)]
    assert "2 runs or processes are merged" in profile.remarks[0]


def test_tables_without_a_suffix():
    assert len(read(database(("", rows("a")))).kernels) == 1


REFUSED = [
    ("UPDATE rocpd_metadata SET value = '4.0.0'", "newer than this reader knows (version 4.0.0)"),
    ("INSERT INTO rocpd_metadata VALUES (2, 'a', 'compression', 'lz4')", "compressed"),
]


@pytest.mark.parametrize(("edit", "words"), REFUSED)
def test_newer_schemas_are_refused_with_a_way_out(edit, words):
    with pytest.raises(ProfileUnreadable, match="rocpd convert -i FILE -f csv") as caught:
        read(database(("", rows("a")), edit=edit))
    assert words in str(caught.value)


ODD = [  # edit -> words of a remark
    ("DELETE FROM rocpd_pmc_event", "traced without counters"),
    ("DELETE FROM rocpd_kernel_dispatch", "no kernel was recorded"),
    ('UPDATE rocpd_kernel_dispatch SET "end" = 5', "kernels without times that can be"),
    ('UPDATE rocpd_kernel_dispatch SET "start" = NULL', "kernels without times that can be"),
    ("UPDATE rocpd_pmc_event SET value = NULL", "values of counters that are none"),
]


@pytest.mark.parametrize(("edit", "words"), ODD)
def test_what_is_odd_is_said(edit, words):
    assert any(words in remark for remark in read(database(("", rows("a")), edit=edit)).remarks)


def test_names_that_are_missing():
    edit = "DELETE FROM rocpd_info_kernel_symbol; DELETE FROM rocpd_info_pmc; DELETE FROM rocpd_string"
    profile = read(database(("", rows("a")), edit=edit))
    assert profile.kernels[0].name == "<kernel 12>"
    assert profile.kernels[0].value("<counter 2>") == 2
    assert {event.name for event in profile.of("api")} == {"<string 2>", "<string 5>"}


def test_a_file_that_is_cut_says_how_much_is_there():
    data = database(("_a", rows("a")))
    with pytest.raises(ProfileUnreadable, match="is cut: ") as caught:
        read(data[: len(data) // 2])
    assert f"{len(data):,} bytes" in str(caught.value)


def test_a_file_that_is_damaged():
    data = database(("", rows("a")))
    with pytest.raises(ProfileUnreadable, match="damaged database"):
        read(data[:100] + b"\xff" * 2000 + data[2100:])


def test_a_database_with_its_log_beside_it_is_read_without_the_log():
    data = bytearray(database(("", rows("a"))))
    data[18:20] = b"\x02\x02"
    assert len(read(bytes(data)).kernels) == 1


def test_other_databases_are_not_for_this_reader():
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start)")
    connection.commit()
    assert not rocpd.fits(Opened("x", connection.serialize()))
    assert not rocpd.fits(Opened("x", b"rocpd_ in a text"))
