"""The kernel set: small Triton kernels of every kind, each with an exact or float64 reference.

A case is a function that launches kernels on CPU tensors (the caller made a virtual GPU active) and returns
checks: (name, got, expected, tolerance). Tolerance 0 means bit for bit, except that any NaN equals any NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import torch

Check = tuple[str, torch.Tensor, torch.Tensor, float]


@dataclass(frozen=True)
class Case:
    """name; run(target) -> checks; refused: target -> why it cannot run there."""

    name: str
    run: Callable[[str], Iterable[Check]]
    refused: dict[str, str] = field(default_factory=dict)


CASES: dict[str, Case] = {}


def case(refused: dict[str, str] | None = None) -> Callable[[Callable[[str], Iterable[Check]]], Case]:
    """Register a case under the name of its function."""

    def register(run: Callable[[str], Iterable[Check]]) -> Case:
        made = Case(run.__name__, run, refused or {})
        assert made.name not in CASES, made.name
        CASES[made.name] = made
        return made

    return register


def compare(name: str, got: torch.Tensor, want: torch.Tensor, tolerance: float) -> None:
    """Raise AssertionError with the first wrong element."""
    assert got.shape == want.shape, f"{name}: shape {tuple(got.shape)}, expected {tuple(want.shape)}"
    a, b = got.double(), want.double()
    if tolerance == 0 and not got.dtype.is_floating_point:
        good = got.to(torch.int64) == want.to(torch.int64)
    else:
        good = (a - b).abs() <= tolerance * b.abs().clamp(min=1.0)
        good |= (a == b) | (a.isnan() & b.isnan())
    wrong = (~good).flatten().nonzero().flatten()
    assert not len(wrong), (
        f"{name}: {len(wrong)} of {good.numel()} wrong, the first at {int(wrong[0])}: "
        f"{got.flatten()[wrong[0]].item()}, expected {want.flatten()[wrong[0]].item()}"
    )


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def randn(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=generator(seed)).to(dtype)


def randint(low: int, high: int, *shape: int, dtype: torch.dtype = torch.int32, seed: int = 0) -> torch.Tensor:
    return torch.randint(low, high, shape, generator=generator(seed), dtype=torch.int64).to(dtype)
