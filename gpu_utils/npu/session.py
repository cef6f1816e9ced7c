"""The virtual AI cores that a check's answer runs on: every launch in a block, with what it counted."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any


@dataclass
class AiCores:
    """The virtual AI cores of a target, and the runs (`NpuRun`) on them so far."""

    target: str
    runs: list[Any] = field(default_factory=list)

    def launch(self, source: str, kernel: str, blocks: int, tensors: Sequence[Any], check: bool = True) -> Any:
        """`run_ascendc`, whose run is kept; None in place of the NpuRun where kernels do nothing (`idle_kernels`)."""
        from gpu_utils.npu import run_ascendc

        self.runs.append(run_ascendc(source, kernel, blocks, tensors, check=check))
        return self.runs[-1]

    def counters(self) -> dict[str, float]:
        """Sums over all runs; launches, and global bytes and matrix FLOPs by the names that a virtual GPU has for them.

        >>> AiCores("ascend950").counters()
        {'launches': 0, 'global_moved_bytes': 0, 'matrix_flops': 0}
        """
        sums: dict[str, float] = {"launches": len(self.runs), "global_moved_bytes": 0, "matrix_flops": 0}
        for run in self.runs:
            for name, value in run.counters.items():
                sums[name] = sums.get(name, 0) + value
                sums["global_moved_bytes"] += value if "GM" in name.split("->") else 0
            sums["matrix_flops"] += run.counters["cube_flops"]
        return sums


_active: ContextVar[AiCores | None] = ContextVar("ai_cores", default=None)


@contextlib.contextmanager
def ai_cores(target: str) -> Iterator[AiCores]:
    """A block with virtual AI cores of a target."""
    cores = AiCores(target)
    token = _active.set(cores)
    try:
        yield cores
    finally:
        _active.reset(token)


def active_ai_cores() -> AiCores | None:
    """Those of the innermost `with ai_cores(...)`; None outside of one."""
    return _active.get()
