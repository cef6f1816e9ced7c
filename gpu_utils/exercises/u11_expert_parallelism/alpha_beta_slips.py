"""The simulator of 11.alpha_beta by its rules, each of which can be wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Step = Sequence[tuple[int, int, int]]
Links = Mapping[str, Sequence[float]]
Loads = Mapping[str, int]
Crossing = list[tuple[Sequence[str], int]]
"""(links of the route, bytes) of every transfer of a step."""


def slowest(crossing: Crossing, loads: Loads, links: Links) -> float:
    """Seconds of one step: its slowest link, with all bytes that it carries."""
    return max((links[name][0] + size / links[name][1] for name, size in loads.items()), default=0.0)


def by_time(steps: Sequence[Loads], links: Links) -> str:
    """The link whose bytes of all steps take longest."""
    whole = _whole(steps)
    return max(whole, key=lambda name: whole[name] / links[name][1])


def fastest(seconds: Mapping[str, float], schedules: Mapping[str, Sequence[Step]]) -> str:
    return min(seconds, key=lambda name: seconds[name])


def answer(
    crossed: Callable[[Sequence[str]], Sequence[str]] = lambda route: route,
    step: Callable[[Crossing, Loads, Links], float] = slowest,
    total: Callable[..., float] = sum,
    busiest: Callable[[Sequence[Loads], Links], str] = by_time,
    choose: Callable[..., str] = fastest,
) -> Callable[..., dict[str, Any]]:
    """An answer with these rules."""

    def alpha_beta(
        schedules: Mapping[str, Sequence[Step]], routes: Sequence[Sequence[Sequence[str]]], links: Links
    ) -> dict[str, Any]:
        seconds, busy = {}, {}
        for name, steps in schedules.items():
            crossings = [[(crossed(routes[a][b]), size) for a, b, size in one] for one in steps]
            loads = [_loads(crossing) for crossing in crossings]
            times = [step(crossing, load, links) for crossing, load in zip(crossings, loads, strict=True)]
            whole = total is alpha_once or total is steps_do_not_wait
            seconds[name] = total(loads, links) if whole else total(times)
            busy[name] = busiest(loads, links)
        return {"seconds": seconds, "busiest": busy, "choose": choose(seconds, schedules)}

    return alpha_beta


def _loads(crossing: Crossing) -> Counter[str]:
    found: Counter[str] = Counter()
    for route, size in crossing:
        for name in route:
            found[name] += size
    return found


def _whole(steps: Sequence[Loads]) -> Counter[str]:
    return sum((Counter(load) for load in steps), Counter())


# --- wrong rules for a step -----------------------------------------------------------------------------------------


def alpha_of_every_transfer(crossing: Crossing, loads: Loads, links: Links) -> float:
    many = Counter(name for route, _ in crossing for name in route)
    return max(many[name] * links[name][0] + size / links[name][1] for name, size in loads.items())


def alpha_of_idle_links(crossing: Crossing, loads: Loads, links: Links) -> float:
    return max(alpha + loads.get(name, 0) / bandwidth for name, (alpha, bandwidth) in links.items())


def bytes_only(crossing: Crossing, loads: Loads, links: Links) -> float:
    return max(size / links[name][1] for name, size in loads.items())


def nothing_shared(crossing: Crossing, loads: Loads, links: Links) -> float:
    return max(links[name][0] + size / links[name][1] for route, size in crossing for name in route)


def one_after_the_other(crossing: Crossing, loads: Loads, links: Links) -> float:
    return sum(max(links[name][0] + size / links[name][1] for name in route) for route, size in crossing)


def links_added_up(crossing: Crossing, loads: Loads, links: Links) -> float:
    return sum(links[name][0] + size / links[name][1] for name, size in loads.items())


def bits(crossing: Crossing, loads: Loads, links: Links) -> float:
    return max(links[name][0] + 8 * size / links[name][1] for name, size in loads.items())


def half(crossing: Crossing, loads: Loads, links: Links) -> float:
    return max(links[name][0] + 2 * size / links[name][1] for name, size in loads.items())


def terms_apart(crossing: Crossing, loads: Loads, links: Links) -> float:
    return max(links[name][0] for name in loads) + bytes_only(crossing, loads, links)


# --- wrong sums over the steps --------------------------------------------------------------------------------------


def alpha_once(steps: Sequence[Loads], links: Links) -> float:
    start = max(links[name][0] for name in _whole(steps))
    return start + sum(bytes_only([], load, links) for load in steps)


def steps_do_not_wait(steps: Sequence[Loads], links: Links) -> float:
    used = Counter(name for load in steps for name in load)
    whole = _whole(steps)
    return max(used[name] * links[name][0] + size / links[name][1] for name, size in whole.items())


# --- wrong answers to which link, and which schedule ----------------------------------------------------------------


def by_bytes(steps: Sequence[Loads], links: Links) -> str:
    whole = _whole(steps)
    return max(whole, key=lambda name: whole[name])


def in_one_step(steps: Sequence[Loads], links: Links) -> str:
    times = [(size / links[name][1], name) for load in steps for name, size in load.items()]
    return max(times)[1]


def slowest_cable(steps: Sequence[Loads], links: Links) -> str:
    return min(_whole(steps), key=lambda name: links[name][1])


def fewest_steps(seconds: Mapping[str, float], schedules: Mapping[str, Sequence[Step]]) -> str:
    return min(schedules, key=lambda name: len(schedules[name]))
