"""Make `.venv` when its pins changed, then run the command-line program inside it.

This file runs as a script, before anything is installed, under any Python 3.11 to 3.13: it imports the
standard library only. `.venv/w2w.stamp` says what the environment was made from. It reads "unfinished" from the
first moment to the last, so a stop at any point leaves nothing that the next start would trust.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parents[2]
KFD = Path("/dev/kfd")
UNFINISHED = "unfinished"
GIB = 2**30

HELP = """\
./w2w study    set up on the first start, then open the course in JupyterLab
./w2w test     the same set-up, then run every test
./w2w --help   every command; it is there once the first start has made .venv

W2W_TORCH=cpu|cuda|rocm chooses the build of PyTorch; without it a machine with an AMD GPU gets the ROCm build.
W2W_EXTRAS=hip adds what is optional: clang for CUDA-style C++ kernels (400 MB). Both choices are remembered.
"""


class SetupFailed(Exception):
    """The environment could not be made; the message is one sentence for the user."""


@dataclass(frozen=True)
class Flavour:
    """One build of PyTorch: the local label of its version, the index that carries it, what it brings itself."""

    label: str
    index: str | None
    brings: tuple[str, ...] = ()


FLAVOURS = {
    # What the package index calls plain torch: the CUDA build on Linux x86-64, which also runs on a CPU.
    "cuda": Flavour("", None),
    "cpu": Flavour("+cpu", "https://download.pytorch.org/whl/cpu"),
    # The rocm7.2 index carries torch 2.13.0, whose triton-rocm 3.7.1 takes the place of the package index's triton.
    # This choice has not been run on AMD silicon.
    "rocm": Flavour("+rocm7.2", "https://download.pytorch.org/whl/rocm7.2", brings=("triton",)),
}


@dataclass(frozen=True)
class Step:
    """One step of the set-up: what is shown, what is run, and what to try when it fails."""

    title: str
    command: Sequence[str]
    advice: str


def torch_flavour(environ: Mapping[str, str], root: Path = ROOT, kfd: Path = KFD) -> str:
    """The name of the PyTorch build: W2W_TORCH, else what `.venv` has, else rocm where the AMD driver is loaded.

    >>> torch_flavour({"W2W_TORCH": "cpu"})
    'cpu'
    """
    chosen = environ.get("W2W_TORCH", "")
    if chosen and chosen not in FLAVOURS:
        raise SetupFailed(f"W2W_TORCH is {chosen!r}; set it to one of {', '.join(sorted(FLAVOURS))}, or unset it")
    installed = (_read_stamp(root / ".venv") or "").split(" ")[0]
    return chosen or (installed if installed in FLAVOURS else "rocm" if kfd.exists() else "cuda")


def chosen_extras(environ: Mapping[str, str], root: Path = ROOT) -> str:
    """Names of optional parts, sorted, with commas: those of W2W_EXTRAS, else what `.venv` has.

    >>> chosen_extras({"W2W_EXTRAS": " hip"})
    'hip'
    """
    stamp = (_read_stamp(root / ".venv") or "").split(" ")
    remembered = stamp[1] if len(stamp) == 3 else ""
    names = sorted({name.strip() for name in environ.get("W2W_EXTRAS", remembered).split(",") if name.strip()})
    known = [name for name in _project(root)["project"]["optional-dependencies"] if name != "dev"]
    if unknown := [name for name in names if name not in known]:
        raise SetupFailed(f"W2W_EXTRAS names {unknown[0]!r}; it can name {', '.join(known)}, with commas between")
    return ",".join(names)


def stamp_for(root: Path, flavour: str, extras: str = "") -> str:
    """The build of PyTorch, the extras, and a hash of what else `.venv` is made from: pins, dependencies, Python."""
    project = _project(root)
    made_from = [
        (root / "constraints.txt").read_text(),
        project["build-system"],
        {key: project["project"].get(key) for key in ("dependencies", "optional-dependencies", "scripts")},
        list(sys.version_info[:2]),
        str(root),  # an environment cannot be moved
    ]
    return f"{flavour} {extras} {hashlib.sha256(json.dumps(made_from, sort_keys=True).encode()).hexdigest()}"


def is_current(root: Path, stamp: str) -> bool:
    """Whether `.venv` was finished with this stamp and its Python is still there."""
    venv = root / ".venv"
    return _read_stamp(venv) == stamp and (venv / "bin" / "python").exists()


def plan(root: Path, flavour: str, extras: str = "") -> list[Step]:
    """The steps that make `.venv` from nothing."""
    project = _project(root)["project"]
    build = FLAVOURS[flavour]
    pins = root / "constraints.txt"
    found = re.search(r"^torch==(\S+)$", pins.read_text(), flags=re.MULTILINE)
    if not found:
        raise SetupFailed(f"{pins} has no line torch==VERSION; restore it with: git checkout constraints.txt")
    torch = f"torch=={found[1]}{build.label}"
    index = ["--extra-index-url", build.index] if build.index else []
    rest = [
        *_project(root)["build-system"]["requires"],
        *(line for line in project["dependencies"] if _name(line) not in build.brings),
        *(
            line
            for name in ["dev", *filter(None, extras.split(","))]
            for line in project["optional-dependencies"][name]
        ),
    ]
    python = str(root / ".venv" / "bin" / "python")
    pip = [python, "-I", "-m", "pip", "install", "--disable-pip-version-check", "--constraint", str(pins)]
    again = "check the connection to the package index and run the same command again"
    return [
        Step(
            "making .venv",
            [_base_python(), "-I", "-m", "venv", str(root / ".venv")],
            f"install the venv module (on Debian and Ubuntu: apt install python{_version()}-venv)",
        ),
        Step(
            f"installing PyTorch ({torch})",
            [*pip, *index, torch],
            f"{again}, or choose another build with W2W_TORCH={'|'.join(FLAVOURS)}",
        ),
        Step("installing the pinned packages", [*pip, *index, torch, *rest], again),
        Step(
            "installing the course itself",
            [*pip, "--no-deps", "--no-build-isolation", "--editable", str(root)],
            "read the lines above; a fresh clone of the course may help",
        ),
        Step(
            "trying it out",
            [python, "-I", "-c", "import torch, triton, jupyterlab, gpu_utils.cli; print('torch', torch.__version__)"],
            f"choose another build of PyTorch with W2W_TORCH={'|'.join(FLAVOURS)}",
        ),
    ]


def make(root: Path, steps: Sequence[Step], stamp: str) -> None:
    """Run the steps in a fresh `.venv` and trust it only at the end; raises SetupFailed with the step's name."""
    venv, old, new = root / ".venv", root / ".venv.old", root / ".venv.new"
    with _lock(root) as lock:
        if is_current(root, stamp):  # another start made it while this one waited
            return
        if venv.exists() and _read_stamp(venv) is None:
            raise SetupFailed(
                f"{venv} was not made by ./w2w and stays as it is; activate it and type w2w, or move it away"
            )
        for leftover in (old, new):
            shutil.rmtree(leftover, ignore_errors=True)
        new.mkdir()
        _write_stamp(new, UNFINISHED)
        if venv.exists():
            venv.rename(old)
        new.rename(venv)
        shutil.rmtree(old, ignore_errors=True)
        for number, step in enumerate(steps, start=1):
            _run(f"[{number}/{len(steps)}]", step, lock, root)
        _write_stamp(venv, stamp)


