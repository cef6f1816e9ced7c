"""Registers of which an access to memory touches half: 16-bit loads that keep the other half, and 16-bit stores."""

from __future__ import annotations

import re

from gpu_utils.virtual.amdgcn.parse import split_operands
from gpu_utils.virtual.machine import Op

_RANGE = re.compile(r"([vas])(?:(\d+)|\[(\d+)(?::(\d+))?\])(?:\.[lh])?$")
_STORES_HALF = re.compile(r"(global|flat|scratch|buffer|ds)_(store|write)_\w*(b16|b8|short|byte)")


def kept_by_load(op: Op) -> frozenset[str]:
    """The register of which a 16-bit load keeps a half: the op says that it reads it, but it only fills the other half.

    Not one that the load also takes its address from.
    """
    if "d16" not in op.mnemonic or ("_load" not in op.mnemonic and "_read" not in op.mnemonic):
        return frozenset()
    operands = _operands(op)
    return _named(operands[0]) - frozenset().union(*map(_named, operands[1:]))


def stores_other_half(op: Op, load: Op, register: str) -> bool:
    """Whether `op` stores the half of a register that the load before it leaves alone (LLVM makes such code)."""
    if "d16" not in load.mnemonic or not _STORES_HALF.match(op.mnemonic):
        return False
    operands = _operands(op)
    data = operands.pop(0 if op.mnemonic.startswith("buffer") else 1)
    elsewhere = any(register in _named(text) for text in operands)
    return register in _named(data) and not elsewhere and _is_high(op) != _is_high(load)


def _is_high(op: Op) -> bool:
    return "d16_hi" in op.mnemonic


def _operands(op: Op) -> list[str]:
    return list(split_operands(op.text.strip().removeprefix(op.mnemonic).strip())[0])


def _named(operand: str) -> frozenset[str]:
    """The names of the registers of an operand.

    >>> sorted(_named("v[2:3]")), sorted(_named("off"))
    (['v2', 'v3'], [])
    """
    found = _RANGE.match(operand)
    if not found:
        return frozenset()
    first = int(found[2] or found[3])
    return frozenset(f"{found[1]}{i}" for i in range(first, int(found[4] or first) + 1))
