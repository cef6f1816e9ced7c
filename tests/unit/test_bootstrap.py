"""The bootstrap, run for real in a course of tiny packages, so that an environment takes seconds."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from gpu_utils.cli import bootstrap

pytestmark = pytest.mark.waits

ROOT = Path(__file__).parents[2]
PINS = "torch==2.13.0\ntriton==3.7.1\n"
PACKAGES = ("torch", "triton", "jupyterlab", "tidy")
VERSIONS = {"torch": "2.13.0", "triton": "3.7.1"}

PROJECT = """
[build-system]
requires = []
build-backend = "tiny_backend"
backend-path = ["."]

[project]
name = "tiny-course"
version = "1.0"
dependencies = ["torch>=2.11", "triton>=3.6; sys_platform == 'linux'", "jupyterlab"]

[project.optional-dependencies]
dev = ["tidy"]

[project.scripts]
w2w = "gpu_utils.cli:main"
"""

# Makes the editable wheel of the tiny course; where the file `slow` exists, it says so and dawdles.
BACKEND = """
import pathlib, time, zipfile

HERE = pathlib.Path(__file__).parent
INFO = "tiny_course-1.0.dist-info"
FILES = {
    "tiny_course.pth": str(HERE),
    INFO + "/METADATA": "Metadata-Version: 2.1\\nName: tiny-course\\nVersion: 1.0\\n",
    INFO + "/WHEEL": "Wheel-Version: 1.0\\nGenerator: tiny\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    INFO + "/entry_points.txt": "[console_scripts]\\nw2w = gpu_utils.cli:main\\n",
    INFO + "/RECORD": "",
}

def build_editable(folder, config_settings=None, metadata_directory=None):
    slow = HERE / "slow"
    if slow.exists():
        (HERE / "dawdling").touch()
        time.sleep(float(slow.read_text()))
    name = "tiny_course-1.0-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(folder) / name, "w") as wheel:
        for path, text in FILES.items():
            wheel.writestr(path, text)
    return name
"""

PROGRAM = "import sys, json\n\ndef main():\n    print(json.dumps([sys.prefix, sys.argv[1:]]))\n"


class Course:
    """A copy of w2w and its bootstrap beside tiny packages, and a way to start it."""

    def __init__(self, folder: Path, tools: Path | None = None) -> None:
        self.tools = tools
        self.root = folder / "the course"  # with a space, as folders of users may have
        self.venv = self.root / ".venv"
        cli = self.root / "gpu_utils" / "cli"
        cli.mkdir(parents=True)
        shutil.copy(ROOT / "w2w", self.root)
        shutil.copy(ROOT / "gpu_utils" / "cli" / "bootstrap.py", cli)
        (cli.parent / "__init__.py").write_text("")
        (cli / "__init__.py").write_text(PROGRAM)
        (self.root / "pyproject.toml").write_text(PROJECT)
        (self.root / "constraints.txt").write_text(PINS)
        (self.root / "tiny_backend.py").write_text(BACKEND)
        self.wheels = folder / "wheels"
        self.wheels.mkdir()
        for name in PACKAGES:
            _wheel(self.wheels, name, VERSIONS.get(name, "1.0"))

    def environment(self, **extra: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "W2W_"))}
        path = os.pathsep.join([*([str(self.tools)] if self.tools else []), os.environ["PATH"]])
        known = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": self.wheels.as_uri(), "W2W_TORCH": "cuda", "PATH": path}
        return kept | known | extra

    def begin(self, *arguments: str, **extra: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(self.root / "w2w"), *arguments],
            env=self.environment(**extra),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def start(self, *arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
        process = self.begin(*arguments, **extra)
        out, err = process.communicate(timeout=120)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def dawdle(self, seconds: float) -> subprocess.Popen[str]:
        """Begin a start that is now inside its fourth step, for so long."""
        (self.root / "slow").write_text(str(seconds))
        process = self.begin("list")
        deadline = time.monotonic() + 60
        while not (self.root / "dawdling").exists():
            assert time.monotonic() < deadline, "the start did not reach its fourth step"
            assert process.poll() is None, process.communicate()
            time.sleep(0.02)
        (self.root / "slow").unlink()
        return process


def _wheel(folder: Path, name: str, version: str) -> None:
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}.py", f"__version__ = {version!r}\n")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


def _ran(result: subprocess.CompletedProcess[str]) -> list[str]:
    """The arguments that the installed program saw, or a failure that shows what was printed."""
    assert result.returncode == 0, result.stdout + result.stderr
    return json.loads(result.stdout)[1]


OUTSIDE = """#!/bin/sh
if [ "$1" = -P ]; then
    shift
    exec '{python}' -P -c 'import runpy, sys
