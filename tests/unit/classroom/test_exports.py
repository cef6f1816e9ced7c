"""Tables for spreadsheets, Canvas and Moodle, results.json for Gradescope: exact, and nothing is executed."""

from __future__ import annotations

import csv
import io
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as some

from gpu_utils.classroom import exports
from gpu_utils.classroom.feedback import told
from gpu_utils.classroom.filling import fill
from gpu_utils.classroom.marks import class_of
from gpu_utils.errors import ClassroomError
from tests.unit.classroom.made_class import UNIT, book, hand_in, small_class


@pytest.fixture
def everybody(tmp_path):
    return class_of(small_class(tmp_path / "book"))


def _rows(content: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(content.decode("utf-8-sig"))))


def test_the_plain_table_is_exactly_this(everybody):
    assert exports.plain_csv(everybody, {"student-001": "feedback/x.html"}).decode("utf-8") == (
        "\ufeffstudent,name,00.platform,00.vector_add,00.saxpy,00.find_mask,00.predict_counters,00.column_sums,"
        "00 total,00 out of,00 status,00 late,00 reason,total,out of,feedback\r\n"
        "'=cmd|'/c calc'!A1,\"'+1+1\"\"<b>\",0,0,0,0,0,0,0,6.1,graded,,,0,6.1,\r\n"
        "student-001,S. Example,1,2,0.1,1,1,1,6.1,6.1,graded,,,6.1,6.1,feedback/x.html\r\n"
        "student-002,,1,2,0,0,0,0,2.4,6.1,graded,2 days late: 20 % of the marks are taken off,,2.4,6.1,\r\n"
        "student-003,,0,0,0,0,0,0,0,6.1,unreadable,,"
        "class.zip::student-003.ipynb is cut off: it ends in the middle of a cell,0,6.1,\r\n"
        "student-004,,0,0,0,0,0,0,0,6.1,nothing handed in,,handed in nothing for unit 00,0,6.1,\r\n"
    )


def test_canvas_gets_its_five_columns_and_the_row_of_points(everybody):
    rows = _rows(exports.canvas_csv(everybody))
    assert rows[0] == ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", "Unit 00"]
    assert rows[1] == ["    Points Possible", "", "", "", "", "6.1"]
    assert rows[3] == ["S. Example", "", "student-001", "student-001", "", "6.1"]
    assert all(row[0] for row in rows)


def test_nobody_can_change_in_canvas_what_a_unit_is_worth(tmp_path):
    made = book(tmp_path)
    hand_in(made, "student-001", name="Points Possible")
    rows = _rows(exports.canvas_csv(class_of(made)))
    assert [row[0] for row in rows if "Points Possible" in row[0]] == ["    Points Possible"]


def test_moodle_gets_the_id_number_or_the_address(tmp_path):
    made = book(tmp_path)
    hand_in(made, "12345", name="S. Example")
    hand_in(made, "student@example.org", passed=1)
    assert _rows(exports.moodle_csv(class_of(made))) == [
        ["ID number", "Email address", "Name", "Unit 00"],
        ["12345", "", "S. Example", "6.1"],
        ["", "student@example.org", "", "1"],
    ]


def test_gradescope_gets_a_test_for_each_exercise(tmp_path):
    made = small_class(tmp_path)
    student = next(each for each in class_of(made) if each.id == "student-002")
    found = exports.gradescope(student, told(student, made.results("student-002")))
    assert set(found) == {"score", "output", "visibility", "stdout_visibility", "extra_data", "tests"}
    assert (found["score"], found["extra_data"]["max_score"]) == (2.4, 6.1)
    assert found["output"] == "Unit 00: 2 days late: 20 % of the marks are taken off."
    assert [test["name"] for test in found["tests"]] == UNIT
    assert [test["status"] for test in found["tests"]] == ["passed", "passed", *["failed"] * 4]
    assert found["tests"][1] == {
        "name": "00.vector_add",
        "score": 2.0,
        "max_score": 2.0,
        "status": "passed",
        "output": "00.vector_add has passed\npassed: three blocks on virtual:sm_80 (a multiple of the block)\n"
        "The public checks passed; fresh cases drawn when it was graded: 1 of 1 checks passed.",
        "output_format": "text",
        "visibility": "visible",
    }


