"""The challenge of unit 10: the product of many experts in the fewest cycles."""

from __future__ import annotations

from gpu_utils.grading.challenge import Challenge
from gpu_utils.grading.exercise import Case

CHALLENGE = Challenge(
    "10.grouped_gemm",
    Case("eight experts, unevenly loaded", loads=(180, 20, 64, 0, 7, 129, 1, 50), N=128, K=256, programs=16),
)
