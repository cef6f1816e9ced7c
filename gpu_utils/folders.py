"""Where the course keeps what it makes: results that matter (data) and files that can be made again (cache).

`W2W_DATA` and `W2W_CACHE` override the folders of the operating system.
"""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

_APP = "warp-to-wavefront"


def data_folder() -> Path:
    """Progress, run records and gradebooks live here; nothing here is ever overwritten in silence.

    The folder is not created: whoever writes does that and reports a failure.
    """
    return _folder("W2W_DATA", platformdirs.user_data_path(_APP, appauthor=False))


def cache_folder() -> Path:
    """Tokenized corpora and other files that can be made again; safe to delete."""
    return _folder("W2W_CACHE", platformdirs.user_cache_path(_APP, appauthor=False))


def _folder(variable: str, default: Path) -> Path:
    override = os.environ.get(variable)
    if not override:
        return default
    try:
        return Path(override).expanduser().absolute()
    except (OSError, RuntimeError):  # the working folder was deleted, or ~name is nobody: whoever writes there says so
        return Path(override)
