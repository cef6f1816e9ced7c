"""The filter of system calls, evaluated as the kernel would; and what the walls leave of a machine."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_utils import exercises
from gpu_utils.grading.walls import bwrap, confine, spec

ALLOW, REFUSE, KILL = 0x7FFF0000, 0x00050000, 0x80000000
X86_64, I386 = 0xC000003E, 0x40000003
READ, WRITE, MMAP, CLONE, CLONE3, FORK, EXECVE = 0, 1, 9, 56, 435, 57, 59
A_THREAD, A_PROCESS, A_USER_NAMESPACE = 0x3D0F00, 17, 0x10000011


def verdict(code, number, first=0, machine=X86_64):
    """What a filter returns for a call of the kernel with its first argument."""
    data = struct.pack("<IIQQ", number, machine, 0, first)
    lines = list(struct.iter_unpack("<HBBI", code))
    at = value = 0
    while True:
        operation, yes, no, k = lines[at]
        at += 1
        if operation == 0x20:
            (value,) = struct.unpack_from("<I", data, k)
        elif operation == 0x06:
            return k
        else:
            met = {0x15: value == k, 0x35: value >= k, 0x45: bool(value & k)}[operation]
            at += yes if met else no


@pytest.mark.parametrize("processes", [False, True])
def test_reading_writing_and_memory_are_allowed(processes):
    code = confine.program(processes)
    assert {verdict(code, number) for number in (READ, WRITE, MMAP)} == {ALLOW}


@pytest.mark.parametrize("processes", [False, True])
def test_a_thread_may_be_made(processes):
    assert verdict(confine.program(processes), CLONE, A_THREAD) == ALLOW


def test_a_process_may_be_made_only_where_that_is_allowed():
    with_none, with_some = confine.program(False), confine.program(True)
    for number, first in ((FORK, 0), (EXECVE, 0), (CLONE, A_PROCESS)):
        assert verdict(with_none, number, first) == REFUSE | 1
        assert verdict(with_some, number, first) == ALLOW


@pytest.mark.parametrize("name", confine._NEVER)
def test_what_leads_out_is_refused(name):
    assert verdict(confine.program(True), confine._NEVER[name]) == REFUSE | 1


def test_clone3_seems_not_to_exist_so_that_clone_is_taken():
    assert verdict(confine.program(True), CLONE3) == REFUSE | 38


@given(st.integers(0x40000000, 2**32 - 1))
def test_the_other_table_of_calls_is_refused(number):
    assert verdict(confine.program(True), number) == REFUSE | 1


@given(st.integers(0, 2**32 - 1))
def test_calls_of_another_machine_end_the_process(number):
    assert verdict(confine.program(True), number, machine=I386) == KILL


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1), st.booleans())
def test_the_filter_has_an_answer_for_every_call(number, first, processes):
    assert verdict(confine.program(processes), number, first) in (ALLOW, REFUSE | 1, REFUSE | 38)


def test_a_new_user_namespace_is_refused_where_processes_are_not():
    assert verdict(confine.program(False), CLONE, A_USER_NAMESPACE) == REFUSE | 1


PROBE = """
import os
from gpu_utils.grading.walls import confine
confine.read_only_machine()
for line in open("/proc/self/mountinfo"):
    path, options = line.split()[4:6]
    print(path, options.split(",")[0])
with open("/dev/null", "r+b") as null, open("/dev/urandom", "rb") as random:
    null.write(random.read(8))
print(sorted(os.environ), os.getuid())
"""


@pytest.mark.usefixtures("bwrap")
def test_inside_nothing_but_scratch_folders_can_be_written():
    said = inside(PROBE)
    mounts = dict(re.findall(r"^(/\S*) (ro|rw)$", said, re.MULTILINE))
    assert {path for path, how in mounts.items() if how == "rw"} == {"/scratch", "/dev/shm", "/dev/pts"}


@pytest.mark.usefixtures("bwrap")
def test_inside_there_is_no_variable_of_the_grader(monkeypatch):
    monkeypatch.setenv("SECRET_OF_THE_GRADER", "1")
    assert "SECRET_OF_THE_GRADER" not in inside(PROBE)


def inside(program):
    command = [*bwrap._walls(shutil.which("bwrap")), sys.executable, "-P", "-s", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    return done.stdout


LISTED = "import os; print(*os.listdir({!r}))"


@pytest.mark.usefixtures("bwrap")
def test_answers_see_no_exercises_and_no_solutions():
    names = {*inside(LISTED.format(f"{bwrap.COURSE}/gpu_utils")).split()}
    assert not names & {*bwrap.LEFT_OUT}
    assert {"grading", "virtual", "backends"} <= names


@pytest.mark.usefixtures("bwrap")
def test_a_checkout_below_a_folder_that_programs_need_is_hidden_there(tmp_path, monkeypatch):
    checkout = tmp_path / "share" / "course"
    checkout.mkdir(parents=True)
    (checkout / "pyproject.toml").touch()
    (checkout / "gpu_utils" / "exercises").mkdir(parents=True)
    (checkout / "gpu_utils" / "errors.py").touch()
    (checkout / "python").mkdir()
    (checkout / "python" / "program").touch()
    monkeypatch.setattr(bwrap, "LIBRARY", checkout / "gpu_utils")
    monkeypatch.setattr(bwrap, "_SYSTEM", (*bwrap._SYSTEM, str(tmp_path / "share"), str(checkout / "python")))
    assert inside(LISTED.format(str(checkout))).split() == ["python"]
    assert inside(LISTED.format(str(checkout / "python"))).split() == ["program"]
    assert inside(LISTED.format(f"{bwrap.COURSE}/gpu_utils")).split() == ["errors.py"]


@pytest.mark.usefixtures("bwrap")
def test_a_library_below_a_folder_that_programs_need_is_hidden_there(tmp_path, monkeypatch):
    (tmp_path / "gpu_utils" / "exercises").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    monkeypatch.setattr(bwrap, "LIBRARY", tmp_path / "gpu_utils")
    monkeypatch.setattr(bwrap, "_SYSTEM", (*bwrap._SYSTEM, str(tmp_path)))
    assert sorted(inside(LISTED.format(str(tmp_path))).split()) == ["gpu_utils", "other"]
    assert inside(LISTED.format(str(tmp_path / "gpu_utils"))).split() == []


@pytest.mark.parametrize("exercise", exercises.ids())
def test_a_call_travels_without_what_is_right(exercise):
    assert b"_reference" not in spec.fields_of(exercises.find(exercise))["call"]
