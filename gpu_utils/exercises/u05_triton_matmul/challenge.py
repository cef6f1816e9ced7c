"""The challenge of unit 05: a matrix product in the fewest cycles."""

from __future__ import annotations

from gpu_utils.grading.challenge import Challenge
from gpu_utils.grading.exercise import Case

CHALLENGE = Challenge("05.tiled", Case("256 x 256 x 512", M=256, N=256, K=512, dtype="bfloat16"))
