"""Random numbers of the GPU: a generator of its own, so that seeding one side leaves the other alone.

The bits are those of torch's generator on the CPU; a GPU draws others for the same seed.
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


class _Kind(type(_Generator)):  # type: ignore[misc]
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, _Generator)


class CudaGenerator(_Generator, metaclass=_Kind):
    """`torch.Generator`, which may be asked for the device "cuda"."""

    def __new__(cls, device: Any = "cpu") -> Any:
        if wanted(device) == "cuda":
            return _Generator.__new__(cls, device="cpu")  # type: ignore[call-arg]
        return _Generator(device=device)

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return CUDA


default = CudaGenerator("cuda")


@contextmanager
def of_gpu() -> Iterator[None]:
    """Inside the block operations without a generator draw from the GPU's."""
    with _lock:
        before = torch.default_generator.get_state()
        torch.default_generator.set_state(default.get_state())
        try:
            yield
        finally:
            default.set_state(torch.default_generator.get_state())
            torch.default_generator.set_state(before)


def _get(device: Any = None) -> torch.Tensor:
    return default.get_state()


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
