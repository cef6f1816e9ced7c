"""How many registers the compilers take when they are told how many blocks or waves must fit: their model and ours."""

from __future__ import annotations

import pytest

from gpu_utils.analytic.occupancy import occupancy, register_steps
from gpu_utils.chips import TARGETS
from gpu_utils.compiler.clang import compile_cpp

GREEDY = """
__global__ void {attribute} {name}(const float *x, float *out) {{
  float v[300];
#pragma unroll
  for (int i = 0; i < 300; ++i) v[i] = x[threadIdx.x * 300 + i];
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < 300; ++i) sum = sum * v[i] + v[(i * 37) % 300];
  out[threadIdx.x] = sum;
}}
"""


def registers(target: str, attributes: list[str]) -> list[int]:
    """Registers of a kernel that would like 300, once under each attribute."""
    source = [GREEDY.format(attribute=attribute, name=f"k{i}") for i, attribute in enumerate(attributes)]
    module = compile_cpp("".join(source), target)
    return [module.kernel(f"k{i}").registers for i in range(len(attributes))]


@pytest.mark.usefixtures("clang")
@pytest.mark.parametrize("target", ["sm_80", "sm_90"])
def test_ptxas_takes_the_most_registers_with_which_the_blocks_fit(target):
    """`__launch_bounds__(threads, blocks)` promises that so many blocks fit, also where warps do not divide by four."""
    asked = [(256, 2), (256, 3), (256, 4), (256, 6), (160, 3), (96, 5), (320, 3), (1024, 1), (128, 7), (128, 11)]
    taken = registers(target, [f"__launch_bounds__({threads}, {blocks})" for threads, blocks in asked])
    limits = TARGETS[target]
    for (threads, blocks), count in zip(asked, taken, strict=True):
        warps = threads // 32
        assert occupancy(limits, count, 0, warps).blocks >= blocks
        assert occupancy(limits, count + 1, 0, warps).blocks < blocks, "one register more and a block less"


@pytest.mark.usefixtures("clang")
@pytest.mark.parametrize("target", ["gfx942", "gfx1100"])
def test_llvm_takes_the_most_registers_with_which_the_waves_fit(target):
    fewest = {most: waves for waves, most in register_steps(TARGETS[target]).items() if most < 256}
    attribute = "__attribute__((amdgpu_flat_work_group_size(64, 64), amdgpu_waves_per_eu({0}, {0})))"
    assert registers(target, [attribute.format(waves) for waves in fewest.values()]) == list(fewest)
