"""Instructions of gfx9 that stand too near to each other: the chip does not hold them back, so the text must.

The rules are those of LLVM's GCNHazardRecognizer.cpp (checkDPPHazards, checkVALUHazards, checkRWLaneHazards) for vector
instructions that read what another one has just written. gfx10 and later hold such a read back themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpu_utils.virtual.machine import Op

_DPP = re.compile(r"_dpp\b|\b(quad_perm|row_\w+|wave_\w+):|\brow_(half_)?mirror\b")
_LANE = ("v_readlane_b32", "v_readfirstlane_b32")
_CDNA_3 = ("gfx942", "gfx950")
_CDNA = ("gfx90a", *_CDNA_3)


@dataclass(frozen=True)
class _Rule:
    name: str
    reads: Callable[[Op], set[str]]
    states: int
    targets: tuple[str, ...]


def _vectors(op: Op) -> set[str]:
    return {name for name in op.reads if name[0] == "v" and name[1:].isdigit()}


def _scalars(op: Op) -> set[str]:
    return {name for name in op.reads if re.fullmatch(r"s\d+|vcc_(lo|hi)", name)}


_RULES = (
    _Rule("a DPP read", lambda op: _vectors(op) if _DPP.search(op.text) else set(), 2, _CDNA),
    _Rule("a read of a lane", lambda op: _vectors(op) if op.mnemonic in _LANE else set(), 1, _CDNA_3),
    _Rule(
        "a choice of a lane",
        lambda op: _scalars(op) if op.mnemonic in (_LANE[0], "v_writelane_b32") else set(),
        4,
        _CDNA,
    ),
    _Rule("a read of a scalar register", _scalars, 2, _CDNA_3),
)


@dataclass(frozen=True)
class TooNear:
    """what: the kind of read; wanted, found: wait states between writer and reader."""

    what: str
    wanted: int
    found: int
    writer: str
    reader: str


def too_near(ops: Sequence[Op], target: str) -> TooNear | None:
    """The first vector instruction of straight code that reads too early what a vector instruction wrote; None if none.

    Between two instructions each one is a wait state, and `s_nop N` is N + 1 of them.
    """
    for place, op in enumerate(ops):
        if not op.mnemonic.startswith("v_"):
            continue
        for rule in _RULES:
            registers, states = rule.reads(op) if target in rule.targets else set(), 0
            for before in reversed(ops[:place]):
                if states >= rule.states:
                    break
                if before.mnemonic.startswith("v_") and before.writes & registers:
                    return TooNear(rule.name, rule.states, states, before.text.strip(), op.text.strip())
                states += _states(before)
    return None


def _states(op: Op) -> int:
    return int(op.text.split()[1], 0) + 1 if op.mnemonic == "s_nop" else 1
