"""What the Triton and training exercises of unit 03 rest on, beyond what every exercise shows."""

from __future__ import annotations

import os

import pytest
import torch

from gpu_utils import virtual_gpu
from gpu_utils.chips import CHIPS, TARGETS
from gpu_utils.exercises.u03_porting_to_rocm import (
    device_agnostic,
    device_agnostic_machines,
    fp8_weights,
    inline_asm,
    port_gpt2,
    port_gpt2_slips,
    shared_budget,
)
from gpu_utils.grading.check import check

TILES = [(64, 64, 32, 2), (64, 128, 64, 2), (128, 64, 32, 4)]


@pytest.mark.parametrize("tile", TILES, ids=str)
@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100", "gfx942", "gfx950"])
def test_the_compiler_asks_for_what_the_table_of_shared_budget_says(target, tile):
    BLOCK_M, BLOCK_N, BLOCK_K, size = tile
    a, b = BLOCK_M * BLOCK_K * size, BLOCK_K * BLOCK_N * size
    rule = shared_budget._own_rule(TARGETS[target])
    for stages in (1, 2, 3):
        asked, operands = shared_budget.shared_bytes(target, *tile, stages), rule(a, b, stages)
        if TARGETS[target].vendor == "amd":
            assert asked == operands
        else:  # the tile of C may pass through the same memory at the end, at most whole
            barriers = 32 if target == "sm_100" else 0  # tcgen05.mma says by an mbarrier when it is done
            assert operands <= asked <= max(operands + barriers, BLOCK_M * BLOCK_N * size)


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100", "gfx942"])
def test_the_bytes_do_not_depend_on_the_warps_so_the_check_may_take_many(target, monkeypatch):
    asked = []
    for warps in (4, shared_budget._WARPS.get(target, shared_budget._MANY_WARPS)):
        monkeypatch.setattr(shared_budget, "_WARPS", {target: warps})
        asked.append(shared_budget.shared_bytes.__wrapped__(target, 64, 64, 64, 2, 3))
    assert asked[0] == asked[1]


def test_a_property_that_the_machines_of_the_check_lack_is_named():
    def answer():
        return {"ranks": torch.cuda.get_device_properties(0).multi_processor_count}

    report = check(device_agnostic.EXERCISE, answer, seed=1)
    assert (
        "have no property 'multi_processor_count'; they have name, major, minor, total_memory, warp_size, gcnArchName"
        in report.headline
    )


def test_weights_and_scale_may_be_a_list_and_each_must_be_what_it_is_called():
    def loading(dress):
        return lambda codes, scale, target: dress(*fp8_weights._loaded(fp8_weights.DTYPES[target], codes, scale))

    def headline(dress):
        return check(fp8_weights.EXERCISE, loading(dress), seed=1).headline

    assert check(fp8_weights.EXERCISE, loading(lambda *pair: list(pair)), seed=1).passed
    assert "expected a pair: (weights, scale)" in headline(lambda weights, scale: weights)
    assert "expected that of codes: (1, 2)" in headline(lambda weights, scale: (weights.T, scale))
    assert "one for each row" in headline(lambda weights, scale: (weights, scale.mean()))
    assert "expected a tensor of weights" in headline(lambda weights, scale: (weights.float().tolist(), scale))


def test_a_default_dtype_that_is_left_behind_is_noticed_and_put_back():
    right = port_gpt2_slips.variant()

    def answer(config, weights, tokens, settings):
        torch.set_default_dtype(torch.float64)
        return right(config, weights, tokens, settings)

    report = check(port_gpt2.EXERCISE, answer, seed=1)
    assert "default dtype left changed: torch.float32 -> torch.float64" in report.headline
    assert torch.get_default_dtype() == torch.float32


