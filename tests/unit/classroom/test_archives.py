"""Archives that nobody trusts: any bytes are files or a reason, and one student's archive costs nobody else."""

from __future__ import annotations

import gc
import io
import tracemalloc
import warnings
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_utils.classroom import archives
from gpu_utils.classroom.archives import Contents, files_below, is_of_systems
from gpu_utils.classroom.collecting import collect
from tests.fixtures.hand_ins import lab, put, zipped

WHOLE = zipped({"a.ipynb": b"{}" * 50, "b/c.ipynb": b"[]", "d.zip": zipped({"e.ipynb": b"1"}), "f.txt": b""})


def is_notebook(name: str) -> bool:
    return name.endswith(".ipynb")


def read(path: Path) -> list[str]:
    """What each file is: its content twice over, or its problem."""
    found = []
    contents = Contents()
    for file, content in files_below(path, is_notebook):
        assert file.trail[0] == path.name
        assert not (file.problem and content)
        if is_notebook(file.name) and not (file.problem or is_of_systems(file)):
            assert contents.of(file) == content
        found.append(file.problem or content.decode("latin-1"))
    contents.close()
    return found


def test_zips_within_zips_are_read(tmp_path):
    put(tmp_path, {"x.zip": WHOLE})
    sources = [file.source for file, _ in files_below(tmp_path / "x.zip", is_notebook)]
    assert sources == ["x.zip::a.ipynb", "x.zip::b/c.ipynb", "x.zip::d.zip::e.ipynb", "x.zip::f.txt"]
    assert read(tmp_path / "x.zip") == ["{}" * 50, "[]", "1", ""]


@settings(max_examples=100, deadline=None)
@given(data=st.binary(max_size=200))
def test_any_bytes_under_the_name_of_an_archive_are_a_reason(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "any.zip"
    path.write_bytes(data)
    assert len(read(path)) == 1
    assert len(list(collect([path], units=["00"]))) == 1


@settings(max_examples=150, deadline=None)
@given(at=st.integers(0, len(WHOLE) - 1), length=st.integers(0, 30), new=st.binary(max_size=30))
def test_a_damaged_archive_is_files_and_reasons(tmp_path_factory, at, length, new):
    path = tmp_path_factory.getbasetemp() / "damaged.zip"
    path.write_bytes(WHOLE[:at] + new + WHOLE[at + length :])
    read(path)


@settings(max_examples=100, deadline=None)
@given(
    names=st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20), min_size=1, max_size=5)
)
def test_members_of_any_names_are_files_or_reasons(tmp_path_factory, names):
    path = tmp_path_factory.getbasetemp() / "names.zip"
    made = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(made, "w") as archive:
        warnings.simplefilter("ignore")  # of names that are there twice
        for name in names:
            archive.writestr(zipfile.ZipInfo(f"{name}.ipynb"), lab())
    path.write_bytes(made.getvalue())
    read(path)
    list(collect([path]))


def test_one_students_bombs_cost_nobody_elses_row(tmp_path):
    bomb = zipped({f"{number}.ipynb": bytes(3_000_000) for number in range(5)})
    many = zipped({f"{number}.txt": b"" for number in range(archives.MAX_NESTED_FILES + 1)})
    class_zip = {
        f"class/student-{number:03}.zip": zipped({"00_start.ipynb": lab(says=str(number))}) for number in range(8)
    }
    class_zip |= {
        "class/bomb.zip": bomb,
        "class/many.zip": many,
        "class/../student-003.zip": bomb,
        "class/broken.zip": b"PK",
    }
    put(tmp_path, {"class.zip": zipped(class_zip)})
    rows = {row.student: row for row in collect([tmp_path / "class.zip"], units=["00"])}
    assert len(rows) == 11
    for number in range(8):
        assert rows[f"student-{number:03}"].content == lab(says=str(number))
    assert "unpacks to more than" in rows["bomb"].problem
    assert "holds more files" in rows["many"].problem
    assert "is no zip archive" in rows["broken"].problem


def test_a_directory_of_an_archive_is_not_read_beyond_its_limit(tmp_path):
    names = {f"{'x' * 60_000}{number}": b"" for number in range(80)}
    put(tmp_path, {"x.zip": zipped(names)})
    assert read(tmp_path / "x.zip")[-1].startswith("x.zip has a directory of 5 MB")


def test_an_archive_that_holds_itself_ends(tmp_path):
    made = WHOLE
    for _ in range(6):
        made = zipped({"again.zip": made})
    put(tmp_path, {"x.zip": made})
    assert len(read(tmp_path / "x.zip")) == 1


def test_a_folder_that_cannot_be_opened_is_a_reason(tmp_path, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied")

    put(tmp_path, {"in/ann/x.ipynb": b""})
    monkeypatch.setattr(archives.os, "listdir", refuse)
    assert read(tmp_path / "in") == ["in cannot be read: Permission denied"]


def test_memory_holds_one_notebook_at_a_time(tmp_path):
    size = 1_000_000
    for number in range(12):
        (tmp_path / "in" / f"s{number}").mkdir(parents=True)
        (tmp_path / "in" / f"s{number}" / "00_start.ipynb").write_bytes(lab() + bytes([32]) * (size + number))
    gc.collect()
    tracemalloc.start()
    for row in collect([tmp_path / "in"]):
        assert not row.problem
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6 * size


@pytest.mark.parametrize("name", ["a.tar.gz", "a.7z", "a.rar", "a.tar", "a.zst"])
def test_other_archives_are_refused_with_what_to_do(tmp_path, name):
    put(tmp_path, {f"in/{name}": b"x"})
    assert read(tmp_path / "in") == [
        f"in/{name} is an archive of a kind that is not read; hand in the notebook itself, or a zip"
    ]
