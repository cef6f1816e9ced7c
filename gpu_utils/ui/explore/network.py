"""A collective on a network, step by step: transfers, the bytes of each link, the busiest ones, time by terms."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from gpu_utils.analytic.collectives import Schedule, collective_schedules
from gpu_utils.analytic.network import TOPOLOGIES, Network, StepCost, Transfer
from gpu_utils.errors import BadArgument, UnknownName
from gpu_utils.ui.explore.drawing import (
    Picture,
    beside,
    box,
    count,
    heading,
    path,
    picture,
    small,
    svg,
    table,
    text,
)
from gpu_utils.ui.explore.widget import Explorer, choice, slider

COLLECTIVES = ("all-reduce", "all-to-all")
ALGORITHMS = {
    "all-reduce": ("ring", "tree", "halving and doubling", "direct", "hierarchical"),
    "all-to-all": ("direct", "rounds", "two-hop"),
}
_NAMES = tuple(dict.fromkeys(name for names in ALGORITHMS.values() for name in names))
SMALLEST, LARGEST = 12, 30
_WIDE, _RANK, _PITCH, _LEFT = 470.0, 40.0, 54.0, 22.0
_UNITS = ("bytes", "KiB", "MiB", "GiB")


def schedule_of(network: Network, collective: str, algorithm: str) -> Schedule:
    """Errors: BadArgument for an algorithm that this collective or this network does not have."""
    found = collective_schedules(collective, network.nodes)
    if algorithm not in found:
        raise BadArgument(
            f"{algorithm} is no {collective} on {network.name}; there are {', '.join(found)}. "
            "hierarchical and two-hop need several nodes."
        )
    return found[algorithm]


def draw(topology: str, collective: str, algorithm: str, power: int, step: int) -> Picture:
    """One step on the network, beside the bytes of its links and the time of all steps.

    topology   of TOPOLOGIES; collective: of COLLECTIVES; algorithm: of ALGORITHMS
    power      the message of a rank has 2 to this power bytes
    step       counted from 1; a larger one stands for the last

    Errors: UnknownName, and BadArgument as in `schedule_of`.
    """
    if topology not in TOPOLOGIES:
        raise UnknownName("topology", topology, TOPOLOGIES)
    network = TOPOLOGIES[topology]()
    found = schedule_of(network, collective, algorithm)
    steps = found.transfers(2**power)
    step = min(step, len(steps))
    cost = network.cost(steps[step - 1])
    words = _words(network, found, steps, step, cost, 2**power)
    title = f"{algorithm.capitalize()} {collective} of {amount(2**power)}: step {step} of {len(steps)}"
    drawing = _mesh if " to " in next(iter(network.links)) else _switches
    left = picture("", words, heading(title), svg(*drawing(network, steps[step - 1], cost), words))
    right = picture(
        "",
        _best(network, collective, power),
        heading("Links in this step"),
        _links(network, cost),
        _time(network, collective, algorithm, power),
    )
    return beside(left, right)


def amount(size: float) -> str:
    """Bytes for people.

    >>> amount(512), amount(2**20), amount(1.5 * 2**30)
    ('512 bytes', '1 MiB', '1.5 GiB')
    """
    at = min(int(math.log2(size)) // 10, len(_UNITS) - 1) if size >= 1 else 0
    return f"{size / 1024**at:.4g} {_UNITS[at]}"


def micro(seconds: float | None) -> str:
    """Microseconds for people; "unknown" for None."""
    return "unknown" if seconds is None else f"{1e6 * seconds:,.1f} µs"


def _words(network: Network, found: Schedule, steps: list[list[Transfer]], step: int, cost: StepCost, size: int) -> str:
    moves = steps[step - 1]
    each = {size for _, _, size in moves}
    sizes = amount(min(each)) if len(each) == 1 else f"{amount(min(each))} to {amount(max(each))}"
    many = len(_busiest(network, cost))
    busiest = f"{many} links are equally busy, as {cost.busiest}" if many > 1 else f"Busiest link: {cost.busiest}"
    alpha, transfer = network.terms(steps)
    whole = (
        f"All {count(len(steps), 'step')}: {micro(alpha + transfer)}, of which {micro(alpha)} are alpha."
        if alpha is not None
        else f"All {count(len(steps), 'step')}: {micro(transfer)} for the bytes; alpha is unknown, so no time is given."
    )
    return (
        f"{found.name.capitalize()} {found.collective} on {network.name}, {amount(size)} a rank. Step {step} of "
        f"{len(steps)}: {count(len(moves), 'transfer')} of {sizes}. {busiest}: "
        f"{amount(cost.loads[cost.busiest])}, {micro(cost.transfer)} and alpha {micro(cost.alpha)}. {whole}"
    )


def _busiest(network: Network, cost: StepCost) -> set[str]:
    """The links that are busy for longest in this step: often many, equally so."""
    longest = _busy(network, cost.busiest, cost.loads[cost.busiest])
    return {name for name, size in cost.loads.items() if math.isclose(_busy(network, name, size), longest)}


def _line(cost: StepCost, busiest: set[str], name: str, points: list[tuple[float, float]]) -> str:
    """A link: faint when it carries nothing, coloured when it does, black and dashed when no other is busier."""
    if name in busiest:
        return path(points, "edge", "6 3")
    return path(points, "hue" if name in cost.loads else "grid")


def _rank(rank: int, x: float, y: float) -> list[str]:
    return [
        box(x, y, _RANK, 24, "done"),
        box(x, y, _RANK, 24, "odd"),
        text(x + _RANK / 2, y + 16, rank, at="middle", bold=True),
    ]


def _switches(network: Network, step: Iterable[Transfer], cost: StepCost) -> tuple[float, float, list[str]]:
    """Each node a row of ranks under its switch; where there are several, a network between them."""
    nodes = max(network.nodes) + 1
    each = network.ranks // nodes
    parts, wide = [], each * _PITCH
    net_y = 150.0
    busiest = _busiest(network, cost)
    for node in range(nodes):
        up = node == 0
        rank_y, bar_y = (80.0, 18.0) if up else (222.0, 288.0)
        parts += [box(_LEFT, bar_y, wide - 14, 18, "room"), text(_LEFT + 6, bar_y + 13, f"switch of node {node}")]
        for place in range(each):
            rank, x = node * each + place, _LEFT + place * _PITCH
            to_bar = (rank_y, bar_y + 18) if up else (rank_y + 24, bar_y)
            for at, way in enumerate(("out", "in")):
                parts.append(_line(cost, busiest, f"{rank} {way}", [(x + 12 + 16 * at, y) for y in to_bar]))
                if f"{rank} net {way}" in network.links:
                    to_net = (rank_y + 24, net_y) if up else (rank_y, net_y + 18)
                    parts.append(_line(cost, busiest, f"{rank} net {way}", [(x + 12 + 16 * at, y) for y in to_net]))
            parts += _rank(rank, x, rank_y)
    if nodes > 1:
        parts += [box(_LEFT, net_y, wide - 14, 18, "room"), text(_LEFT + 6, net_y + 13, "network")]
    height = 312.0 if nodes > 1 else 112.0
    return _WIDE, height + 36, parts + _legend(height + 8, "left line of a rank: out; right line: in")


def _mesh(network: Network, step: Iterable[Transfer], cost: StepCost) -> tuple[float, float, list[str]]:
    """Ranks on a circle, a cable for each pair; a cable is coloured if it carries anything in either direction."""
    middle, radius = (_WIDE / 2, 176.0), 150.0
    at = [
        (
            middle[0] + radius * math.sin(2 * math.pi * r / network.ranks),
            middle[1] - radius * math.cos(2 * math.pi * r / network.ranks),
        )
        for r in range(network.ranks)
    ]
    busiest = _busiest(network, cost)
    faint: list[str] = []
    used: list[str] = []
    for low in range(network.ranks):
        for high in range(low + 1, network.ranks):
            names = (f"{low} to {high}", f"{high} to {low}")
            name = next((one for one in names if one in busiest), "") or next(
                (one for one in names if one in cost.loads), names[0]
            )
            (used if name in cost.loads else faint).append(_line(cost, busiest, name, [at[low], at[high]]))
    parts = faint + used
    for rank, (x, y) in enumerate(at):
        parts += _rank(rank, x - _RANK / 2, y - 12)
    return _WIDE, 392.0, parts + _legend(356, "one line for both directions of a pair")


def _legend(y: float, more: str) -> list[str]:
    parts, x = [], _LEFT
    for kind, dashes, words in (
        ("hue", "", "carries bytes"),
        ("edge", "6 3", "busiest: none takes longer"),
        ("grid", "", "idle"),
    ):
        parts += [path([(x, y), (x + 22, y)], kind, dashes), text(x + 28, y + 4, words, size=11)]
        x += 40 + 7 * len(words)
    return [*parts, text(_LEFT, y + 20, more, size=11)]


def _links(network: Network, cost: StepCost) -> str:
    """Links with the same load and time in one row, the longest first."""
    rows: dict[tuple[int, str], list[str]] = {}
    for name, size in cost.loads.items():
        wire = network.links[name]
        busy = None if wire.alpha is None else wire.alpha + size / wire.bandwidth
        shown = micro(size / wire.bandwidth) + " + alpha" if busy is None else micro(busy)
        rows.setdefault((size, shown), []).append(name)
    order = sorted(rows, key=lambda key: -max(_busy(network, name, key[0]) for name in rows[key]))
    lines = [(_some(rows[key]), amount(key[0]), key[1]) for key in order]
    busiest = _busiest(network, cost)
    marked = [at for at, key in enumerate(order) if busiest & set(rows[key])]
    idle = len(network.links) - len(cost.loads)
    return table(("links", "bytes of each", "busy"), lines, marked) + small(
        f"{count(len(cost.loads), 'link')} of {len(network.links)} carry something; {idle} are idle."
    )


def _busy(network: Network, name: str, size: int) -> float:
    wire = network.links[name]
    return (wire.alpha or 0.0) + size / wire.bandwidth


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:4])
    return shown if len(names) <= 4 else f"{shown} ... ({len(names)} links)"


def _best(network: Network, collective: str, power: int) -> str:
    """Which algorithm is the fastest here, in a sentence; by its bytes alone where alpha is unknown."""
    times, known = {}, True
    for name, one in collective_schedules(collective, network.nodes).items():
        alpha, transfer = network.terms(one.transfers(2**power))
        known &= alpha is not None
        times[name] = (alpha or 0.0) + transfer
    best = min(times, key=lambda name: times[name])
    how = "takes least time" if known else "needs least time for its bytes (alpha is unknown)"
    return f"Of {count(len(times), 'algorithm')} for this size {best} {how}: {micro(times[best])}."


def _time(network: Network, collective: str, algorithm: str, power: int) -> str:
    """Steps and time by terms of every algorithm on this network; the chosen one is marked."""
    rows = []
    found: Mapping[str, Schedule] = collective_schedules(collective, network.nodes)
    for name, one in found.items():
        steps = one.transfers(2**power)
        alpha, transfer = network.terms(steps)
        rows.append(
            (name, len(steps), micro(alpha), micro(transfer), micro(None if alpha is None else alpha + transfer))
        )
    return heading("All steps, by terms") + table(
        ("algorithm", "steps", "alpha", "bytes", "together"), rows, [list(found).index(algorithm)]
    )


def explorer(
    *,
    topology: str = "8 H100, NVLink switch",
    collective: str = "all-reduce",
    algorithm: str = "ring",
    power: int = 24,
    step: int = 1,
) -> Any:
    """Lists for network, collective and algorithm; sliders for the size and the step.

    Errors: UnknownName for what is not in the lists; BadArgument for an algorithm that does not fit, a size that is
    not offered, and a step that there is not.
    """
    if not SMALLEST <= power <= LARGEST:
        raise BadArgument(f"power is {power}; expected {SMALLEST} to {LARGEST}")
    controls = {
        "topology": choice("network", list(TOPOLOGIES), topology),
        "collective": choice("collective", COLLECTIVES, collective),
        "algorithm": choice("algorithm", _NAMES, algorithm),
        "power": slider("bytes: 2 to the", power, SMALLEST, LARGEST),
    }
    last = len(schedule_of(TOPOLOGIES[topology](), collective, algorithm).steps)
    if not 1 <= step <= last:
        raise BadArgument(f"there is no step {step}; expected 1 to {last}")
    controls["step"] = slider("step", step, 1, last)
    found = Explorer(draw, controls)

    def steps(_: Any) -> None:
        network = TOPOLOGIES[controls["topology"].value]()
        of_network = collective_schedules(controls["collective"].value, network.nodes)
        if controls["algorithm"].value in of_network:
            controls["step"].max = len(of_network[controls["algorithm"].value].steps)

    for name in ("topology", "collective", "algorithm"):
        controls[name].observe(steps, names="value")
    return found
