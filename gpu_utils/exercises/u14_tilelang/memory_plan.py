"""14.memory_plan: tiles and offsets for the on-chip memories of an SM, a CU or an AI core.

Many plans are right, so an answer is judged: by what every plan must keep, and by the tiles that it chose.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from gpu_utils.analytic.memory_plan import Placed, attention_buffers, placed
from gpu_utils.analytic.tolerance import EXACT
from gpu_utils.exercises.u14_tilelang import memory_plan_slips as slips
from gpu_utils.exercises.u14_tilelang.memory_plan_cases import DRAWN, EXAMPLE
from gpu_utils.exercises.u14_tilelang.memory_plan_slips import by, planning
from gpu_utils.grading.compare import Difference
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs, Misconception

_FORM = 'a dict {"tile": one of tiles, "offsets": {name: one offset for each copy}}, or None where no tile fits'
_SIZES = ("queries", "keys", "stages")


def tiles_of(*, queries: tuple[int, ...], keys: tuple[int, ...], stages: tuple[int, ...] = (1, 2, 3)) -> list[Any]:
    """Every combination, as the answer gets them."""
    return [dict(zip(_SIZES, (q, k, s), strict=True)) for q in queries for k in keys for s in stages]


def _inputs(case: Case, generator: Any) -> Inputs:
    if isinstance(case, Example):
        return case.inputs
    if machine := case.get("machine"):
        memories, buffers = attention_buffers(machine, case["d"])
        return {
            "memories": memories,
            "buffers": buffers,
            "tiles": tiles_of(queries=case["queries"], keys=case["keys"]),
            "n": case["n"],
        }
    names = ("name", "memory", "shape", "itemsize", "copies", "live")
    return {
        "memories": {
            name: dict(zip(("bytes", "parts", "align"), row, strict=True)) for name, row in case["memories"].items()
        },
        "buffers": [
            {k: list(v) if isinstance(v, tuple) else v for k, v in zip(names, row, strict=True)}
            for row in case["buffers"]
        ],
        "tiles": [dict(zip(_SIZES, row, strict=True)) for row in case["tiles"]],
        "n": case["n"],
    }


def _whole(value: Any) -> int | None:
    try:
        return int(value) if not isinstance(value, (bool, str)) and int(value) == value else None
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return None


def _numbers(value: Any) -> list[int] | None:
    """A list of whole numbers, also from an array or a tensor; None for anything else."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if not isinstance(value, (list, tuple)):
        return None
    found = [_whole(one) for one in value]
    return None if None in found else found  # type: ignore[return-value]


def _judge(case: Case, inputs: Inputs, value: Any) -> Difference | None:
    best = slips.right(**inputs)
    if value is None:
        if best is None:
            return None
        return Difference("none", f"the result is None, but {_said(best['tile'])} fits")
    read = _read(inputs, value)
    if isinstance(read, Difference):
        return read
    tile, offsets = read
    found = placed(inputs["memories"], inputs["buffers"], tile, offsets)
    for look in (_aligned, _apart, _inside):
        if wrong := look(inputs, tile, found):
            return wrong
    assert best is not None, "a plan that keeps every rule is among those that are searched"
    order = slips.RIGHT.order
    if order(tile, inputs["n"]) == order(best["tile"], inputs["n"]):
        return None
    blocks, rounds, _ = order(tile, inputs["n"])
    least, fewest, _ = order(best["tile"], inputs["n"])
    return Difference(
        f"tile:{_said(tile)}",
        f"{_said(tile)} makes {blocks} blocks of {rounds} rounds; {_said(best['tile'])} fits too and makes {least} of "
        f"{fewest}. Fewest blocks first, then fewest rounds, then most stages",
    )


