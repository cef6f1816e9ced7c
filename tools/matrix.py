"""Run the whole suite on several Pythons and builds of PyTorch, each in a clean clone of this checkout's last commit.

`python tools/matrix.py` runs every combination that this machine can have; `python tools/matrix.py 3.12-cuda` takes
some. A combination is a Python, a build of PyTorch and, at its end, `-nohip` for an environment without clang and
nbgrader: 3.11-cpu-nohip. Pythons are taken from PATH and from pyenv. Clones, their caches and a log of each run stay in
build/matrix; a second run goes on with the environment of the first.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PLACE = ROOT / "build" / "matrix"
PYTHONS = ("3.11", "3.12", "3.13")
BUILDS = ("cpu", "cuda")
LOOK = "import torch; print(torch.__version__, 'cuda' if torch.version.cuda else 'cpu')"


class Combination(NamedTuple):
    """One environment: a Python, a build of PyTorch, and whether the extras are part of it."""

    python: str
    build: str
    hip: bool

    @classmethod
    def named(cls, name: str) -> Combination:
        """Reads 3.12-cuda or 3.12-cuda-nohip; raises argparse's error for anything else."""
        python, _, rest = name.partition("-")
        build, _, without = rest.partition("-")
        if python not in PYTHONS or build not in BUILDS or without not in ("", "nohip"):
            raise argparse.ArgumentTypeError(
                f"{name!r} is no combination; write a Python ({', '.join(PYTHONS)}), a build ({', '.join(BUILDS)}) "
                "and perhaps nohip, as in 3.12-cuda or 3.11-cpu-nohip"
            )
        return cls(python, build, not without)

    @property
    def name(self) -> str:
        return f"{self.python}-{self.build}{'' if self.hip else '-nohip'}"


class Row(NamedTuple):
    """What came of one combination: `passed`, `failed` or `not run`, the seconds, and one line that says more."""

    name: str
    word: str
    seconds: float
    detail: str


ALL = (
    *(Combination(python, build, True) for python in PYTHONS for build in BUILDS),
    Combination("3.11", "cpu", False),
    Combination("3.12", "cuda", False),
)


def python_of(version: str) -> Path | None:
    """The interpreter of this version on PATH or among pyenv's, outside of any environment; None when there is none."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [shutil.which(f"python{version}"), *sorted(map(str, pyenv.glob(f"{version}*/bin/python{version}")))]
    look = "import sys; print('%d.%d' % sys.version_info[:2], sys.prefix == sys.base_prefix, sys.executable)"
    for candidate in filter(None, found):
        said = subprocess.run([candidate, "-I", "-c", look], capture_output=True, text=True, check=False).stdout
        if said.startswith(f"{version} True "):
            return Path(said.split(maxsplit=2)[2].strip())
    return None


def run(combination: Combination) -> Row:
    """Clone, set up, look which build of PyTorch came, and run the suite there."""
    started = time.monotonic()

    def row(word: str, detail: str) -> Row:
        return Row(combination.name, word, time.monotonic() - started, detail)

    python = python_of(combination.python)
    if python is None:
        return row("not run", f"there is no Python {combination.python} on this machine")
    clone = PLACE / combination.name
    _clone(clone)
    with (PLACE / f"{combination.name}.log").open("w") as log:
        environment = _environment(combination, python)
        made = subprocess.run(["./w2w", "list"], cwd=clone, env=environment, stdout=log, stderr=log, check=False)
        if made.returncode:
            return row("not run", f"the set-up failed; read {log.name}")
        look = [".venv/bin/python", "-c", LOOK]
        version, build = subprocess.run(look, cwd=clone, capture_output=True, text=True, check=True).stdout.split()
        if build != combination.build:
            return row("not run", f"torch {version} came, a build for {build}: this machine's index has no other")
        log.flush()
        print(f"{combination.name}: torch {version}", flush=True)
        suite = subprocess.run(["./w2w", "test"], cwd=clone, env=environment, stdout=log, stderr=log, check=False)
    counts = Path(log.name).read_text(errors="replace").strip().splitlines()[-1]
    return row("failed" if suite.returncode else "passed", counts)


def _clone(clone: Path) -> None:
    """A clean clone of the last commit; the environment and the caches of an earlier run stay."""
    commit = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=ROOT, text=True).strip()
    if not clone.exists():
        subprocess.run(["git", "clone", "--quiet", "--no-checkout", str(ROOT), str(clone)], check=True)
    for command in (["fetch", "--quiet", "origin", commit], ["checkout", "--quiet", "--force", "--detach", commit]):
        subprocess.run(["git", *command], cwd=clone, check=True)
    subprocess.run(["git", "clean", "--quiet", "-fdx", "-e", ".venv*", "-e", "build"], cwd=clone, check=True)


def _environment(combination: Combination, python: Path) -> dict[str, str]:
    """The variables of one combination: its Python first on PATH, nothing of the environment this script runs in."""
    mine = {name: value for name, value in os.environ.items() if not name.startswith(("W2W_", "VIRTUAL_ENV", "PYTHON"))}
    away = str(Path(sys.prefix) / "bin")
    path = [str(python.parent), *(part for part in mine["PATH"].split(os.pathsep) if part != away)]
    return mine | {
        "PATH": os.pathsep.join(path),
        "W2W_TORCH": combination.build,
        "W2W_EXTRAS": "hip,nvrtc,tilelang,classroom" if combination.hip else "",
        "W2W_CACHE": str(PLACE / f"cache-{combination.name}"),
    }


def main() -> int:
    """Run the chosen combinations one after another and print a table; 0 when every one that could run passed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("combinations", nargs="*", type=Combination.named, help="for example 3.12-cuda; default: all")
    parser.add_argument("--remove", action="store_true", help="remove each clone when it has passed (5 GB each)")
    arguments = parser.parse_args()
    PLACE.mkdir(parents=True, exist_ok=True)
    rows = []
    for combination in arguments.combinations or ALL:
        rows.append(row := run(combination))
        print(f"{row.name:18}{row.word:9}{row.seconds:7.0f} s  {row.detail}", flush=True)
        if arguments.remove and row.word == "passed":
            shutil.rmtree(PLACE / combination.name)
    words = {row.word for row in rows}
    return 0 if "passed" in words and "failed" not in words else 1


if __name__ == "__main__":
    sys.exit(main())
