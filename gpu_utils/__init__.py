"""The library and autograder of Warp to Wavefront.

The names in `__all__` are the whole public surface. Each is loaded when it is first used, so that
`import gpu_utils` costs milliseconds and never imports torch.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_HOME = {
    "check": "gpu_utils.ui.notebook",
    "hint": "gpu_utils.ui.guide",
    "solution": "gpu_utils.ui.guide",
    "progress": "gpu_utils.ui.guide",
    "probe": "gpu_utils.chips",
    "CHIPS": "gpu_utils.chips",
    "bench": "gpu_utils.timing",
    "compile_for": "gpu_utils.compiler",
    "explore": "gpu_utils.ui.explore",
    "listing": "gpu_utils.ui.listing",
    "virtual_gpu": "gpu_utils.virtual",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'gpu_utils' has no attribute {name!r}; public names are {', '.join(__all__)}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
