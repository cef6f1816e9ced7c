"""What a kernel of the set declares: its name, the targets it runs on, and one function that launches and checks it.

The function gets a `Run`. It draws inputs, launches kernels on CPU tensors, and states what must come out, as
`Result`s: exact, or a sum of k products in a given type. Judging is the caller's: tests and measurements share the set.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from gpu_utils.virtual import MODELS

NVIDIA = tuple(name for name, row in MODELS.items() if row.vendor == "nvidia")
AMD = tuple(name for name, row in MODELS.items() if row.vendor == "amd")
TARGETS = NVIDIA + AMD
FP8 = {
    "none": (torch.float8_e5m2,),
    "ocp": (torch.float8_e4m3fn, torch.float8_e5m2),
    "fnuz": (torch.float8_e4m3fnuz, torch.float8_e5m2fnuz),
}
"""Flavour of a target's 8-bit floats -> types."""


@dataclass(frozen=True)
class Result:
    """One output of a case and what it must be.

    got and expected have the same shape; expected is float64 for floating outputs and of the same type otherwise.
    k: products or terms summed (0: the output is exact). magnitude: typical size of a term. accumulator: type of the
    running sum, and roundings: how often a value of the size of the result is rounded; see grading.tolerance.
    """

    name: str
    got: torch.Tensor
    expected: torch.Tensor
    k: int = 0
    magnitude: float = 1.0
    accumulator: torch.dtype | None = None
    roundings: int = 2


class Run:
    """One run of a case on one target.

    target: as in TARGETS, or "interpreter". large: sizes for measuring instead of testing. seconds: time spent inside
    launches so far. results: what the case stated so far.
    """

    def __init__(self, target: str, seed: int = 0, large: bool = False) -> None:
        self.target, self.large = target, large
        self.random = torch.Generator().manual_seed(seed)
        self.seconds = 0.0
        self.results: list[Result] = []

    @property
    def nvidia(self) -> bool:
        return self.target in NVIDIA

    @property
    def capability(self) -> int:
        """NVIDIA's compute capability, 90 for sm_90; 0 for AMD and Triton's interpreter."""
        return MODELS[self.target].capability if self.target in MODELS else 0

    @property
    def inputs(self) -> tuple[str, ...]:
        """What the matrix instructions of the target take; nothing for Triton's interpreter."""
        return MODELS[self.target].inputs if self.target in MODELS else ()

    @property
    def matrix(self) -> tuple[str, ...]:
        """The target's matrix instructions; nothing for Triton's interpreter."""
        return MODELS[self.target].matrix if self.target in MODELS else ()

    @property
    def flavour(self) -> str:
        """Flavour of the target's 8-bit floats: "none", "ocp" or "fnuz"."""
        return MODELS[self.target].fp8 if self.target in MODELS else "none"

    @property
    def fp8(self) -> tuple[torch.dtype, ...]:
        """The FP8 types that the target's compiler takes; without FP8 in hardware Triton converts E5M2 itself."""
        return FP8[self.flavour]

    def size(self, small: int, large: int) -> int:
        """A size of the problem: `small` when testing, `large` when measuring."""
        return large if self.large else small

    def normal(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Normal numbers, rounded to `dtype`."""
        return torch.randn(shape, generator=self.random).to(dtype)

    def uniform(self, low: float, high: float, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Numbers of [low, high), rounded to `dtype`."""
        return (torch.rand(shape, generator=self.random, dtype=torch.float64) * (high - low) + low).to(dtype)

    def integers(self, low: int, high: int, *shape: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
        """Integers of [low, high)."""
        return torch.randint(low, high, shape, generator=self.random, dtype=torch.int64).to(dtype)

    def launch(self, kernel: Any, grid: Any, *args: Any, **meta: Any) -> None:
        """`kernel[grid](*args, **meta)`, timed."""
        start = time.perf_counter()
        kernel[grid](*args, **meta)
        self.seconds += time.perf_counter() - start

    def equal(self, name: str, got: torch.Tensor, expected: torch.Tensor) -> None:
        """State that an output is exact, bit for bit up to the sign of zero and the payload of NaN."""
        self.results.append(Result(name, got, expected))

    def close(
        self,
        name: str,
        got: torch.Tensor,
        expected: torch.Tensor | None,
        k: int = 1,
        magnitude: float = 1.0,
        **how: Any,
    ) -> None:
        """State that an output is the float64 `expected` (a gradient that exists) within the tolerance of Result."""
        assert expected is not None
        self.results.append(Result(name, got, expected, k, magnitude, **how))


@dataclass(frozen=True)
class KernelCase:
    """One kernel of the set, or a family that shares one source. why: set when targets are missing."""

    name: str
    body: Callable[[Run], None]
    targets: tuple[str, ...] = TARGETS
    why: str = ""


CASES: dict[str, KernelCase] = {}


def case(targets: Sequence[str] = TARGETS, why: str = "") -> Callable[[Callable[[Run], None]], Callable[[Run], None]]:
    """Add a function to the set, under its own name."""

    def add(body: Callable[[Run], None]) -> Callable[[Run], None]:
        CASES[body.__name__] = KernelCase(body.__name__, body, tuple(targets), why)
        return body

    return add
