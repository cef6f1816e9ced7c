"""The library and autograder of Warp to Wavefront.

The names in `__all__` are the whole public surface, with those of `gpu_utils.lesson`, from which lessons and labs take
figures, models and rules. Each is loaded when it is first used, so that `import gpu_utils` costs milliseconds and never
imports torch.
"""

from __future__ import annotations

from gpu_utils.lazy import lazily

__version__ = "0.1.0"

_HOME = {
    "CHIPS": "gpu_utils.chips",
    "bench": "gpu_utils.timing",
    "challenge": "gpu_utils.ui.challenge",
    "check": "gpu_utils.ui.notebook",
    "compile_for": "gpu_utils.compiler",
    "explore": "gpu_utils.ui.explore",
    "hint": "gpu_utils.ui.guide",
    "listing": "gpu_utils.ui.listing",
    "predict": "gpu_utils.ui.predict",
    "probe": "gpu_utils.chips",
    "progress": "gpu_utils.ui.guide",
    "solution": "gpu_utils.ui.guide",
    "virtual_gpu": "gpu_utils.virtual",
}

__all__ = list(_HOME)
__getattr__, __dir__ = lazily(__name__, _HOME)
