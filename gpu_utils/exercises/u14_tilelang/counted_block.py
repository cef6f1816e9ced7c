"""What the lab shows beside 14.portability: a product in tiles on three chips, and one of its blocks, counted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from gpu_utils.analytic.machines import machine
from gpu_utils.backends.tiling import launch_tile
from gpu_utils.errors import CompilerMissing
from gpu_utils.exercises.u14_tilelang.portability_cases import CHIPS, LARGE, block, inputs
from gpu_utils.grading.exercise import Case
from gpu_utils.kernelset.tile_matmuls import gemm


def tiled_product() -> dict[str, Any]:
    """Counts, chips and work of a product of 4,096 x 4,224 x 4,096 in float16: what `portability` takes.

    >>> sorted(tiled_product()), tiled_product()["counts"]["256x128x64"]["gfx942"]
    (['chips', 'counts', 'work'], None)
    """
    return inputs(LARGE, torch.Generator())


def counted_block(BM: int, BN: int, BK: int, K: int) -> dict[str, dict[str, Any]]:
    """One block of a product on three virtual machines: target -> bytes and matrix FLOPs, counted and in the table.

    The bytes are those that the block asks for, before L2 saves any. Without TileLang or a compiler there is one row,
    with the reason.
    """
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(rows, K, generator=generator).half() for rows in (BM, BN))
    c = torch.full((BM, BN), torch.nan)
    try:
        runs = launch_tile(gemm, CHIPS, [a, b, c], M=BM, N=BN, K=K, BM=BM, BN=BN, BK=BK, dtype="float16")
    except CompilerMissing as problem:
        return {"not counted": {"reason": str(problem)}}
    case = Case("one block", size=(BM, BN, K), buffers=dict.fromkeys(CHIPS, 1), spills=0, epilogue=0)
    found = {}
    for target, run in runs.items():
        expected = block(case, (BM, BN, BK), target) or {}
        found[machine(target).name] = {
            **dict(zip(("bytes counted", "matrix FLOPs counted"), _counted(run.counters), strict=True)),
            "bytes in the table": expected.get("bytes"),
            "matrix FLOPs in the table": expected.get("matrix"),
        }
    return found


def _counted(counters: Any) -> tuple[int, int]:
    """Bytes from and to memory, and FLOPs of the matrix unit."""
    if isinstance(counters, Mapping):
        return sum(size for way, size in counters.items() if "GM" in way), counters["cube_flops"]
    totals = counters.totals()
    return int(totals["global_load_bytes"] + totals["global_store_bytes"]), int(totals["matrix_flops"])