SWITCHES = {
    "deterministic mode": lambda: torch.use_deterministic_algorithms(True),
    "grad mode": lambda: torch.set_grad_enabled(False),
    "threads": lambda: torch.set_num_threads(2),
    "cuDNN and cuBLAS": lambda: setattr(torch.backends.cudnn, "deterministic", True),
    "environment": lambda: os.environ.update(CUBLAS_WORKSPACE_CONFIG=":4096:8"),
}


@pytest.mark.parametrize("name", SWITCHES)
def test_so_is_every_other_switch(name):
    right = port_gpt2_slips.variant()

    def answer(**inputs):
        result = right(**inputs)
        SWITCHES[name]()
        return result

    report = check(port_gpt2.EXERCISE, answer, seed=1)
    assert f"{name} left changed" in report.headline
    assert "CUBLAS_WORKSPACE_CONFIG" not in os.environ


def test_a_tile_past_the_answer_compiles_and_would_not_load():
    tile = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "bytes_per_value": 2}
    deepest = shared_budget.shared_budget_reference("gfx942", **tile)
    assert shared_budget.shared_bytes("gfx942", *tile.values(), deepest) == TARGETS["gfx942"].shared_per_block
    assert shared_budget.shared_bytes("gfx942", *tile.values(), deepest + 1) > TARGETS["gfx942"].shared_per_block


def test_fp8_of_every_chip_agrees_with_its_peak_in_the_registry():
    for name, chip in CHIPS.items():
        figure = chip.peak_figure("fp8")
        if figure.value is not None:
            assert fp8_weights.DTYPES[chip.target] != fp8_weights.BF16, name
        elif "no FP8" in figure.note:
            assert fp8_weights.DTYPES[chip.target] == fp8_weights.BF16, name


def test_the_settings_know_the_same_fp8_targets():
    has_fp8 = {target for target, dtype in fp8_weights.DTYPES.items() if dtype != fp8_weights.BF16}
    assert set(device_agnostic_machines.HAVE_FP8) == has_fp8


def test_a_described_machine_answers_and_then_torch_is_as_before():
    before = torch.version.hip, torch.cuda.is_available(), torch.cuda.get_device_properties
    with device_agnostic.fake_machine(device_agnostic_machines.machine("eight MI250X dies")):
        assert torch.version.cuda is None
        assert torch.cuda.get_device_capability() == (9, 0)  # as an H100 says: vllm #40620
    with device_agnostic.fake_machine(device_agnostic_machines.machine("a ROCm build, no GPU")):
        with pytest.raises(RuntimeError, match="No CUDA GPUs"):
            torch.cuda.get_device_properties(0)
    assert (torch.version.hip, torch.cuda.is_available(), torch.cuda.get_device_properties) == before


@pytest.mark.parametrize("target", ["sm_90", "gfx90a", "gfx1201"])
def test_the_ported_assembly_runs_on_targets_that_the_check_does_not_try(target, load):
    words = torch.tensor([0x04030201, -1], dtype=torch.int32)
    with virtual_gpu(target):
        halves = load("03.inline_asm", "solution")(words)
    assert halves.tolist() == [[1025, 1026, 1027, 1028], [1279] * 4]


def test_assembly_that_does_not_build_is_reported_in_one_sentence_with_nothing_else_printed(capfd):
    wrong = {wrong.name: wrong.answer for wrong in inline_asm.EXERCISE.misconceptions}
    report = check(inline_asm.EXERCISE, wrong["no_fence"], seed=1)
    assert "invalid instruction" in report.headline
    assert capfd.readouterr().err == ""


def test_the_ported_step_follows_the_device_and_dtype_of_its_tensors(load):
    case = next(case for case in port_gpt2.EXERCISE.cases if case["precision"] == "float32")
    inputs = port_gpt2._inputs(case, torch.Generator().manual_seed(1))
    del inputs["on_cpu"]
    result = load("03.port_gpt2", "solution")(**inputs)
    assert {value.dtype for value in result["weights"].values()} == {torch.float32}
    assert result["losses"][0] > 0
