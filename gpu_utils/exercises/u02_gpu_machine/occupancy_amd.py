"""02.occupancy_amd: how many waves a SIMD and how many blocks a CU holds; the check asks LLVM for the first number."""

from __future__ import annotations

import functools
import random
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import triton
import triton.language as tl

from gpu_utils.chips import TARGETS, Target
from gpu_utils.compiler.triton import compile_for
from gpu_utils.exercises.u02_gpu_machine.occupancy_nvidia import Verdict, float_tolerance, up, verdict
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Misconception


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    return dict(case.params)


@triton.jit
def _occupied_kernel(x_ptr, CONSTRAINTS: tl.constexpr):
    value = tl.load(x_ptr)
    tl.store(x_ptr, tl.inline_asm_elementwise("v_mov_b32 $0, $1", CONSTRAINTS, [value], tl.float32, False, 1))


@functools.cache
def llvm_occupancy(vgprs: int, agprs: int, target: str) -> int:
    """The `; Occupancy` that LLVM prints for a kernel with these registers, compiled now (or kept by Triton's cache).

    An assembly statement that says it overwrites v[n-1] makes LLVM give the kernel n VGPRs; a[n-1] the same for AGPRs.

    >>> llvm_occupancy(68, 0, "gfx942"), llvm_occupancy(68, 20, "gfx942")
    (7, 5)
    """
    overwritten = f",~{{v{vgprs - 1}}}" + (f",~{{a{agprs - 1}}}" if agprs else "")
    compiled = compile_for(_occupied_kernel, target, signature={"x_ptr": "*fp32"}, CONSTRAINTS=f"=v,v{overwritten}")
    said = dict(re.findall(r"; (NumVgprs|NumAgprs|Occupancy): (\d+)", compiled.asm))
    found = (int(said["NumVgprs"]), int(said.get("NumAgprs", 0)))
    if found != (vgprs, agprs):
        raise RuntimeError(
            f"asked for {vgprs} VGPRs and {agprs} AGPRs on {target}; LLVM used {found[0]} and {found[1]}"
        )
    return int(said["Occupancy"])


def occupancy_amd_reference(vgprs: int, agprs: int, lds_bytes: int, num_waves: int, target: str) -> Verdict:
    """Waves of a SIMD by LLVM, the rest by division."""
    cu = TARGETS[target]
    waves = llvm_occupancy(vgprs, agprs, target)
    if waves == cu.waves_per_simd:  # LLVM stops counting there; the registers may allow more
        waves = cu.registers // up(_total(vgprs, agprs), cu.granule)
    return _from_registers(waves, lds_bytes, num_waves, cu)