def _read(inputs: Inputs, value: Any) -> tuple[dict[str, int], dict[str, list[int]]] | Difference:
    """Tile and offsets of an answer, or what is wrong with its form."""
    if not isinstance(value, Mapping) or set(value) != {"tile", "offsets"}:
        keys = f"a dict with {sorted(map(str, value))}" if isinstance(value, Mapping) else type(value).__name__
        return Difference("form", f"the result is {keys}; expected {_FORM}")
    tile = value["tile"]
    if isinstance(tile, (list, tuple)) and len(tile) == 3:
        tile = dict(zip(_SIZES, tile, strict=True))
    tile = {str(k): _whole(v) for k, v in tile.items()} if isinstance(tile, Mapping) else {}
    if tile not in inputs["tiles"]:
        return Difference(
            "form:tile", f"tile is {value['tile']!r:.80}; expected one of the {len(inputs['tiles'])} tiles"
        )
    given = value["offsets"]
    wanted = {one["name"]: tile.get(one["copies"], one["copies"]) for one in inputs["buffers"]}
    if not isinstance(given, Mapping) or set(given) != set(wanted):
        return Difference("form:names", f"offsets names {given!r:.80}; expected a dict with {list(wanted)}")
    offsets = {name: _numbers(given[name]) for name in wanted}
    for name, own in offsets.items():
        if own is None or len(own) != wanted[name]:
            return Difference(
                "form:copies",
                f"offsets[{name!r}] is {given[name]!r:.60}; expected an offset for each of {wanted[name]} copies",
            )
    return tile, offsets  # type: ignore[return-value]


def _aligned(inputs: Inputs, tile: Any, found: list[Placed]) -> Difference | None:
    for one in found:
        align = inputs["memories"][one.memory]["align"]
        if one.offset % align or one.offset < 0:
            return Difference(
                f"align:{one.name}",
                f"{one.name} starts at byte {one.offset} of {one.memory}, no multiple of {align} from 0 on",
            )
    return None


def _apart(inputs: Inputs, tile: Any, found: list[Placed]) -> Difference | None:
    for at, one in enumerate(found):
        for other in found[:at]:
            if one.meets(other):
                what = f"two copies of {one.name}" if one.name == other.name else f"{other.name} and {one.name}"
                low, high = max(one.offset, other.offset), min(one.offset + one.bytes, other.offset + other.bytes)
                return Difference(
                    f"overlap:{one.name}:{other.name}",
                    f"with {_said(tile)}, {what} share bytes {low} to {high - 1} of {one.memory}, and both are live in "
                    f"step {max(one.first, other.first)}",
                )
    return None


def _inside(inputs: Inputs, tile: Any, found: list[Placed]) -> Difference | None:
    for one in found:
        room = inputs["memories"][one.memory]["bytes"]
        if one.offset + one.bytes > room:
            return Difference(
                f"room:{one.name}:{_said(tile)}",
                f"with {_said(tile)}, {one.name} ends at byte {one.offset + one.bytes} of {one.memory}, and a part has "
                f"{room}",
            )
    return None


def _said(tile: Mapping[str, int]) -> str:
    return f"{tile['queries']} x {tile['keys']} in {tile['stages']} stage{'' if tile['stages'] == 1 else 's'}"