del sys.argv[0]
sys._base_executable = "{outside}"
runpy.run_path(sys.argv[0], run_name="__main__")' "$@"
elif [ "$1 $2 $3" = "-I -m venv" ]; then
    exec cp -a '{made}/.' "$4"
fi
exec '{python}' "$@"
"""

# The Python of a copy, which hands the bootstrap to the one outside, as `home` in its pyvenv.cfg would.
INSIDE = """#!/bin/sh
[ "$1" = -P ] && exec '{outside}' "$@"
exec "$(dirname -- "$0")/real" "$@"
"""


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for PATH with a `python3` whose `-m venv` copies an environment that venv made once, pip included."""
    folder = tmp_path_factory.mktemp("quick")
    outside, made = folder / "python3", folder / "made"
    python = sys._base_executable  # type: ignore[attr-defined]
    subprocess.run([python, "-I", "-m", "venv", made], check=True)
    (made / "bin" / "real").symlink_to(python)
    (made / "bin" / "python").unlink()
    for program, text in ((outside, OUTSIDE), (made / "bin" / "python", INSIDE)):
        program.write_text(text.format(python=python, outside=outside, made=made))
        program.chmod(0o755)
    return folder


@pytest.fixture
def course(tmp_path: Path, quick: Path) -> Course:
    return Course(tmp_path, quick)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Course:
    made = Course(tmp_path_factory.mktemp("finished"))
    first = made.start("list", "--all")
    assert _ran(first) == ["list", "--all"]
    assert [line for line in first.stderr.splitlines() if "making .venv" in line] == ["w2w: [1/5] making .venv ..."]
    assert "w2w: [5/5] done in" in first.stderr
    return made


def test_a_second_start_makes_nothing_and_is_quick(finished: Course) -> None:
    started = time.perf_counter()
    second = finished.start("study", "a b")
    assert time.perf_counter() - started < 2
    assert _ran(second) == ["study", "a b"]
    assert second.stderr == ""
    assert json.loads(second.stdout)[0] == str(finished.venv)


def test_the_environment_is_made_again_only_when_the_pins_changed(finished: Course) -> None:
    pins = finished.root / "constraints.txt"
    before = (finished.venv / "w2w.stamp").stat().st_mtime_ns
    os.utime(pins)
    assert finished.start("list").stderr == ""
    pins.write_text(PINS + "tidy==1.0\n")
    changed = finished.start("list")
    assert _ran(changed) == ["list"]
    assert "the pins changed" in changed.stderr
    assert (finished.venv / "w2w.stamp").stat().st_mtime_ns > before
    assert not list(finished.root.glob(".venv.[on]*"))
    assert finished.start("list").stderr == ""


def test_the_build_of_torch_that_was_chosen_is_remembered(finished: Course) -> None:
    environment = {name: value for name, value in finished.environment().items() if name != "W2W_TORCH"}
    again = subprocess.run([finished.root / "w2w", "list"], env=environment, capture_output=True, text=True, check=True)
    assert again.stderr == ""


