"""The kernel set on every target that is executed."""

import pytest

from gpu_utils.virtual import virtual_gpu

from .kernels import CASES, compare, control, elementwise, matrix, reductions  # noqa: F401

TARGETS = ("sm_80", "sm_89", "sm_90", "gfx942", "gfx90a", "gfx950", "gfx1100", "gfx1201")


@pytest.mark.parametrize("name", sorted(CASES))
@pytest.mark.parametrize("target", TARGETS)
def test_kernel_agrees_with_its_reference(target, name):
    case = CASES[name]
    if target in case.refused:
        pytest.skip(case.refused[target])
    with virtual_gpu(target):
        checks = list(case.run(target))
    assert checks
    for check in checks:
        compare(*check)
