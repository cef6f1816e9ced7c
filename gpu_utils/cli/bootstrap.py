"""Make `.venv` when its pins changed, then run the command-line program inside it.

This file runs as a script, before anything is installed, under any Python 3.11 to 3.13: it imports the
standard library only. `.venv/w2w.stamp` says what the environment was made from. It reads "unfinished" from the
first moment to the last, so a stop at any point leaves nothing that the next start would trust. uv installs where there
is one, else pip; what they print goes to build/setup.log.
"""

from __future__ import annotations

import fcntl
import hashlib
import http.client
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import tomllib
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parents[2]
DRIVERS = {
    # The last is where Windows puts its driver for Linux. A processor with graphics of AMD has /dev/kfd, too, so that a
    # machine with both has its large GPU from NVIDIA.
    "cuda": (Path("/dev/nvidiactl"), Path("/proc/driver/nvidia"), Path("/usr/lib/wsl/lib/nvidia-smi")),
    "rocm": (Path("/dev/kfd"),),
}
"""Build of PyTorch -> what shows that its driver is loaded."""

ALWAYS = ("course", "dev")
"""Extras that every environment of a checkout gets; the wheel alone has the virtual GPUs only."""

UNFINISHED = "unfinished"
GIB = 2**30
OVER = "\x1b[A\r\x1b[K"  # up, to the start of the line, and empty it
INDEX_SECONDS = 10.0
NEWS_SECONDS = 30.0
LAST_LINES = 12
PIP_SETTINGS = (
    *("INDEX_URL", "EXTRA_INDEX_URL", "NO_INDEX", "FIND_LINKS", "PROXY", "CERT", "CLIENT_CERT", "TRUSTED_HOST"),
    "CONFIG_FILE",
)
"""Variables, after PIP_, that say where packages come from."""
PIP_FILES = (Path("/etc/pip.conf"), Path("/etc/xdg/pip/pip.conf"))

HELP = """\
./w2w study    set up on the first start, then open the course in JupyterLab
./w2w test     the same set-up, then run every test
./w2w --help   every command; it is there once the first start has made .venv

W2W_TORCH=cpu|cuda|rocm chooses the build of PyTorch; without it a machine gets what its driver asks for:
NVIDIA's, AMD's or, with neither, the small one for the CPU.
W2W_EXTRAS=hip,nvrtc,tilelang,classroom adds what is optional: clang for CUDA-style C++ kernels (400 MB), NVIDIA's own
compiler and headers for them (96 MB), TileLang and Z3 for unit 14 (83 MB), and nbgrader for teachers (80 MB). Both
choices are remembered.
"""


class SetupFailed(Exception):
    """The environment could not be made; the message is one sentence for the user."""


@dataclass(frozen=True)
class Flavour:
    """One build of PyTorch.

    label   local label of its version
    index   the index that carries it; None for the package index
    brings  packages that come with it, so that those of the package index are left out
    size    what a first start downloads, in words; "" where nobody measured
    """

    label: str
    index: str | None
    brings: tuple[str, ...] = ()
    size: str = ""