def drawn(rng: random.Random) -> dict[str, Any]:
    """A machine and an operator that nobody built: two memories, lives of one to six steps, hardly a byte too many."""
    steps = 5
    memories: dict[str, Any] = {"near": [0, rng.choice((1, 2, 2)), rng.choice((32, 64, 512))]}
    if rng.random() < 0.5:
        memories["far"] = [0, 1, rng.choice((16, 128))]
    buffers: list[Any] = []
    for at in range(rng.choice((4, 5)) + 2 * (len(memories) - 1)):
        memory = list(memories)[at % 4 == 3 and len(memories) > 1]
        first = rng.randrange(steps)
        last = min(steps - 1, first + rng.choice((0, 1, 1, 2)))
        copies: Any = 1
        if memory == "far" or at == 1:
            copies = "stages" if rng.random() < 0.7 else 1
        if at == 0:
            first, last = 0, steps - 1
        shape = (rng.choice(("queries", "queries", "keys")), rng.choice((4, 6, 10, 12, 20, 24, 36)))
        buffers.append(["ABCDEFGH"[at], memory, shape, rng.choice((2, 4)), copies, (first, last)])
    rows = rng.sample((16, 24, 33, 40, 48, 57, 64, 80, 96), 4)
    tiles = [[q, k, s] for q in rows for k in rng.sample((16, 32, 48, 64), 2) for s in rng.sample((1, 2, 3), 2)]
    rng.shuffle(tiles)
    case = Case("", memories=memories, buffers=buffers, tiles=tiles, n=rng.choice((192, 200, 257, 384)))
    made = _inputs(case, None)
    ordered = sorted(made["tiles"], key=lambda tile: slips.RIGHT.order(tile, made["n"]))
    fits = ordered[rng.randrange(len(ordered) // 2)]
    for name, row in memories.items():
        row[0] = slips.need(made["memories"], made["buffers"], fits, name) + rng.choice((0, 0, 8, 40))
    return dict(case.params)


def _fresh(rng: random.Random) -> Case:
    return Case("a machine that nobody built", **drawn(rng))


_MANY = {"queries": (128, 192, 256, 384), "keys": (32, 64, 96, 128)}
_FEW = {"queries": (128, 256), "keys": (64, 128)}

EXERCISE = Exercise(
    id="14.memory_plan",
    title="Plan the on-chip memories",
    parameters=("memories", "buffers", "tiles", "n"),
    kind="host",
    inputs=_inputs,
    reference=slips.right,
    judge=_judge,
    tolerance=lambda case, inputs: EXACT,
    dtype=lambda inputs: None,
    seconds=20.0,
    cases=(
        Example("the example of the statement", **EXAMPLE),
        *(
            Case(f"attention on {machine}, vectors of {d}", machine=machine, d=d, n=4096, **sizes)
            for machine, sizes in (("sm_90", _MANY), ("gfx942", _MANY), ("ascend950", _FEW))
            for d in (128, 256)
        ),
        Case(
            "the smallest tile is too large for the AI core",
            machine="ascend950",
            d=512,
            n=4096,
            queries=(128,),
            keys=(64,),
        ),
        *(Case(why, **given) for why, given in DRAWN),
    ),
    fresh=_fresh,
    misconceptions=(
        Misconception(
            "lives_ignored",
            planning(meet=lambda a, b: True),
            "Every buffer got bytes of its own, as if all were live all the time. Two that are never live in the same "
            "step may have the same bytes, and a larger tile fits.",
        ),
        Misconception(
            "last_step_free",
            planning(meet=slips.half_open),
            "A buffer's bytes were given away in the last step of its life. In that step it is still read: a buffer "
            "that is written there needs other bytes.",
        ),
        Misconception(
            "a_step_too_long",
            planning(meet=slips.one_step_more),
            "A buffer kept its bytes for one step after its last. Lives [1, 2] and [3, 4] have no step in common.",
        ),
        Misconception(
            "no_alignment",
            planning(align=lambda align: 1),
            "Offsets follow each other byte by byte. Round each up to a multiple of the memory's align.",
        ),
        Misconception(
            "copies_once",
            planning(copies=lambda copies: 1),
            "All copies of a buffer got one place. While one copy is read, the next is filled: each needs its own.",
        ),
        Misconception(
            "copies_not_live",
            planning(several=False),
            "Copies of a multiple buffer gave their bytes away outside of the steps in `live`. A later round's data is "
            "on its way into them all the time: with two copies or more, they are live in every step.",
        ),
        Misconception(
            "parts_as_one",
            planning(share=lambda rows, parts: rows, room=lambda size, parts: size * parts),
            "The parts of a memory were taken for one large one with the whole tile. Each vector core has a unified "
            "buffer of its own: it holds its share of the rows, in its own bytes.",
        ),
        Misconception(
            "whole_tile_in_each",
            planning(share=lambda rows, parts: rows),
            "Every part was given all rows of the tile. The parts share the rows: each holds ceil(rows / parts).",
        ),
        Misconception(
            "share_and_room",
            planning(room=lambda size, parts: size * parts),
            "The rows were shared out and the bytes of all parts added up: that counts the second part twice. `bytes` "
            "is the size of one part.",
        ),
        Misconception(
            "share_rounded_down",
            planning(share=lambda rows, parts: rows // parts),
            "An odd number of rows was halved and rounded down. One of the parts holds the row that is left.",
        ),
        Misconception(
            "elements_for_bytes",
            planning(width=lambda itemsize: 1),
            "Elements were counted, and memories are in bytes: times itemsize.",
        ),
        Misconception(
            "largest_first",
            planning(search=by(lambda one: -one.bytes)),
            "Buffers were placed once, the largest first, and where that failed the tile was given up. Another order "
            "of the same buffers can fit: try others before you give a tile up.",
        ),
        Misconception(
            "in_time_order",
            planning(search=by(lambda one: one.first)),
            "Buffers were placed once, in the order in which their lives begin, and where that failed the tile was "
            "given up. Holes open between long lives: try other orders before you give a tile up.",
        ),
        Misconception(
            "load_for_a_plan",
            planning(search=slips.by_load),
            "The bytes live in each step fit in sum, and that was taken for a plan. Offsets do not move while a buffer "
            "is live, so free bytes can lie in two holes. Only offsets prove that it fits.",
        ),
        Misconception(
            "most_rows",
            planning(order=lambda tile, n: (-tile["queries"], -(-n // tile["keys"]), -tile["stages"])),
            "The tile with the most queries was taken. What counts is the number of blocks, ceil(n / queries): two "
            "sizes can make as many, and then the rounds decide.",
        ),
        Misconception(
            "most_keys",
            planning(order=lambda tile, n: (-(-n // tile["queries"]), -tile["keys"], -tile["stages"])),
            "Of tiles with as many blocks, the one with the most keys was taken. What counts is the number of rounds, "
            "ceil(n / keys): two sizes can make as many, and then the stages decide.",
        ),
        Misconception(
            "blocks_rounded_down",
            planning(order=lambda tile, n: (n // tile["queries"], n // tile["keys"], -tile["stages"])),
            "Blocks or rounds were rounded down. The last, partly filled one reads and computes as well.",
        ),
        Misconception(
            "rounds_of_all",
            planning(
                order=lambda tile, n: (-(-n // tile["queries"]) * -(-n // tile["keys"]), -(-n // tile["queries"]))
            ),
            "The total number of rounds was made least. Traffic comes first: each block reads all keys and values "
            "once, however many rounds it takes.",
        ),
        Misconception(
            "stages_first",
            planning(order=lambda tile, n: (-tile["stages"], -(-n // tile["queries"]), -(-n // tile["keys"]))),
            "Stages were preferred to blocks. More stages hide a copy; fewer blocks do not make it at all. Stages come "
            "last.",
        ),
        Misconception(
            "stages_ignored",
            planning(order=lambda tile, n: (-(-n // tile["queries"]), -(-n // tile["keys"]), tile["stages"])),
            "Of tiles with as many blocks and rounds, the one with the fewest stages was taken. What fits and hides "
            "more of the copies is better.",
        ),
        Misconception(
            "first_that_fits",
            planning(order=lambda tile, n: 0),
            "The first tile of the list that fits was taken. Compare all that fit: blocks, then rounds, then stages.",
        ),
    ),
    hints=(
        "Three parts: what must a part of a memory hold with this tile (bytes, first and last step, once for each "
        "copy)? Is there a place for all of it? Which tile is asked about first?",
        "Sort the tiles by (blocks, rounds, -stages); the first for which every memory has a placement is the answer. "
        "For one memory: take the items in some order, each to the lowest aligned offset above all that it meets and "
        "that are placed already; try every order, and leave one as soon as it is past the end. Where the bytes "
        "that are live in one step are too many, no order needs to be tried.",
        "def place(left): if not left: return True; for i in left: low = max((at[j] + size[j] for j in at if "
        "first[i] <= last[j] and first[j] <= last[i]), default=0); low = -(-low // align) * align; if low + size[i] "
        "<= room: at[i] = low; if place(left - {i}): return True; del at[i]. Then return False.",
    ),
    explanation=(
        "In a placement that fits, push every buffer down until it rests on the floor or on another that it meets. "
        "Then taking the buffers from the lowest offset up, each on top of those that it meets, gives this very "
        "placement. So trying all orders finds a placement if there is one, and says for certain when there is none. "
        "Seven buffers have 5,040 orders, and most end early. No single order does: a large buffer first may leave two "
        "holes where one was needed, and the bytes that are live together are a lower bound, no plan. On an SM, "
        "registers decide the tile; on a CU the LDS; on the AI core L0A, of which Q and P take turns."
    ),
)
