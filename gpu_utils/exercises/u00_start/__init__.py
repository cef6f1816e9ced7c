"""Unit 00: which machine this is, and two first kernels."""

from __future__ import annotations

from gpu_utils.exercises.u00_start import platform, saxpy, vector_add

EXERCISES = (platform.EXERCISE, vector_add.EXERCISE, saxpy.EXERCISE)
