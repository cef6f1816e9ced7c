"""Plans of on-chip memory with one mistake each, and the right one. Plain Python: they run wherever an answer runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

Tile = Mapping[str, int]
Plan = dict[str, Any]


@dataclass(frozen=True)
class Item:
    """One copy of a buffer, to be placed: bytes in one part, first and last step of its life."""

    name: str
    bytes: int
    first: int
    last: int


@dataclass(frozen=True)
class Rules:
    """How a plan is made; the defaults are right, each other value is a mistake.

    width    bytes of an element -> bytes that it is taken for
    share    rows of a tile, parts -> rows in one part
    room     bytes of a part, parts -> bytes that may be filled
    meet     two items -> whether they are live together
    align    the alignment of a memory -> what offsets are multiples of
    several  whether copies of one buffer are live in all steps
    copies   copies of a buffer -> how many get a place
    search   how one memory is filled
    order    what the best tile has least of: (tile, n) -> something to sort by
    """

    width: Callable[[int], int] = lambda itemsize: itemsize
    share: Callable[[int, int], int] = lambda rows, parts: -(-rows // parts)
    room: Callable[[int, int], int] = lambda size, parts: size
    meet: Callable[[Item, Item], bool] = lambda a, b: a.first <= b.last and b.first <= a.last
    align: Callable[[int], int] = lambda align: align
    several: bool = True
    copies: Callable[[int], int] = lambda copies: copies
    search: Callable[..., list[int] | None] = field(default=lambda *of: _exactly(*of))
    order: Callable[[Tile, int], Any] = lambda tile, n: (
        -(-n // tile["queries"]),
        -(-n // tile["keys"]),
        -tile["stages"],
    )


RIGHT = Rules()


def items(
    memory: str, parts: int, buffers: Sequence[Mapping[str, Any]], tile: Tile, rules: Rules = RIGHT
) -> list[Item]:
    """What one part of a memory must hold with these tiles, copy by copy."""
    end, found = max(one["live"][1] for one in buffers), []
    for one in buffers:
        if one["memory"] != memory:
            continue
        rows, *more = (tile.get(size, size) for size in one["shape"])
        size = rules.share(rows, parts) * rules.width(one["itemsize"])
        for each in more:
            size *= each
        copies = tile.get(one["copies"], one["copies"])
        first, last = (0, end) if copies > 1 and rules.several else one["live"]
        found += [Item(one["name"], size, first, last)] * rules.copies(copies)
    return found


def _exactly(found: list[Item], room: int, align: int, rules: Rules) -> list[int] | None:
    """Offsets below `room`, or None where there are none.

    In some best placement each item stands on the top of one that it meets, or on the floor. So it is found by taking
    the items from the lowest offset up, and every order is tried.
    """
    at: dict[int, int] = {}

    def place(left: frozenset[int]) -> bool:
        if not left:
            return True
        seen = set()
        for i in left:
            if found[i] in seen:
                continue
            seen.add(found[i])
            tops = [at[j] + found[j].bytes for j in at if rules.meet(found[i], found[j])]
            low = -(-max(tops, default=0) // align) * align
            if low + found[i].bytes <= room:
                at[i] = low
                if place(left - {i}):
                    return True
                del at[i]
        return False

    if rules is RIGHT and _load(found) > room:
        return None
    return [at[i] for i in range(len(found))] if place(frozenset(range(len(found)))) else None


def _load(found: list[Item]) -> int:
    """Most bytes that are live in one step."""
    return max(
        (sum(one.bytes for one in found if one.first <= at <= one.last) for at in {one.first for one in found}),
        default=0,
    )


def by(key: Callable[[Item], Any]) -> Callable[..., list[int] | None]:
    """Each item at the lowest offset that is free, in one order: a heuristic."""

    def search(found: list[Item], room: int, align: int, rules: Rules) -> list[int] | None:
        at: dict[int, int] = {}
        for i in sorted(range(len(found)), key=lambda i: key(found[i])):
            low = 0
            for top, j in sorted((at[j] + found[j].bytes, j) for j in at if rules.meet(found[i], found[j])):
                if low < top and at[j] < low + found[i].bytes:
                    low = -(-top // align) * align
            if low + found[i].bytes > room:
                return None
            at[i] = low
        return [at[i] for i in range(len(found))]

    return search


def by_load(found: list[Item], room: int, align: int, rules: Rules) -> list[int] | None:
    """What is live together fits in sum, so it is taken for a plan; offsets by size."""
    if _load(found) > room:
        return None
    return by(lambda one: -one.bytes)(found, 1 << 60, align, rules)


def planning(**wrong: Any) -> Callable[..., Plan | None]:
    """A planner with these rules in place of the right ones."""
    rules = replace(RIGHT, **wrong) if wrong else RIGHT

    def memory_plan(memories: Any, buffers: Any, tiles: Any, n: int) -> Plan | None:
        for tile in sorted(tiles, key=lambda tile: rules.order(tile, n)):
            offsets: dict[str, list[int]] = {}
            for name, memory in memories.items():
                found = items(name, memory["parts"], buffers, tile, rules)
                room = rules.room(memory["bytes"], memory["parts"])
                places = rules.search(found, room, rules.align(memory["align"]), rules)
                if places is None:
                    break
                for one, place in zip(found, places, strict=True):
                    offsets.setdefault(one.name, []).append(place)
            else:
                return {"tile": dict(tile), "offsets": _of_all(offsets, buffers, tile)}
        return None

    return memory_plan


def _of_all(offsets: dict[str, list[int]], buffers: Any, tile: Tile) -> dict[str, list[int]]:
    """An offset for each copy: where one place was given to several, they have it together."""
    found = {}
    for one in buffers:
        copies = tile.get(one["copies"], one["copies"])
        own = offsets[one["name"]]
        found[one["name"]] = own if len(own) == copies else own[:1] * copies
    return found


right = planning()


def need(memories: Any, buffers: Any, tile: Tile, memory: str) -> int:
    """The fewest bytes that a part of this memory must have for these tiles."""
    found = items(memory, memories[memory]["parts"], buffers, tile)
    low, high = _load(found), sum(one.bytes + memories[memory]["align"] for one in found)
    while low < high:
        middle = (low + high) // 2
        if _exactly(found, middle, memories[memory]["align"], RIGHT) is None:
            low = middle + 1
        else:
            high = middle
    return low


def half_open(a: Item, b: Item) -> bool:
    """As if the last step of a life were no part of it."""
    return a.first < max(b.last, b.first + 1) and b.first < max(a.last, a.first + 1)


def one_step_more(a: Item, b: Item) -> bool:
    """As if a buffer were still needed in the step after its last."""
    return a.first <= b.last + 1 and b.first <= a.last + 1
