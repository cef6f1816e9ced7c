"""The array machine: it runs a decoded kernel for all lanes of many waves at once.

A kernel is a list of `Op`; each op is a Python function that acts on every wave of the batch by
NumPy. The machine knows nothing of an instruction set: it schedules. Words: a *wave* is an AMD
wavefront or an NVIDIA warp; a *unit* is what has a program counter of its own: a wave for AMDGCN
(lanes are switched by EXEC), a lane for PTX (lanes of one warp may part). `State.act` says which
units run now; None stands for all of them, the fast path.
"""

from gpu_utils.virtual.machine.barriers import Arrive, Await, Signal
from gpu_utils.virtual.machine.batches import run_batches
from gpu_utils.virtual.machine.op import Op, nothing
from gpu_utils.virtual.machine.program import Program, Segment
from gpu_utils.virtual.machine.source import source_of
from gpu_utils.virtual.machine.state import State

__all__ = ["Arrive", "Await", "Op", "Program", "Segment", "Signal", "State", "nothing", "run_batches", "source_of"]
