"""What TileLang lowers for Ascend, on the virtual AI core: right, and free of faults until a flag is missing."""

from __future__ import annotations

import pytest
import torch

from gpu_utils.kernelset import tile_matmuls, tile_rows
from gpu_utils.kernelset.tile_attention import CASE
from tests.unit.virtual import ai_core_programs as programs
from tests.unit.virtual.ai_core import OnCores, needs_tilelang, on_cores, without_one

pytestmark = needs_tilelang


def _product(M: int, N: int, K: int, dtype: torch.dtype = torch.float16) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    a, b = (torch.randn(size, K, generator=generator).to(dtype) for size in (M, N))
    return [a, b, torch.full((M, N), float("nan"))]


def _close(got: torch.Tensor, exact: torch.Tensor) -> bool:
    return bool(((got.double() - exact).abs() <= 1e-4 * (1 + exact.abs())).all())


@pytest.mark.parametrize(("M", "N", "K"), [(100, 72, 80), (64, 130, 64)])
def test_a_product_whose_tiles_are_cut_off_is_padded_with_zeros(M: int, N: int, K: int) -> None:
    a, b, c = tensors = _product(M, N, K)
    on_cores(programs.cut_off_gemm, {"M": M, "N": N, "K": K, "BM": 64, "BN": 64, "BK": 64}).run(tensors)
    assert _close(c, a.double() @ b.double().T)


@pytest.mark.parametrize("sizes", [{"M": 10, "N": 20, "R": 4, "C": 20}, {"M": 8, "N": 44, "R": 4, "C": 24}])
def test_what_lies_beyond_a_cut_off_tile_may_be_read_and_is_not_stored(sizes: dict[str, int]) -> None:
    x = torch.randn(sizes["M"], sizes["N"])
    y = torch.full_like(x, float("nan"))
    on_cores(programs.cut_off_rows, sizes).run([x, y])
    assert torch.equal(y, x * 2)


def test_tilelangs_reduction_by_64_of_128_threads_gives_second_rows_the_first_rows_value() -> None:
    x = torch.randn(8, 128, generator=torch.Generator().manual_seed(0))
    y = torch.full_like(x, float("nan"))
    kernel = on_cores(tile_rows.softmax, {"M": 8, "N": 128, "R": 4, "dtype": "float32"})
    assert "AscendAllReduce<tl::MaxOp, 64, 1, 0>" in kernel.source
    kernel.run([x, y])
    off = (y.double() - x.double().softmax(1)).abs().amax(1)
    assert off[::2].max() < 1e-6
    assert off[1::2].min() > 1e-3


def test_bytes_and_flops_are_counted_exactly() -> None:
    M, N, K, BM, BN = 128, 64, 96, 64, 32
    sizes = {"M": M, "N": N, "K": K, "BM": BM, "BN": BN, "BK": 32, "dtype": "float16"}
    run = on_cores(tile_matmuls.gemm, sizes).run(_product(M, N, K))
    tiles = (M // BM) * (N // BN)
    assert run.counters["GM->L1"] == tiles * (BM + BN) * K * 2
    assert run.counters["L1->L0A"] == tiles * BM * K * 2
    assert run.counters["L1->L0B"] == tiles * BN * K * 2
    assert run.counters["L0C->GM"] == M * N * 4
    assert run.counters["cube_flops"] == 2 * M * N * K
    assert run.counters["notifies"] == run.counters["waits"]


def _gemm() -> tuple[OnCores, list[torch.Tensor]]:
    sizes = {"M": 64, "N": 64, "K": 192, "BM": 64, "BN": 32, "BK": 64, "dtype": "float16"}
    return on_cores(tile_matmuls.gemm, sizes), _product(64, 64, 192)


def _relu() -> tuple[OnCores, list[torch.Tensor]]:
    sizes = {"M": 128, "N": 64, "K": 128, "BM": 64, "BN": 32, "BK": 64, "blocks": 2, "dtype": "bfloat16"}
    return on_cores(programs.persistent_relu, sizes), _product(128, 64, 128, torch.bfloat16)


def _exp() -> tuple[OnCores, list[torch.Tensor]]:
    x = torch.randn(32, 64)
    return on_cores(programs.pipelined_exp, {"M": 32, "N": 64, "R": 4, "blocks": 2}), [
        x,
        torch.full_like(x, float("nan")),
    ]


def _twice() -> tuple[OnCores, list[torch.Tensor]]:
    return on_cores(programs.stored_twice, {"n": 64}), [torch.randn(64), torch.randn(64), torch.zeros(64)]


def _attention() -> tuple[OnCores, list[torch.Tensor]]:
    return on_cores(CASE.program, CASE.sizes), CASE.tensors(seed=2)


@pytest.mark.drawn("all", 2)
@pytest.mark.parametrize(
    ("make", "at_least"),
    [(_gemm, 12), (_relu, 28), (_exp, 16), (_twice, 5), (_attention, 34)],
    ids=["gemm", "gemm and relu on three cores", "exp in two buffers", "stored twice", "attention"],
)
def test_each_synchronisation_left_out_by_itself_is_found(make, at_least) -> None:
    kernel, tensors = make()
    switched, sites = without_one(kernel)
    assert len(sites) >= at_least
    assert not switched.run([*tensors, torch.tensor([-1], dtype=torch.int32)], check=False).faults
    silent = [
        site
        for number, site in enumerate(sites)
        if not switched.run([*tensors, torch.tensor([number], dtype=torch.int32)], check=False).faults
    ]
    assert not silent
