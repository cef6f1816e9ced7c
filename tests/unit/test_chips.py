"""The registry of chips and targets, and the probe of this machine."""

from __future__ import annotations

import dataclasses
import re
from types import SimpleNamespace

import pytest
import torch

from gpu_utils.chips import CHIPS, TARGETS, Figure, chip_of_device, probe, probing
from gpu_utils.chips.caches import L2_OF_TARGET
from gpu_utils.chips.chip import FORMATS
from gpu_utils.chips.table import Table
from gpu_utils.errors import UnknownName


def figures(chip):
    fields = [getattr(chip, field.name) for field in dataclasses.fields(chip)]
    return [value for value in fields if isinstance(value, Figure)] + list(chip.peaks.values())


def test_every_chip_that_the_course_speaks_of_is_there():
    assert set(CHIPS) >= {
        *("A100", "L40", "H100", "H200", "H800", "H20", "B200"),
        *("MI210", "MI250X", "MI300X", "MI325X", "MI350X", "MI355X", "RX 7900 XTX", "RX 9070 XT"),
    }


@pytest.mark.parametrize("key", list(CHIPS))
def test_every_figure_has_a_source_or_a_reason(key):
    for figure in figures(CHIPS[key]):
        assert figure.unit
        if figure.value is None:
            assert figure.note
            assert "unknown" in str(figure)
        else:
            assert figure.value > 0
            assert figure.source
            assert figure.source in str(figure)


@pytest.mark.parametrize("key", list(CHIPS))
def test_a_chip_and_its_target_belong_together(key):
    chip = CHIPS[key]
    assert chip.limits is TARGETS[chip.target]
    assert chip.vendor in ("nvidia", "amd")
    assert set(chip.peaks) <= set(FORMATS)
    assert chip.name in str(chip)


@pytest.mark.parametrize("key", list(CHIPS))
def test_wider_formats_are_not_faster(key):
    peaks = [CHIPS[key].peak(name) for name in ("fp32", "tf32", "bf16", "fp8")]
    known = [peak for peak in peaks if peak is not None]
    assert known == sorted(known)


def test_peaks_are_dense_not_sparse():
    assert CHIPS["H200"].peak("bf16") == CHIPS["H100"].peak(torch.bfloat16) == 989.4


def test_an_unknown_figure_is_none_and_says_why():
    mi325x = CHIPS["MI325X"]
    assert mi325x.bandwidth is None
    assert mi325x.ridge("bf16") is None
    assert mi325x.bandwidth_tb.note == "no confirmed source"
    assert CHIPS["A100"].peak("fp8") is None
    assert CHIPS["A100"].peak_figure("fp8").note == "no FP8 matrix instructions"
    assert CHIPS["MI300X"].peak("float16") is None


@pytest.mark.parametrize(("key", "cus", "ghz"), [("MI210", 104, 1.7), ("MI250X", 110, 1.7), ("MI355X", 256, 2.4)])
def test_a_derived_peak_shows_the_formula_that_gives_it(key, cus, ghz):
    chip = CHIPS[key]
    for name in ("fp32", "fp32_matrix", "bf16", "fp8"):
        figure = chip.peak_figure(name)
        if figure.value is not None:
            found = re.search(r"derived: (\d+) CUs x ([\d,]+) FLOP of a clock and CU x ([\d.]+) GHz", figure.note)
            assert (int(found[1]), float(found[3])) == (cus, ghz), name
            assert figure.value == round(cus * int(found[2].replace(",", "")) * ghz / 1000, 1)
            assert chip.units.value == cus


def test_vector_peaks_of_amd_say_whether_they_count_plain_packed_or_dual_issued_instructions():
    for key in ("MI210", "MI250X", "MI300X", "MI355X", "RX 7900 XTX", "RX 9070 XT"):
        assert re.search(r"plain FMA|packed FP32|dual-issued", CHIPS[key].peak_figure("fp32").note), key


def test_the_ridge_is_peak_over_bandwidth():
    assert CHIPS["MI300X"].ridge("bf16") == pytest.approx(1307.4 / 5.3)


def test_unknown_names_offer_the_nearest():
    with pytest.raises(UnknownName, match="did you mean 'MI300X'"):
        CHIPS["MI300"]
    with pytest.raises(UnknownName, match="did you mean 'gfx942'"):
        TARGETS["gfx924"]
    with pytest.raises(UnknownName, match="number format"):
        CHIPS["H100"].peak("bf61")
    assert "MI300" not in CHIPS
    assert "sm_91" not in TARGETS


def test_a_table_holds_its_rows_in_order_and_prints_one_a_line():
    table = Table("letter", {"alpha": 1, "beta": 2})
    assert (list(table), len(table), repr(table), "gamma" in table) == (["alpha", "beta"], 2, "1\n2", False)
    with pytest.raises(UnknownName, match="no letter 'gamma'; there are alpha, beta"):
        table["gamma"]


def test_the_targets_of_the_course_are_there():
    assert set(TARGETS) >= {
        "sm_80",
        "sm_89",
        "sm_90",
        "sm_100",
        "gfx90a",
        "gfx942",
        "gfx950",
        "gfx1100",
        "gfx1201",
        "gfx1250",
    }


@pytest.mark.parametrize("name", list(TARGETS))
def test_a_target_and_the_chip_that_stands_for_it_belong_together(name):
    row = TARGETS[name]
    assert row.name == name
    assert CHIPS[row.chip].target == name
    assert row.executed == (name in L2_OF_TARGET)
    assert (row.capability > 0) == (row.vendor == "nvidia") == (row.isa == "ptx")
    assert ("fp8" in row.inputs) == (row.fp8 != "none")


