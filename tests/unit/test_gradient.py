"""An answer of unit 04 that autograd goes through gets its gradient as it is, and torch does nothing beside it."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import ClassVar

import pytest
import torch

from gpu_utils.errors import GradientLost
from gpu_utils.exercises.gradient import forward_and_backward
from gpu_utils.grading.beside_kernels import watching


class Kept(torch.autograd.Function):
    """Keeps the gradients that it gets."""

    got: ClassVar[list[torch.Tensor]] = []

    @staticmethod
    def forward(ctx, x):
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx, dy):
        Kept.got.append(dy)
        return torch.empty_like(dy)


GRADIENTS = {
    "contiguous": lambda: torch.randn(3, 5),
    "transposed": lambda: torch.randn(5, 3).T,
    "expanded": lambda: torch.randn(1, 1).expand(3, 5),
}


@pytest.mark.parametrize("layout", GRADIENTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_the_gradient_arrives_with_its_own_strides_and_torch_does_no_work(layout, dtype):
    inputs = {"x": torch.randn(3, 5).to(dtype), "dy": GRADIENTS[layout]().to(dtype)}
    with watching(inputs, ()) as work:
        found = forward_and_backward("x")(Kept.apply, inputs)
    dy = Kept.got.pop()
    assert (dy.data_ptr(), dy.stride(), dy.dtype) == (inputs["dy"].data_ptr(), inputs["dy"].stride(), dtype)
    assert (work.kind, work.found) == ("", "")
    assert set(found) == {"y", "dx"}
    assert found["dx"].dtype == dtype


def test_an_input_that_the_result_does_not_depend_on_has_no_gradient():
    inputs = {"x": torch.randn(3), "w": torch.randn(3), "dy": torch.randn(3)}
    found = forward_and_backward("x", "w")(lambda x, w: 2 * x, inputs)
    assert torch.equal(found["dx"], 2 * inputs["dy"])
    assert found["dw"] is None


def test_a_result_that_autograd_lost_is_one_sentence():
    with pytest.raises(GradientLost, match="does not know how to go backward"):
        forward_and_backward("x")(lambda x: x.detach(), {"x": torch.randn(3), "dy": torch.randn(3)})


def test_going_backward_does_not_import_sympy():
    script = """
        import sys, torch
        from gpu_utils.exercises.gradient import forward_and_backward

        forward_and_backward("x")(lambda x: 2 * x, {"x": torch.randn(3), "dy": torch.randn(3)})
        print("sympy" in sys.modules)
        """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
