"""The command line `w2w`: each command is a function in a module of its own, imported when it is run."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command on the command line. The wheel alone has none: its commands are the course's."""
    try:
        from gpu_utils.cli import app
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("gpu_utils"):
            raise
        sys.exit(
            f"w2w: this is the command of the course, which needs {missing.name}; "
            "run `pip install warp-to-wavefront[course]` (the virtual GPUs work without: gpu_utils.virtual_gpu)"
        )
    app.main()
