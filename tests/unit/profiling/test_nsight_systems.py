"""Databases as nsys exports them, whole, odd and damaged: what is read, and which sentence refuses the rest."""

import sqlite3

import pytest

from gpu_utils.errors import ProfileUnreadable
from gpu_utils.profiling import nsight_systems
from gpu_utils.profiling.files import Opened, opened
from gpu_utils.profiling.reading import NAMED

KERNEL, RUNTIME, MEMCPY, MEMSET, GRAPH = (
    f"CUPTI_ACTIVITY_KIND_{name}" for name in ("KERNEL", "RUNTIME", "MEMCPY", "MEMSET", "GRAPH_TRACE")
)


def who(process=4242, thread=0):
    return 1 << 56 | process << 24 | thread


def kernel(start=1000, end=3000, correlation=7, process=4242, name=1, **other):
    where = {"start": start, "end": end, "deviceId": 0, "contextId": 1, "streamId": 7, "correlationId": correlation}
    sizes = {"gridX": 16, "gridY": 8, "gridZ": 1, "blockX": 256, "blockY": 1, "blockZ": 1}
    uses = {"registersPerThread": 64, "staticSharedMemory": 1024, "dynamicSharedMemory": 512, "localMemoryPerThread": 0}
    names = {"demangledName": name, "shortName": 2, "mangledName": None}
    return {**where, "globalPid": who(process), **names, **uses, **sizes, **other}


def call(start=100, end=600, correlation=7, process=4242, name=3, result=0):
    row = {"start": start, "end": end, "globalTid": who(process, 4243), "correlationId": correlation}
    return {**row, "eventClass": 0, "nameId": name, "returnValue": result, "callchainId": None}


def copy(kind=1, **other):
    where = {"start": 5000, "end": 6000, "deviceId": 0, "streamId": 7, "correlationId": 8, "globalPid": who()}
    return {**where, "bytes": 4096, "copyKind": kind, "srcKind": 0, "dstKind": 2, **other}


def nvtx(start=50, end=700, kind=59, text="step", number=None):
    return {
        "start": start,
        "end": end,
        "eventType": kind,
        "text": text,
        "textId": number,
        "globalTid": who(thread=4243),
    }


def strings(*values):
    return [{"id": number, "value": value} for number, value in enumerate(values, 1)]


NAMES = strings("mm_kernel(float *, int)", "mm_kernel", "cudaLaunchKernel_v7000", "cudaMemcpyAsync_v3020", "loss")
OPERATIONS = [
    {"id": 1, "name": "CUDA_MEMCPY_KIND_HTOD", "label": "Host-to-Device"},
    {"id": 2, "name": "CUDA_MEMCPY_KIND_DTOH", "label": "Device-to-Host"},
    {"id": 8, "name": "CUDA_MEMCPY_KIND_DTOD", "label": "Device-to-Device"},
]
GPU = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "smCount": 132, "computeMajor": 9, "computeMinor": 0, "cuDevice": 0}
WHOLE = {
    "StringIds": NAMES,
    KERNEL: [kernel()],
    RUNTIME: [call(), call(800, 900, 8, name=4)],
    MEMCPY: [copy()],
    "ENUM_CUDA_MEMCPY_OPER": OPERATIONS,
    "TARGET_INFO_GPU": [GPU],
    "META_DATA_EXPORT": [{"name": "EXPORT_PRODUCT_VERSION", "value": "2026.1.1"}],
}


def database(tables):
    """The bytes of a database with these tables; a table's columns are those of its first row."""
    with sqlite3.connect(":memory:") as db:
        for table, rows in tables.items():
            columns = ", ".join(f'"{column}"' for column in rows[0])
            db.execute(f'CREATE TABLE "{table}" ({columns})')
            marks = ", ".join("?" * len(rows[0]))
            db.executemany(f'INSERT INTO "{table}" VALUES ({marks})', [tuple(row.values()) for row in rows])
        db.commit()
        return db.serialize()


