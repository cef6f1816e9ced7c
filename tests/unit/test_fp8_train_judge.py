"""08.train on the grader's side: an answer earns nothing whose weights did not come from the FP8 products."""

import random

import pytest
import torch
import torch.nn.functional as F

from gpu_utils.exercises.u08_fp8 import train, train_judge, train_slips
from gpu_utils.exercises.u08_fp8.train_model import fp8_linear

RIGHT = train_slips.answer()


@pytest.fixture(scope="module")
def one():
    case = train.EXERCISE.fresh(random.Random(1))
    return case, train.EXERCISE.inputs(case, torch.Generator().manual_seed(1))


def kind(one, answer) -> str:
    case, inputs = one
    found = train_judge.judge(case, inputs, train.EXERCISE.call(answer, inputs))
    return found.kind if found else ""


def test_the_same_loop_with_the_same_scales_gives_the_same_numbers(one):
    _, inputs = one
    value = train.EXERCISE.call(train_slips.answer(looks=False), inputs)
    steps = range(len(value["losses"]))
    scales = {
        layer: [{operand: figures["scale"][step] for operand, figures in of.items()} for step in steps]
        for layer, of in value["passes"].items()
    }
    losses, trained, passes = train_judge.again(inputs, scales)
    assert losses == pytest.approx(value["losses"], rel=1e-6)
    assert train_judge.moved(trained, value["trained"]) < 1e-6 * train_judge.moved(inputs["weights"], trained)
    assert passes == value["passes"]


class _Beside(torch.autograd.Function):
    """A product in float32; that in FP8 is asked as well, forward and back, and thrown away."""

    @staticmethod
    def forward(ctx, x, w, product):
        with torch.enable_grad():
            ctx.x = x.detach().requires_grad_()
            ctx.y = product(ctx.x, w)
        ctx.save_for_backward(x, w)
        return F.linear(x, w)

    @staticmethod
    def backward(ctx, grad):
        x, w = ctx.saved_tensors
        with torch.enable_grad():
            torch.autograd.grad(ctx.y, [ctx.x], grad)
        return grad @ w, grad.flatten(0, -2).T @ x.flatten(0, -2), None


def beside(model, batches, rate, linear):
    def product(x, w, scales, seen):
        return _Beside.apply(x, w, lambda x, w: linear(x, w, scales, seen))

    return RIGHT(model, batches, rate, product)


def only_the_forward_pass_in_float32(model, batches, rate, linear):
    def product(x, w, scales, seen):
        y = linear(x, w, scales, seen)
        return F.linear(x, w).detach() + y - y.detach()

    return RIGHT(model, batches, rate, product)


def never_trained(model, batches, rate, linear):
    before = [parameter.detach().clone() for parameter in model.parameters()]
    found = RIGHT(model, batches, rate, linear)
    with torch.no_grad():
        for parameter, first in zip(model.parameters(), before, strict=True):
            parameter.lerp_(first, 0.9)
    return found


def other_losses(model, batches, rate, linear):
    losses, log = RIGHT(model, batches, rate, linear)
    return [0.98 * loss for loss in losses], log


def other_scales_told(model, batches, rate, linear):
    """A recipe that loses the first step, and a record of it that says otherwise."""
    found = train_slips.answer(looks=False, first=2.0)(model, batches, rate, linear)
    for cell in linear.__closure__:
        if isinstance(cell.cell_contents, dict) and "h.0.mlp.c_fc" in cell.cell_contents:
            for of in cell.cell_contents.values():
                for figures in of.values():
                    figures["scale"] = [amax / 224 for amax in figures["amax"]]
                    figures["underflowed"] = [0.0] * len(figures["amax"])
    return found


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (RIGHT, ""),
        (beside, "loop:weights:way"),
        (only_the_forward_pass_in_float32, "loop:weights:way"),
        (never_trained, "loop:weights:slow"),
        (other_losses, "losses:other"),
        (other_scales_told, "loop:later:way"),
    ],
)
def test_weights_and_losses_must_follow_from_the_scales(one, answer, expected):
    assert kind(one, answer) == expected


def test_a_layer_behind_a_lost_gradient_is_not_blamed_for_its_amax_of_zero(one):
    case, inputs = one
    value = train.EXERCISE.call(train_slips.answer(looks=False, first=100.0), inputs)
    assert 0.0 in [of["dy"]["amax"][0] for of in value["passes"].values()]
    found = train_judge.judge(case, inputs, value)
    assert found is not None
    assert found.kind.startswith("first:underflows")
    assert "was 0.0e+00" not in found.detail


def test_a_product_says_which_scale_is_missing():
    with pytest.raises(ValueError, match="scales has no 'dy'"):
        fp8_linear(torch.ones(1, 2), torch.ones(3, 2), {"x": 1.0, "w": 1.0}, lambda operand, amax: None)