def _from_registers(fit: int, lds_bytes: int, num_waves: int, cu: Target) -> Verdict:
    """The answer when the registers of a SIMD hold `fit` waves."""
    allowed = {"waves": cu.waves_per_unit // num_waves, "registers": fit * cu.simds // num_waves}
    if lds_bytes:
        fits = lds_bytes <= cu.shared_per_block
        allowed["LDS"] = cu.shared_per_unit // up(lds_bytes, cu.shared_granule) if fits else 0
    return {"waves_per_simd": min(cu.waves_per_simd, fit), **verdict(allowed, num_waves, cu.waves_per_unit)}


def _total(vgprs: int, agprs: int) -> int:
    """Registers of a lane; AGPRs begin at a multiple of 4."""
    return up(vgprs, 4) + agprs if agprs else vgprs


def _with(total: Callable[[int, int], int] = _total, **changes: Any) -> Callable[..., Verdict]:
    """An answer with registers counted another way, or on a CU with some figures changed."""

    def answer(vgprs: int, agprs: int, lds_bytes: int, num_waves: int, target: str) -> Verdict:
        cu = replace(TARGETS[target], **changes)
        taken = up(total(vgprs, agprs), cu.granule)
        return _from_registers(cu.registers // taken, lds_bytes, num_waves, cu)

    return answer


def _rounds_16_on_cdna(vgprs: int, agprs: int, lds_bytes: int, num_waves: int, target: str) -> Verdict:
    cu = TARGETS[target]
    taken = up(_total(vgprs, agprs), 16 if cu.lanes == 64 else cu.granule)
    return _from_registers(cu.registers // taken, lds_bytes, num_waves, cu)


def _capped_by_the_slots(vgprs: int, agprs: int, lds_bytes: int, num_waves: int, target: str) -> Verdict:
    cu = TARGETS[target]
    waves = llvm_occupancy(vgprs, agprs, target)
    return _from_registers(waves, lds_bytes, num_waves, cu)


def _barriers_for_all(vgprs: int, agprs: int, lds_bytes: int, num_waves: int, target: str) -> Verdict:
    """Names the 16 barriers of a CU (32 of a WGP) as a fourth resource, of single waves as well."""
    found = occupancy_amd_reference(vgprs, agprs, lds_bytes, num_waves, target)
    cu = TARGETS[target]
    if found["blocks"] < cu.blocks_per_unit:
        return found
    others = found["limited_by"] if found["blocks"] == cu.blocks_per_unit else []
    share = cu.blocks_per_unit * num_waves / cu.waves_per_unit
    return {**found, "blocks": cu.blocks_per_unit, "limited_by": [*others, "blocks"], "occupancy": share}


def _ignores_lds(vgprs: int, agprs: int, lds_bytes: int, num_waves: int, target: str) -> Verdict:
    return occupancy_amd_reference(vgprs, agprs, 0, num_waves, target)


def _no_limit_of_a_block(vgprs: int, agprs: int, lds_bytes: int, num_waves: int, target: str) -> Verdict:
    cu = TARGETS[target]
    fit = cu.registers // up(_total(vgprs, agprs), cu.granule)
    return _from_registers(fit, lds_bytes, num_waves, replace(cu, shared_per_block=cu.shared_per_unit))


def _lds_of_a_simd(vgprs: int, agprs: int, lds_bytes: int, num_waves: int, target: str) -> Verdict:
    return occupancy_amd_reference(vgprs, agprs, lds_bytes * num_waves, num_waves, target)


def _of_one_simd(vgprs: int, agprs: int, lds_bytes: int, num_waves: int, target: str) -> Verdict:
    """Forgets that a CU has four SIMDs."""
    found = occupancy_amd_reference(vgprs, agprs, lds_bytes, num_waves, target)
    cu = TARGETS[target]
    allowed = {"waves": cu.waves_per_unit // num_waves, "registers": found["waves_per_simd"] // num_waves}
    if lds_bytes:
        allowed["LDS"] = cu.shared_per_unit // up(lds_bytes, cu.shared_granule)
    return {"waves_per_simd": found["waves_per_simd"], **verdict(allowed, num_waves, cu.waves_per_unit)}


def _lds_lowers_waves_per_simd(vgprs: int, agprs: int, lds_bytes: int, num_waves: int, target: str) -> Verdict:
    found = occupancy_amd_reference(vgprs, agprs, lds_bytes, num_waves, target)
    return {**found, "waves_per_simd": found["blocks"] * num_waves // TARGETS[target].simds}


FRESH = tuple((vgprs, agprs) for vgprs in (52, 66, 70, 77, 85, 101, 121, 135, 162, 167) for agprs in (0, 0, 9, 21, 34))
"""Registers of fresh kernels: few enough that Triton's cache soon holds them all."""


def _fresh(rng: random.Random) -> Case:
    vgprs, agprs = rng.choice(FRESH)
    target = rng.choice(["gfx90a", "gfx942"])
    return Case(
        "a fresh kernel",
        vgprs=vgprs,
        agprs=agprs,
        lds_bytes=rng.choice([0, rng.randint(500, 40_000)]),
        num_waves=rng.choice([1, 2, 4, 8]),
        target=target,
    )


_WRONG: tuple[tuple[str, Callable[..., Verdict], str], ...] = (
    (
        "agprs_not_aligned",
        _with(total=lambda vgprs, agprs: vgprs + agprs),
        "Nearly: AGPRs begin at a multiple of 4. Where there are any, round the VGPRs up to 4 before you add them.",
    ),
    (
        "each_kind_rounded",
        _with(total=lambda vgprs, agprs: up(vgprs, 8) + up(agprs, 8)),
        "VGPRs and AGPRs are each rounded up to the granule. Only the start of the AGPRs is aligned, to 4 registers: "
        "add first, then round the sum.",
    ),
    (
        "forgets_agprs",
        _with(total=lambda vgprs, agprs: vgprs),
        "The AGPRs are missing. On CDNA they come out of the same file of 512 as the VGPRs.",
    ),
    (
        "blocks_of_16",
        _rounds_16_on_cdna,
        "Registers are rounded up to 16 here, as AMD's guide says. LLVM hands them out by 8 on CDNA (`granule`): the "
        "check compiled these kernels, and LLVM holds one wave more.",
    ),
    (
        "no_granule",
        _with(granule=1),
        "Registers are not rounded up. A wave gets them in multiples of `granule`: 8 on CDNA, 24 on gfx1100.",
    ),
    (
        "agprs_beside_vgprs",
        _with(total=max),
        "VGPRs and AGPRs are treated as two files of 512. Since gfx90a they share one: their sum counts.",
    ),
    (
        "always_512",
        _with(granule=8, registers=512, waves_per_simd=8),
        "This holds for CDNA only. gfx1100 has 1536 registers for each lane of its narrower waves, hands them out by "
        "24 and holds 16 waves a SIMD: take the figures from TARGETS.",
    ),
    (
        "capped_by_the_slots",
        _capped_by_the_slots,
        "The blocks are right. Registers are named although fewer of them would let no further block in: here the wave "
        "slots alone are full. For the blocks, count what the registers hold without the limit of the slots.",
    ),
    (
        "barriers_for_all",
        _barriers_for_all,
        "The barriers of a CU limit here (`blocks_per_unit`). A block of one wave needs none, and with two waves or "
        "more no wave slot is left by then: leave them out.",
    ),
    (
        "ignores_lds",
        _ignores_lds,
        "LDS is left out. LLVM's number leaves it out too, because Triton asks for LDS at the launch; the blocks of a "
        "CU share it all the same.",
    ),
    (
        "no_lds_granule",
        _with(shared_granule=1),
        "LDS is handed out in pieces of `shared_granule` bytes: round up what a block asks for before you divide.",
    ),
    (
        "no_limit_of_a_block",
        _no_limit_of_a_block,
        "A block that asks for more LDS than one block may have (`shared_per_block`) does not run at all: 0 blocks. On "
        "gfx1100 this is half of what the two CUs of a WGP have together.",
    ),
    (
        "of_one_simd",
        _of_one_simd,
        "A CU has four SIMDs, and the waves of a block are spread over them: waves of one SIMD times `simds`, then "
        "divided by the waves of a block.",
    ),
    (
        "lds_for_each_wave",
        _lds_of_a_simd,
        "lds_bytes is what a block asks for, all its waves together; do not multiply it by the waves.",
    ),
    (
        "lds_lowers_waves_per_simd",
        _lds_lowers_waves_per_simd,
        "waves_per_simd is what registers and wave slots allow, as LLVM prints it. LDS enters only in `blocks`.",
    ),
)

EXERCISE = Exercise(
    id="02.occupancy_amd",
    title="Occupancy of a CU, against LLVM's",
    parameters=("vgprs", "agprs", "lds_bytes", "num_waves", "target"),
    kind="host",
    inputs=_inputs,
    reference=occupancy_amd_reference,
    tolerance=float_tolerance,
    cases=(
        Case("a light kernel: full", vgprs=40, agprs=0, lds_bytes=0, num_waves=4, target="gfx942"),
        Case(
            "68 registers: multiples of 8 hold 7 waves, multiples of 16 would hold 6",
            **{"vgprs": 68, "agprs": 0, "lds_bytes": 0, "num_waves": 1, "target": "gfx942"},
        ),
        Case("just over a step", vgprs=97, agprs=0, lds_bytes=0, num_waves=2, target="gfx942"),
        Case("VGPRs and AGPRs share a file", vgprs=100, agprs=64, lds_bytes=0, num_waves=4, target="gfx90a"),
        Case("more AGPRs than VGPRs", vgprs=40, agprs=100, lds_bytes=0, num_waves=4, target="gfx942"),
        Case("AGPRs begin at a multiple of 4", vgprs=65, agprs=15, lds_bytes=0, num_waves=1, target="gfx942"),
        Case("the sum is rounded, not each kind", vgprs=66, agprs=9, lds_bytes=0, num_waves=1, target="gfx90a"),
        Case(
            "a matmul tile: LDS, of which LLVM knows nothing",
            vgprs=128,
            agprs=0,
            lds_bytes=32_768,
            num_waves=4,
            target="gfx942",
        ),
        Case("a few bytes over a multiple of 512", vgprs=64, agprs=0, lds_bytes=9_300, num_waves=2, target="gfx942"),
        Case("gfx950 has 160 KiB of LDS", vgprs=166, agprs=0, lds_bytes=65_536, num_waves=4, target="gfx950"),
        Case("more LDS than a block may have", vgprs=80, agprs=0, lds_bytes=73_728, num_waves=4, target="gfx942"),
        Case("two limits at once", vgprs=80, agprs=0, lds_bytes=10_240, num_waves=4, target="gfx90a"),
        Case(
            "a WGP has 128 KiB, a block half of it at most",
            vgprs=60,
            agprs=0,
            lds_bytes=70_000,
            num_waves=4,
            target="gfx1100",
        ),
        Case(
            "RDNA: 1536 registers, by 24, in waves of 32",
            vgprs=100,
            agprs=0,
            lds_bytes=0,
            num_waves=4,
            target="gfx1100",
        ),
    ),
    fresh=_fresh,
    misconceptions=tuple(Misconception(*wrong) for wrong in _WRONG),
    hints=(
        "First one SIMD: how many waves do its registers hold, and how many wave slots has it? Then the whole CU, "
        "where the LDS comes in as well.",
        "total = vgprs, or vgprs rounded up to 4 plus agprs. Rounded up to `granule`, it divides `registers`. "
        "waves_per_simd is that quotient, or the slots of a SIMD where they are fewer. Blocks, as on NVIDIA: the "
        "quotient itself times `simds`, divided by num_waves.",
        "waves: waves_per_unit // num_waves. registers: registers // rounded * simds // num_waves. LDS: "
        "shared_per_unit // (lds_bytes rounded up to shared_granule), 0 above shared_per_block, and no limit at all "
        "when lds_bytes is 0.",
    ),
    explanation=(
        "A SIMD of CDNA has 512 registers for each lane, in multiples of 8, shared by VGPRs and AGPRs, and 8 wave "
        "slots. AMD's guide speaks of blocks of 16; the two differ from 65 to 72 registers (7 waves or 6) and from 161 "
        "to 168 (3 or 2), and LLVM, which the check asked, says 8. Its `; Occupancy` knows registers only: what LDS "
        "allows you have to work out yourself."
    ),
)
