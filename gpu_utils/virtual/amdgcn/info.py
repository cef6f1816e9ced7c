"""What the decoder of AMDGCN learns of a kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpu_utils.virtual.kernel_info import KernelInfo


@dataclass(frozen=True, kw_only=True, eq=False)
class AmdInfo(KernelInfo):
    """A KernelInfo with the state that the hardware sets up before the first instruction.

    hidden: (offset, bytes, kind) of the implicit arguments. vgprs, agprs, sgprs: rows that the code names.
    constants: uint32 literals of the code. user_sgprs: (what, how many registers) in order. preload_offset: in words.
    group_ids: axes whose block number is put into a scalar register; ids_in_ttmp: they are in trap registers (gfx12).
    scratch: bytes of one lane. notes: the metadata of the kernel as LLVM writes it.
    """

    hidden: tuple[tuple[int, int, str], ...]
    vgprs: int
    agprs: int
    sgprs: int
    constants: tuple[int, ...]
    user_sgprs: tuple[tuple[str, int], ...]
    preload_offset: int
    group_ids: tuple[int, ...]
    ids_in_ttmp: bool
    scratch: int
    notes: Mapping[str, int]
