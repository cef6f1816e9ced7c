"""The line of a traceback that is the learner's own."""

from __future__ import annotations

import linecache
from collections.abc import Iterable
from pathlib import Path

LIBRARY_FOLDERS = (
    str(Path(__file__).resolve().parent),
    "/gpu_utils/exercises/",  # code that came by value keeps the name of its file elsewhere
    "site-packages",
    "dist-packages",
    "/lib/python3",
    "<frozen",
)


def own_line(frames: Iterable[tuple[str, int, str, str]]) -> str:
    """The last of these places that is in no library: "line 3 of f: y = x[n]"; "" when none is.

    frames  (file, number of the line, name of the function, the line's text or "") from the outermost to the innermost

    >>> own_line([("cell.py", 3, "f", "y = x[n]"), ("/usr/lib/python3.11/queue.py", 9, "get", "")])
    'line 3 of f: y = x[n]'
    """
    for file, number, function, text in reversed(list(frames)):
        if not any(folder in file for folder in LIBRARY_FOLDERS):
            source = text or linecache.getline(file, number).strip()
            within = "" if function == "<module>" else f" of {function}"
            return f"line {number}{within}: {source}"[:200]
    return ""