def test_a_moved_course_does_not_trust_its_old_environment(finished: Course) -> None:
    stamp = (finished.venv / "w2w.stamp").read_text()
    assert stamp.split(" ")[0] == "cuda"
    assert bootstrap.stamp_for(finished.root, "cuda") == stamp
    elsewhere = finished.root.parent / "elsewhere"
    shutil.copytree(finished.root, elsewhere, symlinks=True, ignore=lambda *_: {"lib", "lib64"})
    assert not bootstrap.is_current(elsewhere, bootstrap.stamp_for(elsewhere, "cuda"))


def test_a_failed_install_names_its_step_and_is_not_trusted(course: Course) -> None:
    (course.root / "constraints.txt").write_text("torch==9.9.9\n")
    failed = course.start("list")
    assert failed.returncode == 1
    last = failed.stderr.splitlines()[-1]
    assert last.startswith("w2w: step [2/5] installing PyTorch (torch==9.9.9) failed (exit status 1); ")
    assert "W2W_TORCH=cuda|cpu|rocm" in last
    assert (course.venv / "w2w.stamp").read_text() == bootstrap.UNFINISHED
    (course.root / "constraints.txt").write_text(PINS)
    assert _ran(course.start("list")) == ["list"]


def test_a_failing_try_out_is_a_failed_install(course: Course) -> None:
    (course.root / "gpu_utils" / "cli" / "__init__.py").write_text("raise ImportError('broken on purpose')\n")
    failed = course.start("list")
    assert failed.returncode == 1
    assert "w2w: step [5/5] trying it out failed" in failed.stderr
    assert (course.venv / "w2w.stamp").read_text() == bootstrap.UNFINISHED


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_install_stops_at_once_and_is_not_trusted(course: Course, number: signal.Signals) -> None:
    process = course.dawdle(60)
    if number is signal.SIGINT:
        os.killpg(process.pid, number)  # a terminal sends Ctrl-C to every process of the group
    else:
        process.send_signal(number)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "w2w: stopped; nothing half-made will be used" in err
    assert "Traceback" not in err.split("w2w: stopped")[1]
    assert (course.venv / "w2w.stamp").read_text() == bootstrap.UNFINISHED


def test_two_starts_at_once_make_one_environment(course: Course) -> None:
    first = course.dawdle(2)
    second = course.start("status")
    out, err = first.communicate(timeout=120)
    assert first.returncode == 0, err
    assert json.loads(out)[1] == ["list"]
    assert _ran(second) == ["status"]
    assert "another start is making .venv; waiting for it" in second.stderr
    assert "making .venv ..." not in second.stderr


def test_a_start_after_a_kill_waits_for_the_installer_that_still_writes(course: Course) -> None:
    killed = course.dawdle(3)
    killed.kill()
    again = course.start("list")
    killed.communicate(timeout=20)
    assert "another start is making .venv; waiting for it" in again.stderr
    assert "[1/5] making .venv" in again.stderr
    assert _ran(again) == ["list"]


def test_an_environment_of_the_users_own_is_left_alone(course: Course) -> None:
    (course.venv / "bin").mkdir(parents=True)
    (course.venv / "precious").write_text("kept")
    refused = course.start("list")
    assert refused.returncode == 1
    assert refused.stderr.splitlines()[-1].startswith(f"w2w: {course.venv} was not made by ./w2w and stays as it is")
    assert (course.venv / "precious").read_text() == "kept"


@pytest.mark.parametrize("arguments", [(), ("--help",)])
def test_help_before_the_first_start_installs_nothing(course: Course, arguments: tuple[str, ...]) -> None:
    shown = course.start(*arguments)
    assert shown.returncode == 0
    assert shown.stdout == bootstrap.HELP
    assert not course.venv.exists()


def test_a_build_of_torch_that_does_not_exist_is_one_sentence(course: Course) -> None:
    refused = course.start("list", W2W_TORCH="tpu")
    assert refused.returncode == 1
    assert refused.stderr == "w2w: W2W_TORCH is 'tpu'; set it to one of cpu, cuda, rocm, or unset it\n"


