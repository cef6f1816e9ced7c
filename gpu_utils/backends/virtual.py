"""The backends `virtual:<target>`: a kernel's compiled machine code, executed on CPU tensors."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from gpu_utils.backends.recording import chosen_launches, record_launches
from gpu_utils.backends.session import Session

if TYPE_CHECKING:
    from gpu_utils.virtual.isa import Launch

# Totals that are no sums: of several launches the last one's counts.
_NOT_SUMMED = ("lane_utilisation", "sector_bytes")

# What stands in an instruction that calls the host to print, or to report an assertion: PTX, AMDGCN.
_HOST = ("vprintf", "__assertfail", "MSG_INTERRUPT")

FILLED = "units_filled"
UNEVEN = "uneven_loads"
"""Of the launch that loads most: bytes of the block that loads most, over those of an average block; 0 without any."""

SANITIZERS = frozenset({"racecheck", "waitcheck"})
"""What every launch of an answer is run with, besides the races between programs that are always looked for.

`w2w bench sanitizers` measures what they cost. Not initcheck: `gpu_utils.grading.execute` fills new memory with NaN
itself, and a load whose value is thrown away is no mistake in an answer. Not synccheck: its barriers are those of C++
(`gpu_utils.grading.cpp` adds them), and its lanes would refuse `__shfl_down` in a wave that is not full, where AMD's
manual promises 0 and nothing else does.
"""

# Rounds of one loop: the kernel set has at most 111, and 10,000 take some seconds (0.6 ms a round with an atomic).
STEP_LIMIT = 10_000


@dataclass(frozen=True)
class VirtualBackend:
    """Answers called in a session run on the virtual GPU of `target`; its counters are exact.

    cycles  whether predicted_cycles are among the counters: those that one SM or CU would need for all launches
    uneven  whether uneven_loads is: what each block loads has to be recorded for it
    ptxas   whether it is run on what is compiled for NVIDIA; a kernel's n_regs, units_filled and cycles need it
    sanitize  names of sanitizers (`gpu_utils.virtual.sanitize.tools.TOOLS`)
    """

    name: str
    target: str
    device: str = "cpu"
    cycles: bool = False
    uneven: bool = False
    ptxas: bool = True
    sanitize: frozenset[str] = SANITIZERS

    def counting(self, names: Collection[str]) -> VirtualBackend:
        """The same with the counters of these names, where they cost something."""
        return replace(self, uneven=UNEVEN in names)

    def hurried(self, names: Collection[str]) -> VirtualBackend:
        """The same for code of the course's own: without sanitizers, and without ptxas unless a counter of these names
        needs it."""
        return replace(self, ptxas=FILLED in names, sanitize=frozenset())

    def unavailable(self) -> str | None:
        """Why it cannot run here; None when it can."""
        from gpu_utils.virtual import MODELS

        if self.target not in MODELS:
            return f"{self.target} is compiled for, not executed; virtual GPUs are {', '.join(MODELS)}"
        return None

    @contextlib.contextmanager
    def session(self) -> Iterator[Session]:
        """One use of the virtual GPU. The counters are the sums over all launches of the session, without the runs by
        which an autotuner compares configurations.

        Added are global_sectors_per_ideal, global transactions over the least that the same bytes could need;
        global_moved_bytes, their bytes (both 0 where nothing was moved); barriers, how often a wave met one (0 where a
        kernel has none); threads, those that were launched; waves_of_a_block, the most of a launch; calls_of_the_host,
        the instructions of the kernels that print or assert, as compiled; and units_filled, the SMs, CUs or WGPs that
        the blocks of the launches of Triton's kernels fill, as many on each as fit.
        """
        from gpu_utils.virtual import virtual_gpu
        from gpu_utils.virtual.predict import predicted_cycles

        def totals() -> dict[str, float]:
            own = ("threads", FILLED, "waves_of_a_block", "calls_of_the_host")
            sums: dict[str, float] = dict.fromkeys((*own, "global_sectors_per_ideal", "global_moved_bytes"), 0)
            of_programs: dict[int, int] = {}  # a kernel is often launched again
            for launch in chosen():
                for name, value in launch.counters.totals().items():
                    sums[name] = value if name in _NOT_SUMMED else sums.get(name, 0) + value
                sums["threads"] += launch.counters.launched_waves * launch.program.lanes
                sums[FILLED] += _units_filled(launch)
                program = launch.program
                if id(program) not in of_programs:
                    of_programs[id(program)] = sum(any(f in op.text for f in _HOST) for op in program.ops)
                sums["calls_of_the_host"] += of_programs[id(program)]
                sums["waves_of_a_block"] = max(sums["waves_of_a_block"], _waves_of_a_block(launch))
                if self.cycles:
                    sums["predicted_cycles"] = sums.get("predicted_cycles", 0) + predicted_cycles(launch)
            if self.uneven:
                sums[UNEVEN] = _uneven(chosen())
            sums["barriers"] = sums.get("instructions_barrier", 0)
            if sums.get("global_sectors_ideal"):
                sectors = sums["global_load_sectors"] + sums["global_store_sectors"]
                sums["global_sectors_per_ideal"] = sectors / sums["global_sectors_ideal"]
                sums["global_moved_bytes"] = sectors * sums["sector_bytes"]
            return sums

        one = virtual_gpu(
            self.target,
            l2=self.uneven,
            strict=True,
            step_limit=STEP_LIMIT,
            ptxas=self.ptxas,
            sanitize=self.sanitize,
        )
        with one as gpu, record_launches() as launches, chosen_launches(gpu) as chosen:
            yield Session("cpu", launches, counts=totals)


def _waves_of_a_block(launch: Launch) -> int:
    return launch.counters.launched_waves // max(1, launch.counters.launched_blocks)


def _uneven(launches: Sequence[Launch]) -> float:
    of_blocks = [np.zeros(launch.counters.launched_blocks, np.int64) for launch in launches]
    for launch, loaded in zip(launches, of_blocks, strict=True):
        for _, block, _, read, write in launch.counters.record or ():
            if read and not write:
                np.add.at(loaded, block, 1)
    most = max(of_blocks, key=np.sum, default=np.zeros(1))
    return float(most.max() / most.mean()) if most.any() else 0.0


def _units_filled(launch: Launch) -> float:
    """Blocks of a launch over those that one unit holds; infinite when none fits, 0 where registers are not known."""
    if not launch.registers:
        return 0.0
    from gpu_utils.analytic.occupancy import occupancy  # late: unit 02 asks for its rules, and answers run beside this

    fit = occupancy(launch.chip, launch.registers, launch.shared_bytes, _waves_of_a_block(launch)).blocks
    return launch.counters.launched_blocks / fit if fit else math.inf


def virtual(name: str) -> VirtualBackend:
    """The backend of a name like "virtual:gfx942"."""
    return VirtualBackend(name, name.partition(":")[2])
