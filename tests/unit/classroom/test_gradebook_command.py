"""`w2w gradebook`: everything that a teacher gets out of a gradebook, in one command."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from gpu_utils import __version__
from gpu_utils.classroom.instructor import Alike, Findings, near_identical, report
from gpu_utils.classroom.marks import class_of
from gpu_utils.cli import app
from tests.unit.classroom.made_class import RELEASE, UNIT, book, hand_in, result, small_class, submission
from tests.unit.classroom.test_feedback import HOSTILE, Reader


def _w2w(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> object:
    monkeypatch.setattr(sys, "argv", ["w2w", "gradebook", *map(str, arguments)])
    with pytest.raises(SystemExit) as stop:
        app.main()
    return stop.value.code


def _report(made, alike=()) -> str:
    findings = Findings()
    for found in made.results():
        findings.add(found)
    page = Reader(report(made, class_of(made), findings, alike))
    assert page.wrong == []
    return " ".join(page.text.split())


def test_one_command_writes_every_file_and_says_where(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "book"
    small_class(folder)
    assert _w2w(monkeypatch, folder) == 0
    said = capsys.readouterr().out
    for name in ("marks.csv", "canvas.csv", "moodle.csv", "report.html", "feedback", "results"):
        assert (folder / name).exists()
        assert str(folder / name) in said
    assert len(list((folder / "feedback").iterdir())) == len(list((folder / "results").iterdir())) == 5
    assert "Unit 00: 3 of 5 students handed in a lab that could be graded; mean 2.83 of 6.1 points." in said
    assert "00.vector_add" in said


def test_answers_without_a_verdict_are_counted_before_the_tables_are_handed_on(tmp_path, monkeypatch, capsys):
    made = book(tmp_path)
    made.put_submission(submission("a"))
    made.put_result(result("a", UNIT[0]))
    made.put_result(result("a", UNIT[1], "not graded"))
    _w2w(monkeypatch, tmp_path)
    said = capsys.readouterr().out
    assert f"Answers not graded yet, which stand as 0: {len(UNIT) - 2}." in said
    assert "Answers that this machine could not grade, which stand as 0: 1." in said


def test_running_it_again_gives_the_same_files(tmp_path, monkeypatch):
    small_class(tmp_path)
    runs = []
    for _ in range(2):
        _w2w(monkeypatch, tmp_path)
        files = [path for path in tmp_path.rglob("*") if path.suffix in (".html", ".csv", ".json")]
        runs.append({path: path.read_bytes() for path in files})
    assert runs[0] == runs[1]


def test_with_a_roster_its_table_is_filled_and_who_is_missing_is_named(tmp_path, monkeypatch, capsys):
    folder, roster = tmp_path / "book", tmp_path / "export.csv"
    small_class(folder)
    roster.write_text("Student,ID,SIS Login ID,Section\nS. E.,501,student-001,A\n", encoding="utf-8")
    _w2w(monkeypatch, folder, "--roster", roster)
    assert (folder / "canvas.csv").read_text("utf-8-sig").splitlines() == [
        "Student,ID,SIS Login ID,Section,Unit 00",
        "S. E.,501,student-001,A,6.1",
    ]
    assert "student-002, student-003, student-004; their marks are in marks.csv only." in capsys.readouterr().out


def test_a_folder_that_is_no_gradebook_is_one_sentence(tmp_path, monkeypatch):
    assert _w2w(monkeypatch, tmp_path) == (
        f"w2w: {tmp_path} is no gradebook: it has no book.sqlite; w2w grade ... --out makes one"
    )


def test_the_report_counts_students_hand_ins_and_reasons(tmp_path):
    said = _report(small_class(tmp_path))
    assert "5 students 3 hand-ins graded 2 without a mark" in said
    assert "3 handed in a lab that could be graded. Mean 2.83, median 2.4 of 6.1 points." in said
    assert "1: handed in nothing for unit 00" in said
    assert "1: a file is cut off" in said
    assert "class.zip::student-003.ipynb is cut off" in said
    assert "course that wrote this report: " + __version__ in said
    assert f"The seed of all fresh cases is {tmp_path}/seed." in said


def test_hand_ins_that_fail_alike_are_one_group_whatever_their_names_and_places(tmp_path):
    made = book(tmp_path)
    for student, byte in (("a", 3), ("b", 40)):
        name = f"in/{student}.ipynb"
        made.put_submission(submission(student, source=name, problem=f"{name} is not UTF-8 text (byte {byte})"))
    said = _report(made)
    assert "2: a file is not UTF-8 text a" in said
    assert "in/b.ipynb is not UTF-8 text (byte 40)" in said


def test_the_report_shows_bars_that_add_up(tmp_path):
    said = _report(small_class(tmp_path))
    assert "00.platform 2 passed, 1 failed" in said
    assert "00.column_sums 1 passed, 2 failed" in said


def test_the_report_has_misconceptions_flags_logs_and_what_ran_without_a_sandbox(tmp_path):
    made = book(tmp_path)
    for student in ("a", "b"):
        made.put_submission(submission(student, notes=("2 files; the later one counts",)))
        made.put_result(
            result(
                student, "00.saxpy", "failed", misconception="rounds_down", hint="Count the last block.", walls="none"
            )
        )
    made.put_result(
        result("b", "00.vector_add", flags=("it walked the frames of /proc/1/mem",), log="x" * 9_000 + "the end")
    )
    said = _report(made)
    assert "2 00.saxpy rounds_down Count the last block." in said
    assert "b, 00.vector_add, points: 2 it walked the frames of /proc/1/mem The end of its log" in said
    assert "x the end" not in said
    assert "xthe end" in said
    assert said.count("x" * 1_900) == 1
    assert "x" * 2_001 not in said
    assert "2 answers ran without a sandbox" in said
    assert "a, unit 00: 2 files; the later one counts" in said


def test_near_identical_answers_stand_side_by_side_as_pairs_to_look_at(tmp_path):
    made = small_class(tmp_path)
    pair = Alike(
        "00.saxpy", "student-001", "student-002", 0.97, "2 of 5 wrote this", "def saxpy(): ...", "def saxpy(): pass"
    )
    said = _report(made, [pair])
    assert "Pairs to look at, not verdicts" in said
    assert "00.saxpy: student-001 and student-002, 97 % alike; 2 of 5 wrote this" in said
    assert "def saxpy(): ..." in said
    assert "def saxpy(): pass" in said


def test_answers_are_compared_exercise_by_exercise_with_the_untouched_lab_beside_them(tmp_path):
    made = book(tmp_path)
    for student in ("a", "b", "c"):
        made.put_submission(submission(student))
        made.put_result(result(student, "00.saxpy", answer=f"def saxpy(x, y, a): return {student}"))
        made.put_result(result(student, "00.vector_add", "not started", answer="untouched"))
    findings, seen = Findings(), []
    for found in made.results():
        findings.add(found)

    def compare(answers, stub):
        seen.append((answers, stub))
        return [SimpleNamespace(first="a", second="c", similarity=1.0, alike=2, of=3)]

    (pair,) = near_identical(findings, compare)
    assert [set(answers) for answers, _ in seen] == [{"a", "b", "c"}]
    assert "YOUR CODE" in seen[0][1]
    assert (pair.a, pair.b, pair.common, pair.source_b) == (
        "a",
        "c",
        "2 of 3 wrote this",
        "def saxpy(x, y, a): return c",
    )


def test_hostile_text_stays_text_in_the_report(tmp_path):
    made = book(tmp_path)
    made.put_submission(submission(HOSTILE, name=HOSTILE, notes=(HOSTILE,)))
    made.put_submission(submission("b", source=HOSTILE, problem=HOSTILE))
    hostile = {"hint": HOSTILE, "misconception": HOSTILE, "flags": (HOSTILE,), "log": HOSTILE, "headline": HOSTILE}
    made.put_result(result(HOSTILE, "00.saxpy", "not graded", **hostile, backends=HOSTILE, walls=HOSTILE))
    assert _report(made, [Alike("00.saxpy", *[HOSTILE] * 2, 1.0, *[HOSTILE] * 3)]).count("{{ 7*7 }}") > 10


def test_a_gradebook_of_nobody_has_a_report(tmp_path, monkeypatch, capsys):
    book(tmp_path, RELEASE)
    assert _w2w(monkeypatch, tmp_path) == 0
    assert "Nobody is in this gradebook yet." in capsys.readouterr().out
    assert "Nobody has handed in a lab that can be graded." in (tmp_path / "report.html").read_text("utf-8")


def test_the_hundredth_student_costs_what_the_first_does(tmp_path):
    """No result is kept but its answer: findings hold counts, and the flagged ones with the end of their log."""
    made = book(tmp_path)
    hand_in(made, "a")
    findings = Findings()
    for found in list(made.results()) * 100:
        findings.add(found)
    assert findings.walls == {"bubblewrap": 600}
    assert findings.flagged == []
