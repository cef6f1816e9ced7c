"""`w2w bench kernels`: its baselines compute what the solutions compute, and what was not timed says so."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import torch

from gpu_utils import virtual_gpu
from gpu_utils.cli import bench_kernels
from gpu_utils.cli.bench_kernels import WORKS, measured, run
from gpu_utils.course.sources import load_solution
from gpu_utils.errors import BadArgument
from gpu_utils.timing import Timing

OF_CHANCE = {"dropout"}
"""Whose result is drawn at random."""


@pytest.mark.parametrize("name", measured())
def test_torchs_function_gives_what_the_solution_gives(name):
    work = WORKS[name]
    args = work.inputs(False)
    with virtual_gpu("sm_89"):  # which has FP8
        found = load_solution(bench_kernels._id(name))(*args)
    wanted = work.torch(*args)
    assert work.bytes(*args) > 0
    if name in OF_CHANCE:
        return
    if isinstance(found, tuple) and not isinstance(wanted, tuple):
        found = found[0]  # of forward torch gives the result alone
    for one, other in zip(found, wanted, strict=True) if isinstance(found, tuple) else [(found, wanted)]:
        allowed = 1e-4 if other.dtype == torch.float32 else 2 * torch.finfo(other.dtype).eps
        torch.testing.assert_close(one.flatten().float(), other.flatten().float(), rtol=allowed, atol=allowed)


@pytest.fixture
def one_kernel(monkeypatch):
    monkeypatch.setattr(bench_kernels, "measured", lambda: {"softmax": WORKS["softmax"]})
    monkeypatch.setattr(bench_kernels, "TARGETS", ("gfx942",))
    monkeypatch.setattr(bench_kernels, "COUNTED_ON", ("sm_90",))


def test_without_a_gpu_kernels_are_counted_and_timing_is_owed(one_kernel, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(bench_kernels, "probe", lambda: machine("cpu"))
    found = run(tmp_path / "kernels.json")
    assert json.loads((tmp_path / "kernels.json").read_text()) == found
    assert "<svg" in (tmp_path / "kernels.svg").read_text()
    kernel = found["kernels"]["softmax"]
    assert kernel["counts"]["solution, sm_90"]["over the least"] == 1.0
    assert "solution, gfx942" in kernel["needs"]
    assert not found["timed"]
    assert "still owed" in capsys.readouterr().out
    with pytest.raises(BadArgument, match="nothing was timed"):
        run(tmp_path / "kernels.json", save=True)


def test_with_a_gpu_times_are_kept_with_chip_versions_and_date(one_kernel, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bench_kernels, "probe", lambda: machine("nvidia"))
    monkeypatch.setattr(bench_kernels, "liger_version", lambda: "1.0")
    monkeypatch.setattr(bench_kernels, "COPY_BYTES", 1000)
    monkeypatch.setattr(torch, "empty", lambda *_, **__: torch.zeros(8))
    monkeypatch.setattr(bench_kernels, "bench", lambda call, device: Timing(1e-6, 1e-6, 1e-6, 5, device, ""))
    monkeypatch.setattr(
        bench_kernels, "raced", lambda rungs, *_, **__: {name: {"x torch eager": 2.0} for name in rungs}
    )
    found = run(tmp_path / "build" / "kernels.json", save=True)
    assert found["kernels"]["softmax"]["times"].keys() == {"solution", "liger"}
    assert found["copy bandwidth (GB/s)"] == 2
    assert found["versions"] == {"driver": "1", "liger-kernel": "1.0"}
    kept = tmp_path / "benchmarks" / "results" / f"kernels_sm_90_{found['date'][:10]}.json"
    assert json.loads(kept.read_text()) == found


def machine(vendor):
    return SimpleNamespace(vendor=vendor, name="a device", target="sm_90", chip=None, versions={"driver": "1"})
