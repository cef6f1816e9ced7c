"""Curves over steps: losses, rates, norms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

from gpu_utils.errors import BadArgument

_WIDTH, _INCH_HIGH = 7.0, 2.6
_STYLES = ("--", "-.", ":")


def curves(
    values: Mapping[str, Any],
    ylabel: str,
    *,
    levels: Mapping[str, float] | None = None,
    log: bool = False,
    xlabel: str = "step",
) -> None:
    """Draw curves over the steps 1, 2, ... of a run, with level lines to compare with.

    values  name -> numbers, one a step; or name -> (step, number) pairs, drawn with dots
    ylabel  what the numbers are, with their unit
    levels  name -> number of a level line
    xlabel  what the first numbers of pairs are, where they are no steps
    log     a logarithmic scale; otherwise it starts at 0 where the curves come near it

    Raises BadArgument where there is nothing to draw.
    """
    import matplotlib.pyplot as plt

    if not values or not all(len(numbers) for numbers in values.values()):
        raise BadArgument("curves were asked for no numbers; expected at least one for each name")
    figure, axes = plt.subplots(figsize=(_WIDTH, _INCH_HIGH), layout="constrained")
    for name, numbers in values.items():
        if isinstance(numbers[0], Sequence):
            axes.plot(*zip(*numbers, strict=True), "o-", label=name)
        else:
            axes.plot(range(1, len(numbers) + 1), numbers, linewidth=0.9, label=name)
    for style, (name, level) in zip(cycle(_STYLES), (levels or {}).items(), strict=False):
        axes.axhline(level, linestyle=style, color="black", linewidth=0.9, label=name)
    axes.set(xlabel=xlabel, ylabel=ylabel, yscale="log" if log else "linear")
    low, high = axes.get_ylim()
    if not log and low < high / 4:
        axes.set_ylim(0, None)
    if len(values) + len(levels or {}) > 1:
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    plt.show()
    plt.close(figure)
