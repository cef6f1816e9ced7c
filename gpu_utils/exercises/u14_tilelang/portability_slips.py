"""Answers to 14.portability with one part exchanged each, and the right one, in plain Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Counts = Mapping[str, Any]
Chip = Mapping[str, float]
Work = Mapping[str, float]
Parts = dict[str, float]
BOUNDS = ("matrix", "other", "memory")


def busiest(count: Counts, chip: Chip) -> float:
    """Blocks that the unit with the most of them runs."""
    return float(-(-count["blocks"] // chip["units"]))


def seconds(count: Counts, chip: Chip, most: Callable[[Counts, Chip], float] = busiest, spills: bool = True) -> Parts:
    """What each of the three takes by itself."""
    on_one = most(count, chip) * chip["units"]
    moved = count["bytes"] + (count["spilled"] if spills else 0)
    return {
        "matrix": on_one * count["matrix"] / chip["matrix"],
        "other": on_one * count["other"] / chip["other"],
        "memory": count["blocks"] * moved / chip["memory"],
    }


def hides(count: Counts) -> bool:
    """Whether something computes while something is copied."""
    return bool(count["resident"] * count["buffers"] >= 2)


def together(parts: Parts, hidden: bool) -> float:
    """Seconds of the launch."""
    arithmetic = max(parts["matrix"], parts["other"])
    return max(arithmetic, parts["memory"]) if hidden else arithmetic + parts["memory"]


def longest(parts: Parts) -> str:
    """What bounds the launch."""
    return max(BOUNDS, key=lambda bound: parts[bound])


def roof(work: Work, chip: Chip) -> float:
    """The least seconds of the operator."""
    return max(work["flops"] / chip["matrix"], work["bytes"] / chip["memory"])


def worst(fractions: Mapping[str, float]) -> float:
    """What a tile is judged by: the least fraction."""
    return min(fractions.values())


def answer(
    takes: Callable[[Counts, Chip], Parts] = seconds,
    hidden: Callable[[Counts], bool] = hides,
    total: Callable[[Parts, bool], float] = together,
    least: Callable[[Work, Chip], float] = roof,
    worth: Callable[[Mapping[str, float]], float] = worst,
    everywhere: bool = True,
    bound: Callable[[Parts], str] = longest,
) -> Callable[..., Any]:
    """An answer made of these parts. everywhere: a tile that one of the chips refuses is out."""

    def portability(counts: Any, chips: Any, work: Any) -> tuple[Any, dict[str, Any]]:
        found = {}
        for tile, row in counts.items():
            rows = {name: row[name] for name in chips if row[name] is not None}
            if rows and (len(rows) == len(chips) or not everywhere):
                parts = {name: takes(count, chips[name]) for name, count in rows.items()}
                found[tile] = {
                    name: (bound(parts[name]), least(work, chips[name]) / total(parts[name], hidden(rows[name])))
                    for name in rows
                }
        if not found:
            return None, {}
        best = max(found, key=lambda tile: worth({name: share for name, (_, share) in found[tile].items()}))
        return best, found[best]

    return portability


right = answer()


def _of_spills(count: Counts, chip: Chip) -> Parts:
    return seconds(count, chip, spills=False)


def _even(count: Counts, chip: Chip) -> Parts:
    return seconds(count, chip, lambda count, chip: count["blocks"] / chip["units"])


def _by_rounds(count: Counts, chip: Chip) -> Parts:
    return seconds(count, chip, lambda c, chip: -(-c["blocks"] // (chip["units"] * c["resident"])) * c["resident"])


def _rounded_memory(count: Counts, chip: Chip) -> Parts:
    parts = seconds(count, chip)
    return parts | {"memory": parts["memory"] * busiest(count, chip) * chip["units"] / count["blocks"]}


def _one_peak(count: Counts, chip: Chip) -> Parts:
    return seconds(count, {**chip, "other": chip["matrix"]})


def _matrix_alone(count: Counts, chip: Chip) -> Parts:
    return seconds(count, chip) | {"other": 0.0}


def _one_block(count: Counts, chip: Chip) -> Parts:
    return {
        "matrix": count["matrix"] / chip["matrix"],
        "other": count["other"] / chip["other"],
        "memory": (count["bytes"] + count["spilled"]) / chip["memory"],
    }


def _of_a_unit(count: Counts, chip: Chip) -> Parts:
    parts = seconds(count, chip)
    return {name: took if name == "memory" else took / chip["units"] for name, took in parts.items()}


def _at_once(count: Counts, chip: Chip) -> Parts:
    return seconds(count, chip, lambda c, chip: -(-c["blocks"] // (chip["units"] * c["resident"])))


def _kinds_added(parts: Parts, hidden: bool) -> float:
    arithmetic = parts["matrix"] + parts["other"]
    return max(arithmetic, parts["memory"]) if hidden else arithmetic + parts["memory"]


WRONG: dict[str, Callable[..., Any]] = {
    "spills_left_out": answer(takes=_of_spills),
    "no_last_round": answer(takes=_even),
    "rounds_of_residents": answer(takes=_by_rounds),
    "memory_in_rounds": answer(takes=_rounded_memory),
    "one_peak": answer(takes=_one_peak),
    "peak_of_a_unit": answer(takes=_of_a_unit),
    "residents_at_once": answer(takes=_at_once),
    "kinds_added": answer(total=_kinds_added),
    "matrix_alone": answer(takes=_matrix_alone),
    "one_block": answer(takes=_one_block),
    "always_hidden": answer(hidden=lambda count: True),
    "never_hidden": answer(hidden=lambda count: False),
    "needs_two_blocks": answer(hidden=lambda count: count["resident"] >= 2),
    "needs_two_buffers": answer(hidden=lambda count: count["buffers"] >= 2),
    "all_added": answer(total=lambda parts, hidden: max(parts.values()) if hidden else sum(parts.values())),
    "of_the_peak": answer(least=lambda work, chip: work["flops"] / chip["matrix"]),
    "of_the_memory": answer(least=lambda work, chip: work["bytes"] / chip["memory"]),
    "least_times_added": answer(
        least=lambda work, chip: work["flops"] / chip["matrix"] + work["bytes"] / chip["memory"]
    ),
    "needs_both": answer(hidden=lambda count: count["resident"] >= 2 and count["buffers"] >= 2),
    "best_on_average": answer(worth=lambda fractions: sum(fractions.values())),
    "best_on_the_first": answer(worth=lambda fractions: next(iter(fractions.values()))),
    "best_somewhere": answer(worth=lambda fractions: max(fractions.values())),
    "refused_is_no_matter": answer(everywhere=False),
}


def bound_of_the_work(counts: Any, chips: Any, work: Any) -> tuple[Any, dict[str, Any]]:
    """The bound is read off the operator's intensity, whatever the tile moves."""
    tile, shares = right(counts, chips, work)

    def side(chip: Chip) -> str:
        return "matrix" if work["flops"] / chip["matrix"] > work["bytes"] / chip["memory"] else "memory"

    return tile, {name: (side(chips[name]), share) for name, (_, share) in shares.items()}


WRONG["bound_of_the_work"] = bound_of_the_work
