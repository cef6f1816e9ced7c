"""Stores what TileLang makes of the course's own tile programs, for machines without TileLang.

    python tools/store_tiles.py

Runs lesson 14 and the explorer `lowered` with a recorder in TileLang's place, and writes
gpu_utils/compiler/stored_tiles.json.xz. A test (tests/unit/test_stored_tiles.py) compares. Needs the extras.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from gpu_utils.compiler import stored_tiles

ROOT = Path(__file__).parents[1]
RECORD = """
import json
from gpu_utils.compiler import stored_tiles, tilelang
from gpu_utils.errors import CompileFailed

_first = tilelang._lowered

def _recorded(program, target, vendor, sizes):
    found = _first(program, target, vendor, sizes)
    name = stored_tiles.key(program, target, sizes)
    if name:
        failed = isinstance(found, Exception)
        entry = {{"refused": str(found)}} if failed else found.as_data()
        with open({path!r}, "a") as file:
            file.write(json.dumps([name, entry]) + "\\n")
    return found

tilelang._lowered = _recorded
"""
EXPLORERS = """
from gpu_utils import explore
for target in ("sm_80", "sm_90", "sm_100", "gfx942", "gfx950", "ascend950"):
    explore("lowered", targets=(target,))
"""


def main() -> int:
    """Record, then write; 0 where something was recorded."""
    notebook = nbformat.read(ROOT / "notebooks" / "14_tilelang.ipynb", as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lowered.jsonl"
        notebook.cells.insert(0, nbformat.v4.new_code_cell(RECORD.format(path=str(path))))
        notebook.cells.append(nbformat.v4.new_code_cell(EXPLORERS))
        NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(ROOT / "notebooks")}}).execute()
        found = [json.loads(line) for line in path.read_text().splitlines()]
    stored_tiles.write((name, entry) for name, entry in found)
    size = stored_tiles.PLACE.stat().st_size
    print(f"{len(stored_tiles.entries())} lowered sources, {size / 1024:.0f} KiB")
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
