"""03.port_gpt2: a switch of torch that is left changed is named, and put back before anybody else meets it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch

from gpu_utils.exercises.u03_porting_to_rocm.port_switches import _SWITCHES, AS_BEFORE, watched_switches

LEFT: dict[str, tuple[str, Callable[[], Any]]] = {
    "tf32, by its function": ("float32 precision", lambda: torch.set_float32_matmul_precision("high")),
    "tf32, by its older flag": ("float32 precision", lambda: setattr(torch.backends.cuda.matmul, "allow_tf32", True)),
    "denormal numbers as zero": ("denormal numbers", lambda: torch.set_flush_denormal(True)),
    "attention without its plain kernel": (
        "kernels of attention",
        lambda: torch.backends.cuda.enable_math_sdp(False),
    ),
    "convolutions of cuDNN": ("cuDNN and cuBLAS", lambda: setattr(torch.backends.cudnn, "allow_tf32", False)),
    "a sum in bfloat16": (
        "cuDNN and cuBLAS",
        lambda: setattr(torch.backends.cuda.matmul, "allow_bf16_reduced_precision_reduction", False),
    ),
    "autocast on a GPU": ("autocast", lambda: torch.set_autocast_enabled("cuda", True)),
    "the dtype of autocast": ("autocast", lambda: torch.set_autocast_dtype("cpu", torch.bfloat16)),
    "a variable": ("environment", lambda: os.environ.update(NVIDIA_TF32_OVERRIDE="1")),
}


def asked() -> list[Any]:
    return [ask() for _, ask, _ in _SWITCHES]


@pytest.mark.parametrize("what", LEFT)
def test_a_switch_that_is_left_changed_is_named_and_put_back(what):
    name, change = LEFT[what]
    before = asked()
    with watched_switches() as found:
        change()
    assert found["switches"].startswith(f"{name} left changed")
    assert asked() == before


@pytest.mark.skipif(not hasattr(torch.backends.cuda.matmul, "fp32_precision"), reason="this torch has no such switch")
def test_so_is_the_newer_switch_also_when_the_notebook_uses_it():
    precision = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    try:
        with watched_switches() as found:
            torch.backends.cuda.matmul.fp32_precision = "tf32"
        assert found["switches"] == "float32 precision left changed"
        assert torch.backends.cuda.matmul.fp32_precision == "tf32"
    finally:
        torch.backends.cuda.matmul.fp32_precision = precision


def test_what_an_answer_puts_back_itself_does_not_count():
    with watched_switches() as found:
        torch.set_float32_matmul_precision("high")
        torch.set_float32_matmul_precision("highest")
    assert found["switches"] == AS_BEFORE
