"""Inputs of 14.portability: what the blocks of a tiled product count on three chips, in whole numbers."""

from __future__ import annotations

import random
from typing import Any

import torch

from gpu_utils.analytic.machines import machine
from gpu_utils.grading.exercise import Case, Example, Inputs

CHIPS = ("sm_90", "gfx942", "ascend950")
TERA = 10**12
STAGING = {"sm_90": 227 << 10, "gfx942": 64 << 10, "ascend950": 512 << 10}
"""Bytes of a unit that hold rows of A and B: shared memory, LDS, L1."""
REUSED = {"sm_90": 6, "gfx942": 4, "ascend950": 3}
"""How many blocks of a row, or of a column, share what L2 has fetched once."""
SUMS = {"sm_90": 256 << 10, "gfx942": 512 << 10, "ascend950": 256 << 10}
"""Bytes of a unit that hold sums: registers, L0C."""


def chips() -> dict[str, dict[str, float]]:
    """Rates of whole chips, in FLOP/s and bytes/s."""
    found = {}
    for target in CHIPS:
        one = machine(target)
        rates = {name: getattr(one, name).value * TERA for name in ("matrix", "other", "memory")}
        found[target] = {"units": int(one.units.value or 0), **rates}
    return found


def block(case: Case, tile: tuple[int, int, int], target: str) -> dict[str, int] | None:
    """Counters of one block of (BM, BN, BK) and how many blocks there are; None where the tile has no room."""
    M, N, K = case["size"]
    BM, BN, BK = tile
    buffers = case["buffers"][target]
    staged, sums, steps = 2 * BK * (BM + BN) * buffers, 4 * BM * BN, -(-K // BK)
    room = min(STAGING[target] // staged, SUMS[target] // sums, 1 if target == "ascend950" else 8)
    if room < 1:
        return None
    over = 0 if target == "ascend950" else max(0, sums - SUMS[target] // 4)
    down, across = -(-M // BM), -(-N // BN)
    shared_a, shared_b = min(REUSED[target], across), min(REUSED[target], down)
    return {
        "blocks": down * across,
        "bytes": 2 * steps * BK * (BM // shared_a + BN // shared_b) + 4 * BM * BN,
        "spilled": over * steps // 8 * case["spills"],
        "matrix": 2 * BM * BN * BK * steps,
        "other": BM * BN * case["epilogue"] + steps * 64,
        "resident": room,
        "buffers": buffers,
    }


def inputs(case: Case, generator: torch.Generator) -> Inputs:
    """Counters by tile and chip, the chips, and the operator's own FLOPs and bytes."""
    if isinstance(case, Example):
        return case.inputs
    M, N, K = case["size"]
    tiles = {f"{BM}x{BN}x{BK}": (BM, BN, BK) for BM, BN, BK in case["tiles"]}
    return {
        "counts": {name: {target: block(case, tile, target) for target in CHIPS} for name, tile in tiles.items()},
        "chips": chips(),
        "work": {"flops": 2 * M * N * K, "bytes": 2 * K * (M + N) + 4 * M * N},
    }


def _count(blocks: int, moved: int, spilled: int, matrix: int, other: int, **place: int) -> dict[str, int]:
    return {"blocks": blocks, "bytes": moved, "spilled": spilled, "matrix": matrix, "other": other, **place}


def example() -> dict[str, Any]:
    """The example of the statement: round numbers, two chips, two tiles."""
    return {
        "counts": {
            "small": {
                "gpu": _count(16, 100, 0, 500, 10, resident=2, buffers=1),
                "npu": _count(16, 100, 0, 500, 10, resident=1, buffers=2),
            },
            "large": {
                "gpu": _count(4, 200, 50, 2000, 40, resident=1, buffers=1),
                "npu": _count(4, 200, 0, 2000, 40, resident=1, buffers=2),
            },
        },
        "chips": {
            "gpu": {"units": 4, "matrix": 4000.0, "other": 400.0, "memory": 1000.0},
            "npu": {"units": 2, "matrix": 4000.0, "other": 400.0, "memory": 500.0},
        },
        "work": {"flops": 8000, "bytes": 1000},
    }


def _nowhere() -> dict[str, Any]:
    found = example()
    found["counts"]["small"]["npu"] = None
    found["counts"]["large"]["gpu"] = None
    return found


def _beside() -> dict[str, Any]:
    found = example()
    for row in found["counts"].values():
        row["elsewhere"] = None  # a chip that nobody asks for refuses both
    return found


def _given(name: str) -> Any:
    return lambda: example()[name]


ONE, TWO = dict.fromkeys(CHIPS, 1), dict.fromkeys(CHIPS, 2)
SQUARES = [(64, 64, 64), (128, 128, 64), (256, 128, 64), (128, 256, 32), (256, 256, 32)]
LARGE = Case(
    "a large product, two buffers; large tiles spill on the GPUs",
    size=(4096, 4224, 4096),
    tiles=SQUARES,
    buffers=TWO,
    spills=1,
    epilogue=1,
)
CASES = (
    Example("the example of the statement", **{name: _given(name) for name in ("counts", "chips", "work")}),
    LARGE,
    Case(
        "one buffer: who hides the copies depends on how many blocks have room",
        size=(8192, 8192, 1024),
        tiles=[(128, 128, 128), (256, 128, 64), (256, 256, 64)],
        buffers=ONE,
        spills=0,
        epilogue=2,
    ),
    Case(
        "a chip's two buffers do what another's two blocks do",
        size=(3000, 5000, 2048),
        tiles=[(128, 128, 64), (256, 128, 128), (256, 256, 32)],
        buffers={"sm_90": 2, "gfx942": 1, "ascend950": 2},
        spills=1,
        epilogue=4,
    ),
    Case(
        "few rows: bound by memory, and units stand idle",
        size=(64, 8192, 8192),
        tiles=[(64, 64, 64), (64, 128, 64), (64, 256, 64)],
        buffers=TWO,
        spills=0,
        epilogue=1,
    ),
    Case(
        "an epilogue of many operations",
        size=(4096, 4096, 256),
        tiles=[(128, 128, 64), (256, 128, 32), (64, 256, 64)],
        buffers=TWO,
        spills=0,
        epilogue=3000,
    ),
    Case(
        "no tile has room on all three: None and {}",
        size=(2048, 2048, 2048),
        tiles=[(512, 256, 64), (256, 512, 64)],
        buffers=TWO,
        spills=0,
        epilogue=1,
    ),
    Example(
        "a chip that is not among the chips refuses every tile", **{n: (lambda n=n: _beside()[n]) for n in example()}
    ),
    Example("what each chip takes another one refuses", **{n: (lambda n=n: _nowhere()[n]) for n in example()}),
)


def fresh(rng: random.Random) -> Case:
    """Sizes nobody chose; at least one tile goes everywhere."""
    sides = (64, 96, 128, 192, 256)
    tiles = {(rng.choice(sides), rng.choice(sides), rng.choice((32, 64))) for _ in range(4)}
    return Case(
        "a product nobody chose",
        size=tuple(rng.randrange(1000, 9000) for _ in range(3)),
        tiles=[(128, 128, 64), *sorted(tiles)],
        buffers={target: rng.choice((1, 2)) for target in CHIPS},
        spills=1,
        epilogue=rng.choice((1, 2, 30)),
    )
