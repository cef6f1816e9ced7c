"""Our own files are known again, and nothing else is written over."""

from __future__ import annotations

import os

import pytest

from gpu_utils.cli.profile import _csv
from gpu_utils.errors import CannotWrite, ProfileUnreadable
from gpu_utils.profiling.ours import MARKS, REPORT, TABLE, check, foreign, made_here
from gpu_utils.profiling.profile import Profile
from gpu_utils.profiling.report import report
from tests.unit.profiling.sample import training


@pytest.mark.parametrize("profile", [training("nvidia"), training("amd", virtual=True), Profile()])
def test_what_we_write_carries_its_mark(tmp_path, profile):
    html, csv = tmp_path / "any", tmp_path / "other"
    html.write_text(report(profile))
    csv.write_text(_csv(profile))
    assert (made_here(html), made_here(csv)) == (REPORT, TABLE)


def test_other_files_and_no_files_are_not_ours(tmp_path):
    (tmp_path / "trace.json").write_text('{"traceEvents": []}')
    for name in ("trace.json", "nothing", "."):
        assert made_here(tmp_path / name) is None


@pytest.mark.parametrize(("what", "option"), [(REPORT, "--html"), (TABLE, "--csv")])
def test_only_our_own_empty_and_new_files_may_be_targets(tmp_path, what, option):
    ours, empty, trace = tmp_path / "ours", tmp_path / "empty", tmp_path / "trace.json"
    ours.write_bytes(MARKS[what])
    empty.touch()
    trace.write_text("{}")
    for allowed in (ours, empty, tmp_path / "new"):
        check({what: allowed}, [trace])
    with pytest.raises(CannotWrite, match=rf"trace.json is there and is no {what} .* name a new file: {option} "):
        check({what: trace})
    with pytest.raises(CannotWrite, match=r"trace.json is a file to read"):
        check({what: trace}, [trace])
    with pytest.raises(CannotWrite, match="is there and is no"):
        check({what: tmp_path})


def test_a_report_is_no_place_for_a_table_nor_one_file_for_both(tmp_path):
    (tmp_path / "r.html").write_bytes(MARKS[REPORT])
    with pytest.raises(CannotWrite, match="is no table of launches"):
        check({TABLE: tmp_path / "r.html"})
    with pytest.raises(CannotWrite, match="name two files"):
        check({REPORT: tmp_path / "x", TABLE: tmp_path / "x"})


def test_a_link_to_a_file_that_is_read_is_that_file(tmp_path):
    (tmp_path / "trace.json").write_text("{}")
    os.symlink(tmp_path / "trace.json", tmp_path / "report.html")
    with pytest.raises(CannotWrite, match="is a file to read"):
        check({REPORT: tmp_path / "report.html"}, [tmp_path / "trace.json"])


def test_our_own_files_are_left_out_of_what_is_read(tmp_path):
    html, trace = tmp_path / "r.html", tmp_path / "trace.json"
    html.write_bytes(MARKS[REPORT])
    trace.write_text("{}")
    assert foreign([html, trace]) == [trace]
    with pytest.raises(ProfileUnreadable, match=r"r.html is a report of w2w profile; name the files"):
        foreign([html])
