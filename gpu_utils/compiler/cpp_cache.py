"""Compiled C++ modules on disk, by the content of everything that went into them."""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import suppress
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path

from gpu_utils.compiler.cpp_module import CppModule, from_json


def kept(place: Path) -> CppModule | None:
    """The module in a file of the cache; None where there is none that can be read."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        return _read(place, place.stat().st_mtime_ns)
    return None


@lru_cache(maxsize=64)
def _read(place: Path, written: int) -> CppModule:
    """It is read again when it was written again."""
    return from_json(json.loads(place.read_text()))


def keep(place: Path, module: CppModule) -> None:
    """Write the file in one step, so that a reader never sees half of it. Without a cache folder it compiles again."""
    data = {"target": module.target, "asm": module.asm, "kernels": {k: asdict(v) for k, v in module.kernels.items()}}
    with suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=place.parent, suffix=".part", delete=False) as file:
            json.dump(data, file)
        os.replace(file.name, place)
