"""The challenge of unit 04: cross-entropy in the fewest cycles."""

from __future__ import annotations

from gpu_utils.grading.challenge import Challenge
from gpu_utils.grading.exercise import Case

CHALLENGE = Challenge(
    "04.cross_entropy", Case("sixteen rows of a large vocabulary", rows=16, cols=8192, dtype="bfloat16")
)
