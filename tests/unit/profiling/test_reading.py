"""Several files, of which some are no profiles."""

from __future__ import annotations

import pytest

from gpu_utils.errors import ProfileUnreadable
from gpu_utils.profiling.profile import LEFT_OUT
from gpu_utils.profiling.reading import read

TRACE = '{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 2}]}'


@pytest.fixture
def folder(tmp_path):
    for name, text in {"trace.json": TRACE, "notes.txt": "hello", "run.nsys-rep": "binary", "empty.csv": ""}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "below").mkdir()
    return tmp_path


def test_what_no_reader_can_use_is_left_out_beside_what_can_be_read(folder):
    found = read(*sorted(folder.iterdir()))
    assert len(found.events) == 1
    left = {origin.path.rpartition("/")[2]: origin for origin in found.origins if origin.form == LEFT_OUT}
    assert set(left) == {"notes.txt", "run.nsys-rep", "empty.csv", "below"}
    assert left["notes.txt"].remarks == ("left out: it is no profile that can be read here",)
    assert left["run.nsys-rep"].remarks == ("left out: it is a report of nsys",)
    assert found.partial == []


@pytest.mark.parametrize("names", [["notes.txt"], ["notes.txt", "empty.csv"]])
def test_without_any_that_can_be_read_the_first_is_an_error(folder, names):
    with pytest.raises(ProfileUnreadable, match=r"notes.txt is no profile that can be read here; there are readers"):
        read(*(folder / name for name in names))


def test_a_file_that_is_not_there_is_an_error_beside_any_other(folder):
    with pytest.raises(ProfileUnreadable, match=r"no_such.csv is not there"):
        read(folder / "trace.json", folder / "no_such.csv")


def test_a_file_that_is_cut_short_is_read_in_part(folder):
    (folder / "trace.json").write_text(TRACE[:-2] + ", {")
    (part,) = read(folder / "trace.json").partial
    assert "trace.json (the file is cut short: 1 whole event read, later ones are missing)" in part
