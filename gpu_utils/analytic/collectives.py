"""Schedules of collectives, step by step: who sends which chunks to whom, and whether it delivers.

A message of `chunks` equal parts. A step holds Moves that happen at the same time, each from what its source had before
the step. A Move copies chunks to its destination, or adds them to what is there (`adds`). `delivery_faults` follows
every contribution through the steps and says what is missing or counted twice at the end; no number is sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpu_utils.analytic.network import Transfer
from gpu_utils.errors import BadArgument


@dataclass(frozen=True)
class Move:
    """Chunks from one rank to another. adds: the destination adds them to its own, instead of keeping a copy."""

    source: int
    destination: int
    chunks: tuple[int, ...]
    adds: bool = False


Steps = tuple[tuple[Move, ...], ...]


@dataclass(frozen=True)
class Schedule:
    """One algorithm for one collective on `ranks` ranks.

    collective  "all-reduce", "reduce-scatter", "all-gather", "broadcast" or "all-to-all"
    chunks      parts of the message: of one rank's vector; of an all-to-all, ranks x ranks blocks (from, to)
    """

    name: str
    collective: str
    ranks: int
    chunks: int
    steps: Steps

    def transfers(self, size: int) -> list[list[Transfer]]:
        """The steps as (source, destination, bytes).

        size  bytes of one rank's vector; of an all-to-all, what one rank has for all ranks, itself among them

        Errors: BadArgument where the chunks are not whole bytes.

        >>> [len(step) for step in ring_all_reduce(4).transfers(4096)], ring_all_reduce(4).transfers(4096)[0][0]
        ([4, 4, 4, 4, 4, 4], (0, 1, 1024))
        """
        parts = self.ranks if self.collective == "all-to-all" else self.chunks
        if size % parts:
            raise BadArgument(f"{size} bytes do not divide into {parts} chunks of {self.name}")
        each = size // parts
        return [[(move.source, move.destination, each * len(move.chunks)) for move in step] for step in self.steps]

    def sent(self, size: int) -> list[list[int]]:
        """[source][destination] -> bytes of all steps together."""
        found = [[0] * self.ranks for _ in range(self.ranks)]
        for step in self.transfers(size):
            for source, destination, each in step:
                found[source][destination] += each
        return found


def delivery_faults(schedule: Schedule) -> list[str]:
    """What is wrong with what the ranks hold at the end, in sentences; empty where the schedule delivers.

    >>> delivery_faults(ring_all_reduce(5)), delivery_faults(two_hop_all_to_all(2, 4))
    ([], [])
    """
    holds = _first(schedule)
    for number, step in enumerate(schedule.steps):
        before = [dict(held) for held in holds]
        for move in step:
            for chunk in move.chunks:
                if chunk not in before[move.source]:
                    return [f"step {number}: rank {move.source} sends chunk {chunk}, which it does not have"]
                arrived = before[move.source][chunk]
                mine = holds[move.destination].get(chunk, Counter()) if move.adds else Counter()
                holds[move.destination][chunk] = mine + arrived
    return [
        sentence
        for rank, held in enumerate(holds)
        for chunk, wanted in _last(schedule, rank).items()
        if (sentence := _wrong(rank, chunk, held.get(chunk, Counter()), wanted))
    ]


Held = dict[int, Counter[int]]


def _first(schedule: Schedule) -> list[Held]:
    """What each rank holds at the beginning: chunk -> whose contributions."""
    n, kind = schedule.ranks, schedule.collective
    if kind in ("all-reduce", "reduce-scatter"):
        return [{chunk: Counter([rank]) for chunk in range(schedule.chunks)} for rank in range(n)]
    if kind == "all-gather":
        return [{rank: Counter([rank])} for rank in range(n)]
    if kind == "broadcast":
        return [{chunk: Counter([0]) for chunk in range(schedule.chunks)} if rank == 0 else {} for rank in range(n)]
    return [{rank * n + to: Counter([rank]) for to in range(n)} for rank in range(n)]


def _last(schedule: Schedule, rank: int) -> dict[int, Counter[int]]:
    """What a rank must hold at the end."""
    n, kind = schedule.ranks, schedule.collective
    if kind == "all-reduce":
        return {chunk: Counter(range(n)) for chunk in range(schedule.chunks)}
    if kind == "reduce-scatter":
        return {rank: Counter(range(n))}
    if kind == "all-gather":
        return {chunk: Counter([chunk]) for chunk in range(n)}
    if kind == "broadcast":
        return {chunk: Counter([0]) for chunk in range(schedule.chunks)}
    return {source * n + rank: Counter([source]) for source in range(n)}


def _wrong(rank: int, chunk: int, held: Counter[int], wanted: Counter[int]) -> str:
    if held == wanted:
        return ""
    missing, extra = sorted((wanted - held).elements()), sorted((held - wanted).elements())
    said = [f"lacks that of rank {', '.join(map(str, missing))}"] if missing else []
    said += [f"has that of rank {', '.join(map(str, extra))} once too often"] if extra else []
    return f"rank {rank}, chunk {chunk}: {' and '.join(said)}"


# --- all-reduce and its two halves ----------------------------------------------------------------------------------


def ring_reduce_scatter(n: int) -> Schedule:
    """n - 1 steps; in each, every rank passes one chunk to its neighbour, which adds it."""
    steps = tuple(
        tuple(Move(rank, (rank + 1) % n, ((rank - step - 1) % n,), adds=True) for rank in range(n))
        for step in range(_more_than_one(n) - 1)
    )
    return Schedule("ring", "reduce-scatter", n, n, steps)


def ring_all_gather(n: int) -> Schedule:
    """n - 1 steps; in each, every rank passes on the chunk that it got last."""
    steps = tuple(
        tuple(Move(rank, (rank + 1) % n, ((rank - step) % n,)) for rank in range(n))
        for step in range(_more_than_one(n) - 1)
    )
    return Schedule("ring", "all-gather", n, n, steps)


def ring_all_reduce(n: int) -> Schedule:
    """The two, one after the other: 2 (n - 1) steps of one chunk."""
    return Schedule("ring", "all-reduce", n, n, ring_reduce_scatter(n).steps + ring_all_gather(n).steps)


def tree_broadcast(n: int) -> Schedule:
    """A binomial tree from rank 0: in each step all that have the message send it to one more."""
    steps, have = [], 1
    while have < n:
        steps.append(tuple(Move(rank, rank + have, (0,)) for rank in range(min(have, n - have))))
        have *= 2
    return Schedule("tree", "broadcast", _more_than_one(n), 1, tuple(steps))


def tree_all_reduce(n: int) -> Schedule:
    """Up the binomial tree, adding, and down again: the whole message in each step."""
    down = tree_broadcast(n).steps
    up = tuple(tuple(Move(m.destination, m.source, m.chunks, adds=True) for m in step) for step in reversed(down))
    return Schedule("tree", "all-reduce", n, 1, up + down)


def recursive_halving(n: int) -> Schedule:
    """Reduce-scatter: partners at half the distance swap the half that the other will own, then halve again."""
    _power_of_two(n)
    steps, half = [], n // 2
    while half:
        steps.append(tuple(Move(rank, rank ^ half, _owned(rank ^ half, half), adds=True) for rank in range(n)))
        half //= 2
    return Schedule("recursive halving", "reduce-scatter", n, n, tuple(steps))


def recursive_doubling(n: int) -> Schedule:
    """All-gather: the same backwards; what a rank has doubles in each step."""
    _power_of_two(n)
    steps, half = [], 1
    while half < n:
        steps.append(tuple(Move(rank, rank ^ half, _owned(rank, half)) for rank in range(n)))
        half *= 2
    return Schedule("recursive doubling", "all-gather", n, n, tuple(steps))


def halving_doubling(n: int) -> Schedule:
    """All-reduce of the two: 2 log2(n) steps, and as many bytes as a ring."""
    return Schedule(
        "halving and doubling", "all-reduce", n, n, recursive_halving(n).steps + recursive_doubling(n).steps
    )


def direct_reduce_scatter(n: int) -> Schedule:
    """One step: every rank sends to each other rank the chunk which that one owns."""
    step = tuple(Move(rank, to, (to,), adds=True) for rank in range(n) for to in range(n) if to != rank)
    return Schedule("direct", "reduce-scatter", _more_than_one(n), n, (step,))


def direct_all_gather(n: int) -> Schedule:
    """One step: every rank sends its chunk to all others."""
    step = tuple(Move(rank, to, (rank,)) for rank in range(n) for to in range(n) if to != rank)
    return Schedule("direct", "all-gather", _more_than_one(n), n, (step,))


def direct_all_reduce(n: int) -> Schedule:
    """The two: two steps in which all pairs talk at once, as a mesh invites to."""
    return Schedule("direct", "all-reduce", n, n, direct_reduce_scatter(n).steps + direct_all_gather(n).steps)


def hierarchical_all_reduce(nodes: int, each: int) -> Schedule:
    """Reduce-scatter inside each node, a ring between ranks of the same place, all-gather inside.

    Chunk c is that of place c // nodes in a node, and of node c % nodes within the ring across.
    """
    n = nodes * each
    block = [tuple(range(place * nodes, (place + 1) * nodes)) for place in range(each)]

    def inside(adds: bool) -> tuple[Move, ...]:
        return tuple(
            Move(node * each + place, node * each + to, block[to if adds else place], adds)
            for node in range(nodes)
            for place in range(each)
            for to in range(each)
            if to != place
        )

    across = [
        tuple(
            Move(
                move.source * each + place,
                move.destination * each + place,
                tuple(place * nodes + chunk for chunk in move.chunks),
                move.adds,
            )
            for place in range(each)
            for move in step
        )
        for step in ring_all_reduce(nodes).steps
    ]
    return Schedule("hierarchical", "all-reduce", n, n, (inside(True), *across, inside(False)))


# --- all-to-all -----------------------------------------------------------------------------------------------------


def direct_all_to_all(n: int) -> Schedule:
    """One step: every rank sends every other rank its block."""
    step = tuple(Move(rank, to, (rank * n + to,)) for rank in range(n) for to in range(n) if to != rank)
    return Schedule("direct", "all-to-all", _more_than_one(n), n * n, (step,))


def rounds_all_to_all(n: int) -> Schedule:
    """n - 1 steps: in step s every rank sends to the rank s places on, so that nobody gets two blocks at a time."""
    steps = tuple(
        tuple(Move(rank, (rank + step) % n, (rank * n + (rank + step) % n,)) for rank in range(n))
        for step in range(1, _more_than_one(n))
    )
    return Schedule("rounds", "all-to-all", n, n * n, steps)


def two_hop_all_to_all(nodes: int, each: int) -> Schedule:
    """First across: all blocks for a node to the rank of the same place there. Then inside, each block to its rank."""
    n = nodes * each
    across = tuple(
        Move(rank, node * each + rank % each, tuple(rank * n + node * each + place for place in range(each)))
        for rank in range(n)
        for node in range(nodes)
        if node != rank // each
    )
    inside = tuple(
        Move(rank, to, tuple((node * each + rank % each) * n + to for node in range(nodes)))
        for rank in range(n)
        for to in range(rank // each * each, (rank // each + 1) * each)
        if to != rank
    )
    return Schedule("two-hop", "all-to-all", n, n * n, (across, inside))


# --- closed forms ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Form:
    """Steps, and the bytes of the busiest port of a switch, as shares of the message, for n ranks."""

    steps: Callable[[int], int]
    share: Callable[[int], float]

    def seconds(self, n: int, size: float, alpha: float, bandwidth: float) -> float:
        """steps * alpha + share * size / bandwidth."""
        return self.steps(n) * alpha + self.share(n) * size / bandwidth


def levels(n: int) -> int:
    """log2(n), rounded up.

    >>> [levels(n) for n in (2, 3, 8, 9)]
    [1, 2, 3, 4]
    """
    return (n - 1).bit_length()


COLLECTIVE_FORMS: Mapping[tuple[str, str], Form] = {
    ("all-reduce", "ring"): Form(lambda n: 2 * (n - 1), lambda n: 2 * (n - 1) / n),
    ("all-reduce", "tree"): Form(lambda n: 2 * levels(n), lambda n: 2 * levels(n)),
    ("all-reduce", "halving and doubling"): Form(lambda n: 2 * levels(n), lambda n: 2 * (n - 1) / n),
    ("all-reduce", "direct"): Form(lambda n: 2, lambda n: 2 * (n - 1) / n),
    ("reduce-scatter", "ring"): Form(lambda n: n - 1, lambda n: (n - 1) / n),
    ("reduce-scatter", "recursive halving"): Form(levels, lambda n: (n - 1) / n),
    ("reduce-scatter", "direct"): Form(lambda n: 1, lambda n: (n - 1) / n),
    ("all-gather", "ring"): Form(lambda n: n - 1, lambda n: (n - 1) / n),
    ("all-gather", "recursive doubling"): Form(levels, lambda n: (n - 1) / n),
    ("all-gather", "direct"): Form(lambda n: 1, lambda n: (n - 1) / n),
    ("broadcast", "tree"): Form(levels, levels),
    ("all-to-all", "direct"): Form(lambda n: 1, lambda n: (n - 1) / n),
    ("all-to-all", "rounds"): Form(lambda n: n - 1, lambda n: (n - 1) / n),
}
"""(collective, algorithm) -> its closed form on a switch, without pipelining."""

MAKERS: Mapping[str, Mapping[str, Callable[[int], Schedule]]] = {
    "all-reduce": {
        "ring": ring_all_reduce,
        "tree": tree_all_reduce,
        "halving and doubling": halving_doubling,
        "direct": direct_all_reduce,
    },
    "reduce-scatter": {
        "ring": ring_reduce_scatter,
        "recursive halving": recursive_halving,
        "direct": direct_reduce_scatter,
    },
    "all-gather": {"ring": ring_all_gather, "recursive doubling": recursive_doubling, "direct": direct_all_gather},
    "broadcast": {"tree": tree_broadcast},
    "all-to-all": {"direct": direct_all_to_all, "rounds": rounds_all_to_all},
}
"""Collective -> algorithm -> its schedule for n ranks of one node."""

TWO_LEVELS: Mapping[str, Mapping[str, Callable[[int, int], Schedule]]] = {
    "all-reduce": {"hierarchical": hierarchical_all_reduce},
    "all-to-all": {"two-hop": two_hop_all_to_all},
}
"""The same for nodes and ranks of each."""


def collective_schedules(collective: str, nodes: Sequence[int]) -> dict[str, Schedule]:
    """Every schedule that fits ranks on these nodes, by the name of its algorithm.

    >>> list(collective_schedules("all-reduce", [0, 0, 1, 1]))
    ['ring', 'tree', 'halving and doubling', 'direct', 'hierarchical']
    """
    n, count = len(nodes), len(set(nodes))
    found = {}
    for name, maker in MAKERS[collective].items():
        if ("halving" not in name and "doubling" not in name) or n & (n - 1) == 0:
            found[name] = maker(n)
    if count > 1:
        found |= {name: maker(count, n // count) for name, maker in TWO_LEVELS.get(collective, {}).items()}
    return found


def _owned(rank: int, half: int) -> tuple[int, ...]:
    """The chunks of the block of `half` neighbours that the rank is in."""
    first = rank // half * half
    return tuple(range(first, first + half))


def _more_than_one(n: int) -> int:
    if n < 2:
        raise BadArgument(f"a collective of {n} ranks; expected 2 or more")
    return n


def _power_of_two(n: int) -> None:
    if _more_than_one(n) & (n - 1):
        raise BadArgument(f"halving takes a power of two of ranks, found {n}")


def port_bytes(steps: Iterable[Iterable[Transfer]]) -> int:
    """The most bytes that one rank sends, all steps together."""
    sent: Counter[int] = Counter()
    for step in steps:
        for source, _, size in step:
            sent[source] += size
    return max(sent.values(), default=0)
