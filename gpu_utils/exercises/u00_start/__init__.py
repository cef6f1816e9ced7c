"""Unit 00: which machine this is, and two first kernels. Its exercises in the order of the lab."""

from __future__ import annotations

from gpu_utils.exercises.u00_start import platform, saxpy, vector_add

EXERCISES = tuple(module.EXERCISE for module in (platform, vector_add, saxpy))
