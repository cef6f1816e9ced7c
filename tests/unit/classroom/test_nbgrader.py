"""A release goes through nbgrader: assignment, exchange, hand-ins, autograding, feedback."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpu_utils.classroom.nbgrader_course import COURSE_ID
from gpu_utils.classroom.records import Late
from gpu_utils.classroom.releasing import plan, write
from gpu_utils.course.paths import course
from tests import ROOT

POINTS = {"00.platform": 2.0, "00.find_mask": 3.0}
NAME = "00_start"
STEPS = """
from nbgrader import apps

for name, *arguments in {steps!r}:
    app = getattr(apps, name)
    app.launch_instance(argv=arguments)
    app.clear_instance()
"""
WRONG = 'def platform():\n    return "cpu"\n'


def _edit(path: Path, change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    notebook = json.loads(path.read_text())
    change(notebook)
    path.write_text(json.dumps(notebook))
    return notebook


def _keep_two_exercises(notebook: dict[str, Any]) -> None:
    """Those that compile nothing; the cell that shows the learner's progress is not needed either."""
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code" and cell["source"] != ["progress()"]]
    wanted = [cell["metadata"].get("w2w", {}).get("exercise") for cell in cells]
    notebook["cells"] = [cell for cell, name in zip(cells, wanted, strict=True) if name is None or name in POINTS]


def _answers(notebook: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Exercise -> its answer cell."""
    found = [(cell["metadata"].get("w2w"), cell) for cell in notebook["cells"]]
    return {about["exercise"]: cell for about, cell in found if about and about["role"] == "answer"}


def _nbgrader(folder: Path, *steps: list[str]) -> None:
    """Run apps of nbgrader in the course's folder, as its commands do, in one process: its imports take seconds."""
    own = {name: str(folder.parent / name) for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR")}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # nbgrader calls alembic by name
    done = subprocess.run(
        [sys.executable, "-c", STEPS.format(steps=steps)],
        cwd=folder,
        env={**os.environ, **own, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def graded(nbgrader: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The course's folder after everything: a student who is right, one who is not, one who did nothing."""
    made = tmp_path_factory.mktemp("release")
    here = course(ROOT)
    write(here, plan(here, [here.find("00")], POINTS, {}, Late()), made)
    folder, exchange = made / "nbgrader", made / "exchange"
    source = _edit(folder / "source" / NAME / f"{NAME}.ipynb", _keep_two_exercises)
    plain = _edit(made / f"{NAME}.ipynb", _keep_two_exercises)
    untouched, wrong = json.dumps(source), source
    right = _answers(json.loads(here.notebook(here.find("00"), "solution").read_text()))
    for name, cell in _answers(plain).items():  # this one worked on the notebook for classes without nbgrader
        cell["source"] = right[name]["source"]
    _answers(wrong)["00.platform"]["source"] = WRONG
    _answers(wrong)["00.find_mask"]["source"] = right["00.find_mask"]["source"]
    handed_in = {"student-right": json.dumps(plain), "student-wrong": json.dumps(wrong), "student-idle": untouched}
    for number, (student, text) in enumerate(handed_in.items()):  # as `nbgrader submit` names its folders
        box = exchange / COURSE_ID / "inbound" / f"{student}+{NAME}+2026-12-01 12:00:0{number} UTC+abc"
        box.mkdir(parents=True)
        (box / f"{NAME}.ipynb").write_text(text)
        (box / "timestamp.txt").write_text(f"2026-12-01 12:00:0{number} UTC")
    place = f"--Exchange.root={exchange}"
    steps = [["GenerateAssignmentApp", NAME], ["ReleaseAssignmentApp", NAME, place], ["CollectApp", NAME, place]]
    _nbgrader(folder, *steps, ["AutogradeApp", NAME], ["GenerateFeedbackApp", NAME], ["ExportApp"])
    return folder


def nbgrader_gives_the_points_of_the_release_to_right_answers_only(graded):
    with (graded / "grades.csv").open() as file:
        rows = {row["student_id"]: (float(row["score"]), float(row["max_score"])) for row in csv.DictReader(file)}
    assert rows == {"student-right": (5.0, 5.0), "student-wrong": (3.0, 5.0), "student-idle": (0.0, 5.0)}


def nbgrader_releases_the_assignment_to_its_exchange(graded):
    (released,) = graded.parent.glob(f"exchange/{COURSE_ID}/outbound/{NAME}/*.ipynb")
    assert released.read_bytes() == (graded / "release" / NAME / f"{NAME}.ipynb").read_bytes()


def what_students_get_from_nbgrader_still_has_its_stubs_and_no_answer(graded):
    released = json.loads((graded / "release" / NAME / f"{NAME}.ipynb").read_text())
    sources = {name: "".join(cell["source"]) for name, cell in _answers(released).items()}
    assert all(f'raise NotImplementedError("{name} is yours to write")' in text for name, text in sources.items())
    assert set(sources) == set(POINTS)


def feedback_of_nbgrader_shows_the_report_and_the_points(graded):
    pages = {path.parts[-3]: path.read_text() for path in graded.glob(f"feedback/*/{NAME}/{NAME}.html")}
    assert pages.keys() == {"student-right", "student-wrong", "student-idle"}
    assert "AssertionError" in pages["student-wrong"]
    assert "AssertionError" not in pages["student-right"]
    assert "Score: 3.0 / 5.0" in " ".join(pages["student-wrong"].split())


def test_a_release_goes_through_nbgrader(graded):
    """One test, since the steps before take half a minute for each process that tests."""
    nbgrader_gives_the_points_of_the_release_to_right_answers_only(graded)
    nbgrader_releases_the_assignment_to_its_exchange(graded)
    what_students_get_from_nbgrader_still_has_its_stubs_and_no_answer(graded)
    feedback_of_nbgrader_shows_the_report_and_the_points(graded)
