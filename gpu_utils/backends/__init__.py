"""Where kernels run: the table that `check` and the command line choose from.

`gpu` is whatever real device torch sees, NVIDIA or AMD, behind the device string "cuda". `cpu` is for code without
kernels. `interpreter` runs Triton kernels on CPU tensors, one program after the other. Names with a colon belong to
families in PREFIXES, for example `virtual:gfx942`.

>>> backend("interpreter").device
'cpu'
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Protocol

from gpu_utils.backends.ai_core import AiCoreBackend
from gpu_utils.backends.recording import Launch, idle_kernels, record_launches
from gpu_utils.backends.session import Session
from gpu_utils.backends.virtual import virtual
from gpu_utils.chips.npus import NPUS
from gpu_utils.command import w2w
from gpu_utils.errors import BackendUnavailable, UnknownName

__all__ = [
    "BACKENDS",
    "PREFIXES",
    "Backend",
    "Launch",
    "Session",
    "backend",
    "idle_kernels",
    "interpreter",
    "record_launches",
]


class Backend(Protocol):
    """What `check` needs to know of a place where answers run."""

    @property
    def name(self) -> str:
        """As in the table."""

    @property
    def device(self) -> str:
        """Where tensors belong: "cpu" or "cuda"."""

    def unavailable(self) -> str | None:
        """One sentence on why it cannot run here and what would change that; None when it can."""

    def counting(self, names: Collection[str]) -> Backend:
        """The backend with the counters of these names, where it has them and does not count them unasked."""

    def hurried(self, names: Collection[str]) -> Backend:
        """The backend for an answer of the course's own, without what only counters of other names need."""

    def session(self) -> contextlib.AbstractContextManager[Session]:
        """Answers called inside the block run on this backend. Raises BackendUnavailable."""


@dataclass(frozen=True)
class _Backend:
    name: str
    device: str
    reason: Callable[[], str | None]
    enter: Callable[[], contextlib.AbstractContextManager[Session]]

    def unavailable(self) -> str | None:
        return self.reason()

    def counting(self, names: Collection[str]) -> _Backend:
        return self

    def hurried(self, names: Collection[str]) -> _Backend:
        return self

    @contextlib.contextmanager
    def session(self) -> Iterator[Session]:
        if reason := self.reason():
            raise BackendUnavailable(f"the backend {self.name} cannot run here: {reason}")
        with self.enter() as session:
            yield session


@contextlib.contextmanager
def _gpu_session() -> Iterator[Session]:
    with record_launches() as launches:
        yield Session("cuda", launches)


@contextlib.contextmanager
def _cpu_session() -> Iterator[Session]:
    yield Session("cpu", counts_launches=False)


@contextlib.contextmanager
def _interpreter_session() -> Iterator[Session]:
    with interpreter(), record_launches() as launches:
        yield Session("cpu", launches)


def interpreter() -> contextlib.AbstractContextManager[None]:
    """A block in which plain `@triton.jit` kernels run on CPU tensors in Triton's interpreter.

    See `gpu_utils.backends.interpreting.interpreter`, which this loads when it is first used.
    """
    from gpu_utils.backends.interpreting import interpreter as block

    return block()


def _no_gpu() -> str | None:
    import torch

    if os.environ.get("TRITON_INTERPRET") == "1":
        return "TRITON_INTERPRET=1 is set, so Triton interprets every kernel; unset it and restart Python"
    if torch.version.cuda is None and torch.version.hip is None:
        return "this torch is built for the CPU only; install the CUDA or ROCm build to use a GPU"
    try:
        seen = torch.cuda.is_available()
    except Exception as problem:
        return f"torch could not ask the driver ({type(problem).__name__}: {problem}); run {w2w('doctor')}"
    return None if seen else f"torch sees no NVIDIA or AMD GPU; run {w2w('doctor')} to see what is missing"


def _no_triton() -> str | None:
    try:
        import triton  # noqa: F401
    except ImportError:
        return "Triton is not installed; its wheels exist for Linux, so use Linux or a Linux container"
    return None


def _never() -> str | None:
    return None


BACKENDS: dict[str, Backend] = {
    "gpu": _Backend("gpu", "cuda", _no_gpu, _gpu_session),
    "cpu": _Backend("cpu", "cpu", _never, _cpu_session),
    "interpreter": _Backend("interpreter", "cpu", _no_triton, _interpreter_session),
}
"""Every backend with a plain name."""


def _virtual(name: str) -> Backend:
    target = name.partition(":")[2]
    return AiCoreBackend(name, target) if target in NPUS else virtual(name)


PREFIXES: dict[str, Callable[[str], Backend]] = {"virtual": _virtual}
"""Families of backends: the word before the colon -> a function of the whole name."""


def backend(name: str) -> Backend:
    """The backend of that name. Raises UnknownName with the nearest names."""
    family, colon, _rest = name.partition(":")
    if colon and family in PREFIXES:
        return PREFIXES[family](name)
    if name in BACKENDS:
        return BACKENDS[name]
    raise UnknownName("backend", name, [*BACKENDS, *(f"{prefix}:<target>" for prefix in PREFIXES)])
