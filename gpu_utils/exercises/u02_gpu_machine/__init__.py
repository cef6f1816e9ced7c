"""Unit 02: the GPU as a machine: access, divergence, occupancy, roofline, memory."""

from __future__ import annotations

from gpu_utils.grading.exercise import Exercise

EXERCISES: tuple[Exercise, ...] = ()
