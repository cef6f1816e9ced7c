"""Files that torch.profiler and Nsight Compute wrote on a real GPU; the README beside them says how."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from gpu_utils.profiling.reading import read_texts

FIXTURES = Path(__file__).parents[2] / "fixtures" / "profiles"


def recorded(name):
    return read_texts({name: gzip.decompress((FIXTURES / f"{name}.gz").read_bytes()).decode()})


@pytest.mark.parametrize("name", ["ncu_2025.3.1_h200_basic.csv", "ncu_2025.3.1_h200_raw.csv"])
def test_both_tools_tell_of_the_same_launches(name):
    torch, ncu = recorded("torch_h200_2.11.0_forward.json").table(), recorded(name).table()
    assert len(torch) == len(ncu) == 10
    for column in ("grid", "block", "registers", "waves"):
        assert list(torch[column]) == list(ncu[column]), column
    assert all(ncu["duration"] > torch["duration"]), "alone, with cold caches, and at other clocks"


def test_figures_of_nsight_compute_have_the_course_s_names_and_units():
    basic, raw = recorded("ncu_2025.3.1_h200_basic.csv"), recorded("ncu_2025.3.1_h200_raw.csv")
    assert basic.devices["0"].target == raw.devices["0"].target == "sm_90"
    assert basic.table()["occupancy"].between(5, 7).all(), "one block of four warps on an SM that holds 64"
    assert list(raw.table()["memory_bytes"][:2]) == [29440, 68864]
    assert any("rules" in remark for remark in basic.remarks), "rows of advice are named, and no figures"


def test_a_step_has_its_kernels_under_the_operators_that_launched_them():
    table = recorded("torch_h200_2.11.0_step.json").table()
    assert len(table) == 50
    assert {"aten::addmm", "aten::native_layer_norm"} <= set(table["op"])
