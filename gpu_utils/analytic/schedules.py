"""Orders of forwards and backwards over the stages of a pipeline: what an order is, what it costs, what a run gives.

A model is cut into stages, a batch into micro-batches. An action is (kind, stage, micro):

    F  the forward                          B  the full backward, I and W in one
    I  the gradient of the stage's input    W  the gradients of its weights, after I

A step of a rank is an action, or a pair of actions that run together: F&B, the forward of one micro-batch and the
backward of another. An order holds, for each rank, the list of its steps. A chain holds the stages that a micro-batch
passes, in order. The letters are those of torch.distributed.pipelining; the zero-bubble paper calls I "B".

What runs an order, what checks it and what writes it are answers of unit 12, and live in its exercises' package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import Any

from gpu_utils.errors import BadArgument, UnknownName

Action = tuple[str, int, int]
Step = Action | tuple[Action, Action]
Order = tuple[tuple[Step, ...], ...]

KINDS = {"F": "forward", "B": "backward", "I": "input gradient", "W": "weight gradients"}


@dataclass(frozen=True)
class Schedule:
    """An order with what it is an order of.

    order   for each rank its steps; chains: of stages; micros: for each chain, the micro-batches that pass it
    places  for each stage, its rank
    """

    name: str
    order: Order
    chains: tuple[tuple[int, ...], ...]
    micros: tuple[tuple[int, ...], ...]
    places: tuple[int, ...]

    def needs(self, action: Action) -> Iterator[tuple[tuple[str, ...], int, int]]:
        """What must have ended before an action: (kinds that do, stage, micro). KeyError if it is in no chain."""
        kind, stage, micro = action
        before, after = self.beside[stage]
        if kind == "F" and before is not None:
            yield ("F",), before, micro
        if kind in "BI":
            yield ("F",), stage, micro
            if after is not None:
                yield ("B", "I"), after, micro
        if kind == "W":
            yield ("I",), stage, micro

    @cached_property
    def beside(self) -> dict[int, tuple[int | None, int | None]]:
        """Stage -> the ones before and after it in its chain."""
        return {
            stage: (chain[at - 1] if at else None, chain[at + 1] if at + 1 < len(chain) else None)
            for chain in self.chains
            for at, stage in enumerate(chain)
        }


@dataclass(frozen=True)
class Costs:
    """What an action of one stage and micro-batch takes, in seconds or any other unit.

    together  an F&B step takes together * (F + I + W)
    link      delay of what goes from one rank to another
    scale     for each stage a factor of F, I and W, where stages are uneven; () where they are not

    >>> Costs(F=1, I=1.25, W=0.75).B
    2.0
    """

    F: float = 1.0
    I: float = 1.0  # noqa: E741 - the letter of torch.distributed.pipelining
    W: float = 1.0
    together: float = 1.0
    link: float = 0.0
    scale: tuple[float, ...] = ()

    @property
    def B(self) -> float:  # noqa: N802 - a letter, as F, I and W are
        """A full backward."""
        return self.I + self.W

    def of(self, step: Step) -> float:
        """What a step takes.

        >>> Costs(I=2, together=0.9).of((("F", 0, 3), ("B", 0, 2))), Costs(scale=(1, 0.5)).of(("B", 1, 0))
        (3.6, 1.0)
        """
        actions = actions_of(step)
        whole = sum(getattr(self, kind) * (self.scale[stage] if self.scale else 1) for kind, stage, _ in actions)
        return whole * self.together if len(actions) > 1 else whole


@dataclass(frozen=True)
class Run:
    """A schedule as it ran.

    spans   for each rank the (start, end) of each of its steps, in the unit of the costs
    memory  for each rank the most activations alive at once, each of one stage and micro-batch: alive from the start
            of F until the end of B, or of the W after I
    """

    schedule: Schedule
    spans: tuple[tuple[tuple[float, float], ...], ...]
    memory: tuple[int, ...]

    @property
    def seconds(self) -> float:
        """From 0 to the end of the last step of any rank."""
        return max((end for spans in self.spans for _, end in spans), default=0.0)

    @property
    def busy(self) -> tuple[float, ...]:
        """For each rank, the time in its steps."""
        return tuple(sum(end - start for start, end in spans) for spans in self.spans)

    @property
    def idle(self) -> tuple[float, ...]:
        """For each rank, the time outside of its steps, from 0 to the end of the last step of any rank."""
        return tuple(self.seconds - busy for busy in self.busy)

    @property
    def bubble(self) -> float:
        """The idle share of all ranks' time."""
        whole = self.seconds * len(self.spans)
        return sum(self.idle) / whole if whole else 0.0


def actions_of(step: Step) -> tuple[Action, ...]:
    """The one action of a step, or its two.

    >>> actions_of(("F", 0, 1)), actions_of((("F", 0, 3), ("B", 0, 2)))
    ((('F', 0, 1),), (('F', 0, 3), ('B', 0, 2)))
    """
    return (step,) if isinstance(step[0], str) else step


def spelled(step: Step) -> str:
    """A step in letters: kind, stage, micro-batch.

    >>> spelled(("F", 0, 1)), spelled((("F", 0, 3), ("B", 0, 2)))
    ('F(stage 0, micro 1)', 'F(stage 0, micro 3) & B(stage 0, micro 2)')
    """
    return " & ".join(f"{kind}(stage {stage}, micro {micro})" for kind, stage, micro in actions_of(step))


# --- which stages are where -----------------------------------------------------------------------------------------


def _line(p: int, m: int, v: int) -> tuple[Any, Any, Any]:
    """Stage s on rank s % p."""
    return (tuple(range(p * v)),), (tuple(range(m)),), tuple(stage % p for stage in range(p * v))


