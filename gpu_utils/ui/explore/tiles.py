"""The tiles of a matrix product in the order of their programs: who runs together, and what the L2 fetches for them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Any

import numpy as np

from gpu_utils.analytic.tile_order import OrderTraffic, by_die, grouped, order_traffic, rounds, row_by_row
from gpu_utils.chips import CHIPS
from gpu_utils.chips.caches import L2_OF_TARGET
from gpu_utils.errors import UnknownName
from gpu_utils.ui.explore.drawing import (
    Picture,
    beside,
    box,
    count,
    heading,
    path,
    picture,
    small,
    svg,
    table,
    text,
)
from gpu_utils.ui.explore.widget import Explorer, choice, slider

ORDERS = {"rows": "row by row", "groups": "grouped", "dies": "grouped, dealt by die"}
SIDES = (1024, 2048, 4096, 8192)
DEPTHS = (512, 1024, 2048, 4096, 8192, 16384)
TILES = {"64 x 64": (64, 64), "128 x 64": (128, 64), "128 x 128": (128, 128), "256 x 128": (256, 128)}
CHOICES = ("H100", "MI300X")
_BYTES = 2
_LEFT, _TOP, _STRIP, _GAP = 30.0, 22.0, 38.0, 8.0
_ROOM = 330.0


@dataclass(frozen=True)
class _Chip:
    name: str
    vendor: str
    unit: str
    units: int
    dies: int
    cache: int


def _chip(name: str) -> _Chip:
    if name not in CHOICES:
        raise UnknownName("chip", name, CHOICES)
    chip = CHIPS[name]
    sizes = L2_OF_TARGET[chip.target].sizes
    unit = "SM" if chip.vendor == "nvidia" else "CU"
    return _Chip(name, chip.vendor, unit, sizes.units, sizes.parts, sizes.size)


def order_of(order: str, M: int, N: int, tile: str, group: int, dies: int) -> np.ndarray:
    """The tiles (tile_m, tile_n) that programs 0, 1, 2, ... take. Raises UnknownName for an order or a tile."""
    if order not in ORDERS:
        raise UnknownName("order", order, ORDERS)
    if tile not in TILES:
        raise UnknownName("tile", tile, TILES)
    rows, columns = (-(-size // side) for size, side in zip((M, N), TILES[tile], strict=True))
    if order == "rows":
        return row_by_row(rows, columns)
    found = grouped(rows, columns, group)
    return by_die(found, dies) if order == "dies" else found


@lru_cache(maxsize=64)
def traffic(order: str, M: int, N: int, K: int, tile: str, group: int, chip: str) -> OrderTraffic:
    """What the L2s of the chip ask of memory, with one program on each SM or CU at a time, in 16 bits."""
    on = _chip(chip)
    taken = order_of(order, M, N, tile, group, on.dies)
    return order_traffic(taken, (M, N, K), TILES[tile], on.units, on.cache, on.dies, _BYTES)


def draw(M: int, N: int, K: int, tile: str, group: int, chip: str, order: str, done: int) -> Picture:
    """C with the tiles that are computed at one time, and the strips of A and B that they need.

    M, N, K  sizes of the product; tile: of TILES; group: rows of tiles of a group; chip: of CHOICES; order: of ORDERS
    done     how much of the product is done, in percent

    Errors: UnknownName for a tile, a chip or an order.
    """
    on = _chip(chip)
    taken = order_of(order, M, N, tile, group, on.dies)
    all_rounds = list(rounds(taken, on.units, on.dies))
    now = min(len(all_rounds) * done // 100, len(all_rounds) - 1)
    shown = svg(*_drawing(taken, all_rounds[now], now * on.units, on), _sentence(all_rounds[now], now, taken, on))
    title = f"C in tiles of {tile}: round {now + 1} of {len(all_rounds)}, {ORDERS[order]}"
    left = picture(on.vendor, _sentence(all_rounds[now], now, taken, on), heading(title), shown)
    return beside(left, _comparison(M, N, K, tile, group, on, order))


def _sentence(here: list[np.ndarray], now: int, taken: np.ndarray, on: _Chip) -> str:
    first, last = now * on.units, min((now + 1) * on.units, len(taken)) - 1
    rows, columns = _strips(here[0])
    needs = f"need {count(rows, 'strip')} of A and {count(columns, 'strip')} of B"
    one_each = f"one on each {on.unit} of {on.name}"
    start = f"Programs {first:,} to {last:,} of {len(taken):,} run together, {one_each}"
    if on.dies == 1:
        return f"{start}. Their {count(len(here[0]), 'tile')} {needs}; the L2 fetches {rows + columns} at most."
    total = sum(sum(_strips(tiles)) for tiles in here)
    return (
        f"{start}; program i is on die i modulo {on.dies}. The {count(len(here[0]), 'tile')} of die 0 (dark) "
        f"{needs}; the {on.dies} L2s together fetch {total} at most."
    )


def _strips(tiles: np.ndarray) -> tuple[int, int]:
    return len(set(tiles[:, 0].tolist())), len(set(tiles[:, 1].tolist()))


def _drawing(taken: np.ndarray, here: list[np.ndarray], before: int, on: _Chip) -> tuple[float, float, list[str]]:
    """Width, height and parts: A on the left, B above, C between them."""
    rows, columns = (int(side) + 1 for side in taken.max(axis=0))
    cell = _ROOM / max(rows, columns)
    x, y = _LEFT + _STRIP + _GAP, _TOP + _STRIP + _GAP
    wide, high = columns * cell, rows * cell
    state = np.full((rows, columns), "", dtype=object)
    state[tuple(taken[:before].T)] = "room"
    for tiles in here:
        state[tuple(tiles.T)] = "odd"
    state[tuple(here[0].T)] = "even"
    parts = [text(_LEFT, y + 12, "A"), text(x, _TOP + 12 - 18, "B"), text(x + wide + 6, y + 12, "C")]
    parts += [box(_LEFT + 14, y, _STRIP - 14, high), box(x, _TOP, wide, _STRIP - 14), box(x, y, wide, high)]
    top = 0
    for kinds, same in groupby(map(tuple, state.tolist())):
        tall = len(list(same))
        parts += [box(x + at * cell, y + top * cell, n * cell, tall * cell, kind) for at, n, kind in _runs(kinds)]
        top += tall
    needed = ["even" if at in set(here[0][:, 0].tolist()) else "" for at in range(rows)]
    parts += [box(_LEFT + 14, y + at * cell, _STRIP - 14, n * cell, kind) for at, n, kind in _runs(needed)]
    needed = ["even" if at in set(here[0][:, 1].tolist()) else "" for at in range(columns)]
    parts += [box(x + at * cell, _TOP, n * cell, _STRIP - 14, kind) for at, n, kind in _runs(needed)]
    if cell > 6 and len(here[0]) > 1:
        parts.append(path([(x + (n + 0.5) * cell, y + (m + 0.5) * cell) for m, n in here[0].tolist()], "edge"))
    return x + wide + 24, y + high + 6, parts


def _runs(kinds: Iterable[str]) -> list[tuple[int, int, str]]:
    """(first, how many, kind) of neighbours that are alike, without those that are "".

    >>> _runs(["", "even", "even", "odd"])
    [(1, 2, 'even'), (3, 1, 'odd')]
    """
    found, at = [], 0
    for kind, same in groupby(kinds):
        length = len(list(same))
        if kind:
            found.append((at, length, kind))
        at += length
    return found


def _comparison(M: int, N: int, K: int, tile: str, group: int, on: _Chip, order: str) -> Picture:
    """A table of the orders on this chip."""
    found = {name: traffic(name, M, N, K, tile, group, on.name) for name in ORDERS}
    least = found["rows"].least
    lines = [
        (ORDERS[name], f"{one.read / 2**20:,.0f} MiB", f"{one.bytes / least:.2f}", f"{2 * M * N * K / one.bytes:,.0f}")
        for name, one in found.items()
    ]
    caches = f"an L2 of {on.cache >> 20} MiB"
    if on.dies > 1:
        caches = f"{on.dies} L2s of {on.cache // on.dies >> 20} MiB each"
    chosen, marked = found[order], list(ORDERS).index(order)
    words = (
        f"The whole product on {on.name}, {ORDERS[order]}: {chosen.read / 2**20:,.0f} MiB are read, and A, B and C "
        f"once would be {least / 2**20:,.0f} MiB."
    )
    return picture(
        on.vendor,
        words,
        heading(f"{on.name}, {caches}: bytes of the whole product"),
        table(("order", "read from memory", "all bytes over the least", "FLOP a byte"), lines, [marked]),
        after=small(
            "16 bits an element, one program on each unit at a time, all at the same step along K; the L2 forgets what "
            "was used longest ago. Behind the L2s of MI300X is the Infinity Cache, which this does not count."
        ),
    )


def explorer(
    *,
    M: int = 8192,
    N: int = 8192,
    K: int = 8192,
    tile: str = "128 x 128",
    group: int = 8,
    chip: str = "H100",
    order: str = "rows",
    done: int = 50,
) -> Any:
    """Sizes, tile and order of a product on one chip, and a slider along its rounds.

    M, N, K  of SIDES and DEPTHS; tile: of TILES, such as "128 x 128"; group: rows of tiles of a group, 1 to 32
    chip     "H100" or "MI300X"; order: "rows", "groups" or "dies"; done: how much is done, in percent

    Errors: UnknownName for what is not in these lists.
    """
    controls = {
        "M": choice("M", SIDES, M),
        "N": choice("N", SIDES, N),
        "K": choice("K", DEPTHS, K),
        "tile": choice("tile", list(TILES), tile),
        "chip": choice("chip", CHOICES, chip),
        "order": choice("order", [(words, name) for name, words in ORDERS.items()], order),
        "group": slider("rows of a group", group, 1, 32),
        "done": slider("done, percent", done, 0, 99),
    }
    return Explorer(draw, controls)
