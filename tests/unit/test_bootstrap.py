"""The bootstrap, run for real in a course of tiny packages, so that an environment takes seconds."""

from __future__ import annotations

import ensurepip
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
import zipfile
from dataclasses import replace
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
dependencies = ["torch>=2.11", "triton>=3.6; sys_platform == 'linux'"]

[project.optional-dependencies]
course = ["jupyterlab"]
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
        seconds = float(slow.read_text())
        (HERE / "dawdling").touch()  # from here on the file may be gone
        time.sleep(seconds)
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
            preexec_fn=_hear_ctrl_c,
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


def _hear_ctrl_c() -> None:
    """As in a terminal. A suite that a shell began in the background ignores SIGINT, and its children would, too."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


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
    assert all(line.startswith("w2w: ") for line in first.stderr.splitlines())  # what pip prints is in the log
    assert "Successfully installed torch-2.13.0" in (made.root / "build" / "setup.log").read_text()
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
    log = course.root / "build" / "setup.log"
    assert last.endswith(f"All that was printed: {log}")
    assert "Cannot install torch==9.9.9" in log.read_text()
    assert failed.stderr.splitlines()[-2] == f"w2w:     {log.read_text().splitlines()[-1]}"
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


@pytest.mark.parametrize(
    ("loaded", "flavour"),
    [((), "cpu"), (("kfd",), "rocm"), (("nvidiactl",), "cuda"), (("wsl",), "cuda"), (("kfd", "nvidiactl"), "cuda")],
)
def test_a_machine_gets_the_build_that_its_driver_asks_for(
    tmp_path: Path, loaded: tuple[str, ...], flavour: str
) -> None:
    drivers = {"cuda": (tmp_path / "nvidiactl", tmp_path / "wsl"), "rocm": (tmp_path / "kfd",)}
    for name in loaded:
        (tmp_path / name).touch()
    assert bootstrap.torch_flavour({}, tmp_path, drivers) == flavour
    assert bootstrap.torch_flavour({"W2W_TORCH": "rocm"}, tmp_path, drivers) == "rocm"
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "w2w.stamp").write_text("cuda  0123")
    assert bootstrap.torch_flavour({}, tmp_path, drivers) == "cuda"  # what is there stays


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The page of an index of PyTorch's, which the CPU build is asked of; it is not there yet."""
    build = replace(bootstrap.FLAVOURS["cpu"], index=tmp_path.as_uri())
    monkeypatch.setitem(bootstrap.FLAVOURS, "cpu", build)
    return tmp_path / "torch"


@pytest.mark.parametrize("link", ["torch-2.13.0%2Bcpu-cp311.whl", ">torch-2.13.0+cpu-cp311.whl<"])
def test_the_cpu_build_comes_from_pytorchs_index_where_that_has_it(index, capsys, monkeypatch, link) -> None:
    monkeypatch.setattr(bootstrap.urllib.request, "urlopen", lambda address, timeout: io.BytesIO(link.encode()))
    build = bootstrap.build_of("cpu", ROOT)
    assert build.label == "+cpu"
    torch, rest = (step.command for step in bootstrap.plan(ROOT, build)[1:3])
    assert list(torch[-3:]) == ["--extra-index-url", index.parent.as_uri(), "torch==2.13.0+cpu"]
    assert "torch==2.13.0+cpu" in rest
    assert capsys.readouterr().err == "w2w: PyTorch's build for cpu: about 650 MB to download\n"


def test_where_pytorchs_index_does_not_answer_the_default_one_is_taken_and_one_line_says_so(index, capsys) -> None:
    build = bootstrap.build_of("cpu", ROOT)
    assert [build.label, build.index] == ["", None]
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "does not answer" in said
    assert "the package index has a build that also runs on a CPU, which may be far larger" in said


def test_an_index_without_this_version_is_not_asked_to_install_it(index, capsys, monkeypatch) -> None:
    monkeypatch.setattr(bootstrap.urllib.request, "urlopen", lambda address, timeout: io.BytesIO(b"torch-2.1.0%2Bcpu"))
    assert bootstrap.build_of("cpu", ROOT).index is None
    assert "has no torch 2.13.0+cpu" in capsys.readouterr().err


def test_builds_for_a_gpu_have_no_substitute(capsys) -> None:
    assert bootstrap.build_of("rocm", ROOT) == bootstrap.FLAVOURS["rocm"]
    assert bootstrap.build_of("cuda", ROOT) == bootstrap.FLAVOURS["cuda"]
    assert "PyTorch's build for cuda: about 3 GB to download" in capsys.readouterr().err


def plan(flavour: str, extras: str = "", uv: str | None = None) -> list[bootstrap.Step]:
    return bootstrap.plan(ROOT, bootstrap.FLAVOURS[flavour], extras, uv)


def test_on_amd_the_triton_that_torch_brings_is_not_replaced() -> None:
    torch, rest = (step.command for step in plan("rocm")[1:3])
    index = ["--extra-index-url", "https://download.pytorch.org/whl/rocm7.2"]
    assert [*index, "torch==2.13.0+rocm7.2"] == list(torch[-3:])
    assert not [word for word in rest if word.startswith("triton")]
    assert "torch==2.13.0+rocm7.2" in rest


def test_other_machines_get_plain_torch_and_the_pinned_triton() -> None:
    torch, rest = (step.command for step in plan("cuda")[1:3])
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
    assert bootstrap.torch_flavour({}, tmp_path, {}) == "cuda"