def read(tables, name="x.sqlite"):
    found = Opened(name, tables if isinstance(tables, bytes) else database(tables))
    assert nsight_systems.fits(found)
    return nsight_systems.read(found)


def refused(tables):
    with pytest.raises(ProfileUnreadable) as caught:
        read(tables)
    assert str(caught.value).startswith("x.sqlite ")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def without(*names, **changed):
    return {name: rows for name, rows in {**WHOLE, **changed}.items() if name not in names}


def said(profile):
    return " | ".join(profile.remarks)


def test_an_export_has_kernels_with_sizes_calls_copies_and_the_gpu():
    profile = read(WHOLE)
    (one,) = profile.kernels
    assert (one.name, one.start, one.end, one.lane) == ("mm_kernel(float *, int)", 1000, 3000, "stream 7")
    assert (one.device, one.process, one.correlation) == ("0", 4242, 7)
    figures = {name: figure.value for name, figure in one.figures.items()}
    assert figures == {
        **{"registers": 64, "scratch_bytes": 0, "shared_bytes": 1536, "grid": (16, 8, 1), "block": (256, 1, 1)},
    }
    assert one.figures["shared_bytes"].source == "nsys: staticSharedMemory + dynamicSharedMemory"
    launches = profile.of("launch")
    assert [(one.name, one.lane, one.process) for one in launches] == [
        ("cudaLaunchKernel_v7000", "thread 4243", 4242),
        ("cudaMemcpyAsync_v3020", "thread 4243", 4242),
    ]
    (one,) = profile.of("copy")
    assert (one.name, one.value("bytes"), one.value("direction")) == (
        "[CUDA memcpy Host-to-Device]",
        4096,
        "host to device",
    )
    device = profile.devices["0"]
    assert (device.name, device.vendor, device.target) == ("NVIDIA H100 80GB HBM3", "nvidia", "sm_90")
    assert (device.units, device.lanes) == (132, 32)
    assert (profile.origins[0].tool, profile.origins[0].version) == ("nsys", "2026.1.1")
    assert profile.remarks == []


def test_ranges_overheads_and_fills_are_read():
    fill = {key: value for key, value in copy(value=0).items() if not key.endswith("Kind")}
    overhead = {"start": 10, "end": 20, "nameId": 5, "globalTid": who(thread=1)}
    mark = nvtx(60, None, 34, "here")
    tables = {
        **WHOLE,
        MEMSET: [fill],
        "NVTX_EVENTS": [nvtx(), nvtx(text=None, number=5), mark],
        "PROFILER_OVERHEAD": [overhead],
    }
    profile = read(tables)
    assert [(one.name, one.duration) for one in profile.of("range")] == [("step", 650), ("loss", 650), ("here", 0)]
    assert [one.name for one in profile.of("overhead")] == ["loss"]
    assert profile.of("fill")[0].value("bytes") == 4096
    assert profile.remarks == []


