"""The challenge of unit 06: causal attention in the fewest cycles."""

from __future__ import annotations

from gpu_utils.grading.challenge import Challenge
from gpu_utils.grading.exercise import Case

CHALLENGE = Challenge(
    "06.forward",
    Case("two heads of 384", B=1, H=2, N=384, D=64, causal=True, scale=0.125, dtype="bfloat16"),
)
