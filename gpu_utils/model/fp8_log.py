"""What FP8 training saw of each operand: its largest number, the scale in use, what saturated and what became zero."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from gpu_utils.errors import UnknownName
from gpu_utils.model.fp8_scaling import Scaled, beyond, largest

Operand = Literal["x", "w", "dy"]
OPERANDS: tuple[Operand, ...] = ("x", "w", "dy")


@dataclass(frozen=True)
class Series:
    """One operand of one layer, a figure for each step.

    steps        numbers of the steps, from 1
    amax         largest |x|
    scale        the scale in use; of many tiles the largest
    reach        amax as a share of the largest number that this scale can hold; what is above 1 saturates
    saturated    share of the elements that lay beyond it
    underflowed  share of the elements that were not zero, and are
    """

    steps: list[int]
    amax: list[float]
    scale: list[float]
    reach: list[float]
    saturated: list[float]
    underflowed: list[float]


class AmaxLog:
    """A record of every quantisation of a training step; the loop that trains sets `step`.

    Figures stay on the device until they are read: nothing here waits for a GPU.
    """

    def __init__(self) -> None:
        self.step = 1
        self._found: dict[tuple[str, Operand], list[tuple[int, Tensor]]] = defaultdict(list)

    @property
    def layers(self) -> list[str]:
        """The converted layers, in the order of their first forward pass."""
        return list(dict.fromkeys(layer for layer, _ in self._found))

    def add(
        self, layer: str, operand: Operand, x: Tensor, amax: Tensor, q: Scaled, values: Tensor, *, fits: bool
    ) -> None:
        """Note a quantisation of x (R, C) with largest number amax () into q, whose values are given.

        fits: the scales are those of the matrix itself, so that nothing can lie beyond them and nobody has to count.
        """
        scale = q.scales.amax()
        over = torch.zeros_like(scale) if fits else beyond(x, q) / x.numel()
        lost = torch.count_nonzero(x) - torch.count_nonzero(values)
        reach = amax / (scale * largest(q.codes.dtype))
        figures = torch.stack([amax, scale, reach, over, lost / x.numel()])
        self._found[layer, operand].append((self.step, figures))

    def series(self, layer: str, operand: Operand) -> Series:
        """The record of one operand. Passes of one step count as one: largest amax, scale and reach, mean shares.

        Raises UnknownName where the log has none, as for dy before the first backward pass.
        """
        if (layer, operand) not in self._found:
            raise UnknownName("entry of the log", f"{layer} {operand}", [" ".join(key) for key in self._found])
        found = self._found[layer, operand]
        table = torch.stack([figures for _, figures in found]).cpu()
        passes: dict[int, list[int]] = defaultdict(list)
        for number, (step, _) in enumerate(found):
            passes[step].append(number)
        rows = [(table[numbers, :3].amax(0), table[numbers, 3:].mean(0)) for numbers in passes.values()]
        amax, scale, reach, saturated, underflowed = torch.stack([torch.cat(row) for row in rows]).T.tolist()
        return Series(list(passes), amax, scale, reach, saturated, underflowed)

    def nearest_edge(self) -> tuple[str, Operand]:
        """Layer and operand whose amax came nearest to the largest number of its scale, or went farthest beyond it."""
        return max(self._found, key=lambda key: max(filter(math.isfinite, self.series(*key).reach), default=0.0))
