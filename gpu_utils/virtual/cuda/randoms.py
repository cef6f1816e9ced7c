"""Random numbers of the GPU: a generator of its own, so that seeding one side leaves the other alone.

The bits are those of torch's generator on the CPU; a GPU draws others for the same seed. `get_state` of a generator
gives what a GPU's gives, a seed and an offset: packages hand them to Philox in their kernels, and move the offset.
`torch.cuda.get_rng_state` gives the CPU generator's whole state, which another process can go on from.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from gpu_utils.virtual.cuda.marks import CUDA, wanted

_Generator = torch._C.Generator
_lock = threading.RLock()
MOST_POINTS = 1000
"""States that a generator keeps, 5 kB each; the oldest goes first."""


class _Kind(type(_Generator)):  # type: ignore[misc]
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, _Generator)


class CudaGenerator(_Generator, metaclass=_Kind):
    """`torch.Generator`, which may be asked for the device "cuda"."""

    points: dict[tuple[int, int], torch.Tensor]
    now: tuple[int, int]

    def __new__(cls, device: Any = "cpu") -> Any:
        if wanted(device) == "cuda":
            made = _Generator.__new__(cls, device="cpu")  # type: ignore[call-arg]
            made.points, made.now = {}, (made.initial_seed(), 0)
            return made
        return _Generator(device=device)

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return CUDA

    def _point(self) -> tuple[int, int]:
        """(seed, offset); each point is kept with the whole state, so that `set_state` can come back to it."""
        points, now, whole = self.points, self.now, _Generator.get_state(self)
        if now[0] != self.initial_seed():
            now = (self.initial_seed(), 0)
        while now in points and not torch.equal(points[now], whole):  # something was drawn
            now = (now[0], now[1] + 4)
        self.now = now
        points.pop(now, None)
        points[now] = whole
        while len(points) > MOST_POINTS:
            del points[next(iter(points))]
        return now

    def get_state(self) -> torch.Tensor:
        """Seed and offset, 64 bits each, as uint8 (16,)."""
        seed, offset = self._point()
        words = [seed - (1 << 64) if seed >> 63 else seed, offset]
        return torch.tensor(words, dtype=torch.int64, device="cpu").view(torch.uint8)

    def set_state(self, state: torch.Tensor) -> CudaGenerator:
        """Back to a point, or to a new one, whose bits follow from seed and offset; or the state of a CPU generator."""
        if state.numel() != 16:
            _Generator.set_state(self, state)
            return self
        seed, offset = (int(word) & (1 << 64) - 1 for word in state.cpu().view(torch.int64))
        whole = self.points.get((seed, offset))
        _Generator.manual_seed(self, seed)
        if whole is None and offset:
            _Generator.manual_seed(self, (seed + offset * 0x9E3779B97F4A7C15) & (1 << 64) - 1)
            whole = _Generator.get_state(self)
            _Generator.manual_seed(self, seed)
            whole[:8] = _Generator.get_state(self)[:8]  # the seed that initial_seed() says
        if whole is not None:
            _Generator.set_state(self, whole)
        self.now = (seed, offset)
        self.points[seed, offset] = _Generator.get_state(self)
        return self

    def manual_seed(self, seed: int) -> CudaGenerator:
        _Generator.manual_seed(self, seed)
        self.now = (self.initial_seed(), 0)
        self.points[self.now] = _Generator.get_state(self)
        return self

    def get_offset(self) -> int:
        return self._point()[1]


default = CudaGenerator("cuda")


@contextmanager
def of_gpu() -> Iterator[None]:
    """Inside the block operations without a generator draw from the GPU's."""
    with _lock:
        before = torch.default_generator.get_state()
        torch.default_generator.set_state(_get())
        try:
            yield
        finally:
            default.set_state(torch.default_generator.get_state())
            torch.default_generator.set_state(before)


def _get(device: Any = None) -> torch.Tensor:
    return _Generator.get_state(default)


def _set(state: torch.Tensor, device: Any = None) -> None:
    default.set_state(state.cpu())


def _set_all(states: Iterable[torch.Tensor]) -> None:
    for state in states:
        _set(state)


def _seed(seed: int) -> None:
    default.manual_seed(int(seed))


def functions() -> dict[str, Any]:
    """The functions of torch.cuda about random numbers, by name."""
    several: dict[str, Callable[..., Any]] = {"get_rng_state_all": lambda: [_get()], "set_rng_state_all": _set_all}
    return {
        "get_rng_state": _get,
        "set_rng_state": _set,
        **several,
        **dict.fromkeys(("manual_seed", "manual_seed_all"), _seed),
        **dict.fromkeys(("seed", "seed_all"), lambda: _seed(torch.default_generator.seed())),
        "initial_seed": lambda: default.initial_seed(),
        "default_generators": (default,),
        "_is_in_bad_fork": lambda: False,
    }
