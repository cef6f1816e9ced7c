"""Which lanes execute an op of PTX under its guard."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpu_utils.virtual.machine import Op


def guard_of(state: Any, op: Op) -> np.ndarray | None:
    """The lanes for which the guard of an op holds, bool (waves, lanes), also those that do not run; None: no guard."""
    place = getattr(op, "guard", None)
    if place is None:
        return None
    row: np.ndarray = state.files[place[0]][place[1]]
    return ~row if op.text.lstrip().startswith("@!") else row


def lanes_of(state: Any, op: Op) -> np.ndarray | None:
    """The lanes that execute an op under its guard, bool (waves, lanes); None: all."""
    guard = guard_of(state, op)
    if guard is None:
        return state.mask
    return guard if state.mask is None else guard & state.mask


def running(state: Any, op: Op) -> np.ndarray:
    """The numbers of the waves of which a lane executes an op."""
    lanes = lanes_of(state, op)
    return np.arange(state.waves) if lanes is None else np.flatnonzero(lanes.any(axis=1))
