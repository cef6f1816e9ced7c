"""What a compiled kernel needs of the hardware, and how much of an SM or CU that leaves for others."""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpu_utils.analytic.occupancy import Occupancy, occupancy
from gpu_utils.chips.targets import Target
from gpu_utils.compiler.assembly import CLASSES, instructions
from gpu_utils.compiler.cubin import nvidia_tool, registers_and_stack
from gpu_utils.compiler.triton import Compiled, ptxas


@dataclass(frozen=True)
class Resources:
    """What one kernel needs, from its compiled form.

    registers    32-bit vector registers of one lane: all of them (VGPRs and AGPRs together on AMD)
    vgprs, agprs, sgprs  AMD's kinds; on NVIDIA vgprs equals registers and the others are 0
    spills       AMD: vector registers that did not fit, moved to AGPRs where there are some and else to scratch;
                 NVIDIA: bytes of spill stores of one thread
    scratch      bytes of stack or scratch of one lane
    shared       bytes of shared memory (LDS) of one block, from Triton's metadata: the assembly does not say
    occupancy    see gpu_utils.analytic.occupancy
    counts       instructions by class, as they stand in the text (a loop's body counts once)
    widths       class -> {bits that one lane moves: how many instructions}
    """

    name: str
    target: Target
    num_warps: int
    registers: int
    vgprs: int
    agprs: int
    sgprs: int
    spills: int
    scratch: int
    shared: int
    occupancy: Occupancy
    counts: Mapping[str, int]
    widths: Mapping[str, Mapping[int, int]]

    @property
    def over_budget(self) -> str:
        """A sentence when the kernel asks for more shared memory than the target has: it compiles, and fails to load.

        "" when it fits.
        """
        if self.shared <= self.target.shared_per_block:
            return ""
        return (
            f"{self.name} asks for {self.shared} bytes of shared memory, {self.target.name} has "
            f"{self.target.shared_per_block} for a block: it compiles, but it will not load; "
            "try smaller blocks or fewer stages"
        )

    def __str__(self) -> str:
        nvidia = self.target.vendor == "nvidia"
        kinds = "" if nvidia else f" ({self.vgprs} VGPR, {self.agprs} AGPR), {self.sgprs} SGPR"
        spills = f"{self.spills} {'bytes' if nvidia else 'registers'}"
        memory = "shared memory" if nvidia else "LDS"
        rows = [
            ("registers of a lane", f"{self.registers}{kinds}"),
            ("spills", f"{spills}, {self.scratch} bytes of {'stack' if nvidia else 'scratch'}"),
            (memory, f"{self.shared} of {self.target.shared_per_block} bytes"),
            ("occupancy", str(self.occupancy)),
        ]
        for kind, count in self.counts.items():
            widths = ", ".join(f"{n} x {bits} bits" for bits, n in sorted(self.widths.get(kind, {}).items()))
            rows.append((kind, f"{count}{f' ({widths})' if widths else ''}"))
        lines = [f"{self.name} for {self.target.name}, {self.num_warps} {_wave(self.target)}s a block"]
        lines += [f"  {label:<20} {value}" for label, value in rows]
        return "\n".join([*lines, *([self.over_budget] if self.over_budget else [])])

    __repr__ = __str__


def _wave(target: Target) -> str:
    return "warp" if target.vendor == "nvidia" else "wavefront"


def resources(compiled: Compiled) -> Resources:
    """Registers, spills, shared memory, occupancy and instruction classes of a compiled kernel.

    AMD's figures are those that LLVM writes into the assembly; NVIDIA's are read from the cubin by cuobjdump, which
    comes with Triton. Occupancy follows the limits of `TARGETS`; on AMD it agrees with LLVM's own where no LDS is used.
    """
    target = compiled.limits
    read = _of_cubin if target.vendor == "nvidia" else _of_amdgcn
    registers, vgprs, agprs, sgprs, spills, scratch = read(compiled)
    counts: Counter[str] = Counter()
    widths: dict[str, Counter[int]] = {}
    for instruction in instructions(compiled.asm, target.vendor):
        counts[instruction.kind] += 1
        if instruction.bits:
            widths.setdefault(instruction.kind, Counter())[instruction.bits] += 1
    return Resources(
        name=compiled.name,
        target=target,
        num_warps=compiled.num_warps,
        registers=registers,
        vgprs=vgprs,
        agprs=agprs,
        sgprs=sgprs,
        spills=spills,
        scratch=scratch,
        shared=compiled.shared,
        occupancy=occupancy(target, registers, compiled.shared, compiled.num_warps, scalars=sgprs),
        counts={kind: counts[kind] for kind in CLASSES if counts[kind]},
        widths={kind: dict(found) for kind, found in widths.items()},
    )


def _of_amdgcn(compiled: Compiled) -> tuple[int, int, int, int, int, int]:
    def number(pattern: str, default: int | None = None) -> int:
        found = re.search(pattern, compiled.asm)
        if found is None and default is None:
            raise ValueError(f"the assembly of {compiled.name} for {compiled.target} has no line like {pattern}")
        return int(found.group(1)) if found else int(default or 0)

    vgprs = number(r"; NumVgprs: (\d+)")
    agprs = number(r"; NumAgprs: (\d+)", 0)
    total = number(r"; TotalNumVgprs: (\d+)", vgprs)
    return (
        total,
        vgprs,
        agprs,
        number(r"\.sgpr_count:\s+(\d+)"),
        number(r"\.vgpr_spill_count:\s+(\d+)"),
        number(r"\.private_segment_fixed_size:\s+(\d+)"),
    )


def _of_cubin(compiled: Compiled) -> tuple[int, int, int, int, int, int]:
    registers, stack = registers_and_stack(compiled.binary, compiled.name)
    spills = _spill_bytes(compiled) if stack else 0
    return registers, registers, 0, 0, spills, stack


def _spill_bytes(compiled: Compiled) -> int:
    """ptxas tells spills from other uses of the stack; the cubin does not."""
    architecture = re.search(r"^\.target (\w+)", compiled.asm, re.MULTILINE)
    assert architecture is not None
    with tempfile.TemporaryDirectory(prefix="w2w-ptx-") as folder:
        ptx = Path(folder) / "kernel.ptx"
        ptx.write_text(compiled.asm)
        gpu = f"--gpu-name={architecture.group(1)}"
        log = nvidia_tool(ptxas(compiled.limits), "-v", gpu, str(ptx), "-o", str(ptx.with_suffix(".cubin")))
    return sum(int(found) for found in re.findall(r"(\d+) bytes spill stores", log))
