"""A tile program with what it is held to: sizes, inputs from a seed, and the result in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from gpu_utils.analytic.tolerance import tolerance

TILE_CASES: dict[str, TileCase] = {}


@dataclass(frozen=True)
class TileCase:
    """One operator as a tile program.

    name      of the operator and what is special about this case
    program   `program(T, vendor, **sizes)`
    sizes     what it is lowered with
    inputs    random number generator -> the input tensors, in the order of the kernel's parameters
    outputs   shape and dtype of each output; they follow the inputs
    expected  inputs -> each output in float64
    terms     how many products or sums an element of the result goes through
    magnitude typical size of one term
    roundings how often a value of the size of the result is rounded
    refused   vendor -> words of TileLang's message, where it does not lower this
    """

    name: str
    program: Callable[..., Any]
    sizes: Mapping[str, Any]
    inputs: Callable[[torch.Generator], Sequence[torch.Tensor]]
    outputs: Sequence[tuple[tuple[int, ...], torch.dtype]]
    expected: Callable[..., Sequence[torch.Tensor]]
    terms: int = 1
    magnitude: float = 1.0
    roundings: int = 2
    refused: Mapping[str, str] = field(default_factory=dict)

    def tensors(self, seed: int) -> list[torch.Tensor]:
        """Inputs of a seed, and outputs full of NaN."""
        generator = torch.Generator().manual_seed(seed)
        given = list(self.inputs(generator))
        return [*given, *(torch.full(shape, float("nan"), dtype=dtype) for shape, dtype in self.outputs)]

    def wrong(self, tensors: Sequence[torch.Tensor]) -> list[str]:
        """What is beyond its tolerance in the outputs at the end of `tensors`; empty where all is right."""
        given = len(tensors) - len(self.outputs)
        said = []
        for got, exact in zip(tensors[given:], self.expected(*tensors[:given]), strict=True):
            allowed = tolerance(
                got.dtype, k=self.terms, magnitude=self.magnitude, accumulator=torch.float32, roundings=self.roundings
            )
            off = (got.double() - exact).abs() - (allowed.atol + allowed.rtol * exact.abs())
            if not bool((off <= 0).all()):
                said.append(
                    f"{self.name}: {int((~(off <= 0)).sum())} of {off.numel()} elements off, by up to {off.max()}"
                )
        return said


def tile_case(case: TileCase) -> TileCase:
    """Enter a case by its name."""
    TILE_CASES[case.name] = case
    return case
