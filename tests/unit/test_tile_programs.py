"""Tile programs lowered for three vendors and executed: virtual GPUs of two, and a virtual AI core, against float64."""

from __future__ import annotations

import pytest

import gpu_utils.kernelset.tile_attention
import gpu_utils.kernelset.tile_matmuls
import gpu_utils.kernelset.tile_rows  # noqa: F401 - all enter their cases
from gpu_utils.backends.tiling import launch_tile
from gpu_utils.compiler.tilelang import Lowered, lower, vendor_of
from gpu_utils.errors import BadArgument, CompileFailed, UnknownName
from gpu_utils.kernelset.tile_case import TILE_CASES

NVIDIA = ("sm_90", "sm_100", "sm_80")
pytestmark = pytest.mark.usefixtures("tilelang")
RUNS = [
    (name, target)
    for place, name in enumerate(TILE_CASES)
    for target in ("ascend950", "gfx942", NVIDIA[place % len(NVIDIA)])
]


@pytest.mark.drawn("all", 8)
@pytest.mark.parametrize(("name", "target"), RUNS, ids=[f"{name}-{target}" for name, target in RUNS])
def test_a_tile_program_is_right(name, target):
    case = TILE_CASES[name]
    tensors = case.tensors(seed=len(name))
    if message := case.refused.get(vendor_of(target)):
        with pytest.raises(CompileFailed, match=message):
            lower(case.program, target, **case.sizes)
        return
    launch_tile(case.program, (target,), tensors, **case.sizes)
    assert case.wrong(tensors) == []


def test_a_lowered_program_is_plain_data():
    case = TILE_CASES["gemm, fp16"]
    lowered = lower(case.program, "sm_90", **case.sizes)
    assert Lowered.from_data(lowered.as_data()) == lowered
    assert lowered.tensors == ("A", "B", "C")
    assert lowered.parameters == ("A_desc", "B_desc", "C")
    assert lowered.maps["A_desc"].box == (32, 64)


def test_the_kernel_may_have_its_parameters_in_another_order():
    case = TILE_CASES["gemm with bias and ReLU, fp16"]
    lowered = lower(case.program, "ascend950", **case.sizes)
    assert lowered.tensors == ("A", "B", "bias", "C")
    assert lowered.parameters == ("A", "B", "C", "bias")


def test_what_is_no_tile_program_is_one_sentence():
    case = TILE_CASES["gemm, fp16"]
    with pytest.raises(BadArgument, match="nothing returned NoneType; a tile program returns"):
        lower(_named("nothing", lambda T, vendor: None), "sm_90")
    with pytest.raises(BadArgument, match=r"has 3 tensors \(A, B, C\) and 2 were given"):
        launch_tile(case.program, ("gfx942",), case.tensors(0)[:2], **case.sizes)
    with pytest.raises(UnknownName, match="ascend950"):
        lower(case.program, "ascend951", **case.sizes)


def _named(name, function):
    function.__name__ = name
    return function
