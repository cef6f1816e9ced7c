"""11.straggler: the slow rank or the slow link, from a timeline of several steps."""

from __future__ import annotations

import random
from typing import Any

import torch

from gpu_utils.analytic.tolerance import EXACT
from gpu_utils.exercises.u11_expert_parallelism import straggler_slips as slips
from gpu_utils.exercises.u11_expert_parallelism.timelines import simulated
from gpu_utils.grading.compare import Difference
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs, Misconception


def _event(step: int, rank: int, name: str, peer: int, amount: int, start: float, end: float) -> dict[str, Any]:
    return {"step": step, "rank": rank, "name": name, "peer": peer, "amount": amount, "start": start, "end": end}


def example() -> list[dict[str, Any]]:
    """One step of three ranks, in whole seconds: rank 1 has twice the tokens, and its message to rank 2 is slow."""
    events = []
    computed = {0: (100, 10.0), 1: (200, 20.0), 2: (100, 10.0)}
    for rank, (tokens, takes) in computed.items():
        clock = 50.0 * rank
        events.append(_event(0, rank, "compute", -1, tokens, clock, clock + takes))
        for peer in (p for p in range(3) if p != rank):
            slow = 4.0 if (rank, peer) == (1, 2) else 1.0
            events.append(_event(0, rank, "send", peer, 1000, clock + takes, clock + takes + slow))
            came = max(takes, computed[peer][1] + (4.0 if (peer, rank) == (1, 2) else 1.0))
            events.append(_event(0, rank, "recv", peer, 1000, clock + takes, clock + came))
        events.append(_event(0, rank, "barrier", -1, 0, clock + (24.0 if rank == 2 else 24.0 - rank), clock + 24.0))
    return events


def steady(costs: dict[tuple[int, ...], float], ranks: int, steps: int, bad: dict[Any, float]) -> list[dict[str, Any]]:
    """Steps in round numbers, one clock for all. costs: of (rank,) or (from, to) in seconds for 100, else 1.

    bad: (step, rank) or (step, from, to) -> what it costs in that step
    """
    events = []
    for step in range(steps):
        start = 1000.0 * step

        def of(*who: int, step: int = step) -> float:
            return bad.get((step, *who), costs.get(who, 1.0))

        pairs = [(a, b) for a in range(ranks) for b in range(ranks) if a != b]
        came = {(a, b): start + of(a) + of(a, b) for a, b in pairs}
        over = max(came.values())
        for rank in range(ranks):
            ready = start + of(rank)
            events.append(_event(step, rank, "compute", -1, 100, start, ready))
            peers = [peer for peer in range(ranks) if peer != rank]
            events += [_event(step, rank, "send", p, 100, ready, came[rank, p]) for p in peers]
            events += [_event(step, rank, "recv", p, 100, ready, max(ready, came[p, rank])) for p in peers]
            done = max(ready, *(max(came[rank, p], came[p, rank]) for p in peers))
            events.append(_event(step, rank, "barrier", -1, 0, done, over))
    return events


def nobody() -> list[dict[str, Any]]:
    """1.4 times the usual is not slow, whatever the fastest does; rank 2 has a bad step at the beginning."""
    return steady({(0,): 0.9, (3,): 1.4, (0, 1): 0.9, (2, 3): 1.4}, ranks=4, steps=5, bad={(0, 2): 6.0})


def nearly_always() -> list[dict[str, Any]]:
    """Rank 1 takes 1.55 times as long in six steps of seven, the last one is good."""
    return steady({(1,): 1.55}, ranks=4, steps=7, bad={(6, 1): 1.0, (3, 0, 2): 9.0})


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    if isinstance(case, Example):
        return case.inputs
    seed = int(torch.randint(2**31, (), generator=generator))
    more: dict[str, Any] = {name: value for name, value in case.params.items() if name not in ("ranks", "steps")}
    return {"timeline": simulated(case["ranks"], case["steps"], seed, **more)}


