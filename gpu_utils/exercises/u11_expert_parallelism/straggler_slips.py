"""Readings of a timeline with one mistake each, and the right one. Plain Python: they run wherever an answer runs."""

from __future__ import annotations

from collections.abc import Callable
from statistics import mean, median
from typing import Any

Verdict = list[Any]
Timeline = list[dict[str, Any]]
SLOW = 1.5


def _gathered(timeline: Timeline, name: str, per_amount: bool = True) -> dict[Any, list[float]]:
    """Of each rank, or each (rank, peer): seconds, or seconds for a token or a byte, of every step."""
    found: dict[Any, list[float]] = {}
    for event in timeline:
        if event["name"] == name:
            key = event["rank"] if event["peer"] < 0 else (event["rank"], event["peer"])
            found.setdefault(key, []).append((event["end"] - event["start"]) / (event["amount"] if per_amount else 1))
    return found


def reading(
    middle: Callable[[list[float]], float] = median,
    links: str = "send",
    tokens: bool = True,
    volume: bool = True,
    slow: float = SLOW,
    ranks: bool = True,
    usual: Callable[[list[float]], float] = median,
) -> Callable[[Timeline], Verdict]:
    """An answer: the rank or the link whose cost is farthest above the usual one.

    middle  what stands for the steps of one of them; usual  and for all of them
    links   events that tell of links; tokens and volume  whether time is divided by tokens, and by bytes
    slow    from how many times the usual one on it is slow; ranks  False: ranks are not looked at
    """

    def straggler(timeline: Timeline) -> Verdict:
        of_ranks = {r: middle(every) for r, every in _gathered(timeline, "compute", tokens).items()}
        of_links = {pair: middle(every) for pair, every in _gathered(timeline, links, volume).items()}
        found: list[tuple[float, Verdict]] = []
        if ranks:
            common = usual(list(of_ranks.values()))
            found += [(cost / common, ["rank", r]) for r, cost in of_ranks.items()]
        common = usual(list(of_links.values()))
        for (rank, peer), cost in of_links.items():
            found.append((cost / common, ["link", rank, peer] if links == "send" else ["link", peer, rank]))
        ratio, verdict = max(found)
        return verdict if ratio >= slow else ["none"]

    return straggler


right = reading()


def waits_longest(timeline: Timeline) -> Verdict:
    waits: dict[int, float] = {}
    for event in timeline:
        if event["name"] in ("recv", "barrier"):
            waits[event["rank"]] = waits.get(event["rank"], 0.0) + event["end"] - event["start"]
    return ["rank", max(waits, key=lambda rank: waits[rank])]


def ends_last(timeline: Timeline) -> Verdict:
    """The rank that finishes computing last, by the clocks as they are."""
    last: dict[int, int] = {}
    for step in {event["step"] for event in timeline}:
        done = [event for event in timeline if event["step"] == step and event["name"] == "compute"]
        rank = max(done, key=lambda event: event["end"])["rank"]
        last[rank] = last.get(rank, 0) + 1
    return ["rank", max(last, key=lambda rank: last[rank])]


def across_clocks(timeline: Timeline) -> Verdict:
    """From the start of a send on one clock to the end of its recv on another."""
    starts = {(e["step"], e["rank"], e["peer"]): e["start"] for e in timeline if e["name"] == "send"}
    took: dict[tuple[int, int], list[float]] = {}
    for event in timeline:
        if event["name"] == "recv":
            pair = (event["peer"], event["rank"])
            took.setdefault(pair, []).append((event["end"] - starts[(event["step"], *pair)]) / event["amount"])
    middle = {pair: median(every) for pair, every in took.items()}
    computing = right([event for event in timeline if event["name"] != "send"] + _usual_sends(timeline))
    if computing[0] == "rank":
        return computing
    worst = max(middle, key=lambda pair: middle[pair])
    return ["link", *worst] if middle[worst] >= SLOW * median(middle.values()) else ["none"]


def _usual_sends(timeline: Timeline) -> Timeline:
    return [event | {"start": 0.0, "end": float(event["amount"])} for event in timeline if event["name"] == "send"]


def most_bytes(timeline: Timeline) -> Verdict:
    computing = right([event for event in timeline if event["name"] != "send"] + _usual_sends(timeline))
    if computing[0] == "rank":
        return computing
    moved: dict[tuple[int, int], int] = {}
    for event in timeline:
        if event["name"] == "send":
            pair = (event["rank"], event["peer"])
            moved[pair] = moved.get(pair, 0) + event["amount"]
    return ["link", *max(moved, key=lambda pair: moved[pair])]


def turned_around(timeline: Timeline) -> Verdict:
    verdict = right(timeline)
    return ["link", verdict[2], verdict[1]] if verdict[0] == "link" else verdict


def sender_of_the_slow_link(timeline: Timeline) -> Verdict:
    verdict = right(timeline)
    return ["rank", verdict[1]] if verdict[0] == "link" else verdict


def waits_least(timeline: Timeline) -> Verdict:
    """The rank for which all others wait: the shortest barrier. A slow link looks like its ends."""
    waits: dict[int, list[float]] = {}
    for event in timeline:
        if event["name"] in ("recv", "barrier"):
            waits.setdefault(event["rank"], []).append(event["end"] - event["start"])
    return ["rank", min(waits, key=lambda rank: sum(waits[rank]))]


def first_step_only(timeline: Timeline) -> Verdict:
    return right([event for event in timeline if event["step"] == 0])


with_means = reading(middle=mean)
worst_of_all = reading(middle=max)
without_tokens = reading(tokens=False)
without_bytes = reading(volume=False)
by_recv = reading(links="recv")


def by_recv_turned(timeline: Timeline) -> Verdict:
    """Links by recv, named as (who receives, from whom)."""
    verdict = by_recv(timeline)
    return ["link", verdict[2], verdict[1]] if verdict[0] == "link" else verdict


def sends_and_recvs(timeline: Timeline) -> Verdict:
    """A message is read twice, on both of its ends."""
    both = [
        event | {"name": "send", "rank": event["peer"], "peer": event["rank"]} if event["name"] == "recv" else event
        for event in timeline
    ]
    return right(both)


def sends_and_recvs_of_a_pair(timeline: Timeline) -> Verdict:
    """Sends and recvs under the key (rank, peer): those of one direction beside those of the other."""
    return right([event | {"name": "send"} if event["name"] == "recv" else event for event in timeline])


always_somebody = reading(slow=0.0)
links_only = reading(ranks=False)
