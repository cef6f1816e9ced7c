"""Large families of tests: what is drawn where nothing changed, and what counts as a change."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from gpu_utils.course import whole
from tests import ROOT
from tests.families import OF, Member, left_out

FILES = {
    "constraints.txt": "torch==1",
    "gpu_utils/virtual/gpu.py": "",
    "gpu_utils/compiler/include/w2w_gpu.h": "",
    "gpu_utils/cli/app.py": "",
    "gpu_utils/exercises/u04_triton_reductions/copy.py": "",
    "gpu_utils/exercises/u04_triton_reductions/kernels/a.cu": "",
    "gpu_utils/exercises/u05_triton_matmul/tiled.py": "",
    "gpu_utils/classroom/marking.py": "",
    "tests/content/test_exercises.py": "",
    "tests/content/test_u04_lesson.py": "",
    "tests/fixtures/right_styles_u04.py": "",
    "content/04_triton_reductions/lab.py": '# %% [markdown] top\n# words\n\n# %% copy tags=["answer"]\nx = 1\n',
    "content/05_triton_matmul/lab.py": '# %% tiled tags=["answer"]\nx = 1\n',
}
EVERY = {"library", "classroom", "04", "05"}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "tests/content/__pycache__").mkdir()
    whole.record(tmp_path)
    return tmp_path


def test_after_a_whole_run_nothing_has_changed(checkout):
    assert whole.changed(checkout) == set()
    assert set(whole.recorded(checkout)) == EVERY


@pytest.mark.parametrize(
    ("file", "parts"),
    [
        ("constraints.txt", EVERY),
        ("gpu_utils/virtual/gpu.py", EVERY),
        ("gpu_utils/virtual/new.py", EVERY),
        ("gpu_utils/compiler/include/w2w_gpu.h", EVERY),
        ("tests/unit/virtual/sanitize/test_new.py", EVERY),
        ("tests/content/test_exercises.py", EVERY),
        ("gpu_utils/exercises/u04_triton_reductions/copy.py", {"04"}),
        ("gpu_utils/exercises/u04_triton_reductions/kernels/a.cu", {"04"}),
        ("tests/fixtures/right_styles_u04.py", {"04"}),
        ("gpu_utils/exercises/u05_triton_matmul/new.py", {"05"}),
        ("gpu_utils/classroom/marking.py", {"classroom"}),
        ("tests/fixtures/hostile/new.answer", {"classroom"}),
        ("gpu_utils/cli/app.py", set()),
        ("tests/content/test_u04_lesson.py", set()),
        ("README.md", set()),
    ],
)
def test_what_a_change_touches(checkout, file, parts):
    (checkout / file).parent.mkdir(parents=True, exist_ok=True)
    (checkout / file).write_text("another = 1")
    assert whole.changed(checkout) == parts


def test_of_a_lab_the_answers_count_and_its_words_do_not(checkout):
    lab = checkout / "content/04_triton_reductions/lab.py"
    lab.write_text(lab.read_text().replace("words", "other words"))
    assert whole.changed(checkout) == set()
    lab.write_text(lab.read_text().replace("x = 1", "x = 2"))
    assert whole.changed(checkout) == {"04"}


def test_a_unit_is_recorded_alone(checkout):
    (checkout / "constraints.txt").write_text("torch==2")
    (checkout / "gpu_utils/exercises/u04_triton_reductions/copy.py").write_text("y = 1")
    (checkout / "gpu_utils/exercises/u05_triton_matmul/tiled.py").write_text("y = 1")
    whole.record(checkout, ["04"])
    assert whole.changed(checkout) == EVERY
    (checkout / "constraints.txt").write_text("torch==1")
    assert whole.changed(checkout) == {"05"}


def test_without_a_record_everything_has_changed(checkout):
    (checkout / whole.RECORD).unlink()
    assert whole.changed(checkout) == EVERY


def test_this_checkout_has_a_part_for_every_unit():
    assert set(whole.state(ROOT)) >= {"library", "00", "06"}


MEMBERS = [
    Member(f"tests/content/test_some.py::test_one[{case}]", case, "unit", 2)
    for case in [f"{exercise}-{n}" for exercise in ("04.copy", "04.gelu", "05.tiled") for n in range(9)]
]


def run(changed: set[str], salt: str = "a", members: list[Member] = MEMBERS) -> list[str]:
    """The cases that are not left out."""
    out = left_out(members, changed, salt)
    return [member.case for member in members if member.test not in out]


def test_of_each_unit_that_is_unchanged_some_cases_run_and_of_others_all():
    assert [case[:2] for case in run(set())] == ["04"] * 2 + ["05"] * 2
    assert len(run({"04"})) == 9 + 9 + 2


def test_of_a_family_as_a_whole_what_changed_does_not_count():
    members = [member._replace(of="all") for member in MEMBERS]
    assert len(run(set(), members=members)) == 2
    assert len(run({"05"}, members=members)) == 9 + 2


@pytest.mark.parametrize(
    ("test", "parts"),
    [
        ("tests/content/test_some.py::test_one[04.copy-1]", {"04"}),
        ("tests/unit/virtual/test_some.py::test_one[dot-sm_80]", {"library"}),
        ("tests/unit/classroom/test_hostile.py::test_one[exits]", {"library", "classroom"}),
    ],
)
def test_what_a_case_depends_on(test, parts):
    assert whole.parts_of(test) == parts


def test_all_of_them_run_where_the_library_changed():
    assert len(run(EVERY)) == 27


def test_the_same_text_of_the_library_draws_the_same_cases_and_another_text_others():
    assert run(set()) == run(set(), members=MEMBERS[::-1])[::-1]
    assert run(set()) != run(set(), salt="b")


def test_every_case_is_drawn_sooner_or_later():
    assert {case for n in range(60) for case in run(set(), salt=str(n))} == {member.case for member in MEMBERS}


@pytest.mark.parametrize(
    ("of", "case", "kept"), [("unit", "04.copy-x", 1), ("kernel", "a-wide-sm_80", 2), ("all", "05.tiled-x", 1)]
)
def test_cases_are_grouped_by_unit_or_kernel_or_not_at_all(of, case, kept):
    others = {"unit": "04.gelu-x", "kernel": "b-wide-sm_80", "all": "04.copy-x"}
    members = [Member(f"tests/content/test_some.py::t[{name}]", name, of, 1) for name in (case, others[of])]
    assert len(run(set(), members=members)) == kept


def test_every_family_says_a_grouping_that_there_is(repo_root):
    texts = [path.read_text("utf-8") for path in (repo_root / "tests").rglob("test_*.py")]
    said = {of for text in texts for of in re.findall(r"mark\.drawn\(\"([^\"]+)\"", text)}
    assert said
    assert said <= set(OF)


def test_pytest_draws_only_when_asked_and_says_so(repo_root):
    def collected(*options: str) -> str:
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *options]
        file = "tests/unit/virtual/test_kernel_set.py"
        return subprocess.run([*command, file], cwd=repo_root, capture_output=True, text=True, check=True).stdout

    some, every = collected("--drawn"), collected()
    assert "cases of large families ran" in some
    assert "large families" not in every
    assert some.count("test_the_kernel_agrees") <= every.count("test_the_kernel_agrees")
