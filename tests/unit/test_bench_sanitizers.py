"""`w2w bench sanitizers`: what it compares, and that its plain runs have no sanitizer at all."""

import math
from dataclasses import replace

import pytest

from gpu_utils.cli import bench_sanitizers as module
from gpu_utils.errors import UnknownName
from gpu_utils.grading.check import check

from .test_sanitized_checks import IN_CPP, IN_TRITON, LOAD, MIRROR, NO_BARRIER, copying


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
def test_the_kernel_set_is_run_with_each_tool_and_with_all(target):
    seconds = module.kernel_set(target, ["vector_add", "float_atomics"])
    assert list(seconds) == ["", *module.SETS]
    assert all(0 < each < math.inf for found in seconds.values() for each in found.values())
    assert {len(found) for found in seconds.values()} == {2}
    assert set(module.ratios(seconds)) == set(module.SETS)


def test_the_plain_run_of_a_check_finds_nothing_that_only_a_sanitizer_finds(clang):
    wrong = MIRROR.filled(NO_BARRIER)
    assert check(IN_CPP, None, seed=1, runner=module.without(wrong)).passed
    assert module.of_check(IN_CPP, wrong)["wrong"].startswith("sanitized")


def test_a_row_of_a_check_has_both_times_and_their_ratio(monkeypatch):
    monkeypatch.setattr(module, "RUNS", 1)
    exercise = replace(IN_TRITON, targets=("gfx942",), machine_code=True)
    row = module.of_check(exercise, copying(f"{LOAD}\ns_waitcnt vmcnt(0)"))
    assert row["ratio"] == pytest.approx(row["sanitized"] / row["plain"])
    assert "wrong" not in row


def test_an_unknown_part_is_named(tmp_path):
    with pytest.raises(UnknownName, match="gfx942"):
        module.run("gfx943", tmp_path / "out.json")
