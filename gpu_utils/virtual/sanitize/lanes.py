"""Values taken from lanes that are off or absent, where they are used: a part of synccheck.

A shuffle (`shfl.sync` of PTX; `ds_bpermute_b32` and `ds_swizzle_b32`, by which HIP's shuffles are made) from a lane
that does not execute it, or that the member mask does not name, gives a value that neither PTX nor HIP defines.
Compiled code often throws such values away, so the shuffle itself is no fault. From there on a second world is kept, of
those registers only that differ from the first because the shuffle gave something else. Where the two worlds part, the
value is used: an address, a store, an atomic, a branch or EXEC. That is AbsentLane; a value that is selected away never
parts them. AMD's manual lets these two give 0 for a lane that is off; HIP promises nothing, and a wave of 32 lanes has
others. What the machine code defines is left alone: DPP (the old value or 0), v_readlane and v_permlane, and so are
buffer instructions, which drop lanes by their address.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpu_utils.errors import AbsentLane
from gpu_utils.virtual.amdgcn.state import CONSTANTS, SCC, register_name
from gpu_utils.virtual.machine import Op, Program, State
from gpu_utils.virtual.sanitize.guards import guard_of, lanes_of
from gpu_utils.virtual.sanitize.instrument import Call, NoHooks
from gpu_utils.virtual.sanitize.report import Side, kernel_and_line, reported, side_of

SHUFFLES = ("shfl.", "ds_bpermute_b32", "ds_swizzle_b32")
# What another world finds in a lane that is off, in even and in odd lanes: large as a float and as an integer.
_OTHER = np.array([0x7149F2CA, 0xF149F2CA], np.uint32)
_ROWS = {register_name(row): row for row in range(CONSTANTS) if row != SCC}
_CACHES = ("masks", "spread", "fragments", "wide_masks")  # of a state, by the contents of registers
Key = Any  # a PTX place, or the name of a register of AMD


def has_shuffles(program: Program) -> bool:
    return any(op.mnemonic.startswith(SHUFFLES) for op in program.ops)


class _Silent:
    """Takes the place of the counters while an op runs in the other world."""

    def shuffled(self, *_: Any) -> None: ...


@dataclass
class Worlds:
    """What is kept of a batch.

    other: rows that differ in the other world. after: rows that the op at hand leaves there.
    origin: the shuffle, and where it took from an absent lane.
    """

    other: dict[Key, np.ndarray] = field(default_factory=dict)
    after: dict[Key, np.ndarray] | None = None
    origin: Side | None = None


def _worlds(state: State) -> Worlds:
    found = state.watch.kept.get("lanes")
    if found is None:
        found = state.watch.kept["lanes"] = Worlds()
    return found


class Lanes(NoHooks):
    """The calls for one program's ops."""

    def __init__(self, program: Program) -> None:
        self.ptx = program.unit == "lane"

    def keys(self, op: Op) -> tuple[tuple[Key, ...], tuple[Key, ...]]:
        """The registers that it reads and writes."""
        if self.ptx:
            return tuple(op.sources), tuple(op.targets)  # type: ignore[attr-defined]
        return tuple(op.reads), tuple(op.writes)

    def row(self, state: Any, key: Key) -> np.ndarray:
        if self.ptx:
            return state.files[key[0]][key[1]]
        return state.scc if key == "scc" else state.U[_ROWS[key]]

    def before(self, op: Op) -> Call | None:
        reads, writes = self.keys(op)
        if op.mnemonic.startswith(SHUFFLES):
            return lambda state: self._shuffle(state, op, reads, writes)
        if op.ends in ("branch", "jump", "end") or (op.kind in ("global", "shared", "scalar_memory") and not op.ends):
            branches = bool(op.ends)
            if not reads or op.mnemonic.startswith("buffer_") or ".param" in op.mnemonic:
                return None
            check = self._branch if branches else self._access
            return _when_other(lambda state, worlds: check(state, op, reads, worlds))
        if op.ends in ("", "mask") and reads and op.kind not in ("wait", "barrier"):
            return _when_other(lambda state, worlds: self._compute(state, op, reads, writes, worlds))
        return None

    def after(self, op: Op) -> Call | None:
        writes = self.keys(op)[1]
        return _when_other(lambda state, worlds: self._written(state, op, writes, worlds)) if writes else None

    # the other world

    def _elsewhere(
        self, state: Any, op: Op, changed: dict[Key, np.ndarray], writes: tuple[Key, ...], every: bool = False
    ) -> tuple[Any, dict[Key, np.ndarray]]:
        """Run an op with other rows: (its result, the rows that it writes). every: as if no lane were off."""
        rows = {key: self.row(state, key) for key in {*changed, *writes}}
        saved = {key: row.copy() for key, row in rows.items()}
        caches = {name: getattr(state, name) for name in _CACHES if hasattr(state, name)}
        counters, exec_mask = state.counters, getattr(state, "exec_mask", None)
        for name in caches:
            setattr(state, name, {})
        state.counters = _Silent()
        if every:
            state.exec_mask = None
        try:
            for key, value in changed.items():
                rows[key][...] = value
            result = np.array(op.run(state))  # it may be a view of a row
            left = {key: rows[key].copy() for key in writes}
        finally:
            for key, row in rows.items():
                row[...] = saved[key]
            for name, cache in caches.items():
                setattr(state, name, cache)
            state.counters = counters
            if every:
                state.exec_mask = exec_mask
            if not self.ptx and any(key.startswith("exec") for key in writes):
                state.exec_changed()
        return result, left

    def _shuffle(self, state: Any, op: Op, reads: tuple[Key, ...], writes: tuple[Key, ...]) -> None:
        worlds = _worlds(state)
        off = self._off(state, op)
        changed = {key: worlds.other[key] for key in (*reads, *writes) if key in worlds.other}
        if off is not None:
            other = _OTHER[np.arange(state.lanes) & 1]
            for key in reads:
                row = changed.get(key, self.row(state, key))
                vector = key[0] == "32" if self.ptx else key[0] in "va" and row.shape[1] == state.lanes
                if vector:
                    changed[key] = np.where(off, other, row)
        if not changed:
            return
        before = self.row(state, writes[0]).copy() if writes else None
        left = self._elsewhere(state, op, changed, writes, every=not self.ptx and off is not None)[1]
        for key, value in left.items():  # lanes that do not run keep what they hold there, also where source is target
            row = self.row(state, key)
            left[key] = np.where(_here(state, row), value, worlds.other.get(key, row))
        worlds.after = left
        if off is not None and before is not None and worlds.origin is None:
            _, here = self._elsewhere(state, op, {}, writes)
            differs = here[writes[0]] != worlds.after[writes[0]]
            if np.count_nonzero(differs):
                wave, lane = (int(at) for at in np.argwhere(differs)[0])
                worlds.origin = side_of("takes a value from a lane that is off", op, state, wave, lane)

    def _off(self, state: Any, op: Op) -> np.ndarray | None:
        """The lanes that a shuffle should not read, None when it may read all."""
        if not self.ptx:
            return None if state.exec_mask is None else ~state.exec_mask
        on = lanes_of(state, op)
        members = state.r[op.members]  # type: ignore[attr-defined]
        masks = np.broadcast_to(members, (state.waves, 32))
        first = masks[np.arange(state.waves), 0 if on is None else on.argmax(axis=1)][:, None]
        named = (first >> np.arange(32, dtype=np.uint32) & 1) != 0
        differ = masks != first
        # groups of a warp with masks of their own, at one instruction: only who does not run is off
        named = named | (differ if on is None else differ & on).any(axis=1)[:, None]
        named = named if on is None else named & on
        return None if named.all() else ~named

    def _compute(self, state: Any, op: Op, reads: tuple[Key, ...], writes: tuple[Key, ...], worlds: Worlds) -> None:
        if not any(key in worlds.other for key in reads):
            return
        changed = {key: worlds.other[key] for key in (*reads, *writes) if key in worlds.other}
        worlds.after = self._elsewhere(state, op, changed, writes)[1]

    def _written(self, state: Any, op: Op, writes: tuple[Key, ...], worlds: Worlds) -> None:
        """After an op: which of the rows that it wrote differ in the other world."""
        if worlds.after is not None:
            for key, value in worlds.after.items():
                if key.startswith("exec") if isinstance(key, str) else False:
                    if np.count_nonzero((value != self.row(state, key)) & _here(state, value)):
                        self._used(state, op, worlds, int(_first(value != self.row(state, key))[0]), 0, "EXEC")
                elif np.array_equal(value, self.row(state, key)):
                    worlds.other.pop(key, None)
                else:
                    worlds.other[key] = value
            worlds.after = None
            return
        for key in writes:
            before = worlds.other.get(key)
            if before is not None:
                row = self.row(state, key)
                merged = np.where(_here(state, row), row, before)
                if np.array_equal(merged, row):
                    del worlds.other[key]
                else:
                    worlds.other[key] = merged

    # uses

    def _access(self, state: Any, op: Op, reads: tuple[Key, ...], worlds: Worlds) -> None:
        guard, predicate = guard_of(state, op), getattr(op, "guard", None)
        for key in reads:
            value = worlds.other.get(key)
            if value is None:
                continue
            row = self.row(state, key)
            here = _here(state, row)
            if guard is not None and predicate != key:
                here = here & guard
            if np.count_nonzero(differs := (value != row) & here):
                self._used(state, op, worlds, *_first(differs), "memory")

    def _branch(self, state: Any, op: Op, reads: tuple[Key, ...], worlds: Worlds) -> None:
        changed = {key: worlds.other[key] for key in reads if key in worlds.other}
        if not changed:
            return
        other = np.broadcast_to(self._elsewhere(state, op, changed, ())[0], state.unit_shape)
        here = np.broadcast_to(op.run(state), state.unit_shape)
        differs = other != here if state.act is None else (other != here) & state.act
        if np.count_nonzero(differs):
            wave, *lane = (int(at) for at in np.argwhere(differs)[0])
            self._used(state, op, worlds, wave, lane[0] if lane else 0, "a branch")

    def _used(self, state: Any, op: Op, worlds: Worlds, wave: int, lane: int, where: str) -> None:
        second = side_of("uses", op, state, wave, lane)
        first = worlds.origin
        came = "a shuffle" if first is None else f"{first.where} by `{first.text}`"
        line = "" if first is None or first.line is None else f" (line {first.line[1]})"
        error = AbsentLane(
            f"{kernel_and_line(state, op)}: {second.where} uses in {where} (`{op.text}`) a value that {came}{line} "
            "took from a lane that was off, absent or not in the member mask; what that lane gives is undefined: let "
            "every lane of the mask take part in the shuffle, or select the value away"
        )
        missing = "the lane that is read must execute the shuffle"
        raise reported(error, "synccheck", state, "a value of an absent lane", second, first, missing)


def _here(state: Any, row: np.ndarray) -> np.ndarray | bool:
    """Of a row, the entries that the running op writes."""
    if row.shape[1] == state.lanes:
        return True if state.mask is None else state.mask
    return True if state.act is None else state.act[:, None]


def _first(differs: np.ndarray) -> tuple[int, int]:
    wave, lane = (int(at) for at in np.argwhere(differs)[0])
    return wave, lane


def _when_other(call: Callable[[State, Worlds], None]) -> Call:
    def run(state: Any) -> None:
        worlds = state.watch.kept.get("lanes")
        if worlds is not None and (worlds.other or worlds.after is not None):
            call(state, worlds)

    return run
