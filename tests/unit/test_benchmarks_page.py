"""docs/benchmarks.md and the README's table are what benchmarks/results makes, and every result has its origin."""

from __future__ import annotations

import json
import re
import shutil

import pytest

from gpu_utils.course import benchmarks_page
from gpu_utils.course.paths import Course, course
from gpu_utils.errors import ContentError

RESULT = re.compile(r"benchmarks/results/\w+\.json")


@pytest.fixture
def copied(tmp_path, repo_root):
    shutil.copytree(repo_root / "benchmarks", tmp_path / "benchmarks")
    shutil.copy(repo_root / "README.md", tmp_path)
    return Course(tmp_path)


def test_the_pages_are_what_the_results_make():
    assert benchmarks_page.stale(course()) == [], "run `./w2w build`"


def test_every_result_has_chip_versions_and_date(repo_root):
    files = list((repo_root / "benchmarks" / "results").glob("*.json"))
    assert files
    for path in files:
        found = json.loads(path.read_text())
        assert found["target"] in path.stem
        assert found.get("device") or found["chip"]
        assert {"python", "torch", "triton", "driver"} <= found["versions"].keys(), path
        assert found["date"][:2] == "20"


def test_what_a_lesson_names_as_measured_is_there(repo_root):
    named = {name for path in repo_root.glob("content/*/*.py") for name in RESULT.findall(path.read_text())}
    assert named
    assert [name for name in sorted(named) if not (repo_root / name).is_file()] == []


def test_a_newer_result_makes_the_pages_stale_and_is_shown(copied):
    benchmarks_page.write(copied)
    assert benchmarks_page.stale(copied) == []
    results = copied.root / "benchmarks" / "results"
    found = json.loads(next(results.glob("kernels_sm_90_*.json")).read_text())
    found["date"] = "2030-01-02T00:00:00+00:00"
    found["kernels"]["copy"]["times"]["solution"]["median (us)"] = 12.25
    (results / "kernels_sm_90_2030-01-02.json").write_text(json.dumps(found))
    assert {path.name for path in benchmarks_page.stale(copied)} == {"benchmarks.md", "README.md"}
    benchmarks_page.write(copied)
    readme = (copied.root / "README.md").read_text()
    assert "2030-01-02" in readme
    assert "| 04.copy | 12.25 |" in readme
    assert "2026-11-26" not in readme


def test_a_readme_without_its_marks_is_said(copied):
    readme = copied.root / "README.md"
    readme.write_text(readme.read_text().replace("<!-- end of measured -->", ""))
    with pytest.raises(ContentError, match=r"README.md lacks the marks"):
        benchmarks_page.pages(copied)


def test_a_course_without_results_has_no_such_pages(tmp_path):
    assert benchmarks_page.pages(Course(tmp_path)) == {}
