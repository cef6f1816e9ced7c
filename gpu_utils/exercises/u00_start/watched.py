"""A second look at a call that ran on a GPU, where an access outside a tensor goes unnoticed."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from gpu_utils.backends import interpreter
from gpu_utils.grading.execute import move
from gpu_utils.grading.exercise import Inputs


def call_watched(answer: Callable[..., Tensor], inputs: Inputs) -> Tensor:
    """The answer's result; after a call on a GPU the same call is repeated in the interpreter.

    A kernel without a mask often gives the right values on a GPU, because what lies behind a tensor is padding. The
    interpreter raises OutOfBounds for it, whatever the learner's device is.
    """
    result = answer(**inputs)
    if inputs["x"].device.type != "cpu":
        with interpreter():
            answer(**move(inputs, "cpu"))
    return result