def _said(verdict: list[Any]) -> str:
    return f"({', '.join(map(repr, verdict))}{',' * (len(verdict) == 1)})"


def _judge(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    lengths = {"rank": 2, "link": 3, "none": 1}
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, (list, tuple)) or not value or value[0] not in lengths:
        return Difference("form", "expected ('rank', r), ('link', from, to) or ('none',)")
    if len(value) != lengths[value[0]] or not all(isinstance(one, (int, float)) for one in value[1:]):
        return Difference("form", f"{_said(list(value))} is not complete: ('rank', r), ('link', from, to) or ('none',)")
    expected = slips.right(inputs["timeline"])
    if list(value) == expected:
        return None
    return Difference(f"said {_said(list(value))}", f"the answer is {_said(list(value))}, and that is not what is slow")


def _fresh(rng: random.Random) -> Case:
    ranks, steps = rng.randrange(4, 8), rng.randrange(5, 9)
    kind, factor = rng.choice(("rank", "link", "none")), rng.uniform(1.8, 4.0)
    one, other, third = rng.sample(range(ranks), 3)
    slow: dict[str, Any] = {}
    if kind == "rank":
        slow["slow_rank"] = (one, factor)
    if kind == "link":
        slow["slow_link"] = (one, other, factor)
    return Case(
        "a cluster nobody chose",
        ranks=ranks,
        steps=steps,
        busy={third: rng.uniform(1.6, 2.2)},
        heavy={(other, third): rng.uniform(2.0, 3.0)},
        hiccup=(other, rng.uniform(0.3, 0.6)),
        **slow,
    )


