"""11.alpha_beta: a simulator of schedules on a network with shared links, and the choice that it makes."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch

from gpu_utils.analytic.collectives import Schedule, collective_schedules
from gpu_utils.analytic.network import Network, Wire, mesh_network, switch_network
from gpu_utils.analytic.tolerance import Tolerance, tolerance
from gpu_utils.exercises.u11_expert_parallelism import alpha_beta_slips as slips
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs, Misconception

FAST, SLOW = Wire(3e-6, 200e9), Wire(9e-6, 50e9)


def _uneven(network: Network, generator: torch.Generator) -> Network:
    """The same network with no two cables alike, so that one of them is the busiest."""
    draws = 1 + 0.2 * torch.rand(len(network.links), 2, generator=generator, dtype=torch.float64)
    links = {
        name: Wire((wire.alpha or 0.0) * float(more[0]), wire.bandwidth / float(more[1]))
        for (name, wire), more in zip(network.links.items(), draws, strict=True)
    }
    return Network(network.name, network.nodes, links, network.route)


def _uplinks(nodes: int, each: int) -> Network:
    """Nodes whose ranks share one uplink: a rank's own port on either side of it."""
    ranks = nodes * each
    links = {f"{rank} {way}": FAST for rank in range(ranks) for way in ("out", "in")}
    links |= {f"node {node} {way}": SLOW for node in range(nodes) for way in ("up", "down")}

    def route(source: int, destination: int) -> tuple[str, ...]:
        here, there = source // each, destination // each
        across = () if here == there else (f"node {here} up", f"node {there} down")
        return (f"{source} out", *across, f"{destination} in")

    return Network("shared uplinks", tuple(rank // each for rank in range(ranks)), links, route)


def _spare(network: Network) -> Network:
    """The same with a cable that no route uses, slow to start."""
    links = {"spare": Wire(1e-3, 1e9), **network.links}
    return Network(network.name, network.nodes, links, network.route)


NETWORKS: dict[str, Callable[[int], Network]] = {
    "switch": lambda ranks: switch_network(ranks, FAST),
    "mesh": lambda ranks: mesh_network(ranks, FAST),
    "uplinks": lambda ranks: _spare(_uplinks(2, ranks // 2)),
}


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    network = _uneven(NETWORKS[case["network"]](case["ranks"]), generator)
    found: dict[str, Schedule] = collective_schedules(case["collective"], network.nodes)
    ranks = range(network.ranks)
    return {
        "schedules": {name: one.transfers(case["size"]) for name, one in found.items()},
        "routes": [[list(network.route(a, b)) if a != b else [] for b in ranks] for a in ranks],
        "links": {name: (wire.alpha, wire.bandwidth) for name, wire in network.links.items()},
    }


def _fresh(rng: random.Random) -> Case:
    ranks = rng.choice([4, 6, 8])
    return Case(
        "a network nobody chose",
        network=rng.choice(sorted(NETWORKS)),
        ranks=ranks,
        collective=rng.choice(["all-reduce", "all-to-all"]),
        size=ranks * ranks * rng.randrange(200, 500_000),
    )


def _tolerance(case: Case, inputs: Inputs) -> Tolerance:
    # all terms have one sign, so the roundings of their sum are below those of as many of its own size
    steps = max(len(steps) for steps in inputs["schedules"].values())
    return tolerance(torch.float64, magnitude=0.0, roundings=2 * steps + 4)


_WRONG: tuple[tuple[str, Callable[..., Any], str], ...] = (
    (
        "alpha_once",
        slips.answer(total=slips.alpha_once),
        "alpha is counted once for the whole schedule. Every step starts anew: a ring of n ranks pays it 2 (n - 1) "
        "times.",
    ),
    (
        "alpha_of_every_transfer",
        slips.answer(step=slips.alpha_of_every_transfer),
        "alpha is counted once for each transfer on a link. Transfers of one step start together: a link pays it once "
        "a step.",
    ),
    (
        "alpha_of_idle_links",
        slips.answer(step=slips.alpha_of_idle_links),
        "A link that carries nothing in a step has its alpha counted. Only links with a transfer take part.",
    ),
    (
        "alpha_left_out",
        slips.answer(step=slips.bytes_only),
        "The bytes are there and no alpha is. A link is busy for alpha + bytes / bandwidth in each step that uses it.",
    ),
    (
        "nothing_is_shared",
        slips.answer(step=slips.nothing_shared),
        "Every transfer has the whole bandwidth. Those that cross the same link in one step share it: add their bytes "
        "first.",
    ),
    (
        "one_after_the_other",
        slips.answer(step=slips.one_after_the_other),
        "The transfers of a step are added up as if they waited for each other. They run at the same time; only a "
        "shared link makes them wait.",
    ),
    (
        "links_added_up",
        slips.answer(step=slips.links_added_up),
        "The times of all links of a step are added. They work side by side, and the step ends with the slowest one.",
    ),
    (
        "first_link_only",
        slips.answer(crossed=lambda route: route[:1]),
        "Only the first link of each route carries the bytes. A transfer crosses every link of its route, and the "
        "tight one may be the last.",
    ),
    (
        "last_link_only",
        slips.answer(crossed=lambda route: route[-1:]),
        "Only the last link of each route carries the bytes. A transfer crosses every link of its route.",
    ),
    (
        "steps_do_not_wait",
        slips.answer(total=slips.steps_do_not_wait),
        "The steps run into each other: the time is that of the busiest link over the whole schedule. A step begins "
        "when the one before has ended, so take the slowest link of each step, and add.",
    ),
    (
        "slowest_step_only",
        slips.answer(total=max),
        "The time is that of one step, the slowest. The steps follow one another: add them.",
    ),
    (
        "bytes_as_bits",
        slips.answer(step=slips.bits),
        "The bytes count eightfold. Bandwidths are given in bytes a second here; only the names of networks (400G) "
        "count bits.",
    ),
    (
        "half_a_bandwidth",
        slips.answer(step=slips.half),
        "Every bandwidth is halved. It is that of one direction already: a link out and a link in are two links.",
    ),
    (
        "alpha_added_after_the_maximum",
        slips.answer(step=slips.terms_apart),
        "The largest alpha and the longest transfer are taken apart, from two links. They belong together: the slowest "
        "link is the one with the largest sum.",
    ),
    (
        "busiest_by_bytes",
        slips.answer(busiest=slips.by_bytes),
        "The times are right. busiest is the link with most bytes; a slow link with fewer is busy longer. Divide by "
        "its bandwidth.",
    ),
    (
        "busiest_in_one_step",
        slips.answer(busiest=slips.in_one_step),
        "The times are right. busiest looks at the worst single step. Add the bytes of a link over all steps first.",
    ),
    (
        "busiest_is_the_slowest_cable",
        slips.answer(busiest=slips.slowest_cable),
        "The times are right. busiest is the link with the least bandwidth of those in use, whatever it carries.",
    ),
    (
        "fewest_steps_win",
        slips.answer(choose=slips.fewest_steps),
        "Only the choice is wrong: it takes the schedule with the fewest steps. Take the one with the least time.",
    ),
    (
        "longest_wins",
        slips.answer(choose=lambda seconds, schedules: max(seconds, key=lambda name: seconds[name])),
        "Only the choice is wrong: it is the slowest schedule.",
    ),
)

EXERCISE = Exercise(
    id="11.alpha_beta",
    title="A simulator of schedules on shared links",
    parameters=("schedules", "routes", "links"),
    kind="host",
    inputs=_inputs,
    reference=slips.answer(),
    tolerance=_tolerance,
    dtype=lambda inputs: None,
    cases=(
        Example(
            "the example of the docstring",
            schedules={"once": [[(0, 1, 8000)]], "twice": [[(0, 1, 4000)], [(0, 1, 4000)]]},
            routes=[[[], ["up", "down"]], [[], []]],
            links={"up": (1e-6, 1e9), "down": (1e-6, 2e9)},
        ),
        Example(
            "a slow cable that has little to carry",
            schedules={"one": [[(0, 1, 88), (1, 2, 9)], [(1, 2, 8)]]},
            routes=[[[], ["fast"], []], [[], [], ["slow"]], [[], [], []]],
            links={"fast": (1e-6, 1e9), "slow": (5e-6, 2e8)},
        ),
        Example(
            "two transfers of one pair in a step: they share the link as well",
            schedules={"apart": [[(0, 1, 3000)], [(0, 1, 3000)]], "together": [[(0, 1, 4000), (0, 1, 5000)]]},
            routes=[[[], ["cable"]], [[], []]],
            links={"cable": (1e-6, 1e9)},
        ),
        Case(
            "small messages on a switch: alpha decides", network="switch", ranks=4, collective="all-reduce", size=4096
        ),
        Case(
            "large messages on a switch: bytes decide",
            **{"network": "switch", "ranks": 8, "collective": "all-reduce", "size": 2**26},
        ),
        Case("a mesh: every pair has its cable", network="mesh", ranks=6, collective="all-reduce", size=36 * 10**5),
        Case(
            "two nodes with one uplink each: many transfers on one link",
            **{"network": "uplinks", "ranks": 8, "collective": "all-to-all", "size": 64 * 30_000},
        ),
        Case(
            "the same, all-reduce",
            **{"network": "uplinks", "ranks": 8, "collective": "all-reduce", "size": 64 * 6000},
        ),
        Case(
            "alpha and bytes weigh the same",
            **{"network": "uplinks", "ranks": 6, "collective": "all-reduce", "size": 36 * 3000},
        ),
    ),
    fresh=_fresh,
    misconceptions=tuple(Misconception(*wrong) for wrong in _WRONG),
    hints=(
        "One step on paper first: write the bytes next to every link that a transfer crosses. How long is each link "
        "busy, and when is the step over?",
        "Three loops: over schedules, over steps, over transfers. For each step a dict from link to bytes; the step "
        "takes the largest alpha + bytes / bandwidth among the links in that dict. For busiest a second dict, over all "
        "steps.",
        "load = defaultdict(int) in each step; for source, destination, size in step: for link in "
        "routes[source][destination]: load[link] += size and whole[link] += size. seconds += max(links[l][0] + "
        "load[l] / links[l][1] for l in load). busiest = max(whole, key=lambda l: whole[l] / links[l][1]).",
    ),
    explanation=(
        "Two numbers a link and one rule are enough to choose an algorithm: transfers that cross a link add up on it, "
        "and a step is as slow as its slowest link. A ring has many steps of little each, a tree few of all, direct "
        "exchange fewest; where alpha decides, steps count, where bytes decide, the busiest link counts. On a mesh a "
        "ring leaves most cables idle, and on a shared uplink everything else does not matter. NCCL and RCCL choose by "
        "the same sum, latency + bytes / bandwidth, with tables for both."
    ),
)