FLAVOURS = {
    # What the package index calls plain torch: the CUDA build on Linux x86-64, which also runs on a CPU.
    "cuda": Flavour("", None, size="about 3 GB to download"),
    "cpu": Flavour("+cpu", "https://download.pytorch.org/whl/cpu", size="about 650 MB to download"),
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


def torch_flavour(
    environ: Mapping[str, str], root: Path = ROOT, drivers: Mapping[str, Sequence[Path]] = DRIVERS
) -> str:
    """The name of the PyTorch build: W2W_TORCH, else what `.venv` has, else that of the loaded driver, else cpu.

    >>> torch_flavour({"W2W_TORCH": "cpu"})
    'cpu'
    """
    chosen = environ.get("W2W_TORCH", "")
    if chosen and chosen not in FLAVOURS:
        raise SetupFailed(f"W2W_TORCH is {chosen!r}; set it to one of {', '.join(sorted(FLAVOURS))}, or unset it")
    installed = (_read_stamp(root / ".venv") or "").split(" ")[0]
    loaded = next((name for name, paths in drivers.items() if any(path.exists() for path in paths)), "cpu")
    return chosen or (installed if installed in FLAVOURS else loaded)


def build_of(flavour: str, root: Path = ROOT) -> Flavour:
    """The build to install. For the CPU any build will do: where PyTorch's own index does not answer, the default one.

    Whether it answers is found out by asking; a line says what came of it.
    """
    build = FLAVOURS[flavour]
    if flavour == "cpu" and build.index:
        version = f"{_torch_version(root)}{build.label}"
        try:
            with urllib.request.urlopen(f"{build.index}/torch/", timeout=INDEX_SECONDS) as page:
                text = page.read().decode(errors="replace")
        except (OSError, ValueError, http.client.HTTPException) as problem:
            text = ""
            why = f"does not answer ({getattr(problem, 'reason', None) or problem})"
        else:
            why = f"has no torch {version}"
        if version not in text and version.replace("+", "%2B") not in text:
            _say(f"{build.index} {why}: the package index has a build that also runs on a CPU, which may be far larger")
            return replace(FLAVOURS["cuda"], size="")
    _say(f"PyTorch's build for {flavour}{f': {build.size}' if build.size else ''}")
    return build


def find_uv(environ: Mapping[str, str]) -> str | None:
    """uv, where it is on PATH; not where pip has settings, a mirror for example: uv reads none of pip's."""
    config = Path(environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    files = [*PIP_FILES, config / "pip" / "pip.conf", Path.home() / ".pip" / "pip.conf"]
    if any(environ.get(f"PIP_{name}") for name in PIP_SETTINGS) or any(file.exists() for file in files):
        return None
    return shutil.which("uv", path=environ.get("PATH"))


def chosen_extras(environ: Mapping[str, str], root: Path = ROOT) -> str:
    """Names of optional parts, sorted, with commas: those of W2W_EXTRAS, else what `.venv` has.

    >>> chosen_extras({"W2W_EXTRAS": " hip"})
    'hip'
    """
    stamp = (_read_stamp(root / ".venv") or "").split(" ")
    remembered = stamp[1] if len(stamp) == 3 else ""
    names = sorted({name.strip() for name in environ.get("W2W_EXTRAS", remembered).split(",") if name.strip()})
    known = [name for name in _project(root)["project"]["optional-dependencies"] if name not in ALWAYS]
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


def plan(root: Path, build: Flavour, extras: str = "", uv: str | None = None) -> list[Step]:
    """The steps that make `.venv` from nothing, with pip, or with uv where its path is given."""
    project = _project(root)["project"]
    pins = root / "constraints.txt"
    torch = f"torch=={_torch_version(root)}{build.label}"
    rest = [
        *_project(root)["build-system"]["requires"],
        *(line for line in project["dependencies"] if _name(line) not in build.brings),
        *(
            line
            for name in [*ALWAYS, *filter(None, extras.split(","))]
            for line in project["optional-dependencies"][name]
        ),
    ]
    python = str(root / ".venv" / "bin" / "python")
    constraint = ["--constraint", str(pins)]
    if uv:
        # uv takes a package from the first index that has it; PyTorch's has some of everybody's, in few versions
        index = ["--index", build.index, "--index-strategy", "unsafe-best-match"] if build.index else []
        venv = [uv, "venv", "--allow-existing", "--python", _base_python(), str(root / ".venv")]
        install = [uv, "pip", "install", "--python", python, "--compile-bytecode", *constraint]
        rest.append("pip")  # venv brings it by itself, for %pip in a notebook
        without = "check that uv works"
    else:
        index = ["--extra-index-url", build.index] if build.index else []
        venv = [_base_python(), "-I", "-m", "venv", str(root / ".venv")]
        without = f"install the venv module (on Debian and Ubuntu: apt install python{_version()}-venv)"
        if importlib.util.find_spec("ensurepip") is None or importlib.util.find_spec("venv") is None:
            raise SetupFailed(f"{_base_python()} lacks the venv module; {without}")
        install = [python, "-I", "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off"]
        install += constraint
    again = "check the connection to the package index and run the same command again"
    return [
        Step("making .venv", venv, without),
        Step(
            f"installing PyTorch ({torch})",
            [*install, *index, torch],
            f"{again}, or choose another build with W2W_TORCH={'|'.join(FLAVOURS)}",
        ),
        Step("installing the pinned packages", [*install, *index, torch, *rest], again),
        Step(
            "installing the course itself",
            [*install, "--no-deps", "--no-build-isolation", "--editable", str(root)],
            "read the lines above; a fresh clone of the course may help",
        ),
        Step(
            "trying it out",
            [python, "-I", "-c", "import torch, triton, jupyterlab, gpu_utils.cli; print('torch', torch.__version__)"],
            f"choose another build of PyTorch with W2W_TORCH={'|'.join(FLAVOURS)}",
        ),
    ]


def make(root: Path, steps: Callable[[], Sequence[Step]], stamp: str) -> None:
    """Run the steps in a fresh `.venv` and trust it only at the end; raises SetupFailed with the step's name.

    What the steps are is asked once nobody else makes the environment.
    """
    venv, old, new = root / ".venv", root / ".venv.old", root / ".venv.new"
    with _lock(root) as lock:
        if is_current(root, stamp):  # another start made it while this one waited
            return
        if venv.exists() and _read_stamp(venv) is None:
            raise SetupFailed(
                f"{venv} was not made by ./w2w and stays as it is; activate it and type w2w, or move it away"
            )
        todo = steps()
        for leftover in (old, new):
            shutil.rmtree(leftover, ignore_errors=True)
        new.mkdir()
        _write_stamp(new, UNFINISHED)
        if venv.exists():
            venv.rename(old)
        new.rename(venv)
        shutil.rmtree(old, ignore_errors=True)
        log = root / "build" / "setup.log"
        log.parent.mkdir(exist_ok=True)
        log.write_bytes(b"")
        for number, step in enumerate(todo, start=1):
            _run(f"[{number}/{len(todo)}]", step, lock, log)
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
            _torch_version(ROOT)
            make(ROOT, lambda: plan(ROOT, build_of(flavour), extras, find_uv(os.environ)), stamp)
    except SetupFailed as failure:
        sys.exit(f"w2w: {failure}")
    except OSError as failure:
        sys.exit(f"w2w: {failure.filename}: {failure.strerror}; the course needs to read and write its own folder")
    except KeyboardInterrupt:
        _say("stopped; nothing half-made will be used, and the next start begins again")
        sys.exit(130)
    program = str(ROOT / ".venv" / "bin" / "w2w")
    os.execv(program, [program, *arguments])


def _run(number: str, step: Step, lock: int, log: Path) -> None:
    """One step: a line with its title, and below it how long it takes so far and what is done now.

    On a terminal that second line is written anew each second, elsewhere there is another one now and then.
    """
    root, started = log.parents[1], time.monotonic()
    terminal, counting = sys.stderr.isatty(), False
    _say(f"{number} {step.title} ...")
    with log.open("ab") as output:
        begin = output.tell()
        # The lock is handed on, so that it outlives a killed parent for as long as an installer still writes.
        with subprocess.Popen(
            step.command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, pass_fds=[lock], cwd=root
        ) as process:
            try:
                while True:
                    try:
                        status = process.wait(timeout=1 if terminal else NEWS_SECONDS)
                        break
                    except subprocess.TimeoutExpired:
                        taken = f"{time.monotonic() - started:.0f} s"
                        _say(f"{number} {taken} {_news(log, begin)}".rstrip(), over=counting)
                        counting = terminal
            except KeyboardInterrupt:
                process.terminate()
                raise
    if status:
        for line in _text(log, begin).splitlines()[-LAST_LINES:]:
            _say(f"    {line}")
        free = shutil.disk_usage(root).free
        advice = f"only {free / GIB:.1f} GiB are free on this disk; make room" if free < GIB else step.advice
        raise SetupFailed(
            f"step {number} {step.title} failed (exit status {status}); {advice}. All that was printed: {log}"
        )
    _say(f"{number} done in {time.monotonic() - started:.0f} s", over=counting)


def _text(log: Path, begin: int) -> str:
    with log.open("rb") as file:
        file.seek(begin)
        return file.read().decode(errors="replace")


def _news(log: Path, begin: int) -> str:
    """What an installer does now, by the last line of its output that says so, with a size where it gives one.

    pip says "Downloading torch-2.13.0+cpu-cp311-....whl (191.8 MB)", uv "Downloading torch (182.9MiB)".
    """
    found = re.findall(r"^ *((?:Downloading|Installing|Building|Preparing|Processing) .*)$", _text(log, begin), re.M)
    last = re.sub(r"-(?:cp|py)\d\S*\.whl|(?<= )/\S*/|: .*| \(from .*", "", found[-1]) if found else ""
    width = shutil.get_terminal_size().columns - 30  # a longer line would not be replaced by the next
    return textwrap.shorten(last, width, placeholder=" ...")


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


def _torch_version(root: Path) -> str:
    pins = root / "constraints.txt"
    found = re.search(r"^torch==(\S+)$", pins.read_text(), flags=re.MULTILINE)
    if not found:
        raise SetupFailed(f"{pins} has no line torch==VERSION; restore it with: git checkout constraints.txt")
    return found[1]


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
    return getattr(sys, "_base_executable", None) or sys.executable


def _version() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _as_interrupt(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt


def _say(text: str, over: bool = False) -> None:
    """A line for the user, or, on a terminal, one in the place of the line before."""
    print(f"{OVER if over else ''}w2w: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
