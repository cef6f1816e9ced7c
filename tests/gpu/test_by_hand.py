"""Unit 07 on the device: PTX written by hand goes through the driver, inline PTX through Triton."""

from __future__ import annotations

import pytest
import torch

from gpu_utils import exercises
from gpu_utils.chips import probe
from gpu_utils.course.sources import load_solution
from gpu_utils.exercises.u07_ptx_and_amdgcn import on_device
from gpu_utils.exercises.u07_ptx_and_amdgcn.by_hand import ptx_kernel
from gpu_utils.grading.check import check

DOUBLE = """
  .reg .b32 %r<2>;
  .reg .f32 %f<2>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [x_ptr];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd2, %r1, 4;
  add.s64 %rd3, %rd1, %rd2;
  ld.global.f32 %f1, [%rd3];
  add.f32 %f1, %f1, %f1;
  st.global.f32 [%rd3], %f1;
  ret;
"""


def needs_nvidia():
    if probe().vendor != "nvidia":
        pytest.skip("PTX runs on NVIDIA GPUs")


def test_the_driver_takes_ptx_as_it_was_written():
    needs_nvidia()
    x = torch.arange(32.0)
    assert torch.equal(on_device.launch(ptx_kernel("double", "x_ptr", DOUBLE), "double", 1, 32, [x], x), 2 * x)


@pytest.mark.parametrize("name", ["lane_sum", "barriers", "mma_layout"])
def test_machine_code_of_the_solutions_runs_on_the_device_in_a_check(name, monkeypatch):
    needs_nvidia()
    launches, launch = [], on_device.launch
    monkeypatch.setattr(on_device, "launch", lambda *args: launches.append(args[1]) or launch(*args))
    report = check(exercises.find(f"07.{name}"), load_solution(f"07.{name}"))
    assert report.passed, report.headline
    assert launches


@pytest.mark.parametrize("name", ["ptx_ex2", "ptx_cvt_fp8", "no_spills"])
def test_inline_ptx_runs_on_the_device_in_a_check(name):
    needs_nvidia()
    report = check(exercises.find(f"07.{name}"), load_solution(f"07.{name}"))
    assert report.passed, report.headline
    assert "gpu" in {outcome.backend for outcome in report.outcomes}
