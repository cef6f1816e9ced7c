"""What was measured beside what is promised: points and the line that they should stay below, on logarithmic axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpu_utils.errors import BadArgument

_SIZE = (7.0, 3.4)
_MARKS = "osD^v<>"

Points = Sequence[tuple[float, float]]


def bound_figure(
    measured: Mapping[str, Points], bounds: Mapping[str, Points], ylabel: str, *, xlabel: str = "K"
) -> None:
    """Draw measured points with their bounds on two logarithmic axes, those of one name in one colour.

    measured  name -> (x, y) pairs, drawn as points; a y of 0 has no place on such an axis and is left out
    bounds    name -> (x, y) pairs of the dashed line; every name is among those of `measured`
    ylabel, xlabel  what the numbers are, with their unit

    Raises BadArgument where there is nothing to draw, and for a bound of something that was not measured.
    """
    import matplotlib.pyplot as plt

    if not measured or not all(measured.values()) or not set(bounds) <= set(measured):
        raise BadArgument(
            f"measured: {', '.join(measured) or 'nothing'}; bounds: {', '.join(bounds) or 'none'}; expected points for "
            "each name, and bounds of what was measured only"
        )
    figure, axes = plt.subplots(figsize=_SIZE, layout="constrained")
    for at, (name, points) in enumerate(measured.items()):
        x, y = zip(*[pair for pair in points if pair[1] > 0] or [(float("nan"), float("nan"))], strict=True)
        axes.plot(x, y, _MARKS[at % len(_MARKS)], color=f"C{at}", markersize=4, label=name)
        if name in bounds:
            axes.plot(*zip(*bounds[name], strict=True), "--", color=f"C{at}", linewidth=1, label=f"{name}: bound")
    axes.set(xlabel=xlabel, ylabel=ylabel, xscale="log", yscale="log")
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    plt.show()
    plt.close(figure)
