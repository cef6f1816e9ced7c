"""02.tile_traffic: what a tiled matrix product reads from memory and writes to it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch

from gpu_utils.exercises.u02_gpu_machine.occupancy_nvidia import float_tolerance, up
from gpu_utils.grading.exercise import Case, Exercise, Inputs, Misconception

Traffic = dict[str, Any]
_NAMES = ("M", "N", "K", "block_m", "block_n", "block_k", "bytes_per_value")


def _inputs(case: Case, generator: torch.Generator) -> Inputs:
    return dict(case.params)


def tile_traffic_reference(
    M: int, N: int, K: int, block_m: int, block_n: int, block_k: int, bytes_per_value: int
) -> Traffic:
    """Tile after tile, what a program with masks loads and stores.

    >>> tile_traffic_reference(4, 6, 5, 2, 3, 1, bytes_per_value=1)
    {'read_a': 40, 'read_b': 60, 'written': 24, 'intensity': 1.935483870967742}
    """
    read_a = read_b = written = 0
    for row in range(0, M, block_m):
        for column in range(0, N, block_n):
            rows, columns = min(block_m, M - row), min(block_n, N - column)
            read_a += rows * K
            read_b += K * columns
            written += rows * columns
    return _traffic(M, N, K, bytes_per_value, read_a, read_b, written)


def _traffic(M: int, N: int, K: int, size: int, read_a: int, read_b: int, written: int) -> Traffic:
    moved = {"read_a": read_a * size, "read_b": read_b * size, "written": written * size}
    return {**moved, "intensity": 2 * M * N * K / sum(moved.values())}


def _counted(count: Callable[..., tuple[int, int, int]]) -> Callable[..., Traffic]:
    """An answer from `count(M, N, K, block_m, block_n, block_k)` -> values read of A, read of B, written."""

    def answer(M: int, N: int, K: int, block_m: int, block_n: int, block_k: int, bytes_per_value: int) -> Traffic:
        return _traffic(M, N, K, bytes_per_value, *count(M, N, K, block_m, block_n, block_k))

    return answer


def _tiles(size: int, block: int) -> int:
    return -(-size // block)


def _once(M: int, N: int, K: int, *_: int) -> tuple[int, int, int]:
    return M * K, K * N, M * N


def _swapped(M: int, N: int, K: int, bm: int, bn: int, bk: int) -> tuple[int, int, int]:
    return _tiles(M, bm) * M * K, _tiles(N, bn) * K * N, M * N


def _floored(M: int, N: int, K: int, bm: int, bn: int, bk: int) -> tuple[int, int, int]:
    return N // bn * M * K, M // bm * K * N, M * N


def _full_tiles(M: int, N: int, K: int, bm: int, bn: int, bk: int) -> tuple[int, int, int]:
    m, n, k = up(M, bm), up(N, bn), up(K, bk)
    return n // bn * m * k, m // bm * k * n, m * n


def _written_each_step(M: int, N: int, K: int, bm: int, bn: int, bk: int) -> tuple[int, int, int]:
    return _tiles(N, bn) * M * K, _tiles(M, bm) * K * N, _tiles(K, bk) * M * N


def _no_reuse(M: int, N: int, K: int, *_: int) -> tuple[int, int, int]:
    return M * N * K, M * N * K, M * N


def _fractional(M: int, N: int, K: int, bm: int, bn: int, bk: int) -> tuple[int, int, int]:
    return M * N * K // bn, M * N * K // bm, M * N


def _in_values(M: int, N: int, K: int, block_m: int, block_n: int, block_k: int, bytes_per_value: int) -> Traffic:
    return tile_traffic_reference(M, N, K, block_m, block_n, block_k, 1)


def _multiply_add_as_one(
    M: int, N: int, K: int, block_m: int, block_n: int, block_k: int, bytes_per_value: int
) -> Traffic:
    found = tile_traffic_reference(M, N, K, block_m, block_n, block_k, bytes_per_value)
    return {**found, "intensity": found["intensity"] / 2}


def _k_in_whole_steps(M: int, N: int, K: int, bm: int, bn: int, bk: int) -> tuple[int, int, int]:
    whole = up(K, bk)
    return _tiles(N, bn) * M * whole, _tiles(M, bm) * whole * N, M * N


def _reads_only(M: int, N: int, K: int, block_m: int, block_n: int, block_k: int, bytes_per_value: int) -> Traffic:
    found = tile_traffic_reference(M, N, K, block_m, block_n, block_k, bytes_per_value)
    return {**found, "intensity": 2 * M * N * K / (found["read_a"] + found["read_b"])}


def _written_in_float32(
    M: int, N: int, K: int, block_m: int, block_n: int, block_k: int, bytes_per_value: int
) -> Traffic:
    found = tile_traffic_reference(M, N, K, block_m, block_n, block_k, bytes_per_value)
    moved = found["read_a"] + found["read_b"] + 4 * M * N
    return {**found, "written": 4 * M * N, "intensity": 2 * M * N * K / moved}


def _fresh(rng: random.Random) -> Case:
    return Case(
        "a fresh product",
        M=rng.randint(200, 3000),
        N=rng.randint(200, 3000),
        K=rng.randint(100, 3000),
        block_m=rng.choice([32, 64, 128]),
        block_n=rng.choice([16, 48, 256]),
        block_k=rng.choice([16, 32, 64]),
        bytes_per_value=rng.choice([2, 4]),
    )


def _case(why: str, *sizes: int) -> Case:
    return Case(why, **dict(zip(_NAMES, sizes, strict=True)))


_WRONG: tuple[tuple[str, Callable[..., Traffic], str], ...] = (
    (
        "multiply_add_as_one",
        _multiply_add_as_one,
        "The bytes are right, the intensity is half: a product has 2 M N K FLOP.",
    ),
    (
        "fractional_tiles",
        _counted(_fractional),
        "The re-reads are not whole numbers where the tile does not divide the matrix. A last, narrow column of tiles "
        "reads all of A once more: round the number of tiles up.",
    ),
    (
        "floored",
        _counted(_floored),
        "The last, partly filled row or column of tiles is left out. It has programs too: round the number of tiles "
        "up.",
    ),
    (
        "full_tiles",
        _counted(_full_tiles),
        "Tiles at the edges count as full. A masked load or store moves nothing outside of the matrix.",
    ),
    (
        "once",
        _counted(_once),
        "This is the least possible: every matrix moved once. Each tile of C loads a whole strip of A and of B, and no "
        "cache helps here: how many tiles need the same row of A?",
    ),
    (
        "swapped",
        _counted(_swapped),
        "The re-reads of A and B are swapped. The tiles in one row of tiles all need the same rows of A: A is read "
        "once for each column of tiles.",
    ),
    (
        "k_in_whole_steps",
        _counted(_k_in_whole_steps),
        "K is rounded up to whole steps of block_k. The last step is masked too: a strip has exactly K values a row.",
    ),
    (
        "reads_only",
        _reads_only,
        "The bytes are right. The intensity leaves out what is written: divide by all three.",
    ),
    (
        "written_in_float32",
        _written_in_float32,
        "C is written with 4 bytes a value, as it is summed. It is stored with `bytes_per_value`, like A and B.",
    ),
    (
        "written_each_step",
        _counted(_written_each_step),
        "C is written after every step along K. The accumulator stays in registers until the tile is done, and is "
        "written once.",
    ),
    (
        "no_reuse",
        _counted(_no_reuse),
        "Every multiply-add loads both operands here. Within a tile a value of A is used for block_n columns after one "
        "load.",
    ),
    (
        "in_values",
        _in_values,
        "These are values, not bytes: multiply by bytes_per_value.",
    ),
)

EXERCISE = Exercise(
    id="02.tile_traffic",
    title="Traffic of a tiled product",
    parameters=_NAMES,
    kind="host",
    inputs=_inputs,
    reference=tile_traffic_reference,
    tolerance=float_tolerance,
    cases=(
        _case("square tiles that divide everything", 1024, 1024, 1024, 128, 128, 32, 2),
        _case("tiles wider than high: A is read less often", 1024, 1024, 512, 64, 256, 32, 2),
        _case("ragged edges: a last row and column of narrow tiles", 1000, 700, 300, 128, 64, 32, 2),
        _case("a tile larger than the matrix", 50, 40, 300, 64, 64, 32, 4),
        _case("a tall product with few columns: GPT-2's decoding", 2304, 8, 768, 128, 16, 64, 2),
        _case("tiles of one value: nothing is reused", 40, 30, 20, 1, 1, 1, 4),
    ),
    fresh=_fresh,
    misconceptions=tuple(Misconception(*wrong) for wrong in _WRONG),
    hints=(
        "Take one tile of C: which rows of A and which columns of B does it need? Now add up over all tiles of one row "
        "of tiles.",
        "All tiles together read A once for each column of tiles and B once for each row of tiles. The number of "
        "columns of tiles is N / block_n, rounded up. Masked lanes load nothing.",
        "read_a = ceil(N / block_n) * M * K, read_b = ceil(M / block_m) * K * N, written = M * N, all times "
        "bytes_per_value; intensity = 2 * M * N * K / (their sum). block_k plays no part.",
    ),
    explanation=(
        "Each program reads a strip of A and a strip of B. Added up, A crosses the bus once for each column of tiles "
        "and B once for each row: larger tiles, fewer readings. With square tiles of side b in bf16 the intensity is "
        "near b/2 FLOP per byte, so 128 x 128 alone cannot reach the ridge of an H100 (295) or an MI300X (247): the "
        "rest has to come from a cache, which is what grouped ordering in unit 05 is for."
    ),
)
