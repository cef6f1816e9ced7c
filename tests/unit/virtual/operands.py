"""Whether ops say truly what they read and write: each is run on random registers, with a memory that only takes notes.

What changes must be in `writes`; and when every register outside of `reads` has another value, the same must come out.
What the text names must be in one of both, and they hold nothing else but AMD's implicit registers and PTX's carry.
"""

from __future__ import annotations

import contextlib
import io
import re
from dataclasses import replace
from typing import Any

import numpy as np

from gpu_utils.virtual.amdgcn.state import AGPR, SGPR, AmdState, register_name
from gpu_utils.virtual.global_patterns import Found
from gpu_utils.virtual.machine import Op, Program, State

IMPLICIT = {"exec_lo", "exec_hi", "vcc_lo", "vcc_hi", "scc", "m0", "cc"}
# They need a memory that is there, or end the run on purpose: only what their text names is looked at.
ONLY_NAMED = (
    "trap",
    "s_trap",
    "call",
    "ret",
    "cp.async.bulk",
    "cp.reduce",
    "mbarrier.arrive",
    "ld.local",
    "st.local",
    "layout",
    "tcgen05.",
)
# operands that no result depends on: hints to caches, and waits
HINTS = ("s_wait", "s_setprio", "s_delay", "s_sendmsg", "prefetch", "mbarrier.inval", "bar.warp", "nanosleep")
_REGISTER = re.compile(r"(?<![\w.])([vsa]|ttmp)(?:\[(\d+)(?::(\d+))?\]|(\d+)(?![\w:]))|\b(vcc|exec|m0)(?:_lo|_hi)?\b")
_seen: set[tuple[str, str]] = set()


def complaints(program: Program, launch: Any) -> list[str]:
    """A sentence for each op that says something wrong; an op like one that was looked at before is passed over."""
    fresh = []
    for op in program.ops:
        key = program.target[:-2], _shape(op)  # gfx9, gfx11, gfx12, sm_
        if key not in _seen:
            _seen.add(key)
            fresh.append(op)
    if not fresh:
        return []
    trial = _Trial(program, launch)
    return [f"{program.target}, `{op.text}`: {what}" for op in fresh for what in (*_named(program, op), *trial(op))]


def _shape(op: Op) -> str:
    ranges = re.sub(r"\b([vsa])\[(\d+):(\d+)\]", lambda m: f"{m[1]}x{int(m[3]) - int(m[2]) + 1}", op.text)
    return op.mnemonic + " " + re.sub(r"0[fd][\dA-F]{8,16}|0x[\da-f]+|\d+", "#", ranges)


def _named(program: Program, op: Op) -> list[str]:
    if op.mnemonic == "layout":
        return []
    said = {_bare(name) for name in op.reads | op.writes}
    operands: list[set[str]] = []  # the registers of each
    if program.unit == "lane":
        known = {_bare(name) for name in program.info.names}
        operands += ({word} for word in re.findall(r"[%\w$]+", op.text) if word in known)
    for match in _REGISTER.finditer(op.text) if program.unit == "wave" else ():
        kind, first, last, only, special = match.groups()
        low = int(first or only or 0)
        operands.append(
            {f"{kind}{i}" for i in range(low, int(last or low) + 1)} if kind
            else {f"{special}_lo", f"{special}_hi"} if match[0] in ("vcc", "exec") else {match[0]}
        )  # fmt: skip
    wrong = []
    for registers in operands:
        if not registers & said and not op.mnemonic.startswith(HINTS):
            wrong.append(f"it names {sorted(registers)}, which it neither reads nor writes")
    if more := said - set().union(*operands) - IMPLICIT:
        wrong.append(f"it says {sorted(more)}, which the text does not name")
    return wrong


def _bare(name: str) -> str:
    """The name of a register in the text: without its function and without the number of its scope."""
    return name.rsplit(".", 1)[-1].split("#")[0]


class _Notes:
    """Stands for global or shared memory: what is loaded follows from the address alone."""

    def __init__(self, shared: Any = None) -> None:
        self.log: list[Any] = []
        self.regions: list[Any] = []
        self.shared = shared

    def __getattr__(self, name: str) -> Any:
        return getattr(self.shared, name)

    def add_array(self, *_: Any) -> Any:
        return None

    def load(
        self, state: Any, op: Op, where: Any, width: int, count: int, mask: Any, offset: int = 0, **_: Any
    ) -> list[np.ndarray]:
        where = _addresses(where)
        self.log.append((where.copy(), offset, mask))
        return [self._word(where, offset + i, width) for i in range(count)]

    def load_scalar(self, state: Any, op: Op, where: Any, count: int, mask: Any, width: int = 4) -> list[np.ndarray]:
        return self.load(state, op, where, width, count, mask)

    def store(self, state: Any, op: Op, where: Any, values: Any, width: int, mask: Any, *offset: int, **_: Any) -> None:
        where = _addresses(where)
        self.log.append((where.copy(), *(np.array(value) for value in values), mask, offset))

    def atomic(
        self, state: Any, op: Op, where: Any, width: int, kind: str, value: Any, compare: Any, mask: Any, *_: Any
    ):
        where = _addresses(where)
        self.log.append((np.array(where), np.array(value), None if compare is None else np.array(compare), mask))
        return self._word(where, 0, width)

    def fence(self, state: Any, op: Op, mask: Any, **how: bool) -> None:
        self.log.append((mask, how))

    def _word(self, where: np.ndarray, i: int, width: int) -> np.ndarray:
        return ((np.asarray(where).astype(np.uint64) + np.uint64(i)) * np.uint64(0x9E3779B97F4A7C15)).astype(
            f"u{width}"
        )