def test_an_unknown_family_is_refused_and_so_is_a_name_of_another_one():
    with pytest.raises(UnknownName, match="no family of targets 'gfx13'; did you mean 'gfx12'"):
        dataclasses.replace(TARGETS["gfx1201"], name="gfx1300", family="gfx13")
    with pytest.raises(UnknownName, match="no target of the family gfx12 'gfx942'"):
        dataclasses.replace(TARGETS["gfx1201"], name="gfx942")
    with pytest.raises(UnknownName, match="no flavour of 8-bit floats 'ieee'"):
        dataclasses.replace(TARGETS["gfx1201"], fp8="ieee")


def test_waves_have_64_lanes_on_cdna_only():
    assert {name for name, target in TARGETS.items() if target.lanes == 64} == {"gfx90a", "gfx942", "gfx950"}


def test_a_unit_holds_64_warps_or_32_wavefronts():
    assert (TARGETS["sm_90"].waves_per_unit, TARGETS["gfx942"].waves_per_unit) == (64, 32)
    assert all(target.source for target in TARGETS.values())


@pytest.mark.parametrize(
    ("reported", "key"),
    [
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA H20", "H20"),
        ("AMD Instinct MI300X", "MI300X"),
        ("AMD Radeon RX 7900 XTX", "RX 7900 XTX"),
    ],
)
def test_the_name_that_a_driver_reports_finds_its_chip(reported, key):
    assert chip_of_device(reported) is CHIPS[key]


@pytest.mark.parametrize("reported", ["NVIDIA GeForce RTX 4090", "NVIDIA H100 PCIe", "NVIDIA H100 NVL", "NVIDIA GH200"])
def test_other_products_find_none(reported):
    assert chip_of_device(reported) is None


# --- the probe


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_the_probe_names_the_cpu():
    found = probe()
    assert found.vendor == "cpu"
    assert found.units >= 1
    assert found.memory > 2**30
    assert found.versions["torch"] == torch.__version__
    assert set(found.versions) >= {"python", "torch", "triton"}
    assert "no GPU" in str(found)


def fake_gpu(monkeypatch, *, cuda=None, hip=None, name, **properties):
    memory = properties.pop("total_memory", 80 * 2**30)
    given = SimpleNamespace(name=name, total_memory=memory, multi_processor_count=properties.pop("units"), **properties)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: given)


def test_an_nvidia_device_is_named_with_its_target(monkeypatch):
    fake_gpu(monkeypatch, cuda="13.0", name="NVIDIA H100 80GB HBM3", major=9, minor=0, units=132)
    found = probe()
    assert (found.vendor, found.target, found.lanes, found.units) == ("nvidia", "sm_90", 32, 132)
    assert found.chip is CHIPS["H100"]
    assert found.versions["cuda"] == "13.0"
    assert "hip" not in found.versions
    assert "132 SMs, 80.0 GiB, warp of 32 lanes" in str(found)


def test_blackwell_has_a_target_of_three_digits(monkeypatch):
    fake_gpu(monkeypatch, cuda="13.0", name="NVIDIA B200", major=10, minor=0, units=148)
    assert probe().target == "sm_100"


@pytest.mark.parametrize(
    "line",
    [
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  575.57.08  Sat May 24 00:00:00 UTC 2025",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  575.57.08  Release Build  (root@host)",
    ],
)
def test_the_drivers_version_is_read_from_its_own_line(tmp_path, monkeypatch, line):
    (tmp_path / "version").write_text(line + "\nGCC version:  gcc version 12.2.0\n")
    monkeypatch.setattr(probing, "NVIDIA_DRIVER", tmp_path / "version")
    fake_gpu(monkeypatch, cuda="13.0", name="NVIDIA H100 80GB HBM3", major=9, minor=0, units=132)
    assert probe().versions["driver"] == "575.57.08"


def test_an_amd_device_is_known_where_torch_has_no_cuda_version(monkeypatch):
    arch = "gfx942:sramecc+:xnack-"
    fake_gpu(monkeypatch, hip="7.1.0", name="AMD Instinct MI300X", gcnArchName=arch, warp_size=64, units=304)
    found = probe()
    assert (found.vendor, found.target, found.lanes) == ("amd", "gfx942", 64)
    assert found.chip is CHIPS["MI300X"]
    assert found.versions["hip"] == "7.1.0"
    assert "304 CUs, 80.0 GiB, wavefront of 64 lanes" in str(found)


def test_an_amd_device_without_a_reported_warp_size_follows_its_family(monkeypatch):
    fake_gpu(monkeypatch, hip="7.1.0", name="AMD Radeon RX 7900 XTX", gcnArchName="gfx1100", units=96)
    assert probe().lanes == 32


def test_a_broken_driver_is_one_sentence(monkeypatch):
    fake_gpu(monkeypatch, cuda="13.0", name="x", units=1)

    def broken(index):
        raise RuntimeError("CUDA error: unknown error\nsecond line")

    monkeypatch.setattr(torch.cuda, "get_device_properties", broken)
    found = probe()
    assert found.vendor == "cpu"
    assert found.problem.endswith("RuntimeError: CUDA error: unknown error")


def test_a_gpu_build_without_a_gpu_says_so(monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "is the driver loaded" in str(probe())
