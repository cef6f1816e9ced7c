"""The sanitizers of one launch: which there are, and what they keep of each batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from gpu_utils.virtual.machine import Program, State
from gpu_utils.virtual.sanitize.instrument import Hooks, instrumented
from gpu_utils.virtual.sanitize.order import Order
from gpu_utils.virtual.sanitize.queues import QUEUES
from gpu_utils.virtual.sanitize.sync import SyncHooks

_made: WeakKeyDictionary[Program, dict[frozenset[str], Program]] = WeakKeyDictionary()

MAKERS: dict[str, Callable[[Program], Hooks]] = {"synccheck": SyncHooks}
"""Tool -> what makes its hooks for a program."""


def watched(program: Program, tools: frozenset[str]) -> Program:
    """The program with the calls of these tools, made once."""
    kept = _made.setdefault(program, {})
    if tools not in kept:
        kept[tools] = instrumented(program, [MAKERS[name](program) for name in sorted(tools) if name in MAKERS])
    return kept[tools]


class Watch:
    """What the tools keep of a batch: `state.watch`. order: the clocks. kept: by tool, what it likes."""

    def __init__(self, state: State, isa: str, tools: frozenset[str]) -> None:
        self.tools = tools
        self.order = Order(state, QUEUES[isa])
        self.kept: dict[str, Any] = {}

    def released(self, state: State, units: np.ndarray | None) -> None:
        """The machine lets these units (None: all) go on after a barrier of their block."""
        if units is None:
            waves = np.arange(state.waves)
        else:
            waves = np.flatnonzero(units if units.ndim == 1 else units.any(axis=1))
        self.order.barrier(waves)
