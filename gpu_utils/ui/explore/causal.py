"""The tiles of attention's scores under a mask: skipped, full or masked, what that saves, and one tile by element."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import numpy as np

from gpu_utils.analytic.attention_tiles import Scores, Tile
from gpu_utils.errors import BadArgument
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

MASKS = {"causal": "causal", "window": "causal, with a window", "none": "no mask"}
SIZES = (100, 128, 200, 256, 500, 512, 1000, 1024)
BLOCKS = (16, 32, 64, 128)
D, ITEMSIZE = 64, 2
"""Length of a vector and bytes of a number, for FLOPs and bytes."""

_BOX = {Tile.FULL: "even", Tile.MASKED: "odd"}
_WORDS = {Tile.SKIPPED: "skipped", Tile.FULL: "full: it needs no mask", Tile.MASKED: "computed with a mask"}
_LEFT, _TOP, _SIDE = 40.0, 34.0, 320.0


def scores(N: int, block_m: int, block_n: int, mask: str, window: int) -> Scores:
    return Scores(N, block_m, block_n, causal=mask != "none", window=window if mask == "window" else None)


def draw(N: int, block_m: int, block_n: int, mask: str, window: int, row: int, key: int) -> Picture:
    """All tiles beside the elements of one, with a table of the work.

    N        positions; block_m, block_n: queries and keys of a tile; mask: of MASKS; window: keys that a query sees
    row, key the tile that is shown by its elements, by block of queries and of keys; a larger one stands for the last
    """
    of = scores(N, block_m, block_n, mask, window)
    kinds = of.kinds()
    row, key = min(row, kinds.shape[0] - 1), min(key, kinds.shape[1] - 1)
    words = _words(of, kinds, mask)
    title = f"{N} x {N} scores in tiles of {block_m} x {block_n}, {MASKS[mask]}" + (
        f" of {window}" if mask == "window" else ""
    )
    left = picture("", words, heading(title), svg(*_tiles(of, kinds, row, key), words), after=_work(of, kinds))
    one = _words_of_one(of, kinds, row, key)
    right = picture(
        "",
        one,
        heading(f"The tile of query block {row} and key block {key}: {_WORDS[Tile(kinds[row, key])]}"),
        svg(*_elements(of, row, key), one),
        after=small("Each row is a query, each column a key; filled: the query sees the key, and the score counts."),
    )
    return beside(left, right)


def _words(of: Scores, kinds: np.ndarray, mask: str) -> str:
    found = {kind: int((kinds == kind).sum()) for kind in Tile}
    computed = kinds.size - found[Tile.SKIPPED]
    made = computed * of.block_m * of.block_n
    return (
        f"{MASKS[mask].capitalize()}: {computed:,} of {count(kinds.size, 'tile')} are computed, "
        f"{found[Tile.MASKED]:,} of them with a mask, and {found[Tile.SKIPPED]:,} are skipped. Of the {made:,} scores "
        f"that are made, {of.needed:,} count ({of.needed / made:.0%})."
    )


def _words_of_one(of: Scores, kinds: np.ndarray, row: int, key: int) -> str:
    queries, keys = _positions(of, row, key)
    seen = int(of.sees(queries, keys).sum())
    where = f"Queries {_span(queries, of.N)}, keys {_span(keys, of.N)}"
    return (
        f"{where}: {seen:,} of {queries.size * keys.size:,} scores count; the tile is {_WORDS[Tile(kinds[row, key])]}."
    )


def _positions(of: Scores, row: int, key: int) -> tuple[np.ndarray, np.ndarray]:
    queries = row * of.block_m + np.arange(of.block_m)
    return queries[:, None], key * of.block_n + np.arange(of.block_n)[None, :]


def _span(positions: np.ndarray, N: int) -> str:
    first, last = int(positions.min()), int(positions.max())
    return f"{first} to {last}" + (f" (the last is {N - 1})" if last >= N else "")


def _tiles(of: Scores, kinds: np.ndarray, row: int, key: int) -> tuple[float, float, list[str]]:
    """Width, height and parts: queries from top to bottom, keys from left to right, true to scale."""
    scale = _SIDE / of.N
    tall, wide = of.block_m * scale, of.block_n * scale
    right, bottom = _LEFT + kinds.shape[1] * wide, _TOP + kinds.shape[0] * tall
    parts = [text(_LEFT, _TOP - 20, f"keys 0 to {of.N - 1} →"), text(0, _TOP + 10, "query", size=11)]
    parts += [text(0, _TOP + 24, "0 ↓", size=11), box(_LEFT, _TOP, right - _LEFT, bottom - _TOP)]
    for line, kinds_of_row in enumerate(kinds.tolist()):
        y, at = _TOP + line * tall, 0
        for kind, same in groupby(kinds_of_row):
            length = len(list(same))
            for tile in range(at, at + length) if kind in _BOX else ():
                parts.append(box(_LEFT + tile * wide, y, wide, tall, _BOX[Tile(kind)]))
            at += length
    x, y = _LEFT + key * wide, _TOP + row * tall
    parts.append(path([(x, y), (x + wide, y), (x + wide, y + tall), (x, y + tall), (x, y)], "edge"))
    end = _LEFT + of.N * scale
    if right > end + 1 or bottom > end - _LEFT + _TOP + 1:
        corner = [(end, _TOP), (end, _TOP + of.N * scale), (_LEFT, _TOP + of.N * scale)]
        parts.append(path(corner, "edge", "4 3"))
    legend = bottom + 14
    for number, kind in enumerate((Tile.FULL, Tile.MASKED, Tile.SKIPPED)):
        x = _LEFT + 112 * number
        parts += [box(x, legend, 12, 12, _BOX.get(kind, "empty"))]
        parts.append(text(x + 16, legend + 10, ("full", "with a mask", "skipped")[number], size=11))
    return max(right + 8, _LEFT + 330), legend + 18, parts


def _elements(of: Scores, row: int, key: int) -> tuple[float, float, list[str]]:
    """Width, height and parts: each element of one tile, neighbours in a row that are alike in one box."""
    queries, keys = _positions(of, row, key)
    seen, there = of.sees(queries, keys), (queries < of.N) & (keys < of.N)
    cell = _SIDE / max(of.block_m, of.block_n)
    right, bottom = _LEFT + of.block_n * cell, _TOP + of.block_m * cell
    parts = [text(_LEFT, _TOP - 20, f"keys {keys[0, 0]} to {keys[0, -1]} →")]
    parts += [text(0, _TOP + 10, "query", size=11), text(0, _TOP + 24, queries[0, 0], size=11)]
    parts += [text(0, bottom, queries[-1, 0], size=11), box(_LEFT, _TOP, right - _LEFT, bottom - _TOP)]
    state = np.where(seen, 2, np.where(there, 0, 1))
    for line, states in enumerate(state.tolist()):
        at = 0
        for one, same in groupby(states):
            length = len(list(same))
            if one:
                kind = "even" if one == 2 else "room"
                parts.append(box(_LEFT + at * cell, _TOP + line * cell, length * cell, cell, kind))
            at += length
    if cell >= 5:
        for line in range(1, of.block_n):
            parts.append(path([(_LEFT + line * cell, _TOP), (_LEFT + line * cell, bottom)], "grid"))
        for line in range(1, of.block_m):
            parts.append(path([(_LEFT, _TOP + line * cell), (right, _TOP + line * cell)], "grid"))
    if not there.all():
        parts += [box(_LEFT, bottom + 14, 12, 12, "room"), text(_LEFT + 16, bottom + 24, "behind the end", size=11)]
    return right + 8, bottom + 32, parts


def _work(of: Scores, kinds: np.ndarray) -> str:
    tiles = int((kinds != Tile.SKIPPED).sum())
    lines = [("tiles", f"{tiles:,}", f"{kinds.size:,}", f"{tiles / kinds.size:.1%}")]
    for name, unit, size, found in (
        ("matrix FLOPs", "M", 1e6, (of.flops(D), of.flops(D, skipping=False))),
        ("K and V loaded", "KiB", 1024, (of.bytes_of_keys(D, ITEMSIZE), of.bytes_of_keys(D, ITEMSIZE, skipping=False))),
    ):
        mine, all_of_it = found
        lines.append((name, f"{mine / size:,.1f} {unit}", f"{all_of_it / size:,.1f} {unit}", f"{mine / all_of_it:.1%}"))
    return table(("one head", "with skipping", "all tiles", "share"), lines) + small(
        f"D = {D}, 16 bits a number. A block of queries loads the keys and values of its tiles once."
    )


def explorer(
    *,
    N: int = 512,
    block_m: int = 64,
    block_n: int = 64,
    mask: str = "causal",
    window: int = 128,
    row: int = 3,
    key: int = 3,
) -> Any:
    """Positions, tile, mask and window, and two sliders for the tile that is shown by its elements.

    N        of SIZES; block_m, block_n: of BLOCKS; mask: "causal", "window" or "none"; window: 1 to 512 keys
    row, key block of queries and of keys

    Errors: UnknownName for what is not in these lists, BadArgument for a window or a tile that there is not.
    """
    if not 1 <= window <= 512:
        raise BadArgument(f"window is {window}; expected 1 to 512 keys")
    controls = {
        "N": choice("N", SIZES, N),
        "block_m": choice("queries a tile", BLOCKS, block_m),
        "block_n": choice("keys a tile", BLOCKS, block_n),
        "mask": choice("mask", [(words, name) for name, words in MASKS.items()], mask),
        "window": slider("window, keys", window, 1, 512),
    }
    rows, keys = scores(N, block_m, block_n, mask, window).kinds().shape
    if not (0 <= row < rows and 0 <= key < keys):
        raise BadArgument(f"there is no tile ({row}, {key}); expected one of {rows} x {keys}, counted from 0")
    controls |= {"row": slider("query block", row, 0, rows - 1), "key": slider("key block", key, 0, keys - 1)}
    found = Explorer(draw, controls)

    def tiles(_: Any) -> None:
        for name, block in (("row", "block_m"), ("key", "block_n")):
            controls[name].max = -(-controls["N"].value // controls[block].value) - 1

    for name in ("N", "block_m", "block_n"):
        controls[name].observe(tiles, names="value")
    return found
