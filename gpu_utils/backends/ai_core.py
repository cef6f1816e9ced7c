"""The backends `virtual:<AI core>`: AscendC, executed on virtual AI cores with CPU tensors."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from gpu_utils.backends.session import Session
from gpu_utils.npu.session import ai_cores


@dataclass(frozen=True)
class AiCoreBackend:
    """Answers called in a session run on virtual AI cores of `target`, where hazards are found in every run."""

    name: str
    target: str
    device: str = "cpu"

    def counting(self, names: Collection[str]) -> AiCoreBackend:
        return self

    def hurried(self, names: Collection[str]) -> AiCoreBackend:
        return self

    def unavailable(self) -> str | None:
        """None: what compiles a source is asked for where there is one."""
        return None

    @contextlib.contextmanager
    def session(self) -> Iterator[Session]:
        """One use of the AI cores. Counters: `gpu_utils.npu.session.AiCores.counters`."""
        with ai_cores(self.target) as cores:
            yield Session("cpu", counts_launches=False, counts=cores.counters)