@pytest.mark.parametrize(
    ("tables", "kernels", "words"),
    [
        pytest.param(without(KERNEL), 0, "launches, but no kernels: what the GPU did is unknown", id="60 launches"),
        pytest.param(without(KERNEL, RUNTIME), 0, "no kernel was recorded; the tables are CUPTI", id="59 no kernels"),
        pytest.param({**WHOLE, KERNEL: [kernel(end=500)]}, 1, "1 event with an end before the start", id="62 before"),
        pytest.param({**WHOLE, KERNEL: [kernel(end=None)]}, 1, "1 event without an end", id="62 NULL"),
        pytest.param({**WHOLE, KERNEL: [kernel(end=0)]}, 1, "1 event without an end", id="62 zero"),
        pytest.param(
            {**WHOLE, KERNEL: [kernel(greenContextId=3, clusterX=2, clusterY=1, clusterZ=1)]},
            1,
            "",
            id="67 new columns",
        ),
        pytest.param(
            without("ENUM_CUDA_MEMCPY_OPER"), 1, "does not name the kinds of copies", id="70 no table of kinds"
        ),
        pytest.param({**WHOLE, "NVTX_EVENTS": [nvtx(end=None)]}, 1, "1 range of NVTX not closed", id="71 open range"),
        pytest.param({**WHOLE, RUNTIME: [call(correlation=9)]}, 1, "2 events of the GPU launched", id="untied"),
        pytest.param(
            {**WHOLE, "OSRT_API": [{"start": 1, "end": 2}]},
            1,
            "were not read, with their rows: OSRT_API (1)",
            id="other",
        ),
    ],
)
def test_an_odd_export_is_read_as_far_as_it_goes(tables, kernels, words):
    profile = read(tables)
    assert len(profile.kernels) == kernels
    assert words in said(profile)
    if not words:
        assert profile.remarks == []


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        pytest.param(
            {"StringIds": NAMES}, "holds nothing that ran: its tables are StringIds; profile again", id="59 nothing"
        ),
        pytest.param(
            {"people": [{"id": 1}]}, "is a database, but none of nsys: its tables are people", id="another database"
        ),
        pytest.param(
            {"CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL": [{"_id_": 1}], "StringTable": [{"_id_": 1}]},
            "is a database of nvprof, which no longer exists; profile with: nsys profile",
            id="65 nvprof",
        ),
        pytest.param({KERNEL: [{"_id_": 1, "name": 2}]}, "is a database of nvprof", id="65 nvprof with nsys's name"),
        pytest.param(database(WHOLE)[:-4096], "is cut short: ", id="63 cut"),
        pytest.param(
            database(WHOLE)[:-4096], "nsys export --type sqlite --force-overwrite true -o x.sqlite", id="63 advice"
        ),
    ],
)
def test_a_database_that_holds_no_profile_is_refused_in_one_sentence(tables, words):
    assert words in refused(tables)


def test_a_page_of_rubbish_inside_is_damage_and_no_traceback():
    """63: "database disk image is malformed"."""
    whole = database({**WHOLE, KERNEL: [kernel(correlation=number) for number in range(300)]})
    half = len(whole) // 2 // 4096 * 4096
    damaged = whole[:half] + b"\xff" * 4096 + whole[half + 4096 :]
    assert "is damaged (sqlite says: " in refused(damaged)


def test_what_is_no_database_or_another_readers_is_said():
    """64 and 66."""
    assert not nsight_systems.fits(Opened("x.sqlite", b"hello"))
    with pytest.raises(
        ProfileUnreadable, match=r"x\.sqlite is no sqlite database, whatever its name says; export again"
    ):
        nsight_systems.read(Opened("x.sqlite", b"hello"))
    rocpd = Opened("x.db", database({"rocpd_kernel_dispatch_1": [{"id": 1}]}))
    assert not nsight_systems.fits(rocpd)
    with pytest.raises(ProfileUnreadable, match=r"is a database of rocprofv3 \(rocpd\), not of nsys; read it with"):
        nsight_systems.read(rocpd)


def test_empty_files_and_reports_that_are_not_exported_are_named(tmp_path):
    """58 and 64."""
    (tmp_path / "empty.sqlite").write_bytes(b"")
    with pytest.raises(ProfileUnreadable, match="is empty"):
        opened(tmp_path / "empty.sqlite")
    assert "nsys export --type sqlite" in NAMED[".nsys-rep"]
    assert "nsys export --type sqlite" in NAMED[".qdrep"]


def test_a_name_that_is_missing_is_said_to_be():
    """61."""
    assert read({**WHOLE, KERNEL: [kernel(name=123)]}).kernels[0].name == "<string 123 missing>"


