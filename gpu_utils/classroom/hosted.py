"""The first cell of a released notebook: on a hosted notebook it fetches and installs the course.

Colab, Kaggle and their like start with PyTorch and without the course. The cell clones the course's repository, since a
solution is read from `content/`, and installs the clone; pip takes only what the machine lacks. Where the course can be
imported the cell does nothing, so it may be run any number of times.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

_CELL = """\
# On a hosted notebook this cell fetches and installs the course; where the course is there it does nothing.
import importlib.util
import subprocess
import sys
from pathlib import Path

COURSE = "{address}"  # the address of the course's git repository
if importlib.util.find_spec("gpu_utils") is None:
    if not COURSE:
        raise ValueError("the course is not installed here; ask for its address and write it after COURSE =, above")
    place = Path("warp-to-wavefront").resolve()
    if not place.exists():
        subprocess.run(["git", "clone", "--quiet", COURSE, str(place)], check=True)
{checkout}    install = [sys.executable, "-m", "pip", "install", "--quiet", "--editable"]
    subprocess.run([*install, f"{{place}}{extra}"], check=True)
    sys.path.insert(0, str(place))
"""
_CHECKOUT = '    subprocess.run(["git", "-C", str(place), "checkout", "--quiet", "{commit}"], check=True)\n'
_URL = re.compile(r"(?P<scheme>https?|ssh|git)://(?:[^@/]*@)?(?P<host>[\w.-]+)(?P<port>:\d+)?/(?P<path>\S+)")
_SCP = re.compile(r"(?:[^@/\s]+@)?(?P<host>[\w.-]+):(?P<path>[^/\s]\S*)")


def first_cell(address: str, commit: str = "", clang: bool = False) -> str:
    """The source of the cell.

    address  of the repository; "" leaves a place for it, and the cell says so where it needs it
    commit   that is checked out; "" for the newest
    clang    whether to install the compiler of C++ answers too
    """
    checkout = _CHECKOUT.format(commit=commit) if commit else ""
    return _CELL.format(address=address, checkout=checkout, extra="[hip]" if clang else "").rstrip("\n")


def origin(root: Path) -> tuple[str, str]:
    """The public address of a checkout's repository and its commit; each "" when it cannot be told.

    The commit is told when a branch of the remote is known to hold it, for nobody else could fetch it.
    """
    address = public(_git(root, "config", "--get", "remote.origin.url"))
    pushed = address and _git(root, "branch", "--remotes", "--contains", "HEAD")
    return address, _git(root, "rev-parse", "HEAD") if pushed else ""


def public(url: str) -> str:
    """A remote's address as anybody can clone it: without user, password or key; "" for a folder of this machine.

    >>> public("git@example.org:course/warp.git"), public("https://me:secret@example.org/warp.git"), public("/srv/warp")
    ('https://example.org/course/warp.git', 'https://example.org/warp.git', '')
    """
    if found := _URL.fullmatch(url):
        web = found["scheme"].startswith("http")  # a port of ssh is none of the web's
        server = found["host"] + (found["port"] or "" if web else "")
        return f"{found['scheme'] if web else 'https'}://{server}/{found['path']}"
    found = _SCP.fullmatch(url)
    return f"https://{found['host']}/{found['path']}" if found else ""


def _git(root: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    except OSError:  # no git: the notebook then asks for the address
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
