"""Ladders of kernels: what is counted, compiled and timed of each rung is that rung's own."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
import triton
import triton.language as tl

from gpu_utils.backends import rungs
from gpu_utils.backends.rungs import SPILLS, climbed, launches_of, needs, raced
from gpu_utils.errors import BadArgument, UnknownName
from gpu_utils.timing import Ratio, Timing

ROWS, COLUMNS = 8, 256


@triton.jit
def scale_kernel(x_ptr, out_ptr, n, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < n) * factor, mask=at < n)


@triton.jit
def add_up_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out_ptr, tl.sum(tl.load(x_ptr + at, mask=at < n, other=0.0)))


def scaled(x, out=None, factor=3.0, kernel=scale_kernel, block=256):
    out = torch.empty_like(x) if out is None else out
    options = {} if isinstance(kernel, triton.runtime.Autotuner) else {"BLOCK": block}
    kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel(), factor, **options)
    return out


def twice(x):
    return scaled(scaled(x, factor=1.5), factor=2.0)


def scaled_and_added(x):
    total = torch.zeros(1)
    add_up_kernel[(triton.cdiv(x.numel(), 256),)](scaled(x), total, x.numel(), BLOCK=256)
    return total


LADDER = {"two launches": twice, "one launch": scaled}


@pytest.fixture(scope="module")
def x():
    return torch.randn(ROWS, COLUMNS)


@pytest.fixture(scope="module")
def rows(x):
    return climbed(LADDER, ("sm_80", "gfx942"), x, least=2 * x.numel() * 4)


def test_a_rung_counts_its_own_launches_and_bytes(rows):
    assert list(rows) == ["two launches, sm_80", "one launch, sm_80", "two launches, gfx942", "one launch, gfx942"]
    for target in ("sm_80", "gfx942"):
        one, two = rows[f"one launch, {target}"], rows[f"two launches, {target}"]
        assert (one["launches"], two["launches"]) == (1, 2)
        assert one["bytes moved"] == 2 * ROWS * COLUMNS * 4
        assert (one["over the least"], two["over the least"]) == (1.0, 2.0)
        assert two["instructions"] == 2 * one["instructions"]
        assert two["predicted cycles"] == pytest.approx(2 * one["predicted cycles"], abs=1)
        assert one["bank conflicts"] == one["barriers"] == one["shared bytes"] == one["matrix FLOPs"] == 0


def test_atomics_are_bytes_that_move_and_reductions_use_shared_memory(x):
    row = climbed({"added": scaled_and_added}, ("sm_80",), x)["added, sm_80"]
    programs = ROWS * COLUMNS // 256
    assert row["bytes moved"] == 3 * ROWS * COLUMNS * 4 + programs * 32
    assert "over the least" not in row
    assert row["shared bytes"] > 0
    assert row["barriers"] > 0


def test_the_trials_of_an_autotuner_are_not_counted(x):
    configs = [triton.Config({"BLOCK": block}) for block in (128, 256)]
    tuned = triton.autotune(configs, key=["n"])(scale_kernel)
    found = climbed({"tuned": lambda x: scaled(x, kernel=tuned)}, ("sm_80",), x)["tuned, sm_80"]
    assert found["launches"] == 1
    assert found["bytes moved"] == 2 * ROWS * COLUMNS * 4
    assert len(launches_of(lambda x: scaled(x, kernel=tuned), x)) == 1


def test_the_launches_of_a_call_come_with_kernel_grid_and_arguments(x):
    first, second = launches_of(twice, x)
    assert first.kernel is scale_kernel
    assert first.grid == (ROWS,)
    assert [launch.args[3] for launch in (first, second)] == [1.5, 2.0]
    assert first.kwargs["BLOCK"] == 256


def test_what_a_rung_needs_is_compiled_for_targets_that_no_virtual_gpu_executes(x):
    found = needs({"one launch": scaled}, x, targets=("sm_90", "sm_100", "gfx942"))
    assert list(found) == ["one launch, sm_90", "one launch, sm_100", "one launch, gfx942"]
    for row in found.values():
        assert 0 < row["registers"] < 64
        assert row[SPILLS] == row["shared bytes"] == 0
        assert row["occupancy (%)"] == 100
        assert row["widest load (bits)"] > 0
        assert row["widest load (bits)"] == row["widest store (bits)"]


def test_a_rung_with_two_kernels_has_a_row_for_each(x):
    found = needs({"added": scaled_and_added}, x, targets=("sm_80",))
    assert list(found) == ["added: scale_kernel, sm_80", "added: add_up_kernel, sm_80"]
    assert found["added: add_up_kernel, sm_80"]["shared bytes"] > 0


def test_one_kernel_in_two_forms_has_a_row_of_the_largest_need(x):
    narrow, wide = (needs({"one": lambda x, b=b: scaled(x, block=b)}, x, targets=("sm_80",)) for b in (128, 1024))
    both = needs({"both": lambda x: scaled(scaled(x, block=128), block=1024)}, x, targets=("sm_80",))["both, sm_80"]
    for column in ("registers", "widest load (bits)"):
        assert both[column] == max(narrow["one, sm_80"][column], wide["one, sm_80"][column])


def test_launches_that_differ_in_numbers_alone_are_one_compilation(x):
    first, second = launches_of(lambda x: scaled(scaled(x, block=128), block=256), x)
    assert rungs.form(first) != rungs.form(second)
    again = launches_of(scaled, x) + launches_of(scaled, torch.randn(ROWS, COLUMNS))
    assert rungs.form(again[0]) == rungs.form(again[1])


def test_without_a_gpu_a_race_says_so(x, monkeypatch):
    monkeypatch.setattr(rungs, "probe", lambda: SimpleNamespace(vendor="cpu"))
    (row,) = raced(LADDER, x, torch=lambda x: x * 3, bytes=8).values()
    assert "no GPU" in row["why"]


def test_on_a_gpu_each_rung_is_timed_against_both(x, monkeypatch):
    def timed(call, *, against, seconds, device):
        assert device == "cuda"
        call()
        return Ratio(2.0, 1.9, 2.1, Timing(1e-5, 9e-6, 2e-5, 5, device, ""), Timing(2e-5, 1e-5, 3e-5, 5, device, ""))

    called = []
    monkeypatch.setattr(rungs, "bench", timed)
    monkeypatch.setattr(rungs, "probe", lambda: SimpleNamespace(vendor="nvidia", chip=rungs_chip()))
    monkeypatch.setattr(torch.Tensor, "to", lambda tensor, _: tensor)
    monkeypatch.setattr(torch, "compile", lambda fn: fn)
    found = raced({"one": called.append}, x, torch=lambda x: x * 3, bytes=3.35e12 * 5e-6)
    assert len(called) == 2
    assert found["one"] == {
        "median (us)": 10.0,
        "quartiles (us)": "9.0 to 20.0",
        "x torch eager": 2.0,
        "x torch.compile": 2.0,
        "of the roofline": "50%",
    }


def rungs_chip():
    from gpu_utils.chips import CHIPS

    return CHIPS["H100"]


def test_a_ladder_without_rungs_a_wrong_least_and_an_unknown_target_are_refused(x):
    for call in (lambda: climbed({}, ("sm_80",), x), lambda: needs({}, x), lambda: climbed(LADDER, (), x, least=0)):
        with pytest.raises(BadArgument, match="expected"):
            call()
    with pytest.raises(UnknownName, match="sm_8"):
        launches_of(scaled, x, target="sm_8")
