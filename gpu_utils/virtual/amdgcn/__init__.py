"""AMDGCN: the machine code of AMD GPUs, as LLVM prints it; an `Isa`."""

from gpu_utils.virtual.amdgcn.dispatch import NAME, TEXT, built_for, kernels, new_state, prepare, runs_on
from gpu_utils.virtual.amdgcn.program import decode

__all__ = ["NAME", "TEXT", "built_for", "decode", "kernels", "new_state", "prepare", "runs_on"]
