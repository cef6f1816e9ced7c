"""Whatever an answer or the machine does, a check gives one clear sentence, loses nothing and keeps its time."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import itertools
import multiprocessing
import os
import signal
import sqlite3
import time
from pathlib import Path

import pytest
import torch

from gpu_utils import check as notebook_check
from gpu_utils import exercises, folders, progress
from gpu_utils.errors import CheckTimeout
from gpu_utils.grading import fork_server
from gpu_utils.grading import progress as store
from gpu_utils.grading.check import check
from gpu_utils.grading.plain import NotPlain, plain
from gpu_utils.grading.program import Part, Program
from gpu_utils.grading.report import Mode
from gpu_utils.grading.sandbox import run_apart
from gpu_utils.grading.surroundings import TimeLimit
from gpu_utils.ui.report import report_text
from tests.unit.sample_exercises import AFFINE, affine, find_sample

QUICK = dataclasses.replace(AFFINE, seconds=0.2)


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("W2W_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


def apart(source):
    return check(AFFINE, None, runner=run_apart(Program((Part("cell 5", source),)), find_sample))


# --- what an answer returns or raises ---------------------------------------------------------------------------


class _Loops:
    def __repr__(self):
        while True:
            pass

    __str__ = __len__ = __eq__ = __bool__ = __hash__ = __repr__  # type: ignore[assignment]


class _LoopingError(Exception):
    def __str__(self):
        while True:
            pass


class _LoopingDict(dict):
    def items(self):
        return ((n, n) for n in itertools.count())


def _raises(problem):
    raise problem


ODD = {
    "a huge number": (lambda x: 10**100_000, "is an int of about 100,001 digits"),
    "a __repr__ that never ends": (lambda x: _Loops(), "is a _Loops object, expected a tensor"),
    "an endless list": (lambda x: itertools.count(), "is a count (list(...) makes a list of it)"),
    "an endless dict": (lambda x: _LoopingDict(), "is a _LoopingDict of more than 200,000 items"),
    "a list within itself": (lambda x: (held := [], held.append(held))[0], "expected a tensor of shape (8,)"),
    "a class": (lambda x: torch.Tensor, "is the class Tensor"),
    "bytes": (lambda x: b"\0" * 5, "is a bytes"),
    "a complex number": (lambda x: 1j, "is a complex, expected"),
    "an error that never says what it is": (lambda x: _raises(_LoopingError()), "_LoopingError: no message"),
    "an error with a long name": (lambda x: _raises(type("E" * 300, (Exception,), {})("why")), "EEE: why"),
}


@pytest.mark.parametrize("name", ODD)
def test_an_odd_result_is_one_sentence(name, monkeypatch):
    monkeypatch.setattr("gpu_utils.grading.execute.EXPLAIN_SECONDS", 0.1)
    answer, sentence = ODD[name]
    start = time.perf_counter()
    report = check(dataclasses.replace(AFFINE, cases=AFFINE.cases[:1]), answer, seed=1)
    assert report.status == "failed"
    assert sentence in report.headline
    assert len(report.headline) < 1200
    assert report_text(report)
    assert time.perf_counter() - start < 20


def test_numbers_are_printed_where_a_report_can_hold_them():
    for expected, got in ((3, 10**5000), (0.5, 10**500), (3, float("1e308"))):
        exercise = dataclasses.replace(AFFINE, reference=lambda x, expected=expected: expected)
        report = check(exercise, lambda x, got=got: got)
        assert report.status == "failed"
        assert len(report.headline) < 400


@pytest.mark.parametrize("reset", ["signal.alarm(0)", "signal.setitimer(signal.ITIMER_REAL, 0)", "ignored"])
def test_an_answer_that_switches_the_alarm_off_is_stopped_all_the_same(reset, monkeypatch):
    def switches_off(x):
        with contextlib.suppress(Exception):
            signal.signal(signal.SIGALRM, signal.SIG_IGN) if reset == "ignored" else eval(reset)
        time.sleep(60)

    monkeypatch.setattr("gpu_utils.grading.surroundings.SECOND_CHANCE", 0.2)
    handler = signal.getsignal(signal.SIGALRM)
    start = time.perf_counter()
    report = check(QUICK, switches_off)
    assert report.first_failure.kind == "timeout"
    assert time.perf_counter() - start < 5
    assert check(AFFINE, affine).passed
    assert signal.getsignal(signal.SIGALRM) == handler


def test_an_alarm_on_the_way_out_of_a_time_limit_leaves_nothing_behind():
    handler = signal.getsignal(signal.SIGALRM)
    stopped = 0
    for trial in range(600):  # from a little less than the limit to a little more
        try:
            with TimeLimit(0.001):
                end = time.perf_counter() + 0.0009 + trial * 2e-7
                while time.perf_counter() < end:
                    pass
        except CheckTimeout:
            stopped += 1
        assert signal.getsignal(signal.SIGALRM) == handler
        assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
    assert stopped


def test_a_working_folder_that_an_answer_leaves_is_that_of_the_notebook_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def moves(x):
        os.chdir("/")
        return affine(x)

    assert check(AFFINE, moves).passed
    assert os.getcwd() == str(tmp_path)


# --- another process --------------------------------------------------------------------------------------------

_WRITES = (
    "import dataclasses, os, torch\n"
    "from pathlib import Path\n"
    "from gpu_utils.grading.execute import Attempt\n"
    "def affine(x):\n"
    "    fields = {{field.name: getattr(Attempt(), field.name) for field in dataclasses.fields(Attempt)}}\n"
    "    {change}\n"
    "    torch.save(fields, Path(__file__).with_name('forged.part'))\n"
    "    Path(__file__).with_name('forged.part').rename(Path(__file__).with_name('0.pt'))\n"
    "    os._exit(0)\n"
)
MALFORMED = {
    "fields['counters'] = 7": "its field counters",
    "fields['counters'] = {'launches': 'many'}": "its field counters",
    "fields['error'] = None": "its field error",
    "fields['mutated'] = 'x'": "its field mutated",
    "fields['seconds'] = float": "UnpicklingError",
    "fields['more'] = 1": "other fields",
    "fields = [1, 2]": "other fields",
}


@pytest.mark.parametrize("change", MALFORMED)
def test_a_result_with_malformed_fields_is_a_failure_of_its_exercise(change):
    report = apart(_WRITES.format(change=change))
    assert report.status == "failed"
    assert "the answer's process gave something else than a result" in report.headline
    assert MALFORMED[change] in report.headline


def test_what_cannot_be_handed_over_is_named_and_not_shown_as_text():
    assert "is an int of about 100,001 digits" in apart("def affine(x):\n    return 10**100_000").headline
    assert "is a object object, expected a tensor" in apart("def affine(x):\n    return object()").headline
    assert "['a'] is" not in apart("def affine(x):\n    return {'a': object()}").headline


def test_a_marker_of_the_childs_own_making_is_read_as_text():
    assert plain(NotPlain("x" * 1000)).found == "x" * 200


def test_processes_that_left_the_group_of_the_answer_end_with_the_check(tmp_path):
    note = tmp_path / "pid"
    source = (
        "import os, subprocess\n"
        "def affine(x):\n"
        "    if os.fork() == 0:\n"
        "        os.setsid()\n"
        "        if os.fork() == 0:\n"
        f"            child = subprocess.Popen(['sleep', '60'], start_new_session=True)\n"
        f"            open({str(note)!r}, 'a').write(f'{{child.pid}}\\n')\n"
        "        os._exit(0)\n"
        "    import time; time.sleep(0.1)\n"
        "    return 2 * x + 1\n"
    )
    assert apart(source).passed
    pids = note.read_text().split()
    assert pids
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and any(os.path.exists(f"/proc/{pid}/exe") for pid in pids):
        time.sleep(0.05)
    assert not any(os.path.exists(f"/proc/{pid}/exe") for pid in pids)
    assert apart("def affine(x):\n    return 2 * x + 1").passed


# --- the machine ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "problem",
    [
        OSError(errno.ENOSPC, "No space left on device", "/cache/triton/x.ptx"),
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        PermissionError(errno.EACCES, "Permission denied", "/cache/triton/x"),
        FileExistsError(errno.EEXIST, "File exists", "/cache"),
    ],
    ids=str,
)
def test_a_cache_without_room_is_not_the_answers_fault(problem, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", "/cache/triton")
    report = check(AFFINE, lambda x: _raises(problem))
    assert report.status == "not graded"
    assert "set TRITON_CACHE_DIR and W2W_CACHE to folders" in report.headline
    assert problem.strerror in report.headline


def test_a_file_of_the_answers_own_that_cannot_be_opened_is_its_fault(monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", "/cache/triton")
    assert check(AFFINE, lambda x: Path("/nowhere/file").read_text()).status == "failed"


def test_a_name_that_is_too_long_for_a_file_is_said():
    report = check(AFFINE, lambda x: Path("k" * 300).read_text())
    assert "a name is too long for a file" in report.headline
    assert len(report.headline) < 700


def another_programs(path):
    path.parent.mkdir(parents=True)
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE attempts (login TEXT, password TEXT)")
        connection.execute("CREATE TABLE people (name TEXT)")
        connection.execute("PRAGMA user_version = 40")
    return path.read_bytes()


def test_a_database_of_another_program_is_left_as_it_is_and_said(data):
    before = another_programs(data / "progress.sqlite3")
    report = notebook_check("01.lr_schedule", lambda **given: 1)
    assert report.status == "failed"
    assert "is the database of another program (it holds attempts, people)" in report.notes[0]
    assert "set W2W_DATA to another folder" in progress().note
    assert (data / "progress.sqlite3").read_bytes() == before


def test_a_data_folder_that_is_deleted_meanwhile_is_made_again(data):
    def deletes(**given):
        import shutil

        shutil.rmtree(data, ignore_errors=True)
        return 1

    assert notebook_check("01.lr_schedule", deletes).notes == ()
    assert store.standing(["01.lr_schedule"])[0].attempts == 1


def test_a_working_folder_that_is_gone_is_no_obstacle(tmp_path, monkeypatch, data):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    monkeypatch.setenv("W2W_DATA", "relative")
    assert folders.data_folder().name == "relative"
    report = notebook_check("01.lr_schedule", lambda **given: 1)
    assert report.status == "failed"
    assert "progress could not be stored in relative" in report.notes[0]
    assert "set W2W_DATA" in progress().note or len(progress().rows) == len(exercises.ids())
    monkeypatch.chdir(tmp_path)


def _exits():
    os._exit(3)


def _crashes():
    os.kill(os.getpid(), signal.SIGSEGV)


def _ends_python(end, folder):
    os.environ["W2W_DATA"] = folder
    notebook_check("01.init", lambda **given: end())


@pytest.mark.parametrize("end", [_exits, _crashes])
def test_a_check_that_ends_python_is_told_at_the_next_one(end, data):
    fork_server.start()
    process = multiprocessing.get_context("forkserver").Process(target=_ends_python, args=(end, str(data)))
    process.start()
    process.join()
    assert process.exitcode in (3, -signal.SIGSEGV)
    assert "The last check of 01.init ended Python before it could report" in progress().note
    report = notebook_check("01.lr_schedule", lambda **given: 1)
    assert "check 01.init runs each answer in a process of its own" in report.notes[0]
    assert store.standing(["01.init"])[0].attempts == 1
    assert notebook_check("01.lr_schedule", lambda **given: 1).notes == ()
    assert progress().note == ""


# --- answers that keep what they computed -----------------------------------------------------------------------


@pytest.mark.parametrize("key", [lambda x: tuple(x.shape), lambda x: (x.dtype, x.numel())])
def test_an_answer_that_keeps_results_by_shape_fails(key):
    kept = {}

    def answer(x):
        if key(x) not in kept:
            kept[key(x)] = affine(x)
        return kept[key(x)].clone()

    report = check(AFFINE, answer, seed=4)
    assert report.status == "failed"
    (failed,) = [outcome for outcome in report.outcomes if outcome.status == "failed" and outcome.mode is Mode.RUN]
    assert "nothing may be kept from one call to the next" in failed.why
