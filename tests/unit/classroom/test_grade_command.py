"""The command grade: what it refuses, in one sentence and before it writes anything, and what it says when it stops."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from gpu_utils.classroom import batch
from gpu_utils.classroom.book import Book
from gpu_utils.classroom.records import Release, Result
from gpu_utils.cli import app
from tests.fixtures.hand_ins import lab, put


def passing(task: batch.Task) -> Result:
    of = task.submission
    return Result(
        of["student"], of["unit"], task.exercise, of["digest"], f"{task.seed:032x}", "passed", 1.0, 1.0, "passed"
    )


@pytest.fixture(autouse=True)
def _graded_at_once(monkeypatch):
    monkeypatch.setattr("gpu_utils.grading.walls.bwrap.require", lambda: None)
    monkeypatch.setattr(batch, "grade", lambda tasks, how, keep: [keep(passing(task)) for task in tasks])


@pytest.fixture
def handed_in(tmp_path) -> Path:
    return put(tmp_path / "in", {"ann_00_start.ipynb": lab(), "ben_00_start.ipynb": lab(says="b")})


def release(path: Path, name: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(Release(name, ("00",)).as_json())
    return path


def run(monkeypatch, capsys, *words: object) -> tuple[int, str]:
    monkeypatch.setattr(sys, "argv", ["w2w", "grade", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        app.main()
    said, code = capsys.readouterr(), ended.value.code
    problem = code if isinstance(code, str) else ""  # Python prints it, and exits with 1
    return 1 if problem else code or 0, " ".join((said.out + said.err + problem).split())


def test_a_class_is_graded_and_the_next_command_is_said(tmp_path, handed_in, monkeypatch, capsys):
    code, said = run(monkeypatch, capsys, handed_in, "--out", tmp_path / "book")
    assert code == 0
    assert "12 answers graded: 12 passed. Submissions: 2." in said
    assert said.endswith(f"w2w gradebook {tmp_path / 'book'}")


def test_a_gradebook_is_of_one_release(tmp_path, handed_in, monkeypatch, capsys):
    first, other = (
        release(tmp_path / "r1" / "release.json", "first"),
        release(tmp_path / "r2" / "release.json", "other"),
    )
    book = tmp_path / "book"
    assert run(monkeypatch, capsys, handed_in, "--out", book)[0] == 0
    assert run(monkeypatch, capsys, handed_in, "--out", book, "--release", first)[0] == 0
    code, said = run(monkeypatch, capsys, handed_in, "--out", book, "--release", other.parent)
    assert code == 1
    assert "holds marks of release first, and this is release other; give the release of these notebooks" in said
    assert Book(book).release().id == "first"


def test_hand_ins_of_another_release_are_said(tmp_path, monkeypatch, capsys):
    made = json.loads(lab())
    made["metadata"]["w2w"]["release"] = "spring"
    put(tmp_path / "in", {"ann_00_start.ipynb": json.dumps(made).encode(), "ben_00_start.ipynb": lab()})
    given = release(tmp_path / "release.json", "autumn")
    _, said = run(monkeypatch, capsys, tmp_path / "in", "--out", tmp_path / "book", "--release", given)
    assert "hand-ins of release spring, graded as of autumn: 1" in said


def test_a_folder_of_other_files_becomes_no_gradebook(tmp_path, handed_in, monkeypatch, capsys):
    before = sorted(handed_in.iterdir())
    code, said = run(monkeypatch, capsys, handed_in, "--out", handed_in)
    assert code == 1
    assert "holds other files (ann_00_start.ipynb) and is no gradebook; name an empty folder with --out" in said
    assert sorted(handed_in.iterdir()) == before


def test_a_file_is_no_gradebook(tmp_path, handed_in, monkeypatch, capsys):
    code, said = run(monkeypatch, capsys, handed_in, "--out", handed_in / "ann_00_start.ipynb")
    assert code == 1
    assert "ann_00_start.ipynb is a file and is no gradebook" in said


@pytest.mark.parametrize("words", [(), ("--unit", "00")])
def test_a_place_where_nothing_was_handed_in_is_said_and_leaves_no_gradebook(tmp_path, monkeypatch, capsys, words):
    (tmp_path / "in").mkdir()
    code, said = run(monkeypatch, capsys, tmp_path / "in", "--out", tmp_path / "book", *words)
    assert code == 1
    assert f"nothing that was handed in {'of unit 00 ' if words else ''}lies in {tmp_path / 'in'}" in said
    assert not (tmp_path / "book").exists()


def test_whoever_stops_it_is_told_what_is_stored(tmp_path, handed_in, monkeypatch, capsys):
    def stopped(tasks, how, keep):
        keep(passing(next(iter(tasks))))
        raise KeyboardInterrupt

    monkeypatch.setattr(batch, "grade", stopped)
    code, said = run(monkeypatch, capsys, handed_in, "--out", tmp_path / "book")
    assert code == 130
    assert "stopped: 1 of 12 answers are graded and stored; the same command does the others" in said
    assert len(list(Book(tmp_path / "book").results())) == 1


def test_a_unit_that_was_not_collected_yet_is_not_counted(tmp_path, handed_in, monkeypatch, capsys):
    both = tmp_path / "release.json"
    both.write_text(Release("two", ("00", "01")).as_json())
    given = (handed_in, "--out", tmp_path / "book", "--release", both)
    assert run(monkeypatch, capsys, *given, "--unit", "00")[0] == 0
    from gpu_utils.classroom.marks import class_of

    assert {mark.unit for student in class_of(Book(tmp_path / "book")) for mark in student.marks} == {"00"}
    assert run(monkeypatch, capsys, *given)[0] == 0
    assert {mark.unit for student in class_of(Book(tmp_path / "book")) for mark in student.marks} == {"00", "01"}