def test_without_a_supported_python_there_is_one_sentence(course: Course, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("dirname", "readlink", "sh"):
        (tools / name).symlink_to(shutil.which(name) or name)
    old = tools / "python3"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    refused = course.start("list", PATH=str(tools))
    assert refused.returncode == 1
    assert refused.stderr.startswith("w2w: there is no Python 3.11, 3.12 or 3.13 on PATH; install one")
    assert len(refused.stderr.splitlines()) == 1


def test_w2w_works_through_a_link_from_any_folder(finished: Course, tmp_path: Path) -> None:
    link = tmp_path / "w2w"
    link.symlink_to(finished.root / "w2w")
    result = subprocess.run([link, "list"], cwd="/", env=finished.environment(), capture_output=True, text=True)
    assert _ran(result) == ["list"]


def test_an_amd_machine_gets_the_rocm_build(tmp_path: Path) -> None:
    driver = tmp_path / "kfd"
    assert bootstrap.torch_flavour({}, tmp_path, driver) == "cuda"
    driver.touch()
    assert bootstrap.torch_flavour({}, tmp_path, driver) == "rocm"
    assert bootstrap.torch_flavour({"W2W_TORCH": "cpu"}, tmp_path, driver) == "cpu"


def test_on_amd_the_triton_that_torch_brings_is_not_replaced() -> None:
    torch, rest = (step.command for step in bootstrap.plan(ROOT, "rocm")[1:3])
    index = ["--extra-index-url", "https://download.pytorch.org/whl/rocm7.2"]
    assert [*index, "torch==2.13.0+rocm7.2"] == list(torch[-3:])
    assert not [word for word in rest if word.startswith("triton")]
    assert "torch==2.13.0+rocm7.2" in rest


def test_other_machines_get_plain_torch_and_the_pinned_triton() -> None:
    torch, rest = (step.command for step in bootstrap.plan(ROOT, "cuda")[1:3])
    assert torch[-1] == "torch==2.13.0"
    assert "--extra-index-url" not in [*torch, *rest]
    assert [word for word in rest if word.startswith("triton")] == ["triton>=3.6; sys_platform == 'linux'"]


def test_pins_without_torch_are_one_sentence(course: Course) -> None:
    (course.root / "constraints.txt").write_text("triton==3.7.1\n")
    refused = course.start("list")
    assert refused.returncode == 1
    assert refused.stderr.splitlines()[-1].endswith("restore it with: git checkout constraints.txt")
    assert not course.venv.exists()


def test_the_bootstrap_needs_only_the_standard_library() -> None:
    script = ROOT / "gpu_utils" / "cli" / "bootstrap.py"
    code = f"import runpy, sys; runpy.run_path({str(script)!r}); print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True).stdout
    outside = {name.split(".")[0] for name in loaded.split()} - set(sys.stdlib_module_names) - {"__main__"}
    assert not outside


def test_extras_are_asked_for_once_and_remembered(tmp_path):
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copy(ROOT / "constraints.txt", tmp_path)
    assert bootstrap.chosen_extras({}, tmp_path) == ""
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "w2w.stamp").write_text(bootstrap.stamp_for(tmp_path, "cuda", "hip"))
    assert bootstrap.chosen_extras({}, tmp_path) == "hip"
    assert bootstrap.chosen_extras({"W2W_EXTRAS": ""}, tmp_path) == ""
    assert bootstrap.torch_flavour({}, tmp_path, tmp_path / "no-driver") == "cuda"


def test_an_extra_that_does_not_exist_is_one_sentence(tmp_path):
    with pytest.raises(bootstrap.SetupFailed, match="W2W_EXTRAS names 'hipp'; it can name hip"):
        bootstrap.chosen_extras({"W2W_EXTRAS": "hipp"}, ROOT)


def test_an_extra_is_installed_with_the_other_packages():
    commands = [" ".join(step.command) for step in bootstrap.plan(ROOT, "cuda", "hip")]
    assert sum("ziglang" in command for command in commands) == 1
    assert not any("ziglang" in " ".join(step.command) for step in bootstrap.plan(ROOT, "cuda"))