@pytest.mark.parametrize(
    "change",
    [{"name": "mm"}, {"name": None, "shortName": "mm"}, {"name": None, "shortName": None, "mangledName": "mm"}],
)
def test_old_tables_hold_names_as_text(change):
    """68."""
    assert read({**WHOLE, KERNEL: [kernel(**change)]}).kernels[0].name == "mm"


def test_tables_of_an_old_version_lack_columns():
    """68: what is not there is unknown."""
    few = {key: value for key, value in kernel().items() if key in ("start", "end", "streamId", "demangledName")}
    (one,) = read({"StringIds": NAMES, KERNEL: [few]}).kernels
    assert (one.process, one.device, one.correlation, one.figures) == (None, "", None, {})


def test_two_processes_may_use_one_correlation():
    """69."""
    profile = read(
        {
            **WHOLE,
            KERNEL: [kernel(), kernel(process=5)],
            RUNTIME: [call(), call(process=5)],
            MEMCPY: [copy(correlationId=7)],
        }
    )
    assert [(one.process, one.correlation) for one in profile.kernels] == [(4242, 7), (5, 7)]
    assert profile.remarks == []
    lonely = read({**WHOLE, KERNEL: [kernel(process=5)]})
    assert "1 event of the GPU launched by a call that is not recorded" in said(lonely)


@pytest.mark.parametrize(("kind", "way"), [(1, "host to device"), (2, "device to host"), (8, None)])
def test_kinds_of_copies_are_not_guessed(kind, way):
    """70."""
    (one,) = read({**without("ENUM_CUDA_MEMCPY_OPER"), MEMCPY: [copy(kind)]}).of("copy")
    assert one.value("direction") == way
    assert one.name == f"[CUDA memcpy of kind {kind}]"


def test_a_graph_that_was_recorded_whole_is_work_of_the_gpu():
    graph = {
        "start": 100,
        "end": 900,
        "deviceId": 0,
        "streamId": 7,
        "correlationId": 7,
        "globalPid": who(),
        "graphId": 5,
    }
    profile = read({**without(KERNEL), GRAPH: [graph]})
    assert [(one.name, one.duration) for one in profile.kernels] == [("<graph 5: all its kernels>", 800)]
    assert "--cuda-graph-trace=node shows the kernels in them" in said(profile)


def test_processes_that_see_other_gpus_count_them_from_zero():
    gpus = [GPU, {**GPU, "id": 1, "cuDevice": 1}]
    seen = [{"gpuId": 1, "cudaId": 0, "pid": 4242}, {"gpuId": 0, "cudaId": 0, "pid": 5}]
    tables = {**WHOLE, "TARGET_INFO_GPU": gpus, "TARGET_INFO_CUDA_DEVICE": seen, KERNEL: [kernel(), kernel(process=5)]}
    assert [one.device for one in read(tables).kernels] == ["1", "0"]


def test_what_nsys_itself_warns_of_is_passed_on():
    levels = [{"id": 1, "name": "Info", "label": "Info"}, {"id": 2, "name": "Warning", "label": "Warning"}]
    events = [{"severity": 1, "text": "started"}, {"severity": 2, "text": "not all events were collected"}]
    profile = read({**WHOLE, "ENUM_DIAGNOSTIC_SEVERITY_LEVEL": levels, "DIAGNOSTIC_EVENT": events})
    assert [remark.split(": ", 1)[1] for remark in profile.remarks] == ["nsys says: not all events were collected"]


def test_a_write_ahead_log_beside_the_file_is_told_and_nothing_is_written(tmp_path):
    """72."""
    place = tmp_path / "x.sqlite"
    place.write_bytes(database(WHOLE))
    with sqlite3.connect(place) as db:
        db.execute("PRAGMA journal_mode=wal")
        db.execute("INSERT INTO StringIds VALUES (99, 'late')")
        db.commit()
        before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        profile = nsight_systems.read(opened(place))
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    db.close()
    assert len(profile.kernels) == 1
    assert "x.sqlite-wal lies beside it: the last rows are in there and were not read" in said(profile)