def test_an_extra_that_does_not_exist_is_one_sentence(tmp_path):
    with pytest.raises(bootstrap.SetupFailed, match="names 'hipp'; it can name hip, nvrtc, tilelang, classroom"):
        bootstrap.chosen_extras({"W2W_EXTRAS": "hipp"}, ROOT)


def test_an_extra_is_installed_with_the_other_packages():
    commands = [" ".join(step.command) for step in plan("cuda", "hip")]
    assert sum("ziglang" in command for command in commands) == 1
    assert not any("ziglang" in " ".join(step.command) for step in plan("cuda"))


# uv


def test_uv_makes_the_same_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Course(tmp_path)
    folders = [Path(ensurepip.__file__).parent / "_bundled", sysconfig.get_config_var("WHEEL_PKG_DIR")]  # Debian's
    shutil.copy(next(wheel for folder in folders if folder for wheel in Path(folder).glob("pip-*.whl")), made.wheels)
    settings = {"OFFLINE": "1", "NO_INDEX": "1", "FIND_LINKS": str(made.wheels), "CACHE_DIR": str(tmp_path / "cache")}
    for name, value in settings.items():
        monkeypatch.setenv(f"UV_{name}", value)
    stamp = bootstrap.stamp_for(made.root, "cuda")
    uv = str(Path(sys.prefix, "bin", "uv"))
    bootstrap.make(made.root, lambda: bootstrap.plan(made.root, bootstrap.FLAVOURS["cuda"], uv=uv), stamp)
    assert "tidy==1.0" in (made.root / "build" / "setup.log").read_text()
    second = made.start("list")
    assert _ran(second) == ["list"]
    assert second.stderr == ""
    assert (made.venv / "bin" / "pip").exists()  # for %pip in a notebook
    assert list(made.venv.glob("lib/python*/site-packages/__pycache__/tidy.*.pyc"))


def test_pytorchs_index_does_not_hide_the_package_index_from_uv() -> None:
    torch = plan("rocm", uv="/bin/uv")[1].command
    assert torch[:3] == ["/bin/uv", "pip", "install"]
    assert "--index-strategy" in torch


@pytest.fixture
def with_uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """An environment with uv on PATH and no settings of pip."""
    uv = tmp_path / "uv"
    uv.write_text("#!/bin/sh\n")
    uv.chmod(0o755)
    monkeypatch.setattr(bootstrap, "PIP_FILES", (tmp_path / "pip.conf",))
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    return {"PATH": str(tmp_path)}


def test_uv_is_taken_where_it_is_on_the_path(with_uv: dict[str, str], tmp_path: Path) -> None:
    assert bootstrap.find_uv(with_uv) == str(tmp_path / "uv")
    assert bootstrap.find_uv(with_uv | {"PIP_NO_CACHE_DIR": "1"}) == str(tmp_path / "uv")  # no word on where from
    assert bootstrap.find_uv({"PATH": str(tmp_path / "empty")}) is None


@pytest.mark.parametrize("name", ["PIP_INDEX_URL", "PIP_FIND_LINKS", "PIP_PROXY", "PIP_CONFIG_FILE"])
def test_a_setting_of_pip_which_uv_would_not_read_keeps_pip(with_uv: dict[str, str], name: str) -> None:
    assert bootstrap.find_uv(with_uv | {name: "/somewhere"}) is None


@pytest.mark.parametrize("file", ["pip.conf", ".config/pip/pip.conf", ".pip/pip.conf"])
def test_a_file_of_settings_of_pip_keeps_pip(with_uv: dict[str, str], tmp_path: Path, file: str) -> None:
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).touch()
    assert bootstrap.find_uv(with_uv) is None


# What is shown


def test_on_a_terminal_one_line_goes_on_counting(tmp_path, monkeypatch, capsys) -> None:
    (tmp_path / "build").mkdir()
    log = tmp_path / "build" / "setup.log"
    code = (
        "import time; print('Downloading torch-2.13.0+cpu-cp311-cp311-x.whl (191.8 MB)', flush=True); time.sleep(2.5)"
    )
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with (tmp_path / "lock").open("w") as lock:
        step = bootstrap.Step("installing PyTorch", [sys.executable, "-c", code], "try again")
        bootstrap._run("[2/5]", step, lock.fileno(), log)
    lines = capsys.readouterr().err.rstrip().split("\n")
    assert lines[0] == "w2w: [2/5] installing PyTorch ..."
    assert re.fullmatch(r"w2w: \[2/5\] \d s Downloading torch-2.13.0\+cpu \(191.8 MB\)", lines[1])
    assert lines[2].startswith(f"{bootstrap.OVER}w2w: [2/5] ")
    assert lines[-1].startswith(f"{bootstrap.OVER}w2w: [2/5] done in ")


@pytest.mark.parametrize(
    ("printed", "news"),
    [
        (
            "Collecting a\n  Downloading torch-2.13.0+cpu-cp311-cp311-any.whl (191.8 MB)\n",
            "torch-2.13.0+cpu (191.8 MB)",
        ),
        ("Downloading torch (182.9MiB)\n", "torch (182.9MiB)"),
        ("Processing /opt/wheels/torch-2.13.0+cpu-cp311-cp311-any.whl (from sympy)\n", "torch-2.13.0+cpu"),
        ("Downloading a (1 MB)\nInstalling collected packages: a, b, c\n", "collected packages"),
    ],
)
def test_the_line_says_what_the_installer_does_now(tmp_path: Path, printed: str, news: str) -> None:
    log = tmp_path / "setup.log"
    log.write_text("of another step: Downloading z (9 MB)\n" + printed)
    assert bootstrap._news(log, len("of another step: Downloading z (9 MB)\n")).split(" ", 1)[1] == news
