"""Files of launches as lessons show them, and what the readers say of them."""

from __future__ import annotations

import pytest
import torch

from gpu_utils.lesson import launch_on, profile_files, read_texts
from tests.unit.kernels import add_kernel

N = 5_000


@pytest.fixture(scope="module")
def gpus():
    x = torch.ones(N)
    return launch_on(("sm_80", "gfx942"), add_kernel, (5,), x, x, torch.empty(N), N, BLOCK=1024, threads=256, l2=True)


def test_each_vendor_has_the_files_of_its_own_profiler(gpus):
    assert list(profile_files(gpus["sm_80"])) == ["ncu.csv"]
    assert list(profile_files(gpus["gfx942"])) == ["kernel_trace.csv", "counter_collection.csv"]
    assert '"Metric Name"' not in profile_files(gpus["sm_80"], wide=True)["ncu.csv"]


def test_grids_bytes_and_waves_come_back_in_one_unit_with_their_sources(gpus):
    nvidia, amd = (read_texts(profile_files(gpu)).kernels[0] for gpu in gpus.values())
    for one in (nvidia, amd):
        assert one.value("grid") == (5, 1, 1)
        assert one.value("block") == (256, 1, 1)
        assert one.value("memory_written") == N * 4
    assert (nvidia.value("waves"), amd.value("waves")) == (40, 20)
    assert "FETCH_SIZE" in amd.figures["memory_read"].source
    assert "dram__bytes_read.sum" in nvidia.figures["memory_read"].source


def test_without_the_model_of_the_l2_there_are_no_bytes():
    x = torch.ones(N)
    gpu = launch_on(("gfx942",), add_kernel, (5,), x, x, torch.empty(N), N, BLOCK=1024)["gfx942"]
    assert read_texts(profile_files(gpu)).kernels[0].value("memory_read") is None
