"""What several exercises of this unit need: rounding up, and the tolerance of a few float64 operations."""

from __future__ import annotations

import torch

from gpu_utils.analytic.tolerance import Tolerance, tolerance
from gpu_utils.grading.exercise import Case, Inputs


def up(value: int, granule: int) -> int:
    """The next multiple of `granule`.

    >>> up(33, 8), up(40, 8)
    (40, 40)
    """
    return -(-value // granule) * granule


def float_tolerance(case: Case, inputs: Inputs) -> Tolerance:
    """For answers that are a few float64 operations away from whole numbers."""
    return tolerance(torch.float64, magnitude=0.0, roundings=4)
