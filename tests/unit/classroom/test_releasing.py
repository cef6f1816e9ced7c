"""Releases: what students get, what a teacher's file of points may say, and a folder that is never overwritten."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gpu_utils import exercises
from gpu_utils.classroom.hosted import first_cell, origin, public
from gpu_utils.classroom.nbgrader_course import CONFIG
from gpu_utils.classroom.points import read_due, read_points
from gpu_utils.classroom.records import Late, Release
from gpu_utils.classroom.releasing import plan, write
from gpu_utils.cli import app
from gpu_utils.course.paths import course
from gpu_utils.errors import ClassroomError
from gpu_utils.grading.notebook import answers
from tests import ROOT

IDS = exercises.ids("00")


def made(folder: Path, *units: str, points: dict[str, float] | None = None) -> Release:
    here = course(ROOT)
    release = plan(here, [here.find(unit) for unit in units or ("00",)], points or {}, {}, Late())
    write(here, release, folder)
    return release


def cells(path: Path) -> list[dict]:
    return json.loads(path.read_text())["cells"]


def source(cell: dict) -> str:
    return "".join(cell["source"])


# what students get


@pytest.mark.parametrize("unit", course(ROOT).written(), ids=lambda unit: unit.number)
def test_a_released_lab_is_readable_untouched_and_carries_its_release(tmp_path, unit):
    release = made(tmp_path, unit.number)
    for path in (tmp_path / f"{unit.name}.ipynb", tmp_path / f"nbgrader/source/{unit.name}/{unit.name}.ipynb"):
        assert json.loads(path.read_text())["metadata"]["w2w"] == {
            **{"kind": "lab", "release": release.id, "schema": 1, "unit": unit.name}
        }
        found = answers(path)
        assert found.exercises == sorted(exercises.ids(unit.number))
        for exercise in found.exercises:
            answer = found.find(exercise)
            assert answer
            assert not answer.error
            assert f"{exercise} is yours to write" in answer.source


@pytest.mark.parametrize("unit", course(ROOT).written(), ids=lambda unit: unit.number)
def test_every_exercise_has_one_answer_cell_and_one_grade_cell_worth_its_points(tmp_path, unit):
    ids = exercises.ids(unit.number)
    made(tmp_path, unit.number, points={ids[0]: 2.5})
    for path in tmp_path.rglob("*.ipynb"):
        found = [cell["metadata"]["nbgrader"] for cell in cells(path) if "nbgrader" in cell["metadata"]]
        names = [name.replace(".", "-") for name in ids]
        roles = {(one["grade_id"], one["grade"], one["solution"], one["locked"]) for one in found}
        assert roles == {(f"answer-{name}", False, True, False) for name in names} | {
            (f"check-{name}", True, False, True) for name in names
        }
        assert len(found) == 2 * len(ids)
        points = {one["grade_id"]: one["points"] for one in found if one["grade"]}
        assert points == {f"check-{name}": 2.5 if name == names[0] else 1.0 for name in names}
        assert {(one["schema_version"], one["cell_type"]) for one in found} == {(3, "code")}


def test_a_notebook_of_a_release_is_valid_and_differs_for_nbgrader_in_its_check_cells_only(tmp_path):
    from gpu_utils.course.ipynb import nbformat

    made(tmp_path)
    plain, other = tmp_path / "00_start.ipynb", tmp_path / "nbgrader/source/00_start/00_start.ipynb"
    for path in (plain, other):
        nbformat.validate(json.loads(path.read_text()))
    changed = [(one, two) for one, two in zip(cells(plain), cells(other), strict=True) if one != two]
    assert [source(one) for one, _ in changed] == [f'check("{name}")' for name in IDS]
    assert all(source(two).endswith("assert report.passed, report.headline") for _, two in changed)


def test_the_id_says_what_students_get_and_nothing_of_points_or_times(tmp_path):
    first, again = made(tmp_path / "a"), made(tmp_path / "b", points={"00.saxpy": 5.0})
    assert first.id == again.id
    assert len(first.id) == 12
    assert made(tmp_path / "c", "01").id != first.id


def test_what_is_written_can_be_read_back(tmp_path):
    here = course(ROOT)
    due = {"00": datetime(2026, 12, 1, 22, 59, tzinfo=UTC)}
    release = plan(here, [here.find("00")], {"00.saxpy": 2.0}, due, Late(10, 0.1, 5))
    write(here, release, tmp_path)
    assert Release.read(tmp_path / "release.json") == release
    assert set(release.points) == set(IDS)
    assert "Unit 00 is due Tuesday 01 December 2026 22:59 (UTC+0000)." in (tmp_path / "README.txt").read_text()


def test_nothing_of_this_machine_is_in_a_release(tmp_path):
    made(tmp_path)
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert str(ROOT) not in path.read_text()
            assert str(Path.home()) not in path.read_text()


def test_the_settings_for_nbgrader_are_python():
    compile(CONFIG, "nbgrader_config.py", "exec")


# a folder that is never overwritten


def test_the_same_release_again_writes_nothing_and_keeps_what_somebody_changed(tmp_path):
    release = made(tmp_path)
    lab = tmp_path / "00_start.ipynb"
    lab.write_text("a teacher's own")
    (tmp_path / "notes.txt").write_text("hm")
    (tmp_path / "README.txt").unlink()
    written = write(course(ROOT), release, tmp_path)
    assert written.made == (tmp_path / "README.txt",)
    assert written.kept == (lab,)
    assert lab.read_text() == "a teacher's own"


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("another release", "holds release"),
        ("other points", "holds this release with other points or times"),
        ("other files", r"holds other files \(thesis.txt\) and no release.json"),
        ("a file", "is a file; name a folder"),
        ("a broken record", "is no release.json"),
    ],
)
def test_a_folder_with_something_else_is_refused_and_untouched(tmp_path, what, said):
    folder = tmp_path / "out"
    if what == "a file":
        folder.write_text("x")
    elif what == "another release":
        made(folder, "01")
    elif what == "other points":
        made(folder, points={"00.saxpy": 9.0})
    else:
        folder.mkdir()
        (folder / ("thesis.txt" if what == "other files" else "release.json")).write_text("x")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(ClassroomError, match=said):
        made(folder)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


# points and times


def test_points_and_the_late_policy_are_read(tmp_path):
    file = tmp_path / "points.yaml"
    file.write_text("00.saxpy: 3\n00.find_mask: 0.5\nlate: {grace_minutes: 10, per_day: 0.1, most_days: 5}\n")
    assert read_points(file, IDS) == ({"00.saxpy": 3.0, "00.find_mask": 0.5}, Late(10.0, 0.1, 5))
    file.write_text("# all are worth 1\n")
    assert read_points(file, IDS) == ({}, Late())
    file.write_text("late: {most_days: null}\n")
    assert read_points(file, IDS) == ({}, Late())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("00.saxpi: 2", "there is no exercise in this release '00.saxpi'; did you mean '00.saxpy'"),
        ("01.mlp: 2", "there is no exercise in this release '01.mlp'"),
        ("00.saxpy: -1", "00.saxpy is -1; expected points, 0 or more"),
        ("00.saxpy: two", "00.saxpy is 'two'; expected points"),
        ("00.saxpy: true", "00.saxpy is True; expected points"),
        ("00.saxpy: .nan", "00.saxpy is nan; expected points"),
        ("00.saxpy: 1\n00.saxpy: 2", "names '00.saxpy' twice"),
        ("- 00.saxpy", "holds no table of points"),
        ("00.saxpy: [", "is not YAML"),
        ("late: 5", "late is 5; expected a table with some of grace_minutes, per_day, most_days"),
        ("late: {per_week: 1}", "expected a table with some of"),
        ("late: {per_day: 10}", "late.per_day is 10; it is a share of the marks, from 0 to 1"),
        ("late: {most_days: 1.5}", "late.most_days is 1.5; expected a whole number of days"),
    ],
)
def test_a_file_of_points_that_cannot_be_meant_is_one_sentence(tmp_path, text, said):
    file = tmp_path / "points.yaml"
    file.write_text(text)
    with pytest.raises(ClassroomError) as problem:
        read_points(file, IDS)
    assert said in str(problem.value)
    assert "\n" not in str(problem.value)


def test_a_missing_file_of_points_is_one_sentence(tmp_path):
    with pytest.raises(ClassroomError, match="cannot be read: No such file"):
        read_points(tmp_path / "points.yaml", IDS)


def test_a_due_time_is_for_all_units_or_for_one_which_goes_first():
    late, early = "2026-12-01T23:59+01:00", "2026-11-30T12:00Z"
    found = read_due([late, f"00={early}"], ["00", "01"])
    assert {unit: when.isoformat() for unit, when in found.items()} == {
        "00": "2026-11-30T12:00:00+00:00",
        "01": "2026-12-01T23:59:00+01:00",
    }
    assert read_due([f"00={early}"], ["00", "01"]).keys() == {"00"}
    assert read_due([], ["00"]) == {}


def test_a_due_time_without_a_zone_is_one_of_this_machine():
    found = read_due(["2026-12-01 23:59"], ["00"])["00"]
    assert found == datetime(2026, 12, 1, 23, 59).astimezone()
    assert found.tzinfo


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["tomorrow"], "--due tomorrow: "),
        (["2026-12-01"], "it has no time of day; write it like 2026-12-01T23:59"),
        (["02=2026-12-01T23:59"], "there is no unit in this release '02'"),
        (["2026-12-01T23:59", "2026-12-02T23:59"], "is given twice for all units"),
    ],
)
def test_a_due_time_that_cannot_be_read_is_one_sentence(given, said):
    with pytest.raises(ClassroomError) as problem:
        read_due(given, ["00", "01"])
    assert said in str(problem.value)


# the cell for hosted notebooks


def test_the_first_cell_does_nothing_where_the_course_is(monkeypatch):
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("it started a program"))
    path = list(sys.path)
    for _ in range(2):
        exec(first_cell("https://example.org/course.git"), {})
    assert sys.path == path


@pytest.mark.parametrize(("commit", "clang"), [("", False), ("0123abc", True)])
def test_the_first_cell_fetches_and_installs_the_course_where_it_is_missing(monkeypatch, tmp_path, commit, clang):
    ran: list[list[str]] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr(subprocess, "run", lambda command, check: ran.append(command))
    monkeypatch.setattr(sys, "path", list(sys.path))
    place = tmp_path.resolve() / "warp-to-wavefront"
    exec(first_cell("https://example.org/course.git", commit, clang), {})
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--editable", f"{place}{'[hip]' if clang else ''}"]
    checkout = [["git", "-C", str(place), "checkout", "--quiet", commit]] if commit else []
    assert ran == [["git", "clone", "--quiet", "https://example.org/course.git", str(place)], *checkout, install]
    assert sys.path[0] == str(place)
    place.mkdir()
    ran.clear()
    exec(first_cell("https://example.org/course.git", commit, clang), {})
    assert ran == [*checkout, install]  # a second run clones nothing


def test_the_first_cell_asks_for_an_address_that_nobody_knew(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match="ask for its address and write it after COURSE ="):
        exec(first_cell(""), {})


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("https://example.org/a/b.git", "https://example.org/a/b.git"),
        ("https://me:secret@example.org:8443/b.git", "https://example.org:8443/b.git"),
        ("ssh://git@example.org:2222/a/b.git", "https://example.org/a/b.git"),
        ("git@example.org:a/b.git", "https://example.org/a/b.git"),
        ("/srv/git/course", ""),
        ("../course", ""),
        ("file:///srv/git/course", ""),
        ("", ""),
    ],
)
def test_an_address_is_given_without_secrets_and_a_folder_is_none(url, address):
    assert public(url) == address


def test_a_commit_is_named_only_where_a_branch_of_the_remote_holds_it(tmp_path):
    def git(*arguments: str) -> None:
        who = ["-c", "user.name=S. Example", "-c", "user.email=s@example.org"]
        subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True)

    assert origin(tmp_path / "missing") == ("", "")
    git("init", "--quiet")
    git("commit", "--quiet", "--allow-empty", "-m", "first")
    assert origin(tmp_path) == ("", "")
    git("remote", "add", "origin", "git@example.org:course.git")
    assert origin(tmp_path) == ("https://example.org/course.git", "")
    git("update-ref", "refs/remotes/origin/main", "HEAD")
    address, commit = origin(tmp_path)
    assert address == "https://example.org/course.git"
    assert len(commit) == 40


# the command


def _w2w(monkeypatch, *arguments: str) -> object:
    monkeypatch.setattr(sys, "argv", ["w2w", *arguments])
    with pytest.raises(SystemExit) as stop:
        app.main()
    return stop.value.code


def test_the_command_writes_a_release_and_says_what_it_is_worth(monkeypatch, capsys, tmp_path):
    points = tmp_path / "points.yaml"
    points.write_text("00.saxpy: 3\n")
    out = tmp_path / "spring"
    arguments = ["release", "1", "00", "--out", str(out), "--points", str(points), "--due", "00=2026-12-01T23:59Z"]
    assert _w2w(monkeypatch, *arguments) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "00_start.ipynb │ 6 │ 8 │ 2026-12-01 23:59 +0000" in said
    assert "01_gpt2_baseline.ipynb │ 12 │ 12 │ no time" in said
    assert "7 files written" in said
    assert Release.read(out / "release.json").units == ("00", "01")
    (out / "README.txt").write_text("mine")
    assert _w2w(monkeypatch, *arguments) == 0
    said = capsys.readouterr().out
    assert "README.txt was changed since it was made, and is kept" in said
    assert "nothing new to write" in said


def test_the_command_refuses_in_one_sentence(monkeypatch, tmp_path):
    assert "there is no unit '77'" in str(_w2w(monkeypatch, "release", "77", "--out", str(tmp_path)))
    assert "write it like" in str(_w2w(monkeypatch, "release", "00", "--out", str(tmp_path), "--due", "soon"))
    assert list(tmp_path.iterdir()) == []
