"""Unit 03: from CUDA to ROCm."""

from __future__ import annotations

from gpu_utils.grading.exercise import Exercise

EXERCISES: tuple[Exercise, ...] = ()
