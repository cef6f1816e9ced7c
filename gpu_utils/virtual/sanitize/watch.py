"""The sanitizers of one launch: which there are, and what they keep of each batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from gpu_utils.virtual.machine import Arrive, Op, Program, Signal, State
from gpu_utils.virtual.sanitize import lockstep
from gpu_utils.virtual.sanitize.amd_waits import WaitHooks
from gpu_utils.virtual.sanitize.instrument import Hooks, instrumented
from gpu_utils.virtual.sanitize.lanes import Lanes, has_shuffles
from gpu_utils.virtual.sanitize.lockstep import LaneShadow
from gpu_utils.virtual.sanitize.order import Order
from gpu_utils.virtual.sanitize.ptx_async import PtxAsync
from gpu_utils.virtual.sanitize.ptx_waits import PtxWaits
from gpu_utils.virtual.sanitize.queues import QUEUES, asynchronous
from gpu_utils.virtual.sanitize.shared import Shadow
from gpu_utils.virtual.sanitize.sync import SyncHooks
from gpu_utils.virtual.sanitize.tensor_maps import Maps
from gpu_utils.virtual.sanitize.tensor_shadow import TensorShadow

_made: WeakKeyDictionary[Program, dict[frozenset[str], Program]] = WeakKeyDictionary()


def _waitcheck(program: Program) -> list[Hooks]:
    return [WaitHooks(program) if program.unit == "wave" else PtxWaits(program)]


def _racecheck(program: Program) -> list[Hooks]:
    return [WaitHooks(program, registers=False) if program.unit == "wave" else PtxAsync()]


MAKERS: dict[str, Callable[[Program], Sequence[Hooks]]] = {
    "racecheck": _racecheck,
    "waitcheck": _waitcheck,
    "barriers": lambda program: [SyncHooks(program)],
    "lanes": lambda program: [Lanes(program)] if has_shuffles(program) else [],
    "lockstep": lambda program: [lockstep.hooks(program)],
}
"""Tool, or part of one -> what makes its hooks for a program."""

PARTS = {"synccheck": ("barriers", "lanes")}
"""Tools whose parts can be asked for one by one."""

WITHIN = {"racecheck": "waitcheck"}
"""Part -> the one that makes all its calls too."""


def watched(program: Program, tools: frozenset[str]) -> Program:
    """The program with the calls of these tools, made once."""
    kept = _made.setdefault(program, {})
    if tools not in kept:
        parts = {part for name in tools for part in PARTS.get(name, (name,)) if part in MAKERS}
        needed = sorted(part for part in parts if WITHIN.get(part) not in parts)
        kept[tools] = instrumented(program, [hooks for part in needed for hooks in MAKERS[part](program)])
    return kept[tools]


class Watch:
    """What the tools keep of a batch: `state.watch`. order: the clocks. kept: by tool, what it likes."""

    def __init__(self, state: State, isa: str, tools: frozenset[str]) -> None:
        self.tools, self.waves = tools, state.waves
        self.order = Order(state, QUEUES[isa])
        self.kept: dict[str, Any] = {}
        self.maps = Maps(self.order)
        meets = "racecheck" in tools and (state.waves_per_block > 1 or asynchronous(isa, state.program.ops))
        self.shared = Shadow(state, self.order, isa) if meets else None
        watchers: list[Any] = [] if self.shared is None else [self.shared]
        if tools & {"lockstep", "turns"}:
            state.shared.turn = (np.arange(state.lanes) * 19 + 7) % state.lanes  # 19 is odd: every lane has one
        if "lockstep" in tools:
            self.kept["lockstep"] = lanes = LaneShadow(state)
            watchers.append(lanes)
        state.shared.watchers = tuple(watchers)

    def released(self, units: np.ndarray | None, number: int = 0) -> None:
        """The machine lets these units (None: all) go on after barrier `number` of their block."""
        waves = np.arange(self.waves) if units is None else _waves(units)
        self.order.barrier(waves, number)
        self._told()

    def arrived(self, request: Arrive | Signal, units: np.ndarray) -> None:
        """These units are counted at a barrier and go on: what they did before is released, what comes is not."""
        self.order.arrive(_waves(units), _key(request))

    def completed(self, number: int, blocks: np.ndarray) -> None:
        """All units of these blocks, bool (blocks,), have signalled at a split barrier."""
        self.order.publish(blocks, ("split", number))

    def awaited(self, number: int, units: np.ndarray) -> None:
        """These units have waited for a split barrier that is complete."""
        waves = _waves(units)
        self.order.learn(waves, ("split", number))
        self._told()

    def tensor_memory(
        self, state: State, op: Op, waves: np.ndarray, lanes: np.ndarray, column: int, count: int, writes: bool
    ) -> None:
        """An access of tensor memory (sm_100). Raises LateData."""
        if "waitcheck" in self.tools:
            if "tensor memory" not in self.kept:
                self.kept["tensor memory"] = TensorShadow(state, self.order)
            self.kept["tensor memory"].access(state, op, waves, lanes, column, count, writes)

    def map_made(self, state: State, op: Op, address: np.ndarray, mask: np.ndarray | None) -> None:
        """Lanes have written the tensor map at an address of global memory (tensormap.cp_fenceproxy)."""
        self.maps.made(state, op, address, mask)

    def map_acquired(self, address: np.ndarray, mask: np.ndarray | None) -> None:
        """Lanes have acquired the tensor map at an address (fence.proxy.tensormap)."""
        self.maps.acquired(address, mask)

    def map_used(self, state: State, op: Op, address: int, wave: int, lane: int) -> None:
        """A lane uses the tensor map at an address. Raises LateData."""
        if "waitcheck" in self.tools:
            self.maps.used(state, op, address, wave, lane)

    def _told(self) -> None:
        """Waves have learned what others did: the shadow of shared memory may forget what all know."""
        if self.shared is not None:
            self.shared.forget()


def _waves(units: np.ndarray) -> np.ndarray:
    """The numbers of the waves that have one of these units."""
    return np.flatnonzero(units if units.ndim == 1 else units.any(axis=1))


def _key(request: Arrive | Signal) -> object:
    return ("split", request.number) if isinstance(request, Signal) else request.number