EXERCISE = Exercise(
    id="11.straggler",
    title="Who holds everybody up?",
    parameters=("timeline",),
    kind="host",
    inputs=_inputs,
    reference=slips.right,
    judge=_judge,
    tolerance=lambda case, inputs: EXACT,
    dtype=lambda inputs: None,
    cases=(
        Example("the example of the statement: one step, clocks 50 s apart", timeline=example),
        Example("1.4 times the usual is not slow: none", timeline=nobody),
        Example("slow in every step but the last, by a little more than 1.5 times", timeline=nearly_always),
        Case(
            "one rank computes slowly and the others wait; another was slow in the first step alone",
            ranks=4,
            steps=6,
            slow_rank=(2, 2.5),
            warming=(0, 0.8),
        ),
        Case(
            "a slow link, and a rank whose clock is ahead",
            ranks=5,
            steps=6,
            slow_link=(3, 1, 6.0),
            early={0: 2.0},
            heavy={(1, 2): 2.5},
        ),
        Case(
            "a rank has twice the tokens, another is slow",
            ranks=6,
            steps=7,
            slow_rank=(4, 1.8),
            busy={1: 2.8},
        ),
        Case(
            "a link carries three times the bytes, another is slow",
            ranks=5,
            steps=7,
            slow_link=(0, 2, 2.3),
            heavy={(4, 1): 3.5},
            busy={3: 1.5},
        ),
        Case(
            "one rank stood still once, a message was lost once; a link is slow in every step",
            ranks=4,
            steps=7,
            slow_link=(1, 3, 2.4),
            hiccup=(0, 0.9),
            dropped=(2, 0, 0.4),
        ),
        Case(
            "all are well: more tokens, more bytes, one bad step",
            ranks=6,
            steps=8,
            busy={2: 1.8},
            heavy={(5, 3): 2.5},
            hiccup=(4, 0.07),
        ),
    ),
    fresh=_fresh,
    misconceptions=(
        Misconception(
            "waits_longest",
            slips.waits_longest,
            "You named the rank that waits longest. It is a victim: it waits for somebody else. Look at what a rank "
            "does itself: computing and sending.",
        ),
        Misconception(
            "waits_least",
            slips.waits_least,
            "The rank that waits least was named. That finds a rank with much work as well as a slow one, and a slow "
            "link it cannot find. Compare seconds for a token, and seconds for a byte.",
        ),
        Misconception(
            "ends_last",
            slips.ends_last,
            "Ends were compared between ranks. Each rank has a clock of its own: only differences of two times of one "
            "rank mean anything.",
        ),
        Misconception(
            "across_clocks",
            slips.across_clocks,
            "The time of a message was taken from its start on one rank to its end on another: two clocks. A send has "
            "start and end on one.",
        ),
        Misconception(
            "without_tokens",
            slips.without_tokens,
            "A rank with more tokens takes longer and is not slow. Compare seconds for a token.",
        ),
        Misconception(
            "without_bytes",
            slips.without_bytes,
            "A longer message takes longer on a good link. Compare seconds for a byte.",
        ),
        Misconception(
            "most_bytes",
            slips.most_bytes,
            "The link with the most bytes was named. How long did it take for them?",
        ),
        Misconception(
            "by_recv",
            slips.by_recv,
            "Links were judged by recv. A receiver waits from when it is ready: a late sender looks like a slow link "
            "there. The sender's own event tells them apart.",
        ),
        Misconception(
            "by_recv_turned",
            slips.by_recv_turned,
            "Links were judged by recv, and named from the receiver to the sender. Of a recv, peer is where the "
            "message came from. And a receiver waits from when it is ready: take the sender's own event.",
        ),
        Misconception(
            "sends_and_recvs",
            slips.sends_and_recvs,
            "send and recv were both taken for the time of a message. A recv also holds the wait for a sender that is "
            "late: leave it out.",
        ),
        Misconception(
            "sends_and_recvs_of_a_pair",
            slips.sends_and_recvs_of_a_pair,
            "send and recv were gathered under one key, (rank, peer). A send goes from rank to peer, a recv comes from "
            "peer to rank, and it holds the wait for a late sender: take the sends alone.",
        ),
        Misconception(
            "with_means",
            slips.with_means,
            "One bad step in seven moves a mean far. What is slow is slow in most steps: take the median over the "
            "steps.",
        ),
        Misconception(
            "worst_of_all",
            slips.worst_of_all,
            "The single worst event was taken. Anybody has one bad step: take the median over the steps.",
        ),
        Misconception(
            "first_step_only",
            slips.first_step_only,
            "Only the first step was read. It is one sample: take the median over all steps.",
        ),
        Misconception(
            "always_somebody",
            slips.always_somebody,
            "Somebody is always the slowest. Below 1.5 times the usual cost the answer is ('none',).",
        ),
        Misconception(
            "links_only",
            slips.links_only,
            "Only links were looked at. A rank may be slow as well: compare its seconds for a token.",
        ),
        Misconception(
            "turned_around",
            slips.turned_around,
            "The right two ranks, the wrong direction: a link is (from, to), and the send stands in the sender's "
            "events.",
        ),
        Misconception(
            "sender_of_the_slow_link",
            slips.sender_of_the_slow_link,
            "The sender was named as slow. Only one of its links is: its compute is as fast as the others', and so "
            "are its other messages.",
        ),
    ),
    hints=(
        "Four kinds of events. In which of them does a rank do something itself, and in which does it wait for "
        "others? And which times of the timeline may be subtracted from each other?",
        "Seconds for a token of each rank's compute, seconds for a byte of each (rank, peer) in its sends. Over the "
        "steps take the median. Then compare each with the median of its kind.",
        "cost[key].append((end - start) / amount); middle = {key: statistics.median(cost[key])}; ratio = middle[key] "
        "/ statistics.median(middle.values()), for ranks and for links apart; the largest ratio of all, if it is 1.5 "
        "or more, says who.",
    ),
    explanation=(
        "A step ends when the last rank is ready, so all others wait, and whoever waits longest has done nothing "
        "wrong. What is a rank's own doing is compute and send. Time for a token and time for a byte leave out that "
        "routing gives some ranks more. A duration is a difference of two times of one clock, so offsets cancel. A "
        "median over steps forgives a hiccup and a lost message; a slow rank or link is there in every step."
    ),
)
