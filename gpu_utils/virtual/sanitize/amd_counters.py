"""What AMD's instructions count on and wait for: which counter, in which order it comes back, which registers it fills.

Nothing in the hardware holds an instruction back until the data of an access is there; counters do, which a wave asks
to fall to a number. Sources: LLVM's AMDGPUBaseInfo.cpp (sizes of the counters), SIInsertWaitcnts.cpp (which event
counts where, what comes back out of order) and AMDGPU.td (whether vector loads write registers in order: GFX9 to
GFX11, FeatureVmemWriteVgprInOrder; GFX12 lacks it), GCNSubtarget.h (flat accesses count in order after GFX9; stores
need expcnt before Sea Islands only, so on no target here).

Left out: xcnt (gfx1250) holds back a repeated translation of addresses, no data: so says rocjitsu's data-hazard.md.
s_wait_alu, s_waitcnt_depctr and s_delay_alu are about results of the vector ALU, which the hardware guards or which
need no wait for memory; samplecnt and bvhcnt count images, that are refused; expcnt counts exports, refused as well.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpu_utils.chips.targets import TARGETS
from gpu_utils.virtual.machine import Op

CAPACITY = {
    "vmcnt": 63,
    "vscnt": 63,
    "lgkmcnt": 63,
    "expcnt": 7,
    "loadcnt": 63,
    "storecnt": 63,
    "dscnt": 63,
    "kmcnt": 31,
    "samplecnt": 63,
    "bvhcnt": 7,
    "asynccnt": 63,
    "tensorcnt": 63,
    "xcnt": 63,
}
"""The most that a counter counts; a wave that would count further stands until one of the accesses is done."""
GFX9_LGKMCNT = 15

_COUNTERS = {
    "load": ("loadcnt", "vmcnt"),
    "store": ("storecnt", "vscnt", "vmcnt"),
    "lds": ("dscnt", "lgkmcnt"),
    "scalar": ("kmcnt", "lgkmcnt"),
    "async": ("asynccnt",),
    "tensor": ("tensorcnt",),
}
"""Where a kind of access counts: the first of these that the target has."""

_KINDS = (
    (re.compile(r"tensor_"), ("tensor",)),
    (re.compile(r"(global|cluster)_(load|store)_async|ds_atomic_async"), ("async",)),
    (re.compile(r"ds_(?!nop)"), ("lds",)),
    (re.compile(r"s_(buffer_|scratch_)?load_|s_mem(real)?time"), ("scalar",)),
    (re.compile(r"flat_(load|.*atomic)"), ("load", "lds")),
    (re.compile(r"flat_store"), ("store", "lds")),
    (re.compile(r"(global|buffer|scratch|tbuffer)_(load|atomic)|global_inv"), ("load",)),
    (re.compile(r"(global|buffer|scratch|tbuffer)_store|global_wb|buffer_wbl2"), ("store",)),
)
"""Beginning of a mnemonic -> its kinds of access; the first that fits. A flat access may go to either memory."""

EXCHANGES = re.compile(r"ds_(b?permute|swizzle)")
"""Instructions of the LDS unit that touch no memory."""

_HALF = re.compile(r"d16|_(?:b|u|i)?(?:8|16)(?:_d16_hi)?$|_(?:u|s)?(?:byte|short)(?:_d16_hi)?$")


@dataclass(frozen=True, slots=True)
class Access:
    """One count of an op: it goes up when the op is issued and down when the access is done.

    op         its index; of accesses that fill no register and are alike, the first of the program
    counter    its name
    order      accesses of one order of a counter are done in the order of issue; "": in any order
    does       "load", "store", "write back", "scalar", "lds" (writes or updates LDS), "lds read", "exchange",
               "load to lds", "async", "tensor"
    registers  that it fills, by name
    acquires   it reads what another block may write, or is an atomic: later accesses may have to wait for it
    """

    op: int
    counter: str
    order: str
    does: str
    registers: frozenset[str]
    acquires: bool


def capacity(target: str, counter: str) -> int:
    """The most that a counter of a target counts.

    >>> capacity("gfx942", "lgkmcnt"), capacity("gfx1100", "lgkmcnt")
    (15, 63)
    """
    if counter == "lgkmcnt" and TARGETS[target].family == "gfx9":
        return GFX9_LGKMCNT
    return CAPACITY[counter]


def loads_in_order(target: str) -> bool:
    """Whether vector loads write their registers in the order of issue, so that two may fill one register."""
    return TARGETS[target].family in ("gfx9", "gfx11")


def accesses(target: str, op: Op) -> tuple[Access, ...]:
    """What an op counts on, with the registers that it fills in each."""
    kinds = next((kinds for start, kinds in _KINDS if start.match(op.mnemonic)), ())
    return tuple(_access(target, op, kind, len(kinds) > 1) for kind in kinds)


def _access(target: str, op: Op, kind: str, flat: bool) -> Access:
    name, filled = op.mnemonic, op.writes - {"scc", "exec_lo", "exec_hi"}
    to_lds = kind == "load" and is_load_to_lds(op)
    if kind == "load" and not filled and not to_lds and "_atomic" in name:
        kind = "store"  # an atomic that returns nothing counts where stores do
    counter = next(name for name in _COUNTERS[kind] if name in TARGETS[target].waits)
    order = kind if kind in ("async", "tensor", "lds") else "" if kind == "scalar" else "vector"
    if order == "vector" and counter in ("vscnt", "storecnt") and name.startswith("scratch_"):
        order = "scratch"  # LLVM takes stores to scratch and others to be done in any order
    if flat and TARGETS[target].family == "gfx9":
        order = ""
    return Access(op.index, counter, order, _does(op, kind, to_lds), filled, op.polls or op.takes)


def _does(op: Op, kind: str, to_lds: bool) -> str:
    name = op.mnemonic
    if kind == "lds" and name.startswith("ds_"):
        if EXCHANGES.match(name):
            return "exchange"
        return "lds read" if re.match(r"ds_(read|load)", name) else "lds"
    if kind == "lds":
        return "lds" if "store" in name else "lds read"
    if to_lds:
        return "load to lds"
    if kind == "store" and re.search(r"_wb|_atomic", name):
        return "write back" if "_wb" in name else "atomic"
    if kind == "store" and name.startswith("scratch_"):
        return "scratch"
    return kind


def is_load_to_lds(op: Op) -> bool:
    """Whether a vector load writes LDS and no register: `buffer_load_dword ... lds`, `global_load_lds_dword`."""
    return "_load_lds" in op.mnemonic or (op.mnemonic.startswith("buffer_load") and op.text.rstrip().endswith(" lds"))


_NAMED = re.compile(r"([a-z]+cnt)(_sat)?\((\d+|0x[0-9a-f]+)\)")
_FIELDS = {"gfx9": (("vmcnt", 0, 4), ("expcnt", 4, 3), ("lgkmcnt", 8, 4), ("vmcnt", 14, 2)),
           "gfx11": (("expcnt", 0, 3), ("lgkmcnt", 4, 6), ("vmcnt", 10, 6))}  # fmt: skip
"""Family -> the fields of the number that s_waitcnt may be given instead: counter, lowest bit, bits from there on."""


def waits(target: str, op: Op) -> dict[str, int]:
    """Counter -> to what it falls before the wave goes on. What a wait does not name it does not wait for.

    A number as large as the counter's capacity is no wait. Empty for all other instructions.
    """
    if not op.mnemonic.startswith("s_wait"):
        return {}
    return {name: count for name, count in _waits(target, op).items() if count < capacity(target, name)}


def _waits(target: str, op: Op) -> dict[str, int]:
    name, operand = op.mnemonic, op.text.removeprefix(op.mnemonic).split(";")[0].strip()
    if name == "s_wait_idle":
        return dict.fromkeys(TARGETS[target].waits, 0)
    if name == "s_waitcnt":
        named = {counter: int(count, 0) for counter, _, count in _NAMED.findall(operand)}
        return named or _unpacked(TARGETS[target].family, int(operand, 0))
    if match := re.fullmatch(r"s_waitcnt_(vscnt|vmcnt|lgkmcnt|expcnt)", name):
        return {match[1]: int(operand.split(",")[-1], 0)}
    if match := re.fullmatch(r"s_wait_(loadcnt|storecnt)_dscnt", name):
        number = int(operand, 0)
        return {match[1]: number >> 8 & 63, "dscnt": number & 63}
    if (match := re.fullmatch(r"s_wait_(\w+cnt)", name)) and match[1] in CAPACITY:
        return {match[1]: int(operand, 0)}
    return {}


def _unpacked(family: str, number: int) -> dict[str, int]:
    found: dict[str, int] = {}
    shift: dict[str, int] = {}
    for counter, low, bits in _FIELDS.get(family, ()):
        part = number >> low & ((1 << bits) - 1)
        found[counter] = found.get(counter, 0) | part << shift.get(counter, 0)
        shift[counter] = shift.get(counter, 0) + bits
    return found


def wait_text(target: str, needed: dict[str, int]) -> str:
    """The instructions that wait for counters to fall to these numbers, as the target's assembler writes them.

    >>> wait_text("gfx942", {"vmcnt": 2, "lgkmcnt": 0}), wait_text("gfx1201", {"dscnt": 1})
    ('s_waitcnt vmcnt(2) lgkmcnt(0)', 's_wait_dscnt 0x1')
    """
    if TARGETS[target].family not in ("gfx9", "gfx11"):
        return ", ".join(f"s_wait_{counter} {count:#x}" for counter, count in needed.items())
    plain = " ".join(f"{counter}({count})" for counter, count in needed.items() if counter != "vscnt")
    parts = [f"s_waitcnt {plain}"] if plain else []
    if "vscnt" in needed:
        parts.append(f"s_waitcnt_vscnt null, {needed['vscnt']:#x}")
    return ", ".join(parts)
