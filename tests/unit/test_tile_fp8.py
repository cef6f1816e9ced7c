"""A tile program's product of FP8 numbers, lowered for three vendors and executed, against float64."""

from __future__ import annotations

import pytest
import torch

from gpu_utils.analytic.tolerance import tolerance
from gpu_utils.backends.tiling import launch_tile
from gpu_utils.kernelset.tile_matmuls import gemm

pytestmark = pytest.mark.usefixtures("tilelang")
# gfx942 has the FNUZ form of E4M3, all others OCP's; sm_89 multiplies by mma, sm_90 by wgmma, sm_100 by tcgen05
FORMS = {
    "sm_89": "float8_e4m3fn",
    "sm_90": "float8_e4m3fn",
    "sm_100": "float8_e4m3fn",
    "gfx942": "float8_e4m3fnuz",
    "gfx950": "float8_e4m3fn",
    "ascend950": "float8_e4m3fn",
}


@pytest.mark.parametrize("target", FORMS)
def test_a_product_in_fp8_is_right(target):
    form = FORMS[target]
    generator = torch.Generator().manual_seed(14)
    a, b = (torch.randn(64, 128, generator=generator).to(getattr(torch, form)) for _ in "ab")
    c = torch.full((64, 64), float("nan"))
    launch_tile(gemm, (target,), [a, b, c], sanitize=True, M=64, N=64, K=128, BM=64, BN=64, BK=64, dtype=form)
    exact = a.double() @ b.double().T
    allowed = tolerance(torch.float32, k=128, magnitude=1.0, accumulator=torch.float32, roundings=2)
    assert ((c.double() - exact).abs() <= allowed.atol + allowed.rtol * exact.abs()).all()
