"""11.node_limited: bytes over the slow and the fast link with at most M nodes a token, and the M that hides."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch

from gpu_utils.analytic.tolerance import Tolerance, tolerance
from gpu_utils.exercises.u11_expert_parallelism import node_limited_slips as slips
from gpu_utils.exercises.u11_expert_parallelism.routing_tables import limited_tables
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs, Misconception


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    tokens, experts, nodes, ranks = (case[name] for name in ("tokens", "experts", "nodes", "ranks"))
    scores = torch.rand(tokens, experts, generator=generator)
    given: Inputs = {
        "tables": limited_tables(scores, case["k"], nodes),
        "homes": torch.randint(0, ranks, (tokens,), generator=generator),
        **{"num_experts": experts, "nodes": nodes, "ranks": ranks, "width": case["width"]},
        **{"slow": case["slow"], "fast": case["fast"], "seconds": 0.0},
    }
    times = slips.times(**given)
    at, beyond = case["limit"], [*times, times[-1] * case["room"]]
    seconds = times[0] / 2 if at == 0 else (beyond[at - 1] + beyond[at]) / 2
    while any(abs(time / seconds - 1) < 1e-3 for time in times):  # the order of operations shall not decide
        seconds *= 1.01
    return given | {"seconds": seconds}


def _fresh(rng: random.Random) -> Case:
    nodes = rng.choice([2, 3, 4])
    each = rng.choice([2, 4])
    return _case(
        "tokens, experts and nodes nobody chose",
        **{"tokens": rng.randrange(40, 90), "nodes": nodes, "ranks": nodes * each},
        **{"experts": nodes * each * rng.choice([4, 6]), "k": rng.randrange(3, 8), "limit": rng.randrange(nodes + 1)},
        **{"width": rng.randrange(100, 8000), "slow": rng.uniform(20, 60), "fast": rng.uniform(80, 400)},
    )


def _case(why: str, slow: float = 50.0, fast: float = 160.0, room: float = 2.0, **sizes: Any) -> Case:
    """limit: what hides; room: how many times as much as all nodes need is too much, where all of them hide."""
    return Case(why, **sizes, slow=slow, fast=fast, room=room)


_WRONG: tuple[tuple[str, Callable[..., Any], str], ...] = (
    (
        "a_copy_for_each_expert",
        slips.answer(slow=slips.of_each_expert),
        "Over the network a token goes once for each expert. It goes once to each node, and is forwarded inside: count "
        "different nodes.",
    ),
    (
        "a_copy_for_each_rank",
        slips.answer(slow=slips.of_each_rank),
        "Over the network a token goes once to each rank. Once to each node is enough: the fast link does the rest.",
    ),
    (
        "own_node_over_the_network",
        slips.answer(slow=slips.with_own_node),
        "A token's own node is counted as a crossing. What stays in the node never sees the network.",
    ),
    (
        "all_other_nodes",
        slips.answer(slow=slips.as_many_as_allowed),
        "Every token is counted with as many nodes as it is allowed. The tables say how many it really has.",
    ),
    (
        "arrival_rank_counted",
        slips.answer(fast=slips.with_arrival),
        "On the fast link the rank at which a token arrives is counted as well. A token for an expert of that very "
        "rank is there already; so is one that stays at home.",
    ),
    (
        "own_node_without_the_fast_link",
        slips.answer(fast=slips.without_own_node),
        "On the fast link only forwarding in other nodes is counted. Experts on other ranks of a token's own node are "
        "reached over it, too.",
    ),
    (
        "only_the_home_rank_left_out",
        slips.answer(fast=slips.only_the_home_rank_left_out),
        "On the fast link the home rank is left out, and in other nodes the rank at which a token arrives is counted. "
        "It has the token already: the rank of that node with the place of the home.",
    ),
    (
        "home_rank_counted",
        slips.answer(fast=slips.with_the_home_rank),
        "On the fast link a token for an expert of its own rank is counted. It is there already.",
    ),
    (
        "home_node_left_out",
        slips.answer(fast=slips.of_each_rank),
        "On the fast link the home node is left out, and in other nodes the arrival rank is counted. Both are the "
        "other way round: ranks of the home node are reached over it, the arrival rank has the token already.",
    ),
    (
        "forwarded_for_each_expert",
        slips.answer(fast=slips.forwarded_for_each_expert),
        "On the fast link a token goes once for each expert. Two experts of one rank share a copy: count different "
        "ranks.",
    ),
    (
        "always_forwarded",
        slips.answer(fast=slips.always_forwarded),
        "A token is forwarded from rank 0 of each node. It arrives at the rank that has the place of its home: home "
        "rank modulo ranks of a node.",
    ),
    (
        "combine_forgotten",
        slips.answer(bytes_each=1),
        "The way back is missing: what was dispatched in FP8, one byte a number, comes back in BF16, two bytes.",
    ),
    (
        "combine_in_fp8",
        slips.answer(bytes_each=2),
        "The way back is counted with one byte a number. Dispatch is FP8; combine is BF16.",
    ),
    (
        "dispatch_in_bf16",
        slips.answer(bytes_each=4),
        "Both ways are counted with two bytes a number. Dispatch is FP8: one byte there, two back.",
    ),
    (
        "experts_dealt_round",
        slips.answer(place=slips.dealt_round),
        "Experts are dealt to ranks one by one (expert modulo ranks). A rank has neighbouring experts: expert // "
        "(num_experts // ranks).",
    ),
    (
        "ranks_dealt_round",
        slips.answer(node=slips.node_dealt_round),
        "Ranks are dealt to nodes one by one (rank modulo nodes). A node has neighbouring ranks: rank // (ranks // "
        "nodes).",
    ),
    (
        "links_added_up",
        slips.answer(decide=slips.added_up),
        "The bytes are right. The times of both links are added; they work at the same time, so the longer one counts.",
    ),
    (
        "slow_link_alone",
        slips.answer(decide=slips.slow_alone),
        "The bytes are right. The limit looks at the network alone. The fast link may be the longer one.",
    ),
    (
        "fast_link_alone",
        slips.answer(decide=slips.fast_alone),
        "The bytes are right. The limit looks at the fast link alone. The longer of the two counts.",
    ),
    (
        "all_tokens_on_one_rank",
        slips.answer(decide=slips.all_tokens),
        "The bytes are right. The time is that of all tokens over one rank's links. Every rank has links of its own: "
        "tokens / ranks of them each.",
    ),
    (
        "links_of_a_node",
        slips.answer(decide=slips.links_of_a_node),
        "The bytes are right. The tokens are divided by the nodes. slow and fast are those of one rank, and each rank "
        "has its own.",
    ),
    (
        "bandwidth_in_bits",
        slips.answer(decide=slips.bits),
        "The bytes are right. The bandwidths are taken as gigabits. They are GB/s: 10**9 bytes.",
    ),
    (
        "one_token_hides",
        slips.answer(decide=slips.one_token),
        "The bytes are right. The time is that of one token. seconds hide what all tokens of a rank move.",
    ),
    (
        "smallest_limit",
        slips.answer(decide=slips.smallest),
        "The bytes are right. The limit is the smallest that hides. More nodes leave the router more choice: take the "
        "largest, and 0 where none hides.",
    ),
    (
        "first_that_does_not_hide",
        slips.answer(decide=slips.one_more),
        "The bytes are right, and the limit is one off: tables[0] is the one with at most 1 node.",
    ),
)


def _tolerance(case: Case, inputs: Inputs) -> Tolerance:
    return tolerance(torch.float64, magnitude=0.0, roundings=6)


EXERCISE = Exercise(
    id="11.node_limited",
    title="Traffic with at most M nodes a token",
    parameters=("tables", "homes", "num_experts", "nodes", "ranks", "width", "slow", "fast", "seconds"),
    kind="torch",
    inputs=_inputs,
    reference=slips.answer(),
    tolerance=_tolerance,
    dtype=lambda inputs: None,
    trivial={
        "zeros": lambda tables, **rest: {"slow": [0.0] * len(tables), "fast": [0.0] * len(tables), "limit": 0},
        "ones": lambda tables, **rest: {"slow": [1.0] * len(tables), "fast": [1.0] * len(tables), "limit": 1},
        "nan": lambda tables, **rest: {
            **{"slow": [float("nan")] * len(tables), "fast": [float("nan")] * len(tables)},
            "limit": 1,
        },
    },
    cases=(
        Example(
            "the example of the statement",
            tables=lambda: [torch.tensor([[0, 1, 3]]), torch.tensor([[0, 3, 6]])],
            homes=lambda: torch.tensor([1]),
            **{"num_experts": 8, "nodes": 2, "ranks": 4, "width": 100, "slow": 50.0, "fast": 150.0, "seconds": 1e-9},
        ),
        Example(
            "with two nodes it is faster than with one, since the fast link decides",
            tables=lambda: [torch.tensor([[1, 2, 3]]), torch.tensor([[0, 4, 5]])],
            homes=lambda: torch.tensor([0]),
            **{"num_experts": 8, "nodes": 2, "ranks": 8, "width": 100, "slow": 50.0, "fast": 10.0, "seconds": 5e-9},
        ),
        _case(
            "V3's numbers: 8 nodes of 8, the network decides",
            tokens=96,
            experts=256,
            nodes=8,
            ranks=64,
            k=8,
            width=7168,
            limit=4,
        ),
        _case(
            "a fast link that is not fast: it decides",
            tokens=80,
            experts=64,
            nodes=4,
            ranks=16,
            k=6,
            width=3,
            limit=2,
            slow=400.0,
            fast=60.0,
        ),
        _case(
            "both links about as long",
            tokens=70,
            experts=48,
            nodes=4,
            ranks=8,
            k=5,
            width=1000,
            limit=3,
            slow=50.0,
            fast=40.0,
        ),
        _case("nothing hides", tokens=50, experts=24, nodes=3, ranks=6, k=4, width=3, limit=0, fast=400.0),
        _case(
            "four ranks, and six times the time that is needed",
            tokens=40,
            experts=16,
            nodes=2,
            ranks=4,
            k=3,
            width=64,
            limit=2,
            room=12.0,
        ),
        _case("everything hides", tokens=50, experts=32, nodes=2, ranks=8, k=7, width=512, limit=2),
    ),
    fresh=_fresh,
    misconceptions=tuple(Misconception(*wrong) for wrong in _WRONG),
    hints=(
        "Take the first token of the example with paper: which ranks have its experts, which nodes are those, where "
        "does it live, and where does it arrive in each node?",
        "For a table: ranks_of = experts // (num_experts // ranks), nodes_of = ranks_of // (ranks // nodes). Mark "
        "for each token which nodes it needs (T, nodes), and which ranks (T, ranks); marks count a node or a rank "
        "once. Take the own node's mark away, and the marks of the ranks at which it arrives.",
        "needs = torch.zeros(T, ranks, dtype=torch.bool).scatter_(1, ranks_of, True); other = needs.view(T, nodes, "
        "each).any(2) with the own node set to False; crossings = other.sum(). Arrival: place = homes % each; clear "
        "needs.view(T, nodes, each)[t, :, place[t]], then forwards = needs.sum(). Bytes a token: count / T * 3 * "
        "width. Time: T / ranks * max(slow bytes / (slow * 1e9), fast bytes / (fast * 1e9)).",
    ),
    explanation=(
        "A mark for each node, instead of a count of experts, is the whole saving: eight experts on four nodes cross "
        "the network at most four times. The fast link pays for it with a forward for each rank, and stays out of the "
        "way as long as it is as many times faster as a node has chosen ranks: 160 over 50 GB/s is 3.2 in the "
        "DeepSeek-V3 report. The way back costs twice the bytes, because sums go back in BF16, but the same counts: "
        "partial sums of a node are added before they cross."
    ),
)
