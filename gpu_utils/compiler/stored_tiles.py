"""Lowered sources of the course's own tile programs, for machines without TileLang: `lower` falls back to them.

`tools/store_tiles.py` makes them with TileLang, and a test lowers and compares.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import lzma
import textwrap
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

PLACE = Path(__file__).parent / "stored_tiles.json.xz"


def key(program: Callable[..., Any], target: str, sizes: Mapping[str, Any]) -> str | None:
    """Equal for programs with the same text, a target, and equal sizes; None where sizes are no plain data.

    Lines without code do not count.
    """
    try:
        text = textwrap.dedent(inspect.getsource(program))
        plain = json.dumps(sizes, sort_keys=True)
    except (OSError, TypeError, ValueError):
        return None
    lines = [line.rstrip() for line in text.splitlines() if line.strip() and not line.strip().startswith("#")]
    return hashlib.sha256("\n".join([target, plain, *lines]).encode()).hexdigest()[:20]


def find(program: Callable[..., Any], target: str, sizes: Mapping[str, Any]) -> dict[str, Any] | None:
    """What `Lowered.from_data` takes, or {"refused": what TileLang said}; None where nothing is stored."""
    name = key(program, target, sizes)
    return _entries().get(name) if name else None


def entries() -> dict[str, dict[str, Any]]:
    """Everything that is stored, by key."""
    return dict(_entries())


def write(found: Iterable[tuple[str, dict[str, Any]]]) -> None:
    """Replace everything that is stored."""
    text = json.dumps(dict(sorted(found)), indent=0)
    PLACE.write_bytes(lzma.compress(text.encode(), preset=9))
    _entries.cache_clear()


@functools.cache
def _entries() -> dict[str, dict[str, Any]]:
    return json.loads(lzma.decompress(PLACE.read_bytes())) if PLACE.exists() else {}
