"""A network of ranks: links with a start-up time and a bandwidth, routes over them, and what a step costs.

A *step* is a list of transfers (source, destination, bytes) that run at the same time. A transfer occupies every link
of its route, and the transfers that share a link share its bandwidth. So a link with transfers is busy for

    alpha + bytes of all of them / bandwidth

and the step ends when its slowest link does. The next step begins when this one has ended. Links have one direction: a
cable that carries both ways is two of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpu_utils.chips.links import LINKS
from gpu_utils.errors import BadArgument

Transfer = tuple[int, int, int]
"""Source, destination, bytes."""


@dataclass(frozen=True)
class Wire:
    """One link of a network. alpha: seconds, None where nobody says; bandwidth: bytes a second, one direction."""

    alpha: float | None
    bandwidth: float

    def __post_init__(self) -> None:
        if self.bandwidth <= 0 or (self.alpha is not None and self.alpha < 0):
            raise BadArgument(f"a link has alpha {self.alpha} and {self.bandwidth} bytes/s; expected >= 0 and > 0")


@dataclass(frozen=True)
class StepCost:
    """What one step costs.

    busiest  the link that is busy longest; "" for a step without transfers
    alpha    its start-up time; None where that of a link in use is unknown
    transfer its bytes over its bandwidth, in seconds
    loads    bytes on each link that carries any
    """

    busiest: str
    alpha: float | None
    transfer: float
    loads: Mapping[str, int]

    @property
    def seconds(self) -> float | None:
        """Both terms together; None where alpha is unknown."""
        return None if self.alpha is None else self.alpha + self.transfer


@dataclass(frozen=True)
class Network:
    """Ranks, links and routes.

    name    for people
    nodes   the node of each rank: [0, 0, 1, 1]
    links   name of a link -> Wire
    route   (source, destination) -> names of the links on the way
    """

    name: str
    nodes: tuple[int, ...]
    links: Mapping[str, Wire]
    route: Callable[[int, int], tuple[str, ...]]

    @property
    def ranks(self) -> int:
        return len(self.nodes)

    def loads(self, step: Iterable[Transfer]) -> Counter[str]:
        """Bytes on each link. Errors: BadArgument for a rank that is not there, or a transfer of a rank to itself."""
        found: Counter[str] = Counter()
        for source, destination, size in step:
            if source == destination or not (0 <= source < self.ranks and 0 <= destination < self.ranks):
                raise BadArgument(
                    f"a transfer from rank {source} to rank {destination}; expected two different ranks of "
                    f"0 to {self.ranks - 1}"
                )
            for name in self.route(source, destination):
                found[name] += size
        return found

    def cost(self, step: Iterable[Transfer]) -> StepCost:
        """What one step costs: the slowest link decides.

        >>> switch_network(4, Wire(2e-6, 1e9)).cost([(0, 1, 1000), (2, 1, 1000)]).busiest
        '1 in'
        """
        loads = self.loads(step)
        if not loads:
            return StepCost("", 0.0, 0.0, {})
        busy = {name: size / self.links[name].bandwidth for name, size in loads.items()}
        starts = {name: self.links[name].alpha for name in loads}
        known = all(alpha is not None for alpha in starts.values())
        busiest = max(busy, key=lambda name: busy[name] + (starts[name] or 0.0))
        return StepCost(busiest, starts[busiest] if known else None, busy[busiest], dict(loads))

    def time(self, steps: Iterable[Iterable[Transfer]]) -> float:
        """Seconds of all steps. Errors: BadArgument where the alpha of a link in use is unknown."""
        total = 0.0
        for step in steps:
            cost = self.cost(step)
            if cost.seconds is None:
                raise BadArgument(f"the alpha of links in {self.name} is unknown, so no time is computed")
            total += cost.seconds
        return total

    def terms(self, steps: Iterable[Iterable[Transfer]]) -> tuple[float | None, float]:
        """Seconds of all alphas (None where unknown), and of all bytes, along the busiest link of each step."""
        costs = [self.cost(step) for step in steps]
        alphas = [cost.alpha for cost in costs]
        known = [alpha for alpha in alphas if alpha is not None]
        return sum(known) if len(known) == len(alphas) else None, sum(cost.transfer for cost in costs)


def switch_network(ranks: int, wire: Wire, name: str = "switch") -> Network:
    """Every rank has one port into a switch: what it sends shares "3 out", what it gets shares "3 in"."""
    links = {f"{rank} {way}": wire for rank in range(ranks) for way in ("out", "in")}
    return Network(name, (0,) * ranks, links, lambda source, destination: (f"{source} out", f"{destination} in"))


def mesh_network(ranks: int, wire: Wire, name: str = "mesh") -> Network:
    """Every pair of ranks has a cable of its own: "3 to 5"."""
    pairs = [(source, other) for source in range(ranks) for other in range(ranks) if source != other]
    links = {f"{source} to {other}": wire for source, other in pairs}
    return Network(name, (0,) * ranks, links, lambda source, destination: (f"{source} to {destination}",))


def node_network(
    nodes: int, each: int, inside: Wire, across: Wire, cards: int | None = None, name: str = ""
) -> Network:
    """Nodes of `each` ranks behind a switch; `cards` network cards a node (one for each rank where not said).

    Ranks of one node talk through "3 out" and "5 in". Between nodes a rank uses the card of its place: "3 net out";
    with fewer cards than ranks, neighbours share one.
    """
    cards = each if cards is None else cards
    if cards < 1 or each % cards:
        raise BadArgument(f"{cards} network cards for {each} ranks of a node; expected a divisor of {each}")
    shared = each // cards
    ranks = nodes * each
    links = {f"{rank} {way}": inside for rank in range(ranks) for way in ("out", "in")}
    links |= {f"{rank} net {way}": across for rank in range(0, ranks, shared) for way in ("out", "in")}

    def route(source: int, destination: int) -> tuple[str, ...]:
        if source // each == destination // each:
            return f"{source} out", f"{destination} in"
        return f"{source // shared * shared} net out", f"{destination // shared * shared} net in"

    return Network(name or f"{nodes} nodes of {each}", tuple(rank // each for rank in range(ranks)), links, route)


def wire_of(link: str) -> Wire:
    """The Wire of a link of the registry: usable bandwidth where there is a figure, else the peak.

    Errors: UnknownName for the name; BadArgument where the registry has no bandwidth.
    """
    row = LINKS[link]
    if row.bandwidth is None:
        raise BadArgument(f"the registry has no bandwidth for {link}: {row.gb.note}")
    return Wire(row.alpha, row.bandwidth)


TOPOLOGIES: Mapping[str, Callable[[], Network]] = {
    "8 H100, NVLink switch": lambda: switch_network(8, wire_of("NVLink 4"), "8 H100, NVLink switch"),
    "8 MI300X, xGMI mesh": lambda: mesh_network(8, wire_of("xGMI of MI300X"), "8 MI300X, xGMI mesh"),
    "2 nodes of 8 H800, InfiniBand": lambda: node_network(
        2, 8, wire_of("NVLink 4 of H800"), wire_of("InfiniBand NDR"), name="2 nodes of 8 H800, InfiniBand"
    ),
    "8 Ascend 910C, switch": lambda: switch_network(8, wire_of("Ascend 910C"), "8 Ascend 910C, switch"),
}
"""Name -> network, with figures of the registry of links."""


def fit_line(sizes: Sequence[float], seconds: Sequence[float]) -> tuple[float, float]:
    """alpha (seconds) and bandwidth (bytes a second) of the line through times of transfers, by relative error.

    Each time counts by its relative error, so that small messages say what alpha is and large ones the bandwidth.
    Errors: BadArgument for fewer than two sizes, or times that do not grow.

    >>> alpha, bandwidth = fit_line([1000, 2000, 4000], [2e-6, 3e-6, 5e-6])
    >>> round(alpha * 1e6, 6), round(bandwidth / 1e9, 6)
    (1.0, 1.0)
    """
    if len(sizes) != len(seconds) or len(set(sizes)) < 2:
        raise BadArgument(f"{len(sizes)} sizes and {len(seconds)} times; expected as many, and two different sizes")
    weights = [1 / time**2 for time in seconds]
    total = sum(weights)
    mean_size = sum(w * size for w, size in zip(weights, sizes, strict=True)) / total
    mean_time = sum(w * time for w, time in zip(weights, seconds, strict=True)) / total
    over = sum(w * (s - mean_size) * (t - mean_time) for w, s, t in zip(weights, sizes, seconds, strict=True))
    slope = over / sum(w * (s - mean_size) ** 2 for w, s in zip(weights, sizes, strict=True))
    if slope <= 0:
        raise BadArgument("the times do not grow with the sizes, so no bandwidth follows from them")
    return mean_time - slope * mean_size, 1 / slope
