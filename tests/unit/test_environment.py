"""The pins and environment.yml, proved from package metadata: nothing is downloaded but that."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
import rattler
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
ENVIRONMENT = yaml.safe_load((ROOT / "environment.yml").read_text())
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PYTHONS = ["3.11", "3.12", "3.13"]


def _pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    parsed = [
        re.fullmatch(r"([A-Za-z0-9._-]+)==([A-Za-z0-9.!+_-]+)", line) for line in lines if not line.startswith("#")
    ]
    assert all(parsed), "every line of constraints.txt is a comment or NAME==VERSION"
    return {canonicalize_name(match[1]): match[2] for match in parsed if match}


def _pip_part() -> list[str]:
    return next(entry["pip"] for entry in ENVIRONMENT["dependencies"] if isinstance(entry, dict))


@pytest.fixture(scope="module")
def resolutions() -> dict[str, Future[dict[str, str]]]:
    """What each Python would get. They are asked for at once: each waits for the package index."""
    with ThreadPoolExecutor(len(PYTHONS)) as pool:
        return {python: pool.submit(_resolve, python) for python in PYTHONS}


def _resolve(python: str) -> dict[str, str]:
    """What the pip part of environment.yml becomes for this Python on Linux x86-64, with every extra."""
    uv = Path(sys.executable).with_name("uv")
    command = [
        *(str(uv if uv.exists() else shutil.which("uv")), "pip", "compile", "-", "--quiet", "--no-header"),
        *("--no-annotate", "--python-version", python, "--python-platform", "x86_64-manylinux_2_28"),
    ]
    wanted = "\n".join(_pip_part()).replace("[course,dev]", f"[{','.join(PROJECT['optional-dependencies'])}]")
    done = subprocess.run(command, cwd=ROOT, input=wanted, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(line.split("==") for line in done.stdout.split() if "==" in line)


def test_environment_yml_names_its_parts() -> None:
    assert ENVIRONMENT["name"] == "warp-to-wavefront"
    assert ENVIRONMENT["channels"] == ["conda-forge"]
    assert _pip_part() == ["--constraint constraints.txt", "--editable .[course,dev]"]


def test_every_conda_line_is_a_valid_match_spec_and_pip_is_listed() -> None:
    specs = [rattler.MatchSpec(line) for line in ENVIRONMENT["dependencies"] if isinstance(line, str)]
    assert {spec.name.normalized for spec in specs} == {"python", "pip"}
    python = next(spec for spec in specs if spec.name.normalized == "python")
    assert f"{python.version}" == PROJECT["requires-python"]


@pytest.mark.waits
@pytest.mark.parametrize("python", PYTHONS)
def test_the_pins_are_complete_and_hold_for(resolutions: dict[str, Future[dict[str, str]]], python: str) -> None:
    resolved = resolutions[python].result()
    assert resolved["torch"] == "2.13.0"
    assert resolved["triton"] == "3.7.1"
    pins = _pins()
    assert {name: pins.get(canonicalize_name(name)) for name in resolved} == resolved


def test_every_dependency_is_pinned_within_its_range() -> None:
    pins = _pins()
    extras = [line for lines in PROJECT["optional-dependencies"].values() for line in lines]
    wanted = [Requirement(line) for line in [*PROJECT["dependencies"], *extras]]
    outside = [str(want) for want in wanted if not want.specifier.contains(pins[canonicalize_name(want.name)])]
    assert outside == []


def test_pins_carry_no_label_of_one_build() -> None:
    assert [pin for pin in _pins().values() if "+" in pin] == []
