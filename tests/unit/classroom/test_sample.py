"""The made class: the same every time, different from student to student, and marked as its expected.csv says."""

from __future__ import annotations

import ast
import json
import random
from collections import Counter

import pytest

from gpu_utils import exercises
from gpu_utils.classroom import sample
from gpu_utils.classroom.collecting import Collection
from gpu_utils.classroom.records import Release
from gpu_utils.classroom.roster import read_roster
from gpu_utils.classroom.sample_damage import DAMAGES
from gpu_utils.classroom.sample_hostile import ATTACKS
from gpu_utils.classroom.sample_styles import restyled
from gpu_utils.classroom.sample_wrong import SLIPS, slipped
from gpu_utils.course import sources
from gpu_utils.course.paths import course
from gpu_utils.errors import ClassroomError
from gpu_utils.grading.check import check

EVERY_SLIP = [(exercise, what) for exercise, slips in SLIPS.items() for what in slips]
SEED = 11


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("class") / "made"
    return folder, sample.make(folder, course(), 30, ["00"])


@pytest.fixture(scope="module")
def collected(made):
    folder, _ = made
    return list(Collection([folder / "handed_in"], ["00"], read_roster(folder / "roster.csv")))


def passes(exercise: str, source: str) -> bool:
    """On a single target: which one makes no difference to a sum."""
    asked = exercises.find(exercise)
    backends = ["virtual:sm_80"] if asked.kind == "kernel" else None
    return check(asked, sources.load(exercise, source), backends=backends, seed=SEED).passed


def test_the_same_class_is_made_twice(made, tmp_path):
    folder, marks = made
    assert sample.make(tmp_path / "again", course(), 30, ["00"]) == marks
    for path in folder.rglob("*"):
        if path.is_file():
            assert path.read_bytes() == (tmp_path / "again" / path.relative_to(folder)).read_bytes(), path


def test_the_shares_of_the_class_are_those_of_the_table(made):
    _, marks = made
    roles = {}
    for mark in marks:
        roles.setdefault(mark.student, set()).add(mark.because.partition(":")[0])
    found = Counter(next((r for r in ("damaged", "hostile", "not started", "wrong", "right") if r in whose), "")
                    for whose in roles.values())  # fmt: skip
    same = sum(damage.leaves == "the same" for damage in list(DAMAGES.values())[: sample.ROLES["damaged"]])
    assert found["damaged"] == sample.ROLES["damaged"] - same
    assert found["right"] == sample.ROLES["right"] + same
    assert (found["hostile"], found["not started"]) == (sample.ROLES["hostile"], sample.ROLES["partial"])
    assert found["wrong"] == sample.ROLES["wrong"]


def test_what_is_written_is_what_was_returned(made):
    folder, marks = made
    assert list(sample.expected(folder).values()) == marks
    assert len(marks) == 30 * len(exercises.ids("00"))
    assert Release.read(folder / "release.json").units == ("00",)


def test_every_student_is_collected_once_and_nobody_else(made, collected):
    folder, marks = made
    assert [row.student for row in collected] == [student.id for student in read_roster(folder / "roster.csv").students]
    unreadable = {mark.student for mark in marks if mark.status == "unreadable"}
    assert {row.student for row in collected if row.problem} == unreadable


def test_no_two_students_hand_in_the_same_answer(collected):
    texts = []
    for row in collected:
        cells = json.loads(row.content)["cells"] if row.content else []
        texts += ["".join(c["source"]) for c in cells if "answer" in c["metadata"].get("tags", ())]
    written = [text for text in texts if "is yours to write" not in text]
    assert len(written) > 100
    assert len(set(written)) == len(written)


def test_every_exercise_of_the_units_has_slips():
    assert [*SLIPS] == [exercise for unit in sample.units() for exercise in exercises.ids(unit)]
    assert all(len(slips) >= 2 for slips in SLIPS.values())


@pytest.mark.parametrize(("exercise", "what"), EVERY_SLIP, ids=map(" ".join, EVERY_SLIP))
def test_a_slip_changes_one_place_of_the_solution(exercise, what):
    right = sources.solution(exercise)
    assert right.count(SLIPS[exercise][what][0]) == 1
    assert ast.dump(ast.parse(slipped(right, exercise, what))) != ast.dump(ast.parse(right))


@pytest.mark.drawn("unit", 3)
@pytest.mark.parametrize(("exercise", "what"), EVERY_SLIP, ids=map(" ".join, EVERY_SLIP))
def test_a_slip_fails(exercise, what):
    assert not passes(exercise, slipped(sources.solution(exercise), exercise, what))


@pytest.mark.drawn("unit", 3)
@pytest.mark.parametrize("exercise", SLIPS)
def test_a_solution_in_other_words_passes(exercise):
    apart, source = restyled(sources.solution(exercise), random.Random(SEED))
    assert passes(exercise, f"{apart}\n\n{source}")


def test_an_attack_is_python_that_defines_the_function():
    for what, attack in ATTACKS.items():
        name = attack.exercise.partition(".")[2] or "platform"
        tree = ast.parse(attack.answer(name, "x, y", "gpu_utils.exercises"))
        assert name in [node.name for node in tree.body if isinstance(node, ast.FunctionDef)], what


def test_a_folder_that_holds_something_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(ClassroomError, match="not empty"):
        sample.make(tmp_path, course(), 2, ["00"])
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_unit_without_slips_is_refused(tmp_path):
    with pytest.raises(ClassroomError, match="no sample class for unit 04; expected 00 or 01"):
        sample.make(tmp_path / "made", course(), 2, ["04"])
