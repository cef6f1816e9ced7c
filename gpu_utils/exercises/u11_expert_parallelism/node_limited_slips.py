"""11.node_limited by its rules, each of which can be wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

GB = 1e9


@dataclass(frozen=True)
class Routed:
    """One table: the rank of each expert (T, k), the home of each token (T,), and where ranks stand.

    node  rank -> node, of a tensor of ranks
    """

    ranks_of: Tensor
    homes: Tensor
    nodes: int
    ranks: int
    limit: int
    node: Callable[[Tensor, int, int], Tensor]

    @property
    def each(self) -> int:
        return self.ranks // self.nodes

    def nodes_of(self, ranks: Tensor) -> Tensor:
        return self.node(ranks, self.nodes, self.ranks)

    def marks(self, of: Tensor, many: int) -> Tensor:
        """bool (T, many): what a token needs, once."""
        return torch.zeros(len(of), many, dtype=torch.bool).scatter_(1, of, True)

    @property
    def arrivals(self) -> Tensor:
        """(T, ranks): whether a token arrives at this rank, or lives there."""
        ranks = torch.arange(self.ranks)
        return (ranks % self.each)[None, :] == (self.homes % self.each)[:, None]

    @property
    def away(self) -> Tensor:
        """(T, ranks): whether this rank is in another node than the token's home."""
        return self.nodes_of(torch.arange(self.ranks))[None, :] != self.nodes_of(self.homes)[:, None]


def neighbours(experts: Tensor, num_experts: int, ranks: int) -> Tensor:
    return experts // (num_experts // ranks)


def dealt_round(experts: Tensor, num_experts: int, ranks: int) -> Tensor:
    return experts % ranks


def node_of(ranks_of: Tensor, nodes: int, ranks: int) -> Tensor:
    return ranks_of // (ranks // nodes)


def node_dealt_round(ranks_of: Tensor, nodes: int, ranks: int) -> Tensor:
    return ranks_of % nodes


# --- crossings of the network ---------------------------------------------------------------------------------------


def other_nodes(at: Routed) -> int:
    needed = at.marks(at.nodes_of(at.ranks_of), at.nodes)
    needed.scatter_(1, at.nodes_of(at.homes)[:, None], False)
    return int(needed.sum())


def with_own_node(at: Routed) -> int:
    return int(at.marks(at.nodes_of(at.ranks_of), at.nodes).sum())


def of_each_expert(at: Routed) -> int:
    return int((at.nodes_of(at.ranks_of) != at.nodes_of(at.homes)[:, None]).sum())


def of_each_rank(at: Routed) -> int:
    return int((at.marks(at.ranks_of, at.ranks) & at.away).sum())


def as_many_as_allowed(at: Routed) -> int:
    return min(at.limit, at.nodes - 1) * len(at.homes)


# --- copies over the fast link --------------------------------------------------------------------------------------


def forwards(at: Routed) -> int:
    return int((at.marks(at.ranks_of, at.ranks) & ~at.arrivals).sum())


def with_arrival(at: Routed) -> int:
    return int(at.marks(at.ranks_of, at.ranks).sum())


def without_own_node(at: Routed) -> int:
    return int((at.marks(at.ranks_of, at.ranks) & ~at.arrivals & at.away).sum())


def only_the_home_rank_left_out(at: Routed) -> int:
    return int((at.marks(at.ranks_of, at.ranks) & ~at.marks(at.homes[:, None], at.ranks)).sum())


def with_the_home_rank(at: Routed) -> int:
    return int((at.marks(at.ranks_of, at.ranks) & ~(at.arrivals & at.away)).sum())


def forwarded_for_each_expert(at: Routed) -> int:
    return int((at.ranks_of % at.each != (at.homes % at.each)[:, None]).sum())


def always_forwarded(at: Routed) -> int:
    first = torch.arange(at.ranks) % at.each == 0
    return int((at.marks(at.ranks_of, at.ranks) & ~first[None, :]).sum())


# --- the decision ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """Bytes of a token over both links for each limit, and what they are measured by."""

    slow: Sequence[float]
    fast: Sequence[float]
    tokens: int
    ranks: int
    nodes: int
    gb: tuple[float, float]
    seconds: float

    def times(self, tokens: float, of: Callable[[float, float], float] = max, unit: float = GB) -> list[float]:
        return [
            tokens * of(slow / (self.gb[0] * unit), fast / (self.gb[1] * unit))
            for slow, fast in zip(self.slow, self.fast, strict=True)
        ]

    def largest(self, times: Sequence[float]) -> int:
        return max((at + 1 for at, time in enumerate(times) if time <= self.seconds), default=0)


def largest_that_hides(plan: Plan) -> int:
    return plan.largest(plan.times(plan.tokens / plan.ranks))


def added_up(plan: Plan) -> int:
    return plan.largest(plan.times(plan.tokens / plan.ranks, lambda slow, fast: slow + fast))


def slow_alone(plan: Plan) -> int:
    return plan.largest(plan.times(plan.tokens / plan.ranks, lambda slow, fast: slow))


def fast_alone(plan: Plan) -> int:
    return plan.largest(plan.times(plan.tokens / plan.ranks, lambda slow, fast: fast))


def all_tokens(plan: Plan) -> int:
    return plan.largest(plan.times(plan.tokens))


def links_of_a_node(plan: Plan) -> int:
    return plan.largest(plan.times(plan.tokens / plan.nodes))


def bits(plan: Plan) -> int:
    return plan.largest(plan.times(plan.tokens / plan.ranks, unit=GB / 8))


def one_token(plan: Plan) -> int:
    return plan.largest(plan.times(1))


def smallest(plan: Plan) -> int:
    fits = [at + 1 for at, time in enumerate(plan.times(plan.tokens / plan.ranks)) if time <= plan.seconds]
    return min(fits, default=0)


def one_more(plan: Plan) -> int:
    return largest_that_hides(plan) - 1


def answer(
    place: Callable[[Tensor, int, int], Tensor] = neighbours,
    node: Callable[[Tensor, int, int], Tensor] = node_of,
    slow: Callable[[Routed], int] = other_nodes,
    fast: Callable[[Routed], int] = forwards,
    bytes_each: int = 3,
    decide: Callable[[Plan], Any] = largest_that_hides,
) -> Callable[..., dict[str, Any]]:
    """An answer with these rules. bytes_each: of one number, there and back."""
    count_slow, count_fast = slow, fast

    def node_limited(
        tables: Sequence[Tensor],
        homes: Tensor,
        num_experts: int,
        nodes: int,
        ranks: int,
        width: int,
        slow: float,
        fast: float,
        seconds: float,
    ) -> dict[str, Any]:
        at = [
            Routed(place(experts.cpu(), num_experts, ranks), homes.cpu(), nodes, ranks, limit, node)
            for limit, experts in enumerate(tables, 1)
        ]
        over_slow, over_fast = (
            [count(one) / len(homes) * bytes_each * width for one in at] for count in (count_slow, count_fast)
        )
        plan = Plan(over_slow, over_fast, len(homes), ranks, nodes, (slow, fast), seconds)
        return {"slow": over_slow, "fast": over_fast, "limit": decide(plan)}

    return node_limited


def times(**inputs: Any) -> list[float]:
    """Seconds of each limit, by the right rules."""
    found: list[float] = []

    def keep(plan: Plan) -> int:
        found.extend(plan.times(plan.tokens / plan.ranks))
        return 0

    answer(decide=keep)(**inputs)
    return found
