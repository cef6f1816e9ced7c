"""The reference of 06.backward is what autograd makes of attention in float64."""

from __future__ import annotations

import pytest
import torch

from gpu_utils.exercises.u06_flash_attention.backward import EXERCISE
from gpu_utils.exercises.u06_flash_attention.shared import scores


@pytest.mark.parametrize("case", EXERCISE.cases, ids=lambda case: case.label)
def test_the_reference_is_what_autograd_finds(case):
    given = EXERCISE.inputs(case, torch.Generator().manual_seed(3))
    q, k, v = (given[name].double().requires_grad_() for name in "qkv")
    out = scores(q, k, given["causal"], given["scale"]).softmax(-1) @ v
    expected = torch.autograd.grad(out, (q, k, v), given["do"].double())
    torch.testing.assert_close(EXERCISE.reference(**given), expected, rtol=1e-10, atol=1e-12)


def test_autograd_agrees_with_differences():
    """So that the reference is not two times the same mistake: gradcheck moves every element of q, k and v."""
    torch.manual_seed(3)
    q, k, v = (torch.randn(1, 2, 5, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
    assert torch.autograd.gradcheck(lambda q, k, v: scores(q, k, True, 0.5).softmax(-1) @ v, (q, k, v))
