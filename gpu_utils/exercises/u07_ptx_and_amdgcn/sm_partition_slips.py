"""The wrong answers to 07.sm_partition: one search with something wrong in it, and formulas in place of the search."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from gpu_utils.grading.exercise import Misconception

Number = int | float


def searched(
    up: Callable[[Fraction], Any] = math.ceil,
    capped: bool = True,
    scale: Fraction = Fraction(1000),
    joined: Callable[..., Any] = max,
    workers: Callable[[int, int], int] = lambda sms, n: sms - n,
    last: bool = False,
    zero: str = "at most",
    capped_after: bool = True,
    left_out: int = 0,
    gives: Callable[[int, Fraction], Any] = lambda n, time: n,
) -> Callable[..., int]:
    """The search over every split, exact; right unless something is changed.

    up       rounds tiles for each program; capped: the link's bandwidth is a limit
    scale    MB / (GB/s) -> us; joined: of the two times; workers: SMs that compute
    last     the largest among equal splits; zero: when one after the other wins: "at most", "less" or "never"
    capped_after  the link limits one after the other, too; left_out: so many of the last splits
    gives    what is returned of the best n and its time
    """

    def answer(sms: int, tiles: int, tile_us: Number, megabytes: Number, sm_gb: Number, link_gb: Number) -> int:
        tile, data, each, link = (Fraction(str(value)) for value in (tile_us, megabytes, sm_gb, link_gb))

        def sends(n: int) -> Fraction:
            return data * scale / (min(n * each, link) if capped else n * each)

        def computes(n: int) -> Fraction:
            return up(Fraction(tiles, workers(sms, n))) * tile

        split = {n: joined((sends(n), computes(n))) for n in range(1, max(2, sms - left_out))}
        best = min(split.values())
        chosen = [n for n, time in split.items() if time == best]
        sent = sends(sms) if capped_after else data * scale / (sms * each)
        after = sent + up(Fraction(tiles, sms)) * tile
        if zero != "never" and (after < best or (zero == "at most" and after == best)):
            return gives(0, after)
        return gives(chosen[-1 if last else 0], best)

    return answer


def _in_seconds(sms: int, tiles: int, tile_us: Number, megabytes: Number, sm_gb: Number, link_gb: Number) -> int:
    """Right but for roundings: 5 * 1e-5 is no float, and a tie is lost."""

    def sends(n: int) -> float:
        return megabytes * 1e6 / (min(n * sm_gb, link_gb) * 1e9)

    def computes(workers: int) -> float:
        return -(-tiles // workers) * tile_us * 1e-6

    best, chosen = sends(sms) + computes(sms), 0
    for n in range(1, sms):
        time = max(sends(n), computes(sms - n))
        if time < best:
            best, chosen = time, n
    return chosen


def _fills_the_link(sms: int, tiles: int, tile_us: Number, megabytes: Number, sm_gb: Number, link_gb: Number) -> int:
    return min(math.ceil(link_gb / sm_gb), sms - 1)


def _where_both_are_equal(
    sms: int, tiles: int, tile_us: Number, megabytes: Number, sm_gb: Number, link_gb: Number
) -> int:
    """megabytes / (n sm_gb) == tiles tile_us / (sms - n), solved for n."""
    send, work = 1000 * megabytes / sm_gb, tiles * tile_us
    return max(1, min(round(sms * send / (send + work)), sms - 1))


MISCONCEPTIONS = (
    Misconception(
        "no_whole_rounds",
        searched(up=lambda each: each),
        "A tile is not divided: of 24 tiles, shared by five SMs, one of them computes 5, and the others wait for it. "
        "Round the tiles of an SM up to whole ones.",
    ),
    Misconception(
        "rounds_down",
        searched(up=math.floor),
        "The last round takes as long as a full one, also when few SMs have a tile in it: round up.",
    ),
    Misconception(
        "adds_the_two",
        searched(joined=sum),
        "With a split, sending and computing happen at the same time, on different SMs. The launch ends when the "
        "slower of the two ends: max. One after the other takes the sum. Are the two exchanged, or is one used twice?",
    ),
    Misconception(
        "no_link",
        searched(capped=False),
        "More SMs do not make the link faster: n SMs send n * sm_gb, and never more than link_gb.",
    ),
    Misconception(
        "last_of_equals",
        searched(last=True),
        "Several splits take equally long, and the fewest SMs for communication were asked for.",
    ),
    Misconception(
        "never_one_after_the_other",
        searched(zero="never"),
        "0 is a possible answer: all SMs send first and compute then. Where one more SM would save a whole round of "
        "tiles, that can be faster than any split.",
    ),
    Misconception(
        "split_wins_a_tie",
        searched(zero="less"),
        "Where one after the other is exactly as fast as the best split, the answer is 0: fewer roles, no queue.",
    ),
    Misconception(
        "milliseconds",
        searched(scale=Fraction(1)),
        "The time to send is too short by 1000. MB / (GB/s) gives milliseconds, and a tile is timed in microseconds.",
    ),
    Misconception(
        "binary_megabytes",
        searched(scale=Fraction(1000 * 2**20, 10**6)),
        "Here 1 MB is 10^6 bytes and 1 GB/s is 10^9 bytes a second, as links are sold.",
    ),
    Misconception(
        "gigabits",
        searched(scale=Fraction(8000)),
        "The bandwidths are gigabytes a second already: no factor of 8.",
    ),
    Misconception(
        "computes_on_all",
        searched(workers=lambda sms, n: sms),
        "SMs that send do not compute: n of them are missing when the tiles are dealt out.",
    ),
    Misconception(
        "one_round_more",
        searched(up=lambda each: each // 1 + 1),
        "Where the SMs share the tiles without a rest, `tiles // workers + 1` counts a round too many: round up.",
    ),
    Misconception(
        "link_only_for_a_split",
        searched(capped_after=False),
        "The splits are right. One after the other sends over the same link: link_gb limits all SMs together, too.",
    ),
    Misconception(
        "index_for_the_number",
        searched(gives=lambda n, time: max(n - 1, 0)),
        "Off by one: the first split has n = 1, and the first index of a list is 0.",
    ),
    Misconception(
        "leaves_out_the_last_split",
        searched(left_out=1),
        "The last split is n = sms - 1, with one SM that computes, and range(1, sms - 1) ends before it.",
    ),
    Misconception(
        "gives_the_time",
        searched(gives=lambda n, time: float(time)),
        "That is the time, in microseconds. The number of SMs was asked for.",
    ),
    Misconception(
        "faster_of_the_two",
        searched(joined=min),
        "A split ends when both sides have ended: the slower one counts, so max and not min.",
    ),
    Misconception(
        "in_seconds",
        _in_seconds,
        "The formulas are right, and in seconds their roundings tell equal times apart: 5 rounds of 10 us and 50 us "
        "are two numbers then. Compute in microseconds, as the formulas stand.",
    ),
    Misconception(
        "fills_the_link",
        _fills_the_link,
        "This many SMs fill the link, and that is not the aim: where there is much to compute, sending may take "
        "longer, as long as it ends before the computation does. If you did search: the time to send is far too long, "
        "check its units.",
    ),
    Misconception(
        "where_both_are_equal",
        _where_both_are_equal,
        "That formula takes times for smooth curves. The link has a limit and tiles come in whole rounds, so the best "
        "split is often beside the point where the two curves meet: try every n.",
    ),
)
