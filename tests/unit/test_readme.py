"""What the README says about the repository is so."""

from __future__ import annotations

import re

import pytest

from gpu_utils.course.paths import course
from gpu_utils.course.units import UNITS

DOCUMENTS = (
    "README.md",
    "CONTRIBUTING.md",
    "docs/benchmarks.md",
    "docs/virtual-gpu.md",
    "docs/classroom.md",
    "docs/facts.md",
    "docs/imports.md",
    "docs/kernels.md",
    "docs/profiling.md",
)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_local_link_leads_to_a_file(repo_root, name):
    document = repo_root / name
    prose = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    links = re.findall(r"\]\(([^)#]+)", prose)
    missing = [link for link in links if "://" not in link and not (document.parent / link).exists()]
    assert missing == []


def test_the_map_of_units_says_which_exist(repo_root):
    rows = re.findall(r"^\| (\d\d) \| (.+?) \| (here|planned) \|$", (repo_root / "README.md").read_text(), re.MULTILINE)
    written = course(repo_root).written()
    assert rows == [(unit.number, unit.title, "here" if unit in written else "planned") for unit in UNITS]


def test_pictures_are_small(repo_root):
    large = [path for path in (repo_root / "docs").rglob("*.png") if path.stat().st_size > 200_000]
    assert large == []
