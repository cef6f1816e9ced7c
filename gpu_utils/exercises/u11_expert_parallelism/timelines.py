"""Timelines of expert-parallel steps, as ranks record them: simulated here, each rank on a clock of its own.

In a step every rank computes, sends a message to every other rank and receives one from each, all at once, and waits in
a barrier until the last is ready. An event is a dict, its times in seconds of its own rank's clock:

    {"step": 0, "rank": 2, "name": "compute", "peer": -1, "amount": 512, "start": 3.71, "end": 3.76}

name    "compute" (amount: tokens), "send" (peer: to whom; amount: bytes), "recv" (peer: from whom; amount: bytes),
        "barrier" (amount 0)
"""

from __future__ import annotations

import random
from typing import Any

Timeline = list[dict[str, Any]]

TOKEN = 1e-4
"""Seconds of compute for a token."""

BYTE = 2e-9
"""Seconds for a byte on a link, 0.5 GB/s; and each message has LATENCY seconds more."""

LATENCY = 2e-5
NOISE = 0.08


def simulated(
    ranks: int,
    steps: int,
    seed: int,
    slow_rank: tuple[int, float] | None = None,
    slow_link: tuple[int, int, float] | None = None,
    busy: dict[int, float] | None = None,
    heavy: dict[tuple[int, int], float] | None = None,
    hiccup: tuple[int, float] | None = None,
    dropped: tuple[int, int, float] | None = None,
    warming: tuple[int, float] | None = None,
    skew: float = 0.5,
    early: dict[int, float] | None = None,
) -> Timeline:
    """Events of some steps, in the order of steps and ranks.

    slow_rank  (rank, factor): its compute takes so many times as long for the same tokens
    slow_link  (from, to, factor)
    busy       rank -> factor: it has so many times as many tokens
    heavy      (from, to) -> factor: the message has so many times as many bytes
    hiccup     (rank, seconds): once, in the middle, it stands still while it computes
    dropped    (from, to, seconds): once, in the middle, a message is sent again
    warming    (rank, seconds): its first step takes longer
    skew       clocks differ by up to so many seconds
    early      rank -> seconds that its clock is set, instead
    """
    rng = random.Random(seed)
    clock = [(early or {}).get(r, rng.uniform(-skew, skew)) for r in range(ranks)]
    base = {(a, b): rng.randrange(4, 9) * 2**20 for a in range(ranks) for b in range(ranks) if a != b}
    now, events = 100.0, []
    for step in range(steps):
        ready, sent = [], {}
        tokens = [int(rng.uniform(0.85, 1.15) * 400 * (busy or {}).get(r, 1.0)) for r in range(ranks)]
        for r in range(ranks):
            takes = tokens[r] * TOKEN * rng.uniform(1 - NOISE, 1 + NOISE)
            takes *= slow_rank[1] if slow_rank and slow_rank[0] == r else 1.0
            takes += hiccup[1] if hiccup and hiccup[0] == r and step == steps // 2 else 0.0
            takes += warming[1] if warming and warming[0] == r and step == 0 else 0.0
            ready.append(now + takes)
        size = {}
        for a, b in base:
            size[a, b] = int(base[a, b] * rng.uniform(0.85, 1.15) * (heavy or {}).get((a, b), 1.0))
            takes = LATENCY + size[a, b] * BYTE * rng.uniform(1 - NOISE, 1 + NOISE)
            takes *= slow_link[2] if slow_link and slow_link[:2] == (a, b) else 1.0
            takes += dropped[2] if dropped and dropped[:2] == (a, b) and step == steps // 2 else 0.0
            sent[a, b] = ready[a] + takes
        came = {(a, b): max(ready[b], end) + LATENCY for (a, b), end in sent.items()}
        done = [max(sent[r, p] for p in range(ranks) if p != r) for r in range(ranks)]
        done = [max(done[r], *(came[p, r] for p in range(ranks) if p != r)) for r in range(ranks)]
        over = max(done) + LATENCY
        for r in range(ranks):

            def add(name: str, peer: int, amount: int, start: float, end: float, r: int = r, step: int = step) -> None:
                times = {"start": round(start + clock[r], 7), "end": round(end + clock[r], 7)}
                events.append({"step": step, "rank": r, "name": name, "peer": peer, "amount": amount} | times)

            add("compute", -1, tokens[r], now, ready[r])
            for p in (p for p in range(ranks) if p != r):
                add("send", p, size[r, p], ready[r], sent[r, p])
                add("recv", p, size[p, r], ready[r], came[p, r])
            add("barrier", -1, 0, done[r], over)
        now = over
    return events