def _v_shape(p: int, m: int, v: int) -> tuple[Any, Any, Any]:
    """Down the ranks and back: stages s and 2p-1-s on one rank."""
    return (tuple(range(2 * p)),), (tuple(range(m)),), (*range(p), *reversed(range(p)))


def _two_ways(p: int, m: int, v: int) -> tuple[Any, Any, Any]:
    """Two copies of the model: stages 0..p-1 down the ranks for the first half of the micro-batches, p..2p-1 up."""
    chains = tuple(range(p)), tuple(range(p, 2 * p))
    return chains, (tuple(range(m // 2)), tuple(range(m // 2, m))), (*range(p), *reversed(range(p)))


LAYOUTS: dict[str, Callable[[int, int, int], tuple[Any, Any, Any]]] = {
    "line": _line,
    "V": _v_shape,
    "two ways": _two_ways,
}
"""Name of a layout -> from ranks, micro-batches and stages of a rank to chains, micros and places."""


def arranged(order: Any, p: int, m: int, layout: str = "line", v: int = 1, name: str = "own") -> Schedule:
    """A schedule from an order as a learner writes it: lists or tuples, whole numbers of any kind.

    p, m    ranks and micro-batches; layout: of LAYOUTS; v: stages on each rank of a "line"

    Only the form is looked at: the order may still be impossible. Raises BadArgument with a sentence that says where
    the form breaks; UnknownName for a layout.

    >>> arranged([[["F", 0, 0], ("B", 0, 0)]], p=1, m=1).order
    ((('F', 0, 0), ('B', 0, 0)),)
    >>> arranged([[("F", 0)]], p=1, m=1)
    Traceback (most recent call last):
    gpu_utils.errors.BadArgument: step 0 of rank 0 is ('F', 0); expected (kind, stage, micro), or a pair of such actions
    """
    if layout not in LAYOUTS:
        raise UnknownName("layout", layout, LAYOUTS)
    if not isinstance(order, list | tuple):
        raise BadArgument(f"the order is {_short(order)}; expected a list with the list of steps of each rank")
    if len(order) != p:
        raise BadArgument(f"the order has the steps of {len(order)} ranks; expected {p}, one list for each")
    for rank, steps in enumerate(order):
        if not isinstance(steps, list | tuple):
            raise BadArgument(f"the steps of rank {rank} are {_short(steps)}; expected a list of steps")
    formed = tuple(
        tuple(_step(step, f"step {at} of rank {rank}") for at, step in enumerate(steps))
        for rank, steps in enumerate(order)
    )
    return Schedule(name, formed, *LAYOUTS[layout](p, m, v))


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _step(step: Any, where: str) -> Step:
    if _is_action(step):
        return _action(step)
    if isinstance(step, list | tuple) and len(step) == 2 and all(map(_is_action, step)):
        return _action(step[0]), _action(step[1])
    raise BadArgument(f"{where} is {_short(step)}; expected (kind, stage, micro), or a pair of such actions")


def _is_action(step: Any) -> bool:
    if not isinstance(step, list | tuple) or len(step) != 3 or not isinstance(step[0], str) or step[0] not in KINDS:
        return False
    return all(isinstance(number, Integral) and not isinstance(number, bool) for number in step[1:])


def _action(step: Sequence[Any]) -> Action:
    return str(step[0]), int(step[1]), int(step[2])


# --- closed formulas ------------------------------------------------------------------------------------------------

BUBBLES: dict[str, Callable[[int, Costs], float]] = {
    "GPipe": lambda p, c: (p - 1) * (c.F + c.B),
    "1F1B": lambda p, c: (p - 1) * (c.F + c.B),
    "interleaved 1F1B": lambda p, c: (p - 1) * (c.F + c.B),
    "ZB-H1": lambda p, c: (p - 1) * (c.F + c.B - 2 * c.W),
    "DualPipe": lambda p, c: (p / 2 - 1) * (c.together * (c.F + c.B) + c.B - 3 * c.W),
    "DualPipeV": lambda p, c: (p - 1) * (c.together * (c.F + c.B) + c.B - 3 * c.W),
}
"""Name -> idle time of a rank by formula, from the ranks and the costs of one of a rank's stages, all alike, no link.

Sources: DeepSeek-V3's report (arXiv 2412.19437), table 2, for 1F1B, ZB-H1 (ZB1P there) and DualPipe; arXiv 2104.04473,
section 2.2, for GPipe and interleaved 1F1B; DualPipeV is DualPipe of 2p ranks, folded.

Where a simulated order is idle exactly so long, which tests hold: GPipe and 1F1B for every m; interleaved 1F1B where m
is a multiple of p; ZB-H1 where m >= p and W <= F, I; DualPipe and DualPipeV where I = F, W <= F and pairs gain nothing.
If pairs gain (together < 1) and still take B or more, the ranks at the turning point are idle so long, and those with
fewer pairs for less; where a pair is shorter than B, they are idle for longer. With I > F the simulated orders of both
are idle for less than the formula says.
"""


def idle_by_formula(name: str, p: int, **costs: Any) -> float:
    """Idle time of a rank by the closed formula of a schedule in BUBBLES; costs: of one of a rank's stages, as `Costs`.

    Raises UnknownName for a schedule without a formula.

    >>> idle_by_formula("1F1B", 4), idle_by_formula("DualPipe", 8, together=0.75)
    (9.0, 3.75)
    """
    if name not in BUBBLES:
        raise UnknownName("formula", name, BUBBLES)
    return BUBBLES[name](p, Costs(**costs))
