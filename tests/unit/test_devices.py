"""A tensor that an answer leaves on the CPU is found on a machine without a GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from gpu_utils.grading.check import check
from gpu_utils.grading.devices import ForeignTensor, ImaginaryDevice, foreign_tensor
from gpu_utils.grading.exercise import Misconception
from tests.unit.sample_exercises import AFFINE


def refused(answer):
    return foreign_tensor(AFFINE, answer, {"x": torch.arange(6.0).view(2, 3)})


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (lambda x: x + torch.ones(3), "add meets a tensor of shape (3,) that is on the CPU"),
        (lambda x: x.masked_fill(torch.ones(2, 3, dtype=torch.bool), 0), "masked_fill meets a tensor of shape (2, 3)"),
        (lambda x: x @ torch.eye(3), "mm meets a tensor of shape (3, 3)"),
        (lambda x: torch.where(torch.arange(3) > 0, x, 0.0), "where meets a tensor of shape (3,)"),
        (lambda x: torch.cat([x, torch.zeros(1, 3)]), "cat meets a tensor of shape (1, 3)"),
        (lambda x: torch.zeros(2, 3), "a result of shape (2, 3) stays on the CPU"),
        (lambda x: x.cpu(), "a result of shape (2, 3) stays on the CPU"),
    ],
)
def test_a_tensor_left_on_the_cpu_is_named(answer, found):
    assert found in refused(answer)


@pytest.mark.parametrize(
    "answer",
    [
        lambda x: x + torch.ones(3, device=x.device),
        lambda x: x + torch.ones(3).to(x),
        lambda x: x.new_zeros(2, 3) + torch.tensor(2.0),
        lambda x: x[torch.tensor([1, 0])],
        lambda x: x[x > 2].sum(),
        lambda x: x * (2 if x.max() > 4 else 3) + x.sum().item(),
        lambda x: x.clone().transpose(0, 1).add_(1).T.contiguous(),
        lambda x: torch.empty_like(x).copy_(torch.ones(2, 3)),
        lambda x: torch.tensor(x.cpu().numpy() * 2).to(x.device),
    ],
)
def test_what_a_gpu_allows_is_not_accused(answer):
    assert refused(answer) == ""


def test_the_imaginary_device_computes_gradients():
    with ImaginaryDevice() as device:
        x = device.move(torch.tensor([3.0, 4.0])).requires_grad_()
        (x * x).sum().backward()
        assert [part.item() for part in x.grad.unbind()] == [6.0, 8.0]


def test_two_devices_are_refused_in_backward_too():
    class OnTheCpu(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            return grad * torch.ones(2)

    with ImaginaryDevice() as device, pytest.raises(ForeignTensor):
        OnTheCpu.apply(device.move(torch.ones(2)).requires_grad_()).sum().backward()


def test_an_answer_without_tensors_is_not_run_again():
    assert foreign_tensor(AFFINE, pytest.fail, {"n": 3}) == ""


def test_a_check_says_what_a_gpu_would_refuse_and_which_misconception_it_is():
    def affine(x):
        return 2 * x + torch.ones(x.shape, dtype=x.dtype)

    left = Misconception("one_on_the_cpu", lambda x: x * 2 + torch.ones_like(x, device="cpu"), "Where are the ones?")
    report = check(replace(AFFINE, misconceptions=(*AFFINE.misconceptions, left)), affine, backends=["cpu"], seed=1)
    assert (report.status, report.misconception) == ("failed", "one_on_the_cpu")
    assert report.first_failure.kind == "device"
    assert "on a device apart from the CPU: it fails on a GPU: add meets a tensor of shape (9,)" in report.headline
