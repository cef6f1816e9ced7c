"""How to call the program from where one is: `./w2w`, which needs no activated environment."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "w2w"


def w2w(arguments: str = "") -> str:
    """The command line to type here, for sentences that say what to do: "./w2w start 00", "../w2w start 00".

    Where the environment of this Python is activated (a venv, conda) it is "w2w start 00".
    """
    found = shutil.which("w2w")
    activated = found is not None and Path(found).parent == Path(sys.prefix, "bin")
    return f"{'w2w' if activated else script()} {arguments}".rstrip()


def script() -> str:
    """The path of the script w2w from the present folder, for what only the script does: making the environment.

    In a notebook it is counted from the folder of the course, since nobody types it in the notebook's own.
    """
    if "ipykernel" in sys.modules or not SCRIPT.exists():
        return "./w2w"
    try:
        here = Path.cwd()
    except FileNotFoundError:  # the working folder was deleted
        here = Path("/")
    inside = here.is_relative_to(SCRIPT.parent)
    path = os.path.relpath(SCRIPT, here) if inside else str(SCRIPT)
    return shlex.quote(path if os.sep in path else f"./{path}")
