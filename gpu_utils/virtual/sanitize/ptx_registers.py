"""Registers of wgmma and tcgen05.ld that are in flight: an automaton over what may be, by path only.

PTX manual, wgmma.fence and wgmma.wait_group: a wgmma.fence must stand before the first wgmma of a warpgroup, and
between another access of a register and a wgmma that has it as accumulator or in its A fragment; accumulators that only
wgmmas of one shape use need none in between. Until a wait_group that covers its group, accumulators must not be
accessed, and A fragments not be written. Registers of PTX are virtual, and Triton writes an A fragment anew while the
group before is in flight (ptxas gives it other registers): that is reported only until the group is committed.
Likewise an A fragment may be written after the fence, before the products of the next group: LLVM sinks conversions
below it, and ptxas puts them back in front of WARPGROUP.ARRIVE (seen in the SASS of Triton 3.7.1's ptxas).
tcgen05.ld: its results must not be accessed before tcgen05.wait::ld. A mov only gives them another name (LLVM lifts the
packing of two into 64 bits above the wait): what it writes is in flight too.

A *tile* is the registers that a wgmma has as accumulators (with its shape) or as A fragment. The state of a warp is
which tiles are in which group, and which tiles were accessed since the last fence.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, cast

from gpu_utils.virtual.machine import Op, Program
from gpu_utils.virtual.ptx.state import PtxInfo
from gpu_utils.virtual.sanitize.ptx_async import number_of

PRODUCT = "wgmma.mma_async"
LOAD, LOADED = "tcgen05.ld", "tcgen05.wait::ld"
Flight = frozenset[tuple[int, int]]  # (tile, index of the op)
NOBODY = -1  # who has accessed a tile before the first fence


@dataclass(frozen=True)
class Tile:
    """registers: names. shape: of accumulators, "m64n64k16"; "" for an A fragment."""

    registers: frozenset[str]
    shape: str


class Where(NamedTuple):
    """What is in flight on the way to an op. open: of the group that is not committed. groups: the oldest first.

    loads: ops tcgen05.ld that nobody has waited for, and movs of what they load. stale: tiles that were accessed since
    the last fence, and by whom.
    fenced: since the last commit_group there was a fence.
    """

    open: Flight
    groups: tuple[Flight, ...]
    loads: frozenset[int]
    stale: Flight
    fenced: bool = False


class Fault(NamedTuple):
    """An op that comes too early. first: the index of the op that it meets, or NOBODY."""

    op: Op
    does: str
    register: str
    first: int
    missing: str


class Automaton:
    """The steps of one program. watched: the registers that can be in flight; empty: there is nothing to do."""

    def __init__(self, program: Program) -> None:
        self.ops = program.ops
        self.names = cast(PtxInfo, program.info).names
        self.tiles: list[Tile] = []
        self.numbers: dict[Tile, int] = {}
        self.parts: dict[int, tuple[int, int | None]] = {}  # op -> its accumulators, its A fragment
        waits = [number_of(op) for op in program.ops if op.mnemonic.startswith("wgmma.wait_group")]
        self.depth = max(waits, default=0) + 1
        for op in program.ops:
            if op.mnemonic.startswith(PRODUCT):
                self.parts[op.index] = self._parts(op)
        self.touching: dict[str, list[int]] = {}
        for number, tile in enumerate(self.tiles):
            for register in tile.registers:
                self.touching.setdefault(register, []).append(number)
        self.watched = frozenset(self.touching) | _loaded(program)
        self.start = Where(frozenset(), (), frozenset(), frozenset((tile, NOBODY) for tile in range(len(self.tiles))))

    def _parts(self, op: Op) -> tuple[int, int | None]:
        fragment = frozenset(name for name in op.reads - op.writes if self.names[name][0] == "32")
        shape = op.mnemonic.split(".")[4]
        return self._tile(op.writes, shape), self._tile(fragment, "") if fragment else None

    def _tile(self, registers: frozenset[str], shape: str) -> int:
        tile = Tile(registers, shape)
        if tile not in self.numbers:
            self.numbers[tile] = len(self.tiles)
            self.tiles.append(tile)
        return self.numbers[tile]

    def concerns(self, op: Op) -> bool:
        """Whether an op changes the state or can be too early."""
        if op.mnemonic == "layout" and op.ends:  # where lanes wait for each other before the op that accesses
            return False
        return op.mnemonic.startswith(("wgmma.", LOADED)) or not self.watched.isdisjoint(op.reads | op.writes)

    def step(self, op: Op, at: Where) -> tuple[Where, Fault | None]:
        """The state after an op that `concerns`, and the fault if it comes too early."""
        name = op.mnemonic
        if name.startswith("wgmma.fence"):
            return at._replace(stale=frozenset(), fenced=True), None
        if name.startswith("wgmma.commit_group"):
            groups = (*at.groups, at.open)
            old = frozenset().union(*groups[: -self.depth])
            recent = groups[-self.depth :]
            return at._replace(open=frozenset(), groups=(recent[0] | old, *recent[1:]), fenced=False), None
        if name.startswith("wgmma.wait_group"):
            pending = number_of(op)
            return at._replace(groups=at.groups[-pending:] if pending else ()), None
        if name.startswith(LOADED):
            return at._replace(loads=frozenset()), None
        if name.startswith(PRODUCT):
            return self._product(op, at)
        if name.startswith("mov.") and any(op.reads & self.ops[load].writes for load in at.loads):
            return at._replace(loads=at.loads | {op.index}), None
        fault = self._early(op, at)
        stale = {(tile, op.index) for tile in self._met(op.reads | op.writes) if self._stales(tile, op, at)}
        at = at._replace(stale=_renewed(at.stale, stale))
        if name.startswith(LOAD):
            at = at._replace(loads=at.loads | {op.index})
        return at, fault

    def _stales(self, tile: int, op: Op, at: Where) -> bool:
        if self.tiles[tile].shape:
            return True
        return not at.fenced and not self.tiles[tile].registers.isdisjoint(op.writes)

    def _met(self, registers: Iterable[str]) -> set[int]:
        return {tile for register in registers for tile in self.touching.get(register, ())}

    def _product(self, op: Op, at: Where) -> tuple[Where, Fault | None]:
        accumulators, fragment = self.parts[op.index]
        own = [accumulators] if fragment is None else [accumulators, fragment]
        fault = None
        for tile, first in sorted(at.stale):
            if tile in own:
                registers = self.tiles[tile].registers
                by = self.ops[first] if first != NOBODY else op
                register = min(registers & (by.reads | by.writes))
                fault = Fault(op, "multiplies with" if tile == fragment else "adds to", register, first, "wgmma.fence")
                break
        if fragment is not None:
            reading = self._flying(at, self.tiles[fragment].registers, fragment_too=False)
            fault = fault or (reading and Fault(op, "multiplies with", reading[0], reading[1], "wgmma.wait_group"))
        others = self._met(self.tiles[accumulators].registers) - {accumulators}
        stale = _renewed(at.stale, {(tile, op.index) for tile in others})
        return at._replace(open=at.open | {(tile, op.index) for tile in own}, stale=stale), fault

    def _early(self, op: Op, at: Where) -> Fault | None:
        for registers, does in ((op.reads, "reads"), (op.writes, "writes")):
            found = self._flying(at, registers, fragment_too=does == "writes")
            if found:
                return Fault(op, does, *found, "wgmma.wait_group")
            for load in sorted(at.loads):
                late = registers & self.ops[load].writes
                if late:
                    return Fault(op, does, min(late), load, LOADED)
        return None

    def _flying(self, at: Where, registers: frozenset[str], fragment_too: bool) -> tuple[str, int] | None:
        """A register of these that a product has in flight, and that product."""
        met = self._met(registers)
        if not met:
            return None
        for group in (at.open, *at.groups):
            for tile, product in sorted(group):
                wanted = self.tiles[tile].shape or (fragment_too and group is at.open)
                if tile in met and wanted:
                    return min(self.tiles[tile].registers & registers), product
        return None


def _loaded(program: Program) -> frozenset[str]:
    """The registers that a tcgen05.ld fills, and those to which movs take them."""
    loaded = {name for op in program.ops if op.mnemonic.startswith(LOAD) for name in op.writes}
    movs = [op for op in program.ops if loaded and op.mnemonic.startswith("mov.")]
    while new := {name for op in movs if not loaded.isdisjoint(op.reads) for name in op.writes} - loaded:
        loaded |= new
    return frozenset(loaded)


def _renewed(stale: Flight, more: set[tuple[int, int]]) -> Flight:
    """With each tile once, by who accessed it last."""
    again = {tile for tile, _ in more}
    return frozenset(each for each in stale if each[0] not in again) | more