def main(arguments: Sequence[str]) -> NoReturn:
    """Make the environment if needed, then become `.venv/bin/w2w` with these arguments."""
    signal.signal(signal.SIGTERM, _as_interrupt)
    signal.signal(signal.SIGHUP, _as_interrupt)
    try:
        if not sys.platform.startswith("linux"):
            raise SetupFailed(
                f"this is {sys.platform}, where Triton has no build; use a Linux container or a remote Linux machine"
            )
        flavour = torch_flavour(os.environ)
        extras = chosen_extras(os.environ)
        stamp = stamp_for(ROOT, flavour, extras)
        if not is_current(ROOT, stamp):
            if not arguments or arguments[0] in ("--help", "-h"):
                print(HELP, end="")
                sys.exit(0)
            _say("setting up: the first start, or the pins changed; this takes some minutes")
            make(ROOT, plan(ROOT, flavour, extras), stamp)
    except SetupFailed as failure:
        sys.exit(f"w2w: {failure}")
    except OSError as failure:
        sys.exit(f"w2w: {failure.filename}: {failure.strerror}; the course needs to read and write its own folder")
    except KeyboardInterrupt:
        _say("stopped; nothing half-made will be used, and the next start begins again")
        sys.exit(130)
    program = str(ROOT / ".venv" / "bin" / "w2w")
    os.execv(program, [program, *arguments])


def _run(number: str, step: Step, lock: int, root: Path) -> None:
    _say(f"{number} {step.title} ...")
    started = time.monotonic()
    # The lock is handed on, so that it outlives a killed parent for as long as an installer still writes.
    # What it prints goes beside our own words: standard output belongs to the command that follows.
    with subprocess.Popen(
        step.command, stdin=subprocess.DEVNULL, stdout=sys.stderr, pass_fds=[lock], cwd=root
    ) as process:
        try:
            status = process.wait()
        except KeyboardInterrupt:
            process.terminate()
            raise
    if status:
        free = shutil.disk_usage(root).free
        advice = f"only {free / GIB:.1f} GiB are free on this disk; make room" if free < GIB else step.advice
        raise SetupFailed(f"step {number} {step.title} failed (exit status {status}); {advice}")
    _say(f"{number} done in {time.monotonic() - started:.0f} s")


@contextmanager
def _lock(root: Path) -> Iterator[int]:
    """Hold `.venv.lock`; a second start waits here until the first is done."""
    descriptor = os.open(root / ".venv.lock", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("another start is making .venv; waiting for it")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def _project(root: Path) -> dict:
    return tomllib.loads((root / "pyproject.toml").read_text())


def _name(requirement: str) -> str:
    return re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0].lower()


def _read_stamp(venv: Path) -> str | None:
    try:
        return (venv / "w2w.stamp").read_text()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _write_stamp(venv: Path, text: str) -> None:
    new = venv / "w2w.stamp.new"
    new.write_text(text)
    new.replace(venv / "w2w.stamp")


def _base_python() -> str:
    """The Python outside any environment: this script may itself run in the `.venv` that it replaces."""
    python = getattr(sys, "_base_executable", None) or sys.executable
    if importlib.util.find_spec("ensurepip") is None or importlib.util.find_spec("venv") is None:
        raise SetupFailed(
            f"{python} lacks the venv module; install it (on Debian and Ubuntu: apt install python{_version()}-venv)"
        )
    return python


def _version() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _as_interrupt(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt


def _say(text: str) -> None:
    print(f"w2w: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
