"""What a learner waits for: a command that needs neither torch nor a notebook library does not import them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import gpu_utils
from gpu_utils import exercises
from gpu_utils.errors import UnknownName
from tests.unit.sample_exercises import AFFINE

SLOW = {"torch", "numpy", "triton", "nbformat", "jsonschema", "jupytext", "transformers", "IPython", "matplotlib"}
COMMANDS = (["status"], ["hint", "00.saxpy"], ["list"], ["start", "00"], ["reset", "02"], ["status", "--help"])


def loaded_by(program: str) -> set[str]:
    """Which of the slow packages a fresh Python has loaded after a program."""
    program += f"\nimport sys\nprint('loaded', *({SLOW!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split()[1:])


def test_importing_check_loads_torch_and_no_library_for_notebooks_or_kernels():
    assert loaded_by("from gpu_utils import check") <= {"torch", "numpy"}


def test_commands_that_read_a_table_load_nothing_slow(tmp_path, monkeypatch):
    course = tmp_path / "course"
    course.mkdir()
    for name in ("content", "gpu_utils"):  # a checkout of its own, for start writes into it
        (course / name).symlink_to(Path(gpu_utils.__file__).parents[1] / name)
    monkeypatch.chdir(course)
    monkeypatch.setenv("W2W_DATA", str(tmp_path / "data"))
    program = (
        "import sys\n"
        "from gpu_utils.cli import main\n"
        f"for arguments in {COMMANDS!r}:\n"
        "    sys.argv = ['w2w', *arguments]\n"
        "    try:\n"
        "        main()\n"
        "    except SystemExit as ended:\n"
        "        assert not ended.code, (arguments, ended.code)\n"
    )
    assert loaded_by(program) == set()
    assert {path.name for path in (course / "work").iterdir()} == {"lessons", "00_start.ipynb", "02_gpu_machine.ipynb"}


def test_hints_and_ids_are_known_without_importing_any_exercise(monkeypatch):
    every = exercises.every()
    assert [exercise.id for exercise in every] == exercises.ids()

    def refuse(exercise_id):
        raise AssertionError(f"{exercise_id} was imported; write its hints as plain strings")

    monkeypatch.setattr(exercises, "find", refuse)
    assert {exercise.id: exercises.hints(exercise.id) for exercise in every} == {e.id: e.hints for e in every}


def test_hints_that_are_no_plain_text_are_asked_of_the_exercise(monkeypatch, tmp_path):
    (tmp_path / "u99_more").mkdir()
    (tmp_path / "u99_more" / "affine.py").write_text("EXERCISE = Exercise(hints=make_hints())\n")
    monkeypatch.setattr(exercises, "__file__", str(tmp_path / "__init__.py"))
    monkeypatch.setattr(exercises, "module_of", lambda exercise_id: "exercises.u99_more.affine")
    monkeypatch.setattr(exercises, "find", lambda exercise_id: AFFINE)
    assert exercises.hints(AFFINE.id) == AFFINE.hints


@pytest.mark.parametrize("asked", ["00.sapxy", "97.saxpy", "saxpy"])
def test_a_hint_for_an_unknown_exercise_offers_the_nearest(asked):
    with pytest.raises(UnknownName, match=r"00\.saxpy"):
        exercises.hints(asked)


def test_what_answers_are_forked_from_runs_no_operation_asks_for_no_gpu_and_starts_no_thread():
    program = (
        "import importlib, os, sys, numpy, torch\n"
        "from gpu_utils import exercises\n"
        "from gpu_utils.grading.watch import Watch\n"
        "def refuse(*_):\n"
        "    raise AssertionError('asked the driver for a GPU: a fork of this process could not use it')\n"
        "torch._C._cuda_getDeviceCount = torch.cuda.is_available = torch.cuda.init = refuse\n"
        "ran = []\n"
        "class Note(Watch):\n"
        "    def __torch_dispatch__(self, operation, types, args, kwargs=None):\n"
        "        ran.append(operation)\n"
        "        return operation(*args, **(kwargs or {}))\n"
        "threads = os.listdir('/proc/self/task')\n"
        "with Note():\n"
        "    for name in ('gpu_utils.cli', 'gpu_utils.grading.sandbox', *map(exercises.module_of, exercises.ids())):\n"
        "        importlib.import_module(name)\n"
        "assert not ran, ran\n"
        "assert os.listdir('/proc/self/task') == threads\n"
        "with Note():\n"
        "    torch.ones(3)\n"
        "assert ran, 'nothing would have been seen'\n"
        "assert 'torch._dynamo' not in sys.modules, 'a watch imports the compiler of torch'\n"
    )
    loaded_by(program)