def _addresses(where: Any) -> np.ndarray:
    return where.address if isinstance(where, Found) else where


class _Trial:
    """A state of one wave (four for PTX, a warpgroup) with random registers, on which single ops are run."""

    def __init__(self, program: Program, launch: Any) -> None:
        from importlib import import_module

        self.amd = program.unit == "wave"
        waves = 1 if self.amd else 4
        new_state = import_module(f"gpu_utils.virtual.{'amdgcn' if self.amd else 'ptx'}").new_state
        self.memory = _Notes()
        trial = replace(launch, memory=self.memory, grid=(1, 1, 1), fresh=True, shared_bytes=1 << 17)
        self.state: State = new_state(program, trial, np.zeros((1, 3), np.int64), waves)
        self.state.shared.check = False
        self.state.shared = self.shared = _Notes(self.state.shared)
        self.files = list(self._files())
        random = np.random.default_rng(0)
        self.values = [[_random(random, array, small) for array, _ in self.files] for small in (False, True)]
        self.others = [[_random(random, array, small) for array, _ in self.files] for small in (False, True)]
        if self.amd:
            wide = 0xFFFFFFFF if self.state.lanes == 64 else 0
            for values, low, high in zip(self.values, (0x0F3355FF, 0xFFFFFFFF), (0x12345678, 0xFFFFFFFF), strict=True):
                values[1][126], values[1][127] = low, high & wide  # EXEC: some lanes, then all
            for registers in (*self.values, *self.others):
                registers[1][125] = 0  # NULL

    def _files(self):
        """(array of one register in each first index, the name of each)."""
        state: Any = self.state
        if isinstance(state, AmdState):
            info = state.program.info
            rows = [*range(info.vgprs), *(AGPR + i for i in range(info.agprs))]
            yield state.vectors, [register_name(row) for row in rows]
            yield state.S.reshape(128, 1, 1), [register_name(SGPR + i) for i in range(128)]
            yield state.scc[None], ["scc"]
        else:
            names = {place: name for name, place in state.program.info.names.items()}
            for column, array in state.files.items():
                yield array, [names.get((column, i), "") for i in range(len(array))]

    def __call__(self, op: Op) -> list[str]:
        if op.mnemonic.startswith(ONLY_NAMED):
            return []
        wrong = []
        ran = False
        for small in (False, True):
            before = self.values[small]
            first = self._run(op, before)
            if first is None:
                continue
            ran = True
            changed = self._changed(before, first[1])
            if changed - op.writes - {""}:
                wrong.append(f"it changes {sorted(changed - op.writes)}, which it does not say it writes")
            other = []
            for (_, names), old, fresh in zip(self.files, before, self.others[small], strict=True):
                idle = np.array([name not in op.reads and name != "" for name in names])
                if self.amd and self.state.lanes == 32:
                    idle &= np.array([name != "exec_hi" for name in names])
                other.append(np.where(idle[:, None, None], fresh, old))
            second = self._run(op, other)
            if second is None or not _same(first[0], second[0]):
                wrong.append("what it does depends on a register that it does not say it reads")
                continue
            for (_, names), a0, a1, b0, b1 in zip(self.files, before, first[1], other, second[1], strict=True):
                kept = (a0 == a1) & (b0 == b1)
                differs = (a1 != b1) & ~kept
                for row in np.flatnonzero(differs.any(axis=(1, 2))):
                    if names[row]:
                        wrong.append(f"{names[row]} depends on a register that it does not say it reads")
        return wrong if ran else [*wrong, "it could not be tried"]

    def _run(self, op: Op, registers: list[np.ndarray]) -> tuple[Any, list[np.ndarray]] | None:
        """(outcome and notes, the registers afterwards); None when these values make the op fail."""
        state: Any = self.state
        for (array, _), values in zip(self.files, registers, strict=True):
            array[...] = values
        self.memory.log, self.shared.log = [], []
        state.mask = None
        if self.amd:
            state.masks.clear()
            state.exec_changed()
        else:
            state.fragments, state.wide_masks, state.clock = {}, {}, 0
            state.shared.shared.bytes[...] = 0
        try:
            with contextlib.redirect_stdout(io.StringIO()), np.errstate(all="ignore"):
                outcome = op.run(state)
        except Exception:
            return None
        if not op.ends or op.ends == "mask":
            outcome = None
        if not self.amd:
            self.memory.log.append(state.local.copy())
            self.memory.log.append(state.shared.shared.bytes.copy())
        return (outcome, self.memory.log, self.shared.log), [array.copy() for array, _ in self.files]

    def _changed(self, before: list[np.ndarray], after: list[np.ndarray]) -> set[str]:
        return {
            names[row]
            for (_, names), old, new in zip(self.files, before, after, strict=True)
            for row in np.flatnonzero((old != new).any(axis=(1, 2)))
        }


def _random(random: np.random.Generator, array: np.ndarray, small: bool) -> np.ndarray:
    """Any bits, or multiples of 8 that are small enough for an address in shared memory."""
    if array.dtype == bool:
        return random.integers(0, 2, array.shape).astype(bool)
    if small:
        return random.integers(0, 256, array.shape).astype(array.dtype) << array.dtype.type(3)
    return np.frombuffer(random.bytes(array.nbytes), array.dtype).reshape(array.shape).copy()


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return np.array_equal(a, b)
    return a == b
