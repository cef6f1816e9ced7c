"""The walls: what bubblewrap is told. Nothing of the machine is inside but programs, and nothing can be written."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import gpu_utils
from gpu_utils.errors import WallsMissing

COURSE = "/course"
SCRATCH = "/scratch"
"""The only folder in which an answer can write, beside /dev/shm. Not /tmp: the course itself may be installed there."""

LIBRARY = Path(gpu_utils.__file__).parent
TMP_BYTES = 512 << 20
LEFT_OUT = ("exercises", "classroom", "ui", "cli", "kernelset")
"""Parts of the library that no answer is given: what is right, what shows, and what runs the course."""

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/alternatives")
_DEVICES = ("/dev/kfd", "/dev/dri", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0")
_HOW = (
    "install it (on Debian and Ubuntu: apt install bubblewrap), or give --unsafe-no-sandbox to run the answers of "
    "others with your own rights, which every report will say"
)


def unavailable() -> str:
    """Why bubblewrap cannot be used here, as a sentence; "" when it can."""
    found = shutil.which("bwrap")
    if found is None:
        return f"answers of others are run inside of bubblewrap, which is not installed; {_HOW}"
    done = subprocess.run([*_walls(found), "true"], capture_output=True, text=True)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["it gives no reason"])[-1]
        return f"bubblewrap cannot make a sandbox on this machine ({said}); {_HOW}"
    return ""


def require() -> None:
    """Raises WallsMissing where answers of others cannot be run safely."""
    if problem := unavailable():
        raise WallsMissing(problem)


def _found() -> str:
    """The path of bubblewrap. Raises WallsMissing."""
    found = shutil.which("bwrap")
    if found is None:
        raise WallsMissing(unavailable())
    return found


def inside(module: str, *arguments: str, devices: bool = False) -> list[str]:
    """The command that runs a module of the course inside of the walls."""
    return [*_walls(_found(), devices), sys.executable, "-P", "-s", "-u", "-m", module, *arguments]


def outside(module: str, *arguments: str) -> list[str]:
    """The same without walls, for --unsafe-no-sandbox."""
    return [sys.executable, "-P", "-s", "-u", "-m", module, *arguments, "--no-walls"]


def around(command: Sequence[str], folder: Path) -> list[str]:
    """The command for a tool on somebody's text: it can write to `folder` alone."""
    walls = [_found(), "--unshare-all", "--die-with-parent", "--new-session"]
    headers = str(LIBRARY / "compiler" / "include")
    walls += ["--size", str(TMP_BYTES), "--tmpfs", "/tmp", *_programs(headers)]  # the checkout may lie below it
    walls += ["--proc", "/proc", "--dev", "/dev"]
    walls += ["--bind", str(folder), str(folder), "--chdir", str(folder), "--clearenv"]
    return [*walls, "--setenv", "HOME", "/tmp", "--setenv", "PATH", "/usr/bin:/bin", *command]


def _programs(*more: str) -> list[str]:
    """What binds the system's programs, and Python's, to read."""
    bound = [path for path in _SYSTEM if os.path.exists(path)]
    pythons = dict.fromkeys([sys.prefix, sys.base_prefix, os.path.dirname(os.path.realpath(sys.executable))])
    bound += [*(path for path in pythons if not path.startswith("/usr/")), *more]
    words: list[str] = []
    for path in bound:
        linked = os.path.islink(path) and not path.startswith(sys.prefix)
        words += ["--symlink", os.readlink(path), path] if linked else ["--ro-bind", path, path]
    return [*words, *_without_the_course(bound)]


def _walls(program: str, devices: bool = False) -> list[str]:
    words = [program, "--unshare-all", "--unshare-user", "--uid", "1000", "--gid", "1000", "--die-with-parent"]
    words += ["--new-session", "--as-pid-1", "--cap-add", "ALL", "--hostname", "w2w", "--clearenv"]
    words += ["--tmpfs", "/tmp", *_programs(), "--remount-ro", "/tmp"]  # the checkout may lie below it
    words += ["--proc", "/proc", "--dev", "/dev"]
    if devices:
        for path in _DEVICES:
            words += ["--dev-bind-try", path, path]
    words += ["--size", str(TMP_BYTES), "--tmpfs", "/dev/shm", "--size", str(TMP_BYTES), "--tmpfs", SCRATCH]
    words += [*_course_for_answers(), "--remount-ro", "/dev", "--chdir", SCRATCH]
    for name, value in environment(COURSE, SCRATCH).items():
        words += ["--setenv", name, value]
    return words


def _course_for_answers() -> list[str]:
    """What binds the library as answers see it, below COURSE: the solutions are not in it."""
    words = ["--tmpfs", COURSE]
    for path in sorted(LIBRARY.iterdir()):
        if path.name not in LEFT_OUT:
            words += ["--ro-bind", str(path), f"{COURSE}/{LIBRARY.name}/{path.name}"]
    return [*words, "--remount-ro", COURSE]


def _without_the_course(bound: Sequence[str]) -> list[str]:
    """What hides the course where it is installed below a folder that is bound, but not a Python that lies in it."""
    checkout = LIBRARY.parent
    top = checkout if (checkout / "pyproject.toml").is_file() else LIBRARY
    if not any(top.is_relative_to(path) for path in bound):
        return []
    again = [word for path in bound if Path(path).is_relative_to(top) for word in ("--ro-bind", path, path)]
    return ["--tmpfs", str(top), *again, "--remount-ro", str(top)]


def environment(course: str, scratch: str) -> dict[str, str]:
    """All variables that the inside has; it writes below `scratch` alone."""
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": scratch,
        "TMPDIR": scratch,
        "LANG": "C.UTF-8",
        "PYTHONPATH": course,
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "TRITON_CACHE_DIR": f"{scratch}/triton",
        "W2W_CACHE": f"{scratch}/cache",
        "W2W_DATA": f"{scratch}/data",
    }
