"""02.best_tile: which tile of a matrix product moves fewest bytes and still fits into registers, and what bounds it."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import torch

from gpu_utils.chips import CHIPS
from gpu_utils.exercises.u02_gpu_machine.numbers import up
from gpu_utils.grading.exercise import Case, Example, Exercise, Inputs, Misconception

Tile = Sequence[int]
Choice = dict[str, Any]
THREADS, REGISTERS = 256, 128
"""Of a block; float32 sums that a lane may keep. Both are said in the statement."""

BYTES = 2
SMALL = (8, 16)
"""A tile that one lane could keep alone: so an answer that forgets the other lanes still chooses one."""


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    tflops, tb_per_s = case.get("roof") or (CHIPS[case["chip"]].peak("bf16"), CHIPS[case["chip"]].bandwidth)
    sizes = {name: case[name] for name in ("M", "N", "K")}
    return {**sizes, "tiles": [list(tile) for tile in case["tiles"]], "tflops": tflops, "tb_per_s": tb_per_s}


def moved(M: int, N: int, K: int, tile: Tile) -> int:
    """Bytes, tile after tile: what a program with masks loads and stores.

    >>> moved(4, 6, 5, (2, 3))
    248
    """
    block_m, block_n = tile
    values = 0
    for row in range(0, M, block_m):
        for column in range(0, N, block_n):
            rows, columns = min(block_m, M - row), min(block_n, N - column)
            values += rows * K + K * columns + rows * columns
    return BYTES * values


Traffic = Callable[[int, int, int, Tile], float]


def _chosen(
    traffic: Traffic = moved,
    most: float = THREADS * REGISTERS,
    flops: int = 2,
    memory: Callable[[float, float], bool] = lambda intensity, ridge: intensity < ridge,
    last: bool = False,
    whole: Callable[[float], float] = round,
) -> Callable[..., Choice]:
    """An answer with these rules: bytes of a tile, values that a block may keep, FLOP of a multiply-add, rounding."""

    def answer(M: int, N: int, K: int, tiles: Sequence[Tile], tflops: float, tb_per_s: float) -> Choice:
        fit = [number for number, tile in enumerate(tiles) if tile[0] * tile[1] <= most]
        best = min(reversed(fit) if last else fit, key=lambda number: traffic(M, N, K, tiles[number]))
        found = traffic(M, N, K, tiles[best])
        bound = "memory" if memory(flops * M * N * K / found, tflops / tb_per_s) else "compute"
        return {"tile": best, "bytes": whole(found), "bound": bound}

    return answer


best_tile_reference = _chosen()


def _whole_tiles(M: int, N: int, K: int, tile: Tile) -> float:
    m, n = up(M, tile[0]), up(N, tile[1])
    return BYTES * (n // tile[1] * m * K + m // tile[0] * K * n + m * n)


def _whole_strips(M: int, N: int, K: int, tile: Tile) -> float:
    return _whole_tiles(M, N, K, tile) - BYTES * (up(M, tile[0]) * up(N, tile[1]) - M * N)


def _swapped(M: int, N: int, K: int, tile: Tile) -> float:
    rows, columns = up(M, tile[0]) // tile[0], up(N, tile[1]) // tile[1]
    return BYTES * (rows * M * K + columns * K * N + M * N)


def _floored(M: int, N: int, K: int, tile: Tile) -> float:
    return BYTES * (N // tile[1] * M * K + M // tile[0] * K * N + M * N)


def _fractions(M: int, N: int, K: int, tile: Tile) -> float:
    return BYTES * (M * N * K / tile[1] + M * N * K / tile[0] + M * N)


def _reads_only(M: int, N: int, K: int, tile: Tile) -> float:
    return moved(M, N, K, tile) - BYTES * M * N


def _written_in_float32(M: int, N: int, K: int, tile: Tile) -> float:
    return moved(M, N, K, tile) + 2 * M * N


def _in_values(M: int, N: int, K: int, tile: Tile) -> float:
    return moved(M, N, K, tile) / BYTES


def _each_matrix_once(M: int, N: int, K: int, tile: Tile) -> float:
    return BYTES * (M * K + K * N + M * N)


def _largest(M: int, N: int, K: int, tiles: Sequence[Tile], tflops: float, tb_per_s: float) -> Choice:
    areas = [tile[0] * tile[1] if tile[0] * tile[1] <= THREADS * REGISTERS else 0 for tile in tiles]
    best = areas.index(max(areas))
    found = best_tile_reference(M, N, K, [tiles[best]], tflops, tb_per_s)
    return {**found, "tile": best}


def _fresh(rng: random.Random) -> Case:
    sides = (32, 48, 64, 96, 128, 160, 192, 256, 320)
    tiles = [(rng.choice(sides[:5]), rng.choice(sides[:5])), (256, 256), SMALL]
    tiles += [(rng.choice(sides), rng.choice(sides)) for _ in range(4)]
    rng.shuffle(tiles)
    sizes = {name: rng.randint(100, 3000) for name in ("M", "N", "K")}
    return Case("a fresh product", **sizes, tiles=tuple(tiles), chip=rng.choice(["A100", "H100", "MI300X", "H20"]))


def _case(why: str, chip: str, sizes: tuple[int, int, int], *tiles: tuple[int, int]) -> Case:
    return Case(why, **dict(zip(("M", "N", "K"), sizes, strict=True)), tiles=(*tiles, SMALL), chip=chip)


_WRONG: tuple[tuple[str, Callable[..., Choice], str], ...] = (
    (
        "no_limit_of_registers",
        _chosen(most=10**9),
        "This tile does not fit: its sums are shared by 256 threads, and a lane may keep 128 of them.",
    ),
    (
        "lanes_forgotten",
        _chosen(most=REGISTERS),
        "The tile is one of at most 128 sums. 128 are one lane's, and a program has 256 lanes: up to 32,768 sums fit.",
    ),
    (
        "full_is_too_much",
        _chosen(most=THREADS * REGISTERS - 1),
        "A tile with exactly 128 sums for each lane is left out. It fits; only more is too much.",
    ),
    (
        "largest",
        _largest,
        "The bytes are those of the largest tile. A larger tile is not always better: its shape, and how it divides "
        "the matrix, count too. Work out the bytes of every tile that fits.",
    ),
    (
        "each_matrix_once",
        _chosen(_each_matrix_once),
        "This is the least possible: every matrix moved once. Each tile of C loads a whole strip of A and of B, and no "
        "cache helps here: how many tiles need the same row of A?",
    ),
    (
        "swapped",
        _chosen(_swapped),
        "The re-reads of A and B are swapped. The tiles in one row of tiles all need the same rows of A: A is read "
        "once for each column of tiles.",
    ),
    (
        "floored",
        _chosen(_floored),
        "The last, partly filled row or column of tiles is left out, even where it is the only one. It has programs "
        "too: round the number of tiles up.",
    ),
    (
        "fractions",
        _chosen(_fractions),
        "The re-reads are not whole numbers where the tile does not divide the matrix. A last, narrow column of tiles "
        "reads all of A once more: round the number of tiles up.",
    ),
    (
        "fractions_kept",
        _chosen(_fractions, whole=float),
        "`bytes` is not a whole number, because tiles are counted in fractions. A last, narrow column of tiles reads "
        "all of A once more: round the number of tiles up.",
    ),
    (
        "fractions_cut",
        _chosen(_fractions, whole=int),
        "The bytes are cut to a whole number, and tiles are still counted in fractions. A last, narrow column of tiles "
        "reads all of A once more: round the number of tiles up before you multiply.",
    ),
    (
        "whole_tiles",
        _chosen(_whole_tiles),
        "Tiles at the edges count as full. A masked load or store moves nothing outside of the matrix.",
    ),
    (
        "whole_strips",
        _chosen(_whole_strips),
        "Strips at the edges count as full: tiles, times their sides, times K. A masked load moves nothing outside of "
        "the matrix: all tiles of one row of tiles together read just the rows of A that there are.",
    ),
    (
        "reads_only",
        _chosen(_reads_only),
        "What is written is missing from the bytes: C, once.",
    ),
    (
        "written_in_float32",
        _chosen(_written_in_float32),
        "C counts 4 bytes a value, as it is summed. It is stored with 2, like A and B.",
    ),
    (
        "in_values",
        _chosen(_in_values),
        "These are values, half of the bytes: a value of A, B and C has 2 bytes.",
    ),
    (
        "ridge_is_memory",
        _chosen(memory=lambda intensity, ridge: intensity <= ridge),
        "Only a product exactly at the ridge is wrong: from the ridge on it is `compute`.",
    ),
    (
        "multiply_add_as_one",
        _chosen(flops=1),
        "Tile and bytes are right, and the bound follows from half of the FLOP: a multiply-add is two.",
    ),
    (
        "bound_swapped",
        _chosen(memory=lambda intensity, ridge: intensity >= ridge),
        "Tile and bytes are right, and the bound is the other one: left of the ridge, with fewer FLOP for a byte, the "
        "memory decides.",
    ),
    (
        "last_of_equals",
        _chosen(last=True),
        "Where two tiles move equally many bytes, the first of them is asked for.",
    ),
)


EXERCISE = Exercise(
    id="02.best_tile",
    title="Which tile, and what bounds it",
    parameters=("M", "N", "K", "tiles", "tflops", "tb_per_s"),
    kind="host",
    inputs=_inputs,
    reference=best_tile_reference,
    cases=(
        Example(
            "the example of the docstring",
            **{"M": 4, "N": 6, "K": 5, "tiles": [[1, 1], [2, 3], [400, 400]], "tflops": 16.0, "tb_per_s": 2.0},
        ),
        _case(
            "a square product on H100: squares are best", "H100", (2048, 2048, 2048), (64, 64), (32, 256), (128, 128)
        ),
        _case("the largest does not fit into registers", "MI300X", (1024, 1024, 512), (256, 256), (64, 128), (128, 64)),
        _case(
            "exactly 128 sums a lane, and a few more", "H100", (1930, 1700, 1024), (128, 128), (256, 128), (193, 170)
        ),
        _case("GPT-2 decodes for 8: few columns", "MI300X", (2304, 8, 768), (128, 128), (256, 16), (256, 8), (64, 64)),
        _case("a wide product: narrow tiles re-read B", "A100", (160, 3000, 700), (96, 340), (160, 64), (256, 96)),
        _case("ragged edges decide", "A100", (300, 300, 200), (128, 128), (100, 100), (160, 160), (96, 320)),
        _case("a chip with little arithmetic: bound by it", "H20", (1920, 1920, 1024), (32, 64), (160, 192)),
        _case("half of the FLOP would make it memory's", "H20", (640, 640, 640), (48, 48), (32, 80)),
        Case("exactly at the ridge", M=96, N=96, K=96, tiles=((64, 64), (96, 96), SMALL), roof=(32.0, 1.0)),
        Case("a little to the left of it", M=8, N=8, K=8, tiles=((8, 8), (4, 8)), roof=(1024 / 100.2, 384 / 100.7)),
        Case("a little to the right", M=8, N=8, K=8, tiles=((8, 8), (4, 8)), roof=(1024 / 100.7, 384 / 100.5)),
    ),
    fresh=_fresh,
    misconceptions=tuple(Misconception(*wrong) for wrong in _WRONG),
    hints=(
        "First throw out the tiles whose block_m * block_n sums do not fit into 256 lanes with 128 each. Then work out "
        "the bytes of each that is left. Take one tile of C: which rows of A and which columns of B does it need?",
        "All tiles together read A once for each column of tiles and B once for each row of tiles, and write C once. "
        "The number of columns of tiles is N / block_n, rounded up. Masked lanes move nothing.",
        "bytes = 2 * (ceil(N / block_n) * M * K + ceil(M / block_m) * K * N + M * N). bound: 2 * M * N * K / bytes "
        "against tflops / tb_per_s.",
    ),
    explanation=(
        "Each program reads a strip of A and a strip of B. Added up, A crosses the bus once for each column of tiles "
        "and B once for each row. With square tiles of side b in 16 bits the intensity is near b/2, so no tile that "
        "fits into registers reaches the ridge of an H100 by itself: the rest has to come from the L2, which is what "
        "the order of programs in unit 05 is for. An H20, with its ridge at 37, is reached by a tile of 96."
    ),
)
