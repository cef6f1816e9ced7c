"""Occupancy: how many blocks, and so how many warps or wavefronts, one SM, CU or WGP holds at a time.

Each resource allows some number of blocks; the smallest wins. A row of the table says what a block needs, what there
is, and the arithmetic between them, so that the whole answer can be read, drawn and checked by hand.

A register file belongs to one part (a sub-partition of an SM, a SIMD of a CU) and the waves of a block are spread over
the parts. What counts is therefore the number of waves that fit on one part, times the parts, divided by the waves of a
block. NVIDIA's cuda_occupancy.h also checks a block on its own with its warps rounded up to the parts; that check gives
the same answer, because a block fits exactly when its warps, rounded up to the parts, do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from gpu_utils.chips.targets import Target
from gpu_utils.errors import BadArgument

THREADS = 1024
"""Most threads of a block, on both vendors (CUDA programming guide; LLVM getMaxFlatWorkGroupSize)."""


@dataclass(frozen=True)
class Limit:
    """What one resource allows.

    resource  "waves", "registers", "scalar registers", "shared memory" (AMD: "LDS") or "blocks"
    need      what a block asks for: waves of a block, registers of a lane or wave, bytes of a block, one block
    taken     the same after rounding to what the hardware hands out
    has       what there is: wave slots of the unit, registers of one part, bytes of the unit, blocks of the unit
    blocks    blocks that this resource alone would allow
    rule      the arithmetic, with the numbers
    lift      the largest `need` with which this resource allows one block more than fit now; None when there is none
    """

    resource: str
    need: int
    taken: int
    has: int
    blocks: int
    rule: str
    lift: int | None


@dataclass(frozen=True)
class Occupancy:
    """How many blocks fit on one SM, CU or (gfx11, gfx12) WGP at a time.

    target           the limits that were used
    waves_per_block  warps or wavefronts of one block
    waves_per_simd   what the registers and the wave slots alone would allow on one SIMD: LLVM's `; Occupancy`
    rows             one Limit for each resource that the block uses
    """

    target: Target
    waves_per_block: int
    waves_per_simd: int
    rows: tuple[Limit, ...]

    @property
    def limits(self) -> Mapping[str, int]:
        """Resource -> blocks that it alone would allow."""
        return {row.resource: row.blocks for row in self.rows}

    @property
    def blocks(self) -> int:
        """Blocks that fit; 0 when one alone does not."""
        return min(row.blocks for row in self.rows)

    @property
    def waves(self) -> int:
        """Warps or wavefronts of these blocks."""
        return self.blocks * self.waves_per_block

    @property
    def most(self) -> int:
        """Warps or wavefronts that the hardware can hold."""
        return self.target.waves_per_unit

    @property
    def fraction(self) -> float:
        return self.waves / self.most

    @property
    def limited_by(self) -> tuple[str, ...]:
        """The resources that allow the fewest blocks."""
        return tuple(row.resource for row in self.rows if row.blocks == self.blocks)

    @property
    def advice(self) -> str:
        """What would let one block more in, as a sentence; every resource that limits must give way."""
        if self.blocks and self.waves + self.waves_per_block > self.most:
            return f"no further block of {self.waves_per_block} waves fits into the {self.most} wave slots"
        limiting = [row for row in self.rows if row.blocks == self.blocks]
        if stuck := [row for row in limiting if row.lift is None]:
            return f"no change of the kernel lets {self.blocks + 1} blocks in: {stuck[0].rule}"
        wishes = " and ".join(_WISH[row.resource].format(row.lift) for row in limiting)
        return f"for {self.blocks + 1} block{'s' * (self.blocks > 0)}: {wishes}"

    def explain(self) -> str:
        """The table of limits, one line for each resource, then what fits and what would lift it."""
        wide = max(len(row.resource) for row in self.rows)
        lines = [
            f"{'>' if row.blocks == self.blocks else ' '} {row.resource:<{wide}}  {row.blocks:>3} blocks   {row.rule}"
            for row in self.rows
        ]
        fit = f"{self.blocks} block{'s' * (self.blocks != 1)} of {self.waves_per_block}"
        return "\n".join([*lines, f"  {fit}: {self}", f"  {self.advice}"])

    def __str__(self) -> str:
        return f"{self.waves} of {self.most} waves ({self.fraction:.0%}), limited by {' and '.join(self.limited_by)}"


_WISH = {
    "waves": "blocks of at most {} waves",
    "registers": "at most {} registers a lane",
    "scalar registers": "at most {} scalar registers a wave",
    "shared memory": "at most {} bytes of shared memory a block",
    "LDS": "at most {} bytes of LDS a block",
}


def occupancy(target: Target, registers: int, shared: int, num_warps: int, *, scalars: int = 0) -> Occupancy:
    """Blocks that fit at a time, from what one block needs.

    target     a row of TARGETS, or `cu_mode(...)` of one
    registers  32-bit vector registers of one lane (AMD: VGPRs and AGPRs together)
    shared     bytes of shared memory (LDS) of one block
    num_warps  warps or wavefronts of one block
    scalars    scalar registers of one wave; they limit on gfx9 only

    Errors: BadArgument for a negative number, or a block of more than 1024 threads.

    >>> from gpu_utils.chips import TARGETS
    >>> print(occupancy(TARGETS["gfx942"], registers=166, shared=0, num_warps=4))
    12 of 32 waves (38%), limited by registers
    >>> print(occupancy(TARGETS["sm_90"], registers=128, shared=40_000, num_warps=8).explain())
      waves            8 blocks   64 slots // 8 waves
    > registers        2 blocks   128 -> 128; 512 // 128 = 4 waves a part; 4 * 4 // 8
      shared memory    5 blocks   40000 + 1024 -> 41088; 233472 // 41088
      blocks          32 blocks   32 blocks an SM
      2 blocks of 8: 16 of 64 waves (25%), limited by registers
      for 3 blocks: at most 80 registers a lane
    """
    _check(target, registers, shared, num_warps, scalars)
    per_simd = [target.waves_per_simd]
    rows = [_waves(target, num_warps)]
    rows.append(_registers(target, registers, num_warps))
    per_simd.append(target.registers // rows[-1].taken if registers <= target.registers_max else 0)
    if target.scalars is not None and scalars:
        rows.append(_scalars(target, scalars, num_warps))
        per_simd.append(target.scalars // scalars)
    if shared + target.shared_reserved:
        rows.append(_shared(target, shared))
    if target.vendor == "nvidia" or num_warps > 1:
        what = (
            "blocks an SM"
            if target.vendor == "nvidia"
            else f"barriers a {_unit(target)}, for blocks of two waves or more"
        )
        most = target.blocks_per_unit
        rows.append(Limit("blocks", 1, 1, most, most, f"{most} {what}", None))
    blocks = min(row.blocks for row in rows)
    lifted = tuple(replace(row, lift=_lift(target, row.resource, num_warps, blocks + 1)) for row in rows)
    return Occupancy(target, num_warps, min(per_simd), lifted)


def _check(target: Target, registers: int, shared: int, num_warps: int, scalars: int) -> None:
    for name, value in (("registers", registers), ("shared", shared), ("scalars", scalars)):
        if value < 0:
            raise BadArgument(f"{name} is {value}; expected 0 or more")
    most = THREADS // target.lanes
    if not 1 <= num_warps <= most:
        raise BadArgument(
            f"a block of {num_warps} waves of {target.lanes} lanes was asked for; {target.name} takes 1 to {most}, "
            f"which is {THREADS} threads"
        )


def _waves(target: Target, num_warps: int) -> Limit:
    slots = target.waves_per_unit
    return Limit("waves", num_warps, num_warps, slots, slots // num_warps, f"{slots} slots // {num_warps} waves", None)


def _registers(target: Target, registers: int, num_warps: int) -> Limit:
    taken = _up(max(1, registers), target.granule)
    if registers > target.registers_max:
        rule = f"{registers} are more than the {target.registers_max} that a lane can have"
        return Limit("registers", registers, taken, target.registers, 0, rule, None)
    fit = target.registers // taken
    each = f"{registers} -> {taken}; {target.registers} // {taken} = {fit} waves a part"
    rule = f"{each}; {fit} * {target.simds} // {num_warps}"
    return Limit("registers", registers, taken, target.registers, fit * target.simds // num_warps, rule, None)


def _scalars(target: Target, scalars: int, num_warps: int) -> Limit:
    assert target.scalars is not None
    fit = target.scalars // scalars
    rule = f"{target.scalars} // {scalars} = {fit} waves a part; {fit} * {target.simds} // {num_warps}"
    return Limit("scalar registers", scalars, scalars, target.scalars, fit * target.simds // num_warps, rule, None)


def _shared(target: Target, shared: int) -> Limit:
    name = "shared memory" if target.vendor == "nvidia" else "LDS"
    taken = _up(shared + target.shared_reserved, target.shared_granule)
    if shared > target.shared_per_block:
        rule = f"{shared} are more than the {target.shared_per_block} that a block can have"
        return Limit(name, shared, taken, target.shared_per_unit, 0, rule, None)
    reserved = f" + {target.shared_reserved}" if target.shared_reserved else ""
    rule = f"{shared}{reserved} -> {taken}; {target.shared_per_unit} // {taken}"
    return Limit(name, shared, taken, target.shared_per_unit, target.shared_per_unit // taken, rule, None)


def _lift(target: Target, resource: str, num_warps: int, blocks: int) -> int | None:
    """The largest need of a resource with which it allows `blocks` blocks."""
    if resource == "blocks":
        return None
    if resource == "waves":
        return target.waves_per_unit // blocks or None
    if resource in ("shared memory", "LDS"):
        whole = target.shared_per_unit // blocks // target.shared_granule * target.shared_granule
        return max(0, min(whole - target.shared_reserved, target.shared_per_block)) or None
    waves = -(-blocks * num_warps // target.simds)
    if waves > target.waves_per_simd:
        return None
    if resource == "scalar registers":
        assert target.scalars is not None
        return target.scalars // waves
    return min(register_steps(target)[waves], target.registers_max)


def register_steps(target: Target) -> dict[int, int]:
    """Waves on one SIMD or sub-partition -> most registers of a lane with which so many fit.

    >>> from gpu_utils.chips import TARGETS
    >>> register_steps(TARGETS["gfx942"])
    {8: 64, 7: 72, 6: 80, 5: 96, 4: 128, 3: 168, 2: 256, 1: 512}
    """
    down = range(target.waves_per_simd, 0, -1)
    found = {waves: target.registers // waves // target.granule * target.granule for waves in down}
    return {waves: min(most, target.registers_max) for waves, most in found.items()}


def cu_mode(target: Target) -> Target:
    """The limits of gfx11 and gfx12 for a kernel compiled in CU mode: a block then stays on one of a WGP's two CUs.

    Kernels are compiled in WGP mode unless somebody asks (`-mcumode`), and TARGETS holds those limits. In CU mode a
    unit is one CU: half the SIMDs, half the LDS, half the barriers (LLVM AMDGPUBaseInfo.cpp, FeatureCuMode).

    >>> from gpu_utils.chips import TARGETS
    >>> cu_mode(TARGETS["gfx1100"]).waves_per_unit, TARGETS["gfx1100"].waves_per_unit
    (32, 64)
    """
    if not has_cu_mode(target):
        raise BadArgument(f"{target.name} has no CU mode; gfx11 and gfx12 have one: their CUs come in pairs")
    half = {name: getattr(target, name) // 2 for name in ("simds", "shared_per_unit", "blocks_per_unit")}
    return replace(target, **half)


def has_cu_mode(target: Target) -> bool:
    """Whether CUs of this target come in pairs, so that a kernel can be compiled for a pair (WGP) or for one CU."""
    return target.vendor == "amd" and target.lanes == 32


def _unit(target: Target) -> str:
    return "WGP" if has_cu_mode(target) and target.simds == 4 else "CU"


def _up(value: int, granule: int) -> int:
    return -(-value // granule) * granule
