"""The command line's check runs an answer in a process of its own, which may do what it likes to itself."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch

from gpu_utils.grading.check import check
from gpu_utils.grading.program import Part, Program
from gpu_utils.grading.sandbox import run_apart
from tests.unit.sample_exercises import AFFINE, HOSTILE_SOURCES, find_sample

RIGHT = "import torch\n\ndef affine(x):\n    return 2 * x + 1\n"


def verdict(source):
    return check(AFFINE, None, runner=run_apart(Program((Part("cell 5", source),)), find_sample))


def test_a_right_answer_passes():
    assert verdict(RIGHT).passed


def test_a_wrong_answer_gets_the_hint_of_its_misconception():
    report = verdict("def affine(x):\n    return 2 * x\n")
    assert report.status == "failed"
    assert report.misconception == "forgets_the_one"


def test_a_stub_reads_not_started():
    source = 'def affine(x):\n    raise NotImplementedError("99.affine is yours to write")\n'
    assert verdict(source).status == "not started"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("exits", "died"),
        ("kills_itself", "died"),
        ("never_ends", "timeout"),
        ("swallows_the_alarm", "timeout"),
        ("returns_an_object", "type"),
    ],
)
def test_what_an_answer_does_to_its_process_costs_only_its_own_exercise(name, kind, monkeypatch):
    monkeypatch.setattr("gpu_utils.grading.sandbox.GRACE_SECONDS", 1.0)
    report = verdict(HOSTILE_SOURCES[name])
    assert report.status == "failed"
    assert report.first_failure.kind == kind


def test_a_cell_that_needs_another_cell_says_so():
    failure = verdict("def affine(x):\n    return x\n\nscale = helper(2)\n").first_failure
    assert "no cell tagged setup" in failure.detail


def test_an_answer_cell_without_the_function_says_what_was_expected():
    failure = verdict("def afine(x):\n    return 2 * x + 1\n").first_failure
    assert "expected affine(x)" in failure.detail


def test_the_expected_values_are_not_in_the_answers_process():
    source = (
        "import gc, torch\n"
        "def affine(x):\n"
        "    wanted = (2 * x.double() + 1)\n"
        "    for thing in gc.get_objects():\n"
        "        if type(thing) is torch.Tensor and thing is not wanted and thing.shape == wanted.shape:\n"
        "            if thing.dtype == torch.float64 and torch.allclose(thing, wanted):\n"
        "                return thing.to(x.dtype)\n"
        "    return torch.zeros_like(x)\n"
    )
    assert verdict(source).status == "failed"


@pytest.mark.parametrize("source", ["x = 1\n", "def affine():\n    return 1\n", "1 / 0\n"])
def test_a_cell_without_a_usable_answer_is_one_failure_and_no_dead_process(source):
    report = verdict(source)
    assert report.status == "failed"
    assert len(report.outcomes) == 1
    assert "the process ended" not in report.headline


def _ends(pid: int) -> bool:
    """Whether the process is gone, or dead and not yet collected, within some seconds: a kill takes a moment."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().split()[2] in "ZX":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.05)
    return False


def test_a_process_that_the_answer_started_ends_with_the_check(tmp_path):
    note = tmp_path / "pid"
    source = (
        "import subprocess\n"
        "def affine(x):\n"
        "    child = subprocess.Popen(['sleep', '60'])\n"
        f"    open({str(note)!r}, 'w').write(str(child.pid))\n"
        "    return 2 * x + 1\n"
    )
    assert verdict(source).passed
    assert _ends(int(note.read_text()))


def test_nothing_of_one_answer_reaches_the_next():
    marks = (
        "import os, sys, torch\n"
        "from gpu_utils.grading import exercise\n"
        "def affine(x):\n"
        "    torch.set_default_dtype(torch.float64)\n"
        "    os.environ['W2W_MARK'] = torch.mark = exercise.mark = 'left by an answer'\n"
        "    return 2 * x + 1\n"
    )
    looks = (
        "import os, torch\n"
        "from gpu_utils.grading import exercise\n"
        "def affine(x):\n"
        "    marks = [os.environ.get('W2W_MARK'), getattr(torch, 'mark', None), getattr(exercise, 'mark', None)]\n"
        "    return x if any(marks) or torch.get_default_dtype() != torch.float32 else 2 * x + 1\n"
    )
    assert verdict(marks).passed
    assert verdict(looks).passed


def test_an_answer_that_uses_every_thread_of_torch_comes_back():
    wide = torch.randn(600, 600)
    wide @ wide  # this process has used them too: the answer's is not forked from it
    source = (
        "import torch\n"
        "wide = torch.randn(600, 600)\n"
        "def affine(x):\n"
        "    assert not torch.cuda._is_in_bad_fork()\n"
        "    torch.nn.functional.gelu(wide @ wide).sum().item()\n"
        "    return 2 * x + 1\n"
    )
    assert verdict(source).passed


def test_the_process_that_answers_are_forked_from_has_imported_torch_and_no_answer_waits_for_it():
    source = (
        "import os\n"
        "with open(f'/proc/{os.getppid()}/maps') as maps:\n"
        "    loaded = 'libtorch' in maps.read()\n"
        "def affine(x):\n"
        "    assert loaded\n"
        "    return 2 * x + 1\n"
    )
    assert verdict(source).passed


def test_an_answer_that_ends_the_process_it_was_forked_from_costs_only_itself():
    killer = "import os, signal\ndef affine(x):\n    os.kill(os.getppid(), signal.SIGKILL)\n    return x\n"
    assert verdict(killer).status == "failed"
    assert verdict(RIGHT).passed
