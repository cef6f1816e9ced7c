"""The challenge of unit 08: an FP8 product in the fewest cycles."""

from __future__ import annotations

from gpu_utils.grading.challenge import Challenge
from gpu_utils.grading.exercise import Case

CHALLENGE = Challenge("08.gemm", Case("128 x 256 x 512", M=128, N=256, K=512), targets=("sm_89", "gfx942"))
