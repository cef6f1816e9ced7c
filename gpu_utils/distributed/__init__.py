"""Ranks: real processes that talk through torch.distributed, started from a notebook cell or from a check.

gloo on a CPU, NCCL on an NVIDIA GPU, RCCL on an AMD one: the same function runs on each.
"""

from gpu_utils.distributed.running import Ranks, run_ranks
from gpu_utils.distributed.wires import Wires

__all__ = ["Ranks", "Wires", "run_ranks"]