def test_a_class_of_nobody_has_tables_too(tmp_path):
    nobody = class_of(book(tmp_path))
    assert [_rows(each(nobody))[0][0] for each in (exports.canvas_csv, exports.moodle_csv)] == ["Student", "ID number"]
    assert _rows(exports.plain_csv(nobody, {})) == [["student", "name", "total", "out of", "feedback"]]


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "\n", "\0", " =", '"=', "＝", "ab;="])
def test_what_a_spreadsheet_would_execute_is_made_text(start):
    found = exports.harmless(f"{start}cmd|'/c calc'!A1")
    assert "'" in found.partition("cmd")[0]


@given(some.text("=+-@;'\" \t\r\na1", max_size=12))
def test_no_cell_begins_like_a_formula_in_a_spreadsheet_that_splits_at_commas_or_semicolons(text):
    ((cell,),) = _rows(exports.table([[text]]))[:1] or [("",)]
    for part in [cell, *cell.split(";")]:
        if part != "-" and not exports._NUMBER.fullmatch(cell):
            assert not part.lstrip().startswith(("=", "+", "-", "@"))


def test_numbers_stay_numbers_and_ids_with_zeros_in_front_keep_them():
    rows = _rows(exports.table([[Decimal("2.50"), Decimal("100"), "0012", "-3.5"]]))
    assert rows == [["2.5", "100", "0012", "-3.5"]]


# --- filling what Canvas and Moodle export ---

CANVAS = (
    '\ufeffStudent,ID,SIS User ID,SIS Login ID,Section,"Unit 00: the lab (77)",Current Score\n'
    "    Points Possible,,,,,,(read only)\n"
    '"Example, S.",501,u001,student-001,A,,11\n'
    '"Example, T.",502,u002,STUDENT-002,A,,12\n'
    '"Quiet, Q.",503,u003,q,B,,13\n'
)


def test_a_gradebook_of_canvas_is_filled_by_any_of_its_ids(tmp_path, everybody):
    path = tmp_path / "export.csv"
    path.write_text(CANVAS, encoding="utf-8")
    found = fill(path, everybody)
    rows = _rows(found.content)
    assert found.kind == "canvas"
    assert rows[0] == [
        "Student",
        "ID",
        "SIS User ID",
        "SIS Login ID",
        "Section",
        "Unit 00: the lab (77)",
        "Current Score",
    ]
    assert [row[5] for row in rows[1:]] == ["6.1", "6.1", "2.4", ""]
    assert [row[1] for row in rows[1:]] == ["", "501", "502", "503"]
    assert found.unknown == ("=cmd|'/c calc'!A1", "student-003", "student-004")


def test_a_gradebook_of_moodle_gets_a_column_where_it_has_none(tmp_path, everybody):
    path = tmp_path / "export.csv"
    path.write_text("First name;ID number;Email address\nS.;student-001;s@example.org\nQ.;7;-\n", encoding="utf-8")
    found = fill(path, everybody)
    assert found.kind == "moodle"
    assert found.content.decode("utf-8-sig").splitlines() == [
        "First name;ID number;Email address;Unit 00",
        "S.;student-001;s@example.org;6.1",
        "Q.;7;-;",
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1,2\n", "has the columns a, b; expected Canvas's"),
        ("", "is empty"),
        ("Student,ID,Section,Unit 00,Lab 00\n", "has 2 columns for unit 00 (Unit 00, Lab 00)"),
        ("Student,ID,SIS User ID,Section\nA,student-001,x,\nB,y,student-001,\n", "has the id 'student-001' in 2 rows"),
        ("Student,ID,SIS User ID,Section\nA,student-001,student-002,\n", "are one row of"),
    ],
)
def test_another_table_is_refused_in_one_sentence(tmp_path, everybody, text, words):
    path = tmp_path / "export.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ClassroomError) as refused:
        fill(path, everybody)
    assert words in str(refused.value)


def test_a_file_that_is_no_text_is_refused(tmp_path, everybody):
    path = tmp_path / "export.xlsx"
    path.write_bytes(b"PK\x03\x04\xff\xfe")
    with pytest.raises(ClassroomError, match="export it again as CSV"):
        fill(path, everybody)
