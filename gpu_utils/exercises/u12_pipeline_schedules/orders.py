"""Writes the orders of seven pipeline schedules. Four of them are answers of this unit, so they live here.

Sources: GPipe arXiv 1811.06965; 1F1B and its interleaved form arXiv 2104.04473; ZB-H1 and ZBV arXiv 2401.10241;
DualPipe arXiv 2412.19437 and the repository deepseek-ai/DualPipe. Tests compare them with torch.distributed.pipelining.
"""

from __future__ import annotations

from collections.abc import Callable

from gpu_utils.analytic.schedules import Action, Order, Schedule, Step, arranged
from gpu_utils.errors import BadArgument, UnknownName


class _Rank:
    """The steps of one rank, each action with the next micro-batch of its kind and stage."""

    def __init__(self, first: dict[int, int] | None = None) -> None:
        self.steps: list[Step] = []
        self._first = first or {}
        self._next: dict[tuple[str, int], int] = {}
        self._owed: list[tuple[int, int]] = []

    def take(self, kind: str, stage: int) -> Action:
        """F, B or I; I and B count as one, and I owes a W."""
        key = ("F" if kind == "F" else "B", stage)
        micro = self._next.get(key, self._first.get(stage, 0))
        self._next[key] = micro + 1
        if kind == "I":
            self._owed.append((stage, micro))
        return kind, stage, micro

    def do(self, kind: str, stage: int) -> None:
        """A step of one action."""
        self.steps.append(self.take(kind, stage))

    def together(self, forward: int, backward: int) -> None:
        """F and B of two stages as one step."""
        self.steps.append((self.take("F", forward), self.take("B", backward)))

    def weights(self, stage: int | None = None) -> None:
        """W of the oldest I that still owes it, of a stage or of any."""
        owed = next(one for one in self._owed if stage in (None, one[0]))
        self._owed.remove(owed)
        self.steps.append(("W", *owed))

    @property
    def owes(self) -> int:
        return len(self._owed)


def _gpipe(p: int, m: int, v: int) -> Order:
    return tuple(tuple((kind, rank, micro) for kind in "FB" for micro in range(m)) for rank in range(p))


def _one_f_one_b(p: int, m: int, v: int) -> Order:
    """Forwards until a backward can come, p - 1 - rank of them; then in turn; then the backwards that are left."""
    return _in_turn(p, m, 1, each=m, hop=1)


