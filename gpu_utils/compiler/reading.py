"""Questions to a kernel's machine code: which instructions, which of them in loops, what LLVM noted beside it."""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from gpu_utils.chips.targets import TARGETS
from gpu_utils.compiler.assembly import CLASSES, Instruction, instructions
from gpu_utils.errors import BadArgument, UnknownName

_LABEL = re.compile(r"([$.\w]+):")
_NOTE = re.compile(r"^; (\w+): (\d+)\b", re.MULTILINE)
_RSRC1 = 48  # bytes before COMPUTE_PGM_RSRC1 in a kernel descriptor, which has 64 (LLVM, AMDGPU usage)


class HasAssembly(Protocol):
    """What compile_for and compile_cpp return."""

    @property
    def target(self) -> str: ...
    @property
    def asm(self) -> str: ...


def mnemonics(compiled: HasAssembly, *kinds: str, starting: str | tuple[str, ...] = "") -> Counter[str]:
    """How often each mnemonic stands in a kernel's machine code, the most frequent first.

    kinds     classes of instructions, such as "matrix" or "global atomic" (`CLASSES`), or "mask"; none: all
    starting  only mnemonics that start so: "v_accvgpr_"

    Raises UnknownName for a class.
    """
    check_kinds(kinds)
    return Counter(
        dict(
            Counter(
                one.mnemonic
                for one in instructions(compiled.asm, TARGETS[compiled.target].vendor)
                if of_kinds(one, kinds) and one.mnemonic.startswith(starting)
            ).most_common()
        )
    )


def in_loops(compiled: HasAssembly, *kinds: str) -> list[Instruction]:
    """The instructions between a label and a branch back to it, in order; kinds as for `mnemonics`."""
    check_kinds(kinds)
    labels: dict[str, int] = {}
    inside: set[int] = set()
    for number, line in enumerate(compiled.asm.splitlines(), 1):
        if label := _LABEL.match(line):
            labels[label[1]] = number
        branch = re.search(r"\b(?:bra|bra\.uni|s_c?branch\w*)\s+([$.\w]+)", line)
        if branch and branch[1] in labels:
            inside |= set(range(labels[branch[1]], number + 1))
    found = instructions(compiled.asm, TARGETS[compiled.target].vendor)
    return [one for one in found if one.number in inside and of_kinds(one, kinds)]


def compiler_notes(compiled: HasAssembly) -> dict[str, int]:
    """What LLVM writes as comments beside a kernel for AMD: {"NumVgprs": 68, "Occupancy": 7, ...}; {} for PTX."""
    return {name: int(number) for name, number in _NOTE.findall(compiled.asm)}


def of_kinds(instruction: Instruction, kinds: Collection[str]) -> bool:
    """Whether an instruction is of one of these classes; of none: always."""
    return not kinds or instruction.kind in kinds or ("mask" in kinds and instruction.masks)


def check_kinds(kinds: Collection[str]) -> None:
    """Raises UnknownName for what is no class of instructions and not "mask"."""
    for kind in kinds:
        if kind not in (*CLASSES, "mask"):
            raise UnknownName("class of instructions", kind, [*CLASSES, "mask"])


@dataclass(frozen=True)
class KernelDescriptor:
    """What the command processor of an AMD GPU reads before it starts a kernel.

    rsrc1       COMPUTE_PGM_RSRC1, a register of 32 bits
    vgpr_field  its lowest six bits, GRANULATED_WORKITEM_VGPR_COUNT
    vgprs       the registers that these ask for: 8 * (field + 1) on gfx90a, gfx94x and gfx950 and in waves of 32
                (source: LLVM, user guide for the AMDGPU backend, compute_pgm_rsrc1)
    """

    rsrc1: int

    @property
    def vgpr_field(self) -> int:
        return self.rsrc1 & 0b111111

    @property
    def vgprs(self) -> int:
        return 8 * (self.vgpr_field + 1)


def kernel_descriptor(binary: bytes) -> KernelDescriptor:
    """The descriptor in the code object of one kernel (`compile_for(...).binary` for an AMD target): section .rodata.

    Raises BadArgument for bytes that are no such ELF file.
    """
    try:
        (table,), (number, names) = struct.unpack_from("<Q", binary, 0x28), struct.unpack_from("<HH", binary, 0x3C)
        sections = [struct.unpack_from("<IIQQQQ", binary, table + 64 * at) for at in range(number)]
        for name, _, _, _, offset, _ in sections:
            start = sections[names][4] + name
            if binary[:4] == b"\x7fELF" and binary[start : start + 8] == b".rodata\0":
                return KernelDescriptor(*struct.unpack_from("<I", binary, offset + _RSRC1))
    except (struct.error, IndexError):
        pass
    raise BadArgument("these bytes are no code object of an AMD kernel; pass compile_for(kernel, 'gfx942', ...).binary")


def places_along_k(instruction: str) -> int:
    """Places along K of a matrix instruction, by its mnemonic: 32 in m16n8k32, 16 in 32x32x16.

    Raises BadArgument for a mnemonic without a shape.

    >>> places_along_k("v_mfma_f32_32x32x16_fp8_fp8"), places_along_k("wgmma.mma_async.sync.aligned.m64n64k32")
    (16, 32)
    """
    shape = re.search(r"m\d+n\d+k(\d+)|\d+x\d+x(\d+)", instruction)
    if shape is None:
        raise BadArgument(f"{instruction!r} names no shape; give a mnemonic such as m16n8k32 or 32x32x16")
    return int(shape[1] or shape[2])
