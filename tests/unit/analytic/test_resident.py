"""The virtual GPU asks the same occupancy when it predicts how many waves hide each other's waits."""

from __future__ import annotations

import pytest
import torch

from gpu_utils.compiler.clang import compile_cpp
from gpu_utils.virtual import virtual_gpu
from gpu_utils.virtual.predict import resident_waves

SOURCE = """
__global__ void k(float *x) {
  __shared__ float t[3000];
  t[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = t[threadIdx.x] + 1.0f;
}
"""


@pytest.mark.usefixtures("clang")
@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950", "gfx1100"])
@pytest.mark.parametrize("threads", [64, 1024])
def test_resident_waves_are_those_of_the_compiled_kernel(target, threads):
    module = compile_cpp(SOURCE, target)
    with virtual_gpu(target) as gpu:
        gpu.load(module).launch("k", 1, threads, [torch.zeros(1024)])
    assert resident_waves(gpu.last) == module.occupancy("k", threads).waves