def _interleaved(p: int, m: int, v: int) -> Order:
    """Rounds of p micro-batches pass a rank's first stage, then its second, ...; backwards the other way about."""
    rounds = max(1, m // p)
    if m % rounds:
        raise BadArgument(f"{m} micro-batches do not come in {rounds} equal rounds; try a multiple of {p} ranks")
    return _in_turn(p, m, v, each=m // rounds, hop=2)


def _in_turn(p: int, m: int, v: int, each: int, hop: int) -> Order:
    """`each` micro-batches for a stage before the next one; `hop` more forwards first for each rank further up."""
    order, total = [], m * v
    for rank in range(p):
        own, warm = _Rank(), min((v - 1) * each + hop * (p - 1 - rank), total)
        stages = [at // each % v * p + rank for at in range(total)]
        back = [(v - 1 - at // each % v) * p + rank for at in range(total)]
        for stage in stages[:warm]:
            own.do("F", stage)
        for forward, backward in zip(stages[warm:], back, strict=False):
            own.do("F", forward)
            own.do("B", backward)
        for backward in back[total - warm :]:
            own.do("B", backward)
        order.append(tuple(own.steps))
    return tuple(order)


def _zb_h1(p: int, m: int, v: int) -> Order:
    """1F1B with I for B; rank r leaves its first r W until I no longer keep it busy, so that p are alive on each."""
    order = []
    for rank in range(p):
        own = _Rank()
        warm = min(p - 1 - rank, m)
        for _ in range(warm):
            own.do("F", rank)
        for at in range(m):
            if at < m - warm:
                own.do("F", rank)
            own.do("I", rank)
            if own.owes > rank:
                own.weights()
        while own.owes:
            own.weights()
        order.append(tuple(own.steps))
    return tuple(order)


def _zbv(p: int, m: int, v: int) -> Order:
    """For F = I = W and two stages on a rank. Made for 2p - 1 micro-batches or more; of fewer, what is left of that."""
    order = []
    for rank in range(p):
        own, first, second, micros = _Rank(), rank, 2 * p - 1 - rank, max(2 * p - 1, m)
        forwards = [*[first] * (2 * (p - rank) - 1), *[second, first] * rank]
        for stage in forwards:
            own.do("F", stage)
        left = micros - forwards.count(first)
        for turn in range(micros - rank):
            stages = (second,) if turn < p - rank else (first, second)
            for stage in stages:
                if stage == second or left > 0:
                    own.do("F", stage)
                    left -= stage == first
                own.do("I", stage)
                own.weights(stage)
        for _ in range(rank):
            own.do("I", first)
            own.do("I", second)
        for _ in range(p - rank):
            own.do("I", first)
            own.weights(first)
        for stage in (second,) * rank + (first,) * rank:
            own.weights(stage)
        order.append(tuple(step for step in own.steps if step[-1] < m))  # type: ignore[operator]
    return tuple(order)


def _eight_phases(own: _Rank, near: int, far: int, away: int, depth: int, main: int) -> tuple[Step, ...]:
    """The steps of a rank between two streams of micro-batches.

    near, far    the stage that its first micro-batches come to, and the other one
    away, depth  ranks between it and the turning point, and between it and the end, itself counted; main: rounds of
                 the steady state

    At the turning point the first pair of the steady state runs apart: nothing waits there for its forward.
    """
    for _ in range(2 * away):
        own.do("F", near)
    for _ in range(depth):
        own.do("F", near)
        own.do("F", far)
    for _ in range(away):
        own.do("I", far)
        own.weights()
        own.do("F", far)
    for turn in range(main):
        if turn == 0 and away == 0:
            own.do("F", near)
            own.do("B", far)
        else:
            own.together(near, far)
        own.together(far, near)
    for _ in range(away):
        own.do("B", far)
        own.together(far, near)
    for at in range(2 * depth):
        own.do("B" if at < depth else "I", far if at % 2 == 0 else near)
    for _ in range(away):
        own.weights()
        own.do("I", near)
    while own.owes:
        own.weights()
    return tuple(own.steps)


def _dualpipe(p: int, m: int, v: int) -> Order:
    """Two copies of the model, one in each direction; ranks 0 and p-1 are the ends, p/2-1 and p/2 the turning point."""
    if p % 2 or m % 2 or m < 2 * p:
        raise BadArgument(f"DualPipe of {p} ranks and {m} micro-batches; expected even numbers, and m >= 2 p")
    order = []
    for rank in range(p):
        end = min(rank, p - 1 - rank)
        down, up = rank, 2 * p - 1 - rank
        near, far = (down, up) if rank < p // 2 else (up, down)
        own = _Rank(first={up: m // 2})
        order.append(_eight_phases(own, near, far, p // 2 - 1 - end, end + 1, m // 2 - p + end + 1))
    return tuple(order)


def _dualpipev(p: int, m: int, v: int) -> Order:
    """DualPipe of 2p ranks, folded at its turning point: one copy of the model, two stages on a rank."""
    if m < 2 * p:
        raise BadArgument(f"DualPipeV of {p} ranks and {m} micro-batches; expected m >= 2 p")
    return tuple(
        _eight_phases(_Rank(), rank, 2 * p - 1 - rank, p - 1 - rank, rank + 1, m - 2 * p + rank + 1)
        for rank in range(p)
    )


WRITERS: dict[str, tuple[Callable[[int, int, int], Order], str]] = {
    "GPipe": (_gpipe, "line"),
    "1F1B": (_one_f_one_b, "line"),
    "interleaved 1F1B": (_interleaved, "line"),
    "ZB-H1": (_zb_h1, "line"),
    "ZBV": (_zbv, "V"),
    "DualPipe": (_dualpipe, "two ways"),
    "DualPipeV": (_dualpipev, "V"),
}
"""Name -> what writes the order, and the layout of its stages."""


def schedule(name: str, p: int, m: int, v: int = 2) -> Schedule:
    """A schedule of WRITERS over p ranks and m micro-batches; v: stages on a rank of "interleaved 1F1B".

    Raises UnknownName for a name; BadArgument where the schedule does not exist for p and m.

    >>> schedule("1F1B", 2, 2).order[0]
    (('F', 0, 0), ('F', 0, 1), ('B', 0, 0), ('B', 0, 1))
    """
    if name not in WRITERS:
        raise UnknownName("schedule", name, WRITERS)
    if p < 1 or m < 1 or v < 1:
        raise BadArgument(f"p, m and v are {p}, {m} and {v}; expected 1 or more each")
    write, layout = WRITERS[name]
    own = v if name == "interleaved 1F1B" else 1
    return arranged(write(p, m, own), p, m, layout, own, name)
