"""Hand-ins of any layout become one Submission for each student and unit."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from gpu_utils.classroom.collecting import Collection, collect
from gpu_utils.classroom.roster import Roster, Student
from gpu_utils.errors import ClassroomError
from tests.fixtures.hand_ins import bare, lab, put, zipped


def rows(*places: Path, **given) -> dict[tuple[str, str], str]:
    """(student, unit) -> the file that counts, or the problem."""
    return {(row.student, row.unit): row.problem or row.source for row in collect(places, **given)}


LAYOUTS = {
    "a file for each": ["ann_00_start.ipynb", "00_start_ben.ipynb"],
    "a file for each, in a folder": ["hand-ins/ann_00_start.ipynb", "hand-ins/ben_00_start.ipynb"],
    "a folder for each": ["ann/00_start.ipynb", "ben/00_start.ipynb"],
    "a folder beside loose files": ["all/ann/l.ipynb", "all/ben/l.ipynb", "readme.txt", "roster.csv"],
    "deep folders": ["ann/work/labs/00_start.ipynb", "ben/a/b/c/final.ipynb"],
    "a folder of the unit first": ["00_start/ann/lab.ipynb", "00_start/ben/lab.ipynb"],
    "groups": ["g1/ann/l.ipynb", "g1/cem/l.ipynb", "g2/ben/l.ipynb", "g2/dia/l.ipynb"],
    "folders of the same names": ["ann/day1/l.ipynb", "ann/day2/l.ipynb", "ben/day1/l.ipynb", "ben/day2/l.ipynb"],
    "nbgrader": ["submitted/ann/ps1/00_start.ipynb", "submitted/ben/ps1/00_start.ipynb"],
    "a course of nbgrader": [
        "source/ps1/00_start.ipynb",
        "release/ps1/00_start.ipynb",
        "submitted/ann/ps1/00_start.ipynb",
        "submitted/ben/ps1/00_start.ipynb",
        "autograded/ann/ps1/00_start.ipynb",
    ],
    "Moodle": ["Ann_11_assignsubmission_file_/x.ipynb", "Ben Example_12_assignsubmission_file_/y.ipynb"],
    "Moodle since 4.1": ["Ann_11_assignsubmission_file/x.ipynb", "Ben_12_assignsubmission_file/y.ipynb"],
    "Moodle without folders": ["Ann_11_assignsubmission_file_x.ipynb", "Ben_12_assignsubmission_file_y.ipynb"],
    "Canvas": ["exampleann_11_6789_00_start-1.ipynb", "exampleben_LATE_12_6790_lab.ipynb"],
    "Canvas, anonymous": ["anon_11_6789_lab.ipynb", "LATE_anon_12_6790_lab.ipynb"],
}
STUDENTS = {"groups": ["ann", "ben", "cem", "dia"]} | {
    name: ["11", "12"] for name in LAYOUTS if name.startswith(("Moodle", "Canvas"))
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("form", ["folder", "zip", "zip in a folder"])
def test_every_layout_names_its_students(tmp_path, layout, form):
    files = {name: lab(says=name) if name.endswith("ipynb") else b"" for name in LAYOUTS[layout]}
    place = tmp_path / "class"
    if form == "folder":
        put(place, files)
    else:
        place = put(tmp_path, {"class.zip" if form == "zip" else "in/class.zip": zipped(files)})
        place = place / ("class.zip" if form == "zip" else "in")
    found = list(collect([place]))
    assert [row.student for row in found] == STUDENTS.get(layout, ["ann", "ben"])
    assert {row.unit for row in found} == {"00"}
    assert not any(row.problem for row in found)
    assert all(row.content in files.values() for row in found)


def test_an_archive_of_each_students_own_is_read(tmp_path):
    inner = zipped({"labs/00_start.ipynb": lab(says="ann")})
    put(tmp_path, {"in/ann.zip": inner, "in/ben.zip": zipped({"deeper.zip": zipped({"x.ipynb": lab(says="ben")})})})
    assert rows(tmp_path / "in") == {
        ("ann", "00"): "in/ann.zip::labs/00_start.ipynb",
        ("ben", "00"): "in/ben.zip::deeper.zip::x.ipynb",
    }


def test_a_notebook_and_an_archive_can_be_given_one_by_one(tmp_path):
    put(
        tmp_path,
        {"ann/00_start.ipynb": lab(), "ben.zip": zipped({"00_start.ipynb": lab(says="b")}), "cem.ipynb": lab()},
    )
    given = [tmp_path / name for name in ("ann/00_start.ipynb", "ben.zip", "cem.ipynb")]
    assert [row.student for row in collect(given)] == ["ann", "ben", "cem"]
    assert [row.student for row in collect([tmp_path / "ann"])] == ["ann"]


def test_what_lies_in_a_students_own_folder_names_nobody_else(tmp_path):
    evil = {
        "victim_00_start.ipynb": lab(says="1"),
        "examplevictim_11_6789_x.ipynb": lab(says="2"),
        "submitted/victim/ps1/00_start.ipynb": lab(says="3"),
    }
    put(
        tmp_path, {"in/evil.zip": zipped(evil), "in/victim.zip": zipped({"00_start.ipynb": lab()}), "in/c.ipynb": lab()}
    )
    found = {row.student: row for row in collect([tmp_path / "in"])}
    assert set(found) == {"evil", "victim", "c"}
    assert found["victim"].content == lab()


def test_several_units_of_one_student_are_several_rows(tmp_path):
    put(tmp_path, {"in/ann/a.ipynb": lab(), "in/ann/b.ipynb": lab("01_gpt2_baseline"), "in/ben/a.ipynb": lab(says="b")})
    assert list(rows(tmp_path / "in")) == [("ann", "00"), ("ann", "01"), ("ben", "00")]
    asked = rows(tmp_path / "in", units=["01"])
    assert asked["ann", "01"] == "in/ann/b.ipynb"
    assert asked["ben", "01"] == "handed in nothing for unit 01; there is in/ben/a.ipynb of unit 00"


def test_a_unit_is_found_by_metadata_then_tags_then_names(tmp_path):
    tagged = json.loads(lab())
    del tagged["metadata"]["w2w"]
    put(
        tmp_path,
        {
            "in/ann/03_porting_to_rocm.ipynb": lab(),
            "in/ben/03_porting_to_rocm.ipynb": json.dumps(tagged).encode(),
            "in/cem/03_porting_to_rocm.ipynb": bare(),
            "in/dia/Lab 04.ipynb": bare("d"),
            "in/eve/mine.ipynb": bare("e"),
        },
    )
    assert list(rows(tmp_path / "in")) == [
        ("ann", "00"), ("ben", "00"), ("cem", "03"), ("dia", "04"), ("eve", ""),
    ]  # fmt: skip
    assert "does not say of which unit" in rows(tmp_path / "in")["eve", ""]
    (eve,) = (row for row in collect([tmp_path / "in"], units=["00"]) if row.student == "eve")
    assert eve.problem == ""
    assert eve.notes == ("nothing says of which unit it is; taken as 00",)


def test_text_that_looks_like_metadata_inside_of_a_cell_is_not_the_unit(tmp_path):
    made = json.loads(lab())
    made["cells"][0]["source"] = '{"w2w": {"unit": "03_porting_to_rocm"}} "03.a" "03.b" "03.c" "03.d"'
    put(tmp_path, {"in/ann/a.ipynb": json.dumps(made).encode()})
    assert list(rows(tmp_path / "in")) == [("ann", "00")]


@pytest.mark.parametrize(
    ("older", "later"),
    [
        ("in/exampleann_11_6789_lab.ipynb", "in/exampleann_11_6788_lab-1.ipynb"),
        ("in/exampleann_11_6788_lab.ipynb", "in/exampleann_11_6789_lab.ipynb"),
        ("in/ann_00_start.ipynb", "in/ann_00_start (1).ipynb"),
        ("in/ann/a.ipynb", "in/ann/b.ipynb"),
    ],
)
def test_the_latest_of_several_files_counts_and_a_note_says_so(tmp_path, older, later):
    put(tmp_path, {older: lab(says="old"), later: lab(says="new"), "in/ben_00_start.ipynb": lab()})
    found = next(iter(collect([tmp_path / "in"])))
    assert found.content == lab(says="new")
    assert found.notes == (f"2 files: {later} counts, not {older}",)


def test_the_later_file_of_a_folder_counts_whatever_its_name(tmp_path):
    put(tmp_path, {"in/ann/b.ipynb": lab(says="old")}, at=1_700_000_000)
    put(tmp_path, {"in/ann/a.ipynb": lab(says="new")}, at=1_700_000_900)
    put(tmp_path, {"in/ben/b.ipynb": lab()})
    found = next(collect([tmp_path / "in"]))
    assert found.content == lab(says="new")
    assert found.handed_in is not None
    assert found.handed_in.timestamp() == 1_700_000_900


def test_a_time_that_a_student_can_write_is_not_when_it_was_handed_in(tmp_path):
    forged = {"00_start.ipynb": lab(), "timestamp.txt": b"2001-01-01 00:00:00 UTC"}
    put(tmp_path, {"in/ann.zip": zipped(forged), "in/ben.zip": zipped(forged)}, at=1_700_000_000)
    assert {row.handed_in.timestamp() for row in collect([tmp_path / "in"])} == {1_700_000_000}


def test_when_is_said_by_nbgraders_file_by_a_class_archive_and_not_by_a_download(tmp_path):
    put(
        tmp_path,
        {"submitted/ann/ps1/00_start.ipynb": lab(), "submitted/ann/ps1/timestamp.txt": b"2026-03-01 17:58:23.9 UTC"},
    )
    put(
        tmp_path,
        {"class.zip": zipped({"ann.ipynb": lab(), "ben.ipynb": lab()}), "c/exampleann_LATE_11_678_x.ipynb": lab()},
    )
    when = {name: next(collect([tmp_path / name])).handed_in for name in ("submitted", "class.zip", "c")}
    assert when["submitted"].isoformat() == "2026-03-01T17:58:23.900000+00:00"
    assert when["class.zip"].replace(tzinfo=None).isoformat() == "2026-03-01T12:00:00"
    assert when["c"] is None
    assert next(collect([tmp_path / "c"])).notes == ("handed in late, as its name says",)


def test_a_roster_gives_ids_and_names_and_those_who_handed_in_nothing(tmp_path):
    roster = Roster(
        [Student("s1", "Example, Ann", ("11",)), Student("s2", "Ben Example"), Student("s3", "Cem Example")]
    )
    put(tmp_path, {"in/Ben-Example (lab).ipynb": lab(), "in/exampleann_99_6789_x.ipynb": lab(says="a")})
    put(tmp_path, {"in/Zoe_00_start.ipynb": lab(says="z")})
    found = {row.student: row for row in collect([tmp_path / "in"], units=["00"], roster=roster)}
    assert {student: row.name for student, row in found.items()} == {
        "Zoe": "", "s1": "Example, Ann", "s2": "Ben Example", "s3": "Cem Example",
    }  # fmt: skip
    assert found["s3"].problem == "handed in nothing for unit 00"
    assert found["Zoe"].notes == ("not on the roster",)
    assert found["Zoe"].problem == ""


def test_a_download_of_moodle_beside_other_files_is_one_students_and_the_row_says_what_it_may_be(tmp_path):
    moodle = zipped({name: lab(says=name) for name in LAYOUTS["Moodle"]})
    put(tmp_path, {"in/CS-77.zip": moodle, "in/ann_00_start.ipynb": lab()})
    found = {row.student: row.notes for row in collect([tmp_path / "in"])}
    says = "holds 2 entries named as Moodle names students; grade it by itself if they are"
    assert found["ann"] == ()
    assert found["CS-77"][0] == says


def test_a_moodle_number_is_looked_up_as_a_participant_and_never_as_another_id(tmp_path):
    roster = Roster([Student("1234567", "Ann Example"), Student("s2", "Ben Example", ("Participant 1234567",))])
    put(tmp_path, {"in/Somebody Else_1234567_assignsubmission_file_/x.ipynb": lab()})
    assert next(row for row in collect([tmp_path / "in"], roster=roster) if row.content).student == "s2"


def test_a_name_that_fits_two_of_the_roster_is_neither(tmp_path):
    roster = Roster([Student("s1001", "Ann"), Student("s1002", "Ben")])
    put(tmp_path, {"in/s1001 s1002_00_start.ipynb": lab()})
    found = {row.student: row for row in collect([tmp_path / "in"], roster=roster)}
    assert found["s1001 s1002"].notes == ("its name fits s1001 and s1002 of the roster, so it is nobody's of them",)
    assert found["s1001"].problem == "handed in nothing"


def test_a_teachers_own_pattern_is_taken_at_its_word(tmp_path):
    put(tmp_path, {"in/2026/x-K7-03/final.ipynb": bare(), "in/2026/x-K8-03/final.ipynb": bare("8")})
    found = rows(tmp_path / "in", pattern=r"x-(?P<student>K\d)-(?P<unit>\d\d)/")
    assert list(found) == [("K7", "03"), ("K8", "03")]


@pytest.mark.parametrize(("pattern", "says"), [("(", "no regular expression"), (r"(\w+)", "no group named student")])
def test_a_pattern_that_is_none_is_one_sentence(tmp_path, pattern, says):
    with pytest.raises(ClassroomError, match=says):
        collect([tmp_path], pattern=pattern)


def test_a_place_that_is_not_there_is_one_sentence(tmp_path):
    with pytest.raises(ClassroomError, match="there is no"):
        collect([tmp_path / "nowhere"])


def test_what_is_no_hand_in_is_skipped_and_counted(tmp_path):
    put(
        tmp_path / "in",
        {
            "ann/00_start.ipynb": lab(),
            "ann/.ipynb_checkpoints/00_start-checkpoint.ipynb": lab(says="old"),
            "ann/report.pdf": b"",
            "__MACOSX/ann/._00_start.ipynb": b"",
            ".DS_Store": b"",
            "roster.csv": b"",
        },
    )
    collection = Collection([tmp_path / "in"])
    assert [row.student for row in collection] == ["ann"]
    assert len(collection) == 1
    assert collection.skipped == {"files of systems and editors": 3, "files that are no notebooks": 2}


def test_somebody_without_a_notebook_has_a_row_with_the_reason(tmp_path):
    put(tmp_path / "in", {"ann/report.pdf": b"", "ben_00_start.pdf": b"", "cem/00_start.ipynb": lab()})
    (tmp_path / "in" / "dia").mkdir()
    found = rows(tmp_path / "in", units=["00"])
    assert "in/ann/report.pdf, and no notebook" in found["ann", "00"]
    assert "in/ben_00_start.pdf, and no notebook" in found["ben", "00"]
    assert "in/dia/(nothing), and no notebook" in found["dia", "00"]


def test_the_same_bytes_of_two_students_are_both_graded_and_noted(tmp_path):
    put(tmp_path, {f"in/{name}/00_start.ipynb": lab() for name in ("ann", "ben", "cem", "dia", "eve")})
    put(tmp_path, {"in/fay/00_start.ipynb": lab(says="f")})
    found = {row.student: row for row in collect([tmp_path / "in"])}
    assert found["ann"].content == found["ben"].content == lab()
    assert found["ann"].notes == ("byte for byte the same file as ben, cem, dia and 1 more handed in",)
    assert found["fay"].notes == ()


def test_names_of_any_kind_are_kept_as_they_are(tmp_path):
    names = ["=cmd()|x", "a\nb", "‮evil", "ü" * 60, "'; DROP TABLE x; --", "<b>"]
    put(tmp_path, {f"in/{name}/00_start.ipynb": lab(says=name) for name in names})
    assert {row.student for row in collect([tmp_path / "in"])} == set(names)


def test_a_name_that_is_no_text_can_still_be_stored(tmp_path):
    (tmp_path / "in").mkdir()
    try:
        Path(os.fsdecode(bytes(tmp_path / "in" / "caf") + b"\xe9.ipynb")).write_bytes(lab())
    except OSError:
        pytest.skip("this file system takes no such names")
    assert [row.student for row in collect([tmp_path / "in"])] == ["caf\\xe9"]


def test_the_rows_are_the_same_each_time_and_hold_one_notebook_at_a_time(tmp_path):
    put(tmp_path, {f"in/s{number:02}/00_start.ipynb": lab(says=str(number)) for number in range(30)})
    collection = Collection([tmp_path / "in"])
    assert list(collection) == list(collection)
    assert collection._rows[0][0].content == b""


def test_a_file_that_changes_between_the_two_readings_is_a_row_with_the_reason(tmp_path):
    put(tmp_path, {"in/ann/00_start.ipynb": lab(), "in/ben/00_start.ipynb": lab(says="b")})
    collection = Collection([tmp_path / "in"])
    (tmp_path / "in/ann/00_start.ipynb").unlink()
    ann, ben = collection
    assert "has changed while it was read" in ann.problem
    assert ben.content == lab(says="b")
