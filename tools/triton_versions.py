"""Run the kernel set of the virtual GPUs under several versions of Triton.

Each version is installed alone into a folder that comes first on PYTHONPATH, so torch and the rest are those of the
running environment. `python tools/triton_versions.py 3.6.0 3.9.0` takes some versions; without arguments all.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VERSIONS = ("3.6.0", "3.7.1", "3.9.0")
TESTS = ("tests/unit/virtual/test_kernel_set.py", "tests/unit/virtual/test_random_expressions.py")


def folder(version: str) -> Path:
    """The folder that holds this version alone; made on the first use."""
    place = ROOT / "build" / "triton" / version
    if not (place / "triton" / "__init__.py").exists():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(place)]
        subprocess.run([*command, f"triton=={version}"], check=True)
    return place


def passes(version: str) -> bool:
    """Run the tests in a process that imports this version; True when all pass."""
    place = folder(version)
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(place), str(ROOT)]),
        "TRITON_CACHE_DIR": str(place.parent / f"cache-{version}"),
        "OMP_NUM_THREADS": "1",
    }
    found = subprocess.run(
        [sys.executable, "-c", "import triton; print(triton.__version__, triton.__file__)"],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    if found[0] != version or not found[1].startswith(str(place)):
        raise SystemExit(f"triton {version} was asked for, and {found} was imported")
    print(f"triton {version}", flush=True)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=line", *TESTS]
    return subprocess.run(command, cwd=ROOT, env=environment).returncode == 0


if __name__ == "__main__":
    failed = [version for version in sys.argv[1:] or VERSIONS if not passes(version)]
    sys.exit(f"failed under triton {', '.join(failed)}" if failed else 0)
