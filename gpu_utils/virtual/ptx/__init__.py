"""PTX on the array machine: `decode` a module's kernel once, then make a state for each batch of blocks; an `Isa`."""

from gpu_utils.virtual.ptx.loading import NAME, TEXT, built_for, kernels, new_state, prepare, runs_on
from gpu_utils.virtual.ptx.program import decode

__all__ = ["NAME", "TEXT", "built_for", "decode", "kernels", "new_state", "prepare", "runs_on"]
