"""A roster is read from any system's CSV, and names a student only where one alone is meant."""

from __future__ import annotations

import pytest

from gpu_utils.classroom.roster import Roster, Student, read_roster
from gpu_utils.errors import ClassroomError

CANVAS = """Student,ID,SIS User ID,SIS Login ID,Section,Lab 00 (5)
    Points Possible,,,,,5
"Example, Ann",11,S1,annex,A,
"Sample, Ben",12,S2,bensa,A,4
"Student, Test",13,,test,A,
"""
MOODLE = "First name,Last name,ID number,Email address\nAnn,Example,S1,ann@example.org\nBen,Sample,,ben@example.org\n"
WORKSHEET = "Identifier,Full name,Email address,Status\nParticipant 77,Ann Example,ann@example.org,Submitted\n"


def read(tmp_path, content: str | bytes) -> Roster:
    path = tmp_path / "roster.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_roster(path)


@pytest.mark.parametrize(
    ("content", "students"),
    [
        (CANVAS, [("11", "Example, Ann"), ("12", "Sample, Ben")]),
        (MOODLE, [("S1", "Ann Example"), ("ben@example.org", "Ben Sample")]),
        (WORKSHEET, [("Participant 77", "Ann Example")]),
        ("Name;Student ID\nAnn;s1\n\nBen;s2\n", [("s1", "Ann"), ("s2", "Ben")]),
        ("﻿STUDENT_ID\tname\ns1\tAnn\n", [("s1", "Ann")]),
        ("login\nann\n", [("ann", "")]),
        ("id,name\n1,\xdcnal\n".encode("cp1252"), [("1", "Ünal")]),
        ("id,name\n1,\xdcnal\n".encode("utf-16"), [("1", "Ünal")]),
        ('id,name\n1,"Example, ""Ann"" \nB."\n', [("1", 'Example, "Ann" \nB.')]),
        ("id,name,\n=cmd(),Ann,x,y\n", [("=cmd()", "Ann")]),
    ],
)
def test_a_roster_of_any_system_is_read(tmp_path, content, students):
    assert [(student.id, student.name) for student in read(tmp_path, content).students] == students


@pytest.mark.parametrize("said", ["11", "S1", "annex", "exampleann", "Ann Example", "ann_EXAMPLE", "Example, Ann"])
def test_a_student_is_found_by_whatever_names_them(tmp_path, said):
    assert read(tmp_path, CANVAS).find(said).id == "11"


def test_an_address_names_its_owner_with_and_without_its_end(tmp_path):
    roster = read(tmp_path, MOODLE)
    assert [roster.find(said).id for said in ("ann@example.org", "ann")] == ["S1", "S1"]


def test_a_name_that_two_have_is_neithers():
    roster = Roster([Student("1", "Ann Example"), Student("2", "Example, Ann"), Student("3", "Ben Example")])
    assert roster.find("Ann Example") is None
    assert roster.named_in("ann example 00") == []
    assert [student.id for student in roster.named_in("00-Ben_Example final")] == ["3"]


def test_a_short_number_in_a_name_means_nobody():
    roster = Roster([Student("12", "Ann Example"), Student("34567", "Ben Example")])
    assert roster.named_in("lab of 2026-11-12") == []
    assert [student.id for student in roster.named_in("lab 34567 v12")] == ["34567"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "has no column with an id"),
        ("Name,Section\nAnn,A\n", "has no column with an id"),
        ("id,name\n", "names no student"),
        ("id\n1\n2\n1\n", r"has the id '1' twice, the second time in line 4"),
        (b"\x00\x01\x02", "has no column with an id"),
        ('id\n"' + "x" * 200_000, "is not a table that can be read"),
    ],
)
def test_a_file_that_is_no_roster_is_one_sentence(tmp_path, content, says):
    with pytest.raises(ClassroomError, match=says):
        read(tmp_path, content)


def test_a_roster_that_is_not_there_is_one_sentence(tmp_path):
    with pytest.raises(ClassroomError, match="cannot be read: No such file"):
        read_roster(tmp_path / "roster.csv")
