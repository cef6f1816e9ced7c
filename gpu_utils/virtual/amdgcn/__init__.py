"""AMDGCN: the machine code of AMD GPUs, as LLVM prints it."""

from gpu_utils.virtual.amdgcn.decode import TARGETS, decode, new_state

__all__ = ["TARGETS", "decode", "new_state"]
