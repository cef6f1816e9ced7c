"""Exercises in FP8 have the E4M3 of the chip that runs them: NVIDIA and gfx950 another one than gfx942."""

from __future__ import annotations

from typing import Any

import torch

from gpu_utils.chips import TARGETS, probe
from gpu_utils.grading.exercise import Case, Exercise

E4M3 = {"ocp": "e4m3fn", "fnuz": "e4m3fnuz"}
"""Flavour of a target's FP8 -> the name of its E4M3."""


def _target(name: str) -> str:
    return probe().target if name == "gpu" else name.partition(":")[2]


def without_fp8(name: str) -> str:
    """Why a backend cannot run an exercise whose numbers are in FP8; "" where it can.

    >>> without_fp8("virtual:sm_89"), without_fp8("virtual:gfx90a").partition(";")[0]
    ('', 'gfx90a has no FP8')
    """
    if name == "interpreter":
        return "Triton's interpreter computes FP8 wrongly"
    target = _target(name)
    if target in TARGETS and TARGETS[target].fp8 in E4M3:
        return ""
    have = ", ".join(target for target, row in TARGETS.items() if row.fp8 in E4M3 and row.executed)
    return f"{target or name} has no FP8; virtual GPUs that have it are {have}"


def e4m3_of(exercise: Exercise, name: str) -> str:
    """The format of the exercise's numbers on a backend; "" where it has none in FP8.

    A backend without FP8 is not run; what is drawn for it is in e4m3fn.
    """
    if not exercise.fp8:
        return ""
    target = _target(name)
    return E4M3.get(TARGETS[target].fp8, "e4m3fn") if target in TARGETS else "e4m3fn"


def case_on(exercise: Exercise, case: Case, name: str) -> Case:
    """A case as a backend runs it: with its format, where the exercise's numbers are in FP8."""
    return case.having(fp8=e4m3_of(exercise, name)) if exercise.fp8 else case


_FNUZ = {torch.float8_e4m3fn: torch.float8_e4m3fnuz, torch.float8_e5m2: torch.float8_e5m2fnuz}
_OCP = {fnuz: ocp for ocp, fnuz in _FNUZ.items()}
_TYPES = {"ocp": _OCP, "fnuz": _FNUZ}


def as_on(target: str, value: Any) -> Any:
    """An argument as a launch on the target would have it: bytes of the other flavour of FP8, or its dtype, its own.

    >>> as_on("gfx942", torch.zeros(2).to(torch.float8_e4m3fn)).dtype, as_on("sm_89", 3)
    (torch.float8_e4m3fnuz, 3)
    """
    types = _TYPES.get(TARGETS[target].fp8, {}) if target in TARGETS else {}
    if isinstance(value, torch.dtype):
        return types.get(value, value)
    return value.view(types[value.dtype]) if isinstance(value, torch.Tensor) and value.dtype in types else value
