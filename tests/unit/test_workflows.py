"""CI, make targets and commit hooks name only commands, files and targets that exist."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from gpu_utils.cli.app import COMMANDS

ROOT = Path(__file__).parents[2]
WORKFLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
HOOKS = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
TARGETS = {"fmt", "lint", "types", "test", "notebooks", "check", "preview"}


def _commands() -> list[tuple[str, list[str]]]:
    ci = [
        (f"ci.yml, {job}: {line}", shlex.split(line))
        for job, body in WORKFLOW["jobs"].items()
        for step in body["steps"]
        for line in step.get("run", "").splitlines()
    ]
    hooks = [(f"hook {hook['id']}", shlex.split(hook["entry"])) for repo in HOOKS["repos"] for hook in repo["hooks"]]
    recipes = [
        (f"make {target}", shlex.split(line))
        for target in sorted(TARGETS)
        for line in _make(target).splitlines()
        if line.strip()
    ]
    return [*ci, *hooks, *recipes]


def _make(target: str) -> str:
    command = ["make", "--dry-run", "--no-print-directory", target]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


COMMAND_LINES = _commands()


@pytest.mark.parametrize("words", [words for _, words in COMMAND_LINES], ids=[name for name, _ in COMMAND_LINES])
def test_the_command_exists(words: list[str]) -> None:
    program, *arguments = words
    if program in ("./w2w", ".venv/bin/w2w"):
        assert arguments[0] in COMMANDS
    elif program == "bash":
        assert os.access(ROOT / arguments[0], os.X_OK)
    else:
        assert program in {".venv/bin/python", ".venv/bin/ruff", ".venv/bin/lint-imports"}
    paths = [word for word in arguments if re.fullmatch(r"(tests|gpu_utils)(/\S*)?", word)]
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_ci_has_one_job_for_each_kind_of_machine() -> None:
    jobs = WORKFLOW["jobs"]
    assert list(jobs) == ["cpu", "nvidia", "amd"]
    assert jobs["cpu"]["strategy"]["matrix"]["python"] == ["3.11", "3.12", "3.13"]
    assert "if" not in jobs["cpu"]


@pytest.mark.parametrize(("job", "torch"), [("nvidia", "cuda"), ("amd", "rocm")])
def test_a_gpu_runner_is_switched_on_by_a_variable_and_may_not_skip(job: str, torch: str) -> None:
    body = WORKFLOW["jobs"][job]
    assert body["if"] == f"vars.W2W_{job.upper()}_RUNNER == 'true'"
    assert {"self-hosted", job} <= set(body["runs-on"])
    assert body["env"] == {"W2W_TORCH": torch, "W2W_GPU": "1"}
    lines = [step["run"] for step in body["steps"] if "run" in step]
    assert ".venv/bin/python -m pytest tests/gpu" in lines
    assert "./w2w validate" in lines


def test_the_cpu_job_runs_what_everyone_runs() -> None:
    assert "bash .ci/run" in [step.get("run") for step in WORKFLOW["jobs"]["cpu"]["steps"]]
    script = (ROOT / ".ci" / "run").read_text()
    assert "set -euo pipefail" in script
    assert script.rstrip().endswith("exec ./w2w test")


def test_the_makefile_has_the_targets_of_the_habits() -> None:
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert phony
    assert set(phony[1].split()) == TARGETS
