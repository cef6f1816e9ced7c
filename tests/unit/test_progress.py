"""Progress survives two writers, a broken file and a folder that cannot be written."""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
import subprocess

import pytest

from gpu_utils.errors import ProgressUnavailable
from gpu_utils.grading import progress


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("W2W_DATA", str(tmp_path))
    return tmp_path


def attempt(status="failed", exercise="00.saxpy"):
    return progress.record_attempt(exercise, status, "cpu", "", 1, 0.5)


def test_nothing_is_written_by_looking():
    assert progress.standing(["00.saxpy"])[0].state == "not started"
    assert not list(progress.data_folder().iterdir())


def test_attempts_hints_and_solutions_are_counted():
    attempt()
    attempt("passed")
    attempt("not started")
    progress.record_hint("00.saxpy", 2)
    progress.record_solution("00.saxpy")
    (row,) = progress.standing(["00.saxpy"])
    assert (row.attempts, row.hints, row.solution_seen, row.state) == (2, 2, True, "passed")


def test_a_later_failure_does_not_take_a_pass_away():
    attempt("passed")
    attempt("failed")
    assert progress.standing(["00.saxpy"])[0].state == "passed"


def _write_many(count):
    for _ in range(count):
        attempt()


def test_two_notebooks_writing_at_once_lose_nothing():
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_write_many, args=(25,)) for _ in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    assert progress.standing(["00.saxpy"])[0].attempts == 75


def test_a_file_that_is_no_database_is_kept_aside(folder):
    path = folder / "progress.sqlite3"
    path.write_bytes(b"this was something else" * 100)
    note = attempt()
    kept = list(folder.glob("progress.unreadable-*"))
    assert len(kept) == 1
    assert kept[0].read_bytes().startswith(b"this was something else")
    assert kept[0].name in note
    assert progress.standing(["00.saxpy"])[0].attempts == 1


def test_a_locked_file_is_left_alone_and_said(folder, monkeypatch):
    attempt()
    monkeypatch.setattr(progress, "WAIT_SECONDS", 0.1)
    holder = sqlite3.connect(folder / "progress.sqlite3")
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(ProgressUnavailable, match="locked"):
        attempt()
    holder.rollback()
    holder.close()
    assert progress.standing(["00.saxpy"])[0].attempts == 1


def test_a_folder_that_cannot_be_made_is_said(folder, monkeypatch):
    (folder / "file").write_text("")
    monkeypatch.setenv("W2W_DATA", str(folder / "file" / "data"))
    with pytest.raises(ProgressUnavailable, match="set W2W_DATA to another folder"):
        attempt()


def test_a_full_disk_is_said_and_the_old_file_still_reads(folder):
    attempt("passed")
    script = (
        "import resource, signal\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        "from gpu_utils.grading import progress\n"
        "try:\n"
        "    progress.record_attempt('00.saxpy', 'failed', 'cpu', '', 1, 0.5)\n"
        "except progress.ProgressUnavailable as problem:\n"
        "    print(problem)\n"
    )
    import sys

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=os.environ, check=True)
    assert "progress could not be stored" in done.stdout
    assert progress.standing(["00.saxpy"])[0].state == "passed"


def test_a_file_from_a_newer_course_is_not_touched(folder):
    attempt()
    connection = sqlite3.connect(folder / "progress.sqlite3")
    connection.execute("PRAGMA user_version = 99")
    connection.commit()
    connection.close()
    before = (folder / "progress.sqlite3").read_bytes()
    with pytest.raises(ProgressUnavailable, match="newer course"):
        attempt()
    assert (folder / "progress.sqlite3").read_bytes() == before


def test_a_file_that_is_damaged_inside_is_kept_aside_too(folder):
    attempt()
    path = folder / "progress.sqlite3"
    whole = path.read_bytes()
    damaged = whole[:4096] + b"\xff" * (len(whole) - 4096)
    path.write_bytes(damaged)
    note = attempt("passed")
    assert "kept as" in note
    (aside,) = folder.glob("*.unreadable-*")
    assert aside.read_bytes() == damaged
    assert progress.standing(["00.saxpy"])[0].state == "passed"


def test_looking_at_a_file_that_is_no_database_says_what_happens_next(folder):
    (folder / "progress.sqlite3").write_bytes(b"not a database, but long enough to be read as one" * 50)
    with pytest.raises(ProgressUnavailable, match="the next check keeps it aside"):
        progress.standing(["00.saxpy"])


def test_looking_at_a_file_from_a_newer_course_says_so(folder):
    with sqlite3.connect(folder / "progress.sqlite3") as connection:
        connection.execute("PRAGMA user_version = 7")
    with pytest.raises(ProgressUnavailable, match="newer course"):
        progress.standing(["00.saxpy"])


def guess_of(name="00.programs", at=-1):
    found = progress.predictions([name])[name][at]
    return found.attempt, found.guesses, found.answers


def test_the_last_guess_before_the_lock_counts():
    progress.record_guess("00.programs", 1, "programs", "2")
    progress.record_guess("00.programs", 1, "programs", "3")
    progress.record_answers("00.programs", 1, {"programs": ("3", True)})
    progress.record_guess("00.programs", 1, "programs", "4")
    assert guess_of() == (1, {"programs": "3"}, {"programs": ("3", True)})


def test_the_first_answer_stands_and_a_second_try_is_kept_apart():
    progress.record_answers("00.programs", 1, {"programs": ("3", None)})
    progress.record_answers("00.programs", 1, {"programs": ("4", None)})
    progress.record_guess("00.programs", 2, "programs", "3")
    assert guess_of(at=0) == (1, {}, {"programs": ("3", None)})
    assert guess_of(at=1) == (2, {"programs": "3"}, {})


def test_a_file_of_the_first_schema_is_read_as_it_is_and_upgraded_by_the_first_writer(folder):
    with sqlite3.connect(folder / "progress.sqlite3") as old:
        old.executescript(progress._STEPS[0] + "PRAGMA user_version = 1;")
        old.execute("INSERT INTO hints (exercise, strength, at) VALUES ('00.saxpy', 2, '2026-01-01')")
    before = (folder / "progress.sqlite3").read_bytes()
    assert progress.predictions(["00.programs"]) == {"00.programs": []}
    assert progress.hints_used("00.saxpy") == 2
    assert (folder / "progress.sqlite3").read_bytes() == before
    progress.record_guess("00.programs", 1, "programs", "3")
    assert progress.hints_used("00.saxpy") == 2
    with sqlite3.connect(folder / "progress.sqlite3") as new:
        assert new.execute("PRAGMA user_version").fetchone() == (len(progress._STEPS),)


def _guess_many(count):
    for number in range(count):
        progress.record_guess("00.programs", 1, "programs", str(number))


def test_two_notebooks_that_upgrade_an_old_file_at_once_lose_nothing(folder):
    with sqlite3.connect(folder / "progress.sqlite3") as old:
        old.executescript(progress._STEPS[0] + "PRAGMA user_version = 1;")
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_guess_many, args=(10,)) for _ in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    with sqlite3.connect(folder / "progress.sqlite3") as connection:
        assert connection.execute("SELECT COUNT(*) FROM guesses").fetchone() == (30,)
